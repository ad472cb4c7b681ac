/* AMX tiles, and without AVX-512 its instructions, defined by others, so that every machine with AVX2 can run all kernels:
 * HF_ELMO_CFLAGS="-include tests/kernels/emulated.h". It shows that layouts, edges, NaN and threads are right, not speed.
 * Memory is read through memcpy: a cast to another type would break the rules of aliasing, and gcc -O3 uses them.
 */
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EMULATED static inline __attribute__((always_inline, unused))
#define EACH for (int k = 0; k < 16; k++)

#ifndef __AVX512BF16__
#pragma GCC diagnostic ignored "-Wpsabi"
typedef uint32_t uint32x16 __attribute__((vector_size(64)));
typedef int32_t int32x16 __attribute__((vector_size(64)));

EMULATED __m512 emulated_load(const void *x) {
  __m512 y;
  memcpy(&y, x, sizeof y);
  return y;
}
EMULATED void emulated_store(void *to, __m512 x) { memcpy(to, &x, sizeof x); }
EMULATED __m512 emulated_max(__m512 x, __m512 y) {
  EACH x[k] = x[k] > y[k] ? x[k] : y[k];
  return x;
}
EMULATED __m512 emulated_min(__m512 x, __m512 y) {
  EACH x[k] = x[k] < y[k] ? x[k] : y[k];
  return x;
}
EMULATED __m512 emulated_reduce(__m512 x) {
  EACH x[k] -= isinf(x[k]) ? x[k] : nearbyintf(x[k]);
  return x;
}
EMULATED __m512 emulated_scalef(__m512 x, __m512 y) {
  EACH x[k] *= exp2f(floorf(y[k]));
  return x;
}
EMULATED __m512i emulated_widen(__m256i x) {
  uint16_t from[16];
  uint32x16 y;
  memcpy(from, &x, sizeof from);
  EACH y[k] = from[k];
  return (__m512i)y;
}
EMULATED __m256i emulated_narrow(__m512 x) {
  uint16_t to[16];
  uint32x16 y = (uint32x16)x;
  __m256i narrow;
  EACH to[k] = x[k] != x[k] ? 0x7fc0 : (uint16_t)((y[k] + 0x7fff + (y[k] >> 16 & 1)) >> 16);
  memcpy(&narrow, to, sizeof to);
  return narrow;
}
EMULATED __m512 emulated_pairs(__m512 sum, uint32x16 x, uint32x16 y) {
  sum += (__m512)(x & 0xffff0000u) * (__m512)(y & 0xffff0000u);
  return sum + (__m512)(x << 16) * (__m512)(y << 16);
}
#define _mm512_set1_ps(X) ((__m512){0} + (float)(X))
#define _mm512_set1_epi32(X) ((__m512i)((int32x16){0} + (int32_t)(X)))
#define _mm512_loadu_ps(X) emulated_load(X)
#define _mm512_loadu_si512(X) ((__m512i)emulated_load(X))
#define _mm512_storeu_ps emulated_store
#define _mm512_max_ps emulated_max
#define _mm512_min_ps emulated_min
#define _mm512_rcp14_ps(X) ((__m512)(1.f / (X)))
#define _mm512_reduce_ps(X, MODE) emulated_reduce(X)
#define _mm512_scalef_ps emulated_scalef
#define _mm512_cvtepu16_epi32 emulated_widen
#define _mm512_slli_epi32(X, BITS) ((__m512i)((uint32x16)(X) << (BITS)))
#define _mm512_cvtneps_pbh emulated_narrow
#define _mm512_dpbf16_ps(SUM, X, Y) emulated_pairs(SUM, (uint32x16)(X), (uint32x16)(Y))
#define __AVX512F__ 1
#define __AVX512BF16__ 1
#endif

static _Thread_local uint8_t emulated_tiles[8][16][64] __attribute__((unused));

EMULATED void emulated_tile_product(int sums, int x, int y) {
  for (int row = 0; row < 16; row++) {
    __m512 sum = _mm512_loadu_ps(emulated_tiles[sums][row]);
    EACH {
      int32_t pair;
      memcpy(&pair, emulated_tiles[x][row] + 4 * k, 4);
      sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)_mm512_loadu_si512(emulated_tiles[y][k]));
    }
    _mm512_storeu_ps(emulated_tiles[sums][row], sum);
  }
}
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadd(TILE, FROM, STEP) \
  EACH memcpy(emulated_tiles[TILE][k], (const char *)(FROM) + k * (STEP), 64)
#define _tile_stored(TILE, TO, STEP) EACH memcpy((char *)(TO) + k * (STEP), emulated_tiles[TILE][k], 64)
#define _tile_dpbf16ps emulated_tile_product
#define _tile_loadconfig(SHAPE) (void)(SHAPE)
#define _tile_release() (void)0
#define syscall(...) 0 /* Linux permits the tiles */
#define __AMX_BF16__ 1
