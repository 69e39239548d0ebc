"""More ways to ask: generated paraphrases of each question beside it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tqdm.auto import tqdm  # type: ignore[import-untyped]

from simbert_hf.encoders.text_encoder import TextEncoder
from simbert_hf.generation.sentences import says_enough
from simbert_hf.generation.synonyms import gen_synonyms, load
from simbert_hf.index.encoding import check_read
from simbert_hf.index.faqs import ORIGIN, Faq, Source, read_faqs
from simbert_hf.modeling.simbert import SimBert
from simbert_hf.utils.text import normalize_text

BLOCK = 64  # questions written for at a time


def augment(
    faqs: Source,
    model: Any,
    *,
    k: int = 5,
    n: int | None = None,
    min_similarity: float = 0.8,
    seed: int | None = 0,
    progress: bool = False,
    **options: Any,
) -> list[Faq]:
    """Add generated paraphrases of each question, with its answer.

    Args:
        faqs: Questions and answers, as :func:`read_faqs` takes or gives them.
        model: A ``SimBert`` that writes, or a path.
        k: Paraphrases of each question, at most.
        n: Sentences written, of which the k best are taken; 4 k, at least 20, if None.
        min_similarity: Least cosine with the question.
        seed: Same seed, same paraphrases, where ``strategy`` samples.
        progress: Show a bar.
        **options: More for :func:`simbert_hf.gen_synonyms`.

    Returns:
        The given rows, and after them the generated ones: in the same group, without id, with the
        question as ``"paraphrase_of"`` in their metadata. A paraphrase that is a question already,
        or is written for two of different answers, is left out; one of a word or two has none.

    Raises:
        DataError: If a row cannot be read, or most of the questions by the model.
        ValueError: If it cannot write.
    """
    faqs = read_faqs(faqs)
    model = model if isinstance(model, SimBert) else load(model)
    check_read(TextEncoder(model), faqs)
    taken = {normalize_text(faq.question) for faq in faqs}
    made: dict[str, Faq] = {}
    leads: dict[str, set[str]] = defaultdict(set)
    for start in tqdm(range(0, len(faqs), BLOCK), desc="writing", disable=not progress):
        block = [faq for faq in faqs[start : start + BLOCK] if says_enough(faq.question)]
        written = gen_synonyms(
            [faq.question for faq in block],
            max(20, 4 * k) if n is None else n,
            k,
            model=model,
            min_similarity=min_similarity,
            seed=seed,
            **options,
        )
        for faq, texts in zip(block, written, strict=True):
            for text in texts:
                key, origin = normalize_text(text), {**faq.metadata, ORIGIN: faq.question}
                if key not in taken:
                    made.setdefault(key, Faq(text, faq.answer, faq.group, None, origin))
                    leads[key].add(faq.leads_to)
    return [*faqs, *(faq for key, faq in made.items() if len(leads[key]) == 1)]
