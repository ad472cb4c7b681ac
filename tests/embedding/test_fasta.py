"""Proteins: FASTA in, a vector a residue or a sequence out under the sequence's identifier, as SeqVec writes them."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.parity_allennlp import allennlp_layers
from hf_elmo import ElmoModel, ElmoTokenizer, embed
from hf_elmo.conversion import convert
from hf_elmo.embedding import corpus
from hf_elmo.embedding.readers import RowSource
from hf_elmo_cli import main

from ..allennlp_files import make_arrays, make_options, write_files
from ..reference_numpy import NumpyELMo
from .helpers import Stopped, close, initial_model

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWYXBZU"
PROTEINS = {"sp|P1|A_HUMAN": "MKVLAAGIVG", "P2": "ACDEF", "Q3.1": "GGGXXBUZ-*", "leer": "", "P4": "W"}
FASTA = """>sp|P1|A_HUMAN the first one OS=Homo sapiens
MKVLA
  aagivg
>P2\r
ACD EF\r

>Q3.1 lower case, gap and stop
gggxxbuz-*
>leer
>P4
W""".replace("aagivg", "agivg")


@pytest.fixture
def proteins(tmp_path: Path) -> Path:
    path = tmp_path / "proteins.fasta"
    path.write_text(FASTA, encoding="utf-8", newline="")
    return path


@pytest.fixture
def characters() -> ElmoTokenizer:
    return ElmoTokenizer(word_splitting="characters")


def test_sequences_and_identifiers(proteins: Path, tmp_path: Path) -> None:
    packed = tmp_path / "p.fa.gz"
    packed.write_bytes(gzip.compress(proteins.read_bytes()))
    unnamed = tmp_path / "p"
    unnamed.write_bytes(proteins.read_bytes())
    for source in (RowSource(proteins), RowSource(packed), RowSource(unnamed, "fasta")):
        assert {row.name: "".join(row) for row in source} == PROTEINS
        assert all(len(letter) == 1 for row in source for letter in row)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MKV\n>a\nM\n", "line 1: 'MKV' stands before the first header"),
        (">a\nM\n>a b\nK\n", "line 3: the sequence has the identifier 'a' of an earlier one"),
        (">\nM\n", "line 1: the sequence has none"),
    ],
)
def test_what_is_no_fasta(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.fasta"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        list(RowSource(path))
    with pytest.raises(ValueError, match="text_column='x' has no meaning for a fasta file"):
        RowSource(path, text_column="x")


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name."""
    if path.suffix == ".npz":
        with np.load(path) as file:
            return dict(file)
    if path.suffix == ".safetensors":
        return pytest.importorskip("safetensors.numpy").load_file(path)
    if path.suffix == ".parquet":
        table = pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
        return {row.get("id", str(row["row"])): np.array(row["embedding"], np.float32) for row in table}
    with pytest.importorskip("h5py").File(path) as file:
        return {name: file[name][...] for name in file}


@pytest.mark.parametrize("ending", ["npz", "hdf5", "safetensors", "parquet"])
@pytest.mark.parametrize("pooling", ["none", "mean"])
def test_every_output_is_named_by_identifiers(
    model: ElmoModel, proteins: Path, tmp_path: Path, ending: str, pooling: str
) -> None:
    output = tmp_path / f"vectors.{ending}"
    written = embed(model, proteins, output, layers="sum", pooling=pooling)
    assert (written.rows, written.words) == (5, 26)
    found, rows = arrays_of(output), [list(sequence) for sequence in PROTEINS.values()]
    assert sorted(found) == sorted(PROTEINS)
    assert ending not in ("npz", "parquet") or list(found) == list(PROTEINS)  # the others sort them, here or there
    expected = embed(model, rows, layers="sum", pooling=pooling)
    shape = (-1, 22) if pooling == "none" else (22,)
    close([found[name].reshape(shape) for name in PROTEINS], list(expected))


@pytest.mark.parametrize("batch_tokens", [None, 7], ids=["batches", "pieces"])
def test_the_sum_is_that_of_all_layers(model: ElmoModel, batch_tokens: int | None) -> None:
    rows = [list(sequence) for sequence in PROTEINS.values()]
    for pooling in ("none", "mean", "max"):
        found = embed(model, rows, layers="sum", pooling="none", batch_tokens=batch_tokens)
        whole = [array.sum(0) for array in embed(model, rows, layers="all")]
        if pooling != "none":
            found = embed(model, rows, layers="sum", pooling=pooling, batch_tokens=batch_tokens)
            pool = np.mean if pooling == "mean" else np.max
            whole = [pool(array, axis=0) if len(array) else np.zeros(22) for array in whole]
        close(found, whole, 2e-6)


