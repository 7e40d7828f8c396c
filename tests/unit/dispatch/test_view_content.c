/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_host.call_view_content: a kernel that keeps a copy of a weight sees when
 * the weight has changed.  The mutant's mm keeps one under the rule
 * caches-weights-by-content, and counts the copies that it makes. */

#define SUITE_FORKS true

#include "support/sim_device.h"
#include "support/stream.h"

#include <libcore/capture.h>
#include <libcore/compiled.h>
#include <libcore/memory.h>
#include <libcore/plugins.h>

#include "tensor/tensor.h"

enum { SIDE = 32 };

static void start(void)
{
    const char *build = getenv("LIBCORE_BUILD");
    core_plugin *plugin;
    char path[4096];

    setenv("LIBCORE_MUTANT_RULE", "caches-weights-by-content", 1);
    snprintf(path, sizeof path,
             "%s/tests/fixtures/mutants/.libs/core_mutant.so",
             build ? build : ".");
    OK(core_plugin_load(path, &plugin));
    sim_find("mutant");
}

static int copies(void)
{
    const char *text = getenv("LIBCORE_MUTANT_COPIES");

    return text ? atoi(text) : 0;
}

static core_tensor *square(double value)
{
    const int64_t sizes[2] = {SIDE, SIDE};
    core_tensor *tensor;

    OK(core_full(sizes, 2, core_float(value), CORE_F32, sim, &tensor));
    return tensor;
}

/* Every element of a product of ones and the weight is SIDE * value. */
static void has_product(core_tensor *product, double value)
{
    float got[SIDE * SIDE];

    OK(core_tensor_read(product, got, sizeof got));
    for (int i = 0; i < SIDE * SIDE; i++)
        ck_assert_float_eq(got[i], (float)(SIDE * value));
}

static void product_is(core_tensor *weight, double value)
{
    core_tensor *ones = square(1), *product;

    OK(core_mm(ones, weight, &product));
    has_product(product, value);
    core_tensor_release(product);
    core_tensor_release(ones);
}

START_TEST(unchanged_weight_is_copied_once)
{
    core_tensor *weight = keep(square(2)), *other = keep(square(3));

    for (int i = 0; i < 4; i++)
        product_is(weight, 2);
    ck_assert_int_eq(copies(), 1);
    product_is(other, 3);
    ck_assert_int_eq(copies(), 2);
}
END_TEST

/* Each way to change a weight in place. */
START_TEST(changed_weight_is_copied_again)
{
    const int64_t whole[1] = {SIDE * SIDE};
    core_tensor *weight = keep(square(2)), *other = keep(square(5));
    core_tensor *view, *detached;
    float values[SIDE * SIDE];
    int before = 0;

#define CHANGES(change, value)                  \
    do {                                        \
        product_is(weight, before_value);       \
        before = copies();                      \
        OK(change);                             \
        product_is(weight, value);              \
        ck_assert_int_eq(copies(), before + 1); \
        before_value = (value);                 \
    } while (0)
    double before_value = 2;

    CHANGES(core_fill_(weight, core_float(3)), 3);
    CHANGES(core_add_(weight, other, core_float(1)), 8);
    CHANGES(core_copy_(weight, other, false), 5);
    CHANGES(core_tensor_copy(weight, keep(square(4)), 0), 4);
    CHANGES(core_zero_(weight), 0);
    CHANGES(core_mul_out(other, other, weight), 25);
    OK(core_reshape(weight, whole, 1, &view));
    keep(view);
    CHANGES(core_fill_(view, core_float(6)), 6);
    OK(core_detach(weight, &detached));
    keep(detached);
    CHANGES(core_fill_(detached, core_float(7)), 7);
    for (int i = 0; i < SIDE * SIDE; i++)
        values[i] = 9;
    CHANGES(core_tensor_write(weight, values, sizeof values), 9);
#undef CHANGES
}
END_TEST

START_TEST(changes_in_inference_mode_count)
{
    core_tensor *weight = keep(square(2));
    uint64_t before = core_inference_begin();

    product_is(weight, 2);
    OK(core_fill_(weight, core_float(3)));
    core_inference_end(before);
    product_is(weight, 3);
    ck_assert_int_eq(copies(), 2);
}
END_TEST

