"""Training the language models with transformers' `Trainer` (Peters et al. 2018, section 3.4)."""

import inspect
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerState, TrainingArguments, get_scheduler
from transformers.trainer import (
    OPTIMIZER_NAME,
    SCALER_NAME,
    SCHEDULER_NAME,
    TRAINER_STATE_NAME,
    TRAINING_ARGS_NAME,
)
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, HubStrategy, IntervalStrategy, SchedulerType

from ..configuration_elmo import ElmoConfig
from ..evaluation import evaluation_mode
from ..modeling_elmo import State
from ..modeling_pretraining_elmo import ElmoForPreTraining
from ..tokenization_elmo import ElmoTokenizer
from .checkpoints import (
    DATA_FILE,
    STATE_FILE,
    last_whole_checkpoint,
    mark_whole,
    read_record,
    remove_old,
    require_files,
)
from .data import PackedWindows, PaddedTexts, WordEncoder
from .exchange import gathered, mean_rows
from .perplexity import Perplexity, nll_totals
from .text import DatasetTexts, TextFiles

# Arguments that decide an update: a resumed training has those of the interrupted one.
RECIPE = (
    *("optim", "learning_rate", "lr_scheduler_type", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"),
    *("max_grad_norm", "gradient_accumulation_steps", "warmup_steps", "bf16", "fp16", "seed"),
    *("adagrad_accumulator", "loss_scale", "reset_state", "lr_scheduler_kwargs", "optim_args"),
    *("average_tokens_across_devices", "optim_target_modules", "neftune_noise_alpha", "tf32"),
    *("metric_for_best_model", "greater_is_better"),  # that the best model so far is compared by
)
# Those of them that earlier versions did not record, and what they are taken to have been.
RECIPE_DEFAULTS = {
    "average_tokens_across_devices": True,
    "optim_target_modules": None,
    "neftune_noise_alpha": None,
    "tf32": None,
    "metric_for_best_model": "loss",
    "greater_is_better": False,
}


# Arguments of what Trainer does itself, and this one in its own way.
WITHOUT_EFFECT = {
    "data_seed": "the order of the text is that of seed",
    "train_sampling_strategy": "the layout and shuffle_block say in which order text is read",
    "label_smoothing_factor": "the loss is that of the words as they are",
    "per_device_eval_batch_size": "perplexities do not depend on batches",
    "eval_accumulation_steps": "perplexities are sums, made as the text is read",
    "bf16_full_eval": "perplexities are computed in the type of the weights",
    "fp16_full_eval": "perplexities are computed in the type of the weights",
}
# Arguments of Trainer itself, likewise.
ARGUMENTS_WITHOUT_EFFECT = {
    "data_collator": "train_dataset makes whole batches",
    "compute_metrics": "evaluate computes the perplexities of both language models",
    "preprocess_logits_for_metrics": "evaluate computes the perplexities of both language models",
    "compute_loss_func": "the loss is that of the words as they are",
}


@dataclass
class ElmoPreTrainingArguments(TrainingArguments):
    """
    transformers' arguments with the published recipe as defaults (bilm-tf, `bin/train_elmo.py`).

    Args:
        adagrad_accumulator: the initial value of Adagrad's accumulators (`optim="adagrad"`).
        loss_scale: the loss is multiplied by it before the backward pass. bilm-tf differentiates the loss summed over
            the 20 words of a window; Adagrad's accumulator and the clipping at 10 are tuned to gradients of that size.
            Logged losses are not scaled.
        reset_state: a row whose window begins with a new sentence starts it as a call does, from zero state but for
            `settled_start` (the others carry theirs).
            bilm-tf never resets, and its models predict the first words after zero state badly: of a small one early in
            its training the perplexity of single sentences is 479 in place of 251 (conversion/README.md).
        greater_is_better: of `metric_for_best_model`; losses and perplexities, all that there is, are better lower.
        hub_strategy: with `push_to_hub`, when to upload: `"end"` only. The others would upload `training_args.bin`,
            with the paths and tokens in it.
        restore_callback_states_from_checkpoint: a resumed run counts on where the interrupted one was, for early
            stopping.
    """

    optim: str = "adagrad"
    learning_rate: float = 0.2
    lr_scheduler_type: str = "constant"
    max_grad_norm: float = 10.0
    num_train_epochs: float = 10
    per_device_train_batch_size: int = 128
    logging_steps: float = 100
    hub_strategy: HubStrategy | str = "end"
    restore_callback_states_from_checkpoint: bool = True
    logging_nan_inf_filter: bool = False
    greater_is_better: bool | None = False
    adagrad_accumulator: float = field(default=1.0, metadata={"help": "initial value of Adagrad's accumulators"})
    loss_scale: float = field(default=20.0, metadata={"help": "the loss is multiplied by it before the backward pass"})
    reset_state: bool = field(
        default=False, metadata={"help": "a row whose window begins with a sentence starts it from zero state"}
    )

    @property
    def own_optimizer_settings(self) -> dict[str, Any]:
        """What the optimizer takes besides transformers' arguments."""
        return {"initial_accumulator_value": self.adagrad_accumulator, "fused": True} if self.optim == "adagrad" else {}

    @property
    def device(self) -> torch.device:
        """As transformers has it, but without the number that accelerate gives to the CPU of each of several processes:
        with it `torch.load`, here and in Trainer, loads no checkpoint."""
        device = super().device
        return torch.device("cpu") if device.type == "cpu" else device


class ElmoPreTrainer(Trainer):
    """
    A `Trainer` for [`ElmoForPreTraining`] that carries the LSTM state from batch to batch and resumes exactly.

    Where batches are windows ([`PackedWindows`]), each starts from the final state of the one before it. A checkpoint
    contains the position in the text and that state, so a run that was interrupted and resumed makes the same updates
    as an uninterrupted one. Several processes (torchrun) make updates together, each with the words of its own part of
    the text; a part that ends before the others begins again.

    Where nothing needs the number of words, none are counted before the first update, and `epoch` in the logs is the
    share of `max_steps`: they are counted for `num_train_epochs`, for what is done each epoch (`save_strategy`,
    `eval_strategy`, `logging_strategy`), and with `gradient_accumulation_steps`, whose last update of an epoch is made
    of the batches that are left.

    A training that diverged, so that its loss, the norm of its gradients or a weight is not finite, ends in an error
    when it would next be logged, evaluated or saved; nothing of it is saved.

    Args:
        model: the language models.
        args: the recipe.
        train_dataset: made with this process's rank; it yields whole batches.
        eval_dataset: texts for `evaluate`: perplexities by the full softmax, each sentence from zero state.
        processing_class: the tokenizer with the vocabulary; it is saved with each checkpoint.
        init_sha256: of the weights that the training begins with, where it adapts some (`model_fingerprint`): it is
            resumed with the same ones only.
        **kwargs: as in `Trainer`.

    Raises:
        ValueError: the dataset was made for another process, one process would use several GPUs, `hub_strategy` is not
            `"end"`, `save_only_model` would leave nothing to resume from, `loss_scale` is not over 0, the best model is
            asked for and none is evaluated, or an argument is about batches, metrics or a loss that Trainer makes.
    """

    def __init__(
        self,
        model: ElmoForPreTraining,
        args: ElmoPreTrainingArguments,
        train_dataset: PackedWindows | PaddedTexts,
        eval_dataset: TextFiles | DatasetTexts | None = None,
        processing_class: ElmoTokenizer | None = None,
        *,
        init_sha256: str | None = None,
        **kwargs: Any,
    ) -> None:
        if (train_dataset.rank, train_dataset.world_size) != (args.process_index, args.world_size):
            raise ValueError(
                f"train_dataset was made for process {train_dataset.rank} of {train_dataset.world_size}, but this "
                f"is process {args.process_index} of {args.world_size}: make it with rank=args.process_index, "
                "world_size=args.world_size."
            )
        for name in ("auto_find_batch_size", "ignore_data_skip", "dataloader_num_workers", "dataloader_drop_last"):
            if getattr(args, name):
                raise ValueError(f"{name} is {getattr(args, name)!r}, but batches are made here, one after another.")
        if args.save_only_model:
            raise ValueError(
                "save_only_model is True, but a training is resumed from whole checkpoints, with the optimizer's "
                "state: leave it out."
            )
        if args.load_best_model_at_end and args.eval_strategy == IntervalStrategy.NO:
            raise ValueError(
                "load_best_model_at_end is True, but eval_strategy is 'no', so no model is the best: give "
                "eval_strategy='steps' (--set eval_strategy=steps) and text to evaluate on, or leave it out."
            )
        if not args.loss_scale > 0:
            raise ValueError(f"loss_scale is {args.loss_scale}, but must be over 0: the loss is multiplied by it.")
        for name, remedy in WITHOUT_EFFECT.items():
            if getattr(args, name) != args.__dataclass_fields__[name].default:
                raise ValueError(f"{name} is {getattr(args, name)!r}, but has no effect here: {remedy}.")
        for name, remedy in ARGUMENTS_WITHOUT_EFFECT.items():
            if kwargs.get(name) is not None:
                raise ValueError(f"{name} is given, but has no effect here: {remedy}.")
        train_dataset.encoder.vocabulary.require_rows(model.config.vocab_size)
        if args.n_gpu > 1:
            raise ValueError(f"one process sees {args.n_gpu} GPUs: start one process for each with torchrun.")
        if args.push_to_hub and args.hub_strategy != HubStrategy.END:
            raise ValueError(
                f"hub_strategy is {HubStrategy(args.hub_strategy).value!r}, which uploads {TRAINING_ARGS_NAME} with "
                "this machine's paths and tokens: use 'end'."
            )
        if args.optim == "adagrad" and "optimizer_cls_and_kwargs" not in kwargs and "optimizers" not in kwargs:
            optimizer, settings = self.get_optimizer_cls_and_kwargs(args, model)
            kwargs["optimizer_cls_and_kwargs"] = (optimizer, args.own_optimizer_settings | settings)
        train_dataset.endless |= not _needs_length(args)
        # The rest of the gradients is DistributedDataParallel's.
        softmax = dict(model.lm_head.named_parameters(prefix="lm_head")) if args.world_size > 1 else {}
        self._softmax = [parameter for parameter in softmax.values() if parameter.requires_grad]
        model._ddp_params_and_buffers_to_ignore = list(softmax)
        self._lstm_state: State | None = None
        self._stopped_early, self._steps_planned, self._steps_made = False, None, 0
        self._steps_before: int | None = None
        self._words, self._words_since = 0, time.perf_counter()
        self._init_sha256 = init_sha256
        super().__init__(
            model,
            args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            **kwargs,
        )

    def get_train_dataloader(self) -> DataLoader:
        """The dataset's own batches, which are this process's already."""
        # A generator of its own: starting an epoch must not advance the global one, which dropout draws from.
        return DataLoader(self.train_dataset, batch_size=None, generator=torch.Generator())

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any):
        """As `Trainer.train`; resuming also restores the position in the text and the LSTM state. A run that had ended
        is not trained further.

        Args:
            resume_from_checkpoint: a checkpoint's folder, or `True` for the last whole one in `args.output_dir`.

        Raises:
            ValueError: there is no whole checkpoint, one of its files is missing or damaged, this run has fewer steps
                than were made, or it would go on otherwise than the interrupted one: with another text, recipe,
                configuration or number of processes.
            FloatingPointError: the training diverged.
        """
        if resume_from_checkpoint is True:
            resume_from_checkpoint = last_whole_checkpoint(self.args.output_dir)
            if resume_from_checkpoint is None:
                raise ValueError(f"there is no checkpoint in {self.args.output_dir} to resume from.")
        self._lstm_state, self._stopped_early, self._steps_planned, self._steps_before = None, False, None, None
        self._steps_made = 0
        self._require_one_text()
        if resume_from_checkpoint:
            resume_from_checkpoint = str(resume_from_checkpoint)
            self._load_position(Path(resume_from_checkpoint))
        if not all(gathered(self.train_dataset.fills_a_batch())):
            raise ValueError(self.train_dataset.too_little)
        self._words, self._words_since = 0, time.perf_counter()
        for parameter in self._softmax:  # as DistributedDataParallel does with the others
            torch.distributed.broadcast(parameter.data, 0)
        output = super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)
        self._require_finite("loss", sum(gathered(output.training_loss)))
        return output

    def _require_one_text(self) -> None:
        """All processes are given the same text. The first one of each machine reads all of it, the others a sample."""
        source = self.train_dataset.source
        first = self.args.local_process_index == 0
        found = gathered((source.sampled_fingerprint, source.fingerprint if first else None))
        for number in range(2):
            own = [one[number] for one in found if one[number] is not None]
            if other := next((one for one in own if one != own[0]), None):
                raise ValueError(
                    f"the processes read different texts ({own[0]} and {other}): each needs the same files in the same "
                    "order, and a stream that is shuffled a seed; each takes its part by itself."
                )
        source.fingerprint = own[0]

    @property
    def made_updates(self) -> bool:
        """Whether the last call of `train` made any: resuming a run that had ended makes none."""
        return self._steps_before is not None and self.state.global_step > self._steps_before

    def _init_training_state(self, max_steps: int, *args: Any) -> tuple[int, int]:
        planned = self._steps_planned or max_steps
        if max_steps < self._steps_made:
            raise ValueError(
                f"the interrupted run made {self._steps_made} updates, but this one has {max_steps}: resume with as "
                "many or more (max_steps, --steps), or train anew into another folder."
            )
        if planned != max_steps and not self._as_fast_so_far(planned, max_steps):
            raise ValueError(
                f"the interrupted run had {planned} steps and this one has {max_steps}, but the learning rates of "
                f"lr_scheduler_type {SchedulerType(self.args.lr_scheduler_type).value!r} so far depend on their "
                "number: resume with the settings of the original run."
            )
        found = super()._init_training_state(max_steps, *args)
        best = self.state.best_global_step
        if best and self.args.load_best_model_at_end:
            # Trainer forgets a best checkpoint whose folder has moved, and would keep the last one.
            folder = Path(self.args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{best}")
            require_files(folder, read_record(folder), contents=self.args.local_process_index == 0)
            self.state.best_model_checkpoint = str(folder)
        return found

    def _as_fast_so_far(self, planned: int, steps: int) -> bool:
        """Whether runs of `planned` and of `steps` updates have the same learning rates up to the next update."""

        def rates(number: int) -> list[float]:
            optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
            warmup, options = self.args.get_warmup_steps(number), self.args.lr_scheduler_kwargs
            scheduler = get_scheduler(self.args.lr_scheduler_type, optimizer, warmup, number, options)
            return [scheduler.lr_lambdas[0](update) for update in range(self._steps_made + 1)]

        return self.args.lr_scheduler_type != SchedulerType.REDUCE_ON_PLATEAU and rates(planned) == rates(steps)

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # Trainer asks whether it has finished after a step only, and would make one more.
        if self._stopped_early or self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
        else:
            self._steps_before = self.state.global_step if self._steps_before is None else self._steps_before
            super()._run_epoch(*args, **kwargs)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        if wrong := sorted((*load_result.missing_keys, *load_result.unexpected_keys)):
            raise ValueError(f"the checkpoint's weights are of another model: {wrong[0]} is in one of the two only.")

    def compute_loss(self, model, inputs: dict[str, Tensor], return_outputs: bool = False, num_items_in_batch=None):
        """The model's loss, scaled by `loss_scale`; the LSTM state is carried from batch to batch."""
        if self.train_dataset.carries_state:
            inputs = {**inputs, "state": self._state_before(inputs["input_ids"])}
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch)
        if self.train_dataset.carries_state:
            self._lstm_state = tuple(part.detach() for part in outputs["state"])
        self._words += inputs["labels"][..., 0].numel()
        loss = loss * self.args.loss_scale
        return (loss, outputs) if return_outputs else loss

    def _state_before(self, input_ids: Tensor) -> State | None:
        """The carried state, for the forward LM's windows `[rows, words, characters]`."""
        if self._lstm_state is None or not self.args.reset_state:
            return self._lstm_state
        model = self.accelerator.unwrap_model(self.model)
        begins = (input_ids[:, 0, 1] == model.config.bos_token_id)[:, None]
        first = model.base_model.bilm.initial_state(len(begins), self._lstm_state[0])
        return tuple(torch.where(begins, new, old) for new, old in zip(first, self._lstm_state, strict=True))

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """One step; returns the loss as it is logged, in nats a word."""
        loss = super().training_step(*args, **kwargs) / self.args.loss_scale
        if self._softmax and self.accelerator.sync_gradients:
            mean_rows(self._softmax)
        return loss

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As `Trainer.log`, with the words per second since the last training log."""
        if "loss" in logs:
            self._require_finite("loss", logs["loss"])
            if getattr(self.accelerator, "scaler", None) is None:  # which leaves out steps whose gradients overflow
                self._require_finite("norm of the gradients", logs.get("grad_norm", 0.0))
            now = time.perf_counter()
            logs["words_per_second"] = round(self._words * self.args.world_size / (now - self._words_since), 1)
            self._words, self._words_since = 0, now
        super().log(logs, *args, **kwargs)

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix: str = "eval") -> dict[str, float]:
        """The loss (nats a word) and the perplexities of held-out text by the full softmax, each sentence from zero
        state, the sentences shared among the processes."""
        source = self.eval_dataset if eval_dataset is None else eval_dataset
        if source is None:
            raise ValueError("evaluate needs texts: give the trainer an eval_dataset.")
        if self.is_in_train:
            self._require_finite_weights()
        started = time.perf_counter()
        with self.accelerator.autocast():
            result = self.perplexity(source)
        metrics = {
            f"{metric_key_prefix}_loss": math.log(result.mean),
            f"{metric_key_prefix}_perplexity": result.mean,
            f"{metric_key_prefix}_forward_perplexity": result.forward,
            f"{metric_key_prefix}_backward_perplexity": result.backward,
            f"{metric_key_prefix}_runtime": time.perf_counter() - started,
        }
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        self._words_since += time.perf_counter() - started
        return metrics

    def perplexity(self, source: TextFiles | DatasetTexts) -> Perplexity:
        """Of texts by the full softmax, each sentence from zero state; several processes read a part each."""
        model = self.accelerator.unwrap_model(self.model)
        several = self.args.world_size > 1
        own = source.part(self.args.process_index, self.args.world_size) if several else source
        with evaluation_mode(model):
            totals = sum(gathered(nll_totals(model, WordEncoder(self.processing_class), own.read())))
        if totals[2]:
            return Perplexity.of(totals)
        why = getattr(source, "why_empty", "its source gives none")  # it may read the text to tell
        return Perplexity.of(totals, f"{why}; give text to evaluate on (held_out, --held-out)")

    def _track_num_input_tokens(self, inputs: dict[str, Tensor]) -> None:
        # Trainer counts the numbers in input_ids, of which each word has max_word_length.
        super()._track_num_input_tokens({**inputs, "input_ids": inputs["input_ids"][..., 0]})

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        """As `Trainer.save_model`; FloatingPointError where a weight is not finite."""
        self._require_finite_weights()
        super().save_model(*args, **kwargs)

    def _require_finite_weights(self) -> None:
        for name, weight in self.accelerator.unwrap_model(self.model).named_parameters():
            for extreme in weight.detach().aminmax() if weight.numel() else ():  # of which nan is one
                self._require_finite(f"weight {name}", extreme)

    def _require_finite(self, what: str, value: float | Tensor) -> None:
        if math.isfinite(value):
            return
        checkpoint = last_whole_checkpoint(self.args.output_dir)
        or_on = "" if checkpoint is None else f", or from the weights of a good checkpoint (--init {checkpoint})"
        raise FloatingPointError(
            f"the training diverged: the {what} is {float(value)} at step {self.state.global_step}, and is not saved. "
            f"Train with a lower learning_rate (--learning-rate) than {self.args.learning_rate}, from the "
            f"beginning{or_on}."
        )

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        """The model and its tokenizer; unlike Trainer's not the arguments, whose paths and tokens are nobody else's."""
        if not self.args.should_save:
            return
        folder = self.args.output_dir if output_dir is None else output_dir
        model = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        model.save_pretrained(folder, state_dict=state_dict)
        if self.processing_class is not None:
            self.processing_class.save_pretrained(folder)
        Path(folder, TRAINING_ARGS_NAME).unlink(missing_ok=True)  # of an earlier version

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """As Trainer's, with the position in the text and the LSTM state. Older checkpoints are removed only when this
        one is whole."""
        self._require_finite("loss", sum(gathered(float(self._tr_loss))))
        self._require_finite_weights()
        run = self._get_output_dir(trial)
        folder = Path(run, f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        if self.args.should_save:
            (folder / DATA_FILE).unlink(missing_ok=True)
        self.accelerator.wait_for_everyone()
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            super()._save_checkpoint(model, trial)
            torch.save(self._lstm_state, folder / STATE_FILE.format(rank=self.args.process_index))
            self.accelerator.wait_for_everyone()
            positions = gathered(self.train_dataset.state_dict())
            if self.args.should_save:
                mark_whole(folder, self._record(positions))
                best = self.state.best_model_checkpoint
                remove_old(Path(run), limit, {folder, folder if best is None else Path(best)})
        except (OSError, RuntimeError, SafetensorError) as error:
            before = last_whole_checkpoint(run)
            kept = (
                "No checkpoint is whole yet" if before is None else f"The checkpoint before it, {before.name}, is whole"
            )
            remedy = f"{kept}: make room, and continue with resume=True (--resume)."
            raise OSError(f"{folder} could not be written ({error}). {remedy}") from error
        finally:
            self.args.save_total_limit = limit

    def _record(self, positions: list[dict[str, Any]]) -> dict[str, Any]:
        others = {"other_positions": positions[1:]} if positions[1:] else {}
        record = {**positions[0], **others, "processes": self.args.world_size, "recipe": self._recipe()}
        return record | {"held_out": self._held_out(), "init": self._init_sha256}

    def _held_out(self) -> dict[str, Any]:
        """The text on which models are compared, where the best one is kept."""
        return self.eval_dataset.sampled_fingerprint if self.args.load_best_model_at_end else {}

    def _recipe(self) -> dict[str, Any]:
        arguments = self.args.to_dict()
        # As Trainer has it: "loss" is "eval_loss", and what a best model is compared by where nothing is given.
        arguments["metric_for_best_model"] = (arguments["metric_for_best_model"] or "loss").removeprefix("eval_")
        return {name: arguments.get(name) for name in RECIPE}

    def _load_position(self, folder: Path) -> None:
        record = read_record(folder)
        if record.get("processes", self.args.world_size) != self.args.world_size:
            raise ValueError(
                f"{folder} was written by {record['processes']} processes, but this run has {self.args.world_size}: "
                "resume with as many."
            )
        positions = [record, *record.get("other_positions", [])]
        if len(positions) != self.args.world_size:
            raise ValueError(
                f"{folder} was written by an earlier version, whose processes each read all of the text: this one "
                "would go on with other words. Resume with that version, or train on from its weights (init, --init)."
            )
        require_files(folder, record, self._needed_files(), contents=self.args.local_process_index == 0)
        self._require_same(folder, "training argument", RECIPE_DEFAULTS | record.get("recipe", {}), self._recipe())
        saved, mine = record.get("held_out", {}), self._held_out()
        self._require_same(folder, "held-out text", saved, {name: mine.get(name) for name in saved})
        if "init" in record:  # of this version
            self._require_same(folder, "weights", {"init": record["init"]}, {"init": self._init_sha256})
        saved, mine = ElmoConfig.from_pretrained(folder), self.accelerator.unwrap_model(self.model).config
        fields = inspect.get_annotations(ElmoConfig)
        self._require_same(folder, "configuration", *({f: getattr(c, f) for f in fields} for c in (saved, mine)))
        self.train_dataset.load_state_dict(positions[self.args.process_index])
        file = folder / STATE_FILE.format(rank=self.args.process_index)
        state = torch.load(file, map_location=self.args.device, weights_only=True)
        self._lstm_state = None if state is None else tuple(state)
        state = TrainerState.load_from_json(str(folder / TRAINER_STATE_NAME))
        control = state.stateful_callbacks.get("TrainerControl", {}).get("args", {})
        self._steps_planned, self._steps_made = state.max_steps, state.global_step
        self._stopped_early = state.global_step < state.max_steps and bool(control.get("should_training_stop"))

    def _needed_files(self) -> list[str]:
        ranks = range(self.args.world_size)
        names = [STATE_FILE.format(rank=rank) for rank in ranks]
        names += [f"rng_state_{rank}.pth" for rank in ranks] if len(ranks) > 1 else ["rng_state.pth"]
        names += [SCALER_NAME] if getattr(self.accelerator, "scaler", None) is not None else []
        return [*names, OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME]

    def _require_same(self, folder: Path, what: str, saved: dict[str, Any], mine: dict[str, Any]) -> None:
        for name, value in saved.items():
            if mine[name] != value:
                raise ValueError(
                    f"{folder} was trained with the {what} {name} {value!r}, but this run has {mine[name]!r}: resume "
                    "with the settings of the original run."
                )


def _needs_length(args: ElmoPreTrainingArguments) -> bool:
    """Whether what a training does depends on the number of batches in its text."""
    strategies = args.save_strategy, args.eval_strategy, args.logging_strategy
    return args.max_steps < 1 or args.gradient_accumulation_steps > 1 or IntervalStrategy.EPOCH in strategies
