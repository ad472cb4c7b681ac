"""The perplexity of a text by the two language models (Peters et al. 2018, section 4), and an initial state other than
zero, for models that predict the first words after zero state badly."""

import itertools
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers.utils.logging import tqdm

from ..checkpoints.loading import ensure_loaded
from ..modeling_elmo import ElmoPreTrainedModel
from ..modeling_pretraining_elmo import ElmoForPreTraining, neighbor_labels
from ..tokenization_elmo import ElmoTokenizer
from ..utils.evaluation import batches, evaluation_mode
from ..utils.spelling import BEGIN, END
from ..utils.text import Words
from .data import WordEncoder, carried_windows
from .texts import DatasetTexts, TextFiles, open_texts
from .vocabulary import Vocabulary

SORTED_TOGETHER = 4096  # sentences sorted by length before batching
# If batch_size is not given, rows that carry the state are so long that their start from zero state hardly matters.
WORDS_PER_ROW, SENTENCES_PER_ROW, MAX_ROWS = 4096, 16, 256


@dataclass
class Perplexity:
    """Perplexities of a text: `exp` of the mean negative log-likelihood of its words, the end (forward) or beginning
    (backward) of each sentence included.

    Args:
        forward, backward: the perplexity of each language model.
        mean: `exp` of the mean of both models' losses, as bilm-tf reports it.
        words: number of predictions of each model, one boundary a sentence included.
        sentences: number of sentences.
        unknown: fraction of the predictions whose word is outside the vocabulary and counts as `<UNK>`.
    """

    forward: float
    backward: float
    mean: float
    words: int
    sentences: int
    unknown: float

    @classmethod
    def of(cls, totals: Sequence[float]) -> "Perplexity":
        """The perplexities from the sums of [`nll_totals`]."""
        forward, backward, words, sentences, unknown = totals
        if words == 0:
            raise ValueError("texts has no words: perplexity is a mean over words.")
        losses = torch.tensor([forward, backward, (forward + backward) / 2], dtype=torch.float64, device="cpu") / words
        forward, backward, mean = losses.exp().tolist()  # a diverged model may get to infinity
        return cls(forward, backward, mean, int(words), int(sentences), float(unknown / words))

    def __str__(self) -> str:
        return (
            f"forward {self.forward:.2f}, backward {self.backward:.2f}, mean {self.mean:.2f} "
            f"(loss {math.log(self.mean):.4f} nats a word, {self.words:,} words, {self.unknown:.1%} unknown)"
        )


