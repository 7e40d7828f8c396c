/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Functions against the programs that are recorded from them, on cpu and sim. */

#include "support/program.h"

#include <libcore/device.h>
#include <libcore/dispatch.h>
#include <libcore/function.h>
#include <pthread.h>

/* The body of a function: w is its world, x its inputs, out its outputs. */
#define FUNCTION(name)                                                      \
    static core_status name##_body(world *w, core_tensor *const *x,         \
                                   core_tensor **out, size_t *noutputs);    \
    static core_status name(void *context, core_tensor *const *x, size_t n, \
                            core_tensor **out, size_t *noutputs)            \
    {                                                                       \
        (void)n;                                                            \
        return name##_body(context, x, out, noutputs);                      \
    }                                                                       \
    static core_status name##_body(                                         \
        world *w __attribute__((unused)),                                   \
        core_tensor *const *x __attribute__((unused)),                      \
        core_tensor **out __attribute__((unused)), size_t *noutputs)

/* Releases a tensor that an expression needed only once. */
static core_tensor *taken[64];
static size_t ntaken;

static core_tensor *take(core_status status, core_tensor *tensor)
{
    OK(status);
    taken[ntaken++] = tensor;
    return tensor;
}

static core_status done(size_t *noutputs, size_t count)
{
    while (ntaken)
        core_tensor_release(taken[--ntaken]);
    *noutputs = count;
    return CORE_OK;
}

/* The result of a call, released by done(). */
#define DO(name, ...)                                           \
    __extension__({                                             \
        core_tensor *made_ = NULL;                              \
        core_status status_ = core_##name(__VA_ARGS__, &made_); \
        take(status_, made_);                                   \
    })

static core_tensor *give(core_tensor *tensor)
{
    return core_tensor_retain(tensor);
}

static void one_input(world *w)
{
    w->inputs[0] = NUMBERS(w, 1, 3, 4);
    w->ninputs = 1;
}

static void two_inputs(world *w)
{
    one_input(w);
    w->inputs[1] = NUMBERS(w, 50, 3, 4);
    w->ninputs = 2;
}

/* ----------------------------------------------------------- functional -- */

FUNCTION(arithmetic)
{
    core_tensor *sum = DO(add, x[0], x[1], core_int(2));

    OK(core_mul(sum, x[0], &out[0]));
    OK(core_sum_dim(sum, (int64_t[]){1}, 1, false, CORE_DTYPE_NONE, &out[1]));
    OK(core_mm(DO(t, x[0]), x[1], &out[2]));
    return done(noutputs, 3);
}

START_TEST(results_are_those_of_eager_calls)
{
    compare(two_inputs, arithmetic);
}
END_TEST

FUNCTION(dtypes)
{
    core_tensor *half = DO(to_copy, x[0], CORE_F16, NULL, false, -1);

    OK(core_gt(x[0], x[1], &out[0]));
    OK(core_add(half, half, core_int(1), &out[1]));
    OK(core_div(x[0], x[1], &out[2]));
    return done(noutputs, 3);
}

START_TEST(dtypes_are_those_of_eager_calls)
{
    compare(two_inputs, dtypes);
}
END_TEST

FUNCTION(factories)
{
    core_tensor *zeros = DO(zeros, (int64_t[]){3, 4}, 2, CORE_F32, w->device);
    core_tensor *range = DO(arange, core_int(4), CORE_F32, w->device);

    OK(core_add_(zeros, range, core_int(1)));
    OK(core_add(zeros, x[0], core_int(1), &out[0]));
    OK(core_full(NULL, 0, core_float(2.5), CORE_DTYPE_NONE, w->device,
                 &out[1]));
    return done(noutputs, 2);
}

START_TEST(factories_run_at_each_call)
{
    compare(one_input, factories);
}
END_TEST

FUNCTION(constant_data)
{
    core_tensor *data = NULL;

    OK(core_tensor_from_data((float[]){1, 2, 3, 4}, CORE_F32, (int64_t[]){4}, 1,
                             w->device, &data));
    take(CORE_OK, data);
    OK(core_add(x[0], data, core_int(1), &out[0]));
    OK(core_mul_(data, data));
    out[1] = give(data);
    return done(noutputs, 2);
}

START_TEST(data_from_the_host_are_the_same_in_each_run)
{
    compare(one_input, constant_data);
}
END_TEST

/* ------------------------------------------------------------ in place -- */

FUNCTION(write_input)
{
    OK(core_add_(x[0], x[1], core_int(1)));
    OK(core_mul(x[0], x[1], &out[0]));
    OK(core_exp_(x[0]));
    return done(noutputs, 1);
}

