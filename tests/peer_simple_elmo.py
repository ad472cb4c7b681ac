"""simple_elmo itself, TensorFlow's ELMo, run in an environment of its own: the layers of sentences, state carried.

PYTHON peer_simple_elmo.py MODEL SENTENCES.json BATCH LAYERS.npz
"""

import json
import sys

import numpy as np
from simple_elmo import ElmoModel


def main(folder: str, sentences: str, batch: str, saved: str) -> None:
    with open(sentences, encoding="utf-8") as file:
        texts = json.load(file)
    model = ElmoModel()
    model.load(folder, max_batch_size=int(batch))
    padded = model.get_elmo_vectors(texts, warmup=False, layers="all")  # [sentences, layers, words, 2P]
    np.savez(saved, **{str(i): layers[:, : len(texts[i])] for i, layers in enumerate(padded)})


if __name__ == "__main__":
    main(*sys.argv[1:])
