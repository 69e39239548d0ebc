"""Measure paraphrases of held-out sentences: one row per model, and control rows.

The controls show how reliable a judge is on these sentences: human paraphrases should pass; random
other sentences, the nearest other sentence and the source with its longest word exchanged should
not; a copy passes, but is not a paraphrase. Every figure is computed the same way for all rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from simbert_hf import __version__
from simbert_hf.data import load_groups, split_groups, usual_share
from simbert_hf.data.readers import DataFormat
from simbert_hf.data.records import text_of
from simbert_hf.encoders.text_encoder import fingerprint
from simbert_hf.evaluation.bootstrap import Bootstrap, exact_interval
from simbert_hf.generation.synonyms import gen_synonyms, load
from simbert_hf.generation.writing import check_can_write
from simbert_hf.judging.judge import Judge, check_independent
from simbert_hf.judging.metrics import (
    bleu,
    chrf,
    copy_rate,
    distinct_n,
    ibleu,
    reference_perplexity,
    repeat_rate,
    self_bleu,
    tokenizer_for,
)
from simbert_hf.utils.atomic import kept
from simbert_hf.utils.text import HAN, fold, normalize_text
from simbert_hf.utils.textfiles import DataError, check_exists, fault, read_objects, shorten

BLOCK = 256  # sources compared at a time

Figures = dict[str, Any]
Scores = list[list[float]]  # a judge's, of each candidate of each source

NO_REFERENCE: Figures = {"bleu": None, "ibleu": None, "chrf": None}  # for the references' own row

USUAL = "usual"  # as many groups as training holds out by default

EXCHANGED, RANDOM = "one word exchanged", "random other sentence"


@dataclass(frozen=True)
class HeldOut:
    """Sentences to paraphrase, with human paraphrases.

    Attributes:
        sources: One sentence of each group.
        references: The other sentences of its group, one or more.
        origin: Which groups they are, for the report.
        others: Number of groups in the files that are left to train on, if these are held out.
    """

    sources: list[str]
    references: list[list[str]]
    origin: str = "as given"
    others: int | None = None


@dataclass(frozen=True)
class System:
    """Paraphrases of the held-out sentences by a model or a control.

    Attributes:
        name: Name of its row.
        candidates: Candidates for each source, best first.
        similarities: Cosine of each candidate with its source, by the model; None if unknown.
        figures: Figures measured on the model itself.
        control: Whether this is a control, which gives one candidate.
    """

    name: str
    candidates: list[list[str]]
    similarities: list[list[float]] | None = None
    figures: Figures | None = None
    control: bool = False


# Held-out sentences and what models make of them ------------------------------------------------


def load_held_out(
    files: Sequence[str],
    held_out: int | str | None,
    split_seed: int,
    limit: int | None,
    text_columns: Sequence[str] | None = None,
    data_format: DataFormat = "auto",
) -> HeldOut:
    """Read groups, keep those that training held out, and draw some of them.

    Args:
        files: Files of groups or pairs.
        held_out: Number of groups that training was set to hold out of these files; ``USUAL`` for
            its default number, and None if all are held out.
        split_seed: Seed of that split, and of the draw.
        limit: Number of groups to draw; None for all.
        text_columns: The two columns to read, as in the training run.
        data_format: What the rows hold, as in the training run.

    Returns:
        Groups that share no sentences, in random order.

    Raises:
        DataError: If there are fewer than two, as the controls need two.
    """
    groups: Any = load_groups(files, text_columns=text_columns, data_format=data_format)[0]
    names = ", ".join(Path(file).name for file in files)
    origin, others = f"all groups of {names}, as if no model was trained on them", None
    if held_out is not None:
        wanted = usual_share(groups) if held_out == USUAL else int(held_out)
        if not wanted:
            problem = f"has too few groups ({len(groups)}) for training to hold out any by default"
            raise fault(names, None, problem, "Measure on unseen groups, with --all_groups")
        train, groups = split_groups(groups, wanted, split_seed)  # as training.data.hold_out does
        others = len(train)
        origin = f"the {wanted} groups of {names} that training with seed {split_seed} held out"
    order = np.random.default_rng(split_seed).permutation(len(groups))
    rows = {row["group"]: row["texts"] for row in map(groups.__getitem__, order.tolist())}
    chosen = list(rows.values())[:limit]
    if len(chosen) < 2:
        raise DataError(f"{', '.join(files)}: give at least two groups to measure on.")
    origin = f"{len(chosen)} drawn from {origin}"
    return HeldOut([texts[0] for texts in chosen], [texts[1:] for texts in chosen], origin, others)


def check_names(names: Sequence[str]) -> None:
    """Check that all rows have different names.

    Raises:
        ValueError: If two share a name.

    Example:
        >>> check_names(["mine", "peer"])
    """
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"Two rows would be named {twice[0]!r}; models are named after their directory and "
            "outputs after their file: write NAME=path."
        )


def check_writer(name_or_path: str, judge: Judge | None, allow_related_judge: bool) -> Figures:
    """Load a model, so that its faults are known before others have generated.

    Returns:
        Its ``kinship`` with the judge, if there is one.

    Raises:
        OSError: If the model cannot be loaded.
        ValueError: If the judge is related to it and that is not allowed, or it cannot generate.
    """
    model = load(name_or_path)
    check_can_write(model)
    if judge is None:
        return {}
    return {"kinship": check_independent(judge, model, name_or_path, allow_related_judge)}


def write_paraphrases(
    name: str, name_or_path: str, data: HeldOut, known: Figures, n: int, k: int, folder: Path
) -> System:
    """Generate ``n`` candidates per held-out sentence with a SimBert, and keep the best ``k``.

    They are kept in a folder, for a repeated call after a kill.
    """
    model = load(name_or_path)

    def write() -> dict[str, Any]:
        found = gen_synonyms(data.sources, n, k, model=model, return_scores=True)
        return {
            "candidates": [[item.text for item in row] for row in found],
            "similarities": [[item.similarity for item in row] for row in found],
            "perplexity": reference_perplexity(model, data.sources, data.references),
        }

    made_of = (__version__, fingerprint(model), data.sources, data.references, n, k)
    made = kept(folder, made_of, write)
    figures = {**known, "perplexity": made["perplexity"]}
    return System(name, made["candidates"], made["similarities"], figures)


def read_paraphrases(path: str, data: HeldOut, k: int, name: str | None = None) -> System:
    """Read another model's paraphrases of the same sentences.

    Args:
        path: JSON lines: ``{"text": ..., "paraphrases": [best, ...]}``, in any order; or the output
            of ``simbert synonyms --json``, with scores.
        data: The held-out sentences, all of which the file must contain.
        k: Number of paraphrases to keep of each.
        name: Name of its row; None for the file's.

    Raises:
        DataError: If a line has another format, a sentence is missing or occurs twice, or none has
            a paraphrase.
    """
    check_exists(path)
    given: dict[str, list[str]] = {}
    for line, row in read_objects(path):
        if not row:
            continue
        found = row.get("paraphrases")
        if not isinstance(row.get("text"), str) or not isinstance(found, list):
            problem = f"holds {shorten(row)}"
            raise fault(path, line, problem, 'Write {"text": "...", "paraphrases": ["...", ...]}')
        plain = (item.get("text", item) if isinstance(item, dict) else item for item in found)
        texts = [text for item in plain if (text := text_of(path, line, item))]
        source = fold(str(row["text"]))
        if source in given:
            raise fault(path, line, f"repeats {shorten(row['text'])}", "Keep only one of the lines")
        given[source] = texts[:k]
    for source in data.sources:
        if fold(source) not in given:
            problem = f"has no paraphrases of {shorten(source)}"
            raise fault(path, None, problem, "Paraphrase what --list_sources prints")
    candidates = [given[fold(source)] for source in data.sources]
    if not any(candidates):
        raise fault(path, None, "has no paraphrase of any held-out sentence", "Write at least one")
    return System(name or Path(path).stem, candidates, figures={"kinship": "unknown"})


def controls(data: HeldOut, seed: int) -> list[System]:
    """Make the control rows, with which the models' rows are compared."""
    order = np.random.default_rng(seed).permutation(len(data.sources)).tolist()
    other = dict(zip(order, [*order[1:], *order[:1]], strict=True))
    sources = data.sources
    exchanged = [exchange_word(text, sources[other[i]]) for i, text in enumerate(sources)]
    return [
        System(name, candidates, figures=figures, control=True)
        for name, candidates, figures in (
            ("reference", [row[:1] for row in data.references], NO_REFERENCE),
            ("copy of the source", [[source] for source in data.sources], None),
            (EXCHANGED, [[text] for text in exchanged], None),
            ("nearest other sentence", [[text] for text in nearest_others(data)], None),
            (RANDOM, [data.references[other[i]][:1] for i in range(len(order))], None),
        )
    ]


