/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The gradient kernels against finite differences of the forward kernels. */

#include "support/cpu_view.h"

/* sum(cotangent * forward) with one input element changed by h. */
static double loss_at(const test_call *forward, tensor *input, int64_t element,
                      double h, const tensor *cotangent)
{
    double before = tensor_get(input, element), loss = 0;

    tensor_set(input, element, before + h);
    ck_assert_int_eq(run_call(forward), CORE_OK);
    tensor_set(input, element, before);
    for (int64_t i = 0; i < cotangent->view.numel; i++)
        loss += tensor_get(cotangent, i) * tensor_get(forward->results[0], i);
    return loss;
}

/* Compares the gradient by one input with finite differences. */
static void check_gradient(const test_call *forward, tensor *input,
                           const tensor *cotangent, const tensor *gradient)
{
    const double h = 1e-6;

    for (int64_t i = 0; i < input->view.numel; i++) {
        double above = loss_at(forward, input, i, h, cotangent);
        double below = loss_at(forward, input, i, -h, cotangent);
        double want = (above - below) / (2 * h);
        double got = tensor_get(gradient, i);

        ck_assert_msg(fabs(got - want) < 2e-7 * (1 + fabs(want)),
                      "%s: element %ld of an input: gradient %g, want %g",
                      forward->name, (long)i, got, want);
    }
    ck_assert_int_eq(run_call(forward), CORE_OK);
}

/* ------------------------------------------------------------------ rows -- */

static void softmax(const char *name, const char *gradient, int dim)
{
    tensor *x = tensor_random(F64(3, 4, 5), 1), *y = F64(3, 4, 5);
    tensor *g = tensor_random(F64(3, 4, 5), 2), *gx = F64(3, 4, 5);
    test_call forward = {
        name, {value_view(x), value_int(dim), value_bool(0)}, 3, {y}, 1};
    test_call backward = {
        gradient, {value_view(g), value_view(y), value_int(dim)}, 4, {gx}, 1};

    ck_assert_int_eq(run_call(&forward), CORE_OK);
    ck_assert_int_eq(run_call(&backward), CORE_OK);
    check_gradient(&forward, x, g, gx);
    tensor_free(x);
    tensor_free(y);
    tensor_free(g);
    tensor_free(gx);
}

START_TEST(softmax_gradient_is_correct_in_any_dimension)
{
    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int dim = 0; dim < 3; dim++) {
        softmax("_softmax", "_softmax_backward_data", dim);
        softmax("_log_softmax", "_log_softmax_backward_data", dim);
    }
    cpu_close();
}
END_TEST

START_TEST(nll_loss_gradient_is_correct)
{
    tensor *x = tensor_random(F64(4, 5, 3), 1), *w = F64(5);
    tensor *target = tensor_below(I64(4, 3), 5, 2), *gx = F64(4, 5, 3);

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int i = 0; i < 5; i++)
        tensor_set(w, i, 0.5 + i);
    tensor_set(target, 4, -100);
    for (int reduction = 0; reduction < 3; reduction++) {
        int64_t sizes[] = {4, 3};
        tensor *y = tensor_new(CORE_F64, reduction ? 0 : 2, sizes);
        tensor *g = tensor_new(CORE_F64, reduction ? 0 : 2, sizes);
        tensor *total = tensor_new(CORE_F64, 0, NULL);
        test_call forward = {"nll_loss2d_forward",
                             {value_view(x), value_view(target), value_view(w),
                              value_int(reduction), value_int(-100)},
                             5,
                             {y, total},
                             2};
        test_call backward = {"nll_loss2d_backward",
                              {value_view(g), value_view(x), value_view(target),
                               value_view(w), value_int(reduction),
                               value_int(-100), value_view(total)},
                              7,
                              {gx},
                              1};

        tensor_random(g, 7);
        ck_assert_int_eq(run_call(&forward), CORE_OK);
        ck_assert_int_eq(run_call(&backward), CORE_OK);
        check_gradient(&forward, x, g, gx);
        tensor_free(y);
        tensor_free(g);
        tensor_free(total);
    }
    tensor_free(x);
    tensor_free(w);
    tensor_free(target);
    tensor_free(gx);
    cpu_close();
}
END_TEST

