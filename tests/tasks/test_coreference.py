"""Coreference on Trainer and over texts: files, rows, batches, stored layers, clusters; and the scores of clusters."""

import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import EvalPrediction

import hf_elmo
from examples.coreference.run import gap_scores
from hf_elmo import ElmoTokenizer, encode_document, resolve, score_clusters
from tests.factories import save_checkpoint, write_lines
from tests.heads import make

TEXT = "Ann saw a dog.\n\n  She (Ann!) called it .\nIt came."
GAP_TEXT = "President Ann Lee met Bob Roy when she called him; Bob ran."
# The cases of the reference scorer (Pradhan et al. 2014; test/CorefMetricTestConfig.pm and test/TestCases.README): key
# and response, a letter for a mention and a capital for one that overlaps; recall and precision of MUC, B-cubed, CEAF.
KEY = "a bc def"
A4 = (1 / 3, 1 / 3), ((3 + 1 / 3) / 6, (1 + 4 / 3 + 1 / 2) / 7), (2.2 / 3, 2.2 / 4)
A3, A5 = 1 + 4 / 5 + 6 / 7, 1 + 4 / 6 + 2 / 5
CASES = {
    "A1": (KEY, "a bc def", (1, 1), (1, 1), (1, 1)),
    "A2": (KEY, "a de", (1 / 3, 1), (7 / 18, 1), (0.6, 0.9)),
    "A3": (KEY, "a bcx defy z", (1, 3 / 5), (1, (4 + 7 / 12) / 9), (A3 / 3, A3 / 4)),
    "A4": (KEY, "a bcx dy z", *A4),
    "A5": (KEY, "a bcxB dy z", (1 / 3, 1 / 4), (5 / 9, 2.5 / 8), (A5 / 3, A5 / 4)),
    "A7": (KEY, "a bcxb dy z", *A4),  # b is there twice, and counts once
    "A10": (KEY, "a b c d e f", (0, 0), (3 / 6, 1)),
    "A11": (KEY, "abcdef", (1, 3 / 5), (1, (1 / 6 + 2 * 2 / 6 + 3 * 3 / 6) / 6)),
    "A13": (KEY, "axycdez", (1 / 3, 1 / 6), ((1 + 1 / 2 + 2 * 2 / 3) / 6, (1 / 7 + 1 / 7 + 2 * 2 / 7) / 7)),
    "D1": ("12345 67 89ABC", "12345 6789ABC", (1, 9 / 10), (1, 16 / 21)),
    "N1": ("a b c d e f", "a b c d e f", (0, 0), (1, 1), (1, 1)),
    "nothing found": ("ab", "", (0, 0), (0, 0), (0, 0)),
    "nothing there": ("", "ab", (0, 0), (0, 0), (0, 0)),
}


def test_a_document_is_its_sentences_one_after_another(tokenizer) -> None:
    tokenizer.words = ["a", "dog"]
    sentences = [["Ann", "saw", "a", "dog"], ["She", "ran"]]
    row = encode_document(tokenizer, sentences, [[(0, 0), (4, 4)], [(2, 3)]], ["Eve", None])
    alone = [tokenizer(sentence, is_split_into_words=True) for sentence in sentences]
    for name in ("input_ids", "attention_mask", "word_vector_ids"):
        assert row[name] == alone[0][name] + alone[1][name]
    assert row["labels"] == [[0, 0, 0], [4, 4, 0], [2, 3, 1]]
    assert row["speaker_ids"] == [1] * 6 + [0] * 4
    text = encode_document(tokenizer, "Ann saw a dog\n \nShe ran\n", speakers=["Eve", "Bo", None, "Eve"])
    assert text["input_ids"] == row["input_ids"]
    assert text["speaker_ids"] == [1] * 6 + [0] * 4


def line(word: str, speaker: str, column: str) -> str:
    return f"bc/a 0 0 {word} NN * - - - {speaker} * * {column}"


