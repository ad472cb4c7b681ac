"""Word scores and substitutes of the language models."""

import json
import math
import os

import numpy as np
import pytest

from hf_elmo import ElmoForPreTraining, ElmoTokenizer, perplexity
from hf_elmo.analysis.scoring import next_words, score, substitutes
from hf_elmo_cli import main
from tests.factories import TEXTS, save_checkpoint, sentence_logits, small_language_model, small_tokenizer, write_lines


@pytest.fixture
def tokenizer(tmp_path) -> ElmoTokenizer:
    return small_tokenizer(tmp_path)


@pytest.fixture
def model(tokenizer: ElmoTokenizer) -> ElmoForPreTraining:
    return small_language_model(tokenizer)


def test_scores_are_the_log_probabilities_of_the_words(model, tokenizer):
    results = score(model, TEXTS, tokenizer=tokenizer, words_per_batch=15)
    assert [result.words[1:-1] for result in results] == [text.split() for text in TEXTS]
    for text, result in zip(TEXTS, results, strict=True):
        forward, backward, words = sentence_logits(model, tokenizer, text)
        places = np.arange(1, len(words))
        np.testing.assert_allclose(result.forward, [np.nan, *forward[places - 1, words[places]]], rtol=1e-4)
        np.testing.assert_allclose(result.backward, [*backward[places, words[places - 1]], np.nan], rtol=1e-4)


def test_substitutes_multiply_both_distributions(model, tokenizer):
    words = tokenizer.vocabulary
    top = len(words) - 3  # all but <S>, </S> and <UNK>
    results = substitutes(model, TEXTS[0], tokenizer=tokenizer, top=top)
    assert [result.word for result in results] == TEXTS[0].split()
    index = TEXTS[0].split().index("cat")
    for word in ("cat", index):
        (one,) = substitutes(model, TEXTS[0], word, tokenizer=tokenizer, top=1)
        assert (one.word, one.candidates[0][0]) == ("cat", results[index].candidates[0][0])
    forward, backward, _ = sentence_logits(model, tokenizer, TEXTS[0])
    for place, result in enumerate(results, start=1):
        tables = [forward[place - 1, 3:].log_softmax(-1), backward[place + 1, 3:].log_softmax(-1)]
        both = (tables[0] + tables[1]).log_softmax(-1)
        found = result.candidates, result.forward, result.backward
        for table, candidates in zip((both, *tables), found, strict=True):
            values, numbers = table.topk(top)
            assert [word for word, _ in candidates] == [words[number + 3] for number in numbers]
            np.testing.assert_allclose([value for _, value in candidates], values.numpy(), rtol=1e-4)


@pytest.mark.parametrize("text", ["the cat sat", "", "a"])
def test_next_and_previous_words_have_the_probabilities_of_score(model, tokenizer, text):
    words, every = text.split(), len(tokenizer.vocabulary) - 3
    for backward in (False, True):
        found = next_words(model, text, before=backward, tokenizer=tokenizer, top=every)
        assert sorted(word for word, _ in found) == sorted(tokenizer.vocabulary[3:])
        assert found == sorted(found, key=lambda pair: -pair[1])
        for word, value in found[:4]:
            (scored,) = score(model, [[word, *words] if backward else [*words, word]], tokenizer=tokenizer)
            assert value == pytest.approx(scored.backward[1] if backward else scored.forward[-2], rel=1e-4)


def test_next_words_of_a_folder_by_name_and_by_command(model, tokenizer, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(os, "environ", {**os.environ})  # -q sets variables
    folder, text = save_checkpoint(tmp_path / "lm", model, tokenizer), "the cat it's"
    for option, before in (([], False), (["--before"], True)):
        assert main(["next", text, "--model", str(folder), "--top=3", "--pretokenized", *option]) == 0
        found = next_words(folder, text, pretokenized=True, top=3, before=before)
        assert next_words(ElmoForPreTraining.from_pretrained(folder), text.split(), top=3, before=before) == found
        assert capsys.readouterr().out == "".join(f"{word}\t{math.exp(value):.3f}\n" for word, value in found)
        assert main(["next", text, "--model", str(folder), "--top=3", "--pretokenized", *option, "--json", "-q"]) == 0
        printed, errors = capsys.readouterr()
        assert (json.loads(printed), errors) == ([[word, value] for word, value in found], "")


def test_a_word_that_is_not_in_the_sentence(model, tokenizer):
    with pytest.raises(ValueError, match=r"'cat\.' does not occur in the sentence, whose words are a cat .{190,200}$"):
        substitutes(model, ["a", "cat", *["it", "was"] * 500], "cat.", tokenizer=tokenizer)


def test_models_of_another_vocabulary_are_refused(model, tokenizer, tmp_path):
    more = ElmoTokenizer(vocab_file=str(write_lines(tmp_path / "more.txt", [*tokenizer.vocabulary, "more"])))
    for ask in (score, substitutes, perplexity, next_words):
        for other in (more, ElmoTokenizer()):
            with pytest.raises(ValueError, match="vocab_file"):
                ask(model, ["the", "cat"], tokenizer=other)
