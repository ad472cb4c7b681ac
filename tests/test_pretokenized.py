"""Text that is tokenized already: `pretokenized=True` and `--pretokenized` mean the same everywhere."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hf_elmo
from hf_elmo import ElmoTokenizer
from hf_elmo.pretraining.vocabulary import Vocabulary
from hf_elmo_cli import main
from tests.factories import save_checkpoint, write_lines
from tests.language_models import small_language_model, small_tokenizer

TEXT = "It isn't  so."
AT_WHITESPACE, BY_TOKENIZER = ["It", "isn't", "so."], ["It", "isn", "'t", "so", "."]


@pytest.fixture
def tokenizer(tmp_path: Path) -> ElmoTokenizer:
    """It splits as the 1 Billion Word Benchmark does."""
    return small_tokenizer(tmp_path)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "corpus.txt", [TEXT] * 9)


# Of each function the number of words that it finds in TEXT; `how` is the tokenizer and `pretokenized`.
COUNTS = {
    "embed": lambda model, corpus, **how: len(hf_elmo.embed(model.elmo, corpus, **how)[0]),
    "embed texts": lambda model, corpus, **how: len(hf_elmo.embed(model.elmo, [TEXT], **how)[0]),
    "nearest_neighbors": lambda model, corpus, **how: len(
        hf_elmo.nearest_neighbors(model, f"Oh. {TEXT}", "It", corpus, top=1, **how)[1][0].sentence
    ),
    # One prediction is that of the boundary.
    "perplexity": lambda model, corpus, **how: hf_elmo.perplexity(model, corpus, **how).words // 9 - 1,
    "score": lambda model, corpus, **how: len(hf_elmo.score(model, [TEXT], **how)[0].words) - 2,
    "substitutes": lambda model, corpus, **how: len(hf_elmo.substitutes(model, TEXT, top=2, **how)),
    "word_plane": lambda model, corpus, **how: len(hf_elmo.word_plane(model, [TEXT], **how).sentences[0]),
}


@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS)
def test_python(count: Callable[..., int], tokenizer: ElmoTokenizer, corpus: Path) -> None:
    model = small_language_model(tokenizer)
    assert count(model, corpus, tokenizer=tokenizer, pretokenized=True) == len(AT_WHITESPACE)
    assert count(model, corpus, tokenizer=tokenizer) == len(BY_TOKENIZER)


@pytest.mark.parametrize("flags", [["--pretokenized"], []])
def test_command(tokenizer: ElmoTokenizer, corpus: Path, flags: list[str], tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "model", small_language_model(tokenizer), tokenizer)
    vectors, words = str(tmp_path / "out.npz"), tmp_path / "words.txt"
    assert main(["embed", str(corpus), vectors, "--model", str(folder), *flags]) == 0
    assert main(["vocab", str(words), str(corpus), *flags]) == 0
    with np.load(vectors) as arrays:
        assert len(arrays["0"]) == len(AT_WHITESPACE if flags else BY_TOKENIZER)
    assert ("isn't" in Vocabulary.load(words).words) == bool(flags)
