"""One call from text files to trained language models: a new biLM, or an old one adapted to a domain's text."""

import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from transformers import EarlyStoppingCallback, set_seed
from transformers.utils import CONFIG_NAME, logging

from ..checkpoints.loading import load_tokenizer, locate
from ..configuration_elmo import ElmoConfig
from ..modeling_pretraining_elmo import ElmoForPreTraining
from ..reading.files import local_path, require_apart
from ..tokenization_elmo import ElmoTokenizer, embedded_ids
from ..utils.fingerprints import model_fingerprint
from ..utils.jobs import naming_full_disk
from ..utils.spelling import require_tokenizer
from .data import PackedWindows, PaddedTexts
from .perplexity import Perplexity
from .texts import Texts
from .trainer import ElmoPreTrainer, ElmoPreTrainingArguments, checkpoints, last_whole_checkpoint
from .vocabulary import Vocabulary, build_vocabulary, change_vocabulary

logger = logging.get_logger(f"transformers.{__name__}")

COVERED_SENTENCES = 1000  # the first sentences, with which a vocabulary is compared
MAX_UNKNOWN = 30  # above this percentage of unknown words, there is a warning

RECIPES = tomllib.loads(Path(__file__).with_name("recipes.toml").read_text(encoding="utf-8"))
NUM_SAMPLED = 2048  # negatives of the softmax of a new model; bilm-tf has 8192, the default of ElmoConfig
EVALUATIONS_PER_EPOCH = 4
MAX_EVAL_STEPS = 1000
PATIENCE = 8


@dataclass
class Pretrained:
    """The result of [`pretrain`]: the checkpoint's folder, and held-out perplexity (if any) before and after."""

    folder: Path
    before: Perplexity | None
    after: Perplexity | None


