/* Inference over many rows: a layer, all directions, in one call; products and cells are computed at the same time.
 *
 * With a library's product, sums are written to memory, and the cells start after the whole product. Here the product
 * of 16 rows with 64 columns (the four gates of 16 cells) stays in the L1 cache until its cells are computed. They
 * are computed between the instructions of the next product, so that matrix and vector units work at the same time.
 * Rows are independent of each other: each group of rows is run to its last step by one thread.
 *
 * A kind of product is a set of macros for fused_kind.h: f32 on AVX-512 vectors; bf16 with AVX-512's bfloat16 products;
 * bf16_tiles and split_tiles on AMX tiles. In split_tiles, each float32 number is the sum of two bfloat16 numbers (the
 * smallest of their four products is left out; an infinite input turns its row into NaN).
 */
#include "elmo.h"

#ifdef __AVX512F__

#include <immintrin.h>

#include "threads.h"

#if (defined __AMX_BF16__ || defined __AMXBF16__) && defined __linux__ /* the second name: older clangs */
#define HAS_TILES
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { ROWS = FUSED_ROWS, COLUMNS = FUSED_COLUMNS, DEPTH = FUSED_DEPTH }; /* of a product */
typedef __m512 lanes;

INLINE lanes broadcast(float x) { return _mm512_set1_ps(x); }
INLINE lanes load_f32(const f32 *x) { return _mm512_loadu_ps(x); }
INLINE void store_f32(f32 *x, lanes y) { _mm512_storeu_ps(x, y); }
INLINE lanes clip_lanes(lanes x, float bound) { /* NaN propagates with this order of operands */
  return _mm512_max_ps(broadcast(-bound), _mm512_min_ps(broadcast(bound), x));
}

/* e^(factor x) = 2^t, at most 2^40, computed as 2^floor(t) times a polynomial of t - floor(t). The relative error is
   at most 1.1e-7 if `exact`, else 9e-5, which is less than bfloat16's rounding. */
INLINE lanes exp_scaled(lanes x, float factor, const int exact) {
  lanes t = _mm512_min_ps(broadcast(40.f), _mm512_mul_ps(x, broadcast(factor * 1.44269504f)));
  lanes r = _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC), p;
  if (exact) {
    p = _mm512_fmadd_ps(broadcast(1.872966134e-3f), r, broadcast(9.002237339e-3f));
    p = _mm512_fmadd_ps(p, r, broadcast(5.581318301e-2f));
    p = _mm512_fmadd_ps(p, r, broadcast(2.401595205e-1f));
    p = _mm512_fmadd_ps(p, r, broadcast(6.931519588e-1f));
  } else {
    p = _mm512_fmadd_ps(broadcast(7.706724030e-2f), r, broadcast(2.276449775e-1f));
    p = _mm512_fmadd_ps(p, r, broadcast(6.951166307e-1f));
  }
  return _mm512_scalef_ps(_mm512_fmadd_ps(p, r, broadcast(1.f)), t);
}

INLINE lanes quotient(lanes x, lanes y, const int exact) {
  lanes z = _mm512_rcp14_ps(y); /* 1 / y to 14 bits; a Newton step doubles their number */
  return _mm512_mul_ps(x, exact ? _mm512_fmadd_ps(z, _mm512_fnmadd_ps(y, z, broadcast(1.f)), z) : z);
}

/* Replaces cells of a row by the next, clipped ones, and returns their output. All activations share two divisions. */
INLINE lanes next_cells(const float *gates, float *cells, float clip, const int exact) {
  lanes one = broadcast(1.f), i = exp_scaled(load_f32(gates), -1.f, exact);
  lanes f = exp_scaled(load_f32(gates + LANES), -1.f, exact), g = exp_scaled(load_f32(gates + 2 * LANES), -2.f, exact);
  lanes o = exp_scaled(load_f32(gates + 3 * LANES), -1.f, exact);
  lanes den_f = _mm512_add_ps(one, f), den_ig = _mm512_mul_ps(_mm512_add_ps(one, i), _mm512_add_ps(one, g));
  lanes num = _mm512_fmadd_ps(load_f32(cells), den_ig, _mm512_mul_ps(_mm512_sub_ps(one, g), den_f));
  lanes c = clip_lanes(quotient(num, _mm512_mul_ps(den_f, den_ig), exact), clip);
  lanes t = exp_scaled(c, -2.f, exact);
  store_f32(cells, c);
  return quotient(_mm512_sub_ps(one, t), _mm512_mul_ps(_mm512_add_ps(one, o), _mm512_add_ps(one, t)), exact);
}

