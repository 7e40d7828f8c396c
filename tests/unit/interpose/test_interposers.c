/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The layers around a plugin: each breach of the contract is told, and a call
 * that would do harm is not made. */

#include "support/faulty_backend.h"
#include "support/suite.h"

static core_memory block_of(uint64_t size)
{
    core_memory made;

    ck_assert_int_eq(wrapped->memory->alloc(device, size, &made), CORE_OK);
    return made;
}

START_TEST(what_is_right_is_no_breach)
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
    ck_assert_uint_eq(core__layers_breaches(layers, &breach), 0);
    ck_assert_str_eq(breach, "");
    ck_assert_int_eq(nlines, 0);
}
END_TEST

START_TEST(a_slot_that_is_missing_stays_missing)
{
    ck_assert_ptr_null(wrapped->device_status);
    ck_assert_ptr_null(wrapped->device_information);
    ck_assert_ptr_null(wrapped->memory->fill);
    ck_assert_ptr_null(wrapped->memory->info);
}
END_TEST

START_TEST(memory_freed_twice_is_told_and_freed_once)
{
    core_memory a = block_of(512);

    wrapped->memory->free(device, a, 512);
    wrapped->memory->free(device, a, 512);
    told(1, "liar.free: destroys memory");
    told(1, "is gone already");
    ck_assert_int_eq(lie.frees, 1);
    a.handle = &lie;
    wrapped->memory->free(device, a, 512);
    told(2, "was never made");
    ck_assert_int_eq(lie.frees, 1);
}
END_TEST

START_TEST(a_size_that_was_not_allocated_is_told)
{
    wrapped->memory->free(device, block_of(512), 511);
    told(1, "with 511 bytes; it was made with 512");
}
END_TEST

START_TEST(bytes_outside_of_a_block_are_not_copied)
{
    core_memory a = block_of(512);

    ck_assert_int_eq(
        wrapped->memory->copy_from_host(device, stream, a, lines, 513),
        CORE_ERROR_INTERNAL);
    told(1, "liar.copy_from_host: bytes 0 to 513");
    assert_contains(core_error_message(), "validate: plugin liar");
    a.offset = 512;
    ck_assert_int_eq(wrapped->memory->copy_to_host(device, stream, lines, a, 1),
                     CORE_ERROR_INTERNAL);
    told(2, "bytes 512 to 513");
    ck_assert_int_eq(lie.copies, 0);
}
END_TEST

START_TEST(memory_that_is_gone_is_not_copied)
{
    core_memory a = block_of(512), b = block_of(512);

    wrapped->memory->free(device, a, 512);
    ck_assert_int_eq(wrapped->memory->copy(device, stream, b, a, 4),
                     CORE_ERROR_INTERNAL);
    told(1, "is gone");
    ck_assert_int_eq(lie.copies, 0);
}
END_TEST

START_TEST(null_of_the_host_is_not_copied)
{
    core_memory a = block_of(512);

    ck_assert_int_eq(
        wrapped->memory->copy_from_host(device, stream, a, NULL, 4),
        CORE_ERROR_INTERNAL);
    told(1, "libcore copies 4 bytes at NULL");
    ck_assert_int_eq(lie.copies, 0);
}
END_TEST

START_TEST(a_block_given_twice_is_told)
{
    core_memory a;

    lie.twice = true;
    block_of(512);
    ck_assert_int_eq(wrapped->memory->alloc(device, 512, &a),
                     CORE_ERROR_INTERNAL);
    told(1, "in use already");
}
END_TEST

START_TEST(misaligned_memory_is_told)
{
    core_memory a;

    lie.odd = true;
    ck_assert_int_eq(wrapped->memory->alloc(device, 512, &a),
                     CORE_ERROR_INTERNAL);
    told(1, "not aligned to 64");
}
END_TEST

START_TEST(properties_that_cannot_be_are_told)
{
    core_device_properties p = {.struct_size = sizeof p};

    lie.odd = true;
    ck_assert_int_eq(wrapped->device_properties(device, &p),
                     CORE_ERROR_INTERNAL);
    told(1, "48, which is no power of two");
}
END_TEST

