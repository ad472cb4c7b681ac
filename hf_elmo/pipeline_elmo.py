"""transformers' pipeline for ELMo taggers: each word is one token, and a CRF decodes the tags."""

from typing import Any

import numpy as np
import torch
from transformers import TokenClassificationPipeline
from transformers.pipelines.token_classification import AggregationStrategy

from .modeling_elmo import compact, expand


def continues_span(before: str, tag: str) -> bool:
    """Whether a word is a part of the same span as the word before it, by their tags, as the program conlleval counts
    in each scheme: a span has one type, and begins at B and S, and after E and S. Equal tags without a prefix are one
    span."""
    (last, type_before), (prefix, span_type) = (
        each.split("-", 1) if each[:2] in ("B-", "I-", "E-", "S-") else ("I", each) for each in (before, tag)
    )
    return span_type == type_before and prefix not in "BS" and last not in "ES"


class ElmoTokenClassificationPipeline(TokenClassificationPipeline):
    """transformers' pipeline for [`ElmoForTokenClassification`]: `pipeline("token-classification", model=folder,
    pipeline_class=ElmoTokenClassificationPipeline)`, or, where hf_elmo is not installed, `trust_remote_code=True`."""

    def _forward(self, model_inputs: dict[str, Any]) -> dict[str, Any]:
        words = (model_inputs["special_tokens_mask"] == 0) & model_inputs["attention_mask"].bool()
        outputs = super()._forward(model_inputs)
        crf, outputs["tags"] = self.model.classifier.crf, outputs["logits"].argmax(2)
        if crf is not None:
            scores, inside = compact(outputs["logits"].to(words.device), words)
            probabilities = crf(scores, inside, marginals=True)[inside]
            # The pipeline applies a softmax, which turns the logarithms of probabilities back into probabilities.
            outputs["logits"] = expand(probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log(), words)
            outputs["tags"] = expand(crf(scores, inside)[inside], words)
        return outputs

    def postprocess(self, all_outputs: list[dict[str, Any]], *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """As in transformers, but with the tags of `_forward`, which may differ from the most probable labels."""
        for outputs in all_outputs:  # tags are passed on in word_ids, which gather_pre_entities gets unchanged
            tags = outputs["tags"][0].tolist()
            word_ids = outputs["word_ids"] or [None] * len(tags)
            padding = [None] * (len(tags) - len(word_ids))  # of a batch
            word_ids = word_ids + padding if self.tokenizer.padding_side == "right" else padding + word_ids
            outputs["word_ids"] = list(zip(word_ids, tags, strict=True))
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
        """A dictionary for each word, with the tag, the scores and the place in the text."""
        entities = []
        for index in np.flatnonzero(np.asarray(special_tokens_mask) == 0).tolist():
            start, end = (None, None) if offset_mapping is None else (int(place) for place in offset_mapping[index])
            if start is not None and word_to_chars_map is not None:
                word_start = word_to_chars_map[word_ids[index][0]][0]
                start, end = start + word_start, end + word_start
            word = self.tokenizer.convert_ids_to_tokens(np.asarray(input_ids[index]))
            entity = {"word": word, "scores": scores[index], "tag": word_ids[index][1], "start": start, "end": end}
            entities.append({**entity, "index": index, "is_subword": False})
        return entities

    def aggregate(self, pre_entities: list[dict[str, Any]], aggregation_strategy: Any) -> list[dict[str, Any]]:
        """Words with their tags and probabilities, grouped into spans unless the strategy is `"none"`."""
        entities = []
        for one in pre_entities:
            places = {key: one[key] for key in ("index", "word", "start", "end")}
            entity = self.model.config.id2label[one["tag"]]
            entities.append({"entity": entity, "score": one["scores"][one["tag"]], **places})
        if aggregation_strategy == AggregationStrategy.NONE:
            return entities
        spans: list[list[dict[str, Any]]] = []
        for entity in entities:
            if spans and continues_span(spans[-1][-1]["entity"], entity["entity"]):
                spans[-1].append(entity)
            else:
                spans.append([entity])
        return list(map(self.group_sub_entities, spans))
