"""AllenNLP's published models: their addresses, and a download that resumes."""

import hashlib
import http.client
import json
import re
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError

from huggingface_hub import cached_assets_path
from huggingface_hub.utils import WeakFileLock, tqdm

# Both serve the same paths; the second is the older address of the same bucket.
HOSTS = (
    "https://allennlp.s3.amazonaws.com/models/elmo/",
    "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/",
)

TIMEOUT_SECONDS = 30
RETRIES = 5  # of an interrupted transfer; a host that does not answer or refuses is not retried
RETRY_SECONDS = 1.0
CHUNK_BYTES = 1 << 20
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
ZIP_SIGNATURE = b"PK\x03\x04"
SIGNATURES = {".hdf5": HDF5_SIGNATURE, ".zip": ZIP_SIGNATURE, ".txt": b"<S>"}  # a vocabulary of bilm-tf
PAGES = (b"<!doctype", b"<html", b"<?xml")  # how what is served in place of a file without a signature begins


class PublishedModel(NamedTuple):
    """A published model: the paths of its two files on a host."""

    options: str
    weights: str


def _model(folder: str, name: str) -> PublishedModel:
    return PublishedModel(f"{folder}/{name}_options.json", f"{folder}/{name}_weights.hdf5")


PUBLISHED_MODELS = {
    "small": _model("2x1024_128_2048cnn_1xhighway", "elmo_2x1024_128_2048cnn_1xhighway"),
    "medium": _model("2x2048_256_2048cnn_1xhighway", "elmo_2x2048_256_2048cnn_1xhighway"),
    "original": _model("2x4096_512_2048cnn_2xhighway", "elmo_2x4096_512_2048cnn_2xhighway"),
    "original-5.5b": _model("2x4096_512_2048cnn_2xhighway_5.5B", "elmo_2x4096_512_2048cnn_2xhighway_5.5B"),
    "portuguese": _model("contributed/pt", "elmo_pt"),
    "pubmed": PublishedModel(
        "contributed/pubmed/elmo_2x4096_512_2048cnn_2xhighway_options.json",
        "contributed/pubmed/elmo_2x4096_512_2048cnn_2xhighway_weights_PubMed_only.hdf5",
    ),
    "seqvec": PublishedModel("seqvec/options.json", "seqvec/weights.hdf5"),
}
# Trainings of bilm-tf: the options, the two files of a TensorFlow checkpoint that are read, the words of its softmax.
# The file `checkpoint` is left out, as it names a folder of its author's.
_ORIGINAL_TRAINING = "2x4096_512_2048cnn_2xhighway_tf_checkpoint"
PUBLISHED_TRAININGS = {
    "original-softmax": (
        f"{_ORIGINAL_TRAINING}/options.json",
        f"{_ORIGINAL_TRAINING}/model.ckpt-935588.index",
        f"{_ORIGINAL_TRAINING}/model.ckpt-935588.data-00000-of-00001",
        "vocab-2016-09-10.txt",
    )
}
# Of models that are not on `HOSTS`.
HOSTS_OF = {
    "seqvec": tuple(f"{http}://rostlab.org/~deepppi/embedding_repo/embedding_models/" for http in ("https", "http"))
}


# SHA-256 by path, of the files of which a digest is known. Their publisher states none, and none could be computed from
# a copy that is known to be whole: until one is, a converted checkpoint's card records the digest and says so.
SHA256: dict[str, str] = {}


class _BrokenTransferError(OSError):
    """An incomplete transfer; what has arrived is kept for the next one."""


def published_model(name: str) -> PublishedModel:
    """
    The published model with a name.

    Raises:
        ValueError: there is no model of that name.
    """
    if name not in PUBLISHED_MODELS:
        known = (*PUBLISHED_MODELS, *PUBLISHED_TRAININGS)
        raise ValueError(
            f"model is {name!r}, but the published ones are {', '.join(known)}, and manylangs-ar to manylangs-zh of "
            "ELMoForManyLangs: hf-elmo convert --list shows all."
        )
    return PUBLISHED_MODELS[name]


