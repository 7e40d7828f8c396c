/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Groups of compiled functions that run on parts of a product's result: which
 * do, that results have the bits of operators, what explain says, and calls
 * that fail. */

#define SUITE_FORKS true /* settings are those of a process */
#include "support/training.h"

#include "compile/compiled/compiled.h"
#include "compile/prepare/prepared.h"

static core_compiled *compile(core_tensor_function function, world *w,
                              uint32_t codegen)
{
    return compile_with(function, w,
                        (core_compile_options){.flags = CORE_COMPILE_FULLGRAPH,
                                               .codegen = codegen});
}

/* Compares two calls.  The caller releases the compiled function. */
static core_compiled *compare_worlds(core_tensor_function function,
                                     world *eager, world *traced)
{
    core_compiled *compiled =
        compile(function, traced, CORE_COMPILE_CODEGEN_ON);

    for (int i = 0; i < 2; i++)
        same_call(function, eager, compiled, traced);
    return compiled;
}

static core_tensor *made(const world *w, core_dtype dtype, uint32_t from,
                         size_t ndim, const int64_t *sizes)
{
    core_tensor *tensor;
    int64_t numel = 1;
    float *values;

    for (size_t i = 0; i < ndim; i++)
        numel *= sizes[i];
    values = malloc((size_t)numel * sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (int64_t i = 0; i < numel; i++)
        values[i] =
            (float)((int)((from + (uint32_t)i) * 2654435761u >> 20) - 2048) /
            1024;
    OK(core_tensor_from_data(values, CORE_F32, sizes, ndim, w->device,
                             &tensor));
    free(values);
    keep(tensor);
    return dtype == CORE_F32 ? tensor
                             : CALL(to_copy, tensor, dtype, NULL, false, -1);
}

#define MADE(w, dtype, from, ...)                              \
    made(w, dtype, from, sizeof((int64_t[]){__VA_ARGS__}) / 8, \
         (int64_t[]){__VA_ARGS__})

/* x: m, k; y: k, n; a residual, a row and a column of the result */
static world matrices(core_dtype dtype, int64_t m, int64_t n, int64_t k)
{
    world w = {.device = program_device, .ninputs = 5};

    w.inputs[0] = MADE(&w, dtype, 1, m, k);
    w.inputs[1] = MADE(&w, dtype, 50, k, n);
    w.inputs[2] = MADE(&w, dtype, 90, m, n);
    w.inputs[3] = MADE(&w, dtype, 130, n);
    w.inputs[4] = MADE(&w, dtype, 150, m, 1);
    return w;
}

static void compare_matrices(core_tensor_function function, core_dtype dtype,
                             int64_t m, int64_t n, int64_t k)
{
    world eager = matrices(dtype, m, n, k), traced = matrices(dtype, m, n, k);
    core_compiled *compiled = compare_worlds(function, &eager, &traced);

    EXPLAINS(compiled, "\"product\": \"");
    core_compiled_release(compiled);
    drop_all();
}

/* --------------------------------------------------------------- products -- */

/* relu(x y + row) column + residual */
COMPILED_FUNCTION(product)
{
    core_tensor *t = T(add, T(mm, x[0], x[1]), x[3], core_int(1));

    t = T(mul, T(relu, t), x[4]);
    out[0] = own(T(add, t, x[2], core_int(1)));
    *noutputs = 1;
    return finish();
}

/* The result of the product is an output, too. */
COMPILED_FUNCTION(product_and_gelu)
{
    out[0] = own(T(addmm, x[3], x[0], x[1], core_int(1), core_int(1)));
    out[1] = own(T(mul, T(gelu, out[0], "none"), x[2]));
    *noutputs = 2;
    return finish();
}

/* Sizes at the borders of vectors, tiles, blocks of columns and of sums. */
static const int64_t problems[][3] = {
    {2, 2, 2},       {33, 17, 16},   {64, 64, 64},
    {150, 40, 100},  {70, 515, 30},  {37, 1030, 20},
    {100, 130, 400}, {300, 64, 770}, {1, 515, 30},
};

START_TEST(groups_run_on_parts_of_a_product)
{
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        const int64_t *p = problems[i];

        compare_matrices(product, CORE_F32, p[0], p[1], p[2]);
        compare_matrices(product_and_gelu, CORE_F32, p[0], p[1], p[2]);
    }
}
END_TEST

START_TEST(groups_run_on_parts_of_other_dtypes)
{
    static const core_dtype dtypes[] = {CORE_BF16, CORE_F16, CORE_F64};

    for (size_t d = 0; d < 3; d++)
        for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
            const int64_t *p = problems[i];

            compare_matrices(product, dtypes[d], p[0], p[1], p[2]);
            compare_matrices(product_and_gelu, dtypes[d], p[0], p[1], p[2]);
        }
}
END_TEST

