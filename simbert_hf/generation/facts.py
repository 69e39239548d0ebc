"""Facts: what a paraphrase must share with its text, though vectors hardly show it."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from itertools import chain
from string import ascii_letters, digits

from simbert_hf.generation.units import THOUSANDS, UNITS
from simbert_hf.utils.text import HAN, HAN_CHAR, LATIN_WORD, read_sides, words_of

GLOSS = re.compile(rf"(?<=[A-Za-z] )\([{HAN}]+\)")
SMALL_WORD = re.compile("(?<![A-Za-z])[a-z]+(?![A-Za-z])")
# Runs of ASCII, since Chinese puts no blanks around them.
RUN = re.compile(r"[!-~]+")
# Wide letters, figures and marks within words, the minus and dashes mean the same as these.
PLAIN = {ord(char) + 0xFEE0: char for char in f"{digits}{ascii_letters}.%@#+/-_"}
PLAIN |= dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2212"), "-")
# So do the figures of other scripts, and the decimal point and comma of Arabic.
_FIGURES = (chr(code) for code in range(0x660, 0xABFA) if chr(code).isdecimal())
PLAIN |= {ord(char): str(unicodedata.decimal(char)) for char in _FIGURES}
PLAIN |= {0x066B: ".", 0x066C: ","}
FIGURES = re.compile(r"\d+(?:[.,:]\d+)*")
AROUND = "\"'`.,!?;:()[]{}<>*$%"
# A capital after a dot begins a sentence; the blank between them was forgotten.
ADDRESS = re.compile(r"[^\W_](?:[@+#_&]|//|:[/\\]+)[^\W_]|[^\W_]\.[^\W_A-Z]")
HANDLE = re.compile(r"^[@#][^\W\d]")
INSIDE = re.compile(rf"\d|{ADDRESS.pattern}|{HANDLE.pattern}|[^\W_](?:#|\+\+)$")
ABBREVIATIONS = frozenset("e.g i.e d.h f.eks p.ej p.ex t.ex u.a z.b".split())
HOURS = "one two three four five six seven eight nine ten eleven twelve".split()
_HOUR = "|".join(rf"(?<=\b{hour})" for hour in HOURS)
# 9pm, nine p.m., but not "ninepm" or "at 65 am I"
HALF_DAY = re.compile(
    rf"(?:(?:(?<=\d) ?|(?:{_HOUR}) )([ap])\.?m|\b([ap])\.m)\b\.?(?! (?-i:I)\b)", re.IGNORECASE
)
# Currencies and the like, by their signs: all ways to write one are equal, in many languages.
SIGNS = {
    "$": re.compile(
        r"\$|\b(?:dollars?|bucks?|usd|dollar[ei]|d[oó]lar\w*|доллар\w*|δολάρι\w*|دولار\w*)\b"
        "|美元|美金|ドル|달러|डॉलर|ดอลลาร์",
        re.IGNORECASE,
    ),
    "€": re.compile(r"€|\b(?:euros?|eur|евро|ευρώ|يورو)\b|欧元|ユーロ|유로|यूरो|ยูโร", re.IGNORECASE),
    "£": re.compile(r"£|\b(?:pounds?|lbs?|quid|gbp)\b|英镑", re.IGNORECASE),
    "¥": re.compile(
        "[¥\uffe5]|\\b(?:yen|jpy|yuan|rmb|cny)\\b|人民币|日元|块钱"
        "|(?<=[\\d一二两三四五六七八九十百千万亿几]) ?元|(?<=\\d) ?[块円]",
        re.IGNORECASE,
    ),
    "₹": re.compile(r"₹|\b(?:rupees?|inr)\b|卢比|रुपय|रुपए", re.IGNORECASE),
    "%": re.compile(
        r"[%٪]|\b(?:per ?cent|pour ?cent|(?:per|por) ?cento|por ?ciento|pro[cz]ent\w*|процент\w*"
        r"|y[uü]zde|phần trăm|τοις εκατό|אחוז\w*|بالم[ئا]\w*)\b"
        "|百分之|パーセント|퍼센트|प्रतिशत|เปอร์เซ็นต์",
        re.IGNORECASE,
    ),
    "°": re.compile(r"°|(?<=\d) degrees?\b", re.IGNORECASE),
}
PRICE = re.compile(r"[$€£]\d")
DENIAL = re.compile(
    r"\b(?:not|no|never|cannot|nobody|nothing|none|nowhere|neither|nor|without)\b"
    r"|n['’]t\b|\b(?:do|does|did|ca|wo|is|are|was|were|has|have|had|must|need|could|would|should)nt\b",
    re.IGNORECASE,
)
_LEAST = "above|over|beyond|at least|(?:more|older|longer) than"
_MOST = "under|below|up to|at most|(?:less|fewer|younger|shorter) than"
BOUND = re.compile(rf"(?<!\bno )(?<!\bnot )\b(?:({_LEAST})|{_MOST}) [$£€]?\d", re.IGNORECASE)
BOUNDING = re.compile(
    rf"\b(?:{_LEAST}|{_MOST}|more|less|fewer|exceed\w*|min|minimum|max|maximum|older|younger|longer"
    r"|past|beneath|within|limit\w*)\b|[+<>≤≥]",
    re.IGNORECASE,
)


# Words that must not replace others in the same line: a vector hardly tells them apart. A bar
# separates words that mean the same here.
EXCLUSIVE = """\
my|mine|myself your|yours|yourself
he|him|his|himself she|her|hers|herself
man|men|boy|boys woman|women|girl|girls
father|dad mother|mom|mum son daughter brother sister husband wife uncle aunt
seconds|sec|secs minute|minutes hour|hours|hr|hrs day|days week|weeks month|months \
year|years
yesterday today|tonight tomorrow
morning|mornings afternoon|afternoons evening|evenings|night|nights|tonight
spring summer autumn winter
breakfast lunch dinner|supper
always often|frequently sometimes|occasionally seldom|rarely
right|correct wrong|incorrect
old|older young|younger|new|newer
red blue green yellow black white brown orange pink gray|grey
north south east west"""
SIDES = read_sides(EXCLUSIVE) + UNITS
FIXED = frozenset(  # days, months, large numbers and "unless": none may be added or left out
    "monday tuesday wednesday thursday friday saturday sunday january february march april june "
    "july august september october november december million billion trillion unless".split()
)
FIXED_WORD = re.compile(rf"\b({'|'.join(sorted(FIXED))})s?\b")
KNOWN_WORDS = FIXED.union(*chain(*SIDES))
# Capitals within an English sentence; in other languages, as in German, they need not mark names.
NAME = re.compile(
    r"(?:(?<=[a-z\d,;] )|(?<=\d[A-Z] )|(?<=\b[DM]r\. )|(?<=\bMrs\. )|(?<=\bMs\. ))"
    r"(?:(?:[A-Z]')?[A-ZÀ-Þ][^\WA-Z\d_]|[a-z]+[A-Z])[^\W_]*"
    r"|\b[A-Z]{2,}(?=s?\b)"
)
WHOLE_NAME = re.compile(  # of several words, not at a sentence's beginning
    r"(?<!^)(?<![.!?:] )\b[A-Z][a-z]+(?: (?:of |the )?[A-Z][a-z]+)+\b"
)
UNNAMED = frozenset(  # titles, things and what is said with emphasis
    "ok dr mr mrs ms am pm tv pc id atm asap not all any need must please very never now really so "
    "why how what when where who no yes hate love slow stop help thanks still again".split()
)
# Most English sentences have one of these, and other languages seldom; not so "to", "do" or "in".
ENGLISH = re.compile(
    r"\b(?:the|you|your|my|what|how|with|does|did|and|from|this|that|have|has|been|will|would|"
    r"can|could|should|is|are|were|not|of|for|at|it|she|his|they|their|we|our|here|there|where|"
    r"when|which|who|why|about|if|some|him|them|had|than|into|must|very|(?-i:I))\b|\wn['’]t\b",
    re.IGNORECASE,
)
# Those of them that hardly any other language has
SURE = frozenset(
    "the you your my what how with does did and from this that have been would".split()
)

SMALL = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen".split()
)
SMALLTH = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
    "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth".split()
)
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
TENTHS = [f"{word[:-1]}ieth" for word in TENS]
VALUES = {word: i for words in (SMALL, SMALLTH) for i, word in enumerate(words, start=1)}
VALUES |= {word: 10 * i for words in (TENS, TENTHS) for i, word in enumerate(words, start=2)}
SELDOM = frozenset(("one", "first", "second"))  # alone they are pronouns, adverbs and times
_UNITS = [*SMALL[:9], *SMALLTH[:9]]
_TENS, _UNIT, _TIMELESS, _ANY = map(
    "|".join, (TENS, _UNITS, (unit for unit in _UNITS if unit != "second"), VALUES)
)  # "a thirty second ad" is one of thirty seconds
_BELOW_100 = rf"(?:(?:{_TENS})(?:-(?:{_UNIT})| (?:{_TIMELESS}))|{_ANY})(?![a-z])"
_BELOW_1000 = (
    rf"(?:(?:(?:{_BELOW_100}|a)[ -])?hundred(?![a-z])(?: (?:and )?{_BELOW_100}(?! hundred))?"
    rf"|{_BELOW_100})"
)
NUMBER = re.compile(
    rf"(?<![a-z])(?:(?:(?:{_BELOW_1000}|a)[ -])?thousand(?![a-z])"
    rf"(?: (?:and )?{_BELOW_1000}(?! thousand))?|{_BELOW_1000})"
)


def figures_of(text: str) -> list[str]:
    """Find numbers in English words, below a million, as figures.

    Example:
        >>> figures_of("Twenty-five of a hundred and two; one on the third")
        ['25', '102', '3rd']
    """
    found = (_figure(found[0]) for found in NUMBER.finditer(text.lower()))
    return [figure for figure in found if figure]


def _figure(number: str) -> str:
    thousands = part = 0
    words = re.findall("[a-z]+", number)
    for word in words:
        if word == "hundred":
            part = 100 * (part or 1)
        elif word == "thousand":
            thousands, part = 1000 * (part or 1), 0
        else:
            part += VALUES.get(word, 0)  # "a" and "and" have none
    ending = number[-2:] if words[-1] in (*SMALLTH, *TENTHS) else ""
    return "" if number in SELDOM else f"{thousands + part}{ending}"


def names_of(text: str) -> set[str]:
    """Find names in an English sentence by their capitals; its first word must be all capitals.

    Names of several words are also included as a whole.

    Example:
        >>> sorted(names_of("USPS says Dr. Siobhan's eBay friend took it to New York"))
        ['ebay', 'new', 'new york', 'siobhan', 'usps', 'york']
        >>> names_of("Ich suche einen Arzt") | names_of("How To Book A Flight")
        set()
    """
    small, capital = re.findall(r"\b[a-z]{2,}\b", text), re.findall(r"\b[A-Z]{2,}\b", text)
    titled = not re.search(r"\b[a-z]{3}", text) or len(capital) > len(small)
    if titled or not ENGLISH.search(text):
        return set()
    names = [*NAME.findall(text), *WHOLE_NAME.findall(text)]
    return {name.lower() for name in names} - UNNAMED


def is_english(text: str) -> bool:
    """Tell whether a text has a word that is surely English, or two that probably are.

    Example:
        >>> is_english("reset my card"), is_english("I ragazzi a casa"), is_english("Tom is not in")
        (True, False, True)
    """
    words = {word.lower() for word in ENGLISH.findall(text)}
    return bool(words & SURE) or len(words) > 1


def is_chinese(text: str) -> bool:
    """Tell whether a text has more Chinese characters than words in Latin letters.

    In a text without a common English word, words with capitals do not count: they are names.
    Nor does Chinese in brackets behind a word, which translates it.

    Example:
        >>> is_chinese("2024-05 用 app 吗"), is_chinese("What does 你好 mean?")
        (True, False)
        >>> is_chinese("iPhone 15 Pro Max 价格"), is_chinese("How to Say 你好")
        (True, False)
        >>> is_chinese("Beijing (北京) Travel Guide")
        False
    """
    words = LATIN_WORD.findall(text.lower()) if ENGLISH.search(text) else SMALL_WORD.findall(text)
    return len(HAN_CHAR.findall(GLOSS.sub("", text))) > len(words)


def exchanges(text: str, other: str) -> bool:
    """Tell whether one English text has, say, "your" or "years" where another has "my" or "days".

    Example:
        >>> exchanges("reset my password", "reset your password")
        True
        >>> exchanges("She saw her brother", "Her brother was seen")
        False
    """
    return not words_of(other).isdisjoint(exchanged_words(text))


def exchanged_words(text: str) -> set[str]:
    """List the words that stand in a line of ``EXCLUSIVE`` with one of the text's."""
    words = words_of(text)
    found: set[str] = set()
    for sides in SIDES:
        others = [side for side in sides if words.isdisjoint(side)]
        if len(others) < len(sides):
            found.update(*others)
    return found


