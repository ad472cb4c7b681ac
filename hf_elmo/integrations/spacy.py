"""For spaCy, which finds them by entry points: the component `elmo`, which gives vectors to tokens, spans and texts,
and the layer `hf_elmo.Tok2Vec.v1`, on which taggers, parsers and other components are trained."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import srsly
import torch
from spacy.language import Language
from spacy.tokens import Doc, Span, Token
from spacy.util import minibatch, registry
from thinc.api import Model, PyTorchShim, get_torch_default_device, torch2xp, xp2torch
from thinc.types import Floats2d
from torch import Tensor

from ..checkpoints.loading import Device, default_device, load_model, no_progress_bar
from ..embedding.corpus import embed
from ..embedding.workers import IMPORTED_BY
from ..modeling_elmo import ElmoModel, scatter
from ..tokenization_elmo import ElmoTokenizer


class DocReader:
    """An ELMo and its tokenizer, which read documents. They stay in memory, and are saved with the pipeline."""

    error: Exception | None = None

    @property
    def parts(self) -> tuple[ElmoModel, ElmoTokenizer]:
        if self.error:
            raise self.error
        return self._model, self.tokenizer

    def from_disk(self, path: str | Path | None, **_: Any) -> Self:
        self._model, self.tokenizer = load_model(path, dtype="float32")
        self.vocabulary = self.tokenizer.vocabulary  # read now: later, the folder may be gone, or be another model's
        self.error = None
        return self

    def to_disk(self, path: str | Path, **_: Any) -> None:
        with no_progress_bar():
            for part in self.parts:
                part.save_pretrained(path)

    def to_bytes(self, **_: Any) -> bytes:
        with TemporaryDirectory() as folder:
            self.to_disk(folder)
            return srsly.msgpack_dumps({path.name: path.read_bytes() for path in Path(folder).iterdir()})

    def from_bytes(self, data: bytes, **_: Any) -> Self:
        with TemporaryDirectory() as folder:
            for name, content in srsly.msgpack_loads(data).items():
                Path(folder, name).write_bytes(content)
            return self.from_disk(folder)

    def read(self, docs: Sequence[Doc], device: Device, is_train: bool = False) -> Tensor:
        """The scalar mix `[tokens, hidden_size]` of the tokens of all documents; zero for tokens of whitespace, which
        are no words. If an earlier component has set sentence boundaries, each sentence is read by itself."""
        if os.getpid() != IMPORTED_BY:  # a fork, which OpenMP's threads do not survive
            torch.set_num_threads(1)
        model, tokenizer = self.parts
        model.to(device)
        sentences = [list(doc.sents) if len(doc) and doc.has_annotation("SENT_START") else [doc] for doc in docs]
        words = [[token.text for token in part if not token.is_space] for parts in sentences for part in parts]
        if is_train:
            batch = tokenizer(words, is_split_into_words=True, padding=True, return_tensors="pt").to(device)
            mixes, mask = model.train().word_representations(**batch)
            vectors = mixes[0][mask]
        else:
            found = np.concatenate(embed(model, words, tokenizer=tokenizer, progress=False))
            vectors = torch.from_numpy(found).to(device)
        is_word = [not token.is_space for doc in docs for token in doc]
        return scatter(vectors, torch.tensor([is_word], dtype=torch.bool, device=device))[0]


def tensor(doc: Doc, size: int) -> np.ndarray:
    """The rows of the tokens; ValueError if they are not ELMo's, of this size."""
    if doc.tensor.shape[1] != size:
        raise ValueError("a component after 'elmo', such as 'tok2vec', has replaced doc.tensor: add 'elmo' after it")
    return doc.tensor


def mean(words: Doc | Span, size: int) -> np.ndarray:
    """The mean of the rows of the tokens that are words: spaCy has tokens of whitespace, too."""
    rows = tensor(words.doc, size)[[token.i for token in words if not token.is_space]]
    return rows.sum(axis=0) / max(1, len(rows))


