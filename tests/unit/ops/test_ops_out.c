/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Every operator that writes into given tensors stores there what its
 * functional form returns: into an empty tensor, into a strided one, and into a
 * dense one without returning the result; it refuses a tensor of other
 * sizes.  A tensor for a result that the call does not ask for is not
 * written. */

#include "support/samples.h"

#include "dispatch/operator.h"
#include "dispatch/structured.h"

#include <libcore/device.h>
#include <libcore/random.h>

enum { OPERATORS = 2048 };

static bool reached[OPERATORS];

/* ---------------------------------------------------------------- calls -- */

static const core_operator *out_form(const core_operator *op)
{
    for (uint32_t i = 0; i < core__operator_count; i++) {
        const core_operator *form = &core__operators[i];

        if (form->variant == CORE__VARIANT_OUT && form->data->base == op->id)
            return form;
    }
    return NULL;
}

/* A tensor with gaps between its elements. */
static core_tensor *strided_like(core_tensor *like)
{
    int64_t sizes[CORE_MAX_NDIM];
    uint32_t ndim = core_tensor_ndim(like);
    core_tensor *x;

    memcpy(sizes, core_tensor_sizes(like), ndim * sizeof *sizes);
    sizes[ndim] = 2;
    x = CALL(zeros, sizes, ndim + 1, core_tensor_dtype(like),
             core_tensor_device(like));
    return CALL(select, x, -1, 1);
}

static core_tensor *target(core_tensor *like, int way)
{
    const int64_t nothing = 0, other[2] = {7, 11};

    if (way == 1)
        return strided_like(like);
    if (way == 3)
        return CALL(zeros, core_tensor_sizes(like), core_tensor_ndim(like),
                    core_tensor_dtype(like), core_tensor_device(like));
    return CALL(zeros, way == 0 ? &nothing : other, way == 0 ? 1 : 2,
                core_tensor_dtype(like), core_tensor_device(like));
}

static void same(core_tensor *want, core_tensor *got, const sample *s)
{
    size_t bytes = (size_t)core_tensor_numel(want) *
                   core_dtype_size(core_tensor_dtype(want));
    char *a = malloc(bytes + 1), *b = malloc(bytes + 1);

    ck_assert_msg(core_tensor_ndim(want) == core_tensor_ndim(got) &&
                      core_tensor_dtype(want) == core_tensor_dtype(got) &&
                      core_tensor_numel(want) == core_tensor_numel(got),
                  "%s(%s): the out tensor has other sizes than the result",
                  s->op, s->words);
    OK(core_tensor_read(want, a, bytes));
    OK(core_tensor_read(got, b, bytes));
    ck_assert_msg(strstr(s->op, "empty") || memcmp(a, b, bytes) == 0,
                  "%s(%s): the out tensor has other values", s->op, s->words);
    free(a);
    free(b);
}

/* ------------------------------------------------------------------ runs -- */

/* Copies the arguments.  An out form lacks dtype, layout, device and
 * pin_memory, which it takes from the given tensor. */
static void take_arguments(const arguments *a, const core_operator *form,
                           core_value *args)
{
    uint32_t options = form->data->dtype;

    if (form->nargs == a->op->nargs + a->op->nresults) {
        memcpy(args, a->values, a->count * sizeof *args);
        return;
    }
    ck_assert_uint_eq(form->nargs, a->op->nargs + 1 - 4);
    for (uint32_t i = 0; i < a->count; i++)
        if (i < options || i >= options + 4)
            args[i < options ? i : i - 4] = a->values[i];
}

/* How an error refers to the first given tensor. */
static const char *given_as(const core_operator *form)
{
    static char text[64];

    snprintf(text, sizeof text, "given as %s ",
             core__argument_name(form, form->nargs - form->nresults));
    return text;
}

/* `want` has a tensor for each result; the functional form does not return
 * those in the mask `absent`. */
