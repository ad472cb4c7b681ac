/* Inference over a small batch: a direction of a layer in one call.
 *
 * With one row a step multiplies a vector by each weight once: reading the weights takes the time, and so do the calls.
 * A thread, or several threads that share its cells and outputs, run a direction from its first word to its last, so
 * that a small layer's weights stay in these cores' caches; a larger layer's, read upwards and downwards in turn, do in
 * part.
 */
#include "elmo.h"
#include "threads.h"

struct range {
  i64 begin, end;
};
INLINE struct range share(i64 total, i64 part, i64 parts) {
  return (struct range){total * part / parts, total * (part + 1) / parts};
}

/* Vector v of two times LANES weights: one behind the other, or the lower and the upper halves of 32 bits. */
INLINE void pair_f32(const f32 *weights, int v, vector *x, vector *y) {
  *x = *(const vector *)(weights + v * VECTOR);
  *y = *(const vector *)(weights + LANES + v * VECTOR);
}
INLINE void pair_bf16(const bf16 *weights, int v, vector *x, vector *y) {
  bits both = *(const bits *)(weights + 2 * v * VECTOR);
  *x = (vector)(both << 16);
  *y = (vector)(both & 0xffff0000u);
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
