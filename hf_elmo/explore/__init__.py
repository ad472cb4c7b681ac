"""The views of the page for one model: each takes what was typed, and returns a picture or a table as HTML."""

import io
import math
import os
import warnings
from collections import Counter
from html import escape

import numpy as np

from ..analysis.scoring import Candidates, substitutes
from ..analysis.similarity import (
    LayerSimilarities,
    Neighbor,
    WordPlane,
    layer_similarities,
    nearest_neighbors,
    word_plane,
)
from ..configuration_elmo import ElmoConfig
from ..shipped import FOLDER, NAME, load_model, located

# Okabe and Ito's colors, which color-blind people tell apart, without yellow, which is too pale on white; and a marker
# with each, so that no difference is one of color alone.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P")
LABEL_OFFSETS = [(x, y) for gap in (5, 14, 24) for x, y in ((gap, -3), (gap, gap), (gap, -gap - 6), (-gap, gap))]
SETTINGS = {
    "text.parse_math": False,  # a dollar in a word is a dollar
    "svg.fonttype": "none",  # text stays text: any script, in the fonts of the reader
    "svg.hashsalt": "hf-elmo",  # the same picture is the same file
    "font.family": "sans-serif",
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
# With its own colors a table is legible on a light page and on a dark one.
STYLE = """<style>
.elmo {background: white; color: #222222; padding: 0.5rem 1rem; overflow-x: auto; border-radius: 6px}
.elmo table {border-collapse: collapse; width: 100%}
.elmo caption, .elmo h4 {text-align: left; font-weight: bold; color: #222222; padding: 0.8rem 0 0.2rem; margin: 0}
.elmo table td {padding: 0.2rem 0.4rem; border: 0; border-top: 1px solid #DDDDDD; color: #222222}
.elmo table td.word {font-weight: bold; white-space: nowrap; color: #0072B2}
.elmo table td.before {text-align: right}
.elmo .columns {display: flex; flex-wrap: wrap; gap: 1.5rem}
</style>"""


class Explorer:
    """
    The views for one model.

    Args:
        name: folder or Hub name of an ELMo; by default the one that ships.
        corpus: a file to search for neighbors in, as [`hf_elmo.embed`] reads it; by default what is typed.
        pretokenized: whether texts are tokenized already, so that whitespace separates their words.
    """

    def __init__(
        self,
        name: str | os.PathLike | None = None,
        corpus: str | os.PathLike | None = None,
        pretokenized: bool = False,
    ) -> None:
        config = ElmoConfig.from_pretrained(located(FOLDER if name is None else name))
        language_model = "ElmoForPreTraining" in (config.architectures or ())
        self.model, tokenizer = load_model(name, language_model=language_model, dtype="float32")
        self.reading = {"tokenizer": tokenizer, "pretokenized": pretokenized}
        self.has_softmax = language_model and tokenizer.vocabulary is not None
        self.corpus = corpus
        self.name = f"{NAME}, which ships with hf_elmo" if name is None else os.fspath(name)
        self.layers = config.num_hidden_layers

    def similarities(self, first: str, word: str, second: str, other: str) -> str:
        """How similar a word of one sentence and a word of another are, by layer: a picture."""
        words = word.strip(), other.strip()
        result = layer_similarities(self.model, (first, second), words, **self.reading)
        return card(draw_similarities(result))

    def neighbors(self, sentence: str, word: str, corpus: str = "", top: int = 5) -> str:
        """Where a corpus, the given file or sentences one a line, uses a word in the same sense: a table."""
        source = corpus.splitlines() if self.corpus is None else self.corpus
        neighbors = nearest_neighbors(self.model, sentence, word.strip(), source, top=int(top), **self.reading)
        return card("".join(_neighbors_of_layer(layer, places) for layer, places in neighbors.items()))

    def substitutes(self, sentence: str, word: str, top: int = 10) -> str:
        """What the language models expect in place of a word: three tables."""
        place, *_ = substitutes(self.model, sentence, word.strip(), top=int(top), **self.reading)
        tables = {
            "both directions": place.candidates,
            "forward (the words before)": place.forward,
            "backward (the words after)": place.backward,
        }
        return card(f'<div class="columns">{"".join(_candidates(*table) for table in tables.items())}</div>')

    def plane(self, sentences: str, layer: int | None = None) -> str:
        """The vectors of the words of sentences, one a line, in the plane: a picture."""
        return card(draw_plane(word_plane(self.model, sentences.splitlines(), layer=layer, **self.reading)))


def card(content: str) -> str:
    """HTML on a white card."""
    return f'{STYLE}<div class="elmo">{content}</div>'


def _neighbors_of_layer(layer: int, places: list[Neighbor]) -> str:
    """Of layer 0 the words in one line, of a layer above its occurrences, the word in the middle."""
    if layer == 0:
        words = ", ".join(f"<b>{escape(one.word)}</b> {one.similarity:.2f}" for one in places)
        return f"<h4>layer 0 (characters): the nearest other words, whatever their sentences</h4><p>{words}</p>"
    rows = []
    for one in places:
        before, after = map(escape, one.context())
        rows.append(
            f'<tr><td>{one.similarity:.2f}</td><td class="before" dir="auto">{before}</td>'
            f'<td class="word">{escape(one.word)}</td><td dir="auto">{after}</td><td>line {one.row + 1}</td></tr>'
        )
    body = "".join(rows) or "<tr><td>The corpus has no other sentence with this word.</td></tr>"
    caption = f"<caption>layer {layer} (LSTM): where the corpus uses the word in the same sense</caption>"
    return f"<table>{caption}{body}</table>"


def _candidates(name: str, candidates: Candidates) -> str:
    rows = (
        f'<tr><td class="word">{escape(word)}</td><td>{math.exp(value):.3f}</td></tr>' for word, value in candidates
    )
    return f"<div><table><caption>{name}</caption>{''.join(rows)}</table></div>"


def draw_similarities(similarities: LayerSimilarities) -> str:
    """A bar for each layer's similarity, and a line for the mean of other pairs of words, as SVG."""
    first, second = similarities.words
    values, others = similarities.layers, similarities.others
    places = np.arange(len(values))

    def draw(axes) -> None:
        bars = axes.bar(places, values, width=0.5, color=COLORS[0], label=f"“{first}” and “{second}”")
        axes.bar_label(bars, [f"{value:.2f}" for value in values], padding=3, fontweight="bold")
        if not np.isnan(others).any():
            label = "mean of all other pairs"
            axes.hlines(others, places - 0.38, places + 0.38, COLORS[1], "dashed", linewidth=2, label=label)
        axes.set_xticks(places, ["layer 0\n(characters)", *(f"layer {layer}\n(LSTM)" for layer in places[1:])])
        axes.set(ylabel="cosine similarity", ylim=(min(values.min(), np.nanmin(others, initial=0), 0) * 1.1, 1.1))

    layers = ", ".join(f"layer {layer} {value:.2f}" for layer, value in enumerate(values))
    return _as_svg(draw, (6.4, 3.8), f"cosine similarity of {first} and {second}: {layers}")


def draw_plane(plane: WordPlane) -> str:
    """A marker and a label for each word, colors and markers by sentence, as SVG; repeated words are bold."""
    words = [word for sentence in plane.sentences for word in sentence]
    counts = Counter(word.casefold() for word in words)

    def draw(axes) -> None:
        for index, (sentence, points) in enumerate(zip(plane.sentences, plane.points, strict=True)):
            style = {"color": COLORS[index % len(COLORS)], "marker": MARKERS[index % len(MARKERS)]}
            label = f"{index + 1}: {' '.join(sentence)}"
            axes.scatter(*points.T, s=36, label=label if len(label) <= 90 else f"{label[:86]} ...", **style)
        for axis, name, share in zip("xy", ("first", "second"), plane.explained, strict=True):
            axes.set(**{f"{axis}label": f"{name} principal component ({share:.0%} of the variance)"})
        axes.margins(0.15)
        axes.set_aspect("equal", adjustable="datalim")
        axes.figure.draw_without_rendering()  # places of points on the paper are known after it
        points = np.concatenate(plane.points)
        on_paper = axes.transData.transform(points) * 72 / axes.figure.dpi
        for word, point, offset in zip(words, points, _label_offsets(on_paper), strict=True):
            text = axes.annotate(word, point, offset, textcoords="offset points")
            text.set_fontweight("bold" if counts[word.casefold()] > 1 else "normal")

    size = (9.5, 6 + 0.22 * len(plane.sentences))
    return _as_svg(draw, size, f"{len(words)} words of {len(plane.sentences)} sentences in the plane")


def _label_offsets(points: np.ndarray) -> list[tuple[int, int]]:
    """The offset of each point's label: the first one that is 12 points away from other points and labels, or else the
    one that is farthest from them."""
    labels, offsets = np.empty((0, 2)), []
    for index, point in enumerate(points):
        near = np.concatenate((np.delete(points, index, axis=0), labels))
        distances = [min(np.abs(point + offset - near).max(axis=1).min(), 12) for offset in LABEL_OFFSETS]
        offsets.append(LABEL_OFFSETS[int(np.argmax(distances))])
        labels = np.concatenate((labels, [point + offsets[-1], point + offsets[-1] + (20, 0)]))
    return offsets


def _as_svg(draw, size: tuple[float, float], description: str) -> str:
    """What `draw` draws on the axes of a figure of `size` inches, for a page: as wide as there is room."""
    import matplotlib
    from matplotlib.figure import Figure

    file = io.StringIO()
    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+")  # matplotlib's font lacks it, the reader's may not
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        figure.legend(loc="outside upper left", frameon=False)
        figure.savefig(file, format="svg", metadata={"Date": None})
    _, start, rest = file.getvalue().partition("<svg ")
    style = "display:block;margin:0 auto;max-width:100%;height:auto"
    return f'{start}role="img" aria-label="{escape(description, quote=True)}" style="{style}" {rest}'
