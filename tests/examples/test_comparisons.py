"""A quick run of each comparison with and without ELMo, on small data in the formats of the real files."""

import csv
import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from examples.ag_news import run as ag_news
from examples.classifier import BAG, PAIRS
from examples.comparison import Run, gain, table
from examples.coreference import data as litbank
from examples.coreference import run as coreference
from examples.entailment import run as entailment
from examples.korean import prepare as korean
from examples.korean import sentiment
from examples.question_answering import data as squad
from examples.question_answering import run as question_answering
from examples.question_types import run as question_types
from examples.semantic_roles import data as propbank
from examples.semantic_roles import run as semantic_roles
from examples.sms_spam import run as sms_spam
from examples.sst5 import run as sst5
from examples.tagging import data as tagging_data
from examples.tagging import run as tagging
from tests.examples.conftest import write

ROWS = [BAG, *(row for pair in PAIRS for row in pair)]
GLOVE_ROWS = ["GloVe", "GloVe + ELMo"]


@pytest.fixture
def run(folder: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    """A function that runs a script with `--quick` and returns the first column of its tables."""

    def call(script, *options: str) -> list[str]:
        script.main([str(data), "--model", folder, "--out", str(tmp_path / "out"), "--quick", *options])
        lines = capsys.readouterr().out.splitlines()
        return [line.split(" | ")[0].strip("| ") for line in lines if line.startswith("| ") and "±" in line]

    return call


def as_csv(rows: Iterable[Iterable]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def runs(*accuracies: float) -> list[Run]:
    return [Run({"accuracy": accuracy}, 2.0 * i, 1234) for i, accuracy in enumerate(accuracies)]


def test_the_table_has_means_and_deviations_and_a_gain_is_paired() -> None:
    """Differences of 1, 2, 3, 4, 5 points: 3 on average, with the standard error sqrt(2.5 / 5) and t(4) = 2.776."""
    lines = table({"a": runs(0.5, 0.6, 0.7), "b": runs(0.25, 0.25, 0.25)}, {"accuracy": "accuracy"}).splitlines()
    assert lines[2:] == ["| a | 60.00 ± 10.00 | 2.0 | 1,234 |", "| b | 25.00 ± 0.00 | 2.0 | 1,234 |"]
    results = {"a": runs(0.1, 0.5, 0.2, 0.6, 0.3), "b": runs(0.11, 0.52, 0.23, 0.64, 0.35)}
    assert gain(results, "a", "b") == "b over a: +3.00 points (+1.04 to +4.96)"


def test_ag_news(run, data: Path, tmp_path: Path) -> None:
    news = [(i % 4 + 1, f"Team {i} wins in Rome", f"Anna sang {i} .") for i in range(ag_news.TRAIN_TITLES + 20)]
    stories = [(label, f"{title} {text}", 1) for label, title, text in news[:40]]
    stories.append((1, "An #36;10 chip of  its own", 0))
    write(data / "ag_news" / "test.csv", as_csv(news))
    write(data / "ag_news" / "train_subset.csv.gz", as_csv([("class", "text", "has_title"), *stories]))
    assert run(ag_news, "--texts", "whole") == ROWS
    assert (tmp_path / "out" / "whole.png").read_bytes().startswith(b"\x89PNG")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out" / "whole" / "glove_trained")
    assert model.config.id2label == ag_news.CLASSES
    ag_news.main([str(data), "--write", str(tmp_path / "news.txt")])
    assert (tmp_path / "news.txt").read_text(encoding="utf-8") == "An $10 chip of its own\n"


def test_question_types(run, data: Path) -> None:
    for name in ("train.txt", "test.txt"):
        write(data / "trec" / name, "DESC:def What is it ?\nHUM:ind Who wrote `` Go '' ?\nNUM:date When ?\n" * 20)
    assert question_types.read(data / "trec")["train"][0] == {"text": 'Who wrote " Go " ?', "labels": 3}
    assert run(question_types) == ROWS


def test_sms_spam(run, data: Path) -> None:
    rows = [("spam", f"WIN {i} NOW") if i % 3 else ("ham", f"see you {i}") for i in range(sms_spam.TRAIN + 30)]
    write(data / "sms_spam" / "spam.csv", as_csv([("v1", "v2"), *rows]))
    assert run(sms_spam) == [BAG, "textbook", "improved", "improved, biLM trained"]


def test_tagging(run, data: Path) -> None:
    task = tagging.TASKS["uner_ewt"]
    rows = [("Anna", "B-PER"), ("met", "O"), ("Bob", "B-PER"), ("Roy", "I-PER"), ("in", "O"), ("Rome", "B-LOC")]
    lines = [f"{n}\t{word}\t{tag}\t-\t-\n" for n, (word, tag) in enumerate(rows, start=1)]
    for file in task.files:
        write(data / file, ("# newdoc id = 1\n" + "".join(lines) + "\n") * 24)
    sentences = tagging_data.read(data, task, 24, False)["train"]
    assert sentences == [tuple(map(list, zip(*rows, strict=True)))] * 24
    assert run(tagging, "--tasks", "uner_ewt") == ["GloVe", "GloVe + characters", "GloVe + ELMo"]


def test_semantic_roles(run, data: Path) -> None:
    rows = [("Anna", "(ARG0*)", "*"), ("met", "(V*)", "*"), ("Bob", "(ARG1*", "(ARG0*)"), ("who", "*", "(R-ARG0*)")]
    rows += [("sang", "*)", "(V*)"), (".", "*", "*")]
    text = "".join(f"doc 0 {n} {word} NN * - - {' '.join(spans)}\n" for n, (word, *spans) in enumerate(rows))
    for part in ("train", "dev", "test"):
        write(data / propbank.FOLDER / f"{part}.gold_conll.gz", f"doc 0 0 well NN * - - \n\n{text}\n{text}")
    first, second, *_ = propbank.read(data, 10, False)["train"]
    tags = ["B-ARG0", "B-V", "B-ARG1", "I-ARG1", "I-ARG1", "O"]
    assert first == (["Anna", "met", "Bob", "who", "sang", "."], 1, tags)
    assert second[1:] == (4, ["O", "O", "B-ARG0", "B-R-ARG0", "B-V", "O"])
    assert run(semantic_roles) == GLOVE_ROWS


def test_sst5(run, data: Path) -> None:
    trees = "".join(f"({label} (2 Anna) ({label} (2 -LRB-) (3 sang\\/met)))\n" for label in range(5))
    for file in sst5.FILES.values():
        write(data / "sst" / "trees" / file, trees * 3)
    assert sst5.read(data / "sst" / "trees" / "dev.txt") == ([["Anna", "(", "sang/met"]] * 15, [0, 1, 2, 3, 4] * 3)
    assert run(sst5) == GLOVE_ROWS


def test_entailment(run, data: Path) -> None:
    for train, test, *columns in entailment.TASKS.values():
        rows = [f'{label}\tAnna sang "well .\the met Bob\n' for label in entailment.LABELS]
        rows.append(f"neutral\t{'so ' * 401}\the met Bob\n")  # lines that ran into one
        for file in (train, test):
            write(data / file, "\t".join(["label", *columns]) + "\n" + "".join(rows * 4))
    pairs = entailment.read(data / test, *columns)
    assert (len(pairs), pairs[1]) == (12, (["Anna", "sang", '"well', "."], ["he", "met", "Bob"], 1))
    assert run(entailment) == GLOVE_ROWS * 2


# In the columns of LitBank: nested and crossing mentions, a singleton, one mention twice, and empty columns.
DOCUMENT = [
    [("Anna", "(3"), ("Lee", "3)"), ("met", "_"), ("Bob", "(0)"), ("in", ""), ("Rome", "(7)"), (".", "_")],
    [("She", "(3)|(5)"), ("liked", "_"), ("the", "(8"), ("man", "(0|8)"), ("of", "_"), ("Rome", "0)"), (".", "_")],
    [("She", "(3)"), ("ran", "_"), ("the", "(8"), ("town", "8)"), (".", "_")],
]
GAP = """ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL
test-1\tAnna "met" Bob. She ran.\tShe\t16\tAnna\t0\tTRUE\tBob\t11\tFALSE\thttp://a
test-2\tBob met Anna in St. Ives? (He sang.)\tHe\t27\tBob\t0\tTRUE\tAnna\t8\tFALSE\thttp://a
"""


def test_coreference(run, data: Path) -> None:
    rows = ["\n".join("\t".join([word, *"........", column]) for word, column in sentence) for sentence in DOCUMENT]
    document = "\n\n".join(rows).replace("\n", "\nd\t0\t0\t").replace("\nd\t0\t0\t\n", "\n\n")
    parts = {"train": ["1_a", "4_d"], "dev": ["2_b"], "test": ["3_c"]}
    names = [name for names in parts.values() for name in names]
    text = "".join(f"#begin document ({name}); part 0\nd\t0\t0\t{document}\n#end document\n" for name in names)
    write(data / litbank.LITBANK, text)
    write(data / litbank.GAP, GAP)
    with tarfile.open(data / litbank.FOLDS, "w:gz") as folds:
        for part, names in parts.items():
            content = "".join(f"{name}.tsv\n" for name in names).encode()
            info = tarfile.TarInfo(f"litbank_tenfold_splits/0/{part}.ids")
            info.size = len(content)
            folds.addfile(info, io.BytesIO(content))
    (document,) = litbank.read_litbank(data)["dev"]
    assert document.sentences == [[word for word, _ in sentence] for sentence in DOCUMENT]
    assert document.begin(9).clusters == [[[0, 1], [7, 7], [14, 14]], [[3, 3], [10, 12]], [[9, 10], [16, 17]]]
    assert document.begin(2).clusters == [[[0, 1], [7, 7]], [[3, 3], [10, 12]]]
    gap = litbank.read_gap(data, 3)
    assert [row["Text"] for row in gap] == ['Anna "met" Bob.\nShe ran.', "Bob met Anna in St.\nIves?\n(He sang.)"]
    assert run(coreference) == GLOVE_ROWS


def test_question_answering(run, data: Path) -> None:
    for name in (*squad.TRAIN, *squad.TEST):
        answers = [{"text": "Bob", "answer_start": 9}, {"text": "in Rome", "answer_start": 13}]
        asked = [{"id": word, "question": f" Who {word}? ", "answers": answers} for word in ("met", "sang")]
        passages = [{"context": f"Anna met Bob in Rome {name} {i}, and sang.", "qas": asked} for i in range(20)]
        write(data / name, json.dumps({"data": [{"title": "a", "paragraphs": passages}]}))
    questions = squad.read(data, squad.TRAIN, 1000)
    assert squad.read(data, squad.TRAIN, 3) == [questions[0], questions[26], questions[53]]
    assert run(question_answering) == GLOVE_ROWS


def test_korean(run, data: Path, tmp_path: Path) -> None:
    negative, positive = "지루하다 연기 최악", "재미있다 연기 최고"
    lines = [
        f"{part}\t{movie}\t{rating}\t{text} {part} {number}"
        for movie, (part, number_of) in enumerate({"train": 40, "dev": 3, "test": 12}.items())
        for number in range(number_of)
        for rating, text in ((2, negative), (6, "그저 그렇다"), (10, positive))
    ]
    lines[1:1] = [lines[0], "test\t9\t10\t" + lines[0].split("\t")[-1]]  # once in train, and once for testing
    write(data / "korean_reviews" / "reviews.tsv.gz", "\n".join(["split\tmovie\trating\treview", *lines]))
    korean.main([str(data), str(tmp_path / "text")])
    parts = [(tmp_path / "text" / f"{name}.txt").read_text("utf-8").splitlines() for name in korean.PARTS]
    assert list(map(len, parts)) == [37, 9, 119]
    model = AutoModel.from_pretrained(tmp_path / "text" / "start")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "text" / "start")
    assert model(**tokenizer("연기", return_tensors="pt")).last_hidden_state.shape[1] == 3
    rows = [sentiment.BAG, sentiment.CHARACTERS, sentiment.ELMO_MEAN, sentiment.LEARNED, sentiment.WITH_ELMO]
    assert run(sentiment, "--sizes", "20") == rows
    assert (tmp_path / "out" / "sentiment.png").exists()


def test_noise_drops_doubles_or_swaps_syllables() -> None:
    text = "가나다 abc ㅋㅋ"
    assert sentiment.noised(text, 0, Random(1)) == text
    changed = {sentiment.noised("가나x", 100, Random(seed)) for seed in range(40)}
    assert {"x", "가가나나x", "나가x"} <= changed
    assert sentiment.noised("abc ㅋㅋ", 100, Random(1)) == "abc ㅋㅋ"
