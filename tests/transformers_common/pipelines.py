"""What PipelineTesterMixin runs for each pipeline: transformers' source distribution leaves it out."""

import numpy as np
import pytest
import torch
from transformers import (
    FeatureExtractionPipeline,
    Pipeline,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TextClassificationPipeline,
    ZeroShotClassificationPipeline,
)

from hf_elmo import ElmoTokenClassificationPipeline

EXAMPLES = ["Mostly harmless.", "A towel is about the most massively useful thing a hitchhiker can have."]


class FeatureExtraction:
    """A vector for each word, boundaries included; truncation; tensors."""

    def get_test_pipeline(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, dtype: str
    ) -> tuple[Pipeline, list[str]]:
        return FeatureExtractionPipeline(model=model, tokenizer=tokenizer, dtype=dtype), EXAMPLES

    def run_pipeline_test(self, extract: Pipeline, examples: list[str]) -> None:
        size = extract.model.config.hidden_size
        for example, found in zip(examples, extract(examples), strict=True):
            assert np.shape(found) == (1, len(extract.tokenizer(example)["input_ids"]), size)
        cut = extract(" ".join(examples * 100), truncation=True, tokenize_kwargs={"max_length": 9})
        assert np.shape(cut) == (1, 9, size)
        assert torch.is_tensor(extract(examples[0], return_tensors=True))


class TextClassification:
    """The best label, all labels; two texts in a list are refused, because they could be a pair."""

    def get_test_pipeline(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, dtype: str
    ) -> tuple[Pipeline, list[str]]:
        return TextClassificationPipeline(model=model, tokenizer=tokenizer, dtype=dtype), EXAMPLES

    def run_pipeline_test(self, classify: Pipeline, examples: list[str]) -> None:
        labels = set(classify.model.config.id2label.values())
        for best in (*classify(examples[0]), *classify(examples)):
            assert best["label"] in labels
            assert 1 / len(labels) <= best["score"] <= 1
        for every in classify(examples, top_k=None):
            assert {entry["label"] for entry in every} == labels
            assert sum(entry["score"] for entry in every) == pytest.approx(1, abs=1e-5)
        with pytest.raises(ValueError):
            classify([examples])


class TokenClassification:
    """The best label of each word, which is never split; groups of words in both ways; a text as its words."""

    def get_test_pipeline(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, dtype: str
    ) -> tuple[Pipeline, list[str]]:
        return ElmoTokenClassificationPipeline(model=model, tokenizer=tokenizer, dtype=dtype), EXAMPLES

    def run_pipeline_test(self, tag: Pipeline, examples: list[str]) -> None:
        labels = set(tag.model.config.id2label.values())
        for example, found in zip(examples, tag(examples, ignore_labels=[]), strict=True):
            assert found == tag(example, ignore_labels=[])
            assert [entry["word"] for entry in found] == tag.tokenizer.split_into_words([example])[0]
            for entry in found:
                assert example[entry["start"] : entry["end"]] == entry["word"]
                assert entry["entity"] in labels
                assert 1 / len(labels) <= entry["score"] <= 1
        words = tag(examples[1], ignore_labels=[])
        for strategy in ("simple", "first", "average", "max"):
            groups = tag(examples[1], ignore_labels=[], aggregation_strategy=strategy)
            assert " ".join(group["word"] for group in groups) == " ".join(entry["word"] for entry in words)
            assert {group["entity_group"] for group in groups} <= labels
        assert tag(examples[1], ignore_labels=list(labels)) == []


class ZeroShotClassification:
    """One and several candidates, as a string and as a list; empty ones are refused."""

    def get_test_pipeline(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, dtype: str
    ) -> tuple[Pipeline, list[str]]:
        candidates = ["towels", "tea"]
        return ZeroShotClassificationPipeline(
            model=model, tokenizer=tokenizer, dtype=dtype, candidate_labels=candidates
        ), EXAMPLES

    def run_pipeline_test(self, classify: Pipeline, examples: list[str]) -> None:
        for candidates in ("towels, tea", ["towels", "tea"]):
            found = classify(examples[0], candidate_labels=candidates, hypothesis_template="It is about {}.")
            assert sorted(found["labels"]) == ["tea", "towels"]
            assert sum(found["scores"]) == pytest.approx(1, abs=1e-5)
        assert classify(examples[0], "tea")["labels"] == ["tea"]
        assert [found["sequence"] for found in classify(examples, ["towels", "tea"])] == examples
        for text, candidates in (("", "tea"), (examples[0], "")):
            with pytest.raises(ValueError):
                classify(text, candidate_labels=candidates)
        assert classify.entailment_id == 2
