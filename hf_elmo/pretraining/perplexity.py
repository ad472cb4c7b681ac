"""The perplexity of a text by the two language models (Peters et al. 2018, section 4)."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers.utils import logging
from transformers.utils.logging import tqdm

from ..evaluation import evaluation_mode, require_language_model
from ..modeling_pretraining_elmo import ElmoForPreTraining, neighbor_labels
from ..spelling import BEGIN, END, PADDING
from ..tokenization_elmo import ElmoTokenizer
from .data import WordEncoder, carried_windows
from .text import DatasetTexts, TextFiles, Words, open_texts, require_columns
from .vocabulary import Vocabulary

logger = logging.get_logger(f"transformers.{__name__}")

SORTED_TOGETHER = 4096  # sentences sorted by length before batching
# Rows that carry the state, unless batch_size is given: each so long that what starts from zero state hardly counts.
WORDS_OF_A_ROW, SENTENCES_OF_A_ROW, MOST_ROWS = 4096, 16, 256


@dataclass
class Perplexity:
    """Perplexities of a text: `exp` of the mean negative log-likelihood of its words, the end (forward) or beginning
    (backward) of each sentence included.

    Args:
        forward, backward: of each language model.
        mean: `exp` of the mean of both models' losses, what bilm-tf reports.
        words: predictions of each model, one boundary a sentence included.
        sentences: their number.
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
    batch_size: int | None = None,
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
            nor on how they are batched. `True` evaluates as bilm-tf does: the text is distributed over rows, each of
            which carries its state from sentence to sentence. (bilm-tf ends with the row that ends first; here all
            words are counted.)
        words_per_batch: words in a batch, padding included.
        batch_size: rows (stateful); by default one for each 4,096 words of the text, 256 at most. One row reads the
            text in its order. With more than half as many rows as sentences there is a warning: few sentences go on
            from another one.
        text_column: of Parquet and of datasets, `"text"` by default.

    Returns:
        a [`Perplexity`], of each language model and of both.

    Raises:
        TypeError: the model is not a language model.
        ValueError: the tokenizer has no vocabulary or another one; there is no text, or (stateful) fewer sentences than
            `batch_size`, or that is given without `stateful`; or `pretokenized` or `text_column` is given for a source
            that splits its own text.
    """
    require_language_model(model)
    if batch_size is not None and not stateful:
        raise ValueError(f"batch_size is {batch_size}, but has no effect without stateful (--stateful): leave it out.")
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, but must be 1 or more.")
    source = texts
    if not hasattr(texts, "read"):
        source = open_texts(texts, None if pretokenized else tokenizer, column=text_column)
        require_columns(text_column, source)
    elif pretokenized or text_column is not None:
        option = "pretokenized=True" if pretokenized else f"text_column={text_column!r}"
        raise ValueError(f"{option} says how to read files, but texts is a source that splits its own text.")
    encoder = WordEncoder(tokenizer)
    with evaluation_mode(model):
        if stateful:
            totals = _stateful_totals(model, encoder, source.read(), words_per_batch, batch_size)
        else:
            totals = nll_totals(model, encoder, source.read(), words_per_batch)
    return Perplexity.of(totals, "" if totals[2] else getattr(source, "why_empty", ""))


@torch.no_grad()
def nll_totals(
    model: ElmoForPreTraining, encoder: WordEncoder, texts: Iterable[list[Words]], words_per_batch: int = 4096
) -> np.ndarray:
    """Sums over the sentences of `texts`, each from zero state: forward NLL, backward NLL, predictions, sentences,
    unknown words: `[5]` float64."""
    encoder.vocabulary.require_rows(model.config.vocab_size)
    totals = np.zeros(5)
    with tqdm(desc="Perplexity", unit=" words", leave=False) as progress:
        for batch in sentence_batches(_sentences(texts), words_per_batch):
            inputs = sentence_inputs(encoder, [words for _, words in batch], model.device)
            nll, _ = model.word_nll(**inputs)
            totals[:2] += nll.double().sum((0, 1)).cpu().numpy()
            totals[2:] += _counts(inputs["labels"], encoder.vocabulary)
            progress.update(sum(len(words) for _, words in batch))
    return totals


def _sentences(texts: Iterable[list[Words]]) -> Iterator[Words]:
    return (words for text in texts for words in text if words)


def _counts(labels: Tensor, vocabulary: Vocabulary) -> np.ndarray:
    """Predictions, sentences, unknown words."""
    forward = labels[..., 0]
    counted = forward >= 0, forward == vocabulary.eos_id, forward == vocabulary.unk_id
    return np.array([int(each.sum()) for each in counted])


@torch.no_grad()
def _stateful_totals(
    model: ElmoForPreTraining,
    encoder: WordEncoder,
    texts: Iterable[list[Words]],
    words_per_batch: int,
    batch_size: int | None,
) -> np.ndarray:
    """As [`nll_totals`], with the state carried in each of `batch_size` rows."""
    encoder.vocabulary.require_rows(model.config.vocab_size)
    rows, sentences = _rows(_sentences(texts), batch_size)
    totals, state = np.zeros(5), None
    with tqdm(desc="Perplexity", unit=" words", leave=False) as progress:
        for batch in carried_windows(encoder, sentences, rows, max(1, words_per_batch // rows)):
            batch = {key: tensor.to(model.device) for key, tensor in batch.items()}
            nll, state = model.word_nll(**batch, state=state)
            totals[:2] += nll.double().sum((0, 1)).cpu().numpy()
            counts = _counts(batch["labels"], encoder.vocabulary)
            totals[2:] += counts
            progress.update(int(counts[0]))
    return totals


def _rows(sentences: Iterator[Words], batch_size: int | None) -> tuple[int, Iterator[Words]]:
    """The number of rows, and all sentences, of which some were read to know it."""
    if batch_size is not None:
        ahead = list(itertools.islice(sentences, 2 * batch_size))
        if ahead and len(ahead) < batch_size:
            raise ValueError(
                f"the text has fewer sentences than the {batch_size} rows of a stateful perplexity, {len(ahead)}: give "
                "more text or a smaller batch_size (--batch-size), or leave it out."
            )
        if ahead and len(ahead) < 2 * batch_size:
            logger.warning(
                f"{len(ahead)} sentences are read in {batch_size} rows, so {len(ahead) - batch_size} of them go on "
                "from the state of another one: a smaller batch_size (--batch-size) carries it further."
            )
        return batch_size, itertools.chain(ahead, sentences)
    ahead, words = [], 0
    for sentence in sentences:
        ahead.append(sentence)
        words += len(sentence) + 1
        if words >= MOST_ROWS * WORDS_OF_A_ROW:
            break
    rows = min(words // WORDS_OF_A_ROW, len(ahead) // SENTENCES_OF_A_ROW, MOST_ROWS)
    return max(1, rows), itertools.chain(ahead, sentences)


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
