/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Every operator of the registry that has a gradient, against finite
 * differences, to second order: as it is; with non-contiguous operands, results
 * and gradients; in place; and, if it is element-wise, on 0-dimensional and
 * empty tensors and with broadcasting.  An operator without a sample fails the
 * test.  An operator without a derivative must report that and never return
 * zero. */

#include "support/samples.h"

#include "dispatch/operator.h"

#include <libcore/random.h>

enum {
    STRIDED = 1, /* operands, results and their gradients are not contiguous */
    INPLACE = 2  /* the first operand is a copy, which the call changes */
};

typedef struct callee {
    const arguments *arguments;
    core_operator *op;
    int how;
} callee;

/* ------------------------------------------------------------- the call -- */

/* x with its dimensions in reverse order. */
static core_status reverse(core_tensor *x, core_tensor **out)
{
    int64_t order[8], ndim = (int64_t)core_tensor_ndim(x);

    for (int64_t i = 0; i < ndim; i++)
        order[i] = ndim - 1 - i;
    return core_permute(x, order, (size_t)ndim, out);
}

/* The same elements with the first dimension innermost; of a vector, every
 * other element. */
static core_status strided(core_tensor *x, core_tensor **out)
{
    core_tensor *a = NULL, *b = NULL;
    core_status status = CORE_OK;

    if (core_tensor_ndim(x) == 0)
        return core_alias(x, out);
    if (core_tensor_ndim(x) == 1) {
        status = core_stack((core_tensor *[]){x, x}, 2, 1, &a);
        if (status == CORE_OK)
            status = core_select(a, 1, 0, out);
    } else {
        status = reverse(x, &a);
        if (status == CORE_OK)
            status = core_clone(a, CORE_FORMAT_CONTIGUOUS, &b);
        if (status == CORE_OK)
            status = reverse(b, out);
    }
    core_tensor_release(a);
    core_tensor_release(b);
    return status;
}

/* x xᵀ + 2 */
static core_status positive(core_tensor *x, core_tensor **out)
{
    core_tensor *a = NULL, *b = NULL, *unit = NULL;
    core_status status = core_transpose(x, -2, -1, &a);
    int64_t n = core_tensor_size(x, -1);

    if (status == CORE_OK)
        status = core_matmul(x, a, &b);
    if (status == CORE_OK)
        status = core_eye(n, CORE_F64, NULL, &unit);
    if (status == CORE_OK)
        status = core_add(b, unit, core_int(2), out);
    core_tensor_release(a);
    core_tensor_release(b);
    core_tensor_release(unit);
    return status;
}

static core_tensor *passed[ARGUMENTS * TENSORS];
static size_t npassed;

/* Prepares one tensor argument as `callee->how` requires. */
static core_status pass(const callee *callee, uint32_t at, core_tensor **tensor)
{
    core_tensor *made = NULL;

    if (*tensor && callee->arguments->positive >> at & 1) {
        CORE_TRY(positive(*tensor, &made));
        passed[npassed++] = *tensor = made;
    }
    if (*tensor && callee->how & STRIDED) {
        CORE_TRY(strided(*tensor, &made));
        passed[npassed++] = *tensor = made;
    }
    if (at == 0 && callee->how & INPLACE) {
        CORE_TRY(core_clone(*tensor, CORE_FORMAT_PRESERVE, &made));
        passed[npassed++] = *tensor = made;
    }
    return CORE_OK;
}

static core_status keep_result(const callee *callee, core_tensor *tensor,
                               core_tensor **outputs, size_t *noutputs)
{
    if (!core_tensor_requires_grad(tensor))
        return CORE_OK;
    if (!(callee->how & STRIDED)) {
        outputs[(*noutputs)++] = core_tensor_retain(tensor);
        return CORE_OK;
    }
    CORE_TRY(reverse(tensor, &outputs[*noutputs]));
    ++*noutputs;
    return CORE_OK;
}

static core_status call_with(const callee *callee, core_tensor **outputs,
                             size_t *noutputs)
{
    const arguments *a = callee->arguments;
    core_tensor *lists[ARGUMENTS][TENSORS];
    core_value values[ARGUMENTS], results[RESULTS];
    core_status status;

    memcpy(values, a->values, sizeof values);
    for (uint32_t i = 0; i < a->count; i++) {
        if (values[i].tag == CORE_VALUE_TENSOR)
            CORE_TRY(pass(callee, i, &values[i].u.tensor));
        if (values[i].tag != CORE_VALUE_TENSOR_LIST)
            continue;
        for (uint32_t j = 0; j < values[i].count; j++) {
            lists[i][j] = values[i].u.tensors[j];
            CORE_TRY(pass(callee, i, &lists[i][j]));
        }
        values[i].u.tensors = lists[i];
    }
    core_seed(7);
    CORE_TRY(core_op_call(callee->op, values, a->count, results, RESULTS));
    status = CORE_OK;
    for (int i = 0; i < RESULTS; i++) {
        core_value *r = &results[i];

        if (r->tag == CORE_VALUE_TENSOR && status == CORE_OK)
            status = keep_result(callee, r->u.tensor, outputs, noutputs);
        for (uint32_t j = 0; r->tag == CORE_VALUE_TENSOR_LIST &&
                             status == CORE_OK && j < r->count;
             j++)
            status = keep_result(callee, r->u.tensors[j], outputs, noutputs);
        core_value_release(r);
    }
    return status;
}