def pretrain(
    inputs: Any,
    output: str | Path,
    held_out: Any = None,
    init: str | Path | None = None,
    recipe: str | None = None,
    vocabulary: str | Path | None = None,
    vocabulary_size: int | None = None,
    config: Mapping[str, Any] | None = None,
    word_splitting: str | None = None,
    pretokenized: bool = False,
    layout: str = "windows",
    batch_size: int | None = None,
    window: int | None = None,
    shuffle_block: int = 1_000_000,
    input_format: str | None = None,
    text_column: str | int | None = None,
    encoding: str = "utf-8",
    resume: bool = False,
    overwrite: bool = False,
    **arguments: Any,
) -> Pretrained:
    """Trains the forward and backward language models and writes a checkpoint with tokenizer and vocabulary.

    Args:
        inputs: the text, as for [`embed`]: a file, a folder, a glob pattern or an address (`s3://...`, `hf://...`), or
            a list of `Path`s; a `datasets.Dataset`, or a `datasets.IterableDataset` (a stream), which needs
            `max_steps`; or texts. In distributed training (torchrun) each process reads a part.
        output: folder of the checkpoint, and of the intermediate ones (`checkpoint-N`).
        held_out: texts to evaluate on, given in the same ways; by default none, but to adapt every 20th of `inputs`.
        init: a language model to train further, or an ELMo, which gets a softmax; sizes and tokenizer stay.
        recipe: the settings: `"new"` for a new biLM, the default; `"adapt"` to adapt a trained biLM to a domain's text,
            the default with `init`; `"bilm-tf"`, that of the published models. `"adapt"` keeps the model of the lowest
            held-out perplexity, also that before training, or with `load_best_model_at_end=False` the last one.
        vocabulary: file with the words of the softmax; by default the words of `init`, or else the words counted in
            `inputs`. If it replaces the vocabulary of a trained softmax, words of both vocabularies keep their weights.
        vocabulary_size: number of words to keep when they are counted; all by default.
        config: fields of [`ElmoConfig`]; by default `hidden_dropout` is 0.1, and in recipe `"new"` `num_sampled` 2048.
        word_splitting: how the new tokenizer splits text into words, without `init`; `"lm1b"` by default.
        pretokenized: whether whitespace separates the words of the text; otherwise the tokenizer splits it.
        layout: what a row is: in `"windows"` packed sentences, with the state carried from window to window, as for the
            published models; a padded one of `"sentences"`, or of `"documents"` (between blank lines), from zero state.
        batch_size: rows of a batch in each process; by default 64, to adapt 32, with bilm-tf's recipe 128.
        window: words of a row in `"windows"`; 20 by default.
        shuffle_block: number of texts that are shuffled together, in memory; 0 keeps their order.
        input_format, text_column, encoding: as for [`embed`]. A string or list of words is a sentence, a list of word
            lists is a document; with `"documents"`, so is a string, and the lines between blank lines of plain text.
        resume: continue from the last whole `checkpoint-N` in `output`; if there is none, start from the beginning.
        overwrite: train anew even if `output` holds checkpoints, which are then removed, or a model, which is replaced.
        **arguments: arguments of [`ElmoPreTrainingArguments`].

    Raises:
        ValueError: an option is wrong, or the best model could be one that is not saved (to adapt); there is too little
            text, a file of `held_out` is among the `inputs`, `output` is an input or its folder, or a stream is given
            without `max_steps` or, to adapt, without `held_out`.
        FileExistsError: `output` holds a trained model, or checkpoints, and neither `resume` nor `overwrite` is given.
        TypeError: `config` has a name that is no field.
        FloatingPointError: the training diverged; only earlier checkpoints are saved.
        KeyboardInterrupt: Ctrl-C ended the training after a step; a checkpoint and the model of this step are saved.
        OSError: the disk is full.
    """
    if layout not in ("windows", "sentences", "documents"):
        raise ValueError(f"layout is {layout!r}, but must be 'windows', 'sentences' or 'documents'.")
    recipe = recipe or ("adapt" if init else "new")
    adapting = recipe == "adapt"
    output = local_path(output)
    config = dict(config or {})
    if batch_size is not None:
        arguments = {"per_device_train_batch_size": batch_size, **arguments}
    args = _arguments(output, recipe, arguments)
    checkpoint = _checkpoint_to_resume(output, resume, overwrite)
    if init:
        if word_splitting is not None:
            raise ValueError("word_splitting is for a new tokenizer: leave it out, since init has its tokenizer.")
        tokenizer = load_tokenizer(init)
        require_tokenizer(ElmoConfig.from_pretrained(locate(init)), tokenizer)
    else:
        length = config.get("max_word_length", ElmoConfig.max_word_length)
        of_words = not config.get("char_filters", True)  # a word-level model
        tokenizer = ElmoTokenizer(word_splitting or "lm1b", max_word_length=length, embeds_words=of_words)
    reading = {"tokenizer": None if pretokenized else tokenizer, "documents": layout == "documents"}
    reading |= {"input_format": input_format, "text_column": text_column, "encoding": encoding}
    source = Texts(inputs, **reading)
    evaluated = None if held_out is None else Texts(held_out, **reading)
    read = {"the input": source.rows.places, "held_out": evaluated.rows.places if evaluated else []}
    require_apart(output, {**read, "the vocabulary": filter(None, [vocabulary]), "init": filter(None, [init])})
    for texts in filter(None, (source, evaluated)):
        texts.report()
    if evaluated is None and adapting:
        if not source.countable:
            raise ValueError("held_out is missing: from a stream, no part of the texts can be held out.")
        evaluated = source.share(held_out=True)
        source = source.share(held_out=False)
    set_seed(args.seed)
    old = None if tokenizer.vocabulary is None else Vocabulary.of(tokenizer)
    new = old if vocabulary is None else Vocabulary.load(vocabulary)
    if new is None:
        new = build_vocabulary(source.sentences(), vocabulary_size)
    elif vocabulary_size is not None:
        raise ValueError("vocabulary_size is for words that are counted: leave it out with vocabulary, or with init.")
    if vocabulary is not None:
        _warn_of_unknown_words(new, source, vocabulary)
    tokenizer.vocabulary = new.words
    model = _model(init, recipe, old or new, config)
    if old is not None and new is not old:
        change_vocabulary(model, old, new)
    settings = {"batch_size": args.per_device_train_batch_size, "seed": args.seed, "shuffle_block": shuffle_block}
    settings |= {"rank": args.process_index, "world_size": args.world_size}
    settings |= {"window": window or 20} if layout == "windows" else {}
    dataset = (PackedWindows if layout == "windows" else PaddedTexts)(source, tokenizer, **settings)
    if adapting:
        args = _with_evaluations(args, arguments, dataset)
    keep_best = adapting and args.load_best_model_at_end
    callbacks = [EarlyStoppingCallback(PATIENCE)] if keep_best and args.eval_strategy != "no" else []
    trainer = ElmoPreTrainer(model, args, dataset, evaluated, tokenizer, callbacks=callbacks)
    trainer.init = model_fingerprint(model.base_model) if init else None
    with naming_full_disk(output):
        return _run(trainer, checkpoint, keep_best, overwrite)


def _arguments(output: Path, recipe: str, given: Mapping[str, Any]) -> ElmoPreTrainingArguments:
    defaults = {"report_to": [], "use_cpu": not torch.accelerator.is_available(), **RECIPES[recipe]}
    if recipe == "adapt":
        strategy = given.get("eval_strategy", "steps")
        saves_alone = strategy == "no" and "save_steps" in given
        defaults |= {"eval_strategy": strategy, "save_strategy": "steps" if saves_alone else strategy}
        given = {**given, "load_best_model_at_end": False}  # until the steps of evaluations are known
    return ElmoPreTrainingArguments(output_dir=str(output), **{**defaults, **given})