START_TEST(writes_to_an_input_are_made_at_the_end)
{
    compare(two_inputs, write_input);
}
END_TEST

FUNCTION(swap)
{
    core_tensor *before = DO(clone, x[0], -1);

    OK(core_copy_(x[0], x[1], false));
    OK(core_copy_(x[1], before, false));
    return done(noutputs, 0);
}

START_TEST(two_inputs_are_exchanged)
{
    compare(two_inputs, swap);
}
END_TEST

FUNCTION(write_through_views)
{
    core_tensor *row = DO(select, x[0], 0, 1);
    core_tensor *column = DO(select, DO(t, x[0]), 0, 2);
    core_tensor *flat = DO(view_sizes, x[0], (int64_t[]){12}, 1);

    OK(core_mul_(row, row));
    OK(core_add_(column, DO(select, x[1], 1, 0), core_int(3)));
    OK(core_neg(flat, &out[0]));
    OK(core_fill_(DO(select, flat, 0, 7), core_float(9)));
    OK(core_sin(row, &out[1]));
    out[2] = give(column);
    return done(noutputs, 3);
}

START_TEST(views_and_bases_see_each_others_writes)
{
    compare(two_inputs, write_through_views);
}
END_TEST

FUNCTION(write_result_through_view)
{
    core_tensor *sum = DO(add, x[0], x[1], core_int(1));
    core_tensor *part = DO(slice, sum, 1, &(int64_t){1}, &(int64_t){3}, 1);

    OK(core_zero_(part));
    OK(core_sum(sum, CORE_DTYPE_NONE, &out[0]));
    OK(core_add_(sum, x[0], core_int(1)));
    OK(core_mul(part, part, &out[1]));
    out[2] = give(sum);
    out[3] = give(part);
    return done(noutputs, 4);
}

START_TEST(a_view_is_read_after_its_base_is_written)
{
    compare(two_inputs, write_result_through_view);
}
END_TEST

FUNCTION(write_other_dtype)
{
    core_tensor *half = DO(to_copy, x[0], CORE_F16, NULL, false, -1);
    core_tensor *mask = DO(zeros, (int64_t[]){3, 4}, 2, CORE_BOOL, w->device);

    OK(core_add_(half, x[1], core_int(1)));
    OK(core_copy_(x[1], half, false));
    OK(core_gt_out(x[0], x[1], mask));
    OK(core_copy_(x[0], mask, false));
    out[0] = give(half);
    return done(noutputs, 1);
}

START_TEST(writes_convert_as_eager_calls)
{
    compare(two_inputs, write_other_dtype);
}
END_TEST

FUNCTION(write_layouts)
{
    core_tensor *turned = DO(clone, DO(t, x[0]), -1);

    OK(core_copy_(turned, DO(t, x[1]), false));
    OK(core_copy_(DO(t, x[0]), DO(contiguous, turned, 0), false));
    OK(core_mul_(x[1], DO(select, x[0], 0, 0)));
    out[0] = give(turned);
    return done(noutputs, 1);
}

START_TEST(writes_keep_the_layout_of_the_target)
{
    compare(two_inputs, write_layouts);
}
END_TEST

FUNCTION(write_out)
{
    core_tensor *room = DO(zeros, (int64_t[]){3, 4}, 2, CORE_F32, w->device);

    OK(core_add_out(x[0], x[1], core_int(1), room));
    OK(core_mul_out(x[0], x[0], x[1]));
    out[0] = give(room);
    return done(noutputs, 1);
}

START_TEST(out_variants_write_given_tensors)
{
    compare(two_inputs, write_out);
}
END_TEST

FUNCTION(detached_alias)
{
    core_tensor *alias = DO(detach, x[0]);

    OK(core_add_(alias, x[1], core_int(1)));
    OK(core_mul(x[0], x[0], &out[0]));
    out[1] = give(alias);
    return done(noutputs, 2);
}

START_TEST(a_detached_tensor_is_an_alias)
{
    compare(two_inputs, detached_alias);
}
END_TEST

/* ------------------------------------------------------------- outputs -- */

FUNCTION(aliased_outputs)
{
    core_tensor *sum = DO(add, x[0], x[1], core_int(1));

    out[0] = give(x[0]);
    out[1] = give(DO(t, x[1]));
    out[2] = give(sum);
    out[3] = give(sum);
    out[4] = give(DO(select, sum, 0, 1));
    out[5] = give(DO(clone, sum, -1));
    out[6] = give(DO(select, x[0], 1, 3));
    return done(noutputs, 7);
}

