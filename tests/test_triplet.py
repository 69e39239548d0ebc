"""Triplet training from end to end: data, script, collapse meter, on tiny encoders."""

import csv
import math
from pathlib import Path
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from scripts.train_triplet import main
from simbert_hf import SimBert
from simbert_hf.arguments import DataArguments
from simbert_hf.data.triplets import Triplet
from simbert_hf.evaluation.evaluators import StsEvaluator
from simbert_hf.evaluation.geometry import CollapseMeter
from simbert_hf.gru import CharGru
from simbert_hf.mining.negatives import MiningSettings, mine_triplets
from simbert_hf.objectives import SimCseObjective
from simbert_hf.triplet.members import MemberCollator, MemberDataset
from simbert_hf.triplet.objective import TripletObjective
from simbert_hf.triplet.renewal import Renewal, RenewedTriplets
from simbert_hf.triplet.training import (
    TripletArguments,
    examples_of,
    load_triplet_data,
    make_collator,
)
from simbert_hf.utils.textfiles import read_json
from tests.naive import naive_topk_accuracy
from tests.tiny import (
    NOUNS,
    ROWS,
    assert_resumes,
    lines_with,
    losses_of,
    save_tiny_simbert,
    tiny_simbert,
)


@pytest.fixture
def start(tmp_path: Path) -> Path:
    save_tiny_simbert(tmp_path / "start")
    return tmp_path / "start"


@pytest.fixture
def triplets(tmp_path: Path) -> Path:
    path = tmp_path / "mined.csv"
    by_noun = {noun: [text for text, its in ROWS if its == noun] for noun in NOUNS}
    rows = [
        (by_noun[NOUNS[i]][j], by_noun[NOUNS[i]][j + 1], by_noun[NOUNS[(i + 1) % 4]][j])
        for i in range(4)
        for j in range(11)
    ]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("sent0", "sent1", "hard_neg"), *rows])
    return path


def flags(start: Path, data: Path, out: Path, *more: str) -> list[str]:
    return [
        f"--model_name_or_path={start}", f"--train_file={data}", f"--output_dir={out}",
        "--per_device_train_batch_size=6", "--use_cpu", "--max_steps=8", "--eval_strategy=steps",
        "--eval_steps=4", "--save_strategy=steps", "--save_steps=4", "--logging_steps=1",
        "--learning_rate=5e-3", "--report_to=none", "--disable_tqdm=true", "--length_window=1",
        *more,
    ]  # fmt: skip


def test_an_epoch_cuts_every_group_into_different_parts() -> None:
    texts = [[group * i for i in range(1, 1 + n)] for group, n in (("a", 9), ("b", 2), ("c", 4))]
    groups = datasets.Dataset.from_dict({"texts": texts, "group": [4, 5, 6]})
    parts = MemberDataset(groups, size=4, seed=3)
    first = [parts[i] for i in range(len(parts))]
    assert [(part["group"], len(part["texts"])) for part in first] == [
        (4, 4),
        (4, 4),
        (5, 2),
        (6, 4),
    ]
    seen = [text for part in first for text in part["texts"]]
    assert len(seen) == len(set(seen)) == 14
    assert all(text[0] == "abc"[part["group"] - 4] for part in first for text in part["texts"])
    parts.set_epoch(1)
    assert [parts[i] for i in range(4)] != first
    parts.set_epoch(0)
    assert [parts[i] for i in range(4)] == first
    assert parts[-1] == first[-1]
    with pytest.raises(ValueError, match="1 sentences per group"):
        MemberDataset(groups, size=1)
    with pytest.raises(TypeError, match="groups"):
        MemberDataset([["a", "b"]])


def test_a_group_is_read_once_for_all_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [[group * i for i in range(1, 7)] for group in "abc"]
    parts = MemberDataset(datasets.Dataset.from_dict({"texts": texts, "group": [4, 5, 6]}), seed=3)
    indices = [8, 0, 5, 2, 1, 8]
    alone = [parts[i] for i in indices]
    rows, read = [], datasets.Dataset.__getitem__
    monkeypatch.setattr(
        datasets.Dataset, "__getitem__", lambda own, key: rows.extend(key) or read(own, key)
    )
    assert parts.__getitems__(indices) == alone
    assert sorted(rows) == [0, 1, 2]


