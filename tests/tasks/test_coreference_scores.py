"""The scorer of coreference: the published cases of CoNLL-2012's reference scorer, slow computations, GAP."""

import json
from itertools import combinations, permutations

import numpy as np
import pytest
from transformers import EvalPrediction

from hf_elmo import coreference_metrics, gap_scores, score_clusters

# The cases of the reference scorer (Pradhan et al. 2014; test/CorefMetricTestConfig.pm and test/TestCases.README): key
# and response, a letter for a mention and a capital for one that overlaps; recall and precision of each measure.
KEY = "a bc def"
A4 = {"muc": (1 / 3, 1 / 3), "b_cubed": ((3 + 1 / 3) / 6, (1 + 4 / 3 + 1 / 2) / 7), "ceaf": (2.2 / 3, 2.2 / 4)}
CASES = {
    "A1": (KEY, "a bc def", {"muc": (1, 1), "b_cubed": (1, 1), "ceaf": (1, 1)}),
    "A2": (KEY, "a de", {"muc": (1 / 3, 1), "b_cubed": (7 / 18, 1), "ceaf": (0.6, 0.9)}),
    "A3": (
        KEY,
        "a bcx defy z",
        {
            "muc": (1, 3 / 5),
            "b_cubed": (1, (4 + 7 / 12) / 9),
            "ceaf": ((1 + 4 / 5 + 6 / 7) / 3, (1 + 4 / 5 + 6 / 7) / 4),
        },
    ),
    "A4": (KEY, "a bcx dy z", A4),
    "A5": (
        KEY,
        "a bcxB dy z",
        {
            "muc": (1 / 3, 1 / 4),
            "b_cubed": (5 / 9, 2.5 / 8),
            "ceaf": ((1 + 4 / 6 + 2 / 5) / 3, (1 + 4 / 6 + 2 / 5) / 4),
        },
    ),
    "A6": (
        KEY,
        "a bcx dy Bz",
        {"muc": (1 / 3, 1 / 4), "b_cubed": (5 / 9, (1 + 4 / 3 + 1 / 2) / 8), "ceaf": (2.2 / 3, 2.2 / 4)},
    ),
    "A7": (KEY, "a bcxb dy z", A4),  # b is there twice, and counts once
    "A8": (KEY, "a bcx dy bz", A4),
    "A9": (KEY, "a bcx dy bbbbbbbbbbz", A4),
    "A10": (KEY, "a b c d e f", {"muc": (0, 0), "b_cubed": (3 / 6, 1)}),
    "A11": (KEY, "abcdef", {"muc": (1, 3 / 5), "b_cubed": (1, (1 / 6 + 2 * 2 / 6 + 3 * 3 / 6) / 6)}),
    "A12": (KEY, "a x y c d e z", {"muc": (0, 0), "b_cubed": ((1 + 1 / 2 + 2 / 3) / 6, 4 / 7)}),
    "A13": (
        KEY,
        "axycdez",
        {"muc": (1 / 3, 1 / 6), "b_cubed": ((1 + 1 / 2 + 2 * 2 / 3) / 6, (1 / 7 + 1 / 7 + 2 * 2 / 7) / 7)},
    ),
    "D1": ("12345 67 89ABC", "12345 6789ABC", {"muc": (1, 9 / 10), "b_cubed": (1, 16 / 21)}),
    "E1": ("12345 67 89ABC", "1234589ABC 67", {"muc": (1, 9 / 10), "b_cubed": (1, 7 / 12)}),
    "F1": ("ABCD", "AB CD", {"muc": (2 / 3, 1)}),
    "G1": ("AB CD", "ABCD", {"muc": (1, 2 / 3)}),
    "H1": ("ABCD", "ABCD", {"muc": (1, 1)}),
    "I1": ("ABCD", "AB CD", {"muc": (2 / 3, 1)}),
    "J1": ("ABC", "AC", {"muc": (1 / 2, 1)}),
    "K1": ("BCDEGHJ", "ABC DEF GHI", {"muc": (3 / 6, 3 / 6)}),
    "L1": ("ABC DEFG", "AB CD FGH", {"muc": (2 / 5, 2 / 4)}),
    "M1": ("abcdef", "abcdef", {"muc": (1, 1), "b_cubed": (1, 1), "ceaf": (1, 1)}),
    "M2": ("abcdef", "a b c d e f", {"muc": (0, 0)}),
    "M5": ("abcdef", "a b c x y z", {"muc": (0, 0)}),
    "N1": ("a b c d e f", "a b c d e f", {"muc": (0, 0), "b_cubed": (1, 1), "ceaf": (1, 1)}),
    "N2": ("a b c d e f", "abcdef", {"muc": (0, 0)}),
    "N4": ("a b c d e f", "a b c x y z", {"muc": (0, 0)}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_published_cases(name: str) -> None:
    key, response, expected = CASES[name]
    found = score_clusters([key.split()], [response.split()])
    for measure, (recall, precision) in expected.items():
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0
        values = [found[f"{measure}_{part}"] for part in ("recall", "precision", "f1")]
        assert values == pytest.approx([recall, precision, f1]), measure
    assert found["conll_f1"] == pytest.approx(sum(found[f"{m}_f1"] for m in ("muc", "b_cubed", "ceaf")) / 3)


def test_figures_that_the_reference_scorer_prints() -> None:
    """As CorefMetricTestConfig.pm rounds them."""
    rounded = {"A2": 0.72, "A3": 0.75918, "A4": 0.62857, "A5": 0.59048, "A6": 0.62857}
    found = {name: score_clusters(*([part.split()] for part in CASES[name][:2]))["ceaf_f1"] for name in rounded}
    assert {name: round(value, 5) for name, value in found.items()} == rounded


def random_clusters(rng: np.random.Generator, mentions: int) -> list[list[int]]:
    chosen = rng.permutation(mentions)[: rng.integers(1, mentions + 1)].tolist()
    number = rng.integers(0, rng.integers(1, 6), size=len(chosen)).tolist()
    return [[m for m, k in zip(chosen, number, strict=True) if k == own] for own in sorted(set(number))]


def slow_scores(key: list[list[int]], response: list[list[int]]) -> dict[str, tuple[float, float]]:
    """Recall and precision as the papers put them: MUC by the fewest links, B-cubed for each mention, CEAF by every way
    to put clusters together."""

    def muc(one: list, other: list) -> float:
        right = whole = 0
        for cluster in one:
            pairs = [(a, b) for a, b in combinations(cluster, 2) if any(a in c and b in c for c in other)]
            groups = [{mention} for mention in cluster]
            for a, b in pairs:
                left, right_ = (next(g for g in groups if m in g) for m in (a, b))
                if left is not right_:
                    groups = [g for g in groups if g is not left and g is not right_] + [left | right_]
                    right += 1
            whole += len(cluster) - 1
        return right / whole if whole else 0.0

    def b_cubed(one: list, other: list) -> float:
        shares = []
        for cluster in one:
            for mention in cluster:
                same = next((c for c in other if mention in c), [])
                shares.append(len(set(cluster) & set(same)) / len(cluster))
        return sum(shares) / len(shares)

    few, many = sorted((key, response), key=len)
    best = max(
        sum(2 * len({*a} & {*b}) / (len(a) + len(b)) for a, b in zip(few, chosen, strict=True))
        for chosen in permutations(many, len(few))
    )
    return {
        "muc": (muc(key, response), muc(response, key)),
        "b_cubed": (b_cubed(key, response), b_cubed(response, key)),
        "ceaf": (best / len(key), best / len(response)),
    }


def test_beside_slow_computations() -> None:
    rng = np.random.default_rng(5)
    for _ in range(60):
        key, response = random_clusters(rng, 9), random_clusters(rng, 9)
        found = score_clusters([key], [response])
        for measure, (recall, precision) in slow_scores(key, response).items():
            assert found[f"{measure}_recall"] == pytest.approx(recall), (key, response)
            assert found[f"{measure}_precision"] == pytest.approx(precision), (key, response)


def test_counts_are_summed_over_documents() -> None:
    """Two documents score as one with the mentions of both, as no cluster has mentions of both."""
    keys, responses = [["ab", "cd"], ["efgh"]], [["abc"], ["ef", "gh"]]
    apart = score_clusters(keys, responses)
    together = score_clusters([keys[0] + keys[1]], [responses[0] + responses[1]])
    assert apart == pytest.approx(together)
    assert apart["muc_recall"] == 3 / 5
    assert apart["ceaf_precision"] == pytest.approx((4 / 5 + 4 / 6) / 3)


def test_nothing_found_and_nothing_there() -> None:
    assert set(score_clusters([["ab"]], [[]]).values()) == {0.0}
    assert set(score_clusters([[]], [["ab"]]).values()) == {0.0}
    assert set(score_clusters([[]], [[]]).values()) == {0.0}
    with pytest.raises(ValueError, match="2 documents with keys, but 1 with responses"):
        score_clusters([[], []], [[]])


def test_mentions_of_json_are_those_of_python() -> None:
    keys, responses = [[[(0, 1), (3, 3)], [(5, 5), (7, 9)]]], [[[(0, 1), (3, 3), (5, 5)]]]
    expected = score_clusters(keys, responses)
    assert expected["muc_f1"] == 0.5
    for both in ((keys, json.loads(json.dumps(responses))), (json.loads(json.dumps(keys)), responses)):
        assert score_clusters(*both) == expected


def test_metrics_of_trainer() -> None:
    labels = np.array([[[0, 1, 0], [3, 3, 0], [5, 5, 1]], [[0, 0, 7], [2, 4, 7], [-100] * 3]])
    found = np.array([[[0, 1, 0], [3, 3, 0]], [[0, 0, 0], [2, 3, 0]]])
    prediction = EvalPrediction((found, np.zeros((2, 4, 2))), labels)
    without = coreference_metrics()(prediction)
    keys, responses = [[[(0, 1), (3, 3)]], [[(0, 0), (2, 4)]]], [[[(0, 1), (3, 3)]], [[(0, 0), (2, 3)]]]
    assert without == score_clusters(keys, responses)
    assert without["muc_f1"] == 0.5
    keys[0].append([(5, 5)])
    assert coreference_metrics(singletons=True)(prediction) == score_clusters(keys, responses)
    assert coreference_metrics()(EvalPrediction(found, labels)) == without


# -- GAP ---------------------------------------------------------------------------------------------------------------

TEXT = "President Ann Lee met Bob Roy when she called; he, Bob, ran."


def gap_row(pronoun: str, a: bool, b: bool) -> dict[str, str]:
    row = {"ID": "test-1", "Text": TEXT, "Pronoun": pronoun, "Pronoun-offset": str(TEXT.index(f" {pronoun}") + 1)}
    row |= {"A": "Ann Lee", "A-offset": str(TEXT.index("Ann")), "A-coref": str(a).upper()}
    return row | {"B": "Bob Roy", "B-offset": str(TEXT.index("Bob Roy")), "B-coref": str(b).upper()}


def spans(*mentions: str) -> list[tuple[int, int]]:
    return [(TEXT.index(mention), TEXT.index(mention) + len(mention)) for mention in mentions]


def test_gap_by_gender() -> None:
    she, he = gap_row("she", True, False), gap_row("he", False, True)
    place = TEXT.index("he,"), TEXT.index("he,") + 2
    assert int(he["Pronoun-offset"]) == place[0]
    clusters = [spans("Ann Lee", "she")], [[*spans("Ann Lee"), place]]
    found = gap_scores([she, he], clusters)
    assert found["feminine_f1"] == 1.0
    assert found["masculine_f1"] == 0.0
    assert (found["precision"], found["recall"], found["f1"]) == (0.5, 0.5, 0.5)
    assert found["bias"] == 0.0  # of nothing it is 0
    both = gap_scores([she, she, he], [[spans("she", "Ann Lee")], [], [[*spans("Bob Roy"), place]]])
    assert both["feminine_f1"] == pytest.approx(2 / 3)
    assert both["bias"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("mention", "means"),
    [("Ann Lee", True), ("Ann", True), ("Lee", True), ("President Ann Lee", True), ("Ann Lee met Bob Roy", False)],
)
def test_which_mentions_are_a_name(mention: str, means: bool) -> None:
    found = gap_scores([gap_row("she", True, False)], [[spans(mention, "she")]])
    assert found["recall"] == float(means)


def test_gap_in_types_of_its_columns() -> None:
    """As pandas and datasets read the files: numbers and truth values."""
    rows = [gap_row("she", True, False), gap_row("he", False, True)]
    clusters = [[spans("Ann Lee", "she")], []]
    expected = gap_scores(rows, clusters)
    assert expected["f1"] == 2 / 3
    typed = [row | {name: int(row[name]) for name in ("Pronoun-offset", "A-offset", "B-offset")} for row in rows]
    for boolean in (bool, np.bool_):
        own = [row | {name: boolean(row[name] == "TRUE") for name in ("A-coref", "B-coref")} for row in typed]
        assert gap_scores(own, clusters) == expected


def test_gap_that_cannot_be_scored() -> None:
    with pytest.raises(ValueError, match="row test-1 has the pronoun 'Bob'"):
        gap_scores([gap_row("Bob", True, False)], [[]])
    with pytest.raises(ValueError, match="2 rows, but clusters of 1"):
        gap_scores([gap_row("she", True, False)] * 2, [[]])
