/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "support/cpu_view.h"

static const char *const by_dimension[] = {"index_select", "gather"};

START_TEST(index_out_of_range_error_names_index_and_dimension)
{
    tensor *x = F32(5, 4), *y = F32(3, 4), *at;
    int64_t sizes[2] = {3, 4};
    test_call call = {
        by_dimension[_i], {value_view(x), value_int(0)}, 4, {y}, 1};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    at = tensor_new(CORE_I64, _i == 0 ? 1 : 2, sizes);
    call.args[2] = value_view(at);
    ck_assert_int_eq(run_call(&call), CORE_OK);
    tensor_set(at, 2, 5);
    ck_assert_int_eq(run_call(&call), CORE_ERROR_INDEX);
    cpu_message[0] = '\0';
    tensor_set(at, 2, -1);
    ck_assert_int_eq(run_call(&call), CORE_ERROR_INDEX);
    ck_assert_ptr_nonnull(strstr(cpu_message, "-1"));
    ck_assert_ptr_nonnull(strstr(cpu_message, "size 5"));
    ck_assert_ptr_nonnull(strstr(cpu_message, "dimension 0"));
    tensor_free(x);
    tensor_free(y);
    tensor_free(at);
    cpu_close();
}
END_TEST

START_TEST(negative_index_counts_from_the_end)
{
    tensor *x = tensor_random(F32(5, 4), 1), *y = F32(2, 4), *at = I64(2);
    const core_view *list[] = {&at->view};
    core_value indices = {
        .tag = CORE_VALUE_VIEW_LIST, .count = 1, .u.views = list};
    test_call call = {"index.Tensor", {value_view(x), indices}, 2, {y}, 1};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    tensor_set(at, 0, -1);
    tensor_set(at, 1, -5);
    ck_assert_int_eq(run_call(&call), CORE_OK);
    for (int k = 0; k < 4; k++) {
        ck_assert(tensor_get(y, k) == tensor_get(x, 16 + k));
        ck_assert(tensor_get(y, 4 + k) == tensor_get(x, k));
    }
    tensor_set(at, 0, -6);
    ck_assert_int_eq(run_call(&call), CORE_ERROR_INDEX);
    tensor_free(x);
    tensor_free(y);
    tensor_free(at);
    cpu_close();
}
END_TEST

/* Checks that the result is the same with 1 to 4 threads. */
static void same_for_any_threads(const test_call *call)
{
    tensor *y = call->results[0];
    size_t size = (size_t)y->view.numel * sizeof(float);
    void *first = malloc(size);

    for (uint32_t threads = 1; threads <= 4; threads++) {
        cpu_threads(threads);
        ck_assert_int_eq(run_call(call), CORE_OK);
        if (threads == 1)
            memcpy(first, y->data, size);
        ck_assert_msg(memcmp(first, y->data, size) == 0, "%s with %u threads",
                      call->name, threads);
    }
    free(first);
}

START_TEST(repeated_indices_accumulate_the_same_with_any_threads)
{
    tensor *x = tensor_random(F32(50, 700), 1), *y = F32(50, 700);
    tensor *source = tensor_random(F32(400, 700), 2);
    tensor *rows = tensor_below(I64(400), 50, 3);
    tensor *all = tensor_below(I64(400, 700), 50, 4);
    const core_view *list[] = {&rows->view};
    core_value indices = {
        .tag = CORE_VALUE_VIEW_LIST, .count = 1, .u.views = list};
    test_call calls[] = {
        {"index_add",
         {value_view(x), value_int(0), value_view(rows), value_view(source),
          value_float(0.5)},
         5,
         {y},
         1},
        {"index_copy",
         {value_view(x), value_int(0), value_view(rows), value_view(source)},
         4,
         {y},
         1},
        {"scatter_add",
         {value_view(x), value_int(0), value_view(all), value_view(source)},
         4,
         {y},
         1},
        {"scatter.src",
         {value_view(x), value_int(0), value_view(all), value_view(source)},
         4,
         {y},
         1},
        {"index_put",
         {value_view(x), indices, value_view(source), value_bool(1)},
         4,
         {y},
         1},
        {"index_put",
         {value_view(x), indices, value_view(source), value_bool(0)},
         4,
         {y},
         1},
        {"embedding_dense_backward",
         {value_view(source), value_view(rows), value_int(50), value_int(-1),
          value_bool(1)},
         5,
         {y},
         1},
    };

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (size_t k = 0; k < sizeof(calls) / sizeof(calls[0]); k++)
        same_for_any_threads(&calls[k]);
    tensor_free(x);
    tensor_free(y);
    tensor_free(source);
    tensor_free(rows);
    tensor_free(all);
    cpu_close();
}
END_TEST

