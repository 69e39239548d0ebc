"""Rows of token ids: ``[CLS] source [SEP]`` in segment 0, then ``target [SEP]`` in segment 1.

Built from ids and not with ``tokenizer(a, b)``: pair templates differ (some put two separators
between the sentences), and many tokenizers return no segments at all.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import accumulate, pairwise
from typing import Any, Protocol, TypeGuard

import numpy as np
import torch
from tokenizers import Encoding
from torch import Tensor
from transformers import BatchEncoding, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from simbert_hf.utils.arrays import Ints
from simbert_hf.utils.text import CJK_CHAR, CONTROL, compose, is_whole, is_wordpiece

_CUTS_KNOWN = ContextVar("_CUTS_KNOWN", default=False)

# Scripts that are neither Latin nor Chinese; Korean decomposed, as uncased models read it.
LETTER = "[\u0370-\u1dff\u3040-\u30ff]"
SPELT = re.compile(rf"(?<!\S){LETTER}(?: ##{LETTER}{{1,2}})+(?!\S)")  # a word in single letters
MAY_BE_UNKNOWN = re.compile(r"[^\x00-\x7f]|\S{101}")  # WordPiece gives up on words that long


def check_texts(text: object) -> list[str]:
    """Return one text or several as a list, composed (NFC) and without control characters.

    Models ignore the latter, and few vocabularies have the accents of text that is decomposed.

    Raises:
        TypeError: If an item is not a string.
        ValueError: If an item is empty or blank, or holds half a character.
    """
    if not holds_texts(text):
        raise TypeError(
            f"text is {type(text).__name__} {text!r:.40}; pass a string or a list of strings."
        )
    texts = [text] if isinstance(text, str) else list(text)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"text {i} is {type(text).__name__} {text!r:.40}; pass strings only.")
        texts[i] = compose(CONTROL.sub("", text))
        if not texts[i].strip():
            raise ValueError(f"text {i} is empty; drop it or give it at least one word.")
        if not is_whole(text):
            raise ValueError(
                f"text {i} holds half a character ({text!r:.40}): it was cut or decoded wrongly."
            )
    return texts


def holds_texts(texts: object) -> TypeGuard[Iterable[Any]]:
    """Return whether an object yields texts in order; dicts and frames would yield keys.

    Example:
        >>> [holds_texts(texts) for texts in ("a", ["a", "b"], {"a": "b"}, {"a"}, 5, b"a")]
        [True, True, False, False, False, False]
    """
    if isinstance(texts, str):  # before the check of ndim, which a NumPy string has
        return True
    others = isinstance(texts, Mapping | bytes | set | frozenset) or hasattr(texts, "columns")
    others |= getattr(texts, "ndim", 1) == 0  # a 0-d array, which cannot be iterated
    return isinstance(texts, Iterable) and not others


@contextmanager
def cuts_known() -> Iterator[None]:
    """Cut texts without a warning inside the block, in this thread alone."""
    token = _CUTS_KNOWN.set(True)
    try:
        yield
    finally:
        _CUTS_KNOWN.reset(token)


def warn_of_cuts(
    max_length: int, remedy: str = "split them, or raise max_length if you set it"
) -> None:
    """Warn once that texts are longer than a model accepts."""
    if _CUTS_KNOWN.get():
        return
    warnings.warn(
        f"Texts of more than {max_length} tokens were cut to that length. If their ends matter, "
        f"{remedy}.",
        stacklevel=1,  # one place, so that Python shows it once
    )


def unread(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[str]:
    """Find the texts at least half of whose tokens are unknown to a tokenizer.

    To a model they are nearly alike, as Chinese ones are to an English model. Every vocabulary is
    assumed to know ASCII, except for words of more than 100 characters.

    Example:
        >>> from simbert_hf.gru import char_tokenizer
        >>> unread(char_tokenizer(["你好"], min_count=1), ["你好", "再见你", "早"])
        ['再见你', '早']
    """
    foreign = list(filter(MAY_BE_UNKNOWN.search, texts))
    if not foreign:
        return []
    composed = list(map(compose, foreign))
    rows = tokenizer(composed, add_special_tokens=False, verbose=False)["input_ids"]
    found = zip(foreign, are_unknown(tokenizer, rows), strict=True)
    return [text for text, unknown in found if unknown]


def are_unknown(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Sequence[int]]) -> list[bool]:
    """Return for each row of ids whether at least half of its non-special ones are unknown: (N,).

    A word that WordPiece can only spell letter by letter, as an English model's does with Russian
    words, counts as one unknown token.
    """
    unknown, special = str(tokenizer.unk_token), set(tokenizer.all_special_tokens)
    tokens: list[Any] = [tokenizer.convert_ids_to_tokens(list(row)) for row in rows]
    if is_wordpiece(tokenizer):
        tokens = [SPELT.sub(unknown, " ".join(row)).split() for row in tokens]
    return [0 < row.count(unknown) >= sum(one not in special for one in row) for row in tokens]


def warn_of_unread() -> None:
    """Warn once that a model cannot read texts."""
    warnings.warn(
        "Half or more of a text's tokens are unknown to the model, so such texts look nearly alike "
        "to it; use a model that was trained on their language (CHINESE_MODEL for Chinese).",
        stacklevel=1,  # one place, so that Python shows it once
    )


def count_tokens(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, add_special_tokens: bool = False
) -> Ints:
    """Count the tokens of texts, in half the time that their ids take: (N,).

    Example:
        >>> from simbert_hf.gru import char_tokenizer
        >>> count_tokens(char_tokenizer(["ab"], min_count=1), ["a", "abba"]).tolist()
        [1, 4]
    """
    if isinstance(tokenizer, PreTrainedTokenizerFast):
        engine = tokenizer.backend_tokenizer
        engine.no_truncation()
        engine.no_padding()
        found: Sequence[Any] = engine.encode_batch_fast(
            list(texts), add_special_tokens=add_special_tokens
        )
    else:
        found = tokenizer(list(texts), add_special_tokens=add_special_tokens, verbose=False)[
            "input_ids"
        ]
    return np.array([len(row) for row in found], dtype=np.int64)


def words_of(text: str, encoding: Encoding) -> list[int]:
    """Return the number of each token's word, in order; each Chinese token is a word.

    To SentencePiece, a text without spaces is one word.

    Example:
        >>> from tokenizers import Tokenizer, models
        >>> engine = Tokenizer(models.Unigram([(token, -1.0) for token in ("a", "你", "好")]))
        >>> words_of("aa你好", engine.encode("aa你好"))
        [0, 0, 1, 2]
    """
    chinese = [bool(CJK_CHAR.search(text, *span)) for span in encoding.offsets]
    tokens = zip(encoding.word_ids, encoding.offsets, chinese, strict=True)
    begins = (
        word != before or ((here or there) and start >= end)  # bytes of one character overlap
        for (before, (_, end), there), (word, (start, _), here) in pairwise(tokens)
    )
    return list(accumulate(begins, initial=0)) if chinese else []


class Rows(Protocol):
    """Builds rows of some kind, with one item per token, and pads them."""

    tokenizer: PreTrainedTokenizerBase

    def sources(self, texts: Sequence[str], max_length: int) -> list[Any]:
        """Make a row for each text."""

    def ids(self, row: Any, /) -> list[int]:
        """Return the token ids of a row."""

    def lengths(self, texts: Sequence[str], max_length: int) -> Ints:
        """Count the tokens of each text's row: (N,)."""

    def pad(self, sources: Sequence[Any], /) -> dict[str, Tensor]:
        """Pad rows to tensors, named like the arguments of the model's forward pass."""


