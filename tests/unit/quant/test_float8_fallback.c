/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The fallbacks for devices without float8 kernels, compared with the kernels:
 * the same bits. */

#define SUITE_SECONDS 60

#include "support/devices.h"

#include "dispatch/dispatch.h"
#include "ops/functions.h"
#include "quant/float8_fallback.h"

#include <libcore/float8.h>
#include <libcore/random.h>

#include <math.h>

static const core_dtype formats[2] = {CORE_F8E4M3, CORE_F8E5M2};
static const core_dtype floats[] = {CORE_F64, CORE_F32, CORE_F16, CORE_BF16};
static const core_dtype others[] = {CORE_I64, CORE_I32, CORE_I16,
                                    CORE_I8,  CORE_U8,  CORE_BOOL};
static const char *const places[] = {"cpu", "sim"};

enum { ROWS = 500, COLUMNS = 8, NUMEL = ROWS * COLUMNS };
static const int64_t sizes[2] = {ROWS, COLUMNS};

/* Ties, their neighbours in f64, numbers of all magnitudes, and NaN. */
static core_tensor *numbers(const char *place)
{
    static double values[NUMEL];
    const double special[] = {NAN,    INFINITY, -INFINITY, 0,    -0.0,
                              1e-300, -1e300,   1e-44,     3e38, -0x1p-10};
    uint64_t state = 1;
    core_tensor *tensor;

    for (int i = 0; i < NUMEL; i++) {
        double tie, toward;

        state = state * 6364136223846793005u + 1442695040888963407u;
        tie = ldexp((double)(state >> 58) + 0.5 * (state >> 57 & 1),
                    (int)(state >> 40 & 31) - 20);
        toward = state >> 39 & 1 ? INFINITY : 0;
        values[i] = i % 3 == 0   ? tie
                    : i % 3 == 1 ? nextafter(tie, toward)
                                 : ldexp((double)(state >> 32), -40);
        if (state >> 38 & 1)
            values[i] = -values[i];
    }
    memcpy(values, special, sizeof special);
    OK(core_tensor_from_data(values, CORE_F64, sizes, 2, device_of(place),
                             &tensor));
    return keep(tensor);
}

static core_tensor *cast(core_tensor *tensor, core_dtype dtype)
{
    return CALL(to_copy, tensor, dtype, NULL, false, -1);
}

/* Every NaN equals every other NaN. */
static void check_same(core_tensor *have, core_tensor *want)
{
    static double a[NUMEL], b[NUMEL];

    ck_assert_uint_eq(core_tensor_dtype(have), core_tensor_dtype(want));
    OK(core_tensor_read(cast(have, CORE_F64), a, sizeof a));
    OK(core_tensor_read(cast(want, CORE_F64), b, sizeof b));
    for (int i = 0; i < NUMEL; i++)
        ck_assert_msg((isnan(a[i]) && isnan(b[i])) ||
                          (a[i] == b[i] && !signbit(a[i]) == !signbit(b[i])),
                      "%s, %d: %a, not %a",
                      core_dtype_name(core_tensor_dtype(want)), i, a[i], b[i]);
}

static core_status call_fallback(uint32_t id, const core_value *args,
                                 uint32_t nargs, core_value *result)
{
    core_call call = {.op = core_op_at(id)};

    return core__float8_fallback(&call, args, nargs, result, result ? 1 : 0);
}

static void copy(core_tensor *to, core_tensor *from)
{
    const core_value args[3] = {core_pack_tensor(to), core_pack_tensor(from),
                                core_pack_bool(false)};

    OK(call_fallback(CORE_OP_COPY_, args, 3, NULL));
}

static core_tensor *like(core_tensor *tensor, core_dtype dtype)
{
    return CALL(empty_like, tensor, dtype, NULL, -1);
}

static void check_both_ways(core_tensor *from, core_dtype format)
{
    core_tensor *want = cast(from, format), *have = like(from, format), *back;

    copy(have, from);
    check_same(have, want);
    back = like(from, core_tensor_dtype(from));
    copy(back, want);
    check_same(back, cast(want, core_tensor_dtype(from)));
}

START_TEST(fallback_conversions_equal_kernel_bits)
{
    for (int p = 0; p < 2; p++)
        for (int f = 0; f < 2; f++) {
            core_tensor *x = numbers(places[p]), *whole;
            const core_scalar least = core_float(-100), most = core_float(100);

            for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
                check_both_ways(cast(x, floats[i]), formats[f]);
            check_both_ways(cast(x, formats[1 - f]), formats[f]);
            OK(core_nan_to_num(x, NULL, NULL, NULL, &whole));
            OK(core_clamp_(keep(whole), &least, &most));
            OK(core_abs_(whole));
            for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
                core_tensor *from = cast(whole, others[i]);
                core_tensor *have = like(from, formats[f]);

                copy(have, from);
                check_same(have, cast(from, formats[f]));
            }
            /* Far beyond the range of float8 and the precision of f32. */
            OK(core_fill_(whole, core_float(-9e15)));
            whole = cast(whole, CORE_I64);
            copy(like(whole, formats[f]), whole);
        }
}
END_TEST

