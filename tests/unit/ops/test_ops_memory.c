/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Every operator that has a gradient, forward and backward, with each of its
 * allocations failing in turn: it fails with OUT_OF_MEMORY, returns no result,
 * leaks nothing, and the next call succeeds. */

#include "support/effort.h"
#include "support/samples.h"
#include "support/schemas.h"

#include "base/memory.h"

/* Computes the gradients of the sum of the first result that requires grad. */
static core_status gradients(arguments *a, const core_value *results)
{
    core_tensor *total, *grads[TENSORS] = {NULL};
    core_status status = CORE_OK;

    for (int k = 0; k < RESULTS; k++) {
        if (results[k].tag != CORE_VALUE_TENSOR ||
            !core_tensor_requires_grad(results[k].u.tensor))
            continue;
        status = core_sum(results[k].u.tensor, CORE_DTYPE_NONE, &total);
        if (status == CORE_OK)
            status = core_grad(&total, 1, NULL, a->leaves, a->nleaves,
                               CORE_ALLOW_UNUSED, grads);
        core_tensor_release(total);
        break;
    }
    for (size_t k = 0; k < a->nleaves; k++)
        core_tensor_release(grads[k]);
    return status;
}

static core_status run(arguments *a)
{
    core_value results[RESULTS] = {0};
    core_status status =
        core_op_call(a->op, a->values, a->count, results, RESULTS);

    if (status == CORE_OK)
        status = gradients(a, results);
    else
        for (int k = 0; k < RESULTS; k++)
            ck_assert_uint_eq(results[k].tag, CORE_VALUE_NONE);
    for (int k = 0; k < RESULTS; k++)
        core_value_release(&results[k]);
    return status;
}

static void starve(const sample *s, arguments *a, bool for_good)
{
    core_status status = CORE_ERROR_OUT_OF_MEMORY;
    int64_t allowed = 0, before;

    core__alloc_fault_set(INT32_MAX, false);
    OK(run(a));
    before = core__alloc_live();
    while (status != CORE_OK) {
        core__alloc_fault_set(allowed++, for_good);
        status = run(a);
        core__alloc_fault_set(INT32_MAX, false);
        ck_assert_msg(status == CORE_OK || status == CORE_ERROR_OUT_OF_MEMORY,
                      "%s(%s): %s: %s", s->op, s->words,
                      core_status_name(status), core_error_message());
        if (status != CORE_OK)
            ck_assert_msg(strstr(core_error_message(), "memory"),
                          "%s(%s): \"%s\"", s->op, s->words,
                          core_error_message());
        ck_assert_msg(core__alloc_live() == before,
                      "%s(%s): %lld blocks leak after %lld", s->op, s->words,
                      (long long)(core__alloc_live() - before),
                      (long long)allowed);
    }
    ck_assert_int_gt(allowed, 1);
    core__alloc_fault_set(-1, false);
}

START_TEST(failed_allocation_is_out_of_memory_without_leaks)
{
    const sample *s = &samples[_i];
    arguments a;

    if (s->flags & (SAMPLE_NO_GRADIENT | SAMPLE_FORWARD_ONLY) || is_in_place(s))
        return; /* leaves are not changed in place */
    parse_sample(&a, s, s->words);
    if (a.positive)
        return;  /* these samples need positive definite leaves */
    OK(run(&a)); /* creates what is allocated once and kept */
    if (!effort_is_slow() || _i % 2 == 0)
        starve(s, &a, false);
    if (!effort_is_slow() || _i % 2 == 1)
        starve(s, &a, true);
}
END_TEST

int main(void)
{
    const suite_loop loops[] = {
        {failed_allocation_is_out_of_memory_without_leaks, 0, SAMPLES},
    };
    const test_suite suite = {
        .name = "ops/ops_memory",
        .teardown = drop_all,
        SUITE_LOOPS(loops),
    };

    schemas_parse();
    return suite_run(&suite, 1);
}
