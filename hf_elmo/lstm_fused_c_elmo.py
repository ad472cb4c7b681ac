"""Inference over many rows in C, for the CPU: a direction of a layer in one call, products and cells at the same time.

A library's product hands its sums over through memory, and the cells begin when it has ended. Here a product of 16 rows
with 64 columns, the four gates of 16 cells, stays in the first cache until its cells have been computed, which happens
between the instructions of the next product: matrix units and vector units work side by side. Rows never meet, so
groups of rows run to their end on threads of their own, and what a row gives does not depend on the others.

The products are made of AMX tiles (bfloat16) or AVX-512 vectors (float32; bfloat16 where there are no tiles). With
`torch.set_float32_matmul_precision("high")` a float32 product is three products of tiles: each number is the sum of two
bfloat16 numbers, 16 bits in all, and the smallest of the four products is left out, as PyTorch describes that setting.
(A number that is infinite makes its row not a number there.)
"""

import ctypes
import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .c_library_elmo import compile_library, pointers

TILE_ROWS, COLUMNS, DEPTH = 16, 64, 32  # of a product, as in the source
FEWEST_ROWS = {"f32": 8, "bf16": 3, "split": 8}  # with fewer, reading both halves of the gates' weights takes too long
GROUP_ROWS = 512  # side by side at most: each weight that is read serves them all, and their cells need memory

COMMON = r"""
#ifndef __AVX512F__
#error "there is no AVX-512 on this machine"
#endif
#include <immintrin.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LANES = 16, ROWS = 16, COLUMNS = 4 * LANES, DEPTH = 32 };
typedef __m512 lanes;
typedef float f32;
typedef uint16_t bf16;

struct layer {
  const void *const *inputs, *const *weights, *const *weight_hr; /* of each direction */
  const float *const *biases;
  void *const *outputs;
  const float *hidden; /* [directions][rows][size] */
  float *cell;         /* [directions][rows][cells] */
  const int64_t *sizes;
  char *scratch;
  long scratch_bytes, steps, directions, rows, group, input, size, cells;
  float cell_clip, proj_clip;
  int threads;
};

static inline lanes all(float x) { return _mm512_set1_ps(x); }
static inline lanes load_f32(const f32 *x) { return _mm512_loadu_ps(x); }
static inline void store_f32(f32 *x, lanes y) { _mm512_storeu_ps(x, y); }
static inline lanes clipped(lanes x, float bound) {
  return _mm512_max_ps(all(-bound), _mm512_min_ps(all(bound), x)); /* in this order, what is no number stays none */
}

/* e^(factor x), at most 2^40: 2^t is 2^floor(t) times a polynomial of the rest (largest relative error 1.1e-7; 9e-5
   where bfloat16 would hide more). */
static inline __attribute__((always_inline)) lanes power(lanes x, float factor, const int exact) {
  lanes t = _mm512_min_ps(all(40.f), _mm512_mul_ps(x, all(factor * 1.44269504f)));
  lanes r = _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC), p;
  if (exact) {
    p = _mm512_fmadd_ps(all(1.872966134e-3f), r, all(9.002237339e-3f));
    p = _mm512_fmadd_ps(p, r, all(5.581318301e-2f));
    p = _mm512_fmadd_ps(p, r, all(2.401595205e-1f));
    p = _mm512_fmadd_ps(p, r, all(6.931519588e-1f));
  } else {
    p = _mm512_fmadd_ps(all(7.706724030e-2f), r, all(2.276449775e-1f));
    p = _mm512_fmadd_ps(p, r, all(6.951166307e-1f));
  }
  return _mm512_scalef_ps(_mm512_fmadd_ps(p, r, all(1.f)), t);
}

static inline __attribute__((always_inline)) lanes quotient(lanes x, lanes y, const int exact) {
  lanes z = _mm512_rcp14_ps(y); /* 14 bits; a Newton step doubles them */
  return _mm512_mul_ps(x, exact ? _mm512_fmadd_ps(z, _mm512_fnmadd_ps(y, z, all(1.f)), z) : z);
}

/* Cells of a row become the next ones, clipped; their output is returned. Sigmoids and tanhs share two divisions. */
static inline __attribute__((always_inline)) lanes next_cells(const float *gates, float *cells, float clip,
                                                              const int exact) {
  lanes one = all(1.f), i = power(load_f32(gates), -1.f, exact), f = power(load_f32(gates + LANES), -1.f, exact);
  lanes g = power(load_f32(gates + 2 * LANES), -2.f, exact), o = power(load_f32(gates + 3 * LANES), -1.f, exact);
  lanes below_f = _mm512_add_ps(one, f), below_ig = _mm512_mul_ps(_mm512_add_ps(one, i), _mm512_add_ps(one, g));
  lanes above = _mm512_fmadd_ps(load_f32(cells), below_ig, _mm512_mul_ps(_mm512_sub_ps(one, g), below_f));
  lanes c = clipped(quotient(above, _mm512_mul_ps(below_f, below_ig), exact), clip), t = power(c, -2.f, exact);
  store_f32(cells, c);
  return quotient(_mm512_sub_ps(one, t), _mm512_mul_ps(_mm512_add_ps(one, o), _mm512_add_ps(one, t)), exact);
}

/* Asks for lines of the memory at x, the weights of a later product. Few at a time, between other instructions: many at
   once fill the buffers that loads need as well. */
static inline __attribute__((always_inline)) void fetch(const void *x, long line, long end) {
  for (; line < end; line++) _mm_prefetch((const char *)x + 64 * line, _MM_HINT_T1);
}

#ifdef __AVX512BF16__
static inline lanes load_bf16(const bf16 *x) {
  return (lanes)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x)), 16);
}
static inline void store_bf16(bf16 *x, lanes y) { _mm256_storeu_si256((__m256i *)x, (__m256i)_mm512_cvtneps_pbh(y)); }
#endif
"""

