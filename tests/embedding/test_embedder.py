"""One object embeds batches of every kind, in every engine's workers, to the vectors of `embed`."""

import multiprocessing
import os
import pickle
import shutil
import sys
import types

import numpy as np
import pytest
import torch

from hf_elmo import ElmoConfig, ElmoModel, ElmoTokenizer, Embedder, embed, kernels
from hf_elmo.embedding import embedder as module
from hf_elmo.embedding.parts import WindowInMemory

from ..conftest import random_model
from ..forks import exit_code
from .helpers import ROWS, close, initial_model

pyarrow = pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")
CHOICES = [("mix", "none"), ("all", "none"), (1, "mean"), ("all", "max")]
choices = pytest.mark.parametrize(("layers", "pooling"), CHOICES, ids=lambda value: str(value))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, model) -> str:
    folder = tmp_path_factory.mktemp("embedder") / "checkpoint"
    model.save_pretrained(folder)
    ElmoTokenizer("whitespace").save_pretrained(folder)
    return str(folder)


@pytest.fixture
def windows(monkeypatch) -> list[WindowInMemory]:
    """The windows into which vectors are computed."""
    seen, init = [], WindowInMemory.__init__

    def noting(self, *arguments):
        init(self, *arguments)
        seen.append(self)

    monkeypatch.setattr(WindowInMemory, "__init__", noting)
    return seen


