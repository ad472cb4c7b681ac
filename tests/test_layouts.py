"""The names, shapes and types of the tensors in checkpoints, which are the file format.

`python -m tests.test_layouts` writes `layouts.txt` anew, as long as no version has been released.
"""

from itertools import groupby
from pathlib import Path

import torch
from safetensors.torch import load_file

from . import heads

STORED = Path(__file__).with_name("layouts.txt")
UNICODE = {"char_units": "unicode", "word_vocab_size": 7, "word_embedding_size": 3, "num_scalar_mixes": 2}
# Of a checkpoint, the model in tests/heads.py and changes of its fields.
CHECKPOINTS = {name: (name, {}) for name in ("no head", "language models", "last", "biattentive", "esim", "roles")}
CHECKPOINTS |= {"other characters, words and two mixes": ("no head", UNICODE), "crf": ("crf", heads.VECTORS)}
CHECKPOINTS |= {name: (name, {}) for name in ("no answer", "resolver 2018")}


def describe(tensors: dict[str, torch.Tensor], own: bool) -> list[str]:
    """A line for each module; of a head without the modules of its biLM."""
    names = sorted(name for name in tensors if not (own and name.startswith("elmo.")))
    lines = []
    for module, group in groupby(names, lambda name: name.rpartition(".")[0]):
        shapes = [f"{name[len(module) + 1 :]} {'x'.join(map(str, tensors[name].shape))}" for name in group]
        types = {str(tensors[name].dtype) for name in names if name.rpartition(".")[0] == module}
        lines.append(f"{module}: {', '.join(shapes)} ({', '.join(sorted(types)).replace('torch.', '')})")
    return lines


def describe_all(folder: Path) -> str:
    lines = []
    for checkpoint, (name, changes) in CHECKPOINTS.items():
        heads.make_new(name, **changes).save_pretrained(folder / checkpoint)
        tensors = load_file(folder / checkpoint / "model.safetensors")
        lines += ["", f"# {checkpoint}", *describe(tensors, own=name != "no head")]
    return "\n".join(lines[1:]) + "\n"


def test_checkpoints_have_the_stored_layouts(tmp_path: Path) -> None:
    assert describe_all(tmp_path) == STORED.read_text(encoding="utf-8")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        STORED.write_text(describe_all(Path(name)), encoding="utf-8")
