/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "support/cpu.h"

#include <expressions/number.h>

enum { N = 1000 };

static void add(test_loop *t)
{
    core_value args[3] = {{0}, {0}, value_int(1)};

    ck_assert_int_eq(cpu_launch("add.Tensor", &t->loop, args, 3), CORE_OK);
}

START_TEST(add_of_dense_operands_is_correct)
{
    float a[N], b[N], c[N];
    uint32_t state = 1;
    int wrong = 0;
    test_loop t;

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int k = 0; k < N; k++) {
        a[k] = random_float(&state);
        b[k] = random_float(&state);
    }
    for (int64_t n = 1; n <= N; n = n * 2 + 1) {
        loop_dense(&t, 1, n);
        loop_dense_operand(&t, c, CORE_F32);
        loop_dense_operand(&t, a, CORE_F32);
        loop_dense_operand(&t, b, CORE_F32);
        memset(c, 0, sizeof(c));
        add(&t);
        for (int k = 0; k < N; k++)
            wrong += c[k] != (k < n ? a[k] + b[k] : 0);
        ck_assert_int_eq(wrong, 0);
    }
    cpu_close();
}
END_TEST

START_TEST(add_scales_by_alpha)
{
    float a = 3, b = 5, c = 0;
    core_value args[3] = {{0}, {0}, value_float(-2)};
    test_loop t;

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    loop_dense(&t, 1, 1);
    loop_dense_operand(&t, &c, CORE_F32);
    loop_dense_operand(&t, &a, CORE_F32);
    loop_dense_operand(&t, &b, CORE_F32);
    ck_assert_int_eq(cpu_launch("add.Tensor", &t.loop, args, 3), CORE_OK);
    ck_assert(c == -7);
    cpu_close();
}
END_TEST

START_TEST(immediate_operand_is_broadcast)
{
    float a[N], c[N], five = 5;
    test_loop t;

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int k = 0; k < N; k++)
        a[k] = (float)k;
    for (int64_t n = 1; n <= N; n += N - 1) {
        loop_dense(&t, 1, n);
        loop_dense_operand(&t, c, CORE_F32);
        loop_dense_operand(&t, a, CORE_F32);
        loop_immediate(&t, &five, CORE_F32);
        add(&t);
        for (int k = 0; k < n; k++)
            ck_assert(c[k] == (float)k + 5);
    }
    cpu_close();
}
END_TEST

/* Sizes around those of blocks and short rows; each operand has another
 * dimension order or broadcasts. */
START_TEST(strided_and_broadcast_operands_are_read_correctly)
{
    static const int64_t shapes[][3] = {{1, 1, 1},   {3, 5, 7},   {70, 3, 2},
                                        {2, 600, 3}, {513, 9, 1}, {70, 3, 40}};
    uint32_t state = 2;

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        const int64_t *n = shapes[s];
        int64_t total = n[0] * n[1] * n[2];
        float *a = malloc((size_t)total * 4), *b = malloc((size_t)n[1] * 4);
        float *c = calloc((size_t)total, 8);
        int64_t transposed[3] = {4 * n[1] * n[2], 4 * n[2], 4};
        int64_t row[3] = {0, 4, 0};
        int64_t gaps[3] = {8, 8 * n[0], 8 * n[0] * n[1]};
        int wrong = 0;
        test_loop t;

        for (int64_t k = 0; k < total; k++)
            a[k] = random_float(&state);
        for (int64_t k = 0; k < n[1]; k++)
            b[k] = random_float(&state);
        loop_begin(&t, 1, 3, n);
        loop_operand(&t, c, CORE_F32, gaps);
        loop_operand(&t, a, CORE_F32, transposed);
        loop_operand(&t, b, CORE_F32, row);
        add(&t);
        for (int64_t z = 0; z < n[2]; z++)
            for (int64_t y = 0; y < n[1]; y++)
                for (int64_t x = 0; x < n[0]; x++) {
                    int64_t at = 2 * (x + n[0] * (y + n[1] * z));

                    wrong += c[at] != a[(x * n[1] + y) * n[2] + z] + b[y];
                    wrong += c[at + 1] != 0;
                }
        ck_assert_int_eq(wrong, 0);
        free(a);
        free(b);
        free(c);
    }
    cpu_close();
}
END_TEST