static void run_way(const sample *s, arguments *a, const core_operator *form,
                    const core_value *want, uint32_t absent, int way)
{
    uint32_t nresults = a->op->nresults;
    core_value args[ARGUMENTS + RESULTS] = {0};
    core_value *outs = args + form->nargs - nresults;
    core_value got[RESULTS] = {0};
    core_status status;

    take_arguments(a, form, args);
    for (uint32_t i = 0; i < nresults; i++)
        outs[i] =
            core_pack_tensor(absent >> i & 1 ? CALL(clone, want[i].u.tensor, -1)
                                             : target(want[i].u.tensor, way));
    core_seed(7);
    status = core_op_call((core_operator *)(uintptr_t)form, args, form->nargs,
                          way == 3 ? NULL : got, way == 3 ? 0 : RESULTS);
    for (uint32_t i = 0; i < nresults; i++) {
        if (way == 2) {
            ck_assert_uint_eq(got[i].tag, CORE_VALUE_NONE);
            continue;
        }
        ck_assert_msg(status == CORE_OK, "%s(%s): %s", s->op, s->words,
                      core_error_message());
        if (way != 3)
            ck_assert_ptr_eq(got[i].u.tensor, outs[i].u.tensor);
        same(want[i].u.tensor, outs[i].u.tensor, s);
        core_value_release(&got[i]);
    }
    if (way == 2)
        ck_assert_msg(status == CORE_ERROR_SHAPE &&
                          strstr(core_error_message(), given_as(form)),
                      "%s(%s): %d \"%s\"", s->op, s->words, status,
                      status ? core_error_message() : "");
}

static void run_refused(const sample *s, arguments *a,
                        const core_operator *form, const core_value *want);

/* The mask of results that the call did not ask for; each gets a tensor. */
static uint32_t fill_absent(const core_operator *op, core_value *want)
{
    const int64_t three = 3;
    uint32_t absent = 0;

    for (uint32_t i = 0; i < op->nresults; i++) {
        if (want[i].tag == CORE_VALUE_TENSOR)
            continue;
        OK(core_ones(&three, 1, CORE_F64, NULL, &want[i].u.tensor));
        want[i].tag = CORE_VALUE_TENSOR;
        absent |= 1u << i;
    }
    return absent;
}

static void run_sample(const sample *s)
{
    core_value want[RESULTS] = {0};
    const core_operator *form;
    uint32_t absent;
    arguments a;

    parse_sample(&a, s, s->words);
    form = out_form(a.op);
    if (!form)
        return;
    make_positive(&a);
    core_seed(7);
    if (core_op_call(a.op, a.values, a.count, want, RESULTS) != CORE_OK)
        ck_abort_msg("%s(%s): %s", s->op, s->words, core_error_message());
    absent = fill_absent(a.op, want);
    reached[form->id] = reached[form->id] || absent == 0;
    for (int way = 0; way < 4; way++)
        run_way(s, &a, form, want, absent, way);
    run_refused(s, &a, form, want);
    for (int i = 0; i < RESULTS; i++)
        core_value_release(&want[i]);
}

/* ------------------------------------------------------ refused memory -- */

/* A tensor on the elements of `base` that start at `from`. */
static core_tensor *window(core_tensor *base, core_tensor *like, int64_t from)
{
    int64_t numel = core_tensor_numel(like);

    return CALL(view_sizes, CALL(narrow, base, 0, from, numel),
                core_tensor_sizes(like), core_tensor_ndim(like));
}

