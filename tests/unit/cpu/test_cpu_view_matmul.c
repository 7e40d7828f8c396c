/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "support/cpu_view.h"

/* Memory layouts of a matrix. */
enum { ROWS, COLUMNS, GAPS, NEITHER, REPEATED, LAYOUTS };

static tensor *matrix(core_dtype dtype, int layout, int64_t m, int64_t n,
                      uint32_t seed)
{
    const int64_t sizes[] = {m, n};
    const int64_t strides[LAYOUTS][2] = {
        {n, 1}, {1, m}, {n + 3, 1}, {2 * n + 1, 2}, {0, 1}};
    tensor *t = tensor_strided(dtype, 2, sizes, strides[layout]);

    return tensor_below(t, 17, seed);
}

static void check_product(const tensor *a, const tensor *b, const tensor *s,
                          double beta, double alpha, const tensor *c)
{
    int64_t m = c->sizes[0], n = c->sizes[1], k = a->sizes[1];

    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;

            for (int64_t p = 0; p < k; p++)
                sum += tensor_get(a, i * k + p) * tensor_get(b, p * n + j);
            sum = alpha * sum + (s ? beta * tensor_get(s, j) : 0);
            sum = tensor_rounded(c, sum);
            ck_assert_msg(tensor_get(c, i * n + j) == sum,
                          "%ld x %ld x %ld at (%ld, %ld): %g, want %g", (long)m,
                          (long)n, (long)k, (long)i, (long)j,
                          tensor_get(c, i * n + j), sum);
        }
}

static void product(core_dtype dtype, int la, int lb, int lc, int64_t m,
                    int64_t n, int64_t k)
{
    tensor *a = matrix(dtype, la, m, k, 1), *b = matrix(dtype, lb, k, n, 2);
    tensor *c = matrix(dtype, lc, m, n, 3);
    tensor *s = tensor_below(tensor_new(dtype, 1, &n), 9, 4);
    test_call mm = {"mm", {value_view(a), value_view(b)}, 2, {c}, 1};
    test_call addmm = {"addmm",
                       {value_view(s), value_view(a), value_view(b),
                        value_int(3), value_int(2)},
                       5,
                       {c},
                       1};

    ck_assert_int_eq(run_call(&mm), CORE_OK);
    check_product(a, b, NULL, 0, 1, c);
    ck_assert_int_eq(run_call(&addmm), CORE_OK);
    check_product(a, b, s, 3, 2, c);
    tensor_free(a);
    tensor_free(b);
    tensor_free(c);
    tensor_free(s);
}

START_TEST(products_of_any_layout_are_correct)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F64, CORE_I64, CORE_F16,
                                        CORE_BF16};
    static const int64_t shapes[][3] = {
        {1, 1, 1}, {5, 7, 3}, {1, 40, 30}, {40, 1, 30}, {33, 65, 17}};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int la = 0; la < LAYOUTS; la++)
        for (int lb = 0; lb < LAYOUTS; lb++)
            for (int lc = 0; lc < REPEATED; lc++)
                for (int s = 0; s < 5; s++)
                    product(dtypes[_i], la, lb, lc, shapes[s][0], shapes[s][1],
                            shapes[s][2]);
    cpu_close();
}
END_TEST

START_TEST(matmul_bits_do_not_depend_on_threads)
{
    tensor *a = tensor_random(F32(300, 520), 1), *c = F32(300, 700);
    tensor *b = tensor_random(F32(520, 700), 2), *first = F32(300, 700);
    tensor *s = tensor_random(F32(700), 3);
    test_call call = {"addmm",
                      {value_view(s), value_view(a), value_view(b),
                       value_float(1), value_float(1)},
                      5,
                      {c},
                      1};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (uint32_t threads = 1; threads <= 5; threads++) {
        cpu_threads(threads);
        ck_assert_int_eq(run_call(&call), CORE_OK);
        if (threads == 1)
            memcpy(first->data, c->data, 300 * 700 * sizeof(float));
        ck_assert(memcmp(first->data, c->data, 300 * 700 * 4) == 0);
    }
    tensor_free(a);
    tensor_free(b);
    tensor_free(c);
    tensor_free(s);
    tensor_free(first);
    cpu_close();
}
END_TEST

