import json
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from scripts.train_judge import main as train
from simbert_hf.data import DataError, FixedPairs
from simbert_hf.data.scored import LabelledPair
from simbert_hf.judging import training
from simbert_hf.judging.judge import (
    Judge,
    acceptance_threshold,
    check_independent,
    fingerprint,
    judge_figures,
    kinship,
    plain,
    word_embeddings,
)
from simbert_hf.judging.training import (
    JudgeArguments,
    LabelledFile,
    group_by_length,
    load_cross_encoder,
    load_labelled_file,
    load_splits,
    measure,
    mismatch,
    pair_lengths,
)
from tests.tiny import (
    save_tiny_simbert,
    tiny_judge,
    tiny_simbert,
    unigram_tokenizer,
    wordpiece_tokenizer,
)

PAIRS = [
    ("how can i learn english fast", "please tell me how to learn english"),
    ("what time is it?", "a cat sat on the mat"),
    ("where are you going?", "the weather is nice today and a dog ran"),
]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (r"what is it \?", "What is it?"),
        ("it cost $ 3.5 million , he said .", "It cost $3.5 million, he said."),
        ("i ca n't go", "I can't go"),
        ("你 好 吗 ？", "你好吗？"),
    ],
)
def test_tokenization_and_case_do_not_show(first: str, second: str) -> None:
    assert plain(first) == plain(second)


# Scores -----------------------------------------------------------------------------------------


def test_scores_are_the_mean_of_both_orders_in_any_company(tmp_path, monkeypatch) -> None:
    judge = tiny_judge(tmp_path)
    scores = judge.score(PAIRS)
    by_hand = []
    for first, second in PAIRS:
        both = [(first, second), (second, first)]
        found = []
        for a, b in both:
            inputs = judge.model.tokenizer(a, b, return_tensors="pt")
            with torch.no_grad():
                found.append(judge.model.model(**inputs).logits.sigmoid().item())
        assert found[0] != pytest.approx(found[1], abs=1e-3)  # the order does matter to the model
        by_hand.append(sum(found) / 2)
    assert scores == pytest.approx(by_hand, abs=1e-5)
    assert scores.tolist() == judge.score([(b, a) for a, b in PAIRS]).tolist()
    assert scores.tolist() == [judge.score([pair])[0] for pair in PAIRS]
    assert np.ptp(scores) > 0.01
    monkeypatch.setattr("simbert_hf.judging.judge.BATCH_SIZE", 1)
    assert scores.tolist() == judge.score(PAIRS).tolist()


def test_score_lists_keep_their_shape(tmp_path) -> None:
    judge = tiny_judge(tmp_path)
    (a, b), (c, d), (e, f) = PAIRS
    found = judge.score_lists([a, c, e], [[b, d], [], [f]])
    assert found == [judge.score([(a, b), (a, d)]).tolist(), [], judge.score([(e, f)]).tolist()]
    assert judge.score_lists([a], [[]]) == [[]]


def test_save_and_load(tmp_path) -> None:
    judge = tiny_judge(tmp_path / "a", threshold=0.25)
    loaded = Judge.load(tmp_path / "a")
    assert (loaded.threshold, loaded.record) == (0.25, judge.record)
    assert loaded.score(PAIRS).tolist() == judge.score(PAIRS).tolist()
    loaded.save(tmp_path / "b")
    assert Judge.load(tmp_path / "b").score(PAIRS).tolist() == judge.score(PAIRS).tolist()


def test_a_judge_without_some_weights_is_refused(tmp_path) -> None:
    tiny_judge(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 9}))
    with pytest.raises(ValueError, match=r"describes; missing or mismatched: .*layer"):
        Judge.load(tmp_path)


def test_a_whole_number_is_a_threshold(tmp_path) -> None:
    tiny_judge(tmp_path)
    record = json.loads((tmp_path / "judge.json").read_text())
    (tmp_path / "judge.json").write_text(json.dumps(record | {"threshold": 1}))
    assert Judge.load(tmp_path).threshold == 1


def test_a_failed_save_leaves_the_former_judge(tmp_path, monkeypatch) -> None:
    judge = tiny_judge(tmp_path, threshold=0.25)
    former = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(directory, **options):
        Path(directory, "model.safetensors").write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(judge.model, "save_pretrained", full)
    with pytest.raises(OSError, match=r"Saving the judge in .* failed: No space.*a full disk"):
        judge.save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == former


