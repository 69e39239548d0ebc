"""Checks of the slow references against closed forms and against transformers' own BERT."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, BertModel

from tests.naive import (
    Row,
    float64_weights,
    make_lively,
    naive_encode_row,
    naive_lm_logits,
    naive_next_log_probs,
    naive_ordered_draw_probability,
    naive_prefix_allowed,
    naive_sentence_vector,
    naive_seq2seq_loss,
    naive_sequence_log_prob,
    naive_simbert_loss,
    naive_stochastic_beam_search,
    naive_topk_accuracy,
)

CLS, SEP = 2, 3
ROWS: list[Row] = [
    ([CLS, 7, 8, 9, SEP, 11, 12, SEP], [0, 0, 0, 0, 0, 1, 1, 1]),
    ([CLS, 11, 12, SEP, 7, 8, 9, SEP], [0, 0, 0, 0, 1, 1, 1, 1]),
]
MODEL_CONFIG = BertConfig(
    vocab_size=23,
    hidden_size=12,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=20,
    max_position_embeddings=24,
    attn_implementation="eager",
)


@pytest.fixture(scope="module")
def model() -> BertForMaskedLM:
    """Return a random float64 BERT with a pooler, none of whose weights is at its usual start."""
    model = BertForMaskedLM(MODEL_CONFIG)
    model.bert = BertModel(MODEL_CONFIG)
    model.tie_weights()
    make_lively(model, seed=5)
    return model.double().eval()


@pytest.fixture(scope="module")
def weights(model: BertForMaskedLM) -> dict[str, torch.Tensor]:
    """Return the state dict of `model`."""
    return float64_weights(model.state_dict())


def row_mask(segments: list[int]) -> torch.Tensor:
    """Return the additive mask (1, 1, L, L) of one unpadded row."""
    allowed = torch.tensor(naive_prefix_allowed(segments, len(segments)))
    return torch.zeros(allowed.shape).double().masked_fill(~allowed, -1e30)[None, None]


def test_prefix_mask_spelled_out() -> None:
    t, f = True, False
    assert naive_prefix_allowed([0, 0, 0, 1, 1, 0], 5) == [
        [t, t, t, f, f, f],
        [t, t, t, f, f, f],
        [t, t, t, f, f, f],
        [t, t, t, t, f, f],
        [t, t, t, t, t, f],
        [t, t, t, t, t, f],
    ]


def test_bidirectional_row_equals_bert(model, weights) -> None:
    ids = [CLS, 7, 8, 9, 4, 5, SEP]
    output = model(torch.tensor([ids]), output_hidden_states=True)
    states = naive_encode_row(weights, MODEL_CONFIG, ids, [0] * len(ids))
    assert len(states) == len(output.hidden_states) == 4
    for naive, real in zip(states, output.hidden_states, strict=True):
        torch.testing.assert_close(naive, real[0], rtol=0, atol=1e-10)
    logits = naive_lm_logits(weights, MODEL_CONFIG, states[-1])
    torch.testing.assert_close(logits, output.logits[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("row", ROWS)
def test_prefix_row_equals_bert_with_an_additive_mask(model, weights, row: Row) -> None:
    ids, segments = row
    output = model(
        torch.tensor([ids]),
        token_type_ids=torch.tensor([segments]),
        attention_mask=row_mask(segments),
        output_hidden_states=True,
    )
    states = naive_encode_row(weights, MODEL_CONFIG, ids, segments)
    for naive, real in zip(states, output.hidden_states, strict=True):
        torch.testing.assert_close(naive, real[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("pooling", ["linear_pooler", "cls", "mean", "first_last_mean"])
def test_vector_of_a_row_is_that_of_its_source_alone(model, weights, pooling: str) -> None:
    ids, segments = ROWS[0]
    vector = naive_sentence_vector(weights, MODEL_CONFIG, ids, segments, pooling)
    source = torch.tensor([ids[:5]])
    states = model.bert(source, output_hidden_states=True).hidden_states
    last = states[-1][0]
    expected = {
        "linear_pooler": model.bert.pooler.dense(last[0]),
        "cls": last[0],
        "mean": last.mean(dim=0),
        "first_last_mean": (last + states[1][0]).mean(dim=0) / 2,
    }[pooling]
    torch.testing.assert_close(vector, expected, rtol=0, atol=1e-10)


def test_poolings_differ_and_unknown_ones_are_refused(weights) -> None:
    names = ["linear_pooler", "cls", "mean", "first_last_mean"]
    vectors = [naive_sentence_vector(weights, MODEL_CONFIG, *ROWS[0], name) for name in names]
    for a, b in permutations(vectors, 2):
        assert (a - b).abs().max() > 1e-3
    with pytest.raises(ValueError, match="unknown pooling 'max'"):
        naive_sentence_vector(weights, MODEL_CONFIG, *ROWS[0], "max")


def test_seq2seq_loss_of_even_logits_is_log_vocabulary() -> None:
    rows = [(torch.zeros(len(ids), 23), ids, segments) for ids, segments in ROWS]
    assert naive_seq2seq_loss(rows).item() == pytest.approx(math.log(23), abs=1e-12)


def test_seq2seq_loss_counts_each_target_token_once_over_the_whole_batch() -> None:
    # Every logit zero but the right one's, so a token costs log(V - 1 + e^-x) with logit x there.
    def logits(ids: list[int], strength: float) -> torch.Tensor:
        out = torch.zeros(len(ids), 23, dtype=torch.float64)
        for t, token in enumerate(ids[1:]):
            out[t, token] = strength
        return out

    def cost(strength: float) -> float:
        return math.log(22 + math.exp(strength)) - strength

    rows = [(logits(ids, s), ids, seg) for (ids, seg), s in zip(ROWS, (1.0, 2.0), strict=True)]
    expected = (3 * cost(1.0) + 4 * cost(2.0)) / 7  # 3 and 4 targets, [SEP] included
    assert naive_seq2seq_loss(rows).item() == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ValueError, match="no row has a target"):
        naive_seq2seq_loss([(torch.zeros(3, 23), [CLS, 7, SEP], [0, 0, 0])])


def test_seq2seq_loss_reads_the_first_sep_but_not_the_last_or_the_source() -> None:
    ids, segments = ROWS[0]
    logits = torch.zeros(len(ids), 23, requires_grad=True)
    naive_seq2seq_loss([(logits, ids, segments)]).backward()
    assert logits.grad.abs().sum(dim=1).gt(0).tolist() == [False] * 4 + [True] * 3 + [False]


def test_next_log_probs_are_those_of_the_row_that_is_scored_at_once(weights) -> None:
    ids, segments = ROWS[0]
    hidden = naive_encode_row(weights, MODEL_CONFIG, ids, segments)[-1]
    log_probs = naive_lm_logits(weights, MODEL_CONFIG, hidden).log_softmax(dim=1)
    target = ids[5:]
    expected = sum(log_probs[4 + t, token] for t, token in enumerate(target))
    value = naive_sequence_log_prob(weights, MODEL_CONFIG, ids[:5], target)
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-10)
    assert value.item() == pytest.approx(
        -len(target) * naive_simbert_loss(weights, MODEL_CONFIG, ROWS[:1] * 2)["seq2seq"].item()
    )
    assert naive_sequence_log_prob(weights, MODEL_CONFIG, ids[:5], []).item() == 0.0


def test_banned_tokens_have_no_probability_and_the_rest_has_all(weights) -> None:
    source = [CLS, 7, 8, SEP]
    free = naive_next_log_probs(weights, MODEL_CONFIG, source, [9]).exp()
    some = naive_next_log_probs(weights, MODEL_CONFIG, source, [9], banned_ids=[0, 5]).exp()
    assert some[[0, 5]].tolist() == [0.0, 0.0]
    assert some.sum().item() == pytest.approx(1.0)
    torch.testing.assert_close(some[6:], free[6:] / (1 - free[0] - free[5]))


def toy_log_probs(prefix: tuple[int, ...]) -> list[float]:
    """Return a model over three tokens (2 ends) that depends on the length and on the last one."""
    weights = [1.0 + len(prefix), 2.0 + (prefix[-1] if prefix else 0), 1.5]
    return [math.log(weight / sum(weights)) for weight in weights]


def test_enumerated_sequences_are_complete_and_their_probabilities_sum_to_one() -> None:
    log_probs = naive_stochastic_beam_search(toy_log_probs, end_token=2, max_length=3)
    # 1 of length one, 2 of length two and 4 * 3 of length three.
    assert sorted(map(len, log_probs)) == [1, 2, 2, *[3] * 12]
    assert all(2 not in sequence[:-1] for sequence in log_probs)
    assert sum(map(math.exp, log_probs.values())) == pytest.approx(1.0)
    assert log_probs[(1, 2)] == pytest.approx(toy_log_probs(())[1] + toy_log_probs((1,))[2])


def test_forbidden_tokens_are_not_enumerated() -> None:
    log_probs = naive_stochastic_beam_search(
        lambda prefix: [math.log(0.5), -math.inf, math.log(0.5)], end_token=2, max_length=2
    )
    assert set(log_probs) == {(2,), (0, 2), (0, 0)}


def test_draws_without_replacement() -> None:
    log_probs = naive_stochastic_beam_search(toy_log_probs, end_token=2, max_length=2)
    orders = {draw: naive_ordered_draw_probability(log_probs, draw)
              for draw in permutations(log_probs, 2)}  # fmt: skip
    assert sum(orders.values()) == pytest.approx(1.0)
    assert naive_ordered_draw_probability(log_probs, [(2,), (2,)]) == 0.0


def test_gumbel_top_k_draws_with_the_enumerated_probabilities() -> None:
    log_probs = naive_stochastic_beam_search(toy_log_probs, end_token=2, max_length=2)
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand(100_000, len(log_probs), generator=generator, dtype=torch.float64)
    keys = torch.tensor(list(log_probs.values())) - torch.log(-torch.log(uniform))
    first, second = keys.topk(2, dim=1).indices.T
    sequences = list(log_probs)
    for i, j in permutations(range(len(sequences)), 2):
        share = ((first == i) & (second == j)).double().mean().item()
        exact = naive_ordered_draw_probability(log_probs, [sequences[i], sequences[j]])
        assert share == pytest.approx(exact, abs=5 * math.sqrt(exact / 100_000))


def test_topk_accuracy_by_hand() -> None:
    # Angles in degrees; the nearest others of each are read off by eye.
    angles = torch.tensor([0.0, 10.0, 25.0, 90.0, 180.0]) * math.pi / 180
    vectors = torch.stack([angles.cos(), angles.sin()], dim=1) * torch.tensor([[1, 9, 2, 3, 4.0]]).T
    groups = [0, 1, 0, 1, 2]  # the last has no mate: always a miss
    # 0 ranks 1, 2*; 1 ranks 0, 2, 3*; 2 ranks 1, 0*; 3 ranks 2, 1* (65, 80); 4 ranks 3, 2, ...
    assert naive_topk_accuracy(vectors, groups, [1, 2, 3, 4]) == {1: 0.0, 2: 0.6, 3: 0.8, 4: 0.8}
    assert naive_topk_accuracy(vectors, [0, 0, 0, 0, 0], [1]) == {1: 1.0}
