"""The evaluation script from end to end, on two tiny models and a few sentences."""

import json
import logging
import lzma
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

from scripts.evaluate import main
from simbert_hf import CharGru
from simbert_hf.cards import add_results
from simbert_hf.data.scored import LabelledPair
from simbert_hf.evaluation.bootstrap import Bootstrap, Figure
from simbert_hf.evaluation.evaluators import StsEvaluator
from simbert_hf.evaluation.pairs import PairTask, load_pair_task
from simbert_hf.evaluation.report import write_report
from simbert_hf.evaluation.results import Results, TaskResult
from simbert_hf.evaluation.retrieval import load_retrieval_task
from simbert_hf.evaluation.sts import average, load_sts_tasks
from simbert_hf.evaluation.suite import EvaluationArguments, evaluate, load_tasks, split_name
from simbert_hf.modeling.sentence_transformers import EmbedderModule
from simbert_hf.utils.textfiles import DataError
from tests.tiny import WORDS, save_tiny_simbert, tiny_simbert

TEXTS = [f"{a} {b} cat" for a in WORDS[:8] for b in WORDS[8:14]]
PAIRS = list(pairwise(TEXTS))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Two models and files of every kind, in a folder."""
    save_tiny_simbert(tmp_path / "one")
    save_tiny_simbert(tmp_path / "two", "cls")
    years = tmp_path / "years"
    years.mkdir()
    scored = [f"{i * 7 % 6}\t{a}\t{b}" for i, (a, b) in enumerate(PAIRS)]
    (years / "2012-MSRpar.test.tsv").write_text("\n".join(scored[:20]))
    (years / "2012-OnWN.test.tsv").write_text("\n".join(scored[20:30]))
    (tmp_path / "stsb.tsv").write_text("\n".join(scored[::-1]))
    labelled = [f"{a}\t{b}\t{i * 7 % 3 // 2}" for i, (a, b) in enumerate(PAIRS)]
    (tmp_path / "dev.tsv").write_text("\n".join(labelled[:20]))
    (tmp_path / "test.tsv.xz").write_bytes(lzma.compress("\n".join(labelled[20:]).encode()))
    classes = [f"{text},{text.split()[0]}" for text in TEXTS]
    (tmp_path / "intents.csv").write_text("\n".join(["text,category", *classes]))
    return tmp_path


def flags(files: Path, *more: str) -> list[str]:
    return [
        "--models", f"{files}/one", f"second={files}/two",
        "--sts", f"STS-B={files}/stsb.tsv", f"{files}/years",
        "--pairs", f"mine={files}/dev.tsv,{files}/test.tsv.xz",
        "--retrieval", f"{files}/intents.csv",
        f"--output_dir={files}/out", "--bootstrap=100", *more,
    ]  # fmt: skip


def test_table_json_plots_and_card(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, encoded = SentenceTransformer.encode, []

    def spy(self, texts, **kwargs):
        if len(texts) > 8:  # by these few, vectors of an earlier call are known
            encoded.append(texts)
        return encode(self, texts, **kwargs)

    monkeypatch.setattr(SentenceTransformer, "encode", spy)
    results = main(flags(files, "--write_card=true"))
    assert [sorted(texts) for texts in encoded] == [sorted(TEXTS)] * 2  # each sentence once

    table = (files / "out" / "table.md").read_text()
    assert capsys.readouterr().out.startswith(table)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert rows[0] == ["test set", "n", "figure", "one", "second", "second - one", "p"]
    lacking = "SMTeuroparl, SMTnews"
    assert [row[0] for row in rows if row[2:3] == ["Spearman"]] == [
        f"STS12 without MSRvid, {lacking}",
        "STS-B",
        f"STS average without STS13, STS14, STS15, STS16, SICK-R, MSRvid, {lacking}",
        "STS12 MSRpar",
        "STS12 OnWN",
    ]
    assert "nan" not in table.lower().split()
    assert "chosen on the dev file" in table

    content = json.loads((files / "out" / "results.json").read_text())
    models = content["models"]
    vectors = SentenceTransformer(f"{files}/two", device="cpu").encode(TEXTS)
    cosines = np.array([a @ b for a, b in pairwise(vectors)])
    scores = [i * 7 % 6 for i in range(len(PAIRS))]
    found = models["second"]["STS-B"]["figures"]["spearman"]
    assert found["value"] == pytest.approx(spearmanr(cosines, scores).statistic)
    assert found["difference"] == pytest.approx(
        found["value"] - models["one"]["STS-B"]["figures"]["spearman"]["value"]
    )
    assert 0 < found["p_value"] <= 1
    shown = {(row[0], row[2]): row[5] for row in rows if len(row) == 7}
    assert shown["STS-B", "Spearman"] == f"{100 * found['difference']:+.2f}"
    less = models["second"]["mine"]["figures"]["uniformity"]["difference"]
    assert shown["mine", "uniformity"] == f"{less:+.3f}"
    together = spearmanr(cosines[:30], scores[:30]).statistic  # of all files of a year at once
    year = models["second"]["STS12"]
    assert year["figures"]["spearman"]["value"] == pytest.approx(together)
    assert year["parts"]["OnWN"]["figures"]["spearman"]["value"] == pytest.approx(
        spearmanr(cosines[20:30], scores[20:30]).statistic
    )
    mean = models["second"]["STS average"]["figures"]["spearman"]["value"]
    assert mean == pytest.approx((together + found["value"]) / 2)
    tasks = results.models["one"]
    halves = [tasks[name].figures["pearson"].replicates for name in ("STS12", "STS-B")]
    replicates = tasks["STS average"].figures["pearson"].replicates
    assert tasks["STS average"].size == tasks["STS12"].size + tasks["STS-B"].size
    assert replicates == pytest.approx((halves[0] + halves[1]) / 2)
    assert set(models["one"]["mine"]["figures"]) == {
        "auc", "ap", "accuracy", "f1", "alignment", "uniformity",
    }  # fmt: skip
    assert models["one"]["intents"]["facts"] == {"groups": len({t.split()[0] for t in TEXTS})}
    assert "difference" not in models["one"]["STS-B"]["figures"]["spearman"]
    assert content["settings"]["seed"] == 0

    for name in ("histograms", "curves", "geometry"):
        assert (files / "out" / f"{name}.png").stat().st_size > 5_000
    assert not (files / "two" / "README.md").exists()  # what ours is compared with
    index = ModelCard.load(files / "one" / "README.md").data.to_dict()["model-index"][0]
    assert index["name"] == "one"
    found = models["one"]["STS-B"]["figures"]["spearman"]
    by_set = {result["dataset"]["name"]: result for result in index["results"]}
    assert by_set["STS-B"]["metrics"][0] == {
        "type": "spearman_cosine", "value": round(found["value"], 4), "name": "Spearman",
    }  # fmt: skip
    assert [metric["type"] for metric in by_set["intents"]["metrics"]] == [
        "cosine_accuracy@1", "cosine_accuracy@5", "cosine_accuracy@10", "cosine_mrr", "cosine_map",
    ]  # fmt: skip


def test_a_model_that_fails_costs_none_before_it(files: Path) -> None:
    broken = tiny_simbert()
    torch.nn.init.constant_(broken.bert.embeddings.LayerNorm.weight, torch.nan)
    broken.save_pretrained(files / "two")
    with pytest.raises(DataError, match="is not of length 1"):
        main(flags(files))
    assert list(json.loads((files / "out" / "results.json").read_text())["models"]) == ["one"]


@pytest.mark.parametrize("what", ["output", "card"])
def test_what_cannot_be_written_is_known_before_anything_is_measured(
    files: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr("simbert_hf.evaluation.suite.evaluate", None)
    if what == "output":
        (files / "out").write_text("a file")
        with pytest.raises(OSError, match=r"out is a file, so .* name another"):
            main(flags(files))
        return
    (files / "one" / "README.md").write_text("---\nmodel-index:\n- name: one\n---\n")
    with pytest.raises(DataError, match=r"one.README\.md: is not a model card"):
        main(flags(files, "--write_card=true"))


def test_pairs_of_test_in_any_order_and_case_choose_no_threshold(tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("A cat\tA dog\t1\nA cow\tA hen\t0\n")
    (tmp_path / "dev.tsv").write_text("a dog\ta CAT\t1\nOne\tTwo\t1\nA cat\tA hen\t0\n")
    task = load_pair_task(None, tmp_path / "test.tsv", tmp_path / "dev.tsv")
    wanted = [("One", "Two", True), ("A cat", "A hen", False)]
    assert (task.name, task.dev) == ("test", wanted)


def test_vectors_need_not_be_of_length_one() -> None:
    model = SentenceTransformer(modules=[EmbedderModule(tiny_simbert())], device="cpu")
    pairs = [(a, b, float(i)) for i, (a, b) in enumerate(PAIRS[:9])]
    first, second = (
        model.encode(texts) for texts in zip(*(pair[:2] for pair in pairs), strict=True)
    )
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    assert lengths.std() > 0.01
    wanted = spearmanr((first * second).sum(axis=1) / lengths, range(9)).statistic
    assert StsEvaluator(pairs)(model)["sts_spearman"] == pytest.approx(wanted)


def test_a_run_can_be_repeated_from_yaml(files: Path) -> None:
    (files / "run.yaml").write_text(
        f"models: [one={files}/one]\nprompts: ['how ']\nsts: [{files}/stsb.tsv]\n"
        f"output_dir: {files}/yaml\nbootstrap: 0\n"
    )
    (results,) = main([f"{files}/run.yaml"]).models.values()
    figure = results["stsb"].figures["spearman"]
    assert figure.interval is None
    model = SentenceTransformer(f"{files}/one", device="cpu")
    vectors = model.encode([f"how {text}" for text in TEXTS])
    cosines = [a @ b for a, b in pairwise(vectors)]
    scores = [i * 7 % 6 for i in range(len(PAIRS))]
    assert figure.value == pytest.approx(spearmanr(cosines, scores).statistic)


def test_a_card_keeps_what_it_says_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(
        "---\nlicense: mit\ntags: [x]\nmodel-index:\n- name: old name\n  results:\n"
        "  - task: {type: semantic-similarity}\n    dataset: {name: STS-B, type: sts-b}\n"
        "    metrics:\n    - {type: spearman_cosine, value: 0.1}\n    - {type: mine, value: 2}\n"
        "---\n\n# A model\n\nText.\n"
    )
    (task,) = load_sts_tasks([("STS-B", write_scored(tmp_path))])
    found = task.measure(lambda texts: np.eye(8)[[len(text) for text in texts]], Bootstrap(0))
    add_results(tmp_path, "new name", {"STS-B": found})
    card = ModelCard.load(path)
    assert card.text == "\n\n# A model\n\nText.\n".removeprefix("\n")
    assert (card.data.license, card.data.tags, card.data.model_name) == ("mit", ["x"], "old name")
    metrics = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert len(metrics) == len(card.data.eval_results)
    assert metrics == {
        "mine": 2,
        "spearman_cosine": round(found.figures["spearman"].value, 4),
        "pearson_cosine": round(found.figures["pearson"].value, 4),
    }


@pytest.mark.parametrize("kind", ["simbert", "gru", "foreign"])
def test_a_card_made_for_figures_is_true(tmp_path: Path, kind: str) -> None:
    """It loads the directory, whatever the row is called, and does not say that none were found."""
    folder = tmp_path / "mine"
    if kind == "foreign":
        folder.mkdir()
        (folder / "config.json").write_text('{"model_type": "bert"}')
    else:
        model = tiny_simbert() if kind == "simbert" else CharGru.for_texts(TEXTS, min_count=1)
        model.save_pretrained(folder)
    figures = {"spearman": Figure(0.5), "pearson": Figure(float("nan"))}
    add_results(folder, "ours", {"STS-B": TaskResult("sts", 3, figures)})
    card = ModelCard.load(folder / "README.md")
    (result,) = card.data.eval_results  # no number is no figure
    assert (result.metric_type, result.metric_value) == ("spearman_cosine", 0.5)
    assert "# mine\n" in card.text
    assert not card.text.strip().startswith("---")
    assert "Nothing was measured" not in card.text
    assert '("ours")' not in card.text
    assert ('("mine")' in card.text) == (kind != "foreign")


def test_a_report_shows_no_plots_of_other_results_and_compares_with_no_other(
    tmp_path: Path,
) -> None:
    (tmp_path / "geometry.png").touch()
    found = {"intents": TaskResult("retrieval", 4, {"top1": Figure(0.5)})}
    table = write_report(Results({"one": found}, {"bootstrap": 100}), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["table.md"]
    assert "Brackets" in table
    assert "p:" not in table
    assert "dev file" not in table


def test_what_has_a_name_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b.csv").touch()
    assert split_name("a=b.csv") == (None, "a=b.csv")
    assert split_name("a=b.csv,c.csv") == (None, "a=b.csv,c.csv")
    assert split_name("a=c.csv") == ("a", "c.csv")
    monkeypatch.setattr("os.sep", "\\")  # as on Windows, where paths may have slashes too
    assert split_name("data/a=b.csv") == (None, "data/a=b.csv")
    assert split_name(r"data\a=b.csv") == (None, r"data\a=b.csv")


def test_only_the_first_model_needs_a_folder_for_its_card(files: Path) -> None:
    models = [f"{files}/one", "org/other"]
    given = EvaluationArguments(models=models, sts=[f"{files}/stsb.tsv"], write_card=True)
    assert [*given.model_paths()] == ["one", "other"]


def test_one_task_makes_no_average() -> None:
    assert average({"STS-B": TaskResult("sts", 3, {})}) is None


def write_scored(folder: Path) -> Path:
    path = folder / "scored.tsv"
    path.write_text("a\tb\t5\na\tbb\t1\nb\tbbb\t0\n")
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "A\tB\t3\nC\tD\t3\n",
            "bad.tsv: scores all 2 pairs 3, so nothing can correlate. Add pairs",
        ),
        ("A\tB\t3\n", "bad.tsv: holds one scored pair. A correlation needs at least two"),
        ("A\tB\t3\nC\tD\tx\n", "bad.tsv:2: the score 'x' is not a number"),
        ("A\tB\t3\nC\tD\t\n", "bad.tsv:2: the score '' is not a number"),
    ],
)
def test_bad_scores_are_named(files: Path, content: str, message: str) -> None:
    (files / "bad.tsv").write_text(content)
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        main(flags(files, "--sts", f"{files}/bad.tsv"))
    assert not (files / "out").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--models", "DIR/three"], "DIR/three is not a directory"),
        (["--models", "DIR/one", "one=DIR/two"], "share a name; write NAME=path"),
        (["--prompts", "query: "], "has 1 texts for 2 models; give one per model"),
        (["--pairs", "DIR/one.tsv"], r"DIR/one.tsv: is not a file"),
        (["--pairs", "DIR/same.tsv"], r"same.tsv: labels every row 1"),
        (["--pairs", "DIR/label.tsv"], r"label.tsv:2: the label '2' is neither 0 nor 1"),
        (["--pairs", "DIR/dev.tsv,DIR/dev.tsv"], "is both the dev and the test file"),
        (["--sts", "DIR/years", "DIR/2012-MSRpar.tsv"], "a second file of STS12's MSRpar, beside"),
        (["--sts", "X=DIR/stsb.tsv", "X=DIR/more/stsb.csv"], "a second file of X's stsb, beside"),
        (["--pairs", "a,b,c"], "give two files, DEV,TEST, or one"),
        (["--sts", "DIR/one"], "one: holds no tables"),
        (["--sts", "mine=DIR/stsb.tsv"], "are named mine; give each its own NAME"),
        (["--retrieval", "DIR/group.tsv"], r"group.tsv: has all 3 sentences in one group"),
        (["--bootstrap=5"], "5 resamples are too few"),
        (["--seed=-1"], "The seed is -1"),
        (
            ["--columns", "a"],
            r"--columns a: give three \(both sentences and the score or label\), or",
        ),
        (["--retrieval", "DIR/意图.csv"], r"意图.csv:1: .*in evaluations --columns LABEL TEXT"),
        (
            ["--retrieval", "DIR/意图.csv", "--columns", "意图", "句子"],
            r"do not hold '意图' and '句子'\. Rename the columns",
        ),
        (["--columns", "a", "b", "c"], "--columns a b c: no file has a header that holds these"),
        (["--retrieval", "mteb/banking77"], "mteb/banking77: is not a file"),
        (["--pairs", "DIR/more/stsb.csv"], "Write s1, s2, label in each row"),
    ],
)
def test_bad_arguments_are_named(files: Path, more: list[str], message: str) -> None:
    (files / "same.tsv").write_text("A\tB\t1\nC\tD\t1\n")
    (files / "label.tsv").write_text("A\tB\t1\nC\tD\t2\n")
    (files / "group.tsv").write_text("A\tB\nB\tC\n")
    (files / "意图.csv").write_text("意图,文本\nA,B\n", encoding="utf-8")
    (files / "more").mkdir()
    (files / "more" / "stsb.csv").write_text("s1,s2,score\nA,B,1\nC,D,2\n")
    (files / "2012-MSRpar.tsv").write_text("1\tA\tB\n2\tC\tD\n")
    more = [flag.replace("DIR", str(files)) for flag in more]
    with pytest.raises((ValueError, OSError), match=message.replace("DIR", str(files))):
        main(flags(files, *more))
    assert not (files / "out").exists()


@pytest.mark.parametrize("weight", [torch.nan, 0.0])
def test_the_sentence_of_a_vector_that_is_none_is_named(files: Path, weight: float) -> None:
    model = tiny_simbert()
    with torch.no_grad():
        if weight == 0.0:
            for layer in model.bert.encoder.layer:
                layer.output.LayerNorm.weight.zero_()
                layer.output.LayerNorm.bias.zero_()
        else:
            weights = model.bert.embeddings.word_embeddings.weight
            weights[model.tokenizer.convert_tokens_to_ids("dog")] = weight
    model.save_pretrained(files / "broken")
    (files / "dog.tsv").write_text("a cat\tthe cat\t3\n\na dog\ta cat\t1\n")
    text = "the cat" if weight == 0.0 else "a dog"  # the longest is encoded first
    message = rf"The model's vector of '{text}' is not of length 1\. Check for overflow"
    with pytest.raises(ValueError, match=message):
        main(
            [
                "--models",
                f"{files}/broken",
                "--sts",
                f"{files}/dog.tsv",
                f"--output_dir={files}/out",
            ]
        )
    assert not (files / "out" / "results.json").exists()


def test_a_collapsed_model_is_named(files: Path) -> None:
    model = tiny_simbert("cls")
    with torch.no_grad():
        model.bert.encoder.layer[-1].output.LayerNorm.weight.zero_()
    model.save_pretrained(files / "collapsed")
    with pytest.raises(ValueError, match=r"STS12: the model gives all 30 pairs the cosine 1\.0000"):
        main(flags(files, "--models", f"{files}/collapsed"))


def test_a_year_in_a_name_makes_no_task_of_it(tmp_path: Path) -> None:
    for name in ("reviews-2014.tsv", "2014-images.tsv"):
        (tmp_path / name).write_text("A\tB\t1\nC\tD\t2\n")
    tasks = load_sts_tasks((None, path) for path in sorted(tmp_path.iterdir()))
    assert [task.name for task in tasks] == ["STS14", "reviews-2014"]


def test_thresholds_are_found_on_dev() -> None:
    cosine = {"a": 1.0, "b": 0.9, "c": 0.7, "d": 0.5, "e": 0.3}  # with a
    vectors = {text: [c, (1 - c * c) ** 0.5] for text, c in cosine.items()}
    test = [LabelledPair("a", "b", True), LabelledPair("a", "c", False)]
    dev = [LabelledPair("a", "d", True), LabelledPair("a", "e", False)]
    task = PairTask("set", test, dev)
    found = task.measure(lambda texts: np.array([vectors[text] for text in texts]), Bootstrap(0))
    assert found.facts["accuracy_threshold"] == pytest.approx(0.4)
    assert found.figures["accuracy"].value == 0.5


def test_named_columns_hold_the_pairs(files: Path) -> None:
    (files / "pairs.csv").write_text("x,y,z,other\na,b,1,q\nc,d,0,q\n")
    given = EvaluationArguments(
        models=[f"{files}/one"], pairs=[f"{files}/pairs.csv"], columns=["x", "y", "z"]
    )
    (task,) = load_tasks(given)
    assert [pair.same for pair in task.test] == [True, False]


def test_named_columns_hold_the_classes(files: Path) -> None:
    (files / "意图.csv").write_text("文本,意图\nA,x\nB,x\nC,y\nD,y\n", encoding="utf-8")
    given = EvaluationArguments(
        models=[f"{files}/one"],
        sts=[f"{files}/stsb.tsv"],
        retrieval=[f"{files}/意图.csv"],
        columns=["意图", "文本"],
    )
    task = load_tasks(given)[1]
    assert (task.name, task.sentences) == ("意图", ("A", "B", "C", "D"))
    with pytest.raises(ValueError, match="name three: both sentences, score or label"):
        load_tasks(replace(given, retrieval=[]))


def test_sentences_that_a_model_cannot_read_are_told_of(
    files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (files / "foreign.csv").write_text(
        "a cat,the cat,1\n你好,早上,2\na dog,the dog,3\n", encoding="utf-8"
    )
    given = EvaluationArguments(models=[f"{files}/one"], sts=[f"{files}/foreign.csv"])
    evaluate(given, load_tasks(given))
    assert "the model cannot read 2 of 6 sentences, such as '你好'" in caplog.text


def test_each_model_has_its_prompt_and_the_seed_draws_the_resamples(files: Path) -> None:
    def figures(**more: object) -> list[Figure]:
        models = [f"{name}={files}/one" for name in "ab"]
        given = EvaluationArguments(
            models=models, sts=[f"x={files}/stsb.tsv"], bootstrap=100, **more
        )
        found = evaluate(given, load_tasks(given)).models
        return [found[name]["x"].figures["pearson"] for name in "ab"]

    (plain, _), (same, prompted) = figures(), figures(prompts=["", "how "], seed=1)
    assert same.value == pytest.approx(plain.value)
    assert abs(prompted.value - plain.value) > 1e-6
    assert same.interval != plain.interval


def test_results_are_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    path = tmp_path / "results.json"
    path.write_text("old")
    monkeypatch.setattr("simbert_hf.utils.atomic.put_in_place", full)
    with pytest.raises(OSError, match="No space"):
        Results({"a": {}}).save(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]  # a half takes no room


def test_a_full_disk_costs_no_plot_before_it_and_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    results = Results({"a": {"set": TaskResult("retrieval", 5, {"top1": Figure(0.5)})}})
    row = "| set      | 5 | top-1  | 50.00 |"
    with monkeypatch.context() as patch:
        patch.setattr(
            "simbert_hf.evaluation.report.plot_histograms", lambda _, path: path.write_text("whole")
        )
        patch.setattr("simbert_hf.evaluation.report.plot_curves", full)
        with pytest.raises(OSError, match="No space left on device"):
            write_report(results, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["histograms.png"]
    assert row in caplog.text.replace("  5", " 5")
    caplog.clear()
    (tmp_path / "table.md").mkdir()  # which cannot be written, either
    with pytest.raises(OSError, match="is a folder"):
        write_report(results, tmp_path)
    assert row in caplog.text.replace("  5", " 5")


def test_a_repeated_evaluation_encodes_only_what_is_missing(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, encoded = SentenceTransformer.encode, []

    def spy(self, texts, **kwargs):
        if len(texts) == len(TEXTS):
            encoded.append(self)
            if len(encoded) == 2:
                raise KeyboardInterrupt
        return encode(self, texts, **kwargs)

    monkeypatch.setattr(SentenceTransformer, "encode", spy)
    own = files / "out" / "vectors" / "mine.npy"
    own.parent.mkdir(parents=True)
    own.touch()
    with pytest.raises(KeyboardInterrupt):
        main(flags(files))
    again = main(flags(files))
    assert len(encoded) == 3  # the first model's once
    assert own.exists()
    assert not (files / "out" / "vectors.parts").exists()
    monkeypatch.setattr(SentenceTransformer, "encode", encode)
    assert main(flags(files)).to_json() == again.to_json()


def test_sentences_that_differ_in_case_alone_are_one(tmp_path: Path) -> None:
    (tmp_path / "groups.tsv").write_text("1\tHi there\n1\thi  there\n1\tHello\n2\tBye\n2\tCiao\n")
    task = load_retrieval_task(None, tmp_path / "groups.tsv")
    assert sorted(map(str.lower, task.sentences)) == ["bye", "ciao", "hello", "hi there"]


def test_classes_of_one_sentence_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "groups.tsv").write_text("1\tHi\n1\tHello\n2\tBye\n2\tCiao\n3\tYes\n4\tNo\n")
    with caplog.at_level(logging.WARNING, "simbert_hf"):
        task = load_retrieval_task(None, tmp_path / "groups.tsv")
    assert sorted(task.sentences) == ["Bye", "Ciao", "Hello", "Hi"]
    assert "groups.tsv: 4 records -> 2 groups" in caplog.text
    assert "left out: 2 one-member records" in caplog.text


def test_half_precision_weights_are_measured_in_float32(files: Path) -> None:
    tiny_simbert().half().save_pretrained(files / "half")
    config = json.loads((files / "half" / "config.json").read_text())
    (files / "half" / "config.json").write_text(json.dumps(config | {"dtype": "float16"}))
    found = main([*flags(files), "--models", f"{files}/half", f"{files}/one"])
    half, whole = (tasks["STS-B"].figures["pearson"].value for tasks in found.models.values())
    assert half == pytest.approx(whole, abs=1e-3)
    model = SentenceTransformer(f"{files}/half")
    assert next(model.parameters()).dtype == torch.float16  # else this tests nothing
