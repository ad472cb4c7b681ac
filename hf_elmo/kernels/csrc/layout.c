/* The layout of weights that products read: LANES rows of a float32 matrix side by side, and groups of LANES rows in a
 * block. The matrix is read once, one cache line of each row at a time, so that writes stay in the L1 cache. */
#include "elmo.h"
#include "threads.h"

enum { AT_ONCE = 16, PIECE = 256 }; /* columns of a cache line, and of a thread's piece */

static void lay_out_piece(const void *data, i64 n, i64 thread) {
  const struct layout *x = data;
  i64 pieces = (x->depth + PIECE - 1) / PIECE, block = n / pieces, begin = n % pieces * PIECE;
  i64 end = x->depth - begin < PIECE ? x->depth : begin + PIECE, columns = x->groups * LANES;
  (void)thread;
  for (i64 first = begin; first < end; first += AT_ONCE) {
    i64 count = end - first < AT_ONCE ? end - first : AT_ONCE;
    float *target = x->laid_out + (block * x->depth + first) * columns;
    for (i64 column = 0; column < columns; column++) {
      i64 row = block * x->block_step + column / LANES * x->group_step + column % LANES;
      const float *source = x->weight + row * x->depth + first;
      for (i64 k = 0; k < count; k++) target[k * columns + column] = row < x->rows ? source[k] : 0.f;
    }
  }
}

void layout(const struct layout *x) {
  share_evenly(lay_out_piece, x, x->blocks * ((x->depth + PIECE - 1) / PIECE), x->threads);
}
