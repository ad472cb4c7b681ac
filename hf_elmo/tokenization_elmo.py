"""The tokenizer of ELMo: words, each a row of character ids."""

import copy
import json
import os
import re
import shutil
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BatchEncoding, TokenizersBackend
from transformers.utils import PaddingStrategy, TensorType, to_py_obj

from .character_vocab_elmo import SENTENCE_BEGIN_WORD_ID, SENTENCE_END_WORD_ID, CharacterVocabulary
from .configuration_elmo import SENTENCE_BEGIN_ID, SENTENCE_END_ID, WORD_BEGIN_ID, WORD_END_ID, WORD_PADDING_ID
from .configuration_tasks_elmo import BOUNDARY_ID
from .words_elmo import (
    LEAVING_OUT,
    ScriptsRead,
    WordIds,
    as_examples,
    is_sentence_of_words,
    labels_at_words,
    mark_empty_words,
    pad_column,
    require_room,
    require_word_splitting,
    require_words_of_some_length,
    scatter_rows,
    set_aside,
    stored_layers,
    warn_of_misspelled,
)

# Words as the 1 Billion Word Benchmark writes them, on which the published English models were trained: case kept,
# punctuation and clitics apart ("don 't", "dog 's"), numbers, hyphenated words and abbreviations whole.
_LETTER = r"[\p{L}\p{M}\p{N}]"
_TITLES = (
    r"(?:Mrs?|Ms|Mme|Messrs|Drs?|Prof|Rev|Hon|St|Sts|Gen|Col|Maj|Capt|Lt|Sgt|Gov|Sen|Rep|Jr|Sr|Inc|Corp|Ltd|Co|Bros|vs)"
)
LM1B_PATTERN = "|".join(
    (
        rf"(?<!{_LETTER}){_TITLES}\.",
        rf"(?<!{_LETTER})(?:\p{{L}}\.){{2,}}",  # U.S., e.g.
        rf"(?<!{_LETTER})\p{{Lu}}\.(?=\s+\p{{Lu}})",  # J. Smith
        rf"{_LETTER}+(?:(?:[.\-_]|(?<=\p{{N}}),(?=\p{{N}})){_LETTER}+)*",  # word, well-known, 3,000.50, 98th
        rf"(?<={_LETTER})'\p{{L}}+",  # 's, 't
        r"(?<!\S)'(?:[sdmtSDMT]|ll|re|ve|LL|RE|VE)(?![\p{L}\p{N}])",  # the same, apart already
        r"\.{2,}|-{2,}|\S",
    )
)
LM1B_QUOTES = (("“", '"'), ("”", '"'), ("„", '"'), ("‘", "'"), ("’", "'"))
WORD_SPLITTINGS = ("lm1b", "whitespace", "characters")

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# What calls leave behind, by tokenizer: as its attributes, they would change the fingerprint by which datasets finds
# again what it mapped.
_CACHES: weakref.WeakKeyDictionary["ElmoTokenizer", dict[str, Any]] = weakref.WeakKeyDictionary()
_SETTINGS = threading.Lock()  # a call sets the backend's truncation and padding, then encodes: it is held for both


def _after_fork() -> None:
    """In the child, a lock that another thread held is never released, nor do the backend's threads do any work. (It
    knows this of its threads, except where the user asked for them.)"""
    globals().update(_SETTINGS=threading.Lock())
    if "TOKENIZERS_PARALLELISM" in os.environ:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def words_to_character_ids(words: Sequence[str], max_word_length: int = 50) -> np.ndarray:
    """The character ids of words, as AllenNLP and bilm-tf number them.

    A word is its UTF-8 bytes, cut to `max_word_length - 2`, between a begin and an end marker, padded to
    `max_word_length`; every id is raised by one. What UTF-8 cannot encode (lone surrogates) is dropped.

    Args:
        words: the words, each any string, the empty one included.
        max_word_length: characters of a row, the two markers included.

    Returns:
        `[words, max_word_length]` int64.
    """
    encoded = [word.encode("utf-8", "ignore")[: max_word_length - 2] for word in words]
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    ids = np.full((len(encoded), max_word_length), WORD_PADDING_ID, dtype=np.int64)
    ids[:, 0] = WORD_BEGIN_ID
    inside = np.arange(1, max_word_length - 1) <= lengths[:, None]
    ids[:, 1:-1][inside] = np.frombuffer(b"".join(encoded), dtype=np.uint8).astype(np.int64) + 1
    ids[np.arange(len(encoded)), lengths + 1] = WORD_END_ID
    return ids


def character_ids_to_word(row: Sequence[int]) -> str:
    """The word that a row of character ids spells: the inverse of [`words_to_character_ids`].

    A word that was cut inside a multi-byte character ends in U+FFFD.
    """
    spelled = []
    for character in row[1:]:
        if character in (WORD_END_ID, WORD_PADDING_ID, 0):
            break
        if not 1 <= character < SENTENCE_BEGIN_ID:
            raise ValueError(f"character id {character} is inside a word, but only 1 to 256 (bytes) may be")
        spelled.append(character - 1)
    return bytes(spelled).decode("utf-8", "replace")


