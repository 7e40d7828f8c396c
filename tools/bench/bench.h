/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* bench.h: the measuring functions of core-bench.
 *
 * A row is a function that does one thing once.  It is repeated until a
 * repeat is long enough for the clock, then measured a number of times; the
 * median is printed.  The measuring code is inlined around each function, so
 * that rows of a few nanoseconds do not include an indirect call. */

#ifndef TOOLS_BENCH_H
#define TOOLS_BENCH_H

#include <libcore/core.h>

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* --------------------------------------------------------------- results -- */

typedef struct bench_options {
    double min_time; /* of a repeat, in seconds; 0: the row's default */
    uint32_t first_threads;
    uint32_t last_threads;
    bool json;
    const char *compare; /* a file, or NULL */
    core_device *device; /* --device; NULL: the CPU */
} bench_options;

extern bench_options bench;

/* Prints a line. */
void bench_out(const char *name, double value, const char *unit);
/* "name/t2" */
void bench_out_threads(const char *name, uint32_t threads, double value,
                       const char *unit);
/* The same, with its share of what the machine can do at most. */
void bench_out_share(const char *name, uint32_t threads, double value,
                     const char *unit, double limit);
/* The same, for a row without a number of threads. */
void bench_out_limit(const char *name, double value, const char *unit,
                     double limit);
/* For --compare: records a value given to bench_out. */
void bench_compare_add(const char *name, double value, const char *unit);
/* Prints the table; returns the number of its lines, -1 if the file cannot be
 * read. */
int bench_compare(void);
/* Sorts values and returns the median. */
double bench_median(double *values, int count);

/* Prints the thread's error message and exits. */
void bench_fail(void) __attribute__((noreturn, cold));

static inline void must(core_status status)
{
    if (__builtin_expect(status != CORE_OK, 0))
        bench_fail();
}

/* ------------------------------------------------------------- measuring -- */

static inline double bench_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Returns how often to call a function so that it takes min_time, given that n
 * calls took `time`. */
static inline long bench_more(long n, double time, double min_time)
{
    return time < min_time / 20
               ? n * 10
               : (long)((double)n * (min_time / time) * 1.1) + 1;
}

/* Whether rows are only run once, to see that they do. */
static inline bool bench_only_checks(void)
{
    return bench.min_time > 0 && bench.min_time < 1e-6;
}

typedef void (*bench_row)(void *context);
enum { BENCH_REPEATS = 15 };

/* Returns the seconds per call. */
static inline __attribute__((always_inline)) double bench_seconds(
    bench_row row, void *context, double min_time)
{
    double values[BENCH_REPEATS], begin, time;
    long n = 1;

    if (bench.min_time > 0)
        min_time = bench.min_time;
    begin = bench_now();
    row(context);
    if (bench_only_checks())
        return bench_now() - begin;
    row(context);
    for (;;) {
        begin = bench_now();
        for (long i = 0; i < n; i++)
            row(context);
        time = bench_now() - begin;
        if (time >= min_time)
            break;
        n = bench_more(n, time, min_time);
    }
    for (int r = 0; r < BENCH_REPEATS; r++) {
        begin = bench_now();
        for (long i = 0; i < n; i++)
            row(context);
        values[r] = (bench_now() - begin) / (double)n;
    }
    return bench_median(values, BENCH_REPEATS);
}

static inline __attribute__((always_inline)) void bench_ns(const char *name,
                                                           bench_row row,
                                                           void *context)
{
    bench_out(name, bench_seconds(row, context, 0.02) * 1e9, "ns");
}

/* -------------------------------------------------------------- limits -- */

typedef enum bench_limit_kind {
    BENCH_COPY,
    BENCH_READ,
    BENCH_STREAM, /* a copy with non-temporal stores */
    BENCH_FMA,    /* f32 */
    BENCH_LIMITS
} bench_limit_kind;

/* Returns what the machine can do, in GB/s or GFLOP/s; measured and printed at
 * the first use with so many threads. */
double bench_limit(bench_limit_kind kind, uint32_t threads);

/* ------------------------------------------------------------- compiled -- */

enum { BENCH_INPUTS = 8 };

