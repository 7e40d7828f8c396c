/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Answers at the edges of what operators take: one number instead of a row,
 * no batch, nothing asked for. */

#include "ops.h"

/* A call, one of its results, the sizes and the sum that this has. */
typedef struct answer {
    const char *op, *words;
    int result;
    uint32_t ndim;
    int64_t sizes[2];
    double total;
} answer;

static core_status call_words(const char *op, const char *words, arguments *a,
                              core_value *results)
{
    check c = {op, words, .5, .5, 0};
    char copy[256];

    snprintf(copy, sizeof copy, "%s", words);
    state = 0;
    parse(a, &c, copy);
    return core_op_call(a->op, a->values, a->count, results, 4);
}

static void look(const answer *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const answer *r = &rows[i];
        core_value results[4] = {0};
        arguments a;
        core_status status = call_words(r->op, r->words, &a, results);
        core_tensor *x = results[r->result].u.tensor;
        double total = 0;

        ck_assert_msg(status == CORE_OK, "%s(%s): %s", r->op, r->words,
                      core_error_message());
        ck_assert_msg(core_tensor_ndim(x) == r->ndim, "%s(%s): %u dimensions",
                      r->op, r->words, core_tensor_ndim(x));
        for (uint32_t d = 0; d < r->ndim; d++)
            ck_assert_msg(core_tensor_sizes(x)[d] == r->sizes[d],
                          "%s(%s): dimension %u is %lld", r->op, r->words, d,
                          (long long)core_tensor_sizes(x)[d]);
        OK(core_tensor_read(CALL(sum, x, CORE_F64), &total, sizeof total));
        ck_assert_msg(total == r->total, "%s(%s): sum %g, not %g", r->op,
                      r->words, total, r->total);
        for (int k = 0; k < 4; k++)
            core_value_release(&results[k]);
    }
}

#define LOOK(rows) look(rows, sizeof rows / sizeof *(rows))

START_TEST(losses_of_one_number)
{
    static const answer rows[] = {
        {"multi_margin_loss", "p: x:/1 i:1 f:1 n i:1", 0, 0, {0}, 0},
        {"multi_margin_loss", "p: x:/1 i:1 f:1 n i:0", 0, 0, {0}, 0},
        {"multi_margin_loss", "p:2 x:/1 i:1 f:1 n i:0", 0, 0, {0}, .5},
        {"multilabel_margin_loss_forward", "p: x:/1 i:0", 0, 0, {0}, 0},
        {"multilabel_margin_loss_forward", "p: x:/1 i:1", 1, 0, {0}, 1},
        {"nll_loss_forward", "p:3 x:/1 n i:0 i:-100", 0, 0, {0}, -.5},
        {"nll_loss_forward", "p:3 x:/1 n i:0 i:-100", 1, 0, {0}, 1},
        {"nll_loss_forward", "p:3 x:/1 p:3 i:0 i:-100", 1, 0, {0}, .5},
        {"nll_loss_forward", "p:2,3 x:2/1 p:3 i:0 i:-100", 1, 0, {0}, 0},
    };

    LOOK(rows);
}
END_TEST

START_TEST(a_number_has_one_dimension_to_keep)
{
    static const answer rows[] = {
        {"aminmax", "p: i:0 b:1", 0, 1, {1}, .5},
        {"aminmax", "p: i:-1 b:1", 1, 1, {1}, .5},
        {"aminmax", "p: i:0 b:0", 0, 0, {0}, .5},
        {"aminmax", "p: n b:1", 1, 0, {0}, .5},
    };
    core_value results[4] = {0};
    arguments a;

    LOOK(rows);
    FAILS(call_words("aminmax", "p: i:1 b:1", &a, results), CORE_ERROR_INDEX,
          "aminmax", "1");
}
END_TEST