# How the products of a kind hold a number: as one of OPERAND, or as two, a large part and what it lacks.
PUT_ONE = "store_OPERAND(place, x);"
PUT_TWO = "store_bf16(place, x), store_bf16(place + ROWS * DEPTH, _mm512_sub_ps(x, load_bf16(place)));"

CELLS = r"""
/* Writes 16 numbers of a row where products find them: [row / ROWS][column / DEPTH][PARTS][ROWS][DEPTH]. */
static inline void put_KIND(OPERAND *tiles, long depth, long row, long column, lanes x) {
  OPERAND *place = tiles + (row / ROWS * depth + column / DEPTH * DEPTH) * PARTS * ROWS;
  place += row % ROWS * DEPTH + column % DEPTH;
  PUT
}

/* Gates [ROWS][COLUMNS] that wait for their cells [ROWS][LANES], whose outputs go to `row` and `column` of tiles. */
struct cells_KIND {
  const float *gates;
  float *cells, clip;
  OPERAND *outputs;
  long rows, row, column, depth;
};

static inline __attribute__((always_inline)) void compute_KIND(const struct cells_KIND *x, long row, long end) {
  for (end = end < x->rows ? end : x->rows; row < end; row++)
    put_KIND(x->outputs, x->depth, x->row + row, x->column,
             next_cells(x->gates + row * COLUMNS, x->cells + row * LANES, x->clip, EXACT));
}
"""

