"""The perplexity of a text by the two language models (Peters et al. 2018, section 4)."""

import itertools
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.utils.logging import tqdm

from ..modeling_pretraining_elmo import ElmoForPreTraining
from ..reading.rows import Words
from ..tokenization_elmo import ElmoTokenizer
from ..utils.evaluation import batches, evaluation_mode
from .data import Batch, WordEncoder, carried_windows, ensure_language_models
from .texts import Texts
from .vocabulary import Vocabulary

SORTED_TOGETHER = 4096  # sentences sorted by length before batching
WORDS_PER_ROW = 4096  # by default, rows that carry the state are so long that their start hardly matters
SENTENCES_PER_ROW = 16
MAX_ROWS = 256


@dataclass
class Perplexity:
    """Perplexities of a text: `exp` of the mean negative log-likelihood of its words and of each sentence's boundary,
    for each language model; `mean` is `exp` of the mean of both losses, as bilm-tf reports it. `words` is the number of
    predictions of each model, `unknown` the fraction of them whose word is outside the vocabulary, `<UNK>`."""

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
            raise ValueError("inputs has no words: perplexity is a mean over words.")
        losses = torch.tensor([forward, backward, (forward + backward) / 2], dtype=torch.float64, device="cpu") / words
        forward, backward, mean = losses.exp().tolist()  # a diverged model may get to infinity
        return cls(forward, backward, mean, int(words), int(sentences), float(unknown / words))

    def __str__(self) -> str:
        found = f"forward {self.forward:.2f}, backward {self.backward:.2f}, mean {self.mean:.2f}"
        return f"{found} (loss {math.log(self.mean):.4f} nats a word, {self.words:,} words, {self.unknown:.1%} unknown)"


def perplexity(
    model: ElmoForPreTraining | str | os.PathLike | None,
    inputs: Any,
    *,
    tokenizer: ElmoTokenizer | None = None,
    pretokenized: bool = False,
    stateful: bool = False,
    words_per_batch: int = 4096,
    batch_size: int | None = None,
    input_format: str | None = None,
    text_column: str | int | None = None,
    encoding: str = "utf-8",
) -> Perplexity:
    """The perplexity of both language models on a text, by the full softmax.

    Args:
        model: a language model, or the name or folder of one; `None` for the model that ships with hf_elmo.
        inputs: as for [`embed`], also files by a folder or a pattern; or [`Texts`], which have their own tokenizer.
        tokenizer: a tokenizer with the vocabulary; by default the one in the model's folder.
        pretokenized: whether whitespace separates the words of the files; otherwise the tokenizer splits them.
        stateful: `False` starts each sentence from zero state: the result depends neither on the order of the sentences
            nor on how they are batched. `True` evaluates as bilm-tf does: the text is distributed over rows, each of
            which carries its state from sentence to sentence. (Here all words are counted, not up to the shortest row.)
        words_per_batch: words in a batch, padding included.
        batch_size: rows if `stateful`: by default one for each 4,096 words, 256 at most; with 1, text keeps its order.
        input_format, text_column, encoding: as for [`embed`].

    Raises:
        TypeError: the model is not a language model.
        ValueError: the tokenizer has no vocabulary or that of another model, or there is no text.
    """
    model, encoder = ensure_language_models(model, tokenizer)
    splitter = None if pretokenized else encoder.tokenizer
    reading = {"input_format": input_format, "text_column": text_column, "encoding": encoding}
    source = inputs if isinstance(inputs, Texts) else Texts(inputs, splitter, **reading)
    source.report()
    if stateful:
        sentences = list(source.sentences())
        steps = sum(len(words) + 1 for words in sentences)
        rows = batch_size or max(1, min(steps // WORDS_PER_ROW, len(sentences) // SENTENCES_PER_ROW, MAX_ROWS))
        batches_read = carried_windows(encoder, sentences, rows, max(1, words_per_batch // rows))
    else:
        batches_read = sentence_batches(encoder, source.sentences(), words_per_batch)
    return Perplexity.of(nll_totals(model, encoder.vocabulary, batches_read, stateful))


@torch.no_grad()
def nll_totals(
    model: ElmoForPreTraining, vocabulary: Vocabulary, inputs: Iterable[Batch], stateful: bool = False
) -> np.ndarray:
    """Sums over batches: forward and backward NLL, predictions, sentences, unknown words: `[5]` float64."""
    totals = np.zeros(5)
    state = None
    with evaluation_mode(model), tqdm(desc="Perplexity", unit=" words", leave=False) as progress:
        for batch in inputs:
            batch = {key: tensor.to(model.device) for key, tensor in batch.items()}
            nll, after = model.word_nll(**batch, state=state)
            state = after if stateful else None
            forward = batch["labels"][..., 0]
            counted = forward >= 0, forward == vocabulary.eos_id, forward == vocabulary.unk_id
            counts = [int(each.sum()) for each in counted]
            totals += np.concatenate((nll.double().sum((0, 1)).cpu().numpy(), counts))
            progress.update(counts[0])
    return totals


def sentence_batches(encoder: WordEncoder, sentences: Iterator[Words], words_per_batch: int = 4096) -> Iterator[Batch]:
    """Sentences, each from zero state, in batches of sentences of similar length."""
    while pool := list(itertools.islice(sentences, SORTED_TOGETHER)):
        for batch in batches([len(words) + 2 for words in pool], words_per_batch):
            yield encoder.sentences([pool[index] for index in batch])
