"""One trainer for every objective: transformers' Trainer with named losses and own evaluators."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DynamoBackend, broadcast_object_list, gather_object
from torch import Tensor, nn
from torch.utils.data import DataLoader

from simbert_hf.arguments import FOLLOWING, IDLE, SimilarityTrainingArguments, refuse_idle
from simbert_hf.data.batching import Collator, LengthGroupedBatchSampler, own_loader
from simbert_hf.data.sampling import EpochDataset
from simbert_hf.data.streams import PairStream, stream_loader
from simbert_hf.evaluation.evaluators import Evaluator, SimBertEvaluator
from simbert_hf.objectives import contrasts
from simbert_hf.training.compiling import compile_layers
from simbert_hf.training.first_look import warn_of_few_negatives
from simbert_hf.training.gradcache import use_gradcache
from simbert_hf.training.loss_meter import LossMeter, of_all
from simbert_hf.training.packing import use_packing
from simbert_hf.training.saving import SavingTrainer
from simbert_hf.training.sharding import check_sharding, layers_as_units
from simbert_hf.training.stopping import outlive_sigterm
from simbert_hf.utils.atomic import write_text
from simbert_hf.utils.devices import kernels_work

logger = logging.getLogger(__name__)

PARAPHRASES = "paraphrases.md"
TOKENS = ("target", "mlm")  # the names of token losses in a batch
LOADING = (  # a DataLoader's options, set by flags that begin with dataloader_
    "num_workers",
    "pin_memory",
    "persistent_workers",
    "prefetch_factor",
    "multiprocessing_context",
    "in_order",
)
IGNORED = ("compute_loss_func", "compute_metrics", "preprocess_logits_for_metrics", "eval_dataset")


class SimilarityTrainer(SavingTrainer):
    """Train a model with an objective that names its loss parts.

    Args:
        objective: ``(model, batch) -> `` a dataclass of scalar parts, one of them ``total``.
        data_collator: Makes batches, and has a method ``lengths`` that measures examples.
        evaluator: ``model -> `` named metrics, at each evaluation; None with ``eval_strategy`` no.
            ``args.metric_for_best_model`` must be one of its ``names``.
        fresh_head: Substring of the names of parameters that train at
            ``args.head_learning_rate``, for an untrained head; None if there is none.
        **kwargs: As for ``transformers.Trainer``; ``args`` are ``SimilarityTrainingArguments``.

    Raises:
        TypeError: If ``args``, the data set or the collator is of another type.
        ValueError: If an ``eval_strategy`` has no evaluator, this process sees several GPUs, the
            metric is not measured, sentences may be longer than the model accepts, or an argument
            would have no effect.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from simbert_hf.collators import SimCseCollator
        >>> from simbert_hf.data import FixedPairs
        >>> from simbert_hf.gru import CharGru
        >>> from simbert_hf.objectives import SimCseObjective
        >>> model = CharGru.for_texts(["i like tea", "where is it"], min_count=1)
        >>> pairs = FixedPairs(
        ...     {"source": ["i like tea", "where is it"], "target": ["tea", "it is"]}
        ... )
        >>> parts = {"model": model, "train_dataset": pairs, "objective": SimCseObjective()}
        >>> parts["data_collator"] = SimCseCollator(model.rows, model.max_length)
        >>> flags = {"eval_strategy": "no", "save_strategy": "no", "disable_tqdm": True}
        >>> flags |= {"per_device_train_batch_size": 2, "use_cpu": True}
        >>> with TemporaryDirectory() as folder:
        ...     args = SimilarityTrainingArguments(folder, **flags)
        ...     SimilarityTrainer(args=args, **parts).train().global_step  # 3 epochs
        {'train_runtime': ...}
        3
    """

    args: SimilarityTrainingArguments
    train_dataset: EpochDataset[Any] | PairStream
    data_collator: Collator
    # The name "objective" is taken: by a hyperparameter search's metric
    loss_parts: Callable[[nn.Module, dict[str, Tensor]], Any]

    def __init__(
        self,
        *,
        objective: Callable[[nn.Module, dict[str, Tensor]], Any],
        evaluator: Evaluator | None = None,
        fresh_head: str | None = None,
        **kwargs: Any,
    ) -> None:
        check_given(kwargs, evaluator)
        if evaluator is None and kwargs["args"].eval_strategy != "no":
            raise ValueError("There is no evaluator: pass one, or eval_strategy='no'.")
        # Trainer requires evaluation data; the evaluator has its own.
        super().__init__(eval_dataset=None if evaluator is None else (), **kwargs)
        if self.args.n_gpu > 1:
            raise ValueError(
                "Several GPUs are visible to one process; start one process per GPU with "
                "`accelerate launch`, or set CUDA_VISIBLE_DEVICES to one GPU."
            )
        refuse_idle(self.args, IDLE, "this trainer does not use it")
        self.model_accepts_loss_kwargs = False  # so that Trainer divides by accumulation
        self.loss_parts = objective
        self.evaluator = evaluator
        self.fresh_head = fresh_head
        self._check_best_metric()
        self._check_batch()
        self._check_length()
        rate, usual = self.args.head_learning_rate, SimilarityTrainingArguments.head_learning_rate
        if fresh_head is None and rate not in (usual, self.args.learning_rate):
            logger.info("--head_learning_rate %g has no effect: no head is untrained.", rate)
        if self.is_fsdp_enabled:
            check_sharding(self.accelerator.state.fsdp_plugin, self.model, self.args)
            if self._parts():
                raise ValueError("FSDP does not support sampled centres or re-mining: drop it.")
        self._change_model()
        if isinstance(self.train_dataset, PairStream):
            self._check_stream(self.train_dataset)
        self.meter = LossMeter()

    def _change_model(self) -> None:
        """Set up how the model computes, before DDP and FSDP wrap it."""
        model: Any = self.model  # an Embedder
        if self.args.torch_compile:  # the layers; accelerate would compile the whole model
            self.accelerator.state.dynamo_plugin.backend = DynamoBackend.NO
            backend = self.args.torch_compile_backend or "inductor"
            compile_layers(model, backend, self.args.torch_compile_mode)
        if self.args.device.type == "cuda":  # cuDNN plans for a second for each new shape
            torch.backends.cuda.enable_cudnn_sdp(False)
        if self.args.packing:
            use_packing(model)
        elif self._may_fuse(model):
            from simbert_hf.training.fused_attention import use_fused_attention

            use_fused_attention(model)
        elif self.args.bf16 and self.args.device.type == "cpu":
            model.set_attn_implementation("eager")  # its fused backward pass is slow there
        if self.args.gradcache_batch_size:
            use_gradcache(model, self.args.gradcache_batch_size)

    def _may_fuse(self, model: Any) -> bool:
        """Return whether attention may run as one kernel: in 16 bits, in place of SDPA."""
        half = self.args.device.type == "cuda" and (self.args.bf16 or self.args.fp16)
        return (
            half and kernels_work(self.args.device) and model.config._attn_implementation == "sdpa"
        )

    def _check_stream(self, stream: PairStream) -> None:
        stream.check_process(self.args.process_index, self.args.world_size)
        if self.args.length_window > 1:
            batch_size = self.args.per_device_train_batch_size
            stream.group_by_length(batch_size, self.data_collator.lengths)
        self.args.ignore_data_skip = True  # it resumes from its own state

    # ------------------------------------------------------------------ data

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Batch rows of similar length; a streamed dataset has its own order."""
        args, dataset = self.args, self.train_dataset
        batch_size, collate = args.per_device_train_batch_size, self.data_collator
        options: dict[str, Any] = {name: getattr(args, f"dataloader_{name}") for name in LOADING}
        options["generator"] = torch.Generator()  # not the one that a checkpoint restores
        if args.enable_jit_checkpoint:
            options["worker_init_fn"] = outlive_sigterm
        if isinstance(dataset, PairStream):
            logger.info("%s", dataset.sharing(args.dataloader_num_workers))
            return stream_loader(dataset, batch_size, collate, self.accelerator.device, **options)
        sampler = LengthGroupedBatchSampler(
            dataset,
            batch_size,
            self.data_collator.lengths,
            seed=args.order_seed,
            window=args.length_window,
            drop_last=args.dataloader_drop_last,
            process=args.process_index,
            processes=args.world_size,
            even_tokens=args.even_tokens,
        )
        loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate, **options)
        return own_loader(loader, self.accelerator.device)

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Tensor | int | None]:
        """Fetch a step's micro-batches, and add each token loss's denominator to them.

        This is the mean number of labels per micro-batch over all processes: as Trainer and DDP
        average over micro-batches and processes, the result is the mean over all tokens. (The
        similarity losses see the rows of every process, but only one micro-batch at a time.)
        """
        batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        own = [sum(len(batch.get(f"{name}_labels", ())) for batch in batches) for name in TOKENS]
        counts = torch.stack([torch.full((), count, device=device) for count in own])  # no sync
        counts = counts / max(len(batches), 1)
        counts = self.accelerator.reduce(counts, reduction="mean")
        counts = torch.where(counts > 0, counts, 1)  # may be below 1, but not 0
        for batch in batches:
            if isinstance(self.train_dataset, PairStream):
                self.train_dataset.took(batch.pop("position"))
            batch |= {f"{name}_count": count for name, count in zip(TOKENS, counts, strict=True)}
        return batches, items

    # ------------------------------------------------------------------ optimiser and loss

    def _prepare_for_training(self, max_steps: int, *args: Any) -> Any:
        if self.state.global_step >= max_steps:
            done = f"{self.state.global_step} of {max_steps}"
            logger.info("The run already ended at step %s: there is nothing to train.", done)
        if self.model_init is not None:  # each call of train() begins with a new model
            self._change_model()
        self.meter.reset()  # of what a former call, and the time since, have left
        if self.args.process_index:  # else all would drop the same units
            torch.manual_seed(self.args.seed + self.args.process_index)
        if not self.is_fsdp_enabled:
            return super()._prepare_for_training(max_steps, *args)
        with layers_as_units(self.accelerator.state.fsdp_plugin, self.model):
            return super()._prepare_for_training(max_steps, *args)

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        if self.state.global_step >= self.state.max_steps:  # Trainer checks only after a step
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Use a fresh head's own learning rate, and no weight decay for biases and norms."""
        if self.optimizer is None and self.optimizer_cls_and_kwargs is None:
            trained: Any = self.model if model is None else model
            optimizer, options = self.get_optimizer_cls_and_kwargs(self.args, trained)
            groups = {"params": self._parameter_groups(trained)}
            self.optimizer_cls_and_kwargs = optimizer, groups | options
            try:
                return super().create_optimizer(model)
            finally:
                self.optimizer_cls_and_kwargs = None  # Trainer has emptied it
        return super().create_optimizer(model)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> Any:
        """Tell a schedule that follows the metric whether more of it is better."""
        if self.args.lr_scheduler_type in FOLLOWING:
            mode = {"mode": "max" if self.args.greater_is_better else "min"}
            given: Any = self.args.lr_scheduler_kwargs or {}
            self.args.lr_scheduler_kwargs = mode | given
        return super().create_scheduler(num_training_steps, optimizer)

    def _parameter_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        decayed = set(self.get_decay_parameter_names(model))
        groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                decays = self.args.decay_all_parameters or name in decayed
                is_head = self.fresh_head is not None and self.fresh_head in name
                groups.setdefault((decays, is_head), []).append(parameter)
        return [
            {
                "params": parameters,
                "weight_decay": self.args.weight_decay if decays else 0.0,
                "lr": self.args.head_learning_rate if is_head else self.args.learning_rate,
            }
            for (decays, is_head), parameters in groups.items()
        ]

    def compute_loss(  # type: ignore[override]
        self, model: nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any
    ) -> Any:
        """Run the objective and keep its parts for the log."""
        parts = self.loss_parts(model, inputs)
        if not hasattr(parts, "total"):
            raise TypeError(
                f"The objective returns a {type(parts).__name__}: it must return a dataclass of "
                "scalars with a `total`, as SimCseObjective does."
            )
        self.meter.add(parts, inputs)
        return (parts.total, parts) if return_outputs else parts.total

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the parts' means and the throughput to each line of the training log."""
        if "loss" in logs:
            self._check_finite()
            logs |= of_all(gather_object([self.meter.read()]))
            self.meter.reset()
        if isinstance(self.train_dataset, PairStream):  # Trainer omits what came before a resume
            self.state.epoch = self.state.global_step / self.args.max_steps
        super().log(logs, start_time)

    # ------------------------------------------------------------------ evaluation

    def evaluate(
        self, eval_dataset: Any = None, *_: Any, metric_key_prefix: str = "eval", **__: Any
    ) -> dict[str, float]:
        """Evaluate the model, log the metrics, and log paraphrases of the sample sentences.

        Raises:
            ValueError: If there is no evaluator, or data are given, which it would ignore.
        """
        if eval_dataset is not None:
            raise ValueError("The evaluator has its own data: make a new one for other data.")
        if self.evaluator is None:
            raise ValueError(
                "There is nothing to evaluate on: hold out groups with --validation_groups, give "
                "--validation_file or --sts_file, or set --eval_strategy no."
            )
        self._end_steps()
        with self._clock_stopped():
            model = self.accelerator.unwrap_model(self.model)
            # From one process: rounding may differ, and all must agree on the best checkpoint.
            [figures] = broadcast_object_list([self.evaluator(model)])
            metrics = {f"{metric_key_prefix}_{k}": v for k, v in figures.items()}
            self.log(metrics)
            writer = self.evaluator if isinstance(self.evaluator, SimBertEvaluator) else None
            if writer and writer.sentences:
                with self._layers_uncompiled():  # on all: each may hold a shard of the layers
                    samples = writer.paraphrases(model)
                if self.is_world_process_zero():
                    self._show_paraphrases(samples)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def predict(self, *_: Any, **__: Any) -> Any:
        """Raise a ValueError: the model itself encodes and paraphrases."""
        raise ValueError("`predict` is not supported: use the model's `encode` or `gen_synonyms`.")

    def _check_best_metric(self) -> None:
        """Refuse a metric that Trainer would fail to find at the first evaluation."""
        name = (self.args.metric_for_best_model or "").removeprefix("eval_")
        if self.evaluator is None or self.args.eval_strategy == "no" or not name:
            return
        known = self.evaluator.names
        if name in known:
            return
        if name != "loss" or not isinstance(self.evaluator, SimBertEvaluator):
            raise ValueError(
                f"--metric_for_best_model {name} is not measured; choose one of "
                f"{', '.join(f'eval_{each}' for each in known)}."
            )
        logger.info("No loss is evaluated for these weights: eval_top1 picks the best model.")
        self.args.metric_for_best_model, self.args.greater_is_better = "eval_top1", True

    def _check_batch(self) -> None:
        """Refuse batches of a single pair, in which the objective has nothing to contrast."""
        collator = self.data_collator
        unpaired = getattr(collator, "twice", False) and len(getattr(collator, "sentences", ()))
        if not (contrasts(self.loss_parts) or unpaired):
            return
        has_negatives = "negative" in getattr(self.train_dataset, "columns", ())
        processes = self.args.world_size if getattr(self.loss_parts, "gather", True) else 1
        size = self.args.per_device_train_batch_size * processes
        if size == 1 and not has_negatives:
            raise ValueError(
                "--per_device_train_batch_size 1: a single pair has no negatives, and accumulation "
                "adds none; give at least 2. (--gradcache_batch_size saves memory.)"
            )
        if self.is_world_process_zero():
            warn_of_few_negatives(self.train_dataset, size)

    def _check_length(self) -> None:
        """Refuse a collator whose longest row has more tokens than the model has positions."""
        model: Any = self.model
        collator: Any = self.data_collator
        longest = model.positions // (2 if getattr(collator, "targets", False) else 1)
        if getattr(collator, "max_length", 0) > longest:
            raise ValueError(
                f"The collator's max_length {collator.max_length} is out of range: the model's "
                f"{model.positions} positions leave at most {longest} tokens per sentence."
            )

    def _show_paraphrases(self, samples: dict[str, list[Any]]) -> None:
        is_best = self.args.load_best_model_at_end and not self.is_in_train
        lines = ["## Best checkpoint" if is_best else f"## Step {self.state.global_step}", ""]
        for sentence, found in samples.items():
            shown = "; ".join(f"{item.text} ({item.score:.2f})" for item in found) or "(none)"
            lines.append(f"- {sentence} -> {shown}")
        logger.info("\n".join(lines))
        place = Path(str(self.args.output_dir), PARAPHRASES)
        former = place.read_text(encoding="utf-8") if place.exists() else ""
        kept = former.partition(f"{lines[0]}\n")[0]  # not what a killed run showed
        write_text(place, "\n".join([kept + lines[0], *lines[1:], "", ""]))

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        with self._clock_stopped():
            super()._save_checkpoint(model, trial)

    def _load_parts(self, folder: Path) -> None:
        super()._load_parts(folder)
        if isinstance(self.train_dataset, PairStream):
            self.train_dataset.load(folder, self.args.dataloader_num_workers)

    def _save_parts(self, folder: Path) -> None:
        super()._save_parts(folder)
        if isinstance(self.train_dataset, PairStream):
            self.train_dataset.save(folder)

    def _layers_uncompiled(self) -> AbstractContextManager[Any]:
        """Run layers eagerly: a graph for each layer's place in a cache would exhaust Dynamo."""
        compiled = self.args.torch_compile
        return torch.compiler.set_stance("force_eager") if compiled else nullcontext()

    @contextmanager
    def _clock_stopped(self) -> Iterator[None]:
        """Exclude the block's time from the training throughput."""
        start = time.perf_counter()
        yield
        self.meter.started += time.perf_counter() - start


def check_given(given: dict[str, Any], evaluator: Evaluator | None) -> None:
    """Raise a TypeError or ValueError for arguments that only transformers' Trainer accepts."""
    if not (evaluator is None or hasattr(evaluator, "names")):
        raise TypeError(
            f"evaluator is a {type(evaluator).__name__}: give a StsEvaluator, RetrievalEvaluator "
            "or another that has the `names` of its metrics."
        )
    args, dataset, collator = (given.get(n) for n in ("args", "train_dataset", "data_collator"))
    if not isinstance(args, SimilarityTrainingArguments):
        raise TypeError(f"args={type(args).__name__}: give SimilarityTrainingArguments.")
    if not isinstance(dataset, EpochDataset | PairStream):
        raise TypeError(
            f"train_dataset is a {type(dataset).__name__}: wrap it in a PairDataset, FixedPairs or "
            "PairStream."
        )
    if not hasattr(collator, "lengths"):
        raise TypeError(
            f"data_collator is a {type(collator).__name__}: give a PairCollator, SimCseCollator or "
            "another with a method `lengths`."
        )
    for name in IGNORED:
        if given.get(name) is not None:
            raise ValueError(f"{name} is not supported: use `objective` and `evaluator`.")
