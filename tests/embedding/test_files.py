"""From rows or a file to a file, in Python and on the command line; what is refused, and what is left behind."""

import errno
import gzip
import json
import os
import shutil
import time
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pyarrow.parquet
import pytest
from filelock import FileLock
from safetensors import safe_open
from safetensors.numpy import load_file

import hf_elmo
from hf_elmo import ElmoTokenizer, cli, embed
from hf_elmo.embedding import store
from hf_elmo.embedding.corpus import EmbeddedCorpus
from hf_elmo.embedding.engine import CorpusEncoder
from hf_elmo.utils import jobs
from hf_elmo.utils.fingerprints import model_fingerprint, tokenizer_fingerprint
from tests.embedding.conftest import ROWS, close, initial_model
from tests.factories import write_lines

METADATA = {
    ".safetensors": lambda path: safe_open(path, "numpy").metadata()["hf_elmo"],
    ".npz": lambda path: zipfile.ZipFile(path).comment,
    ".hdf5": lambda path: h5py.File(path).attrs["hf_elmo"],
    ".parquet": lambda path: pyarrow.parquet.read_schema(path).metadata[b"hf_elmo"],
}
ENDINGS = list(METADATA)
# Of sequences, beside texts, which have none; a format cannot hold them, or they would be lost.
NAMES = [("a b a", [], ".npz"), ("a/b a", [], ".hdf5"), (".", [], ".h5"), ("a//b", [], ".hdf5"), ("A 0", [], ".txt")]
NAMES += [("A 0", ["a text"] * 2, ".npz"), ("A 0", ["a text"] * 2, ".parquet")]


def arrays_of(path) -> dict[str, np.ndarray]:
    """The arrays of a file by their names, read with the library that the format belongs to."""
    if path.suffix == ".safetensors":
        return load_file(path)
    if path.suffix == ".parquet":
        rows = pyarrow.parquet.read_table(path).to_pylist()
        return {row.get("id", str(row["row"])): np.array(row["embedding"], np.float32) for row in rows}
    with np.load(path) if path.suffix == ".npz" else h5py.File(path) as file:
        return {name: file[name][()] for name in file if name != "sentence_to_index"}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(("layers", "pooling", "output_dtype"), [("all", "none", "float16"), ("mix", "max", "float32")])
def test_every_format_holds_the_vectors(tmp_path, model, ending, output_dtype, layers, pooling):
    options = {"layers": layers, "pooling": pooling, "output_dtype": output_dtype, "batch_tokens": 15}
    options["shard_tokens"], path = 50, tmp_path / "new" / f"out{ending}"
    written = embed(model, write_lines(tmp_path / "in.txt", ROWS), path, **options)
    expected, found = embed(model, ROWS, **options), arrays_of(path)
    assert written == EmbeddedCorpus(path, len(ROWS), sum(map(len, embed(model, ROWS))), 22)
    assert list(path.parent.iterdir()) == [path]
    about = {"hf_elmo": hf_elmo.__version__, "model": model_fingerprint(model), "layers": layers, "pooling": pooling}
    about |= {"tokenizer": tokenizer_fingerprint(ElmoTokenizer()), "dtype": "float32"}
    assert json.loads(METADATA[ending](path)) == about
    if ending == ".parquet":
        vector, schema = pyarrow.list_(pyarrow.from_numpy_dtype(output_dtype), 22), pyarrow.parquet.read_schema(path)
        assert schema.names == ["row", "words", "embedding"]
        expected_type = vector if pooling == "max" else pyarrow.list_(pyarrow.list_(vector), 4)
        assert schema.field("embedding").type == expected_type
        assert pyarrow.parquet.read_table(path)["words"].to_pylist() == ElmoTokenizer().split_into_words(ROWS)
    elif pooling == "max":
        np.testing.assert_array_equal(found["embeddings"], expected, strict=True)
        return
    for row, array in enumerate(expected):
        one = found[str(row)]
        np.testing.assert_array_equal(one.astype(output_dtype).reshape(array.shape), array)
        assert ending == ".parquet" or (one.dtype, one.shape) == (array.dtype, array.shape)


@pytest.mark.parametrize("ending", ENDINGS)
def test_no_rows(tmp_path, model, ending):
    for pooling, arrays in (("none", 0), ("mean", 1)):
        how = {"layers": np.int64(1), "shard_tokens": np.int64(50), "batch_tokens": np.int64(9)}  # as NumPy counts
        embed(model, [], tmp_path / f"out{ending}", pooling=pooling, overwrite=True, **how)
        assert ending == ".parquet" or [*map(len, arrays_of(tmp_path / f"out{ending}").values())] == [0] * arrays


def test_hdf5_has_the_index_of_each_sentence(tmp_path, model):
    embed(model, iter(["A cat .", ["New York", "is"], "A cat ."]), tmp_path / "out.hdf5")
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert json.loads(file["sentence_to_index"][0]) == {"A cat .": "2", "New York is": "1"}


