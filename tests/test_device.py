"""Another device than the CPU, a GPU or an emulated one: the numbers of the CPU, and how much a GPU has to launch."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.numpy import load_file
from transformers import Trainer, TrainingArguments

import hf_elmo
from hf_elmo.allennlp import ElmoEmbedder
from tests import emulated_device, source_files
from tests.emulated_device import EmulatedDevice
from tests.factories import SENTENCES, TEXTS, TINY, small_language_model, small_model, small_tokenizer, write_lines
from tests.heads import DOCUMENTS, MODELS, NO_DROPOUT, PASSAGES, QUESTIONS, batch_of, make

HAS_GPU = torch.cuda.is_available()
pytestmark = pytest.mark.skipif(not (HAS_GPU or emulated_device.AVAILABLE), reason=emulated_device.REASON)
CPU, GPU = "cpu", "cuda:0" if HAS_GPU else "gpu:0"
TOKENIZER = hf_elmo.ElmoTokenizer("whitespace")


def other_device() -> AbstractContextManager:
    return nullcontext() if HAS_GPU else emulated_device.emulated_device()


@pytest.fixture
def device() -> Iterator[EmulatedDevice]:
    if HAS_GPU:
        pytest.skip(emulated_device.REASON)
    with emulated_device.emulated_device() as device:
        yield device


def assert_near(found: Any, expected: Any) -> None:
    """Equal text and shapes, and numbers within 1e-5."""
    assert type(found) is type(expected)
    if hasattr(expected, "__dict__"):
        assert_near(vars(found), vars(expected))
    elif isinstance(expected, dict):
        assert_near([*found.items()], [*expected.items()])
    elif isinstance(expected, (list, tuple)):
        for pair in zip(found, expected, strict=True):
            assert_near(*pair)
    elif isinstance(expected, (float, np.ndarray)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    else:
        assert found == expected


def outputs_and_gradients(name: str, place: str) -> dict[str, Any]:
    model = make(name, **NO_DROPOUT, hidden_dropout=0.0).to(place).train()
    output = model(**{key: tensor.to(place) for key, tensor in batch_of(TOKENIZER, name).items()})
    (output.loss if "loss" in output else output.pooler_output.square().sum()).backward()
    found = {key: tensor.grad for key, tensor in model.named_parameters() if tensor.grad is not None}
    found |= {key: tensor for key, tensor in output.items() if torch.is_tensor(tensor)}
    assert all(tensor.device.type == torch.device(place).type for tensor in found.values())
    return {key: tensor.detach().cpu().numpy() for key, tensor in found.items()}


@pytest.mark.parametrize("name", MODELS)
def test_outputs_and_gradients_are_those_of_the_cpu(name):
    expected = outputs_and_gradients(name, CPU)
    with other_device():
        assert_near(outputs_and_gradients(name, GPU), expected)


@pytest.mark.parametrize(("gradients", "most"), [(False, 10), (True, 38)])
def test_what_a_step_of_both_directions_launches(device, gradients, most):
    model = small_model(hidden_dropout=0.0).to(GPU)
    model.freeze_bilm(not gradients)
    word, launches = batch_of(TOKENIZER, "no head")["input_ids"][:1, 1:2].to(GPU), []
    for words in (5, 15):
        before = device.launches
        with torch.set_grad_enabled(gradients):
            vectors = model(word.expand(16, words, -1)).last_hidden_state
        if gradients:
            vectors.sum().backward()
            model.zero_grad()  # to add to gradients would take launches
        launches.append(device.launches - before)
    layers = model.config.num_hidden_layers
    assert launches[1] - launches[0] <= 10 * layers * most


@pytest.mark.parametrize(("name", "most"), [("no head", 5), ("language models", 9), ("crf", 22)])
def test_how_often_the_cpu_waits(device, name, most):
    model = make(name, num_sampled=5).to(GPU).train()
    batch = {key: torch.cat([tensor] * 64).to(GPU) for key, tensor in batch_of(TOKENIZER, name).items()}
    before = device.waits
    output = model(**batch)
    if name != "no head":
        output.loss.backward()
    assert device.waits - before <= most


def embedded(folder: Path, place: str) -> Any:
    texts = write_lines(folder / "texts.txt", SENTENCES)
    hf_elmo.embed(small_model().to(place), texts, folder / "out.safetensors", tokenizer=TOKENIZER, layers="all")
    return load_file(folder / "out.safetensors")


def called(function: Callable, head: str, *texts: list) -> Callable[[Path, str], Any]:
    return lambda folder, place: function(make(head), *texts, tokenizer=TOKENIZER, device=place)


def stored(folder: Path, place: str) -> Any:
    rows = Dataset.from_dict(dict(TOKENIZER(SENTENCES)))
    return [row["bilm_layers"] for row in hf_elmo.store_layers(make("tagger").to(place), rows)]


def language(folder: Path, place: str) -> Any:
    tokenizer = small_tokenizer(folder)
    model, how = small_language_model(tokenizer).to(place), {"tokenizer": tokenizer}
    lines = write_lines(folder / "lines.txt", TEXTS)
    found = [hf_elmo.perplexity(model, lines, stateful=stateful, **how) for stateful in (False, True)]
    found += [hf_elmo.score(model, TEXTS, **how), hf_elmo.next_words(model, TEXTS[0], **how)]
    found += [hf_elmo.substitutes(model, TEXTS[0], "cat", **how)]
    found += [hf_elmo.nearest_neighbors(model, TEXTS[0], "cat", TEXTS[1:], **how)]
    hf_elmo.settle(model, TEXTS, **how)
    return [*found, hf_elmo.embed(model, TEXTS, **how)]


def with_allennlp(folder: Path, place: str) -> Any:
    files = source_files.write_files(folder / "source")
    embedder = ElmoEmbedder(*files, cuda_device=-1 if place == CPU else 0)
    return [*embedder.embed_sentences([text.split() for text in SENTENCES])]


def trained(folder: Path, place: str) -> dict[str, np.ndarray]:
    """The weights after two steps of a tagger."""
    rows = Dataset.from_dict(dict(TOKENIZER(SENTENCES)))
    rows = rows.map(lambda row: {"labels": [-100, *[0] * (len(row["input_ids"]) - 2), -100]})
    how = {"max_steps": 2, "optim": "sgd", "learning_rate": 0.5, "save_strategy": "no", "report_to": []}
    arguments = TrainingArguments(folder, use_cpu=place == CPU, disable_tqdm=True, dataloader_pin_memory=False, **how)
    model = make("crf", **NO_DROPOUT)
    trainer = Trainer(model, arguments, train_dataset=rows, data_collator=hf_elmo.TaggingCollator(TOKENIZER))
    trainer.train()
    assert model.device.type == torch.device(place).type
    trainer.save_model(folder)
    return load_file(folder / "model.safetensors")


def pretrained(folder: Path, place: str) -> dict[str, np.ndarray]:
    """The weights after two steps, the second of them after a checkpoint."""
    texts = write_lines(folder / "texts.txt", TEXTS * 4)
    config = {**TINY, "hidden_dropout": 0.0, "num_sampled": 100 if HAS_GPU else 5}  # a GPU draws other samples
    how = {"config": config, "batch_size": 3, "window": 5, "save_steps": 1, "use_cpu": place == CPU}
    how |= {"optim": "sgd", "learning_rate": 0.5, "lr_scheduler_type": "constant", "ema": 0.5, "disable_tqdm": True}
    held_out = write_lines(folder / "held_out.txt", TEXTS)
    hf_elmo.pretrain(texts, folder / "out", held_out, max_steps=1, **how)
    hf_elmo.pretrain(texts, folder / "out", held_out, resume=True, max_steps=2, **how)
    return load_file(folder / "out" / "model.safetensors")


USES = {"embed": embedded, "stored layers": stored, "language models": language, "allennlp": with_allennlp}
USES |= {name: called(hf_elmo.predict, name, SENTENCES) for name in ("pooled", "crf")}
USES |= {"answer": called(hf_elmo.answer, "no answer", QUESTIONS, PASSAGES)}
USES |= {"resolve": called(hf_elmo.resolve, "resolver", DOCUMENTS), "training": trained, "pretraining": pretrained}


@pytest.mark.parametrize(("use", "place"), [*((use, GPU) for use in USES), *((use, CPU) for use in list(USES)[:-2])])
def test_what_users_call(use, place, tmp_path, monkeypatch):
    """On the CPU, too, where the other one is the default device (with which accelerate needs a generator of it)."""
    expected = USES[use](tmp_path / "cpu", CPU)
    with other_device(), torch.device(CPU if place == GPU else GPU):
        monkeypatch.setattr(torch.nn.Module, "cuda", lambda module, index: module.to(GPU))
        assert_near(USES[use](tmp_path / "gpu", place), expected)
