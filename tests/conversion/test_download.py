"""The download of published models, from a host on this machine."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from hf_elmo import ElmoModel
from hf_elmo.conversion import convert
from hf_elmo.conversion.published import PUBLISHED

from ..allennlp_files import write_files

NAME = "pubmed"


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `server.files`; `server.ranges` are those that were asked for."""

    def do_GET(self) -> None:
        content, wanted = self.server.files.get(self.path.removeprefix("/"), b""), self.headers["Range"]
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        if start >= len(content):
            return self.send_error(416 if content else 404)
        self.send_response(206 if start else 200)
        self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if self.command == "GET":
            self.server.ranges.append(wanted)
            self.wfile.write(content[start:])

    do_HEAD = do_GET


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[http.server.HTTPServer]:
    """A host with the files of a small model; the model's first address has none."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    files = zip(PUBLISHED[NAME].files, write_files(tmp_path / "source"), strict=True)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as host:
        host.files, host.ranges = {name: file.read_bytes() for name, file in files}, []
        threading.Thread(target=host.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        urls = tuple(f"http://127.0.0.1:{host.server_port}/{folder}" for folder in ("gone/", ""))
        monkeypatch.setitem(PUBLISHED, NAME, PUBLISHED[NAME]._replace(hosts=urls))
        yield host
        host.shutdown()


def test_a_download_resumes_at_the_second_address_and_the_cache_keeps_it(host, tmp_path: Path) -> None:
    cache = tmp_path / "cache" / NAME
    cache.mkdir(parents=True)
    for name, size in zip(PUBLISHED[NAME].files, (None, 2000), strict=True):  # what interrupted downloads leave
        (cache / f"{name.rpartition('/')[2]}.partial").write_bytes(host.files[name][:size])
    for number in range(2):
        out = convert(NAME, tmp_path / str(number), cache_dir=cache.parent)
        assert ElmoModel.from_pretrained(out).config.cell_size == 11
        host.files = {}  # the second time the cache has all
    assert host.ranges == ["bytes=2000-"]
    with pytest.raises(ConnectionError, match=f"hf-elmo convert --model {NAME}"):
        convert(NAME, tmp_path / "out", cache_dir=tmp_path / "empty")
