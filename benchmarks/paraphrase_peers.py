"""Paraphrases by SimBERT and by transformers' models, from one base model and the same pairs.

python -m benchmarks.paraphrase_peers --start all-MiniLM-L6-v2 --judge outputs/judge [--steps 150]
    [--sweep 2e-4 5e-4 1e-3]

- SimBERT: scripts/train_simbert.py, seq2seq and similarity loss, the recipe's learning rates;
- causal LM: BertLMHeadModel on `[CLS] source [SEP] target [SEP]`, loss on the target alone;
- encoder-decoder: EncoderDecoderModel, both halves from the base model, with new cross-attention.
  Nothing is shared between them, as transformers has dropped `tie_encoder_decoder`.

All train on both orders of the shipped Tatoeba pairs, one of each group, for the same number of
steps and rows (similar lengths together), in bfloat16, with one schedule and seed. LM heads start
at the identity, and new weights train at ten times the rate of the others. The peers' rate is that
of --sweep with the lowest loss, after --sweep_steps, on held-out pairs that are not judged.

Each generates n samples for every source, with top-k 5. Without repetitions and copies of the
source, those chosen are: with SimBERT's own ranking, the best by its vector and both
log-probabilities; `by the base model`, the best by the base model's vector and the generator's
fluency; `as drawn`, the first ones, unranked. Finished training and generation are not repeated.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from transformers import BertLMHeadModel, EncoderDecoderModel, Trainer

from benchmarks.group_data import TATOEBA
from benchmarks.reports import DEVICE, environment, kept, same_settings, save_report
from benchmarks.transformers_peers import (
    CAUSAL,
    NEW_TOKENS,
    PEERS,
    TOP_K,
    Pair,
    token_rows,
    train_peer,
    write_peer,
)
from scripts.train_simbert import main as train_simbert
from simbert_hf import SimBert
from simbert_hf.data import PairDataset, load_groups, split_groups
from simbert_hf.evaluation.report import layout
from simbert_hf.generation.search import SearchSettings
from simbert_hf.generation.synonyms import FLUENCY_WEIGHT, Paraphrase, load, rank, sort_by_score
from simbert_hf.generation.writing import Draft, distinct, write
from simbert_hf.judging.evaluation import HeldOut, System, controls, load_held_out, measure
from simbert_hf.judging.judge import Judge, check_independent
from simbert_hf.judging.report import caption, markdown_table, samples_page
from simbert_hf.utils.text import normalize_text

SEED, HELD_OUT = 42, 500
OURS, TRAIN = "SimBERT", "train.jsonl"


def timed(work: Callable[..., dict[str, Any]], *given: Any) -> dict[str, Any]:
    """Do some work; return its result and the time it took."""
    clock, cpu = time.perf_counter(), time.process_time()
    result = work(*given)
    spent = {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - cpu}
    return result | spent


def best_rate(name: str, args: argparse.Namespace, dev: Sequence[Pair]) -> float:
    """Return SimBERT's rate, or a peer's with the lowest loss on held-out groups."""
    if name == OURS:
        return float(args.rate)

    def measured(rate: float) -> dict[str, Any]:
        trainer = fine_tune(name, args, rate, args.sweep_steps)
        rows = token_rows(trainer.processing_class, dev, joined=name == CAUSAL)
        return {"loss": trainer.evaluate(rows)["eval_loss"]}

    losses = {}
    for rate in args.sweep if len(args.sweep) > 1 else ():
        path = args.output / f"{name}, {args.sweep_steps} x {args.pairs} at {rate:g}, loss.json"
        losses[rate] = kept(path, partial(timed, measured, rate))["loss"]
    return min(losses, key=losses.__getitem__, default=args.sweep[0])


def fine_tune(name: str, args: argparse.Namespace, rate: float, steps: int) -> Trainer:
    """Train a peer on pairs drawn as SimBERT's run draws them: one of each group."""
    pairs = PairDataset(load_groups(args.output / TRAIN)[0], SEED)
    chosen = np.random.default_rng(SEED).permutation(len(pairs))[: steps * args.pairs].tolist()
    data = [(pair["source"], pair["target"]) for pair in map(pairs.__getitem__, chosen)]
    return train_peer(
        name, args.start, data, seed=SEED, rate=rate, steps=steps, pairs=args.pairs,
        output_dir=args.output,
    )  # fmt: skip


