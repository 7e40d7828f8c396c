/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The function of a gradient destination that is called when its gradient is
 * final, in the middle of a backward. */

#define SUITE_FORKS true

#include "support/engine_streams.h"

#include <libcore/compiled.h>
#include <libcore/destination.h>

#include <stdatomic.h>

enum { EVENTS = 8 };

/* What happened, in order: letters of destinations and of functions. */
static char happened[EVENTS + 1];
static _Atomic int events;

static void note(char letter)
{
    int at = atomic_fetch_add(&events, 1);

    ck_assert_int_lt(at, EVENTS);
    happened[at] = letter;
}

/* A destination with what its function saw. */
typedef struct watched {
    char letter;
    core_status fails;
    int calls;
    double first; /* element of the buffer */
    core_destination_result result;
    core_stream *stream; /* the current one; borrowed */
    bool reads;
} watched;

static core_status see(void *context, core_gradient_destination *destination)
{
    watched *watched = context;
    core_tensor *buffer = destination->buffer, *element;

    note(watched->letter);
    watched->calls++;
    watched->result = destination->result;
    OK(core_stream_current(core_tensor_device(buffer), &watched->stream));
    if (watched->reads) {
        OK(core_as_strided(buffer, NULL, 0, NULL, 0, NULL, &element));
        OK(core_tensor_item_float(element, &watched->first));
        core_tensor_release(element);
    }
    ck_assert(!core_grad_mode());
    return watched->fails;
}

static core_gradient_destination to(watched *watched, core_tensor *input,
                                    core_tensor *buffer, uint32_t flags)
{
    return (core_gradient_destination){.struct_size =
                                           sizeof(core_gradient_destination),
                                       .flags = flags,
                                       .input = input,
                                       .buffer = buffer,
                                       .ready = see,
                                       .context = watched};
}

static core_tensor *hundreds(int64_t rows, int64_t columns)
{
    core_tensor *buffer;

    OK(core_full((int64_t[]){rows, columns}, 2, core_float(100), CORE_F64, NULL,
                 &buffer));
    return keep(buffer);
}

static core_tensor *linear(core_tensor *x, core_tensor *w)
{
    return CALL(linear, x, w, NULL);
}

static core_status note_node(void *context, core_tensor *grad,
                             core_tensor **out_grad)
{
    (void)grad;
    (void)out_grad;
    note(*(const char *)context);
    return CORE_OK;
}

START_TEST(function_is_called_before_earlier_layers_run)
{
    static char between = '|';
    core_tensor *x = MATRIX(2, 2, 1, 2, 3, 4);
    core_tensor *w = leaf(MATRIX(2, 2, 1, 0, 0, 1)),
                *v = leaf(MATRIX(1, 2, 1, 1));
    core_tensor *h = linear(x, w), *y = sum(linear(h, v));
    watched of_w = {.letter = 'w', .reads = true},
            of_v = {.letter = 'v', .reads = true};
    core_gradient_destination both[] = {to(&of_w, w, hundreds(2, 2), 0),
                                        to(&of_v, v, hundreds(1, 2), 0)};

    OK(core_tensor_register_hook(h, note_node, &between, NULL, NULL));
    OK(core_backward_into(&y, 1, NULL, 0, both, 2));
    ck_assert_str_eq(happened, "v|w");
    ck_assert_double_eq(of_w.first, 4);
    ck_assert_double_eq(of_v.first, 4);
    ck_assert_int_eq(of_v.result, CORE_DESTINATION_IN_PLACE);
}
END_TEST

/* A gradient that a formula writes, and one that is copied. */
START_TEST(parameter_used_twice_is_ready_once_with_the_sum)
{
    core_tensor *x = MATRIX(2, 2, 1, 2, 3, 4),
                *w = leaf(MATRIX(2, 2, 1, 0, 0, 1));
    core_tensor *y = add(add(sum(linear(x, w)), sum(linear(x, w))), sum(w));
    watched of_w = {.letter = 'w', .reads = true};
    core_gradient_destination only = to(&of_w, w, hundreds(2, 2), 0);

    OK(core_backward_into(&y, 1, NULL, 0, &only, 1));
    ck_assert_int_eq(of_w.calls, 1);
    ck_assert_double_eq(of_w.first, 9);
}
END_TEST

