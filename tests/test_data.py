"""Sources -> groups: components, duplicates, report, cache, stream and split."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import replace
from pathlib import Path

import datasets
import numpy as np
import pytest
from torch.utils.data import DataLoader

from simbert_hf.data import (
    DataError,
    PairStream,
    grouping,
    load_groups,
    load_scored_pairs,
    split_groups,
    usual_share,
)
from simbert_hf.data.grouping import DataReport, find_components, find_first, hash_sentences
from simbert_hf.generation.facts import exchanges
from simbert_hf.utils.text import fold

DEMO = Path(__file__).parent.parent / "scripts" / "data" / "tatoeba_en" / "pairs.jsonl.gz"
EXCEPTED = {  # "seconds" exclude other words since these were written
    "Can I use thirty seconds of a pop song in my video without paying? / "
    "Is it allowed to put half a minute of a pop tune in a clip for free?",
    "The tremor lasted for nearly a minute, according to witnesses. / "
    "Almost sixty seconds was how long the shaking continued, people who felt it reported.",
}


@pytest.fixture(autouse=True)
def _quiet():
    datasets.disable_progress_bars()


@pytest.fixture
def write(tmp_path):
    """Write records as JSON lines and return the path."""

    def write(*rows, name="a.jsonl"):
        path = tmp_path / name
        lines = (json.dumps({"text": first, "synonyms": rest}) for first, *rest in rows)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return write


@pytest.fixture
def load(tmp_path):
    """Load groups with a cache of the test's own."""
    return lambda source, **options: load_groups(source, cache_dir=tmp_path / "cache", **options)


def message(call, *args, **kwargs):
    with pytest.raises(DataError) as error:
        call(*args, **kwargs)
    return str(error.value)


def random_groups(n, n_sentences, seed):
    rng = np.random.default_rng(seed)
    return [
        [f"s{i}" for i in rng.choice(n_sentences, size=rng.integers(2, 5), replace=False)]
        for _ in range(n)
    ]


def slow_components(groups):
    """Merge overlapping sets until nothing changes."""
    parts = [set(group) for group in groups]
    for _ in groups:
        for i, part in enumerate(parts):
            for other in parts[:i]:
                if part & other:
                    other |= part
                    part |= other
    return [frozenset(part) for part in parts]


def same_partition(first, second):
    pairs = set(zip(first, second, strict=True))
    return len(pairs) == len(set(first)) == len(set(second))


# Components and duplicates -----------------------------------------------------------------------


@pytest.mark.parametrize(("n", "n_sentences"), [(1, 4), (30, 200), (60, 150), (40, 20)])
def test_components_equal_those_found_by_merging_sets(n, n_sentences):
    groups = random_groups(n, n_sentences, seed=n)
    hashes = hash_sentences([text for group in groups for text in group])
    numbers, n_different = find_components(hashes, np.array([len(group) for group in groups]))
    assert same_partition(numbers.tolist(), slow_components(groups))
    assert set(numbers) == set(range(len(set(numbers))))
    assert n_different == len({text for group in groups for text in group})


def test_first_of_equal_sets_is_kept():
    groups = random_groups(200, 6, seed=0)
    hashes = hash_sentences([text for group in groups for text in group])
    first = find_first(hashes, np.array([len(group) for group in groups]))
    seen = set()
    for group, is_first in zip(groups, first, strict=True):
        assert is_first == (frozenset(group) not in seen)
        seen.add(frozenset(group))
    assert 0 < first.sum() < len(groups)


def test_hashes_ignore_case_and_white_space_only():
    texts = ["Straße 1", " STRASSE\u3000 1\n", "strasse1", "Strase 1"]
    hashes = hash_sentences(texts)
    assert hashes[0] == hashes[1]
    assert len(set(hashes.tolist())) == 3


# Loading -----------------------------------------------------------------------------------------


