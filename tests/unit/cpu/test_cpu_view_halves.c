/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Kernels that convert f16 and bf16 where they use them give the rounded
 * results of f32; each loop runs once per instruction set. */

#include "support/cpu_view.h"

#include <expressions/number.h>
#include <expressions/philox.h>

static const core_dtype halves[] = {CORE_F16, CORE_BF16};

static uint16_t half_of(core_dtype dtype, float x)
{
    return dtype == CORE_F16 ? math_f16_of_f32(x) : math_bf16_of_f32(x);
}

static float float_of(core_dtype dtype, uint16_t x)
{
    return dtype == CORE_F16 ? math_f32_of_f16(x) : math_f32_of_bf16(x);
}

/* A dense copy in a half-precision dtype; `from` is rounded to the same
 * numbers. */
static tensor *half_copy(tensor *from, core_dtype dtype)
{
    tensor *to = tensor_new(dtype, from->view.ndim, from->sizes);

    for (int64_t i = 0; i < from->view.numel; i++) {
        uint16_t half = half_of(dtype, (float)tensor_get(from, i));

        ((uint16_t *)to->data)[i] = half;
        tensor_set(from, i, (double)float_of(dtype, half));
    }
    return to;
}

/* Calls with argument `at` and result 0 in f32, and in a half-precision
 * dtype. */
static void check_rounded(test_call call, uint32_t at, tensor *in,
                          core_dtype dtype)
{
    tensor *narrow = half_copy(in, dtype), *want = call.results[0];
    tensor *out = tensor_new(dtype, want->view.ndim, want->sizes);

    call.args[at] = value_view(in);
    ck_assert_int_eq(run_call(&call), CORE_OK);
    call.args[at] = value_view(narrow);
    call.results[0] = out;
    for (uint32_t threads = 1; threads < 4; threads += 2) {
        cpu_threads(threads);
        memset(out->data, 0xff, (size_t)out->view.numel * 2);
        ck_assert_int_eq(run_call(&call), CORE_OK);
        for (int64_t i = 0; i < want->view.numel; i++) {
            uint16_t half = half_of(dtype, (float)tensor_get(want, i));

            if (((uint16_t *)out->data)[i] != half)
                ck_abort_msg(
                    "%s of dtype %u: element %lld is %g, not %g", call.name,
                    dtype, (long long)i,
                    (double)float_of(dtype, ((uint16_t *)out->data)[i]),
                    (double)float_of(dtype, half));
        }
    }
    tensor_free(narrow);
    tensor_free(out);
}

START_TEST(norms_of_halves_are_rounded_once)
{
    tensor *x = tensor_random(F32(6, 12, 3, 7), 1), *y = F32(6, 12, 3, 7);
    tensor *weight = tensor_random(F32(12), 2), *more = F32(252);
    tensor *mean = F32(36), *rstd = F32(36);
    tensor *known = tensor_random(F32(12), 4), *var = F32(12);
    core_value none = {0}, eps = value_float(1e-5);
    const test_call calls[] = {
        {"native_layer_norm",
         {none, INTS(12, 3, 7), value_view(more), none, eps},
         5,
         {y, mean, rstd},
         3},
        {"native_group_norm",
         {none, value_view(weight), none, value_int(6), value_int(12),
          value_int(21), value_int(3), eps},
         8,
         {y, mean, rstd},
         3},
        {"native_batch_norm",
         {none, value_view(weight), none, none, none, value_bool(1),
          value_float(.1), eps},
         8,
         {y, mean, rstd},
         3},
        {"native_batch_norm",
         {none, value_view(weight), none, value_view(known), value_view(var),
          value_bool(0), value_float(.1), eps},
         8,
         {y, mean, rstd},
         3},
    };

    if (cpu_open_isa(cpu_isas[_i])) {
        tensor_random(more, 3);
        for (int64_t i = 0; i < 12; i++)
            tensor_set(var, i, .5 + (double)i);
        for (int d = 0; d < 2; d++)
            for (int k = 0; k < 4; k++) {
                const int64_t rows = k == 0 ? 6 : k == 1 ? 18 : 12;

                mean->sizes[0] = rstd->sizes[0] = rows;
                mean->view.numel = rstd->view.numel = rows;
                check_rounded(calls[k], 0, x, halves[d]);
            }
        cpu_close();
    }
    tensor_free(x);
    tensor_free(y);
    tensor_free(weight);
    tensor_free(more);
    tensor_free(mean);
    tensor_free(rstd);
    tensor_free(known);
    tensor_free(var);
}
END_TEST

