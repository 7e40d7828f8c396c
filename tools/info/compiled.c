/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "info/compiled.h"

#include "info/printable.h"

#include <libcore/lazy.h>
#include <libcore/ops.h>
#include <libcore/settings.h>

#include <limits.h>
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

static const char *check_setting(void)
{
    const char *value;

    return core_setting_get("LIBCORE_COMPILE_CHECK", &value) == CORE_OK && value
               ? value
               : "0";
}

static void print_cache(void)
{
    core_compile_cache cache = {.struct_size = sizeof cache};
    char path[PATH_MAX];

    if (core_compile_get_cache(&cache, path, sizeof path) != CORE_OK) {
        printf("  kernels are not kept on disk: %s\n",
               printable_text(core_error_message()));
        return;
    }
    printf("  kernels on disk: %s, %llu files, %.1f of %.0f MiB; %llu hits, "
           "%llu stored, %llu refused, %llu not written\n",
           printable_text(path), (unsigned long long)cache.files,
           (double)cache.bytes / (1 << 20), (double)cache.limit / (1 << 20),
           (unsigned long long)cache.loaded, (unsigned long long)cache.stored,
           (unsigned long long)cache.refused, (unsigned long long)cache.failed);
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
    }
    core__json_end(json);
}

void print_compiled(void)
{
    trial t = run_trial();

    printf("compiled functions\n"
           "  LIBCORE_COMPILE_CHECK=%s, at most %d programs per function\n",
           printable_text(check_setting()), CORE_COMPILE_LIMIT);
    if (t.status != CORE_OK) {
        printf("  the trial failed: %s\n",
               printable_text(core_error_message()));
        return;
    }
    printf("  a trial of 3 operators on \"%s\": first call %.1f us, then %.2f "
           "us a call; the function itself %.2f us\n",
           core_device_name(t.device), t.first_us, t.call_us, t.function_us);
    printf("  counters: %llu calls, %llu of them compiled, %llu recording%s in "
           "%.1f us, %llu programs, %llu graph breaks\n",
           (unsigned long long)t.counts.calls,
           (unsigned long long)t.counts.compiled_calls,
           (unsigned long long)t.counts.traces, t.counts.traces == 1 ? "" : "s",
           (double)t.counts.trace_ns / 1e3,
           (unsigned long long)t.counts.programs,
           (unsigned long long)t.counts.break_calls);
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
    core__json_text(json, "check", check_setting());
    core__json_unsigned(json, "limit", CORE_COMPILE_LIMIT);
    if (t.status != CORE_OK) {
        core__json_text(json, "error", core_error_message());
    } else {
        core__json_text(json, "device", core_device_name(t.device));
        core__json_number(json, "first_call_us", t.first_us);
        core__json_number(json, "call_us", t.call_us);
        core__json_number(json, "function_us", t.function_us);
        core__json_unsigned(json, "calls", t.counts.calls);
        core__json_unsigned(json, "compiled_calls", t.counts.compiled_calls);
        core__json_unsigned(json, "traces", t.counts.traces);
        core__json_unsigned(json, "programs", t.counts.programs);
        core__json_unsigned(json, "break_calls", t.counts.break_calls);
        core__json_number(json, "lazy_call_us", t.lazy_us);
        core__json_unsigned(json, "lazy_cuts", t.lazy.cuts);
        core__json_unsigned(json, "lazy_compiled", t.lazy.compiled);
        core__json_unsigned(json, "lazy_found", t.lazy.found);
    }
    write_cache(json);
    core__json_end(json);
}