def exchange_word(text: str, other: str) -> str:
    """Replace a text's longest word by another sentence's longest one.

    Of equally long words the middle one is taken; two Chinese characters count as a word, and case
    is ignored.

    Example:
        >>> exchange_word("Where can I buy a ticket?", "She plays it loudly.")
        'Where can I buy a loudly?'
    """
    mine, theirs = (re.findall(f"[{HAN}]{{1,2}}|(?:(?![{HAN}])[^\\W_])+", t) for t in (text, other))
    if not (mine and theirs):
        return text
    old = middle_longest(mine)
    others = [word for word in theirs if word.lower() != old.lower()]
    return text.replace(old, middle_longest(others or [old]), 1)


def middle_longest(words: Sequence[str]) -> str:
    """Return the middle one of the longest words.

    Example:
        >>> middle_longest(["one", "three", "seven", "eight"])
        'seven'
    """
    size = max(map(len, words))
    longest = [word for word in words if len(word) == size]
    return longest[len(longest) // 2]


def nearest_others(data: HeldOut) -> list[str]:
    """Find, for each source, the sentence of another group with the most similar words.

    Similarity is the cosine of TF-IDF weighted character n-grams inside words.

    Example:
        >>> data = HeldOut(["a red car", "a red cab", "he ran"], [["auto"], ["taxi"], ["she ran"]])
        >>> nearest_others(data)
        ['a red cab', 'a red car', 'a red car']
    """
    texts = [*data.sources, *chain(*data.references)]
    counts = [len(row) for row in data.references]
    owner = np.concatenate([np.arange(len(counts)), np.repeat(np.arange(len(counts)), counts)])
    grams = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4)).fit_transform(texts)
    nearest: list[str] = []
    for start in range(0, len(counts), BLOCK):  # all sources at once would be a large matrix
        block = np.arange(start, min(start + BLOCK, len(counts)))
        likeness = (grams[block] @ grams.T).toarray()  # (block, texts)
        likeness[block[:, None] == owner] = -1
        nearest += [texts[i] for i in likeness.argmax(axis=1)]
    return nearest


