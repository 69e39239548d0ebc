"""Tiny models, tokenizers and data that tests build in memory, and a stand-in for a kill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import CrossEncoder
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    TrainerCallback,
)

from simbert_hf import SimBert, SimBertConfig
from simbert_hf.judging.judge import Judge
from simbert_hf.modeling.loading import quiet_transformers
from simbert_hf.trainer import SimilarityTrainer

WORDS = (
    "how can i do reset my password please tell me the weather is nice today what time it "
    "where are you going to go learn english fast a cat sat on mat and dog ran"
).split()

# Intents, each told by its noun: the sentences and their names.
VERBS, NOUNS = WORDS[8:14], ["cat", "dog", "mat", "time", "password", "weather"]
ROWS = [(f"{second} {first} {noun}", noun) for noun in NOUNS for first in VERBS for second in "ab"]


def wordpiece_tokenizer() -> PreTrainedTokenizerFast:
    """BERT's shape of tokenizer, with special ids that are not BERT's own."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = list(dict.fromkeys([*specials, *WORDS, "'", "?", ".", "t", "don", "##s", "##ing"]))
    tokenizer = Tokenizer(
        models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=48,
    )


def unigram_tokenizer(*pieces: str) -> PreTrainedTokenizerFast:
    """XLM-R's shape: ``<s> </s>``, padding id 1, two separators in a pair, no segments.

    More pieces than the usual ones can be given.
    """
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    letters = [(letter, -8.0) for letter in "▁abcdefghijklmnopqrstuvwxyz?.'"]
    vocabulary = [(s, 0.0) for s in specials] + [(f"▁{w}", -3.0) for w in WORDS] + letters
    vocabulary += [(piece, -3.0) for piece in pieces]
    vocabulary = [*dict(vocabulary).items(), ("<mask>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        cls_token="<s>",
        sep_token="</s>",
        mask_token="<mask>",
        model_max_length=48,
        model_input_names=["input_ids", "attention_mask"],
    )


def tiny_simbert(
    pooling: str = "mean", tokenizer: PreTrainedTokenizerFast | None = None, **config: object
) -> SimBert:
    """A random two-layer SimBert in eval mode, its weights large enough to tell tokens apart."""
    tokenizer = tokenizer or wordpiece_tokenizer()
    options = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 64,
        "pad_token_id": tokenizer.pad_token_id,
        "initializer_range": 0.3,
        "sentence_pooling": pooling,
    }
    torch.manual_seed(0)
    model = SimBert(SimBertConfig(**options | config)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.1)
    model.tokenizer = tokenizer
    return model


def save_tiny_simbert(directory: Path, pooling: str = "mean") -> None:
    """Do as ``tiny_simbert(pooling).save_pretrained(directory)``, which takes long, only once."""
    copytree(_saved_simbert(pooling).name, directory, dirs_exist_ok=True)


@cache
def _saved_simbert(pooling: str) -> TemporaryDirectory[str]:
    folder = TemporaryDirectory(prefix="tiny-simbert-")
    tiny_simbert(pooling).save_pretrained(folder.name)
    return folder


def tiny_judge(directory: Path, threshold: float = 0.5, seed: int = 1) -> Judge:
    """A random judge, saved in a directory; its embeddings are not those of ``tiny_simbert``."""
    tokenizer = wordpiece_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=64,
        initializer_range=0.5,
        num_labels=1,
    )
    torch.manual_seed(seed)
    with quiet_transformers():
        BertForSequenceClassification(config).save_pretrained(directory)
        tokenizer.save_pretrained(directory)
        model = CrossEncoder(str(directory), device="cpu")
    judge = Judge(model, threshold, {"start": {"name": "tiny"}, "figures": {}})
    judge.save(directory)
    return judge


class StopAt(TrainerCallback):
    """Stands for a kill: the run ends in the middle of an epoch with an exception."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args, state, control, **kwargs) -> None:
        if state.global_step == self.step:
            raise KeyboardInterrupt


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the run inside killed at the end of a step."""
    build = SimilarityTrainer.__init__

    def build_to_stop(self, *, callbacks=(), **options) -> None:
        build(self, callbacks=[*callbacks, StopAt(step)], **options)

    with monkeypatch.context() as patch:
        patch.setattr(SimilarityTrainer, "__init__", build_to_stop)
        with pytest.raises(KeyboardInterrupt):
            yield


def assert_resumes(run, folder: Path, kills: dict[int, int], monkeypatch) -> None:
    """A run killed at the ends of steps, each with the checkpoint it then has, ends as one that is
    not: ``run(folder, *flags)`` trains into a folder."""
    whole, stopped = folder / "whole", folder / "stopped"
    run(whole)
    for step, saved in kills.items():
        with killed_at(step, monkeypatch):
            run(stopped, "--resume_from_checkpoint=true")
        assert (stopped / f"checkpoint-{saved}").is_dir()
        assert not (stopped / "model.safetensors").exists()
    run(stopped, "--resume_from_checkpoint=true")
    wanted, found = (load_file(each / "model.safetensors") for each in (whole, stopped))
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)


def lines_with(name: str, trainer: SimilarityTrainer) -> list[dict[str, float]]:
    """Give the lines of a run's log that hold a figure, in order."""
    return [line for line in trainer.state.log_history if name in line]


def losses_of(trainer: SimilarityTrainer) -> list[float]:
    """Give the losses that a run has logged, in order."""
    return [line["loss"] for line in lines_with("loss", trainer)]
