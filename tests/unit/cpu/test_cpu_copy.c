/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "support/cpu.h"

static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_F16, CORE_BF16,
                                    CORE_I64, CORE_I32, CORE_I16, CORE_I8,
                                    CORE_U8,  CORE_BOOL};

static core_status copy(void *to, core_dtype to_dtype, void *from,
                        core_dtype dtype, int64_t n)
{
    test_loop t;

    loop_dense(&t, 1, n);
    loop_dense_operand(&t, to, to_dtype);
    loop_dense_operand(&t, from, dtype);
    return cpu_launch("copy_", &t.loop, NULL, 0);
}

/* Every dtype represents small whole numbers exactly. */
START_TEST(copy_converts_between_any_two_dtypes_exactly)
{
    enum { N = 77 };
    double numbers[N], back[N];
    uint64_t from[N], to[N];

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int k = 0; k < N; k++)
        numbers[k] = k;
    for (int a = 0; a < 10; a++)
        for (int b = 0; b < 10; b++) {
            int test = dtypes[a] == CORE_BOOL || dtypes[b] == CORE_BOOL;

            ck_assert_int_eq(copy(from, dtypes[a], numbers, CORE_F64, N),
                             CORE_OK);
            ck_assert_int_eq(copy(to, dtypes[b], from, dtypes[a], N), CORE_OK);
            ck_assert_int_eq(copy(back, CORE_F64, to, dtypes[b], N), CORE_OK);
            for (int k = 0; k < N; k++)
                if (back[k] != (test ? k != 0 : k))
                    ck_abort_msg("dtype %u to %u: %d became %g", dtypes[a],
                                 dtypes[b], k, back[k]);
        }
    cpu_close();
}
END_TEST

START_TEST(unrepresentable_floats_convert_to_minimum_integer)
{
    float in[6] = {NAN, INFINITY, -INFINITY, 3e9f, -2.9f, 1e30f};
    int32_t i32[6];
    int64_t i64[6];
    uint8_t u8[6];
    static const int32_t want32[6] = {INT32_MIN, INT32_MIN, INT32_MIN,
                                      INT32_MIN, -2,        INT32_MIN};

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    ck_assert_int_eq(copy(i32, CORE_I32, in, CORE_F32, 6), CORE_OK);
    ck_assert(memcmp(i32, want32, sizeof(i32)) == 0);
    ck_assert_int_eq(copy(i64, CORE_I64, in, CORE_F32, 6), CORE_OK);
    ck_assert(i64[0] == INT64_MIN && i64[3] == 3000000000 && i64[4] == -2 &&
              i64[5] == INT64_MIN);
    ck_assert_int_eq(copy(u8, CORE_U8, in, CORE_F32, 6), CORE_OK);
    ck_assert_uint_eq(u8[4], 254);
    cpu_close();
}
END_TEST

START_TEST(unrepresentable_halves_convert_to_minimum_i32)
{
    static const core_dtype kinds[2] = {CORE_F16, CORE_BF16};
    float in[4] = {NAN, INFINITY, -INFINITY, 3e9f};
    uint16_t half[4];
    int32_t out[4];

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int kind = 0; kind < 2; kind++) {
        ck_assert_int_eq(copy(half, kinds[kind], in, CORE_F32, 4), CORE_OK);
        ck_assert_int_eq(copy(out, CORE_I32, half, kinds[kind], 4), CORE_OK);
        for (int k = 0; k < 4; k++)
            ck_assert_msg(out[k] == INT32_MIN, "dtype %u: %g became %d",
                          kinds[kind], (double)in[k], out[k]);
    }
    cpu_close();
}
END_TEST

START_TEST(nonzero_converts_to_true)
{
    float in[5] = {0, -0.0f, 1e-40f, NAN, 0.25f};
    uint8_t out[5];

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    ck_assert_int_eq(copy(out, CORE_BOOL, in, CORE_F32, 5), CORE_OK);
    ck_assert(out[0] == 0 && out[1] == 0 && out[2] == 1 && out[3] == 1 &&
              out[4] == 1);
    cpu_close();
}
END_TEST

