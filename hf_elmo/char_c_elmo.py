"""The character convolutions in C, for the CPU: sums of table entries in place of products, twenty times as fast.

A filter of width w sees w characters, each one of a few hundred. What character c adds at place k of the window is the
product of its embedding with the filter's weights there: a number that a table holds. A window is then a sum of w
numbers, where the convolution takes w times `char_embedding_size` products. Exact but for the rounding of the tables.

Of a filter's windows over a word only the largest has a gradient: it goes to the w entries of that one.
"""

import ctypes
import functools
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from .c_library_elmo import compile_library

LANES = 16  # filters side by side in a block of the tables, as in the source
DTYPES = (torch.float32, torch.bfloat16, torch.float16)  # of weights that are trained; sums are float32

# A block is up to LANES filters of one width. Its table fits into the cache, so blocks are the outer loop.
SOURCE = r"""
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 16 };
typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t bits __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint16_t starts __attribute__((vector_size(2 * LANES), aligned(2)));

/* words [n][characters], padding left out of their lengths; the first filter of a block, how many it has, their width;
   filters of all blocks. */
typedef struct {
  const uint16_t *words;
  const int64_t *lengths;
  long n, characters, vocabulary, filters, blocks;
  const int64_t *firsts, *counts, *widths;
} Work;

/* Inlined for each width of the published filters: their inner loops are unrolled. */
#define WITH_WIDTH(WIDTH, FUNCTION, ...) \
  switch (WIDTH) { \
  case 1: FUNCTION(__VA_ARGS__, 1); break; \
  case 2: FUNCTION(__VA_ARGS__, 2); break; \
  case 3: FUNCTION(__VA_ARGS__, 3); break; \
  case 4: FUNCTION(__VA_ARGS__, 4); break; \
  case 5: FUNCTION(__VA_ARGS__, 5); break; \
  case 6: FUNCTION(__VA_ARGS__, 6); break; \
  case 7: FUNCTION(__VA_ARGS__, 7); break; \
  default: FUNCTION(__VA_ARGS__, WIDTH); \
  }

/* maxima [n][filters]: the largest window of each word. Windows of padding alone are equal: the first of them is as
   good as all. If windows [n][filters] is wanted it says where the maximum begins, the first of equals; what is no
   number is the largest. */
static inline __attribute__((always_inline)) void block_maxima(
    const Work *work, long block, const lanes *table, float *maxima, uint16_t *windows, int keep, long width) {
  long first = work->firsts[block], count = work->counts[block];
  for (long word = 0; word < work->n; word++) {
    const uint16_t *character = work->words + word * work->characters;
    long last = work->characters - width < work->lengths[word] ? work->characters - width : work->lengths[word];
    lanes best = (lanes){0} - INFINITY;
    bits window = (bits){0};
    for (long start = 0; start <= last; start++) {
      lanes sum = table[character[start] * width];
      for (long k = 1; k < width; k++)
        sum += table[character[start + k] * width + k];
      bits larger = keep ? (sum > best) | (sum != sum) : sum > best;
      best = (lanes)(((bits)sum & larger) | ((bits)best & ~larger));
      if (keep)
        window = (((bits){0} + (int32_t)start) & larger) | (window & ~larger);
    }
    memcpy(maxima + word * work->filters + first, &best, 4 * count);
    if (keep) {
      starts narrow = __builtin_convertvector(window, starts);
      memcpy(windows + word * work->filters + first, &narrow, 2 * count);
    }
  }
}

/* tables [vocabulary][width][LANES], one block after the other */
void character_maxima(const Work *work, const float *tables, const int64_t *places, float *maxima, int threads) {
  #pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (long block = 0; block < work->blocks; block++)
    WITH_WIDTH(work->widths[block], block_maxima, work, block, (const lanes *)(tables + places[block]), maxima, 0, 0)
}

static void *room(long numbers) { return aligned_alloc(64, (4 * numbers + 63) / 64 * 64); }

/* weight [count][size][width] as [width][size][LANES], lanes without a filter zero */
static lanes *spread(const float *weight, long size, long width, long count) {
  lanes *columns = room(width * size * LANES);
  memset(columns, 0, 4 * width * size * LANES);
  for (long lane = 0; lane < count; lane++)
    for (long c = 0; c < size; c++)
      for (long k = 0; k < width; k++)
        columns[k * size + c][lane] = weight[(lane * size + c) * width + k];
  return columns;
}

static void make_table(const float *embedding, long vocabulary, long size, long width, const lanes *columns,
                       lanes bias, lanes *table) {
  for (long v = 0; v < vocabulary; v++)
    for (long k = 0; k < width; k++) {
      lanes sum = k ? (lanes){0} : bias;
      for (long c = 0; c < size; c++)
        sum += embedding[v * size + c] * columns[k * size + c];
      table[v * width + k] = sum;
    }
}

/* As character_maxima, of embedding [vocabulary][size] and each block's weights [count][size][width] and biases. */
void character_windows(const Work *work, const float *embedding, long size, const float **weights,
                       const float **biases, float *maxima, uint16_t *windows, int threads) {
  #pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (long block = 0; block < work->blocks; block++) {
    long width = work->widths[block], count = work->counts[block];
    lanes *table = room(work->vocabulary * width * LANES), *columns = spread(weights[block], size, width, count);
    lanes bias = {0};
    memcpy(&bias, biases[block], 4 * count);
    make_table(embedding, work->vocabulary, size, width, columns, bias, table);
    WITH_WIDTH(width, block_maxima, work, block, table, maxima, windows, 1)
    free(table);
    free(columns);
  }
}

/* Add the gradient of a block's maxima to that of its table: only the window of a maximum has one. */
static inline __attribute__((always_inline)) void add_to_table(
    const Work *work, long block, const float *grads, const uint16_t *windows, lanes *grad_table, long width) {
  long first = work->firsts[block], count = work->counts[block];
  for (long word = 0; word < work->n; word++) {
    const uint16_t *character = work->words + word * work->characters;
    long last = work->characters - width < work->lengths[word] ? work->characters - width : work->lengths[word];
    long place = word * work->filters + first;
    lanes grad = {0};
    starts narrow = {0};
    memcpy(&grad, grads + place, 4 * count);
    memcpy(&narrow, windows + place, 2 * count);
    __builtin_prefetch(grads + place + 8 * work->filters); /* rows are far apart */
    __builtin_prefetch(windows + place + 8 * work->filters);
    bits window = __builtin_convertvector(narrow, bits);
    for (long start = 0; start <= last; start++) {
      lanes here = (lanes)((bits)grad & (window == (bits){0} + (int32_t)start));
      for (long k = 0; k < width; k++)
        grad_table[character[start + k] * width + k] += here;
    }
  }
}

/* The gradients of what make_table reads, from that of the table. */
static void unmake_table(const float *embedding, long vocabulary, long size, long width, long count,
                         const lanes *columns, const lanes *grad_table, float *grad_embedding, float *grad_weight,
                         float *grad_bias) {
  lanes bias = {0};
  for (long v = 0; v < vocabulary; v++) {
    bias += grad_table[v * width];
    for (long c = 0; c < size; c++) {
      lanes sum = {0};
      for (long k = 0; k < width; k++)
        sum += grad_table[v * width + k] * columns[k * size + c];
      float total = 0;
      for (long lane = 0; lane < LANES; lane++)
        total += sum[lane];
      grad_embedding[v * size + c] = total;
    }
  }
  memcpy(grad_bias, &bias, 4 * count);
  for (long k = 0; k < width; k++)
    for (long c = 0; c < size; c++) {
      lanes sum = {0};
      for (long v = 0; v < vocabulary; v++)
        sum += embedding[v * size + c] * grad_table[v * width + k];
      for (long lane = 0; lane < count; lane++)
        grad_weight[(lane * size + c) * width + k] = sum[lane];
    }
}

/* The gradients of what character_windows reads, from that of maxima. grad_embeddings [blocks][vocabulary][size] are
   one for each block, so that their sum does not depend on the number of threads. */
void character_gradients(const Work *work, const float *embedding, long size, const float **weights,
                         const float *grads, const uint16_t *windows, float *grad_embeddings, float **grad_weights,
                         float **grad_biases, int threads) {
  #pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (long block = 0; block < work->blocks; block++) {
    long width = work->widths[block], count = work->counts[block], numbers = work->vocabulary * width * LANES;
    lanes *grad_table = room(numbers), *columns = spread(weights[block], size, width, count);
    memset(grad_table, 0, 4 * numbers);
    WITH_WIDTH(width, add_to_table, work, block, grads, windows, grad_table)
    unmake_table(embedding, work->vocabulary, size, width, count, columns, grad_table,
                 grad_embeddings + block * work->vocabulary * size, grad_weights[block], grad_biases[block]);
    free(grad_table);
    free(columns);
  }
}
"""


