"""A quick run of each comparison with and without ELMo, on small data as the Hub and the files have it."""

import csv
import io
import json
import re
import tarfile
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest
from datasets import ClassLabel, Dataset, Sequence
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from examples import data
from examples.ag_news import run as ag_news
from examples.classifier import BAG, PAIRS
from examples.comparison import Run, gain, table
from examples.coreference import run as coreference
from examples.entailment import run as entailment
from examples.korean import prepare as korean
from examples.korean import sentiment
from examples.question_answering import run as question_answering
from examples.question_types import run as question_types
from examples.semantic_roles import run as semantic_roles
from examples.sms_spam import run as sms_spam
from examples.sst5 import run as sst5
from examples.tagging import run as tagging
from tests.examples.conftest import write

pytestmark = pytest.mark.slow
ROWS = [BAG, *(row for pair in PAIRS for row in pair)]
GLOVE_ROWS = ["GloVe", "GloVe + ELMo"]


@pytest.fixture
def run(folder: str, files: Path, capsys: pytest.CaptureFixture):
    """A function that runs a script with `--quick` and returns the first column of its tables."""

    def call(script, *options: str) -> list[str]:
        script.main(["--model", folder, "--out", "out", "--quick", *options])
        lines = capsys.readouterr().out.splitlines()
        return [line.split(" | ")[0].strip("| ") for line in lines if line.startswith("| ") and "±" in line]

    return call


def publish(name: str, config: str = "default", *, names: dict[str, list[str]] | None = None, **parts: list) -> None:
    """A data set of the Hub in the working folder; `names` are those of the labels in a column."""
    for part, rows in parts.items():
        dataset = Dataset.from_list(rows)
        for column, labels in (names or {}).items():
            label = ClassLabel(names=labels)
            dataset = dataset.cast_column(column, label if isinstance(rows[0][column], int) else Sequence(label))
        (Path(name) / config / part).mkdir(parents=True)
        dataset.to_parquet(f"{name}/{config}/{part}/0000.parquet")


