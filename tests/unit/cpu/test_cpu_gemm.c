/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* f32 products by the backend's own kernels (gemm.h), for each instruction set
 * of this machine, compared with sums in f64. */

#include "support/instruction_sets.h"
#include "support/sanitizers.h"
#include "support/suite.h"

#include <check.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "gemm/gemm.h"
#include "isa.h"
#include "runtime/scratch.h"

/* Of the sanitizer's library, if it is loaded. */
extern int __asan_address_is_poisoned(const volatile void *)
    __attribute__((weak));

/* Makes scratch allocation fail, and counts the failures. */
static bool no_memory;
static int refused;

int __real_posix_memalign(void **out, size_t alignment, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size);

int __wrap_posix_memalign(void **out, size_t alignment, size_t size)
{
    if (!no_memory)
        return __real_posix_memalign(out, alignment, size);
    refused++;
    return ENOMEM;
}

static const int isas[] = {CPU_ISA_AVX2, CPU_ISA_AVX512};
enum { ISAS = sizeof isas / sizeof *isas };

static core_string no_setting(core_string name)
{
    (void)name;
    return (core_string){NULL, 0};
}

/* Products use this instruction set from now on.  False, and the test is
 * skipped, if the machine or the build does not have it. */
static bool use(int isa)
{
    const core_host host = {.setting = no_setting};
    int best = CPU_ISA_BASELINE;

    if (isa > instruction_set_best()) {
        suite_skip("%s is not available", cpu_isa_name(isa));
        return false;
    }
    ck_assert_int_eq(cpu_isa_choose(&host, &best), CORE_OK);
    ck_assert_int_le(isa, best);
    cpu_isa = isa;
    return true;
}

/* A matrix with gaps after its lines; the gaps are NaN. */
typedef struct matrix {
    float *data;
    int64_t rows, columns, row, column, size;
} matrix;

static matrix matrix_new(int64_t rows, int64_t columns, bool turned,
                         int64_t gap, uint32_t seed)
{
    matrix x = {.rows = rows, .columns = columns};

    x.row = turned ? 1 : columns + gap;
    x.column = turned ? rows + gap : 1;
    x.size = turned ? columns * x.column : rows * x.row;
    x.data = malloc((size_t)x.size * sizeof *x.data);
    ck_assert_ptr_nonnull(x.data);
    for (int64_t i = 0; i < x.size; i++)
        x.data[i] = nanf("");
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            seed = seed * 1664525 + 1013904223;
            x.data[i * x.row + j * x.column] =
                ldexpf((float)(int32_t)seed, -31 - (int)(seed >> 8 & 3));
        }
    return x;
}

static float *at(const matrix *x, int64_t i, int64_t j)
{
    return &x->data[i * x->row + j * x->column];
}

static gemm_problem problem_of(const matrix *a, const matrix *b,
                               const matrix *c, float alpha, float beta)
{
    return (gemm_problem){.m = c->rows,
                          .n = c->columns,
                          .k = a->columns,
                          .a = a->data,
                          .row_a = a->row,
                          .step_a = a->column,
                          .b = b->data,
                          .step_b = b->row,
                          .column_b = b->column,
                          .c = c->data,
                          .distance = c->row,
                          .alpha = alpha,
                          .beta = beta};
}

static void check_element(const matrix *a, const matrix *b, int64_t i,
                          int64_t j, double alpha, double added, float got)
{
    double sum = 0, size = 0;

    for (int64_t p = 0; p < a->columns; p++) {
        double x = (double)*at(a, i, p) * (double)*at(b, p, j);

        sum += alpha * x;
        size += fabs(alpha * x);
    }
    sum += added;
    ck_assert_msg(fabs((double)got - sum) <= (double)(a->columns + 4) / 2 *
                                                 (double)FLT_EPSILON *
                                                 (size + fabs(added)),
                  "%ld, %ld: %a, want %a", (long)i, (long)j, (double)got, sum);
}

