/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Settings of the allocator, and what it reports: statistics, the table, the
 * snapshot and its history. */

#define SUITE_FORKS true

#include "support/memory.h"

#include <libcore/tensor.h>

#include <ctype.h>

static core__allocator *allocator(void)
{
    return sim->allocator;
}

/* --------------------------------------------------------------- settings -- */

START_TEST(environment_sets_the_initial_settings_of_devices)
{
    OK(core_setting_set("LIBCORE_ALLOC",
                        "roundup_power2_divisions:8, max_split_size_mb:32,"
                        "garbage_collection_threshold:0.75,fraction:0.5,"
                        "expandable_segments:true,caching:false"));
    open_sim("caching:true"); /* later, so it takes precedence */
    ck_assert_uint_eq(allocator()->settings.divisions, 8);
    ck_assert_uint_eq(allocator()->settings.max_split, 32 * MIB);
    ck_assert(allocator()->settings.gc_threshold == 0.75);
    ck_assert(allocator()->settings.fraction == 0.5);
    ck_assert(allocator()->settings.expandable);
    ck_assert(allocator()->settings.caching);
}
END_TEST

START_TEST(invalid_environment_is_reported_when_a_device_opens)
{
    setenv("LIBCORE_ALLOC", "fraction:2", 1);
    FAILS(core_device_find("sim", &sim), CORE_ERROR_INVALID_ARGUMENT,
          "LIBCORE_ALLOC", "fraction", "\"2\"", "up to 1");
    FAILS(core_setting_set("LIBCORE_ALLOC", "fraction:3"),
          CORE_ERROR_INVALID_ARGUMENT, "LIBCORE_ALLOC", "\"3\"");
    OK(core_setting_set("LIBCORE_ALLOC", "fraction:1"));
    OK(core_device_find("sim", &sim));
}
END_TEST

static _Atomic int rounds;
enum { ROUNDS = 100 };

static core__alloc_settings settings_now(void)
{
    core__alloc_settings settings;

    pthread_mutex_lock(&allocator()->lock);
    settings = allocator()->settings;
    pthread_mutex_unlock(&allocator()->lock);
    return settings;
}

/* Changes the fraction and checks it after the other thread's change. */
static void *change_fraction(void *out_lost)
{
    int round;

    while ((round = atomic_load(&rounds)) < ROUNDS) {
        double fraction = round % 2 ? 0.5 : 0.25;

        OK(core_memory_set_fraction(sim, fraction));
        while (atomic_load(&rounds) == round)
            sched_yield();
        *(int *)out_lost += settings_now().fraction != fraction;
    }
    return NULL;
}

/* Reading such a text takes long enough for another change. */
static char *long_settings(const char *pair)
{
    enum { PAIRS = 5000 };
    size_t size = strlen(pair);
    char *text = malloc(PAIRS * size + 1);

    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < PAIRS; i++)
        memcpy(text + i * size, pair, size);
    text[PAIRS * size] = '\0';
    return text;
}

START_TEST(concurrent_changes_of_different_settings_are_all_kept)
{
    char *texts[] = {long_settings("roundup_power2_divisions:8,"),
                     long_settings("roundup_power2_divisions:4,")};
    int lost_here = 0, lost_there = 0;
    pthread_t thread;

    open_sim("");
    ck_assert_int_eq(
        pthread_create(&thread, NULL, change_fraction, &lost_there), 0);
    for (int i = 0; i < ROUNDS; i++) {
        OK(core_memory_configure(sim, texts[i % 2]));
        lost_here += settings_now().divisions != (i % 2 ? 4 : 8);
        atomic_fetch_add(&rounds, 1);
    }
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(lost_here, 0);
    ck_assert_int_eq(lost_there, 0);
    free(texts[0]);
    free(texts[1]);
}
END_TEST