/* Calls in f32, and with arguments 0 and 1 and result 0 in a half-precision
 * dtype. */
static void check_gradient(test_call call, tensor *grad, tensor *x,
                           core_dtype dtype)
{
    tensor *halves_of[] = {half_copy(grad, dtype), half_copy(x, dtype)};
    tensor *want[3], *out = tensor_new(dtype, x->view.ndim, x->sizes);

    call.args[0] = value_view(grad);
    call.args[1] = value_view(x);
    ck_assert_int_eq(run_call(&call), CORE_OK);
    for (int r = 0; r < 3; r++)
        want[r] = call.results[r];
    call.args[0] = value_view(halves_of[0]);
    call.args[1] = value_view(halves_of[1]);
    call.results[0] = out;
    for (uint32_t threads = 1; threads < 4; threads += 2) {
        cpu_threads(threads);
        for (int r = 1; r < 3; r++)
            call.results[r] = tensor_new(CORE_F32, 1, want[r]->sizes);
        ck_assert_int_eq(run_call(&call), CORE_OK);
        for (int64_t i = 0; i < x->view.numel; i++)
            ck_assert_uint_eq(((uint16_t *)out->data)[i],
                              half_of(dtype, (float)tensor_get(want[0], i)));
        for (int r = 1; r < 3; r++) {
            ck_assert_mem_eq(call.results[r]->data, want[r]->data,
                             (size_t)want[r]->view.numel * 4);
            tensor_free(call.results[r]);
        }
    }
    tensor_free(halves_of[0]);
    tensor_free(halves_of[1]);
    tensor_free(out);
}

START_TEST(gradients_of_norms_of_halves_are_rounded_once)
{
    tensor *x = tensor_random(F32(70, 12, 3, 7), 1);
    tensor *grad = tensor_random(F32(70, 12, 3, 7), 2);
    tensor *to = F32(70, 12, 3, 7), *by_channel = F32(12), *bias = F32(12);
    tensor *weight = tensor_random(F32(252), 3), *by_element = F32(252);
    tensor *element_bias = F32(252), *few = tensor_random(F32(12), 4);
    tensor *mean = tensor_random(F32(210), 5);
    tensor *rstd = tensor_random(F32(210), 6);
    core_value none = {0};

    mean->view.numel = mean->sizes[0] = rstd->sizes[0] = 70;
    if (cpu_open_isa(cpu_isas[_i])) {
        const test_call layer = {"native_layer_norm_backward",
                                 {none, none, INTS(12, 3, 7), value_view(mean),
                                  value_view(rstd), value_view(weight), none,
                                  none},
                                 8,
                                 {to, by_element, element_bias},
                                 3};
        const test_call group = {
            "native_group_norm_backward",
            {none, none, value_view(mean), value_view(rstd), value_view(few),
             value_int(70), value_int(12), value_int(21), value_int(3), none},
            10,
            {to, by_channel, bias},
            3};

        for (int d = 0; d < 2; d++) {
            mean->view.numel = mean->sizes[0] = 70;
            rstd->view.numel = rstd->sizes[0] = 70;
            check_gradient(layer, grad, x, halves[d]);
            mean->view.numel = mean->sizes[0] = 210;
            rstd->view.numel = rstd->sizes[0] = 210;
            check_gradient(group, grad, x, halves[d]);
        }
        cpu_close();
    }
    tensor_free(x);
    tensor_free(grad);
    tensor_free(to);
    tensor_free(by_channel);
    tensor_free(bias);
    tensor_free(weight);
    tensor_free(by_element);
    tensor_free(element_bias);
    tensor_free(few);
    tensor_free(mean);
    tensor_free(rstd);
}
END_TEST

