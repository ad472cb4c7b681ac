"""Character ids of tokens, distinct ones once; and fingerprints, by which stored vectors know their model."""

from pathlib import Path

import pytest
import torch

from hf_elmo import ElmoForTokenClassification, ElmoModel, ElmoTokenizer
from hf_elmo.checkpoints.fingerprints import model_fingerprint, tokenizer_fingerprint
from hf_elmo.utils.spelling import BEGIN, END, PADDING, Speller
from tests.factories import save_checkpoint, whitespace_tokenizer

TOKENS = [BEGIN, "the", "cat", "", "the", "<pad>", "<S>", "</S>", END, PADDING, BEGIN, "naïve", "cat", END]


@pytest.mark.parametrize(("length", "boundary_words"), [(50, False), (7, True)])
def test_each_distinct_token_is_spelled_once_as_the_tokenizer_does(length: int, boundary_words: bool) -> None:
    tokenizer = ElmoTokenizer(max_word_length=length)
    begin, end = tokenizer("")["input_ids"]
    special = {BEGIN: begin, END: end, PADDING: [0] * length}
    how = {"is_split_into_words": True, "add_special_tokens": False, "split_special_tokens": not boundary_words}
    expected = [special[t] if t in special else tokenizer([t], **how)["input_ids"][0] for t in TOKENS]
    speller = Speller(tokenizer, boundary_words)
    assert speller.characters(TOKENS).tolist() == expected
    ids, rows = speller.distinct(TOKENS)
    assert len(ids) == len(set(TOKENS))
    assert ids[rows].tolist() == expected


def test_fingerprints_change_with_what_decides_a_vector(model: ElmoModel, tmp_path: Path) -> None:
    before = model_fingerprint(model)
    save_checkpoint(tmp_path / "elmo", model)
    tagger = ElmoForTokenClassification.from_pretrained(tmp_path / "elmo", hidden_dropout=0.5, num_labels=3)
    tagger.config.transformers_version, tagger.config.id2label = "5.0.0", {0: "A", 1: "B", 2: "C"}
    assert model_fingerprint(tagger.elmo) == before  # neither paths, versions nor heads decide one
    assert model_fingerprint(tagger) != before
    half = ElmoModel.from_pretrained(tmp_path / "elmo", dtype="bfloat16")
    assert model_fingerprint(half) == model_fingerprint(model, torch.bfloat16) != before
    model.config.cell_clip += 1
    found = [before, model_fingerprint(model)]
    with torch.no_grad():
        model.bilm.forward_layers[0].bias[0] += 1
    found.append(model_fingerprint(model))
    assert len(set(found)) == 3
    tokenizer = whitespace_tokenizer()
    before = tokenizer_fingerprint(tokenizer)
    tokenizer(["a text", "b"], padding=True, truncation=True, max_length=3)
    assert tokenizer_fingerprint(tokenizer) == before
    for other in (ElmoTokenizer(), whitespace_tokenizer(max_word_length=9)):
        assert tokenizer_fingerprint(other) != before
