/* Inference over a small batch: many steps of a layer, in all directions, in one call.
 *
 * A step with one row uses each weight only once, so most of the time is spent on reading the weights. Separate calls
 * for the steps would also take long. All steps of a direction run on one thread, or on several threads that divide the
 * cells and outputs, so that the weights of a small layer stay in the cores' caches. The weights of a larger layer stay
 * there in part, because consecutive steps read them in opposite orders.
 */
#include "elmo.h"
#include "threads.h"

struct range {
  i64 begin, end;
};
INLINE struct range share(i64 total, i64 part, i64 parts) {
  return (struct range){total * part / parts, total * (part + 1) / parts};
}

/* Vector v of two groups of LANES weights. The groups are consecutive (f32), or the halves of 32-bit numbers (bf16). */
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
