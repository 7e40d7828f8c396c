/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Chains of kernels of compiled functions that run block of rows by block of
 * rows: which kernels are in one, that results have the bits of operators, what
 * explain says, and calls that fail. */

#define SUITE_FORKS true /* counts and settings are those of a process */
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

/* Compares three calls.  The caller releases the compiled function. */
static core_compiled *compare_worlds(core_tensor_function function,
                                     world *eager, world *traced)
{
    core_compiled *compiled =
        compile(function, traced, CORE_COMPILE_CODEGEN_ON);

    for (int i = 0; i < 3; i++)
        same_call(function, eager, compiled, traced);
    return compiled;
}

static core_compiled *compare_rows(core_tensor_function function,
                                   size_t ninputs, int64_t rows,
                                   int64_t columns)
{
    world eager = world_of(ninputs, rows, columns);
    world traced = world_of(ninputs, rows, columns);

    return compare_worlds(function, &eager, &traced);
}

/* The only chain has so many kernels and rows, and rows in a block. */
static void expect_chain(core_compiled *compiled, int kernels, int rows,
                         int block)
{
    char text[160];

    snprintf(text, sizeof text,
             "],\n                \"kernels\": %d,\n"
             "                \"rows\": %d,\n"
             "                \"rows_of_a_block\": %d,",
             kernels, rows, block);
    EXPLAINS(compiled, text);
}

static core_tensor *norm_of(core_tensor *x, core_tensor *weight,
                            core_tensor *bias)
{
    int64_t width = core_tensor_size(x, -1);

    return T(layer_norm, x, &width, 1, weight, bias, 1e-5);
}

/* --------------------------------------------------------------- chains -- */

/* gelu(layer_norm(x + y) y) + x */
COMPILED_FUNCTION(norm_gelu_residual)
{
    core_tensor *y = norm_of(T(add, x[0], x[1], core_int(1)), NULL, NULL);

    y = T(gelu, T(mul, y, x[1]), "none");
    out[0] = own(T(add, y, x[0], core_int(1)));
    *noutputs = 1;
    return finish();
}

START_TEST(a_layer_norm_and_what_is_around_it_are_one_chain)
{
    core_compiled *compiled = compare_rows(norm_gelu_residual, 2, 8, 12);

    expect_chain(compiled, 3, 8, 3);
    /* Of 9 reads and writes of 384 bytes, 3 are left; mean and standard
     * deviation are not written. */
    EXPLAINS(compiled, "\"bytes_saved\": 2368");
    /* The sum, of 5 rows of 48 bytes, mean and standard deviation; the
     * normalised rows are in the memory of the output. */
    EXPLAINS(compiled, "\"memory_saved\": 280");
    core_compiled_release(compiled);
}
END_TEST

/* dropout(softmax(x / 8 + y)) 2 */
COMPILED_FUNCTION(softmax_mask_dropout)
{
    core_tensor *y = T(mul_scalar, x[0], core_float(.125));

    y = T(softmax, T(add, y, x[1], core_int(1)), -1, CORE_DTYPE_NONE);
    y = T(dropout, y, .25, true);
    out[0] = own(T(mul_scalar, y, core_float(2)));
    *noutputs = 1;
    return finish();
}

START_TEST(dropout_in_a_chain_draws_the_same_numbers)
{
    core_compiled *compiled = compare_rows(softmax_mask_dropout, 2, 7, 12);

    EXPLAINS(compiled, "\"bernoulli_.float\",\n");
    expect_chain(compiled, 4, 7, 3);
    core_compiled_release(compiled);
}
END_TEST

START_TEST(rows_that_do_not_end_with_a_block_of_random_numbers_end_a_chain)
{
    core_compiled *compiled = compare_rows(softmax_mask_dropout, 2, 7, 11);

    EXPLAINS(compiled, "\"reason\": \"it draws numbers in other blocks\"");
    core_compiled_release(compiled);
}
END_TEST

