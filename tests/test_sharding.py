"""FSDP2 over two and four gloo processes, by hand and through accelerate, against one process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from accelerate.utils.launch import prepare_multi_gpu_env
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from torch.distributed.fsdp import FSDPModule, fully_shard

from scripts import train_simbert
from simbert_hf import SimBert
from simbert_hf.collators import PairCollator
from simbert_hf.margin.classes import add_centres
from simbert_hf.objectives import SimBertObjective
from simbert_hf.trainer import SimilarityTrainer
from simbert_hf.training.gradcache import use_gradcache
from simbert_hf.training.sharding import NEEDED, check_sharding, layers_as_units
from simbert_hf.triplet.objective import add_pair_classifier
from tests.processes import run_processes
from tests.tiny import WORDS, tiny_simbert

# As many target tokens on both sides, so that the mean of two means is the mean.
PAIRS = [
    {"source": " ".join(WORDS[i : i + 3]), "target": " ".join(WORDS[i + 5 : i + 8]), "group": i,
     "seed": i}
    for i in range(8)
]  # fmt: skip


def gradients(pairs, micro: int, sharded: bool) -> dict[str, torch.Tensor]:
    model = tiny_simbert()
    batch = PairCollator(model.rows, 24)(pairs)
    if micro:
        use_gradcache(model, micro)
    if sharded:
        for layer in model.bert.encoder.layer:
            fully_shard(layer)
        fully_shard(model)
    SimBertObjective()(model, batch).total.backward()
    found = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    if not sharded:
        return found
    assert all(g.to_local().numel() < g.numel() for g in found.values() if g.shape[0] > 1)
    return {name: gradient.full_tensor() for name, gradient in found.items()}


def test_weights_that_no_forward_pass_gathers_are_refused() -> None:
    plugin = SimpleNamespace(**NEEDED)
    args = SimpleNamespace(optim="adamw_torch", save_strategy="steps")
    model = tiny_simbert()
    check_sharding(plugin, model, args)
    add_centres(model, (3, 1, model.config.hidden_size), 0, center_loss=False)
    with pytest.raises(
        ValueError, match="does not support a model's class_centres: launch without"
    ):
        check_sharding(plugin, model, args)
    model = tiny_simbert()
    add_pair_classifier(model)
    with pytest.raises(ValueError, match="does not support a model's pair_classifier"):
        check_sharding(plugin, model, args)


def test_layers_are_units_unless_others_are_named() -> None:
    model = tiny_simbert()
    for named, wanted in ((None, ["BertLayer"]), (["BertSelfAttention"], ["BertSelfAttention"])):
        plugin = SimpleNamespace(transformer_cls_names_to_wrap=named)
        with layers_as_units(plugin, model):
            assert plugin.transformer_cls_names_to_wrap == wanted
            assert model.get_input_embeddings() is model.get_output_embeddings() is None
        assert model.get_input_embeddings() is model.bert.embeddings.word_embeddings
        assert model.get_output_embeddings() is not None


def work(rank: int, folder: Path) -> None:
    world = torch.distributed.get_world_size()
    torch.distributed.device_mesh.init_device_mesh("cpu", (world,))
    mine = slice(rank * len(PAIRS) // world, (rank + 1) * len(PAIRS) // world)
    for micro in (0, 3):
        found = gradients(PAIRS[mine], micro, sharded=True)
        torch.save(found, folder / f"{micro}-{rank}.pt")


@pytest.mark.multiproc
@pytest.mark.parametrize("world", [2, 4])
def test_sharded_weights_get_the_gradients_of_one_process(tmp_path: Path, world: int) -> None:
    run_processes(work, world, tmp_path)
    wanted = gradients(PAIRS, 0, sharded=False)
    assert len(wanted) > 30
    for micro in (0, 3):
        for rank in range(world):
            found = torch.load(tmp_path / f"{micro}-{rank}.pt")
            assert found.keys() == wanted.keys()
            for name, gradient in wanted.items():
                torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-5, msg=name)


# Through accelerate and the trainer ---------------------------------------------------------------

LAUNCH = (
    "--use_fsdp --fsdp_version 2 --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP "
    "--fsdp_state_dict_type FULL_STATE_DICT --fsdp_cpu_ram_efficient_loading false"
)
FLAGS = (
    "--save_strategy=steps --save_steps=2 --use_cpu --report_to=none --disable_tqdm=true "
    "--length_window=1 --logging_steps=1 --max_length=24 --warmup_steps=0 "
    "--lr_scheduler_type=constant --mlm_weight=0.5"
).split()
EQUAL = (  # plain SGD without dropout, so that weights change by their gradients
    "--max_steps=3 --optim=sgd --save_strategy=no --learning_rate=0.1 --head_learning_rate=0.1 "
    "--hidden_dropout=0 --attention_dropout=0 --validation_groups=4 --eval_strategy=steps "
    "--eval_steps=2 --eval_on_start=true --sample_sentences what"
).split()
RESUMED = "--hidden_dropout=0.2 --validation_groups=0 --eval_strategy=no".split()
RUNS = {
    "plain": EQUAL,
    "cached": [*EQUAL, "--gradcache_batch_size=3"],
    "accumulated": [*EQUAL, "--gradient_accumulation_steps=2"],
    "whole": [*RESUMED, "--max_steps=4"],
    "halved": [*RESUMED, "--max_steps=2"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("setting")
    tiny_simbert("linear_pooler").save_pretrained(folder / "start")
    rows = [
        {"text": " ".join(WORDS[i : i + 1 + i % 5]), "synonyms": [" ".join(WORDS[i : i + 9])]}
        for i in range(28)
    ]
    (folder / "groups.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def train(folder: Path, out: Path, run: str, *more: str, world: int = 2) -> SimilarityTrainer:
    pairs = 8 // world // (2 if run == "accumulated" else 1)  # of a micro-batch of a process
    return train_simbert.main(
        [f"--model_name_or_path={folder / 'start'}", f"--train_file={folder / 'groups.jsonl'}",
         f"--output_dir={out}", f"--per_device_train_batch_size={pairs}", *FLAGS, *RUNS[run], *more]
    )  # fmt: skip


def launch(command: str) -> None:
    """Set what `accelerate launch` sets, and let accelerate shard on CPUs as on GPUs.

    It reads its FSDP plugin only where the processes have accelerators.
    """
    arguments = launch_command_parser().parse_args([*command.split(), "script.py"])
    found = prepare_multi_gpu_env(_validate_launch_command(arguments)[0])
    os.environ.update({k: v for k, v in found.items() if k.startswith(("FSDP_", "ACCELERATE_"))})
    make = AcceleratorState.__init__

    def made(state: AcceleratorState, *args: object, **options: object) -> None:
        make(state, *args, **options)
        if options.get("fsdp_plugin") is not None:
            state.fsdp_plugin = options["fsdp_plugin"]
            state.distributed_type = DistributedType.FSDP
            PartialState._shared_state["distributed_type"] = DistributedType.FSDP

    AcceleratorState.__init__ = made


def work_sharded(rank: int, folder: Path) -> None:
    launch(LAUNCH)
    for run in RUNS:
        trainer = train(folder, folder / run, run)
        for module in (trainer.model, *trainer.model.bert.encoder.layer):
            assert isinstance(module, FSDPModule)
            module.reshard()
        for parameter in trainer.model.parameters():
            assert parameter.to_local().numel() < parameter.numel() or len(parameter) == 1
        torch.save(trainer.state.log_history, folder / f"{run}-{rank}.pt")
    more = ["--max_steps=4", "--resume_from_checkpoint=true"]
    train(folder, folder / "halved", "halved", *more)
    with pytest.raises(ValueError, match="FSDP cannot resume SGD"):
        train(folder, folder / "refused", "plain", "--save_strategy=steps")
    os.environ["FSDP_STATE_DICT_TYPE"] = "SHARDED_STATE_DICT"
    with pytest.raises(ValueError, match="SHARDED_STATE_DICT is not supported: give"):
        train(folder, folder / "refused", "whole")


def work_four(rank: int, folder: Path) -> None:
    launch(LAUNCH)
    history = train(folder, folder / "four", "plain", world=4).state.log_history
    torch.save(history, folder / f"four-{rank}.pt")


@pytest.fixture(scope="module")
def sharded(folder: Path) -> Path:
    """Outputs of all the runs."""
    run_processes(work_sharded, 2, folder, seconds=480)
    run_processes(work_four, 4, folder)
    return folder


@pytest.mark.multiproc
@pytest.mark.parametrize("run", ["plain", "cached", "accumulated", "four"])
def test_a_sharded_run_is_that_of_one_process(sharded: Path, tmp_path: Path, run: str) -> None:
    alone = train(sharded, tmp_path, run if run == "accumulated" else "plain", world=1)
    for rank in range(4 if run == "four" else 2):
        history = torch.load(sharded / f"{run}-{rank}.pt")
        assert len(history) == len(alone.state.log_history) > 5
        for found, wanted in zip(history, alone.state.log_history, strict=True):
            same = {"loss", "grad_norm", *(name for name in wanted if name.startswith("eval_"))}
            for name in same & wanted.keys():
                assert found[name] == pytest.approx(wanted[name], rel=1e-4), name
    assert files(sharded / run) == files(tmp_path)
    start, wanted, found = (
        load_file(place / "model.safetensors")
        for place in (sharded / "start", tmp_path, sharded / run)
    )
    assert found.keys() == wanted.keys()
    for name, weight in wanted.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-5, msg=name)
    assert max((wanted[name] - start[name]).abs().max() for name in start) > 0.01


def files(directory: Path) -> set[str]:
    """Names of a saved model's files, without those of the checkpoints on the way."""
    found = (path.relative_to(directory) for path in directory.rglob("*") if path.is_file())
    return {str(path) for path in found if not path.parts[0].startswith("checkpoint-")}


@pytest.mark.multiproc
def test_sharded_checkpoints_are_whole(sharded: Path) -> None:
    for place in (sharded / "plain", sharded / "whole" / "checkpoint-2"):
        model = SimBert.from_pretrained(place)
        assert model.has_lm_head
        assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
        theirs = SentenceTransformer(str(place), device="cpu").encode(["what time is it"])
        assert model.encode(["what time is it"]) == pytest.approx(theirs, abs=1e-5)


@pytest.mark.multiproc
def test_a_sharded_run_goes_on(sharded: Path) -> None:
    whole, halved = (load_file(sharded / run / "model.safetensors") for run in ("whole", "halved"))
    assert all(torch.equal(halved[name], whole[name]) for name in whole)
