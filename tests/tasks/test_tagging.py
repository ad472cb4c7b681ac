"""Taggers on Trainer: files, batches, metrics over spans and over semantic roles, the pipeline."""

import numpy as np
import pytest
from seqeval.metrics.sequence_labeling import get_entities
from transformers import EvalPrediction
from transformers.pipelines.token_classification import AggregationStrategy

import hf_elmo
from hf_elmo import ElmoForTokenClassification, ElmoTokenizer, predict, read_conll, span_metrics
from hf_elmo.pipeline_elmo import continues_span
from tests.factories import small_model
from tests.heads import TAGS, make

IDS = TAGS["id2label"]
TEXT = "Anna-Lena (of Rome) met  Bob."
ANNA = [("Anna", "B-x"), ("met", "O")]
FILES = {
    "documents": ("-DOCSTART- O\n\nAnna B-x\n1-2 O\n\n\n# O\n", {}, [[ANNA[0], ("1-2", "O")], [("#", "O")]]),
    "sources": ("#\thttp://a.b/c\t[2009-10-17]\n1\tAnna\tB-x\tO\n2\tmet\tO\tO\n", {"word": 1, "tag": 2}, [ANNA]),
    "a comment of two words": ("# newdoc\nAnna B-x\n# sent_id = 3\nmet O\n", {}, [ANNA]),
    "no-break space": ("\xa0 O\nAnna\tB-x\na\xa0b  O\n", {}, [[("\xa0", "O"), ANNA[0], ("a\xa0b", "O")]]),
    "spaces among tabs": ("Anna\tB-x \nmet O\r\n \n", {}, [ANNA]),
    "hashtags": ("#end\tO\n#begin O\n#newdoc\tO\n", {}, [[("#end", "O"), ("#begin", "O"), ("#newdoc", "O")]]),
    "nothing": ("\n", {}, []),
}
ROLES = ["V", "ARG0", "ARG1", "ARG2", "ARGM-TMP", "AM-DIR", "R-ARG0", "C-ARG1", "C-V"]
ROLE_TAGS = ["O", *(f"{prefix}-{role}" for role in ROLES for prefix in "BI")]
# True and predicted tags, and what srl-eval.pl of CoNLL-2005 says of them: arguments found, too many and missed.
CASES = {
    "all": ("B-ARG0 B-V B-ARG1 I-ARG1", "B-ARG0 B-V B-ARG1 I-ARG1", (2, 0, 0)),
    "the verb does not count": ("B-ARG0 B-V O", "B-ARG0 O B-V", (1, 0, 0)),
    "without its continuation": ("B-ARG1 B-V B-C-ARG1", "B-ARG1 B-V O", (0, 1, 1)),
    "a reference": ("B-ARG0 B-R-ARG0 B-V", "B-ARG0 B-ARG0 B-V", (1, 1, 1)),
    "nothing found": ("B-ARG0 B-V", "O O", (0, 0, 1)),
    "of AllenNLP's tests": ("B-ARG0 I-ARG0 B-V B-ARG1 O", "B-ARG0 B-ARG1 B-V B-ARG1 O", (1, 2, 1)),
}
WRONG_LINES = [("Anna NNP B-x\nmet VBD\n. . O\n", {}, 2), ("Anna\nmet\n", {}, 1), ("Anna\tB-x\n\n\tO\n", {}, 3)]
WRONG_LINES += [("Anna B-x\nNew York B-y\n", {}, 2), ("Anna NNP B-x\n", {"tag": -4}, 1)]
ARGUMENTS = [
    ("B-ARG1 I-ARG1 B-V O B-C-ARG1 I-C-ARG1 B-C-V", [("ARG1", ((0, 2), (4, 6))), ("V", ((2, 3), (6, 7)))]),
    ("B-ARG1 B-ARG1 B-C-ARG1", [("ARG1", ((0, 1),)), ("ARG1", ((1, 2), (2, 3)))]),
    ("B-C-ARG1 O B-C-ARG1", [("ARG1", ((0, 1), (2, 3)))]),  # no argument before: it is one itself
    ("I-ARG0 I-ARG1 I-ARG1 O I-ARG1", [("ARG0", ((0, 1),)), ("ARG1", ((1, 3),)), ("ARG1", ((4, 5),))]),
]


@pytest.mark.parametrize("name", FILES)
def test_each_line_of_a_file_in_columns_is_a_word_or_no_word_by_a_rule(tmp_path, name: str) -> None:
    text, columns, expected = FILES[name]
    (tmp_path / "a.txt").write_bytes(text.encode())
    found = read_conll(tmp_path / "a.txt", **columns).to_dict()
    words, tags = ([[both[part] for both in sentence] for sentence in expected] for part in (0, 1))
    assert found == {"words": words, "tags": tags}


@pytest.mark.parametrize(("text", "columns", "line"), WRONG_LINES)
def test_a_line_without_its_columns_is_named(tmp_path, text: str, columns: dict, line: int) -> None:
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=rf"a\.txt, line {line}:"):
        read_conll(tmp_path / "a.txt", **columns)


