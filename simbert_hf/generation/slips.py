"""Slips: words that do not fit their neighbours, such as "they was", "an another" or "怎么走吗".

Of 668,293 English sentences that people wrote (Tatoeba and Wikipedia), 298 have what is taken for
one, as in "a day without you is", and 2,400 a repeated word ("had had"), two marks in a row or a
name such as "Uranus's"; of some 48,000 Chinese questions (LCQMC and AFQMC), 63 have one.
"""

from __future__ import annotations

import re

SINGULAR = "was|is|has|does|wasn['’]t|isn['’]t|hasn['’]t|doesn['’]t"
WISHED = "".join(rf"(?<!\b{word} )" for word in "if as though wish that unless than and or".split())
ALONE = r"(?<!\band )(?<!\bor )"
UNHELPED = "".join(
    rf"(?<!\b{word} )" for word in "have had has haven't hadn't hasn't ve d s never not".split()
)
MODAL = "(?:can|could|may|might|must|shall|should|will|would)"
SENSE = "(?:look|feel|sound|taste|smell)"
END = r"(?=\W*$| in\b| at\b| today\b)"
COMPARED = (
    "short|tall|cheap|old|young|fast|slow|health?i|larg|small|happi|easi|nic|hard|long|high|low|"
    "strong|weak|warm|cold|rich|poor|bigg|hott|wid|clos|near|lat|earli|great|few"
)
COMPARING = (
    r"\b(?:more|less|fewer|better|worse|rather|other|else|further|farther|different\w*|sooner"
    r"|elder|prefer\w*|hardly|\w{2,}er)\b.*\bthan"
)
SLIPS = {
    kind: re.compile(pattern, re.IGNORECASE)
    for kind, pattern in {
        "they was": rf"(?<!\bof )\b(?:they|we|you) (?:{SINGULAR}|am)\b",
        "I is": rf"{ALONE}\bi (?:is|are|has|does|isn['’]t|aren['’]t|hasn['’]t|doesn['’]t)\b",
        "I were": rf"{WISHED}\bi were\b",
        "it are": rf"{ALONE}\b(?:he|she|it) (?:are|aren['’]t)\b",
        "has they": r"\b(?:does|doesn['’]t|has|hasn['’]t) (?:i|you|we|they)\b",
        "did he has": r"\b(?:do|does|did|can|could|will|would|should|must)(?:n['’]t)? "
        r"(?:i|you|he|she|we|they) (?:was|were|has|had|is|are|am)\b",
        "an another": r"\b(?:an?|the) (?:an|the|another)\b|\ban other\b|\ba one\b(?!-)"
        r"|^how an? ",
        "how is it like": r"\bhow(?:['’]s| is| are| was| were) (?:\w+ ){1,4}like\b" + END,
        "how does it be": rf"\bhow (?:do|does|did) (?:\w+ ){{1,2}}(?:be|like in|{SENSE} like)\b",
        "don't he": r"(?:^|[.,?!] |\b(?:how|what|when|where|why) )(?:do|have)(?:n['’]t)? (?:s?he)\b"
        r"|\b(?:don|haven)['’]t it\b",
        "I been": rf"{UNHELPED}\b(?:i|you|we|they|he|she|it) been\b",
        "do you've": r"\b(?:do|does|did)(?:n['’]t)? (?:i|you|we|they|s?he|it)['’](?:ve|re|s|d)\b",
        "we'm": r"\b(?!i['’]|ma['’])[a-z]+['’]m\b",
        "aren": r"\b(?:aren|isn|doesn|didn|wasn|weren|couldn|wouldn|shouldn|hasn)\b(?!['’])",
        "cats's": r"\b[a-z]{2,}[a-rt-z]s['’]s\b|\bthis['’]s\b",
        "cat ' s": r"\s['’](?=\s|$)",
        "she've": r"\b(?:s?he|it|that|this)['’]ve\b(?! (?:to|an?|the)\b)",
        "was you": r"(?:^|[.,?!] |\b(?:how|what|when|where|why|who|which) )"
        r"(?:(?:was|is|am)(?:n['’]t)? (?:you|they|we)\b(?!['’\w-])|(?:are|were) (?:he|she|it)\b)",
        "instead than": r"\binstead than\b|\brather of\b",
        "more shorter": rf"\b(?:more|less) (?:{COMPARED})er\b|\bmore better\b",
        "as big than": rf"^(?!.*{COMPARING}).*\bthan\b",
        "between X to Y": r"\bbetween (?:the )?\w+(?: \d+)? to \w+",
        "please not": r"^please not\b",
        "'d had": r"['’]d had (?:\w+ed|been|done|gone|known|seen|left)\b",
        "ought be": r"\bought (?!to\b|not\b|never\b|(?:i|we|you|s?he|it|they) to\b)\w+",
        "do you supposed": r"\b(?:do|does|did) (?:i|you|we|they|s?he|it) "
        r"(?:supposed|able|going|sure|allowed)\b",
        "in within": r"\b(?:in within|(?:on|by) online|in inside|at at|in near|of off)\b",
        "does it be": r"\b(?:does|do|did)(?:n['’]t)? (?:it|this|that|s?he"
        rf"|(?:the|this|that|my|your|our|an?)(?: (?!to\b|{MODAL}\b)\w+){{1,3}}) be\b",
        "it don't being": r"\b(?:does|do|did)(?:n['’]t| not) (?!bring|sing|ring|sting|swing|spring"
        r"|cling|nothing|anything|something|everything|shred|embed)[a-z]{2,}(?:ing|[^e\W]ed)\b",
        "is been": r"\b(?:is|are|was|were)(?: (?:that|it|this|s?he|they|you|i|we|the \w+))? been\b",
        "we re": r"(?<!['’\w-])(?-i:ve|ll|re|un|dis)(?=[ ,.])",
        "would'd": r"\b(?:would|could|should|will|had|have|has|might|must|can|did|do)"
        r"['’](?:d|ll|s|re)\b",
        ",,": r",\s*[,.;:!?]",
        "吗吗": r"([吗呢么嘛])\1|(?<!目)的的(?!确|士)|(?<!不)了了(?!解)",
        "如何怎么": "(?:怎么|如何|怎样|为什么|什么|多少|哪里|多久)"
        "(?:怎么(?!样)|如何|怎样|为什么|多少|哪里|多久)",
        "怎么吗": "^(?!.*(?:知道|告诉|想|听|教|帮|说|查|明白|了解|懂|清楚|记得|都|也)).*"
        r"(?:怎么|怎样|如何|为什么|是什么|多少|(.)[不没]\1)[^，。？！,?!]*吗[？?]?$",
        "to to": r"\b(?!(?:had|that|so|very|bye|nous|vous) )([a-z]+(?:['’]t)?) \1\b"
        r"|\b(mrs?|dr|st)\. \2\b",
    }.items()
}


def slips_of(text: str) -> set[str]:
    """Return the kinds of slips in a text.

    Example:
        >>> sorted(slips_of("We was late. How has you been? Did she has it? I were in."))
        ['I were', 'did he has', 'has they', 'they was']
        >>> slips_of("If I were you and it has to be, does she have it? One of us is.")
        set()
    """
    return {kind for kind, slip in SLIPS.items() if slip.search(text)}
