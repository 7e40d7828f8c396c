/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Work that a capture cannot contain is an error and invalidates the capture; a
 * lost or reset device invalidates captures and graphs. */

#define SUITE_FORKS true

#include "device/device.h"

#include "support/capture.h"

/* ------------------------------------------------------------ bad input -- */

START_TEST(host_wait_invalidates_the_capture_with_a_reason)
{
    core_tensor *a = on_sim(VECTOR(2, 1, 2)), *total;
    core_graph *graph = (core_graph *)&graph;
    double value;

    OK(core_device_synchronize(sim));
    OK(core_capture_begin(stream, NULL));
    OK(core_sum(a, CORE_DTYPE_NONE, &total));
    FAILS(core_tensor_item_float(total, &value), CORE_ERROR_UNSUPPORTED,
          "capture", "item");
    FAILS(core_capture_end(stream, &graph), CORE_ERROR_UNSUPPORTED,
          "capture is invalid", "item");
    ck_assert_ptr_null(graph);
    core_tensor_release(total);
    /* the stream still works */
    OK(core_stream_synchronize(stream));
    HOLDS(add(a, a), 2, 2, 4);
}
END_TEST

START_TEST(data_dependent_shape_cannot_be_captured)
{
    core_tensor *a = on_sim(VECTOR(2, 1, 0)), *where = NULL;

    OK(core_device_synchronize(sim));
    OK(core_capture_begin(stream, NULL));
    FAILS(core_nonzero(a, &where), CORE_ERROR_UNSUPPORTED, "capture",
          "nonzero");
    ck_assert_ptr_null(where);
    OK(core_capture_end(stream, NULL));
}
END_TEST

/* Each launch fills in new counters of the generator. */
START_TEST(random_operator_cannot_be_captured_without_fill)
{
    core_tensor *a = on_sim(VECTOR(2, 1, 0));

    OK(core_device_synchronize(sim));
    sim->memory.fill = NULL;
    OK(core_capture_begin(stream, NULL));
    FAILS(core_uniform_(a, 0, 1, NULL), CORE_ERROR_UNSUPPORTED, "uniform_",
          "sim", "no fill");
    OK(core_capture_end(stream, NULL));
}
END_TEST

START_TEST(wait_for_a_capturing_stream_is_refused)
{
    core_event *event;

    OK(core_event_create(sim, 0, &event));
    OK(core_capture_begin(stream, NULL));
    FAILS(core_stream_synchronize(stream), CORE_ERROR_UNSUPPORTED, "capture");
    FAILS(core_stream_query(stream), CORE_ERROR_UNSUPPORTED, "capture");
    FAILS(core_device_synchronize(sim), CORE_ERROR_UNSUPPORTED, "capture");
    OK(core_capture_end(stream, NULL));
    OK(core_stream_synchronize(stream));
    core_event_release(event);
}
END_TEST

/* The named stream loses its capture, the thread's current stream does not. */
START_TEST(call_on_another_stream_invalidates_the_capture_of_that_stream)
{
    core_graph *graph = NULL;
    core_stream *other;

    OK(core_stream_create(sim, &other));
    OK(core_capture_begin(stream, NULL));
    OK(core_capture_begin(other, NULL)); /* becomes current */
    FAILS(core_stream_query(stream), CORE_ERROR_UNSUPPORTED, "capture");
    OK(core_capture_end(other, &graph));
    core_graph_release(graph);
    FAILS(core_capture_end(stream, &graph), CORE_ERROR_UNSUPPORTED,
          "capture is invalid", "core_stream_query");
    core_stream_release(other);
}
END_TEST

START_TEST(event_of_a_capture_invalidates_its_own_capture)
{
    core_graph *graph = NULL;
    core_stream *other;
    core_event *event;

    OK(core_event_create(sim, 0, &event));
    OK(core_stream_create(sim, &other));
    OK(core_capture_begin(stream, NULL));
    OK(core_event_record(event, stream));
    FAILS(core_stream_wait_event(other, event), CORE_ERROR_UNSUPPORTED,
          "core_stream_wait_event");
    FAILS(core_capture_end(stream, &graph), CORE_ERROR_UNSUPPORTED,
          "capture is invalid", "core_stream_wait_event");
    core_event_release(event);
    core_stream_release(other);
}
END_TEST

