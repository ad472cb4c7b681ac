"""The picture of what a task took of each layer: its bars are the weights."""

from pathlib import Path

import pytest
import torch

from hf_elmo import ElmoConfig, ElmoForSequenceClassification, ElmoModel, layer_weights, plot_layer_weights
from tests.conftest import TINY, random_model


def test_bars_are_the_weights(tmp_path: Path) -> None:
    config = ElmoConfig(**TINY, encoder_type="bilstm", elmo_at_output=True)
    model = random_model(config, ElmoForSequenceClassification)
    model.elmo.scalar_mix.scalars.data[0, 1], model.output_mix.gamma.data[0] = 1.0, 2.5
    found = layer_weights(model)
    assert list(found) == ["input", "output"]
    assert found["input"][0] == pytest.approx(torch.softmax(torch.tensor([0.0, 1.0, 0.0]), 0).tolist())
    assert found["output"] == (pytest.approx([1 / 3] * 3), 2.5)
    axes = plot_layer_weights(model, path=tmp_path / "weights.png", title="a task")
    assert [bar.get_height() for bar in axes.patches] == pytest.approx(found["input"][0] + found["output"][0])
    assert [label.get_text() for label in axes.get_legend().get_texts()] == [
        "input (gamma 1.00)",
        "output (gamma 2.50)",
    ]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["characters", "LSTM 1", "LSTM 2"]
    assert (tmp_path / "weights.png").read_bytes()[:4] == b"\x89PNG"


def test_several_mixes_and_fixed_ones() -> None:
    assert list(layer_weights(ElmoModel(ElmoConfig(**TINY, num_scalar_mixes=2)))) == ["input 1", "input 2"]
    assert layer_weights(ElmoModel(ElmoConfig(**TINY, layer_weights=-1))) == {"input": ([0.0, 0.0, 1.0], 1.0)}


def test_mixes_inside_of_an_adapter() -> None:
    config = ElmoConfig(**TINY, encoder_type="bilstm", elmo_at_output=True, encoder_hidden_size=5)
    model = ElmoForSequenceClassification(config)
    torch.nn.init.constant_(model.output_mix.gamma, 2.0)
    model.output_mix = torch.nn.ModuleDict({"default": model.output_mix})  # as PEFT's modules_to_save do
    assert {place: gamma for place, (_, gamma) in layer_weights(model).items()} == {"input": 1.0, "output": 2.0}


def test_a_model_without_a_mix_is_refused() -> None:
    config = ElmoConfig(**TINY, use_elmo=False, word_vectors_vocab_size=9)
    with pytest.raises(ValueError, match="has no mix of layers"):
        plot_layer_weights(ElmoForSequenceClassification(config))
