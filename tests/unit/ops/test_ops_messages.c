/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Every operator that has a sample, called with a tensor argument that does not
 * fit: other sizes, another dtype, another device.  If the call fails, the
 * error names the operator and one of the tensor arguments. */

#include "support/samples.h"

#include "dispatch/operator.h"
#include "dispatch/structured.h"

#include <libcore/device.h>

#include <ctype.h>

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool names(const char *text, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = text; (at = strstr(at, name)); at += length)
        if ((at == text || !in_word(at[-1])) && !in_word(at[length]))
            return true;
    return false;
}

static bool names_tensor(const arguments *a, const char *text)
{
    for (uint32_t i = 0; i < a->count; i++)
        if ((a->op->tensors | a->op->lists) >> i & 1 &&
            names(text, core__argument_name(a->op, i)))
            return true;
    return false;
}

/* Whether the error concerns the program and not a tensor of the call. */
static bool is_about_program(core_status status)
{
    return status == CORE_ERROR_AUTOGRAD || status == CORE_ERROR_UNSUPPORTED ||
           status == CORE_ERROR_DATA_DEPENDENT ||
           status == CORE_ERROR_OUT_OF_MEMORY;
}

/* The rest of a text that begins with the name of an operator, "mm: ", or
 * NULL. */
static const char *after_name(const char *text)
{
    const char *end = strstr(text, ": ");

    return end && core__operator_builtin(text, (size_t)(end - text)) ? end + 2
                                                                     : NULL;
}

/* At most one operator inside of the one that was called. */
static bool names_few(const arguments *a, const char *text)
{
    size_t length = strlen(core__operator_name(a->op));
    const char *inner = strncmp(text, core__operator_name(a->op), length) == 0
                            ? after_name(text)
                            : text;

    inner = inner ? after_name(inner) : NULL;
    return !inner || !after_name(inner);
}

static void check_message(const arguments *a, const sample *s, const char *what,
                          uint32_t position)
{
    core_value got[RESULTS] = {0};
    core_status status = core_op_call(a->op, a->values, a->count, got, RESULTS);
    const char *said = status ? core_error_message() : "";

    ck_assert_msg(!status ||
                      (names(said, core__operator_name(a->op)) &&
                       names_few(a, said) &&
                       (is_about_program(status) || names_tensor(a, said))),
                  "%s(%s), %s, %s: %d \"%s\"", s->op, s->words, what,
                  core__argument_name(a->op, position), status, said);
    for (int i = 0; i < RESULTS; i++) {
        if (status)
            ck_assert_uint_eq(got[i].tag, CORE_VALUE_NONE);
        core_value_release(&got[i]);
    }
}

static core_tensor *zeros_of(core_tensor *like, core_dtype dtype,
                             core_device *device)
{
    return CALL(zeros, core_tensor_sizes(like), core_tensor_ndim(like), dtype,
                device);
}

static void check_argument(arguments *a, const sample *s, uint32_t position,
                           core_tensor **at)
{
    static const core_dtype dtypes[] = {CORE_BOOL, CORE_I8, CORE_F16, CORE_F32,
                                        CORE_I64};
    static const int64_t sizes[] = {7, 5, 11, 1, 2, 3};
    core_tensor *kept = *at;
    core_device *meta;

    OK(core_device_find("meta", &meta));
    for (size_t ndim = 0; ndim <= 6; ndim++) {
        *at = CALL(zeros, sizes, ndim, core_tensor_dtype(kept), NULL);
        check_message(a, s, "other sizes", position);
    }
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        *at = zeros_of(kept, dtypes[i], NULL);
        check_message(a, s, core_dtype_name(dtypes[i]), position);
    }
    *at = zeros_of(kept, core_tensor_dtype(kept), meta);
    check_message(a, s, "another device", position);
    *at = kept;
}

static void run(const sample *s)
{
    arguments a;

    parse_sample(&a, s, s->words);
    for (uint32_t k = 0; k < a.count; k++) {
        core_value *value = &a.values[k];

        if (value->tag == CORE_VALUE_TENSOR)
            check_argument(&a, s, k, &value->u.tensor);
        if (value->tag == CORE_VALUE_TENSOR_LIST && value->count > 0 &&
            value->u.tensors[0])
            check_argument(&a, s, k,
                           (core_tensor **)(uintptr_t)value->u.tensors);
    }
    drop_all();
}

