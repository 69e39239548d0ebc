"""Files -> rows -> records: every supported form, and every fault named with line and remedy."""

from __future__ import annotations

import gzip
import json
import lzma
import math
import os

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from simbert_hf.data import load_groups
from simbert_hf.data.readers import ReadOptions, describe_file, read_rows
from simbert_hf.data.records import NEGATIVE, ONE_MEMBER, USABLE, read_records
from simbert_hf.data.scored import load_labelled_pairs, load_scored_pairs
from simbert_hf.data.triplets import load_triplets
from simbert_hf.utils.text import fold
from simbert_hf.utils.textfiles import DataError, load_sentences, read_lines, suffix_of

PAIRS = [["Is it late?", "Is it late already?"], ["Where's she?", "Where is she?"]]


@pytest.fixture
def write(tmp_path):
    """Write text or bytes to a file and return its path."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def records(path, **options):
    options = ReadOptions(**options)
    return list(read_records(path, read_rows(path, options), options))


def texts(path, **options):
    return [record["texts"] for record in records(path, **options) if record["fate"] == USABLE]


def message(call, *args, **kwargs):
    """Return the message of the DataError that a call raises."""
    with pytest.raises(DataError) as error:
        call(*args, **kwargs)
    return str(error.value)


def jsonl(*rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


# Forms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", jsonl(*({"text": a, "synonyms": [b]} for a, b in PAIRS))),
        ("a.json", jsonl(*({"question1": a, "question2": b, "id": 1} for a, b in PAIRS))),
        ("a.csv", "id,sentence1,sentence2\n" + "".join(f'1,"{a}","{b}"\n' for a, b in PAIRS)),
        ("a.csv", "Anchor,Positive\r\n" + "".join(f"{a},{b}\r\n" for a, b in PAIRS)),
        ("a.tsv", "s1\ts2\n" + "".join(f"{a}\t{b}\n" for a, b in PAIRS)),
        ("a.txt", "".join(f"{a}\t{b}\n" for a, b in PAIRS)),
        ("a.txt", "".join(f"{a}\t{b}\t1\n" for a, b in PAIRS)),
        ("a.txt", "".join(f"{a}\t{b}\t1.0\n" for a, b in PAIRS)),  # as pandas writes them
        ("a.tsv", "".join(f"{i}\t{s}\n" for i, pair in enumerate(PAIRS) for s in pair)),
        ("a.tsv", "group\tsentence\n" + "".join(f"g{s[0]}\t{s}\n" for p in PAIRS for s in p)),
    ],
)
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize(
    ("extension", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)]
)
def test_every_form_gives_the_same_groups(write, name, content, mark, extension, pack):
    assert texts(write(name + extension, pack((mark + content).encode()))) == PAIRS


def test_parquet_of_bytes_that_are_no_text_is_told(tmp_path):
    """Not as a UnicodeDecodeError that names neither the file nor the row."""
    texts = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
    )
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"sentence1": texts, "sentence2": ["b"]}), file)
    with pytest.raises(DataError, match=r"a\.parquet: holds text that is not UTF-8, in row 1 or"):
        load_groups(file, cache_dir=tmp_path)


def test_parquet_with_a_column_twice_is_refused(tmp_path):
    """As a CSV file is; the last one would be read without a word."""
    rows = pa.Table.from_arrays([pa.array(["a"])] * 3, ["sentence1", "sentence1", "sentence2"])
    pq.write_table(rows, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: has two columns 'sentence1'\. Rename or dr"):
        load_groups(tmp_path / "a.parquet", cache_dir=tmp_path)


def test_parquet_holds_pairs_or_synonyms(tmp_path):
    first, second = zip(*PAIRS, strict=True)
    pq.write_table(pa.table({"text_a": first, "text_b": second}), tmp_path / "pairs.parquet")
    synonyms = pa.table({"text": first, "synonyms": [[s] for s in second]})
    pq.write_table(synonyms, tmp_path / "synonyms.parquet")
    assert texts(tmp_path / "pairs.parquet") == PAIRS
    assert texts(tmp_path / "synonyms.parquet") == PAIRS


def test_named_columns_are_read(write):
    path = write("a.csv", "title,query\nB,A\n")
    assert texts(path, text_columns=("query", "title")) == [["A", "B"]]
    path = write("a.tsv", "intent\tutterance\nlate\tA\nlate\tB\n")
    assert texts(path, text_columns=("intent", "utterance"), data_format="groups") == [["A", "B"]]


def test_first_sentences_may_repeat_here_and_there(write):
    path = write("a.tsv", "A\tB\nC\tD\nC\tE\nA\tF\nG\tH\n")
    assert texts(path) == [["A", "B"], ["C", "D"], ["C", "E"], ["A", "F"], ["G", "H"]]


def test_groups_below_an_unknown_header_are_read_as_the_fault_says(write):
    path = write("a.tsv", "id\ttext\n0\tA\n0\tB\n1\tC\n1\tD\n")
    found = texts(path, text_columns=("id", "text"), data_format="groups")
    assert found == [["A", "B"], ["C", "D"]]


def test_a_first_column_that_repeats_is_read_as_told(write):
    path, columns = write("a.csv", f"意图,文本\n{INTENTS}"), ("意图", "文本")
    assert len(texts(path, text_columns=columns, data_format="groups")) == 10
    assert len(texts(path, text_columns=columns, data_format="pairs")) == 20
    assert len(texts(write("b.csv", f"标准问,相似问\n{INTENTS}"))) == 20


def test_groups_need_not_stand_together_unless_streamed(write):
    path = write("a.tsv", "1\tA\n2\tC\n1\tB\n2\tD\n2\tE\n")
    assert texts(path) == [["A", "B"], ["C", "D", "E"]]
    with pytest.raises(
        DataError, match=r"a\.tsv:3: group '1' has earlier rows elsewhere. Sort the file"
    ):
        texts(path, consecutive=True)


def test_rows_labelled_zero_are_no_pairs(write):
    path = write("a.csv", "sentence1,sentence2,label\nA,B,1\nC,D,0\nE,F,1.0\nG,H,False\n")
    fates = [record["fate"] for record in records(path)]
    assert fates == [USABLE, NEGATIVE, USABLE, NEGATIVE]
    path = write("b.csv", "标准问,相似问,标签\nA,B,1\nC,D,0\n")
    assert texts(path) == texts(path, text_columns=("标准问", "相似问")) == [["A", "B"]]
    assert not load_labelled_pairs(write("c.csv", "s1,s2,标签\nA,B,0\n"))[0].same


def test_a_group_column_says_what_means_the_same_whatever_else_is_there(write):
    path = write("a.csv", "group,sentence,label\n1,A,x\n1,B,y\n")
    assert texts(path) == [["A", "B"]]


def test_what_all_pairs_have_is_no_judgment(write):
    for name in ("idx", "", "Unnamed: 0", "pair_id"):
        numbered = write("c.csv", f"{name},s1,s2\n0,A,B\n1,C,D\n")
        assert texts(numbered) == [["A", "B"], ["C", "D"]]
    streamed = write("d.csv", "s1,s2,votes\nA,B,1\nC,D,0\n")
    assert texts(streamed, consecutive=True) == [["A", "B"], ["C", "D"]]
    assert texts(write("a.csv", "s1,s2,same\nA,B,1\nC,D,1\n")) == [["A", "B"], ["C", "D"]]


def test_a_judgment_beside_named_columns_is_warned_of(write, caplog):
    judged = write("b.csv", "标准问,相似问,同义\nA,B,1\nC,D,0\n")
    assert texts(judged, text_columns=("标准问", "相似问")) == [["A", "B"], ["C", "D"]]
    told = "b.csv:2: the column '同义' has '0', '1', as if not all rows were paraphrases, but all"
    assert told in caplog.text
    assert "Name it label, with 1 for a paraphrase" in caplog.text


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", "\nid,s1,s2,label\n7,A,B,1\n", "pairs of 's1' and 's2', where 'label' is 1; not "
         "read: 'id'"),
        ("a.tsv", "Q1\tQ2\nA\tB\n", "pairs of 'sentence1' and 'sentence2', without a header"),
        ("a.csv", "anchor,positive,negative\nA,B,C\n", "pairs of 'anchor' and 'positive'; not "
         "read: 'negative' (use train_triplet.py --examples triplets)"),
        ("a.jsonl", jsonl({"text": "A", "intent": 1}), "sentences of 'text', grouped by 'intent'"),
        ("a.jsonl", jsonl({"text": "A", "synonyms": ["B"]}), "'text' and its 'synonyms'"),
        ("a.jsonl", "\n", ""),
    ],
)  # fmt: skip
def test_what_is_read_is_told(write, name, content, told):
    assert describe_file(write(name, content), ReadOptions()) == told


def test_what_is_wrong_in_a_record_is_counted(write):
    rows = (
        {"text": " A ", "synonyms": ["B", "", "a", "b ", None, "C" * 9]},
        {"text": "x  Y", "synonyms": ["X y"]},
    )
    first, blank, second = records(write("a.jsonl", jsonl(*rows).replace("\n", "\n\n", 1)))[:3]
    assert first == {"texts": ["A", "B", "C" * 9], "fate": 0, "empty": 2, "repeats": 2} | {
        "over_long": 0
    }
    assert (blank["texts"], blank["empty"]) == ([], 1)
    assert (second["fate"], second["repeats"]) == (ONE_MEMBER, 1)
    path = write("a.jsonl", jsonl(rows[0]))
    assert [records(path, max_chars=n)[0]["over_long"] for n in (8, 9)] == [1, 0]


def test_quotes_are_ordinary_characters_in_tsv_and_quote_in_csv(write):
    assert texts(write("a.tsv", 's1\ts2\n"Hi\tHi", he said\n')) == [['"Hi', 'Hi", he said']]
    path = write("a.csv", 's1,s2\n"He said ""hi"", twice","over\ntwo lines"\nA,B\n')
    assert texts(path) == [['He said "hi", twice', "over\ntwo lines"], ["A", "B"]]


def test_a_line_ends_at_a_line_feed_only(write):
    assert texts(write("a.tsv", "s1\ts2\nA\u2028a\tB\x0bb\n")) == [["A\u2028a", "B\x0bb"]]


# Faults: (name, content, options) -> file, line and remedy ---------------------------------------

INTENTS = "".join(f"意图{i % 10},文本{i}\n" for i in range(20))
BAD = {
    "unknown extension": ("a.doc", "x", {}, "a.doc: ", "Use one of .csv"),
    "empty file": ("a.jsonl", "", {}, "a.jsonl: is empty", "at least one record"),
    "blank file": ("a.jsonl", "\n \n", {}, "a.jsonl: is empty", "at least one record"),
    "empty table": ("a.csv", "", {}, "a.csv: is empty", "at least one row"),
    "header only": ("a.csv", "s1,s2\n", {}, "a.csv: is empty", "at least one record"),
    "unknown columns": ("a.csv", "q,t\nA,B\n", {}, "a.csv:1: the columns ['q', 't']", "text_colum"),
    "unknown keys": ("a.jsonl", '\n{"q": 1}\n', {}, "a.jsonl:2: the columns ['q']", "text_columns"),
    "missing column": ("a.tsv", "q\tt\nA\tB\n", {"text_columns": ("q", "x")},
        "a.tsv:1: the columns ['q', 't'] do not hold 'q' and 'x'", "Rename the columns"),
    "key gone": ("a.jsonl", jsonl({"s1": "A", "s2": "B"}, {"s1": "A"}), {},
        "a.jsonl:2: has no 's2'", "the columns of the first"),
    "score": ("a.csv", "s1,s2,score\nA,B,3\n", {}, "a.csv:1: has a column 'score'", "true para"),
    "label": ("a.csv", "s1,s2,label\nA,B,2\n", {}, "a.csv:2: the label '2'", "Write 1 for"),
    "judged in a column of another name": ("a.csv", "s1,s2,same\nA,B,1\nC,D,0\n", {},
        "a.csv:2: the column 'same' has '0', '1'", "Name it label, with 1 for a paraphrase"),
    "judged in words": (
        "a.jsonl", jsonl(*({"s1": x, "s2": "b", "gold": x} for x in ("neutral", "yes"))), {},
        "a.jsonl:1: the column 'gold' has 'neutral', 'yes'", "name the pair: --text_columns s1",
    ),
    "judged in Chinese words": ("a.csv", "s1,s2,同义\nA,B,是\nC,D,否\n", {},
        "a.csv:2: the column '同义' has '否', '是'", "Name it label, with 1 for a paraphrase"),
    "two columns of classes": ("a.csv", "text,intent,category\nA,b,c\n", {},
        "a.csv:1: the columns 'category' and 'intent' may both", "--text_columns category text"),
    "packed without saying so": ("a.csv", gzip.compress(b"s1,s2\nA,B\n"), {},
        "a.csv:1: looks like gzip without .gz in its name", "Save it as UTF-8"),
    "wrong encoding": ("a.tsv", b"s1\ts2\nA\tB\n" + "\xe9\tb\n".encode("latin-1"), {},
        "a.tsv:3: is not UTF-8 at byte 0", "Save it as UTF-8, perhaps by iconv -f cp1252 -t utf"),
    "Western Windows": ("a.csv", "s1,s2\n\u00e9l\u00e8ve,pupil\n".encode("cp1252"), {},
        "a.csv:2: is not UTF-8 at byte 0", "Save it as UTF-8, perhaps by iconv -f cp1252 -t utf"),
    "no encoding": ("a.csv", b"s1,s2\n\x81,\xff\n", {}, "a.csv:2: is not UTF-8", "as UTF-8."),
    "Chinese Windows": ("a.tsv", "s1\ts2\n你好\t您好\n".encode("gb18030"), {},
        "a.tsv:2: is not UTF-8", "Save it as UTF-8, perhaps by iconv -f gb18030 -t utf-8"),
    "wide encoding": ("a.csv", "s1,s2\n".encode("utf-16"), {},
        "a.csv:1: looks like UTF-16", "UTF-8"),
    "half a character": ("a.jsonl", '{"s1": "\\ud83d", "s2": "A"}\n', {},
        "a.jsonl:1: '\\ud83d' holds half a character", "Save it again as UTF-8"),
    "record over two lines": ("a.jsonl", '{"text": "A", "synonyms": ["B", "C\nD"]}\n', {},
        "a.jsonl:1: the record", "Write each record on one line"),
    "pretty-printed": ("a.json", '{\n"text": "A"}\n', {}, "a.json:1: the record '{'", "one line"),
    "json array": ("a.json", '[\n{"s1": "A"}\n]\n', {}, "a.json:1: begins a JSON array", "jq -c"),
    "json array on one line": ("a.json", '[{"s1": "A", "s2": "B"}]\n', {},
        "a.json:1: begins a JSON array", "jq -c"),
    "other commas": ("a.csv", "s1，s2\n怎么登录，如何登录\n", {},
        "a.csv:1: the columns ['s1，s2'] do not hold", "parted by '，': save it with commas"),
    "labels under a name of their own": (
        "a.csv", "query,intent\nA,B\n", {},
        "a.csv:1: the columns ['query', 'intent']",
        "--data_format groups --text_columns intent query",
    ),
    "labels among several columns": ("a.csv", "the intent,intent,no\nA,B,1\n", {},
        "a.csv:1: the columns", "--data_format groups --text_columns intent SENTENCE"),
    "no such groups": ("a.csv", "q,t\nA,B\n", {"data_format": "groups"},
        "a.csv:1: the columns ['q', 't'] do not hold 'group' and 'sentence' or", "Rename the"),
    "columns that differ in case": (
        "a.csv", "Text,text\nA,B\n", {"text_columns": ("Text", "texts")},
        "a.csv:1: the columns ['Text', 'text'] do not hold 'Text' and 'texts'", "Rename the",
    ),
    "columns of their own": ("a.csv", "问题,相似问\n怎么登录,如何登录\n", {},
        "a.csv:1: the columns ['问题', '相似问'] do not hold", "--text_columns first second"),
    "intents of their own": (
        "a.csv", "意图,文本\n怎么登录,如何登录\n", {},
        "a.csv:1: the columns ['意图', '文本']",
        "with --data_format groups if the first is a label",
    ),
    "intents named as sentences": (
        "a.csv", f"意图,文本\n{INTENTS}", {"text_columns": ("意图", "文本")},
        "a.csv:2: the column '意图' repeats: is '意图0' a group's name or a sentence? Pass",
        "(--data_format)",
    ),
    "lists under names of their own": (
        "a.jsonl", '{"a": "A", "b": ["B"]}\n', {"text_columns": ("a", "b")},
        "a.jsonl:1: ['B'] is list", "--data_format synonyms",
    ),
    "quoted semicolons": ("a.csv", '"s1";"s2"\n"A";"B"\n', {},
        "a.csv:1: is not valid CSV", "parted by ';': save it with commas"),
    "semicolons": ("a.csv", "s1;s2\nA;B\n", {}, "a.csv:1: the columns", "parted by ';'"),
    "other commas in a row": ("a.csv", "s1,s2\n怎么登录，如何登录\n", {},
        "a.csv:2: has 1 cell instead of 2", "Separate cells by commas"),
    "a workbook": ("a.csv", "PK\x03\x04\n", {},
        "a.csv:1: looks like an Excel workbook", "Save it as UTF-8 text"),
    "broken json": ("a.jsonl", '{"text": A}\n', {},
        "a.jsonl:1: is not JSON at column 10", "one JSON object per line"),
    "no object": ("a.jsonl", '["A", "B"]\n', {}, "a.jsonl:1: holds ['A', 'B']", "one JSON"),
    "synonyms no list": ("a.jsonl", jsonl({"text": "A", "synonyms": "B"}), {},
        "a.jsonl:1: 'synonyms' is 'B', not a list", "Write it as a list"),
    "a number": ("a.jsonl", jsonl({"s1": "A", "s2": 3}), {}, "a.jsonl:1: 3 is int", "in quotes"),
    "no tab": ("a.tsv", "A\tB\nC\nD\tE\n", {}, "a.tsv:2: has 1 cell instead of 2", "single tabs"),
    "no tab, labels": ("a.tsv", "A\tB\t1\nC\n", {}, "a.tsv:2: has 1 cell instead of 3", "tabs"),
    "one column": ("a.txt", "A\nB\n", {}, "a.txt:1: has one column, so no pairs", "a tab"),
    "four columns": ("a.tsv", "A\tB\tC\tD\n", {}, "a.tsv:1: has 4 columns", "text_columns"),
    "more cells": ("a.csv", "s1,s2\nA,B\nA, b,C\n", {},
        "a.csv:3: has 3 cells instead of 2", "quotes"),
    "fewer cells": ("a.tsv", "s1\ts2\nA\n", {}, "a.tsv:2: has 1 cell instead of 2", "tabs"),
    "open quote": ("a.csv", 's1,s2\nA,B\n"A,B\nC,D\n', {},
        "a.csv:3: is not valid CSV", "close them"),
    "huge cell": ("a.csv", f"s1,s2\nA,B\nA,{'B' * 131_073}\n", {},
        "a.csv:3: holds a cell of more than 131,072 characters", "shorten it"),
    "after a cell of two lines": ("a.csv", 's1,s2\n"A\na",B\nC\n', {},
        "a.csv:4: has 1 c", "quotes"),
    "label or pair": ("a.tsv", "".join(f"text {i}\tlabel {i % 4}\n" for i in range(20)), {},
        "a.tsv:1: the second column repeats: is 'label 0' a label", "data_format="),
    "group or pair": ("a.tsv", "A\tB\nA\tC\n", {},
        "a.tsv:1: the first column repeats", "data_format="),
    "unknown header of groups": (
        "a.tsv", "id\ttext\n0\tA\n0\tB\n1\tC\n1\tD\n", {},
        "a.tsv:1: the columns ('id', 'text') are unknown",
        "text_columns=('id', 'text') and data_format=\"groups\"",
    ),
    "groups of at most two": ("a.tsv", "g1\tA\ng1\tB\ng2\tC\ng3\tD\n", {},
        "a.tsv:1: the first column repeats: is 'g1' a group id", "data_format="),
    "mostly repeated": ("a.tsv", "A\tB\nC\tD\nA\tE\nC\tF\n", {},
        "a.tsv:1: the first column repeats: is 'A' a group id", "data_format="),
    "no group id": ("a.tsv", "1\tA\n\tB\n", {"data_format": "groups"},
        "a.tsv:2: the group id is", "Give every row a group id, or drop it"),
    "no label": ("a.csv", "text,label\nA,x\nB,\n", {},
        "a.csv:3: the label is empty", "Give every row a label, or drop it"),
    "damaged gzip": ("a.tsv.gz", gzip.compress(b"A\tB\n")[:-9], {},
        "a.tsv.gz: is damaged", "again"),
    "no gzip": ("a.tsv.gz", b"A\tB\n", {}, "a.tsv.gz: is damaged", "Copy or compress it again"),
    "damaged xz": ("a.tsv.xz", lzma.compress(b"A\tB\n")[:-9], {}, "a.tsv.xz: is damaged", "again"),
    "too long a number": ("a.jsonl", f'{{"text": {"1" * 5000}}}\n', {},
        "a.jsonl:1: is not a record (", "or remove it"),
    "only a number": ("a.jsonl", "5\n", {}, "a.jsonl:1: holds 5, not a JSON object", "one JSON"),
    "no rows": ("a.jsonl", "[]\n", {}, "a.jsonl:1: holds [], not a JSON object", "one JSON"),
    "too deep": ("a.jsonl", f'{{"text": {"[" * 99999}\n', {},
        "a.jsonl:1: is not a record (", "or remove it"),
    "a key twice": ("a.jsonl", jsonl({"s1": "A", "s2": "B"}) + '{"s1": "C", "s1": "D"}\n', {},
        "a.jsonl:2: is not a record (it has two values of 's1')", "or remove it"),
    "some line ends of old Macs": ("a.csv", "s1,s2\nA,B\nC,D\rE,F\n", {},
        "a.csv:3: holds a carriage return (CR) outside quotes", "End every line with a line feed"),
    "bzip2": ("a.csv", b"BZh91AY&SY\0", {}, "a.csv:1: looks like bzip2", "packed as .gz or .xz"),
    "Zstandard": ("a.csv", b"\x28\xb5\x2f\xfd\0", {}, "a.csv:1: looks like Zstandard", "as .gz"),
    "no parquet": ("a.parquet", b"PAR", {},
        "a.parquet: is not a complete Parquet", "Write it again"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content", "options", "start", "remedy"), BAD.values(), ids=BAD)
def test_faults_name_file_line_and_remedy(write, name, content, options, start, remedy):
    path = write(name, content)
    said = message(records, path, **options)
    assert said.startswith(f"{path.parent}{os.sep}{start}")
    assert remedy in said
    assert len(said) < len(str(path)) + 350


def test_long_values_are_cut_in_messages(write):
    said = message(records, write("a.jsonl", jsonl({"s1": "A", "s2": ["x" * 9999]})))
    assert "..." in said
    assert len(said) < 300


@pytest.mark.parametrize("options", [{"data_format": "triples"}, {"text_columns": ("a",)}])
def test_options_are_checked(options):
    with pytest.raises(ValueError, match=r"data_format='triples': choose|name two columns"):
        ReadOptions(**options)


# Scored pairs and sentences ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'A,"B, b",4.5\r\nC,D,0\r\n'),
        ("a.tsv", "4.5\tA\tB, b\n0\tC\tD\n"),
        ("a.tsv", "4.5\tA\tB, b\n\tE\tF\n0\tC\tD\n"),  # SemEval 2015 and 2016: not all judged
        ("a.csv", 'split,score,sentence1,sentence2\ndev,4.5,A,"B, b"\n\ntest,0,C,D\n'),
        ("a.tsv", "s1\ts2\tlabel\nA\tB, b\t4.5\nC\tD\t0\n"),
    ],
)
def test_scored_pairs_in_every_layout(write, name, content):
    assert load_scored_pairs(write(name, content)) == [("A", "B, b", 4.5), ("C", "D", 0.0)]


def test_numbers_as_sentences_do_not_confuse_scores(write):
    path = write("a.tsv", "1984\tA book\t2.5\n2001\tA film\t3\n")
    assert load_scored_pairs(path)[0] == ("1984", "A book", 2.5)


@pytest.mark.parametrize(
    ("content", "start", "remedy"),
    [
        ("", "a.csv: is empty", "at least one scored pair"),
        ("s1,s2,score\n", "a.csv: holds no scored row", "at least one scored pair"),
        ("A,B,1\nA,B,high\n", "a.csv:2: the score 'high' is not a number", "such as 3.5"),
        ("s1,s2,score\nA,B,\n", "a.csv:2: the score '' is not a number", "drop the row"),
        ("A,B,1\nA,B,nan\n", "a.csv:2: the score 'nan' is not a number", "such as 3.5"),
        ("A,B,1\nA,B\n", "a.csv:2: has 2 cells instead of 3", "quotes around commas"),
        ("A,B,1\nA;B;1\n", "a.csv:2: has 1 cell instead of 3", "parted by ';'"),
        ("A,B,1\nA, ,1\n", "a.csv:2: a sentence is empty", "Fill it in"),
        ("A,B,C\n", "a.csv:1: holds ['A', 'B', 'C'], neither", "Write s1, s2, score"),
        (
            "句1,句2,分\nA,B,1\n",
            "a.csv:1: holds ['句1', '句2', '分'], neither",
            "name them so in a header",
        ),
    ],
)
def test_bad_scores_name_file_line_and_remedy(write, content, start, remedy):
    path = write("a.csv", content)
    said = message(load_scored_pairs, path)
    assert said.startswith(f"{path.parent}{os.sep}{start}")
    assert remedy in said


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"en": "A"}, "a.jsonl:2: {'en': 'A'} is dict, not a sentence"),
        (["A"], "a.jsonl:2: ['A'] is list, not a sentence"),
        (5, "a.jsonl:2: 5 is int, not a sentence"),
        ("\ud83d", "holds half a character"),
        (None, "a.jsonl:2: a sentence is empty"),
    ],
)
def test_a_scored_sentence_is_text(write, value, problem):
    rows = [{"s1": "A", "s2": "B", "score": 1.0}, {"s1": value, "s2": "B", "score": 2}]
    path = write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert problem in message(load_scored_pairs, path)


@pytest.mark.parametrize("missing", [math.nan, None])
def test_a_label_that_is_missing_is_no_class(missing):
    rows = {"text": ["A", "B", "C"], "label": [1.0, missing, missing]}
    said = message(load_groups, datasets.Dataset.from_dict(rows))
    assert "2: the label is empty" in said


def test_objects_that_are_no_scored_pairs_are_shown(write):
    said = message(load_scored_pairs, write("a.jsonl", '{"a": "x", "b": "y", "c": "z"}\n'))
    assert "a.jsonl:1: holds ['a', 'b', 'c'], neither a known header nor a scored pair" in said


def test_sentences_are_stripped_and_blank_lines_left_out(write):
    path = write("a.txt.xz", lzma.compress("\ufeff A\r\n\n 你好\n".encode()))
    assert load_sentences(path) == ["A", "你好"]


def test_sentences_need_a_file_with_some(write, tmp_path):
    assert "holds no sentence" in message(load_sentences, write("a.txt", "\n\n"))
    assert "is not a file" in message(load_sentences, tmp_path / "none.txt")
    assert "Pass the files inside it" in message(load_sentences, tmp_path)


@pytest.mark.parametrize("name", ["a.csv", "a.TSV", "a.json", "a.jsonl.gz", "a.parquet"])
def test_rows_are_no_sentences(write, name):
    said = message(load_sentences, write(name, "text,label\nIs it late?,1\n"))
    assert f"{name}: holds rows ({suffix_of(name)}), not one sentence per line" in said
    assert "a .txt file" in said


@pytest.mark.parametrize("line", ["12\tIs it late?", '{"text": "Is it late?"}'])
def test_lines_of_rows_are_no_sentences(write, line):
    said = message(load_sentences, write("a.txt", f"{line}\n" * 3 + "It is.\n"))
    assert "holds rows, not one sentence per line" in said
    assert load_sentences(write("b.txt", f"{line}\nIt is.\n")) == [line, "It is."]


# Triplets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'sent0,sent1,hard_neg\r\nA,"B, b",C\r\n\r\nD,E,F\r\n'),
        ("a.tsv", "id\tnegative\tanchor\tpositive\n1\tC\tA\tB, b\n2\tF\tD\tE\n"),
        ("a.jsonl", '{"sent0": "A", "sent1": "B, b", "hard_neg": "C"}\n'
                    '{"hard_neg": "F", "sent0": "D", "sent1": " E"}\n'),
    ],
)  # fmt: skip
def test_triplets_in_every_layout(write, name, content):
    assert load_triplets(write(name, content)) == [("A", "B, b", "C"), ("D", "E", "F")]


@pytest.mark.parametrize(
    ("name", "content", "start", "remedy"),
    [
        ("a.csv", "", "a.csv: holds no triplet", "at least one"),
        ("a.csv", "sent0,sent1,hard_neg\n", "a.csv: holds no triplet", "at least one"),
        ("a.csv", "A,B,C\n", "a.csv:1: the columns ['A', 'B', 'C'] hold no", "Name them sent0"),
        ("a.csv", "sent0,sent1\nA,B\n", "a.csv:1: the columns", "prompt, chosen and rej"),
        ("a.csv", "sent0,sent1,hard_neg\nA,B,C\nA,B\n", "a.csv:3: has 2 cells", "quotes"),
        ("a.csv", "sent0,sent1,hard_neg\nA, ,C\n", "a.csv:2: 'sent1' is empty", "Fill it in"),
        ("a.jsonl", '{"sent0": "A", "sent1": "B", "hard_neg": 3}', "a.jsonl:1: 3 is int", "quotes"),
        ("a.jsonl", '{"sent0": "A", "sent1": "B", "hard_neg": "C"}\n{"sent0": "A", "sent1": "B"}',
         "a.jsonl:2: has no 'hard_neg'", "columns of the first"),
    ],
)  # fmt: skip
def test_bad_triplets_name_file_line_and_remedy(write, name, content, start, remedy):
    path = write(name, content)
    said = message(load_triplets, path)
    assert said.startswith(f"{path.parent}{os.sep}{start}")
    assert remedy in said


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "A\tB, b\t1\nC\tD\t0\n"),  # LCQMC
        ("a.tsv", "1\tA\tB, b\n0\tC\tD\n"),  # a part of labelled QQP
        (
            "a.tsv",
            "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t8\t9\tA\tB, b\n0\t8\t9\tC\tD",
        ),
        ("a.csv", 'id,question1,question2,is_duplicate\n1,A,"B, b",1\n2,C,D,0\n'),
        ("a.csv", 'x,y,z\nA,"B, b",true\n\nC,D,0.0\n'),
    ],
)
def test_labelled_pairs_in_every_layout(write, name, content):
    found = load_labelled_pairs(write(name, content), ["x", "Y", "z"])
    assert found == [("A", "B, b", True), ("C", "D", False)]


def test_two_columns_of_one_name_are_a_fault(write):
    path = write("groups.tsv", "label\ttext\ttext\n1\ta\tb\n")
    with pytest.raises(DataError, match=r"groups\.tsv: the header names two columns 'text'"):
        list(read_rows(path, ReadOptions()))
    path = write("triplets.csv", "sent0,sent1,hard_neg,hard_neg\na,b,c,d\n")
    with pytest.raises(DataError, match=r"triplets\.csv: .*'hard_neg'\. Rename or drop one"):
        load_triplets(path)
    path = write("pairs.csv", "s1,s2,label,Label\na,b,1,0\n")
    for load in (load_scored_pairs, load_labelled_pairs):
        with pytest.raises(DataError, match=r"pairs\.csv: the header names two columns 'label'"):
            load(path)
    path = write("unnamed.csv", "sent0,sent1,hard_neg,,\na,b,c,,\n")  # as spreadsheets write
    assert load_triplets(path) == [("a", "b", "c")]


def test_scores_of_sick_and_of_named_columns(write):
    header = "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\n"
    path = write("a.txt", f"{header}1\tA\tB\tNEUTRAL\t4.5\n")
    assert load_scored_pairs(path) == [("A", "B", 4.5)]
    path = write("zh.csv", "\ufeff句子1,句子2,分数\n退款,退钱,4.5\n")
    assert load_scored_pairs(path) == [("退款", "退钱", 4.5)]
    path = write("b.tsv", "left\tright\tgold\nA\tB\t4.5\n")
    assert load_scored_pairs(path, ["left", "right", "gold"]) == [("A", "B", 4.5)]
    with pytest.raises(DataError, match=r"b\.tsv:1: holds .*'gold'\], neither a known header"):
        load_scored_pairs(path)


def test_labels_and_scores_are_told_apart_by_name(write):
    path = write("a.csv", "sentence1,sentence2,similarity,label\nA,B,0,1\nC,D,1,0\n")
    assert load_labelled_pairs(path) == [("A", "B", True), ("C", "D", False)]
    assert load_scored_pairs(path) == [("A", "B", 0.0), ("C", "D", 1.0)]


def test_one_accent_in_two_encodings_is_one_sentence():
    composed, apart = "caf\u00e9 ouvert", "cafe\u0301 OUVERT"
    assert composed != apart
    assert fold(composed) == fold(apart)


def test_line_ends_inside_sentences_are_alike_in_every_format(write):
    path = write("a.jsonl", jsonl({"text": "A\r\nB", "synonyms": ["C"]}))
    assert texts(path) == [["A\nB", "C"]]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", '\ufeff\ufeff"s1","s2"\nA,B\n\ufeff"C","\ufeffD"\n'),
        ("a.csv", '"\ufeffs1",s2\nA,B\nC,D\n'),
        ("a.tsv", "A\tB\n\ufeffC\tD\n"),
        ("a.jsonl", '{"s1": "A", "s2": "B"}\n\ufeff{"s1": "C", "s2": "D"}\n'),
    ],
)
def test_byte_order_marks_of_joined_files_are_dropped(write, name, content):
    assert texts(write(name, content)) == [["A", "B"], ["C", "D"]]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_and_empty_names_are_told_apart_from_missing_files(tmp_path):
    os.mkfifo(tmp_path / "a.csv")
    assert "is a pipe or a device, not a file. Write" in message(load_groups, tmp_path / "a.csv")
    assert "The name of a file is empty" in message(load_groups, "")


def test_a_parquet_value_that_python_has_none_for_is_told(tmp_path):
    late = pa.array([2**55], pa.timestamp("ms"))
    pq.write_table(pa.table({"s1": ["A"], "s2": ["B"], "at": late}), tmp_path / "a.parquet")
    assert "a.parquet: holds a value that Python has" in message(records, tmp_path / "a.parquet")


def test_line_ends_of_old_macs_are_named(write):
    with pytest.raises(DataError, match=r"a.txt:1: ends its lines with CR only"):
        load_sentences(write("a.txt", "One.\rTwo.\rThree.\r"))


@pytest.mark.parametrize("name", ["a.txt", "a.tsv.gz"])
def test_zero_bytes_are_named_by_their_line(tmp_path, name):
    path, content = tmp_path / name, b"A\tB\n\nC\0\tD\n"
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(DataError, match=rf"{name}:3: holds zero bytes, as UTF-16 does.*as UTF-8"):
        list(read_lines(path))


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_pairs_in_objects_are_read_as_in_a_table(tmp_path, suffix):
    rows = [{"id": i, "sentence1": f"a {i}", "sentence2": f"b {i}", "score": i / 2} for i in (1, 2)]
    path, labelled = tmp_path / f"sts{suffix}", tmp_path / f"labelled{suffix}"
    for place, table in (
        (path, rows),
        (labelled, [row | {"score": None, "label": 1} for row in rows]),
    ):
        made = datasets.Dataset.from_list(table)
        made.to_parquet(place) if suffix == ".parquet" else made.to_json(place)
    assert load_scored_pairs(path) == [("a 1", "b 1", 0.5), ("a 2", "b 2", 1.0)]
    assert load_labelled_pairs(labelled)[0] == ("a 1", "b 1", True)
    with pytest.raises(DataError, match="the score None is not a number"):
        load_scored_pairs(labelled)
