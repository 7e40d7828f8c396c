/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "info/compiled.h"

#include "info/printable.h"

#include <libcore/lazy.h>
#include <libcore/ops.h>
#include <libcore/settings.h>

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { CALLS = 1000 };

/* What the trial found. */
typedef struct trial {
    core_status status;
    core_device *device;
    double first_us, call_us, function_us;
    core_compile_counts counts;
    double lazy_us;
    core_lazy_counts lazy;
} trial;

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* relu(x * x + x) */
static core_status function(void *context, core_tensor *const *inputs,
                            size_t ninputs, core_tensor **outputs,
                            size_t *noutputs)
{
    core_tensor *square = NULL, *sum = NULL;
    core_status status = core_mul(inputs[0], inputs[0], &square);

    (void)context;
    (void)ninputs;
    if (status == CORE_OK)
        status = core_add(square, inputs[0], core_int(1), &sum);
    if (status == CORE_OK)
        status = core_relu(sum, &outputs[0]);
    core_tensor_release(square);
    core_tensor_release(sum);
    *noutputs = 1;
    return status;
}

/* The time of a call in microseconds; compiled NULL: of the function. */
static core_status measure(core_compiled *compiled, core_tensor *x, int calls,
                           double *out_us)
{
    double begin = now_us();

    for (int i = 0; i < calls; i++) {
        core_tensor *y = NULL;
        size_t count = 1;

        CORE_TRY(compiled ? core_compiled_call(compiled, &x, 1, &y, 1)
                          : function(NULL, &x, 1, &y, &count));
        core_tensor_release(y);
    }
    *out_us = (now_us() - begin) / calls;
    return CORE_OK;
}

/* The same in a lazy region that is cut after each call. */
static core_status measure_lazy(core_tensor *x, double *out_us)
{
    core_lazy_options options = {.struct_size = sizeof options};
    core_status status;
    double begin;

    CORE_TRY(core_lazy_begin(&options));
    begin = now_us();
    for (int i = 0; i < CALLS; i++) {
        core_tensor *y = NULL;
        size_t count = 1;

        status = function(NULL, &x, 1, &y, &count);
        if (status == CORE_OK)
            status = core_lazy_sync();
        core_tensor_release(y);
        if (status != CORE_OK)
            break;
    }
    *out_us = (now_us() - begin) / CALLS;
    return status == CORE_OK ? core_lazy_end() : status;
}

static trial run_trial(void)
{
    int64_t sizes[] = {4, 4};
    trial t = {.counts = {.struct_size = sizeof t.counts},
               .lazy = {.struct_size = sizeof t.lazy}};
    core_compiled *compiled = NULL;
    core_tensor *x = NULL;

    t.status = core_device_default(&t.device);
    if (t.status == CORE_OK)
        t.status = core_ones(sizes, 2, CORE_F32, t.device, &x);
    if (t.status == CORE_OK)
        t.status = core_compile(function, NULL, NULL, &compiled);
    if (t.status == CORE_OK)
        t.status = measure(compiled, x, 1, &t.first_us);
    if (t.status == CORE_OK)
        t.status = measure(compiled, x, CALLS, &t.call_us);
    if (t.status == CORE_OK)
        t.status = measure(NULL, x, CALLS, &t.function_us);
    if (t.status == CORE_OK)
        t.status = core_compile_get_counts(&t.counts);
    if (t.status == CORE_OK)
        t.status = measure_lazy(x, &t.lazy_us);
    if (t.status == CORE_OK)
        t.status = core_lazy_get_counts(&t.lazy);
    core_compiled_release(compiled);
    core_tensor_release(x);
    return t;
}

/* -------------------------------------------------------------- settings -- */

/* The next setting that compiled functions use, from *index on. */
static bool next_setting(uint32_t *index, core_setting_information *out_setting)
{
    out_setting->struct_size = sizeof *out_setting;
    while (core_setting_describe((*index)++, out_setting) == CORE_OK)
        if (strcmp(out_setting->used_by, "compile") == 0 ||
            strcmp(out_setting->name, "LIBCORE_CACHE") == 0)
            return true;
    return false;
}

static const char *value_of(const core_setting_information *setting)
{
    return setting->value ? setting->value : setting->default_text;
}

static void print_compile_settings(void)
{
    static const char *const sources[] = {"default", "environment", "program"};
    core_setting_information setting;

    printf("  at most %d programs per function, unless its options say "
           "otherwise\n",
           CORE_COMPILE_LIMIT);
    for (uint32_t i = 0; next_setting(&i, &setting);)
        printf("  %s=%s (%s%s)\n", setting.name,
               printable_text(value_of(&setting)), sources[setting.source],
               setting.status == CORE_OK ? "" : ", not accepted");
}

static void write_compile_settings(core__json *json)
{
    core_setting_information setting;

    core__json_unsigned(json, "limit", CORE_COMPILE_LIMIT);
    core__json_object(json, "settings");
    for (uint32_t i = 0; next_setting(&i, &setting);)
        core__json_text(json, setting.name, value_of(&setting));
    core__json_end(json);
}

/* -------------------------------------------------------------- counters -- */

#define COUNTER(field)                               \
    {                                                \
#field, offsetof(core_compile_counts, field) \
    }

