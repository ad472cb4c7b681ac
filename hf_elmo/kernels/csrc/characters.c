/* Character convolutions and their maxima as sums of table entries, and their gradients.
 *
 * A filter of width w reads windows of w characters. Character c at place k of a window adds one number, which a table
 * holds, so a window is a sum of w numbers. A block is up to LANES filters of one width. The table of a block fits into
 * the cache, so the loop over blocks is the outer loop.
 */
#include "elmo.h"
#include "threads.h"

typedef uint16_t starts __attribute__((vector_size(2 * VECTOR), aligned(2)));

/* Calls FUNCTION with WIDTH as a constant if a published filter has this width, so that inner loops are unrolled. */
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

/* The last place where a window of a word begins. All windows that contain only padding are equal, so only the first of
   them counts. */
INLINE i64 last_window(const struct characters *x, i64 word, i64 width) {
  i64 last = x->characters - width;
  return last < x->lengths[word] ? last : x->lengths[word];
}

/* maxima [n][filters]: the largest window of each word. NaN counts as the largest, unless all tables are `finite`. With
   `keep`, windows [n][filters] gets the place where the largest window begins, the first one if several are equal. */
INLINE void block_maxima(const struct characters *x, i64 block, const float *table, int keep, int finite, i64 width) {
  i64 first = x->firsts[block], count = x->counts[block];
  for (i64 word = 0; word < x->n; word++) {
    const uint16_t *character = x->words + word * x->characters;
    i64 last = last_window(x, word, width);
    vector best[VECTORS];
    integers window[VECTORS];
    for (int v = 0; v < VECTORS; v++) best[v] = (vector){0} - INFINITY, window[v] = (integers){0};
    for (i64 start = 0; start <= last; start++)
      for (int v = 0; v < VECTORS; v++) {
        vector sum = load(table + character[start] * width * LANES + v * VECTOR);
        for (i64 k = 1; k < width; k++) sum += load(table + (character[start + k] * width + k) * LANES + v * VECTOR);
        integers larger = finite ? sum > best[v] : (sum > best[v]) | (sum != sum);
        best[v] = (vector)(((integers)sum & larger) | ((integers)best[v] & ~larger));
        if (keep) window[v] = (((integers){0} + (int32_t)start) & larger) | (window[v] & ~larger);
      }
    memcpy(x->maxima + word * x->filters + first, best, 4 * count);
    if (keep) {
      starts narrow[VECTORS];
      for (int v = 0; v < VECTORS; v++) narrow[v] = __builtin_convertvector(window[v], starts);
      memcpy(x->windows + word * x->filters + first, narrow, 2 * count);
    }
  }
}

static void maxima_of_block(const void *data, i64 block, i64 thread) {
  const struct characters *x = data;
  const float *table = x->tables + x->offsets[block];
  (void)thread;
  if (!x->finite) /* rare */
    block_maxima(x, block, table, 0, 0, x->widths[block]);
  else
    WITH_WIDTH(x->widths[block], block_maxima, x, block, table, 0, 1)
}

/* The maxima from the tables. */
void characters_maxima(const struct characters *x) { share_out(maxima_of_block, x, x->blocks, x->threads); }

/* weight [count][size][width] copied to columns [width][size][LANES]; lanes without a filter are 0 */
static void spread(const float *weight, i64 size, i64 width, i64 count, float *columns) {
  memset(columns, 0, 4 * (size_t)(width * size * LANES));
  for (i64 lane = 0; lane < count; lane++)
    for (i64 c = 0; c < size; c++)
      for (i64 k = 0; k < width; k++) columns[(k * size + c) * LANES + lane] = weight[(lane * size + c) * width + k];
}

static void make_table(const struct characters *x, i64 width, const float *columns, const float *bias, float *table) {
  for (i64 row = 0; row < x->vocabulary; row++)
    for (i64 k = 0; k < width; k++)
      for (int v = 0; v < LANES; v += VECTOR) {
        vector sum = k ? (vector){0} : load(bias + v);
        for (i64 c = 0; c < x->size; c++)
          sum += x->embedding[row * x->size + c] * load(columns + (k * x->size + c) * LANES + v);
        store(table + (row * width + k) * LANES + v, sum);
      }
}