def test_a_batch_holds_its_parts_side_by_side() -> None:
    model = tiny_simbert()
    parts = [{"texts": ["a cat", "a dog ran"], "group": 7}, {"texts": ["go"], "group": 2}]
    collator = MemberCollator(model.rows)
    batch = collator(parts)
    assert collator.lengths(parts).tolist() == [5, 3]  # of the longest, with [CLS] and [SEP]
    assert batch["groups"].tolist() == [7, 7, 2]
    vectors = torch.nn.functional.normalize(
        model(**{k: v for k, v in batch.items() if k != "groups"}).sentence_embedding
    )
    assert np.allclose(vectors.detach(), model.encode(["a cat", "a dog ran", "go"]), atol=1e-5)


@pytest.mark.parametrize(
    "more",
    [
        ("--mining=all", "--sentences_per_group=4"),
        ("--loss=unanchored", "--sentences_per_group=4", "--learning_rate=1e-3"),
        ("--loss=sdml",),
        ("--loss=siamese", "--sentences_per_group=4", "--head_learning_rate=1e-2"),
    ],
)
def test_it_learns_from_groups(more, start: Path, intents: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    more = (*more, "--validation_groups=2", "--max_steps=24", "--warmup_steps=0",
            "--eval_steps=12", "--save_strategy=no")  # fmt: skip
    trainer = main(flags(start, intents, out, *more))
    losses = losses_of(trainer)
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])
    name = "accuracy" if more[0] in ("--loss=sdml", "--loss=siamese") else "active"
    assert all(0 <= line[name] <= 1 for line in lines_with("loss", trainer))

    assert not any("classifier" in name for name in load_file(out / "model.safetensors"))

    held_out = trainer.evaluator.groups
    texts = [text for row in held_out for text in row["texts"]]
    groups = [row["group"] for row in held_out for _ in row["texts"]]
    vectors = SimBert.from_pretrained(out).encode(texts)
    figures = lines_with("eval_top1", trainer)[-1]
    assert figures["eval_top1"] == pytest.approx(naive_topk_accuracy(vectors, groups, (1,))[1])
    cosines = vectors @ vectors.T
    mean = (cosines.sum() - len(texts)) / (len(texts) * (len(texts) - 1))
    assert figures["eval_mean_cosine"] == pytest.approx(mean, abs=1e-4)


def test_it_learns_from_given_triplets(start, triplets, tmp_path, caplog) -> None:
    caplog.set_level("INFO")
    validation = tmp_path / "held_out.csv"
    kept = [("text", "category"), *(row for row in ROWS if row[1] in NOUNS[3:])]
    with validation.open("w", newline="") as file:
        csv.writer(file).writerows(kept)
    more = ("--examples=triplets", f"--validation_file={validation}", "--max_steps=16",
            "--save_strategy=no")  # fmt: skip
    trainer = main(flags(start, triplets, tmp_path / "out", *more, "--distance=squared"))
    assert "left out 22 triplets with held-out sentences" in caplog.text
    held_out = {text for text, noun in ROWS if noun in NOUNS[3:]}
    columns = trainer.train_dataset.columns
    assert {*columns} == {"source", "target", "negative"}
    assert held_out.isdisjoint(text for column in columns.values() for text in column)
    losses = losses_of(trainer)
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])


def test_a_gru_learns_by_triplets_of_its_own_and_by_given_ones(
    start: Path, intents: Path, triplets: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    gru = ("--preset=gru", "--min_count=1", "--gru_size=16", "--model_name_or_path=")
    more = (*gru, "--loss=softmax", "--validation_groups=2", "--max_steps=40",
            "--eval_steps=20", "--save_strategy=no")  # fmt: skip
    trainer = main(flags(start, intents, out, *more, "--learning_rate=2e-2"))
    losses = losses_of(trainer)
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])
    assert set(CharGru.from_pretrained(out).tokenizer.get_vocab()) == {"[PAD]", "[UNK]"} | {
        letter for texts in trainer.train_dataset.groups["texts"] for text in texts
        for letter in text
    }  # fmt: skip
    given = ("--encoder=gru", f"--model_name_or_path={out}", "--examples=triplets")
    again = main(flags(start, triplets, tmp_path / "again", *given, "--max_steps=1"))
    assert again.model.config.hidden_size == 16


