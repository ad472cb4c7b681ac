"""The commands that use a model: embed, predict, neighbors, substitutes, next, explore, env."""

import math
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from .options import argument, column, command, flag, number_or_name, option, resumable, show
from .parameters import Dtype, Encoding, InputFormat, Json, LanguageModel, Model, Overwrite, Pretokenized, TextColumn

Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ... [a GPU if there is one]")]
Input = Annotated[str, argument("INPUT", "file to read; also a folder, a pattern, an address, or -")]
Restart = Annotated[bool, flag("--restart", "discard the work of an interrupted run")]


@command(
    "embed a corpus",
    "embed sentences.txt vectors.safetensors",
    "embed corpus.jsonl vectors.hdf5 --model my-elmo --text-column text --layers all",
    "embed proteins.fasta vectors.npz --model seqvec --layers sum --pooling mean",
)
def embed(
    inputs: Input,
    output: Annotated[str, argument("OUTPUT", "file to write")],
    model: Model = None,
    layers: Annotated[str, typer.Option(help="mix, sum, all, or the number of a layer")] = "mix",
    pooling: Annotated[Literal["none", "mean", "max"], typer.Option(help="mean, max: one vector per row")] = "none",
    dtype: Annotated[Dtype | None, typer.Option(help="type to compute in [the model's]")] = None,
    output_dtype: Annotated[Literal["float32", "float16"], typer.Option(help="type of the vectors")] = "float32",
    device: Device = None,
    batch_tokens: Annotated[int | None, option("N", "tokens per batch [16384; on a CPU 4096 to 16384]", min=1)] = None,
    shard_tokens: Annotated[int | None, option("N", "tokens sorted and saved together [16 batches]", min=1)] = None,
    workers: Annotated[int, option("N", "processes, on GPUs one for each", min=1)] = 1,
    input_format: InputFormat = None,
    text_column: TextColumn = None,
    encoding: Encoding = "utf-8",
    pretokenized: Pretokenized = False,
    overwrite: Overwrite = False,
    restart: Restart = False,
) -> None:
    """Write the ELMo vectors of each row of INPUT into OUTPUT. An interrupted run resumes when it is started again.
    INPUT has one row per line, record or sentence: .txt, .jsonl, .csv, .tsv, .parquet, .fasta, or CoNLL (also .gz).
    OUTPUT is .safetensors, .npz, .hdf5 or .h5 (bilm-tf's format), .parquet, or .txt or .txt.gz (each line has a word
    and its numbers). Rows are named by their number, from 0, and FASTA sequences by their identifiers."""
    options = {**locals(), "layers": number_or_name(layers)}
    from hf_elmo.embedding.corpus import embed as embed_corpus

    with resumable(lambda: Path(f"{output}.parts")):
        written = embed_corpus(**options, progress="lines")
    print(f"{written.path}: {written.rows:,} rows, {written.words:,} words, {written.hidden_size} numbers a word")


@command(
    "run a fine-tuned model over a file",
    "predict texts.txt labels.jsonl --model my-classifier",
    "predict tokens.txt tags.tsv --model my-tagger --pretokenized",
    "predict treebank.conllu tags.tsv --model my-tagger",
    "predict documents.jsonl clusters.jsonl --model my-coreference",
    "predict pairs.csv labels.tsv --model my-esim --text-column premise --text-pair-column hypothesis",
)
def predict(
    inputs: Input,
    output: Annotated[str, argument("OUTPUT", "file to write")],
    model: Annotated[str, option("MODEL", "folder or Hub name of a fine-tuned model", "--model")],
    device: Device = None,
    batch_tokens: Annotated[int, option("N", "tokens per batch", min=1)] = 4096,
    workers: Annotated[int, option("N", "processes, on GPUs one for each", min=1)] = 1,
    input_format: InputFormat = None,
    text_column: TextColumn = None,
    encoding: Encoding = "utf-8",
    pretokenized: Pretokenized = False,
    overwrite: Overwrite = False,
    restart: Restart = False,
    text_pair_column: Annotated[str | None, column("column or key of the second text, or a predicate's index")] = None,
    speakers_column: Annotated[str | None, option("NAME", "coreference: column or key of each line's speaker")] = None,
    genre_column: Annotated[str | None, option("NAME", "coreference: column or key of the genre's number")] = None,
) -> None:
    """Write the predictions of a classifier, a tagger, a model for question answering or for coreference resolution for
    each row of INPUT into OUTPUT. An interrupted run resumes when it is started again. INPUT has one row per line or
    record, as for embed. For coreference a row is a .jsonl record whose text has one sentence per line. OUTPUT is
    .jsonl (labels and probabilities, words and tags, answers, or words and clusters) or .tsv (per line a label and its
    probability, or all labels of a row; an answer and its score; or a word and its tag, and a blank line per row)."""
    options = {**locals(), "progress": "lines"}
    from hf_elmo.tasks.predict import predict as predict_rows

    with resumable(lambda: Path(f"{output}.parts")):
        written = predict_rows(**options)
    print(f"{written.path}: {written.rows:,} rows")


