"""A user's script, for type checkers alone: `mypy --strict` passes, and says what each name is."""

from pathlib import Path
from typing import assert_type

import torch
from transformers import BatchEncoding

import hf_elmo
from hf_elmo import ElmoForPreTraining, ElmoForSequenceClassification, ElmoModel, ElmoTokenizer

model, tokenizer = hf_elmo.load_model()
assert_type(model, ElmoModel)
assert_type(tokenizer, ElmoTokenizer)
assert_type(ElmoModel.from_pretrained(hf_elmo.path(), layer_weights=1), ElmoModel)
encoded: BatchEncoding = tokenizer(["A bank."], padding=True, return_tensors="pt")
assert_type(ElmoTokenizer.from_pretrained(hf_elmo.path()), ElmoTokenizer)
classifier = ElmoForSequenceClassification.from_pretrained(Path("elmo"), num_labels=2)
assert_type(classifier, ElmoForSequenceClassification)
vectors: torch.Tensor | None = model(**encoded).last_hidden_state
language_model, _ = hf_elmo.load_model(language_model=True)
assert_type(language_model, ElmoForPreTraining)
assert_type(hf_elmo.embed(model, ["A river bank."])[0].ndim, int)  # NumPy 1 and 2 name the type of an array differently
assert_type(hf_elmo.embed(model, ["A river bank."], pooling="mean").ndim, int)
print(vectors, hf_elmo.__version__)
print(hf_elmo.nothing)  # type: ignore[attr-defined]
