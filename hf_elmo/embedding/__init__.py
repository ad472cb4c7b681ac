"""Embedding a corpus: word vectors for the rows of a file, or for sentences in memory."""
