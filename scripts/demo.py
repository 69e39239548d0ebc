"""Paraphrase and search with the shipped model, then train it for minutes on given questions.

make demo          (or: python scripts/demo.py --minutes 2 --output_dir outputs/demo)
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import torch
from accelerate.utils import send_to_device
from sentence_transformers import SentenceTransformer
from train_simbert import main as train
from transformers import AutoModel, AutoTokenizer

from simbert_hf import DEFAULT_MODEL, FaqIndex, SimBert
from simbert_hf.collators import PairCollator
from simbert_hf.data import PairDataset, load_groups
from simbert_hf.data.readers import read_headed_rows
from simbert_hf.modeling.loading import quiet_transformers
from simbert_hf.objectives import SimBertObjective
from simbert_hf.utils.plots import plot_training
from simbert_hf.utils.script import run_script, script_parser

DATA = Path(__file__).parent / "data" / "clinc150"
OUT_OF_SCOPE = "oos"
FALSE_ACCEPT_RATE = 0.1
PAIRS_A_STEP = 32
SENTENCES = [
    "how can i reset my password?",
    "the weather is really nice today.",
    "my card was declined, what should i do?",
    "where can i buy a ticket?",
]
QUERIES = ["my card got stolen", "how do i say good morning in french", "who painted the mona lisa"]


def paraphrase(model: SimBert) -> None:
    """Print paraphrases of a few sentences."""
    print("\nParaphrases (score: cosine, and the likelihood of each sentence given the other)")
    for text in SENTENCES:
        print(f"  {text}")
        for found in model.gen_synonyms(text, n=100, k=5, return_scores=True):
            print(f"    {found.score:6.2f}  {found.text}")


def read(name: str) -> list[tuple[str, str]]:
    """Read sentences and their intents."""
    return [(row["text"], row["intent"]) for _, row in read_headed_rows(DATA / f"{name}.csv")]


def search(model: SimBert, examples: int) -> None:
    """Index some sentences per intent, choose a threshold on dev, and measure on test."""
    by_intent: dict[str, list[str]] = {}
    for text, intent in read("train"):
        by_intent.setdefault(intent, []).append(text)
    rows = [
        {"question": text, "answer": intent}
        for intent, texts in by_intent.items()
        for text in texts[:examples]
    ]
    index = FaqIndex.build(model, rows)
    asked = [
        {"query": text, "answer": None if intent == OUT_OF_SCOPE else intent}
        for text, intent in read("dev")
    ]
    index.calibrate(asked, false_accept_rate=FALSE_ACCEPT_RATE)
    test = read("test")
    replies = index.answer([text for text, _ in test], k=1)
    inside = np.array([intent != OUT_OF_SCOPE for _, intent in test])
    right = np.array([r.hits[0].answer == i for r, (_, i) in zip(replies, test, strict=True)])
    answered = np.array([reply.answer is not None for reply in replies])
    print(
        f"  {len(rows):,} questions of {len(by_intent)} intents; {inside.sum():,} in-scope test "
        f"queries: top-1 {right[inside].mean():.3f}\n"
        f"  threshold {index.calibration.threshold:.3f}, chosen on dev to answer "
        f"{FALSE_ACCEPT_RATE:.0%} of out-of-scope queries: answers {answered[inside].mean():.3f} "
        f"in scope, {answered[~inside].mean():.3f} of {(~inside).sum():,} out of scope\n"
        "  (out-of-scope queries of test are nearer to the FAQ than the 100 of dev)"
    )
    for query, reply in zip(QUERIES, index.answer(QUERIES), strict=True):
        best = reply.hits[0]
        said = reply.answer or f"no answer (nearest: {best.answer}, {best.score:.2f})"
        print(f"    {query} -> {said}")


def seconds_a_step(start: str, bf16: bool) -> float:
    """Time a few training steps on this machine, to plan a run that ends in time."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = SimBert.from_pretrained(start).to(device).train()
    pairs = PairDataset(load_groups(DATA / "train.csv")[0])
    collator, objective = PairCollator(model.rows), SimBertObjective()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    times = []
    for i in range(4):
        started = time.perf_counter()
        batch = collator([pairs[j] for j in range(i * PAIRS_A_STEP, (i + 1) * PAIRS_A_STEP)])
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = objective(model, send_to_device(batch, device)).total
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        times.append(time.perf_counter() - started)
    return float(np.median(times[1:]))


