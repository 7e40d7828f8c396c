/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* replay_compiled.h: recorded calls by core_compile. */

#ifndef CONFORMANCE_REPLAY_COMPILED_H
#define CONFORMANCE_REPLAY_COMPILED_H

#include <libcore/dispatch.h>

#include <stdbool.h>
#include <stddef.h>

/* How a function is compiled. */
typedef enum compiled_kind {
    COMPILED_FORWARD,  /* the call, without gradients */
    COMPILED_GRADIENT, /* the call and core_grad of its results, in one
                        * function */
    COMPILED_JOINT,    /* the call with arguments that require grad; core_grad
                        * is called outside */
    COMPILED_KINDS
} compiled_kind;

/* Why functions were called as they are. */
typedef struct compiled_reason {
    compiled_kind kind;
    char text[300];
    size_t count;
} compiled_reason;

enum { COMPILED_REASONS = 64 };

typedef struct compiled_counts {
    size_t compiled[COMPILED_KINDS]; /* functions that ran as a program */
    size_t eager[COMPILED_KINDS];    /* that were called as they are */
    compiled_reason reasons[COMPILED_REASONS];
    size_t nreasons;
    size_t other; /* calls with further reasons */
} compiled_counts;

/* Prints the counts, and the reasons. */
void compiled_counts_print(const compiled_counts *counts);

/* An operator's call and, if ngradients > 0, the gradients of its results. */
typedef struct compiled_call {
    core_operator *op;
    const core_value *args;
    uint32_t nargs;
    const size_t *differentiated; /* numbers of results */
    core_tensor *const *cotangents;
    size_t ncotangents;
    core_tensor *const *wanted; /* arguments */
    size_t nwanted;             /* 0: no gradients */
} compiled_call;

/* Calls the operator as it is, and then twice as a compiled function.  outputs:
 * the tensors of its results, a list flattened, or the gradients, of the last
 * call; capacity entries, of which *out_count are filled; absent ones are NULL.
 * The caller owns them.  INTERNAL: the calls differ in a bit or a stride. */
core_status compiled_call_run(const compiled_call *call, compiled_kind kind,
                              compiled_counts *counts, core_tensor **outputs,
                              size_t capacity, size_t *out_count);

#endif
