"""What a checkpoint carries, and how it runs where hf_elmo is not installed, in a new process."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from huggingface_hub import CommitOperationAdd, HfApi, ModelCard

import hf_elmo
from hf_elmo import (
    CoreferenceCollator,
    ElmoConfig,
    ElmoForCoreferenceResolution,
    ElmoForPreTraining,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
    encode_document,
    kernels,
    remote_code,
)
from hf_elmo.conversion import convert, convert_manylangs
from hf_elmo.remote_code import add_remote_code

from .allennlp_files import make_arrays, make_options, write_files
from .conftest import TINY, random_model
from .manylangs_files import make_settings, write_model
from .reference_manylangs import NumpyManyLangs

TEXTS = ["The cat sat on the mat .", "Ünïcödé wörds , 日本語 !"]
PACKAGE = Path(hf_elmo.__file__).parent
COMMIT = "0123456789abcdef0123456789abcdef01234567"

# The package is installed beside the libraries it needs, so the process makes it impossible to import; and no compiler,
# nor any other program, can be started.
ALONE = """
import sys
sys.modules["hf_elmo"] = None
def refuse(event, arguments):
    if event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.fork", "ctypes.dlopen") and (
        event != "ctypes.dlopen" or "elmo" in str(arguments[0])
    ):
        raise RuntimeError(f"{event} {arguments}")
"""
START = "sys.addaudithook(refuse)\n"

SCRIPT = (
    ALONE
    + """
import json
import numpy as np
import torch
from transformers import (
    AutoConfig, AutoModel, AutoModelForPreTraining, AutoModelForSequenceClassification, AutoModelForTokenClassification,
    AutoTokenizer, pipeline
)
"""
    + START
    + """
name, out, texts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
trust = {"trust_remote_code": True}
tokenizer = AutoTokenizer.from_pretrained(name, **trust)
model = AutoModel.from_pretrained(name, **trust)
config = AutoConfig.from_pretrained(name, **trust)
batch = tokenizer(texts, padding=True, return_tensors="pt")
with torch.no_grad():
    output = model(**batch, output_hidden_states=True)
model.unfreeze_bilm()
model(**batch).pooler_output.square().sum().backward()
gradient = model.get_input_embeddings().weight.grad
classifier = AutoModelForSequenceClassification.from_pretrained(name, num_labels=3, **trust)
tagger = AutoModelForTokenClassification.from_pretrained(name, num_labels=4, tagging_crf=True, **trust)
language_model = AutoModelForPreTraining.from_pretrained(name, vocab_size=9, **trust)
features = pipeline("feature-extraction", model=model, tokenizer=tokenizer)(texts, batch_size=2)
classes = [config, tokenizer, model, classifier, tagger, language_model]
print(json.dumps({
    "modules": [type(instance).__module__ for instance in classes],
    "classes": [type(instance).__name__ for instance in classes],
    "tags": list(tagger(**batch).tags.shape),
    "logits": list(classifier(**batch).logits.shape) + list(language_model(**batch).forward_logits.shape),
    "features": [list(np.shape(row)) for row in features],
    "imported": sorted(name for name in sys.modules if name.split(".")[0] in ("h5py", "datasets")),
}))
layers = torch.stack(output.hidden_states)
np.savez(out, input_ids=batch["input_ids"], mix=output.last_hidden_state, layers=layers, gradient=gradient)
"""
)


def put_into_hub_cache(checkpoint: Path, home: Path, name: str = "elmo-test") -> str:
    """Lay a checkpoint into a cache as huggingface_hub would after downloading it; returns its repository's name."""
    repository = home / "hub" / f"models--somebody--{name}"
    snapshot = repository / "snapshots" / COMMIT
    (repository / "blobs").mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    for number, file in enumerate(sorted(checkpoint.iterdir())):
        blob = repository / "blobs" / f"{number:040x}"
        shutil.copyfile(file, blob)
        (snapshot / file.name).symlink_to(blob)
    return f"somebody/{name}"


