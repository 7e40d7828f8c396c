/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Compiled calls on a simulated device that is lost: at each piece of work of a
 * call, and before it.  The error is that of the device, nothing is left behind,
 * and after a reset the function works again on tensors of that time. */

#include "support/compiled.h"
#include "support/sim_device.h"

#include <libcore/memory.h>

static const uint32_t modes[] = {CORE_COMPILE_DEFAULT,
                                 CORE_COMPILE_REDUCE_OVERHEAD};

static void begin(void)
{
    sim_find("sim");
    program_device = sim;
}

static core_compiled *compile(core_tensor_function function, world *w,
                              uint32_t mode)
{
    return compile_with(function, w,
                        (core_compile_options){.mode = mode,
                                               .flags = CORE_COMPILE_FULLGRAPH,
                                               .key = w->hidden,
                                               .key_size = sizeof *w->hidden});
}

/* Reads a hidden input and random numbers, and writes an input. */
COMPILED_FUNCTION(writes)
{
    core_tensor *product = NULL, *noisy = NULL;
    core_status status = core_mul(x[0], w->hidden[0], &product);

    if (status == CORE_OK)
        status = core_dropout(product, .5, true, &noisy);
    if (status == CORE_OK)
        status = core_add_(x[1], noisy, core_int(1));
    if (status == CORE_OK)
        status = core_tanh(noisy, &out[0]);
    core_tensor_release(product);
    core_tensor_release(noisy);
    *noutputs = 1;
    return status;
}

COMPILED_FUNCTION(model)
{
    core_tensor *y = NULL, *noisy = NULL;
    core_status status = core_mul(x[0], w->hidden[0], &y);

    if (status == CORE_OK)
        status = core_dropout(y, .5, true, &noisy);
    if (status == CORE_OK)
        status = core_tanh(noisy, &out[0]);
    core_tensor_release(y);
    core_tensor_release(noisy);
    *noutputs = 1;
    return status;
}

/* The program of before the reset serves calls after it. */
COMPILED_FUNCTION(chain)
{
    core_tensor *product = NULL, *noisy = NULL;
    core_status status = core_mul(x[0], x[1], &product);

    if (status == CORE_OK)
        status = core_dropout(product, .5, true, &noisy);
    if (status == CORE_OK)
        status = core_tanh(noisy, &out[0]);
    core_tensor_release(product);
    core_tensor_release(noisy);
    *noutputs = 1;
    return status;
}

/* Nothing but the reset shows that its graph is gone. */
COMPILED_FUNCTION(draws)
{
    core_tensor *noise = NULL;
    core_status status =
        core_rand((int64_t[]){4, 5}, 2, NULL, CORE_F32, sim, &noise);

    if (status == CORE_OK)
        status = core_tanh(noise, &out[0]);
    core_tensor_release(noise);
    *noutputs = 1;
    return status;
}

static world fresh(core_tensor_function function)
{
    world w = {.device = sim, .ninputs = 2, .nhidden = 1};

    for (uint32_t i = 0; i < 2; i++)
        w.inputs[i] = NUMBERS(&w, 1 + 40 * i, 4, 5);
    if (function == draws)
        w.ninputs = 0;
    if (function == chain || function == draws)
        w.nhidden = 0;
    else
        w.hidden[0] = NUMBERS(&w, 99, 4, 5);
    if (function == model)
        leaf(w.inputs[0]);
    return w;
}

/* One call, and its backward; *out is a result of each. */
static core_status call(core_tensor_function function, world *w,
                        core_compiled *compiled, core_tensor **out)
{
    core_tensor *y = NULL;
    size_t count = 1;
    core_status status;

    *out = NULL;
    core_seed(8);
    status = compiled
                 ? core_compiled_call(compiled, w->inputs, w->ninputs, &y, 1)
                 : function(w, w->inputs, w->ninputs, &y, &count);
    if (status == CORE_OK && function == model) {
        status = core_grad(&y, 1, &y, w->inputs, 1, 0, out);
        core_tensor_release(y);
    } else {
        *out = y;
    }
    return status;
}

/* Calls on new tensors. */
static void works(core_tensor_function function, world *w,
                  core_compiled *compiled)
{
    world eager = fresh(function);
    core_tensor *expected, *out;

    *w = fresh(function);
    for (int i = 0; i < 3; i++) {
        OK(call(function, &eager, NULL, &expected));
        OK(call(function, w, compiled, &out));
        same_bits("result", 0, expected, out);
        core_tensor_release(expected);
        core_tensor_release(out);
    }
    if (w->ninputs)
        same_bits("input", 1, eager.inputs[1], w->inputs[1]);
    OK(core_device_synchronize(sim));
}

static void nothing_left(core_compiled *compiled)
{
    sim_counters counters;

    core_compiled_release(compiled);
    drop_all();
    OK(core_device_synchronize(sim));
    OK(core_memory_empty_cache(sim));
    counters = counters_of(0);
    ck_assert_uint_eq(counters.graphs, 0);
    ck_assert_uint_eq(counters.bytes, 0);
    ck_assert_uint_eq(counters.bad_frees, 0);
}

/* Loses the device at work nth of a call that was made `calls` times before.
 * False: the call has less work. */
