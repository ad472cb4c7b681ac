/* Inference: a layer of the biLM, all directions, in one call; a step's cells follow its products in the cache.
 *
 * The first `many` steps are of many rows. The product of 16 rows with 64 columns (the four gates of 16 cells) stays in
 * the L1 cache until its cells are computed, between the instructions of the next product, so that matrix and vector
 * units work at the same time. Each group of rows is run to its last step by one thread.
 *
 * The other steps are of few rows, whose time is the time to read the weights. The input half of the gates is computed
 * for many steps at once, so that a step reads the other weights only. A direction runs on one thread, or on several
 * that divide its cells and outputs, so that the weights of a small layer stay in the cores' caches. Those of a larger
 * layer stay there in part: consecutive steps read them in opposite orders. Products can be computed in 8 bits.
 *
 * A kind of product is a set of macros for layer_kind.h: f32; half with weights in bfloat16 and everything else in
 * float32, for processors without bfloat16 products; bf16 with AVX-512's bfloat16 products; bf16_tiles on AMX tiles.
 *
 * Weights are in blocks of COLUMNS columns, [block][4][depth][LANES], where depth is that of word and hidden state side
 * by side. In bfloat16 two rows alternate, as the instructions need them: [block][4][depth / 2][LANES][2].
 */
#include "elmo.h"
#include "threads.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif
#if defined __AVX512BF16__ && (defined __AMX_BF16__ || defined __AMXBF16__) && defined __linux__ /* or older clangs */
#define HAS_TILES
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { ROWS = FUSED_ROWS, COLUMNS = FUSED_COLUMNS, DEPTH = FUSED_DEPTH }; /* of a product */
enum { LARGE = 1 << 23 }; /* bytes of a direction's weights, of which several may not stay in a cache */

#ifdef __AVX512F__
typedef __m512 lanes;
#else
typedef struct {
  float of[LANES];
} lanes;
#endif

INLINE lanes load_f32(const f32 *x) {
  lanes y;
  memcpy(&y, x, sizeof y);
  return y;
}
INLINE void store_f32(f32 *x, lanes y) { memcpy(x, &y, sizeof y); }

#ifdef __AVX512F__

INLINE lanes broadcast(float x) { return _mm512_set1_ps(x); }
INLINE lanes clip_lanes(lanes x, float bound) { /* NaN propagates with this order of operands */
  return _mm512_max_ps(broadcast(-bound), _mm512_min_ps(broadcast(bound), x));
}

/* 1 - e and 1 + e, where e = e^(factor x) = 2^n (1 + q) is at most 2^40 and n the nearest integer to its logarithm.
   Near zero n is 0, and 1 - e, a difference of almost equal numbers, is -q. The relative error of q is at most 2e-8 if
   `exact`, else 4.4e-4, which is less than bfloat16's rounding. */
struct parts {
  lanes less, more;
};
INLINE struct parts parts_of(lanes x, float factor, const int exact) {
  lanes t = _mm512_min_ps(broadcast(40.f), x * (factor * 1.44269504f));
  lanes r = _mm512_reduce_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), q;
  if (exact)
    q = (((1.540351262e-4f * r + 1.339073548e-3f) * r + 9.618237494e-3f) * r + 5.550357434e-2f) * r + 2.402264979e-1f;
  else
    q = 5.550396344e-2f * r + 2.420288577e-1f;
  q = (q * r + (exact ? 6.931471879e-1f : 6.931783037e-1f)) * r;
  lanes power = _mm512_scalef_ps(broadcast(1.f), t - r);
  return (struct parts){(1.f - power) - power * q, (1.f + power) + power * q};
}

INLINE lanes quotient(lanes x, lanes y, const int exact) {
  lanes z = _mm512_rcp14_ps(y); /* 1 / y to 14 bits; a Newton step doubles their number */
  if (exact) z += z * (1.f - y * z);
  return x * z;
}

/* Replaces cells of a row by the next, clipped ones, and returns their output. All activations share two divisions. */
INLINE lanes next_cells(const float *gates, float *cells, float clip, const int exact) {
  struct parts i = parts_of(load_f32(gates), -1.f, exact), f = parts_of(load_f32(gates + LANES), -1.f, exact);
  struct parts g = parts_of(load_f32(gates + 2 * LANES), -2.f, exact);
  struct parts o = parts_of(load_f32(gates + 3 * LANES), -1.f, exact);
  lanes of_new = i.more * g.more, sum = load_f32(cells) * of_new + g.less * f.more;
  lanes c = clip_lanes(quotient(sum, f.more * of_new, exact), clip);
  struct parts t = parts_of(c, -2.f, exact);
  store_f32(cells, c);
  return quotient(t.less, o.more * t.more, exact);
}