def run_without_package(name: str, home: Path, script: str | None = None) -> tuple[dict, dict[str, np.ndarray], str]:
    """What the script prints, what it saves, and what it says on standard error, with `home` as the Hugging Face cache
    and no network."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    environment |= {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "HOME": str(home)}
    environment["OMP_NUM_THREADS"] = str(torch.get_num_threads())  # bits are compared, and MKL's depend on them
    command = [sys.executable, "-I", "-c", script or SCRIPT, name, str(home / "out.npz"), json.dumps(TEXTS)]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    with np.load(home / "out.npz") as arrays:
        return json.loads(done.stdout.splitlines()[-1]), dict(arrays), done.stderr


def test_same_outputs_without_the_package(tmp_path: Path) -> None:
    options = make_options()
    checkpoint = convert(*write_files(tmp_path / "source", options, make_arrays(options)), tmp_path / "elmo-test")
    add_remote_code(checkpoint, "ElmoForSequenceClassification", "ElmoForTokenClassification", "ElmoForPreTraining")
    home = tmp_path / "home"
    said, found, warnings = run_without_package(put_into_hub_cache(checkpoint, home), home)

    assert all(module.startswith("transformers_modules.") for module in said["modules"])
    assert said["classes"] == [
        "ElmoConfig",
        "ElmoTokenizer",
        "ElmoModel",
        "ElmoForSequenceClassification",
        "ElmoForTokenClassification",
        "ElmoForPreTraining",
    ]
    assert said["imported"] == []

    tokenizer, model = ElmoTokenizer.from_pretrained(checkpoint), ElmoModel.from_pretrained(checkpoint)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad(), kernels.use("off"):
        output = model(**batch, output_hidden_states=True)
    np.testing.assert_array_equal(found["input_ids"], batch["input_ids"])
    np.testing.assert_array_equal(found["mix"], output.last_hidden_state)
    np.testing.assert_array_equal(found["layers"], torch.stack(output.hidden_states))
    model.unfreeze_bilm()
    with kernels.use("off"):
        model(**batch).pooler_output.square().sum().backward()
    np.testing.assert_array_equal(found["gradient"], model.get_input_embeddings().weight.grad)
    words = batch["input_ids"].shape[1]
    assert said["logits"] == [2, 3, 2, words, 9]
    assert said["tags"] == [2, words]
    assert [shape[0] for shape in said["features"]] == [1, 1]
    assert [shape[2] for shape in said["features"]] == [14, 14]
    # What transformers says of files that it met as imports of others, once each and in no order; and nothing else.
    listed = [line for line in warnings.split("\n") if line.startswith("- ") and line.endswith("_elmo.py")]
    assert len(listed) == len(set(listed)), warnings
    assert "hf_elmo" not in warnings.replace(sys.prefix, "")  # libraries name their folder: it may be in our clone


CLASSES = {
    "ElmoModel": ElmoModel,
    "ElmoForQuestionAnswering": ElmoForQuestionAnswering,
    "ElmoForSequenceClassification": ElmoForSequenceClassification,
    "ElmoForTokenClassification": ElmoForTokenClassification,
    "ElmoForCoreferenceResolution": ElmoForCoreferenceResolution,
    "ElmoForPreTraining": ElmoForPreTraining,
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_saved_checkpoint_holds_the_listed_files_and_no_others(config: ElmoConfig, tmp_path: Path, name: str) -> None:
    config.vocab_size = 9
    CLASSES[name](config).save_pretrained(tmp_path)
    ElmoTokenizer().save_pretrained(tmp_path)
    code = {file.name for file in tmp_path.glob("*.py")}
    assert code == {*remote_code.FILES[name], *remote_code.FILES["ElmoTokenizer"]}
    settings = json.loads((tmp_path / "config.json").read_text())
    assert settings["auto_map"] == remote_code.auto_map(name)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert settings["auto_map"] == {"AutoTokenizer": [remote_code.AUTO_CLASSES["AutoTokenizer"], None]}
    assert all(not file.is_dir() for file in tmp_path.iterdir())


@pytest.mark.parametrize("name", CLASSES)
def test_each_class_of_the_auto_map_is_in_its_file(name: str) -> None:
    found = remote_code.auto_map(name)
    assert {"AutoConfig", "AutoModel"} <= set(found)
    assert f"{name}" in {reference.partition(".")[2] for reference in found.values()}
    for reference in found.values():
        module, _, class_name = reference.partition(".")
        tree = ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8"))
        assert class_name in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}, reference


def test_a_class_of_somebody_else_is_saved_without_its_source(config: ElmoConfig, tmp_path: Path) -> None:
    class Own(ElmoModel):
        pass

    Own(config).save_pretrained(tmp_path)
    assert {file.name for file in tmp_path.glob("*.py")} == set(remote_code.FILES["ElmoConfig"])
    settings = json.loads((tmp_path / "config.json").read_text())
    assert settings["auto_map"] == {"AutoConfig": remote_code.AUTO_CLASSES["AutoConfig"]}


def test_saving_another_class_names_its_own_files(config: ElmoConfig, tmp_path: Path) -> None:
    config.vocab_size = 9
    ElmoForPreTraining(config).save_pretrained(tmp_path / "first")
    ElmoModel.from_pretrained(tmp_path / "first").save_pretrained(tmp_path / "second")
    settings = json.loads((tmp_path / "second" / "config.json").read_text())
    assert settings["auto_map"] == remote_code.auto_map("ElmoModel")
    assert not (tmp_path / "second" / "modeling_pretraining_elmo.py").exists()


def test_code_is_added_to_a_checkpoint_without(config: ElmoConfig, tmp_path: Path) -> None:
    ElmoForSequenceClassification(config).save_pretrained(tmp_path)
    ElmoTokenizer().save_pretrained(tmp_path)
    written = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    for file in tmp_path.glob("*.py"):
        file.unlink()
    for name in ("config.json", "tokenizer_config.json"):
        settings = json.loads(written[name])
        del settings["auto_map"]
        (tmp_path / name).write_text(json.dumps(settings))
    add_remote_code(tmp_path)
    found = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert found.keys() == written.keys()
    for name, content in found.items():
        assert json.loads(content) == json.loads(written[name]) if name.endswith("json") else content == written[name]


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["BertModel"]}')
    with pytest.raises(ValueError, match="BertModel"):
        add_remote_code(tmp_path)


def test_what_travels_imports_what_it_may() -> None:
    """torch, transformers, what these need, the standard library, one another; and hf_elmo.kernels inside a try."""
    allowed = {"torch", "transformers", "tokenizers", "numpy", "huggingface_hub", *sys.stdlib_module_names}
    forbidden = {"ctypes", "subprocess", "tempfile"}
    for file in PACKAGE.glob("*_elmo.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        guarded = {id(node) for attempt in ast.walk(tree) if isinstance(attempt, ast.Try) for node in ast.walk(attempt)}
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level <= 1
                assert node.level == 0 or f"{node.module}.py" in {path.name for path in PACKAGE.glob("*_elmo.py")}
                names = [node.module] if node.level == 0 else []
            for name in names:
                root = name.partition(".")[0]
                assert root not in forbidden, (file.name, name)
                assert root in allowed or (name == "hf_elmo.kernels" and id(node) in guarded), (file.name, name)


@pytest.mark.parametrize("name", CLASSES)
def test_push_to_hub_sends_the_code(config: ElmoConfig, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    config.vocab_size = 9
    sent = []

    def create_commit(api: HfApi, repo_id: str, operations: list[CommitOperationAdd], **kwargs: object) -> None:
        sent.extend(operation.path_in_repo for operation in operations)

    made = SimpleNamespace(repo_id="somebody/elmo-test")
    monkeypatch.setattr(HfApi, "create_repo", lambda *_, **__: made)
    monkeypatch.setattr(HfApi, "create_commit", create_commit)
    monkeypatch.setattr("transformers.utils.hub.create_and_tag_model_card", lambda *_, **__: ModelCard("card"))
    CLASSES[name](config).push_to_hub("somebody/elmo-test")
    assert set(sent) == {*remote_code.FILES[name], "config.json", "model.safetensors", "README.md"}


HEADS = (
    """
