"""SimBERT's loss against the naive implementation, values and gradients."""

import pytest
import torch

from simbert_hf import objectives
from simbert_hf.collators import PairCollator, SimCseCollator
from simbert_hf.data import FixedPairs, Triplet
from simbert_hf.losses import distillation_loss
from simbert_hf.margin.classes import ClassCollator, MarginObjective
from simbert_hf.margin.softmax import MarginSoftmax
from simbert_hf.objectives import ScoredPairObjective, SimBertObjective, SimCseObjective, contrasts
from simbert_hf.pooling import POOLINGS
from simbert_hf.triplet.objective import TripletObjective
from tests.naive import (
    float64_weights,
    naive_cosent_loss,
    naive_cosine,
    naive_encode_row,
    naive_lm_logits,
    naive_one_way_loss,
    naive_sdml_loss,
    naive_sentence_vector,
    naive_seq2seq_loss,
    naive_simbert_loss,
    naive_similarity_loss,
)
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


@pytest.mark.parametrize(
    ("pooling", "masked"),
    [
        *(
            pytest.param(pooling, True, marks=[] if pooling == "mean" else pytest.mark.slow)
            for pooling in POOLINGS
        ),
        pytest.param("cls", False, marks=pytest.mark.slow),
    ],
)
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
    original = SimBertObjective(mask_false_negatives=False)(model, batch)
    assert original.similarity > parts.similarity  # among more candidates
    nothing = torch.zeros(0, dtype=torch.long)
    parts = SimBertObjective()(model, batch | {"mlm_positions": nothing, "mlm_labels": nothing})
    assert parts.mlm.item() == 0


def test_unless_told_otherwise_the_total_is_the_plain_sum() -> None:
    model = tiny_simbert()
    preferences = [Triplet("a cat sat", "the cat sat", "a cat cat is sitting")]
    collator = PairCollator(model.rows, mlm=True, sentences=SENTENCES, preferences=preferences)
    parts = SimBertObjective()(model, collator(PAIRS))
    names = ("seq2seq", "similarity", "mlm", "simcse", "preference")
    assert parts.total.item() == pytest.approx(sum(getattr(parts, n).item() for n in names))
    views = SimCseObjective()(model, SimCseCollator(model.rows, mlm=True)(examples()))
    assert views.total.item() == pytest.approx(views.similarity.item() + views.mlm.item())


def test_what_a_pair_alone_teaches() -> None:
    assert contrasts(SimBertObjective())
    assert contrasts(ScoredPairObjective())
    assert not contrasts(SimBertObjective(similarity_weight=0.0))
    assert not contrasts(MarginObjective(MarginSoftmax()))


def test_rows_without_targets_are_shorter_and_teach_the_same() -> None:
    model = tiny_simbert().double().eval()
    collators = [PairCollator(model.rows, mlm=True, targets=targets) for targets in (True, False)]
    long, short = (collator(PAIRS) for collator in collators)
    assert short["attention_mask"].sum() < long["attention_mask"].sum()
    assert not short["token_type_ids"].any()
    for collator, batch in zip(collators, (long, short), strict=True):
        counted = collator.lengths(PAIRS)
        assert counted.max() == batch["input_ids"].shape[1]
    expected, parts = (SimBertObjective(seq2seq_weight=0.0)(model, b) for b in (long, short))
    assert parts.seq2seq is None
    for name in ("total", "similarity", "mlm"):
        assert getattr(parts, name).item() == pytest.approx(getattr(expected, name).item())


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


# SimCSE -----------------------------------------------------------------------------------------

SENTENCES = ["a cat sat", "how can i reset my password?", "the dog ran on the mat", "a cat sat"]


def examples(**more: list[object]) -> list[dict[str, object]]:
    """SENTENCES with themselves, the first and the last of one group."""
    return [
        {"source": text, "target": text, "group": i % 3, "seed": 7 * i + 1}
        | {name: values[i] for name, values in more.items()}
        for i, text in enumerate(SENTENCES)
    ]


def naive_vectors(weights, model, texts: list[str]) -> list[torch.Tensor]:
    rows = model.rows.sources(texts, 32)
    pooling = model.config.sentence_pooling
    return [
        naive_sentence_vector(weights, model.config, ids, [0] * len(ids), pooling) for ids in rows
    ]


