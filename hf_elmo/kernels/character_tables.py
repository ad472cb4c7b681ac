"""Character convolutions in C for the CPU: sums of table entries in place of products (`csrc/characters.c`).

A filter of width w reads windows of w characters. Character c at place k of a window adds the dot product of c's
embedding and the filter's weights for place k: one number, which a table holds. A window is then a sum of w numbers,
where the convolution computes w times `char_embedding_size` products. The two results differ only by rounding.

Of a filter's windows over a word, only the largest has a gradient, which is added to the gradients of w table entries.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from . import native
from .native import LANES
from .tensors import CharacterWeights, aliases, first_order

MOST_CHARACTERS = (1 << 16) - 1  # in a vocabulary or in a word: they are counted in 16 bits
TYPES = (torch.float32, torch.bfloat16, torch.float16)  # of weights; sums are float32


class Blocks:
    """The blocks of up to `LANES` filters of one convolution that the C functions work on, from the shape of each
    convolution's weight, `[filters, size, width]`."""

    def __init__(self, shapes: Iterable[Sequence[int]]) -> None:
        self.filters = 0
        blocks = []
        for filters, _, width in shapes:
            for start in range(0, filters, LANES):
                blocks.append((self.filters + start, min(LANES, filters - start), width))
            self.filters += filters
        self.firsts, self.counts, self.widths = np.array(blocks, dtype=np.int64).T.copy()

    def fields(self, words: np.ndarray, lengths: np.ndarray, vocabulary: int) -> dict[str, Any]:
        """The fields of `struct characters` that say what the words and the blocks are."""
        fields = {"words": words, "lengths": lengths, "n": words.shape[0], "characters": words.shape[1]}
        fields |= {"firsts": self.firsts, "counts": self.counts, "widths": self.widths, "blocks": len(self.firsts)}
        return fields | {"vocabulary": vocabulary, "filters": self.filters, "threads": torch.get_num_threads()}