START_TEST(accumulated_gradient_includes_the_content_before)
{
    core_tensor *w = leaf(MATRIX(1, 2, 3, 4)), *y = sum(mul(w, w));
    watched of_w = {.letter = 'w', .reads = true};
    core_gradient_destination only =
        to(&of_w, w, hundreds(1, 2), CORE_DESTINATION_ACCUMULATE);

    OK(core_backward_into(&y, 1, NULL, CORE_RETAIN_GRAPH, &only, 1));
    ck_assert_double_eq(of_w.first, 106);
    ck_assert_int_eq(of_w.result, CORE_DESTINATION_COPIED);
    OK(core_backward_into(&y, 1, NULL, 0, &only, 1));
    ck_assert_double_eq(of_w.first, 112);
    ck_assert_int_eq(of_w.calls, 2);
}
END_TEST

START_TEST(destination_without_gradient_is_never_ready)
{
    core_tensor *w = leaf(MATRIX(1, 2, 3, 4)), *other = leaf(VECTOR(1, 1));
    core_tensor *y = sum(mul(w, w));
    watched of_w = {.letter = 'w'}, of_other = {.letter = 'o'};
    core_tensor *one = CALL(select, hundreds(1, 1), 0, 0);
    core_gradient_destination two[] = {to(&of_w, w, hundreds(1, 2), 0),
                                       to(&of_other, other, one, 0)};

    OK(core_backward_into(&y, 1, NULL, 0, two, 2));
    ck_assert_int_eq(of_w.calls, 1);
    ck_assert_int_eq(of_other.calls, 0);
    ck_assert_int_eq(two[1].result, CORE_DESTINATION_UNUSED);
    HOLDS(one, 1, 100);
}
END_TEST

static core_status double_in_buffer(void *context, core_tensor *tensor)
{
    (void)tensor;
    note('h');
    return core_mul_scalar_(context, core_float(2));
}

START_TEST(hooks_of_the_leaf_run_before)
{
    core_tensor *w = leaf(MATRIX(1, 2, 3, 4)), *y = sum(mul(w, w));
    watched of_w = {.letter = 'w', .reads = true};
    core_gradient_destination only = to(&of_w, w, hundreds(1, 2), 0);

    OK(core_tensor_register_accumulate_hook(w, double_in_buffer, only.buffer,
                                            NULL, NULL));
    OK(core_backward_into(&y, 1, NULL, 0, &only, 1));
    ck_assert_str_eq(happened, "hw");
    ck_assert_double_eq(of_w.first, 12);
}
END_TEST

START_TEST(error_of_the_function_stops_the_backward)
{
    core_tensor *x = MATRIX(2, 2, 1, 2, 3, 4);
    core_tensor *w = leaf(MATRIX(2, 2, 1, 0, 0, 1)),
                *v = leaf(MATRIX(1, 2, 1, 1));
    core_tensor *y = sum(linear(linear(x, w), v));
    watched of_w = {.letter = 'w'},
            of_v = {.letter = 'v', .fails = CORE_ERROR_IO};
    core_gradient_destination both[] = {to(&of_w, w, hundreds(2, 2), 0),
                                        to(&of_v, v, hundreds(1, 2), 0)};

    FAILS(core_backward_into(&y, 1, NULL, 0, both, 2), CORE_ERROR_IO,
          "the function of a destination");
    ck_assert_str_eq(happened, "v");
}
END_TEST

START_TEST(gradients_of_results_are_ready_too)
{
    core_tensor *a = leaf(MATRIX(1, 2, 2, 3)), *m = mul(a, a),
                *y = sum(mul(m, m));
    watched of_a = {.letter = 'a', .reads = true},
            of_m = {.letter = 'm', .reads = true};
    core_gradient_destination both[] = {to(&of_a, a, hundreds(1, 2), 0),
                                        to(&of_m, m, hundreds(1, 2), 0)};

    OK(core_grad_into(&y, 1, NULL, 0, both, 2));
    ck_assert_double_eq(of_a.first, 32);
    ck_assert_double_eq(of_m.first, 8);
    ck_assert_int_eq(of_a.calls + of_m.calls, 2);
}
END_TEST

