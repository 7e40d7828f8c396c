/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* CORE_COMPILE_FREEZE: what is computed once, and what a change of a frozen
 * tensor leads to. */

#include "support/compiled.h"

#include "compile/compiled/compiled.h"

#include <libcore/autocast.h>
#include <libcore/autograd.h>
#include <libcore/control_flow.h>
#include <libcore/device.h>
#include <libcore/dispatch.h>

static core_compiled *compile(core_tensor_function function, world *w,
                              uint32_t flags)
{
    return compile_with(
        function, w,
        (core_compile_options){.flags = flags | CORE_COMPILE_FREEZE |
                                        CORE_COMPILE_FULLGRAPH});
}

static world made(void)
{
    world w = {.device = program_device, .ninputs = 1, .nhidden = 2};

    w.inputs[0] = NUMBERS(&w, 1, 4, 5);
    w.hidden[0] = NUMBERS(&w, 50, 6, 5);
    w.hidden[1] = NUMBERS(&w, 90, 6, 5);
    return w;
}

static const core_program *program_of(const core_compiled *compiled)
{
    for (uint32_t i = 0; i < compiled->limit; i++)
        if (compiled->entries[i])
            return compiled->entries[i]->program;
    return NULL;
}

static uint64_t traces(void)
{
    return compile_counts().traces;
}

static core_compiled *compare_frozen(core_tensor_function function)
{
    world eager = made(), traced = made();
    core_compiled *compiled = compile(function, &traced, 0);
    uint64_t before = traces();

    for (int i = 0; i < 3; i++)
        same_call(function, &eager, compiled, &traced);
    ck_assert_uint_eq(traces() - before, 1);
    return compiled;
}

/* x * transpose(normalised(a + b)), in which a view is read in each run. */
COMPILED_FUNCTION(layer)
{
    core_tensor *sum = NULL, *scaled = NULL, *turned = NULL;
    core_status status =
        core_add(w->hidden[0], w->hidden[1], core_int(1), &sum);

    if (status == CORE_OK)
        status = core_softmax(sum, -1, CORE_DTYPE_NONE, &scaled);
    if (status == CORE_OK)
        status = core_t(scaled, &turned);
    if (status == CORE_OK)
        status = core_mm(x[0], turned, &out[0]);
    core_tensor_release(sum);
    core_tensor_release(scaled);
    core_tensor_release(turned);
    *noutputs = 1;
    return status;
}

START_TEST(what_depends_on_frozen_tensors_alone_is_computed_once)
{
    core_compiled *compiled = compare_frozen(layer);

    ck_assert_uint_eq(program_of(compiled)->nnodes, 2); /* t, mm */
    EXPLAINS(compiled, "\"frozen_inputs\": 2");
    EXPLAINS(compiled, "\"folded_operators\": 2");
    EXPLAINS(compiled, "\"freeze\": true");
    core_compiled_release(compiled);
}
END_TEST

/* x + s and 3 x, where s is computed once and then filled with 3. */
COMPILED_FUNCTION(changes_a_sum)
{
    core_tensor *sum = NULL;
    core_status status = core_sum_dim(w->hidden[0], (int64_t[]){0}, 1, false,
                                      CORE_DTYPE_NONE, &sum);

    if (status == CORE_OK)
        status = core_add(x[0], sum, core_int(1), &out[0]);
    if (status == CORE_OK)
        status = core_fill_(sum, core_float(3));
    if (status == CORE_OK)
        status = core_mul(x[0], sum, &out[1]);
    core_tensor_release(sum);
    *noutputs = 2;
    return status;
}

START_TEST(what_is_folded_keeps_its_content)
{
    core_compiled_release(compare_frozen(changes_a_sum));
}
END_TEST

START_TEST(a_change_in_place_leads_to_another_recording)
{
    world eager = made(), traced = made();
    core_compiled *compiled = compile(layer, &traced, 0);
    uint64_t before = traces();

    for (int i = 0; i < 4; i++) {
        same_call(layer, &eager, compiled, &traced);
        same_call(layer, &eager, compiled, &traced);
        OK(core_add_scalar_(eager.hidden[i % 2], core_int(1), core_int(1)));
        OK(core_add_scalar_(traced.hidden[i % 2], core_int(1), core_int(1)));
    }
    ck_assert_uint_eq(traces() - before, 4);
    EXPLAINS(compiled, "a frozen hidden input changed");
    EXPLAINS(compiled, "\"invalidated\": 3");
    core_compiled_release(compiled);
}
END_TEST

