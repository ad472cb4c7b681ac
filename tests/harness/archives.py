"""AllenNLP's two files, damaged: `hf-elmo convert` gives a checkpoint of just these weights, or one clear error.

A flipped bit inside a weight is another weight, and no format knows better: then the checkpoint must hold that one, and
it is counted as one of other weights. Where the digest of the sound file is given, a damaged one must be refused.
What is right is read here a second time, by h5py and json alone.
"""

import contextlib
import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from safetensors.numpy import load_file

from hf_elmo.conversion.download import sha256
from tests.allennlp_files import make_arrays, make_options, write_files

from .checks import Case, Check, Fault, described
from .processes import Ended, command_line, warm_up

ARCHITECTURES: list[dict[str, dict[str, Any]]] = [
    {},
    {"lstm": {"n_layers": 1, "cell_clip": None, "proj_clip": None}},
    {"lstm": {"dim": 7, "use_skip_connections": False}, "char_cnn": {"activation": "tanh", "n_highway": 1}},
    {"lstm": {"projection_dim": 17, "dim": 4}},
]
VALUES = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    7,
    3.5,
    1e400,
    -1e400,
    float("nan"),
    1e30,
    1 << 70,
    "",
    "relu",
    "7",
    [],
    {},
    [[]],
    [1, 2],
]
VALUES += [[[1, 4]], [[0, 4]], [[1, -4]], [[60, 4]], [[1, 4], "x"], {"dim": 3}, 50, 1_000_000]
MEMORY, SECONDS = 3 << 30, 60  # more than enough for models this small


@contextlib.contextmanager
def prepare(folder: Path) -> Iterator[Case]:
    """Sound archives, which the cases damage copies of."""
    sources = []
    for number, changes in enumerate(ARCHITECTURES):
        options = make_options(**changes)
        sources.append(write_files(folder / f"source-{number}", options, make_arrays(options)))

    def case(rng: random.Random) -> Counter:
        place = folder / "case"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        source = rng.choice(sources)
        files = [Path(shutil.copy(file, place)) for file in source]
        damage = [rng.choice(DAMAGES)(rng, *files) for _ in range(rng.choice((1, 1, 1, 2)))]
        arguments = ["convert", *map(str, files), str(place / "out")]
        digest = sha256(source[1]) if rng.random() < 0.2 else None
        if digest is not None:
            arguments.append(f"--sha256={digest}")
            damage.append("with the digest of the sound file")
        ended = command_line(arguments, folder, seconds=SECONDS, memory=MEMORY).wait()
        with described(" and ".join(damage)):
            counts = judge(ended, *files, place / "out")
            if counts["converted"]:
                if digest not in (None, sha256(files[1])):
                    raise Fault("it was converted in spite of another digest")
                counts += compared(source, files)
        return counts

    warm_up()
    yield case


def judge(ended: Ended, options: Path, weights: Path, out: Path) -> Counter:
    """Raises Fault unless the end was a good one: what is right, or one clear error and nothing left over."""
    left = {path.name for path in out.parent.iterdir()} - {options.name, weights.name, out.name}
    if left:
        raise Fault(f"{sorted(left)} is left over")
    if ended.status == 0:
        require_right(options, weights, out)
        return Counter(converted=1)
    said = ended.said.strip()
    if ended.status != 1:
        raise Fault(f"it ended with {ended.status}: {said.rpartition(chr(10))[2][-300:]!r}")
    if out.exists():
        raise Fault(f"{out.name} is there in spite of the error {said[-300:]!r}")
    errors = re.findall(r"^hf-elmo: error: .+", said, re.MULTILINE)
    if len(errors) != 1 or "Traceback" in said:
        raise Fault(f"not one error: {said[-400:]!r}")
    if options.name not in errors[0] and weights.name not in errors[0]:
        raise Fault(f"the error names neither file: {errors[0]!r:.400}")
    return Counter(refused=1)


def compared(sound: Sequence[Path], damaged: Sequence[Path]) -> Counter:
    """Whether files that were converted, and rightly so, say something else than before they were damaged."""
    before, after = expected_tensors(*sound), expected_tensors(*damaged)
    same = before.keys() == after.keys() and all(np.array_equal(before[key], after[key]) for key in before)
    settings = [expected_settings(json.loads(options.read_text())) for options, _ in (sound, damaged)]
    return Counter({"to other weights": not same, "with other options": settings[0] != settings[1]})


