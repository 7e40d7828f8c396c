/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* upcalls.h: the functions of later folders that dispatch calls (base/upcalls.h
 * explains these tables). */

#ifndef CORE_DISPATCH_UPCALLS_H
#define CORE_DISPATCH_UPCALLS_H

#include "dispatch/registry.h"
#include "dispatch/run_numbers.h"

/* The dispatch layers, by functionality (base/keys.h). */
extern const core__entry core__dispatch_layers[CORE__FUNCTIONALITIES];

struct core__dispatch_upcalls {
    /* The function of a built-in operator without kernels; a fast path if
     * there is one. */
    core_function (*function_fast_path)(const core_operator *op);
    /* to[...] = from[...], between any devices, dtypes and layouts. */
    core_status (*tensor_copy)(core_tensor *to, core_tensor *from,
                               bool non_blocking);
    /* Fills without a kernel (transfer/fill.h).  NO_KERNEL: it cannot. */
    core_function fill_fallback;
    /* Computes an operator on 8-bit floats for which the device has no kernel.
     * NO_KERNEL: it cannot either. */
    core_function float8_fallback;
    /* True if calls with this gradient may be recorded by record_fast_path;
     * *out_saved_for: mask of the inputs whose gradients need saved values. */
    bool (*gradient_has_fast_path)(const core__gradient *gradient,
                                   uint32_t *out_saved_for);
    /* The autograd layer of such calls. */
    core_function record_fast_path;
    /* The work of the in-place-or-view layer before and after a call: refuses
     * changes, and counts them. */
    core_status (*check_changes)(const core_operator *op,
                                 const core_value *args, uint32_t nargs);
    void (*count_changes)(const core_operator *op, const core_value *args,
                          uint32_t nargs);
    /* While the thread records: numbers of the next call that runs read again.
     * UNSUPPORTED if those of the call before were not among the arguments of
     * what was recorded. */
    core_status (*run_numbers)(const core__run_numbers *numbers);
    /* Runs call finish of these parts; each of them is like `other`. */
    core_status (*run_finishes)(const core__run_source *source, void *object,
                                uint32_t part, uint32_t other);
    const char *(*plugin_name)(const core_plugin *plugin);
    /* The host table of the plugin. */
    const core_host *(*plugin_host)(const core_plugin *plugin);
};

extern const struct core__dispatch_upcalls core__dispatch_upcalls;

/* to[...] = from[...]; waits if host memory may change afterwards. */
static inline core_status core__dispatch_copy(core_tensor *to,
                                              core_tensor *from)
{
    return core__dispatch_upcalls.tensor_copy(to, from, false);
}

#endif
