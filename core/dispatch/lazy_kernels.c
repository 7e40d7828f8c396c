/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Kernels that no call has used yet.  A plugin registers a thousand kernels,
 * and a program calls a few dozen operators: creating every kernel and set when
 * the plugin is opened would touch a quarter of a megabyte of memory, the
 * largest part of its cost.  So a plain kernel is stored in compact form, and
 * created, in memory that was reserved but not touched, when its operator is
 * looked up; this cannot fail then.
 *
 * Everything is guarded by the registry's lock.  A process may fork while
 * another thread creates kernels: one store removes each from the list after it
 * was created, and a kernel that exists is not created again. */

#include "base/memory.h"
#include "dispatch/registry.h"

#include <string.h>

/* Operands of a plain kernel; further ones accept any dtype. */
enum { OPERANDS = 5 };

struct core__pending_kernel {
    core__pending_kernel *next; /* of the same operator, newer; after the newest
                          * follows the oldest */
    core_function launch;
    void *user;
    uint32_t requirements;
    uint32_t index; /* index in its slab */
    uint32_t later; /* registrations between its slab's and its own */
    uint32_t signature[OPERANDS];
};

struct core__pending_kernels {
    core__kernel_slab *slab;
    core__pending_kernel rows[];
};

/* By operator; NULL: nothing was ever pending. */
static core__pending_kernel **newest;

core__pending_kernels *core__pending_kernels_new(core__kernel_slab *slab,
                                                 uint32_t count)
{
    core__pending_kernels *rows =
        core__alloc(sizeof *rows + count * sizeof rows->rows[0]);

    if (rows)
        rows->slab = slab;
    return rows;
}

static core__kernel_slab *slab_of(const core__pending_kernel *pending)
{
    const char *first = (const char *)(pending - pending->index);

    return ((const core__pending_kernels *)(first -
                                            offsetof(core__pending_kernels,
                                                     rows)))
        ->slab;
}

/* True if a core__pending_kernel can represent the kernel completely. */
static bool is_plain(const core_kernel *kernel)
{
    if (kernel->struct_size < sizeof *kernel || kernel->max_ndim ||
        kernel->reserved || kernel->supports || kernel->prepare ||
        kernel->plan_destroy)
        return false;
    for (uint32_t i = OPERANDS; i < CORE_SIGNATURE_MAX; i++)
        if (kernel->signature[i])
            return false;
    return true;
}

bool core__pending_kernel_add(core__kernel_slab *slab, uint32_t index,
                              const core_kernel *kernel, uint32_t op,
                              uint64_t sequence)
{
    core__pending_kernel *pending;

    if (!slab->pending || !is_plain(kernel) ||
        sequence - slab->sequence > UINT32_MAX)
        return false;
    if (!newest)
        newest = core__alloc_zero(core__operator_count * sizeof *newest);
    if (!newest || !core__kernel_set_reserve())
        return false;
    pending = &slab->pending->rows[index];
    pending->launch = kernel->launch;
    pending->user = kernel->user;
    pending->requirements = kernel->demands;
    pending->index = index;
    pending->later = (uint32_t)(sequence - slab->sequence);
    memcpy(pending->signature, kernel->signature, sizeof pending->signature);
    pending->next = newest[op] ? newest[op]->next : pending;
    if (newest[op])
        newest[op]->next = pending;
    newest[op] = pending;
    return true;
}

static void make(const core__pending_kernel *pending, core_operator *op)
{
    core__kernel_slab *slab = slab_of(pending);
    core_kernel kernel = {
        .struct_size = sizeof kernel,
        .demands = pending->requirements,
        .launch = pending->launch,
        .user = pending->user,
    };

    kernel.name.data = core__operator_name(op);
    kernel.name.size = strlen(kernel.name.data);
    memcpy(kernel.signature, pending->signature, sizeof pending->signature);
    /* A set was reserved for it, and it needs nothing else. */
    core__kernel_set_release_reserved();
    core__registry_create_kernel(slab, pending->index, &kernel, op,
                                 slab->sequence + pending->later);
}

void core__pending_kernels_create(uint32_t op)
{
    core__pending_kernel *last = newest ? newest[op] : NULL, *oldest;

    while (last) {
        oldest = last->next;
        make(oldest, &core__operators[op]);
        if (oldest == last)
            last = NULL;
        __atomic_store_n(last ? &last->next : &newest[op],
                         last ? oldest->next : NULL, __ATOMIC_RELEASE);
    }
}

static void drop_in(core__pending_kernel **end, const core_registry *registry)
{
    core__pending_kernel *before = *end, *at;
    bool more = before != NULL;

    while (more) {
        at = before->next;
        more = at != *end;
        if (slab_of(at)->registry != registry) {
            before = at;
            continue;
        }
        core__kernel_set_release_reserved();
        before->next = at->next;
        if (!more)
            *end = at == before ? NULL : before;
    }
}

void core__pending_kernels_drop(const core_registry *registry)
{
    for (uint32_t op = 0; newest && op < core__operator_count; op++)
        drop_in(&newest[op], registry);
}
