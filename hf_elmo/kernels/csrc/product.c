/* float32 products of rows with a weight, and the highway between two, each row by itself: what a row gives does not
 * depend on how many rows there are, nor on where they lie, as it does with libraries that choose their loops by both.
 *
 * Weights lie in blocks of COLUMNS: [block][k][COLUMNS]. A block stays in the L2 cache for all rows. Sums of CHUNK
 * products are added up by themselves, so that a long sum is rounded as little as a library's.
 */
#include "elmo.h"
#include "threads.h"

typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));

enum { COLUMNS = PRODUCT_COLUMNS, VECTORS = COLUMNS / LANES, CHUNK = 128, GROUP = 96 };
#ifdef __AVX512F__
enum { ROWS = 6 }; /* their sums, VECTORS each, fit into the registers */
#else
enum { ROWS = 2 };
#endif

/* sums [rows][COLUMNS] = bias + x [rows][depth] * weights [depth][COLUMNS] */
INLINE void some_rows(const float *x, const float *weights, const float *bias, float *sums, long sums_step, long depth,
                      long columns, const int rows) {
  lanes total[ROWS][VECTORS];
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < VECTORS; v++) total[r][v] = ((const lanes *)bias)[v];
  for (long first = 0; first < depth; first += CHUNK) {
    long end = depth - first < CHUNK ? depth : first + CHUNK;
    lanes sum[ROWS][VECTORS];
    for (int r = 0; r < rows; r++)
      for (int v = 0; v < VECTORS; v++) sum[r][v] = (lanes){0};
    for (long k = first; k < end; k++) {
      const lanes *weight = (const lanes *)(weights + k * COLUMNS);
      for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++) sum[r][v] += x[r * depth + k] * weight[v];
    }
    for (int r = 0; r < rows; r++)
      for (int v = 0; v < VECTORS; v++) total[r][v] += sum[r][v];
  }
  for (int r = 0; r < rows; r++) memcpy(sums + r * sums_step, total[r], 4 * columns);
}

static void all_rows(const float *x, const float *weights, const float *bias, float *sums, long sums_step, long rows,
                     long depth, long columns) {
  for (; rows >= ROWS; rows -= ROWS, x += ROWS * depth, sums += ROWS * sums_step)
    some_rows(x, weights, bias, sums, sums_step, depth, columns, ROWS);
  for (; rows > 0; rows--, x += depth, sums += sums_step)
    some_rows(x, weights, bias, sums, sums_step, depth, columns, 1);
}

/* sums [rows][columns] = bias [blocks * COLUMNS] + x [rows][depth] * weights [blocks][depth][COLUMNS], GROUP rows at a
   time: they stay in the L2 cache for all blocks. */
void product(const float *x, const float *weights, const float *bias, float *sums, long rows, long depth, long columns,
             int threads) {
  long blocks = (columns + COLUMNS - 1) / COLUMNS, groups = (rows + GROUP - 1) / GROUP;
  (void)threads; /* without OpenMP */
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (long n = 0; n < groups * blocks; n++) {
    long block = n % blocks, first = n / blocks * GROUP, rest = columns - block * COLUMNS;
    all_rows(x + first * depth, weights + block * depth * COLUMNS, bias + block * COLUMNS,
             sums + first * columns + block * COLUMNS, columns, rows - first < GROUP ? rows - first : GROUP, depth,
             rest < COLUMNS ? rest : COLUMNS);
  }
}

/* x = g * max(transform, 0) + (1 - g) * x, where g = sigmoid(carry); all [rows][columns]. By rows, so that a number's
   place among the lanes depends on its column alone: what is left of a row over whole vectors may be rounded otherwise. */
void highway(float *x, const float *carry, const float *transform, long rows, long columns, int threads) {
  (void)threads;
#pragma omp parallel for num_threads(threads)
  for (long row = 0; row < rows; row++) {
    float *own = x + row * columns;
    const float *gates = carry + row * columns, *others = transform + row * columns;
#pragma omp simd
    for (long k = 0; k < columns; k++) {
      float gate = 1.f / sigmoid_denominator(gates[k]), other = others[k] < 0.f ? 0.f : others[k];
      own[k] = gate * other + (1.f - gate) * own[k];
    }
  }
}
