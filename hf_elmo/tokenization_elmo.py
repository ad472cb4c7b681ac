"""The tokenizer: text to words, words to character ids."""

import copy
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Encoding, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BatchEncoding, TokenizersBackend
from transformers.utils import to_py_obj

from .configuration_elmo import (
    BOS_ID,
    BOUNDARY_ID,
    EOS_ID,
    FIRST_VECTOR_ID,
    IGNORE_INDEX,
    UNKNOWN_ID,
    WORD_BEGIN_ID,
    WORD_END_ID,
    WORD_PADDING_ID,
)
from .text_elmo import as_list, drop_surrogates, read_vocabulary

UNKNOWN_CHARACTER_ID = 1
# The word ids of models that also embed whole words; 0 is padding, as among the character ids.
UNKNOWN_WORD_ID = 1
SENTENCE_BEGIN_WORD_ID = 2
SENTENCE_END_WORD_ID = 3
FIRST_WORD_ID = 4


def words_to_character_ids(
    words: Sequence[str], max_word_length: int = 50, character_ids: Mapping[str, int] | None = None
) -> np.ndarray:
    """The character ids `[words, max_word_length]` int64 of words, numbered as in AllenNLP and bilm-tf: in each row a
    begin marker, the first `max_word_length - 2` bytes of UTF-8, each plus one, an end marker, and padding. Lone
    surrogates, which UTF-8 cannot encode, are dropped. With `character_ids`, the Unicode characters of a word are
    numbered in place of its bytes; id 1 is that of all others."""
    if character_ids is None:
        cut = [word.encode("utf-8", "ignore")[: max_word_length - 2] for word in words]
        ids = np.frombuffer(b"".join(cut), dtype=np.uint8).astype(np.int64) + 1
    else:
        cut = [drop_surrogates(word)[: max_word_length - 2] for word in words]
        ids = [character_ids.get(character, UNKNOWN_CHARACTER_ID) for word in cut for character in word]
    ends = np.array([len(word) for word in cut], dtype=np.int64)
    rows = np.full((len(ends), max_word_length), WORD_PADDING_ID, dtype=np.int64)
    rows[:, 0] = WORD_BEGIN_ID
    rows[:, 1:-1][np.arange(1, max_word_length - 1) <= ends[:, None]] = ids
    rows[np.arange(len(ends)), ends + 1] = WORD_END_ID
    return rows


def embedded_ids(vocabulary: Iterable[str]) -> list[int]:
    """The id of each word of a vocabulary among the words that a biLM embeds: 1, 2 and 3 for `<UNK>`, `<S>` and `</S>`,
    from 4 on for all others in their order."""
    special = {"<UNK>": UNKNOWN_WORD_ID, "<S>": SENTENCE_BEGIN_WORD_ID, "</S>": SENTENCE_END_WORD_ID}
    others = count(FIRST_WORD_ID)
    return [special.get(word) or next(others) for word in vocabulary]