static bool lose_in_call(core_tensor_function function, uint32_t mode,
                         int calls, uint64_t nth)
{
    world w = fresh(function);
    core_compiled *compiled = compile(function, &w, mode);
    core_tensor *out;
    core_status status;
    uint64_t before;

    for (int i = 0; i < calls; i++) {
        OK(call(function, &w, compiled, &out));
        core_tensor_release(out);
    }
    OK(core_device_synchronize(sim));
    before = counters_of(0).faults;
    OK(control->fault(0, SIM_FAULT_LOST, nth));
    status = call(function, &w, compiled, &out);
    if (status == CORE_OK)
        status = core_device_synchronize(sim);
    OK(control->fault(0, SIM_FAULT_LOST, 0));
    if (counters_of(0).faults == before) {
        OK(status);
        core_tensor_release(out);
        nothing_left(compiled);
        return false;
    }
    ck_assert_int_eq(status, CORE_ERROR_DEVICE_LOST);
    ck_assert_ptr_nonnull(strstr(core_error_message(), "\"sim\" is lost"));
    core_tensor_release(out);
    FAILS(call(function, &w, compiled, &out), CORE_ERROR_DEVICE_LOST, "lost");
    ck_assert_ptr_null(out);
    OK(core_device_reset(sim));
    FAILS(call(function, &w, compiled, &out), CORE_ERROR_DEVICE_LOST, "reset");
    ck_assert_ptr_null(out);
    works(function, &w, compiled);
    nothing_left(compiled);
    return true;
}

static void lose_in_each_work(core_tensor_function function)
{
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++)
        for (int calls = 0; calls < 3; calls++) {
            uint64_t nth = 1;

            while (lose_in_call(function, modes[m], calls, nth))
                nth++;
            ck_assert_uint_ge(nth, 4);
        }
}

START_TEST(a_device_that_is_lost_in_a_call_works_after_its_reset)
{
    lose_in_each_work(writes);
    lose_in_each_work(chain);
}
END_TEST

START_TEST(a_device_that_is_lost_in_forward_or_backward_works_after_its_reset)
{
    lose_in_each_work(model);
}
END_TEST

static void lose_after(core_tensor_function function, uint32_t mode, int calls)
{
    world w = fresh(function);
    core_compiled *compiled = compile(function, &w, mode);
    core_tensor *out;

    for (int i = 0; i < calls; i++) {
        OK(call(function, &w, compiled, &out));
        core_tensor_release(out);
    }
    OK(control->lose(0));
    (void)core_device_synchronize(sim);
    FAILS(call(function, &w, compiled, &out), CORE_ERROR_DEVICE_LOST, "\"sim\"",
          "lost");
    ck_assert_ptr_null(out);
    OK(core_device_reset(sim));
    works(function, &w, compiled);
    nothing_left(compiled);
}

START_TEST(a_device_that_is_lost_between_calls_is_reported_by_the_next)
{
    const core_tensor_function functions[] = {writes, chain, draws};

    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++)
        for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
            for (int calls = 0; calls < 3; calls++)
                lose_after(functions[f], modes[m], calls);
}
END_TEST

/* The graph is released while its device is lost. */
START_TEST(a_function_is_released_while_its_device_is_lost)
{
    world w = fresh(writes);
    core_compiled *compiled = compile(writes, &w, CORE_COMPILE_REDUCE_OVERHEAD);
    core_tensor *out;

    for (int i = 0; i < 3; i++) {
        OK(call(writes, &w, compiled, &out));
        core_tensor_release(out);
    }
    OK(control->lose(0));
    (void)core_device_synchronize(sim);
    core_compiled_release(compiled);
    drop_all();
    OK(core_device_reset(sim));
    compiled = compile(writes, &w, CORE_COMPILE_REDUCE_OVERHEAD);
    works(writes, &w, compiled);
    nothing_left(compiled);
}
END_TEST

/* Data of the host, and what is computed of them, are constants. */
COMPILED_FUNCTION(has_constants)
{
    const float data[] = {1, 2, 3, 4, 5};
    core_tensor *numbers = NULL, *scale = NULL;
    core_status status = core_tensor_from_data(
        data, CORE_F32, (int64_t[]){5}, 1, core_tensor_device(x[0]), &numbers);

    if (status == CORE_OK)
        status = core_tanh(numbers, &scale);
    if (status == CORE_OK)
        status = core_mul(x[0], scale, &out[0]);
    core_tensor_release(numbers);
    core_tensor_release(scale);
    *noutputs = 1;
    return status;
}

START_TEST(constants_are_made_again_after_a_reset)
{
    for (int i = 0; i < 4; i++) {
        core_compile_options options = {.struct_size = sizeof options,
                                        .mode = modes[i % 2],
                                        .flags =
                                            i / 2 ? CORE_COMPILE_FREEZE : 0};
        core_compiled *compiled;
        core_tensor *out;

        OK(core_compile(has_constants, NULL, &options, &compiled));
        for (int round = 0; round < 3; round++) {
            world eager = {.device = sim, .ninputs = 1}, traced = eager;

            eager.inputs[0] = NUMBERS(&eager, 1, 4, 5);
            traced.inputs[0] = NUMBERS(&traced, 1, 4, 5);
            for (int k = 0; k < 4; k++)
                same_call(has_constants, &eager, compiled, &traced);
            if (round == 1) {
                OK(control->lose(0));
                FAILS(core_compiled_call(compiled, traced.inputs, 1, &out, 1),
                      CORE_ERROR_DEVICE_LOST, "lost");
            }
            OK(core_device_reset(sim));
        }
        EXPLAINS(compiled, "\"eager_calls\": 0");
        core_compiled_release(compiled);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        a_device_that_is_lost_in_a_call_works_after_its_reset,
        a_device_that_is_lost_in_forward_or_backward_works_after_its_reset,
        a_device_that_is_lost_between_calls_is_reported_by_the_next,
        a_function_is_released_while_its_device_is_lost,
        constants_are_made_again_after_a_reset,
    };
    const test_suite suite = {
        .name = "compile/device_loss",
        .setup = begin,
        .teardown = drop_all,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
