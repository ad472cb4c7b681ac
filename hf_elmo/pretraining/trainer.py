"""Training the language models with transformers' `Trainer` (Peters et al. 2018, section 3.4)."""

import itertools
import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint

from ..evaluation import evaluation_mode
from ..modeling_elmo import State
from ..modeling_pretraining_elmo import ElmoForPreTraining
from ..tokenization_elmo import ElmoTokenizer
from .data import PackedWindows, PaddedTexts, WordEncoder
from .perplexity import Perplexity, nll_totals
from .text import DatasetTexts, TextFiles

DATA_FILE = "elmo_data.json"  # in a checkpoint: the position of the next batch in the text
STATE_FILE = "elmo_state_{rank}.pt"  # in a checkpoint: the LSTM state before the next batch


@dataclass
class ElmoPreTrainingArguments(TrainingArguments):
    """
    transformers' arguments with the published recipe as defaults (bilm-tf, `bin/train_elmo.py`).

    Args:
        adagrad_accumulator: the initial value of Adagrad's accumulators (`optim="adagrad"`).
        loss_scale: the loss is multiplied by it before the backward pass. bilm-tf differentiates the loss summed over
            the 20 words of a window; Adagrad's accumulator and the clipping at 10 are tuned to gradients of that size.
            Logged losses are not scaled.
        reset_state: a row whose window begins with a new sentence starts it from zero state (the others carry theirs).
            bilm-tf never resets, and its models predict the first words after zero state badly: 24 % more perplexity
            of single sentences in a small model early in its training.
    """

    optim: str = "adagrad"
    learning_rate: float = 0.2
    lr_scheduler_type: str = "constant"
    max_grad_norm: float = 10.0
    num_train_epochs: float = 10
    per_device_train_batch_size: int = 128
    logging_steps: float = 100
    adagrad_accumulator: float = field(default=1.0, metadata={"help": "initial value of Adagrad's accumulators"})
    loss_scale: float = field(default=20.0, metadata={"help": "the loss is multiplied by it before the backward pass"})
    reset_state: bool = field(
        default=False, metadata={"help": "a row whose window begins with a sentence starts it from zero state"}
    )


class ElmoPreTrainer(Trainer):
    """
    A `Trainer` for [`ElmoForPreTraining`] that carries the LSTM state from batch to batch and resumes exactly.

    Where batches are windows ([`PackedWindows`]), each starts from the final state of the one before it. A checkpoint
    contains the position in the text and that state, so a run that was interrupted and resumed makes the same updates
    as an uninterrupted one. Several processes (torchrun, accelerate) make the updates of one process with as many times
    the rows.

    Args:
        model: the language models.
        args: the recipe.
        train_dataset: made with this process's rank; it yields whole batches.
        eval_dataset: texts for `evaluate`: perplexities by the full softmax, each sentence from zero state.
        processing_class: the tokenizer with the vocabulary; it is saved with each checkpoint.
        **kwargs: as in `Trainer`.

    Raises:
        ValueError: the dataset was made for another process, or one process would use several GPUs.
    """

    def __init__(
        self,
        model: ElmoForPreTraining,
        args: ElmoPreTrainingArguments,
        train_dataset: PackedWindows | PaddedTexts,
        eval_dataset: TextFiles | DatasetTexts | None = None,
        processing_class: ElmoTokenizer | None = None,
        **kwargs: Any,
    ) -> None:
        if (train_dataset.rank, train_dataset.world_size) != (args.process_index, args.world_size):
            raise ValueError(
                f"train_dataset was made for process {train_dataset.rank} of {train_dataset.world_size}, but this "
                f"is process {args.process_index} of {args.world_size}: make it with rank=args.process_index, "
                "world_size=args.world_size."
            )
        if args.n_gpu > 1:
            raise ValueError(f"one process sees {args.n_gpu} GPUs: start one process for each with torchrun.")
        if args.optim == "adagrad" and "optimizer_cls_and_kwargs" not in kwargs and "optimizers" not in kwargs:
            settings = {"lr": args.learning_rate, "initial_accumulator_value": args.adagrad_accumulator, "fused": True}
            kwargs["optimizer_cls_and_kwargs"] = (torch.optim.Adagrad, settings)
        self._lstm_state: State | None = None
        self._words, self._words_since = 0, time.perf_counter()
        super().__init__(
            model,
            args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            **kwargs,
        )
        self.add_callback(_SavePosition(self))

    def get_train_dataloader(self) -> DataLoader:
        """The dataset's own batches, which are this process's already."""
        # A generator of its own: starting an epoch must not advance the global one, which dropout draws from.
        return DataLoader(self.train_dataset, batch_size=None, generator=torch.Generator())

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any):
        """As `Trainer.train`; resuming also restores the position in the text and the LSTM state."""
        if resume_from_checkpoint is True:
            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir)
            if resume_from_checkpoint is None:
                raise ValueError(f"there is no checkpoint in {self.args.output_dir} to resume from.")
        self._lstm_state = None
        if resume_from_checkpoint:
            self._load_position(Path(resume_from_checkpoint))
        self._words, self._words_since = 0, time.perf_counter()
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)

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
        begins = input_ids[:, 0, 1] == self.accelerator.unwrap_model(self.model).config.bos_token_id
        return tuple(part.masked_fill(begins[:, None], 0.0) for part in self._lstm_state)

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """One step; returns the loss as it is logged, in nats a word."""
        return super().training_step(*args, **kwargs) / self.args.loss_scale

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As `Trainer.log`, with the words per second since the last training log."""
        if "loss" in logs:
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
        started = time.perf_counter()
        model = self.accelerator.unwrap_model(self.model)
        mine = itertools.islice(source.read(), self.args.process_index, None, self.args.world_size)
        with evaluation_mode(model), self.accelerator.autocast():
            totals = nll_totals(model, WordEncoder(self.processing_class), mine)
        totals = self.accelerator.reduce(torch.tensor(totals, device=self.args.device), reduction="sum").tolist()
        result = Perplexity.of(totals)
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

    def save_position(self, folder: Path) -> None:
        """Writes the position in the text (one process) and this process's LSTM state into a checkpoint."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.args.process_index == 0:
            (folder / DATA_FILE).write_text(json.dumps(self.train_dataset.state_dict()), encoding="utf-8")
        torch.save(self._lstm_state, folder / STATE_FILE.format(rank=self.args.process_index))

    def _load_position(self, folder: Path) -> None:
        file = folder / STATE_FILE.format(rank=self.args.process_index)
        if not (folder / DATA_FILE).is_file() or not file.is_file():
            raise ValueError(
                f"{folder} has no {DATA_FILE} or no {file.name}: it is not a checkpoint of this trainer, or was "
                "written by fewer processes."
            )
        self.train_dataset.load_state_dict(json.loads((folder / DATA_FILE).read_text(encoding="utf-8")))
        state = torch.load(file, map_location=self.args.device, weights_only=True)
        self._lstm_state = None if state is None else tuple(state)


class _SavePosition(TrainerCallback):
    """Adds the position to each checkpoint."""

    def __init__(self, trainer: ElmoPreTrainer) -> None:
        self.trainer = trainer

    def on_save(self, args, state, control, **kwargs: Any) -> None:
        self.trainer.save_position(Path(args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"))
