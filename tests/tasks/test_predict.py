"""A fine-tuned model over texts and files: records, formats, and that an interrupted run resumes to the same bytes."""

import functools
import json
from collections.abc import Callable
from dataclasses import asdict
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator

from hf_elmo import ElmoForPreTraining, ElmoTokenizer, answer, embed, path, predict, resolve
from hf_elmo.tasks.predict import TASKS, to_json
from hf_elmo.utils.evaluation import evaluation_mode
from hf_elmo_cli import main
from tests import heads
from tests.factories import SENTENCES, small_checkpoint, small_model, write_lines
from tests.heads import CLASSIFIER, READER, RESOLVER, TAGGER

NAMES = {0: "O", 1: "B-x", 2: "I-x"}
TEXTS = [*SENTENCES, "a", "one more , and the last"]
PAIRS = [(text, TEXTS[-number - 1]) for number, text in enumerate(TEXTS)]
QUESTIONS = [(f"Who sat in row {number} ?", text) for number, text in enumerate(TEXTS)]
QUESTIONS += [("Where did it end ?", " \n".join(f"line {number} of a passage" for number in range(30)))]
ROLES = [(text, len(text.split()) // 2) for text in TEXTS]
NOTHING = dict.fromkeys(NAMES.values())
NO_LABEL = {"label": None, "probability": None, "probabilities": NOTHING}
NO_LABELS = {"labels": [], "probabilities": NOTHING}
NO_TAGS = {"words": [], "tags": [], "probabilities": []}
NO_ANSWER = {"answer": "", "score": 1.0, "start": 0, "end": 0, "no_answer_probability": 1.0}
# The class and the fields of each kind of model, rows that it reads, and a row with a blank text and its record.
HEADS = {
    "classes": (CLASSIFIER, {}, TEXTS, "", NO_LABEL),
    "several": (CLASSIFIER, {"problem_type": "multi_label_classification"}, TEXTS, " ", NO_LABELS),
    "numbers": (CLASSIFIER, {"problem_type": "regression"}, TEXTS, [], {"values": [None] * 3}),
    "esim": (CLASSIFIER, heads.CLASSIFIERS["esim"], PAIRS, ("a", ""), NO_LABEL),
    "pairs": (CLASSIFIER, heads.PAIRS, PAIRS, ("", "a"), NO_LABEL),
    "tags": (TAGGER, {}, TEXTS, "", NO_TAGS),
    "tags of a CRF": (TAGGER, {"tagging_crf": True}, TEXTS, [], NO_TAGS),
    "roles": (TAGGER, {**heads.ROLES, "tagging_scheme": "IOB2"}, ROLES, ("", 0), NO_TAGS),
    "answers": (READER, {"encoder_hidden_size": 6, "allow_no_answer": True}, QUESTIONS, ("Who ?", " "), NO_ANSWER),
    "clusters": (RESOLVER, heads.MENTIONS, TEXTS, "", {"words": [], "clusters": [], "characters": []}),
}
approximately = functools.partial(pytest.approx, abs=1e-5)
MANY = [f"{'word ' * (number % 3)}{number}" for number in range(1100)]  # three windows
SPLIT = {"esim": ("don't go", "a-b , c"), "answers": ("don't go ?", "a.b  c,d"), "clusters": "a-b\nc."}
LINES = [
    (CLASSIFIER, {"label": "B-x", "probability": 0.5, "probabilities": {"O": 0.5, "B-x": 0.5}}, "B-x\t0.500000\n"),
    (CLASSIFIER, {"label": 0, "probability": 0.5, "probabilities": {0: 0.5, 1: 0.5}}, "0\t0.500000\n"),
    (CLASSIFIER, NO_LABEL, "\t\n"),
    (CLASSIFIER, {"labels": ["x"], "probabilities": {"O": 0.25, "x": None}}, "O\t0.250000\tx\t\n"),
    (CLASSIFIER, {"values": [1.5, None]}, "1.5\t\n"),
    (TAGGER, {"words": ["a\tb", "c\nd"], "tags": ["O", "B-x"]}, "a b\tO\nc d\tB-x\n\n"),
    (READER, {"answer": "on  two\nlines", "score": 0.25}, "on two lines\t0.250000\n"),
]


def checkpoint(folder: Path, head: str = "classes", **changes: object) -> Path:
    model_class, fields, *_ = HEADS[head]
    return small_checkpoint(folder, model_class, **{"id2label": NAMES, **fields, **changes})


def expected_record(head: str, model: torch.nn.Module, tokenizer: ElmoTokenizer, row: object) -> dict:
    """The record by the model itself."""
    text, *pair = row if isinstance(row, tuple) else (row,)
    if head in ("answers", "clusters"):
        record = answer(model, text, *pair) if pair else asdict(resolve(model, [text])[0])
        return {key: approximately(value) if isinstance(value, float) else value for key, value in record.items()}
    encoded = tokenizer(text, *(pair if head in ("esim", "pairs") else ()), return_tensors="pt")
    if head == "roles":
        encoded["token_type_ids"] = torch.zeros_like(encoded["attention_mask"])
        encoded["token_type_ids"][0, 1 + pair[0]] = 1
    output = model(**encoded)
    if type(model) is TAGGER:
        scores = output.logits[:, 1:-1]
        is_word = torch.ones(scores.shape[:2], dtype=torch.bool)
        scores = model.classifier.crf(scores, is_word, marginals=True) if model.classifier.crf else scores.softmax(2)
        tags = scores.argmax(2)[0] if output.tags is None else output.tags[0, 1:-1]
        values = scores[0].gather(1, tags[:, None])[:, 0].tolist()
        names = [NAMES[tag] for tag in tags.tolist()]
        return {"words": text.split(), "tags": names, "probabilities": approximately(values)}
    if head == "numbers":
        return {"values": approximately(output.logits[0].tolist())}
    scores = output.logits[0].sigmoid() if head == "several" else output.logits[0].softmax(0)
    probabilities = dict(zip(NAMES.values(), scores.tolist(), strict=True))
    labels = [name for name, score in probabilities.items() if score > 0.5]
    label = max(probabilities, key=probabilities.get)
    one = {"label": label, "probability": approximately(probabilities[label])}
    return ({"labels": labels} if head == "several" else one) | {"probabilities": approximately(probabilities)}


@torch.no_grad()
@pytest.mark.parametrize("head", HEADS)
def test_records_are_those_of_the_model_for_each_row(tmp_path, head: str) -> None:
    folder, (model_class, _, rows, blank, nothing) = checkpoint(tmp_path, head), HEADS[head]
    model, tokenizer = model_class.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder)
    expected = [expected_record(head, model, tokenizer, row) for row in rows]
    rows, expected = [rows[0], blank, *rows[1:]], [expected[0], nothing, *expected[1:]]
    for batch_tokens in (1, 30):
        assert predict(folder, iter(rows), batch_tokens=batch_tokens, device="cpu") == expected


@pytest.mark.parametrize("head", ["classes", "tags", "answers", "clusters"])
def test_a_wrapped_model_and_the_folder_of_an_adapter(tmp_path, head: str) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    model_class, _, rows, *_ = HEADS[head]
    model = model_class.from_pretrained(checkpoint(tmp_path / "model", head))

    def predicted(of: object) -> list:  # rounded
        return json.loads(json.dumps(predict(of, rows)), parse_float=lambda number: round(float(number), 4))

    expected = predicted(model)
    for wrap in (torch.compile, torch.nn.DataParallel, Accelerator(cpu=True).prepare):
        assert predicted(wrap(model)) == expected
        assert len(embed(wrap(model), TEXTS)) == len(TEXTS)
    kind = {"classes": "SEQ_CLS", "tags": "TOKEN_CLS", "answers": "QUESTION_ANS"}.get(head)
    config = peft.LoraConfig(task_type=kind, target_modules=["carry"], init_lora_weights=False)
    adapted = peft.get_peft_model(model, config)
    adapted.save_pretrained(tmp_path / "adapter")
    assert predicted(tmp_path / "adapter") == predicted(adapted) != expected


@pytest.mark.parametrize("head", ["tags", "esim", "clusters"])
def test_files(tmp_path, capsys, head: str) -> None:
    folder, source = checkpoint(tmp_path / "model", head), tmp_path / "in.jsonl"
    rows = [HEADS[head][3], *HEADS[head][2]]
    pairs = isinstance(rows[0], tuple)
    write_lines(source, (json.dumps({"one": row[0], "two": row[1]} if pairs else {"one": row}) for row in rows))
    columns = ["--text-column", "one", *(["--text-pair-column", "two"] if pairs else [])]
    expected = predict(folder, rows, device="cpu")
    task = TASKS[HEADS[head][0].__name__]
    for ending in task.endings:
        output = tmp_path / f"out{ending}"
        assert main(["predict", "--model", str(folder), str(source), str(output), "--device", "cpu", *columns]) == 0
        assert capsys.readouterr().out == f"{output}: {len(rows)} rows\n"
        assert not output.with_name(output.name + ".parts").exists()
        assert output.read_text(encoding="utf-8") == "".join(map(task.write if ending == ".tsv" else to_json, expected))


@pytest.mark.parametrize(("head", "record", "lines"), LINES)
def test_lines_of_tsv(head: type, record: dict, lines: str) -> None:
    assert TASKS[head.__name__].write(record) == lines


def test_a_row_that_the_model_does_not_read_is_named(tmp_path) -> None:
    wrong = {"answers": ("Who ?", ["He", "."]), "roles": ("He sat .", 3), "classes": None, "pairs": ("a", 3)}
    for head, row in wrong.items():
        with pytest.raises((ValueError, TypeError), match="row 1"):
            predict(checkpoint(tmp_path / head, head), [HEADS[head][2][0], row])


def test_standard_input_and_endings_that_do_not_fit(tmp_path, monkeypatch) -> None:
    one = checkpoint(tmp_path / "one")
    for model, name in ((one, "out.jsonl.gz"), (checkpoint(tmp_path / "two", "clusters"), "out.tsv")):
        with pytest.raises(ValueError, match="must end in"):
            predict(model, ["a"], tmp_path / name)
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO("\n".join(TEXTS).encode())))
    assert predict(one, "-") == predict(one, TEXTS)


