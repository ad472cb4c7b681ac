"""Embed a corpus (sentences in memory, or a file of sentences) into word vectors, in memory or in a file."""

import copy
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import pyarrow
import torch

from ..checkpoints.loading import Device, Dtype, ensure_loaded
from ..modeling_elmo import ElmoModel
from ..reading.files import local_path, require_apart
from ..reading.rows import NamedRow, Row, Rows
from ..tokenization_elmo import ElmoTokenizer
from ..utils.jobs import Job, progress_bar, require_positive, run
from .engine import CorpusEncoder, EmbeddedRows
from .store import HDF5, INDEXED_ROWS, require_writable, write_vectors


@dataclass(frozen=True)
class EmbeddedCorpus:
    """What [`embed`] wrote: the path, the number of rows, the number of words, and the size of a vector, 2P."""

    path: Path
    rows: int
    words: int
    hidden_size: int


@overload
def embed(
    model: Any, inputs: Any, output: None = None, *, pooling: Literal["none"] = "none", **options: Any
) -> list[np.ndarray]: ...
@overload
def embed(model: Any, inputs: Any, output: None = None, *, pooling: str, **options: Any) -> np.ndarray: ...
@overload
def embed(model: Any, inputs: Any, output: str | os.PathLike, **options: Any) -> EmbeddedCorpus: ...
def embed(
    model: ElmoModel | str | os.PathLike | None,
    inputs: str | os.PathLike | Iterable[str | list[str]],
    output: str | os.PathLike | None = None,
    *,
    tokenizer: ElmoTokenizer | None = None,
    layers: str | int = "mix",
    pooling: str = "none",
    dtype: Dtype = None,
    output_dtype: str = "float32",
    device: Device = None,
    batch_tokens: int | None = None,
    shard_tokens: int | None = None,
    input_format: str | None = None,
    text_column: str | int | None = None,
    encoding: str = "utf-8",
    pretokenized: bool = False,
    overwrite: bool = False,
    restart: bool = False,
    progress: bool | Literal["lines"] | None = None,
    workers: int = 1,
) -> list[np.ndarray] | np.ndarray | EmbeddedCorpus:
    """Embed sentences, or a file of sentences.

    A row's vectors depend only on its words: the same line gives the same vectors anywhere in a corpus (up to rounding,
    which may differ with the shape of a batch). The model reads sentence boundaries, but the result leaves them out.
    Rows keep their order; a blank row has no words, and its pooled vector is zero. With `output`, memory use does not
    grow with the number of rows; of a long document, the words are in memory, but not the vectors.

    With `output`, finished work is kept in the folder `OUTPUT.parts`, which takes about as much disk space, until the
    end. An interrupted run that is started again resumes from that folder, with the same result. The input is read
    twice; rows that have changed meanwhile, or since an interrupted run, are computed again.

    Args:
        model: an ELMo, its name or folder, or `None` for the model that ships with hf_elmo; a head is left out.
        inputs: sentences, each a string or a list of words; or the path of a file, in which each line or record is a
            row: `.txt`, `.jsonl`, `.csv`, `.tsv`, `.fasta`, `.conllu` and others of CoNLL (all also with `.gz`),
            `.parquet`; `"-"` is standard input. In FASTA, each letter is a word; in CoNLL, each sentence is a row.
        output: the file to write; its ending gives the format. `.safetensors`, `.npz`, `.hdf5` and `.h5` (laid out as
            by bilm-tf's `dump_bilm_embeddings`) have one array for each row, named by the row's number (`"0"`, `"1"`,
            ...), or, if pooled, one array `embeddings` for all rows; `.parquet` has the columns `row`, `words` and
            `embedding`. A FASTA sequence's array has its identifier as name (Parquet: column `id`; none in text).
            `.txt` and `.txt.gz` have a line for each word: the word, a tab and its numbers (those of all layers, one
            layer after another), and a blank line after each row; if pooled, one with all words. `None` returns them.
        tokenizer: splits text into words and characters; by default that of the model's folder, else `ElmoTokenizer()`.
        layers: `"mix"` (the scalar mix), `"sum"` (of all layers, as in SeqVec), `"all"` (each, 0 first) or a number.
        pooling: `"none"` (a vector for each word), or the `"mean"` or `"max"` over the words of a row.
        dtype: the dtype to compute in (`"float32"`, `"float16"`, `"bfloat16"`); by default the model's.
        output_dtype: the dtype of the arrays, `"float32"` or `"float16"` (numbers over 65,504 raise an error).
        device: the device to compute on; by default the model's, or, if its name is given, a GPU if there is one.
        batch_tokens: the most words, boundaries and padding in a batch; by default 16,384, on a CPU fewer if P is above
            256 (8,192 for 512); halved, with a warning, if memory runs out. Longer rows are embedded in pieces alike.
        shard_tokens: the tokens (by default 16 batches) within which rows are sorted by length, and saved together.
        input_format: `"text"`, `"jsonl"`, `"csv"`, `"tsv"`, `"parquet"`, `"fasta"`, `"conll"`; by default as it ends.
        text_column, encoding: the column or key with the text (without names its index), and the file's encoding.
        pretokenized: whether whitespace separates the words of text. (A row that is a list is never split again.)
        overwrite, restart: replace `output` if it exists; discard what an interrupted run of it left.
        progress: show a progress bar, by default on a terminal only; `"lines"` prints one each half minute elsewhere.
        workers: with `output`, the number of processes on this machine. They share the weights, divide PyTorch's
            threads, and each embeds a shard at a time, with the same result; on GPUs, each takes one of them in turn.
            If one is killed, the run ends. (Workers are spawned: a script needs `if __name__ == "__main__":`.)

    Returns:
        With `output`, an [`EmbeddedCorpus`]. Otherwise one array for each row, `[words, 2P]`, or with all layers
        `[layers, words, 2P]`; or, if pooled, one array `[rows, 2P]` or `[rows, layers, 2P]`.

    Raises:
        FileNotFoundError, FileExistsError: the input does not exist; the output exists.
        ValueError: a layer, option or ending is unknown; the input is malformed; `output` is the input, an address, or
            a format in which a sequence cannot be named; a number is too large for an `output_dtype` of float16; the
            interrupted run had other settings. (Vectors that are not finite give one warning.)
        OSError: the disk is full.
        ImportError: `output` is HDF5, and h5py is not installed.
        TypeError: a row is neither text nor a list of words.
        TimeoutError: another run is writing `output`.
        BrokenProcessPool: a worker was killed.
    """
    require_positive(batch_tokens=batch_tokens, shard_tokens=shard_tokens, workers=workers)
    rows = Rows(inputs, input_format, text_column, encoding)
    if output is not None:
        output = local_path(output)
        require_apart(output, {"the input": rows.places}, overwrite)
    model, tokenizer = prepare(model, tokenizer, dtype, device)
    encoder = CorpusEncoder(model, tokenizer, layers, pooling, output_dtype, pretokenized, batch_tokens, shard_tokens)
    rows.report(tokenizer, pretokenized)
    if output is None:
        texts = list(rows)
        with progress_bar(len(texts), progress, "embedding") as bar:
            return encoder.embed(texts, advance=bar.update).result()
    names = Counter(getattr(row, "name", None) for row in rows)  # a malformed row raises here, before the work
    total = names.total()
    del names[None]
    require_writable(output, encoder.layout, names, total)
    job = _Embedding(encoder, output)
    with progress_bar(total, progress, "embedding") as bar:
        count = run(job, rows, output, bar, overwrite=overwrite, restart=restart, workers=workers)
    return EmbeddedCorpus(output, count, job.words, encoder.layout.size)


