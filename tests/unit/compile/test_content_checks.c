/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Operators that read their arguments on the host, in programs: what a check
 * finds is an error of each run, and a result that depends on content is that of
 * the run. */

#include "support/compiled.h"

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
    core_tensor *a[3], *b[3];

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

SUITE_ON_CPU_AND_SIM("compile/content_checks",
                     a_check_of_content_is_an_error_of_the_run,
                     a_check_of_a_weight_is_an_error_of_the_forward,
                     the_gradient_of_cumprod_depends_on_the_zeros_of_the_run,
                     numbers_are_put_by_a_mask)