/* Of slices there is always everything. */
START_TEST(runs_of_slices_and_of_elements)
{
    static const answer rows[] = {
        {"unique_consecutive", "p:4 b:0 b:0 n", 1, 1, {0}, 0},
        {"unique_consecutive", "p:4 b:0 b:0 i:0", 1, 1, {0}, 0},
        {"unique_consecutive", "p:4 b:0 b:0 i:0", 2, 1, {0}, 0},
        {"unique_consecutive", "p:4 b:0 b:0 i:-1", 2, 1, {1}, 4},
        {"unique_consecutive", "p:4 b:1 b:1 i:0", 1, 1, {4}, 0},
        {"unique_consecutive", "p:4 b:1 b:1 i:0", 2, 1, {1}, 4},
        {"unique_consecutive", "p:3,2 b:0 b:0 i:0", 0, 2, {1, 2}, 1},
        {"unique_consecutive", "p:3,2 b:0 b:0 i:0", 1, 1, {3}, 0},
        {"unique_consecutive", "p:3,2 b:0 b:0 i:0", 2, 1, {1}, 3},
    };

    LOOK(rows);
}
END_TEST

START_TEST(no_batch_has_gradients)
{
    core_value results[4] = {0};
    core_tensor *y;
    arguments a;

    OK(call_words("native_group_norm", "t:0,2 t:2 t:2 i:0 i:2 i:1 i:1 f:.1", &a,
                  results));
    y = CALL(sum, results[0].u.tensor, CORE_DTYPE_NONE);
    OK(core_backward(&y, 1, NULL, 0));
    for (size_t i = 0; i < a.nleaves; i++)
        ck_assert_ptr_nonnull(core_tensor_grad(a.leaves[i]));
    HOLDS(core_tensor_grad(a.leaves[1]), 2, 0, 0);
    for (int k = 0; k < 4; k++)
        core_value_release(&results[k]);
}
END_TEST

/* An argument without a formula raises when its gradient is asked for. */
START_TEST(no_gradient_is_silently_absent)
{
    static const struct {
        const char *op, *words, *argument;
    } rows[] = {
        {"fractional_max_pool2d", "p:1,1,4,4 l:2,2 l:2,2 t:1,1,2",
         "random_samples"},
        {"fractional_max_pool3d", "p:1,1,4,4,4 l:2,2,2 l:2,2,2 t:1,1,3",
         "random_samples"},
        {"nll_loss_forward", "p:4,3 x:4/3 t:3 i:1 i:-100", "weight"},
        {"nll_loss2d_forward", "p:1,3,2,2 x:1,2,2/3 t:3 i:1 i:-100", "weight"},
        {"nll_loss_backward", "p: p:4,3 x:4/3 t:3 i:1 i:-100 p:", "weight"},
        {"nll_loss_backward", "p: p:4,3 x:4/3 n i:1 i:-100 t:", "total_weight"},
        {"nll_loss2d_backward",
         "p: p:1,3,2,2 x:1,2,2/3 t:3 i:1 i:-100 p:", "weight"},
        {"linalg_pinv.atol_rtol_tensor", "p:2,2 t: n b:0", "atol"},
        {"linalg_pinv.atol_rtol_tensor", "p:2,2 n t: b:0", "rtol"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        core_value results[4] = {0};
        core_tensor *y;
        arguments a;

        OK(call_words(rows[i].op, rows[i].words, &a, results));
        y = CALL(sum, results[0].u.tensor, CORE_DTYPE_NONE);
        FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_UNSUPPORTED, rows[i].op,
              rows[i].argument);
        for (int k = 0; k < 4; k++)
            core_value_release(&results[k]);
    }
}
END_TEST

/* The weight of a margin has a formula. */
START_TEST(margins_have_gradients)
{
    core_value results[4] = {0};
    core_tensor *y;
    arguments a;

    OK(call_words("multi_margin_loss", "p:2,2 q:2 i:1 f:1 t:2 i:2", &a,
                  results));
    y = results[0].u.tensor;
    OK(core_backward(&y, 1, NULL, 0));
    HOLDS(core_tensor_grad(a.leaves[0]), 2, 0, 1);
    core_value_release(&results[0]);
}
END_TEST

SUITE("ops answers", losses_of_one_number, a_number_has_one_dimension_to_keep,
      runs_of_slices_and_of_elements, no_batch_has_gradients,
      no_gradient_is_silently_absent, margins_have_gradients)
