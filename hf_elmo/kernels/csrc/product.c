/* float32 products of rows with a weight, and the highway layer. The result of a row does not depend on the number of
 * rows or on their addresses. Libraries choose their loops by both, so that their rounding differs.
 *
 * Weights are in blocks of LANES columns, [block][depth][LANES], so that loops read consecutive addresses. Each CHUNK
 * of products is summed separately before it is added to the total: its weights stay in the L1 cache for all rows of a
 * group, and long sums are as exact as a library's.
 */
#include "elmo.h"
#include "threads.h"

enum { COLUMNS = PRODUCT_COLUMNS, CHUNK = 128, GROUP = 96 };
enum { ROWS = 6, WIDTH = VECTOR == 16 ? 4 : 2 }; /* the sums of this many rows and vectors fit into the registers */

/* Adds x [rows][CHUNK] * weights [count][LANES] to sums [rows][COLUMNS], for WIDTH vectors of columns; the weights of
   the next LANES columns are `next` numbers further on. */
INLINE void some_columns(const float *x, const float *weights, i64 next, float *sums, i64 count, const int rows) {
  vector sum[ROWS][WIDTH];
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < WIDTH; v++) sum[r][v] = (vector){0};
  for (i64 k = 0; k < count; k++)
    for (int r = 0; r < rows; r++)
      for (int v = 0; v < WIDTH; v++)
        sum[r][v] += x[r * CHUNK + k] * load(weights + v / VECTORS * next + k * LANES + v % VECTORS * VECTOR);
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < WIDTH; v++) {
      float *of_row = sums + r * COLUMNS + v * VECTOR;
      store(of_row, load(of_row) + sum[r][v]);
    }
}

static void one_block(const void *data, i64 n, i64 thread) {
  const struct product *p = data;
  i64 blocks = (p->columns + COLUMNS - 1) / COLUMNS, begin = n / blocks * GROUP, column = n % blocks * COLUMNS, now;
  i64 rows = p->rows - begin < GROUP ? p->rows - begin : GROUP;
  i64 columns = p->columns - column < COLUMNS ? p->columns - column : COLUMNS;
  float sums[GROUP * COLUMNS], x[GROUP * CHUNK];
  (void)thread;
  for (i64 row = 0; row < rows; row++) memcpy(sums + row * COLUMNS, p->bias + column, 4 * COLUMNS);
  for (i64 first = 0; first < p->depth; first += CHUNK) {
    i64 count = p->depth - first < CHUNK ? p->depth - first : CHUNK;
    for (i64 row = 0; row < rows; row++)
      memcpy(x + row * CHUNK, p->x + (begin + row) * p->depth + first, 4 * (size_t)count);
    for (i64 k = 0; k < columns; k += WIDTH * VECTOR) {
      const float *weights = p->weights + (column + k) / LANES * LANES * p->depth + first * LANES + k % LANES;
      for (i64 row = 0; row < rows; row += now) {
        now = rows - row < ROWS ? 1 : ROWS;
        if (now == ROWS)
          some_columns(x + row * CHUNK, weights, LANES * p->depth, sums + row * COLUMNS + k, count, ROWS);
        else
          some_columns(x + row * CHUNK, weights, LANES * p->depth, sums + row * COLUMNS + k, count, 1);
      }
    }
  }
  for (i64 row = 0; row < rows; row++)
    memcpy(p->sums + (begin + row) * p->columns + column, sums + row * COLUMNS, 4 * (size_t)columns);
}

/* GROUP rows and COLUMNS columns at a time. */
void product(const struct product *p) {
  i64 blocks = (p->columns + COLUMNS - 1) / COLUMNS, groups = (p->rows + GROUP - 1) / GROUP;
  share_out(one_block, p, groups * blocks, p->threads);
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

/* The loop is over rows, so that a number's SIMD lane depends on its column only: numbers after the last full vector
   may round differently. */
void highway(const struct highway *x) { share_out(one_row, x, x->rows, x->threads); }
