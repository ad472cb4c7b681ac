"""Fingerprints of a model and of a tokenizer: what finished work depends on."""

import hashlib
import json

import torch

from .modeling_elmo import ElmoPreTrainedModel
from .tokenization_elmo import ElmoTokenizer


def model_fingerprint(model: ElmoPreTrainedModel) -> str:
    """SHA-256 of a model's configuration and weights."""
    digest = hashlib.sha256(model.config.to_json_string(use_diff=False).encode())
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        if not isinstance(tensor, torch.Tensor) or hasattr(tensor, "__tensor_flatten__"):  # quantized
            digest.update(repr(tensor).encode())
        else:
            digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def tokenizer_fingerprint(tokenizer: ElmoTokenizer) -> str:
    """SHA-256 of everything that determines the character ids of a text. The vocabularies of a softmax and of separate
    word vectors do not determine them, so they are not included."""
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    backend |= {"truncation": None, "padding": None}  # set by the latest call
    settings = [backend, tokenizer.max_word_length, tokenizer.split_special_tokens]
    if tokenizer.character_vocab is not None:
        settings += [tokenizer.character_vocab.characters, tokenizer.character_vocab.embedded_words]
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
