"""Text into words: as the 1 Billion Word Benchmark writes them, at whitespace, or as somebody wants them."""

import pytest
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from transformers import AutoTokenizer

from hf_elmo import ElmoTokenizer

# A sentence, and its words as the training corpus of the published English models has them.
LM1B = {
    "case kept": ("The BBC reported IT .", "The BBC reported IT ."),
    "punctuation apart": ("Well, (he said) stop!", "Well , ( he said ) stop !"),
    "negation": ("I don't and can't.", "I don 't and can 't ."),
    "possessive": ("the dog's and the dogs' tails", "the dog 's and the dogs ' tails"),
    "clitics": ("We'll say they've won, he'd too", "We 'll say they 've won , he 'd too"),
    "number": ("3,000.50 of 1,234,567", "3,000.50 of 1,234,567"),
    "list of numbers": ("in 1998, 1999", "in 1998 , 1999"),
    "money": ("$5.5 or £20 or 30%", "$ 5.5 or £ 20 or 30 %"),
    "ordinal": ("the 98th, 1980s", "the 98th , 1980s"),
    "hyphen": ("a well-known 20-year-old", "a well-known 20-year-old"),
    "dash": ("so -- he left", "so -- he left"),
    "title": ("Mr. Smith and Dr. Jones met St. Paul.", "Mr. Smith and Dr. Jones met St. Paul ."),
    "no title": ("the firmr. Smith", "the firmr . Smith"),
    "abbreviation": ("the U.S. and e.g. the U.N.", "the U.S. and e.g. the U.N."),
    "initial": ("J. K. Rowling", "J. K. Rowling"),
    "end of a sentence": ("It was I.", "It was I ."),
    "ellipsis": ("wait... what", "wait ... what"),
    "plain quotes": ('"Yes," he said', '" Yes , " he said'),
    "typographic quotes": ("“Don’t”", '" Don \'t "'),
    "colon in a time": ("at 10:30 a.m. today", "at 10 : 30 a.m. today"),
    "accents": ("Ünïcödé naïve", "Ünïcödé naïve"),
    "combining mark": ("e\N{COMBINING ACUTE ACCENT}te\N{COMBINING ACUTE ACCENT}.", None),
    "emoji": ("ok😀👍 yes", "ok 😀 👍 yes"),
    "Japanese": ("日本語。終", "日本語 。 終"),
    "Arabic": ("مرحبا، عالم", "مرحبا ، عالم"),
    "blanks of all kinds": ("a\tb\n c\N{NO-BREAK SPACE}d\N{IDEOGRAPHIC SPACE}e", "a b c d e"),
}


@pytest.mark.parametrize(("text", "words"), LM1B.values(), ids=LM1B)
def test_one_billion_word_style(text: str, words: str | None) -> None:
    expected = [*text[:-1].split(), "."] if words is None else words.split()
    assert ElmoTokenizer().tokenize(text) == expected


def test_one_billion_word_style_is_the_default() -> None:
    assert ElmoTokenizer().word_splitting == "lm1b"


@pytest.mark.parametrize("text", [text for text, _ in LM1B.values()], ids=LM1B)
def test_text_in_that_style_stays_as_it_is(text: str) -> None:
    tokenizer = ElmoTokenizer()
    once = tokenizer.tokenize(text)
    assert tokenizer.tokenize(" ".join(once)) == once


@pytest.mark.parametrize("text", [text for text, _ in LM1B.values()], ids=LM1B)
def test_no_character_is_lost_and_offsets_are_those_of_the_text(text: str) -> None:
    encoded = ElmoTokenizer()(text, return_offsets_mapping=True, add_special_tokens=False)
    quotes = str.maketrans("“”‘’", "\"\"''")
    cut = [text[start:end].translate(quotes) for start, end in encoded["offset_mapping"]]
    assert cut == encoded.tokens()
    assert "".join(cut) == "".join(text.split()).translate(quotes)


def test_whitespace_splitting_keeps_everything_else() -> None:
    text = "It's  3,000.50\t(“quoted”)\nMr. x-y 😀."
    assert ElmoTokenizer(word_splitting="whitespace").tokenize(text) == text.split()


@pytest.mark.parametrize("splitting", ["lm1b", "whitespace"])
def test_words_already_split_are_taken_as_they_are(splitting: str) -> None:
    words = ["New York", "isn't", "“quoted”", " padded ", "a.b.c!", "\t"]
    encoded = ElmoTokenizer(word_splitting=splitting)(words, is_split_into_words=True)
    assert encoded.tokens() == ["<S>", *words, "</S>"]


@pytest.mark.parametrize("splitting", ["lm1b", "whitespace"])
@pytest.mark.parametrize("loader", [ElmoTokenizer, AutoTokenizer])
def test_the_choice_is_saved(tmp_path, splitting: str, loader: type) -> None:
    tokenizer = ElmoTokenizer(word_splitting=splitting)
    tokenizer.save_pretrained(tmp_path)
    again = loader.from_pretrained(tmp_path)
    text = "It isn't (yet) “done”."
    assert again.word_splitting == splitting
    assert again.tokenize(text) == tokenizer.tokenize(text)


def test_the_choice_may_be_changed_on_loading(tmp_path) -> None:
    ElmoTokenizer(word_splitting="whitespace").save_pretrained(tmp_path)
    again = ElmoTokenizer.from_pretrained(tmp_path, word_splitting="lm1b")
    assert again.tokenize("It isn't.") == ["It", "isn", "'t", "."]
    again.save_pretrained(tmp_path / "changed")
    assert AutoTokenizer.from_pretrained(tmp_path / "changed").tokenize("It isn't.") == ["It", "isn", "'t", "."]


@pytest.mark.parametrize("loader", [ElmoTokenizer, AutoTokenizer])
def test_ones_own_splitting_survives_saving(tmp_path, loader: type) -> None:
    tokenizer = ElmoTokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\|"), "removed")
    assert tokenizer.tokenize("A b|C d.") == ["a b", "c d."]
    tokenizer.save_pretrained(tmp_path)
    again = loader.from_pretrained(tmp_path)
    assert again.tokenize("A b|C d.") == ["a b", "c d."]
    assert again(["A b|C"], is_split_into_words=True).tokens() == ["<S>", "A b|C", "</S>"]


def test_the_rust_tokenizer_of_the_file_splits_the_same_way(tmp_path) -> None:
    tokenizer = ElmoTokenizer()
    tokenizer(["a b c", "d"], padding=True, truncation=True, max_length=3)  # leaves no trace in the file
    tokenizer.save_pretrained(tmp_path)
    backend = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    encoding = backend.encode("Mr. Smith isn't “here”.")
    assert encoding.tokens == tokenizer("Mr. Smith isn't “here”.").tokens()
    assert backend.padding is None
    assert backend.truncation is None


def test_an_unknown_splitting_is_refused() -> None:
    with pytest.raises(ValueError, match=r"word_splitting is 'moses', but must be one of lm1b, whitespace"):
        ElmoTokenizer(word_splitting="moses")


def test_a_maximum_word_length_without_room_for_a_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="max_word_length is 2"):
        ElmoTokenizer(max_word_length=2)
