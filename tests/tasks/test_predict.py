"""A fine-tuned model over texts and files: records, formats, and that an interrupted run resumes to the same bytes."""

import csv
import functools
import json
from collections.abc import Callable
from dataclasses import asdict
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
import torch

import hf_elmo.tasks.predict as module
from hf_elmo import (
    ElmoConfig,
    ElmoForCoreferenceResolution,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoTokenizer,
    answer,
    predict,
    resolve,
)
from hf_elmo_cli import main
from tests.conftest import SENTENCES, TINY, random_model

NAMES = {0: "O", 1: "B-x", 2: "I-x"}
FIELDS = {"id2label": NAMES, "label2id": {name: i for i, name in NAMES.items()}}
TEXTS = [*SENTENCES, "", "a", "one more , and the last"]


def checkpoint(folder: Path, model_class: type = ElmoForSequenceClassification, **changes: object) -> Path:
    random_model(ElmoConfig(**{**TINY, **FIELDS, **changes}), model_class).save_pretrained(folder)
    ElmoTokenizer(word_splitting="whitespace").save_pretrained(folder)
    return folder


def approximately(value: object) -> object:
    return pytest.approx(value, abs=1e-5)


def write_texts(path: Path, texts: list[str] = TEXTS) -> Path:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


@pytest.mark.parametrize("batch_tokens", [1, 30])
@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification", "regression"])
def test_records_of_a_classifier(tmp_path: Path, problem: str, batch_tokens: int) -> None:
    folder = checkpoint(tmp_path, problem_type=problem)
    model, tokenizer = ElmoForSequenceClassification.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder)
    for text, record in zip(TEXTS, predict(folder, TEXTS, batch_tokens=batch_tokens, device="cpu"), strict=True):
        logits = model(**tokenizer(text, return_tensors="pt")).logits[0].detach()
        is_single = problem == "single_label_classification"
        scores = dict(zip(NAMES.values(), (logits.softmax(0) if is_single else logits.sigmoid()).tolist(), strict=True))
        if problem == "regression":
            assert record == {"values": approximately(logits.tolist())}
        elif is_single:
            label = max(scores, key=scores.get)
            probability = approximately(scores[label])
            assert record == {"label": label, "probability": probability, "probabilities": approximately(scores)}
        else:
            labels = [name for name, score in scores.items() if score > 0.5]
            assert record == {"labels": labels, "probabilities": approximately(scores)}


@pytest.mark.parametrize("crf", [False, True])
@pytest.mark.parametrize("use_elmo", [True, False])
def test_records_of_a_tagger(tmp_path: Path, crf: bool, use_elmo: bool) -> None:
    fields = {"tagging_crf": crf, "word_vectors_vocab_size": 6, "word_vectors_size": 4, "use_elmo": use_elmo}
    folder = checkpoint(tmp_path, ElmoForTokenClassification, **fields)
    tokenizer = ElmoTokenizer(word_splitting="whitespace")
    tokenizer.words = ["the", "a", "."]
    tokenizer.save_pretrained(folder)
    model = ElmoForTokenClassification.from_pretrained(folder)
    for text, record in zip(TEXTS, predict(folder, TEXTS), strict=True):
        output = model(**tokenizer(text, return_tensors="pt"))
        logits = output.logits[0, 1:-1].detach()
        tags = output.tags[0, 1:-1] if crf else logits.argmax(1)
        assert record["words"] == text.split()
        assert record["tags"] == [NAMES[tag] for tag in tags.tolist()]
        assert len(record["probabilities"]) == len(tags)
        if not crf and len(tags):
            assert record["probabilities"] == approximately(logits.softmax(1).amax(1).tolist())