def _replace_surrogates(text: Any, stand_in: str) -> Any:
    if isinstance(text, str):
        return _LONE_SURROGATE.sub(stand_in, text)
    return None if text is None else type(text)(_replace_surrogates(part, stand_in) for part in text)


def _unused_mark(*texts: Any) -> str:
    """A combining mark that none of the texts contains; splitting leaves it attached to its word."""
    used = str(texts)
    for code in range(0xE01EF, 0xE00FF, -1):
        if chr(code) not in used and f"\\U{code:08x}" not in used:
            return chr(code)
    raise ValueError(
        "the text contains lone surrogates and every variation selector from U+E0100 to U+E01EF: clean it first."
    )


def _call_backend(call: Callable[..., Any], *texts: Any, each_is_a_word: bool = False) -> tuple[Any, str | None]:
    """The result of `call(*texts)`, which uses the backend, and what stands in its words for lone surrogates.

    The backend refuses lone surrogates: only where there are some, they are replaced and the second result is not
    `None`. Where each character is a word, whitespace replaces them, which is in none. The lock is held, so `call` may
    change the backend's settings (truncation, padding).
    """
    with _SETTINGS:
        try:
            return call(*texts), None
        except (TypeError, UnicodeEncodeError):
            stand_in = " " if each_is_a_word else _unused_mark(*texts)
            result = call(*(_replace_surrogates(part, stand_in) for part in texts))
            return result, None if each_is_a_word else stand_in


