"""Uploads to a stand-in of the Hub: one commit or none, only the model's files, loadable by id."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants

from scripts.push_to_hub import main as push_script
from scripts.train_simbert import main as train
from simbert_hf import CharGru, SentenceEncoder
from simbert_hf.cards import MARK, CardArguments, write_card
from simbert_hf.hub import plan_upload
from tests.hub import TOKEN, Hub, running_hub
from tests.tiny import WORDS, save_tiny_simbert, tiny_simbert

# huggingface_hub itself sends LFS files in a way that its HTTP client calls outdated.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content:DeprecationWarning")

NAME = "someone/tiny"
MODEL = {
    "1_Pooling/config.json", "2_Normalize/config.json", "config.json",
    "config_sentence_transformers.json",
    "generation_config.json", "model.safetensors", "modules.json", "sentence_bert_config.json",
    "tokenizer.json", "tokenizer_config.json",
}  # fmt: skip


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """An empty Hub, which huggingface_hub calls in this test."""
    with running_hub() as found:
        monkeypatch.setattr(constants, "ENDPOINT", found.url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        yield found


def commits(hub: Hub, revision: str = "main") -> int:
    """How many commits of ours a branch has."""
    return len(hub.repositories[NAME].branches[revision]) - 1


def test_a_model_goes_whole_in_one_commit(hub: Hub, tmp_path: Path) -> None:
    model = tiny_simbert("linear_pooler")
    found = model.push_to_hub(NAME, token=TOKEN, commit_message="A first one")
    model.save_pretrained(tmp_path)
    wanted = {p.relative_to(tmp_path).as_posix(): p for p in tmp_path.rglob("*") if p.is_file()}
    assert "2_Dense/model.safetensors" in wanted
    there = hub.files(NAME)
    assert f'SimBert.from_pretrained("{NAME}")' in there.pop("README.md").decode()
    assert there == {name: path.read_bytes() for name, path in wanted.items()}
    assert hub.repositories[NAME].branches["main"][1:] == [found.oid]
    assert hub.messages == ["A first one"]
    model.push_to_hub(NAME, token=TOKEN)  # nothing has changed
    assert commits(hub) == 1


@pytest.mark.parametrize("kind", ["gru", "encoder"])
def test_other_encoders_go_too(hub: Hub, tmp_path: Path, kind: str) -> None:
    if kind == "gru":
        model = CharGru.for_texts(WORDS, min_count=1)
    else:
        save_tiny_simbert(tmp_path)
        model = SentenceEncoder.from_pretrained(tmp_path)
    model.push_to_hub(NAME, token=TOKEN)
    there = hub.files(NAME)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= there.keys()
    assert ("modules.json" in there) == (kind == "encoder")


def test_a_dry_run_lists_and_sends_nothing(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tiny_simbert()
    plan = model.push_to_hub(NAME, dry_run=True)
    assert set(plan.files) == MODEL | {"README.md"}
    model.save_pretrained(tmp_path)
    (tmp_path / "notes.txt").write_text("ours")
    sizes = {name: (tmp_path / name).stat().st_size for name in MODEL}
    assert plan.files == sizes | {"README.md": plan.files["README.md"]}
    push_script([str(tmp_path), NAME, "--dry_run"])
    listed = capsys.readouterr().out
    assert f"{plan.files['model.safetensors']:,}  model.safetensors" in listed
    assert f"{sum(sizes.values()):,}  bytes in 10 files" in listed
    assert "not uploaded: notes.txt" in listed
    assert hub.requests == []


def test_a_generated_card_loads_the_repository(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_tiny_simbert(tmp_path / "mine")
    push_script([str(tmp_path / "mine"), NAME, "--dry_run"])
    assert "there is no README.md, the model's card: scripts/make_card" in capsys.readouterr().out
    teacher = 'Labelled by `SentenceTransformer("org/teacher")`.'
    card = write_card(CardArguments(model=str(tmp_path / "mine"), data=teacher))
    written = card.read_text()
    push_script([str(tmp_path / "mine"), NAME, "--dry_run"])
    assert (
        "the code in README.md will load the repository instead of 'mine'"
        in capsys.readouterr().out
    )
    push_script([str(tmp_path / "mine"), "tiny", f"--token={TOKEN}"])  # a bare name is the owner's
    there = hub.files(NAME)["README.md"].decode()
    assert there.count(f'SentenceTransformer("{NAME}")') == 1
    assert there.count(f'from_pretrained("{NAME}")') == 3
    assert teacher in there
    assert there.replace(f'"{NAME}"', '"mine"') == written == card.read_text()
    own = written.replace(MARK, "<!--")
    card.write_text(own)  # somebody's own goes as it is
    push_script([str(tmp_path / "mine"), NAME, f"--token={TOKEN}"])
    assert hub.files(NAME)["README.md"].decode() == own


def test_only_the_model_leaves_the_folder(hub: Hub, tmp_path: Path) -> None:
    save_tiny_simbert(tmp_path)
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\nA card.")
    private = [
        "training_args.bin", "optimizer.pt", "trainer_state.json", "pairs.jsonl", "train.txt",
        ".env", "checkpoint-3/model.safetensors", "checkpoint-3/rng_state.pth", "runs/1/events",
        "1_Pooling/notes.txt", "_saving/model.safetensors", "data.json",
    ]  # fmt: skip
    for name in private:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"secret")
    push_script([str(tmp_path), NAME, f"--token={TOKEN}"])
    assert hub.files(NAME).keys() == MODEL | {"README.md"}
    more = {
        "judge.json", "LICENSE", "NOTICE.txt", "curves.png", "eval_results.json", "vocab.txt",
        "merges.txt", "special_tokens_map.json", "added_tokens.json", "spiece.model",
    }  # fmt: skip
    for name in more:  # a judge's record, a base model's licence, other tokenizers' files
        (tmp_path / name).write_text("{}")
    plan = plan_upload(tmp_path)
    assert {"checkpoint-3/", "training_args.bin", "1_Pooling/notes.txt"} <= set(plan.left)
    assert more <= plan.files.keys()


def test_a_new_model_replaces_the_old_one_whole(hub: Hub, tmp_path: Path) -> None:
    card = tmp_path / "card.md"
    card.write_text("---\nlicense: mit\n---\nMine.")
    tiny_simbert("linear_pooler").push_to_hub(NAME, token=TOKEN, card=card)
    repository = hub.repositories[NAME]
    old = repository.commits[repository.branches["main"][-1]]
    former = (
        "onnx/model.onnx", "onnx/model.onnx_data", "openvino/openvino_model.bin", "vocab.txt",
        "pytorch_model.bin", "2_Dense/pytorch_model.bin", "notes.md",
    )  # fmt: skip
    extra = dict.fromkeys(former, (b"old", False))
    repository.add("main", old | extra)
    tiny_simbert("mean").push_to_hub(NAME, token=TOKEN)
    there = hub.files(NAME)
    assert there.keys() == MODEL | {"README.md", "notes.md"}
    assert there["README.md"] == card.read_bytes()  # no worse card takes its place
    assert commits(hub) == 3


FAILURES = [
    ("create", 500), ("preupload", 403), ("lfs_batch", 403), ("lfs_put", 403), ("commit", 503),
    ("commit", 0), ("commit", 400), ("preupload", 200), ("validate_card", 400),
]  # fmt: skip


@pytest.mark.parametrize(("route", "status"), FAILURES)
def test_a_failure_publishes_nothing_and_can_be_repeated(
    hub: Hub, tmp_path: Path, route: str, status: int
) -> None:
    CharGru.for_texts(WORDS, min_count=1).push_to_hub(NAME, token=TOKEN)
    before, model = hub.files(NAME), CharGru.for_texts(WORDS, min_count=2)
    model.save_pretrained(tmp_path)
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\nA card.")
    arguments = [str(tmp_path), NAME, f"--token={TOKEN}"]
    hub.fails = (route, status)
    kind = ValueError if route == "validate_card" else OSError
    with pytest.raises(kind, match=r"README.md" if kind is ValueError else "Nothing was published"):
        push_script(arguments)
    assert hub.files(NAME) == before
    assert commits(hub) == 1
    hub.fails, hub.requests[:] = None, []
    push_script(arguments)
    assert hub.files(NAME).keys() == before.keys() | {"README.md"}
    assert commits(hub) == 2
    sent = hub.requests.count("lfs_put")  # bytes that arrived before the failure are not sent again
    assert sent == (0 if route == "commit" else 1)


def test_two_uploads_at_once_never_mix(hub: Hub, tmp_path: Path) -> None:
    tiny_simbert().push_to_hub(NAME, token=TOKEN)
    sharded, model = tiny_simbert("linear_pooler", intermediate_size=64), tiny_simbert("cls")
    sharded.save_pretrained(tmp_path, max_shard_size="20KB")
    hub.meanwhile = lambda: push_script([str(tmp_path), NAME, f"--token={TOKEN}"])
    model.push_to_hub(NAME, token=TOKEN)  # modules.json and weights were the first one's, too
    assert commits(hub) == 3
    model.save_pretrained(tmp_path / "alone")
    there = hub.files(NAME)
    del there["README.md"]
    assert there == {name: (tmp_path / "alone" / name).read_bytes() for name in MODEL}


def test_a_commit_whose_answer_is_lost_is_found(hub: Hub) -> None:
    model = CharGru.for_texts(WORDS, min_count=1)
    hub.fails = ("commit", -1)
    found = model.push_to_hub(NAME, token=TOKEN)
    assert hub.repositories[NAME].branches["main"][1:] == [found.oid]


@pytest.mark.parametrize(
    ("route", "headers", "wait"),
    [("create", {}, 2), ("info", {}, 2), ("branch", {"Retry_After": "7"}, 8),
     ("commit", {"RateLimit": '"api";r=0;t=55'}, 56),
     ("commit", {"RateLimit": '"api";r=9;t=55'}, 2)],  # another limit is the reason
)  # fmt: skip
def test_an_upload_waits_if_the_hub_asks_for_it(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, route: str, headers: dict[str, str], wait: int
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("simbert_hf.hub.time.sleep", waits.append)
    hub.puts_off = (route, 2, headers)
    CharGru.for_texts(WORDS, min_count=1).push_to_hub(NAME, token=TOKEN, revision="v2")
    assert commits(hub, "v2") == 1
    assert waits == [wait, wait]
    assert hub.requests.count("lfs_put") == 1


@pytest.mark.parametrize(("times", "after", "tries"), [(3, "1", 3), (1, "3600", 1)])
def test_an_upload_does_not_wait_forever(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, times: int, after: str, tries: int
) -> None:
    monkeypatch.setattr("simbert_hf.hub.time.sleep", lambda _: None)
    hub.puts_off = ("create", times, {"Retry_After": after})
    with pytest.raises(OSError, match="429"):
        CharGru.for_texts(WORDS, min_count=1).push_to_hub(NAME, token=TOKEN)
    assert hub.requests == ["create"] * tries


def test_private_stays_private(hub: Hub) -> None:
    model = CharGru.for_texts(WORDS, min_count=1)
    model.push_to_hub(NAME, token=TOKEN, private=True)
    assert hub.repositories[NAME].private
    model.push_to_hub("open", token=TOKEN)
    assert not hub.repositories["someone/open"].private  # a bare name is the owner's
    before = hub.files("someone/open")
    with pytest.raises(ValueError, match="exists and is public"):
        CharGru.for_texts(WORDS, min_count=2).push_to_hub("someone/open", token=TOKEN, private=True)
    assert hub.files("someone/open") == before
    with pytest.raises(OSError, match="401"):
        model.push_to_hub(NAME, token="hf_wrong")


def test_a_revision_leaves_main_alone(hub: Hub) -> None:
    CharGru.for_texts(WORDS, min_count=1).push_to_hub(NAME, token=TOKEN)
    main, model = hub.files(NAME), CharGru.for_texts(WORDS, min_count=1, hidden_size=16)
    for each in (tiny_simbert(), model):  # the branch is made, and found
        each.push_to_hub(NAME, token=TOKEN, revision="v2/small")
    assert hub.files(NAME) == main
    assert hub.files(NAME, "v2/small").keys() == main.keys()
    assert json.loads(hub.files(NAME, "v2/small")["config.json"])["hidden_size"] == 16
    assert commits(hub, "v2/small") == 3  # main's, and both
    branches = hub.repositories[NAME].branches
    branches["refs/pr/1"], hub.requests[:] = [*branches["main"]], []
    model.push_to_hub(NAME, token=TOKEN, revision="refs/pr/1")
    assert commits(hub, "refs/pr/1") == 2
    assert "branch" not in hub.requests  # a pull request's is none to be made


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("config.json", "no config.json"),
        ("model.safetensors", "no weights in safetensors"),
        ("tokenizer_config.json", "no tokenizer_config.json"),
        ("tokenizer.json", "no vocabulary"),
        ("2_Dense/model.safetensors", "is a pickle"),
    ],
)
def test_half_a_model_is_refused(tmp_path: Path, lost: str, message: str) -> None:
    save_tiny_simbert(tmp_path, "linear_pooler")
    (tmp_path / "2_Dense" / "pytorch_model.bin").write_bytes(b"a pickle")
    (tmp_path / lost).unlink()
    with pytest.raises(ValueError, match=message):
        plan_upload(tmp_path)


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "model.safetensors", "2_Dense/model.safetensors"]
)
def test_a_truncated_file_is_refused(tmp_path: Path, name: str) -> None:
    save_tiny_simbert(tmp_path, "linear_pooler")
    os.truncate(tmp_path / name, (tmp_path / name).stat().st_size - 2)
    with pytest.raises(ValueError, match=rf"{name} is damaged \(.*\): save or copy it again"):
        plan_upload(tmp_path)


@pytest.mark.parametrize("content", ["[{", '[{"idx": 0}]', '{"a": 1}'])
def test_a_damaged_list_of_modules_is_named(tmp_path: Path, content: str) -> None:
    save_tiny_simbert(tmp_path)
    (tmp_path / "modules.json").write_text(content)
    with pytest.raises(ValueError, match=r"modules\.json is damaged .*: save the model again"):
        plan_upload(tmp_path)


def test_what_a_former_model_left_stays_behind(tmp_path: Path) -> None:
    model = tiny_simbert("linear_pooler")
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    sharded = {name for name in plan_upload(tmp_path).files if name.startswith("model")}
    assert len(sharded) > 2
    (tmp_path / "model-00009-of-00009.safetensors").write_bytes(b"of a former one")
    assert "model-00009-of-00009.safetensors" in plan_upload(tmp_path).left
    kept = {name: (tmp_path / name).read_bytes() for name in sharded}
    tiny_simbert("mean").save_pretrained(tmp_path)
    for name, content in kept.items():
        (tmp_path / name).write_bytes(content)
    plan = plan_upload(tmp_path)
    assert plan.files.keys() == MODEL
    assert sharded | {"2_Dense/"} <= {*plan.left}
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / max(sharded - {"model.safetensors.index.json"})).unlink()
    with pytest.raises(ValueError, match=r"index\.json names model-.*, which is missing"):
        plan_upload(tmp_path)


# Training ---------------------------------------------------------------------------------------


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    """Flags of a run that saves twice."""
    save_tiny_simbert(tmp_path / "start")
    rows = [{"text": f"{a} cat", "synonyms": [f"the {a} dog"]} for a in WORDS[:8]]
    (tmp_path / "groups.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return [
        f"--model_name_or_path={tmp_path / 'start'}", f"--train_file={tmp_path / 'groups.jsonl'}",
        f"--output_dir={tmp_path / 'out'}", "--validation_groups=0", "--max_steps=4",
        "--per_device_train_batch_size=4", "--save_strategy=steps", "--save_steps=2", "--use_cpu",
        "--report_to=none", "--disable_tqdm=true", "--max_length=24", "--push_to_hub=true",
        f"--hub_model_id={NAME}", f"--hub_token={TOKEN}", "--hub_private_repo=true",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["end", "every_save"])
def test_a_run_pushes_whole_models(
    hub: Hub, flags: list[str], tmp_path: Path, strategy: str
) -> None:
    trainer = train([*flags, f"--hub_strategy={strategy}"])
    there = hub.files(NAME)
    assert there.keys() >= MODEL
    assert not [name for name in there if name.endswith((".bin", ".pt", ".pth"))]
    assert there["model.safetensors"] == (tmp_path / "out" / "model.safetensors").read_bytes()
    assert hub.repositories[NAME].private
    steps = ["Training in progress, step 2", "Training in progress, step 4"]
    assert hub.messages[:-1] == (steps if strategy == "every_save" else [])
    assert hub.messages[-1] == "End of training"
    card = there["README.md"].decode()
    assert "8 examples of groups.jsonl" in card
    assert TOKEN not in card
    for commit in hub.repositories[NAME].branches["main"][1:]:
        assert hub.repositories[NAME].commits[commit].keys() >= MODEL
    (tmp_path / "out" / "judge.json").write_text("{}")
    trainer.push_to_hub("Elsewhere", revision="v2")
    assert hub.messages[-1] == "Elsewhere"
    assert hub.files(NAME) == there
    assert hub.files(NAME, "v2").keys() - there.keys() == {"judge.json"}


@pytest.mark.slow
def test_a_run_outlives_a_hub_that_fails(
    hub: Hub, flags: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hub.fails = ("commit", 503)
    with pytest.raises(OSError, match="Nothing was published"):
        train([*flags, "--hub_strategy=every_save"])
    assert caplog.text.count("The run continues.") == 2
    hub.fails = None
    push_script([str(tmp_path / "out"), NAME, f"--token={TOKEN}"])
    assert hub.files(NAME).keys() >= MODEL


def test_a_run_refuses_before_it_trains(hub: Hub, flags: list[str], tmp_path: Path) -> None:
    with pytest.raises(OSError, match="401"):
        train([*flags, "--hub_token=hf_wrong"])
    with pytest.raises(ValueError, match=r"--hub_strategy checkpoint .* pickle"):
        train([*flags, "--hub_strategy=checkpoint"])
    assert not list((tmp_path / "out").glob("checkpoint-*"))


# Loading by id ----------------------------------------------------------------------------------

LOAD = """
import json, sys
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer
from simbert_hf import SimBert
from simbert_hf.pooling import normalize