START_TEST(no_device_wants_a_reason)
{
    core_string reason;
    uint32_t count;

    lie.odd = true;
    ck_assert_int_eq(wrapped->enumerate(wrapped->user, &count, &reason),
                     CORE_ERROR_INTERNAL);
    told(1, "gives no reason");
}
END_TEST

START_TEST(a_stream_that_is_gone_is_not_used)
{
    wrapped->streams->destroy(device, stream);
    ck_assert_int_eq(wrapped->streams->query(device, stream),
                     CORE_ERROR_INTERNAL);
    told(1, "uses a stream");
    wrapped->streams->destroy(device, stream);
    told(2, "is gone already");
    ck_assert_int_eq(lie.destroys, 1);
}
END_TEST

START_TEST(a_stream_that_is_null_is_told)
{
    void *other;

    lie.odd = true;
    ck_assert_int_eq(wrapped->streams->create(device, 0, &other),
                     CORE_ERROR_INTERNAL);
    told(1, "gives NULL");
}
END_TEST

START_TEST(an_event_that_was_not_recorded_is_not_asked)
{
    void *event;

    ck_assert_int_eq(wrapped->events->create(device, 0, &event), CORE_OK);
    ck_assert_int_eq(wrapped->events->query(device, event),
                     CORE_ERROR_INTERNAL);
    told(1, "never recorded");
    ck_assert_int_eq(wrapped->streams->wait_event(device, stream, event),
                     CORE_ERROR_INTERNAL);
    told(2, "never recorded");
}
END_TEST

START_TEST(waiting_is_never_busy)
{
    lie.status = CORE_ERROR_BUSY;
    ck_assert_int_eq(wrapped->streams->query(device, stream), CORE_ERROR_BUSY);
    ck_assert_int_eq(nlines, 0);
    ck_assert_int_eq(wrapped->streams->synchronize(device, stream),
                     CORE_ERROR_INTERNAL);
    told(1, "waits and answers that it is busy");
}
END_TEST

START_TEST(a_status_that_there_is_not_is_told)
{
    lie.silent = true;
    lie.status = 999;
    ck_assert_int_eq(wrapped->streams->synchronize(device, stream),
                     CORE_ERROR_INTERNAL);
    told(1, "the status 999");
}
END_TEST

START_TEST(a_failure_without_a_reason_is_told_and_stays_that_failure)
{
    lie.silent = true;
    lie.status = CORE_ERROR_OUT_OF_MEMORY;
    ck_assert_int_eq(wrapped->streams->synchronize(device, stream),
                     CORE_ERROR_OUT_OF_MEMORY);
    told(1, "does not say why");
}
END_TEST

START_TEST(a_changed_rounding_is_told)
{
#if defined __x86_64__ || defined __aarch64__
    lie.rounds = true;
    ck_assert_int_eq(wrapped->streams->synchronize(device, stream),
                     CORE_ERROR_INTERNAL);
    fesetround(FE_TONEAREST);
    told(1, "floating-point control word");
#endif
}
END_TEST

static void count_end(void *context)
{
    ++*(int *)context;
}

START_TEST(a_callback_that_ends_twice_ends_once)
{
    const core_host_callback_interface *table = wrapped->get_interface(
        wrapped->user, (core_string){"core.host_callback", 18}, 1);
    int ends = 0;

    ck_assert_int_eq(
        table->enqueue(device, stream, count_end, &ends, count_end), CORE_OK);
    lie.end(lie.context);
    ck_assert_int_eq(ends, 1);
    lie.end(lie.context);
    ck_assert_int_eq(ends, 1);
    told(1, "a second time");
}
END_TEST

