"""Word scores and substitutes of the language models."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from hf_elmo import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer, load_default, perplexity
from hf_elmo.analysis.scoring import next_words, previous_words, score, substitutes
from hf_elmo.modeling_pretraining_elmo import neighbor_labels
from hf_elmo.pretraining.vocabulary import Vocabulary
from hf_elmo_cli import main
from tests.conftest import TINY
from tests.language_models import TEXTS, sentence_logits, small_language_model, small_tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> ElmoTokenizer:
    return small_tokenizer(tmp_path)


@pytest.fixture
def model(tokenizer: ElmoTokenizer) -> ElmoForPreTraining:
    return small_language_model(tokenizer)


# -- score -------------------------------------------------------------------------------------------------------------


def test_scores_are_the_log_probabilities_of_the_words(model, tokenizer):
    results = score(model, tokenizer, TEXTS, words_per_batch=15)
    assert [result.words[1:-1] for result in results] == [text.split() for text in TEXTS]
    for text, result in zip(TEXTS, results, strict=True):
        forward, backward, words = sentence_logits(model, tokenizer, text)
        places = np.arange(1, len(words))
        np.testing.assert_allclose(result.forward[1:], forward[places - 1, words[places]].numpy(), rtol=1e-4)
        np.testing.assert_allclose(result.backward[:-1], backward[places, words[places - 1]].numpy(), rtol=1e-4)
        assert np.isnan(result.forward[0])
        assert np.isnan(result.backward[-1])


def test_words_already_split_are_taken_as_they_are(model, tokenizer):
    assert score(model, tokenizer, [["New York", "!"]])[0].words == ["<S>", "New York", "!", "</S>"]


def test_scores_and_labels_are_one_definition(model, tokenizer):
    inputs = tokenizer(TEXTS[0], return_tensors="pt")
    words = torch.from_numpy(Vocabulary.of(tokenizer).sentence_ids(TEXTS[0].split()))[None]
    loss = model(**inputs, labels=neighbor_labels(words)).loss.item()
    result = score(model, tokenizer, [TEXTS[0]])[0]
    assert loss == pytest.approx(-(np.nansum(result.forward) + np.nansum(result.backward)) / 14, rel=1e-5)


def test_one_string_is_refused(model, tokenizer):
    with pytest.raises(ValueError, match="put it into a list"):
        score(model, tokenizer, "a cat")


# -- substitutes -------------------------------------------------------------------------------------------------------


def test_substitutes_multiply_both_distributions(model, tokenizer):
    (results,) = substitutes(model, tokenizer, [TEXTS[0]], top=4)
    assert [result.word for result in results] == TEXTS[0].split()
    forward, backward, _ = sentence_logits(model, tokenizer, TEXTS[0])
    words = tokenizer.vocabulary
    for place, result in enumerate(results, start=1):
        tables = [forward[place - 1, 3:].log_softmax(-1), backward[place + 1, 3:].log_softmax(-1)]
        both = (tables[0] + tables[1]).log_softmax(-1)
        for table, candidates in zip(
            (both, *tables), (result.candidates, result.forward, result.backward), strict=True
        ):
            values, numbers = table.topk(4)
            assert [word for word, _ in candidates] == [words[number + 3] for number in numbers]
            np.testing.assert_allclose([value for _, value in candidates], values.numpy(), rtol=1e-4)


def test_a_word_has_no_influence_on_its_own_substitutes(model, tokenizer):
    one, other = substitutes(model, tokenizer, ["the cat sat on", "the rain sat on"], words=["cat", "rain"], top=5)
    assert [word for word, _ in one[0].candidates] == [word for word, _ in other[0].candidates]
    assert (one[0].word, other[0].word) == ("cat", "rain")


def test_boundaries_and_unknown_are_no_substitutes(model, tokenizer):
    top = len(tokenizer.vocabulary) - 3
    ((result, *_),) = substitutes(model, tokenizer, ["a dog"], top=top)
    assert sorted(word for word, _ in result.candidates) == sorted(tokenizer.vocabulary[3:])


@pytest.mark.parametrize("top", [0, 10_000])
def test_more_substitutes_than_words_are_refused(model, tokenizer, top):
    with pytest.raises(ValueError, match=f"top is {top}"):
        substitutes(model, tokenizer, ["a dog"], top=top)


# -- next and previous words -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["the cat sat", "", "a"])
def test_next_and_previous_words_have_the_probabilities_of_score(model, tokenizer, text):
    words = text.split()
    every = len(tokenizer.vocabulary) - 3
    after, before = (ask(model, text, tokenizer=tokenizer, top=every) for ask in (next_words, previous_words))
    for found in (after, before):
        assert sorted(word for word, _ in found) == sorted(tokenizer.vocabulary[3:])
        values = [value for _, value in found]
        assert values == sorted(values, reverse=True)
        assert 0 < sum(map(math.exp, values)) < 1  # <S>, </S> and <UNK> have the rest
    for word, value in after[:4]:
        (scored,) = score(model, tokenizer, [[*words, word]])
        assert value == pytest.approx(scored.forward[len(words) + 1], rel=1e-4)
    for word, value in before[:4]:
        (scored,) = score(model, tokenizer, [[word, *words]])
        assert value == pytest.approx(scored.backward[1], rel=1e-4)


def test_next_words_of_a_folder_by_name_and_by_command(model, tokenizer, tmp_path, capsys):
    model.save_pretrained(tmp_path / "lm")
    tokenizer.save_pretrained(tmp_path / "lm")
    wanted = next_words(tmp_path / "lm", "the cat it's", top=3, pretokenized=True)
    assert next_words(ElmoForPreTraining.from_pretrained(tmp_path / "lm"), ["the", "cat", "it's"], top=3) == wanted
    # Before it was saved the model's weights lay elsewhere in memory, which without the C kernels is a rounding: of
    # sums of at most 100 products of numbers below 1, and of logits and log-probabilities below 8.
    unsaved = next_words(model, ["the", "cat", "it's"], tokenizer=tokenizer, top=3)
    assert [word for word, _ in unsaved] == [word for word, _ in wanted]
    assert [value for _, value in unsaved] == pytest.approx([value for _, value in wanted], rel=0, abs=1e-5)
    command = ["next", "the cat it's", "--model", str(tmp_path / "lm"), "--top", "3"]
    for option, ask in (([], next_words), (["--before"], previous_words)):
        assert main([*command, *option, "--pretokenized"]) == 0
        found = ask(tmp_path / "lm", "the cat it's", top=3, pretokenized=True)
        assert capsys.readouterr().out == "".join(f"{word}\t{math.exp(value):.3f}\n" for word, value in found)
    assert main(command) == 0  # the tokenizer splits it's
    assert capsys.readouterr().out.split("\n")[0].split("\t")[0] == next_words(tmp_path / "lm", "the cat it's")[0][0]


def test_the_model_that_ships_goes_on(capsys):
    assert main(["next", "She opened the", "--top", "5"]) == 0
    words = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert words[0] == "door"  # at 0.73
    assert {"window", "book"} <= set(words)
    assert len(words) == 5


def test_marks_of_wikitext_are_words_of_the_model_that_ships():
    model, tokenizer = load_default(language_model=True)
    assert "<unk>" in dict(next_words(model, "The prime", top=5))
    ((place,),) = substitutes(model, tokenizer, [["A", "long", "@-@", "term", "loan"]], words=["@-@"], top=5)
    assert "@-@" in dict(place.candidates)
    assert "<UNK>" not in dict(next_words(model, "The prime", top=len(tokenizer.vocabulary) - 3))


def test_models_without_a_softmax_are_refused(model, tokenizer, tmp_path):
    with pytest.raises(TypeError, match="model is a ElmoModel, but only an ElmoForPreTraining has the softmax"):
        next_words(model.elmo, "the cat", tokenizer=tokenizer)
    for refusing in (score, substitutes, lambda *of: perplexity(*of[:2], [tmp_path / "none.txt"])):
        with pytest.raises(TypeError, match=r"model is a ElmoModel.*language_model=True"):
            refusing(model.elmo, tokenizer, ["the cat"])
    with pytest.raises(ValueError, match="give its tokenizer"):
        next_words(model, "the cat")
    for name, bare in (("new", ElmoModel(ElmoConfig(**TINY))), ("of a language model", model.elmo)):
        bare.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        with pytest.raises(ValueError, match=f"{name} is an ELMo without its softmax over words.*hf-elmo pretrain"):
            next_words(tmp_path / name, "the cat")


def test_another_vocabulary_is_refused(model, tokenizer, tmp_path):
    with pytest.raises(ValueError, match="the tokenizer has no vocabulary"):
        next_words(model, "the cat", tokenizer=ElmoTokenizer())
    (tmp_path / "more.txt").write_text("\n".join([*tokenizer.vocabulary, "more"]) + "\n")
    more = ElmoTokenizer(vocab_file=str(tmp_path / "more.txt"))
    with pytest.raises(ValueError, match=r"vocabulary has \d+ words, but the model's softmax \d+"):
        previous_words(model, "the cat", tokenizer=more)
    with pytest.raises(ValueError, match="top is 0"):
        next_words(model, "the cat", tokenizer=tokenizer, top=0)
    (tmp_path / "text.txt").write_text("the cat\n")
    for ask in (
        lambda: score(model, more, ["the cat"]),
        lambda: substitutes(model, more, ["the cat"], top=1),
        lambda: perplexity(model, more, tmp_path / "text.txt"),
        lambda: perplexity(model, more, tmp_path / "text.txt", stateful=True, batch_size=1),
    ):
        with pytest.raises(ValueError, match=r"vocabulary has \d+ words, but the model's softmax \d+"):
            ask()


def test_words_are_no_letters(model, tokenizer):
    with pytest.raises(ValueError, match="words must be a list of words, but is a str, 'cat'"):
        substitutes(model, tokenizer, ["the cat"], top=1, words="cat")
