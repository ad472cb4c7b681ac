"""The LSTM's cell in C, for the CPU: one pass over the gates instead of a dozen, two to four times as fast.

Compiled as c_library_elmo.py says; where that is not possible, PyTorch's operations do the work.
"""

import ctypes
import functools
import math

import torch
from torch import Tensor

from .c_library_elmo import compile_library
from .lstm_cell_elmo import Cell

COMMON = r"""
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float widen_f32(float x) { return x; }
static inline float narrow_f32(float x) { return x; }
static inline float widen_bf16(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  float y;
  memcpy(&y, &bits, 4);
  return y;
}
static inline uint16_t narrow_bf16(float x) { /* to the nearest, ties to even */
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return x != x ? 0x7fc0 : (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static inline float clipped(float x, float bound) {
  x = x > bound ? bound : x;
  return x < -bound ? -bound : x;
}

/* e^x = 2^n e^r, with Cephes' polynomial for e^r, for x of which 2^n is a number. */
static inline float exp_limited(float x) {
  float n = nearbyintf(x * 1.44269504f);
  float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.f;
  int32_t bits = ((int32_t)n + 127) << 23;
  float power;
  memcpy(&power, &bits, 4);
  return p * power;
}

/* e^x for x that is not above zero; what is below 1e-37 stays there. */
static inline float exp_below_zero(float x) { return exp_limited(x < -86.f ? -86.f : x); }

/* 1 + e^-x, the denominator of sigmoid(x). Beyond 28 a sigmoid is 1e-12 from its limit, and the product of three such
   denominators still is a number. */
static inline float sigmoid_below(float x) { return 1.f + exp_limited(clipped(-x, 28.f)); }

/* tanh(x) = above / below, the rational approximation that Eigen uses: a few units in the last place, near zero too. */
static inline float tanh_limited(float x) { return clipped(x, 7.90531110763549805f); }
static inline float tanh_above(float x) {
  float y = x * x, p = -2.76076847742355e-16f;
  p = p * y + 2.00018790482477e-13f;
  p = p * y - 8.60467152213735e-11f;
  p = p * y + 5.12229709037114e-08f;
  p = p * y + 1.48572235717979e-05f;
  p = p * y + 6.37261928875436e-04f;
  p = p * y + 4.89352455891786e-03f;
  return x * p;
}
static inline float tanh_below(float x) {
  float y = x * x, q = 1.19825839466702e-06f;
  q = q * y + 1.18534705686654e-04f;
  q = q * y + 2.26843463243900e-03f;
  return q * y + 4.89352518554385e-03f;
}
"""

# For each type of the matrix products. A division takes as long as ten other operations: several quotients share one.
FORWARD_ROW = r"""
static inline __attribute__((always_inline)) void forward_row_NAME(
    TYPE *gates, const TYPE *recurrent, const float *before, float *cells, TYPE *hidden,
    float before_clip, float cell_clip, long size, int add) {
  #pragma omp simd
  for (long k = 0; k < size; k++) {
    float i = widen_NAME(gates[k]), f = widen_NAME(gates[k + size]);
    float g = widen_NAME(gates[k + 2 * size]), o = widen_NAME(gates[k + 3 * size]);
    if (add) {
      i += widen_NAME(recurrent[k]);
      f += widen_NAME(recurrent[k + size]);
      g += widen_NAME(recurrent[k + 2 * size]);
      o += widen_NAME(recurrent[k + 3 * size]);
      gates[k] = narrow_NAME(i);
      gates[k + size] = narrow_NAME(f);
      gates[k + 2 * size] = narrow_NAME(g);
      gates[k + 3 * size] = narrow_NAME(o);
    }
    g = tanh_limited(g);
    float below_f = sigmoid_below(f), below_ig = sigmoid_below(i) * tanh_below(g);
    float c = (clipped(before[k], before_clip) * below_ig + tanh_above(g) * below_f) / (below_f * below_ig);
    cells[k] = c;
    float t = tanh_limited(clipped(c, cell_clip));
    hidden[k] = narrow_NAME(tanh_above(t) / (sigmoid_below(o) * tanh_below(t)));
  }
}
"""