/* The next capture is likely to have the address of the last one. */
START_TEST(event_of_an_ended_capture_invalidates_no_other)
{
    core_stream *other;
    core_event *event;

    OK(core_event_create(sim, 0, &event));
    OK(core_stream_create(sim, &other));
    for (int i = 0; i < 20; i++) {
        core_graph *graph = NULL;

        OK(core_capture_begin(stream, NULL));
        OK(core_event_record(event, stream));
        OK(core_capture_end(stream, NULL));
        OK(core_capture_begin(stream, NULL));
        FAILS(core_stream_wait_event(other, event), CORE_ERROR_UNSUPPORTED,
              "core_stream_wait_event");
        OK(core_capture_end(stream, &graph));
        core_graph_release(graph);
    }
    core_event_release(event);
    core_stream_release(other);
}
END_TEST

START_TEST(event_of_a_capture_is_unrecorded_afterwards)
{
    core_graph *graph;
    core_stream *other;
    core_event *event;

    OK(core_event_create(sim, 0, &event));
    OK(core_capture_begin(stream, NULL));
    OK(core_event_record(event, stream));
    OK(core_capture_end(stream, &graph));
    OK(core_stream_create(sim, &other));
    OK(core_stream_set_current(other));
    FAILS(core_stream_wait_event(other, event), CORE_ERROR_INVALID_ARGUMENT,
          "recorded in a capture");
    FAILS(core_event_query(event), CORE_ERROR_INVALID_ARGUMENT,
          "recorded in a capture");
    core_graph_release(graph);
    core_event_release(event);
    core_stream_release(other);
}
END_TEST

static void never(void *context)
{
    ck_abort_msg("a callback of a capture ran: %s", (const char *)context);
}

static void dropped(void *context)
{
    *(char *)context = 'd';
}

START_TEST(host_callback_invalidates_the_capture)
{
    char text[] = "kept";
    core_graph *graph;

    OK(core_capture_begin(stream, NULL));
    FAILS(core_stream_callback(stream, never, text, dropped),
          CORE_ERROR_UNSUPPORTED, "host callback");
    ck_assert_str_eq(text, "dept");
    FAILS(core_capture_end(stream, &graph), CORE_ERROR_UNSUPPORTED,
          "capture is invalid", "host callback");
}
END_TEST

START_TEST(capture_end_without_begin_is_refused)
{
    core_stream *standard, *other;
    core_graph *graph = NULL;
    core_device *cpu;

    FAILS(core_capture_end(stream, &graph), CORE_ERROR_INVALID_ARGUMENT,
          "not capturing");
    OK(core_stream_default(sim, &standard));
    FAILS(core_capture_begin(standard, NULL), CORE_ERROR_INVALID_ARGUMENT,
          "default stream");
    OK(core_device_find("cpu", &cpu));
    OK(core_stream_default(cpu, &other));
    FAILS(core_capture_begin(other, NULL), CORE_ERROR_UNSUPPORTED, "cpu");
    OK(core_capture_begin(stream, NULL));
    FAILS(core_capture_begin(stream, NULL), CORE_ERROR_BUSY, "already");
    OK(core_capture_end(stream, &graph));
    ck_assert_uint_eq(core_graph_size(graph), 0);
    OK(core_graph_launch(graph, stream));
    FAILS(core_graph_launch(graph, other), CORE_ERROR_DEVICE, "sim", "cpu");
    FAILS(core_capture_begin(NULL, NULL), CORE_ERROR_INVALID_ARGUMENT,
          "stream");
    FAILS(core_graph_launch(NULL, stream), CORE_ERROR_INVALID_ARGUMENT,
          "graph");
    core_graph_release(graph);
    core_graph_release(NULL);
    OK(core_stream_synchronize(stream));
}
END_TEST

START_TEST(pool_of_another_device_is_refused)
{
    core_memory_pool *pool;
    core_device *second;

    OK(core_device_find("sim:1", &second));
    OK(core_memory_pool_create(second, &pool));
    FAILS(core_capture_begin(stream, pool), CORE_ERROR_DEVICE, "\"sim:1\"",
          "\"sim\"");
    ck_assert(!core_stream_is_capturing(stream));
    core_memory_pool_release(pool);
}
END_TEST

