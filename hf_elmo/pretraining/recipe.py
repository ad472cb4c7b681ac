"""One call from text files to trained language models: a new biLM, or an old one on a domain's text."""

import dataclasses
import itertools
import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import torch
from huggingface_hub.errors import StrictDataclassFieldValidationError
from safetensors import SafetensorError
from transformers import EarlyStoppingCallback, TrainerCallback, set_seed
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, IntervalStrategy
from transformers.training_args import trainer_log_levels
from transformers.utils import logging

from ..configuration_elmo import ElmoConfig
from ..fingerprints import model_fingerprint
from ..locks import locked
from ..modeling_pretraining_elmo import ElmoForPreTraining
from ..shipped import load_checkpoint, load_tokenizer, named
from ..spelling import require_tokenizer
from ..tokenization_elmo import ElmoTokenizer
from .checkpoints import last_whole_checkpoint, remove_checkpoints, remove_weights, require_free
from .data import PackedWindows, PaddedTexts
from .exchange import gathered
from .perplexity import Perplexity
from .text import DatasetTexts, Text, TextFiles, open_texts, require_apart, require_columns
from .trainer import ElmoPreTrainer, ElmoPreTrainingArguments
from .vocabulary import Vocabulary, build_vocabulary

logger = logging.get_logger(f"transformers.{__name__}")

# The arguments that are numbers, each with its types.
NUMBERS = {
    field.name: types
    for field in dataclasses.fields(ElmoPreTrainingArguments)
    if (types := {*(get_args(field.type) or (field.type,))}) & {int, float} and types <= {int, float, NoneType}
}
# Fields that an adapted model has from the one that it begins with: the shapes of weights, and of what they read.
SIZES = ("char_vocab_size", "char_embedding_size", "char_filters", "num_highway_layers", "char_projection")
SIZES += ("max_word_length", "word_vocab_size", "word_embedding_size", "hidden_size", "cell_size")
SIZES += ("cell_projection", "num_hidden_layers")
LAYOUTS = ("windows", "sentences", "documents")
LOCK = "_lock"  # in the output of a run that works; Trainer uploads no file whose name begins with "_"
HELD_OUT_EVERY = 20  # without held-out files, every 20th text of a domain is held out

TYPES = "weights are trained in float32; bf16 (--bf16) is mixed precision, and dtype is given where a model is loaded"
FIRST_WORDS = 10_000  # of a text, by which a vocabulary of other units is known

# What differs from the published recipe when a trained biLM is adapted to a domain: a small learning rate that decays
# to zero, small batches (10,000 words are 16 of them), and unless told otherwise an evaluation four times an epoch, and
# early stopping after eight evaluations without improvement; the best of those models is kept.
ADAPTATION = {
    "optim": "adamw_torch",
    "learning_rate": 5e-4,
    "lr_scheduler_type": "linear",
    "loss_scale": 1.0,
    "max_grad_norm": 1.0,
    "num_train_epochs": 5,
    "reset_state": True,
}
ADAPTATION_BATCH_SIZE = 32
EVALUATIONS_PER_EPOCH, MOST_EVAL_STEPS, PATIENCE = 4, 1000, 8


@dataclass
class Pretrained:
    """The result of [`pretrain`].

    Args:
        folder: of the checkpoint.
        before, after: held-out perplexity before and after training; `None` without held-out text.
    """

    folder: Path
    before: Perplexity | None
    after: Perplexity | None


@dataclass
class _Share:
    """The held-out texts of a source, or the others; of each process's part of it where there are several."""

    source: TextFiles | DatasetTexts
    held_out: bool
    countable: bool = True

    def part(self, rank: int, world_size: int) -> "_Share":
        return _Share(self.source.part(rank, world_size), self.held_out, self.countable)

    def read(self, start: int = 0) -> Iterator[Text]:
        chosen = (
            text
            for number, text in enumerate(self.source.read())
            if (number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1) == self.held_out
        )
        return itertools.islice(chosen, start, None)

    @property
    def held_out_every(self) -> int | None:
        """One of how many texts of the source is held out of it; `None` for the held-out texts."""
        return None if self.held_out else HELD_OUT_EVERY

    @property
    def why_empty(self) -> str:
        """What to say where no words are read."""
        texts = sum(1 for _ in self.source.read())
        return f"of every {HELD_OUT_EVERY} texts one is held out, but there are {texts}"

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        return self.source.fingerprint

    @property
    def sampled_fingerprint(self) -> dict[str, Any]:
        return self.source.sampled_fingerprint


