"""Base class of this package's encoders: loading, saving, uploading and ``encode``."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

import numpy as np
import torch
from huggingface_hub import CommitInfo
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from simbert_hf.modeling.checkpoint import finish_checkpoint
from simbert_hf.modeling.loading import lacking, loading, quiet_transformers
from simbert_hf.modeling.modules import Module, take_vector_layers
from simbert_hf.modeling.reading import HUB_ARGUMENTS, OWN_CODE, check_tokenizer, sentence_limit
from simbert_hf.pooling import normalize
from simbert_hf.rows import MAY_BE_UNKNOWN, Rows, are_unknown, check_texts, warn_of_unread
from simbert_hf.utils.atomic import share_weights
from simbert_hf.utils.checks import check_count

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from simbert_hf.hub import Plan

logger = logging.getLogger(__name__)

PEFT_PARTS = (".base_layer.", ".original_module.")  # of names of weights that get_peft_model wraps


class Embedder(PreTrainedModel):
    """A model whose forward pass returns ``sentence_embedding``.

    Its config stores ``sentence_pooling``, and ``whitening_dim`` if the vectors are whitened.

    Attributes:
        tokenizer: Loaded and saved with the model; None for a model built from a config.
        whitening: Frozen linear map of the pooled vectors (:mod:`simbert_hf.modeling.whitening`),
            or None.
        training_head: Layers applied to the sentence vectors in training mode only, or None.
    """

    tokenizer: PreTrainedTokenizerBase | None
    whitening: nn.Linear | None
    training_head: nn.Module | None
    pads_right = False  # whatever the tokenizer's padding side
    cls_mode = "cls"  # sentence-transformers' name for the pooling that takes [CLS]

    @classmethod
    def load_weights(
        cls,
        name_or_path: str | os.PathLike[str],
        dispensable: tuple[str, ...],
        modules: Sequence[Module] = (),
        **kwargs: Any,
    ) -> tuple[Self, set[str], bool]:
        """Load the weights as transformers does, and layers after the pooling from the modules.

        Args:
            name_or_path: Directory or ``org/name``.
            dispensable: Substrings of the names of weights that may be missing.
            modules: The checkpoint's sentence-transformers modules.
            **kwargs: As in transformers.

        Returns:
            The model, the names of the missing weights, and whether the layers after the pooling
            were taken from the modules.

        Raises:
            ValueError: If other weights are missing or have the wrong shape.
        """
        with loading(name_or_path):
            loaded: Any = super().from_pretrained(name_or_path, output_loading_info=True, **kwargs)
            model: Self = loaded[0]
            hub = {name: kwargs[name] for name in HUB_ARGUMENTS if name in kwargs}
            taken = take_vector_layers(model, modules, name_or_path, hub)
        missing, misshapen = set(loaded[1]["missing_keys"]) - taken, loaded[1]["mismatched_keys"]
        broken = sorted(key for key in missing if not any(part in key for part in dispensable))
        if broken or misshapen:
            raise lacking(name_or_path, broken or [*map(str, misshapen)])
        if model.whitening is not None:
            model.whitening.requires_grad_(False)  # loading makes every weight trainable
        return model, missing, bool(taken)

    def save_pretrained(  # type: ignore[override]
        self, save_directory: str | os.PathLike[str], **kwargs: Any
    ) -> None:
        """Save the model to a directory: weights (safetensors), config, tokenizer, modules.

        A model of one of transformers' architectures then loads in ``AutoModel`` and
        ``SentenceTransformer``, and with an LM head in ``AutoModelForMaskedLM``, without this
        package and without remote code. Arguments as in transformers.

        Raises:
            NotADirectoryError: If the directory is a file.
            ValueError: If ``push_to_hub`` is set, which would upload only some of the files, or
                the model has an adapter, which transformers would save alone, or with names that
                no loader knows.
        """
        if Path(save_directory).is_file():
            raise NotADirectoryError(f"{save_directory} is a file: name a folder.")
        if kwargs.pop("push_to_hub", False):
            raise ValueError("Upload with model.push_to_hub(repo_id), which sends every file.")
        if getattr(self, "_hf_peft_config_loaded", False):
            raise ValueError(
                "The model has an adapter (add_adapter), and transformers would save only that. "
                "Use peft.get_peft_model instead, and save the result of merge_and_unload()."
            )
        given = kwargs.pop("state_dict", None)
        weights = self.weights_to_save(self.state_dict() if given is None else given)
        if any(part in name for name in weights for part in PEFT_PARTS):
            raise ValueError(
                "The model holds an adapter of peft, beside which no loader would find the model's "
                "own weights. Save the result of merge_and_unload()."
            )
        with quiet_transformers():  # saving empties the dictionary that it is given
            super().save_pretrained(save_directory, state_dict=dict(weights), **kwargs)
        if kwargs.get("is_main_process", True):
            self.finish_saving(Path(save_directory), weights)
            share_weights(Path(save_directory))

    def weights_to_save(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Select the weights to save."""
        return weights

    def finish_saving(self, directory: Path, weights: dict[str, Tensor]) -> None:
        """Add to a saved directory what plain transformers does not write."""
        finish_checkpoint(self, directory, weights)

    def push_to_hub(  # type: ignore[override]
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
        commit_message: str = "Upload model",
        card: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
    ) -> CommitInfo | Plan:
        """Upload everything that ``save_pretrained`` writes, and a model card, in one commit.

        See :func:`simbert_hf.hub.push` for details and errors. To upload a folder with its ONNX
        files and figures, use ``scripts/push_to_hub.py``.

        Args:
            repo_id: ``org/name``; a bare name belongs to the token's owner.
            private: Make the repository private; None for the owner's default.
            revision: Branch, created if needed.
            token: Hub token; the stored one if None.
            commit_message: First line of the commit's message.
            card: A ``README.md`` to upload. None keeps the repository's, or writes a plain one.
            dry_run: Return the plan, which prints as a list of files and sizes, and upload nothing.

        Returns:
            The commit, or the plan of a dry run.
        """
        from simbert_hf.cards import CardArguments, write_card  # imports the evaluations
        from simbert_hf.hub import plan_upload, push  # imports checkpoints

        self.loaded_tokenizer()
        validate_repo_id(repo_id)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            if card is None:
                write_card(CardArguments(model=folder, repo_id=repo_id))
            else:
                shutil.copyfile(card, Path(folder, "README.md"))
            plan = plan_upload(folder)
            if dry_run:
                return plan
            return push(
                plan,
                repo_id,
                private=private,
                revision=revision,
                token=token,
                commit_message=commit_message,
                keep_card=card is None,
            )

    def load_tokenizer(self, name_or_path: str | os.PathLike[str], hub: dict[str, Any]) -> None:
        """Load the tokenizer that belongs to the weights; raise a ValueError if none fits."""
        limit = sentence_limit(name_or_path, hub)
        with loading(name_or_path):
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                name_or_path, **hub, **limit, **OWN_CODE
            )
        check_tokenizer(name_or_path, tokenizer, self.config.vocab_size)
        self.tokenizer = tokenizer

    def add_vector_modules(self) -> None:
        """Create the layers after the pooling, as configured."""
        self.tokenizer = self.training_head = self.whitening = None
        dim = getattr(self.config, "whitening_dim", None)
        if dim is not None:
            self.whitening = nn.Linear(self.config.hidden_size, dim)

    def add_training_head(self) -> None:
        """Pass the vector through a fresh Dense and tanh while training (SimCSE's MLP head)."""
        dense = nn.Linear(self.config.hidden_size, self.config.hidden_size)
        self._init_weights(dense)
        self.training_head = nn.Sequential(dense, nn.Tanh()).to(self.device, self.dtype)

    def finish_vectors(self, pooled: Tensor) -> Tensor:
        """Apply the layers after the pooling. (B, D) -> (B, D), or (B, whitening_dim)."""
        vectors: Tensor = pooled if self.whitening is None else self.whitening(pooled)
        if self.training and self.training_head is not None:
            vectors = self.training_head(vectors)
        return vectors

    def sentence_transformer(self) -> SentenceTransformer:
        """Return a SentenceTransformer that shares this model's weights, to use and to train.

        It is saved like this model, LM head included.
        """
        from simbert_hf.modeling.sentence_transformers import EmbedderTransformer  # slow to import

        return EmbedderTransformer(self)

    @property
    def vector_layers(self) -> dict[str, nn.Linear]:
        """The linear layers applied to pooled vectors, by name, in order."""
        return {} if self.whitening is None else {"whitening": self.whitening}

    @property
    def dimension(self) -> int:
        """D, the dimension of a sentence vector."""
        size: int = self.config.hidden_size
        return size if self.whitening is None else self.whitening.out_features

    @property
    def pooling_mode(self) -> str:
        """sentence-transformers' name for the pooling of one layer's hidden states."""
        return "mean" if "mean" in self.config.sentence_pooling else self.cls_mode

    @property
    def rows(self) -> Rows:
        """Row builder for the model's tokenizer; raises a ValueError if there is none."""
        raise NotImplementedError

    def loaded_tokenizer(self) -> PreTrainedTokenizerBase:
        """Return the tokenizer; raise a ValueError if the model has none."""
        if self.tokenizer is None:
            raise ValueError(
                f"This {type(self).__name__} has no tokenizer; load it with "
                f"{type(self).__name__}.from_pretrained, or set model.tokenizer."
            )
        return self.tokenizer

    @property
    def positions(self) -> int:
        """Longest row in tokens that the position embeddings allow."""
        limit: int = getattr(self.config, "max_position_embeddings", -1)
        if limit < 0:  # XLNet's are relative
            return sys.maxsize
        embeddings = getattr(self.base_model, "embeddings", None)
        padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
        return limit if padding is None else limit - padding - 1  # RoBERTa counts from there

    @property
    def max_length(self) -> int:
        """Longest row in tokens: the tokenizer's limit, at most the position embeddings'."""
        limit = self.positions
        return min(limit, self.tokenizer.model_max_length) if self.tokenizer else limit

    @torch.no_grad()
    def encode(
        self,
        texts: str | Sequence[str],
        *,
        batch_size: int = 64,
        normalize_embeddings: bool = True,
        show_progress_bar: bool = False,
    ) -> np.ndarray:
        """Embed sentences.

        Args:
            texts: One text, or several.
            batch_size: Texts per forward pass; texts of similar length share one.
            normalize_embeddings: Scale vectors to length 1, so that a dot product is the cosine.
            show_progress_bar: Show a progress bar on stderr.

        Returns:
            float32, shape (N, D); (D,) for a single text.

        Raises:
            TypeError: If a text is not a string.
            ValueError: If a text is empty, the batch size is below 1, or there is no tokenizer.
        """

        def embed(inputs: dict[str, Tensor]) -> np.ndarray:
            found = self(**{k: v.to(self.device) for k, v in inputs.items()}).sentence_embedding
            found = found.float()  # first: 16 bits are too few for a length of 1
            found = normalize(found) if normalize_embeddings else found
            return found.cpu().numpy()

        with evaluating(self):
            return encode_by(embed, self, texts, batch_size, show_progress_bar)