def test_files_of_conll_2012(tmp_path) -> None:
    lines = ["#begin document (bc/a); part 002", line("Ann", "Ann_S", "(0|(1"), line("\xa0", "Ann_S", "1)")]
    lines += [line("him", "Ann_S", "(7)|0)"), "", line("He", "-", "(7)"), line("ran", "-", "-"), "", "#end document"]
    lines += ["#begin document (b)", line("It", "-", "-").replace(" ", "\t"), "", "#end document"]
    first, second = hf_elmo.read_conll2012(write_lines(tmp_path / "a.gold_conll", lines))
    expected = {"document": "bc/a", "part": 2, "sentences": [["Ann", "\xa0", "him"], ["He", "ran"]]}
    assert first == expected | {"speakers": ["Ann_S", None], "clusters": [[[0, 1]], [[2, 2], [3, 3]], [[0, 2]]]}
    assert (second["document"], second["clusters"]) == ("b", [])


def test_a_line_that_is_none_of_conll_2012_is_named(tmp_path) -> None:
    """Of a mention that does not end, of one that does not begin, of other columns, in no document."""
    others = [line("Ann", "-", "(0"), line("ran", "-", "-")], [line("Ann", "-", "1)"), ""], ["Ann NNP B-PER"]
    for lines in (*(["#begin document (a)", *own, ""] for own in others), ["", line("Ann", "-", "-")]):
        with pytest.raises(ValueError, match=r"a\.conll, line 2:"):
            hf_elmo.read_conll2012(write_lines(tmp_path / "a.conll", lines))


@pytest.mark.parametrize("side", ["right", "left"])
def test_batches(tokenizer, side: str) -> None:
    tokenizer.padding_side = side
    rows = [
        {**encode_document(tokenizer, [["Ann", "ran"], ["She"]], [[(0, 0), (2, 2)]], ["Eve", "Bo"]), "genre_ids": 2},
        {**encode_document(tokenizer, [["Rain"]], [], [None]), "genre_ids": 0},
    ]
    batch = hf_elmo.CoreferenceCollator(tokenizer)(rows)
    assert batch["labels"].tolist() == [[[0, 0, 0], [2, 2, 0]], [[-100] * 3] * 2]
    assert batch["speaker_ids"].tolist() == [[1] * 4 + [2] * 3, [0] * 7]
    assert batch["genre_ids"].tolist() == [2, 0]
    own = slice(0, 3) if side == "right" else slice(4, 7)
    assert batch["input_ids"][1, own].tolist() == rows[1]["input_ids"]
    assert "labels" not in hf_elmo.CoreferenceCollator(tokenizer)([encode_document(tokenizer, "a")])
    model = make("resolver", coreference_speakers=True, coreference_num_genres=3)
    stored = list(hf_elmo.store_layers(model, Dataset.from_list(rows), "float32"))
    stored = hf_elmo.CoreferenceCollator(tokenizer, model)(stored)
    torch.testing.assert_close(model(**stored).mention_scores, model(**batch).mention_scores)


def test_clusters_of_texts(tmp_path) -> None:
    tokenizer, model = ElmoTokenizer(), make("resolver", coreference_spans_per_word=0.8)
    torch.nn.init.constant_(model.classifier.pair_scorer.fine.output.bias, 99.0)  # above 0
    save_checkpoint(tmp_path, model, tokenizer)
    words = [["Ann", "saw", "a", "dog", "."], ["She", "(", "Ann", "!", ")", "called", "it", "."], ["It", "came", "."]]
    for given in (model, tmp_path):
        cut = f"\ud83d {TEXT}"  # lone surrogates are dropped
        documents = [cut, words, "Rain .", "", " \n", [], [[]]]
        text, split, short, *blank = resolve(given, documents)
        assert text.words == split.words == [word for sentence in words for word in sentence]
        assert text.clusters == split.clusters
        assert (split.characters, short.words) == (None, ["Rain", "."])
        assert [(one.words, one.clusters) for one in blank] == [([], [])] * 4
        assert [one.characters for one in blank] == [[], [], None, None]
        assert text.clusters
        for own, characters in zip(text.clusters, text.characters, strict=True):
            assert len(own) > 1
            assert own == sorted(own)
            for (first, last), (start, end) in zip(own, characters, strict=True):
                assert tokenizer.split_into_words([cut[start:end]])[0] == text.words[first : last + 1]
    rows = model(**hf_elmo.CoreferenceCollator(tokenizer)([encode_document(tokenizer, TEXT)])).clusters[0].tolist()
    assert rows == sorted([first, last, k] for k, own in enumerate(text.clusters) for first, last in own)


