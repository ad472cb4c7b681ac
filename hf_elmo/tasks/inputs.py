"""Inputs of heads that are computed before training: stored layers of a frozen biLM, and pretrained word vectors."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import BatchEncoding, DataCollatorWithPadding

from .. import __version__
from ..configuration_elmo import FIRST_VECTOR_ID
from ..modeling_heads_elmo import ElmoTaskModel
from ..tokenization_elmo import ElmoTokenizer, require_list
from ..utils.evaluation import evaluation_mode
from ..utils.extras import extra_needed
from ..utils.text import read_lines
from .heads import in_batches, load_head

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

ROWS = 64  # computed and written together
STORED_TYPES = {"float16": "float16", "bfloat16": "uint16", "float32": "float32"}  # bfloat16 is stored as its bits
# The columns that have a value for each position, and their value at padding.
PADDING = dict.fromkeys(("input_ids", "bilm_layers", "attention_mask", "token_type_ids", "word_vector_ids"), 0)
PADDING |= {"special_tokens_mask": 1, "speaker_ids": 0}


def store_layers(
    model: ElmoTaskModel,
    dataset: Dataset | DatasetDict,
    dtype: str = "float16",
    folder: str | os.PathLike | None = None,
    batch_tokens: int = 4096,
) -> Dataset | DatasetDict:
    """
    Compute the layers of a model's frozen biLM once for a data set.

    The column `bilm_layers` replaces `input_ids`. Training on it gives the same model as training on `input_ids`, up to
    the rounding of `dtype`, at the cost of the head alone; scalar mixes are still learned. All heads on the same biLM
    can share a stored data set; a head on another biLM raises an error when it reads stored layers for the first time.
    The result is memory-mapped from an Arrow file, which later calls with the same data, weights and `dtype` reuse.

    Args:
        model: a model with a head whose biLM is frozen.
        dataset: a `datasets.Dataset` or `DatasetDict` with the `input_ids` of the tokenizer, not padded.
        dtype: `"float16"`, `"bfloat16"` or `"float32"`: 2 or 4 bytes for each of the `(num_hidden_layers + 1) * 2P`
            values of a word.
        folder: the folder of the Arrow files; by default the cache of `datasets`, or, if `dataset` is in memory, memory
            (each call computes the layers again).
        batch_tokens: the most words, boundaries and padding to compute at once; a longer text is computed alone.

    Returns:
        the data set in numpy format with the columns `bilm_layers`, `length` (to group rows by length) and
        `special_tokens_mask` (which positions are boundaries); other columns are kept. [`LayersCollator`],
        [`TaggingCollator`] and [`CoreferenceCollator`] pad its rows.

    Raises:
        ValueError: the biLM is not frozen, a row is padded, or a value does not fit into float16.
    """
    with extra_needed():
        from datasets import Array3D, DatasetDict, Sequence, Value

    if isinstance(dataset, DatasetDict):
        return DatasetDict({k: store_layers(model, part, dtype, folder, batch_tokens) for k, part in dataset.items()})
    model.require_frozen_bilm()
    dataset = dataset.with_format(None)  # rows of any format are read as lists, with all columns
    features = dataset.features.copy()
    del features["input_ids"]
    shape = None, model.config.num_hidden_layers + 1, model.config.hidden_size
    features["bilm_layers"] = Array3D(shape, STORED_TYPES[dtype])
    features["length"] = Value("int64")
    features["special_tokens_mask"] = Sequence(Value("int8"))
    fingerprint = _fingerprint(model, dataset, dtype)
    file = None if folder is None else str(Path(folder, f"layers-{fingerprint}.arrow"))
    with evaluation_mode(model):
        stored = dataset.map(
            lambda texts, indices: _compute(model, texts, indices, dtype, batch_tokens),
            batched=True,
            with_indices=True,
            batch_size=ROWS,
            writer_batch_size=ROWS,
            remove_columns=["input_ids"],
            features=features,
            cache_file_name=file,
            new_fingerprint=fingerprint,
            desc="Computing the biLM's layers",
        )
    return stored.with_format("numpy")


@torch.no_grad()
def _compute(
    model: ElmoTaskModel, texts: dict[str, list], indices: list[int], dtype: str, batch_tokens: int
) -> dict[str, list]:
    """The new columns for some rows of the data set, whose `input_ids` are nested lists `[words, row_length]`."""
    rows = [np.asarray(text, dtype=np.int64).reshape(-1, model.config.row_length) for text in texts["input_ids"]]
    for index, row, mask in zip(indices, rows, texts.get("attention_mask", [True] * len(rows)), strict=True):
        if not (row.any(1).all() and np.all(mask)):
            raise ValueError(f"row {index} of the dataset is padded: tokenize without padding; the collator pads.")

    def compute(batch: list[int]) -> list[np.ndarray]:
        input_ids = pad_sequence([torch.from_numpy(rows[index]) for index in batch], batch_first=True)
        layers = model.bilm_layers(input_ids.to(model.device))
        stored = layers.to(getattr(torch, dtype)).cpu()
        if dtype == "float16" and not stored.isfinite().all() and layers.isfinite().all():
            raise ValueError("a layer has values over 65504, which dtype='float16' cannot hold: use dtype='bfloat16'.")
        values = stored.view(torch.uint16).numpy() if dtype == "bfloat16" else stored.numpy()
        return [value[: len(rows[index])] for value, index in zip(values, batch, strict=True)]

    lengths, boundaries = list(map(len, rows)), (model.config.bos_token_id, model.config.eos_token_id)
    return {
        "bilm_layers": in_batches(lengths, batch_tokens, compute),
        "length": lengths,
        "special_tokens_mask": [np.isin(row[:, 1], boundaries).astype(np.int8) for row in rows],
    }


def _fingerprint(model: ElmoTaskModel, dataset: Dataset, dtype: str) -> str:
    """A hash of all that the layers depend on: the data, the biLM's weights and configuration, the precision."""
    config = model.config.to_dict()
    fields = "cell_clip", "proj_clip", "use_skip_connections", "char_activation"
    settings = [__version__, dataset._fingerprint, dtype, model.dtype, model.reads_text_pairs]
    digest = hashlib.sha256(repr([*settings, *(config[field] for field in fields)]).encode())
    for name, weight in model.elmo.state_dict().items():
        if not name.startswith("scalar_mix."):
            digest.update(f"{name} {list(weight.shape)}".encode())
            digest.update(weight.cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()[:32]


class LayersCollator(DataCollatorWithPadding):
    """transformers' `DataCollatorWithPadding`, which also pads rows of [`store_layers`]."""

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> BatchEncoding:
        batch = pad_rows(self.tokenizer, features, self.padding, self.max_length, self.pad_to_multiple_of)
        if "label" in batch:
            batch["labels"] = batch.pop("label")
        return batch


def pad_rows(
    tokenizer: ElmoTokenizer,
    rows: Sequence[Mapping[str, Any]],
    padding: bool | str = True,
    max_length: int | None = None,
    pad_to_multiple_of: int | None = None,
    **padding_of: int,
) -> BatchEncoding:
    """Pads rows as `tokenizer.pad` does, also rows of [`store_layers`], where `bilm_layers` replaces `input_ids`. The
    columns in `PADDING` and `padding_of` have a value for each position; otherwise a ValueError is raised."""
    padding_of = {**PADDING, **padding_of}
    column = next(name for name in ("input_ids", "bilm_layers", "word_vector_ids") if name in rows[0])
    lengths = [len(row[column]) for row in rows]
    length = max([*lengths, (max_length or 0) if padding == "max_length" else 0])
    length += -length % (pad_to_multiple_of or 1)
    inside = np.arange(length) < np.array(lengths)[:, None]
    inside = inside if tokenizer.padding_side == "right" else inside[:, ::-1]
    rows = [{"attention_mask": np.ones(own, np.int64), **row} for row, own in zip(rows, lengths, strict=True)]
    batch = {}
    for name in rows[0]:
        values = [np.asarray(row[name]) for row in rows]
        if name in padding_of:
            if list(map(len, values)) != lengths:
                found = f"{name} has {list(map(len, values))} values in rows of {lengths} positions"
                raise ValueError(f"{found}, boundaries included: align labels with tokenizer.align_labels.")
            flat = np.concatenate([value for value in values if len(value)])
            array = np.full((*inside.shape, *flat.shape[1:]), padding_of[name], flat.dtype)
            array[inside] = flat
        else:
            array = np.stack(values)
        tensor = torch.from_numpy(array.astype(np.float32) if array.dtype == np.float64 else array)
        if name == "bilm_layers" and not tensor.is_floating_point():  # numpy format may widen the bits of bfloat16
            tensor = tensor.to(torch.uint16).view(torch.bfloat16)
        batch[name] = tensor
    return BatchEncoding(batch)


def read_word_vectors(
    path: str | os.PathLike, words: Iterable[str] | None = None, limit: int | None = None
) -> tuple[list[str], np.ndarray]:
    """
    Word vectors from a file: GloVe's text, the text of word2vec and fastText (`.vec`, with a first line `words size`),
    or word2vec's binary format if the name ends in `.bin`. Names may also end in `.gz`. Text is UTF-8, with one space
    between columns. If a word occurs twice, its first vector is kept. Vectors without a word, and words with a line
    break, which no tokenizer can hold, are left out.

    Args:
        words: keep only the vectors of these words, as they are spelled and in lower case; all by default.
        limit: read only the first `limit` vectors, usually those of the most frequent words; all by default.

    Returns:
        the words, and their vectors `[words, size]` in float32.

    Raises:
        ValueError: a line is malformed, the file is truncated, or there is no vector, or none of `words`.
    """
    path = os.fspath(path)
    is_binary = path.lower().removesuffix(".gz").endswith(".bin")
    if words is not None:
        require_list(words, "words")
        words = {form for word in words for form in (word, word.lower())}
    vectors: dict[str, np.ndarray] = {}
    for word, vector in islice((_read_binary if is_binary else _read_text)(path), limit):
        if word and word not in vectors and (words is None or word in words) and not {"\n", "\r"} & set(word):
            vectors[word] = vector
    if not vectors:
        raise ValueError(f"{path} has no vectors{'' if words is None else ' of the given words'}.")
    return list(vectors), np.stack(list(vectors.values()))


def _read_text(path: str) -> Iterator[tuple[str, np.ndarray]]:
    size = expected = None
    count = 0
    for number, line in enumerate(read_lines(path, newline="\n"), start=1):
        columns = line.rstrip(" \r\n").split(" ")
        if size is None and len(columns) == 2 and all(column.isdecimal() for column in columns):
            expected, size = map(int, columns)
            continue
        size = size or len(columns) - 1  # words of GloVe may hold spaces, but not the first one
        try:
            yield " ".join(columns[:-size]), np.array(columns[-size:], dtype=np.float32)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: expected a word and {size} numbers, got {line!r:.60}") from error
        count += 1
    if expected not in (None, count):
        raise ValueError(f"{path} has {count} vectors, but its first line says {expected}: download it again.")


def _read_binary(path: str) -> Iterator[tuple[str, np.ndarray]]:
    with fsspec.open(path, "rb", compression="infer") as file:
        count, size = map(int, file.readline().split())
        for _ in range(count):
            word = bytearray()
            while (byte := file.read(1)) not in (b" ", b""):
                word += byte
            vector = np.frombuffer(file.read(4 * size), "<f4", size).astype(np.float32)  # raises if the file ends
            yield word.lstrip(b"\n").decode("utf-8", "replace"), vector  # some writers put line breaks before words
        if file.read(2) not in (b"", b"\n"):
            raise ValueError(f"{path} has more than {count} vectors, or a word with a space: use a text file.")


def add_word_vectors(
    model: ElmoTaskModel | str | os.PathLike,
    tokenizer: ElmoTokenizer,
    path: str | os.PathLike,
    texts: Iterable[str | Sequence[str]] | None = None,
    **fields: Any,
) -> ElmoTaskModel:
    """
    A new model with pretrained word vectors beside ELMo's, `[x; ELMo]`. It has the biLM of `model` and a new, untrained
    head, whose input is larger.

    Args:
        model: a model with a head, or its name or folder.
        tokenizer: its `words` are set to the words that have a vector; save it with the model.
        path: a file of vectors, as [`read_word_vectors`] reads it.
        texts: each a string or a list of words. Vectors of words that are not in `texts` are left out.
        fields: new values of configuration fields, such as `freeze_word_vectors=True` or `use_elmo=False` (no ELMo).
    """
    if isinstance(model, (str, os.PathLike)):
        model, _ = load_head(model, tokenizer, "cpu")
    words = None if texts is None else chain.from_iterable(tokenizer.split_into_words(texts))
    tokenizer.words, vectors = read_word_vectors(path, words)
    sizes = {"word_vectors_vocab_size": len(vectors) + FIRST_VECTOR_ID, "word_vectors_size": vectors.shape[1]}
    config = type(model.config).from_dict({**model.config.to_dict(), **sizes, **fields})
    extended = type(model)(config).to(model.device, model.dtype).train(model.training)
    extended.name_or_path = model.name_or_path
    if config.use_elmo:
        extended.elmo.load_state_dict(model.elmo.state_dict())
    extended.set_word_vectors(vectors)
    return extended


def count_words(
    tokenizer: ElmoTokenizer,
    texts: Iterable[str | Sequence[str]],
    min_count: int = 1,
    limit: int | None = None,
    lowercase: bool = False,
) -> list[str]:
    """
    The words of texts by decreasing frequency. Set them as `tokenizer.words` to learn word vectors from scratch.

    Args:
        tokenizer: splits the texts.
        texts: each a string, or a list of words.
        min_count: leave out words that occur less often. With 1, no vector of unknown words is trained.
        limit: the number of words to keep; all by default.
        lowercase: count words in lower case, so that the tokenizer looks up all spellings as one word.
    """
    counts = Counter(
        word.lower() if lowercase else word for words in tokenizer.split_into_words(texts) for word in words if word
    )
    ranked = sorted((-count, word) for word, count in counts.items() if count >= min_count)
    return [word for _, word in ranked[:limit]]