START_TEST(reset_ends_a_capture)
{
    core_tensor *a = on_sim(VECTOR(3, 1, 2, 3)), *b;
    core_graph *graph = NULL;

    OK(core_capture_begin(stream, NULL));
    OK(core_add(a, a, core_int(1), &b));
    OK(core_device_reset(sim));
    FAILS(core_capture_end(stream, &graph), CORE_ERROR_DEVICE_LOST, "reset");
    ck_assert_ptr_null(graph);
    ck_assert(!core_stream_is_capturing(stream));
    core_tensor_release(b);
    a = on_sim(VECTOR(3, 4, 5, 6)); /* the device works again */
    HOLDS(a, 3, 4, 5, 6);
}
END_TEST

START_TEST(loss_of_the_device_invalidates_its_graphs)
{
    core_tensor *a = on_sim(VECTOR(3, 1, 2, 3)), *b;
    sim_counters counters = {.struct_size = sizeof counters};
    const sim_control *control;
    core_graph *graph = NULL;
    const void *table;

    OK(core_device_interface(sim, "sim.control", 1, &table));
    control = table;
    OK(core_capture_begin(stream, NULL));
    OK(core_add(a, a, core_int(1), &b));
    OK(core_capture_end(stream, &graph));
    OK(control->lose(0));
    FAILS(core_device_status(sim), CORE_ERROR_DEVICE_LOST, "lost");
    FAILS(core_graph_launch(graph, stream), CORE_ERROR_DEVICE_LOST, "lost",
          "until core_device_reset");
    ck_assert_ptr_null(strstr(core_error_message(), "was reset"));
    core_graph_release(graph);
    OK(control->counters(0, &counters));
    ck_assert_uint_eq(counters.graphs, 0);
    core_tensor_release(b);
}
END_TEST

START_TEST(reset_of_the_device_invalidates_its_graphs)
{
    core_graph *graph = NULL;
    core_stream *standard;

    OK(core_stream_default(sim, &standard));
    OK(core_capture_begin(stream, NULL));
    OK(core_capture_end(stream, &graph));
    OK(core_device_reset(sim));
    FAILS(core_graph_launch(graph, standard), CORE_ERROR_DEVICE_LOST, "graph",
          "was reset");
    core_graph_release(graph);
}
END_TEST

START_TEST(stream_may_be_released_while_it_captures)
{
    core_tensor *a = on_sim(VECTOR(3, 1, 2, 3)), *b;
    core_stream *mine, *standard;
    core_graph *graph = NULL;

    OK(core_stream_default(sim, &standard));
    OK(core_stream_create(sim, &mine));
    OK(core_capture_begin(mine, NULL));
    core_stream_release(mine); /* the thread holds a reference */
    OK(core_add(a, a, core_int(1), &b));
    OK(core_capture_end(mine, &graph));
    OK(core_graph_launch(graph, standard));
    HOLDS(b, 3, 2, 4, 6);
    core_tensor_release(b);
    core_graph_release(graph);
}
END_TEST

/* Work of the other streams would become part of the graph instead of
 * running. */
START_TEST(shared_queue_cannot_be_captured)
{
    core_stream *other, *third;
    core_graph *graph;

    setenv("LIBCORE_SIM_QUEUES", "2", 1);
    begin();
    OK(core_stream_create(sim, &other));
    FAILS(core_capture_begin(stream, NULL), CORE_ERROR_UNSUPPORTED, "2 streams",
          "shares");
    core_stream_release(other);
    OK(core_capture_begin(stream, NULL));
    /* on the queue of the default stream */
    OK(core_stream_create(sim, &third));
    OK(core_capture_end(stream, &graph));
    OK(core_capture_begin(stream, NULL));
    OK(core_capture_end(stream, NULL));
    core_graph_release(graph);
    core_stream_release(third);
    end();
}
END_TEST

static core_status host_half(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    (void)call;
    (void)nargs;
    (void)nresults;
    results[0].tag = CORE_VALUE_TENSOR;
    return core_mul_scalar(args[0].u.tensor, core_float(0.5),
                           &results[0].u.tensor);
}

/* The operator has only a CPU kernel: it is not captured even if fallbacks are
 * allowed. */
