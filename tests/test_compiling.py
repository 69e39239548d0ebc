"""Compiled layers: one graph for every length and depth, and the same gradients."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from accelerate.utils import DynamoBackend
from torch._dynamo.testing import CompileCounterWithBackend

from scripts.train_simbert import main
from simbert_hf.arguments import SimilarityTrainingArguments, TrainingArguments
from simbert_hf.collators import PairCollator
from simbert_hf.objectives import SimBertObjective
from simbert_hf.trainer import SimilarityTrainer
from simbert_hf.training.compiling import compile_layers
from simbert_hf.training.gradcache import use_gradcache
from tests.tiny import WORDS, tiny_simbert

pytestmark = [  # torch warns itself
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0"),
]

PAIRS = [
    {"source": " ".join(WORDS[: 1 + 2 * i]), "target": WORDS[i], "group": i, "seed": i}
    for i in range(6)
]


def losses(model, **batch) -> list[float]:
    """Train on batches of several sizes and lengths."""
    collator, found = PairCollator(model.rows, 24), []
    for start, stop in ((0, 6), (0, 3), (2, 4), (1, 6), (3, 6)):
        loss = SimBertObjective()(model, collator(PAIRS[start:stop])).total
        loss.backward()
        found.append(loss.item())
    return found


@pytest.fixture(autouse=True)
def _fresh_caches():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def test_each_layer_is_compiled_as_told(monkeypatch, caplog) -> None:
    told: list[dict[str, object]] = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **given: told.append(given))
    compile_layers(tiny_simbert(num_hidden_layers=3), "eager", "max-autotune-no-cudagraphs")
    wanted = {"dynamic": True, "backend": "eager", "mode": "max-autotune-no-cudagraphs"}
    assert told == [wanted] * 3
    assert not caplog.text
    for mode in ("reduce-overhead", "max-autotune"):
        compile_layers(tiny_simbert(), mode=mode)
        assert f"--torch_compile_mode {mode} records a CUDA graph" in caplog.text


@pytest.mark.slow
def test_one_graph_serves_every_length_and_layer() -> None:
    counter = CompileCounterWithBackend("eager")
    model, plain = (tiny_simbert(num_hidden_layers=10) for _ in range(2))
    compile_layers(model, backend=counter)
    assert losses(model) == pytest.approx(losses(plain), abs=1e-5)
    assert counter.frame_count == 1
    model.zero_grad()
    use_gradcache(model, 4)
    losses(model)
    assert counter.frame_count == 1
    model.encode(WORDS)  # without gradient
    model.encode(WORDS[:3])
    assert counter.frame_count == 2


def test_loaders_prefetch_with_a_gpu_and_not_without(tmp_path: Path, monkeypatch) -> None:
    assert SimilarityTrainingArguments(str(tmp_path)).dataloader_num_workers == 0
    with monkeypatch.context() as patch:
        patch.setattr(torch.accelerator, "is_available", lambda: True)
        patch.setattr(TrainingArguments, "__post_init__", lambda _: None)
        assert SimilarityTrainingArguments(str(tmp_path)).dataloader_num_workers == 2
        assert SimilarityTrainingArguments(str(tmp_path), use_cpu=True).dataloader_num_workers == 0
    found = SimilarityTrainingArguments(str(tmp_path), use_cpu=True, dataloader_num_workers=3)
    assert found.dataloader_num_workers == 3
    assert SimilarityTrainingArguments.dataloader_pin_memory
    assert found.optim == "adamw_torch_fused"


def flags(folder: Path) -> list[str]:
    """Train four steps from ``folder / "start"``."""
    rows = [{"text": f"{a} cat", "synonyms": [f"the {a} cat sat"]} for a in WORDS[:12]]
    (folder / "groups.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return [
        f"--model_name_or_path={folder / 'start'}", "--use_cpu", "--max_steps=4",
        f"--train_file={folder / 'groups.jsonl'}", f"--output_dir={folder / 'out'}",
        "--per_device_train_batch_size=3", "--save_strategy=no", "--report_to=none",
        "--disable_tqdm=true", "--max_length=24", "--hidden_dropout=0", "--attention_dropout=0",
        "--learning_rate=0.05", "--warmup_steps=0",
    ]  # fmt: skip


@pytest.mark.slow
def test_paraphrases_between_steps_compile_nothing(tmp_path: Path) -> None:
    tiny_simbert(num_hidden_layers=10).save_pretrained(tmp_path / "start")
    main(
        [*flags(tmp_path), "--torch_compile=true", "--torch_compile_backend=eager",
         "--validation_groups=3", "--eval_strategy=steps", "--eval_steps=2", "--eval_on_start=true",
         "--sample_sentences", WORDS[0]]
    )  # fmt: skip
    assert "## Step 4" in (tmp_path / "out" / "paraphrases.md").read_text()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2  # with gradient and without


@pytest.mark.slow
def test_inductor_trains_to_the_same_weights(tmp_path: Path) -> None:
    tiny_simbert().save_pretrained(tmp_path / "start")

    def train(*more: str) -> SimilarityTrainer:
        # Adam would blow up the noise of vanishing gradients.
        return main([*flags(tmp_path), "--validation_groups=0", "--optim=sgd", *more])

    compiled, plain = train("--torch_compile=true"), train()
    assert compiled.accelerator.state.dynamo_plugin.backend == DynamoBackend.NO
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    start, wanted = tiny_simbert().state_dict(), plain.model.state_dict()
    assert max((wanted[name] - start[name]).abs().max() for name in wanted) > 5e-3
    for name, weight in compiled.model.state_dict().items():
        torch.testing.assert_close(weight, wanted[name], rtol=0, atol=1e-4)
    compiled.model.save_pretrained(tmp_path / "saved")
    assert not any("_orig_mod" in name for name in compiled.model.state_dict())
