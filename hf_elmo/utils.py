"""Functions that several modules share: evaluation mode, fingerprints, character ids of repeated words."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from .configuration_elmo import ElmoConfig
from .modeling_elmo import ElmoPreTrainedModel
from .tokenization_elmo import ElmoTokenizer


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Puts a model into evaluation mode for a block; afterwards, each module has the mode that it had before."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def model_fingerprint(model: ElmoPreTrainedModel) -> str:
    """SHA-256 of a model's configuration and weights."""
    digest = hashlib.sha256(model.config.to_json_string(use_diff=False).encode())
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        if not isinstance(tensor, torch.Tensor) or hasattr(tensor, "__tensor_flatten__"):  # quantized
            digest.update(repr(tensor).encode())
        else:
            digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def tokenizer_fingerprint(tokenizer: ElmoTokenizer) -> str:
    """SHA-256 of everything that determines the character ids of a text. The vocabularies of a softmax and of separate
    word vectors do not determine them, so they are not included."""
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    backend |= {"truncation": None, "padding": None}  # set by the latest call
    settings = [backend, tokenizer.max_word_length, tokenizer.split_special_tokens]
    if tokenizer.character_vocab is not None:
        settings += [tokenizer.character_vocab.characters, tokenizer.character_vocab.embedded_words]
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, in Python or in one of PyTorch's allocators."""
    signs = ("out of memory", "can't allocate memory", "not enough memory")
    is_runtime_error = isinstance(error, RuntimeError)
    return isinstance(error, MemoryError) or (is_runtime_error and any(sign in str(error).lower() for sign in signs))


# These stand for `<S>`, `</S>` and padding in a list of words. They are integers, so they never equal a word.
BEGIN, END, PADDING = range(3)

Token = str | int  # a word, `BEGIN`, `END` or `PADDING`


class Speller:
    """
    Computes the character ids of the tokens of a list, of each distinct token only once.

    Args:
        tokenizer: the tokenizer that determines the character ids.
        boundary_words: whether the words `<S>` and `</S>` of a text are sentence boundaries (as for a tokenizer
            with `split_special_tokens=False`) instead of ordinary words.
    """

    def __init__(self, tokenizer: ElmoTokenizer, boundary_words: bool = False) -> None:
        self._spell = tokenizer.spell
        boundaries = [str(tokenizer.bos_token), str(tokenizer.eos_token)]
        padding = np.zeros((1, tokenizer.row_length), np.int64)
        self._special_rows = np.concatenate((tokenizer.convert_tokens_to_ids(boundaries), padding))
        self._boundary_words = dict(zip(boundaries, self._special_rows, strict=False)) if boundary_words else {}

    def distinct(self, tokens: Sequence[Token]) -> tuple[np.ndarray, list[int]]:
        """
        The character ids of the distinct tokens.

        Returns:
            The ids `[distinct, characters]` int64, and for each of `tokens` the index of its row.
        """
        seen = dict.fromkeys(tokens)
        special = [token for token in (BEGIN, END, PADDING) if token in seen]
        words = [token for token in seen if isinstance(token, str)]
        row_of = {token: row for row, token in enumerate((*special, *words))}
        ids = np.concatenate((self._special_rows[special], self._spell(words)))
        for word in self._boundary_words.keys() & seen.keys():
            ids[row_of[word]] = self._boundary_words[word]
        return ids, [row_of[token] for token in tokens]

    def characters(self, tokens: Sequence[Token]) -> np.ndarray:
        """The character ids of all tokens, `[tokens, characters]` int64."""
        ids, rows = self.distinct(tokens)
        return ids[rows]


def require_tokenizer(config: ElmoConfig, tokenizer: ElmoTokenizer) -> None:
    """Raises ValueError if a tokenizer makes character ids of another kind than the model reads."""
    wanted, given = _spelling(config), _spelling(tokenizer)
    if given != wanted:
        raise ValueError(
            f"the tokenizer spells words with {given}, but the model reads {wanted}: give the tokenizer that belongs "
            "to the model."
        )


def _spelling(reader: ElmoConfig | ElmoTokenizer) -> str:
    """A description of the rows of character ids that a model reads or a tokenizer makes."""
    with_word = " and an id of the word" if reader.row_length > reader.max_word_length else ""
    return f"{reader.max_word_length} characters ({reader.char_units}){with_word}"