/* More classes than memory has space for. */
START_TEST(nll_loss_reads_only_the_target_classes)
{
    const int64_t sizes[] = {2, INT64_C(1) << 40}, strides[] = {3, 0};
    tensor *target = I64(2), *loss = F32(1), *total = F32(1);
    core_value none = {0};

    if (cpu_open_isa(cpu_isas[_i])) {
        loss->view.ndim = total->view.ndim = 0;
        tensor_set(target, 0, 5);
        tensor_set(target, 1, (double)(sizes[1] - 1));
        for (int d = 0; d < 3; d++) {
            core_dtype dtype = d < 2 ? halves[d] : CORE_F32;
            tensor *x = tensor_strided(dtype, 2, sizes, strides);
            const test_call call = {"nll_loss_forward",
                                    {value_view(x), value_view(target), none,
                                     value_int(2), value_int(-100)},
                                    5,
                                    {loss, total},
                                    2};

            tensor_set(x, 0, -1.5);
            tensor_set(x, sizes[1], -2);
            ck_assert_int_eq(run_call(&call), CORE_OK);
            ck_assert(tensor_get(loss, 0) == 3.5);
            ck_assert(tensor_get(total, 0) == 2);
            tensor_free(x);
        }
        cpu_close();
    }
    tensor_free(target);
    tensor_free(loss);
    tensor_free(total);
}
END_TEST

enum { NLL_CLASSES = 5, NLL_INNER = 3, NLL_IGNORED = -100 };

/* The element of the gradient of class c at a position. */
static float nll_gradient(const test_call *call, const tensor *const *of,
                          int64_t position, int64_t c)
{
    const tensor *grad = of[0], *target = of[1], *weight = of[2];
    bool mean = call->args[4].u.i == 1;

    if (tensor_get(target, position) != (double)c)
        return 0;
    return -(float)tensor_get(weight, c) *
           (float)tensor_get(grad, grad->view.numel > 1 ? position : 0) /
           (mean ? (float)tensor_get(of[3], 0) : 1);
}

static void check_nll_gradient(int64_t reduction, core_dtype dtype, tensor *out)
{
    const int64_t by_position[] = {4, NLL_INNER};
    uint32_t ndim = reduction == 0 ? 2 : 0;
    tensor *x = tensor_random(tensor_new(dtype, 3, out->sizes), 1);
    tensor *grad = tensor_random(tensor_new(dtype, ndim, by_position), 2);
    tensor *target = tensor_below(I64(4, NLL_INNER), NLL_CLASSES, 3);
    tensor *weight = tensor_random(tensor_new(dtype, 1, &out->sizes[1]), 4);
    tensor *total = tensor_new(dtype, 0, NULL);
    const tensor *const of[] = {grad, target, weight, total};
    const test_call call = {"nll_loss2d_backward",
                            {value_view(grad), value_view(x),
                             value_view(target), value_view(weight),
                             value_int(reduction), value_int(NLL_IGNORED),
                             value_view(total)},
                            7,
                            {out},
                            1};

    tensor_set(target, 4, NLL_IGNORED);
    tensor_set(total, 0, 3.25);
    ck_assert_int_eq(run_call(&call), CORE_OK);
    for (int64_t i = 0; i < x->view.numel; i++) {
        int64_t c = i / NLL_INNER % NLL_CLASSES;
        int64_t at = i / NLL_INNER / NLL_CLASSES * NLL_INNER + i % NLL_INNER;
        float want = nll_gradient(&call, of, at, c);

        ck_assert_uint_eq(((uint16_t *)out->data)[tensor_offset(out, i)],
                          half_of(dtype, want));
    }
    tensor_free(x);
    tensor_free(grad);
    tensor_free(target);
    tensor_free(weight);
    tensor_free(total);
}

