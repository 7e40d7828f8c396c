/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Operators that read their arguments on the host, in programs: what a check
 * finds is an error of each run, and a result that depends on content is that of
 * the run. */

#include "support/compiled.h"

#include <libcore/expressions.h>

/* ---------------------------------------------------------------- checks -- */

static core_tensor *floats(size_t n, const float *values)
{
    int64_t size = (int64_t)n;
    core_tensor *tensor;

    OK(core_tensor_from_data(values, CORE_F32, &size, 1, program_device,
                             &tensor));
    return keep(tensor);
}

static core_tensor *integers(size_t n, const int64_t *values)
{
    int64_t size = (int64_t)n;
    core_tensor *tensor;

    OK(core_tensor_from_data(values, CORE_I64, &size, 1, program_device,
                             &tensor));
    return keep(tensor);
}

#define FLOATS(...) \
    floats(sizeof(float[]){__VA_ARGS__} / sizeof(float), (float[]){__VA_ARGS__})
#define INTEGERS(...)                                          \
    integers(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t), \
             (int64_t[]){__VA_ARGS__})

/* The loss of the first, which must be between 0 and 1. */
COMPILED_FUNCTION(entropy)
{
    *noutputs = 1;
    return core_binary_cross_entropy(x[0], x[1], NULL, CORE_REDUCTION_MEAN,
                                     &out[0]);
}

/* Nothing uses the loss. */
COMPILED_FUNCTION(unused_entropy)
{
    core_tensor *loss;

    CORE_TRY(core_binary_cross_entropy(x[0], x[1], NULL, CORE_REDUCTION_MEAN,
                                       &loss));
    core_tensor_release(loss);
    *noutputs = 1;
    return core_neg(x[0], &out[0]);
}

/* Quantiles of the second. */
COMPILED_FUNCTION(quantiles)
{
    *noutputs = 1;
    return core_quantile(x[1], x[0], NULL, false, "linear", &out[0]);
}

/* A bag for each element of the first. */
COMPILED_FUNCTION(bags)
{
    core_tensor *more[3];
    core_status status;

    *noutputs = 1;
    status = core_embedding_bag(x[1], x[2], x[0], false, 0, false, NULL, false,
                                &out[0], &more[0], &more[1], &more[2]);
    for (int i = 0; i < 3 && status == CORE_OK; i++)
        core_tensor_release(more[i]);
    return status;
}

typedef struct checked_call {
    core_tensor_function function;
    size_t ninputs;
    core_tensor *good, *bad, *others[2];
} checked_call;

static void gives_the_error_of_the_function(const checked_call *c)
{
    core_compiled *compiled = compile_fully(c->function, NULL);
    core_tensor *a, *b, *inputs[3] = {c->good, c->others[0], c->others[1]};
    core_status expected;
    char message[256];
    const char *at;
    size_t count = 1;

    for (int i = 0; i < 3; i++) {
        inputs[0] = c->good;
        OK(c->function(NULL, inputs, c->ninputs, &a, &count));
        OK(core_compiled_call(compiled, inputs, c->ninputs, &b, 1));
        same_bits("output", 0, a, b);
        core_tensor_release(a);
        core_tensor_release(b);
        inputs[0] = c->bad;
        expected = c->function(NULL, inputs, c->ninputs, &a, &count);
        ck_assert_int_ne(expected, CORE_OK);
        snprintf(message, sizeof message, "%s", core_error_message());
        ck_assert_int_eq(
            core_compiled_call(compiled, inputs, c->ninputs, &b, 1), expected);
        /* The operator, or the one that it calls: _embedding_bag. */
        at = core_error_message();
        ck_assert_str_eq(at + (*at == '_'), message);
    }
    EXPLAINS(compiled, "\"breaks\": []");
    EXPLAINS(compiled, "\"traces\": 1");
    core_compiled_release(compiled);
}

START_TEST(a_check_of_content_is_an_error_of_the_run)
{
    checked_call calls[] = {
        {entropy,
         2,
         FLOATS(.25F, .5F, 1),
         FLOATS(.25F, 1.5F, 1),
         {FLOATS(0, 1, .5F)}},
        {unused_entropy,
         2,
         FLOATS(.25F, .5F, 1),
         FLOATS(.25F, -1, 1),
         {FLOATS(0, 1, .5F)}},
        {quantiles,
         2,
         FLOATS(.25F, 1),
         FLOATS(.25F, 1.25F),
         {FLOATS(3, 1, 2, 5)}},
        {bags,
         3,
         INTEGERS(0, 2),
         INTEGERS(0, 7),
         {numbers_on(program_device, 2, (int64_t[]){4, 3}, 5),
          INTEGERS(1, 3, 0)}},
    };

    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        /* Elsewhere a check would wait. */
        if (calls[i].function != quantiles &&
            strcmp(core_device_name(program_device), "cpu") != 0)
            continue;
        gives_the_error_of_the_function(&calls[i]);
    }
}
END_TEST

