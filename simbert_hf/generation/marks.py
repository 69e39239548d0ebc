"""Marks as people type them, and plain for the model: curly, repeated, missing, or for emphasis.

Phones and word processors write "it’s" where most text that models learnt from has "it's". To a
tokenizer these and "its" are different words, and one for the other would pass for a paraphrase.
After "???" or "...", models continue a sentence that has ended. Asterisks around a word are left
out together with it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import chain

from simbert_hf.generation.facts import is_english
from simbert_hf.generation.sentences import TAG
from simbert_hf.utils.text import CJK, CJK_CHAR

BETWEEN = re.compile(r"(?<=[^\W\d_])[’\u02bc\u00b4`](?=[^\W\d_])")
SINGLE = re.compile(  # quotation marks, but not an apostrophe before a word or at its end
    r"(?<!\w)(['‘])(?!\s|(?i:bout|cause|ello|em|er|im|n|ole|round|s|t|til|tis|twas|\d\ds?)\b)"
    r"((?:[^'‘’\"“”„»\n]|(?<=\w)['’](?=\w))+)(?<!\s)(['’])(?!\w)"
)
OPENED = re.compile(r'(?<![^\s([{\u2014\u2013-])"')  # at a word's beginning
BEHIND = rf"(?<=[^\W_])({{}})(?![^\W{CJK}]|[@#/=&])"  # a word or figure, and in no address
ENDS = re.compile(BEHIND.format("[?!\u061f]+|[\uff1f\uff01]+"))
SHORT = (
    "aren't can't couldn't didn't doesn't don't hadn't hasn't haven't he's here's how's i'm i've "
    "isn't mustn't needn't she's shouldn't that's there's they'll they're they've wasn't we've "
    "weren't what's where's who's won't wouldn't you'll you're you've"
).split()  # which are not other words without the apostrophe
UNMARKED = {word.replace("'", ""): word.index("'") for word in SHORT}
UNMARKED_WORD = re.compile(
    rf"(?<![\w'’@#/.-])(?!(?-i:IM)\b)({'|'.join(UNMARKED)})(?![\w'’@/-]|\.\w)", re.IGNORECASE
)
NO_WORD = rf"(?<![^\W{CJK}])", rf"(?![^\W{CJK}])"  # before, behind
BEGINS, ENDING = map(re.compile, NO_WORD)
EMPHASIS = re.compile(  # of a few words, in Markdown or HTML, and in no address
    rf"{NO_WORD[0]}(?<![*_@/\\])(\*{{1,3}}|_|<(b|em|i|mark|strong|u)>)(?=[^\W_]|[\"'“‘«(\[@#$])"
    rf"([^*_<>\n]{{1,40}})(?<![\s\\])((?(2)</\2>|\1))(?![*_@/\\]){NO_WORD[1]}"
)
INCH = re.compile(r'(?<=\d)"')
DOTS = re.compile(r"(?<=[^\W_])(?:\.{2,}|\u2026+)")


def plain_marks(text: str) -> str:
    r"""Write apostrophes and pairs of quotation marks straight, and one mark for several in a row.

    English gets its missing apostrophes. Inch marks are not quotation marks. Single quotation
    marks become double, so that no apostrophe is taken for one; text with Chinese keeps them all.
    Words within a line lose their emphasis.

    Example:
        >>> plain_marks("I’m “out” of the boys’ room"), plain_marks("‘out’ isn’t «in»")
        ('I\'m "out" of the boys\' room', "‘out’ isn't «in»")
        >>> plain_marks("What?! Wait... it's late!!!"), plain_marks("cant you see im here")
        ("What? Wait… it's late!", "can't you see i'm here")
        >>> plain_marks("Is *this* <b>it</b>?"), plain_marks("**Is it?**"), plain_marks("2 *3* 4")
        ('Is this it?', '**Is it?**', '2 3 4')
        >>> plain_marks("请点击**保存**按钮"), plain_marks("3*4*5, __init__, f*ck it*")
        ('请点击保存按钮', '3*4*5, __init__, f*ck it*')
    """
    text = "".join(map(unemphasised, text.splitlines(keepends=True)))
    text = INCH.sub("\u2033", text) if has_inches(text) else text
    text = ENDS.sub(lambda found: plain_end(found[0]), DOTS.sub("\u2026", text))
    if CJK_CHAR.search(text):
        return text
    text = BETWEEN.sub("'", text)
    opened, closed = quotation_marks(text)
    if opened in "'‘":
        text = SINGLE.sub(r'"\2"', text)
    elif opened == "“":
        text = text.replace(opened, '"').replace(closed, '"')
    if "‘" not in text:  # else it may be a quotation mark
        text = text.replace("’", "'")
    english = UNMARKED_WORD.sub(marked, text)
    return english if is_english(english) else text


def has_inches(text: str) -> bool:
    """Whether a text's straight quotation marks all follow figures, and so quote nothing.

    Example:
        >>> has_inches('a 65" and a 55" one'), has_inches('"7" is 7"')
        (True, False)
    """
    return 0 < text.count('"') == len(INCH.findall(text)) and "\u2033" not in text


def unemphasised(line: str) -> str:
    """Remove the marks of emphasis, unless the line has no other words."""
    others = TAG.sub("", EMPHASIS.sub("", line))
    return EMPHASIS.sub(r"\3", line) if any(map(str.isalnum, others)) else line


def emphasised(source: str, text: str) -> str:
    """Emphasise the same words as a source, if a text has them once."""
    lines = (line for line in source.splitlines() if unemphasised(line) != line)
    emphases = list(chain.from_iterable(map(EMPHASIS.findall, lines)))
    phrases = [words.lower() for _, _, words, _ in emphases]
    for before, _, words, behind in emphases:
        if sum(words.lower() in phrase for phrase in phrases) > 1:  # again, or within another
            continue
        found = [
            place.span()
            for place in re.finditer(re.escape(words), text, re.IGNORECASE)
            if BEGINS.match(text, place.start()) and ENDING.match(text, place.end())
        ]
        if len(found) == 1:
            [(start, end)] = found
            text = text[:start] + before + text[start:end] + behind + text[end:]
    return text


def marked(found: re.Match[str]) -> str:
    """Insert the apostrophe into a word that lacks it."""
    at = UNMARKED[found[0].lower()]
    return f"{found[0][:at]}'{found[0][at:]}"


def plain_end(marks: str) -> str:
    """Choose one of several marks: a question mark, if there is one."""
    return next((mark for mark in marks if mark in "?\u061f\uff1f"), marks[0])


def quotation_marks(text: str) -> tuple[str, str]:
    """Find the only kind of paired quotation marks in a text; straight ones if there is none.

    Example:
        >>> quotation_marks("“so”"), quotation_marks("'so'"), quotation_marks("‘so’ or 'so'")
        (('“', '”'), ("'", "'"), ('"', '"'))
    """
    if 0 < text.count("“") == text.count("”") and not any(mark in text for mark in '"„»'):
        return "“", "”"
    pairs = {(opened, closed) for opened, _, closed in SINGLE.findall(text)}
    alone = len(pairs) == 1 and not any(mark in text for mark in '"“”„»')
    return pairs.pop() if alone else ('"', '"')


def marks_as_in(source: str, text: str) -> str:
    r"""Write marks as a source does, if it writes each of them in only one way.

    Example:
        >>> marks_as_in("We’re “in”.", "I'm \"out\", isn't it?"), marks_as_in("we're, I’m", "I'm")
        ('I’m “out”, isn’t it?', "I'm")
        >>> marks_as_in("Wait... What?!", "What? Wait…"), marks_as_in("No? No!! No!", "No! No?")
        ('What?! Wait...', 'No! No?')
        >>> marks_as_in("You *must* **Save** it.", "Save it, you must."), marks_as_in("*it*", "No")
        ('**Save** it, you *must*.', 'No')
    """
    text = emphasised(source, text)
    text = text.replace("\u2033", '"') if has_inches(source) else text
    text = DOTS.sub("\u2026", text)  # some tokenizers make three dots of it
    forms: dict[str, set[str]] = defaultdict(set)
    for marks in ENDS.findall(source):
        forms[plain_end(marks)].add(marks)
    forms["\u2026"].update(DOTS.findall(source))
    chinese = CJK_CHAR.search(source)
    if not chinese:
        forms["'"].update(BETWEEN.findall(source) or {"’"}.intersection(source))
        forms["'"].update({"'"}.intersection(source))
    known = {plain: marks.pop() for plain, marks in forms.items() if len(marks) == 1}
    text = ENDS.sub(lambda found: known.get(found[0], found[0]), text)
    for plain in "\u2026'":
        text = text.replace(plain, known.get(plain, plain))
    if chinese:
        return text
    opened, closed = quotation_marks(source)
    return OPENED.sub(opened, text).replace('"', closed)