def as_csv(rows: Iterable[Iterable]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def archive(path: str | Path, texts: dict[str, str]) -> None:
    with tarfile.open(path, "w:gz") as file:
        for name, text in texts.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            file.addfile(info, io.BytesIO(text.encode()))


def runs(*accuracies: float) -> list[Run]:
    return [Run({"accuracy": accuracy}, 2.0 * i, 1234) for i, accuracy in enumerate(accuracies)]


def test_the_table_has_means_and_deviations_and_a_gain_is_paired() -> None:
    """Differences of 1, 2, 3, 4, 5 points: 3 on average, with the standard error sqrt(2.5 / 5) and t(4) = 2.776."""
    lines = table({"a": runs(0.5, 0.6, 0.7), "b": runs(0.25, 0.25, 0.25)}, {"accuracy": "accuracy"}).splitlines()
    assert lines[2:] == ["| a | 60.00 ± 10.00 | 2.0 | 1,234 |", "| b | 25.00 ± 0.00 | 2.0 | 1,234 |"]
    results = {"a": runs(0.1, 0.5, 0.2, 0.6, 0.3), "b": runs(0.11, 0.52, 0.23, 0.64, 0.35)}
    assert gain(results, "a", "b") == "b over a: +3.00 points (+1.04 to +4.96)"


def test_ag_news(run, files: Path) -> None:
    news = [(f"Team {i} wins in Rome", f"Anna sang {i} .", i % 4) for i in range(ag_news.TRAIN_TITLES + 20)]
    stories = [*news[:40], ("", "An #36;10 chip of  its own", 0)]
    write(files / "ag_news" / "test.csv", as_csv((label + 1, title, text) for title, text, label in news))
    rows = [(label + 1, f"{title} {text}".strip(), int(bool(title))) for title, text, label in stories]
    write(files / "ag_news" / "train_subset.csv.gz", as_csv([("class", "text", "has_title"), *rows]))
    as_rows = {
        part: [{"label": label + 1, "title": title, "description": text} for title, text, label in of_part]
        for part, of_part in {"train": stories, "test": news}.items()
    }
    publish("sh0416/ag_news", **as_rows)
    assert data.ag_news(None)["test"] == data.ag_news(files)["test"] == news
    assert run(ag_news, "--texts", "whole") == ROWS
    model = AutoModelForSequenceClassification.from_pretrained("out/whole/glove_trained")
    assert model.config.id2label == dict(enumerate(ag_news.CLASSES))
    for source in ([], ["--data", str(files)]):
        ag_news.main(["--write", "news.txt", *source])
        assert Path("news.txt").read_text(encoding="utf-8") == "An $10 chip of its own\n"


def test_question_types(run, files: Path) -> None:
    questions = [("DESC:def", "What is it ?"), ("HUM:ind", "Who wrote `` Go '' ?"), ("NUM:date", "When ?")] * 20
    names = ["ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM"]
    rows = [{"text": text, "coarse_label": names.index(label.partition(":")[0])} for label, text in questions]
    publish("CogComp/trec", names={"coarse_label": names}, train=rows, test=rows)
    for part in ("train", "test"):
        write(files / "trec" / f"{part}.txt", "".join(f"{label} {text}\n" for label, text in questions))
    assert data.trec(None) == data.trec(files)
    assert question_types.read(None)["train"][0] == {"text": 'Who wrote " Go " ?', "labels": 3}
    assert run(question_types) == ROWS


def test_sms_spam(run, files: Path) -> None:
    messages = [(f"WIN {i} NOW", 1) if i % 3 else (f"see you {i}", 0) for i in range(sms_spam.TRAIN + 30)]
    publish("ucirvine/sms_spam", train=[{"sms": f"{text}\n", "label": label} for text, label in messages])
    rows = ((("ham", "spam")[label], text) for text, label in messages)
    write(files / "sms_spam" / "spam.csv", as_csv([("v1", "v2"), *rows]))
    assert data.sms_spam(None) == data.sms_spam(files) == messages
    assert run(sms_spam) == [BAG, "textbook", "improved", "improved, biLM trained"]


NAMES = [("Anna", "B-PER"), ("met", "O"), ("Bob", "B-PER"), ("Roy", "I-PER"), ("in", "O"), ("Rome", "B-LOC")]


@pytest.mark.parametrize("name", data.TAGGED)
def test_tagging(name: str, run, files: Path) -> None:
    words, tags = map(list, zip(*NAMES, strict=True))
    labels = sorted(set(tags))
    row = {"tokens": words, "ner_tags": [labels.index(tag) for tag in tags]}
    row["chunk_tags"] = row["ner_tags"]
    for repository, parts in {
        "eriktks/conll2000": ("train", "test"),
        "leondz/wnut_17": ("train", "validation", "test"),
    }.items():
        columns = {"ner_tags": labels, "chunk_tags": labels}
        publish(repository, names=columns, **{part: [row] * 40 for part in parts})
    lines = (f"{n}\t{word}\t{tag}\t-\t-\n" for n, (word, tag) in enumerate(NAMES, start=1))
    text = ("# newdoc id = 1\n" + "".join(lines) + "\n") * 40
    plain = ("\n".join(f"{word} {tag}" for word, tag in NAMES) + "\n\n") * 40
    for part in data.PARTS:
        write(Path(f"{part}.iob2"), text)
    for path in data.TAGGED[name][0]:
        middle = plain.replace(" ", " NN ") if name == "chunking" else plain
        write(files / path, text if name == "uner_ewt" else middle)
    assert data.tagged(name, None) == data.tagged(name, files)
    assert data.tagged(name, files)["train"][0] == (words, tags)
    if name == "uner_ewt":
        assert run(tagging, "--tasks", name) == ["GloVe", "GloVe + characters", "GloVe + ELMo"]


def test_semantic_roles(run, files: Path) -> None:
    rows = [("Anna", "(ARG0*)", "*"), ("met", "(V*)", "*"), ("Bob", "(ARG1*", "(ARG0*)"), ("who", "*", "(R-ARG0*)")]
    rows += [("sang", "*)", "(V*)"), (".", "*", "*")]
    annotated = "".join(f"doc 0 {n} {word} NN * - - {' '.join(spans)}\n" for n, (word, *spans) in enumerate(rows))
    text = f"doc 0 0 well NN * - - \n\n{annotated}\n{annotated}"
    words = "".join(f"{n}\t{word}\t_\n" for n, (word, *_) in enumerate(rows, start=1))
    words = (
        f"# newdoc id = answers-doc\n1\twell\t_\n\n{words}\n1-2\tnone\t_\n{words}\n# newdoc id = email-x\n1\tHi\t_\n"
    )
    for part in data.PARTS:
        write(files / "srl" / "propbank_ewt" / f"{part}.gold_conll.gz", text)
        write(Path(f"{part}.conllu"), words)
    skeleton = re.sub(r"(doc \d+ \d+) \S+", r"\1 [WORD]", text)
    archive("propbank.tar.gz", {"propbank/data/google/ewt/answers/00/doc.xml.gold_skel": skeleton})
    assert list(data.propbank(None, "train")) == list(data.propbank(files, "train"))
    first, second, *_ = semantic_roles.read(None, 10, False)["train"]
    tags = ["B-ARG0", "B-V", "B-ARG1", "I-ARG1", "I-ARG1", "O"]
    assert first == (["Anna", "met", "Bob", "who", "sang", "."], 1, tags)
    assert second[1:] == (4, ["O", "O", "B-ARG0", "B-R-ARG0", "B-V", "O"])
    assert run(semantic_roles) == GLOVE_ROWS


def test_sst5(run, files: Path) -> None:
    texts = [("anna ( sang/met", label) for label in range(5)] * 3
    rows = [{"text": text, "label": label} for text, label in texts]
    publish("SetFit/sst5", train=rows, validation=rows, test=rows)
    for part in data.PARTS:
        write(files / "sst" / f"stsa.fine.{part}", "".join(f"{label} {text}\n" for text, label in texts))
    assert data.sst5(None) == data.sst5(files)
    assert run(sst5) == GLOVE_ROWS


def test_entailment(run, files: Path) -> None:
    pairs = [('Anna sang "well .', "he met Bob", label) for label in range(3)] * 5
    rows = [dict(zip(("premise", "hypothesis", "label"), pair, strict=True)) for pair in [*pairs, ("a", "b", -1)]]
    publish("stanfordnlp/snli", train=rows, validation=rows, test=rows)
    lines = [f"{data.NLI_CLASSES[label]}\t{premise}\t{hypothesis}\n" for premise, hypothesis, label in pairs]
    for part in ("dev", "test"):
        write(files / "snli" / f"snli_{part}.tsv", "label\tpremise\thypothesis\n" + "".join(lines))
    assert data.snli(None) == data.snli(files) == {"dev": pairs, "test": pairs}
    assert run(entailment) == GLOVE_ROWS


# In the columns of LitBank: nested and crossing mentions, a singleton, one mention twice, and empty columns.
DOCUMENT = [
    [("Anna", "(3"), ("Lee", "3)"), ("met", "_"), ("Bob", "(0)"), ("in", ""), ("Rome", "(7)"), (".", "_")],
    [("She", "(3)|(5)"), ("liked", "_"), ("the", "(8"), ("man", "(0|8)"), ("of", "_"), ("Rome", "0)"), (".", "_")],
    [("She", "(3)"), ("ran", "_"), ("the", "(8"), ("town", "8)"), (".", "_")],
]
CHAINS = [[[0, 0, 1], [1, 0, 0], [2, 0, 0]], [[0, 3, 3], [1, 3, 5]], [[0, 5, 5]], [[1, 2, 3], [2, 2, 3]]]
GAP = """ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL
test-1\tAnna "met" Bob. She ran.\tShe\t16\tAnna\t0\tTRUE\tBob\t11\tFALSE\thttp://a
test-2\tBob met Anna in St. Ives? (He sang.)\tHe\t27\tBob\t0\tTRUE\tAnna\t8\tFALSE\thttp://a
"""


def test_coreference(run, files: Path) -> None:
    rows = ["\n".join("\t".join([word, *"........", column]) for word, column in sentence) for sentence in DOCUMENT]
    document = "\n\n".join(rows).replace("\n", "\nd\t0\t0\t").replace("\nd\t0\t0\t\n", "\n\n")
    parts = {"train": ["1_a", "4_d"], "dev": ["2_b"], "test": ["3_c"]}
    names = [name for names in parts.values() for name in names]
    text = "".join(f"#begin document ({name}); part 0\nd\t0\t0\t{document}\n#end document\n" for name in names)
    write(files / "coref" / "litbank" / "litbank_all.conll.gz", text)
    write(files / "coref" / "gap" / "gap-test.tsv.gz", GAP)
    ids = {f"litbank_tenfold_splits/0/{part}.ids": "".join(f"{x}.tsv\n" for x in of) for part, of in parts.items()}
    archive(files / "coref" / "litbank" / "tenfold_splits.tar.gz", ids)
    published = {"sentences": [[word for word, _ in sentence] for sentence in DOCUMENT], "coref_chains": CHAINS}
    on_hub = {data.PARTS[part]: [published] * len(names) for part, names in parts.items()}
    publish("coref-data/litbank_raw", "split_0", **on_hub)
    splits = "".join(f"  - split: {part}\n    path: split_0/{part}/*\n" for part in on_hub)
    write(
        Path("coref-data/litbank_raw/README.md"), f"---\nconfigs:\n- config_name: split_0\n  data_files:\n{splits}---\n"
    )
    publish("coref-data/gap_raw", test=list(csv.DictReader(io.StringIO(GAP), delimiter="\t", quoting=csv.QUOTE_NONE)))
    for source in (None, files):
        (document,) = data.litbank(source)["dev"]
        assert document["sentences"] == [[word for word, _ in sentence] for sentence in DOCUMENT]
        clusters = [sorted(map(list, cluster)) for cluster in coreference.begin(document, 9)["clusters"]]
        assert clusters == [[[0, 1], [7, 7], [14, 14]], [[3, 3], [10, 12]], [[9, 10], [16, 17]]]
        assert coreference.begin(document, 2)["clusters"] == [[[0, 1], [7, 7]], [[3, 3], [10, 12]]]
    assert data.gap(None) == data.gap(files)
    texts = [coreference.in_lines(row)["Text"] for row in data.gap(files)]
    assert texts == ['Anna "met" Bob.\nShe ran.', "Bob met Anna in St.\nIves?\n(He sang.)"]
    assert run(coreference) == GLOVE_ROWS


def test_question_answering(run, files: Path) -> None:
    answers = {"text": ["Bob", "in Rome"], "answer_start": [9, 13]}
    asked = [
        {
            "id": f"{i}",
            "question": f" Who {word}? ",
            "context": f"Anna met Bob in Rome {i}, and sang.",
            "answers": answers,
        }
        for i in range(20)
        for word in ("met", "sang")
    ]
    publish("rajpurkar/squad", train=asked, validation=asked)
    for name in ("squadshifts/new_wiki_v1.0", "squad_v1.1/squad_train_du_test_part", "squad_v1.1/squad_dev_part1"):
        of_one = [{"text": text, "answer_start": start} for text, start in zip(*answers.values(), strict=True)]
        passages = [{"context": one["context"], "qas": [{**one, "answers": of_one}]} for one in asked]
        write(files / "squad" / f"{name}.json.gz", json.dumps({"data": [{"title": "a", "paragraphs": passages}]}))
    assert data.squad(None) == {"train": asked, "test": asked}
    assert data.squad(files) == {"train": asked * 2, "test": asked}
    assert question_answering.spread(asked, 3) == [asked[0], asked[13], asked[26]]
    assert run(question_answering) == GLOVE_ROWS


def test_korean(run, files: Path) -> None:
    negative, positive = "지루하다 연기 최악", "재미있다 연기 최고"
    lines = [
        f"{part}\t{movie}\t{rating}\t{text} {part} {number}"
        for movie, (part, number_of) in enumerate({"train": 40, "dev": 3, "test": 12}.items())
        for number in range(number_of)
        for rating, text in ((2, negative), (6, "그저 그렇다"), (10, positive))
    ]
    lines[1:1] = [lines[0], "test\t9\t10\t" + lines[0].split("\t")[-1]]  # once in train, and once for testing
    write(files / "korean_reviews" / "reviews.tsv.gz", "\n".join(["split\tmovie\trating\treview", *lines]))
    korean.main([str(files), "text"])
    parts = [Path("text", f"{name}.txt").read_text("utf-8").splitlines() for name in korean.PARTS]
    assert list(map(len, parts)) == [37, 9, 119]
    model, tokenizer = AutoModel.from_pretrained("text/start"), AutoTokenizer.from_pretrained("text/start")
    assert model(**tokenizer("연기", return_tensors="pt")).last_hidden_state.shape[1] == 3
    rows = [sentiment.BAG, sentiment.CHARACTERS, sentiment.ELMO_MEAN, sentiment.LEARNED, sentiment.WITH_ELMO]
    assert run(sentiment, "--data", str(files), "--sizes", "20") == rows


def test_noise_drops_doubles_or_swaps_syllables() -> None:
    text = "가나다 abc ㅋㅋ"
    assert sentiment.noised(text, 0, Random(1)) == text
    changed = {sentiment.noised("가나x", 100, Random(seed)) for seed in range(40)}
    assert {"x", "가가나나x", "나가x"} <= changed
    assert sentiment.noised("abc ㅋㅋ", 100, Random(1)) == "abc ㅋㅋ"
