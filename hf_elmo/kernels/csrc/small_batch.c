/* Inference over a small batch: a direction of a layer in one call.
 *
 * With one row a step multiplies a vector by each weight once: reading the weights takes the time, and so do the calls.
 * A thread, or several threads that share its cells and outputs, run a direction from its first word to its last, so
 * that a small layer's weights stay in these cores' caches; a larger layer's, read upwards and downwards in turn, do in
 * part.
 */
#include "elmo.h"
#include "threads.h"

typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint32_t bits __attribute__((vector_size(4 * LANES), aligned(4)));

struct range {
  long begin, end;
};
INLINE struct range share(long total, long part, long parts) {
  return (struct range){total * part / parts, total * (part + 1) / parts};
}

INLINE void barrier(long parts) {
  if (parts > 1) {
#pragma omp barrier
  }
}

/* Two vectors of weights: one behind the other, or the lower and the upper halves of 32 bits. */
INLINE void pair_f32(const f32 *weights, lanes *x, lanes *y) {
  *x = *(const lanes *)weights;
  *y = *(const lanes *)(weights + LANES);
}
INLINE void pair_bf16(const bf16 *weights, lanes *x, lanes *y) {
  bits both = *(const bits *)weights;
  *x = (lanes)(both << 16);
  *y = (lanes)(both & 0xffff0000u);
}

#define ROWS_ONLY
#define TYPE f32
#include "cells_of_type.h"
#undef TYPE

#define TYPE f32
#include "small_batch_of_type.h"
#undef TYPE
#define TYPE bf16
#include "small_batch_of_type.h"
#undef TYPE
