"""Averages of the loss parts between two log lines."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor


class LossMeter:
    """Averages this process's loss parts and counts its rows and tokens between two log lines."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start a new window."""
        self.sums: dict[str, Tensor] = {}
        self.steps = self.rows = 0
        self.tokens: Tensor | int = 0
        self.started = time.perf_counter()

    def add(self, parts: Any, batch: dict[str, Tensor]) -> None:
        """Add one batch, without copying anything from the device."""
        for field in dataclasses.fields(parts):
            value: Tensor | None = getattr(parts, field.name)
            if field.name != "total" and value is not None:
                total = self.sums.get(field.name, torch.zeros_like(value))
                self.sums[field.name] = total + value.detach()
        self.steps += 1
        self.rows += len(batch["input_ids"])
        self.tokens = self.tokens + batch["attention_mask"].sum()

    def read(self) -> dict[str, float]:
        """Return the window's means and rates of this process."""
        if not self.steps:
            return {}
        means = {name: float(value) / self.steps for name, value in self.sums.items()}
        seconds = time.perf_counter() - self.started
        rates = {"rows_per_second": self.rows, "tokens_per_second": int(self.tokens)}
        return means | {name: count / seconds for name, count in rates.items()}


def of_all(processes: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the means of loss parts over processes, and the sums of their rates, rounded.

    Example:
        >>> of_all([{"mlm": 1.0, "rows_per_second": 5.0}, {"mlm": 2.0, "rows_per_second": 6.0}])
        {'mlm': 1.5, 'rows_per_second': 11.0}
    """
    logged = {}
    for name in dict.fromkeys(chain(*processes)):
        values = [figures[name] for figures in processes if name in figures]
        rate = name.endswith("_per_second")
        logged[name] = round(sum(values), 1) if rate else round(sum(values) / len(values), 6)
    return logged
