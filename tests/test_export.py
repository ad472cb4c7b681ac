"""torch.export and ONNX: one graph for any batch and length."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor

from hf_elmo import ElmoTokenizer
from tests.heads import VECTORS, batch_of, make, without_labels

onnxruntime = pytest.importorskip("onnxruntime")

CASES = {
    "no head": ("no head", {}),
    "no projections, skips or clips": (
        "no head",
        {
            "cell_size": 11,
            "char_filters": [[1, 4], [3, 7]],
            "use_skip_connections": False,
            "cell_clip": None,
            "proj_clip": None,
        },
    ),
    "last": ("pooled", {"classifier_pooling": "last"}),
    "pairs": ("pairs", {"classifier_pooling": "max"}),
    "word vectors": ("pooled", VECTORS),
    "language models": ("language models", {}),
}


def flat(output: object) -> list[Tensor]:
    """The tensors of an output, in order."""
    values = output.values() if hasattr(output, "values") else output
    parts = [value for value in values if value is not None]
    return [torch.as_tensor(x) for part in parts for x in (part if isinstance(part, tuple) else (part,))]


class Case:
    """A model, an example, a batch of another size and length for each side of padding, and what the model returns."""

    def __init__(self, tokenizer: ElmoTokenizer, name: str, words: bool = False, **changes: object) -> None:
        self.model = make(name, freeze_bilm=False, **changes)
        batch = lambda *given: without_labels(batch_of(tokenizer, name, *given, words=words))  # noqa: E731
        self.example, self.others = batch("right", slice(3)), [batch("right"), batch("left")]
        rows, positions = torch.export.Dim("rows", min=2), torch.export.Dim("positions", min=2)
        self.dynamic_shapes = {name: {0: rows, 1: positions} for name in self.example}

    def check(self, exported: object) -> None:
        with torch.no_grad():
            for batch in self.others:
                found, expected = flat(exported(**batch)), flat(self.model(**batch))
                torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)

    def export(self, **options: object) -> torch.nn.Module:
        return torch.export.export(self.model, (), self.example, dynamic_shapes=self.dynamic_shapes, **options).module()


@pytest.mark.parametrize(("name", "changes"), CASES.values(), ids=CASES)
def test_an_exported_graph_has_the_numbers_of_the_model(tokenizer: ElmoTokenizer, name: str, changes: dict) -> None:
    case = Case(tokenizer, name, words="word_vectors_size" in changes, **changes)
    exported = case.export(strict=name == "language models")
    case.check(exported)
    if changes == {} and name == "no head":
        gradients = []
        for model in (case.model, exported):
            flat(model(**case.others[0]))[0].square().sum().backward()
            layer = {key: p.grad for key, p in model.named_parameters() if "backward_layers.0" in key}
            gradients.append([layer[key] for key in sorted(layer)])
        assert len(gradients[0]) == 4
        torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-4)


def test_a_mix_that_depends_on_its_batch_is_not_exported(tokenizer: ElmoTokenizer) -> None:
    with pytest.raises(ValueError, match="scalar_mix_layer_norm"):
        Case(tokenizer, "no head", scalar_mix_layer_norm=True).export()


def test_onnx(tmp_path: Path, tokenizer: ElmoTokenizer) -> None:
    case = Case(tokenizer, "language models")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's
        program = torch.onnx.export(
            case.model, (), kwargs=case.example, dynamo=True, dynamic_shapes=case.dynamic_shapes, verbose=False
        )
    program.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    case.check(lambda **batch: session.run(None, {name: value.numpy() for name, value in batch.items()}))


@pytest.mark.parametrize(("name", "kind"), [("pooled", "Dynamo"), ("no head", "Onnx")])
def test_the_exporters_of_transformers(tokenizer: ElmoTokenizer, name: str, kind: str) -> None:
    pytest.importorskip("transformers.exporters.runners", reason="an older interface of transformers' exporters")
    from transformers import exporters

    case = Case(tokenizer, name)
    exporter, config = getattr(exporters, f"{kind}Exporter")(), getattr(exporters, f"{kind}Config")(dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case.check(exporter.export(case.model, case.example, config=config))