START_TEST(bad_values_are_refused_and_nothing_changes)
{
    static const char *const bad[][2] = {
        {"max_split_size_mb:19", "20 or more"},
        {"max_split_size_mb:-1", "20 or more"},
        {"max_split_size_mb:", "20 or more"},
        {"max_split_size_mb:99999999999999999999", "20 or more"},
        {"roundup_power2_divisions:3", "power of two"},
        {"roundup_power2_divisions:128", "power of two"},
        {"garbage_collection_threshold:0", "above 0"},
        {"garbage_collection_threshold:1.01", "up to 1"},
        {"garbage_collection_threshold:nan", "above 0"},
        {"garbage_collection_threshold:0.5x", "above 0"},
        {"fraction:0", "above 0"},
        {"fraction:-0.5", "above 0"},
        {"fraction:inf", "above 0"},
        {"expandable_segments:yes", "true or false"},
        {"caching:2", "true or false"},
        {"caching", "name:value"},
        {"cashing:true", "core_memory_configure: \"cashing\" is not a setting"},
        {":true", "\"\" is not a setting"},
    };
    core__alloc_settings before;

    open_sim("");
    before = allocator()->settings;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[128];

        snprintf(text, sizeof text, "max_split_size_mb:64,%s", bad[i][0]);
        FAILS(core_memory_configure(sim, text), CORE_ERROR_INVALID_ARGUMENT,
              bad[i][1]);
        FAILS(core_memory_configure(NULL, text), CORE_ERROR_INVALID_ARGUMENT,
              bad[i][1]);
        ck_assert_uint_eq(allocator()->settings.max_split, before.max_split);
    }
    FAILS(core_memory_configure(sim, NULL), CORE_ERROR_INVALID_ARGUMENT,
          "settings");
    FAILS(core_memory_set_fraction(sim, 0), CORE_ERROR_INVALID_ARGUMENT,
          "above 0");
    FAILS(core_memory_set_fraction(sim, 1.5), CORE_ERROR_INVALID_ARGUMENT,
          "up to 1");
    FAILS(core_memory_set_fraction(NULL, 0.5), CORE_ERROR_INVALID_ARGUMENT,
          "device");
    OK(core_memory_configure(sim, "")); /* an empty setting */
    OK(core_memory_configure(sim, " , max_split_size_mb : 64 ,"));
    ck_assert_uint_eq(allocator()->settings.max_split, 64 * MIB);
}
END_TEST

START_TEST(settings_may_change_while_blocks_are_in_use)
{
    piece p, q, r;

    open_sim("");
    p = take(700);
    OK(core_memory_configure(sim, "caching:false"));
    q = take(700);
    ck_assert_uint_eq(counters().blocks, 2);
    OK(core_memory_configure(sim, "caching:true,expandable_segments:true"));
    r = take(3 * MIB);
    ck_assert_uint_eq(counters().reservations, 1);
    OK(core_memory_configure(sim, "expandable_segments:false"));
    give(q);
    ck_assert_uint_eq(counters().blocks, 2); /* one of them is the range */
    give(p);
    give(r);
    all_is_back();
    ck_assert_uint_eq(counters().reservations, 0);
}
END_TEST

START_TEST(settings_the_device_does_not_support_are_refused)
{
    open_sim("");
    allocator()->vm_step = 0;
    FAILS(core_memory_configure(sim, "expandable_segments:true"),
          CORE_ERROR_UNSUPPORTED, "sim", "virtual memory");
    allocator()->total = 0;
    FAILS(core_memory_set_fraction(sim, 0.5), CORE_ERROR_UNSUPPORTED,
          "how much");
    ck_assert(!allocator()->settings.expandable);
}
END_TEST