@command(
    "find the nearest uses of a word in a corpus",
    'neighbors "He sat on the bank of the river." bank corpus.txt',
    'neighbors "He sat on the bank of the river." bank vectors.parquet',
)
def neighbors(
    sentence: Annotated[str, argument("SENTENCE", "a sentence")],
    word: Annotated[str, argument("WORD", "a word of SENTENCE (its first occurrence)")],
    corpus: Annotated[str, argument("CORPUS", "file to search; also a folder, a pattern, an address, or -")],
    model: Model = None,
    top: Annotated[int, option("N", "neighbors for each layer", min=1)] = 5,
    any_word: Annotated[bool, flag("--any-word", "above layer 0, search all words, not only WORD")] = False,
    input_format: InputFormat = None,
    text_column: TextColumn = None,
    encoding: Encoding = "utf-8",
    pretokenized: Pretokenized = False,
    as_json: Json = False,
) -> None:
    """Print the words of CORPUS whose vectors are nearest to the vector of WORD in SENTENCE: for layer 0 words of
    similar spelling, for the layers above occurrences in the corpus, with their rows. CORPUS is text, as for embed, or
    a .parquet file of the vectors of its words that embed wrote."""
    options = {name: value for name, value in locals().items() if name != "as_json"}
    from hf_elmo.analysis.similarity import nearest_neighbors

    found = nearest_neighbors(**options)
    lines = []
    for layer, places in found.items():
        name = layer if isinstance(layer, str) else f"layer {layer}"
        if not places:
            print(f"{name}  no other sentence of CORPUS has {word!r}; --any-word compares all words", file=sys.stderr)
        for place in places:
            where = place.word if layer == 0 else f"{place.row + 1}: {place.in_context()}"
            lines.append(f"{name}  {place.similarity:.3f}  {where}")
    show(found, "\n".join(lines), as_json)


@command("find lexical substitutes", 'substitutes "He sat on the bank of the river." bank')
def substitutes(
    sentence: Annotated[str, argument("SENTENCE", "a sentence")],
    word: Annotated[str | None, argument("WORD", "a word of SENTENCE [all words]")] = None,
    model: LanguageModel = None,
    top: Annotated[int, option("N", "words to print for each place", min=1)] = 10,
    pretokenized: Pretokenized = False,
    as_json: Json = False,
) -> None:
    """For each word of SENTENCE, or for WORD, print the words that both language models find most probable there."""
    from hf_elmo.analysis.scoring import substitutes as find_substitutes

    places = find_substitutes(model, sentence, word, top=top, pretokenized=pretokenized)
    cells = ([one.word, *(f"{other} {math.exp(value):.3f}" for other, value in one.candidates)] for one in places)
    show(places, "\n".join(map("\t".join, cells)), as_json)


@command(
    "show how the language models continue a sentence",
    'next "Let\'s stick to"',
    'next "of the river ." --before',
    name="next",
)
def next_words(
    text: Annotated[str, argument("TEXT", "beginning of a sentence (with --before: end)")],
    model: LanguageModel = None,
    before: Annotated[bool, flag("--before", "print the words before TEXT")] = False,
    top: Annotated[int, option("N", "words to print", min=1)] = 10,
    pretokenized: Pretokenized = False,
    as_json: Json = False,
) -> None:
    """Print the words that the forward language model finds most probable after TEXT, the beginning of a sentence; with
    --before, those that the backward language model finds most probable before TEXT, the end of a sentence."""
    from hf_elmo.analysis.scoring import next_words as expected_words

    found = expected_words(model, text, before=before, top=top, pretokenized=pretokenized)
    show(found, "\n".join(f"{other}\t{math.exp(value):.3f}" for other, value in found), as_json)


@command("explore a model on a web page", "explore", "explore --model my-elmo --corpus corpus.txt --port 7861")
def explore(
    model: Model = None,
    corpus: Annotated[str | None, option("FILE", "text to search for neighbors [sentences typed on the page]")] = None,
    input_format: InputFormat = None,
    text_column: TextColumn = None,
    encoding: Encoding = "utf-8",
    pretokenized: Pretokenized = False,
    host: Annotated[str, option("ADDRESS", "address to listen on; 127.0.0.1: this machine only")] = "127.0.0.1",
    port: Annotated[int | None, option("N", "port [7860, or the next free one]", min=0)] = None,
    browser: Annotated[bool, flag("--browser", "open the page in the browser")] = False,
) -> None:
    """Serve a web page until Ctrl-C: similarity of a word in two sentences by layer, the nearest uses of a word in a
    corpus, substitutes if the checkpoint has its softmax, and the words of a few sentences as points in the plane."""
    from hf_elmo.explore import Explorer
    from hf_elmo.explore.page import explore as serve

    options = {"input_format": input_format, "text_column": text_column, "encoding": encoding}
    serve(Explorer(model, corpus, pretokenized, **options), host, port, browser)


@command("print what a bug report needs", "env", "env --model my-elmo --dtype bfloat16")
def env(
    model: Model = None,
    dtype: Annotated[Dtype | None, typer.Option(help="type that MODEL computes in [its own]")] = None,
    as_json: Json = False,
) -> None:
    """Print versions, devices, instruction sets, the C compiler and the folder of compiled kernels; then for each
    operation of MODEL, the backend that it uses, and why it does not use a faster one."""
    from hf_elmo.checkpoints.loading import load_model
    from hf_elmo.cli.environment import describe_environment
    from hf_elmo.kernels import describe

    rows = describe_environment()
    loaded, _ = load_model(model, dtype=dtype, device=None)
    rows["model"] = f"{model or 'the model that ships'}, {str(loaded.dtype).removeprefix('torch.')}, {loaded.device}"
    backends = describe(loaded)
    width = max(map(len, rows))
    text = "\n".join(f"{name:{width}}  {value}" for name, value in rows.items())
    show({**rows, "backends": backends.splitlines()}, f"{text}\n\n{backends}", as_json)
