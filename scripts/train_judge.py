"""Train a judge of paraphrases on labelled pairs; print how well it tells them apart.

python scripts/train_judge.py --start DIR_OR_ID --train_file train.tsv --dev_file dev.tsv \
    --test_file test.tsv --output_dir outputs/judge        (several files a flag; or one YAML file)

Start from an encoder that is neither start nor teacher of the models to judge.
"""

from __future__ import annotations

from collections.abc import Sequence

from sentence_transformers.cross_encoder import CrossEncoderTrainingArguments

from simbert_hf.judging.judge import Judge
from simbert_hf.judging.training import (
    JUDGE_PRESETS,
    JudgeArguments,
    figures_table,
    left_out,
    train_judge,
)
from simbert_hf.utils.parsing import parse_arguments
from simbert_hf.utils.script import check_output, run_script


def main(argv: Sequence[str] | None = None) -> Judge:
    """Train, measure and save a judge."""
    types = (JudgeArguments, CrossEncoderTrainingArguments)
    given, args = parse_arguments(types, argv, JUDGE_PRESETS)
    check_output(args.output_dir, [given.start])
    judge = train_judge(given, args)
    judge.save(args.output_dir)
    print(figures_table(judge.record["figures"]))
    print(left_out(judge.record["data"]))
    print(f"Threshold {judge.threshold}; the judge is in {args.output_dir}.")
    return judge


if __name__ == "__main__":
    run_script(main)