START_TEST(host_memory_device_refuses_allocator_calls)
{
    core_memory_stats s = {.struct_size = sizeof s};
    core_memory_pool *pool;
    int64_t n = 1000;
    core_tensor *tensor;
    core_device *cpu;
    uint64_t before;
    char *text;

    OK(core_device_find("cpu", &cpu));
    FAILS(core_memory_configure(cpu, "caching:true"), CORE_ERROR_UNSUPPORTED,
          "core_memory_configure", "cpu");
    FAILS(core_memory_set_fraction(cpu, 0.5), CORE_ERROR_UNSUPPORTED, "cpu");
    FAILS(core_memory_empty_cache(cpu), CORE_ERROR_UNSUPPORTED, "cpu");
    FAILS(core_memory_snapshot(cpu, &text), CORE_ERROR_UNSUPPORTED, "cpu");
    FAILS(core_memory_record_history(cpu, 1), CORE_ERROR_UNSUPPORTED, "cpu");
    FAILS(core_memory_pool_create(cpu, &pool), CORE_ERROR_UNSUPPORTED, "cpu");
    OK(core_memory_get_stats(cpu, &s));
    before = s.allocations[0].current;
    OK(core_empty(&n, 1, CORE_F32, cpu, -1, &tensor));
    OK(core_memory_get_stats(cpu, &s));
    ck_assert_uint_eq(s.allocations[0].current, before + 1);
    core_tensor_release(tensor);
    OK(core_memory_reset_peaks(cpu));
    OK(core_memory_summary(cpu, &text));
    ck_assert_ptr_nonnull(strstr(text, "cpu"));
    core_text_free(text);
}
END_TEST

START_TEST(small_host_blocks_are_cached_for_the_next_tensor)
{
    for (int64_t n = 1; n < 100000; n *= 10) {
        void *data, *again;
        core_tensor *tensor;

        OK(core_empty(&n, 1, CORE_F32, NULL, -1, &tensor));
        OK(core_tensor_data(tensor, &data));
        core_tensor_release(tensor);
        OK(core_empty(&n, 1, CORE_F32, NULL, -1, &tensor));
        OK(core_tensor_data(tensor, &again));
        ck_assert_ptr_eq(again, data);
        core_tensor_release(tensor);
    }
}
END_TEST

/* ------------------------------------------------------------- statistics -- */

static void stat_is(core_memory_stat s, uint64_t current, uint64_t peak,
                    uint64_t allocated, uint64_t freed)
{
    ck_assert_uint_eq(s.current, current);
    ck_assert_uint_eq(s.peak, peak);
    ck_assert_uint_eq(s.allocated, allocated);
    ck_assert_uint_eq(s.freed, freed);
}

START_TEST(statistics_count_small_and_large_separately_and_together)
{
    core_memory_stats s;
    piece a, b, c;

    open_sim("");
    a = take(100);
    b = take(1000);
    c = take(3 * MIB);
    give(a);
    s = stats();
    stat_is(s.allocations[CORE_MEMORY_SMALL], 1, 2, 2, 1);
    stat_is(s.allocations[CORE_MEMORY_LARGE], 1, 1, 1, 0);
    stat_is(s.allocations[CORE_MEMORY_ALL], 2, 3, 3, 1);
    stat_is(s.active[CORE_MEMORY_ALL], 2, 3, 3, 1);
    stat_is(s.segments[CORE_MEMORY_SMALL], 1, 1, 1, 0);
    stat_is(s.segments[CORE_MEMORY_ALL], 2, 2, 2, 0);
    stat_is(s.requested_bytes[CORE_MEMORY_SMALL], 1000, 1100, 1100, 100);
    stat_is(s.allocated_bytes[CORE_MEMORY_SMALL], 1024, 1536, 1536, 512);
    stat_is(s.active_bytes[CORE_MEMORY_ALL], 3 * MIB + 1024, 3 * MIB + 1536,
            3 * MIB + 1536, 512);
    stat_is(s.reserved_bytes[CORE_MEMORY_ALL], 22 * MIB, 22 * MIB, 22 * MIB, 0);
    /* before b, after b, after c */
    ck_assert_uint_eq(s.inactive_split[CORE_MEMORY_SMALL].current, 2);
    ck_assert_uint_eq(s.inactive_split[CORE_MEMORY_LARGE].current, 1);
    ck_assert_uint_eq(s.inactive_split_bytes[CORE_MEMORY_SMALL].current,
                      2 * MIB - 1024);
    ck_assert_uint_eq(s.inactive_split_bytes[CORE_MEMORY_LARGE].current,
                      17 * MIB);
    give(b);
    give(c);
    ck_assert_uint_eq(stats().inactive_split[CORE_MEMORY_ALL].current, 0);
    all_is_back();
}
END_TEST

