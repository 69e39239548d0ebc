"""Sampled centres against full ones, against a row-by-row Adam, and over two processes."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from simbert_hf.margin.centres import SampledCentres, check_memory, random_centres
from simbert_hf.margin.softmax import MarginSoftmax, margin_softmax_loss
from simbert_hf.margin.training import MarginArguments, make_margin_objective
from simbert_hf.pooling import normalize
from tests.naive import naive_adam_row, naive_margin_loss
from tests.processes import run_processes
from tests.tiny import tiny_simbert

SOFTMAX = MarginSoftmax("arc", 10.0)
CLASSES = torch.tensor([6, 0, 3, 3])


def double(centres: SampledCentres, weight: torch.Tensor) -> SampledCentres:
    """Let a process's centres start from its share of `weight`, in float64."""
    centres.state = torch.zeros_like(centres.state, dtype=torch.float64)
    centres.weight.copy_(weight[centres.rank :: centres.world])
    return centres


@pytest.mark.parametrize("sub_centres", [1, 2])
@pytest.mark.parametrize("max_norm", [0.0, 0.1])
def test_with_all_kept_loss_and_steps_are_those_of_full_centres(sub_centres, max_norm) -> None:
    start = torch.randn(7, sub_centres, 5, dtype=torch.float64)
    sampled = double(SampledCentres((7, sub_centres, 5), sampled=7), start)
    full = nn.Parameter(start.clone())
    adam = torch.optim.Adam([full], lr=0.1)
    for _ in range(4):
        vectors = torch.randn(4, 5, dtype=torch.float64)
        found = sampled.loss(vectors, CLASSES, SOFTMAX)
        expected = margin_softmax_loss(vectors, full, CLASSES, SOFTMAX)
        assert found.loss.item() == pytest.approx(expected.loss.item(), abs=1e-12)
        assert found.accuracy == expected.accuracy
        found.loss.backward()
        expected.loss.backward()
        if max_norm:
            assert nn.utils.clip_grad_norm_([full], max_norm) > 2 * max_norm
        sampled.step(0.1, max_norm)
        adam.step()
        adam.zero_grad()
        assert torch.allclose(sampled.weight, full, atol=1e-9)
    assert (sampled.weight - start).abs().max() > 0.1


def test_a_gradient_below_the_norm_is_not_clipped() -> None:
    vectors, start = torch.randn(4, 5, dtype=torch.float64), torch.randn(7, 1, 5)
    states = []
    for max_norm in (0.0, 1e3):
        sampled = double(SampledCentres((7, 1, 5), sampled=7), start.double())
        sampled.loss(vectors, CLASSES, SOFTMAX).loss.backward()
        sampled.step(0.1, max_norm)
        states.append(sampled.state)
    assert torch.equal(*states)


def test_sampled_loss_and_lazy_steps_equal_the_naive_ones() -> None:
    start = torch.randn(9, 1, 5, dtype=torch.float64)
    sampled = double(SampledCentres((9, 1, 5), sampled=3, seed=4), start)
    current, gradients = [*start.clone()], {row: [] for row in range(9)}
    for _ in range(5):
        vectors = torch.randn(2, 5, dtype=torch.float64)
        classes = torch.tensor([8, 2])
        loss = sampled.loss(vectors, classes, SOFTMAX).loss
        drawn = sampled._drawn[0][0].tolist()
        assert {8, 2} <= set(drawn)
        assert 3 <= len(drawn) <= 5
        leaves = [row.clone().requires_grad_() for row in current]
        naive = naive_margin_loss(vectors, leaves, [8, 2], "arc", 10.0, 0.5, columns=drawn)
        assert loss.item() == pytest.approx(naive.item(), abs=1e-10)
        loss.backward()
        naive.backward()
        sampled.step(0.1)
        for row in drawn:
            gradients[row].append(leaves[row].grad)
            current[row] = naive_adam_row(start[row], gradients[row], 0.1)
        assert torch.allclose(sampled.weight, torch.stack(current), atol=1e-9)
    assert sampled.steps.tolist() == [len(gradients[row]) for row in range(9)]
    assert len(set(sampled.steps.tolist())) > 2  # rows have gone different ways


