"""Files made to harm: what they ask for is refused in one line that names it, and nothing is written."""

import json
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from hf_elmo import ElmoConfig, ElmoForPreTraining, ElmoTokenizer
from hf_elmo_cli import main
from tests.allennlp_files import make_arrays, make_options, write_files
from tests.conftest import TINY, random_model

NAME = "CNN_high_1/W_transform"
SHAPE = (17, 17)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    options = make_options()
    return write_files(tmp_path / "source", options, make_arrays(options))


def refused(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that the command prints."""
    out = files[0].parent.parent / "out"
    assert main(["convert", str(files[0]), str(files[1]), str(out)]) == 1
    assert not out.exists()
    error = capsys.readouterr().err
    assert error.startswith("hf-elmo: error: ")
    assert error.count("\n") == 1, error
    return error


# -- weights.hdf5: what would read other files -------------------------------------------------------------------------


def secret(folder: Path) -> Path:
    """A local file that is none of the model's."""
    file = folder / "secret.bin"
    file.write_bytes(np.arange(17 * 17, dtype=np.float32).tobytes())
    return file


def external_storage(file: h5py.File, folder: Path) -> None:
    file.create_dataset(NAME, SHAPE, np.float32, external=[(str(secret(folder)), 0, h5py.h5f.UNLIMITED)])


def external_link(file: h5py.File, folder: Path) -> None:
    with h5py.File(folder / "other.hdf5", "w") as other:
        other["secret"] = np.ones(SHAPE, np.float32)
    file[NAME] = h5py.ExternalLink(str(folder / "other.hdf5"), "secret")


def external_group(file: h5py.File, folder: Path) -> None:
    with h5py.File(folder / "other.hdf5", "w") as other:
        for name in list(file["CNN_high_0"]):
            other[f"group/{name}"] = file[f"CNN_high_0/{name}"][...]
    del file["CNN_high_0"], file["CNN_high_1"]
    file["CNN_high_0"] = h5py.ExternalLink(str(folder / "other.hdf5"), "group")


def virtual_dataset(file: h5py.File, folder: Path) -> None:
    with h5py.File(folder / "other.hdf5", "w") as other:
        other["secret"] = np.ones(SHAPE, np.float32)
    layout = h5py.VirtualLayout(SHAPE, np.float32)
    layout[:] = h5py.VirtualSource(str(folder / "other.hdf5"), "secret", SHAPE)
    file.create_virtual_dataset(NAME, layout)


def soft_link(file: h5py.File, _: Path) -> None:
    file[NAME] = h5py.SoftLink("/CNN_high_0/W_transform")


def dangling_link(file: h5py.File, _: Path) -> None:
    file[NAME] = h5py.SoftLink("/../../etc/passwd")


ELSEWHERE = [external_storage, external_link, external_group, virtual_dataset, soft_link, dangling_link]


@pytest.mark.parametrize("make", ELSEWHERE, ids=lambda make: make.__name__)
def test_numbers_that_lie_elsewhere_are_refused(files, capsys, make: Callable) -> None:
    with h5py.File(files[1], "r+", libver="latest") as file:
        if make is not external_group:
            del file[NAME]
        make(file, files[0].parent)
    error = refused(files, capsys)
    assert str(files[1]) in error
    assert NAME in error or "CNN_high_0" in error
    assert "link" in error or "other files" in error


def test_a_link_of_a_user_defined_class_is_refused(files, capsys) -> None:
    with h5py.File(files[1], "r+") as file:
        del file[NAME]
        file[NAME] = h5py.ExternalLink("other.hdf5", "secret")
    content = files[1].read_bytes()
    # A link message: its version, flags and class (64 is an external link), the length of the name, the name.
    message = b"\x01\x08\x40\x0bW_transform"
    assert content.count(message) == 1
    files[1].write_bytes(content.replace(message, b"\x01\x08\xc8\x0bW_transform"))
    assert f"{NAME!r} is a link" in refused(files, capsys)


# -- weights.hdf5: what would take forever, or all memory --------------------------------------------------------------


def test_a_shape_that_the_file_does_not_hold(files, capsys) -> None:
    """10^12 elements in a few kilobytes: chunks that were never written read as zeros."""
    options = make_options({"dim": 250_000}, {})
    options["lstm"]["projection_dim"] = 1_000_000
    files[0].write_text(json.dumps(options))
    with h5py.File(files[1], "r+") as file:
        del file["CNN_proj"]
        file.create_dataset("CNN_proj/W_proj", (17, 1_000_000), np.float32, chunks=(17, 1000))
        for direction in range(2):
            for layer in range(2):
                path = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/W_0"
                del file[path]
                file.create_dataset(path, (2_000_000, 1_000_000), np.float32, chunks=(1000, 1000))
    assert files[1].stat().st_size < 1 << 20
    error = refused(files, capsys)
    assert "claims" in error
    assert "stores 0 bytes" in error


def test_a_dataset_that_compression_blows_up(files, capsys) -> None:
    options = make_options({"projection_dim": 200_000})
    files[0].write_text(json.dumps(options))
    with h5py.File(files[1], "r+") as file:
        del file["CNN_proj/W_proj"]
        zeros = np.zeros((17, 200_000), np.float32)
        file.create_dataset("CNN_proj/W_proj", data=zeros, compression="gzip", compression_opts=9)
    assert "claims 13,600,000 bytes" in refused(files, capsys)


def test_a_filter_twice(files, capsys) -> None:
    with h5py.File(files[1], "r+") as file:
        array = file[NAME][...]
        del file[NAME]
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk(SHAPE)
        plist.set_deflate(9)
        plist.set_deflate(9)
        space = h5py.h5s.create_simple(SHAPE)
        identifier = h5py.h5d.create(file.id, NAME.encode(), h5py.h5t.NATIVE_FLOAT, space, plist)
        identifier.write(h5py.h5s.ALL, h5py.h5s.ALL, array)
    assert "filters" in refused(files, capsys)


@pytest.mark.parametrize("how", [{"compression": "gzip"}, {"compression": "gzip", "shuffle": True, "fletcher32": True}])
def test_plain_compression_is_read(files, tmp_path, how: dict) -> None:
    with h5py.File(files[1], "r+") as file:
        array = file[NAME][...]
        del file[NAME]
        file.create_dataset(NAME, data=array, **how)
    assert main(["convert", str(files[0]), str(files[1]), str(tmp_path / "out")]) == 0


def test_a_group_that_contains_itself(files, capsys) -> None:
    with h5py.File(files[1], "r+") as file:
        file["CNN_high_0/again"] = file["CNN_high_0"]
    assert "CNN_high_0/again" in refused(files, capsys)


def test_a_type_stored_by_name(files, capsys) -> None:
    with h5py.File(files[1], "r+") as file:
        file["CNN_high_0/type"] = np.dtype("f4")
    assert "CNN_high_0/type" in refused(files, capsys)


def test_a_floating_point_type_that_numpy_lacks(files, capsys) -> None:
    """h5py reports it as a ValueError that names nothing."""
    with h5py.File(files[1], "r+") as file:
        del file[NAME]
        stored = h5py.h5t.IEEE_F32LE.copy()
        stored.set_ebias(1 << 20)
        h5py.h5d.create(file.id, NAME.encode(), stored, h5py.h5s.create_simple(SHAPE))
    error = refused(files, capsys)
    assert f"{files[1]} is truncated or damaged (Insufficient precision" in error
    assert "Download or copy it again" in error


# -- options.json ------------------------------------------------------------------------------------------------------

HUGE = 10**18


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (({"n_layers": 10**9}, {}), "lstm.n_layers is 1000000000, but must be a whole number, 1 to"),
        (({"dim": HUGE}, {}), f"lstm.dim is {HUGE}"),
        (({"dim": -4}, {}), "lstm.dim is -4"),
        (({"dim": True}, {}), "lstm.dim is True"),
        (({"dim": float("nan")}, {}), "lstm.dim is nan"),
        (({"dim": [3]}, {}), "lstm.dim is [3]"),
        (({"projection_dim": 10**400}, {}), "lstm.projection_dim is 1000"),
        (({"cell_clip": 10**400}, {}), "lstm.cell_clip is 1000"),
        (({"cell_clip": float("nan")}, {}), "lstm.cell_clip is nan"),
        (({"proj_clip": True}, {}), "lstm.proj_clip is True"),
        (({"use_skip_connections": 1}, {}), "lstm.use_skip_connections is 1"),
        (({}, {"n_highway": 10**9}), "char_cnn.n_highway is 1000000000"),
        (({}, {"n_highway": "2"}), "char_cnn.n_highway is '2'"),
        (({}, {"n_highway": False}), "char_cnn.n_highway is False"),
        (({}, {"max_characters_per_token": HUGE}), f"char_cnn.max_characters_per_token is {HUGE}"),
        (({}, {"max_characters_per_token": 50.0}), "char_cnn.max_characters_per_token is 50.0"),
        (({}, {"n_characters": [262]}), "char_cnn.n_characters is [262]"),
        (({}, {"n_characters": float("nan")}), "char_cnn.n_characters is nan"),
        (({}, {"embedding": {"dim": HUGE}}), f"char_cnn.embedding.dim is {HUGE}"),
        (({}, {"embedding": {"dim": {}}}), "char_cnn.embedding.dim is {}"),
        (({}, {"filters": [[1, HUGE]]}), "char_cnn.filters"),
        (({}, {"filters": [[1, -5]]}), "char_cnn.filters"),
        (({}, {"filters": [[1, 1]] * 100_000}), "char_cnn.filters"),
        (({}, {"filters": {"1": 4}}), "char_cnn.filters"),
        (({}, {"activation": ["relu"]}), "char_cnn.activation is ['relu']"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_an_impossible_option_is_named_with_its_value(files, capsys, changes: tuple, message: str) -> None:
    files[0].write_text(json.dumps(make_options(*changes)))
    error = refused(files, capsys)
    assert message in error
    assert str(files[0]) in error
    assert len(error) < 1000


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"lstm":' * 100_000,
        '{"lstm": {"dim": ' + "9" * 100_000 + "}}",
        "\x00",
        '{"a": 1, "a": 2}',
        '"\\ud800"',
    ],
    ids=["nested lists", "nested objects", "digits", "NUL", "a key twice", "a string"],
)
def test_json_that_no_options_are(files, capsys, text: str) -> None:
    files[0].write_text(text)
    assert str(files[0]) in refused(files, capsys)


