"""ELMo with a head for coreference resolution: the mentions of a document, and which of them mean the same (Lee et al.
2017, 2018)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag
from torch.utils.checkpoint import checkpoint
from transformers import initialization as init
from transformers.utils import ModelOutput

from .arguments_elmo import model_forward, require_no_loss_function
from .configuration_elmo import IGNORE_INDEX, ElmoConfig
from .configuration_tasks_elmo import BOUNDARY_ID
from .encoders_elmo import ElmoTaskEncoder, masked_softmax
from .modeling_tasks_elmo import (
    ANSWER_FIELDS,
    CLASSIFIER_FIELDS,
    TAGGER_FIELDS,
    ElmoTaskModel,
    TaskWords,
    share_of_items,
)
from .packing_elmo import compact, expand, unpadded_mask

DISTANCES = (1, 2, 3, 4, 5, 8, 16, 32, 64)  # where each bucket of distances begins, counted in spans
UNKNOWN_SPEAKER, SAME_SPEAKER, OTHER_SPEAKER = range(3)
# What is computed at a time, so that memory grows with the words of a document and with nothing faster.
SENTENCE_POSITIONS, CANDIDATES, PAIRS, COARSE_SCORES = 2**14, 2**12, 2**13, 2**21


@dataclass
class ElmoCoreferenceOutput(ModelOutput):
    """What [`ElmoForCoreferenceResolution`] returns; words are counted over a document from 0, boundaries left out, and
    -100 is padding.

    Args:
        loss: the negative log-likelihood of the antecedents, summed over the spans, for each mention in `labels`.
        clusters: `[batch, mentions, 3]`, of each mention that has a coreferent one its first word, its last word and
            the number of its cluster, in the order of the document. While not training.
        spans: `[batch, spans, 2]`, the spans that are kept as mentions, in the order of the document.
        mention_scores: `[batch, spans]`.
        antecedents: `[batch, spans, coreference_max_antecedents]`, for each span the numbers of spans before it.
        antecedent_scores: `[batch, spans, 1 + coreference_max_antecedents]`, 0 for no antecedent first; the lowest
            number of the type where there is none.
        hidden_states: the biLM's layers, each `[batch, positions, 2P]`. With `output_hidden_states=True`.
    """

    loss: Tensor | None = None
    clusters: Tensor | None = None
    spans: Tensor | None = None
    mention_scores: Tensor | None = None
    antecedents: Tensor | None = None
    antecedent_scores: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class ElmoFeature(nn.Embedding):
    """Feature embeddings: of widths, distances, speakers, genres."""


class ElmoScorer(nn.Module):
    """Two hidden layers and a number (Lee et al. 2017, section 4); the first layer is the caller's for pairs."""

    def __init__(self, input_size: int, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.input = nn.Linear(input_size, hidden_size)
        self.hidden = nn.Linear(hidden_size, hidden_size)
        self.output = nn.Linear(hidden_size, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, extra_hidden: Tensor | None = None) -> Tensor:
        """`[..., input_size]` to `[...]`; `extra_hidden` `[..., hidden_size]` is added to the first layer."""
        x = self.input(x) if extra_hidden is None else self.input(x) + extra_hidden
        x = self.hidden(self.dropout(torch.relu(x)))
        return self.output(self.dropout(torch.relu(x))).squeeze(-1)


@dataclass
class _Document:
    """A document's words, packed; `[words]` each, or `[words, size]`."""

    vectors: Tensor  # [x; ELMo], of which a span's head is a mean
    encoded: Tensor  # the encoder's output
    attention: Tensor  # a score of each word as the head of a span
    sentences: Tensor
    speakers: Tensor | None
    genre: Tensor | None


class ElmoSpanVectors(nn.Module):
    """Spans as `[first word; last word; head; width]`, the head a mean by attention (Lee et al. 2017, section 4)."""

    def __init__(self, config: ElmoConfig, encoded_size: int, vectors_size: int) -> None:
        super().__init__()
        self.attention = nn.Linear(encoded_size, 1, bias=False)  # a softmax follows
        self.width = ElmoFeature(config.coreference_max_width, config.coreference_feature_size)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.size = 2 * encoded_size + vectors_size + config.coreference_feature_size

    def forward(self, document: _Document, first: Tensor, last: Tensor) -> Tensor:
        """`[spans]` each, the first and the last word, to `[spans, size]`."""
        words = first[:, None] + torch.arange(self.width.num_embeddings, device=first.device)
        inside = words <= last[:, None]
        words = torch.minimum(words, last[:, None])
        weights = masked_softmax(document.attention[words], inside).to(document.vectors.dtype)
        head = embedding_bag(words, document.vectors, per_sample_weights=weights, mode="sum")
        width = self.dropout(self.width(last - first))
        return torch.cat((document.encoded[first], document.encoded[last], head, width.to(head.dtype)), dim=1)


class ElmoPairScorer(nn.Module):
    """How well spans go with antecedents: a coarse score that is cheap for all pairs, and a fine one (Lee et al. 2018,
    section 4).

    The first layer over `[span; antecedent; span * antecedent; features]` is the sum of layers over its four parts, of
    which the first two are computed once for a span and not for each pair.
    """

    def __init__(self, config: ElmoConfig, size: int) -> None:
        super().__init__()
        self.config = config
        hidden, feature = config.coreference_hidden_size, config.coreference_feature_size
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
        self,
        spans: Tensor,
        mention_scores: Tensor,
        speakers: Tensor | None,
        genre: Tensor | None,
        refine: Callable[[Tensor, Tensor, Tensor], Tensor],
    ) -> tuple[Tensor, Tensor]:
        """
        Antecedents and their scores, as in [`ElmoCoreferenceOutput`].

        Args:
            spans, mention_scores: `[spans, size]` and `[spans]`.
            speakers, genre: `[spans]` and `[]`.
            refine: from spans, antecedents and scores to the next spans (Lee et al. 2018, section 3).
        """
        antecedents = self.choose(spans, mention_scores, self.config.coreference_max_antecedents)
        coarse = self.coarse_scores(spans, mention_scores, antecedents)
        for rest in range(self.config.coreference_refinements, -1, -1):
            scores = coarse + self.fine_scores(spans, antecedents, speakers, genre)
            scores = scores.masked_fill(antecedents == IGNORE_INDEX, torch.finfo(scores.dtype).min)
            scores = torch.cat((scores.new_zeros(len(scores), 1), scores), dim=1)
            if rest:
                spans = refine(spans, antecedents, scores)
        return antecedents, scores

    @torch.no_grad()
    def choose(self, spans: Tensor, mention_scores: Tensor, number: int) -> Tensor:
        """`[spans, number]`: for each span those before it that have the highest coarse scores, else -100."""
        count = len(spans)
        chosen = torch.full((count, number), IGNORE_INDEX, device=spans.device)
        projected, places = self.coarse(spans), torch.arange(count, device=spans.device)
        rows = max(1, COARSE_SCORES // max(1, count))
        for own in places.split(rows):
            scores = projected[own] @ spans.to(projected.dtype).T + mention_scores
            scores = scores.masked_fill(places >= own[:, None], -torch.inf)
            best = scores.topk(min(number, count), dim=1)
            chosen[own, : best.indices.shape[1]] = best.indices.masked_fill(best.values == -torch.inf, IGNORE_INDEX)
        return chosen

    def coarse_scores(self, spans: Tensor, mention_scores: Tensor, antecedents: Tensor) -> Tensor:
        """`[spans, number]`: both mention scores and the coarse score of each pair."""
        projected = self.coarse(spans)

        def score(rows: slice) -> Tensor:
            pairs = antecedents[rows].clamp(min=0)
            return torch.einsum("sd,snd->sn", projected[rows], spans[pairs].to(projected.dtype))

        pairs = _by_rows(score, antecedents)
        return pairs + mention_scores[:, None] + mention_scores[antecedents.clamp(min=0)]

    def fine_scores(self, spans: Tensor, antecedents: Tensor, speakers: Tensor | None, genre: Tensor | None) -> Tensor:
        """`[spans, number]`: the fine score of each pair, in which speakers `[spans]` and the genre `[]` take part."""
        of_span, of_antecedent = self.span(spans), self.antecedent(spans)

        def score(rows: slice) -> Tensor:
            pairs = antecedents[rows].clamp(min=0)
            features = self.features(self.dropout(self._features(rows, pairs, speakers, genre)))
            also = of_span[rows, None] + of_antecedent[pairs] + features
            return self.fine(spans[rows, None] * spans[pairs], also)

        return _by_rows(score, antecedents)

    def _features(self, rows: slice, antecedents: Tensor, speakers: Tensor | None, genre: Tensor | None) -> Tensor:
        own = torch.arange(rows.start, rows.start + len(antecedents), device=antecedents.device)[:, None]
        begins = torch.tensor(DISTANCES, device=antecedents.device)
        bucket = torch.bucketize((own - antecedents).clamp(min=1), begins, right=True) - 1
        features = [self.distance(bucket)]
        if self.speaker is not None:
            one, other = speakers[own], speakers[antecedents]
            same = torch.where(one == other, SAME_SPEAKER, OTHER_SPEAKER)
            features.append(self.speaker(same.masked_fill((one == 0) | (other == 0), UNKNOWN_SPEAKER)))
        if self.genre is not None:
            features.append(self.genre(genre.expand_as(antecedents)))
        return torch.cat(features, dim=2)


class ElmoForCoreferenceResolution(ElmoTaskModel):
    """Which words of a document mean the same person or thing, end to end (Lee et al. 2017, 2018).

    A row is a document: its sentences one after another, each between its boundaries, as [`hf_elmo.encode_document`]
    makes it. The biLM, and the encoder (`config.encoder_type`), read each sentence by itself. Of all spans of up to
    `coreference_max_width` words inside of a sentence, those that look most like mentions are kept,
    `coreference_spans_per_word` for each word, of which no two cross; each of them gets a score for up to
    `coreference_max_antecedents` spans before it, and for none.

    With n words, width W, lambda n spans of size d and K antecedents, memory grows as n * (W + lambda * (d + K)):
    linear in the words. Candidates are scored without gradients, a few at a time, and pairs are recomputed in the
    backward pass. A document of 10,000 words has 300,000 candidates, 4,000 spans and 200,000 pairs by default.

    transformers has no Auto class for the task. Where hf_elmo is not installed, the class comes from the checkpoint:

    ```python
    >>> from transformers.dynamic_module_utils import get_class_from_dynamic_module

    >>> name = "modeling_coreference_elmo.ElmoForCoreferenceResolution"
    >>> model = get_class_from_dynamic_module(name, folder).from_pretrained(folder)
    ```

    Raises:
        ValueError: `config.encoder_type` is another one, or `config.classifier_text_pairs` is on.
    """

    _auto_class = "AutoModelForCoreferenceResolution"
    encoder_types = (None, "bilstm")
    without_effect = (*ElmoTaskModel.without_effect, *CLASSIFIER_FIELDS, *TAGGER_FIELDS, *ANSWER_FIELDS)

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        if config.classifier_text_pairs:
            raise ValueError("ElmoConfig: classifier_text_pairs is True, but a row is one document: use False.")
        self.encoder = ElmoTaskEncoder(config, self.vectors_size) if config.encoder_type else None
        self.dropout = nn.Dropout(config.classifier_dropout)
        encoded_size = sum(self.encoder.sizes) if self.encoder else self.vectors_size
        self.span_vectors = ElmoSpanVectors(config, encoded_size, self.vectors_size)
        size, hidden = self.span_vectors.size, config.coreference_hidden_size
        self.mention_scorer = ElmoScorer(size, hidden, config.classifier_dropout)
        self.pair_scorer = ElmoPairScorer(config, size)
        self.gate = nn.Linear(2 * size, size) if config.coreference_refinements else None
        self.post_init()

    @model_forward
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        special_tokens_mask: Tensor | None = None,
        word_vector_ids: Tensor | None = None,
        bilm_layers: Tensor | None = None,
        speaker_ids: Tensor | None = None,
        genre_ids: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        length: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: object,
    ) -> ElmoCoreferenceOutput:
        r"""
        Args:
            speaker_ids: `[batch, positions]`, who says a word, from 1; 0 where it is not known. Read where
                `config.coreference_speakers` is on.
            genre_ids: `[batch]`, 0 to `config.coreference_num_genres` - 1. Read where that is a number.
            labels: `[batch, mentions, 3]`, of each mention its first word, its last word and the number of its cluster,
                0 or more; words are counted over the document from 0, boundaries left out. -100 is padding. A cluster
                may have one mention; a mention may lie in another or cross it, and have any width.
            length: not read here: Trainer sorts by this column of a data set (`train_sampling_strategy`), and drops
                columns that are no arguments.
            num_items_in_batch: the numbers in the labels of all accumulated steps, three for each mention, as Trainer
                counts them.

        The others are those of [`ElmoTaskModel.read_words`], of a document for a text.

        Raises:
            ValueError: a mention in `labels` is outside of its document, goes over the end of a sentence, or is there
                twice (in two clusters, or in one); a word is outside of a sentence; speakers or genres are missing or
                do not fit; or an input does not fit, as [`ElmoTaskModel.read_words`] says.
        """
        if torch.compiler.is_exporting():
            raise ValueError(
                "resolvers of coreference choose spans, which is not exported: export the ElmoModel in it."
            )
        mask = self._mask(input_ids, attention_mask, inputs_embeds, word_vector_ids, bilm_layers)
        sentences = _Sentences(mask, self._boundaries(input_ids, special_tokens_mask, word_vector_ids, mask))
        given = input_ids, inputs_embeds, word_vector_ids, bilm_layers
        documents, states = self._documents(sentences, given, speaker_ids, genre_ids, output_hidden_states)
        if labels is not None:
            require_no_loss_function(self)
            _require_labels(labels, [document.sentences for document in documents])
        found = [self._resolve(document) for document in documents]
        loss = clusters = None
        if labels is not None:
            nll = documents[0].attention[:0].sum() + sum(map(_nll, found, labels))
            count = (labels != IGNORE_INDEX).sum() if num_items_in_batch is None else num_items_in_batch
            items = torch.as_tensor(count).clamp(min=3)  # a batch may have no mention
            share = share_of_items(labels, None if num_items_in_batch is None else items)
            loss = self.regularize(nll * 3 / items, share)
        if not self.training:
            clusters = _stack([_clusters(*one) for one in found], IGNORE_INDEX)
        spans, mentions, antecedents, scores = (_stack(parts, IGNORE_INDEX) for parts in zip(*found, strict=True))
        return ElmoCoreferenceOutput(loss, clusters, spans, mentions, antecedents, scores, states)

    def bilm_layers(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, special_tokens_mask: Tensor | None = None
    ) -> Tensor:
        """The layers `[batch, positions, num_hidden_layers + 1, 2P]` of documents, each sentence read by itself."""
        mask = unpadded_mask(self.config, input_ids, attention_mask, None)
        sentences = _Sentences(mask, self._boundaries(input_ids, special_tokens_mask, None, mask))
        layers, positions = [], []
        for index, inside in sentences.batches():
            rows = expand(input_ids.flatten(0, 1)[index[inside]], inside)
            layers.append(super().bilm_layers(rows, inside)[inside])
            positions.append(index[inside])
        return sentences.put_back(layers, positions)

    def _boundaries(
        self, input_ids: Tensor | None, special: Tensor | None, word_vector_ids: Tensor | None, mask: Tensor
    ) -> Tensor:
        """Which positions `[batch, positions]` are boundaries of sentences."""
        if special is not None:
            if special.shape != mask.shape:
                shapes = f"{list(special.shape)}, but must be {list(mask.shape)}"
                raise ValueError(f"special_tokens_mask has the shape {shapes}: one number for each position.")
            return special.bool()
        if input_ids is not None:
            marker = input_ids[:, :, 1]
            return (marker == self.config.bos_token_id) | (marker == self.config.eos_token_id)
        if word_vector_ids is None:
            raise ValueError(
                "a document needs input_ids, word_vector_ids or special_tokens_mask: inputs_embeds and bilm_layers do "
                "not say where a sentence begins."
            )
        return word_vector_ids == BOUNDARY_ID

    def _documents(
        self,
        sentences: "_Sentences",
        given: Sequence[Tensor | None],
        speakers: Tensor | None,
        genres: Tensor | None,
        output_hidden_states: bool | None,
    ) -> tuple[list[_Document], tuple[Tensor, ...] | None]:
        """The words of each document, and the biLM's layers where they were asked for."""
        words = sentences.words
        self._require_features(words, speakers, genres)
        parts, layers, positions, all_positions = [], [], [], []
        for index, inside in sentences.batches():
            rows = [None if x is None else expand(x.flatten(0, 1)[index[inside]], inside) for x in given]
            special = expand(sentences.boundaries.flatten()[index[inside]].long(), inside)
            read = self.read_words(rows[0], inside, rows[1], None, special, *rows[2:], output_hidden_states)
            parts.append(self._encode(read))
            positions.append(index[read.words])
            all_positions.append(index[inside])
            layers.append(read.hidden_states and torch.stack(read.hidden_states, dim=2)[inside])
        if not parts:
            raise ValueError("the documents hold no words: all positions are padding.")
        states = None
        if layers[0] is not None:
            states = sentences.put_back(layers, all_positions).unbind(2)
        order = torch.cat(positions).argsort()
        vectors, encoded = (torch.cat(part)[order] for part in zip(*parts, strict=True))
        encoded = self.dropout(encoded)
        packed = [self.dropout(vectors), encoded, self.span_vectors.attention(encoded).squeeze(1)]
        packed += [sentences.number[words], None if self.pair_scorer.speaker is None else speakers[words]]
        counts = words.sum(1).tolist()
        split = zip(*([None] * len(counts) if x is None else x.split(counts) for x in packed), strict=True)
        known = [None] * len(counts) if self.pair_scorer.genre is None else genres
        return [_Document(*own, genre) for own, genre in zip(split, known, strict=True)], states

    def _encode(self, read: TaskWords) -> tuple[Tensor, Tensor]:
        """The words of a batch of sentences, packed: `[words, size]` as they are and as the encoder reads them."""
        vectors = read.vectors[read.words]
        if self.encoder is None:
            return vectors, vectors
        rows, inside = compact(read.vectors, read.words)
        again = None if read.elmo_at_output is None else compact(read.elmo_at_output, read.words)[0]
        return vectors, self.encoder(rows, inside, again)[inside]

    def _resolve(self, document: _Document) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The spans `[spans, 2]` that are kept, their mention scores, antecedents and scores of these."""
        first, last = self._mentions(document)
        spans = self.span_vectors(document, first, last)
        mention_scores = self.mention_scorer(spans)
        speakers = None if document.speakers is None else document.speakers[first]
        antecedents, scores = self.pair_scorer(spans, mention_scores, speakers, document.genre, self._refine)
        return torch.stack((first, last), dim=1), mention_scores, antecedents, scores

    def _refine(self, spans: Tensor, antecedents: Tensor, scores: Tensor) -> Tensor:
        """Each span with what its antecedents probably are, by a gate (Lee et al. 2018, section 3)."""
        own = torch.arange(len(spans), device=spans.device)[:, None]  # no antecedent: the span itself
        weights = scores.softmax(1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(spans.dtype)
        expected = embedding_bag(
            torch.cat((own, antecedents.clamp(min=0)), dim=1), spans, per_sample_weights=weights, mode="sum"
        )
        gate = torch.sigmoid(self.gate(torch.cat((spans, expected), dim=1))).to(spans.dtype)
        return gate * spans + (1 - gate) * expected

    @torch.no_grad()
    def _mentions(self, document: _Document) -> tuple[Tensor, Tensor]:
        """The first and last words `[spans]` of the spans that look most like mentions, in their order."""
        words, device = len(document.sentences), document.sentences.device
        number = max(1, int(self.config.coreference_spans_per_word * words))
        starts = torch.arange(words, device=device)[:, None]
        ends = starts + torch.arange(self.config.coreference_max_width, device=device)
        sentence = document.sentences[ends.clamp(max=max(0, words - 1))] if words else ends
        inside = (ends < words) & (sentence == document.sentences[:, None])
        first, last = starts.expand_as(ends)[inside], ends[inside]
        places = torch.arange(len(first), device=device).split(CANDIDATES)
        scores = [self.mention_scorer(self.span_vectors(document, first[own], last[own])) for own in places]
        kept = prune(first.tolist(), last.tolist(), torch.cat(scores).argsort(descending=True, stable=True), number)
        kept = torch.tensor(kept, dtype=torch.int64, device=device)
        return first[kept], last[kept]

    def _require_features(self, words: Tensor, speakers: Tensor | None, genres: Tensor | None) -> None:
        """Refuses speakers and genres that are missing or do not fit (ValueError)."""
        if self.pair_scorer.speaker is not None:
            if speakers is None:
                raise ValueError("speaker_ids are missing, but coreference_speakers is True: 0 where none is known.")
            if speakers.shape != words.shape:
                raise ValueError(f"speaker_ids has the shape {list(speakers.shape)}, but must be {list(words.shape)}.")
        if self.pair_scorer.genre is not None:
            number = self.config.coreference_num_genres
            if genres is None:
                raise ValueError(f"genre_ids are missing, but coreference_num_genres is {number}.")
            if genres.shape != words.shape[:1]:
                raise ValueError(f"genre_ids has the shape {list(genres.shape)}, but must be {list(words.shape[:1])}.")
            wrong = genres[(genres < 0) | (genres >= number)]
            if len(wrong):
                raise ValueError(f"genre_ids holds {wrong[0].item()}, but coreference_num_genres is {number}.")

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, ElmoFeature):
            init.xavier_uniform_(module.weight)
        else:
            super()._init_weights(module)


class _Sentences:
    """Where the sentences of documents `[batch, positions]` stand."""

    def __init__(self, mask: Tensor, boundaries: Tensor) -> None:
        boundaries = boundaries & mask
        passed = boundaries.cumsum(1)
        self.mask, self.boundaries, self.words = mask, boundaries, mask & ~boundaries
        outside = (self.words & (passed % 2 == 0)).nonzero()
        if len(outside):
            row, position = outside[0].tolist()
            raise ValueError(
                f"document {row} has a word at position {position} that is in no sentence: each sentence stands "
                "between <S> and </S>, as encode_document puts it."
            )
        self.number = (passed + 1) // 2
        self._flat = mask.flatten().nonzero()[:, 0]
        rows = torch.arange(len(mask), device=mask.device)[:, None] * (mask.shape[1] + 1)
        self._lengths = torch.unique_consecutive((self.number + rows)[mask], return_counts=True)[1]
        self._starts = self._lengths.cumsum(0) - self._lengths

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Sentences of like length together: `[sentences, longest]`, where each position stands in the flattened
        documents, and which are positions. No more than SENTENCE_POSITIONS with padding, unless one sentence has."""
        order = self._lengths.argsort(stable=True)
        lengths, begin = self._lengths[order].tolist(), 0
        for end in range(1, len(lengths) + 1):
            if end == len(lengths) or lengths[end] * (end + 1 - begin) > SENTENCE_POSITIONS:
                own = order[begin:end].sort().values
                steps = torch.arange(lengths[end - 1], device=order.device)
                inside = steps < self._lengths[own, None]
                places = (self._starts[own, None] + steps).clamp(max=len(self._flat) - 1)
                yield self._flat[places], inside
                begin = end

    def put_back(self, parts: Sequence[Tensor], positions: Sequence[Tensor]) -> Tensor:
        """What was computed of each batch's positions, `[n, ...]`, as `[batch, positions, ...]`, zeros elsewhere."""
        return expand(torch.cat(list(parts))[torch.cat(list(positions)).argsort()], self.mask)


