/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The interposers around a plugin: each violation of the contract is reported,
 * and a call that would do harm is not passed on. */

#define SUITE_FORKS true

#include "support/faulty_backend.h"
#include "support/suite.h"

static core_memory block_of(uint64_t size)
{
    core_memory made;

    ck_assert_int_eq(wrapped->memory->alloc(device, size, &made), CORE_OK);
    return made;
}

START_TEST(correct_calls_are_not_violations)
{
    core_memory a = block_of(512), b = block_of(512);
    const char *breach;
    void *event;

    ck_assert_int_eq(
        wrapped->memory->copy_from_host(device, stream, a, lines, 512),
        CORE_OK);
    b.offset = 256;
    ck_assert_int_eq(wrapped->memory->copy(device, stream, b, a, 256), CORE_OK);
    b.offset = 0;
    ck_assert_int_eq(wrapped->events->create(device, 0, &event), CORE_OK);
    ck_assert_int_eq(wrapped->events->record(device, event, stream), CORE_OK);
    ck_assert_int_eq(wrapped->streams->wait_event(device, stream, event),
                     CORE_OK);
    wrapped->events->destroy(device, event);
    wrapped->memory->free(device, a, 512);
    wrapped->memory->free(device, b, 512);
    wrapped->streams->destroy(device, stream);
    wrapped->device_close(wrapped->user, device);
    ck_assert_uint_eq(core__interposers_violations(interposers, &breach), 0);
    ck_assert_str_eq(breach, "");
    ck_assert_int_eq(nlines, 0);
}
END_TEST

START_TEST(missing_slot_stays_missing)
{
    ck_assert_ptr_null(wrapped->device_status);
    ck_assert_ptr_null(wrapped->device_information);
    ck_assert_ptr_null(wrapped->memory->info);
}
END_TEST

START_TEST(double_free_is_reported_and_memory_freed_once)
{
    core_memory a = block_of(512);

    wrapped->memory->free(device, a, 512);
    wrapped->memory->free(device, a, 512);
    reported(1, "faulty.free: destroys memory");
    reported(1, "was already destroyed");
    ck_assert_int_eq(behaviour.frees, 1);
    a.handle = &behaviour;
    wrapped->memory->free(device, a, 512);
    reported(2, "was never created");
    ck_assert_int_eq(behaviour.frees, 1);
}
END_TEST

START_TEST(free_with_another_size_is_reported)
{
    wrapped->memory->free(device, block_of(512), 511);
    reported(1, "with 511 bytes; it was allocated with 512");
}
END_TEST

START_TEST(copy_outside_of_a_block_is_not_passed_on)
{
    core_memory a = block_of(512);

    ck_assert_int_eq(
        wrapped->memory->copy_from_host(device, stream, a, lines, 513),
        CORE_ERROR_INTERNAL);
    reported(1, "faulty.copy_from_host: bytes 0 to 513");
    assert_contains(core_error_message(), "validate: plugin faulty");
    a.offset = 512;
    ck_assert_int_eq(wrapped->memory->copy_to_host(device, stream, lines, a, 1),
                     CORE_ERROR_INTERNAL);
    reported(2, "bytes 512 to 513");
    ck_assert_int_eq(behaviour.copies, 0);
}
END_TEST

START_TEST(copy_of_freed_memory_is_not_passed_on)
{
    core_memory a = block_of(512), b = block_of(512);

    wrapped->memory->free(device, a, 512);
    ck_assert_int_eq(wrapped->memory->copy(device, stream, b, a, 4),
                     CORE_ERROR_INTERNAL);
    reported(1, "was freed");
    ck_assert_int_eq(behaviour.copies, 0);
}
END_TEST

START_TEST(copy_from_null_is_not_passed_on)
{
    core_memory a = block_of(512);

    ck_assert_int_eq(
        wrapped->memory->copy_from_host(device, stream, a, NULL, 4),
        CORE_ERROR_INTERNAL);
    reported(1, "libcore copies 4 bytes at NULL");
    ck_assert_int_eq(behaviour.copies, 0);
}
END_TEST

START_TEST(block_returned_twice_is_reported)
{
    core_memory a;

    behaviour.twice = true;
    block_of(512);
    ck_assert_int_eq(wrapped->memory->alloc(device, 512, &a),
                     CORE_ERROR_INTERNAL);
    reported(1, "already in use");
}
END_TEST