START_TEST(nll_loss_gradients_of_halves_are_rounded_once)
{
    const int64_t sizes[] = {4, NLL_CLASSES, NLL_INNER};
    const int64_t turned[] = {1, 4, 4 * NLL_CLASSES};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int64_t reduction = 0; reduction < 3; reduction++)
        for (int strided = 0; strided < 2; strided++) {
            tensor *out =
                tensor_strided(halves[_i], 3, sizes, strided ? turned : NULL);

            memset(out->data, 0xff, (size_t)out->view.numel * 2);
            check_nll_gradient(reduction, halves[_i], out);
            tensor_free(out);
        }
    cpu_close();
}
END_TEST

START_TEST(softmax_along_an_outer_dimension_is_that_of_rows)
{
    enum { N = 75, LINES = 37 };
    static const char *const names[] = {"_softmax", "_log_softmax"};
    core_dtype dtype = _i < 3 ? CORE_F32 : CORE_F64;
    size_t size = dtype == CORE_F32 ? 4 : 8;
    const int64_t across[] = {2, N, LINES}, along[] = {2, LINES, N};
    tensor *x = tensor_random(tensor_new(dtype, 3, across), 4);
    tensor *y = tensor_new(dtype, 3, across);
    tensor *rows = tensor_new(dtype, 3, along);
    tensor *want = tensor_new(dtype, 3, along);

    if (cpu_open_isa(cpu_isas[_i % 3])) {
        for (int k = 0; k < 2; k++) {
            test_call call = {names[k],
                              {value_view(x), value_int(1), value_bool(0)},
                              3,
                              {y},
                              1};

            tensor_set(x, 5, NAN);
            tensor_set(x, 9, -INFINITY);
            for (int64_t i = 0; i < 2 * N * LINES; i++)
                tensor_set(rows, i,
                           tensor_get(x, (i / (LINES * N) * N + i % N) * LINES +
                                             i / N % LINES));
            for (uint32_t threads = 1; threads < 4; threads += 2) {
                cpu_threads(threads);
                call.args[0] = value_view(x);
                call.args[1] = value_int(1);
                call.results[0] = y;
                ck_assert_int_eq(run_call(&call), CORE_OK);
                call.args[0] = value_view(rows);
                call.args[1] = value_int(2);
                call.results[0] = want;
                ck_assert_int_eq(run_call(&call), CORE_OK);
                for (int64_t i = 0; i < 2 * N * LINES; i++) {
                    int64_t at =
                        (i / (LINES * N) * N + i % N) * LINES + i / N % LINES;

                    ck_assert(memcmp((char *)want->data + (size_t)i * size,
                                     (char *)y->data + (size_t)at * size,
                                     size) == 0 ||
                              (isnan(tensor_get(want, i)) &&
                               isnan(tensor_get(y, at))));
                }
            }
            call.results[0] = y;
            call.args[1] = value_int(1);
            tensor_set(x, 5, 1);
            for (int d = 0; d < 2 && dtype == CORE_F32; d++)
                check_rounded(call, 0, x, halves[d]);
        }
        cpu_close();
    }
    tensor_free(x);
    tensor_free(y);
    tensor_free(rows);
    tensor_free(want);
}
END_TEST

/* In rows and across, of lengths around those of vectors and of partial sums;
 * infinities and NaN included. */