START_TEST(outputs_are_the_aliases_that_eager_calls_return)
{
    compare(two_inputs, aliased_outputs);
}
END_TEST

FUNCTION(only_view)
{
    out[0] = give(DO(select, DO(add, x[0], x[1], core_int(1)), 0, 2));
    return done(noutputs, 1);
}

START_TEST(an_output_may_be_a_view_of_a_tensor_that_is_not_returned)
{
    compare(two_inputs, only_view);
}
END_TEST

/* -------------------------------------------------------------- inputs -- */

static void overlapping(world *w)
{
    w->inputs[0] = NUMBERS(w, 1, 4, 6);
    w->inputs[1] = CALL(t, w->inputs[0]);
    w->inputs[2] =
        CALL(slice, w->inputs[0], 0, &(int64_t){1}, &(int64_t){3}, 1);
    w->inputs[3] = w->inputs[0];
    w->ninputs = 4;
}

FUNCTION(write_overlapping)
{
    OK(core_add_(x[1], DO(ones, (int64_t[]){6, 4}, 2, CORE_F32, w->device),
                 core_int(1)));
    OK(core_mul_(x[2], x[2]));
    OK(core_sum(x[0], CORE_DTYPE_NONE, &out[0]));
    OK(core_neg(x[3], &out[1]));
    out[2] = give(x[2]);
    return done(noutputs, 3);
}

START_TEST(inputs_may_be_views_of_one_another)
{
    compare(overlapping, write_overlapping);
}
END_TEST

static void partly_overlapping(world *w)
{
    core_tensor *whole = NUMBERS(w, 1, 6, 2);

    w->inputs[0] = CALL(slice, whole, 0, &(int64_t){0}, &(int64_t){4}, 1);
    w->inputs[1] = CALL(slice, whole, 0, &(int64_t){2}, &(int64_t){6}, 1);
    w->ninputs = 2;
}

FUNCTION(read_both)
{
    OK(core_add(x[0], x[1], core_int(1), &out[0]));
    return done(noutputs, 1);
}

FUNCTION(write_one_of_both)
{
    core_status status = core_mul_(x[0], x[0]);

    return status == CORE_OK ? done(noutputs, 0) : status;
}

START_TEST(partly_overlapping_inputs_may_be_read)
{
    compare(partly_overlapping, read_both);
}
END_TEST

START_TEST(writes_to_partly_overlapping_inputs_are_refused)
{
    world w = {.device = program_device};
    core_program *program;

    partly_overlapping(&w);
    FAILS(core_program_trace(write_one_of_both, &w, w.inputs, 2, 1, &program),
          CORE_ERROR_UNSUPPORTED, "mul_.Tensor", "overlaps");
    ck_assert_ptr_null(program);
}
END_TEST

static void with_gaps(world *w)
{
    w->inputs[0] =
        CALL(slice, NUMBERS(w, 1, 3, 8), 1, &(int64_t){1}, &(int64_t){7}, 2);
    w->inputs[1] =
        CALL(expand, NUMBERS(w, 9, 1, 3), (int64_t[]){3, 3}, 2, false);
    w->ninputs = 2;
}

FUNCTION(use_gaps)
{
    OK(core_add(DO(t, x[0]), x[1], core_int(1), &out[0]));
    OK(core_mul_(x[0], x[1]));
    OK(core_select(x[0], 0, 1, &out[1]));
    return done(noutputs, 2);
}

START_TEST(inputs_may_have_gaps_and_repeated_elements)
{
    compare(with_gaps, use_gaps);
}
END_TEST

static void empty_and_scalar(world *w)
{
    w->inputs[0] = NUMBERS(w, 1, 0, 4);
    OK(core_tensor_from_data(&(float){3}, CORE_F32, NULL, 0, w->device,
                             &w->inputs[1]));
    keep(w->inputs[1]);
    w->ninputs = 2;
}

FUNCTION(use_empty)
{
    OK(core_add(x[0], x[1], core_int(1), &out[0]));
    OK(core_sum(x[0], CORE_DTYPE_NONE, &out[1]));
    OK(core_add_(x[0], x[1], core_int(1)));
    OK(core_mul_(x[1], x[1]));
    return done(noutputs, 2);
}

START_TEST(inputs_may_be_empty_or_have_no_dimensions)
{
    compare(empty_and_scalar, use_empty);
}
END_TEST

/* ------------------------------------------------------- hidden inputs -- */

