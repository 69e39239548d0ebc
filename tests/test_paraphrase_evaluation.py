import errno
import io
import json
import math
import os
from itertools import islice, product
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, bootstrap

from scripts.evaluate_paraphrases import check_split, main, parse
from simbert_hf.arguments import DataArguments, SimilarityTrainingArguments
from simbert_hf.data import DataError, load_groups, split_groups
from simbert_hf.judging import evaluation
from simbert_hf.judging.evaluation import (
    USUAL,
    HeldOut,
    System,
    controls,
    exchange_word,
    load_held_out,
    measure,
    nearest_others,
    read_paraphrases,
    share,
)
from simbert_hf.judging.judge import Judge
from simbert_hf.judging.metrics import bleu, self_bleu
from simbert_hf.judging.report import as_json, caption, markdown_table, samples_page
from simbert_hf.training.data import hold_out
from tests.tiny import tiny_judge, tiny_simbert

DATA = HeldOut(
    ["how can i go there", "what time is it?", "where are you"],
    [["how do i go there"], ["tell me the time", "which time is it?"], ["where do you go"]],
)
SYSTEM = System(
    "mine",
    [["how do i go there", "How can I go there?"], ["what time is it now"], []],
    [[0.9, 1.0], [0.8], []],
    {"perplexity": 3.5, "kinship": 0.01},
)
SCORES = [[0.9, 0.95], [0.2], []]


def test_figures_of_a_system_by_hand() -> None:
    found = measure(SYSTEM, SCORES, 0.9, DATA, k=2)
    assert found["candidates"] == pytest.approx(3 / 3)
    assert found["accepted_1"]["share"] == pytest.approx(1 / 3)
    assert found["accepted_k"]["share"] == pytest.approx((2 + 0 + 0) / 6)
    assert found["new_k"]["share"] == pytest.approx(1 / 6)  # the second is a copy
    assert found["copies"] == pytest.approx(1 / 3)
    assert found["repeats"] == 0
    assert found["self_bleu"] == self_bleu(SYSTEM.candidates[:1])
    assert found["distinct_1"] == pytest.approx(12 / 16)
    best = ["how do i go there", "what time is it now", ""]
    assert found["bleu"] == bleu(best, DATA.references)
    assert found["ibleu"] == pytest.approx(
        0.8 * found["bleu"] - 0.2 * bleu(best, [[source] for source in DATA.sources])
    )
    assert (found["perplexity"], found["kinship"]) == (3.5, 0.01)


def test_interval_is_the_bootstrap_s() -> None:
    passed = [[i % 3 > 0] for i in range(40)]
    found = share(passed, 1)
    data, options = (np.array(passed, float)[:, 0],), {"n_resamples": 9999, "random_state": 0}
    wanted = bootstrap(data, np.mean, method="percentile", **options).confidence_interval
    assert (found["low"], found["high"]) == pytest.approx((wanted.low, wanted.high), abs=0.026)
    assert found["low"] < found["share"] == 26 / 40 < found["high"]


def test_interval_is_exact_where_resamples_are_all_alike() -> None:
    for passed, k in ((True, 1), (True, 2), (False, 1)):
        found, wanted = share([[passed, passed]] * 50, k), binomtest(50 * passed, 50)
        assert found.pop("share") == passed
        assert tuple(found.values()) == pytest.approx(wanted.proportion_ci())


def test_a_system_that_gives_nothing_has_no_figures_but_zeros() -> None:
    silent = System("silent", [[], [], []])
    found = measure(silent, [[], [], []], 0.5, DATA, k=2)
    assert found["accepted_1"]["share"] == found["bleu"] == found["chrf"] == 0
    assert found["copies"] is found["repeats"] is found["distinct_1"] is found["self_bleu"] is None


@pytest.mark.parametrize("k", [1, 5])
def test_a_system_of_one_candidate_is_no_control(k: int) -> None:
    candidates = [["how do i go there"], ["do tell me the time"], ["where are you"]]
    scores = [[0.9], [0.2], [0.9]]
    found = measure(System("mine", candidates), scores, 0.5, DATA, k)
    assert found["accepted_k"]["share"] == pytest.approx(2 / 3 / k)
    assert found["new_k"]["share"] == pytest.approx(1 / 3 / k)  # the last is a copy
    assert found["distinct_1"] == pytest.approx(12 / 13)
    for control in controls(DATA, 0):
        row = measure(control, scores, 0.5, DATA, k)
        assert {"accepted_k", "new_k", "distinct_1", "distinct_2"}.isdisjoint(row)


