"""bilm-tf's training checkpoints: the table without TensorFlow, and a checkpoint that TensorFlow writes."""

import json
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard

from hf_elmo import ElmoForPreTraining, ElmoTokenizer
from hf_elmo.conversion import convert_named
from hf_elmo.conversion.bilm_tf import (
    checkpoint_files,
    convert_bilm_tf,
    find_checkpoint,
    load_bilm_tf,
    tensors_from_variables,
)
from hf_elmo.conversion.download import PUBLISHED_TRAININGS, download_training
from hf_elmo.modeling_pretraining_elmo import neighbor_labels
from hf_elmo_cli import main
from tests.allennlp_files import make_options

from .server import serving

WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", "on", "a", "mat", ".", "dog", "saw", "it"]
TRAINING = {
    "bidirectional": True,
    "n_tokens_vocab": len(WORDS),
    "n_negative_samples_batch": 5,
    "dropout": 0.1,
    "batch_size": 3,
    "unroll_steps": 20,
}
ARCHITECTURES = {
    "projection": {},
    "one layer": {"lstm": {"n_layers": 1}},
    "no projections": {"lstm": {"projection_dim": 17, "dim": 17, "proj_clip": None}},
    "tanh, no highway, no skip": {
        "lstm": {"use_skip_connections": False},
        "char_cnn": {"activation": "tanh", "n_highway": 0},
    },
}


def training_options(name: str) -> dict:
    options = make_options(**ARCHITECTURES[name], **TRAINING)
    options["char_cnn"] = {**options["char_cnn"], "n_characters": 261}  # what bilm-tf trains with
    return options


