"""One object embeds batches of every kind, in every engine's workers, to the vectors of `embed`."""

import multiprocessing
import pickle
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pyarrow
import pytest
import torch

from hf_elmo import Embedder, embed
from tests.embedding.conftest import ROWS, close

datasets = pytest.importorskip("datasets")
pandas = pytest.importorskip("pandas")
WORDS = [row.split() for row in ROWS]
KINDS = {
    "columns": dict,
    "table": pyarrow.table,
    "record batch": pyarrow.RecordBatch.from_pydict,
    "frame": lambda columns: pandas.DataFrame(columns, index=range(7, 7 + len(columns["text"]))),
}


def nested(value):
    """Nested lists of numbers or words, whatever holds them."""
    value = value.to_pylist() if hasattr(value, "to_pylist") else value
    value = value.tolist() if hasattr(value, "tolist") else value
    return [nested(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("options", [{"batch_tokens": 5}, {"layers": "all", "pooling": "max"}])  # shards of 80 tokens
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_each_kind_of_batch_gets_the_vectors_of_embed(checkpoint, make, options):
    batch = make({"id": list(range(len(ROWS))), "text": ROWS})
    found = Embedder(checkpoint, **options, words_column="words")(batch)
    assert type(found) is type(batch)
    for columns, names in ((batch, ["id", "text"]), (found, ["id", "text", "embedding", "words"])):
        assert list(getattr(columns, "column_names", columns)) == names
    assert nested(found["embedding"]) == nested(embed(checkpoint, ROWS, **options))
    assert nested(found["words"]) == WORDS
    if isinstance(batch, pandas.DataFrame):
        assert list(found.index) == list(batch.index)
    elif not isinstance(batch, dict):
        vector = pyarrow.list_(pyarrow.float32(), 22)
        expected = pyarrow.list_(vector, 4) if "pooling" in options else pyarrow.list_(vector)
        assert found.schema.field("embedding").type == expected


def test_lists_of_texts_get_columns_and_an_iterator_gives_an_iterator(checkpoint):
    for found in Embedder(checkpoint, words_column="words")(make(ROWS) for make in (list, np.array, pandas.Series)):
        assert (list(found["text"]), found["words"]) == (ROWS, WORDS)
        assert nested(found["embedding"]) == nested(embed(checkpoint, ROWS))


def test_lists_of_words_of_equal_length_are_an_array_in_numpys_format(checkpoint):
    data = datasets.Dataset.from_dict({"words": [["a", "b"]]}).with_format("numpy")
    found = data.map(Embedder(checkpoint), batched=True)["embedding"]
    np.testing.assert_array_equal(found[0], embed(checkpoint, [["a", "b"]])[0])
    with pytest.raises(ValueError, match="column"):  # a frame's column as an array of one column: texts, no words
        Embedder(checkpoint)(np.array([["a b"], ["c"]]))


def test_batches_without_rows(checkpoint):
    embedder = Embedder(checkpoint, layers="all", words_column="words")
    assert embedder([]) == {"text": [], "embedding": [], "words": []}
    found = embedder(pyarrow.table({"text": pyarrow.array([], pyarrow.string())}))
    assert found.schema == embedder(pyarrow.table({"text": ["a"]})).schema
    assert Embedder(checkpoint, pooling="mean")({"text": []})["embedding"].shape == (0, 22)
    assert embedder(pandas.DataFrame({"text": []}))["embedding"].tolist() == []


def test_every_option_is_that_of_embed(checkpoint):
    options = {"layers": "sum", "output_dtype": "float16", "dtype": "bfloat16", "batch_tokens": 9, "device": "cpu"}
    found = Embedder(checkpoint, **options, text_column="line", column="vectors")({"line": ROWS, "other": ROWS})
    assert nested(found["vectors"]) == nested(embed(checkpoint, ROWS, **options))
    for pretokenized in (False, True):
        found = Embedder(None, pretokenized=pretokenized, words_column="words")(["isn't  split\u2003up."])
        assert (found["words"] == [["isn't", "split", "up."]]) == pretokenized


def test_a_column_that_exists_and_a_single_row_are_refused(checkpoint):
    for batch, named in (({"text": ["x"], "embedding": [1]}, "embedding"), ({"text": "He sat ."}, "batched")):
        with pytest.raises((ValueError, TypeError), match=named):
            Embedder(checkpoint)(batch)


def test_a_checkpoint_that_changed_is_refused_and_embedded_again_by_datasets(checkpoint, tmp_path, monkeypatch):
    hash_of = datasets.fingerprint.Hasher.hash
    folder = shutil.copytree(checkpoint, tmp_path / "copy")
    monkeypatch.chdir(tmp_path)
    embedder = Embedder("copy")
    monkeypatch.chdir("/")  # a relative path is found from elsewhere
    for other in ("README.md", "all_results.json", "training_args.bin"):
        (folder / other).write_text("of a training")
    close(embedder(ROWS)["embedding"], embed(checkpoint, ROWS))
    assert hash_of(Embedder(folder)) == hash_of(embedder)
    assert hash_of(Embedder(folder, layers="all")) != hash_of(embedder)
    for name in ("tokenizer.json", "model.safetensors"):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[:-1] + b" " if name == "model.safetensors" else data + b" ")
        with pytest.raises(ValueError, match="model"):
            Embedder.embed(pickle.loads(pickle.dumps(embedder)), ROWS, rank=3)  # a worker that has no model yet
        assert hash_of(Embedder(folder)) != hash_of(embedder)
        (folder / name).write_bytes(data)


def test_a_name_on_the_hub_stands_for_a_commit(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "models--me--elmo" / "refs").mkdir(parents=True)
    (tmp_path / "models--me--elmo" / "refs" / "main").write_text("c" * 40)
    shutil.copytree(checkpoint, tmp_path / "models--me--elmo" / "snapshots" / ("c" * 40))
    assert Embedder("me/elmo").fingerprint == f"commit {'c' * 40}"


def threads_after(embedder: Embedder) -> tuple[np.ndarray, int]:
    return embedder(["a b"])["embedding"][0], torch.get_num_threads()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_a_forked_worker_takes_one_thread_and_others_as_many_as_given(checkpoint):
    torch.set_num_threads(2)
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        vectors, number = pool.submit(threads_after, Embedder(checkpoint, device="cpu")).result(60)
    assert number == 1
    np.testing.assert_array_equal(vectors, embed(checkpoint, ["a b"])[0])
    assert threads_after(Embedder(checkpoint, threads=3))[1] == 3
