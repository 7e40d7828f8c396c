/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: numbers that are arguments, which keep all bits of f64 and i64, and
 * cases that simplifications of a kernel get wrong: a beta of 0, a result that
 * is the second operand, results that are subnormal, infinities alone. */

#include "element_value.h"
#include "left_out.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIDE = 2, NUMEL = SIDE * SIDE, ARGUMENTS = 6 };

#define WIDE INT64_C(9007199254740993) /* 2^53 + 1 */

/* An argument; every element of a tensor has the same value. */
typedef struct number {
    enum {
        NONE,
        TENSOR,   /* of 2 x 2 elements */
        GAPS,     /* with gaps between its elements */
        ZERO_DIM, /* of one element */
        MASK,     /* of bool, true */
        NUMBER,
        FIRST_TENSOR, /* argument 0 again */
        SECOND_TENSOR /* argument 1 again */
    } kind;
    double f;
    int64_t i; /* where the dtype is i64 */
} number;

#define T(value)                                  \
    {                                             \
        TENSOR, (double)(value), (int64_t)(value) \
    }
#define N(value)                                  \
    {                                             \
        NUMBER, (double)(value), (int64_t)(value) \
    }

typedef struct number_case {
    const char *name;
    core_dtype dtype;
    number args[ARGUMENTS];
    double f;
    int64_t i;
    bool rounded; /* to some units */
} number_case;

static const number_case arguments[] = {
    {"add.Tensor", CORE_F64, {T(0), T(1), N(.1)}, .1, 0, false},
    {"sub.Tensor", CORE_F64, {T(0), T(1), N(.1)}, -.1, 0, false},
    {"add.Tensor", CORE_I64, {T(0), T(1), N(WIDE)}, 0, WIDE, false},
    {"sub.Tensor", CORE_I64, {T(0), T(1), N(WIDE)}, 0, -WIDE, false},
    {"add.Scalar", CORE_F64, {T(0), N(.1)}, .1, 0, false},
    {"add.Scalar", CORE_I64, {T(0), N(WIDE)}, 0, WIDE, false},
    {"mul.Scalar", CORE_F64, {T(1), N(.1)}, .1, 0, false},
    {"mul.Scalar", CORE_I64, {T(1), N(WIDE)}, 0, WIDE, false},
    {"eq.Scalar", CORE_I64, {T(WIDE), N(WIDE - 1)}, 0, 0, false},
    {"lt.Scalar", CORE_I64, {T(WIDE - 1), N(WIDE)}, 0, 1, false},
    {"addcmul", CORE_F64, {T(0), T(1), T(1), N(.1)}, .1, 0, false},
    {"lerp.Scalar", CORE_F64, {T(0), T(1), N(.1)}, .1, 0, false},
    {"leaky_relu", CORE_F64, {T(-1), N(.1)}, -.1, 0, false},
    {"clamp", CORE_F64, {T(0), N(.1)}, .1, 0, false},
    {"clamp", CORE_I64, {T(0), N(WIDE)}, 0, WIDE, false},
    {"addmm", CORE_F64, {T(1), T(0), T(1), N(.1), N(1)}, .1, 0, false},
    {"addmm", CORE_F64, {T(0), T(.5), T(1), N(1), N(.1)}, .1, 0, false},
    {"fill_.Scalar", CORE_F64, {T(0), N(.1)}, .1, 0, false},
    {"fill_.Scalar", CORE_I64, {T(0), N(WIDE)}, 0, WIDE, false},
    {"fill_.Scalar", CORE_F64, {{GAPS, 0, 0}, N(.1)}, .1, 0, false},
    {"fill_.Scalar", CORE_I64, {{GAPS, 0, 0}, N(WIDE)}, 0, WIDE, false},
    {"masked_fill.Scalar", CORE_F64, {T(0), {MASK, 0, 0}, N(.1)}, .1, 0, false},
    {"masked_fill.Scalar",
     CORE_I64,
     {T(0), {MASK, 0, 0}, N(WIDE)},
     0,
     WIDE,
     false},
};

