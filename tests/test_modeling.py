import copy
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    DynamicCache,
    pipeline,
)

from simbert_hf import SimBert
from simbert_hf.encoders.loader import load_sentence_transformer
from simbert_hf.gru import CharGru
from simbert_hf.margin.centres import SampledCentres
from simbert_hf.modeling.embedding import evaluating
from simbert_hf.modeling.encoder import SentenceEncoder
from simbert_hf.pooling import POOLINGS, masked_mean
from simbert_hf.training.packing import use_packing
from tests.tiny import tiny_judge, tiny_simbert, unigram_tokenizer, wordpiece_tokenizer

TEXTS = ["how can i reset my password?", "the weather is nice today", "cats"]
POOLED = ("cls_token", "mean_tokens", "lasttoken")  # in the settings of a Pooling
TOKENIZERS = {"wordpiece": wordpiece_tokenizer, "unigram": unigram_tokenizer}


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_loader_agrees(tmp_path: Path, pooling: str, tokenizer: str) -> None:
    model = tiny_simbert(pooling, TOKENIZERS[tokenizer]())
    model.save_pretrained(tmp_path)
    vectors = model.encode(TEXTS)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)

    again = SimBert.from_pretrained(tmp_path)
    assert again.config.sentence_pooling == pooling
    assert again.has_lm_head
    assert np.abs(again.encode(TEXTS) - vectors).max() < 1e-6

    sentence_transformer = SentenceTransformer(str(tmp_path), device="cpu")
    assert np.abs(sentence_transformer.encode(TEXTS) - vectors).max() < 1e-5

    inputs = AutoTokenizer.from_pretrained(tmp_path)(TEXTS, padding=True, return_tensors="pt")
    plain = AutoModel.from_pretrained(tmp_path)
    assert type(plain) is BertModel
    ours = model(**inputs).last_hidden_state
    real = inputs["attention_mask"].bool()
    assert torch.allclose(plain(**inputs).last_hidden_state[real], ours[real], atol=1e-5)

    masked_lm = AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert type(masked_lm) is BertForMaskedLM
    logits = masked_lm(**inputs).logits
    positions = real.flatten().nonzero()[:, 0]
    found = model(**inputs, lm_positions=positions).logits
    assert torch.allclose(logits.flatten(0, 1)[positions], found, atol=1e-4)

    features = pipeline("feature-extraction", model=str(tmp_path))(TEXTS[0], return_tensors=True)
    assert torch.allclose(features[0], ours[0, : features.shape[1]], atol=1e-5)


@pytest.mark.parametrize("name", ["sentence_bert_config.json", "sentence_xlm-roberta_config.json"])
@pytest.mark.filterwarnings("ignore:Texts of more than 12 tokens were cut")
def test_sentences_are_cut_where_sentence_transformers_cuts_them(tmp_path: Path, name: str) -> None:
    """Its own file may set a lower limit than the tokenizer's."""
    tiny_simbert().save_pretrained(tmp_path / "before")
    path = tmp_path / "before" / "sentence_bert_config.json"
    path.with_name(name).write_text(json.dumps({"max_seq_length": 12}))
    if path.name != name:
        path.unlink()
    model = SimBert.from_pretrained(tmp_path / "before")
    text = "the cat sat on the mat and the dog ran " * 4
    vector = model.encode(text)
    assert np.abs(vector - model.encode("the cat sat on the mat and the dog ran")).max() < 1e-6
    model.save_pretrained(tmp_path / "after")
    for folder in ("before", "after"):
        theirs = SentenceTransformer(str(tmp_path / folder), device="cpu")
        assert theirs.max_seq_length == model.max_length == 12
        assert np.abs(theirs.encode(text) - vector).max() < 1e-5


def test_pooling_changes_the_vector() -> None:
    vectors = [tiny_simbert(pooling).encode(TEXTS[0]) for pooling in POOLINGS]
    for i, first in enumerate(vectors):
        for second in vectors[i + 1 :]:
            assert np.abs(first - second).max() > 1e-3


@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_vector_is_the_same_with_a_target_behind_it(pooling: str) -> None:
    model = tiny_simbert(pooling)
    sources, targets = model.rows.sources(TEXTS, 20), model.rows.targets(TEXTS[::-1], 20)
    alone = model(**model.rows.pad(sources)).sentence_embedding
    joined = model(**model.rows.pad(sources, targets)).sentence_embedding
    assert torch.allclose(alone, joined, atol=1e-5)


