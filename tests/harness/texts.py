"""Texts of any characters through the tokenizer and back, against slow definitions of words and of their characters."""

import functools
import random
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np
import regex

from hf_elmo import ElmoTokenizer
from hf_elmo.spelling import Speller
from hf_elmo.tokenization_elmo import LM1B_PATTERN, LM1B_QUOTES, WORD_SPLITTINGS
from tests.test_character_ids import BEGIN_SENTENCE, END_SENTENCE, boundary_ids, expected_ids, utf8

from .checks import Check, require_same, without_preparation

TEXTS = 100  # of a case
# Unicode's property White_Space, which str.split takes a few controls more for.
WHITESPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
SEPARATORS = [*WHITESPACE, "\x1c", "\x1f", "", "-", "--", "...", ".", ",", "'", "’", "“", "_", "/", "\u200b", "\ufeff"]
WORDS = ["don't", "U.S.", "Mr.", "3,000.50", "well-known", "<S>", "</S>", "<pad>", "<UNK>", "J. Smith", "'s", "O'Neil"]
WORDS += [
    "naïve",
    "日本語",
    "ไทย",
    "עברית",
    "नमस्ते",
    "👩‍👩‍👧",
    "e\u0301",
    "\u0301",
    "🇩🇪",
    "ﬁ",
    "İ",
    "ß",
    "\ufdd0",
    "\U000e01ef",
]
MARKS = "".join(map(chr, range(0xE0100, 0xE01F0)))  # combining ones: what stands for lone surrogates

Words = list[str]


@functools.cache
def characters(first: int, end: int) -> str:
    """All but those that Unicode has not assigned as far as Python knows: engines with newer tables may have."""
    of_range = map(chr, range(first, end))
    return "".join(one for one in of_range if unicodedata.category(one) != "Cn" or ord(one) & 0xFFFE == 0xFFFE)


def random_character(rng: random.Random, first: int = 0, end: int = 0x110000) -> str:
    return rng.choice(characters(first, end))


def random_word(rng: random.Random) -> str:
    """A word of one kind: of a language, of any code points, of surrogates, of controls, or a huge one."""
    kind = rng.random()
    if kind < 0.35:
        return "".join(rng.choices("aeiouxyzTHQ019.,'-", k=rng.randint(1, 9)))
    if kind < 0.6:
        return rng.choice(WORDS)
    if kind < 0.75:
        return "".join(random_character(rng) for _ in range(rng.randint(1, 6)))
    if kind < 0.85:
        return "".join(random_character(rng, 0x300, 0x3000) for _ in range(rng.randint(1, 30)))
    if kind < 0.9:
        return chr(rng.randrange(0xD800, 0xE000)) + rng.choice(["", "a", "\udc00"])
    if kind < 0.97:
        return chr(rng.randrange(0x20)) + rng.choice("ab\x7f\x85")
    if kind < 0.9995:
        return rng.choice("aé日😀") * rng.randint(10, 60)
    return rng.choice("aé日😀") * rng.randint(1_000, 30_000)


def random_texts(rng: random.Random, splitting: str, number: int = TEXTS) -> list[str]:
    """Texts, each short enough where each character is a word: the rows of a batch are as many as the longest has."""
    most = 2_000 if splitting == "characters" else None
    return [random_text(rng)[:most] for _ in range(number)]


def random_text(rng: random.Random) -> str:
    """Words of all kinds between separators of all kinds; now and then nothing."""
    pieces = []
    for _ in range(rng.choice((0, 1, 2, 3, 5, 9, 25))):
        pieces += [random_word(rng), rng.choice(SEPARATORS) if rng.random() < 0.4 else " "]
    return "".join(pieces)


def split(text: str, splitting: str) -> Words:
    """The words of a text: what White_Space separates, each character that is none (and no lone surrogate), or what the
    package finds, in another engine than the tokenizer's."""
    mark = next(one for one in MARKS if one not in text)
    marked = regex.sub("[\ud800-\udfff]", mark, text)
    if splitting == "lm1b":
        for typographic, plain in LM1B_QUOTES:
            marked = marked.replace(typographic, plain)
        words = regex.findall(LM1B_PATTERN, marked)
    elif splitting == "characters":
        return regex.findall(f"[^{WHITESPACE}\ud800-\udfff]", text)
    else:
        words = [word for word in regex.split(f"[{WHITESPACE}]+", marked) if word]
    return [word.replace(mark, "") for word in words] if marked != text else words


def drop_surrogates(word: str) -> str:
    return "".join(character for character in word if not 0xD800 <= ord(character) <= 0xDFFF)


def rows_of(words: Sequence[str], length: int) -> list[list[int]]:
    """The character ids of a sentence."""
    own = [expected_ids(word, length) for word in words]
    return [boundary_ids(BEGIN_SENTENCE, length), *own, boundary_ids(END_SENTENCE, length)]


def decoded(words: Sequence[str], length: int) -> str:
    """What is left of words that were cut to `length` characters."""
    return " ".join(bytes(utf8(word)[: length - 2]).decode("utf-8", "replace") for word in words)