def require_right(options: Path, weights: Path, out: Path) -> None:
    """Raises Fault where the checkpoint is not what h5py and json find in the files."""
    try:
        expected = expected_tensors(options, weights)
        settings = expected_settings(json.loads(options.read_text()))
    except Exception as error:
        raise Fault(f"it was converted, but the files cannot be read: {error!r:.300}") from error
    found = load_file(out / "model.safetensors")
    config = json.loads((out / "config.json").read_text())
    if found.keys() - {"scalar_mix.scalars", "scalar_mix.gamma"} != expected.keys():
        raise Fault(f"tensors {sorted(found.keys() ^ expected.keys())} are on one side only")
    for key, array in expected.items():
        if not np.isfinite(array).all():
            raise Fault(f"{key} is not finite in the file, but was converted")
        if found[key].shape != array.shape or not np.array_equal(found[key], array):
            raise Fault(f"{key} differs from the file's")
    wrong = {key: (config.get(key), value) for key, value in settings.items() if config.get(key) != value}
    if wrong:
        raise Fault(f"the configuration has other values than the options: {wrong}")


def expected_settings(options: dict[str, Any]) -> dict[str, Any]:
    """What config.json must hold."""
    lstm, cnn = options["lstm"], options["char_cnn"]
    return {
        "hidden_size": 2 * lstm["projection_dim"],
        "cell_size": lstm["dim"],
        "num_hidden_layers": lstm.get("n_layers", 1),
        "cell_clip": lstm.get("cell_clip"),
        "proj_clip": lstm.get("proj_clip"),
        "use_skip_connections": lstm.get("use_skip_connections", False),
        "char_activation": cnn["activation"],
        "char_filters": cnn["filters"],
        "num_highway_layers": cnn.get("n_highway") or 0,
        "max_word_length": cnn["max_characters_per_token"],
        "char_embedding_size": cnn["embedding"]["dim"],
    }


def expected_tensors(options: Path, weights: Path) -> dict[str, np.ndarray]:
    """The tensors of a checkpoint, read a second time."""
    settings = json.loads(options.read_text())
    lstm, cnn, tensors = settings["lstm"], settings["char_cnn"], {}
    with h5py.File(weights) as file:

        def read(name: str) -> np.ndarray:
            return file[name][...].astype(np.float32)

        embedding = read("char_embed")
        tensors["char_encoder.embedding.weight"] = np.vstack((np.zeros((1, embedding.shape[1]), np.float32), embedding))
        for i in range(len(cnn["filters"])):
            tensors[f"char_encoder.convolutions.{i}.weight"] = np.einsum("xwdf->fdw", read(f"CNN/W_cnn_{i}"))
            tensors[f"char_encoder.convolutions.{i}.bias"] = read(f"CNN/b_cnn_{i}")
        for i in range(cnn.get("n_highway") or 0):
            for gate in ("carry", "transform"):
                tensors[f"char_encoder.highways.{i}.{gate}.weight"] = read(f"CNN_high_{i}/W_{gate}").T
                tensors[f"char_encoder.highways.{i}.{gate}.bias"] = read(f"CNN_high_{i}/b_{gate}")
        if "CNN_proj" in file:
            tensors["char_encoder.projection.weight"] = read("CNN_proj/W_proj").T
            tensors["char_encoder.projection.bias"] = read("CNN_proj/b_proj")
        for number, direction in enumerate(("forward", "backward")):
            for layer in range(lstm.get("n_layers", 1)):
                path = f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
                tensors |= expected_cell(read, file, path, f"bilm.{direction}_layers.{layer}", lstm["dim"])
    return tensors


def expected_cell(read: Any, file: h5py.File, path: str, key: str, cells: int) -> dict[str, np.ndarray]:
    """One LSTM: TensorFlow's gates are i, j, f, o, torch's i, f, g, o, and torch's forget bias holds the 1."""
    order = np.r_[0:cells, 2 * cells : 3 * cells, cells : 2 * cells, 3 * cells : 4 * cells]
    kernel, bias = read(f"{path}/W_0").T[order], read(f"{path}/B")[order]
    bias[cells : 2 * cells] += 1
    half = kernel.shape[1] // 2
    found = {f"{key}.weight_ih": kernel[:, :half], f"{key}.weight_hh": kernel[:, half:], f"{key}.bias": bias}
    if f"{path}/W_P_0" in file:
        found[f"{key}.weight_hr"] = read(f"{path}/W_P_0").T
    return found


