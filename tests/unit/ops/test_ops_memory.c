/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Every operator that has a gradient, forward and backward, with each of its
 * allocations failing in turn: it fails with OUT_OF_MEMORY, returns no result,
 * leaks nothing, and the next call succeeds. */

#include "support/ops_samples.h"

#include "base/memory.h"

#define GROUP(samples)                             \
    {                                              \
        samples, sizeof(samples) / sizeof *samples \
    }
static const struct {
    const sample *samples;
    int count;
} groups[] = {GROUP(samples_of_one),  GROUP(samples_of_several),
              GROUP(samples_special), GROUP(samples_reduced),
              GROUP(samples_shaped),  GROUP(samples_indexed),
              GROUP(samples_matrix),  GROUP(samples_layered)};

static const sample *sample_at(int index)
{
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        if (index < groups[g].count)
            return &groups[g].samples[index];
        index -= groups[g].count;
    }
    return NULL;
}

/* Computes the gradients of the sum of the first result that requires grad. */
static core_status gradients(arguments *a, const core_value *results)
{
    core_tensor *total, *grads[TENSORS] = {NULL};
    core_status status = CORE_OK;

    for (int k = 0; k < 4; k++) {
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
    core_value results[4] = {0};
    core_status status = core_op_call(a->op, a->values, a->count, results, 4);

    if (status == CORE_OK)
        status = gradients(a, results);
    else
        for (int k = 0; k < 4; k++)
            ck_assert_uint_eq(results[k].tag, CORE_VALUE_NONE);
    for (int k = 0; k < 4; k++)
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
    const sample *s = sample_at(_i);
    check c = {s->op, s->words, s->low, s->high, 0};
    char words[256];
    arguments a;

    if (s->flags & NEVER || s->op[strcspn(s->op, ".") - 1] == '_')
        return; /* leaves are not changed in place */
    snprintf(words, sizeof words, "%s", s->words);
    parse(&a, &c, words);
    if (a.positive)
        return;  /* these samples need positive definite leaves */
    OK(run(&a)); /* creates what is allocated once and kept */
    starve(s, &a, false);
    starve(s, &a, true);
}
END_TEST

int main(void)
{
    suite_loop loops[] = {
        {failed_allocation_is_out_of_memory_without_leaks, 0, 0},
    };
    const test_suite suite = {
        .name = "ops memory",
        .teardown = drop_all,
        SUITE_LOOPS(loops),
    };

    while (sample_at(loops[0].end))
        loops[0].end++;
    return suite_run(&suite, 1);
}
