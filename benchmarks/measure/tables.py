"""The tables of the page: columns, and the titles and notes in `tables.md`.

A row is a dict: its kind, labels and numbers by column, or the failure in place of the numbers.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

COLUMNS = {  # of rows of any kind: the heading, and the format of the values; other columns have their name, no format
    "bilm": ("biLM", ""),
    "kernels": ("kernels in C", ""),
    "sentences": ("sentences", ","),
    "different": ("distinct ones", ","),
    "arrangement": ("batches", ""),
    "batch": ("sentences in a batch", ""),
    "lines": ("lines", ","),
    "size": ("size", ","),
    "words": ("words", ","),
    "distinct": ("distinct words", ","),
    "run": ("pass", ""),
    "tokens": ("tokens", ","),
    "cpu_seconds": ("processor time, s", ".2f"),
    "seconds": ("seconds", ",.2f"),
    "steps_per_second": ("steps/s", ".3g"),
    "words_per_second": ("words/s", ",.0f"),
    "milliseconds": ("ms", ",.1f"),
    "peak_mb": ("peak memory, MiB", ",.0f"),
    "tokenizing": ("tokenizing", ".1%"),
    "characters": ("character CNN", ".1%"),
    "lstm": ("LSTM", ".1%"),
    "rest": ("rest", ".1%"),
    "machine_gflops": ("torch.mm, GFLOP/s", ",.0f"),
    "lstm_gflops": ("LSTM, GFLOP/s", ",.0f"),
    "share": ("share", ".0%"),
    "value": ("value", ".6g"),
    "torch": ("torch, words/s", ",.0f"),
    "plain": ("torch without kernels, words/s", ",.0f"),
    "onnxruntime": ("onnxruntime, words/s", ",.0f"),
    "difference": ("largest difference", ".1e"),
    "character_share": ("character CNN", ".1%"),
    "import_seconds": ("import, s", ".2f"),
    "load_seconds": ("load, s", ".2f"),
    "first_seconds": ("first call, s", ".3f"),
    "later_seconds": ("later calls, s", ".3f"),
}
WIDE = {  # kinds with a column for each engine: the number in it, and the labels of a line
    "embedding": ("words_per_second", "shape", "sentences", "threads"),
    "latency": ("milliseconds", "shape", "threads", "words"),
    "finetuning": ("steps_per_second", "shape", "bilm"),
    "head": ("steps_per_second", "shape", "head", "bilm"),
    "pretraining": ("words_per_second", "shape"),
    "scaling": ("words_per_second", "lines", "words", "distinct"),
}


def read_tables() -> dict[str, tuple[str, str]]:
    """The title and the note of each kind of row."""
    sections = Path(__file__).with_name("tables.md").read_text(encoding="utf-8").removeprefix("## ").split("\n## ")
    parts = (section.partition("\n") for section in sections)
    return {head.partition(": ")[0]: (head.partition(": ")[2], " ".join(note.split())) for head, _, note in parts}


def cells(row: dict[str, Any]) -> dict[str, str]:
    """The texts of the columns that a row has, by their headings."""
    columns = {name: COLUMNS.get(name, (name, "")) for name in row if name != "kind"}
    return {heading: format(row[name], style) for name, (heading, style) in columns.items()}


def widen(rows: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """One line for all rows (of a kind in `WIDE`) with the same labels: each engine's largest number or failure."""
    number, *labels = WIDE[rows[0]["kind"]]
    engines = dict.fromkeys((row["engine"].removeprefix("hf_elmo ") for row in rows), "–")
    lines = {tuple(row[label] for label in labels): {} for row in rows}
    for row in sorted(rows, key=lambda row: row.get(number, 0)):
        line = lines[tuple(row[label] for label in labels)]
        line.update({**cells({label: row[label] for label in labels}), **engines, **line})
        line[row["engine"].removeprefix("hf_elmo ")] = row.get("failure") or format(row[number], COLUMNS[number][1])
    return list(lines.values())


def rows_table(rows: Sequence[dict[str, Any]]) -> str:
    """A table of rows of one kind; a value that a row lacks is a dash, and failures are in the last column."""
    texts = widen(rows) if rows[0].get("kind") in WIDE else [cells(row) for row in rows]
    header = sorted(dict.fromkeys(name for row in texts for name in row), key=lambda name: name == "failure")
    return markdown_table(header, [[row.get(name, "–") for name in header] for row in texts])


def markdown_table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table of texts, in which bars are escaped."""
    rows = [header, ["---"] * len(header), *lines]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)