def test_models_without_a_head_or_with_another_one(tmp_path) -> None:
    for model in (path(), small_model(ElmoForPreTraining, vocab_size=7)):
        with pytest.raises(ValueError, match=r"ElmoForPreTraining.*head"):
            predict(model, ["a"])
    for function in (resolve, functools.partial(answer, passage="a")):
        with pytest.raises(ValueError, match="ElmoForSequenceClassification, but must be ElmoFor"):
            function(checkpoint(tmp_path / "classes"), ["a"])


def interrupt(model: torch.nn.Module, call: Callable[[], object]) -> None:
    """Interrupts a call in its third batch."""
    batches = [None, None]
    handle = model.register_forward_pre_hook(lambda *_: batches.pop())
    with pytest.raises(IndexError, match="pop"):
        call()
    handle.remove()


def test_an_interrupted_run_resumes_with_the_same_settings_only(tmp_path) -> None:
    model = CLASSIFIER.from_pretrained(checkpoint(tmp_path / "model"))
    source, output = write_lines(tmp_path / "in.txt", MANY), tmp_path / "out.jsonl"
    run = functools.partial(predict, model, source, output)
    predict(model, source, tmp_path / "whole.jsonl")
    interrupt(model, run)
    with pytest.raises(ValueError, match="batch_tokens"):
        run(batch_tokens=9)
    assert not output.exists()
    assert run().rows == len(MANY)
    assert output.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    interrupt(model, functools.partial(run, overwrite=True))
    assert run(overwrite=True, restart=True, batch_tokens=9000).rows == len(MANY)


