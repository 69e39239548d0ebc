import math
from collections import Counter

import pytest
import torch

from simbert_hf.judging.metrics import (
    bleu,
    chrf,
    copy_rate,
    distinct_n,
    reference_perplexity,
    repeat_rate,
    self_bleu,
    signature,
    tokenizer_for,
    tokens_of,
)
from tests.tiny import tiny_simbert, unigram_tokenizer

ROWS = [
    ["how can i go there now ?", "how can i get there now ?", "where is the way to go there ?"],
    ["it is late", "it is so late", "late it is it is"],
    ["alone in a row"],
    [],
]


def counts(tokens: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def naive_bleu(pairs: list[tuple[list[str], list[list[str]]]], effective: bool) -> float:
    """BLEU of (tokens, references' tokens) pairs together, smoothed as mteval does."""
    length = sum(len(tokens) for tokens, _ in pairs)
    nearest = sum(
        min((abs(len(r) - len(tokens)), len(r)) for r in references)[1]
        for tokens, references in pairs
    )
    logs, halvings = [], 0
    for n in (1, 2, 3, 4):
        correct = total = 0
        for tokens, references in pairs:
            for gram, count in counts(tokens, n).items():
                correct += min(count, max(counts(r, n)[gram] for r in references))
                total += count
        if total == 0:
            if not effective:
                return 0.0
            break
        if correct == 0:
            if n == 1:
                return 0.0
            halvings += 1
        logs.append(math.log(correct / total if correct else 1 / (2**halvings * total)))
    brevity = min(1.0, math.exp(1 - nearest / length))
    return 100 * brevity * math.exp(sum(logs) / len(logs))


def test_self_bleu_equals_slow_loops() -> None:
    means = []
    for row in ROWS[:2]:
        split = [text.split() for text in row]
        others = [split[:i] + split[i + 1 :] for i in range(len(split))]
        each = [naive_bleu([pair], effective=True) for pair in zip(split, others, strict=True)]
        means.append(sum(each) / len(each))
    assert self_bleu(ROWS) == pytest.approx(sum(means) / 2)
    assert 0 < self_bleu(ROWS) < 100


def test_self_bleu_of_equal_and_of_unlike_candidates() -> None:
    assert self_bleu([["A b c d e", "a B c d e", "a b c d E"]]) == pytest.approx(100)
    assert self_bleu([["a b c d", "e f g h"]]) == 0
    assert self_bleu(ROWS[2:]) is None


@pytest.mark.parametrize("n", [1, 2, 3])
def test_distinct_equals_slow_loops(n: int) -> None:
    texts = [text for row in ROWS for text in row]
    seen: list[list[str]] = []
    total = 0
    for text in texts:
        words = text.split()
        total += len(words)
        for i in range(len(words)):
            if i + n <= len(words) and words[i : i + n] not in seen:
                seen.append(words[i : i + n])
    assert distinct_n(texts, n) == pytest.approx(len(seen) / total)


def test_bleu_with_as_many_references_as_there_are() -> None:
    hypotheses = ["How can i go there ?", "it is late", "who knows that at all"]
    references = [ROWS[0], ROWS[1][1:], ["who knew that at all ?"]]
    split = [
        (h.lower().split(), [r.split() for r in row])
        for h, row in zip(hypotheses, references, strict=True)
    ]
    assert bleu(hypotheses, references) == pytest.approx(naive_bleu(split, effective=False))
    without_second = [row[:1] for row in references]
    assert bleu(hypotheses, without_second) < bleu(hypotheses, references)


def test_signature_counts_the_references() -> None:
    for references, start in (
        ([["a"], ["b"]], "nrefs:1|"),
        ([["a", "b"], ["c", "d"]], "nrefs:2|"),
        ([["a", "b"], ["c"]], "nrefs:var|"),
    ):
        assert signature(references, "13a").startswith(f"{start}case:lc|eff:no|tok:13a|")


def test_missing_hypotheses_lower_every_score() -> None:
    references = [["it is late"], ["where are you going"]]
    both, one = ["it is late", "where are you going"], ["", "where are you going"]
    assert bleu(both, references) == pytest.approx(100)
    assert chrf(both, references) == pytest.approx(100)
    assert 0 < bleu(one, references) < 70
    assert 0 < chrf(one, references) < 90


def test_chinese_characters_are_tokens() -> None:
    assert tokenizer_for(["什么时候了"]) == "zh"
    assert tokens_of("我用Python 3.5。", "zh") == ["我", "用", "python", "3.5", "。"]
    assert distinct_n(["天天好"], 1, "zh") == pytest.approx(2 / 3)
    pair = (list("今天天气很好"), [list("今天的天气很好")])
    assert bleu(["今天天气很好"], [["今天的天气很好"]], "zh") == pytest.approx(
        naive_bleu([pair], effective=False)
    )
    assert bleu(["现在很晚了?"], [["现在很晚了？"]], "zh") == pytest.approx(100)
    assert self_bleu([["今天天气很好", "今天的天气很好"]], "zh") > 30
    assert self_bleu([["今天天气很好", "今天的天气很好"]]) == 0  # each is one token


def test_copies_are_known_in_any_dress() -> None:
    rows = [["Where is IT", "where is it ?", "where it is?"], ["你好！", "您好"]]
    assert copy_rate(["where is it?", "你好"], rows) == pytest.approx(3 / 5)


def test_repeats_are_what_the_source_repeats_less() -> None:
    source = "the card, that card, is very very new"
    often = ["card card card", "very very very", "is is", "5 5", "the the.", "The the"]
    assert [repeat_rate([source], [[text]]) for text in often] == [1] * 6
    fine = [
        "the card and card",
        "very very",
        "bye-bye",
        "10:10",
        "u.s.s.r.",
        "2024, 2024",
        "is isle",
    ]
    assert [repeat_rate([source], [[text]]) for text in fine] == [0] * 7
    assert repeat_rate(["去吧", "a"], [["慢慢去吧", "去吧去吧"], ["the one or the other"]]) == 1 / 3


def test_one_text_is_no_list_of_texts() -> None:
    for measure in (copy_rate, repeat_rate, bleu, chrf):
        with pytest.raises(TypeError, match="'where is it' is one text: pass a list of texts for"):
            measure(["where is it"], ["where is it"])
    with pytest.raises(TypeError, match="'where is it' is one text"):
        self_bleu(["where is it"])


def test_nothing_has_no_share() -> None:
    assert repeat_rate(["a"], [[]]) is copy_rate(["a"], [[]]) is distinct_n(["", " "], 1) is None


@pytest.mark.parametrize("tokenizer", [None, unigram_tokenizer()], ids=["wordpiece", "unigram"])
def test_perplexity_is_that_of_each_pair_alone(tokenizer, monkeypatch) -> None:
    model = tiny_simbert(tokenizer=tokenizer).train()
    sources = ["how can i learn english fast", "what time is it?"]
    references = [["please tell me how to learn english", "go learn"], ["tell me the time please"]]
    nats = []
    for source, row in zip(sources, references, strict=True):
        for reference in row:
            a, b = model.rows.sources([source], 32)[0], model.rows.targets([reference], 32)[0]
            batch = model.rows.pad([a], [b])
            model.eval()
            with torch.no_grad():
                logits = model(**batch, logits_to_keep=len(a) + len(b)).logits[0]
            model.train()
            spread = logits.log_softmax(dim=-1)
            nats += [-spread[len(a) - 1 + i, token].item() for i, token in enumerate(b)]
    expected = math.exp(sum(nats) / len(nats))
    for batch_size in (1, 2, 64):
        monkeypatch.setattr("simbert_hf.generation.scoring.BATCH_SIZE", batch_size)
        found = reference_perplexity(model, sources, references)
        assert found == pytest.approx(expected, rel=1e-4)
    assert model.training


def test_perplexity_cuts_sources_and_references_to_half_of_the_positions_each() -> None:
    model = tiny_simbert()
    half = model.config.max_position_embeddings // 2
    source, reference = ["cat"] * (half - 2), ["dog"] * (half - 1)  # besides [CLS] and [SEP]
    wanted = reference_perplexity(model, [" ".join(source)], [[" ".join(reference)]])
    texts = [" ".join([*source, "the", "mat"])], [[" ".join([*reference, "the", "mat"])]]
    with pytest.warns(UserWarning, match=f"Texts of more than {half} tokens were cut"):
        assert reference_perplexity(model, *texts) == pytest.approx(wanted)
