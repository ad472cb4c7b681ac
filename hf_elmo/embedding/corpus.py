"""Embed a corpus: sentences, or a file of them, into word vectors in memory or in a file."""

from __future__ import annotations

import copy
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from .. import __version__
from ..evaluation import evaluation_mode
from ..fingerprints import model_fingerprint, tokenizer_fingerprint
from ..lines import codec_name
from ..modeling_elmo import ElmoBiLM, ElmoModel
from ..shipped import load_weights, tokenizer_of
from ..spelling import require_tokenizer
from ..tokenization_elmo import ElmoTokenizer
from .engine import BOUNDARIES, CorpusEncoder
from .memory import EmbeddedRows
from .parts import PartsFolder, RowLayout, create, require_free, require_other_file
from .readers import NamedRow, Row, RowSource, RowsRead, SentenceSource, Survey, survey
from .writers import check_names, check_row_count, writer_for

# Large enough for full speed: on a CPU, the smaller the model's matrix products, the more tokens a batch needs.
BATCH_TOKENS, BATCH_TOKENS_CPU = 16384, 4096
BATCH_VALUES_CPU = 1 << 22  # of a batch's word vectors, P for each token
WINDOW_BATCHES = 16  # sorting by length within this many batches leaves little padding
SPLIT_ROWS, SPLIT_CHARACTERS = 512, 1 << 20  # split into words at once
OUTPUT_DTYPES = ("float32", "float16")  # numpy, hdf5 and Parquet have no bfloat16


@dataclass(frozen=True)
class EmbeddedCorpus:
    """What [`embed`] wrote: the file, its number of rows and of words, and the size of a vector, 2P."""

    path: Path
    rows: int
    words: int
    hidden_size: int