START_TEST(peaks_restart_when_they_are_reset)
{
    piece a, b;

    open_sim("");
    a = take(100);
    b = take(5 * MIB);
    give(b);
    OK(core_memory_reset_peaks(sim));
    ck_assert_uint_eq(stats().allocated_bytes[0].peak, 512);
    ck_assert_uint_eq(stats().allocations[0].peak, 1);
    b = take(1000);
    ck_assert_uint_eq(stats().allocated_bytes[0].peak, 1536);
    give(b);
    ck_assert_uint_eq(stats().allocated_bytes[0].peak, 1536);
    ck_assert_uint_eq(stats().allocated_bytes[0].allocated, 5 * MIB + 1536);
    give(a);
}
END_TEST

/* Each stream has its own counts, but the peak is that of the device. */
START_TEST(peak_of_several_streams_is_that_of_their_sum)
{
    core_stream *streams[3];
    uint64_t held[3] = {0}, most = 0, random = 7;
    piece pieces[3][8];
    int counts[3] = {0};

    open_sim("");
    for (int i = 0; i < 3; i++)
        streams[i] = stream();
    for (int step = 0; step < 3000; step++) {
        int i, j;

        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        i = (int)(random >> 33) % 3;
        j = counts[i];
        if (j < 8 && (random >> 40) % 2) {
            pieces[i][j] = take_on(streams[i], 512 * (1 + (random >> 45) % 90));
            held[i] += pieces[i][j].capacity;
            counts[i]++;
        } else if (j > 0) {
            give(pieces[i][j - 1]);
            held[i] -= pieces[i][j - 1].capacity;
            counts[i]--;
        }
        if (held[0] + held[1] + held[2] > most)
            most = held[0] + held[1] + held[2];
        if (step == 1500) {
            OK(core_memory_reset_peaks(sim));
            most = held[0] + held[1] + held[2];
        }
        if (step % 100 == 0) {
            ck_assert_uint_eq(stats().allocated_bytes[0].peak, most);
            ck_assert_uint_eq(stats().active_bytes[0].peak, most);
        }
    }
    ck_assert_uint_eq(stats().allocated_bytes[0].peak, most);
    for (int i = 0; i < 3; i++) {
        while (counts[i] > 0)
            give(pieces[i][--counts[i]]);
        core_stream_release(streams[i]);
    }
    all_is_back();
}
END_TEST

START_TEST(older_program_gets_the_statistics_that_it_knows)
{
    core_memory_stats s;

    open_sim("");
    memset(&s, 0xee, sizeof s);
    s.struct_size = offsetof(core_memory_stats, segments);
    OK(core_memory_get_stats(sim, &s));
    ck_assert_uint_eq(s.allocations[0].current, 0);
    ck_assert_uint_eq(s.segments[0].current, UINT64_C(0xeeeeeeeeeeeeeeee));
    ck_assert_uint_eq(s.struct_size, offsetof(core_memory_stats, segments));
    s.struct_size = 2;
    FAILS(core_memory_get_stats(sim, &s), CORE_ERROR_INVALID_ARGUMENT,
          "struct_size");
    FAILS(core_memory_get_stats(sim, NULL), CORE_ERROR_INVALID_ARGUMENT, "out");
    FAILS(core_memory_get_stats(NULL, &s), CORE_ERROR_INVALID_ARGUMENT,
          "device");
}
END_TEST

START_TEST(table_matches_the_statistics)
{
    char *text;
    piece p;

    open_sim("");
    p = take(3 * MIB);
    OK(core_memory_summary(sim, &text));
    ck_assert_ptr_nonnull(strstr(text, "memory of sim"));
    ck_assert_ptr_nonnull(strstr(text, "allocated bytes"));
    ck_assert_ptr_nonnull(strstr(text, "3.00 MiB"));
    ck_assert_ptr_nonnull(strstr(text, "20.00 MiB"));
    ck_assert_ptr_nonnull(strstr(text, "out of memory 0"));
    core_text_free(text);
    FAILS(core_memory_summary(sim, NULL), CORE_ERROR_INVALID_ARGUMENT,
          "out_text");
    give(p);
}
END_TEST