def assert_same_gradients(model, weights) -> None:
    compared = 0
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and parameter.grad.any():
            assert torch.allclose(parameter.grad, weights[name].grad, atol=1e-9), name
            compared += 1
    assert compared > 30


@pytest.mark.parametrize("masked", [True, False])
def test_symmetric_simcse_equals_the_naive_loss(masked: bool) -> None:
    model = tiny_simbert("cls").double()
    batch = SimCseCollator(model.rows)(examples())
    assert batch["input_ids"].tolist()[0::2] == batch["input_ids"].tolist()[1::2]
    parts = SimCseObjective(mask_false_negatives=masked)(model, batch)
    parts.total.backward()
    weights = float64_weights(model.state_dict(), requires_grad=True)
    texts = [text for text in SENTENCES for _ in (0, 1)]
    groups = batch["groups"].tolist() if masked else None
    naive = naive_similarity_loss(naive_vectors(weights, model, texts), 20.0, groups)
    naive.backward()
    assert parts.total.item() == pytest.approx(naive.item(), abs=1e-9)
    assert_same_gradients(model, weights)


def test_one_way_simcse_with_hard_negatives_equals_the_naive_loss() -> None:
    model = tiny_simbert("tanh_pooler").double()
    targets = ["the cat is sitting", "password reset please", "a dog ran", "the cat sat"]
    negatives = ["a dog sat", "tell me the time", "the cat ran", "what time is it"]
    rows = examples(target=targets, negative=negatives)
    batch = SimCseCollator(model.rows)(rows)
    assert len(batch["input_ids"]) == 12
    papers = SimCseObjective(symmetric=False, hard_negative_weight=0.7, mask_false_negatives=False)
    parts = papers(model, batch)
    parts.total.backward()
    weights = float64_weights(model.state_dict(), requires_grad=True)
    vectors = [
        torch.stack(naive_vectors(weights, model, t)) for t in (SENTENCES, targets, negatives)
    ]
    naive = naive_one_way_loss(*vectors, scale=20.0, hard_negative_weight=0.7)
    naive.backward()
    assert parts.total.item() == pytest.approx(naive.item(), abs=1e-9)
    assert_same_gradients(model, weights)
    masked = SimCseObjective(symmetric=False)(model, batch)  # negatives are of unknown groups
    expected = naive_one_way_loss(*vectors, out=[(0, 3), (3, 0)])
    assert masked.total.item() == pytest.approx(expected.item(), abs=1e-9)
    with pytest.raises(ValueError, match="Hard negatives need the one-directional loss"):
        SimCseObjective(symmetric=True)(model, batch)


@pytest.mark.parametrize("masked", [True, False])
def test_equal_sentences_of_triplets_are_no_negatives(masked: bool) -> None:
    model = tiny_simbert("cls").double()
    columns = {  # the third row's anchor stands in all columns, as in mined triplets
        "source": ["a cat sat", "a dog ran", "the cat sat", "what time is it"],
        "target": ["the cat sat", "a dog sat", "the cat is sitting", "tell me the time"],
        "negative": ["a dog ran", "A cat  sat", "the time", "the cat sat"],
    }
    out = [(0, 2), (0, 5), (0, 7), (1, 4), (2, 0), (2, 7)]
    pairs = FixedPairs(columns)
    batch = SimCseCollator(model.rows)(pairs.__getitems__(range(4)))
    found = SimCseObjective(symmetric=False, mask_false_negatives=masked)(model, batch)
    weights = float64_weights(model.state_dict())
    vectors = [torch.stack(naive_vectors(weights, model, texts)) for texts in columns.values()]
    naive = naive_one_way_loss(*vectors, out=out if masked else [])
    assert found.total.item() == pytest.approx(naive.item(), abs=1e-9)
    sdml = TripletObjective("sdml")(model, batch).total
    keys = [*vectors[1], *vectors[2]]
    assert sdml.item() == pytest.approx(
        naive_sdml_loss([*vectors[0]], keys, 0.3, "cosine", out).item(), abs=1e-9
    )


