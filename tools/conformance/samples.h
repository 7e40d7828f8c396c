/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* samples.h: calls of each operator that has kernels, and the interval of
 * their values.  The words of a call:
 *
 *     t:2,3   a tensor of these sizes, of the tested dtype
 *     u:2,3   the same with distinct values      p:2,3  the same as t
 *     h:3,3   the same, positive definite        v:5    the same, ascending
 *     x:2,3/4 i64 in [0, 4)     q:5  a permutation of 0 … 4     m:2,3  bool
 *     y:3     i32 1, 2, 3: pivots without exchanges
 *     x:2,2/9=0,8,4,4   i64, these numbers below 9
 *     [ … ]   a list of tensors
 *     i:2 f:.5 b:1 s:text l:1,2 k:1,0,1 n   values
 *     %       the tested dtype                    @  the device
 *     d:f64   the dtype of the call */

#ifndef CONFORMANCE_SAMPLES_H
#define CONFORMANCE_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct sample {
    const char *op;
    const char *words;
    double low, high;
} sample;

/* Generated from ops.yaml, sorted by operator. */
extern const sample sample_table[];
extern const size_t sample_count;

/* Calls with further values of arguments, those that unit tests make without a
 * gradient; the same. */
extern const sample argument_sample_table[];
extern const size_t argument_sample_count;

/* Calls of more than 65,536 elements; the same. */
extern const sample large_sample_table[];
extern const size_t large_sample_count;

/* Returns NULL after the last of sample_table. */
const sample *sample_at(size_t index);

/* An operator that uses the kernels of another: add.Scalar those of
 * add.Tensor. */
typedef struct kernel_name {
    const char *op;
    const char *kernel;
} kernel_name;

/* Generated from ops.yaml, sorted by operator. */
extern const kernel_name kernel_name_table[];
extern const size_t kernel_name_count;

/* Operators that have no kernels and whose names are not those of kernels,
 * generated from ops.yaml, sorted. */
extern const char *const composed_table[];
extern const size_t composed_count;

/* Tests whether kernels of this name are never called, because the operator is
 * composed of others. */
bool is_composed(const char *op);

/* Returns the name under which an operator's kernels are registered. */
const char *kernel_name_of(const char *op);

#endif
