"""
The command `hf-elmo`: each subcommand reads its options and calls one function of the Python interface.

Installed as `hf_elmo_cli`, a package of its own that imports hf_elmo only to run a subcommand: hf_elmo imports
transformers, which takes seconds, and `--help`, `--version` and a wrong option need neither.
"""

from __future__ import annotations

import argparse
import ast
import json
import logging
import math
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Their messages say what is wrong and what to do; of any other error the type is named, too.
EXPECTED = (ValueError, TypeError, OSError, ImportError, MemoryError, FloatingPointError)
FILES = ("[MODEL] INPUT OUTPUT", "CORPUS", "FILE", "FILES", "MODEL", "OUT", "PATH", "DIR")  # completed as file names
_DTYPES = ("float32", "bfloat16", "float16")
_WORD_SPLITTINGS = ("lm1b", "whitespace", "characters")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand.

    Args:
        arguments: without the program's name; by default those of the command line.

    Returns:
        The exit status: 0, 1 after an error (its message is on standard error), 130 after Ctrl-C.

    Raises:
        SystemExit: with 0 after `--help` and `--version`, with 2 where the command line is wrong.
    """
    options = make_parser().parse_args(arguments)
    logging.basicConfig(format="%(levelname)s: %(message)s")
    try:
        options.run(options)
    except KeyboardInterrupt:
        print("hf-elmo: stopped", file=sys.stderr)
        return 130
    except Exception as error:
        if options.traceback:
            raise
        print(f"hf-elmo: error: {_describe(error)}", file=sys.stderr)
        return 1
    return 0


def _describe(error: Exception) -> str:
    if isinstance(error, EXPECTED):
        return str(error) or type(error).__name__
    return f"{type(error).__name__}: {error}\nThis is not foreseen: hf-elmo --traceback ... shows where it happens."


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line, all subcommands included."""
    parser = argparse.ArgumentParser(
        prog="hf-elmo",
        usage="hf-elmo [options] COMMAND ...",
        description="ELMo for the Hugging Face libraries.",
        epilog="hf-elmo COMMAND --help explains a command, with an example.\n\n"
        "exit status: 0, 1 after an error, 2 where the command line is wrong, 130 after\nCtrl-C",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, dest=argparse.SUPPRESS, nargs=0, help="show the version and exit")
    parser.add_argument(
        "--print-completion",
        action=_Completion,
        dest=argparse.SUPPRESS,
        metavar="SHELL",
        help='show what completes this command in bash, zsh, fish, ... and exit (pip install "hf-elmo[completion]")',
    )
    parser.add_argument("--traceback", action="store_true", help="after an error, show where it happened")
    subparsers = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, prog="hf-elmo", parser_class=_Command
    )
    for add in (
        _add_convert,
        _add_export,
        _add_push,
        _add_embed,
        _add_predict,
        _add_neighbors,
        _add_vocab,
        _add_pretrain,
        _add_perplexity,
        _add_substitutes,
        _add_next,
        _add_explore,
        _add_env,
    ):
        add(subparsers)
    return parser


class _Command(argparse.ArgumentParser):
    """A command's parser, for which options stand anywhere among the paths: `embed MODEL --layers all INPUT OUTPUT`."""

    _intermixing = False

    def parse_known_args(self, *arguments: Any) -> Any:
        if self._intermixing:  # it is made of two calls of this method
            return super().parse_known_args(*arguments)
        self._intermixing = True
        try:
            return self.parse_known_intermixed_args(*arguments)
        finally:
            self._intermixing = False


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"hf-elmo {version('hf-elmo')}")
        parser.exit()


class _ListModels(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from hf_elmo.conversion import all_names

        print("\n".join(f"{name:18}{what}" for name, what in all_names().items()))
        parser.exit()


class _Completion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, _: object, shell: str, *__: object) -> None:
        try:
            import shtab
        except ImportError:
            parser.exit(1, 'hf-elmo: error: completion needs shtab: pip install "hf-elmo[completion]"\n')
        if shell not in shtab.SUPPORTED_SHELLS:
            parser.error(f"--print-completion {shell}: known are {', '.join(shtab.SUPPORTED_SHELLS)}")
        parser = make_parser()
        for command in _subparsers(parser):
            for action in command._actions:
                if action.metavar in FILES:
                    action.complete = shtab.FILE
        print(shtab.complete(parser, shell))
        parser.exit()


def _subparsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    return [one for action in parser._actions if action.nargs == argparse.PARSER for one in action.choices.values()]


