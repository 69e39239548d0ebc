"""Search for the sentences a model would write: one loop, three ways to choose the next tokens.

Every hypothesis is a *different* prefix. Sampling keeps the number of its n samples that share a
prefix: equal prefixes have equal distributions, so drawing ``count`` tokens from one row is exactly
drawing one token from each of ``count`` equal rows, for a fraction of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor
from transformers.generation import TemperatureLogitsWarper, TopPLogitsWarper

from simbert_hf.utils.checks import check_choice, check_count
from simbert_hf.utils.devices import with_float64


@dataclass(frozen=True)
class SearchSettings:
    """How to search: the arguments of :func:`simbert_hf.generation.synonyms.gen_synonyms`.

    Attributes:
        max_new_tokens: Longest sentence in tokens, with its [SEP].
        copying: As in ``gen_synonyms``; 0 leaves the logits unchanged.

    Raises:
        ValueError: If a value is out of range.

    Example:
        >>> from simbert_hf import DEFAULT_MODEL, SimBert
        >>> from simbert_hf.generation.writing import write
        >>> model = SimBert.from_pretrained(DEFAULT_MODEL)
        >>> drafts = write(model, ["where is my card?"], SearchSettings(n=2))[0]
        >>> [draft.text for draft in drafts]  # not ranked
        ['where is my card located?', "where's my card located?"]
    """

    n: int = 100
    strategy: str = "beam"
    top_k: int | None = 5
    top_p: float | None = None
    temperature: float = 1.0
    max_new_tokens: int = 32
    copying: float = 1.0
    repeats: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        check_choice("strategy", self.strategy, STRATEGIES)
        check_count("n", self.n)
        check_count("max_new_tokens", self.max_new_tokens)
        is_seed = isinstance(self.seed, Integral) and -(2**63) <= self.seed < 2**64
        if self.seed is not None and not is_seed:
            raise ValueError(
                f"seed={self.seed!r} is out of range: it must be a 64-bit integer or None."
            )
        if self.top_k is not None:
            check_count("top_k", self.top_k, ", or None for all tokens")
        if self.top_p is not None and not (isinstance(self.top_p, Real) and 0 < self.top_p <= 1):
            raise ValueError(
                f"top_p={self.top_p!r} is out of range: it must be a number above 0 and at most 1."
            )
        if not (isinstance(self.copying, Real) and 0 <= self.copying < float("inf")):
            raise ValueError(f"copying={self.copying!r} is out of range: it must be 0 or more.")
        if not (isinstance(self.temperature, Real) and 0 < self.temperature < float("inf")):
            raise ValueError(
                f"temperature={self.temperature!r} is out of range: it must be a number above 0 "
                "(top_k=1 takes the likeliest token every time)."
            )
        if self.strategy == "beam" and (self.temperature != 1 or self.top_p is not None):
            raise ValueError(
                "temperature and top_p affect only sampling, and strategy='beam' draws nothing: "
                "leave them out, or use strategy='sample'."
            )


@dataclass(frozen=True)
class Hypotheses:
    """Different sentences or beginnings of sentences, R of them, sorted by source while unfinished.

    Attributes:
        source: Which source each one paraphrases. Shape: (R,).
        tokens: New tokens, then [SEP] to the end. Shape: (R, T).
        log_prob: The decoder's log-probability of the tokens. Shape: (R,), float64.
        path: Their log-probability under the distribution drawn from. Shape: (R,), float64.
        score: What the strategy ranks by: how many of the samples share the prefix, or the
            (perturbed) log-probability. Shape: (R,), float64.
    """

    source: Tensor
    tokens: Tensor
    log_prob: Tensor
    path: Tensor
    score: Tensor

    def take(self, index: Tensor) -> Self:
        """Pick rows by indices or by a bool mask."""
        return type(self)(*(getattr(self, field.name)[index] for field in fields(self)))

    def join(self, other: Self) -> Self:
        """Put the rows of ``other`` below."""
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return type(self)(*(torch.cat(pair) for pair in pairs))


@dataclass(frozen=True)
class NextTokens:
    """The K tokens that may follow each of R prefixes.

    Attributes:
        ids: Ascending in each row, so that near ties cannot swap places. Shape: (R, K).
        log_prob: Under the model. Shape: (R, K), float64.
        path: Under the distribution drawn from; -inf where never drawn. Shape: (R, K), float64.
    """

    ids: Tensor
    log_prob: Tensor
    path: Tensor


class Noise:
    """Uniform numbers, drawn on the CPU so that a seed means the same on every device.

    With a seed, every source draws the same numbers, whatever its place in a batch; without one,
    they are independent.
    """

    def __init__(self, seed: int | None, n: int) -> None:
        self.n = n
        self.shared = seed is not None
        self.generator = torch.Generator("cpu")
        if seed is None:
            self.generator.seed()
        else:
            self.generator.manual_seed(int(seed))

    def __call__(self, places: Tensor, *width: int) -> Tensor:
        """Draw for the rows at places 0 .. n - 1 of their sources; shape: (len(places), *width)."""
        rows = self.n if self.shared else len(places)
        drawn = torch.rand(
            rows, *width, dtype=torch.float64, generator=self.generator, device="cpu"
        ).to(places.device)
        return drawn[places] if self.shared else drawn


class Decoder(Protocol):
    """Computes next-token logits of growing prefixes; ``decoder.BertDecoder`` for a SimBert."""

    def start(self) -> Tensor:
        """Return the logits of each source's first new token, -inf where banned: (S, V)."""

    def step(self, parents: Tensor, sources: Tensor, tokens: Tensor) -> Tensor:
        """Feed one token to each of R prefixes.

        Args:
            parents: The row of the last call's logits that each one continues. Shape: (R,).
            sources: Its source. Shape: (R,).
            tokens: Its newest token. Shape: (R,).

        Returns:
            Logits of the token after it, -inf where banned. Shape: (R, V).
        """

    def read(self, tokens: Tensor) -> Iterator[Tensor]:
        """Feed L tokens to each source after ``start``, and forget them at the end.

        Args:
            tokens: Shape: (S, L).

        Yields:
            Logits after each of them, -inf where banned. Shape: (S, V), L times.
        """


