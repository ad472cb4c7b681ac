"""`.ci/published` on small models in place of the published ones. (test_convert.py has the downloads.)"""

import json
from pathlib import Path

import pytest

from hf_elmo.conversion import convert
from hf_elmo.conversion.published import download, page
from tests.factories import write_lines
from tests.source_files import write_published

pytest.importorskip("sklearn")
pytest.importorskip("datasets")

from benchmarks import published

NAMES = ["small", "original", "manylangs-ja", "embeddia-sl", "nlpl-201"]


@pytest.mark.slow
def test_published_models_are_tried(tmp_path, monkeypatch) -> None:
    cache = tmp_path / "cache"
    for name in NAMES:
        write_published(cache, name, [["今", "潮水", "退"], ["川", "の", "橋", "を", "渡る", "。"]])

    def cached(name: str, _: Path) -> list[Path]:
        if name not in NAMES:
            raise ConnectionError(name)
        return download(name, cache)

    monkeypatch.setattr(published, "download", cached)
    monkeypatch.setattr(published, "convert", lambda name, out, **_: convert(name, out, cache_dir=cache))
    uses = [f"bank\tN\t1-2\tThe bank {n} closes .\tOn the bank {n % 7} ." for n in range(40)]
    for part in ("train", "dev", "test"):
        write_lines(tmp_path / "wic" / part / f"{part}.data.txt", uses)
        write_lines(tmp_path / "wic" / part / f"{part}.gold.txt", "TF" * 20)
    monkeypatch.setattr(published, "NUMBERS", [number for number in published.NUMBERS if number.model in NAMES])
    out = tmp_path / "published.json"
    arguments = [*NAMES, "--data", str(tmp_path), "--out", str(out)]
    assert published.main(["pubmed", *arguments]) == 1  # it is not in the cache
    found = json.loads(out.read_text("utf-8"))
    assert [row["model"] for row in found if row["check"] == "failed"] == ["pubmed"]
    compared = [row for row in found if "published" in row]
    assert len(compared) == 8
    assert not any(row["right"] for row in compared)  # these are other models
    english = [name for name in NAMES if page(name).data.language == "en"]
    assert [row["model"] for row in found if row["check"].startswith("WiC")] == english
    values = {(row["model"], row["check"]): tuple(row["found"]) for row in compared}
    right = [number._replace(values=values[number.model, number.address]) for number in published.NUMBERS]
    monkeypatch.setattr(published, "NUMBERS", right)
    assert published.main(arguments) == 0
