/* The threads of the OpenMP runtime that PyTorch uses. Python passes the runtime's functions to use_openmp. PyTorch's
 * threads spin for some milliseconds after their work, so a second pool of threads would have to wait for the cores.
 * Without an OpenMP runtime there is one thread.
 */
#pragma once

#include <stdatomic.h>

#include "elmo.h"

enum { PAUSES = 16000 }; /* a few tenths of a millisecond */
#ifdef __x86_64__
#define PAUSE __builtin_ia32_pause()
#else
#define PAUSE (void)0
#endif
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#define FUTEX(PLACE, OPERATION, VALUE) syscall(SYS_futex, PLACE, OPERATION, VALUE, NULL, NULL, 0)
#else
#define FUTEX(PLACE, OPERATION, VALUE) (void)0
#endif

/* Functions of libgomp, which LLVM's and Intel's runtimes also have. */
extern __attribute__((visibility("hidden"))) struct openmp {
  void (*parallel)(void (*function)(void *), void *data, unsigned threads, unsigned flags);
  int (*thread)(void), (*threads)(void);
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

/* Where the parts of a task wait for each other. Who waits for long sleeps: if other work has taken the core of a part,
   spinning would keep that part from running. */
struct barrier {
  _Atomic int arrived, round, sleepers;
};
static inline void wait_for_all(struct barrier *x, i64 parts) {
  const int round = atomic_load(&x->round);
  if (atomic_fetch_add(&x->arrived, 1) == parts - 1) {
    atomic_store(&x->arrived, 0);
    atomic_store(&x->round, round + 1);
    if (atomic_exchange(&x->sleepers, 0)) FUTEX(&x->round, FUTEX_WAKE_PRIVATE, INT32_MAX);
    return;
  }
  for (int n = 0; n < PAUSES && atomic_load(&x->round) == round; n++) PAUSE;
  while (atomic_load(&x->round) == round) {
    atomic_fetch_add(&x->sleepers, 1);
    FUTEX(&x->round, FUTEX_WAIT_PRIVATE, round);
  }
}