/* Adds a transposed matrix to itself as it is: n[0] columns of n[1] rows; either
 * the second operand is transposed, or the result is as well. */
static void check_transposed_sum(core_dtype dtype, const int64_t *n,
                                 bool turned_result)
{
    int64_t bytes = core_sdk_itemsize(dtype), total = n[0] * n[1];
    size_t size = ((size_t)(total * bytes) + 63) / 64 * 64;
    int64_t rows[2] = {bytes, bytes * n[0]}, turned[2] = {bytes * n[1], bytes};
    char *a = malloc(size), *to = aligned_alloc(64, size);
    int64_t *whole = malloc((size_t)total * 8);
    int64_t one = 8, step = bytes, wrong = 0;
    test_loop t;

    for (int64_t k = 0; k < total; k++)
        whole[k] = k % 10007;
    loop_begin(&t, 1, 1, &total);
    loop_operand(&t, a, dtype, &step);
    loop_operand(&t, whole, CORE_I64, &one);
    ck_assert_int_eq(cpu_launch("copy_", &t.loop, NULL, 0), CORE_OK);
    memset(to, 0xff, size);
    loop_begin(&t, 1, 2, n);
    loop_operand(&t, to, dtype, turned_result ? turned : rows);
    loop_operand(&t, a, dtype, rows);
    loop_operand(&t, a, dtype, turned);
    ck_assert_int_eq(cpu_launch("add.Tensor", &t.loop, NULL, 0), CORE_OK);
    loop_begin(&t, 1, 1, &total);
    loop_operand(&t, whole, CORE_I64, &one);
    loop_operand(&t, to, dtype, &step);
    ck_assert_int_eq(cpu_launch("copy_", &t.loop, NULL, 0), CORE_OK);
    for (int64_t y = 0; y < n[1]; y++)
        for (int64_t x = 0; x < n[0]; x++) {
            int64_t row = x + y * n[0], column = y + x * n[1];

            wrong += whole[turned_result ? column : row] !=
                     row % 10007 + column % 10007;
        }
    ck_assert_int_eq(wrong, 0);
    free(a);
    free(to);
    free(whole);
}

/* Around the sizes of tiles and bands of tiles; the last ones are written with
 * non-temporal stores. */
START_TEST(transposed_operands_are_added_completely)
{
    static const int64_t shapes[][2] = {
        {32, 16}, {33, 17}, {70, 600}, {600, 289}, {2112, 4100}};
    static const core_dtype dtypes[] = {CORE_I16, CORE_F32, CORE_F64};

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (uint32_t threads = 1; threads <= 2; threads++) {
        cpu_threads(threads);
        for (int s = 0; s < 5; s++)
            for (int d = s < 4 ? 0 : 1; d < 3; d++) {
                check_transposed_sum(dtypes[d], shapes[s], false);
                check_transposed_sum(dtypes[d], shapes[s], true);
            }
    }
    cpu_close();
}
END_TEST

START_TEST(output_may_alias_its_inputs)
{
    float a[N];
    int64_t sizes[2] = {10, N / 10}, strides[2] = {4 * (N / 10), 4};
    test_loop t;

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int k = 0; k < N; k++)
        a[k] = (float)k;
    loop_begin(&t, 1, 2, sizes);
    loop_operand(&t, a, CORE_F32, strides);
    loop_operand(&t, a, CORE_F32, strides);
    loop_operand(&t, a, CORE_F32, strides);
    add(&t);
    for (int k = 0; k < N; k++)
        ck_assert(a[k] == 2 * (float)k);
    cpu_close();
}
END_TEST

