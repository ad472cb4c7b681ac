"""What several rooms use: character ids of words, jobs, fingerprints, extras, evaluation mode."""