def test_bytes_that_are_no_text(files, capsys) -> None:
    files[0].write_bytes(b"\xff\xfe{")
    assert f"{files[0]} is not JSON" in refused(files, capsys)


# -- damaged files -----------------------------------------------------------------------------------------------------


def flip(content: bytes, number: int) -> bytes:
    """A copy with one bit changed; where is the same in each run."""
    place = zlib.crc32(struct.pack("<I", number)) % (8 * len(content))
    changed = bytearray(content)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def test_flipped_bits_of_the_structure_are_refused_in_one_line(files, tmp_path, capsys) -> None:
    """The first kilobytes are HDF5's own; among the numbers a flipped bit shows in the recorded SHA-256 only."""
    content = files[1].read_bytes()
    statuses = []
    for number in range(60):
        files[1].write_bytes(flip(content[:2048], number) + content[2048:])
        statuses.append(main(["convert", str(files[0]), str(files[1]), str(tmp_path / "out")]))
        error = capsys.readouterr().err
        if statuses[-1]:
            assert error.splitlines()[-1].startswith("hf-elmo: error: ")
            assert "Traceback" not in error
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
    assert 10 < sum(statuses) <= 60


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\ncat\n")
    random_model(ElmoConfig(**TINY, vocab_size=5), ElmoForPreTraining).save_pretrained(folder)
    tokenizer = ElmoTokenizer(word_splitting="whitespace", vocab_file=str(tmp_path / "vocab.txt"))
    tokenizer.save_pretrained(folder)
    (tmp_path / "text.txt").write_text("the cat\nthe cat\n" * 30)
    return folder


