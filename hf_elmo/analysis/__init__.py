"""Looking at a model: what it says of a text, and where a corpus uses words alike."""
