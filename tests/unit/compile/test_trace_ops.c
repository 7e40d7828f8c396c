/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Every operator's samples, and their gradients, against the programs that are
 * recorded from them, run operator by operator and by prepared calls: the same
 * bits. */

#include "support/samples.h"

#include "compile/prepared.h"
#include "dispatch/operator.h"

#include <libcore/compile.h>
#include <libcore/device.h>
#include <libcore/random.h>

enum { TENSORS_MAX = 64 };

/* A call whose tensors are the inputs of a function. */
typedef struct sample_call {
    const sample *s;
    arguments a;
    core_tensor *inputs[TENSORS_MAX];
    size_t ninputs;
    bool gradient;
} sample_call;

static void add_input(sample_call *c, core_tensor *tensor)
{
    ck_assert_uint_lt(c->ninputs, TENSORS_MAX);
    c->inputs[c->ninputs++] = tensor;
}

static void make_call(sample_call *c, const sample *s, bool gradient)
{
    *c = (sample_call){.s = s, .gradient = gradient};
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

/* The arguments with other tensors. */
static void replace_tensors(const sample_call *c, core_tensor *const *x,
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

static void take_results(core_value *results, core_tensor **out, size_t *count)
{
    for (int i = 0; i < RESULTS; i++) {
        core_value *result = &results[i];

        if (result->tag == CORE_VALUE_TENSOR)
            out[(*count)++] = core_tensor_retain(result->u.tensor);
        if (result->tag == CORE_VALUE_TENSOR_LIST)
            for (uint32_t k = 0; k < result->count; k++)
                out[(*count)++] = core_tensor_retain(result->u.tensors[k]);
        core_value_release(result);
    }
}

/* The gradients of the sum of all outputs. */
static core_status add_gradients(const sample_call *c, core_tensor *const *x,
                                 core_tensor **out, size_t *count)
{
    core_tensor *sums[TENSORS_MAX], *grads[TENSORS_MAX];
    core_tensor *leaves[TENSORS_MAX];
    size_t nsums = 0, nleaves = 0;
    core_status status = CORE_OK;

    for (size_t i = 0; i < *count && status == CORE_OK; i++)
        if (core_tensor_requires_grad(out[i]))
            status = core_sum(out[i], CORE_DTYPE_NONE, &sums[nsums++]);
    for (size_t i = 0; i < c->ninputs; i++)
        if (core_tensor_requires_grad(x[i]))
            leaves[nleaves++] = x[i];
    if (nsums && nleaves && status == CORE_OK)
        status = core_grad(sums, nsums, NULL, leaves, nleaves,
                           CORE_ALLOW_UNUSED, grads);
    else
        nleaves = 0;
    for (size_t i = 0; i < nsums; i++)
        core_tensor_release(sums[i]);
    for (size_t i = 0; i < nleaves && status == CORE_OK; i++)
        if (grads[i])
            out[(*count)++] = grads[i];
    return status;
}

static core_status call_sample(void *context, core_tensor *const *x,
                               size_t ninputs, core_tensor **out,
                               size_t *noutputs)
{
    const sample_call *c = context;
    core_value values[ARGUMENTS], results[RESULTS] = {{0}};
    core_tensor *lists[TENSORS_MAX];
    bool before = core_grad_mode_set(c->gradient);
    core_status status;
    size_t count = 0;

    (void)ninputs;
    replace_tensors(c, x, values, lists);
    status = core_op_call(c->a.op, values, c->a.count, results, RESULTS);
    if (status == CORE_OK) {
        take_results(results, out, &count);
        if (c->gradient)
            status = add_gradients(c, x, out, &count);
    }
    core_grad_mode_set(before);
    *noutputs = count;
    return status;
}

/* -------------------------------------------------------------- compared -- */

static void same_content(const sample *s, const char *what, size_t index,
                         core_tensor *a, core_tensor *b)
{
    size_t size =
        (size_t)core_tensor_numel(a) * core_dtype_size(core_tensor_dtype(a));
    char *bits_a = malloc(size + 1), *bits_b = malloc(size + 1);
    bool equal = core_tensor_dtype(a) == core_tensor_dtype(b) &&
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

/* Calls the program and compares with the outputs and inputs of the call of the
 * operator. */
static void compare_run(const sample_call *eager, core_tensor *const *a,
                        size_t noutputs, sample_call *traced,
                        core_program *program, bool prepared)
{
    core_tensor *b[TENSORS_MAX] = {NULL};
    const sample *s = eager->s;
    core_status status;

    core_seed(3);
    status = prepared ? core__program_run_checked(program, traced->inputs, b)
                      : core_program_run(program, traced->inputs,
                                         traced->ninputs, b, noutputs);
    ck_assert_msg(status == CORE_OK, "%s(%s)%s: %s", s->op, s->words,
                  prepared ? ", prepared" : "", core_error_message());
    for (size_t i = 0; i < noutputs; i++)
        same_content(s, prepared ? "output of a prepared call," : "output", i,
                     a[i], b[i]);
    for (size_t i = 0; i < eager->ninputs; i++)
        same_content(s, prepared ? "input of a prepared call," : "input", i,
                     eager->inputs[i], traced->inputs[i]);
    release_all(b, noutputs);
}

/* Operators of the programs, and how many of them are called as operators. */
static uint32_t operators, called;

static void count_operators(const sample *s, core_program *program)
{
    const core__prepared_facts *facts;
    const char *reason;

    facts = core__prepared_describe(program, &reason);
    operators += program->nnodes;
    if (getenv("PREPARED_REASONS") && !facts)
        fprintf(stderr, "%s: not prepared: %s\n", s->op, reason);
    if (!facts) {
        called += program->nnodes;
        return;
    }
    for (uint32_t i = 0; i < facts->nunprepared; i++) {
        called += facts->unprepared[i].count;
        if (getenv("PREPARED_REASONS"))
            fprintf(stderr, "%s: %s: %s\n", s->op,
                    facts->unprepared[i].operator_name,
                    facts->unprepared[i].reason);
    }
}

/* Nearly all operators are; others have a reason. */
static void are_prepared(void)
{
    ck_assert_uint_gt(operators, 1000);
    ck_assert_uint_lt(called, operators / 20);
}

static void compare_runs(const sample *s, bool gradient, sample_call *eager,
                         sample_call *traced, core_program *program)
{
    core_tensor *a[TENSORS_MAX] = {NULL};
    core_program_counts counts = {.struct_size = sizeof counts};
    size_t noutputs = TENSORS_MAX;
    sample_call other;

    core_seed(3);
    OK(call_sample(eager, eager->inputs, eager->ninputs, a, &noutputs));
    OK(core_program_get_counts(program, &counts));
    ck_assert_msg(counts.outputs == noutputs, "%s(%s): %llu outputs", s->op,
                  s->words, (unsigned long long)counts.outputs);
    compare_run(eager, a, noutputs, traced, program, false);
    /* The second call has other memory than that which was prepared. */
    for (int i = 0; i < 2; i++) {
        make_call(&other, s, gradient);
        compare_run(eager, a, noutputs, &other, program, true);
    }
    count_operators(s, program);
    release_all(a, noutputs);
}

/* Operators that read data on the host, or have results of unknown size, in
 * some samples or in their backward. */
static const char *const may_be_refused[] = {
    "_ctc_loss.Tensor",
    "_ctc_loss_backward.Tensor",
    "_embedding_bag",
    "_embedding_bag_forward_only",
    "_histogramdd_bin_edges",
    "_histogramdd_from_bin_cts",
    "_masked_scatter",
    "_unique",
    "_unique2",
    "binary_cross_entropy",
    "bincount",
    "cumprod",
    "equal",
    "index.Tensor",
    "index_put_",
    "linalg_lstsq",
    "linspace.Scalar_Tensor",
    "linspace.Tensor_Scalar",
    "linspace.Tensor_Tensor",
    "logspace.Scalar_Tensor",
    "logspace.Tensor_Scalar",
    "logspace.Tensor_Tensor",
    "masked_scatter",
    "masked_select",
    "nonzero",
    "repeat_interleave.Tensor",
    "repeat_interleave.self_Tensor",
    "segment_reduce",
    "unique_consecutive",
    "unique_dim",
    "unique_dim_consecutive",
    "where",
};

static void is_expected(const sample *s, const char *message)
{
    size_t i = 0, count = sizeof may_be_refused / sizeof *may_be_refused;

    while (i < count && strcmp(may_be_refused[i], s->op) != 0)
        i++;
    ck_assert_msg(i < count, "%s(%s) is not recorded: %s", s->op, s->words,
                  message);
    ck_assert_msg(strstr(message, "data on the host") ||
                      strstr(message, "depends on data") ||
                      strstr(message, "has no content"),
                  "%s(%s): %s", s->op, s->words, message);
}

static int refused, compared;

static void compare_sample(const sample *s, bool gradient)
{
    sample_call eager, traced;
    core_program *program;
    core_status status;

    make_call(&eager, s, gradient);
    make_call(&traced, s, gradient);
    status = core_program_trace(call_sample, &traced, traced.inputs,
                                traced.ninputs, TENSORS_MAX, &program);
    if (status == CORE_ERROR_UNSUPPORTED) {
        is_expected(s, core_error_message());
        refused++;
        return;
    }
    ck_assert_msg(status == CORE_OK, "%s(%s): %s", s->op, s->words,
                  core_error_message());
    status = core_program_verify(program);
    ck_assert_msg(status == CORE_OK, "%s(%s): %s", s->op, s->words,
                  core_error_message());
    compare_runs(s, gradient, &eager, &traced, program);
    core_program_release(program);
    compared++;
}

START_TEST(every_operator_computes_the_same_in_a_program)
{
    refused = compared = 0;
    operators = called = 0;
    for (size_t i = 0; i < SAMPLES; i++) {
        compare_sample(&samples[i], false);
        drop_all();
    }
    ck_assert_int_le(refused, 60);
    ck_assert_int_gt(compared, 1000);
    are_prepared();
}
END_TEST

START_TEST(every_gradient_is_the_same_in_a_program)
{
    refused = compared = 0;
    operators = called = 0;
    for (size_t i = 0; i < SAMPLES; i++) {
        if (samples[i].flags & (SAMPLE_NO_GRADIENT | SAMPLE_FORWARD_ONLY) ||
            is_in_place(&samples[i]))
            continue;
        compare_sample(&samples[i], true);
        drop_all();
    }
    ck_assert_int_le(refused, 30);
    ck_assert_int_ge(compared, 700);
    are_prepared();
}
END_TEST

SUITE("compile/trace_ops", every_operator_computes_the_same_in_a_program,
      every_gradient_is_the_same_in_a_program)
