/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_host.call_record_stream and tensor_record_stream: kernels that enqueue
 * work on streams which the core does not know.  The mutant's neg runs on such
 * a stream, and records it under the rule records-its-own-stream. */

#define SUITE_FORKS true

#include "support/memory.h"

#include "device/stream.h"
#include "dispatch/dispatch.h"

#include <libcore/capture.h>
#include <libcore/plugins.h>

static core_plugin *plugin;

static void open_mutant(const char *rule)
{
    const char *build = getenv("LIBCORE_BUILD");
    char path[4096];

    setenv("LIBCORE_MUTANT_RULE", rule, 1);
    snprintf(path, sizeof path,
             "%s/tests/fixtures/mutants/.libs/core_mutant.so",
             build ? build : ".");
    OK(core_plugin_load(path, &plugin));
    sim_find("mutant");
}

/* A tensor that fills its segment, so that no other block can be used
 * instead. */
static core_tensor *whole(void)
{
    const int64_t n = 5 * (int64_t)MIB;
    core_tensor *made;

    OK(core_empty(&n, 1, CORE_F32, sim, -1, &made));
    return made;
}

/* Runs neg on a tensor that is released while the device is held; returns
 * whether its memory is reused before the work is done. */
static bool serves_again(const char *rule)
{
    core_tensor *in, *out, *later;
    core_memory before;
    bool again;

    open_mutant(rule);
    in = whole();
    before = in->storage->memory;
    OK(control->hold(0));
    OK(core_neg(in, &out));
    core_tensor_release(in);
    later = whole();
    again = later->storage->memory.handle == before.handle;
    OK(control->release(0));
    OK(core_device_synchronize(sim));
    core_tensor_release(later);
    core_tensor_release(out);
    return again;
}

START_TEST(memory_is_not_reused_before_the_recorded_stream_is_done)
{
    ck_assert(!serves_again("records-its-own-stream"));
    all_is_back();
}
END_TEST

START_TEST(memory_is_reused_if_no_stream_was_recorded)
{
    ck_assert(serves_again("does-not-record-its-own-stream"));
}
END_TEST

START_TEST(validate_accepts_streams_of_the_plugin)
{
    const char *breach;

    OK(core_setting_set("LIBCORE_INTERPOSERS", "validate"));
    ck_assert(!serves_again("records-its-own-stream"));
    ck_assert_msg(core_plugin_violations(plugin, &breach) == 0, "%s", breach);
    all_is_back();
}
END_TEST

START_TEST(last_of_several_records_on_one_stream_counts)
{
    core_tensor *in, *out, *later;
    core_memory before;
    uint64_t made;

    open_mutant("records-its-own-stream");
    in = whole();
    before = in->storage->memory;
    OK(core_neg(in, &out));
    made = core_device_events_created(sim);
    for (int i = 0; i < 10; i++)
        OK(core_neg_out(in, out));
    ck_assert_uint_eq(core_device_events_created(sim), made);
    OK(control->hold(0));
    OK(core_neg_out(in, out));
    core_tensor_release(in);
    later = whole();
    ck_assert_ptr_ne(later->storage->memory.handle, before.handle);
    OK(control->release(0));
    core_tensor_release(later);
    core_tensor_release(out);
    all_is_back();
}
END_TEST

START_TEST(record_stream_is_refused_during_a_capture)
{
    core_stream *maker;
    core_graph *graph = NULL; /* an invalidated capture has no graph */
    core_tensor *in, *out = NULL;

    open_mutant("records-its-own-stream");
    in = whole();
    maker = stream();
    OK(core_capture_begin(maker, NULL));
    FAILS(core_neg(in, &out), CORE_ERROR_UNSUPPORTED, "captured");
    ck_assert_ptr_null(out);
    core_capture_end(maker, &graph);
    core_graph_release(graph);
    core_tensor_release(in);
    core_stream_release(maker);
}
END_TEST

START_TEST(function_may_record_a_stream_of_the_core)
{
    core_stream *other, *own;
    core_tensor *t, *later;
    core_memory before;

    open_sim("");
    other = stream();
    OK(core_stream_default(sim, &own));
    t = whole();
    before = t->storage->memory;
    /* The stream that the memory belongs to needs no event. */
    OK(core__host.tensor_record_stream(t, own->impl));
    ck_assert_uint_eq(stats().events, 0);
    OK(control->hold(0));
    OK(core__host.tensor_record_stream(t, other->impl));
    ck_assert_uint_eq(stats().events, 1);
    core_tensor_release(t);
    later = whole();
    ck_assert_ptr_ne(later->storage->memory.handle, before.handle);
    OK(control->release(0));
    core_tensor_release(later);
    core_stream_release(other);
    all_is_back();
}
END_TEST

START_TEST(invalid_call_or_stream_is_refused)
{
    core_call call = {.struct_size = sizeof call};
    core_tensor *host;
    const int64_t n = 1;
    core_tensor *t;

    open_sim("");
    t = whole();
    FAILS(core__host.call_record_stream(&call, &call),
          CORE_ERROR_INVALID_ARGUMENT, "the call is not");
    FAILS(core__host.call_record_stream(NULL, &call),
          CORE_ERROR_INVALID_ARGUMENT, "the call is not");
    FAILS(core__host.tensor_record_stream(NULL, &call),
          CORE_ERROR_INVALID_ARGUMENT, "tensor");
    FAILS(core__host.tensor_record_stream(t, NULL), CORE_ERROR_INVALID_ARGUMENT,
          "stream", "sim");
    /* A synchronous device has nothing to wait for. */
    OK(core_empty(&n, 1, CORE_F32, NULL, -1, &host));
    OK(core__host.tensor_record_stream(host, NULL));
    core_tensor_release(host);
    core_tensor_release(t);
}
END_TEST

SUITE("memory/record_stream_host",
      memory_is_not_reused_before_the_recorded_stream_is_done,
      memory_is_reused_if_no_stream_was_recorded,
      validate_accepts_streams_of_the_plugin,
      last_of_several_records_on_one_stream_counts,
      record_stream_is_refused_during_a_capture,
      function_may_record_a_stream_of_the_core,
      invalid_call_or_stream_is_refused)