def test_what_is_no_judge_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"holds no judge\.json, so it is not a judge; train one"):
        Judge.load(tmp_path)
    for content in ("{", "[]"):
        (tmp_path / "judge.json").write_text(content)
        with pytest.raises(
            DataError, match=r"judge\.json (cannot be read as|does not hold a) JSON"
        ):
            Judge.load(tmp_path)
    for content in (
        "{}",
        '{"threshold": true}',
        '{"threshold": 2.0}',
        '{"threshold": "high"}',
        '{"threshold": NaN}',
    ):
        (tmp_path / "judge.json").write_text(content)
        with pytest.raises(ValueError, match="is not a number from 0 to 1; train the judge again"):
            Judge.load(tmp_path)


# Threshold and figures --------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 37])
@pytest.mark.parametrize("share", [0.5, 0.9, 1.0])
def test_threshold_is_the_highest_that_accepts_the_share(count: int, share: float) -> None:
    rng = np.random.default_rng(count)
    for scores in (rng.integers(0, 8, count) / 8, rng.permutation(count)):  # with ties, and without
        accepting = [t for t in scores if np.mean(scores >= t) >= share - 1e-9]
        assert acceptance_threshold(scores, share) == max(accepting)


def test_figures_equal_slow_ones() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.random(60).round(1), rng.integers(0, 2, 60)
    pairs = list(zip(scores, labels, strict=True))
    positive, negative = ([s for s, label in pairs if label == wanted] for wanted in (1, 0))
    wins = [(p > n) + 0.5 * (p == n) for p, n in product(positive, negative)]
    hits = sum(s >= 0.5 for s in positive)
    false = sum(s >= 0.5 for s in negative)
    assert judge_figures(scores, labels, 0.3) == pytest.approx(
        {
            "pairs": 60,
            "auc": sum(wins) / len(wins),
            "accuracy": (hits + len(negative) - false) / 60,
            "f1": 2 * hits / (hits + false + len(positive)),
            "accepted": sum(s >= 0.3 for s in positive) / len(positive),
            "false_accepts": sum(s >= 0.3 for s in negative) / len(negative),
        }
    )


# Kinship ----------------------------------------------------------------------------------------


def test_kinship_knows_a_model_by_its_tokens() -> None:
    model = tiny_simbert()
    vocabulary, weights = word_embeddings(model)
    order = torch.randperm(len(weights))
    renamed = {token: int((order == row).nonzero()) for token, row in vocabulary.items()}
    trained = weights[order] + 0.05 * torch.randn_like(weights)
    assert kinship((vocabulary, weights), (renamed, trained)) > 0.95
    assert abs(kinship((vocabulary, weights), (vocabulary, trained))) < 0.3  # rows mistaken
    assert kinship((vocabulary, weights), (vocabulary, weights[:, :8])) == 0
    assert kinship((vocabulary, weights), ({"unheard": 0}, weights)) == 0


def test_kin_are_not_judged(tmp_path) -> None:
    judge = tiny_judge(tmp_path / "judge")
    stranger = tiny_simbert()
    assert abs(check_independent(judge, stranger, "stranger")) < 0.3
    kin = tiny_simbert()  # of 47 tokens, padding has no direction
    with torch.no_grad():
        kin.get_input_embeddings().weight.copy_(word_embeddings(judge.model)[1])
    kin.save_pretrained(tmp_path / "kin")
    for model in (kin, tmp_path / "kin", str(tmp_path / "kin")):
        with pytest.raises(ValueError, match=r"made from tiny\) is related to mine: .* is 0\.979"):
            check_independent(judge, model, "mine")
        assert (
            check_independent(judge, model, "mine", allow_related_judge=True) == 0.9787
        )  # 46 of 47
    other = tiny_simbert(tokenizer=unigram_tokenizer())
    assert abs(check_independent(judge, other, "other vocabulary")) < 0.3


# Labelled pairs and training --------------------------------------------------------------------


