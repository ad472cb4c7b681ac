"""Text that is tokenized already: `pretokenized=True` and `--pretokenized` mean the same everywhere."""

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import hf_elmo
from hf_elmo import ElmoConfig, ElmoForPreTraining, ElmoTokenizer
from hf_elmo.pretraining.text import DatasetTexts
from hf_elmo.pretraining.vocabulary import Vocabulary, build_vocabulary
from hf_elmo_cli import main
from tests.conftest import TINY, random_model

TEXT = "It isn't  so."
AT_WHITESPACE, BY_TOKENIZER = ["It", "isn't", "so."], ["It", "isn", "'t", "so", "."]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A language model whose tokenizer splits as the 1 Billion Word Benchmark does."""
    vocabulary = build_vocabulary([AT_WHITESPACE, BY_TOKENIZER])
    vocabulary.save(tmp_path / "vocab.txt")
    folder = tmp_path / "model"
    config = ElmoConfig(**TINY, vocab_size=len(vocabulary), num_sampled=5)
    random_model(config, ElmoForPreTraining).save_pretrained(folder)
    ElmoTokenizer(vocab_file=str(tmp_path / "vocab.txt")).save_pretrained(folder)
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    file = tmp_path / "corpus.txt"
    file.write_text(f"{TEXT}\n" * 9, encoding="utf-8")
    return file


# -- in Python ---------------------------------------------------------------------------------------------------------


def words_of_embed(model, tokenizer, corpus: Path, **how) -> int:
    arrays = hf_elmo.embed(model.elmo, corpus, tokenizer=tokenizer, **how)
    assert {len(array) for array in hf_elmo.embed(model.elmo, [TEXT], tokenizer=tokenizer, **how)} == {len(arrays[0])}
    return len(arrays[0])


def words_of_neighbors(model, tokenizer, corpus: Path, **how) -> int:
    found = hf_elmo.nearest_neighbors(model, tokenizer, f"Oh. {TEXT}", "It", corpus, top=1, **how)
    return len(found[1][0].sentence)


def words_of_perplexity(model, tokenizer, corpus: Path, **how) -> int:
    return hf_elmo.perplexity(model, tokenizer, corpus, **how).words // 9 - 1  # one prediction is the boundary


def words_of_score(model, tokenizer, corpus: Path, **how) -> int:
    return len(hf_elmo.score(model, tokenizer, [TEXT], **how)[0].words) - 2


def words_of_substitutes(model, tokenizer, corpus: Path, **how) -> int:
    return len(hf_elmo.substitutes(model, tokenizer, [TEXT], top=2, **how)[0])


def words_of_word_plane(model, tokenizer, corpus: Path, **how) -> int:
    return len(hf_elmo.word_plane(model, tokenizer, [TEXT], **how).sentences[0])


def words_of_settle(model, tokenizer, corpus: Path, **how) -> int:
    """Of the splittings, the one that leaves the state."""
    hf_elmo.settle(model, tokenizer, [TEXT], **how)
    left = []
    for words in (AT_WHITESPACE, BY_TOKENIZER):
        inputs = tokenizer([words], is_split_into_words=True, return_tensors="pt")
        zeros = tuple(torch.zeros_like(part) for part in model.elmo.bilm.initial_state(1, model.lm_head.weight))
        left.append(model.elmo(**inputs, state=zeros).state[0][:, :, 0])
    own = model.elmo.bilm.initial_hidden
    (own,) = [words for words, state in zip((3, 5), left, strict=True) if torch.allclose(state, own, atol=1e-5)]
    return own


def words_of_pretrain(model, tokenizer, corpus: Path, **how) -> int:
    small = {"config": TINY, "batch_size": 3, "window": 5, "max_steps": 1, "use_cpu": True, "disable_tqdm": True}
    folder = hf_elmo.pretrain(
        corpus.with_name("trained"), corpus, save_strategy="no", overwrite=True, **small, **how
    ).folder
    return len(Vocabulary.load(folder / "vocab.txt")) - 3


PLACES = (
    words_of_embed,
    words_of_neighbors,
    words_of_perplexity,
    words_of_score,
    words_of_settle,
    words_of_substitutes,
    words_of_word_plane,
    words_of_pretrain,
)


@pytest.mark.parametrize("words_of", PLACES, ids=lambda place: place.__name__.removeprefix("words_of_"))
def test_python(words_of: Callable[..., int], folder: Path, corpus: Path) -> None:
    model, tokenizer = ElmoForPreTraining.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder)
    assert words_of(model, tokenizer, corpus, pretokenized=True) == len(AT_WHITESPACE)
    assert words_of(model, tokenizer, corpus) == words_of(model, tokenizer, corpus, pretokenized=False) == 5


def test_no_other_function_has_another_name_for_it() -> None:
    names = {name: inspect.signature(getattr(hf_elmo, name)).parameters for name in hf_elmo.__all__}
    with_option = {name for name, parameters in names.items() if "pretokenized" in parameters}
    places = {place.__name__.removeprefix("words_of_") for place in PLACES} - {"neighbors"}
    # And in tests of their own: test_predict.py and test_question_answering.py of tests/tasks, tests/analysis,
    # tests/embedding/test_embedder.py (Embedder is what embed_on_ray calls).
    others = {"predict", "layer_similarities", "next_words", "previous_words", "Embedder", "embed_on_ray"}
    others |= {"answer", "encode_questions", "squad_metrics"}
    assert with_option == places | others | {"nearest_neighbors"}
    assert not [name for name, parameters in names.items() if "is_split_into_words" in parameters]


def test_a_source_that_splits_its_own_text_takes_no_such_option(folder: Path) -> None:
    model, tokenizer = ElmoForPreTraining.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder)
    with pytest.raises(ValueError, match=r"pretokenized=True .* a source that splits its own text"):
        hf_elmo.perplexity(model, tokenizer, DatasetTexts([TEXT]), pretokenized=True)


# -- on the command line -----------------------------------------------------------------------------------------------


def run_embed(folder: Path, corpus: Path, flags: list[str]) -> bool:
    out = corpus.with_name("out.npz")
    assert main(["embed", str(folder), str(corpus), str(out), "--overwrite", *flags]) == 0
    with np.load(out) as arrays:
        return len(arrays["0"]) == len(AT_WHITESPACE)


def run_neighbors(folder: Path, corpus: Path, flags: list[str]) -> bool:
    return main(["neighbors", f"Oh. {TEXT}", "isn't", str(corpus), "--model", str(folder), *flags]) == 0


def run_vocab(folder: Path, corpus: Path, flags: list[str]) -> bool:
    out = corpus.with_name("words.txt")
    assert main(["vocab", str(out), str(corpus), "--overwrite", *flags]) == 0
    return "isn't" in Vocabulary.load(out)


def run_pretrain(folder: Path, corpus: Path, flags: list[str]) -> bool:
    out = corpus.with_name("trained")
    arguments = [f"--config={name}={json.dumps(value)}" for name, value in TINY.items()]
    arguments += ["--steps=1", "--batch-size=3", "--window=5", "--set=use_cpu=true", "--set=save_strategy=no"]
    assert main(["pretrain", str(out), str(corpus), "--overwrite", *arguments, *flags]) == 0
    return "isn't" in Vocabulary.load(out / "vocab.txt")


def run_perplexity(folder: Path, corpus: Path, flags: list[str]) -> bool:
    assert main(["perplexity", str(folder), str(corpus), *flags]) == 0
    model, tokenizer = ElmoForPreTraining.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder)
    return hf_elmo.perplexity(model, tokenizer, corpus, pretokenized=bool(flags)).words == 9 * 4


def run_substitutes(folder: Path, corpus: Path, flags: list[str]) -> bool:
    return main(["substitutes", str(folder), TEXT, "isn't", "--top", "2", *flags]) == 0


COMMANDS = (run_embed, run_neighbors, run_vocab, run_pretrain, run_perplexity, run_substitutes)


@pytest.mark.parametrize("flag", ["--pretokenized", "--words"])
@pytest.mark.parametrize("run", COMMANDS, ids=lambda run: run.__name__.removeprefix("run_"))
def test_command(run: Callable[..., bool], folder: Path, corpus: Path, flag: str) -> None:
    assert run(folder, corpus, [flag])
    assert not run(folder, corpus, [])
