"""Small configurations, models, tokenizers, checkpoints and files: what tests of every module begin with."""

import gzip
from collections.abc import Iterable, Sequence
from inspect import getfile
from pathlib import Path

import numpy as np
import torch
from transformers.dynamic_module_utils import get_relative_import_files

from hf_elmo import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer, names
from hf_elmo.pretraining.vocabulary import Vocabulary, build_vocabulary

CODE = {
    name: {Path(file).name for file in (own, *get_relative_import_files(own))}
    for name in ("ElmoConfig", "ElmoTokenizer", *names.MODELS.values())
    for own in [getfile(getattr(names, name))]
}
# Sizes that all differ, so that swapped axes fail.
TINY = {"char_embedding_size": 5, "char_filters": [[1, 4], [2, 8], [3, 25]], "num_highway_layers": 2}
TINY |= {"hidden_size": 22, "cell_size": 19}

SENTENCES = ["The cat sat on the mat .", "A", "Ünïcödé wörds 日本語 and 😀 , too"]
SENTENCES += ["It didn 't rain in Spain ; the plain stayed dry ."]
TEXTS = ["the cat sat on the mat", "a dog", "rain fell all day and nobody went out to see it fall", "yes"]
TEXTS += ["the dog sat in the rain", "who saw a cat that sat on a dog in all that rain", "nobody"]
TEXTS += ["day and day it fell", "out"]


def small_config(**changes: object) -> ElmoConfig:
    return ElmoConfig(**{**TINY, **changes})


def small_model(model_class: type = ElmoModel, seed: int = 0, **changes: object) -> torch.nn.Module:
    """A model of random weights, large enough that the clips take part; `changes` are fields of its configuration."""
    torch.manual_seed(seed)
    model = model_class(small_config(**changes)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".weight_" in name or name.endswith("bias"):
                parameter.add_(torch.randn_like(parameter) * 0.5)
    return model


def whitespace_tokenizer(**options: object) -> ElmoTokenizer:
    return ElmoTokenizer(word_splitting="whitespace", **options)


def save_checkpoint(folder: Path, model: torch.nn.Module, tokenizer: ElmoTokenizer | None = None) -> Path:
    """Saves a model and a tokenizer, by default one that splits at whitespace, into a folder, which is returned."""
    model.save_pretrained(folder)
    (tokenizer or whitespace_tokenizer()).save_pretrained(folder)
    return folder


def small_checkpoint(folder: Path, model_class: type = ElmoModel, **changes: object) -> Path:
    """Saves a model of random weights, and a tokenizer that splits at whitespace."""
    return save_checkpoint(folder, small_model(model_class, **changes))


def word_level(folder: Path, words: Sequence[str]) -> tuple[ElmoModel, ElmoTokenizer]:
    """A model of random weights that embeds these words, and its tokenizer; the vocabulary is written into `folder`."""
    file = write_lines(folder / "vocab.txt", ["<S>", "</S>", "<UNK>", *words])
    model = small_model(char_filters=[], word_vocab_size=len(words) + 4)
    return model, whitespace_tokenizer(vocab_file=str(file), embeds_words=True)


def small_tokenizer(folder: Path, **options: object) -> ElmoTokenizer:
    """A tokenizer whose vocabulary, written into `folder`, has the words of `TEXTS`."""
    build_vocabulary(text.split() for text in TEXTS).save(folder / "vocab.txt")
    return ElmoTokenizer(vocab_file=str(folder / "vocab.txt"), **options)


def small_language_model(tokenizer: ElmoTokenizer) -> ElmoForPreTraining:
    """A model of random weights with that vocabulary."""
    return small_model(ElmoForPreTraining, vocab_size=len(tokenizer.vocabulary), num_sampled=5)


def sentence_ids(vocabulary: Vocabulary, sentence: str) -> np.ndarray:
    return np.array([vocabulary.bos_id, *vocabulary.ids(sentence.split()), vocabulary.eos_id])


def sentence_logits(model: ElmoForPreTraining, tokenizer: ElmoTokenizer, sentence: str) -> tuple:
    """Log-probabilities at each position of a single sentence, in both directions, and the ids of its words."""
    inputs = tokenizer(sentence.split(), is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        output = model(**inputs)
    words = sentence_ids(Vocabulary.of(tokenizer), sentence)
    tables = [logits[0].double().log_softmax(-1) for logits in (output.forward_logits, output.backward_logits)]
    return *tables, words


def layers_of(model: torch.nn.Module, tokenizer: ElmoTokenizer, sentences: list[list[str]]) -> list[np.ndarray]:
    """Of each sentence its layers `[layers + 1, words + 2, 2P]`, boundaries included, computed in one batch."""
    words = tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
    with torch.no_grad():
        layers = torch.stack(model(**words, output_hidden_states=True).hidden_states).numpy()
    return [layers[:, row, : len(sentence) + 2] for row, sentence in enumerate(sentences)]


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    """A text file of these lines, in UTF-8, compressed if its name ends in `.gz`; missing folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of each file in a folder, by its path there."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
