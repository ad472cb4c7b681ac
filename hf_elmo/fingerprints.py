"""SHA-256 of what decides numbers: a model, a tokenizer. Work that is resumed with others would not be the same."""

import hashlib
import json
from typing import Any

import torch

from .modeling_elmo import ElmoPreTrainedModel
from .tokenization_elmo import ElmoTokenizer


def tokenizer_fingerprint(tokenizer: ElmoTokenizer) -> str:
    """The SHA-256 of all that decides how text is spelled: words and characters, not the words of a softmax."""
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    backend |= {"truncation": None, "padding": None}  # what its last call asked for
    settings = {"backend": backend}
    settings |= {name: getattr(tokenizer, name) for name in ("max_word_length", "split_special_tokens")}
    if tokenizer.character_vocab is not None:
        settings |= {name: getattr(tokenizer.character_vocab, name) for name in ("characters", "words")}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def model_fingerprint(model: ElmoPreTrainedModel) -> str:
    """Of the configuration and of all weights."""
    digest = hashlib.sha256()
    values = model.config.to_dict()
    settings = {name: values[name] for name in values if not name.startswith(("_", "transformers"))}
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        _update(digest, tensor)
    return digest.hexdigest()


def _update(digest: Any, value: Any) -> None:
    """Hashes a value of a state dict: a tensor, or what quantized layers keep."""
    if isinstance(value, (tuple, list)):
        for part in value:
            _update(digest, part)
    elif not isinstance(value, torch.Tensor):
        digest.update(repr(value).encode())
    elif hasattr(value, "__tensor_flatten__"):  # a subclass made of tensors, as torchao's
        names, settings = value.__tensor_flatten__()
        digest.update(repr(settings).encode())
        _update(digest, [getattr(value, name) for name in names])
    else:
        plain = value.dequantize() if value.is_quantized else value
        digest.update(plain.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
