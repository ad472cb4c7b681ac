"""The mix of the biLM's layers, which a task learns (Peters et al. 2018, section 3.2)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .configuration_elmo import ElmoConfig


class ElmoScalarMix(nn.Module):
    """`gamma * sum_j softmax(scalars)_j * layer_j`, once for each mix; or with weights that are fixed."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.layer_norm, self.fixed = config.scalar_mix_layer_norm, config.layer_weights
        if self.fixed is None:
            self.scalars = nn.Parameter(torch.zeros(config.num_scalar_mixes, config.num_hidden_layers + 1))
            self.gamma = nn.Parameter(torch.ones(config.num_scalar_mixes))

    def forward(self, layers: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Layers of `[packed, 2P]`, each word unpadded, to `num_scalar_mixes` mixes of that shape."""
        if self.layer_norm:
            layers = [normalize(layer) for layer in layers]
        if self.fixed is not None:
            return (sum(weight * layer for weight, layer in zip(self.fixed, layers, strict=True) if weight),)
        wide = torch.promote_types(self.scalars.dtype, torch.float32)
        weights = self.gamma[:, None] * torch.softmax(self.scalars, dim=1, dtype=wide).to(self.gamma.dtype)
        return tuple(weighted_sum(mix, layers) for mix in weights)


def weighted_sum(weights: Tensor, layers: Sequence[Tensor]) -> Tensor:
    """Layers of one shape, each times its weight `[layers]`, added up."""
    (first, *others), (total, *layers) = weights.unbind(), layers
    total = first * total
    for weight, layer in zip(others, layers, strict=True):
        total = torch.addcmul(total, weight.to(total.dtype), layer)  # in one pass
    return total


def normalize(layer: Tensor) -> Tensor:
    """`[packed, size]` to mean 0, variance 1 over the whole batch, as in AllenNLP: vectors depend on their batch."""
    if not len(layer):
        return layer
    values = layer.to(torch.promote_types(layer.dtype, torch.float32))
    return ((values - values.mean()) * (values.var(correction=0) + 1e-12).rsqrt()).to(layer.dtype)


__all__ = ["ElmoScalarMix"]