/* ----------------------------------------------------------------- norms -- */

/* Tensors shared by the tests of the three normalizations. */
typedef struct norm {
    tensor *x, *w, *b, *y, *mean, *spread, *g, *gx, *gw, *gb;
} norm;

static norm norm_new(uint32_t ndim, const int64_t *sizes, int64_t weights,
                     int64_t statistics)
{
    norm n = {.x = tensor_random(tensor_new(CORE_F64, ndim, sizes), 1),
              .w = tensor_random(F64(weights), 2),
              .b = tensor_random(F64(weights), 3),
              .y = tensor_new(CORE_F64, ndim, sizes),
              .mean = F64(statistics),
              .spread = F64(statistics),
              .g = tensor_random(tensor_new(CORE_F64, ndim, sizes), 4),
              .gx = tensor_new(CORE_F64, ndim, sizes),
              .gw = F64(weights),
              .gb = F64(weights)};
    return n;
}

static void norm_check(norm *n, const test_call *forward,
                       const test_call *backward)
{
    ck_assert_int_eq(run_call(forward), CORE_OK);
    ck_assert_int_eq(run_call(backward), CORE_OK);
    check_gradient(forward, n->x, n->g, n->gx);
    check_gradient(forward, n->w, n->g, n->gw);
    check_gradient(forward, n->b, n->g, n->gb);
    for (size_t k = 0; k < sizeof(*n) / sizeof(tensor *); k++)
        tensor_free(((tensor **)n)[k]);
}

static void check_layer_norm(void)
{
    norm n = norm_new(SIZES(70, 3, 2), 6, 70);
    test_call forward = {"native_layer_norm",
                         {value_view(n.x), INTS(3, 2), value_view(n.w),
                          value_view(n.b), value_float(1e-5)},
                         5,
                         {n.y, n.mean, n.spread},
                         3};
    test_call backward = {"native_layer_norm_backward",
                          {value_view(n.g), value_view(n.x), INTS(3, 2),
                           value_view(n.mean), value_view(n.spread),
                           value_view(n.w), value_view(n.b), value_mask()},
                          8,
                          {n.gx, n.gw, n.gb},
                          3};

    norm_check(&n, &forward, &backward);
}

START_TEST(layer_norm_gradients_are_correct)
{
    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    check_layer_norm();
    cpu_close();
}
END_TEST

static void check_group_norm(void)
{
    norm n = norm_new(SIZES(2, 6, 5), 6, 4);
    test_call forward = {"native_group_norm",
                         {value_view(n.x), value_view(n.w), value_view(n.b),
                          value_int(2), value_int(6), value_int(5),
                          value_int(2), value_float(1e-5)},
                         8,
                         {n.y, n.mean, n.spread},
                         3};
    test_call backward = {"native_group_norm_backward",
                          {value_view(n.g), value_view(n.x), value_view(n.mean),
                           value_view(n.spread), value_view(n.w), value_int(2),
                           value_int(6), value_int(5), value_int(2),
                           value_mask()},
                          10,
                          {n.gx, n.gw, n.gb},
                          3};

    norm_check(&n, &forward, &backward);
}

START_TEST(group_norm_gradients_are_correct)
{
    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    check_group_norm();
    cpu_close();
}
END_TEST

START_TEST(batch_norm_gradients_are_correct)
{
    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int k = 0; k < 4; k++) { /* short and long rows per channel */
        int training = k % 2;
        norm n = norm_new(SIZES(4, 3, k < 2 ? 5 : 20), 3, 3);
        tensor *mean = tensor_random(F64(3), 8), *var = F64(3);
        test_call forward = {"native_batch_norm",
                             {value_view(n.x), value_view(n.w), value_view(n.b),
                              value_view(mean), value_view(var),
                              value_bool(training), value_float(0),
                              value_float(1e-5)},
                             8,
                             {n.y, n.mean, n.spread},
                             3};
        test_call backward = {"native_batch_norm_backward",
                              {value_view(n.g), value_view(n.x),
                               value_view(n.w), value_view(mean),
                               value_view(var), value_view(n.mean),
                               value_view(n.spread), value_bool(training),
                               value_float(1e-5), value_mask()},
                              10,
                              {n.gx, n.gw, n.gb},
                              3};

        for (int i = 0; i < 3; i++)
            tensor_set(var, i, 0.5 + i);
        norm_check(&n, &forward, &backward);
        tensor_free(mean);
        tensor_free(var);
    }
    cpu_close();
}
END_TEST

