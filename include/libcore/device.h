/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* device.h: devices by name, their properties, and the default device.
 *
 * The name of a device is its type and, unless the index is 0, its index:
 * "cpu", "cuda", "cuda:1".  "meta" always exists: its tensors have a shape and
 * a dtype but no memory.  Finding a device loads the plugin that provides its
 * type.
 *
 * Functions return devices borrowed: the caller need not release them, and they
 * are valid until their plugin is unloaded.  Every function here is
 * thread-safe. */

#ifndef LIBCORE_DEVICE_H
#define LIBCORE_DEVICE_H

#include "backend.h"
#include "status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Finds a device by name and opens it if necessary.  NOT_FOUND: no plugin
 * provides the type; the message lists the available types and why other
 * plugins were refused.  NO_DEVICE: the plugin found no hardware; the message
 * says why.  An error of loading the plugin or of opening the device is
 * returned unchanged. */
core_status core_device_find(const char *name, core_device **out_device);

/* Finds a device of a type by its stable id (core_device_information) and opens
 * it if necessary.  The id finds the same device after the devices were
 * enumerated in another order, also in another process.  If the plugin does not
 * provide core.hotplug, this opens the devices of the type until one has the
 * id.  NOT_FOUND if no device of the type has had the id; NO_DEVICE if that
 * device was removed before it was opened; otherwise as for
 * core_device_find. */
core_status core_device_find_id(const char *type, const char *stable_id,
                                core_device **out_device);

/* Returns how often plugins have announced that devices were added, removed or
 * reordered.  The announcement takes effect when a program looks for a device
 * or counts devices the next time.  A device keeps its name and its index.  A
 * removed device is lost: its tensors, streams and events return DEVICE_LOST.
 * When it is present again, core_device_reset makes it usable. */
uint64_t core_device_changes(void);

/* Gets the default device, which calls use that are not given a device.  It is
 * the device that core_device_set_current set in this thread; otherwise that of
 * the setting LIBCORE_DEVICE; otherwise the first available one of
 * core_device_set_preference; otherwise "cpu". */
core_status core_device_default(core_device **out_device);

/* Sets the program's order of preference for core_device_default.  names:
 * device names or types, comma-separated, "cuda,rocm,cpu".  NULL removes it.
 * The setting LIBCORE_DEVICE has precedence.  INVALID_ARGUMENT for a malformed
 * name. */
core_status core_device_set_preference(const char *names);

/* Sets the calling thread's current device.  NULL returns to the default. */
core_status core_device_set_current(core_device *device);

/* Counts the devices of a type, and loads the plugin if necessary.  Once a type
 * has devices, its count does not change, unless its plugin provides
 * core.hotplug: then the count grows with devices that are added, and includes
 * those that were removed.  If there are none, *out_reason says
 * why; otherwise it is "".  out_reason may be NULL; the text lives as long as
 * the process.  NOT_FOUND if no plugin provides the type. */
core_status core_device_count(const char *type, uint32_t *out_count,
                              const char **out_reason);

/* Returns the name of a device, "cuda:1".  The text lives as long as the
 * device.  "" for NULL. */
const char *core_device_name(const core_device *device);

/* Returns the type of a device, "cuda".  The text lives as long as the device.
 * "" for NULL. */
const char *core_device_type(const core_device *device);

/* Returns the index of a device among those of its type.  0 for NULL. */
uint32_t core_device_index(const core_device *device);

/* Adds a reference and returns device.  A device lives as long as its plugin is
 * loaded; a reference keeps the plugin loaded: core_plugin_unload then returns
 * BUSY.  Accepts NULL. */
core_device *core_device_retain(core_device *device);

/* Drops a reference that core_device_retain added.  Accepts NULL.  Releasing
 * more often than retaining has no effect, and logs an error. */
void core_device_release(core_device *device);

/* Fills in the properties of a device, up to out->struct_size, which the caller
 * sets, and sets that to the number of bytes filled.  INVALID_ARGUMENT if
 * out->struct_size is too small for any field. */
core_status core_device_get_properties(core_device *device,
                                       core_device_properties *out);

/* Fills in human-readable information about a device.  out->struct_size works
 * as for core_device_get_properties.  Strings live as long as the device. */