def test_groups_and_report(write, load):
    path = write(
        ["A", "B"], ["b", "A"], ["C", "D", "D", ""], ["B", "E", "F" * 9], ["G", "g"], ["H"]
    )
    path.write_text(path.read_text() + "\n")
    groups, report = load(path, max_chars=8)
    assert groups["texts"][:] == [["A", "B"], ["C", "D"], ["B", "E", "F" * 9]]
    assert groups["group"][:] == [0, 1, 0]
    assert report == DataReport(
        records=6,
        groups=3,
        components=2,
        sentences=6,
        duplicates=1,
        one_member=2,
        repeats=2,
        empty=2,
        over_long=1,
        max_chars=8,
        commonest="B",
        in_groups=2,
    )
    assert str(report) == (
        "6 records -> 3 groups (2 unconnected) of 6 sentences; left out: 1 duplicate record, "
        "2 one-member records, 2 sentences repeated in a record, 2 empty sentences; "
        "1 sentence of more than 8 characters, which training may cut"
    )


def test_the_sentence_that_connects_many_groups_is_named(write, load):
    rows = [[f"a{i}", f"b{i}", "NULL" if i % 2 else "null "] for i in range(5)]
    report = load(write(["x", "y"], *rows))[1]
    assert (report.commonest, report.in_groups) == ("null", 5)
    assert str(report).endswith("; 5 groups are connected by 'null'")


def test_more_groups_than_fit_one_chunk(write, load, monkeypatch):
    monkeypatch.setattr("simbert_hf.data.grouping.CHUNK", 7)
    rows = [["lone"] if i % 3 == 0 else [f"a{i}", f"b{i}"] for i in range(40)]
    groups, report = load(write(*rows))
    assert groups["texts"][:] == [row for row in rows if len(row) == 2]
    assert groups["group"][:] == list(range(26))
    assert (report.records, report.one_member) == (40, 14)


def test_groups_are_memory_mapped_and_cached(write, load, monkeypatch):
    path = write(["A", "B"])
    first, report = load(path)
    assert first.cache_files
    monkeypatch.setattr(
        "simbert_hf.data.groups.read_rows", lambda *_: pytest.fail("it was read again")
    )
    again, report_again = load(path)
    assert again[:] == first[:]
    assert report_again == report


def test_a_kill_while_caching_leaves_no_part_of_a_file(write, load, tmp_path, monkeypatch):
    def killed(made, *_):
        made.write_text("half")
        raise KeyboardInterrupt

    path = write(["A", "B"])
    with monkeypatch.context() as patch:
        patch.setattr(grouping, "_write_groups", killed)
        with pytest.raises(KeyboardInterrupt):
            load(path)
    assert not [*tmp_path.rglob("groups.*")]
    assert load(path)[0]["texts"][:] == [["A", "B"]]
    assert {file.name for file in tmp_path.rglob("groups.*")} == {"groups.arrow", "groups.json"}


def test_a_changed_file_is_read_again(write, load):
    path = write(["A", "B"])
    load(path)
    stat = path.stat()
    path.write_text(path.read_text().replace("B", "C"))  # of the same size
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000))
    assert load(path)[0]["texts"][:] == [["A", "C"]]


def test_several_files_are_one_data_set(write, load, tmp_path):
    first = write(["A", "B"])
    (tmp_path / "b.tsv").write_text("s1\ts2\nB\tA\nB\tC\n")
    groups, report = load([first, tmp_path / "b.tsv"])
    assert groups["texts"][:] == [["A", "B"], ["B", "C"]]
    assert groups["group"][:] == [0, 0]
    assert report.duplicates == 1


def test_group_ids_of_two_files_are_not_the_same(tmp_path, load):
    for name in "ab":
        (tmp_path / f"{name}.tsv").write_text(f"1\t{name}1\n1\t{name}2\n")
    groups, _ = load([tmp_path / "a.tsv", tmp_path / "b.tsv"])
    assert groups["texts"][:] == [["a1", "a2"], ["b1", "b2"]]


def test_reader_faults_come_out_of_datasets_unwrapped(write, load):
    path = write(["A", "B"])
    path.write_text(path.read_text() + '{"text": "A"}\n')
    said = message(load, path)
    assert said.startswith(f"{path}:2: has no 'synonyms'")
    path.write_text(path.read_text() + "x\n")
    assert message(load, path, streaming=False).startswith(f"{path}:2: ")


def test_no_pairs_is_a_fault(write, load):
    path = write(["A"], ["B", "b"])
    for streaming in (False, True):
        said = message(load, path, streaming=streaming)
        assert said.startswith(f"{path}: no two different sentences stand together (")
        assert "or two sentences the same label." in said
    assert "2 one-member records" in message(load, path)


