"""The views of a model on the page: each takes the text that was typed, and returns a picture or a table as HTML."""

import io
import math
import os
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Template

from ..analysis.plots import new_axes, plot_similarities, plot_word_plane
from ..analysis.scoring import substitutes
from ..analysis.similarity import LayerSimilarities, WordPlane, layer_similarities, nearest_neighbors, word_plane
from ..checkpoints.loading import NAME, ensure_loaded, load_config
from ..modeling_elmo import ElmoModel
from ..modeling_pretraining_elmo import ElmoForPreTraining
from ..utils.extras import extra_needed

INK = "#222224"  # color of text and axes; on the page it is replaced by the color of the page's text
STYLE = f"<style>{Path(__file__).with_name('views.css').read_text(encoding='utf-8')}</style>"
TABLES = Template(Path(__file__).with_name("views.html").read_text(encoding="utf-8"), autoescape=True).module


class Explorer:
    """The views for one model.

    Args:
        name: folder or Hub name of an ELMo; by default the model that ships with hf_elmo.
        corpus: a file to search for neighbors, read as by [`hf_elmo.embed`]; by default the text that is typed.
        pretokenized, options: as for [`hf_elmo.embed`]; `options` are `input_format`, `text_column` and `encoding`.
    """

    def __init__(
        self,
        name: str | os.PathLike | None = None,
        corpus: str | os.PathLike | None = None,
        pretokenized: bool = False,
        **options: Any,
    ) -> None:
        config = load_config(name)
        language_model = "ElmoForPreTraining" in (config.architectures or ())
        self.model, tokenizer = ensure_loaded(name, None, ElmoForPreTraining if language_model else ElmoModel)
        self.reading = {"tokenizer": tokenizer, "pretokenized": pretokenized}
        self.split = partial(tokenizer.split_into_words, pretokenized=pretokenized)
        self.has_softmax = language_model and tokenizer.vocabulary is not None
        self.corpus = corpus
        self.options = options
        self.name = f"{NAME}, which ships with hf_elmo" if name is None else os.fspath(name)
        self.layers = config.num_hidden_layers

    def similarities(self, first: str, word: str | int, second: str, other: str | int) -> str:
        """A picture of the similarity, by layer, of a word of one sentence and a word of another sentence."""
        result = layer_similarities(self.model, (first, second), (word, other), **self.reading)
        return card(picture(plot_similarities, result))

    def neighbors(self, sentence: str, word: str | int, corpus: str = "", top: int = 5) -> str:
        """A table of the nearest uses of a word in the corpus (the file, or `corpus`, one sentence per line)."""
        source = corpus.splitlines() if self.corpus is None else self.corpus
        how = {"top": int(top), **self.reading, **self.options}
        return card(TABLES.neighbors(nearest_neighbors(self.model, sentence, word, source, **how)))

    def substitutes(self, sentence: str, word: str | int, top: int = 10) -> str:
        """Three tables of the words that the language models expect in place of a word."""
        place, *_ = substitutes(self.model, sentence, word, top=int(top), **self.reading)
        columns = {"both directions": place.candidates, "forward (the words before)": place.forward}
        columns["backward (the words after)"] = place.backward
        return card(TABLES.substitutes(columns, math.exp))

    def plane(self, sentences: str, word: str = "", layer: int | None = None) -> str:
        """A picture of the word vectors of sentences (one per line) in the plane; for a word, also its similarities."""
        lines = [line for line in sentences.splitlines() if line.strip()]
        plane = picture(plot_word_plane, word_plane(self.model, lines, word or None, layer=layer, **self.reading))
        if word:
            result = layer_similarities(self.model, lines, word, **self.reading)
            plane += picture(plot_similarities, result, layer=layer)
        return card(plane)


def card(content: str) -> str:
    """`content`, which is HTML, with the style of the page."""
    return f'{STYLE}<div class="elmo">{content}</div>'


def picture(plot: Callable[..., Any], result: LayerSimilarities | WordPlane, **options: Any) -> str:
    """What `plot` draws, as two SVGs: a large one, and a small one whose text can be read on a narrow screen."""
    with extra_needed("plot"):
        from matplotlib import style

    pictures = []
    with style.context(Path(__file__).with_name("views.mplstyle")), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+")  # the reader's font may have the glyph
        for name, size in (("wide", (8.5, 6)), ("narrow", (3.4, 4.6))):
            file = io.StringIO()
            axes = plot(result, new_axes(*size), **options)
            axes.figure.savefig(file, format="svg", metadata={"Date": None}, transparent=True, bbox_inches="tight")
            _, start, rest = file.getvalue().replace(INK, "currentColor").partition("<svg ")
            pictures.append(f'<div class="{name}">{start}role="img" {rest}</div>')
    return "".join(pictures)