/* Arguments of batch normalization without training; the variance is not
 * negative. */
typedef struct known_norm {
    tensor *weight, *bias, *mean, *var;
} known_norm;

static double known_of(const known_norm *n, int64_t c, double x)
{
    return (x - tensor_get(n->mean, c)) / sqrt(tensor_get(n->var, c) + 1e-5) *
               tensor_get(n->weight, c) +
           tensor_get(n->bias, c);
}

/* With `saved` elements for each of the statistics, 0 or as many as channels. */
static void check_known(const known_norm *n, core_dtype dtype, int64_t inner,
                        int64_t saved)
{
    const int64_t sizes[] = {3, 5, inner};
    double unit = dtype == CORE_F32 ? 1e-6 : dtype == CORE_F16 ? 1e-3 : 8e-3;
    tensor *x = tensor_random(tensor_new(dtype, 3, sizes), 1);
    tensor *y = tensor_new(dtype, 3, sizes);
    tensor *mean = F32(saved), *invstd = F32(saved);
    test_call call = {"native_batch_norm",
                      {value_view(x), value_view(n->weight),
                       value_view(n->bias), value_view(n->mean),
                       value_view(n->var), value_bool(0), value_float(0.1),
                       value_float(1e-5)},
                      8,
                      {y, mean, invstd},
                      3};

    ck_assert_int_eq(run_call(&call), CORE_OK);
    for (int64_t i = 0; i < x->view.numel; i++) {
        double want = known_of(n, i / inner % 5, tensor_get(x, i));

        ck_assert_msg(fabs(tensor_get(y, i) - want) <= unit * (1 + fabs(want)),
                      "dtype %u, runs of %d: element %d is %g, not %g", dtype,
                      (int)inner, (int)i, tensor_get(y, i), want);
    }
    tensor_free(x);
    tensor_free(y);
    tensor_free(mean);
    tensor_free(invstd);
}

/* Short runs by channel, long ones in the order of memory. */
START_TEST(batch_norm_of_known_statistics_is_correct)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F16, CORE_BF16};
    static const int64_t inner[] = {1, 15, 16, 20, 33};
    known_norm n = {tensor_random(F32(5), 2), tensor_random(F32(5), 3),
                    tensor_random(F32(5), 4), F32(5)};

    if (cpu_open_isa(cpu_isas[_i])) {
        for (int c = 0; c < 5; c++)
            tensor_set(n.var, c, c);
        for (uint32_t threads = 1; threads < 4; threads += 2) {
            cpu_threads(threads);
            for (int d = 0; d < 3; d++)
                for (size_t k = 0; k < sizeof inner / sizeof *inner; k++) {
                    check_known(&n, dtypes[d], inner[k], 0);
                    check_known(&n, dtypes[d], inner[k], 5);
                }
        }
        cpu_close();
    }
    tensor_free(n.weight);
    tensor_free(n.bias);
    tensor_free(n.mean);
    tensor_free(n.var);
}
END_TEST

START_TEST(batch_norm_updates_its_running_statistics)
{
    tensor *x = F32(2, 1, 2), *y = F32(2, 1, 2), *mean = F32(1);
    tensor *var = F32(1), *saved_mean = F32(1), *saved = F32(1);
    test_call forward = {"native_batch_norm",
                         {value_view(x), value_view(NULL), value_view(NULL),
                          value_view(mean), value_view(var), value_bool(1),
                          value_float(0.5), value_float(0)},
                         8,
                         {y, saved_mean, saved},
                         3};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int i = 0; i < 4; i++)
        tensor_set(x, i, i); /* mean 1.5, variance 1.25, unbiased 5/3 */
    tensor_set(var, 0, 1);
    ck_assert_int_eq(run_call(&forward), CORE_OK);
    ck_assert(tensor_get(mean, 0) == 0.75);
    ck_assert(fabs(tensor_get(var, 0) - (0.5 + 5.0 / 6)) < 1e-6);
    tensor_free(x);
    tensor_free(y);
    tensor_free(mean);
    tensor_free(var);
    tensor_free(saved_mean);
    tensor_free(saved);
    cpu_close();
}
END_TEST