class CharacterVocabulary:
    """The Unicode characters that spell words in place of bytes, and the words that the biLM embeds as a whole.
    The markers have the ids 257 to 261, as with bytes; the characters have the ids below 257 and above 261.

    Args:
        characters: the characters in the order of their ids, from 2; id 1 stands for every unlisted character.
        embedded_words: the words with an embedding in the biLM in the order of their ids, from 4, or `None`. Id 1
            stands for every unlisted word, ids 2 and 3 for the sentence boundaries.
    """

    def __init__(self, characters: Sequence[str], embedded_words: Sequence[str] | None = None) -> None:
        self.characters = list(characters)
        self.embedded_words = None if embedded_words is None else list(embedded_words)
        ids = chain(range(UNKNOWN_CHARACTER_ID + 1, BOS_ID), count(WORD_PADDING_ID + 1))
        self.character_ids = dict(zip(self.characters, ids, strict=False))
        self.size = max([WORD_PADDING_ID, *self.character_ids.values()]) + 1  # the rows of the character embedding
        self.names = {character_id: character for character, character_id in self.character_ids.items()}
        words = self.embedded_words
        self.word_ids = None if words is None else dict(zip(words, count(FIRST_WORD_ID), strict=False))

    @classmethod
    def load(cls, path: str | Path) -> "CharacterVocabulary":
        """Read a file that [`save`] wrote."""
        stored = json.loads(Path(path).read_text(encoding="utf-8"))
        return cls(stored["characters"], stored["words"])

    def save(self, path: str | Path) -> None:
        """Write the characters and the embedded words as JSON."""
        stored = {"characters": self.characters, "words": self.embedded_words}
        Path(path).write_text(json.dumps(stored, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


# Words as in the 1 Billion Word Benchmark, on which the published English models were trained: case is kept,
# punctuation and clitics are split off ("don 't", "dog 's"); numbers, hyphenated words and abbreviations stay whole.
# Invisible characters are no words. Between letters, they belong to the word (a soft hyphen, the joiners of Persian),
# except a zero-width space; after a symbol, those that vary it or join it to another one (emoji) do.
_LETTER = r"[\p{L}\p{M}\p{N}]"
_IGNORABLE = r"\p{Default_Ignorable_Code_Point}"
_VISIBLE = rf"(?!{_IGNORABLE}|\p{{Cc}})\S"
TITLES = "Mrs?|Ms|Mme|Messrs|Drs?|Prof|Rev|Hon|St|Sts|Gen|Col|Maj|Capt|Lt|Sgt|Gov|Sen|Rep|Jr|Sr|Inc|Corp|Ltd|Co|Bros|vs"
LM1B_PATTERN = "|".join(
    (
        rf"(?<!{_LETTER})(?:{TITLES})\.",
        rf"(?<!{_LETTER})(?:\p{{L}}\.){{2,}}",  # U.S., e.g.
        rf"(?<!{_LETTER})\p{{Lu}}\.(?=\s+\p{{Lu}})",  # J. Smith
        # word, well-known, 3,000.50, 98th
        rf"(?!{_IGNORABLE}){_LETTER}+(?:(?:[.\-_]|(?<=\p{{N}}),(?=\p{{N}})|(?:(?!\x{{200B}}){_IGNORABLE})+){_LETTER}+)*",
        rf"(?<={_LETTER})'\p{{L}}+",  # 's, 't
        r"(?<!\S)'(?:[sdmtSDMT]|ll|re|ve|LL|RE|VE)(?![\p{L}\p{N}])",  # 's, 't, already split off
        r"\.{2,}|-{2,}",
        rf"{_VISIBLE}(?:[\x{{FE00}}-\x{{FE0F}}]\x{{20E3}}?|\x{{200D}}(?!{_LETTER}){_VISIBLE})*",
    )
)
LM1B_QUOTES = (("“", '"'), ("”", '"'), ("„", '"'), ("‘", "'"), ("’", "'"))
_PLAIN_QUOTES = normalizers.Sequence([normalizers.Replace(*pair) for pair in LM1B_QUOTES])
# The pre-tokenizer and the normalizer of the backend for each `word_splitting`.
WORD_SPLITTINGS = {
    "lm1b": (pre_tokenizers.Split(Regex(LM1B_PATTERN), "removed", invert=True), _PLAIN_QUOTES),
    "whitespace": (pre_tokenizers.WhitespaceSplit(), None),
    "characters": (pre_tokenizers.Split(Regex(_VISIBLE), "removed", invert=True), None),
}


def _make_backend(word_splitting: str, loaded: Tokenizer | None = None) -> Tokenizer:
    """The Rust tokenizer, which splits text and tracks offsets. It has no vocabulary: each word is one unknown token.
    Of a backend loaded from a checkpoint, a user's own pre-tokenizer and normalizer are kept."""
    backend = loaded or Tokenizer(models.Unigram([("", 0.0)], unk_id=0))  # no text has the only piece: no word is cut
    parts = [(backend.pre_tokenizer, backend.normalizer), *WORD_SPLITTINGS.values()]
    state, *known = [[part and part.__getstate__() for part in pair] for pair in parts]
    pre_tokenizer, normalizer = copy.deepcopy(WORD_SPLITTINGS[word_splitting])
    if loaded is None or state[0] in [splits for splits, _ in known]:
        backend.pre_tokenizer = pre_tokenizer
    if loaded is None or state in known:
        backend.normalizer = normalizer
    return backend


# Held while a call sets a backend and encodes, so that threads can share a tokenizer.
_BACKEND_SETTINGS = threading.Lock()
# Stands for an empty word of a list, also in `encoded.tokens()`: the backend would leave out an empty string.
_EMPTY_WORD = "\ufdd0empty word\ufdd0"


def _plain(texts: Any, empty: str = "", clean: Callable[[str], str] = drop_surrogates) -> Any:
    """Arrays and columns of tables as lists, at any depth, and strings as `clean` returns them, or else `empty`."""
    if isinstance(texts, str):
        return clean(texts) or empty
    texts = texts.tolist() if hasattr(texts, "tolist") else texts
    if not isinstance(texts, Sequence):
        return texts
    plain = [_plain(text, empty, clean) for text in texts]
    return tuple(plain) if isinstance(texts, tuple) else plain


def _offsets(encoding: Encoding, texts: Sequence[Any]) -> list[tuple[int, int]]:
    """The start and end of each token in the text, or the word of a list, as it was given, with lone surrogates."""
    kept = [isinstance(x, str) and [i for i, c in enumerate(x) if not "\ud800" <= c <= "\udfff"] for x in texts]
    offsets = []
    for text, word, (start, end) in zip(encoding.sequence_ids, encoding.word_ids, encoding.offsets, strict=True):
        if word is None:
            offsets.append((0, 0))
        elif kept[text]:
            offsets.append((kept[text][start], kept[text][end - 1] + 1))
        else:  # a word of a list
            offsets.append((0, len(texts[text][word])))
    return offsets


# The columns with one row per token, which `pad` pads with zeros, and the number of axes that each has for one text.
TOKEN_COLUMNS = {"input_ids": 2, "word_vector_ids": 1, "word_characters": 2}
OF_NO_ROW = "state", "length"  # arguments of models, of which the first is of a whole batch, and the second is not read


class ElmoTokenizer(TokenizersBackend):
    r"""Splits text into words and spells each word with character ids, as ELMo reads them.

    `input_ids` are `[batch, positions, max_word_length]`, a row of character ids for each word and for the sentence
    boundaries `<S>` and `</S>`, zeros for padding. Any string can be spelled, so no word is unknown.

    Args:
        word_splitting: How text is split. `"lm1b"`: as in the 1 Billion Word Benchmark, on which the published English
            models were trained; case is kept, punctuation is split off (`don 't`, `dog 's`), typographic quotes become
            plain, and invisible characters are no words. `"whitespace"`: at whitespace only, for tokenized text.
            `"characters"`: each character that is not whitespace is a word, as in proteins. Lists of words
            (`is_split_into_words=True`) are never split further.
        max_word_length: Length to which words are cut and padded, including the two markers.
        split_special_tokens: Whether `<S>` and `</S>` in a text are ordinary words; `False` makes them boundaries.
        vocab_file: File of the language model's softmax words, one per line, most frequent first.
        words_file: File of the words that have a vector beside ELMo, one per line, also the attribute `words`. If it is
            given, calls also return `word_vector_ids [batch, positions]`: 0 for padding, 1 for boundaries, 2 for
            unlisted words. A word is looked up as it is, then in lower case.
        word_case: `"cased"` or `"lower"`: a word is looked up only as it is, or only in lower case.
        null_word: A word to be put after each text (Parikh et al. 2016, section 3.1).
        word_characters: Whether calls also return `word_characters [batch, positions, longest]`, the Unicode numbers of
            the characters of uncut words, or with `"bytes"` their ids as in `input_ids`, and zeros elsewhere.
        character_vocab_file: JSON file of a [`CharacterVocabulary`]: words are spelled with its characters in place of
            bytes. If it has embedded words, each row of `input_ids` ends with the id of the word.
        embeds_words: Whether each row of `input_ids` ends with the id of the word in `vocab_file` (of `<UNK>` for other
            words), as a model reads it that embeds these words (`ElmoConfig.word_vocab_size`).

    Raises:
        KeyError: `word_splitting` is unknown.
        ValueError: in a call, a text is a list of words without `is_split_into_words=True`, or a string with it.
    """

    _auto_class = "AutoTokenizer"
    vocab_files_names = {  # noqa: RUF012
        "tokenizer_file": "tokenizer.json",
        "vocab_file": "vocab.txt",
        "words_file": "words.txt",
        "character_vocab_file": "character_vocab.json",
    }
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012
    # The ids of padding and of the one character of `<S>` and of `</S>`; any string can be spelled: none is unknown.
    pad_token_id = 0
    bos_token_id = BOS_ID
    eos_token_id = EOS_ID
    unk_token_id = None
    all_special_ids = [0, BOS_ID, EOS_ID]  # noqa: RUF012
    _tokenizer: Tokenizer
    from_pretrained: Callable[..., "ElmoTokenizer"]  # as in transformers, which declares no type

    def __init__(
        self,
        word_splitting: str = "lm1b",
        max_word_length: int = 50,
        split_special_tokens: bool = True,
        words_file: str | None = None,
        character_vocab_file: str | None = None,
        embeds_words: bool = False,
        word_case: str = "any",
        word_characters: bool | str = False,
        null_word: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.max_word_length = max_word_length
        self.embeds_words = embeds_words
        self._vocabulary: list[str] | None = None  # that was set, in place of the file's
        self.cache: dict[str, Any] = {}  # what the file gives; datasets leaves this attribute out of its hash
        self.character_vocab = None if character_vocab_file is None else CharacterVocabulary.load(character_vocab_file)
        kwargs = {"bos_token": "<S>", "eos_token": "</S>", "unk_token": "<UNK>", "pad_token": "<pad>", **kwargs}
        rows = words_to_character_ids("<>", max_word_length, {"<": BOS_ID, ">": EOS_ID})
        rows = np.hstack((rows, [[SENTENCE_BEGIN_WORD_ID], [SENTENCE_END_WORD_ID]]))  # [2, at least row_length]
        self._boundaries = dict(zip((str(kwargs["bos_token"]), str(kwargs["eos_token"])), rows, strict=True))
        self.null_word = null_word
        backend = _make_backend(word_splitting, kwargs.pop("tokenizer_object", None))
        kwargs |= {"word_splitting": word_splitting, "max_word_length": max_word_length, "word_case": word_case}
        kwargs |= {"split_special_tokens": split_special_tokens, "embeds_words": embeds_words, "null_word": null_word}
        files = {"words_file": words_file, "character_vocab_file": character_vocab_file}
        super().__init__(tokenizer_object=backend, word_characters=word_characters, **files, **kwargs)
        self.update_post_processor()
        self.word_characters = word_characters
        self.word_case = word_case
        self.words = None
        if words_file is not None:
            with open(words_file, encoding="utf-8-sig", newline="\n") as lines:  # a word may hold other line breaks
                self.words = [line.removesuffix("\n").removesuffix("\r") for line in lines]

    @classmethod
    def convert_to_native_format(cls, **kwargs: Any) -> dict[str, Any]:
        """The arguments of `__init__`, with the backend from the tokenizer.json of a checkpoint."""
        if file := kwargs.pop("tokenizer_file", None):
            kwargs["tokenizer_object"] = Tokenizer.from_file(str(file))
        return kwargs

    def update_post_processor(self) -> None:
        """Puts `<S>` and `</S>` around each sentence, also around the second sentence of a pair."""
        bos, *ends = self._boundaries
        if self.null_word is not None:
            self._tokenizer.add_special_tokens([self.null_word])
            ends.insert(0, self.null_word)
        self._tokenizer.post_processor = processors.TemplateProcessing(
            single=[bos, "$A", *ends],
            pair=[bos, "$A", *ends, f"{bos}:1", "$B:1", *(f"{token}:1" for token in ends)],
            special_tokens=[(token, self._tokenizer.token_to_id(token)) for token in (bos, *ends)],
        )
        # For lists of words, which are neither split nor normalized. The copy is made here because another thread may
        # save the tokenizer during a call.
        self._backend_of_words = copy.deepcopy(self._tokenizer)
        self._backend_of_words.pre_tokenizer = None
        self._backend_of_words.normalizer = None

    @property
    def word_splitting(self) -> str:
        """How text is split. To change it, load another tokenizer: `from_pretrained(..., word_splitting=...)`."""
        return self.init_kwargs["word_splitting"]

    @property
    def words(self) -> list[str] | None:
        """The words that have a vector beside ELMo, in the order of the vectors, from id 3; `None` if there are none.
        Setting them raises ValueError for a word with a line break, which the saved file cannot hold."""
        return self._words

    @words.setter
    def words(self, words: Sequence[str] | None) -> None:
        self._words = None if words is None else as_list(words, "words")
        if broken := next((word for word in self._words or () if "\n" in word), None):
            raise ValueError(f"words has {broken!r}, but a word cannot contain a line break.")
        self._vector_ids = {word: vector_id for vector_id, word in enumerate(self._words or (), FIRST_VECTOR_ID)}
        columns = {"word_vector_ids": words is not None, "word_characters": self.word_characters}
        self.model_input_names = ["input_ids", "attention_mask", *(name for name in columns if columns[name])]

    @property
    def vocabulary(self) -> list[str] | None:
        """The words of the language model's softmax in the order of its rows; `None` without a `vocab_file`."""
        file = getattr(self, "vocab_file", None)
        if self._vocabulary is None and file is not None and "vocabulary" not in self.cache:
            self.cache["vocabulary"] = read_vocabulary(file)
        return self._vocabulary or self.cache.get("vocabulary")

    @vocabulary.setter
    def vocabulary(self, words: Sequence[str]) -> None:
        self._vocabulary = as_list(words, "vocabulary")
        self.cache = {}

    @property
    def _word_ids(self) -> dict[str, int] | None:
        """The ids of the words that the biLM embeds, if it embeds any; `<S>` and `</S>` in a text are unknown words."""
        if self.character_vocab is not None or not self.embeds_words:
            return self.character_vocab and self.character_vocab.word_ids
        if "word_ids" not in self.cache:
            ids = zip(self.vocabulary, embedded_ids(self.vocabulary), strict=True)
            self.cache["word_ids"] = {word: word_id for word, word_id in ids if word_id >= FIRST_WORD_ID}
        return self.cache["word_ids"]

    @property
    def row_length(self) -> int:
        """Length of a row of `input_ids`: a word's characters, and the word's id if whole words are embedded."""
        return self.max_word_length + (self._word_ids is not None)

    def spell(self, words: Sequence[str]) -> np.ndarray:
        """The ids `[words, row_length]` int64 of words; `<S>` and `</S>` are spelled like other words."""
        character_ids = None
        if self.character_vocab is not None:
            character_ids = self.character_vocab.character_ids
            words = [drop_surrogates(word)[: self.max_word_length - 2] for word in words]  # so they are looked up
        rows = words_to_character_ids(words, self.max_word_length, character_ids)
        word_ids = self._word_ids
        if word_ids is not None:
            rows = np.pad(rows, ((0, 0), (0, 1)))
            rows[:, -1] = [word_ids.get(word, UNKNOWN_WORD_ID) for word in words]
        return rows

    @property
    def vocab_size(self) -> int:
        """Number of rows of the character embedding, 262 for bytes."""
        return WORD_PADDING_ID + 1 if self.character_vocab is None else self.character_vocab.size

    def __len__(self) -> int:
        return self.vocab_size

    def get_vocab(self) -> dict[str, int]:
        """The character ids by name: padding, bytes (`"<0x61>"`) or characters, and markers."""
        markers = (self.bos_token, self.eos_token, "<begin word>", "<end word>", "<word padding>")
        if self.character_vocab is None:
            characters = {f"<0x{byte:02X}>": byte + 1 for byte in range(256)}
        else:
            characters = {"<unknown>": UNKNOWN_CHARACTER_ID, **self.character_vocab.character_ids}
        return {self.pad_token: 0, **characters, **{name: i for i, name in enumerate(markers, BOS_ID)}}

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        """The tokens of padding and of the sentence boundaries, by character id."""
        ids = self.get_vocab()
        return {ids[str(token)]: token for token in super().added_tokens_decoder.values() if str(token) in ids}

    def split_into_words(self, texts: Iterable[str | Sequence[str]], pretokenized: bool = False) -> list[list[str]]:
        """Splits texts into the words that a call of this tokenizer would spell, without sentence boundaries.

        Args:
            texts: each a string, or a list of words, which is not split further. Lone surrogates are dropped.
            pretokenized: whether strings are tokenized already, and are split only at whitespace (`str.split`).

        Raises:
            ValueError: `texts` is a string.
        """
        texts = _plain(as_list(texts))
        strings = [text for text in texts if isinstance(text, str)]
        words: Iterator[list[str]] = map(str.split, strings)
        if not pretokenized:
            with _BACKEND_SETTINGS:
                self._tokenizer.encode_special_tokens = self.split_special_tokens
                encodings = self._tokenizer.encode_batch(strings, add_special_tokens=False)
            words = (encoding.tokens for encoding in encodings)
        return [next(words) if isinstance(text, str) else list(text) for text in texts]

    def __call__(self, text: Any = None, *args: Any, **kwargs: Any) -> BatchEncoding:
        """As in transformers, but a pair of texts in a batch must be a tuple: a list of two strings could be two words.
        A list is a pair if `truncation` is the name of a strategy, as in the zero-shot pipeline and `CrossEncoder`."""
        strategies = ("only_first", "only_second", "longest_first")
        if isinstance(text, list) and kwargs.get("truncation") in strategies and not kwargs.get("is_split_into_words"):
            text = [tuple(pair) if isinstance(pair, list) and len(pair) == 2 else pair for pair in text]
        return super().__call__(text, *args, **kwargs)

    def _encode_plus(
        self,
        text: str | Sequence,
        text_pair: str | Sequence | None = None,
        is_split_into_words: bool = False,
        return_tensors: str | None = None,
        **kwargs: Any,
    ) -> BatchEncoding:
        given = [_plain(part, clean=str) for part in (text, text_pair)]
        text, text_pair = (_plain(part, _EMPTY_WORD if is_split_into_words else "") for part in given)
        for part in given:
            has_words = isinstance(part, (list, tuple)) and any(isinstance(one, list) for one in part)
            if (isinstance(part, str) and is_split_into_words) or (has_words and not is_split_into_words):
                raise ValueError(
                    f"text is {part!r:.80}: is_split_into_words=True is for lists of words, and only for them. "
                    "A pair of texts is a tuple."
                )
        tokenizer = self
        batched = isinstance(text, (list, tuple))
        if is_split_into_words:
            tokenizer = copy.copy(self)
            tokenizer._tokenizer = self._backend_of_words
            batched = len(text) > 0 and not isinstance(text[0], str)
        if batched and not text:
            shapes = dict.fromkeys(self.model_input_names, (0, 0)) | {"input_ids": (0, 0, self.row_length)}
            data = {name: np.zeros(shape, np.int64) if return_tensors else [] for name, shape in shapes.items()}
            return BatchEncoding(data, tensor_type=return_tensors)
        if not batched:
            text = [text]
            text_pair = None if text_pair is None else [text_pair]
            given = [[part] for part in given]
        kwargs["is_split_into_words"] = is_split_into_words
        with _BACKEND_SETTINGS:
            try:
                encoded = TokenizersBackend._encode_plus(tokenizer, text, text_pair, **kwargs)
            finally:  # what a call sets would change the hash of the tokenizer, by which datasets finds results
                tokenizer._tokenizer.no_truncation()
                tokenizer._tokenizer.no_padding()
        if "offset_mapping" in encoded:
            samples = encoded.get("overflow_to_sample_mapping", range(len(encoded.encodings)))
            sources = ([None if part is None else part[sample] for part in given] for sample in samples)
            encoded["offset_mapping"] = list(map(_offsets, encoded.encodings, sources))
        data = {**encoded, **self._columns(encoded)}
        if "special_tokens_mask" in data:  # to the backend, the NULL word is special, too
            data["special_tokens_mask"] = [self.get_special_tokens_mask(ids, None, True) for ids in data["input_ids"]]
        if not return_tensors:
            data |= {name: [rows.tolist() for rows in data[name]] for name in TOKEN_COLUMNS if name in data}
        if not (batched or return_tensors or kwargs.get("return_overflowing_tokens")):
            data = {name: value[0] if isinstance(value[0], list) else value for name, value in data.items()}
        return BatchEncoding(data, encoded.encodings, tensor_type=return_tensors)

    def _columns(self, encoded: BatchEncoding) -> dict[str, list[np.ndarray]]:
        """The [`TOKEN_COLUMNS`] of each text, boundaries included; the backend's ids distinguish them from words."""
        tokens = ["" if token == _EMPTY_WORD else token for one in encoded.encodings for token in one.tokens]
        columns = {"input_ids": self.spell(tokens)}
        if self._words is not None:
            find = self._vector_ids.get
            cased, lower = (self.word_case != other for other in ("lower", "cased"))
            ids = [(cased and find(token)) or (lower and find(token.lower())) or UNKNOWN_ID for token in tokens]
            columns["word_vector_ids"] = np.array(ids, dtype=np.int64)
        if self.word_characters == "bytes":
            spelled = ([WORD_BEGIN_ID, *(byte + 1 for byte in token.encode()), WORD_END_ID] for token in tokens)
            tokens = ["".join(map(chr, ids)) for ids in spelled]
        if self.word_characters:  # NumPy pads strings with zeros; transformers' pipelines want a usual width
            padded = np.array([[token] for token in [*tokens, "-" * self.max_word_length]])[:-1]
            columns["word_characters"] = padded.view(np.uint32).astype(np.int64)
        backend_ids = np.concatenate(encoded["input_ids"])
        for boundary, row in self._boundaries.items():
            places = backend_ids == self._tokenizer.token_to_id(boundary)
            for name, rows in columns.items():
                rows[places] = {"input_ids": row[: rows.shape[-1]], "word_vector_ids": BOUNDARY_ID}.get(name, 0)
        is_padding = np.concatenate([encoding.attention_mask for encoding in encoded.encodings]) == 0
        for rows in columns.values():
            rows[is_padding] = 0
        ends = np.cumsum([len(encoding) for encoding in encoded.encodings])
        return {name: np.split(rows, ends[:-1]) for name, rows in columns.items()}

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> list[int] | list[list[int]]:
        """The ids of one word, `[row_length]`, or of several words; `<S>`, `</S>` and `<pad>` are special tokens."""
        words = [tokens] if isinstance(tokens, str) else list(tokens)
        special = {str(self.pad_token): np.zeros(self.row_length)} | self._boundaries
        rows = self.spell(words)
        for row, word in zip(rows, words, strict=True):
            row[:] = special.get(word, row)[: len(row)]
        return rows[0].tolist() if isinstance(tokens, str) else rows.tolist()

    def pad(self, encoded_inputs: Any, *args: Any, return_tensors: str | None = None, **kwargs: Any) -> BatchEncoding:
        """Pads as in transformers; the [`TOKEN_COLUMNS`], of which at least one is required, are padded with zeros.
        Leaves out `state` and `length`: Trainer keeps columns of a data set that have these names."""
        if isinstance(encoded_inputs, (list, tuple)):
            encoded_inputs = {key: [example[key] for example in encoded_inputs] for key in encoded_inputs[0]}
        columns = {name: encoded_inputs[name] for name in TOKEN_COLUMNS if name in encoded_inputs}
        others = {key: to_py_obj(value) for key, value in encoded_inputs.items() if key not in (*columns, *OF_NO_ROW)}
        if not columns:
            return super().pad(others, *args, return_tensors=return_tensors, **kwargs)  # raises: no input_ids
        name, column = next(iter(columns.items()))
        first = next((part for part in column if not isinstance(part, (list, tuple)) or part), None)
        if first is not None and np.ndim(first) + 1 == TOKEN_COLUMNS[name]:  # one text, not a batch
            batch = {name: [value] for name, value in encoded_inputs.items()}
            padded = self.pad(batch, *args, return_tensors=return_tensors, **kwargs)
            return BatchEncoding({name: column[0] for name, column in padded.items()})
        # transformers pads only lists of numbers, so it gets the indices of the rows; row 0 is padding.
        others["input_ids"] = [list(range(1, len(text) + 1)) for text in column]
        padded = super().pad(others, *args, **kwargs)
        places = padded.pop("input_ids")
        for name, texts in columns.items():
            arrays = [np.asarray(to_py_obj(text), dtype=np.int64) for text in texts]
            if TOKEN_COLUMNS[name] == 2:
                width = self.row_length if name == "input_ids" else max(array.shape[-1] for array in arrays)
                arrays = [np.pad(x.reshape(len(x), x.shape[-1]), ((0, 0), (0, width - x.shape[-1]))) for x in arrays]
            column = [np.insert(array, 0, 0, axis=0)[of_text] for array, of_text in zip(arrays, places, strict=True)]
            columns[name] = column if return_tensors else [text.tolist() for text in column]
        return BatchEncoding({**columns, **padded}, tensor_type=return_tensors)

    def align_labels(self, encoded: BatchEncoding, labels: Sequence) -> list:
        """Puts the labels of words at the positions of the words in `encoded`, and -100 at boundaries and padding.

        Args:
            encoded: the result of calling the tokenizer on a text or a batch, also with `return_overflowing_tokens`.
            labels: one label for each word: a list for one text, a list of lists for a batch.

        Returns:
            a list of labels for each encoded text or piece; one list for one text without `return_overflowing_tokens`.

        Raises:
            ValueError: `labels` has another number of texts or of words in a text than `encoded`, or a text is a pair.
        """
        samples = encoded.get("overflow_to_sample_mapping")
        labels = list(labels)
        is_one = not labels or np.ndim(labels[0]) == 0
        labels = [labels] if is_one else list(map(as_list, labels))
        pieces = encoded.encodings
        texts = range(len(pieces)) if samples is None else list(map(int, samples))  # of the pieces
        firsts = dict(zip(reversed(texts), reversed(pieces), strict=True))  # the first piece of each text
        if len(firsts) != len(labels):
            raise ValueError(f"labels are given for {len(labels)} texts, but {len(firsts)} texts are encoded.")
        for text, first in firsts.items():
            words = [word for piece in (first, *first.overflowing) for word in piece.word_ids if word is not None]
            if 1 in first.sequence_ids or max(words, default=-1) + 1 != len(labels[text]):
                raise ValueError(f"labels of text {text} must be one for each word, of a text that is no pair.")
        aligned = [
            [IGNORE_INDEX if word is None else labels[text][word] for word in piece.word_ids]
            for text, piece in zip(texts, pieces, strict=True)
        ]
        return aligned[0] if is_one and samples is None else aligned

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Decodes a row of character ids to its token, or rows `[tokens, row_length]` to a list of tokens."""
        ids = np.asarray(ids)
        if ids.ndim == 1 and ids.size:
            return self._token_of(ids.tolist())
        return [self._token_of(x) for x in ids.tolist() if not (skip_special_tokens and x[1] in self.all_special_ids)]

    def _token_of(self, row: Sequence[int]) -> str:
        special = {0: self.pad_token, BOS_ID: self.bos_token, EOS_ID: self.eos_token}
        if row[1] in special:
            return str(special[row[1]])
        ids = row[1 : row.index(WORD_END_ID)]
        if self.character_vocab is None:
            return bytes(character_id - 1 for character_id in ids).decode("utf-8", "replace")
        return "".join(self.character_vocab.names.get(character_id, "\ufffd") for character_id in ids)

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **kwargs: Any) -> str | list[str]:
        """The text of a token `[characters]`, a sentence `[tokens, characters]`, or a batch of sentences."""
        if len(token_ids) and np.ndim(token_ids[0]) == 2:
            return [self.decode(sentence, skip_special_tokens) for sentence in token_ids]
        rows = np.asarray(token_ids).reshape(-1, self.row_length)
        return self.convert_tokens_to_string(self.convert_ids_to_tokens(rows, skip_special_tokens))

    def get_special_tokens_mask(self, token_ids_0: Any, *args: Any, **kwargs: Any) -> list[int]:
        """As in transformers, of rows of character ids with boundaries: 1 for boundaries and padding, 0 for words."""
        rows = np.asarray(token_ids_0).reshape(-1, self.row_length)
        return super().get_special_tokens_mask(rows[:, 1].tolist(), *args, **kwargs)

    def _save_pretrained(self, save_directory: str, filename_prefix: str | None = None, **kwargs: Any) -> tuple:
        """As in transformers. Also writes the words of the softmax, the words with a vector and the characters, if
        there are any; the files of the latter two that another tokenizer left are removed: they would be loaded."""
        saved = super()._save_pretrained(save_directory, filename_prefix=filename_prefix, **kwargs)
        prefix = f"{filename_prefix}-" if filename_prefix else ""
        words: dict[str, Any] = {"vocab_file": self.vocabulary, "words_file": self.words}
        for name, part in {**words, "character_vocab_file": self.character_vocab}.items():
            target = Path(save_directory, prefix + self.vocab_files_names[name])
            if isinstance(part, CharacterVocabulary):
                part.save(target)
            elif part is not None:
                target.write_bytes("".join(f"{word}\n" for word in part).encode())
            elif name != "vocab_file":
                target.unlink(missing_ok=True)
            saved += () if part is None else (str(target),)
        return saved
