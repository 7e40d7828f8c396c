/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Determines the entry of each slot of an operator's table.
 *
 * A backend's slot, in order of precedence: newest of direct kernels and
 * functions; explicit composite; implicit composite; for meta the inference of
 * structured operators; a program's fallback; the backend's fallback; missing.
 * An autograd slot: a function registered for it; an implicit composite if the
 * backend has neither kernel nor explicit composite; a program's fallback if the
 * operator has no gradient; the autograd layer.
 *
 * Entries depend on the set of registrations and their order within one key,
 * never on the order between keys: they are always computed from scratch. */

#include "dispatch/table.h"

#include "base/memory.h"
#include "base/settings.h"
#include "dispatch/dispatch.h"
#include "dispatch/structured.h"
#include "dispatch/upcalls.h"
#include "ops_ids.h"

#include <pthread.h>

enum { SHORTCUTS = 6 };

typedef struct operator_table {
    const core__entry *_Atomic slots[CORE__TABLE_SIZE];
    /* All shortcuts ever created: none is reused, because a call may be reading
     * it. */
    core__shortcut shortcuts[SHORTCUTS];
    _Atomic uint32_t nshortcuts;
    core__entry function;               /* the built-in function */
    core__entry kernels[CORE__SLOTS];   /* structured, by backend */
    core__entry written[CORE__SLOTS];   /* including the work of the
                                         * in-place-or-view layer */
    core__entry fallbacks[CORE__SLOTS]; /* kernels' entries for its fallback
                                         * kernel */
    core__entry meta;
} operator_table;

static core_status resolve(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults);

static const core__entry unresolved = {resolve, NULL};
static const core__entry missing = {core__missing_kernel, NULL};

static inline const core__entry *dispatch_layer(uint32_t functionality)
{
    return &core__dispatch_layers[functionality];
}

#define SIXTEEN(x) x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x
const core__entry *_Atomic core__table_unresolved[CORE__TABLE_SIZE] = {
    SIXTEEN(&unresolved), SIXTEEN(&unresolved), SIXTEEN(&unresolved),
    SIXTEEN(&unresolved), SIXTEEN(&unresolved), SIXTEEN(&unresolved),
    SIXTEEN(&unresolved), SIXTEEN(&unresolved), SIXTEEN(&unresolved),
    SIXTEEN(&unresolved), SIXTEEN(&unresolved), SIXTEEN(&unresolved),
};
_Static_assert(CORE__TABLE_SIZE == 12 * 16, "one SIXTEEN per functionality");

/* The newest registration before one, a sequence number. */
static core__registration *newest_before(uint64_t before,
                                         const core_operator *op, uint32_t key,
                                         uint32_t slot)
{
    core__registration *r = op->registrations;

    while (r && !(r->key == key && r->slot == slot && r->sequence < before))
        r = r->next;
    return r;
}

static core__registration *newest(const core_operator *op, uint32_t key,
                                  uint32_t slot)
{
    return newest_before(UINT64_MAX, op, key, slot);
}

static bool structured(const core_operator *op)
{
    return op->family >= CORE__FAMILY_ELEMENTWISE;
}

/* Whether a slot is served by a function that calls operators in the place of
 * its own: IMPLICIT, and above autograd. */
typedef enum decomposition { NONE, EXPLICIT, IMPLICIT } decomposition;

static decomposition decomposition_of(const core_operator *op)
{
    if (op->data->implicit)
        return IMPLICIT;
    return op->family == CORE__FAMILY_VIEW || op->flags & CORE__OP_PRIMITIVE
               ? NONE
               : EXPLICIT;
}

/* The entry of a function of an operator that is not built in: most have nothing
 * else, and need no record of what they displace. */
static const core__entry *own_entry(const core_operator *op,
                                    const core__registration *direct,
                                    const core__kernel_set *set)
{
    return op->flags & CORE__OP_CUSTOM && !set && op->registrations == direct &&
                   !direct->next
               ? &direct->own
               : &direct->entry;
}

