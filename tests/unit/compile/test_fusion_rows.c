/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Operators that reduce rows in fused kernels (CORE_COMPILE_REORDER_SUMS): the
 * results agree with those of operators, and explain says why others are not in
 * a kernel. */

#define SUITE_FORKS true /* counts are those of a process */
#include "support/training.h"

#include "compile/compiled/compiled.h"
#include "compile/prepare/prepared.h"

enum { ROWS = 7, LONG = 140, MOST = 1024 };

static const int64_t last[] = {1};

static core_compiled *compile_rows(core_tensor_function function, world *w)
{
    return compile_with(
        function, w,
        (core_compile_options){.flags = CORE_COMPILE_FULLGRAPH |
                                        CORE_COMPILE_REORDER_SUMS,
                               .codegen = CORE_COMPILE_CODEGEN_ON});
}

static uint32_t launches_of(core_compiled *compiled)
{
    const char *reason;
    core__prepared_facts *facts =
        core__prepared_describe(compiled->entries[0]->program, &reason);
    uint32_t launches;

    ck_assert_msg(facts != NULL, "not prepared: %s", reason);
    launches = facts->launches;
    core__prepared_facts_release(facts);
    return launches;
}

static size_t read_doubles(core_tensor *from, double *to)
{
    core_tensor *wide = NULL;
    size_t count = (size_t)core_tensor_numel(from);

    ck_assert_uint_le(count, MOST);
    OK(core_to_copy(from, CORE_F64, NULL, false, -1, &wide));
    OK(core_tensor_read(wide, to, count * sizeof *to));
    core_tensor_release(wide);
    return count;
}

static void near(core_tensor *a, core_tensor *b, double tolerance)
{
    static double x[MOST], y[MOST];
    size_t count = read_doubles(a, x);

    ck_assert_int_eq(core_tensor_dtype(a), core_tensor_dtype(b));
    ck_assert_uint_eq(count, read_doubles(b, y));
    for (size_t i = 0; i < count; i++)
        ck_assert_msg((x[i] != x[i] && y[i] != y[i]) || x[i] == y[i] ||
                          fabs(x[i] - y[i]) <= tolerance * (1 + fabs(x[i])),
                      "element %zu is %.9g, not %.9g", i, y[i], x[i]);
}

/* Calls a function and its compiled form, twice: the second time its prepared
 * calls.  The caller releases the compiled function. */
static core_compiled *compare_rows(core_tensor_function function, world *w,
                                   double tolerance)
{
    core_compiled *compiled = compile_rows(function, w);

    for (int k = 0; k < 2; k++) {
        core_tensor *a[WORLD_OUTPUTS] = {NULL}, *b[WORLD_OUTPUTS] = {NULL};
        size_t count = call_world(function, w, NULL, WORLD_OUTPUTS, a);

        call_world(function, w, compiled, count, b);
        for (size_t i = 0; i < count; i++)
            near(a[i], b[i], tolerance);
        release_tensors(a, count);
        release_tensors(b, count);
    }
    return compiled;
}

static void one_kernel(core_tensor_function function, size_t ninputs,
                       double tolerance)
{
    static const int64_t sizes[] = {2, 5, LONG};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        world w = world_of(ninputs, ROWS, sizes[i]);
        core_compiled *compiled = compare_rows(function, &w, tolerance);

        ck_assert_uint_eq(launches_of(compiled), 1);
        EXPLAINS(compiled, "\"reductions\": ");
        core_compiled_release(compiled);
    }
}

/* ----------------------------------------------------------- operators -- */

COMPILED_FUNCTION(masked_softmax)
{
    core_tensor *y = T(mul_scalar, x[0], core_float(.125));

    y = T(softmax, T(add, y, x[1], core_int(1)), -1, CORE_DTYPE_NONE);
    out[0] = own(T(mul_scalar, y, core_float(2)));
    *noutputs = 1;
    return finish();
}

START_TEST(softmax_is_in_the_kernel_of_what_is_around_it)
{
    one_kernel(masked_softmax, 2, 1e-6);
}
END_TEST