# sums [ROWS][COLUMNS] = bias or what they were + tile [depth][PARTS][ROWS][DEPTH] * weights [depth][...]. Meanwhile the
# cells that wait are computed, and part `part` of `parts` of the next weights is fetched, as much as there is time for.
MULTIPLY_VECTORS = r"""
static inline __attribute__((always_inline)) void rows_KIND(float *sums, const OPERAND *tile, const OPERAND *weights,
                                                            const float *bias, long bias_step, long depth,
                                                            const int rows, long line, long end) {
  lanes sum[6][4];
  for (int r = 0; r < rows; r++)
    for (int g = 0; g < 4; g++) sum[r][g] = load_f32(bias ? bias + g * bias_step : sums + r * COLUMNS + g * LANES);
  for (; depth > 0; depth--, tile += ROWS * DEPTH, weights += COLUMNS * DEPTH)
    for (long k = 0; k < DEPTH / PAIR; k++) {
      if (line + k < end) fetch(weights + AT_ONCE * COLUMNS * DEPTH, line + k, line + k + 1);
      for (int r = 0; r < rows; r++)
        for (int g = 0; g < 4; g++) sum[r][g] = ADD_PRODUCT;
    }
  for (int r = 0; r < rows; r++)
    for (int g = 0; g < 4; g++) store_f32(sums + r * COLUMNS + g * LANES, sum[r][g]);
}
/* Sums of so many rows fit into the registers. */
static void six_KIND(float *sums, const OPERAND *tile, const OPERAND *weights, const float *bias, long bias_step,
                     long depth, long line, long end) {
  rows_KIND(sums, tile, weights, bias, bias_step, depth, 6, line, end);
}
static void five_KIND(float *sums, const OPERAND *tile, const OPERAND *weights, const float *bias, long bias_step,
                      long depth) {
  rows_KIND(sums, tile, weights, bias, bias_step, depth, 5, 0, 0);
}
static inline void multiply_KIND(float *sums, const OPERAND *tile, const OPERAND *weights, const float *bias,
                                 long bias_step, long rows, long depth, const struct cells_KIND *cells, long part,
                                 long parts) {
  long lines = COLUMNS * DEPTH * sizeof(OPERAND) / 64;
  six_KIND(sums, tile, weights, bias, bias_step, depth, lines * part / parts, lines * (part + 1) / parts);
  if (rows > 6) five_KIND(sums + 6 * COLUMNS, tile + 6 * DEPTH, weights, bias, bias_step, depth);
  if (rows > 11) five_KIND(sums + 11 * COLUMNS, tile + 11 * DEPTH, weights, bias, bias_step, depth);
  compute_KIND(cells, 0, ROWS); /* on the same units, so at no better time */
}
"""
ADD_PRODUCT_F32 = """_mm512_fmadd_ps(
            all(tile[r * DEPTH + k]), load_f32(weights + (k * 4 + g) * LANES), sum[r][g])"""
ADD_PRODUCT_BF16 = """_mm512_dpbf16_ps(
            sum[r][g], (__m512bh)_mm512_set1_epi32(*(const int *)(tile + r * DEPTH + 2 * k)),
            (__m512bh)_mm512_loadu_si512(weights + (k * 4 + g) * 2 * LANES))"""

