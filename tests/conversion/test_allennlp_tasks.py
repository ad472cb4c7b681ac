"""Task models of AllenNLP as heads with the same predictions: archives that AllenNLP wrote, and one made here."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoConfig

from hf_elmo import ElmoForQuestionAnswering, ElmoModel, ElmoTokenizer, answer, names, predict
from hf_elmo.conversion import convert, load
from hf_elmo.tasks.predict import TASKS
from tests.conversion.test_allennlp_archive import OPTIONS, state_of, task, write_task
from tests.factories import write_lines

ARCHIVES = [(name, True) for name in ("ner", "ner_plain", "fine_grained_ner", "srl", "srl_old", "bcn_tied")]
# The data's esim and bidaf with state are not what AllenNLP computes: their encoders, too, were made to carry state.
ARCHIVES += [("decomposable", True), ("decomposable", False), ("esim_tied", False), ("bidaf", False)]
UNLIKE = {"bcn": "encoder.feedforward.weight", "esim": "interaction.combine.weight"}
INPUTS = {"tags": ("words",), "roles": ("words", "predicate"), "label": ("words",), "pair": ("premise", "hypothesis")}


def logits_of(folder: Path, rows: list[Any], **fields: Any) -> list[np.ndarray]:
    """The logits of each row by itself, without boundaries."""
    (name,) = AutoConfig.from_pretrained(folder).architectures
    task = TASKS[name](getattr(names, name).from_pretrained(folder, **fields), ElmoTokenizer.from_pretrained(folder))
    with torch.inference_mode():
        batches = [task.collate([piece.inputs for piece in task.encode([task.read(row)])]) for row in rows]
        logits = [task.model(**batch).logits[0].numpy() for batch in batches]
    return [values[1:-1] if values.ndim == 2 else values for values in logits]


def compare(archive: Path, folder: Path, **fields: Any) -> None:
    """An archive's logits and predictions by AllenNLP, in `expected.json` beside it, with ours."""
    expected = json.loads(archive.with_name("expected.json").read_text(encoding="utf-8"))
    out, instances = convert(archive, folder), expected["instances"]
    if expected["kind"] == "span":
        return compare_answers(out, instances)
    rows = [tuple(row[name] for name in INPUTS[expected["kind"]]) for row in instances]
    rows = [row if len(row) > 1 else row[0] for row in rows]
    if fields:  # of AllenNLP's without the state after the first text
        instances = [row["without_state"] for row in instances]
    theirs = [np.array(row["logits"]) for row in instances]
    how = {"rtol": 0, "atol": 1e-5 * max(abs(each).max() for each in theirs), "check_dtype": False}
    torch.testing.assert_close(logits_of(out, rows, **fields), theirs, **how)
    if not fields:
        field = "tags" if "tags" in instances[0] else "label"
        assert [record[field] for record in predict(str(out), rows)] == [row[field] for row in instances]


def compare_answers(folder: Path, instances: list[dict[str, Any]]) -> None:
    """Without state, as of ESIM; answers where whitespace separates all words."""
    model = ElmoForQuestionAnswering.from_pretrained(folder)
    assert model.config.carry_state
    model.config.carry_state = False
    tokenizer = ElmoTokenizer.from_pretrained(folder)
    for row in instances:
        words, expected = [row["question"], row["passage"]], row["without_state"]
        with torch.inference_mode():
            output = model(**tokenizer(*([own] for own in words), is_split_into_words=True, return_tensors="pt"))
        for part in ("start", "end"):
            logits, theirs = output[f"{part}_logits"][0, -1 - len(words[1]) : -1], expected[f"span_{part}_logits"]
            np.testing.assert_allclose(logits, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())
        texts = [" ".join(own) for own in words]
        if [text.split() for text in texts] == words:
            first, last = expected["best_span"]
            found = answer(model, *texts, tokenizer=tokenizer, pretokenized=True)
            assert found["answer"] == " ".join(words[1][first : last + 1])


@pytest.mark.parametrize(("name", "carry_state"), ARCHIVES)
def test_predictions_of_allennlp(name: str, carry_state: bool, shared, tmp_path) -> None:
    fields = {} if carry_state else {"carry_state": False}
    compare(shared / "data" / "allennlp_tasks" / name / "model.tar.gz", tmp_path / "out", **fields)


