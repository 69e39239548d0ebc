"""transformers' own models for paraphrases: a causal BERT, and an encoder-decoder.

Both start from a BERT without an LM head: its transform starts at the identity, as SimBERT's does,
and new weights train at ten times the rate of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datasets
import torch
from torch import Tensor
from transformers import (
    AutoTokenizer,
    BertLMHeadModel,
    DataCollatorForSeq2Seq,
    EncoderDecoderModel,
    Trainer,
    set_seed,
)

from simbert_hf import SimBert
from simbert_hf.arguments import SimilarityTrainingArguments
from simbert_hf.generation.writing import Draft, banned_tokens
from simbert_hf.modeling.loading import quiet_transformers
from simbert_hf.modeling.simbert import start_at_identity
from simbert_hf.utils.text import is_wordpiece, place_spaces, raw_text

MAX_LENGTH, NEW_TOKENS, TOP_K = 64, 32, 5
FRESH = ("cls.predictions.transform", "cls.predictions.bias", "crossattention")
ROWS = 100  # of one call of generate(), which keeps the logits of all steps
CAUSAL = "causal LM"
Pair = tuple[str, str]
Peer = BertLMHeadModel | EncoderDecoderModel


def causal_lm(start: str) -> Peer:
    """Load the base model as a causal language model."""
    model = BertLMHeadModel.from_pretrained(start, is_decoder=True, dtype=torch.float32)
    start_at_identity(model.cls.predictions.transform.dense)
    return model


def encoder_decoder(start: str) -> Peer:
    """Load the base model twice: an encoder, and a decoder that attends to it."""
    model: Any = EncoderDecoderModel.from_encoder_decoder_pretrained(
        start, start, encoder_dtype=torch.float32, decoder_dtype=torch.float32
    )
    start_at_identity(model.decoder.cls.predictions.transform.dense)
    first = AutoTokenizer.from_pretrained(start).cls_token_id
    for config in (model.config, model.generation_config):
        config.decoder_start_token_id = first
        config.pad_token_id = model.config.decoder.pad_token_id
    return model


PEERS: dict[str, Callable[[str], Peer]] = {
    CAUSAL: causal_lm,
    "encoder-decoder": encoder_decoder,
}


def token_rows(tokenizer: Any, pairs: Sequence[Pair], joined: bool) -> datasets.Dataset:
    """Convert pairs to rows in both orders; joined, one sequence holds source and target.

    The target ends with [SEP]; a target of its own stands without [CLS], which the decoder starts
    with.
    """
    both = [texts for a, b in pairs for texts in ((a, b), (b, a))]
    cut = [
        tokenizer(list(side), truncation=True, max_length=MAX_LENGTH)["input_ids"]
        for side in zip(*both, strict=True)
    ]
    rows: dict[str, list[Any]] = {"input_ids": [], "labels": [], "length": []}
    for source, (_, *target) in zip(*cut, strict=True):
        rows["input_ids"].append([*source, *target] if joined else source)
        rows["labels"].append([-100] * len(source) + target if joined else target)
        rows["length"].append(len(source) + len(target))
    return datasets.Dataset.from_dict(rows)


def peer_trainer(
    model: Peer,
    tokenizer: Any,
    data: datasets.Dataset,
    rate: float,
    steps: int,
    pairs: int,
    seed: int,
    output_dir: Path,
) -> Trainer:
    """Make transformers' trainer, with the arguments of SimBERT's run."""
    fresh = [p for name, p in model.named_parameters() if any(part in name for part in FRESH)]
    known = {id(parameter) for parameter in fresh}
    others = [p for p in model.parameters() if id(p) not in known]
    groups = [{"params": others}, {"params": fresh, "lr": 10 * rate}]
    args = SimilarityTrainingArguments(
        output_dir=str(output_dir), max_steps=steps, seed=seed, bf16=True, report_to="none",
        per_device_train_batch_size=2 * pairs, per_device_eval_batch_size=2 * pairs,
        train_sampling_strategy="group_by_length", remove_unused_columns=True,
        eval_strategy="no", save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    return Trainer(
        model=model,
        args=args,
        train_dataset=data,
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer),
        optimizers=(torch.optim.AdamW(groups, lr=rate, weight_decay=args.weight_decay), None),
    )


def train_peer(
    name: str, start: str, data: Sequence[Pair], *, seed: int, **options: Any
) -> Trainer:
    """Train a peer from a base model; options are those of :func:`peer_trainer`."""
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(start)
    with quiet_transformers():
        model = PEERS[name](start)
    rows = token_rows(tokenizer, data, joined=name == CAUSAL)
    trainer = peer_trainer(model, tokenizer, rows, seed=seed, **options)
    trainer.train()
    return trainer


@torch.inference_mode()
def write_peer(
    model: Peer, start: SimBert, texts: Sequence[str], n: int, seed: int
) -> list[list[Draft]]:
    """Sample n sentences for each text by `generate()`; those that ended, in the order drawn."""
    tokenizer, banned = start.rows.tokenizer, banned_tokens(start)
    side = "left" if isinstance(model, BertLMHeadModel) else "right"
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    size = max(1, ROWS // n)
    drafts: dict[int, list[Draft]] = {}
    torch.manual_seed(seed)
    for chosen in (order[i : i + size] for i in range(0, len(order), size)):
        batch = tokenizer(
            [texts[i] for i in chosen], truncation=True, max_length=MAX_LENGTH, padding=True,
            padding_side=side, return_tensors="pt", return_token_type_ids=False,
        ).to(model.device)  # fmt: skip
        found = model.generate(
            **batch, do_sample=True, top_k=TOP_K, num_return_sequences=n,
            max_new_tokens=NEW_TOKENS, suppress_tokens=banned.tolist(),
            eos_token_id=tokenizer.sep_token_id, pad_token_id=tokenizer.pad_token_id,
            return_dict_in_generate=True, output_logits=True,
        )  # fmt: skip
        read = written(found, tokenizer, banned)
        for at, i in enumerate(chosen):
            drafts[i] = [draft for draft in read[at * n : (at + 1) * n] if draft]
    return [drafts[i] for i in range(len(texts))]


def written(found: Any, tokenizer: Any, banned: Tensor) -> list[Draft | None]:
    """Decode what was generated, with its likelihood; None for sequences that did not end."""
    tokens, sep = found.sequences[:, -len(found.logits) :], tokenizer.sep_token_id  # (R, T)
    steps = [
        logits.float().index_fill(1, banned, -torch.inf).log_softmax(1).gather(1, step[:, None])
        for logits, step in zip(found.logits, tokens.T, strict=True)
    ]
    drafts: list[Draft | None] = []
    for row, each in zip(tokens.tolist(), torch.cat(steps, dim=1).tolist(), strict=True):
        length = row.index(sep) + 1 if sep in row else 0
        raw = raw_text(tokenizer, row[:length])
        text = place_spaces(raw) if is_wordpiece(tokenizer) else raw
        drafts.append(Draft(text, sum(each[:length]) / length) if length else None)
    return drafts
