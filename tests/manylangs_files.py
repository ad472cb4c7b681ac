"""Small models in ELMoForManyLangs' format, made by the tests that read them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .allennlp_files import CHAR_CNN, LSTM

ENCODER = LSTM | {"name": "elmo", "cell_clip": 0.9, "proj_clip": 0.6}
EMBEDDER = CHAR_CNN | {"name": "cnn", "word_dim": 6, "char_dim": 3}


def make_settings(encoder: dict[str, Any] | None = None, embedder: dict[str, Any] | None = None) -> dict[str, Any]:
    """An architecture, with some entries replaced."""
    return {
        "encoder": ENCODER | (encoder or {}),
        "token_embedder": EMBEDDER | (embedder or {}),
        "classifier": {"name": "sampled_softmax", "n_samples": 8192},
        "dropout": 0.1,
    }


def make_tensors(
    settings: dict[str, Any], characters: int, words: int, seed: int = 0
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The two state dicts; the LSTM's are large enough for both clips to take part; larger, rounding would grow."""
    generator = np.random.default_rng(seed)

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
    for i, (width, number) in enumerate(widths):
        token[f"convolutions.{i}.weight"] = normal(number, embedder["char_dim"], width)
        token[f"convolutions.{i}.bias"] = normal(number)
    for i in range(embedder["n_highway"] if widths else 0):
        token[f"highways._layers.{i}.weight"] = normal(2 * filters, filters)
        token[f"highways._layers.{i}.bias"] = normal(2 * filters)
    token["projection.weight"], token["projection.bias"] = normal(size, filters + embedder["word_dim"]), normal(size)
    for direction in ("forward", "backward"):
        for layer in range(encoder["n_layers"]):
            at = f"{direction}_layer_{layer}."
            encoded[f"{at}input_linearity.weight"] = normal(4 * cell, size)
            encoded[f"{at}state_linearity.weight"] = normal(4 * cell, size)
            encoded[f"{at}state_linearity.bias"] = normal(4 * cell)
            encoded[f"{at}state_projection.weight"] = normal(size, cell, gain=2)
    return token, encoded


def write_model(
    folder: Path, settings: dict[str, Any], sentences: list[list[str]], config_path: str = "arch.json", seed: int = 0
) -> Path:
    """A whole model; the architecture is in `config_path`, where that is a name alone."""
    folder.mkdir(parents=True)
    # The characters and words of half of the words, in the order that ELMoForManyLangs' training writes them.
    known = [word for sentence in sentences for word in sentence][::2]
    words = list(dict.fromkeys(("<oov>", "<bos>", "<eos>", "<pad>", *known)))
    markers = ("<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>")
    characters = list(dict.fromkeys((*"".join(known), *markers)))
    lexicons = {"word.dic": words} | ({"char.dic": characters} if settings["token_embedder"]["char_dim"] else {})
    for name, entries in lexicons.items():
        lines = (f"{entry}\t{number}\n" for number, entry in enumerate(entries))
        (folder / name).write_text("".join(lines), encoding="utf-8", newline="\n")
    token, encoded = make_tensors(settings, len(characters), len(words), seed)
    torch.save(token, folder / "token_embedder.pkl")
    torch.save(encoded, folder / "encoder.pkl")
    (folder / "config.json").write_text(json.dumps({"seed": 1, "config_path": config_path, "lr": 0.001}))
    if "/" not in config_path and "\\" not in config_path:
        (folder / config_path).write_text(json.dumps(settings))
    return folder
