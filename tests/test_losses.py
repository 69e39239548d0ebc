import math
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import AnglELoss, CoSENTLoss

from simbert_hf import losses as module
from simbert_hf.losses import (
    angle_similarity,
    cosent_loss,
    cosine_similarity,
    cosines,
    distillation_loss,
    in_batch_loss,
    one_way_loss,
    pair_loss,
    preference_loss,
)
from tests.naive import (
    naive_angle,
    naive_cosent_loss,
    naive_cosine,
    naive_one_way_loss,
    naive_similarity_loss,
)


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


@pytest.mark.parametrize(("unrelated", "low"), [(1.0, 0.0), (0.1, 0.0), (0.1, 0.4)])
def test_distillation_loss_is_the_mean_over_different_rows(unrelated: float, low: float) -> None:
    ours = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    theirs = torch.randn(4, 7, dtype=torch.float64)
    cosine = torch.nn.functional.cosine_similarity
    total = weights = 0.0
    for i, j in permutations(range(4), 2):
        wanted = cosine(theirs[i], theirs[j], dim=0).item()
        weight = unrelated if wanted < 0 else unrelated + (1 - unrelated) * wanted
        found = cosine(ours[i], ours[j], dim=0).item()
        total += weight * ((found - low) / (1 - low) - wanted) ** 2  # 1 stays, low becomes 0
        weights += weight
    loss = distillation_loss(ours, cosines(theirs, theirs), unrelated, low)
    assert loss.item() == pytest.approx(total / weights, abs=1e-6)
    assert distillation_loss(ours, cosines(ours, ours).detach()).item() == pytest.approx(
        0, abs=1e-12
    )


def test_a_single_row_has_nothing_to_distil() -> None:
    vectors = torch.randn(1, 3, requires_grad=True)
    loss = distillation_loss(vectors, torch.ones(1, 1))
    loss.backward()
    assert loss.item() == 0
    assert vectors.grad is not None
    assert not vectors.grad.any()


# SimCSE -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [None, 0.0, 1.5])
def test_one_way_loss_equals_the_naive_one(weight: float | None) -> None:
    shape = (2, 5, 6) if weight is None else (3, 5, 6)
    ours = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    found = one_way_loss(*ours, scale=20.0, hard_negative_weight=weight or 0.0).loss
    naive = naive_one_way_loss(*theirs, scale=20.0, hard_negative_weight=weight or 0.0)
    found.backward()
    naive.backward()
    assert found.item() == pytest.approx(naive.item(), abs=1e-12)
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-12)
    assert ours.grad.abs().max() > 1e-3


def test_one_way_loss_without_false_negatives_equals_the_naive_one() -> None:
    """Keys of the anchor's or the positive's group leave the softmax, at any offset and block."""
    groups = torch.tensor([[1, 2], [3, 4], [1, 5], [2, 6], [7, 7]])
    negatives = torch.tensor([8, 1, 4, 9, 7])  # the last row's is equal to its own anchor
    out = [(0, 2), (0, 3), (0, 6), (1, 7), (2, 0), (2, 6), (3, 0), (4, 9)]
    key_groups = torch.cat([groups, negatives[:, None].expand(5, 2)])
    ours = torch.randn(3, 5, 6, dtype=torch.float64, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    options = {"scale": 20.0, "hard_negative_weight": 0.5}
    loss = one_way_loss(*ours, groups=groups, key_groups=key_groups, **options).loss
    naive = naive_one_way_loss(*theirs, **options, out=out)
    assert loss.item() == pytest.approx(naive.item(), abs=1e-12)
    loss.backward()
    naive.backward()
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-12)
    parts = [
        one_way_loss(
            ours[0, rows], *ours[1:], groups=groups[rows], key_groups=key_groups,
            offset=rows.start, **options,
        ).loss * (rows.stop - rows.start)
        for rows in (slice(0, 2), slice(2, 5))
    ]  # fmt: skip
    assert sum(parts).item() / 5 == pytest.approx(naive.item(), abs=1e-12)


def test_groups_of_anchors_alone_are_refused() -> None:
    zeros, groups = torch.zeros(5, 4), torch.zeros(5, 2, dtype=torch.long)
    for given in ({"groups": groups}, {"key_groups": groups}):
        with pytest.raises(ValueError, match="groups and key_groups must be given together"):
            one_way_loss(zeros, zeros, scale=20.0, **given)


def test_zero_vectors_give_the_log_of_the_columns() -> None:
    zeros = torch.zeros(7, 4)
    assert one_way_loss(zeros, zeros, scale=20.0).loss.item() == pytest.approx(math.log(7))
    assert one_way_loss(zeros, zeros, zeros, scale=20.0).loss.item() == pytest.approx(math.log(14))
    weighted = one_way_loss(zeros, zeros, zeros, scale=20.0, hard_negative_weight=math.log(3)).loss
    assert weighted.item() == pytest.approx(math.log(13 + 3))