class _Embedding(Job):
    """Embeds rows into a file."""

    def __init__(self, encoder: CorpusEncoder, output: Path) -> None:
        dtype = str(encoder.model.dtype).removeprefix("torch.")
        options = {field.name: getattr(encoder, field.name) for field in fields(encoder)[2:]}  # without the model's
        super().__init__(encoder.model, encoder.tokenizer, dtype=dtype, **options)
        self.about |= {"dtype": dtype, "layers": encoder.layers, "pooling": encoder.pooling}
        self.encoder = encoder
        self.words = 0
        self.index: dict[str, str] = {}  # the number of each row without a name, for HDF5
        self.indexed_rows = INDEXED_ROWS if output.suffix.lower() in HDF5 else 0

    def cut(self, rows: Iterable[Row]) -> Iterator[list[list[str]]]:
        for shard in self.encoder.shards(self._indexed(rows)):
            self.words += sum(map(len, shard))
            yield shard

    def _indexed(self, rows: Iterable[Row]) -> Iterator[Row]:
        for number, row in enumerate(rows):
            if number < self.indexed_rows and not isinstance(row, NamedRow):
                self.index[row.strip() if isinstance(row, str) else " ".join(row)] = str(number)
            yield row

    def compute(self, rows: list[list[str]], first: int, folder: Path) -> pyarrow.RecordBatch:
        embedded = EmbeddedRows(self.encoder.layout, rows, first, folder)
        self.encoder.encode(embedded)
        return embedded.batch()

    def write(self, draft: Path, shards: Iterator[pyarrow.RecordBatch], rows: int) -> None:
        index = self.index if rows <= self.indexed_rows else {}
        write_vectors(draft, shards, self.encoder.layout, rows, self.about, index)


def prepare(model: Any, tokenizer: Any, dtype: Dtype, device: Device) -> tuple[ElmoModel, ElmoTokenizer]:
    """The base model, copied if `dtype` is another one or a `device` is given, and the tokenizer."""
    dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    loaded, tokenizer = ensure_loaded(model, tokenizer, dtype=dtype, device=device)
    loaded = getattr(loaded, "base_model", loaded)
    if isinstance(model, torch.nn.Module) and (dtype not in (None, loaded.dtype) or device is not None):
        loaded = copy.deepcopy(loaded).to(device=device, dtype=dtype)
    return loaded, tokenizer