def encode_by(
    embed: Callable[[dict[str, Tensor]], np.ndarray],
    model: Any,
    texts: str | Sequence[str],
    batch_size: int,
    show_progress_bar: bool = False,
) -> np.ndarray:
    """Embed sentences in batches of similar length.

    Args:
        embed: Turns padded rows into vectors, (B, D).
        model: An object with ``rows``, ``max_length`` and ``dimension``.
        texts: One text, or several.
        batch_size: Texts per batch.
        show_progress_bar: Show a progress bar on stderr.

    Returns:
        float32, shape (N, D); (D,) for a single text.

    Raises:
        TypeError: If a text is not a string.
        ValueError: If a text is empty, or the batch size is not an integer of at least 1.
    """
    check_count("batch_size", batch_size)
    some, builder = check_texts(texts), model.rows
    rows = builder.sources(some, model.max_length)
    read = zip(some, rows, strict=True)
    foreign = [builder.ids(row) for text, row in read if MAY_BE_UNKNOWN.search(text)]
    if foreign and any(are_unknown(builder.tokenizer, foreign)):
        warn_of_unread()
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    vectors = np.zeros((len(rows), model.dimension), dtype=np.float32)
    starts = range(0, len(order), batch_size)
    for start in tqdm(starts, "Encoding", disable=not show_progress_bar):
        chosen = order[start : start + batch_size]
        vectors[chosen] = embed(builder.pad([rows[i] for i in chosen]))
    return vectors[0] if isinstance(texts, str) else vectors


_SWITCHING = Lock()
_EVALUATING: WeakKeyDictionary[nn.Module, tuple[int, list[nn.Module]]] = WeakKeyDictionary()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch dropout off inside the block, and on again when the last thread has left it."""
    with _SWITCHING:
        users, training = _EVALUATING.get(model, (0, []))
        training += [module for module in model.modules() if module.training]
        _EVALUATING[model] = users + 1, training
        model.eval()
    try:
        yield
    finally:
        with _SWITCHING:
            users, training = _EVALUATING.pop(model)
            if users > 1:
                _EVALUATING[model] = users - 1, training
            for module in training if users == 1 else ():
                module.training = True