/* ----------------------------------------------------------- convolution -- */

/* Sizes of input, weight and output, each with ndim dimensions. */
typedef struct conv_case {
    uint32_t ndim;
    int64_t x[5], w[5], y[5];
    int64_t stride[3], padding[3], dilation[3];
    int transposed, groups;
} conv_case;

static const conv_case convolutions[] = {
    {3, {2, 4, 9}, {6, 4, 3}, {2, 6, 5}, {2}, {1}, {1}, 0, 1},
    {4, {2, 4, 6, 7}, {6, 2, 3, 2}, {2, 6, 3, 8}, {2, 1}, {1, 1}, {1, 1}, 0, 2},
    {4, {3, 2, 5, 6}, {3, 2, 1, 1}, {3, 3, 5, 6}, {1, 1}, {0, 0}, {1, 1}, 0, 1},
    {4, {2, 2, 7, 8}, {4, 1, 2, 3}, {2, 4, 3, 6}, {2, 1}, {0, 1}, {2, 2}, 0, 2},
    {5,
     {1, 2, 3, 4, 3},
     {2, 2, 2, 2, 3},
     {1, 2, 2, 3, 3},
     {1, 1, 1},
     {0, 0, 1},
     {1, 1, 1},
     0,
     1},
    {4, {2, 4, 3, 4}, {4, 3, 3, 2}, {2, 3, 5, 7}, {2, 2}, {1, 1}, {1, 2}, 1, 1},
    {4, {2, 4, 3, 3}, {4, 1, 3, 3}, {2, 2, 5, 5}, {1, 1}, {0, 0}, {1, 1}, 1, 2},
};

START_TEST(convolution_gradients_are_correct)
{
    const conv_case *c = &convolutions[_i];
    uint32_t n = c->ndim, spatial = n - 2;
    int64_t filters = c->y[1];
    tensor *x = tensor_random(tensor_new(CORE_F64, n, c->x), 1);
    tensor *w = tensor_random(tensor_new(CORE_F64, n, c->w), 2);
    tensor *b = tensor_random(F64(filters), 3);
    tensor *y = tensor_new(CORE_F64, n, c->y), *gx = F64(1);
    tensor *g = tensor_random(tensor_new(CORE_F64, n, c->y), 4);
    tensor *gw = tensor_new(CORE_F64, n, c->w), *gb = F64(filters);
    core_value zero = value_ints(0, NULL);
    test_call forward = {
        "convolution",
        {value_view(x), value_view(w), value_view(b),
         value_ints(spatial, c->stride), value_ints(spatial, c->padding),
         value_ints(spatial, c->dilation), value_bool(c->transposed), zero,
         value_int(c->groups)},
        9,
        {y},
        1};
    test_call backward = {
        "convolution_backward",
        {value_view(g), value_view(x), value_view(w), zero,
         value_ints(spatial, c->stride), value_ints(spatial, c->padding),
         value_ints(spatial, c->dilation), value_bool(c->transposed), zero,
         value_int(c->groups), value_mask()},
        11,
        {NULL, gw, gb},
        3};

    tensor_free(gx);
    gx = backward.results[0] = tensor_new(CORE_F64, n, c->x);
    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    cpu_threads(3);
    ck_assert_int_eq(run_call(&forward), CORE_OK);
    ck_assert_int_eq(run_call(&backward), CORE_OK);
    check_gradient(&forward, x, g, gx);
    check_gradient(&forward, w, g, gw);
    check_gradient(&forward, b, g, gb);
    for (uint32_t k = 0; k < 3; k++)
        tensor_free(backward.results[k]);
    tensor_free(x);
    tensor_free(w);
    tensor_free(b);
    tensor_free(y);
    tensor_free(g);
    cpu_close();
}
END_TEST