def test_a_table_of_one_token_type_serves_both_segments() -> None:
    one, two = tiny_simbert(type_vocab_size=1), tiny_simbert()
    name = "bert.embeddings.token_type_embeddings.weight"
    weights = one.state_dict()
    two.load_state_dict(weights | {name: weights[name].repeat(2, 1)})
    sources, targets = one.rows.sources(TEXTS, 20), one.rows.targets(TEXTS[::-1], 20)
    batch = one.rows.pad(sources, targets)
    expected = two(**batch).last_hidden_state
    assert torch.equal(one(**batch).last_hidden_state, expected)
    assert one.gen_synonyms(TEXTS[0], 5, seed=0) == two.gen_synonyms(TEXTS[0], 5, seed=0)
    use_packing(one)
    real = batch["attention_mask"] == 1
    assert torch.allclose(one(**batch).last_hidden_state[real], expected[real], atol=1e-5)


def test_encode_does_not_depend_on_the_batch() -> None:
    model = tiny_simbert()
    together = model.encode(TEXTS, batch_size=3)
    assert np.abs(together - model.encode(TEXTS, batch_size=1)).max() < 1e-6
    assert np.abs(together[1] - model.encode(TEXTS[1])).max() < 1e-6
    assert model.encode(TEXTS[1]).shape == (32,)


def test_saved_config_suits_other_loaders(tmp_path: Path) -> None:
    model = tiny_simbert().bfloat16()
    model.config.is_decoder = True  # as a start's may say, which would mask what follows a token
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["BertModel"]
    assert config["model_type"] == "bert"
    assert config["is_decoder"] is False
    assert config["dtype"] == "float32"
    weights = load_file(tmp_path / "model.safetensors")
    assert {name.split(".")[0] for name in weights} == {"bert", "cls"}
    for loader in (SimBert, AutoModel):
        assert loader.from_pretrained(tmp_path).dtype == torch.float32


def test_modules_of_a_model_of_16_bits_have_32(tmp_path: Path) -> None:
    tiny_simbert("linear_pooler").bfloat16().save_pretrained(tmp_path)
    dense = load_file(tmp_path / "2_Dense" / "model.safetensors")
    assert {tensor.dtype for tensor in dense.values()} == {torch.float32}


@pytest.mark.parametrize(
    ("pooling", "mode"), [("mean", "mean_tokens"), ("tanh_pooler", "cls_token")]
)
def test_modules_have_the_form_that_every_reader_knows(
    tmp_path: Path, pooling: str, mode: str
) -> None:
    """sentence-transformers before 6 and Text Embeddings Inference do not read its newer form."""
    tiny_simbert(pooling).save_pretrained(tmp_path)
    modules = json.loads((tmp_path / "modules.json").read_text())
    dense = ["Dense"] if pooling == "tanh_pooler" else []
    kinds = ["Transformer", "Pooling", *dense, "Normalize"]
    assert [each["type"] for each in modules] == [
        f"sentence_transformers.models.{k}" for k in kinds
    ]
    lengths = json.loads((tmp_path / "sentence_bert_config.json").read_text())
    assert lengths == {"max_seq_length": 48, "do_lower_case": False}
    pools = json.loads((tmp_path / "1_Pooling" / "config.json").read_text())
    assert pools.pop("word_embedding_dimension") == 32
    assert pools == {f"pooling_mode_{each}": each == mode for each in POOLED}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
@pytest.mark.parametrize(
    "save",
    [
        lambda folder: tiny_simbert("linear_pooler").save_pretrained(folder),
        lambda folder: CharGru.for_texts(["a"], min_count=1).save_pretrained(folder),
        lambda folder: SampledCentres((4, 1, 2), sampled=2).save(folder),
        tiny_judge,
    ],
    ids=["simbert", "gru", "centres", "judge"],
)
def test_others_may_read_weights_as_they_may_any_file(
    tmp_path: Path, save: Callable[[Path], object]
) -> None:
    save(tmp_path)
    (tmp_path / "any").touch()
    modes = {path.name: path.stat().st_mode for path in tmp_path.rglob("*") if path.is_file()}
    assert len(set(modes.values())) == 1, modes


def test_saving_again_with_another_pooling_leaves_no_old_module(tmp_path: Path) -> None:
    tiny_simbert("first_last_mean").save_pretrained(tmp_path)
    model = SimBert.from_pretrained(tmp_path, pooling="cls")
    model.save_pretrained(tmp_path)
    loaded = SentenceTransformer(str(tmp_path), device="cpu")
    assert np.abs(loaded.encode(TEXTS) - model.encode(TEXTS)).max() < 1e-5