class Work(ctypes.Structure):
    """As in the source."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("words", "lengths")),
        *((name, ctypes.c_long) for name in ("n", "characters", "vocabulary", "filters", "blocks")),
        *((name, ctypes.c_void_p) for name in ("firsts", "counts", "widths")),
    )


@functools.cache
def load() -> ctypes.CDLL | None:
    """The compiled functions, or `None` where they cannot be compiled."""
    library = compile_library(SOURCE)
    if library is not None:
        work, pointer, number, threads = ctypes.POINTER(Work), ctypes.c_void_p, ctypes.c_long, ctypes.c_int
        library.character_maxima.argtypes = [work, pointer, pointer, pointer, threads]
        library.character_windows.argtypes = [work, pointer, number, *[pointer] * 4, threads]
        library.character_gradients.argtypes = [work, pointer, number, *[pointer] * 6, threads]
        for name in ("character_maxima", "character_windows", "character_gradients"):
            getattr(library, name).restype = None
    return library


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
        convolutions: any number of filters of any widths.
    """

    def __init__(self, embedding: Tensor, convolutions: nn.ModuleList) -> None:
        tables = []
        for convolution in convolutions:
            weight, bias = convolution.weight.detach(), convolution.bias.detach()
            # [vocabulary, width, filters], rounded once
            table = torch.einsum("vc,nck->vkn", embedding.double(), weight.double())
            table[:, 0] += bias
            table = nn.functional.pad(table.float(), (0, -len(weight) % LANES)).unflatten(2, (-1, LANES))
            tables += table.permute(2, 0, 1, 3).flatten(1)
        self.blocks = Blocks(convolution.weight.shape for convolution in convolutions)
        self.vocabulary, self.tables = len(embedding), torch.cat(tables)
        self.places = np.cumsum([0, *map(len, tables)])[:-1]

    def maxima(self, words: np.ndarray, lengths: np.ndarray) -> Tensor:
        """Each filter's maximum over a word's windows, before the activation.

        Args:
            words: `[n, characters]` uint16, each less than the vocabulary.
            lengths: `[n]` int64, up to each word's last character that is not padding.

        Returns:
            `[n, filters]` float32.
        """
        maxima = torch.empty(len(words), self.blocks.filters, dtype=torch.float32, device="cpu")
        work = self.blocks.work(words, lengths, self.vocabulary)
        pointers = self.tables.data_ptr(), self.places.ctypes.data, maxima.data_ptr()
        load().character_maxima(work, *pointers, torch.get_num_threads())
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
        load().character_windows(
            *(blocks.work(words, lengths, len(embedding)), embedding.data_ptr(), embedding.shape[1]),
            *(*(array.ctypes.data for array in addresses), maxima.data_ptr(), windows.data_ptr()),
            torch.get_num_threads(),
        )
        ctx.save_for_backward(windows, embedding, *parameters)
        ctx.words, ctx.lengths, ctx.blocks = words, lengths, blocks
        return maxima

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        (windows, embedding, *parameters), blocks, grad = ctx.saved_tensors, ctx.blocks, grad.contiguous()
        grad_embeddings = embedding.new_empty(len(blocks.firsts), *embedding.shape)
        grads = [torch.empty_like(parameter) for parameter in parameters]
        addresses = [blocks.addresses(part) for part in (parameters[::2], grads[::2], grads[1::2])]
        weights, grad_weights, grad_biases = (array.ctypes.data for array in addresses)
        load().character_gradients(
            *(blocks.work(ctx.words, ctx.lengths, len(embedding)), embedding.data_ptr(), embedding.shape[1]),
            *(weights, grad.data_ptr(), windows.data_ptr(), grad_embeddings.data_ptr(), grad_weights, grad_biases),
            torch.get_num_threads(),
        )
        return None, None, grad_embeddings.sum(0), *grads


def can_train(embedding: nn.Embedding, convolutions: nn.ModuleList) -> bool:
    """Whether [`trained_maxima`] is the faster way to what these modules compute, gradients included."""
    modules = [embedding, *convolutions]
    weights = [weight for module in modules for weight in module.parameters()]
    wanted = torch.is_grad_enabled() and any(weight.requires_grad for weight in weights)
    fits = all(weight.device.type == "cpu" and weight.dtype in DTYPES for weight in weights)
    return wanted and fits and all(map(_is_plain, modules)) and load() is not None


def _is_plain(module: nn.Module) -> bool:
    """No adapter, parametrisation or hook would be left out if the module itself is not called."""
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    return type(module) in (nn.Embedding, nn.Conv1d) and not any(hooks)


def trained_maxima(words: Tensor, lengths: Tensor, embedding: nn.Embedding, convolutions: nn.ModuleList) -> Tensor:
    """As `CharacterTables.maxima`, with gradients for the modules' parameters; see [`can_train`].

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
