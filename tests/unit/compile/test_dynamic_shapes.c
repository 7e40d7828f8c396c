/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Compiled functions whose inputs have other sizes in each call, on cpu and
 * sim. */

#include "support/effort.h"
#include "support/training.h"

#include "base/memory.h"

#include <libcore/settings.h>

static core_tensor *weight, *scale;

/* Pairs of sizes, each of which is called once (below). */
enum { PAIRS_A_SIDE = 100, PAIRS = PAIRS_A_SIDE * PAIRS_A_SIDE };
enum { MOST_ROWS = PAIRS_A_SIDE + 1, MOST_COLUMNS = 4 * PAIRS_A_SIDE + 4 };

/* Other numbers for each number of elements. */
static world of_size(int64_t rows, int64_t columns)
{
    enum { MOST = MOST_ROWS * MOST_COLUMNS };
    static float numbers[2 * MOST];
    const int64_t sizes[] = {rows, columns};
    world w = {.device = program_device, .ninputs = 1};

    ck_assert_int_le(rows * columns, MOST);
    if (numbers[0] == 0)
        for (uint32_t i = 0; i < 2 * MOST; i++)
            numbers[i] = (float)(i * 7919 % 4001) / 1000 - 2;
    OK(core_tensor_from_data(numbers + rows * columns, CORE_F32, sizes, 2,
                             w.device, &w.inputs[0]));
    keep(w.inputs[0]);
    return w;
}

static void make_weights(void)
{
    world w = {.device = program_device};

    weight = NUMBERS(&w, 5, 4, 3);
    scale = NUMBERS(&w, 90, 3);
}

/* Numbers that follow from sizes: of views, slices, a mean by hand. */
COMPILED_FUNCTION(layer)
{
    int64_t n = core_tensor_size(x[0], 0), m = core_tensor_size(x[0], 1);
    int64_t last = n - 1;
    core_tensor *y = T(reshape, x[0], (int64_t[]){n * m / 4, 4}, 2);

    y = T(mul, T(mm, y, weight), scale);
    out[0] = own(T(relu, y));
    out[1] = own(T(slice, x[0], 0, NULL, &last, 1));
    y = T(sum, T(clone, x[0], -1), CORE_DTYPE_NONE);
    out[2] = own(T(mul_scalar, y, core_float(1.0 / (double)(n * m))));
    out[3] = own(T(dropout, x[0], .25, true));
    OK(core_add_scalar_(x[0], core_int(n), core_int(1)));
    *noutputs = 4;
    return finish();
}

/* Calls the function with sizes and compares. */
static void call_with(core_tensor_function function, core_compiled *compiled,
                      int64_t rows, int64_t columns)
{
    world eager = of_size(rows, columns), traced = of_size(rows, columns);

    same_call(function, &eager, compiled, &traced);
    drop(eager.inputs[0]);
    drop(traced.inputs[0]);
}

static core_compiled *compile_sizes(core_tensor_function function,
                                    uint32_t dynamic)
{
    core_compile_options options = {.struct_size = sizeof options,
                                    .flags = CORE_COMPILE_FULLGRAPH |
                                             CORE_COMPILE_LIMIT_ERROR,
                                    .dynamic = dynamic};
    core_compiled *compiled;

    make_weights();
    OK(core_compile(function, NULL, &options, &compiled));
    return compiled;
}

START_TEST(two_recordings_serve_the_sizes_between)
{
    core_compiled *compiled = compile_sizes(layer, CORE_COMPILE_DYNAMIC_AUTO);
    core_compile_counts before = compile_counts(), after;

    call_with(layer, compiled, 2, 4);
    call_with(layer, compiled, 30, 32);
    for (int64_t rows = 3; rows < 30; rows++)
        for (int64_t columns = 8; columns < 32; columns += 4)
            call_with(layer, compiled, rows, columns);
    after = compile_counts();
    ck_assert_uint_le(after.traces - before.traces, 3);
    ck_assert_uint_ge(after.resized - before.resized, 27 * 6 - 1);
    ck_assert_uint_le(after.programs - before.programs, 8);
    EXPLAINS(compiled, "\"eager_calls\": 0");
    EXPLAINS(compiled, "\"recorded_because\": \"made from programs of other "
                       "sizes\"");
    core_compiled_release(compiled);
}
END_TEST