def same(found, wanted) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def nested(value):
    """Nested lists of numbers, whatever holds them."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    return [nested(part) for part in value] if isinstance(value, list) else value


# -- kinds of batches --------------------------------------------------------------------------------------------------


@choices
def test_columns_by_name_get_the_arrays_of_embed(checkpoint, layers, pooling):
    batch = {"id": list(range(len(ROWS))), "text": ROWS}
    found = Embedder(checkpoint, layers=layers, pooling=pooling)(batch)
    assert list(found) == ["id", "text", "embedding"]
    assert list(batch) == ["id", "text"]
    same(found["embedding"], embed(checkpoint, ROWS, layers=layers, pooling=pooling))


@choices
def test_arrow_gets_lists_of_a_fixed_size_in_the_memory_of_the_windows(checkpoint, windows, layers, pooling):
    table = pyarrow.table({"id": pyarrow.array(range(len(ROWS)), pyarrow.int8()), "text": ROWS})
    found = Embedder(checkpoint, layers=layers, pooling=pooling, batch_tokens=2)(table)  # windows of 32 tokens
    assert found.column_names == ["id", "text", "embedding"]
    assert found["id"] == table["id"]
    vector = pyarrow.list_(pyarrow.float32(), 22)
    words = vector if pooling == "mean" or pooling == "max" else pyarrow.list_(vector)
    assert found.schema.field("embedding").type == (pyarrow.list_(words, 4) if layers == "all" else words)
    chunks = found["embedding"].chunks
    assert len(chunks) == len(windows) >= 2
    for chunk, window in zip(chunks, windows, strict=True):
        while not pyarrow.types.is_floating(chunk.type):
            chunk = chunk.values
        assert chunk.buffers()[1].address == window.values.ctypes.data
    wanted = embed(checkpoint, ROWS, layers=layers, pooling=pooling, batch_tokens=2)
    assert found["embedding"].to_pylist() == [nested(array) for array in wanted]


@pytest.mark.parametrize("dtype", [object, "string", None], ids=str)
def test_nulls_of_frames_are_blank_rows(checkpoint, dtype):
    frame = pandas.DataFrame({"text": pandas.Series(["a b", None, "c"], dtype=dtype)})
    found = Embedder(checkpoint, pooling="none", words_column="words")(frame)
    assert [list(words) for words in found["words"]] == [["a", "b"], [], ["c"]]


def test_lists_of_words_that_are_as_long_may_be_an_array(checkpoint):
    words = [["a", "b"], ["c", "d"]]
    found = Embedder(checkpoint)({"text": np.array(words)})
    for own, wanted in zip(found["embedding"], embed(checkpoint, words), strict=True):
        np.testing.assert_array_equal(own, wanted)


@choices
def test_frames_get_nested_lists_that_arrow_and_spark_take(checkpoint, layers, pooling):
    frame = pandas.DataFrame({"text": ROWS, "id": range(len(ROWS))}, index=range(7, 7 + len(ROWS)))
    found = Embedder(checkpoint, layers=layers, pooling=pooling)(frame)
    assert list(found.columns) == ["text", "id", "embedding"]
    assert list(found.index) == list(frame.index)
    wanted = embed(checkpoint, ROWS, layers=layers, pooling=pooling)
    of = pyarrow.float32()
    for _ in range(wanted[0].ndim):
        of = pyarrow.list_(of)  # array<array<float>>, as Spark has it
    assert pyarrow.array(found["embedding"].tolist(), of).to_pylist() == [nested(array) for array in wanted]


@pytest.mark.parametrize("make", [list, tuple, np.array, pandas.Series], ids=lambda value: value.__name__)
def test_a_list_of_texts_gets_columns(checkpoint, make):
    found = Embedder(checkpoint, words_column="words")(make(ROWS))
    assert list(found["text"]) == ROWS
    assert found["words"] == [row.split() for row in ROWS]
    same(found["embedding"], embed(checkpoint, ROWS))


def test_an_iterator_of_batches_gives_an_iterator(checkpoint):
    """As `mapInPandas` and `mapInArrow` of Spark call it."""
    embedder = Embedder(checkpoint, text_column="line", words_column="words")
    for make in (pandas.DataFrame, pyarrow.table, pyarrow.RecordBatch.from_pydict):
        batches = embedder(make({"line": ROWS[start : start + 3]}) for start in (0, 3))
        assert next(batches).shape == (3, 3)
        second = next(batches)
        assert type(second) is type(make({}))
        words = second["words"].tolist() if make is pandas.DataFrame else second["words"].to_pylist()
        assert words == [row.split() for row in ROWS[3:6]]
        with pytest.raises(StopIteration):
            next(batches)


def test_a_record_batch_has_one_array_of_several_windows(checkpoint, windows):
    found = Embedder(checkpoint, batch_tokens=2)(pyarrow.RecordBatch.from_pydict({"text": ROWS}))
    assert isinstance(found, pyarrow.RecordBatch)
    assert len(windows) >= 2
    assert found["embedding"].to_pylist() == [nested(array) for array in embed(checkpoint, ROWS, batch_tokens=2)]


def test_batches_without_rows(checkpoint):
    embedder = Embedder(checkpoint, layers="all", words_column="words")
    assert embedder([]) == {"text": [], "embedding": [], "words": []}
    found = embedder(pyarrow.table({"text": pyarrow.array([], pyarrow.string())}))
    assert found.num_rows == 0
    assert found.schema == embedder(pyarrow.table({"text": ["a"]})).schema
    assert Embedder(checkpoint, pooling="mean")({"text": []})["embedding"].shape == (0, 22)
    assert embedder(pandas.DataFrame({"text": []}))["embedding"].tolist() == []


def test_every_option_is_that_of_embed(checkpoint):
    options = {"layers": "sum", "output_dtype": "float16", "dtype": "bfloat16", "batch_tokens": 9, "device": "cpu"}
    found = Embedder(checkpoint, **options, column="vectors")({"text": ROWS, "other": ROWS})
    same(found["vectors"], embed(checkpoint, ROWS, **options))
    rows = ["isn't  split\u2003up.", "so."]
    for pretokenized in (False, True):
        found = Embedder(None, pretokenized=pretokenized, words_column="words")(rows)
        same(found["embedding"], embed(None, rows, pretokenized=pretokenized))
        assert (found["words"][0] == ["isn't", "split", "up."]) == pretokenized


def test_words_already_split_are_never_split_again(checkpoint):
    rows = [["New York", "isn't"], []]
    for batch in ({"words": rows}, {"words": np.array([*map(np.array, rows)], object)}, pyarrow.table({"words": rows})):
        found = Embedder(checkpoint, pooling="max")(batch)["embedding"]
        assert nested(found if isinstance(found, np.ndarray) else found.to_pylist()) == nested(
            embed(checkpoint, rows, pooling="max")
        )


def test_a_text_has_the_same_bits_in_other_batches_where_the_fused_lstm_runs(tmp_path):
    sizes = {"hidden_size": 128, "cell_size": 96, "char_filters": [[1, 8], [2, 24]], "char_embedding_size": 4}
    random_model(ElmoConfig(**sizes)).save_pretrained(tmp_path)
    ElmoTokenizer().save_pretrained(tmp_path)
    texts = [f"the {'very ' * (n % 5)}tall tree number {n} fell" for n in range(64)]
    embedder = Embedder(tmp_path)
    with kernels.record() as ran:
        whole = embedder(texts)["embedding"]
    if not any("fused" in str(one) for one in ran):
        pytest.skip(f"the fused LSTM does not run here: {ran}")
    cut = [array for start in range(0, 64, 16) for array in embedder(texts[start : start + 16])["embedding"]]
    same(cut, whole)


# -- workers -----------------------------------------------------------------------------------------------------------


def test_it_pickles_without_the_model_which_is_loaded_once_a_process(checkpoint, monkeypatch):
    loaded, load = [], module.prepare

    def noting(*arguments):
        loaded.append(arguments)
        return load(*arguments)

    monkeypatch.setattr(module, "prepare", noting)
    embedder = Embedder(checkpoint, threads=torch.get_num_threads())
    module._loaded.cache_clear()
    before = len(pickle.dumps(embedder))
    first = embedder(ROWS)["embedding"]
    assert len(pickle.dumps(embedder)) == before < 1000
    other = pickle.loads(pickle.dumps(embedder))  # as an engine does that hands the object out with each task
    same(other(ROWS)["embedding"], first)
    same(Embedder(checkpoint, threads=torch.get_num_threads(), column="other")(ROWS)["other"], first)
    assert len(loaded) == 1


def test_a_relative_folder_is_found_from_elsewhere(checkpoint, monkeypatch, tmp_path):
    monkeypatch.chdir(os.path.dirname(checkpoint))
    embedder = Embedder("checkpoint")
    monkeypatch.chdir(tmp_path)
    same(embedder(ROWS)["embedding"], embed(checkpoint, ROWS))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_checkpoint_that_changed_is_refused(checkpoint, tmp_path, name):
    folder = shutil.copytree(checkpoint, tmp_path / "copy")
    embedder = Embedder(folder)
    (folder / "README.md").write_text("a card")
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if name.startswith("model") else data + b"\n")
    with pytest.raises(ValueError, match="not the one for which the embedder was made"):
        embedder(ROWS)
    (folder / name).write_bytes(data)
    same(embedder(ROWS)["embedding"], embed(checkpoint, ROWS))


def threads_after(embedder, queue) -> None:
    try:
        queue.put((embedder(["a b"])["embedding"][0], torch.get_num_threads()))
    except ValueError as error:
        queue.put(error)


def in_child(embedder, method: str = "fork") -> tuple[np.ndarray, int] | ValueError:
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=threads_after, args=(embedder, queue))
    child.start()
    result = queue.get(timeout=60)
    child.join()
    return result


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_the_threads_of_a_worker(checkpoint, threads, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    wanted = embed(checkpoint, ["a b"])[0]
    threads(2)
    Embedder(checkpoint)(["a b"])
    assert torch.get_num_threads() == 2  # outside of workers it stays PyTorch's own
    monkeypatch.setenv("OMP_NUM_THREADS", "3,1")
    assert module._threads(None) == 3  # as Ray and Spark say it to a worker
    vectors, number = in_child(Embedder(checkpoint))
    np.testing.assert_array_equal(vectors, wanted)
    assert number == 1  # a process of a pool, which loads a model of its own after a fork
    assert "OpenMP's threads do not survive a fork" in str(in_child(Embedder(checkpoint, threads=2)))
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert module._threads(None) is None


def test_a_worker_that_is_not_forked_takes_more_threads(checkpoint):
    vectors, number = in_child(Embedder(checkpoint, threads=2), "spawn")
    assert number == 2
    close([vectors], embed(checkpoint, ["a b"]))


def test_a_worker_takes_the_gpu_of_its_rank(checkpoint, monkeypatch):
    taken = []

    def prepare(model, tokenizer, dtype, device):
        taken.append(device)
        raise RuntimeError("no GPU to load it on")

    monkeypatch.setattr(module, "prepare", prepare)
    module._loaded.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    for options, rank in (({}, 6), ({}, None), ({"device": "cuda:3"}, 1)):
        with pytest.raises(RuntimeError, match="no GPU"):
            Embedder(checkpoint, **options)(ROWS, rank)
    assert taken == ["cuda:2", None, "cuda:3"]


# -- Datasets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [None, 2])
def test_datasets_map(checkpoint, tmp_path, workers):
    datasets = pytest.importorskip("datasets")
    texts = [f"{row} {number}" for number in range(6) for row in ROWS]
    data = datasets.Dataset.from_dict({"text": texts, "id": range(len(texts))})
    embedder = Embedder(checkpoint)
    wanted = embed(checkpoint, texts)
    found = data.map(embedder, batched=True, batch_size=7, num_proc=workers, with_rank=True)
    assert found.column_names == ["text", "id", "embedding"]
    close([np.array(row, np.float32) for row in found["embedding"]], wanted)
    arrow = data.with_format("arrow").map(embedder, batched=True, batch_size=7, num_proc=workers)
    close([np.array(row.as_py(), np.float32) for row in arrow[:]["embedding"]], wanted)
    assert arrow.data.schema.field("embedding").type == pyarrow.list_(pyarrow.list_(pyarrow.float32(), 22))
    assert arrow.with_format(None)["text"][:] == texts


def test_datasets_keep_the_result_until_the_checkpoint_changes(checkpoint, tmp_path):
    Hasher = pytest.importorskip("datasets.fingerprint").Hasher
    folder = shutil.copytree(checkpoint, tmp_path / "copy")
    first = Hasher.hash(Embedder(folder))
    assert Hasher.hash(Embedder(folder)) == first
    assert Hasher.hash(Embedder(folder, layers="all")) != first
    initial_model(seed=1, num_hidden_layers=3).save_pretrained(folder)
    assert Hasher.hash(Embedder(folder)) != first


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"layers": 4}, ValueError, "layers=4 is unknown; take .* 0 to 3"),
        ({"pooling": "sum"}, ValueError, "pooling 'sum' is unknown"),
        ({"dtype": "float8"}, ValueError, "dtype 'float8' is unknown"),
        ({"output_dtype": "bfloat16"}, ValueError, "output_dtype 'bfloat16' cannot be written"),
        ({"batch_tokens": 0}, ValueError, "batch_tokens is 0"),
        ({"threads": 0}, ValueError, "threads is 0, but must be 1 or more"),
        ({"words_column": "embedding"}, ValueError, "column and words_column are both 'embedding'"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_options_are_checked_before_there_are_workers(checkpoint, options, error, says):
    with pytest.raises(error, match=says):
        Embedder(checkpoint, **options)


def test_models_that_no_worker_could_load(model, tmp_path):
    with pytest.raises(TypeError, match=r"model is a ElmoModel, but each worker loads its own.*save_pretrained"):
        Embedder(model)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Embedder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"no folder of a checkpoint with config\.json"):
        Embedder(tmp_path)


@pytest.mark.parametrize(
    ("batch", "error", "says"),
    [
        ({"a": ["x"], "b": ["y"]}, ValueError, r"which column holds the text\? Choose text_column among \['a', 'b'\]"),
        ({"text": ["x"], "embedding": [1]}, ValueError, "has a column 'embedding' already"),
        ({"text": ["x", 3]}, TypeError, "column 'text', row 1: expected text"),
        ("a text", TypeError, "batch is a str; give columns by name"),
        (types.SimpleNamespace(), TypeError, "batch is a SimpleNamespace"),
    ],
    ids=["column", "taken", "row", "text", "object"],
)
def test_what_is_no_batch_is_refused(checkpoint, batch, error, says):
    with pytest.raises(error, match=says):
        Embedder(checkpoint)(batch)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"text": "He sat ."}, "single row, whose column 'text' is a str"),
        ({"id": 7, "text": "He sat ."}, "single row, whose column 'text' is a str"),
        ({"tokens": ["He", "sat", "."], "id": 7}, "single row, whose column 'id' is a int"),
        ({"tokens": np.array(["He", "sat", "."]), "id": np.array(7)}, "single row, whose column 'id' is a ndarray"),
        ({"tokens": ["He", "sat", "."], "label": None}, "single row, whose column 'label' is a NoneType"),
        ({"tokens": ["He", "sat", "."], "source": "a book"}, "single row, whose column 'source' is a str"),
        ({"tokens": ["He", "sat", "."], "meta": {"page": 3}}, "single row, whose column 'meta' is a dict"),
    ],
    ids=["text", "text beside a number", "words", "arrays", "None", "words beside a text", "words beside a dict"],
)
def test_a_row_in_place_of_a_batch_is_refused(checkpoint, row, says):
    with pytest.raises(TypeError, match=rf"{says}.*batched=True is missing"):
        Embedder(checkpoint)(row)


def test_columns_of_several_lengths_are_refused(checkpoint):
    says = r"has 1 rows in column 'text', but 3 in column 'id'.*batched=True is missing"
    with pytest.raises(ValueError, match=says):
        Embedder(checkpoint)({"text": ["a b"], "id": [1, 2, 3]})


@pytest.mark.parametrize(
    "columns", [{"text": ["He sat ."]}, {"tokens": [["He", "sat", "."]]}], ids=["texts", "words alone"]
)
def test_datasets_map_without_batched_is_refused(checkpoint, columns):
    datasets = pytest.importorskip("datasets")
    with pytest.raises(TypeError, match="batched=True is missing"):
        datasets.Dataset.from_dict(columns).map(Embedder(checkpoint))


def test_columns_beside_the_text_may_be_of_any_kind(checkpoint):
    texts = ["a b", "c"]
    others = {"array": np.zeros((2, 3)), "tensor": torch.zeros(2, 3), "lists": [[1], []], "text": texts, "kept": (1, 2)}
    found = Embedder(checkpoint)(others | {"dicts": [{}, {"page": 3}], "series": pandas.Series([1, 2], index=[7, 9])})
    same(found["embedding"], embed(checkpoint, texts))


def test_a_missing_column_is_named(checkpoint):
    for batch in ({"text": ["x"]}, pyarrow.table({"text": ["x"]}), pandas.DataFrame({"text": ["x"]})):
        with pytest.raises(ValueError, match=r"batch: no column 'line'; choose text_column among \['text'\]"):
            Embedder(checkpoint, text_column="line")(batch)


def test_a_model_with_a_head_is_used_without_it(tmp_path, checkpoint):
    from hf_elmo import ElmoForSequenceClassification

    model = ElmoForSequenceClassification.from_pretrained(checkpoint, num_labels=3)
    model.save_pretrained(tmp_path)
    ElmoTokenizer("whitespace").save_pretrained(tmp_path)
    close(Embedder(tmp_path)(ROWS)["embedding"], embed(checkpoint, ROWS))
    assert isinstance(repr(Embedder(tmp_path)), str)
    assert ElmoModel.__name__ not in repr(Embedder(tmp_path))


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_a_fork_that_no_library_made_takes_one_thread(checkpoint, threads, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    threads(2)
    embedder, child = Embedder(checkpoint), os.fork()
    if child == 0:
        try:
            embedder(["a b"])
        finally:
            os._exit(torch.get_num_threads())
    assert exit_code(child) == 1
