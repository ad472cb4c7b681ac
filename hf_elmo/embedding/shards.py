"""A corpus of many files, cut into shards that workers embed one by one, each into a Parquet file of its own.

OUTPUT is a folder: `.manifest.json` (everything that the values depend on) and a file for each shard, which is some
rows of one input file. The name of a shard's file has the hashes of its rows and of the manifest, and it gets the name
when it is whole, so a run that is started again computes what is missing, what has changed in its input, and what other
settings computed. Both may be on any file system of pyarrow; on one of this machine a run has `.lock` locked. What is
no shard has a name that begins with a dot, so that readers of Parquet take the folder as one table.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from ..locks import locked, warn_of_no_lock
from ..optional import import_optional
from .memory import EmbeddedRows
from .parts import require_same
from .readers import Row, RowSource, RowsRead, import_pyarrow

SHARD_CHARACTERS = 1 << 18  # of text in a shard at most: all of its vectors are in memory
# Datasets, unlike pyarrow, reads what begins with an underscore.
MANIFEST, LOCK = ".manifest.json", ".lock"
OLD_MANIFEST = "manifest.json"  # beside shards whose names had no settings
SHARD_FILE = re.compile(r"[\w.-]+-[0-9a-f]{8}-\d{6}-[0-9a-f]{12}(-[0-9a-f]{12})?\.parquet")
DRAFT_NAME = re.compile(r"\.[\w.-]+\.[0-9a-f]{32}")
WORDS_KEY = b"hf_elmo_words"  # of a shard's metadata: the number of its words


def find_files(inputs: str | os.PathLike, output: ShardFolder | None = None) -> tuple[Any, list[str]]:
    """The file system of `inputs`, and the paths there: of a file, of a folder's files, or of those that match a glob.
    No shard of `output` matches one: an interrupted run that is started again would read them.

    Raises:
        FileNotFoundError: there is none.
    """
    filesystem, path = _filesystem_of(inputs)
    if (paths := _below(filesystem, path)) is None:
        pattern = PurePosixPath(path).parts
        fixed = next((n for n, part in enumerate(pattern) if re.search(r"[*?[]", part)), len(pattern))
        found = _below(filesystem, str(PurePosixPath(*pattern[:fixed]))) if fixed < len(pattern) else None
        paths = [one for one in found or [] if _matches(PurePosixPath(one).parts, pattern)]
        if output is not None and filesystem.equals(output.filesystem):
            paths = [one for one in paths if not output.has_shard(PurePosixPath(one))]
    if not paths:
        raise FileNotFoundError(
            f"input {os.fspath(inputs)!r}: there is no such file, and no file in such a folder or of such a name; give "
            "a file, a folder, or a glob pattern"
        )
    return filesystem, paths


def _filesystem_of(path: str | os.PathLike) -> tuple[Any, str]:
    fs = import_optional("pyarrow.fs", "reading and writing shards", "pyarrow").fs
    path = os.fspath(path)
    return fs.FileSystem.from_uri(path) if "://" in path else (fs.LocalFileSystem(), os.path.abspath(path))


def _below(filesystem: Any, path: str) -> list[str] | None:
    """A file, or the files of a folder in alphabetical order; `None` where there is neither."""
    from pyarrow import fs

    kind = filesystem.get_file_info(path).type
    if kind == fs.FileType.File:
        return [path]
    if kind != fs.FileType.Directory:
        return None
    if filesystem.type_name == "local":
        _require_links_lead_somewhere(path)
    found = (info for info in filesystem.get_file_info(fs.FileSelector(path, recursive=True)) if info.is_file)
    start = len(PurePosixPath(path).parts)
    return sorted(info.path for info in found if not _hidden(PurePosixPath(info.path).parts[start:]))


def _require_links_lead_somewhere(folder: str) -> None:
    """Refuses a link whose file is not there (FileNotFoundError): pyarrow lists none, as if it were no input."""
    for place, _, names in os.walk(folder):
        for path in (os.path.join(place, name) for name in names):
            if not os.path.exists(path) and not _hidden(PurePosixPath(os.path.relpath(path, folder)).parts):
                raise FileNotFoundError(f"input {path!r} is a link to nothing; restore what it leads to, or remove it")


def _hidden(parts: tuple[str, ...]) -> bool:
    return any(part.startswith((".", "_")) for part in parts)


def _matches(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Whether a path is of a glob pattern, in which `**` is any number of folders."""
    if pattern[:1] == ("**",):
        return any(_matches(parts[skipped:], pattern[1:]) for skipped in range(len(parts) + 1))
    if not (parts and pattern):
        return parts == pattern
    return fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def require_outside(output: ShardFolder, inputs: str | os.PathLike) -> None:
    """Raise where shards would be written among the files to read.

    Raises:
        ValueError: `output` is in the folder `inputs`, or is it.
    """
    filesystem, path = _filesystem_of(inputs)
    if filesystem.equals(output.filesystem) and PurePosixPath(output.path).is_relative_to(PurePosixPath(path)):
        raise ValueError(f"output {output.path!r} is in the input's folder {path!r}, whose files are read; move it")