def make_variables(options: dict) -> dict[str, np.ndarray]:
    """Random variables with the names and shapes of bilm-tf's graph (training.py), optimizer and counters included."""
    rng = np.random.default_rng(4)
    lstm, cnn = options["lstm"], options["char_cnn"]
    cell, size, dim = lstm["dim"], lstm["projection_dim"], cnn["embedding"]["dim"]
    filters = sum(number for _, number in cnn["filters"])
    shapes: dict[str, tuple[int, ...]] = {"char_embed": (261, dim)}
    for i, (width, number) in enumerate(cnn["filters"]):
        shapes |= {f"CNN/W_cnn_{i}": (1, width, dim, number), f"CNN/b_cnn_{i}": (number,)}
    for i in range(cnn["n_highway"]):
        for gate in ("carry", "transform"):
            shapes |= {f"CNN_high_{i}/W_{gate}": (filters, filters), f"CNN_high_{i}/b_{gate}": (filters,)}
    if filters != size:
        shapes |= {"CNN_proj/W_proj": (filters, size), "CNN_proj/b_proj": (size,)}
    for direction in range(2):
        for layer in range(lstm["n_layers"]):
            shapes |= lstm_shapes(direction, layer, lstm["n_layers"], cell, size)
    shapes |= {"softmax/W": (len(WORDS), size), "softmax/b": (len(WORDS),)}
    variables = {f"lm/{name}": rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    slots = {f"{name}/Adagrad": np.ones_like(array) for name, array in variables.items()}
    return variables | slots | {"global_step": np.float32(70), "train_perplexity": np.float32(0)}


def lstm_shapes(direction: int, layer: int, layers: int, cell: int, size: int) -> dict[str, tuple[int, ...]]:
    path = f"RNN_{direction}/rnn/" + (f"multi_rnn_cell/cell_{layer}/" if layers > 1 else "") + "lstm_cell"
    shapes = {f"{path}/kernel": (2 * size, 4 * cell), f"{path}/bias": (4 * cell,)}
    return shapes | ({f"{path}/projection/kernel": (cell, size)} if cell != size else {})


class NumpyLanguageModel:
    """bilm-tf's graph with TensorFlow's variables, in float64, one word at a time."""

    def __init__(self, options: dict, variables: dict[str, np.ndarray]) -> None:
        self.options = options
        self.w = {name.removeprefix("lm/"): np.asarray(array, np.float64) for name, array in variables.items()}

    def nll(self, direction: int, words: list[str]) -> list[float]:
        """What one language model pays for each word of a sentence, in its reading order."""
        tokens = ["<S>", *words, "</S>"][:: -1 if direction else 1]
        states = [None] * self.options["lstm"]["n_layers"]
        losses = []
        for read, target in pairwise(tokens):
            x = self.word_vector(read)
            for layer in range(len(states)):
                y, states[layer] = self.cell(direction, layer, x, states[layer])
                x = y + x if layer and self.options["lstm"]["use_skip_connections"] else y
            logits = self.w["softmax/W"] @ x + self.w["softmax/b"]
            losses.append(np.log(np.exp(logits).sum()) - logits[WORDS.index(target) if target in WORDS else 2])
        return losses

    def word_vector(self, word: str) -> np.ndarray:
        cnn, w = self.options["char_cnn"], self.w
        middle = {"<S>": [256], "</S>": [257]}.get(word, list(word.encode()))
        characters = w["char_embed"][([258, *middle, 259] + [260] * 50)[:50]]
        maxima = [
            max_over_windows(characters, w[f"CNN/W_cnn_{i}"][0]) + w[f"CNN/b_cnn_{i}"]
            for i in range(len(cnn["filters"]))
        ]
        x = np.concatenate(maxima)
        x = np.tanh(x) if cnn["activation"] == "tanh" else np.maximum(x, 0)
        for i in range(cnn["n_highway"]):
            carry = sigmoid(x @ w[f"CNN_high_{i}/W_carry"] + w[f"CNN_high_{i}/b_carry"])
            transform = np.maximum(x @ w[f"CNN_high_{i}/W_transform"] + w[f"CNN_high_{i}/b_transform"], 0)
            x = carry * transform + (1 - carry) * x
        return x @ w["CNN_proj/W_proj"] + w["CNN_proj/b_proj"] if "CNN_proj/W_proj" in w else x

    def cell(self, direction: int, layer: int, x: np.ndarray, state):
        lstm = self.options["lstm"]
        multi = f"multi_rnn_cell/cell_{layer}/" if lstm["n_layers"] > 1 else ""
        path = f"RNN_{direction}/rnn/{multi}lstm_cell"
        hidden, cell = state or (np.zeros(lstm["projection_dim"]), np.zeros(lstm["dim"]))
        gates = np.concatenate((x, hidden)) @ self.w[f"{path}/kernel"] + self.w[f"{path}/bias"]
        i, j, f, o = np.split(gates, 4)
        cell = sigmoid(f + 1.0) * cell + sigmoid(i) * np.tanh(j)
        cell = np.clip(cell, -lstm["cell_clip"], lstm["cell_clip"])
        hidden = sigmoid(o) * np.tanh(cell)
        if f"{path}/projection/kernel" in self.w:
            hidden = np.clip(hidden @ self.w[f"{path}/projection/kernel"], -lstm["proj_clip"], lstm["proj_clip"])
        return hidden, (hidden, cell)


def max_over_windows(characters: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    width = len(kernel)
    windows = (characters[start : start + width] for start in range(len(characters) - width + 1))
    return np.max([np.einsum("wd,wdn->n", window, kernel) for window in windows], axis=0)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


SENTENCES = [["the", "cat", "sat", "on", "a", "zebra", "."], ["it"], ["a", "dog", "saw", "the", "mat"]]


def our_loss(model: ElmoForPreTraining) -> tuple[float, float]:
    tokenizer = ElmoTokenizer(word_splitting="whitespace")
    inputs = tokenizer(SENTENCES, is_split_into_words=True, padding=True, return_tensors="pt")
    words = torch.full(inputs["attention_mask"].shape, -100)
    for row, sentence in enumerate(SENTENCES):
        numbers = [WORDS.index(word) if word in WORDS else 2 for word in ["<S>", *sentence, "</S>"]]
        words[row, : len(numbers)] = torch.tensor(numbers)
    with torch.no_grad():
        output = model(**inputs, labels=neighbor_labels(words, inputs["attention_mask"]))
    return output.forward_loss.item(), output.backward_loss.item()


def expected_loss(options: dict, variables: dict[str, np.ndarray]) -> list[float]:
    independent = NumpyLanguageModel(options, variables)
    return [np.mean([loss for words in SENTENCES for loss in independent.nll(way, words)]) for way in (0, 1)]


# -- without TensorFlow ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_loss_is_that_of_an_independent_computation(name):
    options = training_options(name)
    variables = make_variables(options)
    config, tensors = tensors_from_variables(options, variables)
    model = ElmoForPreTraining(config).eval()
    missing, unexpected = model.load_state_dict({k: torch.tensor(t) for k, t in tensors.items()}, strict=False)
    assert {key.split(".")[1] for key in missing} == {"scalar_mix"}
    assert unexpected == []
    assert our_loss(model) == pytest.approx(expected_loss(options, variables), rel=1e-5)
    assert (config.vocab_size, config.num_sampled, config.hidden_dropout) == (len(WORDS), 5, 0.1)


def without(variables: dict, name: str) -> dict:
    return {key: array for key, array in variables.items() if key != name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: without(v, "lm/CNN_proj/b_proj"), "variable 'lm/CNN_proj/b_proj' is missing"),
        (lambda v: without(v, "lm/softmax/W"), "no matrix 'lm/softmax/W'"),
        (lambda v: {**v, "lm/extra": np.zeros(3)}, "unexpected variable 'lm/extra'"),
        (lambda v: {**v, "lm/softmax/b": np.zeros(3)}, "'lm/softmax/b' has shape"),
        (lambda v: {**v, "lm/softmax/b": np.full(len(WORDS), np.nan)}, "NaN or infinite"),
        (lambda v: {**v, "lm/softmax/b": np.full(len(WORDS), 1e300)}, "too large for float32"),
        (lambda v: {**v, "lm/softmax/b": np.ones(len(WORDS), np.int32)}, "holds int32, not floating-point numbers"),
    ],
    ids=["missing", "no softmax", "unknown", "shape", "nan", "float64", "integers"],
)
def test_a_checkpoint_that_does_not_fit_is_refused(change, message):
    options = training_options("projection")
    with pytest.raises(ValueError, match=message):
        tensors_from_variables(options, change(make_variables(options)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dropout": "0.1"}, "dropout is '0.1'"),
        ({"dropout": 1}, "dropout is 1,"),
        ({"n_negative_samples_batch": 10**18}, "n_negative_samples_batch is 1000000000000000000"),
        ({"n_negative_samples_batch": True}, "n_negative_samples_batch is True"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_impossible_option_of_the_training_is_named(changes, message):
    options = training_options("projection")
    with pytest.raises(ValueError, match=message):
        tensors_from_variables({**options, **changes}, make_variables(options))


# -- the command, without TensorFlow -----------------------------------------------------------------------------------


@pytest.fixture
def training(tmp_path: Path) -> Path:
    """A training's folder whose checkpoint nothing but TensorFlow could read."""
    folder = tmp_path / "training"
    folder.mkdir()
    (folder / "options.json").write_text(json.dumps(training_options("projection")))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    for ending in ("index", "meta", "data-00000-of-00001"):
        (folder / f"model.ckpt-70.{ending}").write_bytes(b"")
    return folder


@pytest.mark.parametrize("ending", ["", ".index", ".meta", ".data-00000-of-00001"])
def test_a_checkpoint_is_found_by_its_prefix_and_by_each_of_its_files(training, ending):
    assert find_checkpoint(training / f"model.ckpt-70{ending}") == training / "model.ckpt-70"


def test_a_checkpoint_is_found_in_a_folder_and_nowhere_else(training, tmp_path):
    assert find_checkpoint(training) == training
    assert find_checkpoint(tmp_path) == training  # the only one in it
    (tmp_path / "another").mkdir()
    for other in (tmp_path, tmp_path / "nothing", training / "options.json", training / "model.ckpt-71"):
        assert find_checkpoint(other) is None


@pytest.mark.parametrize("arguments", [[""], ["model.ckpt-70.index", "vocab.txt"]], ids=["folder", "file, vocabulary"])
def test_the_command_converts_a_training(training, tmp_path, monkeypatch, capsys, arguments):
    options = training_options("projection")
    variables = make_variables(options)
    monkeypatch.setattr("hf_elmo.conversion.bilm_tf.read_variables", lambda checkpoint: variables)
    out = tmp_path / "out"
    assert main(["convert", *(str(training / name) for name in arguments), str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: every tensor equals its source; its README.md shows how to use it\n"
    model, tokenizer = ElmoForPreTraining.from_pretrained(out), ElmoTokenizer.from_pretrained(out)
    assert our_loss(model) == pytest.approx(expected_loss(options, variables), rel=1e-5)
    assert (tokenizer.vocabulary, tokenizer.word_splitting) == (WORDS, "whitespace")
    record = json.loads((out / "conversion.json").read_text())
    files = ["model.ckpt-70.data-00000-of-00001", "model.ckpt-70.index", "options.json", "vocab.txt"]
    assert [one["file"] for one in record["sources"]] == files
    assert "bilm-tf's TensorFlow checkpoint" in (out / "README.md").read_text()


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The published training's files, of a small model, whose file `checkpoint` names a folder that is not here."""
    monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))
    variables = make_variables(training_options("projection"))
    monkeypatch.setattr("hf_elmo.conversion.bilm_tf.read_variables", lambda checkpoint: variables)
    folder = tmp_path / "published"
    folder.mkdir()
    (folder / "options.json").write_text(json.dumps(training_options("projection")))
    (folder / "vocab-2016-09-10.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "checkpoint").write_text('model_checkpoint_path: "/its/author/model.ckpt-935588"\n')
    for ending in ("index", "data-00000-of-00001"):
        (folder / f"model.ckpt-935588.{ending}").write_bytes(ending.encode())
    return folder


@pytest.mark.usefixtures("any_sizes")
def test_the_published_training_and_a_copy_of_it(published, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving() as server:
        monkeypatch.setattr(download_training, "__defaults__", (None, (server.url,)))
        out = tmp_path / "downloaded" / "elmo"
        command = ["convert", "original-softmax", str(out), "--cache-dir", str(tmp_path / "cache")]
        assert main(command) == 1
        assert "hf-elmo convert --model original-softmax FOLDER OUT." in capsys.readouterr().err
        for path in PUBLISHED_TRAININGS["original-softmax"]:
            server.files[path] = (published / path.rpartition("/")[2]).read_bytes()
        server.files["vocab-2016-09-10.txt"] = b"<html>gone</html>"
        assert main(command) == 1
        assert "is not txt: it begins with b'<html>" in capsys.readouterr().err
        server.files["vocab-2016-09-10.txt"] = (published / "vocab-2016-09-10.txt").read_bytes()
        assert main(command) == 0
    copies = {"0": [published], "1": [published / "model.ckpt-935588.index", published / "vocab-2016-09-10.txt"]}
    for number, paths in copies.items():
        given = tmp_path / number / "elmo"
        assert main(["convert", "--model", "original-softmax", *map(str, paths), str(given)]) == 0
        for file in out.iterdir():
            assert (given / file.name).read_bytes() == file.read_bytes(), file.name
    assert ElmoForPreTraining.from_pretrained(out).config.vocab_size == len(WORDS)
    tokenizer = ElmoTokenizer.from_pretrained(out)
    assert (tokenizer.vocabulary, tokenizer.word_splitting) == (WORDS, "lm1b")
    assert ModelCard.load(out / "README.md").data.datasets == ["billion-word-benchmark/lm1b"]


def test_a_training_of_other_sizes_is_no_copy_of_the_published_one(published, tmp_path):
    with pytest.raises(ValueError, match=r"no copy of original-softmax: .*cell_size 11.* has .*cell_size 4096"):
        convert_named("original-softmax", tmp_path / "out", files=[published])
    assert not (tmp_path / "out").exists()


def test_what_the_published_training_has_not(published, tmp_path):
    out = tmp_path / "out"
    for how, message in (
        ({"dtype": "float16"}, "which is converted in float32"),
        ({"digest": "00"}, "which has several files"),
        ({"files": [published / "options.json"]}, "this is no copy of it"),
    ):
        with pytest.raises(ValueError, match=message):
            convert_named("original-softmax", out, **how)
    assert not out.exists()


def test_the_files_of_the_latest_checkpoint_are_those_that_the_folder_names(training):
    for ending in ("index", "data-00000-of-00001"):
        (training / f"model.ckpt-7.{ending}").write_bytes(b"")
    (training / "checkpoint").write_text(
        'model_checkpoint_path: "/somewhere/else/model.ckpt-7"\nall_model_checkpoint_paths: "model.ckpt-70"\n'
    )
    found = [file.name for file in checkpoint_files(training)]
    assert found == ["model.ckpt-7.data-00000-of-00001", "model.ckpt-7.index"]
    assert [file.name for file in checkpoint_files(training / "model.ckpt-70")] == [
        "model.ckpt-70.data-00000-of-00001",
        "model.ckpt-70.index",
    ]


def test_the_command_says_that_tensorflow_is_missing(training, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert main(["convert", str(training), str(tmp_path / "out")]) == 1
    message = (
        "reading a TensorFlow checkpoint needs tensorflow, which is not installed: pip install 'hf-elmo[tensorflow]'"
    )
    assert capsys.readouterr().err == f"hf-elmo: error: {message}\n"
    assert not (tmp_path / "out").exists()


def test_the_command_names_a_vocabulary_that_is_missing(training, tmp_path, capsys):
    (training / "vocab.txt").unlink()
    assert main(["convert", str(training), str(tmp_path / "out")]) == 1
    assert f"'{training / 'vocab.txt'}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["out", "--dtype", "bfloat16"], "converted in float32"), (["a", "b", "c"], "2 or 3 paths expected, 4 given")],
    ids=["dtype", "paths"],
)
def test_the_command_refuses_what_a_training_has_not(training, capsys, arguments, message):
    with pytest.raises(SystemExit):
        main(["convert", str(training), *arguments])
    assert message in capsys.readouterr().err


# -- with TensorFlow ---------------------------------------------------------------------------------------------------


def write_checkpoint(
    tensorflow: ModuleType, folder: Path, name: str, step: int = 70
) -> tuple[dict, dict[str, np.ndarray]]:
    """A training's folder, written by TensorFlow's own `Saver`."""
    tf = tensorflow.compat.v1
    options = training_options(name)
    variables = make_variables(options)
    folder.mkdir()
    (folder / "options.json").write_text(json.dumps(options))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    with tensorflow.Graph().as_default(), tf.Session() as session:
        for variable, array in variables.items():
            tf.get_variable(variable, initializer=tf.constant(array))
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(folder / "model.ckpt"), global_step=step)
    return options, variables


@pytest.mark.parametrize("name", ["projection", "one layer"])
def test_a_checkpoint_of_tensorflow(tensorflow, tmp_path, name):
    options, variables = write_checkpoint(tensorflow, tmp_path / "training", name)
    expected = expected_loss(options, variables)
    assert our_loss(load_bilm_tf(tmp_path / "training")) == pytest.approx(expected, rel=1e-5)
    assert our_loss(load_bilm_tf(tmp_path / "training" / "model.ckpt-70")) == pytest.approx(expected, rel=1e-5)


def test_conversion_keeps_the_softmax_and_the_vocabulary(tensorflow, tmp_path):
    options, variables = write_checkpoint(tensorflow, tmp_path / "training", "projection")
    out = convert_bilm_tf(tmp_path / "training", tmp_path / "training" / "vocab.txt", tmp_path / "out")
    model, tokenizer = ElmoForPreTraining.from_pretrained(out), ElmoTokenizer.from_pretrained(out)
    assert our_loss(model) == pytest.approx(expected_loss(options, variables), rel=1e-5)
    assert tokenizer.vocabulary == WORDS
    assert (out / "modeling_pretraining_elmo.py").is_file()


def test_the_command_converts_a_checkpoint_of_tensorflow(tensorflow, tmp_path):
    options, variables = write_checkpoint(tensorflow, tmp_path / "training", "one layer")
    assert main(["convert", str(tmp_path / "training"), str(tmp_path / "out")]) == 0
    found = our_loss(ElmoForPreTraining.from_pretrained(tmp_path / "out"))
    assert found == pytest.approx(expected_loss(options, variables), rel=1e-5)


@pytest.mark.usefixtures("any_sizes")
def test_a_copy_of_the_published_training_whose_author_had_another_folder(tensorflow, tmp_path):
    folder = tmp_path / "training"
    options, variables = write_checkpoint(tensorflow, folder, "projection", step=935588)
    (folder / "checkpoint").write_text('model_checkpoint_path: "/its/author/model.ckpt-935588"\n')
    assert main(["convert", "--model", "original-softmax", str(folder), str(tmp_path / "out")]) == 0
    found = our_loss(ElmoForPreTraining.from_pretrained(tmp_path / "out"))
    assert found == pytest.approx(expected_loss(options, variables), rel=1e-5)


def test_a_vocabulary_of_another_size_is_refused(tensorflow, tmp_path):
    write_checkpoint(tensorflow, tmp_path / "training", "projection")
    (tmp_path / "other.txt").write_text("<S>\n</S>\n<UNK>\n")
    with pytest.raises(ValueError, match="has 3 words, but the softmax has 13"):
        convert_bilm_tf(tmp_path / "training", tmp_path / "other.txt", tmp_path / "out")


@pytest.mark.usefixtures("tensorflow")
def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    (tmp_path / "options.json").write_text(json.dumps(training_options("projection")))
    with pytest.raises(FileNotFoundError, match="no TensorFlow checkpoint"):
        load_bilm_tf(tmp_path)
