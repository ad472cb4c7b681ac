"""The comparisons of heads with and without ELMo: what they read, print and save, on small data and on the real."""

import gzip
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer

from examples.comparison import Run, clock
from examples.entailment import run as entailment
from examples.semantic_roles import data as roles_data
from examples.semantic_roles import run as roles
from examples.sst5 import run as sst5
from examples.tagging import data as tagging_data
from examples.tagging import run as tagging
from examples.variants import VARIANTS, report

WORDS = ["anna", "met", "bob", "in", "rome", "(", "and", "he", "sang", "well", ".", "not"]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


@pytest.fixture
def data(data_with_vectors) -> Path:
    return data_with_vectors(WORDS)


def conll(task: tagging_data.Task, sentences: list[list[tuple[str, str]]]) -> str:
    """Sentences in the columns of a task."""
    text = "# newdoc id = 1\n" if task.separator == "\t" else ""
    for sentence in sentences:
        for word, tag in sentence:
            columns = ["-"] * (task.tag + 1)
            columns[task.word], columns[task.tag] = word, tag
            text += task.separator.join(columns) + "\n"
        text += "\n"
    return text


SENTENCES = [
    [("Anna", "B-PER"), ("met", "O"), ("Bob", "B-PER"), ("Roy", "I-PER"), ("in", "O"), ("Rome", "B-LOC")],
    [("#", "O"), ("Bob", "B-PER"), ("sang", "O")],
]


@pytest.mark.parametrize("name", tagging.TASKS)
def test_taggers(name: str, folder: str, data: Path, tmp_path: Path, capsys) -> None:
    task = tagging.TASKS[name]
    for file in filter(None, task.files):
        write(data / file, conll(task, SENTENCES * 12))
    more = ["--unfrozen"] if name == "wnut17" else []
    tagging.main([str(data), "--model", folder, "--out", str(tmp_path / "out"), "--quick", "--tasks", name, *more])
    first, _, header, _, *rows = capsys.readouterr().out.splitlines()
    assert first.startswith(f"**{name}** (")
    assert header.startswith("| | F1 | precision | recall |")
    rows = [row.split(" | ")[0].strip("| ") for row in rows if row.startswith("|")]
    vectors = "GloVe" if task.english else "embedding"
    expected = tagging.ROWS + tagging.MORE_ROWS.get(name, []) + [tagging.UNFROZEN] * bool(more)
    assert rows == [vectors + row for row in VARIANTS if row in expected]
    saved = AutoModelForTokenClassification.from_pretrained(tmp_path / "out" / name)
    assert sorted(saved.config.label2id) == ["B-LOC", "B-PER", "I-PER", "O"]
    encoded = AutoTokenizer.from_pretrained(tmp_path / "out" / name)("Anna sang", return_tensors="pt")
    assert saved(**encoded).tags.shape == (1, 4)


@pytest.mark.parametrize("name", tagging.TASKS)
def test_sentences_in_columns(name: str, data: Path) -> None:
    task = tagging.TASKS[name]
    write(data / task.files[0], conll(task, SENTENCES))
    expected = [tuple(map(list, zip(*sentence, strict=True))) for sentence in SENTENCES]
    assert list(tagging_data.read_sentences(data / task.files[0], task)) == expected


def test_without_a_dev_file_the_last_tenth_of_train(data: Path) -> None:
    task = tagging.TASKS["chunking"]
    numbered = [[(f"w{number}", "O")] for number in range(20)]
    write(data / task.files[0], conll(task, numbered))
    write(data / task.files[2], conll(task, SENTENCES))
    parts = tagging_data.read(data, task, train=5, quick=False)
    words = {part: [row[0] for row, _ in sentences] for part, sentences in parts.items()}
    assert words == {"train": ["w0", "w1", "w2", "w3", "w4"], "dev": ["w18", "w19"], "test": ["Anna", "#"]}


PROPOSITIONS = [("Anna", "(ARG0*)", "*"), ("met", "(V*)", "*"), ("Bob", "(ARG1*", "(ARG0*)"), ("who", "*", "(R-ARG0*)")]
PROPOSITIONS += [("sang", "*)", "(V*)"), (".", "*", "*")]


def propositions() -> str:
    """A sentence with two predicates, one with none, in the columns of PropBank."""
    return "\n".join(
        "".join(f"doc 0 {n} {word} NN * - - {' '.join(spans)}\n" for n, (word, *spans) in enumerate(sentence))
        for sentence in ([("well",), (".",)], PROPOSITIONS)
    )


def test_a_predicate_without_its_verb(data: Path) -> None:
    write(data / roles_data.FOLDER / "train.gold_conll.gz", propositions().replace("(V*)\n", "*\n"))
    with pytest.raises(ValueError, match=r"predicate 1 of the sentence 'Anna met Bob who sang \.' in train has no \(V"):
        roles_data.read(data, 10, False)