START_TEST(every_error_names_operator_and_argument)
{
    bool before = core_grad_mode_set(false);

    for (size_t i = 0; i < SAMPLES; i++)
        run(&samples[i]);
    core_grad_mode_set(before);
}
END_TEST

/* ------------------------------------------------------ wrong numbers -- */

/* Whether a text begins with an argument of op and what is said of it, "repeats
 * has ...". */
static bool is_about(const char *text, const core_operator *op, bool numbers)
{
    static const char *const verbs[] = {" is ", " has ", " must "};

    for (uint32_t i = 0; i < op->nargs; i++) {
        const char *name = core__argument_name(op, i);
        size_t length = strlen(name);

        if ((numbers && (op->tensors | op->lists) >> i & 1) ||
            strncmp(text, name, length) != 0)
            continue;
        for (size_t k = 0; k < sizeof verbs / sizeof *verbs; k++)
            if (strncmp(text + length, verbs[k], strlen(verbs[k])) == 0)
                return true;
    }
    return false;
}

/* A message is not about a number that other operators have and this one does
 * not. */
static void check_subject(const arguments *a, const sample *s)
{
    core_value got[RESULTS] = {0};
    core_status status = core_op_call(a->op, a->values, a->count, got, RESULTS);
    const char *text = status ? after_name(core_error_message()) : NULL;

    for (int i = 0; i < RESULTS; i++)
        core_value_release(&got[i]);
    if (text && after_name(text)) {
        const core_operator *inner =
            core__operator_builtin(text, (size_t)(strstr(text, ": ") - text));

        ck_assert_msg(!is_about(after_name(text), inner, true) ||
                          is_about(after_name(text), a->op, false),
                      "%s(%s): \"%s\"", s->op, s->words, text);
        return;
    }
    for (size_t i = 0; text && i < SAMPLES; i++) {
        core_operator *op;

        OK(core_op_find(samples[i].op, &op));
        ck_assert_msg(!is_about(text, op, true) || is_about(text, a->op, false),
                      "%s(%s): \"%s\" is about an argument of %s", s->op,
                      s->words, text, samples[i].op);
    }
}

static void check_number(arguments *a, const sample *s, core_value *value)
{
    static const int64_t wrong[] = {-7, 0, 99};
    const core_value kept = *value;
    int64_t list[9];

    for (size_t i = 0; i < 3 && kept.tag == CORE_VALUE_INT; i++) {
        value->u.i = wrong[i];
        check_subject(a, s);
    }
    for (uint32_t k = 0;
         kept.tag == CORE_VALUE_INT_LIST && k <= kept.count && kept.count < 8;
         k++) {
        value->u.ints = list;
        for (size_t i = 0; i < 3; i++) {
            memcpy(list, kept.u.ints, kept.count * sizeof *list);
            list[k] = wrong[i]; /* or one more */
            value->count = kept.count + (k == kept.count);
            check_subject(a, s);
        }
        value->count = k;
        check_subject(a, s);
    }
    *value = kept;
}

START_TEST(errors_name_no_number_that_the_call_does_not_have)
{
    bool before = core_grad_mode_set(false);

    for (size_t i = 0; i < SAMPLES; i++) {
        arguments a;

        parse_sample(&a, &samples[i], samples[i].words);
        for (uint32_t k = 0; k < a.count; k++)
            check_number(&a, &samples[i], &a.values[k]);
        drop_all();
    }
    core_grad_mode_set(before);
}
END_TEST

/* ---------------------------------------------- composites in own words -- */

#define ZEROS(...)                              \
    CALL(zeros, (const int64_t[]){__VA_ARGS__}, \
         sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), CORE_F32, NULL)
