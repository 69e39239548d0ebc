"""Augment an FAQ with generated paraphrases of its questions."""

from __future__ import annotations

import os
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from simbert_hf import __version__
from simbert_hf.encoders.text_encoder import TextEncoder, fingerprint
from simbert_hf.generation.sentences import says_enough
from simbert_hf.generation.synonyms import gen_synonyms, load
from simbert_hf.index.encoding import check_read
from simbert_hf.index.faqs import ORIGIN, Faq, Source, read_faqs
from simbert_hf.index.saving import KEPT, check_place
from simbert_hf.modeling.simbert import SimBert
from simbert_hf.utils.atomic import kept
from simbert_hf.utils.text import normalize_text

BLOCK = 64  # questions paraphrased at a time


def augment(
    faqs: Source,
    model: Any,
    *,
    k: int = 5,
    n: int | None = None,
    min_similarity: float = 0.8,
    seed: int | None = 0,
    progress: bool = False,
    save_to: str | os.PathLike[str] | None = None,
    **options: Any,
) -> list[Faq]:
    """Add generated paraphrases of each question, with its answer.

    Args:
        faqs: Questions and answers: anything that :func:`read_faqs` takes or returns.
        model: A ``SimBert`` that can generate, or a path.
        k: Maximum number of paraphrases per question.
        n: Candidates per question, of which the k best are kept; 4 k, at least 20, if None.
        min_similarity: Minimum cosine with the question.
        seed: Makes the paraphrases reproducible where ``strategy`` samples.
        progress: Show a progress bar.
        save_to: Directory of the index to be built of them. Paraphrases are kept there meanwhile:
            after a kill, the same call goes on where it stopped. ``FaqIndex.build`` with the same
            ``save_to`` removes them.
        **options: Further options of :func:`simbert_hf.gen_synonyms`.

    Returns:
        The given rows, followed by the generated ones: in the same group, without an id, with the
        question as ``"paraphrase_of"`` in their metadata. A paraphrase that is already a question,
        or is generated for two different answers, is left out; questions of one or two words get
        none.

    Raises:
        DataError: If a row cannot be read, or the model cannot read most of the questions.
        ValueError: If the model cannot generate, or the directory holds something else.
    """
    if save_to is not None:
        check_place(Path(save_to))
    faqs = read_faqs(faqs)
    model = model if isinstance(model, SimBert) else load(model)
    check_read(TextEncoder(model), faqs)
    taken = {normalize_text(faq.question) for faq in faqs}
    made: dict[str, Faq] = {}
    leads: dict[str, set[str]] = defaultdict(set)
    settings = {"n": max(20, 4 * k) if n is None else n, "k": k, "seed": seed, **options}
    settings["min_similarity"] = min_similarity
    maker = save_to and (__version__, fingerprint(model), sorted(settings.items()))
    for start in tqdm(range(0, len(faqs), BLOCK), desc="writing", disable=not progress):
        block = [faq for faq in faqs[start : start + BLOCK] if says_enough(faq.question)]
        asked = [faq.question for faq in block]
        write = partial(gen_synonyms, asked, model=model, **settings)
        written = kept(Path(save_to, KEPT), (maker, asked), write) if save_to else write()
        for faq, texts in zip(block, written, strict=True):
            for text in texts:
                key, origin = normalize_text(text), {**faq.metadata, ORIGIN: faq.question}
                if key not in taken:
                    made.setdefault(key, Faq(text, faq.answer, faq.group, None, origin))
                    leads[key].add(faq.leads_to)
    return [*faqs, *(faq for key, faq in made.items() if len(leads[key]) == 1)]
