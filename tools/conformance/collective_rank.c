/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "collective_rank.h"

#include <libcore/plugins.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ------------------------------------------------------------- reports -- */

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* In a process of the test, none of the plugin's code runs any more, which may be in
 * any state. */
static _Noreturn void end(rank *self, int verdict)
{
    self->report->when = now_ns();
    atomic_store(&self->report->verdict, verdict);
    if (self->leave)
        longjmp(*self->leave, 1);
    _exit(0);
}

void rank_pass(rank *self)
{
    end(self, RANK_PASSED);
}

void rank_calls(rank *self, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(self->report->call, RANK_TEXT, format, arguments);
    va_end(arguments);
}

void rank_fail(rank *self, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(self->report->detail, RANK_TEXT, format, arguments);
    va_end(arguments);
    end(self, RANK_FAILED);
}

void rank_remark(rank *self, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(self->report->detail, RANK_TEXT, format, arguments);
    va_end(arguments);
}

void rank_must(rank *self, core_status status)
{
    if (status != CORE_OK)
        rank_fail(self, "%s: %s", core_status_name(status),
                  core_error_message());
}

bool rank_has(rank *self, core_status status)
{
    if (status == CORE_ERROR_UNSUPPORTED) {
        rank_remark(self, "%s", core_error_message());
        return false;
    }
    rank_must(self, status);
    return true;
}

void rank_expect_some(rank *self, uint32_t had)
{
    if (had == 0)
        end(self, RANK_UNSUPPORTED);
}

void rank_pause(double seconds)
{
    const struct timespec time = {
        .tv_sec = (time_t)seconds,
        .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};

    nanosleep(&time, NULL);
}

/* ------------------------------------------------------------- numbers -- */

enum { STORE = 5000 }; /* bytes of the name of a store */
enum { PART = 12 };    /* elements after which the numbers shift */

/* The finalizer of MurmurHash3 (Appleby). */
static uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x85ebca6bU;
    x = (x ^ x >> 13) * 0xc2b2ae35U;
    return x ^ x >> 16;
}

double rank_value(uint32_t of, int64_t element)
{
    return mix((of + 1) * 0x9e3779b9U + (uint32_t)element) % 7 + 1;
}

double rank_factor(const rank *self, uint32_t of, int64_t element)
{
    int64_t size = self->size;

    if (of == (element + element / PART) % size)
        return mix((uint32_t)element) % 3 + 2;
    if (of == size - 1 - element % size)
        return mix((uint32_t)element + 1) % 4 + 2;
    return 1;
}

double rank_reduced(const rank *self, uint32_t reduction, int64_t element)
{
    bool product = reduction == CORE_REDUCE_PROD;
    double result =
        product ? rank_factor(self, 0, element) : rank_value(0, element);

    for (uint32_t r = 1; r < self->size; r++) {
        double next =
            product ? rank_factor(self, r, element) : rank_value(r, element);

        result =
            product                        ? result * next
            : reduction == CORE_REDUCE_MIN ? (next < result ? next : result)
            : reduction == CORE_REDUCE_MAX ? (next > result ? next : result)
                                           : result + next;
    }
    return result;
}

core_tensor *rank_make_for(rank *self, core_dtype dtype, uint32_t reduction,
                           int64_t count)
{
    bool product = reduction == CORE_REDUCE_PROD;
    double *values = malloc(((size_t)count + 1) * sizeof *values);
    core_tensor *wide, *there, *made;
    core_device *host;

    if (!values)
        rank_fail(self, "no memory for a test");
    for (int64_t i = 0; i < count; i++)
        values[i] = product ? rank_factor(self, self->number, i)
                            : rank_value(self->number, i);
    rank_must(self, core_device_find("cpu", &host));
    rank_must(self,
              core_tensor_from_data(values, CORE_F64, &count, 1, host, &wide));
    rank_must(self, core_to_copy(wide, dtype, NULL, false, -1, &there));
    rank_must(self, core_to_copy(there, dtype, self->device, false, -1, &made));
    core_tensor_release(wide);
    core_tensor_release(there);
    free(values);
    return made;
}

core_tensor *rank_make(rank *self, core_dtype dtype, int64_t count)
{
    return rank_make_for(self, dtype, CORE_REDUCE_SUM, count);
}

/* Reads a tensor as f64; release it with free. */
static double *read_numbers(rank *self, core_tensor *found)
{
    size_t size = (size_t)core_tensor_numel(found) * sizeof(double);
    double *numbers = malloc(size + 1);
    core_tensor *here, *wide;
    core_device *host;

    if (!numbers)
        rank_fail(self, "no memory for a test");
    rank_must(self, core_device_find("cpu", &host));
    rank_must(self, core_to_copy(found, core_tensor_dtype(found), host, false,
                                 -1, &here));
    rank_must(self, core_to_copy(here, CORE_F64, NULL, false, -1, &wide));
    rank_must(self, core_tensor_read(wide, numbers, size));
    core_tensor_release(here);
    core_tensor_release(wide);
    return numbers;
}

