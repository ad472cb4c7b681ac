"""The character convolutions in C, for the CPU: sums of table entries in place of products, twenty times as fast.

A filter of width w sees w characters, each one of a few hundred. What character c adds at place k of the window is the
product of its embedding with the filter's weights there: a number that a table holds. A window is then a sum of w
numbers, where the convolution takes w times `char_embedding_size` products. Exact but for the rounding of the tables.
"""

import ctypes
import functools

import numpy as np
import torch
from torch import Tensor, nn

from .c_library_elmo import compile_library

LANES = 16  # filters side by side in a block of the tables, as in the source

# A block's table for one width fits into the cache, so blocks are the outer loop.
SOURCE = r"""
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 16 };
typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t bits __attribute__((vector_size(4 * LANES), aligned(4)));

static inline lanes larger(lanes x, lanes y) {
  bits first = x > y;
  return (lanes)(((bits)x & first) | ((bits)y & ~first));
}

/* The maximum over windows of one block's filters. Inlined where the width is known, so that its loop is unrolled. */
static inline __attribute__((always_inline)) lanes
maximum(const uint16_t *character, long last, const float *table, long vocabulary, long width) {
  lanes best = (lanes){0} - INFINITY;
  for (long start = 0; start <= last; start++) {
    lanes sum = *(const lanes *)(table + character[start] * LANES);
    for (long k = 1; k < width; k++)
      sum += *(const lanes *)(table + (k * vocabulary + character[start + k]) * LANES);
    best = larger(best, sum);
  }
  return best;
}

static lanes maximum_of_width(const uint16_t *character, long last, const float *table, long vocabulary, long width) {
  switch (width) {
  case 1: return maximum(character, last, table, vocabulary, 1);
  case 2: return maximum(character, last, table, vocabulary, 2);
  case 3: return maximum(character, last, table, vocabulary, 3);
  case 4: return maximum(character, last, table, vocabulary, 4);
  case 5: return maximum(character, last, table, vocabulary, 5);
  case 6: return maximum(character, last, table, vocabulary, 6);
  case 7: return maximum(character, last, table, vocabulary, 7);
  default: return maximum(character, last, table, vocabulary, width);
  }
}

/* words [n][characters] and their lengths, padding left out. A block has one width; its table is
   [width][vocabulary][LANES] at tables + place; the filters first ... first + count - 1 of maxima [n][filters] are
   its own. Windows of padding alone are equal: one of them is as good as all. */
void character_maxima(const uint16_t *words, const int64_t *lengths, long n, long characters, const float *tables,
                      long vocabulary, const int64_t *places, const int64_t *widths, const int64_t *firsts,
                      const int64_t *counts, long blocks, float *maxima, long filters, int threads) {
  #pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (long block = 0; block < blocks; block++) {
    const float *table = tables + places[block];
    long width = widths[block];
    for (long word = 0; word < n; word++) {
      const uint16_t *character = words + word * characters;
      long last = lengths[word] < characters - width ? lengths[word] : characters - width;
      lanes best = maximum_of_width(character, last, table, vocabulary, width);
      memcpy(maxima + word * filters + firsts[block], &best, 4 * counts[block]);
    }
  }
}
"""


@functools.cache
def load() -> ctypes.CDLL | None:
    """The compiled function, or `None` where it cannot be compiled."""
    library = compile_library(SOURCE)
    if library is not None:
        pointer, number = ctypes.c_void_p, ctypes.c_long
        library.character_maxima.restype = None
        library.character_maxima.argtypes = [
            *(pointer, pointer, number, number, pointer, number, pointer, pointer, pointer, pointer),
            *(number, pointer, number, ctypes.c_int),
        ]
    return library


class CharacterTables:
    """The tables of a character embedding and its convolutions, biases included.

    Args:
        embedding: `[vocabulary, size]`, on the CPU.
        convolutions: any number of filters of any widths.
    """

    def __init__(self, embedding: Tensor, convolutions: nn.ModuleList) -> None:
        tables, self.widths, self.firsts, self.counts, first = [], [], [], [], 0
        for convolution in convolutions:
            (number, _, width), bias = convolution.weight.shape, convolution.bias.detach()
            # [width, vocabulary, filters], rounded once
            table = torch.einsum("vc,nck->kvn", embedding.double(), convolution.weight.detach().double())
            table[0] += bias
            table = nn.functional.pad(table.float(), (0, -number % LANES)).unflatten(2, (-1, LANES))
            tables += table.permute(2, 0, 1, 3).flatten(1)
            for start in range(0, number, LANES):
                self.widths.append(width)
                self.firsts.append(first + start)
                self.counts.append(min(LANES, number - start))
            first += number
        self.filters, self.vocabulary, self.tables = first, len(embedding), torch.cat(tables).numpy()
        self.places = np.cumsum([0, *map(len, tables)])[:-1]
        self.widths, self.firsts, self.counts = (np.array(x) for x in (self.widths, self.firsts, self.counts))

    def maxima(self, words: np.ndarray, lengths: np.ndarray) -> Tensor:
        """Each filter's maximum over a word's windows, before the activation.

        Args:
            words: `[n, characters]` uint16, each less than the vocabulary.
            lengths: `[n]` int64, up to each word's last character that is not padding.

        Returns:
            `[n, filters]` float32.
        """
        maxima = torch.empty(len(words), self.filters)
        blocks = [x.ctypes.data for x in (self.places, self.widths, self.firsts, self.counts)]
        load().character_maxima(
            *(words.ctypes.data, lengths.ctypes.data, *words.shape, self.tables.ctypes.data, self.vocabulary, *blocks),
            *(len(self.places), maxima.data_ptr(), self.filters, torch.get_num_threads()),
        )
        return maxima
