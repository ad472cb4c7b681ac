"""`convert` and `hf-elmo convert`: what is recognized, what is written, and that a failure writes nothing."""

import hashlib
import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import h5py
import pytest
import torch
from huggingface_hub import ModelCard, constants
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from hf_elmo import ElmoForSequenceClassification, ElmoModel, ElmoTokenizer
from hf_elmo.conversion import all_names, convert, export, load
from hf_elmo.conversion.published import PUBLISHED, download, page
from hf_elmo_cli import main
from tests.factories import contents, write_lines
from tests.kills import run_with_kills
from tests.source_files import make_options, write_files, write_published

WORDS = ["<S>", "</S>", "<UNK>", "og", "naïve", "日本"]
COPIES = {"pubmed": ("lm1b", "en"), "seqvec": ("characters", None), "manylangs-ko": ("whitespace", "ko")}
TRIED = ["small", "original", "manylangs-ja", "embeddia-sl", "nlpl-201"]
# What a network that asks for a login serves with status 200.
PAGE = b"\n<!DOCTYPE html><title>Log in to this network</title>"


@pytest.fixture
def source(tmp_path) -> tuple[Path, Path]:
    return write_files(tmp_path / "source", make_options(char_cnn={"max_characters_per_token": 40}))


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "results" / "elmo-test"


def test_there_and_back_by_the_commands_without_the_head(source, out, tmp_path) -> None:
    options = ["--dtype", "bfloat16", "--word-splitting", "whitespace"]
    assert main(["convert", *map(str, source), str(out), *options]) == 0
    assert [path.name for path in out.parent.iterdir()] == [out.name]
    expected = {key: tensor.bfloat16() for key, tensor in load(*source).state_dict().items()}
    torch.testing.assert_close(load_file(out / "model.safetensors"), expected, rtol=0, atol=0)
    assert AutoModel.from_pretrained(out, dtype="auto").dtype == torch.bfloat16
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert (tokenizer.word_splitting, tokenizer.max_word_length) == ("whitespace", 40)
    head = ElmoForSequenceClassification.from_pretrained(out, num_labels=3)
    torch.nn.init.normal_(head.elmo.scalar_mix.scalars)
    head.save_pretrained(tmp_path / "head")
    back = tmp_path / "back"
    assert main(["export", str(back), "--model", str(tmp_path / "head")]) == 0
    assert sorted(path.name for path in back.iterdir()) == ["options.json", "weights.hdf5"]
    for key, tensor in load(back / "options.json", back / "weights.hdf5").state_dict().items():
        assert key.startswith("scalar_mix.") or torch.equal(tensor, expected[key].float()), key


@pytest.mark.slow
def test_a_killed_conversion_leaves_all_or_nothing(source, tmp_path) -> None:
    run_with_kills(["convert", *map(str, source), "OUT"], tmp_path)


def test_nothing_is_overwritten_or_written_in_part(source, out) -> None:
    with h5py.File(source[1], "r+") as file:
        file["CNN/b_cnn_1"][2] = 1e5
    with pytest.raises(ValueError, match=r"convolutions\.1\.bias"):  # too large
        convert(*source, out, dtype="float16")
    assert not out.exists()
    out.mkdir(parents=True)
    for write in (lambda: convert(*source, out), lambda: export(load(*source), out)):
        with pytest.raises(FileExistsError):
            write()
    assert [*out.parent.rglob("*")] == [out]


def test_a_folder_of_two_models_or_of_two_weights(tmp_path, out) -> None:
    weights = ["options.json", "a.hdf5", "b.hdf5"]
    for error, names in ((r"2 models .*\['x', 'y'\]", ["x/a.hdf5", "y/a.hdf5"]), (r"'a.hdf5', 'b.hdf5'\]", weights)):
        for name in names:
            write_lines(tmp_path / names[0] / name, ["{}"])
        archive = shutil.make_archive(str(tmp_path / "two"), "zip", tmp_path / names[0])
        for source in (tmp_path / names[0], archive):
            with pytest.raises(ValueError, match=error):
                convert(source, out)
    assert not out.exists()