TILES = r"""
#ifdef __AMX_BF16__
static void begin_tiles(void) {
  static const struct { uint8_t palette, start, zero[14]; uint16_t bytes[16]; uint8_t rows[16]; } shape = {
      1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS}};
  _tile_loadconfig(&shape);
}
/* Linux lends the tiles to a process that asks for them (ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA). */
int tiles_are_ours(void) { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }
#define WEIGHTS(K, NUMBER) _tile_loadd(NUMBER, weights + (K) * ROWS * DEPTH, 64)
#define FETCH(K) fetch(ahead, lines[K], lines[(K) + 1])
#endif
"""
MULTIPLY_TILES = r"""
static inline __attribute__((always_inline)) void multiply_KIND(float *sums, const bf16 *tile,
                                                                const bf16 *weights, const float *bias,
                                                                long bias_step, long rows, long depth,
                                                                const struct cells_KIND *cells, long part,
                                                                long parts) {
  const float *from = bias ? bias : sums;
  long column = bias ? bias_step : LANES, next = bias ? 0 : 4 * COLUMNS, lines[5];
  for (long k = 0; k < 5; k++) lines[k] = PARTS * COLUMNS * (4 * part + k) / (4 * parts);
  __asm__ volatile("" ::: "memory"); /* compilers do not know what tile loads read */
  _tile_loadd(0, from, next);
  _tile_loadd(1, from + column, next);
  _tile_loadd(2, from + 2 * column, next);
  _tile_loadd(3, from + 3 * column, next);
  for (long k = 0; k < depth; k++, tile += PARTS * ROWS * DEPTH, weights += PARTS * COLUMNS * DEPTH) {
    const uint16_t *ahead = weights + AT_ONCE * PARTS * COLUMNS * DEPTH;
    PRODUCTS
    compute_KIND(cells, ROWS * k / AT_ONCE, ROWS * (k + 1) / AT_ONCE);
  }
  compute_KIND(cells, ROWS * depth / AT_ONCE, ROWS);
  _tile_stored(0, sums, 4 * COLUMNS);
  _tile_stored(1, sums + LANES, 4 * COLUMNS);
  _tile_stored(2, sums + 2 * LANES, 4 * COLUMNS);
  _tile_stored(3, sums + 3 * LANES, 4 * COLUMNS);
}
"""
ONE_PRODUCT = r"""
    _tile_loadd(4, tile, 64);
    WEIGHTS(0, 5); _tile_dpbf16ps(0, 4, 5); FETCH(0);
    WEIGHTS(1, 6); _tile_dpbf16ps(1, 4, 6); FETCH(1);
    WEIGHTS(2, 5); _tile_dpbf16ps(2, 4, 5); FETCH(2);
    WEIGHTS(3, 6); _tile_dpbf16ps(3, 4, 6); FETCH(3);"""
THREE_PRODUCTS = r"""
    _tile_loadd(4, tile, 64); _tile_loadd(5, tile + ROWS * DEPTH, 64);
    WEIGHTS(0, 6); _tile_dpbf16ps(0, 4, 6); _tile_dpbf16ps(0, 5, 6); FETCH(0);
    WEIGHTS(1, 7); _tile_dpbf16ps(1, 4, 7); _tile_dpbf16ps(1, 5, 7); FETCH(1);
    WEIGHTS(2, 6); _tile_dpbf16ps(2, 4, 6); _tile_dpbf16ps(2, 5, 6); FETCH(2);
    WEIGHTS(3, 7); _tile_dpbf16ps(3, 4, 7); _tile_dpbf16ps(3, 5, 7); FETCH(3);
    WEIGHTS(4, 6); _tile_dpbf16ps(0, 4, 6);
    WEIGHTS(5, 7); _tile_dpbf16ps(1, 4, 7);
    WEIGHTS(6, 6); _tile_dpbf16ps(2, 4, 6);
    WEIGHTS(7, 7); _tile_dpbf16ps(3, 4, 7);"""

