"""Vocabulary files of bilm-tf, line by line: they may be larger than memory."""

from pathlib import Path

from hf_elmo.lines import read_lines
from hf_elmo.words_elmo import script_of

SPECIAL = ("<S>", "</S>", "<UNK>")


def scripts_in(vocabulary: str | Path) -> list[str]:
    """The scripts of the words of a vocabulary in UTF-8, by their names in `script_of`; boundaries are no words."""
    characters: set[str] = set()
    for number, line in enumerate(read_lines(Path(vocabulary), "utf-8", "\n", str(vocabulary))):
        if number >= len(SPECIAL):
            characters.update(line)
    return sorted({script for character in characters if (script := script_of(character))})


def copy_vocabulary(source: str | Path, target: str | Path) -> int:
    """
    Copy a vocabulary, a word a line, decompressed where its name ends in `.gz`. One line is in memory at a time.

    Returns:
        The number of words.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it does not begin with `<S>`, `</S>` and `<UNK>` (in any case), has an empty line, or is not UTF-8.
    """
    count = 0
    with Path(target).open("w", encoding="utf-8", newline="\n") as file:
        for line in read_lines(Path(source), "utf-8", "\n", str(source)):
            word = line.rstrip("\r\n")
            if count < len(SPECIAL) and word.upper() != SPECIAL[count]:
                raise ValueError(f"{source}, line {count + 1}: {word!r:.60} is not {SPECIAL[count]}, as in bilm-tf.")
            if not word:
                raise ValueError(f"{source}, line {count + 1} is empty, but each line is a word.")
            file.write(word + "\n")
            count += 1
    if count < len(SPECIAL):
        raise ValueError(f"{source} has {count} words, but begins with {', '.join(SPECIAL)} in bilm-tf.")
    return count