/* Large outputs are written with non-temporal stores where possible. */
START_TEST(large_outputs_are_written_completely)
{
    enum { LARGE = (8 << 20) + 37 };
    float *a, *b;
    test_loop t;

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    a = aligned_alloc(64, sizeof(float) * (LARGE + 27));
    b = aligned_alloc(64, sizeof(float) * (LARGE + 27));
    ck_assert(a != NULL && b != NULL);
    for (int first = 0; first < 2; first++) { /* 1: not aligned to vectors */
        float *to = b + first;

        for (int k = 0; k < LARGE + 27; k++) {
            a[k] = (float)(k % 1000);
            b[k] = -1;
        }
        for (int copy = 0; copy < 2; copy++) {
            loop_dense(&t, 1, LARGE);
            loop_dense_operand(&t, to, CORE_F32);
            loop_dense_operand(&t, a, CORE_F32);
            if (!copy)
                loop_dense_operand(&t, a, CORE_F32);
            ck_assert_int_eq(
                cpu_launch(copy ? "copy_" : "add.Tensor", &t.loop, NULL, 0),
                CORE_OK);
            for (int k = 0; k < LARGE; k++)
                if (to[k] != (float)((2 - copy) * (k % 1000)))
                    ck_abort_msg("element %d is %g", k, (double)to[k]);
            ck_assert(to[LARGE] == -1);
        }
        /* In place. */
        loop_dense(&t, 1, LARGE);
        loop_dense_operand(&t, to, CORE_F32);
        loop_dense_operand(&t, to, CORE_F32);
        loop_dense_operand(&t, a, CORE_F32);
        ck_assert_int_eq(cpu_launch("mul.Tensor", &t.loop, NULL, 0), CORE_OK);
        for (int k = 0; k < LARGE; k++)
            if (to[k] != (float)(k % 1000) * (float)(k % 1000))
                ck_abort_msg("element %d is %g", k, (double)to[k]);
    }
    cpu_close();
    free(a);
    free(b);
}
END_TEST

/* The result of an element depends neither on its position nor on its
 * neighbours. */
START_TEST(element_bits_do_not_depend_on_position)
{
    static const char *const names[] = {
        "exp", "log", "tanh", "erf", "gelu", "sigmoid", "sin", "log1p", "silu"};
    float in[301], dense[301], lone, apart[602];
    core_value args[2] = {{0}, value_string("none")};
    uint32_t state = 3;

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int k = 0; k < 301; k++)
        in[k] = 8 * random_float(&state);
    for (size_t f = 0; f < sizeof(names) / sizeof(names[0]); f++) {
        int64_t two = 8, one = 4, n = 301;
        test_loop t;

        loop_dense(&t, 1, 301);
        loop_dense_operand(&t, dense, CORE_F32);
        loop_dense_operand(&t, in, CORE_F32);
        ck_assert_int_eq(cpu_launch(names[f], &t.loop, args, 2), CORE_OK);
        loop_begin(&t, 1, 1, &n);
        loop_operand(&t, apart, CORE_F32, &two);
        loop_operand(&t, in, CORE_F32, &one);
        ck_assert_int_eq(cpu_launch(names[f], &t.loop, args, 2), CORE_OK);
        for (int k = 0; k < 301; k++) {
            loop_dense(&t, 1, 1);
            loop_dense_operand(&t, &lone, CORE_F32);
            loop_dense_operand(&t, &in[k], CORE_F32);
            ck_assert_int_eq(cpu_launch(names[f], &t.loop, args, 2), CORE_OK);
            ck_assert(memcmp(&lone, &dense[k], 4) == 0 ||
                      (isnan(lone) && isnan(dense[k])));
            ck_assert(memcmp(&lone, &apart[2 * k], 4) == 0 || isnan(lone));
        }
    }
    cpu_close();
}
END_TEST

