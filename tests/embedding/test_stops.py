"""A run that was stopped goes on to the same bytes; memory that runs out, or would grow."""

import json
import tracemalloc

import pytest
import torch

from hf_elmo import ElmoTokenizer, embed
from hf_elmo.embedding import corpus, parts, writers
from hf_elmo.embedding.engine import CorpusEncoder
from hf_elmo.out_of_memory import is_out_of_memory

from .helpers import ROWS, Stopped, close, initial_model, read, text_file


@pytest.mark.parametrize("pooling", ["none", "mean"])
@pytest.mark.parametrize("stops", [[0], [1], [2, 0, 1]], ids=str)
def test_a_stopped_run_goes_on_to_the_same_bytes(tmp_path, model, stop_after, stops, pooling):
    source = text_file(tmp_path / "in.txt", ROWS * 3)
    options = {"batch_tokens": 30, "window": 25, "pooling": pooling}
    embed(model, source, tmp_path / "whole.npz", **options)
    for windows in stops:
        stop_after(windows)
        with pytest.raises(Stopped):
            embed(model, source, tmp_path / "parts.npz", **options)
        assert not (tmp_path / "parts.npz").exists()
    calls = stop_after(1000)
    embed(model, source, tmp_path / "parts.npz", **options)
    total = len(ROWS) * 3
    assert sum(calls) < total or sum(stops) == 0  # finished windows are not computed again
    assert (tmp_path / "parts.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
    assert not (tmp_path / "parts.npz.parts").exists()


@pytest.mark.parametrize("change", ["options", "rows", "model", "tokenizer", "boundaries"])
def test_going_on_with_something_else_is_refused(tmp_path, model, stop_after, change):
    source = text_file(tmp_path / "in.txt", ROWS)
    arguments = {"model": model, "inputs": source, "output": tmp_path / "out.npz", "window": 20}
    stop_after(1)
    with pytest.raises(Stopped):
        embed(**arguments)
    if change == "rows":
        text_file(source, [*ROWS[:-1], "other words"])
    arguments |= {
        "options": {"layers": "all"},
        "model": {"model": initial_model(seed=1, num_hidden_layers=3)},
        "tokenizer": {"tokenizer": ElmoTokenizer("whitespace")},
        "boundaries": {"tokenizer": ElmoTokenizer(split_special_tokens=False)},
        "rows": {},
    }[change]
    stop_after(1000)
    named = {"options": "layers was 'mix', now 'all'", "rows": "rows_sha256", "boundaries": "tokenizer"}.get(
        change, change
    )
    with pytest.raises(ValueError, match=f"differs: .*{named}.*restart=True"):
        embed(**arguments)
    assert (tmp_path / "out.npz.parts").exists()
    embed(**arguments, restart=True)
    assert len(read(tmp_path / "out.npz")) == len(ROWS)


def test_a_window_half_written_is_computed_again(tmp_path, model, stop_after):
    stop_after(1)
    with pytest.raises(Stopped):
        embed(model, ROWS, tmp_path / "out.npz", window=20)
    folder = tmp_path / "out.npz.parts"
    (folder / "000001.bin").write_bytes(b"torn")
    (folder / "000001.json.draft").write_text('{"wor')
    stop_after(1000)
    embed(model, ROWS, tmp_path / "out.npz", window=20)
    close(read(tmp_path / "out.npz"), embed(model, ROWS))


def test_a_foreign_parts_folder_is_not_touched(tmp_path, model):
    (tmp_path / "out.npz.parts").mkdir()
    (tmp_path / "out.npz.parts" / "thesis.txt").write_text("mine")
    for restart in (False, True):
        with pytest.raises(FileExistsError, match=r"has 'thesis\.txt', which is no part of an embedding"):
            embed(model, ROWS, tmp_path / "out.npz", restart=restart)
    assert (tmp_path / "out.npz.parts" / "thesis.txt").read_text() == "mine"


def test_ctrl_c_keeps_the_parts(tmp_path, model, monkeypatch):
    def interrupt(self, rows, window):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(CorpusEncoder, "encode", interrupt)
        with pytest.raises(KeyboardInterrupt):
            embed(model, ROWS, tmp_path / "out.npz")
    assert (tmp_path / "out.npz.parts" / "manifest.json").exists()
    embed(model, ROWS, tmp_path / "out.npz")
    close(read(tmp_path / "out.npz"), embed(model, ROWS))


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_memory(monkeypatch):
    """A function that lets the character CNN fail, as torch does, over so many words."""
    errors = {
        "cuda": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        "cpu": RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."
        ),
        "python": MemoryError(),
    }

    def arrange(model, words: int, kind: str = "cuda") -> list[int]:
        forward, sizes = model.char_encoder.forward, []

        def limited(character_ids):
            sizes.append(len(character_ids))
            if len(character_ids) > words:
                raise errors[kind]
            return forward(character_ids)

        monkeypatch.setattr(model.char_encoder, "forward", limited)
        return sizes

    return arrange


