/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The facts that programs of compiled functions depend on. */

#include "support/compiled.h"

#include <libcore/autocast.h>
#include <libcore/device.h>
#include <libcore/mode.h>
#include <libcore/settings.h>

static world two_inputs(void)
{
    world w = {.device = program_device, .ninputs = 2};

    w.inputs[0] = NUMBERS(&w, 1, 4, 4);
    w.inputs[1] = NUMBERS(&w, 50, 4, 4);
    return w;
}

/* --------------------------------------------------------------- inputs -- */

COMPILED_FUNCTION(products)
{
    core_tensor *y = NULL;
    core_status status = core_mm(x[0], x[1], &y);

    if (status == CORE_OK)
        status = core_add_(x[1], y, core_int(1));
    if (status == CORE_OK)
        status = core_detach(y, &out[0]);
    core_tensor_release(y);
    *noutputs = 1;
    return status;
}

static core_tensor *part(core_tensor *of, int64_t dim, int64_t first,
                         int64_t count)
{
    core_tensor *view;

    OK(core_narrow(of, dim, first, count, &view));
    return keep(view);
}

static void same_tensor(world *w)
{
    w->inputs[1] = w->inputs[0];
}

static void other_sizes(world *w)
{
    w->inputs[0] = NUMBERS(w, 3, 5, 5);
    w->inputs[1] = NUMBERS(w, 7, 5, 5);
}

static void with_gaps(world *w)
{
    w->inputs[0] = NUMBERS(w, 3, 4, 5);
    w->inputs[1] = NUMBERS(w, 3, 5, 5);
    w->inputs[0] = part(w->inputs[0], 1, 0, 4);
    w->inputs[1] = part(w->inputs[1], 0, 1, 4);
    w->inputs[1] = part(w->inputs[1], 1, 0, 4);
}

static void other_strides(world *w)
{
    core_tensor *turned;

    OK(core_t(w->inputs[0], &turned));
    w->inputs[0] = keep(turned);
}

static void other_dtype(world *w)
{
    for (int i = 0; i < 2; i++) {
        core_tensor *wide;

        OK(core_to_copy(w->inputs[i], CORE_F64, NULL, false, -1, &wide));
        w->inputs[i] = keep(wide);
    }
}

static void unaligned(world *w)
{
    core_tensor *row = NUMBERS(w, 7, 17), *view;
    int64_t sizes[] = {4, 4};

    row = part(row, 0, 1, 16);
    OK(core_reshape(row, sizes, 2, &view));
    w->inputs[0] = keep(view);
}

static void one_view_of_the_other(world *w)
{
    core_tensor *base = NUMBERS(w, 9, 4, 4), *alias;

    OK(core_detach(base, &alias));
    w->inputs[0] = base;
    w->inputs[1] = keep(alias);
}

static void requires_grad(world *w)
{
    leaf(w->inputs[0]);
}

static void has_a_gradient(world *w)
{
    leaf(w->inputs[0]);
    OK(core_tensor_set_grad(w->inputs[0], NUMBERS(w, 4, 4, 4)));
}

typedef struct input_change {
    void (*change)(world *w);
    const char *fact;
} input_change;

static const input_change input_changes[] = {
    {same_tensor, "the memory shared with other inputs"},
    {other_sizes, "the sizes"},
    {with_gaps, "the strides"},
    {other_strides, "the strides"},
    {other_dtype, "the dtype"},
    {unaligned, "the alignment"},
    {one_view_of_the_other, "the memory shared with other inputs"},
    {requires_grad, "requires_grad"},
    {has_a_gradient, "requires_grad"},
};

/* The function writes input 1, so that aliases matter; it is called in no-grad
 * mode, so that inputs that require grad do. */