/* As soon as there is one, and in each call. */
START_TEST(an_operator_with_a_registered_function_is_not_computed_before)
{
    world eager = made(), traced = made();
    core_compiled *compiled = compile(layer, &traced, 0);
    core_registration *registration;
    uint64_t before = traces();
    int runs = 0;

    same_call(layer, &eager, compiled, &traced);
    OK(core_function_register("add.Tensor", CORE_KEY_BACKEND,
                              core_device_type(program_device),
                              count_and_pass_on, &runs, &registration));
    for (int i = 0; i < 3; i++)
        same_call(layer, &eager, compiled, &traced);
    ck_assert_int_eq(runs, 6);
    EXPLAINS(compiled, "a function was registered");
    core_registration_release(registration);
    for (int i = 0; i < 3; i++)
        same_call(layer, &eager, compiled, &traced);
    ck_assert_int_eq(runs, 6);
    ck_assert_uint_le(traces() - before, 3);
    core_compiled_release(compiled);
}
END_TEST

START_TEST(a_write_from_the_host_leads_to_another_recording)
{
    world eager = made(), traced = made();
    core_compiled *compiled = compile(layer, &traced, 0);
    float values[30] = {1, 2, 3};

    for (int i = 0; i < 2; i++) {
        same_call(layer, &eager, compiled, &traced);
        OK(core_tensor_write(eager.hidden[0], values, sizeof values));
        OK(core_tensor_write(traced.hidden[0], values, sizeof values));
    }
    same_call(layer, &eager, compiled, &traced);
    core_compiled_release(compiled);
}
END_TEST

/* An output that is known is a new tensor in each call. */
COMPILED_FUNCTION(returns_known)
{
    core_tensor *sum = NULL, *turned = NULL;
    core_status status =
        core_add(w->hidden[0], w->hidden[1], core_int(1), &sum);

    if (status == CORE_OK)
        status = core_neg(sum, &out[0]);
    if (status == CORE_OK)
        status = core_t(sum, &turned);
    if (status == CORE_OK)
        status = core_select(turned, 0, 1, &out[1]);
    if (status == CORE_OK)
        status = core_detach(sum, &out[2]);
    out[3] = core_tensor_retain(w->hidden[0]);
    core_tensor_release(sum);
    core_tensor_release(turned);
    *noutputs = 4;
    return status;
}

/* Rows of the hidden inputs are running statistics. */
static void train_statistics(world *w)
{
    core_tensor *mean, *var, *results[3];

    OK(core_select(w->hidden[0], 0, 0, &mean));
    OK(core_select(w->hidden[1], 0, 0, &var));
    OK(core_native_batch_norm(w->inputs[0], NULL, NULL, mean, var, true, .5,
                              1e-5, &results[0], &results[1], &results[2]));
    for (int i = 0; i < 3; i++)
        core_tensor_release(results[i]);
    core_tensor_release(mean);
    core_tensor_release(var);
}

/* Their versions do not count it: autograd may have saved them. */
START_TEST(running_statistics_that_a_batch_norm_changes_are_not_frozen)
{
    world eager = made(), traced = made();
    core_compiled *compiled = compile(layer, &traced, 0);

    for (int i = 0; i < 4; i++) {
        same_call(layer, &eager, compiled, &traced);
        train_statistics(&eager);
        train_statistics(&traced);
    }
    EXPLAINS(compiled, "\"frozen_inputs\": 0");
    core_compiled_release(compiled);
}
END_TEST

/* The memory of a small tensor is used again by the next one. */
START_TEST(tensors_after_running_statistics_are_frozen)
{
    const int64_t size = 5;
    world w = made();

    for (int i = 0; i < 2; i++) {
        core_tensor *statistics, *results[3], *next;

        OK(core_full(&size, 1, core_float(1), CORE_F32, w.device, &statistics));
        OK(core_native_batch_norm(w.inputs[0], NULL, NULL, statistics, NULL,
                                  true, .5, 1e-5, &results[0], &results[1],
                                  &results[2]));
        ck_assert(core__storage_varies(statistics->storage));
        core_tensor_release(statistics);
        OK(core_full(&size, 1, core_float(1), CORE_F32, w.device, &next));
        ck_assert(!core__storage_varies(next->storage));
        core_tensor_release(next);
        for (int k = 0; k < 3; k++)
            core_tensor_release(results[k]);
    }
}
END_TEST

