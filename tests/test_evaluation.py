"""Evaluation mode for the length of a block."""

from contextlib import nullcontext
from threading import Barrier, Thread

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


def test_the_last_of_several_threads_gives_the_mode_back() -> None:
    model, inside, first_is_out = nn.Sequential(nn.Dropout()).train(), Barrier(2, timeout=20), Barrier(2, timeout=20)
    modes = []

    def first() -> None:
        with evaluation_mode(model):
            inside.wait()
        first_is_out.wait()

    def last() -> None:
        with evaluation_mode(model):
            inside.wait()
            first_is_out.wait()
            modes.extend(module.training for module in model.modules())

    threads = [Thread(target=one) for one in (first, last)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert modes == [False, False]
    assert all(module.training for module in model.modules())
    with evaluation_mode(model), evaluation_mode(model):
        pass
    assert all(module.training for module in model.modules())