static void check_product(int64_t m, int64_t n, int64_t k, bool ta, bool tb,
                          int64_t gap, float alpha, float beta)
{
    matrix a = matrix_new(m, k, ta, gap, 1), b = matrix_new(k, n, tb, gap, 2);
    matrix c = matrix_new(m, n, false, gap, 3);
    matrix before = matrix_new(m, n, false, gap, 3);
    gemm_problem p = problem_of(&a, &b, &c, alpha, beta);

    for (int64_t i = 0; beta == 0 && i < m; i++)
        for (int64_t j = 0; j < n; j++)
            *at(&c, i, j) = nanf(""); /* must not be read */
    ck_assert(cpu_gemm_multiply(&p));
    for (int64_t i = 0; i < m; i += i + 13 < m ? 13 : 1)
        for (int64_t j = 0; j < n; j += j + 40 < n ? 7 : 1)
            check_element(&a, &b, i, j, (double)alpha,
                          (double)beta * (double)*at(&before, i, j),
                          *at(&c, i, j));
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = n; j < c.row; j++)
            ck_assert_msg(isnan(*at(&c, i, j)), "written beyond row %ld",
                          (long)i);
    free(a.data);
    free(b.data);
    free(c.data);
    free(before.data);
}

/* Sizes around those of kernels and blocks; lines of 1024 elements, with and
 * without a gap, evict each other from the cache. */
static const int64_t sizes[][3] = {
    {1, 1, 1},       {12, 32, 7},    {13, 33, 9},    {25, 15, 384},
    {37, 70, 385},   {24, 600, 40},  {40, 16, 1024}, {40, 1030, 20},
    {64, 48, 800},   {1024, 40, 30}, {50, 1024, 33}, {26, 513, 770},
    {150, 300, 400},
};

START_TEST(gemm_is_accurate_in_every_layout)
{
    if (!use(isas[_i]))
        return;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int how = 0; how < 8; how++)
            check_product(sizes[i][0], sizes[i][1], sizes[i][2], how & 1,
                          how & 2, how & 4 ? 3 : 0, how == 5 ? 0.5f : 1,
                          how == 3   ? -2
                          : how == 6 ? 1
                                     : 0);
}
END_TEST

START_TEST(parts_of_a_product_equal_the_whole_bit_for_bit)
{
    const int64_t m = 61, n = 150, k = 500;

    if (!use(isas[_i]))
        return;
    for (int how = 0; how < 4; how++) {
        matrix a = matrix_new(m, k, how & 1, 0, 1);
        matrix b = matrix_new(k, n, how & 2, 0, 2);
        matrix c = matrix_new(m, n, false, 0, 3);
        matrix d = matrix_new(m, n, false, 0, 4);
        gemm_problem p = problem_of(&a, &b, &c, 1, 0);

        ck_assert(cpu_gemm_multiply(&p));
        for (int64_t i = 0; i < m; i += 20)
            for (int64_t j = 0; j < n; j += 47) {
                gemm_problem part = problem_of(&a, &b, &d, 1, 0);

                part.m = m - i < 20 ? m - i : 20;
                part.n = n - j < 47 ? n - j : 47;
                part.a = at(&a, i, 0);
                part.b = at(&b, 0, j);
                part.c = at(&d, i, j);
                ck_assert(cpu_gemm_multiply(&part));
            }
        ck_assert_int_eq(memcmp(c.data, d.data, (size_t)c.size * sizeof(float)),
                         0);
        free(a.data);
        free(b.data);
        free(c.data);
        free(d.data);
    }
}
END_TEST