def test_a_weight_of_hard_negatives_does_nothing_without_any() -> None:
    anchors, positives = torch.randn(2, 5, 6)
    plain = one_way_loss(anchors, positives, scale=20.0).loss
    assert one_way_loss(anchors, positives, scale=20.0, hard_negative_weight=2.0).loss == plain


def test_without_same_side_columns_the_symmetric_form_is_the_papers_both_ways() -> None:
    first, second = torch.randn(2, 6, 8, dtype=torch.float64)
    rows = torch.stack([first, second], dim=1).flatten(0, 1)  # [A, A', B, B', ...]
    index = torch.arange(12)
    same_side = index[:, None] % 2 == index[None, :] % 2
    found = in_batch_loss(rows, rows, index ^ 1, scale=20.0, excluded=same_side)
    both = [one_way_loss(*views, scale=20.0) for views in ((first, second), (second, first))]
    assert found.loss.item() == pytest.approx(sum(loss.loss.item() for loss in both) / 2)
    assert found.accuracy.item() == pytest.approx(sum(loss.accuracy.item() for loss in both) / 2)


def test_the_articles_four_rows_by_hand() -> None:
    """[A, A, B, B] has the labels [1, 0, 3, 2] (https://kexue.fm/archives/8348)."""
    a, b = torch.eye(2, dtype=torch.float64)
    found = pair_loss(torch.stack([a, a, b, b]), scale=20.0)  # partners alike, others orthogonal
    assert found.loss.item() == pytest.approx(math.log(1 + 2 * math.exp(-20)), abs=1e-15)
    assert found.accuracy.item() == 1
    orthogonal = pair_loss(torch.eye(4, dtype=torch.float64), scale=20.0)
    assert orthogonal.loss.item() == pytest.approx(math.log(3))

    # Rows at 0, 60, 90 and 180 degrees: cosines 1/2, 0, -1 | sqrt(3)/2, -1/2 | 0. Scale 2.
    degrees = torch.tensor([0, 60, 90, 180], dtype=torch.float64).deg2rad()
    found = pair_loss(torch.stack([degrees.cos(), degrees.sin()], dim=1), scale=2.0)
    e, root = math.exp, math.sqrt(3)
    by_hand = [
        math.log(e(1) + e(0) + e(-2)) - 1,  # 0 finds 1
        math.log(e(1) + e(root) + e(-1)) - 1,  # 1 finds 0, but 2 is nearer
        math.log(e(0) + e(root) + e(0)) - 0,  # 2 finds 3
        math.log(e(-2) + e(-1) + e(0)) - 0,  # 3 finds 2
    ]
    assert found.loss.item() == pytest.approx(sum(by_hand) / 4)
    assert found.accuracy.item() == 0.5


def test_with_same_side_negatives_the_papers_form_both_ways_is_the_symmetric_one() -> None:
    first, second = torch.randn(2, 6, 8, dtype=torch.float64, requires_grad=True)
    rows = torch.stack([first, second], dim=1).flatten(0, 1)  # [A, A', B, B', ...]
    # Each side's own rows stand as hard negatives, and the weight takes out an anchor itself.
    options: dict[str, float] = {"scale": 20.0, "hard_negative_weight": -math.inf}
    there = one_way_loss(first, second, first, **options)
    back = one_way_loss(second, first, second, **options)
    symmetric = pair_loss(rows, scale=20.0)
    assert symmetric.loss.item() == pytest.approx((there.loss + back.loss).item() / 2, abs=1e-12)
    both = (there.accuracy + back.accuracy).item() / 2
    assert symmetric.accuracy.item() == pytest.approx(both)
    ours = torch.autograd.grad(symmetric.loss, rows)[0]
    papers = torch.autograd.grad((there.loss + back.loss) / 2, (first, second))
    assert torch.allclose(ours, torch.stack(papers, dim=1).flatten(0, 1), atol=1e-12)


def test_without_dropout_the_symmetric_form_counts_every_negative_twice() -> None:
    vectors = torch.randn(1, 8, dtype=torch.float64), torch.randn(1, 8, dtype=torch.float64)
    views = torch.cat(vectors)  # two sentences: one cosine decides every row
    symmetric = pair_loss(views.repeat_interleave(2, dim=0), scale=20.0).loss
    one_way = one_way_loss(views, views, scale=20.0).loss
    assert symmetric.expm1().item() == pytest.approx(2 * one_way.expm1().item())


# CoSENT and AnglE -------------------------------------------------------------------------------

SCORES = [2.5, 0.0, 5.0, 2.5, 1.0, 0.0]


@pytest.mark.parametrize("kind", ["cosent", "angle"])
def test_ranking_losses_equal_the_naive_ones_and_sentence_transformers(kind: str) -> None:
    ours = torch.randn(2, 6, 8, dtype=torch.float64, requires_grad=True)
    theirs, peers = (ours.detach().clone().requires_grad_() for _ in range(2))
    similarity, naive_similarity, peer = {
        "cosent": (cosine_similarity, naive_cosine, CoSENTLoss),
        "angle": (angle_similarity, naive_angle, AnglELoss),
    }[kind]
    scores = torch.tensor(SCORES, dtype=torch.float64)
    found = cosent_loss(similarity(*ours), scores, scale=20.0).loss
    naive = naive_cosent_loss(
        [naive_similarity(a, b) for a, b in zip(*theirs, strict=True)], SCORES, scale=20.0
    )
    reference = peer(torch.nn.Module(), scale=20.0).compute_loss_from_embeddings([*peers], scores)
    for loss in (found, naive, reference):
        loss.backward()
    assert found.item() == pytest.approx(naive.item(), abs=1e-10)
    assert found.item() == pytest.approx(reference.item(), abs=1e-10)
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-10)
    assert torch.allclose(ours.grad, peers.grad, atol=1e-10)
    assert ours.grad.abs().max() > 1e-3


