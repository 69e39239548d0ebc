"""Hard negatives, mined with a tiny encoder, against a plain search."""

import sys
from functools import partial
from pathlib import Path

import datasets
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from scripts.mine_negatives import main
from simbert_hf.data import DataError, load_groups, load_triplets
from simbert_hf.mining.negatives import MiningSettings, mine_by_words, mine_triplets
from tests.tiny import WORDS, tiny_simbert

NOUNS = ["cat", "dog", "mat", "time", "password"]
# The last row shares a sentence with the first, which makes the two one group.
TEXTS = [[f"{verb} {noun}" for verb in WORDS[8:12]] for noun in NOUNS]
TEXTS.append([TEXTS[0][0], "the weather is nice", "nice weather"])
NUMBERS = [0, 1, 2, 3, 4, 0]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("encoder")
    tiny_simbert().save_pretrained(path)
    return path


@pytest.fixture
def groups() -> datasets.Dataset:
    return datasets.Dataset.from_dict({"texts": TEXTS, "group": NUMBERS})


def plain_search(
    model: SentenceTransformer, margin: float | None = None
) -> dict[str, tuple[list[str], list[str]]]:
    """Positives of each sentence, and others that the margin leaves, the nearest first."""
    group = {text: number for texts, number in zip(TEXTS, NUMBERS, strict=True) for text in texts}
    vectors = dict(zip(group, model.encode([*group], normalize_embeddings=True), strict=True))
    found = {}
    for anchor, own in group.items():
        cosine = {text: float(vectors[anchor] @ vectors[text]) for text in group}
        mates = [text for text in group if group[text] == own and text != anchor]
        least = min(cosine[text] for text in mates)
        limit = np.inf if margin is None else least - abs(least) * margin
        others = [text for text in group if group[text] != own and cosine[text] <= limit]
        found[anchor] = mates, sorted(others, key=lambda text: -cosine[text])
    return found


@pytest.mark.parametrize("margin", [None, 0.05])
@pytest.mark.parametrize("skipped", [0, 2])
def test_negatives_are_the_nearest_of_other_groups_in_range(
    encoder, groups, skipped, margin
) -> None:
    model = SentenceTransformer(str(encoder), device="cpu")
    settings = MiningSettings(2, skipped, 20, relative_margin=margin)
    triplets = mine_triplets(groups, model, settings)
    expected = plain_search(model, margin)
    assert all(row.positive in expected[row.anchor][0] for row in triplets)
    mined: dict[str, list[str]] = {}
    for row in triplets:
        mined.setdefault(row.anchor, []).append(row.negative)
    wanted = {anchor: far[skipped : skipped + 2] for anchor, (_, far) in expected.items()}
    assert mined == {anchor: negatives for anchor, negatives in wanted.items() if negatives}
    assert mine_triplets(groups, model, settings, use_faiss=True) == triplets


def bm25(query: str, text: str, corpus: list[str]) -> float:
    """Lucene's BM25, written out: k1 1.5, b 0.75."""
    mean, total = np.mean([len(each.split()) for each in corpus]), 0.0
    for word in set(query.split()):
        holding = sum(word in each.split() for each in corpus)
        count = text.split().count(word)
        weight = np.log(1 + (len(corpus) - holding + 0.5) / (holding + 0.5))
        total += weight * count / (count + 1.5 * (0.25 + 0.75 * len(text.split()) / mean))
    return total


def test_words_alone_find_the_likest_of_other_groups(groups) -> None:
    triplets = mine_by_words(groups, MiningSettings(num_negatives=2, range_min=1))
    group = {text: number for texts, number in zip(TEXTS, NUMBERS, strict=True) for text in texts}
    assert len(triplets) > 20
    for row in triplets:
        assert group[row.positive] == group[row.anchor] != group[row.negative]
        others = [text for text in group if group[text] != group[row.anchor]]
        scores = [bm25(row.anchor, text, [*group]) for text in others]
        own = bm25(row.anchor, row.negative, [*group])
        assert sorted(scores)[-3] - 1e-6 <= own <= sorted(scores)[-2] + 1e-6
        assert own > 0


def test_of_a_deeper_range_the_nearest_are_taken(groups) -> None:
    alone = mine_by_words(groups, MiningSettings(num_negatives=2, range_min=1))
    for most in (3, 9):
        deeper = mine_by_words(groups, MiningSettings(2, 1, most))
        assert [(row.anchor, row.negative) for row in deeper] == [
            (row.anchor, row.negative) for row in alone
        ]


