"""The package as a whole: what importing it costs and offers, its registration, and the wheel."""

import inspect
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForPreTraining,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

import hf_elmo
from hf_elmo import ElmoConfig, loading
from hf_elmo.kernels.native import FUNCTIONS
from tests.conftest import TINY
from tests.kernels import machine

ROOT = Path(__file__).parent.parent
HEAVY = {
    "h5py",
    "gradio",
    "datasets",
    "ray",
    "tensorflow",
    "pandas",
    "pyarrow",
    "matplotlib",
    "sklearn",
    "onnx",
    "onnxscript",
}


def run(code: str, **options: object) -> str:
    """What a new Python prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, **options).stdout


# -- importing ---------------------------------------------------------------------------------------------------------


def test_importing_brings_nothing_heavy_along() -> None:
    code = """
import json, sys
from transformers import AutoModel
before = set(sys.modules)
import hf_elmo, hf_elmo_cli
print(json.dumps(sorted(set(sys.modules) - before)))
from hf_elmo import *
print(json.dumps(sorted(set(dir()) & set(hf_elmo.__all__))))
"""
    modules, names = map(json.loads, run(code).splitlines())
    assert "hf_elmo_cli" in modules
    assert not HEAVY & {module.split(".")[0] for module in modules}
    assert not {"transformers.modeling_utils", "hf_elmo.modeling_elmo", "hf_elmo.conversion"} & set(modules)
    assert names == sorted(hf_elmo.__all__)


@pytest.mark.parametrize("name", hf_elmo.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert name in dir(hf_elmo)
    assert getattr(hf_elmo, name).__name__ == name
    assert getattr(hf_elmo, name).__doc__


# -- registration ------------------------------------------------------------------------------------------------------

AUTO = {
    AutoModel: "ElmoModel",
    AutoModelForPreTraining: "ElmoForPreTraining",
    AutoModelForSequenceClassification: "ElmoForSequenceClassification",
}


def test_the_model_comes_first_and_the_tokenizer_by_name() -> None:
    functions = [value for name in hf_elmo.__all__ if inspect.isfunction(value := getattr(hf_elmo, name))]
    of_models = [
        signature.parameters for signature in map(inspect.signature, functions) if "model" in signature.parameters
    ]
    assert sum("tokenizer" in parameters for parameters in of_models) > 10
    for parameters in of_models:
        assert next(iter(parameters)) == "model"
        if "tokenizer" in parameters and "path" not in parameters:
            assert parameters["tokenizer"].kind is inspect.Parameter.KEYWORD_ONLY
            assert parameters["tokenizer"].default is None


def test_the_configuration_is_registered() -> None:
    assert type(AutoConfig.for_model("elmo", **TINY)) is hf_elmo.ElmoConfig


@pytest.mark.parametrize(("auto", "name"), AUTO.items(), ids=lambda value: getattr(value, "__name__", value))
def test_every_model_is_registered(tmp_path: Path, auto: type, name: str) -> None:
    model_class = getattr(hf_elmo, name)
    model = auto.from_config(hf_elmo.ElmoConfig(**TINY, vocab_size=31))
    assert type(model) is model_class
    model.save_pretrained(tmp_path)
    assert type(auto.from_pretrained(tmp_path)) is model_class
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [name]


def test_the_tokenizer_is_registered(tmp_path: Path) -> None:
    hf_elmo.ElmoConfig(**TINY).save_pretrained(tmp_path)
    hf_elmo.ElmoTokenizer().save_pretrained(tmp_path)
    assert type(AutoTokenizer.from_pretrained(tmp_path)) is hf_elmo.ElmoTokenizer


def test_the_stand_ins_are_taken_for_their_classes() -> None:
    code = """