#else

INLINE lanes clip_lanes(lanes x, float bound) {
  for (int k = 0; k < LANES; k++) x.of[k] = clipped(x.of[k], bound);
  return x;
}
INLINE lanes next_cells(const float *gates, float *cells, float clip, const int exact) {
  lanes outputs;
  (void)exact;
#pragma omp simd
  for (int k = 0; k < LANES; k++) {
    float g = tanh_limited(gates[k + 2 * LANES]), den_f = sigmoid_denominator(gates[k + LANES]);
    float den_ig = sigmoid_denominator(gates[k]) * tanh_denominator(g);
    float c = clipped((cells[k] * den_ig + tanh_numerator(g) * den_f) / (den_f * den_ig), clip), t = tanh_limited(c);
    cells[k] = c;
    outputs.of[k] = tanh_numerator(t) / (sigmoid_denominator(gates[k + 3 * LANES]) * tanh_denominator(t));
  }
  return outputs;
}

#endif

#ifdef __AVX512BF16__
INLINE lanes load_bf16(const bf16 *x) {
  return (lanes)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x)), 16);
}
INLINE void store_bf16(bf16 *x, lanes y) { _mm256_storeu_si256((__m256i *)x, (__m256i)_mm512_cvtneps_pbh(y)); }
#endif

/* Prefetches cache lines `line` to `end` of x, the weights of a later product. Call it for few lines at a time, between
   other instructions: many prefetches at once fill the buffers that loads also need. */
INLINE void fetch(const void *x, i64 line, i64 end) {
  for (; line < end; line++) __builtin_prefetch((const char *)x + 64 * line, 0, 2);
}

struct range {
  i64 begin, end;
};
INLINE struct range share(i64 total, i64 part, i64 parts) {
  return (struct range){total * part / parts, total * (part + 1) / parts};
}

/* The weights of COLUMNS columns, in four runs [depth][LANES] that are `step` numbers apart: the gates of LANES cells,
   or outputs. `values` has a number of each column, in runs that are `value_step` apart: biases, scales or NULL. */
struct block {
  const void *weights;
  const float *values;
  i64 step, value_step;
};

/* Of each DEPTH rows of the weights that are `distance` numbers further on, the cache lines that are fetched. */
struct ahead {
  i64 distance, line, end;
};

/* Gates [ROWS][COLUMNS] whose cells [ROWS][LANES] are not computed yet, and where in `outputs` their outputs begin. */
struct cells {
  const float *gates;
  float *cells, clip;
  void *outputs;
  i64 rows, row, column, depth;
};

/* The addresses of a group's operands, cells and sums in its scratch memory. */
struct group {
  void *both, *cell_outputs; /* word and hidden state side by side; the input of the projection */
  float *cell, *sums; /* [cells / LANES][all_rows][LANES]; two blocks of [all_rows][COLUMNS] */
  i64 all_rows, depth;
};

/* Weights and operands in 8 bits, for few rows: a column of weights and a row of operands are bytes from -127 to 127,
   times a scale of each, so that sums of products are exact. */
struct byte_row {
  float scale;
  int32_t sum; /* of the bytes */
};

/* Adds products of x [4] and weights [VECTOR][4] + ADDED. */
INLINE integers add_bytes(integers sum, const int8_t *x, const int8_t *weights) {
#ifdef __AVX512VNNI__
#define ADDED 128 /* the instruction multiplies signed bytes by unsigned ones */
  __m512i columns = _mm512_xor_si512(_mm512_loadu_si512(weights), _mm512_set1_epi8(-128));
  return (integers)_mm512_dpbusd_epi32((__m512i)sum, columns, _mm512_set1_epi32(four_of(x)));
#elif defined __AVX2__ && !defined __AVX512F__
#define ADDED 0
  const __m256i row = _mm256_set1_epi32(four_of(x));
  __m256i columns = _mm256_sign_epi8(_mm256_loadu_si256((const __m256i *)weights), row);
  __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(row), columns); /* at most 2 * 127 * 127, which 16 bits hold */
  return sum + (integers)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#else