@pytest.mark.parametrize(
    "source", ["none.jsonl", "none", "some/none.csv", Path("org/none"), "a/b/c"]
)
def test_a_missing_file_is_neither_file_nor_hub_id(load, source):
    said = message(load, source)
    assert said.startswith(f"{source}: is neither a file nor a Hub id of the form org/name.")
    assert "Check the path" in said


def test_no_source_and_a_folder_are_faults(load, tmp_path):
    assert "Pass a file or a Hub id" in message(load, [])
    assert message(load, tmp_path).startswith(f"{tmp_path}: is a folder. Pass the files")
    datasets.Dataset.from_dict({"text": ["a"]}).save_to_disk(tmp_path)
    assert "saved by save_to_disk. Convert it" in message(load, tmp_path)


# The Hub -----------------------------------------------------------------------------------------


@pytest.fixture
def hub(monkeypatch):
    """Stand in for the Hub, and tell what it was asked for."""
    rows = {"anchor": ["A", "B", "C"], "positive": ["B", "A", "D"]}
    asked = []

    def load_dataset(path, **options):
        asked.append((path, options))
        data = datasets.Dataset.from_dict(rows)
        return data.to_iterable_dataset(num_shards=3) if options["streaming"] else data

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return asked


def test_hub_rows_are_read_like_those_of_files(hub, load):
    groups, report = load("org/name", split="dev", revision="abc", token="t")
    assert groups["texts"][:] == [["A", "B"], ["C", "D"]]
    assert (report.records, report.duplicates) == (3, 1)
    options = {"split": "dev", "streaming": False, "revision": "abc", "token": "t"}
    assert hub == [("org/name", options)]


def test_a_data_set_in_memory_is_read_too(tmp_path):
    rows = {"anchor": ["A", "B", "C", "E"], "positive": ["B", "A", "D", ""]}
    data = datasets.Dataset.from_dict(rows)
    groups, report = load_groups(data, cache_dir=tmp_path)
    assert groups["texts"][:] == [["A", "B"], ["C", "D"]]
    assert (report.records, report.duplicates) == (4, 1)
    stream, _ = load_groups([data, data.select([2])], streaming=True)
    assert [row["texts"] for row in stream] == [["A", "B"], ["B", "A"], ["C", "D"], ["C", "D"]]
    labelled = data.add_column("label", [1, 1, 0, 7])
    with pytest.raises(DataError, match="the data set:4: "):
        load_groups(labelled, cache_dir=tmp_path)
    labelled = labelled.select(range(3)).with_format("torch")
    assert load_groups(labelled, cache_dir=tmp_path)[0]["texts"][:] == [["A", "B"]]
    with pytest.raises(DataError, match="one split of a Dataset"):
        load_groups(datasets.DatasetDict(train=data))


def test_hub_streams_keep_their_shards(hub, load):
    stream, _ = load("org/name", streaming=True)
    assert stream.num_shards == 3
    assert sorted(row["texts"] for row in stream) == [["A", "B"], ["B", "A"], ["C", "D"]]


@pytest.mark.multiproc
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on one core
def test_workers_read_all_shards_of_the_hub(hub, load):
    stream, _ = load("org/name", streaming=True)
    pairs = DataLoader(PairStream(stream), None, num_workers=2, multiprocessing_context="fork")
    drawn = {pair["group"] >> 40 for pair in itertools.islice(pairs, 12)}
    assert drawn == {0, 1, 2}


def test_hub_rows_that_do_not_fit_are_named(hub, load):
    said = message(load, "org/name", text_columns=("q1", "q2"))
    assert said.startswith("org/name:1: the columns ['anchor', 'positive'] do not hold 'q1' and")


def test_what_the_hub_refuses_is_a_fault(load):
    said = message(load, "org/none")  # tests are offline
    assert said.startswith("org/none: is not a file, nor available on the Hub (")
    assert "Check the path or id, the split, the token and the network" in said


# Streams -----------------------------------------------------------------------------------------


def test_a_stream_has_a_number_for_each_row_and_a_shard_for_each_file(write, load):
    files = [write(["A", "B"], ["C"], ["D", "E"]), write(["A", "F"], name="b.jsonl")]
    stream, report = load(files, streaming=True)
    assert isinstance(stream, datasets.IterableDataset)
    assert stream.num_shards == 2
    assert [(row["texts"], row["group"]) for row in stream] == [
        (["A", "B"], 0),
        (["D", "E"], 1),
        (["A", "F"], 1 << 40),
    ]
    assert not report.counted
    assert "not counted" in str(report)