static void with_hidden(world *w)
{
    two_inputs(w);
    w->hidden[0] = NUMBERS(w, 200, 4, 4);
    w->hidden[1] = CALL(select, w->hidden[0], 0, 2);
    w->hidden[2] = NUMBERS(w, 300, 4);
    w->nhidden = 3;
}

FUNCTION(use_hidden)
{
    OK(core_mm(x[0], DO(t, w->hidden[0]), &out[0]));
    OK(core_add_(w->hidden[1], w->hidden[2], core_int(1)));
    OK(core_mm(x[1], w->hidden[0], &out[1]));
    OK(core_exp(w->hidden[2], &out[2]));
    out[3] = give(w->hidden[2]);
    out[4] = give(DO(select, w->hidden[0], 1, 0));
    return done(noutputs, 5);
}

START_TEST(hidden_inputs_are_read_and_written_at_each_run)
{
    const program_case c = {with_hidden, use_hidden};
    core_program *program = compare_program(&c);
    core_program_counts counts = {.struct_size = sizeof counts};

    OK(core_program_get_counts(program, &counts));
    ck_assert_uint_eq(counts.hidden_inputs, 2);
    ck_assert_uint_eq(counts.writes, 1);
    core_program_release(program);
}
END_TEST

FUNCTION(input_that_is_known)
{
    OK(core_add_(w->inputs[0], x[1], core_int(1)));
    OK(core_neg(x[0], &out[0]));
    return done(noutputs, 1);
}

START_TEST(an_input_that_the_function_knows_is_that_input)
{
    const program_case c = {two_inputs, input_that_is_known};
    core_program *program = compare_program(&c);
    world other = make_world(&c);
    core_tensor *out;

    FAILS(core_program_run(program, other.inputs, 2, &out, 1),
          CORE_ERROR_INVALID_ARGUMENT, "input 0", "reads itself");
    core_program_release(program);
}
END_TEST

FUNCTION(normalise)
{
    core_tensor *mean, *rstd;

    OK(core_native_batch_norm(x[0], NULL, NULL, w->hidden[0], w->hidden[1],
                              true, .1, 1e-5, &out[0], &mean, &rstd));
    take(CORE_OK, mean);
    take(CORE_OK, rstd);
    return done(noutputs, 1);
}

static void with_statistics(world *w)
{
    one_input(w);
    w->hidden[0] = NUMBERS(w, 7, 4);
    w->hidden[1] = CALL(ones, (int64_t[]){4}, 1, CORE_F32, w->device);
    w->nhidden = 2;
}

START_TEST(running_statistics_are_written)
{
    compare(with_statistics, normalise);
}
END_TEST

/* ------------------------------------------------------ random numbers -- */

FUNCTION(draws)
{
    core_tensor *mask;

    OK(core_dropout(x[0], .5, true, &out[0]));
    OK(core_rand((int64_t[]){5}, 1, NULL, CORE_F32, w->device, &out[1]));
    OK(core_bernoulli_float_(x[1], .25, NULL));
    OK(core_native_dropout(x[1], .1, NULL, &out[2], &mask));
    take(CORE_OK, mask);
    OK(core_rand((int64_t[]){3}, 1, NULL, CORE_F32, w->device, &out[3]));
    return done(noutputs, 4);
}

START_TEST(random_numbers_are_those_of_eager_calls)
{
    const program_case c = {two_inputs, draws};
    core_program *program = compare_program(&c);
    core_program_counts counts = {.struct_size = sizeof counts};
    uint64_t before, after;
    core_tensor *out[4];
    world w = make_world(&c);

    OK(core_program_get_counts(program, &counts));
    core_generator_state(NULL, NULL, &before);
    OK(core_program_run(program, w.inputs, 2, out, 4));
    core_generator_state(NULL, NULL, &after);
    ck_assert_uint_eq(after - before, counts.draws);
    for (int i = 0; i < 4; i++)
        core_tensor_release(out[i]);
    core_program_release(program);
}
END_TEST

static void with_generator(world *w)
{
    one_input(w);
    OK(core_generator_create(99, &w->generator));
}

FUNCTION(draw_from_generator)
{
    OK(core_rand((int64_t[]){5}, 1, w->generator, CORE_F32, w->device,
                 &out[0]));
    OK(core_bernoulli_p(x[0], .5, w->generator, &out[1]));
    return done(noutputs, 2);
}

START_TEST(a_generator_is_drawn_from_at_each_run)
{
    compare(with_generator, draw_from_generator);
}
END_TEST

/* ------------------------------------------------------------ gradients -- */