#define INTS(...) \
    (const int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / 8

/* Operators that others do the work of are those that the message names, with
 * the arguments of the call. */
START_TEST(messages_are_about_the_call)
{
    core_tensor *x = ZEROS(2, 3, 5), *y = NULL;
    bool same;

    FAILS(core_pad(x, INTS(5, 0), "reflect", NULL, &y), CORE_ERROR_SHAPE,
          "pad: pad is 5, which a dimension of size 5 does not allow");
    FAILS(core_max_pool1d(x, INTS(9), NULL, 0, INTS(0), INTS(1), false, &y),
          CORE_ERROR_SHAPE, "max_pool1d: a window of 9 does not fit self");
    FAILS(core_max_pool1d(x, INTS(0), NULL, 0, INTS(0), INTS(1), false, &y),
          CORE_ERROR_INVALID_ARGUMENT,
          "max_pool1d: kernel_size is 0, stride 0");
    FAILS(core_avg_pool1d(x, INTS(2), NULL, 0, INTS(3), false, true, &y),
          CORE_ERROR_INVALID_ARGUMENT, "avg_pool1d: kernel_size is 2");
    FAILS(
        core_conv1d(x, ZEROS(4, 2, 3), NULL, INTS(1), INTS(0), INTS(1), 1, &y),
        CORE_ERROR_SHAPE,
        "conv1d: input has sizes [2, 3, 5], weight [4, 2, 3]: input has 3 "
        "channels; weight in 1 groups needs 2");
    FAILS(core_conv2d(x, ZEROS(4, 3, 1, 1), NULL, INTS(1), INTS(0), INTS(1), 1,
                      &y),
          CORE_ERROR_SHAPE, "conv2d: input has sizes [2, 3, 5], weight [4, 3");
    FAILS(core_conv2d(ZEROS(1, 2, 3, 5), ZEROS(4, 2, 1, 1), NULL, INTS(0),
                      INTS(0), INTS(1), 1, &y),
          CORE_ERROR_INVALID_ARGUMENT,
          "conv2d: in spatial dimension 0 stride is 0");
    FAILS(core_conv_transpose1d(x, ZEROS(4, 2, 3), NULL, INTS(1), INTS(0),
                                INTS(0), 1, INTS(1), &y),
          CORE_ERROR_SHAPE, "conv_transpose1d: input has sizes [2, 3, 5], w");
    FAILS(core_conv_transpose1d(ZEROS(3, 5), ZEROS(4, 2, 3), NULL, INTS(1),
                                INTS(0), INTS(0), 1, INTS(1), &y),
          CORE_ERROR_SHAPE, "conv_transpose1d: input has sizes [3, 5], weig");
    FAILS(core_allclose(x, ZEROS(4), 0, 0, false, &same), CORE_ERROR_SHAPE,
          "allclose: sizes [2, 3, 5] and [4] do not broadcast");
    FAILS(core_cross_entropy_loss(x, ZEROS(2, 5, 1), NULL, CORE_REDUCTION_MEAN,
                                  -100, 0, &y),
          CORE_ERROR_SHAPE,
          "cross_entropy_loss: sizes [2, 3, 5] and [2, 5, 1]");
    FAILS(core_cross_entropy_loss(
              ZEROS(2, 3), CALL(to_copy, ZEROS(3), CORE_I64, NULL, false, -1),
              NULL, CORE_REDUCTION_MEAN, -100, 0, &y),
          CORE_ERROR_SHAPE,
          "cross_entropy_loss: target has sizes [3]; they must be those of "
          "self, [2, 3], without");
    FAILS(core_cross_entropy_loss(
              x, CALL(to_copy, ZEROS(2, 4), CORE_I64, NULL, false, -1), NULL,
              CORE_REDUCTION_MEAN, -100, 0, &y),
          CORE_ERROR_SHAPE,
          "cross_entropy_loss: self has sizes [2, 3, 5], target [2, 4]: target "
          "must have the sizes of self");
    FAILS(core_mse_loss(x, ZEROS(4), CORE_REDUCTION_MEAN, &y), CORE_ERROR_SHAPE,
          "mse_loss: sizes [2, 3, 5] and [4] do not broadcast");
    FAILS(
        core_matmul(x, CALL(to_copy, ZEROS(5), CORE_I64, NULL, false, -1), &y),
        CORE_ERROR_DTYPE,
        "matmul: self and other must have the same dtype, not f32 and i64");
    FAILS(core_scaled_dot_product_attention(x, x, x, NULL, 7, false, NULL,
                                            false, &y),
          CORE_ERROR_INVALID_ARGUMENT,
          "scaled_dot_product_attention: dropout_p is 7");
    FAILS(core_slow_conv_transpose2d(ZEROS(3, 4, 4), ZEROS(2, 1, 2, 2),
                                     INTS(2, 2), NULL, INTS(1, 1), INTS(0, 0),
                                     INTS(0, 0), INTS(1, 1), &y),
          CORE_ERROR_SHAPE,
          "slow_conv_transpose2d: self has sizes [3, 4, 4], weight [2, 1, 2, "
          "2]: self has 3 channels");
}
END_TEST

static core_tensor *bools(core_tensor *x)
{
    return CALL(to_copy, x, CORE_BOOL, NULL, false, -1);
}

/* An argument of an operator inside is named after the argument of the call that it
 * is, or is a view of; not after one that has its place or looks like it. */
START_TEST(messages_name_the_argument_that_is_meant)
{
    core_tensor *square = ZEROS(3, 3), *seven = ZEROS(7, 2), *y = NULL, *z;
    core_tensor *pair[] = {ZEROS(2, 2, 3), bools(ZEROS(2, 3, 2))};
    core_tensor *state[] = {bools(ZEROS(1, 2, 2)), ZEROS(1, 2, 2)};
    core_tensor *weights[] = {ZEROS(8, 2), ZEROS(8, 2)}, *h, *c;

    FAILS(core_triangular_solve(seven, square, true, true, false, &y, &z),
          CORE_ERROR_SHAPE, "triangular_solve: A has 3 rows and self 7 rows");
    FAILS(core_triangular_solve(ZEROS(2, 7, 2), square, true, false, false, &y,
                                &z),
          CORE_ERROR_SHAPE,
          "triangular_solve: a view of A has 3 rows and self 7 rows");
    FAILS(core_cholesky_solve(seven, square, false, &y), CORE_ERROR_SHAPE,
          "cholesky_solve: input2 has 3 rows and self 7 rows");
    FAILS(core_unfold_backward(ZEROS(7, 5, 11), INTS(5, 2), 0, 3, 1, &y),
          CORE_ERROR_SHAPE,
          "unfold_backward: a view of grad_in has sizes [7, 11, 5]");
    FAILS(core_bernoulli_tensor(ZEROS(7), ZEROS(5), NULL, &y), CORE_ERROR_SHAPE,
          "bernoulli.Tensor: p has sizes [5], which cannot be");
    FAILS(core_einsum("bij,bjk->bik", pair, 2, NULL, 0, &y), CORE_ERROR_DTYPE,
          "einsum: tensors[0] and tensors[1] must have the same dtype, not f32 "
          "and bool");
    FAILS(core_lstm(ZEROS(2, 2, 2), state, 2, weights, 2, false, 1, 0, false,
                    false, false, &y, &h, &c),
          CORE_ERROR_DTYPE, "lstm.input: hx[0] is bool and params[1] f32");
    /* Rows of self, which a message about all of self would not be about. */
    FAILS(
        core_embedding_renorm(
            bools(square), CALL(to_copy, ZEROS(2), CORE_I64, NULL, false, -1),
            .5, 2, &y),
        CORE_ERROR_DTYPE,
        "embedding_renorm: renorm: self must have a floating dtype, not bool");
    FAILS(core_matmul(ZEROS(2, 1, 2, 3), bools(ZEROS(3, 3, 2)), &y),
          CORE_ERROR_DTYPE,
          "matmul: self and other must have the same dtype, not f32 and bool");
    FAILS(core_tensordot(ZEROS(2, 3), bools(ZEROS(2, 3)), INTS(0), INTS(0), &y),
          CORE_ERROR_DTYPE,
          "tensordot: self and other must have the same dtype, not f32 and "
          "bool");
}
END_TEST

SUITE("ops/ops_messages", errors_name_no_number_that_the_call_does_not_have,
      every_error_names_operator_and_argument, messages_are_about_the_call,
      messages_name_the_argument_that_is_meant)
