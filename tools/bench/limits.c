/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The limits of the machine, measured by loops of the benchmark itself:
 * copying, reading and non-temporal writing of memory, and fused multiply-adds.
 * They are measured in the same run, since they vary with other load; rows are
 * printed as a share of them. */

#include "bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined __x86_64__
#include <immintrin.h>
/* Executing CPUID would cost each process start in a virtual machine some tens
 * of microseconds, which core-bench measures. */
#if __has_include(<sys/platform/x86.h>)
#include <sys/platform/x86.h>
#define HAS_FEATURES 1
#endif
#endif
#ifndef HAS_FEATURES
#define HAS_FEATURES 0
#endif

enum { BYTES = 64 << 20, HUGE_PAGE = 2 << 20, MULTIPLIES = 1 << 18 };

typedef struct part {
    const float *from;
    float *to;
    size_t count;
    double flop; /* result */
    float sum;   /* result, so that it is computed */
} part;

typedef struct limit {
    const char *name;
    const char *unit;
    void (*run)(part *part);
    double bytes; /* per byte of memory; 0: multiply-adds */
} limit;

/* ----------------------------------------------------------- the loops -- */

static void copy(part *p)
{
    memcpy(p->to, p->from, p->count * sizeof *p->to);
}

typedef float lanes __attribute__((vector_size(32)));
enum { LANES = sizeof(lanes) / sizeof(float) };

static void read_all(part *p)
{
    const lanes *from = (const lanes *)(const void *)p->from;
    lanes a = {0}, b = {0}, c = {0}, d = {0};

    for (size_t i = 0; i + 4 <= p->count / LANES; i += 4) {
        a += from[i];
        b += from[i + 1];
        c += from[i + 2];
        d += from[i + 3];
    }
    a += b + c + d;
    p->sum = a[0] + a[LANES - 1];
}

static void stream(part *p)
{
#if defined __x86_64__
    for (size_t i = 0; i < p->count; i += 4)
        _mm_stream_ps(p->to + i, _mm_load_ps(p->from + i));
    _mm_sfence();
#else
    copy(p);
#endif
}

/* Enough independent sums that none waits for the previous one. */
#define SUMS(each)                                                          \
    each(0) each(1) each(2) each(3) each(4) each(5) each(6) each(7) each(8) \
        each(9) each(10) each(11)
enum { NSUMS = 12 };
#define BEGIN(i) vector s##i = {(float)i};
#define ADD(i) s##i = s##i * factor + more;
#define GATHER(i) s0 += s##i;

/* Multiplies vectors of so many bytes.  No sum begins at the fixed point (1.5),
 * where the compiler would notice and remove the loop. */
#define MULTIPLY(p, bytes)                                    \
    typedef float vector __attribute__((vector_size(bytes))); \
    vector factor = {0.5f}, more = {0.75f};                   \
                                                              \
    SUMS(BEGIN)                                               \
    for (long i = 0; i < MULTIPLIES; i++) {                   \
        SUMS(ADD)                                             \
        __asm__ volatile(""); /* keeps each round */          \
    }                                                         \
    SUMS(GATHER)                                              \
    (p)->sum = s0[0];                                         \
    (p)->flop = 2. * NSUMS * MULTIPLIES * ((bytes) / sizeof(float))

static void multiply_16(part *p)
{
    MULTIPLY(p, 16);
}

#if HAS_FEATURES
static __attribute__((target("avx2,fma"))) void multiply_32(part *p)
{
    MULTIPLY(p, 32);
}

static __attribute__((target("avx512f"))) void multiply_64(part *p)
{
    MULTIPLY(p, 64);
}
#endif

static void multiply(part *p)
{
#if HAS_FEATURES
    if (CPU_FEATURE_ACTIVE(AVX512F))
        multiply_64(p);
    else if (CPU_FEATURE_ACTIVE(AVX2) && CPU_FEATURE_ACTIVE(FMA))
        multiply_32(p);
    else
#endif
        multiply_16(p);
}

static const limit limits[BENCH_LIMITS] = {
    [BENCH_COPY] = {"limit.copy", "GB/s", copy, 2},
    [BENCH_READ] = {"limit.read", "GB/s", read_all, 1},
    [BENCH_STREAM] = {"limit.nontemporal_copy", "GB/s", stream, 2},
    [BENCH_FMA] = {"limit.fma_f32", "GFLOP/s", multiply, 0},
};

/* ----------------------------------------------------------- on threads -- */

enum { THREADS = 1024 };

typedef struct team {
    const limit *limit;
    uint32_t threads;
    part parts[THREADS];
} team;

typedef struct member {
    void (*run)(part *part);
    part *part;
} member;

static void *start(void *context)
{
    member *m = context;

    m->run(m->part);
    return NULL;
}

static void run_team(team *t)
{
    pthread_t threads[THREADS];
    member members[THREADS];

    for (uint32_t i = 1; i < t->threads; i++) {
        members[i] = (member){t->limit->run, &t->parts[i]};
        if (pthread_create(&threads[i], NULL, start, &members[i]) != 0) {
            fprintf(stderr,
                    "core-bench: cannot start a thread for the limits\n");
            exit(EXIT_FAILURE);
        }
    }
    t->limit->run(&t->parts[0]);
    for (uint32_t i = 1; i < t->threads; i++)
        pthread_join(threads[i], NULL);
}

static float *memory(void)
{
    float *data = aligned_alloc(HUGE_PAGE, BYTES);

    if (!data) {
        fprintf(stderr, "core-bench: no memory for the limits\n");
        exit(EXIT_FAILURE);
    }
    (void)madvise(data, BYTES, MADV_HUGEPAGE); /* as many as available */
    memset(data, 0, BYTES);
    return data;
}

/* The fastest round, since other programs share the machine. */
static double least_seconds(team *t)
{
    int turns = bench_only_checks() ? 1 : 50;
    double least = 0;

    run_team(t);
    for (int i = 0; i < turns; i++) {
        double begin = bench_now(), time;

        run_team(t);
        time = bench_now() - begin;
        if (i == 0 || time < least)
            least = time;
    }
    return least;
}

static double measure(const limit *limit, uint32_t threads)
{
    static team t;
    size_t each = BYTES / sizeof(float) / threads / 64 * 64;
    float *from = memory(), *to = memory();
    double seconds, work = 0;

    t.limit = limit;
    t.threads = threads;
    for (uint32_t i = 0; i < threads; i++)
        t.parts[i] =
            (part){.from = from + i * each, .to = to + i * each, .count = each};
    seconds = least_seconds(&t);
    for (uint32_t i = 0; i < threads; i++)
        work += limit->bytes > 0 ? limit->bytes * (double)each * sizeof(float)
                                 : t.parts[i].flop;
    free(from);
    free(to);
    return 1e-9 * work / seconds;
}

double bench_limit(bench_limit_kind kind, uint32_t threads)
{
    static double known[BENCH_LIMITS];
    static uint32_t with[BENCH_LIMITS];
    const limit *limit = &limits[kind];

    if (with[kind] != threads) {
        known[kind] = measure(limit, threads);
        with[kind] = threads;
        bench_out_threads(limit->name, threads, known[kind], limit->unit);
    }
    return known[kind];
}