import json
import numpy as np
import torch
from transformers import (
    AutoModelForQuestionAnswering, AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer
)
"""
    + START
    + """
name, out, texts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=True)
kind = name.rpartition("-")[2]
pairs = [texts, texts[::-1]] if kind == "answers" else [texts]
batch = tokenizer(*pairs, padding=True, return_tensors="pt")
auto = {"tagger": AutoModelForTokenClassification, "classifier": AutoModelForSequenceClassification}
auto |= {"answers": AutoModelForQuestionAnswering, "roles": AutoModelForTokenClassification}
if kind == "roles":
    batch["token_type_ids"] = torch.zeros_like(batch["attention_mask"])
    batch["token_type_ids"][:, 1] = 1
model = auto[kind].from_pretrained(name, trust_remote_code=True)
model(**batch)
stored = {"bilm_layers": model.bilm_layers(batch["input_ids"], batch["attention_mask"])}
stored |= {key: value for key, value in batch.items() if key != "input_ids"}
with torch.no_grad():
    logits = "end_logits" if kind == "answers" else "logits"
    found = {"logits": model(**batch)[logits], "stored": model(**stored)[logits]}
np.savez(out, **found)
print(json.dumps({"module": type(model).__module__, "words": tokenizer.words}))
"""
)


@pytest.mark.parametrize("head", ["tagger", "classifier", "answers", "roles"])
def test_heads_with_word_vectors_without_the_package(tmp_path: Path, config: ElmoConfig, head: str) -> None:
    fields = {"encoder_type": "bilstm", "encoder_hidden_size": 7, "elmo_at_output": True}
    fields |= {"word_vectors_vocab_size": 6, "word_vectors_size": 5}
    tokenizer = ElmoTokenizer()
    tokenizer.words = ["the", "mat", "."]
    if head == "tagger":
        crf = {"id2label": {0: "O", 1: "B-x", 2: "I-x"}, "tagging_crf": True, "tagging_scheme": "IOB2"}
        model = random_model(ElmoConfig(**TINY, **fields, **crf), ElmoForTokenClassification)
    elif head == "roles":
        fields |= {"encoder_type": "alternating", "encoder_num_layers": 2, "tagging_indicator_size": 3}
        model = random_model(ElmoConfig(**TINY, **fields), ElmoForTokenClassification)
    elif head == "answers":
        fields |= {"encoder_type": "attention_flow", "allow_no_answer": True}
        model = random_model(ElmoConfig(**TINY, **fields), ElmoForQuestionAnswering)
    else:
        fields["encoder_type"] = "biattentive"
        model = random_model(ElmoConfig(**TINY, **fields), ElmoForSequenceClassification)
    model.save_pretrained(tmp_path / "checkpoint")
    tokenizer.save_pretrained(tmp_path / "checkpoint")
    name = put_into_hub_cache(tmp_path / "checkpoint", tmp_path / "home", f"elmo-{head}")
    said, found, _ = run_without_package(name, tmp_path / "home", ALONE + HEADS)
    assert said["module"].startswith("transformers_modules.")
    assert said["words"] == tokenizer.words
    with torch.no_grad(), kernels.use("off"):
        pairs = [TEXTS, TEXTS[::-1]] if head == "answers" else [TEXTS]
        batch = tokenizer(*pairs, padding=True, return_tensors="pt")
        if head == "roles":  # the first word of each text
            batch["token_type_ids"] = torch.zeros_like(batch["attention_mask"])
            batch["token_type_ids"][:, 1] = 1
        output = model(**batch)
        expected = output.end_logits if head == "answers" else output.logits
    np.testing.assert_allclose(found["logits"], expected, atol=1e-6)
    np.testing.assert_allclose(found["stored"], expected, atol=1e-6)


RESOLVER = (
    """