def test_semantic_roles(folder: str, data: Path, tmp_path: Path, capsys) -> None:
    for part in ("train", "dev", "test"):
        write(data / roles_data.FOLDER / f"{part}.gold_conll.gz", propositions() + "\n" + propositions())
    first, second, *_ = read = roles_data.read(data, 10, False)["train"]
    assert len(read) == 4
    assert first == (
        ["Anna", "met", "Bob", "who", "sang", "."],
        1,
        ["B-ARG0", "B-V", "B-ARG1", "I-ARG1", "I-ARG1", "O"],
    )
    assert second[1:] == (4, ["O", "O", "B-ARG0", "B-R-ARG0", "B-V", "O"])
    roles.main([str(data), "--model", folder, "--out", str(tmp_path / "out"), "--quick"])
    out = capsys.readouterr().out
    assert "(4 train, 4 dev, 4 test predicates)" in out
    assert "- GloVe + ELMo over GloVe: " in out
    saved = AutoModelForTokenClassification.from_pretrained(tmp_path / "out" / "model")
    assert sorted(saved.config.label2id) == ["B-ARG0", "B-ARG1", "B-R-ARG0", "B-V", "I-ARG1", "O"]
    encoded = AutoTokenizer.from_pretrained(tmp_path / "out" / "model")("Anna sang", return_tensors="pt")
    assert saved(**encoded, token_type_ids=torch.tensor([[0, 0, 1, 0]])).tags.shape == (1, 4)


def test_biattentive_network(folder: str, data: Path, tmp_path: Path, capsys) -> None:
    trees = [f"({label} (2 Anna) ({label} (2 -LRB-) (3 sang\\/met)))\n" for label in range(5)]
    for file in sst5.FILES.values():
        write(data / "sst" / "trees" / file, "".join(trees * 3))
    assert sst5.read(data / "sst" / "trees" / "dev.txt") == ([["Anna", "(", "sang/met"]] * 15, [0, 1, 2, 3, 4] * 3)
    sst5.main([str(data), "--model", folder, "--out", str(tmp_path / "out"), "--quick"])
    out = capsys.readouterr().out
    assert "| GloVe + ELMo |" in out
    assert "- GloVe + ELMo over GloVe: " in out
    saved = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out" / "model")
    assert saved.config.id2label == dict(enumerate(sst5.LABELS))
    encoded = AutoTokenizer.from_pretrained(tmp_path / "out" / "model")("Anna sang", return_tensors="pt")
    assert saved(**encoded).logits.shape == (1, 5)


def test_esim(folder: str, data: Path, tmp_path: Path, capsys) -> None:
    for train, test, *columns in entailment.TASKS.values():
        rows = [f'{label}\tAnna sang "well .\the met Bob\n' for label in entailment.LABELS]
        for file in (train, test):
            write(data / file, "\t".join(["label", *columns]) + "\n" + "".join(rows * 4))
    premise = ["Anna", "sang", '"well', "."]
    assert entailment.read(data / test, *columns)[1] == (premise, ["he", "met", "Bob"], 1)
    entailment.main([str(data), "--model", folder, "--out", str(tmp_path / "out"), "--quick"])
    out = capsys.readouterr().out
    for name in entailment.TASKS:
        assert f"**{name}** (10 train, 2 dev, 12 test pairs)" in out
        saved = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out" / name)
        encoded = AutoTokenizer.from_pretrained(tmp_path / "out" / name)("Anna sang", "he sang", return_tensors="pt")
        assert saved(**encoded).logits.shape == (1, 3)


def test_pairs_whose_lines_ran_into_one_are_left_out(tmp_path: Path, capsys) -> None:
    lines = [f"neutral\t{'so ' * count}\the met Bob\n" for count in (400, 401, 2)]
    (tmp_path / "pairs.tsv").write_text("label\tpremise\thypothesis\n" + "".join(lines))
    pairs = entailment.read(tmp_path / "pairs.tsv", "premise", "hypothesis")
    assert [len(premise) for premise, *_ in pairs] == [400, 2]
    assert capsys.readouterr().out == "pairs.tsv: 1 left out, whose premise has over 400 words\n"


def test_the_report_compares_each_row_with_those_above(capsys) -> None:
    results = {
        name: [Run({"f1": score}, 1.0, 7), Run({"f1": score + 0.02 * i}, 3.0, 7)]
        for i, (name, score) in enumerate([("a", 0.5), ("b", 0.6), ("c", 0.4)])
    }
    report(results, {"f1": "F1"}, clock())
    lines = capsys.readouterr().out.splitlines()
    assert lines[3] == "| b | 61.00 ± 1.41 | 2.0 | 7 |"
    found = [line.split(" points")[0] for line in lines if " over " in line]
    assert found == ["- b over a: +11.00", "- c over a: -8.00", "- c over b: -19.00"]


@pytest.mark.parametrize(
    ("script", "rows"),
    [(tagging, 9), (roles, 2), (sst5, 2), (entailment, 4)],
    ids=["tagging", "semantic roles", "sst5", "entailment"],
)
def test_quick_on_real_data(script, rows: int, shared: Path, tmp_path: Path, capsys) -> None:
    script.main([str(shared / "data"), "--out", str(tmp_path), "--quick"])
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("| GloVe", "| embedding"))]
    assert len(printed) == rows
