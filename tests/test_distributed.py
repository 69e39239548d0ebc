"""Two gloo processes against one process on the concatenated batch."""

import multiprocessing
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from simbert_hf.collators import PairCollator, SimCseCollator
from simbert_hf.data import Triplet
from simbert_hf.margin.classes import ClassCollator, MarginObjective, add_centres
from simbert_hf.margin.softmax import MarginSoftmax
from simbert_hf.objectives import ScoredPairObjective, SimBertObjective, SimCseObjective
from simbert_hf.triplet.members import MemberCollator, Members
from simbert_hf.triplet.objective import TripletObjective, add_pair_classifier
from tests.processes import run_processes
from tests.tiny import tiny_simbert

TEXTS = ["a cat sat", "the cat sat on the mat", "a dog ran fast", "the dog ran",
         "what time is it", "tell me the time", "a cat ran", "the cat is going"]  # fmt: skip
GROUPS = [0, 1, 2, 0]
PREFERENCES = [Triplet(TEXTS[i], TEXTS[i + 1], TEXTS[i - 1]) for i in range(3)]


def batch_of(start: int, stop: int, model, **options: Any) -> dict[str, torch.Tensor]:
    pairs = [
        {"source": TEXTS[2 * i], "target": TEXTS[2 * i + 1], "group": GROUPS[i], "seed": i}
        for i in range(start, stop)
    ]
    return PairCollator(model.rows, **options)(pairs)


batch_with_preferences = partial(batch_of, preferences=PREFERENCES)


def simcse_batch_of(start: int, stop: int, model, scored: bool = False) -> dict[str, torch.Tensor]:
    return SimCseCollator(model.rows)(
        [
            {"source": TEXTS[2 * i], "target": TEXTS[2 * i + 1], "group": GROUPS[i], "seed": i}
            | {"negative": TEXTS[2 * i - 2]}
            | {"target_group": 10 + i, "negative_group": GROUPS[i - 1]}  # the anchor before
            | ({"score": float(i % 3)} if scored else {})
            for i in range(start, stop)
        ]
    )


def class_batch_of(start: int, stop: int, model) -> dict[str, torch.Tensor]:
    return ClassCollator(model.rows)(
        [{"source": TEXTS[i], "label": GROUPS[i // 2]} for i in range(2 * start, 2 * stop)]
    )


def member_batch_of(start: int, stop: int, model, size: int = 3) -> dict[str, torch.Tensor]:
    """Parts of 3, 1, 3 and 2 sentences, or of 2 each: processes may have unlike many rows."""
    parts = [TEXTS[2 * i : 2 * i + size] for i in range(start, stop)]
    if size == 3:
        parts = [part[:1] if i == 1 else part for i, part in enumerate(parts, start)]
    return MemberCollator(model.rows)(
        [Members(texts=part, group=GROUPS[i]) for i, part in enumerate(parts, start)]
    )


member_pairs_of = partial(member_batch_of, size=2)

OBJECTIVES = {
    "simbert": (SimBertObjective(seq2seq_weight=0.0), batch_of),
    "preferences": (SimBertObjective(seq2seq_weight=0.0), batch_with_preferences),
    "one_way": (SimCseObjective(symmetric=False), simcse_batch_of),
    "scored": (ScoredPairObjective(), partial(simcse_batch_of, scored=True)),
    "hard": (TripletObjective(), member_batch_of),
    "unanchored": (TripletObjective("unanchored", margin=2.0), member_batch_of),
    "given": (TripletObjective(), simcse_batch_of),
    "sdml": (TripletObjective("sdml", distance="squared"), member_pairs_of),
    "siamese": (TripletObjective("siamese"), simcse_batch_of),
    "margin": (MarginObjective(MarginSoftmax("arc"), center_weight=0.1), class_batch_of),
}


def simcse_ready(name: str):
    """A tiny model; without token losses, DDP must find no idle weight in its LM head."""
    model = tiny_simbert()
    if name != "preferences":  # which train it
        model.freeze_idle()
    if name == "margin":
        add_centres(model, (3, 2, 32), seed=0, center_loss=True)
    if name == "siamese":
        torch.manual_seed(0)
        add_pair_classifier(model)
    return model.double()


def work(rank: int, folder: str, name: str) -> None:
    model = simcse_ready(name)
    objective, make_batch = OBJECTIVES[name]
    wrapped = DistributedDataParallel(model)
    for _ in range(2):  # DDP complains about idle weights in the second step
        model.zero_grad()
        parts = objective(wrapped, make_batch(2 * rank, 2 * rank + 2, model))
        parts.total.backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    torch.save({"loss": parts.total.detach(), "gradients": gradients}, f"{folder}/{rank}.pt")


@pytest.mark.multiproc
@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_a_loss_sees_every_process(tmp_path: Path, name: str) -> None:
    run_processes(work, 2, str(tmp_path), name)
    ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    model = simcse_ready(name)
    objective, make_batch = OBJECTIVES[name]
    parts = objective(model, make_batch(0, 4, model))
    parts.total.backward()
    mean = (ranks[0]["loss"] + ranks[1]["loss"]) / 2
    assert mean.item() == pytest.approx(parts.total.item(), abs=1e-10)
    compared = 0
    for name, parameter in model.named_parameters():
        for rank in ranks:
            if name in rank["gradients"]:
                assert torch.allclose(rank["gradients"][name], parameter.grad, atol=1e-10), name
                compared += int(parameter.grad.abs().max() > 1e-6)
    assert compared > 40


def hang(rank: int) -> None:
    time.sleep(600 * rank)


@pytest.mark.multiproc
def test_processes_that_hang_are_ended() -> None:
    with pytest.raises(TimeoutError, match=r"2 processes took over 15 s"):
        run_processes(hang, 2, seconds=15)
    assert not [process for process in multiprocessing.active_children() if process.is_alive()]