static void with_weight(world *w)
{
    two_inputs(w);
    w->hidden[0] = leaf(NUMBERS(w, 70, 4, 4));
    w->nhidden = 1;
}

FUNCTION(gradient)
{
    core_tensor *y = DO(mm, x[0], w->hidden[0]);
    core_tensor *loss = DO(sum, DO(mul, DO(tanh, y), x[1]), CORE_DTYPE_NONE);
    core_tensor *grad = NULL;

    OK(core_grad(&loss, 1, NULL, &w->hidden[0], 1, 0, &grad));
    out[0] = give(DO(detach, loss));
    out[1] = grad;
    return done(noutputs, 2);
}

START_TEST(a_backward_is_part_of_the_program)
{
    compare(with_weight, gradient);
}
END_TEST

static void with_allocated_grad(world *w)
{
    with_weight(w);
    w->hidden[1] = NUMBERS(w, 90, 4, 4);
    w->nhidden = 2;
    OK(core_tensor_set_grad(w->hidden[0], w->hidden[1]));
}

FUNCTION(training_step)
{
    core_tensor *y = DO(mm, x[0], w->hidden[0]);
    core_tensor *loss = DO(sum, DO(mul, y, y), CORE_DTYPE_NONE);
    bool before;

    OK(core_zero_(core_tensor_grad(w->hidden[0])));
    OK(core_backward(&loss, 1, NULL, 0));
    before = core_grad_mode_set(false);
    OK(core_add_(w->hidden[0], core_tensor_grad(w->hidden[0]),
                 core_float(-.125)));
    core_grad_mode_set(before);
    out[0] = give(DO(detach, loss));
    return done(noutputs, 1);
}

START_TEST(a_whole_step_writes_weights_and_gradients)
{
    compare(with_allocated_grad, training_step);
}
END_TEST

FUNCTION(backward_without_grad)
{
    core_tensor *loss = DO(sum, DO(mm, x[0], w->hidden[0]), CORE_DTYPE_NONE);

    OK(core_backward(&loss, 1, NULL, 0));
    return done(noutputs, 0);
}

START_TEST(a_new_gradient_is_refused)
{
    world w = {.device = program_device};
    core_program *program;

    with_weight(&w);
    FAILS(
        core_program_trace(backward_without_grad, &w, w.inputs, 2, 1, &program),
        CORE_ERROR_UNSUPPORTED, "a new gradient");
    ck_assert_ptr_null(program);
    ck_assert_ptr_null(core_tensor_grad(w.hidden[0]));
}
END_TEST

/* ---------------------------------------------------------- two devices -- */

static core_device *other_device(const world *w)
{
    core_device *device;
    const char *name =
        strcmp(core_device_type(w->device), "cpu") == 0 ? "sim" : "cpu";

    OK(core_device_find(name, &device));
    return device;
}

FUNCTION(across)
{
    core_device *other = other_device(w);
    core_tensor *there = DO(to_copy, x[0], CORE_DTYPE_NONE, other, false, -1);

    OK(core_exp_(there));
    OK(core_copy_(x[1], there, false));
    out[0] = give(there);
    return done(noutputs, 1);
}

START_TEST(copies_between_devices_are_recorded)
{
    compare(two_inputs, across);
}
END_TEST

START_TEST(a_program_runs_on_another_device)
{
    const program_case c = {with_hidden, use_hidden};
    world here = make_world(&c), there, eager;
    core_program *program = trace_world(&c, &here);
    core_device *home = program_device;
    core_tensor *a[5], *b[5];
    size_t noutputs = WORLD_OUTPUTS;

    program_device = other_device(&here);
    there = make_world(&c);
    eager = make_world(&c);
    OK(core_program_run(program, there.inputs, 2, b, 5));
    OK(use_hidden(&eager, eager.inputs, 2, a, &noutputs));
    for (size_t i = 0; i < 3; i++)
        same_bits("output", i, a[i], b[i]);
    /* Hidden inputs stay where they are. */
    ck_assert_ptr_eq(core_tensor_device(b[3]), home);
    for (size_t i = 0; i < 5; i++) {
        core_tensor_release(a[i]);
        core_tensor_release(b[i]);
    }
    program_device = home;
    core_program_release(program);
}
END_TEST

/* ------------------------------------------------------------ refusals -- */

typedef struct refusal {
    core_status (*call)(core_tensor *x, core_device *device);
    core_status code;
    const char *text;
} refusal;

static core_status call_item(core_tensor *x, core_device *device)
{
    core_scalar value;

    (void)device;
    return core_item(x, &value);
}