START_TEST(elementwise_bits_do_not_depend_on_threads)
{
    enum { MANY = 300000 };
    float *in = malloc(MANY * 4), *one = malloc(MANY * 4);
    float *four = malloc(MANY * 4);
    uint32_t state = 4;
    test_loop t;

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int k = 0; k < MANY; k++)
        in[k] = 5 * random_float(&state);
    for (uint32_t threads = 1; threads <= 4; threads += 3) {
        cpu_threads(threads);
        loop_dense(&t, 1, MANY);
        loop_dense_operand(&t, threads == 1 ? one : four, CORE_F32);
        loop_dense_operand(&t, in, CORE_F32);
        ck_assert_int_eq(cpu_launch("exp", &t.loop, NULL, 0), CORE_OK);
    }
    ck_assert(memcmp(one, four, MANY * 4) == 0);
    cpu_close();
    free(in);
    free(one);
    free(four);
}
END_TEST

START_TEST(integer_division_by_zero_is_an_error)
{
    int32_t a[3] = {7, INT32_MIN, 5}, b[3] = {2, -1, 0}, c[3];
    core_value args[3] = {{0}, {0}, value_string("floor")};
    test_loop t;

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    loop_dense(&t, 1, 3);
    loop_dense_operand(&t, c, CORE_I32);
    loop_dense_operand(&t, a, CORE_I32);
    loop_dense_operand(&t, b, CORE_I32);
    ck_assert_int_eq(cpu_launch("div.Tensor_mode", &t.loop, args, 3),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(cpu_message, "zero"));
    ck_assert_int_eq(c[0], 3);
    ck_assert_int_eq(c[1], INT32_MIN);
    cpu_close();
}
END_TEST

START_TEST(unknown_rounding_mode_is_an_error)
{
    float a = 7, b = 2, c;
    core_value args[3] = {{0}, {0}, value_string("up")};
    test_loop t;

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    loop_dense(&t, 1, 1);
    loop_dense_operand(&t, &c, CORE_F32);
    loop_dense_operand(&t, &a, CORE_F32);
    loop_dense_operand(&t, &b, CORE_F32);
    ck_assert_int_eq(cpu_launch("div.Tensor_mode", &t.loop, args, 3),
                     CORE_ERROR_UNSUPPORTED);
    ck_assert_str_eq(cpu_message, "test: the mode is 'up'; it must be 'trunc', "
                                  "'floor' or absent");
    cpu_close();
}
END_TEST

START_TEST(maximum_propagates_nan_and_fmax_ignores_it)
{
    float a[4] = {1, NAN, 2, NAN}, b[4] = {2, 1, NAN, NAN}, c[4];
    test_loop t;

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    loop_dense(&t, 1, 4);
    loop_dense_operand(&t, c, CORE_F32);
    loop_dense_operand(&t, a, CORE_F32);
    loop_dense_operand(&t, b, CORE_F32);
    ck_assert_int_eq(cpu_launch("maximum", &t.loop, NULL, 0), CORE_OK);
    ck_assert(c[0] == 2 && isnan(c[1]) && isnan(c[2]) && isnan(c[3]));
    ck_assert_int_eq(cpu_launch("fmax", &t.loop, NULL, 0), CORE_OK);
    ck_assert(c[0] == 2 && c[1] == 1 && c[2] == 2 && isnan(c[3]));
    cpu_close();
}
END_TEST

/* 1 + 2^-11 is halfway between two f16 numbers: it rounds to the even one. */
START_TEST(half_add_computes_in_f32_and_rounds_to_even)
{
    uint16_t one[40], tiny[40], sum[40];
    test_loop t;

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int k = 0; k < 40; k++) {
        one[k] = (uint16_t)(0x3c00 + k % 2);
        tiny[k] = 0x1000;
    }
    loop_dense(&t, 1, 37);
    loop_dense_operand(&t, sum, CORE_F16);
    loop_dense_operand(&t, one, CORE_F16);
    loop_dense_operand(&t, tiny, CORE_F16);
    add(&t);
    for (int k = 0; k < 37; k++)
        ck_assert_uint_eq(sum[k], k % 2 ? 0x3c02 : 0x3c00);
    cpu_close();
}
END_TEST

