/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Convolution and pooling in bf16 equal the f32 results for the same numbers up
 * to the rounding of results. */

#include "support/cpu_view.h"

#include <float.h>
#include <stdbool.h>

static const char *const isas[] = {NULL, "avx512", "baseline"};
enum { ISAS = 3 };

typedef struct pair {
    tensor *half, *single; /* the same numbers */
} pair;

static float single_of(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;

    memcpy(&x, &bits, 4);
    return x;
}

static pair pair_new(uint32_t ndim, const int64_t *sizes, uint32_t seed)
{
    pair p = {tensor_new(CORE_BF16, ndim, sizes),
              tensor_new(CORE_F32, ndim, sizes)};

    for (int64_t i = 0; i < p.half->view.numel; i++) {
        float x = random_float(&seed) - 0.5f;
        uint32_t bits;

        memcpy(&bits, &x, 4);
        ((uint16_t *)p.half->data)[i] = (uint16_t)(bits >> 16);
        ((float *)p.single->data)[i] = single_of((uint16_t)(bits >> 16));
    }
    return p;
}
#define PAIR(seed, ...) pair_new(SIZES(__VA_ARGS__), seed)

static void pair_free(pair *p)
{
    tensor_free(p->half);
    tensor_free(p->single);
}

/* sums: how many products of numbers below 1/4 are added per element. */
static void check(const pair *p, int64_t sums)
{
    for (int64_t i = 0; i < p->half->view.numel; i++) {
        double got = (double)single_of(((uint16_t *)p->half->data)[i]);
        double want = (double)((float *)p->single->data)[i];
        double bound = fabs(want) / 256 +
                       (double)sums * (double)FLT_EPSILON * (double)sums / 4;

        ck_assert_msg(fabs(got - want) <= bound, "%ld: %g, want %g", (long)i,
                      got, want);
    }
}

typedef struct convolution {
    int64_t images, channels, filters, groups, in[2], kernel[2];
    int64_t stride[2], padding[2], dilation[2];
    bool transposed, bias;
} convolution;

static int64_t out_size(const convolution *c, int d)
{
    int64_t reach = c->dilation[d] * (c->kernel[d] - 1);

    if (c->transposed)
        return (c->in[d] - 1) * c->stride[d] - 2 * c->padding[d] + reach + 1;
    return (c->in[d] + 2 * c->padding[d] - reach - 1) / c->stride[d] + 1;
}

static void forward_and_backward(const convolution *c)
{
    static const int64_t none[] = {0, 0};
    int64_t rows = c->transposed ? c->channels : c->filters;
    int64_t across = (c->transposed ? c->filters : c->channels) / c->groups;
    pair x = PAIR(1, c->images, c->channels, c->in[0], c->in[1]);
    pair w = PAIR(2, rows, across, c->kernel[0], c->kernel[1]);
    pair b = PAIR(3, c->filters);
    pair y = PAIR(4, c->images, c->filters, out_size(c, 0), out_size(c, 1));
    pair gy = PAIR(5, c->images, c->filters, out_size(c, 0), out_size(c, 1));
    pair gx = PAIR(6, c->images, c->channels, c->in[0], c->in[1]);
    pair gw = PAIR(7, rows, across, c->kernel[0], c->kernel[1]);
    pair gb = PAIR(8, c->filters);
    pair *all[] = {&x, &w, &b, &y, &gy, &gx, &gw, &gb};
    int64_t taps = c->kernel[0] * c->kernel[1];

    for (int half = 0; half < 2; half++) {
#define OF(p) (half ? (p).half : (p).single)
#define GEOMETRY                                               \
    value_ints(2, c->stride), value_ints(2, c->padding),       \
        value_ints(2, c->dilation), value_bool(c->transposed), \
        value_ints(2, none), value_int(c->groups)
        test_call forward = {"convolution",
                             {value_view(OF(x)), value_view(OF(w)),
                              value_view(c->bias ? OF(b) : NULL), GEOMETRY},
                             9,
                             {OF(y)},
                             1};
        test_call backward = {"convolution_backward",
                              {value_view(OF(gy)), value_view(OF(x)),
                               value_view(OF(w)), value_ints(1, none), GEOMETRY,
                               value_mask()},
                              11,
                              {OF(gx), OF(gw), OF(gb)},
                              3};

        ck_assert_int_eq(run_call(&forward), CORE_OK);
        ck_assert_int_eq(run_call(&backward), CORE_OK);
    }
    check(&y, c->channels * taps + 1);
    check(&gx, c->filters * taps + 1);
    check(&gw, c->images * out_size(c, 0) * out_size(c, 1) + 1);
    check(&gb, c->images * out_size(c, 0) * out_size(c, 1) + 1);
    for (int i = 0; i < 8; i++)
        pair_free(all[i]);
}