COMPILED_FUNCTION(half_log_softmax)
{
    core_tensor *y = T(to_copy, x[0], CORE_F16, NULL, false, -1);

    y = T(log_softmax, T(neg, y), 1, CORE_DTYPE_NONE);
    out[0] = own(T(to_copy, y, CORE_F32, NULL, false, -1));
    *noutputs = 1;
    return finish();
}

START_TEST(half_precision_is_computed_in_f32)
{
    one_kernel(half_log_softmax, 1, 1e-3);
}
END_TEST

/* gelu(layer_norm(x + y)) + x */
COMPILED_FUNCTION(norm)
{
    const int64_t n = core_tensor_sizes(x[0])[1];
    core_tensor *y = T(add, x[0], x[1], core_int(1));

    y = T(layer_norm, y, &n, 1, NULL, NULL, 1e-5);
    out[0] = own(T(add, T(gelu, y, "tanh"), x[0], core_int(1)));
    *noutputs = 1;
    return finish();
}

START_TEST(layer_norm_is_in_the_kernel_of_what_is_around_it)
{
    one_kernel(norm, 2, 2e-6);
}
END_TEST

/* Rows with a large mean and small deviations. */
COMPILED_FUNCTION(far_norm)
{
    const int64_t n = core_tensor_sizes(x[0])[1];
    core_tensor *y = T(add_scalar, x[0], core_float(4096), core_int(1));

    out[0] = own(T(relu, T(layer_norm, y, &n, 1, NULL, NULL, 1e-5)));
    *noutputs = 1;
    return finish();
}

START_TEST(deviations_from_a_large_mean_do_not_cancel)
{
    one_kernel(far_norm, 1, 1e-2);
}
END_TEST

/* The mean and extremes of rows are outputs, and elements use the mean. */
COMPILED_FUNCTION(statistics)
{
    core_tensor *y = T(mul, x[0], x[0]);
    core_tensor *mean = T(mean_dim, y, last, 1, true, CORE_DTYPE_NONE);

    out[0] = own(T(sub, y, mean, core_int(1)));
    out[1] = own(mean);
    out[2] = own(T(amax, y, last, 1, true));
    out[3] = own(T(amin, x[0], last, 1, true));
    *noutputs = 4;
    return finish();
}

START_TEST(results_for_rows_are_outputs)
{
    one_kernel(statistics, 1, 1e-6);
}
END_TEST

COMPILED_FUNCTION(whole_sum)
{
    core_tensor *y = T(to_copy, T(mul_scalar, x[0], core_float(100)), CORE_I32,
                       NULL, false, -1);

    out[0] = own(T(sum_dim, y, last, 1, true, CORE_DTYPE_NONE));
    out[1] = own(T(amax, y, last, 1, true));
    *noutputs = 2;
    return finish();
}

START_TEST(sums_of_integers_are_exact)
{
    one_kernel(whole_sum, 1, 0);
}
END_TEST

/* The dtype argument converts before anything is added. */
static void converts_first(core_tensor_function function, float first,
                           float second)
{
    float values[ROWS * 2];
    world w = world_of(1, ROWS, 2);
    core_compiled *compiled;

    for (int i = 0; i < ROWS * 2; i++)
        values[i] = i % 2 ? second : first;
    OK(core_tensor_write(w.inputs[0], values, sizeof values));
    compiled = compare_rows(function, &w, 1e-6);
    ck_assert_uint_eq(launches_of(compiled), 1);
    core_compiled_release(compiled);
}

COMPILED_FUNCTION(sum_as_i64)
{
    out[0] = own(T(sum_dim, T(neg, x[0]), last, 1, true, CORE_I64));
    *noutputs = 1;
    return finish();
}

COMPILED_FUNCTION(sum_as_bool)
{
    core_tensor *y = T(to_copy, x[0], CORE_I32, NULL, false, -1);

    out[0] = own(T(sum_dim, y, last, 1, true, CORE_BOOL));
    *noutputs = 1;
    return finish();
}