#define ADDED 0
  const integers columns = (integers)load(weights);
  for (int k = 0; k < 4; k++) sum += x[k] * (columns << (24 - 8 * k) >> 24);
  return sum;
#endif
}

INLINE void some_byte_rows(float *sums, const int8_t *x, const struct byte_row *of, i64 depth, const struct block *w,
                           const int rows) {
  integers sum[4][4 * VECTORS];
  memset(sum, 0, sizeof sum);
  for (i64 k = 0; k < depth; k += 4)
    for (int v = 0; v < 4 * VECTORS; v++) {
      const int8_t *columns = (const int8_t *)w->weights + v / VECTORS * w->step + k * LANES + v % VECTORS * VECTOR * 4;
      if (v % VECTORS == 0) fetch(columns + 4 * w->step, 0, 1);
      for (int r = 0; r < rows; r++) sum[r][v] = add_bytes(sum[r][v], x + r * depth + k, columns);
    }
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < 4 * VECTORS; v++) {
      float *of_row = sums + r * COLUMNS + v * VECTOR;
      const vector scale = load(w->values + v / VECTORS * w->value_step + v % VECTORS * VECTOR);
      const vector exact = __builtin_convertvector(sum[r][v] - ADDED * of[r].sum, vector);
      store(of_row, load(of_row) + exact * of[r].scale * scale);
    }
}

/* sums [rows][COLUMNS] += x [rows][depth] * weights [4][depth / 4][LANES][4], times the scales of both. */
static void multiply_bytes(float *sums, const int8_t *x, const struct byte_row *of, i64 depth, const struct block *w,
                           i64 rows) {
  for (; rows >= 4 && VECTOR == 16; rows -= 4, sums += 4 * COLUMNS, x += 4 * depth, of += 4)
    some_byte_rows(sums, x, of, depth, w, 4);
  for (; rows; rows--, sums += COLUMNS, x += depth, of++) some_byte_rows(sums, x, of, depth, w, 1);
}

/* A kind of product: TYPE, of inputs and outputs; WEIGHT, of weights; and ADD_PRODUCT, which adds products of PAIR
   operands and PAIR rows of weights. */
#define PAIR ((i64)(4 / sizeof(WEIGHT))) /* rows of weights that alternate */
#define LINES (DEPTH / PAIR) /* cache lines of DEPTH rows of a run of weights */
#define AT_ONCE (4 * PAIR) /* AT_ONCE * DEPTH rows of weights stay in the L1 cache while they multiply all rows */
#define EXACT (sizeof(TYPE) == 4) /* whether exponentials and quotients have float32's precision */

#define KIND f32
#define TYPE f32
#define WEIGHT f32
#define ADD_PRODUCT(SUM, X, WEIGHTS) SUM += *(X) * load(WEIGHTS)
#include "layer_kind.h"

#define KIND half
#define TYPE f32
#define WEIGHT bf16
#define ADD_PRODUCT(SUM, X, WEIGHTS) \
  SUM += (X)[0] * (vector)((integers)load(WEIGHTS) << 16) + (X)[1] * (vector)((integers)load(WEIGHTS) & -0x10000)
#include "layer_kind.h"

#ifdef __AVX512BF16__

#define KIND bf16
#define TYPE bf16
#define WEIGHT bf16
#define ADD_PRODUCT(SUM, X, WEIGHTS) \
  SUM = (vector)_mm512_dpbf16_ps((__m512)SUM, (__m512bh)_mm512_set1_epi32(four_of(X)), \
                                 (__m512bh)_mm512_loadu_si512(WEIGHTS))
#include "layer_kind.h"

#ifdef HAS_TILES

INLINE void begin_tiles(void) {
  uint8_t shape[64] = {
      1}; /* the palette; from 16 on, the bytes of a row of each tile (16 bits); from 48 on, its rows */
  for (int tile = 0; tile < 8; tile++) shape[16 + 2 * tile] = 64, shape[48 + tile] = ROWS;
  _tile_loadconfig(shape);
}

/* Linux permits the tiles to a process that asks for them (ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA). */
int request_tiles(void) { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }

#define TILES

#define KIND bf16_tiles
#define TYPE bf16
#define WEIGHT bf16
#include "layer_kind.h"

#endif
#endif