static void refused(const sample *s, const core_operator *form,
                    core_value *args, uint32_t result, core_tensor *memory,
                    const char *why)
{
    uint32_t at = form->nargs - form->nresults + result;
    size_t bytes = (size_t)core_tensor_numel(memory) *
                   core_dtype_size(core_tensor_dtype(memory));
    char *before = malloc(bytes + 1), *after = malloc(bytes + 1);
    core_value got[RESULTS] = {0};
    char name[48];
    core_status status;

    OK(core_tensor_read(memory, before, bytes));
    status = core_op_call((core_operator *)(uintptr_t)form, args, form->nargs,
                          got, RESULTS);
    OK(core_tensor_read(memory, after, bytes));
    snprintf(name, sizeof name, "argument %s", core__argument_name(form, at));
    ck_assert_msg(status != CORE_OK && strstr(core_error_message(), why) &&
                      strstr(core_error_message(), name) &&
                      strstr(core_error_message(), core__operator_name(form)),
                  "%s(%s), %s: %d \"%s\"", s->op, s->words, name, status,
                  status ? core_error_message() : "");
    ck_assert_msg(memcmp(before, after, bytes) == 0, "%s(%s): %s was written",
                  s->op, s->words, name);
    for (int i = 0; i < RESULTS; i++)
        ck_assert_uint_eq(got[i].tag, CORE_VALUE_NONE);
    free(before);
    free(after);
}

/* Refuses an out tensor whose elements overlap, and two that share memory. */
static void run_overlapping(const sample *s, const core_operator *form,
                            const core_value *want, core_value *args,
                            core_value *outs)
{
    for (uint32_t i = 0; i < form->nresults; i++) {
        core_tensor *like = want[i].u.tensor, *one;
        core_value kept = outs[i];

        if (core_tensor_numel(like) > 1) {
            one = CALL(zeros, NULL, 0, core_tensor_dtype(like),
                       core_tensor_device(like));
            outs[i].u.tensor = CALL(expand, one, core_tensor_sizes(like),
                                    core_tensor_ndim(like), false);
            refused(s, form, args, i, one, "at one address");
        }
        for (uint32_t k = 0; k < i; k++)
            if (core_tensor_dtype(like) ==
                    core_tensor_dtype(want[k].u.tensor) &&
                core_tensor_numel(like) > 0 &&
                core_tensor_numel(like) ==
                    core_tensor_numel(want[k].u.tensor)) {
                outs[i].u.tensor =
                    window(CALL(flatten, outs[k].u.tensor, 0, -1), like, 0);
                refused(s, form, args, k, outs[k].u.tensor, "shares memory");
            }
        outs[i] = kept;
    }
}

/* Refuses an out tensor that overlaps an operand, and an empty one on the
 * operand's storage. */
static void run_shared(const sample *s, const core_operator *form,
                       const core_value *want, core_value *args,
                       core_value *outs, core_tensor **operand)
{
    core_tensor *given = *operand;
    int64_t size = core_tensor_numel(given);

    for (uint32_t i = 0; i < form->nresults; i++) {
        core_tensor *like = want[i].u.tensor, *base;
        core_value kept = outs[i];
        int64_t elements = size + core_tensor_numel(like);

        if (core_tensor_dtype(like) != core_tensor_dtype(given) || size == 0 ||
            core_tensor_numel(like) == 0 || elements == 2)
            continue;
        base = CALL(zeros, &elements, 1, core_tensor_dtype(given),
                    core_tensor_device(given));
        *operand = window(base, given, 0);
        OK(core_copy_(*operand, given, false));
        outs[i].u.tensor = window(base, like, size - 1);
        refused(s, form, args, i, base, "shares memory");
        outs[i].u.tensor = CALL(narrow, base, 0, 0, 0);
        refused(s, form, args, i, base, "shares memory");
        *operand = given;
        outs[i] = kept;
    }
}

/* Out operators are not differentiable: operands that require grad are
 * refused. */
static void run_recorded(const sample *s, const core_operator *form,
                         core_value *args)
{
    core_value got[RESULTS] = {0};

    for (uint32_t at = 0; at < form->nargs; at++) {
        core_tensor *given = args[at].u.tensor;
        core_status status;

        if (args[at].tag != CORE_VALUE_TENSOR ||
            !core_dtype_is_floating(core_tensor_dtype(given)))
            continue;
        args[at].u.tensor = leaf(CALL(clone, given, -1));
        core_grad_mode_set(true);
        status = core_op_call((core_operator *)(uintptr_t)form, args,
                              form->nargs, got, RESULTS);
        core_grad_mode_set(false);
        args[at].u.tensor = given;
        ck_assert_msg(
            status == CORE_ERROR_AUTOGRAD &&
                strstr(core_error_message(), " requires grad, but") &&
                strstr(core_error_message(), core__operator_name(form)),
            "%s(%s), %s: %d \"%s\"", s->op, s->words,
            core__argument_name(form, at), status,
            status ? core_error_message() : "");
        ck_assert_uint_eq(got[0].tag, CORE_VALUE_NONE);
    }
}

