"""Text that is tokenized already: `pretokenized=True` and `--pretokenized` mean the same everywhere."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hf_elmo
from hf_elmo import ElmoConfig, ElmoForPreTraining, ElmoTokenizer
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
    found = hf_elmo.nearest_neighbors(model, f"Oh. {TEXT}", "It", corpus, tokenizer=tokenizer, top=1, **how)
    return len(found[1][0].sentence)


def words_of_perplexity(model, tokenizer, corpus: Path, **how) -> int:
    return (
        hf_elmo.perplexity(model, corpus, tokenizer=tokenizer, **how).words // 9 - 1
    )  # one prediction is the boundary


def words_of_score(model, tokenizer, corpus: Path, **how) -> int:
    return len(hf_elmo.score(model, [TEXT], tokenizer=tokenizer, **how)[0].words) - 2


def words_of_substitutes(model, tokenizer, corpus: Path, **how) -> int:
    return len(hf_elmo.substitutes(model, TEXT, tokenizer=tokenizer, top=2, **how))


def words_of_word_plane(model, tokenizer, corpus: Path, **how) -> int:
    return len(hf_elmo.word_plane(model, [TEXT], tokenizer=tokenizer, **how).sentences[0])


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
    words_of_substitutes,
    words_of_word_plane,
    words_of_pretrain,
)


@pytest.mark.parametrize("words_of", PLACES, ids=lambda place: place.__name__.removeprefix("words_of_"))
def test_python(words_of: Callable[..., int], folder: Path, corpus: Path) -> None:
    model, tokenizer = ElmoForPreTraining.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder)
    assert words_of(model, tokenizer, corpus, pretokenized=True) == len(AT_WHITESPACE)
    assert words_of(model, tokenizer, corpus) == words_of(model, tokenizer, corpus, pretokenized=False) == 5


# -- on the command line -----------------------------------------------------------------------------------------------


def run_embed(folder: Path, corpus: Path, flags: list[str]) -> bool:
    out = corpus.with_name("out.npz")
    assert main(["embed", str(corpus), str(out), "--model", str(folder), "--overwrite", *flags]) == 0
    with np.load(out) as arrays:
        return len(arrays["0"]) == len(AT_WHITESPACE)


def run_vocab(folder: Path, corpus: Path, flags: list[str]) -> bool:
    out = corpus.with_name("words.txt")
    assert main(["vocab", str(out), str(corpus), "--overwrite", *flags]) == 0
    return "isn't" in Vocabulary.load(out)


COMMANDS = (run_embed, run_vocab)


@pytest.mark.parametrize("flag", ["--pretokenized", "--words"])
@pytest.mark.parametrize("run", COMMANDS, ids=lambda run: run.__name__.removeprefix("run_"))
def test_command(run: Callable[..., bool], folder: Path, corpus: Path, flag: str) -> None:
    assert run(folder, corpus, [flag])
    assert not run(folder, corpus, [])
