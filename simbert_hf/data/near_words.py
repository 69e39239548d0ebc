"""Words that are near each other in a model's word embeddings, as a cheap stand-in for synonyms.

This is no thesaurus: near words are used alike but need not mean the same. In MiniLM's table, at
the cosine required here, most are inflections ("walked": "walk", "walks"), some are synonyms
("quickly": "rapidly", "swiftly"), and a few change the meaning ("monday": "tuesday").
"""

from __future__ import annotations

import torch
from sentence_transformers.util import semantic_search
from torch import Tensor
from transformers import PreTrainedTokenizerBase

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
    vectors -= vectors.mean(dim=0)
    found: dict[str, list[str]] = {}
    for i, hits in enumerate(semantic_search(vectors, vectors, top_k=MOST + 1)):
        others = [words[int(hit["corpus_id"])] for hit in hits if hit["score"] >= BOUND]
        if near := [word for word in others if word != words[i]][:MOST]:
            found[words[i]] = near
    return found


def whole_words(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[str]]:
    """List the lower-case words of the vocabulary that are encoded as a single token."""
    decoded = dict.fromkeys(str(tokenizer.decode([i])).strip() for i in range(len(tokenizer)))
    words = [w for w in decoded if len(w) >= SHORTEST and w.isalpha() and w.islower()]
    if not words:  # which tokenizers refuse
        return [], []
    encoded = tokenizer([f" {w}" for w in words], add_special_tokens=False)["input_ids"]
    kept = [(ids[0], w) for ids, w in zip(encoded, words, strict=True) if len(ids) == 1]
    return [i for i, _ in kept], [w for _, w in kept]
