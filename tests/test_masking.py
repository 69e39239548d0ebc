import pytest
import torch

from simbert_hf.masking import prefix_mask
from tests.naive import naive_prefix_allowed
from tests.tiny import tiny_simbert


def test_equals_the_loop_for_ragged_rows() -> None:
    rows = [([0, 0, 0, 1, 1], 5), ([0, 0, 1, 1, 0], 4), ([0, 1, 0, 0, 0], 2)]
    segments = torch.tensor([row for row, _ in rows])
    real = torch.tensor([[int(i < n) for i in range(5)] for _, n in rows])
    mask = prefix_mask(segments, real, torch.float32)
    for i, (row, n_real) in enumerate(rows):
        assert (mask[i, 0] == 0).tolist() == naive_prefix_allowed(row, n_real)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_is_finite_in_every_dtype(dtype: torch.dtype) -> None:
    mask = prefix_mask(torch.tensor([[0, 1, 1]]), torch.ones(1, 3), dtype)
    assert mask.dtype == dtype
    assert mask.isfinite().all()
    assert mask.softmax(-1)[0, 0, 0].tolist() == [1, 0, 0]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("layout", ["right padding", "left padding"])
def test_the_target_moves_no_prefix_vector(attention: str, layout: str) -> None:
    model = tiny_simbert().double()
    model.set_attn_implementation(attention)
    ids = torch.randint(5, 30, (2, 10))
    segments = torch.tensor([[0] * 5 + [1] * 5, [0] * 3 + [1] * 4 + [0] * 3])
    real = torch.ones(2, 10, dtype=torch.long)
    real[1, 7:] = 0
    other = torch.where((segments == 1) & (real == 1), (ids + 7) % 25 + 5, ids)
    if layout == "left padding":
        ids, other, segments, real = (x.flip(1) for x in (ids, other, segments, real))
        segments = torch.tensor([[0] * 5 + [1] * 5, [0] * 3 + [0] * 3 + [1] * 4])
        other = torch.where(segments == 1, (ids + 7) % 25 + 5, ids)
    before, after = (
        model(input_ids=x, attention_mask=real, token_type_ids=segments) for x in (ids, other)
    )
    prefix = (segments == 0) & (real == 1)
    moved = (before.last_hidden_state - after.last_hidden_state).abs()
    assert moved[prefix].max() == 0
    assert (before.sentence_embedding - after.sentence_embedding).abs().max() == 0
    assert moved[segments == 1].max() > 1e-3  # the target itself did change


def test_attention_implementations_agree() -> None:
    model = tiny_simbert().double()
    ids = torch.randint(5, 30, (2, 8))
    segments = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0, 0, 0]])
    real = torch.tensor([[1] * 8, [1] * 4 + [0] * 4])
    found = []
    for attention in ("sdpa", "eager"):
        model.set_attn_implementation(attention)
        output = model(input_ids=ids, attention_mask=real, token_type_ids=segments)
        found.append(output.last_hidden_state[real == 1])
    assert torch.allclose(*found, atol=1e-12)


def test_refuses_unequal_shapes() -> None:
    with pytest.raises(ValueError, match=r"equal shape \(B, L\).*\(1, 3\) and \(1, 4\)"):
        prefix_mask(torch.zeros(1, 3), torch.ones(1, 4), torch.float32)
    with pytest.raises(ValueError, match=r"\(3,\) and \(3,\)"):
        prefix_mask(torch.zeros(3), torch.ones(3), torch.float32)
