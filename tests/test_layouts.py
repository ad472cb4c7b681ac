"""The names, shapes and types of the tensors in checkpoints, which are the file format. `python -m tests.test_layouts`
writes `layouts.txt` anew, as long as no version has been released."""

from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors.torch import load_file

from tests import heads

STORED = Path(__file__).with_name("layouts.txt")
UNICODE = {"char_units": "unicode", "word_vocab_size": 7, "word_embedding_size": 3, "num_scalar_mixes": 2}
# Of a checkpoint, the model in tests/heads.py and changes of its fields.
NAMES = ["no head", "language models", "last", "biattentive", "maxout", "esim", "decomposable", "roles", "highway"]
CHECKPOINTS = {name: (name, {}) for name in NAMES}
CHECKPOINTS |= {"other characters, words and two mixes": ("no head", UNICODE), "crf": ("crf", heads.VECTORS)}
CHECKPOINTS |= {name: (name, {}) for name in ("no answer", "bidaf", "resolver 2018")}


def describe_all() -> str:
    """A line for each tensor; of a head without those of its biLM."""
    lines = []
    for checkpoint, (name, changes) in CHECKPOINTS.items():
        with TemporaryDirectory() as folder:
            heads.make_new(name, **changes).save_pretrained(folder)
            tensors = load_file(Path(folder, "model.safetensors"))
        own = [tensor for tensor in sorted(tensors) if name == "no head" or not tensor.startswith("elmo.")]
        lines += ["", f"# {checkpoint}", *(f"{one} {list(tensors[one].shape)} {tensors[one].dtype}" for one in own)]
    return "\n".join(lines[1:]) + "\n"


def test_checkpoints_have_the_stored_layouts() -> None:
    assert describe_all() == STORED.read_text(encoding="utf-8")


if __name__ == "__main__":
    STORED.write_text(describe_all(), encoding="utf-8")
