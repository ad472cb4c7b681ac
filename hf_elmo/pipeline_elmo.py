"""transformers' pipeline for ELMo taggers: each word is one token, and a CRF decodes the tags."""

from inspect import currentframe
from traceback import walk_stack
from typing import Any

import numpy as np
import torch
from transformers import TokenClassificationPipeline

from .configuration_elmo import IGNORE_INDEX
from .modeling_elmo import align_left, scatter

PREFIXES = ("B", "I", "E", "S", "B-", "I-", "E-", "S-", "L-", "U-")  # without a type, L and U are types


def continues_span(before: str, tag: str) -> bool:
    """Whether a word is a part of the same span as the word before it, by their tags (prefix and type, or one of both),
    as the program conlleval counts in each scheme: a span has one type, and begins at B, S and U, and after E, L, S and
    U. Equal tags without a prefix are one span."""
    (last, type_before), (prefix, span_type) = (
        (each[0], each[2:]) if each[:2] in PREFIXES else ("I", each) for each in (before, tag)
    )
    return span_type == type_before and prefix not in "BSU" and last not in "ELSU"


class ElmoTokenClassificationPipeline(TokenClassificationPipeline):
    """transformers' pipeline for [`ElmoForTokenClassification`]: `pipeline("token-classification", model=folder,
    pipeline_class=ElmoTokenClassificationPipeline)`, or, where hf_elmo is not installed, `trust_remote_code=True`. Of a
    model object it is the pipeline by itself, by [`choose_pipeline`]."""

    def _forward(self, model_inputs: dict[str, Any]) -> dict[str, Any]:
        words = (model_inputs["special_tokens_mask"] == 0) & model_inputs["attention_mask"].bool()
        outputs = super()._forward(model_inputs)
        crf = self.model.classifier.crf
        scores = outputs["logits"].to(words.device)
        tags = scores.argmax(2)
        if crf is not None:
            scores, mask = align_left(scores, words)
            probabilities = crf(scores, mask, marginals=True)[mask]
            # The pipeline applies a softmax, which turns the logarithms of probabilities back into probabilities.
            outputs["logits"] = scatter(probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log(), words)
            tags = scatter(crf(scores, mask)[mask], words)
        # This mask reaches `gather_pre_entities` unchanged. The tags may differ from the most probable labels.
        outputs["special_tokens_mask"] = tags.masked_fill(~words, IGNORE_INDEX)
        return outputs

    def gather_pre_entities(
        self,
        sentence: str,
        input_ids: np.ndarray,
        scores: np.ndarray,
        offset_mapping: list[tuple[int, int]],
        special_tokens_mask: np.ndarray,
        aggregation_strategy: Any,
        word_ids: list[int | None] | None = None,
        word_to_chars_map: list[tuple[int, int]] | None = None,
        **kwargs: Any,
    ) -> list[dict[str, Any]]:
        """A dictionary for each word: its place in the text, and `scores` with the probability of its tag, and -1
        for the other labels."""
        entities = []
        tags = special_tokens_mask  # what `_forward` has put there
        # Of a list of words, offsets are from the begin of each word. (Padding moves the tags, but not `word_ids`.)
        begins = iter([word_to_chars_map[word_id][0] for word_id in word_ids or () if word_id is not None])
        for index in np.flatnonzero(tags != IGNORE_INDEX).tolist():
            begin = next(begins, 0)
            start, end = (int(place) + begin for place in offset_mapping[index])
            word = self.tokenizer.convert_ids_to_tokens(np.asarray(input_ids[index]))
            of_tag = np.where(np.arange(scores.shape[1]) == tags[index], scores[index], -1)
            place = {"start": start, "end": end, "index": index}
            entities.append({"word": word, "scores": of_tag, **place, "is_subword": False})
        return entities

    def group_entities(self, entities: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The spans of words with these tags."""
        spans: list[list[dict[str, Any]]] = []
        for entity in entities:
            if spans and continues_span(spans[-1][-1]["entity"], entity["entity"]):
                spans[-1].append(entity)
            else:
                spans.append([entity])
        return list(map(self.group_sub_entities, spans))


def choose_pipeline() -> None:
    """Turns the pipeline that is made, and reads a model's attribute, into [`ElmoTokenClassificationPipeline`]. Of a
    model object, transformers makes the pipeline that its table has for the task, which is the same for all models; so
    the model itself chooses, and the table stays as it is."""
    for frame, _ in walk_stack(currentframe()):  # between them are the wrappers of PEFT and `torch.compile`
        caller = frame.f_locals.get("self")
        if type(caller) is TokenClassificationPipeline and frame.f_code.co_name == "__init__":  # not one that runs
            caller.__class__ = ElmoTokenClassificationPipeline
            return