def test_a_labelled_file_with_columns_of_other_names(tmp_path) -> None:
    (path := tmp_path / "named.csv").write_text("same,left,right\ntrue,A,C\nfalse,D,E\n")
    found = load_labelled_file(path, ["left", "right", "same"])
    assert found.pairs == [("A", "C", True), ("D", "E", False)]
    assert found.record()["paraphrases"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a\tb\t1\nc\td\t3\n", r"pairs\.tsv:2: the label '3' is neither 0 nor 1\. Write 1 for a"),
        ("1\ta\tb\n\tc\td\n0\te\tf\n", r"pairs\.tsv:2: the label '' is neither 0 nor 1"),
        ("a\tb\t1\nc\td\t1\n", "labels every row 1. Add pairs with the other label"),
        ("a\tb\t0\n", "labels every row 0"),
    ],
)
def test_pairs_that_train_no_judge(tmp_path, text: str, message: str) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        load_labelled_file(path)


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    """Flags of a tiny training run: with "today" it is a paraphrase, with "fast" it is none."""
    words = "cat dog mat weather time english password".split()
    starts = ("how is the", "where is a", "please learn", "tell me what", "can i reset the")
    sentences = [f"{start} {word}" for start in starts for word in words]
    rows = [
        f"{text}\t{text} {('fast', 'today')[i % 2]}\t{i % 2}\n" for i, text in enumerate(sentences)
    ]
    splits = {"train": [*rows[:23], rows[-1]], "dev": rows[23:29], "test": rows[29:]}
    save_tiny_simbert(tmp_path / "start")
    found = [
        "--model_name_or_path",
        str(tmp_path / "start"),
        "--output_dir",
        str(tmp_path / "judge"),
    ]
    for name, lines in splits.items():
        (tmp_path / f"{name}.tsv").write_text("".join(lines))
        found += [f"--{name}_file", str(tmp_path / f"{name}.tsv")]
    return [*found, "--disable_tqdm", "true"]


def test_training_script_end_to_end(tmp_path, flags, capsys) -> None:
    recipe = ["--num_train_epochs", "25", "--learning_rate", "3e-3"]
    saving = ["--save_strategy", "steps", "--save_steps", "50"]  # pickles the arguments
    judge = train([*flags, *recipe, *saving, "--per_device_train_batch_size", "7"])
    printed = capsys.readouterr().out
    record = json.loads((tmp_path / "judge" / "judge.json").read_text())
    assert record["training_pairs"] == {"pairs": 28, "mismatched": 5}
    assert [row["left_out"] for row in record["data"]["train"]] == [1]
    assert (
        "Left out, as they share a sentence with held-out pairs: 1 in train, 0 in dev." in printed
    )
    assert record["training"]["batch_size"] == 7
    assert [row["pairs"] for row in (*record["data"]["dev"], *record["data"]["test"])] == [6, 6]
    start = word_embeddings(tmp_path / "start")
    assert record["start"] == {"name": "start", "sha256": fingerprint(start[1])}
    assert record["start"]["sha256"] == fingerprint(word_embeddings(judge.model)[1])  # frozen

    loaded = Judge.load(tmp_path / "judge")
    for split in ("dev", "test"):
        pairs = load_labelled_file(tmp_path / f"{split}.tsv").pairs
        labels = np.array([pair.same for pair in pairs])
        scores = loaded.score([(pair.first, pair.second) for pair in pairs])
        assert record["figures"][split] == judge_figures(scores, labels, loaded.threshold)
    assert record["figures"]["dev"]["accepted"] >= 0.9
    pairs = load_labelled_file(tmp_path / "train.tsv").pairs
    labels = np.array([pair.same for pair in pairs])
    scores = loaded.score([(pair.first, pair.second) for pair in pairs])
    assert judge_figures(scores, labels, 0.5)["auc"] > 0.75  # untrained: about a half
    (row,) = (line.split() for line in printed.splitlines() if line.startswith("| dev  "))
    assert row[:6] == ["|", "dev", "|", "6", "|", f"{record['figures']['dev']['auc']:.3f}"]
    with pytest.raises(
        ValueError, match="is related to start: the mean cosine of their word embeddings"
    ):
        check_independent(loaded, tmp_path / "start", "start")


