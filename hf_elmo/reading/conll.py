"""The columns of CoNLL: a line for each word, a blank line after each sentence."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, groupby, islice

from .files import read_lines

Line = tuple[str, list[str]]  # the place of a line, for error messages, and its columns
# Lines without a word: documents and, in CoNLL-U, comments such as `# newdoc` and `# text = ...`.
NO_WORD = re.compile(r"-DOCSTART-|#(begin|end) document\b|# (newdoc|newpar)\b|# ?[\w.:]+ = ")
# A first line with the names of the columns, such as HIPE's `TOKEN NE-COARSE-LIT ...`.
COLUMN = r"lemma|[ux]?pos|feats|head|dep(rel|s)|chunk|bio|iob2?|(named[ _])?entit(y|ies)|(\w+[ _])?(tag|label)s?|ner?"
COLUMN += r"|ne[lr]?-[-\w]+|render|seg|misc"
HEADER = re.compile(rf"((id|sent(ence)?([ _]?(id|#))?) )?(token|word|form|text)s?( ({COLUMN}))+", re.IGNORECASE)
RANGE = re.compile(r"\d+[-.]\d+")  # CoNLL-U's ranges and empty nodes
PART = re.compile(r"\d+-\d+\.\d+")  # WebAnno's parts of the word `1-2`
TAG = re.compile(r"O|[BEILMSUW][-_][A-Za-z]\S*", re.IGNORECASE)


def has_columns(lines: Sequence[str]) -> str | None:
    """The format, `"tsv"` or `"conll"`, of lines that certainly have columns: nearly all have the same two to ten, by
    tabs or by blanks, and one after the first has few short values, as labels are. By blanks, these are tags such
    as `B-PER`, or lines are also of punctuation, which stands alone where each line is a word."""
    for separator in ("\t", None):
        rows = [line.strip().split(separator) for line in lines if line[0] != "#"]
        size = len(rows[0]) if rows else 0
        words, *others = zip(*(row for row in rows if len(row) == size), strict=True) if 2 <= size <= 10 else [()]
        if len(words) > 0.9 * len(rows):
            few = max(1, len(words) // 2)
            if separator and any(len(set(own)) <= few and all(0 < len(one) < 30 for one in own) for own in others):
                return "tsv" if " " in "".join(chain(words, *others)) else "conll"
            is_running = 0 < sum(word in ".,;:?!" for word in words) < few
            if is_running or (len(words) > 1 and any(all(map(TAG.fullmatch, values)) for values in others)):
                return "conll"
    return None


def read_columns(path: str | os.PathLike, encoding: str = "utf-8") -> Iterator[Line]:
    """The lines of a file in CoNLL's format; a blank one has no columns. Blanks separate columns, but in a line with
    tabs only tabs and several blanks (as in copies), and there a single blank is a word. In a file with tabs, a line
    that begins with "#" and has none is a comment, of one column. (A no-break space is a part of a word.)"""
    lines = read_lines(path, encoding)
    first = list(islice(lines, 1000))
    has_tabs = any("\t" in line and line[0] != "#" for line in first)
    for number, line in enumerate((line.rstrip("\n") for line in chain(first, lines)), start=1):
        if not line.strip(" \t"):
            columns = []
        elif "\t" in line or (has_tabs and line.startswith("#")):
            fields = (field.strip(" ") or field[:1] for field in line.split("\t"))
            columns = [column for field in fields for column in (re.split(" {2,}", field) if "\t" in line else [field])]
        else:
            columns = list(filter(None, line.split(" ")))
        yield f"{path}, line {number}", columns


def read_sentences(
    path: str | os.PathLike, word: int | None = None, tag: int | None = None, encoding: str = "utf-8"
) -> Iterator[list[list[str]]]:
    """The sentences of a file of CoNLL, each a list with the columns `word` and, unless it is `None`, `tag` of its
    words. The docstring of [`hf_elmo.read_conll`] has the rules, and those for the default of `word`."""
    size = 0  # the number of columns of most words, here or in the last sentence that has words
    lines_of_file = groupby(read_columns(path, encoding), lambda line: bool(line[1]))
    groups = (list(group) for has_words, group in lines_of_file if has_words)
    first = list(islice(groups, 40))
    wanted = [_word_column(first) if word is None else word, *([] if tag is None else [tag])]
    for group in chain(first, groups):
        lines = [(where, line) for where, line in group if not NO_WORD.match(" ".join(line)) and line[0][:2] != "# "]
        if size == 0 and lines and HEADER.fullmatch(" ".join(lines[0][1])):
            del lines[0]
        least = size or min((len(line) for _, line in lines), default=0)
        lines = [(where, line if any(line[least:]) else line[:least]) for where, line in lines]  # no tab at their end
        # A line that begins with "#" is a comment or a word; above the first sentence, "# by me" is a comment.
        own = [columns for _, columns in lines if not columns[0].startswith("#")]
        own = own or [columns for _, columns in lines if size == 0 and columns[0] != "#"]
        size = Counter(map(len, own)).most_common(1)[0][0] if own else size
        has_wanted = all(-size <= column < size for column in wanted) and (size > 1 or tag is None)
        no_word = RANGE if any(columns[0].isdecimal() for columns in own) else PART
        sentence = []
        for where, columns in lines:
            # A whole sentence in a line is `We|O ran|O`, or `we ran` and `O O`.
            of_words = {len(column.split()) for column in columns if "|" not in column[1:-1]}
            is_sentence = size > 1 and (not of_words or (len(of_words) == 1 and of_words != {1}))
            is_whole = has_wanted and len(columns) == size and not is_sentence
            is_comment = columns[0].startswith("#") and not (is_whole and columns[wanted[0]].startswith("#"))
            if is_comment or (wanted[0] != 0 and no_word.fullmatch(columns[0])):
                continue
            if not (is_whole and all(columns[column] for column in wanted)):
                named = dict(zip(("word", "tag"), wanted, strict=False))
                raise ValueError(f"{where}: {columns} must be the {size} columns of a word, and have {named}")
            sentence.append([columns[column] for column in wanted])
        if sentence:
            yield sentence


def _word_column(groups: Sequence[Sequence[Line]]) -> int:
    """The column after that which numbers the words (the first in CoNLL-U, third in CoNLL-2012) and, in WebAnno, the
    characters; else 0. Most of the first sentences must have numbers, as words may be `1` or `0 1` themselves."""
    no_word = re.compile(rf"[# ]|{NO_WORD.pattern}|{HEADER.pattern}$", re.IGNORECASE)
    lines = ([columns for _, columns in group if not no_word.match(" ".join(columns))] for group in groups)
    sentences = list(filter(None, lines))
    for number in (r"\d+-\d+(\.\d+)?", r"\d+([-.]\d+)?"):
        are_numbered = [all(len(line) > 1 and re.fullmatch(number, line[0]) for line in own) for own in sentences]
        if any(are_numbered[:1]) and re.match(r"[01]\b", sentences[0][0][0]) and 2 * sum(are_numbered) > len(sentences):
            return 2 if RANGE.fullmatch(sentences[0][0][1]) else 1
    first = sentences[0] if sentences else [[]]
    is_2012 = (len(own) > 3 and own[1].isdecimal() and own[2] == str(place) for place, own in enumerate(first))
    return 3 if all(is_2012) else 0