static void run_refused(const sample *s, arguments *a,
                        const core_operator *form, const core_value *want)
{
    core_value args[ARGUMENTS + RESULTS] = {0};
    core_value *outs = args + form->nargs - form->nresults;

    take_arguments(a, form, args);
    for (uint32_t i = 0; i < form->nresults; i++)
        outs[i] =
            core_pack_tensor(CALL(zeros, core_tensor_sizes(want[i].u.tensor),
                                  core_tensor_ndim(want[i].u.tensor),
                                  core_tensor_dtype(want[i].u.tensor),
                                  core_tensor_device(want[i].u.tensor)));
    run_recorded(s, form, args);
    run_overlapping(s, form, want, args, outs);
    for (core_value *arg = args; arg < outs; arg++) {
        if (arg->tag == CORE_VALUE_TENSOR)
            run_shared(s, form, want, args, outs, &arg->u.tensor);
        if (arg->tag == CORE_VALUE_TENSOR_LIST && arg->count > 0 &&
            arg->u.tensors[0])
            run_shared(s, form, want, args, outs,
                       (core_tensor **)(uintptr_t)arg->u.tensors);
    }
}

/* ----------------------------------------------------------------- cases -- */

START_TEST(out_operators_store_the_functional_result)
{
    bool before = core_grad_mode_set(false);

    for (size_t i = 0; i < SAMPLES; i++) {
        run_sample(&samples[i]);
        drop_all();
    }
    core_grad_mode_set(before);
    for (uint32_t i = 0; i < core__operator_count; i++) {
        const core_operator *op = &core__operators[i];

        ck_assert_msg(op->variant != CORE__VARIANT_OUT || reached[i],
                      "no call reaches %s", core__operator_name(op));
    }
}
END_TEST

/* A new tensor takes dtype and device from the given tensor, not the defaults
 * of the functional form. */
START_TEST(factories_take_dtype_and_device_from_out)
{
    core_tensor *counts =
        typed(CORE_I32, 1, (int64_t[]){3}, (double[]){7, 7, 7});
    core_tensor *x = leaf(VECTOR(3, 1, 2, 3)), *meta;
    core_device *device;

    OK(core_arange_start_step_out(core_int(2), core_float(5), core_int(1),
                                  counts));
    HOLDS(counts, 3, 2, 3, 4);
    OK(core_ones_out((int64_t[]){3}, 1, counts));
    HOLDS(counts, 3, 1, 1, 1);
    OK(core_to_copy_out(CALL(detach, x), false, -1, counts));
    HOLDS(counts, 3, 1, 2, 3);
    OK(core_randint_out(1, (int64_t[]){3}, 1, NULL, counts));
    HOLDS(counts, 3, 0, 0, 0);
    FAILS(core_rand_out((int64_t[]){3}, 1, NULL, counts), CORE_ERROR_NO_KERNEL,
          "rand", "i32");
    FAILS(core_zeros_out((int64_t[]){2}, 1, counts), CORE_ERROR_SHAPE,
          "zeros.out", "as out");
    FAILS(core_zeros_like_out(x, -1, counts), CORE_ERROR_AUTOGRAD,
          "zeros_like.out");
    OK(core_device_find("meta", &device));
    meta = CALL(empty, (int64_t[]){0}, 1, CORE_F16, device, -1);
    OK(core_eye_out(4, meta));
    ck_assert_int_eq(core_tensor_numel(meta), 16);
    ck_assert_int_eq(core_tensor_dtype(meta), CORE_F16);
}
END_TEST

SUITE("ops/ops_out", out_operators_store_the_functional_result,
      factories_take_dtype_and_device_from_out)