@pytest.mark.slow
def test_several_processes_write_the_same_bytes(tmp_path) -> None:
    folder, source = checkpoint(tmp_path / "model"), write_lines(tmp_path / "in.txt", MANY)
    for workers in (1, 2):
        command = ["predict", str(source), str(tmp_path / f"{workers}.tsv"), "--model", str(folder)]
        assert main([*command, "--workers", str(workers)]) == 0
    assert (tmp_path / "1.tsv").read_bytes() == (tmp_path / "2.tsv").read_bytes()


def test_speakers_and_genres_are_columns(tmp_path, monkeypatch) -> None:
    features = {"coreference_speakers": True, "coreference_num_genres": 3, "coreference_spans_per_word": 1.0}
    folder = checkpoint(tmp_path / "model", "clusters", **features)
    documents = ["Ann saw a dog .\nShe ran .\nIt came .", "He slept .\nHe ran ."]
    speakers, genres = [["Eve", None, "Eve"], ["Tom", "Eve"]], [2, 0]
    rows = [{"text": t, "who": s, "genre": g} for t, s, g in zip(documents, speakers, genres, strict=True)]
    rows[0]["who"] = "Eve\r\n\r\nEve"
    source = write_lines(tmp_path / "in.jsonl", map(json.dumps, rows))
    read, forward = [], RESOLVER.forward
    monkeypatch.setattr(RESOLVER, "forward", lambda self, **given: read.append(given) or forward(self, **given))
    output, columns = tmp_path / "out.jsonl", ["--speakers-column", "who", "--genre-column", "genre"]
    assert main(["predict", "--model", str(folder), str(source), str(output), "--device", "cpu", *columns]) == 0
    expected = resolve(folder, documents, speakers=speakers, genres=genres, device="cpu")
    records = json.loads(json.dumps(list(map(asdict, expected))))
    assert list(map(json.loads, output.read_text("utf-8").splitlines())) == records
    assert [one["speaker_ids"][0].unique_consecutive().tolist() for one in read[:2]] == [[1, 2], [1, 0, 1]]
    assert [one["genre_ids"].tolist() for one in read] == [[0], [2]] * 2
    for wrong in ({"genre": 3}, {"genre": -1}, {"who": ["Eve"]}, {"who": ["Eve"] * 4}):
        write_lines(source, map(json.dumps, [rows[1], rows[0] | wrong]))
        with pytest.raises(ValueError, match="row 1 "):
            main(["--traceback", "predict", "--model", str(folder), str(source), f"{tmp_path}/o.jsonl", *columns])
    with pytest.raises(ValueError, match="genre is 3"):
        resolve(folder, documents, speakers=speakers, genres=[0, 3])
    ended = [resolve(folder, [f"{documents[1]}{end}"], speakers=[["Tom", "Eve"]], genres=[0]) for end in ("", "\n")]
    assert ended[0][0].clusters == ended[1][0].clusters