def train(name: str, args: argparse.Namespace, rate: float, out: Path) -> dict[str, Any]:
    """Train a model and save it."""
    if name != OURS:
        fine_tune(name, args, rate, args.steps).save_model(str(out))
        return {"rate": rate}
    train_simbert(
        [
            f"--model_name_or_path={args.start}", f"--train_file={args.output / TRAIN}",
            f"--output_dir={out}", f"--max_steps={args.steps}",
            f"--per_device_train_batch_size={args.pairs}",
            "--validation_groups=0", f"--seed={SEED}", f"--learning_rate={rate}",
            f"--head_learning_rate={10 * rate}", "--bf16=true", "--eval_strategy=no",
            "--save_strategy=no", "--report_to=none", "--disable_tqdm=true",
        ]
    )  # fmt: skip
    return {"rate": rate}


def write_drafts(
    name: str, out: Path, start: SimBert, texts: Sequence[str], n: int
) -> dict[str, list[list[Draft]]]:
    """Generate n samples for each text with a trained model."""
    if name == OURS:
        settings = SearchSettings(
            n, "sample", TOP_K, max_new_tokens=NEW_TOKENS, copying=0, repeats=True, seed=SEED
        )
        return {"drafts": write(load(out), texts, settings)}
    kind = BertLMHeadModel if name == CAUSAL else EncoderDecoderModel
    return {"drafts": write_peer(kind.from_pretrained(out).to(start.device), start, texts, n, SEED)}


def as_drawn(text: str, drafts: Sequence[Draft]) -> list[str]:
    """Return the distinct samples that are not the text itself, in their order.

    Example:
        >>> as_drawn("Go!", [Draft("go", -1.0), Draft("run", -3.0), Draft("Run.", -2.0)])
        ['run']
    """
    seen = dict.fromkeys(map(normalize_text, (text, "")), "")
    for draft in drafts:
        seen.setdefault(normalize_text(draft.text), draft.text)
    return [found for found in seen.values() if found]


def ranked(model: SimBert, name: str, texts: Sequence[str], drafts: Any, k: int) -> System:
    """Take the k best by a model's vector, the generator's fluency and, if it can, the reverse."""
    unlike = [distinct(row, [text]) for text, row in zip(texts, drafts, strict=True)]
    if model.has_lm_head:
        ordered = rank(model, texts, unlike, FLUENCY_WEIGHT)
    else:
        rows = [[Paraphrase(one.text, 0, 0, one.log_prob, 0) for one in row] for row in unlike]
        vectors = model.encode([one.text for row in unlike for one in row])
        ordered = sort_by_score(rows, vectors, model.encode(texts), FLUENCY_WEIGHT)
    found = [row[:k] for row in ordered]
    similarities = [[item.similarity for item in row] for row in found]
    return System(name, [[item.text for item in row] for row in found], similarities)


def compete(
    name: str, args: argparse.Namespace, data: HeldOut, dev: Sequence[Pair]
) -> tuple[list[System], dict[str, float]]:
    """Train a model, generate, take its best by both rankings; return the time it took."""
    rate, start, texts = best_rate(name, args, dev), load(args.start), data.sources
    out = args.output / f"{name}, {args.steps} x {args.pairs} at {rate:g}"
    trained = kept(Path(f"{out}.json"), partial(timed, train, name, args, rate, out))
    path = Path(f"{out}, {args.n} of {len(texts)}.json")
    wrote = kept(path, partial(timed, write_drafts, name, out, start, texts, args.n))
    drafts = [[Draft(*draft) for draft in row] for row in wrote["drafts"]]
    if name == OURS:
        first = ranked(load(out), name, texts, drafts, args.k)
    else:
        rows = zip(texts, drafts, strict=True)
        best = [as_drawn(text, row)[: args.k] for text, row in rows]
        first = System(f"{name}, as drawn", best)
    costs = {"rate": rate} | {
        f"{what}, {unit}": each[key]
        for what, each in (("train", trained), ("write", wrote))
        for unit, key in (("s", "seconds"), ("CPU s", "cpu_seconds"))
    }
    return [first, ranked(start, f"{name}, by the base model", texts, drafts, args.k)], costs