static const struct {
    const char *name;
    size_t offset;
} counters[] = {
    COUNTER(calls),          COUNTER(compiled_calls),  COUNTER(eager_calls),
    COUNTER(break_calls),    COUNTER(limit_calls),     COUNTER(inlined_calls),
    COUNTER(traces),         COUNTER(trace_ns),        COUNTER(programs),
    COUNTER(invalidated),    COUNTER(checks),          COUNTER(resized),
    COUNTER(fused_kernels),  COUNTER(refused_kernels), COUNTER(captures),
    COUNTER(graph_launches), COUNTER(graph_busy),      COUNTER(prepare_ns),
};
enum { COUNTERS = sizeof counters / sizeof *counters };

static unsigned long long counter(const core_compile_counts *counts, size_t i)
{
    uint64_t value;

    memcpy(&value, (const char *)counts + counters[i].offset, sizeof value);
    return value;
}

static void print_counters(const core_compile_counts *counts)
{
    printf("  counters: %llu calls, %llu of them compiled, %llu recording%s in "
           "%.1f us, %llu programs, %llu graph breaks\n  all counters:",
           (unsigned long long)counts->calls,
           (unsigned long long)counts->compiled_calls,
           (unsigned long long)counts->traces, counts->traces == 1 ? "" : "s",
           (double)counts->trace_ns / 1e3, (unsigned long long)counts->programs,
           (unsigned long long)counts->break_calls);
    for (size_t i = 0; i < COUNTERS; i++)
        printf("%s%s %llu", i % 6 ? ", " : "\n    ", counters[i].name,
               counter(counts, i));
    printf("\n");
}

static void write_counters(const core_compile_counts *counts, core__json *json)
{
    for (size_t i = 0; i < COUNTERS; i++)
        core__json_unsigned(json, counters[i].name, counter(counts, i));
}

/* ----------------------------------------------------------------- cache -- */

static void print_cache(void)
{
    core_compile_cache cache = {.struct_size = sizeof cache};
    char path[PATH_MAX];

    if (core_compile_get_cache(&cache, path, sizeof path) != CORE_OK) {
        printf("  kernels are not kept on disk: %s\n",
               printable_text(core_error_message()));
        return;
    }
    printf(
        "  kernels on disk: %s, %llu files, %.1f of %.0f MiB; %llu hits, "
        "%llu stored, %llu refused, %llu not written; measured choices: %llu "
        "hits, %llu stored\n",
        printable_text(path), (unsigned long long)cache.files,
        (double)cache.bytes / (1 << 20), (double)cache.limit / (1 << 20),
        (unsigned long long)cache.loaded, (unsigned long long)cache.stored,
        (unsigned long long)cache.refused, (unsigned long long)cache.failed,
        (unsigned long long)cache.choices_loaded,
        (unsigned long long)cache.choices_stored);
}

static void write_cache(core__json *json)
{
    core_compile_cache cache = {.struct_size = sizeof cache};
    char path[PATH_MAX];

    core__json_object(json, "cache");
    if (core_compile_get_cache(&cache, path, sizeof path) != CORE_OK) {
        core__json_text(json, "reason", core_error_message());
    } else {
        core__json_text(json, "path", path);
        core__json_unsigned(json, "files", cache.files);
        core__json_unsigned(json, "bytes", cache.bytes);
        core__json_unsigned(json, "limit", cache.limit);
        core__json_unsigned(json, "loaded", cache.loaded);
        core__json_unsigned(json, "stored", cache.stored);
        core__json_unsigned(json, "refused", cache.refused);
        core__json_unsigned(json, "failed", cache.failed);
        core__json_unsigned(json, "choices_loaded", cache.choices_loaded);
        core__json_unsigned(json, "choices_stored", cache.choices_stored);
    }
    core__json_end(json);
}

/* ----------------------------------------------------------------- output -- */

void print_compiled(void)
{
    trial t = run_trial();

    printf("compiled functions\n");
    print_compile_settings();
    if (t.status != CORE_OK) {
        printf("  the trial failed: %s\n",
               printable_text(core_error_message()));
        return;
    }
    printf("  a trial of 3 operators on \"%s\": first call %.1f us, then %.2f "
           "us a call; the function itself %.2f us\n",
           core_device_name(t.device), t.first_us, t.call_us, t.function_us);
    print_counters(&t.counts);
    printf("  in a lazy region: %.2f us a call; counters: %llu cuts, %llu "
           "segment%s compiled, %llu found again, %llu failed\n",
           t.lazy_us, (unsigned long long)t.lazy.cuts,
           (unsigned long long)t.lazy.compiled, t.lazy.compiled == 1 ? "" : "s",
           (unsigned long long)t.lazy.found, (unsigned long long)t.lazy.failed);
    print_cache();
}

void write_compiled(core__json *json)
{
    trial t = run_trial();

    core__json_object(json, "compile");
    write_compile_settings(json);
    if (t.status != CORE_OK) {
        core__json_text(json, "error", core_error_message());
    } else {
        core__json_text(json, "device", core_device_name(t.device));
        core__json_number(json, "first_call_us", t.first_us);
        core__json_number(json, "call_us", t.call_us);
        core__json_number(json, "function_us", t.function_us);
        write_counters(&t.counts, json);
        core__json_number(json, "lazy_call_us", t.lazy_us);
        core__json_unsigned(json, "lazy_cuts", t.lazy.cuts);
        core__json_unsigned(json, "lazy_compiled", t.lazy.compiled);
        core__json_unsigned(json, "lazy_found", t.lazy.found);
    }
    write_cache(json);
    core__json_end(json);
}