def test_equal_similarities_give_the_log_of_the_couples() -> None:
    found = cosent_loss(torch.full((6,), 0.7), torch.tensor(SCORES), scale=20.0)
    assert found.loss.item() == pytest.approx(math.log(1 + 13))  # 15 couples, two of them tied
    assert found.accuracy.item() == 0


def test_ranking_accuracy_and_a_batch_without_order() -> None:
    found = cosent_loss(torch.tensor([0.9, 0.1, 0.5]), torch.tensor([3.0, 2.0, 1.0]), scale=20.0)
    assert found.accuracy.item() == pytest.approx(2 / 3)
    similarities = torch.randn(3, requires_grad=True)
    flat = cosent_loss(similarities, torch.ones(3), scale=20.0)
    flat.loss.backward()
    assert flat.loss.item() == flat.accuracy.item() == 0
    assert not similarities.grad.any()


def test_half_precision_prefers_in_single() -> None:
    chosen, rejected = torch.tensor([[-6e4], [6e4]], dtype=torch.float16)
    assert preference_loss(chosen, rejected, scale=2, margin=0).loss.isfinite()


def test_half_precision_ranks_in_single() -> None:
    first, second = torch.randn(2, 6, 8).bfloat16()
    found = cosent_loss(angle_similarity(first, second), torch.tensor(SCORES), scale=20.0).loss
    wide = angle_similarity(first.double(), second.double())
    expected = cosent_loss(wide, torch.tensor(SCORES), scale=20.0).loss
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize(
    "loss",
    [
        lambda first, second: one_way_loss(first, second, second.flip(0), scale=20.0),
        lambda first, second: cosent_loss(
            cosine_similarity(first, second), torch.tensor(SCORES), scale=20.0
        ),
        lambda first, second: cosent_loss(
            angle_similarity(first, second), torch.tensor(SCORES), scale=20.0
        ),
    ],
)
def test_autocast_leaves_the_similarities_in_single(loss: Callable[..., Any]) -> None:
    first, second = torch.randn(2, 6, 8)
    expected = loss(first, second).loss
    with torch.autocast("cpu", torch.bfloat16):
        found = loss(first, second).loss
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_angle_needs_an_even_dimension() -> None:
    with pytest.raises(ValueError, match="dimension 3 is odd"):
        angle_similarity(torch.ones(2, 3), torch.ones(2, 3))


# Blocks -----------------------------------------------------------------------------------------


def test_a_block_has_a_row_at_least() -> None:
    assert module.chunk_rows(torch.device("cpu"), 2 * module.CPU_CHUNK) == 1


@pytest.mark.parametrize("kind", ["pairs", "one_way"])
def test_blocks_of_queries_give_the_loss_of_all(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def losses(size: int) -> tuple[torch.Tensor, ...]:
        monkeypatch.setattr(module, "CPU_CHUNK", size)
        monkeypatch.setattr(module, "in_batch_loss", watched)
        if kind == "pairs":
            groups = torch.tensor([0, 0, 1, 1, 0, 0, 2, 2, 3, 3])
            found = pair_loss(
                vectors[4:14], scale=5.0, groups=groups, keys=vectors,
                key_groups=torch.arange(20) // 7, offset=4,
            )  # fmt: skip
        else:
            found = one_way_loss(
                vectors[4:14], vectors, vectors.flip(0), scale=5.0, hard_negative_weight=0.5,
                offset=3, groups=torch.arange(20).view(10, 2) // 3,
                key_groups=torch.arange(80).view(40, 2) % 9,
            )  # fmt: skip
        return found.loss, found.accuracy, *torch.autograd.grad(found.loss, vectors)

    def watched(queries: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        sizes.append(len(queries))
        return in_batch_loss(queries, *args, **kwargs)

    vectors = torch.randn(20, 6, dtype=torch.float64, requires_grad=True)
    columns = 20 if kind == "pairs" else 40
    sizes: list[int] = []
    wanted = losses(2**22)
    assert sizes == [10]
    for size, blocks in ((3, [3, 3, 3, 1]), (1, [1] * 10)):
        sizes.clear()
        found = losses(size * columns)
        assert sizes == [*blocks, *reversed(blocks)]  # once more each in the backward pass
        for ours, whole in zip(found, wanted, strict=True):
            precision = 1e-9 if whole.dtype == torch.float64 else 1e-6
            torch.testing.assert_close(ours, whole, rtol=0, atol=precision)