def download_published(
    name: str, cache_dir: str | Path | None = None, hosts: Sequence[str] | None = None
) -> tuple[Path, Path]:
    """
    Download a published model, unless it is cached.

    Args:
        name: a key of [`PUBLISHED_MODELS`].
        cache_dir: for the files, in a folder of the model's name; by default the assets folder of huggingface_hub's
            cache (`HF_HOME`).
        hosts: base addresses to try in order, each ending in "/"; by default those of the model.

    Returns:
        The paths of the options and of the weights.

    Raises:
        ValueError: there is no model of that name.
        ConnectionError: no host serves a file; the message names the file, and the reason of each host.
    """
    model = published_model(name)
    hosts = HOSTS_OF.get(name, HOSTS) if hosts is None else hosts
    folder = cache_folder("allennlp", name, cache_dir)
    options, weights = (download(path, folder / path.rpartition("/")[2], hosts, name) for path in model)
    return options, weights


def download_training(
    name: str, cache_dir: str | Path | None = None, hosts: Sequence[str] = HOSTS
) -> tuple[Path, Path]:
    """
    Download a published training of bilm-tf, unless it is cached.

    Args:
        name: a key of [`PUBLISHED_TRAININGS`].
        cache_dir, hosts: as in [`download_published`].

    Returns:
        The prefix of the checkpoint's files, beside which the options lie, and the path of the vocabulary.

    Raises:
        ConnectionError: as [`download_published`].
    """
    folder = cache_folder("allennlp", name, cache_dir)
    paths = PUBLISHED_TRAININGS[name]
    _, index, _, vocabulary = (download(path, folder / path.rpartition("/")[2], hosts, name) for path in paths)
    return index.with_suffix(""), vocabulary


def cache_folder(kind: str, name: str, cache_dir: str | Path | None) -> Path:
    """Where the files of a published model are kept: several models have files of the same name."""
    return Path(cache_dir, name) if cache_dir is not None else cached_assets_path("hf_elmo", kind, name)