import sys
import hf_elmo
from transformers import AutoModel
stand_in = AutoModel._model_mapping[hf_elmo.ElmoConfig]
assert "hf_elmo.modeling_elmo" not in sys.modules
model = stand_in(hf_elmo.ElmoConfig(cell_size=8, hidden_size=6, char_filters=[[1, 4]]))
assert type(model) is hf_elmo.ElmoModel
assert isinstance(model, stand_in)
assert stand_in.from_pretrained == hf_elmo.ElmoModel.from_pretrained
print(type(model).__name__)
"""
    assert run(code) == "ElmoModel\n"


# -- the wheel ---------------------------------------------------------------------------------------------------------


def build_wheel(folder: Path, *options: str) -> Path:
    """The wheel, built of a copy, so that the checkout stays clean."""
    ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "outputs", "tests", "examples")
    shutil.copytree(ROOT, folder / "source", ignore=ignored)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", *options, "--outdir", str(folder), "source"]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def install(wheel: Path, folder: Path) -> tuple[Path, Path]:
    """The scripts and the packages of a new environment with the wheel, and the libraries of this one."""
    venv.create(folder, with_pip=False)
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    pip = [sys.executable, "-m", "pip", "--python", str(scripts / "python"), "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True, cwd=folder)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # The libraries are those of this environment; its own hf_elmo comes after the wheel's.
    (site / "libraries.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")) + "\n")
    return scripts, site


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    sources = {f"hf_elmo/{path.name}" for path in (ROOT / "hf_elmo").glob("*.py")}
    sources |= {
        f"hf_elmo/{folder}/{path.name}"
        for folder in ("conversion", "model_cards")
        for path in (ROOT / folder).glob("*.py")
    }
    assert sources | {"hf_elmo/py.typed", "hf_elmo/__init__.pyi", "hf_elmo/model_cards/template.md"} <= set(names)
    info = f"hf_elmo-{hf_elmo.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"hf_elmo", "hf_elmo_cli", info}
    assert wheel.name.endswith("-py3-none-any.whl")
    assert f"{info}/licenses/LICENSE" in names
    assert (loading.FOLDER / "model.safetensors").relative_to(ROOT).as_posix() in names
    assert wheel.stat().st_size < 42e6


def test_the_installed_wheel_runs_outside_of_the_checkout(wheel: Path, tmp_path: Path) -> None:
    scripts, site = install(wheel, tmp_path / "env")
    python = str(scripts / "python")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    options = {"check": True, "capture_output": True, "text": True, "cwd": tmp_path, "env": environment}
    help_text = subprocess.run([str(scripts / "hf-elmo"), "--help"], **options).stdout
    assert "convert" in help_text
    assert "embed" in help_text
    code = (
        "import hf_elmo, hf_elmo.conversion, hf_elmo.model_cards, importlib.resources as r, importlib.metadata as m;"
        "print(hf_elmo.__file__, hf_elmo.conversion.convert.__name__, m.version('hf-elmo'));"
        "print(r.files('hf_elmo.model_cards').joinpath('template.md').is_file())"
    )
    lines = subprocess.run([python, "-c", code], **options).stdout.splitlines()
    assert lines == [f"{site / 'hf_elmo' / '__init__.py'} convert {hf_elmo.__version__}", "True"]
    environment |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "no cache")}
    code = (
        "import hf_elmo; model, tokenizer = hf_elmo.load_default();"
        "output = model(**tokenizer('A river bank.', return_tensors='pt'));"
        "print(model.config._name_or_path, list(output.last_hidden_state.shape))"
    )
    printed = subprocess.run([python, "-c", code], **options).stdout
    size = ElmoConfig.from_pretrained(loading.FOLDER).hidden_size
    assert printed == f"{site / 'hf_elmo' / 'checkpoints' / loading.NAME} [1, 6, {size}]\n"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")
def test_a_users_script_is_typed(wheel: Path, tmp_path: Path) -> None:
    scripts, _ = install(wheel, tmp_path / "env")
    shutil.copy(ROOT / "tests" / "typed_script.py", tmp_path)
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(scripts / "python")]
    subprocess.run([*command, "typed_script.py"], check=True, cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ziglang") is None, reason="ziglang is not installed")
@pytest.mark.skipif((sys.platform, platform.machine()) != ("linux", "x86_64"), reason="not Linux on x86-64")
@pytest.mark.skipif("avx2" not in machine.instructions(), reason="no avx2 in /proc/cpuinfo")
def test_a_wheel_for_this_platform_needs_no_compiler(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, "-C--build-option=--plat-name=manylinux_2_28_x86_64")
    assert wheel.name.endswith("-py3-none-manylinux_2_28_x86_64.whl")
    scripts, site = install(wheel, tmp_path / "env")
    code = """
import torch
from hf_elmo import kernels, load_default
from hf_elmo.kernels import native
model, tokenizer = load_default()
batch = tokenizer(["A river bank."] * 32, return_tensors="pt")
with torch.no_grad(), kernels.record() as ran:
    vectors = model(**batch).last_hidden_state
    with kernels.use("off"):
        torch.testing.assert_close(vectors, model(**batch).last_hidden_state, rtol=0, atol=1e-4)
print(native.library()._name, native.describe()["instruction set"], "word-cache" in dict(ran).values(), sep="|")
"""
    environment = {"PATH": str(scripts), "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    options = {"check": True, "capture_output": True, "text": True, "cwd": tmp_path, "env": environment}
    name, instructions, ran = subprocess.run([scripts / "python", "-c", code], **options).stdout.strip().split("|")
    sets = {"amx_tile": "AMX", "avx512_bf16": "AVX-512 with bfloat16", "avx512f": "AVX-512", "avx2": "AVX2"}
    assert Path(name).parent == site / "hf_elmo" / "kernels" / "compiled"
    assert instructions == next(sets[flag] for flag in sets if flag in machine.instructions())
    assert ran == "True"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ziglang") is None, reason="ziglang is not installed")
@pytest.mark.parametrize("platform_name", ["manylinux_2_28_aarch64", "macosx_11_0_arm64", "win_amd64"])
def test_libraries_for_other_platforms_export_their_functions(tmp_path: Path, platform_name: str) -> None:
    wheel = build_wheel(tmp_path, f"-C--build-option=--plat-name={platform_name}")
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if "/compiled/" in name}
    for name, content in files.items():
        kinds = {"avx512": ("f32",), "avx512_bf16": ("f32", "bf16")}.get(Path(name).stem, ())
        some = re.compile("(layer|scratch)_(.*)|request_tiles")  # of the instruction set
        expected = {name for name in FUNCTIONS if not (match := some.fullmatch(name)) or match[2] in kinds}
        assert {name for name in FUNCTIONS if re.search(rb"[\0_]" + name.encode() + rb"\0", content)} == expected
    assert len(files) == (3 if platform_name.startswith("win") else 1)