START_TEST(misaligned_memory_is_reported)
{
    core_memory a;

    behaviour.odd = true;
    ck_assert_int_eq(wrapped->memory->alloc(device, 512, &a),
                     CORE_ERROR_INTERNAL);
    reported(1, "not aligned to 64");
}
END_TEST

START_TEST(impossible_properties_are_reported)
{
    core_device_properties p = {.struct_size = sizeof p};

    behaviour.odd = true;
    ck_assert_int_eq(wrapped->device_properties(device, &p),
                     CORE_ERROR_INTERNAL);
    reported(1, "48, which is not a power of two");
}
END_TEST

START_TEST(zero_devices_without_a_reason_is_reported)
{
    core_string reason;
    uint32_t count;

    behaviour.odd = true;
    ck_assert_int_eq(wrapped->enumerate(wrapped->user, &count, &reason),
                     CORE_ERROR_INTERNAL);
    reported(1, "no reason");
}
END_TEST

START_TEST(destroyed_stream_is_not_passed_on)
{
    wrapped->streams->destroy(device, stream);
    ck_assert_int_eq(wrapped->streams->query(device, stream),
                     CORE_ERROR_INTERNAL);
    reported(1, "uses a stream");
    wrapped->streams->destroy(device, stream);
    reported(2, "was already destroyed");
    ck_assert_int_eq(behaviour.destroys, 1);
}
END_TEST

START_TEST(null_stream_is_reported)
{
    void *other;

    behaviour.odd = true;
    ck_assert_int_eq(wrapped->streams->create(device, 0, &other),
                     CORE_ERROR_INTERNAL);
    reported(1, "returns NULL as the handle of a stream");
}
END_TEST

START_TEST(null_memory_is_reported)
{
    core_memory memory;

    behaviour.null = true;
    ck_assert_int_eq(wrapped->memory->alloc(device, 64, &memory),
                     CORE_ERROR_INTERNAL);
    reported(1, "returns NULL as the handle of memory");
}
END_TEST

START_TEST(unrecorded_event_is_not_queried)
{
    void *event;

    ck_assert_int_eq(wrapped->events->create(device, 0, &event), CORE_OK);
    ck_assert_int_eq(wrapped->events->query(device, event),
                     CORE_ERROR_INTERNAL);
    reported(1, "never recorded");
    ck_assert_int_eq(wrapped->streams->wait_event(device, stream, event),
                     CORE_ERROR_INTERNAL);
    reported(2, "never recorded");
}
END_TEST

START_TEST(wait_that_returns_busy_is_reported)
{
    behaviour.status = CORE_ERROR_BUSY;
    ck_assert_int_eq(wrapped->streams->query(device, stream), CORE_ERROR_BUSY);
    ck_assert_int_eq(nlines, 0);
    ck_assert_int_eq(wrapped->streams->synchronize(device, stream),
                     CORE_ERROR_INTERNAL);
    reported(1, "waits and returns BUSY");
}
END_TEST

START_TEST(unknown_status_is_reported)
{
    behaviour.silent = true;
    behaviour.status = 999;
    ck_assert_int_eq(wrapped->streams->synchronize(device, stream),
                     CORE_ERROR_INTERNAL);
    reported(1, "the unknown status 999");
}
END_TEST

START_TEST(failure_without_a_message_is_reported_and_keeps_its_status)
{
    behaviour.silent = true;
    behaviour.status = CORE_ERROR_OUT_OF_MEMORY;
    ck_assert_int_eq(wrapped->streams->synchronize(device, stream),
                     CORE_ERROR_OUT_OF_MEMORY);
    reported(1, "reports no error");
}
END_TEST

START_TEST(changed_rounding_mode_is_reported)
{
#if defined __x86_64__ || defined __aarch64__
    behaviour.rounds = true;
    ck_assert_int_eq(wrapped->streams->synchronize(device, stream),
                     CORE_ERROR_INTERNAL);
    fesetround(FE_TONEAREST);
    reported(1, "floating-point control word");
#endif
}
END_TEST

static void count_end(void *context)
{
    ++*(int *)context;
}