def test_every_published_name(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["convert", "--list"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(all_names())
    assert len(lines) == 8 + 44 + 7 + 5 + 3 + 12
    korean = "Korean, ELMoForManyLangs, http://vectors.nlpl.eu/repository/11/161.zip"
    assert f"{'manylangs-ko':31}{korean}" in lines
    with pytest.raises(KeyError, match="no-such-model"):
        convert("out", model="no-such-model")


@pytest.mark.parametrize(("weights", "splitting"), [("elmo_2x_weights.hdf5", "lm1b"), ("model.hdf5", "whitespace")])
def test_a_folder_and_its_archives(tmp_path, capsys, weights: str, splitting: str) -> None:
    """As simple_elmo and NLPL share models, with a checkpoint of TensorFlow, and with what macOS adds."""
    folder = tmp_path / "packed" / "model"
    options, arrays = write_files(folder)
    paths = [options, arrays.rename(folder / weights)]
    expected, vocabulary = load(*paths).state_dict(), write_lines(folder / "vocab.txt", WORDS)
    for name in ("model.ckpt-7.index", "checkpoint", "._model.hdf5", "._options.json", ".DS_Store", "._vocab.txt"):
        write_lines(folder / name, ["{}"])
    for name in ("._model.hdf5", "options.json", "model.hdf5"):
        write_lines(folder.parent / "__MACOSX" / "model" / name, ["{}"])
    sources = [folder, Path(shutil.make_archive(str(tmp_path / "x"), "zip", folder))]
    sources.append(Path(shutil.make_archive(str(tmp_path / "x"), "gztar", folder.parent)))
    for number, given in enumerate([*([source] for source in sources), paths]):
        out = tmp_path / str(number)
        assert main(["convert", *map(str, given), str(out)]) == 0
        assert f"word_splitting={splitting};" in capsys.readouterr().out
        torch.testing.assert_close(load_file(out / "model.safetensors"), expected, rtol=0, atol=0)
        tokenizer = ElmoTokenizer.from_pretrained(out)
        assert (tokenizer.word_splitting, tokenizer.vocabulary) == (splitting, None)  # it has no softmax
        assert (out / "softmax_vocab.txt").read_text(encoding="utf-8").split() == WORDS
        files = [*(given if given[0] in sources[1:] else []), *paths, vocabulary]
        digests = [{"file": file.name, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()} for file in files]
        assert json.loads((out / "conversion.json").read_text())["sources"] == digests


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_becomes_what_a_download_becomes(name: str, tmp_path) -> None:
    files = write_published(tmp_path / "cache", name, [["나는", "간다"]])
    downloaded = convert(name, tmp_path / "downloaded" / "elmo", cache_dir=tmp_path / "cache")
    language = ModelCard.load(downloaded / "README.md").data.language
    assert (ElmoTokenizer.from_pretrained(downloaded).word_splitting, language) == COPIES[name]
    for number, paths in enumerate([files, [tmp_path / "cache" / name]][: len(files)]):
        out = tmp_path / str(number) / "elmo"
        assert main(["convert", "--model", name, *map(str, paths), str(out)]) == 0
        assert contents(out) == contents(downloaded)


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `server.files`, and for every other `PAGE`; `server.ranges` are those that were asked for."""

    def do_GET(self) -> None:
        content = self.server.files.get(self.path.removeprefix("/"), PAGE)
        wanted = self.headers["Range"]
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        if start >= len(content):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if self.command == "GET":
            self.server.ranges.append(wanted)
            self.wfile.write(content[start:])

    do_HEAD = do_GET


@pytest.fixture
def host(tmp_path, monkeypatch) -> Iterator[http.server.HTTPServer]:
    """A host with the files of a small model; the model's first address has none, and serves a page for them."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    files = zip(PUBLISHED["pubmed"].files, write_files(tmp_path / "source"), strict=True)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as host:
        host.files, host.ranges = {name: file.read_bytes() for name, file in files}, []
        threading.Thread(target=host.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        urls = tuple(f"http://127.0.0.1:{host.server_port}/{folder}" for folder in ("gone/", ""))
        monkeypatch.setattr(PUBLISHED["pubmed"], "hosts", urls)
        yield host
        host.shutdown()


def test_a_download_resumes_at_the_second_address_and_the_cache_keeps_it(host, tmp_path) -> None:
    cache, files = tmp_path / "cache" / "pubmed", host.files
    cache.mkdir(parents=True)
    for name, size in zip(PUBLISHED["pubmed"].files, (None, 2000), strict=True):  # what interrupted downloads leave
        (cache / f"{name.rpartition('/')[2]}.partial").write_bytes(files[name][:size])
    for number in range(2):
        out = convert("pubmed", tmp_path / str(number), cache_dir=cache.parent)
        assert ElmoModel.from_pretrained(out).config.cell_size == 11
        host.files = {}  # the second time the cache has all
    assert host.ranges == ["bytes=2000-"]
    with pytest.raises(ConnectionError, match=r"(?s)_options.json could not .*Log in to.*convert --model pubmed"):
        convert("pubmed", tmp_path / "out", cache_dir=tmp_path / "other")
    host.files = files  # the page is not kept
    assert ElmoModel.from_pretrained(convert("pubmed", tmp_path / "out", cache_dir=tmp_path / "other"))
    kept = {file.name: file.read_bytes() for file in (tmp_path / "other" / "pubmed").glob("[!.]*")}
    assert kept == {name.rpartition("/")[2]: content for name, content in files.items()}


@pytest.mark.slow
def test_published_models_are_tried(tmp_path, monkeypatch) -> None:
    """`.ci/published` on small models in place of the published ones."""
    pytest.importorskip("sklearn")
    from benchmarks import published

    cache = tmp_path / "cache"
    for name in TRIED:
        write_published(cache, name, [["今", "潮水", "退"], ["川", "の", "橋", "を", "渡る", "。"]])

    def cached(name: str, _: Path) -> list[Path]:
        if name not in TRIED:
            raise ConnectionError(name)
        return download(name, cache)

    monkeypatch.setattr(published, "download", cached)
    monkeypatch.setattr(published, "convert", lambda name, out, **_: convert(name, out, cache_dir=cache))
    uses = [f"bank\tN\t1-2\tThe bank {n} closes .\tOn the bank {n % 7} ." for n in range(40)]
    for part in ("train", "dev", "test"):
        write_lines(tmp_path / "wic" / part / f"{part}.data.txt", uses)
        write_lines(tmp_path / "wic" / part / f"{part}.gold.txt", "TF" * 20)
    monkeypatch.setattr(published, "NUMBERS", [number for number in published.NUMBERS if number.model in TRIED])
    out = tmp_path / "published.json"
    arguments = [*TRIED, "--data", str(tmp_path), "--out", str(out)]
    assert published.main(["pubmed", *arguments]) == 1  # it is not in the cache
    found = json.loads(out.read_text("utf-8"))
    assert [row["model"] for row in found if row["check"] == "failed"] == ["pubmed"]
    compared = [row for row in found if "published" in row]
    assert len(compared) == 8
    assert not any(row["right"] for row in compared)  # these are other models
    english = [name for name in TRIED if page(name).data.language == "en"]
    assert [row["model"] for row in found if row["check"].startswith("WiC")] == english
    values = {(row["model"], row["check"]): tuple(row["found"]) for row in compared}
    right = [number._replace(values=values[number.model, number.address]) for number in published.NUMBERS]
    monkeypatch.setattr(published, "NUMBERS", right)
    assert published.main(arguments) == 0