COMPILED_FUNCTION(sum_and_mean_as_f16)
{
    core_tensor *y = T(neg, x[0]);

    out[0] = own(T(sum_dim, y, last, 1, true, CORE_F16));
    out[1] = own(T(mean_dim, y, last, 1, true, CORE_F16));
    *noutputs = 2;
    return finish();
}

COMPILED_FUNCTION(mean_of_integers)
{
    core_tensor *y = T(to_copy, x[0], CORE_I32, NULL, false, -1);

    out[0] = own(T(mean_dim, y, last, 1, true, CORE_F16));
    out[1] = own(T(mean_dim, y, last, 1, true, CORE_F32));
    out[2] = own(T(sum_dim, y, last, 1, true, CORE_I16));
    out[3] = own(T(sum_dim, y, last, 1, true, CORE_F32));
    *noutputs = 4;
    return finish();
}

START_TEST(sums_and_means_convert_before_they_add)
{
    converts_first(sum_as_i64, .5f, .5f);
    converts_first(sum_as_i64, 1.5f, 3e9f);
    converts_first(sum_as_bool, 1, -1);
    converts_first(sum_as_bool, 0, 0);
    converts_first(sum_and_mean_as_f16, 70000, -70000);
    converts_first(sum_and_mean_as_f16, 2, 3);
    converts_first(mean_of_integers, 70000, -70000);
    converts_first(mean_of_integers, 40000, 7);
}
END_TEST

static core_tensor *as(core_tensor *x, core_dtype dtype)
{
    return T(to_copy, x, dtype, NULL, false, -1);
}

COMPILED_FUNCTION(narrow_extremes)
{
    core_tensor *y = T(mul_scalar, x[0], core_float(50));

    out[0] = own(T(amax, T(gt_scalar, x[0], core_float(1)), last, 1, true));
    out[1] = own(T(amin, as(T(abs, y), CORE_U8), last, 1, true));
    out[2] = own(T(amax, as(y, CORE_I64), last, 1, true));
    out[3] = own(T(amin, as(y, CORE_F16), last, 1, true));
    *noutputs = 4;
    return finish();
}

COMPILED_FUNCTION(narrow_sums)
{
    core_tensor *y = T(mul_scalar, x[0], core_float(50));

    out[0] = own(T(sum_dim, T(gt_scalar, x[0], core_float(1)), last, 1, true,
                   CORE_DTYPE_NONE));
    out[1] = own(T(sum_dim, as(y, CORE_I16), last, 1, true, CORE_I8));
    out[2] = own(T(sum_dim, as(y, CORE_F16), last, 1, true, CORE_I32));
    out[3] = own(T(mean_dim, as(y, CORE_F16), last, 1, true, CORE_F64));
    *noutputs = 4;
    return finish();
}

START_TEST(narrow_dtypes_are_those_of_operators)
{
    one_kernel(narrow_extremes, 1, 0);
    one_kernel(narrow_sums, 1, 1e-6);
}
END_TEST

/* No integer is NaN, whatever is loaded: that is the same for all elements. */
COMPILED_FUNCTION(count_of_nan)
{
    core_tensor *y = T(to_copy, x[0], CORE_I32, NULL, false, -1);
    core_tensor *mean = T(mean_dim, x[0], last, 1, true, CORE_DTYPE_NONE);

    out[0] = own(T(sum_dim, T(isnan, y), last, 1, true, CORE_DTYPE_NONE));
    out[1] = own(T(amax, T(signbit, T(isinf, y)), last, 1, true));
    out[2] = own(T(amin, T(logical_not, T(isposinf, y)), last, 1, true));
    out[3] = own(T(sum_dim, T(sub, x[0], mean, core_int(1)), last, 1, true,
                   CORE_DTYPE_NONE));
    *noutputs = 4;
    return finish();
}

