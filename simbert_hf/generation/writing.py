"""Write sentences for each text: all different, spelled like the text and true to its facts."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from simbert_hf.generation.alterations import alters, misplaces_be, puts_in
from simbert_hf.generation.chinese import changes, doubled_as
from simbert_hf.generation.coining import COINED, hinder_coining, pieces_of_words
from simbert_hf.generation.copying import Copying, inside_words, padded
from simbert_hf.generation.decoder import BertDecoder
from simbert_hf.generation.excluding import exclude, excluded_tokens
from simbert_hf.generation.facts import (
    SURE,
    exchanges,
    facts_of,
    is_balanced,
    is_chinese,
    loses_bounds,
    loses_denials,
    names_of,
    repeats_facts,
)
from simbert_hf.generation.languages import foreign_language, join_thousands
from simbert_hf.generation.numerals import spelled_as
from simbert_hf.generation.opposites import opposes
from simbert_hf.generation.order import misorders
from simbert_hf.generation.placeholders import CHAIN, VARIABLE, Held, hold_words
from simbert_hf.generation.repeats import ban_repeats, kinds_of_tokens
from simbert_hf.generation.search import Decoder, Hypotheses, Restraint, SearchSettings, search
from simbert_hf.generation.slips import slips_of, stumbles
from simbert_hf.generation.small_changes import (
    adds_sentence,
    changes_whose,
    coins_word,
    is_incomplete,
    says_twice,
    swaps_word,
)
from simbert_hf.generation.spelling import Spelling, known_names
from simbert_hf.generation.units import changes_units, part_units
from simbert_hf.modeling.cpu_layers import quick_layers
from simbert_hf.modeling.embedding import evaluating
from simbert_hf.modeling.simbert import SimBert
from simbert_hf.rows import cuts_known, unread, warn_of_cuts
from simbert_hf.utils.text import compose, counted, is_wordpiece, normalize_text, words_of

if TYPE_CHECKING:
    from simbert_hf.generation.synonyms import Paraphrase
    from simbert_hf.onnx_export import OnnxSimBert

    Writer: TypeAlias = SimBert | OnnxSimBert

DOTTED = re.compile(r"\b(?:[A-Z]\.){2,}")  # "U.S.", of which models make "us" or "u's"
CURRENCY = re.compile("人民币|日元")
QUOTED = re.compile('["“]([^"“”]*)["”]')
logger = logging.getLogger(__name__)
UNKNOWN_ABROAD = SURE - {"have", "my"}  # Danish, Polish
RULES = (  # for English
    swaps_word,
    changes_whose,
    alters,
    misorders,
    puts_in,
    misplaces_be,
    opposes,
    is_incomplete,
)
MAX_ROWS = 1024  # hypotheses in a batch; a text with more has a batch of its own


class Draft(NamedTuple):
    """A written sentence, not ranked yet.

    Attributes:
        text: The sentence.
        log_prob: As in :class:`~simbert_hf.generation.synonyms.Paraphrase`.
    """

    text: str
    log_prob: float


Written = TypeVar("Written", bound="Draft | Paraphrase")


def write(model: SimBert, texts: Sequence[str], settings: SearchSettings) -> list[list[Draft]]:
    """Write different sentences for each text, excluding the text itself.

    Texts of similar length share a batch, which in float32 changes no more than rounding does.

    Returns:
        At most n drafts for each text; none if the model knows none of its tokens.

    Raises:
        TypeError: If the texts are not several strings.
        ValueError: If the model has no LM head or no room for ``max_new_tokens``.
    """
    if isinstance(texts, str):
        raise TypeError(f"texts is the string {texts!r:.40}: give a list.")
    check_can_write(model)
    with evaluating(model), quick_layers(model):
        return write_by(partial(BertDecoder, model), model, texts, settings)


def check_can_write(model: SimBert) -> None:
    """Raise a ValueError if the model has no LM head."""
    if not model.has_lm_head:
        raise ValueError(
            "This model only embeds: its checkpoint has no LM head to write with. Train one with "
            "scripts/train_simbert.py, or load a checkpoint that has one."
        )


@torch.no_grad()
def write_by(
    make_decoder: Callable[[list[list[int]], int, Tensor], Decoder],
    model: Writer,
    texts: Sequence[str],
    settings: SearchSettings,
) -> list[list[Draft]]:
    """Write like :func:`write`, with any decoder.

    Args:
        make_decoder: (source rows, ``max_new_tokens``, banned ids) -> decoder for the search.
        model: Provides the tokenizer and the limits.
        texts: Texts to paraphrase.
        settings: How to search.

    Raises:
        ValueError: If the model has no room for ``max_new_tokens``.
    """
    tokenizer = model.rows.tokenizer
    if not settings.copying:
        return write_held(make_decoder, model, [Held(text, {}) for text in texts], settings)
    held = hold_words(tokenizer, texts)
    drafts = write_held(make_decoder, model, held, settings)
    chains = [CHAIN.findall(text) for text in texts]
    without = [
        i
        for i, row in enumerate(drafts)
        if held[i].says_something()
        and not any(all(chain in draft.text for chain in chains[i]) for draft in row)
    ]
    more = hold_words(tokenizer, [texts[i] for i in without], figures=True)
    again = {i: one for i, one in zip(without, more, strict=True) if one != held[i]}
    if again:
        rows = write_held(make_decoder, model, [*again.values()], settings)
        for i, row in zip(again, rows, strict=True):
            drafts[i] = row
    return drafts


def write_held(
    make_decoder: Callable[[list[list[int]], int, Tensor], Decoder],
    model: Writer,
    held: Sequence[Held],
    settings: SearchSettings,
) -> list[list[Draft]]:
    """Write, spell and restore sentences; unless ``copying`` is 0, keep those with all facts."""
    tokenizer, texts = model.rows.tokenizer, [one.text for one in held]
    rows = sources_of(model, texts, settings.max_new_tokens)
    warn_of_length(rows, settings.max_new_tokens)
    warn_of_unknown(tokenizer, texts, rows)
    banned = banned_tokens(model)
    tokenize = tokenizer.tokenize if is_wordpiece(tokenizer) else str.split
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    size = max(1, MAX_ROWS // settings.n)
    drafts: list[list[Draft]] = [[] for _ in rows]
    for first in range(0, len(order), size):
        batch = order[first : first + size]
        some = [rows[i] for i in batch]
        decoder = make_decoder(some, settings.max_new_tokens, banned)
        restraints = make_restraints(decoder, model, [texts[i] for i in batch], some, settings)
        found = search(decoder, settings, model.rows.sep_id, restraints)
        spellings = [Spelling(texts[i], tokenizer) for i in batch]
        for at, tokens, log_prob in unpacked(found, model.rows.sep_id):
            text = spellings[at](tokens)
            if settings.copying:
                text = doubled_as(texts[batch[at]], text)
            drafts[batch[at]].append(Draft(text, log_prob))
        for i, spelling in zip(batch, spellings, strict=True):
            drafts[i] = distinct(drafts[i], [texts[i], spelling(rows[i])])
            if settings.copying:
                whole = restored(drafts[i], held[i])
                source = held[i].restore(texts[i])
                drafts[i] = keep_facts(whole, source, tokenize, repeats=settings.repeats)
    is_read = [{*row[1:-1]} - {tokenizer.unk_token_id} for row in rows]
    return [
        row if known and one.says_something() else []
        for row, known, one in zip(drafts, is_read, held, strict=True)
    ]


def make_restraints(
    decoder: Decoder,
    model: Writer,
    texts: Sequence[str],
    rows: Sequence[list[int]],
    settings: SearchSettings,
) -> list[Restraint]:
    """Make a search copy, exclude and repeat words as the settings say."""
    tokenizer, device = model.rows.tokenizer, model.device
    made: list[Restraint] = []
    ids = padded([row[1:-1] for row in rows]).to(device)
    if settings.copying:
        fed = ids[:, : settings.max_new_tokens]  # as many as can be fed
        inside = padded(inside_words(tokenizer, texts)).to(device)
        made.append(Copying(decoder, fed, inside, settings.copying))
        made.append(partial(exclude, excluded_tokens(tokenizer, texts, rows).to(device)))
        if is_wordpiece(tokenizer):
            pieces, loss = pieces_of_words(tokenizer).to(device), COINED * settings.copying
            made.append(partial(hinder_coining, ids, pieces, loss))
    if not settings.repeats:
        long, letters = kinds_of_tokens(tokenizer, model.config.vocab_size)
        made.append(partial(ban_repeats, ids, long.to(device), letters.to(device)))
    return made


def sources_of(model: Writer, texts: Sequence[str], max_new_tokens: int) -> list[list[int]]:
    """Make a source row of each text, cut to the positions that ``max_new_tokens`` leaves.

    Raises:
        ValueError: If there is no room for ``max_new_tokens``.
    """
    positions = model.config.max_position_embeddings
    limit = positions - max_new_tokens
    if limit < 3:  # [CLS], a token, [SEP]
        raise ValueError(
            f"max_new_tokens={max_new_tokens} is out of range: the model has {positions} "
            "positions, which the text must share."
        )
    if limit >= model.max_length:
        return model.rows.sources(texts, model.max_length)
    with cuts_known():
        rows = model.rows.sources(texts, limit + 1)
    if max(map(len, rows), default=0) > limit:
        warn_of_cuts(
            limit,
            f"split them, or lower max_new_tokens={max_new_tokens}, which leaves {limit} of the "
            f"model's {positions} positions",
        )
    return [[*row[:-1][: limit - 1], row[-1]] for row in rows]


def banned_tokens(model: Writer) -> Tensor:
    """Return ids never to write: special tokens but the separator, unused and unnamed ones."""
    tokenizer = model.rows.tokenizer
    unused = map(tokenizer.convert_tokens_to_ids, (f"[unused{i}]" for i in range(1000)))
    unnamed = range(len(tokenizer), model.config.vocab_size)
    banned = {*tokenizer.all_special_ids, *unused, *unnamed} - {model.rows.sep_id, None}
    return torch.tensor(sorted(banned), dtype=torch.long, device=model.device)


def unpacked(found: Hypotheses, sep_id: int) -> Iterator[tuple[int, list[int], float]]:
    """Yield each one's source, tokens and mean log-probability per token; see ``Draft``."""
    written = found.tokens != sep_id  # (R, T)
    lengths = (written.sum(dim=1) + 1).clamp(max=written.shape[1])
    means = (found.log_prob / lengths).tolist()
    rows = zip(found.tokens.tolist(), lengths.tolist(), strict=True)
    tokens = (row[:length] for row, length in rows)
    yield from zip(found.source.tolist(), tokens, means, strict=True)


