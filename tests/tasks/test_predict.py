"""A fine-tuned model over a file: records, formats, order, and that a stopped run resumes to the same bytes."""

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
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
    predict,
    resolve,
)
from hf_elmo.embedding.parts import PartsFolder
from hf_elmo_cli import main
from tests.conftest import SENTENCES, TINY, random_model

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


@pytest.mark.parametrize(
    ("changes", "output", "said"),
    [
        ({"classifier_text_pairs": True}, "out.jsonl", "reads pairs of texts"),
        ({}, "out.txt", "unknown ending; take .jsonl or .tsv"),
    ],
)
def test_what_cannot_be_predicted(tmp_path: Path, changes: dict, output: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        predict(checkpoint(tmp_path / "model", **changes), TEXTS, tmp_path / output)


def test_labels_about_a_word_are_refused(tmp_path: Path) -> None:
    roles = {"encoder_type": "alternating", "tagging_indicator_size": 2}
    folder = checkpoint(tmp_path / "roles", ElmoForTokenClassification, **roles)
    with pytest.raises(ValueError, match=r"about a word .*but a row does not name one"):
        predict(folder, TEXTS)


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


def test_options_and_tokenizers_that_do_not_fit(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    with pytest.raises(ValueError, match="belong to an input file"):
        predict(folder, TEXTS, text_column="text")
    with pytest.raises(ValueError, match="spells words with 20 characters"):
        predict(folder, TEXTS, tokenizer=ElmoTokenizer(max_word_length=20))
    model = random_model(ElmoConfig(**{**TINY, "max_word_length": 30}), ElmoForSequenceClassification)
    assert len(predict(model, TEXTS)) == len(TEXTS)  # the default tokenizer has the model's length of words


def test_standard_input_into_memory(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO("\n".join(TEXTS).encode())))
    folder = checkpoint(tmp_path / "model")
    assert predict(folder, "-") == predict(folder, TEXTS)


def test_words_that_no_line_of_tags_can_hold(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", ElmoForTokenClassification)
    with pytest.raises(ValueError, match=r"'a </S> b' has 3 words, but 2 tags"):
        predict(folder, [["a", "</S>", "b"]], tokenizer=ElmoTokenizer(split_special_tokens=False))
    rows = tmp_path / "in.jsonl"
    rows.write_text(json.dumps({"text": ["a\tb"]}) + "\n", encoding="utf-8")
    assert predict(folder, rows)[0]["words"] == ["a\tb"]
    with pytest.raises(ValueError, match=r"'a\\tb' holds whitespace.*use .jsonl"):
        predict(folder, rows, tmp_path / "out.tsv")


def test_a_model_without_a_head_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is of ElmoModel, but a fine-tuned head is needed"):
        predict(checkpoint(tmp_path, ElmoModel), TEXTS)
    with pytest.raises(ValueError, match="is of ElmoModel, but"):
        predict(random_model(ElmoConfig(**TINY)), TEXTS)


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