/* A function that is called as it is and compiled. */
typedef struct bench_compiled {
    core_tensor_function function;
    void *context;
    core_compiled *compiled;
    core_tensor *inputs[BENCH_INPUTS];
    size_t ninputs, noutputs; /* at most 1 output */
    /* Takes gradients of the output; NULL: does nothing. */
    void (*after)(struct bench_compiled *b, core_tensor *out);
} bench_compiled;

/* relu(x * x + x) */
core_status bench_chain3(void *context, core_tensor *const *inputs,
                         size_t ninputs, core_tensor **outputs,
                         size_t *noutputs);
/* Prints NAME.eager and NAME.compiled in ns, NAME.compile_ms: how long a first
 * call takes, NAME.trace_ms: how long recording and all passes of forward and
 * backward take of it, without the kernels, and
 * NAME.cached_ms: how long core_compile and the first call take in a process
 * that has no kernel in memory, with CORE_COMPILE_MAX_AUTOTUNE, whose choices an
 * earlier process left on disk. */
void bench_compiled_small(const char *name, bench_compiled *b);
/* The same in ms, for this number of threads. */
void bench_compiled_large(const char *name, uint32_t threads,
                          bench_compiled *b);
/* A compiled function of 8 inputs that has a graph break: only guards and lookup
 * cost something. */
void bench_guards_open(bench_compiled *b);
/* A step of the smallest perceptron, which is not compiled yet: 8-16-4, batch 1,
 * plain gradient descent. */
void bench_step_open(bench_compiled *b);
/* Releases the inputs. */
void bench_compiled_release(bench_compiled *b);
/* Each is a row of a bench_compiled. */
void bench_call_function(void *compiled);
void bench_call_compiled(void *compiled);
/* Training steps, and chains of operators on large tensors. */
void bench_compiled_models(void);
/* Element-wise operators among others. */
void bench_compiled_fused(uint32_t threads);

/* A folder that is LIBCORE_CACHE until it is closed, when it is removed. */
void bench_cache_open(void);
void bench_cache_close(void);

/* ------------------------------------------------------------- tensors -- */

/* On the current device. */
core_tensor *bench_full(const int64_t *sizes, size_t ndim, float value);
core_tensor *bench_ones1(void);
/* Normally distributed numbers times scale. */
core_tensor *bench_normal(const int64_t *sizes, size_t ndim, float scale);
/* Integers below `limit`, i64. */
core_tensor *bench_integers(int64_t count, int64_t limit);
core_tensor *bench_requires_grad(core_tensor *tensor);

/* ------------------------------------------------------------ sections -- */

/* The benchmark's own operators, which do nothing: they measure the cost of a
 * call. */
typedef struct bench_operators {
    core_operator *void1;   /* (Tensor a) -> () */
    core_operator *noop;    /* (Tensor a, Tensor b) -> Tensor */
    core_operator *void_ad; /* void1 with an autograd function */
    core_registration *handles[8];
    int count;
} bench_operators;

void bench_operators_register(bench_operators *operators);
void bench_operators_release(bench_operators *operators);

void bench_micro(void);
void bench_dispatch(void); /* a part of micro */
void bench_tensors(void);  /* another part */
void bench_autograd(void);
void bench_jacobians(void); /* a part of autograd */
void bench_train(void);
void bench_recurrent(uint32_t threads); /* a part of train */
void bench_networks(void);
void bench_amp(void);
void bench_linear(void);
void bench_compile(void);
void bench_comm(void);
void bench_alloc(void);
void bench_elem(void);
void bench_large(void); /* a part of elem */
void bench_blas(void);
void bench_load(void);
void bench_device(void); /* of bench.device */
/* Runs in the processes of bench_load: `core-bench BENCH_FIRST_RESULT`.  began:
 * the time at which main() began.  Returns the exit status. */
#define BENCH_FIRST_RESULT "first-result"
int bench_first_result(double main_began);
/* Runs one row `count` times inside core_bench_counted, for an instruction
 * counter; returns false if there is no such row. */
bool bench_count(const char *name, long count);
void bench_count_names(void);

#endif