def test_the_model_that_trains_mines_anew(start: Path, intents: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    more = ("--remine_steps=4", "--range_min=1", "--validation_groups=0", "--learning_rate=3e-2")
    train = main(flags(start, intents, out, *more)).train_dataset  # mines at 0 and at 4 of 8 steps

    def mined_by(model: Path) -> list[Triplet]:
        settings = MiningSettings(range_min=1)
        return mine_triplets(train.groups, SentenceTransformer(str(model)), settings, seed=43)

    assert train.mined == mined_by(out / "checkpoint-4")
    assert train.mined != mined_by(start)
    rows = train.__getitems__(range(len(train)))
    drawn = [Triplet(row["source"], row["target"], row["negative"]) for row in rows]
    assert len(drawn) == 4 * 6
    assert len(set(drawn)) == len(drawn)
    assert set(drawn) <= set(train.mined)
    sentences = sum(map(len, train.groups["texts"]))  # not those that are drawn
    assert f"{sentences} examples of intents.csv." in (out / "README.md").read_text()
    assert read_json(out / "checkpoint-4" / "settings.json")["rows"] == sentences


@pytest.mark.slow
def test_mining_anew_shortens_no_run(start: Path, intents: Path, tmp_path: Path) -> None:
    more = ("--remine_steps=2", "--validation_groups=0", "--eval_strategy=no", "--max_steps=-1")
    trainer = main(flags(start, intents, tmp_path / "out", *more, "--num_train_epochs=2"))
    sentences = sum(map(len, trainer.train_dataset.groups["texts"]))
    batch = trainer.args.per_device_train_batch_size
    assert trainer.state.global_step == math.ceil(2 * sentences / batch) > 2 * 2


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(("--mining=random", "--sentences_per_group=4"), marks=pytest.mark.slow),
        ("--remine_steps=3",),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one(
    more, start, intents, tmp_path, monkeypatch
) -> None:
    def run(out: Path, *flag: str) -> None:
        options = (*more, "--validation_groups=0", "--per_device_train_batch_size=3")
        options += ("--max_steps=9", "--eval_strategy=no", *flag)
        main(flags(start, intents, out, *options))

    assert_resumes(run, tmp_path, {7: 4}, monkeypatch)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--margin=-1"], "--margin -1.0 is out of range"),
        (["--smoothing=1"], "--smoothing 1.0"),
        (["--scale=0", "--loss=softmax"], "--scale 0.0"),
        (["--scale=3"], "--scale 3.0 would change nothing, as --loss triplet does not read it"),
        (
            ["--per_device_train_batch_size=1"],
            "a group's negatives are the other groups of its batch",
        ),
        (["--margin=0.3", "--loss=sdml"], "--margin 0.3 would change nothing, as --loss sdml"),
        (["--sentences_per_group=1"], "--sentences_per_group 1: give at least 2"),
        (["--loss=sdml", "--sentences_per_group=4"], "uses pairs; drop it"),
        (["--remine_steps=9", "--sentences_per_group=4"], "drop --sentences_per_group"),
        (["--loss=softmax", "--mining=all"], "--mining all is only for --loss triplet on groups"),
        (
            ["--examples=triplets", "--mining=hard"],
            "--mining hard is only for --loss triplet on groups",
        ),
        (["--remine_steps=0"], "--remine_steps 0 must be at least 1"),
        (["--range_min=2"], "--range_min 2 needs --remine_steps"),
        (["--remine_steps=2", "--loss=sdml"], "mines groups for --loss triplet or unanchored"),
        (
            ["--remine_steps=2", "--dataloader_persistent_workers", "--dataloader_num_workers=1"],
            "drop --dataloader_persistent_workers",
        ),
        (["--examples=triplets", "--validation_groups=2"], "give --validation_file"),
        (["--examples=triplets"], "hold no triplets"),
        (["--examples=triplets", "--validation_file=DIR/one.tsv"], "one.tsv: has all sentences in"),
        (["--streaming=true"], "--streaming True would change nothing"),
        (["--train_file=DIR/one.tsv", "--validation_groups=0"], "are in one group"),
        (["--validation_groups=6"], "choose a number from 2 to 5"),
        (
            ["--metric_for_best_model=loss", "--validation_groups=2"],
            "loss is not measured; choose one of eval_top1",
        ),
        (
            ["--metric_for_best_model=tpo1", "--validation_groups=2", "--save_strategy=no"],
            "tpo1 is not measured; choose one of eval_top1",
        ),
    ],
)
def test_bad_input_is_named_before_training(more, message, start, intents, tmp_path) -> None:
    (tmp_path / "one.tsv").write_text("1\tone sentence\n1\tanother\n")
    more = [flag.replace("DIR", str(tmp_path)) for flag in more]
    with pytest.raises(ValueError, match=message):
        main(flags(start, intents, tmp_path / "out", *more))
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_scored_pairs_alone_choose_the_checkpoint(start, triplets, tmp_path) -> None:
    """By defaults, which evaluate and save after each epoch, and measure the best one again."""
    (tmp_path / "sts.tsv").write_text("a cat\ta dog\t1\na mat\ta cat sat\t3\na time\ttime\t5\n")
    names = ("strategy", "eval_steps", "save_steps", "max_steps")
    kept = [f for f in flags(start, triplets, tmp_path / "out") if not any(n in f for n in names)]
    trainer = main([*kept, "--examples=triplets", f"--sts_file={tmp_path / 'sts.tsv'}",
                    "--num_train_epochs=1"])  # fmt: skip
    found = [line["eval_sts_spearman"] for line in lines_with("eval_sts_spearman", trainer)]
    assert found == [trainer.state.best_metric] * 2


