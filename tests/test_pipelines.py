"""transformers' pipelines and sentence-transformers on a saved checkpoint."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import pipeline

from hf_elmo import ElmoForSequenceClassification, ElmoForTokenClassification, ElmoModel, ElmoTokenizer
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


TAG = """
import sys
import hf_elmo
from transformers import AutoTokenizer, BertConfig, BertForTokenClassification, pipeline
folder, order = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
if order == "the model":
    tag = pipeline("ner", model=hf_elmo.ElmoForTokenClassification.from_pretrained(folder), tokenizer=tokenizer)
else:
    tag = pipeline(order, model=folder)
assert [entity["word"] for entity in tag("Ann saw Rome .", ignore_labels=[])] == ["Ann", "saw", "Rome", "."]
config = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
other = pipeline("ner", model=BertForTokenClassification(config), tokenizer=tokenizer)
print(type(tag).__name__, type(other).__name__)
"""


@pytest.mark.slow
@pytest.mark.parametrize("order", ["the model", "ner", "token-classification"])
def test_taggers_in_every_order_of_calls(tmp_path: Path, order: str) -> None:
    """Each in a new process: which class transformers makes must not depend on what was imported or loaded before."""
    folder = save_checkpoint(tmp_path, small_model(ElmoForTokenClassification, num_labels=3))
    command = [sys.executable, "-c", TAG, str(folder), order]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed.split() == ["ElmoTokenClassificationPipeline", "TokenClassificationPipeline"]


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