/* before: of functions registered for the backend. */
static const core__entry *backend_entry(core_operator *op,
                                        operator_table *table, uint32_t slot,
                                        uint64_t before,
                                        decomposition *out_kind)
{
    core__backend *backend = core__backend_by_slot(slot);
    core__registration *direct =
        newest_before(before, op, CORE_KEY_BACKEND, slot);
    const core__registration *fallback;
    core__registration *composite;
    core__kernel_set *set = NULL;

    *out_kind = NONE;
    if (backend && structured(op))
        set = core__registry_set(core__operator_kernel(op), backend);
    if (set && !atomic_load(&set->first))
        set = NULL;
    if (direct && (!set || direct->sequence > set->sequence))
        return own_entry(op, direct, set);
    if (set) {
        if (table->kernels[slot].user != set)
            table->kernels[slot] =
                (core__entry){core__structured_run(op, set), set};
        return &table->kernels[slot];
    }
    composite = newest(op, CORE_KEY_COMPOSITE_EXPLICIT, CORE__SLOT_NONE);
    *out_kind = EXPLICIT;
    if (composite)
        return &composite->entry;
    *out_kind = decomposition_of(op);
    if (op->data->function && !op->data->implicit)
        return &table->function;
    composite = newest(op, CORE_KEY_COMPOSITE_IMPLICIT, CORE__SLOT_NONE);
    *out_kind = IMPLICIT;
    if (composite)
        return &composite->entry;
    if (op->data->function)
        return &table->function;
    *out_kind = NONE;
    if (slot == CORE__SLOT_META && structured(op))
        return &table->meta;
    fallback = core__registry_program_fallback(CORE_KEY_BACKEND, slot);
    if (fallback)
        return &fallback->entry;
    if (backend && core__registry_fallback(backend) && structured(op)) {
        set = backend->fallback;
        if (table->fallbacks[slot].user != set)
            table->fallbacks[slot] =
                (core__entry){core__structured_run(op, set), set};
        return &table->fallbacks[slot];
    }
    return &missing;
}

static void set_slot(operator_table *table, uint32_t functionality,
                     uint32_t slot, const core__entry *entry)
{
    atomic_store_explicit(&table->slots[functionality * CORE__SLOTS + slot],
                          entry, memory_order_release);
}

/* The fallback that stands in for the autograd layer, or NULL. */
static const core__registration *autograd_fallback(const core_operator *op,
                                                   uint32_t slot)
{
    return core__operator_base(op)->data->no_gradient
               ? core__registry_program_fallback(CORE_KEY_AUTOGRAD, slot)
               : NULL;
}

static bool has_autograd_fallback(const core_operator *op)
{
    if (!core__operator_base(op)->data->no_gradient)
        return false;
    for (uint32_t slot = 0; slot < CORE__SLOTS; slot++)
        if (autograd_fallback(op, slot))
            return true;
    return false;
}

/* Layers that would only redispatch a call in which nothing requires grad, of
 * an operator without registered functions: autograd, because its exclusion
 * below matters only to functions that call operators; and for a single view
 * in-place-or-view, because nothing is changed. */
static uint64_t skippable_layers(const core_operator *op)
{
    if (op->registrations || op->flags & CORE__OP_CUSTOM ||
        has_autograd_fallback(op))
        return 0;
    if (structured(op))
        return CORE__KEY_AUTOGRAD;
    if (op->family == CORE__FAMILY_VIEW &&
        op->variant == CORE__VARIANT_FUNCTIONAL &&
        !(op->flags & CORE__OP_MULTIPLE_VIEWS) && op->data->function &&
        !op->data->implicit)
        return CORE__KEY_AUTOGRAD | CORE__KEY_INPLACE_OR_VIEW;
    return 0;
}

/* ----------------------------------------------------------- shortcuts -- */

/* Matches no state. */
static const core__shortcut no_shortcut = {.state = UINT64_MAX};

