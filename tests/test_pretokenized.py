"""Text that is tokenized already: `pretokenized=True` means the same everywhere."""

from collections.abc import Callable
from pathlib import Path

import pytest

import hf_elmo
from tests.factories import write_lines
from tests.language_models import small_language_model, small_tokenizer

TEXT = "It isn't  so."  # three words at whitespace, five by the tokenizer

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
def test_words_of_each_function(count: Callable[..., int], tmp_path: Path) -> None:
    tokenizer, corpus = small_tokenizer(tmp_path), write_lines(tmp_path / "corpus.txt", [TEXT] * 9)
    model = small_language_model(tokenizer)
    assert count(model, corpus, tokenizer=tokenizer, pretokenized=True) == 3
    assert count(model, corpus, tokenizer=tokenizer) == 5