START_TEST(callback_that_is_called_twice_runs_once)
{
    const core_host_callback_interface *table = wrapped->get_interface(
        wrapped->user, (core_string){"core.host_callback", 18}, 1);
    int ends = 0;

    ck_assert_int_eq(
        table->enqueue(device, stream, count_end, &ends, count_end), CORE_OK);
    behaviour.end(behaviour.context);
    ck_assert_int_eq(ends, 1);
    behaviour.end(behaviour.context);
    ck_assert_int_eq(ends, 1);
    reported(1, "ends a callback twice");
}
END_TEST

START_TEST(undropped_callback_is_dropped)
{
    const core_host_callback_interface *table = wrapped->get_interface(
        wrapped->user, (core_string){"core.host_callback", 18}, 1);
    int ends = 0;

    behaviour.status = CORE_ERROR_INTERNAL;
    ck_assert_int_ne(
        table->enqueue(device, stream, count_end, &ends, count_end), CORE_OK);
    ck_assert_int_eq(ends, 1);
    reported(1, "does not drop the callback");
}
END_TEST

static void wait_for_all(void *context)
{
    void *event = context;

    ck_assert_int_eq(wrapped->streams->synchronize(device, stream),
                     CORE_ERROR_INTERNAL);
    ck_assert_int_eq(wrapped->events->synchronize(device, event),
                     CORE_ERROR_INTERNAL);
    ck_assert_int_eq(wrapped->events->record(device, event, stream), CORE_OK);
}

/* It would wait for itself. */
START_TEST(wait_in_a_callback_is_reported_and_not_passed_on)
{
    const core_host_callback_interface *table = wrapped->get_interface(
        wrapped->user, (core_string){"core.host_callback", 18}, 1);
    void *event;

    ck_assert_int_eq(wrapped->events->create(device, 0, &event), CORE_OK);
    ck_assert_int_eq(wrapped->events->record(device, event, stream), CORE_OK);
    ck_assert_int_eq(
        table->enqueue(device, stream, wait_for_all, event, count_end),
        CORE_OK);
    behaviour.end(behaviour.context);
    reported(2, "waits in a host callback");
    ck_assert_int_eq(wrapped->streams->synchronize(device, stream), CORE_OK);
    reported(2, "waits in a host callback");
}
END_TEST

static void give_work(void *context)
{
    ck_assert_int_eq(wrapped->memory->alloc(device, 64, context),
                     CORE_ERROR_INTERNAL);
}

START_TEST(work_enqueued_in_a_callback_is_reported)
{
    const core_host_callback_interface *table = wrapped->get_interface(
        wrapped->user, (core_string){"core.host_callback", 18}, 1);
    core_memory memory;

    ck_assert_int_eq(
        table->enqueue(device, stream, give_work, &memory, count_end), CORE_OK);
    behaviour.end(behaviour.context);
    reported(1, "may only release");
    block_of(64);
    reported(1, "may only release");
}
END_TEST

START_TEST(wait_for_a_capturing_stream_is_not_passed_on)
{
    const core_graph_capture_interface *table = wrapped->get_interface(
        wrapped->user, (core_string){"core.graph_capture", 18}, 1);
    void *graph;

    ck_assert_int_eq(table->begin(device, stream), CORE_OK);
    ck_assert_int_eq(nlines, 0);
    ck_assert_int_eq(wrapped->streams->synchronize(device, stream),
                     CORE_ERROR_INTERNAL);
    reported(1, "waits for a stream");
    wrapped->streams->query(device, stream);
    reported(2, "that is capturing");
    table->begin(device, stream);
    reported(3, "is already capturing");
    ck_assert_int_eq(table->end(device, stream, &graph), CORE_OK);
    ck_assert_int_eq(wrapped->streams->synchronize(device, stream), CORE_OK);
    reported(3, "is already capturing");
    table->destroy(device, graph);
    table->end(device, stream, &graph);
    reported(4, "is not capturing");
}
END_TEST

START_TEST(unknown_interfaces_are_passed_through)
{
    ck_assert_ptr_eq(
        wrapped->get_interface(wrapped->user, (core_string){"private", 7}, 1),
        block);
    ck_assert_ptr_null(wrapped->get_interface(
        wrapped->user, (core_string){"core.peer", 9}, 1));
}
END_TEST

