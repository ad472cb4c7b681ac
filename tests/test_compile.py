"""torch.compile of the whole model: the numbers of eager, compiled once for all batch sizes and lengths."""

from collections.abc import Callable

import pytest
import torch

from hf_elmo import ElmoTokenizer
from hf_elmo.modeling_pretraining_elmo import neighbor_labels
from tests.heads import make

BATCHES = [5, 3], [9, 2, 6], [4] * 5, [21, 1, 6, 8], [1, 2]  # the lengths of the rows


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["last", "language models"])
def test_two_lengths_are_compiled_and_no_more(tokenizer: ElmoTokenizer, name: str) -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list) -> Callable:
        graphs.append(graph)
        return graph.forward

    model = make(name, freeze_bilm=False)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    compiled, counts = torch.compile(model, backend=backend), []
    for number, lengths in enumerate(BATCHES):
        sentences = [[f"{row}word{place % 4}" for place in range(length)] for row, length in enumerate(lengths)]
        how = {"padding_side": "left" if number % 2 else "right", "padding": True, "return_tensors": "pt"}
        batch, found = dict(tokenizer(sentences, is_split_into_words=True, **how)), []
        mask = batch["attention_mask"]
        if name == "language models":
            batch["labels"] = neighbor_labels(torch.arange(mask.numel()).view_as(mask) % 31, mask)
        else:
            batch |= {"labels": torch.arange(len(mask)) % 3, "output_hidden_states": True}
        for each in (model, compiled):
            output = each(**batch)
            tensors = [*output.to_tuple()[:2], *(output.hidden_states or ())]
            found.append([*tensors, *torch.autograd.grad(output.loss, parameters, allow_unused=True)])
        torch.testing.assert_close(*found, atol=1e-6, rtol=1e-6)
        counts.append(len(graphs))
    assert counts[0] > 0
    assert counts[1:] == [counts[1]] * (len(BATCHES) - 1)