static core_status call_tensor_item(core_tensor *x, core_device *device)
{
    core_scalar value;

    (void)device;
    return core_tensor_item(x, &value);
}

static core_status call_read(core_tensor *x, core_device *device)
{
    float value[12];

    (void)device;
    return core_tensor_read(x, value, sizeof value);
}

static core_status call_data(core_tensor *x, core_device *device)
{
    void *data;

    (void)device;
    return core_tensor_data(x, &data);
}

static core_status call_nonzero(core_tensor *x, core_device *device)
{
    core_tensor *out = NULL;

    (void)device;
    return core_nonzero(x, &out);
}

static core_status call_wait(core_tensor *x, core_device *device)
{
    (void)x;
    return core_device_synchronize(device);
}

static core_status call_relayout(core_tensor *x, core_device *device)
{
    (void)device;
    return core_t_(x);
}

static core_status call_print(core_tensor *x, core_device *device)
{
    char *text;

    (void)device;
    return core_tensor_format(x, &text);
}

static const refusal refusals[] = {
    {call_item, CORE_ERROR_UNSUPPORTED, "item"},
    {call_tensor_item, CORE_ERROR_UNSUPPORTED, "core_tensor_item"},
    {call_read, CORE_ERROR_UNSUPPORTED, "core_tensor_read"},
    {call_data, CORE_ERROR_UNSUPPORTED, "core_tensor_data"},
    {call_nonzero, CORE_ERROR_UNSUPPORTED, "nonzero"},
    {call_wait, CORE_ERROR_UNSUPPORTED, "core_device_synchronize"},
    {call_relayout, CORE_ERROR_UNSUPPORTED, "layout of input 0"},
    {call_print, CORE_ERROR_UNSUPPORTED, "content"},
};

static const refusal *refused;

static core_status refused_function(void *context, core_tensor *const *x,
                                    size_t n, core_tensor **out,
                                    size_t *noutputs)
{
    core_tensor *made = NULL;
    core_status status = core_add(x[0], x[0], core_int(1), &made);

    (void)n;
    if (status == CORE_OK)
        status = refused->call(x[0], ((world *)context)->device);
    out[0] = made;
    *noutputs = 1;
    return status;
}

START_TEST(what_a_program_cannot_contain_is_refused)
{
    world w = {.device = program_device};
    core_program *program;
    core_tensor *after;

    one_input(&w);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        refused = &refusals[i];
        FAILS(
            core_program_trace(refused_function, &w, w.inputs, 1, 1, &program),
            refused->code, refused->text);
        ck_assert_ptr_null(program);
    }
    /* The thread computes again. */
    OK(core_add(w.inputs[0], w.inputs[0], core_int(1), &after));
    OK(core_tensor_read(after, (float[12]){0}, 48));
    core_tensor_release(after);
}
END_TEST

static core_tensor *kept;

FUNCTION(keeps_a_tensor)
{
    kept = DO(exp, x[0]);
    core_tensor_retain(kept);
    return done(noutputs, 0);
}

START_TEST(a_tensor_that_is_kept_is_refused)
{
    world w = {.device = program_device};
    core_program *program;
    core_tensor *out;

    one_input(&w);
    FAILS(core_program_trace(keeps_a_tensor, &w, w.inputs, 1, 1, &program),
          CORE_ERROR_UNSUPPORTED, "keeps 1 tensors");
    FAILS(core_exp(kept, &out), CORE_ERROR_UNSUPPORTED, "exp");
    FAILS(core_exp(kept, &out), CORE_ERROR_UNSUPPORTED,
          " a program whose recording has ended");
    FAILS(core_tensor_read(kept, (float[12]){0}, 48), CORE_ERROR_UNSUPPORTED,
          "core_tensor_read", " a program whose recording has ended");
    FAILS(core_tensor_set_grad(w.inputs[0], kept), CORE_ERROR_UNSUPPORTED,
          "core_tensor_set_grad", " a program whose recording has ended");
    ck_assert_ptr_null(core_tensor_grad(w.inputs[0]));
    core_tensor_release(kept);
}
END_TEST

START_TEST(a_number_of_outputs_that_overflows_is_refused)
{
    world w = {.device = program_device};
    core_program *program;

    one_input(&w);
    FAILS(
        core_program_trace(keeps_a_tensor, &w, w.inputs, 1, SIZE_MAX, &program),
        CORE_ERROR_INVALID_ARGUMENT, "max_outputs");
    ck_assert_ptr_null(program);
}
END_TEST

/* ----------------------------------------------------- custom operators -- */