START_TEST(softmax_gradients_of_halves_are_rounded_once)
{
    static const int64_t lengths[] = {1, 7, 31, 32, 33, 512, 545, 4099};

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (int dim = 0; dim < 2; dim++) {
            int64_t n = lengths[l];
            tensor *grad = dim ? F32(3, n) : F32(n, 3);
            tensor *y = dim ? F32(3, n) : F32(n, 3);
            tensor *want = dim ? F32(3, n) : F32(n, 3);
            tensor *half, *out;
            test_call call = {"_softmax_backward_data",
                              {value_view(grad), value_view(y), value_int(dim),
                               value_int(CORE_BF16)},
                              4,
                              {want},
                              1};

            tensor_random(grad, 1);
            tensor_random(y, 2);
            if (n == 33)
                tensor_set(grad, 40, NAN);
            if (n == 32)
                tensor_set(grad, 40, INFINITY);
            half = half_copy(grad, CORE_BF16);
            out = half_copy(y, CORE_BF16);
            ck_assert_int_eq(run_call(&call), CORE_OK);
            call.args[0] = value_view(half);
            call.args[1] = value_view(out);
            call.results[0] = out; /* in the place of y */
            ck_assert_int_eq(run_call(&call), CORE_OK);
            for (int64_t i = 0; i < 3 * n; i++) {
                uint16_t have = ((uint16_t *)out->data)[i];
                float wanted = (float)tensor_get(want, i);

                ck_assert(have == half_of(CORE_BF16, wanted) ||
                          (isnan(wanted) && isnan(float_of(CORE_BF16, have))));
            }
            tensor_free(grad);
            tensor_free(y);
            tensor_free(want);
            tensor_free(half);
            tensor_free(out);
        }
    cpu_close();
}
END_TEST

START_TEST(products_of_bf16_matrices_with_a_vector_add_all_elements)
{
    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int64_t m = 1; m < 140; m = m < 6 ? m + 1 : 2 * m + 1)
        for (int64_t k = 1; k < 300; k = k < 34 ? k + 3 : 3 * k) {
            tensor *a = tensor_below(F32(m, k), 5, 6), *y = F32(m);
            tensor *x = tensor_below(F32(k), 3, 7), *s = F32(m);
            tensor *narrow = half_copy(x, CORE_BF16);
            test_call call = {"addmv",
                              {value_view(s), value_view(a), value_view(narrow),
                               value_float(2), value_float(-1)},
                              5,
                              {y},
                              1};

            tensor_below(s, 9, 8);
            for (int64_t i = 0; i < m; i++) {
                double sum = 2 * tensor_get(s, i);

                for (int64_t p = 0; p < k; p++)
                    sum -= tensor_get(a, i * k + p) * tensor_get(x, p);
                tensor_set(y, i, sum);
            }
            {
                tensor *matrix = half_copy(a, CORE_BF16);
                tensor *want = y, *out = F32(m);

                call.args[1] = value_view(matrix);
                call.results[0] = out;
                ck_assert_int_eq(run_call(&call), CORE_OK);
                ck_assert_msg(memcmp(out->data, want->data, (size_t)m * 4) == 0,
                              "%lld x %lld", (long long)m, (long long)k);
                tensor_free(matrix);
                tensor_free(out);
            }
            tensor_free(a);
            tensor_free(y);
            tensor_free(x);
            tensor_free(s);
            tensor_free(narrow);
        }
    cpu_close();
}
END_TEST

/* Products of bf16 have the same bits by rows, by columns, as rows of a batch,
 * and as a sum of two vectors. */
START_TEST(products_of_bf16_vectors_do_not_depend_on_strides)
{
    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int64_t m = 1; m < 300; m = 7 * m + 1)
        for (int64_t k = 1; k < 300; k = k < 34 ? k + 11 : 3 * k) {
            const int64_t sizes[] = {m, k}, strides[] = {1, m + 2};
            tensor *a = tensor_random(tensor_new(CORE_BF16, 2, sizes), 1);
            tensor *turned = tensor_strided(CORE_BF16, 2, sizes, strides);
            tensor *x = tensor_random(tensor_new(CORE_BF16, 1, &k), 2);
            tensor *y = F32(m), *z = F32(m), *one = F32(1);
            test_call call = {"mv", {value_view(a), value_view(x)}, 2, {y}, 1};

            for (int64_t i = 0; i < m * k; i++)
                tensor_set(turned, i, tensor_get(a, i));
            ck_assert_int_eq(run_call(&call), CORE_OK);
            call.args[0] = value_view(turned);
            call.results[0] = z;
            for (uint32_t threads = 1; threads < 4; threads += 2) {
                cpu_threads(threads);
                ck_assert_int_eq(run_call(&call), CORE_OK);
                ck_assert_mem_eq(y->data, z->data, (size_t)m * 4);
            }
            a->view.ndim = 1;
            a->view.numel = a->sizes[0] = k;
            a->strides[0] = 1;
            one->view.ndim = 0;
            call =
                (test_call){"dot", {value_view(a), value_view(x)}, 2, {one}, 1};
            ck_assert_int_eq(run_call(&call), CORE_OK);
            ck_assert_mem_eq(one->data, y->data, 4);
            tensor_free(a);
            tensor_free(turned);
            tensor_free(x);
            tensor_free(y);
            tensor_free(z);
            tensor_free(one);
        }
    cpu_close();
}
END_TEST

