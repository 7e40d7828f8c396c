/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sample_calls.h: calls of samples as functions of their tensors, which can be
 * recorded and compiled. */

#ifndef TESTS_SUPPORT_SAMPLE_CALLS_H
#define TESTS_SUPPORT_SAMPLE_CALLS_H

#include "samples.h"

enum { TENSORS_MAX = 64 };

/* A call whose tensors are the inputs of a function. */
typedef struct sample_call {
    const sample *s;
    arguments a;
    core_tensor *inputs[TENSORS_MAX];
    size_t ninputs;
} sample_call;

static inline void add_sample_input(sample_call *c, core_tensor *tensor)
{
    ck_assert_uint_lt(c->ninputs, TENSORS_MAX);
    c->inputs[c->ninputs++] = tensor;
}

static inline void make_sample_call(sample_call *c, const sample *s)
{
    *c = (sample_call){.s = s};
    parse_sample(&c->a, s, s->words);
    make_positive(&c->a);
    for (uint32_t i = 0; i < c->a.count; i++) {
        const core_value *value = &c->a.values[i];

        if (value->tag == CORE_VALUE_TENSOR)
            add_sample_input(c, value->u.tensor);
        if (value->tag != CORE_VALUE_TENSOR_LIST)
            continue;
        for (uint32_t k = 0; k < value->count; k++)
            if (value->u.tensors[k])
                add_sample_input(c, value->u.tensors[k]);
    }
}

/* The arguments with other tensors. */
static inline void replace_tensors(const sample_call *c, core_tensor *const *x,
                                   core_value *values, core_tensor **lists)
{
    memcpy(values, c->a.values, c->a.count * sizeof *values);
    for (uint32_t i = 0; i < c->a.count; i++) {
        core_value *value = &values[i];

        if (value->tag == CORE_VALUE_TENSOR)
            value->u.tensor = *x++;
        if (value->tag != CORE_VALUE_TENSOR_LIST)
            continue;
        for (uint32_t k = 0; k < value->count; k++)
            lists[k] = value->u.tensors[k] ? *x++ : NULL;
        value->u.tensors = lists;
        lists += value->count;
    }
}

/* Calls the operator with other tensors.  The caller owns the outputs, which are
 * those of all results, lists flattened. */
static inline core_status run_sample_call(const sample_call *c,
                                          core_tensor *const *x,
                                          core_tensor **out, size_t *out_count)
{
    core_value values[ARGUMENTS], results[RESULTS] = {{0}};
    core_tensor *lists[TENSORS_MAX];
    core_status status;
    size_t count = 0;

    replace_tensors(c, x, values, lists);
    status = core_op_call(c->a.op, values, c->a.count, results, RESULTS);
    for (int i = 0; i < RESULTS; i++) {
        core_value *result = &results[i];

        if (status == CORE_OK && result->tag == CORE_VALUE_TENSOR)
            out[count++] = core_tensor_retain(result->u.tensor);
        if (status == CORE_OK && result->tag == CORE_VALUE_TENSOR_LIST)
            for (uint32_t k = 0; k < result->count; k++)
                out[count++] = core_tensor_retain(result->u.tensors[k]);
        core_value_release(result);
    }
    *out_count = count;
    return status;
}

/* Both may be NULL.  What operators such as empty leave is not compared. */
static inline void same_content(const sample *s, const char *what, size_t index,
                                core_tensor *a, core_tensor *b)
{
    size_t size;
    char *bits_a, *bits_b;
    bool equal;

    ck_assert_msg(!a == !b, "%s(%s): %s %zu is NULL in one", s->op, s->words,
                  what, index);
    if (!a)
        return;
    size = (size_t)core_tensor_numel(a) * core_dtype_size(core_tensor_dtype(a));
    bits_a = malloc(size + 1);
    bits_b = malloc(size + 1);
    equal = core_tensor_dtype(a) == core_tensor_dtype(b) &&
            core_tensor_ndim(a) == core_tensor_ndim(b) &&
            core_tensor_numel(a) == core_tensor_numel(b);
    if (equal) {
        OK(core_tensor_read(a, bits_a, size));
        OK(core_tensor_read(b, bits_b, size));
        equal = strstr(s->op, "empty") || memcmp(bits_a, bits_b, size) == 0;
    }
    free(bits_a);
    free(bits_b);
    ck_assert_msg(equal, "%s(%s): %s %zu differs", s->op, s->words, what,
                  index);
}

#endif
