/* Character convolutions and their maxima as sums of table entries, and their gradients.
 *
 * A filter of width w sees w characters. What character c adds at place k of its window is one number, which a table
 * holds, so a window is a sum of w numbers. A block is up to LANES filters of one width; its table fits into the cache,
 * so blocks are the outer loop.
 */
#include <stdlib.h>

#include "elmo.h"

typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t bits __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint16_t starts __attribute__((vector_size(2 * LANES), aligned(2)));

/* Inlined for each width of the published filters: their inner loops are unrolled. */
#define WITH_WIDTH(WIDTH, FUNCTION, ...) \
  switch (WIDTH) { \
  case 1: FUNCTION(__VA_ARGS__, 1); break; \
  case 2: FUNCTION(__VA_ARGS__, 2); break; \
  case 3: FUNCTION(__VA_ARGS__, 3); break; \
  case 4: FUNCTION(__VA_ARGS__, 4); break; \
  case 5: FUNCTION(__VA_ARGS__, 5); break; \
  case 6: FUNCTION(__VA_ARGS__, 6); break; \
  case 7: FUNCTION(__VA_ARGS__, 7); break; \
  default: FUNCTION(__VA_ARGS__, WIDTH); \
  }

/* The last place where a window of a word begins. Windows of padding alone are equal: the first of them is as good as
   all. */
INLINE long last_window(const struct work *work, long word, long width) {
  long last = work->characters - width;
  return last < work->lengths[word] ? last : work->lengths[word];
}

/* maxima [n][filters]: the largest window of each word; NaN counts as the largest, unless all tables are `finite`. With
   `keep`, windows [n][filters] says where the maximum begins, the first of equals. */
INLINE void block_maxima(const struct work *work, long block, const lanes *table, float *maxima, uint16_t *windows,
                         int keep, int finite, long width) {
  long first = work->firsts[block], count = work->counts[block];
  for (long word = 0; word < work->n; word++) {
    const uint16_t *character = work->words + word * work->characters;
    long last = last_window(work, word, width);
    lanes best = (lanes){0} - INFINITY;
    bits window = (bits){0};
    for (long start = 0; start <= last; start++) {
      lanes sum = table[character[start] * width];
      for (long k = 1; k < width; k++) sum += table[character[start + k] * width + k];
      bits larger = finite ? sum > best : (sum > best) | (sum != sum);
      best = (lanes)(((bits)sum & larger) | ((bits)best & ~larger));
      if (keep) window = (((bits){0} + (int32_t)start) & larger) | (window & ~larger);
    }
    memcpy(maxima + word * work->filters + first, &best, 4 * count);
    if (keep) {
      starts narrow = __builtin_convertvector(window, starts);
      memcpy(windows + word * work->filters + first, &narrow, 2 * count);
    }
  }
}

/* tables [vocabulary][width][LANES], one block after the other; finite: all of their numbers are */
void character_maxima(const struct work *work, const float *tables, const int64_t *places, float *maxima, int finite,
                      int threads) {
  (void)threads; /* without OpenMP */
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (long block = 0; block < work->blocks; block++) {
    const lanes *table = (const lanes *)(tables + places[block]);
    if (finite)
      WITH_WIDTH(work->widths[block], block_maxima, work, block, table, maxima, NULL, 0, 1)
    else
      WITH_WIDTH(work->widths[block], block_maxima, work, block, table, maxima, NULL, 0, 0)
  }
}

static lanes *allocate(long numbers) { return aligned_alloc(64, (4 * numbers + 63) / 64 * 64); }

/* weight [count][size][width] as [width][size][LANES], lanes without a filter zero */
static lanes *spread(const float *weight, long size, long width, long count) {
  lanes *columns = allocate(width * size * LANES);
  if (!columns) return NULL;
  memset(columns, 0, 4 * width * size * LANES);
  for (long lane = 0; lane < count; lane++)
    for (long c = 0; c < size; c++)
      for (long k = 0; k < width; k++) columns[k * size + c][lane] = weight[(lane * size + c) * width + k];
  return columns;
}

static void make_table(const float *embedding, long vocabulary, long size, long width, const lanes *columns,
                       const lanes *bias, lanes *table) {
  for (long v = 0; v < vocabulary; v++)
    for (long k = 0; k < width; k++) {
      lanes sum = k ? (lanes){0} : *bias;
      for (long c = 0; c < size; c++) sum += embedding[v * size + c] * columns[k * size + c];
      table[v * width + k] = sum;
    }
}