/* ---------------------------------------------------------- struct sizes -- */

/* The struct before `ready` was added, and a later one. */
typedef struct earlier {
    uint32_t struct_size, flags;
    core_tensor *input, *buffer;
    core_destination_result result;
    uint32_t reserved;
} earlier;

typedef struct later {
    core_gradient_destination known;
    void *more;
} later;

static void expect_threes(core_tensor *buffer)
{
    HOLDS(buffer, 2, 3, 3);
}

START_TEST(arrays_of_smaller_and_larger_structs_are_accepted)
{
    core_tensor *a = leaf(MATRIX(1, 2, 2, 3)), *b = leaf(MATRIX(1, 2, 2, 3));
    core_tensor *y = CALL(mul_scalar, sum(add(a, b)), core_float(3));
    watched of_b = {.letter = 'b'};
    earlier old[2] = {{sizeof *old, 0, a, hundreds(1, 2), 9, 0},
                      {sizeof *old, 0, b, hundreds(1, 2), 9, 0}};
    later new[2] = {{to(NULL, a, hundreds(1, 2), 0), NULL},
                    {to(&of_b, b, hundreds(1, 2), 0), NULL}};

    OK(core_backward_into(&y, 1, NULL, CORE_RETAIN_GRAPH, (void *)old, 2));
    expect_threes(old[0].buffer);
    expect_threes(old[1].buffer);
    ck_assert_int_eq(old[1].result, CORE_DESTINATION_COPIED);
    new[0].known.ready = NULL;
    new[0].known.struct_size = new[1].known.struct_size = sizeof *new;
    OK(core_backward_into(&y, 1, NULL, 0, (void *)new, 2));
    expect_threes(new[1].known.buffer);
    ck_assert_str_eq(happened, "b");
}
END_TEST

START_TEST(wrong_struct_sizes_are_refused)
{
    core_tensor *a = leaf(MATRIX(1, 2, 2, 3)), *y = sum(a);
    core_gradient_destination two[2] = {to(NULL, a, hundreds(1, 2), 0),
                                        to(NULL, a, hundreds(1, 2), 0)};

    two[1].struct_size = 32;
    FAILS(core_backward_into(&y, 1, NULL, 0, two, 2),
          CORE_ERROR_INVALID_ARGUMENT, "destination 1 has struct_size 32",
          "48, or 32");
    two[0].struct_size = 24;
    FAILS(core_backward_into(&y, 1, NULL, 0, two, 1),
          CORE_ERROR_INVALID_ARGUMENT, "destination 0 has struct_size 24");
    two[0].struct_size = 0;
    FAILS(core_backward_into(&y, 1, NULL, 0, two, 1),
          CORE_ERROR_INVALID_ARGUMENT, "destination 0 has struct_size 0");
    two[0].struct_size = 49;
    FAILS(core_backward_into(&y, 1, NULL, 0, two, 1),
          CORE_ERROR_INVALID_ARGUMENT, "destination 0 has struct_size 49");
}
END_TEST

/* --------------------------------------------------------------- workers -- */

static core_tensor *buffer_on(const char *device)
{
    core_tensor *buffer;

    OK(core_full((int64_t[]){1, 2}, 2, core_float(100), CORE_F64,
                 device_of(device), &buffer));
    return keep(buffer);
}

