"""torch.export of the whole model: one graph for any batch and length."""

import warnings

import onnxruntime
import pytest
import torch

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

CONFIGS = {
    "as published in kind": {},
    "no projections": {"cell_size": 11, "char_filters": [[1, 4], [3, 7]]},
    "no skips, no clips": {"use_skip_connections": False, "cell_clip": None, "proj_clip": None, "num_hidden_layers": 3},
}


class WithTensors(torch.nn.Module):
    """A model whose output is a tuple of tensors."""

    def __init__(self, model: ElmoModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        output = self.model(input_ids, attention_mask)
        return output.last_hidden_state, output.pooler_output


@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
def test_the_exported_graph_gives_the_models_numbers_at_another_batch_and_length(tokenizer, changes):
    model = random_model(ElmoConfig(**{**TINY, **changes}))
    example = tokenizer(SENTENCES[:3], padding=True, return_tensors="pt")
    batch, words = torch.export.Dim("batch", min=2), torch.export.Dim("words", min=2)
    exported = torch.export.export(
        WithTensors(model),
        (example["input_ids"], example["attention_mask"]),
        dynamic_shapes={"input_ids": {0: batch, 1: words}, "attention_mask": {0: batch, 1: words}},
    ).module()
    for side in ("right", "left"):
        tokenizer.padding_side = side
        other = tokenizer(SENTENCES, padding=True, return_tensors="pt")
        with torch.no_grad():
            found = exported(other["input_ids"], other["attention_mask"])
            expected = model(**other)
        torch.testing.assert_close(found[0], expected.last_hidden_state, atol=1e-5, rtol=0)
        torch.testing.assert_close(found[1], expected.pooler_output, atol=1e-5, rtol=0)


def test_a_mix_that_depends_on_its_batch_is_not_exported(tokenizer):
    model = random_model(ElmoConfig(**TINY, scalar_mix_layer_norm=True))
    example = tokenizer(SENTENCES[:2], padding=True, return_tensors="pt")
    with pytest.raises(ValueError, match="scalar_mix_layer_norm is on"):
        torch.export.export(WithTensors(model), (example["input_ids"], example["attention_mask"]))


CLASSES = [ElmoModel, ElmoForSequenceClassification, ElmoForPreTraining]


def flat(output: object) -> list[torch.Tensor]:
    """The tensors of a model's output, in order."""
    values = output.values() if hasattr(output, "values") else output
    parts = [value for value in values if value is not None]
    return [torch.as_tensor(x) for part in parts for x in (part if isinstance(part, tuple) else (part,))]


class Case:
    """A model with its example, another batch of another length, and what the model makes of that."""

    def __init__(self, model_class: type, tokenizer: ElmoTokenizer, **settings: object) -> None:
        torch.manual_seed(0)
        config = ElmoConfig(**TINY, vocab_size=23, freeze_bilm=False, **settings)  # so that everything has gradients
        self.model = model_class(config).eval()
        seconds = [SENTENCES[1:], SENTENCES[::-1]] if getattr(self.model, "reads_text_pairs", False) else [None, None]
        batches = zip((SENTENCES[:3], SENTENCES), seconds, strict=True)
        encoded = [tokenizer(*texts, padding=True, return_tensors="pt") for texts in batches]
        self.example, self.other = map(dict, encoded)
        batch, words = torch.export.Dim("batch", min=2), torch.export.Dim("words", min=2)
        self.dynamic_shapes = {name: {0: batch, 1: words} for name in self.example}
        with torch.no_grad():
            self.expected = flat(self.model(**self.other))

    def check(self, found: object) -> None:
        with torch.no_grad():
            for one, expected in zip(flat(found), self.expected, strict=True):
                torch.testing.assert_close(one, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("model_class", "strict"), [*((one, False) for one in CLASSES), (ElmoForPreTraining, True)])
def test_each_class_is_exported_as_it_is(tokenizer, model_class, strict):
    case = Case(model_class, tokenizer)
    exported = torch.export.export(
        case.model, (), case.example, dynamic_shapes=case.dynamic_shapes, strict=strict
    ).module()
    case.check(exported(**case.other))


@pytest.mark.parametrize("pooling", ["max", "last"])
def test_each_pooling_is_exported(tokenizer, pooling):
    case = Case(ElmoForSequenceClassification, tokenizer, classifier_pooling=pooling)
    exported = torch.export.export(case.model, (), case.example, dynamic_shapes=case.dynamic_shapes).module()
    case.check(exported(**case.other))


@pytest.mark.parametrize("pooling", ["mean", "max", "last"])
def test_a_classifier_of_pairs_is_exported(tokenizer, pooling):
    case = Case(ElmoForSequenceClassification, tokenizer, classifier_text_pairs=True, classifier_pooling=pooling)
    exported = torch.export.export(case.model, (), case.example, dynamic_shapes=case.dynamic_shapes).module()
    case.check(exported(**case.other))


@pytest.mark.parametrize("use_elmo", [True, False])
def test_a_classifier_with_word_vectors_is_exported(tokenizer, use_elmo):
    tokenizer.words = ["the", "mat", "."]
    settings = {"word_vectors_vocab_size": 6, "word_vectors_size": 4, "use_elmo": use_elmo}
    case = Case(ElmoForSequenceClassification, tokenizer, **settings)
    exported = torch.export.export(case.model, (), case.example, dynamic_shapes=case.dynamic_shapes).module()
    case.check(exported(**case.other))


@pytest.mark.parametrize("name", ["weight_ih", "weight_hh", "weight_hr"])
def test_a_graph_exported_with_gradients_has_those_of_the_model(tokenizer, name):
    case = Case(ElmoModel, tokenizer)
    exported = torch.export.export(case.model, (), case.example, dynamic_shapes=case.dynamic_shapes).module()
    gradients = []
    for model in (case.model, exported):
        flat(model(**case.other))[0].square().sum().backward()
        gradients.append(dict(model.named_parameters())[f"bilm.backward_layers.0.{name}"].grad)
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("model_class", [ElmoModel, ElmoForPreTraining])
def test_torch_onnx_export_takes_each_class_as_it_is(tmp_path, tokenizer, model_class):
    case = Case(model_class, tokenizer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        program = torch.onnx.export(
            case.model, (), kwargs=case.example, dynamo=True, dynamic_shapes=case.dynamic_shapes, verbose=False
        )
    program.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    case.check(session.run(None, {name: value.numpy() for name, value in case.other.items()}))


@pytest.mark.parametrize(
    ("model_class", "kind"), [*((one, "dynamo") for one in CLASSES), (ElmoModel, "onnx"), (ElmoForPreTraining, "onnx")]
)
def test_the_exporters_of_transformers(tokenizer, model_class, kind):
    exporters = pytest.importorskip("transformers.exporters", reason="this transformers has no exporters")
    case = Case(model_class, tokenizer)
    if kind == "dynamo":
        exporter, config = exporters.DynamoExporter(), exporters.DynamoConfig(dynamic=True)
    else:
        exporter, config = exporters.OnnxExporter(), exporters.OnnxConfig(dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case.check(exporter.export(case.model, case.example, config=config)(**case.other))


def test_a_loss_is_not_exported(tokenizer):
    case = Case(ElmoForPreTraining, tokenizer)
    labels = torch.zeros(*case.example["attention_mask"].shape, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match="labels and backward_input_ids are not exported"):
        torch.export.export(case.model, (), {**case.example, "labels": labels})


MOVES_WORDS = r"heads with an encoder, taggers .* move words, which is not exported"
ENCODER = {"encoder_hidden_size": 5}
NOT_EXPORTED = {
    "tagger": (ElmoForTokenClassification, {}, MOVES_WORDS),
    "encoder": (ElmoForSequenceClassification, {**ENCODER, "encoder_type": "bilstm"}, MOVES_WORDS),
    "pairs": (
        ElmoForSequenceClassification,
        {**ENCODER, "encoder_type": "esim", "classifier_text_pairs": True},
        MOVES_WORDS,
    ),
    "question answering": (ElmoForQuestionAnswering, ENCODER, MOVES_WORDS),
    "coreference": (ElmoForCoreferenceResolution, {}, r"resolvers of coreference choose spans, which is not exported"),
}


@pytest.mark.parametrize(("model_class", "settings", "said"), NOT_EXPORTED.values(), ids=NOT_EXPORTED)
def test_heads_that_are_not_exported(tokenizer, model_class, settings, said):
    case = Case(model_class, tokenizer, **settings)
    with pytest.raises(ValueError, match=said):
        torch.export.export(case.model, (), case.example, dynamic_shapes=case.dynamic_shapes)
