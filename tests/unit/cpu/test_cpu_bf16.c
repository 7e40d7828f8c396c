/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Products of bf16 matrices by bf16 instructions, where the machine has them
 * (bf16.h), and through f32. */

#define SUITE_FORKS true

#include "support/cpu_view.h"
#include "support/effort.h"

#include <float.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

/* NULL: the best of the machine; the others disable the bf16 instructions. */
static const char *const isas[] = {NULL, "avx512", "baseline"};
enum { ISAS = 3 };

/* Memory layouts of a matrix. */
enum { ROWS, COLUMNS, GAPS, NEITHER, LAYOUTS };

static double value_of(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;

    memcpy(&x, &bits, 4);
    return (double)x;
}

static uint16_t half_of(double value)
{
    float x = (float)value;
    uint32_t bits;

    memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double get(const tensor *t, int64_t i)
{
    return value_of(((uint16_t *)t->data)[tensor_offset(t, i)]);
}

static void set(tensor *t, int64_t i, double value)
{
    ((uint16_t *)t->data)[tensor_offset(t, i)] = half_of(value);
}

/* Fills with numbers of several magnitudes around 0. */
static tensor *fill(tensor *t, uint32_t seed)
{
    for (int64_t i = 0; i < t->view.numel; i++) {
        seed = seed * 1664525 + 1013904223;
        set(t, i, ldexp((int32_t)seed, -31 - (int)(seed >> 8 & 3)));
    }
    return t;
}

static tensor *matrix(int layout, int64_t m, int64_t n, uint32_t seed)
{
    const int64_t sizes[] = {m, n};
    const int64_t strides[LAYOUTS][2] = {
        {n, 1}, {1, m}, {n + 3, 1}, {2 * n + 1, 2}};

    tensor *t = tensor_strided(CORE_BF16, 2, sizes, strides[layout]);
    int64_t last = (m - 1) * strides[layout][0] + (n - 1) * strides[layout][1];

    for (int64_t i = 0; m > 0 && n > 0 && i <= last + 3; i++)
        ((uint16_t *)t->data)[i] = 0x7fc0; /* NaN in the gaps */
    return fill(t, seed);
}

/* Checks c == beta s + alpha a b up to the rounding of k sums in f32, of the
 * factors, and of the result. */
static void check_element(double c, double product, double magnitude,
                          double added, int64_t k)
{
    double want = product + added;
    double sums =
        (double)(k + 4) * (double)FLT_EPSILON * (magnitude + fabs(added));
    double last = fabs(want) / 256 + 0x1p-134;

    ck_assert_msg(fabs(c - want) <= sums + last, "%a, want %a (k %ld)", c, want,
                  (long)k);
}

/* The elements of a tensor in row-major order. */
static double *values(const tensor *t, int64_t count)
{
    double *all = malloc((size_t)count * sizeof *all + 1);

    ck_assert_ptr_nonnull(all);
    for (int64_t i = 0; i < count; i++)
        all[i] = get(t, i);
    return all;
}

static void check(const tensor *a, const tensor *b, const tensor *s,
                  double beta, double alpha, const tensor *c, int64_t m,
                  int64_t n, int64_t k, int64_t batch)
{
    double *left = values(a, batch * m * k), *right = values(b, batch * k * n);

    for (int64_t at = 0; at < batch * m * n; at++) {
        int64_t one = at / (m * n), i = at / n % m, j = at % n;
        double sum = 0, magnitude = 0;

        for (int64_t p = 0; p < k; p++) {
            double x = left[(one * m + i) * k + p];
            double y = right[(one * k + p) * n + j];

            sum += alpha * x * y;
            magnitude += fabs(alpha * x * y);
        }
        check_element(get(c, at), sum, magnitude, s ? beta * get(s, j) : 0, k);
    }
    free(left);
    free(right);
}

static void product(int la, int lb, int lc, int64_t m, int64_t n, int64_t k)
{
    tensor *a = matrix(la, m, k, 1), *b = matrix(lb, k, n, 2);
    tensor *c = matrix(lc, m, n, 3), *s = fill(tensor_new(CORE_BF16, 1, &n), 4);
    test_call mm = {"mm", {value_view(a), value_view(b)}, 2, {c}, 1};
    test_call addmm = {"addmm",
                       {value_view(s), value_view(a), value_view(b),
                        value_float(-3), value_float(0.7)},
                       5,
                       {c},
                       1};

    ck_assert_int_eq(run_call(&mm), CORE_OK);
    check(a, b, NULL, 0, 1, c, m, n, k, 1);
    ck_assert_int_eq(run_call(&addmm), CORE_OK);
    check(a, b, s, -3, (double)0.7f, c, m, n, k, 1);
    tensor_free(a);
    tensor_free(b);
    tensor_free(c);
    tensor_free(s);
}

START_TEST(bf16_products_of_any_layout_are_accurate)
{
    static const int64_t shapes[][3] = {
        {2, 2, 1030}, {17, 33, 65}, {14, 32, 32}, {15, 16, 31},
        {29, 17, 50}, {300, 3, 20}, {3, 300, 20}, {43, 70, 1},
        {1, 90, 50},  {90, 1, 50},  {13, 47, 33}, {40, 31, 1},
    };

    if (!cpu_open_isa(isas[_i]))
        return;
    for (int la = 0; la < LAYOUTS; la++)
        for (int lb = 0; lb < LAYOUTS; lb++)
            for (int lc = 0; lc < LAYOUTS; lc++)
                for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
                    product(la, lb, lc, shapes[s][0], shapes[s][1],
                            shapes[s][2]);
    cpu_close();
}
END_TEST

START_TEST(long_sums_over_several_blocks_are_accurate)
{
    if (effort_is_slow() && _i > 0) /* one instruction set */
        return;
    if (!cpu_open_isa(isas[_i]))
        return;
    if (!effort_is_slow())
        product(ROWS, COLUMNS, ROWS, 130, 150, 2051);
    product(COLUMNS, ROWS, COLUMNS, 119, 33, 1025);
    cpu_close();
}
END_TEST

/* Neither the memory layout nor the number of threads changes any bit. */
START_TEST(bits_do_not_depend_on_threads_or_layout)
{
    enum { M = 230, N = 170, K = 1100 };
    tensor *s = fill(tensor_new(CORE_BF16, 1, (const int64_t[]){N}), 4);
    uint16_t *first = calloc(M * N, 2);

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int run = 0; run < 10; run++) {
        tensor *a = matrix(run % LAYOUTS, M, K, 1);
        tensor *b = matrix(run / 2 % LAYOUTS, K, N, 2);
        tensor *c = matrix(ROWS, M, N, 3);
        test_call call = {"addmm",
                          {value_view(s), value_view(a), value_view(b),
                           value_float(1), value_float(1)},
                          5,
                          {c},
                          1};

        cpu_threads((uint32_t)(run % 5 + 1));
        ck_assert_int_eq(run_call(&call), CORE_OK);
        if (run == 0)
            memcpy(first, c->data, M * N * 2);
        ck_assert(memcmp(first, c->data, M * N * 2) == 0);
        tensor_free(a);
        tensor_free(b);
        tensor_free(c);
    }
    tensor_free(s);
    free(first);
    cpu_close();
}
END_TEST