@pytest.mark.parametrize("ending", ["jsonl", "tsv"])
@pytest.mark.parametrize("head", [ElmoForSequenceClassification, ElmoForTokenClassification])
def test_files(tmp_path: Path, capsys, head: type, ending: str) -> None:
    folder, source, output = checkpoint(tmp_path / "model", head), tmp_path / "in.txt", tmp_path / f"out.{ending}"
    write_texts(source)
    assert main(["predict", str(source), str(output), "--model", str(folder)]) == 0
    assert capsys.readouterr().out == f"{output}: 7 rows\n"
    lines, records = output.read_text(encoding="utf-8").splitlines(), predict(folder, TEXTS)
    if ending == "jsonl":
        assert [json.loads(line) for line in lines] == records
    elif head is ElmoForSequenceClassification:
        assert lines == [f"{one['label']}\t{one['probability']:.6f}" for one in records]
    else:
        rows = [[f"{w}\t{t}" for w, t in zip(one["words"], one["tags"], strict=True)] for one in records]
        assert lines == [line for row in rows for line in (*row, "")]
    assert not output.with_name(output.name + ".parts").exists()
    with pytest.raises(FileExistsError):
        predict(folder, source, output)
    assert predict(folder, source, output, overwrite=True).rows == 7


@pytest.mark.parametrize("count", [1, 3])
def test_lines_of_several_labels_hold_each_probability(tmp_path: Path, count: int) -> None:
    """Also of a single sigmoid, as for messages that are spam or not."""
    labels = {i: f"label {i}" for i in range(count)}
    fields = {"id2label": labels, "label2id": {name: i for i, name in labels.items()}}
    folder = checkpoint(tmp_path / "model", problem_type="multi_label_classification", **fields)
    predict(folder, TEXTS, tmp_path / "out.tsv")
    lines = [line.split("\t") for line in (tmp_path / "out.tsv").read_text(encoding="utf-8").splitlines()]
    assert [line[::2] for line in lines] == [list(labels.values())] * len(TEXTS)
    probabilities = [list(record["probabilities"].values()) for record in predict(folder, TEXTS)]
    assert [[float(value) for value in line[1::2]] for line in lines] == [approximately(row) for row in probabilities]


# -- interrupted runs --------------------------------------------------------------------------------------------------


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW_ROWS", 2)


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch, small_windows: None) -> Callable[[Callable], None]:
    """A function that calls another one and interrupts it in its third window."""

    def run(call: Callable[[], object]) -> None:
        lines = []

        def stop(record: dict, ending: str) -> str:
            lines.append(record)
            if len(lines) == 5:
                raise KeyboardInterrupt
            return line(record, ending)

        line = module._line
        with monkeypatch.context() as patch:
            patch.setattr(module, "_line", stop)
            with pytest.raises(KeyboardInterrupt):
                call()

    return run


def test_an_interrupted_run_resumes_with_the_same_settings_and_rows_only(tmp_path: Path, interrupt) -> None:
    folder, source, output = checkpoint(tmp_path / "model"), tmp_path / "in.txt", tmp_path / "out.jsonl"
    write_texts(source)
    run = functools.partial(predict, folder, source, output, device="cpu")
    predict(folder, source, tmp_path / "whole.jsonl", device="cpu")
    interrupt(run)
    with pytest.raises(ValueError, match="batch_tokens"):
        run(batch_tokens=9)
    write_texts(source, [*TEXTS[:-1], "another"])
    with pytest.raises(ValueError, match="rows"):
        run()
    assert not output.exists()
    write_texts(source)
    run()
    assert output.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    interrupt(functools.partial(run, overwrite=True))
    assert run(overwrite=True, restart=True, batch_tokens=9).rows == len(TEXTS)


def test_an_output_that_is_the_input_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('"a text"\n', encoding="utf-8")
    with pytest.raises(ValueError, match="input"):
        predict(checkpoint(tmp_path / "model"), source, source, overwrite=True)
    assert source.read_text(encoding="utf-8") == '"a text"\n'


# -- two columns -------------------------------------------------------------------------------------------------------