class Prefixes(NamedTuple):
    """Beginnings of sentences: the row of the last logits that each continues, source, tokens."""

    parents: Tensor  # (R,); at first, the sources
    sources: Tensor  # (R,)
    tokens: Tensor  # (R, T)


Restraint = Callable[[Tensor, Prefixes], Tensor]  # logits, (R, V), which it may overwrite -> logits


def search(
    decoder: Decoder, settings: SearchSettings, sep_id: int, restraints: Sequence[Restraint] = ()
) -> Hypotheses:
    """Find up to n different token sequences for each source.

    A sequence that has not ended after ``max_new_tokens`` is kept only if none of its source has.

    Before the next tokens are chosen, the restraints change the logits, one after the other.

    Returns:
        The sentences; in sampling, ``score`` says how often each was drawn.
    """
    score = STRATEGIES[settings.strategy]
    noise = Noise(settings.seed, settings.n)
    logits = decoder.start()  # (S, V)
    live = start(len(logits), settings, sep_id, with_float64(logits[:0]).device)
    done, parents = live.take(live.source < 0), live.source  # none yet
    for step in range(settings.max_new_tokens):
        rows = (parents, live.source, live.tokens[:, :step])
        prefixes = Prefixes(*(tensor.to(logits.device) for tensor in rows))
        for restrain in restraints:
            logits = restrain(logits, prefixes)
        options = next_tokens(with_float64(logits), settings)
        scores = score(live, options, noise)  # (R, K)
        done, live, parents = grow(done, live, options, scores, settings.n, step)
        going = live.tokens[:, step] != sep_id
        done = done.join(live.take(~going))
        live, parents = live.take(going), parents[going]
        if not len(parents) or step == settings.max_new_tokens - 1:
            break
        logits = decoder.step(parents, live.source, live.tokens[:, step])
    return done.join(live.take(~torch.isin(live.source, done.source)))


def start(count: int, settings: SearchSettings, sep_id: int, device: torch.device) -> Hypotheses:
    """Return one empty hypothesis for each of ``count`` sources."""
    zeros = torch.zeros(count, dtype=torch.float64, device=device)
    score = zeros + settings.n if settings.strategy == "sample" else zeros
    tokens = torch.full((count, settings.max_new_tokens), sep_id, device=device)
    return Hypotheses(torch.arange(count, device=device), tokens, zeros, zeros, score)


def next_tokens(logits: Tensor, settings: SearchSettings) -> NextTokens:
    """Choose which tokens may follow, and with which probabilities.

    Args:
        logits: -inf where banned; overwritten. Shape: (R, V).
        settings: How to search.
    """
    plain = settings.strategy == "beam"  # of one prefix, only its n best can be among the n best
    width = min(settings.n if plain else settings.top_k or logits.shape[1], logits.shape[1])
    if width < logits.shape[1]:
        ids = logits.topk(width, sorted=False).indices.sort().values
        values = logits.gather(1, ids)
    else:
        ids = torch.arange(width, device=logits.device).expand_as(logits)
        values = logits.clone()
    best = values.amax(dim=1, keepdim=True)  # of all V, so this is a log-softmax without copies
    total = logits.sub_(best).exp_().sum(dim=1, keepdim=True)
    log_prob = (values - best).double() - total.double().log()
    if plain:
        return NextTokens(ids, log_prob, log_prob)
    temperature = max(float(settings.temperature), 1e-300)  # a quotient by less may overflow
    values = TemperatureLogitsWarper(temperature)(ids, values.double())
    if settings.top_p is not None and settings.top_p < 1:
        values = TopPLogitsWarper(settings.top_p)(ids, values)
    return NextTokens(ids, log_prob, values.log_softmax(dim=1))


