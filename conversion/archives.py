"""Archives that models are shared in, opened without trust: paths, links, sizes."""

import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, NamedTuple

# Weights hardly shrink, and text to a tenth; an archive that grows more than this is made to fill a disk.
MOST_GROWTH = 100
ALWAYS_ALLOWED = 1 << 24  # bytes, however small the archive
CHUNK_BYTES = 1 << 20


class Member(NamedTuple):
    """A file in an archive: its name there, its size, and how to open it."""

    name: str
    size: int
    open: Callable[[], IO[bytes]]


def inner_folder(path: str | Path) -> Path:
    """The folder that a folder holds, where it holds nothing else, as an archive that was unpacked often does."""
    path = Path(path)
    while path.is_dir():
        inside = list(path.iterdir())
        if len(inside) != 1 or not inside[0].is_dir() or inside[0].is_symlink():
            break
        (path,) = inside
    return path


@contextmanager
def opened(source: str | Path, wanted: Callable[[str], bool]) -> Iterator[Path]:
    """
    The folder that a path names (or the only one in it), or a temporary one with the files of an archive.

    Only regular files are taken out, by the last part of their names (with `wanted`), or under the path within the
    archive's own folder where they have one; so nothing is ever written anywhere else.

    Args:
        source: a folder, or a zip or tar archive (also compressed) of one.
        wanted: whether a file is needed, by its name without folders.

    Raises:
        FileNotFoundError: there is no such path.
        ValueError: it is neither, it is damaged, or it names files that no honest archive names: outside of its own
            folder, or so large that they would fill the disk.
    """
    source = Path(source)
    if source.is_dir():
        yield inner_folder(source)
        return
    if not source.exists():
        raise FileNotFoundError(f"{source}: there is no such file or folder.")
    with tempfile.TemporaryDirectory(prefix="hf_elmo_") as name:
        try:
            _extract(source, wanted, Path(name))
        except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, RuntimeError, NotImplementedError) as error:
            raise ValueError(f"{source} is a damaged archive, or one that needs a password ({error}).") from error
        try:
            yield Path(name)
        except (ValueError, FileNotFoundError) as error:
            if len(error.args) == 1 and isinstance(error.args[0], str):
                error.args = (error.args[0].replace(name, str(source)),)  # which is there to be looked at
            raise


def packed(source: str | Path) -> list[Path]:
    """The archive, of what [`opened`] opens; nothing of a folder."""
    return [] if Path(source).is_dir() else [Path(source)]


def _extract(source: Path, wanted: Callable[[str], bool], folder: Path) -> None:
    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            _take(source, _zip_members(source, archive), wanted, folder)
    elif tarfile.is_tarfile(source):
        with tarfile.open(source) as archive:
            _take(source, _tar_members(source, archive), wanted, folder)
    else:
        raise ValueError(f"{source} is no folder, and no zip or tar archive.")


def _zip_members(source: Path, archive: zipfile.ZipFile) -> Iterator[Member]:
    for info in archive.infolist():
        _require_inside(source, info.filename)
        if (info.external_attr >> 16) & 0o170000 == 0o120000:
            raise ValueError(f"{source} holds the link {info.filename!r}; a model's archive holds files alone.")
        if not info.is_dir():
            yield Member(info.filename, info.file_size, lambda info=info: archive.open(info))


def _tar_members(source: Path, archive: tarfile.TarFile) -> Iterator[Member]:
    for info in archive:
        _require_inside(source, info.name)
        if info.isdir():
            continue
        if not info.isreg():
            raise ValueError(f"{source} holds {info.name!r}, a link or a device; a model's archive holds files alone.")
        yield Member(info.name, info.size, lambda info=info: archive.extractfile(info))


def _require_inside(source: Path, name: str) -> None:
    for path in (PurePosixPath(name), PureWindowsPath(name)):
        if path.is_absolute() or path.drive or ".." in path.parts:
            raise ValueError(f"{source} holds the path {name!r}, which leads out of its folder: it is not opened.")


def _take(source: Path, members: Iterator[Member], wanted: Callable[[str], bool], folder: Path) -> None:
    """Write the wanted members into `folder` under their last names, each once."""
    left = max(ALWAYS_ALLOWED, MOST_GROWTH * source.stat().st_size)
    for member in members:
        # Of a compressed tar archive what is not wanted is decompressed as well.
        left -= member.size
        if left < 0:
            raise ValueError(
                f"{source} grows more than {MOST_GROWTH} times when it is unpacked, up to {member.name!r}: it is no "
                "model's archive. Unpack it yourself if you trust it, and give the folder."
            )
        name = PurePosixPath(member.name).name
        if not wanted(name):
            continue
        if (folder / name).exists():
            raise ValueError(f"{source} holds {name!r} twice: which one is the model's is not known.")
        with member.open() as packed, (folder / name).open("wb") as file:
            shutil.copyfileobj(_Limited(source, member, packed), file, CHUNK_BYTES)


class _Limited:
    """A member's bytes, no more than it said to hold."""

    def __init__(self, source: Path, member: Member, packed: IO[bytes]) -> None:
        self.source, self.member, self.packed, self.left = source, member, packed, member.size

    def read(self, size: int) -> bytes:
        data = self.packed.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise ValueError(
                f"{self.source}: {self.member.name!r} holds more than the {self.member.size} bytes it says."
            )
        return data
