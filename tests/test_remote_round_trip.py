"""A checkpoint, however it was saved, loads and is saved again by remote code alone, in a process without hf_elmo."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import PreTrainedModel, Trainer, TrainingArguments

from hf_elmo import (
    ElmoConfig,
    ElmoForCoreferenceResolution,
    ElmoForPreTraining,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
    remote_code,
)

from .conftest import TINY, random_model
from .test_remote_code import ALONE, START, put_into_hub_cache

MODELS = {
    "AutoModel": ElmoModel,
    "AutoModelForSequenceClassification": ElmoForSequenceClassification,
    "AutoModelForTokenClassification": ElmoForTokenClassification,
    "AutoModelForPreTraining": ElmoForPreTraining,
    "AutoModelForQuestionAnswering": ElmoForQuestionAnswering,
    "AutoModelForCoreferenceResolution": ElmoForCoreferenceResolution,  # transformers has no such class
}
SETTINGS = {**TINY, "vocab_size": 9, "num_labels": 3}

# A custom model and its tokenizer, four files in all, with nothing in them that could say anything.
FOUR = {
    "configuration_four.py": """
from transformers import PreTrainedConfig

class FourConfig(PreTrainedConfig):
    model_type = "four"
    size: int = 3
""",
    "parts_four.py": """
from torch import nn

class FourPart(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.embedding = nn.Embedding(5, size)
""",
    "modeling_four.py": """
from transformers import PreTrainedModel
from .configuration_four import FourConfig
from .parts_four import FourPart

class FourModel(PreTrainedModel):
    config_class = FourConfig

    def __init__(self, config):
        super().__init__(config)
        self.part = FourPart(config.size)
        self.post_init()

    def forward(self, input_ids, **kwargs):
        return (self.part.embedding(input_ids),)
""",
    "tokenization_four.py": """
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import TokenizersBackend

class FourTokenizer(TokenizersBackend):
    model_input_names = ["input_ids", "attention_mask"]

    def __init__(self, **kwargs):
        backend = Tokenizer(models.WordLevel({"<unk>": 0, "<pad>": 1, "The": 2, "cat": 3}, unk_token="<unk>"))
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        kwargs |= {"tokenizer_object": backend, "unk_token": "<unk>", "pad_token": "<pad>"}
        super().__init__(**kwargs)
""",
}

# Loads each checkpoint, saves it, and loads what was saved; on standard error a line goes ahead of what each step says.
SCRIPT = (
    ALONE
    + """
import json
import torch
import transformers
from transformers import AutoConfig, AutoTokenizer
from transformers.dynamic_module_utils import get_class_from_dynamic_module
torch.set_num_threads(1)
"""
    + START
    + """
def say(*words):
    print("#", *words, file=sys.stderr, flush=True)

def class_of(auto, source):
    config = AutoConfig.from_pretrained(source, trust_remote_code=True)
    return get_class_from_dynamic_module(config.auto_map[auto], source)

def load(auto, source):
    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=True)
    if hasattr(transformers, auto):
        model = getattr(transformers, auto).from_pretrained(source, trust_remote_code=True).eval()
    else:
        model = class_of(auto, source).from_pretrained(source).eval()
    assert type(model).__module__.startswith("transformers_modules."), type(model).__module__
    assert type(tokenizer).__module__.startswith("transformers_modules."), type(tokenizer).__module__
    texts = [["The cat"], ["A cat sat"]] if getattr(model, "reads_text_pairs", False) else [["The cat"]]
    with torch.no_grad():
        output = model(**tokenizer(*texts, return_tensors="pt"))
    return model, tokenizer, getattr(output, "mention_scores", output[0])

for auto, name, out in json.loads(sys.argv[1]):
    say(out, "load")
    model, tokenizer, before = load(auto, name)
    say(out, "save")
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    say(out, "load again")
    again, _, after = load(auto, out)
    say("end")
    assert before.abs().sum() > 0 and torch.equal(before, after), out
    assert type(again).__name__ == type(model).__name__, out
