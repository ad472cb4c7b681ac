"""The download of published models, from two hosts on this machine whose transfers can break."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from hf_elmo import ElmoModel
from hf_elmo.conversion import convert
from hf_elmo.conversion.published import PUBLISHED

from ..allennlp_files import make_arrays, make_options, write_files

NAME = "pubmed"
OPTIONS, WEIGHTS = PUBLISHED[NAME].files


class Host(http.server.ThreadingHTTPServer):
    """Serves `files` as the version `etag`; with `break_after`, a transfer ends after so many bytes."""

    files: dict[str, bytes]
    etag, break_after = '"one"', None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges: list[str | None] = []


class Handler(http.server.BaseHTTPRequestHandler):
    server: Host

    def do_GET(self) -> None:
        content = self.server.files.get(self.path.removeprefix("/"))
        if content is None:
            return self.send_error(404)
        wanted = self.headers["Range"]
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("ETag", self.server.etag)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if self.command == "GET":
            self.server.ranges.append(wanted)
            self.wfile.write(content[start : self.server.break_after])

    do_HEAD = do_GET

    def log_message(self, *arguments: object) -> None:
        """Keeps the tests' output clean."""


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Host, Host]]:
    """Two hosts; the second one has the files of a small model."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    options = make_options()
    files = write_files(tmp_path / "source", options, make_arrays(options))
    hosts = Host(), Host()
    hosts[0].files = {}
    hosts[1].files = {name: file.read_bytes() for name, file in zip((OPTIONS, WEIGHTS), files, strict=True)}
    for host in hosts:
        threading.Thread(target=host.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    urls = tuple(f"http://127.0.0.1:{host.server_port}/" for host in hosts)
    monkeypatch.setitem(PUBLISHED, NAME, PUBLISHED[NAME]._replace(hosts=urls))
    yield hosts
    for host in hosts:
        host.shutdown()
        host.server_close()


def test_the_second_host_and_the_cache(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    for number in range(2):
        out = convert(NAME, tmp_path / f"out{number}", cache_dir=tmp_path / "cache")
        assert ElmoModel.from_pretrained(out).config.cell_size == 11
        hosts[1].files = {}  # the second time the cache has all
    assert hosts[1].ranges == [None, None]


@pytest.mark.parametrize("etag", ['"one"', '"two"'], ids=["the same version", "another version"])
def test_a_broken_download_resumes_unless_the_file_has_changed(
    hosts: tuple[Host, Host], tmp_path: Path, etag: str
) -> None:
    host, arguments = hosts[1], {"cache_dir": tmp_path / "cache"}
    host.break_after = 2500
    with pytest.raises(ConnectionError, match=f"hf-elmo convert --model {NAME}"):
        convert(NAME, tmp_path / "out", **arguments)
    host.break_after, host.etag, host.ranges = None, etag, []
    assert ElmoModel.from_pretrained(convert(NAME, tmp_path / "out", **arguments)).config.cell_size == 11
    assert host.ranges == (["bytes=2000-"] if etag == '"one"' else [None])