/* A check belongs to the forward of a function whose backward is recorded. */
START_TEST(a_check_of_a_weight_is_an_error_of_the_forward)
{
    core_compiled *compiled = compile_fully(entropy, NULL);
    core_tensor *inputs[2] = {FLOATS(.25F, .5F, 1), FLOATS(0, 1, .5F)}, *loss;

    OK(core_tensor_set_requires_grad(inputs[0], true));
    OK(core_compiled_call(compiled, inputs, 2, &loss, 1));
    OK(core_backward(&loss, 1, NULL, 0));
    core_tensor_release(loss);
    inputs[0] = FLOATS(.25F, 5, 1);
    OK(core_tensor_set_requires_grad(inputs[0], true));
    ck_assert_int_eq(core_compiled_call(compiled, inputs, 2, &loss, 1),
                     strcmp(core_device_name(program_device), "cpu") == 0
                         ? CORE_ERROR_INVALID_ARGUMENT
                         : CORE_OK);
    core_tensor_release(loss);
    EXPLAINS(compiled, "\"traces\": 1");
    core_compiled_release(compiled);
}
END_TEST

/* Two checks with a group around the first, whose last operand is made late: of
 * two errors the first one is given. */
COMPILED_FUNCTION(checks_in_order)
{
    core_tensor *made[5] = {NULL};
    core_status status;

    *noutputs = 1;
    OK(core_mul(x[0], x[0], &made[0]));
    status = core_binary_cross_entropy(made[0], x[2], NULL, CORE_REDUCTION_MEAN,
                                       &made[1]);
    if (status == CORE_OK)
        status = core_binary_cross_entropy(x[1], x[2], NULL,
                                           CORE_REDUCTION_MEAN, &made[2]);
    OK(core_mm(x[0], x[0], &made[3]));
    OK(core_add(x[0], made[3], core_int(1), &made[4]));
    if (status == CORE_OK)
        status = core_add(made[0], made[4], core_int(1), &out[0]);
    for (int i = 0; i < 5; i++)
        core_tensor_release(made[i]);
    return status;
}

START_TEST(checks_keep_their_order_in_fused_programs)
{
    const uint32_t codegens[] = {CORE_COMPILE_CODEGEN_OFF,
                                 CORE_COMPILE_CODEGEN_ON};
    world w = {.device = program_device, .ninputs = 3};
    core_tensor *out = NULL;
    char message[256];
    size_t count = 1;

    if (strcmp(core_device_name(program_device), "cpu") != 0)
        return;                         /* elsewhere the check would wait */
    w.inputs[0] = NUMBERS(&w, 3, 4, 4); /* not between 0 and 1 */
    w.inputs[1] = NUMBERS(&w, 40, 4, 4);
    w.inputs[2] = keep(CALL(zeros, (const int64_t[]){4, 4}, 2, CORE_F32, NULL));
    ck_assert_int_ne(checks_in_order(NULL, w.inputs, 3, &out, &count), CORE_OK);
    snprintf(message, sizeof message, "%s", core_error_message());
    for (int i = 0; i < 2; i++) {
        core_compiled *compiled = compile_with(
            checks_in_order, NULL,
            (core_compile_options){.codegen = codegens[i],
                                   .flags = CORE_COMPILE_FULLGRAPH});

        ck_assert_int_ne(core_compiled_call(compiled, w.inputs, 3, &out, 1),
                         CORE_OK);
        ck_assert_str_eq(core_error_message(), message);
        core_compiled_release(compiled);
    }
}
END_TEST

/* --------------------------------------------------------------- content -- */

/* The gradient of a product so far, which has another formula where there are
 * zeros. */
COMPILED_FUNCTION(products_so_far)
{
    core_tensor *y, *ones;
    core_status status;
    bool before = core_grad_mode_set(true);

    *noutputs = 1;
    OK(core_cumprod(x[0], 0, CORE_DTYPE_NONE, &y));
    OK(core_ones_like(y, CORE_DTYPE_NONE, NULL, -1, &ones));
    status = core_grad(&y, 1, &ones, &x[0], 1, 0, out);
    core_tensor_release(ones);
    core_tensor_release(y);
    core_grad_mode_set(before);
    return status;
}

