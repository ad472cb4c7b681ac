"""The text of elmo-compact-en: books in the public domain, text of today that may be published, and the vocabulary.

    python -m examples.pretrain_compact.prepare FOLDER corpus

writes train.txt, last.txt (for the last training run: other readings, and more text in the style of an encyclopedia),
heldout.txt (four books), heldout_modern.txt, dev.txt (words separated by one blank: read them with
word_splitting="whitespace"), wikitext.txt (WikiText-2's test part without its notation) and vocab.txt, and prints their
sizes. Needs nltk (its code only, no downloaded data). The same text gives the same files anywhere.
"""

import argparse
import hashlib
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path

import numpy as np

from examples.word_senses import read_senseval
from hf_elmo.pretraining.vocabulary import build_vocabulary

from . import books, cleaning

# In text of today.
MORE_ABBREVIATIONS = "u.s u.n u.k d.c a.m p.m inc corp ltd sr ph.d fig vs sept oct nov dec jan feb aug"
HELD_OUT_MODERN, DEV_MODERN = 0.01, 0.002  # shares of the documents of today
READINGS = {True: 2, False: 1}  # how often a pass reads text of today (True) and books (False)
# Share of the titles (True) and of the other paragraphs of today that are in the notation of tokenized corpora.
NOTATION, LAST_NOTATION = {True: 0.5, False: 0.25}, {True: 0.6, False: 0.4}
KNOWN_WORDS = 20_000  # other words are `<unk>` in this notation
SINGLES = 100  # single sentences that make a document
LONGEST = 400  # words of a paragraph that is not cut into pieces
FEWEST_WORDS = 4  # of a single sentence that lost its final point

Document = tuple[str, list[str]]  # name, paragraphs


def texts(folder: Path) -> Iterator[Document]:
    """Documents of one paragraph per line, with blank lines between the documents; their names are their numbers."""
    for path in sorted(folder.glob("*.txt.gz")):
        lines = (line.strip() for line in books.read_text(path).split("\n"))
        for number, (_, document) in enumerate(item for item in groupby(lines, bool) if item[0]):
            yield str(number), list(document)