/* Both results of a softmax's gradient are used. */
COMPILED_FUNCTION(two_softmaxes)
{
    core_tensor *y = T(softmax, T(neg, x[0]), 1, CORE_DTYPE_NONE);
    core_tensor *z = T(log_softmax, T(mul, x[1], y), -1, CORE_DTYPE_NONE);
    core_tensor *g = T(softmax_backward_data, z, y, -1, CORE_F32);

    out[0] = own(T(log_softmax_backward_data, g, z, 1, CORE_F32));
    out[1] = own(T(exp, y));
    *noutputs = 2;
    return finish();
}

START_TEST(softmax_its_logarithm_and_their_gradients_are_in_chains)
{
    core_compiled *compiled = compare_rows(two_softmaxes, 2, 9, 5);

    expect_chain(compiled, 6, 9, 3);
    core_compiled_release(compiled);
}
END_TEST

/* x / sqrt(mean(x x) + 1) y: root mean square normalization */
COMPILED_FUNCTION(rms_norm)
{
    const int64_t last = -1;
    core_tensor *mean =
        T(mean_dim, T(mul, x[0], x[0]), &last, 1, true, CORE_DTYPE_NONE);

    mean = T(rsqrt, T(add_scalar, mean, core_float(1), core_int(1)));
    out[0] = own(T(mul, T(mul, x[0], mean), x[1]));
    *noutputs = 1;
    return finish();
}

START_TEST(sums_of_rows_are_in_chains)
{
    static const int64_t rows[] = {2, 3, 7, 16, 17, 25};

    for (int i = 0; i < 6; i++) {
        core_compiled *compiled = compare_rows(rms_norm, 2, rows[i], 40);

        expect_chain(compiled, 4, (int)rows[i], ((int)rows[i] + 2) / 3);
        core_compiled_release(compiled);
    }
    core_compiled_release(compare_rows(rms_norm, 2, 30, 32));
    core_compiled_release(compare_rows(rms_norm, 2, 1, 600));
}
END_TEST

/* The CPU adds up short rows side by side, which depends on their number. */
START_TEST(sums_of_short_rows_are_not_in_chains)
{
    core_compiled *compiled = compare_rows(rms_norm, 2, 9, 31);

    expect_chain(compiled, 2, 9, 3); /* those after the mean */
    core_compiled_release(compiled);
}
END_TEST

/* Norms, variances, and places of the largest elements, of rows of 130. */
COMPILED_FUNCTION(other_reductions)
{
    const int64_t last = -1;
    const core_scalar two = core_float(2);
    core_tensor *y = T(tanh, x[0]);
    core_tensor *norm = T(norm, y, &two, &last, 1, true);
    core_tensor *var = T(var, y, &last, 1, NULL, true);
    core_tensor *most = T(argmax, T(neg, y), &last, true);

    y = T(mul, T(add, norm, var, core_int(1)), y);
    out[0] = own(T(add, y, most, core_int(1)));
    out[1] = own(T(logsumexp, y, &last, 1, false));
    *noutputs = 2;
    return finish();
}

START_TEST(other_reductions_of_rows_have_their_bits)
{
    core_compiled *compiled = compare_rows(other_reductions, 1, 7, 130);

    EXPLAINS(compiled, "\"rows\": 7,");
    core_compiled_release(compiled);
}
END_TEST

/* ------------------------------------------------------------ conditions -- */

/* Softmax along rows reads all of them. */
COMPILED_FUNCTION(along_rows)
{
    core_tensor *y = T(softmax, T(exp, T(neg, x[0])), 0, CORE_DTYPE_NONE);

    out[0] = own(T(exp, T(neg, y)));
    *noutputs = 1;
    return finish();
}

START_TEST(a_softmax_over_all_rows_is_in_no_chain)
{
    core_compiled *compiled = compare_rows(along_rows, 1, 8, 8);

    EXPLAINS(compiled, "\"chains\": []");
    core_compiled_release(compiled);
}
END_TEST

/* The transposed result is read by columns. */
COMPILED_FUNCTION(transposed)
{
    core_tensor *y = T(softmax, T(neg, x[0]), 1, CORE_DTYPE_NONE);

    y = T(add, T(exp, y), T(transpose, y, 0, 1), core_int(1));
    out[0] = own(T(softmax, y, 1, CORE_DTYPE_NONE));
    *noutputs = 1;
    return finish();
}

