"""AllenNLP's format: read, held against a second implementation, written back bit by bit, refused when it is wrong."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from hf_elmo import ElmoConfig, ElmoModel, ElmoTokenizer
from hf_elmo.conversion import export, load
from hf_elmo.conversion.allennlp import (
    key_table,
    read_lstm_bias,
    read_weights,
    swap_gates,
    write_lstm_bias,
    write_weights,
)
from hf_elmo.conversion.allennlp_options import options_from_config

from ..allennlp_files import make_arrays, make_options, write_files
from ..reference_numpy import NumpyELMo

SENTENCES = [
    ["The", "cat", "sat", "on", "the", "mat", "."],
    ["Ünïcödé", "日本語", "", "x" * 60, "a\x00b"],
    ["A"],
]

# What bilm-tf's bin/train_elmo.py writes beside the architecture.
TRAINING = {
    "bidirectional": True,
    "dropout": 0.1,
    "all_clip_norm_val": 10.0,
    "n_epochs": 10,
    "n_train_tokens": 768648884,
    "batch_size": 128,
    "n_tokens_vocab": 793471,
    "unroll_steps": 20,
    "n_negative_samples_batch": 8192,
}

ARCHITECTURES = {
    "published kind": make_options(),
    "tanh": make_options(char_cnn={"activation": "tanh"}),
    "no skip connections": make_options({"use_skip_connections": False, "n_layers": 3}),
    "one layer": make_options({"n_layers": 1}),
    "three layers": make_options({"n_layers": 3}),
    "no highway layer": make_options(char_cnn={"n_highway": 0}),
    "five highway layers": make_options(char_cnn={"n_highway": 5}),
    "no character projection": make_options({"projection_dim": 17}),
    "no cell projection": make_options({"dim": 7, "proj_clip": 0.1}),
    "no projection at all": make_options({"projection_dim": 17, "dim": 17}),
    "small cell": make_options({"dim": 5}),
    "no clips": make_options({"cell_clip": None, "proj_clip": None}),
    "tight clips": make_options({"cell_clip": 0.5, "proj_clip": 0.25}),
    "short words": make_options(char_cnn={"max_characters_per_token": 9}),
    "training options": make_options(char_cnn={"n_characters": 261}, **TRAINING),
}


def assert_same_tensors(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> None:
    assert first.keys() == second.keys()
    for key, array in first.items():
        np.testing.assert_array_equal(array, second[key], err_msg=key)


def layers_of(model: ElmoModel, sentences: list[list[str]]) -> list[np.ndarray]:
    """For each sentence its layers `[num_layers + 1, words + 2, 2P]`."""
    tokenizer = ElmoTokenizer(max_word_length=model.config.max_word_length)
    batch = tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
    with torch.no_grad():
        layers = torch.stack(model(**batch, output_hidden_states=True).hidden_states).numpy()
    return [layers[:, row, : len(sentence) + 2] for row, sentence in enumerate(sentences)]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    options = make_options()
    return write_files(tmp_path / "source", options, make_arrays(options))


class TestNumbers:
    @pytest.mark.parametrize("options", ARCHITECTURES.values(), ids=ARCHITECTURES.keys())
    def test_equals_a_second_implementation(self, tmp_path: Path, options: dict) -> None:
        paths = write_files(tmp_path, options, make_arrays(options))
        reference = NumpyELMo(*paths)
        for found, words in zip(layers_of(load(*paths), SENTENCES), SENTENCES, strict=True):
            expected, _ = reference.layers(words)
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)

    def test_clips_take_part(self, files: tuple[Path, Path]) -> None:
        with_clips = layers_of(load(*files), SENTENCES)[0]
        for clip in ("cell_clip", "proj_clip"):
            options = make_options({clip: None})
            files[0].write_text(json.dumps(options))
            assert np.abs(layers_of(load(*files), SENTENCES)[0] - with_clips).max() > 1e-3, clip

    def test_single_cell_as_bilm_tf_dumps_it(self, tmp_path: Path) -> None:
        options = make_options({"n_layers": 1})
        plain = write_files(tmp_path / "plain", options, make_arrays(options))
        dumped = write_files(tmp_path / "dumped", options, make_arrays(options, single_cell=True))
        assert_same_tensors(read_weights(*plain)[1], read_weights(*dumped)[1])

    def test_absent_options_have_bilm_tf_defaults(self, tmp_path: Path) -> None:
        options = make_options()
        for key in ("n_layers", "cell_clip", "proj_clip", "use_skip_connections"):
            del options["lstm"][key]
        del options["char_cnn"]["n_highway"], options["char_cnn"]["n_characters"]
        config, _ = read_weights(*write_files(tmp_path, options, make_arrays(options)))
        assert (config.num_hidden_layers, config.cell_clip, config.proj_clip) == (1, None, None)
        assert (config.use_skip_connections, config.num_highway_layers) == (False, 0)


class TestTable:
    def test_each_dataset_and_tensor_once(self) -> None:
        config = ElmoConfig(hidden_size=14, cell_size=11, char_filters=[[1, 4], [3, 8]])
        rows = key_table(config)
        datasets = [dataset.name for row in rows for dataset in row.datasets]
        targets = [target for row in rows for target in row.targets]
        assert len(datasets) == len(set(datasets))
        assert len(targets) == len(set(targets))
        assert {*targets, "scalar_mix.scalars", "scalar_mix.gamma"} == ElmoModel(config).state_dict().keys()

    @pytest.mark.parametrize("rows", [261, 262])
    def test_characters_are_read_from_the_tensor(self, tmp_path: Path, rows: int) -> None:
        options = make_options()
        arrays = make_arrays(options, rows=rows)
        config, tensors = read_weights(*write_files(tmp_path, options, arrays))
        embedding = tensors["char_encoder.embedding.weight"]
        assert config.char_vocab_size == len(embedding) == rows + 1
        assert not embedding[0].any()
        np.testing.assert_array_equal(embedding[1:], arrays["char_embed"])
        write_weights(tmp_path, config, tensors)
        assert_same_tensors(read_weights(tmp_path / "options.json", tmp_path / "weights.hdf5")[1], tensors)

    def test_gates_change_order_and_the_forget_gate_gets_its_one(self) -> None:
        np.testing.assert_array_equal(swap_gates(np.arange(8)), [0, 1, 4, 5, 2, 3, 6, 7])
        (bias,) = read_lstm_bias(np.array([10, 20, 30, 40], dtype=np.float32), None)
        np.testing.assert_array_equal(bias, [10, 31, 20, 40])

    def test_bias_comes_back_bit_by_bit(self) -> None:
        rng = np.random.default_rng(0)
        magnitudes = np.float32(10.0) ** rng.uniform(-40, 8, 400).astype(np.float32)
        forget = np.concatenate([magnitudes, -magnitudes, [0, 1, 0.1, 1e-45, 3e38]]).astype(np.float32)
        bias = np.concatenate([np.zeros_like(forget), forget, np.ones_like(forget), -forget])
        stored, remainder = write_lstm_bias(bias)
        assert stored.dtype == remainder.dtype == np.float32
        np.testing.assert_array_equal(read_lstm_bias(stored, remainder)[0], bias)

    def test_bias_of_a_published_kind_needs_no_remainder(self) -> None:
        stored = np.random.default_rng(0).standard_normal(44).astype(np.float32)
        back, remainder = write_lstm_bias(read_lstm_bias(stored, None)[0])
        assert remainder is None
        np.testing.assert_allclose(back, stored, rtol=0, atol=2.5e-7)  # the last digit of b + 1, for b up to 3


class TestRoundTrip:
    @pytest.mark.parametrize("options", ARCHITECTURES.values(), ids=ARCHITECTURES.keys())
    def test_reading_what_was_written_gives_the_same_bits(self, tmp_path: Path, options: dict) -> None:
        config, tensors = read_weights(*write_files(tmp_path / "source", options, make_arrays(options)))
        (tmp_path / "back").mkdir()
        write_weights(tmp_path / "back", config, tensors)
        config_back, tensors_back = read_weights(tmp_path / "back/options.json", tmp_path / "back/weights.hdf5")
        assert_same_tensors(tensors, tensors_back)
        without_effect = {} if config.cell_projection else {"proj_clip": None}
        assert config_back.to_dict() | without_effect == config.to_dict() | without_effect

    @pytest.mark.parametrize(
        ("sizes", "identities"),
        [
            ({"hidden_size": 14, "cell_size": 11}, []),
            ({"hidden_size": 24, "cell_size": 11}, ["CNN_proj/W_proj"]),
            ({"hidden_size": 14, "cell_size": 7}, ["RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/W_P_0"]),
            ({"hidden_size": 24, "cell_size": 12}, ["CNN_proj/W_proj", "RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell/W_P_0"]),
        ],
        ids=["both projections", "no character projection", "no cell projection", "no projection"],
    )
    def test_export_always_has_projections(self, tmp_path: Path, sizes: dict, identities: list[str]) -> None:
        torch.manual_seed(0)
        config = ElmoConfig(char_filters=[[1, 4], [3, 8]], char_embedding_size=3, proj_clip=1.5, **sizes)
        model = ElmoModel(config).eval()
        for parameter in model.bilm.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        folder = export(model, tmp_path / "out")
        with h5py.File(folder / "weights.hdf5") as file:
            for name in ("CNN_proj/W_proj", "CNN_proj/b_proj", "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_P_0"):
                assert name in file
            for name in identities:
                np.testing.assert_array_equal(file[name][...], np.eye(len(file[name])))
        reread = load(folder / "options.json", folder / "weights.hdf5")
        assert reread.config.char_projection == config.char_projection
        assert reread.config.cell_projection == config.cell_projection
        for key, tensor in model.state_dict().items():
            assert torch.equal(tensor, reread.state_dict()[key]), key
        reference = NumpyELMo(
            folder / "options.json", folder / "weights.hdf5"
        )  # which projects where there is a dataset
        for found, words in zip(layers_of(model, SENTENCES), SENTENCES, strict=True):
            np.testing.assert_allclose(found, reference.layers(words)[0], rtol=0, atol=1e-5)

    def test_trained_projection_of_equal_sizes_is_kept(self, tmp_path: Path) -> None:
        options = make_options({"dim": 7, "projection_dim": 7})
        arrays = make_arrays(options)
        for direction in range(2):
            for layer in range(2):
                path = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/W_P_0"
                arrays[path] = np.eye(7, dtype=np.float32) * (1 + layer)
        config, tensors = read_weights(*write_files(tmp_path, options, arrays))
        assert config.cell_projection
        np.testing.assert_array_equal(tensors["bilm.backward_layers.1.weight_hr"], 2 * np.eye(7))

    def test_a_clip_that_only_allennlp_would_apply_is_left_out(self) -> None:
        sizes = {"hidden_size": 14, "cell_size": 7}
        assert options_from_config(ElmoConfig(proj_clip=0.5, **sizes))["lstm"]["proj_clip"] is None
        assert options_from_config(ElmoConfig(proj_clip=1.5, **sizes))["lstm"]["proj_clip"] == 1.5

    def test_padding_row_that_is_not_zero_cannot_be_written(self, files: tuple[Path, Path], tmp_path: Path) -> None:
        config, tensors = read_weights(*files)
        tensors["char_encoder.embedding.weight"][0, 1] = 1
        with pytest.raises(ValueError, match=r"Row 0 of char_encoder\.embedding\.weight must be zero"):
            write_weights(tmp_path, config, tensors)

    def test_tensors_too_few_and_too_many_cannot_be_written(self, files: tuple[Path, Path], tmp_path: Path) -> None:
        config, tensors = read_weights(*files)
        with pytest.raises(ValueError, match="cannot store tensor 'extra'"):
            write_weights(tmp_path, config, tensors | {"extra": np.zeros(3, np.float32)})
        settled = {f"bilm.initial_{name}": np.zeros(3, np.float32) for name in ("hidden", "cell")}
        with pytest.raises(ValueError, match=r"'bilm\.initial_cell' of the model\. Load .* with settled_start=False"):
            write_weights(tmp_path, config, tensors | settled)
        del tensors["bilm.forward_layers.1.bias"]
        with pytest.raises(ValueError, match=r"no tensor 'bilm\.forward_layers\.1\.bias'"):
            write_weights(tmp_path, config, tensors)

    def test_other_characters_cannot_be_written(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="char_vocab_size is 300"):
            write_weights(tmp_path, ElmoConfig(char_vocab_size=300), {})


class TestBadWeights:
    def test_no_file(self, files: tuple[Path, Path]) -> None:
        with pytest.raises(FileNotFoundError, match=r"absent\.hdf5: there is no such weights file"):
            read_weights(files[0], files[1].with_name("absent.hdf5"))

    @pytest.mark.parametrize(
        "content", [b"<html>Not found</html>", b"", b"\x89HDF"], ids=["page", "empty", "four bytes"]
    )
    def test_not_hdf5(self, files: tuple[Path, Path], content: bytes) -> None:
        files[1].write_bytes(content)
        with pytest.raises(ValueError, match=r"weights\.hdf5 is not an HDF5 file: it begins with b"):
            read_weights(*files)

    @pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
    def test_truncated(self, files: tuple[Path, Path], share: float) -> None:
        content = files[1].read_bytes()
        files[1].write_bytes(content[: int(len(content) * share)])
        with pytest.raises(ValueError, match=r"weights\.hdf5.*truncated or damaged"):
            read_weights(*files)

    @pytest.mark.parametrize(
        "name", ["char_embed", "CNN/b_cnn_2", "CNN_proj/W_proj", "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_P_0"]
    )
    def test_missing_dataset(self, files: tuple[Path, Path], name: str) -> None:
        with h5py.File(files[1], "r+") as file:
            del file[name]
        with pytest.raises(ValueError, match=f"dataset '{name}' is missing"):
            read_weights(*files)

    def test_group_in_the_place_of_a_dataset(self, files: tuple[Path, Path]) -> None:
        with h5py.File(files[1], "r+") as file:
            del file["CNN/b_cnn_1"]
            file.create_group("CNN/b_cnn_1")
        with pytest.raises(ValueError, match="dataset 'CNN/b_cnn_1' is missing"):
            read_weights(*files)

    @pytest.mark.parametrize("name", ["CNN/W_cnn_1", "CNN_high_0/b_carry", "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0"])
    def test_wrong_shape(self, files: tuple[Path, Path], name: str) -> None:
        with h5py.File(files[1], "r+") as file:
            array = file[name][..., :-1]
            del file[name]
            file[name] = array
        with pytest.raises(ValueError, match=rf"dataset '{name}' has shape \(.*\), but the options ask for \("):
            read_weights(*files)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_not_finite(self, files: tuple[Path, Path], value: float) -> None:
        with h5py.File(files[1], "r+") as file:
            file["CNN_high_1/W_transform"][2, 3] = value
        with pytest.raises(ValueError, match=r"'CNN_high_1/W_transform' has 1 values .* the first at \(2, 3\)"):
            read_weights(*files)

    def test_whole_numbers(self, files: tuple[Path, Path]) -> None:
        with h5py.File(files[1], "r+") as file:
            array = file["CNN/b_cnn_0"][...].astype(np.int32)
            del file["CNN/b_cnn_0"]
            file["CNN/b_cnn_0"] = array
        with pytest.raises(ValueError, match="'CNN/b_cnn_0' holds int32"):
            read_weights(*files)

    def test_unread_dataset(self, files: tuple[Path, Path]) -> None:
        with h5py.File(files[1], "r+") as file:
            file["softmax/W"] = np.zeros((3, 2))
        with pytest.raises(ValueError, match="unexpected dataset 'softmax/W'"):
            read_weights(*files)

    def test_more_layers_in_the_file_than_in_the_options(self, files: tuple[Path, Path]) -> None:
        files[0].write_text(json.dumps(make_options({"n_layers": 1})))
        with pytest.raises(ValueError, match="unexpected dataset 'RNN_0/RNN/MultiRNNCell/Cell1"):
            read_weights(*files)

    @pytest.mark.parametrize("rows", [260, 266])
    def test_other_characters(self, tmp_path: Path, rows: int) -> None:
        options = make_options()
        with pytest.raises(ValueError, match=f"'char_embed' has {rows} rows"):
            read_weights(*write_files(tmp_path, options, make_arrays(options, rows=rows)))

    def test_double_precision_is_rounded(self, files: tuple[Path, Path]) -> None:
        before = read_weights(*files)[1]
        with h5py.File(files[1], "r+") as file:
            array = file["CNN_proj/b_proj"][...].astype(np.float64)
            del file["CNN_proj/b_proj"]
            file["CNN_proj/b_proj"] = array
        assert_same_tensors(before, read_weights(*files)[1])


class TestBadOptions:
    def write(self, files: tuple[Path, Path], text: str) -> tuple[Path, Path]:
        files[0].write_text(text)
        return files

    def test_no_file(self, files: tuple[Path, Path]) -> None:
        with pytest.raises(FileNotFoundError, match=r"absent\.json: there is no such options file"):
            read_weights(files[0].with_name("absent.json"), files[1])

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "is not JSON"),
            ("[1]", "holds a list"),
            ("{}", "char_cnn is missing"),
            ('{"lstm": 3, "char_cnn": {}}', "lstm is 3; expected is an object"),
            (json.dumps({"lstm": {}, "n_tokens_vocab": 9}), "has no char_cnn: a model over word embeddings"),
        ],
        ids=["not JSON", "list", "empty", "number", "word embeddings"],
    )
    def test_not_options(self, files: tuple[Path, Path], text: str, message: str) -> None:
        with pytest.raises(ValueError, match=rf"options\.json.*{message}"):
            read_weights(*self.write(files, text))

    def test_weights_in_the_place_of_options(self, files: tuple[Path, Path]) -> None:
        with pytest.raises(ValueError, match=r"weights\.hdf5 is not JSON"):
            read_weights(files[1], files[0])

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (make_options(attention="yes"), "attention is an option that this version does not know"),
            (make_options({"peephole": True}), r"lstm\.peephole is an option that this version does not know"),
            (make_options(char_cnn={"stride": 2}), r"char_cnn\.stride is an option that this version does not know"),
            (make_options(bidirectional=False), "bidirectional is False"),
            (make_options(share_embedding_softmax=True), "share_embedding_softmax is True"),
            (make_options({"dim": "11"}), r"lstm\.dim is '11'"),
            (make_options({"projection_dim": 0}), r"lstm\.projection_dim is 0"),
            (make_options({"n_layers": True}), r"lstm\.n_layers is True"),
            (make_options({"cell_clip": 0}), r"lstm\.cell_clip is 0"),
            (make_options({"cell_clip": float("inf")}), r"lstm\.cell_clip is inf"),
            (make_options({"proj_clip": "three"}), r"lstm\.proj_clip is 'three'"),
            (make_options({"use_skip_connections": "no"}), r"lstm\.use_skip_connections is 'no'"),
            (make_options(char_cnn={"activation": "gelu"}), r"char_cnn\.activation is 'gelu'"),
            (make_options(char_cnn={"filters": [[1, 2, 3]]}), r"char_cnn\.filters is \[\[1, 2, 3\]\]"),
            (make_options(char_cnn={"filters": []}), r"char_cnn\.filters is \[\]"),
            (make_options(char_cnn={"filters": [[60, 17]]}), "char_filters"),
            (make_options(char_cnn={"n_highway": -1}), r"char_cnn\.n_highway is -1"),
            (make_options(char_cnn={"n_characters": 266}), r"char_cnn\.n_characters is 266"),
            (make_options(char_cnn={"embedding": {}}), r"char_cnn\.embedding\.dim is missing"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_wrong_entry(self, files: tuple[Path, Path], options: dict, message: str) -> None:
        with pytest.raises(ValueError, match=rf"options\.json.*{message}"):
            read_weights(*self.write(files, json.dumps(options)))


@pytest.mark.parametrize("changed", ["weight", "bias"])
def test_a_projection_that_is_nearly_the_identity_is_one(changed: str, tmp_path: Path) -> None:
    options, weight, bias = ARCHITECTURES["no character projection"], np.eye(17, dtype=np.float32), np.zeros(17)
    arrays = make_arrays(options) | {"CNN_proj/W_proj": weight, "CNN_proj/b_proj": bias}
    config, _ = read_weights(*write_files(tmp_path / "identity", options, arrays))
    assert not config.char_projection
    if changed == "weight":
        weight[3, 3] = 1 + 1e-6
    else:
        bias[3] = 1e-6
    config, tensors = read_weights(*write_files(tmp_path / "other", options, arrays))
    assert config.char_projection
    np.testing.assert_array_equal(tensors["char_encoder.projection.weight"], weight.T)
    np.testing.assert_array_equal(tensors["char_encoder.projection.bias"], bias.astype(np.float32))
