"""Evaluation mode for the length of a block."""

from contextlib import nullcontext

import pytest
from torch import nn

from hf_elmo.evaluation import evaluation_mode


@pytest.mark.parametrize("raises", [False, True])
def test_each_module_gets_its_own_mode_back(raises: bool) -> None:
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout(), nn.Linear(2, 3)))
    model.train()
    model[1].eval()
    before = [module.training for module in model.modules()]
    assert len(set(before)) == 2
    with pytest.raises(KeyError) if raises else nullcontext(), evaluation_mode(model):
        assert not any(module.training for module in model.modules())
        if raises:
            raise KeyError
    assert [module.training for module in model.modules()] == before