def test_without_lm_head_it_embeds_and_refuses_to_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start, out = tmp_path / "start", tmp_path / "out"
    BertModel(
        BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                   intermediate_size=48), add_pooling_layer=False,
    ).save_pretrained(start)  # fmt: skip
    wordpiece_tokenizer().save_pretrained(start)
    with caplog.at_level(logging.WARNING):
        model = SimBert.from_pretrained(start)
    assert not caplog.records
    assert not model.has_lm_head
    assert model.config.sentence_pooling == "mean"
    with pytest.raises(ValueError, match=r"no LM head.*scripts/train_simbert\.py"):
        model.gen_synonyms("how can i go")
    model.save_pretrained(out)
    assert not any(name.startswith("cls.") for name in load_file(out / "model.safetensors"))
    again = SimBert.from_pretrained(out)
    assert not again.has_lm_head
    assert np.abs(again.encode(TEXTS) - model.encode(TEXTS)).max() < 1e-6


def test_a_head_that_was_trained_is_saved(tmp_path: Path) -> None:
    BertModel(tiny_simbert().config, add_pooling_layer=False).save_pretrained(tmp_path / "start")
    wordpiece_tokenizer().save_pretrained(tmp_path / "start")
    model = SimBert.from_pretrained(tmp_path / "start")
    ids, targets = torch.ones(1, 3, dtype=torch.long), {"mlm": (torch.tensor([1]),) * 2}
    with torch.no_grad():
        model(input_ids=ids, lm_targets=targets)
    loss = model(input_ids=ids, lm_targets=targets).lm_losses["mlm"]
    assert not model.has_lm_head  # it was measured
    loss.backward()
    model.save_pretrained(tmp_path / "out")
    assert SimBert.from_pretrained(tmp_path / "out").has_lm_head


def test_a_decoder_of_its_own_is_saved(tmp_path: Path) -> None:
    model = tiny_simbert(tie_word_embeddings=False)
    model.save_pretrained(tmp_path)
    again, plain = SimBert.from_pretrained(tmp_path), BertForMaskedLM.from_pretrained(tmp_path)
    for found in (again.cls, plain.cls):
        assert torch.equal(found.predictions.decoder.weight, model.cls.predictions.decoder.weight)
    assert not torch.equal(
        again.cls.predictions.decoder.weight, again.get_input_embeddings().weight
    )


def test_a_decoder_untied_later_is_saved(tmp_path: Path) -> None:
    model = tiny_simbert()
    decoder = copy.deepcopy(model.cls.predictions.decoder)  # as peft's modules_to_save, merged
    model.set_output_embeddings(decoder)
    decoder.weight.data += 1
    decoder.bias.data += 1
    model.config.tie_word_embeddings = False
    model.save_pretrained(tmp_path)
    again = SimBert.from_pretrained(tmp_path)
    assert again.has_lm_head
    for name, weight in decoder.named_parameters():
        assert torch.equal(again.get_output_embeddings().get_parameter(name), weight)


@pytest.mark.parametrize("kind", [SimBert, SentenceEncoder])
def test_a_whole_config_and_loading_info_are_refused(tmp_path: Path, kind: type) -> None:
    model = tiny_simbert()
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="config= is not supported"):
        kind.from_pretrained(tmp_path, config=model.config)
    with pytest.raises(ValueError, match="output_loading_info= is not supported"):
        kind.from_pretrained(tmp_path, output_loading_info=True)
    assert kind.from_pretrained(tmp_path, layer_norm_eps=0.5).config.layer_norm_eps == 0.5


def test_fresh_head_and_pooler_start_at_the_identity(tmp_path: Path) -> None:
    config = BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=4)
    BertModel(config, add_pooling_layer=False).save_pretrained(tmp_path)
    wordpiece_tokenizer().save_pretrained(tmp_path)
    model = SimBert.from_pretrained(tmp_path, pooling="linear_pooler")
    assert torch.equal(model.cls.predictions.transform.dense.weight, torch.eye(32))
    cls_vectors = SimBert.from_pretrained(tmp_path, pooling="cls").encode(TEXTS)
    assert np.abs(model.encode(TEXTS) - cls_vectors).max() < 1e-6


def test_only_the_used_pooler_trains() -> None:
    assert not any(p.requires_grad for p in tiny_simbert("mean").bert.pooler.parameters())
    assert all(p.requires_grad for p in tiny_simbert("linear_pooler").bert.pooler.parameters())


def test_lm_head_is_tied_and_runs_only_where_asked() -> None:
    model = tiny_simbert()
    embeddings = model.bert.embeddings.word_embeddings.weight
    assert model.cls.predictions.decoder.weight is embeddings
    inputs = model.rows.pad(model.rows.sources(TEXTS, 20))
    assert model(**inputs).logits is None
    assert model(**inputs, lm_positions=torch.tensor([1, 4])).logits.shape == (2, len(embeddings))


