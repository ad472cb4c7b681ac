"""What the language models say of a text: the probability of each word, and substitutes for it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..evaluation import evaluation_mode
from ..modeling_pretraining_elmo import ElmoForPreTraining
from ..pretraining.data import WordEncoder
from ..pretraining.perplexity import sentence_batches, sentence_inputs
from ..tokenization_elmo import ElmoTokenizer


@dataclass
class SentenceScore:
    """Log-probabilities (nats) of the words of a sentence.

    Args:
        words: the sentence, `<S>` and `</S>` included.
        forward: `[words]` float64, given the words before; NaN for `<S>`, which nothing predicts.
        backward: `[words]` float64, given the words after; NaN for `</S>`.
    """

    words: list[str]
    forward: np.ndarray
    backward: np.ndarray


@torch.no_grad()
def score(
    model: ElmoForPreTraining,
    tokenizer: ElmoTokenizer,
    sentences: Sequence[str | Sequence[str]],
    words_per_batch: int = 4096,
    pretokenized: bool = False,
) -> list[SentenceScore]:
    """
    The log-probability of each word of each sentence in either direction, each sentence from zero state.

    Args:
        model, tokenizer: of a language model with its vocabulary.
        sentences: texts, which the tokenizer splits, or lists of words. A word outside the vocabulary gets the
            probability of `<UNK>`.
        words_per_batch: words at a time.
        pretokenized: texts are tokenized already: whitespace separates their words.

    Raises:
        ValueError: the tokenizer has no vocabulary, or `sentences` is one string.
    """
    encoder = WordEncoder(tokenizer)
    sentences = tokenizer.split_into_words(sentences, pretokenized)
    scores: list[SentenceScore | None] = [None] * len(sentences)
    with evaluation_mode(model):
        for batch in sentence_batches(sentences, words_per_batch):
            nll, _ = model.word_nll(**sentence_inputs(encoder, [words for _, words in batch], model.device))
            for (number, words), rows in zip(batch, nll.double().cpu().numpy(), strict=True):
                forward, backward = np.full((2, len(words) + 2), np.nan)
                forward[1:] = -rows[: len(words) + 1, 0]
                backward[:-1] = -rows[1 : len(words) + 2, 1]
                scores[number] = SentenceScore(["<S>", *words, "</S>"], forward, backward)
    return scores


@dataclass
class Substitutes:
    """The words that fit best in the place of a word.

    Args:
        word: what stands there.
        candidates: words and the log-probability of each by both language models together, best first: the product of
            both distributions, normalised.
        forward, backward: the best by either model alone, with their log-probabilities.
    """

    word: str
    candidates: list[tuple[str, float]]
    forward: list[tuple[str, float]]
    backward: list[tuple[str, float]]


@torch.no_grad()
def substitutes(
    model: ElmoForPreTraining,
    tokenizer: ElmoTokenizer,
    sentences: Sequence[str | Sequence[str]],
    top: int = 10,
    words: Iterable[str] | None = None,
    pretokenized: bool = False,
) -> list[list[Substitutes]]:
    """
    Lexical substitutes: for each word of each sentence the words of the vocabulary that are most probable there, given
    the words before it and the words after it (simple_elmo's `get_elmo_substitutes`, without the state it carries from
    one sentence to the next).

    Args:
        model, tokenizer: of a language model with its vocabulary.
        sentences: texts, which the tokenizer splits, or lists of words.
        top: candidates for each word. `<S>`, `</S>` and `<UNK>` are never among them.
        words: only these words' places; all places by default.
        pretokenized: texts are tokenized already: whitespace separates their words.

    Returns:
        for each sentence the [`Substitutes`] of its words, in their order.
    """
    encoder = WordEncoder(tokenizer)
    vocabulary = encoder.vocabulary
    special = torch.tensor([vocabulary.bos_id, vocabulary.eos_id, vocabulary.unk_id], device=model.device)
    if not 1 <= top <= len(vocabulary) - len(special):
        raise ValueError(f"top is {top}, but must be 1 to {len(vocabulary) - len(special)}, the words there are.")
    wanted = None if words is None else set(words)
    results = []
    with evaluation_mode(model):
        for sentence in tokenizer.split_into_words(sentences, pretokenized):
            places = [place for place, word in enumerate(sentence) if wanted is None or word in wanted]
            inputs = sentence_inputs(encoder, [sentence], model.device)
            forward, backward = _log_probabilities(model, inputs, places, special)
            both = torch.log_softmax(forward + backward, dim=1)
            columns = [_best(table, top, vocabulary.words) for table in (both, forward, backward)]
            results.append([Substitutes(sentence[place], *best) for place, *best in zip(places, *columns, strict=True)])
    return results


def _log_probabilities(model, inputs: dict[str, Tensor], places: list[int], special: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities `[places, vocab_size]` of what could stand at each place of one sentence, given the words
    before it and given the words after it."""
    hidden = model.elmo(inputs["input_ids"], output_hidden_states=True).hidden_states[-1][0]
    place = torch.tensor(places, dtype=torch.int64, device=hidden.device)
    before, after = hidden[place].chunk(2, dim=1)[0], hidden[place + 2].chunk(2, dim=1)[1]
    tables = []
    for context in (before, after):
        logits = model.lm_head(context).float()
        tables.append(torch.log_softmax(logits.index_fill(1, special, -math.inf), dim=1))
    return tables[0], tables[1]


def _best(table: Tensor, top: int, words: list[str]) -> list[list[tuple[str, float]]]:
    values, numbers = table.topk(top, dim=1)
    return [
        [(words[number], value) for number, value in zip(*row, strict=True)]
        for row in zip(numbers.tolist(), values.tolist(), strict=True)
    ]
