"""Short Korean reviews to what `hf-elmo pretrain --words` reads: one tokenized review a line.

    python -m examples.korean.prepare FOLDER OUT

Writes OUT/train.txt, OUT/dev.txt and OUT/heldout.txt, which have no movie and no review in common, and OUT/start, a
biLM before its training that reads Unicode characters: syllables, where the default reads their three bytes.
"""

import argparse
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from examples.data import tabs
from examples.own_language.prepare import write
from hf_elmo import ElmoConfig, ElmoModel, ElmoTokenizer
from hf_elmo.tokenization_elmo import CharacterVocabulary

PARTS = {"heldout": "test", "dev": "dev", "train": "train"}  # files, and parts of the corpus: one that holds out first
SIZES = {"hidden_size": 256, "cell_size": 512, "num_highway_layers": 1}
SYLLABLES = {"max_word_length": 26, "char_embedding_size": 64, "char_filters": [[1, 128], [2, 192], [3, 192]]}
MIN_COUNT = 10  # of a character with a vector of its own


def read(data: Path, part: str) -> list[tuple[str, int]]:
    """The reviews of one part with their ratings, in Unicode's composed form: a syllable has one spelling."""
    rows = tabs(data / "korean_reviews" / "reviews.tsv.gz")
    return [(unicodedata.normalize("NFC", row["review"]), int(row["rating"])) for row in rows if row["split"] == part]


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the files, prints their counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, help="the data folder")
    parser.add_argument("out", type=Path, help="folder for the text")
    args = parser.parse_args(arguments)
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer, seen = ElmoTokenizer(), set()
    for name, part in PARTS.items():
        texts = [text for text in dict.fromkeys(text for text, _ in read(args.data, part)) if text not in seen]
        seen.update(texts)
        split = tokenizer.split_into_words(texts)
        write(args.out / f"{name}.txt", split, tokenizer)
    counts = Counter(character for words in split for word in words for character in word)
    vocabulary = CharacterVocabulary([character for character, count in counts.most_common() if count >= MIN_COUNT])
    config = ElmoConfig(char_units="unicode", char_vocab_size=vocabulary.size, **SIZES, **SYLLABLES)
    start, file = args.out / "start", args.out / "start" / "character_vocab.json"
    ElmoModel(config).save_pretrained(start)
    vocabulary.save(file)
    ElmoTokenizer(max_word_length=config.max_word_length, character_vocab_file=str(file)).save_pretrained(start)


if __name__ == "__main__":
    main()