/* A weight that was created in inference mode, where all of a program may run. */
START_TEST(changes_of_inference_tensors_count)
{
    uint64_t before = core_inference_begin();
    core_tensor *weight = keep(square(2)), *other = keep(square(5)), *view;
    const int64_t whole[1] = {SIDE * SIDE};

    product_is(weight, 2);
    OK(core_fill_(weight, core_float(3)));
    product_is(weight, 3);
    OK(core_add_(weight, other, core_float(1)));
    product_is(weight, 8);
    OK(core_copy_(weight, other, false));
    product_is(weight, 5);
    OK(core_mul_out(other, other, weight));
    product_is(weight, 25);
    OK(core_reshape(weight, whole, 1, &view));
    OK(core_mul_scalar_(view, core_float(2)));
    product_is(weight, 50);
    core_tensor_release(view);
    core_inference_end(before);
    /* A view that is created in normal mode. */
    OK(core_reshape(weight, whole, 1, &view));
    before = core_inference_begin();
    OK(core_mul_scalar_(view, core_float(2)));
    product_is(weight, 100);
    core_tensor_release(view);
    core_inference_end(before);
    ck_assert_int_eq(copies(), 7);
}
END_TEST

/* The schema of the operator does not say that it changes its arguments. */
START_TEST(changes_of_running_statistics_count)
{
    const int64_t sizes[2] = {2, SIDE * SIDE};
    core_tensor *weight = keep(square(2)), *mean, *var, *x, *results[3];

    product_is(weight, 2);
    OK(core_reshape(weight, sizes + 1, 1, &mean));
    OK(core_ones_like(mean, CORE_DTYPE_NONE, NULL, -1, &var));
    OK(core_full(sizes, 2, core_float(12), CORE_F32, sim, &x));
    OK(core_native_batch_norm(x, NULL, NULL, mean, var, true, .5, 1e-5,
                              &results[0], &results[1], &results[2]));
    for (int i = 0; i < 3; i++)
        core_tensor_release(results[i]);
    core_tensor_release(mean);
    core_tensor_release(var);
    core_tensor_release(x);
    product_is(weight, 7);
}
END_TEST

/* Another weight at the address of a released one. */
START_TEST(new_weight_at_an_old_address_is_copied)
{
    core_memory address = {0};
    int seen_again = 0;

    for (int i = 1; i <= 8; i++) {
        core_tensor *weight = square(i);
        core_memory now = weight->storage->memory;

        seen_again +=
            now.handle == address.handle && now.offset == address.offset;
        address = now;
        product_is(weight, i);
        core_tensor_release(weight);
    }
    ck_assert_int_gt(seen_again, 0);
    ck_assert_int_eq(copies(), 8);
}
END_TEST

/* A graph changes memory without a call of an operator. */
START_TEST(launch_of_a_graph_counts_as_a_change)
{
    core_tensor *weight = keep(square(1));
    core_stream *stream = stream_of(sim);
    core_stream_guard guard;
    core_graph *graph;

    OK(core_device_synchronize(sim));
    OK(core_stream_guard_enter(stream, &guard));
    product_is(weight, 1);
    OK(core_capture_begin(stream, NULL));
    OK(core_add_(weight, weight, core_float(1)));
    OK(core_capture_end(stream, &graph));
    product_is(weight, 1);
    product_is(weight, 1);
    for (int i = 1; i <= 3; i++) {
        OK(core_graph_launch(graph, stream));
        product_is(weight, 1 << i);
    }
    core_stream_guard_leave(&guard);
    core_graph_release(graph);
    core_stream_release(stream);
}
END_TEST

