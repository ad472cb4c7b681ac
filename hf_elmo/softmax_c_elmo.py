"""The sampled softmax's odds in C, for the CPU: one pass over a row of logits in the cache instead of four over all.

Compiled as c_library_elmo.py says; where that is not possible, PyTorch's operations do the work.
"""

import ctypes
import functools

import torch
from torch import Tensor

from .c_library_elmo import compile_library
from .lstm_c_elmo import COMMON, TYPES

ODDS = r"""
/* Each row of logits [rows][size] becomes e^(logit - top), 0 at its hit (-1: none); top is the largest of its logits
   and its true one, total the sum of the row and of e^(true - top). */
void odds_NAME(TYPE *logits, const float *truth, const int64_t *hits, float *tops, float *totals, long rows,
               long size, int threads) {
  #pragma omp parallel for num_threads(threads)
  for (long row = 0; row < rows; row++) {
    TYPE *x = logits + row * size;
    if (hits[row] >= 0)
      x[hits[row]] = narrow_NAME(-INFINITY);
    float top = truth[row];
    #pragma omp simd reduction(max: top)
    for (long k = 0; k < size; k++) {
      float logit = widen_NAME(x[k]);
      top = logit > top ? logit : top;
    }
    float total = exp_below_zero(truth[row] - top);
    #pragma omp simd reduction(+: total)
    for (long k = 0; k < size; k++) {
      float odds = exp_below_zero(widen_NAME(x[k]) - top);
      total += odds;
      x[k] = narrow_NAME(odds);
    }
    if (hits[row] >= 0)
      x[hits[row]] = 0;
    tops[row] = top;
    totals[row] = total;
  }
}
"""
SOURCE = COMMON + "".join(ODDS.replace("NAME", name).replace("TYPE", type_) for name, type_ in TYPES.values())


@functools.cache
def load() -> ctypes.CDLL | None:
    """The compiled functions, or `None` where they cannot be compiled."""
    library = compile_library(SOURCE)
    if library is not None:
        for name, _ in TYPES.values():
            declared = getattr(library, f"odds_{name}")
            declared.argtypes = [*[ctypes.c_void_p] * 5, ctypes.c_long, ctypes.c_long, ctypes.c_int]
            declared.restype = None
    return library


def can_run(logits: Tensor) -> bool:
    """Whether the odds of such logits can be computed in C."""
    return logits.device.type == "cpu" and logits.dtype in TYPES and load() is not None


def odds_(logits: Tensor, true_logits: Tensor, hits: Tensor) -> tuple[Tensor, Tensor]:
    """As `softmax_elmo._torch_odds_`, for contiguous logits that [`can_run`] takes."""
    true_logits, hits = true_logits.contiguous(), hits.contiguous()
    tops, totals = torch.empty_like(true_logits), torch.empty_like(true_logits)
    pointers = [x.data_ptr() for x in (logits, true_logits, hits)]
    function = getattr(load(), f"odds_{TYPES[logits.dtype][0]}")
    function(*pointers, tops.data_ptr(), totals.data_ptr(), *logits.shape, torch.get_num_threads())
    return tops, totals
