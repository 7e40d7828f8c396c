/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Calls of compiled functions, on cpu and sim: results, graph breaks, limits,
 * threads. */

#include "support/compiled.h"

#include <libcore/device.h>
#include <libcore/mode.h>
#include <libcore/settings.h>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static world two_inputs(void)
{
    world w = {.device = program_device, .ninputs = 2};

    w.inputs[0] = NUMBERS(&w, 1, 3, 4);
    w.inputs[1] = NUMBERS(&w, 50, 3, 4);
    return w;
}

static core_compiled *compile(core_tensor_function function, world *w,
                              uint32_t flags)
{
    return compile_with(function, w, (core_compile_options){.flags = flags});
}

/* ------------------------------------------------------------- results -- */

static int function_calls;

COMPILED_FUNCTION(arithmetic)
{
    core_tensor *sum = NULL;
    core_status status = core_add(x[0], x[1], core_int(2), &sum);

    function_calls++;
    if (status == CORE_OK)
        status = core_mul(sum, x[0], &out[0]);
    if (status == CORE_OK)
        status = core_add_(x[1], sum, core_int(1));
    if (status == CORE_OK)
        status = core_rand_like(x[0], CORE_DTYPE_NONE, NULL, -1, &out[1]);
    core_tensor_release(sum);
    *noutputs = 2;
    return status;
}

START_TEST(a_function_is_recorded_at_its_first_call)
{
    world eager = two_inputs(), traced = two_inputs();
    core_compiled *compiled = compile(arithmetic, &traced, 0);
    core_compile_counts before = compile_counts(), after;

    function_calls = 0;
    for (int i = 0; i < 3; i++)
        same_call(arithmetic, &eager, compiled, &traced);
    ck_assert_int_eq(function_calls, 3 + 1);
    after = compile_counts();
    ck_assert_uint_eq(after.calls - before.calls, 3);
    ck_assert_uint_eq(after.compiled_calls - before.compiled_calls, 3);
    ck_assert_uint_eq(after.traces - before.traces, 1);
    ck_assert_uint_eq(after.programs - before.programs, 1);
    EXPLAINS(compiled, "\"recorded_because\": \"the first call\"");
    EXPLAINS(compiled, "\"compiled_calls\": 3");
    EXPLAINS(compiled, "\"breaks\": []");
    core_compiled_release(compiled);
    ck_assert_uint_eq(compile_counts().programs, before.programs);
}
END_TEST

START_TEST(arguments_are_checked)
{
    world w = two_inputs();
    core_compiled *compiled = compile(arithmetic, &w, 0);
    core_tensor *out[3], *bad[2] = {w.inputs[0], NULL};

    FAILS(core_compiled_call(compiled, bad, 2, out, 2),
          CORE_ERROR_INVALID_ARGUMENT, "input 1 is NULL");
    FAILS(core_compiled_call(compiled, w.inputs, 2, out, 3),
          CORE_ERROR_INVALID_ARGUMENT, "2 outputs");
    ck_assert_ptr_null(out[0]);
    FAILS(core_compiled_call(NULL, w.inputs, 2, out, 2),
          CORE_ERROR_INVALID_ARGUMENT, "compiled");
    core_compiled_release(compiled);
    core_compiled_release(NULL);
}
END_TEST

/* It stores one output and reports more than the call has space for. */
COMPILED_FUNCTION(reports_too_many)
{
    *noutputs = 5;
    return core_add(x[0], x[1], core_int(1), &out[0]);
}

START_TEST(too_many_outputs_are_refused_and_released)
{
    world w = two_inputs();
    core_compiled *compiled = compile(reports_too_many, &w, 0);
    core_tensor *out[2];

    FAILS(core_compiled_call(compiled, w.inputs, 2, out, 2),
          CORE_ERROR_INVALID_ARGUMENT,
          "returned 5 outputs; the call has space for 2");
    ck_assert_ptr_null(out[0]);
    ck_assert_ptr_null(out[1]);
    core_compiled_release(compiled);
}
END_TEST

/* ------------------------------------------------------------- options -- */

START_TEST(invalid_options_are_refused)
{
    core_compile_options options;
    core_compiled *compiled;

    options = (core_compile_options){sizeof options, .mode = 3};
    FAILS(core_compile(arithmetic, NULL, &options, &compiled),
          CORE_ERROR_INVALID_ARGUMENT, "options.mode is 3");
    options = (core_compile_options){0};
    FAILS(core_compile(arithmetic, NULL, &options, &compiled),
          CORE_ERROR_INVALID_ARGUMENT, "struct_size");
    options = (core_compile_options){.struct_size = 8};
    OK(core_compile(arithmetic, NULL, &options, &compiled));
    core_compiled_release(compiled);
    FAILS(core_compile(NULL, NULL, NULL, &compiled),
          CORE_ERROR_INVALID_ARGUMENT, "function");
    options = (core_compile_options){sizeof options, .key = &options,
                                     .key_size = SIZE_MAX};
    FAILS(core_compile(arithmetic, NULL, &options, &compiled),
          CORE_ERROR_INVALID_ARGUMENT, "at most 16777216");
}
END_TEST

/* -------------------------------------------------------- graph breaks -- */

