/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* upcalls.h: the functions of later folders that device calls (base/upcalls.h
 * explains these tables). */

#ifndef CORE_DEVICE_UPCALLS_H
#define CORE_DEVICE_UPCALLS_H

#include "device/stream.h"

struct core__device_upcalls {
    /* Loads the plugin that provides devices of this type. */
    core_status (*load_type)(const char *type, size_t size);
    /* The ABI minor that the core and the plugin negotiated. */
    uint32_t (*plugin_minor)(const core_plugin *plugin);
    /* The seal of the plugin's file.  NULL: it is not sealed. */
    const core_plugin_seal *(*plugin_seal)(const core_plugin *plugin);
    const char *(*operator_name)(const core_operator *op);
    /* Invalidates the stream's capture in progress. */
    void (*capture_invalidate)(core_stream *stream, const char *what);
    /* The caching allocator and pinned memory of a device. */
    core_status (*allocator_create)(core_device *device);
    void (*allocator_destroy)(core_device *device);
    void (*allocator_reset)(core_device *device);
    void (*allocator_forked)(core_device *device);
    void (*allocator_stream_end)(core_stream *stream);
    void (*host_memory_end)(core_device *device);
    void (*host_memory_reset)(core_device *device);
    void (*host_memory_forked)(core_device *device);
    /* Closes imported memory that no unfinished work uses. */
    void (*imported_settle)(core_device *device);
    /* Frees blocks of the device's memory cached by threads. */
    void (*memory_free_cached)(const core_device *device);
    /* Frees its blocks in the cache shared by all threads. */
    void (*cache_empty)(core_device *device);
};

extern const struct core__device_upcalls core__device_upcalls;

#endif