static float to_f32(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;

    memcpy(&x, &bits, 4);
    return x;
}

/* Rounds to the nearest bf16 number, ties to even. */
static uint16_t to_bf16(float x)
{
    uint32_t bits, rest;
    uint16_t below;

    memcpy(&bits, &x, 4);
    below = (uint16_t)(bits >> 16);
    rest = bits & 0xffff;
    if (x != x)
        return below | 0x40;
    return (uint16_t)(below + (rest > 0x8000 || (rest == 0x8000 && below % 2)));
}

/* Covers dense and strided operands; every sixteenth bit pattern. */
START_TEST(bf16_sums_and_products_are_rounded_once)
{
    enum { COUNT = 4099 };
    static uint16_t a[2 * COUNT], b[COUNT], c[COUNT];
    const int64_t n = COUNT, two = 2, four = 4;
    core_value args[3] = {{0}, {0}, {0}};

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int k = 0; k < 2 * COUNT; k++)
        a[k] = (uint16_t)(k * 16 + k % 7);
    for (int way = 0; way < 8; way++) {
        int alpha = way % 4 == 2 ? 3 : 1, every = way < 4 ? 1 : 2;
        test_loop t;

        for (int k = 0; k < COUNT; k++)
            b[k] = (uint16_t)(a[k] + k * 31);
        loop_begin(&t, 1, 1, &n);
        /* 3: in place into the second operand */
        loop_operand(&t, way % 4 == 3 ? b : c, CORE_BF16, &two);
        loop_operand(&t, a, CORE_BF16, every == 1 ? &two : &four);
        loop_operand(&t, b, CORE_BF16, &two);
        args[2] = value_int(alpha);
        ck_assert_int_eq(cpu_launch(way % 4 == 1 ? "mul.Tensor" : "add.Tensor",
                                    &t.loop, args, way % 4 == 1 ? 2 : 3),
                         CORE_OK);
        for (int k = 0; k < COUNT; k++) {
            float x = to_f32(a[k * every]);
            float y = to_f32((uint16_t)(a[k] + k * 31));
            uint16_t have = way % 4 == 3 ? b[k] : c[k];
            uint16_t want =
                to_bf16(way % 4 == 1 ? x * y : x + (float)alpha * y);

            if (to_f32(want) != to_f32(want))
                ck_assert(to_f32(have) != to_f32(have));
            else /* 3 y is exact in f32 */
                ck_assert_msg(have == want, "%d: %x of %x and %x, not %x", way,
                              have, a[k * every], b[k], want);
        }
    }
    cpu_close();
}
END_TEST

/* The code of the next larger number; infinity is the last one. */
static uint16_t next_up(uint16_t code, uint16_t infinity)
{
    if (code == infinity)
        return code;
    if (code == 0x8000)
        return 1;
    return (uint16_t)(code & 0x8000 ? code - 1 : code + 1);
}

/* Steps up and down from every number of the dtype. */
START_TEST(nextafter_of_half_steps_to_adjacent_half)
{
    static uint16_t a[65536], next[65536];
    const core_dtype dtypes[] = {CORE_F16, CORE_BF16};
    uint32_t n = 0;
    test_loop t;

    for (int d = 0; d < 2; d++)
        for (int down = 0; down < 2; down++) {
            uint16_t infinity = d ? 0x7f80 : 0x7c00;
            uint16_t end = (uint16_t)(infinity | down << 15);

            n = 0;
            for (uint32_t code = 0; code < 65536; code++)
                if ((code & 0x7fff) <= infinity)
                    a[n++] = (uint16_t)code;
            if (!cpu_open_isa(cpu_isas[_i]))
                return;
            loop_dense(&t, 1, n);
            loop_dense_operand(&t, next, dtypes[d]);
            loop_dense_operand(&t, a, dtypes[d]);
            loop_immediate(&t, &end, dtypes[d]);
            ck_assert_int_eq(cpu_launch("nextafter", &t.loop, NULL, 0),
                             CORE_OK);
            for (uint32_t k = 0; k < n; k++) {
                uint16_t want = next_up(a[k], infinity);

                if (down)
                    want = next_up(a[k] ^ 0x8000, infinity) ^ 0x8000;
                ck_assert_msg(next[k] == want, "%s: %#x to %#x, not %#x",
                              d ? "bf16" : "f16", a[k], next[k], want);
            }
            cpu_close();
        }
}
END_TEST

