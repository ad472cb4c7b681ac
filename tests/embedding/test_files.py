"""From rows or a file to a file, in Python and on the command line; what is refused, and what is left behind."""

import errno
import gzip
import io
import json
import sys
import tracemalloc

import h5py
import numpy as np
import pyarrow.parquet
import pytest
from safetensors.numpy import load_file

import hf_elmo
from hf_elmo import ElmoTokenizer, cli, embed
from hf_elmo.embedding import EmbeddedCorpus, progress
from hf_elmo.embedding.engine import CorpusEncoder

from ..factories import write_lines
from .helpers import ROWS, close, initial_model, read

ENDINGS = [".safetensors", ".npz", ".hdf5", ".parquet"]


def arrays_of(path) -> dict[str, np.ndarray]:
    """The arrays of a file by their names, read with the library that the format belongs to."""
    if path.suffix == ".safetensors":
        return load_file(path)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    if path.suffix in (".hdf5", ".h5"):
        with h5py.File(path) as file:
            return {name: file[name][()] for name in file if name != "sentence_to_index"}
    return {
        row.get("id", str(row["row"])): np.array(row["embedding"], np.float32)
        for row in pyarrow.parquet.read_table(path).to_pylist()
    }


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(("layers", "pooling", "output_dtype"), [("all", "none", "float16"), ("mix", "max", "float32")])
def test_every_format_holds_the_vectors(tmp_path, model, ending, output_dtype, layers, pooling):
    options = {"layers": layers, "pooling": pooling, "output_dtype": output_dtype, "batch_tokens": 40, "window": 50}
    path = tmp_path / "new" / f"out{ending}"
    written = embed(model, write_lines(tmp_path / "in.txt", ROWS), path, **options)
    expected, found = embed(model, ROWS, **options), arrays_of(path)
    assert written == EmbeddedCorpus(path, len(ROWS), sum(map(len, embed(model, ROWS))), 22)
    assert list(path.parent.iterdir()) == [path]
    if ending == ".parquet":
        vector, schema = pyarrow.list_(pyarrow.from_numpy_dtype(output_dtype), 22), pyarrow.parquet.read_schema(path)
        assert schema.names == ["row", "words", "embedding"]
        assert schema.field("embedding").type == (
            vector if pooling == "max" else pyarrow.list_(pyarrow.list_(vector), 4)
        )
        assert pyarrow.parquet.read_table(path)["words"].to_pylist() == ElmoTokenizer().split_into_words(ROWS)
    elif pooling == "max":
        np.testing.assert_array_equal(found["embeddings"], expected, strict=True)
        return
    for row, array in enumerate(expected):
        one = found[str(row)]
        np.testing.assert_array_equal(one.astype(output_dtype).reshape(array.shape), array)
        assert ending == ".parquet" or (one.dtype, one.shape) == (array.dtype, array.shape)


@pytest.mark.parametrize("ending", ENDINGS)
def test_no_rows_and_blank_rows(tmp_path, model, ending):
    path = tmp_path / f"out{ending}"
    for pooling, rows in (("none", 0), ("mean", 1)):
        embed(model, [], path, pooling=pooling, overwrite=True)
        assert ending == ".parquet" or [len(array) for array in arrays_of(path).values()] == [0] * rows
    embed(model, ["", "  "], path, pooling="mean", overwrite=True)
    assert not any(array.any() for array in arrays_of(path).values())


def test_hdf5_has_the_index_of_each_sentence(tmp_path, model):
    """As AllenNLP's `embed_file` writes it."""
    embed(model, iter(["A cat .", ["New York", "is"], "A cat ."]), tmp_path / "out.hdf5")
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert json.loads(file["sentence_to_index"][0]) == {"A cat .": "2", "New York is": "1"}


@pytest.mark.parametrize("window", [1, 13])
def test_the_window_does_not_change_the_rows_of_a_generator(tmp_path, model, window):
    rows = [*ROWS, ["New York", "isn't"]]
    embed(model, iter(rows), tmp_path / "out.npz", window=window)
    close(read(tmp_path / "out.npz"), embed(model, iter(rows)))
    assert len(read(tmp_path / "out.npz")) == len(rows)


def test_standard_input(tmp_path, model, monkeypatch):
    data = "".join(json.dumps({"text": row}) + "\n" for row in ROWS).encode()
    monkeypatch.setattr(sys, "stdin", type("Stream", (), {"buffer": io.BytesIO(data)}))
    embed(model, "-", tmp_path / "out.npz", input_format="jsonl")
    close(read(tmp_path / "out.npz"), embed(model, ROWS))


