"""Other implementations of ELMo, run in an environment of their own: the layers of sentences, by
`PYTHON tests/parity/peers.py LIBRARY MODEL SENTENCES.json BATCH LAYERS.npz`.

MODEL is the folder of a model in the library's format. With `allennlp` each batch starts from zero state and sentences
have their boundaries; with `allennlp-carried` and `simple_elmo`, TensorFlow's code, the state is carried from batch to
batch; `simple_elmo` and `elmoformanylangs` leave boundaries out, the latter starts from zero state.
"""

import json
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

Batches = list[list[list[str]]]


def fill_in_removed_names() -> None:
    """The names that AllenNLP 2.10.1 imports, that libraries no longer have, and that its ELMo does not use."""
    import huggingface_hub

    class StandIn(types.ModuleType):
        __path__ = ()

        def __getattr__(self, name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {})

    for name in ("HfFolder", "Repository"):
        if not hasattr(huggingface_hub, name):
            setattr(huggingface_hub, name, type(name, (), {}))
    torch.optim.lr_scheduler._LRScheduler = torch.optim.lr_scheduler.LRScheduler
    fairscale = ("nn", "nn.checkpoint", "nn.wrap", "nn.misc", "optim", "optim.grad_scaler")
    for name in ("torchvision", "torchvision.transforms", "fairscale", *(f"fairscale.{part}" for part in fairscale)):
        sys.modules[name] = StandIn(name)


def allennlp(model: Path, batches: Batches, carried: bool = False) -> Iterator[np.ndarray]:
    fill_in_removed_names()
    from allennlp.modules.elmo import _ElmoBiLm, batch_to_ids

    bilm = _ElmoBiLm(str(model / "options.json"), str(model / "weights.hdf5")).eval()
    for batch in batches:
        if not carried:
            bilm._elmo_lstm.reset_states()
        layers = torch.stack(bilm(batch_to_ids(batch))["activations"]).numpy()
        yield from (layers[:, row, : len(sentence) + 2] for row, sentence in enumerate(batch))


def simple_elmo(model: Path, batches: Batches) -> Iterator[np.ndarray]:
    os.environ["TF_USE_LEGACY_KERAS"] = "1"  # Keras 3 has no LSTMCell
    from simple_elmo import ElmoModel

    elmo, sentences = ElmoModel(), [sentence for batch in batches for sentence in batch]
    elmo.load(str(model), max_batch_size=len(batches[0]))
    padded = elmo.get_elmo_vectors(sentences, warmup=False, layers="all")  # [sentences, layers, words, 2P]
    yield from (layers[:, : len(sentence)] for layers, sentence in zip(padded, sentences, strict=True))


def elmoformanylangs(model: Path, batches: Batches) -> Iterator[np.ndarray]:
    from elmoformanylangs import Embedder

    embedder = Embedder(str(model), batch_size=len(batches[0]))
    for batch in batches:
        embedder.model.encoder.reset_states()
        yield from embedder.sents2elmo(batch, output_layer=-2)


def main(library: str, model: str, sentences: str, batch: str, saved: str) -> None:
    torch.set_num_threads(1)  # two threads would wait for each other when other work runs
    texts, size = json.loads(Path(sentences).read_text(encoding="utf-8")), int(batch)
    batches = [texts[start : start + size] for start in range(0, len(texts), size)]
    name, *carried = library.split("-")
    with torch.no_grad():
        layers = list(globals()[name](Path(model), batches, *map(bool, carried)))
    np.savez(saved, **{str(number): array for number, array in enumerate(layers)})


if __name__ == "__main__":
    main(*sys.argv[1:])