@pytest.mark.parametrize("kind", ["cuda", "cpu", "python"])
@pytest.mark.parametrize("words", [33, 10, 3])
def test_out_of_memory_halves_the_batch_and_goes_on(model, small_memory, caplog, words, kind):
    wanted = embed(model, ROWS)
    sizes = small_memory(model, words, kind)
    close(embed(model, ROWS), wanted)
    assert max(sizes) > words  # it was tried
    assert "out of memory with" in caplog.text
    assert sizes[-1] <= words


def test_the_smaller_batch_is_kept_when_a_stopped_run_goes_on(tmp_path, model, small_memory, stop_after):
    sizes = small_memory(model, 12)
    stop_after(2)
    with pytest.raises(Stopped):
        embed(model, ROWS, tmp_path / "out.npz", window=20)
    stop_after(1000)
    sizes.clear()
    embed(model, ROWS, tmp_path / "out.npz", window=20)
    assert max(sizes) <= 12


def test_when_not_one_word_fits_the_error_says_so(model, small_memory):
    small_memory(model, 0)
    with pytest.raises(MemoryError, match="one word does not fit into the memory of cpu"):
        embed(model, ROWS)


def test_other_errors_of_the_model_are_not_taken_for_memory(model, monkeypatch):
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))

    def broken(character_ids):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(model.char_encoder, "forward", broken)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        embed(model, ROWS)


@pytest.mark.parametrize("ending", [".safetensors", ".npz", ".hdf5", ".parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path, model, ending, monkeypatch):
    # The engine's own memory is bounded by its batch; what could grow lies around it, so the engine computes nothing.
    monkeypatch.setattr(CorpusEncoder, "encode", lambda self, rows, window: self.advance(len(rows), 0))
    monkeypatch.setattr(corpus, "SPLIT_ROWS", 50)
    monkeypatch.setattr(writers, "ROW_GROUP_BYTES", 1 << 15)
    monkeypatch.setattr(writers, "CHUNK_BYTES", 1 << 15)

    def peak(rows: int) -> int:
        source = text_file(tmp_path / f"{rows}.txt", (f"row {number} of many" for number in range(rows)))
        tracemalloc.start()
        embed(model, source, tmp_path / f"{rows}{ending}", window=400, overwrite=True)
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    peak(400)  # imports
    small, large = peak(400), peak(1200)
    assert large - small < 800 * 110  # the vectors alone are 800 * 352 bytes; each number is a word in the cache


def test_memory_does_not_grow_with_the_longest_document(tmp_path, monkeypatch):
    model = initial_model(hidden_size=260)
    monkeypatch.setattr(parts, "CHUNK_BYTES", 1 << 14)

    def peak(words: int) -> int:
        tracemalloc.start()
        embed(model, [["word"] * words], tmp_path / f"{words}.npz", layers="all", batch_tokens=50, overwrite=True)
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    peak(100)
    small, large = peak(100), peak(900)
    assert large - small < 800 * 100  # the vectors are 800 * 3 * 260 * 4 bytes, 2.5 MB


@pytest.mark.parametrize("key", ["hf_elmo", "torch", "model", "tokenizer", "dtype", "device", "rows", "rows_sha256"])
def test_all_that_the_vectors_depend_on_is_in_the_manifest(tmp_path, model, stop_after, key):
    stop_after(1)
    with pytest.raises(Stopped):
        embed(model, ROWS, tmp_path / "out.npz", window=20)
    manifest = tmp_path / "out.npz.parts" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), key: "another"}))
    stop_after(1000)
    with pytest.raises(ValueError, match=f"differs: {key} was 'another', now"):
        embed(model, ROWS, tmp_path / "out.npz", window=20)


def test_the_smaller_batch_is_what_the_rest_begins_with(tmp_path, model, small_memory, stop_after, caplog):
    rows = [" ".join(f"w{row}x{word}" for word in range(9)) for row in range(8)]  # no word twice
    small_memory(model, 12)
    stop_after(2)
    with pytest.raises(Stopped):
        embed(model, rows, tmp_path / "out.npz", window=30)
    assert "out of memory with" in caplog.text
    caplog.clear()
    stop_after(1000)
    embed(model, rows, tmp_path / "out.npz", window=30)
    assert "out of memory with" not in caplog.text


def test_half_of_what_was_tried_is_what_is_tried_next(model, small_memory, caplog):
    small_memory(model, 10)
    embed(model, ["a b c d e f g h i j k l m n o p"], batch_tokens=16384)
    assert "with 18 tokens in a batch; continuing with 9" in caplog.text
    assert caplog.text.count("out of memory with") == 1
