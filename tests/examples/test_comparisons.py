"""A quick run of each comparison with and without ELMo, on small data sets of the layout that the Hub has."""

import tarfile
from importlib import import_module
from pathlib import Path
from random import Random

import pytest
from datasets import ClassLabel, Dataset, Sequence
from transformers import AutoModel, AutoTokenizer

from examples import data
from examples.ag_news import run as ag_news
from examples.classifier import BAG, PAIRS
from examples.comparison import Run, gain, table
from examples.coreference import run as coreference
from examples.korean import prepare as korean
from examples.korean import sentiment
from examples.question_answering import run as question_answering
from examples.semantic_roles import run as semantic_roles
from tests.examples.conftest import write

pytestmark = pytest.mark.slow
ROWS = [BAG, *(row for pair in PAIRS for row in pair)]
GLOVE_ROWS = ["GloVe", "GloVe + ELMo"]


@pytest.fixture
def run(folder: str, hub: None, capsys: pytest.CaptureFixture):
    """A function that runs the script of that name with `--quick` and returns the first column of its tables."""

    def call(name: str, *options: str) -> list[str]:
        script = import_module(f"examples.{name}")
        script.main(["--model", folder, "--out", "out", "--quick", *options])
        lines = capsys.readouterr().out.splitlines()
        return [line.split(" | ")[0].strip("| ") for line in lines if line.startswith("| ") and "±" in line]

    return call


def publish(name: str, config: str = "default", *, labels: dict | None = None, **parts: list) -> None:
    """A data set of the Hub in the working folder; `labels` are the types of its columns of labels."""
    for part, rows in parts.items():
        dataset = Dataset.from_list(rows)
        for column, label in (labels or {}).items():
            dataset = dataset.cast_column(column, label)
        (Path(name) / config / part).mkdir(parents=True)
        dataset.to_parquet(f"{name}/{config}/{part}/0000.parquet")


def runs(*accuracies: float) -> list[Run]:
    return [Run({"accuracy": accuracy}, 2.0 * i, 1234) for i, accuracy in enumerate(accuracies)]


def test_the_table_has_means_and_deviations_and_a_gain_is_paired() -> None:
    """Differences of 1, 2, 3, 4, 5 points: 3 on average, with the standard error sqrt(2.5 / 5) and t(4) = 2.776."""
    lines = table({"a": runs(0.5, 0.6, 0.7), "b": runs(0.25, 0.25, 0.25)}, {"accuracy": "accuracy"}).splitlines()
    assert lines[2:] == ["| a | 60.00 ± 10.00 | 2.0 | 1,234 |", "| b | 25.00 ± 0.00 | 2.0 | 1,234 |"]
    results = {"a": runs(0.1, 0.5, 0.2, 0.6, 0.3), "b": runs(0.11, 0.52, 0.23, 0.64, 0.35)}
    assert gain(results, "a", "b") == "b over a: +3.00 points (+1.04 to +4.96)"


def test_the_files_have_as_many_rows_as_the_data_sets_of_the_hub(shared: Path) -> None:
    files = shared / "data"
    assert (len(data.sms_spam(files)), len(data.gap(files))) == (5572, 2000)
    read = [getattr(data, name)(files) for name in ("trec", "sst5", "snli", "litbank", "ag_news", "squad", "nsmc")]
    counts = [tuple(map(len, parts.values())) for parts in (*read, *(data.tagged(name, files) for name in data.TAGGED))]
    assert counts[:4] == [(5452, 500), (8544, 1101, 2210), (9842, 9824), (80, 10, 10)]
    assert counts[4:7] == [(21_294, 7600), (19_815, 4961), (663_241, 21_615)]
    assert counts[7:] == [(8043, 893, 2012), (12_543, 2001, 2077), (3394, 1009, 1287)]
    assert sum(len(columns) for _, columns in data.propbank(files, "dev")) == 4913


def rows_of(texts: list[str], labels: int, number: int, column: str = "label") -> list[dict]:
    """Rows with one of the texts and labels in turn."""
    return [{"text": f"{texts[i % len(texts)]} {i}", column: i % labels} for i in range(number)]


