"""From text files to trained language models in one call, and the commands over it."""

import json
import math
import shutil

import datasets
import pytest
import torch
from tokenizers import normalizers

from hf_elmo import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer, path
from hf_elmo.pretraining.perplexity import perplexity
from hf_elmo.pretraining.recipe import pretrain
from hf_elmo.pretraining.texts import HELD_OUT_EVERY
from hf_elmo.pretraining.vocabulary import Vocabulary
from hf_elmo_cli import main
from tests.factories import TINY, save_checkpoint, small_model, write_lines
from tests.pretraining.conftest import ADAPTED, CONFIG, DOMAIN, GENERAL, SMALL, assert_same_weights

ONE_STEP = {"max_steps": 1, "learning_rate": 0.0, "save_strategy": "no", "eval_strategy": "no"}
HARMFUL = {"learning_rate": 50.0, "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "max_steps": 3}
SCHEDULES = [
    ({"eval_steps": 2}, [2, 4, 6], [4, 6]),
    ({"save_steps": 3}, [3, 6], [3, 6]),
    ({"eval_strategy": "no"}, [], []),
    ({"eval_strategy": "no", "save_steps": 4, "load_best_model_at_end": False}, [], [4, 6]),
    ({"eval_steps": 3, "save_steps": 2, "load_best_model_at_end": False}, [3, 6], [4, 6]),
]


def test_a_new_model_with_the_vocabulary_counted(trained, files):
    assert trained.after.mean < trained.before.mean
    folder = trained.folder
    tokenizer, model = ElmoTokenizer.from_pretrained(folder), ElmoForPreTraining.from_pretrained(folder)
    assert tokenizer.vocabulary[:5] == ["<S>", "</S>", "<UNK>", "the", "a"]
    assert (model.config.vocab_size, model.config.hidden_dropout) == (len(tokenizer.vocabulary), 0.1)
    assert ElmoTokenizer.from_pretrained(folder / "checkpoint-20").vocabulary == tokenizer.vocabulary
    assert list(folder.rglob("training_args.bin")) == []  # it has paths of this machine
    result = perplexity(model, files["held_out"], tokenizer=tokenizer, pretokenized=True)
    assert result.mean == pytest.approx(trained.after.mean, rel=1e-5)


@pytest.mark.parametrize("recipe", ["new", "bilm-tf"])
def test_the_softmax_begins_with_the_frequencies_of_its_sampler_and_words_may_be_longer(files, tmp_path, recipe):
    how = SMALL | ONE_STEP | {"config": TINY | {"max_word_length": 63}}
    folder = pretrain(files["general"], tmp_path / "out", recipe=recipe, **how).folder
    tokenizer, model = ElmoTokenizer.from_pretrained(folder), ElmoForPreTraining.from_pretrained(folder)
    assert (tokenizer.max_word_length, model.config.max_word_length) == (63, 63)
    words = torch.arange(len(tokenizer.vocabulary), dtype=torch.float64)
    expected = torch.log(torch.log((words + 2) / (words + 1)) / math.log(len(words) + 1))
    bias = model.lm_head.bias.detach().double()
    torch.testing.assert_close(bias, expected if recipe == "new" else torch.zeros_like(expected))


def test_a_model_that_embeds_its_vocabulary_and_another_vocabulary_later(files, tmp_path):
    how = SMALL | {"config": TINY | {"char_filters": []}, "max_steps": 30, "save_strategy": "no", "learning_rate": 0.02}
    result = pretrain(files["general"], tmp_path / "out", files["held_out"], vocabulary_size=9, **how)
    assert result.after.mean < result.before.mean
    old = ElmoForPreTraining.from_pretrained(result.folder)
    assert [key for key in old.state_dict() if "char" in key] == ["elmo.char_encoder.word_embedding.weight"]
    write_lines(tmp_path / "vocab.txt", ["dog", "<S>", "assay\t", "</S>", "<UNK> ", "the"])
    how |= ONE_STEP | {"config": None, "vocabulary": tmp_path / "vocab.txt", "init": result.folder}
    new = ElmoForPreTraining.from_pretrained(pretrain(files["domain"], tmp_path / "new", recipe="new", **how).folder)
    dog, assay, the = ElmoTokenizer.from_pretrained(result.folder).spell(["dog", "assay", "the"])[:, -1]
    assert assay == 1
    rows = [0, 1, 2, 3, dog, assay, the]
    table, given = (model.elmo.char_encoder.word_embedding.weight for model in (new, old))
    torch.testing.assert_close(table, given[rows], rtol=0, atol=0)


def test_options_that_cannot_be_and_held_out_text_that_is_trained_on(files, tmp_path):
    inputs, link = f"{files['general'].parent}/*.txt", tmp_path / "link.txt"
    link.symlink_to(files["general"])
    dataset = datasets.Dataset.from_dict({"text": GENERAL})
    words = write_lines(tmp_path / "vocab.txt", ["<S>", "</S>", "<UNK>", "dog"])
    wrong = [{"batch_size": 500}, {"layout": "lines"}, {"held_out": link}]
    wrong += [{"vocabulary_size": 9, "vocabulary": words}, {"word_splitting": "lm1b", "init": path()}]
    for changes in (*wrong, {"held_out": dataset, "inputs": dataset}):
        with pytest.raises(ValueError, match=next(iter(changes))):
            pretrain(**{**SMALL, "inputs": inputs, "output": tmp_path / "out", **changes})
    assert not (tmp_path / "out").exists()


def test_a_domain_lowers_the_perplexity_of_its_held_out_text(trained, files, tmp_path):
    how = ADAPTED | {"batch_size": 6, "num_train_epochs": 2, "learning_rate": 0.005}
    result = pretrain(files["domain"], tmp_path / "out", init=trained.folder, **how)
    assert result.before.sentences == len(DOMAIN) // HELD_OUT_EVERY
    assert result.after.mean < 0.95 * result.before.mean
    # Without a vocabulary of its own the domain is read with that of the old model.
    assert (result.folder / "vocab.txt").read_bytes() == (trained.folder / "vocab.txt").read_bytes()


@pytest.mark.parametrize("given", [{}, {"eval_strategy": "no"}, {"load_best_model_at_end": False}], ids=str)
def test_a_model_that_gets_worse_is_left_as_it_was_unless_the_last_is_wanted(trained, files, tmp_path, given):
    result = pretrain(files["domain"], tmp_path / "out", init=trained.folder, **ADAPTED, **HARMFUL, **given)
    if "load_best_model_at_end" in given:
        assert result.after.mean > result.before.mean
    else:
        assert result.after == result.before
        assert_same_weights(trained.folder, result.folder)


@pytest.mark.parametrize(("given", "evaluated", "saved"), SCHEDULES, ids=str)
def test_when_an_adaptation_is_evaluated_and_saved(trained, files, tmp_path, given, evaluated, saved):
    how = ADAPTED | {"max_steps": 6, "learning_rate": 1e-3} | given
    folder = pretrain(files["domain"], tmp_path / "out", init=trained.folder, **how).folder
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    assert [entry["step"] for entry in history if "eval_loss" in entry] == evaluated
    assert sorted(int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*")) == saved


def test_a_new_vocabulary_for_an_old_model(trained, files, tmp_path, caplog):
    begun = shutil.copytree(trained.folder, tmp_path / "begun", ignore=shutil.ignore_patterns("checkpoint-*"))
    tokenizer = ElmoTokenizer.from_pretrained(begun, padding_side="left")
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.split_special_tokens, tokenizer.words = False, ["the"]
    tokenizer.save_pretrained(begun)
    words = ["<S>", "</S>", "<UNK>", "assay", "the", "run"]
    Vocabulary(words).save(tmp_path / "words.txt")
    how = ADAPTED | ONE_STEP | {"pretokenized": False, "vocabulary": tmp_path / "words.txt"}
    folder = pretrain(files["domain"], tmp_path / "out", init=begun, **how).folder
    assert "59% of the first words are not in" in caplog.text
    adapted = ElmoTokenizer.from_pretrained(folder)
    assert adapted.vocabulary == words
    assert adapted.split_into_words(["The ASSAY"]) == [["the", "assay"]]
    assert (adapted.split_special_tokens, adapted.words, adapted.padding_side) == (False, ["the"], "left")


@pytest.mark.parametrize("pretokenized", [False, True])
def test_a_vocabulary_tells_that_the_text_is_tokenized_already(tmp_path, caplog, pretokenized):
    text = "the cat saw the <unk> of a dog on the mat"
    inputs, words = write_lines(tmp_path / "text.txt", [text] * 40), ["<S>", "</S>", "<UNK>", *set(text.split())]
    how = SMALL | ONE_STEP | {"vocabulary": write_lines(tmp_path / "vocab.txt", words), "pretokenized": pretokenized}
    pretrain(inputs, tmp_path / "out", **how)
    assert ("23% of the first words" in caplog.text) is not pretokenized


def test_an_elmo_without_a_softmax_gets_one(files, tmp_path):
    model = small_model()
    init = save_checkpoint(tmp_path / "elmo", model)
    how = ADAPTED | ONE_STEP | {"recipe": "new", "layout": "documents", "batch_size": 1}
    folder = pretrain(files["domain"], tmp_path / "out", init=init, **how).folder
    assert ElmoConfig.from_pretrained(folder).vocab_size == len(set(" ".join(DOMAIN).split())) + 3
    torch.testing.assert_close(ElmoModel.from_pretrained(folder).state_dict(), model.state_dict(), rtol=0, atol=0)


def test_pretrain_command(files, tmp_path, capsys):
    command = ["pretrain", str(files["general"]), str(tmp_path / "out"), "--pretokenized", "--batch-size", "3"]
    command += ["--set", "use_cpu=true", "--set", "save_steps=3", "--learning-rate", "0.1", "--optim", "adagrad"]
    for field in ("hidden_sise=4", "dropout=0.1"):
        assert main([*command, "--steps=4", f"--config={field}"]) == 1
    assert main([*command, "--steps=4", "--held-out", str(files["held_out"]), *CONFIG]) == 0
    assert "held-out perplexity after: forward" in capsys.readouterr().out
    assert (tmp_path / "out" / "checkpoint-3").is_dir()
    assert main([*command, "--steps=1", "--overwrite", *CONFIG]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out'}: written\n"


def test_perplexity_command(trained, files, capsys):
    command = ["perplexity", str(files["general"]), "--model", str(trained.folder), "--pretokenized"]
    tokenizer, model = ElmoTokenizer.from_pretrained(trained.folder), ElmoForPreTraining.from_pretrained(trained.folder)
    for options, how in (([], {}), (["--stateful", "--batch-size", "5"], {"stateful": True, "batch_size": 5})):
        assert main([*command, *options]) == 0
        result = perplexity(model, files["general"], tokenizer=tokenizer, pretokenized=True, **how)
        assert f"forward {result.forward:.2f}, backward {result.backward:.2f}" in capsys.readouterr().out
