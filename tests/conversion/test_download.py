"""The download against a server on this machine, with every way it can go wrong."""

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hf_elmo.conversion import by_name
from hf_elmo.conversion import download as downloads
from hf_elmo.conversion.download import HDF5_SIGNATURE, PUBLISHED_MODELS, ZIP_SIGNATURE, download, download_published
from hf_elmo_cli import main
from tests.allennlp_files import make_arrays, make_options, write_files
from tests.harness.kills import KILLS, download_command, run_with_kills
from tests.manylangs_files import make_settings, write_model

from .server import Server, serving

WEIGHTS = HDF5_SIGNATURE + bytes(range(256)) * 37
OPTIONS = b'{"lstm": {}}'


@pytest.fixture
def make_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(downloads, "RETRY_SECONDS", 0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with contextlib.ExitStack() as servers:

        def make() -> Server:
            server = servers.enter_context(serving())
            server.files = {"a/weights.hdf5": WEIGHTS, "a/options.json": OPTIONS}
            return server

        yield make


@pytest.fixture
def server(make_server: Any) -> Server:
    return make_server()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "weights.hdf5"


def fetch(target: Path, *servers: Server) -> bytes:
    return download("a/weights.hdf5", target, [server.url for server in servers]).read_bytes()


def leftovers(target: Path) -> set[str]:
    return {path.name for path in target.parent.iterdir()} - {target.name, f"{target.name}.lock"}


class TestTransfer:
    def test_whole_file(self, server: Server, target: Path) -> None:
        assert fetch(target, server) == WEIGHTS
        assert leftovers(target) == set()

    def test_file_in_the_cache_is_not_fetched_again(self, server: Server, target: Path) -> None:
        fetch(target, server)
        assert fetch(target, server) == WEIGHTS
        assert len(server.requests) == 1

    def test_progress_bar(self, server: Server, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
        fetch(target, server)
        assert "weights.hdf5: 100%" in capsys.readouterr().err

    def test_broken_transfers_go_on_where_they_broke(self, server: Server, target: Path) -> None:
        server.break_after = [1000, 500]
        assert fetch(target, server) == WEIGHTS
        assert [wanted for _, wanted in server.requests] == [None, "bytes=1000-", "bytes=1500-"]

    def test_next_call_goes_on_where_the_last_one_gave_up(self, server: Server, target: Path) -> None:
        server.break_after = [100] * (downloads.RETRIES + 1)
        with pytest.raises(ConnectionError, match=r"the connection ended after 600 of \d+ bytes"):
            fetch(target, server)
        assert not target.exists()
        assert fetch(target, server) == WEIGHTS
        assert server.requests[-1][1] == "bytes=600-"

    def test_server_that_ignores_ranges(self, server: Server, target: Path) -> None:
        server.ranges, server.break_after = False, [1000]
        assert fetch(target, server) == WEIGHTS
        assert [wanted for _, wanted in server.requests] == [None, "bytes=1000-"]

    def test_server_without_versions_starts_over(self, server: Server, target: Path) -> None:
        server.etag, server.break_after = None, [1000]
        assert fetch(target, server) == WEIGHTS
        assert [wanted for _, wanted in server.requests] == [None, None]

    def test_file_that_changed_meanwhile_starts_over(self, server: Server, target: Path) -> None:
        server.break_after = [100] * (downloads.RETRIES + 1)
        with pytest.raises(ConnectionError):
            fetch(target, server)
        server.etag, server.files["a/weights.hdf5"] = '"two"', WEIGHTS + b"new"
        assert fetch(target, server) == WEIGHTS + b"new"

    @pytest.mark.parametrize("same_length", [True, False], ids=["same length", "longer"])
    @pytest.mark.parametrize("honest", [True, False], ids=["If-Range heeded", "If-Range ignored"])
    @pytest.mark.parametrize("named", [True, False], ids=["versions", "versions in the first answer only"])
    def test_file_that_changes_between_two_requests(
        self, server: Server, target: Path, same_length: bool, honest: bool, named: bool
    ) -> None:
        """Pieces of two versions are never joined, whatever the server says of them."""
        new = WEIGHTS[::-1] if same_length else WEIGHTS[::-1] + b"new"
        new = HDF5_SIGNATURE + new[len(HDF5_SIGNATURE) :]

        def change() -> None:
            server.files["a/weights.hdf5"] = new
            server.etag = '"two"' if named else None

        server.honest, server.break_after, server.after_request = honest, [1000], change
        assert fetch(target, server) == new
        assert leftovers(target) == set()

    def test_weak_version_is_no_reason_to_resume(self, server: Server, target: Path) -> None:
        server.etag, server.break_after = 'W/"one"', [1000]
        assert fetch(target, server) == WEIGHTS
        assert [wanted for _, wanted in server.requests] == [None, None]

    def test_length_that_is_not_told_is_refused(self, server: Server, target: Path) -> None:
        server.length = False
        with pytest.raises(ConnectionError, match="does not say how long the file is"):
            fetch(target, server)
        assert not target.exists()

    def test_stopped_between_the_last_byte_and_the_name(self, server: Server, target: Path) -> None:
        target.parent.mkdir()
        target.with_name("weights.hdf5.part").write_bytes(WEIGHTS)
        target.with_name("weights.hdf5.part.etag").write_text(f'"one"\n{len(WEIGHTS)}')
        assert fetch(target, server) == WEIGHTS
        assert server.requests == []

    @pytest.mark.parametrize("moment", ["unlink", "write_text", "open"])
    def test_stopped_while_another_version_begins(
        self, server: Server, target: Path, monkeypatch: pytest.MonkeyPatch, moment: str
    ) -> None:
        """A part of the old version must not be left beside the new version's name."""
        target.parent.mkdir()
        part = target.with_name("weights.hdf5.part")
        part.write_bytes(WEIGHTS[:1000])
        part.with_name("weights.hdf5.part.etag").write_text(f'"one"\n{len(WEIGHTS)}')
        new = HDF5_SIGNATURE + WEIGHTS[::-1]
        server.etag, server.files["a/weights.hdf5"] = '"two"', new
        original = getattr(Path, moment)

        def stop(path: Path, *arguments: Any, **options: Any) -> Any:
            if path.name.startswith("weights.hdf5.part"):
                monkeypatch.setattr(Path, moment, original)
                raise KeyboardInterrupt
            return original(path, *arguments, **options)

        monkeypatch.setattr(Path, moment, stop)
        with pytest.raises(KeyboardInterrupt):
            fetch(target, server)
        assert fetch(target, server) == new

    def test_longer_leftover_than_the_file(self, server: Server, target: Path) -> None:
        target.parent.mkdir()
        target.with_name("weights.hdf5.part").write_bytes(WEIGHTS + b"too long")
        target.with_name("weights.hdf5.part.etag").write_text('"one"')
        assert fetch(target, server) == WEIGHTS

    def test_wrong_size_is_never_accepted(self, server: Server, target: Path) -> None:
        server.etag, server.break_after = None, [len(WEIGHTS) - 1] * (downloads.RETRIES + 1)
        with pytest.raises(ConnectionError, match=f"ended after {len(WEIGHTS) - 1} of {len(WEIGHTS)} bytes"):
            fetch(target, server)
        assert not target.exists()


class TestHosts:
    @pytest.mark.parametrize("status", [403, 404, 500])
    def test_second_host_after_a_refusal(self, make_server: Any, target: Path, status: int) -> None:
        first, second = make_server(), make_server()
        first.status = status
        assert fetch(target, first, second) == WEIGHTS
        assert len(first.requests) == len(second.requests) == 1

    def test_second_host_after_silence(self, make_server: Any, target: Path) -> None:
        first, second = make_server(), make_server()
        first.shutdown()
        first.server_close()
        assert fetch(target, first, second) == WEIGHTS

    def test_second_host_goes_on_with_what_the_first_left(self, make_server: Any, target: Path) -> None:
        first, second = make_server(), make_server()
        first.break_after = [100] * (downloads.RETRIES + 1)
        assert fetch(target, first, second) == WEIGHTS
        assert [wanted for _, wanted in second.requests] == ["bytes=600-"]

    def test_error_page_in_the_place_of_the_file(self, make_server: Any, target: Path) -> None:
        first, second = make_server(), make_server()
        first.files["a/weights.hdf5"] = b"<html>Log in to this network</html>"
        assert fetch(target, first, second) == WEIGHTS
        assert leftovers(target) == set()

    def test_error_page_in_the_place_of_the_options(self, server: Server, tmp_path: Path) -> None:
        server.files["a/options.json"] = b"<html>Log in to this network</html>"
        with pytest.raises(ConnectionError, match=r"not json: it begins with b'<html>"):
            download("a/options.json", tmp_path / "options.json", [server.url])

    def test_no_host(self, make_server: Any, target: Path) -> None:
        first, second = make_server(), make_server()
        first.status, second.files = 403, {}
        with pytest.raises(ConnectionError) as raised:
            fetch(target, first, second)
        message = str(raised.value)
        assert message.startswith("weights.hdf5 could not be downloaded:")
        assert f"{first.url}a/weights.hdf5: HTTP Error 403" in message
        assert f"{second.url}a/weights.hdf5: HTTP Error 404" in message
        assert "hf-elmo convert OPTIONS WEIGHTS OUT" in message


class TestDigest:
    def test_another_digest_than_the_known_one(
        self, make_server: Any, target: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = make_server(), make_server()
        monkeypatch.setitem(downloads.SHA256, "a/weights.hdf5", hashlib.sha256(WEIGHTS).hexdigest())
        first.files["a/weights.hdf5"] = WEIGHTS[:-1] + b"x"
        first.etag = '"other"'
        with pytest.raises(ConnectionError, match="another SHA-256 than the known"):
            fetch(target, first)
        assert leftovers(target) - {f"{target.name}.part.etag"} == set()
        assert fetch(target, first, second) == WEIGHTS


def test_a_killed_download_goes_on_to_the_same_files(server: Server, tmp_path: Path) -> None:
    options = make_options({"dim": 200})
    files = write_files(tmp_path / "source", options, make_arrays(options))
    server.files = dict(zip(PUBLISHED_MODELS["portuguese"], (file.read_bytes() for file in files), strict=True))
    counts = run_with_kills(download_command("portuguese", server), tmp_path, KILLS)
    assert counts["kills"], "nothing was killed: the test would prove too little"


class TestArchives:
    def test_a_zip_resumes_and_anything_else_is_refused(self, server: Server, tmp_path: Path) -> None:
        packed = ZIP_SIGNATURE + bytes(range(256)) * 50
        server.files = {"161.zip": packed, "162.zip": b"<html>gone</html>"}
        server.break_after = [5000]
        assert download("161.zip", tmp_path / "161.zip", [server.url]).read_bytes() == packed
        assert server.requests[-1] == ("/base/161.zip", "bytes=5000-")
        with pytest.raises(ConnectionError, match=r"not zip: it begins with b'<html>") as raised:
            download("162.zip", tmp_path / "162.zip", [server.url])
        assert "hf-elmo convert 162.zip OUT" in str(raised.value)

    @pytest.mark.usefixtures("any_sizes")
    def test_a_failure_names_the_command_for_a_copy(
        self,
        server: Server,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr(by_name, "NLPL_HOSTS", (server.url,))
        source = write_model(tmp_path / "source", make_settings(), [["praça", "."]])
        packed = Path(shutil.make_archive(str(tmp_path / "168"), "zip", source))
        convert = ["convert", "manylangs-pt", str(tmp_path / "elmo-pt"), "--cache-dir", str(tmp_path / "cache")]
        assert main(convert) == 1
        error = capsys.readouterr().err
        assert f"{server.url}168.zip: HTTP Error 404" in error
        (command,) = re.findall(r"hf-elmo (convert --model manylangs-pt 168\.zip OUT)\.$", error, re.MULTILINE)
        monkeypatch.chdir(tmp_path)
        assert main(command.split()) == 0
        server.files = {"168.zip": packed.read_bytes()}
        assert main(convert) == 0
        assert Path("OUT/model.safetensors").read_bytes() == Path("elmo-pt/model.safetensors").read_bytes()


class TestPublished:
    def test_seqvec_has_hosts_of_its_own(self, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert all("rostlab.org" in host for host in downloads.HOSTS_OF["seqvec"])
        monkeypatch.setitem(downloads.HOSTS_OF, "seqvec", (server.url,))
        server.files = {"seqvec/options.json": OPTIONS, "seqvec/weights.hdf5": WEIGHTS}
        options, weights = download_published("seqvec", tmp_path)
        assert (options.name, weights.read_bytes()) == ("options.json", WEIGHTS)

    def test_a_failure_names_the_command_for_a_copy(self, server: Server, tmp_path: Path) -> None:
        with pytest.raises(ConnectionError, match="hf-elmo convert --model pubmed OPTIONS WEIGHTS OUT"):
            download_published("pubmed", tmp_path, [server.url])

    def test_both_files_of_a_model(self, server: Server, tmp_path: Path) -> None:
        server.files = dict(zip(PUBLISHED_MODELS["pubmed"], (OPTIONS, WEIGHTS), strict=True))
        options, weights = download_published("pubmed", tmp_path, [server.url])
        assert options.read_bytes() == OPTIONS
        assert weights.read_bytes() == WEIGHTS
        assert weights.name == "elmo_2x4096_512_2048cnn_2xhighway_weights_PubMed_only.hdf5"

    @pytest.mark.parametrize("one", PUBLISHED_MODELS)
    def test_models_share_no_file_of_a_cache(self, server: Server, tmp_path: Path, one: str) -> None:
        server.files = {path: json.dumps({"of": path}).encode() for path, _ in PUBLISHED_MODELS.values()}
        server.files |= {path: WEIGHTS + path.encode() for _, path in PUBLISHED_MODELS.values()}
        for name in (one, *PUBLISHED_MODELS):
            options, weights = download_published(name, tmp_path, [server.url])
            assert json.loads(options.read_bytes()) == {"of": PUBLISHED_MODELS[name].options}
            assert weights.read_bytes() == WEIGHTS + PUBLISHED_MODELS[name].weights.encode()

    def test_default_cache_is_huggingface_hubs(
        self, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("huggingface_hub.utils._cache_assets.HF_ASSETS_CACHE", str(tmp_path))
        server.files = dict(zip(PUBLISHED_MODELS["small"], (OPTIONS, WEIGHTS), strict=True))
        options, _ = download_published("small", hosts=[server.url])
        assert options.parent == tmp_path / "hf_elmo" / "allennlp" / "small"

    def test_unknown_model(self) -> None:
        with pytest.raises(ValueError, match="model is 'huge', but the published ones are small, medium, original"):
            download_published("huge")
