"""The text of elmo-compact-en: books in the public domain, text of today that may be published, and the vocabulary.

    PYTHONPATH=examples python -m examples.pretrain_compact.prepare ../shared/data corpus

writes train.txt, last.txt (what the last run reads: other readings, more of what is written as an encyclopedia is),
heldout.txt (four books), heldout_modern.txt, dev.txt (words separated by one blank: read them with
word_splitting="whitespace"), vocab.txt, and sources.md: words, license and reason of each source, and what each rule
left out of it. Needs nltk (its code only, no downloaded data). The same text gives the same files, on any machine.
"""

import argparse
import gzip
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path

import numpy as np
from word_senses import read_senseval

from examples.pretrain_mini import prepare as mini
from hf_elmo import ElmoTokenizer
from hf_elmo.pretraining.vocabulary import build_vocabulary

from . import cleaning

ABBREVIATIONS = f"{mini.ABBREVIATIONS} u.s u.n u.k d.c a.m p.m inc corp ltd sr ph.d fig vs sept oct nov dec jan feb aug"
HELD_OUT_MODERN, DEV_MODERN = 0.01, 0.002  # of the documents of today
READINGS = {True: 2, False: 1}  # of text of today, and of books, in a pass
NOTATION, NOTATION_OF_TITLES = 0.25, 0.5  # of the paragraphs and titles of today, in that of tokenized corpora
LAST_NOTATION, LAST_NOTATION_OF_TITLES = 0.4, 0.6  # in the last run
KNOWN_WORDS = 20_000  # the others are `<unk>` there
SINGLES = 100  # single sentences that make a document
LONGEST = 400  # words of a paragraph that is not cut into pieces
FEWEST_WORDS = 4  # of a single sentence that lost its point

Document = tuple[str, list[str]]  # name, paragraphs