# Measuring --------------------------------------------------------------------------------------


def measure(
    system: System, scores: Scores | None, threshold: float | None, data: HeldOut, k: int
) -> Figures:
    """Measure the paraphrases of one system.

    Args:
        system: Its candidates, at most k for each source.
        scores: The judge's score of each; None without a judge.
        threshold: Minimum score that the judge accepts; None without one.
        data: The held-out sentences.
        k: Number of candidates that a model may give.

    Returns:
        Figures by name, None where undefined: ``candidates`` (mean number per source);
        ``accepted_1``, ``accepted_k`` and ``new_k`` as returned by :func:`share`, where ``new_k``
        counts those accepted that are neither copies nor repetitions; and the functions of
        :mod:`simbert_hf.judging.metrics`. Controls, which give less text, have no figures of the k
        best and no distinct-n. BLEU, iBLEU and chrF are those of the best candidate.
    """
    tokenizer = tokenizer_for(data.sources)
    texts = list(chain(*system.candidates))
    figures: Figures = {"name": system.name, "candidates": len(texts) / len(data.sources)}
    if scores is not None and threshold is not None:
        figures |= acceptance(system, scores, threshold, data, k)
    if not system.control:
        figures |= {f"distinct_{n}": distinct_n(texts, n, tokenizer) for n in (1, 2)}
    figures |= {
        "copies": copy_rate(data.sources, system.candidates),
        "repeats": repeat_rate(data.sources, system.candidates),
        "self_bleu": self_bleu(system.candidates, tokenizer),
    }
    best = [row[0] if row else "" for row in system.candidates]
    figures["bleu"] = bleu(best, data.references, tokenizer)
    figures["source_bleu"] = bleu(best, [[source] for source in data.sources], tokenizer)
    figures["ibleu"] = ibleu(figures["bleu"], figures["source_bleu"])
    figures["chrf"] = chrf(best, data.references)
    return figures | (system.figures or {})


def acceptance(system: System, scores: Scores, threshold: float, data: HeldOut, k: int) -> Figures:
    """Measure which candidates a judge accepts, as in :func:`measure`."""
    passed = [[score >= threshold for score in row] for row in scores]
    figures: Figures = {"accepted_1": share(passed, 1)}
    if not system.control:
        figures["accepted_k"] = share(passed, k)
        figures["new_k"] = share(only_new(system, passed, data), k)
    return figures


def share(passed: Sequence[Sequence[bool]], k: int) -> dict[str, float]:
    """Compute the share of the k best candidates that pass, with its 95 % interval over sources.

    A missing candidate counts as one that does not pass, so giving few is no advantage. The
    interval is a ``Bootstrap``'s, on the same resamples for all rows; it is exact if all pass or
    none do, as all resamples are then equal.

    Example:
        >>> share([[True, False], [True]], k=2)["share"]
        0.5
    """
    shares = np.array([sum(row[:k]) / k for row in passed])
    value = float(shares.mean())
    if value in (0, 1):
        low, high = exact_interval(round(value * len(shares)), len(shares))
        return {"share": value, "low": low, "high": high}
    found = Bootstrap().means("sources", {"share": shares})
    low, high = found["share"].interval or (value, value)
    return {"share": value, "low": low, "high": high}


def only_new(system: System, passed: Sequence[Sequence[bool]], data: HeldOut) -> list[list[bool]]:
    """Reject copies of the source, and all but the first of repeated sentences.

    Example:
        >>> system = System("a", [["Go!", "run", "Run.", "leave"]])
        >>> only_new(system, [[True, True, True, False]], HeldOut(["go"], [["walk"]]))
        [[False, True, False, False]]
    """
    rows = []
    for source, candidates, row in zip(data.sources, system.candidates, passed, strict=True):
        forms = [normalize_text(text) for text in (source, *candidates)]
        rows.append([ok and forms.index(forms[i]) == i for i, ok in enumerate(row, start=1)])
    return rows
