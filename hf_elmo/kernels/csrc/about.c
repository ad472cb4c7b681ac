/* Facts about the library that Python reads: sizes of structs and blocks, the instruction set, and the threads. */
#include "elmo.h"
#include "threads.h"

#define SIZE(NAME) sizeof(struct NAME)
/* In the order of elmo.h, then its block sizes. */
const i64 sizes[] = {SIZE(layer), SIZE(product), SIZE(highway), SIZE(characters), SIZE(cell),
                     LANES,       FUSED_ROWS,    FUSED_COLUMNS, FUSED_DEPTH,      PRODUCT_COLUMNS};

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

struct openmp openmp;

/* The addresses of GOMP_parallel, omp_get_thread_num and omp_get_num_threads. */
void use_openmp(void *const *functions) { memcpy(&openmp, functions, sizeof openmp); }
int has_threads(void) { return openmp.parallel != NULL; }