COMPILED_FUNCTION(reads_a_number)
{
    core_scalar number;

    *noutputs = 1;
    CORE_TRY(core_add_(x[1], x[0], core_int(1)));
    CORE_TRY(core_tensor_item(w->hidden[0], &number));
    return core_mul_scalar(x[0], number, &out[0]);
}

static world with_number(void)
{
    world w = two_inputs();

    w.hidden[0] = NUMBERS(&w, 70, 1);
    w.nhidden = 1;
    return w;
}

/* Warnings of compiled functions. */
typedef struct warnings {
    int count;
    char last[256];
} warnings;

static void take_warning(void *context, uint32_t level, const char *component,
                         const char *text)
{
    warnings *w = context;

    (void)level;
    if (strcmp(component, "compile") != 0)
        return;
    w->count++;
    snprintf(w->last, sizeof w->last, "%s", text);
}

START_TEST(a_function_that_cannot_be_recorded_runs_as_it_is)
{
    world eager = with_number(), traced = with_number();
    core_compiled *compiled = compile(reads_a_number, &traced, 0);
    core_compile_counts before = compile_counts(), after;
    warnings logged = {0};

    core_log_set_sink(take_warning, &logged, CORE_LOG_WARNING);
    core_error_clear();
    for (int i = 0; i < 3; i++)
        same_call(reads_a_number, &eager, compiled, &traced);
    ck_assert_int_eq(core_error_code(), CORE_OK);
    ck_assert_int_eq(logged.count, 1);
    ck_assert_ptr_nonnull(strstr(logged.last, "core_tensor_item: "));
    core_log_set_sink(NULL, NULL, 0);
    after = compile_counts();
    ck_assert_uint_eq(after.traces - before.traces, 1);
    ck_assert_uint_eq(after.break_calls - before.break_calls, 3);
    EXPLAINS(compiled, "\"operator\": \"core_tensor_item\"");
    EXPLAINS(compiled, "\"count\": 3");
    core_compiled_release(compiled);
}
END_TEST

/* From the second call on it fails without a message. */
COMPILED_FUNCTION(fails_silently)
{
    core_scalar number;

    *noutputs = 1;
    CORE_TRY(core_tensor_item(w->hidden[0], &number));
    return w->nhidden > 1 ? CORE_ERROR_IO
                          : core_mul_scalar(x[0], number, &out[0]);
}

START_TEST(an_error_without_a_message_gets_one)
{
    world w = with_number();
    core_compiled *compiled = compile(fails_silently, &w, 0);
    core_tensor *out;

    OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
    core_tensor_release(out);
    w.nhidden = 2;
    core_error_clear();
    FAILS(core_compiled_call(compiled, w.inputs, 2, &out, 1), CORE_ERROR_IO,
          "without a message");
    w.nhidden = 1;
    core_error_clear();
    core_compiled_release(compiled);
}
END_TEST

START_TEST(with_fullgraph_a_break_is_an_error)
{
    world w = with_number(), fresh = with_number();
    core_compiled *compiled =
        compile(reads_a_number, &w, CORE_COMPILE_FULLGRAPH);
    core_tensor *out[1];

    for (int i = 0; i < 2; i++)
        FAILS(core_compiled_call(compiled, w.inputs, 2, out, 1),
              CORE_ERROR_UNSUPPORTED, "FULLGRAPH", "core_tensor_item: ");
    same_worlds(&fresh, NULL, &w, NULL, 0);
    core_compiled_release(compiled);
}
END_TEST

/* Data, two constants of each program. */
static float host_data[3] = {1, 2, 3};

COMPILED_FUNCTION(adds_data)
{
    core_tensor *data[2] = {NULL};

    *noutputs = 1;
    for (int i = 0; i < 2; i++)
        CORE_TRY(core_tensor_from_data(host_data + i, CORE_F32, NULL, 0,
                                       w->device, &data[i]));
    CORE_TRY(core_add(x[0], data[0], core_int(1), &out[0]));
    CORE_TRY(core_mul_(out[0], data[1]));
    core_tensor_release(data[0]);
    core_tensor_release(data[1]);
    return CORE_OK;
}

START_TEST(data_of_the_host_are_constants_of_a_program)
{
    world eager = two_inputs(), traced = two_inputs();
    core_compiled *compiled =
        compile(adds_data, &traced, CORE_COMPILE_FULLGRAPH);
    core_compile_counts before = compile_counts();
    core_tensor *out[1];

    for (int i = 0; i < 4; i++)
        same_call(adds_data, &eager, compiled, &traced);
    ck_assert_uint_eq(compile_counts().traces - before.traces, 1);
    OK(core_setting_set("LIBCORE_COMPILE_CHECK", "1"));
    same_call(adds_data, &eager, compiled, &traced);
    host_data[1] = 5;
    FAILS(core_compiled_call(compiled, traced.inputs, 2, out, 1),
          CORE_ERROR_INTERNAL, "LIBCORE_COMPILE_CHECK");
    host_data[1] = 2;
    OK(core_setting_set("LIBCORE_COMPILE_CHECK", NULL));
    core_compiled_release(compiled);
}
END_TEST

static void seed_all(world *w)
{
    (void)w;
    core_seed(5);
}

static void seed_one(world *w)
{
    core_generator_seed(w->generator, 6);
}

static void set_one(world *w)
{
    core_generator_set_state(w->generator, 7, 8);
}