START_TEST(each_fact_of_an_input_leads_to_another_program)
{
    size_t count = sizeof input_changes / sizeof *input_changes;
    bool before = core_grad_mode_set(false);

    for (size_t i = 0; i < count; i++) {
        world eager = two_inputs(), traced = two_inputs();
        core_compile_counts counts[3];
        core_compiled *compiled;

        OK(core_compile(products, NULL, NULL, &compiled));
        same_call(products, &eager, compiled, &traced);
        counts[0] = compile_counts();
        eager = two_inputs();
        traced = two_inputs();
        input_changes[i].change(&eager);
        input_changes[i].change(&traced);
        same_call(products, &eager, compiled, &traced);
        counts[1] = compile_counts();
        same_call(products, &eager, compiled, &traced);
        counts[2] = compile_counts();
        ck_assert_msg(counts[1].traces == counts[0].traces + 1, "change %zu",
                      i);
        ck_assert_msg(counts[2].traces == counts[1].traces, "change %zu", i);
        ck_assert_uint_eq(counts[2].compiled_calls,
                          counts[0].compiled_calls + 2);
        EXPLAINS(compiled, input_changes[i].fact);
        core_compiled_release(compiled);
    }
    core_grad_mode_set(before);
}
END_TEST

START_TEST(equal_facts_lead_to_one_program)
{
    world eager = two_inputs(), traced = two_inputs();
    core_compile_counts before;
    core_compiled *compiled;

    OK(core_compile(products, NULL, NULL, &compiled));
    same_call(products, &eager, compiled, &traced);
    before = compile_counts();
    eager = two_inputs();
    traced = two_inputs();
    same_call(products, &eager, compiled, &traced);
    ck_assert_uint_eq(compile_counts().traces, before.traces);
    core_compiled_release(compiled);
}
END_TEST

COMPILED_FUNCTION(sum_of_many)
{
    core_status status = core_clone(x[0], -1, &out[0]);

    for (size_t i = 1; i < 40 && status == CORE_OK; i++)
        status = core_add_(out[0], x[i], core_int(1));
    *noutputs = 1;
    return status;
}

START_TEST(many_inputs_have_one_record)
{
    core_tensor *base = NUMBERS((&(world){.device = program_device}), 3, 100),
                *inputs[40], *a[1], *b[1];
    core_compile_counts before = compile_counts();
    core_compiled *compiled;
    size_t count = 1;

    for (int64_t i = 0; i < 40; i++)
        inputs[i] = i % 3 ? NUMBERS((&(world){.device = program_device}),
                                    (uint32_t)i, 4)
                          : part(base, 0, 2 * i, 4);
    OK(core_compile(sum_of_many, NULL, NULL, &compiled));
    for (int call = 0; call < 3; call++) {
        if (call == 2)
            inputs[39] = inputs[38];
        OK(core_compiled_call(compiled, inputs, 40, b, 1));
        count = 1;
        OK(sum_of_many(NULL, inputs, 40, a, &count));
        same_bits("output", 0, a[0], b[0]);
        core_tensor_release(a[0]);
        core_tensor_release(b[0]);
    }
    ck_assert_uint_eq(compile_counts().traces, before.traces + 2);
    EXPLAINS(compiled, "input 39: the memory shared with other inputs changed");
    core_compiled_release(compiled);
}
END_TEST

/* ---------------------------------------------------------- the thread -- */

typedef struct thread_change {
    void (*begin)(void), (*end)(void);
    const char *fact;
} thread_change;

static uint64_t region, modes;

static void no_grad(void)
{
    core_grad_mode_set(false);
}

static void grad_again(void)
{
    core_grad_mode_set(true);
}

static void inference(void)
{
    modes = core_inference_begin();
}

static void inference_ends(void)
{
    core_inference_end(modes);
}

static void autocast(void)
{
    OK(core_autocast_begin(program_device, CORE_BF16, 0, &region));
}

static void autocast_ends(void)
{
    OK(core_autocast_end(region));
}

static void deterministic(void)
{
    OK(core_setting_set("LIBCORE_DETERMINISTIC", "1"));
}

static void deterministic_ends(void)
{
    OK(core_setting_set("LIBCORE_DETERMINISTIC", NULL));
}

static void tf32(void)
{
    OK(core_setting_set("LIBCORE_ALLOW_TF32", "1"));
}

static void tf32_ends(void)
{
    OK(core_setting_set("LIBCORE_ALLOW_TF32", NULL));
}

static void by_device(void)
{
    OK(core_setting_set("LIBCORE_LAYOUT", "device"));
}

