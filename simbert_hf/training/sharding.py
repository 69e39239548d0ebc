"""What accelerate's FSDP2 needs to know about a BERT."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from transformers import TrainingArguments

NEEDED = {
    "fsdp_version": "2",
    "state_dict_type": "FULL_STATE_DICT",  # a sharded checkpoint is not portable
    # The other processes' weights would be empty until the model is sharded, and no longer tied.
    "cpu_ram_efficient_loading": "False",
}
FLAGS = (
    "--fsdp_version 2 --fsdp_state_dict_type FULL_STATE_DICT --fsdp_cpu_ram_efficient_loading false"
)


def check_sharding(plugin: Any, model: Any, args: TrainingArguments) -> None:
    """Refuse settings with which a run would fail, or save incomplete checkpoints.

    Raises:
        ValueError: If the settings are not the required ones, or the model has weights that no
            forward pass gathers.
    """
    for name in ("class_centres", "pair_classifier"):
        if getattr(model, name, None) is not None:
            raise ValueError(f"FSDP does not support a model's {name}: launch without --use_fsdp.")
    for name, needed in NEEDED.items():
        found = str(getattr(plugin, name)).removeprefix("StateDictType.")
        if found != needed:
            raise ValueError(
                f"FSDP with {name} {found} is not supported: give `accelerate launch` {FLAGS}."
            )
    if args.optim == "sgd" and args.save_strategy != "no":
        raise ValueError(
            "FSDP cannot resume SGD, which has no state: choose another --optim, or set "
            "--save_strategy no."
        )


def own_shards(model: nn.Module) -> Iterator[Tensor]:
    """Yield a model's weights, or this process's shards of them."""
    for weight in model.parameters():
        yield weight.to_local() if hasattr(weight, "to_local") else weight


@contextmanager
def layers_as_units(plugin: Any, model: Any) -> Iterator[None]:
    """Let accelerate shard each repeated layer as a unit, and all the rest as one.

    By default it would also make units of the embeddings and of the LM head's decoder, which is
    tied to them. But the decoder's bias is tied to a name outside, and torch refuses a weight in
    two units.

    Args:
        plugin: Accelerate's FSDP plugin; layers that it names are left as they are.
        model: A transformer, its repeated layers in ``nn.ModuleList``.
    """
    if plugin.transformer_cls_names_to_wrap is None:
        stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
        kinds = {type(layer).__name__ for stack in stacks for layer in stack}
        plugin.transformer_cls_names_to_wrap = sorted(kinds)
    model.get_input_embeddings = model.get_output_embeddings = lambda: None
    try:
        yield
    finally:
        del model.get_input_embeddings, model.get_output_embeddings
