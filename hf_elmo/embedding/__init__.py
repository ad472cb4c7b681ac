"""Embedding a corpus: word vectors for the rows of a file, or for sentences in memory."""

from .corpus import EmbeddedCorpus, embed
from .workers import Embedder

__all__ = ["EmbeddedCorpus", "Embedder", "embed"]