def test_dropout_makes_the_two_views_and_the_head_works_in_training_only() -> None:
    model = tiny_simbert("cls", hidden_dropout_prob=0.3)
    batch = SimCseCollator(model.rows)(examples())
    inputs = {k: batch[k] for k in ("input_ids", "attention_mask", "token_type_ids")}
    plain = model(**inputs).sentence_embedding
    assert torch.equal(plain[0], plain[1])
    model.add_training_head()
    assert torch.equal(model(**inputs).sentence_embedding, plain)
    model.train()
    views = model(**inputs).sentence_embedding
    assert views.abs().max() < 1  # behind a tanh
    assert (views[0] - views[1]).abs().max() > 1e-3
    assert SimCseObjective()(model, batch).total.isfinite()


def test_mlm_restores_masked_copies_and_leaves_the_views_clean() -> None:
    model = tiny_simbert().double()
    clean = SimCseObjective()(model, SimCseCollator(model.rows)(examples()))
    batch = SimCseCollator(model.rows, mlm=True)(examples())
    assert len(batch["input_ids"]) == 12
    assert batch["mlm_positions"].min() >= 8 * batch["input_ids"].shape[1]
    parts = SimCseObjective(mlm_weight=0.5)(model, batch)
    assert parts.similarity.item() == pytest.approx(clean.similarity.item(), abs=1e-9)
    weights = float64_weights(model.state_dict())
    width, losses = batch["input_ids"].shape[1], []
    wanted = model.rows.sources(SENTENCES, 32)
    for at, label in zip(
        batch["mlm_positions"].tolist(), batch["mlm_labels"].tolist(), strict=True
    ):
        row, column = divmod(at, width)
        assert wanted[row - 8][column] == label
        ids, segments = rows_of(batch)[row]
        hidden = naive_encode_row(weights, model.config, ids, segments)[-1][column]
        losses.append(-naive_lm_logits(weights, model.config, hidden).log_softmax(-1)[label].item())
    assert len(losses) >= 2
    assert clean.mlm is None
    assert parts.mlm.item() == pytest.approx(sum(losses) / len(losses), abs=1e-9)
    assert parts.total.item() == pytest.approx(parts.similarity.item() + 0.5 * parts.mlm.item())


def test_mlm_alone_sees_the_masked_copies_only() -> None:
    model = tiny_simbert().double()
    with_views = SimCseObjective()(model, SimCseCollator(model.rows, mlm=True)(examples()))
    batch = SimCseCollator(model.rows, views=False, mlm=True)(examples())
    assert len(batch["input_ids"]) == 4
    parts = SimCseObjective(mlm_weight=0.5)(model, batch)
    assert parts.similarity is parts.similarity_accuracy is None
    assert parts.mlm.item() == pytest.approx(with_views.mlm.item(), abs=1e-9)
    assert parts.total.item() == pytest.approx(0.5 * parts.mlm.item())
    weighted = SimCseObjective(similarity_weight=3.0)(model, SimCseCollator(model.rows)(examples()))
    assert weighted.total.item() == pytest.approx(3 * with_views.similarity.item(), abs=1e-9)


def test_scored_pairs_equal_the_naive_loss() -> None:
    model = tiny_simbert().double()
    targets, scores = (
        ["the cat sat", "a dog ran", "a dog ran", "what time is it"],
        [5.0, 0.5, 3, 0.5],
    )
    rows = examples(target=targets, score=scores, negative=SENTENCES)
    batch = SimCseCollator(model.rows, mlm=True)(rows)  # whose other rows are left out
    parts = ScoredPairObjective()(model, batch)
    parts.total.backward()
    weights = float64_weights(model.state_dict(), requires_grad=True)
    first, second = (naive_vectors(weights, model, texts) for texts in (SENTENCES, targets))
    cosines = [naive_cosine(a, b) for a, b in zip(first, second, strict=True)]
    naive = naive_cosent_loss(cosines, scores)
    naive.backward()
    assert parts.total.item() == pytest.approx(naive.item(), abs=1e-9)
    assert_same_gradients(model, weights)
    angle = ScoredPairObjective(loss="angle")(model, batch)
    assert angle.total.item() != pytest.approx(naive.item(), abs=1e-3)