static void by_device_ends(void)
{
    OK(core_setting_set("LIBCORE_LAYOUT", NULL));
}

static const thread_change thread_changes[] = {
    {no_grad, grad_again, "grad mode changed"},
    {inference, inference_ends, "inference mode changed"},
    {autocast, autocast_ends, "autocast changed"},
    {deterministic, deterministic_ends, "determinism or TF32 changed"},
    {tf32, tf32_ends, "determinism or TF32 changed"},
    {by_device, by_device_ends, "LIBCORE_LAYOUT changed"},
};

COMPILED_FUNCTION(product)
{
    *noutputs = 1;
    return core_mm(x[0], x[1], &out[0]);
}

START_TEST(each_fact_of_the_thread_leads_to_another_program)
{
    for (size_t i = 0; i < sizeof thread_changes / sizeof *thread_changes;
         i++) {
        const thread_change *change = &thread_changes[i];
        world eager = two_inputs(), traced = two_inputs();
        core_compile_counts before = compile_counts();
        core_compiled *compiled;
        core_tensor *a[1], *b[1];
        size_t count = 1;

        OK(core_compile(product, NULL, NULL, &compiled));
        same_call(product, &eager, compiled, &traced);
        change->begin();
        for (int call = 0; call < 2; call++) {
            OK(product(NULL, eager.inputs, 2, a, &count));
            OK(core_compiled_call(compiled, traced.inputs, 2, b, 1));
            keep(a[0]);
            keep(b[0]);
        }
        change->end();
        same_bits("output", 0, a[0], b[0]);
        ck_assert_msg(compile_counts().traces == before.traces + 2, "%s",
                      change->fact);
        EXPLAINS(compiled, change->fact);
        same_call(product, &eager, compiled, &traced);
        ck_assert_uint_eq(compile_counts().traces, before.traces + 2);
        core_compiled_release(compiled);
    }
}
END_TEST

START_TEST(the_current_device_is_a_fact)
{
    core_compile_counts before = compile_counts();
    core_device *cpu, *sim;
    world w = two_inputs();
    core_compiled *compiled;
    core_tensor *out[1];

    OK(core_device_find("cpu", &cpu));
    OK(core_device_find("sim", &sim));
    OK(core_compile(product, NULL, NULL, &compiled));
    for (int i = 0; i < 4; i++) {
        OK(core_device_set_current(i % 2 ? cpu : sim));
        OK(core_compiled_call(compiled, w.inputs, 2, out, 1));
        core_tensor_release(out[0]);
    }
    OK(core_device_set_current(NULL));
    ck_assert_uint_eq(compile_counts().traces, before.traces + 2);
    core_compiled_release(compiled);
}
END_TEST

static core_compiled *below;

/* Computes the call by a compiled function, below autograd. */
static core_status call_below(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    core_tensor *inputs[2] = {args[0].u.tensor, args[1].u.tensor};

    (void)call;
    (void)nargs;
    (void)nresults;
    CORE_TRY(core_compiled_call(below, inputs, 2, &results[0].u.tensor, 1));
    results[0].tag = CORE_VALUE_TENSOR;
    return CORE_OK;
}

START_TEST(a_program_from_below_autograd_does_not_serve_other_calls)
{
    world w = two_inputs();
    core_tensor *out[1];
    core_mode *mode;

    leaf(w.inputs[0]);
    OK(core_compile(product, NULL, NULL, &below));
    OK(core_mode_push(CORE_MODE_BELOW_AUTOGRAD, call_below, NULL, &mode));
    OK(core_mm(w.inputs[0], w.inputs[1], out));
    OK(core_mode_pop(mode));
    core_tensor_release(out[0]);
    EXPLAINS(below, "\"compiled_calls\": 1");
    OK(core_compiled_call(below, w.inputs, 2, out, 1));
    ck_assert(core_tensor_requires_grad(out[0]));
    core_tensor_release(out[0]);
    EXPLAINS(below, "the layers of the dispatcher");
    core_compiled_release(below);
}
END_TEST

/* -------------------------------------------------------- hidden inputs -- */

