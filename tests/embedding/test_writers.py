"""Files of vectors: what was computed is what other libraries read back, for every format."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from hf_elmo import embed
from hf_elmo.embedding import parts as parts_module
from hf_elmo.embedding import writers
from hf_elmo.embedding.parts import PartsFolder, RowLayout, WindowFile, WindowInMemory
from hf_elmo.embedding.writers import check_row_count, writer_for

from .helpers import ROWS, initial_model

SIZE = 6
WORDS = [["a", "b", "c"], [], ["d"], ["Ünï", "e", "f", "g", ""], [], ["h", "i"]]
WINDOWS = [WORDS[:2], WORDS[2:3], WORDS[3:]]
LAYOUTS = {
    f"{'pooled' if pooled else 'words'}-{layers or 'one'}-{dtype}": RowLayout(layers, SIZE, pooled, np.dtype(dtype))
    for pooled in (False, True)
    for layers in (None, 3)
    for dtype in ("<f4", "<f2")
}
ENDINGS = [".safetensors", ".npz", ".hdf5", ".h5", ".parquet"]


@pytest.fixture(params=LAYOUTS.values(), ids=LAYOUTS)
def layout(request) -> RowLayout:
    return request.param


def stored(tmp_path: Path, layout: RowLayout, ending: str) -> tuple[PartsFolder, list[np.ndarray]]:
    """Three finished windows of random values (blank rows zero), and each row's values."""
    parts = PartsFolder(tmp_path / f"out{ending}")
    with parts.prepared(restart=False):
        parts.agree({"model": "m"})
    random, arrays = np.random.default_rng(7), []
    for number, window_rows in enumerate(WINDOWS):
        with parts.new_window(number, layout, window_rows) as window:
            for row, words in enumerate(window_rows):
                shape = layout.shape(len(words))
                values = random.standard_normal(shape) if words else np.zeros(shape)
                arrays.append(values.astype(layout.dtype))
                if words:
                    window.put(row, torch.from_numpy(arrays[-1] if layout.layers else arrays[-1][None]))
    return parts, arrays


def read(path: Path, layout: RowLayout) -> dict[str, np.ndarray]:
    """The arrays of a file by their names, read with the library that the format belongs to."""
    if path.suffix == ".safetensors":
        return pytest.importorskip("safetensors.numpy").load_file(path)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    if path.suffix in (".hdf5", ".h5"):
        with pytest.importorskip("h5py").File(path) as file:
            return {name: file[name][()] for name in file}
    table = pytest.importorskip("pyarrow.parquet").read_table(path)
    shapes = [layout.shape(len(words)) for words in table["words"].to_pylist()]
    values = [np.array(value, layout.dtype) for value in table["embedding"].to_pylist()]
    arrays = [value.reshape(shape) for value, shape in zip(values, shapes, strict=True)]
    if layout.pooled:
        return {"embeddings": np.stack(arrays)}
    return {str(row): array for row, array in zip(table["row"].to_pylist(), arrays, strict=True)}


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_written_is_read_back(tmp_path, layout, ending):
    parts, arrays = stored(tmp_path, layout, ending)
    writer_for(parts.output)(parts.output, parts, layout)
    found = read(parts.output, layout)
    expected = {"embeddings": np.stack(arrays)} if layout.pooled else {str(i): a for i, a in enumerate(arrays)}
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == layout.dtype
        np.testing.assert_array_equal(found[name], array, strict=True)