@pytest.mark.parametrize(
    ("arguments", "objective"),
    [
        (
            TripletArguments(loss="sdml", smoothing=0.1),
            TripletObjective("sdml", distance="squared", margin=1.0, smoothing=0.1),
        ),
        (
            TripletArguments(margin=0.7, distance="squared", mining="all"),
            TripletObjective(mining="all", distance="squared", margin=0.7),
        ),
        (TripletArguments(margin=0.0), TripletObjective(margin=0.0)),
        (TripletArguments(loss="softmax", scale=3.0), SimCseObjective(scale=3.0)),
        (
            TripletArguments(loss="softmax", examples="triplets"),
            SimCseObjective(symmetric=False),
        ),
    ],
)
def test_the_flags_reach_the_objective(
    arguments: TripletArguments, objective: TripletObjective | SimCseObjective
) -> None:
    assert arguments.objective() == objective


def test_the_seed_of_the_order_reaches_the_parts() -> None:
    groups = datasets.Dataset.from_dict({"texts": [["a", "b"]] * 2, "group": [0, 1]})
    assert examples_of(groups, TripletArguments(), SimpleNamespace(order_seed=7)).seed == 7


def test_a_run_that_mines_anew_has_every_sentence_as_an_anchor() -> None:
    args = SimpleNamespace(
        order_seed=7, dataloader_persistent_workers=False, train_batch_size=1, world_size=1,
        gradient_accumulation_steps=2, num_train_epochs=1.5, max_steps=-1,
    )  # fmt: skip
    groups = datasets.Dataset.from_dict({"texts": [["a", "b", "c"], ["d", "e"]], "group": [0, 1]})
    train = examples_of(groups, TripletArguments(remine_steps=3), args)
    assert (train.seed, len(train), train.rows) == (7, 6, 5)
    assert args.max_steps == 4  # of two triplets each: 7.5 sentences
    examples_of(groups, TripletArguments(remine_steps=3), args)
    assert args.max_steps == 4  # a given number stays


