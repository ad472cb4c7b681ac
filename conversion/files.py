"""Reads folders, archives and JSON files of other libraries."""

import json
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def unpack(path: Path) -> Iterator[Path]:
    """The path itself; for an archive, a temporary folder with its files. No file is written outside of the folder, and
    error messages name the archive in its place. Raises ValueError for an incomplete or damaged archive."""
    with tempfile.TemporaryDirectory(prefix="hf_elmo_") as folder:
        try:
            inside = Path(folder) if path.is_file() and _extract(path, folder) else path
        except (EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{path} is incomplete or damaged ({error}): fetch it again") from error
        try:
            yield inside
        except Exception as error:
            error.args = tuple(x.replace(folder, str(path)) if isinstance(x, str) else x for x in error.args)
            raise


def _extract(path: Path, folder: str) -> bool:
    """Extracts an archive; returns whether the file is one."""
    with path.open("rb") as file:
        is_zip = file.read(2) == b"PK"
    if not is_zip and not tarfile.is_tarfile(path):
        return False
    filtered = {} if is_zip else {"filter": "data"}  # zipfile drops ".." from paths and writes no links
    with (zipfile.ZipFile if is_zip else tarfile.open)(path) as archive:
        archive.extractall(folder, **filtered)
    return True


def find_files(folder: Path, pattern: str) -> list[Path]:
    """The files of a glob pattern, sorted, without those that macOS adds to archives (`__MACOSX/`, `._name`)."""
    files = (file for file in folder.glob(pattern) if not file.name.startswith("._"))
    return sorted(file for file in files if "__MACOSX" not in file.relative_to(folder).parts)


def read_json(file: Path) -> Any:
    """The content of a JSON file, which may begin with a byte order mark."""
    return json.loads(file.read_text(encoding="utf-8-sig"))