static core_status call(void *context, core_tensor *const *inputs,
                        size_t ninputs, core_tensor **outputs, size_t *noutputs)
{
    core_status status;

    (void)inputs;
    (void)ninputs;
    *noutputs = 0;
    npassed = 0;
    status = call_with(context, outputs, noutputs);
    while (npassed)
        core_tensor_release(passed[--npassed]);
    return status;
}

/* --------------------------------------------------------------- checks -- */

static char failures[3000];
static size_t failed, checked;

static void note(const callee *callee, const char *words, const char *what)
{
    size_t used = strlen(failures);

    failed++;
    snprintf(failures + used, sizeof failures - used, "%s(%s)%s%s%s: %s\n",
             core_op_name(callee->op), words,
             callee->how & STRIDED ? ", strided" : "",
             callee->how & INPLACE ? ", in place" : "", what,
             core_error_message());
}

static void differentiate(callee *callee, const char *words)
{
    const arguments *a = callee->arguments;

    checked++;
    if (core_gradcheck(call, callee, a->leaves, a->nleaves, 1e-6, 1e-5, 1e-5)) {
        note(callee, words, "");
        return;
    }
    if (core_gradgradcheck(call, callee, a->leaves, a->nleaves, 1e-6, 1e-4,
                           1e-4))
        note(callee, words, ", second order");
}

/* The derivative that the sample lacks must be refused by an error that names
 * the operator. */
static void refuse(const sample *s, callee *callee, const char *words)
{
    const arguments *a = callee->arguments;
    core_status status;

    checked++;
    ck_assert_ptr_nonnull(s->reason);
    if (s->flags & SAMPLE_FIRST_ORDER) {
        status = core_gradcheck(call, callee, a->leaves, a->nleaves, 1e-6, 1e-5,
                                1e-5);
        if (status != CORE_OK)
            note(callee, words, "");
        status = core_gradgradcheck(call, callee, a->leaves, a->nleaves, 1e-6,
                                    1e-4, 1e-4);
    } else {
        status = core_gradcheck(call, callee, a->leaves, a->nleaves, 1e-6, 1e-5,
                                1e-5);
    }
    if (status != CORE_ERROR_UNSUPPORTED)
        note(callee, words, ", expected UNSUPPORTED");
    else if (!strstr(core_error_message(), s->op) &&
             !strstr(core_error_message(), "linalg_qr"))
        note(callee, words, ", the error does not name the operator");
}

static core_operator *inplace_of(const core_operator *op)
{
    for (uint32_t i = 0; i < core__operator_count; i++)
        if (core__operators[i].data->variant == CORE__VARIANT_INPLACE &&
            core__operators[i].data->base == op->id &&
            &core__operators[i] != op)
            return &core__operators[i];
    return NULL;
}

/* Rewrites the sizes: 0-dimensional (0), empty (1) or broadcast (2). */
static void resize(const char *words, int kind, char *out)
{
    static const char *const sizes[] = {"", "2,0"};
    static const char *const broad[] = {"3,1", "1,4", "3,4", "4"};
    int tensors = 0;

    while (*words) {
        bool tensor = strchr("tupm", words[0]) && words[1] == ':';

        if (tensor) {
            out += sprintf(out, "%.2s%s", words,
                           kind < 2 ? sizes[kind] : broad[tensors++ & 3]);
            words += 2 + strspn(words + 2, "0123456789,");
        }
        while (*words && *words != ' ')
            *out++ = *words++;
        if (*words)
            *out++ = *words++;
    }
    *out = 0;
}

static void check_words(const sample *s, const char *words, int ways)
{
    arguments a;
    callee callee = {&a, NULL, 0};
    core_operator *inplace;
    bool changes;

    parse_sample(&a, s, words);
    callee.op = a.op;
    changes = a.op->variant == CORE__VARIANT_INPLACE;
    for (int how = 0; how <= STRIDED; how++) {
        callee.how = how | (changes ? INPLACE : 0);
        if (how == STRIDED && s->flags & SAMPLE_DENSE)
            continue;
        if (s->flags & SAMPLE_REFUSED)
            refuse(s, &callee, words);
        else
            differentiate(&callee, words);
    }
    inplace = ways & INPLACE && !changes ? inplace_of(a.op) : NULL;
    if (inplace && a.values[0].tag == CORE_VALUE_TENSOR) {
        callee.op = inplace;
        callee.how = INPLACE;
        differentiate(&callee, words);
    }
    drop_all();
}

