/* The layout of weights that products read: LANES rows of a float32 matrix side by side, and groups of LANES rows in a
 * block. The matrix is read once, one cache line of each row at a time, so that writes stay in the L1 cache. */
#include "elmo.h"
#include "threads.h"

enum { AT_ONCE = 16, PIECE = 256 }; /* columns of a cache line, and of a thread's piece */

struct layout {
  const float *weight;
  float *laid_out;
  i64 rows, depth, groups, block_step, group_step, pieces;
};

static void lay_out_piece(const void *data, i64 n, i64 thread) {
  const struct layout *x = data;
  i64 block = n / x->pieces, begin = n % x->pieces * PIECE, columns = x->groups * LANES;
  i64 end = x->depth - begin < PIECE ? x->depth : begin + PIECE;
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

/* Writes laid_out [blocks][depth][groups][LANES] from weight [rows][depth]. Group g of block b begins with row
 * b * block_step + g * group_step; rows beyond the end of the matrix are 0. */
void lay_out(const float *weight, float *laid_out, i64 rows, i64 depth, i64 blocks, i64 groups, i64 block_step,
             i64 group_step, int threads) {
  i64 pieces = (depth + PIECE - 1) / PIECE;
  struct layout x = {weight, laid_out, rows, depth, groups, block_step, group_step, pieces};
  share_evenly(lay_out_piece, &x, blocks * pieces, threads);
}