def report(
    systems: list[System], costs: dict[str, dict[str, float]], data: HeldOut, args: Any
) -> None:
    """Judge, print the tables, write them with samples and as JSON."""
    judge = Judge.load(args.judge)
    name = Path(args.start).absolute().name
    relatives = {"the base model": check_independent(judge, args.start, args.start, False)}
    scores = [judge.score_lists(data.sources, system.candidates) for system in systems]
    judged = zip(systems, scores, strict=True)
    rows = [measure(system, each, judge.threshold, data, args.k) for system, each in judged]
    lines = [[name, *(f"{cost:.4g}" for cost in each.values())] for name, each in costs.items()]
    tables = [markdown_table(rows, args.k), layout(["", *costs[OURS]], lines)]
    page = "\n\n".join([*tables, caption(judge, rows, data, relatives)])
    print(page)
    samples = samples_page(systems, scores, judge.threshold, data, 20)
    (args.output / "paraphrase_peers.md").write_text(f"{page}\n{samples}", encoding="utf-8")
    told = {key: value for key, value in vars(args).items() if key not in ("output", "judge")}
    found = {
        "settings": told | {"start": name},
        "environment": {"model": name} | environment(DEVICE),
        "judge": {"threshold": judge.threshold, **judge.record},
        "sources": data.origin,
        "costs": costs,
        "rows": rows,
    }
    save_report(args.output / "paraphrase_peers.json", found)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the missing steps."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--start", required=True, help="a BERT: directory or Hub id")
    add("--judge", required=True, help="directory written by scripts/train_judge.py")
    add("--steps", type=int, default=150)
    add("--pairs", type=int, default=32, help="pairs per step; each makes two rows")
    add("--rate", type=float, default=2e-4, help="SimBERT's learning rate")
    add("--sweep", type=float, nargs="+", default=[2e-4, 5e-4, 1e-3], help="the peers' rates")
    add("--sweep_steps", type=int, default=40)
    add("--limit", type=int, default=200, help="held-out groups that are judged")
    add("--n", type=int, default=50, help="samples per source")
    add("--k", type=int, default=5, help="number of these that are judged")
    add("--output", type=Path, default=Path("outputs/paraphrase_peers"))
    args = parser.parse_args(argv)
    same_settings(args.output, **{"--start": args.start})
    groups: Any = load_groups(TATOEBA)[0]
    rows = [
        json.dumps({"text": text, "synonyms": others})
        for text, *others in split_groups(groups, HELD_OUT, SEED)[0]["texts"]
    ]
    (args.output / TRAIN).write_text("\n".join(rows), encoding="utf-8")
    data = load_held_out([str(TATOEBA)], HELD_OUT, SEED, args.limit)
    whole = load_held_out([str(TATOEBA)], HELD_OUT, SEED, None)
    both = zip(whole.sources, whole.references, strict=True)
    dev = [(source, others[0]) for source, others in both][args.limit :]  # that are not judged
    if len(args.sweep) > 1 and not dev:
        parser.error(
            f"--limit {args.limit} leaves none of {len(data.sources)} groups for the sweep"
        )
    systems: list[System] = []
    costs: dict[str, dict[str, float]] = {}
    for name in (OURS, *PEERS):
        found, costs[name] = compete(name, args, data, dev)
        systems += found
    report([*systems, *controls(data, SEED)], costs, data, args)


if __name__ == "__main__":
    main()