def test_controls_are_what_they_say() -> None:
    human, copy, exchanged, nearest, random = controls(DATA, seed=0)
    assert [row[0] for row in human.candidates] == [row[0] for row in DATA.references]
    assert measure(human, [[0.9], [0.9], [0.1]], 0.5, DATA, 2)["bleu"] is None
    assert copy.candidates == [[source] for source in DATA.sources]
    assert measure(copy, [[1], [1], [1]], 0.5, DATA, 2)["copies"] == 1
    for source, (changed,) in zip(DATA.sources, exchanged.candidates, strict=True):
        before, after = source.split(), changed.split()
        assert sum(a != b for a, b in zip(before, after, strict=True)) == 1
        [new] = {*after} - {*before}
        assert any(new.strip("?") in other for other in DATA.sources if other != source)
    for seed in range(20):
        others = controls(DATA, seed)[-1].candidates
        assert sorted(others) == sorted([[row[0]] for row in DATA.references])
        assert all(o[0] not in own for o, own in zip(others, DATA.references, strict=True))
    assert [row[0] for row in nearest.candidates] == nearest_others(DATA)
    assert nearest.candidates[0][0] in ("where do you go", "where are you")
    assert random.name == "random other sentence"


@pytest.mark.parametrize(
    ("text", "other", "changed"),
    [
        ("Is it late?", "It is cold.", "Is it cold?"),
        ("今天冷", "我们都热", "都热冷"),
        ("《活着》是谁写的？", "《我》想买一张票", "《活着》一张写的？"),  # marks stay
        ("iphone手机怎么充电", "我想买票", "买票手机怎么充电"),
        ("Go!", "go", "Go!"),  # nothing to exchange
        ("?!", "go", "?!"),
    ],
)
def test_one_word_is_exchanged(text: str, other: str, changed: str) -> None:
    assert exchange_word(text, other) == changed


def test_table_and_samples_show_good_and_bad() -> None:
    rows = [measure(system, SCORES, 0.5, DATA, 2) for system in (SYSTEM,)]
    head, _, line = markdown_table(rows, 2).splitlines()
    assert "accepted of 2" in head
    assert line.startswith("| mine  ")
    assert line.split()[-4:] == ["3.5", "|", ".01", "|"]
    page = samples_page([SYSTEM, *controls(DATA, 0)], [SCORES] * 6, 0.5, DATA, count=2)
    assert "nearest other" not in page
    assert "1. how do i go there (accepted 0.90, cosine 0.90)" in page
    assert "1. what time is it now (**refused** 0.20, cosine 0.80)" in page
    assert "where are you" not in page
    everything = samples_page([SYSTEM], [SCORES], 0.9, DATA, count=1)
    assert "1. how do i go there (accepted 0.90, cosine 0.90)" in everything


def test_caption_warns_of_a_judge_that_takes_anything() -> None:
    figures = {"pairs": 9, "auc": 0.8, "accepted": 0.9, "false_accepts": 0.25}
    judge = Judge(None, 0.5, {"start": {"name": "s"}, "figures": {"dev": figures}})
    random = controls(DATA, 0)[-1]
    good, bad = ([measure(random, [[s]] * 3, 0.5, DATA, 2)] for s in (0.1, 0.9))
    fair = [measure(random, [[0.9], [0.1], [0.1]], 0.5, DATA, 2)]
    line = "- dev: 9 pairs, AUC 0.800; accepts 90.0% of the paraphrases, 25.0% of the others."
    assert line in caption(judge, good, DATA, {})
    assert "CAUTION" not in caption(judge, good, DATA, {"a": 0.01})
    assert "- its kinship with a: .01.\n" in caption(judge, good, DATA, {"a": 0.01})
    kin = "- CAUTION: it is related to what it judges, by its kinship with a: .91.\n"
    assert kin in caption(judge, good, DATA, {"a": 0.91})
    caution = "CAUTION: it accepts 100% of the control row 'random other sentence'"
    assert caution in caption(judge, bad, DATA, {})
    assert "CAUTION: it accepts 33% of the control row" in caption(judge, fair, DATA, {})


def test_json_holds_finite_numbers_only() -> None:
    judge = Judge(None, 0.5, {})
    json.loads(as_json(judge, {}, DATA, [SYSTEM], [SCORES], [{"perplexity": 3.5}], {}))
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_json(judge, {}, DATA, [SYSTEM], [SCORES], [{"perplexity": math.nan}], {})