@pytest.mark.parametrize("name", CASES)
def test_the_published_cases(name: str) -> None:
    key, response, *expected = CASES[name]
    found = score_clusters([key.split()], [response.split()])
    for measure, (recall, precision) in zip(("muc", "b_cubed", "ceaf"), expected, strict=False):
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0
        values = [found[f"{measure}_{part}"] for part in ("recall", "precision", "f1")]
        assert values == pytest.approx([recall, precision, f1]), measure
    assert found["conll_f1"] == pytest.approx(sum(found[f"{m}_f1"] for m in ("muc", "b_cubed", "ceaf")) / 3)


def test_counts_are_summed_over_documents() -> None:
    keys, responses = [["ab", "cd"], ["efgh"]], [["abc"], ["ef", "gh"]]
    apart = score_clusters(keys, responses)
    assert apart == pytest.approx(score_clusters([keys[0] + keys[1]], [responses[0] + responses[1]]))
    assert apart["muc_recall"] == 3 / 5
    assert apart["ceaf_precision"] == pytest.approx((4 / 5 + 4 / 6) / 3)
    keys, responses = [[[(0, 1), (3, 3)], [(5, 5), (7, 9)]]], [[[(0, 1), (3, 3), (5, 5)]]]
    assert score_clusters(keys, json.loads(json.dumps(responses)))["muc_f1"] == 0.5


def test_metrics_of_trainer() -> None:
    labels = np.array([[[0, 1, 0], [3, 3, 0], [5, 5, 1]], [[0, 0, 7], [2, 4, 7], [-100] * 3]])
    found = np.array([[[0, 1, 0], [3, 3, 0]], [[0, 0, 0], [2, 3, 0]]])
    kept = np.array([[[0, 1], [3, 3], [5, 5]], [[0, 0], [2, 3], [-100, -100]]])
    prediction = EvalPrediction((found, kept, np.zeros((2, 3))), labels)
    keys, responses = [[[(0, 1), (3, 3)]], [[(0, 0), (2, 4)]]], [[[(0, 1), (3, 3)]], [[(0, 0), (2, 3)]]]
    assert hf_elmo.coreference_metrics()(prediction) == score_clusters(keys, responses) | {"mentions_kept": 3 / 4}
    keys[0].append([(5, 5)])
    with_singletons = hf_elmo.coreference_metrics(singletons=True)(prediction)
    assert with_singletons == score_clusters(keys, responses) | {"mentions_kept": 4 / 5}


def gap_row(pronoun: str, a: object, b: object, kind: type = str) -> dict:
    row = {"Pronoun": pronoun, "A": "Ann Lee", "A-coref": a, "B": "Bob Roy", "B-coref": b}
    return row | {f"{name}-offset": kind(GAP_TEXT.index(row[name])) for name in ("Pronoun", "A", "B")}


def spans(*mentions: str) -> list[tuple[int, int]]:
    return [(GAP_TEXT.index(mention), GAP_TEXT.index(mention) + len(mention)) for mention in mentions]


def test_gap_by_gender() -> None:
    clusters = [[spans("she", "Ann Lee")], [], [spans("Bob Roy", "him")]]
    # As text, and as pandas and datasets read the files.
    for true, false, kind in (("TRUE", "FALSE", str), (True, False, int), (np.True_, np.False_, int)):
        she, him = gap_row("she", true, false, kind), gap_row("him", false, true, kind)
        found = gap_scores([she, she, him], clusters)
        assert found["feminine_f1"] == found["bias"] == pytest.approx(2 / 3)


def test_which_mentions_are_a_name() -> None:
    means = {"Ann Lee": 1, "Ann": 1, "Lee": 1, "President Ann Lee": 1, "Ann Lee met Bob Roy": 0}
    rows = [gap_row("she", "TRUE", "FALSE")]
    assert {name: gap_scores(rows, [[spans(name, "she")]])["recall"] for name in means} == means
