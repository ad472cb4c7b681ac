"""A head for coreference resolution: the mentions in a document, and which of them refer to the same entity."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, embedding_bag
from torch.utils.checkpoint import checkpoint
from transformers import initialization as init
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_elmo import IGNORE_INDEX, ElmoConfig
from .modeling_elmo import State, count_labels, refuse_unknown, scatter
from .modeling_heads_elmo import ElmoHead, ElmoInputs, ElmoTaskModel, ElmoTexts, require
from .modeling_pooling_elmo import masked_softmax

DISTANCES = (1, 2, 3, 4, 5, 8, 16, 32, 64)  # the first distance of each bucket, counted in spans
UNKNOWN_SPEAKER, SAME_SPEAKER, OTHER_SPEAKER = range(3)
# The sizes of the pieces that are computed at a time, so that memory grows linearly with the words of a document.
SENTENCE_POSITIONS = 2**14
CANDIDATES = 2**12
PAIRS = 2**13
COARSE_SCORES = 2**21


@dataclass
class ElmoCoreferenceOutput(ModelOutput):
    """The output of [`ElmoForCoreferenceResolution`]. Words are counted over a document from 0, without boundaries;
    -100 is padding.

    Args:
        loss: if `labels` are given: the negative log-likelihood of the antecedents, plus the cross-entropy of the
            mention scores, both summed over the spans, divided by the number of mentions in `labels`.
        clusters: only in evaluation mode: `[batch, mentions, 3]`, for each mention in a cluster its first word, its
            last word and the number of its cluster; mentions are in the order of the document.
        spans: `[batch, spans, 2]`, the first and last word of each span kept as a mention, in the document's order.
        mention_scores: `[batch, spans]`, the score of each of these spans as a mention.
        antecedents: `[batch, spans, coreference_max_antecedents]`, for each span the indices of preceding `spans`.
        antecedent_scores: `[batch, spans, 1 + coreference_max_antecedents]`, for each span 0, the score of no
            antecedent, then the scores of its `antecedents`, with the lowest number of the dtype at padding.
        hidden_states: if `output_hidden_states=True`, the layers of the biLM, each `[batch, positions, 2P]`.
    """

    loss: Tensor | None = None
    clusters: Tensor | None = None
    spans: Tensor | None = None
    mention_scores: Tensor | None = None
    antecedents: Tensor | None = None
    antecedent_scores: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class ElmoFeature(nn.Embedding):
    """The embedding of a width, a distance, a pair of speakers or a genre."""


class ElmoScorer(nn.Module):
    """A feed-forward network with two hidden layers and one output (Lee et al. 2017, section 4)."""

    def __init__(self, input_size: int, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.input = nn.Linear(input_size, hidden_size)
        self.hidden = nn.Linear(hidden_size, hidden_size)
        self.output = nn.Linear(hidden_size, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, extra_hidden: Tensor | None = None) -> Tensor:
        """`[..., input_size]` to `[...]`. `extra_hidden [..., hidden_size]` is added to the output of the first layer,
        for inputs that the caller has already projected."""
        x = self.input(x) if extra_hidden is None else self.input(x) + extra_hidden
        x = self.hidden(self.dropout(torch.relu(x)))
        return self.output(self.dropout(torch.relu(x))).squeeze(-1)


@dataclass
class _Document:
    """The words of a document, packed: `[words]` or `[words, size]`."""

    vectors: Tensor  # [x; ELMo], whose weighted mean is the head of a span
    encoded: Tensor  # the output of the encoder
    attention: Tensor  # the attention score of each word as the head of a span
    sentences: Tensor  # the number of the sentence of each word
    speakers: Tensor  # not read without `config.coreference_speakers`
    genre: Tensor  # [], one id; not read without `config.coreference_num_genres`


class _Sentences(NamedTuple):
    """The sentences of documents, as the biLM and the encoder read them."""

    batches: list[tuple[ElmoTexts, Tensor]]  # each with the indices [words] of its words in the flattened documents
    hidden_states: tuple[Tensor, ...] | None  # if they are asked for, the layers, each [batch, positions, 2P]


class ElmoSpanVectors(nn.Module):
    """The vector of a span, `[first word; last word; head; width]`, where the head is the mean of the words by
    attention weights (Lee et al. 2017, section 4)."""

    def __init__(self, config: ElmoConfig, encoded_size: int, vectors_size: int) -> None:
        super().__init__()
        self.attention = nn.Linear(encoded_size, 1, bias=False)  # a softmax follows
        self.width = ElmoFeature(config.coreference_max_width, config.coreference_feature_size)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.size = 2 * encoded_size + vectors_size + config.coreference_feature_size

    def forward(self, document: _Document, first: Tensor, last: Tensor) -> Tensor:
        """The first and the last words, each `[spans]`, to `[spans, size]`."""
        words = first[:, None] + torch.arange(self.width.num_embeddings, device=first.device)
        in_span = words <= last[:, None]
        words = torch.minimum(words, last[:, None])
        weights = masked_softmax(document.attention[words], in_span).to(document.vectors.dtype)
        head = embedding_bag(words, document.vectors, per_sample_weights=weights, mode="sum")
        width = self.dropout(self.width(last - first))
        return torch.cat((document.encoded[first], document.encoded[last], head, width.to(head.dtype)), dim=1)


class ElmoPairScorer(nn.Module):
    """Scores pairs of a span and an antecedent: a coarse score, which is cheap enough for all pairs, and a fine score
    for the best pairs (Lee et al. 2018, section 4).

    The first layer over `[span; antecedent; span * antecedent; features]` is computed as the sum of four layers, one
    over each part: the layers over the first two parts run once for each span, not for each pair.
    """

    def __init__(self, config: ElmoConfig, size: int) -> None:
        super().__init__()
        self.config = config
        hidden = config.coreference_hidden_size
        feature = config.coreference_feature_size
        genres = config.coreference_num_genres
        self.coarse = nn.Linear(size, size, bias=False)
        self.span = nn.Linear(size, hidden, bias=False)
        self.antecedent = nn.Linear(size, hidden, bias=False)
        self.fine = ElmoScorer(size, hidden, config.classifier_dropout)
        self.distance = ElmoFeature(len(DISTANCES), feature)
        self.speaker = ElmoFeature(3, feature) if config.coreference_speakers else None
        self.genre = ElmoFeature(genres, feature) if genres else None
        parts = 1 + bool(self.speaker) + bool(self.genre)
        self.features = nn.Linear(parts * feature, hidden, bias=False)
        self.dropout = nn.Dropout(config.classifier_dropout)

    def forward(
        self, spans: Tensor, antecedents: Tensor, coarse_scores: Tensor, speakers: Tensor, genre: Tensor
    ) -> Tensor:
        """The scores of antecedents, as in [`ElmoCoreferenceOutput`], for `spans [spans, size]` with `speakers [spans]`
        and `genre []`, from the result of `choose`."""
        of_span = self.span(spans)
        of_antecedent = self.antecedent(spans)

        def fine_score(rows: slice) -> Tensor:
            pairs = antecedents[rows].clamp(min=0)
            features = self.features(self.dropout(self._features(rows, pairs, speakers, genre)))
            extra_hidden = of_span[rows, None] + of_antecedent[pairs] + features
            return self.fine(spans[rows, None] * spans[pairs], extra_hidden)

        scores = coarse_scores + _by_rows(fine_score, antecedents)
        scores = scores.masked_fill(antecedents == IGNORE_INDEX, torch.finfo(scores.dtype).min)
        return torch.cat((scores.new_zeros(len(scores), 1), scores), dim=1)

    def choose(self, spans: Tensor, mention_scores: Tensor) -> tuple[Tensor, Tensor]:
        """For each span the preceding spans with the highest coarse scores, then -100, and these scores, each `[spans,
        coreference_max_antecedents]`. The score of a pair includes both `mention_scores [spans]`."""
        count = len(spans)
        max_antecedents = self.config.coreference_max_antecedents
        antecedents = torch.full((count, max_antecedents), IGNORE_INDEX, device=spans.device)
        projected = self.coarse(spans)
        indices = torch.arange(count, device=spans.device)
        with torch.no_grad():
            for rows in indices.split(max(1, COARSE_SCORES // max(1, count))):
                scores = projected[rows] @ spans.to(projected.dtype).T + mention_scores
                scores = scores.masked_fill(indices >= rows[:, None], -torch.inf)
                best, chosen = scores.topk(min(max_antecedents, count), dim=1)
                antecedents[rows, : best.shape[1]] = chosen.masked_fill(best == -torch.inf, IGNORE_INDEX)
        pairs = antecedents.clamp(min=0)

        def coarse_score(rows: slice) -> Tensor:
            return torch.einsum("sd,snd->sn", projected[rows], spans[pairs[rows]].to(projected.dtype))

        return antecedents, _by_rows(coarse_score, antecedents) + mention_scores[:, None] + mention_scores[pairs]

    def _features(self, rows: slice, antecedents: Tensor, speakers: Tensor, genre: Tensor) -> Tensor:
        spans = torch.arange(rows.start, rows.start + len(antecedents), device=antecedents.device)[:, None]
        buckets = torch.tensor(DISTANCES, device=antecedents.device)
        bucket = torch.bucketize((spans - antecedents).clamp(min=1), buckets, right=True) - 1
        features = [self.distance(bucket)]
        if self.speaker is not None:
            one = speakers[spans]
            other = speakers[antecedents]
            same = torch.where(one == other, SAME_SPEAKER, OTHER_SPEAKER)
            features.append(self.speaker(same.masked_fill((one == 0) | (other == 0), UNKNOWN_SPEAKER)))
        if self.genre is not None:
            features.append(self.genre(genre.expand_as(antecedents)))
        return torch.cat(features, dim=2)


class ElmoCoreferenceHead(ElmoHead):
    """Finds the mentions of documents, and scores their antecedents."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.config = config
        self.span_vectors = ElmoSpanVectors(config, sum(self.sizes), self.vectors_size)
        size = self.span_vectors.size
        self.mention_scorer = ElmoScorer(size, config.coreference_hidden_size, config.classifier_dropout)
        self.pair_scorer = ElmoPairScorer(config, size)
        self.gate = nn.Linear(2 * size, size) if config.coreference_refinements else None

    def forward(
        self,
        sentences: Sequence[tuple[ElmoTexts, Tensor]],
        lengths: Sequence[int],
        numbers: Tensor,
        speakers: Tensor | None,
        genres: Tensor | None,
        labels: Tensor | None,
    ) -> tuple[list[ElmoCoreferenceOutput], Tensor | None]:
        """The output for each document and, with `labels`, the sum of the losses. `sentences` are in batches, as
        `read_words` gives them, `lengths` are the numbers of words of the documents; `numbers` and `speakers`, both
        `[words]`, are the sentence and the speaker of each word of the documents."""
        embedded = [self.embed(read)[0] for read, _ in sentences]
        order = torch.cat([indices for _, indices in sentences]).argsort()
        vectors = torch.cat([vectors[mask] for vectors, mask, _ in embedded])[order]
        encoded = torch.cat([self.encode(vectors, mask, mix)[mask] for vectors, mask, mix in embedded])[order]
        encoded = self.dropout(encoded)
        speakers = torch.zeros_like(numbers) if self.pair_scorer.speaker is None else require("speaker_ids", speakers)
        genres = [None] * len(lengths) if self.pair_scorer.genre is None else require("genre_ids", genres)
        packed = [self.dropout(vectors), encoded, self.span_vectors.attention(encoded).squeeze(1), numbers, speakers]
        columns = [*(part.split(lengths) for part in packed), genres]
        documents = [_Document(*row) for row in zip(*columns, strict=True)]
        mentions = [self._resolve(document) for document in documents]
        if labels is None:
            return mentions, None
        no_loss = documents[0].attention[:0].sum()  # 0, with gradients
        return mentions, no_loss + sum(self._nll(*each) for each in zip(documents, mentions, labels, strict=True))

    def _resolve(self, document: _Document) -> ElmoCoreferenceOutput:
        """The mentions of a document, without an axis for the batch, and the scores of their antecedents."""
        first, last = self._best_spans(document)
        spans = self.span_vectors(document, first, last)
        mention_scores = self.mention_scorer(spans)
        antecedents, coarse_scores = self.pair_scorer.choose(spans, mention_scores)
        for refinements_left in range(self.config.coreference_refinements, -1, -1):
            scores = self.pair_scorer(spans, antecedents, coarse_scores, document.speakers[first], document.genre)
            if refinements_left:
                spans = self._refine(spans, antecedents, scores)
        kept = torch.stack((first, last), dim=1)
        clusters = None if self.training else clusters_of(kept, antecedents, scores)
        return ElmoCoreferenceOutput(None, clusters, kept, mention_scores, antecedents, scores)

    @torch.compiler.disable  # it reads values, of which a graph would keep those of the first batch
    def _nll(self, document: _Document, mentions: ElmoCoreferenceOutput, labels: Tensor) -> Tensor:
        """The loss of a document: the loss of the antecedents, plus the cross-entropy of mention scores over the kept
        spans and the mentions in `labels` that were not kept, which have no antecedent loss (Zhang et al. 2018).
        ValueError for a mention that is not within a sentence: no span of the model could match it."""
        kept = [tuple(span) for span in mentions.spans.tolist()]
        sentences = document.sentences.tolist()
        true = set()
        for first, last, _ in (row for row in labels.tolist() if row != [IGNORE_INDEX] * 3):
            if not (0 <= first <= last < len(sentences) and sentences[first] == sentences[last]):
                raise ValueError(f"labels have a mention, words {first} to {last}, that is not within a sentence.")
            if last - first < self.config.coreference_max_width:
                true.add((first, last))
        missed = torch.tensor(sorted(true.difference(kept)), dtype=torch.int64, device=labels.device).view(-1, 2)
        missed_scores = self.mention_scorer(self.span_vectors(document, *missed.unbind(1)))
        scores = torch.cat((mentions.mention_scores, missed_scores))
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        targets = scores.new_tensor([span in true for span in kept] + [True] * len(missed))
        return antecedent_nll(mentions, labels) + binary_cross_entropy_with_logits(scores, targets, reduction="sum")

    def _refine(self, spans: Tensor, antecedents: Tensor, scores: Tensor) -> Tensor:
        """Interpolates each span with its expected antecedent, weighted by a gate (Lee et al. 2018, section 3)."""
        itself = torch.arange(len(spans), device=spans.device)[:, None]  # stands for no antecedent
        weights = scores.softmax(1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(spans.dtype)
        indices = torch.cat((itself, antecedents.clamp(min=0)), dim=1)
        expected = embedding_bag(indices, spans, per_sample_weights=weights, mode="sum")
        gate = torch.sigmoid(self.gate(torch.cat((spans, expected), dim=1))).to(spans.dtype)
        return gate * spans + (1 - gate) * expected

    @torch.no_grad()
    def _best_spans(self, document: _Document) -> tuple[Tensor, Tensor]:
        """The first and the last words, each `[spans]`, of the spans that are kept as mentions, in document order."""
        words = len(document.sentences)
        device = document.sentences.device
        count = max(1, int(self.config.coreference_spans_per_word * words))
        starts = torch.arange(words, device=device)[:, None]
        ends = starts + torch.arange(self.config.coreference_max_width, device=device)
        in_sentence = ends < torch.searchsorted(document.sentences, document.sentences, right=True)[:, None]
        first = starts.expand_as(ends)[in_sentence]
        last = ends[in_sentence]
        candidates = torch.arange(len(first), device=device).split(CANDIDATES)
        # Until PyTorch 2.10, weights that autocast casts under `no_grad` stay in its cache, and get no gradient later.
        with torch.autocast(device.type, enabled=torch.is_autocast_enabled(device.type), cache_enabled=False):
            scores = [self.mention_scorer(self.span_vectors(document, first[some], last[some])) for some in candidates]
        order = torch.cat(scores).argsort(descending=True, stable=True)
        kept = torch.tensor(prune(first.tolist(), last.tolist(), order, count), dtype=torch.int64, device=device)
        return first[kept], last[kept]


class ElmoForCoreferenceResolution(ElmoTaskModel):
    """Finds the words of a document that refer to the same person or thing, end to end (Lee et al. 2017, 2018).

    A row is a document: its sentences in order, each between its boundaries, as [`hf_elmo.encode_document`] makes it.
    The biLM and the encoder (`config.encoder_type`) read each sentence separately. Of all spans of up to
    `coreference_max_width` words within a sentence, those with the highest mention scores are kept,
    `coreference_spans_per_word` for each word, but no two that cross each other. Each kept span gets scores for up to
    `coreference_max_antecedents` preceding spans as antecedents, and for no antecedent.

    Memory grows linearly with the words: candidates are scored in pieces, without gradients, and pairs are scored once
    more in the backward pass. By default, 10,000 words have 300,000 candidates, 4,000 spans and 200,000 pairs.

    transformers has no Auto class for this task. Where hf_elmo is not installed, transformers'
    `get_class_from_dynamic_module("modeling_coreference_elmo.ElmoForCoreferenceResolution", folder)` is the class.
    """

    _auto_class = "AutoModelForCoreferenceResolution"
    encoder_types = (None, "bilstm")

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.classifier = ElmoCoreferenceHead(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        state: State | None = None,
        special_tokens_mask: Tensor | None = None,
        word_vector_ids: Tensor | None = None,
        word_characters: Tensor | None = None,
        bilm_layers: Tensor | None = None,
        output_hidden_states: bool | None = None,
        length: Tensor | None = None,
        speaker_ids: Tensor | None = None,
        genre_ids: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: object,
    ) -> ElmoCoreferenceOutput:
        r"""
        Args:
            input_ids, ..., length: as in [`ElmoInputs`].
            speaker_ids: `[batch, positions]`, the speaker of each word, from 1; 0 where it is unknown. Required if
                `config.coreference_speakers` is set, otherwise not read.
            genre_ids: `[batch]`, below `config.coreference_num_genres`; required if this is set, otherwise not read.
            labels: `[batch, mentions, 3]`, for each mention its first word, its last word and the number of its
                cluster; words are counted over the document from 0, without boundaries. -100 is padding. A cluster may
                have one mention; mentions may contain or cross each other, and have any width.
            num_items_in_batch: the count of all numbers but -100 in the labels of all accumulated steps, three for each
                mention, as Trainer counts them; `None` for the count of this batch.

        Raises:
            ValueError: a mention in `labels` is not within a sentence of its document; or as in
                [`ElmoTaskModel.read_words`].
        """
        refuse_unknown(kwargs)
        inputs = ElmoInputs(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            state=state,
            special_tokens_mask=special_tokens_mask,
            word_vector_ids=word_vector_ids,
            word_characters=word_characters,
            bilm_layers=bilm_layers,
            output_hidden_states=output_hidden_states,
        )
        sentences, hidden_states = self.read_words(inputs)
        mask, boundaries, numbers = _sentence_numbers(inputs)
        is_word = mask & ~boundaries
        speakers = None if speaker_ids is None else speaker_ids[is_word]
        lengths = is_word.sum(1).tolist()
        outputs, loss = self.classifier(sentences, lengths, numbers[is_word], speakers, genre_ids, labels)
        if labels is not None:
            loss = loss * 3 / count_labels(labels, num_items_in_batch).clamp(min=3)  # three numbers for each mention
            loss = self.regularize(loss, labels, num_items_in_batch)
        how = {"batch_first": True, "padding_value": IGNORE_INDEX}
        padded = {name: nn.utils.rnn.pad_sequence([each[name] for each in outputs], **how) for name in outputs[0]}
        return ElmoCoreferenceOutput(loss=loss, **padded, hidden_states=hidden_states)

    def read_words(self, inputs: ElmoInputs) -> _Sentences:
        """As in [`ElmoTaskModel`], but a row is a document, each sentence of which is read by itself."""
        mask, boundaries, numbers = _sentence_numbers(inputs)
        names = ("input_ids", "inputs_embeds", "word_vector_ids", "word_characters", "bilm_layers")
        given = {name: getattr(inputs, name) for name in names} | {"special_tokens_mask": boundaries}
        for name, x in given.items():
            if x is not None:  # and a row of padding at the end, which the index -1 reads
                padding = x.new_full((1, *x.shape[2:]), name == "special_tokens_mask")
                given[name] = torch.cat((x.flatten(0, 1), padding))
        sentences = []
        layers = []
        batches = list(_batches_of_sentences(mask, numbers))
        for index, is_token in batches:
            rows = {name: x if x is None else x[index] for name, x in given.items()}
            read = super().read_words(replace(inputs, **rows, attention_mask=is_token, state=None))
            sentences.append((read, index[read.texts[0].is_read]))
            layers += [] if read.hidden_states is None else [torch.stack(read.hidden_states, dim=2)[is_token]]
        order = torch.cat([index[is_token] for index, is_token in batches]).argsort()
        return _Sentences(sentences, scatter(torch.cat(layers)[order], mask).unbind(2) if layers else None)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, ElmoFeature):
            init.xavier_uniform_(module.weight)
        else:
            super()._init_weights(module)


