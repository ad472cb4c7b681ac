"""Taggers on Trainer and in a pipeline: batches, metrics over spans, one id a word."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import DataCollatorForTokenClassification, EvalPrediction, TokenClassificationPipeline
from transformers.pipelines.token_classification import AggregationStrategy

from ..optional import import_optional
from ..packing_elmo import compact, expand

SCHEMES = {"IOB1": "IOB1", "IOB2": "IOB2", "BIOES": "IOBES"}  # here, and in seqeval


class TaggingCollator(DataCollatorForTokenClassification):
    """transformers' collator, which takes stored layers (`bilm_layers`), too, where there are no `input_ids`.

    Args:
        tokenizer: the model's; the others are those of transformers' `DataCollatorForTokenClassification`.

    Raises:
        ValueError: a row has another number of labels than of positions; `tokenizer.align_labels` makes one for each.
    """

    def torch_call(self, features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        name = "label" if "label" in features[0] else "labels"
        labels = [feature.get(name) for feature in features]
        rows = [{key: value for key, value in feature.items() if key != name} for feature in features]
        options = {"padding": self.padding, "max_length": self.max_length}
        batch = self.tokenizer.pad(rows, **options, pad_to_multiple_of=self.pad_to_multiple_of, return_tensors="pt")
        if labels[0] is None:
            return batch
        padded = torch.full(batch["attention_mask"].shape, self.label_pad_token_id)
        columns = ("input_ids", "bilm_layers", "word_vector_ids")
        column = next(name for name in columns if name in rows[0])  # padded beforehand, maybe, as the labels are then
        lengths = [len(row[column]) for row in rows]
        for number, (row, own, length) in enumerate(zip(padded, labels, lengths, strict=True)):
            own = torch.tensor(np.asarray(own))
            if len(own) != length:
                raise ValueError(
                    f"row {number} of the batch has {len(own)} labels for {length} positions, boundaries included: "
                    "tokenizer.align_labels makes one for each."
                )
            (row[: len(own)] if self.tokenizer.padding_side == "right" else row[len(row) - len(own) :]).copy_(own)
        batch["labels"] = padded
        return batch


def span_metrics(
    id2label: Mapping[int, str], scheme: str | None = None
) -> Callable[[EvalPrediction], dict[str, float]]:
    """
    `compute_metrics` of Trainer for spans: precision, recall and F1 (micro), and the accuracy of words, by seqeval.

    Args:
        id2label: `model.config.id2label`.
        scheme: `"IOB1"`, `"IOB2"` or `"BIOES"` counts spans strictly by the scheme; `None` as conlleval does.

    Returns:
        a function of predictions: of a tagger with a CRF its tags, of others the best label of each word.

    Raises:
        ValueError: the scheme is unknown.
        ImportError: seqeval is not installed.
    """
    if scheme not in (*SCHEMES, None):
        raise ValueError(f"scheme is {scheme!r}, but must be one of {', '.join(SCHEMES)}, or None.")
    import_optional("seqeval.metrics", "span_metrics", '"hf-elmo[train]"')
    import_optional("seqeval.scheme", "span_metrics", '"hf-elmo[train]"')
    from seqeval import metrics
    from seqeval import scheme as schemes

    options = {"zero_division": 0}
    if scheme is not None:
        options |= {"mode": "strict", "scheme": getattr(schemes, SCHEMES[scheme])}

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        truth, predicted = tags_of(prediction, id2label)
        return {
            "precision": float(metrics.precision_score(truth, predicted, **options)),
            "recall": float(metrics.recall_score(truth, predicted, **options)),
            "f1": float(metrics.f1_score(truth, predicted, **options)),
            "accuracy": float(metrics.accuracy_score(truth, predicted)) if any(truth) else 0.0,
        }

    return compute


def tags_of(prediction: EvalPrediction, id2label: Mapping[int, str]) -> tuple[list[list[str]], list[list[str]]]:
    """The names of the true and of the predicted labels of each row's words; of a CRF or a scheme its tags."""
    predictions, labels = prediction.predictions, np.asarray(prediction.label_ids)
    # A tagger with a CRF or a scheme gives (logits, tags).
    tags = predictions[1] if isinstance(predictions, tuple) else np.argmax(predictions, axis=2)
    rows = [(own[own != -100], found[own != -100]) for own, found in zip(labels, tags, strict=True)]
    truth, predicted = ([[id2label[int(i)] for i in row[part]] for row in rows] for part in (0, 1))
    return truth, predicted


