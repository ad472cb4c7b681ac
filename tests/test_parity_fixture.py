"""AllenNLP's own test model: TensorFlow's stored activations and word vectors (needs the shared data)."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from hf_elmo import ElmoModel, ElmoTokenizer
from hf_elmo.conversion import convert


@pytest.fixture(scope="module")
def fixture(shared: Path) -> Path:
    return shared / "data" / "elmo_fixture"


@pytest.fixture(scope="module")
def checkpoint(fixture: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[ElmoModel, ElmoTokenizer]:
    out = tmp_path_factory.mktemp("converted") / "elmo-fixture"
    convert(fixture / "options.json", fixture / "lm_weights.hdf5", out)
    return ElmoModel.from_pretrained(out), ElmoTokenizer.from_pretrained(out)


def test_top_layer_with_carried_state_equals_tensorflow(
    fixture: Path, checkpoint: tuple[ElmoModel, ElmoTokenizer]
) -> None:
    model, tokenizer = checkpoint
    streams = [
        [sentence.split() for sentence in stream] for stream in json.loads((fixture / "sentences.json").read_text())
    ]
    assert [len(stream) for stream in streams] == [10, 10, 10]
    expected = []
    for number in range(3):
        with h5py.File(fixture / f"lm_embeddings_{number}.hdf5") as file:
            expected.append([np.concatenate(file[str(i)][...], axis=1) for i in range(10)])  # forward; backward
    state = None
    for i, batch in enumerate(zip(*streams, strict=True)):
        words = tokenizer(list(batch), is_split_into_words=True, padding=True, return_tensors="pt")
        with torch.no_grad():
            output = model(**words, state=state, output_hidden_states=True, use_cache=True)
        state = output.state
        for row, sentence in enumerate(batch):
            found = output.hidden_states[-1][row, 1 : len(sentence) + 1].numpy()
            np.testing.assert_allclose(found, expected[row][i], rtol=0, atol=2e-6)


def test_word_vectors_equal_tensorflow(fixture: Path, checkpoint: tuple[ElmoModel, ElmoTokenizer]) -> None:
    model, tokenizer = checkpoint
    words = (fixture / "vocab_test.txt").read_text(encoding="utf-8").splitlines()
    with h5py.File(fixture / "elmo_token_embeddings.hdf5") as file:
        expected = file["embedding"][...]
    assert len(words) == len(expected) == 458
    with torch.no_grad():
        found = model.char_encoder(torch.tensor(tokenizer.convert_tokens_to_ids(words))).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
