"""AllenNLP's format: read, held against a second implementation, written back bit by bit, refused when it is wrong."""

from functools import partial

import numpy as np
import pytest
import torch

from hf_elmo import ElmoModel, ElmoTokenizer
from hf_elmo.conversion import convert, export, load
from hf_elmo.conversion.allennlp import read_allennlp, read_hdf5
from tests.factories import layers_of, small_model, write_lines
from tests.reference import NumpyELMo
from tests.source_files import WORDS, make_arrays, make_options, write_files, write_words

SENTENCES = [["The", "cat", "sat", "on", "the", "mat", "."], ["Ünïcödé", "日本語", "", "x" * 60, "a\x00b"], ["A"]]
CELL = "RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell"
# bilm-tf's defaults: one layer, no clips, no skip connections, no highway layers.
DEFAULTS = {"lstm": {"projection_dim": 7, "dim": 11}, "char_cnn": make_options()["char_cnn"] | {"n_highway": None}}
ARCHITECTURES = [make_options(), DEFAULTS, make_options(char_cnn={"activation": "tanh", "n_highway": 0})]
ARCHITECTURES += [make_options({"use_skip_connections": False, "n_layers": 3}, {"n_highway": 5})]
# Without a projection of characters, of cells, and without both.
ARCHITECTURES += [make_options({"projection_dim": 17, "n_layers": 3}), make_options({"dim": 7, "proj_clip": 0.1})]
ARCHITECTURES += [make_options({"projection_dim": 17, "dim": 17}), make_options({"cell_clip": None, "proj_clip": None})]
ARCHITECTURES += [make_options(char_cnn={"max_characters_per_token": 9})]
# What an error says, and the options and the changed arrays, or the vocabulary, that cause it.
UNFIT = {
    r"convolutions\.2\.bias": (make_options(), {"CNN/b_cnn_2": None}),
    r"layers\.0\.lstm\.bias_reverse": (make_options(), {f"{CELL}/B": np.zeros(40)}),
    r"highways\.1\.carry\.weight": (make_options(), {"CNN_high_1/W_carry": np.full((17, 17), np.nan)}),
    r"layers\.1": (make_options({"n_layers": 1}), {}),
    "more": (make_options(), {"CNN/more": np.zeros(1)}),
}
UNFIT_VOCABULARIES = {
    "the embedding has 8 rows, but the vocabulary 7": WORDS[:-1],
    "the vocabulary lacks </S>": ["the", "<S>", "cat", "</s>", "<UNK>", "a", "b", "."],
    "the vocabulary lacks <S>: give the file": None,
}
# Words that the lists have and lack; `<S>` in a text is no boundary.
TEXTS = [["the", "cat", "saw", "x" * 60, "."], ["日本語", "x" * 59, "<UNK>"], ["the"]]
assert_near = partial(torch.testing.assert_close, rtol=0, atol=1e-5, check_dtype=False)


@pytest.mark.parametrize("options", ARCHITECTURES, ids=str)
def test_the_layers_are_those_of_a_second_implementation(tmp_path, options: dict) -> None:
    arrays = make_arrays(options, single_cell=options is DEFAULTS)
    paths, back = write_files(tmp_path / "source", options, arrays), tmp_path / "back"
    model = load(*paths)
    export(model, back)
    references = NumpyELMo(*paths), NumpyELMo(back / "options.json", back / "weights.hdf5")
    tokenizer = ElmoTokenizer(max_word_length=model.config.max_word_length)
    found = layers_of(model, tokenizer, SENTENCES)
    for reference in references:
        assert_near(found, [reference.layers(words)[0] for words in SENTENCES])
    written = read_hdf5(back / "weights.hdf5")
    identities = {"CNN_proj/W_proj": model.config.char_projection, f"{CELL}/W_P_0": model.config.cell_projection}
    for name, is_projection in identities.items():
        assert np.array_equal(written[name], np.eye(*written[name].shape)) == (not is_projection)
    source, exported = read_allennlp(*paths), read_allennlp(back)
    np.testing.assert_equal(exported.arrays, source.arrays)
    without_effect = {} if source.config.cell_projection else {"proj_clip": None}
    assert exported.config.to_dict() | without_effect == source.config.to_dict() | without_effect