@dataclass(frozen=True)
class Shard:
    """Rows of one file that are embedded together.

    Args:
        name: of the file and the rows in it; that of its own file has the settings, too.
        path: of the file of its rows.
        first: the number of its first row there.
        rows: each a string or a list of words.
    """

    name: str
    path: str
    first: int
    rows: list[Row]


class ShardReader:
    """Cuts files into shards: into the same ones whenever a file has the same rows.

    Args:
        filesystem: of pyarrow.
        paths: the files.
        reading: how rows are read, as [`RowSource`] has it.
        shard_rows: of a shard at most.

    Raises:
        ValueError: the format of a file is unknown, or FASTA, whose identifiers a shard has no place for.
    """

    def __init__(self, filesystem: Any, paths: list[str], reading: dict[str, Any], shard_rows: int) -> None:
        self.filesystem, self.paths, self.reading, self.shard_rows = filesystem, paths, reading, shard_rows
        for path in paths:
            if self._source(path).resolved_format == "fasta":
                raise ValueError(f"{path} is FASTA, which this engine does not write; take --engine local")

    def _source(self, path: str) -> RowSource:
        return RowSource(Path(path), **self.reading, open_file=self.filesystem.open_input_file)

    def shards(self, path: str) -> Iterator[Shard]:
        """The shards of a file."""
        stem = re.sub(r"[^\w.-]", "_", PurePosixPath(path).name, flags=re.ASCII)[:64]
        prefix = f"{stem}-{hashlib.sha256(path.encode()).hexdigest()[:8]}"
        first = 0
        for number, rows in enumerate(self._cut(self._source(path))):
            read = RowsRead()
            for row in rows:
                read.add(row)
            yield Shard(f"{prefix}-{number:06d}-{read.survey.sha256[:12]}", path, first, rows)
            first += len(rows)

    def _cut(self, source: RowSource) -> Iterator[list[Row]]:
        rows, characters = [], 0
        for row in source:
            rows.append(row)
            characters += len(row) if isinstance(row, str) else sum(map(len, row))
            if len(rows) == self.shard_rows or characters >= SHARD_CHARACTERS:
                yield rows
                rows, characters = [], 0
        if rows:
            yield rows


