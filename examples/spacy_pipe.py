"""ELMo in spaCy: a pipe that gives tokens and documents ELMo's vectors, and with them `similarity`.

    python examples/spacy_pipe.py

Needs spaCy, but none of its trained pipelines: pip install spacy
"""

import argparse
from collections.abc import Callable, Sequence

import numpy as np
import spacy
from spacy.language import Language
from spacy.tokens import Doc, Token

import hf_elmo

SENTENCES = (
    "They pulled the boat up on the bank of the river.",
    "The children sat upon the bank and watched the stream.",
    "She had left all her money in the bank in London.",
)


def cosine(one: Doc | Token, other: Doc | Token) -> float:
    """The cosine of two vectors."""
    return float(one.vector @ other.vector / (np.linalg.norm(one.vector) * np.linalg.norm(other.vector)))


@Language.factory("elmo", default_config={"model": None})
def make_elmo(nlp: Language, name: str, model: str | None) -> Callable[[Doc], Doc]:
    """The pipe: `nlp.add_pipe("elmo", config={"model": folder})`."""
    elmo, tokenizer = hf_elmo.load_model(model, dtype="float32")

    def add_vectors(doc: Doc) -> Doc:
        (doc.tensor,) = hf_elmo.embed(elmo, [[token.text for token in doc]], tokenizer=tokenizer, progress=False)
        doc.user_hooks["vector"] = lambda doc: doc.tensor.mean(axis=0)
        doc.user_token_hooks["vector"] = lambda token: token.doc.tensor[token.i]
        for hooks in (doc.user_hooks, doc.user_token_hooks):
            hooks.update(has_vector=lambda _: True, similarity=cosine)  # spaCy's: 1 for any two equal words
        return doc

    return add_vectors


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options, and prints how similar a word of the first sentence is to that of the others."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", help="folder or Hub name of an ELMo [the one that ships with hf_elmo]")
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"model": parser.parse_args(arguments).model})
    first, *others = nlp.pipe(SENTENCES)
    (word,) = (token for token in first if token.text == "bank")
    print(f"{word.text!r} in: {first}")
    for doc in others:
        (other,) = (token for token in doc if token.text == "bank")
        print(f"{word.similarity(other):.2f}  {doc}")


if __name__ == "__main__":
    main()