static void create_one(world *w)
{
    core_generator_release(w->generator);
    OK(core_generator_create(9, &w->generator));
}

/* Draws as much as has been drawn, which is a constant for the program. */
static void read_one(world *w)
{
    uint64_t offset;
    core_tensor *out;

    core_generator_state(w->generator, NULL, &offset);
    for (uint64_t i = 0; i < offset % 3; i++) {
        OK(core_rand((int64_t[]){3}, 1, w->generator, CORE_F32, w->device,
                     &out));
        core_tensor_release(out);
    }
}

/* A mode of the function's that reads a generator in each call. */
static core_status read_in_mode(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    uint64_t seed;

    core_generator_state(call->user, &seed, NULL);
    return core_redispatch_below(call, args, nargs, results, nresults);
}

static void read_one_in_a_mode(world *w)
{
    core_mode *mode;
    core_tensor *out;

    OK(core_mode_push(CORE_MODE_API, read_in_mode, w->generator, &mode));
    OK(core_rand((int64_t[]){3}, 1, w->generator, CORE_F32, w->device, &out));
    core_tensor_release(out);
    OK(core_mode_pop(mode));
}

static void (*seed_world)(world *w);

COMPILED_FUNCTION(seeds_and_draws)
{
    *noutputs = 2;
    seed_world(w);
    CORE_TRY(core_rand_like(x[0], CORE_DTYPE_NONE, NULL, -1, &out[0]));
    return core_rand((int64_t[]){3}, 1, w->generator, CORE_F32, w->device,
                     &out[1]);
}

START_TEST(what_reads_or_changes_a_generator_is_a_break)
{
    static const struct {
        void (*seed)(world *w);
        const char *name;
    } cases[] = {{seed_all, "core_seed"},
                 {seed_one, "core_generator_seed"},
                 {set_one, "core_generator_set_state"},
                 {create_one, "core_generator_create"},
                 {read_one, "core_generator_state"},
                 {read_one_in_a_mode, "core_generator_state"}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        world eager = two_inputs(), traced = two_inputs();
        core_compiled *compiled, *full;
        core_tensor *out[2];
        char text[80];

        seed_world = cases[i].seed;
        OK(core_generator_create(4, &eager.generator));
        OK(core_generator_create(4, &traced.generator));
        compiled = compile(seeds_and_draws, &traced, 0);
        full = compile(seeds_and_draws, &traced, CORE_COMPILE_FULLGRAPH);
        for (int k = 0; k < 3; k++)
            same_call(seeds_and_draws, &eager, compiled, &traced);
        snprintf(text, sizeof text, "\"operator\": \"%s\"", cases[i].name);
        EXPLAINS(compiled, text);
        FAILS(core_compiled_call(full, traced.inputs, 2, out, 2),
              CORE_ERROR_UNSUPPORTED, "FULLGRAPH", cases[i].name);
        core_compiled_release(compiled);
        core_compiled_release(full);
        core_generator_release(eager.generator);
        core_generator_release(traced.generator);
    }
}
END_TEST

COMPILED_FUNCTION(hides_an_error)
{
    core_scalar number = core_int(1);

    *noutputs = 1;
    if (core_tensor_item(w->hidden[0], &number) != CORE_OK)
        number = core_int(2);
    return core_mul_scalar(x[0], number, &out[0]);
}

START_TEST(an_error_that_the_function_ignores_is_a_break)
{
    world eager = with_number(), traced = with_number();
    core_compiled *compiled = compile(hides_an_error, &traced, 0);

    same_call(hides_an_error, &eager, compiled, &traced);
    same_call(hides_an_error, &eager, compiled, &traced);
    EXPLAINS(compiled, "the function continues after this error");
    core_compiled_release(compiled);
}
END_TEST

COMPILED_FUNCTION(fails_in_the_middle)
{
    core_tensor *product = NULL;

    *noutputs = 1;
    CORE_TRY(core_add_(x[1], x[0], core_int(1)));
    if (w->seed)
        CORE_TRY(core_mm(x[0], x[1], &product)); /* sizes do not match */
    return core_add(x[0], x[1], core_int(1), &out[0]);
}

START_TEST(an_error_of_the_function_is_returned)
{
    world eager = two_inputs(), traced = two_inputs();
    core_compiled *compiled = compile(fails_in_the_middle, &traced, 0);
    core_compile_counts before;
    core_tensor *out[1];
    size_t count = 1;

    eager.seed = traced.seed = 1;
    FAILS(fails_in_the_middle(&eager, eager.inputs, 2, out, &count),
          CORE_ERROR_SHAPE, "mm");
    FAILS(core_compiled_call(compiled, traced.inputs, 2, out, 1),
          CORE_ERROR_SHAPE, "mm");
    ck_assert_ptr_null(out[0]);
    same_worlds(&eager, NULL, &traced, NULL, 0);
    eager.seed = traced.seed = 0;
    before = compile_counts();
    same_call(fails_in_the_middle, &eager, compiled, &traced);
    ck_assert_uint_eq(compile_counts().compiled_calls,
                      before.compiled_calls + 1);
    core_compiled_release(compiled);
}
END_TEST

static core_status pass_on(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    ++*(int *)call->user;
    return core_redispatch_below(call, args, nargs, results, nresults);
}

