"""`.ci/published` on files of a local server, which are made."""

import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from huggingface_hub import constants

from hf_elmo.conversion.published import PUBLISHED, page
from tests.allennlp_files import write_files
from tests.manylangs_files import make_settings, write_model

pytest.importorskip("sklearn")
pytest.importorskip("datasets")

from benchmarks import published

NAMES = ["small", "original", "manylangs-ja", "embeddia-sl", "nlpl-201"]
SENTENCES = [["今", "潮水", "退"], ["川", "の", "橋", "を", "渡る", "。"]]


def served(folder: Path) -> None:
    """Small models in the folders and archives of the published ones."""
    for name in NAMES:
        target = folder / PUBLISHED[name].files[0]
        source = folder.parent / "source" / name
        if name == "manylangs-ja":
            write_model(source, make_settings(), SENTENCES)
        else:
            options, weights = write_files(source)
            if name.startswith("nlpl"):
                weights.rename(source / "model.hdf5")
        target.parent.mkdir(parents=True, exist_ok=True)
        if len(PUBLISHED[name].files) == 2:
            shutil.copy(options, target)
            shutil.copy(weights, folder / PUBLISHED[name].files[1])
        else:
            kind = "gztar" if target.suffix == ".gz" else "zip"
            shutil.make_archive(str(target).removesuffix(".zip").removesuffix(".tar.gz"), kind, source)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    served(tmp_path / "served")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "served")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as host:
        threading.Thread(target=host.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        for name in PUBLISHED:
            address = f"http://127.0.0.1:{host.server_port}/"
            monkeypatch.setitem(PUBLISHED, name, PUBLISHED[name]._replace(hosts=(address,)))
        yield
        host.shutdown()


@pytest.mark.slow
def test_published_models_are_tried(host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uses = [f"bank\tN\t1-2\tThe bank {n} closes .\tOn the bank {n % 7} ." for n in range(40)]
    for part in ("train", "dev", "test"):
        (tmp_path / "wic" / part).mkdir(parents=True)
        (tmp_path / "wic" / part / f"{part}.data.txt").write_text("\n".join(uses))
        (tmp_path / "wic" / part / f"{part}.gold.txt").write_text("\n".join("TF" * 20))
    monkeypatch.setattr(published, "NUMBERS", [number for number in published.NUMBERS if number.model in NAMES])
    out = tmp_path / "published.json"

    def rows(*names: str) -> tuple[int, list[dict]]:
        status = published.main([*names, "--data", str(tmp_path), "--out", str(out)])
        return status, json.loads(out.read_text("utf-8"))

    status, found = rows(*NAMES, "pubmed")  # the host lacks that one
    assert status == 1
    assert [row["model"] for row in found if row["check"] == "failed"] == ["pubmed"]
    compared = [row for row in found if "published" in row]
    assert len(compared) == 8
    assert not any(row["right"] for row in compared)  # these are other models
    english = [name for name in NAMES if page(name).data.language == "en"]
    assert [row["model"] for row in found if row["check"].startswith("WiC")] == english

    values = {(row["model"], row["check"]): tuple(row["found"]) for row in compared}
    right = [number._replace(values=values[number.model, number.address]) for number in published.NUMBERS]
    monkeypatch.setattr(published, "NUMBERS", right)
    status, found = rows(*NAMES)
    assert status == 0
    assert len([row for row in found if "published" in row]) == len(right)
