/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Settings of the allocator: "name:value" pairs from LIBCORE_ALLOC and
 * core_memory_configure. */

#include "base/fork.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/settings.h"
#include "base/text.h"
#include "memory/heap.h"
#include "memory/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const core__alloc_settings defaults = {.max_split = UINT64_MAX,
                                              .caching = true};

/* Guards the settings of devices that are opened later. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *later_settings; /* settings from core_memory_configure(NULL, …) */

void core__alloc_settings_fork(core__fork_phase at)
{
    core__fork_mutex(at, &lock);
}

typedef struct slice {
    const char *data;
    size_t size;
} slice;

static bool equals(slice text, const char *other)
{
    return strlen(other) == text.size &&
           memcmp(text.data, other, text.size) == 0;
}

static core_status not_accepted(slice name, slice value, const char *allowed)
{
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "%.*s is \"%.*s\"; accepted: %s", (int)name.size,
                       name.data, (int)value.size, value.data, allowed);
}

static bool parse_integer(slice value, uint64_t least, uint64_t most,
                          uint64_t *out)
{
    uint64_t sum = 0;

    if (value.size == 0 || value.size > 18)
        return false;
    for (size_t i = 0; i < value.size; i++) {
        if (value.data[i] < '0' || value.data[i] > '9')
            return false;
        sum = sum * 10 + (uint64_t)(value.data[i] - '0');
    }
    *out = sum;
    return sum >= least && sum <= most;
}

static bool parse_share(slice value, double *out)
{
    char text[32];
    char *end;

    if (value.size == 0 || value.size >= sizeof text ||
        strchr("0123456789.", *value.data) == NULL)
        return false;
    memcpy(text, value.data, value.size);
    text[value.size] = '\0';
    *out = core__parse_double(text, &end);
    return *end == '\0' && *out > 0 && *out <= 1;
}

static bool parse_boolean(slice value, bool *out)
{
    *out = equals(value, "true") || equals(value, "1");
    return *out || equals(value, "false") || equals(value, "0");
}

static core_status set(core__alloc_settings *settings, slice name, slice value)
{
    uint64_t number;

    if (equals(name, "max_split_size_mb")) {
        if (!parse_integer(value, 20, UINT64_C(1) << 24, &number))
            return not_accepted(name, value, "20 or more (megabytes)");
        settings->max_split = number * CORE__MIB;
    } else if (equals(name, "roundup_power2_divisions")) {
        if (!parse_integer(value, 0, 64, &number) || number & (number - 1))
            return not_accepted(name, value,
                                "a power of two up to 64, or 0 for off");
        settings->divisions = (uint32_t)number;
    } else if (equals(name, "garbage_collection_threshold")) {
        if (!parse_share(value, &settings->gc_threshold))
            return not_accepted(name, value, "a number above 0, up to 1");
    } else if (equals(name, "fraction")) {
        if (!parse_share(value, &settings->fraction))
            return not_accepted(name, value, "a number above 0, up to 1");
    } else if (equals(name, "expandable_segments")) {
        if (!parse_boolean(value, &settings->expandable))
            return not_accepted(name, value, "true or false");
    } else if (equals(name, "caching")) {
        if (!parse_boolean(value, &settings->caching))
            return not_accepted(name, value, "true or false");
    } else {
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "\"%.*s\" is not a setting; accepted: "
            "max_split_size_mb, roundup_power2_divisions, "
            "garbage_collection_threshold, expandable_segments, fraction and "
            "caching",
            (int)name.size, name.data);
    }
    return CORE_OK;
}

static slice trimmed(const char *data, size_t size)
{
    while (size && *data == ' ') {
        data++;
        size--;
    }
    while (size && data[size - 1] == ' ')
        size--;
    return (slice){data, size};
}

core_status core__alloc_settings_parse(core__alloc_settings *settings,
                                       const char *text)
{
    core__alloc_settings changed = *settings;

    while (*text) {
        size_t size = strcspn(text, ",");
        const char *colon = memchr(text, ':', size);
        slice pair = trimmed(text, size);

        if (pair.size && !colon)
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "\"%.*s\" is not of the form name:value",
                               (int)pair.size, pair.data);
        if (pair.size)
            CORE_TRY(
                set(&changed, trimmed(text, (size_t)(colon - text)),
                    trimmed(colon + 1, size - (size_t)(colon + 1 - text))));
        text += size + (text[size] == ',');
    }
    *settings = changed;
    return CORE_OK;
}

core_status core__alloc_settings_check(const char *text)
{
    core__alloc_settings settings = defaults;
    core_status status = core__alloc_settings_parse(&settings, text);

    if (status != CORE_OK)
        core__error_prefix("LIBCORE_ALLOC");
    return status;
}

core_status core__alloc_settings_initial(core__alloc_settings *settings)
{
    const char *text;
    core_status status;

    *settings = defaults;
    CORE_TRY(core__setting_text(CORE__SETTING_ALLOC, &text));
    status = text ? core__alloc_settings_parse(settings, text) : CORE_OK;
    if (status != CORE_OK) {
        core__error_prefix("LIBCORE_ALLOC");
        return status;
    }
    pthread_mutex_lock(&lock);
    if (later_settings)
        status = core__alloc_settings_parse(settings, later_settings);
    pthread_mutex_unlock(&lock);
    return status;
}