def _drop_surrogates(words: list[str], text: str) -> list[str]:
    """`words` without lone surrogates; `text` contains all their characters."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            return [_LONE_SURROGATE.sub("", word) for word in words]
    return words


def _as_list(texts: Any) -> Any:
    """A list of what is in an array or a pandas Series with one dimension; anything else as it is."""
    if getattr(texts, "ndim", 1) != 1 and not isinstance(texts, str):
        raise ValueError(f"texts must have one dimension, but are a {type(texts).__name__} of {texts.ndim}.")
    return texts.tolist() if hasattr(texts, "ndim") else texts


def _checked_words(words: Any, number: int) -> list[str]:
    """A text that is a list of words already."""
    if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"a text must be a string or a list of words, but one is {words!r:.80} (number {number}).")
    return _drop_surrogates(list(words), "".join(words))


class ElmoTokenizer(TokenizersBackend):
    r"""
    Splits text into words and spells each word with character ids, as ELMo reads them.

    `input_ids` are `[batch, words, max_word_length]`, one row for each word, the sentence boundaries `<S>` and `</S>`
    included; a padded position is a row of zeros. Any string is a word, so nothing is ever unknown.

    Args:
        word_splitting (`str`, defaults to `"lm1b"`):
            How text becomes words. `"lm1b"`: as in the 1 Billion Word Benchmark, close to what the published English
            models were trained on: case kept, punctuation apart, `don 't`, `dog 's`; typographic quotes plain.
            `"whitespace"`: at whitespace only, for text that is tokenized already. `"characters"`: each character that
            is not whitespace is a word, as in proteins. Words already split (`is_split_into_words=True`) are taken as
            they are with any.
        max_word_length (`int`, defaults to 50): Characters of a word, the two word markers included.
        split_special_tokens (`bool`, defaults to `True`):
            Whether `<S>` and `</S>` in a text are words like any other; `False` makes them sentence boundaries.
        vocab_file (`str`, *optional*): The words of the language model's softmax, one a line, most frequent first.
        words_file (`str`, *optional*): The words that have vectors of their own beside ELMo, one a line; `words` gives
            and takes the list of them. With it calls return `word_vector_ids` `[batch, words]`, too: 0 for padding, 1
            for boundaries, 2 for other words.
        character_vocab_file (`str`, *optional*):
            A [`CharacterVocabulary`] as JSON: words are then spelled with its characters and not with bytes, and where
            it has a word list, each row of `input_ids` ends with the word's id there. It is saved with the tokenizer.
        scripts (`list[str]`, *optional*): In which the model's text was, as `["Latin"]`: words in others are warned of.

    Raises:
        ValueError: `word_splitting` is unknown, `max_word_length` is under 3, or the text has a wrong type or nesting.

    Example:

    ```python
    >>> from hf_elmo import ElmoTokenizer

    >>> tokenizer = ElmoTokenizer()
    >>> encoded = tokenizer(["Don't panic!", "Mr. Smith's towel"], padding=True, return_tensors="pt")
    >>> encoded["input_ids"].shape
    torch.Size([2, 6, 50])
    >>> tokenizer.batch_decode(encoded["input_ids"], skip_special_tokens=True)
    ["Don 't panic !", "Mr. Smith 's towel"]
    ```"""

    _auto_class = "AutoTokenizer"
    vocab_files_names = {  # noqa: RUF012
        "tokenizer_file": "tokenizer.json",
        "vocab_file": "vocab.txt",
        "words_file": "words.txt",
        "character_vocab_file": "character_vocab.json",
    }
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012
    model = models.Unigram

    def __init__(
        self,
        word_splitting: str = "lm1b",
        max_word_length: int = 50,
        bos_token: str | AddedToken = "<S>",
        eos_token: str | AddedToken = "</S>",
        unk_token: str | AddedToken = "<UNK>",
        pad_token: str | AddedToken = "<pad>",
        split_special_tokens: bool = True,
        words_file: str | None = None,
        character_vocab_file: str | None = None,
        **kwargs: Any,
    ) -> None:
        if word_splitting not in WORD_SPLITTINGS:
            raise ValueError(f"word_splitting is {word_splitting!r}, but must be one of {', '.join(WORD_SPLITTINGS)}.")
        if max_word_length < 3:
            raise ValueError(f"max_word_length is {max_word_length}, but must be 3 or more: two markers and a byte.")
        named = [None if token is None else str(token) for token in (bos_token, eos_token, pad_token)]
        if None in named or len(set(named)) < len(named):
            raise ValueError(f"bos_token, eos_token, pad_token are {named}, but must be three strings, all different.")
        warn_of_misspelled(kwargs)
        self.word_splitting = word_splitting
        self.max_word_length = max_word_length
        self.character_vocab = None if character_vocab_file is None else CharacterVocabulary.load(character_vocab_file)
        super().__init__(
            word_splitting=word_splitting,
            max_word_length=max_word_length,
            bos_token=bos_token,
            eos_token=eos_token,
            unk_token=unk_token,
            pad_token=pad_token,
            split_special_tokens=split_special_tokens,
            words_file=words_file,
            character_vocab_file=character_vocab_file,
            tokenizer_object=_backend(word_splitting, kwargs.pop("tokenizer_object", None)),
            **kwargs,
        )
        self.update_post_processor()
        self.words = None if words_file is None else WordIds.load(words_file).words
        self._made = True

    @property
    def words(self) -> list[str] | None:
        """The words that have vectors of their own beside ELMo, in the order of their rows; `None`: none."""
        return None if self._word_numbers is None else self._word_numbers.words

    @words.setter
    def words(self, words: Sequence[str] | None) -> None:
        self._word_numbers = None if words is None else WordIds(words)
        self.model_input_names = ["input_ids", "attention_mask", *(["word_vector_ids"] if words is not None else [])]

    @property
    def char_units(self) -> str:
        """What a character is: `"bytes"`, or `"unicode"` with a character vocabulary; as in [`ElmoConfig`]."""
        return "bytes" if self.character_vocab is None else "unicode"

    @property
    def row_length(self) -> int:
        """Numbers in a row of `input_ids`: a word's characters, and its own id where there is a word list."""
        return self.max_word_length + (self.character_vocab is not None and self.character_vocab.words is not None)

    def spell(self, words: Sequence[str]) -> np.ndarray:
        """The rows `[words, row_length]` int64 of words, none a boundary. The log tells of scripts never read."""
        self._cached("scripts", lambda: ScriptsRead.of(self)).check(words)
        if self.character_vocab is None:
            return words_to_character_ids(words, self.max_word_length)
        return self.character_vocab.spell(words, self.max_word_length)

    @classmethod
    def convert_to_native_format(cls, **kwargs: Any) -> dict[str, Any]:
        """The arguments of `__init__`, with the backend that a checkpoint's tokenizer.json holds."""
        file = kwargs.pop("tokenizer_file", None)
        if file is not None and Path(file).is_file():
            require_word_splitting(file, kwargs)
            kwargs["tokenizer_object"] = Tokenizer.from_file(str(file))
        return kwargs

    def update_post_processor(self) -> None:
        """Puts `<S>` and `</S>` around each sentence, the second one of a pair included."""
        bos, eos = str(self.bos_token), str(self.eos_token)
        self._tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A {eos}",
            pair=f"{bos} $A {eos} {bos}:1 $B:1 {eos}:1",
            special_tokens=[(token, self._tokenizer.token_to_id(token)) for token in (bos, eos)],
        )
        _CACHES.setdefault(self, {}).pop("words backend", None)

    @property
    def pad_token_id(self) -> int:
        """The id that fills a padded position, 0."""
        return 0

    @property
    def bos_token_id(self) -> int:
        """The character id inside the word `<S>`."""
        return SENTENCE_BEGIN_ID

    @property
    def eos_token_id(self) -> int:
        """The character id inside the word `</S>`."""
        return SENTENCE_END_ID

    @property
    def unk_token_id(self) -> None:
        """`None`: no word is unknown to a reader of characters."""
        return None

    @property
    def all_special_ids(self) -> list[int]:
        """The ids that stand for padding and sentence boundaries."""
        return [self.pad_token_id, self.bos_token_id, self.eos_token_id]

    @property
    def vocab_size(self) -> int:
        """The character ids that there are, 262 of bytes: what `resize_token_embeddings` takes."""
        return WORD_PADDING_ID + 1 if self.character_vocab is None else self.character_vocab.size

    def __len__(self) -> int:
        return self.vocab_size

    def get_vocab(self) -> dict[str, int]:
        """The name of each character id: padding, bytes (`"<0x61>"`) or characters, and boundaries."""
        names = [self.pad_token, *(f"<0x{byte:02X}>" for byte in range(256)), self.bos_token, self.eos_token]
        names = {name: i for i, name in enumerate([*names, "<begin word>", "<end word>", "<word padding>"])}
        if self.character_vocab is None:
            return names
        markers = {name: i for name, i in names.items() if i == 0 or i >= SENTENCE_BEGIN_ID}
        return self.character_vocab.character_ids() | markers

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        """Padding and the sentence boundaries by their character ids."""
        known = super().added_tokens_decoder
        if "_made" not in vars(self):
            return known
        by_name, ids = {str(token): token for token in known.values()}, self.get_vocab()
        return {ids[name]: by_name[name] for name in (self.pad_token, self.bos_token, self.eos_token)}

    def train_new_from_iterator(self, *args: Any, **kwargs: Any) -> "ElmoTokenizer":
        """Refused (ValueError): the characters are those of the checkpoint, whatever the text."""
        raise ValueError(
            "ElmoTokenizer learns nothing from a text: any word is spelled with the same characters. The vocabulary of "
            "a language model's softmax is made by hf-elmo vocab."
        )

    def __setattr__(self, key: str, value: Any) -> None:
        self._require_kept({key: value})
        if key not in ("bos_token_id", "eos_token_id", "pad_token_id"):  # their only values
            super().__setattr__(key, value)

    def _require_kept(self, changes: dict[str, Any]) -> None:
        """Raises ValueError for a token that is new, and for another boundary, padding or splitting than it has."""
        for key, value in changes.items() if "_made" in vars(self) else ():
            if key in ("add_bos_token", "add_eos_token") and not value:
                raise ValueError(f"{key} cannot become {value!r}: {LEAVING_OUT}.")
            name = re.sub("_ids?$", "", key)
            if name in ("bos_token", "eos_token", "pad_token", "word_splitting"):
                if str(value) != str(getattr(self, key)):
                    raise ValueError(
                        f"{key} cannot become {str(value)!r}: it stays {getattr(self, key)!r}, which the tokenizer was "
                        f"made with. Another one: ElmoTokenizer.from_pretrained(..., {name}=...)."
                    )
            elif key == name and name in (*self.SPECIAL_TOKENS_ATTRIBUTES, "extra_special_tokens"):
                self._add_tokens([value] if isinstance(value, (str, AddedToken)) else value or [])

    def _add_tokens(self, new_tokens: Sequence[str | AddedToken], special_tokens: bool = False) -> int:
        if "_made" not in vars(self):
            return super()._add_tokens(new_tokens, special_tokens)
        if new := [str(token) for token in new_tokens if self._tokenizer.token_to_id(str(token)) is None]:
            raise ValueError(
                f"{', '.join(map(repr, new))} cannot be added: ELMo spells each word, and no token has a vector of its "
                "own. To keep a string whole, split the text yourself and pass is_split_into_words=True."
            )
        return 0

    def add_special_tokens(self, special_tokens_dict: dict[str, Any], *args: Any, **kwargs: Any) -> int:
        """As in transformers; but a token that is new is refused (ValueError), before anything is changed."""
        self._require_kept(special_tokens_dict)
        return super().add_special_tokens(special_tokens_dict, *args, **kwargs)

    def __call__(self, text: Any = None, *args: Any, **kwargs: Any) -> BatchEncoding:
        """As in transformers; lists of two strings are pairs where `truncation` says which of the two to cut, as
        zero-shot classification does, and nowhere else: they could be words."""
        one_is_cut = kwargs.get("truncation") in ("only_first", "only_second")
        if one_is_cut and not kwargs.get("is_split_into_words") and isinstance(text, list):
            text = [tuple(pair) if isinstance(pair, list) and len(pair) == 2 else pair for pair in text]
        return super().__call__(text, *args, **kwargs)

    def _special_row(self, token: str) -> np.ndarray | None:
        """The row `[row_length]` of a boundary or of padding; `None` for an ordinary word."""
        row = np.zeros(self.row_length, dtype=np.int64)
        if token == self.pad_token:
            return row
        if token not in (self.bos_token, self.eos_token):
            return None
        row[:] = WORD_PADDING_ID
        row[:3] = WORD_BEGIN_ID, self.bos_token_id if token == self.bos_token else self.eos_token_id, WORD_END_ID
        row[self.max_word_length :] = SENTENCE_BEGIN_WORD_ID if token == self.bos_token else SENTENCE_END_WORD_ID
        return row

    def split_into_words(self, texts: Iterable[str | Sequence[str]], pretokenized: bool = False) -> list[list[str]]:
        """
        Splits texts into the words that a call of this tokenizer would spell, without sentence boundaries.

        The result depends on no earlier call (truncation, padding), and threads may split at the same time. Lone
        surrogates, which UTF-8 cannot encode, are dropped from the words, and no words of `"characters"`.

        Args:
            texts: each a string, or a list of words, which is not split further.
            pretokenized: the strings are tokenized already: they are split at whitespace (as `str.split` does),
                whatever `word_splitting` is.

        Returns:
            the words of each text.

        Raises:
            ValueError: `texts` is a string, or one of the texts is neither a string nor a list of strings.

        Example:

        ```python
        >>> from hf_elmo import ElmoTokenizer

        >>> ElmoTokenizer().split_into_words(["Don't panic!", ["New York", "!"]])
        [['Don', "'t", 'panic', '!'], ['New York', '!']]
        ```"""
        if isinstance(texts, (str, dict, set, frozenset)):
            raise ValueError(
                f"texts must be a list of texts, but is a {type(texts).__name__}, {texts!r:.40}: put it into a list."
            )
        texts = list(map(_as_list, _as_list(texts)))
        strings = [text for text in texts if isinstance(text, str)]
        if pretokenized:
            words = [_drop_surrogates(text.split(), text) for text in strings]
        else:
            words = self._split_strings(strings)
        if len(strings) == len(texts):
            return words
        of_strings = iter(words)
        return [next(of_strings) if isinstance(text, str) else _checked_words(text, n) for n, text in enumerate(texts)]

    def _split_strings(self, texts: list[str]) -> list[list[str]]:
        def encode(texts: list[str]) -> list[list[str]]:
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
            self._tokenizer.encode_special_tokens = self.split_special_tokens
            return [encoding.tokens for encoding in self._tokenizer.encode_batch(texts, add_special_tokens=False)]

        self._renew_backend()
        require_words_of_some_length(texts)
        words, stand_in = _call_backend(encode, texts, each_is_a_word=self.word_splitting == "characters")
        return words if stand_in is None else [[word.replace(stand_in, "") for word in text] for text in words]

    def _encode_plus(
        self,
        text: str | Sequence,
        text_pair: str | Sequence | None = None,
        is_split_into_words: bool = False,
        return_tensors: str | None = None,
        return_overflowing_tokens: bool = False,
        **kwargs: Any,
    ) -> BatchEncoding:
        text, text_pair = (_checked_text(argument, is_split_into_words) for argument in (text, text_pair))
        batched = isinstance(text, (list, tuple)) and not (is_split_into_words and is_sentence_of_words(text))
        if batched and not text:
            return self._empty_batch(return_tensors)
        if not batched:
            text, text_pair = [text], None if text_pair is None else [text_pair]
        one = not batched and not return_overflowing_tokens
        encoded, columns = self._encode_batch(text, text_pair, is_split_into_words, return_overflowing_tokens, **kwargs)
        data, encodings, lengths = dict(encoded), encoded.encodings, [len(encoding) for encoding in encoded.encodings]
        length, side = self._padded_length(lengths, **kwargs), kwargs.get("padding_side") or self.padding_side
        if length is not None:
            self._pad_encodings(encodings, data, length, side)
        data |= self._arrange(columns, lengths, length, side, return_tensors is not None)
        if kwargs.get("return_attention_mask") is False:
            del data["attention_mask"]
        if one and return_tensors is None:
            data = {key: value[0] if key != "length" else value for key, value in data.items()}
        if return_tensors == TensorType.PYTORCH:
            # BatchEncoding would copy the arrays.
            data = {
                key: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for key, value in data.items()
            }
        return BatchEncoding(data, encodings, tensor_type=return_tensors)

    def _empty_batch(self, return_tensors: str | None) -> BatchEncoding:
        if not return_tensors:
            return BatchEncoding({"input_ids": [], "attention_mask": []})
        shape = 0, 0, self.row_length
        data = {"input_ids": np.zeros(shape, np.int64), "attention_mask": np.zeros(shape[:2], np.int64)}
        return BatchEncoding(data, tensor_type=return_tensors)

    def _encode_batch(
        self, text: Sequence, text_pair: Sequence | None, is_split_into_words: bool, overflowing: bool, **kwargs: Any
    ) -> tuple[BatchEncoding, dict[str, np.ndarray]]:
        """The backend's encodings of a batch, not padded, and the ids of all their tokens."""
        empty_words: set[tuple[int, int, int]] = set()
        self._renew_backend()
        backend = self
        if is_split_into_words:
            backend = self._for_words
            text, text_pair = (
                mark_empty_words(part, number, empty_words) for number, part in enumerate((text, text_pair))
            )
        arguments = {**kwargs, "is_split_into_words": is_split_into_words, "return_tensors": None}
        arguments |= {"return_overflowing_tokens": overflowing, "return_attention_mask": False}
        arguments |= {"padding_strategy": PaddingStrategy.DO_NOT_PAD}
        require_words_of_some_length((text, text_pair))
        require_room(self._tokenizer.num_special_tokens_to_add(text_pair is not None), **kwargs)
        encode = partial(TokenizersBackend._encode_plus, backend, **arguments)
        each_is_a_word = self.word_splitting == "characters" and not is_split_into_words
        encoded, stand_in = _call_backend(encode, text, text_pair, each_is_a_word=each_is_a_word)
        samples = encoded.get("overflow_to_sample_mapping", range(len(encoded.encodings)))
        return encoded, self._columns(encoded.encodings, samples, empty_words, stand_in)

    def _padded_length(
        self,
        lengths: list[int],
        padding_strategy: PaddingStrategy = PaddingStrategy.DO_NOT_PAD,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        **kwargs: Any,
    ) -> int | None:
        """The length to pad to, `None` for no padding."""
        if padding_strategy == PaddingStrategy.DO_NOT_PAD:
            return None
        length = max(lengths)
        if padding_strategy == PaddingStrategy.MAX_LENGTH and max_length is not None:
            length = max(length, max_length)
        return -(-length // pad_to_multiple_of) * pad_to_multiple_of if pad_to_multiple_of else length

    def _pad_encodings(self, encodings: list, data: dict[str, Any], length: int, side: str) -> None:
        """Pads the backend's encodings, and what `data` holds of them besides `input_ids`."""
        own = {"pad_id": self._tokenizer.token_to_id(self.pad_token), "pad_token": self.pad_token}
        for encoding in encodings:
            encoding.pad(length, direction=side, pad_type_id=self.pad_token_type_id, **own)
        names = {"token_type_ids": "type_ids", "offset_mapping": "offsets"}  # of the backend, where it has others
        for key in data.keys() & {*names, "special_tokens_mask"}:
            data[key] = [getattr(encoding, names.get(key, key)) for encoding in encodings]
        if "length" in data:
            data["length"] = [length] * len(encodings)

    def _renew_backend(self) -> None:
        """In a forked process, takes a copy of the backend: another thread's use of it would never end there."""
        if _CACHES.setdefault(self, {}).setdefault("process", os.getpid()) != os.getpid():
            self._tokenizer, _CACHES[self] = Tokenizer.from_str(self._tokenizer.to_str()), {"process": os.getpid()}

    @property
    def _for_words(self) -> "ElmoTokenizer":
        """This tokenizer with a backend that does not split words further."""
        other = copy.copy(self)
        other._tokenizer = self._cached("words backend", self._backend_without_splitting)
        return other

    def _backend_without_splitting(self) -> Tokenizer:
        settings = json.loads(self._tokenizer.to_str()) | {"normalizer": None, "pre_tokenizer": None}
        return Tokenizer.from_str(json.dumps(settings))

    def _cached(self, name: str, make: Callable[[], Any]) -> Any:
        cache = _CACHES.setdefault(self, {})
        if name not in cache:
            cache[name] = make()
        return cache[name]

    def _columns(
        self, encodings: list, samples: Sequence[int], empty_words: set[tuple[int, int, int]], stand_in: str | None
    ) -> dict[str, np.ndarray]:
        """Of the tokens of all encodings `input_ids [tokens, row_length]`, and with `words` `word_vector_ids`."""
        tokens = [token for encoding in encodings for token in encoding.tokens]
        if stand_in is not None:
            tokens = [token.replace(stand_in, "") for token in tokens]
        rows = self.spell(tokens)
        backend_ids = np.fromiter((i for encoding in encodings for i in encoding.ids), np.int64, count=len(tokens))
        numbers = None if self._word_numbers is None else self._word_numbers.of(tokens)
        for token in (self.bos_token, self.eos_token):
            here = backend_ids == self._tokenizer.token_to_id(token)
            rows[here] = self._special_row(token)
            if numbers is not None:
                numbers[here] = BOUNDARY_ID
        if empty_words:
            places = [
                (sample, *place)
                for sample, encoding in zip(samples, encodings, strict=True)
                for place in zip(encoding.sequence_ids, encoding.word_ids, strict=True)
            ]
            rows[[place in empty_words for place in places]] = self.spell([""])
        return {"input_ids": rows} | ({} if numbers is None else {"word_vector_ids": numbers})

    def _arrange(
        self, columns: dict[str, np.ndarray], lengths: list[int], length: int | None, side: str, as_array: bool
    ) -> dict[str, Any]:
        """`columns` and `attention_mask` of all texts: arrays where they are of one length, else nested lists."""
        columns = {**columns, "attention_mask": np.ones(sum(lengths), np.int64)}
        if as_array and length is None and len(set(lengths)) == 1:
            length = lengths[0]
        if as_array and length is not None:
            place, real = np.arange(length), np.array(lengths)[:, None]
            mask = place < real if side == "right" else place >= length - real
            return {key: scatter_rows(values, mask) for key, values in columns.items()}
        arranged = {}
        for key, values in columns.items():
            zero = np.zeros(values.shape[1:], np.int64).tolist()
            arranged[key] = [text.tolist() for text in np.split(values, np.cumsum(lengths)[:-1])]
            for text in arranged[key] if length is not None else ():
                at = len(text) if side == "right" else 0
                text[at:at] = [copy.copy(zero) for _ in range(length - len(text))]
        return arranged

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> list[int] | list[list[int]]:
        """Character ids of one word, `[row_length]`, or of several; `<S>`, `</S>` and `<pad>` are special."""
        words = [tokens] if isinstance(tokens, str) else list(tokens)
        rows = self.spell(words)
        for row, word in zip(rows, words, strict=True):
            if (special := self._special_row(word)) is not None:
                row[:] = special
        return rows[0].tolist() if isinstance(tokens, str) else rows.tolist()

    def pad(self, encoded_inputs: Any, *args: Any, return_tensors: str | None = None, **kwargs: Any) -> BatchEncoding:
        """Pads encodings to one length, as every tokenizer of transformers does, with rows of zeros: `input_ids`, or
        `bilm_layers` in their place, and `word_vector_ids`; or these alone, for a head without ELMo."""
        if isinstance(encoded_inputs, (list, tuple)):
            encoded_inputs = {key: [example[key] for example in encoded_inputs] for key in encoded_inputs[0]}
        columns, others, one = {}, dict(encoded_inputs), False
        if "input_ids" in others:
            columns["input_ids"], one = as_examples(others.pop("input_ids"), self.row_length)
        if "bilm_layers" in others:
            columns["bilm_layers"] = [stored_layers(example) for example in others.pop("bilm_layers")]
        if "word_vector_ids" in others:
            numbers = others.pop("word_vector_ids")
            one = one or (not columns and len(numbers) > 0 and np.ndim(numbers[0]) == 0)
            columns["word_vector_ids"] = [np.asarray(to_py_obj(row)) for row in ([numbers] if one else numbers)]
        if not columns:
            given = ", ".join(encoded_inputs) or "nothing"
            raise ValueError(f"pad needs input_ids, bilm_layers or word_vector_ids, but was given {given}.")
        others = {key: to_py_obj(value) for key, value in others.items()}
        # transformers pads lists of integers: it gets the index of each row, and the rows follow their indices.
        numbers = [list(range(1, len(example) + 1)) for example in next(iter(columns.values()))]
        padded = super().pad(
            {**others, "input_ids": numbers[0] if one else numbers}, *args, return_tensors=None, **kwargs
        )
        numbers = [padded.pop("input_ids")] if one else padded.pop("input_ids")
        data = {key: pad_column(examples, numbers, one, return_tensors) for key, examples in columns.items()}
        return BatchEncoding({**data, **padded}, tensor_type=return_tensors)

    def align_labels(self, encoded: BatchEncoding, labels: Sequence) -> list:
        """
        The labels of words where `encoded`, the result of a call, has the words; -100 at boundaries and padding.

        Args:
            encoded: of one text or of a batch; with `return_overflowing_tokens` the pieces of long texts.
            labels: for each word its label, of one text or for each text of the batch.

        Returns:
            for each text, or each piece, a label at each position; of one text in one piece these alone.

        Raises:
            ValueError: a text has another number of words than of labels, or is a pair.
        """
        samples = encoded.get("overflow_to_sample_mapping")
        one = len(labels) == 0 or isinstance(labels[0], str) or not isinstance(labels[0], (Sequence, np.ndarray))
        aligned = labels_at_words(encoded.encodings, samples, [labels] if one else labels)
        return aligned[0] if one and samples is None else aligned

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """The word of a row of character ids, or the words of several rows `[words, row_length]`."""
        ids = np.asarray(ids)
        if ids.ndim == 0:
            raise ValueError(f"{int(ids)} is one character: a word is a row of {self.row_length} character ids.")
        if ids.ndim == 1 and ids.size:
            return self._token_of(ids.tolist())
        return [self._token_of(row) for row in ids.tolist() if not (skip_special_tokens and self._is_special(row))]

    def _is_special(self, row: Sequence[int]) -> bool:
        return row[0] == self.pad_token_id or row[1] in (self.bos_token_id, self.eos_token_id)

    def _token_of(self, row: Sequence[int]) -> str:
        if not self._is_special(row):
            return character_ids_to_word(row) if self.character_vocab is None else self.character_vocab.word_of(row)
        if row[0] == self.pad_token_id:
            return str(self.pad_token)
        return str(self.bos_token if row[1] == self.bos_token_id else self.eos_token)

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """Joins words with single spaces; the original spacing is lost."""
        return " ".join(tokens)

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **kwargs: Any) -> str | list[str]:
        """The text of a word `[characters]`, a sentence `[words, characters]`, or a batch of sentences."""
        if isinstance(token_ids, (list, tuple)) and token_ids and np.ndim(token_ids[0]) == 2:
            return [self.decode(sentence, skip_special_tokens) for sentence in token_ids]
        ids = np.asarray(token_ids)
        if ids.ndim == 3:
            return [self.decode(sentence, skip_special_tokens) for sentence in ids]
        words = self.convert_ids_to_tokens(ids.reshape(-1, self.row_length), skip_special_tokens)
        return self.convert_tokens_to_string(words)

    def get_special_tokens_mask(
        self, token_ids_0: Any, token_ids_1: Any = None, already_has_special_tokens: bool = False
    ) -> list[int]:
        """1 for each boundary or padded row of `[words, row_length]`, 0 for each word."""
        if already_has_special_tokens:
            if token_ids_1 is not None:
                raise ValueError("token_ids_1 must be None where the boundaries are in token_ids_0 already.")
            return [int(self._is_special(row)) for row in np.asarray(token_ids_0).tolist()]
        sentences = [token_ids_0] if token_ids_1 is None else [token_ids_0, token_ids_1]
        return [flag for sentence in sentences for flag in [1, *[0] * len(sentence), 1]]

    @cached_property
    def vocabulary(self) -> list[str] | None:
        """The words of the language model's softmax in the order of its rows; `None` without a `vocab_file`."""
        if getattr(self, "vocab_file", None) is None:
            return None
        return Path(self.vocab_file).read_text(encoding="utf-8").removesuffix("\n").split("\n")

    def _save_pretrained(
        self,
        save_directory: str,
        file_names: tuple[str, ...],
        legacy_format: bool | None = None,
        filename_prefix: str | None = None,
    ) -> tuple[str, ...]:
        self._tokenizer.no_truncation()  # the settings of the last call are not part of the tokenizer
        self._tokenizer.no_padding()
        file_names = super()._save_pretrained(save_directory, file_names, legacy_format, filename_prefix)
        file_names += self.save_vocabulary(save_directory, filename_prefix)
        for own, name in ((self._word_numbers, "words_file"), (self.character_vocab, "character_vocab_file")):
            prefix = f"{filename_prefix}-" if filename_prefix else ""
            target = Path(save_directory, prefix + self.vocab_files_names[name])
            if own is not None:
                own.save(target)
                file_names += (str(target),)
            else:  # an earlier tokenizer's, which would be loaded with this one
                target.unlink(missing_ok=True)
        return file_names

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        """Copies the language model's vocabulary into `save_directory`; where there is none, another's is renamed."""
        target = Path(save_directory, (f"{filename_prefix}-" if filename_prefix else "") + "vocab.txt")
        if getattr(self, "vocab_file", None) is None:
            set_aside(target)
            return ()
        if not target.exists() or not target.samefile(self.vocab_file):
            shutil.copyfile(self.vocab_file, target)
        return (str(target),)


