/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_host.call_record_stream and tensor_record_stream: kernels that leave
 * work on streams which the core does not know.  The mutant's neg runs on such
 * a one, and says so under the rule names-its-own-stream. */

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

/* What is all of its segment, so that no other block serves in its place. */
static core_tensor *whole(void)
{
    const int64_t n = 5 * (int64_t)MIB;
    core_tensor *made;

    OK(core_empty(&n, 1, CORE_F32, sim, -1, &made));
    return made;
}

/* neg of a tensor that is released while the device does nothing; whether its
 * memory serves again before the work is done. */
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
    OK(control->let_go(0));
    OK(core_device_synchronize(sim));
    core_tensor_release(later);
    core_tensor_release(out);
    return again;
}

START_TEST(memory_that_a_plugins_own_stream_uses_waits_for_it)
{
    ck_assert(!serves_again("names-its-own-stream"));
    all_is_back();
}
END_TEST

START_TEST(without_a_word_the_core_cannot_know)
{
    ck_assert(serves_again("hides-its-own-stream"));
}
END_TEST

START_TEST(layers_know_that_a_stream_may_be_the_plugins_own)
{
    const char *breach;

    OK(core_setting_set("LIBCORE_LAYERS", "validate"));
    ck_assert(!serves_again("names-its-own-stream"));
    ck_assert_msg(core_plugin_violations(plugin, &breach) == 0, "%s", breach);
    all_is_back();
}
END_TEST

START_TEST(of_many_words_on_one_stream_the_last_counts)
{
    core_tensor *in, *out, *later;
    core_memory before;
    uint64_t made;

    open_mutant("names-its-own-stream");
    in = whole();
    before = in->storage->memory;
    OK(core_neg(in, &out));
    made = core_device_events_made(sim);
    for (int i = 0; i < 100; i++)
        OK(core_neg_out(in, out));
    ck_assert_uint_eq(core_device_events_made(sim), made);
    OK(control->hold(0));
    OK(core_neg_out(in, out));
    core_tensor_release(in);
    later = whole();
    ck_assert_ptr_ne(later->storage->memory.handle, before.handle);
    OK(control->let_go(0));
    core_tensor_release(later);
    core_tensor_release(out);
    all_is_back();
}
END_TEST

START_TEST(while_work_is_captured_a_word_is_refused)
{
    core_stream *maker;
    core_graph *graph = NULL; /* what is spoilt has none */
    core_tensor *in, *out = NULL;

    open_mutant("names-its-own-stream");
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

START_TEST(a_function_names_a_stream_of_the_core)
{
    core_stream *other, *own;
    core_tensor *t, *later;
    core_memory before;

    open_sim("");
    other = stream();
    OK(core_stream_default(sim, &own));
    t = whole();
    before = t->storage->memory;
    /* The stream that it belongs to needs no event. */
    OK(core__host.tensor_record_stream(t, own->impl));
    ck_assert_uint_eq(stats().events, 0);
    OK(control->hold(0));
    OK(core__host.tensor_record_stream(t, other->impl));
    ck_assert_uint_eq(stats().events, 1);
    core_tensor_release(t);
    later = whole();
    ck_assert_ptr_ne(later->storage->memory.handle, before.handle);
    OK(control->let_go(0));
    core_tensor_release(later);
    core_stream_release(other);
    all_is_back();
}
END_TEST

START_TEST(what_is_no_call_or_no_stream_is_refused)
{
    core_call call = {.struct_size = sizeof call};
    core_tensor *host;
    const int64_t n = 1;
    core_tensor *t;

    open_sim("");
    t = whole();
    FAILS(core__host.call_record_stream(&call, &call),
          CORE_ERROR_INVALID_ARGUMENT, "no call");
    FAILS(core__host.call_record_stream(NULL, &call),
          CORE_ERROR_INVALID_ARGUMENT, "no call");
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

SUITE("record word", memory_that_a_plugins_own_stream_uses_waits_for_it,
      without_a_word_the_core_cannot_know,
      layers_know_that_a_stream_may_be_the_plugins_own,
      of_many_words_on_one_stream_the_last_counts,
      while_work_is_captured_a_word_is_refused,
      a_function_names_a_stream_of_the_core,
      what_is_no_call_or_no_stream_is_refused)
