"""A missing library of an extra: the error says which extra installs it."""

import importlib
import sys
from pathlib import Path

import pytest

import hf_elmo
import hf_elmo.pretraining.trainer
from hf_elmo.conversion import export, export_onnx

CALLS = {
    "h5py": ("convert", lambda folder: export(None, folder / "out")),
    "onnx": ("onnx", lambda folder: export_onnx(None, folder / "out.onnx")),
    "datasets": ("train", lambda folder: hf_elmo.read_conll(folder / "file")),
    "sklearn": ("train", lambda folder: importlib.import_module("hf_elmo.integrations.sklearn")),
    "accelerate": ("train", lambda folder: importlib.import_module("hf_elmo.pretraining.trainer")),
    "matplotlib": ("plot", lambda folder: hf_elmo.plot_layer_weights(hf_elmo.load_model()[0])),
    "gradio": ("explore", lambda folder: importlib.import_module("hf_elmo.explore.page")),
}


@pytest.mark.parametrize("module", CALLS)
def test_the_extra_of_a_missing_library_is_named(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extra, call = CALLS[module]
    for name in [module, *(name for name in sys.modules if name.startswith(f"{module}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("integrations.sklearn", "explore.page", "pretraining.trainer"):  # importing these imports the library
        monkeypatch.delitem(sys.modules, f"hf_elmo.{name}", raising=False)
    with pytest.raises(ModuleNotFoundError) as raised:
        call(tmp_path)
    assert f'{module} is not installed; this needs the extra {extra}: pip install -e ".[{extra}]"' in str(raised.value)
