"""Link Grammar (Sleator & Temperley 1993), a parser of English: Debian's python3-link-grammar."""

from __future__ import annotations

import re
import sys

DEBIAN = "/usr/lib/python3/dist-packages"  # where the package manager puts it


class Parser:
    """Tells whether a sentence can be read without leaving a word out.

    Raises:
        ModuleNotFoundError: If the parser is not installed.
    """

    def __init__(self) -> None:
        if DEBIAN not in sys.path:
            sys.path.append(DEBIAN)
        from linkgrammar import Dictionary, LG_TimerExhausted, ParseOptions, Sentence

        options = ParseOptions(
            verbosity=0, min_null_count=0, max_null_count=10, linkage_limit=5, max_parse_time=1
        )
        dictionary = Dictionary("en")
        self.sentence = lambda text: Sentence(text, dictionary, options)
        self.timeout, self.known = LG_TimerExhausted, dict[str, bool]()

    def __call__(self, text: str) -> bool:
        """Read each text once, with capitals where English has them; none that takes a second."""
        if text not in self.known:
            spelled = re.sub(r"\bi\b(?=['\s?.]|$)", "I", text)
            sentence = self.sentence(spelled[:1].upper() + spelled[1:])
            try:
                sentence.parse()
                self.known[text] = bool(sentence.null_count() == 0)
            except self.timeout:
                self.known[text] = False
        return self.known[text]