/* What a caller's struct looks like. */
typedef struct model {
    core_tensor *weight;
    int64_t factor;
} model;

static core_status apply_model(void *context, core_tensor *const *x, size_t n,
                               core_tensor **out, size_t *noutputs)
{
    const model *m = context;
    core_tensor *y = NULL;
    core_status status = core_mm(x[0], m->weight, &y);

    (void)n;
    if (status == CORE_OK)
        status = core_mul_scalar(y, core_int(m->factor), &out[0]);
    core_tensor_release(y);
    *noutputs = 1;
    return status;
}

static core_tensor *new_weight(uint32_t from)
{
    world w = {.device = program_device};
    core_tensor *weight = NUMBERS(&w, from, 4, 4);

    return core_tensor_retain(weight);
}

static void model_call(core_compiled *compiled, model *m, core_tensor *x)
{
    core_tensor *a[1], *b[1];
    size_t count = 1;

    OK(apply_model(m, &x, 1, a, &count));
    OK(core_compiled_call(compiled, &x, 1, b, 1));
    same_bits("output", 0, a[0], b[0]);
    core_tensor_release(a[0]);
    core_tensor_release(b[0]);
}

START_TEST(a_weight_that_was_replaced_and_released_is_seen)
{
    model m = {core_tensor_retain(new_weight(30)), 2};
    core_compiled *compiled, *other;
    core_compile_counts before;
    world w = two_inputs();

    core_tensor_release(m.weight);
    drop_all();
    w = two_inputs();
    OK(core_compile(apply_model, &m, NULL, &compiled));
    OK(core_compile(apply_model, &m, NULL, &other));
    model_call(compiled, &m, w.inputs[0]);
    model_call(other, &m, w.inputs[0]);
    before = compile_counts();
    for (uint32_t i = 0; i < 20; i++) {
        core_tensor_release(m.weight);
        m.weight = new_weight(31 + i);
        drop_all();
        w = two_inputs();
        model_call(compiled, &m, w.inputs[0]);
    }
    model_call(other, &m, w.inputs[0]);
    ck_assert_uint_eq(compile_counts().invalidated, before.invalidated + 21);
    ck_assert_uint_eq(compile_counts().programs, before.programs);
    EXPLAINS(compiled, "a hidden input changed");
    core_tensor_release(m.weight);
    core_compiled_release(compiled);
    core_compiled_release(other);
}
END_TEST

START_TEST(a_weight_with_other_content_or_another_layout_is_seen)
{
    world w = two_inputs();
    model m = {new_weight(30), 2};
    core_compiled *compiled;

    drop_all();
    w = two_inputs();
    OK(core_compile(apply_model, &m, NULL, &compiled));
    model_call(compiled, &m, w.inputs[0]);
    OK(core_add_(m.weight, w.inputs[1], core_int(1)));
    model_call(compiled, &m, w.inputs[0]);
    EXPLAINS(compiled, "\"traces\": 1");
    OK(core_t_(m.weight));
    model_call(compiled, &m, w.inputs[0]);
    EXPLAINS(compiled, "\"traces\": 2");
    EXPLAINS(compiled, "\"invalidated\": 1");
    core_tensor_release(m.weight);
    core_compiled_release(compiled);
}
END_TEST

/* Rows of a table, as a caller would replace them: the old view is released. */
static void set_rows(model *m, core_tensor *table, int64_t first)
{
    core_tensor *rows;

    OK(core_narrow(table, 0, first, 4, &rows));
    core_tensor_release(m->weight);
    m->weight = rows;
}

START_TEST(the_newest_program_is_the_one_before)
{
    world w = two_inputs();
    core_tensor *table = NUMBERS(&w, 30, 8, 4);
    model m = {NULL, 2};
    core_compiled *compiled;

    OK(core_compile(apply_model, &m, NULL, &compiled));
    set_rows(&m, table, 0);
    model_call(compiled, &m, w.inputs[0]);
    model_call(compiled, &m, part(w.inputs[0], 0, 0, 2));
    set_rows(&m, table, 1);
    model_call(compiled, &m, w.inputs[0]); /* instead of the first one */
    model_call(compiled, &m, leaf(w.inputs[1]));
    EXPLAINS(compiled, "input 0: requires_grad changed");
    core_tensor_release(m.weight);
    core_compiled_release(compiled);
}
END_TEST

