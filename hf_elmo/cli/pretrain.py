"""The commands that train language models and measure them: vocab, pretrain, perplexity."""

import ast
import json
from contextlib import suppress
from typing import Annotated, Any, Literal

import typer

from .options import LanguageModel, Pretokenized, WordSplitting, argument, command, flag, option

FILES = "text files with one sentence per line (also .gz), or Parquet files; also glob patterns and addresses"
Texts = Annotated[list[str], argument("FILES...", FILES)]
ParquetColumn = Annotated[str | None, option("NAME", "text column of Parquet files [text, sentence, words or tokens]")]
Encoding = Annotated[str, typer.Option(help="encoding of FILES")]


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


@command("count the words of a corpus for a language model's softmax", "vocab vocab.txt texts/*.txt --size 40000")
def vocab(
    out: Annotated[str, argument("OUT", "file to write")],
    files: Texts,
    size: Annotated[int | None, option("N", "words to keep, including the three special ones [all]")] = None,
    min_count: Annotated[int, option("N", "leave out words with fewer occurrences")] = 1,
    overwrite: Annotated[bool, flag("--overwrite", "replace OUT if it exists")] = False,
    pretokenized: Pretokenized = False,
    word_splitting: Annotated[WordSplitting, typer.Option(help="how the tokenizer splits text")] = "lm1b",
    text_column: ParquetColumn = None,
    encoding: Encoding = "utf-8",
) -> None:
    """Write the vocabulary file OUT: <S>, </S>, <UNK>, then the words of FILES by decreasing frequency."""
    from hf_elmo.pretraining.texts import open_texts
    from hf_elmo.pretraining.vocabulary import build_vocabulary
    from hf_elmo.tokenization_elmo import ElmoTokenizer
    from hf_elmo.utils.text import local_path

    if local_path(out).exists() and not overwrite:
        raise FileExistsError(f"OUT, {out}, exists: choose another name, or give --overwrite.")
    tokenizer = None if pretokenized else ElmoTokenizer(word_splitting)
    source = open_texts(files, tokenizer, column=text_column, encoding=encoding)
    vocabulary = build_vocabulary(source.sentences(), size, min_count)
    vocabulary.save(out)
    print(f"{out}: {len(vocabulary):,} words")


@command(
    "train the language models on text",
    "pretrain my-elmo texts/*.txt --vocab vocab.txt --held-out heldout.txt --bf16",
    "pretrain my-domain domain.txt --init my-elmo",
    'pretrain my-elmo "s3://bucket/texts/*.parquet" --vocab vocab.txt --steps 100000',
)
def pretrain(
    out: Annotated[str, argument("OUT", "folder of the checkpoint")],
    texts: Texts,
    held_out: Annotated[
        list[str] | None, option("FILE", "text to evaluate on, or a pattern [with --init: 1 text in 20]")
    ] = None,
    init: Annotated[str | None, option("MODEL", "folder or Hub name of the ELMo to adapt")] = None,
    recipe: Annotated[
        Literal["new", "adapt", "bilm-tf"] | None, typer.Option(help="training settings [new; with --init adapt]")
    ] = None,
    vocabulary: Annotated[str | None, option("FILE", "words of the softmax [of --init, or counted]", "--vocab")] = None,
    vocabulary_size: Annotated[int | None, option("N", "words to keep [all]", "--vocab-size")] = None,
    pretokenized: Pretokenized = False,
    word_splitting: Annotated[WordSplitting | None, typer.Option(help="how a new tokenizer splits text [lm1b]")] = None,
    layout: Annotated[Literal["windows", "sentences", "documents"], typer.Option(help="rows of a batch")] = "windows",
    batch_size: Annotated[int | None, option("N", "rows per batch in each process [64; with --init 32]")] = None,
    window: Annotated[int | None, option("N", "words per row, in windows [20]")] = None,
    shuffle_block: Annotated[int, option("N", "texts shuffled together, in memory")] = 1_000_000,
    text_column: ParquetColumn = None,
    encoding: Encoding = "utf-8",
    num_train_epochs: Annotated[float | None, option("N", "passes over FILES [10; with --init 5]", "--epochs")] = None,
    max_steps: Annotated[int | None, option("N", "training steps, instead of --epochs", "--steps")] = None,
    optim: Annotated[str | None, option("NAME", "optimizer [adamw_torch_fused]")] = None,
    learning_rate: Annotated[float | None, option("X", "learning rate [0.003; with --init 0.0005]")] = None,
    ema: Annotated[float | None, option("DECAY", "evaluate and save a moving average of the weights")] = None,
    bf16: Annotated[bool | None, typer.Option("--bf16", help="mixed precision with bfloat16")] = None,
    seed: Annotated[int | None, option("N", "random seed [42]")] = None,
    resume: Annotated[bool, flag("--resume", "continue from the last checkpoint in OUT")] = False,
    overwrite: Annotated[bool, flag("--overwrite", "start over even if OUT holds a model or checkpoints")] = False,
    config: Annotated[list[str] | None, option("NAME=VALUE", "a field of ElmoConfig")] = None,
    arguments: Annotated[list[str] | None, option("NAME=VALUE", "a TrainingArguments field", "--set")] = None,
) -> None:
    """Train a new biLM on FILES, or with --init adapt a trained biLM to the text of a domain, and write it into the
    folder OUT. With torchrun, each process reads a part of FILES. --resume continues an interrupted run exactly; Ctrl-C
    ends a run after a step, with a checkpoint to resume from."""
    options = {name: value for name, value in locals().items() if value is not None}
    options |= {"config": settings(config or []), "output": options.pop("out")}
    options.pop("arguments", None)
    from hf_elmo.pretraining.recipe import pretrain as train

    result = train(**options, **settings(arguments or []))
    for name, held_out_perplexity in (("before", result.before), ("after", result.after)):
        if held_out_perplexity is not None:
            print(f"held-out perplexity {name}: {held_out_perplexity}")
    print(f"{result.folder}: written")


@command("measure how well the language models predict a text", "perplexity heldout.txt --model my-elmo")
def perplexity(
    files: Texts,
    model: LanguageModel = None,
    pretokenized: Pretokenized = False,
    stateful: Annotated[
        bool, flag("--stateful", "carry the state from sentence to sentence, as bilm-tf does [each starts from zeros]")
    ] = False,
    batch_size: Annotated[
        int | None, option("N", "with --stateful: rows per batch [one per 4,096 words, at most 256]")
    ] = None,
    text_column: ParquetColumn = None,
    encoding: Encoding = "utf-8",
) -> None:
    """Print the perplexities of the forward and the backward language model on FILES, and the perplexity of their mean
    loss, with the full softmax."""
    options = {name: value for name, value in locals().items() if name not in ("model", "files")}
    from hf_elmo.pretraining.perplexity import perplexity as measure

    print(f"perplexity: {measure(model, files, **options)}")
