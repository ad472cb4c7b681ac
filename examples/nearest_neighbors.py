"""The paper's Table 4: a word's nearest neighbors in context, beside the nearest words by spelling alone.

    python examples/nearest_neighbors.py corpus/train.txt

The corpus has one tokenized sentence a line (examples/pretrain_mini/prepare.py makes one).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from loading import add_model_option, load

import hf_elmo

QUESTIONS = (
    ("The old man sat down on the bank of the river and began to fish .", "bank"),
    ("He had some thousands of pounds in the bank , and lived upon the interest .", "bank"),
    ("She went to the play with her cousin , and admired the actors .", "play"),
    ("The children were allowed to play in the garden after tea .", "play"),
    ("He struck a match and lit his pipe .", "match"),
    ("Her mother thought it an excellent match for a girl without a fortune .", "match"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each word."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpus", type=Path, help="tokenized sentences, one a line")
    parser.add_argument("--top", type=int, default=3, help="neighbors for each layer [3]")
    add_model_option(parser)
    args = parser.parse_args(arguments)
    model, tokenizer = load(args.model)
    for sentence, word in QUESTIONS:
        found = hf_elmo.nearest_neighbors(
            model, tokenizer, sentence, word, args.corpus, top=args.top, pretokenized=True
        )
        print(f"\n{sentence.replace(f' {word} ', f' [{word}] ')}")
        static = ", ".join(f"{neighbor.word} {neighbor.similarity:.2f}" for neighbor in found.pop(0))
        print(f"  layer 0  {static}")
        for layer, places in found.items():
            for neighbor in places:
                print(f"  layer {layer}  {neighbor.similarity:.2f}  {neighbor.in_context()}")


if __name__ == "__main__":
    main()