START_TEST(fallback_stochastic_rounding_equals_kernel_bits)
{
    for (int p = 0; p < 2; p++)
        for (int f = 0; f < 2; f++)
            for (int i = 0; i < 8; i++) {
                core_tensor *x = cast(numbers(places[p]), floats[i / 2]), *want;
                const core_value args[4] = {
                    core_pack_tensor(x), core_pack_dtype(formats[f]),
                    core_pack_bool(i % 2), core_pack_none()};
                core_value result = {0};
                core_tensor *after[2];
                double drawn[2][4];

                core_seed(11);
                OK(core_float8_cast(x, formats[f],
                                    CORE_FLOAT8_STOCHASTIC |
                                        (i % 2 ? CORE_FLOAT8_SATURATE : 0),
                                    NULL, &want));
                after[0] = CALL(rand, (int64_t[]){4}, 1, NULL, CORE_F64, NULL);
                core_seed(11);
                OK(call_fallback(CORE_OP_STOCHASTIC_ROUND, args, 4, &result));
                after[1] = CALL(rand, (int64_t[]){4}, 1, NULL, CORE_F64, NULL);
                check_same(keep(result.u.tensor), keep(want));
                /* The fallback draws as many random numbers. */
                OK(core_tensor_read(after[0], drawn[0], sizeof drawn[0]));
                OK(core_tensor_read(after[1], drawn[1], sizeof drawn[1]));
                ck_assert_mem_eq(drawn[0], drawn[1], sizeof drawn[0]);
            }
}
END_TEST

START_TEST(fallback_fills_and_copies_write_only_their_view)
{
    for (int f = 0; f < 2; f++) {
        core_tensor *want = cast(numbers("cpu"), formats[f]);
        core_tensor *have = cast(numbers("cpu"), formats[f]);
        core_tensor *parts[2], *turned[2];
        core_value args[2] = {{0}, core_float(-1.7)};
        core_value result = {0};

        for (int i = 0; i < 2; i++) {
            core_tensor *whole = i ? have : want;

            parts[i] = CALL(narrow, whole, 1, 2, 3);
            turned[i] = CALL(t, whole);
        }
        OK(core_fill_(parts[0], core_float(-1.7)));
        args[0] = core_pack_tensor(parts[1]);
        OK(call_fallback(CORE_OP_FILL__SCALAR, args, 2, &result));
        ck_assert_ptr_eq(result.u.tensor, parts[1]);
        core_value_release(&result);
        check_same(have, want);
        parts[0] = CALL(narrow, want, 0, 7, 5);
        OK(core_zero_(parts[0]));
        parts[1] = CALL(narrow, have, 0, 7, 5);
        args[0] = core_pack_tensor(parts[1]);
        OK(call_fallback(CORE_OP_ZERO_, args, 1, NULL));
        check_same(have, want);
        /* Same dtype, another layout; then a scalar into all elements. */
        have = like(want, formats[f]);
        copy(CALL(t, have), turned[0]);
        check_same(have, want);
        copy(have, CALL(full, NULL, 0, core_float(0.3), CORE_F32, NULL));
        OK(core_fill_(want, core_float(0.3)));
        check_same(have, want);
    }
}
END_TEST

START_TEST(fallback_refuses_other_operators_and_dtypes)
{
    core_tensor *x = numbers("cpu"), *y = like(x, CORE_F32);
    const core_value args[3] = {core_pack_tensor(y), core_pack_tensor(x),
                                core_pack_bool(false)};

    ck_assert_int_eq(call_fallback(CORE_OP_COPY_, args, 3, NULL),
                     CORE_ERROR_NO_KERNEL);
    ck_assert_int_eq(call_fallback(CORE_OP_ZERO_, args, 1, NULL),
                     CORE_ERROR_NO_KERNEL);
    ck_assert_int_eq(call_fallback(CORE_OP_EXP, args, 1, NULL),
                     CORE_ERROR_NO_KERNEL);
}
END_TEST

SUITE("quant/float8_fallback", fallback_conversions_equal_kernel_bits,
      fallback_stochastic_rounding_equals_kernel_bits,
      fallback_fills_and_copies_write_only_their_view,
      fallback_refuses_other_operators_and_dtypes)
