"""The conversion record: what a checkpoint was converted from, in `conversion.json` and in its safetensors."""

import json
import os
import shutil
import struct
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .download import sha256

FILE = "conversion.json"
WEIGHTS = "model.safetensors"


def make_record(
    sources: Iterable[str | Path],
    source_format: str,
    dtype: str,
    scalar_mixes: Sequence[str] = (),
    left_behind: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, Any]:
    """
    The record of a conversion: no path, so nothing of the machine that converted.

    Args:
        sources: the files that the checkpoint is made from.
        source_format: the format that they are of.
        dtype: the type that the weights get.
        scalar_mixes: the names that the model's scalar mixes have in the source, in their order.
        left_behind: the names and shapes of tensors that projected its vectors in the source, and are not in the model.

    Returns:
        `converted_with` (this package and its version), `source_format`, `sources` (for each file its name and its
        SHA-256 in hexadecimal digits), `scalar_mixes` and `left_behind` where there are any, `dtype` and `compared`:
        what a folder has passed that carries the record.
    """
    files = [{"file": Path(file).name, "sha256": sha256(Path(file))} for file in sources]
    return {
        "converted_with": f"hf_elmo {version('hf-elmo')}",
        "source_format": source_format,
        "sources": files,
        **({"scalar_mixes": list(scalar_mixes)} if scalar_mixes else {}),
        **({"left_behind": {name: list(shape) for name, shape in left_behind.items()}} if left_behind else {}),
        "dtype": dtype,
        "compared": f"read back, every tensor equals its source's value in {dtype}",
    }


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write a record into a folder with `model.safetensors`, and into the metadata of that file, a string each."""
    (folder / FILE).write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    strings = {key: value if isinstance(value, str) else json.dumps(value) for key, value in record.items()}
    weights, partial = folder / WEIGHTS, folder / f"{WEIGHTS}.partial"
    with weights.open("rb") as source, partial.open("wb") as target:
        (size,) = struct.unpack("<Q", source.read(8))
        header = json.loads(source.read(size))
        # Not by safetensors' own save_file: it writes several metadata in an order that differs from run to run.
        metadata = {"__metadata__": dict(sorted((header.pop("__metadata__") | strings).items()))}
        content = json.dumps(metadata | header, separators=(",", ":")).encode()
        content += b" " * (-len(content) % 8)  # the tensors stay aligned
        target.write(struct.pack("<Q", len(content)) + content)
        shutil.copyfileobj(source, target, 1 << 20)
    os.replace(partial, weights)
