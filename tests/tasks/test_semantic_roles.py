"""Arguments of predicates, and how many of them are found."""

import numpy as np
import pytest
from transformers import EvalPrediction

from hf_elmo import arguments_of, role_metrics

ROLES = ["V", "ARG0", "ARG1", "ARG2", "ARGM-TMP", "AM-DIR", "R-ARG0", "C-ARG1", "C-V"]
NAMES = ["O", *(f"{prefix}-{role}" for role in ROLES for prefix in "BI")]
IDS = dict(enumerate(NAMES))


def tags(short: str) -> list[str]:
    """The tags of a line, in which `.` stands for O."""
    return ["O" if tag == "." else tag for tag in short.split()]


def test_a_continuation_is_a_part_of_its_argument() -> None:
    found = arguments_of(tags("B-ARG1 I-ARG1 B-V . B-C-ARG1 I-C-ARG1 B-C-V"))
    assert found == [("ARG1", ((0, 2), (4, 6))), ("V", ((2, 3), (6, 7)))]


def test_it_goes_on_with_the_last_one_of_its_role() -> None:
    assert arguments_of(tags("B-ARG1 B-ARG1 B-C-ARG1")) == [("ARG1", ((0, 1),)), ("ARG1", ((1, 2), (2, 3)))]
    assert arguments_of(tags("B-C-ARG1 . B-C-ARG1")) == [("ARG1", ((0, 1), (2, 3)))]  # none before: it is one itself


def test_a_reference_is_a_role_of_its_own() -> None:
    assert arguments_of(tags("B-ARG0 B-R-ARG0 . B-V")) == [("ARG0", ((0, 1),)), ("R-ARG0", ((1, 2),)), ("V", ((3, 4),))]


def test_tags_that_continue_nothing_begin_a_span() -> None:
    assert arguments_of(tags("I-ARG0 I-ARG1 I-ARG1 . I-ARG1")) == [
        ("ARG0", ((0, 1),)),
        ("ARG1", ((1, 3),)),
        ("ARG1", ((4, 5),)),
    ]
    assert arguments_of([]) == []


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
}


# The propositions that AllenNLP's tests of srl-eval.pl have, and the scores that it gives them there.
MALI = "B-ARG0 I-ARG0 I-ARG0 B-V B-ARG1 I-ARG1 I-ARG1 I-ARG1 I-ARG1 I-ARG1 ."
FORCED = ". . . . B-ARG1 I-ARG1 I-ARG1 I-ARG1 B-V B-ARG2 ."
RESTED = "B-ARG0 I-ARG0 B-V B-ARG1 I-ARG1 B-ARGM-TMP I-ARGM-TMP " + "B-ARGM-TMP" + " I-ARGM-TMP" * 4 + " ."
PUBLISHED = {
    "identical": ([(one, one) for one in (MALI, FORCED, RESTED, "B-V B-AM-DIR . . .")], (1, 1, 1)),
    "the cat loves hats": ([("B-ARG0 I-ARG0 B-V B-ARG1 .", "B-ARG0 B-ARG1 B-V B-ARG1 .")], (1 / 3, 1 / 2, 2 / 5)),
}


@pytest.mark.parametrize("case", PUBLISHED)
def test_published_cases(case: str) -> None:
    propositions, (precision, recall, f1) = PUBLISHED[case]
    found = role_metrics(IDS)(prediction_of(propositions, with_logits=False))
    assert found == pytest.approx({"precision": precision, "recall": recall, "f1": f1})


def prediction_of(cases: list[tuple[str, str]], with_logits: bool) -> EvalPrediction:
    rows = [[[NAMES.index(tag) for tag in tags(part)] for part in case] for case in cases]
    width = max(len(row[0]) for row in rows) + 2
    labels, found = np.full((2, len(rows), width), -100)
    for number, (true, predicted) in enumerate(rows):
        labels[number, 1 : 1 + len(true)] = true  # after <S>
        found[number, 1 : 1 + len(true)] = predicted
    logits = np.eye(len(NAMES))[np.maximum(found, 0)]
    return EvalPrediction((np.zeros_like(logits), found) if with_logits else logits, labels)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("with_logits", [True, False])
def test_counts_as_the_program_of_conll_2005_does(case: str, with_logits: bool) -> None:
    true, predicted, (right, too_many, missed) = CASES[case]
    found = role_metrics(IDS)(prediction_of([(true, predicted)], with_logits))
    assert found["precision"] == pytest.approx(right / max(1, right + too_many))
    assert found["recall"] == pytest.approx(right / max(1, right + missed))
    assert found["f1"] == pytest.approx(2 * right / max(1, 2 * right + too_many + missed))


def test_predicates_are_counted_together() -> None:
    right, too_many, missed = np.sum([case[2] for case in CASES.values()], axis=0)
    found = role_metrics(IDS)(prediction_of([case[:2] for case in CASES.values()], True))
    assert found["precision"] == pytest.approx(right / (right + too_many))
    assert found["recall"] == pytest.approx(right / (right + missed))


@pytest.mark.parametrize("name", ["E-ARG0", "S-V", "ARG0", "LABEL_0", "B", "B-", "O-V"])
def test_labels_of_another_scheme(name: str) -> None:
    with pytest.raises(ValueError, match=f"id2label has the label '{name}', but roles are counted in IOB2"):
        role_metrics({**IDS, 99: name})