def test_triplets_are_drawn_in_another_order_each_time() -> None:
    triplets = [Triplet(letter, letter, letter) for letter in "abcdefgh"]
    renewed = RenewedTriplets(datasets.Dataset.from_dict({"texts": [], "group": []}), 20, seed=3)
    orders = []
    for epoch in (0, 1):
        renewed.set_epoch(epoch)
        renewed.renew(triplets)
        orders.append([pair["source"] for pair in renewed.__getitems__(range(20))])
        assert all({*orders[-1][i : i + 8]} == {*"abcdefgh"} for i in (0, 8))  # once before twice
    assert orders[0] != orders[1]


def test_given_triplets_keep_the_runs_choices(triplets: Path, tmp_path: Path) -> None:
    (tmp_path / "sts.tsv").write_text("a cat\ta dog\t1\na mat\ta cat sat\t3\n")
    args = SimpleNamespace(order_seed=7, metric_for_best_model="eval_effective_rank")
    data = DataArguments(train_file=[str(triplets)], sts_file=str(tmp_path / "sts.tsv"))
    told = TripletArguments(examples="triplets")
    train, evaluator = load_triplet_data(told, data, args)
    assert (train.seed, args.metric_for_best_model) == (7, "eval_effective_rank")
    assert isinstance(evaluator, StsEvaluator)


@pytest.mark.parametrize("more", [{}, {"examples": "triplets"}, {"remine_steps": 2}])
def test_limits_reach_the_collator(more: dict) -> None:
    model, data = tiny_simbert(), DataArguments(max_length=9, max_chars=5)
    collator = make_collator(TripletArguments(**more), data, model.rows)
    assert (collator.max_length, collator.max_chars) == (9, 5)


def test_mining_leaves_a_model_in_training_mode_and_takes_the_settings() -> None:
    model = tiny_simbert().train()
    texts = [["a cat", "the cat"], ["a dog", "the dog ran"], ["a mat", "the mat sat"]]
    groups = datasets.Dataset.from_dict({"texts": texts, "group": [0, 1, 2]})
    settings = MiningSettings(num_negatives=2)
    renewal = Renewal(RenewedTriplets(groups, 4), 3, settings)
    renewal.on_epoch_begin(None, SimpleNamespace(global_step=3), None, model=model)
    assert model.training
    assert len(renewal.triplets.mined) == 6 * 2
    encoder = model.eval().sentence_transformer()
    assert renewal.triplets.mined == mine_triplets(groups, encoder, settings, seed=1)


# --- the collapse meter --------------------------------------------------------------------------


def test_the_meter_warns_once_of_like_vectors(caplog: pytest.LogCaptureFixture) -> None:
    meter, rng = CollapseMeter(), np.random.default_rng(0)
    spread = rng.standard_normal((60, 16))
    like = spread + 20
    spread, like = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (spread, like))
    assert abs(meter(spread)["mean_cosine"]) < 0.1
    assert not caplog.records
    found = meter(like)
    assert found["mean_cosine"] > 0.9
    meter(like)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "mine hard ones" in caplog.text
    assert f"mean cosine of {found['mean_cosine']:.2f}" in caplog.text


def test_the_meter_warns_of_few_directions(caplog: pytest.LogCaptureFixture) -> None:
    signs = np.sign(np.random.default_rng(0).standard_normal((200, 1)))
    line = signs * np.eye(100)[:1]  # cosines of 1 and -1: on average 0
    found = CollapseMeter()(line)
    assert abs(found["mean_cosine"]) < 0.1
    assert found["effective_rank"] == pytest.approx(1)
    assert "effective rank of 1.0 (at most 100)" in caplog.text


def test_the_sts_evaluator_measures_the_spread_of_both_sides() -> None:
    model = tiny_simbert()
    pairs = [("a cat", "a dog", 1.0), ("a mat", "a cat sat", 3.0)]
    vectors = model.encode(["a cat", "a mat", "a dog", "a cat sat"])
    evaluator = StsEvaluator(pairs)
    found = evaluator(model)
    assert evaluator.names == tuple(found)
    expected = (vectors @ vectors.T)[~np.eye(4, dtype=bool)].mean()
    assert set(found) == {"sts_spearman", "mean_cosine", "effective_rank"}
    assert found["mean_cosine"] == pytest.approx(expected, abs=1e-5)