START_TEST(a_mode_sees_the_calls_of_the_function)
{
    world eager = two_inputs(), traced = two_inputs();
    core_compiled *compiled = compile(arithmetic, &traced, 0);
    core_mode *mode;
    warnings logged = {0};
    int seen = 0;

    core_log_set_sink(take_warning, &logged, CORE_LOG_WARNING);
    same_call(arithmetic, &eager, compiled, &traced);
    for (uint32_t level = CORE_MODE_API; level <= CORE_MODE_BELOW_AUTOGRAD;
         level++) {
        OK(core_mode_push(level, pass_on, &seen, &mode));
        seen = 0;
        same_call(arithmetic, &eager, compiled, &traced);
        OK(core_mode_pop(mode));
        ck_assert_int_ge(seen, 2 * 4);
    }
    core_log_set_sink(NULL, NULL, 0);
    EXPLAINS(compiled, "a mode is active");
    ck_assert_int_eq(logged.count, 1);
    ck_assert_ptr_nonnull(strstr(logged.last, "a mode is active"));
    core_compiled_release(compiled);
}
END_TEST

static core_status count_hook(void *context, core_tensor *grad,
                              core_tensor **out_grad)
{
    (void)grad;
    ++*(int *)context;
    *out_grad = NULL;
    return CORE_OK;
}

COMPILED_FUNCTION(gradient)
{
    core_tensor *y = NULL, *loss = NULL;
    core_status status = core_mul(x[0], x[0], &y);

    if (status == CORE_OK)
        status = core_sum(y, CORE_DTYPE_NONE, &loss);
    if (status == CORE_OK)
        status = core_grad(&loss, 1, NULL, &x[0], 1, 0, out);
    core_tensor_release(y);
    core_tensor_release(loss);
    *noutputs = 1;
    return status;
}

/* The backward in the function calls them. */
START_TEST(hooks_of_an_input_run_at_each_call)
{
    world eager = two_inputs(), traced = two_inputs();
    core_compiled *compiled = compile(gradient, &traced, 0);
    core_hook *hooks[2];
    int runs = 0;

    leaf(eager.inputs[0]);
    leaf(traced.inputs[0]);
    same_call(gradient, &eager, compiled, &traced);
    EXPLAINS(compiled, "\"compiled_calls\": 1");
    OK(core_tensor_register_hook(eager.inputs[0], count_hook, &runs, NULL,
                                 &hooks[0]));
    OK(core_tensor_register_hook(traced.inputs[0], count_hook, &runs, NULL,
                                 &hooks[1]));
    same_call(gradient, &eager, compiled, &traced);
    same_call(gradient, &eager, compiled, &traced);
    ck_assert_int_eq(runs, 4);
    EXPLAINS(compiled, "an input has hooks");
    core_hook_remove(hooks[0]);
    core_hook_remove(hooks[1]);
    core_compiled_release(compiled);
}
END_TEST

/* The gradient of a weight, in one call with an input. */
COMPILED_FUNCTION(gradient_of_weight)
{
    core_tensor *y = NULL, *loss = NULL;
    core_status status = core_mul(x[0], w->hidden[0], &y);

    if (status == CORE_OK)
        status = core_sum(y, CORE_DTYPE_NONE, &loss);
    if (status == CORE_OK)
        status = core_grad(&loss, 1, NULL, w->hidden, 1, 0, out);
    core_tensor_release(y);
    core_tensor_release(loss);
    *noutputs = 1;
    return status;
}

COMPILED_FUNCTION(accumulates_to_weight)
{
    core_tensor *y = NULL, *loss = NULL;
    core_status status = core_mul(x[0], w->hidden[0], &y);

    if (status == CORE_OK)
        status = core_sum(y, CORE_DTYPE_NONE, &loss);
    if (status == CORE_OK)
        status = core_backward(&loss, 1, NULL, 0);
    if (status == CORE_OK)
        status = core_detach(loss, &out[0]);
    core_tensor_release(y);
    core_tensor_release(loss);
    *noutputs = 1;
    return status;
}

static world with_weight(void)
{
    world w = two_inputs();

    w.nhidden = 1;
    w.hidden[0] = leaf(w.inputs[1]);
    OK(core_tensor_set_grad(w.hidden[0], NUMBERS(&w, 90, 3, 4)));
    w.ninputs = 1;
    return w;
}

static core_status count_accumulated(void *context, core_tensor *leaf)
{
    (void)leaf;
    ++*(int *)context;
    return CORE_OK;
}

