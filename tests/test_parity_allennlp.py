"""AllenNLP 2.10.1 itself, where an environment has it: set ELMO_ALLENNLP_PYTHON to that environment's Python."""

from pathlib import Path

import pytest
import torch

from benchmarks.parity_allennlp import (
    TOLERANCE,
    allennlp_layers,
    compare,
    differences,
    our_layers,
    write_hostile,
    write_wikitext,
)
from hf_elmo import ElmoConfig, ElmoTokenizer
from hf_elmo.conversion import export

from .conftest import random_model


def test_every_layer_of_converted_and_exported_weights(shared: Path, allennlp_python: str, tmp_path: Path) -> None:
    texts = {"wikitext": write_wikitext(shared, 50, tmp_path / "a.txt"), "hostile": write_hostile(tmp_path / "b.txt")}
    rows = compare(allennlp_python, shared, "tiny", texts, tmp_path, batch_size=8)
    assert len(rows) == 6
    for row in rows:
        assert max(row[6:]) <= TOLERANCE, row


@pytest.mark.parametrize(
    "sizes",
    [
        {"hidden_size": 24, "cell_size": 19},
        {"hidden_size": 14, "cell_size": 7, "proj_clip": 0.1},
        {"hidden_size": 24, "cell_size": 12, "num_highway_layers": 0, "num_hidden_layers": 3, "cell_clip": None},
    ],
    ids=["no character projection", "no cell projection", "no projection, no highway"],
)
def test_allennlp_reads_what_it_has_no_name_for(
    shared: Path, allennlp_python: str, tmp_path: Path, sizes: dict
) -> None:
    config = ElmoConfig(char_filters=[[1, 4], [3, 8]], char_embedding_size=3, **sizes)
    # Large weights amplify rounding: numbers of this seed are up to 1.1e-6 from those of float64, of seed 0 8.0e-6.
    model, checkpoint = random_model(config, seed=2), tmp_path / "checkpoint"
    torch.nn.init.normal_(model.bilm.forward_layers[0].bias, std=0.1)  # forget biases near 0 need a remainder
    model.save_pretrained(checkpoint)
    ElmoTokenizer().save_pretrained(checkpoint)
    exported, text = export(model, tmp_path / "exported"), write_hostile(tmp_path / "text.txt")
    found = our_layers(checkpoint, text, batch_size=5, carried=False)
    expected = allennlp_layers(allennlp_python, shared, exported, text, batch_size=5, carried=False)
    assert max(differences(found, expected)) <= TOLERANCE