static operator_table *table_of(const core_operator *op)
{
    return (operator_table *)(void *)op->table;
}

static const core__entry *entry_at(const core_operator *op, uint64_t keys)
{
    return atomic_load_explicit(&op->table[core__keys_index(keys)],
                                memory_order_relaxed);
}

static bool is_at(const core_operator *op, uint64_t keys,
                  const core__entry *known)
{
    const core__entry *entry = entry_at(op, keys);

    return entry->function == known->function && entry->user == known->user;
}

/* True if the table still has the shortcut's entry for calls in its state. */
static bool is_current(const core_operator *op, const core__shortcut *shortcut)
{
    uint64_t keys = core__keys_of_state(op, shortcut->state);

    if (shortcut == &no_shortcut)
        return true;
    if (keys != shortcut->call.keys || !is_at(op, keys, &shortcut->entry))
        return false;
    return !shortcut->below.function ||
           (skippable_layers(op) &&
            is_at(op, shortcut->below_call.keys, &shortcut->below));
}

/* After a change of the table: resets the shortcuts if one is out of date. */
static void check_shortcuts(core_operator *op)
{
    const core__shortcut *at = op->shortcut;

    while (at && is_current(op, at))
        at = at->next;
    if (at)
        atomic_store_explicit(&op->shortcut, &no_shortcut,
                              memory_order_release);
}

static core_call call_of(core_operator *op, uint64_t keys, void *user)
{
    return (core_call){.struct_size = CORE__FUNCTION_CALL_SIZE,
                       .host = &core__host,
                       .user = user,
                       .op = op,
                       .keys = keys};
}

/* Extends the shortcut of a recorded call, if it is a plain one: below
 * autograd there is only a backend's kernel, which calls no operator that
 * would also be recorded. */
static void extend_recorded(core__shortcut *shortcut)
{
    core_operator *op = shortcut->call.op;
    uint64_t keys =
        core__keys_below(shortcut->call.keys, CORE__FUNCTIONALITY_AUTOGRAD) &
        core__operator_mask(op);
    const core__entry *below;

    if (shortcut->function !=
            dispatch_layer(CORE__FUNCTIONALITY_AUTOGRAD)->function ||
        !structured(op) || !skippable_layers(op) || op->nresults != 1 ||
        op->variant != CORE__VARIANT_FUNCTIONAL ||
        !core__dispatch_upcalls.gradient_has_fast_path(op->data->gradient,
                                                       &shortcut->saved_for) ||
        keys < CORE__KEY_BACKEND)
        return;
    below = entry_at(op, keys);
    if (below != &table_of(op)->kernels[core__keys_slot(keys)])
        return;
    shortcut->below = *below;
    shortcut->below_call = call_of(op, keys, shortcut->below.user);
    shortcut->gradient = op->data->gradient;
    shortcut->function = core__dispatch_upcalls.record_fast_path;
    shortcut->call.user = shortcut;
}

void core__shortcut_add(core_operator *op, uint64_t state)
{
    operator_table *table = table_of(op);
    core__shortcut *shortcut;
    uint64_t keys;

    /* The few shortcuts are for calls without modes that are not recorded. */
    if (state & (CORE__KEYS_MODE | CORE__KEYS_TRACED) ||
        atomic_load(&table->nshortcuts) == SHORTCUTS)
        return;
    core__registry_lock();
    keys = core__keys_of_state(op, state);
    if (table->nshortcuts < SHORTCUTS && keys >= CORE__KEY_BACKEND) {
        shortcut = &table->shortcuts[table->nshortcuts++];
        shortcut->state = state;
        shortcut->entry = *entry_at(op, keys);
        shortcut->function = shortcut->entry.function;
        shortcut->call = call_of(op, keys, shortcut->entry.user);
        extend_recorded(shortcut);
        shortcut->next = op->shortcut == &no_shortcut ? NULL : op->shortcut;
        atomic_store_explicit(&op->shortcut, shortcut, memory_order_release);
    }
    core__registry_unlock();
}