/* LIBCORE_COMPILE_CHECK records each call and compares the programs, with all
 * types and strides. */
START_TEST(programs_are_those_that_would_be_recorded)
{
    core_compiled *compiled = compile_sizes(layer, CORE_COMPILE_DYNAMIC_AUTO);
    core_compile_counts before = compile_counts(), after;

    call_with(layer, compiled, 2, 4);
    call_with(layer, compiled, 30, 32);
    OK(core_setting_set("LIBCORE_COMPILE_CHECK", "1"));
    for (int round = 0; round < 2; round++)
        for (int64_t rows = 3; rows < 10; rows++)
            call_with(layer, compiled, rows, 12);
    OK(core_setting_set("LIBCORE_COMPILE_CHECK", NULL));
    after = compile_counts();
    ck_assert_uint_ge(after.checks - before.checks, 4);
    core_compiled_release(compiled);
}
END_TEST

START_TEST(sizes_beyond_those_that_were_recorded_are_recorded)
{
    core_compiled *compiled = compile_sizes(layer, CORE_COMPILE_DYNAMIC_AUTO);
    core_compile_counts before = compile_counts(), after;

    call_with(layer, compiled, 4, 8);
    call_with(layer, compiled, 6, 12);
    call_with(layer, compiled, 9, 16);
    call_with(layer, compiled, 5, 8);
    call_with(layer, compiled, 8, 16);
    call_with(layer, compiled, 1, 8);
    after = compile_counts();
    ck_assert_uint_eq(after.traces - before.traces, 4);
    ck_assert_uint_eq(after.resized - before.resized, 2);
    core_compiled_release(compiled);
}
END_TEST

/* 4 n and n + 12 are the same for 4, and n n for it, too. */
COMPILED_FUNCTION(ambiguous)
{
    int64_t n = core_tensor_size(x[0], 0), m = core_tensor_size(x[0], 1);

    out[0] = own(T(add_scalar, x[0], core_int(n * m), core_int(1)));
    *noutputs = 1;
    return finish();
}

START_TEST(a_number_with_two_explanations_is_recorded)
{
    core_compiled *compiled =
        compile_sizes(ambiguous, CORE_COMPILE_DYNAMIC_AUTO);

    /* 2 * 6 - 4 = 4 * 3 - 4 and so on. */
    for (int64_t rows = 2; rows < 12; rows++)
        for (int64_t columns = 2; columns < 12; columns++)
            call_with(ambiguous, compiled, rows, columns);
    EXPLAINS(compiled, "\"eager_calls\": 0");
    core_compiled_release(compiled);
}
END_TEST

enum { PRODUCT, SUM, DIFFERENCE, RATIO };
static int combination;

/* A number that depends on both sizes, in a program without others that do. */
COMPILED_FUNCTION(combined)
{
    int64_t n = core_tensor_size(x[0], 0), m = core_tensor_size(x[1], 0);
    int64_t numbers[] = {n * m, n + m, n - m, n / m};
    core_tensor *y = T(add, T(sum, x[0], CORE_DTYPE_NONE),
                       T(sum, x[1], CORE_DTYPE_NONE), core_int(1));

    out[0] =
        own(T(mul_scalar, y, core_float(1.0 / (double)numbers[combination])));
    *noutputs = 1;
    return finish();
}

static world of_two_sizes(const int64_t sizes[2])
{
    world w = {.device = program_device, .ninputs = 2};

    for (uint32_t i = 0; i < 2; i++)
        w.inputs[i] = NUMBERS(&w, 3 + i, sizes[i]);
    return w;
}

/* By chance, the number is the same in the first two recordings. */
START_TEST(a_number_that_only_seems_constant_is_recorded)
{
    static const int64_t sizes[][4][2] = {
        [PRODUCT] = {{3, 12}, {9, 4}, {6, 6}, {5, 8}},
        [SUM] = {{4, 10}, {6, 8}, {5, 9}, {5, 8}},
        [DIFFERENCE] = {{8, 4}, {12, 8}, {10, 6}, {10, 7}},
        [RATIO] = {{8, 4}, {16, 8}, {12, 6}, {12, 4}},
    };

    for (combination = PRODUCT; combination <= RATIO; combination++) {
        core_compiled *compiled =
            compile_sizes(combined, CORE_COMPILE_DYNAMIC_AUTO);
        uint64_t before = compile_counts().resized;

        for (int k = 0; k < 4; k++) {
            world eager = of_two_sizes(sizes[combination][k]);
            world traced = of_two_sizes(sizes[combination][k]);

            same_call(combined, &eager, compiled, &traced);
        }
        /* The third has the same number as the first two. */
        ck_assert_uint_eq(compile_counts().resized - before, 1);
        core_compiled_release(compiled);
    }
}
END_TEST