/* Pairs of numbers are computed at once: all of them, the last one of an odd
 * number, and numbers at odd addresses of two bytes. */
START_TEST(bf16_pairs_are_computed_as_single_numbers)
{
    static const char *const names[] = {"sub.Tensor", "reciprocal",
                                        "leaky_relu", "maximum"};
    enum { COUNT = 700 };
    static uint16_t a[COUNT + 1], b[COUNT + 1], c[COUNT + 2];
    test_loop t;

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int k = 0; k <= COUNT; k++) {
        a[k] = (uint16_t)(k * 97);
        b[k] = (uint16_t)(k * 31 + 5);
    }
    for (int op = 0; op < 4; op++)
        for (int64_t n = 1; n <= COUNT; n = n < 70 ? n + 1 : n + 105)
            for (int at = 0; at < 2; at++) {
                uint16_t last = c[at + n];

                loop_dense(&t, 1, n);
                loop_dense_operand(&t, c + at, CORE_BF16);
                loop_dense_operand(&t, a + at, CORE_BF16);
                if (op % 3 == 0)
                    loop_dense_operand(&t, b + at, CORE_BF16);
                ck_assert_int_eq(cpu_launch(names[op], &t.loop, NULL, 0),
                                 CORE_OK);
                for (int64_t k = at; k < at + n; k++) {
                    float x = to_f32(a[k]), y = to_f32(b[k]);
                    float want = op == 0   ? x - y
                                 : op == 1 ? 1 / x
                                 : op == 2 ? (x > 0 ? x : x * .01f)
                                           : (x > y || x != x ? x : y);

                    ck_assert_msg(c[k] == to_bf16(want) ||
                                      (isnan(want) && isnan(to_f32(c[k]))),
                                  "%s: %#x", names[op], c[k]);
                }
                ck_assert_uint_eq(c[at + n], last);
            }
    cpu_close();
}
END_TEST

static uint16_t half_of(core_dtype dtype, float x)
{
    return dtype == CORE_F16 ? math_f16_of_f32(x) : math_bf16_of_f32(x);
}

static float float_of(core_dtype dtype, uint16_t half)
{
    return dtype == CORE_F16 ? math_f32_of_f16(half) : math_f32_of_bf16(half);
}

static float element_of(core_dtype dtype, const void *data, int64_t k)
{
    return dtype == CORE_F32 ? ((const float *)data)[k]
                             : float_of(dtype, ((const uint16_t *)data)[k]);
}

static void set_element(core_dtype dtype, void *data, int64_t k, float x)
{
    if (dtype == CORE_F32)
        ((float *)data)[k] = x;
    else
        ((uint16_t *)data)[k] = half_of(dtype, x);
}

enum { MOVED_ROWS = 11, MOVED_SPACE = MOVED_ROWS * 2 * 303 };

/* Adds one number to each row: of `width` elements, `pitch[1]` apart, to rows whose
 * elements are `step` and which are pitch[0] apart.  The rest keeps its 7. */
