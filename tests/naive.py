"""Slow references, written from the description of SimBERT alone.

Every function here is a second, independent implementation of something that the package does fast:
one row at a time, loops instead of broadcasting, float64, no padding and no model code of
transformers. Read them beside the description and believe your eyes; the package is then compared
with them. All tensor results can be differentiated, so gradients can be compared too.

Names used throughout:

- `weights`: a BERT state dict with the keys `bert.*` and `cls.*` of `BertForMaskedLM` (and
  `bert.pooler.dense.*` where the linear pooler is asked for). The decoder is taken to be tied: the
  word embeddings are used, `cls.predictions.decoder.weight` is ignored.
- `ids`, `segments`: one unpadded row, `[CLS] A [SEP]` in segment 0 and `B [SEP]` in segment 1.
- L tokens, H hidden units, V vocabulary entries, N sentences, D dimensions of a vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Row = tuple[list[int], list[int]]
"""The ids and the segments of one unpadded row."""


def float64_weights(
    state_dict: Mapping[str, Tensor], requires_grad: bool = False
) -> dict[str, Tensor]:
    """Copy a state dict into float64 leaves, optionally ready to collect gradients.

    Tied entries become separate leaves. Only the word embeddings and `cls.predictions.bias` are
    read by the functions here, so those two hold the whole gradient of a tied pair.
    """
    copies = {}
    for name, value in state_dict.items():
        if value.is_floating_point():
            copies[name] = value.detach().clone().double().requires_grad_(requires_grad)
    return copies


def make_lively(model: torch.nn.Module, seed: int = 0) -> None:
    """Give a tiny random BERT weights under which inputs matter.

    At the usual start (std 0.02, biases zero) hidden states hardly depend on context, and greedy
    generation repeats one token whatever it is shown: comparisons there would prove little.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        is_norm = name.endswith("LayerNorm.weight")
        std = 0.1 if is_norm or name.endswith("bias") else 0.3
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * std
        parameter.data.copy_(noise + 1.0 if is_norm else noise)


# --- the prefix mask ---------------------------------------------------------------------------


def naive_prefix_allowed(segment_ids: list[int], n_real: int) -> list[list[bool]]:
    """Return `allowed[q][k]`: whether query q may attend key k.

    With c the running sum of the segment ids, q sees k when c[k] <= c[q] and k is not padding.
    Padding stands at the end, from position `n_real` on. A padded query follows the same rule, so
    it sees real keys only.
    """
    running = []
    total = 0
    for segment in segment_ids:
        total += segment
        running.append(total)
    allowed = []
    for q in range(len(segment_ids)):
        row = []
        for k in range(len(segment_ids)):
            row.append(running[k] <= running[q] and k < n_real)
        allowed.append(row)
    return allowed


# --- BERT --------------------------------------------------------------------------------------


