"""Small models in the formats of AllenNLP and of ELMoForManyLangs, made by the tests that read them."""

import json
import shutil
from itertools import product
from pathlib import Path

import h5py
import numpy as np
import torch

from hf_elmo.conversion.published import PUBLISHED
from tests.factories import write_lines

LSTM = {"projection_dim": 7, "dim": 11, "cell_clip": 3, "proj_clip": 0.8, "n_layers": 2, "use_skip_connections": True}
CHAR_CNN = {"activation": "relu", "filters": [[1, 4], [2, 5], [3, 8]], "n_highway": 2, "embedding": {"dim": 3}}
CHAR_CNN |= {"n_characters": 262, "max_characters_per_token": 50}
WORDS = ["the", "<S>", "cat", "</S>", "<UNK>", "x" * 60, "日本語", "."]
ENCODER = LSTM | {"name": "elmo", "cell_clip": 0.9, "proj_clip": 0.6}
EMBEDDER = CHAR_CNN | {"name": "cnn", "word_dim": 6, "char_dim": 3}


def make_options(lstm: dict | None = None, char_cnn: dict | None = None, **top: object) -> dict:
    """`LSTM` and `CHAR_CNN` with some entries replaced."""
    return {"lstm": LSTM | (lstm or {}), "char_cnn": CHAR_CNN | (char_cnn or {}), **top}


def make_arrays(options: dict, rows: int = 261, seed: int = 0, single_cell: bool = False) -> dict[str, np.ndarray]:
    """Random datasets as TensorFlow's training leaves them: no projection where the sizes are equal."""
    rng, lstm, cnn = np.random.default_rng(seed), options["lstm"], options.get("char_cnn")
    cell, size = lstm["dim"], lstm["projection_dim"]

    def normal(*shape: int) -> np.ndarray:
        # Twice what keeps the size of a product's input, so that gates saturate and both clips take part.
        fan_in = np.prod(shape[:-1])
        return rng.standard_normal(shape).astype(np.float32) * np.float32(2 / np.sqrt(max(fan_in, 4)))

    if cnn is None:
        arrays = {"embedding": normal(options["n_tokens_vocab"], size)}
    else:
        dim, filters = cnn["embedding"]["dim"], sum(number for _, number in cnn["filters"])
        arrays = {"char_embed": normal(rows, dim)}
        for i, (width, number) in enumerate(cnn["filters"]):
            arrays |= {f"CNN/W_cnn_{i}": normal(1, width, dim, number), f"CNN/b_cnn_{i}": normal(number)}
        for i, gate in product(range(cnn.get("n_highway") or 0), ("carry", "transform")):
            arrays |= {f"CNN_high_{i}/W_{gate}": normal(filters, filters), f"CNN_high_{i}/b_{gate}": normal(filters)}
        if filters != size:
            arrays |= {"CNN_proj/W_proj": normal(filters, size), "CNN_proj/b_proj": normal(size)}
    for direction, layer in product(range(2), range(lstm.get("n_layers", 1))):
        path = f"RNN_{direction}/RNN/" + ("LSTMCell" if single_cell else f"MultiRNNCell/Cell{layer}/LSTMCell")
        arrays |= {f"{path}/W_0": normal(2 * size, 4 * cell), f"{path}/B": normal(4 * cell)}
        if cell != size:
            arrays[f"{path}/W_P_0"] = normal(cell, size)
    return arrays


def write_files(folder: Path, options: dict | None = None, arrays: dict | None = None) -> tuple[Path, Path]:
    """Write both files, by default of random weights; returns their paths."""
    options = options or make_options()
    arrays = arrays or make_arrays(options)
    folder.mkdir(parents=True, exist_ok=True)
    options_path, weights_path = folder / "options.json", folder / "weights.hdf5"
    options_path.write_text(json.dumps(options))
    with h5py.File(weights_path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return options_path, weights_path


def write_words(folder: Path, lstm: dict | None = None) -> tuple[Path, Path]:
    """A word-level model as bilm-tf dumps it, and its `vocab.txt`; returns the paths of options and weights."""
    files = write_files(folder, {"lstm": LSTM | (lstm or {}), "n_tokens_vocab": len(WORDS)})
    (folder / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    return files


def write_published(cache: Path, name: str, sentences: list[list[str]]) -> list[Path]:
    """The files or the archive of a small model, under the names of a published one, as a download leaves them."""
    source, files = cache / "source" / name, [cache / name / path.rpartition("/")[2] for path in PUBLISHED[name].files]
    if name.startswith("manylangs"):
        write_model(source, make_settings(), sentences)
    else:
        options, weights = write_files(source)
        weights = weights.rename(source / ("model.hdf5" if name.startswith("nlpl") else "weights.hdf5"))
    files[0].parent.mkdir(parents=True)
    if len(files) == 2:
        return [shutil.copy(*each) for each in zip((options, weights), files, strict=True)]
    kind = "gztar" if files[0].suffix == ".gz" else "zip"
    archive = str(files[0]).removesuffix(".zip").removesuffix(".tar.gz")
    return [Path(shutil.make_archive(archive, kind, source))]


def make_settings(encoder: dict | None = None, embedder: dict | None = None) -> dict:
    """An architecture, with some entries replaced."""
    settings = {"encoder": ENCODER | (encoder or {}), "token_embedder": EMBEDDER | (embedder or {})}
    return settings | {"classifier": {"name": "sampled_softmax", "n_samples": 8192}, "dropout": 0.1}


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
