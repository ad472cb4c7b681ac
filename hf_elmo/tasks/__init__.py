"""Tools for fine-tuning: word vectors, stored layers, batches, metrics, learning rates, predictions, plots."""
