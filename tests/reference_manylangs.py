"""ELMoForManyLangs a second time, in NumPy and float64, straight from its files; it shares no line with the package.

Everything is done the slow way, one word, one window and one step at a time, as its own code defines it.
"""

import json
from pathlib import Path

import numpy as np
import torch


def read_dictionary(path: Path) -> dict[str, int]:
    entries = {}
    for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
        parts = line.strip().split("\t")
        entries[parts[0] if len(parts) == 2 else "\u3000"] = int(parts[-1])
    return entries


class NumpyManyLangs:
    """The model in a folder."""

    def __init__(self, folder: Path) -> None:
        settings = json.loads((folder / json.loads((folder / "config.json").read_text())["config_path"]).read_text())
        self.embedder, self.encoder = settings["token_embedder"], settings["encoder"]
        self.characters = read_dictionary(folder / "char.dic")
        self.words = read_dictionary(folder / "word.dic")
        self.token, self.lstm = (
            {name: tensor.double().numpy() for name, tensor in torch.load(folder / f"{file}.pkl").items()}
            for file in ("token_embedder", "encoder")
        )

    def layers(self, sentence: list[str]) -> np.ndarray:
        """`[num_layers + 1, words + 2, 2P]`, boundaries included, from zero state."""
        vectors = [self.vector("<bos>", True), *(self.vector(word, False) for word in sentence)]
        vectors.append(self.vector("<eos>", True))
        directions = []
        for name in ("forward", "backward"):
            outputs = [np.stack(vectors[::-1] if name == "backward" else vectors)]
            for layer in range(self.encoder["n_layers"]):
                output = self._run(f"{name}_layer_{layer}", outputs[-1])
                outputs.append(output + outputs[-1] if layer else output)
            directions.append([output[::-1] if name == "backward" else output for output in outputs])
        return np.stack([np.concatenate(pair, axis=1) for pair in zip(*directions, strict=True)])

    def vector(self, word: str, boundary: bool) -> np.ndarray:
        """One word's vector `[P]`."""
        word = word if boundary else word[: self.embedder["max_characters_per_token"] - 2]
        unknown = self.characters["<oov>"]
        inside = [word] if boundary else list(word)
        numbers = [self.characters.get(character, unknown) for character in inside]
        # The names of the two markers are exchanged in its code.
        numbers = [self.characters["<eow>"], *numbers, self.characters["<bow>"]]
        numbers += [self.characters["<pad>"]] * (self.embedder["max_characters_per_token"] - len(numbers))
        embedded = self.token["char_emb_layer.embedding.weight"][numbers]
        parts = []
        for i, (width, _) in enumerate(self.embedder["filters"]):
            weight, bias = self.token[f"convolutions.{i}.weight"], self.token[f"convolutions.{i}.bias"]
            windows = [
                np.einsum("wc,ncw->n", embedded[start : start + width], weight) + bias
                for start in range(len(numbers) - width + 1)
            ]
            parts.append(np.max(windows, axis=0))
        x = np.concatenate(parts)
        x = np.maximum(x, 0) if self.embedder["activation"] == "relu" else np.tanh(x)
        for i in range(self.embedder["n_highway"]):
            both = self.token[f"highways._layers.{i}.weight"] @ x + self.token[f"highways._layers.{i}.bias"]
            added, gate = np.maximum(both[: len(x)], 0), sigmoid(both[len(x) :])
            x = gate * x + (1 - gate) * added
        if self.embedder["word_dim"]:
            own = self.token["word_emb_layer.embedding.weight"][self.words.get(word, self.words["<oov>"])]
            x = np.concatenate([own, x])
        return self.token["projection.weight"] @ x + self.token["projection.bias"]

    def _run(self, layer: str, inputs: np.ndarray) -> np.ndarray:
        state = self.lstm[f"{layer}.state_linearity.weight"], self.lstm[f"{layer}.state_linearity.bias"]
        h, c, outputs = np.zeros(self.encoder["projection_dim"]), np.zeros(self.encoder["dim"]), []
        for x in inputs:
            gates = self.lstm[f"{layer}.input_linearity.weight"] @ x + state[0] @ h + state[1]
            i, f, g, o = np.split(gates, 4)
            c = bounded(sigmoid(i) * np.tanh(g) + sigmoid(f) * c, self.encoder["cell_clip"])
            h = self.lstm[f"{layer}.state_projection.weight"] @ (sigmoid(o) * np.tanh(c))
            h = bounded(h, self.encoder["proj_clip"])
            outputs.append(h)
        return np.stack(outputs)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def bounded(x: np.ndarray, bound: float | None) -> np.ndarray:
    return np.clip(x, -bound, bound) if bound else x
