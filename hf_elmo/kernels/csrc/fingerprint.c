/* The fingerprints of tensors' bytes, at the speed of reading them.
 *
 * In each of 4 * LANES lanes of 32 bits, state = (state ^ (state >> 15)) * odd + word: a bijection of the state for every
 * word, so one changed word always changes its lane. The shift carries high bits down, which a product never does: without
 * it, an even number of changed signs, or exponents that all rise by one, would cancel.
 */
#include "elmo.h"

typedef uint32_t words __attribute__((vector_size(4 * LANES), aligned(1)));

enum { AT_ONCE = 4, PIECE = 1 << 20 };

static uint64_t fingerprint_of_piece(const char *x, long bytes) {
  words state[AT_ONCE];
  const words odd = (words){0} + 0x9e3779b1u;
  for (int k = 0; k < AT_ONCE; k++) state[k] = (words){0} + (uint32_t)(k + 1);
  long n = 0;
  for (; n + AT_ONCE * (long)sizeof(words) <= bytes; n += AT_ONCE * sizeof(words))
    for (int k = 0; k < AT_ONCE; k++) state[k] = (state[k] ^ (state[k] >> 15)) * odd + ((const words *)(x + n))[k];
  uint64_t total = (uint64_t)bytes;
  for (; n < bytes; n++) total = (total ^ (unsigned char)x[n]) * 0x100000001b3u;
  for (int k = 0; k < AT_ONCE; k++)
    for (int lane = 0; lane < LANES; lane++) total = (total ^ state[k][lane]) * 0x9e3779b97f4a7c15u;
  return total;
}

/* hashes[k]: that of the bytes[k] bytes at x[k]. Threads take pieces, so that a large tensor is read by all of them. */
void fingerprints(const char *const *x, const long *bytes, long number, uint64_t *hashes, int threads) {
  (void)threads; /* without OpenMP */
  for (long k = 0; k < number; k++) hashes[k] = 0;
#pragma omp parallel num_threads(threads)
  for (long k = 0; k < number; k++) {
    long pieces = (bytes[k] + PIECE - 1) / PIECE;
#pragma omp for schedule(static) nowait
    for (long n = 0; n < pieces; n++) {
      long rest = bytes[k] - n * PIECE;
      uint64_t piece = fingerprint_of_piece(x[k] + n * PIECE, rest < PIECE ? rest : PIECE);
      piece = (piece ^ (piece >> 29)) * (2 * (uint64_t)n + 0x9e3779b97f4a7c15u); /* its place counts */
#pragma omp atomic
      hashes[k] += piece; /* in any order */
    }
  }
}
