"""Inference over few rows in C, for the CPU: a direction of a layer in one call, with nothing between its steps.

With one row a step multiplies a vector by each weight once: reading the weights takes the time, and so do the calls.
Here each thread runs a direction by itself from its first word to its last, so that a small layer's weights stay in
that core's cache; a larger layer's, read upwards and downwards in turn, do in part.
"""

import ctypes
import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .c_library_elmo import compile_library, pointers
from .lstm_c_elmo import COMMON, FORWARD_ROW, TYPES

LANES = 16  # cells of a block, as in the source

VECTORS = r"""
enum { LANES = 16 };
typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint32_t bits __attribute__((vector_size(4 * LANES), aligned(4)));

/* Two vectors of weights: one behind the other, or the lower and the upper halves of 32 bits. */
static inline void pair_f32(const float *weights, lanes *x, lanes *y) {
  *x = *(const lanes *)weights;
  *y = *(const lanes *)(weights + LANES);
}
static inline void pair_bf16(const uint16_t *weights, lanes *x, lanes *y) {
  bits both = *(const bits *)weights;
  *x = (lanes)(both << 16);
  *y = (lanes)(both & 0xffff0000u);
}
"""

# weight_hh lies as [C / LANES][P][4 gates][LANES], weight_hr as [P / (2 LANES)][C][2][LANES].
FEW = r"""
static void gates_and_cell_NAME(const TYPE *gates, const TYPE *weights, const float *hidden, float *cell,
                                float *cell_outputs, float before_clip, float cell_clip, long cells, long size) {
  float sum[4 * LANES];
  lanes i, f, g, o;
  for (long k = 0; k < 4 * LANES; k++) sum[k] = widen_NAME(gates[k / LANES * cells + k % LANES]);
  i = ((lanes *)sum)[0], f = ((lanes *)sum)[1], g = ((lanes *)sum)[2], o = ((lanes *)sum)[3];
  for (long p = 0; p < size; p++, weights += 4 * LANES) {
    lanes x, y, z, u;
    pair_NAME(weights, &x, &y);
    pair_NAME(weights + 2 * LANES, &z, &u);
    i += x * hidden[p], f += y * hidden[p], g += z * hidden[p], o += u * hidden[p];
  }
  ((lanes *)sum)[0] = i, ((lanes *)sum)[1] = f, ((lanes *)sum)[2] = g, ((lanes *)sum)[3] = o;
  forward_row_f32(sum, sum, cell, cell, cell_outputs, before_clip, cell_clip, LANES, 0);
}

static void project_NAME(const TYPE *weights, const float *cell_outputs, float *projected, long cells) {
  lanes x, y, low[2] = {{0}, {0}}, high[2] = {{0}, {0}};
  for (long k = 0; k < cells; k += 2, weights += 4 * LANES) {
    pair_NAME(weights, &x, &y);
    low[0] += x * cell_outputs[k], high[0] += y * cell_outputs[k];
    pair_NAME(weights + 2 * LANES, &x, &y);
    low[1] += x * cell_outputs[k + 1], high[1] += y * cell_outputs[k + 1];
  }
  ((lanes *)projected)[0] = low[0] + low[1], ((lanes *)projected)[1] = high[0] + high[1];
}

/* hidden [rows][size], cell and cell_outputs [rows][cells]: the rows of step t are the first sizes[t] of them. */
static void direction_NAME(const TYPE *gates, const TYPE *weight_hh, const TYPE *weight_hr, float *hidden, float *cell,
                           float *cell_outputs, TYPE *outputs, const int64_t *sizes, long steps, long cells, long size,
                           float before_clip, float cell_clip, float proj_clip) {
  for (long t = 0; t < steps; t++, before_clip = cell_clip) {
    for (long n = 0; n < cells; n += LANES) {
      long k = t % 2 ? cells - LANES - n : n; /* what was read last is in the cache */
      for (long b = 0; b < sizes[t]; b++)
        gates_and_cell_NAME(gates + b * 4 * cells + k, weight_hh + k * 4 * size, hidden + b * size,
                            cell + b * cells + k, cell_outputs + b * cells + k, before_clip, cell_clip, cells, size);
    }
    const float *state = weight_hr ? hidden : cell_outputs;
    for (long n = 0; weight_hr && n < size; n += 2 * LANES) {
      long p = t % 2 ? size - 2 * LANES - n : n;
      for (long b = 0; b < sizes[t]; b++)
        project_NAME(weight_hr + p * cells, cell_outputs + b * cells, hidden + b * size + p, cells);
    }
    for (long k = 0; k < sizes[t] * size; k++) {
      outputs[k] = narrow_NAME(weight_hr ? clipped(state[k], proj_clip) : state[k]);
      hidden[k] = widen_NAME(outputs[k]);
    }
    gates += sizes[t] * 4 * cells, outputs += sizes[t] * size;
  }
}

void few_NAME(const TYPE *const *gates, const TYPE *const *weight_hh, const TYPE *const *weight_hr, float *hidden,
              float *cell, float *cell_outputs, TYPE *const *outputs, const int64_t *sizes, long steps,
              long directions, long rows, long cells, long size, float before_clip, float cell_clip, float proj_clip,
              int threads) {
  #pragma omp parallel for num_threads(threads)
  for (long d = 0; d < directions; d++)
    direction_NAME(gates[d], weight_hh[d], weight_hr[d], hidden + d * rows * size, cell + d * rows * cells,
                   cell_outputs + d * rows * cells, outputs[d], sizes, steps, cells, size, before_clip, cell_clip,
                   proj_clip);
}
"""