def test_a_stream_takes_groups_whose_rows_stand_together_only(load, tmp_path):
    (tmp_path / "a.tsv").write_text("1\tA\n1\tB\n2\tC\n2\tD\n1\tE\n")
    groups, _ = load(tmp_path / "a.tsv")
    assert groups["texts"][:] == [["A", "B", "E"], ["C", "D"]]
    stream, _ = load(tmp_path / "a.tsv", streaming=True)
    assert message(list, stream).startswith(
        f"{tmp_path / 'a.tsv'}:5: group '1' has earlier rows elsewhere"
    )


def test_a_name_stands_for_one_group_in_one_file(load, tmp_path):
    for name, key in (("a", "refund"), ("b", "refund"), ("c", "7"), ("d", "7")):
        (tmp_path / f"{name}.csv").write_text(f"group,text\n{key},{name}1\n{key},{name}2\n")
    paths = [tmp_path / f"{name}.csv" for name in "abcd"]
    numbered, _ = load(paths[2:])
    assert numbered["group"][:] == [0, 1]  # numbers begin anew in each file
    assert f"group 'refund' is also in {paths[0]}" in message(load, paths[:2])
    for path in paths[2:]:
        path.write_text(path.read_text().replace("group,", "label,"))
    assert f"label '7' is also in {paths[2]}" in message(load, paths[2:])  # as in parts of a set
    sets = [
        datasets.Dataset.from_dict({"intent": ["pay"] * 2, "text": texts}) for texts in ("ab", "cd")
    ]
    assert "intent 'pay' is also in data set 1" in message(load, sets)
    stream, _ = load(paths[:2], streaming=True)  # which keeps no names, as they may be too many
    assert len(list(stream)) == 2


def test_a_cache_that_cannot_be_written_is_named(write):
    source = write(["a", "b"])
    told = r"a\.jsonl/cache, the cache of data sets, cannot be written .Not a directory.: set HF_"
    with pytest.raises(OSError, match=told):
        load_groups(source, cache_dir=source / "cache")


