"""Export SimBert as ONNX graphs, and run them with onnxruntime.

``onnx/model.onnx`` encodes: ``input_ids, attention_mask, token_type_ids`` (B, L), int64, give
``last_hidden_state`` (B, L, D), which sentence-transformers' ``backend="onnx"`` pools itself, and
``sentence_embedding`` (B, D), pooled, whitened and of length 1. ``onnx/model_quint8.onnx`` is the
same with 8-bit weights. ``onnx/decoder.onnx`` writes: see :class:`DecoderGraph`.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim
from transformers import AutoTokenizer, DynamicCache

from simbert_hf.generation.search import SearchSettings
from simbert_hf.generation.writing import Draft, write_by
from simbert_hf.modeling.embedding import encode_by, evaluating
from simbert_hf.modeling.graphs import check_graphs, record_graphs
from simbert_hf.modeling.reading import OWN_CODE, read_config, sentence_limit
from simbert_hf.modeling.simbert import SimBert, SimBertConfig
from simbert_hf.pooling import normalize
from simbert_hf.rows import RowBuilder, check_texts
from simbert_hf.utils.atomic import whole
from simbert_hf.utils.extras import require

FOLDER = "onnx"
ENCODER, QUANTIZED, DECODER = "model.onnx", "model_quint8.onnx", "decoder.onnx"
OPSET = 18
CACHED = ("keys", "values")


class EncoderGraph(nn.Module):
    """Source rows -> last hidden states and unit vectors."""

    def __init__(self, model: SimBert) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Encode rows of shape (B, L); return (B, L, D) and (B, D)."""
        output = self.model(input_ids, attention_mask, token_type_ids)
        return output.last_hidden_state, normalize(output.sentence_embedding)


