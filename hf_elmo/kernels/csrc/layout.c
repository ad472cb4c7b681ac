/* Weights as the products read them: LANES rows of a float32 matrix side by side, and groups of such rows in a block. The
 * matrix is read once, a line of the cache of each row at a time, and what is written then is still in the L1 cache. */
#include "elmo.h"
#include "threads.h"

enum { AT_ONCE = 16, PIECE = 256 }; /* columns: of a line of the cache, and of a thread's share */

/* laid_out [blocks][depth][groups][LANES] of weight [rows][depth]. Group g of block b begins with row
 * b * block_step + g * group_step; rows that the matrix does not have are 0. */
void lay_out(const float *weight, float *laid_out, long rows, long depth, long blocks, long groups, long block_step,
             long group_step, int threads) {
  long pieces = (depth + PIECE - 1) / PIECE, columns = groups * LANES;
  (void)threads; /* without OpenMP */
#pragma omp parallel for num_threads(threads)
  for (long n = 0; n < blocks * pieces; n++) {
    long block = n / pieces, begin = n % pieces * PIECE, end = depth - begin < PIECE ? depth : begin + PIECE;
    for (long first = begin; first < end; first += AT_ONCE) {
      long number = end - first < AT_ONCE ? end - first : AT_ONCE;
      float *target = laid_out + (block * depth + first) * columns;
      for (long column = 0; column < columns; column++) {
        long row = block * block_step + column / LANES * group_step + column % LANES;
        for (long k = 0; k < number; k++)
          target[k * columns + column] = row < rows ? weight[row * depth + first + k] : 0.f;
      }
    }
  }
}
