"""Proteins: FASTA in, a vector a residue or a sequence out under the sequence's identifier, as SeqVec writes them."""

from pathlib import Path

import numpy as np
import pytest

from hf_elmo.conversion import convert
from hf_elmo_cli import main

from ..allennlp_files import make_arrays, make_options, write_files
from ..reference import NumpyELMo

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWYXBZU"


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


def embedded(seqvec: tuple[Path, Path], sequences: dict[str, str], tmp_path: Path) -> dict:
    """What the command writes for sequences, from a checkpoint that it converted."""
    out, fasta, vectors = (tmp_path / name for name in ("checkpoint", "p.fasta", "vectors.npz"))
    convert(*seqvec, out, word_splitting="characters")
    fasta.write_text("".join(f">{name} x\n{sequence}\n" for name, sequence in sequences.items()))
    assert main(["embed", str(fasta), str(vectors), "--model", str(out), "--layers", "sum"]) == 0
    with np.load(vectors) as file:
        return dict(file)


def test_random_proteins_have_the_vectors_of_the_reference(seqvec: tuple[Path, Path], tmp_path: Path) -> None:
    reference, sequences = NumpyELMo(*seqvec), random_proteins(5)
    found = embedded(seqvec, sequences, tmp_path)
    for name, sequence in sequences.items():
        expected = reference.layers(list(sequence))[0][:, 1:-1].sum(0)
        assert np.abs(found[name] - expected).max() <= 1e-5
