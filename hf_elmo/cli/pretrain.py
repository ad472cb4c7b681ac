"""The commands that train language models and measure them: vocab, pretrain, perplexity."""

import ast
import json
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal

import typer

from .options import argument, command, flag, option, resumable, show
from .parameters import Encoding, InputFormat, Json, LanguageModel, Overwrite, Pretokenized, TextColumn, WordSplitting

Inputs = Annotated[list[str], argument("INPUT", "files to read; also folders, patterns, addresses, or -")]


def settings(entries: list[str]) -> dict[str, Any]:
    """The values of entries NAME=VALUE by name. Numbers, booleans, `None` and lists are as in JSON or Python."""
    values: dict[str, Any] = {}
    for entry in entries:
        name, equals, text = entry.partition("=")
        if not equals:
            raise typer.BadParameter(f"{entry!r} is not NAME=VALUE")
        values[name] = text
        for read in (ast.literal_eval, json.loads):
            with suppress(ValueError, SyntaxError):
                values[name] = read(text)
    return values


@command("count the words of a corpus for a language model's softmax", "vocab texts/*.txt vocab.txt --size 40000")
def vocab(
    inputs: Inputs,
    output: Annotated[str, argument("OUTPUT", "file to write")],
    size: Annotated[int | None, option("N", "words to keep, including the three special ones [all]", min=4)] = None,
    min_count: Annotated[int, option("N", "leave out words with fewer occurrences")] = 1,
    overwrite: Overwrite = False,
    pretokenized: Pretokenized = False,
    word_splitting: Annotated[WordSplitting, typer.Option(help="how the tokenizer splits text")] = "lm1b",
    input_format: InputFormat = None,
    text_column: TextColumn = None,
    encoding: Encoding = "utf-8",
) -> None:
    """Write the vocabulary file OUTPUT: <S>, </S>, <UNK>, then the words of INPUT by decreasing frequency. INPUT has
    one sentence per line, record or row, as for embed."""
    from hf_elmo.pretraining.texts import Texts
    from hf_elmo.pretraining.vocabulary import build_vocabulary, require_vocabulary
    from hf_elmo.reading.files import Files, local_path, require_apart
    from hf_elmo.tokenization_elmo import ElmoTokenizer

    reading = {"input_format": input_format, "text_column": text_column, "encoding": encoding}
    source = Texts(Files(inputs), None if pretokenized else ElmoTokenizer(word_splitting), **reading)
    require_apart(local_path(output), {"the input": source.rows.places}, overwrite)
    require_vocabulary(output)
    source.report()
    vocabulary = build_vocabulary(source.sentences(), size, min_count)
    vocabulary.save(output)
    print(f"{output}: {len(vocabulary):,} words")