COMPILED_FUNCTION(other_for_large)
{
    bool large = core_tensor_size(x[0], 0) > 10;

    out[0] = own(large ? T(exp, x[0]) : T(tanh, x[0]));
    *noutputs = 1;
    return finish();
}

START_TEST(functions_that_do_something_else_stay_apart)
{
    core_compiled *compiled =
        compile_sizes(other_for_large, CORE_COMPILE_DYNAMIC_AUTO);

    call_with(other_for_large, compiled, 4, 8);
    call_with(other_for_large, compiled, 12, 8);
    call_with(other_for_large, compiled, 6, 8);
    call_with(other_for_large, compiled, 14, 8);
    EXPLAINS(compiled, "\"programs_differ\": \"operator 0: ");
    core_compiled_release(compiled);
    /* What is beyond the sizes that were recorded may be something else. */
    compiled = compile_sizes(other_for_large, CORE_COMPILE_DYNAMIC_AUTO);
    call_with(other_for_large, compiled, 4, 8);
    call_with(other_for_large, compiled, 6, 8);
    call_with(other_for_large, compiled, 5, 8);
    call_with(other_for_large, compiled, 14, 8);
    EXPLAINS(compiled, "\"resized\": 1");
    core_compiled_release(compiled);
    compiled = compile_sizes(other_for_large, CORE_COMPILE_DYNAMIC_ALWAYS);
    call_with(other_for_large, compiled, 4, 8);
    {
        world w = of_size(12, 8);
        core_tensor *y;

        FAILS(core_compiled_call(compiled, w.inputs, 1, &y, 1),
              CORE_ERROR_UNSUPPORTED, "DYNAMIC_ALWAYS", "operator 0");
    }
    core_compiled_release(compiled);
}
END_TEST

/* Wherever they come first, 0 and 1 stand apart. */
START_TEST(sizes_of_0_and_1_do_not_hinder_others)
{
    core_compiled *compiled = compile_sizes(layer, CORE_COMPILE_DYNAMIC_ALWAYS);
    core_compile_counts before = compile_counts();

    call_with(layer, compiled, 1, 8);
    call_with(layer, compiled, 4, 8);
    call_with(layer, compiled, 1, 8);
    call_with(layer, compiled, 12, 8);
    call_with(layer, compiled, 1, 16);
    call_with(layer, compiled, 8, 8);
    ck_assert_uint_eq(compile_counts().traces - before.traces, 4);
    ck_assert_uint_eq(compile_counts().resized - before.resized, 1);
    core_compiled_release(compiled);
}
END_TEST

START_TEST(each_size_is_recorded_if_that_is_requested)
{
    core_compiled *compiled = compile_sizes(layer, CORE_COMPILE_DYNAMIC_NEVER);
    core_compile_counts before = compile_counts(), after;

    for (int64_t rows = 2; rows < 8; rows++)
        call_with(layer, compiled, rows, 8);
    after = compile_counts();
    ck_assert_uint_eq(after.traces - before.traces, 6);
    ck_assert_uint_eq(after.resized - before.resized, 0);
    core_compiled_release(compiled);
}
END_TEST

COMPILED_FUNCTION(same_number)
{
    /* A number that no size explains. */
    static int64_t calls;

    out[0] =
        own(T(add_scalar, x[0], core_int(1000 + 7 * calls++), core_int(1)));
    *noutputs = 1;
    return finish();
}

START_TEST(a_number_that_no_size_explains_is_reported)
{
    core_compiled *compiled =
        compile_sizes(same_number, CORE_COMPILE_DYNAMIC_AUTO);
    core_tensor *y;

    for (int64_t rows = 4; rows < 8; rows++) {
        world w = of_size(rows, 50);

        OK(core_compiled_call(compiled, w.inputs, 1, &y, 1));
        core_tensor_release(y);
    }
    EXPLAINS(compiled, "follows from no sizes");
    core_compiled_release(compiled);
}
END_TEST

