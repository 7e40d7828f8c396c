/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* bf16.h: products of bf16 matrices by instructions that multiply pairs of
 * bf16 and accumulate in f32 (AVX512-BF16), if the machine has them.
 *
 * A sum runs along k in one order, for any layout of the operands and any
 * number of threads; it is f32, and rounded once to the type of the result.
 * The instruction treats subnormal factors and sums as 0. */

#ifndef CPU_BF16_H
#define CPU_BF16_H

#include <libcore/plugin.h>

#include <stdbool.h>

/* Strides in elements.  step: from one k to the next; line: from one row of A,
 * or one column of B, to the next. */
typedef struct cpu_bf16_operand {
    const uint16_t *data;
    int64_t batch_stride, line, step;
} cpu_bf16_operand;

/* The location of the elements of C or S. */
typedef struct cpu_bf16_place {
    char *data; /* of S: may be NULL */
    core_dtype dtype;
    int64_t batch_stride, row_stride, column_stride;
} cpu_bf16_place;

/* C = beta S + alpha A B, for each batch. */
typedef struct cpu_bf16_product {
    int64_t batch, m, n, k;
    cpu_bf16_operand a, b;
    cpu_bf16_place c; /* bf16 or f32 */
    cpu_bf16_place s; /* any dtype that is read as f32 */
    float alpha, beta;
    struct cpu_epilogue *epilogue; /* of C; or NULL */
} cpu_bf16_product;

/* Returns whether cpu_bf16_multiply should compute a product of this size: the
 * chosen instruction set has the instructions, and it is neither tiny nor a
 * vector product. */
bool cpu_bf16_is_faster(int64_t m, int64_t n, int64_t k);

core_status cpu_bf16_multiply(const cpu_bf16_product *product);

/* ------------------------------------------------ per instruction set -- */

/* A packed group has, for each pair of k, a 32-bit word (k low, k + 1 high) of
 * each of GROUP lines; words beyond the operand are 0. */
enum {
    CPU_BF16_GROUP_A = 16, /* of which CPU_BF16_ROWS are used */
    CPU_BF16_GROUP_B = 32,
    CPU_BF16_ROWS = 14,
    CPU_BF16_COLUMNS = 32
};

typedef struct cpu_bf16_functions {
    /* Packs `count` lines of k elements into one group of `group` lines. */
    void (*pack)(uint32_t *to, int64_t group, const uint16_t *from,
                 int64_t line, int64_t step, int64_t count, int64_t k);
    /* Multiplies one group of A and one of B, rows x columns, and stores or
     * adds the products to sums whose rows are `distance` apart, with space for
     * CPU_BF16_COLUMNS. */
    void (*multiply)(const uint32_t *a, const uint32_t *b, int64_t pairs,
                     int64_t rows, int64_t columns, float *sums,
                     int64_t distance, bool add);
    /* Writes alpha sums to c: `rows` of CPU_BF16_COLUMNS contiguous elements,
     * row_stride apart. */
    void (*finish_rows)(const float *sums, int64_t distance, int64_t rows,
                        float alpha, core_dtype dtype, void *c,
                        int64_t row_stride);
    /* Writes alpha sums + s to c: a row of at most CPU_BF16_COLUMNS; s includes
     * beta and may be NULL. */
    void (*finish)(const float *sums, float alpha, const float *s,
                   core_dtype dtype, void *c, int64_t column_stride,
                   int64_t columns);
    /* to[i] = beta from[i], n of them, at most CPU_BF16_COLUMNS. */
    void (*scale)(float *to, const uint16_t *from, float beta, int64_t n);
} cpu_bf16_functions;

extern const cpu_bf16_functions cpu_bf16_avx512;

#endif