def pretrain(
    output: str | Path,
    texts: Any,
    held_out: Any = None,
    init: str | Path | None = None,
    vocabulary: str | Path | None = None,
    vocabulary_size: int | None = None,
    config: Mapping[str, Any] | None = None,
    word_splitting: str | None = None,
    pretokenized: bool = False,
    layout: str = "windows",
    batch_size: int | None = None,
    window: int | None = None,
    shuffle_block: int = 1_000_000,
    text_column: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    **arguments: Any,
) -> Pretrained:
    """
    Trains the forward and backward language models and writes a checkpoint with tokenizer and vocabulary.

    Args:
        output: folder of the checkpoint, and of the intermediate ones (`checkpoint-N`).
        texts: files or glob patterns, one sentence a line; Parquet files, patterns or addresses of them (`s3://...`,
            `hf://...`), which are streamed; a `datasets.Dataset`, or a stream of one, which needs `max_steps`. Each of
            several processes (torchrun) reads a part of them.
        held_out: texts of these kinds to evaluate on. With `init` and none given, every 20th text is held out.
        init: a checkpoint to continue from on the text of a domain: a language model, or any ELMo, which gets a new
            softmax. The defaults are then those of `ADAPTATION`, and the model kept is the one with the lowest held-out
            perplexity, the one before training included; with `load_best_model_at_end=False` the last one.
        vocabulary: file with the words of the softmax; by default those of `init`, else counted in `texts`. Where it
            replaces the vocabulary of a trained softmax, words in both keep their rows. Where most words of the text
            are not in it, the log says so.
        vocabulary_size: words to keep when they are counted; all by default.
        config: fields of [`ElmoConfig`]; `hidden_dropout` is 0.1 unless given here. A model that is adapted (`init`)
            keeps its sizes.
        word_splitting: of the tokenizer, where there is no `init`; `"lm1b"` by default.
        pretokenized: the files are tokenized already: whitespace separates their words; else the tokenizer splits them.
        layout: `"windows"` over packed sentences with the state carried, as the published models were trained;
            `"sentences"` or `"documents"` (separated by blank lines), padded, each from zero state.
        batch_size: rows of a batch for each process; 128, and 32 with `init`.
        window: words of a row in `"windows"`; 20 by default.
        shuffle_block: texts that are shuffled together, held in memory; 0 keeps their order.
        text_column: of Parquet and of datasets, `"text"` by default: a string is a sentence, a list of words, too, and
            a list of such lists is a document; with the layout `"documents"` a string is one, too, a sentence a line.
        resume: continue from the last whole checkpoint in `output`; without one the training starts from the beginning.
            A run that had ended is left as it is.
        overwrite: train anew where `output` holds a model or checkpoints: the checkpoints are removed when the training
            begins, the model when it is replaced.
        **arguments: of [`ElmoPreTrainingArguments`].

    Returns:
        [`Pretrained`]: the folder, and the held-out perplexities before and after.

    Raises:
        ValueError: an option is wrong, or there is too little text; a file or dataset of `held_out` is among the
            `texts`; a stream without `max_steps`, or adapted to without `held_out`.
        BlockingIOError: another run trains into `output`.
        FileNotFoundError: a pattern matches no file, or there is no folder `init`.
        FileExistsError: `output` holds a trained model, or checkpoints, and neither `resume` nor `overwrite` is given.
        FloatingPointError: the training diverged; nothing of it is saved but the checkpoints before.
        OSError: a checkpoint or the model could not be written.

    Where it raises before the training has begun, nothing in `output` has changed.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout is {layout!r}, but must be one of {', '.join(LAYOUTS)}.")
    twice = "per_device_train_batch_size" in arguments
    for name, value, useless, why in (
        ("word_splitting", word_splitting, init, "the tokenizer is that of init"),
        ("vocabulary_size", vocabulary_size, vocabulary, "the words are those of vocabulary"),
        ("window", window, layout != "windows", f"the layout {layout!r} has none"),
        ("vocab_size", (config or {}).get("vocab_size"), True, "it is the number of words of the vocabulary"),
        ("dtype", (config or {}).get("dtype"), True, TYPES),
        ("torch_dtype", (config or {}).get("torch_dtype"), True, TYPES),
        ("batch_size", batch_size, twice, "per_device_train_batch_size is given, too"),
    ):
        if value is not None and useless:
            raise ValueError(f"{name} is {value!r}, but {why}: leave it out.")
    args = _arguments(output, init, batch_size, arguments)
    _require_fields(config or {}, init)
    longest = {name: value for name, value in (config or {}).items() if name == "max_word_length"}
    splitting = "lm1b" if word_splitting is None else word_splitting
    tokenizer = _tokenizer(init) if init else ElmoTokenizer(word_splitting=splitting, **longest)
    _require_read_fields(tokenizer, init, config or {})
    splitter = None if pretokenized else tokenizer
    source = open_texts(texts, splitter, layout == "documents", text_column)
    evaluated = None if held_out is None else open_texts(held_out, splitter, layout == "documents", text_column)
    require_columns(text_column, source, evaluated)
    require_apart(source, evaluated)
    if not source.countable:
        if args.max_steps < 1:
            raise ValueError("texts is a stream, whose length is not known: give max_steps (--steps).")
        if init and evaluated is None:
            raise ValueError("texts is a stream, of which no share can be held out: give held_out (--held-out).")
    if init and evaluated is None:
        source, evaluated = _Share(source, held_out=False), _Share(source, held_out=True)
    with (
        _reserved(Path(output), args.process_index == 0),
        tempfile.TemporaryDirectory(prefix="hf-elmo-") as words,  # the vocabulary, until it is saved with the model
    ):
        checkpoint = _beginning(Path(output), init, resume, overwrite)
        set_seed(args.seed)
        model, tokenizer = _model(Path(words), source, init, tokenizer, vocabulary, vocabulary_size, config or {})
        begins_with = model_fingerprint(model) if init else None
        dataset = _dataset(source, tokenizer, layout, 20 if window is None else window, shuffle_block, args)
        callbacks: list[TrainerCallback] = [_RemovesCheckpoints()] if overwrite else []
        if init:
            callbacks += _evaluations(args, arguments, dataset)
        trainer = ElmoPreTrainer(
            model, args, dataset, evaluated, tokenizer, init_sha256=begins_with, callbacks=callbacks
        )
        return _run(trainer, evaluated, checkpoint, bool(init) and arguments.get("load_best_model_at_end", True))


def _tokenizer(init: str | Path) -> ElmoTokenizer:
    """That of `init`; its errors come before a warning that it has none."""
    with named(init) as place:
        begun = ElmoConfig.from_pretrained(place)
    tokenizer = load_tokenizer(init)
    require_tokenizer(begun, tokenizer)
    return tokenizer


def _require_read_fields(tokenizer: ElmoTokenizer, init: str | Path | None, given: Mapping[str, Any]) -> None:
    """Refuses fields of a configuration for which the tokenizer writes no numbers (ValueError)."""
    with_words = tokenizer.row_length > tokenizer.max_word_length
    why = "the tokenizer is that of init" if init else "the new tokenizer writes bytes, and no ids of words"
    for name, differs in (
        ("char_units", given.get("char_units", tokenizer.char_units) != tokenizer.char_units),
        ("word_vocab_size", given.get("word_vocab_size") is not None and not with_words),
    ):
        if differs:
            raise ValueError(f"{name} is {given[name]!r}, but {why}: leave it out of config (--config).")


@contextmanager
def _reserved(output: Path, first: bool) -> Iterator[None]:
    """Have the folder for this run alone. The first process locks it; where it cannot, all raise its error."""
    with ExitStack() as stack:
        refusal = None
        if first:
            try:
                stack.enter_context(_locked(output))
            except OSError as error:
                refusal = error
        if (refusal := gathered(refusal)[0]) is not None:
            raise refusal
        yield


@contextmanager
def _locked(output: Path) -> Iterator[None]:
    """Have the folder locked. Where it is new, and nothing came of the run, it is removed."""
    if output.exists() and not output.is_dir():
        raise NotADirectoryError(f"{output} is a file: give a folder for the model.")
    is_new, lock = not output.exists(), output / LOCK
    try:
        with locked(lock, str(output), lambda: output.mkdir(parents=True, exist_ok=True)):
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
    finally:
        if is_new:
            with suppress(OSError):  # there is something in it, if only the next run's lock
                output.rmdir()


def _beginning(output: Path, init: str | Path | None, resume: bool, overwrite: bool) -> Path | None:
    """The checkpoint to resume from, if any; nothing else may be lost unless `overwrite` says so."""
    if resume and overwrite:
        raise ValueError("resume continues what overwrite would remove: give one of them.")
    if overwrite and init and output.resolve() in (place := Path(init).resolve(), *place.parents) and place.exists():
        raise ValueError(f"overwrite would remove init, {str(init)!r}: choose another output.")
    checkpoint = last_whole_checkpoint(output) if resume else None
    if checkpoint is None and not overwrite:
        require_free(output, resume)
    if checkpoint is None and resume:
        logger.warning("%s has no whole checkpoint: the training starts from the beginning.", output)
    return checkpoint


def _arguments(
    output: str | Path, init: str | Path | None, batch_size: int | None, arguments: dict[str, Any]
) -> ElmoPreTrainingArguments:
    known = {field.name for field in dataclasses.fields(ElmoPreTrainingArguments)} - {"output_dir"}
    if unknown := sorted(set(arguments) - known):
        raise ValueError(f"{unknown[0]} is neither an option of pretrain nor of ElmoPreTrainingArguments.")
    for field in dataclasses.fields(ElmoPreTrainingArguments):
        if isinstance(field.default, bool) and isinstance(arguments.get(field.name), str):
            raise ValueError(f"{field.name} is {arguments[field.name]!r}, but must be true or false.")
    arguments = {name: _number(name, value) for name, value in arguments.items()}
    for name in ("log_level", "log_level_replica"):
        if (level := arguments.get(name, "passive")) not in trainer_log_levels:
            raise ValueError(f"{name} is {level!r}, but must be one of {', '.join(trainer_log_levels)}.")
    for name, least in (("max_steps", 1), ("num_train_epochs", 0), ("gradient_accumulation_steps", 1)):
        value = arguments.get(name, 1)
        if (value <= 0 or value < least) and (name, value) != ("max_steps", -1):  # of transformers: as long as epochs
            raise ValueError(f"{name} is {value}, but must be {f'{least} or more' if least else 'over 0'}.")
    if {"max_steps", "num_train_epochs"} <= arguments.keys() and arguments["max_steps"] != -1:
        raise ValueError(
            f"max_steps (--steps) is {arguments['max_steps']}, and num_train_epochs (--epochs) "
            f"{arguments['num_train_epochs']}: give one of both."
        )
    rows = (ADAPTATION_BATCH_SIZE if init else 128) if batch_size is None else batch_size
    defaults = {"per_device_train_batch_size": rows, "report_to": [], "use_cpu": not torch.accelerator.is_available()}
    if init:
        when = arguments.get("eval_strategy", "steps")
        defaults |= ADAPTATION | {"eval_strategy": when, "save_strategy": when}
    args = ElmoPreTrainingArguments(output_dir=str(output), **{**defaults, **arguments})
    if "eval_steps" in arguments and args.eval_strategy != "steps":
        raise ValueError(
            f"eval_steps is {args.eval_steps}, but eval_strategy is {IntervalStrategy(args.eval_strategy).value!r}: "
            "give eval_strategy='steps' (--set eval_strategy=steps), too, or leave it out."
        )
    return args


def _number(name: str, value: Any) -> Any:
    """The value of an argument, where numbers alone can be one; ValueError where it is none."""
    kind = NUMBERS.get(name)
    if kind is None or (value is None and NoneType in kind):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if float in kind or isinstance(value, int):
            return value
        if value.is_integer():  # 1e3
            return int(value)
    raise ValueError(f"{name} is {value!r}, but must be a {'number' if float in kind else 'whole number'}.")


def _require_fields(config: Mapping[str, Any], init: str | Path | None) -> None:
    """Refuses values of a type that a field cannot have, and sizes that are not those of `init` (ValueError)."""
    probe = ElmoConfig()
    for field in dataclasses.fields(ElmoConfig):
        if field.name in config:
            try:
                setattr(probe, field.name, config[field.name])
            except StrictDataclassFieldValidationError as error:
                kind = field.type.__name__ if type(field.type) is type else field.type
                raise ValueError(
                    f"config has {field.name} {config[field.name]!r} (--config), but it must be of the type {kind}."
                ) from error
    if init is None or not (given := [name for name in SIZES if name in config]):
        return
    with named(init) as place:
        own = ElmoConfig.from_pretrained(place)
    for name in given:
        value, old = config[name], getattr(own, name)
        chosen_by_itself = value is None and name.endswith("_projection")
        if not chosen_by_itself and json.dumps(value, default=repr) != json.dumps(old):
            raise ValueError(
                f"config has {name} {value!r} (--config {name}={json.dumps(value, default=repr)}), but that of init is "
                f"{old!r}: an adapted model keeps its sizes, so leave it out, or train anew without init (--init)."
            )


def _model(
    folder: Path,
    source: TextFiles | DatasetTexts | _Share,
    init: str | Path | None,
    tokenizer: ElmoTokenizer,
    vocabulary_file: str | Path | None,
    vocabulary_size: int | None,
    config: Mapping[str, Any],
) -> tuple[ElmoForPreTraining, ElmoTokenizer]:
    """The model to train, and its tokenizer with the vocabulary, in `folder` unless it is that of `init`."""
    old = Vocabulary.of(tokenizer) if tokenizer.vocabulary is not None else None
    if old is not None and vocabulary_size is not None:
        raise ValueError(f"vocabulary_size is {vocabulary_size}, but the words are those of init: leave it out.")
    if vocabulary_file is not None:
        new = Vocabulary.load(vocabulary_file)
        _warn_of_other_units(new, vocabulary_file, source)
    else:
        new = old or build_vocabulary((words for text in source.read() for words in text), vocabulary_size)
    if new is not old:
        tokenizer = _with_vocabulary(tokenizer, new, folder)
    settings = {"hidden_dropout": 0.1, **config}
    if not init:
        return ElmoForPreTraining(ElmoConfig(**settings, vocab_size=len(new))), tokenizer
    if old is None:
        settings |= {"vocab_size": len(new), "may_lack": ("lm_head.",)}
        return load_checkpoint(ElmoForPreTraining, init, **settings, dtype=torch.float32), tokenizer
    model = load_checkpoint(ElmoForPreTraining, init, **settings, dtype=torch.float32)
    if new is not old:
        model.change_vocabulary(new.rows_in(old), new.unk_id)
    return model, tokenizer


def _warn_of_other_units(vocabulary: Vocabulary, file: str | Path, source: TextFiles | DatasetTexts | _Share) -> None:
    """Says where most words of a text's beginning are not in the vocabulary, as where it was counted in other units."""
    texts = (word for text in source.read() for words in text for word in words)
    first = list(itertools.islice(texts, FIRST_WORDS))
    unknown = sum(word not in vocabulary for word in first)
    if unknown > len(first) / 2:
        logger.warning(
            f"{unknown / len(first):.0%} of the first {len(first):,} words are not in the vocabulary {file}, "
            f"{next(word for word in first if word not in vocabulary)!r} among them: count it in this text, split in "
            "the same way (hf-elmo vocab with this --pretokenized and --word-splitting)."
        )


