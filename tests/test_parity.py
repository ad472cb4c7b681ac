"""The same vectors as in the original libraries: stored ones everywhere, the libraries themselves where they are.
`python -m tests.test_parity [LIBRARY...]` stores them anew, by the Pythons that `.ci/peers` names."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from hf_elmo.conversion import convert, export
from tests import parity
from tests.factories import save_checkpoint, small_model

TOLERANCE = 1e-5


def compute_layers(checkpoint: Path, carried: bool) -> Iterator[np.ndarray]:
    """Of each of the sentences `[layers + 1, words + 2, 2P]`, boundaries included."""
    model, tokenizer = AutoModel.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
    state = None
    for start in range(0, len(parity.SENTENCES), parity.BATCH):
        rows = parity.SENTENCES[start : start + parity.BATCH]
        words = tokenizer(rows, is_split_into_words=True, padding=True, return_tensors="pt")
        with torch.no_grad():
            output = model(**words, state=state, use_cache=carried, output_hidden_states=True)
        state = output.state
        hidden = torch.stack(output.hidden_states).numpy()
        yield from (hidden[:, row, : len(sentence) + 2] for row, sentence in enumerate(rows))


@pytest.mark.parametrize(("library", "case"), [(name, case) for name in parity.CASES for case in parity.CASES[name]])
def test_the_vectors_of_the_original_library(library: str, case: str, tmp_path) -> None:
    checkpoint = convert(parity.write_source(library, case, tmp_path / "source"), tmp_path / "checkpoint")
    layers = compute_layers(checkpoint, carried=library in ("allennlp-carried", "simple_elmo"))
    if not library.startswith("allennlp"):  # boundaries are left out
        layers = (of_sentence[:, 1:-1] for of_sentence in layers)
    expected = parity.load_stored(library)[case]
    np.testing.assert_allclose(np.concatenate(list(layers), axis=1), expected, rtol=0, atol=TOLERANCE)


@pytest.mark.peer
@pytest.mark.parametrize("library", ["allennlp", "simple_elmo", "elmoformanylangs"])
def test_the_library_still_gives_the_stored_vectors(library: str, request, tmp_path) -> None:
    python = request.getfixturevalue(f"{library.removeprefix('elmofor')}_python")
    source = parity.write_source(library, "published", tmp_path / "source")
    found = np.concatenate(parity.run_peer(python, library, source, parity.SENTENCES), axis=1)
    np.testing.assert_allclose(found, parity.load_stored(library)["published"], rtol=0, atol=TOLERANCE)


def test_allennlp_reads_exported_files_of_what_it_has_no_name_for(allennlp_python, tmp_path) -> None:
    """No projections, with a clip that only AllenNLP would apply; no highway layer."""
    sizes = {"hidden_size": 24, "cell_size": 12, "num_highway_layers": 0, "num_hidden_layers": 3, "proj_clip": 0.1}
    sizes |= {"char_filters": [[1, 4], [3, 8]], "char_embedding_size": 3, "cell_clip": None}
    # Large weights amplify rounding: numbers of this seed are up to 1.1e-6 from those of float64, of seed 0 8.0e-6.
    model = small_model(seed=2, **sizes)
    torch.nn.init.normal_(model.bilm.layers[0].lstm.bias, std=0.1)  # forget biases near 0 need a remainder
    found = compute_layers(save_checkpoint(tmp_path / "checkpoint", model), carried=False)
    exported = export(model, tmp_path / "exported")
    expected = parity.run_peer(allennlp_python, "allennlp", exported, parity.SENTENCES)
    torch.testing.assert_close(list(found), expected, rtol=0, atol=TOLERANCE)


if __name__ == "__main__":
    for library in sys.argv[1:] or parity.CASES:
        python = os.environ[f"ELMO_{library.partition('-')[0].removeprefix('elmofor').upper()}_PYTHON"]
        arrays = {}
        for case in parity.CASES[library]:
            with tempfile.TemporaryDirectory() as folder:
                source = parity.write_source(library, case, Path(folder, "source"))
                arrays[case] = np.concatenate(parity.run_peer(python, library, source, parity.SENTENCES), axis=1)
        np.savez_compressed(parity.FOLDER / f"{library}.npz", **arrays)
