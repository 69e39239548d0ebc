"""Train a judge of paraphrases on labelled pairs; print how well it separates the labels.

python scripts/train_judge.py --model_name_or_path DIR_OR_ID --train_file train.tsv \
    --dev_file dev.tsv --test_file test.tsv --output_dir outputs/judge

Several files per flag, or one YAML file. Start from an encoder that is neither base model nor
teacher of the models to judge.
"""

from __future__ import annotations

from collections.abc import Sequence

from sentence_transformers.cross_encoder import CrossEncoderTrainingArguments

from simbert_hf.judging.judge import Judge, figures_table
from simbert_hf.judging.training import JUDGE_PRESETS, JudgeArguments, train_judge
from simbert_hf.utils.parsing import parse_arguments
from simbert_hf.utils.script import check_new_output, check_output, run_script


def main(argv: Sequence[str] | None = None) -> Judge:
    """Train, measure and save a judge."""
    types = (JudgeArguments, CrossEncoderTrainingArguments)
    given, args = parse_arguments(types, argv, JUDGE_PRESETS)
    check = check_output if Judge.is_in(args.output_dir) else check_new_output  # one is replaced
    check(args.output_dir, [given.model_name_or_path])
    judge = train_judge(given, args)
    judge.save(args.output_dir)
    print(figures_table(judge.record["figures"]))
    data = judge.record["data"]
    train, dev = (sum(file["left_out"] for file in data[split]) for split in ("train", "dev"))
    print(
        f"Left out, as they share a sentence with held-out pairs: {train} in train, {dev} in dev."
    )
    print(f"Threshold {judge.threshold}; the judge is saved in {args.output_dir}.")
    return judge


if __name__ == "__main__":
    run_script(main)
