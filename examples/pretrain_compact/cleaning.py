"""Repairs of a text, rules for what is left out of it, and duplicates.

A text is a list of paragraphs. The first of `RULES` that holds is the reason to leave a repaired paragraph out;
`SENTENCE_RULES` are the rules for one sentence of a paragraph. Hashes are the same in every process.
"""

import hashlib
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import ftfy
import numpy as np

_TABLES = tomllib.loads(Path(__file__).with_name("patterns.toml").read_text(encoding="utf-8"))
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060\ufe0f\ufeff]")
_ENCODING = ftfy.TextFixerConfig(
    unescape_html=False,
    uncurl_quotes=False,
    fix_latin_ligatures=False,
    fix_character_width=False,
    fix_line_breaks=False,
    normalization=None,
)


def undamaged(text: str) -> str:
    """The text without invisible characters, and with UTF-8 decoded that was read as another encoding (`â€™`)."""
    return _INVISIBLE.sub("", ftfy.fix_text(text, _ENCODING))


def replace(text: str, table: str) -> str:
    """The text after the replacements of a table of patterns.toml."""
    for pattern, replacement in _REPLACEMENTS[table]:
        text = pattern.sub(replacement, text)
    return text


_PATTERNS = {name: re.compile("".join(row)) for name, row in _TABLES.items() if isinstance(row[0], str)}
_REPLACEMENTS = {
    name: [(re.compile("".join(row["pattern"])), row["by"]) for row in _TABLES[name]]
    for name in ("removed", "repaired", "books")
}


def repaired(text: str) -> str:
    """A paragraph after all repairs."""
    return replace(" ".join(replace(undamaged(text), "removed").split()), "repaired")


def is_boilerplate(text: str) -> bool:
    """Text that a publisher or a web site has on many pages: rights, subscriptions, captions, addresses, contributors,
    resources elsewhere."""
    short = _PATTERNS["boilerplate"].search(text) or _PATTERNS["contributor"].fullmatch(text)
    return bool(_PATTERNS["resources"].match(text) or (short and len(text.split()) < 40))


def is_reference(text: str) -> bool:
    """An entry of a bibliography, a note that cites, or an address on the web."""
    return len(text.split()) < 40 and bool(_PATTERNS["reference"].search(text))


def is_table(text: str) -> bool:
    """A row of a table, a line of a table of contents, a formula: cells, leaders, numbers for a third of the words, or
    fewer than seven letters in ten characters, without punctuation."""
    words = text.split()
    numbers = sum(bool(_PATTERNS["number"].fullmatch(word)) for word in words)
    percents, cells = text.count("%"), len(_PATTERNS["cell"].findall(text))
    letters = len(_PATTERNS["no_latin_letter"].sub("", text))
    return (
        "approximate number of patients" in text.lower()
        or (cells >= 2 and cells * 12 >= len(words))
        or (len(words) >= 3 and numbers * 3 >= len(words))
        or (percents >= 4 and percents * 6 >= len(words))
        or letters * 10 < len(_PATTERNS["punctuation_or_blank"].sub("", text)) * 7
    )


def is_code(text: str) -> bool:
    """A line of a program or of a command: one mark of code in eight words, and at least two."""
    return len(_PATTERNS["code"].findall(text)) >= max(2, len(text.split()) / 8)


_ENGLISH_WORDS, _OTHER_WORDS = (frozenset("".join(_TABLES[name]).split()) for name in ("english", "others"))


def is_another_language(text: str) -> bool:
    """Another language than English: words in another alphabet, or the small words of other languages."""
    words = [word.casefold() for word in re.findall(r"[^\W\d_]+", text)]
    if not text.isascii():
        letters = "".join(word for word in words if len(word) > 1)  # not the letters of formulas
        if sum(letter > "ɏ" for letter in letters) * 5 > len(letters):
            return True
    english, other = (sum(word in known for word in words) for known in (_ENGLISH_WORDS, _OTHER_WORDS))
    return len(words) >= 4 and other >= 2 and other > english and other * 8 >= len(words)


def is_list(text: str) -> bool:
    """Names or terms, one after the other: a comma or semicolon, or a hyphen between blanks, for each third word.
    Text in quotation marks is no list, and neither is text of two sentences."""
    words = text.split()
    marks = len(re.findall(r"[,;](?=\s|$)| [-–•/] ", text))
    stops = len(re.findall(r"[.!?](?=[\s\"'”)]|$)", text))
    return len(words) >= 8 and text[0] not in "\"'“‘" and stops <= 1 and marks * 3 >= len(words) and marks >= 5 * stops


