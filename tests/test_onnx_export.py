"""ONNX graphs, run by onnxruntime, give what PyTorch gives."""

import pickle
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from sentence_transformers import SentenceTransformer

from scripts.export_onnx import main
from simbert_hf import CharGru, SimBert
from simbert_hf.generation.search import SearchSettings
from simbert_hf.generation.writing import write
from simbert_hf.hub import plan_upload
from simbert_hf.modeling.architectures import FactorisedConfig, FactorisedSimBert
from simbert_hf.modeling.whitening import whiten
from simbert_hf.onnx_export import OPSET, QUANTIZED, OnnxSimBert, export, quantize
from tests.tiny import (
    WORDS,
    save_tiny_simbert,
    tiny_simbert,
    unigram_tokenizer,
    wordpiece_tokenizer,
)

TEXTS = ["how can i", "the weather is nice today", "where are you going to go", "a cat"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx") / "model"
    tiny_simbert("linear_pooler").save_pretrained(folder)
    export(SimBert.from_pretrained(folder), folder)
    return folder


@pytest.mark.slow
def test_vectors_are_those_of_pytorch(exported: Path) -> None:
    model, graph = SimBert.from_pretrained(exported).eval(), OnnxSimBert(exported)
    for texts in (TEXTS[:1], TEXTS, [" ".join(WORDS[i:]) for i in range(20)]):
        for batch_size in (1, 3, 64):
            found = graph.encode(texts, batch_size=batch_size)
            np.testing.assert_allclose(found, model.encode(texts), atol=1e-5)
    assert graph.encode([]).shape == model.encode([]).shape
    tool = SentenceTransformer(str(exported), device="cpu")
    np.testing.assert_allclose(graph.encode("a cat"), tool.encode("a cat"), atol=1e-5)
    inputs = model.rows.pad(model.rows.sources(TEXTS, 48))
    hidden = graph.session.run(["last_hidden_state"], {k: v.numpy() for k, v in inputs.items()})[0]
    real = inputs["attention_mask"].bool()
    wanted = model(**inputs).last_hidden_state.detach()[real]
    np.testing.assert_allclose(hidden[real.numpy()], wanted, atol=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Texts of more than 6 tokens were cut")
def test_texts_are_cut_where_other_loaders_cut_them(exported: Path, tmp_path: Path) -> None:
    shutil.copytree(exported, tmp_path, dirs_exist_ok=True)
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 6}')
    text = " ".join(WORDS[:20])
    wanted = SimBert.from_pretrained(tmp_path).encode(text)
    np.testing.assert_allclose(OnnxSimBert(tmp_path).encode(text), wanted, atol=1e-5)
    assert np.abs(OnnxSimBert(exported).encode(text) - wanted).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["beam", "sample", "without_replacement"])
@pytest.mark.parametrize("n", [1, 7])
def test_paraphrases_are_those_of_pytorch(exported: Path, strategy: str, n: int) -> None:
    """Greedy is the beam of one; sources of different lengths are padded in one batch."""
    settings = SearchSettings(n=n, strategy=strategy, seed=3, max_new_tokens=8)
    wanted = write(SimBert.from_pretrained(exported).eval(), TEXTS, settings)
    graph = OnnxSimBert(exported)
    found = graph.write(TEXTS, settings)
    with pytest.MonkeyPatch.context() as patch:  # a batch a text, and no graph loaded again
        patch.setattr("simbert_hf.generation.writing.MAX_ROWS", 1)
        patch.setattr(graph, "open", None)
        in_ones = graph.write(TEXTS, settings)
    assert [[d.text for d in row] for row in in_ones] == [[d.text for d in row] for row in found]
    with pytest.raises(ValueError, match="max_new_tokens=62 is out of range"):
        graph.write(TEXTS, SearchSettings(n=1, max_new_tokens=62))
    assert sum(map(len, wanted)) >= 3
    assert [[d.text for d in row] for row in found] == [[d.text for d in row] for row in wanted]
    for row, other in zip(found, wanted, strict=True):
        assert [d.log_prob for d in row] == pytest.approx([d.log_prob for d in other], abs=1e-4)


@pytest.mark.slow
def test_8_bit_weights_stay_near(exported: Path) -> None:
    exact, near = OnnxSimBert(exported).encode(TEXTS), OnnxSimBert(exported, QUANTIZED, threads=1)
    near = pickle.loads(pickle.dumps(near))
    assert near.session.get_session_options().intra_op_num_threads == 1
    cosines = (exact * near.encode(TEXTS)).sum(axis=1)
    assert cosines.min() > 0.97
    assert cosines.max() < 1 - 1e-6  # they are other weights


def test_8_bit_columns_have_scales_of_their_own(tmp_path: Path) -> None:
    """By one scale for all, the weights of the small column would be 0."""
    weights = np.linspace(1, 2, 16, dtype=np.float32).reshape(8, 2) * np.float32([0.001, 1])
    given = np.linspace(0, 1, 24, dtype=np.float32).reshape(3, 8)
    sides = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        for name, shape in (("x", (3, 8)), ("y", (3, 2)))
    ]
    nodes = [helper.make_node("MatMul", ["x", "weights"], ["y"])]
    graph = helper.make_graph(nodes, "g", *sides, [numpy_helper.from_array(weights, "weights")])
    opset = helper.make_opsetid("", OPSET)
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[opset]), tmp_path / "exact")
    quantize(tmp_path / "exact", tmp_path / "near")
    types = {each.data_type for each in onnx.load(tmp_path / "near").graph.initializer}
    assert TensorProto.UINT8 in types
    assert TensorProto.INT8 not in types  # whose sums overflow on some processors
    session = onnxruntime.InferenceSession(tmp_path / "near")
    (found,) = session.run(None, {"x": given})
    np.testing.assert_allclose(found, given @ weights, rtol=0.03)


