/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* cpu_view.h: tensors for the tests of kernels that receive views. */

#ifndef TESTS_SUPPORT_CPU_VIEW_H
#define TESTS_SUPPORT_CPU_VIEW_H

#include <expressions/number.h>

#include "cpu.h"

enum { TENSOR_NDIM = 6, ARGUMENTS = 16, RESULTS = 3 };

typedef struct tensor {
    core_view view;
    int64_t sizes[TENSOR_NDIM], strides[TENSOR_NDIM];
    void *data;
} tensor;

/* Strides are in elements; NULL: row-major.  Allocates enough memory for
 * them. */
static inline tensor *tensor_strided(core_dtype dtype, uint32_t ndim,
                                     const int64_t *sizes,
                                     const int64_t *strides)
{
    tensor *t = calloc(1, sizeof(*t));
    int64_t step = 1, last = 0;

    t->view = (core_view){.struct_size = sizeof(core_view),
                          .dtype = dtype,
                          .ndim = ndim,
                          .numel = 1,
                          .sizes = t->sizes,
                          .strides = t->strides,
                          .flags = strides ? 0 : CORE_VIEW_CONTIGUOUS};
    for (uint32_t d = ndim; d-- > 0;) {
        t->sizes[d] = sizes[d];
        t->strides[d] = strides ? strides[d] : step;
        step *= sizes[d];
        last += (sizes[d] - 1) * t->strides[d];
    }
    t->view.numel = step;
    t->data = calloc((size_t)(last > 0 ? last + 1 : 1), 8);
    t->view.memory.handle = t->data;
    return t;
}

static inline tensor *tensor_new(core_dtype dtype, uint32_t ndim,
                                 const int64_t *sizes)
{
    return tensor_strided(dtype, ndim, sizes, NULL);
}

#define SIZES(...)                                                          \
    (sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) \
    {                                                                       \
        __VA_ARGS__                                                         \
    }
#define F64(...) tensor_new(CORE_F64, SIZES(__VA_ARGS__))
#define F32(...) tensor_new(CORE_F32, SIZES(__VA_ARGS__))
#define I64(...) tensor_new(CORE_I64, SIZES(__VA_ARGS__))

static inline void tensor_free(tensor *t)
{
    if (t)
        free(t->data);
    free(t);
}

/* The offset of element i in row-major order. */
static inline int64_t tensor_offset(const tensor *t, int64_t i)
{
    int64_t offset = 0;

    for (uint32_t d = t->view.ndim; d-- > 0;) {
        int64_t rest = i / t->sizes[d]; /* % would divide once more */

        offset += (i - rest * t->sizes[d]) * t->strides[d];
        i = rest;
    }
    return offset;
}

static inline double tensor_get(const tensor *t, int64_t i)
{
    int64_t at = tensor_offset(t, i);

    switch (t->view.dtype) {
    case CORE_F64:
        return ((double *)t->data)[at];
    case CORE_F32:
        return (double)((float *)t->data)[at];
    case CORE_I64:
        return (double)((int64_t *)t->data)[at];
    case CORE_BOOL:
        return ((uint8_t *)t->data)[at];
    case CORE_F16:
        return (double)math_f32_of_f16(((uint16_t *)t->data)[at]);
    case CORE_BF16:
        return (double)math_f32_of_bf16(((uint16_t *)t->data)[at]);
    default:
        ck_abort_msg("dtype");
    }
    return 0;
}

static inline void tensor_set(tensor *t, int64_t i, double value)
{
    int64_t at = tensor_offset(t, i);

    switch (t->view.dtype) {
    case CORE_F64:
        ((double *)t->data)[at] = value;
        break;
    case CORE_F32:
        ((float *)t->data)[at] = (float)value;
        break;
    case CORE_I64:
        ((int64_t *)t->data)[at] = (int64_t)value;
        break;
    case CORE_BOOL:
        ((uint8_t *)t->data)[at] = value != 0;
        break;
    case CORE_F16:
        ((uint16_t *)t->data)[at] = math_f16_of_f32((float)value);
        break;
    case CORE_BF16:
        ((uint16_t *)t->data)[at] = math_bf16_of_f32((float)value);
        break;
    default:
        ck_abort_msg("dtype");
    }
}

static inline tensor *tensor_random(tensor *t, uint32_t seed)
{
    for (int64_t i = 0; i < t->view.numel; i++)
        tensor_set(t, i, (double)random_float(&seed));
    return t;
}

/* What tensor_get gives after tensor_set. */
static inline double tensor_rounded(const tensor *t, double value)
{
    tensor one = *t;
    uint64_t element = 0;

    one.data = &element;
    tensor_set(&one, 0, value);
    return tensor_get(&one, 0);
}

/* Integers below a limit. */
static inline tensor *tensor_below(tensor *t, int64_t limit, uint32_t seed)
{
    for (int64_t i = 0; i < t->view.numel; i++)
        tensor_set(t, i, (double)(next_random(&seed) % (uint32_t)limit));
    return t;
}

/* The same elements with other strides: the first dimension innermost, and
 * gaps. */
static inline tensor *tensor_turned(const tensor *from)
{
    int64_t strides[TENSOR_NDIM], step = 2;
    tensor *t;

    for (uint32_t d = 0; d < from->view.ndim; d++) {
        strides[d] = step;
        step *= from->sizes[d];
    }
    t = tensor_strided(from->view.dtype, from->view.ndim, from->sizes, strides);
    for (int64_t i = 0; i < from->view.numel; i++)
        tensor_set(t, i, tensor_get(from, i));
    return t;
}

static inline core_value value_view(const tensor *t)
{
    core_value value = {.tag = t ? CORE_VALUE_VIEW : CORE_VALUE_NONE};

    if (t)
        value.u.view = &t->view;
    return value;
}

static inline core_value value_bool(int b)
{
    core_value value = {.tag = CORE_VALUE_BOOL, .u.i = b};
    return value;
}

static inline core_value value_ints(uint32_t count, const int64_t *ints)
{
    core_value value = {
        .tag = CORE_VALUE_INT_LIST, .count = count, .u.ints = ints};
    return value;
}
#define INTS(...) value_ints(SIZES(__VA_ARGS__))

static inline core_value value_mask(void)
{
    static const uint8_t all[3] = {1, 1, 1};
    core_value value = {
        .tag = CORE_VALUE_BOOL_LIST, .count = 3, .u.bools = all};
    return value;
}

/* Calls the last kernel of that name. */
static inline core_status view_launch(const char *name, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults)
{
    const core_kernel *found = NULL;
    core_call call = {.struct_size = sizeof(call), .host = &cpu_test_host};

    for (uint32_t k = 0; k < cpu_kernel_count; k++)
        if (core_sdk_string_equal(cpu_all_kernels[k].name, name))
            found = &cpu_all_kernels[k];
    ck_assert_msg(found != NULL, "no kernel for %s", name);
    call.user = found->user;
    return found->launch(&call, args, nargs, results, nresults);
}

/* A call in the form that tests write: args, then results. */
typedef struct test_call {
    const char *name;
    core_value args[ARGUMENTS];
    uint32_t nargs;
    tensor *results[RESULTS];
    uint32_t nresults;
} test_call;

static inline core_status run_call(const test_call *c)
{
    core_value results[RESULTS];

    for (uint32_t k = 0; k < c->nresults; k++)
        results[k] = value_view(c->results[k]);
    return view_launch(c->name, c->args, c->nargs, results, c->nresults);
}

#endif
