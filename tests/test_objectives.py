"""SimBERT's loss against the naive implementation, values and gradients."""

import pytest
import torch

from simbert_hf.collators import PairCollator
from simbert_hf.losses import distillation_loss
from simbert_hf.objectives import SimBertObjective
from simbert_hf.pooling import POOLINGS
from tests.naive import float64_weights, naive_encode_row, naive_lm_logits, naive_simbert_loss
from tests.tiny import tiny_simbert, unigram_tokenizer, wordpiece_tokenizer

PAIRS = [
    {"source": "how can i reset my password?", "target": "password reset please", "group": 3,
     "seed": 1},
    {"source": "a cat sat", "target": "the cat is sitting on the mat.", "group": 5, "seed": 2},
    {"source": "reset the password", "target": "please tell me how to reset", "group": 3,
     "seed": 3},
]  # fmt: skip


def rows_of(batch: dict[str, torch.Tensor]) -> list[tuple[list[int], list[int]]]:
    lengths = batch["attention_mask"].sum(1).tolist()
    return [
        (ids[:n], segments[:n])
        for ids, segments, n in zip(
            batch["input_ids"].tolist(), batch["token_type_ids"].tolist(), lengths, strict=True
        )
    ]


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("masked", [True, False])
def test_equals_the_naive_loss(pooling: str, masked: bool) -> None:
    model = tiny_simbert(pooling).double()
    batch = PairCollator(model.rows, max_length=20)(PAIRS)
    parts = SimBertObjective(mask_false_negatives=masked)(model, batch)
    parts.total.backward()

    weights = float64_weights(model.state_dict(), requires_grad=True)
    groups = batch["groups"].tolist() if masked else None
    naive = naive_simbert_loss(
        weights, model.config, rows_of(batch), pooling=pooling, groups=groups
    )
    naive["total"].backward()
    for name in ("seq2seq", "similarity", "total"):
        assert getattr(parts, name).item() == pytest.approx(naive[name].item(), abs=1e-9), name
    compared = 0
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            assert weights[name].grad is None or not weights[name].grad.any(), name
            continue
        assert torch.allclose(parameter.grad, weights[name].grad, atol=1e-9), name
        compared += 1
    assert compared > 30


def test_weights_scale_the_parts() -> None:
    model = tiny_simbert()
    batch = PairCollator(model.rows)(PAIRS)
    parts = SimBertObjective(seq2seq_weight=0.5, similarity_weight=3.0)(model, batch)
    expected = 0.5 * parts.seq2seq + 3 * parts.similarity
    assert parts.total.item() == pytest.approx(expected.item())


def test_mlm_loss_restores_the_masked_source() -> None:
    model = tiny_simbert().double()
    batch = PairCollator(model.rows, mlm=True)(PAIRS)
    parts = SimBertObjective(mlm_weight=2.0)(model, batch)
    weights = float64_weights(model.state_dict())
    width = batch["input_ids"].shape[1]
    losses = []
    for at, label in zip(
        batch["mlm_positions"].tolist(), batch["mlm_labels"].tolist(), strict=True
    ):
        ids, segments = rows_of(batch)[at // width]
        hidden = naive_encode_row(weights, model.config, ids, segments)[-1][at % width]
        losses.append(-naive_lm_logits(weights, model.config, hidden).log_softmax(-1)[label].item())
    assert len(losses) >= 2
    assert parts.mlm.item() == pytest.approx(sum(losses) / len(losses), abs=1e-9)
    expected = parts.seq2seq + parts.similarity + 2 * parts.mlm
    assert parts.total.item() == pytest.approx(expected.item())


@pytest.mark.parametrize("build", [wordpiece_tokenizer, unigram_tokenizer])
def test_rows_stand_in_both_orders(build) -> None:
    tokenizer = build()
    rows = tiny_simbert(tokenizer=tokenizer).rows
    batch = PairCollator(rows)(PAIRS[:1])
    first, second = rows_of(batch)
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    a = tokenizer(PAIRS[0]["source"], add_special_tokens=False)["input_ids"]
    b = tokenizer(PAIRS[0]["target"], add_special_tokens=False)["input_ids"]
    assert first == ([cls, *a, sep, *b, sep], [0] * (len(a) + 2) + [1] * (len(b) + 1))
    assert second == ([cls, *b, sep, *a, sep], [0] * (len(b) + 2) + [1] * (len(a) + 1))
    assert batch["groups"].tolist() == [3, 3]
    # The source's [SEP] predicts the first target token; the final [SEP] is a target.
    assert batch["target_labels"].tolist() == [*b, sep, *a, sep]
    assert batch["target_positions"][0] == len(a) + 1


def test_distillation_pulls_the_cosines_to_the_teachers() -> None:
    model = tiny_simbert()
    batch = PairCollator(model.rows, texts=True)(PAIRS)
    assert batch["texts"][:2] == [PAIRS[0]["source"], PAIRS[0]["target"]]
    seen: list[str] = []
    wanted = torch.randn(6, 9)

    def teacher(texts: list[str]) -> torch.Tensor:
        seen.extend(texts)
        return wanted

    parts = SimBertObjective(teacher=teacher, distillation_weight=7.0)(model, batch)
    assert seen == batch["texts"]
    vectors = torch.as_tensor(model.encode(batch["texts"]))
    assert parts.distillation.item() == pytest.approx(
        distillation_loss(vectors, wanted).item(), abs=1e-5
    )
    expected = parts.seq2seq + parts.similarity + 7 * parts.distillation
    assert parts.total.item() == pytest.approx(expected.item(), rel=1e-5)