def _linear(weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Apply `x W^T + b` with the weights called `name`."""
    return x @ weights[f"{name}.weight"].double().T + weights[f"{name}.bias"].double()


def _layer_norm(weights: Mapping[str, Tensor], name: str, x: Tensor, eps: float) -> Tensor:
    """Normalise the last dimension with the biased variance, then scale and shift."""
    mean = x.mean(dim=-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
    normal = (x - mean) / torch.sqrt(variance + eps)
    return normal * weights[f"{name}.weight"].double() + weights[f"{name}.bias"].double()


def _gelu(x: Tensor) -> Tensor:
    """Apply the erf form of GELU."""
    return 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))


def _attention(
    weights: Mapping[str, Tensor], name: str, x: Tensor, allowed: list[list[bool]], n_heads: int
) -> Tensor:
    """Return the attention output (L, H), before its output projection.

    A forbidden key takes no part in a query's softmax at all, so no masking constant is needed.
    """
    query = _linear(weights, f"{name}.query", x)
    key = _linear(weights, f"{name}.key", x)
    value = _linear(weights, f"{name}.value", x)
    length, hidden = x.shape
    size = hidden // n_heads
    rows = []
    for q in range(length):
        seen = [k for k in range(length) if allowed[q][k]]
        heads = []
        for h in range(n_heads):
            part = slice(h * size, (h + 1) * size)
            scores = torch.stack([query[q, part] @ key[k, part] for k in seen]) / math.sqrt(size)
            exponents = torch.exp(scores - scores.max().detach())
            shares = exponents / exponents.sum()
            mixed = torch.zeros(size, dtype=torch.float64)
            for i, k in enumerate(seen):
                mixed = mixed + shares[i] * value[k, part]
            heads.append(mixed)
        rows.append(torch.cat(heads))
    return torch.stack(rows)


def naive_encode_row(
    weights: Mapping[str, Tensor], config: Any, ids: list[int], segments: list[int]
) -> list[Tensor]:
    """Run BERT over one unpadded row under the prefix mask, without dropout.

    Returns:
        `num_hidden_layers + 1` tensors (L, H): the embeddings, then the output of every layer.
    """
    assert config.hidden_act == "gelu", "the reference knows the erf GELU only"
    assert len(ids) == len(segments)
    eps = config.layer_norm_eps
    embedded = []
    for position, (token, segment) in enumerate(zip(ids, segments, strict=True)):
        embedded.append(
            weights["bert.embeddings.word_embeddings.weight"][token].double()
            + weights["bert.embeddings.position_embeddings.weight"][position].double()
            + weights["bert.embeddings.token_type_embeddings.weight"][segment].double()
        )
    x = _layer_norm(weights, "bert.embeddings.LayerNorm", torch.stack(embedded), eps)
    states = [x]
    allowed = naive_prefix_allowed(segments, len(ids))
    for i in range(config.num_hidden_layers):
        layer = f"bert.encoder.layer.{i}"
        mixed = _attention(
            weights, f"{layer}.attention.self", x, allowed, config.num_attention_heads
        )
        mixed = _linear(weights, f"{layer}.attention.output.dense", mixed)
        x = _layer_norm(weights, f"{layer}.attention.output.LayerNorm", x + mixed, eps)
        inner = _gelu(_linear(weights, f"{layer}.intermediate.dense", x))
        outer = _linear(weights, f"{layer}.output.dense", inner)
        x = _layer_norm(weights, f"{layer}.output.LayerNorm", x + outer, eps)
        states.append(x)
    return states


def naive_lm_logits(weights: Mapping[str, Tensor], config: Any, hidden: Tensor) -> Tensor:
    """Map the last hidden states (L, H) to logits (L, V) with the tied masked-LM head."""
    name = "cls.predictions.transform"
    x = _gelu(_linear(weights, f"{name}.dense", hidden))
    x = _layer_norm(weights, f"{name}.LayerNorm", x, config.layer_norm_eps)
    words = weights["bert.embeddings.word_embeddings.weight"].double()
    return x @ words.T + weights["cls.predictions.bias"].double()


# --- sentence vectors --------------------------------------------------------------------------


def naive_sentence_vector(
    weights: Mapping[str, Tensor],
    config: Any,
    ids: list[int],
    segments: list[int],
    pooling: str = "linear_pooler",
) -> Tensor:
    """Return the vector (H,) of the *source* of a row, whether or not the row has a target.

    It is not normalised. The poolings are `linear_pooler` (the pooler's dense layer on [CLS],
    without tanh), `tanh_pooler` (with tanh), `cls`, `mean` over the tokens of segment 0 ([CLS] and
    the first [SEP] count) and `first_last_mean`, the same mean over the average of the first
    layer's output (not the embeddings) and the last layer's.
    """
    states = naive_encode_row(weights, config, ids, segments)
    if pooling == "linear_pooler":
        return _linear(weights, "bert.pooler.dense", states[-1][0])
    if pooling == "tanh_pooler":
        return torch.tanh(_linear(weights, "bert.pooler.dense", states[-1][0]))
    if pooling == "cls":
        return states[-1][0]
    if pooling == "mean":
        summands = [states[-1]]
    elif pooling == "first_last_mean":
        summands = [states[1], states[-1]]
    else:
        raise ValueError(f"unknown pooling {pooling!r}")
    source = [position for position, segment in enumerate(segments) if segment == 0]
    total = torch.zeros(config.hidden_size, dtype=torch.float64)
    for position in source:
        for state in summands:
            total = total + state[position] / len(summands)
    return total / len(source)


# --- losses ------------------------------------------------------------------------------------


def naive_seq2seq_loss(rows: Sequence[tuple[Tensor, list[int], list[int]]]) -> Tensor:
    """Average the cross entropy over all target tokens of the batch.

    Position t predicts token t + 1, and counts with the weight segment[t + 1]: the first [SEP]
    predicts the first token of B, the final [SEP] is a target. One sum over the batch is divided by
    one sum of weights, so a long row weighs more than a short one.

    Args:
        rows: for each row its logits (L, V), ids and segments, unpadded.
    """
    loss = torch.zeros((), dtype=torch.float64)
    weight_sum = 0
    for logits, ids, segments in rows:
        for t in range(len(ids) - 1):
            weight = segments[t + 1]
            if weight == 0:
                continue
            scores = logits[t].double()
            loss = loss + weight * (torch.logsumexp(scores, dim=0) - scores[ids[t + 1]])
            weight_sum += weight
    if weight_sum == 0:
        raise ValueError("no row has a target: the loss is 0 / 0")
    return loss / weight_sum


def _unit(vector: Tensor) -> Tensor:
    """Return `vector` divided by its length, or as it is when all its entries are zero."""
    length = torch.sqrt((vector**2).sum()) if bool(vector.detach().any()) else 1.0
    return vector / length


def naive_similarity_loss(
    vectors: Tensor | Sequence[Tensor],
    scale: float = 30.0,
    groups: Sequence[int] | None = None,
) -> Tensor:
    """Average, over the rows, the cross entropy of finding the partner among all other rows.

    Row i has the partner i ^ 1. Its scores are `scale` times the cosines with all rows but itself.

    Args:
        vectors: (N, D), N even.
        scale: the inverse of the temperature.
        groups: a group per row. Other rows of row i's group, except the partner, are left out of
            row i's softmax. Without it, every other row is a negative.
    """
    units = [_unit(torch.as_tensor(vector).double()) for vector in vectors]
    assert len(units) % 2 == 0
    loss = torch.zeros((), dtype=torch.float64)
    for i in range(len(units)):
        partner = i ^ 1
        scores = []
        for j in range(len(units)):
            if j == i:
                continue
            if groups is not None and groups[j] == groups[i] and j != partner:
                continue
            scores.append(scale * (units[i] @ units[j]))
        right = scale * (units[i] @ units[partner])
        loss = loss + torch.logsumexp(torch.stack(scores), dim=0) - right
    return loss / len(units)


def naive_one_way_loss(
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor | None = None,
    scale: float = 20.0,
    hard_negative_weight: float = 0.0,
    out: Sequence[tuple[int, int]] = (),
) -> Tensor:
    """Average, over the anchors, the cross entropy of finding one's own among all positives.

    With hard negatives, all of them are candidates too, and `hard_negative_weight` is added to the
    score of an anchor's own. All are (N, D). `out` lists (anchor, key) that are not compared; keys
    are the positives and then the negatives.
    """
    loss = torch.zeros((), dtype=torch.float64)
    for i in range(len(anchors)):
        scores = [scale * (_unit(anchors[i]) @ _unit(positives[j])) for j in range(len(positives))]
        right = scores[i]
        for j in range(0 if negatives is None else len(negatives)):
            score = scale * (_unit(anchors[i]) @ _unit(negatives[j]))
            scores.append(score + hard_negative_weight if j == i else score)
        kept = [score for j, score in enumerate(scores) if (i, j) not in out]
        loss = loss + torch.logsumexp(torch.stack(kept), dim=0) - right
    return loss / len(anchors)


def naive_cosine(first: Tensor, second: Tensor) -> Tensor:
    """Return the cosine of two vectors (D,)."""
    return _unit(first) @ _unit(second)


def naive_angle(first: Tensor, second: Tensor) -> Tensor:
    """Return AnglE's similarity of two vectors (D,), D even, by complex division.

    Read as complex vectors a + bi and c + di (first half real, second half imaginary), each is
    divided by its length; the first times the conjugate of the second is summed over the
    coordinates, and the real and the imaginary part of that are added: (ac + bd) + (bc - ad).
    """
    half = len(first) // 2
    total = torch.zeros((), dtype=torch.float64)
    x, y = _unit(first), _unit(second)
    for k in range(half):
        a, b, c, d = x[k], x[k + half], y[k], y[k + half]
        total = total + (a * c + b * d) + (b * c - a * d)
    return torch.abs(total)


def naive_cosent_loss(
    similarities: Sequence[Tensor], scores: Sequence[float], scale: float = 20.0
) -> Tensor:
    """Return log(1 + sum exp(scale * (s_j - s_i))) over all i that are scored above j."""
    total = torch.ones((), dtype=torch.float64)
    for i in range(len(scores)):
        for j in range(len(scores)):
            if scores[i] > scores[j]:
                total = total + torch.exp(scale * (similarities[j] - similarities[i]))
    return torch.log(total)


def naive_simbert_loss(
    weights: Mapping[str, Tensor],
    config: Any,
    rows: Sequence[Row],
    scale: float = 30.0,
    pooling: str = "linear_pooler",
    groups: Sequence[int] | None = None,
) -> dict[str, Tensor]:
    """Return `seq2seq`, `similarity` and `total`, their plain sum, for a batch of rows.

    Rows 2i and 2i + 1 are the two orders of one pair. The vector is that of each row's source.
    """
    scored = []
    vectors = []
    for ids, segments in rows:
        hidden = naive_encode_row(weights, config, ids, segments)[-1]
        scored.append((naive_lm_logits(weights, config, hidden), ids, segments))
        vectors.append(naive_sentence_vector(weights, config, ids, segments, pooling))
    seq2seq = naive_seq2seq_loss(scored)
    similarity = naive_similarity_loss(vectors, scale, groups)
    return {"seq2seq": seq2seq, "similarity": similarity, "total": seq2seq + similarity}


# --- generation --------------------------------------------------------------------------------


def naive_next_log_probs(
    weights: Mapping[str, Tensor],
    config: Any,
    source_ids: list[int],
    target_ids: list[int],
    banned_ids: Sequence[int] = (),
) -> Tensor:
    """Return the log-probabilities (V,) of the token after `source_ids + target_ids`.

    The source, `[CLS] A [SEP]`, is segment 0; the target so far is segment 1. Banned tokens get
    minus infinity and the others are normalised without them.
    """
    ids = source_ids + target_ids
    segments = [0] * len(source_ids) + [1] * len(target_ids)
    hidden = naive_encode_row(weights, config, ids, segments)[-1]
    scores = naive_lm_logits(weights, config, hidden[-1:])[0].clone()
    for token in banned_ids:
        scores[token] = -math.inf
    return scores - torch.logsumexp(scores, dim=0)


def naive_greedy(
    weights: Mapping[str, Tensor],
    config: Any,
    source_ids: list[int],
    sep_id: int,
    banned_ids: Sequence[int] = (),
    max_new_tokens: int = 32,
) -> list[int]:
    """Take the likeliest token until [SEP], recomputing the whole row for each; no cache.

    Returns:
        The new tokens. The last one is [SEP] unless `max_new_tokens` ended the row first.
    """
    target: list[int] = []
    with torch.no_grad():
        while len(target) < max_new_tokens:
            scores = naive_next_log_probs(weights, config, source_ids, target, banned_ids).tolist()
            target.append(scores.index(max(scores)))
            if target[-1] == sep_id:
                break
    return target


def naive_sequence_log_prob(
    weights: Mapping[str, Tensor],
    config: Any,
    source_ids: list[int],
    target_ids: list[int],
    banned_ids: Sequence[int] = (),
) -> Tensor:
    """Return log p(target | source), the sum over exactly the tokens of `target_ids`.

    The end counts only if it is there: append [SEP] to score a finished sentence.
    """
    total = torch.zeros((), dtype=torch.float64)
    for t, token in enumerate(target_ids):
        scores = naive_next_log_probs(weights, config, source_ids, target_ids[:t], banned_ids)
        total = total + scores[token]
    return total


# --- sampling without replacement --------------------------------------------------------------


def naive_stochastic_beam_search(
    next_log_probs: Callable[[tuple[int, ...]], Sequence[float]], end_token: int, max_length: int
) -> dict[tuple[int, ...], float]:
    """Enumerate all complete sequences of a toy model, with their log-probabilities.

    This is the exact distribution that stochastic beam search (Kool et al. 2019) samples from
    without replacement: its first draw follows these probabilities, and the ordered draw of n has
    the probability of `naive_ordered_draw_probability`.

    Args:
        next_log_probs: maps a prefix to one log-probability per token; minus infinity forbids it.
        end_token: completes a sequence, and is its last token.
        max_length: a sequence of that many tokens is complete without the end token.
    """
    complete: dict[tuple[int, ...], float] = {}
    open_prefixes: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    while open_prefixes:
        prefix, log_prob = open_prefixes.pop()
        for token, step in enumerate(next_log_probs(prefix)):
            if step == -math.inf:
                continue
            sequence = (*prefix, token)
            if token == end_token or len(sequence) == max_length:
                complete[sequence] = log_prob + step
            else:
                open_prefixes.append((sequence, log_prob + step))
    return complete


def naive_ordered_draw_probability(
    log_probs: Mapping[tuple[int, ...], float], draw: Sequence[tuple[int, ...]]
) -> float:
    """Return the probability of drawing exactly `draw`, in this order, without replacement.

    Each draw takes one of the sequences that are left, in proportion to its probability; this is
    the order in which the Gumbel top-k trick lists them.
    """
    if len(set(draw)) < len(draw):
        return 0.0
    probability = 1.0
    left = 1.0
    for sequence in draw:
        share = math.exp(log_probs[sequence])
        probability *= share / left
        left -= share
    return probability


# --- class centres -----------------------------------------------------------------------------


def _number(value: Tensor) -> float:
    """Return a scalar tensor's value, without its gradient."""
    return float(value.detach())


def naive_with_margin(cosine: Tensor, kind: str, margin: float) -> Tensor:
    """Return what the true class scores in place of `cosine`, a number between -1 and 1.

    By the angle: am cos - m; arc cos(angle + m), beyond pi cos - m sin m; sphere cos(m angle) on
    its first fall, then mirrored and lowered by 2 at every half turn; simpler_a the smaller of
    cos(m angle) and cos(angle).
    """
    angle = torch.acos(cosine)
    turn = _number(angle)
    if kind == "am":
        return cosine - margin
    if kind == "arc":
        if turn + margin > math.pi:
            return cosine - margin * math.sin(margin)
        return torch.cos(angle + margin)
    multiple = torch.cos(margin * angle)
    if kind == "simpler_a":
        return multiple if _number(multiple) < _number(cosine) else cosine
    falls = 0
    while (falls + 1) * math.pi / margin <= turn:
        falls += 1
    return (multiple if falls % 2 == 0 else -multiple) - 2 * falls


def naive_margin_loss(
    vectors: Tensor,
    centres: Sequence[Tensor],
    classes: Sequence[int],
    kind: str,
    scale: float,
    margin: float,
    columns: Sequence[int] | None = None,
) -> Tensor:
    """Average, over the vectors, the cross entropy of finding their class.

    Args:
        vectors: (N, D).
        centres: a (K, D) tensor for each class, whose nearest row counts; (1, D) is usual.
        classes: the class of each vector.
        kind: `softmax` takes dot products as they are; the rest cosines times `scale`, the true
            class's changed by `naive_with_margin`.
        scale: the inverse of the temperature.
        margin: of that kind.
        columns: the classes that are scored at all; every one if not given.
    """
    loss = torch.zeros((), dtype=torch.float64)
    for vector, label in zip(vectors, classes, strict=True):
        scores = {}
        for c in range(len(centres)) if columns is None else columns:
            if kind == "softmax":
                scores[c] = vector @ centres[c][0]
                continue
            cosine = max((_unit(vector) @ _unit(row) for row in centres[c]), key=_number)
            scores[c] = scale * (naive_with_margin(cosine, kind, margin) if c == label else cosine)
        loss = loss + torch.logsumexp(torch.stack([*scores.values()]), dim=0) - scores[label]
    return loss / len(vectors)


def naive_adam_row(row: Tensor, gradients: Sequence[Tensor], learning_rate: float) -> Tensor:
    """Return a parameter after one step of Adam for each of its gradients, as the paper has it."""
    first, second = torch.zeros_like(row), torch.zeros_like(row)
    for t in range(1, len(gradients) + 1):
        gradient = gradients[t - 1]
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        step = (first / (1 - 0.9**t)) / (torch.sqrt(second / (1 - 0.999**t)) + 1e-8)
        row = row - learning_rate * step
    return row


def naive_gru(weights: Mapping[str, Tensor], ids: Sequence[int]) -> Tensor:
    """Return the last state (H,) of a GRU that reads embeddings of `ids`, gate by gate."""
    w_in, w_state = weights["gru.weight_ih_l0"].double(), weights["gru.weight_hh_l0"].double()
    b_in, b_state = weights["gru.bias_ih_l0"].double(), weights["gru.bias_hh_l0"].double()
    state = torch.zeros(w_state.shape[1], dtype=torch.float64)
    for i in ids:
        given = (w_in @ weights["embedding.weight"][i].double() + b_in).chunk(3)
        kept = (w_state @ state + b_state).chunk(3)
        reset = torch.sigmoid(given[0] + kept[0])
        update = torch.sigmoid(given[1] + kept[1])
        new = torch.tanh(given[2] + reset * kept[2])
        state = (1 - update) * new + update * state
    return state


# --- triplets ----------------------------------------------------------------------------------


def naive_distance(first: Tensor, second: Tensor, kind: str) -> Tensor:
    """Return the squared Euclidean distance of two vectors, or 1 minus their cosine."""
    if kind == "cosine":
        return 1 - naive_cosine(first, second)
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(first)):
        total = total + (first[i] - second[i]) ** 2
    return total


