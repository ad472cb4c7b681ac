"""What is written for others says nothing of the machine: no path in a configuration, a tokenizer or a record."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from safetensors import safe_open
from transformers import AutoModel, AutoTokenizer, Trainer, TrainingArguments

from hf_elmo import ElmoConfig, ElmoForSequenceClassification, ElmoModel, ElmoTokenizer, pretrain
from hf_elmo.conversion import convert

from .allennlp_files import make_arrays, make_options, write_files
from .conftest import TINY, random_model
from .manylangs_files import make_settings, write_model


def require_no_path(folder: Path, *of_the_machine: Path) -> None:
    """No file of a checkpoint names a folder of this machine."""
    files = [file for file in folder.iterdir() if file.is_file()]
    assert {"config.json", "tokenizer_config.json", "tokenizer.json"} <= {file.name for file in files}
    names = [str(path) for path in (*of_the_machine, Path.home(), Path(__file__).parent.parent, os.getcwd())]
    for file in files:
        content = file.read_bytes()
        for name in names:
            assert len(name) > 3, "the test would prove too little"
            assert name.encode() not in content, (file.name, name)


@pytest.fixture
def source(tmp_path: Path) -> tuple[Path, Path]:
    options = make_options()
    return write_files(tmp_path / "source", options, make_arrays(options))


def test_of_a_conversion(source: tuple[Path, Path], tmp_path: Path) -> None:
    require_no_path(convert(*source, tmp_path / "allennlp"), tmp_path)
    folder = write_model(tmp_path / "manylangs-source", make_settings(), [["A", "word"]])
    require_no_path(convert(folder, tmp_path / "manylangs"), tmp_path)
    (source[0].parent / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nword\n")
    require_no_path(convert(source[0].parent, tmp_path / "repository"), tmp_path)


def test_of_what_was_loaded_and_is_saved_again(source: tuple[Path, Path], tmp_path: Path) -> None:
    folder = convert(*source, tmp_path / "first")
    AutoModel.from_pretrained(folder, cache_dir=tmp_path / "cache").save_pretrained(tmp_path / "second")
    AutoTokenizer.from_pretrained(folder, cache_dir=tmp_path / "cache").save_pretrained(tmp_path / "second")
    require_no_path(tmp_path / "second", tmp_path)


def test_of_a_trainer(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    config = ElmoConfig(**TINY, num_labels=2)
    random_model(config, ElmoForSequenceClassification).save_pretrained(tmp_path / "start")
    ElmoTokenizer().save_pretrained(tmp_path / "start")
    model = ElmoForSequenceClassification.from_pretrained(tmp_path / "start")
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "start")
    rows = [{**tokenizer(text), "labels": label} for label, text in enumerate(["A word .", "Two more"] * 2)]
    rows = [{**row, "labels": row["labels"] % 2} for row in rows]
    arguments = TrainingArguments(str(tmp_path / "run"), max_steps=1, save_steps=1, report_to="none", use_cpu=True)
    trainer = Trainer(model, arguments, train_dataset=rows, processing_class=tokenizer)
    trainer.train()
    trainer.save_model()
    for folder in (tmp_path / "run", tmp_path / "run" / "checkpoint-1"):
        (folder / "training_args.bin").unlink()  # Trainer's own, for this machine: hf-elmo push leaves it out
        require_no_path(folder, tmp_path)


def test_of_a_pretraining(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    (tmp_path / "text.txt").write_text("A word is a word .\n" * 60)
    (tmp_path / "held_out.txt").write_text("A word .\n" * 9)
    random_model(ElmoConfig(**TINY)).save_pretrained(tmp_path / "start")
    ElmoTokenizer().save_pretrained(tmp_path / "start")
    settings = {"max_steps": 2, "batch_size": 2, "window": 5, "report_to": []}
    pretrain(tmp_path / "new", tmp_path / "text.txt", config=TINY, held_out=tmp_path / "held_out.txt", **settings)
    pretrain(tmp_path / "adapted", tmp_path / "text.txt", init=tmp_path / "start", **settings)
    for name in ("new", "adapted"):
        require_no_path(tmp_path / name, tmp_path)


# -- the conversion record ---------------------------------------------------------------------------------------------


def metadata(folder: Path) -> dict[str, str]:
    with safe_open(folder / "model.safetensors", "pt") as file:
        return file.metadata()


def test_the_record_says_what_it_was_converted_from(source: tuple[Path, Path], tmp_path: Path) -> None:
    folder = convert(*source, tmp_path / "out", dtype="bfloat16")
    record = json.loads((folder / "conversion.json").read_text())
    digests = [{"file": file.name, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()} for file in source]
    version = json.loads((folder / "config.json").read_text())["hf_elmo_version"]
    assert record == {
        "converted_with": f"hf_elmo {version}",
        "source_format": "AllenNLP's format",
        "sources": digests,
        "dtype": "bfloat16",
        "compared": "read back, every tensor equals its source's value in bfloat16",
    }
    found = metadata(folder)
    assert found.pop("format") == "pt"
    assert json.loads(found.pop("sources")) == digests
    assert found == {key: value for key, value in record.items() if key != "sources"}


def test_the_metadata_leave_the_weights_as_they_are(source: tuple[Path, Path], tmp_path: Path) -> None:
    folder = convert(*source, tmp_path / "out")
    model = ElmoModel.from_pretrained(folder)
    model.save_pretrained(tmp_path / "again")
    assert metadata(tmp_path / "again") == {"format": "pt"}  # a model that is saved again may be another one
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert set(file.keys()) == model.state_dict().keys()
    assert not list(folder.glob("*.partial"))
