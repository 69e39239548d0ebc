"""Agreement: English words that do not fit those beside them, as "they was", "an another".

Small models write such at times: of the five best paraphrases of 240 sentences of Tatoeba 1 in 120.
Of 668,293 sentences that people wrote (Tatoeba and Wikipedia) 95 have what is taken for one, as in
"a day without you is".
"""

from __future__ import annotations

import re

SINGULAR = "was|is|has|does|wasn['’]t|isn['’]t|hasn['’]t|doesn['’]t"
WISHED = "".join(rf"(?<!\b{word} )" for word in "if as though wish that unless than and or".split())
SENSE = "(?:look|feel|sound|taste|smell)"
SLIP = re.compile(
    rf"(?<!\bof )\b(?:they|we) (?:{SINGULAR})\b"
    rf"|\byou (?:{SINGULAR}|am)\b"
    r"|(?<!\band )(?<!\bor )\bi (?:is|are|has|does|isn['’]t|aren['’]t|hasn['’]t|doesn['’]t)\b"
    rf"|{WISHED}\bi were\b"
    r"|(?<!\band )(?<!\bor )\b(?:he|she|it) (?:are|aren['’]t)\b"
    r"|\b(?:does|doesn['’]t|has|hasn['’]t) (?:i|you|we|they)\b"
    r"|\b(?:do|does|did|can|could|will|would|should|must)(?:n['’]t)? (?:i|you|he|she|we|they) "
    r"(?:was|were|has|had|is|are|am)\b"
    r"|\b(?:an?|the) (?:an|the|another)\b"
    r"|\bhow(?:['’]s| is| are| was| were) (?:\w+ ){1,4}like\b(?! to\b)"
    rf"|\bhow (?:do|does|did) (?:\w+ ){{1,2}}(?:be|like in|{SENSE} like)\b"
    rf"|\bwhat (?:does|did) (?:it|(?:the|this|that|my|your|our)(?: (?!{SENSE})\w+){{1,2}}) like\b",
    re.IGNORECASE,
)


def slips_of(text: str) -> set[str]:
    """Find pronouns with verbs that do not agree, two articles, and "how is it like".

    Example:
        >>> sorted(slips_of("They was late. How has you been? Did he has it? I were in."))
        ['did he has', 'has you', 'i were', 'they was']
        >>> slips_of("If I were you and it has to be, does she have it? One of us is.")
        set()
    """
    return {found.lower() for found in SLIP.findall(text)}