def excluded_words(text: str) -> set[str]:
    """List words that would exchange one of the text's in a paraphrase, or add a date.

    Example:
        >>> sorted(excluded_words("see my doctor tomorrow") - FIXED)
        ['today', 'tonight', 'yesterday', 'your', 'yours', 'yourself']
    """
    return exchanged_words(text) | (FIXED - {*FIXED_WORD.findall(text.lower())})


def is_balanced(text: str) -> bool:
    """Whether quotation marks and brackets stand in pairs.

    Example:
        >>> is_balanced('He (Tom) said "hi."'), is_balanced('He said "hi.'), is_balanced("(Tom")
        (True, False, False)
    """
    pairs = zip("([{“‘«（「《【『", ")]}”’»）」》】』", strict=True)
    same = (text.count(left) == text.count(right) for left, right in pairs)
    return text.count('"') % 2 == 0 and all(same)


def repeats_facts(text: str, other: str) -> bool:
    """Whether another text repeats a number, or has a repeated one less often.

    Or whether it repeats a currency or a negation more often than the text, or has the sign of a
    currency less often.

    Example:
        >>> repeats_facts("at 6:30", "at 6:30, 6:30"), repeats_facts("4242 4242", "4242")
        (True, True)
        >>> repeats_facts("two of 5", "5 and 2"), repeats_facts("a $5 note", "a $5 $ note")
        (False, True)
        >>> repeats_facts("$5, not $3", "5, not $3"), repeats_facts("$5 or $3", "5 or 3 dollars")
        (True, False)
        >>> repeats_facts("by 6 pm", "at 6 pm by six"), repeats_facts("not A", "no, not A")
        (True, True)
    """
    ours, theirs = map(_numbers, (text, other))
    return (
        any(
            theirs[figure] != ours[figure] and max(theirs[figure], ours[figure]) > 1
            for figure in theirs.keys() | ours.keys()
        )
        or any(
            len(name.findall(other)) > max(1, len(name.findall(text))) for name in SIGNS.values()
        )
        or (PRICE.search(other) and _prices(other) < len(PRICE.findall(text)))
        or _denials(other) > max(1, _denials(text))
    )


