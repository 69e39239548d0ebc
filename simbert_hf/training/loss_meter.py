"""Averages of the loss parts between two log lines."""

from __future__ import annotations

import dataclasses
import time
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

    def read(self, processes: int) -> dict[str, float]:
        """Return the window's means and rates (for all processes, assumed equal)."""
        if not self.steps:
            return {}
        means = {name: round(float(value) / self.steps, 6) for name, value in self.sums.items()}
        seconds = time.perf_counter() - self.started
        rates = {"rows_per_second": self.rows, "tokens_per_second": int(self.tokens)}
        return means | {k: round(v * processes / seconds, 1) for k, v in rates.items()}
