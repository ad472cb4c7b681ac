"""Embedding a corpus: the vectors are the model's own, whatever the batches, the file, or what stopped the run."""

import io
import json
import sys
import tracemalloc

import numpy as np
import pytest
import torch

import hf_elmo
from hf_elmo import (
    ElmoConfig,
    ElmoForSequenceClassification,
    ElmoModel,
    ElmoTokenizer,
    cli,
    embed,
    embedding,
    embedding_engine,
    embedding_parts,
    readers,
    writers,
)
from hf_elmo.embedding import EmbeddedCorpus
from hf_elmo.embedding_engine import CorpusEncoder, is_out_of_memory

from .conftest import SENTENCES, TINY, random_model

ROWS = [SENTENCES[0], "", "Don't panic!", *SENTENCES[1:], "   ", "Don't panic!", "word " * 41 + "end"]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Models this small lose more by waiting for threads than they win."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def initial_model(seed: int = 0, **options) -> ElmoModel:
    """A model with its initial weights, so that values stay near 1, where float32 can tell 1e-6 apart."""
    torch.manual_seed(seed)
    model = ElmoModel(ElmoConfig(**{**TINY, **options})).eval()
    if model.config.layer_weights is None:
        with torch.no_grad():
            model.scalar_mix.scalars.normal_()
            model.scalar_mix.gamma.fill_(1.3)
    return model


@pytest.fixture(scope="module")
def model() -> ElmoModel:
    return initial_model(num_hidden_layers=3)


@pytest.fixture(scope="module")
def tokenizer() -> ElmoTokenizer:
    return ElmoTokenizer()


def expected(model, tokenizer, row, layers="mix", pooling="none") -> np.ndarray:
    """The vectors of one row straight from the model: one sentence, one pass."""
    words = {"text": row, "is_split_into_words": isinstance(row, list)}
    with torch.no_grad():
        output = model(**tokenizer(**words, return_tensors="pt"), output_hidden_states=True)
    if layers == "mix":
        values = output.last_hidden_state[0]
    else:
        values = torch.cat(output.hidden_states)
        values = values if layers == "all" else values[layers]
    values = values[..., 1:-1, :]
    if pooling != "none" and values.shape[-2] == 0:
        return values.sum(-2).numpy()
    return {"none": values, "mean": values.mean(-2), "max": values.amax(-2) if values.numel() else values}[
        pooling
    ].numpy()


def close(found, wanted, tolerance=1e-6) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


def read(path) -> list[np.ndarray]:
    with np.load(path) as file:
        return [file[name] for name in file]


def text_file(path, rows):
    path.write_text("".join(row + "\n" for row in rows), encoding="utf-8")
    return path


# -- the values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["none", "mean", "max"])
@pytest.mark.parametrize("layers", ["mix", "all", 0, 3])
@pytest.mark.parametrize("batch_tokens", [None, 60, 11], ids=["one-batch", "batches", "pieces"])
def test_vectors_are_those_of_one_pass_over_each_row(model, tokenizer, layers, pooling, batch_tokens):
    found = embed(model, ROWS, tokenizer=tokenizer, layers=layers, pooling=pooling, batch_tokens=batch_tokens)
    assert isinstance(found, list if pooling == "none" else np.ndarray)
    close(found, [expected(model, tokenizer, row, layers, pooling) for row in ROWS])


def test_shapes_of_blank_rows(model):
    assert [array.shape for array in embed(model, ["", " "])] == [(0, 22), (0, 22)]
    assert embed(model, ["", " "], layers="all")[0].shape == (4, 0, 22)
    pooled = embed(model, ["", "a"], pooling="max", layers="all")
    assert pooled.shape == (2, 4, 22)
    assert not pooled[0].any()
    assert pooled[1].any()


def test_no_rows(model):
    assert embed(model, []) == []
    assert embed(model, [], pooling="mean").shape == (0, 22)


def test_a_repeated_line_has_the_same_vectors(model, tokenizer):
    first, second = (number for number, row in enumerate(ROWS) if row == "Don't panic!")
    for batch_tokens in (None, 12):
        found = embed(model, ROWS, tokenizer=tokenizer, batch_tokens=batch_tokens)
        close([found[first]], [found[second]])