def test_an_existing_output_is_kept_unless_asked(tmp_path, model):
    output, link = write_lines(tmp_path / "out.npz", ["mine"]), tmp_path / "link.npz"
    link.symlink_to("nowhere")
    for path in (output, link):
        with pytest.raises(FileExistsError, match="overwrite"):
            embed(model, ROWS, path)
    assert output.read_text() == "mine\n"
    embed(model, ROWS, output, overwrite=True)
    assert len(np.load(output)) == len(ROWS)


@pytest.mark.parametrize(("ending", "pooling"), [*zip(ENDINGS, ["none"] * 4, strict=True), (".npz", "mean")])
def test_sequences_of_fasta_are_named_by_their_identifiers(tmp_path, model, ending, pooling):
    proteins = {"sp|P1|A_HUMAN": "MKVLAAGIVG", "蛋白": "ACDEF", "empty": "", "P4": "W"}
    lines = (f">{name} of a species\n{sequence}" for name, sequence in proteins.items())
    source, path = write_lines(tmp_path / "in.fa.gz", lines), tmp_path / f"out{ending}"
    embed(model, source, path, layers="sum", pooling=pooling)
    found = arrays_of(path)
    assert sorted(found) == sorted(proteins)
    expected = embed(model, [list(sequence) for sequence in proteins.values()], layers="sum", pooling=pooling)
    close([found[name].reshape(array.shape) for name, array in zip(proteins, expected, strict=True)], expected)


@pytest.mark.parametrize(("names", "others", "ending"), NAMES)
def test_names_that_are_not_kept_are_refused_before_the_work(tmp_path, model, names, others, ending, stop_after):
    write_lines(tmp_path / "in" / "a.fasta", [f">{name}\nMK" for name in names.split()])
    write_lines(tmp_path / "in" / "b.txt", others)
    calls = stop_after(0)
    with pytest.raises(ValueError, match="name"):
        embed(model, tmp_path / "in", tmp_path / f"out{ending}")
    assert calls == []


@pytest.mark.parametrize("name", ["{}", ">{:030}"])
def test_safetensors_with_too_large_a_header_is_refused_before_the_work(tmp_path, model, name, monkeypatch, stop_after):
    rows, output = [f"{name.format(n)}\nMKV" for n in range(1000, 1050)], tmp_path / "out.safetensors"
    source = write_lines(tmp_path / ("in.fasta" if name[0] == ">" else "in.txt"), rows)
    embed(model, source, output)
    header = int.from_bytes(output.read_bytes()[:8], "little")
    monkeypatch.setattr(store, "HEADER_BYTES", 1.2 * header)
    embed(model, source, output, overwrite=True)
    monkeypatch.setattr(store, "HEADER_BYTES", header - 1)
    calls = stop_after(0)
    with pytest.raises(ValueError, match="arrays"):
        embed(model, source, output, overwrite=True)
    assert calls == []


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_memory_does_not_grow_with_the_vectors(tmp_path, ending, monkeypatch):
    """For each row of one word, a format may keep less than half of the bytes of its vector in memory."""
    model = initial_model(hidden_size=1000)
    # The engine's memory is bounded by its batch; only the code around it could grow, so the engine computes nothing.
    monkeypatch.setattr(CorpusEncoder, "encode", lambda self, rows: None)

    def peak(rows: int) -> int:
        source = write_lines(tmp_path / f"{rows}.txt", ["word"] * rows)
        before = pyarrow.total_allocated_bytes()
        tracemalloc.start()
        embed(model, source, tmp_path / f"{rows}{ending}", shard_tokens=200, overwrite=True)
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest + pyarrow.total_allocated_bytes() - before

    peak(1)  # imports
    small, large = peak(200), peak(600)
    assert large - small < 400 * 4000 / 2


def test_command_embeds_with_every_option(tmp_path, checkpoint, model, capfd):
    source = write_lines(tmp_path / "in.csv", (f'{n},"{row}"' for n, row in enumerate(ROWS)))
    target = tmp_path / "out.npz"
    options = "--layers all --pooling max --dtype float32 --output-dtype float16 --device cpu --batch-tokens 33"
    options += " --shard-tokens 50 --input-format csv --text-column 1 --encoding utf-8 --pretokenized --overwrite"
    command = ["embed", str(source), str(target), "--model", checkpoint, "--restart", *options.split()]
    assert cli.main(command) == 0
    printed = capfd.readouterr()
    read = f"{source}: read as csv, the first row is {ElmoTokenizer().split_into_words(ROWS)[0]!s:.60}\n"
    assert (f"out.npz: {len(ROWS)} rows" in printed.out, printed.err) == (True, read)
    wanted = embed(model, ROWS, layers="all", pooling="max", output_dtype="float16", pretokenized=True, batch_tokens=33)
    np.testing.assert_allclose(np.load(target)["embeddings"], wanted, atol=2e-3)