START_TEST(scatter_keeps_the_last_of_repeated_indices)
{
    tensor *x = F32(3), *y = F32(3), *at = I64(4), *source = F32(4);
    test_call call = {
        "scatter.src",
        {value_view(x), value_int(0), value_view(at), value_view(source)},
        4,
        {y},
        1};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int k = 0; k < 4; k++) {
        tensor_set(at, k, k % 2);
        tensor_set(source, k, 10 + k);
    }
    ck_assert_int_eq(run_call(&call), CORE_OK);
    ck_assert(tensor_get(y, 0) == 12);
    ck_assert(tensor_get(y, 1) == 13);
    ck_assert(tensor_get(y, 2) == 0);
    tensor_free(x);
    tensor_free(y);
    tensor_free(at);
    tensor_free(source);
    cpu_close();
}
END_TEST

START_TEST(sort_is_stable_and_puts_nan_last)
{
    static const double in[] = {2, NAN, 1, 2, -INFINITY, 1, NAN};
    static const int64_t up[] = {4, 2, 5, 0, 3, 1, 6};
    static const int64_t down[] = {1, 6, 0, 3, 2, 5, 4};
    tensor *x = F32(7), *y = F32(7), *at = I64(7);

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int k = 0; k < 7; k++)
        tensor_set(x, k, in[k]);
    for (int descending = 0; descending < 2; descending++) {
        test_call call = {"sort.stable",
                          {value_view(x), value_bool(1), value_int(0),
                           value_bool(descending)},
                          4,
                          {y, at},
                          2};

        ck_assert_int_eq(run_call(&call), CORE_OK);
        ck_assert(memcmp(at->data, descending ? down : up, sizeof(up)) == 0);
    }
    tensor_free(x);
    tensor_free(y);
    tensor_free(at);
    cpu_close();
}
END_TEST

START_TEST(sort_orders_long_rows_stably)
{
    enum { N = 1000 };
    tensor *x = tensor_below(I64(3, N), 300, 5), *y = I64(3, N);
    tensor *at = I64(3, N);
    test_call call = {
        "sort.stable",
        {value_view(x), value_bool(1), value_int(1), value_bool(0)},
        4,
        {y, at},
        2};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    ck_assert_int_eq(run_call(&call), CORE_OK);
    for (int line = 0; line < 3; line++)
        for (int k = 1; k < N; k++) {
            double a = tensor_get(y, line * N + k - 1);
            double b = tensor_get(y, line * N + k);
            double at_a = tensor_get(at, line * N + k - 1);
            double at_b = tensor_get(at, line * N + k);

            ck_assert(a < b || (a == b && at_a < at_b));
            ck_assert(b == tensor_get(x, line * N + (int)at_b));
        }
    tensor_free(x);
    tensor_free(y);
    tensor_free(at);
    cpu_close();
}
END_TEST

static bool stays_before(float a, float b, bool descending)
{
    return descending ? !(b > a || (b != b && a == a))
                      : !(b < a || (a != a && b == b));
}

/* Rows of every length around those of runs, of few different values: NaN, both
 * zeros and infinities among them, which keep their bits. */