def test_twice_the_same_is_bit_equal(model):
    for one, other in zip(embed(model, ROWS, batch_tokens=30), embed(model, ROWS, batch_tokens=30), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def test_words_already_split_are_never_split_again(model, tokenizer):
    rows = [["New York", "isn't", "", "<S>"], []]
    found = embed(model, rows, tokenizer=tokenizer)
    assert found[0].shape == (4, 22)
    close(found, [expected(model, tokenizer, row) for row in rows])


def test_is_split_into_words_parts_text_at_whitespace_only(model, tokenizer):
    found = embed(model, ["isn't  split\u2003up."], is_split_into_words=True)
    close(found, [expected(model, tokenizer, ["isn't", "split", "up."])])


def test_boundaries_in_the_text_count_where_the_tokenizer_allows_them(model):
    asked = ElmoTokenizer(word_splitting="whitespace", split_special_tokens=False)
    plain = ElmoTokenizer(word_splitting="whitespace")
    row = "one </S> <S> two"
    for tokenizer in (asked, plain):
        close(embed(model, [row], tokenizer=tokenizer), [expected(model, tokenizer, row)])
    assert not np.allclose(embed(model, [row], tokenizer=asked)[0], embed(model, [row], tokenizer=plain)[0])


def test_an_earlier_truncation_of_the_tokenizer_plays_no_part(model):
    tokenizer = ElmoTokenizer()
    tokenizer(ROWS, truncation=True, max_length=4, padding="max_length")
    assert [len(row) for row in embed(model, ROWS, tokenizer=tokenizer)] == [len(row) for row in embed(model, ROWS)]


def test_lone_surrogates_are_dropped_as_the_tokenizer_does(model, tokenizer):
    close(embed(model, ["a\ud800b c"]), [expected(model, tokenizer, "ab c")])


def test_output_dtype_and_compute_dtype(model):
    half = embed(model, ROWS, output_dtype="float16")
    assert {array.dtype for array in half} == {np.dtype("float16")}
    brain = embed(model, ROWS, dtype="bfloat16")
    assert {array.dtype for array in brain} == {np.dtype("float32")}
    assert model.dtype == torch.float32  # the caller's model stays as it was
    exact = embed(model, ROWS)
    close(half, exact, 5e-3)
    assert 0 < abs(brain[0] - exact[0]).max() < 0.2


def test_a_model_in_training_gives_the_same_and_goes_on_training(tokenizer):
    model = initial_model(hidden_dropout=0.5)
    calm = embed(model, ROWS, tokenizer=tokenizer)
    model.train()
    modes = {name: module.training for name, module in model.named_modules()}
    close(embed(model, ROWS, tokenizer=tokenizer), calm)
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert modes["bilm.dropout"]


def test_a_model_with_a_head_is_used_without_it(tokenizer):
    model = ElmoForSequenceClassification(ElmoConfig(**TINY)).eval()
    close(embed(model, ROWS), [expected(model.elmo, tokenizer, row) for row in ROWS])


def test_mix_with_layer_norm_is_that_of_each_row_alone(tokenizer):
    model = initial_model(scalar_mix_layer_norm=True)
    close(embed(model, ROWS), [expected(model, tokenizer, row) for row in ROWS])
    with pytest.raises(ValueError, match=r"longer than batch_tokens=11.*layers='all'"):
        embed(model, ROWS, batch_tokens=11)


def test_fixed_weights_and_no_skip_connections_in_pieces(tokenizer):
    model = initial_model(layer_weights=[0.5, 0.0, 2.0], use_skip_connections=False, cell_clip=None)
    close(embed(model, ROWS, batch_tokens=9), [expected(model, tokenizer, row) for row in ROWS])


@pytest.mark.parametrize("batch_tokens", [1, 7, 40])
def test_long_documents_side_by_side_equal_one_pass(tokenizer, batch_tokens):
    model = random_model(ElmoConfig(**TINY)).double()  # clips take part; in float64 nothing hides behind rounding
    rows = [[f"w{n * n % 17}" for n in range(length)] for length in (9, 33, 1, 20, 9)]
    found = embed(model, rows, batch_tokens=batch_tokens, layers="all")
    close(found, [expected(model, tokenizer, row, "all").astype(np.float32) for row in rows])


def test_long_rows_go_side_by_side_only_where_that_is_faster(model, tokenizer, monkeypatch):
    groups, encode = [], CorpusEncoder._encode_long

    def noting(self, group, rows, window):
        groups.append(group)
        encode(self, group, rows, window)

    monkeypatch.setattr(CorpusEncoder, "_encode_long", noting)
    rows = ["a b c d e f g h", "i", *["k l m n o p q r"] * 4]
    for batch_tokens, expected_groups in [(9, [[0, 2, 3, 4, 5, 1]]), (21, [[0, 2, 3, 4, 5, 1]]), (30, []), (None, [])]:
        groups.clear()
        close(embed(model, rows, batch_tokens=batch_tokens), [expected(model, tokenizer, row) for row in rows])
        assert groups == expected_groups


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".safetensors", ".npz", ".hdf5", ".parquet"])
def test_a_file_of_sentences_becomes_a_file_of_vectors(tmp_path, model, ending):
    h5py, parquet = pytest.importorskip("h5py"), pytest.importorskip("pyarrow.parquet")
    source, target = text_file(tmp_path / "in.txt", ROWS), tmp_path / f"out{ending}"
    written = embed(model, source, target, batch_tokens=40, window=50)
    wanted = embed(model, ROWS)
    assert written == EmbeddedCorpus(target, len(ROWS), sum(map(len, wanted)), 22)
    if ending == ".npz":
        found = read(target)
    elif ending == ".safetensors":
        file = pytest.importorskip("safetensors.numpy").load_file(target)
        found = [file[str(number)] for number in range(len(ROWS))]
    elif ending == ".hdf5":
        with h5py.File(target) as file:
            found = [file[str(number)][()] for number in range(len(ROWS))]
    else:
        column = parquet.read_table(target)["embedding"].to_pylist()
        found = [np.array(value, np.float32).reshape(-1, 22) for value in column]
    close(found, wanted)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", target.name]