LAYER = r"""
/* sums [rows][COLUMNS] = bias + tiles * weights, AT_ONCE * DEPTH numbers at a time: the weights of these stay in the
   first cache for all rows. With the last of them, the cells of the 16 rows before are computed: `waiting`, which is
   those of the last 16 rows in the end. Without `waiting` there are none. */
static void block_KIND(float *sums, const OPERAND *tiles, const OPERAND *weights, const float *bias, long bias_step,
                       long rows, long depth, struct cells_KIND *waiting, float *cells, long column) {
  static const struct cells_KIND none;
  long steps = depth / DEPTH, chunks = (steps + AT_ONCE - 1) / AT_ONCE, size = PARTS * DEPTH;
  for (long chunk = 0; chunk < chunks; chunk++) {
    long first = chunk * AT_ONCE, count = steps - first < AT_ONCE ? steps - first : AT_ONCE;
    int ends = waiting && chunk == chunks - 1;
    for (long row = 0; row < rows; row += ROWS) {
      float *own = sums + row * COLUMNS;
      multiply_KIND(own, tiles + (row * steps + first * ROWS) * size, weights + first * COLUMNS * size,
                    chunk ? NULL : bias, bias_step, rows - row, count, ends ? waiting : &none, row / ROWS,
                    (rows + ROWS - 1) / ROWS);
      if (ends) {
        waiting->gates = own, waiting->cells = cells + row * LANES, waiting->row = row, waiting->column = column;
        waiting->rows = rows - row < ROWS ? rows - row : ROWS;
      }
    }
  }
}

long scratch_KIND(long rows, long input, long size, long cells) {
  rows = (rows + ROWS - 1) / ROWS * ROWS;
  return rows * (sizeof(OPERAND) * PARTS * (input + size + cells) + 4 * (cells + 2 * COLUMNS));
}

/* All steps of the rows from `first` on. */
static void rows_to_the_end_KIND(const struct layer *x, long d, long first, long rows, char *scratch) {
  long depth = x->input + x->size, all_rows = (rows + ROWS - 1) / ROWS * ROWS;
  static const float no_bias[LANES];
  OPERAND *both = (OPERAND *)scratch, *cell_outputs = both + all_rows * depth * PARTS;
  float *cell = (float *)(cell_outputs + all_rows * x->cells * PARTS), *sums = cell + all_rows * x->cells;
  memset(scratch, 0, scratch_KIND(rows, x->input, x->size, x->cells));
  const TYPE *inputs = (const TYPE *)x->inputs[d] + first * x->input;
  TYPE *outputs = (TYPE *)x->outputs[d] + first * x->size;
  const OPERAND *weights = x->weights[d], *weight_hr = x->weight_hr[d];
  const float *hidden = x->hidden + (d * x->rows + first) * x->size;
  float *state = x->cell + (d * x->rows + first) * x->cells;
  for (long row = 0; row < rows; row++) {
    for (long k = 0; k < x->size; k += LANES)
      put_KIND(both, depth, row, x->input + k, load_f32(hidden + row * x->size + k));
    for (long k = 0; k < x->cells; k += LANES)
      store_f32(cell + k * all_rows + row * LANES, load_f32(state + row * x->cells + k));
  }
  for (long t = 0; t < x->steps && x->sizes[t] > first; t++) {
    long now = x->sizes[t] - first < rows ? x->sizes[t] - first : rows;
    for (long row = 0; row < now; row++)
      for (long k = 0; k < x->input; k += LANES)
        put_KIND(both, depth, row, k, load_TYPE(inputs + row * x->input + k));
    struct cells_KIND waiting = {.outputs = cell_outputs, .depth = x->cells, .clip = x->cell_clip};
    for (long k = 0; k < x->cells; k += LANES) {
      float *gates = sums + k / LANES % 2 * all_rows * COLUMNS; /* those before may still wait */
      block_KIND(gates, both, weights + 4 * k * depth * PARTS, x->biases[d] + k, x->cells, now, depth, &waiting,
                 cell + k * all_rows, k);
    }
    compute_KIND(&waiting, 0, ROWS);
    for (long k = 0; k < x->size; k += COLUMNS) {
      block_KIND(sums, cell_outputs, weight_hr + k * x->cells * PARTS, no_bias, 0, now, x->cells, NULL, NULL, 0);
      for (long row = 0; row < now; row++)
        for (long n = 0; n < COLUMNS; n += LANES) {
          lanes h = clipped(load_f32(sums + row * COLUMNS + n), x->proj_clip);
          store_TYPE(outputs + row * x->size + k + n, h);
          put_KIND(both, depth, row, x->input + k + n, h);
        }
    }
    inputs += x->sizes[t] * x->input, outputs += x->sizes[t] * x->size;
  }
  for (long row = 0; row < rows; row++)
    for (long k = 0; k < x->cells; k += LANES)
      store_f32(state + row * x->cells + k, load_f32(cell + k * all_rows + row * LANES));
}

void layer_KIND(const struct layer *x) {
  long groups = (x->rows + x->group - 1) / x->group;
  #pragma omp parallel for num_threads(x->threads) schedule(dynamic)
  for (long n = 0; n < x->directions * groups; n++) { /* the longest rows first */
    long first = n / x->directions * x->group, rows = x->rows - first < x->group ? x->rows - first : x->group;
    BEGIN
    rows_to_the_end_KIND(x, n % x->directions, first, rows, x->scratch + omp_get_thread_num() * x->scratch_bytes);
    END
  }
}
"""


