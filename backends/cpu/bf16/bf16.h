/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* bf16.h: products of bf16 matrices by instructions that multiply pairs of
 * bf16 and add them up in f32 (AVX512-BF16), where the machine has them.
 *
 * A sum runs along k in one order, whatever the layout of the operands and the
 * number of threads; it is f32, and rounded once to the type of the result.
 * The instruction takes subnormal factors and sums for 0. */

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

/* A place for, or of, the elements of C. */
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
    cpu_bf16_place s; /* any dtype that reads as f32 */
    float alpha, beta;
} cpu_bf16_product;

/* Whether cpu_bf16_multiply is the way for a product of this size: the chosen
 * instruction set has the instructions, and it is neither tiny nor a vector's.
 */
bool cpu_bf16_wanted(int64_t m, int64_t n, int64_t k);

core_status cpu_bf16_multiply(const cpu_bf16_product *product);

/* ------------------------------------------------ per instruction set -- */

/* A packed line group holds, for each pair of k, a 32-bit word (k below, k + 1
 * above) of each of GROUP lines; what is beyond the operand is 0. */
enum {
    CPU_BF16_GROUP_A = 16, /* of which CPU_BF16_ROWS are used */
    CPU_BF16_GROUP_B = 32,
    CPU_BF16_ROWS = 14,
    CPU_BF16_COLUMNS = 32
};

typedef struct cpu_bf16_functions {
    /* `count` lines of k elements into one group of `group` lines. */
    void (*pack)(uint32_t *to, int64_t group, const uint16_t *from,
                 int64_t line, int64_t step, int64_t count, int64_t k);
    /* The products of one group of A and one of B, rows x columns of them, set
     * or added to sums whose rows are `distance` apart; room for
     * CPU_BF16_COLUMNS. */
    void (*multiply)(const uint32_t *a, const uint32_t *b, int64_t pairs,
                     int64_t rows, int64_t columns, float *sums,
                     int64_t distance, bool add);
    /* alpha sums into c, `rows` of CPU_BF16_COLUMNS each that lie side by side,
     * row_stride apart. */
    void (*finish_rows)(const float *sums, int64_t distance, int64_t rows,
                        float alpha, core_dtype dtype, void *c,
                        int64_t row_stride);
    /* alpha sums + s into c, a row of at most CPU_BF16_COLUMNS; beta is in s,
     * which may be NULL. */
    void (*finish)(const float *sums, float alpha, const float *s,
                   core_dtype dtype, void *c, int64_t column_stride,
                   int64_t columns);
    /* to[i] = beta from[i], n of them, at most CPU_BF16_COLUMNS. */
    void (*scale)(float *to, const uint16_t *from, float beta, int64_t n);
} cpu_bf16_functions;

extern const cpu_bf16_functions cpu_bf16_avx512;

#endif
