/* What all sources share: number types, the structs that Python fills in, and the functions of a cell.
 *
 * Types: f32 is float; bf16 is bfloat16, the upper half of a float's bits. Sums and cells are float32 for both types.
 * Sizes are i64, because long has 32 bits on Windows.
 */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Sizes of blocks of weights and tables. native.py has the same numbers; a test compares them. */
enum { LANES = 16 }; /* numbers side by side */
enum { FUSED_ROWS = 16, FUSED_COLUMNS = 4 * LANES, FUSED_DEPTH = 32 }; /* of a product in layer.c */
enum { PRODUCT_COLUMNS = 4 * LANES }; /* of a task in product.c */

typedef int64_t i64;
typedef float f32;
typedef uint16_t bf16;

#define INLINE static inline __attribute__((always_inline))

/* A SIMD register of VECTOR floats; LANES numbers take VECTORS registers. gcc would split a wider type into scalars. */
#ifdef __AVX512F__
enum { VECTOR = 16 };
#elif defined __AVX__
enum { VECTOR = 8 };
#else
enum { VECTOR = 4 };
#endif
enum { VECTORS = LANES / VECTOR };
typedef float vector __attribute__((vector_size(4 * VECTOR), aligned(4)));
typedef int32_t integers __attribute__((vector_size(4 * VECTOR), aligned(4)));

/* Memory is read and written as another type through memcpy alone. */
INLINE vector load(const void *x) {
  vector y;
  memcpy(&y, x, sizeof y);
  return y;
}
INLINE void store(float *x, vector y) { memcpy(x, &y, sizeof y); }

/* name ## _ ## suffix, after both are expanded */
#define JOIN_EXPANDED(name, suffix) name##_##suffix
#define JOIN(name, suffix) JOIN_EXPANDED(name, suffix)

/* Arguments that Python fills in: native.py reads the names and types of the fields here, and a test compares sizes. */

/* A layer of the biLM, all directions, for layer.c. */
struct layer {
  const void *const *inputs; /* of each direction, as all arrays of arrays; weight_hr may be NULL */
  void *const *outputs;
  void *hidden; /* [directions][rows][size]; as `cell`, it becomes the state after the last step */
  void *cell_outputs; /* [directions][rows][cells], for few rows */
  const float *const *weights, *const *weight_hr; /* two or four numbers of a smaller type as one */
  const float *const *biases;
  const float *const *scales; /* for few rows, of the columns of weights in 8 bits, or NULL */
  float *cell; /* [directions][rows][cells] */
  const i64 *sizes; /* rows of each step, non-increasing */
  char *scratch, *barriers; /* of each thread, and 64 bytes of zeros of each direction */
  i64 scratch_bytes, steps, many, directions, rows, group, words, input, size, cells, threads;
  float cell_clip, proj_clip;
};

/* sums [rows][columns] = bias + x [rows][depth] * weights [..][depth][LANES]; PRODUCT_COLUMNS divides their columns */
struct product {
  const float *x, *weights, *bias;
  float *sums;
  i64 rows, depth, columns, threads;
};

/* x = g * max(transform, 0) + (1 - g) * x, where g = sigmoid(carry); all [rows][columns] */
struct highway {
  float *x;
  const float *carry, *transform;
  i64 rows, columns, threads;
};

/* Words, and the filters of all convolutions in blocks of up to LANES filters of one width, for characters.c. */
struct characters {
  const uint16_t *words; /* [n][characters] */
  uint16_t *windows; /* [n][filters] */
  const i64 *lengths; /* of each word, without padding */
  const i64 *firsts, *counts, *widths; /* of each block: its first filter, number of filters, width */
  const i64 *offsets; /* where each block's table begins */
  const float *tables; /* [vocabulary][width][LANES], one block after the other */
  const float *embedding; /* [vocabulary][size]; tables are computed from it and from weights and biases */
  float *maxima; /* [n][filters] */
  const float *grads; /* of the maxima */
  float *grad_embeddings; /* [blocks][vocabulary][size]: their sum does not depend on the number of threads */
  float *scratch; /* of each thread, for a table and the weights of a block: [width][vocabulary + size][LANES] */
  const float *const *weights, *const *biases; /* of each block, [count][size][width] and [count] */
  float *const *grad_weights, *const *grad_biases;
  i64 n, characters, vocabulary, filters, blocks, finite, size, scratch_numbers, threads; /* finite: all tables are */
};

/* A step of the cell or its gradient, for cells.c. Filled in by lstm_onednn.py, whose functions describe the fields. */
struct cell {
  const void *gates; /* [rows][4 * size] */
  void *hidden; /* [rows][size], or its gradient */
  void *grad_gates; /* [rows][4 * size] */
  const float *before; /* [rows][size] */
  float *cells, *grad_cell; /* [rows][size] */
  i64 rows, size, threads;
  float before_clip, cell_clip;
};

INLINE float widen_f32(f32 x) { return x; }
INLINE f32 narrow_f32(float x) { return x; }
union word {
  uint32_t bits;
  float number;
};
INLINE float widen_bf16(bf16 x) { return (union word){.bits = (uint32_t)x << 16}.number; }
INLINE bf16 narrow_bf16(float x) { /* to the nearest, ties to even */
  uint32_t bits = (union word){.number = x}.bits;
  return x != x ? 0x7fc0 : (bf16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

INLINE int four_of(const void *x) { /* 4 bytes, as a number to broadcast */
  int four;
  memcpy(&four, x, sizeof four);
  return four;
}

/* Comparisons instead of fmin and fmax, so that NaN propagates. */
INLINE float clipped(float x, float bound) {
  x = x > bound ? bound : x;
  return x < -bound ? -bound : x;
}

/* e^x = 2^n e^r, with Cephes' polynomial for e^r; x must be NaN or between -87 and 88, where 2^n is a normal number. */
INLINE float exp_limited(float x) {
  float n = nearbyintf(x * 1.44269504f);
  float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = ((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f;
  p = ((p * r + 1.6666665459e-1f) * r + 5.0000001201e-1f) * r * r + r + 1.f;
  n = n > -127.f ? n : -127.f; /* NaN cannot be converted to an integer; p stays NaN */
  return p * (union word){.bits = (uint32_t)((int32_t)n + 127) << 23}.number;
}

/* 1 + e^-x, the denominator of sigmoid(x). x is clipped to +-28, where a sigmoid is within 1e-12 of its limit, so that
   the product of three denominators is still finite. */
INLINE float sigmoid_denominator(float x) { return 1.f + exp_limited(clipped(-x, 28.f)); }

/* tanh(x) = numerator / denominator: Eigen's rational approximation, whose error is a few units in the last place. */
INLINE float tanh_limited(float x) { return clipped(x, 7.90531110763549805f); }
INLINE float tanh_numerator(float x) {
  float y = x * x, p = (-2.76076847742355e-16f * y + 2.00018790482477e-13f) * y - 8.60467152213735e-11f;
  p = ((p * y + 5.12229709037114e-08f) * y + 1.48572235717979e-05f) * y + 6.37261928875436e-04f;
  return x * (p * y + 4.89352455891786e-03f);
}
INLINE float tanh_denominator(float x) {
  float y = x * x;
  return ((1.19825839466702e-06f * y + 1.18534705686654e-04f) * y + 2.26843463243900e-03f) * y + 4.89352518554385e-03f;
}