def single_sentences(folder: Path) -> Iterator[Document]:
    """Sentences that have nothing to do with each other, `SINGLES` a document."""
    lines = [line for _, document in texts(folder) for line in document]
    yield from ((str(start // SINGLES), lines[start : start + SINGLES]) for start in range(0, len(lines), SINGLES))


READERS = {"texts": texts, "single_sentences": single_sentences, "public_domain": books.documents}


@dataclass(frozen=True)
class Source:
    """A folder of text; sources.toml describes the fields."""

    path: str
    what: str
    license: str
    reason: str
    credit: str
    read: str = "texts"
    modern: bool = True
    every: int = 1
    last: float = 1


_TABLES = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))
SOURCES = [Source(**row) for row in _TABLES["sources"]]


@dataclass
class Paragraph:
    """Sentences, or a title; the words of each are separated by one blank."""

    sentences: list[str]
    title: bool


Paragraphs = list[tuple[Paragraph, Source]]


class Cleaner:
    """Cleans documents, and leaves out paragraphs that it has seen in an earlier one."""

    def __init__(self) -> None:
        self._duplicates = cleaning.Duplicates()
        self._splitter = books.Splitter(f"{books.ABBREVIATIONS} {MORE_ABBREVIATIONS}")

    def clean(self, source: Source, document: Sequence[str], tested: frozenset = frozenset()) -> list[Paragraph]:
        """The paragraphs of a document that are kept, tokenized. None has one of the `cleaning.shared_parts` in
        `tested`."""
        whole = (" ".join(books.normalize(cleaning.repaired(text)).split()) for text in document)
        texts = [piece for text in whole for piece in self._pieces(text) if piece]
        if cleaning.is_another_language_altogether(texts):
            return []
        single = source.read == "single_sentences"
        headers = set() if single else cleaning.running_headers(texts)
        kept = []
        for text in texts:
            rule, title = cleaning.reason(text), False
            if rule == "fragment" and single and len(text.split()) >= FEWEST_WORDS:
                rule = None
            elif rule == "fragment" and source.modern and not single and cleaning.is_title(text):
                rule, title = None, True
            if rule or text in headers or self._duplicates.has(text, 1 if title or single else 6):
                continue
            sentences = [text] if title else self._splitter.split(text)
            if not tested.isdisjoint(cleaning.shared_parts(sentences)):
                continue
            if not title:
                sentences = [one for one in sentences if not cleaning.reason(one, cleaning.SENTENCE_RULES)]
            if sentences := books.tokenized(sentences):
                kept.append(Paragraph(sentences, title))
        return kept

    def _pieces(self, text: str) -> Iterator[str]:
        """A paragraph, or, if it has more than `LONGEST` words (a book without blank lines), its sentences in pieces of
        about `LONGEST` words."""
        piece: list[str] = []
        for sentence in self._splitter.split(text) if len(text.split()) > LONGEST else [text]:
            piece.append(sentence)
            if sum(len(one.split()) for one in piece) >= LONGEST:
                yield " ".join(piece)
                piece = []
        if piece:
            yield " ".join(piece)


def draw(*keys: object) -> float:
    """A number of [0, 1) that depends on the keys alone."""
    digest = hashlib.blake2b("\0".join(map(str, keys)).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big") / 2**56


def part_of(source: Source, name: str) -> str:
    """Where a document goes: "train", "dev", "heldout" (whole books), or "heldout_modern"."""
    if not source.modern:
        return books.PARTS.get(name, "train")
    place = draw(source.path, name)
    if place < HELD_OUT_MODERN:
        return "heldout_modern"
    return "dev" if place < HELD_OUT_MODERN + DEV_MODERN else "train"


_INSIDE = re.compile(r"(?<=\w)(-)(?=\w)|(?<=\d)([,.])(?=\d)")


def in_notation(line: str, known: set[str], title: bool) -> str:
    """Tokens in the notation of tokenized corpora: `1 @,@ 500`, `long @-@ term`, `<unk>` for words not in `known`, one,
    two or three signs of equality on each side of a title."""
    marks = ["="] * (1 + int(3 * draw("level", line))) if title else []
    words = _INSIDE.sub(r" @\g<0>@ ", line).split()
    words = [word if word in known or not word[0].isalpha() else "<unk>" for word in words]
    return " ".join([*marks, *words, *marks])


def lines_of(paragraph: Paragraph, reading: int = 0) -> list[str]:
    """The lines of a paragraph: the whole paragraph as one line, or its sentences. Half of the paragraphs are whole in
    even readings, the other half in odd readings."""
    whole = (draw("whole", *paragraph.sentences) < 0.5) != bool(reading % 2)
    return [" ".join(paragraph.sentences)] if whole else paragraph.sentences


def pass_lines(paragraphs: Paragraphs, known: set[str], last: bool = False) -> Iterator[str]:
    """The lines of a pass, or (`last`) of the pass of the last run, which has other readings. A part of the text of
    today is in the notation of tokenized corpora."""
    for paragraph, source in paragraphs:
        first, times, notation = 0, READINGS[source.modern], NOTATION[paragraph.title]
        if last:
            first, notation = max(READINGS.values()), LAST_NOTATION[paragraph.title]
            times = int(source.last) + (draw("last", *paragraph.sentences) < source.last % 1)
        for reading in range(first, first + times):
            lines = lines_of(paragraph, reading)
            if source.modern and draw("notation", reading, *paragraph.sentences) < notation:
                lines = [in_notation(line, known, paragraph.title) for line in lines]
            yield from lines


def wikitext(data: Path, part: str) -> list[str]:
    """The sentences of a part of WikiText-2."""
    return list(books.wikitext_sentences(books.read_text(data / "lm" / "other" / "wikitext-2" / f"{part}.txt")))


def tested_sentences(data: Path) -> Iterator[Sequence[str]]:
    """The texts that the card's table is measured on, each as its sentences."""
    yield from (wikitext(data, part) for part in ("valid", "test"))
    yield books.read_text(data / "lm" / "other" / "brown.txt.gz").split("\n")
    for word in ("line", "interest"):
        yield [" ".join(one.words) for one in read_senseval(data / "wsd" / "senseval" / f"{word}.pos.gz")]


def read(data: Path) -> tuple[dict[str, list[str]], Paragraphs]:
    """All sources: the lines of the parts that are held out, and the paragraphs to train on, without those that overlap
    with the held-out parts or the tests."""
    parts: dict[str, list[str]] = {"heldout": [], "heldout_modern": [], "dev": []}
    later, cleaner, splitter = [], Cleaner(), books.Splitter()
    for source in SOURCES:
        documents = READERS[source.read](data / "lm" / source.path)
        for name, document in islice(documents, 0, None, source.every):
            part = part_of(source, name)
            if part == "train":
                later.append((source, document))
            elif source.modern:
                parts[part] += [line for one in cleaner.clean(source, document) for line in lines_of(one)]
            else:  # held-out books stay as they are
                parts[part] += books.tokenized([one for text in document for one in splitter.split(text)])
    texts = (*parts.values(), *tested_sentences(data))
    tested = frozenset(part for sentences in texts for part in cleaning.shared_parts(sentences))
    return parts, [(one, source) for source, document in later for one in cleaner.clean(source, document, tested)]


def frequent_words(paragraphs: Paragraphs) -> set[str]:
    """The most frequent words of a pass, without hyphens and points of numbers; on a tie, the word that came first."""
    counts: Counter[str] = Counter()
    for paragraph, source in paragraphs:
        for word in _INSIDE.sub(r" \g<0> ", " ".join(paragraph.sentences)).split():
            counts[word] += READINGS[source.modern]
    return {word for word, _ in counts.most_common(KNOWN_WORDS)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the files, and prints their sizes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, help="folder with lm/ and wsd/")
    parser.add_argument("output", type=Path, help="folder for the text and its vocabulary")
    parser.add_argument(
        "--vocab-size", type=int, default=40_000, help="words of the softmax, <S>, </S>, <UNK> included"
    )
    args = parser.parse_args(arguments)
    args.output.mkdir(parents=True, exist_ok=True)
    parts, paragraphs = read(args.data)
    parts["wikitext"] = wikitext(args.data, "test")
    known = frequent_words(paragraphs)
    for seed, part in enumerate(("train", "last"), start=1):
        lines = list(pass_lines(paragraphs, known, last=part == "last"))
        parts[part] = [lines[place] for place in np.random.default_rng(seed).permutation(len(lines))]
    vocabulary = build_vocabulary((line.split() for line in parts["train"]), size=args.vocab_size)
    vocabulary.save(args.output / "vocab.txt")
    for part, found in parts.items():
        (args.output / f"{part}.txt").write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
        print(f"{part:15s} {len(found):9,} lines {sum(len(line.split()) for line in found):11,} words")


if __name__ == "__main__":
    main()