START_TEST(a_view_that_was_replaced_and_released_is_seen)
{
    world w = two_inputs();
    core_tensor *table = NUMBERS(&w, 30, 8, 4);
    model m = {NULL, 2};
    core_compiled *compiled;

    OK(core_compile(apply_model, &m, NULL, &compiled));
    for (int64_t first = 0; first < 4; first++) {
        set_rows(&m, table, first);
        model_call(compiled, &m, w.inputs[0]);
        model_call(compiled, &m, w.inputs[0]);
    }
    EXPLAINS(compiled, "\"traces\": 4");
    core_tensor_release(m.weight);
    core_compiled_release(compiled);
}
END_TEST

START_TEST(a_view_of_an_input_that_was_replaced_and_released_is_seen)
{
    world w = two_inputs();
    core_tensor *table = NUMBERS(&w, 30, 8, 4);
    model m = {NULL, 2};
    core_compiled *compiled;

    OK(core_compile(apply_model, &m, NULL, &compiled));
    for (int64_t first = 0; first < 4; first++) {
        set_rows(&m, table, first);
        model_call(compiled, &m, part(table, 0, 0, 4));
    }
    core_tensor_release(m.weight);
    core_compiled_release(compiled);
}
END_TEST

/* Uses the weight only by views that it makes. */
COMPILED_FUNCTION(views_of_the_weight)
{
    core_tensor *plain = NULL, *turned = NULL, *y = NULL;
    core_status status = core_detach(w->hidden[0], &plain);

    if (status == CORE_OK)
        status = core_t(plain, &turned);
    if (status == CORE_OK)
        status = core_mm(x[0], turned, &y);
    if (status == CORE_OK)
        status = core_mm(y, plain, &out[0]);
    if (status == CORE_OK)
        status = core_narrow(w->hidden[0], 0, 1, 2, &out[1]);
    if (status == CORE_OK)
        out[2] = core_tensor_retain(plain);
    core_tensor_release(plain);
    core_tensor_release(turned);
    core_tensor_release(y);
    *noutputs = 3;
    return status;
}

START_TEST(views_that_the_function_makes_are_not_facts)
{
    world eager = two_inputs(), traced = two_inputs();
    core_compile_counts before = compile_counts();
    core_compiled *compiled;

    eager.hidden[0] = NUMBERS(&eager, 30, 4, 4);
    traced.hidden[0] = NUMBERS(&traced, 30, 4, 4);
    eager.nhidden = traced.nhidden = 1;
    OK(core_compile(views_of_the_weight, &traced, NULL, &compiled));
    for (int call = 0; call < 3; call++)
        same_call(views_of_the_weight, &eager, compiled, &traced);
    ck_assert_uint_eq(compile_counts().traces, before.traces + 1);
    ck_assert_uint_eq(compile_counts().invalidated, before.invalidated);
    core_compiled_release(compiled);
}
END_TEST

START_TEST(the_key_has_what_the_function_reads_itself)
{
    world w = two_inputs();
    model m = {keep(new_weight(30)), 2};
    core_compile_options options = {
        .struct_size = sizeof options, .key = &m, .key_size = sizeof m};
    core_compiled *compiled;

    OK(core_compile(apply_model, &m, &options, &compiled));
    model_call(compiled, &m, w.inputs[0]);
    m.factor = 3;
    model_call(compiled, &m, w.inputs[0]);
    EXPLAINS(compiled, "the key changed");
    m.weight = w.inputs[1];
    model_call(compiled, &m, w.inputs[0]);
    m.factor = 2;
    m.weight = w.inputs[0]; /* also an input */
    model_call(compiled, &m, w.inputs[0]);
    EXPLAINS(compiled, "\"traces\": 4");
    core_compiled_release(compiled);
}
END_TEST

