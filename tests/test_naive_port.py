"""The naive port is a fair baseline only while it is right: it must equal the slow references."""

from __future__ import annotations

import pytest
import torch
from transformers import BertConfig, BertTokenizer

from benchmarks.naive_port import (
    NaiveGenerativeBert,
    build_optimizer,
    build_port,
    collate,
    compute_losses,
    cut_at,
    generate_cached,
    generate_cacheless,
    sample_cacheless,
    sample_with_generate,
    train_step,
)
from tests.naive import (
    float64_weights,
    make_lively,
    naive_greedy,
    naive_sequence_log_prob,
    naive_simbert_loss,
)

WORDS = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"]
CONFIG = BertConfig(
    vocab_size=5 + len(WORDS),
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=20,
    max_position_embeddings=64,
    hidden_dropout_prob=0.0,
)
PAIRS = [("a b c", "d e"), ("f g h i", "j"), ("k", "l m n o p")]


@pytest.fixture(scope="module")
def tokenizer() -> BertTokenizer:
    """Return a tokenizer of sixteen letters; [CLS] is 2 and [SEP] is 3."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    return BertTokenizer(vocab={token: i for i, token in enumerate(tokens)})


@pytest.fixture(scope="module")
def model() -> NaiveGenerativeBert:
    """Return a random generative port with lively weights, in float64 to compare exactly."""
    model = build_port(CONFIG, generative=True)
    make_lively(model, seed=5)
    return model.double().eval()


def test_collate_puts_both_orders_in_adjacent_rows_of_fixed_length(tokenizer) -> None:
    batch = collate(tokenizer, PAIRS)
    assert {name: tuple(value.shape) for name, value in batch.items()} == dict.fromkeys(
        ("input_ids", "token_type_ids", "attention_mask"), (6, 64)
    )
    assert tokenizer.batch_decode(batch["input_ids"][:2, :8]) == [
        "[CLS] a b c [SEP] d e [SEP]",
        "[CLS] d e [SEP] a b c [SEP]",
    ]
    assert batch["token_type_ids"][:2, :9].tolist() == [
        [0, 0, 0, 0, 0, 1, 1, 1, 0],
        [0, 0, 0, 0, 1, 1, 1, 1, 0],
    ]
    assert batch["attention_mask"].sum(dim=1).tolist() == [8, 8, 8, 8, 9, 9]


def test_collate_cuts_the_longer_side(tokenizer) -> None:
    batch = collate(tokenizer, [("a b c d e f", "k l")], max_length=8)
    assert tokenizer.batch_decode(batch["input_ids"]) == [
        "[CLS] a b c [SEP] k l [SEP]",
        "[CLS] k l [SEP] a b c [SEP]",
    ]


def test_losses_and_gradients_equal_the_reference(model, tokenizer) -> None:
    batch = collate(tokenizer, PAIRS)
    weights = float64_weights(model.state_dict(), requires_grad=True)
    rows = []
    for ids, segments, mask in zip(
        batch["input_ids"], batch["token_type_ids"], batch["attention_mask"], strict=True
    ):
        n = int(mask.sum())
        rows.append((ids[:n].tolist(), segments[:n].tolist()))
    reference = naive_simbert_loss(weights, CONFIG, rows)
    losses = compute_losses(model, batch)
    for name, value in reference.items():
        torch.testing.assert_close(losses[name], value, rtol=0, atol=1e-10)
    reference["total"].backward()
    losses["total"].backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, weights[name].grad, rtol=0, atol=1e-9)
    model.zero_grad()


def test_training_lowers_the_loss(tokenizer) -> None:
    torch.manual_seed(0)
    model = build_port(CONFIG)
    assert model.config._attn_implementation == "sdpa"
    assert model.config.attention_probs_dropout_prob == 0.0
    assert not hasattr(model, "generate")
    batch, optimizer = collate(tokenizer, PAIRS, max_length=16), build_optimizer(model, lr=1e-2)
    losses = [train_step(model.train(), optimizer, batch) for _ in range(30)]
    assert losses[-1]["total"] < losses[0]["total"] - 1.0
    assert not losses[0]["total"].requires_grad


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("source", [[2, 5, 6, 7, 3], [2, 9, 3], [2, 20, 12, 13, 14, 15, 3]])
def test_greedy_generation_equals_the_reference_token_for_token(
    model, source: list[int], attention: str
) -> None:
    model.set_attn_implementation(attention)
    expected = naive_greedy(float64_weights(model.state_dict()), CONFIG, source, 3, [], 10)
    assert sample_cacheless(model, source, 3, 2, 1, 10) == [expected, expected]
    assert sample_with_generate(model, source, 3, 2, 1, 10) == [expected, expected]
    banned = [0, 1, 3]  # no end: all ten tokens are compared
    expected = naive_greedy(float64_weights(model.state_dict()), CONFIG, source, 3, banned, 10)
    assert len(expected) == 10
    assert len(set(expected)) > 3  # else the comparison proves little
    output = model.generate(
        torch.tensor([source]),
        suppress_tokens=banned,
        do_sample=False,
        max_new_tokens=10,
        eos_token_id=3,
        pad_token_id=0,
    )
    assert output[0, len(source) :].tolist() == expected
    model.set_attn_implementation("sdpa")


def test_generate_computes_one_token_per_step_from_its_cache(model, monkeypatch) -> None:
    shapes = []
    forward = model.bert.forward

    def counting(input_ids: torch.Tensor, **kwargs):
        shapes.append((tuple(input_ids.shape), kwargs["token_type_ids"].unique().tolist()))
        return forward(input_ids, **kwargs)

    monkeypatch.setattr(model.bert, "forward", counting)
    targets = sample_with_generate(model, [2, 5, 6, 7, 3], 3, 6, max_new_tokens=5)
    steps = max(map(len, targets))
    assert steps > 1
    assert shapes == [((6, 5), [0])] + [((6, 1), [1])] * (steps - 1)


def test_cacheless_computes_the_first_step_once_and_unfinished_rows_only(
    model, monkeypatch
) -> None:
    shapes = []
    forward = model.bert.forward

    def counting(input_ids: torch.Tensor, **kwargs):
        shapes.append(tuple(input_ids.shape))
        return forward(input_ids, **kwargs)

    monkeypatch.setattr(model.bert, "forward", counting)
    targets = sample_cacheless(model, [2, 5, 6, 7, 3], 3, 40, CONFIG.vocab_size, 6)
    lengths = [len(target) for target in targets]
    assert len(set(lengths)) > 2
    open_rows = [sum(length > step for length in lengths) for step in range(max(lengths))]
    assert shapes == [(1 if step == 0 else rows, 5 + step) for step, rows in enumerate(open_rows)]


def test_generate_takes_a_batch_of_sources_padded_on_the_left(model) -> None:
    sources = [[2, 5, 6, 7, 3], [2, 9, 3]]
    banned = [0, 1, 3]
    weights = float64_weights(model.state_dict())
    expected = [naive_greedy(weights, CONFIG, source, 3, banned, 8) for source in sources]
    output = model.generate(
        torch.tensor([sources[0], [0, 0, *sources[1]]]),
        attention_mask=torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]),
        suppress_tokens=banned,
        do_sample=False,
        max_new_tokens=8,
        eos_token_id=3,
        pad_token_id=0,
    )
    assert output[:, 5:].tolist() == expected


@pytest.mark.parametrize("sampler", [sample_cacheless, sample_with_generate])
def test_samples_follow_the_model(model, sampler) -> None:
    """Of many two-token samples, each frequency is that of the reference distribution."""
    source, n = [2, 5, 6, 3], 4000
    vocabulary = CONFIG.vocab_size
    samples = sampler(model, source, 3, n, vocabulary, 2)
    assert samples == sampler(model, source, 3, n, vocabulary, 2)
    assert samples != sampler(model, source, 3, n, vocabulary, 2, seed=1)
    assert all(len(sample) == 2 or sample == [3] for sample in samples)
    weights = float64_weights(model.state_dict())
    common = sorted({tuple(sample) for sample in samples}, key=lambda s: -samples.count(list(s)))
    for target in common[:4]:
        exact = naive_sequence_log_prob(weights, CONFIG, source, list(target)).exp().item()
        share = samples.count(list(target)) / n
        assert share == pytest.approx(exact, abs=4 * (exact / n) ** 0.5)


@pytest.mark.parametrize("generate", [generate_cacheless, generate_cached])
def test_texts(model, tokenizer, generate) -> None:
    texts = generate(model, tokenizer, "a b c", 5, max_new_tokens=4)
    assert len(texts) == 5
    assert all(set(text.split()) <= set(WORDS) for text in texts)


def test_cut_at_keeps_the_first_end() -> None:
    assert cut_at([5, 3, 0, 3], 3) == [5, 3]
    assert cut_at([5, 6], 3) == [5, 6]