/* f32 represents every f16 and bf16 number, so the round trip is exact. */
START_TEST(every_half_round_trips_through_f32)
{
    static uint16_t half[65536], back[65536];
    static float wide[65536];
    static const core_dtype kinds[2] = {CORE_F16, CORE_BF16};

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int kind = 0; kind < 2; kind++) {
        for (int k = 0; k < 65536; k++)
            half[k] = (uint16_t)k;
        ck_assert_int_eq(copy(wide, CORE_F32, half, kinds[kind], 65536),
                         CORE_OK);
        ck_assert_int_eq(copy(back, kinds[kind], wide, CORE_F32, 65536),
                         CORE_OK);
        for (int k = 0; k < 65536; k++)
            if (back[k] != k && !isnan(wide[k]))
                ck_abort_msg("%x became %x", k, back[k]);
        ck_assert(wide[kind == 0 ? 0x3c00 : 0x3f80] == 1);
    }
    cpu_close();
}
END_TEST

START_TEST(halves_round_to_nearest_even)
{
    static const struct {
        float x;
        uint16_t f16, bf16;
    } cases[] = {
        {1.00048828125f, 0x3c00, 0x3f80}, {1.00146484375f, 0x3c02, 0x3f80},
        {65519.0f, 0x7bff, 0x4780},       {65520.0f, 0x7c00, 0x4780},
        {0x1p-25f, 0x0000, 0x3300},       {0x1.8p-25f, 0x0001, 0x3340},
        {0x1.ffcp-15f, 0x0400, 0x3880},   {-1e30f, 0xfc00, 0xf14a},
        {1.00390625f, 0x3c04, 0x3f80},    {1.01171875f, 0x3c0c, 0x3f82},
    };

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        float x = cases[k].x;
        uint16_t f16, bf16;

        ck_assert_int_eq(copy(&f16, CORE_F16, &x, CORE_F32, 1), CORE_OK);
        ck_assert_int_eq(copy(&bf16, CORE_BF16, &x, CORE_F32, 1), CORE_OK);
        ck_assert_msg(f16 == cases[k].f16 && bf16 == cases[k].bf16,
                      "%a became %x and %x", (double)x, f16, bf16);
    }
    cpu_close();
}
END_TEST

START_TEST(transposed_copy_moves_every_element)
{
    static const int64_t shapes[][3] = {
        {70, 33, 2},   {5, 4, 1},       {32, 64, 3}, {1040, 1030, 1},
        {528, 700, 3}, {2080, 1090, 1}, {2, 33, 5},  {3, 140, 2}};
    static const core_dtype sizes[4] = {CORE_U8, CORE_I16, CORE_F32, CORE_F64};

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int s = 0; s < 8; s++)
        for (int d = 0; d < 4; d++) {
            const int64_t *n = shapes[s];
            int64_t bytes = core_sdk_itemsize(sizes[d]);
            int64_t total = n[0] * n[1] * n[2];
            int64_t out[3] = {bytes, bytes * n[0], bytes * n[0] * n[1]};
            int64_t in[3] = {bytes * n[1], bytes, bytes * n[0] * n[1]};
            unsigned char *from = malloc((size_t)(total * bytes));
            unsigned char *to = aligned_alloc(
                64, ((size_t)(total * bytes) + 63) / 64 * 64); /* as tensors */
            uint32_t state = 5;
            int wrong = 0;
            test_loop t;

            for (int64_t k = 0; k < total * bytes; k++)
                from[k] = (unsigned char)next_random(&state);
            loop_begin(&t, 1, 3, n);
            loop_operand(&t, to, sizes[d], out);
            loop_operand(&t, from, sizes[d], in);
            ck_assert_int_eq(cpu_launch("copy_", &t.loop, NULL, 0), CORE_OK);
            for (int64_t z = 0; z < n[2]; z++)
                for (int64_t y = 0; y < n[1]; y++)
                    for (int64_t x = 0; x < n[0]; x++)
                        wrong +=
                            memcmp(to + x * out[0] + y * out[1] + z * out[2],
                                   from + x * in[0] + y * in[1] + z * in[2],
                                   (size_t)bytes) != 0;
            ck_assert_int_eq(wrong, 0);
            free(from);
            free(to);
        }
    cpu_close();
}
END_TEST