COMMANDS = {
    "embed": lambda model, folder: ["embed", model, folder / "text.txt", folder / "out.npz"],
    "neighbors": lambda model, folder: ["neighbors", "the cat", "cat", folder / "text.txt", "--model", model],
    "perplexity": lambda model, folder: ["perplexity", model, folder / "text.txt"],
    "substitutes": lambda model, folder: ["substitutes", model, "the cat"],
    "export": lambda model, folder: ["export", model, folder / "out"],
    "onnx": lambda model, folder: ["export", "--onnx", model, folder / "out.onnx"],
    "pretrain": lambda model, folder: [
        *("pretrain", folder / "out", folder / "text.txt", "--init", model, "--steps=1", "--batch-size=2"),
        *("--set=use_cpu=true",),
    ],
    "env": lambda model, folder: ["env", model],
}


def damage_header(content: bytes) -> bytes:
    return content[:8] + b"]" + content[9:]


def damage_a_shape(content: bytes) -> bytes:
    return content.replace(b'"shape":[11,19]', b'"shape":[19,11]')


def damage_a_name(content: bytes) -> bytes:
    return content.replace(b"char_encoder.embedding.weight", b"char_encoder.embeDding.weight")


DAMAGES = [damage_header, damage_a_shape, damage_a_name, lambda content: content[:-7], lambda content: content[:5]]


@pytest.mark.parametrize("command", COMMANDS)
def test_damaged_weights_of_a_checkpoint_are_one_line(checkpoint, tmp_path, capsys, command: str) -> None:
    file = checkpoint / "model.safetensors"
    content = file.read_bytes()
    for damage in DAMAGES:
        file.write_bytes(damage(content))
        assert file.read_bytes() != content
        assert main([str(part) for part in COMMANDS[command](checkpoint, tmp_path)]) == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("hf-elmo: error: ")
        assert str(checkpoint) in error
        assert "again" in error, "a remedy"


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"model_type": "elmo", "hidden_size": "x"}', '{"model_type": "elmo", "cell_size": -1}', "{", "[]"],
    ids=["nested", "a string", "negative", "cut off", "a list"],
)
def test_a_damaged_configuration_is_one_line(checkpoint, tmp_path, capsys, text: str) -> None:
    (checkpoint / "config.json").write_text(text)
    assert main(["perplexity", str(checkpoint), str(tmp_path / "text.txt")]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("hf-elmo: error: ")
    assert len(error) < 1000
