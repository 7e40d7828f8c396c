/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* device.h: devices by name.
 *
 * A device's name is its type and, for all but the first, its index: "cpu",
 * "cuda", "cuda:1".  "meta" is always there: its tensors have shape and dtype
 * and no memory.  Asking for a device loads the plugin that has its type.
 *
 * Any thread may call everything here. */

#ifndef LIBCORE_DEVICE_H
#define LIBCORE_DEVICE_H

#include "backend.h"
#include "status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Finds, and opens if need be, a device.  It is borrowed, as every device that
 * a call gives: there is nothing to release, and it is valid until its plugin
 * is unloaded.  NOT_FOUND: no plugin has that type (the message lists those
 * there are, and why others were refused); NO_DEVICE: its plugin found no
 * hardware, the message says why; and whatever code the plugin could not be
 * loaded or begin its work with. */
core_status core_device_find(const char *name, core_device **out_device);

/* The device of calls that name none, borrowed: what core_device_set_current
 * set in this thread, else the value of LIBCORE_DEVICE, else the first device that there
 * is of the program's order of preference, else "cpu". */
core_status core_device_default(core_device **out_device);

/* A program's own order, for core_device_default: device names or types,
 * comma-separated, "cuda,rocm,cpu".  NULL forgets it.  LIBCORE_DEVICE wins. */
core_status core_device_set_preference(const char *names);

/* This thread's device; NULL returns to the default. */
core_status core_device_set_current(core_device *device);

/* How many devices of a type there are now; with 0, *out_reason (may be NULL)
 * says why, valid until the thread's next failing call. */
core_status core_device_count(const char *type, uint32_t *out_count,
                              const char **out_reason);

/* Borrowed, valid while the device is.  Of NULL: "" and 0. */
const char *core_device_name(const core_device *device);
const char *core_device_type(const core_device *device);
uint32_t core_device_index(const core_device *device);

/* Devices live as long as their plugin is loaded, and a reference of one's own
 * keeps it so: core_plugin_unload answers BUSY.  Only what was retained is
 * released; one release too many changes nothing and is logged as an error.
 * Both do nothing with NULL. */
core_device *core_device_retain(core_device *device);
void core_device_release(core_device *device);

/* As much as out->struct_size says there is room for; INVALID_ARGUMENT where
 * that is nothing.  Strings in *out live as long as the device. */
core_status core_device_get_properties(core_device *device,
                                       core_device_properties *out);
core_status core_device_get_information(core_device *device,
                                        core_device_information *out);
/* Bytes. */
core_status core_device_memory(core_device *device, uint64_t *out_free,
                               uint64_t *out_total);

/* Waits until all work given to the device is done; an error of that work is
 * this call's. */
core_status core_device_synchronize(core_device *device);

/* What was done on a device since it was opened, by all threads: the proof that
 * it was the device that computed.  A kernel counts when its plugin's function
 * succeeded; of a captured graph's kernels, once when they were captured. */
typedef struct core_device_counts {
    uint32_t struct_size; /* in: the caller's; out: what was filled */
    uint32_t reserved;
    uint64_t launches;  /* kernels */
    uint64_t fallbacks; /* calls that the CPU computed instead of it */
    uint64_t graphs;    /* launches of captured graphs */
} core_device_counts;
CORE_STATIC_ASSERT(sizeof(core_device_counts) == 32, "core_device_counts");

core_status core_device_get_counts(core_device *device,
                                   core_device_counts *out);

/* How the device counts (backend.h); of a device that says nothing, all is 0,
 * which means as IEEE 754 does. */
core_status core_device_get_numerics(core_device *device, core_numerics *out);
/* Largest error of a function ("exp") in a dtype, in units in the last place.
 * *out is 4 where the device says nothing. */
core_status core_device_function_ulp(core_device *device,
                                     const char *operator_name,
                                     core_dtype dtype, double *out);
/* What the device measures of itself: index from 0 while CORE_OK; NOT_FOUND
 * behind the last.  Texts live as long as the device. */
core_status core_device_measure(core_device *device, uint32_t index,
                                core_measurement *out);

/* Which kinds of memory there are with the device, by what its plugin provides:
 * one of the first two, and any of the others.  "meta" has none. */
enum {
    CORE_MEMORY_DEVICE = 1u << 0,       /* its own, apart from the host's */
    CORE_MEMORY_UNIFIED = 1u << 1,      /* the host's own */
    CORE_MEMORY_HOST_VISIBLE = 1u << 2, /* the host may use a tensor's memory:
                                           core_tensor_data */
    CORE_MEMORY_PINNED = 1u << 3,       /* host memory for copies that nobody
                                           waits for */
    CORE_MEMORY_VIRTUAL = 1u << 4,      /* ranges that grow in place */
    CORE_MEMORY_PEER = 1u << 5          /* copies between devices of this type
                                           without the host */
};
core_status core_device_memory_kinds(core_device *device, uint32_t *out_kinds);

/* The memory format (CORE_FORMAT_…) in which the device computes an operator
 * best, by the name that kernels have ("convolution"; not "conv2d", which calls
 * it), for operands of so many dimensions.  CORE_FORMAT_CONTIGUOUS where it
 * says nothing.  A program may bring its parameters and input into that format
 * once; with LIBCORE_LAYOUT=device results of convolution come in it where
 * their operands have none of their own. */
core_status core_device_preferred_format(core_device *device,
                                         const char *operator_name,
                                         core_dtype dtype, uint32_t ndim,
                                         uint32_t *out_format);

/* Threads that the CPU backend computes with, the caller included; results do
 * not depend on it.  INVALID_ARGUMENT below 1. */
core_status core_threads_set(uint32_t threads);
core_status core_threads_get(uint32_t *out_threads);

#ifdef __cplusplus
}
#endif
#endif
