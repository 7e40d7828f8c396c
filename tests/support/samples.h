/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* samples.h: the calls of operators that ops.yaml lists as samples, and how
 * tests make one.  core/ops/README.md explains the notes that become flags. */

#ifndef TESTS_SUPPORT_SAMPLES_H
#define TESTS_SUPPORT_SAMPLES_H

#include "ops.h"

enum {
    SAMPLE_DENSE = 1 << 0,        /* no variant with strided operands */
    SAMPLE_SIZED = 1 << 1,        /* element-wise, for these sizes alone */
    SAMPLE_FIRST_ORDER = 1 << 2,  /* the second derivative is refused */
    SAMPLE_THIRD_ORDER = 1 << 3,  /* the third derivative is checked as well */
    SAMPLE_NO_GRADIENT = 1 << 4,  /* the first derivative is refused */
    SAMPLE_FORWARD_ONLY = 1 << 5, /* no derivative is checked */
    SAMPLE_REFUSED = SAMPLE_FIRST_ORDER | SAMPLE_NO_GRADIENT
};

typedef struct sample {
    const char *op;
    const char *words;
    double low, high; /* of the values of leaves */
    int flags;
    const char *reason; /* for SAMPLE_REFUSED: why a derivative is missing */
} sample;

#include "ops_samples.h"

enum { SAMPLES = sizeof samples / sizeof *samples };

/* The arguments of the sample, or of the same operator with other words.
 * Every call of this function draws the same numbers. */
static inline void parse_sample(arguments *a, const sample *s,
                                const char *words)
{
    check c = {s->op, words, s->low, s->high};

    state = 12345;
    parse(a, &c);
}

/* Whether the operator changes its first argument; names such as __lshift__ do
 * not say so. */
static inline bool is_in_place(const sample *s)
{
    return s->op[strcspn(s->op, ".") - 1] == '_' &&
           strncmp(s->op, "__", 2) != 0;
}

/* x xᵀ + 1 for each argument that is to be positive definite. */
static inline void make_positive(arguments *a)
{
    for (uint32_t i = 0; i < a->count; i++) {
        core_tensor *x = a->values[i].u.tensor, *product;

        if (!(a->positive >> i & 1))
            continue;
        product = CALL(matmul, x, CALL(transpose, x, -2, -1));
        a->values[i].u.tensor = CALL(
            add, product, CALL(eye, core_tensor_size(x, -1), CORE_F64, NULL),
            core_int(1));
    }
}

#endif
