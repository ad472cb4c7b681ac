"""Reads folders, archives and JSON files of other libraries."""

import json
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def unpack(path: Path) -> Iterator[Path]:
    """The path itself; for a zip or tar archive, a temporary folder with its files."""
    with tempfile.TemporaryDirectory(prefix="hf_elmo_") as folder:
        if path.is_file() and tarfile.is_tarfile(path):
            shutil.unpack_archive(path, folder, "tar", filter="data")
        elif zipfile.is_zipfile(path):
            shutil.unpack_archive(path, folder, "zip")
        else:
            folder = path
        yield Path(folder)


def find_files(folder: Path, pattern: str) -> list[Path]:
    """The files of a glob pattern, sorted, without those that macOS adds to archives (`__MACOSX/`, `._name`)."""
    files = (file for file in folder.glob(pattern) if not file.name.startswith("._"))
    return sorted(file for file in files if "__MACOSX" not in file.relative_to(folder).parts)


def read_json(file: Path) -> Any:
    """The content of a JSON file, which may begin with a byte order mark."""
    return json.loads(file.read_text(encoding="utf-8-sig"))
