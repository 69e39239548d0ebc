import math
import random
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
import torch

from simbert_hf.collators import PairCollator, SimCseCollator, cut_at_punctuation
from simbert_hf.data.batching import Collator
from simbert_hf.data.near_words import nearest_words
from simbert_hf.data.noising import Augmentation, Corruption
from simbert_hf.gru import char_tokenizer
from simbert_hf.margin.classes import ClassCollator
from simbert_hf.rows import RowBuilder, TemplateRows
from simbert_hf.triplet.members import MemberCollator
from tests.tiny import unigram_tokenizer, wordpiece_tokenizer

PAIR = {"source": "dogs going to the mat", "target": "a cat sat", "group": 0, "seed": 11}


@pytest.mark.parametrize(
    ("text", "limit", "cut"),
    [
        ("short enough", 30, "short enough"),
        ("One. Two. Three is long.", 10, "One. Two."),
        ("first line is here\nsecond", 20, "first line is here"),
        ("no stop, but a comma and more", 12, "no stop,"),
        ("it is 1,234,567 in all, or more", 10, "it is"),
        ("共1,234,567元，很贵", 8, "共1,234,567元，"),
        ("words with no mark at all here", 12, "words with"),
        ("你好吗？我很好，谢谢你的关心。", 8, "你好吗？"),
        ("。。。你好吗？我很好。", 8, "。。。你好吗？"),
        ("... unbreakableword", 10, "... unbreakableword"),
        ("unbreakablewordwithoutanyblank", 10, "unbreakablewordwithoutanyblank"),
        ("A very long first sentence, with a comma. Second.", 30, "A very long first sentence,"),
    ],
)
def test_cut_at_punctuation(text: str, limit: int, cut: str) -> None:
    assert cut_at_punctuation(text, limit) == cut