def naive_triplets(
    vectors: Sequence[Tensor], groups: Sequence[int], kind: str, mining: str
) -> list[tuple[int, int, int, int]]:
    """List (a, p, x, y): the positive pair a, p stands against the negative pair x, y.

    `unanchored`: every unordered positive pair against each of the nearest negative pairs of any
    rows, as many as there are positive pairs. In the other ways x is the anchor a: `all` negatives;
    `hard`, each anchor's farthest positive and nearest negative; `semi_hard`, for each ordered
    positive pair the nearest negative beyond the positive, where there is one.
    """
    n = len(vectors)
    far = [[_number(naive_distance(u, v, kind)) for v in vectors] for u in vectors]
    if mining == "unanchored":
        near = [(i, j) for i in range(n) for j in range(i + 1, n) if groups[i] == groups[j]]
        other = [(i, j) for i in range(n) for j in range(i + 1, n) if groups[i] != groups[j]]
        other.sort(key=lambda pair: far[pair[0]][pair[1]])
        return [(*pair, *strange) for pair in near for strange in other[: len(near)]]
    found = []
    for a in range(n):
        mates = [j for j in range(n) if j != a and groups[j] == groups[a]]
        others = [j for j in range(n) if groups[j] != groups[a]]
        if not mates or not others:
            continue
        if mining == "hard":
            nearest = min(others, key=lambda j, a=a: far[a][j])
            found.append((a, max(mates, key=lambda j, a=a: far[a][j]), a, nearest))
            continue
        for p in mates:
            if mining == "all":
                found += [(a, p, a, j) for j in others]
                continue
            beyond = [j for j in others if far[a][j] > far[a][p]]
            if beyond:
                found.append((a, p, a, min(beyond, key=lambda j, a=a: far[a][j])))
    return found


