"""Inspecting a model: its probabilities for a text, a word's neighbors in a corpus, and how vectors lie."""