def _add_command(
    subparsers: argparse._SubParsersAction, name: str, help: str, usage: str, description: str, examples: str
) -> argparse.ArgumentParser:
    """A subcommand's parser. Its help has the usage, what it does, its arguments and examples."""
    lines = textwrap.dedent(examples).strip().splitlines()
    return subparsers.add_parser(
        name,
        help=help,
        usage="\n       ".join(f"hf-elmo {name} {line}" for line in usage.splitlines()),
        description=textwrap.fill(description, 79),
        epilog="\n".join(["example:" if len(lines) == 1 else "examples:", *(f"  {line}" for line in lines)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_convert(subparsers: argparse._SubParsersAction) -> None:
    parser = _add_command(
        subparsers,
        "convert",
        help="convert a published ELMo, in any of its formats, into a checkpoint",
        usage="[options] NAME OUT\n[options] SOURCE [VOCABULARY] OUT\n[options] OPTIONS WEIGHTS OUT",
        description="Write a checkpoint that AutoModel loads into the new folder OUT: from the NAME of a published "
        "model, which is downloaded, from AllenNLP's files, from a TensorFlow checkpoint of bilm-tf or simple_elmo, "
        "softmax included, from a folder or archive of simple_elmo or ELMoForManyLangs, a task's model.tar.gz of "
        "AllenNLP, or from TF-Hub's SavedModel. The checkpoint is read back and compared with its source.",
        examples="""
            hf-elmo convert manylangs-pt elmo-pt
            hf-elmo convert --model manylangs-pt 168.zip elmo-pt
            hf-elmo convert options.json weights.hdf5 my-elmo
            hf-elmo convert bilm-tf-folder my-elmo
        """,
    )
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="NAME: small, original, seqvec, manylangs-ko, ...: a published model, unless a file has that name; "
        "SOURCE: a folder or archive, or a TensorFlow checkpoint's prefix beside its options.json; VOCABULARY: the "
        "checkpoint's words [vocab.txt in that folder]; OPTIONS, WEIGHTS: options.json and weights.hdf5; OUT: new "
        "folder",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="the published model that SOURCE, or OPTIONS and WEIGHTS, are a copy of: its model card and its "
        "tokenizer become those of a download [no published one]",
    )
    parser.add_argument(
        "--list", action=_ListModels, dest=argparse.SUPPRESS, nargs=0, help="show each NAME and what it is, and exit"
    )
    parser.add_argument(
        "--elmo-options", metavar="FILE", help="with a model.tar.gz that does not hold it: its ELMo's options.json"
    )
    parser.add_argument(
        "--use", metavar="NAME", help="with a model.tar.gz that holds ELMos that differ: the one to convert"
    )
    parser.add_argument(
        "--dtype", choices=_DTYPES, help="of the weights; for a TensorFlow checkpoint float32 only [float32]"
    )
    parser.add_argument(
        "--word-splitting",
        choices=_WORD_SPLITTINGS,
        help="of its tokenizer [lm1b for AllenNLP's files, characters for seqvec, else whitespace]",
    )
    parser.add_argument(
        "--cache-dir", metavar="DIR", help="for downloaded files, in a folder NAME [huggingface_hub's cache]"
    )
    parser.add_argument(
        "--sha256", metavar="HEX", help="digest that WEIGHTS, or an archive, must have [none is compared]"
    )
    parser.set_defaults(run=_convert, error=parser.error)


def _convert(options: argparse.Namespace) -> None:
    how = {"dtype": options.dtype, "word_splitting": options.word_splitting, "digest": options.sha256}
    how = {name: value for name, value in how.items() if value is not None}
    *source, out = options.paths
    if options.model:
        written = _convert_named(options, options.model, source, out, how)
    elif source:
        written = _convert_source(options, source, out, how)
    else:
        options.error(f"NAME OUT, SOURCE OUT or OPTIONS WEIGHTS OUT expected, one path given: {out}")
    print(f"{written}: every tensor equals its source; its README.md shows how to use it")


def _convert_named(
    options: argparse.Namespace, name: str, source: list[str], out: str, how: dict[str, str | None]
) -> Path:
    from hf_elmo.conversion import convert_named

    if len(source) > 2:
        given = " ".join(options.paths)
        options.error(f"--model NAME with OUT, SOURCE OUT or OPTIONS WEIGHTS OUT expected, given: {given}")
    for option, value in (("--elmo-options", options.elmo_options), ("--use", options.use)):
        if value is not None:
            options.error(f"{option} goes with a model.tar.gz of AllenNLP")
    if source and options.cache_dir:
        options.error("--cache-dir goes with a download, but files are given")
    return convert_named(name, out, files=source, cache_dir=options.cache_dir, **how)


def _convert_source(options: argparse.Namespace, source: list[str], out: str, how: dict[str, str]) -> Path:
    from hf_elmo.conversion import CONVERTERS, convert, convert_bilm_tf, convert_source, find_checkpoint, recognize

    found = recognize(source[0])
    if found.kind == "missing" and len(source) == 1:  # two files without OUT, perhaps
        options.error(f"{found.message} NAME OUT, SOURCE OUT or OPTIONS WEIGHTS OUT expected")
    if found.message:
        raise found.error
    wanted = {"allennlp": (2,), "bilm-tf": (1, 2)}.get(found.kind, (1,))
    if len(source) not in wanted:
        expected = " or ".join(str(number + 1) for number in wanted)
        options.error(f"{expected} paths expected, {len(options.paths)} given: {' '.join(options.paths)}")
    if found.kind == "published":
        return _convert_named(options, source[0], [], out, how)
    if options.cache_dir:
        options.error("--cache-dir goes with a download, but files are given")
    for option, name, value in (("--elmo-options", "options", options.elmo_options), ("--use", "use", options.use)):
        if value is not None:
            if found.kind != "allennlp-archive":
                options.error(f"{option} goes with a model.tar.gz of AllenNLP")
            how[name] = value
    if found.kind in CONVERTERS:
        return convert_source(found.kind, *(found.files or source), out, **how)
    if found.kind != "bilm-tf":
        return convert(*source, out, **how)
    if how.pop("dtype", "float32") != "float32":
        options.error(f"--dtype {options.dtype} is given, but a TensorFlow training is converted in float32")
    if "digest" in how:
        options.error("--sha256 goes with WEIGHTS or --model: a TensorFlow training has several files")
    training, *vocabulary = source
    checkpoint = find_checkpoint(training)
    folder = checkpoint if checkpoint.is_dir() else checkpoint.parent
    return convert_bilm_tf(checkpoint, *(vocabulary or [folder / "vocab.txt"]), out, **how)


def _add_export(subparsers: argparse._SubParsersAction) -> None:
    parser = _add_command(
        subparsers,
        "export",
        help="write a model as AllenNLP's files, or as ONNX",
        usage="[options] MODEL OUT",
        description="Write options.json and weights.hdf5, which AllenNLP, bilm-tf and simple_elmo read, into the new "
        "folder OUT; that format has no scalar mix, heads or softmax. With --onnx write the ONNX file OUT, the scalar "
        "mix and a classifier's head included, for any batch size and length.",
        examples="""
            hf-elmo export my-elmo allennlp-files
            hf-elmo export my-elmo elmo.onnx --onnx
        """,
    )
    parser.add_argument("model", metavar="MODEL", help="folder or Hub name of an ELMo")
    parser.add_argument("out", metavar="OUT", help="new folder, or with --onnx new file")
    parser.add_argument("--onnx", action="store_true", help="write an ONNX file")
    parser.add_argument(
        "--hidden-states", action="store_true", help="with --onnx: the biLM's layers as further outputs"
    )
    parser.set_defaults(run=_export, error=parser.error)


def _export(options: argparse.Namespace) -> None:
    if options.hidden_states and not options.onnx:
        options.error("--hidden-states goes with --onnx")
    from hf_elmo.conversion import export, export_onnx

    if options.onnx:
        print(f"{export_onnx(options.model, options.out, output_hidden_states=options.hidden_states)}: written")
    else:
        print(f"{export(options.model, options.out)}: every tensor equals the model's")


def _add_push(subparsers: argparse._SubParsersAction) -> None:
    parser = _add_command(
        subparsers,
        "push",
        help="upload a checkpoint to the Hub",
        usage="[options] OUT REPO",
        description="Upload the checkpoint in the folder OUT to the repository REPO of the Hub in one commit: model, "
        "tokenizer, the code with which it loads where hf_elmo is not installed, model card and conversion record. "
        "What a training leaves beside them (optimizer, checkpoints, arguments) stays at home. It needs a token that "
        "may write: log in with hf auth login, or set HF_TOKEN.",
        examples="""
            hf-elmo push my-elmo somebody/my-elmo --dry-run
            hf-elmo push my-elmo somebody/my-elmo --private
        """,
    )
    parser.add_argument("out", metavar="OUT", help="folder of the checkpoint")
    parser.add_argument("repository", metavar="REPO", help="owner/name; created unless it exists")
    parser.add_argument("--private", action="store_true", help="only its owner sees REPO")
    parser.add_argument("--revision", metavar="NAME", help="branch to commit to, created unless it exists [main]")
    parser.add_argument("--dry-run", action="store_true", help="only list the files and their sizes; send nothing")
    parser.set_defaults(run=_push)


def _push(options: argparse.Namespace) -> None:
    from hf_elmo.hub import push

    how = {"private": options.private, "revision": options.revision, "dry_run": options.dry_run}
    try:
        upload = push(options.out, options.repository, **how)
    except ConnectionError:
        print(file=sys.stderr)  # huggingface_hub leaves the line of its progress bar open
        raise
    for name, size in upload.files.items():
        print(f"{size:>15,}  {name}{'  (made for the Hub)' if name in upload.made else ''}")
    for what, names in (("left out", upload.left_out), ("deleted from the repository", upload.deleted)):
        if names:
            print(f"{what}: {', '.join(names)}")
    total = f"{len(upload.files)} files, {sum(upload.files.values()):,} bytes"
    print(f"{options.repository}: {total}, " + (upload.url or "nothing is uploaded in a dry run"))


def _add_pretokenized(parser: argparse.ArgumentParser, text_is: str = "FILES are") -> None:
    parser.add_argument(
        "--pretokenized",
        "--words",
        action="store_true",
        help=f"{text_is} tokenized already: whitespace separates the words",
    )


def _add_embed(subparsers: argparse._SubParsersAction) -> None:
    parser = _add_command(
        subparsers,
        "embed",
        help="embed a corpus",
        usage="[options] [MODEL] INPUT OUTPUT",
        description="Write the ELMo vectors of each row of INPUT into OUTPUT. An interrupted run resumes when it is "
        "started again. INPUT has one row a line or record: .txt, .jsonl, .csv, .tsv, .fasta (also .gz), "
        ".parquet, or - (standard input). OUTPUT is .safetensors, .npz, .hdf5 or .h5 (bilm-tf's format) or .parquet; "
        "rows are named by their number, from 0, and FASTA's sequences by their identifiers. With --engine ray INPUT "
        "is also a folder, a glob pattern or a URI, and OUTPUT a folder of Parquet files.",
        examples="""
            hf-elmo embed sentences.txt vectors.safetensors
            hf-elmo embed my-elmo corpus.jsonl vectors.hdf5 --text-column text --layers all
            hf-elmo embed seqvec proteins.fasta vectors.npz --layers sum --pooling mean
            hf-elmo embed my-elmo "texts/*.jsonl" vectors --engine ray --workers 16
        """,
    )
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="[MODEL] INPUT OUTPUT",
        help="folder or Hub name of an ELMo [the one that ships], file to read, file to write",
    )
    parser.add_argument("--layers", type=_layers, default="mix", help="mix, sum, all, or one layer's number [mix]")
    parser.add_argument("--pooling", choices=("none", "mean", "max"), default="none", help="one vector a row [none]")
    parser.add_argument("--dtype", choices=_DTYPES, help="to compute in [the model's]")
    parser.add_argument(
        "--output-dtype", choices=("float32", "float16"), default="float32", help="of the file [float32]"
    )
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... [a GPU if there is one]")
    parser.add_argument("--batch-tokens", type=int, metavar="N", help="tokens a batch [16384; on a CPU down to 4096]")
    parser.add_argument("--window", type=int, metavar="N", help="tokens sorted by length together [16 batches]")
    parser.add_argument(
        "--engine", choices=("local", "ray"), default="local", help="ray: the workers of a Ray cluster [local]"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="of ray, each a GPU or a core [all of the cluster's]")
    parser.add_argument("--shard-rows", type=int, metavar="N", help="of ray, rows of a Parquet file [1024]")
    _add_reading(parser)
    parser.set_defaults(run=_embed, error=parser.error)


def _add_reading(parser: argparse.ArgumentParser) -> None:
    """How INPUT is read, and what happens to an OUTPUT that is there."""
    parser.add_argument(
        "--input-format", choices=("text", "jsonl", "csv", "tsv", "parquet", "fasta"), help="of INPUT [by its ending]"
    )
    parser.add_argument(
        "--text-column",
        type=_column,
        metavar="NAME",
        help="column or key of the text; a number is the index of a column in a CSV without a header",
    )
    parser.add_argument("--encoding", default="utf-8", help="of INPUT [utf-8]")
    _add_pretokenized(parser, "INPUT is")
    parser.add_argument("--overwrite", action="store_true", help="replace OUTPUT if it exists")
    parser.add_argument("--restart", action="store_true", help="discard what an interrupted run left in OUTPUT.parts")


def _add_predict(subparsers: argparse._SubParsersAction) -> None:
    parser = _add_command(
        subparsers,
        "predict",
        help="run a fine-tuned model over a file",
        usage="[options] MODEL INPUT OUTPUT",
        description="Write what a classifier, a tagger, an answerer of questions or a resolver of coreference says of "
        "each row of INPUT into OUTPUT. An interrupted run resumes when it is started again. INPUT has one row a line "
        "or record, as embed reads it; a document that is resolved has a sentence a line, so it is a record of a "
        ".jsonl file. OUTPUT is .jsonl (labels and probabilities, words and tags, answers, or words and clusters) or "
        ".tsv (a label and its probability a line, of several labels at once all of them; an answer and its score; or "
        "a word and its tag a line, and a blank line after each row).",
        examples="""
            hf-elmo predict my-classifier texts.txt labels.jsonl
            hf-elmo predict my-tagger tokens.txt tags.tsv --pretokenized
            hf-elmo predict my-resolver documents.jsonl clusters.jsonl
            hf-elmo predict my-esim pairs.csv labels.tsv --text-column premise --text-pair-column hypothesis
        """,
    )
    parser.add_argument("model", metavar="MODEL", help="folder or Hub name of a fine-tuned model")
    parser.add_argument("inputs", metavar="INPUT", help="file to read, or - for standard input")
    parser.add_argument("output", metavar="OUTPUT", help="file to write")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... [a GPU if there is one]")
    parser.add_argument("--batch-tokens", type=int, default=4096, metavar="N", help="tokens a batch [4096]")
    _add_reading(parser)
    parser.add_argument(
        "--text-pair-column",
        type=_column,
        metavar="NAME",
        help="column or key of the second text: of a question its passage; of a tagger of semantic roles the number of "
        "the predicate's word, from 0",
    )
    parser.set_defaults(run=_predict)


def _predict(options: argparse.Namespace) -> None:
    from hf_elmo.tasks.predict import predict

    values = {name: value for name, value in vars(options).items() if name not in ("run", "traceback")}
    try:
        written = predict(**values)
    except KeyboardInterrupt:
        print(f"{options.output}.parts keeps the finished work; the same command resumes it", file=sys.stderr)
        raise
    print(f"{written.path}: {written.rows:,} rows")


def _layers(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def _column(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 2**16):
        raise argparse.ArgumentTypeError(f"{text!r} is no port: give 0 to 65535")
    return int(text)


_ONLY_OF = {"local": ["window"], "ray": ["workers", "shard_rows"]}  # options of one engine


def _embed(options: argparse.Namespace) -> None:
    if len(options.paths) not in (2, 3):
        options.error(f"[MODEL] INPUT OUTPUT expected, {len(options.paths)} given: {' '.join(options.paths)}")
    *model, source, output = options.paths
    others = ("run", "error", "paths", "traceback", "engine", *_ONLY_OF["local"], *_ONLY_OF["ray"])
    values = {name: value for name, value in vars(options).items() if name not in others}
    for engine, names in _ONLY_OF.items():
        given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
        if given and engine != options.engine:
            options.error(f"--{next(iter(given)).replace('_', '-')} goes with --engine {engine}")
        values |= given
    if options.engine == "ray":
        from hf_elmo.embedding.on_ray import embed_on_ray as embed
    else:
        from hf_elmo.embedding.corpus import embed
    try:
        written = embed(model[0] if model else None, source, output, **values)
    except KeyboardInterrupt:
        parts = output if options.engine == "ray" else f"{output}.parts"
        print(f"{parts} keeps the finished work; the same command resumes it", file=sys.stderr)
        raise
    print(f"{written.path}: {written.rows:,} rows, {written.words:,} words, {written.hidden_size} numbers a word")


def _add_neighbors(subparsers: argparse._SubParsersAction) -> None:
    parser = _add_command(
        subparsers,
        "neighbors",
        help="find where a corpus uses a word in the same sense",
        usage="[options] SENTENCE WORD CORPUS",
        description="Print the words of CORPUS whose vectors are nearest to that of WORD in SENTENCE: in layer 0 words "
        "of similar spelling, in the layers above occurrences in the corpus, with their line.",
        examples='hf-elmo neighbors "He sat on the bank of the river." bank corpus.txt',
    )
    parser.add_argument("sentence", metavar="SENTENCE", help="a sentence with WORD in it")
    parser.add_argument("word", metavar="WORD", help="a word of SENTENCE; its first occurrence counts")
    parser.add_argument("corpus", metavar="CORPUS", help="one sentence a line or record, as embed reads it")
    parser.add_argument("--model", metavar="MODEL", help="folder or Hub name of an ELMo [the one that ships]")
    parser.add_argument("--top", type=int, default=5, metavar="N", help="neighbors for each layer [5]")
    parser.add_argument("--any-word", action="store_true", help="search all words, not only occurrences of WORD")
    _add_pretokenized(parser, "SENTENCE and CORPUS are")
    parser.set_defaults(run=_neighbors)


def _neighbors(options: argparse.Namespace) -> None:
    from hf_elmo.analysis.neighbors import nearest_neighbors
    from hf_elmo.shipped import load_model

    model, tokenizer = load_model(options.model)
    found = nearest_neighbors(
        model,
        tokenizer,
        options.sentence,
        options.word,
        options.corpus,
        top=options.top,
        any_word=options.any_word,
        pretokenized=options.pretokenized,
    )
    for layer, places in found.items():
        for one in places:
            where = f"{one.row + 1}: {one.in_context()}" if layer else one.word
            print(f"layer {layer}  {one.similarity:.3f}  {where}")


_TEXTS = "text files or glob patterns, one sentence a line, also .gz; or Parquet files, patterns and addresses"


def _add_vocab(subparsers: argparse._SubParsersAction) -> None:
    parser = _add_command(
        subparsers,
        "vocab",
        help="count the words of a corpus for a language model's softmax",
        usage="[options] OUT FILES [FILES ...]",
        description="Write the vocabulary file OUT: <S>, </S>, <UNK>, then the words of FILES by decreasing frequency.",
        examples="hf-elmo vocab vocab.txt texts/*.txt --size 40000",
    )
    parser.add_argument("out", metavar="OUT", help="file to write")
    parser.add_argument("files", nargs="+", metavar="FILES", help=_TEXTS)
    parser.add_argument("--size", type=int, metavar="N", help="words to keep, the three special ones included [all]")
    parser.add_argument("--min-count", type=int, default=1, metavar="N", help="leave rarer words out [1]")
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if it exists")
    _add_pretokenized(parser)
    parser.add_argument("--word-splitting", choices=_WORD_SPLITTINGS, help="as the model's tokenizer splits [lm1b]")
    _add_parquet_column(parser)
    parser.set_defaults(run=_vocab, error=parser.error)


def _vocab(options: argparse.Namespace) -> None:
    from hf_elmo.embedding.parts import require_free
    from hf_elmo.pretraining.text import open_texts, require_columns
    from hf_elmo.pretraining.vocabulary import build_vocabulary
    from hf_elmo.tokenization_elmo import ElmoTokenizer

    if options.pretokenized and options.word_splitting:
        options.error("--word-splitting goes with text that is split, but --pretokenized is given")
    require_free(Path(options.out), options.overwrite)
    tokenizer = None if options.pretokenized else ElmoTokenizer(word_splitting=options.word_splitting or "lm1b")
    source = open_texts(options.files, tokenizer, column=options.text_column)
    require_columns(options.text_column, source)
    if Path(options.out).resolve() in (Path(name).resolve() for name in getattr(source, "files", ())):
        raise ValueError(f"OUT, {options.out}, is one of FILES: give the vocabulary's file first, then the text's.")
    sentences = (words for text in source.read() for words in text)
    vocabulary = build_vocabulary(sentences, options.size, options.min_count)
    vocabulary.save(options.out)
    print(f"{options.out}: {len(vocabulary):,} words")


def _add_pretrain(subparsers: argparse._SubParsersAction) -> None:
    parser = _add_command(
        subparsers,
        "pretrain",
        help="train the language models on text",
        usage="OUT FILES [FILES ...] [options]",
        description="Train a new biLM on FILES, or with --init adapt a trained one to the text of a domain, into the "
        "folder OUT. torchrun starts it in several processes, each of which reads a part of FILES. --resume continues "
        "an interrupted run exactly.",
        examples="""
            hf-elmo pretrain my-elmo texts/*.txt --vocab vocab.txt --held-out heldout.txt --bf16
            hf-elmo pretrain my-domain domain.txt --init my-elmo
            hf-elmo pretrain my-elmo "s3://bucket/texts/*.parquet" --vocab vocab.txt --steps 100000
        """,
    )
    parser.add_argument("out", metavar="OUT", help="folder of the checkpoint")
    parser.add_argument("texts", nargs="+", metavar="FILES", help=_TEXTS)
    parser.add_argument("--held-out", nargs="+", metavar="FILES", help="text to evaluate on [with --init: 1 in 20]")
    parser.add_argument("--init", metavar="MODEL", help="folder or Hub name of the ELMo to adapt")
    parser.add_argument("--vocab", dest="vocabulary", metavar="FILE", help="words of the softmax [counted in FILES]")
    parser.add_argument("--vocab-size", dest="vocabulary_size", type=int, metavar="N", help="words to keep [all]")
    _add_pretokenized(parser)
    parser.add_argument("--word-splitting", choices=_WORD_SPLITTINGS, help="of the new tokenizer [lm1b]")
    parser.add_argument(
        "--layout", choices=("windows", "sentences", "documents"), default="windows", help="of the rows [windows]"
    )
    parser.add_argument("--batch-size", type=int, metavar="N", help="rows for each process [128, with --init 32]")
    parser.add_argument("--window", type=int, metavar="N", help="words of a row in windows [20]")
    parser.add_argument(
        "--shuffle-block", type=int, default=1_000_000, metavar="N", help="texts shuffled together, in memory [1000000]"
    )
    _add_parquet_column(parser)
    parser.add_argument("--epochs", dest="num_train_epochs", type=float, metavar="N", help="passes [10, with --init 5]")
    parser.add_argument("--steps", dest="max_steps", type=int, metavar="N", help="updates, instead of --epochs")
    parser.add_argument("--optim", metavar="NAME", help="adagrad, adamw_torch, ... [adagrad, with --init adamw_torch]")
    parser.add_argument("--learning-rate", type=float, metavar="X", help="[0.2, with --init 0.0005]")
    parser.add_argument("--bf16", action="store_true", default=None, help="mixed precision with bfloat16")
    parser.add_argument("--seed", type=int, metavar="N", help="[42]")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint in OUT")
    parser.add_argument("--overwrite", action="store_true", help="train anew where OUT holds a model or checkpoints")
    parser.add_argument(
        "--config", type=_setting, action="append", default=[], metavar="NAME=VALUE", help="a field of ElmoConfig"
    )
    parser.add_argument(
        "--set", type=_setting, action="append", default=[], metavar="NAME=VALUE", help="a TrainingArguments field"
    )
    parser.set_defaults(run=_pretrain)


def _add_parquet_column(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--text-column", metavar="NAME", help="of Parquet [text]")


def _setting(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    for read in (json.loads, ast.literal_eval):  # false or False, null or None
        try:
            found = read(value)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        if read is json.loads or isinstance(found, (bool, type(None), str, float, list, tuple, dict)):
            return name, found
    return name, value  # 0x10 and 1_000 stay text


def _pretrain(options: argparse.Namespace) -> None:
    from hf_elmo.pretraining.recipe import describe, pretrain

    optional = ("num_train_epochs", "max_steps", "optim", "learning_rate", "bf16", "seed")
    values = {
        name: value for name, value in vars(options).items() if name not in ("run", "out", "config", "set", "traceback")
    }
    values = {name: value for name, value in values.items() if name not in optional or value is not None}
    for option, settings in (("--config", options.config), ("--set", options.set)):
        names = [name for name, _ in settings]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"{option} {twice} is given twice: give it once.")
    if twice := values.keys() & dict(options.set):
        raise ValueError(f"{min(twice)} is given by --set and by an option of its own: give one of both")
    result = pretrain(options.out, **values, config=dict(options.config), **dict(options.set))
    for name, held_out in (("before", result.before), ("after", result.after)):
        if held_out is not None:
            print(f"held-out perplexity {name}: {describe(held_out)}")
    print(f"{result.folder}: written")


def _add_perplexity(subparsers: argparse._SubParsersAction) -> None:
    parser = _add_command(
        subparsers,
        "perplexity",
        help="measure how well the language models predict a text",
        usage="[options] MODEL FILES [FILES ...]",
        description="Print the perplexity of the forward and of the backward language model on FILES, and the one of "
        "their mean loss, by the full softmax.",
        examples="hf-elmo perplexity my-elmo heldout.txt",
    )
    parser.add_argument("model", metavar="MODEL", help="folder or Hub name of an ELMo with its softmax")
    parser.add_argument("files", nargs="+", metavar="FILES", help=_TEXTS)
    _add_pretokenized(parser)
    parser.add_argument(
        "--stateful",
        action="store_true",
        help="carry the state from sentence to sentence, as bilm-tf does [each sentence from zero state]",
    )
    parser.add_argument(
        "--batch-size", type=int, metavar="N", help="rows with --stateful [one for each 4,096 words, 256 at most]"
    )
    _add_parquet_column(parser)
    parser.set_defaults(run=_perplexity)


def _perplexity(options: argparse.Namespace) -> None:
    from hf_elmo.pretraining.perplexity import perplexity
    from hf_elmo.pretraining.recipe import describe
    from hf_elmo.shipped import load_model

    model, tokenizer = load_model(options.model, language_model=True, dtype="float32")
    how = {name: getattr(options, name) for name in ("pretokenized", "stateful", "batch_size", "text_column")}
    result = perplexity(model, tokenizer, options.files, **how)
    print(f"perplexity: {describe(result)}")


def _add_substitutes(subparsers: argparse._SubParsersAction) -> None:
    parser = _add_command(
        subparsers,
        "substitutes",
        help="find lexical substitutes",
        usage="[options] MODEL SENTENCE [WORD]",
        description="For each word of SENTENCE, or for WORD, print the words that are most probable in its place by "
        "both language models together, with their probabilities.",
        examples='hf-elmo substitutes my-elmo "He sat on the bank of the river." bank',
    )
    parser.add_argument("model", metavar="MODEL", help="folder or Hub name of an ELMo with its softmax")
    parser.add_argument("sentence", metavar="SENTENCE", help="a sentence")
    parser.add_argument("word", metavar="WORD", nargs="?", help="a word of it [all words]")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="words to print for each place [10]")
    _add_pretokenized(parser, "SENTENCE is")
    parser.set_defaults(run=_substitutes)


def _substitutes(options: argparse.Namespace) -> None:
    from hf_elmo.analysis.scoring import substitutes
    from hf_elmo.shipped import load_model

    model, tokenizer = load_model(options.model, language_model=True, dtype="float32")
    wanted = None if options.word is None else [options.word]
    (places,) = substitutes(
        model, tokenizer, [options.sentence], top=options.top, words=wanted, pretokenized=options.pretokenized
    )
    if not places and options.word is None:
        raise ValueError(f"SENTENCE is {options.sentence!r}, which has no words: give a sentence.")
    if not places:
        raise ValueError(f"{options.word!r} is not a word of the sentence as it is split: {options.sentence!r}.")
    for place in places:
        print(place.word, *(f"{word} {math.exp(value):.3f}" for word, value in place.candidates), sep="\t")


def _add_explore(subparsers: argparse._SubParsersAction) -> None:
    parser = _add_command(
        subparsers,
        "explore",
        help="look into a model on a page in the browser",
        usage="[options] [MODEL]",
        description="Serve a page on this machine, until Ctrl-C: the similarity of a word in two sentences by layer, "
        "where a corpus uses a word in the same sense, substitutes where the checkpoint has its softmax, and the words "
        "of a few sentences in the plane.",
        examples="""
            hf-elmo explore
            hf-elmo explore my-elmo --corpus corpus.txt --port 7861
        """,
    )
    parser.add_argument("model", metavar="MODEL", nargs="?", help="folder or Hub name of an ELMo [the one that ships]")
    parser.add_argument("--corpus", metavar="FILE", help="where to look for neighbors [sentences typed on the page]")
    _add_pretokenized(parser, "texts and --corpus are")
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="to listen at [127.0.0.1, this machine]")
    parser.add_argument("--port", type=_port, metavar="N", help="[7860, or the next one that is free]")
    parser.add_argument("--browser", action="store_true", help="open the page in the browser")
    parser.set_defaults(run=_explore)


def _explore(options: argparse.Namespace) -> None:
    from hf_elmo.explore.page import explore

    explore(options.model, options.corpus, options.pretokenized, options.host, options.port, options.browser)


def _add_env(subparsers: argparse._SubParsersAction) -> None:
    parser = _add_command(
        subparsers,
        "env",
        help="show what a bug report should hold",
        usage="[options] [MODEL]",
        description="Print versions, devices, instruction sets, the compiler and the folder of its kernels, and for "
        "MODEL which backend each of its operations takes, and why not a faster one.",
        examples="""
            hf-elmo env
            hf-elmo env my-elmo --dtype bfloat16
        """,
    )
    parser.add_argument("model", metavar="MODEL", nargs="?", help="folder or Hub name of an ELMo [the one that ships]")
    parser.add_argument("--dtype", choices=_DTYPES, help="what MODEL computes in [as it is loaded]")
    parser.set_defaults(run=_env)


def _add_next(subparsers: argparse._SubParsersAction) -> None:
    parser = _add_command(
        subparsers,
        "next",
        help="show how the language models continue a sentence",
        usage="[options] TEXT",
        description="Print the words that are most probable after TEXT, the beginning of a sentence, by the forward "
        "language model, with their probabilities; with --before the words before TEXT, the end of a sentence, by the "
        "backward one.",
        examples="""
            hf-elmo next "Let's stick to"
            hf-elmo next "of the river ." --before --model my-elmo
        """,
    )
    parser.add_argument("text", metavar="TEXT", help="the beginning of a sentence, with --before its end")
    parser.add_argument(
        "--model", metavar="MODEL", help="folder or Hub name of an ELMo with its softmax [the one that ships]"
    )
    parser.add_argument("--before", action="store_true", help="the words before TEXT")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="words to print [10]")
    _add_pretokenized(parser, "TEXT is")
    parser.set_defaults(run=_next)


def _next(options: argparse.Namespace) -> None:
    from hf_elmo.analysis.scoring import next_words, previous_words

    ask = previous_words if options.before else next_words
    for word, value in ask(options.model, options.text, top=options.top, pretokenized=options.pretokenized):
        print(f"{word}\t{math.exp(value):.3f}")


def _env(options: argparse.Namespace) -> None:
    from hf_elmo.kernels.report import describe_environment, describe_model
    from hf_elmo.shipped import load_model

    print(describe_environment())
    model, _ = load_model(options.model, dtype=options.dtype)
    print(f"\n{options.model or 'the model that ships'}, {str(model.dtype).removeprefix('torch.')}, {model.device}")
    print(describe_model(model))