def naive_triplet_loss(
    vectors: Sequence[Tensor],
    triplets: Sequence[tuple[int, int, int, int]],
    kind: str,
    margin: float,
) -> tuple[Tensor, float]:
    """Average max(d(a, p) - d(x, y) + margin, 0) over those above 0; also return their share."""
    total, active = torch.zeros((), dtype=torch.float64), 0
    for a, p, x, y in triplets:
        near = naive_distance(vectors[a], vectors[p], kind)
        term = near - naive_distance(vectors[x], vectors[y], kind) + margin
        if _number(term) > 0:
            total, active = total + term, active + 1
    return total / max(active, 1), active / max(len(triplets), 1)


def naive_sdml_loss(
    anchors: Sequence[Tensor],
    keys: Sequence[Tensor],
    smoothing: float,
    kind: str,
    excluded: Sequence[tuple[int, int]] = (),
) -> Tensor:
    """Average the cross entropy of smoothed labels and a softmax over negative distances.

    Key i is anchor i's positive and has the label 1 - smoothing; the other keys, but for the
    `excluded` (anchor, key), share the rest.
    """
    loss = torch.zeros((), dtype=torch.float64)
    for i, anchor in enumerate(anchors):
        seen = [j for j in range(len(keys)) if j == i or (i, j) not in excluded]
        scores = torch.stack([-naive_distance(anchor, keys[j], kind) for j in seen])
        logs = scores - torch.logsumexp(scores, dim=0)
        for place, j in enumerate(seen):
            label = 1 - smoothing if j == i else smoothing / (len(seen) - 1)
            loss = loss - label * logs[place]
    return loss / len(anchors)