import json
import numpy as np
import torch
from transformers import AutoTokenizer
from transformers.dynamic_module_utils import get_class_from_dynamic_module
"""
    + START
    + """
name, out, texts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=True)
encoded = tokenizer(texts)
batch = {key: torch.tensor([[x for row in encoded[key] for x in row]]) for key in encoded}
resolver = get_class_from_dynamic_module("modeling_coreference_elmo.ElmoForCoreferenceResolution", name)
model = resolver.from_pretrained(name)
output = model(**batch, labels=torch.tensor([[[0, 1, 0], [7, 8, 0]]]))
output.loss.backward()
np.savez(out, spans=output.spans, scores=output.antecedent_scores.detach(), loss=output.loss.detach())
print(json.dumps({"module": type(model).__module__, "words": tokenizer.words}))
"""
)


def test_the_resolver_of_coreference_without_the_package(tmp_path: Path) -> None:
    """transformers has no Auto class for it: the class comes from the checkpoint by its name."""
    fields = {"encoder_type": "bilstm", "encoder_hidden_size": 7, "elmo_at_output": True, "coreference_max_width": 4}
    fields |= {"word_vectors_vocab_size": 6, "word_vectors_size": 5, "coreference_hidden_size": 8}
    tokenizer = ElmoTokenizer()
    tokenizer.words = ["the", "mat", "."]
    model = random_model(ElmoConfig(**TINY, **fields), ElmoForCoreferenceResolution)
    model.save_pretrained(tmp_path / "checkpoint")
    tokenizer.save_pretrained(tmp_path / "checkpoint")
    name = put_into_hub_cache(tmp_path / "checkpoint", tmp_path / "home", "elmo-resolver")
    said, found, _ = run_without_package(name, tmp_path / "home", ALONE + RESOLVER)
    assert said["module"].startswith("transformers_modules.")
    row = encode_document(tokenizer, "\n".join(TEXTS), [[(0, 1), (7, 8)]])
    with torch.no_grad(), kernels.use("off"):
        expected = model(**CoreferenceCollator(tokenizer)([row]))
    np.testing.assert_array_equal(found["spans"], expected.spans)
    np.testing.assert_allclose(found["scores"], expected.antecedent_scores, atol=1e-5)
    np.testing.assert_allclose(found["loss"], expected.loss, atol=1e-5)


def test_other_characters_and_words_come_along(tmp_path: Path) -> None:
    """From the Hub's cache, too: the character vocabulary is one of the files that the tokenizer asks for."""
    sentences = [text.split() for text in TEXTS]
    source = write_model(tmp_path / "source", make_settings(), sentences)
    checkpoint = convert_manylangs(source, tmp_path / "elmo-test")
    heads = "ElmoForSequenceClassification", "ElmoForTokenClassification", "ElmoForPreTraining"
    add_remote_code(checkpoint, *heads)
    home = tmp_path / "home"
    _, found, _ = run_without_package(put_into_hub_cache(checkpoint, home), home)
    assert found["input_ids"].shape[2] == 51
    reference = NumpyManyLangs(source)
    for row, sentence in enumerate(sentences):
        expected = reference.layers(sentence)
        assert np.abs(found["layers"][:, row, : len(sentence) + 2] - expected).max() <= 1e-5
