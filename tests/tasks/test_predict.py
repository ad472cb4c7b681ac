"""A fine-tuned model over a file: records, formats, order, and that a stopped run resumes to the same bytes."""

import csv
import functools
import json
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
    ElmoModel,
    ElmoTokenizer,
    answer,
    predict,
    resolve,
)
from hf_elmo.embedding.parts import PartsFolder
from hf_elmo_cli import main
from tests.conftest import SENTENCES, TINY, random_model
from tests.harness.kills import KILLS, Command, run_with_kills

NAMES = {0: "O", 1: "B-x", 2: "I-x"}
FIELDS = {"id2label": NAMES, "label2id": {name: i for i, name in NAMES.items()}}
TEXTS = [*SENTENCES, "", "a", "one more , and the last"]


def checkpoint(folder: Path, model_class: type = ElmoForSequenceClassification, **changes: object) -> Path:
    random_model(ElmoConfig(**{**TINY, **FIELDS, **changes}), model_class).save_pretrained(folder)
    ElmoTokenizer(word_splitting="whitespace").save_pretrained(folder)
    return folder


@pytest.mark.parametrize("batch_tokens", [1, 30, 4096])
def test_records_of_a_classifier(tmp_path: Path, batch_tokens: int) -> None:
    folder = checkpoint(tmp_path)
    model, tokenizer = ElmoForSequenceClassification.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder)
    records = predict(folder, TEXTS, batch_tokens=batch_tokens, device="cpu")
    assert len(records) == len(TEXTS)
    for text, record in zip(TEXTS, records, strict=True):
        expected = model(**tokenizer(text, return_tensors="pt")).logits[0].detach().softmax(0)
        assert list(record["probabilities"]) == list(NAMES.values())
        assert list(record["probabilities"].values()) == pytest.approx(expected.tolist(), abs=1e-5)
        assert record["label"] == NAMES[int(expected.argmax())]
        assert record["probability"] == pytest.approx(float(expected.max()), abs=1e-5)