/* --------------------------------------------------------------- snapshot -- */

static const char *skip_value(const char *at);

static const char *skip_text(const char *at)
{
    ck_assert_int_eq(*at, '"');
    for (at++; *at != '"'; at++) {
        ck_assert(*at >= ' ');
        at += *at == '\\';
    }
    return at + 1;
}

/* Skips a list without spaces. */
static const char *skip_list(const char *at, char end)
{
    if (*at == end)
        return at + 1;
    for (;; at++) {
        if (end == '}') {
            at = skip_text(at);
            ck_assert_int_eq(*at++, ':');
        }
        at = skip_value(at);
        if (*at == end)
            return at + 1;
        ck_assert_int_eq(*at, ',');
    }
}

static const char *skip_value(const char *at)
{
    char *end;

    if (*at == '{' || *at == '[')
        return skip_list(at + 1, *at == '{' ? '}' : ']');
    if (*at == '"')
        return skip_text(at);
    for (int i = 0; i < 3; i++) {
        const char *word = ((const char *[]){"true", "false", "null"})[i];

        if (strncmp(at, word, strlen(word)) == 0)
            return at + strlen(word);
    }
    strtod(at, &end);
    ck_assert_msg(end != at, "no JSON: %.40s", at);
    return end;
}

/* The snapshot, checked and without spaces between values. */
static char *snapshot(void)
{
    bool quoted = false;
    char *json, *to;

    OK(core_memory_snapshot(sim, &json));
    to = json;
    for (const char *from = json; *from; from++) {
        quoted ^= *from == '"'; /* strings contain no escaped quotes */
        if (quoted || !isspace((unsigned char)*from))
            *to++ = *from;
    }
    *to = '\0';
    ck_assert_str_eq(skip_value(json), "");
    return json;
}

static int count(const char *text, const char *what)
{
    int found = 0;

    for (; (text = strstr(text, what)) != NULL; text++)
        found++;
    return found;
}

START_TEST(snapshot_has_every_segment_and_block)
{
    core_memory_pool *pool;
    core_stream *other;
    char *json, text[128];
    piece p, q, r;

    open_sim("max_split_size_mb:64");
    other = stream();
    OK(core_memory_pool_create(sim, &pool));
    p = take(1000);
    q = take_on(other, 3 * MIB);
    OK(core_memory_pool_begin(pool));
    r = take(700);
    OK(core_memory_pool_end(pool));
    json = snapshot();
    ck_assert_ptr_nonnull(strstr(json, "\"device\":\"sim"));
    ck_assert_ptr_nonnull(strstr(json,
                                 "\"settings\":\"max_split_size_mb:64,"
                                 "expandable_segments:false,caching:true\""));
    ck_assert_int_eq(count(json, "\"address\":"), 3);
    ck_assert_int_eq(count(json, "\"pool\":null"), 2);
    ck_assert_int_eq(count(json, "\"state\":\"active\""), 3);
    ck_assert_int_eq(count(json, "\"state\":\"free\""), 3);
    ck_assert_ptr_nonnull(strstr(json, "{\"offset\":0,\"size\":1024,"
                                       "\"requested\":1000,"
                                       "\"state\":\"active\"}"));
    snprintf(text, sizeof text, "\"size\":%llu,\"stream\":%llu,",
             (unsigned long long)(20 * MIB),
             (unsigned long long)core_stream_id(other));
    ck_assert_ptr_nonnull(strstr(json, text));
    ck_assert_ptr_nonnull(strstr(json, "\"history\":[]"));
    core_text_free(json);
    OK(control->hold(0));
    OK(core__allocator_record(sim, p.block, other));
    give(p);
    json = snapshot();
    ck_assert_int_eq(count(json, "\"state\":\"awaiting\""), 1);
    core_text_free(json);
    OK(control->release(0));
    give(q);
    give(r);
    core_memory_pool_release(pool);
    core_stream_release(other);
    all_is_back();
    json = snapshot();
    ck_assert_ptr_nonnull(strstr(json, "\"segments\":[]"));
    core_text_free(json);
}
END_TEST