/* Matrices of integers with gaps, for products and their transposes. */
static tensor *matrices(core_dtype dtype, bool turned, int64_t rows,
                        int64_t columns, int64_t column_stride)
{
    int64_t row_stride = column_stride * columns + 3;
    const int64_t sizes[] = {3, turned ? columns : rows,
                             turned ? rows : columns};
    const int64_t strides[] = {row_stride * rows + 5,
                               turned ? column_stride : row_stride,
                               turned ? row_stride : column_stride};

    return tensor_below(tensor_strided(dtype, 3, sizes, strides), 17,
                        (uint32_t)(rows + columns));
}

static double element(const tensor *t, bool turned, int64_t batch, int64_t row,
                      int64_t column)
{
    int64_t i = turned ? column : row, j = turned ? row : column;

    return tensor_get(t, (batch * t->sizes[1] + i) * t->sizes[2] + j);
}

enum { VECTOR_M = 70, VECTOR_K = 37 };

/* c = 3 s + 2 a x; s of one matrix is broadcast. */
static void check_vectors(const tensor *a, const tensor *x, const tensor *s,
                          const tensor *c, bool turned)
{
    for (int64_t at = 0; at < (int64_t)3 * VECTOR_M; at++) {
        int64_t batch = at / VECTOR_M, i = at % VECTOR_M;
        double sum = 0, want, got = element(c, turned, batch, i, 0);

        for (int64_t p = 0; p < VECTOR_K; p++)
            sum += element(a, turned, batch, i, p) *
                   element(x, turned, batch, p, 0);
        want = s->view.ndim < 3 ? tensor_get(s, i)
                                : element(s, turned, batch, i, 0);
        want = tensor_rounded(c, 3 * want + 2 * sum);
        ck_assert_msg(got == want || (isnan(got) && isnan(want)),
                      "element %lld of %lld is %g, not %g", (long long)i,
                      (long long)batch, got, want);
    }
}

static void batches_and_vectors(core_dtype dtype, bool turned)
{
    tensor *a = matrices(dtype, turned, VECTOR_M, VECTOR_K, 1);
    tensor *x = matrices(dtype, turned, VECTOR_K, 1, 2);
    tensor *s = matrices(dtype, turned, VECTOR_M, 1, 1);
    tensor *c = matrices(dtype, turned, VECTOR_M, 1, 3);
    const int64_t sizes[] = {turned ? 1 : VECTOR_M, turned ? VECTOR_M : 1};
    tensor *one = tensor_below(tensor_new(dtype, 2, sizes), 9, 3);
    test_call call = {"baddbmm",
                      {value_view(s), value_view(a), value_view(x),
                       value_float(3), value_float(2)},
                      5,
                      {c},
                      1};

    if (turned) {
        call.args[1] = value_view(x);
        call.args[2] = value_view(a);
    }
    tensor_set(a, 7, NAN);
    tensor_set(x, VECTOR_K + 5, INFINITY);
    ck_assert_int_eq(run_call(&call), CORE_OK);
    check_vectors(a, x, s, c, turned);
    call.args[0] = value_view(one);
    ck_assert_int_eq(run_call(&call), CORE_OK);
    check_vectors(a, x, one, c, turned);
    for (int64_t i = 0; i < c->view.numel; i++)
        tensor_set(c, i, tensor_get(s, i));
    call.args[0] = value_view(c);
    ck_assert_int_eq(run_call(&call), CORE_OK);
    check_vectors(a, x, s, c, turned);
    tensor_free(a);
    tensor_free(x);
    tensor_free(s);
    tensor_free(c);
    tensor_free(one);
}

