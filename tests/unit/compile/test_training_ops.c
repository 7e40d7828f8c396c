/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients of every operator's samples through compiled functions: the bits of
 * those without compilation. */

#include "support/samples.h"

#include "dispatch/operator.h"

#include <libcore/compiled.h>
#include <libcore/device.h>
#include <libcore/random.h>

enum { TENSORS_MAX = 64 };

/* A call whose tensors are the inputs of a function. */
typedef struct sample_call {
    const sample *s;
    arguments a;
    core_tensor *inputs[TENSORS_MAX];
    size_t ninputs;
} sample_call;

static void add_input(sample_call *c, core_tensor *tensor)
{
    ck_assert_uint_lt(c->ninputs, TENSORS_MAX);
    c->inputs[c->ninputs++] = tensor;
}

static void make_call(sample_call *c, const sample *s)
{
    *c = (sample_call){.s = s};
    parse_sample(&c->a, s, s->words);
    make_positive(&c->a);
    for (uint32_t i = 0; i < c->a.count; i++) {
        const core_value *value = &c->a.values[i];

        if (value->tag == CORE_VALUE_TENSOR)
            add_input(c, value->u.tensor);
        if (value->tag != CORE_VALUE_TENSOR_LIST)
            continue;
        for (uint32_t k = 0; k < value->count; k++)
            if (value->u.tensors[k])
                add_input(c, value->u.tensors[k]);
    }
}

static core_status call_sample(void *context, core_tensor *const *x,
                               size_t ninputs, core_tensor **out,
                               size_t *noutputs)
{
    const sample_call *c = context;
    core_value values[ARGUMENTS], results[RESULTS] = {{0}};
    core_tensor *lists[TENSORS_MAX], **list = lists;
    core_status status;
    size_t count = 0;

    (void)ninputs;
    memcpy(values, c->a.values, c->a.count * sizeof *values);
    for (uint32_t i = 0; i < c->a.count; i++) {
        core_value *value = &values[i];

        if (value->tag == CORE_VALUE_TENSOR)
            value->u.tensor = *x++;
        if (value->tag != CORE_VALUE_TENSOR_LIST)
            continue;
        for (uint32_t k = 0; k < value->count; k++)
            list[k] = value->u.tensors[k] ? *x++ : NULL;
        value->u.tensors = list;
        list += value->count;
    }
    status = core_op_call(c->a.op, values, c->a.count, results, RESULTS);
    for (int i = 0; i < RESULTS && status == CORE_OK; i++) {
        core_value *result = &results[i];

        if (result->tag == CORE_VALUE_TENSOR)
            out[count++] = core_tensor_retain(result->u.tensor);
        if (result->tag == CORE_VALUE_TENSOR_LIST)
            for (uint32_t k = 0; k < result->count; k++)
                out[count++] = core_tensor_retain(result->u.tensors[k]);
    }
    for (int i = 0; i < RESULTS; i++)
        core_value_release(&results[i]);
    *noutputs = count;
    return status;
}

/* The gradients of the inputs; *out_count of them, NULL where there is none. */
static void differentiate(const sample_call *c, core_tensor *const *outputs,
                          size_t noutputs, core_tensor **out, size_t *out_count)
{
    core_tensor *roots[TENSORS_MAX], *seeds[TENSORS_MAX], *leaves[TENSORS_MAX];
    size_t nroots = 0;

    *out_count = 0;
    for (size_t i = 0; i < noutputs; i++) {
        if (!core_tensor_requires_grad(outputs[i]))
            continue;
        core_seed(i + 1);
        OK(core_rand(core_tensor_sizes(outputs[i]),
                     core_tensor_ndim(outputs[i]), NULL,
                     core_tensor_dtype(outputs[i]),
                     core_tensor_device(outputs[i]), &seeds[nroots]));
        roots[nroots++] = outputs[i];
    }
    for (size_t i = 0; i < c->ninputs; i++)
        if (core_tensor_requires_grad(c->inputs[i]))
            leaves[(*out_count)++] = c->inputs[i];
    if (!nroots || !*out_count)
        *out_count = 0;
    else
        OK(core_grad(roots, nroots, seeds, leaves, *out_count,
                     CORE_ALLOW_UNUSED, out));
    for (size_t i = 0; i < nroots; i++)
        core_tensor_release(seeds[i]);
}

static void same_content(const sample *s, const char *what, size_t index,
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

static void release_all(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        core_tensor_release(tensors[i]);
}

static int trained, refused;

/* Reasons for which a sample is not compiled; see test_trace_ops.c. */
static void check_refusal(const sample *s)
{
    const char *message = core_error_message();

    ck_assert_msg(strstr(message, "data on the host") ||
                      strstr(message, "depends on data") ||
                      strstr(message, "has no content") ||
                      strstr(message, "cannot be made again"),
                  "%s(%s): %s", s->op, s->words, message);
    refused++;
}

static void compare_gradients(const sample *s, const sample_call *eager,
                              core_tensor *const *a, const sample_call *traced,
                              core_tensor *const *b, size_t noutputs)
{
    core_tensor *grads_a[TENSORS_MAX], *grads_b[TENSORS_MAX];
    size_t count_a, count_b;

    for (size_t i = 0; i < noutputs; i++) {
        same_content(s, "output", i, a[i], b[i]);
        ck_assert_msg(
            core_tensor_requires_grad(a[i]) == core_tensor_requires_grad(b[i]),
            "%s(%s): output %zu: requires_grad differs", s->op, s->words, i);
    }
    differentiate(eager, a, noutputs, grads_a, &count_a);
    differentiate(traced, b, noutputs, grads_b, &count_b);
    ck_assert_uint_eq(count_a, count_b);
    for (size_t i = 0; i < count_a; i++)
        same_content(s, "gradient", i, grads_a[i], grads_b[i]);
    trained += count_a > 0;
    release_all(grads_a, count_a);
    release_all(grads_b, count_b);
}

static void compare_sample(const sample *s)
{
    core_compile_options options = {.struct_size = sizeof options,
                                    .flags = CORE_COMPILE_FULLGRAPH};
    core_tensor *a[TENSORS_MAX], *b[TENSORS_MAX];
    size_t noutputs = TENSORS_MAX;
    sample_call eager, traced;
    core_compiled *compiled;
    core_status status;

    make_call(&eager, s);
    make_call(&traced, s);
    core_seed(3);
    OK(call_sample(&eager, eager.inputs, eager.ninputs, a, &noutputs));
    OK(core_compile(call_sample, &traced, &options, &compiled));
    core_seed(3);
    status = core_compiled_call(compiled, traced.inputs, traced.ninputs, b,
                                noutputs);
    if (status == CORE_ERROR_UNSUPPORTED) {
        check_refusal(s);
    } else {
        ck_assert_msg(status == CORE_OK, "%s(%s): %s", s->op, s->words,
                      core_error_message());
        compare_gradients(s, &eager, a, &traced, b, noutputs);
        release_all(b, noutputs);
    }
    release_all(a, noutputs);
    core_compiled_release(compiled);
}

START_TEST(every_gradient_through_a_compiled_function_is_the_same)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        if (samples[i].flags & (SAMPLE_NO_GRADIENT | SAMPLE_FORWARD_ONLY) ||
            is_in_place(&samples[i]))
            continue;
        compare_sample(&samples[i]);
        drop_all();
    }
    ck_assert_int_le(refused, 30);
    ck_assert_int_ge(trained, 690);
}
END_TEST

SUITE("compile/training_ops",
      every_gradient_through_a_compiled_function_is_the_same)
