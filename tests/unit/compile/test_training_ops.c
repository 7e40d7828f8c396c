/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients of every operator's samples through compiled functions: the bits of
 * those without compilation. */

#include "support/sample_calls.h"

#include "dispatch/operator.h"

#include <libcore/compiled.h>
#include <libcore/device.h>
#include <libcore/random.h>

static core_status call_sample(void *context, core_tensor *const *x,
                               size_t ninputs, core_tensor **out,
                               size_t *noutputs)
{
    (void)ninputs;
    return run_sample_call(context, x, out, noutputs);
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
    release_tensors(seeds, nroots);
}

static int trained, refused;

/* Reasons for which a sample is not compiled; see test_trace_ops.c. */
static void check_refusal(const sample *s)
{
    static const char *const readers[] = {
        "_pack_padded_sequence",
        "_pad_packed_sequence",
        "gru.data",
        "lstm.data",
        "rnn_relu.data",
        "rnn_tanh.data",
    };
    const char *message = core_error_message();

    ck_assert_msg(strstr(message, "data on the host") ||
                      strstr(message, "depends on data") ||
                      strstr(message, "has no content") ||
                      strstr(message, "cannot be made again"),
                  "%s(%s): %s", s->op, s->words, message);
    /* These read lengths or fractions on the host, whatever the sample. */
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        if (strcmp(s->op, readers[i]) == 0)
            return;
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
    release_tensors(grads_a, count_a);
    release_tensors(grads_b, count_b);
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

    make_sample_call(&eager, s);
    make_sample_call(&traced, s);
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
        release_tensors(b, noutputs);
    }
    release_tensors(a, noutputs);
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