@pytest.mark.parametrize("head", SPLIT)
def test_tokenized_text_is_split_at_whitespace(tmp_path, head: str) -> None:
    folder, row = checkpoint(tmp_path, head), SPLIT[head]
    at_whitespace = predict(folder, [row])
    if head == "clusters":
        at_whitespace = [asdict(resolve(folder, [[line.split() for line in row.split("\n")]])[0])]
    ElmoTokenizer().save_pretrained(folder)
    assert predict(folder, [row], pretokenized=True) == at_whitespace
    assert predict(folder, [row]) != at_whitespace


def test_a_tokenizer_of_another_model_is_refused(tmp_path) -> None:
    folder = checkpoint(tmp_path, "tags", word_vectors_vocab_size=6, word_vectors_size=4)
    tokenizer = ElmoTokenizer("whitespace")
    for tokenizer.words in (None, ["the", "a", ".", "b"]):
        with pytest.raises(ValueError, match="tokenizer"):
            predict(folder, TEXTS, tokenizer=tokenizer)
    tokenizer.words = ["the", "a", "."]
    assert [record["words"] for record in predict(folder, TEXTS, tokenizer=tokenizer)] == [t.split() for t in TEXTS]


@pytest.mark.parametrize("head", ["classes", "tags of a CRF", "answers", "clusters"])
def test_scores_that_are_nan_are_refused(tmp_path, head: str) -> None:
    model_class, fields, rows, *_ = HEADS[head]
    model = small_model(model_class, **fields)
    for parameter in model.head.parameters():
        torch.nn.init.constant_(parameter, torch.nan)
    with pytest.raises(ValueError, match="NaN"):
        predict(model, rows, tmp_path / "out.jsonl", tokenizer=ElmoTokenizer())
    assert not (tmp_path / "out.jsonl").exists()


def test_a_model_is_evaluated_until_the_last_thread_has_ended() -> None:
    model = heads.make("last").train()
    first, second = evaluation_mode(model), evaluation_mode(model)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not any(module.training for module in model.modules())
    second.__exit__(None, None, None)
    assert model.training
    assert model.classifier.dropout.training