@pytest.mark.parametrize("name", UNLIKE)
def test_sizes_that_no_head_has_are_named(name: str, shared, tmp_path) -> None:
    with pytest.raises(ValueError, match=rf"size mismatch for classifier\.{UNLIKE[name]}"):
        convert(shared / "data" / "allennlp_tasks" / name / "model.tar.gz", tmp_path / "out")


# Of archives that AllenNLP makes anew, the options of the program that makes them.
MADE = [
    ["ner", "--settings", '{"layers": 1, "widths": [2, 3, 4], "scheme": "IOB1", "start_end": true}'],
    ["fine_grained_ner", "--settings", '{"characters": "cnn", "layers": 3, "scheme": "BIO"}'],
    ["srl", "--settings", '{"layers": 3}'],
    ["bcn", "--tied", "--settings", '{"maxout": [21, 9], "pools": 3}'],
    ["decomposable", "--scale", "published"],
    ["bidaf", "--scale", "published", "--settings", '{"layers": 3, "highways": 1}'],
]


@pytest.mark.parametrize("options", MADE, ids=lambda options: options[0])
def test_archives_of_other_sizes_and_options(options: list[str], allennlp_python, shared, tmp_path) -> None:
    sentences = shared / "data" / "srl" / "propbank_ewt" / "en_ewt-ud-dev.conllu.gz"
    data = "--fixture", shared / "data" / "elmo_fixture", "--sentences", sentences, "--seed", "2"
    program = shared / "peers" / "allennlp_tasks.py"
    subprocess.run([allennlp_python, program, tmp_path, *data, "--only", *options], check=True, capture_output=True)
    compare(tmp_path / options[0] / "model.tar.gz", tmp_path / "out")


