"""Inspecting a model: probabilities of a text, neighbors of a word in a corpus, and similarities of vectors."""