static core_status twice_kernel(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    core_tensor *out;

    (void)call;
    (void)nargs;
    (void)nresults;
    CORE_TRY(core_add(args[0].u.tensor, args[0].u.tensor, core_int(1), &out));
    results[0] = core_pack_tensor(out);
    return CORE_OK;
}

static core_status grow_kernel(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    (void)call;
    (void)nargs;
    CORE_TRY(core_add_(args[0].u.tensor, args[1].u.tensor, core_int(1)));
    if (nresults) {
        core_tensor_retain(args[0].u.tensor);
        results[0] = core_pack_tensor(args[0].u.tensor);
    }
    return CORE_OK;
}

FUNCTION(custom)
{
    core_operator *twice, *grow;
    core_value args[2] = {core_pack_tensor(x[0]), core_pack_tensor(x[1])};
    core_value result = {0};

    OK(core_op_find("mine::twice", &twice));
    OK(core_op_find("mine::grow_", &grow));
    CORE_TRY(core_op_call(twice, args, 1, &result, 1));
    out[0] = result.u.tensor;
    OK(core_op_call(grow, args, 2, NULL, 0));
    OK(core_neg(x[0], &out[1]));
    return done(noutputs, 2);
}

START_TEST(custom_operators_are_recorded_by_their_shape_functions)
{
    const program_case c = {two_inputs, custom};
    core_registration *made[6];
    core_program *program;
    world w;
    core_tensor *out[2];

    OK(core_op_register("mine::twice(Tensor self) -> Tensor", &made[0]));
    OK(core_op_register("mine::grow_(Tensor(a!) self, Tensor by) -> Tensor(a!)",
                        &made[1]));
    OK(core_function_register("mine::twice", CORE_KEY_BACKEND,
                              core_device_type(program_device), twice_kernel,
                              NULL, &made[2]));
    OK(core_function_register("mine::grow_", CORE_KEY_BACKEND,
                              core_device_type(program_device), grow_kernel,
                              NULL, &made[3]));
    w = make_world(&c);
    FAILS(core_program_trace(custom, &w, w.inputs, 2, 2, &program),
          CORE_ERROR_UNSUPPORTED,
          "mine::twice: it has no shape function, so a program that is being "
          "recorded cannot contain it; register one with core_shape_register");
    OK(core_shape_register("mine::twice", twice_kernel, NULL, &made[4]));
    OK(core_shape_register("mine::grow_", grow_kernel, NULL, &made[5]));
    program = compare_program(&c);
    for (int i = 6; i-- > 0;)
        core_registration_release(made[i]);
    FAILS(core_program_run(program, w.inputs, 2, out, 2), CORE_ERROR_NOT_FOUND,
          "mine::twice");
    core_program_release(program);
}
END_TEST

/* --------------------------------------------------------- nested, threads -- */

FUNCTION(inner)
{
    *noutputs = 1;
    return core_mul(x[0], x[0], &out[0]);
}

FUNCTION(outer)
{
    core_program *program = NULL;
    core_tensor *y = DO(exp, x[0]), *z;

    OK(core_program_trace(inner, w, &y, 1, 1, &program));
    OK(core_program_run(program, &y, 1, &z, 1));
    core_program_release(program);
    OK(core_add(z, x[0], core_int(1), &out[0]));
    core_tensor_release(z);
    return done(noutputs, 1);
}

START_TEST(a_recorded_function_may_record_and_run_programs)
{
    compare(one_input, outer);
}
END_TEST

static void *trace_in_thread(void *from)
{
    for (int i = 0; i < 20; i++) {
        core_program *program;
        core_tensor *out;
        world *w = from;

        if (core_program_trace(read_both, w, w->inputs, 2, 1, &program) !=
            CORE_OK)
            return "trace";
        if (core_program_run(program, w->inputs, 2, &out, 1) != CORE_OK)
            return "run";
        core_tensor_release(out);
        core_program_release(program);
    }
    return NULL;
}

START_TEST(two_threads_record_at_once)
{
    world w = {.device = program_device};
    pthread_t threads[2];

    two_inputs(&w);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, trace_in_thread, &w),
                         0);
    for (int i = 0; i < 2; i++) {
        void *failed;

        pthread_join(threads[i], &failed);
        ck_assert_ptr_null(failed);
    }
}
END_TEST

/* --------------------------------------------------------------- checks -- */

