"""A small language model with its vocabulary, and its probabilities a sentence at a time."""

from pathlib import Path

import numpy as np
import torch

from hf_elmo import ElmoForPreTraining, ElmoTokenizer
from hf_elmo.pretraining.vocabulary import Vocabulary, build_vocabulary
from tests.factories import small_model

TEXTS = ["the cat sat on the mat", "a dog", "rain fell all day and nobody went out to see it", "yes", "the dog sat"]


def small_tokenizer(folder: Path) -> ElmoTokenizer:
    """A tokenizer whose vocabulary, written into `folder`, has the words of `TEXTS`."""
    build_vocabulary(text.split() for text in TEXTS[:4]).save(folder / "vocab.txt")
    return ElmoTokenizer(vocab_file=str(folder / "vocab.txt"))


def small_language_model(tokenizer: ElmoTokenizer) -> ElmoForPreTraining:
    """A model of random weights with that vocabulary."""
    return small_model(ElmoForPreTraining, vocab_size=len(tokenizer.vocabulary), num_sampled=5)


def sentence_logits(
    model: ElmoForPreTraining, tokenizer: ElmoTokenizer, sentence: str
) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Log-probabilities at each position of a single sentence, in both directions, and the ids of its words."""
    inputs = tokenizer(sentence.split(), is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        output = model(**inputs)
    words = Vocabulary.of(tokenizer).sentence_ids(sentence.split())
    tables = [logits[0].double().log_softmax(-1) for logits in (output.forward_logits, output.backward_logits)]
    return *tables, words
