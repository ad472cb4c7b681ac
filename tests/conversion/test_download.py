"""The download of published models, from servers on this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from hf_elmo import ElmoModel
from hf_elmo.conversion import convert
from hf_elmo.conversion.published import PUBLISHED, download

from ..allennlp_files import make_arrays, make_options, write_files
from .server import Server, serving

NAME = "pubmed"
OPTIONS, WEIGHTS = PUBLISHED[NAME].files
CHUNK = constants.DOWNLOAD_CHUNK_SIZE  # huggingface_hub writes so many bytes at once
CONTENT = bytes(range(256)) * (3 * CHUNK // 512)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Server]]:
    """Two hosts of a model."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with serving() as first, serving() as second:
        monkeypatch.setitem(PUBLISHED, NAME, PUBLISHED[NAME]._replace(hosts=(first.url, second.url)))
        for host in (first, second):
            host.files = {OPTIONS: b"{}", WEIGHTS: CONTENT}
        yield [first, second]


def test_the_files_and_the_cache(servers: list[Server], tmp_path: Path) -> None:
    for _ in range(2):
        options, weights = download(NAME, tmp_path)
        assert (options.read_bytes(), weights.read_bytes()) == (b"{}", CONTENT)
    assert [path.name for path in (options, weights)] == [Path(OPTIONS).name, Path(WEIGHTS).name]
    assert [len(server.requests) for server in servers] == [2, 0]


@pytest.mark.parametrize("etag", ['"one"', '"two"', None], ids=["same version", "other version", "no versions"])
def test_a_broken_download_resumes_the_same_version_alone(
    servers: list[Server], tmp_path: Path, etag: str | None
) -> None:
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / Path(OPTIONS).name).write_bytes(b"{}")
    first, second = servers
    second.files = {}
    first.break_after, first.etag = CHUNK + 1000, etag and '"one"'
    with pytest.raises(ConnectionError, match=NAME):
        download(NAME, tmp_path)
    first.requests.clear()
    first.break_after, first.etag = None, etag
    first.files[WEIGHTS] = new = CONTENT if etag == '"one"' else CONTENT[::-1]
    assert download(NAME, tmp_path)[1].read_bytes() == new
    (wanted,) = (wanted for _, wanted in first.requests)
    assert wanted == (f"bytes={CHUNK}-" if etag == '"one"' else None)


def test_a_model_of_the_second_host_is_converted(servers: list[Server], tmp_path: Path) -> None:
    options = make_options()
    files = write_files(tmp_path / "source", options, make_arrays(options))
    servers[0].files = {}
    servers[1].files = {name: file.read_bytes() for name, file in zip((OPTIONS, WEIGHTS), files, strict=True)}
    out = convert(tmp_path / "out", model=NAME, cache_dir=tmp_path / "cache")
    assert ElmoModel.from_pretrained(out).config.cell_size == 11
