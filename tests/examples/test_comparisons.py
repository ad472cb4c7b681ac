"""A quick run of each comparison with and without ELMo on real data, and what the comparisons are made of."""

import gzip
from importlib import import_module
from pathlib import Path
from random import Random

import pytest
from transformers import AutoModel, AutoTokenizer

from examples import data
from examples.ag_news.run import plain
from examples.classifier import BAG, PAIRS
from examples.comparison import Run, gain, table
from examples.coreference import run as coreference
from examples.korean import prepare as korean
from examples.korean import sentiment
from examples.question_answering import run as question_answering
from examples.semantic_roles.run import tags_of
from tests.factories import write_lines

pytestmark = pytest.mark.slow
GLOVE_ROWS = ["GloVe", "GloVe + ELMo"]
CLASSIFIERS = [BAG, *(row for pair in PAIRS for row in pair)]
SCRIPTS = {
    "ag_news.run --texts titles": CLASSIFIERS,
    "question_types.run": CLASSIFIERS,
    "sms_spam.run": [BAG, "textbook", "improved", "improved, biLM trained"],
    "sst5.run": GLOVE_ROWS,
    "entailment.run": GLOVE_ROWS,
    "tagging.run --tasks uner_ewt": ["GloVe", "GloVe + characters", "GloVe + ELMo"],
    "semantic_roles.run": GLOVE_ROWS,
    "coreference.run": GLOVE_ROWS,
    "question_answering.run": GLOVE_ROWS,
    "korean.sentiment --sizes 20": [sentiment.BAG, sentiment.CHARACTERS, sentiment.ELMO_MEAN],
}


@pytest.fixture
def rows_of(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    """A function that runs a script with `--quick`, and returns the first column of its tables."""

    def call(command: str, *options: str) -> list[str]:
        name, *arguments = command.split()
        script = import_module(f"examples.{name}")
        script.main(["--model", folder, "--out", str(tmp_path / "out"), "--quick", *arguments, *options])
        lines = capsys.readouterr().out.splitlines()
        return [line.split(" | ")[0].strip("| ") for line in lines if line.startswith("| ") and "±" in line]

    return call


@pytest.mark.parametrize("command", SCRIPTS)
def test_a_quick_run_has_all_rows(rows_of, shared: Path, command: str) -> None:
    assert rows_of(command, "--data", str(shared / "data")) == SCRIPTS[command]


def runs(*accuracies: float) -> list[Run]:
    return [Run({"accuracy": accuracy}, 2.0 * i, 1234) for i, accuracy in enumerate(accuracies)]


def test_the_table_has_means_and_deviations_and_a_gain_is_paired() -> None:
    """Differences of 1, 2, 3, 4, 5 points: 3 on average, with the standard error sqrt(2.5 / 5) and t(4) = 2.776."""
    lines = table({"a": runs(0.5, 0.6, 0.7), "b": runs(0.25, 0.25, 0.25)}, {"accuracy": "accuracy"}).splitlines()
    assert lines[2:] == ["| a | 60.00 ± 10.00 | 2.0 | 1,234 |", "| b | 25.00 ± 0.00 | 2.0 | 1,234 |"]
    results = {"a": runs(0.1, 0.5, 0.2, 0.6, 0.3), "b": runs(0.11, 0.52, 0.23, 0.64, 0.35)}
    assert gain(results, "a", "b") == "b over a: +3.00 points (+1.04 to +4.96)"


def test_roles_get_the_words_of_universal_dependencies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("Anna", "(ARG0*", "*"), ("met", "(V*)", "*"), ("Bob", "(ARG1*", "(ARG0*)"), ("sang", "*)", "(V*)")]
    skeleton = [f"doc 0 {n} [WORD] NN * - - {' '.join(spans)}" for n, (_, *spans) in enumerate(rows)]
    words = [f"{n}\t{word}\t_" for n, (word, *_) in enumerate(rows, start=1)]
    write_lines(tmp_path / "ewt" / "doc.xml.gold_skel", ["doc 0 0 [WORD] NN * - - ", "", *skeleton])
    head = ["# newdoc id = answers-doc", "1\ttwo\t_", "2\twords\t_", "", "1-2\tnone\t_"]
    text = write_lines(tmp_path / "a.conllu", [*head, *words, "", "# newdoc id = email-x", "1\tHi\t_"])
    monkeypatch.setattr(data, "downloaded", lambda url: tmp_path / "ewt" if url == data.PROPBANK else text)
    ((found, columns),) = data.propbank(None, "dev")  # the first sentence has another number of words
    assert found == [word for word, *_ in rows]
    assert list(map(tags_of, columns)) == [["B-ARG0", "B-V", "B-ARG1", "I-ARG1"], ["O", "O", "B-ARG0", "B-V"]]


def test_parts_of_texts() -> None:
    document = {"sentences": [["a"] * 7, ["b"] * 7], "clusters": [[[0, 1], [7, 7]], [[3, 3], [5, 6]], [[4, 4]]]}
    assert coreference.begin(document, 2)["clusters"] == document["clusters"][:2]
    assert coreference.begin(document, 1)["clusters"] == [[[3, 3], [5, 6]]]
    assert coreference.in_lines({"Text": "Bob sat in St. Ives? (He)"})["Text"] == "Bob sat in St.\nIves?\n(He)"
    asked = [{"question": "Who?", "context": f"Anna {n // 2}."} for n in range(40)]
    assert question_answering.parts_of(asked, [])["dev"] == [*asked[:2], *asked[20:22]]
    assert plain("An #36;10 chip\\of  its own") == "An $10 chip of  its own"
    changed = {sentiment.noised("가나x ㅋ", 100, Random(seed)) for seed in range(40)}
    assert {"x ㅋ", "가가나나x ㅋ", "나가x ㅋ"} <= changed


def test_korean_text(tmp_path: Path) -> None:
    parts = enumerate(("train", "dev", "test"))
    lines = [f"{part}\t{movie}\t9\t연기 {part} {number}" for movie, part in parts for number in range(5)]
    lines.insert(1, lines[0])  # once in train
    lines.insert(1, "test\t9\t10\t" + lines[0].split("\t")[-1])  # and once for testing
    text = "\n".join(["split\tmovie\trating\treview", *lines])
    (tmp_path / "korean_reviews").mkdir()
    (tmp_path / "korean_reviews" / "reviews.tsv.gz").write_bytes(gzip.compress(text.encode()))
    korean.main([str(tmp_path), str(tmp_path / "text")])
    parts = [(tmp_path / "text" / f"{name}.txt").read_text("utf-8").splitlines() for name in korean.PARTS]
    assert list(map(len, parts)) == [6, 5, 4]
    model, tokenizer = (each.from_pretrained(tmp_path / "text/start") for each in (AutoModel, AutoTokenizer))
    assert model(**tokenizer("연기", return_tensors="pt")).last_hidden_state.shape[1] == 3