def test_letters_are_words_of_the_tokenizer_too(characters: ElmoTokenizer, tmp_path: Path) -> None:
    assert characters.split_into_words(["MK V\nL", "é日"]) == [["M", "K", "V", "L"], ["é", "日"]]
    characters.save_pretrained(tmp_path)
    again = ElmoTokenizer.from_pretrained(tmp_path)
    assert again.word_splitting == "characters"
    encoded = again("MKV", return_offsets_mapping=True)
    assert encoded["offset_mapping"] == [(0, 0), (0, 1), (1, 2), (2, 3), (0, 0)]


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        *(("a/b", "npz"), ("a\\b", "hdf5"), ("..", "h5"), ("__metadata__", "safetensors"), ("a\0", "npz")),
        *(("\0a", "h5"), ("x" * 60_001, "npz"), ("日" * 20_001, "hdf5"), ("a.npy", "npz")),
    ],
    ids=lambda value: value[:5].encode("ascii", "backslashreplace").decode().replace("\0", "NUL"),
)
def test_identifiers_that_a_format_cannot_hold(model: ElmoModel, tmp_path: Path, name: str, ending: str) -> None:
    path = tmp_path / "a.fasta"
    path.write_text(f">{name}\nMK\n")
    with pytest.raises(ValueError, match="cannot be an array of"):
        embed(model, path, tmp_path / f"out.{ending}")
    assert {file.name for file in tmp_path.iterdir() if file.suffix != ".lock"} <= {"a.fasta", f"out.{ending}.parts"}
    embed(model, path, tmp_path / "out.parquet")
    assert list(arrays_of(tmp_path / "out.parquet")) == [name]


@pytest.mark.parametrize("ending", ["npz", "hdf5", "safetensors", "parquet"])
def test_the_longest_identifiers(model: ElmoModel, tmp_path: Path, ending: str) -> None:
    path, name = tmp_path / "a.fasta", "日" * 20_000
    path.write_text(f">{name}\nMK\n>b\nM", encoding="utf-8")
    embed(model, path, tmp_path / f"out.{ending}")
    assert sorted(arrays_of(tmp_path / f"out.{ending}")) == ["b", name]


@pytest.mark.parametrize("ending", ["npz", "hdf5", "safetensors", "parquet"])
def test_lone_surrogates_in_identifiers_are_refused_before_the_work(
    model: ElmoModel, tmp_path: Path, stop_after, ending: str
) -> None:
    path, calls = tmp_path / "a.fasta", stop_after(1000)
    path.write_bytes(b">good\nMK\n>b+2AA-d\nMK\n")  # UTF-7 can say what UTF-8 cannot
    with pytest.raises(ValueError, match=r"a row named 'b\\ud800d' cannot be written \(surrogates not allowed\)"):
        embed(model, path, tmp_path / f"out.{ending}", encoding="utf-7")
    assert not calls
    assert [file.name for file in tmp_path.iterdir()] == ["a.fasta"]


@pytest.mark.parametrize("ending", ["npz", "hdf5", "safetensors", "parquet"])
@pytest.mark.parametrize("source", ["words", "texts", "pretokenized", "jsonl", "fasta"])
def test_lone_surrogates_in_words_are_dropped_in_every_format(
    model: ElmoModel, tmp_path: Path, source: str, ending: str
) -> None:
    rows = [["a\ud800b", "\udfff", "c"], ["d"]]
    texts, options, expected = [" ".join(row) for row in rows], {}, [["ab", "", "c"], ["d"]]
    inputs = {"words": rows, "texts": texts, "pretokenized": texts}.get(source, tmp_path / f"in.{source}")
    if source == "pretokenized":
        options = {"pretokenized": True}
    elif source == "jsonl":
        inputs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif source == "fasta":
        inputs.write_bytes(b">0\nA+2AA-B\n>1\nD")
        options, expected = {"encoding": "utf-7"}, [["A", "", "B"], ["D"]]
    embed(model, inputs, output := tmp_path / f"out.{ending}", **options)
    found, vectors = arrays_of(output), embed(model, expected)
    close([found[name].reshape(-1, 22) for name in ("0", "1")], vectors)
    if ending == "parquet":
        table = pytest.importorskip("pyarrow.parquet").read_table(output)
        assert table.column("words").to_pylist() == expected


def test_identifiers_that_are_not_ascii(model: ElmoModel, tmp_path: Path) -> None:
    path = tmp_path / "a.fasta"
    path.write_text(">蛋白\nMK\n", encoding="utf-8")
    for ending in ("npz", "hdf5", "safetensors", "parquet"):
        embed(model, path, tmp_path / f"out.{ending}")
        assert list(arrays_of(tmp_path / f"out.{ending}")) == ["蛋白"]