def test_accumulated_batches_make_one_step() -> None:
    start = torch.randn(9, 1, 5, dtype=torch.float64)
    whole = double(SampledCentres((9, 1, 5), sampled=9), start)
    parts = double(SampledCentres((9, 1, 5), sampled=9), start)
    vectors = torch.randn(4, 5, dtype=torch.float64)
    whole.loss(vectors, CLASSES, SOFTMAX).loss.backward()
    for half in (slice(0, 2), slice(2, 4)):
        (parts.loss(vectors[half], CLASSES[half], SOFTMAX).loss / 2).backward()
    whole.step(0.1)
    parts.step(0.1)
    assert torch.allclose(parts.weight, whole.weight, atol=1e-12)
    assert parts.steps.tolist() == [1] * 9


def test_every_other_centre_is_drawn_alike_often() -> None:
    sampled = SampledCentres((50, 1, 2), sampled=10, seed=1)
    counts = np.zeros(50)
    for _ in range(500):
        sampled._drawn.clear()
        sampled.draw(torch.tensor([7]))
        counts[sampled._drawn[0][0]] += 1
    assert counts[7] == 500
    others = np.delete(counts, 7) / 500
    assert abs(others - 0.2).max() < 5 * (0.2 * 0.8 / 500) ** 0.5


def test_a_restored_state_goes_on_alike(tmp_path: Path) -> None:
    def advance(centres: SampledCentres, batches: list[torch.Tensor]) -> None:
        for vectors in batches:
            centres.loss(vectors, CLASSES, SOFTMAX).loss.backward()
            centres.step(0.1, 1.0)

    batches = [*torch.randn(6, 4, 5)]
    whole, stopped = (SampledCentres((40, 1, 5), sampled=5, seed=2) for _ in range(2))
    advance(whole, batches)
    advance(stopped, batches[:3])
    stopped.save(tmp_path)
    resumed = SampledCentres((40, 1, 5), sampled=5, seed=2)
    resumed.load(tmp_path)
    advance(resumed, batches[3:])
    assert torch.equal(resumed.state, whole.state)
    with pytest.raises(ValueError, match=r"shape \(40, 1, 5\), but this run needs \(41, 1, 5\)"):
        SampledCentres((41, 1, 5), sampled=5).load(tmp_path)
    with pytest.raises(ValueError, match=r"1-of-1\.safetensors does not exist: resume with"):
        whole.load(tmp_path / "other")


@pytest.mark.parametrize(("clipped", "norm"), [(0.3, 0.3), (None, 0.0)])
def test_a_step_of_the_trainer_is_one_of_the_centres(clipped: float | None, norm: float) -> None:
    """At the schedule's share of their own learning rate, clipped as the model is."""
    steps, optimizer = [], SimpleNamespace(param_groups=[{"lr": 0.5}])
    centres = SampledCentres((2, 1, 5), sampled=1, learning_rate=0.2)
    centres.step = lambda *given: steps.append(given)
    args = SimpleNamespace(learning_rate=1.0, max_grad_norm=clipped)
    centres.on_optimizer_step(args, None, None, optimizer=optimizer)
    assert steps == [(0.1, norm)]


def test_centres_start_from_the_runs_seed_and_learn_at_the_heads_rate() -> None:
    args = SimpleNamespace(
        world_size=1, per_device_train_batch_size=4, device=torch.device("cpu"), seed=7,
        learning_rate=1e-3, head_learning_rate=0.5, mixed_precision="no",
    )  # fmt: skip
    model = tiny_simbert()
    make_margin_objective(model, 6, MarginArguments(), args)
    assert torch.equal(model.class_centres["softmax"], random_centres((6, 1, 32), 7))
    _, (centres,) = make_margin_objective(model, 6, MarginArguments(sampled_classes=3), args)
    assert (centres.learning_rate, centres.seed) == (0.5, 7)


def test_centres_are_of_a_stream_of_their_own() -> None:
    torch.manual_seed(42)
    drawn = random_centres((3, 1, 4), 42)
    assert not torch.allclose(drawn, normalize(torch.randn(3, 1, 4)))
    assert torch.equal(drawn, random_centres((3, 1, 4), 42))


def test_each_process_starts_from_centres_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simbert_hf.margin.centres.is_distributed", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    shares, drawn = [], []
    for rank in range(2):
        monkeypatch.setattr("torch.distributed.get_rank", lambda rank=rank: rank)
        shares.append(SampledCentres((8, 1, 5), sampled=3, seed=1).weight)
        part = SampledCentres((80, 1, 5), sampled=3, seed=1)
        part.draw(torch.tensor([1 - rank, 3 - rank, 5 - rank]))  # all of the other process
        drawn.append(part._drawn[0][0].tolist())
    assert drawn[0] != drawn[1]
    assert [len(rows) for rows in drawn] == [2, 2]  # of 3 together, rounded up
    starts = torch.cat([*shares, SampledCentres((8, 1, 5), sampled=3, seed=2).weight])
    assert len(starts.unique(dim=0)) == len(starts) == 12  # nor does another seed repeat them


