/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Every call of expressions.h does what core_op_call does for its operator: the
 * samples of ops.yaml are called both ways, and have the same results, changes
 * and errors.  ops_expressions.h, which is generated, makes the calls. */

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize "O0" /* 1,600 functions, each of which is called once */
#endif

#include "support/samples.h"

#include <libcore/expressions.h>
#include <libcore/random.h>

typedef struct expression {
    const char *name;
    const char *base; /* of an in-place variant, otherwise the same */
    void (*call)(const core_value *args, uint32_t nargs, core_value *results);
} expression;

/* What the calls are made from; lists of numbers may be given as integers. */
static double lists_of_floats[4][16];
static int used_lists;

static core_sizes sizes_of(const core_value *value)
{
    if (value->tag == CORE_VALUE_INT)
        return core_sizes_from(&value->u.i, 1);
    return core_sizes_from(value->u.ints, value->count);
}

static core_floats floats_of(const core_value *value)
{
    double *list = lists_of_floats[used_lists++ % 4];

    if (value->tag != CORE_VALUE_INT_LIST)
        return core_floats_from(value->u.floats, value->count);
    for (uint32_t i = 0; i < value->count; i++)
        list[i] = (double)value->u.ints[i];
    return core_floats_from(list, value->count);
}

static core_bools bools_of(const core_value *value)
{
    return core_bools_from(value->u.bools, value->count);
}

static double float_of(const core_value *value)
{
    return value->tag == CORE_VALUE_INT ? (double)value->u.i : value->u.f;
}

static int64_t int_of(const core_value *value)
{
    return value->u.i;
}

static bool bool_of(const core_value *value)
{
    return value->u.i != 0;
}

static const char *text_of(const core_value *value)
{
    return value->tag == CORE_VALUE_STRING ? value->u.string : NULL;
}

static core_dtype dtype_of(const core_value *value)
{
    return value->tag == CORE_VALUE_DTYPE ? (core_dtype)value->u.i
                                          : CORE_DTYPE_NONE;
}

static int32_t format_of(const core_value *value)
{
    return value->tag == CORE_VALUE_FORMAT ? (int32_t)value->u.i : -1;
}

static core_value list_of(core_list list)
{
    return core_pack_tensors(list.items, list.count);
}

#include "ops_expressions.h"

enum { EXPRESSIONS = sizeof expressions / sizeof *expressions, PARTS = 16 };

/* The same arguments each time, of which leaves that an in-place variant would
 * change require no grad. */
static void prepare(arguments *a, const sample *s, bool in_place)
{
    bool before = core_grad_mode_set(false);

    parse_sample(a, s, s->words);
    make_positive(a);
    core_grad_mode_set(before);
    for (size_t i = 0; in_place && i < a->nleaves; i++)
        OK(core_tensor_set_requires_grad(a->leaves[i], false));
    core_seed(7);
}

static void same_tensor(const expression *e, const sample *s, core_tensor *want,
                        core_tensor *got)
{
    size_t bytes;
    char *a, *b;

    ck_assert_msg(!want == !got, "%s(%s): NULL in one", e->name, s->words);
    if (!want)
        return;
    bytes = (size_t)core_tensor_numel(want) *
            core_dtype_size(core_tensor_dtype(want));
    ck_assert_msg(core_tensor_dtype(want) == core_tensor_dtype(got) &&
                      core_tensor_ndim(want) == core_tensor_ndim(got) &&
                      core_tensor_numel(want) == core_tensor_numel(got) &&
                      core_tensor_requires_grad(want) ==
                          core_tensor_requires_grad(got),
                  "%s(%s): another tensor", e->name, s->words);
    a = malloc(bytes + 1);
    b = malloc(bytes + 1);
    OK(core_tensor_read(want, a, bytes));
    OK(core_tensor_read(got, b, bytes));
    ck_assert_msg(strstr(e->name, "empty") || memcmp(a, b, bytes) == 0,
                  "%s(%s): other values", e->name, s->words);
    free(a);
    free(b);
}

static void same_value(const expression *e, const sample *s,
                       const core_value *want, const core_value *got)
{
    ck_assert_msg(want->tag == got->tag && want->count == got->count,
                  "%s(%s): %u and %u", e->name, s->words, want->tag, got->tag);
    if (want->tag == CORE_VALUE_TENSOR)
        same_tensor(e, s, want->u.tensor, got->u.tensor);
    else if (want->tag == CORE_VALUE_TENSOR_LIST)
        for (uint32_t i = 0; i < want->count; i++)
            same_tensor(e, s, want->u.tensors[i], got->u.tensors[i]);
    else
        ck_assert_msg(want->u.i == got->u.i, "%s(%s): another number", e->name,
                      s->words);
}