@pytest.mark.parametrize("size", [0, 400])
def test_a_full_cache_is_no_fault_of_the_data(write, tmp_path, size):
    """Datasets says "An error occurred while generating the dataset", in an error of its own."""
    resource = pytest.importorskip("resource", reason="file size limits stand for a full disk")
    source = write(*([f"a{i} {'b' * 99}", f"c{i}"] for i in range(99)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        with pytest.raises(OSError, match=r"cannot be written .File too large.: set HF_HOME to"):
            load_groups(source, cache_dir=tmp_path / "cache")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(load_groups(source, cache_dir=tmp_path / "cache")[0]) == 99


def test_a_relative_name_is_no_other_folders_in_the_cache(load, tmp_path, monkeypatch):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.csv").write_text(f"s1,s2\n{folder},b\n")
        os.utime(tmp_path / folder / "a.csv", (1, 1))
        monkeypatch.chdir(tmp_path / folder)
        assert load("a.csv")[0]["texts"][:] == [[folder, "b"]]


def test_a_stream_finds_unknown_columns_at_once_and_bad_rows_later(write, load, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("q,t\nA,B\n")
    assert message(load, path, streaming=True).startswith(f"{path}:1: the columns")
    path = write(["A", "B"])
    path.write_text(path.read_text() + "x\n")
    stream, _ = load(path, streaming=True)
    assert message(list, stream).startswith(f"{path}:2: is not JSON")


# Split -------------------------------------------------------------------------------------------


def sentences(groups):
    return {fold(text) for texts in groups["texts"][:] for text in texts}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_validation", [2, 7, 40])
def test_no_sentence_is_on_both_sides(write, load, seed, n_validation):
    groups, _ = load(write(*random_groups(120, 900, seed=9)))
    train, validation = split_groups(groups, n_validation, seed)
    assert not sentences(train) & sentences(validation)
    assert len(validation) == n_validation
    assert sorted(train["texts"][:] + validation["texts"][:]) == sorted(groups["texts"][:])


def test_split_depends_on_its_seed_alone(write, load):
    groups, _ = load(write(*([f"a{i}", f"b{i}"] for i in range(50))))
    first, again, other = (split_groups(groups, 10, seed)[1]["group"][:] for seed in (1, 1, 2))
    assert first == again != other


def of_components(*sizes):
    group = [i for i, size in enumerate(sizes) for _ in range(size)]
    return datasets.Dataset.from_dict({"texts": [["a", "b"]] * len(group), "group": group})


@pytest.mark.parametrize("n_validation", [-1, 0, 1, 3, 4])
def test_a_split_leaves_something_on_both_sides(n_validation):
    said = message(split_groups, of_components(1, 1, 1), n_validation, 0)
    assert f"{n_validation} of 3 groups cannot be held out" in said
    assert said.endswith("choose a number from 2 to 2.")


@pytest.mark.parametrize("sizes", [(4,), (2, 2)])
def test_where_too_much_hangs_together_nothing_can_be_held_out(sizes):
    groups = of_components(*sizes)
    assert "hold out none (--validation_groups 0)" in message(split_groups, groups, 3, 0)
    assert usual_share(groups) == 0


@pytest.mark.parametrize("seed", range(8))
def test_two_components_at_least_are_held_out_whole(seed):
    """Among the sentences of a single one, what is looked for is always found."""
    groups = of_components(5, 3, 4, 8)
    assert "choose a number from 7 to 19" in message(split_groups, groups, 6, seed)
    for n_validation in (7, 8, 12):
        train, validation = split_groups(groups, n_validation, seed)
        parted = [set(side["group"]) for side in (train, validation)]
        assert len(parted[1]) >= 2
        assert parted[0].isdisjoint(parted[1])
        assert len(train) + len(validation) == 20
        assert len(validation) <= n_validation


def test_the_usual_share_is_of_two_components():
    assert usual_share(of_components(*[40] * 10)) == 80  # a tenth is but one
    assert usual_share(of_components(*[1] * 30)) == 3
    assert usual_share(of_components(8, 8, *[9] * 7)) == 0  # more than a fifth


# The shipped data --------------------------------------------------------------------------------


def test_demo_data_is_what_its_readme_says(load):
    groups, report = load(DEMO)
    assert replace(report, commonest="", in_groups=0) == DataReport(
        records=24_348,
        groups=24_348,
        components=17_214,
        sentences=42_778,
    )
    assert sum(map(len, groups["texts"][:])) - len(groups) == 34_537
    said = (DEMO.parent / "README.md").read_text(encoding="utf-8")
    assert all(f"{n:,}" in said for n in (24_348, 34_537, 17_214, 42_778))
    assert DEMO.stat().st_size < 2_000_000


@pytest.mark.parametrize(
    ("folder", "count", "more"),
    [
        ("written_en", 249, ["invented_2", "invented_3"]),
        ("written_zh", 250, ["invented_2", "invented_3"]),
    ],
)
def test_written_paraphrases_keep_persons_and_stay_out_of_their_test(load, folder, count, more):
    """As their README says; exchanged words are known in English alone."""
    data = DEMO.parent.parent / folder
    known: set[str] = set()
    for name in ("collected", "invented", *more):
        groups = load(data / f"{name}.jsonl.gz")[0]["texts"][:]
        some = ((text, other) for text, *others in groups[::20] for other in others)
        swapped = [f"{text} / {other}" for text, other in some if exchanges(text, other)]
        assert {*swapped} <= EXCEPTED
        known |= {fold(text) for texts in groups for text in texts}
    tested = load(data / "test.jsonl")[0]["texts"]
    assert len(tested) == count
    assert not known & {fold(text) for texts in tested for text in texts}


def test_graded_pairs_are_what_their_readme_says(load):
    data = DEMO.parent.parent / "graded_zh"
    tested = load(DEMO.parent.parent / "written_zh/test.jsonl")[0]["texts"]
    tested = {fold(text) for texts in tested for text in texts}
    said = (data / "README.md").read_text(encoding="utf-8")
    for name, count in (("written", 18_140), ("mined", 5_988)):
        pairs = load_scored_pairs(data / f"{name}.jsonl.gz")
        assert len(pairs) == count
        assert f"{count:,}" in said
        assert all(0 <= score <= 5 and one != other for one, other, score in pairs)
        assert not tested & {fold(text) for *texts, _ in pairs for text in texts}
