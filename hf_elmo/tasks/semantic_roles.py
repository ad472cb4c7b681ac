"""Semantic roles: the arguments that tags stand for, and how many of them a tagger finds."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from transformers import EvalPrediction

from .tagging import tags_of

Span = tuple[int, int]  # the first word, and the one after the last
VERB = "V"  # the predicate itself, which is given and not counted


def arguments_of(tags: Sequence[str]) -> list[tuple[str, tuple[Span, ...]]]:
    """
    The arguments of one predicate: the role of each, and its spans.

    A span `C-X` goes on with the last argument of role X before it, which then has two spans; where there is none it is
    one of role X itself. A reference `R-X` is an argument of a role of its own. So counts the scorer of CoNLL-2005
    (Carreras and Marquez 2005).

    Args:
        tags: of the words, in IOB2; an `I-` that continues nothing begins a span.
    """
    found: list[tuple[str, list[Span]]] = []
    last: dict[str, int] = {}  # of each role, its last argument
    for role, span in _spans(tags):
        continued = role.removeprefix("C-")
        if continued != role and continued in last:
            found[last[continued]][1].append(span)
        else:
            last[continued] = len(found)
            found.append((continued, [span]))
    return [(role, tuple(spans)) for role, spans in found]


def _spans(tags: Sequence[str]) -> list[tuple[str, Span]]:
    spans: list[tuple[str, Span]] = []
    for place, tag in enumerate(tags):
        prefix, _, role = tag.partition("-")
        if prefix == "I" and spans and spans[-1][0] == role and spans[-1][1][1] == place:
            spans[-1] = role, (spans[-1][1][0], place + 1)
        elif prefix != "O":
            spans.append((role, (place, place + 1)))
    return spans


def role_metrics(id2label: Mapping[int, str]) -> Callable[[EvalPrediction], dict[str, float]]:
    """
    `compute_metrics` of Trainer for semantic roles: precision, recall and F1 over the arguments of all predicates.

    An argument is found where the tags give one of the same role and the same spans, all of them; the verb is not
    counted. No library on the package index counts so (seqeval knows no continuations); the tests hold figures of
    CoNLL-2005's own program.

    Args:
        id2label: `model.config.id2label`, tags in IOB2.

    Raises:
        ValueError: a label is no tag of IOB2.
    """
    for name in id2label.values():
        prefix, _, role = name.partition("-")
        if name != "O" and (prefix not in ("B", "I") or not role):
            raise ValueError(f"id2label has the label {name!r}, but roles are counted in IOB2: O, B-ARG0, I-ARG0, ...")

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        right = found = there = 0
        for truth, predicted in zip(*tags_of(prediction, id2label), strict=True):
            true, own = (
                Counter(argument for argument in arguments_of(tags) if argument[0] != VERB)
                for tags in (truth, predicted)
            )
            right, found, there = right + (true & own).total(), found + own.total(), there + true.total()
        precision, recall = (right / count if count else 0.0 for count in (found, there))
        return {"precision": precision, "recall": recall, "f1": 2 * right / max(1, found + there)}

    return compute
