"""The comparison of resolvers of coreference: what it reads, prints and saves, on small data and on the real."""

import gzip
import io
import re
import tarfile
from pathlib import Path

import pytest

from examples.coreference import data as coreference_data
from examples.coreference import run as coreference
from hf_elmo import ElmoForCoreferenceResolution, ElmoTokenizer, resolve

WORDS = ["anna", "met", "bob", "she", "him", "in", "rome", "."]
# As LitBank has it: nested and crossing mentions, a singleton, one mention twice, and empty columns.
DOCUMENT = [
    [("Anna", "(3"), ("Lee", "3)"), ("met", "_"), ("Bob", "(0)"), ("in", ""), ("Rome", "(7)"), (".", "_")],
    [("She", "(3)|(5)"), ("liked", "_"), ("the", "(8"), ("man", "(0|8)"), ("of", "_"), ("Rome", "0)"), (".", "_")],
    [("She", "(3)"), ("ran", "_"), ("the", "(8"), ("town", "8)"), (".", "_")],
]
FOLD = {"train": "1_a_brat.tsv\n4_d_brat.tsv\n", "dev": "2_b_brat.tsv", "test": "3_c_brat.tsv"}


def conll(names: list[str]) -> bytes:
    text = ""
    for name in names:
        text += f"#begin document ({name}); part 0\n"
        for sentence in DOCUMENT:
            for place, (word, column) in enumerate(sentence):
                text += "\t".join([name, "0", str(place), word, *["_"] * 8, column]) + "\n"
            text += "\n"
        text += "#end document\n"
    return gzip.compress(text.encode())


@pytest.fixture
def data(data_with_vectors) -> Path:
    data = data_with_vectors(WORDS)
    (data / "coref" / "litbank").mkdir(parents=True)
    (data / "coref" / "gap").mkdir()
    (data / coreference_data.LITBANK).write_bytes(conll(["1_a_brat", "2_b_brat", "3_c_brat", "4_d_brat"]))
    with tarfile.open(data / coreference_data.FOLDS, "w:gz") as folds:
        for part, names in FOLD.items():
            info = tarfile.TarInfo(f"litbank_tenfold_splits/0/{part}.ids")
            info.size = len(names)
            folds.addfile(info, io.BytesIO(names.encode()))
    rows = ["ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL"]
    rows += ['test-1\tAnna "met" Bob. She ran.\tShe\t16\tAnna\t0\tTRUE\tBob\t11\tFALSE\thttp://a'] * 2
    rows += ["test-3\tBob met Anna in St. Ives? (He sang.)\tHe\t27\tBob\t0\tTRUE\tAnna\t8\tFALSE\thttp://a"]
    (data / coreference_data.GAP).write_bytes(gzip.compress("\n".join(rows).encode()))
    return data


def test_documents_of_litbank(data: Path) -> None:
    parts = coreference_data.read_litbank(data)
    assert {part: [each.name for each in own] for part, own in parts.items()} == {
        "train": ["1_a_brat", "4_d_brat"],
        "dev": ["2_b_brat"],
        "test": ["3_c_brat"],
    }
    document = parts["dev"][0]
    assert document.sentences == [[word for word, _ in sentence] for sentence in DOCUMENT]
    assert document.clusters == [[(0, 1), (7, 7), (14, 14)], [(3, 3), (10, 12)], [(9, 10), (16, 17)]]
    assert document.begin(2).clusters == [[(0, 1), (7, 7)], [(3, 3), (10, 12)]]
    assert document.begin(2).sentences == document.sentences[:2]


@pytest.mark.parametrize(
    ("columns", "said"),
    [(["(1", "2)"], r"a mention of 2 ends at word 1, but began nowhere"), (["(1", "_"], r"never end.*\{'1': \[0\]\}")],
)
def test_brackets_that_do_not_fit(data: Path, columns: list[str], said: str) -> None:
    rows = ["\t".join(["7_x", "0", "0", "w", *["_"] * 8, column]) for column in columns]
    text = "\n".join(["#begin document (7_x); part 0", *rows, "", "#end document", ""])
    (data / "own.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(ValueError, match=f"document 7_x: .*{said}"):
        list(coreference_data.read_conll(data / "own.gz"))


def test_texts_of_gap_keep_their_places(data: Path) -> None:
    rows = coreference_data.read_gap(data, 3)
    assert [row["Text"] for row in rows[1:]] == ['Anna "met" Bob.\nShe ran.', "Bob met Anna in St.\nIves?\n(He sang.)"]
    for row in rows:
        for name in ("Pronoun", "A", "B"):
            start = int(row[f"{name}-offset"])
            assert row["Text"][start : start + len(row[name])] == row[name]


def test_the_table(folder: str, data: Path, tmp_path: Path, capsys) -> None:
    coreference.main([str(data), "--model", folder, "--out", str(tmp_path / "out"), "--quick"])
    first, _, header, _, *rows = capsys.readouterr().out.splitlines()
    assert first == "**LitBank**, fold 0 (2 train, 1 dev, 1 test documents), **GAP** (3 texts)"
    assert header.startswith("| | mean F1 | MUC | B-cubed | CEAF | GAP F1 | masculine | feminine |")
    assert [row.split(" | ")[0] for row in rows if row.startswith("|")] == ["| GloVe", "| GloVe + ELMo"]
    saved = tmp_path / "out" / "model"
    model, tokenizer = ElmoForCoreferenceResolution.from_pretrained(saved), ElmoTokenizer.from_pretrained(saved)
    assert tokenizer.words
    assert resolve(model, ["Anna ran ."])[0].words == ["Anna", "ran", "."]


def test_quick_on_real_data(shared: Path, tmp_path: Path, capsys) -> None:
    coreference.main([str(shared / "data"), "--out", str(tmp_path), "--quick"])
    scores = [re.match(r"\| GloVe[^|]*\| ([0-9.]+) ±", line) for line in capsys.readouterr().out.splitlines()]
    scores = [float(score[1]) for score in scores if score]
    assert len(scores) == 2
    assert max(scores) > 0  # mean F1; a training that does nothing gives 0


def test_the_real_documents_are_those_of_its_statistics(shared: Path) -> None:
    """The counts of LitBank's README, less the mentions that are there twice."""
    documents = list(coreference_data.read_conll(shared / "data" / coreference_data.LITBANK))
    assert len(documents) == 100
    assert sum(len(sentence) for each in documents for sentence in each.sentences) == 210_532
    assert sum(len(each.sentences) for each in documents) == 8_562
    clusters = [cluster for each in documents for cluster in each.clusters]
    assert 2_160 <= len(clusters) <= 2_164
    assert 23_330 <= sum(map(len, clusters)) <= 23_340
