/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* registry.h: what is registered for operators, and the tables made of it. */

#ifndef CORE_DISPATCH_REGISTRY_H
#define CORE_DISPATCH_REGISTRY_H

#include "base/fork.h"
#include "device/device.h"
#include "dispatch/operator.h"

/* A link of the list of what is freed later. */
typedef struct core__retired {
    struct core__retired *next;
    void *memory; /* what the link is a part of */
} core__retired;

/* Where the calls go whose tensors and thread are alike in all that matters:
 * union of the tensors' keys and those that the thread includes, and above it
 * those that it excludes.  A call that finds its own takes it as it is, instead
 * of masking, searching and writing a core_call; what it points to never
 * changes. */
struct core__shortcut {
    uint64_t state;
    core_function function;
    core_call call;             /* as far as functions see it; the rest is 0 */
    const core__shortcut *next; /* older */
    core__entry entry;          /* of the table, that it was made of */
    /* A recorded call (autograd/graph/record_fast_path.h) knows also where it computes; below's
     * function is NULL in other ones. */
    core__entry below;
    core_call below_call;
    const core__gradient *gradient;
    uint32_t saved_for; /* mask of the gradients that something is kept for */
};

struct core_registration; /* libcore/dispatch.h */

/* One kernel that a backend registered: the full copy of its core_kernel. */
typedef struct core__kernel {
    core_kernel kernel;
    const core_host *host; /* of the plugin it belongs to */
    /* Masks of the dtypes that all inputs may have, with a result of the same
     * one and with one of bool: what elementwise_fast_path.c asks. */
    uint32_t same;
    uint32_t compared;
    struct core__kernel *next;       /* in the same set, newest first */
    struct core__kernel *next_owned; /* of the same registration */
    core__kernel_set *set;
} core__kernel;

/* Room for kernels of one registration and backend, in one piece of memory: a
 * plugin brings a thousand.  It is not touched before a kernel is made in it,
 * which for most is when somebody looks for it: lazy_kernels.c. */
typedef struct core__pending core__pending;
typedef struct core__pending_rows core__pending_rows;
typedef struct core__kernel_slab {
    core__retired retired;
    struct core__kernel_slab *next; /* of the same registration */
    core_registry *registry;
    core__backend *backend;
    uint64_t sequence;           /* of registrations, when it was made */
    uint32_t used, room;         /* kernels */
    core__pending_rows *pending; /* as many; NULL: there was no memory */
    core__kernel kernels[];
} core__kernel_slab;

enum {
    /* A power of two: a dtype beyond finds another's kernel, which does not
     * take it, as elementwise_fast_path.c sees. */
    CORE__QUICK_DTYPES = 16,
    CORE__DTYPES_OF_0_1 = 0xffff
};

/* The kernels of one operator on one backend.  Lives as long as the process:
 * there are few, and calls may hold one. */
struct core__kernel_set {
    core__backend *backend;
    uint32_t op; /* id of the operator that names them, or UINT32_MAX */
    core_operator *custom;
    uint64_t sequence; /* of the newest registration */
    core__kernel *_Atomic first;
    /* The newest kernel that takes a dtype for the first input of a loop: the
     * right one if it takes the other operands as well. */
    core__kernel *_Atomic quick[CORE__QUICK_DTYPES];
    core__kernel_set *next;
    core__retired retired; /* of a backend's fallback, when the backend goes */
};

/* Everything that one plugin's init, or one call of a program, registers:
 * undone together. */
struct core_registry {
    core_plugin *plugin;
    core__backend *backends[4];
    uint32_t nbackends;
    core__registration *first;
    core__kernel *kernels;
    core__kernel_slab *slabs;
};

/* The transaction's calls, for the host table. */
core_status core__registry_add_backend(core_registry *registry,
                                       const core_backend *table);
core_status core__registry_add_kernels(core_registry *registry,
                                       core_string backend,
                                       const core_kernel *const *kernels,
                                       uint32_t count);
/* A plugin's kernel that no call would find, as its name is no operator's or a
 * variant's that uses another kernel: logged, and kept for those who list what
 * the backend brings.  op: the operator of its name, or NULL.  Under the
 * registry's lock. */
