"""torch.compile of the whole model: the numbers of eager, compiled once for all batch sizes and lengths."""

from collections.abc import Callable

import pytest
import torch
from transformers.utils import ModelOutput

from hf_elmo import ElmoConfig, ElmoForPreTraining, ElmoForSequenceClassification, ElmoModel, ElmoTokenizer
from hf_elmo.modeling_elmo import neighbor_labels
from tests.factories import TINY, random_model

pytestmark = pytest.mark.slow
VOCABULARY = 41
BATCHES = {"2 rows": [5, 3], "3 rows": [9, 2, 6], "5 rows": [4] * 5, "longer": [21, 1, 6, 8], "shorter": [1, 2]}


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def make_batch(lengths: list[int], side: str = "right") -> dict[str, torch.Tensor]:
    sentences = [[f"{row}word{place % 4}" for place in range(length)] for row, length in enumerate(lengths)]
    tokenizer = ElmoTokenizer(padding_side=side)
    return dict(tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt"))


def embed(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> ModelOutput:
    return model(**batch, output_hidden_states=True)


def classify(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> ModelOutput:
    return model(**batch, labels=torch.arange(len(batch["input_ids"])) % 3)


def predict(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> ModelOutput:
    words = torch.arange(batch["attention_mask"].numel()).view_as(batch["attention_mask"]) % VOCABULARY
    return model(**batch, labels=neighbor_labels(words, batch["attention_mask"]))


MODELS = {
    "ElmoModel": (ElmoModel, {}, embed),
    "ElmoForSequenceClassification": (
        ElmoForSequenceClassification,
        {"num_labels": 3, "freeze_bilm": False, "classifier_pooling": "last"},
        classify,
    ),
    "ElmoForPreTraining": (ElmoForPreTraining, {"vocab_size": VOCABULARY}, predict),
}


def numbers(call: Callable, model: torch.nn.Module, parameters: list, batch: dict) -> list[torch.Tensor]:
    """All that a call gives back, and the gradient of its loss."""
    output = call(model, batch)
    gradients = [] if output.get("loss") is None else torch.autograd.grad(output.loss, parameters)
    found = [output[name] for name in output if name not in ("hidden_states", "state")]
    return [*found, *(output.hidden_states or ()), *gradients]


@pytest.mark.parametrize(("model_class", "changes", "call"), MODELS.values(), ids=MODELS)
def test_two_lengths_are_compiled_and_no_more(model_class, changes, call):
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list) -> Callable:
        graphs.append(graph)
        return graph.forward

    model = random_model(ElmoConfig(**TINY, **changes), model_class)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    compiled, counts = torch.compile(model, backend=backend), []
    for number, lengths in enumerate(BATCHES.values()):
        batch = make_batch(lengths, "left" if number % 2 else "right")
        expected, found = (numbers(call, each, parameters, batch) for each in (model, compiled))
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
        counts.append(len(graphs))
    assert counts[0] > 0
    assert counts[1:] == [counts[1]] * (len(BATCHES) - 1)


def test_a_batch_of_one_is_compiled_once_more(model):
    """PyTorch compiles for sizes of one apart from all others."""
    graphs = []
    compiled = torch.compile(model, backend=lambda graph, inputs: graphs.append(graph) or graph.forward, dynamic=True)
    counts = []
    for lengths in ([5, 3], [7], [2], [11], [4, 6, 1]):
        compiled(**make_batch(lengths))
        counts.append(len(graphs))
    assert counts[1:] == [counts[1]] * 4
    assert counts[0] < counts[1] <= 2 * counts[0]  # not every part depends on the batch's size