def test_no_more_are_looked_at_than_asked(encoder, groups) -> None:
    """Those that the margin excludes count."""
    model = SentenceTransformer(str(encoder), device="cpu")
    few, many = (
        {row.anchor for row in mine_triplets(groups, model, MiningSettings(1, 0, most, 0.05))}
        for most in (10, 20)
    )
    assert few < many


def test_a_seed_draws_the_positives(encoder, groups) -> None:
    model = SentenceTransformer(str(encoder), device="cpu")
    for mine in (mine_by_words, partial(mine_triplets, model=model)):
        one, again, other = (mine(groups, seed=seed) for seed in (5, 5, 6))
        assert one == again
        assert one != other
        assert [row._replace(positive="") for row in one] == [
            row._replace(positive="") for row in other
        ]


def test_of_chinese_the_characters_are_compared(caplog: pytest.LogCaptureFixture) -> None:
    texts = [["怎么重置密码", "密码忘了"], ["今天天气很好", "天气不错"], ["重置手机", "手机坏了"]]
    groups = datasets.Dataset.from_dict({"texts": texts, "group": [0, 1, 2]})
    mined = {row.anchor: row.negative for row in mine_by_words(groups)}
    assert mined["怎么重置密码"] == "重置手机"
    assert mined["密码忘了"] == "手机坏了"
    assert "今天天气很好" not in mined  # no character in common with any stranger
    assert "2 of 6 sentences have no negative in range" in caplog.text


def test_of_large_groups_some_members_are_drawn(encoder, groups) -> None:
    model = SentenceTransformer(str(encoder), device="cpu")
    triplets = mine_triplets(groups, model, MiningSettings(max_per_group=2))
    assert len(triplets) == 10  # five groups of two
    assert len({row.anchor for row in triplets}) == 10


def test_other_spellings_of_a_sentence_are_no_positives(encoder, tmp_path) -> None:
    (path := tmp_path / "g.jsonl").write_text(
        '{"text": "the cat", "synonyms": ["the nice cat"]}\n'
        '{"text": "The  CAT", "synonyms": ["a dog ran"]}\n'
        '{"text": "learn english", "synonyms": ["english"]}\n'
    )
    model, groups = SentenceTransformer(str(encoder), device="cpu"), load_groups([path])[0]
    again = datasets.Dataset.from_dict(  # not as load_groups would give it
        {
            "texts": [["the cat", "The  CAT"], ["THE CAT", "a dog ran"], ["a", "b"]],
            "group": [0, 0, 1],
        }
    )
    for each in (groups, again):
        found = mine_triplets(each, model, MiningSettings())
        assert found
        pairs = [(one.anchor.lower().split(), one.positive.lower().split()) for one in found]
        assert not [anchor for anchor, positive in pairs if anchor == positive]


def test_the_likest_by_words_are_skipped_and_single_sentences_are_not_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    texts = [["a b c d", "e"], ["a b c x"], ["a b y y"], ["a z z z z"]]
    groups = datasets.Dataset.from_dict({"texts": texts, "group": [0, 1, 2, 3]})
    found = mine_by_words(groups, MiningSettings(num_negatives=2, range_min=1))
    assert [row.negative for row in found if row.anchor == "a b c d"] == ["a b y y", "a z z z z"]
    assert "1 of 2 sentences have no negative in range" in caplog.text  # e


def test_batches_of_the_miner_are_as_told(encoder, groups, monkeypatch) -> None:
    told = {}

    def mined(*_: object, **options: object) -> list:
        told.update(options)
        return []

    monkeypatch.setattr("simbert_hf.mining.negatives.mine_hard_negatives", mined)
    settings = MiningSettings(2, 1, 9, 0.1, 0.2)
    with pytest.raises(DataError, match="No hard negative"):
        mine_triplets(
            groups, SentenceTransformer(str(encoder), device="cpu"), settings, batch_size=7
        )
    wanted = {
        "num_negatives": 2, "range_min": 1, "range_max": 9, "relative_margin": 0.1,
        "absolute_margin": 0.2, "batch_size": 7, "use_faiss": False,
    }  # fmt: skip
    assert wanted.items() <= told.items()