/* Prefetches cache lines `line` to `end` of x, the weights of a later product. Call it for few lines at a time, between
   other instructions: many prefetches at once fill the buffers that loads also need. */
INLINE void fetch(const void *x, i64 line, i64 end) {
  for (; line < end; line++) _mm_prefetch((const char *)x + 64 * line, _MM_HINT_T1);
}

#define KIND f32
#define TYPE f32
#define OPERAND f32
#define PARTS 1 /* numbers of type OPERAND that stand for one number of TYPE */
#define AT_ONCE 4 /* AT_ONCE * DEPTH rows of weights stay in the L1 cache while they multiply all rows */
#define EXACT 1 /* whether exponentials and quotients have float32's precision */
#define PAIR 1 /* rows of weights that an instruction multiplies */
#define ADD_PRODUCT(SUM, TILE, WEIGHTS) _mm512_fmadd_ps(broadcast(*(TILE)), load_f32(WEIGHTS), SUM)
#include "fused_kind.h"

#ifdef __AVX512BF16__

INLINE lanes load_bf16(const bf16 *x) {
  return (lanes)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x)), 16);
}
INLINE void store_bf16(bf16 *x, lanes y) { _mm256_storeu_si256((__m256i *)x, (__m256i)_mm512_cvtneps_pbh(y)); }
INLINE int pair_of(const bf16 *x) {
  int pair;
  memcpy(&pair, x, sizeof pair);
  return pair;
}

#define KIND bf16
#define TYPE bf16
#define OPERAND bf16
#define PARTS 1
#define AT_ONCE 8
#define EXACT 0
#define PAIR 2
#define ADD_PRODUCT(SUM, TILE, WEIGHTS) \
  _mm512_dpbf16_ps(SUM, (__m512bh)_mm512_set1_epi32(pair_of(TILE)), (__m512bh)_mm512_loadu_si512(WEIGHTS))
#include "fused_kind.h"

#ifdef HAS_TILES

INLINE void begin_tiles(void) {
  static const struct {
    uint8_t palette, start, zero[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } shape = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS}};
  _tile_loadconfig(&shape);
}

/* Linux permits the tiles to a process that asks for them (ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA). */
int request_tiles(void) { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }

#define TILES
#define WEIGHTS(K, NUMBER) _tile_loadd(NUMBER, weights + (K) * ROWS * DEPTH, 64)
#define FETCH(K) fetch(ahead, lines[K], lines[(K) + 1])

#define KIND bf16_tiles
#define TYPE bf16
#define OPERAND bf16
#define PARTS 1
#define AT_ONCE 8
#define EXACT 0
#define PRODUCTS \
  _tile_loadd(4, tile, 64); \
  WEIGHTS(0, 5); _tile_dpbf16ps(0, 4, 5); FETCH(0); \
  WEIGHTS(1, 6); _tile_dpbf16ps(1, 4, 6); FETCH(1); \
  WEIGHTS(2, 5); _tile_dpbf16ps(2, 4, 5); FETCH(2); \
  WEIGHTS(3, 6); _tile_dpbf16ps(3, 4, 6); FETCH(3);
#include "fused_kind.h"

#define KIND split_tiles
#define TYPE f32
#define OPERAND bf16
#define PARTS 2 /* a number rounded to bfloat16, and the rest of it */
#define AT_ONCE 8
#define EXACT 1
#define PRODUCTS \
  _tile_loadd(4, tile, 64); _tile_loadd(5, tile + ROWS * DEPTH, 64); \
  WEIGHTS(0, 6); _tile_dpbf16ps(0, 4, 6); _tile_dpbf16ps(0, 5, 6); FETCH(0); \
  WEIGHTS(1, 7); _tile_dpbf16ps(1, 4, 7); _tile_dpbf16ps(1, 5, 7); FETCH(1); \
  WEIGHTS(2, 6); _tile_dpbf16ps(2, 4, 6); _tile_dpbf16ps(2, 5, 6); FETCH(2); \
  WEIGHTS(3, 7); _tile_dpbf16ps(3, 4, 7); _tile_dpbf16ps(3, 5, 7); FETCH(3); \
  WEIGHTS(4, 6); _tile_dpbf16ps(0, 4, 6); \
  WEIGHTS(5, 7); _tile_dpbf16ps(1, 4, 7); \
  WEIGHTS(6, 6); _tile_dpbf16ps(2, 4, 6); \
  WEIGHTS(7, 7); _tile_dpbf16ps(3, 4, 7);
#include "fused_kind.h"

#endif
#endif
#endif
