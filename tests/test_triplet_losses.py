"""Triplet losses and their mining against slow references, value and gradient, in float64."""

import pytest
import torch

from simbert_hf.triplet.losses import (
    distances,
    mine_in_batch,
    mined_triplet_loss,
    paired_distances,
    sdml_loss,
    siamese_loss,
    triplet_loss,
    unanchored_loss,
)
from simbert_hf.triplet.objective import TripletObjective, add_pair_classifier, siamese_rows
from tests.naive import naive_distance, naive_sdml_loss, naive_triplet_loss, naive_triplets
from tests.tiny import tiny_simbert

GROUPS = [3, 3, 3, 8, 8, 5, 5, 1]  # the last stands alone
MARGINS = {"squared": 2.0, "cosine": 0.2}


def drawn(rows: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Equal vectors, once for us and once for the reference; the group of 5 and 6 stands apart."""
    vectors = torch.randn(rows, 5, dtype=torch.float64)
    vectors[5:7] = 0.1 * vectors[5:7] + torch.tensor([0, 0, 3, 0, 0])
    return vectors.clone().requires_grad_(), vectors.clone().requires_grad_()


def assert_same_gradient(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-10)
    assert ours.grad.abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["squared", "cosine"])
def test_distances_are_the_naive_ones(kind) -> None:
    rows, columns = drawn()[0].detach(), drawn(3)[0].detach()
    found = distances(rows, columns, kind)
    naive = [[naive_distance(row, column, kind) for column in columns] for row in rows]
    assert torch.allclose(found, torch.tensor(naive, dtype=torch.float64), atol=1e-12)


def test_near_vectors_far_from_zero_keep_their_digits() -> None:
    vectors = torch.linspace(-100, 100, 32) + 1e-2 * torch.randn(6, 32)
    expected = (vectors[:, None] - vectors).square().sum(dim=-1)
    assert torch.allclose(distances(vectors, vectors, "squared"), expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", ["squared", "cosine"])
@pytest.mark.parametrize("measure", [distances, paired_distances])
def test_distances_are_of_32_bits_in_any_precision(measure, kind) -> None:
    first, second = torch.randn(2, 6, 8)
    with torch.autocast("cpu", torch.bfloat16):
        found = measure(first, second, kind)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, measure(first, second, kind))
    halves = first.bfloat16(), second.bfloat16()
    found, wanted = measure(*halves, kind), measure(*(half.double() for half in halves), kind)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["squared", "cosine"])
@pytest.mark.parametrize("mining", ["all", "hard", "semi_hard", "unanchored"])
def test_mined_losses_equal_the_naive_ones(mining, kind) -> None:
    ours, theirs = drawn()
    groups, options = torch.tensor(GROUPS), {"margin": MARGINS[kind], "distance": kind}
    if mining == "unanchored":
        found = unanchored_loss(ours, groups, **options)
    else:
        found = mined_triplet_loss(ours, groups, mining=mining, **options)
    triplets = naive_triplets([*theirs], GROUPS, kind, mining)
    naive, active = naive_triplet_loss([*theirs], triplets, kind, MARGINS[kind])
    found.loss.backward()
    naive.backward()
    assert found.loss.item() == pytest.approx(naive.item(), abs=1e-10)
    assert found.active.item() == pytest.approx(active)
    assert 0 < active < 1
    assert_same_gradient(ours, theirs)


@pytest.mark.parametrize("kind", ["squared", "cosine"])
@pytest.mark.parametrize("anchored", [True, False])
def test_given_negatives_equal_the_naive_ones(anchored, kind) -> None:
    ours, theirs = drawn(9)
    margin = MARGINS[kind] / 4
    found = triplet_loss(*ours.chunk(3), margin=margin, distance=kind, anchored=anchored)
    others = range(3)
    triplets = [(i, 3 + i, j, 6 + j) for i in others for j in others if i == j or not anchored]
    naive, active = naive_triplet_loss([*theirs], triplets, kind, margin)
    found.loss.backward()
    naive.backward()
    assert found.loss.item() == pytest.approx(naive.item(), abs=1e-10)
    assert found.active.item() == pytest.approx(active)
    assert_same_gradient(ours, theirs)


def test_random_negatives_are_drawn_from_all_other_groups_alike() -> None:
    groups = torch.tensor([0, 0, 1, 1, 2])
    counts = torch.zeros(5)
    for _ in range(600):
        anchors, positives, negatives = mine_in_batch(torch.zeros(5, 5), groups, "random")
        assert [*zip(anchors.tolist(), positives.tolist(), strict=True)] == [
            (0, 1), (1, 0), (2, 3), (3, 2)
        ]  # fmt: skip
        counts[negatives[0]] += 1
    assert counts[:2].sum() == 0
    assert (counts[2:] - 200).abs().max() < 60  # five standard deviations


def test_a_negative_as_far_as_the_positive_is_not_semi_hard() -> None:
    found = torch.tensor([[0.0, 2.0, 2.0], [2.0, 0.0, 3.0], [2.0, 3.0, 0.0]])
    chosen = mine_in_batch(found, torch.tensor([5, 5, 7]), "semi_hard")
    assert [part.tolist() for part in chosen] == [[1], [0], [2]]


@pytest.mark.parametrize("mining", ["random", "all", "hard", "semi_hard"])
@pytest.mark.parametrize("groups", [[0, 0, 0], [0, 1, 2]])
def test_without_triplets_the_loss_is_zero(groups, mining) -> None:
    vectors = torch.randn(3, 4, requires_grad=True)
    found = mined_triplet_loss(vectors, torch.tensor(groups), margin=1.0, mining=mining)
    found.loss.backward()
    assert (found.loss.item(), found.active.item()) == (0, 0)
    assert vectors.grad.abs().max() == 0


def test_a_wrong_distance_or_mining_is_refused() -> None:
    vectors, groups = torch.eye(4), torch.tensor([0, 0, 1, 1])
    with pytest.raises(ValueError, match=r"mining='semihard': choose one of .*semi_hard"):
        mined_triplet_loss(vectors, groups, margin=1.0, mining="semihard")
    for measure in (distances, paired_distances):
        with pytest.raises(ValueError, match="distance='l2': choose one of squared, cosine"):
            measure(vectors, vectors, "l2")


@pytest.mark.parametrize("mining", ["all", "hard"])
def test_a_collapsed_encoder_loses_the_margin(mining) -> None:
    vectors = torch.ones(4, 3)
    found = mined_triplet_loss(vectors, torch.tensor([0, 0, 1, 1]), margin=0.7, mining=mining)
    assert found.loss.item() == pytest.approx(0.7)
    assert found.active.item() == 1


@pytest.mark.parametrize("kind", ["squared", "cosine"])
def test_sdml_equals_the_naive_one(kind) -> None:
    ours, theirs = drawn(11)
    excluded = torch.zeros(4, 7, dtype=torch.bool)
    excluded[[0, 2, 2, 1], [2, 0, 5, 1]] = True  # the last is a positive, which stays
    options = {"smoothing": 0.3, "distance": kind}
    found = sdml_loss(ours[:4], ours[4:], excluded=excluded, **options)
    out = [(0, 2), (2, 0), (2, 5)]
    naive = naive_sdml_loss([*theirs[:4]], [*theirs[4:]], 0.3, kind, out)
    found.loss.backward()
    naive.backward()
    assert found.loss.item() == pytest.approx(naive.item(), abs=1e-10)
    assert_same_gradient(ours, theirs)


def test_sdml_of_a_single_candidate_is_zero() -> None:
    one = torch.randn(1, 4, requires_grad=True)
    found = sdml_loss(one, torch.randn(1, 4))
    found.loss.backward()
    assert found.loss.item() == 0
    assert one.grad.abs().max() == 0


class Lookup(torch.nn.Module):
    """Stands for an encoder: its vectors are given."""

    def __init__(self, vectors: torch.Tensor) -> None:
        super().__init__()
        self.sentence_embedding = vectors

    def forward(self, input_ids: torch.Tensor) -> "Lookup":
        return self


def test_the_objective_on_batches_of_groups() -> None:
    vectors, groups = drawn(6)[0].detach(), torch.tensor([0, 0, 1, 1, 0, 0])
    model, batch = Lookup(vectors), {"input_ids": torch.zeros(6, 1), "groups": groups}
    hard = TripletObjective(mining="all", distance="squared", margin=2.0)(model, batch)
    expected = mined_triplet_loss(vectors, groups, margin=2.0, distance="squared", mining="all")
    assert (hard.total, hard.active) == (expected.loss, expected.active)
    for distance, margin in MARGINS.items():
        free = TripletObjective("unanchored", distance=distance, margin=margin)(model, batch)
        wanted = unanchored_loss(vectors, groups, margin=margin, distance=distance)
        assert (free.total, free.active) == (wanted.loss, wanted.active)
    sdml = TripletObjective("sdml", distance="squared", smoothing=0.1)(model, batch)
    out = [(0, 2), (2, 0)]  # pairs of one group
    naive = naive_sdml_loss([*vectors[0::2]], [*vectors[1::2]], 0.1, "squared", out)
    assert sdml.total.item() == pytest.approx(naive.item())


def test_the_objective_on_given_triplets() -> None:
    vectors = drawn(6)[0].detach()
    batch = {"input_ids": torch.zeros(6, 1), "groups": torch.tensor([0, 0, 1, 1])}
    batch["negative_rows"] = torch.tensor([4, 5])
    rows = vectors[0:4:2], vectors[1:4:2], vectors[4:]
    totals = set()
    for loss in ("triplet", "unanchored"):
        found = TripletObjective(loss, margin=2.0)(Lookup(vectors), batch)
        expected = triplet_loss(*rows, margin=2.0, anchored=loss == "triplet")
        assert (found.total, found.active) == (expected.loss, expected.active)
        totals.add(found.total.item())
    assert len(totals) == 2
    sdml = TripletObjective("sdml", distance="cosine")(Lookup(vectors), batch)
    naive = naive_sdml_loss([*rows[0]], [*rows[1], *rows[2]], 0.3, "cosine")
    assert sdml.total.item() == pytest.approx(naive.item())


def test_the_siamese_classifier_is_the_naive_one() -> None:
    (ours, theirs), weight = drawn(6), torch.randn(15, dtype=torch.float64)
    classifier = torch.nn.Linear(15, 1, bias=False, dtype=torch.float64)
    classifier.weight.data = weight[None]
    found = siamese_loss(ours[:2], ours[2:4], ours[4:], classifier)
    found.loss.backward()
    terms, right = [], 0
    for i, (other, same) in enumerate([(2, 1), (3, 1), (4, 0), (5, 0)]):
        u, v = theirs[i % 2], theirs[other]
        score = sum(weight[j] * x for j, x in enumerate([*u, *v, *(u - v).abs()]))
        right += (score > 0) == same
        terms.append(torch.log1p(torch.exp(-score if same else score)))
    (sum(terms) / 4).backward()
    assert found.loss.item() == pytest.approx((sum(terms) / 4).item())
    assert found.accuracy == right / 4
    assert_same_gradient(ours, theirs)


def test_a_batch_of_one_group_teaches_a_siamese_classifier_nothing() -> None:
    classifier, rows = torch.nn.Linear(15, 1), torch.randn(4, 5, requires_grad=True)
    picked = siamese_rows(rows, torch.zeros(4, dtype=torch.long), None)
    found = siamese_loss(*picked, classifier)
    found.loss.backward()
    assert (found.loss, found.accuracy) == (0, 0)
    assert all((weight.grad == 0).all() for weight in (*classifier.parameters(), rows))


def test_a_siamese_classifier_in_half_precision_is_scored_in_single() -> None:
    rows, classifier = torch.randn(3, 2, 5).bfloat16(), torch.nn.Linear(15, 1).bfloat16()
    assert siamese_loss(*rows, classifier).loss.dtype == torch.float32
    model = tiny_simbert().bfloat16()
    add_pair_classifier(model)
    assert {weight.dtype for weight in model.pair_classifier.parameters()} == {torch.bfloat16}


def test_siamese_negatives_are_of_other_groups_or_given() -> None:
    rows, groups = torch.arange(8.0)[:, None], torch.tensor(GROUPS)
    anchors, positives, negatives = (
        groups[part[:, 0].long()] for part in siamese_rows(rows, groups, None)
    )
    assert len(anchors) == 10  # ordered pairs within the groups
    assert (anchors == positives).all()
    assert (anchors != negatives).all()
    assert [part[:, 0].tolist() for part in siamese_rows(rows[:4], groups, rows[4:6])] == [
        [0, 2], [1, 3], [4, 5]
    ]  # fmt: skip
