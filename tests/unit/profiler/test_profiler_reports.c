/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Reports of a session: traces, stacks, HTML pages. */

#include "support/profiler.h"

#include "base/memory.h"
#include "profiler/profile.h"

#include <pthread.h>

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

/* Records forward and backward on sim inside a range. */
static void record_something(void)
{
    core_tensor *a = leaf(on(VECTOR(2, 3, 4), "sim:0"));
    core_range range;

    start();
    range = core_range_begin("a; \"name\" </script>");
    backward(sum(mul(a, a)));
    core_range_end(range);
    stop();
}

START_TEST(trace_contains_threads_streams_memory_and_arrows)
{
    char *text;

    record_something();
    text = saved(core_profiler_save_trace);
    ck_assert(has(text, "\"name\": \"mul.Tensor\""));
    ck_assert(has(text, "\"shapes\": \"f64[2] f64[2]\""));
    ck_assert(has(text, "a; \\\"name\\\" </script>"));
    ck_assert(has(text, "\"cat\": \"kernel\""));
    ck_assert(has(text, "\"name\": \"sim\""));
    ck_assert(has(text, "\"name\": \"memory sim\""));
    ck_assert(has(text, "\"ph\": \"s\", \"name\": \"launch\""));
    ck_assert(has(text, "\"ph\": \"f\", \"name\": \"backward\""));
    free(text);
}
END_TEST

static core_tensor *sines, *exponentials;

static void *forward(void *of_sines)
{
    if (of_sines)
        OK(core_sin(sines, &sines));
    else
        OK(core_exp(exponentials, &exponentials));
    return NULL;
}

/* The threads number their nodes alike; a third thread runs the nodes. */
START_TEST(backward_arrows_start_in_the_forward_thread)
{
    core_tensor *a = leaf(on(VECTOR(2, 3, 4), "sim:0"));
    core_tensor *b = leaf(on(VECTOR(2, 3, 4), "sim:0"));
    core__node_correlation *links;
    pthread_t thread;
    size_t count;

    sines = a;
    exponentials = b;
    start();
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(
            pthread_create(&thread, NULL, forward, i ? NULL : &sines), 0);
        pthread_join(thread, NULL);
    }
    OK(core_backward((core_tensor *[]){keep(sines), keep(exponentials)}, 2,
                     (core_tensor *[]){a, b}, 0));
    stop();
    OK(core__node_correlations_make(profiler, &links, &count));
    ck_assert_uint_eq(count, 2);
    for (size_t i = 0; i < count; i++) {
        const char *from =
            profiler->parts[links[i].from_part].events[links[i].from].name;
        const char *to =
            profiler->parts[links[i].to_part].events[links[i].to].name;

        ck_assert_int_eq(strncmp(from, to, 3), 0);
    }
    core__free(links);
}
END_TEST

START_TEST(stacks_are_ordered_from_outermost_to_innermost)
{
    char *text;

    record_something();
    text = saved(core_profiler_save_stacks);
    ck_assert(has(text, ";a, \"name\" </script>;sum.dim_IntList") ||
              has(text, ";a, \"name\" </script>;sum"));
    ck_assert(has(text, ";mul.Tensor backward;mul.Tensor "));
    free(text);
}
END_TEST

START_TEST(page_is_self_contained_and_escapes_its_data)
{
    char *text, *at;
    int scripts = 0;

    record_something();
    text = saved(core_profiler_save_html);
    for (at = text; (at = strstr(at, "</script>")); at++)
        scripts++;
    ck_assert_int_eq(scripts, 2); /* none in the data */
    ck_assert(has(text, "\\u003c/script>"));
    ck_assert(has(text, "sim stream 0"));
    ck_assert(has(text, "\"remarks\": "));
    ck_assert(has(text, "sim: device times are "));
    ck_assert(!has(text, "http"));
    free(text);
}
END_TEST

/* The page condenses memory records to what a browser can draw. */
START_TEST(page_size_is_bounded_for_many_allocations)
{
    core_profiler_options options = {.struct_size = sizeof options,
                                     .flags = CORE_PROFILE_MEMORY,
                                     .limit = 200000};
    const int64_t small = 1000, large = 1000000;
    core_tensor *block;
    char *text, *memory;
    double most = 0;

    OK(core_profiler_start(&options, &profiler));
    for (int i = 0; i < 60000; i++) {
        OK(core_empty(i == 30000 ? &large : &small, 1, CORE_F32, NULL, -1,
                      &block));
        core_tensor_release(block);
    }
    stop();
    text = saved(core_profiler_save_html);
    memory = strstr(text, "\"memory\": [");
    ck_assert_ptr_nonnull(memory);
    *strstr(memory, "\"rows\": [") = '\0';
    ck_assert_uint_lt(strlen(memory), 1500000); /* 4 MB uncondensed */
    for (const char *at = memory; (at = strstr(at, ", ")); at++) {
        char *end;
        double bytes = strtod(at + 2, &end);

        if (*end == ']' && bytes > most)
            most = bytes;
    }
    ck_assert_double_ge(most, 4e6);
    free(text);
}
END_TEST

START_TEST(names_are_truncated_to_one_table_line)
{
    char *text;

    start();
    core_range_end(core_range_begin("two\nlines\tof\x1b"));
    core_range_end(
        core_range_begin("a name of thirty-three characters\u00e9\u00e9"));
    stop();
    OK(core_profiler_table(profiler, CORE_PROFILE_BY_SELF, 0, &text));
    ck_assert(has(text, "two?lines?of? (range) "));
    ck_assert(has(text, "a name of thirty-three characters\u00e9 ("));
    core_text_free(text);
}
END_TEST

/* A range may begin on another thread between a session's last clock reading
 * and its end. */
START_TEST(range_started_at_session_end_has_zero_length)
{
    const core__profile_round_settings rule = {0, 100};
    uint32_t round = UINT32_MAX - 1; /* not used by any session */
    core__profile_part *parts;
    uint64_t before;
    size_t count;

    core__profile_round_begin(round, &rule);
    before = core__profile_now();
    ck_assert_uint_ne(
        core__profile_event_begin(CORE_PROFILE_RANGE, "late", true), 0);
    core__profile_round_begin(0, NULL);
    OK(core__profile_round_take(round, before - 1, &parts, &count));
    ck_assert_uint_eq(count, 1);
    ck_assert_uint_eq(parts[0].nevents, 1);
    ck_assert_uint_ge(parts[0].events[0].begin, before);
    ck_assert_uint_eq(parts[0].events[0].end, parts[0].events[0].begin);
    core__profile_parts_free(parts, count);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        trace_contains_threads_streams_memory_and_arrows,
        backward_arrows_start_in_the_forward_thread,
        stacks_are_ordered_from_outermost_to_innermost,
        page_is_self_contained_and_escapes_its_data,
        page_size_is_bounded_for_many_allocations,
        names_are_truncated_to_one_table_line,
        range_started_at_session_end_has_zero_length,
    };
    const test_suite suite = {
        .name = "profiler/profiler_reports",
        .setup = setup,
        .teardown = teardown,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
