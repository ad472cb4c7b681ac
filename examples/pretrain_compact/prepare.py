"""The text of elmo-compact-en: books in the public domain, text of today that may be published, and the vocabulary.

    python -m examples.pretrain_compact.prepare FOLDER corpus

writes train.txt, last.txt (for the last training run: other readings, and more text in the style of an encyclopedia),
heldout.txt (four books), heldout_modern.txt, dev.txt (words separated by one blank: read them with
word_splitting="whitespace"), wikitext.txt (WikiText-2's test part without its notation) and vocab.txt, and prints their
sizes. Needs nltk (its code only, no downloaded data). The same text gives the same files anywhere.
"""

import argparse
import gzip
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
from hf_elmo import ElmoTokenizer
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


def _read_gzip(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode("utf-8").replace("\r", "")


def public_domain(folder: Path) -> Iterator[Document]:
    """The books of the first recipe, cut into paragraphs as in that recipe."""
    normalize = ElmoTokenizer().backend_tokenizer.normalizer.normalize_str
    for name, text in books.documents(folder):
        yield name, list(books.paragraphs(normalize(text)))


def texts(folder: Path) -> Iterator[Document]:
    """Documents of one paragraph per line, with blank lines between the documents; their names are their numbers."""
    for path in sorted(folder.glob("*.txt.gz")):
        lines = (line.strip() for line in _read_gzip(path).split("\n"))
        for number, (_, document) in enumerate(item for item in groupby(lines, bool) if item[0]):
            yield str(number), list(document)


def single_sentences(folder: Path) -> Iterator[Document]:
    """Sentences that have nothing to do with each other, `SINGLES` a document."""
    lines = [line for _, document in texts(folder) for line in document]
    yield from ((str(start // SINGLES), lines[start : start + SINGLES]) for start in range(0, len(lines), SINGLES))


def one_in_three(folder: Path) -> Iterator[Document]:
    """Every third document."""
    return islice(texts(folder), 0, None, 3)


READERS = {reader.__name__: reader for reader in (texts, single_sentences, one_in_three, public_domain)}


@dataclass(frozen=True)
class Source:
    """A folder of text; sources.toml describes the fields."""

    path: str
    read: str
    modern: bool
    last: float

    @property
    def single(self) -> bool:
        """Whether its lines are single sentences."""
        return self.read == single_sentences.__name__


_TABLE = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))["sources"]
SOURCES = [Source(row["path"], row.get("read", "texts"), row.get("modern", True), row.get("last", 1)) for row in _TABLE]


@dataclass
class Paragraph:
    """Sentences, or a title; the words of each are separated by one blank."""

    sentences: list[str]
    title: bool = False


class Reader:
    """Cleans documents."""

    def __init__(self) -> None:
        self.tokenizer = ElmoTokenizer()
        self.duplicates = cleaning.Duplicates()
        self.tested = cleaning.Overlap()
        self._splitter = books.sentence_splitter(f"{books.ABBREVIATIONS} {MORE_ABBREVIATIONS}")

    def clean(self, source: Source, document: Sequence[str], train: bool = True) -> list[Paragraph]:
        """The paragraphs of a document that are kept, tokenized. A paragraph that overlaps with the tests is kept only
        in a document that is held out (`train=False`)."""
        normalize = self.tokenizer.backend_tokenizer.normalizer.normalize_str
        whole = (cleaning.one_line(normalize(cleaning.repaired(text))) for text in document)
        texts = [piece for text in whole for piece in self._pieces(text)]
        foreign = cleaning.is_another_language_altogether(texts)
        headers = set() if source.single else cleaning.running_headers(texts)
        kept: list[Paragraph] = []
        for text in filter(None, texts):
            rule, title = cleaning.reason(text), False
            if foreign:
                rule = "another language"
            elif text in headers:
                rule = "page header"
            elif rule == "fragment" and source.single and len(text.split()) >= FEWEST_WORDS:
                rule = None
            elif rule == "fragment" and source.modern and not source.single and cleaning.is_title(text):
                rule, title = None, True
            sentences = [text] if title else books.split_sentences(text, self._splitter)
            rule = rule or self.duplicates.reason(text, shortest=1 if title or source.single else 6)
            if rule is None and train and self.tested.shares(sentences):
                rule = "tested on"
            if not rule:
                if not title:
                    sentences = [one for one in sentences if not cleaning.reason(one, cleaning.SENTENCE_RULES)]
                kept.append(Paragraph(sentences, title))
        return self._tokenized(kept)

    def _pieces(self, text: str) -> Iterator[str]:
        """A paragraph, or, if it has more than `LONGEST` words (a book without blank lines), its sentences in pieces of
        about `LONGEST` words."""
        if len(text.split()) <= LONGEST:
            yield text
            return
        piece: list[str] = []
        length = 0
        for sentence in books.split_sentences(text, self._splitter):
            piece.append(sentence)
            length += len(sentence.split())
            if length >= LONGEST:
                yield " ".join(piece)
                piece, length = [], 0
        if piece:
            yield " ".join(piece)

    def _tokenized(self, paragraphs: Sequence[Paragraph]) -> list[Paragraph]:
        """The tokenized paragraphs, without sentences that have no words, and without paragraphs of no sentences."""
        flat = [sentence for paragraph in paragraphs for sentence in paragraph.sentences]
        encodings = iter(self.tokenizer.backend_tokenizer.encode_batch(flat, add_special_tokens=False))
        for paragraph in paragraphs:
            tokens = [next(encodings).tokens for _ in paragraph.sentences]
            paragraph.sentences = [" ".join(words) for words in tokens if any(word[0].isalnum() for word in words)]
        return [paragraph for paragraph in paragraphs if paragraph.sentences]


def draw(*keys: object) -> float:
    """A number of [0, 1) that depends on the keys alone."""
    digest = hashlib.blake2b("\0".join(map(str, keys)).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big") / 2**56


def part_of(source: Source, name: str) -> str:
    """Where a document goes: "train", "dev", "heldout" (whole books), or "heldout_modern"."""
    if not source.modern:
        return "heldout" if name in books.HELD_OUT else "dev" if name in books.DEV else "train"
    place = draw(source.path, name)
    if place < HELD_OUT_MODERN:
        return "heldout_modern"
    return "dev" if place < HELD_OUT_MODERN + DEV_MODERN else "train"


_INSIDE = re.compile(r"(?<=\w)(-)(?=\w)|(?<=\d)([,.])(?=\d)")


def in_notation(line: str, known: set[str], title: bool) -> str:
    """Tokens in the notation of tokenized corpora: `1 @,@ 500`, `long @-@ term`, `<unk>` for words not in `known`, one,
    two or three signs of equality on each side of a title."""
    marks = ["="] * (1 + int(3 * draw("level", line))) if title else []
    words = _INSIDE.sub(lambda match: f" @{match.group()}@ ", line).split()
    words = [word if word in known or not word[0].isalpha() else "<unk>" for word in words]
    return " ".join([*marks, *words, *marks])


def lines_of(paragraph: Paragraph, reading: int = 0) -> list[str]:
    """The lines of a paragraph: the whole paragraph as one line, or its sentences. Half of the paragraphs are whole in
    even readings, the other half in odd readings."""
    whole = (draw("whole", *paragraph.sentences) < 0.5) != bool(reading % 2)
    return [" ".join(paragraph.sentences)] if whole else paragraph.sentences


def pass_lines(paragraph: Paragraph, source: Source, known: set[str], last: bool = False) -> Iterator[str]:
    """The lines of a paragraph in a pass, or (`last`) in the pass of the last run, which has other readings. A part of
    the text of today is in the notation of tokenized corpora."""
    first, times, notation = 0, READINGS[source.modern], NOTATION[paragraph.title]
    if last:
        first, notation = max(READINGS.values()), LAST_NOTATION[paragraph.title]
        times = int(source.last) + (draw("last", *paragraph.sentences) < source.last % 1)
    for reading in range(first, first + times):
        lines = lines_of(paragraph, reading)
        if source.modern and draw("notation", reading, *paragraph.sentences) < notation:
            lines = [in_notation(line, known, paragraph.title) for line in lines]
        yield from lines


def shuffled(lines: Sequence[str], seed: int) -> list[str]:
    """The lines in an order that depends on their number and the seed alone."""
    return [lines[place] for place in np.random.default_rng(seed).permutation(len(lines))]


def tested_sentences(data: Path) -> Iterator[Sequence[str]]:
    """The texts that the card's table is measured on, each as its sentences."""
    for part in ("valid", "test"):
        text = (data / "lm" / "other" / "wikitext-2" / f"{part}.txt").read_text(encoding="utf-8")
        yield [" ".join(words) for words in books.wikitext_sentences(text)]
    yield _read_gzip(data / "lm" / "other" / "brown.txt.gz").split("\n")
    for word in ("line", "interest"):
        yield [" ".join(one.words) for one in read_senseval(data / "wsd" / "senseval" / f"{word}.pos.gz")]


def read(data: Path, reader: Reader) -> tuple[dict[str, list[str]], dict[Source, list[Paragraph]]]:
    """All sources: the lines of the parts that are held out, and for each source the paragraphs to train on, without
    paragraphs that overlap with the held-out parts or the tests."""
    parts: dict[str, list[str]] = {"heldout": [], "heldout_modern": [], "dev": []}
    later: list[tuple[Source, list[str]]] = []
    for source in SOURCES:
        for name, document in READERS[source.read](data / "lm" / source.path):
            part = part_of(source, name)
            if part == "train":
                later.append((source, document))
            elif source.modern:
                parts[part] += [line for one in reader.clean(source, document, train=False) for line in lines_of(one)]
    for name, text in books.documents(data / "lm" / "public_domain"):  # exactly as in the first recipe
        if name in books.HELD_OUT + books.DEV:
            lines = [" ".join(words) for words in books.sentences(text, reader.tokenizer)]
            parts["heldout" if name in books.HELD_OUT else "dev"] += lines
    for sentences in (*parts.values(), *tested_sentences(data)):
        reader.tested.add(sentences)
    train: dict[Source, list[Paragraph]] = {source: [] for source in SOURCES}
    for source, document in later:
        train[source] += reader.clean(source, document)
    return parts, train


def frequent_words(train: dict[Source, list[Paragraph]], size: int = KNOWN_WORDS) -> set[str]:
    """The most frequent words of a pass, without hyphens and points of numbers; on a tie, the word that came first."""
    counts: Counter[str] = Counter()
    for source, paragraphs in train.items():
        for line in (line for paragraph in paragraphs for line in paragraph.sentences):
            for word in _INSIDE.sub(r" \g<0> ", line).split():
                counts[word] += READINGS[source.modern]
    return {word for word, _ in counts.most_common(size)}


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
    held_out, training = read(args.data, Reader())
    wikitext = (args.data / "lm" / "other" / "wikitext-2" / "test.txt").read_text(encoding="utf-8")
    held_out["wikitext"] = [" ".join(words) for words in books.wikitext_sentences(wikitext)]
    known = frequent_words(training)
    paragraphs = [(one, source) for source, found in training.items() for one in found]
    train = [line for one, source in paragraphs for line in pass_lines(one, source, known)]
    last = [line for one, source in paragraphs for line in pass_lines(one, source, known, last=True)]
    parts = {"train": shuffled(train, seed=1), "last": shuffled(last, seed=2), **held_out}
    vocabulary = build_vocabulary((line.split() for line in parts["train"]), size=args.vocab_size)
    vocabulary.save(args.output / "vocab.txt")
    for part, found in parts.items():
        (args.output / f"{part}.txt").write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
        print(f"{part:15s} {len(found):9,} lines {sum(len(line.split()) for line in found):11,} words")


if __name__ == "__main__":
    main()
