"""What several rooms use: reading text, character ids of words, jobs, fingerprints, extras, evaluation mode."""