START_TEST(a_callback_that_was_not_dropped_is_dropped)
{
    const core_host_callback_interface *table = wrapped->get_interface(
        wrapped->user, (core_string){"core.host_callback", 18}, 1);
    int ends = 0;

    lie.status = CORE_ERROR_INTERNAL;
    ck_assert_int_ne(
        table->enqueue(device, stream, count_end, &ends, count_end), CORE_OK);
    ck_assert_int_eq(ends, 1);
    told(1, "does not drop the callback");
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
START_TEST(a_wait_in_a_callback_is_told_and_not_made)
{
    const core_host_callback_interface *table = wrapped->get_interface(
        wrapped->user, (core_string){"core.host_callback", 18}, 1);
    void *event;

    ck_assert_int_eq(wrapped->events->create(device, 0, &event), CORE_OK);
    ck_assert_int_eq(wrapped->events->record(device, event, stream), CORE_OK);
    ck_assert_int_eq(
        table->enqueue(device, stream, wait_for_all, event, count_end),
        CORE_OK);
    lie.end(lie.context);
    told(2, "waits in a host callback");
    ck_assert_int_eq(wrapped->streams->synchronize(device, stream), CORE_OK);
    told(2, "waits in a host callback");
}
END_TEST

static void give_work(void *context)
{
    ck_assert_int_eq(wrapped->memory->alloc(device, 64, context),
                     CORE_ERROR_INTERNAL);
}

START_TEST(work_that_a_callback_gives_is_told)
{
    const core_host_callback_interface *table = wrapped->get_interface(
        wrapped->user, (core_string){"core.host_callback", 18}, 1);
    core_memory memory;

    ck_assert_int_eq(
        table->enqueue(device, stream, give_work, &memory, count_end), CORE_OK);
    lie.end(lie.context);
    told(1, "may only release");
    block_of(64);
    told(1, "may only release");
}
END_TEST

START_TEST(a_stream_that_captures_is_not_waited_for)
{
    const core_graph_capture_interface *table = wrapped->get_interface(
        wrapped->user, (core_string){"core.graph_capture", 18}, 1);
    void *graph;

    ck_assert_int_eq(table->begin(device, stream), CORE_OK);
    ck_assert_int_eq(nlines, 0);
    ck_assert_int_eq(wrapped->streams->synchronize(device, stream),
                     CORE_ERROR_INTERNAL);
    told(1, "waits for a stream");
    wrapped->streams->query(device, stream);
    told(2, "that captures");
    table->begin(device, stream);
    told(3, "captures already");
    ck_assert_int_eq(table->end(device, stream, &graph), CORE_OK);
    ck_assert_int_eq(wrapped->streams->synchronize(device, stream), CORE_OK);
    told(3, "captures already");
    table->destroy(device, graph);
    table->end(device, stream, &graph);
    told(4, "does not capture");
}
END_TEST

START_TEST(interfaces_of_others_pass)
{
    ck_assert_ptr_eq(
        wrapped->get_interface(wrapped->user, (core_string){"private", 7}, 1),
        block);
    ck_assert_ptr_null(wrapped->get_interface(
        wrapped->user, (core_string){"core.peer", 9}, 1));
}
END_TEST

START_TEST(a_device_closed_with_memory_is_told)
{
    block_of(64);
    wrapped->device_close(wrapped->user, device);
    told(1, "libcore leaves 1 blocks");
}
END_TEST

/* --------------------------------------------------------------- kernels -- */

static core_status touched(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    (void)args;
    (void)nargs;
    ck_assert_ptr_eq(call->user, &lie);
    ck_assert_ptr_eq(call->device, &backend);
    lie.launches++;
    if (lie.odd && nresults > 0)
        results[0].count++;
    return answer();
}

static core_status launch_with(core_memory where, int64_t size)
{
    const core_kernel given = {.struct_size = sizeof given,
                               .name = {"mm", 2},
                               .launch = touched,
                               .user = &lie};
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

    ck_assert_int_eq(
        core__layers_kernel(layers, (core_string){"liar", 4}, &given, &kernel),
        CORE_OK);
    ck_assert(kernel->launch != touched);
    call.user = kernel->user;
    return kernel->launch(&call, values, 1, values + 1, 1);
}

START_TEST(a_kernel_within_its_memory_runs)
{
    ck_assert_int_eq(launch_with(block_of(64), 16), CORE_OK);
    ck_assert_int_eq(lie.launches, 1);
    ck_assert_int_eq(nlines, 0);
}
END_TEST

START_TEST(a_kernel_beyond_its_memory_does_not_run)
{
    ck_assert_int_eq(launch_with(block_of(64), 17), CORE_ERROR_INTERNAL);
    told(2, "bytes 0 to 68"); /* argument and result */
    ck_assert_int_eq(lie.launches, 0);
}
END_TEST

START_TEST(a_kernel_that_changes_its_results_values_is_told)
{
    lie.odd = true;
    lie.twice = true;
    ck_assert_int_eq(launch_with((core_memory){&lie, 0}, 4),
                     CORE_ERROR_INTERNAL);
    told(1, "changes result 0 itself");
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
    return answer();
}

START_TEST(a_failing_function_that_leaves_a_result_is_told)
{
    core_function function = leaves;
    void *user = NULL;
    core_value result = {0};
    core_call call = {.struct_size = offsetof(core_call, loop), .host = &host};

    ck_assert_int_eq(core__layers_function(layers, (core_string){"liar::f", 7},
                                           &function, &user),
                     CORE_OK);
    call.user = user;
    ck_assert_int_eq(function(&call, NULL, 0, &result, 1), CORE_OK);
    result = (core_value){0};
    lie.status = CORE_ERROR_SHAPE;
    ck_assert_int_eq(function(&call, NULL, 0, &result, 1), CORE_ERROR_INTERNAL);
    ck_assert_uint_eq(result.tag, CORE_VALUE_NONE);
    told(1, "fails and leaves result 0");
}
END_TEST

/* ------------------------------------------------------------------ outwards -- */

START_TEST(calls_that_do_not_run_get_nothing_of_the_host)
{
    core_call call = {.struct_size = sizeof call};
    const core_view *view;
    core_memory scratch;
    int64_t size = 1;

    ck_assert_int_eq(host.call_scratch(&call, 64, &scratch),
                     CORE_ERROR_INTERNAL);
    told(1, "does not run");
    ck_assert_int_eq(
        host.call_allocate_result(&call, 0, CORE_F32, 1, &size, &view),
        CORE_ERROR_INTERNAL);
    told(2, "does not run");
    host.call_drop(&call);
    told(3, "was never made");
    ck_assert_int_eq(host.call_record_stream(&call, &call),
                     CORE_ERROR_INTERNAL);
    told(4, "does not run");
    ck_assert_int_eq(host.tensor_record_stream(NULL, NULL),
                     CORE_ERROR_INTERNAL);
    told(5, "the stream NULL");
}
END_TEST

START_TEST(errors_that_say_nothing_are_told)
{
    core_error_info info = {.struct_size = sizeof info,
                            .code = CORE_ERROR_SHAPE,
                            .text = {NULL, 7}};

    host.error(&info);
    told(1, "7 bytes of text");
    info = (core_error_info){.struct_size = sizeof info, .text = {"x", 1}};
    host.error(&info);
    told(2, "CORE_OK");
    host.error(NULL);
    told(3, "no information");
}
END_TEST

START_TEST(null_is_given_back_to_the_plugin)
{
    core_view view;

    ck_assert_int_eq(host.tensor_view(NULL, &view), CORE_ERROR_INTERNAL);
    host.tensor_retain(NULL);
    ck_assert_int_eq(host.operator_call(NULL, NULL, 0, NULL, 0),
                     CORE_ERROR_INTERNAL);
    told(3, "op (nil)");
}
END_TEST

/* ----------------------------------------------------------- trace, fault -- */

START_TEST(a_traced_call_is_a_line)
{
    begin("trace", NULL);
    block_of(512);
    ck_assert_int_eq(nlines, 1);
    assert_contains(lines[0], "trace: liar <- liar.alloc(");
    assert_contains(lines[0], ", 512 -> ");
    assert_contains(lines[0], "= CORE_OK");
    host.call_drop(NULL);
    ck_assert_int_eq(nlines, 2);
    assert_contains(lines[1], "liar -> host.call_drop(");
}
END_TEST

START_TEST(the_nth_call_of_a_kind_fails)
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
    ck_assert_int_eq(lie.copies, 0);
}
END_TEST

