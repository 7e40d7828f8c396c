/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* f32 convolutions in any layout equal the f64 results up to rounding.  All
 * cases are large enough for the kernels that serve large convolutions. */

#include "support/effort.h"
#include "support/cpu_view.h"

#include <float.h>
#include <stdbool.h>

enum { ISAS = 3, LAYOUTS = 3 };

typedef struct convolution {
    uint32_t ndim; /* spatial dimensions, 1 to 3 */
    int64_t images, channels, filters, groups, in[3], kernel[3];
    int64_t stride[3], padding[3], dilation[3];
    bool transposed, bias;
} convolution;

static const convolution cases[] = {
    /* Padding on both sides, kernels of two sizes, partial rows and columns. */
    {2, 3, 5, 40, 1, {17, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 0, 1},
    {2, 2, 16, 33, 1, {15, 29}, {3, 2}, {2, 1}, {0, 2}, {1, 2}, 0, 0},
    {2, 2, 64, 64, 1, {13, 27}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 0, 1},
    {2, 9, 1, 32, 1, {28, 28}, {5, 5}, {1, 1}, {2, 2}, {1, 1}, 0, 1},
    {2, 2, 20, 50, 1, {24, 30}, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 0, 1},
    {2, 2, 24, 48, 3, {23, 16}, {2, 3}, {1, 2}, {1, 0}, {1, 1}, 0, 1},
    {2, 2, 24, 28, 1, {18, 19}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 1, 1},
    {2, 2, 30, 26, 2, {19, 22}, {2, 2}, {1, 1}, {0, 1}, {2, 1}, 1, 0},
    /* Rows of several tiles; padding up to the maximum, and beyond that of the
     * gradient of the input. */
    {2, 1, 48, 16, 1, {150, 41}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 0, 1},
    {2, 2, 16, 16, 1, {20, 21}, {3, 3}, {1, 1}, {2, 2}, {1, 1}, 0, 1},
    {2, 2, 16, 16, 1, {20, 21}, {3, 3}, {1, 1}, {4, 3}, {1, 1}, 0, 1},
    {2, 2, 16, 16, 1, {1, 40}, {3, 3}, {1, 1}, {1, 9}, {1, 4}, 0, 1},
    {2, 40, 16, 32, 1, {3, 2}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 0, 1},
    /* Fewer positions than filters: half a block of them, and several blocks;
     * one channel and one filter, whose taps are taken in runs. */
    {2, 1, 64, 70, 1, {4, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 0, 1},
    {1, 1, 1, 258, 1, {640}, {256}, {128}, {0}, {1}, 0, 0},
    {1, 2, 1, 100, 1, {96}, {48}, {3}, {1}, {1}, 0, 1},
    {1, 1, 128, 1, 1, {60}, {33}, {1}, {16}, {1}, 0, 1},
    /* Several rows at a time, and rows of the kernel in runs. */
    {2, 3, 20, 40, 1, {21, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 0, 0},
    {2, 1, 3, 48, 1, {30, 29}, {7, 7}, {2, 2}, {3, 3}, {1, 1}, 0, 1},
    {1, 4, 24, 40, 1, {90}, {7}, {1}, {3}, {1}, 0, 1},
    {1, 3, 24, 40, 1, {91}, {4}, {3}, {2}, {2}, 0, 1},
    /* Images of one column. */
    {2, 3, 24, 40, 1, {91, 1}, {7, 1}, {2, 1}, {3, 0}, {1, 1}, 0, 1},
    {2, 3, 24, 40, 2, {60, 1}, {5, 1}, {1, 3}, {2, 0}, {2, 1}, 0, 0},
    {2, 2, 24, 28, 1, {70, 1}, {4, 1}, {2, 1}, {1, 0}, {1, 1}, 1, 1},
    {3,
     2,
     8,
     20,
     1,
     {6, 9, 1},
     {3, 2, 1},
     {1, 1, 1},
     {1, 0, 0},
     {1, 1, 1},
     0,
     1},
    {3,
     2,
     8,
     20,
     1,
     {6, 9, 10},
     {3, 2, 3},
     {1, 1, 1},
     {1, 0, 1},
     {1, 1, 1},
     0,
     1},
    {3,
     2,
     8,
     24,
     2,
     {9, 8, 12},
     {3, 3, 1},
     {2, 1, 1},
     {1, 2, 0},
     {1, 2, 1},
     0,
     0},
};
/* Single channels: each stride, padding on both sides, dilation, large kernels,
 * and rows shorter than a vector. */
static const convolution depthwise[] = {
    {2, 2, 20, 20, 20, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 0, 1},
    {2, 3, 17, 17, 17, {19, 22}, {3, 2}, {2, 3}, {1, 0}, {1, 1}, 0, 1},
    {2, 2, 9, 9, 9, {33, 70}, {5, 7}, {1, 1}, {4, 6}, {1, 1}, 0, 0},
    {2, 2, 9, 9, 9, {20, 21}, {3, 3}, {1, 1}, {4, 3}, {1, 1}, 0, 1},
    {2, 2, 9, 9, 9, {23, 30}, {3, 3}, {2, 1}, {2, 3}, {2, 3}, 0, 1},
    {2, 2, 9, 9, 9, {2, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 0, 1},
    {2, 2, 9, 9, 9, {12, 13}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, 1},
    {2, 2, 9, 9, 9, {12, 13}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 1, 1},
    {1, 2, 9, 9, 9, {400}, {25}, {1}, {12}, {1}, 0, 1},
    {1, 2, 9, 9, 9, {400}, {2}, {4}, {0}, {1}, 0, 1},
    {2, 2, 9, 9, 9, {400, 1}, {25, 1}, {1, 1}, {12, 0}, {1, 1}, 0, 1},
};
/* Fewer positions than filters. */
static const convolution small_images[] = {
    {2, 1, 40, 64, 1, {4, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 0, 1},
    {2, 1, 130, 70, 1, {4, 4}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 0, 1},
    {2, 1, 40, 96, 2, {3, 5}, {2, 3}, {1, 1}, {1, 2}, {1, 2}, 0, 0},
    {2, 1, 64, 48, 1, {4, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, 1},
    {1, 1, 24, 200, 1, {8}, {3}, {1}, {1}, {1}, 0, 1},
    {1, 1, 1, 258, 1, {640}, {256}, {128}, {0}, {1}, 0, 0},
    {3,
     1,
     16,
     40,
     1,
     {2, 3, 4},
     {3, 2, 3},
     {1, 1, 1},
     {1, 1, 1},
     {1, 1, 1},
     0,
     1},
};
enum {
    CASES = sizeof cases / sizeof cases[0],
    SMALL_IMAGES = sizeof small_images / sizeof small_images[0],
    DEPTHWISE = sizeof depthwise / sizeof *depthwise,
    ALL_CASES = CASES + SMALL_IMAGES + DEPTHWISE
};

static const convolution *nth(int i)
{
    if (i < CASES)
        return &cases[i];
    i -= CASES;
    return i < SMALL_IMAGES ? &small_images[i] : &depthwise[i - SMALL_IMAGES];
}

/* 0: row-major; 1: channels last; 2: reversed dimension order, with gaps. */
static tensor *tensor_with_layout(uint32_t ndim, const int64_t *sizes,
                                  int layout)
{
    int64_t strides[TENSOR_NDIM], step = 1;
    tensor *t;

    if (layout == 0)
        return tensor_new(CORE_F32, ndim, sizes);
    if (layout == 1) {
        strides[1] = 1;
        step = sizes[1];
        for (uint32_t d = ndim; d-- > 2; step *= sizes[d])
            strides[d] = step;
        strides[0] = step;
        return tensor_strided(CORE_F32, ndim, sizes, strides);
    }
    t = tensor_new(CORE_F32, ndim, sizes);
    {
        tensor *turned = tensor_turned(t);

        tensor_free(t);
        return turned;
    }
}

/* The same numbers in f64 and in f32. */
typedef struct pair {
    tensor *wide, *single;
} pair;

static pair pair_new(uint32_t ndim, const int64_t *sizes, int layout,
                     uint32_t seed)
{
    pair p = {tensor_new(CORE_F64, ndim, sizes),
              tensor_with_layout(ndim, sizes, layout)};

    for (int64_t i = 0; i < p.wide->view.numel; i++) {
        float x = random_float(&seed) / 4; /* magnitude below 1/4 */

        tensor_set(p.wide, i, (double)x);
        tensor_set(p.single, i, (double)x);
    }
    return p;
}

static void check(const pair *p, const char *what, int64_t sums)
{
    double bound = (double)FLT_EPSILON * (double)(sums + 4);

    for (int64_t i = 0; i < p->wide->view.numel; i++) {
        double got = tensor_get(p->single, i), want = tensor_get(p->wide, i);

        ck_assert_msg(fabs(got - want) <= bound, "%s, %ld: %g, want %g", what,
                      (long)i, got, want);
    }
}

static int64_t out_size(const convolution *c, uint32_t d)
{
    int64_t reach = c->dilation[d] * (c->kernel[d] - 1);

    if (c->transposed)
        return (c->in[d] - 1) * c->stride[d] - 2 * c->padding[d] + reach + 1;
    return (c->in[d] + 2 * c->padding[d] - reach - 1) / c->stride[d] + 1;
}

typedef struct operands {
    pair x, w, b, y, gy, gx, gw, gb;
} operands;

static void operands_new(const convolution *c, int layout, operands *o)
{
    int64_t x[5] = {c->images, c->channels}, y[5] = {c->images, c->filters};
    int64_t w[5] = {c->transposed ? c->channels : c->filters,
                    (c->transposed ? c->filters : c->channels) / c->groups};
    uint32_t ndim = c->ndim + 2;

    for (uint32_t d = 0; d < c->ndim; d++) {
        x[d + 2] = c->in[d];
        y[d + 2] = out_size(c, d);
        w[d + 2] = c->kernel[d];
    }
    o->x = pair_new(ndim, x, layout, 1);
    o->w = pair_new(ndim, w, layout, 2);
    o->b = pair_new(1, &c->filters, 0, 3);
    o->y = pair_new(ndim, y, layout, 4);
    o->gy = pair_new(ndim, y, layout, 5);
    o->gx = pair_new(ndim, x, layout, 6);
    o->gw = pair_new(ndim, w, layout, 7);
    o->gb = pair_new(1, &c->filters, 0, 8);
}

static void operands_free(operands *o)
{
    pair *all = &o->x;

    for (int i = 0; i < 8; i++) {
        tensor_free(all[i].wide);
        tensor_free(all[i].single);
    }
}

static void run(const convolution *c, operands *o, bool wide)
{
    static const int64_t none[] = {0, 0, 0};
#define OF(p) (wide ? o->p.wide : o->p.single)
#define GEOMETRY                                                     \
    value_ints(c->ndim, c->stride), value_ints(c->ndim, c->padding), \
        value_ints(c->ndim, c->dilation), value_bool(c->transposed), \
        value_ints(c->ndim, none), value_int(c->groups)
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

START_TEST(f32_convolutions_match_f64)
{
    for (int i = 0; i < ALL_CASES; i += effort_is_slow() ? 3 : 1)
        for (int layout = 0; layout < LAYOUTS; layout++) {
            const convolution *c = nth(i);
            int64_t taps = 1, positions = c->images;
            operands o;

            if (!cpu_open_isa(cpu_isas[_i]))
                return;
            operands_new(c, layout, &o);
            for (uint32_t d = 0; d < c->ndim; d++) {
                taps *= c->kernel[d];
                positions *= out_size(c, d);
            }
            run(c, &o, false);
            run(c, &o, true);
            check(&o.y, "result", c->channels * taps);
            check(&o.gx, "gradient of the input", c->filters * taps);
            check(&o.gw, "gradient of the weight", positions);
            check(&o.gb, "gradient of the bias", positions);
            operands_free(&o);
            cpu_close();
        }
}
END_TEST

/* Outputs as large as the input are read as shifted images; those of one more
 * row and column on each side are not. */
static void check_borders(const int64_t *in, const int64_t *kernel,
                          int64_t dilation)
{
    enum { IMAGES = 2, CHANNELS = 3, FILTERS = 5 };
    static const int64_t none[] = {0, 0}, one[] = {1, 1};
    const int64_t steps[] = {dilation, dilation};
    const int64_t pad[] = {dilation * (kernel[0] - 1) / 2,
                           dilation * (kernel[1] - 1) / 2};
    const int64_t more[] = {pad[0] + 1, pad[1] + 1};
    int64_t width = in[1] + 2, height = in[0] + 2;
    tensor *x = tensor_random(F64(IMAGES, CHANNELS, in[0], in[1]), 1);
    tensor *w = tensor_random(F64(FILTERS, CHANNELS, kernel[0], kernel[1]), 2);
    tensor *y = F64(IMAGES, FILTERS, in[0], in[1]);
    tensor *larger = F64(IMAGES, FILTERS, height, width);
    test_call call = {"convolution",
                      {value_view(x), value_view(w), value_view(NULL),
                       value_ints(2, one), value_ints(2, pad),
                       value_ints(2, steps), value_bool(0), value_ints(2, none),
                       value_int(1)},
                      9,
                      {y},
                      1};

    ck_assert_int_eq(run_call(&call), CORE_OK);
    call.args[4] = value_ints(2, more);
    call.results[0] = larger;
    ck_assert_int_eq(run_call(&call), CORE_OK);
    for (int64_t i = 0; i < y->view.numel; i++) {
        int64_t at =
            (i / in[1] / in[0] * height + i / in[1] % in[0] + 1) * width +
            i % in[1] + 1;

        ck_assert(fabs(tensor_get(y, i) - tensor_get(larger, at)) < 1e-12);
    }
    tensor_free(x);
    tensor_free(w);
    tensor_free(y);
    tensor_free(larger);
}

START_TEST(borders_are_those_of_a_larger_output)
{
    static const int64_t in[][2] = {{1, 1}, {2, 9}, {5, 1}, {17, 16}};
    static const int64_t kernels[][2] = {{3, 3}, {5, 1}, {1, 7}};

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 3; k++)
            for (int64_t dilation = 1; dilation < 3; dilation++)
                check_borders(in[i], kernels[k], dilation);
    cpu_close();
}
END_TEST

/* An infinite element is part of some sums, and of no others. */
START_TEST(infinite_inputs_of_single_channels_give_infinite_gradients)
{
    for (int i = 0; i < DEPTHWISE; i++) {
        const convolution *c = &depthwise[i];
        operands o;

        if (c->transposed)
            continue;
        if (!cpu_open_isa(cpu_isas[_i]))
            return;
        operands_new(c, 0, &o);
        tensor_set(o.x.wide, c->in[c->ndim - 1] - 1, INFINITY);
        tensor_set(o.x.single, c->in[c->ndim - 1] - 1, INFINITY);
        run(c, &o, false);
        run(c, &o, true);
        for (int64_t k = 0; k < o.gw.wide->view.numel; k++) {
            double got = tensor_get(o.gw.single, k);
            double want = tensor_get(o.gw.wide, k);

            ck_assert_msg(isfinite(want) ? isfinite(got) : got == want,
                          "case %d, weight %ld: %g, want %g", i, (long)k, got,
                          want);
        }
        operands_free(&o);
        cpu_close();
    }
}
END_TEST

/* An infinite weight is part of the sums that read it, and not of those of which
 * it lies in the padding. */
START_TEST(infinite_weights_of_single_channels_stay_in_their_sums)
{
    for (int i = 0; i < DEPTHWISE; i++) {
        const convolution *c = &depthwise[i];
        const pair *result;
        operands o;

        if (!cpu_open_isa(cpu_isas[_i]))
            return;
        operands_new(c, 0, &o);
        tensor_set(o.w.wide, 0, INFINITY);
        tensor_set(o.w.single, 0, INFINITY);
        run(c, &o, false);
        run(c, &o, true);
        result = c->transposed ? &o.y : &o.gx;
        for (int64_t k = 0; k < result->wide->view.numel; k++) {
            double got = tensor_get(result->single, k);
            double want = tensor_get(result->wide, k);

            ck_assert_msg(
                isnan(want) == isnan(got) && isfinite(want) == isfinite(got),
                "case %d, element %ld: %g, want %g", i, (long)k, got, want);
        }
        operands_free(&o);
        cpu_close();
    }
}
END_TEST

static void same_start(const tensor *one, const tensor *many, const char *what)
{
    for (int64_t i = 0; i < one->view.numel; i++) {
        double have = tensor_get(many, i), want = tensor_get(one, i);

        ck_assert_msg(memcmp(&have, &want, sizeof have) == 0,
                      "%s, %ld: %a, alone %a", what, (long)i, have, want);
    }
}

/* Alone, an image has fewer positions than there are filters, and its weights
 * are used in place; in a large batch they are packed. */
START_TEST(image_has_the_same_bits_in_a_large_batch)
{
    for (int i = 0; i < SMALL_IMAGES; i++) {
        convolution many = small_images[i];
        operands one, all;

        if (!cpu_open_isa(cpu_isas[_i]))
            return;
        many.images = 64;
        operands_new(&small_images[i], i % LAYOUTS, &one);
        operands_new(&many, i % LAYOUTS, &all);
        run(&small_images[i], &one, false);
        run(&many, &all, false);
        same_start(one.y.single, all.y.single, "result");
        same_start(one.gx.single, all.gx.single, "gradient of the input");
        operands_free(&one);
        operands_free(&all);
        cpu_close();
    }
}
END_TEST

static uint64_t bits_of(uint64_t hash, const tensor *t)
{
    for (int64_t i = 0; i < t->view.numel; i++) {
        uint32_t bits;

        memcpy(&bits, (float *)t->data + tensor_offset(t, i), 4);
        hash = (hash ^ bits) * 1099511628211u;
    }
    return hash;
}

START_TEST(f32_convolution_bits_do_not_depend_on_threads)
{
    uint64_t first = 0;

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (uint32_t threads = 1; threads <= 5; threads += 2) {
        uint64_t hash = 14695981039346656037u;

        cpu_threads(threads);
        for (int i = 0; i < ALL_CASES; i += effort_is_slow() ? 3 : 1) {
            const convolution *c = nth(i);
            operands o;

            operands_new(c, i % LAYOUTS, &o);
            run(c, &o, false);
            hash = bits_of(hash, o.y.single);
            hash = bits_of(hash, o.gx.single);
            hash = bits_of(hash, o.gw.single);
            hash = bits_of(hash, o.gb.single);
            operands_free(&o);
        }
        if (threads == 1)
            first = hash;
        ck_assert(hash == first);
    }
    cpu_close();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        f32_convolution_bits_do_not_depend_on_threads,
    };
    const suite_loop loops[] = {
        {f32_convolutions_match_f64, 0, ISAS},
        {borders_are_those_of_a_larger_output, 0, 1},
        {image_has_the_same_bits_in_a_large_batch, 0, ISAS},
        {infinite_inputs_of_single_channels_give_infinite_gradients, 0, ISAS},
        {infinite_weights_of_single_channels_stay_in_their_sums, 0, ISAS},
    };
    const test_suite suite = {
        .name = "cpu/cpu_conv",
        .seconds = 120,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
        .one_thread = true,
    };

    return suite_run(&suite, 1);
}
