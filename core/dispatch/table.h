/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* table.h: the tables that dispatch reads, computed from registrations. */

#ifndef CORE_DISPATCH_TABLE_H
#define CORE_DISPATCH_TABLE_H

#include "dispatch/registry.h"

/* The slot of a registration whose backend was unloaded. */
enum { CORE__SLOT_UNLOADED = 255 };

/* The key of a shape function: after the CORE_KEY_… of plugin.h. */
enum { CORE__KEY_SHAPE = 256 };

/* A function under a key, or a custom operator. */
struct core__registration {
    core_operator *op;
    core_operator *custom; /* not NULL: this registration is the operator
                            * itself */
    uint32_t key;          /* CORE_KEY_… of plugin.h */
    uint32_t slot;         /* CORE__SLOT_NONE: all */
    core__entry entry;
    uint64_t sequence;
    /* The program's function and its user pointer, where the entry is one that
     * calls it: core__decompose, core__run_registered. */
    core__entry own;
    core_shape_function shape;      /* of CORE__KEY_SHAPE; entry.user is its
                                     * user pointer */
    core__registration *next;       /* same operator, older */
    core__registration *next_owned; /* same registry */
    core__retired retired;
    core__retired *payload; /* memory of the user pointer, freed with it; or
                             * NULL */
};

/* Runs a registered decomposition, call->user; fails if it recurses
 * infinitely. */
core_status core__decompose(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults);

/* Runs the function of a registration, call->user, under a key for which there
 * may be something that it displaces: core_redispatch_displaced finds it. */
core_status core__run_registered(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults);
/* The same under CORE_KEY_INPLACE_OR_VIEW, with the work of that layer. */
core_status core__run_registered_change(core_call *call, const core_value *args,
                                        uint32_t nargs, core_value *results,
                                        uint32_t nresults);

/* With the registry's lock held: what a slot's calls would run if a registration
 * and all newer ones under its key did not exist.  The function is NULL if they
 * would run nothing. */
core__entry core__table_displaced(const core__registration *registration,
                                  uint32_t slot);

/* With the registry's lock held: the newest fallback of a program for a key and
 * slot, or NULL. */
const core__registration *core__registry_program_fallback(uint32_t key,
                                                          uint32_t slot);

void core__registry_lock(void);
void core__registry_unlock(void);
void core__registry_each_custom(void (*visit)(core_operator *));
/* Custom operator `index`, in no particular order; NULL after the last one. */
core_operator *core__registry_custom_at(uint32_t index);
/* A custom operator has got a shape function, or (NULL) lost it. */
void core__registry_set_shape(core_operator *op, core__registration *shape);
/* The registration of its shape function, or NULL.  Any thread may call it; what
 * is returned is valid while the calling call runs. */
const core__registration *core__registry_shape(const core_operator *op);
/* The counts of a custom operator, by core_conversion. */
_Atomic uint64_t *core__registry_conversions(const core_operator *op);
/* The count of a custom operator for core_vmap_loops. */
_Atomic uint64_t *core__registry_loops(const core_operator *op);
/* Creates a registration; with the registry's lock held. */
core_status core__registry_new_registration(core_registry *registry,
                                            core__registration **out);

/* With the registry's lock held: recomputes the entries of op's table, if it
 * has one. */
void core__table_refresh(core_operator *op);
void core__table_refresh_all(void);

/* The kind of a slot's entry, for tests and messages: "kernel", "function",
 * "explicit", "implicit", "fallback", "meta", "missing". */
const char *core__table_describe(core_operator *op, uint32_t slot);

#endif
