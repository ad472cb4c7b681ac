"""The character convolutions in C, for the CPU: sums of table entries in place of products (`csrc/characters.c`).

A filter of width w sees w characters, each one of a few hundred. What character c adds at place k of the window is the
product of its embedding with the filter's weights there: a number that a table holds. A window is then a sum of w
numbers, where the convolution takes w times `char_embedding_size` products. Exact but for the rounding of the tables.

Of a filter's windows over a word only the largest has a gradient: it goes to the w entries of that one.
"""

import ctypes
from collections.abc import Iterable, Sequence
from ctypes import POINTER, c_int, c_long, c_void_p

import numpy as np
import torch
from torch import Tensor, nn

from . import native
from .structs import LANES, Work
from .tensors import first_order, wants_gradient, why_not_plain

MODULES = ("Embedding", "Conv1d", "ModuleList", "Linear", "ElmoHighway")  # whose computation is known here
MOST_CHARACTERS = 1 << 16  # different ones, and places in a word: C counts them in 16 bits
DTYPES = (torch.float32, torch.bfloat16, torch.float16)  # of weights that are trained; sums are float32


def supports(words: Tensor, lengths: Tensor, embedding: nn.Module, convolutions: nn.ModuleList) -> str | None:
    """Why [`run`] is not the faster way to the maxima of these modules, gradients included, or `None`."""
    modules = [embedding, *convolutions]
    weights = [weight for module in modules for weight in module.parameters()]
    if not wants_gradient(weights):
        return "no gradient is wanted"
    if any(weight.dtype not in DTYPES for weight in weights):
        return f"weights are {', '.join(sorted({str(weight.dtype) for weight in weights}))}"
    if words.shape[1] > MOST_CHARACTERS:
        return f"words have more than {MOST_CHARACTERS} characters"
    for module in modules:
        if (reason := why_not_called(module)) is not None:
            return reason
    if embedding.num_embeddings > MOST_CHARACTERS:
        return f"the vocabulary has more than {MOST_CHARACTERS} characters"
    return why_not_plain((words, lengths, *weights), "cpu") or native.reason()


def why_not_called(module: nn.Module) -> str | None:
    """Why a module has to be called, and its weights not just be read, or `None`: what it does beside its own forward
    (an adapter, a parametrization, a hook, offloading) would be left out."""
    kind = type(module)
    if kind.__name__ not in MODULES or (not kind.__module__.startswith("torch.nn.") and not _is_ours(kind)):
        return f"a module is a {kind.__name__}"
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    if any(hooks) or nn.modules.module._has_any_global_hook() or "forward" in vars(module):
        return f"a {kind.__name__} has a hook, or a forward of its own"
    return None


def _is_ours(kind: type) -> bool:
    return kind.__module__.rpartition(".")[2] == "characters_elmo"  # that of a checkpoint's own code, too


def run(words: Tensor, lengths: Tensor, embedding: nn.Embedding, convolutions: nn.ModuleList) -> Tensor:
    """Each filter's maximum over a word's windows, before the activation, with gradients for the modules' parameters.

    Args:
        words: `[n, characters]` integers.
        lengths: `[n]`, up to each word's last character that is not padding.
        embedding: of characters.
        convolutions: any number of filters of any widths.

    Returns:
        `[n, filters]` in the type that the convolutions would give.

    Raises:
        IndexError: a character is outside of the vocabulary.
    """
    vocabulary, dtype = embedding.num_embeddings, embedding.weight.dtype
    if words.numel() and not (words.min() >= 0 and words.max() < vocabulary):
        raise IndexError(f"a character id is outside of the vocabulary, 0 to {vocabulary - 1}")
    used = torch.bincount(words.flatten(), minlength=vocabulary) > 0  # tables of no others: smaller, and made faster
    words = (used.cumsum(0) - 1)[words].numpy().astype(np.uint16)
    rows = embedding(used.nonzero().squeeze(1))  # by the module, which knows the rows without a gradient
    parameters = [parameter for each in convolutions for parameter in (each.weight, each.bias)]
    maxima = _Maxima.apply(words, lengths.numpy(), *(x.float().contiguous() for x in (rows, *parameters)))
    return maxima.to(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else dtype)


class Blocks:
    """Which filters are in each block of the functions in C.

    Args:
        shapes: `[number, size, width]` of the weights of convolutions.
    """

    def __init__(self, shapes: Iterable[Sequence[int]]) -> None:
        firsts, counts, widths, self.filters = [], [], [], 0
        self.starts = []  # the convolution that each block is of, and its first filter there
        for convolution, (number, _, width) in enumerate(shapes):
            for start in range(0, number, LANES):
                firsts.append(self.filters + start)
                counts.append(min(LANES, number - start))
                widths.append(width)
                self.starts.append((convolution, start))
            self.filters += number
        self.firsts, self.counts, self.widths = (np.array(x, dtype=np.int64) for x in (firsts, counts, widths))

    def work(self, words: np.ndarray, lengths: np.ndarray, vocabulary: int) -> Work:
        """The arguments that say what is to be done; the arrays must live as long as they do."""
        arrays = self.firsts, self.counts, self.widths
        sizes = *words.shape, vocabulary, self.filters, len(self.firsts)
        return Work(words.ctypes.data, lengths.ctypes.data, *sizes, *(array.ctypes.data for array in arrays))

    def addresses(self, tensors: Sequence[Tensor]) -> np.ndarray:
        """Where each block's part of the convolutions' weights, or of their biases, begins; float32."""
        places = [tensors[of].data_ptr() + start * tensors[of].stride(0) * 4 for of, start in self.starts]
        return np.array(places, dtype=np.uintp)