START_TEST(device_closed_with_live_memory_is_reported)
{
    block_of(64);
    wrapped->device_close(wrapped->user, device);
    reported(1, "libcore does not free 1 blocks");
}
END_TEST

/* --------------------------------------------------------------- kernels -- */

static core_status touched(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    (void)args;
    (void)nargs;
    ck_assert_ptr_eq(call->user, &behaviour);
    ck_assert_ptr_eq(call->device, &backend);
    behaviour.launches++;
    if (behaviour.odd && nresults > 0)
        results[0].count++;
    return respond();
}

static core_status launch_with(core_memory where, int64_t size)
{
    const core_kernel given = {.struct_size = sizeof given,
                               .name = {"mm", 2},
                               .launch = touched,
                               .user = &behaviour};
    const core_kernel *kernel;
    int64_t stride = 1;
    core_view view = {.struct_size = sizeof view,
                      .dtype = CORE_F32,
                      .memory = where,
                      .sizes = &size,
                      .strides = &stride,
                      .numel = size,
                      .ndim = 1};
    core_value values[2] = {{CORE_VALUE_VIEW, 0, {.view = &view}},
                            {CORE_VALUE_VIEW, 0, {.view = &view}}};
    core_call call = {.struct_size = sizeof call,
                      .host = &host,
                      .device = device,
                      .stream = stream};

    ck_assert_int_eq(core__interposers_kernel(interposers,
                                              (core_string){"faulty", 6},
                                              &given, &kernel),
                     CORE_OK);
    ck_assert(kernel->launch != touched);
    call.user = kernel->user;
    return kernel->launch(&call, values, 1, values + 1, 1);
}

START_TEST(kernel_within_its_memory_runs)
{
    ck_assert_int_eq(launch_with(block_of(64), 16), CORE_OK);
    ck_assert_int_eq(behaviour.launches, 1);
    ck_assert_int_eq(nlines, 0);
}
END_TEST

START_TEST(kernel_beyond_its_memory_does_not_run)
{
    ck_assert_int_eq(launch_with(block_of(64), 17), CORE_ERROR_INTERNAL);
    reported(2, "bytes 0 to 68"); /* argument and result */
    ck_assert_int_eq(behaviour.launches, 0);
}
END_TEST

START_TEST(kernel_that_changes_given_results_is_reported)
{
    behaviour.odd = true;
    behaviour.twice = true;
    ck_assert_int_eq(launch_with((core_memory){&behaviour, 0}, 4),
                     CORE_ERROR_INTERNAL);
    reported(1, "changes the value of result 0");
}
END_TEST

static core_status leaves(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    (void)call;
    (void)args;
    (void)nargs;
    (void)nresults;
    results[0] = (core_value){CORE_VALUE_INT, 0, {.i = 1}};
    return respond();
}

START_TEST(failing_function_that_sets_a_result_is_reported)
{
    core_function function = leaves;
    void *user = NULL;
    core_value result = {0};
    core_call call = {.struct_size = offsetof(core_call, loop), .host = &host};

    ck_assert_int_eq(core__interposers_function(interposers,
                                                (core_string){"faulty::f", 9},
                                                &function, &user),
                     CORE_OK);
    call.user = user;
    ck_assert_int_eq(function(&call, NULL, 0, &result, 1), CORE_OK);
    result = (core_value){0};
    behaviour.status = CORE_ERROR_SHAPE;
    ck_assert_int_eq(function(&call, NULL, 0, &result, 1), CORE_ERROR_INTERNAL);
    ck_assert_uint_eq(result.tag, CORE_VALUE_NONE);
    reported(1, "fails and leaves a value in result 0");
}
END_TEST

static core_status infers_once(void *user, const core_value *args,
                               uint32_t nargs, core_result_shape *shapes,
                               uint32_t nresults)
{
    int64_t *calls = user;

    (void)args;
    (void)nargs;
    (void)nresults;
    shapes[0] = (core_result_shape){CORE_F32, 1, {++*calls}};
    return respond();
}

