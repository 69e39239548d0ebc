"""Encode the questions of an FAQ, and detect a model that cannot read them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from tqdm.auto import tqdm

from simbert_hf.encoders.text_encoder import TextEncoder
from simbert_hf.encoders.vectorfiles import encoded
from simbert_hf.index.faqs import Faq
from simbert_hf.index.saving import KEPT
from simbert_hf.utils.arrays import Vectors
from simbert_hf.utils.textfiles import DataError, shorten

logger = logging.getLogger(__name__)

BLOCK = 1024  # texts encoded between two updates of the progress bar


def check_read(encoder: TextEncoder, faqs: Sequence[Faq]) -> None:
    """Raise a DataError if the model cannot read most questions, as they would all score 1.

    Warn of fewer ones, which it can hardly tell apart.
    """
    foreign = encoder.unread([faq.question for faq in faqs])
    if not foreign:
        return
    told = (
        f"Half or more of the tokens are unknown to the model in {len(foreign):,} of "
        f"{len(faqs):,} questions, such as {shorten(foreign[0])}"
    )
    if 2 * len(foreign) > len(faqs):
        raise DataError(
            f"{told}. Build the index with a model trained on their language (simbert index build "
            "--model; for Chinese, simbert-e5-zh)."
        )
    logger.warning("%s: it hardly tells them apart. Remove or translate them", told)


def encode_questions(encoder: TextEncoder, faqs: Sequence[Faq], *, progress: bool) -> Vectors:
    """Embed questions, block by block, (N, D); raise a DataError if most cannot be read."""
    check_read(encoder, faqs)
    blocks = []
    with tqdm(total=len(faqs), desc="encoding", disable=not progress) as bar:
        for start in range(0, len(faqs), BLOCK):
            blocks.append(encoder([faq.question for faq in faqs[start : start + BLOCK]]))
            bar.update(len(blocks[-1]))
    return np.concatenate(blocks)


@contextmanager
def encoded_questions(
    encoder: TextEncoder,
    faqs: Sequence[Faq],
    save_to: str | os.PathLike[str] | None,
    *,
    progress: bool,
) -> Iterator[Vectors]:
    """Embed questions for the index that the ``with`` block makes, and perhaps saves.

    If encoding or the block stops, the next call for that directory goes on with its vectors.
    """
    if save_to is None:
        yield encode_questions(encoder, faqs, progress=progress)
        return
    check_read(encoder, faqs)
    texts, output = [faq.question for faq in faqs], Path(save_to, KEPT.removesuffix(".parts"))
    with encoded(texts, encoder, output, discard=True, progress=progress) as (files, _):
        yield np.concatenate([np.load(file) for file in files])