/* -------------------------------------------------------------- tables -- */

/* A decomposition of an out variant would be recorded as the copies with which
 * it ends. */
static bool never_recorded(const core_operator *op)
{
    return op->variant == CORE__VARIANT_OUT && !(op->flags & CORE__OP_CUSTOM);
}

/* The entry at the slot of the in-place-or-view layer. */
static const core__entry *write_entry(const core_operator *op,
                                      operator_table *table, uint32_t slot,
                                      const core__entry *below)
{
    core_function function = NULL;

    if (below == &table->kernels[slot] &&
        op->family == CORE__FAMILY_ELEMENTWISE)
        function = core__elementwise_write(op);
    if (!function)
        return dispatch_layer(CORE__FUNCTIONALITY_INPLACE_OR_VIEW);
    if (table->written[slot].user != below->user)
        table->written[slot] = (core__entry){function, below->user};
    return &table->written[slot];
}

/* The core's own entry at the slot of the autograd layer. */
static const core__entry *gradient_entry(const core_operator *op, uint32_t slot,
                                         const core__entry *below,
                                         decomposition kind)
{
    const core__registration *fallback = autograd_fallback(op, slot);

    if (kind == IMPLICIT && !never_recorded(op))
        return below;
    return fallback ? &fallback->entry
                    : dispatch_layer(CORE__FUNCTIONALITY_AUTOGRAD);
}

/* The entries of one backend's slot. */
static void fill_slot(core_operator *op, operator_table *table, uint32_t slot,
                      const core__registration *inplace_or_view)
{
    decomposition kind;
    const core__entry *below =
        backend_entry(op, table, slot, UINT64_MAX, &kind);
    const core__entry *above = gradient_entry(op, slot, below, kind);
    const core__registration *r = newest(op, CORE_KEY_AUTOGRAD, slot);

    if (!r)
        r = newest(op, CORE_KEY_AUTOGRAD, CORE__SLOT_NONE);
    set_slot(table, CORE__FUNCTIONALITY_BACKEND, slot, below);
    /* The parts of a decomposition are seen in its place. */
    for (uint32_t layer = CORE__FUNCTIONALITY_RECORD;
         layer <= CORE__FUNCTIONALITY_MODE_BELOW_AUTOGRAD; layer++)
        set_slot(table, layer, slot,
                 kind == NONE ? dispatch_layer(layer) : below);
    set_slot(table, CORE__FUNCTIONALITY_AUTOGRAD, slot, r ? &r->entry : above);
    set_slot(table, CORE__FUNCTIONALITY_INPLACE_OR_VIEW, slot,
             inplace_or_view    ? &inplace_or_view->entry
             : kind == IMPLICIT ? below
                                : write_entry(op, table, slot, below));
}

/* The entries of a layer that does not depend on the backend. */
static void fill_layer(operator_table *table, uint32_t functionality,
                       const core__registration *r)
{
    for (uint32_t slot = 0; slot < CORE__SLOTS; slot++)
        set_slot(table, functionality, slot,
                 r ? &r->entry : dispatch_layer(functionality));
}

static void fill(core_operator *op, operator_table *table)
{
    const core__registration *inplace_or_view =
        newest(op, CORE_KEY_INPLACE_OR_VIEW, CORE__SLOT_NONE);

    /* Custom operators become structured with a shape function. */
    if (structured(op) && !table->meta.function)
        table->meta = (core__entry){core__structured_run(op, NULL), NULL};
    __atomic_store_n(&op->mask_without_autograd,
                     op->mask & ~skippable_layers(op), __ATOMIC_RELAXED);
    for (uint32_t slot = 0; slot < CORE__SLOTS; slot++)
        fill_slot(op, table, slot, inplace_or_view);
    fill_layer(table, CORE__FUNCTIONALITY_BATCH_RULE, NULL);
    fill_layer(table, CORE__FUNCTIONALITY_BATCHED, NULL);
    fill_layer(table, CORE__FUNCTIONALITY_AUTOCAST,
               newest(op, CORE_KEY_AUTOCAST, CORE__SLOT_NONE));
    fill_layer(table, CORE__FUNCTIONALITY_PROFILER,
               newest(op, CORE_KEY_PROFILER, CORE__SLOT_NONE));
    fill_layer(table, CORE__FUNCTIONALITY_TRACE, NULL);
    fill_layer(table, CORE__FUNCTIONALITY_MODE_API, NULL);
    if (op->shortcut)
        check_shortcuts(op);
}

