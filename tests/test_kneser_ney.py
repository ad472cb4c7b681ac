"""The baseline of the language models, against nltk's and against what any distribution must be."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from hf_elmo.pretraining.vocabulary import Vocabulary, build_vocabulary

_PATH = Path(__file__).parent.parent / "benchmarks" / "kneser_ney.py"


@pytest.fixture(scope="module")
def kneser_ney():
    spec = importlib.util.spec_from_file_location("kneser_ney", _PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def text() -> list[list[str]]:
    """Sentences of a random walk: words follow some words more often than others."""
    random = np.random.default_rng(7)
    words = [f"w{number}" for number in range(13)]
    sentences = []
    for _ in range(150):
        place, sentence = int(random.integers(13)), []
        for _ in range(int(random.integers(1, 9))):
            sentence.append(words[place])
            place = int(place * 5 + random.geometric(0.4)) % 13
        sentences.append(sentence)
    return sentences


@pytest.fixture(scope="module")
def vocabulary(text: list[list[str]]) -> Vocabulary:
    return build_vocabulary(text, size=12)  # four words are unknown


def _ids(text: list[list[str]], vocabulary: Vocabulary) -> list[np.ndarray]:
    return [vocabulary.ids(words) for words in text]


def test_probabilities_equal_nltks(kneser_ney, text, vocabulary):
    nltk_models = pytest.importorskip("nltk.lm")
    from nltk.util import ngrams

    def padded(words: list[str]) -> list[str]:
        return ["<S>", "<S>", *(word if word in vocabulary else "<UNK>" for word in words), "</S>"]

    theirs = nltk_models.KneserNeyInterpolated(3, discount=0.6)
    # <S> is a context, never a prediction: nltk counts what it is given.
    grams = ([gram for n in (1, 2, 3) for gram in ngrams(padded(words), n) if gram[-1] != "<S>"] for words in text)
    theirs.fit(grams, vocabulary_text=vocabulary.words)
    ours = kneser_ney.KneserNeyTrigram(_ids(text, vocabulary), vocabulary, discounts=(0.6, 0.6, 0.6))

    unseen = [["w3", "w3", "w3"], ["w0", "w12", "w7", "w1"]]
    sentences = [*text[:40], *unseen]
    expected = [
        theirs.unmasked_score(words[place], tuple(words[place - 2 : place]))
        for words in map(padded, sentences)
        for place in range(2, len(words))
    ]
    np.testing.assert_allclose(np.exp(-ours.nll(_ids(sentences, vocabulary))), expected, rtol=1e-12)


@pytest.mark.parametrize("discounts", [None, (0.5, 0.5, 0.5), (0.2, 0.9, 1.7)], ids=["estimated", "plain", "modified"])
def test_probabilities_sum_to_one_after_every_context(kneser_ney, text, vocabulary, discounts):
    model = kneser_ney.KneserNeyTrigram(_ids(text, vocabulary), vocabulary, discounts)
    size = len(vocabulary)
    first, second, third = (axis.reshape(-1, size) for axis in np.indices((size, size, size)))
    probabilities = model.probabilities(first, second, third)
    assert (probabilities >= 0).all()
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-12)
    assert (probabilities[:, vocabulary.bos_id] == 0).all()


def test_discounts_are_chen_and_goodmans(kneser_ney):
    counts = np.repeat([1, 2, 3, 4, 9], [50, 20, 10, 5, 3])
    share = 50 / 90
    expected = (1 - 2 * share * 20 / 50, 2 - 3 * share * 10 / 20, 3 - 4 * share * 5 / 10)
    assert kneser_ney.estimate_discounts(counts) == pytest.approx(expected)


def test_each_sentence_is_counted_by_itself(kneser_ney, text, vocabulary):
    model = kneser_ney.KneserNeyTrigram(_ids(text, vocabulary), vocabulary)
    one, two = _ids([["w1", "w2", "w3"], ["w4", "w11"]], vocabulary)
    both = model.nll([one, two])
    assert len(both) == len(one) + len(two) + 2  # each </S>
    np.testing.assert_array_equal(both, np.concatenate((model.nll([one]), model.nll([two]))))


def test_command_prints_the_perplexity_of_each_file(kneser_ney, text, vocabulary, tmp_path, capsys):
    vocabulary.save(tmp_path / "vocab.txt")
    for name, part in (("train.txt", text[:120]), ("test.txt", text[120:])):
        (tmp_path / name).write_text("".join(f"{' '.join(words)}\n" for words in part), encoding="utf-8")
    kneser_ney.main([str(tmp_path / "train.txt"), str(tmp_path / "test.txt"), "--vocab", str(tmp_path / "vocab.txt")])
    model = kneser_ney.KneserNeyTrigram(_ids(text[:120], vocabulary), vocabulary)
    expected = np.exp(model.nll(_ids(text[120:], vocabulary)).mean())
    assert f"perplexity {expected:7.1f}" in capsys.readouterr().out