@pytest.mark.parametrize("ending", [".npz", ".parquet"])
def test_lone_surrogates_are_dropped(tmp_path, model, ending):
    (tmp_path / "in.jsonl").write_text('{"text": "RT \\ud83d cut"}\n')
    embed(model, tmp_path / "in.jsonl", tmp_path / f"out{ending}", pretokenized=True)
    close(arrays_of(tmp_path / f"out{ending}").values(), embed(model, ["RT cut"]))


def test_a_malformed_row_is_found_before_the_work(tmp_path, model):
    (tmp_path / "in.jsonl").write_text('"a"\n{"text": 5}\n')
    with pytest.raises(TypeError, match="row 1"):
        embed(model, tmp_path / "in.jsonl", tmp_path / "out.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_an_existing_output_is_kept_unless_asked(tmp_path, model):
    target = tmp_path / "out.npz"
    target.write_bytes(b"mine")
    (tmp_path / "link.npz").symlink_to(tmp_path / "nowhere")
    for output in (target, tmp_path / "link.npz"):
        with pytest.raises(FileExistsError, match="overwrite"):
            embed(model, ROWS, output)
    assert target.read_bytes() == b"mine"
    embed(model, ROWS, target, overwrite=True)
    assert len(read(target)) == len(ROWS)


@pytest.mark.parametrize("name", ["./in.parquet", "link.parquet"])
def test_an_output_that_is_the_input_is_refused(tmp_path, model, monkeypatch, name):
    pyarrow.parquet.write_table(pyarrow.table({"text": ROWS[:2]}), tmp_path / "in.parquet")
    (tmp_path / "link.parquet").symlink_to("in.parquet")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="output"):
        embed(model, "in.parquet", name, overwrite=True)


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"layers": "top"}, ValueError, "layers"),
        ({"layers": 4}, ValueError, "layers"),
        ({"pooling": "sum"}, ValueError, "pooling"),
        ({"output_dtype": "bfloat16"}, ValueError, "output_dtype"),
        ({"output": "out.pt"}, ValueError, "output"),
        ({"batch_tokens": -5}, ValueError, "batch_tokens is -5"),
        ({"window": 0}, ValueError, "window is 0"),
        ({"output": "out.npz", "workers": 0}, ValueError, "workers is 0"),
        ({"inputs": "The cat sat."}, FileNotFoundError, "The cat sat.*pass a list"),
        ({"inputs": ["a", 3]}, TypeError, "inputs, row 1"),
        ({"tokenizer": ElmoTokenizer(max_word_length=9)}, ValueError, "9 characters"),
    ],
    ids=str,
)
def test_wrong_options_are_named(tmp_path, monkeypatch, model, options, error, named):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=named):
        embed(**{"model": model, "inputs": ROWS, **options})
    assert list(tmp_path.iterdir()) == []


# -- FASTA -------------------------------------------------------------------------------------------------------------

PROTEINS = {"sp|P1|A_HUMAN": "MKVLAAGIVG", "蛋白": "ACDEF", "empty": "", "P4": "W"}


@pytest.mark.parametrize(("ending", "pooling"), [*zip(ENDINGS, ["none"] * 4, strict=True), (".npz", "mean")])
def test_sequences_of_fasta_are_named_by_their_identifiers(tmp_path, model, ending, pooling):
    fasta = "".join(f">{name} of a species\n{sequence}\n" for name, sequence in PROTEINS.items())
    (tmp_path / "in.fa.gz").write_bytes(gzip.compress(fasta.encode()))
    path = tmp_path / f"out{ending}"
    embed(model, tmp_path / "in.fa.gz", path, layers="sum", pooling=pooling)
    found = arrays_of(path)
    assert sorted(found) == sorted(PROTEINS)
    expected = embed(model, [list(sequence) for sequence in PROTEINS.values()], layers="sum", pooling=pooling)
    close([found[name].reshape(array.shape) for name, array in zip(PROTEINS, expected, strict=True)], expected)


@pytest.mark.parametrize(
    ("names", "ending"),
    [(["a", "b", "a"], ".npz"), (["a/b", "a"], ".hdf5"), (["."], ".h5"), (["a//b"], ".hdf5"), (["a/"], ".hdf5")],
)
def test_names_that_a_format_cannot_hold_are_refused_before_the_work(tmp_path, model, names, ending, stop_after):
    write_lines(tmp_path / "in.fasta", [f">{name}\nMK" for name in names])
    calls = stop_after(0)
    with pytest.raises(ValueError, match="name"):
        embed(model, tmp_path / "in.fasta", tmp_path / f"out{ending}")
    assert calls == []


