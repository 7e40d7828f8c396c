/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "support/cpu.h"

#include <expressions/number.h>

/* Reduces a block of n[0] (innermost) x n[1] x n[2] elements, `apart` elements from
 * one to the next, along the dimensions of a mask into dense outputs. */
static core_status reduce_apart(const char *name, const int64_t *n,
                                int64_t apart, uint32_t mask, void *in,
                                core_dtype dtype, void *out,
                                core_dtype out_dtype, void *second,
                                const core_value *args, uint32_t nargs)
{
    int64_t bytes = apart * core_sdk_itemsize(dtype), out_strides[3], index[3];
    int64_t in_strides[3] = {bytes, bytes * n[0], bytes * n[0] * n[1]};
    int64_t step = 1;
    test_loop t;

    for (int d = 0; d < 3; d++) {
        int kept = !(mask >> d & 1);

        out_strides[d] = kept ? step * core_sdk_itemsize(out_dtype) : 0;
        index[d] = kept ? step * 8 : 0;
        step *= kept ? n[d] : 1;
    }
    loop_begin(&t, second != NULL ? 2 : 1, 3, n);
    t.loop.reduced = mask;
    loop_operand(&t, out, out_dtype, out_strides);
    if (second != NULL)
        loop_operand(&t, second, CORE_I64, index);
    loop_operand(&t, in, dtype, in_strides);
    return cpu_launch(name, &t.loop, args, nargs);
}

static core_status reduce(const char *name, const int64_t *n, uint32_t mask,
                          void *in, core_dtype dtype, void *out,
                          core_dtype out_dtype, void *second,
                          const core_value *args, uint32_t nargs)
{
    return reduce_apart(name, n, 1, mask, in, dtype, out, out_dtype, second,
                        args, nargs);
}

static const int64_t shapes[][3] = {
    {1, 1, 1},   {7, 3, 2},      {40, 30, 20},   {3, 1000, 5},  {1000, 1, 7},
    {600, 2, 2}, {200000, 1, 1}, {1, 300000, 1}, {5, 70000, 2}, {530, 300, 1}};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

/* Index of the output for element (x, y, z). */
static int64_t output_index(const int64_t *n, uint32_t mask, const int64_t *at)
{
    int64_t index = 0, step = 1;

    for (int d = 0; d < 3; d++)
        if (!(mask >> d & 1)) {
            index += at[d] * step;
            step *= n[d];
        }
    return index;
}

START_TEST(sums_over_any_dimensions_are_accurate)
{
    uint32_t state = 6;

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int s = 0; s < SHAPES; s++) {
        const int64_t *n = shapes[s];
        int64_t total = n[0] * n[1] * n[2];
        float *in = malloc((size_t)total * 4);
        float *out = malloc((size_t)total * 4);
        double *want = malloc((size_t)total * 8);
        double *size = malloc((size_t)total * 8);

        for (int64_t k = 0; k < total; k++)
            in[k] = random_float(&state) + 0.1f;
        for (uint32_t mask = 0; mask < 8; mask++) {
            int64_t at[3];

            memset(want, 0, (size_t)total * 8);
            memset(size, 0, (size_t)total * 8);
            for (int64_t k = 0; k < total; k++) {
                int64_t p;

                at[0] = k % n[0];
                at[1] = k / n[0] % n[1];
                at[2] = k / n[0] / n[1];
                p = output_index(n, mask, at);
                want[p] += (double)in[k];
                size[p] += fabs((double)in[k]);
            }
            ck_assert_int_eq(reduce("sum.dim_IntList", n, mask, in, CORE_F32,
                                    out, CORE_F32, NULL, NULL, 0),
                             CORE_OK);
            at[0] = n[0] - 1;
            at[1] = n[1] - 1;
            at[2] = n[2] - 1;
            for (int64_t p = 0; p <= output_index(n, mask, at); p++)
                if (!(fabs((double)out[p] - want[p]) <=
                      6e-8 * fabs(want[p]) + 2e-7 * size[p]))
                    ck_abort_msg("shape %d, dimensions %u: %.9g, not %.9g", s,
                                 mask, (double)out[p], want[p]);
        }
        free(in);
        free(out);
        free(want);
        free(size);
    }
    cpu_close();
}
END_TEST

