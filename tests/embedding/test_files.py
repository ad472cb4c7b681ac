"""From a file to a file, in Python and on the command line; what is refused, and what is left behind."""

import io
import json
import sys

import numpy as np
import pytest
import torch

import hf_elmo
from hf_elmo import ElmoTokenizer, cli, embed
from hf_elmo.conversion import convert
from hf_elmo.embedding import EmbeddedCorpus, corpus, engine, parts, readers, writers
from hf_elmo.embedding.engine import CorpusEncoder

from .helpers import ROWS, close, read, text_file


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


@pytest.mark.parametrize("name", ["in.parquet", "./x/../in.parquet", "link.parquet"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_an_output_that_is_the_input_is_refused(tmp_path, model, monkeypatch, name, overwrite):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"text": ROWS[:2]}), tmp_path / "in.parquet")
    (tmp_path / "link.parquet").symlink_to("in.parquet")
    (tmp_path / "x").mkdir()
    before = (tmp_path / "in.parquet").read_bytes()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"parquet' is the input, which would be lost; choose another name"):
        embed(model, "in.parquet", name, overwrite=overwrite)
    assert (tmp_path / "in.parquet").read_bytes() == before


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
    Stream.buffer = io.BytesIO(b"fine\nna\xefve\n")
    with pytest.raises(ValueError, match="standard input, line 2: not utf-8"):
        embed(model, "-", tmp_path / "bad.npz")
    assert not (tmp_path / "bad.npz.parts").exists()


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
    "sentence as path": ({"inputs": "The cat sat."}, FileNotFoundError, "a list of sentences"),
    "row type": ({"inputs": ["a", 3]}, TypeError, "inputs, row 1: expected text .* got int 3"),
    "column of sentences": ({"text_column": "text", "output": "out.npz"}, ValueError, "inputs here are sentences"),
    "encoding of sentences": ({"encoding": "latin-1"}, ValueError, "input_format, text_column and encoding belong to"),
    "set": ({"inputs": {"a", "b"}}, ValueError, "inputs must be a list of sentences, .* not a set"),
    "model": ({"model": torch.nn.Linear(2, 3)}, TypeError, "not Linear"),
    "foreign tokenizer": ({"tokenizer": object()}, TypeError, r"object that does not split .*ElmoTokenizer\.from_pre"),
    "tokenizer": (
        {"tokenizer": ElmoTokenizer(max_word_length=9)},
        ValueError,
        "9 characters .bytes., the model",
    ),
}


@pytest.mark.parametrize(("options", "error", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_options_are_refused(tmp_path, monkeypatch, model, options, error, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        embed(**{"model": model, "inputs": ROWS, **options})
    assert list(tmp_path.iterdir()) == []


def test_the_outputs_folder_is_made(tmp_path, model):
    written = embed(model, ROWS, tmp_path / "new" / "folder" / "out.npz")
    assert written.path.is_file()
    assert list((tmp_path / "new" / "folder").iterdir()) == [written.path]


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
    options += " --window 50 --input-format csv --text-column 1 --encoding utf-8 --pretokenized --overwrite --restart"
    assert cli.main(["embed", str(checkpoint), str(tmp_path / "in.csv"), str(target), *options.split()]) == 0
    wanted = embed(model, ROWS, layers="all", pooling="max", output_dtype="float16", pretokenized=True, batch_tokens=33)
    np.testing.assert_allclose(np.load(target)["embeddings"], wanted, atol=2e-3)
    assert f"out.npz: {len(ROWS)} rows" in capsys.readouterr().out


def test_command_interrupted_says_how_to_go_on(tmp_path, checkpoint, monkeypatch, capsys):
    def interrupt(self, rows, window):
        raise KeyboardInterrupt

    monkeypatch.setattr(CorpusEncoder, "encode", interrupt)
    source = text_file(tmp_path / "in.txt", ROWS)
    assert cli.main(["embed", str(checkpoint), str(source), str(tmp_path / "out.npz")]) == 130
    assert "out.npz.parts keeps the finished work; the same command resumes" in capsys.readouterr().err


def test_progress_is_shown_when_asked_for(model, capsys):
    embed(model, ROWS, progress=True)
    shown = capsys.readouterr().err
    assert f"{len(ROWS)}/{len(ROWS)}" in shown
    assert "words/s" in shown
    embed(model, ROWS, progress=False)
    assert capsys.readouterr().err == ""


def test_published_weights_end_to_end(shared, tmp_path):
    h5py = pytest.importorskip("h5py")
    fixture = shared / "data/elmo_fixture"
    convert(fixture / "options.json", fixture / "lm_weights.hdf5", tmp_path / "checkpoint")
    words = (fixture / "vocab_test.txt").read_text(encoding="utf-8").splitlines()
    text_file(tmp_path / "in.txt", words)
    arguments = ["embed", str(tmp_path / "checkpoint"), str(tmp_path / "in.txt"), str(tmp_path / "out.hdf5")]
    assert cli.main([*arguments, "--layers", "0", "--words"]) == 0
    with h5py.File(fixture / "elmo_token_embeddings.hdf5") as file:
        wanted = file["embedding"][()]
    with h5py.File(tmp_path / "out.hdf5") as file:
        found = np.concatenate([file[str(number)][()] for number in range(len(words))])
    spelled = [number for number, word in enumerate(words) if word not in ("<S>", "</S>")]  # these two are words here
    assert len(spelled) == 456
    np.testing.assert_allclose(found[spelled], np.tile(wanted, 2)[spelled], rtol=0, atol=1e-5)


def test_command_uses_the_tokenizer_of_the_checkpoint(tmp_path, checkpoint, model):
    source = text_file(tmp_path / "in.txt", ROWS)
    assert cli.main(["embed", str(checkpoint), str(source), str(tmp_path / "out.npz")]) == 0
    close(read(tmp_path / "out.npz"), embed(model, ROWS, tokenizer=ElmoTokenizer("whitespace")))


def test_command_says_what_is_wrong(tmp_path, checkpoint, capsys):
    assert cli.main(["embed", str(checkpoint), str(tmp_path / "none.txt"), str(tmp_path / "out.npz")]) == 1
    assert "hf-elmo: error: input" in capsys.readouterr().err
    texts = text_file(tmp_path / "in.txt", ["a line"])
    assert cli.main(["embed", str(checkpoint), str(texts), str(tmp_path / "out.npz"), "--layers", "top"]) == 1
    assert "layers='top' is unknown" in capsys.readouterr().err


@pytest.mark.parametrize("module", [cli, corpus, engine, parts, readers, writers])
def test_file_format_libraries_are_imported_when_they_are_needed(module):
    assert not {"h5py", "pyarrow", "pandas"} & set(vars(module))


def test_embed_is_exported():
    assert hf_elmo.embed is embed
    assert "embed" in dir(hf_elmo)