# --- retrieval ---------------------------------------------------------------------------------


def naive_topk_accuracy(
    vectors: Tensor | Sequence[Tensor], groups: Sequence[int], ks: Sequence[int]
) -> dict[int, float]:
    """Return for each k the share of sentences with a group mate among their k nearest others.

    A sentence without a group mate counts as a miss.
    """
    first, _ = naive_retrieval(vectors, groups)
    return {k: sum(rank <= k for rank in first) / len(first) for k in ks}


def naive_retrieval(
    vectors: Sequence[Tensor] | Tensor, groups: Sequence[int]
) -> tuple[list[float], list[float]]:
    """Return for each sentence the rank of its nearest group mate, and its average precision.

    Every sentence ranks all the others by cosine, its group after others of the same cosine. The
    average precision is the mean, over its mates, of the share of mates among all that stand no
    further down. Without a mate: infinity and 0.
    """
    units = [_unit(torch.as_tensor(vector).double()) for vector in vectors]
    first, average = [], []
    for i in range(len(units)):
        others = [j for j in range(len(units)) if j != i]
        others.sort(key=lambda j: (-round(float(units[i] @ units[j]), 6), groups[j] == groups[i]))
        ranks, precisions = [], []
        for rank, j in enumerate(others, start=1):
            if groups[j] == groups[i]:
                ranks.append(rank)
                precisions.append(len(ranks) / rank)
        first.append(float(ranks[0]) if ranks else math.inf)
        average.append(sum(precisions) / len(ranks) if ranks else 0.0)
    return first, average
