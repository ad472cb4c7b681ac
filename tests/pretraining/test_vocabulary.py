"""The vocabulary file of the language models."""

import numpy as np
import pytest
import torch

from hf_elmo import ElmoForPreTraining
from hf_elmo.pretraining.vocabulary import Vocabulary, build_vocabulary, change_vocabulary
from tests.factories import small_model

SENTENCES = [["b", "a", "b"], ["c", "b", "a", "<S>", "</S>"], ["ü", "d", "<UNK>"]]
KEPT = {
    "all": (SENTENCES, {}, ["b", "a", "c", "d", "ü"]),  # by falling count, ties by the alphabet
    "empty words": ([["", "a"], ["", ""]], {}, ["a"]),
    "size": (SENTENCES, {"size": 5}, ["b", "a"]),
    "min_count": (SENTENCES, {"min_count": 2}, ["b", "a"]),
}


@pytest.mark.parametrize(("sentences", "how", "words"), KEPT.values(), ids=KEPT)
def test_the_frequent_words_are_kept(sentences: list, how: dict, words: list):
    assert build_vocabulary(sentences, **how).words == ["<S>", "</S>", "<UNK>", *words]


def test_a_file_is_one_word_a_line_and_words_outside_or_like_boundaries_are_unknown(tmp_path):
    vocabulary = build_vocabulary([*SENTENCES, ["\n", "b\rc", " a"]])  # words that are left out
    vocabulary.save(tmp_path / "vocab.txt")
    assert (tmp_path / "vocab.txt").read_bytes() == "<S>\n</S>\n<UNK>\nb\na\nc\nd\nü\n".encode()
    assert Vocabulary.load(tmp_path / "vocab.txt").words == vocabulary.words
    ids = vocabulary.ids(["a", "zebra", "<S>", "</S>", "<UNK>"])
    assert ids.dtype == np.int64
    assert ids.tolist() == [4, 2, 2, 2, 2]


def test_a_new_vocabulary_keeps_the_rows_of_shared_words() -> None:
    model = small_model(ElmoForPreTraining, vocab_size=37)
    before, words = model.lm_head, [f"w{row}" for row in range(37)]
    old = Vocabulary(["<S>", "</S>", "<UNK>", *words[3:]])
    change_vocabulary(model, old, Vocabulary(["<S>", "</S>", "<UNK>", "w30", "new", "w4", "newer"]))
    assert model.config.vocab_size == 7
    assert torch.equal(model.lm_head.weight[[0, 1, 3, 5]], before.weight[[0, 1, 30, 4]])
    assert torch.equal(model.lm_head.bias[[0, 1, 3, 5]], before.bias[[0, 1, 30, 4]])
    assert torch.equal(model.lm_head.weight[4], before.weight[2])
    shared = model.lm_head.bias[[2, 4, 6]].exp().sum()
    torch.testing.assert_close(shared, before.bias[2].exp())
    assert model.lm_head.weight.requires_grad