@dataclass(frozen=True)
class ShardFolder:
    """The folder of a corpus's shards.

    Args:
        filesystem: of pyarrow.
        path: there.
        settings: the hash of the manifest, once the folder is prepared for a run.
    """

    filesystem: Any
    path: str
    settings: str = ""

    @classmethod
    def at(cls, output: str | os.PathLike) -> ShardFolder:
        """The folder of this name, which need not exist, here or on a file system that pyarrow knows by its URI."""
        return cls(*_filesystem_of(output))

    @contextmanager
    def prepared(self, manifest: dict[str, Any], overwrite: bool, restart: bool) -> Iterator[ShardFolder]:
        """Acquire the folder for this run alone: a new one, or that of an interrupted run with the same manifest.

        Raises:
            FileExistsError: a run has finished there, or there is something that is not ours.
            BlockingIOError: another run works in it.
            ValueError: the interrupted run had other settings, or was of a version whose shards do not tell theirs.
        """
        with self._locked():
            self._prepare(manifest, overwrite, restart)
            yield replace(self, settings=_hash(manifest))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self.filesystem.type_name != "local":
            warn_of_no_lock(self.path, f"a file system of pyarrow's type {self.filesystem.type_name}")
            self._make()
            yield
            return
        lock = Path(self.path, LOCK)
        with locked(lock, self.path, self._make):
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)

    def _make(self) -> None:
        self.filesystem.create_dir(self.path, recursive=True)

    def _prepare(self, manifest: dict[str, Any], overwrite: bool, restart: bool) -> None:
        names = self._names()
        own = MANIFEST, OLD_MANIFEST, LOCK
        if foreign := [name for name in names if not (name in own or SHARD_FILE.fullmatch(name) or _is_draft(name))]:
            raise FileExistsError(f"output {self.path!r} has {foreign[0]!r}, which is no shard; choose another folder")
        written = next((name for name in (MANIFEST, OLD_MANIFEST) if name in names), None)
        before = None if written is None else json.loads(self._read(written))
        if before is not None and "finished" in before and not overwrite:
            raise FileExistsError(f"output {self.path!r} exists; choose another name, or overwrite=True (--overwrite)")
        keep = before is not None and "finished" not in before and not restart
        if keep and written == OLD_MANIFEST:
            raise ValueError(
                f"{self.path} has shards of an interrupted run whose names do not tell its settings, as an earlier "
                "hf_elmo wrote them: finish it with that, or start over with restart=True (--restart)"
            )
        if keep:
            require_same(before, manifest, self.path)
        # First, as what another run's workers still write has other settings in its name from here on.
        self._write(MANIFEST, json.dumps(manifest, indent=2).encode())
        for name in names:
            if name not in (MANIFEST, LOCK) and (_is_draft(name) or not keep):
                self.filesystem.delete_file(f"{self.path}/{name}")

    def has_shard(self, path: PurePosixPath) -> bool:
        """Whether a path of the same file system is named as a shard here."""
        return path.parent == PurePosixPath(self.path) and SHARD_FILE.fullmatch(path.name) is not None

    def done(self) -> frozenset[str]:
        """The names of the shards of these settings that are there."""
        ending = self.file_of("")
        return frozenset(
            name.removesuffix(ending) for name in self._names() if SHARD_FILE.fullmatch(name) and name.endswith(ending)
        )

    def file_of(self, name: str) -> str:
        """The name of a shard's file."""
        return f"{name}-{self.settings}.parquet"

    def put(self, shard: Shard, rows: EmbeddedRows) -> None:
        """Write a shard: the columns `path`, `row`, `words` and `embedding`.

        Raises:
            RuntimeError: the folder is no longer that of this run.
        """
        pyarrow = import_pyarrow("writing Parquet")
        numbers = range(shard.first, shard.first + len(shard.rows))
        columns = {
            "path": pyarrow.array([shard.path] * len(shard.rows), pyarrow.string()),
            "row": pyarrow.array(numbers, pyarrow.int64()),
            "words": pyarrow.array(rows.words, pyarrow.list_(pyarrow.string())),
            "embedding": rows.arrow(),
        }
        words = str(sum(map(len, rows.words))).encode()
        table = pyarrow.table(columns).replace_schema_metadata({WORDS_KEY: words})
        sink = pyarrow.BufferOutputStream()
        dictionary = ["path", "words"]
        pyarrow.parquet.write_table(table, sink, use_dictionary=dictionary, write_statistics=["row"])
        self._write(self.file_of(shard.name), sink.getvalue(), self._require_own)

    def _require_own(self) -> None:
        """Refuse to add to what another run began or finished, after this run's driver process was lost."""
        now = json.loads(self._read(MANIFEST)) if MANIFEST in self._names() else {}
        if "finished" in now or _hash(now) != self.settings:
            raise RuntimeError(f"{self.path} is another run's by now, or finished: this shard is not written")

    def count(self, name: str) -> tuple[int, int]:
        """The numbers of rows and words of a shard that is there.

        Raises:
            ValueError: it is not as it was written.
        """
        parquet, path = import_pyarrow("reading Parquet").parquet, f"{self.path}/{self.file_of(name)}"
        try:
            with self.filesystem.open_input_file(path) as file:
                metadata = parquet.read_metadata(file)
            return metadata.num_rows, int(metadata.metadata[WORDS_KEY])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({error}); remove it, and run the same again") from error

    def finish(self, counts: dict[str, tuple[int, int]]) -> tuple[int, int]:
        """Check that the shards named are there, remove what else is there (shards of rows that the input no longer has
        or of other settings, drafts of workers that were lost), and mark the folder as finished.

        Args:
            counts: the numbers of rows and words of each shard.

        Returns:
            those of all shards.

        Raises:
            FileNotFoundError: a shard is missing.
        """
        wanted, found = set(map(self.file_of, counts)), self._names()
        if missing := sorted(wanted.difference(found)):
            raise FileNotFoundError(
                f"{self.path} has lost {missing[0]!r} ({len(missing):,} such) since it was written; run the same again"
            )
        for name in found:
            if name not in wanted and (SHARD_FILE.fullmatch(name) or _is_draft(name)):
                self.filesystem.delete_file(f"{self.path}/{name}")
        rows, words = (sum(column) for column in zip(*counts.values(), strict=True)) if counts else (0, 0)
        finished = {"shards": len(counts), "rows": rows, "words": words}
        manifest = {**json.loads(self._read(MANIFEST)), "finished": finished}
        self._write(MANIFEST, json.dumps(manifest, indent=2).encode())
        return rows, words

    def _names(self) -> list[str]:
        from pyarrow.fs import FileSelector

        return sorted(info.base_name for info in self.filesystem.get_file_info(FileSelector(self.path)))

    def _read(self, name: str) -> bytes:
        with self.filesystem.open_input_file(f"{self.path}/{name}") as file:
            return file.read()

    def _write(self, name: str, data: Any, check: Callable[[], None] | None = None) -> None:
        """Write a file under another name first: what has its own name is whole, and `check` did not raise."""
        draft = f"{self.path}/.{name}.{uuid.uuid4().hex}"
        with self.filesystem.open_output_stream(draft) as file:
            file.write(data)
        if check is not None:
            try:
                check()
            except BaseException:
                self.filesystem.delete_file(draft)
                raise
        self.filesystem.move(draft, f"{self.path}/{name}")


def _hash(manifest: dict[str, Any]) -> str:
    """Of the settings in a manifest."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:12]


def _is_draft(name: str) -> bool:
    return DRAFT_NAME.fullmatch(name) is not None
