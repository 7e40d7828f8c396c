/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* registry.h: registrations for operators, and what is derived from them. */

#ifndef CORE_DISPATCH_REGISTRY_H
#define CORE_DISPATCH_REGISTRY_H

#include "base/fork.h"
#include "device/device.h"
#include "dispatch/operator.h"

/* A link in the list of memory to be reclaimed. */
typedef struct core__retired {
    struct core__retired *next;
    void *memory; /* the block that contains the link */
} core__retired;

/* The resolved dispatch of calls in one state.  The state is the union of the
 * tensors' keys and the thread's included keys, with the excluded keys in
 * higher bits.  A call in this state needs no masking, no look-up of an entry
 * and no new core_call.  The objects that a shortcut points to never change. */
struct core__shortcut {
    uint64_t state;
    core_function function;
    core_call call;             /* the part that functions see; the rest is 0 */
    const core__shortcut *next; /* older */
    core__entry entry; /* the table's entry from which it was created */
    /* A shortcut of a recorded call (autograd/graph/record_fast_path.h) also
     * has the entry below autograd; in others, below.function is NULL. */
    core__entry below;
    core_call below_call;
    const core__gradient *gradient;
    uint32_t saved_for; /* mask of the gradients that need saved values */
};

struct core_registration; /* libcore/dispatch.h */

/* A kernel that a backend registered: a complete copy of its core_kernel. */
typedef struct core__kernel {
    core_kernel kernel;
    const core_host *host; /* host table of its plugin */
    /* Masks of the dtypes that all inputs may have, with a result of the same
     * dtype and of bool: for elementwise_fast_path.c. */
    uint32_t same;
    uint32_t compared;
    struct core__kernel *next;       /* in the same set, newest first */
    struct core__kernel *next_owned; /* of the same registration */
    core__kernel_set *set;
} core__kernel;

/* Memory for kernels of one registration and backend, in one piece, because a
 * plugin registers about a thousand.  It is not touched before a kernel is
 * created in it, usually when it is first looked up: lazy_kernels.c. */
typedef struct core__pending_kernel core__pending_kernel;
typedef struct core__pending_kernels core__pending_kernels;
typedef struct core__kernel_slab {
    core__retired retired;
    struct core__kernel_slab *next; /* of the same registration */
    core_registry *registry;
    core__backend *backend;
    uint64_t sequence;              /* of registrations, at its creation */
    uint32_t used, capacity;        /* kernels */
    core__pending_kernels *pending; /* as many; NULL: out of memory */
    core__kernel kernels[];
} core__kernel_slab;

enum {
    /* A power of two: a larger dtype maps to another one's kernel, which
     * elementwise_fast_path.c finds not to accept it. */
    CORE__FAST_PATH_DTYPES = 16,
    CORE__DTYPES_OF_0_1 = 0xffff
};

/* The kernels of one operator on one backend.  Never freed: there are few, and
 * calls may be using one. */
struct core__kernel_set {
    core__backend *backend;
    uint32_t op; /* id of the operator that names them, or UINT32_MAX */
    core_operator *custom;
    uint64_t sequence; /* of the newest registration */
    core__kernel *_Atomic first;
    /* The newest kernel that accepts a dtype for the first input of a loop:
     * the right one if it accepts the other operands as well. */
    core__kernel *_Atomic fast_path[CORE__FAST_PATH_DTYPES];
    core__kernel_set *next;
    core__retired retired; /* for a backend's fallback, when the backend is
                            * removed */
};

/* Everything that a plugin's init or one call of a program registers, undone
 * together. */
struct core_registry {
    core_plugin *plugin;
    core__backend *backends[4];
    uint32_t nbackends;
    core__registration *first;
    core__kernel *kernels;
    core__kernel_slab *slabs;
};

/* Registers a backend, kernels, …: for the host table. */
core_status core__registry_add_backend(core_registry *registry,
                                       const core_backend *table);
core_status core__registry_add_kernels(core_registry *registry,
                                       core_string backend,
                                       const core_kernel *const *kernels,
                                       uint32_t count);
/* Checks for a kernel that no call would use, because no operator has its name,
 * or because the variant of that name uses another kernel.  Logs it and adds it
 * to the backend's list.  op: the operator of its name, or NULL.  The
 * registry's lock is held. */
bool core__registry_check_unmatched(core_registry *registry,
                                    core__backend *backend,
                                    const core_kernel *kernel,
                                    core_operator *op);
