import math

import pytest
import torch

from simbert_hf.margin.softmax import MarginSoftmax, center_loss, margin_softmax_loss
from tests.naive import naive_margin_loss

CASES = [
    ("softmax", None), ("am", 0.35), ("am", 0.0), ("arc", 0.5), ("arc", 0.0), ("sphere", 4.0),
    ("sphere", 2.7), ("sphere", 1.0), ("simpler_a", 4.0), ("simpler_a", 2.5), ("simpler_a", 1.0),
]  # fmt: skip


def spread(sub_centres: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Vectors that stand at angles of 10 to 175 degrees to their own class's centre."""
    centres = torch.randn(6, sub_centres, 5, dtype=torch.float64)
    classes = torch.tensor([0, 5, 2, 2, 4, 1, 0, 3])
    own = torch.nn.functional.normalize(centres[classes, 0], dim=-1)
    side = torch.randn(8, 5, dtype=torch.float64)
    side = torch.nn.functional.normalize(side - (side * own).sum(-1, keepdim=True) * own, dim=-1)
    angles = torch.linspace(10, 175, 8, dtype=torch.float64).deg2rad()[:, None]
    return (angles.cos() * own + angles.sin() * side) * 3, centres, classes


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize(
    ("kind", "margin", "sub_centres"),
    [(*case, 1) for case in CASES] + [(*case, 3) for case in CASES if case[0] != "softmax"],
)
def test_values_and_gradients_equal_the_naive_ones(kind, margin, sub_centres, scale) -> None:
    vectors, centres, classes = spread(sub_centres)
    ours = [vectors.clone().requires_grad_(), centres.clone().requires_grad_()]
    theirs = [vectors.clone().requires_grad_(), centres.clone().requires_grad_()]
    found = margin_softmax_loss(*ours, classes, MarginSoftmax(kind, scale, margin))
    naive = naive_margin_loss(theirs[0], [*theirs[1]], classes.tolist(), kind, scale, margin)
    found.loss.backward()
    naive.backward()
    assert found.loss.item() == pytest.approx(naive.item(), abs=1e-10)
    for mine, reference in zip(ours, theirs, strict=True):
        assert torch.allclose(mine.grad, reference.grad, atol=1e-9)
        assert mine.grad.abs().max() > 1e-3


def test_without_margin_all_are_the_cosine_softmax() -> None:
    vectors, centres, classes = spread()
    cosine = torch.nn.functional.cosine_similarity(vectors[:, None], centres[:, 0], dim=-1)
    expected = torch.nn.functional.cross_entropy(20.0 * cosine, classes).item()
    for kind, margin in (("am", 0.0), ("arc", 0.0), ("sphere", 1.0), ("simpler_a", 1.0)):
        found = margin_softmax_loss(vectors, centres, classes, MarginSoftmax(kind, 20.0, margin))
        assert found.loss.item() == pytest.approx(expected, abs=1e-12)
        assert found.accuracy.item() == (cosine.argmax(1) == classes).float().mean().item()


def test_am_softmax_is_the_articles_formula() -> None:
    # cosines with the three centres: 0.8 (the true one), 0.6 and 0
    vector, centres = torch.tensor([[0.8, 0.6, 0.0]]), torch.eye(3)
    loss = margin_softmax_loss(vector, centres, torch.tensor([0]), MarginSoftmax("am")).loss
    true = math.exp(30 * (0.8 - 0.35))
    expected = -math.log(true / (true + math.exp(30 * 0.6) + math.exp(30 * 0.0)))
    assert expected == pytest.approx(4.511, abs=1e-3)
    assert loss.item() == pytest.approx(expected, abs=1e-4)


def test_simpler_a_is_the_articles_quartic() -> None:
    cosine = torch.linspace(-1, 1, 41, dtype=torch.float64)
    quartic = 1 - 8 * cosine**2 + 8 * cosine**4  # cos 4 theta, as the article expands it
    vectors = torch.stack([cosine, (1 - cosine**2).sqrt()], dim=1)
    softmax = MarginSoftmax("simpler_a", 1.0)
    classes = torch.zeros(41, dtype=torch.long)
    found = softmax.apply(softmax.scores(vectors, torch.eye(2).double()), classes)
    assert torch.allclose(found[:, 0], torch.minimum(quartic, cosine), atol=1e-12)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(("kind", "margin"), CASES)
def test_gradients_stay_finite_on_the_centre_and_opposite_to_it(kind, margin, sign) -> None:
    vectors = (sign * torch.eye(2)).requires_grad_()
    loss = margin_softmax_loss(
        vectors, torch.eye(2), torch.arange(2), MarginSoftmax(kind, 30.0, margin)
    ).loss
    loss.backward()
    assert loss.isfinite()
    assert vectors.grad.isfinite().all()


@pytest.mark.parametrize("kind", ["arc", "sphere", "simpler_a"])
def test_cosines_that_rounding_puts_beyond_1_have_an_angle(kind) -> None:
    softmax, classes = MarginSoftmax(kind, 1.0), torch.zeros(2, dtype=torch.long)
    ends = torch.tensor([[1.0], [-1.0]])
    found, wanted = (softmax.apply(cosines, classes) for cosines in (ends * (1 + 1e-6), ends))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4)


