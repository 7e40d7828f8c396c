/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* reduce.h: reductions.  A reducer (reducers.c, extremes.c, moments.c)
 * processes dense runs of one of four types; the driver (reduce.c) walks the
 * loop, shares it among threads and combines their states.  The order of
 * combination depends on the loop alone.  Compiled per instruction set. */

#ifndef CPU_REDUCE_H
#define CPU_REDUCE_H

#include "loop/block.h"

enum {
    CPU_WORDS = 3,        /* of a state */
    CPU_REDUCE_ROWS = 16, /* rows that are processed together */
    CPU_REDUCE_RUNS = 16  /* runs, where a reducer can */
};

typedef union cpu_word {
    double d;
    int64_t i;
} cpu_word;

/* States of up to CPU_BLOCK outputs. */
typedef struct cpu_states {
    cpu_word w[CPU_WORDS][CPU_BLOCK];
} cpu_states;

typedef struct cpu_reduction {
    int64_t count; /* elements reduced into one output */
    double number; /* correction, or order of a norm */
} cpu_reduction;

/* For one of the types f32, f64, i64, bf16.  Words of float types are doubles. */
typedef struct cpu_reducer {
    uint32_t words;
    core_dtype result[2];      /* of words 0 and 1 after finish: F64 or I64 */
    cpu_word first[CPU_WORDS]; /* of no elements */
    /* Processes n <= CPU_BLOCK elements, which begin at `index` of the reduced
     * elements, into output 0. */
    void (*run)(cpu_states *s, const void *x, int64_t n, int64_t index,
                const cpu_reduction *reduction);
    /* Processes `rows` <= CPU_REDUCE_ROWS rows of n elements, one per output,
     * from `index` of the reduced elements on. */
    void (*rows)(cpu_states *s, const void *const *x, int rows, int64_t n,
                 int64_t index, const cpu_reduction *reduction);
    /* Merges the states of later elements, for n outputs. */
    void (*merge)(cpu_states *into, const cpu_states *from, int64_t n);
    /* Turns the states of n outputs into the results: word 0 for the first
     * output, word 1 for the second.  May be NULL. */
    void (*finish)(cpu_states *s, int64_t n, const cpu_reduction *reduction);
    /* Does what run does, with the same bits, for `runs` <= CPU_REDUCE_RUNS
     * runs of 17 to CPU_BLOCK elements, one after the other, run r into output
     * r * step.  May be NULL. */
    void (*runs)(cpu_states *s, const void *const *x, int runs, int64_t n,
                 int step);
} cpu_reducer;

/* One for each type; NULL if an operator does not support it.  That of bf16 has
 * the bits of that of f32, which is used where it is NULL. */
typedef struct cpu_reducers {
    const cpu_reducer *f32, *f64, *i64, *bf16;
} cpu_reducers;

#define CPU_REDUCERS(X) \
    X(sum)              \
    X(nansum)           \
    X(mean)             \
    X(prod)             \
    X(amax)             \
    X(amin)             \
    X(any)              \
    X(all)              \
    X(count_nonzero)    \
    X(norm_0)           \
    X(norm_1)           \
    X(norm_2)           \
    X(norm_p)           \
    X(norm_most)        \
    X(norm_least)       \
    X(logsumexp)        \
    X(var)              \
    X(std)              \
    X(max_index)        \
    X(min_index)        \
    X(argmax)           \
    X(argmin)

#define DECLARE(name) extern const cpu_reducers CPU_NAME(cpu_reduce_##name);
CPU_REDUCERS(DECLARE)
#undef DECLARE

#endif
