"""Raw text of any language to the input of `hf-elmo pretrain --words`: one tokenized sentence per line.

    python examples/own_language/prepare.py korean/*.txt OUT

The files are UTF-8, gzipped or not, one paragraph per line. Writes OUT/train.txt and OUT/heldout.txt (every tenth
paragraph) and prints their counts and how many words are too long for the model, which cuts them. Needs nltk
(its code only, no downloaded data).
"""

import argparse
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from hf_elmo import ElmoTokenizer
from hf_elmo.reading.files import read_lines
from hf_elmo.utils.extras import extra_needed


def paragraphs(files: Iterable[str | Path]) -> list[str]:
    """The lines of all files, each once, in Unicode's composed form: otherwise an é, or a Korean syllable, has several
    spellings, and each spelling makes another word."""
    lines = (unicodedata.normalize("NFC", line.strip()) for file in files for line in read_lines(file))
    return list(dict.fromkeys(filter(None, lines)))


def write(path: Path, split: Sequence[Sequence[str]], tokenizer: ElmoTokenizer) -> None:
    """Writes a sentence a line; prints the counts, also of words that are cut because they have too many bytes."""
    path.write_text("".join(f"{' '.join(words)}\n" for words in split), encoding="utf-8")
    words, longest = [word for sentence in split for word in sentence], tokenizer.max_word_length - 2
    cut = sum(len(word.encode()) > longest for word in words)
    print(f"{path.name}: {len(split):,} sentences, {len(words):,} words, {cut:,} longer than {longest} bytes")


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options, and writes the files."""
    with extra_needed("examples"):
        from nltk.tokenize.punkt import PunktSentenceTokenizer  # the Korean example needs none

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", help="UTF-8 text, a paragraph a line, also .gz")
    parser.add_argument("out", type=Path, help="folder for train.txt and heldout.txt")
    parser.add_argument("--held-out-every", type=int, default=10, metavar="N", help="one paragraph in N [10]")
    parser.add_argument("--word-splitting", default="lm1b", help="lm1b, whitespace or characters [lm1b]")
    options = parser.parse_args(arguments)
    lines, tokenizer = paragraphs(options.files), ElmoTokenizer(options.word_splitting)
    splitter = PunktSentenceTokenizer("\n".join(lines))  # learns the text's own abbreviations
    options.out.mkdir(parents=True, exist_ok=True)
    every = options.held_out_every
    parts = {
        "train.txt": [line for number, line in enumerate(lines) if number % every != every - 1],
        "heldout.txt": lines[every - 1 :: every],
    }
    for name, part in parts.items():
        split = tokenizer.split_into_words([sentence for line in part for sentence in splitter.tokenize(line)])
        write(options.out / name, split, tokenizer)


if __name__ == "__main__":
    main()