START_TEST(workers_of_devices_call_it_on_the_stream_of_the_gradient)
{
    core_tensor *a = leaf(fresh_on(MATRIX(1, 2, 1, 2), "sim:0"));
    core_tensor *b = leaf(fresh_on(MATRIX(1, 2, 3, 4), "sim:1"));
    core_tensor *c = leaf(MATRIX(1, 2, 5, 6)), *y;
    watched of_a = {.letter = 'a', .reads = true},
            of_b = {.letter = 'b', .reads = true},
            of_c = {.letter = 'c', .reads = true};
    core_gradient_destination three[] = {to(&of_a, a, buffer_on("sim:0"), 0),
                                         to(&of_b, b, buffer_on("sim:1"), 0),
                                         to(&of_c, c, buffer_on("cpu"), 0)};

    y = sum(mul(on(mul(on(a, "sim:1"), b), "cpu"), c));
    for (int i = 1; i <= 20; i++) {
        atomic_store(&events, 0);
        OK(core_backward_into(&y, 1, NULL, CORE_RETAIN_GRAPH, three, 3));
        ck_assert_int_eq(atomic_load(&events), 3);
        ck_assert_int_eq(of_a.calls, i);
        ck_assert_double_eq(of_a.first, 15);
        ck_assert_double_eq(of_b.first, 5);
        ck_assert_double_eq(of_c.first, 3);
    }
    FAILS((of_b.fails = CORE_ERROR_IO,
           core_backward_into(&y, 1, NULL, 0, three, 3)),
          CORE_ERROR_IO, "the function of a destination");
}
END_TEST

/* The stream on which the gradient arrives is held: it must be the current one
 * of the function, which is called all the same. */
START_TEST(function_does_not_wait_for_the_stream)
{
    core_stream *stream = new_stream("sim:0"), *before = current_of("sim:0");
    core_tensor *a, *y, *ones = filled(1, "sim:0");
    gate gate = GATE;
    watched of_a = {.letter = 'a'};
    core_gradient_destination only;

    core_stream_retain(before);
    use(stream);
    a = leaf(filled(3, "sim:0"));
    y = mul(a, a);
    only = to(&of_a, a, filled(0, "sim:0"), 0);
    use(before);
    hold(stream, &gate);
    OK(core_backward_into(&y, 1, &ones, 0, &only, 1));
    ck_assert_int_eq(of_a.calls, 1);
    ck_assert_ptr_eq(of_a.stream, stream);
    stays_busy(stream);
    open_gate(&gate);
    is_filled(only.buffer, 6);
    drop_all();
    core_stream_release(before);
    core_stream_release(stream);
}
END_TEST

/* ------------------------------------------------------------- recording -- */

static core_status train_step(void *context, core_tensor *const *inputs,
                              size_t ninputs, core_tensor **outputs,
                              size_t *noutputs)
{
    core_gradient_destination *only = context;
    core_tensor *square = NULL;
    core_status status = core_mul(only->input, inputs[0], &square);

    (void)ninputs;
    if (status == CORE_OK)
        status = core_sum(square, CORE_DTYPE_NONE, &outputs[0]);
    if (status == CORE_OK)
        status = core_backward_into(&outputs[0], 1, NULL, 0, only, 1);
    core_tensor_release(square);
    *noutputs = 1;
    return status;
}

/* It is not compiled, but runs as it is. */
START_TEST(compiled_step_calls_the_function_each_time)
{
    core_tensor *w = leaf(MATRIX(1, 2, 3, 4)), *x = MATRIX(1, 2, 5, 6), *loss;
    watched of_w = {.letter = 'w'};
    core_gradient_destination only = to(&of_w, w, hundreds(1, 2), 0);
    core_compiled *compiled;

    OK(core_compile(train_step, &only, NULL, &compiled));
    for (int i = 1; i <= 3; i++) {
        OK(core_compiled_call(compiled, &x, 1, &loss, 1));
        core_tensor_release(loss);
        ck_assert_int_eq(of_w.calls, i);
        HOLDS(only.buffer, 2, 5, 6);
    }
    core_compiled_release(compiled);
}
END_TEST

SUITE("autograd/gradient_ready", function_is_called_before_earlier_layers_run,
      parameter_used_twice_is_ready_once_with_the_sum,
      accumulated_gradient_includes_the_content_before,
      destination_without_gradient_is_never_ready, hooks_of_the_leaf_run_before,
      error_of_the_function_stops_the_backward,
      gradients_of_results_are_ready_too,
      arrays_of_smaller_and_larger_structs_are_accepted,
      wrong_struct_sizes_are_refused,
      workers_of_devices_call_it_on_the_stream_of_the_gradient,
      function_does_not_wait_for_the_stream,
      compiled_step_calls_the_function_each_time)
