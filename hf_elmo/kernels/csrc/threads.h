/* The threads of the OpenMP runtime that PyTorch uses. Python passes the runtime's functions to use_openmp. PyTorch's
 * threads spin for some milliseconds after their work, so a second pool of threads would have to wait for the cores.
 * Without an OpenMP runtime there is one thread.
 */
#pragma once

#include <stdatomic.h>

#include "elmo.h"

/* Functions of libgomp, which LLVM's and Intel's runtimes also have. */
extern __attribute__((visibility("hidden"))) struct openmp {
  void (*parallel)(void (*function)(void *), void *data, unsigned threads, unsigned flags);
  int (*thread)(void), (*threads)(void);
  void (*barrier)(void); /* waits for the other parts of a task */
} openmp;

/* task: computes part `thread` of `threads`. iteration: step n of a loop, on thread `thread`. */
typedef void task(const void *data, i64 thread, i64 threads);
typedef void iteration(const void *data, i64 n, i64 thread);

struct team {
  task *task;
  const void *data;
};
static inline void take_part(void *data) {
  const struct team *team = data;
  team->task(team->data, openmp.thread(), openmp.threads());
}

/* Runs all parts of a task at the same time; there may be fewer parts than `threads`. */
static inline void together(task *task, const void *data, int threads) {
  struct team team = {task, data};
  if (threads > 1 && openmp.parallel)
    openmp.parallel(take_part, &team, threads, 0);
  else
    task(data, 0, 1);
}

struct loop {
  iteration *iteration;
  const void *data;
  i64 count;
  _Atomic i64 *next;
};
static inline void next_ones(const void *data, i64 thread, i64 threads) {
  const struct loop *loop = data;
  (void)threads;
  for (i64 n; (n = atomic_fetch_add(loop->next, 1)) < loop->count;) loop->iteration(loop->data, n, thread);
}

/* Runs iterations 0 to `count` - 1; each thread takes the next iteration when it is free. */
static inline void share_out(iteration *iteration, const void *data, i64 count, int threads) {
  _Atomic i64 next = 0;
  struct loop loop = {iteration, data, count, &next};
  together(next_ones, &loop, threads);
}