def test_corruption_takes_whole_words_at_the_named_rates() -> None:
    corruption = Corruption(mask_id=4, vocab_size=40, special_ids=frozenset(range(5)))
    ids, words = list(range(10, 30)), [i // 2 for i in range(20)]  # ten words of two tokens
    fates: Counter[str] = Counter()
    for seed in range(4000):
        corrupted, positions = corruption(ids, words, random.Random(seed))
        chosen = {words[i] for i in positions}
        assert positions == [i for i in range(20) if words[i] in chosen]
        fates["words"] += len(chosen)
        for i in range(20):
            if i not in positions:
                assert corrupted[i] == ids[i]
        for i in positions:
            assert corrupted[i] == 4 or corrupted[i] >= 5
            kind = "mask" if corrupted[i] == 4 else "kept" if corrupted[i] == ids[i] else "random"
            fates[kind] += 1
    total = fates["mask"] + fates["kept"] + fates["random"]
    assert fates["words"] / 40000 == pytest.approx(0.15, abs=0.01)
    assert fates["mask"] / total == pytest.approx(0.8, abs=0.02)
    assert fates["random"] / total == pytest.approx(0.1 * 34 / 35, abs=0.015)


def test_sentencepiece_masks_chinese_words_one_by_one() -> None:
    rows = RowBuilder(unigram_tokenizer("怎么", "重", "置"))
    sources, words = rows.sources_and_words(["怎么重置go", "how are you?"], 64)
    assert rows.tokenizer.convert_ids_to_tokens(sources[0]) == [
        *("<s>", "▁", "怎么", "重", "置", "g", "o", "</s>")
    ]
    assert words == [[None, 0, 0, 1, 2, 3, 3, None], [None, 0, 1, 2, 2, None]]


def test_special_tokens_stay_and_targets_stay_clean() -> None:
    tokenizer = wordpiece_tokenizer()
    rows = RowBuilder(tokenizer)
    clean = PairCollator(rows)([PAIR])
    touched = 0
    for seed in range(60):
        batch = PairCollator(rows, mlm=True)([PAIR | {"seed": seed}])
        changed = batch["input_ids"] != clean["input_ids"]
        assert not changed[batch["token_type_ids"] == 1].any()
        special = (clean["input_ids"] == tokenizer.cls_token_id) | (
            clean["input_ids"] == tokenizer.sep_token_id
        )
        assert not changed[special].any()
        flat = changed.flatten().nonzero()[:, 0].tolist()
        assert set(flat) <= set(batch["mlm_positions"].tolist())
        labels = clean["input_ids"].flatten()[batch["mlm_positions"]]
        assert labels.tolist() == batch["mlm_labels"].tolist()
        touched += len(flat)
    assert touched > 20


def test_denoising_touches_half_of_the_sources_and_has_no_labels() -> None:
    rows = RowBuilder(wordpiece_tokenizer())
    clean = PairCollator(rows)([PAIR])["input_ids"]
    n_touched = 0
    for seed in range(400):
        batch = PairCollator(rows, denoising=True)([PAIR | {"seed": seed}])
        assert "mlm_labels" not in batch
        n_touched += int((batch["input_ids"] != clean).any(1).sum())
    # 5 and 3 words at 15 %, 90 % of chosen tokens changed, on half of the 800 rows
    assert 0.15 < n_touched / 800 < 0.33


def test_the_two_rows_of_a_pair_are_corrupted_apart() -> None:
    rows = RowBuilder(wordpiece_tokenizer())
    collator, same = PairCollator(rows, mlm=True), PAIR | {"target": PAIR["source"]}
    width = len(rows.sources([PAIR["source"]], 64)[0])
    sources = [
        collator([same | {"seed": seed}])["input_ids"][:, :width].tolist() for seed in range(40)
    ]
    assert sum(first != second for first, second in sources) > 10


@pytest.mark.filterwarnings("ignore:Texts of more than")
def test_the_sep_of_a_cut_source_is_never_masked() -> None:
    rows = RowBuilder(wordpiece_tokenizer())
    collator = PairCollator(rows, max_length=5, mlm=True)
    for seed in range(200):
        batch = collator([PAIR | {"seed": seed}])
        assert (batch["input_ids"][:, 4] == rows.sep_id).all()
        assert rows.sep_id not in batch["mlm_labels"].tolist()


def test_the_same_seed_corrupts_alike() -> None:
    collator = PairCollator(RowBuilder(wordpiece_tokenizer()), mlm=True)
    batches = [collator([PAIR | {"seed": seed}])["input_ids"].tolist() for seed in (5, 5, 6, 7, 8)]
    assert batches[0] == batches[1]
    assert len({str(batch) for batch in batches}) > 1


OVER_LONG = "a cat sat? the dog ran on the mat"


def test_max_chars_cuts_before_tokens() -> None:
    rows = RowBuilder(wordpiece_tokenizer())
    batch = PairCollator(rows, max_chars=10)([PAIR | {"source": OVER_LONG}])
    assert batch["input_ids"].shape[1] == 2 + 4 + 4  # "a cat sat ?" and "a cat sat" + [SEP]
    joint = PairCollator(rows, max_chars=10, sentences=[OVER_LONG], texts=True)
    assert (
        joint([PAIR | dict.fromkeys(("source", "target"), OVER_LONG)])["texts"]
        == ["a cat sat?"] * 4
    )


@pytest.mark.parametrize(
    "build", [SimCseCollator, partial(SimCseCollator, mlm=True), ClassCollator, MemberCollator]
)
def test_max_chars_cuts_whatever_a_collator_reads(build: Callable[..., Collator]) -> None:
    sides = dict.fromkeys(("source", "target", "negative"), OVER_LONG)
    example = PAIR | sides | {"label": 0, "texts": [OVER_LONG] * 2}
    collator = build(RowBuilder(wordpiece_tokenizer()), max_chars=10)
    assert collator([example])["input_ids"].shape[1] == 2 + 4  # "a cat sat ?"
    assert collator.lengths([example]).tolist() == [6]


def test_max_chars_cuts_what_the_seeds_of_pairs_draw() -> None:
    rows, text = RowBuilder(wordpiece_tokenizer()), OVER_LONG
    drawn = {"sentences": [text], "one_way": [(text, text)], "preferences": [(text, text, text)]}
    collator = PairCollator(rows, max_chars=10, **drawn)
    example = PAIR | {"source": text, "target": text}
    assert collator.lengths([example]).tolist() == [2 + 4 + 4 + 1]
    batch = collator([example])
    cut = [
        [*rows.sources([text[:10]], 9)[0], *end] for end in (rows.targets([text[:10]], 9)[0], [])
    ]
    assert batch["one_way_rows"].tolist() == [4, 5]
    lengths = batch["attention_mask"].sum(dim=1).tolist()
    found = [row[:n] for row, n in zip(batch["input_ids"].tolist(), lengths, strict=True)]
    assert found == [cut[i] for i in (0, 0, 1, 1, 0, 0, 0, 0)]


def test_mlm_without_a_mask_token_is_refused() -> None:
    tokenizer = wordpiece_tokenizer()
    tokenizer.mask_token = None
    with pytest.raises(ValueError, match="need a tokenizer with a mask token"):
        PairCollator(RowBuilder(tokenizer), mlm=True)


@pytest.mark.parametrize(
    "text", ["one two three four five six seven eight nine ten", "一二三四五六七八九十"]
)
def test_augmentations_lose_their_share_of_words(text: str) -> None:
    words = text.split() if " " in text else list(text)
    joined = " " if " " in text else ""
    kept, starts = [], set()
    for seed in range(200):
        cropped = Augmentation("crop", 0.3)(text, random.Random(seed))
        assert cropped in text
        assert len(cropped.split() if joined else cropped) == 7
        starts.add(cropped)
        deleted = Augmentation("delete", 0.3)(text, random.Random(seed))
        left = deleted.split() if joined else list(deleted)
        assert left == [word for word in words if word in left]
        kept.append(len(left))
    assert len(starts) == 4
    assert sum(kept) / 2000 == pytest.approx(0.7, abs=0.03)
    for kind in ("crop", "delete"):
        assert Augmentation(kind, 0.99)("hello", random.Random(0)) == "hello"


@pytest.mark.parametrize(("kind", "rate"), [("shuffle", 0.1), ("crop", 1.0), ("delete", -0.1)])
def test_bad_augmentations_are_refused(kind: str, rate: float) -> None:
    with pytest.raises(ValueError, match="choose one of crop, delete, replace, and a rate"):
        Augmentation(kind, rate)


def test_replacing_keeps_marks_capitals_and_words_without_synonyms() -> None:
    synonyms = {"weather": ["climate"], "nice": ["pleasant", "NYC"]}
    replace = Augmentation("replace", 0.999999, synonyms)
    found = {replace("Weather, (nice) weather!  Nice?", random.Random(seed)) for seed in range(20)}
    nice = ("pleasant", "Pleasant"), ("NYC", "NYC")  # no other letter changes
    assert found == {f"Climate, ({a[0]}) climate!  {b[1]}?" for a in nice for b in nice}
    half = Augmentation("replace", 0.5, synonyms)
    texts = [half("weather " * 10, random.Random(seed)) for seed in range(200)]
    assert sum(text.count("climate") for text in texts) / 2000 == pytest.approx(0.5, abs=0.04)


def test_nearest_words_are_whole_words_above_the_bound() -> None:
    tokenizer = wordpiece_tokenizer()
    vocabulary = tokenizer.get_vocab()
    random = torch.Generator().manual_seed(0)
    table = torch.randn(len(tokenizer), 640, generator=random)  # nearly orthogonal
    for word, cosine in (("weather", 0.7), ("time", 0.5)):
        other = math.sqrt(1 - cosine**2) * torch.randn(640, generator=random)
        table[vocabulary[word]] = cosine * table[vocabulary["english"]] + other
    table[vocabulary["##ing"]] = table[vocabulary["english"]]
    table[vocabulary["cat"]] = table[vocabulary["english"]]  # a short one
    found = nearest_words(table, tokenizer)
    assert found == {"weather": ["english"], "english": ["weather"]}


def test_a_vocabulary_without_words_has_no_near_ones() -> None:
    tokenizer = char_tokenizer(["今天天气很好"], min_count=1)
    assert nearest_words(torch.randn(len(tokenizer), 4), tokenizer) == {}


@pytest.mark.parametrize(
    ("count", "couples"), [(0, []), (1, [(0, 0)]), (4, [(0, 1), (2, 3)]), (5, [(0, 1), (2, 3)])]
)
def test_unpaired_sentences_stay_with_their_neighbours(
    count: int, couples: list[tuple[int, int]]
) -> None:
    """A last one without a neighbour is left out."""
    sentences = ["a cat", "cats sat", "go", "going", "climate"][:count]
    rows = RowBuilder(wordpiece_tokenizer())
    collator = PairCollator(rows, texts=True, sentences=sentences, twice=False)
    batch = collator([PAIR | {"seed": seed} for seed in range(12)])
    assert "sentence_groups" not in batch  # they have no loss of their own
    texts = batch["texts"][24:]
    found = zip(texts[0::2], texts[1::2], strict=True)
    assert set(found) == {(sentences[a], sentences[b]) for a, b in couples}


def test_only_the_second_view_is_augmented() -> None:
    text = "a cat sat on the mat and the dog ran"
    rows = RowBuilder(wordpiece_tokenizer())
    collator = SimCseCollator(rows, augmentation=Augmentation("crop", 0.5))
    batch = collator([{"source": text, "target": text, "group": 0, "seed": 3}])
    assert batch["attention_mask"].sum(1).tolist() == [12, 7]
    assert rows.sources([text], 32)[0] == batch["input_ids"][0].tolist()
    pairs = [{"source": text, "target": text, "group": 0, "seed": seed} for seed in range(9)]
    views = collator(pairs)["input_ids"][1::2].tolist()
    assert len(set(map(str, views))) > 1  # cut by their seeds


LONG, SHORT, CHINESE = "a cat sat on the mat and a dog ran", "go", "一只猫"


@pytest.mark.parametrize("max_length", [6, 32])
@pytest.mark.parametrize("kind", [RowBuilder, TemplateRows])
@pytest.mark.filterwarnings("ignore:Texts of more than")
def test_lengths_are_those_of_the_rows(kind: type, max_length: int) -> None:
    """Of every collator, whatever its tokenizer was told before."""
    rows = kind(wordpiece_tokenizer())
    rows.tokenizer.backend_tokenizer.enable_truncation(3)
    rows.tokenizer.backend_tokenizer.enable_padding(length=50)
    sides = [(LONG, SHORT, CHINESE), (SHORT, CHINESE, LONG), (CHINESE, SHORT, SHORT)]
    pairs = [
        {"source": a, "target": b, "group": i, "seed": i, "label": i}
        for i, (a, b, _) in enumerate(sides)
    ]
    triplets = [pair | {"negative": c} for pair, (_, _, c) in zip(pairs, sides, strict=True)]
    parts = [{"texts": list(texts[:2]), "group": 0} for texts in sides]
    cases = [(SimCseCollator, triplets), (ClassCollator, pairs), (MemberCollator, parts)]
    if kind is RowBuilder:
        more = [{}, {"sentences": [LONG, SHORT]}, {"preferences": [(SHORT, CHINESE, LONG)] * 2}]
        more += [{"one_way": [(SHORT, LONG), (LONG, CHINESE), (CHINESE, SHORT)]}]
        cases += [(partial(PairCollator, **options), pairs) for options in more]
    for collator_class, examples in cases:
        collator = collator_class(rows, max_length=max_length)
        found = collator.lengths(examples).tolist()
        alone = [collator([one])["attention_mask"].sum(dim=1).max().item() for one in examples]
        assert found == alone