/* Wherever they are registered first: before the recording, or after it. */
START_TEST(hooks_of_a_weight_run_at_each_call)
{
    const core_tensor_function functions[] = {gradient_of_weight,
                                              accumulates_to_weight};

    for (int i = 0; i < 4; i++) {
        world eager = with_weight(), traced = with_weight();
        core_tensor_function function = functions[i / 2];
        core_compiled *compiled = compile(function, &traced, 0);
        core_hook *hooks[2];
        int runs = 0, before = i % 2;
        char text[40];

        for (int k = 0; k < 2 * before; k++)
            same_call(function, &eager, compiled, &traced);
        for (int k = 0; k < 2; k++) {
            core_tensor *weight = (k ? &traced : &eager)->hidden[0];

            if (i < 2)
                OK(core_tensor_register_hook(weight, count_hook, &runs, NULL,
                                             &hooks[k]));
            else
                OK(core_tensor_register_accumulate_hook(
                    weight, count_accumulated, &runs, NULL, &hooks[k]));
        }
        for (int k = 0; k < 3; k++)
            same_call(function, &eager, compiled, &traced);
        ck_assert_int_eq(runs, 6);
        EXPLAINS(compiled, "a tensor that is not an input has hooks");
        core_hook_remove(hooks[0]);
        core_hook_remove(hooks[1]);
        same_call(function, &eager, compiled, &traced);
        ck_assert_int_eq(runs, 6);
        same_call(function, &eager, compiled, &traced);
        /* It is recorded again. */
        snprintf(text, sizeof text, "\"compiled_calls\": %d", 2 * before + 2);
        EXPLAINS(compiled, text);
        core_compiled_release(compiled);
    }
}
END_TEST

/* --------------------------------------------------------------- limits -- */

static void resize_world(world *w, int64_t rows)
{
    w->inputs[0] = NUMBERS(w, 1, rows, 4);
    w->inputs[1] = NUMBERS(w, 50, rows, 4);
}

START_TEST(beyond_the_limit_the_function_runs_as_it_is)
{
    world eager = two_inputs(), traced = two_inputs();
    core_compile_options options = {.struct_size = sizeof options,
                                    .dynamic = CORE_COMPILE_DYNAMIC_NEVER};
    core_compile_counts before = compile_counts(), after;
    core_compiled *compiled;
    warnings logged = {0};

    OK(core_compile(arithmetic, &traced, &options, &compiled));
    core_log_set_sink(take_warning, &logged, CORE_LOG_WARNING);
    for (int round = 0; round < 2; round++)
        for (int64_t rows = 1; rows <= CORE_COMPILE_LIMIT + 2; rows++) {
            resize_world(&eager, rows);
            resize_world(&traced, rows);
            same_call(arithmetic, &eager, compiled, &traced);
        }
    after = compile_counts();
    ck_assert_uint_eq(after.programs - before.programs, CORE_COMPILE_LIMIT);
    ck_assert_uint_eq(after.traces - before.traces, CORE_COMPILE_LIMIT);
    ck_assert_uint_eq(after.limit_calls - before.limit_calls, 2 * 2);
    core_log_set_sink(NULL, NULL, 0);
    ck_assert_int_eq(logged.count, 1);
    ck_assert_ptr_nonnull(strstr(logged.last, "8 programs"));
    EXPLAINS(compiled, "\"limit_calls\": 4");
    EXPLAINS(compiled, "input 0: the sizes changed");
    core_compiled_release(compiled);
}
END_TEST

COMPILED_FUNCTION(breaks_in_grad_mode)
{
    core_scalar number;

    if (core_grad_mode())
        CORE_TRY(core_tensor_item(w->hidden[0], &number));
    return arithmetic_body(w, x, out, noutputs);
}

/* Two sizes show that a break does not depend on them, so it takes the place of
 * two programs only. */
START_TEST(breaks_of_many_sizes_leave_room_for_programs)
{
    world eager = with_number(), traced = with_number();
    core_compile_counts before = compile_counts(), after;
    core_compiled *compiled;
    bool grad;

    OK(core_compile(breaks_in_grad_mode, &traced, NULL, &compiled));
    for (int64_t rows = 2; rows < 2 * CORE_COMPILE_LIMIT; rows++) {
        resize_world(&eager, rows);
        resize_world(&traced, rows);
        same_call(breaks_in_grad_mode, &eager, compiled, &traced);
    }
    grad = core_grad_mode_set(false);
    for (int round = 0; round < 2; round++)
        same_call(breaks_in_grad_mode, &eager, compiled, &traced);
    core_grad_mode_set(grad);
    after = compile_counts();
    ck_assert_uint_eq(after.traces - before.traces, 2 + 1);
    ck_assert_uint_eq(after.break_calls - before.break_calls,
                      2 * CORE_COMPILE_LIMIT - 2);
    ck_assert_uint_eq(after.compiled_calls - before.compiled_calls, 2);
    ck_assert_uint_eq(after.limit_calls, before.limit_calls);
    core_compiled_release(compiled);
}
END_TEST

static bool breaks_now;

COMPILED_FUNCTION(breaks_for_now)
{
    core_scalar number;

    if (breaks_now)
        CORE_TRY(core_tensor_item(w->hidden[0], &number));
    return arithmetic_body(w, x, out, noutputs);
}

/* A break that was expected for all sizes is found to be over. */
START_TEST(breaks_of_many_sizes_may_end)
{
    world eager = with_number(), traced = with_number();
    core_compile_counts before, after;
    core_compiled *compiled;

    breaks_now = true;
    OK(core_compile(breaks_for_now, &traced, NULL, &compiled));
    for (int i = 0; i < 240; i++) {
        int64_t rows = i < 3 ? 2 + i : 5 + i * 89 % 237;

        if (i == 3) {
            breaks_now = false;
            before = compile_counts();
        }
        resize_world(&eager, rows);
        resize_world(&traced, rows);
        same_call(breaks_for_now, &eager, compiled, &traced);
    }
    after = compile_counts();
    ck_assert_uint_ge(after.traces - before.traces, 2);
    ck_assert_uint_le(after.traces - before.traces, 40);
    ck_assert_uint_gt(after.compiled_calls - before.compiled_calls, 100);
    core_compiled_release(compiled);
}
END_TEST