def test_joint_training_is_the_sum_of_both_in_one_pass() -> None:
    model = tiny_simbert().double()
    collator = PairCollator(model.rows, max_length=20, sentences=SENTENCES[:2])
    joint = collator(PAIRS)  # which draw a sentence twice, which is no negative of itself
    seen = []
    model.register_forward_pre_hook(lambda *_: seen.append(1))
    parts = SimBertObjective(simcse_weight=0.5, simcse_scale=7.0)(model, joint)
    assert len(seen) == 1
    alone = SimBertObjective()(model, PairCollator(model.rows, max_length=20)(PAIRS))
    assert alone.simcse is alone.mlm is alone.distillation is None
    drawn = [pair["seed"] % 2 for pair in PAIRS for _ in (0, 1)]
    assert joint["sentence_groups"].tolist() == drawn
    vectors = naive_vectors(
        float64_weights(model.state_dict()), model, [SENTENCES[i] for i in drawn]
    )
    naive = naive_similarity_loss(vectors, 7.0, drawn)
    assert parts.simcse.item() == pytest.approx(naive.item(), abs=1e-9)
    for name in ("seq2seq", "similarity"):
        assert getattr(parts, name).item() == pytest.approx(getattr(alone, name).item(), abs=1e-9)
    expected = alone.total.item() + 0.5 * naive.item()
    assert parts.total.item() == pytest.approx(expected, abs=1e-9)


