"""The language models on a text: the probability of each word, and lexical substitutes for it."""

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
        forward: `[words]` float64, given the words before; NaN for `<S>`, which is not predicted.
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
    The log-probability of each word of each sentence in both directions, each sentence from zero state.

    Args:
        model, tokenizer: of a language model with its vocabulary.
        sentences: texts, which the tokenizer splits, or lists of words. A word outside the vocabulary gets the
            probability of `<UNK>`.
        words_per_batch: words in a batch, padding included.
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
    """The words that fit best in place of a word.

    Args:
        word: the word of the sentence.
        candidates: words and their log-probabilities by both language models together, best first: the product of both
            distributions, normalized.
        forward, backward: the best by each model alone, with their log-probabilities.
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
    Lexical substitutes: for each word of each sentence, the words of the vocabulary that are most probable in its place
    given the words before it and the words after it (simple_elmo's `get_elmo_substitutes`, without the state that it
    carries from sentence to sentence).

    Args:
        model, tokenizer: of a language model with its vocabulary.
        sentences: texts, which the tokenizer splits, or lists of words.
        top: candidates for each word; `<S>`, `</S>` and `<UNK>` are excluded.
        words: substitutes for occurrences of these words only; for all words by default.
        pretokenized: texts are tokenized already: whitespace separates their words.

    Returns:
        for each sentence the [`Substitutes`] of its words, in their order.

    Raises:
        ValueError: the tokenizer has no vocabulary, `top` is not between 1 and the number of words in it, or
            `sentences` is one string.
    """
    encoder = WordEncoder(tokenizer)
    vocabulary = encoder.vocabulary
    special = torch.tensor([vocabulary.bos_id, vocabulary.eos_id, vocabulary.unk_id], device=model.device)
    if not 1 <= top <= len(vocabulary) - len(special):
        raise ValueError(
            f"top is {top}, but must be 1 to {len(vocabulary) - len(special)}, the words of the vocabulary."
        )
    wanted = None if words is None else set(words)
    results = []
    with evaluation_mode(model):
        for sentence in tokenizer.split_into_words(sentences, pretokenized):
            positions = [position for position, word in enumerate(sentence) if wanted is None or word in wanted]
            inputs = sentence_inputs(encoder, [sentence], model.device)
            forward, backward = _log_probabilities(model, inputs, positions, special)
            both = torch.log_softmax(forward + backward, dim=1)
            columns = [_best(table, top, vocabulary.words) for table in (both, forward, backward)]
            results.append(
                [Substitutes(sentence[position], *best) for position, *best in zip(positions, *columns, strict=True)]
            )
    return results


def _log_probabilities(
    model, inputs: dict[str, Tensor], positions: list[int], special: Tensor
) -> tuple[Tensor, Tensor]:
    """Log-probabilities `[positions, vocab_size]` of the words at positions of one sentence, given the words before
    and given the words after each."""
    hidden = model.elmo(inputs["input_ids"], output_hidden_states=True).hidden_states[-1][0]
    position = torch.tensor(positions, dtype=torch.int64, device=hidden.device)
    before, after = hidden[position].chunk(2, dim=1)[0], hidden[position + 2].chunk(2, dim=1)[1]
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