bool core__registry_unasked(core_registry *registry, core__backend *backend,
                            const core_kernel *kernel, core_operator *op);
/* Those, with commas, and names of functional operators whose calls use
 * another's kernels (sum.dim_IntList: sum's) of which there are none. */
enum { CORE__UNASKED_NAMES = 4100 };
void core__unasked_names(core__backend *backend, char *text, size_t room);
/* The set of a backend's fallback, if there is a kernel in it. */
static inline core__kernel_set *core__registry_fallback(
    const core__backend *backend)
{
    core__kernel_set *set = backend->fallback;

    return set && atomic_load(&set->first) ? set : NULL;
}
core_status core__registry_add_fallback(core_registry *registry,
                                        core_string backend,
                                        core_function kernel, void *user);
core_status core__registry_add_operator(core_registry *registry,
                                        core_string schema);
core_status core__registry_add_function(core_registry *registry,
                                        core_string operator_name, uint32_t key,
                                        core_string backend,
                                        core_function function, void *user);
/* The newest registration's user word lies in memory that goes with it. */
void core__registry_set_payload(core_registry *registry,
                                core__retired *payload);
/* An empty one. */
core_status core__registration_new(struct core_registration **out_registration);
core_registry *core__registration_registry(
    struct core_registration *registration);
/* Undoes all of it, backends too; the registry may be used again. */
void core__registry_undo(core_registry *registry);

/* Kernels of a backend in no particular order. */
core_status core__registry_kernel_at(core__backend *backend, uint32_t index,
                                     const core_kernel **out_kernel);
/* That order has changed, for one backend or all (NULL).  Under the registry's
 * lock. */
void core__kernel_list_reset(const core__backend *backend);
/* A kernel, in its room of a slab, comes into the set of its operator; from is
 * whole, and the sequence that of its registration.  Under the registry's lock,
 * as all of these. */
core_status core__registry_place(core__kernel_slab *slab, uint32_t index,
                                 const core_kernel *from, core_operator *op,
                                 uint64_t sequence);
/* lazy_kernels.c: what a kernel needs until somebody looks for it; NULL: no memory,
 * and then it is made at once. */
core__pending_rows *core__pending_rows_new(core__kernel_slab *slab,
                                           uint32_t count);
/* False: it has to be made at once. */
bool core__pending_add(core__kernel_slab *slab, uint32_t index,
                       const core_kernel *kernel, uint32_t op,
                       uint64_t sequence);
/* Makes those of an operator. */
void core__pending_make(uint32_t op);
/* Those of a registration are never made. */
void core__pending_drop(const core_registry *registry);
/* kernel_set.c: memory for one more set is there until the promise is kept, and
 * somebody may make that set, or given up; false: there is none. */
bool core__kernel_set_promise(void);
void core__kernel_set_keep_promise(void);
/* kernel_set.c, under the registry's lock: the set of an operator's kernels on
 * a backend, made if there is none; a kernel becomes the newest there, or
 * leaves it. */
core_status core__kernel_set_make(core_operator *op, core__backend *backend,
                                  core__kernel_set **out_set);
void core__kernel_set_add(core__kernel_set *set, core__kernel *kernel);
void core__kernel_set_remove(core__kernel *kernel);
/* The set of an operator's kernels on a backend; NULL if there is none.  What is
 * pending for the operator is made first. */
core__kernel_set *core__registry_set(const core_operator *op,
                                     const core__backend *backend);

/* Grows with every change of what is registered, before anything of it is freed:
 * what was looked up under the same number is still so. */
extern _Atomic uint32_t core__registered;

/* The table of operators that nobody called yet: every entry resolves. */
extern const core__entry *_Atomic core__table_unresolved[CORE__TABLE_SIZE];

/* An entry or a kernel that calls may still be using is freed later.  The link
 * is a member of it, so that there is nothing to allocate. */
void core__reclaim(core__retired *link, void *memory);

/* In the child of a fork. */
void core__registry_forked(void);
/* Fork handler of the memory that is to be reclaimed. */
void core__reclaim_fork(core__fork at);

#endif
