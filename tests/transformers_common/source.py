"""The common tests of the installed transformers: its source distribution holds them, its wheel does not."""

import importlib
import os
import subprocess
import sys
import tarfile
import tempfile
import types
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import huggingface_hub.constants
import transformers

FOLDER_VARIABLE = "ELMO_TRANSFORMERS_TESTS"
PACKAGE = "transformers_tests"  # not `tests`, which is ours
# What the source distribution leaves out (it has no folders below tests) and its modules import: tests of generation
# and of exporters, which these models are not put through here, and the tests of each pipeline, which pipelines.py
# replaces.
STAND_INS: dict[str, dict[str, type]] = {
    "exporters": {},
    "exporters.test_export": {"ExportTesterMixin": type("ExportTesterMixin", (), {})},
    "generation": {},
    "generation.test_utils": {"GenerationTesterMixin": type("GenerationTesterMixin", (), {})},
}
FILES: dict[str, str] = {
    "fixtures/sample_text.txt": "Any text, of which the tokenizer's tests read the file.\n\nIt has two paragraphs.\n",
    "utils/tiny_model_summary.json": "{}",  # of checkpoints on the Hub; test_pipelines.py makes its own
}


def default_folder() -> Path:
    """Where `fetch` keeps the tests of the installed version."""
    return Path(huggingface_hub.constants.HF_HOME) / "hf_elmo" / f"transformers-{version('transformers')}" / "tests"


def fetch(folder: Path, archive: Path | None = None) -> None:
    """Unpack the tests of the installed transformers into `folder`, unless it holds them already.

    Args:
        folder: a path that ends in `tests`, by which transformers finds it.
        archive: the source distribution; by default pip downloads it.
    """
    if (folder / "test_modeling_common.py").is_file():
        return
    with tempfile.TemporaryDirectory() as downloads:
        if archive is None:
            wanted = f"transformers=={version('transformers')}"
            pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-build-isolation", "--quiet"]
            subprocess.run([*pip, "--no-binary", ":all:", "--dest", downloads, wanted], check=True)
            (archive,) = Path(downloads).glob("*.tar.gz")
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as tar:
            for member in tar.getmembers():
                parts = Path(member.name).parts
                if member.isfile() and len(parts) == 3 and parts[1] == "tests":
                    folder.joinpath(parts[2]).write_bytes(tar.extractfile(member).read())
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


def load(module: str) -> types.ModuleType:
    """A module of transformers' tests, such as `"test_modeling_common"`, from the folder that the environment names."""
    folder = Path(os.environ[FOLDER_VARIABLE])
    if PACKAGE not in sys.modules:
        sys.modules[PACKAGE] = package = types.ModuleType(PACKAGE)
        package.__path__ = [str(folder)]
        for name, content in STAND_INS.items():
            sys.modules[f"{PACKAGE}.{name}"] = stand_in = types.ModuleType(f"{PACKAGE}.{name}")
            stand_in.__path__ = []
            vars(stand_in).update(content)
    # Some execute transformers' __init__ once more, from a folder beside the tests: the installed one is tested.
    with mock.patch("transformers.utils.direct_transformers_import", return_value=transformers):
        return importlib.import_module(f"{PACKAGE}.{module}")