START_TEST(sorted_rows_of_any_length_are_stable)
{
    static const float few[] = {0, -0.f, NAN, -NAN, INFINITY, -INFINITY, 1, -2};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (int64_t n = 1; n < 600; n += n < 70 ? 1 : 61)
        for (int descending = 0; descending < 2; descending++) {
            tensor *x = F32(n), *values = F32(n), *places = I64(n);
            test_call call = {
                "sort",
                {value_view(x), value_int(0), value_bool(descending != 0)},
                3,
                {values, places},
                2};
            float *in = x->data, *out = values->data;
            int64_t *at = places->data;
            uint32_t state = (uint32_t)n;

            for (int64_t k = 0; k < n; k++)
                in[k] = next_random(&state) % 3 ? few[next_random(&state) % 8]
                                                : random_float(&state);
            ck_assert_int_eq(run_call(&call), CORE_OK);
            for (int64_t k = 0; k < n; k++) {
                ck_assert(at[k] >= 0 && at[k] < n);
                ck_assert(memcmp(&out[k], &in[at[k]], sizeof *in) == 0);
                if (k == 0)
                    continue;
                ck_assert(stays_before(out[k - 1], out[k], descending));
                if (stays_before(out[k], out[k - 1], descending))
                    ck_assert(at[k - 1] < at[k]);
            }
            tensor_free(x);
            tensor_free(values);
            tensor_free(places);
        }
    cpu_close();
}
END_TEST

/* Kernels of each kind give the same results for strided operands. */
START_TEST(strides_do_not_change_results)
{
    tensor *x = tensor_random(F32(4, 5, 6), 1), *y = F32(4, 5, 6);
    tensor *at = tensor_below(I64(4, 5, 6), 4, 2);
    tensor *turned = tensor_turned(x), *out = tensor_turned(y);
    const struct {
        const char *name;
        core_value args[3];
    } cases[] = {
        {"_softmax", {value_int(1), value_bool(0)}},
        {"_log_softmax", {value_int(2), value_bool(0)}},
        {"cumsum", {value_int(0)}},
        {"flip", {INTS(0, 2)}},
        {"roll", {INTS(2, -1), INTS(0, 1)}},
        {"roll", {INTS(7), value_ints(0, NULL)}},
        {"tril", {value_int(-1)}},
        {"triu", {value_int(1)}},
        {"gather", {value_int(0), value_view(at), value_bool(0)}},
    };

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        test_call dense = {cases[k].name,
                           {value_view(x), cases[k].args[0], cases[k].args[1],
                            cases[k].args[2]},
                           4,
                           {y},
                           1};
        test_call strided = dense;

        strided.args[0] = value_view(turned);
        strided.results[0] = out;
        ck_assert_int_eq(run_call(&dense), CORE_OK);
        ck_assert_int_eq(run_call(&strided), CORE_OK);
        for (int64_t i = 0; i < y->view.numel; i++)
            ck_assert_msg(tensor_get(y, i) == tensor_get(out, i), "%s at %ld",
                          cases[k].name, (long)i);
    }
    tensor_free(x);
    tensor_free(y);
    tensor_free(at);
    tensor_free(turned);
    tensor_free(out);
    cpu_close();
}
END_TEST

/* Runs the call with 1 and 4 threads, into y, and with the operand and the
 * result at other strides, into out; compares them. */
static void same_however_stored(const test_call *dense, tensor *turned,
                                tensor *y, tensor *out)
{
    test_call strided = *dense;
    size_t size = (size_t)y->view.numel * (y->view.dtype == CORE_F32 ? 4 : 2);
    void *first = malloc(size);

    strided.args[0] = value_view(turned);
    strided.results[0] = out;
    cpu_threads(1);
    ck_assert_int_eq(run_call(dense), CORE_OK);
    memcpy(first, y->data, size);
    cpu_threads(4);
    ck_assert_int_eq(run_call(dense), CORE_OK);
    ck_assert_msg(memcmp(first, y->data, size) == 0, "%s: threads",
                  dense->name);
    ck_assert_int_eq(run_call(&strided), CORE_OK);
    for (int64_t i = 0; i < y->view.numel; i++)
        ck_assert_msg(tensor_get(y, i) == tensor_get(out, i), "%s at %ld",
                      dense->name, (long)i);
    free(first);
}

