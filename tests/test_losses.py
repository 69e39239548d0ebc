import math

import pytest
import torch

from simbert_hf.losses import distillation_loss, in_batch_loss, pair_loss, token_loss
from tests.naive import naive_similarity_loss


@pytest.mark.parametrize("groups", [None, [0, 0, 1, 1, 0, 0, 2, 2]])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_pair_loss_equals_the_naive_one(groups: list[int] | None, scale: float) -> None:
    ours = torch.randn(8, 5, dtype=torch.float64, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    loss = pair_loss(
        ours, scale=scale, groups=None if groups is None else torch.tensor(groups)
    ).loss
    naive = naive_similarity_loss(theirs, scale, groups)
    loss.backward()
    naive.backward()
    assert loss.item() == pytest.approx(naive.item(), abs=1e-12)
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-12)
    assert ours.grad.abs().max() > 1e-3


@pytest.mark.parametrize(("groups", "candidates"), [(None, 7), ([0, 0, 1, 1, 0, 0, 2, 2], None)])
def test_zero_vectors_give_the_log_of_the_candidates(
    groups: list[int] | None, candidates: int | None
) -> None:
    loss = pair_loss(
        torch.zeros(8, 3), scale=30.0, groups=None if groups is None else torch.tensor(groups)
    ).loss
    # With groups, the four rows of group 0 have two false negatives each among their 7 others.
    expected = math.log(candidates) if candidates else (4 * math.log(5) + 4 * math.log(7)) / 8
    assert loss.item() == pytest.approx(expected, abs=1e-6)


def test_pair_loss_against_all_keys_sees_only_its_own_rows() -> None:
    vectors = torch.randn(8, 5, dtype=torch.float64)
    groups = torch.tensor([0, 0, 1, 1, 0, 0, 2, 2])
    whole = pair_loss(vectors, scale=20.0, groups=groups)
    halves = [
        pair_loss(vectors[start : start + 4], scale=20.0, groups=groups[start : start + 4],
                  keys=vectors, key_groups=groups, offset=start)
        for start in (0, 4)
    ]  # fmt: skip
    assert whole.loss.item() == pytest.approx(sum(half.loss.item() for half in halves) / 2)
    assert whole.accuracy.item() == pytest.approx(sum(h.accuracy.item() for h in halves) / 2)


def test_accuracy_counts_rows_whose_partner_is_nearest() -> None:
    vectors = torch.tensor([[1.0, 0], [1, 0.1], [0, 1], [1, 0.5]])
    # Rows 0 and 1 find each other; row 2's nearest is its partner 3; row 3's nearest is row 1.
    assert pair_loss(vectors, scale=30.0).accuracy.item() == 0.75


def test_odd_number_of_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="must be even; got 3"):
        pair_loss(torch.zeros(3, 2), scale=30.0)


def test_half_precision_scores_do_not_overflow() -> None:
    vectors = torch.randn(6, 4).half()
    found = pair_loss(vectors, scale=30.0, groups=torch.tensor([0, 0, 0, 0, 1, 1])).loss
    assert found.isfinite()
    assert found.item() == pytest.approx(
        pair_loss(
            vectors.double(), scale=30.0, groups=torch.tensor([0, 0, 0, 0, 1, 1])
        ).loss.item(),
        abs=0.05,
    )


def test_in_batch_loss_with_one_way_positives() -> None:
    queries, keys = torch.eye(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    nothing = torch.zeros(3, 3, dtype=torch.bool)
    found = in_batch_loss(queries, keys, torch.arange(3), scale=2.0, excluded=nothing).loss
    assert found.item() == pytest.approx(math.log(1 + 2 * math.exp(-2)))


def test_token_loss_is_a_mean_and_empty_is_zero() -> None:
    logits = torch.zeros(4, 10, requires_grad=True)
    assert token_loss(logits, torch.arange(4)).item() == pytest.approx(math.log(10))
    empty = token_loss(logits[:0], torch.arange(0))
    empty.backward()
    assert empty.item() == 0


def test_distillation_loss_is_the_mean_over_different_rows() -> None:
    ours = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    theirs = torch.randn(4, 7, dtype=torch.float64)
    cosine = torch.nn.functional.cosine_similarity
    gaps = [
        (cosine(ours[i], ours[j], dim=0) - cosine(theirs[i], theirs[j], dim=0)) ** 2
        for i in range(4)
        for j in range(4)
        if i != j
    ]
    assert distillation_loss(ours, theirs).item() == pytest.approx(
        (sum(gaps) / 12).item(), abs=1e-6
    )
    assert distillation_loss(ours, ours.detach()).item() == pytest.approx(0, abs=1e-12)
