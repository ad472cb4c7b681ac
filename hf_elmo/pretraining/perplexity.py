"""The perplexity of a text by the two language models (Peters et al. 2018, section 4)."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers.utils.logging import tqdm

from ..evaluation import evaluation_mode, require_language_model
from ..modeling_pretraining_elmo import ElmoForPreTraining, neighbor_labels
from ..spelling import BEGIN, END, PADDING
from ..tokenization_elmo import ElmoTokenizer
from .data import PackedWindows, WordEncoder
from .text import DatasetTexts, TextFiles, Words, open_texts, require_columns

SORTED_TOGETHER = 4096  # sentences sorted by length before batching


@dataclass
class Perplexity:
    """Perplexities of a text: `exp` of the mean negative log-likelihood of its words, the end (forward) or beginning
    (backward) of each sentence included.

    Args:
        forward, backward: of each language model.
        mean: `exp` of the mean of both models' losses, what bilm-tf reports.
        words: predictions of each model, one boundary a sentence included.
        sentences: their number; 0 where not counted (stateful).
        unknown: fraction of these predictions, boundaries included, whose word is outside the vocabulary; it counts as
            the word `<UNK>`.
    """

    forward: float
    backward: float
    mean: float
    words: int
    sentences: int
    unknown: float

    @classmethod
    def of(cls, totals: Sequence[float], empty: str = "") -> "Perplexity":
        """From sums: forward NLL, backward NLL, predictions, sentences, unknown words; ValueError, which says what is
        `empty`, where there are none."""
        forward, backward, words, sentences, unknown = totals
        if words == 0:
            raise ValueError(f"there is no text to compute a perplexity of{empty and ': '}{empty}.")
        losses = forward / words, backward / words, (forward + backward) / words / 2
        return cls(*map(_exp, losses), int(words), int(sentences), float(unknown / words))


def _exp(loss: float) -> float:
    return math.exp(loss) if loss < 709 else math.inf  # exp(710) overflows; a diverged model may get there


def perplexity(
    model: ElmoForPreTraining,
    tokenizer: ElmoTokenizer,
    texts: str | Path | Iterable[str | Path] | TextFiles | DatasetTexts,
    pretokenized: bool = False,
    stateful: bool = False,
    words_per_batch: int = 4096,
    batch_size: int = 256,
    text_column: str | None = None,
) -> Perplexity:
    """
    The perplexity of both language models on a text, by the full softmax.

    Args:
        model: on the device where it is to run; in evaluation mode during the call.
        tokenizer: with the vocabulary.
        texts: files or glob patterns, Parquet or a dataset, as [`pretrain`] takes them; or a source of texts.
        pretokenized: the files are tokenized already: whitespace separates their words; else the tokenizer splits them.
        stateful: `False` starts each sentence from zero state: the result depends neither on the order of the sentences
            nor on how they are batched. `True` evaluates as bilm-tf does: the text is distributed over `batch_size`
            rows, the state is carried from sentence to sentence, and when one row runs out of text the words left in
            the others are not counted.
        words_per_batch: words in a batch, padding included (stateless).
        batch_size: rows of a batch (stateful).
        text_column: of Parquet and of datasets, `"text"` by default.

    Returns:
        a [`Perplexity`], of each language model and of both.

    Raises:
        TypeError: the model is not a language model.
        ValueError: the tokenizer has no vocabulary or another one, there is no text, (stateful) too little of it for
            `batch_size` rows, or `pretokenized` or `text_column` is given for a source that splits its own text.
    """
    require_language_model(model)
    source = texts
    if not hasattr(texts, "read"):
        source = open_texts(texts, None if pretokenized else tokenizer, column=text_column)
        require_columns(text_column, source)
    elif pretokenized or text_column is not None:
        option = "pretokenized=True" if pretokenized else f"text_column={text_column!r}"
        raise ValueError(f"{option} says how to read files, but texts is a source that splits its own text.")
    with evaluation_mode(model):
        if stateful:
            return Perplexity.of(_stateful_totals(model, tokenizer, source, batch_size))
        totals = nll_totals(model, WordEncoder(tokenizer), source.read(), words_per_batch)
        return Perplexity.of(totals, "" if totals[2] else getattr(source, "why_empty", ""))


@torch.no_grad()
def nll_totals(
    model: ElmoForPreTraining, encoder: WordEncoder, texts: Iterable[list[Words]], words_per_batch: int = 4096
) -> np.ndarray:
    """Sums over the sentences of `texts`, each from zero state: forward NLL, backward NLL, predictions, sentences,
    unknown words: `[5]` float64."""
    encoder.vocabulary.require_rows(model.config.vocab_size)
    sentences = (words for text in texts for words in text if words)
    totals = np.zeros(5)
    with tqdm(desc="Perplexity", unit=" words", leave=False) as progress:
        for batch in sentence_batches(sentences, words_per_batch):
            inputs = sentence_inputs(encoder, [words for _, words in batch], model.device)
            nll, _ = model.word_nll(**inputs)
            totals[:2] += nll.double().sum((0, 1)).cpu().numpy()
            totals[2:] += _counts(inputs["labels"], encoder.vocabulary.unk_id)
            totals[3] += len(batch)
            progress.update(sum(len(words) for _, words in batch))
    return totals


def _counts(labels: Tensor, unknown: int) -> np.ndarray:
    forward = labels[..., 0]
    return np.array([int((forward >= 0).sum()), 0, int((forward == unknown).sum())])


@torch.no_grad()
def _stateful_totals(model: ElmoForPreTraining, tokenizer: ElmoTokenizer, source, batch_size: int) -> np.ndarray:
    windows = PackedWindows(source, tokenizer, batch_size, window=1, shuffle_block=0)
    windows.encoder.vocabulary.require_rows(model.config.vocab_size)
    totals, state = np.zeros(5), None
    for batch in windows.one_pass():
        batch = {key: tensor.to(model.device) for key, tensor in batch.items()}
        nll, state = model.word_nll(**batch, state=state)
        totals[:2] += nll.double().sum((0, 1)).cpu().numpy()
        totals[2:] += _counts(batch["labels"], windows.encoder.vocabulary.unk_id)
    if not totals[2]:
        raise ValueError(
            f"the text has fewer sentences than the {batch_size} rows of a stateful perplexity: give more text or a "
            "smaller batch_size, or use the stateless one."
        )
    return totals


def sentence_inputs(encoder: WordEncoder, sentences: list[Words], device: torch.device) -> dict[str, Tensor]:
    """`input_ids`, `attention_mask` and `labels` of sentences, padded on the right."""
    width = max(map(len, sentences)) + 2
    tokens = [token for words in sentences for token in [BEGIN, *words, END, *[PADDING] * (width - 2 - len(words))]]
    characters = torch.from_numpy(encoder.speller.characters(tokens)).view(len(sentences), width, -1)
    word_ids = torch.from_numpy(encoder.labels(tokens)).view(len(sentences), width)
    mask = (word_ids >= 0).long()
    batch = {"input_ids": characters, "attention_mask": mask, "labels": neighbor_labels(word_ids, mask)}
    return {key: tensor.to(device) for key, tensor in batch.items()}


def sentence_batches(sentences: Iterable[Words], words_per_batch: int) -> Iterator[list[tuple[int, Words]]]:
    """Numbered sentences in batches of similar length, at most `words_per_batch` words each, padding included."""
    numbered = enumerate(sentences)
    while pool := sorted(itertools.islice(numbered, SORTED_TOGETHER), key=lambda item: len(item[1])):
        batch: list[tuple[int, Words]] = []
        for item in pool:
            if batch and (len(batch) + 1) * (len(item[1]) + 2) > words_per_batch:
                yield batch
                batch = []
            batch.append(item)
        yield batch
