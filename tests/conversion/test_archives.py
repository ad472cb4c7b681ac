"""Archives made to do harm: nothing is written outside, and no disk is filled."""

import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from hf_elmo.conversion import archives
from hf_elmo.conversion.archives import opened


def zipped(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/"), content)
    return path


def tarred(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def special(name: str, kind: bytes, target: str = "/etc/passwd") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def names(source: Path) -> dict[str, bytes]:
    with opened(source, lambda name: not name.endswith(".txt")) as folder:
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_wanted_files_without_their_folders(tmp_path: Path) -> None:
    content = {"a": b"1", "b": b"2"}
    assert names(zipped(tmp_path / "x.zip", **{"en/a": b"1", "en/b": b"2", "en/c.txt": b"3"})) == content
    members = [(tarfile.TarInfo("./en/a"), b"1"), (tarfile.TarInfo("b"), b"2"), (tarfile.TarInfo("c.txt"), b"3")]
    assert names(tarred(tmp_path / "x.tar.gz", *members)) == content
    (tmp_path / "folder").mkdir()
    with opened(tmp_path / "folder", lambda name: True) as folder:
        assert folder == tmp_path / "folder"


@pytest.mark.parametrize("name", ["../a", "/a", "x/../../a", "..\\a", "C:\\a", "\\\\host\\a"])
def test_paths_that_lead_out(name: str, tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    for source in (
        zipped(tmp_path / "inside" / "x.zip", **{name: b"1"}),
        tarred(tmp_path / "inside" / "x.tar.gz", (tarfile.TarInfo(name), b"1")),
    ):
        if source.suffix == ".zip" and "\\" in name and os.sep == "/":
            assert b"\\" in source.read_bytes()  # zipfile leaves them alone here
        with pytest.raises(ValueError, match="leads out of its folder"):
            names(source)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inside"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices(kind: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'a', a link or a device"):
        names(tarred(tmp_path / "x.tar.gz", (special("a", kind), b""), (tarfile.TarInfo("b"), b"1")))


def test_a_link_in_a_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        info = zipfile.ZipInfo("a")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(ValueError, match="the link 'a'"):
        names(tmp_path / "x.zip")


def test_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "ALWAYS_ALLOWED", 1000)
    bomb = b"\0" * 3_000_000  # about a thousandth when it is packed
    for source in (
        zipped(tmp_path / "wanted.zip", a=bomb),
        zipped(tmp_path / "unwanted.zip", **{"a.txt": bomb}),
        zipped(tmp_path / "many.zip", **{f"{number}": bomb[:100_000] for number in range(30)}),
        tarred(tmp_path / "wanted.tar.gz", (tarfile.TarInfo("a"), bomb)),
        tarred(tmp_path / "unwanted.tar.gz", (tarfile.TarInfo("a.txt"), bomb)),
    ):
        with pytest.raises(ValueError, match="grows more than 100 times"):
            names(source)


def test_a_size_that_is_a_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = zipped(tmp_path / "x.zip", a=b"0123456789" * 10)
    packed = bytearray(source.read_bytes())
    place = packed.index(b"PK\1\2") + 24  # the size in the central directory, which zipfile believes
    packed[place : place + 4] = (40).to_bytes(4, "little")
    source.write_bytes(packed)
    with pytest.raises(ValueError, match=r"damaged archive|holds more than"):
        names(source)


def test_a_name_twice(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'a' twice"):
        names(zipped(tmp_path / "x.zip", en__a=b"1", de__a=b"2"))


def test_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"<html>")
    with pytest.raises(ValueError, match="no folder, and no zip or tar archive"):
        names(tmp_path / "x")
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        names(tmp_path / "y")
    whole = tarred(tmp_path / "x.tar.gz", (tarfile.TarInfo("a"), os.urandom(100_000)))
    whole.write_bytes(whole.read_bytes()[:60_000])
    with pytest.raises(ValueError, match=r"x\.tar\.gz"):
        names(whole)


def test_a_password(tmp_path: Path) -> None:
    source = zipped(tmp_path / "x.zip", a=b"1")
    packed = bytearray(source.read_bytes())
    for signature, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        packed[packed.index(signature) + offset] |= 1  # "encrypted"
    source.write_bytes(packed)
    with pytest.raises(ValueError, match="needs a password"):
        names(source)
