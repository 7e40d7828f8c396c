/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Modes see every operator: with a mode that refuses its calls no operator
 * succeeds, and with modes that pass calls on each returns the same bits as
 * without. */

#include "support/modes.h"
#include "support/samples.h"

#include "dispatch/operator.h"

#include <libcore/random.h>

static core_status refuses(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    return core_error_set(CORE_ERROR_REFUSED, core_op_name(call->op));
}

static core_status passes(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    ++*(uint32_t *)call->user;
    return core_redispatch_below(call, args, nargs, results, nresults);
}

static core_status call_sample(arguments *a, core_value *results)
{
    memset(results, 0, RESULTS * sizeof *results);
    core_seed(7);
    return core_op_call(a->op, a->values, a->count, results, RESULTS);
}

static void prepare(arguments *a, const sample *s)
{
    bool before = core_grad_mode_set(false);

    parse_sample(a, s, s->words);
    make_positive(a);
    core_grad_mode_set(before);
    /* Leaves cannot be changed in place. */
    for (size_t i = 0; is_in_place(s) && i < a->nleaves; i++)
        OK(core_tensor_set_requires_grad(a->leaves[i], false));
}

static void release_all(core_value *results)
{
    for (int i = 0; i < RESULTS; i++)
        core_value_release(&results[i]);
}

/* ------------------------------------------------------------- refusals -- */

/* A composite may return its argument without calling anything. */
static bool may_call_nothing(const core_operator *op)
{
    return op->data->implicit;
}

static void check_refusals(const sample *s)
{
    core_value results[RESULTS];
    arguments a;

    for (uint32_t level = 0; level < 2; level++) {
        core_status status;

        prepare(&a, s);
        push(level, refuses, NULL);
        status = call_sample(&a, results);
        pop();
        release_all(results);
        drop_all();
        if (level == CORE_MODE_BELOW_AUTOGRAD && may_call_nothing(a.op))
            continue;
        ck_assert_msg(status == CORE_ERROR_REFUSED,
                      "%s(%s): level %u: the status is %d, \"%s\"", s->op,
                      s->words, level, status, core_error_message());
    }
}

/* In parts, since a process for each sample takes ten times as long. */
enum { PARTS = 16 };

START_TEST(no_operator_bypasses_a_mode)
{
    for (int i = _i; i < SAMPLES; i += PARTS)
        check_refusals(&samples[i]);
}
END_TEST

/* ------------------------------------------------------------- passing on -- */

static void same_tensor(const sample *s, core_tensor *want, core_tensor *got)
{
    size_t bytes = (size_t)core_tensor_numel(want) *
                   core_dtype_size(core_tensor_dtype(want));
    char *a = malloc(bytes + 1), *b = malloc(bytes + 1);

    ck_assert_msg(core_tensor_dtype(want) == core_tensor_dtype(got) &&
                      core_tensor_ndim(want) == core_tensor_ndim(got) &&
                      core_tensor_numel(want) == core_tensor_numel(got) &&
                      core_tensor_requires_grad(want) ==
                          core_tensor_requires_grad(got),
                  "%s(%s): another tensor under modes", s->op, s->words);
    OK(core_tensor_read(want, a, bytes));
    OK(core_tensor_read(got, b, bytes));
    ck_assert_msg(strstr(s->op, "empty") || memcmp(a, b, bytes) == 0,
                  "%s(%s): other values under modes", s->op, s->words);
    free(a);
    free(b);
}

static void same(const sample *s, const core_value *want, const core_value *got)
{
    ck_assert_msg(want->tag == got->tag && want->count == got->count,
                  "%s(%s): another result under modes", s->op, s->words);
    if (want->tag == CORE_VALUE_TENSOR)
        same_tensor(s, want->u.tensor, got->u.tensor);
    else if (want->tag == CORE_VALUE_TENSOR_LIST)
        for (uint32_t k = 0; k < want->count; k++)
            same_tensor(s, want->u.tensors[k], got->u.tensors[k]);
    else
        ck_assert_int_eq(want->u.i, got->u.i);
}

static void check_passing(const sample *s)
{
    core_value want[RESULTS], got[RESULTS];
    uint32_t calls[2] = {0};
    arguments a;

    prepare(&a, s);
    OK(call_sample(&a, want));
    prepare(&a, s);
    for (uint32_t level = 0; level < 2; level++) {
        push(level, passes, &calls[level]);
        push(level, passes, &calls[level]);
    }
    OK(call_sample(&a, got));
    while (nmodes)
        pop();
    ck_assert_uint_eq(calls[CORE_MODE_API], 2);
    ck_assert(calls[CORE_MODE_BELOW_AUTOGRAD] >= 2 || may_call_nothing(a.op));
    for (int i = 0; i < RESULTS; i++)
        same(s, &want[i], &got[i]);
    release_all(want);
    release_all(got);
    drop_all();
}

START_TEST(passing_modes_change_nothing)
{
    for (int i = _i; i < SAMPLES; i += PARTS)
        check_passing(&samples[i]);
}
END_TEST

int main(void)
{
    const suite_loop loops[] = {
        {no_operator_bypasses_a_mode, 0, PARTS},
        {passing_modes_change_nothing, 0, PARTS},
    };
    const test_suite suite = {
        .name = "ops/modes", .teardown = pop_all, SUITE_LOOPS(loops)};

    return suite_run(&suite, 1);
}
