"""Groups -> pairs: draws by (seed, epoch, row), batches of like length, workers and resume."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from itertools import combinations

import datasets
import numpy as np
import pytest
import torch
from accelerate import skip_first_batches
from torch.utils.data import DataLoader

from simbert_hf.data import DataError, FixedPairs, LengthGroupedBatchSampler, PairDataset
from simbert_hf.data.batching import even_cuts, own_loader
from simbert_hf.data.sampling import make_pairs, random_bits

N = 103


def make_groups(n=N):
    texts = [[f"{i} {c}" * (i * 7 % 13 + 1) for c in "abcde"[: 2 + i % 4]] for i in range(n)]
    return datasets.Dataset.from_dict({"texts": texts, "group": list(range(n))})


@pytest.fixture
def pairs():
    return PairDataset(make_groups(), seed=3)


def all_pairs(dataset):
    return [dataset[i] for i in range(len(dataset))]


def characters(pairs):
    """A measure of length that needs no tokenizer."""
    return np.array([len(pair["source"]) + len(pair["target"]) for pair in pairs])


def make_sampler(dataset, batch_size, **options):
    return LengthGroupedBatchSampler(dataset, batch_size, characters, **options)


def seeds(batches):
    """Flatten batches of pairs to what no two epochs share."""
    return [pair["seed"] for batch in batches for pair in batch]


# Pairs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", range(3))
def test_a_pair_is_two_different_members_of_its_group(pairs, epoch):
    pairs.set_epoch(epoch)
    for i, pair in enumerate(all_pairs(pairs)):
        assert pair["source"] != pair["target"]
        assert {pair["source"], pair["target"]} <= set(pairs.groups[i]["texts"])
        assert pair["group"] == i
        assert 0 <= pair["seed"] < 2**63


def test_draws_depend_on_seed_epoch_and_row_alone(pairs):
    pairs.set_epoch(4)
    there = all_pairs(pairs)
    other = PairDataset(make_groups(), seed=3)
    assert all_pairs(other) != there
    other.set_epoch(4)
    assert other.__getitems__([50, 2, -1]) == [there[50], there[2], there[N - 1]]
    assert all_pairs(PairDataset(make_groups(), seed=4)) != all_pairs(PairDataset(make_groups(), 3))
    with pytest.raises(IndexError):
        pairs[N]


def test_every_ordered_pair_is_drawn_equally_often():
    groups = datasets.Dataset.from_dict({"texts": [["a", "b", "c"]] * 600, "group": range(600)})
    pairs = PairDataset(groups)
    drawn = Counter()
    for epoch in range(5):
        pairs.set_epoch(epoch)
        drawn.update((pair["source"], pair["target"]) for pair in pairs.__getitems__(range(600)))
    assert len(drawn) == 6
    assert all(abs(count - 500) < 5 * 500**0.5 for count in drawn.values())
    assert len({pair["seed"] for pair in all_pairs(pairs)}) == 600


def test_a_group_of_one_makes_no_pair_and_no_group_none():
    with pytest.raises(ValueError, match="one sentence makes no pair"):
        make_pairs([["a", "b"], ["c"]], [0, 1], random_bits(0, 0, np.arange(2)))
    assert make_pairs([], [], random_bits(0, 0, np.arange(0))) == []


# Batches -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("batch_size", "window"), [(8, 1), (8, 3), (8, 50), (103, 2), (1, 7)])
def test_each_row_is_drawn_once_an_epoch(pairs, batch_size, window, drop_last):
    sampler = make_sampler(pairs, batch_size, window=window, drop_last=drop_last)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    sizes = Counter(map(len, batches))
    rest = 0 if drop_last else N % batch_size
    assert sizes == Counter([batch_size] * (N // batch_size) + [rest] * bool(rest))
    rows = [row for batch in batches for row in batch]
    assert len(rows) == len(set(rows))
    assert set(rows) <= set(range(N))


def test_other_rows_are_dropped_each_epoch(pairs):
    sampler = make_sampler(pairs, 25, window=2)
    dropped = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        dropped.append(set(range(N)) - {row for batch in sampler for row in batch})
    assert len(dropped[0]) == len(dropped[1]) == 3
    assert dropped[0] != dropped[1]


def test_order_depends_on_seed_and_epoch_alone(pairs):
    sampler = make_sampler(pairs, 8, seed=1)
    first = list(sampler)
    assert list(sampler) == first
    assert list(make_sampler(pairs, 8, seed=2)) != first
    sampler.set_epoch(1)
    assert pairs.epoch == 1
    assert list(sampler) != first
    sampler.set_epoch(0)
    assert list(sampler) == first


def padding(pairs, batches):
    lengths = [characters(pairs.__getitems__(batch)) for batch in batches]
    return 1 - sum(x.sum() for x in lengths) / sum(x.max() * len(x) for x in lengths)


def test_windows_save_most_of_the_padding_in_every_epoch():
    pairs = PairDataset(make_groups(2000), seed=0)
    for epoch in range(2):
        pairs.set_epoch(epoch)
        grouped = padding(pairs, make_sampler(pairs, 16))
        shuffled = padding(pairs, make_sampler(pairs, 16, window=1))
        assert shuffled > 0.3
        assert grouped < shuffled / 5


def test_batches_do_not_come_in_order_of_length():
    pairs = PairDataset(make_groups(800), seed=0)
    means = [characters(pairs.__getitems__(batch)).mean() for batch in make_sampler(pairs, 16)]
    assert abs(np.corrcoef(means, range(len(means)))[0, 1]) < 0.5


def test_sampler_options_are_checked(pairs):
    with pytest.raises(DataError, match="103 examples cannot fill a batch of 104; give more"):
        make_sampler(pairs, 104)
    with pytest.raises(DataError, match="a batch of 52 for each of 2 processes; give more"):
        make_sampler(pairs, 52, processes=2)
    for options in ({"batch_size": 0}, {"batch_size": 4, "window": 0}):
        with pytest.raises(ValueError, match="must be at least 1"):
            make_sampler(pairs, **options)
    for options in ({"window": 1}, {"drop_last": False}):
        with pytest.raises(ValueError, match="even tokens are cut from sorted windows"):
            make_sampler(pairs, 4, even_tokens=True, **options)


def test_a_process_is_one_of_them(pairs):
    with pytest.raises(ValueError, match="process 1 is out of range: there are 1"):
        make_sampler(pairs, 4, process=1)


def cost(pairs, batch):
    lengths = characters(pairs.__getitems__(batch))
    return len(batch) * lengths.max()


def steps_of(pairs, batch_size, processes, **options):
    """The batches of each step, one a process."""
    ranks = [
        make_sampler(pairs, batch_size, process=i, processes=processes, **options)
        for i in range(processes)
    ]
    assert len({len(rank) for rank in ranks}) == 1
    return list(zip(*ranks, strict=True))


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_batches_of_even_tokens(processes):
    pairs = PairDataset(make_groups(2000), seed=0)
    for epoch in range(2):
        pairs.set_epoch(epoch)
        even = steps_of(pairs, 16, processes, window=12, even_tokens=True)
        fixed = steps_of(pairs, 16, processes, window=12)
        assert len(even) == len(fixed) == 125 // processes
        assert all(len({len(batch) for batch in step}) == 1 for step in even)
        rows = [row for step in even for batch in step for row in batch]
        assert len(rows) == len(set(rows)) == 16 * processes * len(even)
        costs, before = ([cost(pairs, b) for step in kind for b in step] for kind in (even, fixed))
        assert np.std(costs) / np.mean(costs) < 0.1 < 0.4 < np.std(before) / np.mean(before)


@pytest.mark.parametrize("processes", [2, 25])
def test_the_batches_of_a_step_are_of_like_length(processes):
    """With as little padding as by one process."""
    pairs = PairDataset(make_groups(4000), seed=0)
    steps = steps_of(pairs, 8, processes, window=10)
    costs = np.array([[cost(pairs, batch) for batch in step] for step in steps])
    apart = costs.max(axis=1) / costs.mean(axis=1)
    assert np.median(apart) < 1.3
    assert np.ptp(costs.mean(axis=1)) > costs.mean()  # and steps are of unlike length
    alone = padding(pairs, make_sampler(pairs, 8, window=10))
    shared = padding(pairs, (batch for step in steps for batch in step))
    assert shared < alone + 0.02


@pytest.mark.parametrize(("multiple", "least"), [(1, 1), (1, 2), (2, 1), (2, 2), (4, 1)])
def test_cuts_keep_to_the_least_size(multiple, least):
    """Against all ways to cut."""
    rng = np.random.default_rng(multiple)
    for _ in range(20):
        lengths = np.sort(rng.integers(1, 12, size=4 * multiple * rng.integers(1, 4)))
        places = range(multiple, len(lengths), multiple)
        for parts in range(1, min(4, len(lengths) // multiple // least) + 1):
            ways = (np.split(lengths, cuts) for cuts in combinations(places, parts - 1))
            best = min(
                max(len(part) * part.max() for part in way)
                for way in ways
                if min(map(len, way)) >= least * multiple
            )
            found = np.split(lengths, even_cuts(lengths, parts, multiple, least))
            assert len(found) == parts
            assert all(len(part) % multiple == 0 for part in found)
            assert min(map(len, found)) >= least * multiple
            assert max(len(part) * part.max() for part in found) == best


# In accelerate's loaders -------------------------------------------------------------------------


def loader(dataset, rank=0, processes=1, workers=0, **more):
    """Prepare a loader as a Trainer does in one of several processes; batches stay lists."""
    options = {"seed": 5, "window": 3, "process": rank, "processes": processes} | more
    plain = DataLoader(
        dataset, batch_sampler=make_sampler(dataset, 8, **options), collate_fn=list,
        num_workers=workers, persistent_workers=workers > 0,
    )  # fmt: skip
    return own_loader(plain, None)


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_processes_share_an_epoch(processes, even):
    for epoch in range(2):
        rows = []
        for rank in range(processes):
            prepared = loader(PairDataset(make_groups(), seed=3), rank, processes, even_tokens=even)
            prepared.set_epoch(epoch)
            rows += [pair["group"] for batch in prepared for pair in batch]
        assert len(rows) == len(set(rows)) == N // 8 // processes * processes * 8


def test_processes_get_batches_of_one_size_though_the_last_is_short():
    data = PairDataset(make_groups(23))
    ranks = [loader(data, rank, 2, drop_last=False) for rank in range(2)]
    batches = [list(prepared) for prepared in ranks]
    assert [[len(batch) for batch in own] for own in batches] == [[8, 4], [8, 4]]
    assert [len(prepared) for prepared in ranks] == [2, 2]
    drawn = Counter(pair["group"] for own in batches for batch in own for pair in batch)
    assert sorted(drawn) == list(range(23))
    assert sorted(drawn.values())[-2:] == [1, 2]  # one is repeated


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("processes", [1, 2])
def test_a_loader_resumed_in_mid_epoch_goes_on_as_if_nothing_happened(processes, even):
    whole = loader(PairDataset(make_groups(), seed=3), processes - 1, processes, even_tokens=even)
    whole.set_epoch(2)
    expected = seeds(list(whole)[4:])
    whole.set_epoch(2)
    fresh = loader(PairDataset(make_groups(), seed=3), processes - 1, processes, even_tokens=even)
    resumed = skip_first_batches(fresh, 4)
    resumed.set_epoch(2)
    assert seeds(resumed) == expected
    assert expected


@pytest.mark.multiproc
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on one core
def test_workers_that_outlive_an_epoch_draw_the_next_one():
    alone, helped = (loader(PairDataset(make_groups(), 3), workers=n) for n in (0, 2))
    first, second = seeds(alone), seeds(alone)  # accelerate counts epochs by itself
    assert set(first) != set(second)
    assert seeds(helped) == first
    assert seeds(helped) == second


def test_fixed_pairs_have_two_sides():
    with pytest.raises(ValueError, match=r"columns source and target; these are \['source'\]"):
        FixedPairs({"source": ["a"]})
    columns = {"source": ["a", "b"], "target": ["c", "d"]}
    assert FixedPairs(datasets.Dataset.from_dict(columns))[1] == FixedPairs(columns)[1]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"target": ["c", None]}, r"target 1 is NoneType None; pass strings"),
        ({"negative": [7, "x"]}, r"negative 0 is int 7; pass strings"),
        ({"score": [1.0, float("nan")]}, r"score 1 is nan; pass finite numbers"),
        ({"score": ["1", "0"]}, r"score 0 is '1'; pass finite numbers"),
    ],
)
def test_fixed_pairs_hold_sentences_and_numbers(column, message):
    with pytest.raises(TypeError, match=message):
        FixedPairs({"source": ["a", "b"], "target": ["c", "d"], **column})
    scores = torch.tensor([1.0, 0.0]), [Decimal(1), Decimal(0)]
    for score in scores:
        assert (
            FixedPairs({"source": ["a", "b"], "target": ["c", "d"], "score": score})[1]["score"]
            == 0
        )


def test_fixed_pairs_keep_their_texts_and_renew_their_seeds():
    texts = ["a", "bb", "A ", "dddd"]
    pairs = FixedPairs({"source": texts, "target": texts, "negative": ["x"] * 4}, seed=5)
    sampler = make_sampler(pairs, batch_size=2, window=2)
    drawn = pairs.__getitems__([0, 1, 2, 3])
    assert [pair["group"] for pair in drawn] == [0, 1, 0, 2]
    assert [pair["target_group"] for pair in drawn] == [0, 1, 0, 2]
    assert {pair["negative_group"] for pair in drawn} == {3}
    first = pairs[-1]
    assert (first["source"], first["target"], first["negative"]) == ("dddd", "dddd", "x")
    assert sorted(sorted(batch) for batch in sampler) == [[0, 2], [1, 3]]
    sampler.set_epoch(1)
    assert pairs[3]["seed"] != first["seed"]
    sampler.set_epoch(0)
    assert pairs[3] == first