void rank_expect(rank *self, core_tensor *found, int64_t count,
                 double (*value)(const rank *self, const void *context,
                                 int64_t element),
                 const void *context)
{
    double *numbers;

    if (core_tensor_numel(found) != count)
        rank_fail(self, "the result has %lld elements, not %lld",
                  (long long)core_tensor_numel(found), (long long)count);
    numbers = read_numbers(self, found);
    for (int64_t i = 0; i < count; i++) {
        double wanted = value(self, context, i);

        if (numbers[i] != wanted)
            rank_fail(self, "element %lld is %g, not %g", (long long)i,
                      numbers[i], wanted);
    }
    free(numbers);
    core_tensor_release(found);
}

/* ------------------------------------------------------------- the run -- */

/* The engine's name; the plugin has registered it. */
static const char *engine_of(rank *self, core_plugin *plugin)
{
    static core_comm_engine_information about = {.struct_size = sizeof about};
    core_plugin_information file = {.struct_size = sizeof file};
    const char *wanted = self->setup->engine;

    for (size_t i = 0; core_comm_engine_describe(i, &about) == CORE_OK; i++) {
        if (about.plugin != plugin ||
            (wanted && strcmp(about.name, wanted) != 0))
            continue;
        if (about.usable)
            return about.name;
        rank_remark(self, "the engine \"%s\" cannot be used: %s", about.name,
                    about.reason);
        end(self, RANK_UNUSABLE);
    }
    core_plugin_describe(plugin, &file);
    rank_remark(self, "the plugin \"%s\" has no engine%s%s", file.name,
                wanted ? " " : " (core.collectives)", wanted ? wanted : "");
    end(self, RANK_UNUSABLE);
}

static void unusable_unless(rank *self, core_status status)
{
    if (status == CORE_OK)
        return;
    rank_remark(self, "%s", core_error_message());
    end(self, RANK_UNUSABLE);
}

static void find_device(rank *self)
{
    const char *name = self->setup->device;
    size_t size = strlen(name);
    char numbered[80];

    snprintf(numbered, sizeof numbered, "%s", name);
    if (size > 0 && name[size - 1] == ':')
        snprintf(numbered, sizeof numbered, "%s%u", name, self->number);
    unusable_unless(self, core_device_find(numbered, &self->device));
}

/* With a timeout, and the file of that name. */
static void connect(rank *self, uint32_t flags, double timeout,
                    const char *suffix)
{
    char store[STORE];
    core_comm_options options = {.struct_size = sizeof options,
                                 .flags = flags,
                                 .engine = self->engine,
                                 .store = self->setup->store ? store : NULL,
                                 .rank = self->number,
                                 .size = self->size,
                                 .timeout = timeout};
    core_status status;

    if (self->setup->store)
        snprintf(store, sizeof store, "%s%s", self->setup->store, suffix);
    rank_calls(self, "core_comm_create");
    status = core_comm_create(self->device, &options, &self->comm);
    /* Of an engine, or a device, that cannot: every test would fail. */
    if (status == CORE_ERROR_UNSUPPORTED)
        unusable_unless(self, status);
    rank_must(self, status);
    if (core_comm_rank(self->comm) != self->number ||
        core_comm_size(self->comm) != self->size)
        rank_fail(self, "this is rank %u of %u, not %u of %u",
                  core_comm_rank(self->comm), core_comm_size(self->comm),
                  self->number, self->size);
}

void rank_meet(rank *self)
{
    rank_calls(self, "barrier");
    rank_must(self, core_barrier(self->comm));
    rank_must(self, core_comm_synchronize(self->comm));
}

/* All ranks are running then: they need no more time than their calls. */
static void shorten_timeout(rank *self, const collective_test *test)
{
    core_comm *first = self->comm;

    rank_meet(self);
    connect(self, test->flags, self->setup->short_timeout, RANK_SHORT_STORE);
    core_comm_release(first);
}

static bool has_failed(const rank *self)
{
    for (uint32_t r = 0; r < self->size; r++)
        if (atomic_load(&self->shared->reports[r].verdict) == RANK_FAILED)
            return true;
    return false;
}

void rank_await_others(rank *self, uint32_t arrived)
{
    while (atomic_load(&self->shared->arrived) < arrived) {
        if (has_failed(self))
            rank_pass(self);
        rank_pause(0.001);
    }
}

void rank_prepare(rank *self)
{
    core_plugin *plugin;

    self->report = &self->shared->reports[self->number];
    rank_calls(self, "loading the plugin");
    unusable_unless(self, core_plugin_load(self->setup->plugin, &plugin));
    self->engine = engine_of(self, plugin);
    find_device(self);
}

void rank_connect(rank *self, uint32_t flags)
{
    connect(self, flags, self->setup->timeout, "");
}

void rank_test(rank *self, const collective_test *test)
{
    rank_connect(self, test->flags);
    if (test->fault)
        shorten_timeout(self, test);
    test->run(self);
    rank_calls(self, "core_comm_release");
    core_comm_release(self->comm);
    rank_pass(self);
}

void rank_run(rank *self, const collective_test *test)
{
    rank_prepare(self);
    rank_test(self, test);
}
