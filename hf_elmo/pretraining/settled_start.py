"""An initial state other than zero, for models that predict the first words after zero state badly."""

from collections.abc import Sequence

import torch
from torch import nn
from transformers.utils.logging import tqdm

from ..checkpoints.loading import ensure_loaded
from ..modeling_elmo import ElmoPreTrainedModel
from ..tokenization_elmo import ElmoTokenizer
from ..utils.evaluation import evaluation_mode


@torch.no_grad()
def settle(
    model: ElmoPreTrainedModel,
    texts: Sequence[str | Sequence[str]],
    *,
    tokenizer: ElmoTokenizer | None = None,
    batch_size: int = 32,
    pretokenized: bool = False,
) -> None:
    """Makes a model start every sentence from the mean of the states after `texts`, instead of zeros. This start is
    fixed, so a sentence still gets the same vectors whatever was read before, alone or in a batch. The start is saved
    with the weights (`config.settled_start`); `from_pretrained(folder, settled_start=False)` leaves it out.

    This helps a biLM that was trained like bilm-tf's, with the state carried from sentence to sentence: it predicts the
    first words after zeros badly. One trained with `reset_state=True`, as that which ships, starts from zeros well.

    Args:
        model: any model with a biLM; it is changed in place.
        texts: sentences like those that the model will read; a few suffice. Each is a text, which the tokenizer splits,
            or a list of words. They are read in `batch_size` rows, and each row carries its state from text to text.
            If there are more texts than rows, the mean leaves out the states after the first text of each row.
        tokenizer: by default the tokenizer in the model's folder.
        batch_size, pretokenized: number of rows, and whether whitespace separates the words of the texts.

    Raises:
        ValueError: `texts` is one string, or there is no word in it.
    """
    model, tokenizer = ensure_loaded(model, tokenizer)
    sentences = [words for words in tokenizer.split_into_words(texts, pretokenized) if words]
    elmo = model.base_model
    batch_size = min(batch_size, len(sentences))
    bias = elmo.bilm.layers[0].lstm.bias
    texts_read = 0
    with evaluation_mode(model):
        before = tuple(map(torch.zeros_like, elmo.bilm.initial_state(batch_size, bias)))
        sums = [part[:, :, 0].double() for part in before]
        for first in tqdm(range(0, len(sentences), batch_size), desc="Settling", leave=False):
            batch = sentences[first : first + batch_size]
            inputs = tokenizer(batch, is_split_into_words=True, padding=True, return_tensors="pt").to(model.device)
            before = tuple(part[:, :, : len(batch)] for part in before)
            before = elmo(inputs["input_ids"], inputs["attention_mask"], state=before, use_cache=True).state
            if first or len(sentences) == batch_size:
                sums = [total + part.double().sum(2) for total, part in zip(sums, before, strict=True)]
                texts_read += len(batch)
    for name, total in zip(("initial_hidden", "initial_cell"), sums, strict=True):
        setattr(elmo.bilm, name, nn.Parameter((total / texts_read).to(elmo.dtype), bias.requires_grad))
    model.config.settled_start = True
