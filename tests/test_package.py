"""The package as a whole: what importing it costs and offers, its extras, its types, and wheels with kernels."""

import importlib
import json
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import hf_elmo
import hf_elmo.pretraining.trainer
from hf_elmo.conversion import export, export_onnx
from tests.kernels import machine

ROOT = Path(__file__).parent.parent
HEAVY = {"h5py", "gradio", "datasets", "ray", "tensorflow", "pandas", "pyarrow", "matplotlib", "sklearn", "onnx"}
HEAVY |= {"transformers.modeling_utils", "hf_elmo.modeling_elmo", "hf_elmo.conversion"}
CALLS = {
    "h5py": ("convert", lambda folder: export(None, folder / "out")),
    "onnx": ("onnx", lambda folder: export_onnx(None, folder / "out.onnx")),
    "datasets": ("train", lambda folder: hf_elmo.read_conll(folder / "file")),
    "sklearn": ("train", lambda folder: importlib.import_module("hf_elmo.integrations.sklearn")),
    "accelerate": ("train", lambda folder: importlib.import_module("hf_elmo.pretraining.trainer")),
    "matplotlib": ("plot", lambda folder: hf_elmo.plot_layer_weights(hf_elmo.load_model()[0])),
    "gradio": ("explore", lambda folder: importlib.import_module("hf_elmo.explore.page")),
}


def run(code: str, **options: object) -> str:
    """What a new Python prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, **options).stdout


def test_importing_changes_nothing_of_other_libraries() -> None:
    code = """
import importlib, pkgutil, sys
from importlib.util import find_spec
from unittest.mock import MagicMock
import torch.optim.optimizer, transformers.models.bert.modeling_bert, transformers.pipelines.token_classification
spacy = find_spec("spacy") and importlib.import_module("spacy.tokens.doc")
sys.modules["gradio"] = MagicMock()  # it takes seconds, and is another's
def entries(table):  # of a class the attributes; by dict, as transformers' own tables would load theirs
    table = vars(table) if isinstance(table, type) else table
    return dict(dict.items(table) if isinstance(table, dict) else table)
def tables():  # of modules, what they hold, and what that holds: each once, though many modules hold it
    found, level = {}, [vars(module) for name, module in sys.modules.items() if name.split(".")[0] in OTHERS]
    for _ in range(3):
        level = {id(table): (table, entries(table)) for table in level if id(table) not in found}
        found |= level
        held = [value for _, values in level.values() for value in values.values()]
        level = [value for value in held if isinstance(value, (dict, type))]
    return found
OTHERS = {"spacy", "thinc", "torch", "transformers"}
before = tables()
import hf_elmo.conversion
for module in pkgutil.walk_packages(hf_elmo.__path__, "hf_elmo."):
    if module.name != "hf_elmo.__main__" and (spacy or module.name != "hf_elmo.integrations.spacy"):
        importlib.import_module(module.name)
for table, values in before.values():  # what others have registered may be added; spaCy then replaces its `factories`
    now = entries(table)
    print(*(key for key, value in values.items() if now.get(key) is not value and key != "factories"), end="")
"""
    assert run(code) == ""


@pytest.mark.slow
def test_importing_brings_nothing_heavy_along_and_a_stand_in_is_its_class() -> None:
    code = """