def distinct(drafts: Sequence[Written], unwanted: Sequence[str]) -> list[Written]:
    """Keep the likeliest of equal sentences, and none that is unwanted or empty.

    Example:
        >>> distinct([Draft("Go", -2.0), Draft("go!", -1.0), Draft("stop", -3.0)], ["Stop."])
        [Draft(text='go!', log_prob=-1.0)]
    """
    best: dict[str, Written | None] = dict.fromkeys(map(normalize_text, ["", *unwanted]))
    for draft in sorted(drafts, key=lambda draft: -draft.log_prob):
        best.setdefault(normalize_text(draft.text), draft)
    return [draft for draft in best.values() if draft is not None]


def restored(drafts: Sequence[Draft], held: Held) -> list[Draft]:
    """Put the words back in place of the placeholders, in drafts that have all of them."""
    return [
        draft._replace(text=held.restore(draft.text)) for draft in drafts if held.is_in(draft.text)
    ]


def keep_facts(
    drafts: Sequence[Draft],
    text: str,
    tokenize: Callable[[str], Sequence[str]] = str.split,
    *,
    repeats: bool = True,
) -> list[Draft]:
    """Drop drafts with other facts, repeated numbers or exchanged words.

    Drafts of a Chinese text must keep its words in Latin letters, and add none; those of other
    languages may add no word that is surely English. As long as others are left, also drop drafts
    that have an unpaired mark or other quotations, leave out a variable or "U.S.", or add a
    sentence; unless the text is in another language than English, also those that have a slip of
    grammar; leave out a possible name or one of several negations; change a bound, name somebody
    else, coin, swap, repeat, put in or alter a word, make two change places, use the opposite of
    one, misplace "be", or leave out or add much. At the level DEBUG, the reason why a draft is
    dropped is logged.

    Args:
        drafts: Sentences.
        text: What they paraphrase.
        tokenize: Splits words that are not in a WordPiece vocabulary; by default, all are in it.
        repeats: Allow words more often than in the text.

    Example:
        >>> keep_facts([Draft("send $7 now", -1.0), Draft("send $5 now", -2.0)], "I send $5")
        [Draft(text='send $5 now', log_prob=-2.0)]
    """
    chinese, foreign = is_chinese(text), bool(foreign_language(text))
    plain_form = unify if chinese else join_thousands if foreign else part_units
    text = plain_form(text)
    facts, words = facts_of(text), words_of(text)
    slips, names = slips_of(text), names_of(text)
    quotations = quotations_of(text)
    variables = [found[0] for found in VARIABLE.finditer(text)] + DOTTED.findall(text)

    def read_else(other: str) -> set[str]:
        """``changes`` reads 元 and 块."""
        return {"¥"} if chinese and not CURRENCY.search(text + other) else set()

    lies: dict[str, Callable[[str], bool]] = {
        "other facts": lambda other: bool((facts_of(other) ^ facts) - read_else(other)),
        "exchanged words": lambda other: exchanges(text, other),
        "other units": lambda other: not (chinese or foreign) and changes_units(text, other),
        "repeated or lost figures": lambda other: repeats_facts(text, other),
        "other Latin words": lambda other: chinese and words_of(other) != words,
        "English words": lambda other: (
            foreign and not UNKNOWN_ABROAD.isdisjoint(words_of(other) - words)
        ),
    }
    faults: dict[str, Callable[[str], bool]] = {
        "an unpaired mark": lambda other: is_balanced(text) and not is_balanced(other),
        "other quotations": lambda other: quotations_of(other) != quotations,
        "a lost variable": lambda other: any(variable not in other for variable in variables),
        "a change of Chinese": lambda other: chinese and changes(text, other),
        "a Chinese stumble": lambda other: chinese and stumbles(text, other),
        "an added sentence": lambda other: adds_sentence(text, other),
    }
    if not foreign:
        faults |= {
            "a slip": lambda other: not slips_of(other) <= slips,
            "a lost name": lambda other: any(
                name not in other.lower().replace(".", "")  # U.S.
                for name in names
            ),
            "an added name": lambda other: bool((words_of(other) - words) & known_names()),
            "a lost negation": lambda other: loses_denials(text, other),
            "a lost bound": lambda other: loses_bounds(text, other),
            "a coined word": lambda other: coins_word(text, other, tokenize),
            "a word said twice": lambda other: not repeats and says_twice(text, other),
        } | {rule.__name__: partial(rule, text) for rule in RULES}
    kept = [(plain_form(draft.text), draft) for draft in drafts]
    if chinese:
        kept = [(spelled_as(text, other), draft) for other, draft in kept]
    for why, faulty in (lies | faults).items():
        good: list[tuple[str, Draft]] = []
        bad: list[tuple[str, Draft]] = []
        for other, draft in kept:
            (bad if faulty(other) else good).append((other, draft))
        if good or why in lies:
            kept = good
            for _, draft in bad:
                logger.debug("Dropped %r: %s.", draft.text, why)
    return [draft for _, draft in kept]


