"""The package as a whole: what importing it costs and offers, its registration, and the wheel."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
import transformers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForPreTraining,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

import hf_elmo
from hf_elmo import ElmoConfig, shipped
from tests.conftest import TINY

ROOT = Path(__file__).parent.parent
HEAVY = {
    "h5py",
    "gradio",
    "datasets",
    "ray",
    "triton",
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
    assert getattr(hf_elmo, name) is getattr(hf_elmo, name)
    assert getattr(hf_elmo, name).__doc__


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(AttributeError, match="'hf_elmo' has no attribute 'ElmoForEverything'"):
        _ = hf_elmo.ElmoForEverything
    with pytest.raises(ImportError):
        from hf_elmo import ElmoForEverything  # noqa: F401


# -- registration ------------------------------------------------------------------------------------------------------

AUTO = {
    AutoModel: "ElmoModel",
    AutoModelForPreTraining: "ElmoForPreTraining",
    AutoModelForSequenceClassification: "ElmoForSequenceClassification",
}


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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built of a copy, so that the checkout stays clean."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "outputs", "tests", "examples")
    shutil.copytree(ROOT, folder / "source", ignore=ignored)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), "source"]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    sources = {f"hf_elmo/{path.name}" for path in (ROOT / "hf_elmo").glob("*.py")}
    sources |= {
        f"hf_elmo/{folder}/{path.name}"
        for folder in ("conversion", "model_cards")
        for path in (ROOT / folder).glob("*.py")
    }
    assert sources | {"hf_elmo/py.typed", "hf_elmo/model_cards/template.md"} <= set(names)
    info = f"hf_elmo-{hf_elmo.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"hf_elmo", "hf_elmo_cli", info}
    assert f"{info}/licenses/LICENSE" in names
    for path in shipped.CHECKPOINTS.glob("*/model.safetensors"):
        assert path.relative_to(ROOT).as_posix() in names
        assert path.stat().st_size < 40e6
    assert wheel.stat().st_size < 64e6


def test_the_installed_wheel_runs_outside_of_the_checkout(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    scripts = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    python = str(scripts / "python")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, cwd=tmp_path)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "env")}))
    # The libraries are those of this environment; its own hf_elmo comes after the wheel's.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
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
    size = ElmoConfig.from_pretrained(shipped.FOLDER).hidden_size
    assert printed == f"{site / 'hf_elmo' / 'checkpoints' / shipped.NAME} [1, 6, {size}]\n"


def test_a_former_import_path_still_works() -> None:
    from hf_elmo import pretraining, vocabulary

    assert vocabulary.Vocabulary is pretraining.vocabulary.Vocabulary is hf_elmo.Vocabulary


def test_the_version_is_the_projects() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{hf_elmo.__version__}"' in text


def test_the_installed_transformers_is_one_that_is_supported() -> None:
    assert int(transformers.__version__.split(".")[0]) >= 5