START_TEST(shape_function_that_is_not_pure_is_reported)
{
    core_shape_function shape = infers_once;
    int64_t calls = 0;
    void *user = &calls;
    core_result_shape out = {0};

    ck_assert_int_eq(core__interposers_shape(interposers,
                                             (core_string){"faulty::f", 9},
                                             &shape, &user),
                     CORE_OK);
    ck_assert(shape != infers_once);
    ck_assert_int_eq(shape(user, NULL, 0, &out, 1), CORE_ERROR_INTERNAL);
    reported(1, "faulty::f.shape: infers another result 0");
}
END_TEST

/* ------------------------------------------------------------------ outwards -- */

START_TEST(host_refuses_calls_that_are_not_running)
{
    core_call call = {.struct_size = sizeof call};
    const core_view *view;
    core_memory scratch;
    int64_t size = 1;

    ck_assert_int_eq(host.call_scratch(&call, 64, &scratch),
                     CORE_ERROR_INTERNAL);
    reported(1, "is not running");
    ck_assert_int_eq(
        host.call_allocate_result(&call, 0, CORE_F32, 1, &size, &view),
        CORE_ERROR_INTERNAL);
    reported(2, "is not running");
    host.call_drop(&call);
    reported(3, "was never created");
    ck_assert_int_eq(host.call_record_stream(&call, &call),
                     CORE_ERROR_INTERNAL);
    reported(4, "is not running");
    ck_assert_int_eq(host.tensor_record_stream(NULL, NULL),
                     CORE_ERROR_INTERNAL);
    reported(5, "a NULL stream");
    ck_assert_int_eq(host.call_view_content(&call, NULL, NULL),
                     CORE_ERROR_INTERNAL);
    reported(7, "view (nil), content (nil)");
    ck_assert_int_eq(host.devices_changed((core_string){NULL, 3}),
                     CORE_ERROR_INTERNAL);
    reported(8, "a device type of 3 bytes");
    ck_assert_int_eq(host.redispatch_displaced(NULL, NULL, 0, NULL, 0),
                     CORE_ERROR_INTERNAL);
    reported(9, "redispatch_displaced: call (nil)");
    ck_assert_int_eq(host.redispatch_below(&call, NULL, 2, NULL, 0),
                     CORE_ERROR_INTERNAL);
    reported(10, "2 arguments at (nil)");
}
END_TEST

START_TEST(errors_without_a_message_are_reported)
{
    core_error_info info = {.struct_size = sizeof info,
                            .code = CORE_ERROR_SHAPE,
                            .text = {NULL, 7}};

    host.error(&info);
    reported(1, "7 bytes of text");
    info = (core_error_info){.struct_size = sizeof info, .text = {"x", 1}};
    host.error(&info);
    reported(2, "CORE_OK");
    host.error(NULL);
    reported(3, "no error information");
}
END_TEST

START_TEST(null_from_the_plugin_is_refused)
{
    core_view view;

    ck_assert_int_eq(host.tensor_view(NULL, &view), CORE_ERROR_INTERNAL);
    host.tensor_retain(NULL);
    ck_assert_int_eq(host.operator_call(NULL, NULL, 0, NULL, 0),
                     CORE_ERROR_INTERNAL);
    reported(3, "op (nil)");
}
END_TEST

/* ----------------------------------------------------------- trace, fault -- */

static core_status produce(void *context)
{
    core_status *status = context;

    return *status == CORE_OK ? CORE_OK
                              : core__error(*status, "as the test requests");
}

/* One column of two operands: the result is operand 1. */
static core_status follow(uint32_t result, core_status produced)
{
    static const int64_t size = 4, stride = 4;
    const core_codegen_interface *table = wrapped->get_interface(
        wrapped->user, (core_string){"core.codegen", 12}, 1);
    const core_loop_program program = {0};
    core_operand operands[2] = {{.flags = 0}};
    core_loop loop = {.ndim = 1,
                      .noperands = 2,
                      .noutputs = 1,
                      .numel = size,
                      .sizes = &size,
                      .operands = operands};
    const core_loop_launch launch = {
        .struct_size = sizeof launch, .stream = stream, .loop = &loop};
    core_status status;
    void *kernel;

    for (int i = 0; i < 2; i++)
        operands[i] = (core_operand){
            .dtype = CORE_F32, .memory = block_of(64), .strides = &stride};
    ck_assert_int_eq(table->build(device, &program, NULL, &kernel), CORE_OK);
    status = table->launch_after(device, kernel, &launch, result, produce,
                                 &produced);
    table->destroy(device, kernel);
    for (int i = 0; i < 2; i++)
        wrapped->memory->free(device, operands[i].memory, 64);
    return status;
}

