"""Vectors of AllenNLP 2.10.1, TensorFlow (simple_elmo 0.9.2) and elmoformanylangs 0.0.4.post2, stored in `LIBRARY.npz`,
of weights that NumPy's PCG64 makes from a seed (tests/test_parity.py writes them)."""

import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from tests.source_files import make_arrays, make_options, make_settings, write_files, write_model

FOLDER = Path(__file__).parent
SENTENCES = [
    "The cat sat on the mat .",
    "naïve façade Ångström ﬁne № ™ ½ ſ ẞ İstanbul ı",
    "a",
    "e\u0301 Z\u0351\u036b\u0343\u034fA\u0334L\u0323GO \u200d \u200b \ufeff",
    "日本語 한국어 ไทยไม่มีช่องว่าง שלום مرحبا \u202eright-to-left\u202c",
    "😀 👩\u200d👩\u200d👧 🏳\ufe0f\u200d🌈 𝔐𝔞𝔱𝔥 𐍈 \U0010ffff \ufffd \ufdd0",
    "He sat on the river bank and watched the bank of the other side for a long , long time .",
    " ".join(["x" * length for length in (47, 48, 49, 500)] + ["é" * 24, "é" * 25, "a" + "日" * 16]),
    ". . . .",
    "<s> </s> <UNK> <unk> <pad> &amp; \\n ' \" --",
    "a\x01\x02 \x7f tab\u00a0nbsp\u2003em",
    "It didn 't rain in Spain",
]
SENTENCES = [sentence.split() for sentence in SENTENCES]
BATCH = 3
DEEP = {"lstm": {"n_layers": 3, "cell_clip": 1.5}, "char_cnn": {"n_highway": 1, "activation": "tanh"}}
PLAIN = {"lstm": {"projection_dim": 17, "dim": 17, "proj_clip": None}, "char_cnn": {"n_highway": None}}
MANYLANGS = {
    "published": {},
    "characters": {"embedder": {"word_dim": 0, "activation": "tanh", "n_highway": 1}, "encoder": {"n_layers": 3}},
    "words": {"embedder": {"char_dim": 0}},
    "words, not cut": {"embedder": {"char_dim": 0, "name": "lstm"}},
    "short words, no highway": {"embedder": {"n_highway": 0, "max_characters_per_token": 9}},
    "no clips": {"encoder": {"cell_clip": 0, "proj_clip": 0, "dim": 7, "n_layers": 1}},
}
# Of each library (as tests/parity/peers.py names it) the architectures.
CASES = {
    "allennlp": {"published": {}, "deep": DEEP},
    "allennlp-carried": {"published": {}},
    "simple_elmo": {"published": {}, "deep": DEEP, "no projections": PLAIN},
    "elmoformanylangs": MANYLANGS,
}


def write_source(library: str, case: str, folder: Path) -> Path:
    """A folder with random weights in the library's format."""
    if library == "elmoformanylangs":
        return write_model(folder, make_settings(**CASES[library][case]), SENTENCES[::2])
    options = make_options(**CASES[library][case])
    _, weights = write_files(folder, options, make_arrays(options))
    return weights.rename(folder / "model.hdf5").parent if library == "simple_elmo" else folder


def run_peer(python: str, library: str, model: Path, sentences: list[list[str]]) -> list[np.ndarray]:
    """Of each sentence the layers `[layers + 1, words, 2P]` by the library itself, in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        texts, saved = Path(name, "sentences.json"), Path(name, "layers.npz")
        texts.write_text(json.dumps(sentences))
        command = [python, FOLDER / "peers.py", library, model, texts, str(BATCH), saved]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{library} failed:\n{done.stderr}")
        with np.load(saved) as arrays:
            return [arrays[str(number)] for number in range(len(sentences))]


def load_stored(library: str) -> dict[str, np.ndarray]:
    """Of each case the layers `[layers + 1, all words, 2P]` of the sentences, one after another."""
    with np.load(FOLDER / f"{library}.npz") as arrays:
        return dict(arrays)