START_TEST(words_that_are_none_are_refused)
{
    static const char *const faults[] = {"alloc",   "alloc:",   "alloc:0",
                                         "alloc:x", "alloc:3x", "moon:3"};
    core__layers *made;

    setenv("LIBCORE_FAULT", "allocate:1", 1);
    setenv("LIBCORE_LAYERS", "validate,loud", 1);
    ck_assert_int_eq(core__layers_begin("x", &made),
                     CORE_ERROR_INVALID_ARGUMENT);
    assert_contains(core_error_message(), "\"loud\"");
    core_setting_set("LIBCORE_LAYERS", "fault");
    ck_assert_int_eq(core__layers_begin("x", &made),
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

START_TEST(without_layers_the_plugins_own_functions_are_called)
{
    core_plugin *plugin = load();
    const char *breach;

    ck_assert_ptr_null(plugin->layers);
    ck_assert(plugin->host.call_scratch == core__host.call_scratch);
    ck_assert_ptr_eq(plugin->registry.backends[0]->table.user, NULL);
    ck_assert_uint_eq(core_plugin_violations(plugin, &breach), 0);
    ck_assert_str_eq(breach, "");
}
END_TEST

START_TEST(a_plugin_with_layers_comes_and_goes)
{
    core_setting_set("LIBCORE_LAYERS", "validate,fault");
    for (int i = 0; i < 20; i++) {
        core_plugin *plugin = load();
        core_device *found;

        ck_assert_ptr_nonnull(plugin->layers);
        ck_assert(plugin->host.call_scratch != core__host.call_scratch);
        ck_assert_int_eq(core_device_find("good", &found), CORE_OK);
        core_plugin_release(plugin);
        ck_assert_msg(core_plugin_unload(plugin, 1000000000) == CORE_OK, "%s",
                      core_error_message());
        ck_assert_uint_eq(core_plugin_violations(plugin, NULL), 0);
    }
}
END_TEST

START_TEST(a_wrong_word_fails_the_load_and_says_so)
{
    core_plugin *plugin;

    ck_assert_int_eq(core_setting_set("LIBCORE_LAYERS", "validat"),
                     CORE_ERROR_INVALID_ARGUMENT);
    setenv("LIBCORE_LAYERS", "validat", 1);
    ck_assert_int_eq(core_plugin_load(fixture("good"), &plugin),
                     CORE_ERROR_INVALID_ARGUMENT);
    assert_contains(core_error_message(), "\"validat\"");
}
END_TEST

int main(void)
{
    const TTest *const checks_tests[] = {
        what_is_right_is_no_breach,
        a_slot_that_is_missing_stays_missing,
        memory_freed_twice_is_told_and_freed_once,
        a_size_that_was_not_allocated_is_told,
        bytes_outside_of_a_block_are_not_copied,
        memory_that_is_gone_is_not_copied,
        null_of_the_host_is_not_copied,
        a_block_given_twice_is_told,
        misaligned_memory_is_told,
        properties_that_cannot_be_are_told,
        no_device_wants_a_reason,
        a_stream_that_is_gone_is_not_used,
        a_stream_that_is_null_is_told,
        an_event_that_was_not_recorded_is_not_asked,
        waiting_is_never_busy,
        a_status_that_there_is_not_is_told,
        a_failure_without_a_reason_is_told_and_stays_that_failure,
        a_changed_rounding_is_told,
        a_callback_that_ends_twice_ends_once,
        a_callback_that_was_not_dropped_is_dropped,
        a_wait_in_a_callback_is_told_and_not_made,
        work_that_a_callback_gives_is_told,
        a_stream_that_captures_is_not_waited_for,
        interfaces_of_others_pass,
        a_device_closed_with_memory_is_told,
        a_kernel_within_its_memory_runs,
        a_kernel_beyond_its_memory_does_not_run,
        a_kernel_that_changes_its_results_values_is_told,
        a_failing_function_that_leaves_a_result_is_told,
        calls_that_do_not_run_get_nothing_of_the_host,
        errors_that_say_nothing_are_told,
        null_is_given_back_to_the_plugin,
    };
    const TTest *const others_tests[] = {
        a_traced_call_is_a_line,
        the_nth_call_of_a_kind_fails,
        words_that_are_none_are_refused,
    };
    const TTest *const plugins_tests[] = {
        without_layers_the_plugins_own_functions_are_called,
        a_plugin_with_layers_comes_and_goes,
        a_wrong_word_fails_the_load_and_says_so,
    };
    const test_suite suites[] = {
        {
            .name = "validate",
            .setup = validate,
            .teardown = end,
            SUITE_TESTS(checks_tests),
        },
        {
            .name = "others",
            SUITE_TESTS(others_tests),
        },
        {
            .name = "plugins",
            .setup = folder_make,
            .teardown = folder_remove,
            SUITE_TESTS(plugins_tests),
        },
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