START_TEST(kernel_that_follows_another_launches_it_once)
{
    const char *breach;

    behaviour.produces = 1;
    ck_assert_int_eq(follow(1, CORE_OK), CORE_OK);
    ck_assert_int_eq(follow(1, CORE_ERROR_DTYPE), CORE_ERROR_DTYPE);
    ck_assert_uint_eq(core__interposers_violations(interposers, &breach), 0);
    behaviour.produces = 2;
    follow(1, CORE_OK);
    reported(1, "calls produce 2 times");
    behaviour.produces = 0;
    follow(1, CORE_OK);
    reported(2, "calls produce 0 times");
    behaviour.produces = 1;
    behaviour.silent = true;
    follow(1, CORE_ERROR_DTYPE);
    reported(3, "faulty.codegen.launch_after: ");
}
END_TEST

START_TEST(kernel_that_follows_another_reads_its_result)
{
    behaviour.produces = 1;
    follow(0, CORE_OK);
    reported(1, "operand 0 is not an input");
    follow(2, CORE_OK);
    reported(2, "operand 2 is not an input");
}
END_TEST

START_TEST(traced_call_is_one_line)
{
    begin("trace", NULL);
    block_of(512);
    ck_assert_int_eq(nlines, 1);
    assert_contains(lines[0], "trace: faulty <- faulty.alloc(");
    assert_contains(lines[0], ", 512 -> ");
    assert_contains(lines[0], "= CORE_OK");
    host.call_drop(NULL);
    ck_assert_int_eq(nlines, 2);
    assert_contains(lines[1], "faulty -> host.call_drop(");
}
END_TEST

START_TEST(nth_call_of_a_kind_fails)
{
    core_memory a;

    begin("fault", "alloc:2, copy:1+");
    block_of(64);
    ck_assert_int_eq(wrapped->memory->alloc(device, 64, &a),
                     CORE_ERROR_OUT_OF_MEMORY);
    assert_contains(core_error_message(), "call 2 of kind \"alloc\"");
    a = block_of(64);
    for (int i = 0; i < 3; i++)
        ck_assert_int_ne(
            wrapped->memory->copy_from_host(device, stream, a, lines, 4),
            CORE_OK);
    ck_assert_int_eq(behaviour.copies, 0);
}
END_TEST

START_TEST(unknown_setting_values_are_refused)
{
    static const char *const faults[] = {"alloc",   "alloc:",   "alloc:0",
                                         "alloc:x", "alloc:3x", "moon:3"};
    core__interposers *made;

    setenv("LIBCORE_FAULT", "allocate:1", 1);
    setenv("LIBCORE_INTERPOSERS", "validate,loud", 1);
    ck_assert_int_eq(core__interposers_begin("x", &made),
                     CORE_ERROR_INVALID_ARGUMENT);
    assert_contains(core_error_message(), "\"loud\"");
    core_setting_set("LIBCORE_INTERPOSERS", "fault");
    ck_assert_int_eq(core__interposers_begin("x", &made),
                     CORE_ERROR_INVALID_ARGUMENT);
    assert_contains(core_error_message(), "\"allocate:1\"");
    ck_assert_ptr_null(made);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        ck_assert_int_eq(core_setting_set("LIBCORE_FAULT", faults[i]),
                         CORE_ERROR_INVALID_ARGUMENT);
        assert_contains(core_error_message(), faults[i]);
    }
}
END_TEST

/* -------------------------------------------------------------- a plugin -- */

static core_plugin *load(void)
{
    core_plugin *plugin;

    ck_assert_msg(core_plugin_load(fixture("good"), &plugin) == CORE_OK, "%s",
                  core_error_message());
    return plugin;
}