START_TEST(results_that_are_read_in_another_order_end_a_chain)
{
    core_compiled *compiled = compare_rows(transposed, 1, 8, 8);

    EXPLAINS(compiled, "\"it does not read what is before it row by row\"");
    core_compiled_release(compiled);
}
END_TEST

/* A product, and a sum, need all rows. */
COMPILED_FUNCTION(ends)
{
    core_tensor *y = T(softmax, T(neg, x[0]), 1, CORE_DTYPE_NONE);

    y = T(softmax, T(mm, T(exp, y), x[0]), 1, CORE_DTYPE_NONE);
    out[0] = own(T(sum, T(neg, y), CORE_DTYPE_NONE));
    *noutputs = 1;
    return finish();
}

START_TEST(other_kernels_end_a_chain)
{
    core_compiled *compiled = compare_rows(ends, 1, 8, 8);

    EXPLAINS(compiled, "\"operator\": \"mm\",\n");
    EXPLAINS(compiled, "\"operator\": \"sum\",\n");
    EXPLAINS(compiled, "is not known to treat rows by themselves");
    core_compiled_release(compiled);
}
END_TEST

/* The sum is also read after the chain, by a product. */
COMPILED_FUNCTION(read_later)
{
    core_tensor *sum = T(add, x[0], x[1], core_int(1));
    core_tensor *y = T(softmax, sum, 1, CORE_DTYPE_NONE);

    y = T(log_softmax, T(exp, y), 1, CORE_DTYPE_NONE);
    out[0] = own(T(mm, sum, y));
    out[1] = own(y);
    *noutputs = 2;
    return finish();
}

START_TEST(results_that_others_read_are_whole)
{
    core_compiled *compiled = compare_rows(read_later, 2, 8, 8);

    expect_chain(compiled, 4, 8, 3);
    core_compiled_release(compiled);
}
END_TEST

/* x becomes softmax(x + y), y its half. */
COMPILED_FUNCTION(writes_inputs)
{
    core_tensor *y =
        T(softmax, T(add, x[0], x[1], core_int(1)), 1, CORE_DTYPE_NONE);

    OK(core_copy_(x[0], y, false));
    OK(core_copy_(x[1], T(mul_scalar, y, core_float(.5)), false));
    *noutputs = 0;
    return finish();
}

START_TEST(inputs_are_written_row_by_row)
{
    core_compiled *compiled = compare_rows(writes_inputs, 2, 9, 8);

    expect_chain(compiled, 3, 9, 3);
    core_compiled_release(compiled);
}
END_TEST

/* ---------------------------------------------------------------- layouts -- */

static const double some[] = {0,    -0.0,  1,   -1.5,  33,   -0.25, 0.5, 2,
                              -3.5, 0.125, 1.5, 65504, 1e-3, -7,    88,  3};

static core_tensor *special(const world *w, core_dtype dtype, size_t ndim,
                            const int64_t *sizes, uint32_t from)
{
    double values[8192];
    core_tensor *there;

    for (uint32_t i = 0; i < 8192; i++)
        values[i] = some[(from + i) * 2654435761u >> 28];
    OK(core_to_copy(typed(dtype, ndim, sizes, values), CORE_DTYPE_NONE,
                    w->device, false, -1, &there));
    return keep(there);
}

/* x: three dimensions; y: of the last two; weight, bias: of a row */
COMPILED_FUNCTION(many_dimensions)
{
    core_tensor *y = T(add, x[0], x[1], core_int(1));
    core_tensor *mean = T(mul, norm_of(y, x[2], x[3]), x[1]);

    y = T(softmax, T(tanh, mean), -1, CORE_DTYPE_NONE);
    out[0] = own(T(add, T(mul, y, x[2]), x[0], core_int(1)));
    out[1] = own(T(neg, T(transpose, y, 0, 1)));
    *noutputs = 2;
    return finish();
}

static world typed_world(core_dtype dtype, int64_t width, bool gaps)
{
    const int64_t sizes[] = {5, 4, gaps ? 2 * width : width}, zero = 0;
    world w = {.device = program_device, .ninputs = 4};

    w.inputs[0] = special(&w, dtype, 3, sizes, 1);
    if (gaps)
        w.inputs[0] = CALL(slice, w.inputs[0], 2, &zero, NULL, 2);
    w.inputs[1] = special(&w, dtype, 2, (int64_t[]){4, width}, 77);
    w.inputs[2] = special(&w, dtype, 1, &width, 5);
    w.inputs[3] = special(&w, dtype, 1, &width, 9);
    return w;
}