def _checkpoint_to_resume(output: Path, resume: bool, overwrite: bool) -> Path | None:
    checkpoint = last_whole_checkpoint(output) if resume else None
    if checkpoint is None and not overwrite:
        if (output / CONFIG_NAME).exists() or (not resume and checkpoints(output)):
            raise FileExistsError(f"{output} holds a model or checkpoints: choose resume=True or overwrite=True.")
        if resume:
            logger.warning("%s has no whole checkpoint: the training starts from the beginning.", output)
    return checkpoint


def _warn_of_unknown_words(vocabulary: Vocabulary, source: Texts, file: str | Path) -> None:
    """A warning if many words are unknown, or more than if whitespace separated them: the text is tokenized already."""
    tokenized = source.part(0, 1)  # all texts
    tokenized.tokenizer = None
    read = (chain.from_iterable(islice(texts.sentences(), COVERED_SENTENCES)) for texts in (source, tokenized))
    unknown, if_tokenized = (100 * (vocabulary.ids(list(words)) == vocabulary.unk_id).mean() for words in read)
    if unknown > min(MAX_UNKNOWN, if_tokenized + 1):
        logger.warning("%.0f%% of the first words are not in %s; with pretokenized %.0f%%", unknown, file, if_tokenized)


def _model(init: Any, recipe: str, vocabulary: Vocabulary, config: Mapping[str, Any]) -> ElmoForPreTraining:
    """The model to train, with a softmax over the vocabulary."""
    settings = {"hidden_dropout": 0.1, **config}
    has_softmax = init and ElmoConfig.from_pretrained(locate(init)).vocab_size is not None
    if not has_softmax:
        defaults = {"num_sampled": NUM_SAMPLED} if recipe == "new" else {}
        settings = {**defaults, **settings, "vocab_size": len(vocabulary)}
    if init:
        model = ElmoForPreTraining.from_pretrained(locate(init), **settings, dtype=torch.float32)
    else:
        if not config.get("char_filters", True):
            settings["word_vocab_size"] = max(embedded_ids(vocabulary.words)) + 1
        known, others = ElmoConfig.from_dict({}, return_unused_kwargs=True, **settings)
        model = ElmoForPreTraining(known, **others)  # raises TypeError for what is no field
    if not has_softmax and recipe == "bilm-tf":
        torch.nn.init.zeros_(model.lm_head.bias)
    return model


def _with_evaluations(
    args: ElmoPreTrainingArguments, given: Mapping[str, Any], dataset: PackedWindows | PaddedTexts
) -> ElmoPreTrainingArguments:
    """The arguments of an adaptation, with the steps after which it is evaluated and saved, unless `given` has them.
    transformers raises ValueError if the best model could be one that was not saved."""
    steps = len(dataset) // args.gradient_accumulation_steps if dataset.source.countable else args.max_steps
    every = max(1, min(steps // EVALUATIONS_PER_EPOCH, MAX_EVAL_STEPS))
    defaults = {"eval_steps": given.get("save_steps", every), "save_steps": given.get("eval_steps", every)}
    defaults |= {"load_best_model_at_end": True}
    return replace(args, **defaults | {name: given[name] for name in defaults if name in given})


def _run(trainer: ElmoPreTrainer, checkpoint: Path | None, keep_best: bool, overwrite: bool) -> Pretrained:
    """Trains and saves the model; with `keep_best`, saves the old weights if the held-out perplexity did not fall."""
    args = trainer.args
    evaluated = trainer.eval_dataset
    before = None if evaluated is None else trainer.perplexity(evaluated)
    unchanged = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()} if keep_best else {}
    if overwrite and checkpoint is None and args.should_save:
        for folder in checkpoints(args.output_dir):
            shutil.rmtree(folder)
    trainer.accelerator.wait_for_everyone()
    trainer.train(resume_from_checkpoint=checkpoint)
    after = None if evaluated is None else trainer.perplexity(evaluated)
    if keep_best and not after.mean < before.mean:
        logger.warning("Held-out perplexity did not decrease: the model is left unchanged.")
        trainer.model.load_state_dict(unchanged)
        after = before
    trainer.save_model()
    if best := trainer.state.best_model_checkpoint:
        trainer.state.best_model_checkpoint = Path(best).name  # no path of this machine is published
    trainer.save_state()
    if trainer._after_step.interrupted and trainer.state.global_step < trainer.state.max_steps:
        raise KeyboardInterrupt
    return Pretrained(Path(args.output_dir), before, after)
