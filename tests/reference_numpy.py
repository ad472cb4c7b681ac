"""
ELMo a second time, in NumPy and float64, straight from AllenNLP's files: what the package's numbers are held against.

It shares no line with the package. Everything is done the slow way, one word, one window and one step at a time.
"""

import json
from pathlib import Path

import h5py
import numpy as np

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = 256, 257, 258, 259, 260

State = dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]


def characters_of(word: str, length: int = 50) -> list[int]:
    """A word as numbers 0 to 260, as the file's character embedding counts them."""
    data = list(word.encode("utf-8", "ignore"))[: length - 2]
    return [BEGIN_WORD, *data, END_WORD] + [PADDING] * (length - 2 - len(data))


def boundary(character: int, length: int = 50) -> list[int]:
    """`<S>` or `</S>` as a word of one special character."""
    return [BEGIN_WORD, character, END_WORD] + [PADDING] * (length - 3)


class NumpyELMo:
    """The biLM of one pair of files."""

    def __init__(self, options: Path, weights: Path) -> None:
        self.options = json.loads(Path(options).read_text())
        self.weights: dict[str, np.ndarray] = {}
        with h5py.File(weights) as file:
            file.visititems(self._keep)

    def _keep(self, name: str, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(item, h5py.Dataset):
            self.weights[name] = item[...].astype(np.float64)

    def layers(self, words: list[str], state: State | None = None) -> tuple[np.ndarray, State]:
        """A sentence's layers `[num_layers + 1, words + 2, 2P]`, boundaries included, and the state at its end."""
        length = self.options["char_cnn"]["max_characters_per_token"]
        rows = [boundary(BEGIN_SENTENCE, length), *(characters_of(word, length) for word in words)]
        rows.append(boundary(END_SENTENCE, length))
        vectors = np.stack([self.word_vector(row) for row in rows])
        after: State = {}
        stacks = []
        for direction in range(2):
            x = vectors[::-1] if direction else vectors
            outputs = [x]
            for layer in range(self.options["lstm"].get("n_layers", 1)):
                y, after[direction, layer] = self._lstm(
                    direction, layer, outputs[-1], (state or {}).get((direction, layer))
                )
                skip = layer > 0 and self.options["lstm"].get("use_skip_connections", False)
                outputs.append(y + outputs[-1] if skip else y)
            stacks.append([output[::-1] if direction else output for output in outputs])
        return np.stack([np.concatenate(pair, axis=1) for pair in zip(*stacks, strict=True)]), after

    def word_vector(self, characters: list[int]) -> np.ndarray:
        """One word's vector `[P]` from its characters."""
        options, w = self.options["char_cnn"], self.weights
        embedded = w["char_embed"][characters]
        activation = {"relu": lambda v: np.maximum(v, 0), "tanh": np.tanh}[options["activation"]]
        pieces = []
        for i, (width, number) in enumerate(options["filters"]):
            windows = [
                np.einsum("wd,wdn->n", embedded[start : start + width], w[f"CNN/W_cnn_{i}"][0]) + w[f"CNN/b_cnn_{i}"]
                for start in range(len(characters) - width + 1)
            ]
            assert windows[0].shape == (number,)
            pieces.append(activation(np.max(windows, axis=0)))
        x = np.concatenate(pieces)
        for i in range(options.get("n_highway") or 0):
            gate = sigmoid(x @ w[f"CNN_high_{i}/W_carry"] + w[f"CNN_high_{i}/b_carry"])
            x = (
                gate * np.maximum(x @ w[f"CNN_high_{i}/W_transform"] + w[f"CNN_high_{i}/b_transform"], 0)
                + (1 - gate) * x
            )
        return x @ w["CNN_proj/W_proj"] + w["CNN_proj/b_proj"] if "CNN_proj/W_proj" in w else x

    def _lstm(
        self, direction: int, layer: int, inputs: np.ndarray, start: tuple[np.ndarray, np.ndarray] | None
    ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        options = self.options["lstm"]
        path = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
        if f"{path}/W_0" not in self.weights:
            path = f"RNN_{direction}/RNN/LSTMCell"
        kernel, bias = self.weights[f"{path}/W_0"], self.weights[f"{path}/B"]
        projection = self.weights.get(f"{path}/W_P_0")
        h, c = start or (np.zeros(options["projection_dim"]), np.zeros(options["dim"]))
        outputs = []
        for x in inputs:
            i, j, f, o = np.split(np.concatenate([x, h]) @ kernel + bias, 4)
            c = clip(sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j), options.get("cell_clip"))
            h = sigmoid(o) * np.tanh(c)
            if projection is not None:
                h = clip(h @ projection, options.get("proj_clip"))
            outputs.append(h)
        return np.stack(outputs), (h, c)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def clip(x: np.ndarray, bound: float | None) -> np.ndarray:
    return x if bound is None else np.clip(x, -bound, bound)
