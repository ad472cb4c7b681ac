/* OpenMP where the compiler has it; else one thread. */
#ifndef THREADS_H
#define THREADS_H

#ifdef _OPENMP
#include <omp.h>
#else
static inline int omp_get_num_threads(void) { return 1; }
static inline int omp_get_thread_num(void) { return 0; }
#endif

#endif