def test_records_of_several_labels_and_of_a_regression(tmp_path: Path) -> None:
    for problem in ("multi_label_classification", "regression"):
        folder = checkpoint(tmp_path / problem, problem_type=problem)
        model, tokenizer = ElmoForSequenceClassification.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder)
        for text, record in zip(TEXTS, predict(folder, TEXTS), strict=True):
            logits = model(**tokenizer(text, return_tensors="pt")).logits[0].detach()
            if problem == "regression":
                assert record == {"values": pytest.approx(logits.tolist(), abs=1e-5)}
            else:
                assert record["labels"] == [NAMES[i] for i in range(3) if logits[i] > 0]
                found = list(record["probabilities"].values())
                assert found == pytest.approx(logits.sigmoid().tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("model_class", "fields", "inputs", "says"),
    [
        (ElmoForSequenceClassification, {}, TEXTS, "row 0 .*: probability would be nan"),
        (
            ElmoForSequenceClassification,
            {"problem_type": "multi_label_classification"},
            TEXTS,
            "row 0 .*: probabilities would be nan",
        ),
        (ElmoForSequenceClassification, {"problem_type": "regression"}, TEXTS, "row 0 .*: values would be nan"),
        (ElmoForTokenClassification, {}, ["", "a"], "row 1 .*: probabilities would be nan"),
        (ElmoForTokenClassification, {"tagging_crf": True}, ["", "a"], "row 1 .*: probabilities would be nan"),
        (ElmoForQuestionAnswering, {}, [("what ?", "a dog")], "row 0 .*: score would be nan"),
        (ElmoForCoreferenceResolution, {}, ["", "Ann saw a dog"], "row 1 .*: the scores of its mentions would be nan"),
    ],
)
def test_results_that_are_no_numbers_are_refused(
    tmp_path: Path, model_class: type, fields: dict, inputs: list, says: str
) -> None:
    config = ElmoConfig(**{**TINY, **FIELDS, **fields})
    model = random_model(config, model_class)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if not name.startswith("elmo."):
                weight.fill_(torch.nan)
    tokenizer = ElmoTokenizer(word_splitting="whitespace")
    output = tmp_path / "out.jsonl"
    for where in (None, output):
        with pytest.raises(ValueError, match=f"{says}.*load it in float32 or bfloat16"):
            predict(model, inputs, where, tokenizer=tokenizer)
    assert not output.exists()


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
        logits = output.logits[0, 1:-1]
        tags = output.tags[0, 1:-1] if crf else logits.argmax(1)
        assert record["words"] == text.split()
        assert record["tags"] == [NAMES[tag] for tag in tags.tolist()]
        assert len(record["probabilities"]) == len(tags)
        if not crf:
            expected = logits.softmax(1).amax(1).tolist() if len(tags) else []
            assert record["probabilities"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("ending", ["jsonl", "tsv"])
@pytest.mark.parametrize("head", [ElmoForSequenceClassification, ElmoForTokenClassification])
def test_files(tmp_path: Path, capsys, head: type, ending: str) -> None:
    folder, source, output = checkpoint(tmp_path / "model", head), tmp_path / "in.txt", tmp_path / f"out.{ending}"
    source.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    assert main(["predict", str(folder), str(source), str(output)]) == 0
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
    assert main(["predict", str(folder), str(source), str(output)]) == 1
    assert "exists; choose another name" in capsys.readouterr().err
    assert main(["predict", str(folder), str(source), str(output), "--overwrite"]) == 0


def test_a_stopped_run_resumes_to_the_same_bytes(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "WINDOW_ROWS", 2)
    folder, source = checkpoint(tmp_path / "model"), tmp_path / "in.txt"
    source.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    predict(folder, source, tmp_path / "whole.jsonl")
    calls, records = [], module._Job._records

    def stopped(job: object, words: list) -> list:
        calls.append(words)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return records(job, words)

    monkeypatch.setattr(module._Job, "_records", stopped)
    for attempt in range(2):
        calls.clear()
        if attempt == 0:
            with pytest.raises(KeyboardInterrupt):
                predict(folder, source, tmp_path / "out.jsonl", batch_tokens=4096)
            assert len(list((tmp_path / "out.jsonl.parts").glob("*.rows"))) == 3
            with pytest.raises(ValueError, match="batch_tokens was 4096, now 9"):
                predict(folder, source, tmp_path / "out.jsonl", batch_tokens=9)
        else:
            predict(folder, source, tmp_path / "out.jsonl")
            assert len(calls) == 1  # the last window alone
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


@pytest.mark.parametrize("number", [1, 3])
def test_lines_of_several_labels_hold_each_probability(tmp_path: Path, number: int) -> None:
    """Of a single sigmoid, too, as for messages that are spam or not."""
    labels = {i: f"of {i}" for i in range(number)}
    fields = {"id2label": labels, "label2id": {name: i for i, name in labels.items()}}
    folder = checkpoint(tmp_path / "model", problem_type="multi_label_classification", **fields)
    model = ElmoForSequenceClassification.from_pretrained(folder)
    torch.nn.init.constant_(model.classifier.bias, -2.0)
    model.save_pretrained(folder)
    records = predict(folder, TEXTS)
    assert not all(record["labels"] for record in records)  # a text without a label has a line with all of them, too
    predict(folder, TEXTS, tmp_path / "out.tsv")
    lines = [line.split("\t") for line in (tmp_path / "out.tsv").read_text(encoding="utf-8").splitlines()]
    assert [line[::2] for line in lines] == [list(labels.values())] * len(TEXTS)
    found = [[float(value) for value in line[1::2]] for line in lines]
    assert found == [pytest.approx(list(record["probabilities"].values()), abs=1e-6) for record in records]


def test_a_run_with_other_rows_is_not_resumed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "WINDOW_ROWS", 2)
    folder, source, output = checkpoint(tmp_path / "model"), tmp_path / "in.txt", tmp_path / "out.jsonl"
    run = functools.partial(predict, folder, source, output, device="cpu")
    source.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    with monkeypatch.context() as patched:
        patched.setattr(PartsFolder, "put_in_place", stopped)
        with pytest.raises(KeyboardInterrupt):
            run()
    source.write_text("".join(f"{text}\n" for text in [*TEXTS[:-1], "another"]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"differs: rows_sha256 was .*restart=True"):
        run()
    assert not output.exists()
    run(restart=True)
    expected = predict(folder, [*TEXTS[:-1], "another"], device="cpu")
    assert [json.loads(line)["label"] for line in output.open(encoding="utf-8")] == [row["label"] for row in expected]


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_damaged_parts_are_refused(tmp_path: Path, monkeypatch, damage: str) -> None:
    monkeypatch.setattr(module, "WINDOW_ROWS", 2)
    folder, output = checkpoint(tmp_path / "model"), tmp_path / "out.jsonl"
    run = functools.partial(predict, folder, TEXTS, output, device="cpu")
    with monkeypatch.context() as patched:
        patched.setattr(PartsFolder, "put_in_place", stopped)
        with pytest.raises(KeyboardInterrupt):
            run()
    file = tmp_path / "out.jsonl.parts/000001.rows"
    content = file.read_bytes()
    file.write_bytes(content[:-9] if damage == "cut" else content.replace(b"probability", b"probabilitx", 1))
    with pytest.raises(ValueError, match=r"000001\.rows is damaged .*restart=True"):
        run()
    assert not output.exists()
    run(restart=True)
    assert len(output.read_text(encoding="utf-8").splitlines()) == len(TEXTS)


def stopped(*arguments: object, **options: object) -> None:
    raise KeyboardInterrupt


def small_windows() -> None:
    module.WINDOW_ROWS = 4


def test_killed_runs_resume_to_the_same_bytes(tmp_path: Path) -> None:
    folder, source = checkpoint(tmp_path / "model"), tmp_path / "in.txt"
    source.write_text("".join(f"{text} {number}\n" for number in range(6) for text in TEXTS), encoding="utf-8")
    arguments = ["predict", "--device", "cpu", str(folder), str(source), "OUT/labels.jsonl"]
    counts = run_with_kills(Command(arguments, "labels.jsonl", small_windows, leaves=".parts"), tmp_path, KILLS)
    assert counts["kills"], "nothing was killed: the test would prove too little"


def test_a_run_killed_after_its_result_is_ended_by_the_next(tmp_path: Path, monkeypatch) -> None:
    folder, output = checkpoint(tmp_path / "model"), tmp_path / "out.jsonl"
    written = predict(folder, TEXTS, tmp_path / "whole.jsonl")

    def interrupted(parts: PartsFolder) -> None:
        if parts.output.exists():
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(PartsFolder, "_clear_parts", interrupted)
        with pytest.raises(KeyboardInterrupt):
            predict(folder, TEXTS, output)
    assert output.with_name("out.jsonl.parts").is_dir()
    monkeypatch.setattr(module._Job, "_records", None)  # nothing is predicted again
    assert predict(folder, TEXTS, output) == module.Predicted(output, written.rows)
    assert not output.with_name("out.jsonl.parts").exists()
    assert output.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    with pytest.raises(FileExistsError, match="overwrite=True"):
        predict(folder, TEXTS, output)


def test_an_output_that_is_the_input_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('"a text"\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"in.jsonl' is the input, which would be lost"):
        predict(checkpoint(tmp_path / "model"), source, source, overwrite=True)
    assert source.read_text(encoding="utf-8") == '"a text"\n'


def test_an_output_of_an_unknown_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown ending; take .jsonl or .tsv"):
        predict(checkpoint(tmp_path / "model"), TEXTS, tmp_path / "out.txt")


# -- two columns -------------------------------------------------------------------------------------------------------

PAIRS = [(text, TEXTS[-number - 1]) for number, text in enumerate(TEXTS)]
QUESTIONS = [(f"Who sat in row {number} ?", text) for number, text in enumerate(TEXTS) if text] + [
    ("Where did it end ?", " \n".join(f"line {number} of a passage" for number in range(90)))
]
ROLES = [(text, len(text.split()) // 2) for text in TEXTS if text]
SMALL = {"encoder_hidden_size": 6}
HEADS = {
    "esim": (ElmoForSequenceClassification, {**SMALL, "classifier_text_pairs": True, "encoder_type": "esim"}, PAIRS),
    "pooled": (ElmoForSequenceClassification, {"classifier_text_pairs": True}, PAIRS),
    "answers": (ElmoForQuestionAnswering, {**SMALL, "allow_no_answer": True}, QUESTIONS),
    "roles": (
        ElmoForTokenClassification,
        {**SMALL, "encoder_type": "alternating", "tagging_indicator_size": 2, "tagging_scheme": "IOB2"},
        ROLES,
    ),
}


def pairs_checkpoint(folder: Path, head: str) -> Path:
    model_class, fields, _ = HEADS[head]
    return checkpoint(folder, model_class, **fields)


def expected_of(folder: Path, head: str) -> list[dict]:
    """What the model itself says, row by row."""
    model_class, _, rows = HEADS[head]
    if head == "answers":
        return [answer(folder, *row) for row in rows]
    model, tokenizer, records = model_class.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder), []
    for text, pair in rows:
        if head != "roles":
            found = model(**tokenizer(text, pair, return_tensors="pt")).logits[0].detach().softmax(0)
            named = dict(zip(NAMES.values(), map(approximately, found.tolist()), strict=True))
            label = NAMES[int(found.argmax())]
            records.append({"label": label, "probability": named[label], "probabilities": named})
            continue
        encoded = tokenizer(text, return_tensors="pt")
        marks = torch.zeros_like(encoded["attention_mask"])
        marks[0, 1 + pair] = 1
        output = model.requires_grad_(False)(**encoded, token_type_ids=marks)
        tags, found = output.tags[0, 1:-1], output.logits[0, 1:-1].softmax(1)
        scores = [approximately(float(row[tag])) for row, tag in zip(found, tags, strict=True)]
        names = [NAMES[tag] for tag in tags.tolist()]
        records.append({"words": text.split(), "tags": names, "probabilities": scores})
    return records


def approximately(value: float) -> object:
    return pytest.approx(value, abs=1e-5)


def write_pairs(path: Path, rows: list[tuple]) -> Path:
    if path.suffix == ".csv":
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("one", "two"), *rows])
    else:
        lines = [json.dumps({"two": pair, "one": text}) + "\n" for text, pair in rows]
        path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("head", HEADS)
def test_records_of_two_columns(tmp_path: Path, head: str) -> None:
    folder, rows = pairs_checkpoint(tmp_path / "model", head), HEADS[head][2]
    expected = expected_of(folder, head)
    for given in (rows, iter(rows), rows[::-1]):
        for found, wanted in zip(
            predict(folder, given, device="cpu"), expected[::-1] if given == rows[::-1] else expected, strict=True
        ):
            assert found.keys() == wanted.keys()
            for key, value in wanted.items():
                assert found[key] == (approximately(value) if isinstance(value, float) else value)


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize("head", HEADS)
def test_files_of_two_columns(tmp_path: Path, head: str, ending: str, monkeypatch) -> None:
    monkeypatch.setattr(module, "WINDOW_ROWS", 3)
    monkeypatch.setattr(module, "WINDOW_QUESTIONS", 2)
    folder, rows = pairs_checkpoint(tmp_path / "model", head), HEADS[head][2]
    source, records = write_pairs(tmp_path / f"in.{ending}", rows), predict(folder, rows, device="cpu")
    columns = ["--text-column", "one", "--text-pair-column", "two", "--device", "cpu"]
    for output in (tmp_path / "out.jsonl", tmp_path / "out.tsv"):
        assert main(["predict", str(folder), str(source), str(output), *columns]) == 0
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert found == records
    assert predict(folder, source, text_column="one", text_pair_column="two", device="cpu") == records
    predict(folder, iter(rows), tmp_path / "spooled.jsonl", device="cpu")
    assert (tmp_path / "spooled.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()
    lines = (tmp_path / "out.tsv").read_text(encoding="utf-8").split("\n")
    if head == "roles":
        assert len(lines) == sum(len(record["words"]) + 1 for record in records) + 1
    elif head == "answers":
        wanted = [f"{' '.join(record['answer'].split())}\t{record['score']:.6f}" for record in records]
        assert lines == [*wanted, ""]
    else:
        assert lines == [*(f"{record['label']}\t{record['probability']:.6f}" for record in records), ""]


@pytest.mark.parametrize("head", HEADS)
def test_a_stopped_run_of_two_columns_resumes_unless_the_second_changed(tmp_path: Path, head: str, monkeypatch) -> None:
    monkeypatch.setattr(module, "WINDOW_ROWS", 2)
    folder, rows = pairs_checkpoint(tmp_path / "model", head), HEADS[head][2]
    source, output = write_pairs(tmp_path / "in.csv", rows), tmp_path / "out.jsonl"
    run = functools.partial(predict, folder, source, text_column="one", text_pair_column="two", device="cpu")
    run(tmp_path / "whole.jsonl")
    calls, windows = [], module._line

    def stopped(number: int, *arguments: object) -> str:
        calls.append(number)
        if number == 3 and calls[0] == 0:
            raise KeyboardInterrupt
        return windows(number, *arguments)

    monkeypatch.setattr(module, "_line", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(output)
    write_pairs(source, [*rows[:-1], (rows[-1][0], 0 if head == "roles" else "another text")])
    with pytest.raises(ValueError, match=r"differs: rows_sha256.*restart=True"):
        run(output)
    write_pairs(source, rows)
    calls.clear()
    run(output)
    assert calls == list(range(2, len(rows)))  # the first window is not predicted again
    assert output.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("head", "row", "said"),
    [
        ("esim", ("a", 5), r"row 3 \(counted from 0\): its second text is the number 5"),
        ("answers", ("Who ?", 5), r"row 3 \(counted from 0\): a question and a passage must be strings.* and 5"),
        ("answers", ("Who ?", ["a", "b"]), r"row 3 \(counted from 0\): a question and a passage must be strings"),
        ("answers", ("Who ?", " "), r"question 3 \('Who \?'\): the passage has no words.*counted from 0"),
        ("answers", ("", "a b"), r"question 3 \(''\): the question has no words"),
        ("answers", ("a " * 400, "b " * 400), r"question 3 .*has 400 words, which leave 0"),
        ("roles", ("a b", 2), r"row 3 \(counted from 0\): its predicate is 2, .*one of its 2 words"),
        ("roles", ("a b", -1), r"row 3 .*its predicate is -1"),
        ("roles", ("", 0), r"row 3 .*one of its 0 words"),
        ("roles", ("a b", None), r"row 3 .*its predicate is '', "),
        ("roles", ("a b", "b"), r"row 3 .*its predicate is 'b', "),
    ],
)
def test_a_malformed_pair_is_named_before_anything_is_computed(
    tmp_path: Path, head: str, row: tuple, said: str, monkeypatch
) -> None:
    monkeypatch.setattr(module, "WINDOW_ROWS", 2)
    folder, rows = pairs_checkpoint(tmp_path / "model", head), HEADS[head][2]
    rows = [*rows[:3], row, *rows[3:]]
    with pytest.raises(ValueError, match=said):
        predict(folder, rows)
    monkeypatch.setattr(module, "_line", None)
    source = write_pairs(tmp_path / "in.jsonl", rows)
    with pytest.raises(ValueError, match=said):
        predict(folder, source, tmp_path / "out.jsonl", text_column="one", text_pair_column="two")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "model"]


def test_columns_that_do_not_fit_the_model_are_refused(tmp_path: Path) -> None:
    source = write_pairs(tmp_path / "in.csv", [("a", "b")])
    for head, said in (
        ("pooled", r"reads pairs of texts \(classifier_text_pairs\).*column of the second texts with text_pair_column"),
        ("answers", r"answers questions.*column of the passages with text_pair_column \(--text-pair-column\)"),
        (
            "roles",
            r"about a word \(tagging_indicator_size\).*numbers \(from 0\) of the predicates' words with text_pair",
        ),
    ):
        folder = pairs_checkpoint(tmp_path / head, head)
        with pytest.raises(ValueError, match=said):
            predict(folder, source, text_column="one")
        with pytest.raises(TypeError, match=r"inputs, row 0: expected a tuple \(text, pair\), got str 'a b'"):
            predict(folder, ["a b"])
        with pytest.raises(ValueError, match=r"'two' belongs to an input file.*give tuples"):
            predict(folder, [("a", "b")], text_pair_column="two")
    with pytest.raises(ValueError, match=r"'two' names a second text .*reads one text a row: leave it out"):
        predict(checkpoint(tmp_path / "one"), source, text_column="one", text_pair_column="two")


def test_two_columns_of_text_that_is_tokenized_already(tmp_path: Path) -> None:
    for head, rows in (("esim", [("don't go", "a-b , c")]), ("answers", [("don't go ?", "a.b  c,d")])):
        folder = pairs_checkpoint(tmp_path / head, head)
        apart = predict(folder, rows)  # at whitespace, too
        ElmoTokenizer().save_pretrained(folder)
        assert predict(folder, rows, pretokenized=True) == apart
        assert predict(folder, rows) != apart


# -- coreference -------------------------------------------------------------------------------------------------------

DOCUMENTS = ["Ann saw a dog .\n\nShe called it .", "Bo ran .", "a b a b\na b"]


def test_clusters_of_documents(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    fields = {"coreference_max_width": 2, "coreference_hidden_size": 9, "coreference_feature_size": 4}
    folder = checkpoint(tmp_path / "model", ElmoForCoreferenceResolution, **fields)
    model = ElmoForCoreferenceResolution.from_pretrained(folder)
    torch.nn.init.constant_(model.mention_scorer.output.bias, 5.0)  # mentions, and so coreferent, all of them
    model.save_pretrained(folder)
    found = resolve(str(folder), DOCUMENTS)
    assert any(one.clusters for one in found)
    records = predict(folder, DOCUMENTS)
    assert records == [asdict(one) for one in found]
    source, output = tmp_path / "documents.jsonl", tmp_path / "clusters.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS), encoding="utf-8")
    assert main(["predict", str(folder), str(source), str(output)]) == 0
    assert [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()] == json.loads(
        json.dumps(records)
    )
    words = [[line.split() for line in text.split("\n")] for text in DOCUMENTS]
    pretokenized = [asdict(one) for one in resolve(str(folder), words)]
    assert predict(folder, source, pretokenized=True) == pretokenized
    capsys.readouterr()
    assert main(["predict", str(folder), str(source), str(tmp_path / "clusters.tsv")]) == 1
    assert "clusters are lists: take .jsonl" in capsys.readouterr().err


def test_documents_that_cannot_be_resolved_are_named(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", ElmoForCoreferenceResolution, coreference_hidden_size=9)
    tokenizer = ElmoTokenizer("whitespace", split_special_tokens=False)
    with pytest.raises(ValueError, match=r"row 2 \(counted from 0\): a word of sentence 1 is read as a boundary"):
        predict(folder, ["a b", "c", "d\ne </S> f"], tokenizer=tokenizer)


@pytest.mark.parametrize("changes", [{"coreference_speakers": True}, {"coreference_num_genres": 2}])
def test_a_resolver_that_reads_more_than_texts_is_refused(tmp_path: Path, changes: dict) -> None:
    folder = checkpoint(tmp_path / "model", ElmoForCoreferenceResolution, coreference_hidden_size=9, **changes)
    with pytest.raises(ValueError, match=rf"reads more than a text \({next(iter(changes))}\).*hf_elmo.resolve"):
        predict(folder, DOCUMENTS)


def test_options_and_tokenizers_that_do_not_fit(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    with pytest.raises(ValueError, match="belong to an input file"):
        predict(folder, TEXTS, text_column="text")
    with pytest.raises(ValueError, match="spells words with 20 characters"):
        predict(folder, TEXTS, tokenizer=ElmoTokenizer(max_word_length=20))
    model = random_model(ElmoConfig(**{**TINY, "max_word_length": 30}), ElmoForSequenceClassification)
    assert len(predict(model, TEXTS)) == len(TEXTS)  # the default tokenizer has the model's length of words


@pytest.mark.parametrize("words", [None, ["the"], ["the", "a", ".", "b"]])
def test_a_tokenizer_of_another_number_of_words_is_refused(tmp_path: Path, words: list[str] | None) -> None:
    folder = checkpoint(tmp_path / "model", word_vectors_vocab_size=6, word_vectors_size=4)
    tokenizer = ElmoTokenizer(word_splitting="whitespace")
    tokenizer.words = words
    said = rf"tokenizer has {len(words or ())} words, .*vectors of 3 \(word_vectors_vocab_size - 3\)"
    with pytest.raises(ValueError, match=said):
        predict(folder, TEXTS, tokenizer=tokenizer)
    tokenizer.save_pretrained(folder)
    with pytest.raises(ValueError, match=said):
        predict(folder, TEXTS)
    tokenizer.words = ["the", "a", "."]
    assert len(predict(folder, TEXTS, tokenizer=tokenizer)) == len(TEXTS)


def test_standard_input_into_memory(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO("\n".join(TEXTS).encode())))
    folder = checkpoint(tmp_path / "model")
    assert predict(folder, "-") == predict(folder, TEXTS)


def test_words_that_no_line_of_tags_can_hold(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", ElmoForTokenClassification)
    with pytest.raises(ValueError, match=r"row 1 \(counted from 0\), 'a </S> b', has 3 words, but 2 tags"):
        predict(folder, ["a b c", ["a", "</S>", "b"]], tokenizer=ElmoTokenizer(split_special_tokens=False))
    rows = tmp_path / "in.jsonl"
    rows.write_text(json.dumps({"text": ["a\tb"]}) + "\n", encoding="utf-8")
    labels = {0: "O", 1: "a\tb", 2: "c"}
    tabs = checkpoint(tmp_path / "tabs", id2label=labels, label2id={name: i for i, name in labels.items()})
    with pytest.raises(ValueError, match=r"the label 'a\\tb' holds what separates columns.*take .jsonl"):
        predict(tabs, TEXTS, tmp_path / "out.tsv")
    assert predict(folder, rows)[0]["words"] == ["a\tb"]
    with pytest.raises(ValueError, match=r"row 0 .*'a\\tb' holds whitespace.*use .jsonl"):
        predict(folder, rows, tmp_path / "out.tsv")


def test_a_model_without_a_head_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is of ElmoModel, but a fine-tuned head is needed"):
        predict(checkpoint(tmp_path, ElmoModel), TEXTS)
    with pytest.raises(ValueError, match="is of ElmoModel, but"):
        predict(random_model(ElmoConfig(**TINY)), TEXTS)


@pytest.mark.parametrize("head", [ElmoForSequenceClassification, ElmoForTokenClassification])
def test_a_mix_with_layer_normalization_reads_each_text_alone(tmp_path: Path, head: type) -> None:
    """AllenNLP normalizes over all words of a call."""
    folder = checkpoint(tmp_path, head, scalar_mix_layer_norm=True)
    together = predict(folder, TEXTS, batch_tokens=4096, device="cpu")
    assert together == [predict(folder, [text], device="cpu")[0] for text in TEXTS]


def test_a_pair_of_texts_is_no_list_of_words(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    with pytest.raises(
        TypeError, match=r"row 1: expected one text, got a pair of them, \('Rain fell \.', 'So\?'\); give"
    ):
        predict(folder, ["Rain .", ("Rain fell .", "So?")], device="cpu")
    assert predict(folder, [("Rain", "fell")], device="cpu") == predict(folder, [["Rain", "fell"]], device="cpu")


def test_the_model_has_its_mode_back() -> None:
    model = random_model(ElmoConfig(**TINY), ElmoForSequenceClassification).train()
    assert len(predict(model, iter(TEXTS), tokenizer=ElmoTokenizer())) == 7
    assert model.training
    assert torch.is_grad_enabled()


def test_text_that_is_tokenized_already_is_split_at_whitespace(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, ElmoForTokenClassification)
    ElmoTokenizer().save_pretrained(folder)
    text = "don't panic!"
    assert [record["words"] for record in predict(folder, [text])] == [["don", "'t", "panic", "!"]]
    assert [record["words"] for record in predict(folder, [text], pretokenized=True)] == [["don't", "panic!"]]