def _kind(multiply: str, **words: str | int) -> str:
    source = "".join((CELLS.replace("PUT", words.pop("PUT")), multiply, LAYER))
    for word, meaning in words.items():
        source = source.replace(word, str(meaning))
    return source


F32 = {"KIND": "f32", "TYPE": "f32", "OPERAND": "f32", "PUT": PUT_ONE, "PARTS": 1, "AT_ONCE": 4, "EXACT": 1}
BF16 = {"KIND": "bf16", "TYPE": "bf16", "OPERAND": "bf16", "PUT": PUT_ONE, "PARTS": 1, "AT_ONCE": 8, "EXACT": 0}
SPLIT = {"KIND": "split", "TYPE": "f32", "OPERAND": "bf16", "PUT": PUT_TWO, "PARTS": 2, "AT_ONCE": 8, "EXACT": 1}
NO_TILES = {"BEGIN": "", "END": ""}
WITH_TILES = {"BEGIN": "begin_tiles();", "END": "_tile_release();"}
SOURCE = "".join(
    (
        *(COMMON, TILES),
        _kind(MULTIPLY_VECTORS, ADD_PRODUCT=ADD_PRODUCT_F32, PAIR=1, **F32, **NO_TILES),
        "#if defined __AMX_BF16__ && defined __linux__\n",
        _kind(MULTIPLY_TILES, PRODUCTS=ONE_PRODUCT, **BF16, **WITH_TILES),
        _kind(MULTIPLY_TILES, PRODUCTS=THREE_PRODUCTS, **SPLIT, **WITH_TILES),
        "#elif defined __AVX512BF16__\n",
        _kind(MULTIPLY_VECTORS, ADD_PRODUCT=ADD_PRODUCT_BF16, PAIR=2, **BF16, **NO_TILES),
        "#endif\n",
    )
)

WITHOUT_TILES = "-mno-amx-bf16"


class Layer(ctypes.Structure):
    """`struct layer` of the source."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("inputs", "weights", "weight_hr", "biases", "outputs")),
        *((name, ctypes.c_void_p) for name in ("hidden", "cell", "sizes", "scratch")),
        *((name, ctypes.c_long) for name in ("scratch_bytes", "steps", "directions", "rows", "group")),
        *((name, ctypes.c_long) for name in ("input", "size", "cells")),
        *((name, ctypes.c_float) for name in ("cell_clip", "proj_clip")),
        ("threads", ctypes.c_int),
    ]


@functools.cache
def load() -> ctypes.CDLL | None:
    """The compiled functions, or `None` where they cannot be compiled. `library.has_tiles`: those of AMX work here."""
    library = compile_library(SOURCE)
    if library is not None and hasattr(library, "tiles_are_ours") and not library.tiles_are_ours():
        library = compile_library(SOURCE, WITHOUT_TILES)
    return library and declare(library)


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """`library`, its functions' arguments declared."""
    library.has_tiles = hasattr(library, "tiles_are_ours")
    for kind in ("f32", "bf16", "split"):
        if hasattr(library, f"layer_{kind}"):
            layer, scratch = getattr(library, f"layer_{kind}"), getattr(library, f"scratch_{kind}")
            layer.argtypes, layer.restype = [ctypes.POINTER(Layer)], None
            scratch.argtypes, scratch.restype = [ctypes.c_long] * 4, ctypes.c_long
    return library


def choose_kind(inputs: Tensor, state: Tensor, input_size: int, size: int, cells: int) -> str | None:
    """Which kind of product [`run_layer`] makes of these inputs, cells and sizes; `None`: it cannot take them."""
    if inputs.device.type != "cpu" or state.dtype != torch.float32 or load() is None:
        return None
    if input_size % DEPTH or size % COLUMNS or cells % DEPTH:
        return None
    if inputs.dtype == torch.bfloat16:
        return "bf16" if hasattr(load(), "layer_bf16") else None
    if inputs.dtype != torch.float32:
        return None
    return "split" if load().has_tiles and not _exact_products() else "f32"


