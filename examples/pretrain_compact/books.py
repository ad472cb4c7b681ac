"""Public-domain books, speeches and plays as paragraphs and tokenized sentences. Needs nltk (its code only)."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

from hf_elmo import ElmoTokenizer
from hf_elmo.extras import extra_needed

with extra_needed():
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

from .cleaning import replacements

# Whole books, about 3 % of the words: two by authors of whom the training text has another book (Doyle, Burnett), two
# by authors of whom it has none (Trollope, Wilde). One more short book is for the curve during training.
HELD_OUT = ("Doyle_Hound_1902", "Burnett_Princess_1905", "Trollope_Warden_1855", "pg_174")
DEV = ("pg_46",)

# nltk's Punkt with this list cuts 2 million characters a second and takes closing quotes along. Trained on the books
# themselves it is worse: half of them print "Mr" without the point, so it does not learn "mr" as an abbreviation.
ABBREVIATIONS = (
    "mr mrs ms messrs mme dr prof rev hon st gen col maj capt lieut lt sgt gov sen rep jr esq no vol viz i.e e.g"
)

_NOISE = replacements("books", re.MULTILINE)
_HEADING = re.compile(r"(?i:chapter|book|part|volume|vol|act|scene|contents)\b.*|[IVXLC\d]+\.?")
_CLOSED = re.compile(r"[.!?:;,\-—\"')\]]$")


def documents(source: Path) -> Iterator[tuple[str, str]]:
    """(name without suffixes, text) of each file of the corpus, in the order of their names."""
    for path in sorted([*source.glob("books/*.txt.gz"), *source.glob("*.txt.gz"), *source.glob("*.txt")]):
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        name = path.name.split(".")[0]
        # The addresses to Congress hold a paragraph a line.
        text = text.decode("utf-8").replace("\r", "")
        yield name, text.replace("\n", "\n\n") if name == "state_union" else text


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a text, each on one line; headings, tables of contents and title pages are left out."""
    for pattern, replacement in _NOISE:
        text = pattern.sub(replacement, text)
    for paragraph in re.split(r"\n[ \t]*\n", text):
        words = paragraph.split()
        line = " ".join(words)
        short = len(words) < 20 and (_HEADING.fullmatch(line) or not _CLOSED.search(line))
        if not short and re.search("[a-z]", line):
            yield line


def sentence_splitter(abbreviations: str = ABBREVIATIONS) -> PunktSentenceTokenizer:
    """nltk's Punkt; a point after one of the abbreviations does not end a sentence."""
    parameters = PunktParameters()
    parameters.abbrev_types = {quote + word for word in abbreviations.split() for quote in ("", "'", '"')}
    return PunktSentenceTokenizer(parameters)


def split_sentences(paragraph: str, splitter: PunktSentenceTokenizer) -> list[str]:
    """The sentences of a paragraph; one that begins with a small letter is joined to the last: "Never!" said he."""
    found: list[str] = []
    for sentence in splitter.tokenize(paragraph):
        if found and sentence[0].islower():
            found[-1] += " " + sentence
        else:
            found.append(sentence)
    return found


def sentences(text: str, tokenizer: ElmoTokenizer) -> Iterator[list[str]]:
    """The sentences of a text as words, split as the tokenizer splits by default."""
    splitter = sentence_splitter()
    normalized = tokenizer.backend_tokenizer.normalizer.normalize_str(text)
    found = [sentence for paragraph in paragraphs(normalized) for sentence in split_sentences(paragraph, splitter)]
    for encoding in tokenizer.backend_tokenizer.encode_batch(found, add_special_tokens=False):
        if any(word[0].isalnum() for word in encoding.tokens):
            yield encoding.tokens


def wikitext_sentences(text: str) -> Iterator[list[str]]:
    """The sentences of a WikiText file, in the same form as those of the books.

    Headings are left out, `@-@`, `@,@` and `@.@` are put back into their words, and a sentence ends at a point outside
    quotation marks. `<unk>` stays: a word that no vocabulary has.
    """
    for line in re.sub(r" @([-,.])@ ", r"\1", text).split("\n"):
        sentence: list[str] = []
        for word in [] if line.startswith(" =") else line.split():
            sentence.append(word)
            if word in ".!?" and sentence.count('"') % 2 == 0:
                yield sentence
                sentence = []
        if sentence:
            yield sentence