def case(rng: random.Random) -> Counter:
    """A batch of texts by one tokenizer and one way to call it."""
    splitting = rng.choice(WORD_SPLITTINGS)
    length = rng.choice((50, 50, 50, 3, 4, 17, 64))
    tokenizer = ElmoTokenizer(splitting, max_word_length=length)
    way = rng.choice((strings, strings, strings, word_lists, pairs, pretokenized))
    return way(rng, tokenizer, splitting, length)


def strings(rng: random.Random, tokenizer: ElmoTokenizer, splitting: str, length: int) -> Counter:
    """Texts, padded or cut, and decoded again."""
    texts = random_texts(rng, splitting)
    words = [split(text, splitting) for text in texts]
    require_all_same("words", texts, tokenizer.split_into_words(texts), words)
    most = rng.choice((None, None, 2, 3, 11))
    side = rng.choice(("left", "right"))
    options = {} if most is None else {"truncation": True, "max_length": most}
    encoded = tokenizer(texts, padding=True, padding_side=side, return_tensors="np", **options)
    kept = words if most is None else [sentence[: most - 2] for sentence in words]
    require_rows(texts, encoded, [rows_of(sentence, length) for sentence in kept], side)
    back = tokenizer.batch_decode(list(encoded["input_ids"]), skip_special_tokens=True)
    require_all_same("decoded", texts, back, [decoded(sentence, length) for sentence in kept])
    one = rng.randrange(TEXTS)  # alone as in its batch
    require_same(
        f"alone, {texts[one]!r:.200}", tokenizer(texts[one], **options)["input_ids"], rows_of(kept[one], length)
    )
    return Counter(texts=TEXTS, words=sum(map(len, words)))


def word_lists(rng: random.Random, tokenizer: ElmoTokenizer, splitting: str, length: int) -> Counter:
    """Lists of words, any string among them, the empty one too."""
    lists = [
        [rng.choice(("", " ", random_word(rng), random_text(rng))) for _ in range(rng.randint(1, 6))]
        for _ in range(TEXTS)
    ]
    encoded = tokenizer(lists, is_split_into_words=True, padding=True, return_tensors="np")
    require_rows(lists, encoded, [rows_of(words, length) for words in lists], "right")
    dropped = [[drop_surrogates(word) for word in words] for words in lists]
    require_all_same("words", lists, tokenizer.split_into_words(lists), dropped)
    tokens = [word for words in lists for word in words]
    spelled = Speller(tokenizer).characters(tokens).tolist()
    require_all_same("spelled", tokens, spelled, [expected_ids(word, length) for word in tokens])
    return Counter(texts=TEXTS, words=len(tokens))


def pairs(rng: random.Random, tokenizer: ElmoTokenizer, splitting: str, length: int) -> Counter:
    """Two texts a sample, each between boundaries of its own."""
    firsts, seconds = random_texts(rng, splitting, TEXTS // 2), random_texts(rng, splitting, TEXTS // 2)
    texts = list(zip(firsts, seconds, strict=True))
    encoded = tokenizer(firsts, seconds, padding=True, return_tensors="np")
    words = [[split(part, splitting) for part in pair] for pair in texts]
    require_rows(texts, encoded, [rows_of(one, length) + rows_of(two, length) for one, two in words], "right")
    return Counter(texts=TEXTS, words=sum(len(part) for pair in words for part in pair))


def pretokenized(rng: random.Random, tokenizer: ElmoTokenizer, splitting: str, length: int) -> Counter:
    """Text that whitespace separates, whatever the tokenizer does."""
    texts = [random_text(rng) for _ in range(TEXTS)]
    words = [[drop_surrogates(word) for word in text.split()] for text in texts]
    require_all_same("words", texts, tokenizer.split_into_words(texts, pretokenized=True), words)
    return Counter(texts=TEXTS, words=sum(map(len, words)))


def require_rows(texts: Sequence, encoded: dict[str, np.ndarray], rows: list[list[list[int]]], side: str) -> None:
    """Raises Fault where the ids or the mask of a padded batch are not those of `rows`."""
    most = max(map(len, rows))
    for text, ids, mask, expected in zip(texts, encoded["input_ids"], encoded["attention_mask"], rows, strict=True):
        padding, real = [0] * (most - len(expected)), [1] * len(expected)
        require_same(
            f"attention_mask of {text!r:.200}", mask.tolist(), real + padding if side == "right" else padding + real
        )
        found = ids[: len(expected)] if side == "right" else ids[len(padding) :]
        if not np.array_equal(found, expected):
            require_same(f"input_ids of {text!r:.200}", found.tolist(), expected)


def require_all_same(what: str, texts: Sequence, found: Sequence, expected: Sequence) -> None:
    """Raises Fault for the first text whose value is another."""
    for text, one, other in zip(texts, found, expected, strict=True):
        require_same(f"{what} of {text!r:.200}", one, other)


CHECK = Check("texts", without_preparation(case), cases=50)
