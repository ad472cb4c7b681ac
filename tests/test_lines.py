"""Lines of text files, as embedding and pretraining read them."""

import gzip
from pathlib import Path

import pytest

from hf_elmo.lines import read_lines


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "A.TXT.GZ"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
def test_lines_of_plain_and_gzipped_files(tmp_path: Path, name: str, mark: bytes) -> None:
    data = mark + "ü\n\ufeffb\r\n\nlast".encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.lower().endswith(".gz") else data)
    assert list(read_lines(tmp_path / name)) == ["ü\n", "\ufeffb\n", "\n", "last"]
    assert list(read_lines(str(tmp_path / name), newline=""))[1] == "\ufeffb\r\n"


def test_a_byte_order_mark_of_another_encoding_is_that_codecs(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ü\nb", encoding="utf-16")
    assert list(read_lines(tmp_path / "a.txt", "utf-16")) == ["ü\n", "b"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "UTF-16BE", "utf_32_le", "utf-32-be"])
def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path, encoding: str) -> None:
    for mark in ("", "\ufeff"):
        (tmp_path / "a.txt").write_bytes(f"{mark}ü\n\ufeffb".encode(encoding))
        assert list(read_lines(tmp_path / "a.txt", encoding)) == ["ü\n", "\ufeffb"]


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    assert list(read_lines(tmp_path / "a.txt")) == []


@pytest.mark.parametrize(
    ("name", "data", "encoding", "message"),
    [
        ("a.txt", b"good\nfine\nna\xefve\n", "utf-8", r"a\.txt, line 3: not utf-8 .*; convert the file to utf-8$"),
        ("a.txt", b"a", "utf-9", "encoding 'utf-9' is unknown; take utf-8"),
        ("a.gz", gzip.compress(b"some text " * 99, mtime=0)[:-12], "utf-8", r"a\.gz is not a whole gzip file"),
        ("a.gz", b"some text", "utf-8", r"a\.gz is not a whole gzip file"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, data: bytes, encoding: str, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message):
        list(read_lines(tmp_path / name, encoding))
    with pytest.raises(ValueError, match=r"^standard input, line|^standard input is|^encoding"):
        list(read_lines(tmp_path / name, encoding, name="standard input"))