START_TEST(reduction_bits_do_not_depend_on_threads)
{
    static const char *const names[] = {"sum.dim_IntList", "var.correction",
                                        "logsumexp", "prod.dim_int"};
    uint32_t state = 7;

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int s = 2; s < SHAPES; s++)
        for (int f = 0; f < 4; f++)
            for (uint32_t mask = 1; mask < 8; mask++) {
                const int64_t *n = shapes[s];
                size_t total = (size_t)(n[0] * n[1] * n[2]);
                float *in = malloc(total * 4);
                float *one = calloc(total, 4), *four = calloc(total, 4);

                for (size_t k = 0; k < total; k++)
                    in[k] = random_float(&state);
                cpu_threads(1);
                ck_assert_int_eq(reduce(names[f], n, mask, in, CORE_F32, one,
                                        CORE_F32, NULL, NULL, 0),
                                 CORE_OK);
                cpu_threads(4);
                ck_assert_int_eq(reduce(names[f], n, mask, in, CORE_F32, four,
                                        CORE_F32, NULL, NULL, 0),
                                 CORE_OK);
                ck_assert(memcmp(one, four, total * 4) == 0);
                free(in);
                free(one);
                free(four);
            }
    cpu_close();
}
END_TEST

static float *random_floats(int64_t count)
{
    float *in = malloc((size_t)count * sizeof *in);
    uint32_t state = 11;

    ck_assert_ptr_nonnull(in);
    for (int64_t k = 0; k < count; k++)
        in[k] = random_float(&state) + 0.1f;
    return in;
}

/* The loop that the core makes of [64, 768, 1] has the last dimension first: a
 * kernel that takes it for the one along which outputs are adjacent adds in
 * another order, and is a hundred times slower. */
START_TEST(dimensions_of_size_1_make_no_difference)
{
    static const struct {
        int64_t n[3];
        uint32_t mask;
        int64_t plain[3];
        uint32_t plain_mask;
    } loops[] = {
        {{1, 96, 40}, 2, {96, 40, 1}, 1},   {{96, 1, 40}, 1, {96, 40, 1}, 1},
        {{1, 3000, 1}, 2, {3000, 1, 1}, 7}, {{40, 1, 96}, 4, {40, 96, 1}, 2},
        {{40, 1, 96}, 6, {40, 96, 1}, 2},   {{1, 20, 96}, 4, {20, 96, 1}, 2}};
    static const char *const names[] = {"sum",       "mean",
                                        "prod",      "linalg_vector_norm",
                                        "logsumexp", "var.correction"};
    const core_value numbers[3] = {{0}, {0}, {CORE_VALUE_INT, 0, {.i = 1}}};
    float *in = random_floats(96 * 40);

    if (!cpu_open_isa(cpu_isas[_i])) {
        free(in);
        return;
    }
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            float got[96] = {0}, want[96] = {0};
            uint32_t count = strcmp(names[k], "var.correction") == 0 ? 3 : 0;

            ck_assert_int_eq(CORE_OK, reduce(names[k], loops[i].n,
                                             loops[i].mask, in, CORE_F32, got,
                                             CORE_F32, NULL, numbers, count));
            ck_assert_int_eq(CORE_OK,
                             reduce(names[k], loops[i].plain,
                                    loops[i].plain_mask, in, CORE_F32, want,
                                    CORE_F32, NULL, numbers, count));
            ck_assert_msg(memcmp(got, want, sizeof got) == 0, "%s, loop %zu",
                          names[k], i);
        }
    cpu_close();
    free(in);
}
END_TEST

static float largest_of(const float *x, int64_t n)
{
    float largest = x[0];

    for (int64_t k = 1; k < n && !isnan(largest); k++)
        if (isnan(x[k]) || x[k] > largest)
            largest = x[k];
    return largest;
}