/* ------------------------------------------ pooling, padding, sampling -- */

/* Checks forward and gradient of an operator with one input. */
static void check_one_input(test_call *forward, test_call *backward, tensor *x,
                            tensor *g, tensor *gx)
{
    ck_assert_int_eq(run_call(forward), CORE_OK);
    ck_assert_int_eq(run_call(backward), CORE_OK);
    check_gradient(forward, x, g, gx);
    tensor_free(x);
    tensor_free(g);
    tensor_free(gx);
    for (uint32_t k = 0; k < forward->nresults; k++)
        tensor_free(forward->results[k]);
}

START_TEST(pooling_gradients_are_correct)
{
    core_value size = INTS(3, 2), stride = INTS(2, 2), padding = INTS(1, 0);
    core_value one = INTS(1, 2), none = {0};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    {
        tensor *x = tensor_random(F64(2, 3, 7, 9), 1), *at = I64(2, 3, 4, 4);
        tensor *g = tensor_random(F64(2, 3, 4, 4), 2), *gx = F64(2, 3, 7, 9);
        test_call forward = {
            "max_pool2d_with_indices",
            {value_view(x), size, stride, padding, one, value_bool(0)},
            6,
            {F64(2, 3, 4, 4), at},
            2};
        test_call backward = {"max_pool2d_with_indices_backward",
                              {value_view(g), value_view(x), size, stride,
                               padding, one, value_bool(0), value_view(at)},
                              8,
                              {gx},
                              1};

        check_one_input(&forward, &backward, x, g, gx);
    }
    for (int include = 0; include < 2; include++) {
        tensor *x = tensor_random(F64(2, 7, 8), 1), *gx = F64(2, 7, 8);
        tensor *g = tensor_random(F64(2, 4, 4), 2);
        test_call forward = {"avg_pool2d",
                             {value_view(x), size, stride, padding,
                              value_bool(0), value_bool(include), none},
                             7,
                             {F64(2, 4, 4)},
                             1};
        test_call backward = {"avg_pool2d_backward",
                              {value_view(g), value_view(x), size, stride,
                               padding, value_bool(0), value_bool(include),
                               none},
                              8,
                              {gx},
                              1};

        check_one_input(&forward, &backward, x, g, gx);
    }
    {
        tensor *x = tensor_random(F64(2, 3, 7, 5), 1), *gx = F64(2, 3, 7, 5);
        tensor *g = tensor_random(F64(2, 3, 3, 4), 2);
        test_call forward = {"_adaptive_avg_pool2d",
                             {value_view(x), INTS(3, 4)},
                             2,
                             {F64(2, 3, 3, 4)},
                             1};
        test_call backward = {"_adaptive_avg_pool2d_backward",
                              {value_view(g), value_view(x)},
                              2,
                              {gx},
                              1};

        check_one_input(&forward, &backward, x, g, gx);
    }
    {
        tensor *x = tensor_random(F64(2, 3, 7, 5), 1), *gx = F64(2, 3, 7, 5);
        tensor *g = tensor_random(F64(2, 3, 3, 4), 2), *at = I64(2, 3, 3, 4);
        test_call forward = {"adaptive_max_pool2d",
                             {value_view(x), INTS(3, 4)},
                             2,
                             {F64(2, 3, 3, 4), at},
                             2};
        test_call backward = {"adaptive_max_pool2d_backward",
                              {value_view(g), value_view(x), value_view(at)},
                              3,
                              {gx},
                              1};

        check_one_input(&forward, &backward, x, g, gx);
    }
    cpu_close();
}
END_TEST

/* Window (h, w) of 3 x 2 elements, 2 apart along w, from the borders on. */
static double window_of(const tensor *x, int64_t plane, int64_t h, int64_t w,
                        bool average, int64_t *out_index)
{
    int64_t height = x->sizes[1], width = x->sizes[2], n = 0;
    int64_t step = average ? 1 : 2;
    double most = -INFINITY, sum = 0;

    *out_index = -1;
    for (int64_t i = 2 * h - 1; i < 2 * h + 2; i++)
        for (int64_t j = 2 * w; j <= 2 * w + step; j += step) {
            double value;

            if (i < 0 || i >= height)
                continue;
            value = tensor_get(x, (plane * height + i) * width + j);
            sum += value;
            n++;
            if (*out_index < 0 || value > most || isnan(value)) {
                most = value;
                *out_index = i * width + j;
            }
        }
    return average ? tensor_rounded(x, sum / (double)n) : most;
}