# Files ------------------------------------------------------------------------------------------


def write_groups(path: Path, count: int = 12) -> Path:
    lines = [
        {"text": f"where is cat {x}", "synonyms": [f"cat {x} is where", f"tell me where {x} is"]}
        for x in islice(map("".join, product(ascii_lowercase, repeat=2)), count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_held_out_groups_are_those_of_the_training_run(tmp_path) -> None:
    path = write_groups(tmp_path / "groups.jsonl")
    held_out = split_groups(load_groups(path)[0], 5, seed=42)[1]
    data = load_held_out([str(path)], 5, split_seed=42, limit=None)
    groups = {(source, *row) for source, row in zip(data.sources, data.references, strict=True)}
    assert groups == {tuple(row["texts"]) for row in held_out}
    assert load_held_out([str(path)], 5, 42, limit=3).sources == data.sources[:3]
    assert data.origin == (
        "5 drawn from the 5 groups of groups.jsonl that training with seed 42 held out"
    )
    whole = load_held_out([str(path)], None, 42, None)
    assert len(whole.sources) == 12
    assert (data.others, whole.others) == (7, None)
    assert whole.sources != load_held_out([str(path)], None, 43, None).sources
    assert whole.origin.startswith("12 drawn from all groups of groups.jsonl, as if no model was")


def test_the_usual_share_is_what_training_holds_out(tmp_path) -> None:
    path = write_groups(tmp_path / "groups.jsonl", 60)
    args = SimilarityTrainingArguments(output_dir=str(tmp_path), report_to="none")
    told = DataArguments(train_file=[str(path)])
    held_out = hold_out(load_groups(path)[0], told, args)[1]
    data = load_held_out([str(path)], USUAL, args.seed, None)
    groups = {(source, *row) for source, row in zip(data.sources, data.references, strict=True)}
    assert groups == {tuple(texts) for texts in held_out["texts"]}
    assert data.origin.startswith("6 drawn from the 6 groups of groups.jsonl that training")


def test_held_out_pairs_of_named_columns(tmp_path) -> None:
    path = tmp_path / "pairs.csv"
    rows = [f"{i},text {i},twin {i},note {i}\n" for i in range(8)]
    path.write_text("".join(["id,left,right,note\n", *rows]))
    columns = ("left", "right")
    held_out = split_groups(load_groups(path, text_columns=columns)[0], 3, seed=7)[1]
    data = load_held_out([str(path)], 3, 7, None, columns)
    groups = {(source, *row) for source, row in zip(data.sources, data.references, strict=True)}
    assert groups == {tuple(texts) for texts in held_out["texts"]}


def test_too_few_groups(tmp_path) -> None:
    path = write_groups(tmp_path / "groups.jsonl", 9)
    with pytest.raises(
        DataError, match=r"groups\.jsonl: has too few groups \(9\) for training to hold"
    ):
        load_held_out([str(path)], USUAL, 42, None)
    path = write_groups(tmp_path / "groups.jsonl", 1)
    with pytest.raises(DataError, match=r"groups\.jsonl: give at least two groups to measure on"):
        load_held_out([str(path)], None, 0, None)


def test_outputs_of_others_in_any_order(tmp_path) -> None:
    path = tmp_path / "peer.jsonl"
    rows = [
        {"text": "Where are  you", "paraphrases": []},
        {"text": "something else", "paraphrases": ["x"]},
        {"text": "how can i go there", "paraphrases": ["a ", {"text": "b", "score": 0.9}, "", "c"]},
        {"text": "what time is it?", "paraphrases": ["d"]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_paraphrases(str(path), DATA, k=2)
    assert (found.name, found.candidates) == ("peer", [["a", "b"], ["d"], []])
    row = measure(found, [[0.9, 0.9], [0.9], []], 0.5, DATA, 2)
    assert row["kinship"] == "unknown"
    assert read_paraphrases(str(path), DATA, 2, "other").name == "other"
    assert markdown_table([row], 2).endswith(" unknown |")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"text": "a", "paraphrases": "b"}\n', r'peer\.jsonl:1: holds .*Write \{"text"'),
        ('{"text": "a", "paraphrases": [1]}\n', r"peer\.jsonl:1: 1 is int, not a sentence"),
        (
            '{"text": "a", "paraphrases": [{"at": 1}]}\n',
            r"peer\.jsonl:1: .* is dict, not a sentence",
        ),
        ('{"text": "a"}\n', r"peer\.jsonl:1: holds"),
        ('{"text": "a", "paraphrases": []}\n', "has no paraphrases of 'how can i go there'"),
        ("", "has no paraphrases of 'how can i go there'"),
        (2 * '{"text": "a", "paraphrases": []}\n', r"peer\.jsonl:2: repeats 'a'"),
        (
            "".join(f'{{"text": "{text}", "paraphrases": ["", " "]}}\n' for text in DATA.sources)
            + '{"text": "a", "paraphrases": ["b"]}\n',
            r"peer\.jsonl: has no paraphrase of any held-out sentence\. Write at least one",
        ),
    ],
)
def test_outputs_that_cannot_be_measured(tmp_path, text: str, message: str) -> None:
    path = tmp_path / "peer.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_paraphrases(str(path), DATA, k=2)


# The script -------------------------------------------------------------------------------------


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    groups = write_groups(tmp_path / "groups.jsonl")
    tiny_judge(tmp_path / "judge")
    model = tiny_simbert()
    with torch.no_grad():
        model.cls.predictions.bias[model.rows.sep_id] += 8  # so that sentences end
    model.save_pretrained(tmp_path / "model")
    out = ["--output_dir", str(tmp_path / "out"), "--k", "3", "--n", "30", "--limit", "4"]
    return ["--judge", str(tmp_path / "judge"), "--groups", str(groups), "--all_groups", *out]


@pytest.mark.filterwarnings("ignore:The model has no token")  # it is tiny
def test_script_end_to_end(tmp_path, flags, capsys) -> None:
    model = ["--models", str(tmp_path / "model")]
    main([*flags, *model])
    main([*flags, "--list_sources"])
    listed = capsys.readouterr().out.splitlines()[-4:]
    first = json.loads((tmp_path / "out" / "paraphrases.json").read_text())
    peer = tmp_path / "peer.jsonl"
    with peer.open("w") as file:
        for sample in first["samples"]:
            found = [text for text, _ in sample["paraphrases"]["model"]]
            file.write(json.dumps({"text": sample["text"], "paraphrases": found}) + "\n")
    assert list(map(json.loads, listed)) == [{"text": each["text"]} for each in first["samples"]]
    named = ["--models", f"mine={tmp_path / 'model'}", "--outputs", f"theirs={peer}"]
    main([*flags, *named])
    again = json.loads((tmp_path / "out" / "paraphrases.json").read_text())
    names = [row["name"] for row in again["rows"]]
    assert names == [
        "mine", "theirs", "reference", "copy of the source", "one word exchanged",
        "nearest other sentence", "random other sentence",
    ]  # fmt: skip
    mine, theirs = again["rows"][:2]
    assert mine | {"name": "model"} == first["rows"][0]  # the same seed writes and judges the same
    assert mine["candidates"] > 1
    shared = {k: v for k, v in mine.items() if k not in ("name", "perplexity", "kinship")}
    assert theirs == {"name": "theirs", "kinship": "unknown", **shared}
    judge = Judge.load(tmp_path / "judge")
    for sample in again["samples"]:
        pairs = [(sample["text"], text) for text, _ in sample["paraphrases"]["theirs"]]
        assert judge.score(pairs).tolist() == [s for _, s in sample["paraphrases"]["theirs"]]
    assert again["judge"]["threshold"] == judge.threshold
    assert again["bleu"].startswith("nrefs:2|case:lc|eff:no|tok:13a|smooth:exp|version:")
    printed = capsys.readouterr().out
    assert "\n| mine   " in printed
    assert "Sources: 4 drawn from all groups of groups.jsonl, as if" in printed
    assert (tmp_path / "out" / "paraphrases.md").read_text().startswith(printed.rstrip())


@pytest.mark.filterwarnings("ignore:The model has no token")  # it is tiny
def test_what_a_model_has_written_outlives_a_kill(tmp_path, flags, monkeypatch) -> None:
    other = tiny_simbert(num_hidden_layers=1)
    with torch.no_grad():
        other.cls.predictions.bias[other.rows.sep_id] += 8
    other.save_pretrained(tmp_path / "other")
    flags = [*flags[2:], "--models", str(tmp_path / "model"), str(tmp_path / "other")]
    main(flags)
    whole = (tmp_path / "out" / "paraphrases.json").read_text()
    write, models = evaluation.gen_synonyms, []

    def killed(*given, model, **options):
        models.append(model)
        if len(models) == 2:
            raise KeyboardInterrupt
        return write(*given, model=model, **options)

    monkeypatch.setattr(evaluation, "gen_synonyms", killed)
    with pytest.raises(KeyboardInterrupt):
        main(flags)
    main(flags)
    assert [model.config.num_hidden_layers for model in models[1:]] == [1, 1]
    assert (tmp_path / "out" / "paraphrases.json").read_text() == whole
    assert not (tmp_path / "out" / "paraphrases.parts").exists()


@pytest.mark.filterwarnings("ignore:The model has no token")  # it is tiny
def test_script_without_a_judge_measures_the_rest(tmp_path, flags, capsys) -> None:
    model = ["--models", str(tmp_path / "model")]
    main([*flags, *model])
    judged = json.loads((tmp_path / "out" / "paraphrases.json").read_text())
    capsys.readouterr()
    main([*flags[2:], *model])
    printed = capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "paraphrases.json").read_text())
    of_the_judge = {"accepted_1", "accepted_k", "new_k", "kinship"}
    assert found["rows"] == [
        {k: v for k, v in row.items() if k not in of_the_judge} for row in judged["rows"]
    ]
    assert found["judge"] is None
    assert "No judge was used." in printed
    assert "Accepted of k" not in printed
    assert "| accepted of" not in printed
    assert "refused" not in (tmp_path / "out" / "paraphrases.md").read_text().split("## The")[1]
    with pytest.raises(SystemExit):
        main([*flags[2:], *model, "--related_models", "a"])
    assert (
        "--related_models and --allow_related_judge need a judge; give" in capsys.readouterr().err
    )
    with pytest.raises(SystemExit):
        main([*flags[2:], *model, "--allow_related_judge"])


