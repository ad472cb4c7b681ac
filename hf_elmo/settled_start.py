"""An initial state other than zero: the mean final state of the LSTMs over sample text."""

from collections.abc import Sequence

import torch
from torch import nn
from transformers.utils.logging import tqdm

from .modeling_elmo import ElmoPreTrainedModel
from .shipped import loaded
from .tokenization_elmo import ElmoTokenizer
from .utils import evaluation_mode


@torch.no_grad()
def settle(
    model: ElmoPreTrainedModel,
    texts: Sequence[str | Sequence[str]],
    *,
    tokenizer: ElmoTokenizer | None = None,
    batch_size: int = 32,
    pretokenized: bool = False,
) -> None:
    """
    Lets a model's sentences start from the mean state that `texts` leave, instead of zeros; each still gets the same
    vectors whatever was read before, alone or in a batch. It is kept with the weights (`config.settled_start`), and
    `from_pretrained(folder, settled_start=False)` leaves it out.

    It is for a biLM that was trained as bilm-tf trains, which carries the state from sentence to sentence and meets
    zeros once: it predicts the first words after them badly. One that was trained with `reset_state=True`, as those
    that ship were, knows both.

    Args:
        model: any model with a biLM; it is changed in place.
        texts: sentences like those to come, a few suffice: texts, which the tokenizer splits, or lists of words. They
            are read in `batch_size` rows, each going on from the state that the text before left in its row, and the
            mean is of the states after each text, but for a row's first where there are others.
        tokenizer: by default that of the model's folder.
        batch_size: rows.
        pretokenized: texts are tokenized already: whitespace separates their words.

    Raises:
        ValueError: there is no text with a word in it, `texts` is one string, `batch_size` is not 1 or more, or the
            model has no biLM.
    """
    if not model.config.use_elmo:
        raise ValueError("use_elmo is False: the model has no biLM that could start from a state.")
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, but must be 1 or more.")
    model, tokenizer = loaded(model, tokenizer)
    sentences = [words for words in tokenizer.split_into_words(texts, pretokenized) if words]
    if not sentences:
        raise ValueError("texts have no word in them: give sentences to read before the first one.")
    elmo, batch_size = model.base_model, min(batch_size, len(sentences))
    bias, texts_read = elmo.bilm.forward_layers[0].bias, 0
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