START_TEST(bmm_and_addbmm_multiply_every_batch)
{
    enum { B = 3, M = 4, N = 5, K = 6 };
    tensor *a = tensor_below(F64(B, M, K), 9, 1), *c = F64(B, M, N);
    tensor *b = tensor_below(F64(B, K, N), 9, 2), *sum = F64(M, N);
    tensor *s = tensor_below(F64(M, 1), 9, 3);
    test_call bmm = {"bmm", {value_view(a), value_view(b)}, 2, {c}, 1};
    test_call addbmm = {"addbmm",
                        {value_view(s), value_view(a), value_view(b),
                         value_float(2), value_float(1)},
                        5,
                        {sum},
                        1};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    ck_assert_int_eq(run_call(&bmm), CORE_OK);
    ck_assert_int_eq(run_call(&addbmm), CORE_OK);
    for (int at = 0; at < M * N; at++) {
        double all = 2 * tensor_get(s, at / N);

        for (int batch = 0; batch < B; batch++) {
            double one = 0;

            for (int k = 0; k < K; k++)
                one += tensor_get(a, (batch * M + at / N) * K + k) *
                       tensor_get(b, (batch * K + k) * N + at % N);
            ck_assert(tensor_get(c, batch * M * N + at) == one);
            all += one;
        }
        ck_assert(tensor_get(sum, at) == all);
    }
    tensor_free(a);
    tensor_free(b);
    tensor_free(c);
    tensor_free(s);
    tensor_free(sum);
    cpu_close();
}
END_TEST

START_TEST(beta_zero_does_not_read_self)
{
    tensor *a = tensor_below(F32(20, 30), 5, 1), *c = F32(20, 10);
    tensor *b = tensor_below(F32(30, 10), 5, 2), *s = F32(10);
    test_call call = {"addmm",
                      {value_view(s), value_view(a), value_view(b),
                       value_float(0), value_float(1)},
                      5,
                      {c},
                      1};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int i = 0; i < 10; i++)
        tensor_set(s, i, NAN);
    for (int i = 0; i < 200; i++)
        tensor_set(c, i, NAN);
    ck_assert_int_eq(run_call(&call), CORE_OK);
    check_product(a, b, NULL, 0, 1, c);
    tensor_free(a);
    tensor_free(b);
    tensor_free(c);
    tensor_free(s);
    cpu_close();
}
END_TEST

START_TEST(addmm_over_empty_dimension_returns_beta_self)
{
    tensor *a = F32(3, 0), *b = F32(0, 4), *c = F32(3, 4);
    tensor *s = tensor_below(F32(4), 9, 1);
    test_call call = {"addmm",
                      {value_view(s), value_view(a), value_view(b),
                       value_float(2), value_float(1)},
                      5,
                      {c},
                      1};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    ck_assert_int_eq(run_call(&call), CORE_OK);
    for (int i = 0; i < 12; i++)
        ck_assert(tensor_get(c, i) == 2 * tensor_get(s, i % 4));
    tensor_free(a);
    tensor_free(b);
    tensor_free(c);
    tensor_free(s);
    cpu_close();
}
END_TEST

/* 1 + 255 / 256 would stay 1 if each partial sum were rounded to bf16. */
START_TEST(bf16_product_accumulates_in_f32_and_rounds_once)
{
    enum { K = 256 };
    const int64_t row[] = {1, K}, column[] = {K, 1}, one[] = {1, 1};
    tensor *a = tensor_new(CORE_BF16, 2, row);
    tensor *b = tensor_new(CORE_BF16, 2, column);
    tensor *c = tensor_new(CORE_BF16, 2, one);
    test_call call = {"mm", {value_view(a), value_view(b)}, 2, {c}, 1};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int k = 0; k < K; k++) {
        ((uint16_t *)a->data)[k] = 0x3f80;              /* 1 */
        ((uint16_t *)b->data)[k] = k ? 0x3b80 : 0x3f80; /* 1/256, or 1 */
    }
    ck_assert_int_eq(run_call(&call), CORE_OK);
    ck_assert_uint_eq(*(uint16_t *)c->data, 0x4000); /* 1.996… rounds to 2 */
    tensor_free(a);
    tensor_free(b);
    tensor_free(c);
    cpu_close();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        matmul_bits_do_not_depend_on_threads,
        bmm_and_addbmm_multiply_every_batch,
        beta_zero_does_not_read_self,
        addmm_over_empty_dimension_returns_beta_self,
        bf16_product_accumulates_in_f32_and_rounds_once,
    };
    const suite_loop loops[] = {
        {products_of_any_layout_are_correct, 0, 5},
    };
    const test_suite suite = {
        .name = "cpu/cpu_view_matmul",
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
        .one_thread = true,
    };

    return suite_run(&suite, 1);
}