def test_a_stopped_export_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("scripts.export_onnx.export", stop)
    save_tiny_simbert(tmp_path / "model")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            main([f"--model_name_or_path={tmp_path / 'model'}", f"--output_dir={tmp_path / 'out'}"])
        assert not [*(tmp_path / "out").iterdir()]


@pytest.mark.slow
def test_an_encoder_without_a_head(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another tokenizer, all layers pooled, through the script."""
    model = tiny_simbert("first_last_mean", unigram_tokenizer())
    model.has_lm_head = False
    model.save_pretrained(tmp_path / "model")
    main([f"--model_name_or_path={tmp_path / 'model'}", f"--output_dir={tmp_path / 'out'}"])
    assert "decoder.onnx" not in capsys.readouterr().out
    assert not list(tmp_path.rglob("*.part"))
    found = OnnxSimBert(tmp_path / "out").encode(TEXTS)
    np.testing.assert_allclose(found, model.eval().encode(TEXTS), atol=1e-5)
    with pytest.raises(OSError, match=r"decoder\.onnx; create it with scripts/export_onnx\.py"):
        OnnxSimBert(tmp_path / "out").write(TEXTS, SearchSettings(n=1))


@pytest.mark.slow
def test_a_model_of_16_bits_without_a_head_over_a_former_one(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "decoder.onnx").write_bytes(b"a former model's")
    model = tiny_simbert().half()
    model.has_lm_head = False
    model.save_pretrained(tmp_path)
    export(model, tmp_path)
    assert model.dtype == torch.float16
    assert not (tmp_path / "onnx" / "decoder.onnx").exists()
    wanted = SimBert.from_pretrained(tmp_path).eval().encode(TEXTS)
    np.testing.assert_allclose(OnnxSimBert(tmp_path).encode(TEXTS), wanted, atol=1e-5)


@pytest.mark.slow
def test_texts_that_are_none_are_refused(exported: Path) -> None:
    graph, settings = OnnxSimBert(exported), SearchSettings(n=1, strategy="beam")
    found, wanted = graph.write("how can i", settings), graph.write(["how can i"], settings)
    assert [[d.text for d in row] for row in found] == [[d.text for d in row] for row in wanted]
    for use in (graph.encode, partial(graph.write, settings=settings)):
        with pytest.raises(ValueError, match="text 1 is empty"):
            use(["a cat", " "])
    with pytest.raises(ValueError, match="batch_size=-1 is out of range"):
        graph.encode(TEXTS, batch_size=-1)


@pytest.mark.slow
def test_graphs_of_former_weights_are_refused(exported: Path, tmp_path: Path) -> None:
    """Trained again into the same folder."""
    shutil.copytree(exported, tmp_path, dirs_exist_ok=True)
    assert {"onnx/model.onnx", "onnx/weights.json"} <= plan_upload(tmp_path).files.keys()
    tiny_simbert("linear_pooler").save_pretrained(tmp_path)  # the same weights
    OnnxSimBert(tmp_path)
    (tmp_path / "model.safetensors").unlink()  # serving needs none
    OnnxSimBert(tmp_path)
    pooler = SentenceTransformer(str(exported), device="cpu")
    pooler[2].linear.weight.data += 0.01
    pooler[2].save(str(tmp_path / "2_Dense"))
    with pytest.raises(ValueError, match="other weights than those in"):
        OnnxSimBert(tmp_path)
    trained = tiny_simbert("linear_pooler")
    trained.get_input_embeddings().weight.data += 0.01
    trained.save_pretrained(tmp_path)
    for use in (plan_upload, OnnxSimBert):
        with pytest.raises(ValueError, match=r"other weights than those in .*: export them again"):
            use(tmp_path)
    shutil.rmtree(tmp_path / "onnx")
    plan_upload(tmp_path)


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a CharGru"):
        export(CharGru.for_texts(WORDS, min_count=1), tmp_path)
    tokenizer = wordpiece_tokenizer()
    config = FactorisedConfig(vocab_size=len(tokenizer), embedding_size=8, hidden_size=16,
                              num_hidden_layers=1, num_attention_heads=2)  # fmt: skip
    electra = FactorisedSimBert(config)
    electra.tokenizer = tokenizer
    electra.save_pretrained(tmp_path / "electra")
    with pytest.raises(ValueError, match="not a FactorisedSimBert"):
        main([f"--model_name_or_path={tmp_path / 'electra'}", f"--output_dir={tmp_path / 'copy'}"])
    assert not (tmp_path / "copy").exists()
    with pytest.raises(ValueError, match="electra already holds a model or a run"):
        main(["--model_name_or_path=simbert-minilm-en", f"--output_dir={tmp_path / 'electra'}"])
    tiny_simbert().save_pretrained(tmp_path)
    with pytest.raises(OSError, match=r"model\.onnx; create it with scripts/export_onnx\.py"):
        OnnxSimBert(tmp_path)


@pytest.mark.slow
def test_a_whitened_model_is_exported_too(tmp_path: Path) -> None:
    model = tiny_simbert()
    whiten(model, [*TEXTS, *WORDS], 16)
    model.save_pretrained(tmp_path)
    model.train()
    export(model, tmp_path)
    assert model.training
    np.testing.assert_allclose(OnnxSimBert(tmp_path).encode(TEXTS), model.encode(TEXTS), atol=1e-5)
    small = OnnxSimBert(tmp_path, QUANTIZED).encode(TEXTS)
    assert (small * model.encode(TEXTS)).sum(1).min() > 0.95