@command(
    "train the language models on text",
    "pretrain texts/*.txt my-elmo --vocab vocab.txt --held-out heldout.txt --bf16",
    "pretrain domain.txt my-domain --init my-elmo",
    'pretrain "s3://bucket/texts/*.parquet" my-elmo --vocab vocab.txt --steps 100000',
)
def pretrain(
    inputs: Inputs,
    output: Annotated[str, argument("OUTPUT", "folder of the checkpoint")],
    held_out: Annotated[list[str] | None, option("FILE", "text to evaluate on [with --init: 1 text in 20]")] = None,
    init: Annotated[str | None, option("MODEL", "folder or Hub name of the ELMo to adapt")] = None,
    recipe: Annotated[
        Literal["new", "adapt", "bilm-tf"] | None, typer.Option(help="training settings [new; with --init adapt]")
    ] = None,
    vocabulary: Annotated[str | None, option("FILE", "words of the softmax [of --init, or counted]", "--vocab")] = None,
    vocabulary_size: Annotated[int | None, option("N", "words to keep [all]", "--vocab-size", min=4)] = None,
    pretokenized: Pretokenized = False,
    word_splitting: Annotated[WordSplitting | None, typer.Option(help="how a new tokenizer splits text [lm1b]")] = None,
    layout: Annotated[Literal["windows", "sentences", "documents"], typer.Option(help="rows of a batch")] = "windows",
    batch_size: Annotated[int | None, option("N", "rows per batch in each process [64; with --init 32]", min=1)] = None,
    window: Annotated[int | None, option("N", "words per row, in windows [20]", min=1)] = None,
    shuffle_block: Annotated[int, option("N", "texts shuffled together, in memory", min=0)] = 1_000_000,
    input_format: InputFormat = None,
    text_column: TextColumn = None,
    encoding: Encoding = "utf-8",
    num_train_epochs: Annotated[float | None, option("N", "passes over INPUT [10; with --init 5]", "--epochs")] = None,
    max_steps: Annotated[int | None, option("N", "training steps, instead of --epochs", "--steps")] = None,
    optim: Annotated[str | None, option("NAME", "optimizer [adamw_torch_fused]")] = None,
    learning_rate: Annotated[float | None, option("X", "learning rate [0.003; with --init 0.0005]")] = None,
    ema: Annotated[float | None, option("DECAY", "evaluate and save a moving average of the weights")] = None,
    bf16: Annotated[bool | None, typer.Option("--bf16", help="mixed precision with bfloat16")] = None,
    seed: Annotated[int | None, option("N", "random seed [42]")] = None,
    resume: Annotated[bool, flag("--resume", "continue from the last checkpoint in OUTPUT")] = False,
    overwrite: Annotated[bool, flag("--overwrite", "start over even if OUTPUT holds a model or checkpoints")] = False,
    config: Annotated[list[str] | None, option("NAME=VALUE", "a field of ElmoConfig")] = None,
    arguments: Annotated[list[str] | None, option("NAME=VALUE", "a TrainingArguments field", "--set")] = None,
) -> None:
    """Train a new biLM on INPUT, or with --init adapt a trained biLM to the text of a domain, and write it into the
    folder OUTPUT. INPUT has one sentence per line, record or row, as for embed. With torchrun, each process reads a
    part of it. Ctrl-C ends a run after a step, with a checkpoint; --resume continues an interrupted run exactly."""
    options = {name: value for name, value in locals().items() if value is not None and name != "arguments"}
    from hf_elmo.pretraining.recipe import pretrain as train
    from hf_elmo.pretraining.trainer import last_whole_checkpoint
    from hf_elmo.reading.files import Files

    options |= {"config": settings(config or []), "inputs": Files(inputs)}
    options |= {} if held_out is None else {"held_out": Files(held_out)}
    with resumable(partial(last_whole_checkpoint, output), "the same command with --resume"):
        result = train(**options, **settings(arguments or []))
    for name, held_out_perplexity in (("before", result.before), ("after", result.after)):
        if held_out_perplexity is not None:
            print(f"held-out perplexity {name}: {held_out_perplexity}")
    print(f"{result.folder}: written")


@command("measure how well the language models predict a text", "perplexity heldout.txt --model my-elmo")
def perplexity(
    inputs: Inputs,
    model: LanguageModel = None,
    pretokenized: Pretokenized = False,
    stateful: Annotated[bool, flag("--stateful", "carry the state from sentence to sentence, as bilm-tf does")] = False,
    batch_size: Annotated[int | None, option("N", "stateful: rows per batch [one per 4,096 words]", min=1)] = None,
    input_format: InputFormat = None,
    text_column: TextColumn = None,
    encoding: Encoding = "utf-8",
    as_json: Json = False,
) -> None:
    """Print the perplexities of the forward and the backward language model on INPUT, and the perplexity of their mean
    loss, with the full softmax. INPUT has one sentence per line, record or row, as for embed."""
    options = {name: value for name, value in locals().items() if name not in ("model", "inputs", "as_json")}
    from hf_elmo.pretraining.perplexity import perplexity as measure
    from hf_elmo.reading.files import Files

    found = measure(model, Files(inputs), **options)
    show(found, f"perplexity: {found}", as_json)