START_TEST(results_have_the_bits_of_operators)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F64, CORE_F16,
                                        CORE_BF16};
    static const int64_t widths[] = {1, 3, 16, 33, 130};

    for (size_t d = 0; d < 4; d++)
        for (int i = 0; i < 10; i++) {
            world eager = typed_world(dtypes[d], widths[i / 2], i % 2);
            world traced = typed_world(dtypes[d], widths[i / 2], i % 2);
            core_compiled *compiled =
                compare_worlds(many_dimensions, &eager, &traced);

            EXPLAINS(compiled, "\"rows_of_a_block\": 2,");
            core_compiled_release(compiled);
            drop_all();
        }
}
END_TEST

START_TEST(several_threads_compute_the_same_bits)
{
    OK(core_threads_set(3));
    core_compiled_release(compare_rows(norm_gelu_residual, 2, 32, 32));
    core_compiled_release(compare_rows(softmax_mask_dropout, 2, 32, 32));
    OK(core_threads_set(1));
}
END_TEST

/* ------------------------------------------------------------ read ahead -- */

static core_codegen_interface real;
static core_loop_range ahead[8]; /* that launches got */
static uint32_t nahead, nlaunches;

static core_status note_ahead(void *device, void *kernel,
                              const core_loop_launch *launch)
{
    nlaunches++;
    for (uint32_t i = 0; i < launch->nahead; i++) {
        ck_assert_uint_lt(nahead, 8);
        ahead[nahead++] = launch->ahead[i];
    }
    return real.launch(device, kernel, launch);
}

static void expect_ahead(const core_loop_range *range, core_tensor *x,
                         uint64_t row, uint64_t rows)
{
    void *data;

    OK(core_tensor_data(x, &data));
    ck_assert_ptr_eq((char *)range->memory.handle + range->memory.offset,
                     (char *)data + row * 48);
    ck_assert_uint_eq(range->bytes, rows * 48);
}

/* Blocks of 3, 3 and 2 rows of 48 bytes.  The last kernel requests the inputs,
 * each once, also the one that two kernels read. */
START_TEST(inputs_of_the_next_block_are_requested_ahead)
{
    world w = world_of(2, 8, 12);
    core_compiled *compiled =
        compile(norm_gelu_residual, &w, CORE_COMPILE_CODEGEN_ON);
    core_codegen_interface *table = &w.device->interfaces.codegen;
    core_tensor *out;
    uint32_t threads;

    OK(core_threads_get(&threads));
    OK(core_threads_set(1)); /* blocks for several threads are larger */
    OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
    core_tensor_release(out);
    real = *table;
    table->launch = note_ahead;
    nahead = nlaunches = 0;
    OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
    *table = real;
    ck_assert_uint_eq(nlaunches, 3);
    ck_assert_uint_eq(nahead, 4);
    for (uint32_t i = 0; i < 2; i++) {
        expect_ahead(&ahead[i], w.inputs[i], 3, 3);
        expect_ahead(&ahead[2 + i], w.inputs[i], 6, 2);
    }
    OK(core_threads_set(threads));
    core_tensor_release(out);
    core_compiled_release(compiled);
}
END_TEST

/* ---------------------------------------------------------------- options -- */

static core_compiled *large_norm(uint32_t codegen)
{
    const int64_t sizes[] = {512, 1024};
    world w = {.device = program_device, .ninputs = 2};
    core_compiled *compiled = compile(norm_gelu_residual, &w, codegen);
    core_tensor *out;

    for (int i = 0; i < 2; i++) {
        OK(core_full(sizes, 2, core_float(i + .5), CORE_F32, w.device,
                     &w.inputs[i]));
        keep(w.inputs[i]);
    }
    OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
    core_tensor_release(out);
    return compiled;
}

