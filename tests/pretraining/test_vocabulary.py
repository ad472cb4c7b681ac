"""The vocabulary file of the language models."""

import itertools

import numpy as np
import pytest
from transformers.utils import logging

from hf_elmo import ElmoTokenizer
from hf_elmo.pretraining.vocabulary import Vocabulary, build_vocabulary

SENTENCES = [["b", "a", "b"], ["c", "b", "a", "<S>", "</S>"], ["ü", "d", "<UNK>"]]


def test_words_are_sorted_by_falling_count_and_ties_by_the_alphabet():
    assert build_vocabulary(SENTENCES).words == ["<S>", "</S>", "<UNK>", "b", "a", "c", "d", "ü"]


def test_empty_words_are_not_counted():
    assert build_vocabulary([["", "a"], ["", ""]]).words == ["<S>", "</S>", "<UNK>", "a"]


def test_size_counts_the_special_words():
    assert build_vocabulary(SENTENCES, size=5).words == ["<S>", "</S>", "<UNK>", "b", "a"]


def test_min_count_leaves_rare_words_out():
    assert build_vocabulary(SENTENCES, min_count=2).words == ["<S>", "</S>", "<UNK>", "b", "a"]


def test_counting_with_bounded_memory_keeps_the_frequent_words():
    rare = ([f"rare{number}", "often", f"other{number}", "often", "sometimes"] for number in range(500))
    words = build_vocabulary(rare, size=5, max_words_in_memory=20).words
    assert words == ["<S>", "</S>", "<UNK>", "often", "sometimes"]


def test_sentences_are_read_once():
    def generate():
        yield from SENTENCES

    assert "ü" in build_vocabulary(generate())


@pytest.mark.parametrize(("arguments", "message"), [({"size": 3}, "size is 3"), ({"min_count": 9}, "9 times or more")])
def test_a_vocabulary_without_words_is_refused(arguments: dict, message: str):
    with pytest.raises(ValueError, match=message):
        build_vocabulary(SENTENCES, **arguments)


def test_a_file_is_one_word_a_line(tmp_path):
    vocabulary = build_vocabulary(SENTENCES)
    vocabulary.save(tmp_path / "vocab.txt")
    assert (tmp_path / "vocab.txt").read_bytes() == "<S>\n</S>\n<UNK>\nb\na\nc\nd\nü\n".encode()
    assert Vocabulary.load(tmp_path / "vocab.txt").words == vocabulary.words


def test_words_with_a_line_break_are_left_out(tmp_path):
    vocabulary = build_vocabulary([["a", "\n", "b\rc", "b"]])
    assert vocabulary.words == ["<S>", "</S>", "<UNK>", "a", "b"]
    assert vocabulary.ids(["\n"]).tolist() == [vocabulary.unk_id]
    vocabulary.save(tmp_path / "vocab.txt")
    assert Vocabulary.load(tmp_path / "vocab.txt").words == vocabulary.words


def test_a_file_with_a_word_twice_or_of_another_encoding_is_refused(tmp_path):
    file = tmp_path / "vocab.txt"
    file.write_text("<S>\n</S>\n<UNK>\nthe\na\nthe\n")
    with pytest.raises(ValueError, match=r"vocab\.txt has 'the' twice"):
        Vocabulary.load(file)
    file.write_text("<S>\n</S>\n<UNK>\nthe\n", encoding="utf-16")
    with pytest.raises(ValueError, match=r"vocab\.txt, line 1: not utf-8 .*; convert the file to utf-8$"):
        Vocabulary.load(file)


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    build_vocabulary(SENTENCES).save(tmp_path / "vocab.txt")
    before = (tmp_path / "vocab.txt").read_bytes()

    def full(self, *args, **kwargs):
        self.touch()
        raise OSError("no space left")

    monkeypatch.setattr(type(tmp_path), "write_text", full)
    with pytest.raises(OSError, match="no space left"):
        Vocabulary(["<S>", "</S>", "<UNK>", "new"]).save(tmp_path / "vocab.txt")
    assert (tmp_path / "vocab.txt").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["vocab.txt"]


def test_a_full_disk_is_named_with_the_file(tmp_path):
    """/dev/full refuses each write as a full disk does."""
    (tmp_path / ".vocab.txt.draft").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"vocab\.txt could not be written \(.*No space left on device\): make room"):
        build_vocabulary(SENTENCES).save(tmp_path / "vocab.txt")
    assert list(tmp_path.iterdir()) == []


def test_special_words_may_stand_anywhere_in_a_file():
    vocabulary = Vocabulary(["the", "<UNK>", "</S>", "<S>"])
    assert (vocabulary.bos_id, vocabulary.eos_id, vocabulary.unk_id) == (3, 2, 1)


def test_words_outside_are_unknown_and_so_are_words_that_read_like_boundaries():
    vocabulary = build_vocabulary(SENTENCES)
    ids = vocabulary.ids(["a", "zebra", "<S>", "</S>", "<UNK>"])
    assert ids.dtype == np.int64
    assert ids.tolist() == [4, 2, 2, 2, 2]
    assert vocabulary.sentence_ids(["a"]).tolist() == [0, 4, 1]
    assert "a" in vocabulary
    assert "<S>" not in vocabulary


@pytest.mark.parametrize("missing", ["<S>", "</S>", "<UNK>"])
def test_a_missing_special_word_is_named(missing: str):
    with pytest.raises(ValueError, match=f"but {missing} is missing"):
        Vocabulary([word for word in ("<S>", "</S>", "<UNK>", "a") if word != missing])


def test_an_empty_line_is_refused():
    with pytest.raises(ValueError, match="word 3 of the vocabulary is empty"):
        Vocabulary(["<S>", "</S>", "<UNK>", "", "a"])


def test_the_tokenizer_keeps_it(tmp_path):
    build_vocabulary(SENTENCES).save(tmp_path / "words.txt")
    tokenizer = ElmoTokenizer(vocab_file=str(tmp_path / "words.txt"))
    tokenizer.save_pretrained(tmp_path / "checkpoint")
    assert Vocabulary.load(tmp_path / "checkpoint" / "vocab.txt").words[3:5] == ["b", "a"]
    assert len(Vocabulary.of(ElmoTokenizer.from_pretrained(tmp_path / "checkpoint"))) == 8


def test_a_tokenizer_without_one_is_an_error_with_a_remedy():
    with pytest.raises(ValueError, match="vocab_file="):
        Vocabulary.of(ElmoTokenizer())


def test_rows_in_an_older_vocabulary():
    old, new = Vocabulary(["<S>", "</S>", "<UNK>", "x", "a"]), Vocabulary(["<S>", "</S>", "<UNK>", "a", "b"])
    assert new.rows_in(old).tolist() == [0, 1, 2, 4, -1]
    moved = Vocabulary(["a", "</S>", "<S>", "<UNK>"])
    assert new.rows_in(moved).tolist() == [2, 1, 3, 0, -1]
    assert list(itertools.chain(moved.rows_in(old))) == [4, 1, 0, 2]


@pytest.mark.parametrize("shown", [True, False])
def test_progress_is_shown_as_transformers_setting_says(shown: bool, monkeypatch, capsys):
    monkeypatch.setattr(logging, "_tqdm_active", shown)
    build_vocabulary(SENTENCES)
    assert ("Counting words" in capsys.readouterr().err) == shown
