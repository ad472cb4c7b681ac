"""The language models on a text: probabilities of its words, lexical substitutes, and words that continue the text."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..modeling_pretraining_elmo import ElmoForPreTraining
from ..pretraining.data import WordEncoder, ensure_language_models
from ..pretraining.vocabulary import Vocabulary
from ..tokenization_elmo import ElmoTokenizer
from ..utils.evaluation import batches, evaluation_mode

Candidates = list[tuple[str, float]]  # words and their log-probabilities (nats), the most probable first


@dataclass
class SentenceScore:
    """Log-probabilities (nats) of the words of a sentence.

    Args:
        words: the sentence, `<S>` and `</S>` included.
        forward: `[words]` float64, given the words before each word; NaN for `<S>`, which is not predicted.
        backward: `[words]` float64, given the words after each word; NaN for `</S>`, which is not predicted.
    """

    words: list[str]
    forward: np.ndarray
    backward: np.ndarray


@torch.no_grad()
def score(
    model: ElmoForPreTraining | str | os.PathLike | None,
    sentences: Sequence[str | Sequence[str]],
    *,
    tokenizer: ElmoTokenizer | None = None,
    words_per_batch: int = 4096,
    pretokenized: bool = False,
) -> list[SentenceScore]:
    """The log-probability of each word of each sentence in both directions. Each sentence starts from a zero state.

    Args:
        model: a language model, or the name or folder of one with its softmax; `None` for the model that ships.
        sentences: texts or lists of words. A word outside the vocabulary gets the probability of `<UNK>`.
        tokenizer: a tokenizer with the vocabulary; by default the tokenizer of the model's folder.
        words_per_batch: the maximum number of words in a batch, padding included.
        pretokenized: whether texts are tokenized already, so that whitespace separates their words.

    Raises:
        ValueError: the tokenizer has no vocabulary, or the vocabulary of another model.
    """
    model, encoder = ensure_language_models(model, tokenizer)
    sentences = encoder.tokenizer.split_into_words(sentences, pretokenized)
    scores: list[SentenceScore | None] = [None] * len(sentences)
    with evaluation_mode(model):
        for batch in batches([len(words) + 2 for words in sentences], words_per_batch):
            nll, _ = model.word_nll(**encoder.sentences([sentences[index] for index in batch], model.device))
            for index, rows in zip(batch, nll.double().cpu().numpy(), strict=True):
                words = sentences[index]
                forward, backward = np.full((2, len(words) + 2), np.nan)
                forward[1:] = -rows[: len(words) + 1, 0]
                backward[:-1] = -rows[1 : len(words) + 2, 1]
                scores[index] = SentenceScore(["<S>", *words, "</S>"], forward, backward)
    return scores


@dataclass
class Substitutes:
    """The words that fit best in place of a word.

    Args:
        word: the word of the sentence.
        candidates: words and their log-probabilities by both language models together, best first. Their distribution
            is the normalized product of the two models' distributions.
        forward, backward: the best words by each model alone, with their log-probabilities.
    """

    word: str
    candidates: Candidates
    forward: Candidates
    backward: Candidates


@torch.no_grad()
def substitutes(
    model: ElmoForPreTraining | str | os.PathLike | None,
    sentence: str | Sequence[str],
    word: str | int | None = None,
    *,
    tokenizer: ElmoTokenizer | None = None,
    top: int = 10,
    pretokenized: bool = False,
) -> list[Substitutes]:
    """Lexical substitutes: for each word of a sentence, the words of the vocabulary that are most probable in its place
    given the words before and after it (simple_elmo's `get_elmo_substitutes`, without its state between sentences).

    Args:
        model, tokenizer, pretokenized: as for [`score`].
        sentence: text or a list of words.
        word: the word to replace, at all its occurrences, or the index of a word; by default all words in their order.
        top: number of candidates for each word; `<S>`, `</S>` and `<UNK>` are excluded. Marks of the training text are
            not excluded: WikiText's `<unk>` and `@-@` are words of elmo-compact-en.

    Raises:
        ValueError: as for [`score`]; or the word is not in the sentence.
    """
    model, encoder = ensure_language_models(model, tokenizer)
    (words,) = encoder.tokenizer.split_into_words([sentence], pretokenized)
    positions = positions_of(words, word)
    with evaluation_mode(model):
        forward, backward = _last_layer(model, encoder, words)
        forward, backward = (
            torch.log_softmax(_without_special(model.lm_head(context).float(), encoder.vocabulary), dim=1)
            for context in (forward[positions], backward[2:][positions])  # before and after: <S> is at 0
        )
    both = torch.log_softmax(forward + backward, dim=1)
    columns = [_best(table, top, encoder.vocabulary) for table in (both, forward, backward)]
    return [Substitutes(words[position], *best) for position, *best in zip(positions, *columns, strict=True)]


@torch.no_grad()
def next_words(
    model: ElmoForPreTraining | str | os.PathLike | None,
    text: str | Sequence[str],
    *,
    before: bool = False,
    tokenizer: ElmoTokenizer | None = None,
    top: int = 10,
    pretokenized: bool = False,
) -> Candidates:
    """The words that the forward language model expects after a text, or that the backward one expects before it.

    Args:
        model, tokenizer, pretokenized: as for [`score`].
        text: the beginning of a sentence, or its end, a string or a list of words; it may be empty.
        before: return the words before `text` instead of those after it.
        top: number of words to return; `<S>`, `</S>` and `<UNK>` are excluded.

    Returns:
        words and their log-probabilities (nats), those that [`score`] gives them there, the most probable first.
    """
    model, encoder = ensure_language_models(model, tokenizer)
    (words,) = encoder.tokenizer.split_into_words([text], pretokenized)
    with evaluation_mode(model):
        forward, backward = _last_layer(model, encoder, words)
        context = backward[1] if before else forward[len(words)]  # the output after all words are read
        table = torch.log_softmax(model.lm_head(context).float(), dim=0)[None]
    return _best(_without_special(table, encoder.vocabulary), top, encoder.vocabulary)[0]


def positions_of(words: Sequence[str], word: str | int | None) -> list[int]:
    """The indices of a word (a string or an index; `None`: all) in a sentence; ValueError if the word is not there."""
    positions = [position for position, own in enumerate(words) if word in (None, own, position)]
    if word is not None and not positions:
        raise ValueError(f"word {word!r} does not occur in the sentence, whose words are {' '.join(words):.200}.")
    return positions


def _last_layer(model: ElmoForPreTraining, encoder: WordEncoder, words: Sequence[str]) -> tuple[Tensor, Tensor]:
    """The last layer of one sentence, with its boundaries: forward and backward outputs, each `[words + 2, P]`."""
    inputs = encoder.sentences([words], model.device)
    return model.elmo(inputs["input_ids"], output_hidden_states=True).hidden_states[-1][0].chunk(2, dim=1)


def _without_special(table: Tensor, vocabulary: Vocabulary) -> Tensor:
    """The table `[positions, vocab_size]` with minus infinity in the columns of the special words."""
    special = torch.tensor([vocabulary.bos_id, vocabulary.eos_id, vocabulary.unk_id], device=table.device)
    return table.index_fill(1, special, -math.inf)


def _best(table: Tensor, top: int, vocabulary: Vocabulary) -> list[Candidates]:
    """The words with the highest values in each row of `[positions, vocab_size]`."""
    values, ids = table.topk(min(top, len(vocabulary) - 3), dim=1)  # without the special words
    rows = zip(ids.tolist(), values.tolist(), strict=True)
    return [[(vocabulary.words[word], value) for word, value in zip(*row, strict=True)] for row in rows]
