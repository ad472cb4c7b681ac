"""Fingerprints of a model and of a tokenizer: what finished work depends on."""

import hashlib
import json
from dataclasses import fields

import torch
from transformers import PreTrainedConfig

from ..configuration_elmo import ElmoTaskFields
from ..modeling_elmo import ElmoPreTrainedModel
from ..tokenization_elmo import ElmoTokenizer

# Fields that no output of a model in evaluation mode depends on.
NOT_COMPUTED = {"hidden_dropout", "freeze_bilm", "vocab_size", "num_sampled"}


def model_fingerprint(model: ElmoPreTrainedModel, dtype: torch.dtype | None = None) -> str:
    """SHA-256 of a model's weights (in `dtype`, if given) and of the fields of its configuration that outputs depend
    on: of a model without a head those of the biLM, so it is the same wherever the model was loaded from."""
    config = model.config
    default = type(model.config)()
    names = {field.name for field in fields(config)} - {field.name for field in fields(PreTrainedConfig)} - NOT_COMPUTED
    if model.base_model is model:
        names -= {field.name for field in fields(ElmoTaskFields)}
    else:
        names |= {"id2label", "problem_type"}
    # Fields with their defaults are left out: a version with another field gives the same fingerprint.
    changed = [name for name in sorted(names) if getattr(config, name) != getattr(default, name)]
    digest = hashlib.sha256(json.dumps({name: getattr(config, name) for name in changed}).encode())
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        if not isinstance(tensor, torch.Tensor) or hasattr(tensor, "__tensor_flatten__"):  # quantized
            digest.update(repr(tensor).encode())
        else:
            tensor = tensor.to(dtype) if tensor.is_floating_point() else tensor
            digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def tokenizer_fingerprint(tokenizer: ElmoTokenizer) -> str:
    """SHA-256 of everything that determines the character ids of a text. The vocabularies of separate word vectors, and
    of a softmax unless the biLM embeds its words, do not determine them, so they are not included."""
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    backend |= {"truncation": None, "padding": None}  # set by the latest call
    settings = [backend, tokenizer.max_word_length, tokenizer.split_special_tokens]
    if tokenizer.character_vocab is not None:
        settings += [tokenizer.character_vocab.characters, tokenizer.character_vocab.embedded_words]
    if tokenizer.embeds_words:
        settings.append(tokenizer.vocabulary)
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