class CharacterTables:
    """The tables of a character embedding and its convolutions, biases included.

    Args:
        embedding: `[vocabulary, size]`, on the CPU.
        convolutions: weight `[filters, size, width]` and bias `[filters]` of each, any number of filters of any widths.
    """

    def __init__(self, embedding: Tensor, convolutions: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.blocks, self.vocabulary = Blocks(weight.shape for weight, _ in convolutions), len(embedding)
        sizes = self.vocabulary * self.blocks.widths * LANES
        self.places = np.cumsum([0, *sizes[:-1]])
        self.tables = torch.empty(int(sizes.sum()), dtype=torch.float32, device="cpu")
        characters, begin = embedding.double(), 0
        for weight, bias in convolutions:
            filters, _, width = weight.shape
            missing = -filters % LANES
            # [blocks, size, width * LANES], so that the product is laid out as the tables are
            blocks = nn.functional.pad(weight.double(), (0, 0, 0, 0, 0, missing)).unflatten(0, (-1, LANES))
            own = torch.matmul(characters, blocks.permute(0, 2, 3, 1).flatten(2)).unflatten(2, (width, LANES))
            own[:, :, 0] += nn.functional.pad(bias, (0, missing)).unflatten(0, (-1, 1, LANES))
            self.tables[begin : begin + own.numel()] = own.flatten()  # rounded once
            begin += own.numel()
        self.are_finite = bool(torch.stack(self.tables.aminmax()).isfinite().all())  # NaN is both

    def maxima(self, words: np.ndarray, lengths: np.ndarray) -> Tensor:
        """Each filter's maximum over a word's windows, before the activation; NaN where a window is NaN.

        Args:
            words: `[n, characters]` uint16, each less than the vocabulary.
            lengths: `[n]` int64, up to each word's last character that is not padding.

        Returns:
            `[n, filters]` float32.
        """
        maxima = torch.empty(len(words), self.blocks.filters, dtype=torch.float32, device="cpu")
        work = self.blocks.work(words, lengths, self.vocabulary)
        pointers = self.tables.data_ptr(), self.places.ctypes.data, maxima.data_ptr()
        function = native.function("character_maxima", POINTER(Work), c_void_p, c_void_p, c_void_p, c_int, c_int)
        function(ctypes.byref(work), *pointers, self.are_finite, torch.get_num_threads())
        return maxima


class _Maxima(torch.autograd.Function):
    """`CharacterTables.maxima` from tables that are used once, and its gradient."""

    @staticmethod
    def forward(ctx, words: np.ndarray, lengths: np.ndarray, embedding: Tensor, *parameters: Tensor) -> Tensor:
        weights, biases = parameters[::2], parameters[1::2]
        blocks = Blocks(weight.shape for weight in weights)
        maxima = torch.empty(len(words), blocks.filters, dtype=torch.float32, device="cpu")
        windows = torch.empty(maxima.shape, dtype=torch.uint16, device="cpu")
        addresses = blocks.addresses(weights), blocks.addresses(biases)
        _call(
            "character_windows",
            blocks.work(words, lengths, len(embedding)),
            embedding,
            *(*(array.ctypes.data for array in addresses), maxima.data_ptr(), windows.data_ptr()),
        )
        ctx.save_for_backward(windows, embedding, *parameters)
        ctx.words, ctx.lengths, ctx.blocks = words, lengths, blocks
        return maxima

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        (windows, embedding, *parameters), blocks, grad = ctx.saved_tensors, ctx.blocks, grad.contiguous()
        grad_embeddings = embedding.new_empty(len(blocks.firsts), *embedding.shape)
        grads = [torch.empty_like(parameter) for parameter in parameters]
        addresses = [blocks.addresses(part) for part in (parameters[::2], grads[::2], grads[1::2])]
        weights, grad_weights, grad_biases = (array.ctypes.data for array in addresses)
        _call(
            "character_gradients",
            blocks.work(ctx.words, ctx.lengths, len(embedding)),
            embedding,
            *(weights, grad.data_ptr(), windows.data_ptr(), grad_embeddings.data_ptr(), grad_weights, grad_biases),
        )
        return None, None, grad_embeddings.sum(0), *grads


def _call(name: str, work: Work, embedding: Tensor, *pointers: int) -> None:
    types = POINTER(Work), c_void_p, c_long, *[c_void_p] * len(pointers), c_int
    function = native.function(name, *types, returns=c_long)
    if function(ctypes.byref(work), embedding.data_ptr(), embedding.shape[1], *pointers, torch.get_num_threads()):
        raise MemoryError("the tables of the character convolutions do not fit into memory")