def test_a_forget_gates_bias_comes_back_bit_by_bit(source, tmp_path) -> None:
    """Its 1 is subtracted in the file: a value near 0, or as small as 1e-30, would lose its digits."""
    model = load(*source)
    values = torch.logspace(-38, 7, model.bilm.layers[0].lstm.bias.numel())
    model.bilm.layers[0].lstm.bias.data.copy_(values)
    folder = export(model, tmp_path / "out")
    back = load(folder / "options.json", folder / "weights.hdf5")
    assert torch.equal(back.bilm.layers[0].lstm.bias, values)


def test_what_the_format_cannot_store(tmp_path) -> None:
    for changes in ({"settled_start": True}, {"char_vocab_size": 300}):
        with pytest.raises(ValueError, match=next(iter(changes))):
            export(small_model(**changes), tmp_path / "out")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("error", UNFIT)
def test_files_that_do_not_fit(error: str, tmp_path) -> None:
    options, changes = UNFIT[error]
    arrays = {name: array for name, array in (make_arrays(make_options()) | changes).items() if array is not None}
    with pytest.raises(ValueError, match=error):
        load(*write_files(tmp_path, options, arrays))


def test_characters_are_those_of_the_tensor(tmp_path) -> None:
    options = make_options(char_cnn={"n_characters": 261})
    assert load(*write_files(tmp_path, options, make_arrays(options, rows=262))).config.char_vocab_size == 263


@pytest.mark.parametrize("changed", ["weight", "bias"])
def test_a_projection_that_is_nearly_the_identity_is_a_projection(changed: str, tmp_path) -> None:
    options, weight, bias = make_options({"projection_dim": 17}), np.eye(17, dtype=np.float32), np.zeros(17)
    arrays = make_arrays(options) | {"CNN_proj/W_proj": weight, "CNN_proj/b_proj": bias}
    (weight if changed == "weight" else bias)[3] += 1e-6
    source = read_allennlp(*write_files(tmp_path / "other", options, arrays))
    assert source.config.char_projection
    np.testing.assert_array_equal(source.arrays["char_encoder.projection.weight"], weight.T)
    np.testing.assert_array_equal(source.arrays["char_encoder.projection.bias"], bias.astype(np.float32))


@pytest.mark.parametrize("lstm", [{}, {"n_layers": 1, "dim": 7}], ids=["projection", "one layer, no projection"])
def test_a_word_level_model_and_back(lstm: dict, tmp_path) -> None:
    paths = write_words(tmp_path / "source", lstm=lstm)
    out = convert(paths[0].parent, tmp_path / "out")
    back = export(out, tmp_path / "back")
    layers = layers_of(ElmoModel.from_pretrained(out), ElmoTokenizer.from_pretrained(out), TEXTS)
    for options, weights in (paths, (back / "options.json", back / "weights.hdf5")):
        reference = NumpyELMo(options, weights)
        assert_near(layers, [reference.layers(words)[0] for words in TEXTS])
    for folder in (out, back):
        assert (folder / "vocab.txt").read_text(encoding="utf-8").split() == WORDS
    np.testing.assert_array_equal(*(read_hdf5(file)["embedding"] for file in (back / "weights.hdf5", paths[1])))
    again = ElmoModel.from_pretrained(convert(back, tmp_path / "again"))
    torch.testing.assert_close(again.state_dict(), ElmoModel.from_pretrained(out).state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(("error", "words"), UNFIT_VOCABULARIES.items())
def test_a_vocabulary_that_does_not_fit(error: str, words: list | None, tmp_path) -> None:
    options, _ = write_words(tmp_path / "words")
    vocabulary = options.with_name("vocab.txt")
    vocabulary.unlink() if words is None else write_lines(vocabulary, words)
    with pytest.raises(ValueError, match=error):
        convert(options.parent, tmp_path / "out")