def grow(
    done: Hypotheses, live: Hypotheses, options: NextTokens, scores: Tensor, n: int, step: int
) -> tuple[Hypotheses, Hypotheses, Tensor]:
    """Extend the unfinished hypotheses by a token; each source keeps its n best of all.

    Args:
        done: Finished hypotheses, which compete.
        live: Unfinished ones.
        options: Their next tokens, K for each.
        scores: Of each next token; -inf where not chosen. Shape: (R, K), float64.
        n: How many hypotheses a source keeps.
        step: Index of the next token.

    Returns:
        The finished ones kept, the children kept, and the row of ``live`` each child continues.
    """
    parents, choices = (scores > -torch.inf).nonzero(as_tuple=True)
    sources = torch.cat([done.source, live.source[parents]])
    keep = best_of_each(sources, torch.cat([done.score, scores[parents, choices]]), n)
    parents, choices = (index[keep[len(done.source) :]] for index in (parents, choices))
    tokens = live.tokens[parents]
    tokens[:, step] = options.ids[parents, choices]
    children = Hypotheses(
        source=live.source[parents],
        tokens=tokens,
        log_prob=live.log_prob[parents] + options.log_prob[parents, choices],
        path=live.path[parents] + options.path[parents, choices],
        score=scores[parents, choices],
    )
    return done.take(keep[: len(done.source)]), children, parents


def best_of_each(sources: Tensor, scores: Tensor, n: int) -> Tensor:
    """Mark the n highest scores of each source.

    Args:
        sources: Shape: (M,).
        scores: Shape: (M,).
        n: How many to keep.

    Returns:
        Shape: (M,), bool.

    Example:
        >>> best_of_each(torch.tensor([1, 0, 1, 1]), torch.tensor([3.0, 1.0, 5.0, 4.0]), 2)
        tensor([False,  True,  True,  True])
    """
    if int(sources.bincount().max()) <= n:
        return torch.ones_like(sources, dtype=torch.bool)
    order = scores.argsort(descending=True, stable=True)
    order = order[sources[order].argsort(stable=True)]
    keep = torch.zeros_like(sources, dtype=torch.bool)
    keep[order] = places(sources[order]) < n
    return keep


def places(sources: Tensor) -> Tensor:
    """Number the rows of each source, given sorted sources.

    Example:
        >>> places(torch.tensor([0, 0, 2, 2, 2])).tolist()
        [0, 1, 0, 1, 2]
    """
    sizes = sources.bincount()
    first = sizes.cumsum(dim=0) - sizes
    return torch.arange(len(sources), device=sources.device) - first[sources]


# ---------------------------------------------------------------------- how next tokens are scored


def count_draws(live: Hypotheses, options: NextTokens, noise: Noise) -> Tensor:
    """Draw a next token for every sample; return how often each was drawn, -inf for never.

    All rows' cumulative distributions stand in one ascending list, row r's between r and r + 1, so
    that one binary search draws for all samples.

    Returns:
        Shape: (R, K), float64.
    """
    cumulative = options.path.exp().cumsum(dim=1)
    rows = torch.arange(len(cumulative), device=cumulative.device)
    edges = cumulative / cumulative[:, -1:] + rows[:, None]
    row_of_sample = rows.repeat_interleave(live.score.long())
    drawn = noise(places(live.source[row_of_sample])) * (1 - 1e-9)  # r + u must stay below r + 1
    chosen = torch.searchsorted(edges.flatten(), row_of_sample + drawn, right=True)
    counts = chosen.bincount(minlength=edges.numel()).view_as(edges).double()
    return counts.masked_fill(counts == 0, -torch.inf)


def perturb(live: Hypotheses, options: NextTokens, noise: Noise) -> Tensor:
    """Perturb the children's log-probabilities with Gumbel noise, their maximum being the parent's.

    The n best complete sentences by this score are n draws without replacement, the best one being
    a plain sample (Kool et al. 2019, https://arxiv.org/abs/1903.06059, algorithm 1 and appendix
    B.3, whose form never takes the difference of large exponentials).

    Returns:
        Shape: (R, K), float64; -inf where the child has no probability.
    """
    path = live.path[:, None] + options.path
    uniform = noise(places(live.source), path.shape[1]).clamp(min=1e-300)
    gumbel = path - (-uniform.log()).log()
    target = live.score[:, None]
    v = target - gumbel + log1mexp(gumbel - gumbel.amax(dim=1, keepdim=True))
    return target - v.clamp(min=0) - (-v.abs()).exp().log1p()


def log1mexp(x: Tensor) -> Tensor:
    """Return log(1 - exp(x)) for x <= 0, exact to float precision at both ends.

    Example:
        >>> log1mexp(torch.tensor([-1e-20, -0.6931471805599453, -50.0], dtype=torch.float64))
        tensor([-4.6052e+01, -6.9315e-01, -1.9287e-22], dtype=torch.float64)
    """
    return torch.where(x > -0.693, (-x.expm1()).log(), (-x.exp()).log1p())


def add_log_probs(live: Hypotheses, options: NextTokens, noise: Noise) -> Tensor:
    """Score children by their log-probability, as beam search does; shape: (R, K), float64."""
    return live.score[:, None] + options.path


Strategy = Callable[[Hypotheses, NextTokens, Noise], Tensor]
STRATEGIES: dict[str, Strategy] = {
    "sample": count_draws,
    "without_replacement": perturb,
    "beam": add_log_probs,
}