/* Swaps the two outer dimensions, like the heads of attention. */
START_TEST(permuted_copy_of_short_rows_is_correct)
{
    static const int64_t widths[] = {7, 8, 16, 31, 32, 63, 64};
    static const core_dtype sizes[4] = {CORE_U8, CORE_I16, CORE_F32, CORE_F64};
    enum { HIGH = 37, DEEP = 61, GAP = 3 };

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int w = 0; w < 7; w++)
        for (int d = 0; d < 4; d++) {
            int64_t n[3] = {widths[w], HIGH, DEEP};
            int64_t bytes = core_sdk_itemsize(sizes[d]);
            int64_t row = bytes * (n[0] + GAP);
            int64_t out[3] = {bytes, bytes * n[0], bytes * n[0] * HIGH};
            int64_t in[3] = {bytes, row * DEEP, row};
            size_t size = (size_t)(row * HIGH * DEEP);
            unsigned char *from = malloc(size), *to = calloc(1, size);
            int64_t written = bytes * n[0] * HIGH * DEEP;
            uint32_t state = 5;
            int wrong = 0;
            test_loop t;

            for (size_t k = 0; k < size; k++)
                from[k] = (unsigned char)next_random(&state);
            loop_begin(&t, 1, 3, n);
            loop_operand(&t, to, sizes[d], out);
            loop_operand(&t, from, sizes[d], in);
            ck_assert_int_eq(cpu_launch("copy_", &t.loop, NULL, 0), CORE_OK);
            for (int64_t z = 0; z < DEEP; z++)
                for (int64_t y = 0; y < HIGH; y++)
                    wrong += memcmp(to + y * out[1] + z * out[2],
                                    from + y * in[1] + z * in[2],
                                    (size_t)(bytes * n[0])) != 0;
            for (size_t k = (size_t)written; k < size; k++)
                wrong += to[k] != 0;
            ck_assert_int_eq(wrong, 0);
            free(from);
            free(to);
        }
    cpu_close();
}
END_TEST

START_TEST(fill_writes_only_strided_elements)
{
    float a[30];
    int64_t n = 10, stride = 12;
    core_value args[2] = {{0}, value_float(2.5)};
    test_loop t;

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    memset(a, 0, sizeof(a));
    loop_begin(&t, 1, 1, &n);
    loop_operand(&t, a, CORE_F32, &stride);
    ck_assert_int_eq(cpu_launch("fill_.Scalar", &t.loop, args, 2), CORE_OK);
    for (int k = 0; k < 30; k++)
        ck_assert(a[k] == (k % 3 == 0 ? 2.5f : 0));
    cpu_close();
}
END_TEST

int main(void)
{
    const suite_loop loops[] = {
        {copy_converts_between_any_two_dtypes_exactly, 0, 3},
        {unrepresentable_floats_convert_to_minimum_integer, 0, 3},
        {unrepresentable_halves_convert_to_minimum_i32, 0, 3},
        {nonzero_converts_to_true, 0, 3},
        {every_half_round_trips_through_f32, 0, 3},
        {halves_round_to_nearest_even, 0, 3},
        {transposed_copy_moves_every_element, 0, 3},
        {permuted_copy_of_short_rows_is_correct, 0, 3},
        {fill_writes_only_strided_elements, 0, 3},
    };
    const test_suite suite = {
        .name = "cpu/cpu_copy",
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
