/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* inference.h: shapes and dtypes of an operator's results, and checks and
 * error messages shared by all families of operators.
 *
 * The inference functions are in core/ops (ops/infer.h). */

#ifndef CORE_DISPATCH_INFERENCE_H
#define CORE_DISPATCH_INFERENCE_H

#include "base/text.h"
#include "dispatch/operator.h"
#include "tensor/dtype.h"

enum { CORE__RESULTS_MAX = 4 };

typedef struct core__result_spec {
    core_dtype dtype; /* CORE_DTYPE_NONE: there is no such result (a gradient
                       * that output_mask excludes) */
    uint32_t ndim;
    int64_t sizes[CORE_MAX_NDIM];
    bool has_strides; /* otherwise row-major */
    int64_t strides[CORE_MAX_NDIM];
} core__result_spec;

struct core__inference {
    core_operator *op;
    const core_value *args;
    uint32_t nargs;
    /* Set before the function runs: the common device of the tensors, or a
     * factory's device argument.  All tensors are on it except 0-dim ones on
     * the host. */
    core_device *device;
    core__result_spec results[CORE__RESULTS_MAX];
    /* For random operators, set before the function runs: the number of
     * elements of the largest tensor.  The function may correct it; 0: no
     * random numbers are drawn. */
    uint64_t draws;
};

#define CORE__DRAWS_LARGEST UINT64_MAX

/* The inference of a plugin's operator: its shape function. */
core_status core__shape_infer(core__inference *inference);

static inline core_tensor *core__tensor_of(const core_value *value)
{
    return value->tag == CORE_VALUE_TENSOR ? value->u.tensor : NULL;
}

static inline core_generator *core__generator_of(const core_value *value)
{
    return value->tag == CORE_VALUE_GENERATOR ? value->u.generator : NULL;
}

static inline double core__double_of(const core_value *value)
{
    return value->tag == CORE_VALUE_FLOAT ? value->u.f : (double)value->u.i;
}

/* Converts a number to i64.  A float is truncated; one out of range becomes the
 * smallest or largest i64, and NaN becomes 0. */
static inline int64_t core__int_of(const core_value *value)
{
    double x = value->u.f;

    if (value->tag != CORE_VALUE_FLOAT)
        return value->u.i;
    if (x >= -0x1p63 && x < 0x1p63)
        return (int64_t)x;
    return x > 0 ? INT64_MAX : x < 0 ? INT64_MIN : 0;
}

static inline core_dtype core__dtype_of(const core_value *value)
{
    return value->tag == CORE_VALUE_DTYPE ? (core_dtype)value->u.i
                                          : CORE_DTYPE_NONE;
}

/* Helpers for inference functions.  Tensor arguments are NULL if absent. */
core_tensor *core__arg_tensor(const core_value *args, uint32_t position);
int64_t core__arg_int(const core_value *args, uint32_t position,
                      int64_t absent);
double core__arg_float(const core_value *args, uint32_t position,
                       double absent);
bool core__arg_bool(const core_value *args, uint32_t position, bool absent);
/* A number with its tag. */
static inline core_scalar core__arg_number(const core_value *args,
                                           uint32_t position, int64_t absent)
{
    const core_scalar number = {CORE_VALUE_INT, 0, {.i = absent}};

    return args[position].tag == CORE_VALUE_NONE ? number : args[position];
}
core_dtype core__arg_dtype(const core_value *args, uint32_t position,
                           core_dtype absent);
/* Converts -ndim … ndim-1 (0-dim tensors accept -1 and 0) to 0 …; otherwise
 * returns INDEX. */
core_status core__dim_wrap(const core_operator *op, int64_t dim, uint32_t ndim,
                           uint32_t *out_dim);
/* The product of sizes; returns SHAPE on overflow or a negative size. */
core_status core__sizes_numel(uint32_t ndim, const int64_t *sizes,
                              int64_t *out_numel);
core_status core__sizes_broadcast(const core_operator *op, uint32_t ndim_a,
                                  const int64_t *a, uint32_t ndim_b,
                                  const int64_t *b, uint32_t *out_ndim,
                                  int64_t *out_sizes);
/* "operator: a has sizes [2, 3], b [4, 5]: reason" */
core_status core__op_shapes_error(const core_operator *op, const char *name_a,
                                  const core_tensor *a, const char *name_b,
                                  const core_tensor *b, const char *format, ...)
    __attribute__((format(printf, 6, 7), cold));
/* After a failure inside a composite: puts "operator: " before the message
 * unless it begins with the operator. */
void core__op_prefix_name(const core_operator *op) __attribute__((cold));
/* The size of the built-in operator's name with which a text begins, "mm: …";
 * 0: there is none. */
size_t core__op_leading_name(const char *text) __attribute__((cold));
/* After a failure whose message begins with the operator: if that goes on with
 * an operator that this one is made of, and the message can be told in terms of
 * these arguments, it is.  If it does not name a tensor then, appends dtype and
 * sizes of each tensor argument. */
void core__op_describe_arguments(const core_operator *op, core_status status,
                                 const core_value *args, uint32_t nargs)
    __attribute__((cold));
core_status core__op_dtype_check(const core_operator *op, core_dtype dtype);
core_status core__op_format_check(const core_operator *op, int64_t format);
/* After OUT_OF_MEMORY: puts operator and device before the message unless it
 * begins with the operator. */
void core__op_prefix_memory(const core_operator *op, const core_device *device)
    __attribute__((cold));

/* After an allocation: returns status. */
static inline core_status core__op_check_allocation(const core_operator *op,
                                                    const core_device *device,
                                                    core_status status)
{
    if (core__unlikely(status == CORE_ERROR_OUT_OF_MEMORY))
        core__op_prefix_memory(op, device);
    return status;
}
/* "operator: message", the form of every message here. */
core_status core__op_error(core_status code, const core_operator *op,
                           const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/* Returns INVALID_ARGUMENT if an integer dtype cannot hold a number.  Fractions
 * are truncated, and negative integers wrap in u8 down to -255, since -1 is a
 * way to write all bits. */
core_status core__number_check_range(const core_operator *op, const char *name,
                                     const core_scalar *number,
                                     core_dtype dtype);

/* Returns INVALID_ARGUMENT for a fraction by which integers are multiplied, and
 * for any floating number if the result is bool. */
core_status core__number_check_whole(const core_operator *op, const char *name,
                                     const core_scalar *number,
                                     core_dtype dtype);

/* The checks that an element-wise operator's entry in ops.yaml requests for its
 * numbers, before anything is changed. */
core_status core__numbers_check(const core_operator *op, const core_value *args,
                                uint32_t nargs, core_device *device,
                                core_dtype result, core_dtype compute);

#endif