PAIRS = [(text, TEXTS[-number - 1]) for number, text in enumerate(TEXTS)]
QUESTIONS = [(f"Who sat in row {number} ?", text) for number, text in enumerate(TEXTS) if text] + [
    ("Where did it end ?", " \n".join(f"line {number} of a passage" for number in range(90)))
]
ROLES = [(text, len(text.split()) // 2) for text in TEXTS if text]
SMALL = {"encoder_hidden_size": 6}
ROLE_FIELDS = {"encoder_type": "alternating", "tagging_indicator_size": 2, "tagging_scheme": "IOB2"}
HEADS = {
    "esim": (ElmoForSequenceClassification, {**SMALL, "classifier_text_pairs": True, "encoder_type": "esim"}, PAIRS),
    "pooled": (ElmoForSequenceClassification, {"classifier_text_pairs": True}, PAIRS),
    "answers": (ElmoForQuestionAnswering, {**SMALL, "allow_no_answer": True}, QUESTIONS),
    "roles": (ElmoForTokenClassification, {**SMALL, **ROLE_FIELDS}, ROLES),
}


def expected_of(folder: Path, head: str) -> list[dict]:
    """The records by the model itself, row by row."""
    model_class, _, rows = HEADS[head]
    if head == "answers":
        return [answer(folder, *row) for row in rows]
    model, tokenizer, records = model_class.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder), []
    model.requires_grad_(False)
    for text, pair in rows:
        if head == "roles":
            encoded = tokenizer(text, return_tensors="pt")
            marks = torch.zeros_like(encoded["attention_mask"])
            marks[0, 1 + pair] = 1
            output = model(**encoded, token_type_ids=marks)
            tags, scores = output.tags[0, 1:-1].tolist(), output.logits[0, 1:-1].softmax(1)
            probabilities = [float(row[tag]) for row, tag in zip(scores, tags, strict=True)]
            tags = [NAMES[tag] for tag in tags]
            records.append({"words": text.split(), "tags": tags, "probabilities": probabilities})
        else:
            scores = model(**tokenizer(text, pair, return_tensors="pt")).logits[0].softmax(0)
            label = NAMES[int(scores.argmax())]
            probabilities = dict(zip(NAMES.values(), scores.tolist(), strict=True))
            records.append({"label": label, "probability": probabilities[label], "probabilities": probabilities})
    return records


def assert_alike(found: list[dict], expected: list[dict]) -> None:
    for record, wanted in zip(found, expected, strict=True):
        assert record.keys() == wanted.keys()
        for key, value in wanted.items():
            assert record[key] == (value if key in ("words", "tags", "answer", "label") else approximately(value))


@pytest.mark.parametrize(
    ("head", "ending"), [("esim", "csv"), ("pooled", "jsonl"), ("answers", "jsonl"), ("roles", "csv")]
)
def test_two_columns(tmp_path: Path, head: str, ending: str, monkeypatch, small_windows) -> None:
    monkeypatch.setattr(module, "WINDOW_QUESTIONS", 2)
    model_class, fields, rows = HEADS[head]
    folder, source = checkpoint(tmp_path / "model", model_class, **fields), tmp_path / f"in.{ending}"
    expected = expected_of(folder, head)
    assert_alike(predict(folder, iter(rows), device="cpu"), expected)
    assert_alike(predict(folder, rows[::-1], device="cpu"), expected[::-1])
    with open(source, "w", newline="", encoding="utf-8") as file:
        if ending == "csv":
            csv.writer(file).writerows([("one", "two"), *rows])
        else:
            file.writelines(json.dumps({"two": pair, "one": text}) + "\n" for text, pair in rows)
    columns = ["--text-column", "one", "--text-pair-column", "two", "--device", "cpu"]
    for output in (tmp_path / "out.jsonl", tmp_path / "out.tsv"):
        assert main(["predict", str(source), str(output), "--model", str(folder), *columns]) == 0
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert_alike(records, expected)
    lines = (tmp_path / "out.tsv").read_text(encoding="utf-8").splitlines()
    if head == "roles":
        assert len(lines) == sum(len(record["words"]) + 1 for record in records)
    elif head == "answers":
        assert lines == [f"{' '.join(record['answer'].split())}\t{record['score']:.6f}" for record in records]
    else:
        assert lines == [f"{record['label']}\t{record['probability']:.6f}" for record in records]


@pytest.mark.parametrize("head", ["esim", "answers"])
def test_two_columns_of_tokenized_text(tmp_path: Path, head: str) -> None:
    model_class, fields, _ = HEADS[head]
    rows = {"esim": [("don't go", "a-b , c")], "answers": [("don't go ?", "a.b  c,d")]}[head]
    folder = checkpoint(tmp_path, model_class, **fields)
    at_whitespace = predict(folder, rows)
    ElmoTokenizer().save_pretrained(folder)
    assert predict(folder, rows, pretokenized=True) == at_whitespace
    assert predict(folder, rows) != at_whitespace


# -- coreference -------------------------------------------------------------------------------------------------------


def test_clusters_of_documents(tmp_path: Path) -> None:
    documents = ["Ann saw a dog .\n\nShe called it .", "Bo ran .", "a b a b\na b"]
    fields = {"coreference_max_width": 2, "coreference_hidden_size": 9, "coreference_feature_size": 4}
    folder = checkpoint(tmp_path / "model", ElmoForCoreferenceResolution, **fields)
    model = ElmoForCoreferenceResolution.from_pretrained(folder)
    torch.nn.init.constant_(model.mention_scorer.output.bias, 5.0)  # all spans are mentions, and so coreferent
    model.save_pretrained(folder)
    found = resolve(str(folder), documents)
    assert any(one.clusters for one in found)
    records = predict(folder, documents)
    assert records == [asdict(one) for one in found]
    source, output = tmp_path / "documents.jsonl", tmp_path / "clusters.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents), encoding="utf-8")
    assert main(["predict", str(source), str(output), "--model", str(folder)]) == 0
    lines = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert lines == json.loads(json.dumps(records))
    words = [[line.split() for line in text.split("\n")] for text in documents]
    assert predict(folder, source, pretokenized=True) == [asdict(one) for one in resolve(str(folder), words)]


# -- tokenizers, modes and weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [None, ["the", "a", ".", "b"]])
def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path, words: list[str] | None) -> None:
    folder = checkpoint(tmp_path, word_vectors_vocab_size=6, word_vectors_size=4)
    tokenizer = ElmoTokenizer(word_splitting="whitespace")
    tokenizer.words = words
    for wrong in (tokenizer, ElmoTokenizer(max_word_length=20)):
        with pytest.raises(ValueError, match="tokenizer"):
            predict(folder, TEXTS, tokenizer=wrong)
    tokenizer.words = ["the", "a", "."]
    assert len(predict(folder, TEXTS, tokenizer=tokenizer)) == len(TEXTS)