static const number_case edges[] = {
    {"addmm",
     CORE_F32,
     {{ZERO_DIM, (double)NAN, 0}, T(.5), T(1), N(0), N(1)},
     1,
     0,
     false},
    {"addmm", CORE_F32, {T(7), T(.5), T(1), N(0), N(2)}, 2, 0, false},
    {"addmm", CORE_F64, {T(7), T(.5), T(1), N(0), N(2)}, 2, 0, false},
    {"mul.out", CORE_F32, {T(3), T(5), {SECOND_TENSOR, 0, 0}}, 15, 0, false},
    {"sub.out",
     CORE_F32,
     {T(3), T(5), N(1), {SECOND_TENSOR, 0, 0}},
     -2,
     0,
     false},
    {"mul.out", CORE_F32, {T(3), T(5), {FIRST_TENSOR, 0, 0}}, 15, 0, false},
    {"threshold_backward", CORE_F32, {T(2), T(1), N(1)}, 0, 0, false},
    {"threshold_backward", CORE_F64, {T(2), T(1), N(1)}, 0, 0, false},
    {"exp", CORE_F64, {T(-100)}, 3.720075976020836e-44, 0, true},
    {"exp", CORE_F64, {T(-700)}, 9.85967654375977e-305, 0, true},
    {"exp", CORE_F32, {T(-87.25)}, 1.2817592313147442e-38, 0, true},
    {"exp", CORE_F32, {T(-90)}, 8.194012623990515e-40, 0, true},
    {"amax", CORE_F32, {T(-INFINITY)}, -(double)INFINITY, 0, false},
    {"amax", CORE_F64, {T(-INFINITY)}, -(double)INFINITY, 0, false},
    {"amin", CORE_F32, {T(INFINITY)}, (double)INFINITY, 0, false},
    {"amin", CORE_F64, {T(INFINITY)}, (double)INFINITY, 0, false},
    {"max", CORE_F32, {T(-INFINITY)}, -(double)INFINITY, 0, false},
    {"min", CORE_F32, {T(INFINITY)}, (double)INFINITY, 0, false},
};

static void put(const number_case *of, const number *from, void *to)
{
    if (of->dtype == CORE_I64)
        memcpy(to, &from->i, sizeof from->i);
    else
        element_store(of->dtype, from->f, to);
}

static core_status make(suite *self, const number_case *of, const number *from,
                        core_tensor **memory, core_tensor **out)
{
    static const int64_t sizes[2] = {SIDE, SIDE}, strides[2] = {2, 5};
    const int64_t all = 4 * NUMEL;
    unsigned char bytes[4 * NUMEL * 8], mask[NUMEL] = {1, 1, 1, 1};
    size_t item = core_dtype_size(of->dtype);
    core_value args[4];

    for (size_t i = 0; i < 4 * NUMEL; i++)
        put(of, from, bytes + i * item);
    if (from->kind == MASK)
        return core_tensor_from_data(mask, CORE_BOOL, sizes, 2, self->device,
                                     out);
    if (from->kind != GAPS)
        return core_tensor_from_data(bytes, of->dtype, sizes,
                                     from->kind == TENSOR ? 2 : 0, self->device,
                                     out);
    CORE_TRY(
        core_tensor_from_data(bytes, of->dtype, &all, 1, self->device, memory));
    args[0] = suite_tensor_value(*memory);
    args[1] = (core_value){CORE_VALUE_INT_LIST, 2, {.ints = sizes}};
    args[2] = (core_value){CORE_VALUE_INT_LIST, 2, {.ints = strides}};
    args[3] = core_int(1);
    return suite_call("as_strided", args, 4, out);
}

static void number_text(const number_case *of, const number *one, char *text,
                        size_t size)
{
    if (of->dtype == CORE_I64)
        snprintf(text, size, "%lld", (long long)one->i);
    else
        snprintf(text, size, "%.9g", one->f);
}

/* "addmm(7, 0.5, 1, 0, 2) of f32": all elements of a tensor are equal. */
static const char *describe(const number_case *of, char *text, size_t size)
{
    static const char *const kinds[] = {
        [TENSOR] = "",
        [GAPS] = " with gaps",
        [ZERO_DIM] = " without dimensions",
        [MASK] = "a true mask",
        [NUMBER] = "",
        [FIRST_TENSOR] = "into the first operand",
        [SECOND_TENSOR] = "into the second operand"};
    size_t used = (size_t)snprintf(text, size, "%s(", of->name);

    for (int i = 0; i < ARGUMENTS && of->args[i].kind != NONE; i++) {
        const number *one = &of->args[i];
        char value[40] = "";

        if (one->kind < MASK || one->kind == NUMBER)
            number_text(of, one, value, sizeof value);
        if (used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s%s",
                                     i ? ", " : "", value, kinds[one->kind]);
    }
    if (used < size)
        snprintf(text + used, size - used, ") of %s",
                 core_dtype_name(of->dtype));
    return text;
}