/* With the allocator's lock held. */
static core_status apply(core__allocator *allocator,
                         const core__alloc_settings *settings)
{
    core_device *device = allocator->device;

    if (allocator->own && (settings->caching || settings->expandable))
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "memory settings: \"%s\" manages its memory itself "
            "(core.allocator), without caching and expandable_segments",
            device->name);
    if (settings->expandable && !allocator->vm_step)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "memory settings: \"%s\" has no virtual memory, "
                           "which expandable_segments needs",
                           device->name);
    if ((settings->fraction > 0 || settings->gc_threshold > 0) &&
        !allocator->total)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "memory settings: \"%s\" does not report how much memory it has, "
            "which fraction and garbage_collection_threshold need",
            device->name);
    allocator->settings = *settings;
    allocator->limit =
        settings->fraction > 0
            ? (uint64_t)(settings->fraction * (double)allocator->total)
            : UINT64_MAX;
    atomic_store(&allocator->max_split, settings->max_split);
    atomic_store(&allocator->divisions, settings->divisions);
    atomic_store(&allocator->caching, settings->caching);
    return CORE_OK;
}

core_status core__alloc_settings_apply(core__allocator *allocator,
                                       const core__alloc_settings *settings)
{
    core_status status;

    pthread_mutex_lock(&allocator->lock);
    status = apply(allocator, settings);
    core__allocator_unlock(allocator);
    return status;
}

core_status core__alloc_settings_text(const core__alloc_settings *settings,
                                      char **out_text)
{
    char text[256];
    int at = 0;

    *text = '\0';
    if (settings->max_split != UINT64_MAX)
        at +=
            core__format(text, sizeof text, "max_split_size_mb:%llu,",
                         (unsigned long long)(settings->max_split / CORE__MIB));
    if (settings->divisions)
        at += core__format(text + at, sizeof text - (size_t)at,
                           "roundup_power2_divisions:%u,", settings->divisions);
    if (settings->gc_threshold > 0)
        at += core__format(text + at, sizeof text - (size_t)at,
                           "garbage_collection_threshold:%g,",
                           settings->gc_threshold);
    if (settings->fraction > 0)
        at += core__format(text + at, sizeof text - (size_t)at, "fraction:%g,",
                           settings->fraction);
    core__format(text + at, sizeof text - (size_t)at,
                 "expandable_segments:%s,caching:%s",
                 settings->expandable ? "true" : "false",
                 settings->caching ? "true" : "false");
    *out_text = core__strdup(text);
    return *out_text ? CORE_OK : core__error_memory(sizeof text);
}

/* -------------------------------------------------------------- public -- */

/* Of core_memory_configure. */
static core_status parse_argument(core__alloc_settings *settings,
                                  const char *text)
{
    core_status status = core__alloc_settings_parse(settings, text);

    if (status != CORE_OK)
        core__error_prefix("core_memory_configure");
    return status;
}

/* The texts are concatenated: the later pair wins. */
static core_status configure_later(const char *settings)
{
    core__alloc_settings ignored = defaults;
    size_t size;
    char *joined;

    CORE_TRY(parse_argument(&ignored, settings));
    pthread_mutex_lock(&lock);
    size = (later_settings ? strlen(later_settings) : 0) + strlen(settings) + 2;
    joined = core__alloc(size);
    if (joined) {
        snprintf(joined, size, "%s,%s", later_settings ? later_settings : "",
                 settings);
        core__free(later_settings);
        later_settings = joined;
    }
    pthread_mutex_unlock(&lock);
    return joined ? CORE_OK : core__error_memory(size);
}

core_status core_memory_configure(core_device *device, const char *settings)
{
    core__alloc_settings changed;
    core__allocator *allocator;
    core_status status;

    CORE__NOT_NULL(settings);
    if (!device)
        return configure_later(settings);
    CORE_TRY(core__allocator_require(device, "core_memory_configure"));
    allocator = device->allocator;
    pthread_mutex_lock(&allocator->lock);
    changed = allocator->settings;
    status = parse_argument(&changed, settings);
    if (status == CORE_OK)
        status = apply(allocator, &changed);
    core__allocator_unlock(allocator);
    return status;
}

core_status core_memory_set_fraction(core_device *device, double fraction)
{
    core__alloc_settings changed;
    core__allocator *allocator;
    core_status status;

    CORE__NOT_NULL(device);
    CORE_TRY(core__allocator_require(device, "core_memory_set_fraction"));
    if (!(fraction > 0 && fraction <= 1))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_memory_set_fraction: the fraction is %g; "
                           "accepted: a number above 0, up to 1",
                           fraction);
    allocator = device->allocator;
    pthread_mutex_lock(&allocator->lock);
    changed = allocator->settings;
    changed.fraction = fraction;
    status = apply(allocator, &changed);
    core__allocator_unlock(allocator);
    return status;
}
