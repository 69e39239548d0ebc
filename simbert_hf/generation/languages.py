"""Languages other than English and Chinese, which the rules for these two must leave alone."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from simbert_hf.generation.facts import ENGLISH
from simbert_hf.utils.text import compose

# Short common words of each that English texts seldom have; not Spanish "he", or German "die"
COMMON = {
    language: frozenset(words.split())
    for language, words in {
        "cs": "je se si na že jak kde kdy nebo nejde můj mám můžu není prosím pro jsem být",
        "da": "jeg ikke det er og til på hvor hvordan hvad hvornår kan min mit af med har som "
        "den de vil der et jer mig skal",
        "de": "ich mein meine meinen meinem meiner und nicht ist ein eine einen einem einer das "
        "der den dem des wie wo wann warum kann können zu auf mit für von wir sie es im vom zum "
        "zur oder bei sich haben habe wird werden sind auch nach noch aber wenn gibt bitte mir "
        "mich ihr ihre ihren sein seine dieser diese dieses als",
        "es": "que qué mi mis es está están por para con una un se lo la el los del de cómo "
        "dónde cuál cuánto cuándo su sus este esta hay muy pero como más sin tengo puedo "
        "quiero ha fue y te",
        "fi": "minun miten missä milloin mitä ei ja en voi ovat mutta että kun onko voinko",
        "fr": "le la les des du je il ma mon mes une un est et vous nous pas ne pour que qui avec "
        "dans sur au aux où quand ce cette ces votre vos suis puis de ça sont ont se quel quelle "
        "en elle",
        "hu": "hogyan nem az hol mikor egy és van vagy mennyi tudom kell lehet hogy",
        "id": "saya yang tidak bagaimana apa apakah ini itu untuk dengan bisa ada dari mana "
        "kapan ingin di ke",
        "it": "il lo gli di del della dei che con una un mio mia miei è ho sono dove "
        "quando perché quanto posso al alla nel le la si questo questa ha più anche mi ci",
        "nl": "ik mijn het een niet hoe waar wanneer waarom dat wat zijn naar voor met en te "
        "kan van de je jij wij ze er aan bij uit nog ook maar als wordt zich meer geen dit deze u "
        "uw",
        "pl": "jest się nie na jak gdzie kiedy czy moje mój moja mojego swoje dlaczego przy za z "
        "co żeby przez dla jestem mam mogę można od po są proszę ale",
        "pt": "não meu minha meus minhas um uma os com em eu que é por para onde quando qual "
        "da na se mas está são ao foi dos das você posso tenho quero",
        "ro": "nu meu mea unde când și este pentru cu din la să mi",
        "sv": "jag min mitt mina det är inte och på till hur vad när kan för med som den ett en av "
        "har att vill från om de ni",
        "tr": "bir bu nasıl ne nerede için mi mı mu mü var benim ile kadar değil çok daha yok",
        "vi": "tôi của không là ở được có cho làm thế nào này và bao nhiêu khi đã bị đang",
    }.items()
}
MORE_ENGLISH = frozenset(  # some of them also of others: "pour", "sin"
    "after be because before best but by find first get go help make met near need order play pour "
    "recipe second sin till translate van want way weather without wins".split()
)
# In English texts too: "Rio de Janeiro", "al-Qaeda", "co-star", "U.S.", "de facto", "a.com"
IN_NAMES = re.compile(
    r"\b(?:(?i:al|da|del?|di|du|el|las?|les?|los|são|van|von) (?=[A-Z])"
    r"|(?i:al|co|de|el|en|pro)-(?=\w)|l[ao]s (?=angeles|vegas)|[A-Z]\.|de facto\b|(?<=\w\.)com\b)"
)
LETTERS = {  # and marks that English and most others lack
    "cs": "ěřůčšž",
    "da": "æøå",
    "de": "ßäöü",
    "es": "¿¡ñ",
    "fr": "çœêè",
    "it": "ìòù",
    "pt": "ãõ",
    "sv": "åäö",
    "hu": "őű",
    "pl": "łąęśźż",
    "ro": "ățș",
    "tr": "ğış",
    "vi": "đơưạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ",
}
SCRIPTS = {  # by the beginning of their letters' names
    "ARABIC": "ar",
    "BENGALI": "bn",
    "CYRILLIC": "ru",
    "DEVANAGARI": "hi",
    "GREEK": "el",
    "HANGUL": "ko",
    "HEBREW": "he",
    "THAI": "th",
}
WORD = re.compile(r"[^\W\d_]+")
THOUSANDS = re.compile(r"(?<=\d)[. \u00a0\u202f'’](?=\d{3}(?!\d))")


@lru_cache(maxsize=1024)
def foreign_language(text: str) -> str:
    """Guess a text's language by its script, or by its common words if more are not English.

    Returns:
        The language's code, or that of a language like it; "" for English, Chinese, Japanese and
        texts without evidence, such as "Paris Hotel".

    Example:
        >>> foreign_language("Ich will mein Konto löschen."), foreign_language("Где моя карта?")
        ('de', 'ru')
        >>> foreign_language("I will go to El Paso"), foreign_language("What does que mean?")
        ('', '')
    """
    text = compose(text)
    words = WORD.findall(IN_NAMES.sub("", text))
    scripts = Counter(unicodedata.name(word[0], "").partition(" ")[0] for word in words)
    script = max(scripts, key=scripts.__getitem__, default="")
    if script != "LATIN":
        return SCRIPTS.get(script, "")
    known = Counter([words[0][0].lower() + words[0][1:], *words[1:]])  # not "El", "Das" or "EU"
    counts = {language: sum(known[word] for word in common) for language, common in COMMON.items()}
    runs = [run.lower() for run in outside_names(text.split())]
    for language, letters in LETTERS.items():
        counts[language] += sum(not set(letters).isdisjoint(run) for run in runs)
    language = max(counts, key=counts.__getitem__)
    english = len(ENGLISH.findall(text)) + sum(known[word] for word in MORE_ENGLISH)
    return language if counts[language] > english else ""


def outside_names(runs: Sequence[str]) -> list[str]:
    """Leave out capitalised words behind or before others, unless no word is in lower case.

    Example:
        >>> outside_names("São Paulo weather".split()), outside_names(["Şifremi", "Unuttum"])
        (['weather'], ['Şifremi', 'Unuttum'])
    """
    if not any(map(str.islower, runs)):
        return [*runs]
    return [
        run
        for before, run, behind in zip(["", *runs], runs, [*runs[1:], ""], strict=False)
        if not (run[0].isupper() and (before[-1:].isalnum() or behind[:1].isupper()))
    ]


def join_thousands(text: str) -> str:
    """Leave out points, blanks and apostrophes between thousands.

    Example:
        >>> join_thousands("1.234,56 € und 1 500 €, am 3.10.")
        '1234,56 € und 1500 €, am 3.10.'
    """
    return THOUSANDS.sub("", text)