/* Whatever the number of elements after the last whole vector. */
START_TEST(short_rows_have_their_largest_element_anywhere)
{
    enum { ROWS = 19, WIDEST = 160 };
    float *in = random_floats(ROWS * WIDEST);

    if (!cpu_open_isa(cpu_isas[_i])) {
        free(in);
        return;
    }
    for (int k = 0; k < ROWS * WIDEST; k++)
        in[k] = k % 7 == 3 ? -INFINITY : -1 - fabsf(in[k]);
    for (int64_t w = 32; w <= WIDEST; w++) {
        float got[ROWS];

        in[w - 1] = NAN;
        in[2 * w - 1] = 0; /* the last ones of rows 0 and 1 */
        for (int64_t k = 2 * w; k < 3 * w; k++)
            in[k] = -INFINITY;
        ck_assert_int_eq(CORE_OK,
                         reduce("amax", (int64_t[]){w, ROWS, 1}, 1, in,
                                CORE_F32, got, CORE_F32, NULL, NULL, 0));
        for (int r = 0; r < ROWS; r++) {
            float want = largest_of(in + r * w, w);

            ck_assert_msg(got[r] == want || (isnan(got[r]) && isnan(want)),
                          "row %d of %d elements: %g, not %g", r, (int)w,
                          got[r], want);
        }
    }
    cpu_close();
    free(in);
}
END_TEST

START_TEST(short_rows_have_the_bits_of_single_ones)
{
    static const char *const names[] = {"sum",  "mean", "amax",
                                        "amin", "prod", "linalg_vector_norm"};
    static const int64_t widths[] = {33, 40,  48,  63,  64,  70,
                                     90, 100, 127, 200, 512, 513};
    enum { ROWS = 37, WIDEST = 513 };
    float *in = random_floats(ROWS * WIDEST);
    uint16_t half[ROWS * WIDEST];

    if (!cpu_open_isa(cpu_isas[_i])) {
        free(in);
        return;
    }
    in[40] = NAN;
    for (int k = 0; k < ROWS * WIDEST; k++)
        memcpy(&half[k], (char *)&in[k] + 2, 2); /* the upper bits */
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            int64_t w = widths[i];
            float got[ROWS], want;
            uint16_t got_half[ROWS], want_half;

            ck_assert_int_eq(CORE_OK,
                             reduce(names[k], (int64_t[]){w, ROWS, 1}, 1, in,
                                    CORE_F32, got, CORE_F32, NULL, NULL, 0));
            ck_assert_int_eq(CORE_OK, reduce(names[k], (int64_t[]){w, ROWS, 1},
                                             1, half, CORE_BF16, got_half,
                                             CORE_BF16, NULL, NULL, 0));
            for (int r = 0; r < ROWS; r++) {
                ck_assert_int_eq(CORE_OK, reduce(names[k], (int64_t[]){w, 1, 1},
                                                 7, in + r * w, CORE_F32, &want,
                                                 CORE_F32, NULL, NULL, 0));
                ck_assert_mem_eq(&got[r], &want, sizeof want);
                ck_assert_int_eq(CORE_OK,
                                 reduce(names[k], (int64_t[]){w, 1, 1}, 7,
                                        half + r * w, CORE_BF16, &want_half,
                                        CORE_BF16, NULL, NULL, 0));
                ck_assert_uint_eq(got_half[r], want_half);
            }
        }
    cpu_close();
    free(in);
}
END_TEST

enum { BF16_NUMBERS = 2 * 150000 + 1 };

/* Puts numbers that are special in sums among others, in the first rows. */
static void set_special(float *x, int which)
{
    static const float special[][2] = {
        {-0.f, -0.f},          {0x1p-130f, -0.f}, {INFINITY, INFINITY},
        {INFINITY, -INFINITY}, {NAN, 1},          {NAN, -INFINITY}};

    if (which == 0)
        return;
    for (int k = 0; which < 3 && k < 1000; k++)
        x[k] = special[which - 1][k % 2];
    x[20] = special[which - 1][0];
    x[33] = special[which - 1][1];
}

static int64_t count_differences(const float *got, const float *want, int64_t n)
{
    int64_t different = 0;

    for (int64_t k = 0; k < n; k++)
        different += memcmp(got + k, want + k, sizeof *got) != 0 &&
                     !(isnan(got[k]) && isnan(want[k]));
    return different;
}

/* Compares the reductions of a shape by rows, by columns and of all elements. */
static void check_bf16(const char *name, const int64_t *n, int64_t apart,
                       float *in, uint16_t *half)
{
    static float got[BF16_NUMBERS], want[BF16_NUMBERS];

    for (uint32_t mask = 1; mask < 4; mask++) {
        int64_t kept = mask == 3 ? 1 : n[mask == 1];

        ck_assert_int_eq(CORE_OK,
                         reduce_apart(name, n, apart, mask, in, CORE_F32, want,
                                      CORE_F32, NULL, NULL, 0));
        ck_assert_int_eq(CORE_OK,
                         reduce_apart(name, n, apart, mask, half, CORE_BF16,
                                      got, CORE_F32, NULL, NULL, 0));
        ck_assert_msg(count_differences(got, want, kept) == 0,
                      "%s of %d x %d, %d apart, dimensions %u", name, (int)n[0],
                      (int)n[1], (int)apart, mask);
    }
}