START_TEST(values_without_elements_are_not_reduced_in_a_kernel)
{
    world w = world_of(1, ROWS, 8);
    core_compiled *compiled = compare_rows(count_of_nan, &w, 1e-4);

    EXPLAINS(compiled, "the same for all elements of a row");
    EXPLAINS(compiled, "\"reductions\": 2");
    core_compiled_release(compiled);
}
END_TEST

/* Rows of infinities and NaN. */
START_TEST(rows_without_finite_numbers_are_those_of_operators)
{
    float values[ROWS * 5] = {0};
    world w = world_of(2, ROWS, 5);
    core_compiled *compiled;

    for (int i = 0; i < 5; i++) {
        values[i] = -INFINITY;
        values[5 + i] = i == 2 ? INFINITY : 1;
        values[10 + i] = i == 3 ? NAN : 2;
        values[15 + i] = i == 1 ? -INFINITY : 3;
    }
    OK(core_tensor_write(w.inputs[0], values, sizeof values));
    compiled = compare_rows(masked_softmax, &w, 1e-6);
    core_compiled_release(compiled);
    w.ninputs = 1;
    compiled = compare_rows(statistics, &w, 1e-6);
    core_compiled_release(compiled);
}
END_TEST

/* Programs for other sizes are made of two that were recorded. */
START_TEST(sizes_may_change)
{
    static const int64_t sizes[][2] = {{3, 8}, {5, 12}, {4, 9}, {7, 140}};
    world w = world_of(2, 3, 8);
    core_compiled *compiled = compile_rows(norm, &w);

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        world now = world_of(2, sizes[i][0], sizes[i][1]);
        core_tensor *a = NULL, *b = NULL;

        call_world(norm, &now, NULL, 1, &a);
        call_world(norm, &now, compiled, 1, &b);
        near(a, b, 2e-6);
        core_tensor_release(a);
        core_tensor_release(b);
    }
    EXPLAINS(compiled, "\"reductions\": 1");
    core_compiled_release(compiled);
}
END_TEST

COMPILED_FUNCTION(two_sums)
{
    for (size_t i = 0; i < 2; i++)
        out[i] = own(T(sum_dim, x[i], last, 1, true, CORE_DTYPE_NONE));
    *noutputs = 2;
    return finish();
}

/* Small results do not make what is reduced small. */
START_TEST(sums_of_many_elements_are_not_joined)
{
    static const int64_t sizes[] = {8, 16384};

    for (uint32_t i = 0; i < 2; i++) {
        world w = {.device = program_device, .ninputs = 2};
        core_compiled *compiled;

        for (int k = 0; k < 2; k++) {
            OK(core_full((int64_t[]){ROWS, sizes[i]}, 2, core_float(k - .5),
                         CORE_F32, program_device, &w.inputs[k]));
            keep(w.inputs[k]);
        }
        compiled = compare_rows(two_sums, &w, 1e-5);
        ck_assert_uint_eq(launches_of(compiled), 1 + i);
        core_compiled_release(compiled);
    }
}
END_TEST

COMPILED_FUNCTION(quotients)
{
    core_tensor *y = T(to_copy, x[0], CORE_I32, NULL, false, -1);

    y = T(floor_divide, y, T(sub, y, y, core_int(1)));
    out[0] = own(T(sum_dim, y, last, 1, true, CORE_DTYPE_NONE));
    *noutputs = 1;
    return finish();
}

START_TEST(errors_name_the_sizes_of_rows)
{
    world w = world_of(1, ROWS, 8);
    core_compiled *compiled = compile_rows(quotients, &w);
    core_tensor *out = NULL;

    for (int k = 0; k < 2; k++)
        ck_assert_int_ne(core_compiled_call(compiled, w.inputs, 1, &out, 1),
                         CORE_OK);
    ck_assert_msg(strstr(core_error_message(), "it reduces rows of") &&
                      strstr(core_error_message(), "[7, 8]"),
                  "%s", core_error_message());
    core_compiled_release(compiled);
}
END_TEST

/* --------------------------------------------------------------- hints -- */

static core_codegen_interface real;
static core_loop_hints hints;

