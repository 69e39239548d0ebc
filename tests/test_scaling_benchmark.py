"""The benchmark of growth, where the growth is known."""

from __future__ import annotations

import argparse

import pytest

from benchmarks import scaling


def test_exponents_are_those_of_a_power() -> None:
    square = scaling.growth({n: 3 * n**2 for n in (1, 2, 5, 40)})
    assert square == {"exponent": 2.0, "exponent_at_the_end": 2.0}
    fixed = scaling.growth({n: 100 + n for n in (1, 10, 1000, 10_000)})
    assert fixed["exponent"] < fixed["exponent_at_the_end"] == pytest.approx(0.96, abs=0.01)


@pytest.mark.parametrize(("axis", "value"), [("tokens", 9), ("rows", 4), ("vocabulary", 50)])
def test_one_thing_changes_at_a_time(axis: str, value: int, monkeypatch) -> None:
    seen = {}

    def objective():
        def run(model, batch):
            seen.update(rows=len(batch["input_ids"]), vocabulary=model.config.vocab_size)
            seen["tokens"] = int(batch["attention_mask"].sum(dim=1).max())
            seen["least"] = int(batch["attention_mask"].sum(dim=1).min())
            return made(model, batch)

        made = SimBertObjective()
        return run

    SimBertObjective = scaling.SimBertObjective
    monkeypatch.setattr(scaling, "SimBertObjective", objective)
    args = argparse.Namespace(toy=True, device="cpu", steps=1)
    assert scaling.measure(axis, value, args) > 0
    wanted = {"rows": 32, "tokens": 32, "vocabulary": 13_685} | {axis: value}
    assert seen == wanted | {"least": wanted["tokens"]}