/* Neighbouring lines are processed together where they are neighbours in
 * memory; more than a strip of them. */
START_TEST(neighbouring_lines_give_the_same_as_single_ones)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F16, CORE_BF16};
    const int64_t sizes[] = {2, 9, 300};
    tensor *x = tensor_random(tensor_new(dtypes[_i], 3, sizes), 1);
    tensor *y = tensor_new(dtypes[_i], 3, sizes);
    tensor *more = tensor_random(tensor_new(dtypes[_i], 3, sizes), 3);
    tensor *at = tensor_below(I64(2, 9, 300), 9, 2);
    tensor *turned = tensor_turned(x), *out = tensor_turned(y);
    const struct {
        const char *name;
        core_value args[3];
    } cases[] = {
        {"cumsum", {value_int(1)}},
        {"cumprod", {value_int(1)}},
        {"cumsum", {value_int(0)}},
        {"gather", {value_int(1), value_view(at), value_bool(0)}},
        {"scatter.src", {value_int(1), value_view(at), value_view(more)}},
        {"scatter_add", {value_int(1), value_view(at), value_view(more)}},
    };

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        test_call dense = {cases[k].name,
                           {value_view(x), cases[k].args[0], cases[k].args[1],
                            cases[k].args[2]},
                           4,
                           {y},
                           1};

        same_however_stored(&dense, turned, y, out);
    }
    tensor_free(x);
    tensor_free(y);
    tensor_free(more);
    tensor_free(at);
    tensor_free(turned);
    tensor_free(out);
    cpu_close();
}
END_TEST

/* Copies in both directions, of lengths around those of vectors, lines and
 * larger pieces. */
START_TEST(flip_and_roll_move_every_element)
{
    static const core_dtype dtypes[] = {CORE_BOOL, CORE_F32, CORE_F64};
    static const int64_t lengths[] = {1, 7, 64, 255, 1030, 4099, 70001};

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int d = 0; d < 3; d++)
        for (int k = 0; k < 7; k++) {
            int64_t n = lengths[k];
            tensor *x = tensor_new(dtypes[d], 1, &n);
            tensor *y = tensor_new(dtypes[d], 1, &n);
            test_call flip = {"flip", {value_view(x), INTS(0)}, 2, {y}, 1};
            test_call roll = {
                "roll", {value_view(x), INTS(3), INTS(0)}, 3, {y}, 1};

            tensor_below(x, 1000, 5);
            ck_assert_int_eq(run_call(&flip), CORE_OK);
            for (int64_t i = 0; i < n; i++)
                ck_assert(tensor_get(y, i) == tensor_get(x, n - 1 - i));
            ck_assert_int_eq(run_call(&roll), CORE_OK);
            for (int64_t i = 0; i < n; i++)
                ck_assert(tensor_get(y, (i + 3) % n) == tensor_get(x, i));
            tensor_free(x);
            tensor_free(y);
        }
    cpu_close();
}
END_TEST

START_TEST(extreme_indices_are_out_of_range)
{
    static const int64_t wrong[] = {INT64_MIN, INT64_MAX, -1, 700};
    tensor *x = tensor_random(F32(2, 700), 1), *y = F32(2, 300);
    tensor *at = tensor_below(I64(2, 300), 700, 2);
    const test_call call = {
        "gather", {value_view(x), value_int(1), value_view(at)}, 3, {y}, 1};

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    ck_assert_int_eq(run_call(&call), CORE_OK);
    for (int64_t i = 0; i < 600; i++)
        ck_assert(tensor_get(y, i) ==
                  tensor_get(x, i / 300 * 700 + (int64_t)tensor_get(at, i)));
    for (int k = 0; k < 4; k++)
        for (int64_t i = 0; i < 600; i += 299) {
            int64_t before = ((int64_t *)at->data)[i];

            ((int64_t *)at->data)[i] = wrong[k];
            ck_assert_int_eq(run_call(&call), CORE_ERROR_INDEX);
            ((int64_t *)at->data)[i] = before;
        }
    tensor_free(x);
    tensor_free(y);
    tensor_free(at);
    cpu_close();
}
END_TEST

