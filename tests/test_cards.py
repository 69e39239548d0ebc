"""Cards say what the JSON files say, and the code in them runs."""

import errno
import json
import logging
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import ModelCard

from scripts.make_card import main
from scripts.train_simcse import main as train
from simbert_hf import DEFAULT_MODEL, CharGru
from simbert_hf.arguments import DataArguments, ModelArguments, TrainingArguments
from simbert_hf.cards import (
    CardArguments,
    add_results,
    describe_model,
    judged_samples,
    longest,
    make_card,
    write_card,
)
from simbert_hf.data import DataError
from simbert_hf.modeling.whitening import whiten
from simbert_hf.run_record import as_yaml, describe_run, record_run
from simbert_hf.utils.parsing import parse_arguments
from tests.tiny import WORDS, tiny_simbert

SHIPPED_CARD = Path(__file__).parents[1] / "model_cards/simbert-minilm-en/README.md"
EVALUATION = {
    "settings": {"bootstrap": 1000},
    "models": {
        name: {
            "STS-B": {
                "kind": "sts",
                "size": 1379,
                "lacks": [],
                "facts": {},
                "figures": {"spearman": {"value": value, "interval": [value - 0.02, value + 0.01]}},
            },
            "mine": {
                "kind": "pairs",
                "size": 20,
                "lacks": ["half"],
                "facts": {},
                "figures": {"uniformity": {"value": -2.5, "interval": None}},
            },
        }
        for name, value in (("start", 0.8), ("tiny", 0.845678))
    },
}
SHARE = {"share": 0.5, "low": 0.25, "high": 0.75}
PARAPHRASES = {
    "settings": {"k": 5},
    "sources": "4 held-out groups",
    "judge": {"threshold": 0.6},
    "rows": [{"name": "tiny", "accepted_1": SHARE, "bleu": 12.34}, {"name": "people"}],
    "samples": [
        {
            "text": f"question {i}",
            "references": [f"reference {i}"],
            "paraphrases": {"tiny": [[f"best {i}", score], ["second", 0.99]], "people": []},
        }
        for i, score in enumerate([0.9, 0.1, 0.7, 0.6, 0.95])
    ],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_simbert("linear_pooler").save_pretrained(folder)
    return folder


def code(card: ModelCard) -> list[str]:
    return re.findall(r"```python\n(.*?)```", card.text, re.DOTALL)


def test_a_full_disk_leaves_the_card_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(self: ModelCard, filepath: Path) -> None:
        Path(filepath).write_text(str(self)[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    CharGru.for_texts(["a cat sat"], min_count=1).save_pretrained(tmp_path)
    card = write_card(CardArguments(model=str(tmp_path)))
    former = card.read_text()
    monkeypatch.setattr(ModelCard, "save", save)
    with pytest.raises(OSError, match=r"No space left on device: .*README\.md"):
        write_card(CardArguments(model=str(tmp_path), license="mit"))
    with pytest.raises(OSError, match=r"No space left on device: .*README\.md"):
        add_results(tmp_path, "name", {})
    assert card.read_text() == former
    assert not [*tmp_path.glob("*.part")]


def test_the_card_s_code_runs_and_agrees(model: Path) -> None:
    card = make_card(CardArguments(model=str(model), repo_id=str(model)))
    spaces = []
    for block in code(card):
        spaces.append({})
        exec(block, spaces[-1])
    tool, ours, _ = spaces
    sentences = ["one sentence", "another"]
    np.testing.assert_allclose(tool["vectors"], ours["model"].encode(sentences), atol=1e-5)
    assert f"(2, {tool['vectors'].shape[1]})" in card.text
    assert tool["similarities"].shape == (2, 2)


@pytest.mark.slow
def test_the_shipped_card_s_code_runs() -> None:
    """It loads what the package brings along, which lies on no Hub; and a new card would too."""
    blocks = code(ModelCard.load(SHIPPED_CARD))
    assert blocks[0] == code(make_card(CardArguments(model=DEFAULT_MODEL)))[0]
    for block in blocks:
        exec(block, {})


def test_other_models_get_code_of_their_own(tmp_path: Path) -> None:
    CharGru.for_texts(WORDS, min_count=1).save_pretrained(tmp_path / "gru")
    card = make_card(CardArguments(model=str(tmp_path / "gru"), repo_id=str(tmp_path / "gru")))
    (block,) = code(card)
    exec(block, {})
    assert card.data.library_name == "simbert_hf"
    encoder = tiny_simbert()
    encoder.has_lm_head = False
    encoder.save_pretrained(tmp_path / "encoder")
    card = make_card(CardArguments(model=str(tmp_path / "encoder")))
    assert "gen_synonyms" not in card.text
    assert "paraphrase-generation" not in card.data.tags


def test_the_facts_are_those_of_the_files(tmp_path: Path) -> None:
    """Several files of weights; vectors and rows shorter than the layers are wide and long."""
    model = tiny_simbert(intermediate_size=8192)
    whiten(model, [f"{a} {b}" for a in WORDS[:8] for b in WORDS[8:16]], 8)
    model.save_pretrained(tmp_path, max_shard_size="1MB")
    assert len([*tmp_path.glob("model-*.safetensors")]) > 1
    found = describe_model(tmp_path)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert found["facts"] == {
        "architecture": "bert, 2 layers",
        "parameters": f"{count / 1e6:.1f} M",
        "vector": "8 dimensions, pooling mean",
        "longest text": "48 tokens",
    }
    assert (found["dimension"], found["writes"]) == (8, True)
    assert longest(tmp_path, {"max_position_embeddings": -1}) == 48  # as XLNet says "any"


@pytest.mark.parametrize(
    ("text", "shown"), [('is "this" it?', "is 'this' it?"), ("is C:\\x it?", "reset my password?")]
)
def test_a_sample_leaves_the_code_whole(model: Path, tmp_path: Path, text: str, shown: str) -> None:
    (sample, *_) = PARAPHRASES["samples"]
    report = PARAPHRASES | {"samples": [sample | {"text": text}]}
    (tmp_path / "paraphrases.json").write_text(json.dumps(report))
    given = str(tmp_path / "paraphrases.json")
    card = make_card(CardArguments(model=str(model), paraphrases=given))
    for block in code(card):
        compile(block, "card", "exec")
    assert any(shown in block for block in code(card))
    assert "widget" not in card.data.to_dict()  # there is no other sentence


def test_figures_are_those_of_the_json(model: Path, tmp_path: Path) -> None:
    peers = PARAPHRASES | {"settings": {"k": 2, "steps": 77}, "rows": [{"name": "peer", "bleu": 3}]}
    contents = (("results", EVALUATION), ("paraphrases", PARAPHRASES), ("peers", peers))
    for name, content in contents:
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    settings = tmp_path / "card.yaml"
    settings.write_text(
        f"model: {model}\noutput: {tmp_path}/cards/README.md\nevaluation: {tmp_path}/results.json\n"
        f"paraphrases: {tmp_path}/paraphrases.json\npeers: {tmp_path}/peers.json\n"
        "language: [en, zh]\nlicense: mit\n"
        "repo_id: someone/tiny\nbase_model: someone/start\ndata: Open data.\nlimits: Few.\n"
    )
    card = ModelCard.load(main([str(settings)]))
    data = card.data
    assert (data.language, data.license, data.base_model) == (["en", "zh"], "mit", "someone/start")
    assert (data.pipeline_tag, data.library_name) == (
        "sentence-similarity",
        "sentence-transformers",
    )
    (result,) = data.eval_results  # uniformity is no metric of the Hub's
    assert (result.dataset_name, result.metric_value) == ("STS-B", 0.8457)
    first = {"source_sentence": "question 0", "sentences": ["reference 0", "question 1"]}
    assert data.to_dict()["widget"][0] == first
    rows = [re.split(r"\s*\|\s*", line.strip("| ")) for line in card.text.splitlines()]
    assert ["test set", "n", "figure", "tiny", "start"] in rows
    assert ["STS-B", "1,379", "Spearman", "84.57 [82.6, 85.6]", "80.00 [78.0, 81.0]"] in rows
    assert ["mine without half", "20", "uniformity", "-2.500", "-2.500"] in rows
    (row,) = (row for row in rows if row[0] == "tiny")
    assert row[1:] == [".50 [.25, .75]", "12.3"]
    assert ["peer", "3.0"] in rows
    assert "the same data and 77 steps for each" in card.text
    samples = card.text.partition("## Samples")[2].partition("## Limits")[0].strip().split("\n\n")
    assert samples[1].splitlines() == [
        "- question 0 -> best 0 (.90)",
        "- question 2 -> best 2 (.70)",
        "- question 3 -> best 3 (.60)",
    ]
    assert samples[3] == "- question 1 -> best 1 (.10)"
    assert "Open data." in card.text
    assert "Few." in card.text


def test_languages_are_those_that_the_hub_takes(model: Path) -> None:
    given = CardArguments(model=str(model), language=["zh", "zho", "multilingual", "code"])
    assert make_card(given).data.language == given.language
    with pytest.raises(ValueError, match="--language zh-CN is not an ISO language code"):
        make_card(CardArguments(model=str(model), language=["zh-CN"]))


def test_samples_that_nobody_judged_are_shown_as_they_come() -> None:
    page = judged_samples(PARAPHRASES | {"judge": None}, "tiny").splitlines()
    assert page[:4] == [
        "The first best paraphrases, as they come:",
        "",
        "- question 0 -> best 0",
        "- question 1 -> best 1",
    ]


def test_recipes_stand_in_for_a_run_s_record(model: Path, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(
        "# why\nlearning_rate: 1.0e-3\noutput_dir: mine\nrevision: 1.10\nbf16: true\n"
    )
    (tmp_path / "two.yaml").write_text(f"train_file: [{tmp_path}/pairs.jsonl]\n")
    args = CardArguments(
        model=str(model), recipes=[str(tmp_path / f"{name}.yaml") for name in ("one", "two")]
    )
    text = make_card(args).text
    (told,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert told == (
        "# one.yaml\nlearning_rate: 1.0e-3\nrevision: 1.10\nbf16: true\n"
        "---\n# two.yaml\ntrain_file:\n- pairs.jsonl\n"
    )
    assert "left no record" in text
    (tmp_path / "two.yaml").write_text("- pairs.jsonl")
    with pytest.raises(DataError, match=r"two\.yaml holds no arguments"):
        make_card(args)


@pytest.mark.slow
def test_a_run_writes_a_card_and_keeps_a_person_s(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tiny_simbert().save_pretrained(tmp_path / "start")
    (tmp_path / "sentences.txt").write_text("\n".join(f"{a} cat ran" for a in WORDS[:8]))
    (tmp_path / "sts.tsv").write_text(
        "".join(f"{i}\t{a} cat\t{a} dog\n" for i, a in enumerate(WORDS[:6]))
    )
    out = tmp_path / "out"
    flags = [
        f"--model_name_or_path={tmp_path / 'start'}", f"--train_file={tmp_path / 'sentences.txt'}",
        f"--sts_file={tmp_path / 'sts.tsv'}", f"--output_dir={out}", "--max_steps=2",
        "--per_device_train_batch_size=4", "--use_cpu", "--report_to=none", "--disable_tqdm=true",
        "--max_length=24", "--save_strategy=steps", "--eval_strategy=steps", "--eval_steps=1",
        "--token=hf_secret", "--scale=25", "--save_steps=1",
    ]  # fmt: skip
    train(flags)
    text = (out / "README.md").read_text()
    assert "8 examples of sentences.txt." in text
    assert "scale: 25.0" in text
    assert "It made 2 steps" in text
    found = json.loads((out / "eval_results.json").read_text())["eval_sts_spearman"]
    (row,) = (line for line in text.splitlines() if line.startswith("| sts_spearman"))
    assert row.split("|")[3].strip() == f"{found:.4g}"
    written = [path for path in out.rglob("*") if path.is_file()]
    assert out / "checkpoint-1" / "settings.json" in written
    assert not any(b"hf_secret" in path.read_bytes() for path in written)
    assert str(tmp_path) not in text
    for checkpoint in out.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    (out / "README.md").write_text("Mine.")
    with caplog.at_level(logging.INFO, "simbert_hf"):
        train(flags)
    assert (out / "README.md").read_text() == "Mine."
    assert "was not written by this package" in caplog.text


def test_a_recorded_run_is_what_the_script_takes(tmp_path: Path) -> None:
    given = {"lr_scheduler_type": "cosine_with_min_lr", "eval_strategy": "no", "debug": []}
    given |= {"lr_scheduler_kwargs": {"min_lr": 1e-6}, "output_dir": str(tmp_path)}
    arguments = TrainingArguments(**given)
    record_run(tmp_path, "train_simbert.py", 3, [arguments], processes=2)
    (tmp_path / "trainer_state.json").write_text('{"global_step": 7, "log_history": []}')
    assert describe_run(tmp_path)["training"] == "It made 7 steps, on 2 processes together."
    recorded = json.loads((tmp_path / "run.json").read_text())["arguments"]
    assert recorded["lr_scheduler_type"] == "cosine_with_min_lr"
    assert "debug" not in recorded
    (tmp_path / "run.yaml").write_text(as_yaml(recorded | {"output_dir": str(tmp_path)}))
    (again,) = parse_arguments((TrainingArguments,), [str(tmp_path / "run.yaml")])
    assert again.lr_scheduler_type == arguments.lr_scheduler_type
    assert again.lr_scheduler_kwargs == {"min_lr": 1e-6}


@pytest.mark.parametrize("given", [None, ["a cat"]])
def test_a_card_shows_no_sentence_that_nobody_gave_for_it(
    model: Path, tmp_path: Path, given: list[str] | None
) -> None:
    """Those of a run without --sample_sentences are of the user's own data."""
    shutil.copytree(model, tmp_path / "model")
    folder = tmp_path / "model"
    record_run(folder, "train_simbert.py", 3, [DataArguments(sample_sentences=given)])
    (folder / "paraphrases.md").write_text("## Step 1\n\n- a secret -> secrets (.9)\n")
    text = make_card(CardArguments(model=str(folder))).text
    assert ("a secret" in text) == (given is not None)
    assert "sample_sentences" not in text


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ("org/name", "org/name"),
        ("bert-base-chinese", "bert-base-chinese"),
        ("./here", None),
        ("simbert-minilm-en", None),  # comes with the package
        (DEFAULT_MODEL, None),
    ],
)
def test_a_card_names_a_start_of_the_hub(model: Path, start: str, told: str | None) -> None:
    record_run(model, "train_simbert.py", 3, [ModelArguments(model_name_or_path=str(start))])
    assert make_card(CardArguments(model=str(model))).data.base_model == told


def test_what_a_preset_changes_is_told_where_the_run_changed_it_back(tmp_path: Path) -> None:
    arguments = TrainingArguments(output_dir=str(tmp_path), learning_rate=5e-5)  # the default
    for preset, told in (((), False), (("learning_rate",), True)):
        record_run(tmp_path, "train_simcse.py", 3, [arguments], preset)
        recorded = json.loads((tmp_path / "run.json").read_text())["arguments"]
        assert ("learning_rate" in recorded) == told


def test_errors_say_what_is_wrong(model: Path, tmp_path: Path) -> None:
    report = tmp_path / "results.json"
    report.write_text(json.dumps(EVALUATION))
    with pytest.raises(ValueError, match="give --model"):
        write_card(CardArguments(model=str(tmp_path)))
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(ValueError, match="give --model"):  # the card is not to blame
        write_card(CardArguments(model=str(tmp_path)))
    with pytest.raises(ValueError, match=r"README\.md was not written by this package; move it"):
        write_card(CardArguments(model=str(model), output=str(tmp_path / "README.md")))
    assert (tmp_path / "README.md").read_text() == "mine"
    with pytest.raises(DataError, match=r"has no 'other'; give --row one of start, tiny"):
        make_card(CardArguments(model=str(model), evaluation=str(report), row="other"))
    make_card(CardArguments(model=str(model), repo_id="org/other", evaluation=str(report)))
    card = make_card(CardArguments(model=str(model), evaluation=str(report), row="start"))
    assert f'("{model.name}")' in card.text  # is loaded, whatever its row is called
    assert f"# {model.name}\n" in card.text
    assert card.data.model_name == model.name
    swapped = tmp_path / "paraphrases.json"
    swapped.write_text(json.dumps(PARAPHRASES))
    given = {"evaluation": swapped, "paraphrases": report, "peers": swapped}
    for flag, file in given.items():
        with pytest.raises(
            DataError, match=rf"{file.name}: has no '.*'\. --{flag} is for .*\.json"
        ):
            make_card(CardArguments(model=str(model), **{flag: str(file)}))
    missing = r"none\.json: is not a file\. --paraphrases is for paraphrases\.json of scripts/"
    with pytest.raises(DataError, match=missing):
        make_card(CardArguments(model=str(model), paraphrases=str(tmp_path / "none.json")))
    report.write_text("{")
    with pytest.raises(DataError, match=r"results\.json cannot be read as JSON"):
        make_card(CardArguments(model=str(model), evaluation=str(report)))


def test_a_card_that_loses_its_figures_says_so(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    report, place = tmp_path / "results.json", str(tmp_path / "README.md")
    report.write_text(json.dumps(EVALUATION))
    write_card(CardArguments(model=str(model), output=place, row="start", evaluation=str(report)))
    assert not caplog.messages
    write_card(CardArguments(model=str(model), output=place))
    assert "README.md held evaluation figures, which the new card lacks" in caplog.text


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["outputs/mine"], "'outputs/mine' follows no flag, such as --model outputs/mine"),
        (["--model_name_or_path=a"], "no --model_name_or_path; see --help. Is it --model?"),
        (["--zzz", "a"], "There is no --zzz; see --help.$"),
    ],
)
def test_a_flag_that_is_none_is_named(flags, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse_arguments((CardArguments,), flags)
