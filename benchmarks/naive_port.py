"""A naive, faithful port of SimBERT to transformers: the baseline of the speed benchmarks.

This is what a competent person writes first, and nothing in it is made slow on purpose: a stock
BERT with SDPA attention, rows padded to 64 tokens or to a batch's longest, logits of the whole
vocabulary at all positions, a plain PyTorch loop, AdamW. Generation comes in two forms: a sampler
that recomputes the whole sequence at every step, as the original does, and one on the `generate()`
of transformers with a key-value cache.

It does not use the package, so a benchmark compares two independent programs.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, BertModel, PreTrainedTokenizerBase
from transformers.cache_utils import Cache
from transformers.generation.utils import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithCrossAttentions

Batch = dict[str, Tensor]
# What transformers calls the keys and values, since 5.24 and before.
CACHE = "cache" if "cache" in inspect.signature(BertModel.forward).parameters else "past_key_values"


class NaiveSimBert(BertForMaskedLM):
    """The stock masked-LM BERT with its pooler kept; loads any BERT checkpoint."""

    def __init__(self, config: BertConfig) -> None:
        """Build the model; `BertForMaskedLM` itself would leave the pooler out."""
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=True)
        self.post_init()


class NaiveGenerativeBert(NaiveSimBert, GenerationMixin):
    """The same model for `generate()`: `[CLS] A [SEP]` is read both ways, B grows behind it.

    Pad a batch of prompts on the left, as for any model that continues its prompt.
    """

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Choose the segments, positions and mask of the tokens that are not cached yet.

        Args:
            input_ids: (B, T), prompt and new tokens.
            attention_mask: (B, T), zero at the padding.
            kwargs: what else `generate()` passes on: the keys and values of the first tokens, none
                before the prompt.
        """
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        past: Cache | None = kwargs.get(CACHE)
        inputs: dict[str, Any] = {CACHE: past}
        positions = (attention_mask.cumsum(dim=1) - 1).clamp_min(0)
        cached = 0 if past is None else past.get_seq_length()
        if cached == 0:  # the prompt: a 2-D mask is bidirectional
            inputs["attention_mask"] = attention_mask
            inputs["token_type_ids"] = torch.zeros_like(input_ids)
        else:  # a new token sees everything before it
            hidden = attention_mask[:, None, None, :] == 0
            inputs["attention_mask"] = additive_mask(~hidden, self.dtype)
            inputs["token_type_ids"] = torch.ones_like(input_ids[:, cached:])
        inputs["input_ids"] = input_ids[:, cached:]
        inputs["position_ids"] = positions[:, cached:]
        if "logits_to_keep" in kwargs:
            inputs["logits_to_keep"] = kwargs["logits_to_keep"]
        return inputs

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        logits_to_keep: int = 0,
        return_dict: bool = True,
        **past: Cache | None,
    ) -> CausalLMOutputWithCrossAttentions:
        """Return the logits of the last `logits_to_keep` positions (0: of all), and the cache."""
        hidden = self.bert(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            **past,
        ).last_hidden_state
        logits = self.cls(hidden[:, -logits_to_keep:])
        return CausalLMOutputWithCrossAttentions(logits=logits, **past)


def build_port(config: BertConfig, generative: bool = False) -> NaiveSimBert:
    """Return a randomly initialised port with SDPA attention and hidden dropout only."""
    config = copy.deepcopy(config)
    config.attention_probs_dropout_prob = 0.0
    config._attn_implementation = "sdpa"
    return NaiveGenerativeBert(config) if generative else NaiveSimBert(config)


