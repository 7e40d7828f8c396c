/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "suite.h"

#include "side_effects.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *const verdict_names[VERDICTS] = {
    "PASS",  "FAIL",    "NOT_SUPPORTED", "WAIVED",        "XFAIL",  "XPASS",
    "CRASH", "TIMEOUT", "DEVICE_LOST",   "HARNESS_ERROR", "NOT_RUN"};
const char *const level_names[LEVELS] = {"core", "ops", "training", "stress",
                                         "perf"};

/* ------------------------------------------------------------ outcomes -- */

static void note(outcome *out, verdict what, const char *format,
                 va_list arguments)
{
    if (out->verdict != VERDICT_PASS)
        return;
    out->verdict = what;
    vsnprintf(out->detail, sizeof out->detail, format, arguments);
}

bool expect(outcome *out, bool condition, const char *format, ...)
{
    va_list arguments;

    if (condition)
        return true;
    va_start(arguments, format);
    note(out, VERDICT_FAIL, format, arguments);
    va_end(arguments);
    return false;
}

bool expect_ok(outcome *out, core_status status, const char *what)
{
    if (status == CORE_OK)
        return true;
    expect(out, false, "%s: %s: %s", what, core_status_name(status),
           core_error_message());
    if (status == CORE_ERROR_DEVICE_LOST && out->verdict == VERDICT_FAIL)
        out->verdict = VERDICT_DEVICE_LOST;
    return false;
}

void not_supported(outcome *out, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    note(out, VERDICT_NOT_SUPPORTED, format, arguments);
    va_end(arguments);
}

void harness_error(outcome *out, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    note(out, VERDICT_HARNESS_ERROR, format, arguments);
    va_end(arguments);
}

void note_error(outcome *out, double error)
{
    if (error > out->error)
        out->error = error;
}

/* ----------------------------------------------------------- the suite -- */

bool suite_add(suite *self, const test *one)
{
    if (self->count == self->capacity) {
        size_t capacity = self->capacity ? self->capacity * 2 : 256;
        test *more = realloc(self->tests, capacity * sizeof *more);

        if (!more)
            return false;
        self->tests = more;
        self->capacity = capacity;
    }
    self->tests[self->count++] = *one;
    return true;
}

bool suite_add_list(suite *self, level which, const listed *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        test one = {
            .level = which, .optional = list[i].optional, .run = list[i].run};

        snprintf(one.name, sizeof one.name, "%s", list[i].name);
        if (!suite_add(self, &one))
            return false;
    }
    return true;
}

/* Checks that the device belongs to this plugin. */
static bool is_own(const suite *self, const core_plugin *plugin, outcome *out)
{
    core_backend_information about = {.struct_size = sizeof about};
    const char *type = core_device_type(self->device);

    for (uint32_t i = 0; core_backend_describe(i, &about) == CORE_OK; i++)
        if (strcmp(about.device_type, type) == 0)
            return expect(out, about.plugin == plugin,
                          "the device %s belongs to another plugin",
                          core_device_name(self->device));
    return expect(out, false, "there is no backend \"%s\"", type);
}

/* The first type that the plugin's note lists. */
static bool first_type(suite *self, core_plugin *plugin, outcome *out)
{
    core_plugin_information about = {.struct_size = sizeof about};
    size_t size;

    if (!expect_ok(out, core_plugin_describe(plugin, &about),
                   "describing the plugin"))
        return false;
    size = strcspn(about.device_types, ",");
    if (!expect(out, size > 0 && size < sizeof self->type,
                "the plugin's note lists no device type"))
        return false;
    memcpy(self->type, about.device_types, size);
    self->type[size] = 0;
    return true;
}

/* Tests whether a device's name has no index below the number of devices. */
static bool is_missing(const char *name, uint32_t devices)
{
    const char *colon = strchr(name, ':');
    char *end;

    return colon && (strspn(colon + 1, "0123456789") == 0 ||
                     strtoull(colon + 1, &end, 10) >= devices || *end);
}

static bool find_backend(suite *self, outcome *out)
{
    core_backend_information about = {.struct_size = sizeof about};

    for (uint32_t i = 0; core_backend_describe(i, &about) == CORE_OK; i++)
        if (strcmp(about.device_type, self->type) == 0) {
            self->synchronous = about.synchronous;
            self->missing =
                self->wanted && is_missing(self->wanted, about.device_count);
            return true;
        }
    return expect(out, false, "the plugin registered no device type \"%s\"",
                  self->type);
}

static bool load(suite *self, core_plugin **out_plugin, outcome *out)
{
    slot before = slot_enter(SLOT_LOAD);
    core_status status = core_plugin_load(self->plugin, out_plugin);

    slot_leave(SLOT_LOAD, before);
    return expect_ok(out, status, "loading the plugin");
}

static bool find(suite *self, const char *name, outcome *out)
{
    slot before = slot_enter(SLOT_FIND);
    core_status status = core_device_find(name, &self->device);

    slot_leave(SLOT_FIND, before);
    return expect_ok(out, status, "opening the device");
}

/* libcore keeps it in its list as long as the process runs, so that it and its
 * name stay valid. */