/* ---------------------------------------------------------------- memory -- */

/* The i-th pair, in an order in which large and small ones alternate: any few of
 * them are spread over all. */
static void pair_of_sizes(int i, int64_t *rows, int64_t *columns)
{
    int k = (int)((int64_t)i * 6197 % PAIRS); /* no common factor */

    *rows = 2 + k / PAIRS_A_SIDE;
    *columns = 8 + 4 * (k % PAIRS_A_SIDE);
}

/* Calls the pairs from `first` on; returns the least number of blocks of memory
 * between two of the calls, which depends on the pairs that are kept. */
static int64_t blocks_of_pairs(core_compiled *compiled, int first, int count,
                               void (*call)(core_compiled *, int64_t, int64_t))
{
    int64_t least = INT64_MAX, rows, columns;

    for (int i = first; i < first + count; i++) {
        int64_t live;

        pair_of_sizes(i, &rows, &columns);
        call(compiled, rows, columns);
        live = core__alloc_live();
        least = live < least ? live : least;
    }
    return least;
}

/* Memory does not grow with the number of pairs, after some that fill caches. */
static void check_memory_of_pairs(core_compiled *compiled, int pairs, int some,
                                  void (*call)(core_compiled *, int64_t,
                                               int64_t))
{
    int64_t before, after;
    uint64_t programs;

    blocks_of_pairs(compiled, 0, some / 2, call);
    before = blocks_of_pairs(compiled, some / 2, some / 2, call);
    programs = compile_counts().programs;
    blocks_of_pairs(compiled, some, pairs - some - some / 2, call);
    after = blocks_of_pairs(compiled, pairs - some / 2, some / 2, call);
    ck_assert_uint_eq(compile_counts().programs, programs);
    ck_assert_msg(after < before + 20, "%lld blocks of memory, then %lld",
                  (long long)before, (long long)after);
}

/* ------------------------------------------------------------ training -- */

static core_tensor *trained, *shift;

/* A weight, dropout, views of a result, and numbers that follow from sizes.
 * Outputs 0 and 1 require grad; output 1 is a view of a root. */
COMPILED_FUNCTION(model)
{
    int64_t n = core_tensor_size(x[0], 0), m = core_tensor_size(x[0], 1);
    core_tensor *h = T(reshape, x[0], (int64_t[]){n * m / 4, 4}, 2);

    h = T(gelu, T(add, T(mm, h, trained), shift, core_int(1)), "none");
    h = T(dropout, h, .25, true);
    out[0] = own(T(mean, T(mul, h, h), CORE_DTYPE_NONE));
    out[1] = own(T(narrow, T(exp, h), 0, 1, n - 1));
    out[2] = own(
        T(detach, T(sum_dim, h, (int64_t[]){0}, 1, false, CORE_DTYPE_NONE)));
    *noutputs = 3;
    return finish();
}

/* The gradients of the weights and of the input. */
static void gradients_of(core_tensor *const *outputs, core_tensor *input,
                         core_tensor **grads)
{
    core_tensor *sources[] = {trained, shift, input};
    core_tensor *sum, *total;

    OK(core_sum(outputs[1], CORE_DTYPE_NONE, &sum));
    OK(core_add(outputs[0], sum, core_int(2), &total));
    OK(core_grad(&total, 1, NULL, sources, 3, 0, grads));
    core_tensor_release(sum);
    core_tensor_release(total);
}

/* Calls the model as it is and compiled, and compares gradients as well. */
static void train_with(core_compiled *compiled, int64_t rows, int64_t columns)
{
    core_tensor *outputs[2][3], *grads[2][3];
    world w = of_size(rows, columns);
    size_t count = 3;

    leaf(w.inputs[0]);
    core_seed(5);
    OK(model(NULL, w.inputs, 1, outputs[0], &count));
    core_seed(5);
    OK(core_compiled_call(compiled, w.inputs, 1, outputs[1], 3));
    for (int i = 0; i < 2; i++)
        gradients_of(outputs[i], w.inputs[0], grads[i]);
    for (uint32_t i = 0; i < 3; i++) {
        same_bits("output", i, outputs[0][i], outputs[1][i]);
        same_bits("gradient", i, grads[0][i], grads[1][i]);
        for (int k = 0; k < 2; k++) {
            core_tensor_release(outputs[k][i]);
            core_tensor_release(grads[k][i]);
        }
    }
    drop(w.inputs[0]);
}