# `..._d` is the distance from one direction to the next; rows follow one another.
CELL = (
    FORWARD_ROW
    + r"""
#define FORWARD(FUNCTION, ADD) \
void FUNCTION(TYPE *gates, long gates_d, const TYPE *recurrent, long recurrent_d, const float *before, \
              long before_d, float *cells, long cells_d, TYPE *hidden, long hidden_d, float before_clip, \
              float cell_clip, long directions, long rows, long size, int threads) { \
  _Pragma("omp parallel for num_threads(threads)") \
  for (long n = 0; n < directions * rows; n++) { \
    long d = n / rows, row = n % rows * size; \
    forward_row_NAME(gates + d * gates_d + 4 * row, recurrent + d * recurrent_d + 4 * row, \
                     before + d * before_d + row, cells + d * cells_d + row, hidden + d * hidden_d + row, \
                     before_clip, cell_clip, size, ADD); \
  } \
}
FORWARD(forward_NAME, 1)
FORWARD(infer_NAME, 0)
#undef FORWARD

void backward_NAME(const TYPE *gates, long gates_d, const float *before, long before_d, const float *cells,
                   long cells_d, const TYPE *grad_hidden, long grad_hidden_d, float *grad_cell, long grad_cell_d,
                   TYPE *grad_gates, long grad_gates_d, float before_clip, float cell_clip,
                   long directions, long rows, long size, int threads) {
  #pragma omp parallel for num_threads(threads)
  for (long n = 0; n < directions * rows; n++) {
    long d = n / rows, row = n % rows * size;
    const TYPE *gate = gates + d * gates_d + 4 * row, *grad_h = grad_hidden + d * grad_hidden_d + row;
    const float *previous = before + d * before_d + row, *cell = cells + d * cells_d + row;
    float *grad_c = grad_cell + d * grad_cell_d + row;
    TYPE *grad_gate = grad_gates + d * grad_gates_d + 4 * row;
    #pragma omp simd
    for (long k = 0; k < size; k++) {
      float c = cell[k], from_h = widen_NAME(grad_h[k]);
      float t = tanh_limited(clipped(c, cell_clip)), g = tanh_limited(widen_NAME(gate[k + 2 * size]));
      float below_t = tanh_below(t), below_g = tanh_below(g), tanhs = 1.f / (below_t * below_g);
      t = tanh_above(t) * below_g * tanhs;
      g = tanh_above(g) * below_t * tanhs;
      float below_i = sigmoid_below(widen_NAME(gate[k])), below_f = sigmoid_below(widen_NAME(gate[k + size]));
      float below_o = sigmoid_below(widen_NAME(gate[k + 3 * size])), sigmoids = 1.f / (below_i * below_f * below_o);
      float i = below_f * below_o * sigmoids, f = below_i * below_o * sigmoids, o = below_i * below_f * sigmoids;
      float grad = grad_c[k] + from_h * o * (1.f - t * t);
      grad = fabsf(c) > cell_clip ? 0.f : grad;
      grad_gate[k] = narrow_NAME(grad * g * i * (1.f - i));
      grad_gate[k + size] = narrow_NAME(grad * clipped(previous[k], before_clip) * f * (1.f - f));
      grad_gate[k + 2 * size] = narrow_NAME(grad * i * (1.f - g * g));
      grad_gate[k + 3 * size] = narrow_NAME(from_h * t * o * (1.f - o));
      grad_c[k] = grad * f;
    }
  }
}
"""
)

TYPES = {torch.float32: ("f32", "float"), torch.bfloat16: ("bf16", "uint16_t")}
SOURCE = COMMON + "".join(CELL.replace("NAME", name).replace("TYPE", type_) for name, type_ in TYPES.values())
# Below so many numbers to a thread, waking another one costs more than it does.
CELLS_PER_THREAD = 8192


@functools.cache
def load() -> ctypes.CDLL | None:
    """The compiled cell, or `None` where it cannot be compiled."""
    library = compile_library(SOURCE)
    return library and _declare(library)


def c_cell(gates: Tensor, state: Tensor) -> Cell | None:
    """The cell in C where it can work on tensors like these, else `None`."""
    fits = gates.device.type == "cpu" and gates.dtype in TYPES and state.dtype == torch.float32
    return Cell(forward_cell, backward_cell) if fits and load() is not None else None


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    slices, numbers = (
        [ctypes.c_void_p, ctypes.c_long],
        [ctypes.c_float, ctypes.c_float, *[ctypes.c_long] * 3, ctypes.c_int],
    )
    for name, _ in TYPES.values():
        for function, tensors in (("forward", 5), ("infer", 5), ("backward", 6)):
            declared = getattr(library, f"{function}_{name}")
            declared.argtypes, declared.restype = [*slices * tensors, *numbers], None
    return library


def forward_cell(
    gates: Tensor,
    recurrent: Tensor | None,
    before: Tensor,
    before_clip: float | None,
    cell_clip: float | None,
    cells: Tensor,
    hidden: Tensor,
    keep_gates: bool = True,
) -> None:
    """As `lstm_cell_elmo.forward_cell`, for float32 and bfloat16 on the CPU with a float32 state."""
    # Only a sum that is computed here is written back.
    name, recurrent = ("infer", gates) if recurrent is None else ("forward", recurrent)
    _call(name, (gates, recurrent, before, cells, hidden), before_clip, cell_clip, cells)


def backward_cell(
    gates: Tensor,
    before: Tensor,
    before_clip: float | None,
    cell_clip: float | None,
    cells: Tensor,
    grad_hidden: Tensor,
    grad_cell: Tensor,
    grad_gates: Tensor,
) -> None:
    """As `lstm_cell_elmo.backward_cell`, for float32 and bfloat16 on the CPU with a float32 state."""
    tensors = gates, before, cells, grad_hidden, grad_cell, grad_gates
    _call("backward", tensors, before_clip, cell_clip, cells)


def _call(
    name: str, tensors: tuple[Tensor, ...], before_clip: float | None, cell_clip: float | None, cells: Tensor
) -> None:
    pointers = [number for tensor in tensors for number in (tensor.data_ptr(), tensor.stride(0))]
    clips = [math.inf if bound is None else bound for bound in (before_clip, cell_clip)]
    threads = max(1, min(torch.get_num_threads(), cells.numel() // CELLS_PER_THREAD))
    function = getattr(load(), f"{name}_{TYPES[tensors[0].dtype][0]}")
    function(*pointers, *clips, *cells.shape, threads)
