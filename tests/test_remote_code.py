"""A converted checkpoint where hf_elmo is not installed: `trust_remote_code=True`, the Hub's cache, a new process."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from hf_elmo import ElmoModel, ElmoTokenizer
from hf_elmo.conversion import convert

from .allennlp_files import make_arrays, make_options, write_files

TEXTS = ["The cat sat on the mat .", "Ünïcödé wörds , 日本語 !"]
COMMIT = "0123456789abcdef0123456789abcdef01234567"

# The package is installed beside the libraries it needs, so the process makes it impossible to import.
SCRIPT = """
import json, sys
sys.modules["hf_elmo"] = None
import numpy as np
import torch
from transformers import (
    AutoConfig, AutoModel, AutoModelForPreTraining, AutoModelForSequenceClassification, AutoTokenizer, pipeline
)

name, out, texts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
trust = {"trust_remote_code": True}
tokenizer = AutoTokenizer.from_pretrained(name, **trust)
model = AutoModel.from_pretrained(name, **trust)
config = AutoConfig.from_pretrained(name, **trust)
batch = tokenizer(texts, padding=True, return_tensors="pt")
with torch.no_grad():
    output = model(**batch, output_hidden_states=True)
classifier = AutoModelForSequenceClassification.from_pretrained(name, num_labels=3, **trust)
language_model = AutoModelForPreTraining.from_pretrained(name, vocab_size=9, **trust)
features = pipeline("feature-extraction", model=model, tokenizer=tokenizer)(texts, batch_size=2)
classes = [config, tokenizer, model, classifier, language_model]
print(json.dumps({
    "modules": [type(instance).__module__ for instance in classes],
    "classes": [type(instance).__name__ for instance in classes],
    "logits": list(classifier(**batch).logits.shape) + list(language_model(**batch).forward_logits.shape),
    "features": [list(np.shape(row)) for row in features],
    "imported": sorted(name for name in sys.modules if name.split(".")[0] in ("h5py", "datasets")),
}))
np.savez(out, input_ids=batch["input_ids"], mix=output.last_hidden_state, layers=torch.stack(output.hidden_states))
"""


def put_into_hub_cache(checkpoint: Path, home: Path) -> str:
    """Lay a checkpoint into a cache as huggingface_hub would after downloading it; returns its repository's name."""
    repository = home / "hub" / "models--somebody--elmo-test"
    snapshot = repository / "snapshots" / COMMIT
    (repository / "blobs").mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    for number, file in enumerate(sorted(checkpoint.iterdir())):
        blob = repository / "blobs" / f"{number:040x}"
        shutil.copyfile(file, blob)
        (snapshot / file.name).symlink_to(blob)
    return "somebody/elmo-test"


def run_without_package(name: str, home: Path) -> tuple[dict, dict[str, np.ndarray]]:
    """What the script prints and what it saves, with `home` as the Hugging Face cache and no network."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    environment |= {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "HOME": str(home)}
    command = [sys.executable, "-I", "-c", SCRIPT, name, str(home / "out.npz"), json.dumps(TEXTS)]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    with np.load(home / "out.npz") as arrays:
        return json.loads(done.stdout.splitlines()[-1]), dict(arrays)


def test_same_outputs_without_the_package(tmp_path: Path) -> None:
    options = make_options()
    checkpoint = convert(*write_files(tmp_path / "source", options, make_arrays(options)), tmp_path / "elmo-test")
    home = tmp_path / "home"
    said, found = run_without_package(put_into_hub_cache(checkpoint, home), home)

    assert all(module.startswith("transformers_modules.") for module in said["modules"])
    assert said["classes"] == [
        "ElmoConfig",
        "ElmoTokenizer",
        "ElmoModel",
        "ElmoForSequenceClassification",
        "ElmoForPreTraining",
    ]
    assert said["imported"] == []

    tokenizer, model = ElmoTokenizer.from_pretrained(checkpoint), ElmoModel.from_pretrained(checkpoint)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        output = model(**batch, output_hidden_states=True)
    np.testing.assert_array_equal(found["input_ids"], batch["input_ids"])
    np.testing.assert_array_equal(found["mix"], output.last_hidden_state)
    np.testing.assert_array_equal(found["layers"], torch.stack(output.hidden_states))
    words = batch["input_ids"].shape[1]
    assert said["logits"] == [2, 3, 2, words, 9]
    assert [shape[0] for shape in said["features"]] == [1, 1]
    assert [shape[2] for shape in said["features"]] == [14, 14]
