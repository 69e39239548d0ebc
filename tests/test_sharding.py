"""FSDP2 over two gloo processes: the gradients of one process on all rows.

Accelerate shards on accelerators only, so this applies torch's own `fully_shard` as it does.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.distributed.fsdp import fully_shard

from simbert_hf.collators import PairCollator
from simbert_hf.gradcache import use_gradcache
from simbert_hf.objectives import SimBertObjective
from tests.processes import run_processes
from tests.tiny import WORDS, tiny_simbert

# As many target tokens on both sides, so that the mean of two means is the mean.
PAIRS = [
    {"source": " ".join(WORDS[i : i + 3]), "target": " ".join(WORDS[i + 5 : i + 8]), "group": i,
     "seed": i}
    for i in range(8)
]  # fmt: skip


def gradients(pairs, micro: int, sharded: bool) -> dict[str, torch.Tensor]:
    model = tiny_simbert()
    batch = PairCollator(model.rows, 24)(pairs)
    if micro:
        use_gradcache(model, micro)
    if sharded:
        for layer in model.bert.encoder.layer:
            fully_shard(layer)
        fully_shard(model)
    SimBertObjective()(model, batch).total.backward()
    found = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    if not sharded:
        return found
    assert all(g.to_local().numel() < g.numel() for g in found.values() if g.shape[0] > 1)
    return {name: gradient.full_tensor() for name, gradient in found.items()}


def work(rank: int, folder: Path) -> None:
    torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    for micro in (0, 3):
        found = gradients(PAIRS[4 * rank : 4 * rank + 4], micro, sharded=True)
        torch.save(found, folder / f"{micro}-{rank}.pt")


@pytest.mark.multiproc
def test_sharded_weights_get_the_gradients_of_one_process(tmp_path: Path) -> None:
    run_processes(work, 2, tmp_path)
    wanted = gradients(PAIRS, 0, sharded=False)
    assert len(wanted) > 30
    for micro in (0, 3):
        for rank in range(2):
            found = torch.load(tmp_path / f"{micro}-{rank}.pt")
            assert found.keys() == wanted.keys()
            for name, gradient in wanted.items():
                torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-5, msg=name)