@pytest.mark.parametrize("auc", [0.6, 0.8])
def test_a_judge_that_hardly_tells_pairs_apart_is_told_of(flags, monkeypatch, caplog, auc) -> None:
    monkeypatch.setattr(training, "fit", lambda *_: None)
    figures = judge_figures(np.array([0.9, 0.1]), np.array([1, 0]), 0.5) | {"auc": auc}
    monkeypatch.setattr(training, "measure", lambda *_: (0.5, {"dev": figures}))
    train(flags)
    assert ("its AUC on dev is 0.60" in caplog.text) == (auc < 0.7)


def test_a_diverged_judge_is_refused(flags) -> None:
    with pytest.raises(ValueError, match=r"diverged: .* a lower --learning_rate than 1e\+06"):
        train([*flags, "--learning_rate", "1e6", "--max_steps", "3"])


def test_training_refuses_what_it_cannot_use(tmp_path, flags) -> None:
    flags[1] = str(tmp_path / "nowhere")
    with pytest.raises(OSError, match="nowhere"):
        train(flags)
    (tmp_path / "train.tsv").write_text((tmp_path / "dev.tsv").read_text())
    with pytest.raises(DataError, match="Every training pair shares a sentence with the dev or"):
        train(flags)


@pytest.mark.parametrize(("given", "read"), [(10, 10), (100, 64)])
def test_a_judge_reads_as_much_as_its_start_can(tmp_path, given: int, read: int) -> None:
    save_tiny_simbert(tmp_path)
    arguments = JudgeArguments(str(tmp_path), [], [], [], max_length=given)
    assert load_cross_encoder(arguments, 0).max_seq_length == read


@pytest.mark.parametrize(("drop_last", "sizes"), [(False, [2, 1]), (True, [2])])
def test_batches_of_a_judge_are_dropped_as_its_flag_says(drop_last: bool, sizes: list[int]) -> None:
    pairs = FixedPairs({"source": ["a"] * 3, "target": ["b"] * 3})
    lengths = partial(pair_lengths, wordpiece_tokenizer())
    batches = group_by_length(None, 2, drop_last, seed=0, pairs=pairs, lengths=lengths)
    assert [len(batch) for batch in batches] == sizes


def test_the_seed_draws_the_mismatched_pairs(flags, monkeypatch) -> None:
    def drawn(pairs, count, seed=0):
        raise LookupError(seed)

    monkeypatch.setattr(training, "mismatch", drawn)
    with pytest.raises(LookupError, match="7"):
        train([*flags, "--seed", "7"])


def test_the_threshold_is_found_on_dev(monkeypatch) -> None:
    """Of pairs whose first sentence is their score."""
    monkeypatch.setattr(training, "score", lambda _, pairs: np.array([float(a) for a, _ in pairs]))
    files = {
        name: LabelledFile(
            name, "", [LabelledPair(yes, f"{name} b", True), LabelledPair(no, f"{name} c", False)]
        )
        for name, yes, no in (("dev", "0.4", "0.1"), ("test", "0.8", "0.2"))
    }
    assert measure(None, [files["dev"]], [files["test"]])[0] == 0.4