def test_fewer_classes_than_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simbert_hf.margin.centres.is_distributed", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 3)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 0)
    with pytest.raises(
        ValueError, match="2 classes are too few for 3 processes: drop sampled centres"
    ):
        SampledCentres((2, 1, 5), sampled=3)


def test_too_many_classes_are_refused_in_numbers() -> None:
    cpu = torch.device("cpu")
    check_memory((1_000_000, 1, 8), 10, 1000, cpu)
    with pytest.raises(ValueError, match=r"10,000,000,000 classes of 768 .* --sampled_classes"):
        check_memory((10_000_000_000, 1, 768), 100, None, cpu)
    with pytest.raises(ValueError, match=r"GB are free; sample fewer"):
        check_memory((10_000_000_000, 1, 768), 100, 1000, cpu)


def test_memory_is_counted_for_what_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    need = 4 * ((3 * 1000 + 2 * 110) * 2 * 8 + 4 * 110 * 2 * 10)  # 100 drawn, 10 of the batch
    for free in (need, need - 1):
        memory = SimpleNamespace(available=free)
        monkeypatch.setattr("psutil.virtual_memory", lambda memory=memory: memory)
        with nullcontext() if free == need else pytest.raises(ValueError, match="sample fewer"):
            check_memory((1000, 2, 8), 10, 100, torch.device("cpu"))


def test_memory_is_that_of_a_processs_share(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    monkeypatch.setattr(
        "simbert_hf.margin.training.check_memory", lambda *given: told.append(given)
    )
    args = SimpleNamespace(
        world_size=2, per_device_train_batch_size=4, device=torch.device("cpu"), seed=7,
        learning_rate=1e-3, head_learning_rate=0.5, mixed_precision="no",
    )  # fmt: skip
    for more in ({}, {"sampled_classes": 3}):
        margin_args = MarginArguments(sub_centres=2, **more)
        make_margin_objective(tiny_simbert(), 7, margin_args, args)
    assert told == [((7, 2, 32), 4, None, args.device), ((4, 2, 32), 8, 3, args.device)]


def test_a_draw_without_a_gradient_is_no_step() -> None:
    sampled = SampledCentres((9, 1, 5), sampled=3)
    with torch.no_grad():
        sampled.draw(CLASSES)
    sampled.loss(torch.randn(4, 5), CLASSES, SOFTMAX).loss.backward()
    sampled.step(0.1)
    assert 3 <= int(sampled.steps.sum()) <= 6


# Two processes ----------------------------------------------------------------------------------


def train(rank: int | None, sampled: int) -> dict[str, torch.Tensor]:
    """Two steps of a linear encoder, of this rank's half of each batch or of all of it."""
    torch.manual_seed(0)
    encoder: nn.Module = nn.Linear(6, 5, dtype=torch.float64)
    inputs = torch.randn(2, 4, 6, dtype=torch.float64)
    start = torch.randn(7, 1, 5, dtype=torch.float64)
    centres = double(SampledCentres((7, 1, 5), sampled), start)
    own = slice(None) if rank is None else slice(2 * rank, 2 * rank + 2)
    wrapped = encoder if rank is None else DistributedDataParallel(encoder)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    for batch in inputs:
        optimizer.zero_grad()
        found = centres.loss(wrapped(batch[own]), CLASSES[own], SOFTMAX)
        found.loss.backward()
        centres.step(0.1, max_grad_norm=0.1)
        optimizer.step()
    loss, weight = found.loss.detach(), encoder.weight
    return {"loss": loss, "accuracy": found.accuracy, "gradient": weight.grad,
            "encoder": weight.detach(), "centres": centres.weight}  # fmt: skip


def work(rank: int, folder: str) -> None:
    torch.save(train(rank, sampled=7), f"{folder}/{rank}.pt")


@pytest.mark.multiproc
def test_two_processes_are_one_on_the_whole_batch(tmp_path: Path) -> None:
    run_processes(work, 2, str(tmp_path))
    halves = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    whole = train(None, sampled=7)
    for rank, half in enumerate(halves):
        for name in ("loss", "accuracy", "gradient", "encoder"):
            assert torch.allclose(half[name], whole[name], atol=1e-10), name
        assert torch.allclose(half["centres"], whole["centres"][rank::2], atol=1e-9)
    assert whole["gradient"].abs().max() > 1e-3