/* The first, with numbers put where the second is above 0, in three ways. */
COMPILED_FUNCTION(put_by_mask)
{
    core_tensor *mask, *row, *list[2] = {NULL}, *sum = NULL;
    core_status status;
    int64_t dim = 1;

    *noutputs = 3;
    OK(core_gt_scalar(x[1], core_int(0), &mask));
    OK(core_any_dim(mask, dim, false, &row));
    list[0] = mask;
    OK(core_select(x[2], 0, 0, &sum));
    OK(core_sum(sum, CORE_DTYPE_NONE, &list[1]));
    status = core_index_put(x[0], list, 1, list[1], false, &out[0]);
    if (status == CORE_OK)
        status = core_index_put(x[0], &row, 1, sum, true, &out[1]);
    core_tensor_release(list[1]);
    list[0] = NULL;
    list[1] = row;
    if (status == CORE_OK)
        status = core_index_put(x[3], list, 2, sum, false, &out[2]);
    core_tensor_release(sum);
    core_tensor_release(mask);
    core_tensor_release(row);
    return status;
}

static void same_results(core_tensor_function function, core_compiled *compiled,
                         const world *w, size_t count)
{
    core_tensor *a[5], *b[5];

    OK(function(NULL, w->inputs, w->ninputs, a, &count));
    OK(core_compiled_call(compiled, w->inputs, w->ninputs, b, count));
    for (size_t i = 0; i < count; i++) {
        same_bits("output", i, a[i], b[i]);
        core_tensor_release(a[i]);
        core_tensor_release(b[i]);
    }
}