import json, sys
from transformers import AutoModel
before = set(sys.modules)
import hf_elmo, hf_elmo_cli
stand_in = AutoModel._model_mapping[hf_elmo.ElmoConfig]
print(json.dumps(sorted(set(sys.modules) - before)))
model = stand_in(hf_elmo.ElmoConfig(cell_size=8, hidden_size=6, char_filters=[[1, 4]]))
assert type(model) is hf_elmo.ElmoModel
assert isinstance(model, stand_in)
assert stand_in.from_pretrained == hf_elmo.ElmoModel.from_pretrained
from hf_elmo import *
print(json.dumps(sorted(set(dir()) & set(hf_elmo.__all__))))
"""
    modules, names = map(json.loads, run(code).splitlines())
    assert "hf_elmo_cli" in modules
    assert not HEAVY & {*modules, *(module.split(".")[0] for module in modules)}
    assert names == sorted(hf_elmo.__all__)
    assert all(getattr(hf_elmo, name).__name__ == name for name in names)


@pytest.mark.parametrize("module", CALLS)
def test_the_extra_of_a_missing_library_is_named(module: str, tmp_path, monkeypatch) -> None:
    extra, call = CALLS[module]
    for name in [module, *(name for name in sys.modules if name.startswith(f"{module}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("integrations.sklearn", "explore.page", "pretraining.trainer"):  # importing these imports the library
        monkeypatch.delitem(sys.modules, f"hf_elmo.{name}", raising=False)
    with pytest.raises(ModuleNotFoundError) as raised:
        call(tmp_path)
    message = str(raised.value)
    assert f'{module} is not installed; this needs the extra {extra}: pip install "hf-elmo[{extra}]"' in message


@pytest.mark.slow
def test_a_users_script_is_typed() -> None:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent"]
    subprocess.run([*command, "tests/typed_script.py"], check=True, cwd=ROOT)


def build_wheel(folder: Path, platform_name: str) -> Path:
    """A wheel with compiled kernels, built of a copy, so that the checkout stays clean."""
    pytest.importorskip("ziglang")
    ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "outputs", "tests", "examples")
    shutil.copytree(ROOT, folder / "source", ignore=ignored)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), "source"]
    command.append(f"-C--build-option=--plat-name={platform_name}")
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return next(folder.glob(f"*-py3-none-{platform_name}.whl"))


@pytest.mark.slow
@pytest.mark.skipif((sys.platform, platform.machine()) != ("linux", "x86_64"), reason="not Linux on x86-64")
@pytest.mark.skipif("avx2" not in machine.instructions(), reason="no avx2 in /proc/cpuinfo")
def test_a_wheel_for_this_platform_needs_no_compiler(tmp_path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(build_wheel(tmp_path, "manylinux_2_28_x86_64")) as archive:
        names = set(archive.namelist())
        archive.extractall(site)
    info = f"hf_elmo-{hf_elmo.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"hf_elmo", "hf_elmo_cli", info}
    assert names > {"hf_elmo/py.typed", "hf_elmo/__init__.pyi", "hf_elmo/model_cards/template.md"}
    data = [file for file in (ROOT / "hf_elmo").rglob("*.*") if file.suffix in (".css", ".html", ".mplstyle", ".toml")]
    assert len(data) == 6
    assert names >= {file.relative_to(ROOT).as_posix() for file in data} | {"hf_elmo/conversion/published.toml"}
    assert f"{info}/licenses/LICENSE" in names
    code = """
import torch
from hf_elmo import kernels, load_model
from hf_elmo.kernels import native
model, tokenizer = load_model()
batch = tokenizer(["A river bank."] * 32, return_tensors="pt")
ran = []
with torch.no_grad(), kernels.watch(lambda operation, backend, _: ran.append(backend and backend.name)):
    vectors = model(**batch).last_hidden_state
    with kernels.use("off"):
        torch.testing.assert_close(vectors, model(**batch).last_hidden_state, rtol=0, atol=1e-4)
print(native.library()._name, native.describe()["instruction set"], "word-cache" in ran, sep="|")
"""
    environment = {"PATH": "", "PYTHONPATH": str(site), "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    name, instructions, ran = run(code, cwd=tmp_path, env=environment).strip().split("|")
    sets = {"amx_tile": "AMX", "avx512_bf16": "AVX-512 with bfloat16", "avx512f": "AVX-512", "avx2": "AVX2"}
    assert Path(name).parent == site / "hf_elmo" / "kernels" / "compiled"
    assert instructions == next(sets[flag] for flag in sets if flag in machine.instructions())
    assert ran == "True"


@pytest.mark.slow
@pytest.mark.parametrize("platform_name", ["manylinux_2_28_aarch64", "macosx_11_0_arm64", "win_amd64"])
def test_libraries_for_other_platforms_export_their_functions(tmp_path, platform_name: str) -> None:
    with zipfile.ZipFile(build_wheel(tmp_path, platform_name)) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if "/compiled/" in name}
    for name, content in files.items():
        functions = b"layer_f32", b"layer_half", b"characters_gradients", b"instruction_set"
        assert all(function in content for function in functions), name
        assert (b"layer_bf16" in content) == (Path(name).stem == "avx512_bf16")
    assert len(files) == (3 if platform_name.startswith("win") else 1)
