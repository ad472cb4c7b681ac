"""What the page shows: each view takes what was typed, and gives a picture or a table as HTML."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps

from ..analysis.geometry import layer_similarities, word_plane
from ..analysis.neighbors import nearest_neighbors
from ..analysis.scoring import substitutes
from ..configuration_elmo import ElmoConfig
from ..shipped import FOLDER, NAME, load_model, named
from .pictures import draw_plane, draw_similarities
from .tables import in_card, message, table_of_neighbors, table_of_substitutes

EXAMPLES = (
    ("They pulled the boat up on the bank of the river .", "bank", "She had left her money in the bank .", "bank"),
    ("The children went out to play in the garden .", "play", "We saw a new play at the theatre .", "play"),
    ("He struck a match and lit the lamp .", "match", "It was a good match for a girl without money .", "match"),
)
PLANE_EXAMPLE = """They pulled the boat up on the bank of the river .
The children sat on the bank and watched the stream .
She had left all her money in the bank in London .
The bank lent him the money to buy the house ."""
CORPUS = """The children sat upon the bank and watched the stream .
They climbed up the steep bank and looked down at the water .
The river had risen over its bank in the night .
He fell asleep on a bank of moss under the trees .
She had left all her money in the bank in London .
The bank lent him a thousand pounds to buy the house .
He is a clerk in the bank , and earns very little .
When the bank failed , they lost everything that they had .
The children were at play in the garden .
The boys wanted to play at soldiers .
We went to the play , and the actors were very good .
He wrote a play in three acts , which was never acted .
She began to play upon the piano .
He lit the candle with a match .
She struck a match , but the wind blew it out .
Her mother thought it a splendid match for her daughter .
He was no match for so strong an enemy .
"""


def _told(view: Callable[..., str]) -> Callable[..., str]:
    """A view whose errors are part of the page."""

    @wraps(view)
    def tell(*arguments: object) -> str:
        try:
            return view(*arguments)
        except (ValueError, TypeError, OSError, ImportError) as error:
            return message(str(error))

    return tell


class Explorer:
    """
    The views of the page for one model.

    Args:
        name: folder or Hub name of an ELMo; by default the one that ships.
        corpus: a file to search for neighbors in, as [`hf_elmo.embed`] reads it; by default what is typed.
        pretokenized: texts are tokenized already: whitespace separates their words.

    Raises:
        FileNotFoundError: there is no file `corpus`.
        OSError, ValueError: there is no such checkpoint.
    """

    def __init__(
        self,
        name: str | os.PathLike | None = None,
        corpus: str | os.PathLike | None = None,
        pretokenized: bool = False,
    ) -> None:
        if corpus is not None and not os.path.isfile(corpus):
            raise FileNotFoundError(f"corpus {os.fspath(corpus)!r} does not exist: give a file with a sentence a line.")
        with named(FOLDER if name is None else name) as place:
            config = ElmoConfig.from_pretrained(place)
        language_model = "ElmoForPreTraining" in (config.architectures or ())
        self.model, self.tokenizer = load_model(name, language_model=language_model, dtype="float32")
        self.has_softmax = language_model and self.tokenizer.vocabulary is not None
        self.corpus = corpus
        self.name = f"{NAME}, which ships with hf_elmo" if name is None else os.fspath(name)
        self.layers = self.model.config.num_hidden_layers
        self.pretokenized = pretokenized

    @_told
    def similarities(self, first: str, word: str, second: str, other: str) -> str:
        """How similar a word of one sentence and a word of another are, by layer: a picture."""
        found = layer_similarities(
            self.model, self.tokenizer, (first, second), (word.strip(), other.strip()), pretokenized=self.pretokenized
        )
        return in_card(draw_similarities(found))

    @_told
    def neighbors(self, sentence: str, word: str, corpus: str = "", top: int = 5) -> str:
        """Where a corpus, the page's own file or sentences a line, uses a word in the same sense: a table."""
        found = nearest_neighbors(
            self.model,
            self.tokenizer,
            sentence,
            word.strip(),
            corpus.splitlines() if self.corpus is None else self.corpus,
            top=int(top),
            pretokenized=self.pretokenized,
        )
        return table_of_neighbors(found)

    @_told
    def substitutes(self, sentence: str, word: str, top: int = 10) -> str:
        """What the language models expect in place of a word: a table."""
        (places,) = substitutes(
            self.model,
            self.tokenizer,
            [sentence],
            top=min(int(top), len(self.tokenizer.vocabulary) - 3),  # without <S>, </S> and <UNK>
            words=[word.strip()],
            pretokenized=self.pretokenized,
        )
        if not places:
            raise ValueError(f"{word.strip()!r} is not a word of the sentence as it is split: {sentence!r}.")
        return table_of_substitutes(places[0])

    @_told
    def plane(self, sentences: str, layer: int | None = None) -> str:
        """The vectors of the words of sentences, one a line, in the plane: a picture."""
        found = word_plane(
            self.model, self.tokenizer, sentences.splitlines(), layer=layer, pretokenized=self.pretokenized
        )
        return in_card(draw_plane(found))