def embed(
    model: ElmoModel | str | os.PathLike | None,
    inputs: str | os.PathLike | Iterable[str | list[str]],
    output: str | os.PathLike | None = None,
    *,
    tokenizer: ElmoTokenizer | None = None,
    layers: str | int = "mix",
    pooling: str = "none",
    dtype: str | torch.dtype | None = None,
    output_dtype: str = "float32",
    device: str | torch.device | None = None,
    batch_tokens: int | None = None,
    window: int | None = None,
    input_format: str | None = None,
    text_column: str | int | None = None,
    encoding: str = "utf-8",
    pretokenized: bool = False,
    overwrite: bool = False,
    restart: bool = False,
    progress: bool | None = None,
) -> list[np.ndarray] | np.ndarray | EmbeddedCorpus:
    """Embed sentences, or a file of them.

    A row's vectors depend on its own words only: the same line gives the same vectors anywhere in a corpus (up to
    rounding, which may differ with the shape of a batch). Sentence boundaries are read and left out of the result. Rows
    keep their order; a blank row has no words, and pooled it is all zeros. With `output`, memory does not grow with the
    number of rows, and of a long document only the words are in memory, not the vectors.

    With `output`, finished work is kept in the folder `OUTPUT.parts` until the end. An interrupted run that is started
    again resumes from there, to the same result; the folder takes about as much disk space as the output.

    Args:
        model: an ELMo, or the name or folder of one, or `None` for the one that ships. A model with a head on it is
            used without the head.
        inputs: sentences, each a string or a list of words; or the path of a file, one row a line or record:
            `.txt`, `.jsonl`, `.csv`, `.tsv`, `.fasta` (all also with `.gz`), `.parquet`; `"-"` is standard input. Of
            FASTA (also `.fa`, `.faa`) each letter is a word.
        output: the file to write, by its ending: `.safetensors`, `.npz`, `.hdf5` or `.h5` (as bilm-tf's
            `dump_bilm_embeddings` lays it out), each with one array a row, named by the row's number (`"0"`, `"1"`,
            ...), or pooled one array `embeddings` for all; or `.parquet` with the columns `row`, `words` and
            `embedding`. Sequences of FASTA have an array each, named by their identifiers (in Parquet the column `id`).
            `None`: return the vectors.
        tokenizer: splits and spells words; by default the model's own (of its folder), else `ElmoTokenizer()`.
        layers: `"mix"` (the scalar mix), `"sum"` (of the biLM's layers, as in SeqVec), `"all"` (every layer of the
            biLM, 0 first) or the number of one layer.
        pooling: `"none"` (a vector for each word), or the `"mean"` or `"max"` over the words of a row.
        dtype: to compute in (`"float32"`, `"float16"`, `"bfloat16"`); by default the model's.
        output_dtype: of the arrays, `"float32"` or `"float16"` (which refuses numbers over 65,504).
        device: where to compute; by default the model's, and for a name a GPU if there is one.
        batch_tokens: words, boundaries and padding in one batch; by default 16,384, on a CPU fewer where P is above
            256 (8,192 for 512). Halved, with a warning, when memory runs out. A row with more is embedded in pieces, to
            the same result.
        window: tokens within which rows are sorted by length; also the unit in which finished work is saved. By default
            16 batches.
        input_format: `"text"`, `"jsonl"`, `"csv"`, `"tsv"`, `"parquet"` or `"fasta"`; by default from the ending.
        text_column: the column or key with the text; for CSV without a header its index.
        encoding: of the input file.
        pretokenized: the text is tokenized already: whitespace separates its words. (A row that is a list of words is
            never split again.)
        overwrite: replace `output` if it exists.
        restart: discard what an interrupted run of the same `output` left, instead of resuming it.
        progress: show a progress bar; by default on a terminal only.

    Returns:
        With `output`, an [`EmbeddedCorpus`]. Else one array a row, `[words, 2P]`, with all layers `[layers, words,
        2P]`; or, pooled, one array `[rows, 2P]` or `[rows, layers, 2P]`.

    Example:

    ```python
    >>> import hf_elmo

    >>> vectors = hf_elmo.embed("elmo-folder", ["A river bank.", "", "Don't panic!"])
    >>> [array.shape for array in vectors]  # words, 2P
    [(4, 1024), (0, 1024), (4, 1024)]
    >>> hf_elmo.embed("elmo-folder", "corpus.txt", "corpus.hdf5", layers="all")
    EmbeddedCorpus(path=PosixPath('corpus.hdf5'), rows=60000, words=1500000, hidden_size=1024)
    ```

    Raises:
        FileNotFoundError, FileExistsError: no such input; the output exists.
        ValueError: unknown layer, option or ending; malformed input; `output` is the input; a number too large for an
            `output_dtype` of float16; the interrupted run had other settings. (Vectors that are not finite, as a
            diverged model has them, are warned of once.)
        TypeError: a row is neither text nor a list of words.
        ImportError: a library for the file format is not installed.
        BlockingIOError: another run is writing `output`.
        OSError: the disk is full; finished work is kept.
        MemoryError: not even one word fits on the device.
    """
    check_options(pooling, output_dtype, batch_tokens, window)
    parts = None if output is None else PartsFolder(Path(output))
    if parts is not None:  # where there are parts, it is looked at again with the folder locked
        require_other_file(inputs, parts.output)
        _check_output(parts.output, overwrite or parts.path.is_dir())
    reading = {"file_format": input_format, "text_column": text_column, "encoding": encoding}
    if isinstance(inputs, (str, os.PathLike)) and str(inputs) != "-":
        RowSource(Path(inputs), **reading)  # raises before a model is loaded
    model, tokenizer = prepare(model, tokenizer, dtype, device)
    chosen = {"layers": layers, "pooling": pooling, "output_dtype": output_dtype, "pretokenized": pretokenized}
    job = job_of(model, tokenizer, **chosen, batch_tokens=batch_tokens, window=window, progress=progress)
    with evaluation_mode(model):
        if parts is None:
            return _embed_in_memory(job, inputs, reading)
        with parts.prepared(restart):
            _check_output(parts.output, overwrite or parts.in_place())  # another run may have written it meanwhile
            return _embed_to_file(job, inputs, reading, parts, overwrite)


