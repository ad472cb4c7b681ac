"""transformers' pipelines and sentence-transformers on a saved checkpoint."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import pipeline

from hf_elmo import (
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenClassificationPipeline,
    ElmoTokenizer,
)
from tests.factories import SENTENCES, save_checkpoint, small_model

NAMES = {0: "ham", 1: "spam", 2: "neither"}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return save_checkpoint(tmp_path / "base", small_model(), ElmoTokenizer())


def classifier(folder: Path, **fields: object) -> Path:
    return save_checkpoint(folder, small_model(ElmoForSequenceClassification, id2label=NAMES, **fields))


def load(folder: Path, model_class: type) -> tuple[torch.nn.Module, ElmoTokenizer]:
    return model_class.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder)


def test_feature_extraction(base: Path) -> None:
    features = pipeline("feature-extraction", model=str(base))(SENTENCES, batch_size=3)
    model, tokenizer = load(base, ElmoModel)
    for sentence, found in zip(SENTENCES, features, strict=True):
        with torch.no_grad():
            expected = model(**tokenizer(sentence, return_tensors="pt")).last_hidden_state[0]
        found = np.array(found)[0]
        np.testing.assert_allclose(found[: len(expected)], expected, atol=1e-5)
        assert not found[len(expected) :].any()


@pytest.mark.parametrize("paired", [False, True], ids=["texts", "pairs"])
def test_text_classification(tmp_path: Path, paired: bool) -> None:
    folder = classifier(tmp_path, classifier_text_pairs=paired)
    texts = [{"text": one, "text_pair": one[::-1]} for one in SENTENCES] if paired else SENTENCES
    results = pipeline("text-classification", model=str(folder), top_k=None)(texts, batch_size=3)
    model, tokenizer = load(folder, ElmoForSequenceClassification)
    for sentence, result in zip(SENTENCES, results, strict=True):
        pair = [sentence[::-1]] if paired else []
        with torch.no_grad():
            expected = model(**tokenizer(sentence, *pair, return_tensors="pt")).logits[0].softmax(0)
        found = {entry["label"]: entry["score"] for entry in result}
        assert found == pytest.approx(dict(zip(NAMES.values(), expected.tolist(), strict=True)), abs=1e-5)


def test_a_checkpoint_is_a_sentence_transformer(tmp_path: Path, base: Path) -> None:
    transformer = pytest.importorskip("sentence_transformers").SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize

    assert not (classifier(tmp_path) / "modules.json").exists()  # the vectors are those of a model without a head
    sentences = transformer(str(base), device="cpu")
    model, tokenizer = load(base, ElmoModel)
    for sentence, embedding in zip(SENTENCES, sentences.encode(SENTENCES, batch_size=3), strict=True):
        with torch.no_grad():
            expected = model(**tokenizer(sentence, return_tensors="pt")).pooler_output[0]
        np.testing.assert_allclose(embedding, expected, atol=1e-6)
    sentences.append(Normalize())
    sentences.save(str(tmp_path / "unit"))
    model.save_pretrained(tmp_path / "unit")  # the modules are those of sentence-transformers
    lengths = np.linalg.norm(transformer(str(tmp_path / "unit"), device="cpu").encode(SENTENCES), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-6)


def test_cross_encoder(tmp_path: Path) -> None:
    cross_encoder = pytest.importorskip("sentence_transformers").CrossEncoder
    folder = save_checkpoint(
        tmp_path, small_model(ElmoForSequenceClassification, classifier_text_pairs=True, num_labels=1)
    )
    encoder, (model, tokenizer) = cross_encoder(str(folder), device="cpu"), load(folder, ElmoForSequenceClassification)
    pairs = [[SENTENCES[0], text] for text in SENTENCES[1:]]
    with torch.no_grad():
        expected = model(**tokenizer(list(map(tuple, pairs)), padding=True, return_tensors="pt")).logits[:, 0].sigmoid()
    np.testing.assert_allclose(encoder.predict(pairs), expected, atol=1e-6)
    ranked = {one["corpus_id"]: one["score"] for one in encoder.rank(SENTENCES[0], SENTENCES[1:])}
    assert [ranked[place] for place in range(len(pairs))] == pytest.approx(expected.tolist(), abs=1e-6)


SPANS = [("PER", "Anna Maria Smith"), ("O", "met"), ("PER", "Ann"), ("PER", "Bo")]


@pytest.mark.parametrize("crf", [True, False], ids=["crf", "no crf"])
def test_spans_of_a_tagger_are_those_of_its_scheme(tmp_path: Path, crf: bool) -> None:
    tags = ["O", "B-PER", "I-PER", "E-PER", "S-PER"]
    fields = {"tagging_crf": crf, "tagging_scheme": "BIOES" if crf else None, "id2label": dict(enumerate(tags))}
    model = small_model(ElmoForTokenClassification, **fields)
    sequence = torch.tensor([0, 1, 2, 3, 0, 4, 4, 0])  # of "Anna Maria Smith met Ann Bo", between the boundaries
    model.classifier.forward = lambda words, *_: 20.0 * torch.nn.functional.one_hot(sequence[None, 1:-1], 5)
    folder = save_checkpoint(tmp_path, model)
    how = {"pipeline_class": ElmoTokenClassificationPipeline, "aggregation_strategy": "simple", "ignore_labels": []}
    tag = pipeline("token-classification", model=model, tokenizer=ElmoTokenizer.from_pretrained(folder), **how)
    found = tag("Anna Maria Smith met Ann Bo")
    assert [(span["entity_group"], span["word"]) for span in found] == SPANS
    for name in ("ner", "token-classification"):  # transformers' own pipeline would not decode the tags
        with pytest.raises(ValueError, match="trust_remote_code"):
            pipeline(name, model=str(folder))


def test_zero_shot_classification() -> None:
    names = {0: "contradiction", 1: "neutral", 2: "entailment"}
    model = small_model(ElmoForSequenceClassification, id2label=names, classifier_text_pairs=True)
    tokenizer = ElmoTokenizer()
    classify = pipeline("zero-shot-classification", model=model, tokenizer=tokenizer)
    results = classify(SENTENCES, candidate_labels=["sport", "weather"], hypothesis_template="It is about {}.")
    for text, result in zip(SENTENCES, results, strict=True):
        pairs = [(text, f"It is about {label}.") for label in ("sport", "weather")]
        with torch.no_grad():
            logits = torch.cat([model(**tokenizer(*pair, return_tensors="pt")).logits[:, 2] for pair in pairs])
        expected = dict(zip(("sport", "weather"), logits.softmax(0).tolist(), strict=True))
        assert dict(zip(result["labels"], result["scores"], strict=True)) == pytest.approx(expected, abs=1e-5)