/* More planes than are computed at once; the first of equal maxima counts, and
 * NaN above all. */
START_TEST(windows_of_pooling_have_their_maximum_and_average)
{
    enum { PLANES = 30, H = 33, W = 40, OUT_H = 17, OUT_W = 19 };
    static const core_dtype dtypes[] = {CORE_F32, CORE_F64};
    const int64_t in[] = {PLANES, H, W}, out[] = {PLANES, OUT_H, OUT_W};
    tensor *x = tensor_below(tensor_new(dtypes[_i], 3, in), 5, 1);
    tensor *y = tensor_new(dtypes[_i], 3, out), *at = I64(PLANES, OUT_H, OUT_W);
    core_value size = INTS(3, 2), stride = INTS(2, 2), padding = INTS(1, 0);
    core_value none = {0};
    const test_call calls[] = {
        {"max_pool2d_with_indices",
         {value_view(x), size, stride, padding, INTS(1, 2), value_bool(0)},
         6,
         {y, at},
         2},
        {"avg_pool2d",
         {value_view(x), size, stride, padding, value_bool(0), value_bool(0),
          none},
         7,
         {y},
         1}};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int64_t i = 0; i < x->view.numel; i += 97)
        tensor_set(x, i, i % 2 == 0 ? NAN : -INFINITY);
    for (int k = 0; k < 4; k++) {
        cpu_threads(k < 2 ? 1 : 3);
        ck_assert_int_eq(run_call(&calls[k % 2]), CORE_OK);
        for (int64_t i = 0; i < y->view.numel; i++) {
            int64_t index;
            double want = window_of(x, i / (OUT_H * OUT_W), i / OUT_W % OUT_H,
                                    i % OUT_W, k % 2 == 1, &index);
            double got = tensor_get(y, i);

            ck_assert(got == want || (isnan(got) && isnan(want)));
            ck_assert(k % 2 == 1 || tensor_get(at, i) == (double)index);
        }
    }
    tensor_free(x);
    tensor_free(y);
    tensor_free(at);
    cpu_close();
}
END_TEST

START_TEST(padding_gradients_are_correct)
{
    static const char *const names[][2] = {
        {"reflection_pad2d", "reflection_pad2d_backward"},
        {"replication_pad2d", "replication_pad2d_backward"}};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int k = 0; k < 2; k++) {
        tensor *x = tensor_random(F64(2, 4, 5), 1), *gx = F64(2, 4, 5);
        tensor *g = tensor_random(F64(2, 8, 8), 2);
        test_call forward = {names[k][0],
                             {value_view(x), INTS(2, 1, 3, 1)},
                             2,
                             {F64(2, 8, 8)},
                             1};
        test_call backward = {names[k][1],
                              {value_view(g), value_view(x), INTS(2, 1, 3, 1)},
                              3,
                              {gx},
                              1};

        check_one_input(&forward, &backward, x, g, gx);
    }
    cpu_close();
}
END_TEST

static void upsample(const char *name, const char *gradient, int nearest,
                     int align)
{
    tensor *x = tensor_random(F64(2, 2, 4, 5), 1), *gx = F64(2, 2, 4, 5);
    tensor *g = tensor_random(F64(2, 2, 7, 9), 2);
    core_value none = {0}, size = INTS(7, 9);
    test_call forward = {
        name, {value_view(x), size}, nearest ? 4 : 5, {F64(2, 2, 7, 9)}, 1};
    test_call backward = {gradient,
                          {value_view(g), size, INTS(2, 2, 4, 5)},
                          nearest ? 5 : 6,
                          {gx},
                          1};

    for (int k = 2; k < 6; k++)
        forward.args[k] = backward.args[k + 1] = none;
    if (!nearest)
        forward.args[2] = backward.args[3] = value_bool(align);
    check_one_input(&forward, &backward, x, g, gx);
}