static core_compiled *compile_model(void)
{
    core_compiled *compiled = compile_sizes(model, CORE_COMPILE_DYNAMIC_ALWAYS);
    world w = {.device = program_device};

    trained = NUMBERS(&w, 50, 4, 3);
    shift = NUMBERS(&w, 70, 3);
    leaf(trained);
    leaf(shift);
    return compiled;
}

START_TEST(two_recordings_serve_the_training_of_sizes_between)
{
    core_compiled *compiled = compile_model();
    core_compile_counts before = compile_counts(), after;

    train_with(compiled, 2, 8);
    train_with(compiled, 30, 32);
    for (int64_t rows = 3; rows < 30; rows += 4)
        for (int64_t columns = 8; columns < 32; columns += 8)
            train_with(compiled, rows, columns);
    after = compile_counts();
    ck_assert_uint_eq(after.traces - before.traces, 2);
    ck_assert_uint_eq(after.resized - before.resized, 7 * 3);
    ck_assert_uint_le(after.programs - before.programs, 8);
    EXPLAINS(compiled, "\"eager_calls\": 0");
    EXPLAINS(compiled, "\"backward_calls_of_the_function\": 0");
    core_compiled_release(compiled);
}
END_TEST

/* Both the forward and the backward program. */
START_TEST(training_programs_are_those_that_would_be_recorded)
{
    core_compiled *compiled = compile_model();
    core_compile_counts before = compile_counts(), after;

    train_with(compiled, 2, 8);
    train_with(compiled, 30, 32);
    OK(core_setting_set("LIBCORE_COMPILE_CHECK", "1"));
    for (int round = 0; round < 2; round++)
        for (int64_t rows = 3; rows < 7; rows++)
            train_with(compiled, rows, 12);
    OK(core_setting_set("LIBCORE_COMPILE_CHECK", NULL));
    after = compile_counts();
    ck_assert_uint_ge(after.checks - before.checks, 4);
    core_compiled_release(compiled);
}
END_TEST

START_TEST(training_of_many_sizes_takes_no_more_memory)
{
    core_compiled *compiled = compile_model();
    bool all = effort_is_long();

    train_with(compiled, 2, 8);
    train_with(compiled, MOST_ROWS, MOST_COLUMNS);
    check_memory_of_pairs(compiled, all ? PAIRS : 120, all ? 1000 : 40,
                          train_with);
    core_compiled_release(compiled);
}
END_TEST

static void call_layer(core_compiled *compiled, int64_t rows, int64_t columns)
{
    call_with(layer, compiled, rows, columns);
}

START_TEST(many_sizes_take_no_more_memory)
{
    core_compiled *compiled = compile_sizes(layer, CORE_COMPILE_DYNAMIC_AUTO);
    bool all = effort_is_long();

    call_layer(compiled, 2, 8);
    call_layer(compiled, MOST_ROWS, MOST_COLUMNS);
    check_memory_of_pairs(compiled, all ? PAIRS : 200, all ? 1000 : 60,
                          call_layer);
    core_compiled_release(compiled);
}
END_TEST

SUITE_ON_CPU_AND_SIM("compile/dynamic_shapes",
                     two_recordings_serve_the_sizes_between,
                     programs_are_those_that_would_be_recorded,
                     sizes_beyond_those_that_were_recorded_are_recorded,
                     a_number_with_two_explanations_is_recorded,
                     a_number_that_only_seems_constant_is_recorded,
                     functions_that_do_something_else_stay_apart,
                     sizes_of_0_and_1_do_not_hinder_others,
                     each_size_is_recorded_if_that_is_requested,
                     a_number_that_no_size_explains_is_reported,
                     two_recordings_serve_the_training_of_sizes_between,
                     training_programs_are_those_that_would_be_recorded,
                     training_of_many_sizes_takes_no_more_memory,
                     many_sizes_take_no_more_memory)
