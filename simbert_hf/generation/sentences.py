"""Split texts into sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise

from sentencex import segment

from simbert_hf.generation.languages import foreign_language
from simbert_hf.utils.text import HAN, INDIC, KANA, UNSPACED, is_mark

WORD = re.compile(  # of scripts without blanks, some letters
    rf"[{HAN}]|[{KANA}]{{1,3}}|[{UNSPACED}]{{1,4}}|[{INDIC}]+|[^\W{HAN}{KANA}{UNSPACED}{INDIC}]+"
)
WITH_ORDINALS = frozenset("cs da de fi hu pl tr".split())  # "das 19. Jahrhundert"
ORDINAL = re.compile(r"(?<![\w.,])\d{1,2}\.\s+(?=\w)")
TAG = re.compile("<[^<>]*>")
_BLOCK = r"</?(?:br|div|h[1-6]|li|ol|p|t[dhr]|ul)(?![\w:-])[^<>]*>"  # of HTML
LINE_END = re.compile(rf"(?:\n|{_BLOCK})\s*$")
BEFORE_ITEM = re.compile(rf"(?:[\n。！？；]|{_BLOCK})\s*$")
BLOCKS = re.compile(rf"(?:{_BLOCK}\s*)+")
# Markers of Chinese list items, without a blank after them
_NUMERAL = "[一二三四五六七八九十]"
_ITEM = rf"(?:\d+[.\uff0e、)）](?!\d)|（\d+）|[①-⑳]|{_NUMERAL}+、(?!{_NUMERAL}))\s*(?=[{HAN}]|$)"
_JOINED = r"[,;]?(?: and| or)? (?=\d{1,2}\) )"  # what joins the items of one line
MARKER = re.compile(rf"(?:{_JOINED}|\s*)(?:(?:\d+[.)]|[-*•])\s+|{_ITEM})")  # of a list's item
LISTED = re.compile(r"(?<!\S)1\) (?:(?!1\) )\S+ ){2,}2\) ")  # in one line
NEXT_ITEM = re.compile(rf"(?<=[^\s,;])(?<! and)(?<! or)(?={_JOINED}\d+\) \S)")
FIRST_ITEM = re.compile(r"\W*1\)\s+")
# Ends of sentences that the splitter does not know
UNKNOWN_END = re.compile(
    rf"(?<=[。！？])(?=[0-9a-z①-⑳]|（\d)(?![^“（]{{0,99}}[”）])|(?<=\n)(?={_ITEM})"
    r"|(?<=[\u0370-\u03ff][;\u037e] )"  # Greek question marks
)
APART = re.compile(rf"\n\s*$|^{MARKER.pattern}$")  # what the next sentence is not joined to
# White space, and emoji and signs of their kind, which few models read, with what joins them
SIGNS_IN = (
    "\\s\u2190-\u21ff\u2300-\u27e5\u27f0-\u27ff\u2900-\u2bff\U0001f000-\U0001faff"
    "\u200d\u20e3\ufe0f\U000e0020-\U000e007f"
)
SIGNS = re.compile(f"[{SIGNS_IN}]+")
EMOTICON = r"(?<!\S)(?:[:;=]['’]?-?[()\[\]DPpOo/|*]+|\^_*\^)(?!\w)"
_LAST = r"(?<!\S)(?:<3+|[xX]D+)(?=[\s.!?]*$)"  # only at the end of a sentence
# Tried once in each run of blanks
EDGE = rf"(?:(?<![{SIGNS_IN}])[{SIGNS_IN}]++|{EMOTICON}|{_LAST}|{_BLOCK}){{0,30}}"
_PAIR = r"(?:\*\*|</?(?:b|strong)>|[\"“”])"
CORE = re.compile(  # Markdown's headings and quotations, comments; what is bold or quoted
    rf"({EDGE}(?:(?:#{{1,6}}|>|//+|/\*+) (?!\d))?"
    rf"({_PAIR}(?=[^*<>\"“”]+{_PAIR}{EDGE}$))?)(.*?)((?(2){_PAIR})(?: \*/)?{EDGE})",
    re.DOTALL,
)
PART = 2500  # characters split at once: the splitter loses line breaks behind 10,000 bytes
MOST = 200  # characters that are joined to the next sentence if they say too little
LEAST = 3  # words of a sentence that is paraphrased; shorter ones are left as they are


def split_sentences(text: str) -> list[str]:
    r"""Split a text into sentences, which joined again give the text.

    Very short ones are joined to the next, or at the end to the previous one, unless a line ends
    between them. List markers stand alone.

    Args:
        text: In any language that ends its sentences in a similar way to English.

    Returns:
        At least one sentence, each with the white space after it.

    Example:
        >>> split_sentences("Hi! Does Mr. Smith work here? i lost my card. thanks")
        ['Hi! Does Mr. Smith work here? ', 'i lost my card. thanks']
        >>> split_sentences("Hello,\n\n我的卡丢了。可以补办吗？")
        ['Hello,\n\n', '我的卡丢了。', '可以补办吗？']
        >>> split_sentences("1. Log in.\n2. Pay your bill.")
        ['1. ', 'Log in.\n', '2. ', 'Pay your bill.']
        >>> split_sentences("1. Peel the eggs. 2. Cut them small.")
        ['1. ', 'Peel the eggs. ', '2. ', 'Cut them small.']
        >>> split_sentences("We must: 1) peel the eggs 2) cut them")
        ['We must:', ' 1) ', 'peel the eggs', ' 2) ', 'cut them']
    """
    sentences: list[str] = []
    begun = ""
    language = foreign_language(text)
    pieces = chain.from_iterable(cut(piece, language) for piece in UNKNOWN_END.split(text))
    in_line = bool(LISTED.search(text))
    if in_line:
        pieces = chain.from_iterable(map(NEXT_ITEM.split, pieces))
    parts = chain.from_iterable(map(cut_blocks, pieces))
    for part in chain.from_iterable(map(cut_short_lines, parts)):
        if sentences and not begun + part.strip():
            sentences[-1] += part
            continue
        marker = MARKER.match(part)
        listed = in_line or (sentences and MARKER.fullmatch(sentences[0]))
        if listed and marker and begun:
            sentences.append(begun)
            begun = ""
        at_start = not begun and (not sentences or listed or BEFORE_ITEM.search(sentences[-1]))
        if at_start and marker:
            sentences.append(marker[0])
            part = part[marker.end() :]
        begun += part
        if len(begun) > MOST or says_enough(begun) or (begun.strip() and LINE_END.search(begun)):
            sentences.append(begun)
            begun = ""
    if begun and sentences and not APART.search(sentences[-1]):
        sentences[-1] += begun
    elif begun:
        sentences.append(begun)
    lined = any(map(APART.search, sentences[:-1]))
    return sentences if lined or any(map(says_enough, sentences)) else [text]


def cut(text: str, language: str) -> Iterator[str]:
    """Cut a text where sentences end in English and, if given, in another language.

    Example:
        >>> list(cut("Das kostet ca. 5 € bzw. mehr. Wo ist der 2. Arzt?", "de"))
        ['Das kostet ca. 5 € bzw. mehr. ', 'Wo ist der 2. Arzt?']
    """
    ends = ends_in(text, "en")
    if language:  # which knows its abbreviations, but not all that English has
        ends &= ends_in(text, language)
    if language in WITH_ORDINALS:
        ends -= {found.end() for found in ORDINAL.finditer(text)}
    start = 0
    for end in sorted(ends):
        yield text[start:end]
        start = end


def ends_in(text: str, language: str) -> set[int]:
    """Find where sentences end; of a long text, in parts, as the splitter's time grows by squares.

    Example:
        >>> sorted(ends_in("Hi! Does Mr. Smith work here?", "en"))
        [4, 29]
    """
    ends: set[int] = set()
    start = 0
    while start < len(text):
        part = text[start : start + PART]
        found = list(accumulate(map(len, segment(language, part)), initial=start))[1:]
        if start + PART < len(text):  # what comes next decides upon the last ones
            some = [end for end in found if end <= start + PART // 2] or found[:1]
            found = [end for end in some if end < start + PART]
            start = some[-1]
        else:
            start = len(text)
        ends.update(found)
    return ends


def cut_blocks(sentence: str) -> Iterator[str]:
    """Cut a sentence after the HTML tags that end or begin lines and blocks.

    Example:
        >>> list(cut_blocks("<p>my card is lost<br>what now</p>"))
        ['<p>my card is lost<br>', 'what now</p>']
    """
    start = 0
    for tags in BLOCKS.finditer(sentence):
        if TAG.sub("", sentence[start : tags.start()]).strip():
            yield sentence[start : tags.end()]
            start = tags.end()
    if start < len(sentence):
        yield sentence[start:]


def cut_short_lines(sentence: str) -> Iterator[str]:
    r"""Cut a sentence after lines of a word or two at its beginning; long ones may be wrapped.

    Example:
        >>> list(cut_short_lines("Hi,\ncan you send\nit?"))
        ['Hi,\n', 'can you send\nit?']
    """
    line, end, rest = sentence.partition("\n")
    while end and line.strip() and rest.strip() and not says_enough(line):
        yield line + end
        sentence = rest
        line, end, rest = sentence.partition("\n")
    yield sentence


def says_enough(sentence: str) -> bool:
    """Whether a sentence can be paraphrased by itself; "Thanks." says too little."""
    return count_words(sentence) >= LEAST


def count_words(sentence: str) -> int:
    """Count words, and Chinese characters, outside tags.

    Example:
        >>> list(map(count_words, ["Is it <b>new</b>?", "新的吗？", "ログインできません"]))
        [3, 3, 3]
    """
    return len(WORD.findall(TAG.sub("", sentence)))


def worth_writing(sentences: Sequence[str]) -> list[str]:
    r"""Choose the sentences of a text to paraphrase; of short lines, those of two words.

    What leads to the items of a list in one line is not one.

    Example:
        >>> worth_writing(["Hi,\n", "my card is lost"]), worth_writing(["1. ", "Reset password"])
        (['my card is lost'], ['Reset password'])
        >>> worth_writing(["Please do not:", " 1) ", "shout at night"])
        ['shout at night']
    """
    if len(sentences) == 1:
        return list(sentences)
    words = [0 if MARKER.fullmatch(one) else count_words(one) for one in sentences]
    for i, (one, behind) in enumerate(pairwise(sentences)):
        leads = FIRST_ITEM.fullmatch(behind) and (one[-1].isalnum() or one[-1] == ":")
        if leads and max(words[i + 1 :]) >= LEAST:  # no sentence, but the beginning of one
            words[i] = 0
    least = min(LEAST, max(2, *words))
    return [one for one, count in zip(sentences, words, strict=True) if count >= least]


def cut_signs(sentence: str) -> tuple[str, str, str]:
    """Strip white space, emoji, emoticons, markup and quotation marks from a sentence's ends.

    If it has nothing else, only white space is stripped.

    Returns:
        What comes before the sentence, the sentence, and what comes after it.

    Example:
        >>> cut_signs("I love it! \N{GRINNING FACE} "), cut_signs("\N{GRINNING FACE}")
        (('', 'I love it!', ' \N{GRINNING FACE} '), ('', '\N{GRINNING FACE}', ''))
        >>> cut_signs("<li>**Is it *new*?**</li>"), cut_signs("**Note:** it is")
        (('<li>', '**Is it *new*?**', '</li>'), ('', '**Note:** it is', ''))
        >>> cut_signs("// Is it new?"), cut_signs("/* Is it new? */")
        (('// ', 'Is it new?', ''), ('/* ', 'Is it new?', ' */'))
        >>> cut_signs('"Is it new?"'), cut_signs('"Is it new?" he said.')
        (('"', 'Is it new?', '"'), ('', '"Is it new?" he said.', ''))
    """
    before, _, core, behind = CORE.fullmatch(sentence).groups()  # type: ignore[union-attr]
    if core.strip():
        return before, core, behind
    bare = sentence.strip()
    at = sentence.find(bare)
    return sentence[:at], bare, sentence[at + len(bare) :]


def leave_signs_out(text: str) -> str:
    """Replace white space and emoji with a blank, unless there is nothing else.

    Example:
        >>> leave_signs_out("Late! \N{GRINNING FACE} You?"), leave_signs_out("\N{GRINNING FACE}")
        ('Late! You?', '\N{GRINNING FACE}')
    """
    return SIGNS.sub(" ", text).strip() or text


def end_as(sentence: str, source: str) -> str:
    """End a sentence with the mark that another ends with, if it has none.

    Example:
        >>> end_as("my account is locked", "I cannot log in."), end_as("what now?", "What now.")
        ('my account is locked.', 'what now?')
    """
    unended = not is_mark(sentence[-1:]) and is_mark(source[-1:])
    return sentence + source[-1] if unended else sentence