START_TEST(bf16_convolutions_match_f32)
{
    static const convolution cases[] = {
        {3, 5, 24, 1, {17, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, true},
        {2, 8, 12, 1, {15, 19}, {3, 2}, {2, 1}, {0, 2}, {1, 2}, false, false},
        {2, 16, 18, 1, {11, 9}, {1, 1}, {1, 1}, {0, 0}, {1, 1}, false, true},
        {2, 12, 18, 3, {13, 16}, {2, 3}, {1, 2}, {1, 0}, {1, 1}, false, true},
        {2, 10, 14, 1, {8, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, true, true},
        {2, 8, 12, 2, {9, 12}, {2, 2}, {1, 2}, {0, 1}, {2, 1}, true, false},
        {1, 40, 33, 1, {40, 41}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, true},
        {2, 6, 6, 6, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, true},
    };

    if (!cpu_open_isa(isas[_i]))
        return;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        forward_and_backward(&cases[i]);
    cpu_close();
}
END_TEST

/* Hashes the bits of all results computed with the given number of threads. */
static uint64_t bits_with(uint32_t threads)
{
    static const int64_t one[] = {1, 1}, none[] = {0, 0};
    pair x = PAIR(1, 7, 6, 20, 20), w = PAIR(2, 20, 6, 3, 3);
    pair gy = PAIR(3, 7, 20, 20, 20), gx = PAIR(4, 7, 6, 20, 20);
    pair gw = PAIR(5, 20, 6, 3, 3), gb = PAIR(6, 20);
    test_call forward = {"convolution",
                         {value_view(x.half), value_view(w.half),
                          value_view(NULL), value_ints(2, one),
                          value_ints(2, one), value_ints(2, one), value_bool(0),
                          value_ints(2, none), value_int(1)},
                         9,
                         {gy.half},
                         1};
    test_call backward = {"convolution_backward",
                          {value_view(gy.half), value_view(x.half),
                           value_view(w.half), value_ints(1, none),
                           value_ints(2, one), value_ints(2, one),
                           value_ints(2, one), value_bool(0),
                           value_ints(2, none), value_int(1), value_mask()},
                          11,
                          {gx.half, gw.half, gb.half},
                          3};
    pair *all[] = {&x, &w, &gy, &gx, &gw, &gb};
    uint64_t hash = 14695981039346656037u;

    cpu_threads(threads);
    ck_assert_int_eq(run_call(&forward), CORE_OK);
    ck_assert_int_eq(run_call(&backward), CORE_OK);
    for (int i = 0; i < 6; i++) {
        for (int64_t at = 0; at < all[i]->half->view.numel; at++)
            hash =
                (hash ^ ((uint16_t *)all[i]->half->data)[at]) * 1099511628211u;
        pair_free(all[i]);
    }
    return hash;
}

START_TEST(bf16_convolution_bits_do_not_depend_on_threads)
{
    uint64_t first;

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    first = bits_with(1);
    for (uint32_t threads = 2; threads <= 5; threads++)
        ck_assert(bits_with(threads) == first);
    cpu_close();
}
END_TEST

/* --------------------------------------------------------------- pooling -- */

/* Maxima and their indices need no rounding and must be equal. */
static void check_max_pooling(void)
{
    static const int64_t three[] = {3, 3}, two[] = {2, 1}, one[] = {1, 1};
    const int64_t out[] = {4, 5, 7, 13};
    pair x = PAIR(1, 4, 5, 13, 13), y = pair_new(4, out, 2);
    pair gx = PAIR(3, 4, 5, 13, 13), gy = pair_new(4, out, 4);
    tensor *at[] = {tensor_new(CORE_I64, 4, out), tensor_new(CORE_I64, 4, out)};

    ((uint16_t *)x.half->data)[40] = 0x7fc0;
    ((float *)x.single->data)[40] = NAN;
    ((uint16_t *)x.half->data)[41] = 0xffc1;
    ((float *)x.single->data)[41] = NAN;
    for (int half = 0; half < 2; half++) {
        test_call forward = {"max_pool2d_with_indices",
                             {value_view(OF(x)), value_ints(2, three),
                              value_ints(2, two), value_ints(2, one),
                              value_ints(2, one), value_bool(0)},
                             6,
                             {OF(y), at[half]},
                             2};
        test_call backward = {"max_pool2d_with_indices_backward",
                              {value_view(OF(gy)), value_view(OF(x)),
                               value_ints(2, three), value_ints(2, two),
                               value_ints(2, one), value_ints(2, one),
                               value_bool(0), value_view(at[half])},
                              8,
                              {OF(gx)},
                              1};

        ck_assert_int_eq(run_call(&forward), CORE_OK);
        ck_assert_int_eq(run_call(&backward), CORE_OK);
    }
    for (int64_t i = 0; i < y.half->view.numel; i++) {
        float got = single_of(((uint16_t *)y.half->data)[i]);
        float want = ((float *)y.single->data)[i];

        ck_assert(got == want || (got != got && want != want));
        ck_assert(((int64_t *)at[0]->data)[i] == ((int64_t *)at[1]->data)[i]);
    }
    /* The window contains 40 and 41; its last NaN, 41, is chosen. */
    ck_assert_int_eq(((int64_t *)at[0]->data)[13 + 1], 41);
    check(&gx, 9);
    pair_free(&x);
    pair_free(&y);
    pair_free(&gx);
    pair_free(&gy);
    tensor_free(at[0]);
    tensor_free(at[1]);
}

START_TEST(max_pooling_values_and_indices_match_f32)
{
    if (!cpu_open_isa(isas[_i]))
        return;
    check_max_pooling();
    cpu_close();
}
END_TEST

static void check_average_pooling(void)
{
    static const int64_t three[] = {3, 3}, two[] = {2, 2}, one[] = {1, 1};
    pair x = PAIR(1, 4, 5, 13, 12), y = PAIR(2, 4, 5, 7, 6);
    pair gx = PAIR(3, 4, 5, 13, 12), gy = PAIR(4, 4, 5, 7, 6);

    for (int half = 0; half < 2; half++) {
        test_call forward = {"avg_pool2d",
                             {value_view(OF(x)), value_ints(2, three),
                              value_ints(2, two), value_ints(2, one),
                              value_bool(0), value_bool(1), value_view(NULL)},
                             7,
                             {OF(y)},
                             1};
        test_call backward = {"avg_pool2d_backward",
                              {value_view(OF(gy)), value_view(OF(x)),
                               value_ints(2, three), value_ints(2, two),
                               value_ints(2, one), value_bool(0), value_bool(1),
                               value_view(NULL)},
                              8,
                              {OF(gx)},
                              1};

        ck_assert_int_eq(run_call(&forward), CORE_OK);
        ck_assert_int_eq(run_call(&backward), CORE_OK);
    }
    check(&y, 9);
    check(&gx, 9);
    pair_free(&x);
    pair_free(&y);
    pair_free(&gx);
    pair_free(&gy);
}

START_TEST(average_pooling_matches_rounded_f32)
{
    if (!cpu_open_isa(isas[_i]))
        return;
    check_average_pooling();
    cpu_close();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        bf16_convolution_bits_do_not_depend_on_threads,
    };
    const suite_loop loops[] = {
        {bf16_convolutions_match_f32, 0, ISAS},
        {max_pooling_values_and_indices_match_f32, 0, ISAS},
        {average_pooling_matches_rounded_f32, 0, ISAS},
    };
    const test_suite suite = {
        .name = "cpu/cpu_bf16_conv",
        .seconds = 120,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