def test_metrics_of_spans() -> None:
    labels = np.array([[-100, 1, 2, 0, 3, -100], [-100, 0, 1, -100, -100, -100]])
    tags = np.array([[-100, 1, 2, 0, 1, -100], [-100, 0, 1, -100, -100, -100]])
    found = span_metrics(IDS)(EvalPrediction((np.zeros((2, 6, 5)), tags), labels))
    assert found == {"precision": 2 / 3, "recall": 2 / 3, "f1": pytest.approx(2 / 3), "accuracy": 5 / 6}
    logits = np.eye(5)[np.maximum(tags, 0)]
    for predictions in (logits, tags):  # Trainer's `preprocess_logits_for_metrics` may have chosen the tags
        assert span_metrics(IDS, "IOB2")(EvalPrediction(predictions, labels)) == found
    for scheme in (None, "IOB2"):  # a scheme without types
        plain = span_metrics({0: "O", 1: "B", 2: "I"}, scheme)(EvalPrediction(tags, np.where(labels == 3, 0, labels)))
        assert plain["precision"] == 2 / 3
    assert [continues_span("B", tag) for tag in ("B", "I", "I-x")] == [False, True, False]
    unlabeled = span_metrics(IDS)(EvalPrediction(np.zeros((1, 3, 5)), np.full((1, 3), -100)))
    assert set(unlabeled.values()) == {0.0}
    # I-x I-x is a span for conlleval, none in IOB2.
    prediction = EvalPrediction((np.zeros((1, 2, 5)), np.array([[2, 2]])), np.array([[1, 2]]))
    assert (span_metrics(IDS)(prediction)["f1"], span_metrics(IDS, "IOB2")(prediction)["f1"]) == (1.0, 0.0)


def test_labels_that_are_no_spans_have_an_accuracy(recwarn) -> None:
    found = span_metrics({0: "NOUN", 1: "VERB", 2: "X"})(EvalPrediction(np.eye(3)[None], np.array([[0, 1, 1]])))
    assert (found, len(recwarn)) == ({"accuracy": 2 / 3}, 0)


def test_the_pipeline_finds_the_spans_that_metrics_count() -> None:
    names = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("x", "y"))]
    model = small_model(ElmoForTokenClassification, id2label=dict(enumerate(names)))
    tag = hf_elmo.ElmoTokenClassificationPipeline(model=model, tokenizer=ElmoTokenizer())
    generator = np.random.default_rng(0)
    for labels in [[1, 3, 5, 0, 7, 7], *generator.integers(len(names), size=(200, 8)).tolist()]:
        words = [{"word": "a", "scores": np.eye(9)[n], "start": i, "end": i + 1} for i, n in enumerate(labels)]
        spans = tag.aggregate([{**word, "index": word["start"]} for word in words], AggregationStrategy.SIMPLE)
        found = [(span["entity_group"], span["start"], span["end"] - 1) for span in spans]
        assert [span for span in found if span[0] != "O"] == get_entities([names[label] for label in labels])


@pytest.mark.parametrize(("crf", "batch_size"), [(False, 3), (True, 1), (True, 3)])
def test_the_pipeline_gives_each_word_its_tag(crf: bool, batch_size: int) -> None:
    model, tokenizer = make("crf" if crf else "tagger"), ElmoTokenizer()
    model.config.id2label = {**IDS, 0: "Q"}  # nothing is left out
    tag = hf_elmo.ElmoTokenClassificationPipeline(model=model, tokenizer=tokenizer)
    texts = [TEXT, "Bob !", "x"]
    records = predict(model, texts, tokenizer=tokenizer, progress=False)
    for text, found, record in zip(texts, tag(texts, batch_size=batch_size), records, strict=True):
        assert [one["word"] for one in found] == [text[one["start"] : one["end"]] for one in found] == record["words"]
        assert [one["entity"] for one in found] == record["tags"]
        assert [float(one["score"]) for one in found] == pytest.approx(record["probabilities"], rel=1e-4)
    words = ["Anna-Lena", "met", "Bob's", "dog", "."]
    sentences, alone = [words, ["New York"], words[:3]], tag([words], is_split_into_words=True)[0]
    for tokenizer.padding_side in ("left", "right"):
        batched = tag(sentences, is_split_into_words=True, batch_size=batch_size)
        for given, found in zip(sentences, batched, strict=True):
            texts = [" ".join(given)[one["start"] : one["end"]] for one in found]
            assert [one["word"] for one in found] == texts == given
        assert [one["entity"] for one in batched[0]] == [one["entity"] for one in alone]


@pytest.mark.parametrize(("tags", "expected"), ARGUMENTS)
def test_arguments_are_spans_with_their_continuations(tags: str, expected: list) -> None:
    assert hf_elmo.arguments_of(tags.split()) == expected


@pytest.mark.parametrize("case", [*CASES, "together"])
def test_counts_are_those_of_the_program_of_conll_2005(case: str) -> None:
    cases = list(CASES.values()) if case == "together" else [CASES[case]]
    labels, found = np.full((2, len(cases), 9), -100)
    for number, rows in enumerate(cases):
        for array, tags in zip((labels, found), rows, strict=False):
            array[number, 1 : 1 + len(tags.split())] = [ROLE_TAGS.index(tag) for tag in tags.split()]  # after <S>
    logits = np.eye(len(ROLE_TAGS))[np.maximum(found, 0)]
    prediction = EvalPrediction((np.zeros_like(logits), found) if case == "all" else logits, labels)
    right, too_many, missed = np.sum([counts for *_, counts in cases], axis=0)
    precision, recall = right / max(1, right + too_many), right / max(1, right + missed)
    f1 = 2 * right / max(1, 2 * right + too_many + missed)
    expected = {"precision": precision, "recall": recall, "f1": f1}
    assert hf_elmo.role_metrics(dict(enumerate(ROLE_TAGS)))(prediction) == pytest.approx(expected)