TREC = {"coarse_label": ClassLabel(names=["ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM"])}
QUESTIONS = rows_of(["What is it ?", "Who wrote `` Go '' ?", "When ?"], 6, 60, "coarse_label")
MESSAGES = [{"sms": f"{row['text']}\n", "label": row["label"]} for row in rows_of(["see you", "WIN NOW"], 2, 4490)]
DEGREES = dict.fromkeys(("train", "validation", "test"), rows_of(["anna ( sang/met"], 5, 15))
PAIR = {"premise": "Anna sang", "hypothesis": "he met Bob"}
PAIRED = dict.fromkeys(("validation", "test"), [{**PAIR, "label": label} for label in range(-1, 3)] * 5)  # -1: none
CLASSIFIED = [
    ("question_types", "CogComp/trec", {"labels": TREC, "train": QUESTIONS, "test": QUESTIONS}, ROWS),
    ("sms_spam", "ucirvine/sms_spam", {"train": MESSAGES}, [BAG, "textbook", "improved", "improved, biLM trained"]),
    ("sst5", "SetFit/sst5", DEGREES, GLOVE_ROWS),
    ("entailment", "stanfordnlp/snli", PAIRED, GLOVE_ROWS),
]


@pytest.mark.parametrize(("script", "name", "parts", "rows"), CLASSIFIED)
def test_classes_of_texts(run, script: str, name: str, parts: dict, rows: list[str]) -> None:
    publish(name, **parts)
    assert run(f"{script}.run") == rows


def test_ag_news(run) -> None:
    news = rows_of(["Anna sang well in Rome", "Bob wins all in Rome"], 4, ag_news.TRAIN_TITLES + 20)
    news = [{"title": row["text"], "description": "He sang .", "label": row["label"] + 1} for row in news]
    unlabeled = {"title": "An #36;10 chip", "description": "of  its own", "label": 1}
    publish("sh0416/ag_news", train=[*news[:40], unlabeled], test=news)
    assert run("ag_news.run", "--texts", "whole") == ROWS
    ag_news.main(["--write", "news.txt"])
    assert Path("news.txt").read_text(encoding="utf-8") == "An $10 chip of its own\n"


def test_tagging(run) -> None:
    words, tags = ["Anna", "met", "Bob", "Roy", "in", "Rome"], ["B-PER", "O", "B-PER", "I-PER", "O", "B-LOC"]
    label = ClassLabel(names=sorted(set(tags)))
    row = {"tokens": words, **dict.fromkeys(("ner_tags", "chunk_tags"), label.str2int(tags))}
    names = dict.fromkeys(("ner_tags", "chunk_tags"), Sequence(label))
    publish("eriktks/conll2000", labels=names, train=[row] * 40, test=[row, {**row, "tokens": []}])
    publish("leondz/wnut_17", labels=names, train=[row] * 40, validation=[row], test=[row])
    lines = "".join(f"1\t{word}\t{tag}\t-\t-\n" for word, tag in zip(words, tags, strict=True))
    for part in data.PARTS:
        write(Path(f"{part}.iob2"), f"# newdoc id = 1\n{lines}\n" * 40)
    for name in data.TAGGED:
        parts = data.tagged(name, None)
        assert (list(parts), parts["train"][0], len(parts["dev"]) > 0) == (list(data.PARTS), (words, tags), True)
    assert run("tagging.run", "--tasks", "uner_ewt") == ["GloVe", "GloVe + characters", "GloVe + ELMo"]


def test_semantic_roles(run) -> None:
    rows = [("Anna", "(ARG0*", "*"), ("met", "(V*)", "*"), ("Bob", "(ARG1*", "(ARG0*)"), ("who", "*", "(R-ARG0*)")]
    rows += [("sang", "*)", "(V*)"), (".", "*", "*")]
    skeleton = "".join(f"doc 0 {n} [WORD] NN * - - {' '.join(spans)}\n" for n, (_, *spans) in enumerate(rows))
    words = "".join(f"{n}\t{word}\t_\n" for n, (word, *_) in enumerate(rows, start=1))
    text = f"# newdoc id = answers-doc\n1\twell\t_\n\n{words}\n1-2\tnone\t_\n{words}\n# newdoc id = email-x\n1\tHi\t_\n"
    for part in data.PARTS:
        write(Path(f"{part}.conllu"), text)
    write(Path("ewt/doc.xml.gold_skel"), f"doc 0 0 [WORD] NN * - - \n\n{skeleton}\n{skeleton}")
    with tarfile.open("propbank.tgz", "w:gz") as archive:
        archive.add("ewt")
    first, second, *_ = semantic_roles.read(None, 10, False)["train"]
    assert first == (list(next(zip(*rows, strict=True))), ["B-ARG0", "B-V", "B-ARG1", "I-ARG1", "I-ARG1", "O"])
    assert second[1] == ["O", "O", "B-ARG0", "B-R-ARG0", "B-V", "O"]
    assert run("semantic_roles.run") == GLOVE_ROWS