/* As character_maxima, of embedding [vocabulary][size] and each block's weights [count][size][width] and biases.
   Returns how many blocks found no memory. */
long character_windows(const struct work *work, const float *embedding, long size, const float **weights,
                       const float **biases, float *maxima, uint16_t *windows, int threads) {
  long failed = 0;
  (void)threads;
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(+ : failed)
  for (long block = 0; block < work->blocks; block++) {
    long width = work->widths[block], count = work->counts[block];
    lanes *table = allocate(work->vocabulary * width * LANES), *columns = spread(weights[block], size, width, count);
    if (table && columns) {
      lanes bias = {0};
      memcpy(&bias, biases[block], 4 * count);
      make_table(embedding, work->vocabulary, size, width, columns, &bias, table);
      WITH_WIDTH(width, block_maxima, work, block, table, maxima, windows, 1, 0)
    } else
      failed++;
    free(table);
    free(columns);
  }
  return failed;
}

/* Add the gradient of a block's maxima to that of its table: only the window of a maximum has one. */
INLINE void add_to_table(const struct work *work, long block, const float *grads, const uint16_t *windows,
                         lanes *grad_table, long width) {
  long first = work->firsts[block], count = work->counts[block];
  for (long word = 0; word < work->n; word++) {
    const uint16_t *character = work->words + word * work->characters;
    long last = last_window(work, word, width), place = word * work->filters + first;
    lanes grad = {0};
    starts narrow = {0};
    memcpy(&grad, grads + place, 4 * count);
    memcpy(&narrow, windows + place, 2 * count);
    __builtin_prefetch(grads + place + 8 * work->filters); /* rows are far apart */
    __builtin_prefetch(windows + place + 8 * work->filters);
    bits window = __builtin_convertvector(narrow, bits);
    for (long start = 0; start <= last; start++) {
      lanes here = (lanes)((bits)grad & (window == (bits){0} + (int32_t)start));
      for (long k = 0; k < width; k++) grad_table[character[start + k] * width + k] += here;
    }
  }
}

/* The gradients of what make_table reads, from that of the table. */
static void table_gradients(const float *embedding, long vocabulary, long size, long width, long count,
                            const lanes *columns, const lanes *grad_table, float *grad_embedding, float *grad_weight,
                            float *grad_bias) {
  lanes bias = {0};
  for (long v = 0; v < vocabulary; v++) {
    bias += grad_table[v * width];
    for (long c = 0; c < size; c++) {
      lanes sum = {0};
      for (long k = 0; k < width; k++) sum += grad_table[v * width + k] * columns[k * size + c];
      float total = 0;
      for (long lane = 0; lane < LANES; lane++) total += sum[lane];
      grad_embedding[v * size + c] = total;
    }
  }
  memcpy(grad_bias, &bias, 4 * count);
  for (long k = 0; k < width; k++)
    for (long c = 0; c < size; c++) {
      lanes sum = {0};
      for (long v = 0; v < vocabulary; v++) sum += embedding[v * size + c] * grad_table[v * width + k];
      for (long lane = 0; lane < count; lane++) grad_weight[(lane * size + c) * width + k] = sum[lane];
    }
}

/* The gradients of what character_windows reads, from that of maxima. grad_embeddings [blocks][vocabulary][size] are
   one for each block, so that their sum does not depend on the number of threads. Returns how many blocks found no
   memory. */
long character_gradients(const struct work *work, const float *embedding, long size, const float **weights,
                         const float *grads, const uint16_t *windows, float *grad_embeddings, float **grad_weights,
                         float **grad_biases, int threads) {
  long failed = 0;
  (void)threads;
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(+ : failed)
  for (long block = 0; block < work->blocks; block++) {
    long width = work->widths[block], count = work->counts[block], numbers = work->vocabulary * width * LANES;
    lanes *grad_table = allocate(numbers), *columns = spread(weights[block], size, width, count);
    if (grad_table && columns) {
      memset(grad_table, 0, 4 * numbers);
      WITH_WIDTH(width, add_to_table, work, block, grads, windows, grad_table)
      table_gradients(embedding, work->vocabulary, size, width, count, columns, grad_table,
                      grad_embeddings + block * work->vocabulary * size, grad_weights[block], grad_biases[block]);
    } else
      failed++;
    free(grad_table);
    free(columns);
  }
  return failed;
}