/* Without room nothing is recorded, so nothing is beyond the limit. */
START_TEST(breaks_of_many_sizes_keep_to_the_limit)
{
    world eager = with_number(), traced = with_number();
    core_compile_options options = {.struct_size = sizeof options,
                                    .flags = CORE_COMPILE_LIMIT_ERROR,
                                    .limit = 2};
    core_compile_counts before = compile_counts(), after;
    core_compiled *compiled;

    breaks_now = true;
    OK(core_compile(breaks_for_now, &traced, &options, &compiled));
    for (int64_t rows = 2; rows < 200; rows++) {
        resize_world(&eager, rows);
        resize_world(&traced, rows);
        same_call(breaks_for_now, &eager, compiled, &traced);
    }
    after = compile_counts();
    ck_assert_uint_eq(after.traces - before.traces, 2);
    ck_assert_uint_eq(after.limit_calls, before.limit_calls);
    core_compiled_release(compiled);
}
END_TEST

/* Programs that were made from those of other sizes make room for a break. */
START_TEST(programs_of_many_sizes_leave_room_for_a_break)
{
    world eager = with_number(), traced = with_number();
    core_compile_counts before, after;
    core_compiled *compiled;
    bool grad = core_grad_mode_set(false);

    OK(core_compile(breaks_in_grad_mode, &traced, NULL, &compiled));
    for (int64_t rows = 2; rows < 2 * CORE_COMPILE_LIMIT; rows++) {
        resize_world(&eager, rows);
        resize_world(&traced, rows);
        same_call(breaks_in_grad_mode, &eager, compiled, &traced);
    }
    core_grad_mode_set(grad);
    before = compile_counts();
    for (int round = 0; round < 3; round++)
        same_call(breaks_in_grad_mode, &eager, compiled, &traced);
    after = compile_counts();
    ck_assert_uint_eq(after.traces - before.traces, 1);
    ck_assert_uint_eq(after.break_calls - before.break_calls, 3);
    core_compiled_release(compiled);
}
END_TEST

START_TEST(beyond_the_limit_a_call_fails_if_that_is_requested)
{
    world w = two_inputs();
    core_compile_options options = {.struct_size = sizeof options,
                                    .flags = CORE_COMPILE_LIMIT_ERROR,
                                    .limit = 1};
    core_compiled *compiled;
    core_tensor *out[2];

    OK(core_compile(arithmetic, &w, &options, &compiled));
    OK(core_compiled_call(compiled, w.inputs, 2, out, 2));
    core_tensor_release(out[0]);
    core_tensor_release(out[1]);
    resize_world(&w, 5);
    FAILS(core_compiled_call(compiled, w.inputs, 2, out, 2), CORE_ERROR_REFUSED,
          "limit");
    ck_assert_ptr_null(out[0]);
    core_compiled_release(compiled);
}
END_TEST

/* ---------------------------------------------------------------- check -- */

COMPILED_FUNCTION(reads_a_seed)
{
    *noutputs = 1;
    return core_mul_scalar(x[0], core_int((int64_t)w->seed), &out[0]);
}

START_TEST(a_check_finds_what_is_not_in_the_key)
{
    world w = two_inputs();
    core_compiled *compiled = compile(reads_a_seed, &w, 0);
    core_tensor *out[1];

    OK(core_setting_set("LIBCORE_COMPILE_CHECK", "2"));
    for (int i = 0; i < 3; i++) {
        OK(core_compiled_call(compiled, w.inputs, 2, out, 1));
        core_tensor_release(out[0]);
    }
    w.seed++;
    FAILS(core_compiled_call(compiled, w.inputs, 2, out, 1),
          CORE_ERROR_INTERNAL, "LIBCORE_COMPILE_CHECK",
          "operator 0, mul.Scalar, has other arguments");
    OK(core_setting_set("LIBCORE_COMPILE_CHECK", NULL));
    EXPLAINS(compiled, "\"checks\": 2");
    EXPLAINS(compiled, "\"calls\": 4");
    core_compiled_release(compiled);
}
END_TEST

/* -------------------------------------------------------------- nesting -- */

static core_compiled *inner;

COMPILED_FUNCTION(calls_another)
{
    core_tensor *y[2] = {NULL};
    core_status status = core_compiled_call(inner, x, 2, y, 2);

    if (status == CORE_OK)
        status = core_add(y[0], y[1], core_int(1), &out[0]);
    core_tensor_release(y[0]);
    core_tensor_release(y[1]);
    *noutputs = 1;
    return status;
}

START_TEST(a_compiled_function_becomes_a_part_of_one_that_calls_it)
{
    world eager = two_inputs(), traced = two_inputs();
    core_compiled *compiled = compile(calls_another, &traced, 0);
    core_program *program;
    core_program_counts counts = {.struct_size = sizeof counts};

    inner = compile(arithmetic, &traced, 0);
    same_call(calls_another, &eager, compiled, &traced);
    same_call(calls_another, &eager, compiled, &traced);
    EXPLAINS(compiled, "\"operators\": 5");
    EXPLAINS(inner, "\"inlined_calls\": 1");
    OK(core_program_trace(calls_another, &traced, traced.inputs, 2, 1,
                          &program));
    OK(core_program_get_counts(program, &counts));
    ck_assert_uint_eq(counts.nodes, 5);
    core_program_release(program);
    core_compiled_release(inner);
    core_compiled_release(compiled);
}
END_TEST

