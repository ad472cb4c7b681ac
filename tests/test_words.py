"""Text into words, in each of the ways; and words into characters, against a definition written here."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, normalizers, pre_tokenizers
from transformers import AutoTokenizer

from hf_elmo import ElmoTokenizer
from hf_elmo.tokenization_elmo import words_to_character_ids

# A sentence, and its words as the training corpus of the published English models has them.
LM1B = {
    "clitics": ("We'll say they've won, he can't", "We 'll say they 've won , he can 't"),
    "possessive": ("the dog's and the dogs' tails", "the dog 's and the dogs ' tails"),
    "numbers": ("3,000.50 of 1,234,567 in 1998, 1999", "3,000.50 of 1,234,567 in 1998 , 1999"),
    "money and ordinals": ("$5.5 or £20 or 30%, the 98th, 1980s", "$ 5.5 or £ 20 or 30 % , the 98th , 1980s"),
    "hyphens and dots": ("a well-known 20-year-old -- wait... what", "a well-known 20-year-old -- wait ... what"),
    "titles": ("Mr. Smith of the firmr. Smith met St. Paul.", "Mr. Smith of the firmr . Smith met St. Paul ."),
    "abbreviations and initials": ("the U.S. and e.g. J. K. Rowling", "the U.S. and e.g. J. K. Rowling"),
    "quotes": ('"Yes," he said “Don’t”', '" Yes , " he said " Don \'t "'),
    "colon in a time": ("at 10:30 a.m. today", "at 10 : 30 a.m. today"),
    "accents and marks": ("Ünïcödé e\N{COMBINING ACUTE ACCENT}te.", "Ünïcödé e\N{COMBINING ACUTE ACCENT}te ."),
    "Japanese, Arabic, emoji": ("日本語。終 مرحبا، عالم ok😀👍", "日本語 。 終 مرحبا ، عالم ok 😀 👍"),
    "whitespace of all kinds": ("a\tb\n c\N{NO-BREAK SPACE}d\N{IDEOGRAPHIC SPACE}e", "a b c d e"),
}
INVISIBLE = {
    "I \u2764\ufe0f you\u200b": ["I", "\u2764\ufe0f", "you"],
    "zero\u200bwidth \u200b \ufe0f.": ["zero", "width", "."],
    "\u0645\u06cc\u200c\u062e\u0648\u0627 \u200fok": ["\u0645\u06cc\u200c\u062e\u0648\u0627", "ok"],
    "\U0001f469\u200d\U0001f469 1\ufe0f\u20e3 -\u200da": ["\U0001f469\u200d\U0001f469", "1\ufe0f\u20e3", "-", "a"],
    "\ufeffa\0b\x1b[0m": ["a", "b", "[", "0m"],
}
# Any code point, what splitting looks at more often than by chance: whitespace, punctuation, marks.
OFTEN = st.sampled_from(" \t\n\x1c\x85\u00a0\u2028\u3000.,'-_“’<>S/aZé0\u0301\U000e01ef\0")
ANY_TEXT = st.text(OFTEN | st.characters(codec="utf-8"), max_size=30)
TOKENIZERS = [ElmoTokenizer(splitting) for splitting in ("lm1b", "whitespace", "characters")]
TOKENIZERS += [ElmoTokenizer(split_special_tokens=False)]
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, WORD_PADDING = 256, 257, 258, 259, 260


@pytest.mark.parametrize(("text", "words"), LM1B.values(), ids=LM1B)
def test_one_billion_word_style(text: str, words: str) -> None:
    tokenizer, quotes = ElmoTokenizer(), str.maketrans("“”‘’", "\"\"''")
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    assert encoded.tokens() == words.split() == tokenizer.tokenize(words)
    assert [text[start:end].translate(quotes) for start, end in encoded["offset_mapping"]] == words.split()
    assert "".join(words.split()) == "".join(text.split()).translate(quotes)


@pytest.mark.parametrize(("text", "words"), INVISIBLE.items(), ids=map(ascii, INVISIBLE))
def test_invisible_characters_are_no_words(text: str, words: list[str]) -> None:
    assert ElmoTokenizer().tokenize(text) == words
    assert ElmoTokenizer("characters").tokenize("a\u200bb\0") == ["a", "b"]


def test_other_splittings() -> None:
    text = "It's  3,000.50\t(“quoted”)\nMr. x-y 😀."
    assert ElmoTokenizer(word_splitting="whitespace").tokenize(text) == text.split()
    encoded = ElmoTokenizer(word_splitting="characters")("MK V\né", return_offsets_mapping=True)
    assert encoded.tokens()[1:-1] == ["M", "K", "V", "é"]
    assert encoded["offset_mapping"] == [(0, 0), (0, 1), (1, 2), (3, 4), (5, 6), (0, 0)]


@pytest.mark.parametrize("loader", [ElmoTokenizer, AutoTokenizer])
def test_ones_own_splitting_and_normalizer_survive_saving(tmp_path, loader: type) -> None:
    tokenizer = ElmoTokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.save_pretrained(tmp_path / "lower")
    for splitting, words in (("lm1b", ["big", "city", "!"]), ("whitespace", ["big", "city!"])):
        again = loader.from_pretrained(tmp_path / "lower", word_splitting=splitting)
        again.save_pretrained(tmp_path / splitting)
        for one in (again, loader.from_pretrained(tmp_path / splitting)):
            assert one.split_into_words(["Big CITY!"]) == [words]
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\|"), "removed")
    tokenizer.save_pretrained(tmp_path / "own")
    again = loader.from_pretrained(tmp_path / "own")
    assert again.tokenize("A b|C d.") == tokenizer.tokenize("A b|C d.") == ["a b", "c d."]
    assert again(["A b|C"], is_split_into_words=True).tokens() == ["<S>", "A b|C", "</S>"]


@settings(max_examples=10, deadline=None)
@given(st.lists(ANY_TEXT, max_size=5))
@example([])
@example(["a<S>b </S> <pad> <UNK>", "", "\u2028", "a\x1cb"])
def test_words_are_those_of_a_call_whatever_the_last_one_asked_for(texts: list[str]) -> None:
    for tokenizer in TOKENIZERS:
        tokenizer([*texts, "a b c d e f"], truncation=True, max_length=3, padding="max_length")
        tokenizer(["x <S> y"], split_special_tokens=not tokenizer.split_special_tokens)
        words, encoded = tokenizer.split_into_words(texts), tokenizer(texts)
        assert len(words) == len(texts)
        for number, of_text in enumerate(words):
            assert of_text == encoded.tokens(number)[1:-1]
            for word, row in zip(of_text, encoded["input_ids"][number][1:-1], strict=True):
                if row[1] not in (tokenizer.bos_token_id, tokenizer.eos_token_id):
                    assert row == words_to_character_ids([word])[0].tolist()
        assert tokenizer.split_into_words(texts, pretokenized=True) == [text.split() for text in texts]


def test_threads_split_while_others_truncate() -> None:
    tokenizer = ElmoTokenizer()
    texts = [" ".join(f"It{n}, isn't" for n in range(number % 7)) for number in range(64)]

    def cut(length: int) -> list:
        return tokenizer(texts, truncation=True, max_length=length, padding=True)["input_ids"]

    expected = [tokenizer.split_into_words(texts), cut(3), cut(4), cut(5)]
    with ThreadPoolExecutor(8) as threads:
        found = threads.map(lambda n: cut(2 + n % 4) if n % 4 else tokenizer.split_into_words(texts), range(64))
        assert list(found) == expected * 16


def expected_ids(word: str, length: int = 50) -> list[int]:
    """Begin of word, at most 48 bytes, end of word, padding to 50; all raised by one."""
    return boundary_ids(*word.encode("utf-8", "ignore")[: length - 2], length=length)


def boundary_ids(*characters: int, length: int = 50) -> list[int]:
    row = [BEGIN_WORD, *characters, END_WORD]
    return [character + 1 for character in row + [WORD_PADDING] * (length - len(row))]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.characters(codec=None), max_size=80), max_size=6), st.integers(3, 61))
@example(["", "\0", "a\0b", "\ufdd1"], 50)
@example(["\ud800", "a\udfffb", "\ud83d\ude00"], 50)
@example(["x" * 47, "x" * 48, "x" * 49, "x" * 10_000], 50)
@example(["é" * 24, "é" * 5000, "x" + "é" * 24, "日" * 17, "😀" * 13], 50)
@example(["<S>", "</S>", "<UNK>", "<pad>"], 50)
def test_any_string_is_numbered_as_defined(words: list[str], length: int) -> None:
    ids, expected = words_to_character_ids(words, length), [expected_ids(word, length) for word in words]
    assert (ids.dtype, ids.shape, ids.tolist()) == (np.int64, (len(words), length), expected)
    if words:
        rows = ElmoTokenizer(max_word_length=length)(words, is_split_into_words=True)["input_ids"]
        begin, end = (boundary_ids(character, length=length) for character in (BEGIN_SENTENCE, END_SENTENCE))
        assert rows == [begin, *expected, end]


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=12))
def test_a_word_comes_back_from_its_characters(word: str) -> None:
    read = ElmoTokenizer().convert_ids_to_tokens
    assert read(words_to_character_ids([word])) == [word]
    cut = words_to_character_ids(["x" + "é" * 30])  # inside a character
    assert read(cut) == ["x" + "é" * 23 + "\N{REPLACEMENT CHARACTER}"]


def test_a_word_that_looks_like_a_boundary_is_one_only_where_asked_for(tokenizer) -> None:
    words = ["<S>", "</S>", "<UNK>", "<pad>", "a<S>b", "<s>"]
    assert tokenizer(" ".join(words))["input_ids"][1:-1] == [expected_ids(word) for word in words]
    for text, how in ("x <S> </S>", {}), (["x", "<S>", "</S>"], {"is_split_into_words": True}):
        ids = tokenizer(text, split_special_tokens=False, **how)["input_ids"]
        assert ids[2:4] == [boundary_ids(BEGIN_SENTENCE), boundary_ids(END_SENTENCE)]