def check_options(pooling: str, output_dtype: str, batch_tokens: int | None, window: int | None) -> None:
    if pooling not in ("none", "mean", "max"):
        raise ValueError(f"pooling {pooling!r} is unknown; take 'none', 'mean' or 'max'")
    if output_dtype not in OUTPUT_DTYPES:
        raise ValueError(f"output_dtype {output_dtype!r} cannot be written; take one of {', '.join(OUTPUT_DTYPES)}")
    for name, value in (("batch_tokens", batch_tokens), ("window", window)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ValueError(f"{name} is {value!r}, but must be a whole number of tokens, 1 or more")


def job_of(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    *,
    layers: str | int,
    pooling: str,
    output_dtype: str,
    batch_tokens: int | None,
    pretokenized: bool,
    window: int | None = None,
    progress: bool | None = None,
) -> Job:
    """What [`embed`] does with the options that it was given, for a model that is prepared."""
    batch_tokens = batch_tokens or _batch_tokens(model)
    options = {
        "layers": check_layers(layers, model.config.num_hidden_layers),
        "pooling": pooling,
        "output_dtype": output_dtype,
        "batch_tokens": batch_tokens,
        "window": window or WINDOW_BATCHES * batch_tokens,
        "pretokenized": pretokenized,
    }
    return Job(model, tokenizer, options, progress)


def _check_output(output: Path, overwrite: bool) -> None:
    writer_for(output)
    require_free(output, overwrite)


def _batch_tokens(model: ElmoModel) -> int:
    """The default number of tokens in a batch."""
    if model.device.type != "cpu":
        return BATCH_TOKENS
    return max(BATCH_TOKENS_CPU, min(BATCH_TOKENS, BATCH_VALUES_CPU // model.config.projection_size))


def check_layers(layers: str | int, num_hidden_layers: int) -> str | int:
    if layers in ("mix", "sum", "all"):
        return layers
    if isinstance(layers, int) and not isinstance(layers, bool) and 0 <= layers <= num_hidden_layers:
        return layers
    raise ValueError(
        f"layers={layers!r} is unknown; take 'mix', 'sum', 'all', or one layer's number, 0 to {num_hidden_layers}"
    )


def _require_called_parts(model: ElmoModel) -> None:
    """Refuses what stands around parts that are not called here, but read: it would be left out of the vectors.

    Raises:
        ValueError: the model or its biLM has a hook or a `forward` of its own.
    """
    if any(weight.is_meta for weight in model.parameters()):
        return  # offloaded by hooks, which is refused as that
    for name, module, kind in (("the model", model, ElmoModel), ("its bilm", model.bilm, ElmoBiLM)):
        hooks = module._forward_hooks, module._forward_pre_hooks
        if any(hooks) or "forward" in vars(module) or type(module).forward is not kind.forward:
            raise ValueError(
                f"{name} ({type(module).__name__}) has a hook or a forward of its own, which embed would pass over, as "
                "it reads long texts in pieces: take it off, call the model yourself, or put the hook on the "
                "char_encoder or on layers of the bilm, which are called."
            )


def prepare(
    model: ElmoModel | str | os.PathLike | None,
    tokenizer: ElmoTokenizer | None,
    dtype: str | torch.dtype | None,
    device: str | torch.device | None,
) -> tuple[ElmoModel, ElmoTokenizer]:
    """The base model in a dtype and on a device (a copy, where the given model has others), and the tokenizer."""
    dtype, device = torch_dtype(dtype), _torch_device(device)
    if model is None or isinstance(model, (str, os.PathLike)):
        model = load_weights(model, dtype=dtype, device=device)
    else:
        model = model.get_base_model() if hasattr(model, "get_base_model") else model  # of PEFT, adapters inside
        model = getattr(model, "base_model", model)
        if not isinstance(model, ElmoModel):
            raise TypeError(f"model must be an ElmoModel, or the name or folder of one, not {type(model).__name__}")
        _require_called_parts(model)
        if dtype not in (None, model.dtype) or device is not None:
            model = copy.deepcopy(model).to(device=device, dtype=dtype)
    if tokenizer is None:
        tokenizer = tokenizer_of(model)
    if not hasattr(tokenizer, "split_into_words"):
        raise TypeError(
            f"tokenizer is a {type(tokenizer).__name__} that does not split into words, as the code of old checkpoints "
            "makes it; load it with hf_elmo.ElmoTokenizer.from_pretrained"
        )
    require_tokenizer(model.config, tokenizer)
    return model, tokenizer


def torch_dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    known = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    if dtype is None or dtype in known.values():
        return dtype
    if dtype not in known:
        raise ValueError(f"dtype {dtype!r} is unknown; take one of {', '.join(known)}")
    return known[dtype]


def _torch_device(device: str | torch.device | None) -> torch.device | None:
    try:
        device = None if device is None else torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device {device!r} is unknown; take cpu, cuda, cuda:1, ...") from error
    if device is not None and device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {str(device)!r} is asked for, but torch finds no GPU; take 'cpu'")
    return device


def rows_of(
    inputs: Any, reading: dict[str, Any], parts: PartsFolder, pairs: bool = False
) -> RowSource | SentenceSource:
    """The rows of `inputs`, which can be iterated more than once."""
    if isinstance(inputs, (str, os.PathLike)):
        return file_source(inputs, reading, parts.path)
    rows = sentence_source(inputs, reading, pairs)
    return parts.spooled(rows) if iter(inputs) is inputs else rows


def sentence_source(sentences: Any, reading: dict[str, Any], pairs: bool = False) -> SentenceSource:
    """Sentences as rows, or with `pairs` tuples of two of them.

    Raises:
        ValueError: an option says how to read a file.
    """
    if (reading["file_format"], reading["text_column"], codec_name(reading["encoding"])) != (None, None, "utf-8"):
        raise ValueError("input_format, text_column and encoding belong to an input file; inputs here are sentences")
    return SentenceSource(sentences, "inputs", pairs)


def file_source(path: str | os.PathLike, reading: dict[str, Any], folder: Path) -> RowSource:
    """The rows of a file; of standard input, `"-"`, those of a copy in `folder`."""
    if str(path) != "-":
        return RowSource(Path(path), **reading)
    file_format = reading["file_format"] or "text"
    copy_of_input = folder / f"standard_input.{file_format}"
    with create(copy_of_input, "b") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return RowSource(copy_of_input, **{**reading, "file_format": file_format}, name="standard input")


@dataclass
class Job:
    """What to compute: the model, the options, and whether to show progress."""

    model: ElmoModel
    tokenizer: ElmoTokenizer
    options: dict[str, Any]
    progress: bool | None

    @property
    def budget(self) -> int:
        """The number of tokens in a batch to start with."""
        return self.options["batch_tokens"]

    @property
    def layout(self) -> RowLayout:
        """Shape and dtype of a row of the result."""
        config = self.model.config
        layers = config.num_hidden_layers + 1 if self.options["layers"] == "all" else None
        dtype = np.dtype(self.options["output_dtype"]).newbyteorder("<")
        return RowLayout(layers, config.hidden_size, self.options["pooling"] != "none", dtype)

    def encoder(self, scratch: Any, bar: tqdm, budget: int) -> CorpusEncoder:
        """The encoder, which shows its progress on `bar`."""
        words_done = 0

        def advance(rows: int, words: float) -> None:
            nonlocal words_done
            words_done += words
            elapsed = bar.format_dict["elapsed"]
            bar.set_postfix_str(f"{words_done / elapsed:,.0f} words/s" if elapsed else "", refresh=not rows)
            bar.update(rows)

        chosen = self.options["layers"], self.options["pooling"]
        return CorpusEncoder(self.model, self.tokenizer, *chosen, budget, scratch, advance)

    def bar(self, rows: int | None, done: int = 0) -> tqdm:
        """A progress bar; with `progress=None` on a terminal only."""
        disable = None if self.progress is None else not self.progress
        return tqdm(total=rows, initial=done, unit=" rows", desc="embedding", disable=disable)

    def windows(self, rows: Iterable[Row], read: RowsRead) -> Iterator[list[list[str]]]:
        """The words of rows, a window at a time; its end depends on the rows only, so a resumed run cuts the same.

        `read` gets the rows of the windows until now, and no others.
        """
        window, tokens = [], 0
        rows = iter(rows)
        while texts := _next_chunk(rows):
            split = self.tokenizer.split_into_words(texts, self.options["pretokenized"])
            for text, words in zip(texts, split, strict=True):
                read.add(text)
                window.append(words)
                tokens += len(words) + BOUNDARIES
                if tokens >= self.options["window"]:
                    yield window
                    window, tokens = [], 0
        if window:
            yield window


def _next_chunk(rows: Iterator[Row]) -> list[Row]:
    """The next rows: `SPLIT_ROWS`, or fewer where they are long."""
    chunk, characters = [], 0
    for row in islice(rows, SPLIT_ROWS):
        chunk.append(row)
        characters += len(row)  # of a list, its words
        if characters > SPLIT_CHARACTERS:
            break
    return chunk


def _embed_in_memory(job: Job, inputs: Any, reading: dict[str, Any]) -> list[np.ndarray] | np.ndarray:
    with tempfile.TemporaryDirectory(prefix="hf_elmo_") as folder:
        if isinstance(inputs, (str, os.PathLike)):
            rows = file_source(inputs, reading, Path(folder))
        else:
            rows = list(sentence_source(inputs, reading))
        scratch = partial(tempfile.TemporaryFile, dir=folder)
        with job.bar(len(rows) if isinstance(rows, list) else None) as bar:
            encoder = job.encoder(scratch, bar, job.budget)
            return EmbeddedRows.of(job.layout, encoder, job.windows(rows, RowsRead())).arrays()


def _embed_to_file(
    job: Job, inputs: Any, reading: dict[str, Any], parts: PartsFolder, overwrite: bool
) -> EmbeddedCorpus:
    rows = rows_of(inputs, reading, parts)
    known = survey(rows)  # a malformed row raises here, not after hours
    named = isinstance(rows, RowSource) and rows.resolved_format == "fasta"
    check_row_count(parts.output, job.layout, known.rows, named)
    if named:
        check_names(parts.output, _names(rows, known))
    manifest = _manifest(job, known)
    if (result := parts.left_over(manifest)) is not None:
        return EmbeddedCorpus(parts.output, result["rows"], result["words"], job.layout.size)
    _check_output(parts.output, overwrite)
    parts.agree(manifest)
    parts.verify()
    if _fill(job, rows, known.rows, parts) != known:
        parts.clear()
        raise ValueError("the input changed while it was embedded, so nothing is written; run it again")
    return _assemble(parts, job.layout, known, _names(rows, known) if named else None)


def _fill(job: Job, rows: Iterable[Row], total: int, parts: PartsFolder) -> Survey:
    """Embed the windows that are not finished; returns the survey of all rows, as they were read this time."""
    done, before = sum(1 for _ in parts.word_counts()), parts.last_state()
    stream, read = iter(rows), RowsRead()
    for row in islice(stream, done):
        read.add(row)
    if done and read.survey.sha256 != before["rows_sha256"]:
        raise ValueError(
            f"{parts.path} has vectors of other rows: the input was another while the interrupted run read it. Start "
            "over with restart=True (--restart)"
        )
    with job.bar(total, done) as bar:
        encoder = job.encoder(parts.scratch, bar, before.get("budget", job.budget))
        for number, words in enumerate(job.windows(stream, read), start=parts.finished()):
            with parts.new_window(number, job.layout, words, done) as window:
                encoder.encode(words, window)
                done += len(words)
                window.state |= {"budget": encoder.budget, "rows_sha256": read.survey.sha256}
    return read.survey


def _names(rows: Iterable[NamedRow], known: Survey) -> Iterator[str]:
    """The names of the rows, read again; raises at the end if they are no longer the same rows."""
    read = RowsRead()
    for row in rows:
        read.add(row)
        yield row.name
    if read.survey != known:
        raise ValueError("the input changed while it was embedded, so nothing is written; run it again")


def _assemble(parts: PartsFolder, layout: RowLayout, known: Survey, names: Iterator[str] | None) -> EmbeddedCorpus:
    parts.verify(contents=False)
    rows = words = 0
    for count in parts.word_counts():
        rows, words = rows + 1, words + count
    if rows != known.rows:
        raise ValueError(f"{parts.path} has {rows:,} rows, but the input {known.rows:,}; start over with --restart")
    parts.draft.unlink(missing_ok=True)  # and no link is followed
    writer_for(parts.output)(parts.draft, parts, layout, names)
    parts.put_in_place(rows=rows, words=words)
    return EmbeddedCorpus(parts.output, rows, words, layout.size)


def _manifest(job: Job, known: Survey) -> dict[str, Any]:
    """Everything that the values depend on: a run resumes only where all of it is the same."""
    return {
        "hf_elmo": __version__,
        "torch": torch.__version__,
        "model": model_fingerprint(job.model),
        "tokenizer": tokenizer_fingerprint(job.tokenizer),
        "dtype": str(job.model.dtype).removeprefix("torch."),
        "device": job.model.device.type,
        **job.options,
        "rows": known.rows,
        "rows_sha256": known.sha256,
    }