def prune(first: Sequence[int], last: Sequence[int], order: Tensor, number: int) -> list[int]:
    """
    Greedy pruning: the best spans first, none that crosses one that is kept (Lee et al. 2017, section 5).

    Args:
        first, last: of each span its words.
        order: `[spans]`, their numbers, the best first.
        number: to keep.

    Returns:
        the numbers of those that are kept, in the order of the spans.
    """
    kept: list[int] = []
    furthest: dict[int, int] = {}  # of the kept spans that begin at a word the last end
    earliest: dict[int, int] = {}  # of those that end at a word the first begin
    for span in order.tolist():
        if len(kept) == number:
            break
        begin, end = first[span], last[span]
        if any(furthest.get(word, end) > end for word in range(begin + 1, end + 1)):
            continue
        if any(earliest.get(word, begin) < begin for word in range(begin, end)):
            continue
        kept.append(span)
        furthest[begin] = max(furthest.get(begin, end), end)
        earliest[end] = min(earliest.get(end, begin), begin)
    return sorted(kept)


def _by_rows(score: Callable[[slice], Tensor], antecedents: Tensor) -> Tensor:
    """`score` of a few rows of `antecedents` at a time; with gradients these are computed again in the backward pass,
    so that no more than a few rows' pairs are ever in memory."""
    count, number = antecedents.shape
    size = max(1, PAIRS // number)
    if count <= size:
        return score(slice(0, count))
    parts = [slice(begin, min(begin + size, count)) for begin in range(0, count, size)]
    if not torch.is_grad_enabled():
        return torch.cat([score(part) for part in parts])
    return torch.cat([checkpoint(score, part, use_reentrant=False) for part in parts])


def _nll(found: tuple[Tensor, ...], labels: Tensor) -> Tensor:
    """The marginal negative log-likelihood of the gold antecedents, summed over the spans (Lee et al. 2017,
    section 6); none is right where no such span comes before."""
    spans, _, antecedents, scores = found
    cluster_of = {(first, last): cluster + 1 for first, last, cluster in labels.tolist()}
    clusters = torch.tensor([cluster_of.get(tuple(span), 0) for span in spans.tolist()], device=scores.device).long()
    same = (clusters[antecedents.clamp(min=0)] == clusters[:, None]) & (clusters > 0)[:, None]
    same &= antecedents != IGNORE_INDEX
    right = torch.cat((~same.any(1, keepdim=True), same), dim=1)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    lowest = torch.finfo(scores.dtype).min
    return (scores.logsumexp(1) - scores.masked_fill(~right, lowest).logsumexp(1)).sum()


def _clusters(spans: Tensor, _: Tensor, antecedents: Tensor, scores: Tensor) -> Tensor:
    """`[mentions, 3]`: the spans with their best antecedents, where these are any."""
    numbers: dict[int, int] = {}
    count = 0
    best = scores.argmax(1).tolist() if len(scores) else []
    for span, (choice, own) in enumerate(zip(best, antecedents.tolist(), strict=True)):
        if choice:
            before = own[choice - 1]
            if before not in numbers:
                numbers[before], count = count, count + 1
            numbers[span] = numbers[before]
    rows = [[*spans[span].tolist(), number] for span, number in sorted(numbers.items())]
    return torch.tensor(rows, dtype=torch.int64, device=spans.device).view(-1, 3)


def _stack(rows: Sequence[Tensor], padding: int) -> Tensor:
    """`[batch, longest, ...]` of rows of different lengths."""
    return nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=padding)