def test_a_run_without_a_terminal_prints_lines(tmp_path, model, capsys, monkeypatch):
    monkeypatch.setattr(jobs, "LINE_SECONDS", 0.0)
    embed(model, ["a b"] * 120, tmp_path / "out.npz", progress="lines", batch_tokens=24)
    assert capsys.readouterr().err.splitlines()[-1].startswith("embedding: 120 of 120 rows, 100%")
    embed(model, ["a b"], tmp_path / "silent.npz")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("ending", [".txt", ".txt.gz"])
def test_text_has_a_line_for_each_word(tmp_path, model, ending):
    path, rows = tmp_path / f"out{ending}", [["New York", "a\tb"], [], ["is"]]

    def lines(**options) -> list[str]:
        embed(model, rows, path, overwrite=True, **options)
        return (gzip.decompress(path.read_bytes()) if ending == ".txt.gz" else path.read_bytes()).decode().split("\n")

    words = [line.split("\t") for line in lines(layers="all")]
    assert [word for word, *_ in words] == ["New York", "a b", "", "", "is", "", ""]
    vectors = [np.array(line[1].split(" "), np.float32) for line in words if line != [""]]
    first, _, last = (array.swapaxes(0, 1).reshape(-1, 4 * 22) for array in embed(model, rows, layers="all"))
    np.testing.assert_array_equal(vectors, [*first, *last])
    pooled = {"pooling": "mean", "output_dtype": "float16"}
    names, numbers = zip(*(line.split("\t") for line in lines(**pooled)[:-1]), strict=True)
    assert names == ("New York a b", "", "is")
    found = np.array([line.split(" ") for line in numbers], np.float16)
    np.testing.assert_array_equal(found, embed(model, rows, **pooled))


@pytest.mark.parametrize("links", [["out.npz.parts"], ["out.npz"], ["out.npz", "out.npz.parts"]], ids=" ".join)
def test_files_and_folders_of_other_disks_are_written_through_links(tmp_path, model, links, monkeypatch):
    (far := tmp_path / "far" / "out.npz.parts").mkdir(parents=True)
    (tmp_path / "near").mkdir()
    for name in links:
        (tmp_path / "near" / name).symlink_to(far.parent / name)
    rename = os.replace

    def within_a_folder(source, target):  # as a disk's own folders
        if os.path.realpath(os.path.dirname(source)) != os.path.realpath(os.path.dirname(target)):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(source, target)

    monkeypatch.setattr(os, "replace", within_a_folder)
    embed(model, ROWS, tmp_path / "near" / "out.npz", overwrite="out.npz" in links, shard_tokens=20)
    assert len(np.load(tmp_path / ("far" if "out.npz" in links else "near") / "out.npz")) == len(ROWS)
    assert [path.name for path in (tmp_path / "near").iterdir() if path.is_symlink()] == links
    assert list(far.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")], ids=repr)
def test_a_run_that_is_stopped_says_that_the_same_command_resumes(tmp_path, checkpoint, stop_after, capsys, error):
    source, output = write_lines(tmp_path / "in.txt", ROWS), tmp_path / "out.npz"
    command = ["embed", str(source), str(output), "--model", checkpoint, "--shard-tokens", "20"]
    for shards in (0, 1):
        stop_after(shards, error)
        assert cli.main(command) == (130 if isinstance(error, KeyboardInterrupt) else 1)
        printed = capsys.readouterr().err
        assert (f"{output}.parts: the same command resumes" in printed) == (shards == 1)
        assert isinstance(error, KeyboardInterrupt) or f"'{output}.parts{os.sep}0" in printed
        names = [path.name for path in tmp_path.glob("out.npz.parts/*")]
        assert sum(name.endswith(".arrow") for name in names) == shards  # and no draft


def test_hdf5_is_not_begun_on_a_disk_that_has_no_room_for_it(tmp_path, model, monkeypatch):
    """h5py would write thousands of lines, and crash."""
    if not hasattr(os, "posix_fallocate"):
        pytest.skip("no posix_fallocate on this system")
    monkeypatch.setattr(h5py, "File", None)
    sizes, allocate = [], os.posix_fallocate

    def fill(*arguments: int) -> None:
        sizes.append(arguments[2])
        if len(sizes) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(*arguments)

    monkeypatch.setattr(os, "posix_fallocate", fill)
    with pytest.raises(OSError, match="No space left") as error:
        embed(model, ROWS, tmp_path / "out.h5")
    assert error.value.filename == str(tmp_path / "out.h5")
    assert sizes[1] > sizes[0]


def test_a_run_that_waited_for_another_leaves_its_output_as_it_is(tmp_path, model):
    folder, output = tmp_path / "out.npz.parts", tmp_path / "out.npz"
    folder.mkdir()
    with FileLock(folder / ".lock"), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(embed, model, ROWS, output)
        while folder.exists() and waiting.running() and not time.sleep(0.3):
            output.write_bytes(b"")
            shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError, match="lock"):
        waiting.result()
    assert [*tmp_path.iterdir()] == [output]