START_TEST(several_threads_compute_the_same_bits)
{
    OK(core_threads_set(3));
    compare_matrices(product, CORE_F32, 300, 300, 60);
    compare_matrices(product, CORE_BF16, 300, 300, 60);
    OK(core_threads_set(1));
}
END_TEST

START_TEST(explain_says_what_runs_on_parts)
{
    world eager = matrices(CORE_F32, 40, 30, 20);
    world traced = matrices(CORE_F32, 40, 30, 20);
    core_compiled *compiled = compare_worlds(product, &eager, &traced);

    EXPLAINS(compiled, "\"product\": \"mm\",");
    EXPLAINS(compiled, "\"relu\",\n");
    EXPLAINS(compiled, "\"elements\": 1200,\n"
                       "                \"bytes_saved\": 4800");
    core_compiled_release(compiled);
}
END_TEST

/* tanh(x y) mask: a mask for all matrices */
COMPILED_FUNCTION(batched)
{
    core_tensor *t = T(bmm, x[0], x[1]);

    out[0] = own(T(mul, T(tanh, t), x[2]));
    out[1] =
        own(T(neg, T(baddbmm, x[3], x[0], x[1], core_int(1), core_int(1))));
    *noutputs = 2;
    return finish();
}

static world batches(core_dtype dtype, int64_t m, int64_t n)
{
    world w = {.device = program_device, .ninputs = 4};

    w.inputs[0] = MADE(&w, dtype, 1, 3, m, 20);
    w.inputs[1] = MADE(&w, dtype, 50, 3, 20, n);
    w.inputs[2] = MADE(&w, dtype, 90, m, n);
    w.inputs[3] = MADE(&w, dtype, 130, 3, m, n);
    return w;
}

START_TEST(groups_run_on_parts_of_batches)
{
    static const int64_t sizes[] = {2, 17, 64, 100};

    for (int i = 0; i < 16; i++) {
        core_dtype dtype = i % 2 ? CORE_BF16 : CORE_F32;
        world eager = batches(dtype, sizes[i / 4], sizes[i / 2 % 4]);
        world traced = batches(dtype, sizes[i / 4], sizes[i / 2 % 4]);
        core_compiled *compiled = compare_worlds(batched, &eager, &traced);

        EXPLAINS(compiled, "\"product\": \"bmm\",");
        core_compiled_release(compiled);
        drop_all();
    }
}
END_TEST

/* silu(conv(x, w) + b) residual */
COMPILED_FUNCTION(convolved)
{
    static const int64_t one[] = {1, 1}, none[] = {0, 0};
    const int64_t *padding = core_tensor_size(x[1], 2) > 1 ? one : none;
    core_tensor *t = T(conv2d, x[0], x[1], x[2], one, 2, padding, 2, one, 2, 1);

    out[0] = own(T(mul, T(silu, t), x[3]));
    *noutputs = 1;
    return finish();
}

static world images(core_dtype dtype, int64_t channels, int64_t filters,
                    int64_t side, int64_t kernel)
{
    world w = {.device = program_device, .ninputs = 4};

    w.inputs[0] = MADE(&w, dtype, 1, 2, channels, side, side);
    w.inputs[1] = MADE(&w, dtype, 50, filters, channels, kernel, kernel);
    w.inputs[2] = MADE(&w, dtype, 90, filters);
    w.inputs[3] = MADE(&w, dtype, 130, 2, filters, side, side);
    return w;
}

START_TEST(groups_run_on_parts_of_a_convolution)
{
    static const int64_t shapes[][4] = {
        {3, 16, 20, 3}, {16, 13, 9, 3}, {2, 3, 5, 3},
        {8, 40, 7, 1},  {4, 200, 2, 3}, {1, 1, 4, 1},
    };
    static const core_dtype dtypes[] = {CORE_F32, CORE_BF16};

    for (int i = 0; i < 12; i++) {
        const int64_t *s = shapes[i / 2];
        world eager = images(dtypes[i % 2], s[0], s[1], s[2], s[3]);
        world traced = images(dtypes[i % 2], s[0], s[1], s[2], s[3]);
        core_compiled *compiled = compare_worlds(convolved, &eager, &traced);

        EXPLAINS(compiled, "\"product\": \"convolution\",");
        core_compiled_release(compiled);
        drop_all();
    }
}
END_TEST

/* ------------------------------------------------------------- conditions -- */

/* x becomes relu(x y): the product reads what the group writes. */
COMPILED_FUNCTION(writes_an_operand)
{
    core_tensor *t = T(mm, x[0], x[1]);

    OK(core_copy_(x[0], T(neg, T(relu, t)), false));
    *noutputs = 0;
    return finish();
}

START_TEST(a_group_that_writes_what_the_product_reads_runs_after_it)
{
    world eager = world_of(2, 30, 30), traced = world_of(2, 30, 30);
    core_compiled *compiled =
        compare_worlds(writes_an_operand, &eager, &traced);

    EXPLAINS(compiled, "\"it writes in the memory of what the product reads\"");
    core_compiled_release(compiled);
}
END_TEST