START_TEST(results_can_be_changed_by_the_caller)
{
    world w = made();
    core_compiled *compiled = compile(returns_known, &w, 0);
    core_tensor *out[2][4];

    core_compiled_release(compare_frozen(returns_known));
    OK(core_compiled_call(compiled, w.inputs, 1, out[0], 4));
    OK(core_compiled_call(compiled, w.inputs, 1, out[1], 4));
    for (int i = 0; i < 3; i++)
        OK(core_fill_(out[0][i], core_int(7)));
    release_tensors(out[0], 4);
    OK(core_compiled_call(compiled, w.inputs, 1, out[0], 4));
    for (size_t i = 0; i < 4; i++)
        same_bits("output", i, out[1][i], out[0][i]);
    release_tensors(out[0], 4);
    release_tensors(out[1], 4);
    core_compiled_release(compiled);
}
END_TEST

/* What is written, drawn, or chosen by data is not frozen. */
COMPILED_FUNCTION(writes_and_draws)
{
    core_tensor *sum = NULL, *noise = NULL, *noisy = NULL;
    core_status status =
        core_add(w->hidden[0], w->hidden[1], core_int(1), &sum);

    if (status == CORE_OK)
        status = core_rand_like(sum, CORE_DTYPE_NONE, NULL, -1, &noise);
    if (status == CORE_OK)
        status = core_mul(sum, noise, &noisy);
    if (status == CORE_OK)
        status = core_add_(w->hidden[1], noisy, core_int(1));
    if (status == CORE_OK)
        status = core_neg(noisy, &out[0]);
    core_tensor_release(sum);
    core_tensor_release(noise);
    core_tensor_release(noisy);
    *noutputs = 1;
    return status;
}

START_TEST(what_is_written_or_drawn_is_not_frozen)
{
    core_compiled *compiled = compare_frozen(writes_and_draws);

    EXPLAINS(compiled, "\"frozen_inputs\": 1");
    EXPLAINS(compiled, "\"folded_operators\": 0");
    core_compiled_release(compiled);
}
END_TEST

/* Draws a mask into memory without content, of the sizes of what is frozen. */
COMPILED_FUNCTION(drops)
{
    core_tensor *sum = NULL, *dropped = NULL;
    core_status status =
        core_add(w->hidden[0], w->hidden[1], core_int(1), &sum);

    if (status == CORE_OK)
        status = core_dropout(sum, 0.5, true, &dropped);
    if (status == CORE_OK)
        status = core_linear(x[0], dropped, NULL, &out[0]);
    core_tensor_release(sum);
    core_tensor_release(dropped);
    *noutputs = 1;
    return status;
}

/* Memory of this many bytes has this content when it is allocated next. */
static void fill_memory(int64_t bytes, bool content)
{
    core_tensor *tensors[4];

    for (int i = 0; i < 4; i++)
        OK(core_full(&bytes, 1, core_bool(content), CORE_BOOL, program_device,
                     &tensors[i]));
    release_tensors(tensors, 4);
}

START_TEST(memory_without_content_is_not_a_constant)
{
    world w = made();
    core_compiled *compiled = compile(drops, &w, 0);
    core_tensor *out[1];

    OK(core_setting_set("LIBCORE_COMPILE_CHECK", "1"));
    for (int i = 0; i < 4; i++) {
        fill_memory(30, i % 2);
        OK(core_compiled_call(compiled, w.inputs, 1, out, 1));
        core_tensor_release(out[0]);
    }
    OK(core_setting_set("LIBCORE_COMPILE_CHECK", NULL));
    EXPLAINS(compiled, "\"folded_operators\": 1");
    core_compiled_release(compiled);
}
END_TEST

/* The product is 900 times as large as what it is computed from. */
COMPILED_FUNCTION(expands)
{
    core_tensor *row = NULL, *column = NULL, *product = NULL;
    core_status status =
        core_reshape(w->hidden[0], (int64_t[]){1, 30}, 2, &row);

    if (status == CORE_OK)
        status = core_expand(row, (int64_t[]){1000, 30}, 2, false, &column);
    if (status == CORE_OK)
        status = core_exp(column, &product);
    if (status == CORE_OK)
        status = core_sum(product, CORE_DTYPE_NONE, &out[0]);
    core_tensor_release(row);
    core_tensor_release(column);
    core_tensor_release(product);
    *noutputs = 1;
    return status;
}