def additive_mask(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """Turn a boolean mask into one to add to the scores: 0 where allowed, else the minimum."""
    mask = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return mask.masked_fill(~allowed, torch.finfo(dtype).min)


def prefix_mask(segments: Tensor, attention_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the additive prefix mask (B, 1, T, T) of rows (B, T)."""
    running = segments.cumsum(dim=1)
    allowed = (running[:, None, :] <= running[:, :, None]) & attention_mask[:, None, :].bool()
    return additive_mask(allowed[:, None], dtype)


# --- training ----------------------------------------------------------------------------------


def collate(
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[str, str]],
    max_length: int = 64,
    padding: str = "max_length",
) -> Batch:
    """Tokenize N pairs in both orders into 2N adjacent rows, padded as the tokenizer names it."""
    firsts = [text for a, b in pairs for text in (a, b)]
    seconds = [text for a, b in pairs for text in (b, a)]
    return dict(
        tokenizer(
            firsts,
            seconds,
            truncation="longest_first",
            padding=padding,
            max_length=max_length,
            return_token_type_ids=True,
            return_attention_mask=True,
            return_tensors="pt",
        )
    )


def seq2seq_loss(logits: Tensor, input_ids: Tensor, segments: Tensor) -> Tensor:
    """Return the mean cross entropy over the tokens of segment 1, from logits (B, T, V)."""
    losses = F.cross_entropy(
        logits[:, :-1].flatten(0, 1), input_ids[:, 1:].flatten(), reduction="none"
    )
    weights = segments[:, 1:].flatten().to(losses.dtype)
    return (losses * weights).sum() / weights.sum()


def similarity_loss(vectors: Tensor, scale: float = 30.0) -> Tensor:
    """Return the in-batch softmax loss of vectors (B, H) whose partner is the row i ^ 1."""
    vectors = F.normalize(vectors, dim=1)
    scores = vectors @ vectors.T * scale
    rows = torch.arange(len(vectors), device=vectors.device)
    scores = scores.masked_fill(rows[:, None] == rows, torch.finfo(scores.dtype).min)
    return F.cross_entropy(scores, rows ^ 1)


def compute_losses(model: NaiveSimBert, batch: Batch) -> dict[str, Tensor]:
    """Return both losses and their sum, from one forward pass."""
    segments = batch["token_type_ids"]
    hidden = model.bert(
        batch["input_ids"],
        token_type_ids=segments,
        attention_mask=prefix_mask(segments, batch["attention_mask"], model.dtype),
    ).last_hidden_state
    seq2seq = seq2seq_loss(model.cls(hidden), batch["input_ids"], segments)
    similarity = similarity_loss(model.bert.pooler.dense(hidden[:, 0]))  # without tanh
    return {"seq2seq": seq2seq, "similarity": similarity, "total": seq2seq + similarity}


def build_optimizer(model: NaiveSimBert, lr: float = 2e-6) -> torch.optim.AdamW:
    """Return AdamW as SimBERT was trained with: constant rate, decay 0.01 on everything."""
    return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)


def train_step(
    model: NaiveSimBert, optimizer: torch.optim.Optimizer, batch: Batch
) -> dict[str, Tensor]:
    """Take one optimisation step and return the detached losses, still on the device."""
    batch = {name: value.to(model.device) for name, value in batch.items()}
    losses = compute_losses(model, batch)
    optimizer.zero_grad()
    losses["total"].backward()
    optimizer.step()
    return {name: loss.detach() for name, loss in losses.items()}


# --- generation --------------------------------------------------------------------------------


def sample_top_k(logits: Tensor, top_k: int, generator: torch.Generator | None) -> Tensor:
    """Draw one of the `top_k` likeliest tokens for each row of logits (B, V)."""
    values, tokens = logits.float().topk(top_k, dim=1)
    choice = torch.multinomial(values.softmax(dim=1), 1, generator=generator)
    return tokens.gather(1, choice)[:, 0]


@torch.inference_mode()
def sample_cacheless(
    model: BertForMaskedLM,
    source_ids: Sequence[int],
    sep_id: int,
    n: int,
    top_k: int = 5,
    max_new_tokens: int = 32,
    seed: int = 0,
) -> list[list[int]]:
    """Continue `[CLS] A [SEP]` n times, recomputing whole sequences at every step.

    As in the original, the first step is computed once for all n rows, and rows that have reached
    [SEP] are computed no further.

    Returns:
        The new tokens of each row, with [SEP] at the end of the finished ones.
    """
    generator = torch.Generator(model.device).manual_seed(seed)
    source = torch.tensor([list(source_ids)], device=model.device)
    new_tokens = torch.empty((n, 0), dtype=torch.long, device=model.device)
    unfinished = torch.arange(n, device=model.device)
    targets: list[list[int]] = [[] for _ in range(n)]
    for step in range(max_new_tokens):
        rows = new_tokens[:1] if step == 0 else new_tokens
        ids = torch.cat([source.expand(len(rows), -1), rows], dim=1)
        segments = torch.zeros_like(ids)
        segments[:, source.shape[1] :] = 1
        mask = prefix_mask(segments[:1], torch.ones_like(segments[:1]), model.dtype)
        logits = model(
            ids, token_type_ids=segments, attention_mask=mask.expand(len(ids), -1, -1, -1)
        ).logits[:, -1]
        tokens = sample_top_k(logits.expand(len(new_tokens), -1), top_k, generator)
        for row, token in zip(unfinished.tolist(), tokens.tolist(), strict=True):
            targets[row].append(token)
        going_on = tokens != sep_id
        unfinished = unfinished[going_on]
        new_tokens = torch.cat([new_tokens, tokens[:, None]], dim=1)[going_on]
        if len(unfinished) == 0:
            break
    return targets


@torch.inference_mode()
def sample_with_generate(
    model: NaiveGenerativeBert,
    source_ids: Sequence[int],
    sep_id: int,
    n: int,
    top_k: int = 5,
    max_new_tokens: int = 32,
    seed: int = 0,
) -> list[list[int]]:
    """Do the same through `generate()` of transformers, with a cache; seeds the global generator.

    Returns:
        The new tokens of each row, with [SEP] at the end of the finished ones.
    """
    torch.manual_seed(seed)
    source = torch.tensor([list(source_ids)], device=model.device)
    output = model.generate(
        source,
        attention_mask=torch.ones_like(source),
        do_sample=True,
        top_k=top_k,
        num_return_sequences=n,
        max_new_tokens=max_new_tokens,
        eos_token_id=sep_id,
        pad_token_id=model.config.pad_token_id,
    )
    return [cut_at(row, sep_id) for row in output[:, source.shape[1] :].tolist()]


def cut_at(tokens: list[int], sep_id: int) -> list[int]:
    """Return the tokens up to the first [SEP], which is kept; all of them if there is none."""
    return tokens[: tokens.index(sep_id) + 1] if sep_id in tokens else tokens


def generate_texts(
    sampler: Callable[..., list[list[int]]],
    model: BertForMaskedLM,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    n: int,
    **options: int,
) -> list[str]:
    """Tokenize `text` to at most 32 tokens, sample n continuations and decode them."""
    source = tokenizer(text, truncation=True, max_length=32)["input_ids"]
    targets = sampler(model, source, tokenizer.sep_token_id, n, **options)
    return tokenizer.batch_decode(targets, skip_special_tokens=True)


generate_cacheless = partial(generate_texts, sample_cacheless)
generate_cached = partial(generate_texts, sample_with_generate)