/* What the line's elements are like. */
enum { MIXED, FEW_VALUES, WITH_NAN, SORTED, EQUAL, KINDS };

static void fill_line(tensor *x, int64_t n, int kind, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        double value = (double)random_float(&seed);

        if (kind == FEW_VALUES)
            value = floor(3 * value);
        if (kind == WITH_NAN && i % 3 == 1)
            value = NAN;
        if (kind == SORTED || kind == EQUAL)
            value = kind == SORTED ? (double)i : 1;
        tensor_set(x, i, value);
    }
}

/* Element k of the line sorted by the operator sort: value and position. */
static void is_place_of(const test_call *one, const tensor *sorted,
                        const tensor *places, int64_t k)
{
    double got = tensor_get(one->results[0], 0), want = tensor_get(sorted, k);

    ck_assert(got == want || (isnan(got) && isnan(want)));
    ck_assert(tensor_get(one->results[1], 0) == tensor_get(places, k));
}

START_TEST(kth_values_and_medians_are_those_of_the_sorted_line)
{
    static const int64_t lengths[] = {1, 2, 5, 16, 17, 40, 333};
    const int kind = _i;

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        int64_t n = lengths[l], numbers = 0;
        tensor *x = F32(n), *sorted = F32(n), *places = I64(n);
        tensor *value = F32(1), *place = I64(1);
        test_call sort = {"sort",
                          {value_view(x), value_int(0), value_bool(false)},
                          3,
                          {sorted, places},
                          2};
        test_call one = {
            "kthvalue",
            {value_view(x), value_int(1), value_int(0), value_bool(true)},
            4,
            {value, place},
            2};

        fill_line(x, n, kind, (uint32_t)n);
        ck_assert_int_eq(run_call(&sort), CORE_OK);
        for (int64_t k = 1; k <= n; k += 1 + n / 9) {
            one.args[1] = value_int(k);
            ck_assert_int_eq(run_call(&one), CORE_OK);
            is_place_of(&one, sorted, places, k - 1);
        }
        while (numbers < n && !isnan(tensor_get(sorted, numbers)))
            numbers++;
        one.name = "median.dim";
        one.args[1] = value_int(0);
        one.args[2] = value_bool(true);
        one.nargs = 3;
        ck_assert_int_eq(run_call(&one), CORE_OK);
        is_place_of(&one, sorted, places, numbers < n ? numbers : (n - 1) / 2);
        one.name = "nanmedian.dim";
        ck_assert_int_eq(run_call(&one), CORE_OK);
        is_place_of(&one, sorted, places, numbers ? (numbers - 1) / 2 : 0);
        tensor_free(x);
        tensor_free(sorted);
        tensor_free(places);
        tensor_free(value);
        tensor_free(place);
    }
    cpu_close();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        negative_index_counts_from_the_end,
        repeated_indices_accumulate_the_same_with_any_threads,
        scatter_keeps_the_last_of_repeated_indices,
        sort_is_stable_and_puts_nan_last,
        sort_orders_long_rows_stably,
        sorted_rows_of_any_length_are_stable,
        strides_do_not_change_results,
        extreme_indices_are_out_of_range,
    };
    const suite_loop loops[] = {
        {index_out_of_range_error_names_index_and_dimension, 0, 2},
        {flip_and_roll_move_every_element, 0, 3},
        {neighbouring_lines_give_the_same_as_single_ones, 0, 3},
        {kth_values_and_medians_are_those_of_the_sorted_line, 0, KINDS},
    };
    const test_suite suite = {
        .name = "cpu/cpu_view_index",
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