def test_another_identifier_is_another_input(model: ElmoModel, proteins: Path, tmp_path: Path, stop_after) -> None:
    stop_after(1)
    with pytest.raises(Stopped):
        embed(model, proteins, tmp_path / "out.npz", window=5)
    proteins.write_text(proteins.read_text().replace(">P4", ">P5"))
    with pytest.raises(ValueError, match="differs: rows_sha256 was"):
        embed(model, proteins, tmp_path / "out.npz", window=5)


def test_a_protein_of_30000_residues_within_the_budget() -> None:
    """In pieces, to the result of one pass; a batch never holds more tokens than it may."""
    rng = np.random.default_rng(0)
    model = initial_model(hidden_size=8, cell_size=6, num_hidden_layers=2)
    titin = ["".join(rng.choice(list(AMINO_ACIDS), 30_000))]
    words = [list(titin[0])]
    most, read = [], model.bilm.run_direction

    def watched(direction, inputs, *arguments):
        most.append(len(inputs))
        return read(direction, inputs, *arguments)

    model.bilm.run_direction = watched
    (pieces,) = embed(model, words, layers="sum", batch_tokens=4096)
    assert max(most) <= 4096
    assert len(most) == 2 * 8
    (whole,) = embed(model, words, layers="sum", batch_tokens=40_000)
    assert pieces.shape == (30_000, 8)
    assert np.abs(pieces - whole).max() < 1e-5


def random_proteins(number: int = 12) -> dict[str, str]:
    rng = np.random.default_rng(7)
    return {f"P{i}": "".join(rng.choice(list(AMINO_ACIDS), rng.integers(1, 60))) for i in range(number)}


@pytest.fixture
def seqvec(tmp_path: Path) -> tuple[Path, Path]:
    """Files of SeqVec's kind: the options of the original ELMo in all but their sizes."""
    options = make_options(lstm={"cell_clip": 3, "proj_clip": 3})
    arrays = make_arrays(options)
    for name in arrays:
        arrays[name] = arrays[name] / 2 if "lstm" in name.lower() else arrays[name]  # or rounding grows with length
    return write_files(tmp_path / "source", options, arrays)


def embedded(seqvec: tuple[Path, Path], sequences: dict[str, str], tmp_path: Path, *options: str) -> dict:
    """What the command writes for sequences, from a checkpoint that it converted."""
    out, fasta, vectors = (tmp_path / name for name in ("checkpoint", "p.fasta", "vectors.npz"))
    convert(*seqvec, out, word_splitting="characters")
    fasta.write_text("".join(f">{name} x\n{sequence}\n" for name, sequence in sequences.items()))
    assert main(["embed", str(out), str(fasta), str(vectors), "--layers", "sum", *options]) == 0
    return arrays_of(vectors)


def test_random_proteins_have_the_vectors_of_the_reference(seqvec: tuple[Path, Path], tmp_path: Path) -> None:
    reference, sequences = NumpyELMo(*seqvec), random_proteins(5)
    found = embedded(seqvec, sequences, tmp_path)
    for name, sequence in sequences.items():
        expected = reference.layers(list(sequence))[0][:, 1:-1].sum(0)
        assert np.abs(found[name] - expected).max() <= 1e-5


def test_random_proteins_have_the_vectors_of_allennlp(
    seqvec: tuple[Path, Path], shared: Path, allennlp_python: str, tmp_path: Path
) -> None:
    """As SeqVec calls it: the sum of AllenNLP's layers, a vector a residue; and their mean, a vector a protein."""
    sequences, text = random_proteins(), tmp_path / "letters.txt"
    text.write_text("".join(" ".join(sequence) + "\n" for sequence in sequences.values()))
    expected = allennlp_layers(allennlp_python, shared, seqvec[0].parent, text, batch_size=4, carried=False)
    found = embedded(seqvec, sequences, tmp_path)
    for vectors, layers in zip(found.values(), expected, strict=True):
        assert np.abs(vectors - layers[:, 1:-1].sum(0)).max() <= 1e-5
    (tmp_path / "pooled").mkdir()
    means = embedded(seqvec, sequences, tmp_path / "pooled", "--pooling", "mean")
    for vector, layers in zip(means.values(), expected, strict=True):
        assert np.abs(vector - layers[:, 1:-1].sum(0).mean(0)).max() <= 1e-5


def test_identifiers_that_change_before_they_are_written_are_refused(proteins, characters, tmp_path, monkeypatch):
    fill = corpus._fill

    def changing(*arguments):
        found = fill(*arguments)
        proteins.write_text(FASTA.replace(">P2", ">P7"), encoding="utf-8", newline="")
        return found

    monkeypatch.setattr(corpus, "_fill", changing)
    with pytest.raises(ValueError, match="the input changed while it was embedded"):
        embed(initial_model(), proteins, tmp_path / "out.npz", tokenizer=characters)
    assert not (tmp_path / "out.npz").exists()
