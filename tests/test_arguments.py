"""Arguments that `forward` does not have: said once, and none that transformers hands to every model."""

import copy
import logging
from collections.abc import Callable, Iterator

import pytest
import torch
import transformers
from torch import Tensor

from hf_elmo import (
    ElmoConfig,
    ElmoForCoreferenceResolution,
    ElmoForPreTraining,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
)
from tests.conftest import SENTENCES, TINY, random_model

CLASSES = {
    ElmoModel: {},
    ElmoForPreTraining: {"vocab_size": 7},
    ElmoForSequenceClassification: {},
    ElmoForTokenClassification: {},
    ElmoForQuestionAnswering: {},
    ElmoForCoreferenceResolution: {},
}
every_class = pytest.mark.parametrize("model_class", CLASSES, ids=lambda model_class: model_class.__name__)


def make(model_class: type) -> torch.nn.Module:
    return random_model(ElmoConfig(**TINY, **CLASSES[model_class]), model_class)


@pytest.fixture
def inputs(tokenizer: ElmoTokenizer, model_class: type) -> dict[str, Tensor]:
    return encode(tokenizer, model_class)


def encode(tokenizer: ElmoTokenizer, model_class: type, **more: bool) -> dict[str, Tensor]:
    texts = (SENTENCES[:2], SENTENCES[2:4]) if model_class is ElmoForQuestionAnswering else (SENTENCES[:2],)
    return tokenizer(*texts, padding=True, return_tensors="pt", **more)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """What was said of arguments until now."""
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    transformers.utils.logging.warning_once.cache_clear()  # another test may have said the same
    yield lambda: [line for line in caplog.messages if "has no argument" in line]
    transformers.utils.logging.warning_once.cache_clear()


@every_class
def test_a_misspelled_argument_is_said_once(model_class: type, inputs: dict, said: Callable) -> None:
    model, name = make(model_class), f"{model_class.__name__}.forward has no argument"
    for _ in range(2):
        assert model(**inputs, output_hidden_state=True).hidden_states is None
    assert said() == [f"{name} output_hidden_state (it has no effect); did you mean output_hidden_states?"]
    model(**inputs, zzz=1)
    assert said()[1:] == [f"{name} zzz (it has no effect)."]


@pytest.mark.parametrize(
    ("model_class", "given", "meant"),
    [
        (ElmoModel, "states", "state"),
        (ElmoForPreTraining, "label", "labels"),
        (ElmoForSequenceClassification, "label", "labels"),
        (ElmoForTokenClassification, "tokens_type_ids", "token_type_ids"),
        (ElmoForQuestionAnswering, "start_position", "start_positions"),
        (ElmoForCoreferenceResolution, "speakers_ids", "speaker_ids"),
    ],
)
def test_the_nearest_argument_is_named(model_class: type, given: str, meant: str, inputs: dict, said: Callable) -> None:
    make(model_class)(**inputs, **{given: torch.zeros(2, dtype=torch.int64)})
    assert said() == [
        f"{model_class.__name__}.forward has no argument {given} (it has no effect); did you mean {meant}?"
    ]


@every_class
def test_what_transformers_hands_to_every_model_is_not_said(
    model_class: type, inputs: dict, said: Callable, tokenizer: ElmoTokenizer
) -> None:
    model = make(model_class)
    settings = {"return_dict": True, "use_cache": False, "output_attentions": False, "output_hidden_states": True}
    output = model(**inputs, **settings, num_items_in_batch=2, position_ids=torch.arange(3), labelz=None)
    assert isinstance(model(**inputs, return_dict=False), tuple)
    assert output.hidden_states is not None
    more = {f"return_{name}": True for name in ("token_type_ids", "special_tokens_mask", "length", "offsets_mapping")}
    model(**encode(tokenizer, model_class, **more))
    model(**inputs, piece=torch.zeros(2, 4))  # of encode_questions, which Trainer hands over as label_names has it
    assert said() == []


@pytest.mark.parametrize("model_class", [ElmoForSequenceClassification], ids=["head"])
def test_a_loss_of_ones_own_may_take_more(model_class: type, inputs: dict, said: Callable) -> None:
    def loss(labels: Tensor, logits: Tensor, config: object, items: object = None, weight: float = 1.0) -> Tensor:
        return weight * logits.sum()

    model = make(model_class)
    model.loss_function = loss
    labels = torch.zeros(2, dtype=torch.int64)
    assert model(**inputs, labels=labels, weight=0.0).loss == 0
    assert said() == []


@pytest.mark.parametrize(
    ("model_class", "changes"),
    [
        (ElmoForPreTraining, {}),
        (ElmoForTokenClassification, {"tagging_crf": True}),
        (ElmoForQuestionAnswering, {}),
        (ElmoForCoreferenceResolution, {}),
    ],
)
def test_a_loss_of_ones_own_is_refused_where_the_model_has_another(
    model_class: type, changes: dict, inputs: dict
) -> None:
    model = random_model(ElmoConfig(**TINY, **CLASSES[model_class], **changes), model_class)
    shape = inputs["input_ids"].shape[:2]
    last = {ElmoForPreTraining: (2,), ElmoForCoreferenceResolution: (3,)}
    none = torch.full((*shape, *last.get(model_class, ())), -100)
    labels = {"labels": none}
    if model_class is ElmoForQuestionAnswering:
        labels = dict.fromkeys(("start_positions", "end_positions"), none[:, 0])
    model(**inputs, **labels)
    for loss in (torch.nn.CrossEntropyLoss(), torch.nn.functional.cross_entropy):
        other = copy.deepcopy(model)
        other.loss_function = loss
        other(**inputs)
        with pytest.raises(ValueError, match=f"loss_function of {model_class.__name__} is set, but its loss is its"):
            other(**inputs, **labels)


@pytest.mark.parametrize("model_class", [ElmoModel, ElmoForSequenceClassification], ids=["model", "head"])
def test_it_breaks_no_graph(model_class: type, inputs: dict) -> None:
    counts = []
    for more in ({}, {"zzz": 1}):
        torch.compiler.reset()
        graphs = []
        model = torch.compile(make(model_class), backend=lambda graph, _, to=graphs: to.append(graph) or graph.forward)
        model(**inputs, **more)
        counts.append(len(graphs))
    torch.compiler.reset()
    assert counts[0] == counts[1] > 0
    exported = torch.export.export(make(model_class), (), {**inputs, "zzz": torch.ones(2)}, strict=False).module()
    expected = make(model_class)(**inputs)[0]
    torch.testing.assert_close(exported(**inputs, zzz=torch.ones(2))[0], expected, atol=1e-5, rtol=0)