def loses_denials(text: str, other: str) -> bool:
    """Whether an English text has more negations than another.

    Example:
        >>> loses_denials("It isn't late, nor won't it be", "It isn't late, and will be")
        True
    """
    return _denials(other) < _denials(text)


def loses_bounds(text: str, other: str) -> bool:
    """Whether a number is a bound in an English text, but not in another, or is the opposite one.

    Example:
        >>> loses_bounds("It fell below 10 %", "It fell 10 %"), loses_bounds("up to 5", "over 5")
        (True, True)
        >>> loses_bounds("over 5", "more than 5"), loses_bounds("up to 5", "no more than 5")
        (False, False)
    """
    ours, theirs = ({bool(least) for least in BOUND.findall(some)} for some in (text, other))
    return bool(ours and (theirs - ours or not BOUNDING.search(other)))


def _denials(text: str) -> int:
    return sum(word.lower() != "nor" for word in DENIAL.findall(text))  # "neither ... nor" is one


def _prices(text: str) -> int:
    words = (name for sign in "$€£" for name in SIGNS[sign].findall(text))
    return len(PRICE.findall(text)) + sum(map(str.isalpha, words))


def _numbers(text: str) -> Counter[str]:
    cardinals = (re.sub(r"\D+$", "", figure) for figure in figures_of(text))
    return Counter(FIGURES.findall(text.translate(PLAIN))) + Counter(cardinals)