static void check_moved_rows(core_dtype dtype, int64_t width, int64_t step,
                             const int64_t *pitch)
{
    static float a[MOVED_SPACE], b[MOVED_ROWS], c[MOVED_SPACE];
    int64_t bytes = core_sdk_itemsize(dtype), n[] = {width, MOVED_ROWS};
    int64_t count = MOVED_ROWS * pitch[pitch[0] < pitch[1]], wrong = 0;
    test_loop t;

    for (int64_t k = 0; k < count; k++) {
        set_element(dtype, a, k, (float)(k % 251) / 8);
        set_element(dtype, c, k, 7);
    }
    for (int64_t r = 0; r < MOVED_ROWS; r++)
        set_element(dtype, b, r, (float)(r - 30));
    loop_begin(&t, 1, 2, n);
    loop_operand(&t, c, dtype, (int64_t[]){step * bytes, pitch[0] * bytes});
    loop_operand(&t, a, dtype, (int64_t[]){bytes, pitch[1] * bytes});
    loop_operand(&t, b, dtype, (int64_t[]){0, bytes});
    add(&t);
    for (int64_t k = 0; k < count; k++) {
        int64_t r = k / pitch[0], i = k % pitch[0];
        bool inside = r < MOVED_ROWS && i % step == 0 && i / step < width;
        float sum = element_of(dtype, a, r * pitch[1] + i / step) +
                    element_of(dtype, b, r % MOVED_ROWS);

        if (inside && dtype != CORE_F32)
            sum = float_of(dtype, half_of(dtype, sum));
        wrong += element_of(dtype, c, k) != (inside ? sum : 7);
    }
    ck_assert_msg(wrong == 0, "dtype %u, %d columns: %d are wrong", dtype,
                  (int)width, (int)wrong);
}

/* On both sides of the limits for rows of each kind. */
START_TEST(rows_of_moved_operands_are_computed_completely)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F16, CORE_BF16};
    static const int64_t widths[] = {1, 63, 64, 127, 128, 255, 256, 300};

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int d = 0; d < 3; d++)
        for (size_t k = 0; k < sizeof widths / sizeof *widths; k++)
            for (int gaps = 0; gaps < 4; gaps++)
                for (int64_t step = 1; step < 3; step++) {
                    int64_t w = widths[k];
                    int64_t pitch[] = {step * w + (gaps & 1 ? 3 : 0),
                                       w + (gaps & 2 ? 3 : 0)};

                    check_moved_rows(dtypes[d], w, step, pitch);
                }
    cpu_close();
}
END_TEST

static void put(core_dtype dtype, void *to, int64_t at, float x)
{
    if (dtype == CORE_F32)
        ((float *)to)[at] = x;
    else
        ((uint16_t *)to)[at] = half_of(dtype, x);
}

static float get(core_dtype dtype, const void *from, int64_t at)
{
    return dtype == CORE_F32 ? ((const float *)from)[at]
                             : float_of(dtype, ((const uint16_t *)from)[at]);
}

/* Adds an operand that dimensions repeat to a dense one, or the other way
 * round; steps: its strides in elements. */
static void check_repeated(core_dtype dtype, const int64_t *n,
                           const int64_t *steps, bool first)
{
    int64_t bytes = core_sdk_itemsize(dtype), total = n[0] * n[1] * n[2];
    int64_t strides[3] = {bytes * steps[0], bytes * steps[1], bytes * steps[2]};
    int64_t dense[3] = {bytes, bytes * n[0], bytes * n[0] * n[1]};
    char *a = malloc((size_t)(total * bytes)), *b = malloc((size_t)total * 4);
    char *out = malloc((size_t)(total * bytes));
    int wrong = 0;
    test_loop t;

    for (int64_t k = 0; k < total; k++) {
        put(dtype, a, k, (float)(k % 97));
        put(dtype, b, k, (float)(k % 31));
    }
    loop_begin(&t, 1, 3, n);
    loop_operand(&t, out, dtype, dense);
    loop_operand(&t, first ? b : a, dtype, first ? strides : dense);
    loop_operand(&t, first ? a : b, dtype, first ? dense : strides);
    ck_assert_int_eq(cpu_launch("add.Tensor", &t.loop, NULL, 0), CORE_OK);
    for (int64_t k = 0; k < total; k++) {
        int64_t at = k % n[0] * steps[0] + k / n[0] % n[1] * steps[1] +
                     k / n[0] / n[1] * steps[2];

        wrong += get(dtype, out, k) != (float)(k % 97 + at % 31);
    }
    ck_assert_int_eq(wrong, 0);
    free(a);
    free(b);
    free(out);
}

