/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include <expressions/philox.h>

#include "support/cpu_view.h"

/* The first block of the generator's published test vectors. */
START_TEST(philox_matches_published_vectors)
{
    static const uint32_t zeros[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c,
                                      0x9b00dbd8};
    uint32_t block[4];

    philox_block(0, 0, block);
    ck_assert(memcmp(block, zeros, sizeof(block)) == 0);
    for (uint64_t i = 0; i < 16; i++) {
        philox_block(7, 100 + i / 4, block);
        ck_assert_uint_eq(philox_32(7, 100, i), block[i % 4]);
    }
}
END_TEST

enum { N = 20000 };

static core_status draw(const char *name, core_value a, core_value b,
                        tensor *out, int64_t seed, int64_t offset)
{
    core_value none = {0};
    int one = strcmp(name, "bernoulli_.float") == 0;
    test_call call = {
        name,
        {value_view(out), a, b, none, value_int(seed), value_int(offset)},
        6,
        {out},
        1};

    if (one) {
        call.args[2] = none;
        call.args[3] = value_int(seed);
        call.args[4] = value_int(offset);
        call.nargs = 5;
    }
    return run_call(&call);
}

static const struct {
    const char *name;
    double a, b, mean, variance;
} draws[] = {
    {"uniform_", -1, 3, 1, 16.0 / 12},
    {"normal_", 2, 3, 2, 9},
    {"random_.from", 0, 5, 2, 2},
    {"bernoulli_.float", 0.25, 0, 0.25, 0.1875},
};

START_TEST(draws_have_expected_mean_and_variance)
{
    core_dtype dtypes[] = {CORE_F32, CORE_F64};
    const int64_t size = N;

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int d = 0; d < 2; d++) {
        tensor *x = tensor_new(dtypes[d], 1, &size);
        double sum = 0, square = 0, sigma = sqrt(draws[_i].variance);

        ck_assert_int_eq(draw(draws[_i].name, value_float(draws[_i].a),
                              value_float(draws[_i].b), x, 42, 9),
                         CORE_OK);
        for (int k = 0; k < N; k++) {
            double from_mean = tensor_get(x, k) - draws[_i].mean;

            sum += from_mean;
            square += from_mean * from_mean;
        }
        ck_assert(fabs(sum / N) < 4 * sigma / sqrt(N));
        ck_assert(fabs(square / N / draws[_i].variance - 1) < 0.04);
        tensor_free(x);
    }
    cpu_close();
}
END_TEST

START_TEST(element_depends_only_on_seed_and_position)
{
    tensor *x = F32(N), *y = F32(N);

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        cpu_threads(threads);
        ck_assert_int_eq(draw(draws[_i].name, value_float(draws[_i].a),
                              value_float(draws[_i].b), threads == 1 ? x : y,
                              42, 1000),
                         CORE_OK);
        ck_assert(threads == 1 || memcmp(x->data, y->data, N * 4) == 0);
    }
    /* An offset one block later starts four numbers later. */
    ck_assert_int_eq(draw(draws[_i].name, value_float(draws[_i].a),
                          value_float(draws[_i].b), y, 42, 1001),
                     CORE_OK);
    ck_assert(memcmp((float *)x->data + 4, y->data, (N - 4) * 4) == 0);
    ck_assert_int_eq(draw(draws[_i].name, value_float(draws[_i].a),
                          value_float(draws[_i].b), y, 43, 1000),
                     CORE_OK);
    ck_assert(memcmp(x->data, y->data, N * 4) != 0);
    tensor_free(x);
    tensor_free(y);
    cpu_close();
}
END_TEST

START_TEST(a_mask_has_the_draws_of_numbers)
{
    static const double chances[] = {0, 0x1p-33, .25, .9, 1 - 0x1p-33, 1};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int64_t n = 1; n < 5000; n = n < 140 ? n + 1 : 2 * n)
        for (int k = 0; k < 6; k++) {
            tensor *x = F32(n), *mask = tensor_new(CORE_BOOL, 1, &n);
            core_value p = value_float(chances[k]), none = {0};

            ck_assert_int_eq(
                draw("bernoulli_.float", p, none, x, 7, INT64_C(0xfffffffe)),
                CORE_OK);
            ck_assert_int_eq(
                draw("bernoulli_.float", p, none, mask, 7, INT64_C(0xfffffffe)),
                CORE_OK);
            for (int64_t i = 0; i < n; i++)
                ck_assert_double_eq(tensor_get(x, i), tensor_get(mask, i));
            tensor_free(x);
            tensor_free(mask);
        }
    cpu_close();
}
END_TEST

START_TEST(random_integers_reach_both_ends_of_their_range)
{
    tensor *x = I64(N);
    int64_t *data = x->data;
    int low = 0, high = 0;
    core_value none = {0};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    ck_assert_int_eq(draw("random_.from", value_int(-3), value_int(4), x, 1, 0),
                     CORE_OK);
    for (int k = 0; k < N; k++) {
        ck_assert(data[k] >= -3 && data[k] < 4);
        low += data[k] == -3;
        high += data[k] == 3;
    }
    ck_assert(low > 0 && high > 0);
    low = high = 0;
    ck_assert_int_eq(draw("random_.from", value_int(INT64_MIN), none, x, 1, 0),
                     CORE_OK);
    for (int k = 0; k < N; k++) {
        low += data[k] < 0;
        high += data[k] > 0;
    }
    ck_assert(low > N / 3 && high > N / 3);
    ck_assert_int_eq(draw("random_.from", value_int(4), value_int(4), x, 1, 0),
                     CORE_ERROR_INVALID_ARGUMENT);
    tensor_free(x);
    cpu_close();
}
END_TEST

START_TEST(multinomial_follows_its_weights)
{
    enum { SAMPLES = 3 };
    tensor *p = F32(2000, 4), *out = I64(2000, SAMPLES);
    core_value none = {0};
    int counts[2][4] = {{0}};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int i = 0; i < 8000; i++)
        tensor_set(p, i, i % 4); /* the first is never chosen */
    for (int replacement = 0; replacement < 2; replacement++) {
        test_call call = {"multinomial",
                          {value_view(p), value_int(SAMPLES),
                           value_bool(replacement), none, value_int(5),
                           value_int(0)},
                          6,
                          {out},
                          1};

        ck_assert_int_eq(run_call(&call), CORE_OK);
        for (int i = 0; i < 2000 * SAMPLES; i++)
            counts[replacement][(int)tensor_get(out, i)]++;
    }
    for (int i = 0; i < 4; i++) /* each choice once per row */
        ck_assert_int_eq(counts[0][i], i > 0 ? 2000 : 0);
    for (int i = 0; i < 4; i++)
        ck_assert(abs(counts[1][i] - 1000 * i) <= (i ? 120 : 0));
    tensor_free(p);
    tensor_free(out);
    cpu_close();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        philox_matches_published_vectors,
        a_mask_has_the_draws_of_numbers,
        random_integers_reach_both_ends_of_their_range,
        multinomial_follows_its_weights,
    };
    const suite_loop loops[] = {
        {draws_have_expected_mean_and_variance, 0, 4},
        {element_depends_only_on_seed_and_position, 0, 4},
    };
    const test_suite suite = {
        .name = "cpu/cpu_view_random",
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
