"""What several rooms use: reading text, character ids of words, extras of the package, evaluation mode."""
