"""The columns of CoNLL: a line for each word, a blank line after each sentence."""

import os
import re
from collections.abc import Iterator, Sequence
from itertools import chain, groupby, islice
from statistics import mode

from .files import read_lines

Line = tuple[str, list[str]]  # the place of a line, for error messages, and its columns
# Lines without a word: documents, comments of CoNLL-U (`# newdoc`, `# text = ...`) and, of one column, `# any`.
NO_WORD = re.compile(r"-DOCSTART-|# |#(begin|end)\sdocument\b|#\s(newdoc|newpar)\b|#\s?[\w.:]+\s=\s")
# A first line with the names of the columns, such as HIPE's `TOKEN NE-COARSE-LIT ...`.
COLUMN = r"lemma|[ux]?pos|feats|head|dep(rel|s)|chunk|misc|bio|iob2?|(\w+[ _])?(tag|label|entit(y|ie))s?|ner?(-.+)?"
HEADER = re.compile(rf"((id|sent(ence)?([ _]?(id|#))?) )?(token|word|form|text)s?( ({COLUMN}))+", re.IGNORECASE)
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
        if "\t" in line:
            line = re.sub(r"(?<=[^ \t]) {2,}(?=[^ \t])", "\t", line)
        elif not (has_tabs and line.startswith("#")):
            line = re.sub(" +", "\t", line.strip(" "))
        columns = [field.strip(" ") or field[:1] for field in line.split("\t")]
        yield f"{path}, line {number}", columns if line.strip(" \t") else []


def read_sentences(
    path: str | os.PathLike, word: int | None = None, tag: int | None = None, encoding: str = "utf-8"
) -> Iterator[list[list[str]]]:
    """The sentences of a file of CoNLL, each a list with the columns `word` and, unless it is `None`, `tag` of its
    words. The docstring of [`hf_elmo.read_conll`] has the rules, and those for the default of `word`."""
    lines_of_file = (line for line in read_columns(path, encoding) if not NO_WORD.match("\t".join(line[1])))
    groups = (list(group) for has_words, group in groupby(lines_of_file, lambda line: bool(line[1])) if has_words)
    first = list(islice(groups, 40))
    if first and HEADER.fullmatch(" ".join(first[0][0][1])):
        del first[0][0]
    wanted = [_word_column(first) if word is None else word, *([] if tag is None else [tag])]
    size = 0  # the number of columns of most words, here or in the last sentence that has words
    for group in chain(first, groups):
        least = size or min((len(line) for _, line in group), default=0)
        lines = [(where, line if any(line[least:]) else line[:least]) for where, line in group]  # no tab at their end
        # A line that begins with "#" is a comment or a word; above the first sentence, "# by me" is a comment.
        own = [columns for _, columns in lines if not columns[0].startswith("#")]
        own = own or [columns for _, columns in lines if size == 0 and columns[0] != "#"]
        size = mode(map(len, own)) if own else size
        has_wanted = all(-size <= column < size for column in wanted) and (size > 1 or tag is None)
        # The numbers of CoNLL-U's ranges and empty nodes, or, where no number is whole, of WebAnno's parts of words.
        no_word = r"\d+[-.]\d+" if any(columns[0].isdecimal() for columns in own) else r"\d+-\d+\.\d+"
        sentence = []
        for where, columns in lines:
            # A whole sentence in a line is `We|O ran|O`, or `we ran` and `O O`.
            is_sentence = size > 1 and all("|" in column[1:-1] or len(column.split()) > 1 for column in columns)
            is_whole = has_wanted and len(columns) == size and not is_sentence
            is_comment = columns[0].startswith("#") and not (is_whole and columns[wanted[0]].startswith("#"))
            if is_comment or (wanted[0] != 0 and re.fullmatch(no_word, columns[0])):
                continue
            if not (is_whole and all(columns[column] for column in wanted)):
                raise ValueError(f"{where}: {columns} must be the {size} columns of a word (word, tag: {wanted})")
            sentence.append([columns[column] for column in wanted])
        if sentence:
            yield sentence


def _word_column(groups: Sequence[Sequence[Line]]) -> int:
    """The column after that which numbers the words (the first in CoNLL-U, third in CoNLL-2012) and, in WebAnno, the
    characters; else 0. Most of the first sentences must have numbers, as words may be `1` or `0 1` themselves."""
    lines = ([columns for _, columns in group if not columns[0].startswith("#")] for group in groups)
    sentences = list(filter(None, lines)) or [[[""]]]
    first = sentences[0]
    numbered = [all(re.fullmatch(r"\d+(-\d+)?(\.\d+)?", line[0]) and line[1:] for line in own) for own in sentences]
    if numbered[0] and re.match(r"[01]\b", first[0][0]) and 2 * sum(numbered) > len(sentences):
        return 2 if re.fullmatch(r"\d+-\d+", first[0][1]) else 1
    is_2012 = (len(own) > 3 and own[1].isdecimal() and own[2] == str(place) for place, own in enumerate(first))
    return 3 if all(is_2012) else 0