def test_a_missing_h5py_is_said_before_the_work(tmp_path, model, monkeypatch, stop_after):
    calls = stop_after(0)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ModuleNotFoundError, match="convert"):
        embed(model, ROWS, tmp_path / "out.hdf5")
    assert calls == []


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".safetensors", ".npz", ".hdf5", ".parquet"])
def test_memory_does_not_grow_with_the_vectors(tmp_path, ending, monkeypatch):
    """For each row of one word, a format may keep less than half of the bytes of its vector in memory."""
    model = initial_model(hidden_size=1000)
    # The engine's memory is bounded by its batch; only the code around it could grow, so the engine computes nothing.
    monkeypatch.setattr(CorpusEncoder, "encode", lambda self, rows, window: self.advance(len(rows), 0))
    monkeypatch.setattr("hf_elmo.embedding.corpus.SPLIT_ROWS", 50)

    def peak(rows: int) -> int:
        source = write_lines(tmp_path / f"{rows}.txt", ["word"] * rows)
        before = pyarrow.total_allocated_bytes()
        tracemalloc.start()
        embed(model, source, tmp_path / f"{rows}{ending}", window=200, overwrite=True)
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest + pyarrow.total_allocated_bytes() - before

    peak(200)  # imports
    small, large = peak(200), peak(600)
    assert large - small < 400 * 4000 / 2


# -- command line ------------------------------------------------------------------------------------------------------


def test_command_embeds_with_every_option(tmp_path, checkpoint, model, capsys):
    (tmp_path / "in.csv").write_text("".join(f'{n},"{row}"\n' for n, row in enumerate(ROWS)), encoding="utf-8")
    target = tmp_path / "out.npz"
    options = "--layers all --pooling max --dtype float32 --output-dtype float16 --device cpu --batch-tokens 33"
    options += " --window 50 --input-format csv --text-column 1 --encoding utf-8 --pretokenized --overwrite --restart"
    assert cli.main(["embed", str(tmp_path / "in.csv"), str(target), "--model", checkpoint, *options.split()]) == 0
    wanted = embed(model, ROWS, layers="all", pooling="max", output_dtype="float16", pretokenized=True, batch_tokens=33)
    np.testing.assert_allclose(np.load(target)["embeddings"], wanted, atol=2e-3)
    assert f"out.npz: {len(ROWS)} rows" in capsys.readouterr().out


def test_the_model_that_ships_is_the_default_and_prints_nothing_but_the_size(tmp_path, capfd):
    model, tokenizer = hf_elmo.load_default()
    rows = ["A river bank .", "", "The bank gave her money ."]
    for one, other in zip(embed(None, rows), embed(model, rows, tokenizer=tokenizer), strict=True):
        np.testing.assert_array_equal(one, other)
    assert capfd.readouterr() == ("", "")
    source = write_lines(tmp_path / "in.txt", rows)
    assert cli.main(["embed", str(source), str(tmp_path / "out.npz"), "--layers", "all"]) == 0
    assert capfd.readouterr().err == "3 rows, about 10 words\n"
    with np.load(tmp_path / "out.npz") as arrays:
        assert arrays["2"].shape == (3, 6, model.config.hidden_size)


@pytest.mark.parametrize(
    "wrong", [["--workers", "0"], ["--batch-tokens=-5"], ["--shard-rows", "5"], ["--engine", "ray", "--window", "5"]]
)
def test_numbers_that_make_no_sense_are_errors_of_the_command_line(tmp_path, wrong, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["embed", "in.txt", str(tmp_path / "out.npz"), *wrong])
    assert ended.value.code == 2
    assert max(wrong, key=len).split("=")[0] in capsys.readouterr().err


def test_a_large_run_says_before_it_starts_what_it_takes(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    model, rows = initial_model(hidden_size=3000, layer_weights=0), ["a b c d e f g h i j"] * 120
    source = write_lines(tmp_path / "in.txt", rows)
    embed(model, source, tmp_path / "out.npz", progress="lines", batch_tokens=24)
    lines = capsys.readouterr().err.splitlines()
    (size,) = (line for line in lines if line.startswith("120"))
    assert size.startswith("120 rows, about 1,200 words: out.npz will take about 0.01 GB")
    assert "words/s" in size
    assert lines[-1].startswith("embedding: 120 of 120 rows, 100%")
    embed(model, rows[:3], tmp_path / "silent.npz")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")], ids=repr)
def test_a_run_that_is_stopped_says_that_the_same_command_resumes(tmp_path, checkpoint, stop_after, capsys, error):
    source, output = write_lines(tmp_path / "in.txt", ROWS), tmp_path / "out.npz"
    stop_after(1, error)
    command = ["embed", str(source), str(output), "--model", checkpoint, "--window", "20"]
    assert cli.main(command) == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert f"{output}.parts: the same command resumes" in capsys.readouterr().err
