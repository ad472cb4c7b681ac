/* float32 products of rows with a weight, and the highway layer. The result of a row does not depend on the number of
 * rows or on their addresses. Libraries choose their loops by both, so that their rounding differs.
 *
 * Weights are in blocks of COLUMNS: [block][k][COLUMNS]. A block stays in the L2 cache for all rows. Each CHUNK of
 * products is summed separately before it is added to the total, so that long sums are as exact as a library's.
 */
#include "elmo.h"
#include "threads.h"

enum { COLUMNS = PRODUCT_COLUMNS, CHUNK = 128, GROUP = 96 };
#ifdef __AVX512F__
enum { ROWS = 6, WIDTH = 4 }; /* the sums of this many rows and vectors fit into the registers */
#else
enum { ROWS = 6, WIDTH = 2 };
#endif

/* sums [rows][WIDTH * VECTOR] = bias + x [rows][depth] * weights [depth][COLUMNS] */
INLINE void some_columns(const float *x, const float *weights, const float *bias, float *sums, i64 sums_step, i64 depth,
                         i64 columns, const int rows) {
  vector total[ROWS][WIDTH];
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < WIDTH; v++) total[r][v] = ((const vector *)bias)[v];
  for (i64 first = 0; first < depth; first += CHUNK) {
    i64 end = depth - first < CHUNK ? depth : first + CHUNK;
    vector sum[ROWS][WIDTH];
    for (int r = 0; r < rows; r++)
      for (int v = 0; v < WIDTH; v++) sum[r][v] = (vector){0};
    for (i64 k = first; k < end; k++) {
      const vector *weight = (const vector *)(weights + k * COLUMNS);
      for (int r = 0; r < rows; r++)
        for (int v = 0; v < WIDTH; v++) sum[r][v] += x[r * depth + k] * weight[v];
    }
    for (int r = 0; r < rows; r++)
      for (int v = 0; v < WIDTH; v++) total[r][v] += sum[r][v];
  }
  for (int r = 0; r < rows; r++) memcpy(sums + r * sums_step, total[r], 4 * columns);
}

INLINE void some_rows(const float *x, const float *weights, const float *bias, float *sums, i64 sums_step, i64 depth,
                      i64 columns, const int rows) {
  for (i64 n = 0; n < columns; n += WIDTH * VECTOR) {
    i64 rest = columns - n;
    some_columns(x, weights + n, bias + n, sums + n, sums_step, depth, rest < WIDTH * VECTOR ? rest : WIDTH * VECTOR,
                 rows);
  }
}

static void all_rows(const float *x, const float *weights, const float *bias, float *sums, i64 sums_step, i64 rows,
                     i64 depth, i64 columns) {
  for (; rows >= ROWS; rows -= ROWS, x += ROWS * depth, sums += ROWS * sums_step)
    some_rows(x, weights, bias, sums, sums_step, depth, columns, ROWS);
  for (; rows > 0; rows--, x += depth, sums += sums_step)
    some_rows(x, weights, bias, sums, sums_step, depth, columns, 1);
}

static void one_block(const void *data, i64 n, i64 thread) {
  const struct product *p = data;
  i64 blocks = (p->columns + COLUMNS - 1) / COLUMNS, first = n / blocks * GROUP, column = n % blocks * COLUMNS;
  i64 rest = p->columns - column;
  (void)thread;
  all_rows(p->x + first * p->depth, p->weights + column * p->depth, p->bias + column,
           p->sums + first * p->columns + column, p->columns, p->rows - first < GROUP ? p->rows - first : GROUP,
           p->depth, rest < COLUMNS ? rest : COLUMNS);
}

/* GROUP rows at a time: these rows stay in the L2 cache for all blocks. */
void product(const struct product *p) {
  i64 blocks = (p->columns + COLUMNS - 1) / COLUMNS, groups = (p->rows + GROUP - 1) / GROUP;
  share_in_order(one_block, p, groups * blocks, p->threads);
}

static void one_row(const void *data, i64 row, i64 thread) {
  const struct highway *layer = data;
  float *x = layer->x + row * layer->columns;
  const float *gates = layer->carry + row * layer->columns, *others = layer->transform + row * layer->columns;
  (void)thread;
#pragma omp simd
  for (i64 k = 0; k < layer->columns; k++) {
    float gate = 1.f / sigmoid_denominator(gates[k]), other = others[k] < 0.f ? 0.f : others[k];
    x[k] = gate * other + (1.f - gate) * x[k];
  }
}

/* The loop is over rows, so that a number's SIMD lane depends on its column only: numbers after the last full vector may
   round differently. */
void highway(const struct highway *x) { share_evenly(one_row, x, x->rows, x->threads); }