START_TEST(products_of_batches_of_matrices_with_vectors_are_rounded_once)
{
    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int d = 0; d < 2; d++)
        for (uint32_t threads = 1; threads < 4; threads += 2) {
            cpu_threads(threads);
            batches_and_vectors(halves[d], false);
            batches_and_vectors(halves[d], true);
        }
    cpu_close();
}
END_TEST

START_TEST(gradients_of_embeddings_skip_and_scale)
{
    tensor *grad = tensor_random(F32(40, 1100), 9), *out = F32(9, 1100);
    tensor *index = tensor_below(I64(40), 8, 10);
    core_value none = {0};

    if (cpu_open_isa(cpu_isas[_i])) {
        for (int scaled = 0; scaled < 2; scaled++) {
            const test_call call = {"embedding_dense_backward",
                                    {none, value_view(index), value_int(9),
                                     value_int(3), value_bool(scaled)},
                                    5,
                                    {out},
                                    1};

            for (int d = 0; d < 2; d++)
                check_rounded(call, 0, grad, halves[d]);
            for (int64_t at = 0; at < 9 * 1100; at += 37) {
                double sum = 0, count = 0;

                for (int64_t i = 0; i < 40; i++)
                    if (tensor_get(index, i) == (double)(at / 1100)) {
                        sum += tensor_get(grad, i * 1100 + at % 1100);
                        count++;
                    }
                sum = scaled && count > 0 ? sum / count : sum;
                if (at / 1100 == 3)
                    sum = 0;
                ck_assert(fabs(tensor_get(out, at) - sum) < 1e-4);
            }
        }
        cpu_close();
    }
    tensor_free(grad);
    tensor_free(out);
    tensor_free(index);
}
END_TEST

START_TEST(cumulative_sums_of_any_number_of_lines_keep_their_order)
{
    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int64_t at = 1; at < 20; at++) {
        int64_t lines = at < 10 ? at : at - 9, n = at < 10 ? 300 : 3000;
        tensor *x = tensor_random(F32(lines, n), 11), *y = F32(lines, n);
        core_value none = {0};
        const test_call call = {
            "cumsum", {value_view(x), value_int(1), none}, 3, {y}, 1};

        ck_assert_int_eq(run_call(&call), CORE_OK);
        for (int64_t i = 0; i < lines; i++) {
            double sum = 0;

            for (int64_t k = 0; k < n; k++) {
                sum += tensor_get(x, i * n + k);
                ck_assert(tensor_get(y, i * n + k) == (double)(float)sum);
            }
        }
        for (int d = 0; d < 2; d++)
            check_rounded(call, 0, x, halves[d]);
        tensor_free(x);
        tensor_free(y);
    }
    cpu_close();
}
END_TEST

START_TEST(sign_bits_of_all_bf16_numbers_change)
{
    static uint16_t in[65536], out[65536];
    static const char *const names[] = {"neg", "abs"};
    test_loop t;

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int k = 0; k < 65536; k++)
        in[k] = (uint16_t)k;
    for (int op = 0; op < 2; op++) {
        loop_dense(&t, 1, 65536);
        loop_dense_operand(&t, out, CORE_BF16);
        loop_dense_operand(&t, in, CORE_BF16);
        ck_assert_int_eq(cpu_launch(names[op], &t.loop, NULL, 0), CORE_OK);
        for (int k = 0; k < 65536; k++)
            ck_assert_uint_eq(out[k], op == 0 ? (k ^ 0x8000) : (k & 0x7fff));
    }
    cpu_close();
}
END_TEST