/* Writes these names, separated by commas, and names of functional operators
 * whose calls use another operator's kernels (sum's, for sum.dim_IntList)
 * which the backend lacks. */
enum { CORE__UNMATCHED_NAMES_SIZE = 4100 };
void core__unmatched_kernel_names(core__backend *backend, char *text,
                                  size_t size);
/* The set of a backend's fallback, if it has a kernel. */
static inline core__kernel_set *core__registry_fallback(
    const core__backend *backend)
{
    core__kernel_set *set = backend->fallback;

    return set && atomic_load(&set->first) ? set : NULL;
}
core_status core__registry_add_fallback(core_registry *registry,
                                        core_string backend,
                                        core_function kernel, void *user);
/* A program's function for all operators without anything of their own under a
 * key (libcore/mode.h). */
core_status core__registry_add_program_fallback(core_registry *registry,
                                                uint32_t key,
                                                core_string backend,
                                                core_function function,
                                                void *user);
core_status core__registry_add_operator(core_registry *registry,
                                        core_string schema);
core_status core__registry_add_function(core_registry *registry,
                                        core_string operator_name, uint32_t key,
                                        core_string backend,
                                        core_function function, void *user);
core_status core__registry_add_shape(core_registry *registry,
                                     core_string operator_name,
                                     core_shape_function shape, void *user);
/* Makes the newest registration own the memory of its user pointer. */
void core__registry_set_payload(core_registry *registry,
                                core__retired *payload);
/* Creates an empty registration. */
core_status core__registration_new(struct core_registration **out_registration);
core_registry *core__registration_registry(
    struct core_registration *registration);
/* Undoes all of it, including backends; the registry may be reused. */
void core__registry_undo(core_registry *registry);

/* The kernels of a backend, in no particular order. */
core_status core__registry_kernel_at(core__backend *backend, uint32_t index,
                                     const core_kernel **out_kernel);
/* Called when that order has changed, for one backend or all (NULL).  The
 * registry's lock is held. */
void core__kernel_list_reset(const core__backend *backend);
/* Creates a kernel at its place in a slab and adds it to the set of its
 * operator.  from is complete, and sequence its registration's.  The
 * registry's lock is held for all of these. */
core_status core__registry_create_kernel(core__kernel_slab *slab,
                                         uint32_t index,
                                         const core_kernel *from,
                                         core_operator *op, uint64_t sequence);
/* lazy_kernels.c: storage for pending kernels; NULL: no memory, so kernels
 * must be created at once. */
core__pending_kernels *core__pending_kernels_new(core__kernel_slab *slab,
                                                 uint32_t count);
/* False: the kernel must be created at once. */
bool core__pending_kernel_add(core__kernel_slab *slab, uint32_t index,
                              const core_kernel *kernel, uint32_t op,
                              uint64_t sequence);
/* Creates the pending kernels of an operator. */
void core__pending_kernels_create(uint32_t op);
/* Drops the pending kernels of a registration. */
void core__pending_kernels_drop(const core_registry *registry);
/* kernel_set.c: reserves memory for one more set, until the set is created or
 * the reservation released; false: out of memory. */
bool core__kernel_set_reserve(void);
void core__kernel_set_release_reserved(void);
/* kernel_set.c, with the registry's lock held: finds or creates the set of an
 * operator's kernels on a backend; adds a kernel as the newest of a set;
 * removes it. */
core_status core__kernel_set_find_or_create(core_operator *op,
                                            core__backend *backend,
                                            core__kernel_set **out_set);
void core__kernel_set_add(core__kernel_set *set, core__kernel *kernel);
void core__kernel_set_remove(core__kernel *kernel);
/* The set of an operator's kernels on a backend; NULL if there is none.
 * Pending kernels of the operator are created first. */
core__kernel_set *core__registry_set(const core_operator *op,
                                     const core__backend *backend);

/* Incremented with every change of registrations, before anything is freed:
 * lookups made under the same number are still valid. */
extern _Atomic uint32_t core__registry_generation;

/* The table of operators that were never called: its entries create the real
 * table. */
extern const core__entry *_Atomic core__table_unresolved[CORE__TABLE_SIZE];

/* Frees memory later, when no call can be using it any more.  The link is a
 * member of it, so that nothing is allocated. */
void core__reclaim(core__retired *link, void *memory);

/* For the child of a fork. */
void core__registry_after_fork(void);
/* Fork handler of the lock of memory to be reclaimed. */
void core__reclaim_fork(core__fork_phase at);

#endif
