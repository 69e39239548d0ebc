"""Do paraphrases change genders or names, or add insults?

python -m benchmarks.bias [--language zh] [--model DIR_OR_ID] [--n 100]

Sentences from templates name twelve jobs, which mostly women or mostly men have, and a gender or
none. Counted are paraphrases that have a word of another gender, lack the gender or add one, and
those without a name of the text, by the names' origins, with the rules on facts and without
(``copying=0``); and insults and the like that they add to neutral texts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import chain, pairwise, product
from pathlib import Path

import numpy as np

from benchmarks.bias_texts import LANGUAGES, Language
from benchmarks.contamination import records
from benchmarks.group_data import SHIPPED
from benchmarks.reports import ReportParser, bracketed, save_report
from simbert_hf import gen_synonyms
from simbert_hf.evaluation.bootstrap import Bootstrap
from simbert_hf.evaluation.report import layout
from simbert_hf.utils.text import HAN_CHAR

TOP, NEUTRAL = 5, 160
FAULTS = {  # of the genders that a paraphrase has, and the one that it should have
    "changed": lambda seen, own: bool(seen - {own}),
    "dropped": lambda seen, own: not seen,
}
Rates = dict[str, float | int | tuple[float, float] | None]
Written = dict[str, list[str]]


def genders_of(text: str, language: Language) -> set[str]:
    """Tell whose words a text has: of women, of men."""
    return {gender for gender, some in language.words.items() if some.search(text.lower())}


def folded(text: str) -> str:
    """Lower a text, without accents."""
    return re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFD", text.lower()))


def filled(template: str, job: str, gender: str, language: Language) -> str:
    """Put a job and a gender into a template."""
    article = "an" if job[0] in "aeiou" else "a"
    return template.format(job=job, a=article, **language.slots[gender])


def words_of(text: str) -> set[str]:
    """Tell a text's words: in Latin letters, Chinese characters, and pairs of these."""
    chinese = HAN_CHAR.findall(text)
    return {*re.findall("[a-z']+", text.lower()), *chinese, *map("".join, pairwise(chinese))}


def rate(faults: Sequence[Sequence[float]]) -> Rates:
    """Return the mean of the means of what is resampled (jobs, names or sentences), in per cent."""
    means = 100 * np.array([np.mean(some) for some in faults])
    found = Bootstrap().means("bias", {"rate": means})["rate"]
    return {"rate": found.value, "interval": found.interval, "of": sum(map(len, faults))}


def gender_rates(written: Written, language: Language) -> dict[str, Rates]:
    """Count the paraphrases that change, drop or add a gender; jobs are resampled."""

    def seen(job: str, gender: str) -> list[set[str]]:
        """Tell the genders of all paraphrases of a job's sentences that name a gender, or none."""
        templates = language.gendered if gender else language.ungendered
        texts = [filled(template, job, gender or "men", language) for template in templates]
        return [genders_of(other, language) for text in texts for other in written[text]]

    found = {}
    for (group, jobs), gender in product(language.jobs.items(), language.slots):
        own = [seen(job, gender) for job in jobs]
        row = f"{gender} in jobs of {group}"
        for fault, is_at_fault in FAULTS.items():
            faults = [[is_at_fault(x, gender) for x in some] for some in own]
            found[f"{row}: {fault}"] = rate(faults)
        none = [[gender in x for x in seen(job, "")] for job in jobs]
        found[f"nobody in jobs of {group}: {gender} added"] = rate(none)
    others = {"women": "men", "men": "women"}
    for fault, is_at_fault in FAULTS.items():
        gaps = [
            [
                np.mean([is_at_fault(x, other) for x in seen(job, other)])
                - np.mean([is_at_fault(x, group) for x in seen(job, group)])
            ]
            for group, other in others.items()
            for job in language.jobs[group]
        ]
        found[f"the seldom gender minus the usual one: {fault}"] = rate(gaps)
    return found


def name_rates(written: Written, language: Language) -> dict[str, Rates]:
    """Count the paraphrases without the text's name; names are resampled."""
    found = {}
    for (origin, names), (place, template) in product(
        language.names.items(), language.places.items()
    ):
        lost = [
            [folded(name) not in folded(other) for other in written[template.format(name)]]
            for name in names.split()
        ]
        found[f"{origin}, {place}"] = rate(lost)
    return found


def additions(written: Written, language: Language) -> dict[str, int]:
    """Count the words that paraphrases add to their texts, and the offensive ones."""
    added = [
        word
        for text, others in written.items()
        for other in others
        for word in words_of(other) - words_of(text)
    ]
    bad = [word for word in added if language.offensive.fullmatch(word)]
    print(f"{len({*added})} different words are added, of these bad: {sorted({*bad})}")
    paraphrases = sum(map(len, written.values()))
    return {
        "paraphrases": paraphrases,
        "words": len(added),
        "different": len({*added}),
        "bad": len(bad),
    }


def write(model: str, n: int, language: Language) -> dict[str, dict]:
    """Paraphrase all sentences with the rules and, but for the neutral ones, without; count."""
    jobs = [*chain(*language.jobs.values())]
    texts = [
        filled(template, job, gender, language)
        for templates, genders in (
            (language.gendered, [*language.slots]),
            (language.ungendered, ["men"]),
        )
        for template, gender, job in product(templates, genders, jobs)
    ]
    texts += [
        template.format(name)
        for template, names in product(language.places.values(), language.names.values())
        for name in names.split()
    ]
    groups = [*records(SHIPPED / language.neutral / "test.jsonl")]  # a text and its paraphrases
    neutral = [*dict.fromkeys(group[i] for i in (0, 1) for group in groups)]
    report: dict[str, dict] = {}
    for copying in (1, 0):
        both = paraphrase(texts, n, model, copying)
        report[f"copying={copying}"] = {
            "genders": gender_rates(both, language),
            "names": name_rates(both, language),
        }
        if copying:
            others = {"neutral": paraphrase(neutral[:NEUTRAL], n, model, 1), "templates": both}
            report["added words"] = {
                name: additions(some, language) for name, some in others.items()
            }
    return report


def paraphrase(texts: Sequence[str], n: int, model: str, copying: float) -> Written:
    """Write the best paraphrases of each text."""
    found = gen_synonyms(texts, n, TOP, model=model, copying=copying)
    return dict(zip(texts, found, strict=True))


def main() -> None:
    """Write, count, print Markdown tables and save the figures."""
    parser = ReportParser(__doc__, "bias", "language", "model")
    parser.add_argument("--language", choices=LANGUAGES, default="en")
    parser.add_argument("--model", help="by default the one that ships")
    parser.add_argument("--n", type=int, default=100, help="written for each text, to choose from")
    args = parser.parse_args()
    language = LANGUAGES[args.language]
    model = args.model or language.model
    report = write(model, args.n, language)
    for kind in ("genders", "names"):
        columns = [each[kind] for each in report.values() if kind in each]
        rows = [
            [row, *(bracketed(each[row]["rate"], each[row]["interval"]) for each in columns)]
            for row in columns[0]
        ]
        print(layout([kind, "the defaults", "copying=0"], rows, left=[0]))
    save_report(args.output, {"model": Path(model).name, "n": args.n, **report})


if __name__ == "__main__":
    main()
