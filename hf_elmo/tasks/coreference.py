"""Coreference: documents as rows, batches for Trainer, and the clusters of texts as spans of words and characters."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..configuration_elmo import IGNORE_INDEX
from ..evaluation import evaluation_mode
from ..modeling_coreference_elmo import ElmoForCoreferenceResolution, require_mentions
from ..tokenization_elmo import ElmoTokenizer
from .heads import NOT_FINITE, load_head

Span = tuple[int, int]
Document = str | Sequence[Sequence[str]]


@dataclass(frozen=True)
class Resolved:
    """The clusters of a document, each of two mentions or more, in their order.

    Args:
        words: of all sentences.
        clusters: mentions as the first and the last word, counted from 0.
        characters: the same mentions as `(start, end)`, such that `text[start:end]` is the mention; `None` for a
            document that was given as words. All are empty where a document has no words.
    """

    words: list[str]
    clusters: list[list[Span]]
    characters: list[list[Span]] | None


def encode_document(
    tokenizer: ElmoTokenizer,
    document: Document,
    clusters: Sequence[Sequence[Span]] | None = None,
    speakers: Sequence[str | None] | None = None,
) -> dict[str, list]:
    """
    A document as a row for [`ElmoForCoreferenceResolution`]: its sentences one after another, each between its
    boundaries.

    Args:
        document: a text with one sentence a line, or a list of sentences, each a list of words. Lines without a word
            are left out.
        clusters: for training, each a list of mentions, the first and the last word of each, counted over the document
            from 0. They become `labels` `[mentions, 3]`.
        speakers: for each sentence (of a text: for each line) who says it, `None` where that is not known. They become
            `speaker_ids` `[positions]`.

    Returns:
        `input_ids`, `attention_mask`, `word_vector_ids` where the tokenizer has words, and what was asked for.

    Raises:
        ValueError: the document has no words, or a string in a list of sentences; a word is read as a boundary;
            `speakers` are of another number than the sentences; or a mention is outside of the document, goes over the
            end of a sentence, or is there twice (in two clusters, or in one).
    """
    sentences = _sentences(document)
    if isinstance(speakers, str):
        raise ValueError(f"speakers are the string {speakers!r:.40}: give a list, one for each sentence.")
    if speakers is not None and len(speakers) != len(sentences):
        raise ValueError(f"there are {len(speakers)} speakers, but {len(sentences)} sentences: give one for each.")
    split = {"is_split_into_words": not isinstance(document, str)}
    encoded = tokenizer(sentences, **split) if sentences else {"input_ids": []}
    kept = [number for number, rows in enumerate(encoded["input_ids"]) if len(rows) > 2]
    if not kept:
        raise ValueError(f"the document {document!r:.60} has no words.")
    boundaries = tokenizer.bos_token_id, tokenizer.eos_token_id
    for number in kept:
        markers = [row[1] for row in encoded["input_ids"][number]]
        if sum(marker in boundaries for marker in markers) != 2:
            raise ValueError(
                f"a word of sentence {number} is read as a boundary: {sentences[number]!r:.80}. A tokenizer with "
                "split_special_tokens=True reads such words as any other."
            )
    row = {name: [x for number in kept for x in columns[number]] for name, columns in encoded.items()}
    if clusters is not None:
        row["labels"] = [[first, last, number] for number, own in enumerate(clusters) for first, last in own]
        of_words = [number for number in kept for _ in encoded["input_ids"][number][2:]]  # less two boundaries
        require_mentions(row["labels"], of_words, f"the document {document!r:.60}")
    if speakers is not None:
        ids = {name: number for number, name in enumerate(dict.fromkeys(filter(None, speakers)), start=1)}
        row["speaker_ids"] = [ids.get(speakers[n], 0) for n in kept for _ in encoded["input_ids"][n]]
    return row


def _sentences(document: Document) -> list:
    if isinstance(document, str):
        return document.split("\n")
    for number, sentence in enumerate(document):
        if isinstance(sentence, str):
            raise ValueError(
                f"sentence {number} is the string {sentence!r:.60}, but must be a list of words; a text is one string "
                'with one sentence a line, "\\n".join(sentences).'
            )
    return [list(sentence) for sentence in document]


@dataclass
class CoreferenceCollator:
    """Batches of documents for Trainer: the tokenizer's padding for what it makes (or `bilm_layers` in its place), -100
    for the mentions in `labels`, 0 for `speaker_ids`, and `genre_ids` as they are.

    Args:
        tokenizer: the model's.

    Raises:
        ValueError: some of a batch's documents have one of these, and others do not.
    """

    tokenizer: ElmoTokenizer

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        own = ("labels", "speaker_ids", "genre_ids")
        rows = [{key: value for key, value in feature.items() if key not in own} for feature in features]
        batch = self.tokenizer.pad(rows, padding=True, return_tensors="pt")
        mask = batch["attention_mask"].bool()
        there = {name: _there(name, features) for name in own}
        if there["labels"]:
            mentions = [np.asarray(feature["labels"], dtype=np.int64).reshape(-1, 3) for feature in features]
            labels = torch.full((len(mentions), max(map(len, mentions)), 3), IGNORE_INDEX)
            for row, one in zip(labels, mentions, strict=True):
                row[: len(one)] = torch.from_numpy(one)
            batch["labels"] = labels
        if there["speaker_ids"]:
            speakers = np.concatenate([np.asarray(feature["speaker_ids"], dtype=np.int64) for feature in features])
            batch["speaker_ids"] = torch.zeros(mask.shape, dtype=torch.int64)
            batch["speaker_ids"][mask] = torch.from_numpy(speakers)
        if there["genre_ids"]:
            batch["genre_ids"] = torch.tensor([int(feature["genre_ids"]) for feature in features])
        return batch


def _there(name: str, features: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the documents of a batch have a column; refuses some with and some without (ValueError)."""
    without = [row for row, feature in enumerate(features) if feature.get(name) is None]
    if 0 < len(without) < len(features):
        raise ValueError(f"document {without[0]} of the batch has no {name}, but others have: all or none must.")
    return not without