START_TEST(batched_and_broadcast_products_are_accurate)
{
    enum { B = 5, M = 33, N = 35, K = 21 };
    const int64_t once[] = {0, K, 1}, turned[] = {K * N, 1, K};
    tensor *a = fill(tensor_strided(CORE_BF16, SIZES(B, M, K), NULL), 1);
    tensor *r = fill(tensor_strided(CORE_BF16, SIZES(B, M, K), once), 2);
    tensor *b = fill(tensor_strided(CORE_BF16, SIZES(B, K, N), turned), 3);
    tensor *c = tensor_strided(CORE_BF16, SIZES(B, M, N), NULL);
    tensor *s = fill(tensor_strided(CORE_BF16, SIZES(1, 1, N), NULL), 4);
    test_call bmm = {"bmm", {value_view(a), value_view(b)}, 2, {c}, 1};
    test_call repeated = {"baddbmm",
                          {value_view(s), value_view(r), value_view(b),
                           value_float(2), value_float(1)},
                          5,
                          {c},
                          1};

    if (!cpu_open_isa(isas[_i]))
        goto done;
    ck_assert_int_eq(run_call(&bmm), CORE_OK);
    check(a, b, NULL, 0, 1, c, M, N, K, B);
    ck_assert_int_eq(run_call(&repeated), CORE_OK);
    check(r, b, s, 2, 1, c, M, N, K, B);
    cpu_close();
done:
    tensor_free(a);
    tensor_free(r);
    tensor_free(b);
    tensor_free(c);
    tensor_free(s);
}
END_TEST