static core_status noting_build(void *device, const core_loop_program *program,
                                const core_loop_hints *given, void **out_kernel)
{
    hints = *given;
    return real.build(device, program, given, out_kernel);
}

static void expect_hints(core_tensor_function function, size_t ninputs,
                         uint32_t flags, int64_t row_size)
{
    core_codegen_interface *table = &program_device->interfaces.codegen;
    world w = world_of(ninputs, ROWS, row_size);
    core_compiled *compiled;

    real = *table;
    table->build = noting_build;
    compiled = compare_rows(function, &w, 1e-5);
    *table = real;
    ck_assert_uint_eq(hints.flags, flags);
    ck_assert_int_eq(hints.numel, ROWS * row_size);
    ck_assert_int_eq(hints.row_size, row_size);
    core_compiled_release(compiled);
}

/* x + weights of rows, less the mean */
COMPILED_FUNCTION(weighted)
{
    core_tensor *y = T(add, x[0], T(select, x[1], 0, 0), core_int(1));

    out[0] = own(T(softmax, y, -1, CORE_DTYPE_NONE));
    *noutputs = 1;
    return finish();
}

START_TEST(hints_say_whether_all_but_numbers_of_rows_are_dense)
{
    expect_hints(statistics, 1, CORE_LOOP_HINT_CONTIGUOUS, 24);
    expect_hints(masked_softmax, 2, CORE_LOOP_HINT_CONTIGUOUS, 48);
    expect_hints(weighted, 2, 0, 40);
}
END_TEST

/* ------------------------------------------------------------ training -- */

COMPILED_FUNCTION(attention_weights)
{
    core_tensor *y = T(softmax, T(mul, x[0], x[1]), -1, CORE_DTYPE_NONE);

    out[0] = own(T(mul, y, x[1]));
    *noutputs = 1;
    return finish();
}

static void gradients_of(core_compiled *compiled, world *w)
{
    core_tensor *out = NULL;

    call_world(attention_weights, w, compiled, 1, &out);
    backward_of(&out, 1, ~0u, 0);
    core_tensor_release(out);
}

START_TEST(gradients_agree)
{
    world eager = world_of(2, ROWS, LONG), traced = world_of(2, ROWS, LONG);
    core_compiled *compiled;

    for (int i = 0; i < 2; i++) {
        leaf(eager.inputs[i]);
        leaf(traced.inputs[i]);
    }
    compiled = compile_rows(attention_weights, &traced);
    gradients_of(NULL, &eager);
    gradients_of(compiled, &traced);
    for (int i = 0; i < 2; i++)
        near(core_tensor_grad(eager.inputs[i]),
             core_tensor_grad(traced.inputs[i]), 1e-6);
    core_compiled_release(compiled);
}
END_TEST

/* ------------------------------------------------------------- reasons -- */

/* Why operators are not in a kernel. */
static void expect_reason(core_tensor_function function, uint32_t flags,
                          uint32_t codegen, const char *reason)
{
    world w = world_of(2, ROWS, 8);
    core_compiled *compiled = compile_with(
        function, &w,
        (core_compile_options){.flags = CORE_COMPILE_FULLGRAPH | flags,
                               .codegen = codegen});
    core_tensor *out = NULL;

    call_world(function, &w, compiled, 1, &out);
    core_tensor_release(out);
    EXPLAINS(compiled, reason);
    ck_assert(!explains(compiled, "\"reductions\""));
    core_compiled_release(compiled);
}

COMPILED_FUNCTION(columns)
{
    out[0] = own(T(neg, T(softmax, T(exp, x[0]), 0, CORE_DTYPE_NONE)));
    *noutputs = 1;
    return finish();
}

COMPILED_FUNCTION(dropped)
{
    out[0] = own(T(sum_dim, T(exp, x[0]), last, 1, false, CORE_DTYPE_NONE));
    *noutputs = 1;
    return finish();
}

