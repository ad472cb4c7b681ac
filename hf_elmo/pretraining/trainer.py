"""Training the language models with transformers' `Trainer` (Peters et al. 2018, section 3.4)."""

import contextlib
import inspect
import json
import math
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME, TRAINING_ARGS_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, HubStrategy, IntervalStrategy
from transformers.utils import logging

from ..configuration_elmo import BOS_ID, ElmoConfig
from ..modeling_elmo import State, has_instructions
from ..modeling_pretraining_elmo import ElmoForPreTraining
from ..tokenization_elmo import ElmoTokenizer
from ..utils.extras import extra_needed
from .data import PackedWindows, PaddedTexts
from .perplexity import Perplexity, nll_totals, sentence_batches
from .texts import Texts

with extra_needed("train"):
    from accelerate.utils import gather_object

logger = logging.get_logger(f"transformers.{__name__}")

POSITION_FILE = "elmo_position_{rank}.pt"  # of each process: settings, position in the text, LSTM state
WEIGHTS_FILE = "elmo_weights.pt"  # the weights that are trained, where the model's file has their average
# Arguments on which the updates depend: in a resumed training, they must be the same as in the interrupted one.
DECISIVE_ARGUMENTS = (
    *("optim", "optim_args", "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps"),
    *("weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "gradient_accumulation_steps"),
    *("bf16", "fp16", "loss_scale", "reset_state", "ema", "metric_for_best_model"),
)


@dataclass
class ElmoPreTrainingArguments(TrainingArguments):
    """transformers' arguments with the defaults for a new biLM: AdamW at 0.003, with a warm-up over the first 4 % of
    the steps and a linear decay to zero over the last 60 %. `hf_elmo/pretraining/recipes.toml` has the others.

    Args:
        loss_scale: a factor of the loss that is differentiated, not of the logged one. bilm-tf sums the loss over the
            20 words of a window; Adagrad's accumulator and the clipping at 10 are tuned to gradients of that size.
        ema: the decay of an exponential moving average of the weights, such as 0.99. The average is what is evaluated
            and saved. With a constant learning rate it takes the place of a decay, so the training may end at any step.
        reset_state: a row whose window begins with a new sentence starts from zero state (or `settled_start`); the
            other rows carry their state. bilm-tf never resets, and its models predict the first words after zero state
            badly: a small one has perplexity 479 on single sentences, reset 251 (docs/understand/state.md).
        bf16: as in `TrainingArguments`, but off, with a warning, on a CPU without its instructions: float32 is faster.
        hub_strategy: as there, but `"end"`; others also upload `training_args.bin`, which contains paths and tokens.
    """

    optim: str = "adamw_torch_fused"
    learning_rate: float = 0.003
    lr_scheduler_type: str = "warmup_stable_decay"
    warmup_steps: float = 0.04
    max_grad_norm: float = 1.0
    num_train_epochs: float = 10
    per_device_train_batch_size: int = 64
    logging_steps: float = 50
    hub_strategy: HubStrategy | str = "end"
    restore_callback_states_from_checkpoint: bool = True
    logging_nan_inf_filter: bool = False
    greater_is_better: bool | None = False
    loss_scale: float = 1.0
    reset_state: bool = True
    ema: float | None = None

    def __post_init__(self) -> None:
        on_cpu = self.use_cpu or not torch.accelerator.is_available()
        if self.bf16 and on_cpu and not has_instructions(torch.bfloat16, torch.device("cpu")):
            logger.warning("This CPU has no instructions for bfloat16: training in float32, which is faster here.")
            self.bf16 = False
        super().__post_init__()

    @property
    def adagrad_settings(self) -> dict[str, Any]:
        """Arguments of Adagrad that transformers does not set: bilm-tf's accumulators begin with 1."""
        fused = self.device.type != "cuda" or None  # PyTorch has none for CUDA
        return {"initial_accumulator_value": 1.0, "fused": fused} if self.optim == "adagrad" else {}

    @property
    def device(self) -> torch.device:
        """As in `TrainingArguments`, but the CPU has no index: `torch.load` cannot map to accelerate's `cpu:1`."""
        device = super().device
        return torch.device("cpu") if device.type == "cpu" else device


class AfterStep(TrainerCallback):
    """Adds the weights to their moving average. The first SIGINT (Ctrl-C) ends the training after its step, with a
    checkpoint; the second ends it at once. Removes checkpoints over `save_total_limit`, but not a user's copies."""

    def __init__(self, trainer: "ElmoPreTrainer", limit: int | None) -> None:
        self.trainer = trainer
        self.before = None  # the handler of SIGINT
        self.limit = limit  # of checkpoints

    def on_train_begin(self, args, state, control, **kwargs):
        self.interrupted = False
        self.trainer._words = 0
        self.trainer._steps = state.global_step
        self.trainer._since = time.perf_counter()
        # Each of several processes would end at another step; only the main thread may handle signals.
        if args.world_size == 1 and threading.current_thread() is threading.main_thread():
            self.before = signal.signal(signal.SIGINT, self._interrupt)

    def _interrupt(self, *_: Any) -> None:
        signal.signal(signal.SIGINT, self.before)
        self.interrupted = True

    def on_step_end(self, args, state, control, **kwargs):
        if self.trainer._average is not None:
            self.trainer._average.update_parameters(self.trainer.model)
        control.should_save |= self.interrupted

    def on_save(self, args, state, control, **kwargs):  # the checkpoint does not say that the training has ended
        control.should_training_stop |= self.interrupted
        if args.should_save and self.limit:
            saved = checkpoints(args.output_dir)
            best = Path(state.best_model_checkpoint or "").name
            for folder in [one for one in saved[:-1] if one.name != best][: max(0, len(saved) - self.limit)]:
                shutil.rmtree(folder)


class ElmoPreTrainer(Trainer):
    """A `Trainer` for [`ElmoForPreTraining`] that carries the LSTM state from batch to batch and resumes exactly.

    If batches are windows ([`PackedWindows`]), each window starts from the final state of the previous window. A
    checkpoint contains the position in the text and the LSTM state, so a run that was interrupted and resumed makes the
    same updates as an uninterrupted run. In distributed training each process reads its part of the text, repeatedly.

    The words of the text are counted before the first update only if their number matters: for `num_train_epochs`, for
    strategies by epoch, and for `gradient_accumulation_steps` above 1, because the last update of an epoch takes the
    batches that are left. Otherwise `epoch` in the logs is the fraction of `max_steps` that is done.

    If a weight is not finite, the training stops with an error at the next log, evaluation or save, and is not saved.

    Args:
        model, args: the language models, and the recipe.
        train_dataset: whole batches for this process; it is made with the rank of the process.
        eval_dataset: texts for `evaluate` (perplexity by the full softmax, with each sentence from zero state).
        processing_class: the tokenizer with the vocabulary; it is saved with each checkpoint.

    Raises:
        ValueError: the dataset was made for another process or another vocabulary, or one process sees several GPUs.
    """

    args: ElmoPreTrainingArguments
    _average: AveragedModel | None = None
    _since = 0.0  # the time of the last training log, later by the time of evaluations since then

    def __init__(
        self,
        model: ElmoForPreTraining,
        args: ElmoPreTrainingArguments,
        train_dataset: PackedWindows | PaddedTexts,
        eval_dataset: Texts | None = None,
        processing_class: ElmoTokenizer | None = None,
        **kwargs: Any,
    ) -> None:
        train_dataset.encoder.vocabulary.require_rows(model.config.vocab_size)
        if (train_dataset.rank, train_dataset.world_size) != (args.process_index, args.world_size):
            raise ValueError("train_dataset must have rank=args.process_index and world_size=args.world_size.")
        if args.n_gpu > 1:
            raise ValueError(f"one process sees {args.n_gpu} GPUs: start one process per GPU, with torchrun.")
        strategies = args.save_strategy, args.eval_strategy, args.logging_strategy
        # Whether the training depends on the number of batches in its text.
        counted = args.max_steps < 1 or args.gradient_accumulation_steps > 1 or IntervalStrategy.EPOCH in strategies
        train_dataset.endless = not (counted and train_dataset.source.countable)
        # The softmax's gradients are exchanged by mean_rows, the others by DistributedDataParallel.
        softmax = dict(model.lm_head.named_parameters(prefix="lm_head")) if args.world_size > 1 else {}
        self._softmax = [parameter for parameter in softmax.values() if parameter.requires_grad]
        model._ddp_params_and_buffers_to_ignore = list(softmax)
        self._after_step = AfterStep(self, args.save_total_limit)
        args = replace(args, save_total_limit=None)  # Trainer's own rule removes a user's copies of checkpoints, too
        data = {"train_dataset": train_dataset, "eval_dataset": eval_dataset}
        super().__init__(model, args, processing_class=processing_class, **data, **kwargs)
        self.remove_callback(PrinterCallback)
        self.remove_callback(ProgressCallback)
        self.init: str | None = None  # a fingerprint of the model that the training begins with
        self.add_callback(self._after_step)

    @staticmethod
    def get_optimizer_cls_and_kwargs(args: ElmoPreTrainingArguments, model: Any = None) -> tuple[Any, Any]:
        """As in `Trainer`, with the arguments of Adagrad."""
        optimizer, settings = Trainer.get_optimizer_cls_and_kwargs(args, model)
        return optimizer, args.adagrad_settings | settings

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """As in `Trainer`; by default `warmup_stable_decay` falls linearly to zero over the last 60 % of the steps."""
        given = self.args.lr_scheduler_kwargs
        if self.args.lr_scheduler_type == "warmup_stable_decay" and "num_decay_steps" not in (given or {}):
            decay = {"num_decay_steps": round(0.6 * num_training_steps), "decay_type": "linear"}
            self.args.lr_scheduler_kwargs = decay | (given or {})
        try:
            return super().create_scheduler(num_training_steps, optimizer)
        finally:
            self.args.lr_scheduler_kwargs = given

    def get_train_dataloader(self) -> DataLoader:
        """The dataset's batches, each of them complete and only for this process."""
        self.train_dataset.ahead = 0 if self.args.device.type == "cpu" else 4
        # With its own generator, the loader does not advance the global generator, which dropout draws from.
        return DataLoader(self.train_dataset, batch_size=None, generator=torch.Generator(torch.get_default_device()))

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any):
        """As `Trainer.train`; resuming also restores text position and LSTM state. A run that had ended stays as it is.

        Args:
            resume_from_checkpoint: a checkpoint's folder, or `True` for the last whole one in `args.output_dir`.

        Raises:
            FileNotFoundError: there is no whole checkpoint.
            ValueError: text, recipe, configuration or number of processes differ from the run's, or between processes.
            FloatingPointError: the training diverged.
        """
        if resume_from_checkpoint is True:
            resume_from_checkpoint = last_whole_checkpoint(self.args.output_dir)
            if resume_from_checkpoint is None:
                raise FileNotFoundError(f"output_dir {self.args.output_dir} has no whole checkpoint to resume from.")
        self._lstm_state: State | None = None
        self._stopped_early = False
        self._settings = self._current_settings()
        if any(settings != self._settings for settings in gather_object([self._settings])):
            raise ValueError("the texts or settings differ between the processes: give all of them the same.")
        if resume_from_checkpoint:
            self._load_position(Path(resume_from_checkpoint))
        for parameter in self._softmax:  # as DistributedDataParallel does for the other parameters
            distributed.broadcast(parameter.data, 0)
        if self.args.ema is not None:
            self._average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(self.args.ema))
        try:
            output = super().train(str(resume_from_checkpoint) if resume_from_checkpoint else None, **kwargs)
        finally:
            if self._after_step.before is not None:
                signal.signal(signal.SIGINT, self._after_step.before)
        best = self.args.load_best_model_at_end and self.state.best_model_checkpoint  # then it was loaded
        if self._average is not None and not best:
            self.model.load_state_dict(self._average.module.state_dict())
        self._average = None
        return output

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if self._average is not None:
            self._average.module.load_state_dict(self.model.state_dict())
            self._average.n_averaged.fill_(1)
            weights = torch.load(Path(resume_from_checkpoint, WEIGHTS_FILE), self.args.device, weights_only=True)
            self.model.load_state_dict(weights)

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # Trainer checks only after a step whether the training has ended, so it would make one step more.
        if self._stopped_early or self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    def compute_loss(self, model, inputs: dict[str, Tensor], return_outputs: bool = False, num_items_in_batch=None):
        """The model's loss, scaled by `loss_scale`; the LSTM state is carried from batch to batch."""
        if self.train_dataset.carries_state:
            inputs = {**inputs, "state": self._state_before(inputs["input_ids"]), "use_cache": True}
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch)
        if self.train_dataset.carries_state:
            self._lstm_state = tuple(tensor.detach() for tensor in outputs["state"])
        self._words += (inputs["labels"][..., 0] != -100).sum()
        loss = loss * self.args.loss_scale
        return (loss, outputs) if return_outputs else loss

    def _state_before(self, input_ids: Tensor) -> State | None:
        """The state that a batch starts from; `input_ids` are the forward LM's windows `[rows, words, characters]`."""
        if self._lstm_state is None or not self.args.reset_state:
            return self._lstm_state
        model = self.accelerator.unwrap_model(self.model)
        begins = (input_ids[:, 0, 1] == BOS_ID)[:, None]
        initial = model.base_model.bilm.initial_state(len(begins), self._lstm_state[0])
        return tuple(torch.where(begins, new, old) for new, old in zip(initial, self._lstm_state, strict=True))

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """One step; returns the loss as it is logged, in nats a word."""
        loss = super().training_step(*args, **kwargs) / self.args.loss_scale
        if self._softmax and self.accelerator.sync_gradients:
            mean_rows(self._softmax)
        return loss

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As `Trainer.log`, with words per second and a line of progress; FloatingPointError for infinite weights."""
        if "loss" in logs:
            self._require_finite_weights()
            now = time.perf_counter()
            step = self.state.global_step
            seconds = now - self._since
            logs["words_per_second"] = round(float(self._words) * self.args.world_size / seconds, 1)
            if self.is_world_process_zero():
                left = (self.state.max_steps - step) * seconds / (step - self._steps) / 60
                done = f"step {step:,} of {self.state.max_steps:,}: {logs['words_per_second']:,.0f} words a second"
                perplexity = f"training perplexity {math.exp(min(logs['loss'], 700)):,.1f}"
                print(f"{done}, {perplexity}, {left:,.0f} minutes left", file=sys.stderr)
            self._words = 0
            self._steps = step
            self._since = now
        super().log(logs, *args, **kwargs)

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix: str = "eval") -> dict[str, float]:
        """The loss (nats a word) and the perplexities of held-out text, as `perplexity` computes them."""
        started = time.perf_counter()
        self._require_finite_weights()
        with self.accelerator.autocast():
            result = self.perplexity(self.eval_dataset if eval_dataset is None else eval_dataset)
        values = {"loss": math.log(result.mean), "perplexity": result.mean, "forward_perplexity": result.forward}
        values |= {"backward_perplexity": result.backward, "runtime": time.perf_counter() - started}
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in values.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        self._since += time.perf_counter() - started
        return metrics

    def perplexity(self, source: Texts) -> Perplexity:
        """The perplexity of texts by the full softmax, each sentence from zero state; each process reads a part."""
        model = self.accelerator.unwrap_model(self.model) if self._average is None else self._average.module
        part = source.part(self.args.process_index, self.args.world_size)
        encoder = self.train_dataset.encoder
        totals = nll_totals(model, encoder.vocabulary, sentence_batches(encoder, part.sentences()))
        return Perplexity.of(sum(gather_object([totals])))

    def _track_num_input_tokens(self, inputs: dict[str, Tensor]) -> None:
        # Trainer counts the elements of input_ids, but a word has many of them: its characters.
        super()._track_num_input_tokens({**inputs, "input_ids": inputs["input_ids"][..., 0]})

    def _require_finite_weights(self) -> None:
        for name, weight in self.accelerator.unwrap_model(self.model).named_parameters():
            if not weight.detach().sum().isfinite():
                what = f"the training diverged, nothing is saved: {name} is not finite at step {self.state.global_step}"
                raise FloatingPointError(f"{what}; use a learning_rate below {self.args.learning_rate}")

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        """As in `Trainer`; FloatingPointError, in every process, if a weight is not finite."""
        self._require_finite_weights()
        super().save_model(*args, **kwargs)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        """As in `Trainer`, but without `training_args.bin`, whose paths and tokens must not be published."""
        if self._average is not None:
            state_dict = self._average.module.state_dict()
        super()._save(output_dir, state_dict)
        if self.args.should_save:
            Path(output_dir or self.args.output_dir, TRAINING_ARGS_NAME).unlink(missing_ok=True)

    def _save_rng_state(self, output_dir: str) -> None:
        """As in `Trainer`, with the position in the text and the LSTM state. Trainer writes its own state last."""
        super()._save_rng_state(output_dir)
        saved = {"settings": self._settings, "position": self.train_dataset.state_dict(), "state": self._lstm_state}
        torch.save(saved, Path(output_dir, POSITION_FILE.format(rank=self.args.process_index)))
        if self._average is not None and self.args.should_save:
            torch.save(self.model.state_dict(), Path(output_dir, WEIGHTS_FILE))
        self.accelerator.wait_for_everyone()

    def _load_position(self, folder: Path) -> None:
        """Restores what `_save_rng_state` saved; ValueError if the run had other settings."""
        file = folder / POSITION_FILE.format(rank=self.args.process_index)  # not saved with save_only_model=True
        saved = torch.load(file, map_location=self.args.device, weights_only=True)
        for name, value in self._settings.items():
            if (was := saved["settings"].get(name)) != value:
                raise ValueError(f"cannot resume {folder}: it was trained with {name}={was!r}, got {value!r}.")
        self.train_dataset.load_state_dict(saved["position"])
        self._lstm_state = saved["state"]
        state = TrainerState.load_from_json(str(folder / TRAINER_STATE_NAME))
        stops = state.stateful_callbacks["TrainerControl"]["args"]["should_training_stop"]
        self._stopped_early = stops and state.global_step < state.max_steps

    def _current_settings(self) -> dict[str, Any]:
        """What the updates depend on."""
        arguments = self.args.to_dict()
        schedule = arguments["lr_scheduler_type"]
        kwargs = arguments["lr_scheduler_kwargs"] or {}
        # A resumed training may be longer if its learning rates depend on the number of steps only in a final decay.
        decays_last = schedule == "constant_with_warmup" or "num_decay_steps" in kwargs
        is_open = schedule == "constant" or (decays_last and not 0 < arguments["warmup_steps"] < 1)
        names = DECISIVE_ARGUMENTS if is_open else (*DECISIVE_ARGUMENTS, "max_steps", "num_train_epochs")
        config = self.accelerator.unwrap_model(self.model).config
        return {
            **{name: arguments[name] for name in names},
            **{name: getattr(config, name) for name in inspect.get_annotations(ElmoConfig)},
            **self.train_dataset.settings,
            "held-out text": self.eval_dataset and self.eval_dataset.fingerprint,
            "init": self.init,
        }


def checkpoints(folder: str | Path) -> list[Path]:
    """The checkpoints of a run by their steps, without copies that a user made, such as `checkpoint-good`."""
    numbers = {path: path.name.partition("-")[2] for path in Path(folder).glob(f"{PREFIX_CHECKPOINT_DIR}-*")}
    return sorted((path for path in numbers if numbers[path].isdecimal()), key=lambda path: int(numbers[path]))


def last_whole_checkpoint(folder: str | Path) -> Path | None:
    """The checkpoint with the most steps among those whose last file is complete, as a killed run may leave another."""
    for checkpoint in reversed(checkpoints(folder)):
        with contextlib.suppress(OSError, ValueError):
            json.loads((checkpoint / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
            return checkpoint
    return None


def mean_rows(parameters: Sequence[nn.Parameter]) -> None:
    """Replaces the gradients of parameters `[V, ...]`, in the same order in every process, by their mean over all, as
    `DistributedDataParallel` does, but sends only the rows that are not zero in one of them: with a sampled softmax, a
    step has gradients for about 2 % of 800,000 rows."""
    gradients = [parameter.grad for parameter in parameters]
    used = torch.stack([gradient.view(len(gradient), -1).any(dim=1) for gradient in gradients]).any(dim=0).byte()
    distributed.all_reduce(used, distributed.ReduceOp.MAX)
    rows = used.nonzero().squeeze(1)
    for gradient in gradients:
        mean = gradient[rows] / distributed.get_world_size()
        distributed.all_reduce(mean)
        gradient[rows] = mean