/* With few threads each matrix is packed in turn; with many, all are first. */
START_TEST(bits_of_many_small_products_do_not_depend_on_packing)
{
    enum { B = 40, M = 100, N = 64, K = 33 };
    const int64_t turned[] = {K * N, 1, K};
    tensor *a = fill(tensor_strided(CORE_BF16, SIZES(B, M, K), NULL), 1);
    tensor *b = fill(tensor_strided(CORE_BF16, SIZES(B, K, N), turned), 3);
    uint16_t *first = calloc(B * M * N, 2);

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (uint32_t threads = 1; threads <= 16; threads += 5) {
        tensor *c = tensor_strided(CORE_BF16, SIZES(B, M, N), NULL);
        test_call bmm = {"bmm", {value_view(a), value_view(b)}, 2, {c}, 1};

        cpu_threads(threads);
        ck_assert_int_eq(run_call(&bmm), CORE_OK);
        if (threads == 1) {
            check(a, b, NULL, 0, 1, c, M, N, K, B);
            memcpy(first, c->data, B * M * N * 2);
        }
        ck_assert(memcmp(first, c->data, B * M * N * 2) == 0);
        tensor_free(c);
    }
    tensor_free(a);
    tensor_free(b);
    free(first);
    cpu_close();
}
END_TEST

static void multiply_nan_and_infinity(void)
{
    enum { M = 30, N = 50, K = 41 };
    tensor *a = matrix(ROWS, M, K, 1), *b = matrix(ROWS, K, N, 2);
    tensor *c = matrix(ROWS, M, N, 3);
    test_call call = {"mm", {value_view(a), value_view(b)}, 2, {c}, 1};

    ((uint16_t *)a->data)[3 * K + K - 1] = 0x7fc0; /* NaN */
    ((uint16_t *)a->data)[7 * K + 4] = 0xff80;     /* -infinity */
    ((uint16_t *)a->data)[9 * K] = 0x7f7f; /* the largest finite number */
    set(b, 0, 8);
    set(b, 4 * N + 5, 0);
    ck_assert_int_eq(run_call(&call), CORE_OK);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double x = get(c, i * N + j), y = get(b, 4 * N + j);

            if (i == 3 || (i == 7 && y == 0))
                ck_assert(isnan(x));
            else if (i == 7)
                ck_assert(isinf(x) && (x < 0) == (y > 0));
            else
                ck_assert(i == 9 && j == 0 ? x == INFINITY : isfinite(x));
        }
    tensor_free(a);
    tensor_free(b);
    tensor_free(c);
}

START_TEST(nan_and_infinity_affect_only_their_row)
{
    if (!cpu_open_isa(isas[_i]))
        return;
    multiply_nan_and_infinity();
    cpu_close();
}
END_TEST

/* Padding must not multiply data beyond an edge: 0 times infinity is NaN. */
static void multiply_rows_with_gaps(void)
{
    enum { M = 15, N = 33, K = 33 };
    tensor *a = matrix(GAPS, M, K, 1), *b = matrix(GAPS, K, N, 2);
    tensor *c = matrix(GAPS, M, N, 3);
    test_call call = {"mm", {value_view(a), value_view(b)}, 2, {c}, 1};

    for (int i = 0; i < M; i++)
        for (int gap = 0; gap < 3; gap++) {
            ((uint16_t *)a->data)[i * (K + 3) + K + gap] = 0x7f80;
            ((uint16_t *)c->data)[i * (N + 3) + N + gap] = 0x1234;
        }
    for (int i = 0; i < K; i++)
        for (int gap = 0; gap < 3; gap++)
            ((uint16_t *)b->data)[i * (N + 3) + N + gap] = 0x7fc0;
    ck_assert_int_eq(run_call(&call), CORE_OK);
    check(a, b, NULL, 0, 1, c, M, N, K, 1);
    for (int i = 0; i + 1 < M; i++)
        for (int gap = 0; gap < 3; gap++)
            ck_assert_uint_eq(((uint16_t *)c->data)[i * (N + 3) + N + gap],
                              0x1234);
    tensor_free(a);
    tensor_free(b);
    tensor_free(c);
}

START_TEST(gaps_between_rows_are_not_used)
{
    if (!cpu_open_isa(isas[_i]))
        return;
    multiply_rows_with_gaps();
    cpu_close();
}
END_TEST

enum { MAPPED = 1 << 16 };

