#include "threads.h"

struct openmp openmp;

/* The addresses of GOMP_parallel, omp_get_thread_num, omp_get_num_threads and GOMP_barrier. */
void use_openmp(void *const *functions) { memcpy(&openmp, functions, sizeof openmp); }
int has_threads(void) { return openmp.parallel != NULL; }