START_TEST(a_run_checks_its_inputs)
{
    const program_case c = {two_inputs, arithmetic};
    world w = make_world(&c);
    core_program *program = trace_world(&c, &w);
    core_tensor *out[3], *bad[2];

    bad[0] = w.inputs[0];
    bad[1] = NUMBERS(&w, 1, 4, 3);
    FAILS(core_program_run(program, bad, 2, out, 3), CORE_ERROR_SHAPE,
          "input 1", "[4, 3]", "[3, 4]");
    bad[1] = CALL(t, bad[1]);
    FAILS(core_program_run(program, bad, 2, out, 3), CORE_ERROR_SHAPE,
          "strides");
    bad[1] = CALL(to_copy, w.inputs[1], CORE_F64, NULL, false, -1);
    FAILS(core_program_run(program, bad, 2, out, 3), CORE_ERROR_DTYPE, "f64",
          "f32");
    FAILS(core_program_run(program, bad, 1, out, 3),
          CORE_ERROR_INVALID_ARGUMENT, "1 inputs");
    FAILS(core_program_run(program, w.inputs, 2, out, 2),
          CORE_ERROR_INVALID_ARGUMENT, "2 outputs");
    ck_assert_ptr_null(core_program_hidden_input(program, 0));
    ck_assert_ptr_null(core_program_hidden_input(NULL, 0));
    core_program_release(program);
    FAILS(core_program_trace(NULL, NULL, NULL, 0, 1, &program),
          CORE_ERROR_INVALID_ARGUMENT, "core_program_trace", "function");
    FAILS(core_program_trace(arithmetic, NULL, NULL, 1, 1, &program),
          CORE_ERROR_INVALID_ARGUMENT, "core_program_trace", "inputs");
    FAILS(core_program_load("", NULL, &program), CORE_ERROR_INVALID_ARGUMENT,
          "core_program_load", "empty");
}
END_TEST

START_TEST(a_run_checks_that_written_inputs_are_apart)
{
    const program_case c = {two_inputs, write_input};
    world w = make_world(&c);
    core_program *program = trace_world(&c, &w);
    core_tensor *out[1], *same[2] = {w.inputs[0], w.inputs[0]};

    FAILS(core_program_run(program, same, 2, out, 1),
          CORE_ERROR_INVALID_ARGUMENT, "share memory");
    core_program_release(program);
}
END_TEST

START_TEST(the_text_names_operators_and_types)
{
    const program_case c = {two_inputs, write_input};
    world w = make_world(&c);
    core_program *program = trace_world(&c, &w);
    char *text;

    OK(core_program_text(program, &text));
    ck_assert_ptr_nonnull(strstr(text, "%0 = input 0: f32[3, 4]"));
    ck_assert_ptr_nonnull(strstr(text, "= add.Tensor(%0, %1, 1): f32[3, 4]"));
    ck_assert_ptr_nonnull(strstr(text, "write input 0: %"));
    core_text_free(text);
    core_program_release(program);
}
END_TEST

SUITE_ON_CPU_AND_SIM(
    "compile/trace", results_are_those_of_eager_calls,
    dtypes_are_those_of_eager_calls, factories_run_at_each_call,
    data_from_the_host_are_the_same_in_each_run,
    writes_to_an_input_are_made_at_the_end, two_inputs_are_exchanged,
    views_and_bases_see_each_others_writes,
    a_view_is_read_after_its_base_is_written, writes_convert_as_eager_calls,
    writes_keep_the_layout_of_the_target, out_variants_write_given_tensors,
    a_detached_tensor_is_an_alias,
    outputs_are_the_aliases_that_eager_calls_return,
    an_output_may_be_a_view_of_a_tensor_that_is_not_returned,
    inputs_may_be_views_of_one_another, partly_overlapping_inputs_may_be_read,
    writes_to_partly_overlapping_inputs_are_refused,
    inputs_may_have_gaps_and_repeated_elements,
    inputs_may_be_empty_or_have_no_dimensions,
    hidden_inputs_are_read_and_written_at_each_run,
    an_input_that_the_function_knows_is_that_input,
    running_statistics_are_written, random_numbers_are_those_of_eager_calls,
    a_generator_is_drawn_from_at_each_run, a_backward_is_part_of_the_program,
    a_whole_step_writes_weights_and_gradients, a_new_gradient_is_refused,
    copies_between_devices_are_recorded, a_program_runs_on_another_device,
    what_a_program_cannot_contain_is_refused, a_tensor_that_is_kept_is_refused,
    a_number_of_outputs_that_overflows_is_refused,
    custom_operators_are_recorded_by_their_shape_functions,
    a_recorded_function_may_record_and_run_programs, two_threads_record_at_once,
    a_run_checks_its_inputs, a_run_checks_that_written_inputs_are_apart,
    the_text_names_operators_and_types)
