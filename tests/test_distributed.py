"""Two gloo processes against one process on the concatenated batch."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import multiprocessing
from torch.nn.parallel import DistributedDataParallel

from simbert_hf.collators import PairCollator
from simbert_hf.objectives import SimBertObjective
from tests.tiny import tiny_simbert

TEXTS = ["a cat sat", "the cat sat on the mat", "a dog ran fast", "the dog ran",
         "what time is it", "tell me the time", "a cat ran", "the cat is going"]  # fmt: skip
GROUPS = [0, 1, 2, 0]


def batch_of(start: int, stop: int, model) -> dict[str, torch.Tensor]:
    pairs = [
        {"source": TEXTS[2 * i], "target": TEXTS[2 * i + 1], "group": GROUPS[i], "seed": i}
        for i in range(start, stop)
    ]
    return PairCollator(model.rows)(pairs)


def work(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    model = tiny_simbert().double()
    objective = SimBertObjective(seq2seq_weight=0.0)
    wrapped = DistributedDataParallel(model)
    parts = objective(wrapped, batch_of(2 * rank, 2 * rank + 2, model))
    parts.total.backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    torch.save({"loss": parts.similarity.detach(), "gradients": gradients}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.multiproc
def test_the_similarity_loss_sees_every_process(tmp_path: Path) -> None:
    multiprocessing.spawn(work, (str(tmp_path),), nprocs=2)
    ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    model = tiny_simbert().double()
    parts = SimBertObjective(seq2seq_weight=0.0)(model, batch_of(0, 4, model))
    parts.total.backward()
    mean = (ranks[0]["loss"] + ranks[1]["loss"]) / 2
    assert mean.item() == pytest.approx(parts.similarity.item(), abs=1e-10)
    compared = 0
    for name, parameter in model.named_parameters():
        for rank in ranks:
            if name in rank["gradients"]:
                assert torch.allclose(rank["gradients"][name], parameter.grad, atol=1e-10), name
                compared += int(parameter.grad.abs().max() > 1e-6)
    assert compared > 40
