"""Taggers on Trainer: batches, metrics over spans and over semantic roles, the pipeline."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import DataCollatorForTokenClassification, EvalPrediction, Trainer, pipeline

from hf_elmo import (
    ElmoConfig,
    ElmoForTokenClassification,
    ElmoTokenClassificationPipeline,
    ElmoTokenizer,
    TaggingCollator,
    arguments_of,
    predict,
    read_conll,
    role_metrics,
    span_metrics,
)
from tests.conftest import TINY, random_model

NAMES = ["O", "B-x", "I-x", "B-y", "I-y"]
IDS = dict(enumerate(NAMES))
FIELDS = {"id2label": IDS, "label2id": {name: i for i, name in IDS.items()}}
CRF = {"tagging_crf": True, "tagging_scheme": "IOB2"}
TEXT = "Anna-Lena (of Rome) met  Bob."


def make(**changes: object) -> ElmoForTokenClassification:
    return random_model(ElmoConfig(**{**TINY, **FIELDS, **changes}), ElmoForTokenClassification)


def sentences(number: int) -> list[tuple[list[str], list[int]]]:
    """Names that a reader of characters can tell: of people in capitals, of places with digits, in one or two words."""
    rng, rows = np.random.default_rng(3), []
    for _ in range(number):
        words, labels, kind = [], [], 0
        for step in rng.integers(1, 3, size=rng.integers(2, 6)):
            kind = (kind + step) % 3  # two spans of one kind never touch: nothing would tell them from one
            for part in range(rng.integers(1, 3)):
                stem = "".join(rng.choice(list("abcdef"), size=4))
                words.append([stem, stem.upper(), stem + "99"][kind])
                labels.append(0 if kind == 0 else kind * 2 - (part == 0))
        rows.append((words, labels))
    return rows


def rows_of(tokenizer: ElmoTokenizer, number: int) -> list[dict]:
    rows = []
    for words, labels in sentences(number):
        encoded = tokenizer(words, is_split_into_words=True)
        rows.append({**encoded, "labels": tokenizer.align_labels(encoded, labels)})
    return rows


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_collator_is_that_of_transformers(tokenizer: ElmoTokenizer, side: str) -> None:
    tokenizer.padding_side = side
    rows = rows_of(tokenizer, 4)
    expected = DataCollatorForTokenClassification(tokenizer)([dict(row) for row in rows])
    found = TaggingCollator(tokenizer)(rows)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert torch.equal(found[key], value), key
    rows[2]["labels"] = [*rows[2]["labels"], 0]
    with pytest.raises(ValueError, match="labels of row 2"):
        TaggingCollator(tokenizer)(rows)


def test_the_collator_takes_rows_that_are_padded_already(tokenizer: ElmoTokenizer) -> None:
    words, labels = zip(*sentences(3), strict=True)
    encoded = tokenizer(list(words), is_split_into_words=True, padding="max_length", max_length=30)
    encoded["labels"] = tokenizer.align_labels(encoded, list(labels))
    rows = [{name: column[number] for name, column in encoded.items()} for number in range(3)]
    assert TaggingCollator(tokenizer)(rows)["labels"].tolist() == [list(row) for row in encoded["labels"]]


def test_files_in_columns(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("-DOCSTART- O\n\nAnna B-x\n1-2 O\n\n\n# O\n")
    (tmp_path / "b.conllu").write_text("# text = New York it's\n1\tNew York\tB-y\n2-3\tit's\t_\n2\tit\tO\n3\t's\tO\n")
    assert read_conll(tmp_path / "a.txt").to_dict() == {
        "words": [["Anna", "1-2"], ["#"]],
        "tags": [["B-x", "O"], ["O"]],
    }
    found = read_conll(tmp_path / "b.conllu", word=1, tag=2).to_dict()
    assert found == {"words": [["New York", "it", "'s"]], "tags": [["B-y", "O", "O"]]}


def test_metrics_of_spans() -> None:
    labels = np.array([[-100, 1, 2, 0, 3, -100], [-100, 0, 1, -100, -100, -100]])
    tags = np.array([[-100, 1, 2, 0, 1, -100], [-100, 0, 1, -100, -100, -100]])
    found = span_metrics(IDS)(EvalPrediction((np.zeros((2, 6, 5)), tags), labels))
    assert found == {"precision": 2 / 3, "recall": 2 / 3, "f1": pytest.approx(2 / 3), "accuracy": 5 / 6}
    logits = np.eye(5)[np.maximum(tags, 0)]
    assert span_metrics(IDS, "IOB2")(EvalPrediction(logits, labels)) == found


def test_metrics_where_no_word_has_a_label() -> None:
    found = span_metrics(IDS)(EvalPrediction(np.zeros((1, 3, 5)), np.full((1, 3), -100)))
    assert found == dict.fromkeys(("precision", "recall", "f1", "accuracy"), 0.0)


def test_a_scheme_is_counted_strictly() -> None:
    labels, tags = np.array([[1, 2]]), np.array([[2, 2]])  # I-x I-x: a span for conlleval, none in IOB2
    prediction = EvalPrediction((np.zeros((1, 2, 5)), tags), labels)
    assert span_metrics(IDS)(prediction)["f1"] == 1.0
    assert span_metrics(IDS, "IOB2")(prediction)["f1"] == 0.0


def test_trainer_learns_to_tag(tmp_path: Path, arguments, tokenizer: ElmoTokenizer) -> None:
    model = make(**CRF, classifier_dropout=0.0, freeze_bilm=False)
    settings = arguments(
        max_steps=80,
        per_device_train_batch_size=8,
        learning_rate=0.02,
        optim="adamw_torch",
        lr_scheduler_type="linear",
        max_grad_norm=1.0,
        seed=3,
        train_sampling_strategy="group_by_length",
    )
    rows = rows_of(tokenizer, 80)
    trainer = Trainer(
        model,
        settings,
        TaggingCollator(tokenizer),
        train_dataset=rows[:64],
        eval_dataset=rows[64:],
        processing_class=tokenizer,
        compute_metrics=span_metrics(IDS, "IOB2"),
    )
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    assert after["eval_f1"] > 0.9 > 0.5 > before["eval_f1"]
    trainer.save_model(tmp_path / "saved")
    tag = pipeline("token-classification", model=str(tmp_path / "saved"))
    found = tag("abcd ABCD FEDA fade cafe99", aggregation_strategy="simple")
    assert [(one["entity_group"], one["word"]) for one in found] == [("x", "ABCD FEDA"), ("y", "cafe99")]


@pytest.mark.parametrize("crf", [False, True])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_pipeline_gives_each_word_its_tag(tokenizer: ElmoTokenizer, crf: bool, batch_size: int) -> None:
    model, tokenizer = make(**(CRF if crf else {})), ElmoTokenizer()
    model.config.id2label = {0: "Q", **{i: name for i, name in IDS.items() if i}}  # nothing is left out
    tag = ElmoTokenClassificationPipeline(model=model, tokenizer=tokenizer)
    texts = [TEXT, "Bob !", "x"]
    results = tag(texts, batch_size=batch_size)
    for text, found in zip(texts, results, strict=True):
        inputs = tokenizer(text, return_tensors="pt")
        output = model(**inputs)
        tags = output.tags[0] if crf else output.logits[0].argmax(1)
        words = tokenizer.split_into_words([text])[0]
        assert [one["word"] for one in found] == words
        assert [text[one["start"] : one["end"]] for one in found] == words
        assert [one["entity"] for one in found] == [model.config.id2label[i] for i in tags[1:-1].tolist()]
        if not crf:
            expected = output.logits[0].softmax(1).amax(1)[1:-1]
            assert [float(one["score"]) for one in found] == pytest.approx(expected.tolist(), rel=1e-5)


@pytest.mark.parametrize("strategy", ["simple", "first", "average", "max"])
def test_the_pipeline_joins_words_into_spans(strategy: str) -> None:
    model, tokenizer = make(**CRF), ElmoTokenizer()
    with torch.no_grad():  # of every word the same: "B-x", then "I-x" for ever
        model.classifier.weight.zero_()
        model.classifier.bias.copy_(torch.tensor([0.0, 1.0, 2.0, 0.0, 0.0]))
        for parameter in model.crf.parameters():
            parameter.zero_()
    tag = ElmoTokenClassificationPipeline(model=model, tokenizer=tokenizer)
    (found,) = tag(TEXT, aggregation_strategy=strategy)
    assert (found["entity_group"], found["start"], found["end"]) == ("x", 0, len(TEXT))
    # The score of a word is its tag's probability; I-x is more probable for the first word, but may not begin.
    words = tokenizer.split_into_words([TEXT])[0]
    assert found["word"] == " ".join(words)
    weights = torch.tensor([1.0, 2.718281828, 7.389056, 1.0, 1.0])
    of_words = (weights / weights.sum())[[1] + [2] * (len(words) - 1)]
    assert float(found["score"]) == pytest.approx(float(of_words.mean()), rel=1e-4)
    alone = tag(TEXT)
    assert [one["entity"] for one in alone] == ["B-x"] + ["I-x"] * (len(words) - 1)
    predicted = predict(model, [TEXT], tokenizer=tokenizer, progress=False)[0]
    assert predicted["tags"] == [one["entity"] for one in alone]
    assert [float(one["score"]) for one in alone] == pytest.approx(predicted["probabilities"], rel=1e-4)


def test_the_pipeline_takes_words_that_are_split_already() -> None:
    tag = ElmoTokenClassificationPipeline(model=make(), tokenizer=ElmoTokenizer())
    tag.model.config.id2label = {0: "Q", **{i: name for i, name in IDS.items() if i}}  # nothing is left out
    words = ["Anna-Lena", "met", "Bob's", "dog", "."]
    found = tag([words], is_split_into_words=True)
    found = found[0] if isinstance(found[0], list) else found
    assert [one["word"] for one in found] == words
    assert [" ".join(words)[one["start"] : one["end"]] for one in found] == words


# -- semantic roles ----------------------------------------------------------------------------------------------------

ROLES = ["V", "ARG0", "ARG1", "ARG2", "ARGM-TMP", "AM-DIR", "R-ARG0", "C-ARG1", "C-V"]
ROLE_TAGS = ["O", *(f"{prefix}-{role}" for role in ROLES for prefix in "BI")]
ROLE_IDS = dict(enumerate(ROLE_TAGS))


def tags(short: str) -> list[str]:
    """The tags of a line, in which `.` stands for O."""
    return ["O" if tag == "." else tag for tag in short.split()]


@pytest.mark.parametrize(
    ("short", "expected"),
    [
        ("B-ARG1 I-ARG1 B-V . B-C-ARG1 I-C-ARG1 B-C-V", [("ARG1", ((0, 2), (4, 6))), ("V", ((2, 3), (6, 7)))]),
        ("B-ARG1 B-ARG1 B-C-ARG1", [("ARG1", ((0, 1),)), ("ARG1", ((1, 2), (2, 3)))]),
        ("B-C-ARG1 . B-C-ARG1", [("ARG1", ((0, 1), (2, 3)))]),  # no argument before: it is one itself
        ("B-ARG0 B-R-ARG0 . B-V", [("ARG0", ((0, 1),)), ("R-ARG0", ((1, 2),)), ("V", ((3, 4),))]),
        ("I-ARG0 I-ARG1 I-ARG1 . I-ARG1", [("ARG0", ((0, 1),)), ("ARG1", ((1, 3),)), ("ARG1", ((4, 5),))]),
        ("", []),
    ],
)
def test_arguments_are_spans_with_their_continuations(short: str, expected: list) -> None:
    assert arguments_of(tags(short)) == expected


# True and predicted tags, and what srl-eval.pl of CoNLL-2005 says of them: arguments found, too many and missed.
CASES = {
    "all": ("B-ARG0 B-V B-ARG1 I-ARG1", "B-ARG0 B-V B-ARG1 I-ARG1", (2, 0, 0)),
    "the verb does not count": ("B-ARG0 B-V .", "B-ARG0 . B-V", (1, 0, 0)),
    "half a span": ("B-V B-ARG1 I-ARG1", "B-V B-ARG1 .", (0, 1, 1)),
    "another role": ("B-V B-ARG1", "B-V B-ARG0", (0, 1, 1)),
    "without its continuation": ("B-ARG1 B-V B-C-ARG1", "B-ARG1 B-V .", (0, 1, 1)),
    "a continuation of its own": ("B-ARG1 B-V B-C-ARG1", "B-ARG1 B-V B-ARG1", (0, 2, 1)),
    "with its continuation": ("B-ARG1 B-V B-C-ARG1", "B-ARG1 B-V B-C-ARG1", (1, 0, 0)),
    "a continuation of nothing": ("B-V . B-ARG1", "B-V . B-C-ARG1", (1, 0, 0)),
    "a reference": ("B-ARG0 B-R-ARG0 B-V", "B-ARG0 B-ARG0 B-V", (1, 1, 1)),
    "nothing found": ("B-ARG0 B-V", ". .", (0, 0, 1)),
    "nothing there": ("B-V .", "B-V B-ARG1", (0, 1, 0)),
    "of AllenNLP's tests": ("B-ARG0 I-ARG0 B-V B-ARG1 .", "B-ARG0 B-ARG1 B-V B-ARG1 .", (1, 2, 1)),
}


def prediction_of(cases: list[tuple[str, str]], with_logits: bool) -> EvalPrediction:
    rows = [[[ROLE_TAGS.index(tag) for tag in tags(part)] for part in case] for case in cases]
    width = max(len(row[0]) for row in rows) + 2
    labels, found = np.full((2, len(rows), width), -100)
    for number, (true, predicted) in enumerate(rows):
        labels[number, 1 : 1 + len(true)] = true  # after <S>
        found[number, 1 : 1 + len(true)] = predicted
    logits = np.eye(len(ROLE_TAGS))[np.maximum(found, 0)]
    return EvalPrediction((np.zeros_like(logits), found) if with_logits else logits, labels)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("with_logits", [True, False])
def test_counts_are_those_of_the_program_of_conll_2005(case: str, with_logits: bool) -> None:
    true, predicted, (right, too_many, missed) = CASES[case]
    found = role_metrics(ROLE_IDS)(prediction_of([(true, predicted)], with_logits))
    assert found["precision"] == pytest.approx(right / max(1, right + too_many))
    assert found["recall"] == pytest.approx(right / max(1, right + missed))
    assert found["f1"] == pytest.approx(2 * right / max(1, 2 * right + too_many + missed))


def test_predicates_are_counted_together() -> None:
    right, too_many, missed = np.sum([case[2] for case in CASES.values()], axis=0)
    found = role_metrics(ROLE_IDS)(prediction_of([case[:2] for case in CASES.values()], True))
    assert found["precision"] == pytest.approx(right / (right + too_many))
    assert found["recall"] == pytest.approx(right / (right + missed))


@pytest.mark.parametrize("name", ["E-ARG0", "ARG0", "B-"])
def test_labels_of_another_scheme_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="id2label"):
        role_metrics({**ROLE_IDS, 99: name})
