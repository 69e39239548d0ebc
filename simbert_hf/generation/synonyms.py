"""gen_synonyms: write paraphrases, rank them, return good ones that are unlike one another."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from heapq import nlargest
from itertools import chain
from numbers import Real
from pathlib import Path
from statistics import fmean
from threading import Lock
from typing import Any, Literal, NamedTuple, TypedDict, Unpack, overload

import torch

from simbert_hf import CHINESE_MODEL, DEFAULT_MODEL
from simbert_hf.generation.diversity import choose_diverse, wording
from simbert_hf.generation.facts import is_chinese
from simbert_hf.generation.languages import COMMON, foreign_language
from simbert_hf.generation.marks import marks_as_in, plain_marks
from simbert_hf.generation.placeholders import is_japanese
from simbert_hf.generation.scoring import score_pairs
from simbert_hf.generation.search import SearchSettings
from simbert_hf.generation.sentences import (
    cut_signs,
    end_as,
    leave_signs_out,
    split_sentences,
    worth_writing,
)
from simbert_hf.generation.writing import Draft, distinct, write
from simbert_hf.modeling.loading import resolve_name
from simbert_hf.modeling.simbert import SimBert
from simbert_hf.rows import check_texts, cuts_known
from simbert_hf.utils.arrays import Vectors
from simbert_hf.utils.checks import check_count
from simbert_hf.utils.text import KANA

FLUENCY_WEIGHT = 0.2  # what a nat of mean log-probability is worth in cosine, either way
DIVERSITY = 0.2  # what a paraphrase equal to a better one loses, in cosine
OWN_WORDS = 0.25  # the share of it that one in its text's own words loses ("what's" for "what is")
BLOCK = 256  # texts whose drafts and vectors are held at once
FOREIGN = (
    "The English model's paraphrases of other languages are broken, and a text seems to be in one: "
    "use a model that was trained on its language."
)
SYLLABLES = re.compile(f"[{KANA}]{{2}}")  # a single one may be decoration in Chinese
_LOADING = Lock()


class Paraphrase(NamedTuple):
    """A paraphrase and the figures behind its rank.

    Attributes:
        text: The sentence, or sentences.
        score: ``similarity + fluency_weight * (log_prob + reverse_log_prob)``; paraphrases are
            ordered by it and by ``diversity``.
        similarity: Cosine of its vector and the input's, without emoji and with plain marks: see
            :mod:`simbert_hf.generation.marks`.
        log_prob: Mean log-probability per token, [SEP] included, in nats (0 is certain), after
            ``copying`` and ``repeats`` have changed the model's. For several sentences, the mean
            of theirs.
        reverse_log_prob: The same of the input, given this sentence, by the model alone, without
            ``copying`` and ``repeats``: low if something is left out or changed.
    """

    text: str
    score: float
    similarity: float
    log_prob: float
    reverse_log_prob: float


class Options(TypedDict, total=False):
    """Further options of :func:`gen_synonyms`, for type checkers and editors."""

    strategy: str
    top_k: int | None
    top_p: float | None
    temperature: float
    seed: int | None
    min_similarity: float | None
    max_new_tokens: int
    copying: float
    repeats: bool
    fluency_weight: float
    diversity: float
    by_sentence: bool


Model = SimBert | str | os.PathLike[str]


@overload
def gen_synonyms(  # type: ignore[overload-overlap]
    text: str,
    n: int = 100,
    k: int | None = None,
    *,
    model: Model | None = None,
    return_scores: Literal[False] = False,
    **options: Unpack[Options],
) -> list[str]: ...
@overload
def gen_synonyms(  # type: ignore[overload-overlap]
    text: str,
    n: int = 100,
    k: int | None = None,
    *,
    model: Model | None = None,
    return_scores: Literal[True],
    **options: Unpack[Options],
) -> list[Paraphrase]: ...
@overload
def gen_synonyms(
    text: Sequence[str],
    n: int = 100,
    k: int | None = None,
    *,
    model: Model | None = None,
    return_scores: Literal[False] = False,
    **options: Unpack[Options],
) -> list[list[str]]: ...
@overload
def gen_synonyms(
    text: Sequence[str],
    n: int = 100,
    k: int | None = None,
    *,
    model: Model | None = None,
    return_scores: Literal[True],
    **options: Unpack[Options],
) -> list[list[Paraphrase]]: ...
@overload
def gen_synonyms(
    text: str | Sequence[str],
    n: int = 100,
    k: int | None = None,
    *,
    model: Model | None = None,
    return_scores: bool = False,
    **options: Unpack[Options],
) -> Any: ...
def gen_synonyms(
    text: str | Sequence[str],
    n: int = 100,
    k: int | None = None,
    *,
    model: Model | None = None,
    strategy: str = "beam",
    top_k: int | None = 5,
    top_p: float | None = None,
    temperature: float = 1.0,
    seed: int | None = None,
    min_similarity: float | None = None,
    max_new_tokens: int = 32,
    copying: float = 1.0,
    repeats: bool = False,
    fluency_weight: float = FLUENCY_WEIGHT,
    diversity: float = DIVERSITY,
    by_sentence: bool = True,
    return_scores: bool = False,
) -> Any:
    """Write n sentences that mean the same and return the k best, best first.

    This does what SimBERT's function of the same name does (Su 2020,
    https://github.com/ZhuiyiTechnology/simbert), with other defaults: see ``docs/paraphrasing.md``.

    In a text of several sentences, each is paraphrased, and the best of each are combined, with
    the line breaks, blanks and emoji between them. The input itself, repetitions and whatever
    changes its facts (see ``copying``) are dropped, so fewer than k may be left. In float32, a text
    gets the same paraphrases alone or in a batch; in 16 bits, rounding may change some.

    Args:
        text: One text, or several.
        n: Number of sentences to write for each text; memory use grows with it.
        k: Maximum number of paraphrases to return for each text; min(20, n) if None.
        model: A ``SimBert``, or a directory or ``org/name``, which is loaded once and then kept. By
            default the package's Chinese model for Chinese texts, and its English one for others.
        strategy: ``beam`` (the n likeliest sentences), ``sample`` (n independent samples, as
            SimBERT does) or ``without_replacement`` (n different ones: stochastic beam search).
            The last two depend on ``seed``.
        top_k: Draw from this many likeliest tokens; None means all. ``beam``, which draws nothing,
            ignores it and ``seed``.
        top_p: Draw from the likeliest tokens that together hold this probability; None means all.
            Not supported by ``beam``.
        temperature: Above 1 the sentences vary more, below 1 less. Not supported by ``beam``.
        seed: The same seed gives the same answer; with None it varies from call to call.
        min_similarity: Drop paraphrases whose cosine with the input is below this.
        max_new_tokens: Maximum length of a paraphrase in tokens. One that has not ended by then is
            dropped, unless none has.
        copying: How strongly source tokens that the model would replace (names, numbers) are made
            likelier. Unless 0, paraphrases are dropped that have other figures or addresses than
            the text (for Chinese, other words in Latin letters), and in English also those that
            have other days or months, add or lose negation, leave out a name, or exchange words
            such as "my" and "your". 0 leaves all this to the model, as the original does.
        repeats: Allow long words more often than in the text, as the original does.
        fluency_weight: What a nat of mean log-probability is worth in cosine: of the paraphrase,
            given the text, and of the text, given the paraphrase. 0 ranks by meaning alone, as the
            original does, which lets grammatical errors rank high.
        diversity: Penalty for similarity to paraphrases already chosen (maximal marginal relevance:
            :mod:`simbert_hf.generation.diversity`), this much for an equal one. Of those that
            differ only in punctuation and contractions, all but the best come last, and those that
            differ so from the text lose a quarter of it. 0 ranks by score alone, as the original
            does; the k best are then often much alike.
        by_sentence: Paraphrase each sentence by itself and combine them; False treats the text as
            one, as the original does, which works badly with models trained on single sentences.
        return_scores: Return ``Paraphrase`` tuples instead of strings.

    Returns:
        A list of up to k strings or ``Paraphrase`` tuples; a list of such lists for several texts.

    Raises:
        TypeError: If a text is not a string, or ``model`` is not a model.
        ValueError: If a text is empty, an argument is out of range, or the model has no LM head.

    Example:
        >>> gen_synonyms("where is my card?", n=5, k=2)
        ["where's my card?", 'where is my card located?']
    """
    settings = SearchSettings(
        n, strategy, top_k, top_p, temperature, max_new_tokens, copying, repeats, seed
    )
    k = min(20, n) if k is None else k
    check_ranking(n, k, min_similarity, fluency_weight, diversity)
    texts = check_texts(text)
    if not texts:
        return []
    models: Sequence[Model] = default_models(texts) if model is None else [model] * len(texts)
    lowest = -math.inf if min_similarity is None else min_similarity
    best: list[list[Paraphrase]] = [[] for _ in texts]
    for name in dict.fromkeys(models) if model is None else [model]:
        writer = name if isinstance(name, SimBert) else load(name)
        own = [i for i, one in enumerate(models) if one == name]
        if any(is_foreign(writer, texts[i]) for i in own):
            warnings.warn(FOREIGN, stacklevel=1)  # one place, so that Python shows it once
        for first in range(0, len(own), BLOCK):
            some = own[first : first + BLOCK]
            plain = [plain_marks(texts[i]) for i in some]
            ranked = paraphrase(writer, plain, settings, fluency_weight, by_sentence)
            for i, read, row in zip(some, plain, ranked, strict=True):
                kept = [found for found in row if found.similarity >= lowest]
                chosen = choose(read, kept, k, diversity)
                best[i] = [one._replace(text=marks_as_in(texts[i], one.text)) for one in chosen]
    found = best if return_scores else [[paraphrase.text for paraphrase in row] for row in best]
    return found[0] if isinstance(text, str) else found


def default_models(texts: Sequence[str]) -> list[str]:
    """Return the path of the package's model for each text, in its language.

    Texts without letters, such as a number, go with the first that has some. Kana show that a text
    is Japanese, which neither model can write.

    Example:
        >>> default_models(["10086", "怎么重置密码？"]) == [CHINESE_MODEL] * 2
        True
        >>> default_models(["hi", "東京に行きたい"])
        ['...simbert-minilm-en', '...simbert-minilm-en']
    """
    found = {
        text: CHINESE_MODEL if is_chinese(text) and not SYLLABLES.search(text) else DEFAULT_MODEL
        for text in texts
        if any(map(str.isalpha, text))
    }
    first = next(iter(found.values()), DEFAULT_MODEL)
    return [found.get(text, first) for text in texts]


def is_foreign(model: SimBert, text: str) -> bool:
    """Return whether the package's English model can read a text's language, but not write it."""
    own = model.name_or_path == DEFAULT_MODEL and not model.training  # else it may be learning it
    return own and (is_japanese(text) or foreign_language(text) in COMMON)


def choose(text: str, ranked: Sequence[Paraphrase], k: int, diversity: float) -> list[Paraphrase]:
    """Choose k paraphrases of a text, best first; see :func:`gen_synonyms`.

    With a diversity, only the best of those in the same words is chosen, if there are k others,
    and those in the text's own words are chosen less readily.
    """
    if not diversity:
        return list(ranked[:k])
    best: dict[str, Paraphrase] = {}
    again = [one for one in ranked if best.setdefault(wording(one.text), one) is not one]
    new, own = [*best.values()], wording(text)
    scores = [one.score - OWN_WORDS * diversity * (words == own) for words, one in best.items()]
    chosen = choose_diverse([one.text for one in new], scores, k, diversity)
    return [*(new[i] for i in chosen), *again][:k]


def check_ranking(
    n: int, k: int, min_similarity: float | None, fluency_weight: float, diversity: float
) -> None:
    """Raise a ValueError if a ranking option is out of range."""
    check_count("k", k)
    if k > n:
        raise ValueError(f"k={k!r} is out of range: it must be at most n={n!r}.")
    if min_similarity is not None and not (
        isinstance(min_similarity, Real) and -1 <= min_similarity <= 1
    ):
        raise ValueError(
            f"min_similarity={min_similarity!r} is not a cosine: it must be in [-1, 1]."
        )
    for name, value in {"fluency_weight": fluency_weight, "diversity": diversity}.items():
        if not (isinstance(value, Real) and 0 <= value < math.inf):
            raise ValueError(f"{name}={value!r} is out of range: it must be 0 or more.")


def paraphrase(
    model: SimBert,
    texts: Sequence[str],
    settings: SearchSettings,
    fluency_weight: float,
    by_sentence: bool,
) -> list[list[Paraphrase]]:
    """Write and rank paraphrases of each text, best first; see :func:`gen_synonyms`."""
    parts = {text: split_sentences(text) if by_sentence else [text] for text in texts}
    wanted = chain.from_iterable(map(worth_writing, parts.values()))
    sentences = list(dict.fromkeys(cut_signs(sentence)[1] for sentence in wanted))
    drafts = write(model, sentences, settings)
    with cuts_known():  # of a long sentence, writing has warned
        ranked = rank(model, sentences, drafts, fluency_weight)
    found = dict(zip(sentences, ranked, strict=True))
    cores = {text: cut_signs(text)[1] for text in parts}
    several = [text for text, part in parts.items() if len(part) > 1 or cores[text] != text.strip()]
    if several:
        joined = [distinct(join(parts[text], found, settings.n), [text]) for text in several]
        vectors, text_vectors = (
            model.encode(list(map(leave_signs_out, some)))
            for some in ([one.text for row in joined for one in row], several)
        )
        ordered = sort_by_score(joined, vectors, text_vectors, fluency_weight)
        found |= zip(several, ordered, strict=True)
    return [found[text if text in found else cores[text]] for text in texts]


def join(
    sentences: Sequence[str], found: Mapping[str, Sequence[Paraphrase]], n: int
) -> list[Paraphrase]:
    """Combine paraphrases of sentences: the n combinations with the best summed scores.

    The white space and emoji between them are kept, as is a sentence without a paraphrase or of a
    word or two. All figures are means over the sentences; :func:`sort_by_score` replaces score
    and similarity.
    """
    best: list[tuple[Paraphrase, ...]] = [()]
    cut = list(map(cut_signs, sentences))
    wanted = {cut_signs(sentence)[1] for sentence in worth_writing(sentences)}
    for _, sentence, _ in cut:
        written = found[sentence] if sentence in wanted else []
        choice = written or [Paraphrase(sentence, 1.0, 1.0, 0.0, 0.0)]
        # Both are sorted: i x j pairs are as good as the i-th with the j-th, or better.
        longer = ((*row, one) for i, row in enumerate(best, start=1) for one in choice[: n // i])
        best = nlargest(n, longer, key=lambda row: sum(one.score for one in row))
    joined = []
    for row in best:
        ended = (
            before + end_as(one.text, sentence) + behind
            for one, (before, sentence, behind) in zip(row, cut, strict=True)
        )
        means = (fmean(values) for values in zip(*(one[1:] for one in row), strict=True))
        joined.append(Paraphrase("".join(ended).strip(), *means))
    return joined


def rank(
    model: SimBert, texts: Sequence[str], drafts: Sequence[Sequence[Draft]], fluency_weight: float
) -> list[list[Paraphrase]]:
    """Sort each text's drafts by their score, best first; see :class:`Paraphrase`.

    One forward pass reads a draft and, given it, the text: it gives the draft's vector and the
    text's probability (Li et al. 2016, arXiv 1510.03055, rank replies in this way).
    """
    pairs = [(draft.text, text) for text, row in zip(texts, drafts, strict=True) for draft in row]
    reading = score_pairs(model, pairs)
    reverse = iter(reading.means.tolist())
    rows = [
        [Paraphrase(draft.text, 0, 0, draft.log_prob, next(reverse)) for draft in row]
        for row in drafts
    ]
    return sort_by_score(rows, reading.vectors.numpy(), model.encode(texts), fluency_weight)


def sort_by_score(
    rows: Sequence[Sequence[Paraphrase]],
    vectors: Vectors,
    text_vectors: Vectors,
    fluency_weight: float,
) -> list[list[Paraphrase]]:
    """Set the similarity and score of paraphrases, and sort them, best first.

    Args:
        rows: Paraphrases of each of T texts; N in total.
        vectors: Their vectors, in order. Shape: (N, D).
        text_vectors: The texts' vectors. Shape: (T, D).
        fluency_weight: As in :func:`gen_synonyms`.
    """
    ordered, first = [], 0
    for row, vector in zip(rows, text_vectors, strict=True):
        cosines = (vectors[first : first + len(row)] @ vector).tolist()
        first += len(row)
        scored = [
            one._replace(
                score=cosine + fluency_weight * (one.log_prob + one.reverse_log_prob),
                similarity=cosine,
            )
            for one, cosine in zip(row, cosines, strict=True)
        ]
        ordered.append(sorted(scored, key=lambda found: -found.score))
    return ordered


def load(name_or_path: str | os.PathLike[str]) -> SimBert:
    """Load a model once, on the GPU if there is one; again only if its directory has changed.

    The package's own models may be given by their bare names, as indexes store them.

    Raises:
        TypeError: If it is not a name.
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise TypeError(f"model={name_or_path!r:.40} is not a SimBert, directory or org/name.")
    name = resolve_name(name_or_path)
    path = Path(name)
    files = sorted(path.iterdir()) if path.is_dir() else []
    with _LOADING:  # else each of several threads would load it, and transformers fails at that
        return _load(name, *((file.name, modified(file)) for file in files))


@lru_cache(maxsize=2)
def _load(name: str, *_: tuple[str, int]) -> SimBert:
    model = SimBert.from_pretrained(name)
    torch.nn.Module.to(model, "cuda" if torch.cuda.is_available() else "cpu")  # in place
    return model


def modified(file: Path) -> int:
    """Return when a file was modified, in ns; 0 if it is gone, or a broken link."""
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