def test_the_script_writes_what_the_reader_reads(encoder, tmp_path, capsys) -> None:
    data, out = tmp_path / "groups.tsv", tmp_path / "mined.csv"
    rows = zip(NUMBERS, TEXTS, strict=True)
    data.write_text("".join(f"{n}\t{text}\n" for n, texts in rows for text in texts))
    flags = [f"--model_name_or_path={encoder}", "--train_file", str(data), "--range_min=1"]
    main([*flags, f"--output_file={out}"])
    model = SentenceTransformer(str(encoder), device="cpu")
    groups, _ = load_groups(data)
    assert load_triplets(out) == mine_triplets(groups, model, MiningSettings(range_min=1))
    assert "22 triplets" in capsys.readouterr().out
    main(["--bm25", *flags[1:], f"--output_file={out}"])
    assert load_triplets(out) == mine_by_words(groups, MiningSettings(range_min=1))
    for idle in ("--use_faiss", "--batch_size=7", "--range_max=9"):
        with pytest.raises(SystemExit):
            main(["--bm25", *flags[1:], f"--output_file={out}", idle])
        assert f"{idle.split('=')[0]} needs a model; --bm25 has none" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"mined\.tsv: name a \.csv file"):
        main([*flags, "--output_file=mined.tsv"])


def test_the_script_is_told_what_rows_hold(tmp_path) -> None:
    """Two columns, each with numbers that come twice: pairs or groups."""
    data, out = tmp_path / "rows.tsv", tmp_path / "mined.csv"
    data.write_text("a b\tc a\nb c\ta b\nb d\tc d\na d\td c\n")
    flags = ["--bm25", "--train_file", str(data), f"--output_file={out}"]
    main([*flags, "--data_format=pairs"])
    groups, _ = load_groups(data, data_format="pairs")
    assert load_triplets(out) == mine_by_words(groups)
    table = tmp_path / "rows.csv"
    table.write_text("id,left,right\n" + "".join(f"{i},cat {i},dog {i} cat\n" for i in range(4)))
    flags = ["--bm25", "--train_file", str(table), f"--output_file={out}"]
    main([*flags, "--text_columns", "left", "right"])
    groups, _ = load_groups(table, text_columns=("left", "right"))
    assert load_triplets(out) == mine_by_words(groups)


def test_every_flag_of_the_script_is_passed_on(tmp_path, monkeypatch) -> None:
    data, told = tmp_path / "rows.csv", []
    data.write_text("left,right\na b,c a\nb c,a b\n")
    for name in ("mine_triplets", "mine_by_words"):
        monkeypatch.setattr(
            f"scripts.mine_negatives.{name}", lambda *_, **given: told.append((_[1], given)) or []
        )
    monkeypatch.setattr("scripts.mine_negatives.load_sentence_transformer", lambda name: name)
    read = load_groups
    monkeypatch.setattr(
        "scripts.mine_negatives.load_groups",
        lambda *_, **given: told.append(given) or read(*_, **given),
    )
    flags = ["--train_file", str(data), f"--output_file={tmp_path / 'out.csv'}", "--seed=5"]
    flags += ["--num_negatives=3", "--data_format=pairs", "--text_columns", "left", "right"]
    main([*flags, "--model_name_or_path=x", "--batch_size=9", "--use_faiss"])
    main([*flags, "--bm25"])
    rows = {"data_format": "pairs", "text_columns": ["left", "right"]}
    model = {"seed": 5, "batch_size": 9, "use_faiss": True}
    assert told[::2] == [rows, rows]
    assert told[1::2] == [("x", model), (MiningSettings(3), {"seed": 5})]
    with pytest.raises(ValueError, match="is an input"):
        main(["--bm25", "--train_file", str(data), f"--output_file={data}"])


def test_nothing_to_find_is_an_error(encoder, groups, monkeypatch: pytest.MonkeyPatch) -> None:
    model = SentenceTransformer(str(encoder), device="cpu")
    with pytest.raises(DataError, match="lower range_min or the margin"):
        mine_triplets(groups, model, MiningSettings(absolute_margin=2.0))
    with pytest.raises(DataError, match="All sentences are in one group"):
        mine_triplets(groups.select([0, 5]), model)
    with pytest.raises(ValueError, match="BM25 has no cosines"):
        mine_by_words(groups, MiningSettings(absolute_margin=0.1))
    for module in ("bm25s", "faiss"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        ImportError, match=r"bm25s is not installed: pip install '\.\[index\]' in a"
    ):
        mine_by_words(groups)
    with pytest.raises(ImportError, match="faiss is not installed"):
        mine_triplets(groups, model, use_faiss=True)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_negatives": 0}, "num_negatives 0 must be at least 1"),
        ({"range_min": -1}, "range_min -1"),
        ({"max_per_group": 1}, "max_per_group 1"),
        (
            {"range_min": 5, "range_max": 5},
            "range_max 5 is too small for num_negatives 1 beyond the first 5",
        ),
    ],
)
def test_settings_out_of_range_are_refused(values, message) -> None:
    with pytest.raises(ValueError, match=message):
        MiningSettings(**values)