print("all loaded")
"""
)


def by_save_pretrained(model: PreTrainedModel, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model.save_pretrained(folder)
    ElmoTokenizer().save_pretrained(folder)


def trainer_of(model: PreTrainedModel, folder: Path) -> Trainer:
    settings = TrainingArguments(str(folder), report_to="none", use_cpu=True)
    return Trainer(model=model, args=settings, processing_class=ElmoTokenizer())


def by_save_model(model: PreTrainedModel, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer_of(model, folder).save_model()


def by_push_to_hub(model: PreTrainedModel, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uploads = []

    def upload_folder(folder_path: str, **_: object) -> None:
        shutil.copytree(folder_path, folder)
        uploads.append(folder_path)

    created = SimpleNamespace(repo_id="somebody/elmo")
    api = SimpleNamespace(create_repo=lambda *_, **__: created, upload_folder=upload_folder)
    monkeypatch.setattr("transformers.trainer.hf_api", lambda: api)
    trainer_of(model, folder.with_name("trained-" + folder.name)).push_to_hub()
    assert uploads


WAYS: dict[str, Callable] = {
    "save_pretrained": by_save_pretrained,
    "save_model": by_save_model,
    "push_to_hub": by_push_to_hub,
}


def save_four(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder.with_name("four_files")
    package.mkdir()
    for name, content in FOUR.items():
        (package / name).write_text(content)
    monkeypatch.syspath_prepend(str(package.parent))
    modeling = importlib.import_module("four_files.modeling_four")
    modeling.FourConfig.register_for_auto_class()
    modeling.FourModel.register_for_auto_class("AutoModel")
    tokenization = importlib.import_module("four_files.tokenization_four")
    tokenization.FourTokenizer.register_for_auto_class()
    modeling.FourModel(modeling.FourConfig()).save_pretrained(folder)
    tokenization.FourTokenizer().save_pretrained(folder)


def run_round_trips(root: Path, jobs: list[tuple[str, str]]) -> dict[str, str]:
    """Load each (Auto class, name) of the folder `first` as from the Hub, save it in `second`, and load it from there.

    One process does all, because it takes seconds to start. Returns what each step of it said on standard error.
    """
    home = root / "home"
    sources = {name: put_into_hub_cache(root / "first" / name, home, name) for _, name in jobs}
    # The first of all says what the libraries say when they are imported.
    arguments = [("AutoModel", str(root / "first" / "four"), str(root / "second" / "imports"))]
    arguments += [(auto, sources[name], str(root / "second" / name)) for auto, name in jobs]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    environment |= {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "HOME": str(home)}
    environment["TQDM_MININTERVAL"] = "3600"  # a bar is drawn at its ends alone, however slow the machine is
    command = [sys.executable, "-I", "-c", SCRIPT, json.dumps(arguments)]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all loaded\n"
    return _steps(done.stderr)


def _steps(text: str) -> dict[str, str]:
    _, *parts = re.split(r"^# (.+)\n", text, flags=re.MULTILINE)
    return {Path(step).name: said for step, said in zip(parts[::2], parts[1::2], strict=True)}


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def require_complete(first: Path, second: Path, class_name: str) -> None:
    before, after = files_of(first), files_of(second)
    of_the_training = {"training_args.bin", "README.md"}
    assert before.keys() - of_the_training == after.keys()
    code = {*remote_code.FILES[class_name], *remote_code.FILES["ElmoTokenizer"]}
    assert {file for file in after if file.endswith(".py")} == code
    for file in code | {"model.safetensors", "tokenizer.json"}:
        assert after[file] == before[file], (first.name, file)
    old, new = (json.loads(files["config.json"]) for files in (before, after))
    assert new["auto_map"] == old["auto_map"] == remote_code.auto_map(class_name)
    old.pop("use_cache", None)  # Trainer sets it, and transformers reads it as an option of generation
    assert new == old
    old, new = (json.loads(files["tokenizer_config.json"]) for files in (before, after))
    assert new["auto_map"] == old["auto_map"]


# What transformers says of the code files that it downloads: each once, in as many of these as there are files with
# imports that it had not met before, which differs from run to run.
NOTICE = re.compile(
    r"\[transformers\] A new version of the following files was downloaded from \S+:\n"
    r"((?:- \w+\.py\n)+)\. Make sure .*\n?"
)


def require_each_file_named_once(said: str, class_name: str) -> None:
    named = [file for files in NOTICE.findall(said) for file in files.split()[1::2]]
    assert 0 < len(named) == len(set(named)), said
    assert set(named) < {*remote_code.FILES[class_name], *remote_code.FILES["ElmoTokenizer"]}, said


def lines_of(said: str) -> list[str]:
    return [line for line in re.split(r"[\r\n]+", NOTICE.sub("", said)) if line.strip()]


def test_a_checkpoint_makes_the_round_trip_however_it_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is complete, and no more is said of it than of a plain custom model of four files; but for the notices of
    downloaded code, which name every file, and of a folder there are none."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    save_four(first / "four", monkeypatch)
    class_names, jobs = {}, [("AutoModel", "four")]
    for auto, model_class in MODELS.items():
        for way, save in WAYS.items():
            name = f"{auto}-{way}"
            save(random_model(ElmoConfig(**SETTINGS), model_class), first / name, monkeypatch)
            class_names[name] = model_class.__name__
            jobs.append((auto, name))
    said = run_round_trips(tmp_path, jobs)
    for name, class_name in class_names.items():
        require_complete(first / name, second / name, class_name)
        require_each_file_named_once(said[f"{name} load"], class_name)
        for step in ("save", "load again"):
            assert "new version" not in said[f"{name} {step}"]
        for step in ("load", "save", "load again"):
            assert len(lines_of(said[f"{name} {step}"])) <= len(lines_of(said[f"four {step}"])), said[f"{name} {step}"]