/* Rows, planes, columns; of any threads' parts. */
START_TEST(repeated_operands_are_added_completely)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F16, CORE_BF16};
    static const int64_t widths[] = {1, 2, 7, 64, 100, 255, 256, 257, 520};

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    cpu_threads(2);
    for (int d = 0; d < 3; d++)
        for (size_t k = 0; k < sizeof widths / sizeof *widths; k++)
            for (int first = 0; first < 2; first++) {
                const int64_t w = widths[k], n[3] = {w, 3, w == 64 ? 900 : 11};

                check_repeated(dtypes[d], n, (int64_t[]){1, 0, 0}, first);
                check_repeated(dtypes[d], n, (int64_t[]){1, w, 0}, first);
                check_repeated(dtypes[d], n, (int64_t[]){1, 0, w}, first);
                check_repeated(dtypes[d], n, (int64_t[]){0, 1, 0}, first);
                check_repeated(dtypes[d], n, (int64_t[]){0, 1, 3}, first);
                check_repeated(dtypes[d], n, (int64_t[]){0, 0, 1}, first);
            }
    cpu_close();
}
END_TEST

/* Of each number but NaN, whose payload is unspecified. */
START_TEST(integral_powers_of_halves_are_rounded_once)
{
    static const core_dtype dtypes[] = {CORE_F16, CORE_BF16};
    static uint16_t a[65536], power[65536];
    test_loop t;

    for (int k = 0; k < 65536; k++)
        a[k] = (uint16_t)k;
    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int d = 0; d < 2; d++)
        for (int n = -1; n <= 3; n += n < 0 ? 3 : 1) {
            uint16_t exponent = half_of(dtypes[d], (float)n);

            loop_dense(&t, 1, 65536);
            loop_dense_operand(&t, power, dtypes[d]);
            loop_dense_operand(&t, a, dtypes[d]);
            loop_immediate(&t, &exponent, dtypes[d]);
            ck_assert_int_eq(cpu_launch("pow.Tensor_Tensor", &t.loop, NULL, 0),
                             CORE_OK);
            for (int k = 0; k < 65536; k++) {
                float want =
                    (float)pow((double)float_of(dtypes[d], (uint16_t)k), n);

                if (isnan(want))
                    ck_assert(isnan(float_of(dtypes[d], power[k])));
                else
                    ck_assert_uint_eq(power[k], half_of(dtypes[d], want));
            }
        }
    cpu_close();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        add_scales_by_alpha,
        elementwise_bits_do_not_depend_on_threads,
        integer_division_by_zero_is_an_error,
        unknown_rounding_mode_is_an_error,
    };
    const suite_loop loops[] = {
        {add_of_dense_operands_is_correct, 0, 3},
        {immediate_operand_is_broadcast, 0, 3},
        {strided_and_broadcast_operands_are_read_correctly, 0, 3},
        {transposed_operands_are_added_completely, 0, 3},
        {output_may_alias_its_inputs, 0, 3},
        {element_bits_do_not_depend_on_position, 0, 3},
        {large_outputs_are_written_completely, 0, 3},
        {maximum_propagates_nan_and_fmax_ignores_it, 0, 3},
        {half_add_computes_in_f32_and_rounds_to_even, 0, 3},
        {bf16_sums_and_products_are_rounded_once, 0, 3},
        {nextafter_of_half_steps_to_adjacent_half, 0, 3},
        {bf16_pairs_are_computed_as_single_numbers, 0, 3},
        {integral_powers_of_halves_are_rounded_once, 0, 3},
        {rows_of_moved_operands_are_computed_completely, 0, 3},
        {repeated_operands_are_added_completely, 0, 3},
    };
    const test_suite suite = {
        .name = "cpu/cpu_elementwise",
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