def test_coreference(run) -> None:
    """Nested and crossing mentions, and a singleton, as numbers of a sentence and of its first and last word."""
    sentences = ["Anna Lee met Bob in Rome .", "She liked the man of Rome .", "She ran ."]
    chains = [[[0, 0, 1], [1, 0, 0], [2, 0, 0]], [[0, 3, 3], [1, 3, 5]], [[0, 5, 5]]]
    document = {"sentences": list(map(str.split, sentences)), "coref_chains": chains}
    publish("coref-data/litbank_raw", "split_0", train=[document] * 2, validation=[document], test=[document])
    files = ", ".join(f"{{split: {part}, path: split_0/{part}/*}}" for part in data.PARTS.values())
    card = f"---\nconfigs: [{{config_name: split_0, data_files: [{files}]}}]\n---\n"
    write(Path("coref-data/litbank_raw/README.md"), card)
    columns = ("Text", "Pronoun", "Pronoun-offset", "A", "A-offset", "B", "B-offset")
    texts = [("Anna met Bob. She ran.", "She", 14, "Anna", 0, "Bob", 9)]
    texts += [("Bob sat in St. Ives? (He)", "He", 22, "Bob", 0, "a", 5)]
    rows = [{**dict(zip(columns, one, strict=True)), "A-coref": True, "B-coref": False} for one in texts]
    publish("coref-data/gap_raw", test=rows)
    (document,) = data.litbank(None)["dev"]
    assert coreference.begin(document, 9)["clusters"] == [[[0, 1], [7, 7], [14, 14]], [[3, 3], [10, 12]]]
    assert coreference.begin(document, 1)["clusters"] == []
    lines = [coreference.in_lines(row)["Text"] for row in data.gap(None)]
    assert lines == ["Anna met Bob.\nShe ran.", "Bob sat in St.\nIves?\n(He)"]
    assert run("coreference.run") == GLOVE_ROWS


def test_question_answering(run) -> None:
    answers = {"text": ["Bob", "in Rome"], "answer_start": [9, 13]}
    asked = [{"question": "Who?", "context": f"Anna met Bob in Rome {n // 2}.", "answers": answers} for n in range(40)]
    publish("rajpurkar/squad", train=asked, validation=asked)
    assert question_answering.parts_of(asked, [])["dev"] == [*asked[:2], *asked[20:22]]
    assert run("question_answering.run") == GLOVE_ROWS


def test_korean(run) -> None:
    for part in ("train", "test"):
        write(Path(f"{part}.txt"), 'id\tdocument\tlabel\n1\t연기 "최고\t1\n')
    assert data.nsmc(None) == {part: ['연기 "최고'] for part in ("train", "test")}
    lines = [
        f"{part}\t{movie}\t{rating}\t{text} {part} {number}"
        for movie, (part, reviews) in enumerate({"train": 40, "dev": 3, "test": 12}.items())
        for number in range(reviews)
        for rating, text in ((2, "지루하다 연기 최악"), (6, "그저 그렇다"), (10, "재미있다 연기 최고"))
    ]
    lines[1:1] = [lines[0], "test\t9\t10\t" + lines[0].split("\t")[-1]]  # once in train, and once for testing
    write(Path("files/korean_reviews/reviews.tsv.gz"), "\n".join(["split\tmovie\trating\treview", *lines]))
    korean.main(["files", "text"])
    parts = [Path("text", f"{name}.txt").read_text("utf-8").splitlines() for name in korean.PARTS]
    assert list(map(len, parts)) == [37, 9, 119]
    model, tokenizer = AutoModel.from_pretrained("text/start"), AutoTokenizer.from_pretrained("text/start")
    assert model(**tokenizer("연기", return_tensors="pt")).last_hidden_state.shape[1] == 3
    rows = run("korean.sentiment", "--data", "files", "--sizes", "20")
    assert rows == [sentiment.BAG, sentiment.CHARACTERS, sentiment.ELMO_MEAN]
    changed = {sentiment.noised("가나x ㅋ", 100, Random(seed)) for seed in range(40)}
    assert {"x ㅋ", "가가나나x ㅋ", "나가x ㅋ"} <= changed