/* Sums and norms convert bf16 as they read them: rows, columns, some blocks at
 * once, and chunks, of numbers at odd addresses of two bytes, dense or with
 * others between them. */
START_TEST(reductions_of_bf16_have_the_bits_of_f32)
{
    static const char *const names[] = {"sum", "mean", "linalg_vector_norm"};
    static const int64_t shapes[][3] = {
        {5, 1, 1},    {17, 1, 1},     {63, 1, 1},   {64, 3, 1},
        {130, 5, 1},  {512, 20, 1},   {1000, 2, 1}, {9000, 1, 1},
        {9300, 2, 1}, {150000, 1, 1}, {30, 700, 1}};
    float *in = random_floats(BF16_NUMBERS);
    uint16_t *half = malloc(BF16_NUMBERS * 2);

    ck_assert_ptr_nonnull(half);
    if (cpu_open_isa(cpu_isas[_i])) {
        for (int special = 0; special < 7; special++) {
            set_special(in + 1, special);
            for (int k = 0; k < BF16_NUMBERS; k++) {
                memcpy(&half[k], (char *)&in[k] + 2, 2); /* the upper bits */
                in[k] = math_f32_of_bf16(half[k]);
            }
            for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
                for (int k = 0; k < 3; k++)
                    for (int64_t apart = 1; apart < 3; apart++)
                        check_bf16(names[k], shapes[i], apart, in + 1,
                                   half + 1);
        }
        cpu_close();
    }
    free(in);
    free(half);
}
END_TEST

START_TEST(index_of_first_equal_extreme_is_returned)
{
    static const int64_t n[3] = {1000, 1, 1};
    float in[1000], value;
    int64_t index;

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int k = 0; k < 1000; k++)
        in[k] = (float)(k % 10);
    ck_assert_int_eq(reduce("max.dim", n, 1, in, CORE_F32, &value, CORE_F32,
                            &index, NULL, 0),
                     CORE_OK);
    ck_assert(value == 9);
    ck_assert_int_eq(index, 9);
    in[700] = NAN;
    in[900] = NAN;
    ck_assert_int_eq(reduce("max.dim", n, 1, in, CORE_F32, &value, CORE_F32,
                            &index, NULL, 0),
                     CORE_OK);
    ck_assert(isnan(value));
    ck_assert_int_eq(index, 700);
    ck_assert_int_eq(
        reduce("argmin", n, 1, in, CORE_F32, &index, CORE_I64, NULL, NULL, 0),
        CORE_OK);
    ck_assert_int_eq(index, 700);
    cpu_close();
}
END_TEST

START_TEST(argmax_index_varies_fastest_in_innermost_dimension)
{
    static const int64_t n[3] = {4, 5, 6};
    int32_t in[120] = {0};
    int64_t index, columns[4];

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    in[2 + 4 * (3 + 5 * 4)] = 1;
    ck_assert_int_eq(
        reduce("argmax", n, 7, in, CORE_I32, &index, CORE_I64, NULL, NULL, 0),
        CORE_OK);
    ck_assert_int_eq(index, 2 + 4 * (3 + 5 * 4));
    ck_assert_int_eq(
        reduce("argmax", n, 6, in, CORE_I32, columns, CORE_I64, NULL, NULL, 0),
        CORE_OK);
    ck_assert(columns[0] == 0 && columns[2] == 3 + 5 * 4);
    cpu_close();
}
END_TEST

