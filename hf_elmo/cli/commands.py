"""The commands, in the order in which `hf-elmo --help` lists them."""

import ast
import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

app = typer.Typer(
    help="ELMo for the Hugging Face libraries.",
    epilog="hf-elmo COMMAND --help explains a command, with an example. Exit status: 0, 1 after an error, 2 where the "
    "command line is wrong, 130 after Ctrl-C.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def option(metavar: str, help: str, *names: str) -> Any:
    """An option with a value, by default `--` and the parameter's name."""
    return typer.Option(*names, metavar=metavar, help=help)


def flag(name: str, help: str, *names: str) -> Any:
    """An option without a value."""
    return typer.Option(name, *names, help=help)


def argument(metavar: str, help: str) -> Any:
    """A positional argument."""
    return typer.Argument(metavar=metavar, help=help)


def examples(*lines: str) -> str:
    """The end of a help page."""
    return "\n".join(["\b", "example:" if len(lines) == 1 else "examples:", *(f"  hf-elmo {line}" for line in lines)])


Dtype = Literal["float32", "bfloat16", "float16"]
WordSplitting = Literal["lm1b", "whitespace", "characters"]
Pretokenized = Annotated[
    bool, flag("--pretokenized", "the text is tokenized already: whitespace separates the words", "--words")
]
A_MODEL = "folder or Hub name of an ELMo [the one that ships]"
OptionalModel = Annotated[str | None, argument("[MODEL]", A_MODEL)]
LanguageModel = Annotated[str, argument("MODEL", "folder or Hub name of an ELMo with its softmax")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ... [a GPU if there is one]")]
InputFormat = Annotated[
    Literal["text", "jsonl", "csv", "tsv", "parquet", "fasta"] | None, typer.Option(help="of INPUT [by its ending]")
]
TextColumn = Annotated[
    str | None, option("NAME", "column or key of the text; a number is the index of a column in a CSV without a header")
]
Encoding = Annotated[str, typer.Option(help="of INPUT")]
Overwrite = Annotated[bool, flag("--overwrite", "replace OUTPUT if it exists")]
Restart = Annotated[bool, flag("--restart", "discard what an interrupted run left")]
Texts = Annotated[
    list[str],
    argument(
        "FILES...",
        "text files or glob patterns, one sentence a line, also .gz; or Parquet files, patterns and addresses",
    ),
]
ParquetColumn = Annotated[str | None, option("NAME", "of Parquet [text]")]


def with_model(given: list[str], *names: str) -> list[str | None]:
    """MODEL and the other arguments of a command, where `[MODEL]`, before them, may be left out."""
    missing = len(names) + 1 - len(given)
    if missing not in (0, 1):
        raise typer.BadParameter(f"[MODEL] {' '.join(names)} expected, {len(given)} given: {' '.join(given)}")
    return [None] * missing + given


def number_or_name(text: str | None) -> str | int | None:
    """A layer or a column: its number, or its name."""
    return int(text) if text is not None and text.isdecimal() else text


def settings(entries: list[str]) -> dict[str, Any]:
    """Entries NAME=VALUE, with numbers, booleans, `None` and lists as JSON or Python write them."""
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


def _list_models(wanted: bool) -> None:
    if wanted:
        from hf_elmo.conversion import all_names

        print("\n".join(f"{name:18}{what}" for name, what in all_names().items()))
        raise SystemExit(0)


@app.command(
    short_help="convert a published ELMo, in any of its formats, into a checkpoint",
    epilog=examples(
        "convert manylangs-pt elmo-pt",
        "convert --model manylangs-pt 168.zip elmo-pt",
        "convert options.json weights.hdf5 my-elmo",
        "convert bilm-tf-folder my-elmo",
    ),
)
def convert(
    paths: Annotated[
        list[str],
        argument(
            "(NAME | SOURCE [VOCABULARY] | OPTIONS WEIGHTS) OUT",
            "NAME: small, original, seqvec, manylangs-ko, ...: a published model, unless a file has that name; "
            "SOURCE: a folder or archive, or a TensorFlow checkpoint's prefix beside its options.json; VOCABULARY: the "
            "checkpoint's words [vocab.txt in that folder]; OPTIONS, WEIGHTS: options.json and weights.hdf5; OUT: new "
            "folder",
        ),
    ],
    model: Annotated[
        str | None,
        option(
            "NAME",
            "the published model that SOURCE, or OPTIONS and WEIGHTS, are a copy of: its model card and its "
            "tokenizer become those of a download [no published one]",
        ),
    ] = None,
    list_models: Annotated[
        bool,
        typer.Option("--list", is_eager=True, callback=_list_models, help="show each NAME and what it is, and exit"),
    ] = False,
    elmo_options: Annotated[
        str | None, option("FILE", "with a model.tar.gz that does not hold it: its ELMo's options.json")
    ] = None,
    use: Annotated[
        str | None, option("NAME", "with a model.tar.gz that holds ELMos that differ: the one to convert")
    ] = None,
    dtype: Annotated[Dtype, typer.Option(help="of the weights")] = "float32",
    word_splitting: Annotated[
        WordSplitting | None,
        typer.Option(help="of its tokenizer [lm1b for AllenNLP's files, characters for seqvec, else whitespace]"),
    ] = None,
    cache_dir: Annotated[
        str | None, option("DIR", "for downloaded files, in a folder NAME [huggingface_hub's cache]")
    ] = None,
    sha256: Annotated[
        str | None, option("HEX", "digest that WEIGHTS, or an archive, must have [none is compared]")
    ] = None,
) -> None:
    """
    Write a checkpoint that AutoModel loads into the new folder OUT: from the NAME of a published model, which is
    downloaded, from AllenNLP's files, from a TensorFlow checkpoint of bilm-tf or simple_elmo, softmax included, from a
    folder or archive of simple_elmo or ELMoForManyLangs, a task's model.tar.gz of AllenNLP, or from TF-Hub's
    SavedModel. The checkpoint is read back and compared with its source.
    """
    options = {name: value for name, value in locals().items() if name not in ("paths", "list_models")}
    from hf_elmo.conversion import convert as convert_paths

    written = convert_paths(*paths, **options)
    print(f"{written}: every tensor equals its source; its README.md shows how to use it")


@app.command(
    short_help="write a model as AllenNLP's files, or as ONNX",
    epilog=examples("export my-elmo allennlp-files", "export my-elmo elmo.onnx --onnx"),
)
def export(
    model: Annotated[str, argument("MODEL", "folder or Hub name of an ELMo")],
    out: Annotated[str, argument("OUT", "new folder, or with --onnx new file")],
    onnx: Annotated[bool, flag("--onnx", "write an ONNX file")] = False,
    hidden_states: Annotated[
        bool, flag("--hidden-states", "with --onnx: the biLM's layers as further outputs")
    ] = False,
) -> None:
    """
    Write options.json and weights.hdf5, which AllenNLP, bilm-tf and simple_elmo read, into the new folder OUT; that
    format has no scalar mix, heads or softmax. With --onnx write the ONNX file OUT, the scalar mix and a classifier's
    head included, for any batch size and length.
    """
    from hf_elmo.conversion import export as export_allennlp
    from hf_elmo.conversion import export_onnx

    if onnx:
        print(f"{export_onnx(model, out, output_hidden_states=hidden_states)}: written")
    else:
        print(f"{export_allennlp(model, out)}: every tensor equals the model's")


@app.command(
    short_help="upload a checkpoint to the Hub",
    epilog=examples("push my-elmo somebody/my-elmo --dry-run", "push my-elmo somebody/my-elmo --private"),
)
def push(
    out: Annotated[str, argument("OUT", "folder of the checkpoint")],
    repository: Annotated[str, argument("REPO", "owner/name; created unless it exists")],
    private: Annotated[bool, flag("--private", "only its owner sees REPO")] = False,
    revision: Annotated[str | None, option("NAME", "branch to commit to, created unless it exists [main]")] = None,
    dry_run: Annotated[bool, flag("--dry-run", "only list the files and their sizes; send nothing")] = False,
) -> None:
    """
    Upload the checkpoint in the folder OUT to the repository REPO of the Hub in one commit: model, tokenizer, the code
    with which it loads where hf_elmo is not installed, model card and conversion record. What a training leaves beside
    them (optimizer, checkpoints, arguments) stays at home. It needs a token that may write: log in with hf auth login,
    or set HF_TOKEN.
    """
    from hf_elmo.hub import push as push_checkpoint

    upload = push_checkpoint(out, repository, private=private, revision=revision, dry_run=dry_run)
    for name, size in upload.files.items():
        print(f"{size:>15,}  {name}")
    if upload.left_out:
        print(f"left out: {', '.join(upload.left_out)}")
    total = f"{len(upload.files)} files, {sum(upload.files.values()):,} bytes"
    print(f"{repository}: {total}, " + (upload.url or "nothing is uploaded in a dry run"))


@app.command(
    short_help="embed a corpus",
    epilog=examples(
        "embed sentences.txt vectors.safetensors",
        "embed my-elmo corpus.jsonl vectors.hdf5 --text-column text --layers all",
        "embed seqvec proteins.fasta vectors.npz --layers sum --pooling mean",
        'embed my-elmo "texts/*.jsonl" vectors --engine ray --workers 16',
    ),
)
def embed(
    paths: Annotated[list[str], argument("[MODEL] INPUT OUTPUT", f"{A_MODEL}, file to read, file to write")],
    layers: Annotated[str, typer.Option(help="mix, sum, all, or one layer's number")] = "mix",
    pooling: Annotated[Literal["none", "mean", "max"], typer.Option(help="one vector a row")] = "none",
    dtype: Annotated[Dtype | None, typer.Option(help="to compute in [the model's]")] = None,
    output_dtype: Annotated[Literal["float32", "float16"], typer.Option(help="of the file")] = "float32",
    device: Device = None,
    batch_tokens: Annotated[int | None, option("N", "tokens a batch [16384; on a CPU down to 4096]")] = None,
    window: Annotated[int | None, option("N", "tokens sorted by length together [16 batches]")] = None,
    engine: Annotated[Literal["local", "ray"], typer.Option(help="ray: the workers of a Ray cluster")] = "local",
    workers: Annotated[int | None, option("N", "processes [1; of ray one for each GPU or core]")] = None,
    shard_rows: Annotated[int | None, option("N", "of ray, rows of a Parquet file [1024]")] = None,
    input_format: InputFormat = None,
    text_column: TextColumn = None,
    encoding: Encoding = "utf-8",
    pretokenized: Pretokenized = False,
    overwrite: Overwrite = False,
    restart: Restart = False,
) -> None:
    """
    Write the ELMo vectors of each row of INPUT into OUTPUT. An interrupted run resumes when it is started again. INPUT
    has one row a line or record: .txt, .jsonl, .csv, .tsv, .fasta (also .gz), .parquet, or - (standard input). OUTPUT
    is .safetensors, .npz, .hdf5 or .h5 (bilm-tf's format) or .parquet; rows are named by their number, from 0, and
    FASTA's sequences by their identifiers. With --engine ray INPUT is also a folder, a glob pattern or a URI, and
    OUTPUT a folder of Parquet files.
    """
    options = {name: value for name, value in locals().items() if name not in ("paths", "engine") and value is not None}
    options |= {"layers": number_or_name(layers), "text_column": number_or_name(text_column)}
    model, source, output = with_model(paths, "INPUT", "OUTPUT")
    if engine == "ray":
        from hf_elmo.embedding.workers import embed_on_ray as embed_corpus
    else:
        from hf_elmo.embedding.corpus import embed as embed_corpus
    written = embed_corpus(model, source, output, **options)
    print(f"{written.path}: {written.rows:,} rows, {written.words:,} words, {written.hidden_size} numbers a word")


@app.command(
    short_help="run a fine-tuned model over a file",
    epilog=examples(
        "predict my-classifier texts.txt labels.jsonl",
        "predict my-tagger tokens.txt tags.tsv --pretokenized",
        "predict my-resolver documents.jsonl clusters.jsonl",
        "predict my-esim pairs.csv labels.tsv --text-column premise --text-pair-column hypothesis",
    ),
)
def predict(
    model: Annotated[str, argument("MODEL", "folder or Hub name of a fine-tuned model")],
    inputs: Annotated[str, argument("INPUT", "file to read, or - for standard input")],
    output: Annotated[str, argument("OUTPUT", "file to write")],
    device: Device = None,
    batch_tokens: Annotated[int, option("N", "tokens a batch")] = 4096,
    input_format: InputFormat = None,
    text_column: TextColumn = None,
    encoding: Encoding = "utf-8",
    pretokenized: Pretokenized = False,
    overwrite: Overwrite = False,
    restart: Restart = False,
    text_pair_column: Annotated[
        str | None,
        option(
            "NAME",
            "column or key of the second text: of a question its passage; of a tagger of semantic roles the "
            "number of the predicate's word, from 0",
        ),
    ] = None,
) -> None:
    """
    Write what a classifier, a tagger, an answerer of questions or a resolver of coreference says of each row of INPUT
    into OUTPUT. An interrupted run resumes when it is started again. INPUT has one row a line or record, as embed reads
    it; a document that is resolved has a sentence a line, so it is a record of a .jsonl file. OUTPUT is .jsonl (labels
    and probabilities, words and tags, answers, or words and clusters) or .tsv (a label and its probability a line, of
    several labels at once all of them; an answer and its score; or a word and its tag a line, and a blank line after
    each row).
    """
    options = dict(locals())
    options |= {name: number_or_name(options[name]) for name in ("text_column", "text_pair_column")}
    from hf_elmo.tasks.predict import predict as predict_rows

    written = predict_rows(**options)
    print(f"{written.path}: {written.rows:,} rows")


@app.command(
    short_help="find where a corpus uses a word in the same sense",
    epilog=examples('neighbors "He sat on the bank of the river." bank corpus.txt'),
)
def neighbors(
    arguments: Annotated[
        list[str],
        argument(
            "[MODEL] SENTENCE WORD CORPUS",
            f"{A_MODEL}, a sentence, a word of it (the first occurrence), file to search",
        ),
    ],
    top: Annotated[int, option("N", "neighbors for each layer")] = 5,
    any_word: Annotated[bool, flag("--any-word", "search all words, not only occurrences of WORD")] = False,
    pretokenized: Pretokenized = False,
) -> None:
    """
    Print the words of CORPUS whose vectors are nearest to that of WORD in SENTENCE: in layer 0 words of similar
    spelling, in the layers above occurrences in the corpus, with their line.
    """
    from hf_elmo.analysis.similarity import nearest_neighbors

    query = with_model(arguments, "SENTENCE", "WORD", "CORPUS")
    for layer, places in nearest_neighbors(*query, top=top, any_word=any_word, pretokenized=pretokenized).items():
        for place in places:
            where = f"{place.row + 1}: {place.in_context()}" if layer else place.word
            print(f"layer {layer}  {place.similarity:.3f}  {where}")


@app.command(
    short_help="find lexical substitutes",
    epilog=examples('substitutes my-elmo "He sat on the bank of the river." bank'),
)
def substitutes(
    model: LanguageModel,
    sentence: Annotated[str, argument("SENTENCE", "a sentence")],
    word: Annotated[str | None, argument("[WORD]", "a word of it [all words]")] = None,
    top: Annotated[int, option("N", "words to print for each place")] = 10,
    pretokenized: Pretokenized = False,
) -> None:
    """
    For each word of SENTENCE, or for WORD, print the words that are most probable in its place by both language models
    together, with their probabilities.
    """
    from hf_elmo.analysis.scoring import substitutes as find_substitutes

    for place in find_substitutes(model, sentence, word, top=top, pretokenized=pretokenized):
        print(place.word, *(f"{other} {math.exp(value):.3f}" for other, value in place.candidates), sep="\t")


@app.command(
    "next",
    short_help="show how the language models continue a sentence",
    epilog=examples('next "Let\'s stick to"', 'next my-elmo "of the river ." --before'),
)
def next_words(
    arguments: Annotated[
        list[str], argument("[MODEL] TEXT", f"{A_MODEL}, the beginning of a sentence, with --before its end")
    ],
    before: Annotated[bool, flag("--before", "the words before TEXT")] = False,
    top: Annotated[int, option("N", "words to print")] = 10,
    pretokenized: Pretokenized = False,
) -> None:
    """
    Print the words that are most probable after TEXT, the beginning of a sentence, by the forward language model, with
    their probabilities; with --before the words before TEXT, the end of a sentence, by the backward one. MODEL has its
    softmax.
    """
    from hf_elmo.analysis import scoring

    ask = scoring.previous_words if before else scoring.next_words
    for word, value in ask(*with_model(arguments, "TEXT"), top=top, pretokenized=pretokenized):
        print(f"{word}\t{math.exp(value):.3f}")


@app.command(
    short_help="look into a model on a page in the browser",
    epilog=examples("explore", "explore my-elmo --corpus corpus.txt --port 7861"),
)
def explore(
    model: OptionalModel = None,
    corpus: Annotated[str | None, option("FILE", "where to look for neighbors [sentences typed on the page]")] = None,
    pretokenized: Pretokenized = False,
    host: Annotated[str, option("ADDRESS", "to listen at; 127.0.0.1 is this machine")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(metavar="N", min=0, max=65535, help="[7860, or the next one that is free]")
    ] = None,
    browser: Annotated[bool, flag("--browser", "open the page in the browser")] = False,
) -> None:
    """
    Serve a page on this machine, until Ctrl-C: the similarity of a word in two sentences by layer, where a corpus uses
    a word in the same sense, substitutes where the checkpoint has its softmax, and the words of a few sentences in the
    plane.
    """
    from hf_elmo.explore.page import explore as serve

    serve(model, corpus, pretokenized, host, port, browser)


@app.command(short_help="show what a bug report should hold", epilog=examples("env", "env my-elmo --dtype bfloat16"))
def env(
    model: OptionalModel = None,
    dtype: Annotated[Dtype | None, typer.Option(help="what MODEL computes in [as it is loaded]")] = None,
) -> None:
    """
    Print versions, devices, instruction sets, the compiler and the folder of its kernels, and for MODEL which backend
    each of its operations takes, and why not a faster one.
    """
    from hf_elmo.kernels.registry import describe, describe_environment
    from hf_elmo.shipped import load_model

    print(describe_environment())
    loaded, _ = load_model(model, dtype=dtype)
    print(f"\n{model or 'the model that ships'}, {str(loaded.dtype).removeprefix('torch.')}, {loaded.device}")
    print(describe(loaded))


@app.command(
    short_help="count the words of a corpus for a language model's softmax",
    epilog=examples("vocab vocab.txt texts/*.txt --size 40000"),
)
def vocab(
    out: Annotated[str, argument("OUT", "file to write")],
    files: Texts,
    size: Annotated[int | None, option("N", "words to keep, the three special ones included [all]")] = None,
    min_count: Annotated[int, option("N", "leave rarer words out")] = 1,
    overwrite: Annotated[bool, flag("--overwrite", "replace OUT if it exists")] = False,
    pretokenized: Pretokenized = False,
    word_splitting: Annotated[WordSplitting, typer.Option(help="as the model's tokenizer splits")] = "lm1b",
    text_column: ParquetColumn = None,
) -> None:
    """Write the vocabulary file OUT: <S>, </S>, <UNK>, then the words of FILES by decreasing frequency."""
    from hf_elmo.pretraining.vocabulary import build_vocabulary
    from hf_elmo.text import open_texts
    from hf_elmo.tokenization_elmo import ElmoTokenizer

    if Path(out).exists() and not overwrite:
        raise FileExistsError(f"OUT, {out}, exists; choose another name, or --overwrite")
    source = open_texts(files, None if pretokenized else ElmoTokenizer(word_splitting), column=text_column)
    if Path(out).resolve() in (Path(name).resolve() for name in getattr(source, "files", ())):
        raise ValueError(f"OUT, {out}, is one of FILES: give the vocabulary's file first, then the text's.")
    vocabulary = build_vocabulary((words for text in source.read() for words in text), size, min_count)
    vocabulary.save(out)
    print(f"{out}: {len(vocabulary):,} words")


@app.command(
    short_help="train the language models on text",
    epilog=examples(
        "pretrain my-elmo texts/*.txt --vocab vocab.txt --held-out heldout.txt --bf16",
        "pretrain my-domain domain.txt --init my-elmo",
        'pretrain my-elmo "s3://bucket/texts/*.parquet" --vocab vocab.txt --steps 100000',
    ),
)
def pretrain(
    out: Annotated[str, argument("OUT", "folder of the checkpoint")],
    texts: Texts,
    held_out: Annotated[list[str] | None, option("FILES...", "text to evaluate on [with --init: 1 in 20]")] = None,
    init: Annotated[str | None, option("MODEL", "folder or Hub name of the ELMo to adapt")] = None,
    vocabulary: Annotated[str | None, option("FILE", "words of the softmax [counted in FILES]", "--vocab")] = None,
    vocabulary_size: Annotated[int | None, option("N", "words to keep [all]", "--vocab-size")] = None,
    pretokenized: Pretokenized = False,
    word_splitting: Annotated[WordSplitting | None, typer.Option(help="of the new tokenizer [lm1b]")] = None,
    layout: Annotated[Literal["windows", "sentences", "documents"], typer.Option(help="of the rows")] = "windows",
    batch_size: Annotated[int | None, option("N", "rows for each process [128, with --init 32]")] = None,
    window: Annotated[int | None, option("N", "words of a row in windows [20]")] = None,
    shuffle_block: Annotated[int, option("N", "texts shuffled together, in memory")] = 1_000_000,
    text_column: ParquetColumn = None,
    num_train_epochs: Annotated[float | None, option("N", "passes [10, with --init 5]", "--epochs")] = None,
    max_steps: Annotated[int | None, option("N", "updates, instead of --epochs", "--steps")] = None,
    optim: Annotated[str | None, option("NAME", "adagrad, adamw_torch, ... [adagrad, with --init adamw_torch]")] = None,
    learning_rate: Annotated[float | None, option("X", "[0.2, with --init 0.0005]")] = None,
    bf16: Annotated[bool | None, typer.Option("--bf16", help="mixed precision with bfloat16")] = None,
    seed: Annotated[int | None, option("N", "[42]")] = None,
    resume: Annotated[bool, flag("--resume", "continue from the last checkpoint in OUT")] = False,
    overwrite: Annotated[bool, flag("--overwrite", "train anew where OUT holds a model or checkpoints")] = False,
    config: Annotated[list[str] | None, option("NAME=VALUE", "a field of ElmoConfig")] = None,
    arguments: Annotated[list[str] | None, option("NAME=VALUE", "a TrainingArguments field", "--set")] = None,
) -> None:
    """
    Train a new biLM on FILES, or with --init adapt a trained one to the text of a domain, into the folder OUT. torchrun
    starts it in several processes, each of which reads a part of FILES. --resume continues an interrupted run exactly.
    """
    options = {name: value for name, value in locals().items() if value is not None}
    options |= {"config": settings(config or []), "output": options.pop("out")}
    options.pop("arguments", None)
    from hf_elmo.pretraining.recipe import describe
    from hf_elmo.pretraining.recipe import pretrain as train

    result = train(**options, **settings(arguments or []))
    for name, held_out_perplexity in (("before", result.before), ("after", result.after)):
        if held_out_perplexity is not None:
            print(f"held-out perplexity {name}: {describe(held_out_perplexity)}")
    print(f"{result.folder}: written")


@app.command(
    short_help="measure how well the language models predict a text", epilog=examples("perplexity my-elmo heldout.txt")
)
def perplexity(
    model: LanguageModel,
    files: Texts,
    pretokenized: Pretokenized = False,
    stateful: Annotated[
        bool, flag("--stateful", "carry the state from sentence to sentence, as bilm-tf does [each from zero state]")
    ] = False,
    batch_size: Annotated[
        int | None, option("N", "rows with --stateful [one for each 4,096 words, 256 at most]")
    ] = None,
    text_column: ParquetColumn = None,
) -> None:
    """
    Print the perplexity of the forward and of the backward language model on FILES, and the one of their mean loss, by
    the full softmax.
    """
    options = {name: value for name, value in locals().items() if name not in ("model", "files")}
    from hf_elmo.pretraining.perplexity import perplexity as measure
    from hf_elmo.pretraining.recipe import describe

    result = measure(model, files, **options)
    print(f"perplexity: {describe(result)}")
