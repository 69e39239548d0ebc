"""Class centres: all of them in the model if they are few, sampled ones if very many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor

from simbert_hf.distributed import (
    gather_with_grad,
    is_distributed,
    max_over_processes,
    sum_over_processes,
)
from simbert_hf.losses import InBatchLoss
from simbert_hf.margin.softmax import MarginSoftmax
from simbert_hf.pooling import normalize
from simbert_hf.training.saving import CheckpointPart
from simbert_hf.utils.atomic import share_weights
from simbert_hf.utils.devices import with_float64

BETAS, EPSILON = (0.9, 0.999), 1e-8  # Adam's


def random_centres(shape: tuple[int, int, int], seed: int) -> Tensor:
    """Draw unit vectors, (C, K, D), from a random stream that no encoder is initialized by."""
    drawn = np.random.default_rng([seed, 1]).standard_normal(shape, dtype=np.float32)
    return normalize(torch.from_numpy(drawn))


class SampledCentres(CheckpointPart):
    """Centres of very many classes, of which each step uses few (Partial FC, An et al. 2021).

    Every process holds a share of the centres, outside the model, DDP and its optimiser. A step
    scores the vectors of all processes against the centres of their own classes and of others drawn
    at random, and updates only these, by an Adam that counts each centre's own steps. If all
    centres are drawn, loss and update are those of a full softmax trained by Adam.
    See https://arxiv.org/abs/2010.05222. As a callback they follow a Trainer.

    Args:
        shape: Classes, sub-centres per class and dimension, (C, K, D); this process holds the
            classes whose number modulo the number of processes is its rank.
        sampled: Centres drawn per step, by all processes together.
        seed: Determines the initial centres, and which ones are drawn.
        device: Where the share and its Adam state live.
        learning_rate: Peak of the Trainer's schedule, for them.

    Example:
        >>> sampled = SampledCentres((1000, 1, 8), sampled=10)
        >>> centres, columns = sampled.draw(torch.tensor([999, 999]))
        >>> tuple(centres.shape), columns.tolist()
        ((11, 1, 8), [10, 10])
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        sampled: int,
        seed: int = 0,
        device: torch.device | str = "cpu",
        learning_rate: float = 1e-3,
    ) -> None:
        self.rank, self.world = (
            (dist.get_rank(), dist.get_world_size()) if is_distributed() else (0, 1)
        )
        if shape[0] < self.world:
            raise ValueError(
                f"{shape[0]} classes are too few for {self.world} processes: drop sampled centres."
            )
        share = len(range(self.rank, shape[0], self.world))
        drawn = random_centres((share, *shape[1:]), seed * self.world + self.rank)
        # Centre and Adam's two moments side by side, as distant memory accesses are slow.
        self.state = torch.zeros(share, 3, *shape[1:], device=device)  # (C / world, 3, K, D)
        self.weight.copy_(drawn)
        self.steps = torch.zeros(len(self.weight), dtype=torch.int64, device=device)
        self.sampled = -(-sampled // self.world)
        self.seed = seed
        self.learning_rate = learning_rate
        self.draws = 0
        self._drawn: list[tuple[Tensor, Tensor]] = []

    @property
    def weight(self) -> Tensor:
        """This process's centres: (C / world, K, D)."""
        return self.state[:, 0]

    def draw(self, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Choose this process's centres for a step.

        Args:
            classes: Classes of the rows of all processes. Shape: (B,).

        Returns:
            The centres, a leaf that requires a gradient, (S, K, D), and the column of each row's
            own among them, -1 where another process has it, (B,).
        """
        wanted = classes.cpu().numpy()
        own, local = wanted % self.world == self.rank, wanted // self.world
        count = len(self.weight)
        if self.sampled >= count:
            rows = np.arange(count)
        else:
            rng = np.random.default_rng([self.seed, self.rank, self.draws])
            drawn = rng.choice(count, self.sampled, replace=False, shuffle=False)
            rows = np.union1d(drawn, local[own])
        columns = np.where(own, np.searchsorted(rows, local), -1)
        index = torch.from_numpy(rows).to(self.weight.device)
        leaf = self.weight.index_select(0, index).requires_grad_()
        self._drawn.append((index, leaf))
        self.draws += 1
        return leaf, torch.from_numpy(columns).to(self.weight.device)

    def loss(self, vectors: Tensor, classes: Tensor, softmax: MarginSoftmax) -> InBatchLoss:
        """Compute the loss over the drawn centres of all processes; every process gets the same.

        Args:
            vectors: This process's vectors. Shape: (B, D).
            classes: Their classes. Shape: (B,).
            softmax: Kind, scale and margin.

        Returns:
            The loss, and the share of vectors nearest to their own among the drawn centres.
        """
        everyone = gather_with_grad(vectors)[0]
        # Every process adds its centres' part of the loss; DDP will divide the sum by `world`.
        everyone = everyone.detach() + self.world * (everyone - everyone.detach())
        centres, columns = self.draw(gather_with_grad(classes)[0])
        plain = softmax.scores(everyone, centres)
        scores = softmax.apply(plain, columns)
        mass = scores.logsumexp(dim=1)
        peak = max_over_processes(mass)
        total = sum_over_processes((mass - peak).exp())
        own = sum_over_processes(pick(scores, columns))
        best, reached = max_over_processes(plain.amax(dim=1)), pick(plain.detach(), columns)
        accuracy = (sum_over_processes(reached) >= best).float().mean()
        return InBatchLoss((peak + total.log() - own).mean(), accuracy)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Update the centres after the model."""
        schedule = kwargs["optimizer"].param_groups[0]["lr"] / args.learning_rate
        self.step(self.learning_rate * schedule, args.max_grad_norm or 0.0)

    @torch.no_grad()
    def step(self, learning_rate: float, max_grad_norm: float = 0.0) -> None:
        """Update the centres drawn since the last step, by Adam on only their rows.

        Args:
            learning_rate: Adam's learning rate.
            max_grad_norm: Clip the gradient of all processes' centres to this; 0 for no clipping.
        """
        rows, gradient = self._gradient()
        self._drawn.clear()
        if max_grad_norm:
            norm = sum_over_processes(gradient.square().sum()).sqrt()
            gradient *= (max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        ones = torch.ones_like(rows)
        count = self.steps.index_add_(0, rows, ones).index_select(0, rows)[:, None, None]
        count = with_float64(count).double()
        held = self.state.index_select(0, rows)
        weight, first, second = held.unbind(dim=1)
        first.lerp_(gradient, 1 - BETAS[0])
        second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        root = (1 - BETAS[1] ** count).sqrt()  # the corrections are single numbers per row
        size = (-learning_rate * root / (1 - BETAS[0] ** count)).to(first)
        scale = second.sqrt().add_((EPSILON * root).to(first))
        weight.add_((first / scale).mul_(size))
        self.state[rows] = held

    def _gradient(self) -> tuple[Tensor, Tensor]:
        """Return the drawn rows and their gradients, summed over several batches."""
        used = [(rows, leaf.grad) for rows, leaf in self._drawn if leaf.grad is not None]
        if len(used) == 1:
            return used[0]
        rows, at = torch.cat([rows for rows, _ in used]).unique(return_inverse=True)
        gradients = torch.cat([gradient for _, gradient in used])
        return rows, gradients.new_zeros(len(rows), *gradients.shape[1:]).index_add_(
            0, at, gradients
        )

    # ------------------------------------------------------------------ checkpoints

    def _file(self, directory: Path) -> Path:
        return Path(directory, f"class_centres-{self.rank + 1}-of-{self.world}.safetensors")

    def save(self, directory: Path) -> None:
        """Write this process's centres and Adam state."""
        draws = torch.tensor(self.draws)
        tensors = {"state": self.state, "steps": self.steps, "draws": draws}
        save_file(tensors, self._file(directory))
        share_weights(self._file(directory))

    def load(self, directory: Path) -> None:
        """Read what :meth:`save` wrote.

        Raises:
            ValueError: If it does not exist, or is of other classes.
        """
        path = self._file(directory)
        if not path.exists():
            raise ValueError(
                f"{path} does not exist: resume with as many processes as wrote the checkpoint, or "
                "from an older checkpoint."
            )
        tensors = load_file(path, device=str(self.weight.device))
        found, due = (tuple(state[:, 0].shape) for state in (tensors["state"], self.state))
        if found != due:
            raise ValueError(
                f"{path} holds centres of shape {found}, but this run needs {due}; resume with the "
                "same data and arguments."
            )
        self.state, self.steps = tensors["state"], tensors["steps"]
        self.draws = int(tensors["draws"])


def pick(scores: Tensor, columns: Tensor) -> Tensor:
    """Take each row's score at its column, or 0 where that is -1: (B, S), (B,) -> (B,)."""
    found = scores.gather(1, columns.clamp(min=0)[:, None]).squeeze(1)
    return torch.where(columns >= 0, found, 0)


def check_memory(
    shape: tuple[int, int, int], batch: int, sampled: int | None, device: torch.device
) -> None:
    """Check that the centres fit into memory, before any is created.

    Args:
        shape: Classes of this process, sub-centres and dimension: (C, K, D).
        batch: Rows that are scored at once.
        sampled: Centres drawn per step; None for all.
        device: Where they live.

    Raises:
        ValueError: If they, Adam's state, gradients and scores exceed the free memory.

    Example:
        >>> check_memory((1000, 1, 128), 100, None, torch.device("cpu"))
    """
    classes, sub_centres, dimension = shape
    scored = classes if sampled is None else min(classes, sampled + batch)
    held = (3 * classes + 2 * scored) * sub_centres * dimension  # centre, two moments; gradient
    need = 4 * (held + 4 * scored * sub_centres * batch)
    is_gpu = device.type == "cuda"
    free = torch.cuda.mem_get_info(device)[0] if is_gpu else psutil.virtual_memory().available
    if need > free:
        remedy = "sample them with --sampled_classes 10000" if sampled is None else "sample fewer"
        raise ValueError(
            f"{classes:,} classes of {dimension} dimensions need about {need / 1e9:.1f} GB in "
            f"batches of {batch}, but {free / 1e9:.1f} GB are free; {remedy}, or train on fewer "
            "groups."
        )
