"""Read bert4keras' vocabularies, and make a fast tokenizer that gives the same token ids."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
LONGEST_WORD = 200  # characters; longer ones are unknown
# Chinese characters, as BERT counts them.
CJK = re.compile(
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0002a6df\U0002a700-\U0002ceaf\U0002f800-\U0002fa1f]"
)


def read_vocabulary(path: Path) -> list[str]:
    """Read a ``vocab.txt`` or ``dict.txt``: a token a line, up to the first space.

    Raises:
        OSError: If there is no such file.
        ValueError: If it is not UTF-8, names a token twice, or lacks a special one.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").rstrip("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error}); save it as UTF-8.") from error
    tokens = [line.split()[0] if line.strip() else "" for line in lines]
    first: dict[str, int] = {}
    for i, token in enumerate(tokens):
        if first.setdefault(token, i) != i:
            raise ValueError(
                f"{path}: lines {first[token] + 1} and {i + 1} are both {token!r}; each token "
                "needs one line of its own."
            )
    missing = [token for token in SPECIALS if token not in first]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}; it is not a BERT vocabulary.")
    return tokens


def simplify(tokens: Sequence[str]) -> list[str]:
    """Reduce a vocabulary as ``load_vocab(..., simplified=True)`` does, specials to the front.

    Longer tokens with Chinese characters or punctuation in them, which Chinese text never yields,
    are left out.

    Example:
        >>> simplify(["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "我", "##我", "go", "##go"])
        ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '我', 'go', '##go']
    """
    rest = [token for token in tokens if token not in SPECIALS]
    return [*SPECIALS, *(token for token in rest if len(token) == 1 or is_plain(token))]


def is_plain(token: str) -> bool:
    """Whether a token, apart from ``##``, has neither Chinese characters nor punctuation."""
    return not (CJK.search(token) or any(map(is_punctuation, token.removeprefix("##"))))


def is_punctuation(char: str) -> bool:
    """Whether BERT treats a character as punctuation: all ASCII marks count."""
    is_ascii_mark = char.isascii() and char.isprintable() and not char.isalnum() and char != " "
    return is_ascii_mark or unicodedata.category(char).startswith("P")


def build_tokenizer(
    tokens: Sequence[str], max_length: int, *, lower_case: bool = True
) -> PreTrainedTokenizerBase:
    """Make BERT's tokenizer from a vocabulary, whatever the ids of its special tokens.

    Args:
        tokens: In the order of their ids.
        max_length: Longest row in tokens.
        lower_case: Whether text is lower-cased and loses its accents.
    """
    ids = {token: i for i, token in enumerate(tokens)}
    model = models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=lower_case, strip_accents=lower_case
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    ends = [(token, ids[token]) for token in ("[SEP]", "[CLS]")]
    tokenizer.post_processor = processors.BertProcessing(*ends)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]" if "[MASK]" in ids else None,  # the released vocabulary has none
        model_max_length=max_length,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
