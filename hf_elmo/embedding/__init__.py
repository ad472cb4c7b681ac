"""Embedding a corpus: rows of a file or of memory in, word vectors out."""

from .corpus import EmbeddedCorpus, embed

__all__ = ["EmbeddedCorpus", "embed"]
