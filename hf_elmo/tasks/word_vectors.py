"""Word vectors beside ELMo: read from files, learned for the words of texts, and added to a model."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from ..checkpoints.loading import load_weights
from ..configuration_elmo import FIRST_VECTOR_ID
from ..modeling_heads_elmo import ElmoTaskModel
from ..reading.files import open_file, read_lines
from ..text_elmo import as_list
from ..tokenization_elmo import ElmoTokenizer


def read_word_vectors(
    path: str | os.PathLike, words: Iterable[str] | None = None, limit: int | None = None
) -> tuple[list[str], np.ndarray]:
    """Word vectors from a file: GloVe's text, the text of word2vec and fastText (`.vec`; its first line is `words
    size`), or word2vec's binary format if the name ends in `.bin`. Names may also end in `.gz`. Text is UTF-8, with one
    space or tab between columns. Later vectors of a word, those without one, and words with a line break are left out.

    Args:
        words, limit: keep only vectors of these words, also in lower case, among the first `limit`; all by default.

    Returns:
        the words, and their vectors `[words, size]` in float32.

    Raises:
        ValueError: a line is malformed, the file is truncated, or there is no vector, or none of `words`.
    """
    is_binary = os.fspath(path).lower().removesuffix(".gz").endswith(".bin")
    if words is not None:
        words = {form for word in as_list(words, "words") for form in (word, word.lower())}
    vectors: dict[str, np.ndarray] = {}
    for word, vector in islice((_read_binary if is_binary else _read_text)(path), limit):
        if word and word not in vectors and (words is None or word in words) and not {"\n", "\r"} & set(word):
            vectors[word] = vector
    if not vectors:
        raise ValueError(f"{path} has no vector" + ("" if words is None else ", or none of words"))
    return list(vectors), np.stack(list(vectors.values()))


def _read_text(path: str | os.PathLike) -> Iterator[tuple[str, np.ndarray]]:
    size = expected = None
    count = 0
    for number, line in enumerate(read_lines(path, newline="\n", errors="replace"), start=1):
        columns = line.replace("\t", " ").rstrip(" \r\n").split(" ")
        if columns == [""]:
            continue
        if size is None and len(columns) == 2 and all(column.isdecimal() for column in columns):
            expected, size = map(int, columns)
            continue
        size = size or len(columns) - 1  # words of GloVe may hold spaces, but not the first one
        try:
            vector = np.array(columns[-size:], dtype=np.float32).reshape(size)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error!s:.80}") from error
        yield " ".join(columns[:-size]), vector
        count += 1
    if expected not in (None, count):
        raise ValueError(f"{path} has {count} vectors, but its first line says {expected}: download it again.")


def _read_binary(path: str | os.PathLike) -> Iterator[tuple[str, np.ndarray]]:
    with open_file(path) as file:
        try:
            count, size = map(int, file.readline(99).split())  # such as `3000000 300`
        except ValueError as error:
            raise ValueError(f"{path} is not in word2vec's binary format: of fastText, read the file .vec") from error
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
    """A new model with pretrained word vectors beside ELMo's, `[x; ELMo]`: `model`'s biLM, and a head that begins anew.

    Args:
        model: a model with a head, or its name or folder. Adapters must be merged, else there is a ValueError.
        tokenizer: its `words` are set to the words that have a vector; save it with the model.
        path: a file of vectors, as [`read_word_vectors`] reads it.
        texts: each a string or a list of words. Vectors of words that are not in `texts` are left out.
        fields: new values of configuration fields, such as `freeze_word_vectors=True` or `use_elmo=False` (no ELMo).
    """
    model = load_weights(model, kind=None, device="cpu")  # a model out of its wrapper
    words = None if texts is None else chain.from_iterable(tokenizer.split_into_words(texts))
    tokenizer.words, vectors = read_word_vectors(path, words)
    sizes = {"word_vectors_vocab_size": len(vectors) + FIRST_VECTOR_ID, "word_vectors_size": vectors.shape[1]}
    config, others = type(model.config).from_dict(model.config.to_dict(), return_unused_kwargs=True, **sizes, **fields)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items() if name.startswith("elmo.")}
    how = {"state_dict": state, "dtype": model.dtype, "output_loading_info": True, **others}
    extended, info = type(model).from_pretrained(None, config=config, **how)
    if missing := [name for name in info["missing_keys"] if name.startswith(("elmo.bilm.", "elmo.char_encoder."))]:
        raise ValueError(f"model has no {min(missing)}: merge its adapters first, or give a model with ELMo.")
    extended.to(model.device).train(model.training)
    extended.name_or_path = model.name_or_path
    extended.set_word_vectors(vectors)
    return extended


def count_words(
    tokenizer: ElmoTokenizer,
    texts: Iterable[str | Sequence[str]],
    min_count: int = 1,
    limit: int | None = None,
    lowercase: bool = False,
) -> list[str]:
    """The words of texts by decreasing frequency. Set them as `tokenizer.words` to learn word vectors from scratch.

    Args:
        tokenizer, texts: the texts, each a string or a list of words, and what splits them.
        min_count, limit: fewest occurrences (with 1, no vector of unknown words is trained); the most words, or all.
        lowercase: count words in lower case, so that the tokenizer looks up all spellings as one word.
    """
    words = chain.from_iterable(tokenizer.split_into_words(texts))
    counts = Counter(word.lower() if lowercase else word for word in words if word)
    ranked = sorted((-count, word) for word, count in counts.items() if count >= min_count)
    return [word for _, word in ranked[:limit]]