def test_preferences_equal_the_naive_loss_and_leave_the_other_parts_alone() -> None:
    model = tiny_simbert().double()
    preferences = [
        Triplet("a cat sat", "the cat sat", "a cat cat is sitting"),
        Triplet("what time is it", "tell me the time please", "time"),
    ]
    unpaired = SENTENCES[:3]
    with_them, without = (
        PairCollator(model.rows, max_length=20, sentences=unpaired, preferences=some)(PAIRS)
        for some in (preferences, ())
    )
    objective = SimBertObjective(
        preference_weight=0.3, preference_scale=1.5, preference_margin=0.2,
        teacher=lambda texts: torch.eye(len(texts)), distillation_weight=2.0,
    )  # fmt: skip
    texts = {"texts": [""] * 12}
    parts, alone = objective(model, with_them | texts), objective(model, without | texts)
    assert alone.preference is None
    for name in ("seq2seq", "similarity", "simcse", "distillation"):
        assert getattr(parts, name).item() == pytest.approx(getattr(alone, name).item(), abs=1e-9)

    weights = float64_weights(model.state_dict(), requires_grad=True)
    losses, wins = [], []
    for pair in PAIRS:
        prompt, *answers = preferences[pair["seed"] // 3 % 2]  # of 3 unpaired sentences
        [source] = model.rows.sources([prompt], 20)
        means = []
        for answer in model.rows.targets(answers, 20):
            ids, segments = source + answer, [0] * len(source) + [1] * len(answer)
            hidden = naive_encode_row(weights, model.config, ids, segments)[-1]
            logits = naive_lm_logits(weights, model.config, hidden)
            means.append(-naive_seq2seq_loss([(logits, ids, segments)]))
        wins.append((means[0] > means[1]).item())
        losses.append(-(1.5 * (means[0] - means[1] - 0.2)).sigmoid().log())
    naive = sum(losses) / 3
    assert parts.preference.item() == pytest.approx(naive.item(), abs=1e-9)
    assert parts.preference_accuracy.item() == pytest.approx(sum(wins) / 3)
    assert parts.total.item() == pytest.approx(alone.total.item() + 0.3 * naive.item(), abs=1e-9)
    naive.backward()
    model.zero_grad()
    parts.preference.backward()
    assert_same_gradients(model, weights)


def test_one_way_pairs_are_written_one_way_and_leave_the_other_parts_alone() -> None:
    model, preferences = tiny_simbert().double(), [Triplet("a cat sat", "the cat", "a cat cat")]
    pairs = [("a cat is sitting", "a cat sat"), ("time", "what time is it"), ("it is", "is it")]
    pairs += [("a dog", "the dog ran"), ("reset", "reset the password")]
    with_them, without = (
        PairCollator(
            model.rows, max_length=20, sentences=SENTENCES, preferences=preferences, one_way=some
        )(PAIRS)
        for some in (pairs, ())
    )
    objective = SimBertObjective(
        teacher=lambda texts: torch.eye(len(texts)), distillation_weight=2.0
    )
    texts = {"texts": [""] * 12}
    parts, alone = objective(model, with_them | texts), objective(model, without | texts)
    for name in ("similarity", "simcse", "distillation", "preference"):
        assert getattr(parts, name).item() == pytest.approx(getattr(alone, name).item(), abs=1e-9)

    weights, written = float64_weights(model.state_dict(), requires_grad=True), []
    for pair in PAIRS:
        both = [(pair["source"], pair["target"]), (pair["target"], pair["source"])]
        for source, target in [*both, *(pairs[(2 * pair["seed"] + i) % 5] for i in (0, 1))]:
            [read], [answer] = model.rows.sources([source], 20), model.rows.targets([target], 20)
            ids, segments = read + answer, [0] * len(read) + [1] * len(answer)
            hidden = naive_encode_row(weights, model.config, ids, segments)[-1]
            written.append((naive_lm_logits(weights, model.config, hidden), ids, segments))
    naive = naive_seq2seq_loss(written)
    assert parts.seq2seq.item() == pytest.approx(naive.item(), abs=1e-9)
    naive.backward()
    parts.seq2seq.backward()
    assert_same_gradients(model, weights)


@pytest.mark.parametrize("gather", [True, False])
def test_both_parts_of_joint_training_are_gathered_or_none(
    gather: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered, seen = objectives.gathered_pair_loss, []

    def spy(*args, **options):
        seen.append(options["gather"])
        return gathered(*args, **options)

    monkeypatch.setattr(objectives, "gathered_pair_loss", spy)
    model = tiny_simbert()
    batch = PairCollator(model.rows, sentences=SENTENCES)(PAIRS)
    SimBertObjective(gather=gather)(model, batch)
    assert seen == [gather, gather]


def test_distillation_pulls_the_cosines_to_the_teachers() -> None:
    model = tiny_simbert()
    batch = PairCollator(model.rows, texts=True)(PAIRS)
    assert batch["texts"][:2] == [PAIRS[0]["source"], PAIRS[0]["target"]]
    seen: list[str] = []
    wanted = torch.rand(6, 6)

    def teacher(texts: list[str]) -> torch.Tensor:
        seen.extend(texts)
        return wanted

    options = {"distillation_weight": 7.0, "unrelated_weight": 0.3, "unrelated_cosine": 0.4}
    parts = SimBertObjective(teacher=teacher, **options)(model, batch)
    assert seen == batch["texts"]
    vectors = torch.as_tensor(model.encode(batch["texts"]))
    assert parts.distillation.item() == pytest.approx(
        distillation_loss(vectors, wanted, 0.3, 0.4).item(), abs=1e-5
    )
    expected = parts.seq2seq + parts.similarity + 7 * parts.distillation
    assert parts.total.item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_loss_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="loss='AnglE': choose one of cosent, angle"):
        ScoredPairObjective(loss="AnglE")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("columns", "collator", "objective", "message"),
    [
        ({"score": [5.0, 0.0]}, PairCollator, SimBertObjective, "pairs have a score"),
        ({"negative": ["a", "b"]}, PairCollator, SimBertObjective, "pairs have a negative"),
        ({"score": [5.0, 0.0]}, SimCseCollator, TripletObjective, "Scored pairs may be dissimilar"),
        ({"score": [5.0, 0.0]}, SimCseCollator, SimCseObjective, "Scored pairs may be dissimilar"),
    ],
)
def test_columns_that_would_be_ignored_are_refused(columns, collator, objective, message) -> None:
    texts = ["a cat sat", "reset the password"]
    pairs = FixedPairs({"source": texts, "target": texts[::-1], **columns})
    model = tiny_simbert()
    with pytest.raises(ValueError, match=message):
        objective()(model, collator(model.rows)([pairs[0], pairs[1]]))


@pytest.mark.parametrize(
    ("collator", "objective", "message"),
    [
        (PairCollator, SimBertObjective(teacher=len), "give the PairCollator texts=True"),
        (SimCseCollator, ScoredPairObjective(), "add a column `score`"),
        (SimCseCollator, TripletObjective(loss="siamese"), r"add_pair_classifier\(model\)"),
        (ClassCollator, MarginObjective(MarginSoftmax()), r"add_centres\(model, \(C, K, D\)"),
    ],
)
def test_what_an_objective_lacks_is_named(collator, objective, message) -> None:
    texts = ["a cat sat", "reset the password"]
    pairs = FixedPairs({"source": texts, "target": texts[::-1], "label": [0, 1]})
    model = tiny_simbert()
    with pytest.raises(ValueError, match=message):
        objective(model, collator(model.rows)([pairs[0], pairs[1]]))
