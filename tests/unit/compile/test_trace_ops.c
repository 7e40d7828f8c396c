/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Every operator's samples, and their gradients, against the programs that are
 * recorded from them, run operator by operator and by prepared calls: the same
 * bits. */

#include "support/sample_calls.h"

#include "compile/prepare/prepared.h"
#include "dispatch/operator.h"

#include <libcore/compile.h>
#include <libcore/device.h>
#include <libcore/random.h>

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
    release_tensors(sums, nsums);
    for (size_t i = 0; i < nleaves && status == CORE_OK; i++)
        if (grads[i])
            out[(*count)++] = grads[i];
    return status;
}

/* The functions that are recorded. */
static core_status call_plainly(void *context, core_tensor *const *x,
                                size_t ninputs, core_tensor **out,
                                size_t *noutputs)
{
    bool before = core_grad_mode_set(false);
    core_status status = run_sample_call(context, x, out, noutputs);

    (void)ninputs;
    core_grad_mode_set(before);
    return status;
}

static core_status call_and_differentiate(void *context, core_tensor *const *x,
                                          size_t ninputs, core_tensor **out,
                                          size_t *noutputs)
{
    bool before = core_grad_mode_set(true);
    core_status status = run_sample_call(context, x, out, noutputs);

    (void)ninputs;
    if (status == CORE_OK)
        status = add_gradients(context, x, out, noutputs);
    core_grad_mode_set(before);
    return status;
}

/* -------------------------------------------------------------- compared -- */

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
    release_tensors(b, noutputs);
}

/* Operators of the programs, and how many of them are called as operators.  With
 * PREPARED_REASONS in the environment the reasons are printed. */
static uint32_t operators, called;

static void count_operators(const sample *s, core_program *program)
{
    core__prepared_facts *facts;
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
    core__prepared_facts_release(facts);
}

/* Nearly all operators are; others have a reason. */
static void are_prepared(void)
{
    ck_assert_uint_gt(operators, 1000);
    ck_assert_uint_lt(called, operators / 20);
}

static void compare_runs(core_tensor_function function, sample_call *eager,
                         sample_call *traced, core_program *program)
{
    const sample *s = eager->s;
    core_tensor *a[TENSORS_MAX] = {NULL};
    core_program_counts counts = {.struct_size = sizeof counts};
    size_t noutputs = TENSORS_MAX;
    sample_call other;

    core_seed(3);
    OK(function(eager, eager->inputs, eager->ninputs, a, &noutputs));
    OK(core_program_get_counts(program, &counts));
    ck_assert_msg(counts.outputs == noutputs, "%s(%s): %llu outputs", s->op,
                  s->words, (unsigned long long)counts.outputs);
    compare_run(eager, a, noutputs, traced, program, false);
    /* The second call has other memory than that which was prepared. */
    for (int i = 0; i < 2; i++) {
        make_sample_call(&other, s);
        compare_run(eager, a, noutputs, &other, program, true);
    }
    count_operators(s, program);
    release_tensors(a, noutputs);
}

/* Operators that read data on the host, or have results of unknown size, in
 * some samples or in their backward. */
static const char *const may_be_refused[] = {
    "_ctc_loss.Tensor",
    "_ctc_loss_backward.Tensor",
    "_histogramdd_bin_edges",
    "_histogramdd_from_bin_cts",
    "_masked_scatter",
    "_pack_padded_sequence",
    "_pad_packed_sequence",
    "_unique",
    "_unique2",
    "allclose",
    "bincount",
    "equal",
    "gru.data",
    "index.Tensor",
    "linalg_lstsq",
    "lstm.data",
    "masked_scatter",
    "masked_select",
    "nonzero",
    "repeat_interleave.Tensor",
    "repeat_interleave.self_Tensor",
    "rnn_relu.data",
    "rnn_tanh.data",
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

/* Operators of which every sample reads lengths or fractions on the host. */
static bool always_reads(const sample *s)
{
    static const char *const names[] = {
        "_pack_padded_sequence",
        "_pad_packed_sequence",
        "gru.data",
        "lstm.data",
        "rnn_relu.data",
        "rnn_tanh.data",
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], s->op) == 0)
            return true;
    return false;
}

static int refused, compared;

static void compare_sample(const sample *s, core_tensor_function function)
{
    sample_call eager, traced;
    core_program *program;
    core_status status;

    make_sample_call(&eager, s);
    make_sample_call(&traced, s);
    status = core_program_trace(function, &traced, traced.inputs,
                                traced.ninputs, TENSORS_MAX, &program);
    if (status == CORE_ERROR_UNSUPPORTED) {
        is_expected(s, core_error_message());
        refused += !always_reads(s);
        return;
    }
    ck_assert_msg(!always_reads(s), "%s(%s) is recorded", s->op, s->words);
    ck_assert_msg(status == CORE_OK, "%s(%s): %s", s->op, s->words,
                  core_error_message());
    status = core_program_verify(program);
    ck_assert_msg(status == CORE_OK, "%s(%s): %s", s->op, s->words,
                  core_error_message());
    compare_runs(function, &eager, &traced, program);
    core_program_release(program);
    compared++;
}

START_TEST(every_operator_computes_the_same_in_a_program)
{
    refused = compared = 0;
    operators = called = 0;
    for (size_t i = 0; i < SAMPLES; i++) {
        compare_sample(&samples[i], call_plainly);
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
        compare_sample(&samples[i], call_and_differentiate);
        drop_all();
    }
    ck_assert_int_le(refused, 30);
    ck_assert_int_ge(compared, 700);
    are_prepared();
}
END_TEST

SUITE("compile/trace_ops", every_operator_computes_the_same_in_a_program,
      every_gradient_is_the_same_in_a_program)
