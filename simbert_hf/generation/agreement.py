"""Agreement: English words that do not fit those beside them, as "they was", "an another".

Small models write such at times: of the five best paraphrases of 240 sentences of Tatoeba 1 in 80.
Of 668,293 sentences that people wrote (Tatoeba and Wikipedia) 94 have what is taken for one, as in
"a day without you is".
"""

from __future__ import annotations

import re

SINGULAR = "was|is|has|does|wasn['’]t|isn['’]t|hasn['’]t|doesn['’]t"
WISHED = "".join(rf"(?<!\b{word} )" for word in "if as though wish that unless than and or".split())
ALONE = r"(?<!\band )(?<!\bor )"
SENSE = "(?:look|feel|sound|taste|smell)"
END = r"(?=\W*$| in\b| at\b| today\b)"
SLIPS = {
    kind: re.compile(pattern, re.IGNORECASE)
    for kind, pattern in {
        "they was": rf"(?<!\bof )\b(?:they|we) (?:{SINGULAR})\b|\byou (?:{SINGULAR}|am)\b",
        "I is": rf"{ALONE}\bi (?:is|are|has|does|isn['’]t|aren['’]t|hasn['’]t|doesn['’]t)\b",
        "I were": rf"{WISHED}\bi were\b",
        "it are": rf"{ALONE}\b(?:he|she|it) (?:are|aren['’]t)\b",
        "has they": r"\b(?:does|doesn['’]t|has|hasn['’]t) (?:i|you|we|they)\b",
        "did he has": r"\b(?:do|does|did|can|could|will|would|should|must)(?:n['’]t)? "
        r"(?:i|you|he|she|we|they) (?:was|were|has|had|is|are|am)\b",
        "an another": r"\b(?:an?|the) (?:an|the|another)\b",
        "how is it like": r"\bhow(?:['’]s| is| are| was| were) (?:\w+ ){1,4}like\b" + END,
        "how does it be": rf"\bhow (?:do|does|did) (?:\w+ ){{1,2}}(?:be|like in|{SENSE} like)\b",
        "what does it like": r"\bwhat (?:does|did) (?:it|(?:the|this|that|my|your|our)"
        rf"(?: (?!{SENSE})\w+){{1,2}}) like\b{END}",
    }.items()
}


def slips_of(text: str) -> set[str]:
    """Name the kinds of slips that a text has.

    Example:
        >>> sorted(slips_of("We was late. How has you been? Did she has it? I were in."))
        ['I were', 'did he has', 'has they', 'they was']
        >>> slips_of("If I were you and it has to be, does she have it? One of us is.")
        set()
    """
    return {kind for kind, slip in SLIPS.items() if slip.search(text)}