START_TEST(tensors_of_inference_mode_are_not_frozen)
{
    const uint64_t before = core_inference_begin();
    world eager = made(), traced = made();
    core_compiled *compiled = compile(layer, &traced, 0);

    for (int i = 0; i < 3; i++) {
        same_call(layer, &eager, compiled, &traced);
        OK(core_mul_scalar_(eager.hidden[0], core_int(2)));
        OK(core_mul_scalar_(traced.hidden[0], core_int(2)));
    }
    EXPLAINS(compiled, "\"frozen_inputs\": 0");
    core_compiled_release(compiled);
    core_inference_end(before);
}
END_TEST

START_TEST(large_results_are_computed_in_each_call)
{
    core_compiled *compiled = compare_frozen(expands);

    EXPLAINS(compiled, "\"folded_operators\": 0");
    core_compiled_release(compiled);
}
END_TEST

COMPILED_FUNCTION(linear)
{
    *noutputs = 1;
    return core_linear(x[0], w->hidden[0], NULL, &out[0]);
}

START_TEST(casts_of_weights_are_folded_under_autocast)
{
    world eager = made(), traced = made();
    core_compiled *compiled = compile(linear, &traced, 0);
    uint64_t region;

    OK(core_autocast_begin(program_device, CORE_BF16, 0, &region));
    for (int i = 0; i < 3; i++)
        same_call(linear, &eager, compiled, &traced);
    OK(core_autocast_end(region));
    EXPLAINS(compiled, "\"folded_operators\": 1");
    core_compiled_release(compiled);
}
END_TEST

START_TEST(calls_that_train_are_not_frozen)
{
    world eager = made(), traced = made();
    core_compiled *compiled = compile(layer, &traced, 0);

    leaf(eager.hidden[0]);
    leaf(traced.hidden[0]);
    for (int i = 0; i < 2; i++)
        same_call(layer, &eager, compiled, &traced);
    ck_assert(!explains(compiled, "frozen_inputs"));
    core_grad_mode_set(false);
    for (int i = 0; i < 2; i++)
        same_call(layer, &eager, compiled, &traced);
    core_grad_mode_set(true);
    EXPLAINS(compiled, "\"frozen_inputs\": 2");
    core_compiled_release(compiled);
}
END_TEST

START_TEST(a_frozen_tensor_that_is_released_ends_its_program)
{
    world w = made();
    core_compiled *compiled = compile(layer, &w, 0);
    uint64_t before = compile_counts().invalidated;
    core_tensor *out, *own;

    OK(core_clone(w.hidden[0], -1, &own));
    w.hidden[0] = own;
    OK(core_compiled_call(compiled, w.inputs, 1, &out, 1));
    core_tensor_release(out);
    core_tensor_release(own);
    w.hidden[0] = NUMBERS(&w, 7, 6, 5);
    OK(core_compiled_call(compiled, w.inputs, 1, &out, 1));
    core_tensor_release(out);
    ck_assert_uint_eq(compile_counts().invalidated - before, 1);
    core_compiled_release(compiled);
}
END_TEST

START_TEST(frozen_programs_are_graphs)
{
    core_compile_options options = {.struct_size = sizeof options,
                                    .mode = CORE_COMPILE_REDUCE_OVERHEAD,
                                    .flags = CORE_COMPILE_FREEZE};
    world eager = made(), traced = made();
    core_compiled *compiled;

    OK(core_compile(layer, &traced, &options, &compiled));
    for (int i = 0; i < 8; i++) {
        same_call(layer, &eager, compiled, &traced);
        if (i != 3)
            continue;
        OK(core_add_scalar_(eager.hidden[0], core_int(1), core_int(1)));
        OK(core_add_scalar_(traced.hidden[0], core_int(1), core_int(1)));
    }
    core_compiled_release(compiled);
}
END_TEST

SUITE_ON_CPU_AND_SIM(
    "compile/freeze", what_depends_on_frozen_tensors_alone_is_computed_once,
    what_is_folded_keeps_its_content,
    a_change_in_place_leads_to_another_recording,
    an_operator_with_a_registered_function_is_not_computed_before,
    a_write_from_the_host_leads_to_another_recording,
    running_statistics_that_a_batch_norm_changes_are_not_frozen,
    tensors_after_running_statistics_are_frozen,
    results_can_be_changed_by_the_caller,
    what_is_written_or_drawn_is_not_frozen,
    memory_without_content_is_not_a_constant,
    tensors_of_inference_mode_are_not_frozen,
    large_results_are_computed_in_each_call,
    casts_of_weights_are_folded_under_autocast, calls_that_train_are_not_frozen,
    a_frozen_tensor_that_is_released_ends_its_program,
    frozen_programs_are_graphs)