/* All samples of operators of the family. */
static void run(uint32_t family)
{
    static char words[512];

    for (size_t i = 0; i < SAMPLES; i++) {
        const sample *s = &samples[i];
        bool as_is = s->flags & (SAMPLE_REFUSED | SAMPLE_SIZED);
        core_operator *op;

        OK(core_op_find(s->op, &op));
        if (op->family != family || s->flags & SAMPLE_FORWARD_ONLY)
            continue;
        check_words(s, s->words, as_is ? 0 : INPLACE);
        if (family != CORE__FAMILY_ELEMENTWISE || as_is)
            continue;
        for (int kind = 0; kind < 3; kind++) {
            if (kind == 2 && op->variant == CORE__VARIANT_INPLACE)
                continue;
            resize(s->words, kind, words);
            check_words(s, words, kind < 2 ? INPLACE : 0);
        }
    }
    ck_assert_msg(failed == 0, "%zu of %zu:\n%s", failed, checked, failures);
    ck_assert_uint_gt(checked, 0);
}

START_TEST(elementwise_gradients_match_finite_differences)
{
    run(CORE__FAMILY_ELEMENTWISE);
}
END_TEST

START_TEST(reduction_gradients_match_finite_differences)
{
    run(CORE__FAMILY_REDUCTION);
}
END_TEST

START_TEST(kernel_gradients_match_finite_differences)
{
    run(CORE__FAMILY_KERNEL);
}
END_TEST

START_TEST(view_gradients_match_finite_differences)
{
    run(CORE__FAMILY_VIEW);
}
END_TEST

START_TEST(composite_gradients_match_finite_differences)
{
    run(CORE__FAMILY_FUNCTION);
}
END_TEST

/* ---------------------------------------------------------- third order -- */

/* The first derivative of a sum of the results, each multiplied by a different
 * number, as a function of the leaves. */
static core_status slope(void *context, core_tensor *const *inputs,
                         size_t ninputs, core_tensor **outputs,
                         size_t *noutputs)
{
    core_tensor *results[CORE_GRADCHECK_OUTPUTS], *grads[4] = {0}, *given;
    core_status status;
    size_t count;

    CORE_TRY(call(context, inputs, ninputs, results, &count));
    status = core_sin(results[0], &given);
    if (status == CORE_OK)
        status = core_mean(given, CORE_DTYPE_NONE, &grads[0]);
    if (status == CORE_OK)
        status = core_grad(&grads[0], 1, NULL, inputs, ninputs,
                           CORE_CREATE_GRAPH, outputs);
    *noutputs = status == CORE_OK ? ninputs : 0;
    core_tensor_release(given);
    core_tensor_release(grads[0]);
    while (count)
        core_tensor_release(results[--count]);
    return status;
}

START_TEST(normalizations_pass_third_order_check)
{
    size_t count = 0;

    for (size_t i = 0; i < SAMPLES; i++) {
        const sample *s = &samples[i];
        arguments a;
        callee callee = {&a, NULL, 0};

        if (!(s->flags & SAMPLE_THIRD_ORDER))
            continue;
        count++;
        parse_sample(&a, s, s->words);
        callee.op = a.op;
        if (core_gradgradcheck(slope, &callee, a.leaves, a.nleaves, 1e-6, 1e-4,
                               1e-4))
            note(&callee, s->words, ", third order");
        drop_all();
    }
    ck_assert_uint_gt(count, 0);
    ck_assert_msg(failed == 0, "%s", failures);
}
END_TEST

/* ------------------------------------------------------------- coverage -- */

static bool has_sample(const char *name)
{
    for (size_t i = 0; i < SAMPLES; i++)
        if (!(samples[i].flags & SAMPLE_FORWARD_ONLY) &&
            strcmp(samples[i].op, name) == 0)
            return true;
    return false;
}

START_TEST(every_operator_with_a_gradient_has_a_sample)
{
    size_t missing = 0, all = 0;

    for (uint32_t i = 0; i < core__operator_count; i++) {
        const core_operator *op = &core__operators[i];
        const core__operator_data *data = op->data;

        /* Without a formula backward fails, which its sample must show. */
        if (data->base != i || !(op->mask & CORE__KEY_AUTOGRAD) ||
            !(data->gradient || data->implicit || data->no_gradient))
            continue;
        /* No sample has 8-bit dtypes; test_scaled_mm.c covers the error. */
        if (op->flags & CORE__OP_FLOAT8)
            continue;
        /* Its formula supposes that the exponentials add up to 1, which finite
         * differences disturb; test_ops_backward.c checks it. */
        if (strstr(data->name, "ctc_loss"))
            continue;
        all++;
        if (has_sample(data->name))
            continue;
        missing++;
        snprintf(failures + strlen(failures),
                 sizeof failures - strlen(failures), " %s", data->name);
    }
    ck_assert_uint_gt(all, 300);
    ck_assert_msg(missing == 0, "%zu of %zu have no sample:%s", missing, all,
                  failures);
}
END_TEST

SUITE("ops/ops_gradgrad", elementwise_gradients_match_finite_differences,
      reduction_gradients_match_finite_differences,
      kernel_gradients_match_finite_differences,
      view_gradients_match_finite_differences,
      composite_gradients_match_finite_differences,
      normalizations_pass_third_order_check,
      every_operator_with_a_gradient_has_a_sample)