class RowBuilder:
    """Turns texts into rows of token ids and pads rows to tensors.

    Args:
        tokenizer: Any tokenizer with a separator and a padding token; its ``cls_token`` (or
            ``bos_token``) begins the source, its ``sep_token`` (or ``eos_token``) ends both.

    Raises:
        ValueError: If the tokenizer lacks one of the three.

    Attributes:
        n_special: Number of special tokens in a source.
        width: Minimum length to which rows are padded.

    Example:
        >>> from transformers import AutoTokenizer
        >>> from simbert_hf import DEFAULT_MODEL
        >>> rows = RowBuilder(AutoTokenizer.from_pretrained(DEFAULT_MODEL))
        >>> sources, targets = rows.sources(["hi", "hi there"], 8), rows.targets(["hello"] * 2, 8)
        >>> sources
        [[101, 7632, 102], [101, 7632, 2045, 102]]
        >>> rows.pad(sources, targets)["token_type_ids"]
        tensor([[0, 0, 0, 1, 1, 0],
                [0, 0, 0, 0, 1, 1]])
    """

    n_special = 2
    width = 0

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.cls_id = self._special("cls_token", "bos_token")
        self.sep_id = self._special("sep_token", "eos_token")
        self.pad_id = self._special("pad_token")

    def _special(self, *names: str) -> int:
        for name in names:
            token_id = getattr(self.tokenizer, f"{name}_id", None)
            if token_id is not None:
                return int(token_id)
        raise ValueError(
            f"The tokenizer {type(self.tokenizer).__name__} has no {' or '.join(names)}; "
            f"set one, e.g. tokenizer.{names[0]} = '[...]'."
        )

    def sources(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Make ``[CLS] text [SEP]`` of each text, at most ``max_length`` tokens in all."""
        return self._sources(self._encode(texts), max_length)

    def sources_and_words(
        self, texts: Sequence[str], max_length: int
    ) -> tuple[list[list[int]], list[list[int | None]]]:
        """Make :meth:`sources`, and number each token's word, with None for special tokens."""
        encoded = self._encode(texts)
        rows = self._sources(encoded, max_length)
        words = map(words_of, texts, encoded.encodings or ())
        return rows, [
            [None, *numbers[: len(row) - 2], None] for row, numbers in zip(rows, words, strict=True)
        ]

    def _sources(self, encoded: BatchEncoding, max_length: int) -> list[list[int]]:
        rows = self._ids(encoded, max_length, self.n_special)
        return [[self.cls_id, *row, self.sep_id] for row in rows]

    def ids(self, row: list[int]) -> list[int]:
        """Return the token ids of a row: itself."""
        return row

    def lengths(self, texts: Sequence[str], max_length: int) -> Ints:
        """Count the tokens of each source row: (N,)."""
        return (count_tokens(self.tokenizer, texts) + self.n_special).clip(max=max_length)

    def targets(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Make ``text [SEP]`` of each text, at most ``max_length`` tokens with the separator."""
        return [[*row, self.sep_id] for row in self._ids(self._encode(texts), max_length, 1)]

    def _encode(self, texts: Sequence[str]) -> BatchEncoding:
        if not texts:  # tokenizers refuse an empty list
            return BatchEncoding({"input_ids": []})
        composed = list(map(compose, texts))
        return self.tokenizer(
            composed, add_special_tokens=False, return_attention_mask=False, verbose=False
        )

    def _ids(self, encoded: BatchEncoding, max_length: int, n_special: int) -> list[list[int]]:
        """Return token ids, cut (with one warning) to leave room for ``n_special`` more."""
        room = max(max_length - n_special, 0)
        rows: list[list[int]] = encoded["input_ids"]
        if any(len(row) > room for row in rows):
            warn_of_cuts(max_length)
        return [row[:room] for row in rows]

    def pad(
        self, sources: Sequence[list[int]], targets: Sequence[list[int]] | None = None
    ) -> dict[str, Tensor]:
        """Join each source with its target (if any) and pad on the right.

        Returns:
            ``input_ids``, ``attention_mask`` and ``token_type_ids``, int64, each of shape (B, L).
        """
        ends: Sequence[list[int]] = targets if targets is not None else [[]] * len(sources)
        starts, behind = (
            torch.tensor([len(row) for row in some], device="cpu")[:, None]
            for some in (sources, ends)
        )
        lengths = starts + behind
        columns = torch.arange(max(self.width, int(lengths.max())), device="cpu")
        real = columns < lengths
        tokens = [token for a, b in zip(sources, ends, strict=True) for token in (*a, *b)]
        ids = torch.full(real.shape, self.pad_id, device="cpu")
        ids[real] = torch.tensor(tokens, dtype=torch.long, device="cpu")
        segments = real & (columns >= starts)
        return {
            "input_ids": ids,
            "attention_mask": real.long(),
            "token_type_ids": segments.long(),
        }


class TemplateRows:
    """Turns texts into rows by the tokenizer's own template, and pads on the tokenizer's side.

    A row is a list of one tuple per token: its id, and its segment if the tokenizer returns one.

    Args:
        tokenizer: Any tokenizer with a padding token.

    Raises:
        ValueError: If it has no padding token.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if tokenizer.pad_token_id is None:
            raise ValueError("The tokenizer has no padding token; set tokenizer.pad_token.")
        self.tokenizer = tokenizer
        self.names = [n for n in tokenizer.model_input_names if n != "attention_mask"]

    def sources(self, texts: Sequence[str], max_length: int) -> list[list[tuple[int, ...]]]:
        """Add special tokens to each text, which is cut to ``max_length`` tokens with them."""
        if not texts:
            return []
        encoded = self.tokenizer(list(texts), truncation=True, max_length=max_length)
        if any(one.overflowing for one in encoded.encodings or ()):
            warn_of_cuts(max_length)
        columns = zip(*(encoded[name] for name in self.names), strict=True)
        return [list(zip(*row, strict=True)) for row in columns]

    def ids(self, row: list[tuple[int, ...]]) -> list[int]:
        """Return the token ids of a row."""
        at = self.names.index("input_ids")
        return [token[at] for token in row]

    def lengths(self, texts: Sequence[str], max_length: int) -> Ints:
        """Count the tokens of each row: (N,)."""
        return count_tokens(self.tokenizer, texts, add_special_tokens=True).clip(max=max_length)

    def pad(self, rows: Sequence[list[tuple[int, ...]]]) -> dict[str, Tensor]:
        """Pad rows to tensors.

        Returns:
            ``input_ids``, ``attention_mask`` and, if the tokenizer returns them,
            ``token_type_ids``, int64, each of shape (B, L).
        """
        columns = {
            name: [[token[i] for token in row] for row in rows] for i, name in enumerate(self.names)
        }
        return dict(self.tokenizer.pad(columns, return_tensors="pt"))


def target_labels(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Find where target tokens are predicted: at the position before each, in its row.

    The source's [SEP] predicts the first target token, and the final [SEP] is a target too.

    Returns:
        ``target_positions`` into the flattened B * L positions, and ``target_labels``: both (N,).

    Example:
        >>> ids, segments = torch.tensor([[101, 7, 102, 8, 102]]), torch.tensor([[0, 0, 0, 1, 1]])
        >>> target_labels({"input_ids": ids, "token_type_ids": segments})
        {'target_positions': tensor([2, 3]), 'target_labels': tensor([  8, 102])}
    """
    is_target = batch["token_type_ids"][:, 1:].bool()  # (B, L - 1), at the predicting position
    row, column = is_target.nonzero(as_tuple=True)
    width = batch["input_ids"].shape[1]
    return {
        "target_positions": row * width + column,
        "target_labels": batch["input_ids"][:, 1:][is_target],
    }