START_TEST(fallback_cannot_be_captured)
{
    core_tensor *a = on_sim(VECTOR(2, 2, 4));
    core_value arg = {CORE_VALUE_TENSOR, 0, {.tensor = a}}, result = {0};
    core_registration *schema, *kernel;
    core_graph *graph;
    core_operator *op;

    OK(core_op_register("mine::half(Tensor a) -> Tensor", &schema));
    OK(core_function_register("mine::half", CORE_KEY_BACKEND, "cpu", host_half,
                              NULL, &kernel));
    OK(core_op_find("mine::half", &op));
    OK(core_setting_set("LIBCORE_FALLBACK", "count"));
    OK(core_op_call(op, &arg, 1, &result, 1));
    HOLDS(result.u.tensor, 2, 1, 2);
    core_tensor_release(result.u.tensor);
    result = (core_value){0};
    OK(core_capture_begin(stream, NULL));
    FAILS(core_op_call(op, &arg, 1, &result, 1), CORE_ERROR_UNSUPPORTED,
          "mine::half", "\"sim\"", "fallback", "capture");
    ck_assert_int_eq(result.tag, CORE_VALUE_NONE);
    FAILS(core_capture_end(stream, &graph), CORE_ERROR_UNSUPPORTED,
          "capture is invalid", "fallback");
    ck_assert_ptr_null(graph);
    OK(core_op_call(op, &arg, 1, &result, 1));
    HOLDS(result.u.tensor, 2, 1, 2);
    core_tensor_release(result.u.tensor);
    core_registration_release(kernel);
    core_registration_release(schema);
}
END_TEST

/* In the mode that compiles per shape. */
START_TEST(unprepared_plan_cannot_be_captured)
{
    core_tensor *a, *twice;
    core_graph *graph;

    setenv("LIBCORE_SIM_COMPILE", "1", 1);
    begin();
    a = on_sim(VECTOR(3, 1, 2, 3));
    OK(core_device_synchronize(sim));
    OK(core_capture_begin(stream, NULL));
    FAILS(core_add(a, a, core_int(1), &twice), CORE_ERROR_UNSUPPORTED,
          "add.Tensor", "plan", "\"sim\"");
    ck_assert_ptr_null(twice);
    FAILS(core_capture_end(stream, &graph), CORE_ERROR_UNSUPPORTED,
          "capture is invalid", "plan");
    ck_assert_ptr_null(graph);
    add(a, a); /* runs the calls once */
    OK(core_device_synchronize(sim));
    OK(core_capture_begin(stream, NULL));
    OK(core_add(a, a, core_int(1), &twice));
    OK(core_capture_end(stream, &graph));
    SET(a, 3, 4, 5, 6);
    OK(core_graph_launch(graph, stream));
    OK(core_stream_synchronize(stream));
    HOLDS(twice, 3, 8, 10, 12);
    core_tensor_release(twice);
    core_graph_release(graph);
    end();
}
END_TEST

START_TEST(step_counted_on_the_host_cannot_be_captured)
{
    core_adam_options options = {.struct_size = sizeof options,
                                 .learning_rate = 0.1,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .epsilon = 1e-8};
    core_tensor *w = leaf(on_sim(VECTOR(2, 1, 2)));
    core_optimizer *optimizer;

    OK(core_adam_create(&w, 1, &options, &optimizer));
    backward(sum(mul(w, w)));
    OK(core_optimizer_step(optimizer));
    OK(core_device_synchronize(sim));
    OK(core_capture_begin(stream, NULL));
    FAILS(core_optimizer_step(optimizer), CORE_ERROR_UNSUPPORTED, "Adam",
          "capture");
    OK(core_capture_end(stream, NULL));
    core_optimizer_release(optimizer);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        host_wait_invalidates_the_capture_with_a_reason,
        data_dependent_shape_cannot_be_captured,
        random_operator_cannot_be_captured_without_fill,
        wait_for_a_capturing_stream_is_refused,
        call_on_another_stream_invalidates_the_capture_of_that_stream,
        event_of_a_capture_invalidates_its_own_capture,
        event_of_an_ended_capture_invalidates_no_other,
        event_of_a_capture_is_unrecorded_afterwards,
        host_callback_invalidates_the_capture,
        capture_end_without_begin_is_refused,
        pool_of_another_device_is_refused,
        reset_ends_a_capture,
        loss_of_the_device_invalidates_its_graphs,
        reset_of_the_device_invalidates_its_graphs,
        stream_may_be_released_while_it_captures,
        fallback_cannot_be_captured,
        step_counted_on_the_host_cannot_be_captured,
    };
    const TTest *const plans_tests[] = {
        unprepared_plan_cannot_be_captured,
        shared_queue_cannot_be_captured,
    };
    const test_suite suites[] = {
        {
            .name = "capture/capture_refused",
            .setup = begin,
            .teardown = end,
            SUITE_TESTS(tests),
        },
        {
            .name = "capture/capture_refused, plans",
            .teardown = drop_all,
            SUITE_TESTS(plans_tests),
        },
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