START_TEST(plugin_functions_are_called_directly_without_interposers)
{
    core_plugin *plugin = load();
    const char *breach;

    ck_assert_ptr_null(plugin->interposers);
    ck_assert(plugin->host.call_scratch == core__host.call_scratch);
    ck_assert_ptr_eq(plugin->registry.backends[0]->table.user, NULL);
    ck_assert_uint_eq(core_plugin_violations(plugin, &breach), 0);
    ck_assert_str_eq(breach, "");
}
END_TEST

START_TEST(plugin_with_interposers_is_loaded_and_unloaded)
{
    core_setting_set("LIBCORE_INTERPOSERS", "validate,fault");
    for (int i = 0; i < 20; i++) {
        core_plugin *plugin = load();
        core_device *found;

        ck_assert_ptr_nonnull(plugin->interposers);
        ck_assert(plugin->host.call_scratch != core__host.call_scratch);
        ck_assert_int_eq(core_device_find("good", &found), CORE_OK);
        core_plugin_release(plugin);
        ck_assert_msg(core_plugin_unload(plugin, 1000000000) == CORE_OK, "%s",
                      core_error_message());
        ck_assert_uint_eq(core_plugin_violations(plugin, NULL), 0);
    }
}
END_TEST

START_TEST(unknown_interposer_fails_the_load_with_a_reason)
{
    core_plugin *plugin;

    ck_assert_int_eq(core_setting_set("LIBCORE_INTERPOSERS", "validat"),
                     CORE_ERROR_INVALID_ARGUMENT);
    setenv("LIBCORE_INTERPOSERS", "validat", 1);
    ck_assert_int_eq(core_plugin_load(fixture("good"), &plugin),
                     CORE_ERROR_INVALID_ARGUMENT);
    assert_contains(core_error_message(), "\"validat\"");
}
END_TEST

int main(void)
{
    const TTest *const checks_tests[] = {
        correct_calls_are_not_violations,
        missing_slot_stays_missing,
        double_free_is_reported_and_memory_freed_once,
        free_with_another_size_is_reported,
        copy_outside_of_a_block_is_not_passed_on,
        copy_of_freed_memory_is_not_passed_on,
        copy_from_null_is_not_passed_on,
        block_returned_twice_is_reported,
        misaligned_memory_is_reported,
        impossible_properties_are_reported,
        zero_devices_without_a_reason_is_reported,
        destroyed_stream_is_not_passed_on,
        null_stream_is_reported,
        null_memory_is_reported,
        unrecorded_event_is_not_queried,
        wait_that_returns_busy_is_reported,
        unknown_status_is_reported,
        failure_without_a_message_is_reported_and_keeps_its_status,
        changed_rounding_mode_is_reported,
        callback_that_is_called_twice_runs_once,
        undropped_callback_is_dropped,
        wait_in_a_callback_is_reported_and_not_passed_on,
        work_enqueued_in_a_callback_is_reported,
        wait_for_a_capturing_stream_is_not_passed_on,
        unknown_interfaces_are_passed_through,
        device_closed_with_live_memory_is_reported,
        kernel_within_its_memory_runs,
        kernel_beyond_its_memory_does_not_run,
        kernel_that_changes_given_results_is_reported,
        failing_function_that_sets_a_result_is_reported,
        shape_function_that_is_not_pure_is_reported,
        host_refuses_calls_that_are_not_running,
        errors_without_a_message_are_reported,
        null_from_the_plugin_is_refused,
        kernel_that_follows_another_launches_it_once,
        kernel_that_follows_another_reads_its_result,
    };
    const TTest *const others_tests[] = {
        traced_call_is_one_line,
        nth_call_of_a_kind_fails,
        unknown_setting_values_are_refused,
    };
    const TTest *const plugins_tests[] = {
        plugin_functions_are_called_directly_without_interposers,
        plugin_with_interposers_is_loaded_and_unloaded,
        unknown_interposer_fails_the_load_with_a_reason,
    };
    const test_suite suites[] = {
        {
            .name = "interpose/interposers, validate",
            .setup = validate,
            .teardown = end,
            SUITE_TESTS(checks_tests),
        },
        {
            .name = "interpose/interposers, others",
            SUITE_TESTS(others_tests),
        },
        {
            .name = "interpose/interposers, plugins",
            .setup = folder_make,
            .teardown = folder_remove,
            SUITE_TESTS(plugins_tests),
        },
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