/* Calls itself w->seed times. */
COMPILED_FUNCTION(calls_itself)
{
    core_tensor *y = NULL;
    core_scalar number;
    core_status status;

    *noutputs = 1;
    if (w->seed == 0)
        return core_add(x[0], x[1], core_int(1), &out[0]);
    w->seed--;
    CORE_TRY(core_tensor_item(w->hidden[0], &number));
    CORE_TRY(core_compiled_call(inner, x, 2, &y, 1));
    status = core_mul(y, x[0], &out[0]);
    core_tensor_release(y);
    return status;
}

START_TEST(a_function_may_call_itself)
{
    world w = with_number();
    core_tensor *out[1];

    w.seed = 5;
    inner = compile(calls_itself, &w, 0);
    OK(core_compiled_call(inner, w.inputs, 2, out, 1));
    ck_assert_uint_eq(w.seed, 0);
    core_tensor_release(out[0]);
    core_compiled_release(inner);
}
END_TEST

/* w->seed: how often; UINT64_MAX: without end. */
COMPILED_FUNCTION(nests)
{
    *noutputs = 1;
    if (w->seed == 0)
        return core_add(x[0], x[1], core_int(1), &out[0]);
    w->seed -= w->seed != UINT64_MAX;
    return core_compiled_call(inner, x, 2, out, 1);
}

COMPILED_FUNCTION(records_itself)
{
    core_program *program;

    *noutputs = 1;
    CORE_TRY(core_program_trace(records_itself, w, x, 2, 1, &program));
    core_program_release(program);
    return core_add(x[0], x[1], core_int(1), &out[0]);
}

/* The state of the next call is what this one computes. */
COMPILED_FUNCTION(replaces_its_state)
{
    core_tensor *next = NULL;
    core_status status = core_add(w->hidden[0], x[0], core_int(1), &next);

    *noutputs = 1;
    if (status != CORE_OK)
        return status;
    core_tensor_release(w->hidden[0]);
    w->hidden[0] = next;
    out[0] = core_tensor_retain(next);
    return CORE_OK;
}

START_TEST(a_function_that_replaces_its_state_fails_with_the_reason)
{
    world w = with_number();
    core_compiled *compiled = compile(replaces_its_state, &w, 0);
    core_tensor *out[1];

    core_tensor_retain(w.hidden[0]);
    FAILS(core_compiled_call(compiled, w.inputs, 2, out, 1),
          CORE_ERROR_UNSUPPORTED, "keeps tensors of the program");
    core_tensor_release(w.hidden[0]);
    core_compiled_release(compiled);
}
END_TEST

START_TEST(functions_that_nest_without_end_are_refused)
{
    world w = with_number();
    core_program *program;
    core_tensor *out[1];

    inner = compile(nests, &w, 0);
    w.seed = UINT64_MAX;
    FAILS(core_compiled_call(inner, w.inputs, 2, out, 1), CORE_ERROR_REFUSED);
    ck_assert_ptr_nonnull(strstr(core_error_message(), "256 deep"));
    FAILS(core_program_trace(records_itself, &w, w.inputs, 2, 1, &program),
          CORE_ERROR_REFUSED);
    w.seed = 100;
    OK(core_compiled_call(inner, w.inputs, 2, out, 1));
    ck_assert_uint_eq(w.seed, 0);
    core_tensor_release(out[0]);
    core_compiled_release(inner);
}
END_TEST

COMPILED_FUNCTION(releases_itself)
{
    core_compiled_release(inner);
    inner = NULL;
    *noutputs = 1;
    return core_add(x[0], x[1], core_int(1), &out[0]);
}

START_TEST(a_function_may_be_released_during_a_call)
{
    world w = two_inputs();
    core_tensor *out[1];

    inner = compile(releases_itself, &w, 0);
    OK(core_compiled_call(inner, w.inputs, 2, out, 1));
    ck_assert_ptr_null(inner);
    core_tensor_release(out[0]);
}
END_TEST

/* -------------------------------------------------------------- threads -- */

enum { THREADS = 4, THREAD_CALLS = 20 };

COMPILED_FUNCTION(polynomial)
{
    core_tensor *y = NULL;
    core_status status = core_mul(x[0], x[0], &y);

    if (status == CORE_OK)
        status = core_add(y, w->inputs[1], core_int(3), &out[0]);
    core_tensor_release(y);
    *noutputs = 1;
    return status;
}

static void *call_often(void *context)
{
    world *w = context;

    for (int i = 0; i < THREAD_CALLS; i++) {
        core_tensor *given, *a[1], *b[1];
        size_t count = 1;

        OK(core_full((int64_t[]){1 + i % 4, 4}, 2, core_float(i), CORE_F32,
                     w->device, &given));
        OK(core_compiled_call(inner, &given, 1, a, 1));
        OK(polynomial(w, &given, 1, b, &count));
        same_bits("output", 0, b[0], a[0]);
        core_tensor_release(a[0]);
        core_tensor_release(b[0]);
        core_tensor_release(given);
    }
    return NULL;
}