static bool holds_number(suite *self, const number_case *of, size_t i,
                         core_dtype dtype, const unsigned char *bytes,
                         outcome *out)
{
    double is = element_load(dtype, bytes), bound = 0;
    int64_t whole = 0;
    char text[200];

    if (!core_dtype_is_floating(dtype)) {
        memcpy(&whole, bytes, core_dtype_size(dtype));
        return expect(out, whole == of->i,
                      "%s: element %zu is %lld, expected %lld",
                      describe(of, text, sizeof text), i, (long long)whole,
                      (long long)of->i);
    }
    if (of->rounded) {
        bound = 16 * dtype_epsilon(dtype) * (of->f + dtype_min_normal(dtype));
        if (self->numerics.flushes_denormals & CORE_DTYPE_MASK(dtype))
            bound += dtype_min_normal(dtype);
    }
    return expect(out, is == of->f || fabs(is - of->f) <= bound,
                  "%s: element %zu is %.17g, expected %.17g",
                  describe(of, text, sizeof text), i, is, of->f);
}

/* *out_ran: false if no kernel computes it. */
static bool call(suite *self, const number_case *of, bool *out_ran,
                 outcome *out)
{
    core_tensor *tensors[ARGUMENTS] = {NULL}, *memory = NULL, *got = NULL;
    core_value args[ARGUMENTS] = {{0}};
    unsigned char bytes[NUMEL * 8];
    core_status status = CORE_OK;
    uint32_t n = 0;
    size_t item, numel;

    *out_ran = false;
    for (; n < ARGUMENTS && of->args[n].kind != NONE; n++) {
        const number *from = &of->args[n];

        if (from->kind == NUMBER)
            args[n] =
                of->dtype == CORE_I64 ? core_int(from->i) : core_float(from->f);
        else if (from->kind >= FIRST_TENSOR)
            args[n] = args[from->kind - FIRST_TENSOR];
        else if (expect_ok(out, make(self, of, from, &memory, &tensors[n]),
                           "making an operand"))
            args[n] = suite_tensor_value(tensors[n]);
        else
            goto done;
    }
    status = suite_call(of->name, args, n, &got);
    if (status == CORE_ERROR_NO_KERNEL || !expect_ok(out, status, of->name))
        goto done;
    item = core_dtype_size(core_tensor_dtype(got));
    numel = (size_t)core_tensor_numel(got);
    *out_ran = true;
    if (!expect(out, numel <= NUMEL, "%s: the result has wrong sizes",
                of->name) ||
        !expect_ok(out, core_tensor_read(got, bytes, numel * item),
                   "reading a result"))
        goto done;
    for (size_t i = 0; i < numel; i++)
        if (!holds_number(self, of, i, core_tensor_dtype(got), bytes + i * item,
                          out))
            break;
done:
    core_tensor_release(got);
    for (uint32_t k = 0; k < ARGUMENTS; k++)
        core_tensor_release(tensors[k]);
    core_tensor_release(memory);
    return out->verdict == VERDICT_PASS;
}

static void call_all(suite *self, const number_case *cases, size_t count,
                     outcome *out)
{
    left_out left = {.length = 0};
    bool ran;

    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t i = 0; i < count; i++) {
        if (!call(self, &cases[i], &ran, out))
            return;
        if (!ran)
            left_out_add(&left, cases[i].name, cases[i].dtype);
    }
    left_out_report(&left, count - left.count, out);
}

static void numbers_are_exact(suite *self, outcome *out, const test *one)
{
    (void)one;
    call_all(self, arguments, sizeof arguments / sizeof *arguments, out);
}

static void edge_cases(suite *self, outcome *out, const test *one)
{
    (void)one;
    call_all(self, edges, sizeof edges / sizeof *edges, out);
}

bool suite_add_numbers(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/numbers-are-exact", numbers_are_exact, true},
        {"ops/rules/edge-cases", edge_cases, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