static core_plugin *load_plugin(suite *self, outcome *out)
{
    core_plugin *plugin = NULL;
    bool good;

    if (!load(self, &plugin, out))
        return NULL;
    good = first_type(self, plugin, out) && find_backend(self, out);
    core_plugin_release(plugin);
    return good ? plugin : NULL;
}

bool suite_load(suite *self, outcome *out)
{
    return load_plugin(self, out) != NULL;
}

static bool open_device(suite *self, outcome *out)
{
    core_plugin *plugin = load_plugin(self, out);

    if (!plugin)
        return false;
    self->properties.struct_size = sizeof self->properties;
    self->information.struct_size = sizeof self->information;
    self->numerics.struct_size = sizeof self->numerics;
    if (!find(self, self->wanted ? self->wanted : self->type, out))
        return false;
    slot_watch_opened();
    if (!is_own(self, plugin, out)) {
        self->device = NULL;
        return false;
    }
    if (!expect_ok(out, core_device_find("cpu", &self->host),
                   "opening the reference device \"cpu\""))
        return false;
    snprintf(self->type, sizeof self->type, "%s",
             core_device_type(self->device));
    if (!expect_ok(out,
                   core_device_get_properties(self->device, &self->properties),
                   "reading the device's properties"))
        return false;
    slot_watch_set_flat((self->properties.flags & CORE_DEVICE_FLAT) != 0);
    return expect_ok(
               out,
               core_device_get_information(self->device, &self->information),
               "reading the device's information") &&
           expect_ok(out,
                     core_device_get_numerics(self->device, &self->numerics),
                     "reading the device's numerics");
}

bool suite_device(suite *self, outcome *out)
{
    char printed[2];
    bool good = self->device || open_device(self, out);

    /* What it printed is reported by core/opening/prints-nothing. */
    side_effects_take_output(printed, sizeof printed);
    return good;
}

kernel_counts suite_kernel_counts(const suite *self)
{
    core_device_counts counts = {.struct_size = sizeof counts};

    core_device_get_counts(self->device, &counts);
    return (kernel_counts){counts.launches, counts.fallbacks};
}

bool suite_ran_on_device(const suite *self, kernel_counts since, outcome *out)
{
    kernel_counts now = suite_kernel_counts(self);

    return expect(
               out, now.launches > since.launches,
               "the device ran no kernel: the result was computed elsewhere") &&
           expect(out, now.fallbacks == since.fallbacks,
                  "the CPU computed instead of the device");
}

uint64_t suite_random(const suite *self, const char *purpose, uint64_t index)
{
    uint64_t hash = self->seed ^ 0x9e3779b97f4a7c15u;

    for (; *purpose; purpose++)
        hash = (hash ^ (unsigned char)*purpose) * 0x100000001b3u;
    hash += (index + 1) * 0x9e3779b97f4a7c15u;
    hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ hash >> 27) * 0x94d049bb133111ebu;
    return hash ^ hash >> 31;
}

double suite_seconds(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

core_status suite_read(core_tensor *tensor, void *to, size_t bytes)
{
    slot before = slot_enter(SLOT_READ);
    core_status status = core_tensor_read(tensor, to, bytes);

    slot_leave(SLOT_READ, before);
    return status;
}

/* Tells the runner what is called. */
static void announce(core_operator *op, const core_value *args, uint32_t nargs)
{
    watched_call call = {.tensors = 0};

    snprintf(call.name, sizeof call.name, "%s", core_op_name(op));
    for (uint32_t i = 0; i < nargs; i++) {
        core_tensor *from = args[i].u.tensor;
        watched_tensor *to = &call.tensor[call.tensors % WATCHED_TENSORS];

        if (args[i].tag != CORE_VALUE_TENSOR ||
            ++call.tensors > WATCHED_TENSORS)
            continue;
        to->dtype = core_tensor_dtype(from);
        to->ndim = core_tensor_ndim(from);
        for (uint32_t d = 0; d < to->ndim && d < WATCHED_NDIM; d++) {
            to->sizes[d] = core_tensor_sizes(from)[d];
            to->strides[d] = core_tensor_strides(from)[d];
        }
    }
    slot_watch_call(&call);
}

core_status suite_op_call(core_operator *op, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    slot before;
    core_status status;

    announce(op, args, nargs);
    before = slot_enter(SLOT_OPERATOR);
    status = core_op_call(op, args, nargs, results, nresults);

    slot_leave(SLOT_OPERATOR, before);
    return status;
}

core_status suite_call(const char *name, const core_value *args, uint32_t nargs,
                       core_tensor **out_tensor)
{
    core_value result = {0};
    core_operator *op;
    core_status status = core_op_find(name, &op);

    *out_tensor = NULL;
    if (status == CORE_OK)
        status = suite_op_call(op, args, nargs, &result, 1);
    if (status == CORE_OK && result.tag == CORE_VALUE_TENSOR)
        *out_tensor = result.u.tensor;
    return status;
}

core_value suite_tensor_value(core_tensor *tensor)
{
    return (core_value){CORE_VALUE_TENSOR, 0, {.tensor = tensor}};
}