static void windows_of_block(const void *data, i64 block, i64 thread) {
  const struct characters *x = data;
  i64 width = x->widths[block], count = x->counts[block];
  float bias[LANES] = {0}, *table = x->scratch + thread * x->scratch_numbers;
  float *columns = table + x->vocabulary * width * LANES;
  spread(x->weights[block], x->size, width, count, columns);
  memcpy(bias, x->biases[block], 4 * count);
  make_table(x, width, columns, bias, table);
  WITH_WIDTH(width, block_maxima, x, block, table, 1, 0)
}

/* The maxima and their windows, from tables that are computed from embedding, weights and biases. */
void characters_windows(const struct characters *x) { share_out(windows_of_block, x, x->blocks, x->threads); }

/* Add the gradient of a block's maxima to the gradient of its table, at the windows of the maxima. */
INLINE void add_to_table(const struct characters *x, i64 block, float *grad_table, i64 width) {
  i64 first = x->firsts[block], count = x->counts[block];
  for (i64 word = 0; word < x->n; word++) {
    const uint16_t *character = x->words + word * x->characters;
    i64 last = last_window(x, word, width), place = word * x->filters + first;
    vector grad[VECTORS];
    starts narrow[VECTORS];
    memset(grad, 0, sizeof grad), memset(narrow, 0, sizeof narrow);
    memcpy(grad, x->grads + place, 4 * count), memcpy(narrow, x->windows + place, 2 * count);
    __builtin_prefetch(x->grads + place + 8 * x->filters); /* rows are far apart */
    __builtin_prefetch(x->windows + place + 8 * x->filters);
    integers window[VECTORS];
    for (int v = 0; v < VECTORS; v++) window[v] = __builtin_convertvector(narrow[v], integers);
    for (i64 start = 0; start <= last; start++)
      for (int v = 0; v < VECTORS; v++) {
        vector here = (vector)((integers)grad[v] & (window[v] == (integers){0} + (int32_t)start));
        for (i64 k = 0; k < width; k++) {
          float *entry = grad_table + (character[start + k] * width + k) * LANES + v * VECTOR;
          store(entry, load(entry) + here);
        }
      }
  }
}

/* The gradients of the arguments of make_table, from the gradient of the table. */
static void table_gradients(const struct characters *x, i64 block, const float *columns, const float *grad_table) {
  i64 size = x->size, width = x->widths[block], count = x->counts[block];
  float *grad_embedding = x->grad_embeddings + block * x->vocabulary * size, *grad_weight = x->grad_weights[block];
  float bias[LANES] = {0}, sums[LANES];
  for (i64 row = 0; row < x->vocabulary; row++, grad_embedding += size) {
    const float *entries = grad_table + row * width * LANES;
    for (i64 lane = 0; lane < LANES; lane++) bias[lane] += entries[lane];
    for (i64 c = 0; c < size; c++) {
      for (int v = 0; v < LANES; v += VECTOR) {
        vector sum = {0};
        for (i64 k = 0; k < width; k++)
          sum += load(entries + k * LANES + v) * load(columns + (k * size + c) * LANES + v);
        store(sums + v, sum);
      }
      float total = 0;
      for (int lane = 0; lane < LANES; lane++) total += sums[lane];
      grad_embedding[c] = total;
    }
  }
  memcpy(x->grad_biases[block], bias, 4 * count);
  for (i64 k = 0; k < width; k++)
    for (i64 c = 0; c < size; c++) {
      for (int v = 0; v < LANES; v += VECTOR) {
        vector sum = {0};
        for (i64 row = 0; row < x->vocabulary; row++)
          sum += x->embedding[row * size + c] * load(grad_table + (row * width + k) * LANES + v);
        store(sums + v, sum);
      }
      for (i64 lane = 0; lane < count; lane++) grad_weight[(lane * size + c) * width + k] = sums[lane];
    }
}

static void gradients_of_block(const void *data, i64 block, i64 thread) {
  const struct characters *x = data;
  i64 width = x->widths[block], count = x->counts[block], entries = x->vocabulary * width * LANES;
  float *grad_table = x->scratch + thread * x->scratch_numbers, *columns = grad_table + entries;
  spread(x->weights[block], x->size, width, count, columns);
  memset(grad_table, 0, 4 * (size_t)entries);
  WITH_WIDTH(width, add_to_table, x, block, grad_table)
  table_gradients(x, block, columns, grad_table);
}

/* The gradients of embedding, weights and biases, from those of the maxima. */
void characters_gradients(const struct characters *x) { share_out(gradients_of_block, x, x->blocks, x->threads); }