START_TEST(variance_of_large_offset_is_accurate)
{
    enum { MANY = 100000 };
    static const int64_t rows[3] = {MANY, 1, 1}, columns[3] = {2, MANY / 2, 1};
    double *in, out[2];

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    in = malloc(MANY * 8);
    ck_assert_ptr_nonnull(in);
    for (int k = 0; k < MANY; k++)
        in[k] = 1e9 + k % 2;
    ck_assert_int_eq(reduce("var.correction", rows, 1, in, CORE_F64, out,
                            CORE_F64, NULL, NULL, 0),
                     CORE_OK);
    ck_assert_double_eq_tol(out[0], 0.25 * MANY / (MANY - 1.0), 1e-12);
    ck_assert_int_eq(reduce("var.correction", columns, 2, in, CORE_F64, out,
                            CORE_F64, NULL, NULL, 0),
                     CORE_OK);
    ck_assert(out[0] == 0 && out[1] == 0);
    free(in);
    cpu_close();
}
END_TEST

START_TEST(empty_reduction_returns_the_identity)
{
    static const int64_t n[3] = {0, 3, 1};
    static const struct {
        const char *name;
        float want;
    } cases[] = {{"sum.dim_IntList", 0},   {"prod.dim_int", 1},
                 {"mean.dim", NAN},        {"linalg_vector_norm", 0},
                 {"logsumexp", -INFINITY}, {"var.correction", NAN}};
    float in[1], out[3];

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int k = 0; k < 6; k++) {
        ck_assert_int_eq(reduce(cases[k].name, n, 1, in, CORE_F32, out,
                                CORE_F32, NULL, NULL, 0),
                         CORE_OK);
        for (int j = 0; j < 3; j++)
            ck_assert_msg(out[j] == cases[k].want ||
                              (isnan(out[j]) && isnan(cases[k].want)),
                          "%s of nothing is %g", cases[k].name, (double)out[j]);
    }
    cpu_close();
}
END_TEST

START_TEST(sum_of_small_integers_accumulates_in_i64)
{
    static const int64_t n[3] = {300, 1, 1};
    int8_t in[300];
    int64_t sum;

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    memset(in, 127, sizeof(in));
    ck_assert_int_eq(reduce("sum.dim_IntList", n, 1, in, CORE_I8, &sum,
                            CORE_I64, NULL, NULL, 0),
                     CORE_OK);
    ck_assert_int_eq(sum, 300 * 127);
    cpu_close();
}
END_TEST

START_TEST(sum_and_logsumexp_handle_infinities)
{
    static const int64_t n[3] = {100, 1, 1};
    float in[100], out;

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int k = 0; k < 100; k++)
        in[k] = 1000;
    ck_assert_int_eq(
        reduce("logsumexp", n, 1, in, CORE_F32, &out, CORE_F32, NULL, NULL, 0),
        CORE_OK);
    ck_assert_float_eq_tol(out, 1004.60517f, 1e-3f);
    in[50] = INFINITY;
    ck_assert_int_eq(
        reduce("logsumexp", n, 1, in, CORE_F32, &out, CORE_F32, NULL, NULL, 0),
        CORE_OK);
    ck_assert(out == INFINITY);
    ck_assert_int_eq(reduce("sum.dim_IntList", n, 1, in, CORE_F32, &out,
                            CORE_F32, NULL, NULL, 0),
                     CORE_OK);
    ck_assert(out == INFINITY);
    for (int k = 0; k < 100; k++)
        in[k] = -INFINITY;
    ck_assert_int_eq(
        reduce("logsumexp", n, 1, in, CORE_F32, &out, CORE_F32, NULL, NULL, 0),
        CORE_OK);
    ck_assert(out == -INFINITY);
    cpu_close();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        reduction_bits_do_not_depend_on_threads,
        empty_reduction_returns_the_identity,
    };
    const suite_loop loops[] = {
        {sums_over_any_dimensions_are_accurate, 0, 3},
        {index_of_first_equal_extreme_is_returned, 0, 3},
        {argmax_index_varies_fastest_in_innermost_dimension, 0, 3},
        {variance_of_large_offset_is_accurate, 0, 3},
        {sum_of_small_integers_accumulates_in_i64, 0, 3},
        {sum_and_logsumexp_handle_infinities, 0, 3},
        {dimensions_of_size_1_make_no_difference, 0, 3},
        {short_rows_have_their_largest_element_anywhere, 0, 3},
        {short_rows_have_the_bits_of_single_ones, 0, 3},
        {reductions_of_bf16_have_the_bits_of_f32, 0, 3},
    };
    const test_suite suite = {
        .name = "cpu/cpu_reduce",
        .seconds = 120,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
        .one_thread = true,
    };

    return suite_run(&suite, 1);
}