class DecoderGraph(nn.Module):
    """Tokens and a cache -> logits of each row's next token, and the grown cache.

    One graph reads the sources (empty cache, whole rows, padded on the right) and continues them
    (one token per row): in both cases every new token sees all real tokens, so the prefix mask is a
    padding mask.
    """

    def __init__(self, model: SimBert) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor,
        position_ids: Tensor,
        past_keys: Tensor,
        past_values: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Feed L new tokens to each of R rows, of which P are cached in N layers of H heads.

        Args:
            input_ids: New tokens. Shape: (R, L).
            attention_mask: 1 for tokens, 0 for padding. Shape: (R, P + L).
            token_type_ids: 0 for the source, 1 for what is written. Shape: (R, L).
            position_ids: Shape: (R, L).
            past_keys: Shape: (N, R, H, P, D / H).
            past_values: The same.

        Returns:
            Logits of the token after each row's last real one, (R, V), and the cache, P + L long.
        """
        cache = DynamicCache()
        for layer in range(past_keys.shape[0]):
            cache.update(past_keys[layer], past_values[layer], layer)
        new = input_ids.shape[1]
        padding = (1 - attention_mask.to(past_keys.dtype)) * torch.finfo(past_keys.dtype).min
        output = self.model(
            input_ids,
            attention_mask=padding[:, None, None, :].expand(-1, 1, new, -1),
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            cache=cache,
        )
        last = attention_mask[:, -new:].sum(dim=1) - 1
        rows = torch.arange(input_ids.shape[0], device=input_ids.device)
        logits = self.model.cls(output.last_hidden_state[rows, last])
        layers: Any = cache.layers
        keys, values = (torch.stack([getattr(each, n) for each in layers]) for n in CACHED)
        return logits, keys, values


def export(model: SimBert, folder: str | Path) -> list[Path]:
    """Write a model's graphs into ``folder/onnx``: both encoders, and the decoder if it can write.

    Args:
        model: A model with a tokenizer.
        folder: A directory written by ``save_pretrained``, which holds config and tokenizer. A
            record of its weights is written next to the graphs.

    Raises:
        ImportError: If the extra ``onnx`` is not installed.
        ValueError: If the model is not a ``SimBert`` of the BERT architecture.
    """
    check_exportable(model)
    if model.dtype != torch.float32:  # as every loader reads 16 bits
        model = deepcopy(model).float()
    out = Path(folder, FOLDER)
    out.mkdir(parents=True, exist_ok=True)
    ids = torch.ones(2, 3, dtype=torch.long, device=model.device)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    made = [out / ENCODER]
    with evaluating(model), torch.no_grad():
        graph = EncoderGraph(model)
        outputs = ["last_hidden_state", "sentence_embedding"]
        write_graph(graph, (ids, ids, ids), names, outputs, made[0])
        if model.has_lm_head:
            past = torch.zeros(cache_shape(model.config, 2, 5), device=model.device)
            given = (ids, ids.new_ones(2, 8), ids, ids, past, past)
            names = [*names, "position_ids", "past_keys", "past_values"]
            made.append(out / DECODER)
            write_graph(DecoderGraph(model), given, names, ["logits", "keys", "values"], made[1])
        else:
            (out / DECODER).unlink(missing_ok=True)  # a previous model's
    quantize(out / ENCODER, out / QUANTIZED)
    record_graphs(Path(folder))
    return [*made, out / QUANTIZED]


def cache_shape(config: SimBertConfig, rows: int, length: int) -> tuple[int, ...]:
    """Return the shape of the keys, and of the values, of ``length`` tokens in each row."""
    heads = config.num_attention_heads
    return config.num_hidden_layers, rows, heads, length, config.hidden_size // heads


def check_exportable(model: object) -> None:
    """Refuse models that cannot be exported.

    Raises:
        ImportError: If the extra ``onnx`` is not installed.
        ValueError: If the model is not a ``SimBert`` of the BERT architecture.
    """
    if not isinstance(model, SimBert) or model.config.model_type != "bert":
        raise ValueError(f"Only a SimBert on BERT can be exported, not a {type(model).__name__}.")
    for module in ("onnxscript", "onnxruntime"):
        require(module, "onnx")


def write_graph(
    graph: nn.Module, given: tuple[Tensor, ...], names: list[str], outputs: list[str], path: Path
) -> None:
    """Export a module with torch.onnx; sizes except those of layers and heads may vary."""
    shapes = [dict.fromkeys((1, 3) if t.dim() > 2 else (0, 1), Dim.AUTO) for t in given]
    with whole(path) as made, quiet_export():
        program = torch.onnx.export(
            graph.eval(),
            tuple(tensor.clone() for tensor in given),  # equal tensors become one input
            dynamo=True,
            dynamic_shapes=shapes,
            input_names=names,
            output_names=outputs,
            opset_version=OPSET,
            verbose=False,
        )
        assert program is not None
        program.save(made, external_data=False)


@contextmanager
def quiet_export() -> Iterator[None]:
    """Hide what torch.onnx and onnxruntime log about their internals."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "root")]
    levels = [each.level for each in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each in loggers:
            each.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for each, level in zip(loggers, levels, strict=True):
                each.setLevel(level)


def quantize(path: Path, out: Path) -> None:
    """Write a graph with 8-bit weights, scaled by column, and dynamically quantised activations.

    Weights are unsigned, since sums of signed ones overflow on processors with AVX2 but no VNNI.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(path)
    del graph.graph.value_info[:]  # shapes, which it does not transpose with the weights
    with whole(out) as made, quiet_export():
        quantize_dynamic(graph, made, weight_type=QuantType.QUInt8, per_channel=True)


class OnnxSimBert:
    """An exported ``SimBert`` run by onnxruntime: it makes the same vectors and paraphrases.

    Args:
        folder: Directory that ``save_pretrained`` and :func:`export` wrote.
        encoder: Which encoder: ``model.onnx``, or ``model_quint8.onnx``.
        threads: Threads per operation; onnxruntime's choice if None.

    Raises:
        ImportError: If the extra ``onnx`` is not installed.
        OSError: If there is no such graph.
        ValueError: If the folder's weights have changed since the export.
    """

    def __init__(
        self, folder: str | Path, encoder: str = ENCODER, threads: int | None = None
    ) -> None:
        self.folder = Path(folder)
        check_graphs(self.folder)
        self.encoder, self.threads = encoder, threads
        self.config = SimBertConfig.from_dict(read_config(folder, {}))
        tokenizer = AutoTokenizer.from_pretrained(folder, **sentence_limit(folder, {}), **OWN_CODE)
        self.rows = RowBuilder(tokenizer)
        self.max_length = min(tokenizer.model_max_length, self.config.max_position_embeddings)
        self.device = torch.device("cpu")
        self.session = self.open(encoder)
        self.dimension: int = self.session.get_outputs()[1].shape[-1]

    def __reduce__(self) -> tuple[Any, ...]:  # sessions cannot be pickled
        return type(self), (self.folder.resolve(), self.encoder, self.threads)

    @cached_property
    def decoder(self) -> Any:
        """The decoder's graph, loaded when it is first needed."""
        return self.open(DECODER)

    def open(self, name: str) -> Any:
        """Load a graph.

        Raises:
            ImportError: If the extra ``onnx`` is not installed.
            OSError: If there is none.
        """
        require("onnxruntime", "onnx")
        import onnxruntime

        path = self.folder / FOLDER / name
        if not path.exists():
            raise OSError(f"There is no {path}; create it with scripts/export_onnx.py.")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads or 0
        providers = ["CPUExecutionProvider"]
        return onnxruntime.InferenceSession(os.fspath(path), options, providers=providers)

    def encode(self, texts: str | Sequence[str], *, batch_size: int = 64) -> np.ndarray:
        """Embed sentences as unit vectors, like ``SimBert.encode``."""

        def embed(inputs: dict[str, Tensor]) -> np.ndarray:
            arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
            return self.session.run(["sentence_embedding"], arrays)[0]

        return encode_by(embed, self, texts, batch_size)

    def write(self, texts: Sequence[str], settings: SearchSettings) -> list[list[Draft]]:
        """Write different sentences for each text, like ``generation.writing.write``.

        A text of several sentences is treated as one; split it with ``split_sentences`` first.
        ``SearchSettings(n=1, strategy="beam")`` is greedy search.

        Raises:
            OSError: If there is no graph of the decoder.
            TypeError: If a text is not a string.
            ValueError: If a text is empty, or the model has no room for ``max_new_tokens``.
        """
        return write_by(partial(OnnxDecoder, self), self, check_texts(texts), settings)


class OnnxDecoder:
    """Like :class:`simbert_hf.generation.decoder.BertDecoder`, but run by onnxruntime.

    Args:
        model: The model with the graph.
        sources: ``[CLS] text [SEP]`` rows, S of them.
        max_new_tokens: Maximum number of tokens to feed.
        banned: Ids never to write. Shape: (N,).
    """

    def __init__(
        self, model: OnnxSimBert, sources: list[list[int]], max_new_tokens: int, banned: Tensor
    ) -> None:
        self.session = model.decoder
        self.banned = banned
        self.sep_id = model.rows.sep_id
        self.inputs = {name: value.numpy() for name, value in model.rows.pad(sources).items()}
        real = self.inputs["attention_mask"]
        self.lengths, self.width = real.sum(axis=1), real.shape[1]
        self.mask = np.pad(real, ((0, 0), (0, max_new_tokens)), constant_values=1)
        shape = cache_shape(model.config, len(sources), 0)
        self.keys = self.values = np.zeros(shape, dtype=np.float32)

    def start(self) -> Tensor:
        """Encode the sources; return the logits of each one's first new token, (S, V)."""
        positions = np.broadcast_to(np.arange(self.width), self.inputs["input_ids"].shape)
        logits = self._run(**self.inputs, position_ids=np.ascontiguousarray(positions))
        logits[:, self.sep_id] = -torch.inf  # an empty sentence is not a paraphrase
        return logits

    def step(self, parents: Tensor, sources: Tensor, tokens: Tensor) -> Tensor:
        """Feed one token to each of R prefixes; see ``Decoder.step``."""
        self.keys, self.values = self.keys[:, parents.numpy()], self.values[:, parents.numpy()]
        cached, chosen = self.keys.shape[3], sources.numpy()
        return self._run(
            input_ids=tokens[:, None].numpy(),
            attention_mask=self.mask[chosen, : cached + 1],
            token_type_ids=np.ones((len(chosen), 1), dtype=np.int64),
            position_ids=(self.lengths[chosen] + cached - self.width)[:, None],
        )

    def read(self, tokens: Tensor) -> Iterator[Tensor]:
        """Feed L tokens to each source after ``start``, and forget them; see ``Decoder.read``.

        One after the other: in the graph, new tokens see each other.
        """
        keys, values, rows = self.keys, self.values, torch.arange(len(self.lengths))
        for column in tokens.T:
            yield self.step(rows, rows, column)
        self.keys, self.values = keys, values

    def _run(self, **inputs: np.ndarray) -> Tensor:
        cache = {"past_keys": self.keys, "past_values": self.values}
        logits, self.keys, self.values = self.session.run(None, inputs | cache)
        return torch.from_numpy(logits).index_fill_(1, self.banned, -torch.inf)
