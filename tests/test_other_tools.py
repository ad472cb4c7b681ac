"""spaCy and scikit-learn, as README has them."""

import pickle
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

import hf_elmo
from hf_elmo import ElmoTokenizer

from .factories import save_checkpoint, small_model

TEXTS = ["The bank failed. It closed.", "", "A river bank"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_checkpoint(tmp_path / "elmo", small_model(), ElmoTokenizer())


def test_spacy(spacy: ModuleType, folder: Path, tmp_path: Path) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("elmo", config={"model": str(folder)})
    first, blank, other = nlp.pipe(TEXTS)
    vectors = np.concatenate(hf_elmo.embed(folder, ["The bank failed.", "It closed."]))
    np.testing.assert_allclose([token.vector for token in first], vectors, atol=1e-6)
    np.testing.assert_allclose(first.vector, vectors.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(first[1:3].vector, vectors[1:3].mean(axis=0), atol=1e-6)
    assert blank.vector.shape == (22,)
    assert blank.similarity(first) == 0
    bank, bank_of_river = first[1], other[2]
    assert bank.similarity(bank) == pytest.approx(1)
    assert bank.similarity(bank_of_river) < 0.999  # spaCy's own is 1 for equal words
    spaces = nlp("\n The  bank\tfailed .\n\nIt closed. ")
    assert [not token.vector.any() for token in spaces] == [token.is_space for token in spaces]
    np.testing.assert_allclose([token.vector for token in spaces if not token.is_space], vectors, atol=1e-6)
    np.testing.assert_allclose(spaces[1:5].vector, vectors[:2].mean(axis=0), atol=1e-6)
    assert not nlp(" \n ").vector.any()
    nlp.to_disk(tmp_path / "pipeline")
    (folder / "model.safetensors").unlink()  # it is in the pipeline
    np.testing.assert_allclose(spacy.load(tmp_path / "pipeline")(TEXTS[0]).tensor, first.tensor, atol=1e-6)


def test_scikit_learn(folder: Path) -> None:
    names = ("compose", "linear_model", "model_selection", "pipeline")
    compose, linear, selection, pipeline = (pytest.importorskip(f"sklearn.{name}") for name in names)
    vectorizer = hf_elmo.ElmoVectorizer(str(folder))
    expected = hf_elmo.embed(folder, TEXTS, pooling="mean")
    np.testing.assert_allclose(pickle.loads(pickle.dumps(vectorizer)).transform(TEXTS), expected, atol=1e-6)
    table = pd.DataFrame({"text": TEXTS, "number": [1.0, 2.0, 3.0]}, index=[5, 6, 7])
    columns = compose.ColumnTransformer([("elmo", vectorizer, "text")], remainder="passthrough")
    found = columns.set_output(transform="pandas").fit_transform(table)
    assert [*found.columns] == [*(f"elmo__elmovectorizer{place}" for place in range(22)), "remainder__number"]
    np.testing.assert_allclose(found.loc[table.index].iloc[:, :-1], expected, atol=1e-6)
    classifier = pipeline.make_pipeline(vectorizer, linear.LogisticRegression())
    grid = {"elmovectorizer__layers": [0, "all"], "elmovectorizer__pooling": ["mean", "max"]}
    found = selection.GridSearchCV(classifier, grid, cv=2).fit(["good", "awful", "great", "bad"] * 2, [1, 0, 1, 0] * 2)
    assert found.best_estimator_[0].get_params()["layers"] in (0, "all")
    assert set(found.predict(TEXTS)) <= {0, 1}
