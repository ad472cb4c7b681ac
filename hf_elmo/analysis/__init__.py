"""Inspecting a model: its probabilities for a text, and where a corpus uses a word in the same sense."""
