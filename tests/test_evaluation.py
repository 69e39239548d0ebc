import json
import math
from pathlib import Path
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from torch import Tensor

from simbert_hf.collators import PairCollator
from simbert_hf.data import PairDataset, load_groups
from simbert_hf.evaluation.evaluators import RetrievalEvaluator, SimBertEvaluator, StsEvaluator
from simbert_hf.objectives import SimBertObjective
from tests.tiny import WORDS, tiny_simbert

GROUPS = """\
{"text": "how can i reset my password?", "synonyms": ["password reset please"]}
{"text": "the weather is nice", "synonyms": ["nice weather today", "what nice weather it is"]}
{"text": "where are you going?", "synonyms": ["tell me where you go"]}
"""


def test_spearman_is_that_of_the_cosines() -> None:
    model = tiny_simbert()
    texts = ["a cat sat", "the dog ran", "a cat ran", "what time is it"]
    cosines = [float(model.encode("a cat sat") @ model.encode(text)) for text in texts]
    ranks = np.argsort(np.argsort(cosines))
    pairs = [("a cat sat", text, float(rank)) for text, rank in zip(texts, ranks, strict=True)]
    for sign in (1, -1):
        found = StsEvaluator([(a, b, sign * s) for a, b, s in pairs])(model)
        assert found["sts_spearman"] == pytest.approx(sign)


def test_spearman_wants_tuples_and_some_of_them() -> None:
    rows = [{"sentence1": "a", "sentence2": "b", "score": 1.0}]
    with pytest.raises(TypeError, match=r"give tuples \(sentence, sentence, score\)"):
        StsEvaluator(rows)
    with pytest.raises(ValueError, match="sts is empty"):
        StsEvaluator([])


@pytest.mark.parametrize("scores", [(1, 1), (1, float("nan")), (1,), (1, float("inf")), ("1", "2")])
def test_scores_that_rank_nothing_are_refused_before_training(scores):
    sts = [("a", "b", score) for score in scores]
    groups = datasets.Dataset.from_dict({"texts": [["a", "b"], ["c", "d"]], "group": [0, 1]})
    for evaluator in (StsEvaluator, lambda sts: RetrievalEvaluator(groups, sts)):
        with pytest.raises(ValueError, match="they rank nothing"):
            evaluator(sts)
    assert StsEvaluator([("a", "b", True), ("a", "c", False)])(tiny_simbert())


def test_spearman_of_a_collapsed_encoder_is_a_number() -> None:
    model = SimpleNamespace(encode=lambda texts, **_: np.ones((len(texts), 2), dtype=np.float32))
    assert StsEvaluator([("a", "b", 0.0), ("b", "c", 1.0)])(model)["sts_spearman"] == 0


def held_out(folder: Path, count: int) -> PairDataset:
    path = folder / "groups.jsonl"
    rows = [
        {"text": f"{word} cat sat on the mat", "synonyms": [f"the {word} dog ran"]}
        for word in WORDS[:count]
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return PairDataset(load_groups(path, cache_dir=folder)[0])


def test_held_out_losses_are_without_corruption_single_sentences_and_teacher(tmp_path) -> None:
    pairs, model = held_out(tmp_path, 10), tiny_simbert()
    more = {"one_way": [("a cat", "the cat")], "preferences": [("a cat", "the cat", "cat cat")]}
    more |= {"sentences": ["a cat"]}
    noisy = PairCollator(model.rows, mlm=True, denoising=True, texts=True, **more)
    plain, trained = (
        SimBertEvaluator(pairs, collator, objective)(model)
        for collator, objective in (
            (PairCollator(model.rows), SimBertObjective()),
            (noisy, SimBertObjective(teacher=len)),
        )
    )
    assert plain == trained


def test_the_perplexity_of_a_diverged_model_is_a_number(tmp_path) -> None:
    pairs, model = held_out(tmp_path, 2), tiny_simbert()
    with torch.no_grad():
        model.cls.predictions.bias[model.rows.pad_id] = 1e4
    figures = SimBertEvaluator(pairs, PairCollator(model.rows), SimBertObjective())(model)
    assert figures["seq2seq"] > 1e3
    assert math.isfinite(figures["perplexity"])


def test_losses_of_held_out_pairs_are_of_batches_of_like_sizes(tmp_path) -> None:
    sizes: list[int] = []

    def collate(pairs: list[dict[str, str]]) -> dict[str, Tensor]:
        sizes.append(len(pairs))
        return collator(pairs)

    model = tiny_simbert()
    collator = PairCollator(model.rows)
    evaluator = SimBertEvaluator(held_out(tmp_path, 9), collator, SimBertObjective(), batch_size=8)
    evaluator.collator = collate
    evaluator(model)
    assert sizes == [5, 4]


def test_evaluator_names_its_figures(tmp_path) -> None:
    path = tmp_path / "groups.jsonl"
    path.write_text(GROUPS)
    model = tiny_simbert()
    evaluator = SimBertEvaluator(
        PairDataset(load_groups(path, cache_dir=tmp_path)[0]),
        PairCollator(model.rows, mlm=True),
        SimBertObjective(seq2seq_weight=0.5, similarity_weight=3.0, mlm_weight=1.0),
        sts=[("a cat", "a dog", 1.0), ("a cat", "a cat sat", 3.0), ("a cat", "english", 0.0)],
        sentences=["how can i learn english?"],
        batch_size=2,
    )
    model.train()
    figures = evaluator(model)
    assert model.training
    assert set(evaluator.names) == set(figures)
    assert figures == evaluator(model)  # dropout is off, and the draws are the same
    assert set(figures) == {
        "loss", "seq2seq", "similarity", "similarity_accuracy", "perplexity",
        "top1", "top5", "top10", "mean_cosine", "effective_rank", "sts_spearman",
    }  # fmt: skip
    weighted = 0.5 * figures["seq2seq"] + 3 * figures["similarity"]
    assert figures["loss"] == pytest.approx(weighted)
    batch = PairCollator(model.rows)([evaluator.pairs[i] for i in range(3)])
    with torch.no_grad():
        whole = SimBertObjective()(model.eval(), batch)
    assert figures["perplexity"] == pytest.approx(whole.seq2seq.exp().item(), rel=1e-4)
    found = evaluator.paraphrases(model, k=2)
    assert list(found) == ["how can i learn english?"]
    assert [len(*evaluator.paraphrases(model, k=k).values()) for k in (1, 2)] == [1, 2]
    assert evaluator.paraphrases(model) == evaluator.paraphrases(model)


def test_a_model_of_few_positions_paraphrases(tmp_path) -> None:
    model = tiny_simbert(max_position_embeddings=16)
    sentences = ["how can i learn english?"]
    collator, pairs = PairCollator(model.rows, max_length=8), held_out(tmp_path, 2)
    evaluator = SimBertEvaluator(pairs, collator, SimBertObjective(), sentences=sentences)
    assert evaluator.paraphrases(model)[sentences[0]]