/* Functions for one device type precede those for all. */
static const core__registration *older(const core__registration *than,
                                       uint32_t slot)
{
    const core__registration *r =
        newest_before(than->sequence, than->op, than->key, than->slot);

    if (!r && than->key == CORE_KEY_AUTOGRAD && than->slot == slot)
        r = newest(than->op, CORE_KEY_AUTOGRAD, CORE__SLOT_NONE);
    return r;
}

/* What a decomposition without an older one under its key displaces. */
static core__entry composite_displaced(core_operator *op,
                                       const operator_table *table,
                                       uint32_t key)
{
    const core__registration *implicit =
        key == CORE_KEY_COMPOSITE_EXPLICIT
            ? newest(op, CORE_KEY_COMPOSITE_IMPLICIT, CORE__SLOT_NONE)
            : NULL;

    if (implicit && (!op->data->function || op->data->implicit))
        return implicit->entry;
    if (op->data->function &&
        (key == CORE_KEY_COMPOSITE_EXPLICIT || op->data->implicit))
        return table->function;
    return (core__entry){NULL, NULL};
}

/* A built-in operator without a kernel says that itself, or runs on the CPU. */
static core__entry kernel_displaced(const core__registration *registration,
                                    operator_table *table, uint32_t slot)
{
    core_operator *op = registration->op;
    decomposition kind;
    const core__entry *entry =
        backend_entry(op, table, slot, registration->sequence, &kind);

    return entry == &missing && op->flags & CORE__OP_CUSTOM
               ? (core__entry){NULL, NULL}
               : *entry;
}

core__entry core__table_displaced(const core__registration *registration,
                                  uint32_t slot)
{
    core_operator *op = registration->op;
    operator_table *table = table_of(op);
    const core__registration *r;
    const core__entry *below;
    decomposition kind;

    if (registration->key == CORE_KEY_BACKEND)
        return kernel_displaced(registration, table, slot);
    r = older(registration, slot);
    if (r)
        return r->entry;
    if (registration->key >= CORE_KEY_COMPOSITE_EXPLICIT)
        return composite_displaced(op, table, registration->key);
    if (registration->key == CORE_KEY_AUTOCAST)
        return *dispatch_layer(CORE__FUNCTIONALITY_AUTOCAST);
    if (registration->key == CORE_KEY_PROFILER)
        return *dispatch_layer(CORE__FUNCTIONALITY_PROFILER);
    below = backend_entry(op, table, slot, UINT64_MAX, &kind);
    if (registration->key == CORE_KEY_AUTOGRAD)
        return *gradient_entry(op, slot, below, kind);
    return kind == IMPLICIT ? *below : *write_entry(op, table, slot, below);
}

/* Built-in operators that have tables: few of them in most programs, and a
 * plugin's registrations change no others.  Guarded by the registry's lock. */
static uint16_t resolved[CORE_OP_COUNT];
static uint32_t nresolved;

/* With the registry's lock held. */
static void read_settings(void)
{
    static bool done;
    bool on = false;

    if (done)
        return;
    done = true;
    if (core__setting_freeze_trace(&on) == CORE_OK && on)
        core__dispatch_trace_set(true);
}

