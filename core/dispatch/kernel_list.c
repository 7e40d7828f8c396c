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

/* Built-in operators, then custom ones; NULL after the last. */
static core_operator *operator_at(uint32_t index)
{
    return index < core__operator_count
               ? &core__operators[index]
               : core__registry_custom_at(index - core__operator_count);
}

static const core__kernel *first_of(const core_operator *op,
                                    const core__backend *backend)
{
    core__kernel_set *set =
        op && op->data ? core__registry_set(op, backend) : NULL;

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
    } else {
        kernel = first_of(operator_at(0), backend);
    }
    while (operator_at(op) && (!kernel || left > 0)) {
        if (kernel) {
            kernel = kernel->next;
            left--;
        } else {
            kernel = first_of(operator_at(++op), backend);
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