/* Sizes at which either operand or both are packed, or read in place. */
START_TEST(gemm_without_scratch_memory_gives_the_same_bits)
{
    if (!use(isas[_i]))
        return;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int how = 0; how < 4; how++) {
            int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
            matrix a = matrix_new(m, k, how & 1, 0, 1);
            matrix b = matrix_new(k, n, how & 2, 0, 2);
            matrix c = matrix_new(m, n, false, 0, 3);
            matrix d = matrix_new(m, n, false, 0, 3);
            gemm_problem with = problem_of(&a, &b, &c, 0.75f, -2);
            gemm_problem without = problem_of(&a, &b, &d, 0.75f, -2);

            ck_assert(cpu_gemm_multiply(&with));
            cpu_scratch_shutdown();
            no_memory = true;
            refused = 0;
            ck_assert(cpu_gemm_multiply(&without));
            no_memory = false;
            ck_assert(refused > 0 || !(how & 2) || k == 1);
            ck_assert_mem_eq(c.data, d.data, (size_t)c.size * sizeof(float));
            free(a.data);
            free(b.data);
            free(c.data);
            free(d.data);
        }
}
END_TEST

/* Sides of blocks follow from the second-level cache. */
START_TEST(product_bits_do_not_depend_on_the_cache)
{
    static const int64_t caches[] = {128 << 10, 512 << 10, 3 << 20};
    const int64_t m = 257, n = 2100, k = 800;

    if (!use(isas[_i]))
        return;
    for (int how = 0; how < 4; how++) {
        matrix a = matrix_new(m, k, how & 1, 0, 1);
        matrix b = matrix_new(k, n, how & 2, 0, 2);
        matrix c = matrix_new(m, n, false, 0, 3);
        matrix d = matrix_new(m, n, false, 0, 4);
        gemm_problem first = problem_of(&a, &b, &c, 1, 0);
        gemm_problem other = problem_of(&a, &b, &d, 1, 0);

        cpu_gemm_assume_cache(1 << 20);
        ck_assert(cpu_gemm_multiply(&first));
        for (int i = 0; i < 3; i++) {
            cpu_gemm_assume_cache(caches[i]);
            memset(d.data, 0, (size_t)d.size * sizeof(float));
            ck_assert(cpu_gemm_multiply(&other));
            ck_assert_mem_eq(c.data, d.data, (size_t)c.size * sizeof(float));
        }
        cpu_gemm_assume_cache(0);
        free(a.data);
        free(b.data);
        free(c.data);
        free(d.data);
    }
}
END_TEST

START_TEST(infinities_affect_only_their_row_and_column)
{
    if (!use(isas[_i]))
        return;
    for (int tb = 0; tb < 2; tb++) {
        matrix a = matrix_new(30, 40, false, 0, 1);
        matrix b = matrix_new(40, 37, tb, 0, 2);
        matrix c = matrix_new(30, 37, false, 0, 3);
        gemm_problem p = problem_of(&a, &b, &c, 1, 0);

        *at(&a, 29, 39) = INFINITY;
        *at(&b, 3, 36) = INFINITY;
        ck_assert(cpu_gemm_multiply(&p));
        for (int64_t i = 0; i < 30; i++)
            for (int64_t j = 0; j < 37; j++)
                ck_assert_int_eq(!isfinite(*at(&c, i, j)), i == 29 || j == 36);
        free(a.data);
        free(b.data);
        free(c.data);
    }
}
END_TEST

START_TEST(gemm_declines_unsupported_problems)
{
    float x[64] = {0}, c[64] = {1};
    gemm_problem p = {.m = 4,
                      .n = 4,
                      .k = 4,
                      .a = x,
                      .row_a = 8,
                      .step_a = 2,
                      .b = x,
                      .step_b = 4,
                      .column_b = 1,
                      .c = c,
                      .distance = 4,
                      .alpha = 1};

    cpu_isa = CPU_ISA_AVX2;
    ck_assert(!cpu_gemm_multiply(&p)); /* A is dense in neither dimension */
    p.step_a = 1;
    p.alpha = 0;
    ck_assert(!cpu_gemm_multiply(&p));
    p.alpha = 1;
    cpu_isa = CPU_ISA_BASELINE;
    ck_assert(!cpu_gemm_multiply(&p));
    ck_assert(!cpu_gemm_is_faster(1024, 1024, 1024));
    ck_assert_float_eq(c[0], 1);
}
END_TEST

/* -------------------------------------------------------------- scratch -- */