def test_dev_and_test_share_no_sentence(tmp_path) -> None:
    texts = {
        "train.tsv": "p\tq\t1\nz\tB\t0\n",
        "more.tsv": "c\tx\t1\ny\th\t0\n",
        "dev.tsv": "a\tb\t1\nc\td\t0\ne\tf\t1\n",
        "test.tsv": "g\tE\t1\nh\ti\t0\n",
        "small.tsv": "e\tf\t1\nc\td\t0\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    train_file, more, dev, test, small = ([str(tmp_path / name)] for name in texts)
    found = load_splits(JudgeArguments("start", [*train_file, *more], dev, test))
    assert [file.pairs for file in found["train"]] == [[("p", "q", True)], []]
    assert found["dev"][0].pairs == [("a", "b", True), ("c", "d", False)]
    assert [found[split][0].left_out for split in ("train", "dev", "test")] == [1, 1, 0]
    with pytest.raises(DataError, match=r"dev\.tsv: the dev file holds the same as .* dev\.tsv\."):
        load_splits(JudgeArguments("start", train_file, dev, [*test, *dev]))
    message = r"small\.tsv: 1 pairs share a sentence with .*test\.tsv\. Use a dev file that has"
    with pytest.raises(DataError, match=message):
        load_splits(JudgeArguments("start", train_file, small, test))


def test_files_of_one_name_are_measured_apart(tmp_path) -> None:
    names = ("a/train.tsv", "a/dev.tsv", "b/dev.tsv", "a/test.tsv", "b/test.tsv")
    for number, name in enumerate(names, start=1):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        rows = (f"{i % 2}\t{name} how {i}\t{name} where {i}\n" for i in range(2 * number))
        path.write_text("".join(rows))
    train_file, *others = [str(tmp_path / name) for name in names]
    found = load_splits(JudgeArguments("start", [train_file], others[:2], others[2:]))
    model = tiny_judge(tmp_path / "judge").model
    figures = measure(model, found["dev"], found["test"])[1]
    assert {name: row["pairs"] for name, row in figures.items() if "mismatched" not in name} == {
        "dev": 10, "dev: a/dev.tsv": 4, "dev: b/dev.tsv": 6,
        "test": 18, "test: a/test.tsv": 8, "test: b/test.tsv": 10,
    }  # fmt: skip
    assert [file.name for file in found["train"]] == ["train.tsv"]


def test_a_save_sweeps_what_a_kill_has_left(tmp_path: Path) -> None:
    (left := tmp_path / "_saving").mkdir()
    (left / "model.safetensors").touch()
    tiny_judge(tmp_path)
    assert not left.exists()
    assert Judge.load(tmp_path).threshold == 0.5


def test_flags_of_training_that_cannot_work(flags) -> None:
    with pytest.raises(ValueError, match=r"--columns \['a', 'b'\]: give three names"):
        train([*flags, "--columns", "a", "b"])
    with pytest.raises(ValueError, match="--resume_from_checkpoint: a judge cannot be resumed"):
        train([*flags, "--resume_from_checkpoint", "somewhere"])
    with pytest.raises(ValueError, match="--columns a b c: no file has a header"):
        train([*flags, "--columns", "a", "b", "c"])
    with pytest.raises(ValueError, match="start is also an input"):
        train([*flags, "--output_dir", flags[1]])
    (other := Path(flags[3])).mkdir()
    (other / "config.json").touch()
    with pytest.raises(ValueError, match="judge already holds a model or a run"):
        train(flags)
    (other / "_saving").mkdir()
    (other / "_saving" / "judge.json").touch()  # what a save that was killed has left makes room
    with pytest.raises(ValueError, match="--columns a b c: no file has a header"):
        train([*flags, "--columns", "a", "b", "c"])
    (other / "judge.json").touch()  # as a former judge does
    with pytest.raises(ValueError, match="--columns a b c: no file has a header"):
        train([*flags, "--columns", "a", "b", "c"])


@pytest.mark.parametrize(
    "idle",
    ["per_device_eval_batch_size 4", "eval_steps 5", "push_to_hub True", "eval_strategy steps"],
)
def test_flags_that_change_nothing_for_a_judge(flags, idle: str) -> None:
    with pytest.raises(ValueError, match=f"--{idle}.* would change nothing, as a judge"):
        train([*flags, *f"--{idle}".split()])


@pytest.mark.parametrize(
    "given",
    ["mismatched nan", "mismatched inf", "gradient_accumulation_steps 0", "weight_decay nan"],
)
def test_numbers_that_train_no_judge(flags, given: str) -> None:
    with pytest.raises(ValueError, match=f"^--{given}: "):
        train([*flags, *f"--{given}".split()])


def test_mismatched_pairs_are_of_different_rows() -> None:
    pairs = [LabelledPair(f"a {i}", f"b {i}", True) for i in range(7)]
    found = mismatch(pairs, 500, seed=3)
    assert len(found) == 500
    drawn = {(int(pair.first[2:]), int(pair.second[2:])) for pair in found}
    assert drawn == {(i, j) for i in range(7) for j in range(7) if i != j}
    assert {pair.same for pair in found} == {False}


def test_mismatched_pairs_are_unrelated() -> None:
    related = [LabelledPair("a", "b", True), LabelledPair("A", "c", True)]
    related.append(LabelledPair("d", "a", True))
    assert mismatch(related, 9) == []
    others = [LabelledPair("x", "y", True), LabelledPair("z", "y", False)]
    found = {(pair.first, pair.second) for pair in mismatch([*related, *others], 300)}
    assert found == {*product("aAd", "y"), *product("xz", "bca")}
