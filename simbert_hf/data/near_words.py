"""Words that are near each other in a model's word embeddings, as a cheap stand-in for synonyms.

This is no thesaurus: near words are used alike but need not mean the same. In MiniLM's table, at
the cosine required here, most are inflections ("walked": "walk", "walks"), some are synonyms
("quickly": "rapidly", "swiftly"), and a few change the meaning ("monday": "tuesday").
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from simbert_hf.pooling import normalize

SHORTEST = 4  # letters; shorter words are mostly function words and pieces
BOUND = 0.6  # minimum cosine of two embeddings
MOST = 3  # near words kept per word


@torch.no_grad()
def nearest_words(table: Tensor, tokenizer: PreTrainedTokenizerBase) -> dict[str, list[str]]:
    """Find the nearest other words of every word that is one token.

    Args:
        table: Input embeddings, which are centred for this. Shape: (V, D).
        tokenizer: Its vocabulary. This helps only with languages that separate words by spaces.

    Returns:
        Lower-case words that have near ones, each with these, nearest first.
    """
    ids, words = whole_words(tokenizer)
    vectors = table[ids].float()
    vectors = normalize(vectors - vectors.mean(dim=0))
    found: dict[str, list[str]] = {}
    for start in range(0, len(words), 1024):
        cosines = vectors[start : start + 1024] @ vectors.T  # (1024, W)
        cosines.diagonal(start).fill_(-1)
        best = cosines.topk(min(MOST, len(words)), dim=1)
        rows = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        for i, (scores, columns) in enumerate(rows, start):
            near = [words[k] for s, k in zip(scores, columns, strict=True) if s >= BOUND]
            if near:
                found[words[i]] = near
    return found


def whole_words(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[str]]:
    """List the lower-case words of the vocabulary that are encoded as a single token."""
    decoded = dict.fromkeys(str(tokenizer.decode([i])).strip() for i in range(len(tokenizer)))
    words = [w for w in decoded if len(w) >= SHORTEST and w.isalpha() and w.islower()]
    encoded = tokenizer([f" {w}" for w in words], add_special_tokens=False)["input_ids"]
    kept = [(ids[0], w) for ids, w in zip(encoded, words, strict=True) if len(ids) == 1]
    return [i for i, _ in kept], [w for _, w in kept]
