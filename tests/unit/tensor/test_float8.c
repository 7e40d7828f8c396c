/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Eight-bit floats: every code, every tie, values that are too large; and no
 * operator computes in them. The expected tables do not depend on the
 * library. */

#define SUITE_SECONDS 60

#include "support/devices.h"
#include "support/float8_table.h"
#include "quant/quantizer.h"

#include <libcore/float8.h>

#include <math.h>

typedef struct format {
    core_dtype dtype;
    const uint64_t *values;
    uint8_t most, beyond;
} format;

static const format formats[2] = {{CORE_F8E4M3, e4m3_values, 0x7e, 0x7f},
                                  {CORE_F8E5M2, e5m2_values, 0x7b, 0x7c}};
static const char *const places[] = {"cpu", "sim"};
enum { PLACES = 2, MANY = 4096 };

static double of_bits(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, 8);
    return value;
}

static bool same(double a, double b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

static core_tensor *data(const void *values, core_dtype dtype, int64_t count,
                         const char *place)
{
    core_tensor *tensor;

    OK(core_tensor_from_data(values, dtype, &count, 1, device_of(place),
                             &tensor));
    return keep(tensor);
}

static core_tensor *cast(core_tensor *tensor, core_dtype dtype)
{
    return CALL(to_copy, tensor, dtype, NULL, false, -1);
}

/* Converts doubles by way of the dtype `by`. */
static void convert(const double *from, int64_t count, core_dtype by,
                    core_dtype dtype, uint32_t flags, const char *place,
                    uint8_t *to)
{
    core_tensor *wide = data(from, CORE_F64, count, place), *narrow;

    if (by != CORE_F64)
        wide = cast(wide, by);
    OK(core_float8_cast(wide, dtype, flags, NULL, &narrow));
    OK(core_tensor_read(narrow, to, (size_t)count));
    core_tensor_release(narrow);
}

START_TEST(every_code_has_its_value)
{
    const core_dtype wide[] = {CORE_F64, CORE_F32, CORE_F16, CORE_BF16};
    uint8_t codes[256];
    double have[256];

    for (int i = 0; i < 256; i++)
        codes[i] = (uint8_t)i;
    for (int f = 0; f < 2; f++)
        for (int p = 0; p < PLACES; p++)
            for (int w = 0; w < 4; w++) {
                core_tensor *x = data(codes, formats[f].dtype, 256, places[p]);

                x = cast(cast(x, wide[w]), CORE_F64);
                OK(core_tensor_read(x, have, sizeof have));
                for (int i = 0; i < 256; i++)
                    ck_assert_msg(same(have[i], of_bits(formats[f].values[i])),
                                  "%s %02x: %g",
                                  core_dtype_name(formats[f].dtype), i,
                                  have[i]);
            }
}
END_TEST

/* Doubles next to a tie are distinguished from it: they are rounded only
 * once. */
static void check_rounding(const format *f, const double *from,
                           const uint8_t *want, int64_t count,
                           const char *place)
{
    static uint8_t to[2 * MANY];

    convert(from, count, CORE_F64, f->dtype, 0, place, to);
    for (int64_t i = 0; i < count; i++)
        ck_assert_msg(to[i] == want[i], "%s: %a is %02x, not %02x",
                      core_dtype_name(f->dtype), from[i], to[i], want[i]);
    convert(from, count, CORE_F64, f->dtype, CORE_FLOAT8_SATURATE, place, to);
    for (int64_t i = 0; i < count; i++) {
        uint8_t sign = want[i] & 0x80, code = want[i] & 0x7f;

        code = code > f->most ? f->most : code;
        ck_assert_msg(to[i] == (sign | code), "%s: %a saturates to %02x",
                      core_dtype_name(f->dtype), from[i], to[i]);
    }
}

START_TEST(doubles_are_rounded_once_to_the_nearest_even)
{
    static double from[2 * MANY];
    static uint8_t want[2 * MANY];

    for (int f = 0; f < 2; f++) {
        int64_t count = f ? sizeof e5m2_rounded / sizeof *e5m2_rounded
                          : sizeof e4m3_rounded / sizeof *e4m3_rounded;

        ck_assert_int_gt(count, 700);
        for (int64_t i = 0; i < count; i++) {
            from[2 * i] =
                of_bits(f ? e5m2_rounded[i].bits : e4m3_rounded[i].bits);
            from[2 * i + 1] = -from[2 * i];
            want[2 * i] = f ? e5m2_rounded[i].code : e4m3_rounded[i].code;
            want[2 * i + 1] = want[2 * i] | 0x80;
        }
        for (int p = 0; p < PLACES; p++)
            check_rounding(&formats[f], from, want, 2 * count, places[p]);
    }
}
END_TEST

/* Searches all codes. */
static uint8_t nearest(const format *f, double value)
{
    double most = of_bits(f->values[f->most]), size = fabs(value);
    double step = most - of_bits(f->values[f->most - 1]);
    uint8_t sign = signbit(value) ? 0x80 : 0, best = 0;
    double distance = INFINITY;

    if (isnan(value))
        return 0x7f;
    if (size > most + step)
        return sign | f->beyond;
    for (uint8_t code = 0; code <= f->beyond; code++) {
        double number =
            code == f->beyond ? most + step : of_bits(f->values[code]);
        double away = fabs(number - size);

        if (away < distance || (away == distance && code % 2 == 0)) {
            distance = away;
            best = code;
        }
    }
    return sign | best;
}

/* Every value of f16 and bf16. */
START_TEST(every_half_float_is_rounded_to_the_nearest)
{
    const core_dtype halves[] = {CORE_F16, CORE_BF16};
    uint16_t *codes = malloc(65536 * 2);
    double *wide = malloc(65536 * 8);
    uint8_t *to = malloc(65536);

    for (int i = 0; i < 65536; i++)
        codes[i] = (uint16_t)i;
    for (int h = 0; h < 2; h++) {
        core_tensor *half = data(codes, halves[h], 65536, "cpu");

        OK(core_tensor_read(cast(half, CORE_F64), wide, 65536 * 8));
        for (int f = 0; f < 2; f++) {
            OK(core_tensor_read(cast(half, formats[f].dtype), to, 65536));
            for (int i = 0; i < 65536; i++) {
                uint8_t want = nearest(&formats[f], wide[i]);
                uint8_t have = isnan(wide[i]) ? to[i] & 0x7f : to[i];

                ck_assert_msg(have == want, "%s of %a: %02x, not %02x",
                              core_dtype_name(formats[f].dtype), wide[i], have,
                              want);
            }
        }
    }
    free(codes);
    free(wide);
    free(to);
}
END_TEST

/* Bits of f32 values: those that f16 and bf16 have, and those around each
 * tie. */
static int64_t singles(const format *f, float *values)
{
    int64_t count = 0;

    for (uint32_t i = 0; i < 65536; i++) {
        uint32_t bits = i << 16;

        memcpy(&values[count++], &bits, 4);
    }
    for (int code = 0; code < f->beyond; code++) {
        float low = (float)of_bits(f->values[code]);
        float high = code < f->most
                         ? (float)of_bits(f->values[code + 1])
                         : 2 * low - (float)of_bits(f->values[code - 1]);
        float tie = (low + high) / 2;
        const float near[] = {nextafterf(tie, 0), tie,
                              nextafterf(tie, INFINITY)};

        for (int k = 0; k < 6; k++)
            values[count++] = k < 3 ? near[k] : -near[k - 3];
    }
    return count;
}

/* The path of a device that has no kernel for the conversion. */
START_TEST(operators_compute_the_same_bits_where_there_is_no_kernel)
{
    enum { ROOM = 65536 + 6 * 128 };
    float *values = malloc(ROOM * sizeof *values);
    uint8_t *have = malloc(ROOM), *want = malloc(ROOM), all[256];
    core_tensor *made;

    for (int i = 0; i < 256; i++)
        all[i] = (uint8_t)i;
    for (int f = 0; f < 2; f++)
        for (int p = 0; p < PLACES; p++) {
            int64_t count = singles(&formats[f], values);
            core_tensor *from = data(values, CORE_F32, count, places[p]);
            float numbers[256];

            OK(core_tensor_read(cast(from, formats[f].dtype), want,
                                (size_t)count));
            OK(core__float8_emulate_encode(from, formats[f].dtype, &made));
            ck_assert_uint_eq(core_tensor_dtype(made), formats[f].dtype);
            OK(core_tensor_read(keep(made), have, (size_t)count));
            for (int64_t i = 0; i < count; i++)
                ck_assert_msg(have[i] == want[i], "%a: %02x, not %02x",
                              (double)values[i], have[i], want[i]);
            from = data(all, formats[f].dtype, 256, places[p]);
            from = CALL(t, CALL(reshape, from, (int64_t[]){16, 16}, 2));
            OK(core__float8_emulate_decode(from, &made));
            from = CALL(t, keep(made));
            OK(core_tensor_read(from, numbers, sizeof numbers));
            for (int i = 0; i < 256; i++)
                ck_assert(
                    same((double)numbers[i], of_bits(formats[f].values[i])));
        }
    free(values);
    free(have);
    free(want);
}
END_TEST

START_TEST(saturation_clamps_infinities_and_keeps_nan)
{
    const double from[] = {INFINITY, -INFINITY, NAN, 1e30, -1e30};
    const core_dtype by[] = {CORE_F64, CORE_F32, CORE_BF16};
    uint8_t to[5];

    for (int f = 0; f < 2; f++)
        for (int b = 0; b < 3; b++)
            for (uint32_t s = 0; s < 2; s++) {
                const format *g = &formats[f];

                convert(from, 5, by[b], g->dtype,
                        CORE_FLOAT8_SATURATE | s * CORE_FLOAT8_STOCHASTIC,
                        "cpu", to);
                ck_assert_uint_eq(to[0], g->most);
                ck_assert_uint_eq(to[1], g->most | 0x80);
                ck_assert_uint_eq(to[2] & 0x7f, 0x7f);
                ck_assert_uint_eq(to[3], g->most);
                ck_assert_uint_eq(to[4], g->most | 0x80);
                convert(from, 5, by[b], g->dtype, s * CORE_FLOAT8_STOCHASTIC,
                        "cpu", to);
                ck_assert_uint_eq(to[0], g->beyond);
                ck_assert_uint_eq(to[1], g->beyond | 0x80);
                ck_assert_uint_eq(to[4], g->beyond | 0x80);
            }
}
END_TEST

/* Converts one number 16,384 times: the results are only its two neighbours, in
 * the right proportion (within six deviations), and representable numbers are
 * unchanged. */
static void check_chance(const format *f, double value, const char *place)
{
    enum { COUNT = 16384 };
    static double from[COUNT];
    static uint8_t to[COUNT];
    uint8_t below = 0;
    double low, high, share;
    int up = 0;

    while (of_bits(f->values[below + 1]) <= value)
        below++;
    low = of_bits(f->values[below]);
    high = of_bits(f->values[below + 1]);
    share = (value - low) / (high - low);
    for (int i = 0; i < COUNT; i++)
        from[i] = i % 2 ? -value : value;
    core_seed(77);
    convert(from, COUNT, CORE_F32, f->dtype, CORE_FLOAT8_STOCHASTIC, place, to);
    for (int i = 0; i < COUNT; i++) {
        uint8_t code = to[i] & 0x7f;

        ck_assert_int_eq(to[i] >> 7, i % 2);
        ck_assert(code == below || code == below + 1);
        up += code == below + 1;
    }
    ck_assert_msg(fabs(up - share * COUNT) <=
                      6 * sqrt(COUNT * share * (1 - share)),
                  "%s: %g goes up %d times of %d", core_dtype_name(f->dtype),
                  value, up, COUNT);
}

START_TEST(stochastic_rounding_keeps_the_mean)
{
    const double values[] = {1,    1.03,   1.1,       3.9,    100.5, 447,
                             0.01, 0.0005, 0x1.1p-10, 0x1p-9, 0.25,  17};

    for (int f = 0; f < 2; f++)
        for (size_t i = 0; i < sizeof values / sizeof *values; i++)
            check_chance(&formats[f], values[i], "cpu");
}
END_TEST

START_TEST(stochastic_rounding_follows_the_generator_on_any_device)
{
    static double from[3000];
    uint8_t here[3000], there[3000], again[3000];

    for (int i = 0; i < 3000; i++)
        from[i] = sin(i) * 10;
    core_seed(5);
    convert(from, 3000, CORE_F32, CORE_F8E4M3, CORE_FLOAT8_STOCHASTIC, "cpu",
            here);
    convert(from, 3000, CORE_F32, CORE_F8E4M3, CORE_FLOAT8_STOCHASTIC, "cpu",
            again);
    ck_assert_int_ne(memcmp(here, again, 3000), 0);
    core_seed(5);
    OK(core_threads_set(3));
    convert(from, 3000, CORE_F32, CORE_F8E4M3, CORE_FLOAT8_STOCHASTIC, "sim",
            there);
    ck_assert_int_eq(memcmp(here, there, 3000), 0);
}
END_TEST

/* ---------------------------------------------------------- as a tensor -- */

START_TEST(float8_tensors_are_created_viewed_copied_filled_and_printed)
{
    for (int f = 0; f < 2; f++) {
        core_dtype dtype = formats[f].dtype;
        core_tensor *x = typed(dtype, 2, (int64_t[]){2, 3},
                               (double[]){1, -2, 0.5, 3, 448, 0.75});
        core_tensor *turned, *copy, *zeros;
        char *text;

        ck_assert_uint_eq(core_dtype_size(dtype), 1);
        ck_assert(!core_dtype_is_floating(dtype));
        turned = CALL(transpose, x, 0, 1);
        copy = CALL(clone, turned, CORE_FORMAT_CONTIGUOUS);
        ck_assert_uint_eq(core_tensor_dtype(copy), dtype);
        HOLDS(copy, 6, 1, 3, -2, 448, 0.5, 0.75);
        HOLDS(cast(turned, CORE_F32), 6, 1, 3, -2, 448, 0.5, 0.75);
        OK(core_copy_(CALL(select, copy, 1, 0), CALL(select, x, 0, 1), false));
        HOLDS(copy, 6, 3, 3, 448, 448, 0.75, 0.75);
        OK(core_fill_(copy, core_float(1.5)));
        HOLDS(copy, 6, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5);
        zeros = CALL(zeros, (int64_t[]){3}, 1, dtype, NULL);
        HOLDS(zeros, 3, 0, 0, 0);
        OK(core_tensor_format(CALL(select, x, 0, 1), &text));
        ck_assert_str_eq(text, f ? "[  3.   448.     0.75] (f8e5m2)"
                                 : "[  3.   448.     0.75] (f8e4m3)");
        core_text_free(text);
    }
}
END_TEST

START_TEST(integers_and_bools_are_converted)
{
    core_tensor *x =
        typed(CORE_I64, 1, (int64_t[]){4}, (double[]){-3, 0, 20, 100000});
    uint8_t codes[4];

    OK(core_tensor_read(cast(x, CORE_F8E4M3), codes, 4));
    ck_assert_uint_eq(codes[3], 0x7f);
    HOLDS(cast(CALL(narrow, cast(x, CORE_F8E5M2), 0, 0, 3), CORE_I32), 3, -3, 0,
          20);
    HOLDS(cast(cast(x, CORE_F8E5M2), CORE_BOOL), 4, 1, 0, 1, 1);
}
END_TEST

START_TEST(no_operator_computes_in_float8)
{
    core_tensor *x =
        typed(CORE_F8E4M3, 2, (int64_t[]){2, 2}, (double[]){1, 2, 3, 4});
    core_tensor *y = MATRIX(2, 2, 1, 2, 3, 4), *out = NULL;
    core_tensor *nought = typed(CORE_F8E5M2, 0, NULL, (double[]){2});
    const char *convert = "convert to f32";

    FAILS(core_add(x, x, core_int(1), &out), CORE_ERROR_DTYPE, "add.Tensor",
          "f8e4m3", convert);
    ck_assert_ptr_null(out);
    FAILS(core_add(y, x, core_int(1), &out), CORE_ERROR_DTYPE, "f8e4m3");
    FAILS(core_mul(y, nought, &out), CORE_ERROR_DTYPE, "f8e5m2", convert);
    FAILS(core_mul_scalar(x, core_float(2), &out), CORE_ERROR_DTYPE, convert);
    FAILS(core_add_(y, x, core_int(1)), CORE_ERROR_DTYPE, convert);
    FAILS(core_add_(x, y, core_int(1)), CORE_ERROR_DTYPE, convert);
    FAILS(core_relu(x, &out), CORE_ERROR_DTYPE, convert);
    FAILS(core_abs(x, &out), CORE_ERROR_DTYPE, convert);
    FAILS(core_eq(x, x, &out), CORE_ERROR_DTYPE, convert);
    FAILS(core_sum(x, CORE_DTYPE_NONE, &out), CORE_ERROR_DTYPE, convert);
    FAILS(core_mm(x, x, &out), CORE_ERROR_DTYPE, "mm", convert);
    FAILS(core_mm(y, x, &out), CORE_ERROR_DTYPE, convert);
    FAILS(core_cat((core_tensor *[]){y, x}, 2, 0, &out), CORE_ERROR_DTYPE,
          convert);
    FAILS(core_stochastic_round(y, CORE_F16, false, NULL, &out),
          CORE_ERROR_DTYPE, "f16");
    FAILS(core_float8_cast(x, CORE_F8E5M2, 0, NULL, &out), CORE_ERROR_DTYPE,
          "f8e4m3");
    FAILS(core_float8_cast(y, CORE_F8E5M2, 8, NULL, &out),
          CORE_ERROR_INVALID_ARGUMENT, "0x8");
    FAILS(core_tensor_set_requires_grad(x, true), CORE_ERROR_AUTOGRAD);
    ck_assert_ptr_null(out);
    HOLDS(x, 4, 1, 2, 3, 4);
    ck_assert_uint_eq(core_dtype_promote(CORE_F8E4M3, CORE_F8E5M2),
                      CORE_DTYPE_NONE);
    ck_assert_uint_eq(core_dtype_promote(CORE_F8E4M3, CORE_F8E4M3),
                      CORE_F8E4M3);
}
END_TEST

START_TEST(float8_out_is_refused_for_sums)
{
    core_tensor *y = VECTOR(2, 1, 2);
    core_tensor *out = typed(CORE_F8E4M3, 1, (int64_t[]){2}, (double[]){0, 0});

    FAILS(core_add_out(y, y, core_int(1), out), CORE_ERROR_DTYPE, "f8e4m3");
    FAILS(core_sum_dim_out(y, NULL, 0, false, CORE_DTYPE_NONE, out),
          CORE_ERROR_DTYPE);
    HOLDS(out, 2, 0, 0);
}
END_TEST

START_TEST(float8_is_copied_between_devices)
{
    core_tensor *x =
        typed(CORE_F8E5M2, 1, (int64_t[]){3}, (double[]){1, -2, 57344});
    core_tensor *there =
        CALL(to_copy, x, CORE_DTYPE_NONE, device_of("sim"), false, -1);
    core_tensor *wide =
        CALL(to_copy, there, CORE_F32, device_of("cpu"), false, -1);

    ck_assert_uint_eq(core_tensor_dtype(there), CORE_F8E5M2);
    HOLDS(wide, 3, 1, -2, 57344);
}
END_TEST

int main(void)
{
    const TTest *tests[] = {
        every_code_has_its_value,
        doubles_are_rounded_once_to_the_nearest_even,
        every_half_float_is_rounded_to_the_nearest,
        operators_compute_the_same_bits_where_there_is_no_kernel,
        saturation_clamps_infinities_and_keeps_nan,
        stochastic_rounding_keeps_the_mean,
        stochastic_rounding_follows_the_generator_on_any_device,
        float8_tensors_are_created_viewed_copied_filled_and_printed,
        integers_and_bools_are_converted,
        no_operator_computes_in_float8,
        float8_out_is_refused_for_sums,
        float8_is_copied_between_devices,
    };

    return run_suite("tensor/float8", tests, sizeof tests / sizeof *tests);
}