START_TEST(the_gradient_of_cumprod_depends_on_the_zeros_of_the_run)
{
    core_compiled *compiled = compile_fully(products_so_far, NULL);
    world w = {.device = program_device, .ninputs = 1};

    for (int i = 0; i < 4; i++) {
        w.inputs[0] = i % 2 ? FLOATS(1, 2, 0, 3, 0) : FLOATS(1, 2, 4, 3, 5);
        OK(core_tensor_set_requires_grad(w.inputs[0], true));
        same_results(products_so_far, compiled, &w, 1);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    core_compiled_release(compiled);
}
END_TEST

START_TEST(numbers_are_put_by_a_mask)
{
    core_compiled *compiled = compile_fully(put_by_mask, NULL);

    for (uint32_t i = 0; i < 3; i++) {
        world w = {.device = program_device, .ninputs = 4};

        w.inputs[0] = NUMBERS(&w, 1 + i, 4, 3);
        w.inputs[1] = NUMBERS(&w, 50 + 7 * i, 4, 3);
        w.inputs[2] = NUMBERS(&w, 90 + i, 2, 3);
        w.inputs[3] = NUMBERS(&w, 9 + i, 2, 4, 3);
        same_results(put_by_mask, compiled, &w, 3);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    core_compiled_release(compiled);
}
END_TEST

/* The first with numbers put where masks are true: other ones for each place,
 * by two masks, and by a mask and an index; and the gradients of that. */
COMPILED_FUNCTION(put_by_masks)
{
    core_scope scope = core_scope_begin();
    bool before = core_grad_mode_set(true);
    core_tensor *mask = core_x_gt_scalar(x[1], core_int(0));
    core_tensor *row = core_x_select(mask, 1, 0);
    core_tensor *two = core_x_full(CORE_SIZES(1), core_int(2), CORE_I64,
                                   core_tensor_device(x[0]));
    core_tensor *y[3], *ones[3], *wanted[2] = {x[0], x[2]};
    core_tensor *grads[2] = {NULL, NULL};

    *noutputs = 5;
    y[0] = core_x_index_put(x[0], CORE_LIST(mask), x[2]);
    y[1] = core_x_index_put(x[0], CORE_LIST(row, core_x_select(mask, 0, 0)),
                            core_x_sum(x[2]), true);
    y[2] =
        core_x_index_put(x[0], CORE_LIST(row, two), core_x_select(x[2], 0, 1));
    for (int i = 0; i < 3; i++) {
        ones[i] = core_x_ones_like(y[i]);
        core_scope_output(core_x_detach(y[i]), &out[i]);
    }
    CORE_CHECK(core_grad(y, 3, ones, wanted, 2, 0, grads));
    for (int i = 0; i < 2; i++) {
        core_scope_output(grads[i], &out[3 + i]);
        core_tensor_release(grads[i]);
    }
    core_grad_mode_set(before);
    return core_scope_end(scope);
}

/* Five places, two in the first column and two in the first row. */
static world masks_world(int kind)
{
    world w = {.device = program_device, .ninputs = 3};
    int64_t sizes[] = {4, 3};

    w.inputs[0] = NUMBERS(&w, 1 + kind, 4, 3);
    w.inputs[1] = kind == 0   ? FLOATS(1, 1, -1, 1, 1, 1, 0, 0, 0, 0, 0, -1)
                  : kind == 1 ? FLOATS(0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, -1)
                              : FLOATS(1, 1, 0, 1, 1, 1, 0, 1, 0, 0, 0, 0);
    w.inputs[1] = CALL(view_sizes, w.inputs[1], sizes, 2);
    w.inputs[2] = NUMBERS(&w, 70 + kind, 5);
    OK(core_tensor_set_requires_grad(w.inputs[0], true));
    OK(core_tensor_set_requires_grad(w.inputs[2], true));
    return w;
}

START_TEST(numbers_are_put_by_masks_that_a_run_reads)
{
    core_compiled *compiled = compile_fully(put_by_masks, NULL);
    core_tensor *out[5];
    world w;

    for (int i = 0; i < 4; i++) {
        w = masks_world(i % 2);
        same_results(put_by_masks, compiled, &w, 5);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    w = masks_world(2); /* six places for five numbers */
    FAILS(core_compiled_call(compiled, w.inputs, 3, out, 5), CORE_ERROR_SHAPE,
          "index_put: ", "values of sizes [5] do not broadcast");
    core_compiled_release(compiled);
}
END_TEST

/* The gradient of the numbers alone, for which nothing is put. */
COMPILED_FUNCTION(gradient_of_what_is_put)
{
    core_scope scope = core_scope_begin();
    bool before = core_grad_mode_set(true);
    core_tensor *mask = core_x_gt_scalar(x[1], core_int(0));
    core_tensor *y = core_x_sum(core_x_index_put(x[0], CORE_LIST(mask), x[2])),
                *grad = NULL;

    *noutputs = 1;
    CORE_CHECK(core_grad(&y, 1, NULL, &x[2], 1, 0, &grad));
    core_scope_output(grad, &out[0]);
    core_tensor_release(grad);
    core_grad_mode_set(before);
    return core_scope_end(scope);
}

START_TEST(numbers_that_are_not_put_must_fit)
{
    core_compiled *compiled = compile_fully(gradient_of_what_is_put, NULL);
    world w = masks_world(0);
    core_tensor *out[1];

    same_results(gradient_of_what_is_put, compiled, &w, 1);
    w = masks_world(2);
    FAILS(core_compiled_call(compiled, w.inputs, 3, out, 1), CORE_ERROR_SHAPE,
          "values do not broadcast to the 6 elements");
    core_compiled_release(compiled);
}
END_TEST

/* Returns the first input if a call fails, which must fail while it is recorded,
 * too. */
static core_status one_of(core_status status, core_tensor *made, core_tensor *x,
                          core_tensor **out)
{
    if (status == CORE_OK) {
        *out = made;
        return CORE_OK;
    }
    return core_clone(x, CORE_FORMAT_PRESERVE, out);
}

COMPILED_FUNCTION(puts_that_fail)
{
    core_scope scope = core_scope_begin();
    core_tensor *mask = core_x_gt_scalar(x[1], core_int(0)), *made = NULL;
    core_tensor *few = core_x_narrow(mask, 0, 0, 2),
                *row = core_x_select(mask, 1, 0);
    core_tensor *lists[][3] = {{few},
                               {row, core_x_select(x[0], 0, 0)},
                               {mask, mask},
                               {mask, row, row}};
    core_status status;

    *noutputs = 4;
    for (int i = 0; i < 4; i++) {
        status = core_index_put(x[0], lists[i],
                                i == 0   ? 1
                                : i == 3 ? 3
                                         : 2,
                                x[2], false, &made);
        core_error_clear();
        CORE_CHECK(one_of(status, made, x[0], &out[i]));
    }
    return core_scope_end(scope);
}

START_TEST(invalid_masks_fail_while_they_are_recorded)
{
    core_compiled *compiled = compile_fully(puts_that_fail, NULL);
    world w = masks_world(0);

    for (int i = 0; i < 2; i++)
        same_results(puts_that_fail, compiled, &w, 4);
    core_compiled_release(compiled);
}
END_TEST

/* What is taken from the third, and its gradient: as many as there are places. */
COMPILED_FUNCTION(scattered_by_mask)
{
    core_scope scope = core_scope_begin();
    bool before = core_grad_mode_set(true);
    core_tensor *mask = core_x_gt_scalar(x[1], core_int(0));
    core_tensor *y = core_x_masked_scatter(x[0], mask, x[2]);
    core_tensor *ones = core_x_mul(y, y), *grad = NULL;

    *noutputs = 1;
    CORE_CHECK(core_grad(&y, 1, &ones, &x[2], 1, 0, &grad));
    core_scope_output(grad, &out[0]);
    core_tensor_release(grad);
    core_grad_mode_set(before);
    return core_scope_end(scope);
}

START_TEST(the_gradient_of_masked_scatter_depends_on_the_mask_of_the_run)
{
    core_compiled *compiled = compile_fully(scattered_by_mask, NULL);

    for (int i = 0; i < 3; i++) {
        world w = masks_world(i % 2);

        w.inputs[2] = NUMBERS(&w, 9 + i, 2, 4);
        OK(core_tensor_set_requires_grad(w.inputs[2], true));
        same_results(scattered_by_mask, compiled, &w, 1);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    core_compiled_release(compiled);
}
END_TEST

/* Temporal classification with lengths that are inputs, and its gradient. */
COMPILED_FUNCTION(classified)
{
    core_scope scope = core_scope_begin();
    bool before = core_grad_mode_set(true);
    core_tensor *loss =
        core_x_ctc_loss_tensor(core_x_log_softmax(x[0], -1), x[1], x[2], x[3],
                               0, CORE_REDUCTION_MEAN, true);
    core_tensor *grad = NULL;

    *noutputs = 2;
    core_scope_output(core_x_detach(loss), &out[0]);
    CORE_CHECK(core_grad(&loss, 1, NULL, x, 1, 0, &grad));
    core_scope_output(grad, &out[1]);
    core_tensor_release(grad);
    core_grad_mode_set(before);
    return core_scope_end(scope);
}

static core_tensor *lengths(int64_t a, int64_t b)
{
    const int64_t size = 2, values[] = {a, b};

    return CALL(tensor_from_data, values, CORE_I64, &size, 1, program_device);
}

START_TEST(lengths_of_ctc_loss_are_read_in_each_run)
{
    const int64_t labels[] = {1, 2, 1, 3, 3, 0}, sizes[] = {2, 3};
    core_compiled *compiled = compile_fully(classified, NULL);
    world w = {.device = program_device, .ninputs = 4};
    core_tensor *out[2];

    w.inputs[0] = NUMBERS(&w, 1, 6, 2, 4);
    OK(core_tensor_set_requires_grad(w.inputs[0], true));
    w.inputs[1] =
        CALL(tensor_from_data, labels, CORE_I64, sizes, 2, program_device);
    for (int i = 0; i < 3; i++) {
        w.inputs[2] = lengths(6 - i, 4 + i);
        w.inputs[3] = lengths(1 + i, 2);
        same_results(classified, compiled, &w, 2);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    w.inputs[2] = lengths(6, 7);
    FAILS(core_compiled_call(compiled, w.inputs, 4, out, 2), CORE_ERROR_SHAPE,
          "ctc_loss", "7");
    core_compiled_release(compiled);
}
END_TEST

/* The gradient, which is given, is not row-major. */
COMPILED_FUNCTION(products_with_transposed_gradient)
{
    core_tensor *y, *grad;
    core_status status;
    bool before = core_grad_mode_set(true);

    *noutputs = 1;
    OK(core_cumprod(x[0], 0, CORE_DTYPE_NONE, &y));
    OK(core_t(x[1], &grad));
    status = core_grad(&y, 1, &grad, &x[0], 1, 0, out);
    core_tensor_release(grad);
    core_tensor_release(y);
    core_grad_mode_set(before);
    return status;
}

START_TEST(the_gradient_of_cumprod_has_one_layout)
{
    core_compiled *compiled =
        compile_fully(products_with_transposed_gradient, NULL);
    world w = {.device = program_device, .ninputs = 2};

    for (uint32_t i = 0; i < 2; i++) {
        w.inputs[0] = NUMBERS(&w, 3 + i, 3, 4);
        w.inputs[1] = NUMBERS(&w, 30 + i, 4, 3);
        if (i) /* the other formula */
            OK(core_zero_(CALL(select, w.inputs[0], 0, 1)));
        OK(core_tensor_set_requires_grad(w.inputs[0], true));
        same_results(products_with_transposed_gradient, compiled, &w, 1);
    }
    core_compiled_release(compiled);
}
END_TEST

/* x[2] put by the mask x[1] > 0 of the last dimension, or of the first. */
COMPILED_FUNCTION(put_by_last)
{
    core_tensor *list[2] = {NULL};
    core_status status;

    *noutputs = 1;
    OK(core_gt_scalar(x[1], core_int(0), &list[1]));
    status = core_index_put(x[0], list, 2, x[2], false, out);
    core_tensor_release(list[1]);
    return status;
}

COMPILED_FUNCTION(put_by_first)
{
    core_tensor *mask;
    core_status status;

    *noutputs = 1;
    OK(core_gt_scalar(x[1], core_int(0), &mask));
    status = core_index_put(x[0], &mask, 1, x[2], false, out);
    core_tensor_release(mask);
    return status;
}

COMPILED_FUNCTION(put_by_too_many)
{
    core_tensor *list[4] = {NULL};
    core_status status;

    *noutputs = 1;
    OK(core_gt_scalar(x[1], core_int(0), &list[0]));
    status = core_index_put(x[0], list, 4, x[2], false, out);
    core_tensor_release(list[0]);
    return status;
}

/* The mask selects everything. */
static void is_refused(core_tensor_function function, core_tensor *self,
                       core_tensor *mask, core_tensor *values)
{
    core_compiled *compiled =
        compile_with(function, NULL, (core_compile_options){0});
    core_tensor *inputs[3] = {self, mask, values}, *out = NULL;
    core_status expected;
    size_t count = 1;

    expected = function(NULL, inputs, 3, &out, &count);
    ck_assert_int_ne(expected, CORE_OK);
    ck_assert_int_eq(core_compiled_call(compiled, inputs, 3, &out, 1),
                     expected);
    ck_assert_ptr_null(out);
    core_compiled_release(compiled);
}

START_TEST(values_that_do_not_fit_a_mask_are_refused)
{
    world w = {.device = program_device};

    is_refused(put_by_last, NUMBERS(&w, 1, 1, 4), FLOATS(1, 1, 1, 1),
               NUMBERS(&w, 9, 3, 1));
    is_refused(put_by_first, NUMBERS(&w, 1, 4, 1), FLOATS(1, 1, 1, 1),
               NUMBERS(&w, 9, 1, 3));
    is_refused(put_by_too_many, NUMBERS(&w, 1, 4, 1), FLOATS(1, 1, 1, 1),
               FLOATS(5));
}
END_TEST

/* The result has the layout that it has without a program. */
START_TEST(a_tensor_that_is_not_row_major_keeps_its_layout)
{
    core_compiled *compiled =
        compile_with(put_by_first, NULL, (core_compile_options){0});
    world w = {.device = program_device, .ninputs = 3};

    w.inputs[0] = CALL(t, NUMBERS(&w, 1, 4, 3));
    w.inputs[1] = FLOATS(1, -1, 1);
    w.inputs[2] = FLOATS(5);
    for (int i = 0; i < 2; i++)
        same_results(put_by_first, compiled, &w, 1);
    w.inputs[1] = CALL(t, NUMBERS(&w, 1, 4, 3));
    for (int i = 0; i < 2; i++)
        same_results(put_by_first, compiled, &w, 1);
    core_compiled_release(compiled);
}
END_TEST

SUITE_ON_CPU_AND_SIM(
    "compile/content_checks", a_check_of_content_is_an_error_of_the_run,
    a_check_of_a_weight_is_an_error_of_the_forward,
    checks_keep_their_order_in_fused_programs,
    the_gradient_of_cumprod_depends_on_the_zeros_of_the_run,
    the_gradient_of_cumprod_has_one_layout, numbers_are_put_by_a_mask,
    numbers_are_put_by_masks_that_a_run_reads,
    numbers_that_are_not_put_must_fit,
    invalid_masks_fail_while_they_are_recorded,
    lengths_of_ctc_loss_are_read_in_each_run,
    the_gradient_of_masked_scatter_depends_on_the_mask_of_the_run,
    values_that_do_not_fit_a_mask_are_refused,
    a_tensor_that_is_not_row_major_keeps_its_layout)
