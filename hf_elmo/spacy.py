"""The component `elmo` of spaCy, which finds it by an entry point: vectors of tokens, spans and documents."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc, Span, Token
from spacy.util import minibatch

from .embedding.workers import Embedder
from .shipped import load_model


def cosine(one: Doc | Span | Token, other: Doc | Span | Token) -> float:
    """The cosine of two vectors; 0 where one is zero."""
    return float(one.vector @ other.vector / (np.linalg.norm(one.vector) * np.linalg.norm(other.vector) or 1))


class ElmoPipe:
    """
    Puts ELMo's vectors `[tokens, 2P]` (the scalar mix) into `doc.tensor`. A token's `vector` is its row, a span's and a
    document's their mean, and `similarity` the cosine. Where an earlier component has set sentences, each is read by
    itself. The model is saved with the pipeline.

    Args:
        model: folder or Hub name of an ELMo; `None` for the one that ships. It is loaded at the first document.
    """

    def __init__(self, model: str | Path | None) -> None:
        self.model = model

    @cached_property
    def embedder(self) -> Embedder:
        """Loads the model once in each process, forks included."""
        return Embedder(self.model, dtype="float32")

    def __call__(self, doc: Doc) -> Doc:
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """The documents with their vectors, which are computed for `batch_size` documents at a time."""
        for docs in minibatch(stream, batch_size):
            sentences = [list(doc.sents) if len(doc) and doc.has_annotation("SENT_START") else [doc] for doc in docs]
            rows = [[token.text for token in sentence] for parts in sentences for sentence in parts]
            vectors = iter(self.embedder.embed(rows).arrays())
            for doc, parts in zip(docs, sentences, strict=True):
                doc.tensor = np.concatenate([next(vectors) for _ in parts])
                doc.user_hooks["vector"] = lambda doc: doc.tensor.sum(axis=0) / max(1, len(doc))
                doc.user_token_hooks["vector"] = lambda token: token.doc.tensor[token.i]
                for hooks in (doc.user_hooks, doc.user_span_hooks, doc.user_token_hooks):
                    hooks.update(has_vector=lambda _: True, similarity=cosine)  # spaCy's: 1 for any two equal words
                yield doc

    def to_disk(self, path: str | Path, **_: Any) -> None:
        """Saves the checkpoint, with the rest of the pipeline."""
        for part in load_model(self.model):
            part.save_pretrained(path)

    def from_disk(self, path: str | Path, **_: Any) -> "ElmoPipe":
        """Takes the checkpoint that was saved."""
        self.model = path
        vars(self).pop("embedder", None)
        return self


@Language.factory("elmo", default_config={"model": None}, assigns=["doc.tensor"])
def make_elmo(nlp: Language, name: str, model: str | None) -> ElmoPipe:
    """`nlp.add_pipe("elmo", config={"model": folder})`."""
    return ElmoPipe(model)