START_TEST(requires_grad_of_a_weight_is_a_fact)
{
    world w = two_inputs();
    model m = {keep(new_weight(30)), 2};
    core_compiled *compiled;
    core_tensor *out[1];

    OK(core_compile(apply_model, &m, NULL, &compiled));
    for (int round = 0; round < 2; round++) {
        model_call(compiled, &m, w.inputs[0]);
        OK(core_tensor_set_requires_grad(m.weight, true));
        OK(core_compiled_call(compiled, w.inputs, 1, out, 1));
        ck_assert(core_tensor_requires_grad(out[0]));
        core_tensor_release(out[0]);
        OK(core_tensor_set_requires_grad(m.weight, false));
    }
    core_compiled_release(compiled);
}
END_TEST

/* A number that differs from call to call is an input if it is a tensor, also one
 * without dimensions. */
COMPILED_FUNCTION(scales_by_input)
{
    core_tensor *scaled = NULL;
    core_status status = core_mul(x[0], x[1], &scaled);

    if (status == CORE_OK)
        status = core_add(scaled, x[1], core_int(1), &out[0]);
    core_tensor_release(scaled);
    *noutputs = 1;
    return status;
}

START_TEST(numbers_in_tensors_are_inputs)
{
    world w = two_inputs();
    core_compiled *compiled = compile_fully(scales_by_input, &w);

    for (int call = 0; call < 5; call++) {
        core_tensor *a, *b;
        size_t one = 1;

        OK(core_full(NULL, 0, core_float(call * .25 - .5), CORE_F32,
                     program_device, &w.inputs[1]));
        OK(scales_by_input(&w, w.inputs, 2, &a, &one));
        OK(core_compiled_call(compiled, w.inputs, 2, &b, 1));
        same_bits("output", 0, a, b);
        core_tensor_release(a);
        core_tensor_release(b);
        core_tensor_release(w.inputs[1]);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    core_compiled_release(compiled);
}
END_TEST

static core_tensor *hidden_target;

COMPILED_FUNCTION(writes_hidden)
{
    CORE_TRY(core_add_(hidden_target, x[0], core_int(1)));
    *noutputs = 1;
    return core_mul(x[0], x[1], &out[0]);
}

START_TEST(an_input_that_shares_memory_with_a_written_hidden_input_is_seen)
{
    world eager = two_inputs(), traced = two_inputs();
    core_tensor *target[2] = {NUMBERS(&eager, 90, 4, 4),
                              NUMBERS(&eager, 90, 4, 4)};
    core_compiled *compiled;
    core_tensor *a[1], *b[1];
    size_t count = 1;

    OK(core_compile(writes_hidden, NULL, NULL, &compiled));
    for (int call = 0; call < 4; call++) {
        if (call == 2) {
            eager.inputs[1] = target[0];
            traced.inputs[1] = target[1];
        }
        hidden_target = target[0];
        OK(writes_hidden(NULL, eager.inputs, 2, a, &count));
        hidden_target = target[1];
        OK(core_compiled_call(compiled, traced.inputs, 2, b, 1));
        same_bits("output", 0, a[0], b[0]);
        same_bits("target", 0, target[0], target[1]);
        core_tensor_release(a[0]);
        core_tensor_release(b[0]);
    }
    EXPLAINS(compiled, "\"traces\": 2");
    core_compiled_release(compiled);
}
END_TEST

SUITE_ON_CPU_AND_SIM(
    "compile/guards", each_fact_of_an_input_leads_to_another_program,
    equal_facts_lead_to_one_program, many_inputs_have_one_record,
    each_fact_of_the_thread_leads_to_another_program,
    the_current_device_is_a_fact,
    a_program_from_below_autograd_does_not_serve_other_calls,
    a_weight_that_was_replaced_and_released_is_seen,
    a_weight_with_other_content_or_another_layout_is_seen,
    the_newest_program_is_the_one_before,
    a_view_that_was_replaced_and_released_is_seen,
    a_view_of_an_input_that_was_replaced_and_released_is_seen,
    views_that_the_function_makes_are_not_facts,
    the_key_has_what_the_function_reads_itself, numbers_in_tensors_are_inputs,
    requires_grad_of_a_weight_is_a_fact,
    an_input_that_shares_memory_with_a_written_hidden_input_is_seen)
