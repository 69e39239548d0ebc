"""A judge of paraphrases: a cross-encoder that decides whether two sentences mean the same.

It is fine-tuned on human-labelled pairs (:mod:`simbert_hf.judging.training`), and accepts a pair
whose score reaches a threshold: the one at which it accepts 90 % of the paraphrases among held-out
pairs. The share of non-paraphrases that it accepts there is measured too, and stored with it in
``judge.json``.

A judge must be independent of what it judges: a model made from the judge's base model, or taught
by it, shares its blind spots. A common base model shows in the weights, since fine-tuning changes
word embeddings little (:func:`kinship`). A teacher leaves no such trace and has to be named by the
user. Training both on the same text shows nowhere, and has to be stated beside the figures.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError
from sentence_transformers import CrossEncoder
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from simbert_hf.evaluation.report import layout
from simbert_hf.modeling.loading import complete, loading, quiet_transformers
from simbert_hf.modeling.reading import OWN_CODE
from simbert_hf.utils.atomic import SCRATCH, filled, share_weights, sync, write_json
from simbert_hf.utils.text import place_spaces
from simbert_hf.utils.textfiles import read_json

RECORD = "judge.json"
KIN = 0.5  # mean cosine of word embeddings; .00 if unrelated, .8 or more with a common ancestor
BATCH_SIZE = 128

Embeddings = tuple[dict[str, int], Tensor]  # row of each token; the rows, (V, D)


@dataclass(frozen=True)
class Judge:
    """A cross-encoder with a threshold, and the record of how both were found.

    Attributes:
        model: Gives a pair one score between 0 and 1.
        threshold: Minimum score of accepted pairs.
        record: Base model, data, training and measured figures; kept in ``judge.json``.

    Example:
        >>> class Words:  # stands for a CrossEncoder
        ...     def predict(self, pairs, **options):
        ...         return np.array([len({*a.split()} & {*b.split()}) / 3 for a, b in pairs])
        >>> judge = Judge(Words(), threshold=0.5)
        >>> scores = judge.score([("is it late", "is it very late"), ("is it late", "go home")])
        >>> scores >= judge.threshold
        array([ True, False])
    """

    model: CrossEncoder
    threshold: float
    record: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Load a judge that :meth:`save` wrote.

        Raises:
            ValueError: If the directory holds no judge, its record is damaged, or the threshold is
                not between 0 and 1.
        """
        path = Path(directory, RECORD)
        if not path.is_file():
            raise ValueError(
                f"{directory} holds no {RECORD}, so it is not a judge; train one with "
                "scripts/train_judge.py."
            )
        record = read_json(path)
        threshold = record.pop("threshold", None)
        if type(threshold) not in (int, float) or not 0 <= threshold <= 1:
            raise ValueError(
                f"{path}: the threshold {threshold!r} is not a number from 0 to 1; train the judge "
                "again."
            )
        with loading(directory), complete(directory):
            return cls(CrossEncoder(str(directory)), threshold, record)

    def save(self, directory: str | Path) -> None:
        """Save weights, tokenizer and record to a directory, replacing a former judge there.

        Raises:
            OSError: If they cannot be written; the former judge is then intact, unless the disk
                failed while files were moved.
        """
        out = Path(directory)
        record = {"threshold": self.threshold, **self.record}
        try:
            with filled(out, last=RECORD) as made:
                with quiet_transformers():
                    self.model.save_pretrained(str(made), create_model_card=False)
                share_weights(made)
                write_json(made / RECORD, record)
                sync(made)
                (out / RECORD).unlink(missing_ok=True)  # it describes the weights being replaced
        except (OSError, SafetensorError, RuntimeError) as error:
            raise OSError(
                f"Saving the judge in {out} failed: {error}. Fix the cause (a full disk?) and "
                "train it again."
            ) from error

    @staticmethod
    def is_in(directory: str | Path) -> bool:
        """Whether a directory holds a judge, or what a save that was killed has left of one."""
        place = Path(directory)
        return (place / RECORD).exists() or (place / SCRATCH / RECORD).exists()

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Score pairs from 0 to 1, independently of their order. Shape: (N,)."""
        return score(self.model, pairs)

    def score_lists(
        self, sources: Sequence[str], candidates: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """Score each source with each of its candidates."""
        pairs = [(a, b) for a, row in zip(sources, candidates, strict=True) for b in row]
        found = iter(self.score(pairs).tolist())
        return [[next(found) for _ in row] for row in candidates]


def score(model: CrossEncoder, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """Score pairs with a cross-encoder.

    Returns:
        The mean score of both orders, rounded to 5 places so that it does not depend on the rest of
        the batch. Shape: (N,).
    """
    if not pairs:
        return np.zeros(0)
    texts = [(plain(first), plain(second)) for first, second in pairs]
    both = [*texts, *((second, first) for first, second in texts)]
    found = model.predict(both, batch_size=BATCH_SIZE, show_progress_bar=False)
    return found.astype(np.float64).reshape(2, -1).mean(axis=0).round(5)


def plain(text: str) -> str:
    r"""Undo tokenization and case, in which corpora differ and which do not matter to a judge.

    Example:
        >>> plain(r"Why does n't Tom 's car work \?")
        "why doesn't tom's car work?"
    """
    marked = re.sub(r"([^\w\s])", r" \1 ", re.sub(r"\\(?=[^\w\s])", "", text.lower()))
    return place_spaces(" ".join(marked.split())).replace(" n't", "n't")


def acceptance_threshold(scores: np.ndarray, share: float) -> float:
    """Return the highest threshold that accepts at least a share of the paraphrases' scores.

    Example:
        >>> acceptance_threshold(np.array([0.1, 0.2, 0.3, 0.4, 0.5]), share=0.8)
        0.2
    """
    refused = int(len(scores) * (1 - share) + 1e-9)
    return float(np.sort(scores)[refused])


def judge_figures(scores: np.ndarray, labels: np.ndarray, threshold: float) -> dict[str, float]:
    """Measure a judge on labelled pairs.

    Args:
        scores: Its scores. Shape: (N,).
        labels: 1 for paraphrases, 0 for others; both must occur. Shape: (N,).
        threshold: Minimum score that it accepts.

    Returns:
        ``auc``; ``accuracy`` and ``f1`` at a score of .5, as is usual for classifiers; and the
        shares of the paraphrases (``accepted``) and of the others (``false_accepts``) that reach
        the threshold.

    Example:
        >>> judge_figures(np.array([0.9, 0.4, 0.6, 0.1]), np.array([1, 1, 0, 0]), 0.4)
        {'pairs': 4, 'auc': 0.75, 'accuracy': 0.5, 'f1': 0.5, 'accepted': 1.0, 'false_accepts': 0.5}
    """
    passed = scores >= threshold
    return {
        "pairs": len(scores),
        "auc": float(roc_auc_score(labels, scores)),
        "accuracy": float(accuracy_score(labels, scores >= 0.5)),
        "f1": float(f1_score(labels, scores >= 0.5)),
        "accepted": float(passed[labels == 1].mean()),
        "false_accepts": float(passed[labels == 0].mean()),
    }


def figures_table(figures: dict[str, dict[str, float]]) -> str:
    """Lay out a judge's figures as a Markdown table.

    Example:
        >>> figures = {"pairs": 4, "auc": 0.75, "accuracy": 0.5, "f1": 0.5}
        >>> print(figures_table({"dev": figures | {"accepted": 0.9, "false_accepts": 0.2}}))
        | set | pairs |   AUC | accuracy at .5 | F1 at .5 | paraphrases accepted | false accepts |
        | :-- | ----: | ----: | -------------: | -------: | -------------------: | ------------: |
        | dev |     4 | 0.750 |          0.500 |    0.500 |                0.900 |         0.200 |
    """
    heads = {
        "pairs": "pairs",
        "auc": "AUC",
        "accuracy": "accuracy at .5",
        "f1": "F1 at .5",
        "accepted": "paraphrases accepted",
        "false_accepts": "false accepts",
    }
    lines = []
    for name, found in figures.items():
        cells = [found[key] for key in heads]
        lines.append([name, *(f"{c:.3f}" if isinstance(c, float) else str(c) for c in cells)])
    return layout(["set", *heads.values()], lines, left=(0,))


# Kinship ----------------------------------------------------------------------------------------


def word_embeddings(model: Any) -> Embeddings:
    """Return the word embeddings of a ``CrossEncoder``, a ``SimBert``, or a directory or Hub id."""
    if isinstance(model, str | Path):
        with loading(model):
            encoder: Any = AutoModel.from_pretrained(model, dtype=torch.float32, **OWN_CODE)
            tokenizer: Any = AutoTokenizer.from_pretrained(model, **OWN_CODE)
    else:
        encoder = model.model if isinstance(model, CrossEncoder) else model
        tokenizer = model.tokenizer
    weights: Tensor = encoder.get_input_embeddings().weight.detach()
    return tokenizer.get_vocab(), weights.float().cpu()


def fingerprint(embeddings: Tensor) -> str:
    """Return the SHA-256 of a model's word embeddings in half precision.

    Copies in float32 and float16, with and without heads, have the same fingerprint.

    Args:
        embeddings: Shape: (V, D).

    Example:
        >>> fingerprint(torch.ones(2, 3)) == fingerprint(torch.ones(2, 3).half())
        True
    """
    return sha256(embeddings.half().contiguous().numpy().tobytes()).hexdigest()


def kinship(first: Embeddings, second: Embeddings) -> float:
    """Measure how alike two models' word embeddings are: high if they share an ancestor.

    Measured: .95 between all-MiniLM-L6-v2 and a SimBert trained from it for 1,043 steps, .88
    between it and paraphrase-MiniLM-L3-v2 (both were cut from MiniLM-L12), .004 between either and
    multilingual-e5-small.

    Returns:
        Mean cosine over the tokens that both know; 0 if there are none, or widths differ.

    Example:
        >>> one = {"a": 0, "b": 1}, torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> other = {"b": 0, "c": 1}, torch.tensor([[0.0, 2.0], [5.0, 5.0]])
        >>> kinship(one, other)
        1.0
    """
    (rows, ours), (other_rows, theirs) = first, second
    shared = [(row, other_rows[token]) for token, row in rows.items() if token in other_rows]
    if not shared or ours.shape[1] != theirs.shape[1]:
        return 0.0
    here, there = torch.tensor(shared).T
    return round(float(torch.cosine_similarity(ours[here], theirs[there], dim=1).mean()), 4)


def check_independent(
    judge: Judge, model: Any, name: str, allow_related_judge: bool = False
) -> float:
    """Check that a model, or a base model or teacher of it, is not related to a judge.

    Returns:
        Its :func:`kinship` with the judge.

    Raises:
        ValueError: If that is above :data:`KIN`, unless ``allow_related_judge`` is set.
    """
    found = kinship(word_embeddings(judge.model), word_embeddings(model))
    if found > KIN and not allow_related_judge:
        start = judge.record.get("start", {}).get("name", "an unknown model")
        raise ValueError(
            f"The judge (made from {start}) is related to {name}: the mean cosine of their word "
            f"embeddings is {found:.3f}. Train a judge from another base model, or pass "
            "--allow_related_judge and print the kinship beside the figures."
        )
    return found
