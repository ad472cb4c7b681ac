"""Long words, which the tokenizer's backend is given without their middles: the result is that of the whole text."""

import copy
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, normalizers, pre_tokenizers
from transformers import BatchEncoding

from hf_elmo import ElmoTokenizer
from hf_elmo.character_vocab_elmo import CharacterVocabulary
from hf_elmo.words_elmo import LONG, LongWordBackend, is_long

from .harness.texts import long_words

SPLITTINGS = ("lm1b", "whitespace", "characters")
TOKENIZERS = {splitting: ElmoTokenizer(splitting, max_word_length=5) for splitting in SPLITTINGS}
RUN = st.integers(15, 40)
# What "lm1b" looks at, and runs that are shortened: of one character, with another one inside, or of any.
PARTS = st.one_of(
    st.text(st.sampled_from(" \n\x1c.,-_'’“aZ5é\u0301²\ud800\U000e01ef"), max_size=4),
    st.sampled_from(["Mr.", "U.S.", "J. S", "<S>", "'s", "3,0", "\u0378"]),
    st.builds(str.__mul__, st.sampled_from("a5é日.-_’\u0301²😀\ud800"), RUN),
    st.builds(lambda a, b, at, n: a * at + b + a * n, st.sampled_from("aé"), st.sampled_from("5\u0301'.-²"), RUN, RUN),
    st.text(st.characters(codec=None), min_size=20, max_size=40),
)
TEXTS = st.lists(PARTS, max_size=6).map("".join)


def everything(encoded: BatchEncoding, texts: list[tuple]) -> list[Any]:
    """All that a call gives, and all that can be asked afterwards; `texts` by sample and sequence."""
    found = [dict(encoded)]
    samples = encoded.get("overflow_to_sample_mapping", range(len(encoded.encodings)))
    for number, (sample, encoding) in enumerate(zip(samples, encoded.encodings, strict=True)):
        found += [encoded.tokens(number), encoded.word_ids(number), encoded.sequence_ids(number)]
        found += [encoding.offsets, [one.tokens for one in encoding.overflowing], len(encoding)]
        found += [encoding.token_to_chars(token) for token in range(len(encoding))]
        for sequence, text in enumerate(texts[sample]):
            ask = number, sequence
            length = len(text) if isinstance(text, str) else max(map(len, text), default=0)
            found += [encoding.char_to_token(place, sequence) for place in range(length)]
            found += [encoding.char_to_word(place, sequence) for place in range(length)]
            words = {
                word for word, own in zip(encoding.word_ids, encoding.sequence_ids, strict=True) if own == sequence
            }
            found += [(ask, word, encoding.word_to_chars(word, sequence)) for word in sorted(words)]
    return found


def require_same(tokenizer: ElmoTokenizer, *texts: list, words: bool = False, **options: Any) -> None:
    asked = [tuple(sample) for sample in zip(*texts, strict=True)]
    results = []
    for long, piece in ((LONG, 1 << 20), (1, 1)):
        with long_words(long, piece):
            encoded = tokenizer(
                *texts,
                is_split_into_words=words,
                return_offsets_mapping=True,
                return_special_tokens_mask=True,
                **options,
            )
            results.append([everything(encoded, asked), tokenizer.split_into_words(texts[0])])
    assert results[0] == results[1]


@pytest.mark.parametrize("splitting", SPLITTINGS)
@settings(max_examples=100, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=3))
@example(["a'" + "b" * 20 + "5" + "b" * 20, "5a'" + "b" * 40, "x’" + "b5" * 20])
@example(["-" * 40 + "." * 40 + "a" * 40, "Mr" + "." * 30, "U.S." + "." * 30 + "S.", "é" * 50 + "." * 50 + "é" * 50])
@example(["\ud800" * 30 + "a" * 30, "a" * 30 + "\ud800" + "b" * 30 + " c"])
def test_texts(splitting: str, texts: list[str]) -> None:
    tokenizer = TOKENIZERS[splitting]
    require_same(tokenizer, texts)
    require_same(tokenizer, texts, padding=True, padding_side="left")
    require_same(tokenizer, texts, truncation=True, max_length=4, return_overflowing_tokens=True, stride=1)


@pytest.mark.parametrize("splitting", SPLITTINGS)
@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3))
def test_pairs(splitting: str, pairs: list[tuple[str, str]]) -> None:
    require_same(TOKENIZERS[splitting], *map(list, zip(*pairs, strict=True)))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(TEXTS, max_size=4), min_size=1, max_size=3))