def span_vector(span: Span, rows: np.ndarray) -> np.ndarray:
    """[`mean`], or the mean of the vocabulary's vectors when spaCy, merging tokens, asks for a vector to put there:
    `rows`, the tensor of before, then has a successor, with fewer rows than there are tokens if several become one."""
    doc = span.doc
    if doc.vocab.vectors_length and doc.tensor is not rows and (len(doc.tensor) < len(doc) or len(span) == 1):
        return sum(token.lex.vector for token in span) / len(span)
    return mean(span, rows.shape[1])


def cosine(one: Doc | Span | Token, other: Doc | Span | Token) -> float:
    """The cosine of the vectors of two objects; 0 if a vector is zero."""
    return float(one.vector @ other.vector / (np.linalg.norm(one.vector) * np.linalg.norm(other.vector) or 1))


@Language.factory("elmo", default_config={"model": None}, assigns=["doc.tensor"])
class ElmoPipe(DocReader):
    """Puts the rows of [`DocReader.read`] into `doc.tensor`. The `vector` of a token is its row, the `vector` of a span
    or document is the mean of the rows of its words, and `similarity` is the cosine.

    Args:
        model: folder or Hub name of an ELMo; `None` for the model that ships.
    """

    def __init__(self, nlp: Language, name: str, model: str | None) -> None:
        try:
            self.from_disk(model)
        except Exception as error:  # for the first document: a pipeline that is being loaded brings its own model
            self.error = error

    def __call__(self, doc: Doc) -> Doc:
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """The documents with their vectors, computed for `batch_size` documents at a time."""
        for docs in minibatch(stream, batch_size):
            vectors = self.read(docs, default_device()).split([len(doc) for doc in docs])
            for doc, found in zip(docs, vectors, strict=True):
                doc.tensor = found.cpu().numpy()
                size = doc.tensor.shape[1]
                doc.user_token_hooks["vector"] = lambda token, size=size: tensor(token.doc, size)[token.i]
                doc.user_span_hooks["vector"] = partial(span_vector, rows=doc.tensor)
                doc.user_hooks["vector"] = partial(mean, size=size)
                for hooks in (doc.user_hooks, doc.user_span_hooks, doc.user_token_hooks):
                    hooks.update(has_vector=lambda _: True, similarity=cosine)  # spaCy's own is 1 for equal words
                yield doc


class ElmoShim(DocReader, PyTorchShim):
    """The part of a layer that has the parameters."""

    error = ValueError("the pipeline has no ELMo yet: nlp.initialize() loads it")


@registry.architectures("hf_elmo.Tok2Vec.v1")
def make_tok2vec(model: str | None = None, freeze_bilm: bool = True) -> Model[list[Doc], list[Floats2d]]:
    """The trainable layer `tok2vec`, with the rows of [`DocReader.read`], loaded when the pipeline is initialized.

    Args:
        model: folder or Hub name of an ELMo; `None` for the model that ships.
        freeze_bilm: whether only the scalar mix is trained.
    """
    load = partial(initialize, model=model, freeze_bilm=freeze_bilm)
    return Model("hf_elmo", forward, init=load, dims={"nO": None}, shims=[ElmoShim(None)])


def initialize(layer: Model, *_: Any, model: str | None, freeze_bilm: bool, **__: Any) -> None:
    elmo = layer.shims[0].from_disk(model)._model
    elmo.freeze_bilm(freeze_bilm)
    layer.set_dim("nO", elmo.config.hidden_size)


def forward(layer: Model, docs: list[Doc], is_train: bool) -> tuple[list[Floats2d], Callable]:
    shim: ElmoShim = layer.shims[0]
    rows = shim.read(docs, get_torch_default_device(), is_train)

    def backprop(gradients: list[Floats2d]) -> list:
        if rows.requires_grad:  # the weights of a mix may be fixed
            rows.backward(xp2torch(layer.ops.flatten(gradients)))
        return []

    return layer.ops.unflatten(torch2xp(rows), [len(doc) for doc in docs]), backprop
