"""The columns of CoNLL: a line for each word, a blank line after each sentence."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain, groupby, islice

from .files import read_lines

# Lines without a word: documents and, in CoNLL-U, comments such as `# newdoc` and `# text = ...`.
NO_WORD = re.compile(r"-DOCSTART-|#(begin|end) document\b|# (newdoc|newpar)\b|# ?[\w.:]+ = ")
NO_WORD_ID = re.compile(r"\d+[-.]\d+")  # CoNLL-U's ranges and empty nodes; in WebAnno, `1-2` numbers a word
# A first line with the names of the columns, such as HIPE's `TOKEN NE-COARSE-LIT ...`.
COLUMN = r"lemma|[ux]?pos|feats|head|dep(rel|s)|chunk|ner?|(ner[ _])?(tag|label)s?|ne[lr]?-[-\w]+|render|seg|misc"
HEADER = re.compile(rf"(id )?(token|word|form)s?( ({COLUMN}))+", re.IGNORECASE)


def read_columns(path: str | os.PathLike, encoding: str = "utf-8") -> Iterator[tuple[str, list[str]]]:
    """The place of each line of a file in CoNLL's format, for error messages, and its columns; a blank line has none.
    Tabs separate the columns of a line that has tabs, otherwise spaces do. In a file with tabs, a line that begins with
    "#" and has none is a comment, of one column. (A no-break space is a part of a word.)"""
    has_tabs = False
    lines = enumerate(read_lines(path, encoding), start=1)
    for is_blank, group in groupby(lines, lambda line: not line[1].strip(" \t\n")):
        sentence = list(group)
        has_tabs = has_tabs or (not is_blank and any("\t" in line and line[0] != "#" for _, line in sentence))
        for number, line in sentence:
            by_tabs = "\t" in line or (has_tabs and line.startswith("#"))
            columns = line.rstrip("\n").split("\t") if by_tabs else filter(None, line.rstrip("\n").split(" "))
            yield f"{path}, line {number}", [] if is_blank else [column.strip(" ") for column in columns]


def read_sentences(
    path: str | os.PathLike, word: int | None = None, tag: int | None = None, encoding: str = "utf-8"
) -> Iterator[list[list[str]]]:
    """The sentences of a file of CoNLL, each a list with the columns `word` and, unless it is `None`, `tag` of its
    words. The docstring of [`hf_elmo.read_conll`] has the rules, and those for the default of `word`."""
    size = 0  # the number of columns of most words, here or in the last sentence that has words
    groups = (list(group) for _, group in groupby(read_columns(path, encoding), lambda line: not line[1]))
    first = list(islice(groups, 40))
    word = _word_column(first) if word is None else word
    for group in chain(first, groups):
        lines = [(where, columns) for where, columns in group if columns and not NO_WORD.match(" ".join(columns))]
        if size == 0 and lines and HEADER.fullmatch(" ".join(lines[0][1])):
            del lines[0]
        # A line that begins with "#" is a comment or a word: "own" are those that are words in any case.
        if not (lines := [line for line in lines if not line[1][0].startswith("# ")]):
            continue
        own = [columns for _, columns in lines if not columns[0].startswith("#")]
        if not own and not size:  # above the first sentence, "# by me" is a comment, and "#me O" is a word
            own = [columns for _, columns in lines if columns[0] != "#"]
        if own:
            size = Counter(map(len, own)).most_common(1)[0][0]
        elif not size:
            continue
        wanted = [word] if tag is None else [word, tag]
        has_wanted = all(-size <= column < size for column in wanted) and (size > 1 or tag is None)
        is_numbered = wanted[0] != 0 and any(columns[0].isdecimal() for _, columns in lines)
        sentence = []
        for where, columns in lines:
            is_whole = has_wanted and len(columns) == size
            if columns[0].startswith("#") and not (is_whole and columns[wanted[0]].startswith("#")):
                continue
            if is_numbered and NO_WORD_ID.fullmatch(columns[0]):
                continue
            if not (is_whole and all(columns[column] for column in wanted)):
                named = dict(zip(("word", "tag"), wanted, strict=False))
                raise ValueError(f"{where}: {columns} must be {size} columns, as in its sentence, and have {named}")
            sentence.append([columns[column] for column in wanted])
        if sentence:
            yield sentence


def _word_column(groups: list[list[tuple[str, list[str]]]]) -> int:
    """The column after that which numbers the words: the first one in CoNLL-U, the third one in CoNLL-2012; else 0.
    Most of the first sentences must have numbers: the words of the very first may be `1` or `0 1` themselves."""

    def is_word(columns: list[str]) -> bool:
        line = " ".join(columns)
        return line[:1] not in ("", "#") and not (NO_WORD.match(line) or HEADER.fullmatch(line))

    sentences = [own for group in groups if (own := [columns for _, columns in group if is_word(columns)])]
    columns = [[line[0] for line in own if len(line) > 1 and not NO_WORD_ID.fullmatch(line[0])] for own in sentences]
    are_numbers = [bool(own) and all(map(str.isdecimal, own)) for own in columns]
    if any(are_numbers[:1]) and columns[0][0] in ("0", "1") and 2 * sum(are_numbers) > len(columns):
        return 1
    first = sentences[0] if sentences else []
    is_2012 = [len(own) > 3 and own[1].isdecimal() and own[2] == str(place) for place, own in enumerate(first)]
    return 3 if first and all(is_2012) else 0
