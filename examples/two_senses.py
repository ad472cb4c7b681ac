"""One word in two senses: its vector depends on its sentence.

    python examples/two_senses.py

Prints, for each layer, the cosine similarity of the word's vector in the first sentence with that in the others.
"""

import argparse
from collections.abc import Sequence

import numpy as np

import hf_elmo

WORD = "bank"
SENTENCES = (
    "They pulled the boat up on the bank of the river .",
    "The children sat upon the bank and watched the stream .",
    "The bank lent him a thousand pounds .",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="folder or Hub name of an ELMo [the one that ships with hf_elmo]")
    model, tokenizer = hf_elmo.load_model(parser.parse_args(arguments).model, dtype="float32")
    words = [sentence.split() for sentence in SENTENCES]
    layers = hf_elmo.embed(model, words, tokenizer=tokenizer, layers="all", progress=False)
    vectors = np.stack([layer[:, line.index(WORD)] for layer, line in zip(layers, words, strict=True)])
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)  # [sentences, layers, 2P]
    print(f"{WORD!r} in: {SENTENCES[0]}")
    for sentence, cosines in zip(SENTENCES[1:], (vectors[1:] * vectors[0]).sum(axis=2), strict=True):
        print("  ".join(f"layer {layer} {cosine:.2f}" for layer, cosine in enumerate(cosines)), sentence, sep="  ")


if __name__ == "__main__":
    main()
