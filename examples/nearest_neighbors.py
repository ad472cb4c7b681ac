"""The paper's Table 4: words in two senses each, and their nearest neighbors in context.

Beside them the nearest words by spelling alone and by word vectors.

    python examples/nearest_neighbors.py corpus/train.txt --vectors glove.6B.50d.txt

The corpus has one tokenized sentence a line (examples/pretrain_compact/prepare.py writes one).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import hf_elmo

QUESTIONS = (
    ("The old man sat down on the bank of the river and began to fish .", "bank"),
    ("He had some thousands of pounds in the bank , and lived upon the interest .", "bank"),
    ("She went to the play with her cousin , and admired the actors .", "play"),
    ("The children were allowed to play in the garden after tea .", "play"),
    ("He struck a match and lit his pipe .", "match"),
    ("Her mother thought it an excellent match for a girl without a fortune .", "match"),
    ("The apple trees were late in bloom that spring , because it had rained in March and April .", "spring"),
    ("They drank the cold water of a spring that rises among the rocks .", "spring"),
    ("He wrote a letter to his sister and posted it the same evening .", "letter"),
    ("The first letter of each name is written large .", "letter"),
    ("The lamp gave so little light that she could hardly read .", "light"),
    ("The bag was so light that a child could carry it .", "light"),
    ("The workers asked for a fair price .", "fair"),
    ("We met at the county fair , between the horses and the tents .", "fair"),
    ("The members of the board met in June to approve the budget .", "board"),
    ("He nailed a board over the broken window .", "board"),
    ("Please note that the office is closed on Friday .", "note"),
    ("She found a note on the table , signed by her brother .", "note"),
    ("The officer will charge him with murder .", "charge"),
    ("The forms are available free of charge .", "charge"),
    ("The company opened a plant where cars are made .", "plant"),
    ("Water the plant twice a week and keep it out of the sun .", "plant"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each word."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpus", type=Path, help="tokenized sentences, one a line")
    parser.add_argument("--top", type=int, default=3, help="neighbors for each layer [3]")
    parser.add_argument("--vectors", help="a file of word vectors, as GloVe's, whose neighbors are printed, too")
    parser.add_argument("--model", help="folder or Hub name of an ELMo [the one that ships with hf_elmo]")
    args = parser.parse_args(arguments)
    model, _ = hf_elmo.load_model(args.model, dtype="float32")
    if args.vectors:
        words, vectors = hf_elmo.read_word_vectors(args.vectors)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        for word in dict.fromkeys(word for _, word in QUESTIONS if word in words):
            cosines = vectors @ vectors[words.index(word)]
            nearest = np.argsort(-cosines, kind="stable")[1:9]
            print(f"{word}: " + ", ".join(f"{words[place]} {cosines[place]:.2f}" for place in nearest))
    for sentence, word in QUESTIONS:
        found = hf_elmo.nearest_neighbors(model, sentence, word, args.corpus, top=args.top, pretokenized=True)
        print(f"\n{sentence.replace(f' {word} ', f' [{word}] ')}")
        static = ", ".join(f"{neighbor.word} {neighbor.similarity:.2f}" for neighbor in found.pop(0))
        print(f"  layer 0  {static}")
        for layer, places in found.items():
            for neighbor in places:
                print(f"  layer {layer}  {neighbor.similarity:.2f}  {neighbor.in_context()}")


if __name__ == "__main__":
    main()