@pytest.mark.parametrize("ending", ENDINGS)
def test_rows_larger_than_a_chunk_and_a_row_group(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(parts_module, "CHUNK_BYTES", 40)
    monkeypatch.setattr(writers, "CHUNK_BYTES", 40)
    monkeypatch.setattr(writers, "ROW_GROUP_BYTES", 100)
    layout = LAYOUTS["words-3-<f4"]
    parts, arrays = stored(tmp_path, layout, ending)
    writer_for(parts.output)(parts.output, parts, layout)
    found = read(parts.output, layout)
    for number, array in enumerate(arrays):
        np.testing.assert_array_equal(found[str(number)], array, strict=True)


def test_hdf5_is_laid_out_as_bilm_tf_does(tmp_path):
    h5py = pytest.importorskip("h5py")
    layout = LAYOUTS["words-3-<f4"]
    parts, _ = stored(tmp_path, layout, ".hdf5")
    writer_for(parts.output)(parts.output, parts, layout)
    with h5py.File(parts.output) as file:
        assert file["3"].shape == (3, 5, SIZE)  # layers, words without boundaries, 2P
        assert file["3"].dtype == np.float32
        assert sorted(file) == ["0", "1", "2", "3", "4", "5"]


def test_parquet_keeps_row_numbers_and_words(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    layout = LAYOUTS["words-one-<f4"]
    parts, _ = stored(tmp_path, layout, ".parquet")
    writer_for(parts.output)(parts.output, parts, layout)
    table = parquet.read_table(parts.output)
    assert table["row"].to_pylist() == list(range(len(WORDS)))
    assert table["words"].to_pylist() == WORDS


@pytest.mark.parametrize("ending", [".safetensors", ".npz"])
def test_two_writings_have_the_same_bytes(tmp_path, ending):
    parts, _ = stored(tmp_path, LAYOUTS["words-one-<f4"], ending)
    first, second = tmp_path / f"1{ending}", tmp_path / f"2{ending}"
    for path in (first, second):
        writer_for(path)(path, parts, LAYOUTS["words-one-<f4"])
    assert first.read_bytes() == second.read_bytes()


def test_npz_is_a_sound_zip_file(tmp_path):
    parts, _ = stored(tmp_path, LAYOUTS["words-one-<f4"], ".npz")
    writer_for(parts.output)(parts.output, parts, LAYOUTS["words-one-<f4"])
    with zipfile.ZipFile(parts.output) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [f"{number}.npy" for number in range(len(WORDS))]


def test_no_rows_at_all(tmp_path, layout):
    for ending in ENDINGS:
        parts = PartsFolder(tmp_path / f"none{ending}")
        with parts.prepared(restart=False):
            writer_for(parts.output)(parts.output, parts, layout)
        if ending != ".parquet":
            found = read(parts.output, layout)
            assert [array.shape for array in found.values()] == ([(0, *layout.shape(0))] if layout.pooled else [])
        else:
            assert pytest.importorskip("pyarrow.parquet").read_table(parts.output).num_rows == 0


def test_unknown_ending_names_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown ending '\.pt'.*\.safetensors.*\.parquet"):
        writer_for(Path("out.pt"))


@pytest.mark.parametrize(("ending", "module"), [(".hdf5", "h5py"), (".parquet", "pyarrow.parquet")])
def test_missing_library_is_named_with_its_remedy(monkeypatch, ending, module):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(ImportError, match=f"pip install {module.split('.')[0]}"):
        writer_for(Path(f"out{ending}"))


def test_too_many_rows_for_safetensors_are_refused_before_the_work():
    layout = LAYOUTS["words-one-<f4"]
    check_row_count(Path("a.safetensors"), layout, 1_000_000)
    with pytest.raises(ValueError, match=r"safetensors stores about .* not 2,000,000; take \.hdf5"):
        check_row_count(Path("a.safetensors"), layout, 2_000_000)
    check_row_count(Path("a.npz"), layout, 2_000_000)
    check_row_count(Path("a.safetensors"), LAYOUTS["pooled-one-<f4"], 2_000_000)


def test_too_large_a_safetensors_header_loses_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(writers, "SAFETENSORS_HEADER_LIMIT", 100)
    layout = LAYOUTS["words-one-<f4"]
    parts, arrays = stored(tmp_path, layout, ".safetensors")
    with pytest.raises(ValueError, match=r"header takes \d+ bytes.*rename .*out\.safetensors\.parts"):
        writer_for(parts.output)(tmp_path / "draft", parts, layout)
    renamed = PartsFolder(tmp_path / "out.npz")
    parts.path.rename(renamed.path)
    writer_for(renamed.output)(renamed.output, renamed, layout)
    np.testing.assert_array_equal(read(renamed.output, layout)["3"], arrays[3], strict=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("output_dtype", ["<f4", "<f2"])
@pytest.mark.parametrize("layers", [None, 3])
@pytest.mark.parametrize("pooled", [False, True], ids=["words", "pooled"])
def test_a_window_in_memory_holds_what_one_in_a_file_holds(layers, pooled, output_dtype, dtype) -> None:
    torch.manual_seed(0)
    counts, layout = [2, 0, 5, 1], RowLayout(layers, 6, pooled, np.dtype(output_dtype))
    in_memory, in_file = WindowInMemory(layout, counts), WindowFile(io.BytesIO(), layout, counts)
    in_file.allocate()
    for row in (2, 0, 3):
        parts = [slice(0, 3), slice(3, 5)] if row == 2 and not pooled else [slice(0, counts[row])]
        values = torch.randn(layers or 1, counts[row], 6).to(dtype)
        for part in parts:
            for window in (in_memory, in_file):
                window.put(row, values[:, 0] if pooled else values[:, part], start=part.start)
        wanted = (values[:, 0] if pooled else values).float().numpy().reshape(layout.shape(counts[row]))
        np.testing.assert_array_equal(in_memory.arrays[row], wanted.astype(layout.dtype))
    assert in_file.file.getvalue() == b"".join(array.tobytes() for array in in_memory.arrays)
    assert not in_memory.arrays[1].any()


def test_a_row_group_has_no_more_rows_than_it_may(tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(writers, "ROW_GROUP_ROWS", 3)
    embed(initial_model(), ROWS[:7], tmp_path / "out.parquet")
    metadata = parquet.read_metadata(tmp_path / "out.parquet")
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [3, 3, 1]
