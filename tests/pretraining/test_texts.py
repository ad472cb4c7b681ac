"""The texts of files and datasets to train on, whole or in parts."""

import gzip
import itertools

import datasets
import pytest

from hf_elmo import ElmoTokenizer
from hf_elmo.pretraining.texts import Texts
from tests.factories import write_lines

SENTENCES = [[["one"]], [["two"]], [["three", "four"]], [["five"]], [["sechs", "süß"]], [["sieben"]], [["acht"]]]
LINES = [f"{number} {'word ' * (number * 7 % 11)}süß" for number in range(40)]


def assert_in_parts(source: Texts, world_size: int, spread: int) -> None:
    """Each text is in exactly one part, from whatever text a part is read; parts differ by at most `spread` texts."""
    parts = [list(source.part(rank, world_size).read()) for rank in range(world_size)]
    assert sorted(itertools.chain(*parts)) == sorted(source.read())
    assert max(map(len, parts)) - min(map(len, parts)) <= spread
    for rank, whole in enumerate(parts):
        assert list(source.part(rank, world_size).read(3)) == whole[3:]


def test_files_are_read_in_order_from_any_sentence_or_by_documents(tmp_path):
    write_lines(tmp_path / "b.txt", ["three four", "", "  ", "five"])
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress("sechs süß\n\nsieben\nacht\n".encode()))
    (tmp_path / "a.txt").write_text("one\ntwo", encoding="utf-8")
    for start in range(9):
        assert list(Texts(f"{tmp_path}/*").read(start)) == SENTENCES[start:]
    twice = Texts([tmp_path / "a.txt", tmp_path / "c.txt.gz", tmp_path / "a.txt"])
    assert list(twice.read()) == SENTENCES[:2] + SENTENCES[4:]
    documents = [[["one"], ["two"]], [["three", "four"]], [["five"]], [["sechs", "süß"]], [["sieben"], ["acht"]]]
    assert list(Texts(tmp_path, documents=True).read()) == documents


def test_rows_of_other_formats_and_of_a_dataset(tmp_path):
    write_lines(tmp_path / "a.jsonl", ['{"text": "a b"}', '{"text": "d e\\nf"}'])
    texts = Texts(tmp_path / "a.jsonl", documents=True)
    assert list(texts.read()) == [[["a", "b"]], [["d", "e"], ["f"]]]
    raw = Texts(write_lines(tmp_path / "a.txt", ["Don't!"]), ElmoTokenizer())
    assert list(raw.read()) == [[["Don", "'t", "!"]]]
    rows = [{"text": "a b"}, {"text": ["a", "b c"]}, {"text": [["a"], ["b"]]}, {"text": ""}, "a b"]
    texts = [[["a", "b"]], [["a", "b c"]], [["a"], ["b"]], [[]], [["a", "b"]]]
    assert list(Texts(rows).read()) == texts


@pytest.mark.parametrize(("world_size", "documents"), [(2, False), (7, False), (3, True)])
def test_each_text_of_files_is_in_exactly_one_part(tmp_path, world_size, documents):
    for number, lines in enumerate((LINES[:1], [], LINES[1:4], LINES[4:33], LINES[33:])):
        (tmp_path / f"{number}.txt.gz").write_bytes(gzip.compress("\n\n".join(lines).encode()))
        (tmp_path / f"{number}.txt").write_text("\n".join(lines), encoding="utf-8")
    assert_in_parts(Texts(f"{tmp_path}/*", documents=documents), world_size, 1)


def test_enough_files_are_read_by_one_process_each(tmp_path):
    for files, each in ((39, [39, 39]), (41, [21, 20])):
        for number in range(files):
            write_lines(tmp_path / f"{number:02}.txt", [f"{number} first", f"{number} second"])
        parts = [Texts(tmp_path).part(rank, 2).read() for rank in (0, 1)]
        assert [len({text[0][0] for text in part}) for part in parts] == each
        assert_in_parts(Texts(tmp_path), 2, 2)


@pytest.mark.parametrize("kind", ["list", "dataset", "stream of 1", "stream of 6", "shuffled stream of 6"])
def test_each_row_is_in_exactly_one_part(kind):
    dataset = datasets.Dataset.from_dict({"text": LINES})
    if "stream" in kind:
        dataset = dataset.to_iterable_dataset(num_shards=int(kind[-1]))
        dataset = dataset.shuffle(seed=3, buffer_size=7) if "shuffled" in kind else dataset
    assert_in_parts(Texts(LINES if kind == "list" else dataset), 3, 2)


def test_fingerprints_know_the_ends_of_a_text(tmp_path):
    rows = [f"text {number}" for number in range(1000)]
    texts = [rows, ["other 00", *rows[1:]], [*rows[:-1], "other 00"]]
    files = [Texts(write_lines(tmp_path / f"{number}.txt", lines)) for number, lines in enumerate(texts)]
    for sources in (files, map(Texts, texts)):
        assert len({str(source.fingerprint) for source in sources}) == 3