START_TEST(upsampling_gradients_are_correct)
{
    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    upsample("upsample_nearest2d", "upsample_nearest2d_backward", 1, 0);
    for (int align = 0; align < 2; align++) {
        upsample("upsample_bilinear2d", "upsample_bilinear2d_backward", 0,
                 align);
        upsample("upsample_bicubic2d", "upsample_bicubic2d_backward", 0, align);
    }
    cpu_close();
}
END_TEST

START_TEST(grid_sampling_gradients_are_correct)
{
    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int mode = 0; mode < 3; mode++)
        for (int padding = 0; padding < 3; padding++)
            for (int align = 0; align < 2; align++) {
                tensor *x = tensor_random(F64(2, 2, 4, 5), 1);
                tensor *grid = tensor_random(F64(2, 3, 3, 2), 2);
                tensor *y = F64(2, 2, 3, 3), *gx = F64(2, 2, 4, 5);
                tensor *g = tensor_random(F64(2, 2, 3, 3), 3);
                tensor *ggrid = F64(2, 3, 3, 2);
                test_call forward = {"grid_sampler_2d",
                                     {value_view(x), value_view(grid),
                                      value_int(mode), value_int(padding),
                                      value_bool(align)},
                                     5,
                                     {y},
                                     1};
                test_call backward = {"grid_sampler_2d_backward",
                                      {value_view(g), value_view(x),
                                       value_view(grid), value_int(mode),
                                       value_int(padding), value_bool(align),
                                       value_mask()},
                                      7,
                                      {gx, ggrid},
                                      2};

                for (int64_t i = 0; i < grid->view.numel; i++)
                    tensor_set(grid, i, 1.6 * tensor_get(grid, i));
                ck_assert_int_eq(run_call(&forward), CORE_OK);
                ck_assert_int_eq(run_call(&backward), CORE_OK);
                check_gradient(&forward, x, g, gx);
                check_gradient(&forward, grid, g, ggrid);
                tensor_free(x);
                tensor_free(grid);
                tensor_free(y);
                tensor_free(g);
                tensor_free(gx);
                tensor_free(ggrid);
            }
    cpu_close();
}
END_TEST

START_TEST(embedding_gradient_is_correct)
{
    tensor *w = tensor_random(F64(6, 3), 1), *gw = F64(6, 3);
    tensor *at = tensor_below(I64(4, 5), 6, 2), *y = F64(4, 5, 3);
    tensor *g = tensor_random(F64(4, 5, 3), 3);
    test_call forward = {"embedding",
                         {value_view(w), value_view(at), value_int(-1),
                          value_bool(0), value_bool(0)},
                         5,
                         {y},
                         1};
    test_call backward = {"embedding_dense_backward",
                          {value_view(g), value_view(at), value_int(6),
                           value_int(-1), value_bool(0)},
                          5,
                          {gw},
                          1};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    ck_assert_int_eq(run_call(&backward), CORE_OK);
    check_gradient(&forward, w, g, gw);
    tensor_free(w);
    tensor_free(gw);
    tensor_free(at);
    tensor_free(y);
    tensor_free(g);
    cpu_close();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        softmax_gradient_is_correct_in_any_dimension,
        nll_loss_gradient_is_correct,
        batch_norm_gradients_are_correct,
        batch_norm_updates_its_running_statistics,
        pooling_gradients_are_correct,
        padding_gradients_are_correct,
        upsampling_gradients_are_correct,
        grid_sampling_gradients_are_correct,
        embedding_gradient_is_correct,
    };
    const suite_loop loops[] = {
        {layer_norm_gradients_are_correct, 0, 3},
        {group_norm_gradients_are_correct, 0, 3},
        {batch_norm_of_known_statistics_is_correct, 0, 3},
        {windows_of_pooling_have_their_maximum_and_average, 0, 2},
        {convolution_gradients_are_correct, 0,
         sizeof(convolutions) / sizeof(convolutions[0])},
    };
    const test_suite suite = {
        .name = "cpu/cpu_view_gradients",
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