START_TEST(large_chains_run_in_blocks_without_being_asked_for)
{
    core_compiled *compiled = large_norm(CORE_COMPILE_CODEGEN_AUTO);

    EXPLAINS(compiled, "\"rows\": 512,");
    core_compiled_release(compiled);
    compiled = large_norm(CORE_COMPILE_CODEGEN_OFF);
    EXPLAINS(compiled, "\"reason\": \"codegen is off\"");
    EXPLAINS(compiled, "\"chains\": []");
    core_compiled_release(compiled);
}
END_TEST

START_TEST(small_chains_are_left_alone)
{
    world eager = world_of(2, 8, 8), traced = world_of(2, 8, 8);
    core_compiled *compiled =
        compile(norm_gelu_residual, &traced, CORE_COMPILE_CODEGEN_AUTO);

    same_call(norm_gelu_residual, &eager, compiled, &traced);
    EXPLAINS(compiled, "or their operands fit the caches");
    core_compiled_release(compiled);
}
END_TEST

/* --------------------------------------------------------------- failures -- */

/* softmax((x mod y) z) z: an element of y may be 0 */
COMPILED_FUNCTION(remainder_softmax)
{
    core_tensor *y = T(remainder, x[0], x[1]);

    y = T(softmax, T(mul, y, x[2]), 1, CORE_DTYPE_NONE);
    out[0] = own(T(mul, y, x[2]));
    *noutputs = 1;
    return finish();
}

static world integers(void)
{
    const int64_t sizes[] = {9, 4};
    world w = {.device = program_device, .ninputs = 3};

    for (int i = 0; i < 3; i++) {
        OK(core_full(sizes, 2, core_int(3 + i), i < 2 ? CORE_I32 : CORE_F32,
                     w.device, &w.inputs[i]));
        keep(w.inputs[i]);
    }
    return w;
}

START_TEST(a_call_after_one_that_fails_computes_all_rows)
{
    world eager = integers(), traced = integers();
    core_compiled *compiled =
        compare_worlds(remainder_softmax, &eager, &traced);
    int64_t row = 5, one = 1;
    core_tensor *part = CALL(narrow, traced.inputs[1], 0, row, one), *out;

    expect_chain(compiled, 3, 9, 3);
    OK(core_zero_(part));
    FAILS(core_compiled_call(compiled, traced.inputs, 3, &out, 1),
          CORE_ERROR_INVALID_ARGUMENT, "remainder");
    core_error_clear();
    OK(core_fill_(part, core_int(4)));
    same_call(remainder_softmax, &eager, compiled, &traced);
    core_compiled_release(compiled);
}
END_TEST

/* On sim, launches are only queued. */
START_TEST(a_device_with_streams_runs_whole_kernels)
{
    core_compiled *compiled = compare_rows(norm_gelu_residual, 2, 8, 8);

    EXPLAINS(compiled, "may depend on the number of rows");
    core_compiled_release(compiled);
}
END_TEST

int main(void)
{
    const TTest *const cpu[] = {
        a_layer_norm_and_what_is_around_it_are_one_chain,
        dropout_in_a_chain_draws_the_same_numbers,
        rows_that_do_not_end_with_a_block_of_random_numbers_end_a_chain,
        softmax_its_logarithm_and_their_gradients_are_in_chains,
        sums_of_rows_are_in_chains,
        sums_of_short_rows_are_not_in_chains,
        other_reductions_of_rows_have_their_bits,
        a_softmax_over_all_rows_is_in_no_chain,
        results_that_are_read_in_another_order_end_a_chain,
        other_kernels_end_a_chain,
        results_that_others_read_are_whole,
        inputs_are_written_row_by_row,
        results_have_the_bits_of_operators,
        several_threads_compute_the_same_bits,
        inputs_of_the_next_block_are_requested_ahead,
        large_chains_run_in_blocks_without_being_asked_for,
        small_chains_are_left_alone,
        a_call_after_one_that_fails_computes_all_rows,
    };
    const TTest *const sim[] = {a_device_with_streams_runs_whole_kernels};
    const test_suite suites[] = {
        {.name = "compile/row_blocks on cpu",
         .setup = on_cpu,
         .teardown = drop_all,
         SUITE_TESTS(cpu)},
        {.name = "compile/row_blocks on sim",
         .setup = on_sim,
         .teardown = drop_all,
         SUITE_TESTS(sim)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
