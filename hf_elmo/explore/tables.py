"""Tables of neighbors and of substitutes, as HTML."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from ..analysis.neighbors import Neighbor
from ..analysis.scoring import Substitutes

# Colors of its own, so that it is legible on a light page and on a dark one.
STYLE = """<style>
.elmo {background: white; color: #222222; padding: 0.5rem 1rem; overflow-x: auto; border-radius: 6px}
.elmo table {border-collapse: collapse; width: 100%}
.elmo caption, .elmo h4 {text-align: left; font-weight: bold; font-size: 1rem; color: #222222}
.elmo caption, .elmo h4 {padding: 0.8rem 0 0.2rem; margin: 0}
.elmo p {color: #222222}
.elmo table td {padding: 0.2rem 0.4rem; border: 0; border-top: 1px solid #DDDDDD; color: #222222; text-align: left}
.elmo table td.number {font-variant-numeric: tabular-nums; white-space: nowrap; width: 1%; color: #555555}
.elmo table td.before {text-align: right; width: 45%}
.elmo table td.word {font-weight: bold; white-space: nowrap; width: 1%; color: #0072B2}
.elmo td.bar div {background: #56B4E9; height: 0.6rem; min-width: 1px}
.elmo .columns {display: flex; flex-wrap: wrap; gap: 1.5rem}
.elmo .columns > table {flex: 1; min-width: 13rem; width: auto}
</style>"""


def in_card(content: str) -> str:
    """HTML on a white card."""
    return f'{STYLE}<div class="elmo">{content}</div>'


def message(text: str) -> str:
    """A sentence in place of a table or a picture."""
    return in_card(f"<p>{escape(text)}</p>")


def table_of_neighbors(found: Mapping[int, Sequence[Neighbor]]) -> str:
    """
    Layer 0's words in one line, and for each layer above its occurrences, the word in the middle.

    Args:
        found: of each layer, as [`hf_elmo.nearest_neighbors`] finds them.
    """
    parts = []
    for layer, places in found.items():
        if layer == 0:
            words = ", ".join(f"<b>{escape(one.word)}</b> {one.similarity:.2f}" for one in places)
            parts.append(
                f"<h4>layer 0 (characters): the nearest other words, whatever their sentences</h4><p>{words}</p>"
            )
            continue
        rows = "".join(map(_occurrence, places)) or "<tr><td>The corpus has no other sentence with this word.</td></tr>"
        caption = f"<caption>layer {layer} (LSTM): where the corpus uses the word in the same sense</caption>"
        parts.append(f"<table>{caption}{rows}</table>")
    return in_card("".join(parts))


def _occurrence(place: Neighbor) -> str:
    before, after = map(escape, place.context())
    return (
        f'<tr><td class="number">{place.similarity:.2f}</td><td class="before" dir="auto">{before}</td>'
        f'<td class="word">{escape(place.word)}</td><td dir="auto">{after}</td>'
        f'<td class="number">line {place.row + 1}</td></tr>'
    )


def table_of_substitutes(place: Substitutes) -> str:
    """Three tables beside each other: by both language models together, by the forward and by the backward one."""
    columns = {
        "both directions": place.candidates,
        "forward (the words before)": place.forward,
        "backward (the words after)": place.backward,
    }
    tables = []
    for name, candidates in columns.items():
        largest = math.exp(candidates[0][1])
        rows = "".join(_candidate(word, math.exp(value), largest) for word, value in candidates)
        tables.append(f"<table><caption>{name}</caption>{rows}</table>")
    return in_card(f'<div class="columns">{"".join(tables)}</div>')


def _candidate(word: str, probability: float, largest: float) -> str:
    width = 100 * probability / largest
    return (
        f'<tr><td class="word">{escape(word)}</td><td class="number">{probability:.3f}</td>'
        f'<td class="bar"><div style="width:{width:.0f}%"></div></td></tr>'
    )