def fine_tune(start: str, minutes: float, output_dir: Path) -> Path:
    """Train on all intents but 15, which are held out; return the plot of the losses."""
    step, bf16 = min((seconds_a_step(start, bf16), bf16) for bf16 in (False, True))
    steps = max(10, min(400, int(minutes * 60 / step)))
    print(
        f"\nTraining on the intents: a step of {PAIRS_A_STEP} pairs takes {step:.2f} s here in "
        f"{'bfloat16' if bf16 else 'float32'}; {steps} steps take about {minutes:g} minutes."
    )
    flags = {
        "model_name_or_path": start,
        "train_file": DATA / "train.csv",
        "output_dir": output_dir,
        "max_steps": steps,
        "per_device_train_batch_size": PAIRS_A_STEP,
        "learning_rate": 1e-4,
        "seq2seq_weight": 0.2,  # sentences of one intent are not close paraphrases
        "validation_groups": 15,
        "bf16": bf16,
        "eval_on_start": True,
        "eval_strategy": "steps",
        "eval_steps": -(-steps // 2),
        "save_strategy": "no",
        "load_best_model_at_end": False,
        "logging_steps": max(1, steps // 20),
    }
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    log = train([*arguments, "--sample_sentences", *SENTENCES]).state.log_history
    evaluations = [line for line in log if "eval_top1" in line]
    print("\nRetrieval among the sentences of 15 intents held out of training")
    for name, line in (("before", evaluations[0]), ("after", evaluations[-1])):
        print(f"  {name:<7}" + ", ".join(f"top-{k} {line[f'eval_top{k}']:.3f}" for k in (1, 5, 10)))
    return plot_training(log, output_dir / "training.png")


def same_vector_from_every_loader(path: Path) -> None:
    """Print how much the loaders' vectors of one sentence differ."""
    text = SENTENCES[0]
    ours = SimBert.from_pretrained(path).encode(text)
    with torch.inference_mode(), quiet_transformers():
        theirs = SentenceTransformer(os.fspath(path), device="cpu").encode(text)
        inputs = AutoTokenizer.from_pretrained(path)(text, return_tensors="pt")
        hidden = AutoModel.from_pretrained(path)(**inputs).last_hidden_state
    by_hand = torch.nn.functional.normalize(hidden.mean(dim=1), dim=-1)[0].numpy()
    print(f"\nOne checkpoint, three loaders: the vector of {text!r} begins")
    for name, vector in {
        "SimBert.encode": ours,
        "SentenceTransformer.encode": theirs,
        "AutoModel + mean": by_hand,
    }.items():
        apart = np.abs(vector - ours).max()
        print(f"  {name:<28}{np.array2string(vector[:4], precision=4)}  (differs by {apart:.0e})")


def main() -> None:
    """Run the demo."""
    parser = script_parser(__doc__)
    add = parser.add_argument
    own = Path(DEFAULT_MODEL).name
    add("--model", default=own, help="A trained SimBert, instead of the shipped one.")
    add("--minutes", type=float, default=2.0, help="Approximate training time.")
    add("--examples", type=int, default=10, help="Sentences per intent in the index.")
    add("--output_dir", type=Path, default=Path("outputs/demo"))
    args = parser.parse_args()
    if not 0 < args.minutes < np.inf:
        raise ValueError(f"--minutes {args.minutes:g} is out of range: give a number above 0.")
    model = SimBert.from_pretrained(args.model)
    paraphrase(model)
    print("\nAn FAQ that knows when not to answer (CLINC150)")
    search(model, args.examples)
    picture = fine_tune(args.model, args.minutes, args.output_dir)
    print("\nThe same FAQ with the trained model")
    trained = SimBert.from_pretrained(args.output_dir)
    search(trained, args.examples)
    paraphrase(trained)
    print(
        f"\nTraining for {args.minutes:g} minutes made the vectors better for these intents "
        "(compare the FAQs),\nbut not the paraphrases fluent: "
        "that takes the hours for which the shipped model was trained."
    )
    same_vector_from_every_loader(args.output_dir)
    print(f"\nLoss curves: {picture}    Model: {args.output_dir}")


if __name__ == "__main__":
    run_script(main)