def _read_gzip(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode("utf-8").replace("\r", "")


def books(folder: Path) -> Iterator[Document]:
    """The books of the first recipe, in the paragraphs that it makes of them."""
    normalize = ElmoTokenizer().backend_tokenizer.normalizer.normalize_str
    for name, text in mini.documents(folder):
        yield name, list(mini.paragraphs(normalize(text)))


def texts(folder: Path) -> Iterator[Document]:
    """Documents with a paragraph a line and a blank line between them; their names are their numbers."""
    for path in sorted(folder.glob("*.txt.gz")):
        lines = (line.strip() for line in _read_gzip(path).split("\n"))
        for number, (_, document) in enumerate(item for item in groupby(lines, bool) if item[0]):
            yield str(number), list(document)


def single_sentences(folder: Path) -> Iterator[Document]:
    """Sentences that have nothing to do with each other, `SINGLES` a document."""
    lines = [line for _, document in texts(folder) for line in document]
    for start in range(0, len(lines), SINGLES):
        yield str(start // SINGLES), lines[start : start + SINGLES]


def one_in_three(folder: Path) -> Iterator[Document]:
    """Each third document."""
    return islice(texts(folder), 0, None, 3)


@dataclass(frozen=True)
class Source:
    """
    A folder of text.

    Args:
        path: of the folder, below `lm/`.
        what: it holds.
        license: as the data's README states it.
        reason: why a model that is published may read it.
        credit: whom the license, or courtesy, asks to name.
        read: its documents.
        modern: written after 1990.
        last: how often it is read in the last run's pass; 1.5 is once, and half of the paragraphs again.
    """

    path: str
    what: str
    license: str
    reason: str
    credit: str
    read: Callable[[Path], Iterator[Document]] = texts
    modern: bool = True
    last: float = 1.0

    @property
    def single(self) -> bool:
        """Whether its lines are single sentences."""
        return self.read is single_sentences


_CC0 = "given to the public domain by CC0"
_CC_BY = "the license allows any use that names the source"
_GOVERNMENT = "work of the United States' government, which has no copyright there"
SOURCES = (
    Source(
        "modern/openstax_cc_by",
        "textbooks of 22 subjects",
        "CC BY 4.0",
        f"{_CC_BY}; the last commits under it, before those under a license that does not",
        "OpenStax, Rice University (openstax.org); the books are in SOURCES.tsv",
        last=3,
    ),
    Source(
        "modern/un_general_debates",
        "speeches in the United Nations' general debates, 1992-2023, each third",
        "CC0",
        f"{_CC0} (Harvard Dataverse)",
        "United Nations General Debate Corpus (Jankin, Baturo, Dasandi)",
        one_in_three,
        last=0.4,
    ),
    Source(
        "modern/medquad_cc_by",
        "questions on health, and answers of the National Institutes of Health",
        "CC BY 4.0",
        f"{_CC_BY}; the parts under the copyright of others are not in it",
        "MedQuAD (Ben Abacha and Demner-Fushman 2019)",
        last=0.5,
    ),
    Source(
        "modern/digitalgov_cc0",
        "the web site digital.gov",
        "CC0, public domain",
        f"{_GOVERNMENT}; {_CC0} elsewhere",
        "General Services Administration",
    ),
    Source(
        "modern/us_state_dept_history_pd",
        "history of American diplomacy, conferences of historians",
        "public domain, CC0",
        f"{_GOVERNMENT}; {_CC0} elsewhere",
        "Office of the Historian, United States Department of State",
        last=4,
    ),
    Source(
        "modern/18f_blog_cc0",
        "the web site of 18F",
        "CC0, public domain",
        f"{_GOVERNMENT}; {_CC0} elsewhere",
        "18F, General Services Administration",
        last=0.5,
    ),
    Source(
        "modern/cia_factbook_pd",
        "countries of the world",
        "public domain",
        _GOVERNMENT,
        "The World Factbook",
        last=6,
    ),
    Source(
        "modern/common_voice_en_cc0",
        "single sentences to read aloud",
        "CC0",
        _CC0,
        "Mozilla Common Voice",
        single_sentences,
    ),
    Source(
        "modern/wikinews_2019_2020_cc_by",
        "news, 2019 and 2020",
        "CC BY 2.5",
        _CC_BY,
        "Wikinews (en.wikinews.org)",
        last=8,
    ),
    Source(
        "public_domain",
        "books of before 1923, addresses of presidents, eight plays, Genesis: the text of elmo-mini-en",
        "public domain",
        "authors dead for 70 years, first published by 1923; works of the government",
        "Project Gutenberg, and the digitizers named in the data's README",
        books,
        modern=False,
        last=0.4,
    ),
    Source(
        "classic_books_pd",
        "216 books of up to 1928",
        "public domain",
        "authors dead for 70 years, first published more than 95 years ago",
        "classic-books-markdown",
        modern=False,
        last=0.6,
    ),
)
LEFT_ALONE = (
    ("everything in lm/other", "WikiText-2 and the Brown corpus test the model, and may not be published from"),
    (
        "modern/masc_open",
        "its statement allows development, but it holds newspapers, private mail, and the newspaper text that senses "
        "of words are measured on",
    ),
)


@dataclass
class Paragraph:
    """Sentences, each its words with one blank between them, or a title."""

    sentences: list[str]
    title: bool = False


@dataclass
class Count:
    """What became of a source: documents, words that were read (as whitespace separates them), words that are kept (as
    the tokenizer does), and words that each rule left out."""

    documents: int = 0
    held_out: int = 0
    words: int = 0
    kept: int = 0
    left_out: Counter = field(default_factory=Counter)


class Reader:
    """Cleans documents, and counts what it leaves out.

    Args:
        samples: a file where each paragraph or sentence that is left out is written, with its source and the rule.
    """

    def __init__(self, samples: Path | None = None) -> None:
        self.tokenizer = ElmoTokenizer()
        self.hashes = cleaning.Hashes()
        self.duplicates = cleaning.Duplicates(self.hashes)
        self.tested = cleaning.Overlap(self.hashes)
        self.counts: dict[str, Count] = defaultdict(Count)
        self._splitter = mini.sentence_splitter(ABBREVIATIONS)
        self._samples = samples.open("w", encoding="utf-8") if samples else None

    def _leave_out(self, source: Source, rule: str, text: str) -> None:
        self.counts[source.path].left_out[rule] += len(text.split())
        if self._samples:
            self._samples.write(f"{source.path}\t{rule}\t{text}\n")

    def close(self) -> None:
        """Closes the file of samples."""
        if self._samples:
            self._samples.close()

    def clean(self, source: Source, document: Sequence[str], train: bool = True) -> list[Paragraph]:
        """The paragraphs of a document that stay, tokenized. What shares words with the tests stays only where it is
        part of them (`train=False`)."""
        count = self.counts[source.path]
        count.documents += 1
        count.words += sum(len(text.split()) for text in document)
        normalize = self.tokenizer.backend_tokenizer.normalizer.normalize_str
        whole = (cleaning.one_line(normalize(cleaning.repaired(text))) for text in document)
        texts = [piece for text in whole for piece in self._pieces(text)]
        foreign = cleaning.is_another_language_altogether(texts)
        headers = set() if source.single else cleaning.running_headers(texts)
        found: list[tuple[list[str], bool]] = []
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
            sentences = [text] if title else mini.split_sentences(text, self._splitter)
            rule = rule or self.duplicates.reason(text, shortest=1 if title or source.single else 6)
            if rule is None and train and self.tested.shares(sentences):
                rule = "tested on"
            if rule:
                self._leave_out(source, rule, text)
            elif kept := sentences if title else list(self._sentences(source, sentences)):
                found.append((kept, title))
        return self._tokenized(found)

    def _pieces(self, text: str) -> Iterator[str]:
        """A paragraph, or, where it has more than `LONGEST` words (a book without blank lines), its sentences in pieces
        of about as many."""
        if len(text.split()) <= LONGEST:
            yield text
            return
        piece: list[str] = []
        length = 0
        for sentence in mini.split_sentences(text, self._splitter):
            piece.append(sentence)
            length += len(sentence.split())
            if length >= LONGEST:
                yield " ".join(piece)
                piece, length = [], 0
        if piece:
            yield " ".join(piece)

    def _sentences(self, source: Source, sentences: Iterable[str]) -> Iterator[str]:
        for sentence in sentences:
            rule = next((name for name, holds in cleaning.SENTENCE_RULES if holds(sentence)), None)
            if rule:
                self._leave_out(source, f"{rule} (sentence)", sentence)
            else:
                yield sentence

    def _tokenized(self, found: Sequence[tuple[list[str], bool]]) -> list[Paragraph]:
        flat = [sentence for sentences, _ in found for sentence in sentences]
        encodings = iter(self.tokenizer.backend_tokenizer.encode_batch(flat, add_special_tokens=False))
        result = []
        for sentences, title in found:
            tokens = [next(encodings).tokens for _ in sentences]
            with_words = [" ".join(words) for words in tokens if any(word[0].isalnum() for word in words)]
            if with_words:
                result.append(Paragraph(with_words, title))
        return result


def draw(*keys: object) -> float:
    """A number of [0, 1) that depends on the keys alone."""
    digest = hashlib.blake2b("\0".join(map(str, keys)).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big") / 2**56


def part_of(source: Source, name: str) -> str:
    """Where a document goes: "train", "heldout" or "dev" (whole books), "heldout_modern" or "dev_modern"."""
    if not source.modern:
        return "heldout" if name in mini.HELD_OUT else "dev" if name in mini.DEV else "train"
    place = draw(source.path, name)
    if place < HELD_OUT_MODERN:
        return "heldout_modern"
    return "dev_modern" if place < HELD_OUT_MODERN + DEV_MODERN else "train"


_INSIDE = re.compile(r"(?<=\w)(-)(?=\w)|(?<=\d)([,.])(?=\d)")


def in_notation(line: str, known: set[str]) -> str:
    """Tokens in the notation of tokenized corpora: `1 @,@ 500`, `long @-@ term`, `<unk>` for words not in `known`."""
    words = _INSIDE.sub(lambda match: f" @{match.group()}@ ", line).split()
    return " ".join(word if word in known or not word[0].isalpha() else "<unk>" for word in words)


def title_in_notation(line: str, known: set[str]) -> str:
    """A title between one, two or three signs of equality on each side."""
    marks = " ".join("=" * (1 + int(3 * draw("level", line))))
    return f"{marks} {in_notation(line, known)} {marks}"


def lines_of(paragraph: Paragraph, reading: int = 0) -> list[str]:
    """The lines of a paragraph: itself, or its sentences: half of the paragraphs each, and the other way around in each
    second reading."""
    whole = (draw("whole", *paragraph.sentences) < 0.5) != bool(reading % 2)
    return [" ".join(paragraph.sentences)] if whole else paragraph.sentences


def _reading(paragraph: Paragraph, reading: int, notation: float, known: set[str]) -> list[str]:
    """The lines of one reading, in the notation of tokenized corpora with this probability."""
    lines = lines_of(paragraph, reading)
    if draw("notation", reading, *paragraph.sentences) < notation:
        change = title_in_notation if paragraph.title else in_notation
        lines = [change(line, known) for line in lines]
    return lines


def training_lines(paragraph: Paragraph, modern: bool, known: set[str]) -> Iterator[str]:
    """The lines of a paragraph in one pass: text of today twice, in part in the notation of tokenized corpora."""
    notation = NOTATION_OF_TITLES if paragraph.title else NOTATION
    for reading in range(READINGS[modern]):
        yield from _reading(paragraph, reading, notation if modern else 0, known)


def last_lines(paragraph: Paragraph, source: Source, known: set[str]) -> Iterator[str]:
    """The lines of a paragraph in the pass of the last run: readings that no pass before had."""
    notation = LAST_NOTATION_OF_TITLES if paragraph.title else LAST_NOTATION
    times = int(source.last) + (draw("last", *paragraph.sentences) < source.last % 1)
    for reading in range(max(READINGS.values()), max(READINGS.values()) + times):
        yield from _reading(paragraph, reading, notation if source.modern else 0, known)


def shuffled(lines: Sequence[str], seed: int) -> list[str]:
    """The lines in an order that depends on their number and the seed alone."""
    return [lines[place] for place in np.random.default_rng(seed).permutation(len(lines))]


def tested_sentences(data: Path) -> Iterator[Sequence[str]]:
    """The texts that the card's table is measured on, each as its sentences."""
    for part in ("valid", "test"):
        text = (data / "lm" / "other" / "wikitext-2" / f"{part}.txt").read_text(encoding="utf-8")
        yield [" ".join(words) for words in mini.wikitext_sentences(text)]
    yield _read_gzip(data / "lm" / "other" / "brown.txt.gz").split("\n")
    for word in ("line", "interest"):
        yield [" ".join(one.words) for one in read_senseval(data / "wsd" / "senseval" / f"{word}.pos.gz")]


@dataclass
class Corpus:
    """Lines of the parts, and the paragraphs to train on, of each source."""

    parts: dict[str, list[str]]
    train: dict[Source, list[Paragraph]]


def read(data: Path, reader: Reader, documents: int | None = None) -> Corpus:
    """
    All sources: first what is held out, then what is trained on, without what shares words with it.

    Args:
        documents: read so many of each source, and the books that are held out.

    Raises:
        FileNotFoundError: a source is missing.
    """
    parts: dict[str, list[str]] = {"heldout": [], "heldout_modern": [], "dev": []}
    later: list[tuple[Source, str, list[str]]] = []
    for source in SOURCES:
        folder = data / "lm" / source.path
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is missing: the text is not the recipe's without all of its sources.")
        for number, (name, document) in enumerate(source.read(folder)):
            if documents is not None and number >= documents:
                break
            part = part_of(source, name)
            if part in ("heldout", "dev"):
                continue
            if part == "train":
                later.append((source, name, document))
                continue
            reader.counts[source.path].held_out += 1
            lines = [line for one in reader.clean(source, document, train=False) for line in lines_of(one)]
            parts[part.removesuffix("_modern") if part.startswith("dev") else part] += lines
    for name, text in mini.documents(data / "lm" / "public_domain"):  # to the letter as the first recipe has them
        if name in mini.HELD_OUT + mini.DEV:
            lines = [" ".join(words) for words in mini.sentences(text, reader.tokenizer)]
            parts["heldout" if name in mini.HELD_OUT else "dev"] += lines
    for sentences in (*parts.values(), *tested_sentences(data)):
        reader.tested.add(sentences)
    train: dict[Source, list[Paragraph]] = {source: [] for source in SOURCES}
    for source, _, document in later:
        found = reader.clean(source, document)
        reader.counts[source.path].kept += sum(len(line.split()) for one in found for line in one.sentences)
        train[source] += found
    return Corpus(parts, train)


def frequent_words(train: dict[Source, list[Paragraph]], size: int = KNOWN_WORDS) -> set[str]:
    """The most frequent words of a pass, hyphens and points of numbers split off; of equals those read first."""
    counts: Counter[str] = Counter()
    for source, paragraphs in train.items():
        own = Counter(
            word for one in paragraphs for line in one.sentences for word in _INSIDE.sub(r" \g<0> ", line).split()
        )
        for word, count in own.items():
            counts[word] += count * READINGS[source.modern]
    return {word for word, _ in counts.most_common(size)}


def table(rows: Iterable[Sequence[object]]) -> str:
    """A table of Markdown, its first row the header."""
    header, *body = ([str(cell) for cell in row] for row in rows)
    lines = [header, ["---"] * len(header), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def sources_page(counts: dict[str, Count]) -> str:
    """sources.md."""
    present = [source for source in SOURCES if counts[source.path].documents]
    total = sum(counts[source.path].kept * READINGS[source.modern] for source in present)
    modern = sum(counts[source.path].kept * READINGS[True] for source in present if source.modern)
    last = sum(counts[source.path].kept * source.last for source in present)
    last_modern = sum(counts[source.path].kept * source.last for source in present if source.modern)
    head = (
        "source",
        "what",
        "license",
        "why it was allowed",
        "to name",
        "documents",
        "held out",
        "words",
        "times",
        "share",
        "times in the last run",
        "share",
    )
    rows = [
        (
            source.path,
            source.what,
            source.license,
            source.reason,
            source.credit,
            f"{counts[source.path].documents:,}",
            f"{counts[source.path].held_out:,}",
            f"{counts[source.path].kept:,}",
            READINGS[source.modern],
            f"{counts[source.path].kept * READINGS[source.modern] / max(total, 1):.1%}",
            f"{source.last:g}",
            f"{counts[source.path].kept * source.last / max(last, 1):.1%}",
        )
        for source in present
    ]
    rules = sorted({rule for source in present for rule in counts[source.path].left_out})
    left_out = [
        (source.path, f"{counts[source.path].words:,}", *(f"{counts[source.path].left_out[rule]:,}" for rule in rules))
        for source in present
    ]
    return (
        "# The text of elmo-compact-en\n\n"
        f"{total:,} words a pass, {modern / max(total, 1):.1%} from after 1990; in the last run {last:,.0f}, "
        f"{last_modern / max(last, 1):.1%} from after 1990. Words are those of the tokenizer, "
        "without the notation of tokenized corpora; documents include those held out, but for the first recipe's five "
        f"books.\n\n{table([head, *rows])}\n"
        "Not read:\n\n" + "".join(f"- {name}: {why}\n" for name, why in LEFT_ALONE) + "\n"
        "Words that each rule left out (as whitespace separates them, after the repairs; `tested on`: shares a run of "
        "13 words, or a sentence, with what is held out, WikiText-2, the Brown corpus or the sentences of *line* and "
        f"*interest*):\n\n{table([('source', 'words read', *rules), *left_out])}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the files, and prints their sizes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, help="folder with lm/ and wsd/")
    parser.add_argument("output", type=Path, help="folder for the text, its vocabulary and sources.md")
    parser.add_argument(
        "--vocab-size", type=int, default=40_000, help="words of the softmax, <S>, </S>, <UNK> included"
    )
    parser.add_argument("--documents", type=int, help="read so many documents of each source, to try it [all]")
    parser.add_argument("--left-out", type=Path, help="file for what was left out: source, rule, text")
    args = parser.parse_args(arguments)
    args.output.mkdir(parents=True, exist_ok=True)
    reader = Reader(args.left_out)
    corpus = read(args.data, reader, args.documents)
    reader.close()
    known = frequent_words(corpus.train)
    paragraphs = [(source, one) for source, found in corpus.train.items() for one in found]
    train = [line for source, one in paragraphs for line in training_lines(one, source.modern, known)]
    last = [line for source, one in paragraphs for line in last_lines(one, source, known)]
    parts = {"train": shuffled(train, seed=1), "last": shuffled(last, seed=2), **corpus.parts}
    vocabulary = build_vocabulary((line.split() for line in parts["train"]), size=args.vocab_size)
    vocabulary.save(args.output / "vocab.txt")
    for part, found in parts.items():
        (args.output / f"{part}.txt").write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
        words = Counter(word for line in found for word in line.split())
        count, unknown = words.total(), sum(number for word, number in words.items() if word not in vocabulary)
        share = unknown / max(count, 1)
        print(f"{part:15s} {len(found):9,} lines {count:11,} words {share:8.3%} outside the vocabulary")
    (args.output / "sources.md").write_text(sources_page(reader.counts), encoding="utf-8")


if __name__ == "__main__":
    main()