def test_the_forward_pass_returns_what_others_do() -> None:
    model = tiny_simbert().eval()
    ids = torch.tensor([[5, 6, 7]])
    plain = model(ids)
    assert plain.hidden_states is plain.attentions is None
    told = model(ids, output_hidden_states=True)
    assert len(told.hidden_states) == model.config.num_hidden_layers + 1
    assert told.hidden_states[-1].equal(plain.last_hidden_state)
    first, *_ = model(ids, return_dict=False)
    assert first.equal(plain.sentence_embedding)
    model.set_attn_implementation("eager")
    attentions = model(ids, output_attentions=True).attentions
    assert [a.shape[-2:] for a in attentions] == [(3, 3)] * model.config.num_hidden_layers


@pytest.mark.parametrize("kind", [SimBert, SentenceEncoder])
@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
def test_the_precision_asked_for_is_given(tmp_path: Path, name: str, kind: type) -> None:
    tiny_simbert().save_pretrained(tmp_path)
    assert kind.from_pretrained(tmp_path).dtype == torch.float32
    assert kind.from_pretrained(tmp_path, **{name: torch.bfloat16}).dtype == torch.bfloat16


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    DistilBertModel(
        DistilBertConfig(vocab_size=30, dim=16, n_layers=1, n_heads=2, hidden_dim=16)
    ).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"is a 'distilbert' checkpoint; SimBert needs the BERT"):
        SimBert.from_pretrained(tmp_path)


def test_a_folder_without_a_config_is_no_checkpoint(tmp_path):
    with pytest.raises(OSError, match=r"it is not a directory with a config\.json"):
        SimBert.from_pretrained(tmp_path)


@pytest.mark.parametrize("share", [0, 0.001, 0.5])
def test_cut_weights_are_named(tmp_path: Path, share: float) -> None:
    tiny_simbert().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    for from_pretrained in (SimBert.from_pretrained, load_sentence_transformer):
        with pytest.raises(OSError, match=r"model\.safetensors is truncated or damaged .* again"):
            from_pretrained(str(tmp_path))


