/* Facts about the library that Python reads: sizes of structs and blocks, and the instruction set. */
#include "elmo.h"

i64 sizeof_layer(void) { return sizeof(struct layer); }
i64 sizeof_small_batch(void) { return sizeof(struct small_batch); }
i64 sizeof_cells(void) { return sizeof(struct cells); }
i64 sizeof_work(void) { return sizeof(struct work); }

/* The block sizes of elmo.h, in the same order. */
void constants(i64 *values) {
  values[0] = LANES;
  values[1] = FUSED_ROWS;
  values[2] = FUSED_COLUMNS;
  values[3] = FUSED_DEPTH;
  values[4] = PRODUCT_COLUMNS;
}

const char *instruction_set(void) {
#if defined __AMX_BF16__ || defined __AMXBF16__
  return "AMX";
#elif defined __AVX512BF16__
  return "AVX-512 with bfloat16";
#elif defined __AVX512F__
  return "AVX-512";
#elif defined __AVX2__
  return "AVX2";
#elif defined __ARM_NEON
  return "NEON";
#else
  return "baseline";
#endif
}