class CharacterTables:
    """The tables of a character embedding, `[vocabulary, size]` on the CPU, and its convolutions, each with a weight
    `[filters, size, width]` and a bias `[filters]`."""

    def __init__(self, embedding: Tensor, convolutions: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.blocks = Blocks(weight.shape for weight, _ in convolutions)
        self.vocabulary = len(embedding)
        sizes = self.vocabulary * self.blocks.widths * LANES
        self.offsets = np.cumsum([0, *sizes[:-1]])
        tables = []
        for weight, bias in convolutions:
            missing = -len(weight) % LANES
            width = weight.shape[2]
            # permuted to [blocks, size, width * LANES], so that the product has the layout of the tables
            blocks = nn.functional.pad(weight.double(), (0, 0, 0, 0, 0, missing)).unflatten(0, (-1, LANES))
            table = torch.matmul(embedding.double(), blocks.permute(0, 2, 3, 1).flatten(2)).unflatten(2, (width, LANES))
            table[:, :, 0] += nn.functional.pad(bias, (0, missing)).unflatten(0, (-1, 1, LANES))
            tables.append(table.flatten().float())  # computed in float64, and rounded once
        self.tables = torch.cat(tables)
        self.are_finite = bool(torch.stack(self.tables.aminmax()).isfinite().all())  # aminmax propagates NaN

    def maxima(self, words: np.ndarray, lengths: np.ndarray) -> Tensor:
        """As [`run`], in float32 and without gradients; `words` are uint16, each less than the vocabulary, and
        `lengths` int64. The maximum is NaN if a window is NaN."""
        maxima = torch.empty(len(words), self.blocks.filters, dtype=torch.float32, device="cpu")
        tables = {"tables": self.tables, "offsets": self.offsets, "finite": self.are_finite}
        native.run("characters_maxima", **self.blocks.fields(words, lengths, self.vocabulary), **tables, maxima=maxima)
        return maxima


def why_not(weights: CharacterWeights, words: Tensor, lengths: Tensor) -> str | None:
    """Why "character-tables" does not compute the maxima, or `None` if it does."""
    tensors = [weights.embedding, *(x for convolution in weights.convolutions for x in convolution)]
    if any(tensor.dtype not in TYPES for tensor in tensors):
        return f"weights are {', '.join(sorted({str(tensor.dtype) for tensor in tensors}))}"
    return why_not_shaped(weights, words.shape[1]) or native.reason()


def require_below(size: int, what: str, ids: np.ndarray) -> None:
    """Raises IndexError if an id is not below `size`: C does not check it."""
    if ids.size and not (ids.min() >= 0 and ids.max() < size):
        raise IndexError(f"{what} is outside of the vocabulary, 0 to {size - 1}")


def why_not_shaped(weights: CharacterWeights, characters: int) -> str | None:
    """Why C cannot read weights of these shapes for words of so many characters, or `None` if it can."""
    size = weights.embedding.shape[-1]
    if max(len(weights.embedding), characters) > MOST_CHARACTERS:
        return f"the vocabulary or a word has more than {MOST_CHARACTERS} characters"
    pairs = [(weight, bias, (*weight.shape[:1], size, *weight.shape[2:3])) for weight, bias in weights.convolutions]
    filters = sum(weight.shape[0] for weight, _ in weights.convolutions)
    for highway in weights.highways:
        pairs += [(weight, bias, (filters, filters)) for weight, bias in (highway[:2], highway[2:])]
    if weights.projection is not None:
        own = 0 if weights.word_embedding is None else weights.word_embedding.shape[-1]
        pairs.append((*weights.projection, (weights.projection[0].shape[0], filters + own)))
    if any(weight.shape != shape or bias.shape != shape[:1] for weight, bias, shape in pairs):
        return "the shapes of the weights do not agree"
    if not all(0 < weight.shape[2] <= characters for weight, _ in weights.convolutions):
        return "a filter is wider than a word"
    return None


def run(weights: CharacterWeights, words: Tensor, lengths: Tensor) -> Tensor:
    """Each filter's maximum `[n, filters]` over a word's windows, before the activation, with gradients, in the type
    that the convolutions would give. `words` are `[n, characters]` integers; `lengths [n]` are the positions after each
    word's last character that is not padding. IndexError if a character is outside of the vocabulary."""
    vocabulary = len(weights.embedding)
    require_below(vocabulary, "a character id", words.numpy())
    used = torch.bincount(words.flatten(), minlength=vocabulary) > 0  # only these characters get tables
    words = (used.cumsum(0) - 1)[words].numpy().astype(np.uint16)
    rows = nn.functional.embedding(used.nonzero().squeeze(1), weights.embedding, padding_idx=0)
    parameters = [rows, *(x for convolution in weights.convolutions for x in convolution)]
    maxima = _Maxima.apply(words, lengths.numpy(), *(x.float().contiguous() for x in parameters))
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else weights.embedding.dtype
    return maxima.to(dtype)


class _Maxima(torch.autograd.Function):
    """`CharacterTables.maxima` with its gradient, from tables that are made for one call."""

    @staticmethod
    def forward(ctx, words: np.ndarray, lengths: np.ndarray, embedding: Tensor, *parameters: Tensor) -> Tensor:
        blocks = Blocks(weight.shape for weight in parameters[::2])
        maxima = torch.empty(len(words), blocks.filters, dtype=torch.float32, device="cpu")
        windows = torch.empty(maxima.shape, dtype=torch.uint16, device="cpu")
        parts = {"weights": _parts(parameters[::2]), "biases": _parts(parameters[1::2])}
        _call("windows", blocks, words, lengths, embedding, **parts, maxima=maxima, windows=windows)
        ctx.save_for_backward(windows, *aliases(embedding, *parameters))
        ctx.call = blocks, words, lengths
        return maxima

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        windows, embedding, *parameters = ctx.saved_tensors
        blocks = ctx.call[0]
        grad_embeddings = embedding.new_empty(len(blocks.firsts), *embedding.shape)
        grads = [torch.empty_like(parameter) for parameter in parameters]
        arguments = {"weights": _parts(parameters[::2]), "grads": grad.contiguous(), "windows": windows}
        results = {"grad_weights": _parts(grads[::2]), "grad_biases": _parts(grads[1::2])}
        _call("gradients", *ctx.call, embedding=embedding, grad_embeddings=grad_embeddings, **arguments, **results)
        return None, None, grad_embeddings.sum(0), *grads


def _parts(tensors: Sequence[Tensor]) -> list[Tensor]:
    """For each block, its part of the convolutions' weights, or of their biases."""
    return [part for tensor in tensors for part in tensor.split(LANES)]


def _call(name: str, blocks: Blocks, words: np.ndarray, lengths: np.ndarray, embedding: Tensor, **arrays: Any) -> None:
    fields = blocks.fields(words, lengths, len(embedding))
    scratch = embedding.new_empty(fields["threads"], blocks.widths.max() * sum(embedding.shape) * LANES)
    fields |= {"embedding": embedding, "size": embedding.shape[1]}
    native.run(f"characters_{name}", **fields, scratch=scratch, scratch_numbers=scratch.shape[1], **arrays)
