"""From text files to trained language models in one call, and the commands over it."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from tokenizers import normalizers

from hf_elmo import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer
from hf_elmo.pretraining import recipe
from hf_elmo.pretraining.data import _Batches
from hf_elmo.pretraining.perplexity import perplexity
from hf_elmo.pretraining.recipe import HELD_OUT_EVERY, SIZES, pretrain
from hf_elmo.pretraining.text import TextFiles, open_texts, require_apart
from hf_elmo.pretraining.vocabulary import Vocabulary
from hf_elmo_cli import main
from tests.conftest import TINY, random_model

GENERAL = ["the cat sat on the mat", "a dog saw the cat", "rain fell all day", "the dog sat on a mat all day"] * 12
DOMAIN = ["the assay was run on a mat", "the assay fell", "a second assay was run all day"] * 14
SMALL = {"config": TINY, "batch_size": 3, "window": 5, "pretokenized": True, "use_cpu": True, "disable_tqdm": True}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    files = {}
    for name, lines in (("general", GENERAL), ("held_out", GENERAL[:4]), ("domain", DOMAIN)):
        files[name] = tmp_path / f"{name}.txt"
        files[name].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return files


@pytest.fixture
def general(files: dict[str, Path], tmp_path: Path) -> Path:
    """A language model trained on the general text for a while."""
    how = {"max_steps": 30, "optim": "adamw_torch", "learning_rate": 0.02, "loss_scale": 1.0, "save_strategy": "no"}
    return pretrain(tmp_path / "general", files["general"], **SMALL, **how).folder


def test_a_new_model_with_the_vocabulary_counted(files, tmp_path):
    result = pretrain(tmp_path / "out", files["general"], files["held_out"], max_steps=12, save_steps=5, **SMALL)
    assert result.after.mean < result.before.mean
    tokenizer, model = ElmoTokenizer.from_pretrained(result.folder), ElmoForPreTraining.from_pretrained(result.folder)
    assert tokenizer.vocabulary[:5] == ["<S>", "</S>", "<UNK>", "the", "a"]
    assert model.config.vocab_size == len(tokenizer.vocabulary)
    assert model.config.hidden_dropout == 0.1
    again = perplexity(model, tokenizer, files["held_out"], pretokenized=True)
    assert again.mean == pytest.approx(result.after.mean, rel=1e-5)
    assert (tmp_path / "out" / "checkpoint-10" / "elmo_data.json").is_file()


@pytest.mark.parametrize("how", ["pattern", "link", "copy", "parquet", "dataset"])
def test_held_out_text_that_is_trained_on_is_refused(files, parquet, tmp_path, how):
    texts, held_out = f"{tmp_path}/*.txt", files["held_out"]
    if how == "link":
        texts, held_out = files["general"], tmp_path / "link"
        held_out.symlink_to(texts)
    elif how == "copy":
        texts, held_out = files["general"], tmp_path / "copy"
        shutil.copy(texts, held_out)
    elif how == "parquet":
        texts, held_out = parquet, tmp_path / "texts-1.parquet"
    elif how == "dataset":
        texts = held_out = Dataset.from_dict({"text": GENERAL})
    with pytest.raises(ValueError, match=r"is held out \(--held-out\), but is among the texts, too"):
        pretrain(
            tmp_path / "out", texts, held_out, max_steps=1, text_column="body" * (how == "parquet") or None, **SMALL
        )
    assert not (tmp_path / "out").exists()


def test_empty_files_are_no_copies_of_each_other(tmp_path):
    for name in ("texts", "held_out"):
        (tmp_path / name).touch()
    require_apart(TextFiles(tmp_path / "texts"), TextFiles(tmp_path / "held_out"))


def test_a_file_is_no_folder_for_a_model(files, tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(NotADirectoryError, match="out is a file: give a folder for the model"):
        pretrain(tmp_path / "out", files["general"], max_steps=1, **SMALL)
    assert (tmp_path / "out").read_text() == "mine"


def test_a_new_tokenizer_says_nothing_of_how_it_was_loaded(files, tmp_path):
    folder = pretrain(tmp_path / "out", files["general"], max_steps=1, **SMALL).folder
    saved = json.loads((folder / "tokenizer_config.json").read_text())
    assert not {"local_files_only", "is_local"} & saved.keys()


def test_longer_words_are_read_by_the_tokenizer_and_by_the_model(files, tmp_path):
    how = SMALL | {"config": TINY | {"max_word_length": 63}, "max_steps": 1, "save_strategy": "no"}
    folder = pretrain(tmp_path / "out", files["general"], **how).folder
    tokenizer, model = ElmoTokenizer.from_pretrained(folder), ElmoForPreTraining.from_pretrained(folder)
    assert (tokenizer.max_word_length, model.config.max_word_length) == (63, 63)
    assert tokenizer(["서" * 20], return_tensors="pt")["input_ids"].shape == (1, 3, 63)


@pytest.mark.parametrize("layout", ["sentences", "documents"])
def test_other_layouts(files, tmp_path, layout):
    if layout == "documents":
        files["general"].write_text("\n\n".join("\n".join(GENERAL[i : i + 4]) for i in range(0, 48, 4)))
    how = {**SMALL, "window": None, "layout": layout, "max_steps": 2, "save_strategy": "no"}
    result = pretrain(tmp_path / "out", files["general"], **how)
    assert (result.folder / "model.safetensors").is_file()
    assert result.before is None


def test_resuming_gives_the_same_model(files, tmp_path):
    how = {**SMALL, "save_steps": 2, "seed": 8}
    whole = pretrain(tmp_path / "whole", files["general"], max_steps=5, **how)
    pretrain(tmp_path / "stopped", files["general"], max_steps=2, **how)
    resumed = pretrain(tmp_path / "stopped", files["general"], max_steps=5, resume=True, **how)
    models = [ElmoForPreTraining.from_pretrained(result.folder) for result in (whole, resumed)]
    for expected, actual in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize(
    ("how", "needed"),
    [
        ({"max_steps": 2}, False),
        ({"max_steps": 2, "layout": "sentences", "window": None}, False),
        ({"max_steps": 2, "gradient_accumulation_steps": 2}, True),
        ({"max_steps": 2, "save_strategy": "epoch"}, True),
        ({"num_train_epochs": 0.1}, True),
    ],
    ids=["steps", "steps of sentences", "accumulation", "saved by epoch", "epochs"],
)
def test_words_are_counted_where_something_needs_their_number(files, tmp_path, monkeypatch, how, needed):
    counted, count = [], _Batches._count
    monkeypatch.setattr(_Batches, "_count", lambda self: counted.append(1) or count(self))
    Vocabulary(["<S>", "</S>", "<UNK>", "the", "cat"]).save(tmp_path / "vocab.txt")
    pretrain(tmp_path / "out", files["general"], vocabulary=tmp_path / "vocab.txt", **{**SMALL, **how})
    assert bool(counted) == needed


@pytest.mark.parametrize("how", [{"max_steps": 2}, {"num_train_epochs": 1}], ids=["steps", "epochs"])
def test_too_little_text_is_refused(files, tmp_path, how):
    message = r"the text does not fill one batch \(PackedWindows, batch_size 500\): give more text or use a smaller"
    with pytest.raises(ValueError, match=message):
        pretrain(tmp_path / "out", files["general"], **{**SMALL, "batch_size": 500, **how})


# -- datasets ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    """The general text in two Parquet files, its column called `body`; a pattern for both."""
    datasets = pytest.importorskip("datasets", reason="datasets reads Parquet")
    for number, lines in enumerate((GENERAL[:20], GENERAL[20:])):
        datasets.Dataset.from_dict({"body": lines}).to_parquet(tmp_path / f"texts-{number}.parquet")
    return tmp_path / "texts-*.parquet"


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return ElmoForPreTraining.from_pretrained(folder).state_dict()


def same_weights(one: Path, other: Path) -> bool:
    mine, others = weights_of(one), weights_of(other)
    return mine.keys() == others.keys() and all(torch.equal(mine[name], others[name]) for name in mine)


def test_parquet_a_dataset_and_a_stream_train_the_model_of_the_text(files, parquet, tmp_path):
    import datasets

    dataset = datasets.Dataset.from_dict({"body": GENERAL})
    how = {**SMALL, "max_steps": 4, "save_strategy": "no", "vocabulary_size": 9}
    wanted = pretrain(tmp_path / "text", files["general"], files["held_out"], **how)
    given = {"parquet": parquet, "dataset": dataset, "stream": dataset.to_iterable_dataset(num_shards=3)}
    for name, texts in given.items():
        found = pretrain(tmp_path / name, texts, files["held_out"], text_column="body", **how)
        assert same_weights(found.folder, wanted.folder)
        assert found.after == wanted.after


def test_a_shuffled_stream_is_resumed_exactly(monkeypatch, parquet, tmp_path):
    import datasets

    # datasets sleeps a second at the end of each pass over several files, and this test makes many
    monkeypatch.setattr(datasets.config, "SLEEP_TIME_ON_THREADS_SHUTDOWN", 0.01, raising=False)
    stream = datasets.load_dataset("parquet", data_files=str(parquet), split="train", streaming=True)
    shuffled = stream.shuffle(seed=7, buffer_size=11)
    how = {**SMALL, "text_column": "body", "save_steps": 3, "save_total_limit": None}
    whole = pretrain(tmp_path / "whole", shuffled, max_steps=60, **how)  # more than one pass
    shutil.copytree(
        tmp_path / "whole", tmp_path / "stopped", ignore=shutil.ignore_patterns("*.safetensors", "checkpoint-[1-9]?")
    )
    shutil.copytree(tmp_path / "whole" / "checkpoint-21", tmp_path / "stopped" / "checkpoint-21")
    resumed = pretrain(tmp_path / "stopped", shuffled, max_steps=60, resume=True, **how)
    assert (resumed.folder / "checkpoint-60").is_dir()
    assert same_weights(whole.folder, resumed.folder)
    with pytest.raises(ValueError, match=r"the saved position has text .*resume with the settings of the original run"):
        pretrain(tmp_path / "stopped", stream.skip(1), max_steps=63, resume=True, **how)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "texts is a stream, whose length is not known: give max_steps"),
        ({"max_steps": 2, "init": "a folder"}, "no share can be held out: give held_out"),
        ({"max_steps": 2, "text_column": "text"}, "column is 'text', but the rows have 'body'"),
    ],
)
def test_what_a_stream_lacks_is_named(parquet, general, tmp_path, arguments, message):
    how = {"text_column": "body", **arguments} | ({"init": general} if "init" in arguments else {})
    with pytest.raises(ValueError, match=message):
        pretrain(tmp_path / "out", parquet, **SMALL | ({"config": {}} if "init" in how else {}), **how)


def test_a_model_is_adapted_to_a_stream(general, files, parquet, tmp_path):
    result = pretrain(
        tmp_path / "out", parquet, files["held_out"], init=general, text_column="body", pretokenized=True, max_steps=8,
        use_cpu=True, disable_tqdm=True, batch_size=3, window=5,
    )  # fmt: skip
    history = json.loads((result.folder / "trainer_state.json").read_text())["log_history"]
    assert [entry["step"] for entry in history if "eval_loss" in entry] == [2, 4, 6, 8]


def test_a_string_of_a_dataset_is_a_document_where_documents_are_read(tmp_path):
    datasets = pytest.importorskip("datasets")
    source = open_texts(datasets.Dataset.from_dict({"text": ["a dog\n\nthe cat", "rain"]}), documents=True)
    assert list(source.read()) == [[["a", "dog"], ["the", "cat"]], [["rain"]]]


def test_other_rows_of_the_same_number_are_another_dataset(files, tmp_path):
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict({"body": GENERAL, "other": GENERAL[::-1]})
    how = {**SMALL, "vocabulary": tmp_path / "vocab.txt"}
    Vocabulary(["<S>", "</S>", "<UNK>", "the", "cat"]).save(how["vocabulary"])
    pretrain(tmp_path / "out", dataset, text_column="body", max_steps=2, save_steps=2, **how)
    changed = datasets.Dataset.from_dict({"body": [*GENERAL[:-1], "the cat"]})
    for texts, column in ((dataset, "other"), (changed, "body")):
        with pytest.raises(ValueError, match="the saved position has text"):
            pretrain(tmp_path / "out", texts, text_column=column, max_steps=4, resume=True, **how)


def test_files_are_named_by_an_iterator_too(files, parquet, tmp_path):
    how = {**SMALL, "max_steps": 1, "save_strategy": "no"}
    for pattern, options in (("general.txt", {}), ("texts-*.parquet", {"text_column": "body"})):
        out = tmp_path / f"from {pattern[:4]}"
        found = pretrain(out, tmp_path.glob(pattern), files["held_out"], **how, **options)
        assert found.after.words > 0


def test_a_column_of_a_source_is_refused(general, tmp_path):
    model, tokenizer = ElmoForPreTraining.from_pretrained(general), ElmoTokenizer.from_pretrained(general)
    with pytest.raises(ValueError, match="text_column='body' says how to read files, but texts is a source"):
        perplexity(model, tokenizer, open_texts(general / "vocab.txt"), text_column="body")
    for command in (["vocab", str(tmp_path / "v.txt")], ["perplexity", str(general)]):
        assert main([*command, str(general / "vocab.txt"), "--text-column", "body"]) == 1


def test_parts_of_a_dataset_are_named(tmp_path):
    datasets = pytest.importorskip("datasets")
    parts = datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": GENERAL})})
    with pytest.raises(ValueError, match=r"texts has the parts train: give one of them, texts\['train'\]"):
        pretrain(tmp_path / "out", parts, **SMALL)


def test_words_are_counted_and_predicted_in_parquet(general, parquet, files, tmp_path, capsys):
    assert main(["vocab", str(tmp_path / "v.txt"), str(parquet), "--text-column", "body", "--words"]) == 0
    assert main(["vocab", str(tmp_path / "w.txt"), str(files["general"]), "--words"]) == 0
    assert (tmp_path / "v.txt").read_text() == (tmp_path / "w.txt").read_text()
    capsys.readouterr()
    for texts in ([str(parquet), "--text-column", "body"], [str(files["general"])]):
        assert main(["perplexity", str(general), *texts, "--words"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second


def test_files_of_two_kinds_and_a_column_of_text_are_refused(files, parquet, tmp_path):
    with pytest.raises(ValueError, match=r"general\.txt is no Parquet file as .*parquet is"):
        pretrain(tmp_path / "out", [files["general"], parquet], **SMALL)
    with pytest.raises(ValueError, match="text_column is 'body', but text files have no columns"):
        pretrain(tmp_path / "out", files["general"], text_column="body", **SMALL)


def test_pretrain_command_streams_parquet(parquet, tmp_path, capsys):
    config = [f"--config={name}={json.dumps(value)}" for name, value in TINY.items()]
    command = ["pretrain", str(tmp_path / "out"), str(parquet), "--text-column", "body", "--words", "--steps", "2"]
    assert main([*command, "--batch-size=2", "--window=4", "--set=use_cpu=true", *config]) == 0
    assert capsys.readouterr().out.endswith("out: written\n")
    assert ElmoTokenizer.from_pretrained(tmp_path / "out").vocabulary[3:5] == ["the", "a"]


# -- adapting ----------------------------------------------------------------------------------------------------------


def test_a_domain_lowers_the_perplexity_of_its_held_out_text(general, files, tmp_path):
    result = pretrain(tmp_path / "out", files["domain"], init=general, **{**SMALL, "config": None})
    assert result.before.sentences == len(DOMAIN) // HELD_OUT_EVERY
    assert result.after.mean < 0.95 * result.before.mean
    # Without a vocabulary of its own the domain is read with the old one.
    assert ElmoTokenizer.from_pretrained(result.folder).vocabulary == ElmoTokenizer.from_pretrained(general).vocabulary


def test_held_out_text_without_words_is_named(general, files, tmp_path):
    files["held_out"].write_text("\n \n")
    with pytest.raises(ValueError, match=r"a perplexity of: .*held_out\.txt has no words; give text .*--held-out"):
        pretrain(tmp_path / "out", files["general"], files["held_out"], **SMALL, max_steps=1)
    files["domain"].write_text("\n".join(DOMAIN[: HELD_OUT_EVERY - 1]))
    says = f"a perplexity of: of every {HELD_OUT_EVERY} texts one is held out, but there are {HELD_OUT_EVERY - 1}; give"
    with pytest.raises(ValueError, match=says):
        pretrain(tmp_path / "out", files["domain"], init=general, **{**SMALL, "config": None}, max_steps=1)
    assert not (tmp_path / "out").exists()


def test_a_model_that_gets_worse_is_left_as_it_was(general, files, tmp_path):
    harmful = {"learning_rate": 50.0, "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "max_steps": 3}
    result = pretrain(tmp_path / "out", files["domain"], init=general, **{**SMALL, "config": None}, **harmful)
    assert result.after == result.before
    before, after = (ElmoForPreTraining.from_pretrained(folder) for folder in (general, result.folder))
    for expected, actual in zip(before.parameters(), after.parameters(), strict=True):
        assert torch.equal(actual, expected)


ADAPTED = {**SMALL, "config": None, "max_steps": 6, "learning_rate": 1e-3}


def logged(folder: Path) -> tuple[list[int], list[int]]:
    """The steps at which a run was evaluated, and those whose checkpoints are left."""
    state = json.loads((folder / "trainer_state.json").read_text())
    evaluated = [one["step"] for one in state["log_history"] if "eval_loss" in one]
    return evaluated, sorted(int(folder.name.split("-")[1]) for folder in folder.glob("checkpoint-*"))


@pytest.mark.parametrize(
    ("given", "evaluated", "saved"),
    [
        ({"eval_steps": 2}, [2, 4, 6], [4, 6]),
        ({"eval_steps": 2, "save_total_limit": 3}, [2, 4, 6], [2, 4, 6]),
        ({"eval_steps": 4, "save_steps": 2, "save_total_limit": None}, [4, 6], [2, 4, 6]),  # and at the end
        ({"save_strategy": "no", "eval_steps": 3}, [3, 6], []),
        ({"eval_strategy": "no"}, [], []),
        ({"eval_steps": 3, "save_steps": 2, "load_best_model_at_end": False}, [3, 6], [4, 6]),
    ],
    ids=str,
)
def test_what_is_given_says_when_an_adaptation_is_evaluated_and_saved(
    general, files, tmp_path, given, evaluated, saved
):
    pretrain(tmp_path / "out", files["domain"], init=general, **ADAPTED, **given)
    assert logged(tmp_path / "out") == (evaluated, saved)


def test_an_adaptation_goes_on_from_the_weights_that_it_began_with(general, files, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(general, other)
    model = ElmoForPreTraining.from_pretrained(other)
    with torch.no_grad():
        model.lm_head.bias += 0.1
    model.save_pretrained(other)
    pretrain(tmp_path / "out", files["domain"], init=general, **ADAPTED, eval_steps=3)
    again = {**ADAPTED, "eval_steps": 3, "resume": True}
    with pytest.raises(ValueError, match=r"was trained with the weights init '[0-9a-f]{64}', but this run has"):
        pretrain(tmp_path / "out", files["domain"], init=other, **again)
    assert pretrain(tmp_path / "out", files["domain"], init=general, **again).after is not None


def test_without_the_best_the_last_model_is_kept(general, files, tmp_path):
    harmful = {**ADAPTED, "learning_rate": 50.0, "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "max_steps": 3}
    result = pretrain(tmp_path / "out", files["domain"], init=general, **harmful, load_best_model_at_end=False)
    assert result.after.mean > result.before.mean


@pytest.mark.parametrize(
    "given", [{"save_strategy": "no"}, {"save_strategy": "epoch"}, {"eval_strategy": "no"}], ids=str
)
def test_where_the_best_cannot_be_kept_it_is_said_and_a_worse_model_is_left_as_it_was(
    general, files, tmp_path, caplog, given
):
    harmful = {**ADAPTED, "learning_rate": 50.0, "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "max_steps": 3}
    result = pretrain(tmp_path / "out", files["domain"], init=general, **harmful, **given)
    assert result.after == result.before
    assert "the last one is kept, not the best of them" in caplog.text
    assert "the model is left unchanged" in caplog.text


def test_the_default_may_be_given(general, files, tmp_path):
    pretrain(tmp_path / "out", files["domain"], init=general, **ADAPTED, load_best_model_at_end=True)
    assert ElmoForPreTraining.from_pretrained(tmp_path / "out")


def test_steps_at_which_the_best_model_could_not_be_saved_are_refused(general, files, tmp_path):
    with pytest.raises(ValueError, match="save_steps is 3, but eval_steps is 2: the best model is kept"):
        pretrain(tmp_path / "out", files["domain"], init=general, **ADAPTED, eval_steps=2, save_steps=3)
    assert not (tmp_path / "out").exists()


def test_a_new_vocabulary_leaves_the_tokenizer_as_it_is(general, files, tmp_path):
    tokenizer = ElmoTokenizer.from_pretrained(general, padding_side="left")
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.split_special_tokens, tokenizer.words = False, ["the"]
    tokenizer.save_pretrained(general)
    Vocabulary(["<S>", "</S>", "<UNK>", "assay", "the", "run"]).save(tmp_path / "words.txt")
    how = {**SMALL, "config": None, "pretokenized": False, "max_steps": 1}
    pretrain(tmp_path / "out", files["domain"], init=general, vocabulary=tmp_path / "words.txt", **how)
    new = ElmoTokenizer.from_pretrained(tmp_path / "out")
    assert new.vocabulary == ["<S>", "</S>", "<UNK>", "assay", "the", "run"]
    assert new.split_into_words(["The ASSAY"]) == tokenizer.split_into_words(["The ASSAY"]) == [["the", "assay"]]
    assert (new.split_special_tokens, new.words, new.padding_side) == (False, ["the"], "left")


def test_documents_are_held_out_as_they_are_trained_on(tmp_path):
    lines = ["a dog", "the cat sat"] * 6
    same = Dataset.from_dict({"text": ["\n".join(lines)]}), Dataset.from_dict({"text": lines})
    how = {**SMALL, "pretokenized": False, "layout": "documents", "window": None, "max_steps": 1, "learning_rate": 0.0}
    documents = Dataset.from_dict({"text": ["a dog\nthe cat sat"] * 9})
    found = [pretrain(tmp_path / str(n), documents, one, **how).before for n, one in enumerate(same)]
    assert found[0].words == found[1].words
    assert found[0].mean == pytest.approx(found[1].mean, rel=1e-5)


def test_a_new_vocabulary_for_an_old_model(general, files, tmp_path):
    words = ["<S>", "</S>", "<UNK>", "assay", "the", "run"]
    Vocabulary(words).save(tmp_path / "words.txt")
    how = {**SMALL, "config": None, "max_steps": 1, "learning_rate": 0.0}
    result = pretrain(tmp_path / "out", files["domain"], init=general, vocabulary=tmp_path / "words.txt", **how)
    tokenizer = ElmoTokenizer.from_pretrained(result.folder)
    old, new = (ElmoForPreTraining.from_pretrained(folder).lm_head for folder in (general, result.folder))
    assert tokenizer.vocabulary == words
    row = ElmoTokenizer.from_pretrained(general).vocabulary.index("the")
    assert torch.equal(new.weight[4], old.weight[row])
    assert torch.equal(new.weight[3], old.weight[2])


def test_an_elmo_without_a_softmax_gets_one(files, tmp_path):
    model = random_model(ElmoConfig(**TINY))
    model.save_pretrained(tmp_path / "elmo")
    ElmoTokenizer(word_splitting="whitespace").save_pretrained(tmp_path / "elmo")
    how = {**SMALL, "config": None, "max_steps": 1, "learning_rate": 0.0}
    result = pretrain(tmp_path / "out", files["domain"], init=tmp_path / "elmo", **how)
    language_model = ElmoForPreTraining.from_pretrained(result.folder)
    assert language_model.config.vocab_size == len(set(" ".join(DOMAIN).split())) + 3
    for name, tensor in ElmoModel.from_pretrained(result.folder).state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layout": "lines"}, "layout is 'lines'"),
        ({"learnin_rate": 1}, "learnin_rate is neither"),
        ({"layout": "sentences", "window": 5}, "window is 5, but the layout 'sentences' has none: leave it out"),
        ({"window": 0}, "window is 0, but must be 1 or more"),
        ({"word_splitting": ""}, "word_splitting"),
        ({"init": "elmo-mini-en", "word_splitting": "whitespace"}, "the tokenizer is that of init: leave it out"),
        ({"config": {**TINY, "char_units": "unicode"}}, "char_units is 'unicode', but the new tokenizer writes bytes"),
        (
            {"config": {**TINY, "word_vocab_size": 10, "word_embedding_size": 4}},
            "word_vocab_size is 10, but .* no ids of words: leave it out of config",
        ),
        (
            {"init": "elmo-mini-en", "config": {"max_word_length": 20}},
            r"config has max_word_length 20 \(--config max_word_length=20\), but that of init is 50",
        ),
        ({"init": "elmo-mini-en", "vocabulary_size": 9}, "vocabulary_size is 9, but the words are those of init"),
        ({"vocabulary": "v.txt", "vocabulary_size": 9}, "vocabulary_size is 9, but the words are those of vocabulary"),
        ({"config": {**TINY, "vocab_size": 9}}, "vocab_size is 9, but it is the number of words of the vocabulary"),
        ({**SMALL, "max_steps": 1, "batch_size": 0}, "batch_size 0 must be 1 or more"),
        (
            {"config": {**TINY, "dtype": "bfloat16"}},
            r"dtype is 'bfloat16', but weights are trained in float32; bf16 ",
        ),
        (
            {**SMALL, "max_steps": 1, "load_best_model_at_end": True, "save_strategy": "no"},
            "load_best_model_at_end is True, but eval_strategy is 'no', so no model is the best",
        ),
        ({**SMALL, "max_steps": 1, "loss_scale": -1}, "loss_scale is -1, but must be over 0"),
        ({**SMALL, "max_steps": 1, "loss_scale": 0.0}, r"loss_scale is 0\.0, but must be over 0"),
        ({"learning_rate": "abc"}, "learning_rate is 'abc', but must be a number"),
        ({"seed": 1.5}, r"seed is 1\.5, but must be a whole number"),
        ({"max_steps": "2"}, "max_steps is '2', but must be a whole number"),
        ({"save_total_limit": "all"}, "save_total_limit is 'all', but must be a whole number"),
        ({"weight_decay": True}, "weight_decay is True, but must be a number"),
        ({"log_level": "foo"}, "log_level is 'foo', but must be one of .*debug, .*passive"),
        ({"config": {**TINY, "hidden_size": "abc"}}, r"config has hidden_size 'abc' \(--config\), but .* the type int"),
        (
            {"init": "elmo-mini-en", "config": {"hidden_dropout": [0.1]}},
            r"config has hidden_dropout \[0\.1\] \(--config\), but it must be of the type float \| int\.",
        ),
        ({"bf16": "yes"}, "bf16 is 'yes', but must be true or false"),
        ({**SMALL, "max_steps": 1, "data_seed": 7}, "data_seed is 7, but has no effect here: the order of the text"),
        (
            {**SMALL, "max_steps": 1, "train_sampling_strategy": "group_by_length"},
            "'group_by_length', but has no effect",
        ),
        ({**SMALL, "max_steps": 1, "label_smoothing_factor": 0.1}, "label_smoothing_factor is 0.1, but has no effect"),
        (
            {**SMALL, "max_steps": 1, "per_device_eval_batch_size": 9},
            "per_device_eval_batch_size is 9, but has no effect",
        ),
        ({**SMALL, "max_steps": 1, "dataloader_drop_last": True}, "dataloader_drop_last is True, but batches are made"),
        ({"batch_size": 3, "per_device_train_batch_size": 4}, "but per_device_train_batch_size is given, too"),
        ({**SMALL, "max_steps": 0}, "max_steps is 0, but must be 1 or more"),
        ({**SMALL, "max_steps": -5}, "max_steps is -5, but must be 1 or more"),
        ({**SMALL, "num_train_epochs": 0}, "num_train_epochs is 0, but must be over 0"),
        (
            {**SMALL, "max_steps": 2, "num_train_epochs": 3},
            r"max_steps \(--steps\) is 2, and num_train_epochs \(--epochs\) 3: give one of both",
        ),
        ({**SMALL, "max_steps": 1, "gradient_accumulation_steps": 0}, "gradient_accumulation_steps is 0"),
        ({**SMALL, "max_steps": 1, "output_dir": "other"}, "output_dir is neither an option of pretrain nor"),
        ({**SMALL, "max_steps": 4, "eval_steps": 2}, "eval_steps is 2, but eval_strategy is 'no': give eval_strategy="),
    ],
)
def test_wrong_options_are_named(files, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        pretrain(tmp_path / "out", files["general"], **arguments)


def test_an_init_that_does_not_exist_is_named_without_a_warning_of_its_tokenizer(files, tmp_path, caplog):
    with pytest.raises(OSError, match="model 'no-such-model' does not exist"):
        pretrain(tmp_path / "out", files["domain"], init="no-such-model", **{**SMALL, "config": None})
    assert "tokenizer_config.json" not in caplog.text


@pytest.mark.parametrize(
    "size",
    [
        {"hidden_size": 64},
        {"cell_size": 64},
        {"num_hidden_layers": 1},
        {"num_hidden_layers": 3},
        {"char_filters": [[1, 4]]},
        {"cell_projection": False},
        {"max_word_length": 30},
    ],
    ids=str,
)
def test_an_adapted_model_keeps_its_sizes(files, tmp_path, monkeypatch, size):
    monkeypatch.delattr(recipe, "load_checkpoint")  # it is refused before
    ((name, value),) = size.items()
    given = re.escape(f"config has {name} {value!r} (--config {name}={json.dumps(value)}), but that of init is ")
    with pytest.raises(ValueError, match=given + ".*: an adapted model keeps its sizes, so leave it out"):
        pretrain(tmp_path / "out", files["domain"], init="elmo-mini-en", **{**SMALL, "config": size})
    assert not (tmp_path / "out").exists()


def test_sizes_that_are_those_of_the_adapted_model_are_taken(general, files, tmp_path):
    sizes = {**TINY, "char_filters": [tuple(pair) for pair in TINY["char_filters"]], "cell_projection": None}
    how = {**SMALL, "config": {**sizes, "hidden_dropout": 0.3}, "max_steps": 1}
    result = pretrain(tmp_path / "out", files["domain"], init=general, **how)
    assert ElmoConfig.from_pretrained(result.folder).hidden_dropout == 0.3


def test_every_field_that_a_weight_depends_on_is_a_size():
    config = ElmoConfig(**TINY, vocab_size=9).to_dict()

    def shapes(**changes) -> dict[str, torch.Size]:
        with torch.device("meta"):
            model = ElmoForPreTraining(ElmoConfig.from_dict({**config, **changes}))
        return {name: weight.shape for name, weight in model.state_dict().items() if "scalar_mix" not in name}

    changes = [{name: value + 2} for name, value in config.items() if type(value) is int and "token_id" not in name]
    changes += [{name: not value} for name, value in config.items() if type(value) is bool]
    changes += [{"char_filters": [[2, 9]]}, {"char_projection": False, "char_filters": [[2, 11]]}]
    found, before = set(), shapes()
    for each in changes:
        try:
            found |= set(each if shapes(**each) != before else ())
        except ValueError:  # fields that do not fit each other
            found |= each.keys() & {"cell_projection"}
    words = {"word_vocab_size", "word_embedding_size"}  # which a model without them has to be given together
    assert shapes(word_vocab_size=7, word_embedding_size=5) != before
    # The softmax is that of the vocabulary, and what a settled start lacks is said where it is loaded.
    assert found | words == {*SIZES, "vocab_size", "settled_start"} - {"max_word_length"}


# -- commands ----------------------------------------------------------------------------------------------------------


def test_vocab_command(files, tmp_path, capsys):
    assert main(["vocab", str(tmp_path / "v.txt"), str(files["general"]), "--words", "--size", "6"]) == 0
    assert Vocabulary.load(tmp_path / "v.txt").words == ["<S>", "</S>", "<UNK>", "the", "a", "all"]
    assert "6 words" in capsys.readouterr().out


def test_vocab_command_counts_the_units_of_the_tokenizer(files, tmp_path, capsys):
    words, general = str(tmp_path / "v.txt"), str(files["general"])
    assert main(["vocab", words, general, "--word-splitting=characters"]) == 0
    assert {*Vocabulary.load(words).words[3:]} == set("".join(GENERAL)) - {" "}
    with pytest.raises(SystemExit):
        main(["vocab", words, general, "--words", "--word-splitting=characters", "--overwrite"])
    assert "--word-splitting goes with text that is split" in capsys.readouterr().err


@pytest.mark.parametrize(("splitting", "warned"), [("whitespace", True), ("characters", False)])
def test_a_vocabulary_of_other_units_is_warned_of(files, tmp_path, caplog, splitting, warned):
    assert main(["vocab", str(tmp_path / "v.txt"), str(files["general"]), "--word-splitting=characters"]) == 0
    how = {**SMALL, "pretokenized": False, "vocabulary": tmp_path / "v.txt", "max_steps": 1}
    pretrain(tmp_path / "out", files["general"], word_splitting=splitting, **how)
    assert ("words are not in the vocabulary" in caplog.text) == warned
    if warned:
        assert "'the' among them: count it in this text" in caplog.text


def test_the_vocabulary_does_not_replace_the_text(files, capsys):
    general, held_out = str(files["general"]), str(files["held_out"])
    assert main(["vocab", general, held_out, general, "--overwrite"]) == 1
    assert "is one of FILES: give the vocabulary's file first" in capsys.readouterr().err
    assert main(["vocab", general, held_out]) == 1  # what texts/*.txt becomes where OUT is forgotten
    assert "exists; choose another name, or overwrite=True (--overwrite)" in capsys.readouterr().err
    assert files["general"].read_text().splitlines() == GENERAL
    assert main(["vocab", held_out, general, "--overwrite"]) == 0
    assert Vocabulary.load(held_out).words[:4] == ["<S>", "</S>", "<UNK>", "the"]


def test_an_option_that_is_given_twice_is_named(files, tmp_path, capsys):
    command = ["pretrain", str(tmp_path / "out"), str(files["general"]), "--steps=1", "--set=max_steps=2"]
    assert main(command) == 1
    assert "max_steps is given by --set and by an option of its own" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--config=hidden_size", "--set=save_steps"])
def test_a_setting_that_is_given_twice_is_named(files, tmp_path, capsys, option):
    command = ["pretrain", str(tmp_path / "out"), str(files["general"]), f"{option}=16", f"{option}=32"]
    assert main(command) == 1
    assert f"{option.replace('=', ' ')} is given twice: give it once." in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_steps_and_epochs_together_are_refused(files, tmp_path, capsys):
    command = ["pretrain", str(tmp_path / "out"), str(files["general"]), "--epochs", "3"]
    for steps in ("--steps=2", "--set=max_steps=2"):
        assert main([*command, steps]) == 1
        assert "max_steps (--steps) is 2, and num_train_epochs (--epochs) 3.0: give one" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_command_names_a_field_that_cannot_be(general, files, tmp_path, capsys):
    command = ["pretrain", str(tmp_path / "out"), str(files["general"]), "--steps=2"]
    assert main([*command, "--config=hidden_size=abc"]) == 1
    error = capsys.readouterr().err
    assert error.endswith("hf-elmo: error: config has hidden_size 'abc' (--config), but it must be of the type int.\n")
    assert main([*command, "--init", str(general), "--config", "hidden_size=64"]) == 1
    error = capsys.readouterr().err
    assert (
        "config has hidden_size 64 (--config hidden_size=64), but that of init is 22: an adapted model keeps" in error
    )
    assert "MISMATCH" not in error


def test_pretrain_command(files, tmp_path, capsys):
    config = [f"--config={name}={json.dumps(value)}" for name, value in TINY.items()]
    arguments = [str(tmp_path / "out"), str(files["general"]), "--words", "--steps", "4", "--batch-size", "3"]
    arguments += ["--held-out", str(files["held_out"]), "--set", "use_cpu=true", "--set", "save_steps=3"]
    assert main(["pretrain", *arguments, "--learning-rate", "0.1", "--optim", "adagrad", *config]) == 0
    printed = capsys.readouterr().out
    assert "held-out perplexity before: forward" in printed
    assert "held-out perplexity after: forward" in printed
    assert (tmp_path / "out" / "checkpoint-3").is_dir()


def test_a_training_that_diverges_is_one_line_and_no_model(files, tmp_path, capsys):
    arguments = [str(tmp_path / "out"), str(files["general"]), "--words", "--batch-size", "3", "--window", "5"]
    arguments += ["--steps", "4", "--optim", "sgd", "--learning-rate", "1e30", "--set=use_cpu=true"]
    arguments += ["--set=disable_tqdm=true"]
    config = [f"--config={name}={json.dumps(value)}" for name, value in TINY.items()]
    assert main(["pretrain", *arguments, *config]) == 1
    captured = capsys.readouterr()
    error = captured.err.splitlines()[-1]
    assert error.startswith("hf-elmo: error: the training diverged: ")
    assert "Train with a lower learning_rate (--learning-rate)" in error
    assert "written" not in captured.out
    assert list((tmp_path / "out").rglob("*.safetensors")) == []


def test_perplexity_command(general, files, capsys):
    assert main(["perplexity", str(general), str(files["held_out"]), "--words"]) == 0
    tokenizer, model = ElmoTokenizer.from_pretrained(general), ElmoForPreTraining.from_pretrained(general)
    result = perplexity(model, tokenizer, TextFiles(files["held_out"]))
    assert f"forward {result.forward:.2f}, backward {result.backward:.2f}" in capsys.readouterr().out


def test_perplexity_command_with_the_state_carried(general, files, capsys):
    command = ["perplexity", str(general), str(files["general"]), "--words", "--stateful"]
    tokenizer, model = ElmoTokenizer.from_pretrained(general), ElmoForPreTraining.from_pretrained(general)
    words = sum(len(line.split()) + 1 for line in GENERAL)
    for option, rows in (([], 1), (["--batch-size", "5"], 5)):
        assert main([*command, *option]) == 0
        result = perplexity(model, tokenizer, TextFiles(files["general"]), stateful=True, batch_size=rows)
        printed = capsys.readouterr().out
        assert f"forward {result.forward:.2f}, backward {result.backward:.2f}" in printed
        assert f"{words:,} words" in printed
    assert main([*command, "--batch-size", "99"]) == 1
    assert "give more text or a smaller batch_size (--batch-size)" in capsys.readouterr().err


def test_substitutes_command(general, capsys):
    assert main(["substitutes", str(general), "the cat sat", "cat", "--top", "2"]) == 0
    word, *candidates = capsys.readouterr().out.strip().split("\t")
    assert word == "cat"
    assert len(candidates) == 2
    assert main(["substitutes", str(general), "the cat sat", "dog"]) == 1
    assert "'dog' is not a word of the sentence" in capsys.readouterr().err
    assert main(["substitutes", str(general), ""]) == 1
    assert "SENTENCE is '', which has no words: give a sentence." in capsys.readouterr().err


def test_files_of_one_size_and_time_are_no_copies(tmp_path):
    for name, words in (("texts", "the cat"), ("held_out", "cat the")):
        (tmp_path / name).write_text(words)
        os.utime(tmp_path / name, ns=(10**18, 10**18))
    require_apart(TextFiles(tmp_path / "texts"), TextFiles(tmp_path / "held_out"))
