"""transformers' pipelines and sentence-transformers on a saved checkpoint."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForTokenClassification, TokenClassificationPipeline, pipeline, pipelines

from hf_elmo import (
    ElmoConfig,
    ElmoForSequenceClassification,
    ElmoModel,
    ElmoTokenClassificationPipeline,
    ElmoTokenizer,
)
from tests.conftest import SENTENCES, TINY, random_model

NAMES = {0: "ham", 1: "spam", 2: "neither"}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    random_model(ElmoConfig(**TINY)).save_pretrained(tmp_path / "base")
    ElmoTokenizer().save_pretrained(tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def classifier(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    pairs = getattr(request, "param", False)
    labels = {"id2label": NAMES, "label2id": {name: i for i, name in NAMES.items()}}
    config = ElmoConfig(**TINY, **labels, classifier_text_pairs=pairs)
    random_model(config, ElmoForSequenceClassification).save_pretrained(tmp_path / "classifier")
    ElmoTokenizer().save_pretrained(tmp_path / "classifier")
    return tmp_path / "classifier"


def load(folder: Path, model_class: type) -> tuple[torch.nn.Module, ElmoTokenizer]:
    return model_class.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(("batch_size", "mixes"), [(1, 1), (3, 1), (1, 2)])
def test_feature_extraction(base: Path, batch_size: int, mixes: int) -> None:
    random_model(ElmoConfig(**TINY, num_scalar_mixes=mixes)).save_pretrained(base)
    features = pipeline("feature-extraction", model=str(base))(SENTENCES, batch_size=batch_size)
    model, tokenizer = load(base, ElmoModel)
    for sentence, found in zip(SENTENCES, features, strict=True):
        with torch.no_grad():
            expected = model(**tokenizer(sentence, return_tensors="pt")).last_hidden_state[0]
        found = np.array(found)[0]
        np.testing.assert_allclose(found[: len(expected)], expected, atol=1e-5)
        assert not found[len(expected) :].any()
    assert pipeline("feature-extraction", model=str(base))(SENTENCES[0], return_tensors=True).shape == (1, 9, 22)


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize(
    ("classifier", "paired"), [(False, False), (True, True)], ids=["texts", "pairs"], indirect=["classifier"]
)
def test_text_classification(classifier: Path, batch_size: int, paired: bool) -> None:
    texts = [{"text": one, "text_pair": one[::-1]} for one in SENTENCES] if paired else SENTENCES
    classify = pipeline("text-classification", model=str(classifier), top_k=None)
    results = classify(texts, batch_size=batch_size)
    model, tokenizer = load(classifier, ElmoForSequenceClassification)
    for sentence, result in zip(SENTENCES, results, strict=True):
        pair = [sentence[::-1]] if paired else []
        with torch.no_grad():
            expected = model(**tokenizer(sentence, *pair, return_tensors="pt")).logits[0].softmax(0)
        found = {entry["label"]: entry["score"] for entry in result}
        assert found == pytest.approx(dict(zip(NAMES.values(), expected.tolist(), strict=True)), abs=1e-5)


def test_a_checkpoint_is_a_sentence_transformer(tmp_path: Path, base: Path, classifier: Path) -> None:
    transformer = pytest.importorskip("sentence_transformers").SentenceTransformer
    for folder in (base, classifier):
        sentences = transformer(str(folder), device="cpu")
        embeddings = sentences.encode(SENTENCES, batch_size=3)
        model, tokenizer = load(folder, ElmoModel)
        for sentence, embedding in zip(SENTENCES, embeddings, strict=True):
            with torch.no_grad():
                expected = model(**tokenizer(sentence, return_tensors="pt")).pooler_output[0]
            np.testing.assert_allclose(embedding, expected, atol=1e-6)
    from sentence_transformers.sentence_transformer.modules import Normalize

    sentences.append(Normalize())
    sentences.save(str(tmp_path / "unit"))
    model.save_pretrained(tmp_path / "unit")  # the modules are those of sentence-transformers
    lengths = np.linalg.norm(transformer(str(tmp_path / "unit"), device="cpu").encode(SENTENCES), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-6)


def test_pipelines_of_other_models_and_other_tasks(tmp_path: Path, base: Path) -> None:
    config = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    says_what_to_use = hasattr(pipelines, "REMOVED_TASKS")  # older versions of transformers list the tasks instead
    with pytest.raises(KeyError, match=r"hf_elmo\.answer" if says_what_to_use else "question-answering"):
        pipeline("question-answering", model=str(base))
    other = ElmoTokenClassificationPipeline(model=BertForTokenClassification(config), tokenizer=ElmoTokenizer())
    assert type(other) is TokenClassificationPipeline


@pytest.mark.parametrize("texts", [SENTENCES[0], SENTENCES], ids=["one", "several"])
def test_zero_shot_classification(tmp_path: Path, texts: str | list[str]) -> None:
    names = {0: "contradiction", 1: "neutral", 2: "entailment"}
    config = ElmoConfig(**TINY, id2label=names, classifier_text_pairs=True)
    config.label2id = {name: number for number, name in config.id2label.items()}
    model, tokenizer = random_model(config, ElmoForSequenceClassification), ElmoTokenizer()
    classify = pipeline("zero-shot-classification", model=model, tokenizer=tokenizer)
    results = classify(texts, candidate_labels=["sport", "weather"], hypothesis_template="It is about {}.")
    if isinstance(texts, str):
        texts, results = [texts], [results]
    for text, result in zip(texts, results, strict=True):
        pairs = [(text, f"It is about {label}.") for label in ("sport", "weather")]
        with torch.no_grad():
            logits = torch.cat([model(**tokenizer(*pair, return_tensors="pt")).logits[:, 2] for pair in pairs])
        expected = dict(zip(("sport", "weather"), logits.softmax(0).tolist(), strict=True))
        assert dict(zip(result["labels"], result["scores"], strict=True)) == pytest.approx(expected, abs=1e-5)