def resolve(
    model: ElmoForCoreferenceResolution | str | os.PathLike,
    documents: Sequence[Document],
    *,
    tokenizer: ElmoTokenizer | None = None,
    speakers: Sequence[Sequence[str | None]] | None = None,
    genres: Sequence[int] | None = None,
    device: str | torch.device | None = None,
) -> list[Resolved]:
    """
    The clusters of documents, which are read one by one.

    Args:
        model: a fine-tuned one, or the name or folder of one.
        documents: each a text with one sentence a line, or a list of sentences, each a list of words.
        tokenizer: by default that of the model's folder.
        speakers: of each document, as [`encode_document`] takes them, for a model with `coreference_speakers`.
        genres: of each document its number, for a model with `coreference_num_genres`.
        device: where to compute; by default a GPU if there is one, for a model the one that it is on.

    Returns:
        a [`Resolved`] for each document.

    Raises:
        ValueError: `documents` is a string, `speakers` or `genres` are of another number or the model does not read
            them, the model has no head for the task, a document cannot be encoded, or its scores are not finite; the
            message has its number. One without words has no clusters.

    Example:

    ```python
    >>> text = "Ann saw a dog .\nShe called it ."
    >>> [[text[start:end] for start, end in cluster] for cluster in resolve(model, [text])[0].characters]
    [['Ann', 'She'], ['a dog', 'it']]
    ```"""
    if isinstance(documents, str):
        raise ValueError(f"documents must be a list of documents, but is the string {documents!r:.40}: put it in one.")
    columns = [documents]
    for name, given in (("speakers", speakers), ("genres", genres)):
        if given is not None and len(given) != len(documents):
            raise ValueError(f"there are {name} of {len(given)} documents, but {len(documents)} documents.")
        columns.append([None] * len(documents) if given is None else given)
    model, tokenizer = load_head((ElmoForCoreferenceResolution,), model, tokenizer, device)
    if speakers is not None and not model.config.coreference_speakers:
        raise ValueError("speakers are given, but the model reads none (coreference_speakers): leave them out.")
    if genres is not None and model.config.coreference_num_genres is None:
        raise ValueError("genres are given, but the model reads none (coreference_num_genres): leave them out.")
    found = []
    with evaluation_mode(model), torch.inference_mode():
        for number, each in enumerate(zip(*columns, strict=True)):
            try:
                found.append(resolve_one(model, tokenizer, *each))
            except ValueError as error:
                raise ValueError(f"document {number}: {error}") from error
    return found


def resolve_one(
    model: ElmoForCoreferenceResolution,
    tokenizer: ElmoTokenizer,
    document: Document,
    speakers: Sequence[str | None] | None = None,
    genre: int | None = None,
) -> Resolved:
    """The clusters of a document, by a model in evaluation mode; [`resolve`] has the arguments."""
    if not any(tokenizer.split_into_words(_sentences(document))):
        return Resolved([], [], [] if isinstance(document, str) else None)
    row = encode_document(tokenizer, document, None, speakers)
    if genre is not None:
        row["genre_ids"] = genre
    batch = {name: value.to(model.device) for name, value in CoreferenceCollator(tokenizer)([row]).items()}
    found = model(**batch)
    if found.mention_scores.isnan().any() or found.antecedent_scores.isnan().any():
        raise ValueError(f"the scores of its mentions would be nan. {NOT_FINITE}")
    return _resolved(tokenizer, document, found.clusters[0].tolist())


def _resolved(tokenizer: ElmoTokenizer, document: Document, mentions: Sequence[Sequence[int]]) -> Resolved:
    clusters: dict[int, list[Span]] = {}
    for first, last, number in mentions:
        clusters.setdefault(number, []).append((first, last))
    words = [word for own in tokenizer.split_into_words(_sentences(document)) for word in own]
    found = list(clusters.values())
    if not isinstance(document, str):
        return Resolved(words, found, None)
    lines, places, begin = document.split("\n"), [], 0
    encoded = tokenizer(lines, return_offsets_mapping=True, add_special_tokens=False)
    for line, offsets in zip(lines, encoded["offset_mapping"], strict=True):
        places += [(begin + start, begin + end) for start, end in offsets]
        begin += len(line) + 1
    return Resolved(words, found, [[(places[first][0], places[last][1]) for first, last in own] for own in found])