name, revision, texts = sys.argv[1], sys.argv[2], sys.argv[3:]
ours = SimBert.from_pretrained(name, revision=revision)
tokens = AutoTokenizer.from_pretrained(name, revision=revision)(
    texts, padding=True, return_tensors="pt"
)
masked = AutoModelForMaskedLM.from_pretrained(name, revision=revision)
with torch.no_grad():
    hidden = AutoModel.from_pretrained(name, revision=revision)(**tokens).last_hidden_state
    of_masked = masked.base_model(**tokens).last_hidden_state
    logits = masked(**tokens).logits
print(json.dumps({
    "SimBert": ours.encode(texts).tolist(),
    "SentenceTransformer": SentenceTransformer(name, revision=revision).encode(texts).tolist(),
    "AutoModel": normalize(hidden[:, 0]).tolist(),
    "AutoModelForMaskedLM": normalize(of_masked[:, 0]).tolist(),
    "logits": logits.flatten().tolist(),
    "paraphrase": ours.gen_synonyms(texts[0], n=5, k=5, seed=0),
}))
"""


@pytest.mark.slow
def test_every_loader_finds_it_by_its_id(hub: Hub, tmp_path: Path) -> None:
    """In another process, with an empty cache and a token from the environment."""
    model, texts = tiny_simbert("cls"), ["how can i learn english", "the cat sat"]
    model.push_to_hub(NAME, token=TOKEN, private=True, revision="v2")
    environment = os.environ | {
        "HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    command = [sys.executable, "-c", LOAD, NAME, "v2", *texts]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    wanted = model.encode(texts)
    for loader in ("SimBert", "SentenceTransformer", "AutoModel", "AutoModelForMaskedLM"):
        np.testing.assert_allclose(found[loader], wanted, atol=1e-5, err_msg=loader)
    inputs = model.rows.pad(model.rows.sources(texts, 48))
    logits = model(**inputs, logits_to_keep=inputs["input_ids"].shape[1]).logits
    np.testing.assert_allclose(found["logits"], logits.detach().flatten(), atol=1e-4)
    assert found["paraphrase"] == model.gen_synonyms(texts[0], n=5, k=5, seed=0)
    assert "resolve" in hub.requests
    assert "lfs_get" in hub.requests
