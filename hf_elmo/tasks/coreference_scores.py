"""How good clusters are: MUC, B-cubed, CEAF and their mean, as the reference scorer of CoNLL-2012 counts them; GAP."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from transformers import EvalPrediction

from ..configuration_elmo import IGNORE_INDEX
from ..optional import import_optional

Clusters = Sequence[Sequence[Hashable | list[Hashable]]]
GENDERS = {"masculine": ("he", "him", "his"), "feminine": ("she", "her", "hers")}


def score_clusters(keys: Sequence[Clusters], responses: Sequence[Clusters]) -> dict[str, float]:
    """
    Precision, recall and F1 of MUC (Vilain et al. 1995), B-cubed (Bagga and Baldwin 1998) and CEAF with the similarity
    phi4 (Luo 2005), as defined for predicted mentions by Pradhan et al. 2014; counts are summed over the documents.

    Args:
        keys: for each document its clusters, each of mentions: anything that can be compared and hashed, or lists of
            such things, as JSON has them.
        responses: for each document those that were found. A mention that is there twice counts where it is first.

    Returns:
        fractions: `muc_precision`, `muc_recall`, `muc_f1`, the same of `b_cubed` and `ceaf`, and `conll_f1`, the mean
        of the three F1.

    Raises:
        ValueError: the numbers of documents differ.
        ImportError: scipy is not installed.
    """
    if len(keys) != len(responses):
        raise ValueError(f"there are {len(keys)} documents with keys, but {len(responses)} with responses.")
    measures = {"muc": _muc, "b_cubed": _b_cubed, "ceaf": _ceaf}
    counts = {name: np.zeros(4) for name in measures}  # recall and precision, each what is right and of how much
    for key, response in zip(keys, responses, strict=True):
        key, response = _distinct(key), _distinct(response)
        for name, measure in measures.items():
            counts[name] += measure(key, response)
    scores = {}
    for name, (right_of_key, key_size, right_of_response, response_size) in counts.items():
        precision, recall = _ratio(right_of_response, response_size), _ratio(right_of_key, key_size)
        f1 = _ratio(2 * precision * recall, precision + recall)
        scores |= {f"{name}_precision": precision, f"{name}_recall": recall, f"{name}_f1": f1}
    return scores | {"conll_f1": sum(scores[f"{name}_f1"] for name in measures) / 3}


def coreference_metrics(singletons: bool = False) -> Callable[[EvalPrediction], dict[str, float]]:
    """
    `compute_metrics` of Trainer for [`ElmoForCoreferenceResolution`]: [`score_clusters`].

    Args:
        singletons: whether mentions in `labels` that no other one means the same as count, too. CoNLL-2012 has none,
            and the model finds none.
    """
    import_optional("scipy.optimize", "coreference_metrics", '"hf-elmo[train]"')

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        found = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
        keys, responses = ([_of_mentions(row) for row in rows] for rows in (prediction.label_ids, found))
        keys = keys if singletons else [[own for own in key if len(own) > 1] for key in keys]
        return score_clusters(keys, responses)

    return compute


def gap_scores(
    rows: Sequence[Mapping[str, Any]], clusters: Sequence[Sequence[Sequence[tuple[int, int]]]]
) -> dict[str, float]:
    """
    Precision, recall and F1 of GAP (Webster et al. 2018): which of two names a pronoun means, by the pronoun's gender.

    A pronoun means a name where a cluster has the pronoun and a mention that is the name, a part of it, or ends with
    its end and holds it (*President Obama*).

    Args:
        rows: with the columns of GAP's files: `Text`, `Pronoun`, `Pronoun-offset`, `A`, `A-offset`, `A-coref`, ...;
            offsets and truth values as such, or as text.
        clusters: for each row its clusters, each mention a `(start, end)` in `Text`.

    Returns:
        fractions: `precision`, `recall`, `f1`; the same with `masculine_` and `feminine_` before them; and `bias`, the
        feminine F1 divided by the masculine one.

    Raises:
        ValueError: there are other numbers of rows and of clusters, or a pronoun has no gender.
    """
    if len(rows) != len(clusters):
        raise ValueError(f"there are {len(rows)} rows, but clusters of {len(clusters)}.")
    counts = {gender: np.zeros(3) for gender in GENDERS}  # links that are right, found and true
    for row, own in zip(rows, clusters, strict=True):
        gender = next((name for name, words in GENDERS.items() if row["Pronoun"].lower() in words), None)
        if gender is None:
            raise ValueError(f"row {row.get('ID')} has the pronoun {row['Pronoun']!r}, whose gender GAP does not know.")
        for name in ("A", "B"):
            found, true = _means(row, name, own), str(row[f"{name}-coref"]).upper() == "TRUE"
            counts[gender] += found and true, found, true
    scores = {}
    for prefix, (right, found, true) in {"": sum(counts.values()), **counts}.items():
        precision, recall = _ratio(right, found), _ratio(right, true)
        prefix = prefix and f"{prefix}_"
        f1 = _ratio(2 * precision * recall, precision + recall)
        scores |= {f"{prefix}precision": precision, f"{prefix}recall": recall, f"{prefix}f1": f1}
    return scores | {"bias": _ratio(scores["feminine_f1"], scores["masculine_f1"])}


def _means(row: Mapping[str, Any], name: str, clusters: Sequence[Sequence[tuple[int, int]]]) -> bool:
    def place(column: str) -> tuple[int, int]:
        start = int(row[f"{column}-offset"])
        return start, start + len(row[column])

    pronoun, (start, end) = place("Pronoun"), place(name)

    def is_name(mention: Sequence[int]) -> bool:
        return (start <= mention[0] and mention[1] <= end) or (mention[0] <= start and mention[1] == end)

    return any(pronoun in map(tuple, own) and any(map(is_name, own)) for own in clusters)


def _of_mentions(rows: Any) -> list[list[tuple[int, int]]]:
    """The clusters of `[mentions, 3]` with -100 for padding."""
    clusters: dict[int, list[tuple[int, int]]] = {}
    for first, last, number in np.asarray(rows).tolist():
        if number != IGNORE_INDEX:
            clusters.setdefault(number, []).append((first, last))
    return list(clusters.values())


def _distinct(clusters: Clusters) -> list[set[Hashable]]:
    """Each mention in the first cluster that has it; clusters that have none left are left out."""
    seen: set[Hashable] = set()
    distinct = []
    for cluster in clusters:
        distinct.append({tuple(mention) if isinstance(mention, list) else mention for mention in cluster} - seen)
        seen |= distinct[-1]
    return [cluster for cluster in distinct if cluster]


def _muc(key: list[set], response: list[set]) -> tuple[float, ...]:
    return *_links(key, response), *_links(response, key)


def _links(clusters: list[set], others: list[set]) -> tuple[int, int]:
    """Of the fewest links that hold each cluster together those that the others have, and all."""
    number = {mention: i for i, cluster in enumerate(others) for mention in cluster}
    right = sum(len(c) - len({number.get(mention, (mention,)) for mention in c}) for c in clusters)
    return right, sum(len(cluster) - 1 for cluster in clusters)


def _b_cubed(key: list[set], response: list[set]) -> tuple[float, ...]:
    shared = [(len(k & r), len(k), len(r)) for k in key for r in response]
    of_key, of_response = (sum(both**2 / sizes[side] for both, *sizes in shared) for side in (0, 1))
    return of_key, sum(map(len, key)), of_response, sum(map(len, response))


def _ceaf(key: list[set], response: list[set]) -> tuple[float, ...]:
    import_optional("scipy.optimize", "CEAF", '"hf-elmo[train]"')
    from scipy.optimize import linear_sum_assignment

    similarity = np.array([[2 * len(k & r) / (len(k) + len(r)) for r in response] for k in key])
    best = similarity[linear_sum_assignment(similarity, maximize=True)].sum() if key and response else 0.0
    return best, len(key), best, len(response)


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0
