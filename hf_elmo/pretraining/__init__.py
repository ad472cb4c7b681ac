"""Training the language models: text, vocabulary, batches, the trainer, the recipe, and perplexity."""
