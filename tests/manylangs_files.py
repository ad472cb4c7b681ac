"""Small models in ELMoForManyLangs' format, made by the tests that read them."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import torch

from .allennlp_files import CHAR_CNN, LSTM
from .factories import write_lines

ENCODER = LSTM | {"name": "elmo", "cell_clip": 0.9, "proj_clip": 0.6}
EMBEDDER = CHAR_CNN | {"name": "cnn", "word_dim": 6, "char_dim": 3}


def make_settings(encoder: dict | None = None, embedder: dict | None = None) -> dict:
    """An architecture, with some entries replaced."""
    return {
        "encoder": ENCODER | (encoder or {}),
        "token_embedder": EMBEDDER | (embedder or {}),
        "classifier": {"name": "sampled_softmax", "n_samples": 8192},
        "dropout": 0.1,
    }


def make_tensors(settings: dict, characters: int, words: int) -> tuple[dict, dict]:
    """The two state dicts; the LSTM's are large enough for both clips to take part; larger, rounding would grow."""
    generator = np.random.default_rng(0)

    def normal(*shape: int, gain: float = 0.7) -> torch.Tensor:
        scale = gain / max(np.prod(shape[1:]), 4) ** 0.5
        return torch.from_numpy((generator.standard_normal(shape) * scale).astype(np.float32))

    embedder, encoder = settings["token_embedder"], settings["encoder"]
    size, cell, widths = encoder["projection_dim"], encoder["dim"], embedder["filters"] if embedder["char_dim"] else []
    filters, token, encoded = sum(number for _, number in widths), {}, {}
    if embedder["word_dim"]:
        token["word_emb_layer.embedding.weight"] = normal(words, embedder["word_dim"])
    if widths:
        token["char_emb_layer.embedding.weight"] = normal(characters, embedder["char_dim"])
    shapes = {f"convolutions.{i}": (number, embedder["char_dim"], width) for i, (width, number) in enumerate(widths)}
    shapes |= {f"highways._layers.{i}": (2 * filters, filters) for i in range(embedder["n_highway"] if widths else 0)}
    shapes["projection"] = size, filters + embedder["word_dim"]
    for name, shape in shapes.items():
        token |= {f"{name}.weight": normal(*shape), f"{name}.bias": normal(shape[0])}
    for direction, layer in product(("forward", "backward"), range(encoder["n_layers"])):
        at = f"{direction}_layer_{layer}."
        encoded |= {f"{at}{part}_linearity.weight": normal(4 * cell, size) for part in ("input", "state")}
        encoded[f"{at}state_linearity.bias"] = normal(4 * cell)
        encoded[f"{at}state_projection.weight"] = normal(size, cell, gain=2)
    return token, encoded


def write_model(folder: Path, settings: dict, sentences: list[list[str]]) -> Path:
    """A whole model; the architecture is in `arch.json`."""
    # The characters and words of half of the words, in the order that ELMoForManyLangs' training writes them.
    known = [word for sentence in sentences for word in sentence][::2]
    words = list(dict.fromkeys(("<oov>", "<bos>", "<eos>", "<pad>", *known)))
    markers = ("<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>")
    characters = list(dict.fromkeys((*"".join(known), *markers)))
    lexicons = {"word.dic": words} | ({"char.dic": characters} if settings["token_embedder"]["char_dim"] else {})
    for name, entries in lexicons.items():
        write_lines(folder / name, (f"{entry}\t{number}" for number, entry in enumerate(entries)))
    token, encoded = make_tensors(settings, len(characters), len(words))
    torch.save(token, folder / "token_embedder.pkl")
    torch.save(encoded, folder / "encoder.pkl")
    (folder / "config.json").write_text(json.dumps({"seed": 1, "config_path": "arch.json", "lr": 0.001}))
    (folder / "arch.json").write_text(json.dumps(settings))
    return folder