START_TEST(explain_says_why_a_reduction_is_not_in_a_kernel)
{
    const uint32_t on = CORE_COMPILE_CODEGEN_ON;

    expect_reason(masked_softmax, 0, on, "CORE_COMPILE_REORDER_SUMS");
    expect_reason(columns, CORE_COMPILE_REORDER_SUMS, on,
                  "it reduces other dimensions than the last");
    expect_reason(columns, 0, on, "it reduces other dimensions than the last");
    expect_reason(dropped, CORE_COMPILE_REORDER_SUMS, on,
                  "and does not keep it");
}
END_TEST

/* Where memory is the host's, kernels of rows are made only if that is asked
 * for. */
START_TEST(rows_in_host_memory_are_left_alone)
{
    expect_reason(masked_softmax, CORE_COMPILE_REORDER_SUMS,
                  CORE_COMPILE_CODEGEN_AUTO, "memory is the host's");
}
END_TEST

START_TEST(rows_in_device_memory_are_fused_without_being_asked_for)
{
    world w = world_of(2, ROWS, LONG);
    core_compiled *compiled = compile_with(
        masked_softmax, &w,
        (core_compile_options){.flags = CORE_COMPILE_REORDER_SUMS});
    core_tensor *out = NULL;

    call_world(masked_softmax, &w, compiled, 1, &out);
    core_tensor_release(out);
    EXPLAINS(compiled, "\"reductions\": 1");
    core_compiled_release(compiled);
}
END_TEST

/* The third call is a launch of a graph. */
START_TEST(graphs_have_kernels_of_rows)
{
    world w = world_of(2, ROWS, LONG);
    core_compiled *compiled = compile_with(
        norm, &w,
        (core_compile_options){.flags = CORE_COMPILE_REORDER_SUMS,
                               .mode = CORE_COMPILE_REDUCE_OVERHEAD});
    uint64_t launches = compile_counts().graph_launches;
    core_tensor *wanted = NULL, *out = NULL;

    call_world(norm, &w, NULL, 1, &wanted);
    for (int i = 0; i < 4; i++) {
        call_world(norm, &w, compiled, 1, &out);
        near(wanted, out, 2e-6);
        core_tensor_release(out);
    }
    ck_assert_uint_gt(compile_counts().graph_launches, launches);
    EXPLAINS(compiled, "\"reductions\": 1");
    core_tensor_release(wanted);
    core_compiled_release(compiled);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        softmax_is_in_the_kernel_of_what_is_around_it,
        half_precision_is_computed_in_f32,
        layer_norm_is_in_the_kernel_of_what_is_around_it,
        deviations_from_a_large_mean_do_not_cancel,
        results_for_rows_are_outputs,
        sums_of_integers_are_exact,
        sums_and_means_convert_before_they_add,
        narrow_dtypes_are_those_of_operators,
        values_without_elements_are_not_reduced_in_a_kernel,
        rows_without_finite_numbers_are_those_of_operators,
        sizes_may_change,
        sums_of_many_elements_are_not_joined,
        hints_say_whether_all_but_numbers_of_rows_are_dense,
        gradients_agree,
        explain_says_why_a_reduction_is_not_in_a_kernel,
    };
    const TTest *const cpu_tests[] = {rows_in_host_memory_are_left_alone,
                                      errors_name_the_sizes_of_rows};
    const TTest *const sim_tests[] = {
        rows_in_device_memory_are_fused_without_being_asked_for,
        graphs_have_kernels_of_rows};
    const test_suite suites[] = {
        {.name = "compile/fusion_rows on cpu",
         .setup = on_cpu,
         .teardown = drop_all,
         SUITE_TESTS(tests)},
        {.name = "compile/fusion_rows on sim",
         .setup = on_sim,
         .teardown = drop_all,
         SUITE_TESTS(tests)},
        {.name = "compile/fusion_rows, memory of the host",
         .setup = on_cpu,
         .teardown = drop_all,
         SUITE_TESTS(cpu_tests)},
        {.name = "compile/fusion_rows, memory of a device",
         .setup = on_sim,
         .teardown = drop_all,
         SUITE_TESTS(sim_tests)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