@pytest.mark.parametrize("found", [{"pooling_mode": "cls"}, {"pooling_mode_cls_token": True}])
def test_another_pooling_of_sentence_transformers_is_said_so(
    tmp_path: Path, found: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    tiny_simbert().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["sentence_pooling"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    caplog.set_level(logging.INFO, "simbert_hf")
    SimBert.from_pretrained(tmp_path)
    SimBert.from_pretrained(tmp_path, pooling="mean")
    assert not caplog.messages
    SimBert.from_pretrained(tmp_path, pooling="linear_pooler")
    assert "trained with the pooling mean; now using linear_pooler" in caplog.messages.pop()
    caplog.clear()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(found))
    SimBert.from_pretrained(tmp_path, pooling="cls")
    assert not caplog.messages
    SimBert.from_pretrained(tmp_path)
    assert "pass pooling='cls'" in caplog.text


def test_modules_that_are_not_read_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As in LaBSE."""
    config = BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=4)
    BertModel(config).save_pretrained(tmp_path / "start")
    wordpiece_tokenizer().save_pretrained(tmp_path / "start")
    body = Transformer(str(tmp_path / "start"))
    SentenceTransformer(modules=[body, Pooling(32, "mean"), Dense(32, 16)]).save(str(tmp_path))
    SimBert.from_pretrained(tmp_path)
    assert "made by Pooling (mean), Dense, which is not supported here" in caplog.text


def test_a_head_untied_from_its_decoder_cannot_write(tmp_path: Path) -> None:
    tiny_simbert().save_pretrained(tmp_path)
    assert not SimBert.from_pretrained(tmp_path, tie_word_embeddings=False).has_lm_head


@pytest.mark.parametrize("kind", ["flex_attention", "flash_attention_2"])
def test_attention_without_prefix_masks_is_refused(tmp_path: Path, kind: str) -> None:
    tiny_simbert().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"with this attn_implementation.* Leave it out"):
        SimBert.from_pretrained(tmp_path, attn_implementation=kind)


def test_adapters_are_to_be_merged(tmp_path: Path) -> None:
    model = tiny_simbert()
    model._hf_peft_config_loaded = True  # as add_adapter leaves it
    with pytest.raises(ValueError, match=r"has an adapter .* merge_and_unload"):
        model.save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(OSError, match="holds only an adapter: merge it"):
        SimBert.from_pretrained(tmp_path)


def test_adapters_inside_the_model_are_to_be_merged(tmp_path: Path) -> None:
    model = tiny_simbert()
    query = model.bert.encoder.layer[0].attention.self.query
    model.bert.encoder.layer[0].attention.self.query = torch.nn.Module()
    model.bert.encoder.layer[0].attention.self.query.base_layer = query  # as get_peft_model does
    with pytest.raises(ValueError, match=r"an adapter of peft.* merge_and_unload"):
        model.save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_default_type_of_torch_changes_no_writing() -> None:
    model = tiny_simbert()
    expected = model.gen_synonyms(TEXTS, 5, copying=1.0)
    torch.set_default_dtype(torch.float64)
    try:
        assert model.gen_synonyms(TEXTS, 5, copying=1.0) == expected
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        (["fine", ""], ValueError, "text 1 is empty"),
        (["fine", 7], TypeError, "text 1 is int 7; pass strings only"),
        (np.array("fine"), TypeError, "pass a string or a list of strings"),
        ({"fine", "good"}, TypeError, "text is set .*; pass a string or a list"),  # without order
        (np.str_(" "), ValueError, "text 0 is empty"),
        ("  ", ValueError, "text 0 is empty"),
    ],
)
def test_encode_refuses_what_is_no_sentence(
    texts: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        tiny_simbert().encode(texts)  # type: ignore[arg-type]


def test_overlong_text_is_cut_with_a_warning() -> None:
    model = tiny_simbert()
    with pytest.warns(UserWarning, match="more than 48 tokens were cut"):
        vector = model.encode("the cat " * 40)
    assert np.abs(vector - model.encode("the cat " * 23)).max() < 1e-6


def test_unknown_pooling_is_refused() -> None:
    with pytest.raises(ValueError, match=r"pooling='max': choose one of mean"):
        tiny_simbert("max")


def test_a_model_without_tokenizer_says_so() -> None:
    model = tiny_simbert()
    model.tokenizer = None
    with pytest.raises(ValueError, match="has no tokenizer"):
        model.encode("a cat")


def test_loads_by_hub_id_revision_and_cache(tmp_path: Path) -> None:
    """A cache laid out as the Hub client does stands for the Hub: tests have no network."""
    models = {"main": tiny_simbert("cls"), "v2": tiny_simbert("linear_pooler")}
    repository = tmp_path / "models--org--name"
    (repository / "refs").mkdir(parents=True)
    for i, (revision, model) in enumerate(models.items()):
        (repository / "refs" / revision).write_text(str(i) * 40)
        model.save_pretrained(repository / "snapshots" / (str(i) * 40))
    for revision, model in models.items():
        options = {"cache_dir": tmp_path, "revision": revision, "token": "secret"}
        loaded = SimBert.from_pretrained("org/name", **options)
        assert loaded.config.sentence_pooling == model.config.sentence_pooling
        assert np.abs(loaded.encode(TEXTS) - model.encode(TEXTS)).max() < 1e-6
    with pytest.raises(OSError, match="org/name"):
        SimBert.from_pretrained("org/name", cache_dir=tmp_path / "empty")


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_a_cache_by_either_name(name: str) -> None:
    """As transformers has called it since 5.24, and before."""
    model, ids = tiny_simbert().eval(), torch.tensor([[2, 5, 6, 3, 7]])
    mask = torch.zeros(1, 1, 5, 5)
    mask[..., :4, 4] = torch.finfo(torch.float32).min
    whole, cache = model(ids, attention_mask=mask).last_hidden_state, DynamicCache()
    for rows in (slice(0, 4), slice(4, 5)):
        output = model(
            ids[:, rows],
            attention_mask=mask[:, :, rows, : rows.stop],
            position_ids=torch.arange(5)[None, rows],
            **{name: cache},
        )
    assert output.cache is cache
    assert cache.get_seq_length() == 5
    torch.testing.assert_close(output.last_hidden_state, whole[:, 4:], atol=1e-5, rtol=0)


def test_threads_leave_each_other_s_dropout_off_and_training_as_it_was() -> None:
    model = tiny_simbert().train()
    first, second = evaluating(model), evaluating(model)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)  # as another thread that is done
    assert not any(module.training for module in model.modules())
    second.__exit__(None, None, None)
    assert all(module.training for module in model.modules())
    model.bert.eval()
    with evaluating(model):
        pass
    assert (model.training, model.bert.training) == (True, False)


def test_the_mean_of_no_tokens_is_zero() -> None:
    assert masked_mean(torch.ones(1, 2, 3), torch.zeros(1, 2)).tolist() == [[0, 0, 0]]