/* Numbers are those of the formula in doubles, rounded once; lengths that are
 * no multiple of a group. */
START_TEST(normals_are_the_rounded_transform)
{
    enum { N = 1003 };
    tensor *x = F32(N);
    core_value none = {0};
    const test_call call = {"normal_",
                            {value_view(x), value_float(0), value_float(1),
                             none, value_int(5), value_int(77)},
                            6,
                            {x},
                            1};

    if (cpu_open_isa(cpu_isas[_i])) {
        ck_assert_int_eq(run_call(&call), CORE_OK);
        for (int64_t i = 0; i < N; i++) {
            int64_t pair = i & ~INT64_C(1);
            double u =
                (double)(philox_32(5, 77, (uint64_t)pair) >> 8) * 0x1p-24;
            double v =
                (double)(philox_32(5, 77, (uint64_t)pair + 1) >> 8) * 0x1p-24;
            double angle = 0x1.921fb54442d18p+2 * v;
            double want =
                sqrt(-2 * log(1 - u)) * (i % 2 == 1 ? sin(angle) : cos(angle));

            ck_assert_msg(fabs(tensor_get(x, i) - want) <=
                              0x1.01p-24 * fabs(want) + 1e-15,
                          "element %lld: %.9g, not %.12g", (long long)i,
                          tensor_get(x, i), want);
        }
        cpu_close();
    }
    tensor_free(x);
}
END_TEST

static void draw_normals(tensor *to, double mean)
{
    core_value none = {0};
    const test_call call = {"normal_",
                            {value_view(to), value_float(mean), value_float(1),
                             none, value_int(6), value_int(78)},
                            6,
                            {to},
                            1};

    ck_assert_int_eq(run_call(&call), CORE_OK);
}

/* What is left of a number without its f32 shows the bits of the double that was
 * rounded. */
START_TEST(normals_do_not_depend_on_the_instruction_set)
{
    enum { N = 256 };
    tensor *x = F32(N), *rest = F32(N);
    double want[N] = {0};
    int ran = 0;

    for (int isa = 0; isa < 3; isa++) {
        if (!cpu_open_isa(cpu_isas[isa]))
            continue;
        draw_normals(x, 0);
        for (int64_t i = 0; i < N; i++) {
            draw_normals(rest, -tensor_get(x, i));
            ck_assert_msg(ran == 0 || tensor_get(rest, i) == want[i],
                          "%s, element %lld: %a, not %a", cpu_isas[isa],
                          (long long)i, tensor_get(rest, i), want[i]);
            want[i] = tensor_get(rest, i);
        }
        ran++;
        cpu_close();
    }
    tensor_free(x);
    tensor_free(rest);
}
END_TEST

int main(void)
{
    const suite_loop loops[] = {
        {norms_of_halves_are_rounded_once, 0, 3},
        {gradients_of_norms_of_halves_are_rounded_once, 0, 3},
        {nll_loss_reads_only_the_target_classes, 0, 1},
        {nll_loss_gradients_of_halves_are_rounded_once, 0, 2},
        {softmax_along_an_outer_dimension_is_that_of_rows, 0, 6},
        {softmax_gradients_of_halves_are_rounded_once, 0, 3},
        {products_of_bf16_matrices_with_a_vector_add_all_elements, 0, 3},
        {products_of_bf16_vectors_do_not_depend_on_strides, 0, 3},
        {products_of_batches_of_matrices_with_vectors_are_rounded_once, 0, 3},
        {gradients_of_embeddings_skip_and_scale, 0, 3},
        {cumulative_sums_of_any_number_of_lines_keep_their_order, 0, 3},
        {sign_bits_of_all_bf16_numbers_change, 0, 3},
        {normals_are_the_rounded_transform, 0, 3},
        {normals_do_not_depend_on_the_instruction_set, 0, 1},
    };
    const test_suite suite = {
        .name = "cpu/cpu_view_halves",
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