def unify(text: str) -> str:
    """Unify compatibility characters of a Chinese text: wide figures and letters, "㎡".

    Many tokenizers do so; here, a wide comma does not join numbers.

    Example:
        >>> unify("120㎡，2路")
        '120m2\uff0c2路'
    """
    return "\uff0c".join(compose(part, "NFKC") for part in text.split("\uff0c"))


def quotations_of(text: str) -> set[str]:
    """Find what is quoted in double quotation marks."""
    return {quote.strip(" ,.;:!") for quote in QUOTED.findall(text.lower())}


def warn_of_unknown(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], rows: Sequence[Sequence[int]]
) -> None:
    """Warn of texts with a word or sign that no paraphrase can have."""
    foreign = set(unread(tokenizer, texts))  # the model's encode warns of these
    pairs = zip(texts, rows, strict=True)
    lost = sum(tokenizer.unk_token_id in row and text not in foreign for text, row in pairs)
    if lost:  # no text is quoted, as a server logs warnings
        found = f"{lost:,} of {counted(len(texts), 'text')}"
        warnings.warn(
            f"The model has no token for a word or sign in {found}: paraphrases lack it, and may "
            "have another in its place.",
            stacklevel=2,
        )


def warn_of_length(rows: Sequence[Sequence[int]], max_new_tokens: int) -> None:
    """Warn of sentences so much longer than their paraphrases may be that these leave much out."""
    longest = max(map(len, rows), default=2) - 2  # without [CLS] and [SEP]
    if 2 * longest > 3 * max_new_tokens:
        warnings.warn(
            f"Paraphrases of at most max_new_tokens={max_new_tokens} tokens leave much out of a "
            f"sentence of {longest}. Split it into shorter ones, or raise max_new_tokens if the "
            "model was trained on such long ones.",
            stacklevel=2,
        )