def download(path: str, target: Path, hosts: Sequence[str] = HOSTS, model: str | None = None) -> Path:
    """
    Download one file from the first host that has it. An interrupted download resumes from `<target>.part`.

    Args:
        path: of the file on a host.
        target: where to put the file; an existing file is not downloaded again.
        hosts: base addresses to try in order.
        model: the name of the published model that the file is of: the message of a failure tells how a copy of the
            file is converted under it.

    Returns:
        `target`.

    Raises:
        ConnectionError: no host serves the file.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    problems = []
    with WeakFileLock(target.with_name(target.name + ".lock")):
        if target.is_file():
            return target
        for host in hosts:
            try:
                _fetch(host + path, part)
                _require_content(part, target.suffix)
                _require_digest(part, SHA256.get(path))
            except (OSError, http.client.HTTPException) as error:
                problems.append(f"  {host}{path}: {error or type(error).__name__}")
                continue
            part.replace(target)
            _tag_file(part).unlink(missing_ok=True)
            return target
    raise ConnectionError(
        "\n".join([f"{target.name} could not be downloaded:", *problems])
        + f"\nWith a copy of the model from elsewhere: hf-elmo convert {f'--model {model} ' if model else ''}"
        + (f"{target.name} OUT." if target.suffix == ".zip" else f"{_copy_of(model)} OUT.")
    )


def _copy_of(model: str | None) -> str:
    return "FOLDER" if model in PUBLISHED_TRAININGS else "OPTIONS WEIGHTS"


def _fetch(url: str, part: Path) -> None:
    """Download a whole file into `part`, resuming interrupted transfers."""
    for attempt in range(RETRIES + 1):
        try:
            return _transfer(url, part)
        except (_BrokenTransferError, http.client.IncompleteRead, ConnectionResetError, TimeoutError):
            if attempt == RETRIES:
                raise
            time.sleep(RETRY_SECONDS * attempt)


def _transfer(url: str, part: Path) -> None:
    """One request: resumes at the end of `part` if the server still has the same version, else starts over."""
    have, version, total = _resumable(part)
    if have == total:  # stopped between its last byte and its name
        return
    headers = {"User-Agent": "hf-elmo", "Accept-Encoding": "identity"}
    if have:
        headers |= {"Range": f"bytes={have}-", "If-Range": version}
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS)
    except HTTPError as error:
        if error.code != 416:  # the server's file is shorter than the part: another version
            raise
        part.unlink()
        raise _BrokenTransferError("the partial file is of another version") from error
    with response:
        start, size = _extent(response, have)
        if start and (_version(response), size) != (version, total or size):
            part.unlink()
            raise _BrokenTransferError("the server's file changed between two requests")
        if not start:
            _begin(part, _version(response), size)
        name = url.rpartition("/")[2]
        with part.open("ab") as file, tqdm(total=size, initial=start, unit="B", unit_scale=True, desc=name) as bar:
            while chunk := response.read(CHUNK_BYTES):
                file.write(chunk)
                bar.update(len(chunk))
    arrived = part.stat().st_size
    if size is not None and arrived != size:
        raise _BrokenTransferError(f"the connection ended after {arrived} of {size} bytes")


def _version(response: http.client.HTTPResponse) -> str:
    """What names a version byte by byte, empty where nothing does: a weak ETag names what means the same."""
    tag = response.headers["ETag"] or response.headers["Last-Modified"] or ""
    return "" if tag.startswith("W/") else tag


def _begin(part: Path, version: str, size: int | None) -> None:
    """An empty part of a version. The old bytes go first: they must never be taken for ones of the new version."""
    part.unlink(missing_ok=True)
    _tag_file(part).write_text(version if size is None else f"{version}\n{size}", encoding="utf-8")
    part.touch()


def _extent(response: http.client.HTTPResponse, have: int) -> tuple[int, int | None]:
    """The first byte of a response, and the size of the whole file where the server reports it."""
    if response.status == 206:
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers["Content-Range"] or "")
        if match and int(match[1]) == have:
            return have, int(match[2])
        raise OSError(f"asked for the bytes from {have} on, the server sent {response.headers['Content-Range']!r}")
    length = response.headers["Content-Length"]
    if not length and response.headers["Transfer-Encoding"] != "chunked":
        raise OSError("the server does not say how long the file is, so that nothing would tell a part from the whole")
    return 0, int(length) if length else None


def _tag_file(part: Path) -> Path:
    """The file with the version (`ETag`) of `part` and the whole file's size: pieces of two versions must not be
    joined."""
    return part.with_name(part.name + ".etag")


def _resumable(part: Path) -> tuple[int, str, int | None]:
    """The bytes that an earlier transfer left, 0 where their version is unknown; the version; the whole file's size."""
    text = _tag_file(part).read_text(encoding="utf-8") if _tag_file(part).is_file() else ""
    version, _, size = text.partition("\n")
    have = part.stat().st_size if version and part.is_file() else 0
    return have, version, int(size) if size.isdecimal() else None


def _require_content(part: Path, suffix: str) -> None:
    """Delete and reject a page that was served in place of the file."""
    with part.open("rb") as file:
        start = file.read(24)
    if suffix in SIGNATURES:
        good = start.startswith(SIGNATURES[suffix])
    else:
        good = not start.lstrip().lower().startswith(PAGES)
    if suffix == ".json":
        try:
            good = isinstance(json.loads(part.read_bytes()), dict)
        except ValueError:
            good = False
    if not good:
        part.unlink()
        raise OSError(f"the server sent something that is not {suffix[1:]}: it begins with {start!r}")


def _require_digest(part: Path, expected: str | None) -> None:
    """Delete and reject a file with another digest than the known one."""
    if expected is not None and sha256(part) != expected:
        part.unlink()
        raise OSError(f"the server sent a file with another SHA-256 than the known {expected}")


def sha256(path: Path) -> str:
    """The SHA-256 digest of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