def test_the_angle_s_multiple_has_the_polynomial_s_slope_at_its_end() -> None:
    cosine = torch.tensor([[1.0, 0.3]], dtype=torch.float64, requires_grad=True)
    softmax = MarginSoftmax("sphere", 1.0, 4.0)
    softmax.apply(cosine, torch.tensor([0]))[0, 0].backward()
    assert cosine.grad[0, 0].item() == pytest.approx(16.0)  # of 8 c^4 - 8 c^2 + 1, at c = 1


@pytest.mark.parametrize(("kind", "margin"), CASES)
def test_half_precision_is_scored_in_single(kind, margin) -> None:
    vectors, centres, classes = (t.bfloat16() if t.is_floating_point() else t for t in spread())
    softmax = MarginSoftmax(kind, 300.0, margin)  # near-equal scores, far beyond exp's range
    expected = margin_softmax_loss(vectors.double(), centres.double(), classes, softmax)
    with torch.autocast("cpu", torch.bfloat16):
        found = margin_softmax_loss(vectors, centres, classes, softmax)
    assert found.loss.dtype == torch.float32
    assert found.loss.item() == pytest.approx(expected.loss.item(), rel=1e-4)
    assert found.accuracy == expected.accuracy


def test_zero_vectors_give_the_log_of_the_classes_and_the_margin() -> None:
    zeros, centres, classes = torch.zeros(4, 5), torch.randn(7, 5), torch.arange(4)
    for kind, extra in (("softmax", 0.0), ("am", 2 * 0.35)):
        loss = margin_softmax_loss(zeros, centres, classes, MarginSoftmax(kind, 2.0)).loss
        assert loss.item() == pytest.approx(math.log(math.exp(-extra) + 6) + extra)


@pytest.mark.parametrize("kind", ["am", "arc", "sphere", "simpler_a"])
def test_a_class_of_another_process_has_no_margin_here(kind) -> None:
    scores = torch.tensor([[0.8, 0.1], [0.6, 0.5]])
    found = MarginSoftmax(kind, 10.0).apply(scores, torch.tensor([-1, 1]))
    assert torch.equal(found[0], 10 * scores[0])
    assert found[1, 0] == 10 * scores[1, 0]
    assert found[1, 1] < 10 * scores[1, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("cos",), "kind='cos': choose one of softmax, am"),
        (("am", 0.0), "scale 0.0: give .* above 0"),
        (("am", math.inf), "scale inf"),
        (("am", 30.0, 1.5), "margin 1.5 of 'am' is out of range: it must be from 0 to 1;"),
        (("am", 30.0, -0.1), "margin -0.1"),
        (("arc", 30.0, 28.6), "0.5 is usual"),
        (("sphere", 30.0, 0.35), "from 1 to 10"),
        (("simpler_a", 30.0, math.nan), "margin nan"),
        (("softmax", 30.0, 0.1), "Plain softmax has no margin"),
    ],
)
def test_values_out_of_range_are_named(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        MarginSoftmax(*options)


def test_center_loss_is_half_the_mean_squared_distance() -> None:
    vectors, centres, classes = spread()
    expected = sum(
        float(((v - centres[c, 0]) ** 2).sum()) / 2 for v, c in zip(vectors, classes, strict=True)
    )
    assert center_loss(vectors, centres[:, 0], classes).item() == pytest.approx(expected / 8)
