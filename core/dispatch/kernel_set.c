/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The kernels of one operator on one backend. */

#include "base/memory.h"
#include "dispatch/kernel_constraints.h"
#include "dispatch/registry.h"

#include <string.h>

/* Memory for sets, which are never freed: a plugin needs hundreds, and only
 * used ones are touched.  Guarded by the registry's lock, like the sets. */
typedef struct set_block {
    struct set_block *next;
    core__kernel_set *sets;
    uint32_t available;
} set_block;

enum { SETS_AT_ONCE = 512 };
static set_block *set_blocks;
static uint32_t available, promised;

static bool add_block(void)
{
    set_block *more = core__alloc(sizeof *more);
    core__kernel_set *sets =
        more ? core__alloc(SETS_AT_ONCE * sizeof *sets) : NULL;

    if (!sets) {
        core__free(more);
        return false;
    }
    *more = (set_block){set_blocks, sets, SETS_AT_ONCE};
    set_blocks = more;
    available += SETS_AT_ONCE;
    return true;
}

/* NULL: all remaining memory is reserved. */
static core__kernel_set *allocate_set(void)
{
    set_block *at = set_blocks;
    core__kernel_set *set;

    if (available <= promised) {
        if (!add_block())
            return NULL;
        at = set_blocks;
    }
    while (at->available == 0)
        at = at->next;
    available--;
    set = &at->sets[--at->available];
    memset(set, 0, sizeof *set);
    return set;
}

bool core__kernel_set_reserve(void)
{
    if (available <= promised && !add_block())
        return false;
    promised++;
    return true;
}

void core__kernel_set_release_reserved(void)
{
    promised--;
}

static core__kernel_set *set_of(const core_operator *op,
                                const core__backend *backend)
{
    core__kernel_set *set = op->kernels;

    while (set && set->backend != backend)
        set = set->next;
    return set;
}

core__kernel_set *core__registry_set(const core_operator *op,
                                     const core__backend *backend)
{
    if (!(op->flags & CORE__OP_CUSTOM))
        core__pending_kernels_create((uint32_t)(op - core__operators));
    return set_of(op, backend);
}

core_status core__kernel_set_find_or_create(core_operator *op,
                                            core__backend *backend,
                                            core__kernel_set **out_set)
{
    core__kernel_set *set = set_of(op, backend);

    *out_set = set;
    if (set)
        return CORE_OK;
    /* Reuses an empty set left by an unloaded backend. */
    for (set = op->kernels; set; set = set->next)
        if (!set->backend && !atomic_load(&set->first)) {
            set->backend = backend;
            *out_set = set;
            return CORE_OK;
        }
    set = allocate_set();
    if (!set)
        return core__error_memory(SETS_AT_ONCE * sizeof *set);
    set->backend = backend;
    set->next = op->kernels;
    op->kernels = set;
    *out_set = set;
    return CORE_OK;
}

/* On a device without streams elementwise_fast_path.c does not query plans. */
static bool has_fast_path(const core__kernel_set *set,
                          const core_kernel *kernel)
{
    return !kernel->supports && !(kernel->demands & CORE__CONSTRAINTS_SLOW) &&
           !(kernel->prepare && set->backend->synchronous);
}

static void refresh_fast_path(core__kernel_set *set)
{
    for (uint32_t dtype = 0; dtype < CORE__FAST_PATH_DTYPES; dtype++) {
        core__kernel *at = atomic_load(&set->first);

        while (at && !(at->kernel.signature[1] >> dtype & 1))
            at = at->next;
        if (at && !has_fast_path(set, &at->kernel))
            at = NULL; /* the call must be checked first */
        atomic_store_explicit(&set->fast_path[dtype], at, memory_order_release);
    }
}

void core__kernel_set_add(core__kernel_set *set, core__kernel *kernel)
{
    uint32_t mask = kernel->kernel.signature[1];

    kernel->next = atomic_load(&set->first);
    atomic_store_explicit(&set->first, kernel, memory_order_release);
    for (mask &= (1u << CORE__FAST_PATH_DTYPES) - 1; mask; mask &= mask - 1)
        atomic_store_explicit(&set->fast_path[__builtin_ctz(mask)],
                              has_fast_path(set, &kernel->kernel) ? kernel
                                                                  : NULL,
                              memory_order_release);
}

void core__kernel_set_remove(core__kernel *kernel)
{
    core__kernel_set *set = kernel->set;
    core__kernel *at = atomic_load(&set->first);

    if (at == kernel) {
        atomic_store(&set->first, kernel->next);
    } else {
        while (at && at->next != kernel)
            at = at->next;
        if (at)
            at->next = kernel->next;
    }
    refresh_fast_path(set);
}