@torch.compiler.disable  # it asks for the values
def _require_labels(labels: Tensor, sentences: Sequence[Tensor]) -> None:
    """Refuses mentions that a document cannot have (ValueError); `sentences`: of each document's words."""
    if labels.dim() != 3 or labels.shape[::2] != (len(sentences), 3):
        raise ValueError(
            f"labels has the shape {list(labels.shape)}, but must be [{len(sentences)}, mentions, 3]: of each mention "
            "the first word, the last word and the number of its cluster, -100 for padding; CoreferenceCollator pads."
        )
    for row, (mentions, numbers) in enumerate(zip(labels.tolist(), sentences, strict=True)):
        given = [mention for mention in mentions if mention != [IGNORE_INDEX] * 3]
        require_mentions(given, numbers.tolist(), f"document {row}")


def require_mentions(mentions: Iterable[Sequence[int]], sentences: Sequence[int], document: str) -> None:
    """
    Refuses mentions that a document cannot have.

    Args:
        mentions: of each the first word, the last word and the number of its cluster.
        sentences: of each word the number of its sentence.
        document: what the error calls it.

    Raises:
        ValueError: a mention is outside of the document, goes over the end of a sentence, or is there twice.
    """
    seen: dict[tuple[int, int], int] = {}
    for first, last, cluster in mentions:
        where = f"{document} has a mention of cluster {cluster} from word {first} to word {last}, but"
        if not 0 <= first <= last < len(sentences):
            raise ValueError(f"{where} its words are 0 to {len(sentences) - 1}, counted without boundaries.")
        if cluster < 0:
            raise ValueError(f"{where} clusters are numbered from 0; -100 pads all three numbers.")
        if sentences[first] != sentences[last]:
            raise ValueError(f"{where} these are in sentences {sentences[first]} and {sentences[last]}: cut it there.")
        if (first, last) in seen:
            raise ValueError(f"{where} cluster {seen[first, last]} has it, too: clusters share no mention.")
        seen[first, last] = cluster


__all__ = ["ElmoCoreferenceOutput", "ElmoForCoreferenceResolution"]