@pytest.mark.filterwarnings("ignore:The model has no token")  # it is tiny
def test_script_refuses_kin_unless_told(tmp_path, flags, capsys) -> None:
    kin = str(tmp_path / "judge")
    model = ["--models", str(tmp_path / "model"), "--related_models", kin]
    with pytest.raises(ValueError, match="is related to"):
        main([*flags, *model])
    main([*flags, *model, "--allow_related_judge"])
    printed = capsys.readouterr().out
    assert "\n| model  " in printed
    assert f"- CAUTION: it is related to what it judges, by its kinship with {kin}: .98." in printed
    found = json.loads((tmp_path / "out" / "paraphrases.json").read_text())
    assert found["related_models"] == {kin: 0.9787}  # padding has no direction


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "there is nothing to evaluate; give --models or --outputs"),
        (
            ["--outputs", "a", "--held_out"],
            "--held_out: not allowed with argument --all_groups",
        ),
        (
            ["--outputs", "a", "--validation_groups", "3"],
            "--validation_groups: not allowed with argument --all_groups",
        ),
        (["--outputs", "a", "--k", "0"], "--k: 0 is too few; give at least 1"),
        (["--outputs", "a", "--n", "2"], "--k: 3 is more than --n 2"),
        (["--outputs", "a", "--limit", "1"], "--limit: 1 is too few; give at least 2"),
        (["--outputs", "a", "--samples", "-1"], "--samples: -1 is too few; give at least 0"),
        (["--outputs", "a", "--k", "x"], "--k: invalid integer value: 'x'"),
    ],
)
def test_flags_out_of_range(flags, capsys, more: list[str], message: str) -> None:
    with pytest.raises(SystemExit):
        main([*flags, *more])
    assert message in capsys.readouterr().err