def unpacked(source: Path, folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The settings and the tensors of an archive, which becomes a folder beside AllenNLP's logits and predictions."""
    shutil.unpack_archive(source / "model.tar.gz", folder)
    shutil.copy(source / "expected.json", folder.parent)
    return json.loads((folder / "config.json").read_text()), torch.load(folder / "weights.th")


def test_attention_has_the_names_of_before_allennlp_1(shared, tmp_path) -> None:
    folder = tmp_path / "task"
    settings, state = unpacked(shared / "data" / "allennlp_tasks" / "bidaf", folder)
    settings["model"]["similarity_function"] = settings["model"].pop("matrix_attention")
    write_lines(folder / "config.json", [json.dumps(settings)])
    names = {key: key.replace("_attention", "_attention._similarity_function") for key in state}
    torch.save({names[key]: tensor for key, tensor in state.items()}, folder / "weights.th")
    compare(folder, tmp_path / "out")


def test_words_after_elmo_in_decomposable_attention(shared, tmp_path) -> None:
    """Word vectors that no layer reads change nothing: AllenNLP has their columns behind ELMo's."""
    folder = tmp_path / "task"
    settings, state = unpacked(shared / "data" / "allennlp_tasks" / "decomposable", folder)
    settings["model"]["text_field_embedder"]["token_embedders"]["tokens"] = {"type": "embedding", "embedding_dim": 3}
    settings["dataset_reader"]["token_indexers"]["tokens"] = {"type": "single_id"}
    write_lines(folder / "config.json", [json.dumps(settings)])
    write_lines(folder / "vocabulary" / "tokens.txt", ["@@UNKNOWN@@", "the"])
    for part, count in (("attend", 1), ("compare", 2)):
        name = f"_{part}_feedforward._module._linear_layers.0.weight"
        state[name] = nn.functional.pad(state[name].unflatten(1, (count, -1)), (0, 3)).flatten(1)
    state["_text_field_embedder.token_embedder_tokens.weight"] = torch.ones(3, 3)
    torch.save(state, folder / "weights.th")
    compare(folder, tmp_path / "out")


@pytest.fixture
def tagger(source, tmp_path) -> tuple[Path, dict, dict]:
    """A tagger with an encoder of PyTorch over ELMo, then words: its folder, settings and tensors."""
    settings, state = task(), state_of(load(*source))
    reader = {"tokens": {"type": "single_id"}, "elmo": {"type": "elmo_characters"}}
    reader = {"token_indexers": reader, "tokenizer": {"type": "word", "word_splitter": "spacy"}}
    settings |= {"dataset_reader": {"type": "any", **reader}, "validation_dataset_reader": None}
    model = settings["model"] | {"encoder": {"type": "lstm", "bidirectional": True, "input_size": 17, "hidden_size": 5}}
    model["text_field_embedder"]["token_embedders"]["tokens"] = {"type": "embedding", "embedding_dim": 3}
    model |= {"include_start_end_transitions": False, "feedforward": None, "ignore_loss_on_o_tags": True}
    settings["model"] = model
    torch.manual_seed(0)
    parts = {"encoder._module": nn.LSTM(17, 5, bidirectional=True), "tag_projection_layer._module": nn.Linear(10, 2)}
    parts["text_field_embedder.token_embedder_tokens"] = nn.Embedding(5, 3)
    state |= {f"{name}.{key}": tensor for name, part in parts.items() for key, tensor in part.state_dict().items()}
    state |= {"crf.transitions": torch.tensor([[0.0, 9.0], [9.0, 0.0]]), "crf._constraint_mask": torch.ones(4, 4)}
    write_lines(tmp_path / "task" / "vocabulary" / "labels.txt", ["x", "y\u0085"])
    write_lines(tmp_path / "task" / "vocabulary" / "tokens.txt", ["@@UNKNOWN@@", "Cat", "the", "."])
    return write_task(tmp_path / "task", settings, state, OPTIONS), settings, parts


def test_a_tagger_beside_plain_pytorch(tagger, tmp_path) -> None:
    folder, _, parts = tagger
    out = convert(folder, tmp_path / "out")
    elmo, words = ElmoModel.from_pretrained(out), ["The", "Cat", "sat", ",", "the", "cat", "."]
    with torch.no_grad():
        encoded = ElmoTokenizer.from_pretrained(out)([words], is_split_into_words=True, return_tensors="pt")
        vectors = elmo(**encoded).last_hidden_state[0, 1:-1]
        table = parts["text_field_embedder.token_embedder_tokens"](torch.tensor([1, 2, 1, 1, 3, 1, 4]))
        encoder, last = parts["encoder._module"], parts["tag_projection_layer._module"]
        expected = last(encoder(torch.cat((vectors, table), 1))[0])
    np.testing.assert_allclose(logits_of(out, [words])[0], expected.numpy(), atol=1e-5)
    tags = predict(str(out), ["The Cat sat, the cat."])[0]["tags"]
    assert tags in (["x", "y\u0085"] * 3 + ["x"], ["y\u0085", "x"] * 3 + ["y\u0085"])


def test_what_is_not_known_is_refused_by_its_name(tagger, tmp_path) -> None:
    folder, settings, _ = tagger
    model, reader = settings["model"], settings["dataset_reader"]
    embedder = model["text_field_embedder"] | {"embedder_to_indexer_map": {"tokens": "x"}}
    changes = {"model.type": {"type": "another"}, "model.label_encoding": {"label_encoding": "BMES"}}
    changes |= {"model.twice": {"twice": 2}, "model.encoder.bias": {"encoder": model["encoder"] | {"bias": False}}}
    changes |= {"embedder_to_indexer_map": {"text_field_embedder": embedder}}
    readers = {"max_sequence_length": {"max_sequence_length": 8}}
    readers |= {"squad2": {"type": "squad2"}, "start_tokens": {"tokenizer": {"start_tokens": ["a"]}}}
    cases = {name: settings | {"model": model | change} for name, change in changes.items()}
    cases |= {name: settings | {"dataset_reader": reader | change} for name, change in readers.items()}
    for name, case in cases.items():
        write_lines(folder / "config.json", [json.dumps(case)])
        with pytest.raises(ValueError, match=name):
            convert(folder, tmp_path / "out")
    write_lines(folder / "config.json", [json.dumps(settings)])
    state = torch.load(folder / "weights.th")
    torch.save(state | {"one_more": torch.ones(1)}, folder / "weights.th")
    with pytest.raises(ValueError, match="one_more"):
        convert(folder, tmp_path / "out")
    assert convert(folder, tmp_path / "out", bilm_only=True)
