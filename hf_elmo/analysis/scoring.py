"""The language models on a text: the probability of each word, lexical substitutes for it, and how the text goes on."""

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..evaluation import evaluation_mode, require_language_model
from ..modeling_pretraining_elmo import ElmoForPreTraining
from ..pretraining.data import WordEncoder
from ..pretraining.perplexity import sentence_batches, sentence_inputs
from ..pretraining.vocabulary import Vocabulary
from ..shipped import load_tokenizer, load_weights
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

    Returns:
        a [`SentenceScore`] for each sentence.

    Raises:
        TypeError: the model is not a language model.
        ValueError: the tokenizer has no vocabulary or another one, or `sentences` is one string.
    """
    require_language_model(model)
    encoder = WordEncoder(tokenizer)
    encoder.vocabulary.require_rows(model.config.vocab_size)
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
        top: candidates for each word; `<S>`, `</S>` and `<UNK>` are excluded. Marks of the training text are not:
            WikiText's `<unk>` and `@-@` are words of elmo-compact-en.
        words: substitutes for occurrences of these words only; for all words by default.
        pretokenized: texts are tokenized already: whitespace separates their words.

    Returns:
        for each sentence the [`Substitutes`] of its words, in their order.

    Raises:
        TypeError: the model is not a language model.
        ValueError: the tokenizer has no vocabulary or another one, `top` is not between 1 and the number of words in
            it, or `sentences` or `words` is one string.
    """
    require_language_model(model)
    encoder = WordEncoder(tokenizer)
    vocabulary = encoder.vocabulary
    vocabulary.require_rows(model.config.vocab_size)
    if isinstance(words, str):
        raise ValueError(f"words must be a list of words, but is a str, {words!r}: put it into a list.")
    special = _special_words(vocabulary, top).to(model.device)
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


def _special_words(vocabulary: Vocabulary, top: int) -> Tensor:
    """The numbers of `<S>`, `</S>` and `<UNK>`, of which none is among the `top` words."""
    special = torch.tensor([vocabulary.bos_id, vocabulary.eos_id, vocabulary.unk_id])
    if not 1 <= top <= len(vocabulary) - len(special):
        raise ValueError(
            f"top is {top}, but must be 1 to {len(vocabulary) - len(special)}, the words of the vocabulary."
        )
    return special


def _best(table: Tensor, top: int, words: list[str]) -> list[list[tuple[str, float]]]:
    values, numbers = table.topk(top, dim=1)
    return [
        [(words[number], value) for number, value in zip(*row, strict=True)]
        for row in zip(numbers.tolist(), values.tolist(), strict=True)
    ]


def next_words(
    model: ElmoForPreTraining | str | os.PathLike | None,
    text: str | Sequence[str],
    *,
    tokenizer: ElmoTokenizer | None = None,
    top: int = 10,
    pretokenized: bool = False,
) -> list[tuple[str, float]]:
    """
    How a sentence goes on: the words that the forward language model expects after its beginning.

    Args:
        model: a language model, or the name or folder of a checkpoint with its softmax; `None` for the one that ships.
        text: the beginning of a sentence: a string, which the tokenizer splits, or a list of words. An empty one asks
            for the first words of sentences.
        tokenizer: with the vocabulary; by default that of the model's folder.
        top: words to return; `<S>`, `</S>` and `<UNK>` are not among them. Marks of the training text may be:
            WikiText's `<unk>` and `@-@` are words of elmo-compact-en.
        pretokenized: the text is tokenized already: whitespace separates its words.

    Returns:
        words of the vocabulary and their log-probabilities (nats), the most probable first: what [`score`] gives for
        the word after this text.

    Example:

    ```python
    >>> for word, value in hf_elmo.next_words(None, "Let's stick to", top=3):
    ...     print(word, round(math.exp(value), 3))
    ```

    Raises:
        ValueError: the checkpoint has no softmax, the tokenizer no vocabulary or another one; `top` is not between 1
            and the number of words.
        TypeError: the model is not a language model.
        FileNotFoundError, OSError: there is no such checkpoint.
    """
    return _expected_words(0, model, text, tokenizer, top, pretokenized)


def previous_words(
    model: ElmoForPreTraining | str | os.PathLike | None,
    text: str | Sequence[str],
    *,
    tokenizer: ElmoTokenizer | None = None,
    top: int = 10,
    pretokenized: bool = False,
) -> list[tuple[str, float]]:
    """
    What stands before the end of a sentence: the words that the backward language model expects before `text`.

    As [`next_words`], read from the right: `text` is the end of a sentence, and an empty one asks for last words.
    """
    return _expected_words(1, model, text, tokenizer, top, pretokenized)


@torch.no_grad()
def _expected_words(
    direction: int,
    model: ElmoForPreTraining | str | os.PathLike | None,
    text: str | Sequence[str],
    tokenizer: ElmoTokenizer | None,
    top: int,
    pretokenized: bool,
) -> list[tuple[str, float]]:
    """The words after `text` (`direction` 0) or before it (1)."""
    model, tokenizer = _language_model(model, tokenizer)
    encoder = WordEncoder(tokenizer)
    encoder.vocabulary.require_rows(model.config.vocab_size)
    special = _special_words(encoder.vocabulary, top).to(model.device)
    (words,) = tokenizer.split_into_words([text], pretokenized)
    with evaluation_mode(model):
        inputs = sentence_inputs(encoder, [words], model.device)
        hidden = model.elmo(inputs["input_ids"], output_hidden_states=True).hidden_states[-1][0]
        # The last word of the forward direction and the first word of the backward one: where each has read all.
        context = hidden[1 if direction else len(words)].chunk(2)[direction]
        table = torch.log_softmax(model.lm_head(context).float(), dim=0)
    return _best(table.index_fill(0, special, -math.inf)[None], top, encoder.vocabulary.words)[0]


def _language_model(
    model: ElmoForPreTraining | str | os.PathLike | None, tokenizer: ElmoTokenizer | None
) -> tuple[ElmoForPreTraining, ElmoTokenizer]:
    if model is None or isinstance(model, (str, os.PathLike)):
        model = load_weights(model, language_model=True, dtype="float32")
    require_language_model(model)
    if tokenizer is None:
        if not model.name_or_path:
            raise ValueError("the model was not loaded from a folder: give its tokenizer, too.")
        tokenizer = load_tokenizer(model.name_or_path)
    return model, tokenizer