def _exact_products() -> bool:
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # PyTorch's newer settings, one for each library, were used, and differ
        return torch.backends.mkldnn.matmul.fp32_precision in ("none", "ieee")


def gates_layout(kind: str, weight_ih: Tensor, weight_hh: Tensor) -> Tensor:
    """`weight_ih` and `weight_hh` `[4C, ...]` side by side as the functions read them."""
    weight = torch.cat((weight_ih, weight_hh), dim=1)
    return _layout(kind, weight.view(4, -1, COLUMNS // 4, weight.shape[1]).transpose(0, 1))


def projection_layout(kind: str, weight_hr: Tensor) -> Tensor:
    """`weight_hr [P, C]` as the functions read it."""
    return _layout(kind, weight_hr.view(-1, 4, COLUMNS // 4, weight_hr.shape[1]))


def _layout(kind: str, blocks: Tensor) -> Tensor:
    """From `[blocks, 4, 16, K]`."""
    if kind == "f32":
        return blocks.unflatten(3, (-1, DEPTH)).permute(0, 3, 4, 1, 2).contiguous()
    parts = blocks.bfloat16()
    parts = torch.stack((parts, (blocks - parts).bfloat16())) if kind == "split" else parts[None]
    parts = parts.unflatten(4, (-1, DEPTH // 2, 2))  # [parts, blocks, 4, 16, K / DEPTH, pairs, 2]
    return parts.permute((1, 4, 0, 2, 5, 3, 6) if load().has_tiles else (1, 4, 0, 5, 2, 3, 6)).contiguous()


def run_layer(
    kind: str,
    sizes: Sequence[int],
    inputs: Tensor,
    hidden: Tensor,
    cell: Tensor,
    weights: Sequence[Tensor],
    weights_hr: Sequence[Tensor],
    biases: Sequence[Tensor],
    clips: tuple[float | None, float | None],
    outputs: Tensor,
) -> None:
    """Several directions of a layer, on as many threads as PyTorch uses.

    Args:
        kind: as [`choose_kind`] says.
        sizes: rows of each step, never rising.
        inputs: `[directions, words, input]`, packed, contiguous.
        hidden: `[directions, rows, P]`, the state before the first step.
        cell: `[directions, rows, C]` float32, contiguous; becomes that of each row's last step, clipped.
        weights, weights_hr: for each direction, laid out by [`gates_layout`] and [`projection_layout`].
        biases: for each direction `[4C]`.
        clips: on the cell, on the projection.
        outputs: `[directions, words, P]`, contiguous, written.
    """
    (directions, rows, size), cells, library, threads = hidden.shape, cell.shape[2], load(), torch.get_num_threads()
    hidden, numbers = hidden.float().contiguous(), torch.tensor(sizes, device="cpu")
    biases = [bias.float().contiguous() for bias in biases]
    together = threads // math.gcd(threads, directions)  # so many groups of each direction keep all threads at work
    groups = math.ceil(rows / GROUP_ROWS / together) * together
    group = math.ceil(rows / groups / TILE_ROWS) * TILE_ROWS
    each = getattr(library, f"scratch_{kind}")(group, inputs.shape[2], size, cells)
    each = math.ceil(each / 64) * 64  # a whole number of cache lines
    scratch = torch.empty(threads, each, dtype=torch.uint8, device="cpu")
    tensors = [pointers(x) for x in (inputs, weights, weights_hr, biases, outputs)]
    clips = (math.inf if bound is None else bound for bound in clips)
    layer = Layer(
        *(ctypes.cast(array, ctypes.c_void_p) for array in tensors),
        *(x.data_ptr() for x in (hidden, cell, numbers, scratch)),
        *(each, len(sizes), directions, rows, group, inputs.shape[2], size, cells),
        *clips,
        threads,
    )
    getattr(library, f"layer_{kind}")(ctypes.byref(layer))