/* Reused, or freed if a sanitizer shall see later uses. */
START_TEST(scratch_block_is_reused)
{
    char *a = cpu_scratch_take(100000), *b, *c;

    ck_assert_ptr_nonnull(a);
    ck_assert_uint_eq((uintptr_t)a % 64, 0);
    memset(a, 1, 100000);
    if (has_address_sanitizer())
        ck_assert(!__asan_address_is_poisoned(a + 99999) &&
                  __asan_address_is_poisoned(a + 100000));
    cpu_scratch_give(a);
    if (has_address_sanitizer())
        ck_assert(__asan_address_is_poisoned(a));
    b = cpu_scratch_take(70000); /* of the same size class */
    ck_assert(has_address_sanitizer() || b == a);
    c = cpu_scratch_take(100000);
    ck_assert_ptr_ne(c, b);
    cpu_scratch_give(b);
    cpu_scratch_give(c);
    cpu_scratch_give(NULL);
    c = cpu_scratch_take(INT64_C(40) << 20); /* larger than cached blocks */
    ck_assert_ptr_nonnull(c);
    c[(INT64_C(40) << 20) - 1] = 1;
    cpu_scratch_give(c);
    ck_assert_ptr_null(cpu_scratch_take(-1));
    ck_assert_ptr_null(cpu_scratch_take(INT64_MAX));
    cpu_scratch_shutdown();
}
END_TEST

/* Returns more blocks than there are slots, and more bytes than are cached. */
START_TEST(excess_scratch_is_freed)
{
    void *blocks[12];

    for (int i = 0; i < 12; i++)
        ck_assert_ptr_nonnull(blocks[i] = cpu_scratch_take(4 << 20));
    for (int i = 0; i < 12; i++)
        cpu_scratch_give(blocks[i]);
    cpu_scratch_shutdown();
    for (int i = 0; i < 12; i++)
        ck_assert_ptr_nonnull(blocks[i] = cpu_scratch_take(1));
    for (int i = 0; i < 12; i++)
        cpu_scratch_give(blocks[i]);
    cpu_scratch_shutdown();
}
END_TEST

static void *take_and_give(void *unused)
{
    for (int i = 0; i < 2000; i++) {
        int64_t bytes = 60000 << (i % 3);
        char *mine = cpu_scratch_take(bytes);

        if (!mine)
            return unused;
        memset(mine, i & 0x7f, 64);
        mine[bytes - 1] = (char)(i & 0x7f);
        for (int j = 0; j < 64; j++)
            if (mine[j] != (char)(i & 0x7f))
                return unused;
        cpu_scratch_give(mine);
    }
    return NULL;
}

START_TEST(threads_never_share_scratch_blocks)
{
    pthread_t threads[4];
    void *failed;

    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(
            pthread_create(&threads[i], NULL, take_and_give, &threads), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &failed);
        ck_assert_ptr_null(failed);
    }
    cpu_scratch_shutdown();
}
END_TEST

int main(void)
{
    const TTest *const products_tests[] = {
        gemm_declines_unsupported_problems,
    };
    const suite_loop products_loops[] = {
        {gemm_is_accurate_in_every_layout, 0, ISAS},
        {parts_of_a_product_equal_the_whole_bit_for_bit, 0, ISAS},
        {gemm_without_scratch_memory_gives_the_same_bits, 0, ISAS},
        {product_bits_do_not_depend_on_the_cache, 0, ISAS},
        {infinities_affect_only_their_row_and_column, 0, ISAS},
    };
    const TTest *const scratch_tests[] = {
        scratch_block_is_reused,
        excess_scratch_is_freed,
        threads_never_share_scratch_blocks,
    };
    const test_suite suites[] = {
        {
            .name = "cpu/cpu_gemm, products",
            .seconds = 120,
            SUITE_TESTS(products_tests),
            SUITE_LOOPS(products_loops),
        },
        {
            .name = "cpu/cpu_gemm, scratch",
            SUITE_TESTS(scratch_tests),
        },
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
