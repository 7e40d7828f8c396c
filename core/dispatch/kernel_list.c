/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The kernels of a backend by number, for callers that list or borrow all of
 * them.  When queried in order, each is found from the previous one. */

#include "dispatch/dispatch.h"
#include "dispatch/registry.h"
#include "dispatch/table.h"

/* Position of the last result; none if `kernel` is NULL.  Guarded by the
 * registry's lock. */
static struct {
    const core__backend *backend;
    const core__kernel *kernel;
    uint32_t op, index;
} last;

void core__kernel_list_reset(const core__backend *backend)
{
    if (!backend || last.backend == backend)
        last.kernel = NULL;
}

static const core__kernel *first_of(uint32_t op, const core__backend *backend)
{
    core__kernel_set *set =
        core__operators[op].data
            ? core__registry_set(&core__operators[op], backend)
            : NULL;

    return set ? atomic_load(&set->first) : NULL;
}

core_status core__registry_kernel_at(core__backend *backend, uint32_t index,
                                     const core_kernel **out_kernel)
{
    const core__kernel *kernel = NULL;
    uint32_t op = 0, left = index;

    *out_kernel = NULL;
    core__registry_lock();
    if (last.kernel && last.backend == backend && last.index <= index) {
        kernel = last.kernel;
        op = last.op;
        left = index - last.index;
    } else if (core__operator_count > 0) {
        kernel = first_of(0, backend);
    }
    while (op < core__operator_count && (!kernel || left > 0)) {
        if (kernel) {
            kernel = kernel->next;
            left--;
        } else if (++op < core__operator_count) {
            kernel = first_of(op, backend);
        }
    }
    if (kernel) {
        *out_kernel = &kernel->kernel;
        last.backend = backend;
        last.kernel = kernel;
        last.op = op;
        last.index = index;
    }
    core__registry_unlock();
    /* No message: the end of the list is not an error. */
    return *out_kernel ? CORE_OK : CORE_ERROR_NOT_FOUND;
}