@example([["", "a" * 30, "\ud800", "b " * 30], []])
def test_lists_of_words(lists: list[list[str]]) -> None:
    require_same(TOKENIZERS["lm1b"], lists, words=True)
    require_same(TOKENIZERS["lm1b"], lists, lists[::-1], words=True)


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_boundaries_in_text_are_found(splitting: str) -> None:
    tokenizer = ElmoTokenizer(splitting, bos_token="BEGIN", split_special_tokens=False)
    require_same(tokenizer, ["a" * 90 + "BEGIN" + "b" * 90, "BEGIN" * 30])
    require_same(tokenizer, [["a" * 90 + "BEGIN" + "b" * 90], ["BEGIN" * 30]], words=True)
    require_same(ElmoTokenizer(splitting), ["a" * 90 + "<S>" + "b" * 90], split_special_tokens=False)


def test_ones_own_way_to_split_reads_whole_words() -> None:
    for pre_tokenizer, normalizer in (
        (pre_tokenizers.Split(Regex("a{70}"), "isolated"), None),
        (None, normalizers.Replace(Regex("a{70}"), "b c")),
        (pre_tokenizers.WhitespaceSplit(), normalizers.Lowercase()),
    ):
        tokenizer = ElmoTokenizer("whitespace")
        tokenizer.backend_tokenizer.pre_tokenizer, tokenizer.backend_tokenizer.normalizer = pre_tokenizer, normalizer
        require_same(tokenizer, ["a" * 200 + " x", "İ" * 200, "a b " * 200])


def test_word_vectors_and_character_vocabularies(tmp_path) -> None:
    CharacterVocabulary("abé", ["aa", "aab"]).save(tmp_path / "characters.json")
    tokenizer = ElmoTokenizer("lm1b", max_word_length=5, character_vocab_file=tmp_path / "characters.json")
    tokenizer.words = ["a" * 14, "a" * 30, "b" * 14]
    texts = ["a" * 14, "a" * 30, "b" * 30, "aa" + "b" * 30]
    require_same(tokenizer, texts)
    with long_words(1, 1):
        assert tokenizer(texts)["word_vector_ids"] == [[1, 3, 1], [1, 4, 1], [1, 2, 1], [1, 2, 1]]


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_words_that_are_long_indeed(splitting: str) -> None:
    """The limits as they are."""
    word, text = "ab" * LONG, "x “" + "ab" * LONG + "” y. " + "z" * (LONG - 1) + "é" * LONG + " 5"
    tokenizer = ElmoTokenizer(splitting)
    assert isinstance(tokenizer._backend_for([text]), LongWordBackend)
    whole = tokenizer.split_into_words([text, [word]])
    assert whole[1] == [word]
    if splitting == "lm1b":
        assert whole[0] == ["x", '"', word, '"', "y", ".", "z" * (LONG - 1) + "é" * LONG, "5"]
        encoded = tokenizer([text], return_offsets_mapping=True)
        spans = [text[start:end] for start, end in encoded["offset_mapping"][0][1:-1]]
        assert spans == ["x", "“", word, "”", *whole[0][4:]]
        assert encoded.char_to_token(0, len(word)) == 3
        assert copy.deepcopy(encoded).tokens() == encoded.tokens() == ["<S>", *whole[0], "</S>"]
    else:
        assert whole[0] == (text.split() if splitting == "whitespace" else [one for one in text if not one.isspace()])


def test_a_long_text_of_short_words_is_split_in_pieces() -> None:
    text = "Mr. J. Smith, o'clock.\n" * 60_000
    backend = TOKENIZERS["lm1b"]._backend_for([text])
    sizes, encode = [], backend.encode_batch
    vars(backend)["encode_batch"] = lambda batch, **options: (sizes.append(len(batch[0])), encode(batch, **options))[1]
    words = backend.words(text)
    assert words == ["Mr.", "J.", "Smith", ",", "o", "'clock", "."] * 60_000
    assert len(sizes) == 2
    assert max(sizes) < (1 << 20) + 100
    assert is_long(text)


PEAK = """
import resource, sys
from hf_elmo import ElmoTokenizer
tokenizer, size = ElmoTokenizer(sys.argv[1]), int(sys.argv[2])
tokenizer("a b")
word = "ab" * (size // 2)
texts = {"call": [word + " c"], "words": [[word, "c"]], "split": [word + " c"]}[sys.argv[3]]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if sys.argv[3] == "split":
    result = tokenizer.split_into_words(texts)
    assert result == [[word, "c"]]
else:
    result = tokenizer(texts, is_split_into_words=sys.argv[3] == "words")
    assert len(result["input_ids"][0]) == 4
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / size)
"""


@pytest.mark.parametrize("way", ["call", "words", "split"])
@pytest.mark.parametrize("splitting", ["lm1b", "whitespace"])
def test_memory_is_a_small_multiple_of_a_long_word(splitting: str, way: str) -> None:
    """Copies of the word, a byte a character each. The backend takes 40 to 130 bytes for what it reads."""
    pytest.importorskip("resource")
    command = [sys.executable, "-c", PEAK, splitting, "6000000", way]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 10