def test_numbers_and_seed_reach_who_writes(tmp_path, flags, monkeypatch) -> None:
    told = []

    def written(*given: object) -> None:
        told.append(given[-3:-1])
        raise InterruptedError

    monkeypatch.setattr("scripts.evaluate_paraphrases.write_paraphrases", written)
    monkeypatch.setattr(
        "scripts.evaluate_paraphrases.controls",
        lambda data, seed: told.append(seed) or controls(data, seed),
    )
    for n in ("7", "3"):  # as many as --k are enough
        more = ["--models", str(tmp_path / "model"), "--n", n, "--seed", "5"]
        with pytest.raises(InterruptedError):
            main([*flags[2:], *more])
    assert told == [5, (7, 3), 5, (3, 3)]


def test_which_groups_has_to_be_said(flags, capsys) -> None:
    flags.remove("--all_groups")
    with pytest.raises(SystemExit):
        main([*flags, "--outputs", "a"])
    assert (
        "one of the arguments --held_out --validation_groups --all_groups is required"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("then", "given", "message"),
    [
        ({"train_file": ["a.tsv"], "validation_file": "v.tsv"}, [], "give --groups v.tsv --all_g"),
        ({"train_file": ["a.tsv", "c.tsv"]}, [], r"groups was \['a.tsv', 'c.tsv'\], now"),
        ({"train_file": ["x/a.tsv"], "seed": 1}, [], "split_seed was 1, now 42"),
        ({"train_file": ["a.tsv"]}, ["--validation_groups=3"], "groups was not given, now 3"),
        ({"train_file": ["a.tsv"], "text_columns": ["s", "t"]}, [], r"\['s', 't'\], now not given"),
        (
            {"train_file": ["a.tsv"], "data_format": "groups"},
            [],
            "data_format was groups, now auto",
        ),
        ({"train_file": ["a.tsv"], "dataset_split": "dev"}, [], "split was dev, now train"),
        ({"train_file": ["a.tsv"], "streaming": True}, [], "held out none of a.tsv: give other"),
        ({"train_file": ["a.tsv"], "validation_groups": 0}, [], "held out none of a.tsv"),
        ({"train_file": ["a.tsv"], "examples": "triplets"}, [], "held out none of a.tsv"),
        ({"train_file": ["a.tsv"], "rows": 7}, [], "had 7 groups, .* has 8: it has changed since"),
        ({"train_file": ["b.tsv"], "validation_file": "v.tsv"}, [], None),  # others altogether
        ({"train_file": ["a.tsv"], "seed": 1}, ["--split_seed=1"], None),
        ({"train_file": ["a.tsv"], "validation_groups": 3}, ["--validation_groups=3"], None),
    ],
)
def test_what_training_saw_is_not_called_held_out(tmp_path, then, given, message) -> None:
    record = {"script": "train_simbert.py", "rows": then.pop("rows", 8), "arguments": then}
    (tmp_path / "run.json").write_text(json.dumps(record))
    which = [] if any("groups=" in flag for flag in given) else ["--held_out"]
    paths = ["--groups", "other/a.tsv", "--models", str(tmp_path), "--output_dir", "out"]
    args = parse([*paths, *which, *given])
    if message is None:
        for others in (8, None):  # known, or not
            check_split(str(tmp_path), args, others)
        return
    with pytest.raises(ValueError, match=message):
        check_split(str(tmp_path), args, 8)