/* The hot path of core__call does not check keys that every call has. */
static void set_key_path(core_operator *op)
{
    bool simple = op->table != core__table_unresolved && !op->lists &&
                  atomic_load(&core__keys_everywhere) == 0;
    uint8_t key_path = CORE__KEY_PATH_ANY;

    if (op->tensors == op->required && (op->tensors == 1 || op->tensors == 3))
        key_path = op->tensors == 1 ? CORE__KEY_PATH_ONE : CORE__KEY_PATH_TWO;
    /* The functions of elementwise_fast_path.c check their numbers; those of
     * other operators are checked by CORE__KEY_PATH_ANY. */
    if (op->tensors == op->required && op->nargs > 2 &&
        op->tensors == (3 | 1u << (op->nargs - 1)) &&
        (op->numbers == 0 || op->fast_path))
        key_path = CORE__KEY_PATH_OUT;
    if (op->flags & CORE__OP_FACTORY) {
        key_path = CORE__KEY_PATH_FACTORY;
        simple = simple && !op->tensors && op->place != CORE__OP_NOWHERE;
    }
    __atomic_store_n(&op->key_path, simple ? key_path : CORE__KEY_PATH_NONE,
                     __ATOMIC_RELEASE);
}

void core__dispatch_observe(bool on)
{
    static uint32_t observers;

    core__registry_lock();
    observers += on ? 1 : -1u;
    atomic_store(&core__keys_everywhere, observers ? CORE__KEY_PROFILER : 0);
    for (uint32_t i = 0; i < core__operator_count; i++)
        set_key_path(&core__operators[i]);
    core__registry_each_custom(set_key_path);
    core__registry_unlock();
}

/* The first call of every operator: creates its table, then dispatches the
 * call. */
static core_status resolve(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    core_operator *op = call->op;
    operator_table *table;

    core__registry_lock();
    read_settings();
    if (op->table == core__table_unresolved) {
        table = core__alloc_zero(sizeof *table);
        if (!table) {
            core__registry_unlock();
            return core__error_memory(sizeof *table);
        }
        table->function =
            (core__entry){core__dispatch_upcalls.function_fast_path(op), NULL};
        op->fast_path = core__elementwise_fast_path(op);
        op->kernel_op = core__operator_kernel(op);
        fill(op, table);
        atomic_store(&op->shortcut, &no_shortcut);
        __atomic_store_n(&op->table, table->slots, __ATOMIC_RELEASE);
        set_key_path(op);
        if (!(op->flags & CORE__OP_CUSTOM))
            resolved[nresolved++] = op->id;
    }
    core__registry_unlock();
    return core__redispatch(op, call->keys, args, nargs, results, nresults);
}

_Atomic uint32_t core__registry_generation;

void core__table_refresh(core_operator *op)
{
    atomic_fetch_add(&core__registry_generation, 1);
    if (op->data && op->table != core__table_unresolved)
        fill(op, (operator_table *)(void *)op->table);
}

void core__table_refresh_all(void)
{
    atomic_fetch_add(&core__registry_generation, 1);
    for (uint32_t i = 0; i < nresolved; i++)
        core__table_refresh(&core__operators[resolved[i]]);
    core__registry_each_custom(core__table_refresh);
}

const char *core__table_describe(core_operator *op, uint32_t slot)
{
    operator_table *table = core__alloc_zero(sizeof *table);
    const core__entry *entry;
    const char *source;
    decomposition kind;

    if (!table)
        return "unknown";
    core__registry_lock();
    table->function =
        (core__entry){core__dispatch_upcalls.function_fast_path(op), NULL};
    entry = backend_entry(op, table, slot, UINT64_MAX, &kind);
    if (entry == &missing)
        source = "missing";
    else if (entry == &table->meta)
        source = "meta";
    else if (kind == IMPLICIT)
        source = "implicit";
    else if (entry == &table->kernels[slot])
        source = "kernel";
    else if (entry == &table->fallbacks[slot])
        source = "fallback";
    else if (entry == &table->function)
        source = "explicit";
    else
        source = "function";
    core__registry_unlock();
    core__free(table);
    return source;
}
