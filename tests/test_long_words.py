"""Words of megabytes: read up to a size, refused with a sentence beyond it, where the backend would take gigabytes."""

import signal
import subprocess
import sys

import pytest

from hf_elmo import ElmoTokenizer, words_elmo

SPLITTINGS = ("lm1b", "whitespace", "characters")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words_elmo, "LONGEST_WORD", 20)


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_a_word_beyond_the_limit_is_refused_wherever_it_stands(short: None, splitting: str) -> None:
    tokenizer, word = ElmoTokenizer(splitting), "x" * 21
    said = "a word has 21 characters, 'xxxxxxxxxxxxxxxxxxxxx'..., but must have no more than 20"
    for call in (
        lambda: tokenizer(f"a {word} b"),
        lambda: tokenizer(["a b", f"a {word}"]),
        lambda: tokenizer("a", f"{word} b"),
        lambda: tokenizer([("a", word)]),
        lambda: tokenizer(["a", word], is_split_into_words=True),
        lambda: tokenizer([["a"], ["b", word]], is_split_into_words=True),
        lambda: tokenizer.split_into_words([word]),
    ):
        with pytest.raises(ValueError, match=said):
            call()


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_long_texts_of_shorter_words_are_read(short: None, splitting: str) -> None:
    tokenizer = ElmoTokenizer(splitting)
    assert len(tokenizer.split_into_words([" ".join(["y" * 20] * 9)])[0]) == (180 if splitting == "characters" else 9)


def test_words_just_within_the_limit_are_read_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at from each of their characters, they would take a minute."""
    monkeypatch.setattr(words_elmo, "LONGEST_WORD", 200_000)

    def too_slow(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, too_slow)
    signal.setitimer(signal.ITIMER_VIRTUAL, 5)  # seconds of this process's own work
    try:
        words_elmo.require_words_of_some_length(("z" * 200_000 + " ") * 3)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def test_a_word_of_many_megabytes_takes_no_memory_of_the_backend() -> None:
    script = """
import resource
from hf_elmo import ElmoTokenizer

tokenizer = ElmoTokenizer()
word = "a" * 30_000_000
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    tokenizer(word)
except ValueError as error:
    assert "30,000,000 characters" in str(error), error
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    # The match of the pattern is a copy of the word; the backend alone would take 130 bytes a character.
    assert int(ran.stdout) < 4 * 30_000_000