@pytest.mark.filterwarnings("ignore:The model has no token")  # it is tiny
def test_figures_outlive_a_terminal_without_letters_and_a_full_disk(
    tmp_path, flags, monkeypatch, capsys
) -> None:
    flags += ["--models", f"模型={tmp_path / 'model'}"]
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
        with pytest.raises(UnicodeEncodeError):
            main(flags)
    rows = json.loads((tmp_path / "out" / "paraphrases.json").read_text())["rows"]
    assert rows[0]["name"] == "模型"
    monkeypatch.setattr("scripts.evaluate_paraphrases.write_text", full_disk)
    with pytest.raises(OSError, match="No space left"):
        main(flags)
    assert "\n| 模型 " in capsys.readouterr().out


def full_disk(*_: object) -> None:
    """Stand in for a write."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_nothing_is_written_before_everything_is_read(tmp_path, flags, monkeypatch) -> None:
    def written(*_: object) -> None:
        pytest.fail("a model wrote")

    monkeypatch.setattr("scripts.evaluate_paraphrases.write_paraphrases", written)
    model = ["--models", str(tmp_path / "model")]
    with pytest.raises(DataError, match=r"nowhere\.jsonl: is not a file"):
        main([*flags, *model, "--outputs", "nowhere.jsonl"])
    with pytest.raises(ValueError, match=r"Two rows would be named 'model'; .*: write NAME="):
        main([*flags, *model, str(tmp_path / "other" / "model")])


def test_an_output_folder_is_tried_first_and_made_last(
    tmp_path, flags, monkeypatch, read_only
) -> None:
    def refused(*_: object) -> None:
        raise ValueError("related")

    monkeypatch.setattr("scripts.evaluate_paraphrases.check_writer", refused)
    flags += ["--models", str(tmp_path / "model")]
    with pytest.raises(ValueError, match="related"):
        main(flags)
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").touch()
    with pytest.raises(NotADirectoryError, match=r"--output_dir .*out is a file: name a folder"):
        main(flags)
    read_only(tmp_path)
    with pytest.raises(PermissionError, match="is not writable"):
        main([*flags, "--output_dir", str(tmp_path / "new")])