def _backend(word_splitting: str, loaded: Tokenizer | None = None) -> Tokenizer:
    """The Rust tokenizer that splits and tracks offsets: each word is one unknown token.

    A custom pre-tokenizer or normalizer of a checkpoint, which is none of `WORD_SPLITTINGS`, is kept.
    """
    quotes = normalizers.Sequence([normalizers.Replace(*pair) for pair in LM1B_QUOTES])
    own = {
        "lm1b": (pre_tokenizers.Split(Regex(LM1B_PATTERN), "removed", invert=True), quotes),
        "whitespace": (pre_tokenizers.WhitespaceSplit(), None),
        "characters": (pre_tokenizers.Split(Regex(r"\S"), "removed", invert=True), None),
    }
    backend = Tokenizer(models.Unigram([("", 0.0)], unk_id=0))  # no text holds the piece "", so a word is never cut
    backend.pre_tokenizer, backend.normalizer = own[word_splitting]
    if loaded is None:
        return backend

    splits, normalizes = (part and part.__getstate__() for part in (loaded.pre_tokenizer, loaded.normalizer))
    for pre_tokenizer, normalizer in own.values():
        if splits == pre_tokenizer.__getstate__():
            loaded.pre_tokenizer = backend.pre_tokenizer
            if normalizes == (normalizer and normalizer.__getstate__()):
                loaded.normalizer = backend.normalizer
    return loaded