def _sentence_numbers(inputs: ElmoInputs) -> tuple[Tensor, Tensor, Tensor]:
    """`inputs.masks`, and the number of the sentence of each position in its document, `[batch, positions]`."""
    if inputs.input_ids is None and inputs.word_vector_ids is None:  # which mark them
        require("special_tokens_mask", inputs.special_tokens_mask)
    mask, boundaries = inputs.masks
    boundaries = boundaries & mask
    return mask, boundaries, (boundaries.cumsum(1) + 1) // 2


def _batches_of_sentences(mask: Tensor, numbers: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The indices `[sentences, longest]` in the flattened documents of sentences of similar length, with -1 at padding,
    and their padding mask: at most SENTENCE_POSITIONS positions, or one sentence. Without sentences, padding is read,
    so that each parameter gets a gradient."""
    numbers = numbers + torch.arange(len(mask), device=mask.device)[:, None] * (mask.shape[1] + 1)
    lengths = torch.unique_consecutive(numbers[mask], return_counts=True)[1].tolist()
    sentences = mask.flatten().nonzero()[:, 0].split(lengths)
    if not lengths:
        yield torch.full((1, 1), -1, device=mask.device), mask.new_ones(1, 1)
    begin = 0
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for end in range(1, len(order) + 1):
        if end == len(order) or lengths[order[end]] * (end + 1 - begin) > SENTENCE_POSITIONS:
            batch = [sentences[number] for number in sorted(order[begin:end])]
            index = nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=-1)
            yield index, index >= 0
            begin = end


def prune(first: Sequence[int], last: Sequence[int], order: Tensor, count: int) -> list[int]:
    """Greedy pruning: the ascending indices of the `count` best spans, without those that cross a better kept span (Lee
    et al. 2017, section 5). `first` and `last` are each span's words, `order [spans]` the indices, the best first."""
    kept: list[int] = []
    last_end: dict[int, int] = {}  # for each first word of a kept span, the largest last word
    first_begin: dict[int, int] = {}  # for each last word of a kept span, the smallest first word
    for span in order.tolist():
        if len(kept) == count:
            break
        begin = first[span]
        end = last[span]
        if any(last_end.get(word, end) > end for word in range(begin + 1, end + 1)):
            continue
        if any(first_begin.get(word, begin) < begin for word in range(begin, end)):
            continue
        kept.append(span)
        last_end[begin] = max(last_end.get(begin, end), end)
        first_begin[end] = min(first_begin.get(end, begin), begin)
    return sorted(kept)


def _by_rows(score: Callable[[slice], Tensor], antecedents: Tensor) -> Tensor:
    """Applies `score` to one piece of the rows of `antecedents` at a time. With gradients, each piece is recomputed in
    the backward pass, so that only the pairs of one piece are in memory."""
    count, max_antecedents = antecedents.shape
    size = max(1, PAIRS // max_antecedents)
    parts = [slice(begin, min(begin + size, count)) for begin in range(0, max(1, count), size)]
    if len(parts) == 1 or not torch.is_grad_enabled():
        return torch.cat([score(part) for part in parts])
    return torch.cat([checkpoint(score, part, use_reentrant=False) for part in parts])


def antecedent_nll(mentions: ElmoCoreferenceOutput, labels: Tensor) -> Tensor:
    """The marginal negative log-likelihood of the gold antecedents of the kept spans (Lee et al. 2017, section 6): the
    antecedents in the span's cluster in `labels [mentions, 3]`, or no antecedent if the cluster has none."""
    antecedents = mentions.antecedents
    scores = mentions.antecedent_scores
    cluster_of = {(first, last): cluster + 1 for first, last, cluster in labels.tolist()}
    clusters = [cluster_of.get(tuple(span), 0) for span in mentions.spans.tolist()]
    clusters = torch.tensor(clusters, device=scores.device).long()
    same = (clusters[antecedents.clamp(min=0)] == clusters[:, None]) & (clusters > 0)[:, None]
    same &= antecedents != IGNORE_INDEX
    gold = torch.cat((~same.any(1, keepdim=True), same), dim=1)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return (scores.logsumexp(1) - scores.masked_fill(~gold, -torch.inf).logsumexp(1)).sum()


def clusters_of(spans: Tensor, antecedents: Tensor, scores: Tensor) -> Tensor:
    """The clusters `[mentions, 3]`: each span is linked to its best antecedent; spans without links are left out. The
    arguments are those of a document in [`ElmoCoreferenceOutput`]."""
    numbers: dict[int, int] = {}
    count = 0
    for span, (choice, own) in enumerate(zip(scores.argmax(1).tolist(), antecedents.tolist(), strict=True)):
        if choice:
            numbers[span] = numbers.setdefault(own[choice - 1], count)
            count = max(count, numbers[span] + 1)
    rows = [[*spans[span].tolist(), cluster] for span, cluster in sorted(numbers.items())]
    return torch.tensor(rows, dtype=torch.int64, device=spans.device).view(-1, 3)