/* x y and its transpose */
COMPILED_FUNCTION(in_two_orders)
{
    core_tensor *t = T(mm, x[0], x[1]);

    out[0] = own(T(neg, T(add, t, T(transpose, t, 0, 1), core_int(1))));
    *noutputs = 1;
    return finish();
}

START_TEST(a_group_that_reads_the_result_in_two_orders_runs_after_it)
{
    world eager = world_of(2, 30, 30), traced = world_of(2, 30, 30);
    core_compiled *compiled = compare_worlds(in_two_orders, &eager, &traced);

    EXPLAINS(compiled, "\"it reads the result in several orders\"");
    core_compiled_release(compiled);
}
END_TEST

/* The residual is transposed within the dimension of columns. */
COMPILED_FUNCTION(in_other_dimensions)
{
    core_tensor *t = T(mm, x[0], x[1]);
    const int64_t sizes[] = {30, 6, 5};

    t = T(mul, T(relu, T(reshape, t, sizes, 3)), T(transpose, x[2], 1, 2));
    out[0] = own(t);
    *noutputs = 1;
    return finish();
}

START_TEST(a_group_in_other_dimensions_runs_after_the_product)
{
    world both[2];

    for (int i = 0; i < 2; i++) {
        both[i] = world_of(2, 30, 30);
        both[i].ninputs = 3;
        both[i].inputs[2] = MADE(&both[i], CORE_F32, 7, 30, 5, 6);
    }
    core_compiled_release(
        compare_worlds(in_other_dimensions, &both[0], &both[1]));
}
END_TEST

START_TEST(groups_run_after_products_unless_asked_for)
{
    world eager = matrices(CORE_F32, 200, 100, 20);
    world traced = matrices(CORE_F32, 200, 100, 20);
    core_compiled *compiled =
        compile(product, &traced, CORE_COMPILE_CODEGEN_AUTO);

    same_call(product, &eager, compiled, &traced);
    EXPLAINS(compiled, "\"it is not expected to be faster\"");
    core_compiled_release(compiled);
}
END_TEST

/* --------------------------------------------------------------- failures -- */

/* Conversions of the product to integers, modulo x: an element may be 0. */
COMPILED_FUNCTION(remainders)
{
    core_tensor *t = T(to_copy, T(mm, x[0], x[1]), CORE_I32, NULL, false, -1);

    out[0] = own(T(neg, T(remainder, t, x[2])));
    *noutputs = 1;
    return finish();
}

static world divisors(void)
{
    world w = world_of(2, 30, 30);
    const int64_t sizes[] = {30, 30};

    w.ninputs = 3;
    OK(core_full(sizes, 2, core_int(3), CORE_I32, w.device, &w.inputs[2]));
    keep(w.inputs[2]);
    return w;
}

START_TEST(a_group_that_fails_is_an_error)
{
    world eager = divisors(), traced = divisors();
    core_compiled *compiled = compare_worlds(remainders, &eager, &traced);
    core_tensor *part = CALL(narrow, traced.inputs[2], 0, 5, 1), *out;

    EXPLAINS(compiled, "\"product\": \"mm\",");
    OK(core_zero_(part));
    FAILS(core_compiled_call(compiled, traced.inputs, 3, &out, 1),
          CORE_ERROR_INVALID_ARGUMENT, "remainder");
    core_error_clear();
    OK(core_fill_(part, core_int(3)));
    same_call(remainders, &eager, compiled, &traced);
    core_compiled_release(compiled);
}
END_TEST

/* On sim, launches are only queued. */
START_TEST(a_device_with_streams_runs_one_after_the_other)
{
    world eager = matrices(CORE_F32, 40, 30, 20);
    world traced = matrices(CORE_F32, 40, 30, 20);
    core_compiled *compiled = compare_worlds(product, &eager, &traced);

    EXPLAINS(compiled, "does not run a kernel on parts of a result");
    core_compiled_release(compiled);
}
END_TEST

int main(void)
{
    const TTest *const cpu[] = {
        groups_run_on_parts_of_a_product,
        groups_run_on_parts_of_other_dtypes,
        several_threads_compute_the_same_bits,
        explain_says_what_runs_on_parts,
        groups_run_on_parts_of_batches,
        groups_run_on_parts_of_a_convolution,
        a_group_that_writes_what_the_product_reads_runs_after_it,
        a_group_that_reads_the_result_in_two_orders_runs_after_it,
        a_group_in_other_dimensions_runs_after_the_product,
        groups_run_after_products_unless_asked_for,
        a_group_that_fails_is_an_error,
    };
    const TTest *const sim[] = {a_device_with_streams_runs_one_after_the_other};
    const test_suite suites[] = {
        {.name = "compile/epilogue on cpu",
         .setup = on_cpu,
         .teardown = drop_all,
         SUITE_TESTS(cpu)},
        {.name = "compile/epilogue on sim",
         .setup = on_sim,
         .teardown = drop_all,
         SUITE_TESTS(sim)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
