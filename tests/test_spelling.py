"""Character ids of tokens, distinct ones once: what the tokenizer itself gives."""

import numpy as np
import pytest

from hf_elmo import ElmoTokenizer
from hf_elmo.spelling import BEGIN, END, PADDING, Speller

TOKENS = [BEGIN, "the", "cat", "", "the", "<pad>", END, PADDING, BEGIN, "naïve", "cat", END]


def expected(tokenizer: ElmoTokenizer, tokens: list, **how) -> list[list[int]]:
    """Row by row from the tokenizer's own call."""
    begin, end = tokenizer("")["input_ids"]
    special = {BEGIN: begin, END: end, PADDING: [0] * tokenizer.max_word_length}
    return [
        special[token]
        if token in special
        else tokenizer([token], is_split_into_words=True, add_special_tokens=False, **how)["input_ids"][0]
        for token in tokens
    ]


@pytest.mark.parametrize("length", [50, 7])
def test_characters_are_those_of_the_tokenizer(length: int) -> None:
    tokenizer = ElmoTokenizer(max_word_length=length)
    ids = Speller(tokenizer).characters(TOKENS)
    assert ids.dtype == np.int64
    assert ids.tolist() == expected(tokenizer, TOKENS)


def test_each_distinct_token_is_spelled_once(tokenizer: ElmoTokenizer) -> None:
    ids, rows = Speller(tokenizer).distinct(TOKENS)
    assert len(ids) == len(set(TOKENS)) == 8
    assert ids[rows].tolist() == expected(tokenizer, TOKENS)


@pytest.mark.parametrize("boundary_words", [False, True])
def test_a_word_that_reads_like_a_boundary_is_one_where_asked_for(
    tokenizer: ElmoTokenizer, boundary_words: bool
) -> None:
    tokens = [BEGIN, "<S>", "</S>", "<pad>", "<UNK>", "<S>", END]
    found = Speller(tokenizer, boundary_words).characters(tokens).tolist()
    assert found == expected(tokenizer, tokens, split_special_tokens=not boundary_words)
    assert (found[1] == found[0]) == boundary_words