class ElmoTokenClassificationPipeline(TokenClassificationPipeline):
    """transformers' pipeline for [`ElmoForTokenClassification`]: words stay whole, a CRF's tags are its own.

    ```python
    >>> tag = pipeline("token-classification", model=folder, pipeline_class=ElmoTokenClassificationPipeline)
    >>> tag("Angela Merkel lives in Berlin.", aggregation_strategy="simple")
    ```"""

    def _forward(self, model_inputs: dict[str, Any]) -> dict[str, Any]:
        words = (model_inputs["special_tokens_mask"] == 0) & model_inputs["attention_mask"].bool()
        outputs = super()._forward(model_inputs)
        crf, outputs["tags"] = getattr(self.model, "crf", None), outputs["logits"].argmax(2)
        if crf is not None:
            scores, inside = compact(outputs["logits"].to(words.device), words)
            probabilities = crf(scores, inside, marginals=True)[inside]
            # Their softmax is the probabilities themselves.
            outputs["logits"] = expand(probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log(), words)
            outputs["tags"] = expand(crf(scores, inside)[inside], words)
        return outputs

    def postprocess(self, all_outputs: list[dict[str, Any]], *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """As in transformers, with the tags that `_forward` found: the label that is most probable by itself may be
        none of the best sequence."""
        for outputs in all_outputs:  # gather_pre_entities gets word_ids as they are
            tags = outputs["tags"][0].tolist()
            outputs["word_ids"] = list(zip(outputs["word_ids"] or [None] * len(tags), tags, strict=True))
        return super().postprocess(all_outputs, *args, **kwargs)

    def gather_pre_entities(
        self,
        sentence: str,
        input_ids: np.ndarray,
        scores: np.ndarray,
        offset_mapping: list[tuple[int, int]] | None,
        special_tokens_mask: np.ndarray,
        aggregation_strategy: Any,
        word_ids: list[tuple[int | None, int]],
        word_to_chars_map: list[tuple[int, int]] | None = None,
        **kwargs: Any,
    ) -> list[dict[str, Any]]:
        """A dictionary for each word, with its tag, its scores and its place in the text; no word is a part of
        another."""
        entities = []
        for index in np.flatnonzero(np.asarray(special_tokens_mask) == 0).tolist():
            start, end = (None, None) if offset_mapping is None else (int(place) for place in offset_mapping[index])
            if start is not None and word_to_chars_map is not None:
                before = word_to_chars_map[word_ids[index][0]][0]
                start, end = start + before, end + before
            word = self.tokenizer.convert_ids_to_tokens(np.asarray(input_ids[index]))
            entity = {"word": word, "scores": scores[index], "tag": word_ids[index][1], "start": start, "end": end}
            entities.append({**entity, "index": index, "is_subword": False})
        return entities

    def aggregate(self, pre_entities: list[dict[str, Any]], aggregation_strategy: Any) -> list[dict[str, Any]]:
        """The words with their tags, whose probabilities are the scores; spans by every strategy but `"none"`: where no
        word is a part of another they are the same."""
        entities = [
            {
                "entity": self.model.config.id2label[one["tag"]],
                "score": one["scores"][one["tag"]],
                **{key: one[key] for key in ("index", "word", "start", "end")},
            }
            for one in pre_entities
        ]
        return entities if aggregation_strategy == AggregationStrategy.NONE else self.group_entities(entities)