def _with_vocabulary(tokenizer: ElmoTokenizer, vocabulary: Vocabulary, folder: Path) -> ElmoTokenizer:
    """The same tokenizer, whatever was set in it, with the words of another softmax; in a folder."""
    tokenizer.save_pretrained(folder)
    vocabulary.save(folder / "vocab.txt")
    made = ElmoTokenizer.from_pretrained(folder)
    for how_loaded in ("local_files_only", "is_local"):  # which would be saved with it
        made.init_kwargs.pop(how_loaded, None)
    return made


def _dataset(
    source: TextFiles | DatasetTexts | _Share,
    tokenizer: ElmoTokenizer,
    layout: str,
    window: int,
    shuffle_block: int,
    args: ElmoPreTrainingArguments,
) -> PackedWindows | PaddedTexts:
    how = {"shuffle_block": shuffle_block, "seed": args.seed, "rank": args.process_index, "world_size": args.world_size}
    rows = args.per_device_train_batch_size
    if layout == "windows":
        return PackedWindows(source, tokenizer, rows, window, **how)
    return PaddedTexts(source, tokenizer, rows, **how)


class _RemovesCheckpoints(TrainerCallback):
    """Removes checkpoints of an earlier run, after all checks and before the first update."""

    def on_train_begin(self, args: ElmoPreTrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        if args.should_save:
            remove_checkpoints(Path(args.output_dir))


def _evaluations(
    args: ElmoPreTrainingArguments, given: Mapping[str, Any], dataset: PackedWindows | PaddedTexts
) -> list[TrainerCallback]:
    """When an adaptation is evaluated and saved, the best of its models kept, and when it stops early: as `ADAPTATION`
    says where nothing is given."""
    updates = len(dataset) // args.gradient_accumulation_steps if dataset.source.countable else args.max_steps
    defaults = {"eval_steps": max(1, min(updates // EVALUATIONS_PER_EPOCH, MOST_EVAL_STEPS)), "save_total_limit": 2}
    defaults["save_steps"] = given.get("eval_steps", defaults["eval_steps"])
    defaults["load_best_model_at_end"] = args.eval_strategy == args.save_strategy != "no"
    defaults |= {"metric_for_best_model": "loss", "greater_is_better": False}
    for name, value in defaults.items():
        if name not in given:
            setattr(args, name, value)
    if not args.load_best_model_at_end:
        if "load_best_model_at_end" not in given:
            logger.warning("Models are not saved as they are evaluated: the last one is kept, not the best of them.")
        return []
    if args.eval_strategy == "steps" and args.eval_steps % args.save_steps:
        raise ValueError(
            f"save_steps is {args.save_steps}, but eval_steps is {args.eval_steps}: the best model is kept, so each "
            "that is evaluated must be saved. Give a save_steps that divides it, or load_best_model_at_end=False."
        )
    return [EarlyStoppingCallback(PATIENCE)]


def _run(
    trainer: ElmoPreTrainer,
    evaluated: TextFiles | DatasetTexts | _Share | None,
    checkpoint: Path | None,
    adapting: bool,
) -> Pretrained:
    """Trains, and saves; `adapting`, the model of before if the held-out perplexity did not fall."""
    args, model = trainer.args, trainer.model
    before = after = None
    if evaluated is not None:
        before = trainer.perplexity(evaluated)
    unchanged = {name: tensor.clone() for name, tensor in model.state_dict().items()} if adapting else None
    trainer.train(resume_from_checkpoint=checkpoint)
    if evaluated is not None:
        after = trainer.perplexity(evaluated)
    if adapting and not after.mean < before.mean:
        logger.warning("Held-out perplexity did not decrease: the model is left unchanged.")
        model.load_state_dict(unchanged)
        after = before
    try:
        _save(trainer)
    except (OSError, RuntimeError, SafetensorError) as error:
        last = last_whole_checkpoint(args.output_dir)
        if last is None:
            remedy = "No checkpoint was kept (save_strategy): make room, and train again."
        else:
            all_of_it = last.name == f"{PREFIX_CHECKPOINT_DIR}-{trainer.state.global_step}"
            kept = f"Nothing is lost, {last.name} is whole" if all_of_it else f"{last.name} is whole"
            remedy = f"{kept}: make room, and continue with resume=True (--resume)."
        raise OSError(f"the model could not be written to {args.output_dir} ({error}). {remedy}") from error
    return Pretrained(Path(args.output_dir), before, after)


def _save(trainer: ElmoPreTrainer) -> None:
    """The model and the state of its training, in the place of an earlier run's."""
    args = trainer.args
    if args.should_save:
        remove_weights(Path(args.output_dir))  # of an earlier run, never beside this one's vocabulary
    trainer.save_model()
    if trainer.made_updates or not Path(args.output_dir, TRAINER_STATE_NAME).is_file():
        if trainer.state.best_model_checkpoint:  # in what is published, no path of this machine
            trainer.state.best_model_checkpoint = Path(trainer.state.best_model_checkpoint).name
        trainer.save_state()


def describe(result: Perplexity) -> str:
    """A perplexity as one line of text."""
    return (
        f"forward {result.forward:.2f}, backward {result.backward:.2f}, mean {result.mean:.2f} "
        f"(loss {math.log(result.mean):.4f} nats a word, {result.words:,} words, {result.unknown:.1%} unknown)"
    )