@pytest.mark.parametrize("crf", [None, False, True])
def test_scores_that_are_nan_are_refused(tmp_path: Path, crf: bool | None) -> None:
    head = ElmoForSequenceClassification if crf is None else ElmoForTokenClassification
    model = random_model(ElmoConfig(**TINY, **FIELDS, tagging_crf=bool(crf)), head)
    torch.nn.init.constant_(model.classifier.weight, torch.nan)
    for output in (None, tmp_path / "out.jsonl"):
        with pytest.raises(ValueError, match="NaN"):
            predict(model, TEXTS, output, tokenizer=ElmoTokenizer())
    assert not list(tmp_path.glob("out.jsonl"))


def test_standard_input(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO("\n".join(TEXTS).encode())))
    folder = checkpoint(tmp_path / "model")
    assert predict(folder, "-") == predict(folder, TEXTS)


@pytest.mark.parametrize("head", [ElmoForSequenceClassification, ElmoForTokenClassification])
def test_layer_normalization_does_not_span_texts(tmp_path: Path, head: type) -> None:
    """Within a call of the model it does, as in AllenNLP."""
    folder = checkpoint(tmp_path, head, scalar_mix_layer_norm=True)
    together = predict(folder, TEXTS, batch_tokens=4096, device="cpu")
    assert together == [predict(folder, [text], device="cpu")[0] for text in TEXTS]


def test_text_that_is_tokenized_already_is_split_at_whitespace(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, ElmoForTokenClassification)
    ElmoTokenizer().save_pretrained(folder)
    text = "don't panic!"
    assert [record["words"] for record in predict(folder, [text])] == [["don", "'t", "panic", "!"]]
    assert [record["words"] for record in predict(folder, [text], pretokenized=True)] == [["don't", "panic!"]]