START_TEST(threads_may_call_a_function_at_once)
{
    world w = two_inputs();
    core_compile_counts before = compile_counts(), after;
    pthread_t threads[THREADS];

    w.inputs[1] = NUMBERS(&w, 50, 4);
    inner = compile(polynomial, &w, 0);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, call_often, &w), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    after = compile_counts();
    ck_assert_uint_eq(after.programs - before.programs, 4);
    ck_assert_uint_eq(after.compiled_calls - before.compiled_calls,
                      THREADS * THREAD_CALLS);
    core_compiled_release(inner);
}
END_TEST

START_TEST(a_child_process_calls_and_records)
{
    world w = two_inputs();
    core_tensor *out[2];
    int result;
    pid_t child;

    if (strcmp(core_device_type(program_device), "cpu") != 0)
        return;
    inner = compile(arithmetic, &w, 0);
    OK(core_compiled_call(inner, w.inputs, 2, out, 2));
    core_tensor_release(out[0]);
    core_tensor_release(out[1]);
    child = fork();
    if (child == 0) {
        if (core_compiled_call(inner, w.inputs, 2, out, 2) != CORE_OK)
            _exit(1);
        resize_world(&w, 7);
        _exit(core_compiled_call(inner, w.inputs, 2, out, 2) != CORE_OK);
    }
    ck_assert_int_eq(waitpid(child, &result, 0), child);
    ck_assert_int_eq(result, 0);
    core_compiled_release(inner);
}
END_TEST

/* A detached input and hidden input; a result, itself detached, and a view of
 * it. */
COMPILED_FUNCTION(detaches)
{
    core_status status = core_detach(x[0], &out[0]);

    *noutputs = 5;
    if (status == CORE_OK)
        status = core_detach(w->hidden[0], &out[1]);
    if (status == CORE_OK)
        status = core_mul(x[0], x[0], &out[2]);
    if (status == CORE_OK)
        status = core_detach(out[2], &out[3]);
    return status == CORE_OK ? core_transpose(out[2], 0, 1, &out[4]) : status;
}

START_TEST(detached_results_have_no_base)
{
    for (int grad = 0; grad < 2; grad++) {
        world w = {.device = program_device, .ninputs = 1, .nhidden = 1};
        core_compile_options options = {.struct_size = sizeof options,
                                        .flags = CORE_COMPILE_FULLGRAPH};
        core_compiled *compiled;

        w.inputs[0] = NUMBERS(&w, 1, 3, 4);
        w.hidden[0] = NUMBERS(&w, 40, 2);
        OK(core_tensor_set_requires_grad(w.inputs[0], grad));
        OK(core_compile(detaches, &w, &options, &compiled));
        for (int call = 0; call < 3; call++) {
            core_tensor *out[5];

            OK(core_compiled_call(compiled, w.inputs, 1, out, 5));
            for (int i = 0; i < 4; i++)
                ck_assert_msg(!core_tensor_base(out[i]), "result %d of call %d",
                              i, call);
            ck_assert_ptr_eq(core_tensor_base(out[4]), out[2]);
            ck_assert_ptr_eq(out[3]->storage, out[2]->storage);
            ck_assert(!core_tensor_requires_grad(out[0]));
            ck_assert(!core_tensor_requires_grad(out[3]));
            OK(core_mul_scalar_(out[0], core_float(2)));
            OK(core_mul_scalar_(out[1], core_float(2)));
            OK(core_mul_scalar_(out[3], core_float(2)));
            for (int i = 0; i < 5; i++)
                core_tensor_release(out[i]);
        }
        core_compiled_release(compiled);
    }
}
END_TEST

SUITE_ON_CPU_AND_SIM(
    "compile/compiled", detached_results_have_no_base,
    a_function_is_recorded_at_its_first_call, arguments_are_checked,
    too_many_outputs_are_refused_and_released, invalid_options_are_refused,
    a_function_that_cannot_be_recorded_runs_as_it_is,
    an_error_without_a_message_gets_one, with_fullgraph_a_break_is_an_error,
    what_reads_or_changes_a_generator_is_a_break,
    data_of_the_host_are_constants_of_a_program,
    an_error_that_the_function_ignores_is_a_break,
    an_error_of_the_function_is_returned, a_mode_sees_the_calls_of_the_function,
    hooks_of_an_input_run_at_each_call, hooks_of_a_weight_run_at_each_call,
    beyond_the_limit_the_function_runs_as_it_is,
    beyond_the_limit_a_call_fails_if_that_is_requested,
    breaks_of_many_sizes_leave_room_for_programs, breaks_of_many_sizes_may_end,
    breaks_of_many_sizes_keep_to_the_limit,
    programs_of_many_sizes_leave_room_for_a_break,
    a_check_finds_what_is_not_in_the_key,
    a_compiled_function_becomes_a_part_of_one_that_calls_it,
    a_function_may_call_itself, functions_that_nest_without_end_are_refused,
    a_function_that_replaces_its_state_fails_with_the_reason,
    a_function_may_be_released_during_a_call,
    threads_may_call_a_function_at_once, a_child_process_calls_and_records)