@pytest.mark.parametrize("window", [1, 13, 10_000])
def test_the_window_does_not_change_the_rows(tmp_path, model, window):
    embed(model, ROWS, tmp_path / "out.npz", window=window, batch_tokens=30)
    close(read(tmp_path / "out.npz"), embed(model, ROWS))


def test_a_generator_can_be_embedded(tmp_path, model):
    embed(model, (row for row in ROWS), tmp_path / "out.npz")
    close(read(tmp_path / "out.npz"), embed(model, (row for row in ROWS)))
    assert len(read(tmp_path / "out.npz")) == len(ROWS)


def test_standard_input(tmp_path, model, monkeypatch):
    data = "".join(json.dumps({"text": row}) + "\n" for row in ROWS).encode()

    class Stream:
        buffer = io.BytesIO(data)

    monkeypatch.setattr(sys, "stdin", Stream)
    embed(model, "-", tmp_path / "out.npz", input_format="jsonl")
    close(read(tmp_path / "out.npz"), embed(model, ROWS))
    Stream.buffer.seek(0)
    close(embed(model, "-", input_format="jsonl"), embed(model, ROWS))


def test_a_failed_run_leaves_nothing_behind(tmp_path, model):
    (tmp_path / "in.jsonl").write_text('"a"\n{"text": 5}\n')
    with pytest.raises(TypeError, match="line 2"):
        embed(model, tmp_path / "in.jsonl", tmp_path / "out.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_an_existing_output_is_kept_unless_asked(tmp_path, model):
    target = tmp_path / "out.npz"
    target.write_bytes(b"precious")
    with pytest.raises(FileExistsError, match=r"out\.npz' exists.*overwrite=True"):
        embed(model, ROWS, target)
    assert target.read_bytes() == b"precious"
    embed(model, ROWS, target, overwrite=True)
    assert len(read(target)) == len(ROWS)


BAD_OPTIONS = {
    "layer unknown": ({"layers": "top"}, ValueError, r"layers='top' is unknown.*0 to 3"),
    "layer too high": ({"layers": 4}, ValueError, r"layers=4 is unknown.*0 to 3"),
    "pooling": ({"pooling": "sum"}, ValueError, "pooling 'sum' is unknown.*'mean'"),
    "output dtype": ({"output_dtype": "bfloat16"}, ValueError, "output_dtype 'bfloat16' cannot be written"),
    "dtype": ({"dtype": "int8"}, ValueError, "dtype 'int8' is unknown"),
    "device": ({"device": "gpu"}, ValueError, "device 'gpu' is unknown; take cpu"),
    "batch tokens": ({"batch_tokens": 0}, ValueError, "batch_tokens is 0"),
    "window": ({"window": 2.5}, ValueError, "window is 2.5"),
    "ending": ({"output": "out.pt"}, ValueError, r"unknown ending '\.pt'"),
    "folder": ({"output": "no/such/out.npz"}, FileNotFoundError, "does not exist; make it first"),
    "sentence as path": ({"inputs": "The cat sat."}, FileNotFoundError, "a list of sentences"),
    "row type": ({"inputs": ["a", 3]}, TypeError, "inputs, row 1: expected text .* got int 3"),
    "column of sentences": ({"text_column": "text", "output": "out.npz"}, ValueError, "inputs here are sentences"),
    "model": ({"model": torch.nn.Linear(2, 3)}, TypeError, "not Linear"),
    "tokenizer": ({"tokenizer": ElmoTokenizer(max_word_length=9)}, ValueError, "9 characters, the model reads 50"),
}


@pytest.mark.parametrize(("options", "error", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_options_are_refused(tmp_path, monkeypatch, model, options, error, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        embed(**{"model": model, "inputs": ROWS, **options})
    assert list(tmp_path.iterdir()) == []


# -- stopped and started again -----------------------------------------------------------------------------------------


class Stopped(Exception):
    """Stands for whatever ends a run."""


@pytest.fixture
def stop_after(monkeypatch):
    """A function that makes the engine fail after so many windows."""
    encode = CorpusEncoder.encode

    def arrange(windows: int) -> list[int]:
        calls = []

        def failing(self, rows, window):
            calls.append(len(rows))
            if len(calls) > windows:
                raise Stopped
            encode(self, rows, window)

        monkeypatch.setattr(CorpusEncoder, "encode", failing)
        return calls

    return arrange


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


@pytest.mark.parametrize("change", ["options", "rows", "model", "tokenizer"])
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
        "rows": {},
    }[change]
    stop_after(1000)
    named = {"options": "layers was 'mix', now 'all'", "rows": "rows_sha256"}.get(change, change)
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
        with pytest.raises(FileExistsError, match="holds no parts of an embedding"):
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
    monkeypatch.setattr(embedding, "SPLIT_ROWS", 50)
    monkeypatch.setattr(writers, "ROW_GROUP_BYTES", 1 << 15)
    monkeypatch.setattr(writers, "CHUNK_BYTES", 1 << 15)

    def peak(rows: int) -> int:
        source = text_file(tmp_path / f"{rows}.txt", (f"row {number} of many" for number in range(rows)))
        tracemalloc.start()
        embed(model, source, tmp_path / f"{rows}{ending}", window=400, overwrite=True)
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    peak(150)  # imports
    small, large = peak(150), peak(1500)
    assert large - small < 1350 * 30  # the vectors alone are 1350 * 352 bytes


def test_memory_does_not_grow_with_the_longest_document(tmp_path, monkeypatch):
    model = initial_model(hidden_size=260)
    monkeypatch.setattr(embedding_parts, "CHUNK_BYTES", 1 << 14)

    def peak(words: int) -> int:
        tracemalloc.start()
        embed(model, [["word"] * words], tmp_path / f"{words}.npz", layers="all", batch_tokens=50, overwrite=True)
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    peak(100)
    small, large = peak(100), peak(900)
    assert large - small < 800 * 100  # the vectors are 800 * 3 * 260 * 4 bytes, 2.5 MB


# -- command line ------------------------------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(tmp_path, model):
    folder = tmp_path / "checkpoint"
    model.save_pretrained(folder)
    ElmoTokenizer("whitespace").save_pretrained(folder)
    return folder


def test_command_embeds_with_every_option(tmp_path, checkpoint, model, capsys):
    pytest.importorskip("h5py")
    (tmp_path / "in.csv").write_text("".join(f'{n},"{row}"\n' for n, row in enumerate(ROWS)), encoding="utf-8")
    target = tmp_path / "out.npz"
    options = "--layers all --pooling max --dtype float32 --output-dtype float16 --device cpu --batch-tokens 33"
    options += " --window 50 --input-format csv --text-column 1 --encoding utf-8 --words --overwrite --restart"
    assert cli.main(["embed", str(checkpoint), str(tmp_path / "in.csv"), str(target), *options.split()]) == 0
    wanted = embed(
        model, ROWS, layers="all", pooling="max", output_dtype="float16", is_split_into_words=True, batch_tokens=33
    )
    np.testing.assert_allclose(np.load(target)["embeddings"], wanted, atol=2e-3)
    assert f"out.npz: {len(ROWS)} rows" in capsys.readouterr().out


def test_command_uses_the_tokenizer_of_the_checkpoint(tmp_path, checkpoint, model):
    source = text_file(tmp_path / "in.txt", ROWS)
    assert cli.main(["embed", str(checkpoint), str(source), str(tmp_path / "out.npz")]) == 0
    close(read(tmp_path / "out.npz"), embed(model, ROWS, tokenizer=ElmoTokenizer("whitespace")))


def test_command_says_what_is_wrong(tmp_path, checkpoint, capsys):
    assert cli.main(["embed", str(checkpoint), str(tmp_path / "none.txt"), str(tmp_path / "out.npz")]) == 1
    assert "hf-elmo: error: input" in capsys.readouterr().err
    assert cli.main(["embed", str(checkpoint), str(tmp_path), str(tmp_path / "out.npz"), "--layers", "top"]) == 1
    assert "layers='top' is unknown" in capsys.readouterr().err


@pytest.mark.parametrize("module", [cli, embedding, embedding_engine, embedding_parts, readers, writers])
def test_file_format_libraries_are_imported_when_they_are_needed(module):
    assert not {"h5py", "pyarrow", "pandas"} & set(vars(module))


def test_embed_is_exported():
    assert hf_elmo.embed is embed
    assert "embed" in dir(hf_elmo)