START_TEST(snapshot_of_a_range_omits_unmapped_parts)
{
    char *json;
    piece p;

    open_sim("expandable_segments:true");
    p = take(3 * MIB);
    json = snapshot();
    ck_assert_int_eq(count(json, "\"address\":"), 1);
    ck_assert_int_eq(count(json, "\"expandable\":true"), 1);
    ck_assert_int_eq(count(json, "\"offset\":"), 2);
    ck_assert_ptr_nonnull(strstr(json, "\"size\":20971520,\"stream\":0"));
    core_text_free(json);
    give(p);
}
END_TEST

START_TEST(history_contains_the_last_actions)
{
    static const char *const actions[] = {"segment_alloc", "alloc",
                                          "free_requested", "free_completed"};
    const char *at;
    char *json;
    piece p;

    open_sim("");
    OK(core_memory_record_history(sim, 4));
    give(take(3 * MIB));
    at = json = snapshot();
    for (int i = 0; i < 4; i++) {
        char text[64];

        snprintf(text, sizeof text, "\"action\":\"%s\",", actions[i]);
        at = strstr(at, text);
        ck_assert_msg(at != NULL, "%s is not in %s", text, json);
    }
    ck_assert_int_eq(count(json, "\"time_ns\":"), 4);
    core_text_free(json);
    for (int i = 0; i < 10; i++)
        give(take(1000)); /* the ring buffer wraps */
    OK(core_memory_empty_cache(sim));
    json = snapshot();
    ck_assert_int_eq(count(json, "\"action\":"), 4);
    ck_assert_int_eq(count(json, "\"segment_free\""), 2);
    core_text_free(json);
    OK(control->limit(MIB));
    FAILS(try_take(3 * MIB, &p), CORE_ERROR_OUT_OF_MEMORY, "out of memory");
    /* The plugin's own words are kept. */
    ck_assert_msg(strstr(core_error_message(), ". sim: ") != NULL, "%s",
                  core_error_message());
    json = snapshot();
    ck_assert_int_eq(count(json, "\"oom\""), 1);
    core_text_free(json);
    OK(core_memory_record_history(sim, 0));
    json = snapshot();
    ck_assert_ptr_nonnull(strstr(json, "\"history\":[]"));
    core_text_free(json);
    FAILS(core_memory_record_history(sim, UINT64_MAX),
          CORE_ERROR_INVALID_ARGUMENT, "2^32");
}
END_TEST

START_TEST(history_records_memory_mapped_to_and_unmapped_from_ranges)
{
    char *json;

    open_sim("expandable_segments:true");
    OK(core_memory_record_history(sim, 100));
    give(take(3 * MIB));
    OK(core_memory_empty_cache(sim));
    json = snapshot();
    ck_assert_int_eq(count(json, "\"segment_map\""), 1);
    ck_assert_int_eq(count(json, "\"segment_unmap\""), 1);
    core_text_free(json);
}
END_TEST

SUITE("memory/memory_settings",
      environment_sets_the_initial_settings_of_devices,
      invalid_environment_is_reported_when_a_device_opens,
      concurrent_changes_of_different_settings_are_all_kept,
      bad_values_are_refused_and_nothing_changes,
      settings_may_change_while_blocks_are_in_use,
      settings_the_device_does_not_support_are_refused,
      host_memory_device_refuses_allocator_calls,
      small_host_blocks_are_cached_for_the_next_tensor,
      statistics_count_small_and_large_separately_and_together,
      peaks_restart_when_they_are_reset,
      peak_of_several_streams_is_that_of_their_sum,
      older_program_gets_the_statistics_that_it_knows,
      table_matches_the_statistics, snapshot_has_every_segment_and_block,
      snapshot_of_a_range_omits_unmapped_parts,
      history_contains_the_last_actions,
      history_records_memory_mapped_to_and_unmapped_from_ranges)