/* Moves the contents to the end of a page that an unreadable page follows. */
static void *to_the_edge(tensor *t, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped = MAPPED;
    char *pages = mmap(NULL, mapped + page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    ck_assert(pages != MAP_FAILED);
    ck_assert_int_eq(mprotect(pages + mapped, page, PROT_NONE), 0);
    memcpy(pages + mapped - size, t->data, size);
    t->view.memory.handle = pages + mapped - size;
    return pages;
}

START_TEST(memory_beyond_an_operand_is_not_accessed)
{
    enum { M = 45, N = 71, K = 37 };

    if (!cpu_open_isa(isas[_i]))
        return;
    for (int layout = ROWS; layout <= COLUMNS; layout++) {
        tensor *a = matrix(layout, M, K, 1), *b = matrix(layout, K, N, 2);
        tensor *c = matrix(layout, M, N, 3);
        test_call call = {"mm", {value_view(a), value_view(b)}, 2, {c}, 1};
        void *pages[] = {to_the_edge(a, M * K * 2), to_the_edge(b, K * N * 2),
                         to_the_edge(c, M * N * 2)};

        ck_assert_int_eq(run_call(&call), CORE_OK);
        memcpy(c->data, c->view.memory.handle, M * N * 2);
        check(a, b, NULL, 0, 1, c, M, N, K, 1);
        for (int i = 0; i < 3; i++)
            munmap(pages[i], MAPPED + (size_t)sysconf(_SC_PAGESIZE));
        tensor_free(a);
        tensor_free(b);
        tensor_free(c);
    }
    cpu_close();
}
END_TEST

START_TEST(products_with_empty_dimensions_are_correct)
{
    static const int64_t shapes[][3] = {
        {0, 40, 40}, {40, 0, 40}, {40, 40, 0}, {0, 0, 0}};

    if (!cpu_open_isa(isas[_i]))
        return;
    for (int s = 0; s < 4; s++)
        product(ROWS, ROWS, ROWS, shapes[s][0], shapes[s][1], shapes[s][2]);
    cpu_close();
}
END_TEST

/* With alpha and beta; self is also the result, as in addmm_. */
static void add_product_to_self(void)
{
    enum { M = 37, N = 41, K = 30 };
    tensor *a = matrix(ROWS, M, K, 1), *b = matrix(COLUMNS, K, N, 2);
    tensor *c = matrix(ROWS, M, N, 3), *before = matrix(ROWS, M, N, 3);
    test_call call = {"addmm",
                      {value_view(c), value_view(a), value_view(b),
                       value_float(0.5), value_float(2)},
                      5,
                      {c},
                      1};

    ck_assert_int_eq(run_call(&call), CORE_OK);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0, magnitude = 0;

            for (int p = 0; p < K; p++) {
                double term = 2 * get(a, i * K + p) * get(b, p * N + j);

                sum += term;
                magnitude += fabs(term);
            }
            check_element(get(c, i * N + j), sum, magnitude,
                          0.5 * get(before, i * N + j), K);
        }
    tensor_free(a);
    tensor_free(b);
    tensor_free(c);
    tensor_free(before);
}

START_TEST(addmm_accepts_self_as_result)
{
    if (!cpu_open_isa(isas[_i]))
        return;
    add_product_to_self();
    cpu_close();
}
END_TEST

/* The bf16 instructions flush subnormal numbers to 0, conversion to f32 does
 * not, so the result shows which of the two was used. */
static void check_instructions(const char *isa)
{
    enum { M = 16, N = 32, K = 64 };
    tensor *a = matrix(ROWS, M, K, 1), *b = matrix(ROWS, K, N, 2);
    tensor *c = matrix(ROWS, M, N, 3);
    test_call call = {"mm", {value_view(a), value_view(b)}, 2, {c}, 1};
    core_device_information information = {.struct_size = sizeof information};
    bool instructions = false;
    void *device;

    for (int i = 0; i < M * K; i++)
        ((uint16_t *)a->data)[i] = i % K == 0; /* the least number above 0 */
    for (int i = 0; i < K * N; i++)
        set(b, i, 0x1p20);
    ck_assert_int_eq(cpu_backend->device_open(NULL, 0, &device), CORE_OK);
    ck_assert_int_eq(cpu_backend->device_information(device, &information),
                     CORE_OK);
    instructions = strstr(information.features.data, "isa=avx512_bf16") != NULL;
    ck_assert(!instructions || isa == NULL);
    ck_assert_int_eq(run_call(&call), CORE_OK);
    ck_assert(get(c, 0) == (instructions ? 0 : 0x1p-113));
    tensor_free(a);
    tensor_free(b);
    tensor_free(c);
}

START_TEST(isa_setting_disables_bf16_instructions)
{
    if (!cpu_open_isa(isas[_i]))
        return;
    check_instructions(isas[_i]);
    cpu_close();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        bits_do_not_depend_on_threads_or_layout,
        bits_of_many_small_products_do_not_depend_on_packing,
    };
    const suite_loop loops[] = {
        {bf16_products_of_any_layout_are_accurate, 0, ISAS},
        {long_sums_over_several_blocks_are_accurate, 0, ISAS},
        {batched_and_broadcast_products_are_accurate, 0, ISAS},
        {nan_and_infinity_affect_only_their_row, 0, ISAS},
        {gaps_between_rows_are_not_used, 0, ISAS},
        {memory_beyond_an_operand_is_not_accessed, 0, ISAS},
        {products_with_empty_dimensions_are_correct, 0, ISAS},
        {addmm_accepts_self_as_result, 0, ISAS},
        {isa_setting_disables_bf16_instructions, 0, ISAS},
    };
    const test_suite suite = {
        .name = "cpu/cpu_bf16",
        .seconds = 120,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
