"""The spaCy component `elmo`, registered by an entry point. It gives vectors to tokens, spans and documents."""

from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import spacy.tokens.doc
from spacy.language import Language
from spacy.tokens import Doc, Span, Token
from spacy.util import minibatch

from ..checkpoints.loading import load_model
from ..embedding.workers import Embedder


def tensor(doc: Doc, size: int) -> np.ndarray:
    """The rows of the tokens; ValueError if they are not ELMo's, of this size."""
    if doc.tensor.shape[1] != size:
        raise ValueError("a component after 'elmo', such as 'tok2vec', has replaced doc.tensor: add 'elmo' after it")
    return doc.tensor


def row(token: Token, size: int) -> np.ndarray:
    return tensor(token.doc, size)[token.i]


def mean(words: Doc | Span, size: int) -> np.ndarray:
    """The mean of the rows of the tokens that are words: spaCy has tokens of whitespace, too."""
    rows = tensor(words.doc, size)[[token.i for token in words if not token.is_space]]
    return rows.sum(axis=0) / max(1, len(rows))


def cosine(one: Doc | Span | Token, other: Doc | Span | Token) -> float:
    """The cosine of the vectors of two objects; 0 if a vector is zero."""
    return float(one.vector @ other.vector / (np.linalg.norm(one.vector) * np.linalg.norm(other.vector) or 1))


class Retokenizer(spacy.tokens.doc.Retokenizer):
    """spaCy's, which gives the merged tokens a vector in a vocabulary that has vectors: the mean of those of the
    vocabulary, not of ELMo's."""

    def __init__(self, doc: Doc) -> None:
        super().__init__(doc)
        self.hooks = (doc.user_span_hooks, doc.user_token_hooks)

    def __exit__(self, *error: Any) -> None:
        ours = [hooks for hooks in self.hooks if getattr(hooks.get("vector"), "func", None) in (row, mean)]
        vectors = [hooks.pop("vector") for hooks in ours]
        try:
            super().__exit__(*error)
        finally:
            for hooks, vector in zip(ours, vectors, strict=True):
                hooks["vector"] = vector


spacy.tokens.doc.Retokenizer = Retokenizer  # for `Doc.retokenize`, which components that merge tokens call


class ElmoPipe:
    """Puts ELMo's scalar mix, `[tokens, hidden_size]`, into `doc.tensor`; the row of a token of whitespace, which is no
    word, is zero. The `vector` of a token is its row, the `vector` of a span or document is the mean of the rows of its
    words, and `similarity` is the cosine. If an earlier component has set sentence boundaries, each sentence is
    embedded separately. The model is saved with the pipeline.

    Args:
        model: folder or Hub name of an ELMo; `None` for the model that ships. The first document loads it.
    """

    def __init__(self, model: str | Path | None) -> None:
        self.model = model

    @cached_property
    def embedder(self) -> Embedder:
        """The model, loaded once in each process (forked processes included)."""
        return Embedder(self.model, dtype="float32")

    def __call__(self, doc: Doc) -> Doc:
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """The documents with their vectors, computed for `batch_size` documents at a time."""
        for docs in minibatch(stream, batch_size):
            sentences = [list(doc.sents) if len(doc) and doc.has_annotation("SENT_START") else [doc] for doc in docs]
            rows = [[x.text for x in sentence if not x.is_space] for parts in sentences for sentence in parts]
            vectors = iter(self.embedder.embed(rows).result())
            for doc, parts in zip(docs, sentences, strict=True):
                found = np.concatenate([next(vectors) for _ in parts])
                doc.tensor = np.zeros((len(doc), found.shape[1]), found.dtype)
                doc.tensor[[token.i for token in doc if not token.is_space]] = found
                doc.user_token_hooks["vector"] = partial(row, size=found.shape[1])
                doc.user_hooks["vector"] = doc.user_span_hooks["vector"] = partial(mean, size=found.shape[1])
                for hooks in (doc.user_hooks, doc.user_span_hooks, doc.user_token_hooks):
                    hooks.update(has_vector=lambda _: True, similarity=cosine)  # spaCy's own is 1 for equal words
                yield doc

    def to_disk(self, path: str | Path, **_: Any) -> None:
        """Saves the checkpoint; spaCy calls this when it saves the pipeline."""
        for part in load_model(self.model, device=None):
            part.save_pretrained(path)

    def from_disk(self, path: str | Path, **_: Any) -> "ElmoPipe":
        """Uses the checkpoint that [`to_disk`] saved."""
        self.model = path
        vars(self).pop("embedder", None)
        return self


@Language.factory("elmo", default_config={"model": None}, assigns=["doc.tensor"])
def make_elmo(nlp: Language, name: str, model: str | None) -> ElmoPipe:
    """The factory for `nlp.add_pipe("elmo", config={"model": folder})`."""
    return ElmoPipe(model)