core_status core_device_get_information(core_device *device,
                                        core_device_information *out);

/* Gets the free and the total memory of a device in bytes, as the device
 * reports it; memory that libcore has cached is not free.  UNSUPPORTED if the
 * device does not report it. */
core_status core_device_memory(core_device *device, uint64_t *out_free,
                               uint64_t *out_total);

/* Waits until all work on all streams of a device is complete.  Returns the
 * error of that work, if any.  UNSUPPORTED while this thread's current stream
 * of the device is being captured. */
core_status core_device_synchronize(core_device *device);

/* What all threads did on a device since it was opened.  Shows whether the
 * device itself computed.  A kernel is counted when its function has succeeded;
 * a kernel of a captured graph is counted once, when it is captured. */
typedef struct core_device_counts {
    uint32_t struct_size; /* in: sizeof of the caller's; out: filled */
    uint32_t reserved;
    uint64_t launches;  /* kernels */
    uint64_t fallbacks; /* calls that the CPU computed instead */
    uint64_t graphs;    /* launches of captured graphs */
} core_device_counts;
CORE_STATIC_ASSERT(sizeof(core_device_counts) == 32, "core_device_counts");

/* Fills in the counts of a device.  out->struct_size works as for
 * core_device_get_properties. */
core_status core_device_get_counts(core_device *device,
                                   core_device_counts *out);

/* Fills in the numerical behaviour of a device (backend.h).  All fields are 0,
 * which means IEEE 754 behaviour, if the plugin does not provide core.numerics.
 * out->struct_size works as for core_device_get_properties. */
core_status core_device_get_numerics(core_device *device, core_numerics *out);

/* Gets the largest error of a function ("exp") in a dtype, in units in the last
 * place.  *out is 4 if the plugin does not specify it. */
core_status core_device_function_ulp(core_device *device,
                                     const char *operator_name,
                                     core_dtype dtype, double *out);

/* Reads a sensor of a device.  index counts from 0.  Strings live as long as
 * the device.  out->struct_size works as for core_device_get_properties.
 * NOT_FOUND after the last sensor. */
core_status core_device_measure(core_device *device, uint32_t index,
                                core_measurement *out);

/* The kinds of memory of a device, derived from what its plugin provides.  A
 * device has one of the first two and any of the others; "meta" has none. */
enum {
    CORE_MEMORY_DEVICE = 1u << 0,       /* separate from host memory */
    CORE_MEMORY_UNIFIED = 1u << 1,      /* the host's memory */
    CORE_MEMORY_HOST_VISIBLE = 1u << 2, /* the host can access tensors:
                                           core_tensor_data */
    CORE_MEMORY_PINNED = 1u << 3,       /* host memory for asynchronous
                                           copies */
    CORE_MEMORY_VIRTUAL = 1u << 4,      /* ranges that grow in place */
    CORE_MEMORY_PEER = 1u << 5          /* copies between devices of this type
                                           without the host */
};

/* Gets the kinds of memory of a device, a mask of CORE_MEMORY_…. */
core_status core_device_memory_kinds(core_device *device, uint32_t *out_kinds);

/* Gets the memory format (CORE_FORMAT_…) in which a device computes an operator
 * fastest, for operands with ndim dimensions.  operator_name: the name that
 * kernels have ("convolution", not "conv2d", which calls it).
 * CORE_FORMAT_CONTIGUOUS if the plugin does not provide core.layout.  A program
 * can convert its parameters and inputs to that format once.  Under
 * LIBCORE_LAYOUT=device, results of convolution have it unless the operands are
 * already in another format than contiguous. */
core_status core_device_preferred_format(core_device *device,
                                         const char *operator_name,
                                         core_dtype dtype, uint32_t ndim,
                                         uint32_t *out_format);

/* Sets the number of threads that the CPU backend computes with, including the
 * caller.  Results do not depend on it.  INVALID_ARGUMENT below 1. */
core_status core_threads_set(uint32_t threads);

/* Gets the number of threads that the CPU backend computes with. */
core_status core_threads_get(uint32_t *out_threads);

#ifdef __cplusplus
}
#endif
#endif
