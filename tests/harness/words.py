"""Character encoders of any shape: words' vectors from tables and from the cache, and their gradients, in float64."""

import copy
import random
from collections import Counter

import torch
from torch import Tensor

from hf_elmo import ElmoConfig, kernels
from hf_elmo.characters_elmo import ElmoCharacterEncoder
from hf_elmo.kernels import word_cache
from hf_elmo.tokenization_elmo import words_to_character_ids
from tests.lstm_layers import CHANGES

from .checks import Check, Fault, described, without_preparation
from .layers import require_near
from .texts import random_word


def random_encoder(rng: random.Random, whole_eighths: bool) -> ElmoCharacterEncoder:
    """Filters of any widths and numbers; `whole_eighths`: sums of the convolutions are exact, and often equal."""
    widths = [rng.randint(1, 9) for _ in range(rng.randint(1, 5))]
    filters = [[width, rng.choice((1, 3, 15, 16, 17, 40))] for width in widths]
    total = sum(number for _, number in filters)
    config = ElmoConfig(
        char_embedding_size=rng.choice((1, 3, 4, 16)),
        char_filters=filters,
        char_activation=rng.choice(("relu", "tanh")),
        max_word_length=rng.choice((50, 50, 12, 64)),
        num_highway_layers=0 if whole_eighths else rng.randint(0, 2),
        hidden_size=2 * rng.choice((total, rng.randint(1, 70))),
        cell_size=5,
    )
    torch.manual_seed(rng.randrange(1 << 31))
    encoder = ElmoCharacterEncoder(config)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.copy_(torch.randn(parameter.shape) * parameter[0].numel() ** -0.5)
            if whole_eighths and parameter is not getattr(encoder.projection, "weight", None):
                parameter.copy_((parameter * 8).round() / 8)
        encoder.embedding.weight[0] = 0
    return encoder


def random_ids(rng: random.Random, length: int) -> Tensor:
    """Words of all kinds, some of them twice, some rows of padding, of nothing and of any characters."""
    words = [random_word(rng) for _ in range(rng.choice((1, 2, 5, 30)))]
    words += rng.choices([*words, "", "the"], k=rng.randint(0, 5))
    ids = torch.from_numpy(words_to_character_ids(words, length))
    for row in range(len(ids)):
        if rng.random() < 0.1:
            rows = (torch.zeros(length), torch.full((length,), 261), torch.randint(0, 262, (length,)))
            ids[row] = rng.choice(rows).long()
    return ids


@torch.no_grad()
def exact_vectors(encoder: ElmoCharacterEncoder, ids: Tensor) -> Tensor:
    with kernels.use("off"):
        return copy.deepcopy(encoder).double()(ids)


def inference(rng: random.Random, encoder: ElmoCharacterEncoder, length: int) -> Counter:
    """Several calls, weights that change between them, and sometimes a cache that is full at once."""
    dtype = rng.choice((torch.float32, torch.float32, torch.bfloat16, torch.float64))
    encoder, bytes_before, words = encoder.to(dtype), word_cache.BYTES, 0
    if rng.random() < 0.3:
        word_cache.BYTES = rng.choice((1, 5, 20)) * (encoder.size * dtype.itemsize + word_cache.BYTES_OF_KEY)
    try:
        for _ in range(4):
            ids = random_ids(rng, length)
            with torch.no_grad():
                with kernels.use("word-cache"), kernels.record() as ran:
                    found = encoder(ids)
                with kernels.use("off"):
                    plain = encoder(ids)
            if not ran and dtype != torch.float64:
                raise Fault(f"the cache was not used in {dtype}")
            require_near([found], [plain], [exact_vectors(encoder, ids)], dtype)
            words += len(ids)
            if rng.random() < 0.5 and dtype != torch.float64:
                rng.choice(CHANGES)(rng.choice(list(encoder.parameters())))
    finally:
        word_cache.BYTES = bytes_before
    return Counter(words=words)


def gradients(rng: random.Random, encoder: ElmoCharacterEncoder, length: int) -> Counter:
    """Vectors and gradients of a training step."""
    ids = random_ids(rng, length)
    results = []
    for name, own in (("character-tables", encoder), ("off", encoder), ("off", copy.deepcopy(encoder).double())):
        own.zero_grad()
        with kernels.use(name), kernels.record() as ran:
            vectors = own(ids)
        weights = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        (vectors.double() * weights).sum().backward()
        results.append([vectors.detach(), *(parameter.grad.clone() for parameter in own.parameters())])
        if bool(ran) != (name != "off"):
            raise Fault(f"with {name} there ran {ran}")
    require_near(*results, torch.float32)
    return Counter(words=len(ids), gradients=1)


def case(rng: random.Random) -> Counter:
    """An encoder's vectors in inference, or in training."""
    training = rng.random() < 0.4
    encoder = random_encoder(rng, whole_eighths=training)
    length = rng.choice((50, 13, 64))
    filters = [tuple(convolution.weight.shape) for convolution in encoder.convolutions]
    before = torch.get_num_threads()
    torch.set_num_threads(rng.choice((1, 2, 3)))
    try:
        with described(f"{'training' if training else 'inference'}, filters {filters}, {length} characters"):
            return (gradients if training else inference)(rng, encoder, length)
    finally:
        torch.set_num_threads(before)


CHECK = Check("words", without_preparation(case), cases=40)