def _checked_text(text: Any, is_split_into_words: bool) -> Any:
    """The text, arrays made lists; raises ValueError for anything but text, and for nesting that has two readings."""
    if (text := _as_list(text)) is None:
        return None
    if not isinstance(text, (list, tuple) if is_split_into_words else (str, list, tuple)):
        kind = f"{type(text).__name__}, {text!r:.60} ({is_split_into_words=})"
        raise ValueError(f"text must be a list of strings, or if not is_split_into_words a string, but is {kind}.")
    if is_split_into_words:
        text = text if isinstance(text, tuple) else [_as_list(words) for words in text]
        for sentence in [text] if is_sentence_of_words(text) else text:
            sequences = sentence if isinstance(sentence, tuple) and not is_sentence_of_words(sentence) else [sentence]
            for words in sequences:
                if not isinstance(words, (list, tuple)):
                    raise ValueError(f"each sentence must be a list of words, but one is {words!r:.80}.")
                for place, word in enumerate(words):
                    if not isinstance(word, str):
                        raise ValueError(f"each word must be a string, but one is {word!r:.80} (number {place}).")
        return text
    for number, element in enumerate([] if isinstance(text, str) else text):
        if isinstance(element, list):
            raise ValueError(
                f"a text must be a string, but one is a list, {element!r:.80}. For words that are split already pass "
                "is_split_into_words=True; for a pair of texts use a tuple, or text_pair."
            )
        pair = isinstance(element, tuple) and len(element) == 2 and all(isinstance(part, str) for part in element)
        if not (isinstance(element, str) or pair):
            raise ValueError(
                f"each must be a string or a pair of strings, but one is {element!r:.80} (number {number})."
            )
    return text


__all__ = ["ElmoTokenizer"]
