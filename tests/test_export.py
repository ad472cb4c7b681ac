"""torch.export of the whole model: one graph for any batch and length."""

import pytest
import torch

from hf_elmo import ElmoConfig, ElmoModel
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