def flip_bits(rng: random.Random, options: Path, weights: Path) -> str:
    """Bits anywhere, mostly in the first kilobytes, where the structure is."""
    content, number = bytearray(weights.read_bytes()), rng.choice((1, 1, 3, 20))
    for _ in range(number):
        end = len(content) if rng.random() < 0.4 else min(len(content), 6000)
        content[rng.randrange(end)] ^= 1 << rng.randrange(8)
    weights.write_bytes(content)
    return f"{number} bits flipped"


def truncate(rng: random.Random, options: Path, weights: Path) -> str:
    """Either file, to any length."""
    file = rng.choice((weights, weights, options))
    content = file.read_bytes()
    file.write_bytes(content[: rng.randrange(len(content))])
    return f"{file.name} cut from {len(content)} to {file.stat().st_size} bytes"


def overwrite(rng: random.Random, options: Path, weights: Path) -> str:
    """A block of zeros, of noise, or of the file's own bytes, in the place of another or between two."""
    content, start = bytearray(weights.read_bytes()), rng.randrange(weights.stat().st_size)
    size, other = rng.choice((1, 8, 64, 512, 4096)), rng.randrange(len(content))
    block = rng.choice((bytes(size), rng.randbytes(size), bytes(content[other : other + size])))
    content[start : start + rng.choice((0, len(block)))] = block
    weights.write_bytes(content)
    return f"{len(block)} bytes written at {start}"


def change_json(rng: random.Random, options: Path, weights: Path) -> str:
    """An entry with another value, without it, or with another name."""
    try:
        settings = json.loads(options.read_text())
    except (ValueError, RecursionError):
        return "JSON damaged before"
    places = list(entries(settings))
    if not places:
        return "JSON without entries"
    holder, key, name = rng.choice(places)
    how = rng.random()
    if how < 0.7:
        holder[key] = rng.choice(VALUES)
        what = f"{name} = {holder[key]!r:.40}"
    elif how < 0.85 or isinstance(holder, list):
        del holder[key]
        what = f"{name} removed"
    else:
        holder[f"{key}_"] = holder.pop(key)
        what = f"{name} renamed"
    options.write_text(json.dumps(settings))
    return what


def entries(holder: Any, prefix: str = "") -> Iterator[tuple[Any, Any, str]]:
    """Each place of nested JSON: what holds it, its key, its name."""
    for key, value in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
        yield holder, key, f"{prefix}{key}"
        if isinstance(value, (dict, list)):
            yield from entries(value, f"{prefix}{key}.")


def change_text(rng: random.Random, options: Path, weights: Path) -> str:
    """A byte of the JSON, or something around it."""
    content = bytearray(options.read_bytes())
    if rng.random() < 0.2:
        around = rng.choice((b"\xef\xbb\xbf", b"[", b" " * 9, b"\0", b"[" * 100_000))
        options.write_bytes(around + content)
        return f"JSON after {around[:9]!r}"
    at = rng.randrange(len(content))
    content[at] = rng.randrange(256)
    options.write_bytes(content)
    return f"JSON with byte {content[at]} at {at}"


def change_dataset(rng: random.Random, options: Path, weights: Path) -> str:
    """A dataset of another shape, type or layout, with what is no number, removed, or under another name."""
    try:
        with h5py.File(weights, "r+") as file:
            names: list[str] = []
            file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
            name = rng.choice(sorted(names))
            array, how = file[name][...], rng.randrange(8)
            del file[name]
            if how < 3:
                replaced = (array.astype(np.float64), array.astype(np.float16), (array * 9).astype(np.int32))[how]
                file[name] = replaced
            elif how == 3:
                file.create_dataset(name, data=array, chunks=True, compression="gzip", fletcher32=True)
            elif how == 4:
                file[name] = array.T if array.ndim > 1 else array[:-1]
            elif how == 5:
                array.flat[rng.randrange(array.size)] = rng.choice((np.nan, np.inf, 1e38, -0.0))
                file[name] = array
            elif how == 6:
                file[f"{name}_"] = array
            return f"{name} changed in the way {how}"
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        return f"dataset not changed ({type(error).__name__})"


DAMAGES = (
    flip_bits,
    flip_bits,
    truncate,
    overwrite,
    change_json,
    change_json,
    change_json,
    change_text,
    change_dataset,
)
CHECK = Check("archives", prepare, cases=20)
