"""ELMoForManyLangs itself, run in an environment of its own: the layers of sentences, from zero state.

PYTHON peer_manylangs.py MODEL SENTENCES.json LAYERS.npz
"""

import json
import sys

import numpy as np
import torch
from elmoformanylangs import Embedder

BATCH = 7


def main(model: str, sentences: str, saved: str) -> None:
    torch.set_num_threads(1)
    embedder, arrays = Embedder(model, batch_size=BATCH), {}
    with open(sentences, encoding="utf-8") as file:
        texts = json.load(file)
    for start in range(0, len(texts), BATCH):
        embedder.model.encoder.reset_states()
        with torch.no_grad():
            layers = embedder.sents2elmo(texts[start : start + BATCH], output_layer=-2)
        arrays.update((str(start + number), array) for number, array in enumerate(layers))
    np.savez(saved, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