def is_fragment(text: str) -> bool:
    """A short text without an end, or one that begins in the middle of a sentence: points of a list, remains of a
    layout. A glossary's entry of six or more words is no fragment."""
    words = text.split()
    if not re.search("[A-Za-z]", text):
        return True
    if len(words) >= 20 or (len(words) >= 6 and _PATTERNS["definition"].match(text)):
        return False
    if text[0].islower():
        return not re.search(r"[.!?][\"'”’)]*$", text) or len(words) < 4
    return not _PATTERNS["end"].search(text)


Rules = Mapping[str, Callable[[str], object]]
RULES: Rules = {
    "page header": _PATTERNS["page_header"].fullmatch,
    "damaged": _PATTERNS["damaged"].search,
    "boilerplate": is_boilerplate,
    "reference": is_reference,
    "another language": is_another_language,
    "code": is_code,
    "table": is_table,
    "capitals": lambda text: sum(map(str.isupper, text)) > sum(map(str.islower, text)),  # titles and signs
    "list": is_list,
    "fragment": is_fragment,
}


def is_title(text: str) -> bool:
    """A heading of a text of today, among the fragments: 2 to 14 words, no final punctuation, a capital first."""
    if not 2 <= len(text.split()) <= 14 or _PATTERNS["end"].search(text) or sum(map(str.isdigit, text)) > 4:
        return False
    return text[0].isupper() and bool(_PATTERNS["title"].fullmatch(text))


# A gap is where a formula or the name of a figure was taken out: `as illustrated in .`
SENTENCE_RULES: Rules = {
    "boilerplate": is_boilerplate,
    "reference": is_reference,
    "gap": _PATTERNS["gap"].search,
    "long word": re.compile(r"\S{51}").search,  # an address, or words without blanks: too long for any model
}


def reason(text: str, rules: Rules = RULES) -> str | None:
    """The name of the first rule that leaves a repaired paragraph (or by `SENTENCE_RULES` a sentence) out, or None."""
    return next((name for name, holds in rules.items() if holds(text)), None)


def running_headers(paragraphs: Sequence[str]) -> set[str]:
    """The lines of at most ten words, without an end, that a document has three times: headers and footers of pages."""
    short = Counter(text for text in paragraphs if len(text.split()) <= 10 and not _PATTERNS["whole"].search(text))
    return {text for text, count in short.items() if count >= 3}


def is_another_language_altogether(paragraphs: Sequence[str]) -> bool:
    """More than half of the words of a document are in paragraphs of another language."""
    words = [(len(text.split()), is_another_language(text)) for text in paragraphs]
    return 2 * sum(count for count, other in words if other) > sum(count for count, _ in words)


def plain_words(text: str) -> list[str]:
    """The words of a text, the same in all notations: no case, no punctuation, `don't` and `don 't` alike."""
    return re.findall(r"[^\W_]+", _PATTERNS["contracted"].sub("", text.casefold()))


def text_hash(text: str) -> int:
    """A hash of 64 bits, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


_word_hash = cache(text_hash)


def run_hashes(words: Sequence[str], length: int) -> np.ndarray:
    """A hash of each run of `length` words, `[max(words - length + 1, 0)]` uint64."""
    hashes = np.fromiter(map(_word_hash, words), np.uint64, len(words))
    count = max(len(words) - length + 1, 0)
    total = np.zeros(count, np.uint64)
    for offset in range(length):
        total += hashes[offset : offset + count] * np.uint64(pow(0x9E3779B97F4A7C15, offset + 1, 2**64))
    return total ^ (total >> np.uint64(29))


class Duplicates:
    """
    The paragraphs that were read before.

    A paragraph is a duplicate if its words were read in the same order; one of 20 or more words also if 60 % of its
    runs of eight words were read. One run in four, chosen by its hash, is remembered; a paragraph with fewer than three
    of the chosen runs counts as new.
    """

    def __init__(self) -> None:
        self._whole: set[int] = set()
        self._runs: set[int] = set()

    def has(self, text: str, shortest: int = 6) -> bool:
        """Whether a paragraph of `shortest` words or more is a duplicate; a new one is remembered."""
        words = plain_words(text)
        if len(words) < shortest:
            return False
        whole, hashes = text_hash(" ".join(words)), run_hashes(words if len(words) >= 20 else [], 8)
        runs = hashes[hashes % np.uint64(4) == 0].tolist()
        near = len(runs) >= 3 and sum(run in self._runs for run in runs) >= 0.6 * len(runs)
        if whole in self._whole or near:
            return True
        self._whole.add(whole)
        self._runs.update(runs)
        return False


def shared_parts(sentences: Sequence[str]) -> set[str | int]:
    """What no text to train on may share with a text that a model is tested on: sentences of eight or more words, and
    hashes of runs of 13 words, which may cross the ends of sentences."""
    split = [plain_words(sentence) for sentence in sentences]
    whole = {" ".join(words) for words in split if len(words) >= 8}
    return whole | set(run_hashes([word for words in split for word in words], 13).tolist())