/* Returns whether the call succeeded. */
static bool compare(const expression *e, const sample *s)
{
    bool in_place = strcmp(e->name, e->base) != 0 || is_in_place(s);
    core_value want[RESULTS] = {{0}}, got[RESULTS] = {{0}};
    core_tensor *first = NULL;
    core_operator *op;
    core_status status;
    core_scope scope;
    arguments a;

    prepare(&a, s, in_place);
    OK(core_op_find(e->name, &op));
    status = core_op_call(op, a.values, a.count, want, RESULTS);
    if (in_place)
        first = a.values[0].u.tensor;
    prepare(&a, s, in_place);
    scope = core_scope_begin();
    e->call(a.values, a.count, got);
    ck_assert_msg(core_scope_status() == status,
                  "%s(%s): status %d, and %d of core_op_call: %s", e->name,
                  s->words, core_scope_status(), status, core_error_message());
    for (int i = 0; i < RESULTS && status == CORE_OK; i++)
        same_value(e, s, &want[i], &got[i]);
    if (first && a.values[0].tag == CORE_VALUE_TENSOR)
        same_tensor(e, s, first, a.values[0].u.tensor);
    ck_assert_int_eq(core_scope_end(scope), status);
    for (int i = 0; i < RESULTS; i++)
        core_value_release(&want[i]);
    drop_all();
    return status == CORE_OK;
}

/* Operators that have no samples in ops.yaml.  Those with SAMPLE_REFUSED take
 * tensors of dtypes that samples cannot have, and refuse these. */
static const sample others[] = {
    {"item", "p:", 0, 1, 0, NULL},
    {"_local_scalar_dense", "p:", 0, 1, 0, NULL},
    {"arange.start", "i:1 f:4.5 d:f32", 0, 1, 0, NULL},
    {"detach_", "p:3", 0, 1, 0, NULL},
    {"stochastic_round", "p:3 d:bf16 b:0", 0, 1, SAMPLE_REFUSED, NULL},
    {"_cummax_helper", "p:3 p:3 x:3 i:0", 0, 1, 0, NULL},
    {"_cummin_helper", "p:3 p:3 x:3 i:0", 0, 1, 0, NULL},
    {"_assert_async", "p:", 0, 1, 0, NULL},
    {"_assert_async.msg", "p: s:text", 0, 1, 0, NULL},
    {"_check_content", "p:3 s:fractions i:1577 i:0", 0, 1, 0, NULL},
    {"_amp_foreach_non_finite_check_and_unscale", "[ p:3 ] p: p:", 0, 1,
     SAMPLE_REFUSED, NULL},
    {"_scaled_mm", "p:4,4 p:4,4 p: p:", 0, 1, SAMPLE_REFUSED, NULL},
    {"_scaled_mm_v2", "p:4,4 p:4,4 [ p: ] l:0 l:0 [ p: ] l:0 l:0 n n", 0, 1,
     SAMPLE_REFUSED, NULL},
    {"_scaled_addmm", "p:4,4 p:4,4 p:4,4 [ p: ] l:0 l:0 [ p: ] l:0 l:0", 0, 1,
     SAMPLE_REFUSED, NULL},
    {"_scaled_grouped_mm_v2", "p:4,4 p:4,4 [ p: ] l:0 l:0 [ p: ] l:0 l:0", 0, 1,
     SAMPLE_REFUSED, NULL},
};

/* Returns whether a call among the samples was compared as it should be. */
static bool compare_all(const expression *e, const sample *table, int count,
                        bool may_be_refused)
{
    bool compared = false;

    for (int k = 0; k < count; k++) {
        const sample *s = &table[k];

        if (strcmp(s->op, e->base) != 0 && strcmp(s->op, e->name) != 0)
            continue;
        if (compare(e, s) || (may_be_refused && s->flags))
            compared = true;
    }
    return compared;
}

START_TEST(every_expression_does_what_its_operator_does)
{
    for (int i = _i; i < EXPRESSIONS; i += PARTS) {
        const expression *e = &expressions[i];
        bool sampled = compare_all(e, samples, SAMPLES, false);
        bool other =
            compare_all(e, others, sizeof others / sizeof *others, true);

        ck_assert_msg(sampled || other, "%s was not called", e->name);
    }
}
END_TEST

int main(void)
{
    const suite_loop loops[] = {
        {every_expression_does_what_its_operator_does, 0, PARTS},
    };
    const test_suite suite = {
        .name = "scope/expressions", .teardown = drop_all, SUITE_LOOPS(loops)};

    return suite_run(&suite, 1);
}
