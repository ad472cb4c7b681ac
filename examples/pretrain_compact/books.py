"""Public-domain books, speeches and plays as paragraphs and tokenized sentences. Needs nltk (its code only)."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

from hf_elmo import ElmoTokenizer
from hf_elmo.utils.extras import extra_needed

with extra_needed("examples"):
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

from .cleaning import replace

# Whole books, about 3 % of the words: two by authors of whom the training text has another book (Doyle, Burnett), two
# by authors of whom it has none (Trollope, Wilde). One more short book is for the curve during training.
PARTS = dict.fromkeys(("Doyle_Hound_1902", "Burnett_Princess_1905", "Trollope_Warden_1855", "pg_174"), "heldout")
PARTS["pg_46"] = "dev"

# Punkt trained on the books themselves is worse: half of them print "Mr" without the point, so that it does not learn
# "mr" as an abbreviation.
ABBREVIATIONS = (
    "mr mrs ms messrs mme dr prof rev hon st gen col maj capt lieut lt sgt gov sen rep jr esq no vol viz i.e e.g"
)
_TOKENIZER = ElmoTokenizer()
normalize = _TOKENIZER.backend_tokenizer.normalizer.normalize_str
_HEADING = re.compile(r"(?i:chapter|book|part|volume|vol|act|scene|contents)\b.*|[IVXLC\d]+\.?")
_CLOSED = re.compile(r"[.!?:;,\-—\"')\]]$")


def read_text(path: Path) -> str:
    """The text of a file, gzipped or not."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return text.decode("utf-8").replace("\r", "")


def documents(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """(name without suffixes, paragraphs) of each file of the corpus, in the order of their names."""
    for path in sorted([*folder.glob("books/*.txt.gz"), *folder.glob("*.txt.gz"), *folder.glob("*.txt")]):
        name, text = path.name.split(".")[0], read_text(path)
        text = text.replace("\n", "\n\n") if name == "state_union" else text  # it has a paragraph a line
        yield name, list(paragraphs(normalize(text)))


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a text, each on one line; headings, tables of contents and title pages are left out."""
    for paragraph in re.split(r"\n[ \t]*\n", replace(text, "books")):
        words = paragraph.split()
        line = " ".join(words)
        short = len(words) < 20 and (_HEADING.fullmatch(line) or not _CLOSED.search(line))
        if not short and re.search("[a-z]", line):
            yield line


class Splitter(PunktSentenceTokenizer):
    """nltk's Punkt; a point after one of the abbreviations does not end a sentence."""

    def __init__(self, abbreviations: str = ABBREVIATIONS) -> None:
        parameters = PunktParameters()
        parameters.abbrev_types = {quote + word for word in abbreviations.split() for quote in ("", "'", '"')}
        super().__init__(parameters)

    def split(self, paragraph: str) -> list[str]:
        """The sentences of a paragraph; one that begins with a small letter is joined to the last: "Never!" said he."""
        found: list[str] = []
        for sentence in self.tokenize(paragraph):
            if found and sentence[0].islower():
                found[-1] += " " + sentence
            else:
                found.append(sentence)
        return found


def tokenized(sentences: list[str]) -> list[str]:
    """The sentences that have words, which the tokenizer splits as by default, with one blank between them."""
    split = _TOKENIZER.split_into_words(sentences)
    return [" ".join(words) for words in split if any(word[0].isalnum() for word in words)]


def wikitext_sentences(text: str) -> Iterator[str]:
    """The sentences of a WikiText file without headings, `@-@`, `@,@` and `@.@` put back into their words; a sentence
    ends at a point outside quotation marks."""
    for line in re.sub(r" @([-,.])@ ", r"\1", text).split("\n"):
        sentence: list[str] = []
        for word in [] if line.startswith(" =") else line.split():
            sentence.append(word)
            if word in ".!?" and sentence.count('"') % 2 == 0:
                yield " ".join(sentence)
                sentence = []
        if sentence:
            yield " ".join(sentence)
