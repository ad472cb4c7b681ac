"""Fine-tuning at home: word vectors, stored layers, batches, metrics, learning rates, pipelines, plots."""
