"""The views of the page, without a page."""

import re
from pathlib import Path

import pytest

from hf_elmo import ElmoTokenizer
from hf_elmo.analysis.neighbors import Neighbor, nearest_neighbors
from hf_elmo.analysis.scoring import Substitutes, substitutes
from hf_elmo.explore.explorer import CORPUS, EXAMPLES, PLANE_EXAMPLE, Explorer
from hf_elmo.explore.tables import table_of_neighbors, table_of_substitutes


def cells(table: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", table)
    return [[re.sub("<.*?>", "", cell) for cell in re.findall(r"<td.*?>(.*?)</td>", row)] for row in rows]


def test_neighbors_are_those_of_the_function(folder: Path) -> None:
    explorer = Explorer(folder)
    corpus = "The bank failed .\n\nA bank of sand\nnothing"
    found = explorer.neighbors("the old bank", " bank ", corpus, 2)
    expected = nearest_neighbors(explorer.model, explorer.tokenizer, "the old bank", "bank", corpus.splitlines(), top=2)
    rows = cells(found)
    assert len(rows) == 4
    for row, place in zip(rows, [*expected[1], *expected[2]], strict=True):
        assert row == [f"{place.similarity:.2f}", *_around(place), f"line {place.row + 1}"]
    for place in expected[0]:
        assert f"<b>{place.word}</b> {place.similarity:.2f}" in found


def _around(place: Neighbor) -> list[str]:
    before, after = place.context()
    return [before, place.word, after]


def test_a_file_is_searched_where_one_is_given(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("a\nOn the Bank of it\n", encoding="utf-8")
    found = cells(Explorer(folder, tmp_path / "corpus.txt").neighbors("the old bank", "bank"))
    assert [row[1:] for row in found] == [["On the", "Bank", "of it", "line 2"]] * 2


def test_a_corpus_without_the_word_says_so(folder: Path) -> None:
    assert "no other sentence with this word" in Explorer(folder).neighbors("the old bank", "bank", "nothing\n")


def test_substitutes_are_those_of_the_function(language_model: Path) -> None:
    explorer = Explorer(language_model)
    assert explorer.has_softmax
    found = cells(explorer.substitutes("the old bank", "old", 3))
    (expected,) = substitutes(explorer.model, explorer.tokenizer, ["the old bank"], top=3, words=["old"])[0]
    columns = [*expected.candidates, *expected.forward, *expected.backward]
    assert [row[0].replace("&lt;", "<").replace("&gt;", ">") for row in found] == [word for word, _ in columns]
    assert sum(float(row[1]) for row in found[:3]) <= 1
    assert "<b>river" not in explorer.substitutes("the old bank", "old", 4)  # a word is text, not HTML


def test_without_softmax_there_are_no_substitutes(folder: Path) -> None:
    assert not Explorer(folder).has_softmax


def test_similarities_and_plane_are_pictures(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    explorer = Explorer(folder)
    assert ">1.00<" in explorer.similarities("the bank", "bank", "a bank", " bank ")
    picture = explorer.plane("the old bank\n\na bank\n", 1)
    assert picture.count(">bank<") == 2
    assert picture != explorer.plane("the old bank\n\na bank\n", 2)


@pytest.mark.parametrize(
    ("view", "arguments", "message"),
    [
        ("similarities", ("a <i>b</i>", "x", "b", "b"), "&#x27;x&#x27; does not occur in the sentence"),
        ("neighbors", ("a b", "", "a b"), "&#x27;&#x27; does not occur"),
        ("substitutes", ("a b", "c"), "&#x27;c&#x27; is not a word of the sentence"),
        ("plane", ("a", 1), "needs three words or more"),
    ],
)
def test_what_cannot_be_shown_is_said_on_the_page(
    language_model: Path, view: str, arguments: tuple, message: str
) -> None:
    found = getattr(Explorer(language_model), view)(*arguments)
    assert message in found
    assert "<i>" not in found


def test_a_missing_model_or_corpus_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.txt' does not exist"):
        Explorer(folder, tmp_path / "missing.txt")
    with pytest.raises(OSError, match="missing"):
        Explorer(tmp_path / "missing")


def test_text_that_is_tokenized_already_is_split_at_whitespace(folder: Path) -> None:
    ElmoTokenizer("lm1b").save_pretrained(folder)
    arguments = ("the old bank.", "bank.", "A bank. B\nbank")
    assert "does not occur" in Explorer(folder).neighbors(*arguments)
    assert [row[2] for row in cells(Explorer(folder, pretokenized=True).neighbors(*arguments))] == ["bank."] * 2


def test_words_of_a_corpus_are_text() -> None:
    place = Neighbor(0.5, "<w>", ["<a>", "<w>", "&"], 1, 6)
    table = table_of_neighbors({0: [place], 1: [place]})
    assert not re.search("<a>|<w>", table)
    assert cells(table) == [["0.50", "&lt;a&gt;", "&lt;w&gt;", "&amp;", "line 7"]]
    best = [("<w>", -1.0), ("b", -2.0)]
    table = table_of_substitutes(Substitutes("x", best, best, best))
    assert "<w>" not in table
    assert cells(table)[0][:2] == ["&lt;w&gt;", "0.368"]


def test_the_examples_fit_the_model_that_ships() -> None:
    explorer = Explorer()
    assert explorer.has_softmax
    words = [explorer.tokenizer.split_into_words([one])[0] for example in EXAMPLES for one in example[::2]]
    for sentence, word in zip(words, [one for example in EXAMPLES for one in example[1::2]], strict=True):
        assert word in sentence
    assert all(len(explorer.tokenizer.split_into_words([line])[0]) > 3 for line in CORPUS.splitlines())
    assert "svg" in explorer.plane(PLANE_EXAMPLE)