/* Both right operands are intermediate results. */
static core_status two_products(void *context, core_tensor *const *inputs,
                                size_t ninputs, core_tensor **outputs,
                                size_t *noutputs)
{
    core_tensor *twice, *half;

    (void)context;
    (void)ninputs;
    OK(core_mul_scalar(inputs[1], core_float(2), &twice));
    OK(core_mm(inputs[0], twice, &outputs[0]));
    core_tensor_release(twice);
    OK(core_mul_scalar(inputs[1], core_float(.5), &half));
    OK(core_mm(inputs[0], half, &outputs[1]));
    core_tensor_release(half);
    *noutputs = 2;
    return CORE_OK;
}

static core_compiled *compiled(core_tensor_function function)
{
    core_compile_options options = {.struct_size = sizeof options,
                                    .codegen = CORE_COMPILE_CODEGEN_OFF};
    core_compiled *compiled;

    OK(core_compile(function, NULL, &options, &compiled));
    return compiled;
}

/* They are at the same addresses in each call. */
START_TEST(intermediate_results_of_compiled_functions_change)
{
    core_tensor *inputs[2] = {keep(square(1)), keep(square(1))}, *outputs[2];
    core_compiled *products = compiled(two_products);

    for (int i = 1; i <= 4; i++) {
        OK(core_fill_(inputs[1], core_float(i)));
        OK(core_compiled_call(products, inputs, 2, outputs, 2));
        has_product(keep(outputs[0]), 2 * i);
        has_product(keep(outputs[1]), .5 * i);
    }
    core_compiled_release(products);
}
END_TEST

enum { CHAIN = 4 };

/* Each right operand, the last of which is an output, is in the memory of the
 * one before. */
static core_status chain_of_products(void *context, core_tensor *const *inputs,
                                     size_t ninputs, core_tensor **outputs,
                                     size_t *noutputs)
{
    core_tensor *weight = core_tensor_retain(inputs[1]), *next;

    (void)context;
    (void)ninputs;
    for (int i = 0; i < CHAIN; i++) {
        OK(core_mul_scalar(weight, core_float(2), &next));
        core_tensor_release(weight);
        weight = next;
        OK(core_mm(inputs[0], weight, &outputs[i]));
    }
    outputs[CHAIN] = weight;
    *noutputs = CHAIN + 1;
    return CORE_OK;
}

START_TEST(outputs_of_compiled_functions_change_within_a_call)
{
    core_tensor *inputs[2] = {keep(square(1)), keep(square(1))};
    core_tensor *outputs[CHAIN + 1];
    core_compiled *products = compiled(chain_of_products);
    int before;

    for (int call = 0; call < 3; call++) {
        OK(core_compiled_call(products, inputs, 2, outputs, CHAIN + 1));
        for (int i = 0; i < CHAIN; i++)
            has_product(keep(outputs[i]), 2 << i);
        keep(outputs[CHAIN]);
    }
    /* After the call it is like any other tensor. */
    product_is(outputs[CHAIN], 1 << CHAIN);
    before = copies();
    product_is(outputs[CHAIN], 1 << CHAIN);
    ck_assert_int_eq(copies(), before);
    core_compiled_release(products);
}
END_TEST

START_TEST(content_without_room_for_a_number_is_refused)
{
    const char *const sizes[] = {"0", "8"};
    core_tensor *weight = keep(square(1)), *product;

    for (int i = 0; i < 2; i++) {
        setenv("LIBCORE_MUTANT_CONTENT_SIZE", sizes[i], 1);
        FAILS(core_mm(weight, weight, &product), CORE_ERROR_INVALID_ARGUMENT,
              "call_view_content", "struct_size", sizes[i]);
        ck_assert_ptr_null(product);
    }
    unsetenv("LIBCORE_MUTANT_CONTENT_SIZE");
    product_is(weight, 1);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        unchanged_weight_is_copied_once,
        changed_weight_is_copied_again,
        changes_in_inference_mode_count,
        changes_of_inference_tensors_count,
        changes_of_running_statistics_count,
        new_weight_at_an_old_address_is_copied,
        launch_of_a_graph_counts_as_a_change,
        intermediate_results_of_compiled_functions_change,
        outputs_of_compiled_functions_change_within_a_call,
        content_without_room_for_a_number_is_refused,
    };

    return run_suite_with("dispatch/view_content", start, tests,
                          sizeof tests / sizeof *tests);
}
