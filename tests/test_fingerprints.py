"""Evaluation mode, and fingerprints of models and tokenizers."""

import torch
from torch import nn

from hf_elmo import ElmoModel, ElmoTokenizer
from hf_elmo.evaluation import evaluation_mode
from hf_elmo.fingerprints import model_fingerprint, tokenizer_fingerprint


def test_each_module_gets_its_mode_back() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout(), nn.Linear(2, 3)))
    model[1].eval()
    before = [module.training for module in model.modules()]
    with evaluation_mode(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == before


def test_a_model_s_fingerprint_changes_with_a_weight_and_a_field(model: ElmoModel) -> None:
    before = model_fingerprint(model)
    assert model_fingerprint(model) == before
    model.config.cell_clip += 1
    assert model_fingerprint(model) != before
    model.config.cell_clip -= 1
    with torch.no_grad():
        model.bilm.forward_layers[0].bias[0] += 1
    assert model_fingerprint(model) != before


def test_a_tokenizer_s_fingerprint_changes_with_what_decides_its_ids() -> None:
    tokenizer = ElmoTokenizer(word_splitting="whitespace")
    before = tokenizer_fingerprint(tokenizer)
    tokenizer(["a text", "b"], padding=True, truncation=True, max_length=3)
    assert tokenizer_fingerprint(tokenizer) == before
    assert tokenizer_fingerprint(ElmoTokenizer(word_splitting="lm1b")) != before
    assert tokenizer_fingerprint(ElmoTokenizer(word_splitting="whitespace", max_word_length=9)) != before