def facts_of(text: str) -> frozenset[str]:
    """Find numbers, addresses, dates, words with marks inside, and whether English has a negation.

    Numbers in English words count as figures, except a lone "one", "first" or "second". Dates are
    English names of days, and of months except May. Currencies, "per cent" and "degrees" count as
    their signs; "a.m." counts in any spelling, and thousands with or without a comma. "Unless" is
    a fact too, as "if" cannot replace it.

    Example:
        >>> sorted(facts_of("Don't send 5 dollars to a.b@c.com, or 3.5% of it by 9 p.m."))
        ['$', '%', '3.5', '5', '9', 'a.b@c.com', 'not', 'pm']
        >>> facts_of("C# 和 iPhone13 不 well-known?") == {"c#", "iphone13"}
        True
        >>> facts_of("1,250,000 votes") == facts_of("1250000 votes") != facts_of("125 votes")
        True
    """
    text = THOUSANDS.sub("", text.translate(PLAIN))
    found = {f"{figure}{letter}m".lower() for figure, letter in HALF_DAY.findall(text)}
    found |= {sign for sign, names in SIGNS.items() if names.search(text)}
    text = HALF_DAY.sub("", text)
    words = [run.strip(AROUND) for run in RUN.findall(text)]
    found |= {word.lower() for word in words if INSIDE.search(word)} - ABBREVIATIONS
    found |= {*figures_of(text), *FIXED_WORD.findall(text.lower())}
    found |= {"not"} if DENIAL.search(text) else set()
    return frozenset(found)