def perplexity(
    model: ElmoForPreTraining | str | os.PathLike | None,
    texts: str | Path | Iterable[str | Path] | TextFiles | DatasetTexts,
    *,
    tokenizer: ElmoTokenizer | None = None,
    pretokenized: bool = False,
    stateful: bool = False,
    words_per_batch: int = 4096,
    batch_size: int | None = None,
    text_column: str | None = None,
    encoding: str = "utf-8",
) -> Perplexity:
    """The perplexity of both language models on a text, by the full softmax.

    Args:
        model: a language model, which runs on its device, in evaluation mode; or the name or folder of a checkpoint
            that has its softmax; `None` for the model that ships with hf_elmo.
        texts: files or glob patterns, Parquet or a dataset, as [`pretrain`] takes them; or [`TextFiles`] or
            [`DatasetTexts`], which split text with their own tokenizer.
        tokenizer: a tokenizer with the vocabulary; by default the one in the model's folder.
        pretokenized: whether the files are tokenized already, so that whitespace separates their words; otherwise the
            tokenizer splits them.
        stateful: `False` starts each sentence from zero state: the result depends neither on the order of the sentences
            nor on how they are batched. `True` evaluates as bilm-tf does: the text is distributed over rows, each of
            which carries its state from sentence to sentence. (bilm-tf ends with the row that ends first; here all
            words are counted.)
        words_per_batch: words in a batch, padding included.
        batch_size: number of rows if `stateful`; by default one for each 4,096 words of the text, 256 at most. With one
            row, the text is read in its order.
        text_column, encoding: the column of the text, by default `"text"` in datasets, and the encoding of files; as in
            [`TextFiles`].

    Raises:
        TypeError: the model is not a language model.
        ValueError: the tokenizer has no vocabulary or that of another model, or there is no text.
    """
    model, encoder = open_language_model(model, tokenizer)
    splitter = None if pretokenized else encoder.tokenizer
    source = texts if hasattr(texts, "read") else open_texts(texts, splitter, column=text_column, encoding=encoding)
    if stateful:
        sentences = list(source.sentences())
        steps = sum(len(words) + 1 for words in sentences)
        rows = batch_size or max(1, min(steps // WORDS_PER_ROW, len(sentences) // SENTENCES_PER_ROW, MAX_ROWS))
        inputs = carried_windows(encoder, sentences, rows, max(1, words_per_batch // rows))
    else:
        inputs = sentence_batches(model, encoder, source.sentences(), words_per_batch)
    with evaluation_mode(model):
        return Perplexity.of(nll_totals(model, encoder.vocabulary, inputs, stateful))


def open_language_model(
    model: ElmoForPreTraining | str | os.PathLike | None, tokenizer: ElmoTokenizer | None
) -> tuple[ElmoForPreTraining, WordEncoder]:
    """A language model, loaded if a name or folder is given, and the encoder of its vocabulary."""
    model, tokenizer = ensure_loaded(model, tokenizer, language_model=True)
    if not hasattr(model, "word_nll"):
        raise TypeError(f"model is a {type(model).__name__}, but must be an ElmoForPreTraining.")
    encoder = WordEncoder(tokenizer)
    encoder.vocabulary.require_rows(model.config.vocab_size)
    return model, encoder


@torch.no_grad()
def nll_totals(
    model: ElmoForPreTraining, vocabulary: Vocabulary, inputs: Iterable[dict[str, Tensor]], stateful: bool = False
) -> np.ndarray:
    """Sums over batches: forward NLL, backward NLL, predictions, sentences, unknown words: `[5]` float64. If
    `stateful`, a batch starts from the state after the previous one."""
    totals, state = np.zeros(5), None
    with tqdm(desc="Perplexity", unit=" words", leave=False) as progress:
        for batch in inputs:
            batch = {key: tensor.to(model.device) for key, tensor in batch.items()}
            nll, after = model.word_nll(**batch, state=state)
            state = after if stateful else None
            forward = batch["labels"][..., 0]
            counted = forward >= 0, forward == vocabulary.eos_id, forward == vocabulary.unk_id
            counts = [int(each.sum()) for each in counted]  # predictions, sentences, unknown words
            totals += np.concatenate((nll.double().sum((0, 1)).cpu().numpy(), counts))
            progress.update(counts[0])
    return totals


def sentence_batches(
    model: ElmoForPreTraining, encoder: WordEncoder, sentences: Iterator[Words], words_per_batch: int = 4096
) -> Iterator[dict[str, Tensor]]:
    """Sentences, each from zero state, in batches of sentences of similar length."""
    while pool := list(itertools.islice(sentences, SORTED_TOGETHER)):
        for batch in batches([len(words) + 2 for words in pool], words_per_batch):
            yield sentence_inputs(encoder, [pool[index] for index in batch], model.device)


def sentence_inputs(encoder: WordEncoder, sentences: list[Words], device: torch.device) -> dict[str, Tensor]:
    """`input_ids`, `attention_mask` and `labels` of sentences, padded on the right."""
    rows = [[BEGIN, *words, END] for words in sentences]
    word_ids = encoder.labels(rows)
    mask = (word_ids >= 0).long()
    batch = {"input_ids": encoder.characters(rows), "attention_mask": mask, "labels": neighbor_labels(word_ids, mask)}
    return {key: tensor.to(device) for key, tensor in batch.items()}


@torch.no_grad()
def settle(
    model: ElmoPreTrainedModel,
    texts: Sequence[str | Sequence[str]],
    *,
    tokenizer: ElmoTokenizer | None = None,
    batch_size: int = 32,
    pretokenized: bool = False,
) -> None:
    """Makes a model start every sentence from the mean of the states after `texts`, instead of zeros. This start is
    fixed, so a sentence still gets the same vectors whatever was read before, alone or in a batch. The start is saved
    with the weights (`config.settled_start`); `from_pretrained(folder, settled_start=False)` leaves it out.

    This helps a biLM that was trained like bilm-tf's, which carries the state from sentence to sentence and starts from
    zeros only once: such a biLM predicts the first words after zeros badly. A biLM that was trained with
    `reset_state=True`, like the model that ships with hf_elmo, has learned to start from zeros.

    Args:
        model: any model with a biLM; it is changed in place.
        texts: sentences like those that the model will read; a few suffice. Each is a text, which the tokenizer splits,
            or a list of words. They are read in `batch_size` rows, and each row carries its state from text to text.
            If there are more texts than rows, the mean leaves out the states after the first text of each row.
        tokenizer: by default the tokenizer in the model's folder.
        batch_size: number of rows.
        pretokenized: the texts are tokenized already: whitespace separates their words.

    Raises:
        ValueError: there is no text with a word in it, or `texts` is one string.
    """
    model, tokenizer = ensure_loaded(model, tokenizer)
    sentences = [words for words in tokenizer.split_into_words(texts, pretokenized) if words]
    if not sentences:
        raise ValueError("texts has no words: give at least one sentence.")
    elmo, batch_size = model.base_model, min(batch_size, len(sentences))
    bias, texts_read = elmo.bilm.layers[0].lstm.bias, 0
    with evaluation_mode(model):
        before = tuple(map(torch.zeros_like, elmo.bilm.initial_state(batch_size, bias)))
        sums = [part[:, :, 0].double() for part in before]
        for first in tqdm(range(0, len(sentences), batch_size), desc="Settling", leave=False):
            batch = sentences[first : first + batch_size]
            inputs = tokenizer(batch, is_split_into_words=True, padding=True, return_tensors="pt").to(model.device)
            before = tuple(part[:, :, : len(batch)] for part in before)
            before = elmo(inputs["input_ids"], inputs["attention_mask"], state=before, use_cache=True).state
            if first or len(sentences) == batch_size:
                sums = [total + part.double().sum(2) for total, part in zip(sums, before, strict=True)]
                texts_read += len(batch)
    for name, total in zip(("initial_hidden", "initial_cell"), sums, strict=True):
        setattr(elmo.bilm, name, nn.Parameter((total / texts_read).to(elmo.dtype), bias.requires_grad))
    model.config.settled_start = True