SOURCE = COMMON + FORWARD_ROW.replace("NAME", "f32").replace("TYPE", "float") + VECTORS
SOURCE += "".join(FEW.replace("NAME", name).replace("TYPE", type_) for name, type_ in TYPES.values())


@functools.cache
def load() -> ctypes.CDLL | None:
    """The compiled functions, or `None` where they cannot be compiled."""
    library = compile_library(SOURCE)
    for name, _ in TYPES.values() if library is not None else ():
        function = getattr(library, f"few_{name}")
        function.argtypes = [ctypes.c_void_p] * 8 + [ctypes.c_long] * 5 + [ctypes.c_float] * 3 + [ctypes.c_int]
        function.restype = None
    return library


def fits(inputs: Tensor, state: Tensor, size: int, cells: int) -> bool:
    """Whether [`run_few`] takes `inputs [directions, words, input]`, a cell of that state and layers of these sizes.

    With more threads than directions, products that share the work of one row among all threads are faster.
    """
    known = inputs.dtype in TYPES and state.dtype == torch.float32 and torch.get_num_threads() <= len(inputs)
    return known and size % (2 * LANES) == 0 and cells % LANES == 0 and load() is not None


def few_recurrent_layout(weight: Tensor) -> Tensor:
    """`weight_hh [4C, P]` as the functions read it."""
    blocks = weight.view(2, 2, -1, LANES, weight.shape[1])  # two pairs of gates
    order = (2, 4, 0, 1, 3) if weight.dtype == torch.float32 else (2, 4, 0, 3, 1)
    return blocks.permute(order).contiguous()


def few_projection_layout(weight: Tensor) -> Tensor:
    """`weight_hr [P, C]` as the functions read it."""
    blocks = weight.view(-1, 2, LANES, weight.shape[1])
    return blocks.permute((0, 3, 1, 2) if weight.dtype == torch.float32 else (0, 3, 2, 1)).contiguous()


def run_few(
    sizes: Sequence[int],
    gates: Sequence[Tensor],
    hidden: Tensor,
    cell: Tensor,
    weights_hh: Sequence[Tensor],
    weights_hr: Sequence[Tensor] | None,
    clips: tuple[float | None, float | None, float | None],
    outputs: Sequence[Tensor],
) -> None:
    """Steps of several directions, each on a thread of its own while there are threads.

    Args:
        sizes: rows of each step, never rising.
        gates: for each direction `[words, 4C]`, the input half, bias included.
        hidden, cell: `[directions, rows, P]` and `[directions, rows, C]` float32, contiguous: the state, overwritten by
            that of each row's last step (the cell before its clip).
        weights_hh, weights_hr: for each direction, laid out by [`few_recurrent_layout`] and [`few_projection_layout`].
        clips: on the cell before the first step, on later cells, on the projection.
        outputs: for each direction `[words, P]`, contiguous, written.
    """
    (directions, rows, size), cells = hidden.shape, cell.shape[2]
    cell_outputs, numbers = torch.empty_like(cell), torch.tensor(sizes, device="cpu")
    nothing = [None] * directions
    getattr(load(), f"few_{TYPES[outputs[0].dtype][0]}")(
        *(pointers(gates), pointers(weights_hh), pointers(weights_hr or nothing)),
        *(hidden.data_ptr(), cell.data_ptr(), cell_outputs.data_ptr(), pointers(outputs), numbers.data_ptr()),
        *(len(sizes), directions, rows, cells, size),
        *(math.inf if bound is None else bound for bound in clips),
        min(directions, torch.get_num_threads()),
    )
