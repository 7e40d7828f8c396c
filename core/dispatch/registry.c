/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The registry of functions and kernels: lists under one lock; each change
 * refreshes the tables of the affected operators (table.c). */

#include "dispatch/registry.h"

#include "base/fork.h"
#include "base/log.h"
#include "base/memory.h"
#include "dispatch/plan.h"
#include "dispatch/kernel_constraints.h"
#include "dispatch/dispatch.h"
#include "dispatch/inference.h"
#include "dispatch/schema.h"
#include "dispatch/table.h"
#include "device/upcalls.h"
#include "dispatch/upcalls.h"

#include <libcore/dispatch.h>

#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static uint64_t sequence;

/* Custom operators.  Unregistered ones are kept, because programs may refer to
 * them, and are reused when the same schema is registered again. */
typedef struct custom_operator {
    core_operator op;
    core__operator_data data;
    char *schema_text;
    core__schema schema;
    bool registered;
    core__registration *_Atomic shape; /* of its shape function */
    _Atomic uint64_t conversions[CORE_CONVERSIONS];
    _Atomic uint64_t loops; /* core_vmap_loops */
    struct custom_operator *next;
} custom_operator;
static custom_operator *customs;

static core__registration *fallbacks; /* of programs, newest first */

/* If another thread was registering, its change is either visible or not:
 * lists are changed by one final store. */
void core__registry_after_fork(void)
{
    static const pthread_mutex_t initial =
        PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

    if (pthread_mutex_trylock(&lock) == 0)
        pthread_mutex_unlock(&lock);
    else
        lock = initial;
}

void core__registry_lock(void)
{
    pthread_mutex_lock(&lock);
}

void core__registry_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* ----------------------------------------------------------- operators -- */

core_operator *core__operator_find(const char *name, size_t size)
{
    core_operator *op = core__operator_builtin(name, size);

    if (op)
        return op;
    core__registry_lock();
    for (custom_operator *c = customs; c && !op; c = c->next)
        if (c->registered && strlen(c->schema.name) == size &&
            memcmp(c->schema.name, name, size) == 0)
            op = &c->op;
    core__registry_unlock();
    return op;
}

static void describe(custom_operator *custom)
{
    const core__schema *schema = &custom->schema;
    core_operator *op = &custom->op;

    op->mask = ~CORE__KEY_INPLACE_OR_VIEW;
    op->id = UINT16_MAX;
    op->flags = CORE__OP_CUSTOM;
    op->nargs = (uint8_t)schema->narguments;
    op->nresults = (uint8_t)schema->nresults;
    for (uint32_t i = 0; i < schema->narguments; i++) {
        const core__schema_argument *argument = &schema->arguments[i];

        if (argument->tag == CORE_VALUE_TENSOR) {
            op->tensors |= 1u << i;
            if (!argument->optional)
                op->required |= 1u << i;
        } else if (argument->tag == CORE_VALUE_TENSOR_LIST) {
            op->lists |= 1u << i;
        } else if (argument->scalar && argument->tag == CORE_VALUE_FLOAT) {
            op->numbers |= 1u << i;
            if (argument->optional)
                op->absent_numbers |= 1u << i;
        }
        if (argument->mutated) {
            op->mask |= CORE__KEY_INPLACE_OR_VIEW;
            op->variant = i == 0 ? CORE__VARIANT_INPLACE : CORE__VARIANT_OUT;
        }
    }
    if (!(op->tensors | op->lists))
        op->flags |= CORE__OP_FACTORY;
    /* Nothing to differentiate, unless a function is registered for it. */
    if (schema->nresults == 0)
        op->mask &= ~CORE__KEY_AUTOGRAD;
    custom->data.schema = custom->schema_text;
    custom->data.name = custom->schema.name;
    custom->data.variant = op->variant;
    /* Until a function is registered under AUTOGRAD, requesting its gradient
     * is an error. */
    custom->data.no_gradient = schema->nresults > 0;
    custom->data.dim = custom->data.keepdim = custom->data.dtype =
        CORE__OP_NOWHERE;
    op->data = &custom->data;
    op->schema = &custom->schema;
    op->table = core__table_unresolved;
}

/* As describe() sets them: for an operator without a shape function. */
static void forget_shape(custom_operator *custom)
{
    if (!custom->data.infer)
        return;
    custom->data.infer = NULL;
    custom->data.family = custom->op.family = CORE__FAMILY_FUNCTION;
    custom->op.flags &= ~(uint32_t)CORE__OP_FLOAT8;
}

static core_status custom_find_or_make(core_string text,
                                       custom_operator **out_custom)
{
    custom_operator *custom;
    core_status status;

    *out_custom = NULL;
    for (custom = customs; custom; custom = custom->next)
        if (!custom->registered && strlen(custom->schema_text) == text.size &&
            memcmp(custom->schema_text, text.data, text.size) == 0) {
            forget_shape(custom);
            *out_custom = custom;
            return CORE_OK;
        }
    custom = core__alloc_zero(sizeof *custom);
    if (!custom)
        return core__error_memory(sizeof *custom);
    status = core__schema_parse(text.data, text.size, &custom->schema);
    if (status == CORE_OK) {
        custom->schema_text = core__strndup(text.data, text.size);
        if (!custom->schema_text)
            status = core__error_memory(text.size);
    }
    if (status != CORE_OK) {
        core__free(custom);
        return status;
    }
    describe(custom);
    custom->next = customs;
    customs = custom;
    *out_custom = custom;
    return CORE_OK;
}

core_status core__registry_new_registration(core_registry *registry,
                                            core__registration **out)
{
    core__registration *registration = core__alloc_zero(sizeof *registration);

    *out = registration;
    if (!registration)
        return core__error_memory(sizeof *registration);
    registration->sequence = ++sequence;
    registration->next_owned = registry->first;
    registry->first = registration;
    return CORE_OK;
}

core_status core__registry_add_operator(core_registry *registry,
                                        core_string schema)
{
    core__registration *registration;
    custom_operator *custom = NULL;
    core__schema *parsed = core__alloc(sizeof *parsed);
    core_status status;

    if (!parsed)
        return core__error_memory(sizeof *parsed);
    core__registry_lock();
    status = core__schema_parse(schema.data, schema.size, parsed);
    if (status != CORE_OK)
        goto done;
    if (!strstr(parsed->name, "::")) {
        status = core__error(CORE_ERROR_INVALID_ARGUMENT,
                             "%s: the name of a new operator must have a "
                             "namespace, such as vendor",
                             parsed->name);
        goto done;
    }
    if (strncmp(parsed->name, "aten::", 6) == 0) {
        status = core__error(CORE_ERROR_INVALID_ARGUMENT,
                             "%s: the namespace aten is reserved for libcore",
                             parsed->name);
        goto done;
    }
    if (core__operator_find(parsed->name, strlen(parsed->name))) {
        status = core__error(
            CORE_ERROR_REFUSED,
            "%s: an operator of this name is already registered", parsed->name);
        goto done;
    }
    status = custom_find_or_make(schema, &custom);
    if (status == CORE_OK)
        status = core__registry_new_registration(registry, &registration);
    if (status != CORE_OK)
        goto done;
    custom->registered = true;
    registration->custom = &custom->op;
    core__kernel_list_reset(NULL); /* it lists operators by position */
done:
    core__registry_unlock();
    core__free(parsed);
    return status;
}

/* ----------------------------------------------------------- functions -- */

/* Finds the slot of a device type and locks the registry.  Its plugin may be
 * unloaded at any time before; afterwards, what is registered for the slot is
 * detached with the backend. */
static core_status lock_with_slot(core_string type, uint32_t *out_slot)
{
    core__backend *backend;

    *out_slot = CORE__SLOT_NONE;
    if (type.size == 0) {
        core__registry_lock();
        return CORE_OK;
    }
    /* The order in which plugins are opened must not matter. */
    if (!core__backend_by_type(type.data, type.size))
        CORE_TRY(core__device_upcalls.load_type(type.data, type.size));
    /* Devices are locked before registrations, never the reverse. */
    core__device_lock();
    core__registry_lock();
    backend = core__backend_by_type(type.data, type.size);
    if (backend && !backend->leaving)
        *out_slot = backend->slot;
    core__device_unlock();
    if (*out_slot != CORE__SLOT_NONE)
        return CORE_OK;
    core__registry_unlock();
    return core__backend_not_found(type.data, type.size);
}

/* Once per operator: without the warning it is hard to find out what was
 * replaced. */
static void warn_of_override(core_operator *op, uint32_t key, uint32_t slot)
{
    const core__registration *old = op->registrations;

    while (old && !(old->key == key && old->slot == slot))
        old = old->next;
    if (!old || op->override_logged)
        return;
    op->override_logged = 1;
    core__log(CORE_LOG_WARNING, "registry",
              "%s: a function registered under the same key replaces an older "
              "one until it is released",
              core__operator_name(op));
}

/* How a registered function is called. */
static core__entry entry_of(core__registration *registration)
{
    core_function function = core__run_registered;

    switch (registration->key) {
    case CORE_KEY_COMPOSITE_EXPLICIT:
    case CORE_KEY_COMPOSITE_IMPLICIT:
        function = core__decompose;
        break;
    case CORE_KEY_INPLACE_OR_VIEW:
        function = core__run_registered_change;
        break;
    default:
        break;
    }
    return (core__entry){function, registration};
}

core_status core__registry_add_function(core_registry *registry,
                                        core_string operator_name, uint32_t key,
                                        core_string backend,
                                        core_function function, void *user)
{
    core__registration *registration;
    core_operator *op;
    core_status status;
    uint32_t slot;

    if (key > CORE_KEY_COMPOSITE_IMPLICIT)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "there is no dispatch key %u; accepted: CORE_KEY_BACKEND (%u) to "
            "CORE_KEY_COMPOSITE_IMPLICIT (%u)",
            key, CORE_KEY_BACKEND, CORE_KEY_COMPOSITE_IMPLICIT);
    if (!function)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "the function to register is NULL");
    if ((key == CORE_KEY_BACKEND) != (backend.size > 0) &&
        key != CORE_KEY_AUTOGRAD)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "CORE_KEY_BACKEND needs a backend's name, CORE_KEY_AUTOGRAD "
            "accepts one, and other keys accept none");
    CORE_TRY(lock_with_slot(backend, &slot));
    op = core__operator_find(operator_name.data, operator_name.size);
    if (!op) {
        status =
            core__error(CORE_ERROR_NOT_FOUND, "there is no operator \"%.*s\"",
                        (int)operator_name.size, operator_name.data);
        goto done;
    }
    status = core__registry_new_registration(registry, &registration);
    if (status != CORE_OK)
        goto done;
    registration->op = op;
    registration->key = key;
    registration->slot = slot;
    registration->own = (core__entry){function, user};
    registration->entry = entry_of(registration);
    warn_of_override(op, key, slot);
    registration->next = op->registrations;
    op->registrations = registration;
    if (key == CORE_KEY_AUTOGRAD || key == CORE_KEY_AUTOCAST ||
        key == CORE_KEY_INPLACE_OR_VIEW)
        __atomic_fetch_or(&op->mask,
                          key == CORE_KEY_AUTOGRAD ? CORE__KEY_AUTOGRAD
                          : key == CORE_KEY_AUTOCAST
                              ? CORE__KEY_AUTOCAST
                              : CORE__KEY_INPLACE_OR_VIEW,
                          __ATOMIC_RELAXED);
    core__table_refresh(op);
done:
    core__registry_unlock();
    return status;
}

void core__registry_set_payload(core_registry *registry, core__retired *payload)
{
    registry->first->payload = payload;
}

/* ------------------------------------------------------------- kernels -- */

static core__backend *own_backend(core_registry *registry, core_string type)
{
    for (uint32_t i = 0; i < registry->nbackends; i++)
        if (strlen(registry->backends[i]->type) == type.size &&
            memcmp(registry->backends[i]->type, type.data, type.size) == 0)
            return registry->backends[i];
    core__error(CORE_ERROR_NOT_FOUND,
                "the plugin has not registered a backend \"%.*s\"",
                (int)type.size, type.data);
    return NULL;
}

static core_status check_kernel(const core_kernel *kernel)
{
    if (kernel->struct_size < offsetof(core_kernel, supports))
        return core__error(CORE_ERROR_INCOMPATIBLE,
                           "kernel \"%.*s\": its struct_size is %u; it must be "
                           "sizeof(core_kernel), %zu",
                           (int)kernel->name.size, kernel->name.data,
                           kernel->struct_size, sizeof *kernel);
    if (!kernel->launch)
        return core__error(CORE_ERROR_INCOMPATIBLE,
                           "kernel \"%.*s\": its function launch is NULL",
                           (int)kernel->name.size, kernel->name.data);
    return CORE_OK;
}

static const core_host *host_of(const core_registry *registry)
{
    return registry->plugin
               ? core__dispatch_upcalls.plugin_host(registry->plugin)
               : &core__host;
}

/* A kernel that names no dtypes accepts those of ABI 0.1; kernels must name
 * later ones, and be built with a minor that defines them. */
static void limit_signature(core_kernel *kernel, uint32_t minor)
{
    for (uint32_t i = 0; i < CORE_SIGNATURE_MAX; i++) {
        if (!kernel->signature[i])
            kernel->signature[i] = CORE__DTYPES_OF_0_1;
        if (minor < 3)
            kernel->signature[i] &= CORE__DTYPES_OF_0_1;
    }
}

static void set_masks(core__kernel *kernel)
{
    const uint32_t *signature = kernel->kernel.signature;
    uint32_t inputs = UINT32_MAX;

    for (uint32_t i = 1; i < CORE_SIGNATURE_MAX; i++)
        inputs &= signature[i];
    kernel->same = inputs & signature[0];
    kernel->compared = signature[0] >> CORE_BOOL & 1 ? inputs : 0;
}

enum { SLAB = 64 }; /* minimum number of kernels */

/* Memory for kernels, freed when the registration is undone; with the
 * registry's lock held.  Each slab is twice as large as the previous one,
 * because a few large ones are better, and unused parts are not touched. */
static core_status slab_with_space(core_registry *registry,
                                   core__backend *backend, uint32_t count,
                                   core__kernel_slab **out_slab)
{
    core__kernel_slab *slab = registry->slabs;
    uint32_t capacity = slab ? 2 * slab->capacity : SLAB;
    size_t size;

    *out_slab = slab;
    if (slab && slab->backend == backend &&
        slab->capacity - slab->used >= count)
        return CORE_OK;
    if (capacity < count)
        capacity = count;
    size = sizeof *slab + capacity * sizeof slab->kernels[0];
    slab = core__alloc(size);
    *out_slab = slab;
    if (!slab)
        return core__error_memory(size);
    *slab = (core__kernel_slab){.next = registry->slabs,
                                .registry = registry,
                                .backend = backend,
                                .sequence = sequence,
                                .capacity = capacity};
    slab->pending = core__pending_kernels_new(slab, capacity);
    registry->slabs = slab;
    return CORE_OK;
}

static bool is_named(const core_operator *op, core_string name)
{
    const char *known = core__operator_name(op);

    return strncmp(known, name.data, name.size) == 0 && !known[name.size];
}

core_status core__registry_create_kernel(core__kernel_slab *slab,
                                         uint32_t index,
                                         const core_kernel *from,
                                         core_operator *op, uint64_t when)
{
    core_registry *registry = slab->registry;
    core__kernel *kernel = &slab->kernels[index];
    core__kernel_set *set;

    CORE_TRY(core__kernel_set_find_or_create(op, slab->backend, &set));
    if (atomic_load(&set->first) == kernel)
        goto add_owned; /* already created in the parent process */
    memset(kernel, 0, sizeof *kernel);
    memcpy(&kernel->kernel, from,
           from->struct_size < sizeof *from ? from->struct_size : sizeof *from);
    kernel->kernel.struct_size = sizeof *from;
    /* the operator's name lives long enough */
    kernel->kernel.name.data = core__operator_name(op);
    kernel->host = host_of(registry);
    limit_signature(&kernel->kernel, kernel->host->abi_minor);
    set_masks(kernel);
    kernel->set = set;
    kernel->next_owned = registry->kernels;
    set->sequence = when;
    core__kernel_set_add(set, kernel);
add_owned:
    registry->kernels = kernel;
    return CORE_OK;
}

/* before: the operator of the kernel added last, usually the same. */
static core_status add_kernel(core__kernel_slab *slab, const core_kernel *from,
                              core_operator **before)
{
    core_operator *op = *before;
    uint32_t index = slab->used;

    CORE_TRY(check_kernel(from));
    if (!op || !is_named(op, from->name)) {
        op = core__operator_find(from->name.data, from->name.size);
        if (core__registry_check_unmatched(slab->registry, slab->backend, from,
                                           op))
            return CORE_OK;
    }
    if (op->flags & CORE__OP_CUSTOM && !core__registry_shape(op))
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "kernel \"%s\": the results of this operator are "
            "not known before the call; register a shape "
            "function first (register_shape, plugin ABI 0.6), or "
            "a function for its backend's key",
            core__operator_name(op));
    *before = op;
    slab->used++;
    sequence++;
    if (op->flags & CORE__OP_CUSTOM)
        return core__registry_create_kernel(slab, index, from, op, sequence);
    if (core__pending_kernel_add(slab, index, from,
                                 (uint32_t)(op - core__operators), sequence))
        return CORE_OK;
    /* Earlier ones precede it in the set. */
    core__pending_kernels_create((uint32_t)(op - core__operators));
    return core__registry_create_kernel(slab, index, from, op, sequence);
}

core_status core__registry_add_kernels(core_registry *registry,
                                       core_string backend,
                                       const core_kernel *const *kernels,
                                       uint32_t count)
{
    core__backend *owner = own_backend(registry, backend);
    core_operator *before = NULL;
    core__kernel_slab *slab = NULL;
    core_status status = CORE_OK;

    if (!owner)
        return core_error_code();
    core__registry_lock();
    if (count > 0)
        status = slab_with_space(registry, owner, count, &slab);
    for (uint32_t i = 0; i < count && status == CORE_OK; i++)
        status = add_kernel(slab, kernels[i], &before);
    core__kernel_list_reset(owner);
    core__table_refresh_all();
    core__registry_unlock();
    return status;
}

/* One per backend, as long as the backend exists; its newest kernel is used. */
static core__kernel_set *fallback_set(core__backend *backend)
{
    core__kernel_set *set = backend->fallback;

    if (set)
        return set;
    set = core__alloc_zero(sizeof *set);
    if (set)
        set->backend = backend;
    backend->fallback = set;
    return set;
}

core_status core__registry_add_fallback(core_registry *registry,
                                        core_string backend,
                                        core_function function, void *user)
{
    core__backend *owner = own_backend(registry, backend);
    core__kernel_slab *slab;
    core__kernel_set *set;
    core_status status;

    if (!owner)
        return core_error_code();
    core__registry_lock();
    set = fallback_set(owner);
    status = set ? slab_with_space(registry, owner, 1, &slab)
                 : core__error_memory(sizeof *set);
    if (status == CORE_OK) {
        core__kernel *kernel = &slab->kernels[slab->used++];

        memset(kernel, 0, sizeof *kernel);
        kernel->kernel.struct_size = sizeof kernel->kernel;
        kernel->kernel.launch = function;
        kernel->kernel.user = user;
        kernel->host = host_of(registry);
        limit_signature(&kernel->kernel, 0);
        set_masks(kernel);
        kernel->set = set;
        kernel->next_owned = registry->kernels;
        registry->kernels = kernel;
        core__kernel_set_add(set, kernel);
        core__table_refresh_all();
    }
    core__registry_unlock();
    return status;
}

core_status core__registry_add_program_fallback(core_registry *registry,
                                                uint32_t key,
                                                core_string backend,
                                                core_function function,
                                                void *user)
{
    core__registration *registration;
    core_status status;
    uint32_t slot;

    if (key != CORE_KEY_BACKEND && key != CORE_KEY_AUTOGRAD)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_fallback_register: the key is %u; accepted: "
                           "CORE_KEY_BACKEND (%u) and CORE_KEY_AUTOGRAD (%u), "
                           "under which operators may have nothing of their "
                           "own",
                           key, CORE_KEY_BACKEND, CORE_KEY_AUTOGRAD);
    if (key == CORE_KEY_BACKEND && backend.size == 0)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_fallback_register: device_type is NULL or "
                           "empty; CORE_KEY_BACKEND needs a device type");
    CORE_TRY(lock_with_slot(backend, &slot));
    status = core__registry_new_registration(registry, &registration);
    if (status == CORE_OK) {
        registration->key = key;
        registration->slot = slot;
        registration->entry = (core__entry){function, user};
        registration->next = fallbacks;
        fallbacks = registration;
        core__table_refresh_all();
    }
    core__registry_unlock();
    return status;
}

const core__registration *core__registry_program_fallback(uint32_t key,
                                                          uint32_t slot)
{
    const core__registration *r = fallbacks;

    while (r && !(r->key == key &&
                  (r->slot == slot ||
                   (key == CORE_KEY_AUTOGRAD && r->slot == CORE__SLOT_NONE))))
        r = r->next;
    return r;
}

core_status core__registry_add_backend(core_registry *registry,
                                       const core_backend *table)
{
    uint32_t limit = sizeof registry->backends / sizeof *registry->backends;

    if (registry->nbackends == limit)
        return core__error(CORE_ERROR_REFUSED,
                           "a plugin may register at most %u backends", limit);
    CORE_TRY(core__backend_add(table, registry->plugin,
                               &registry->backends[registry->nbackends]));
    registry->nbackends++;
    return CORE_OK;
}

/* ------------------------------------------------------------- undoing -- */

static void remove_from(core__registration **list,
                        const core__registration *registration)
{
    while (*list && *list != registration)
        list = &(*list)->next;
    if (*list)
        *list = registration->next;
}

static void undo_registration(core__registration *registration)
{
    core_operator *op = registration->op;

    if (registration->custom) {
        for (custom_operator *c = customs; c; c = c->next)
            if (&c->op == registration->custom)
                c->registered = false;
    }
    if (registration->key == CORE__KEY_SHAPE)
        core__registry_set_shape(op, NULL);
    if (op) {
        remove_from(&op->registrations, registration);
        core__table_refresh(op);
    } else if (!registration->custom) {
        remove_from(&fallbacks, registration); /* the caller refreshes all */
    }
    if (registration->payload)
        core__reclaim(registration->payload, registration->payload);
    core__reclaim(&registration->retired, registration);
}

static void undo_kernel(core__kernel *kernel)
{
    core__kernel_set_remove(kernel);
    if (kernel->kernel.prepare)
        core__plans_drop(&kernel->kernel, NULL);
}

/* Sets of a removed backend keep their memory but not their owner; functions
 * that others registered for its slot do not serve the next backend there. */
static void detach_registrations(core__registration *first,
                                 const core__backend *backend)
{
    for (core__registration *r = first; r; r = r->next)
        if (r->slot == backend->slot)
            r->slot = CORE__SLOT_UNLOADED;
}

static void detach_backend_from(core_operator *op, const core__backend *backend)
{
    for (core__kernel_set *s = op->kernels; s; s = s->next)
        if (s->backend == backend)
            s->backend = NULL;
    detach_registrations(op->registrations, backend);
}

/* Returns the backend's fallback set, to which no table refers after the tables
 * are refreshed. */
static core__kernel_set *detach_backend(core__backend *backend)
{
    core__kernel_set *fallback = backend->fallback;

    backend->leaving = true;
    backend->fallback = NULL;
    detach_registrations(fallbacks, backend);
    for (uint32_t i = 0; i < core__operator_count; i++)
        detach_backend_from(&core__operators[i], backend);
    for (custom_operator *c = customs; c; c = c->next)
        detach_backend_from(&c->op, backend);
    return fallback;
}

void core__registry_undo(core_registry *registry)
{
    core__kernel_set *fallbacks[4] = {NULL};
    core__kernel_slab *slabs;

    core__registry_lock();
    if (registry->slabs)
        core__pending_kernels_drop(registry);
    while (registry->first) {
        core__registration *registration = registry->first;

        registry->first = registration->next_owned;
        undo_registration(registration);
    }
    while (registry->kernels) {
        core__kernel *kernel = registry->kernels;

        registry->kernels = kernel->next_owned;
        undo_kernel(kernel);
    }
    for (uint32_t i = 0; i < registry->nbackends; i++)
        fallbacks[i] = detach_backend(registry->backends[i]);
    slabs = registry->slabs;
    registry->slabs = NULL;
    core__kernel_list_reset(NULL);
    core__table_refresh_all();
    core__registry_unlock();
    while (slabs) {
        core__kernel_slab *next = slabs->next;

        core__free(slabs->pending);
        core__reclaim(&slabs->retired, slabs);
        slabs = next;
    }
    for (uint32_t i = 0; i < registry->nbackends; i++)
        if (fallbacks[i])
            core__reclaim(&fallbacks[i]->retired, fallbacks[i]);
    while (registry->nbackends > 0)
        core__backend_remove(registry->backends[--registry->nbackends]);
}

void core__registry_each_custom(void (*visit)(core_operator *))
{
    for (custom_operator *c = customs; c; c = c->next)
        visit(&c->op);
}

core_operator *core__registry_custom_at(uint32_t index)
{
    custom_operator *custom = customs;

    while (custom && index-- > 0)
        custom = custom->next;
    return custom ? &custom->op : NULL;
}

/* When a plugin is unloaded, only the shape function goes: calls that are
 * running still read the rest, and fail in core__shape_infer. */
void core__registry_set_shape(core_operator *op, core__registration *shape)
{
    custom_operator *custom = (custom_operator *)(void *)op;

    if (shape) {
        custom->data.infer = core__shape_infer;
        custom->data.family = op->family = CORE__FAMILY_KERNEL;
        /* 8-bit floats: signatures of kernels name them. */
        op->flags =
            CORE__OP_CUSTOM | (op->flags & CORE__OP_FACTORY) | CORE__OP_FLOAT8;
    }
    atomic_store(&custom->shape, shape);
}

_Atomic uint64_t *core__registry_conversions(const core_operator *op)
{
    return ((custom_operator *)(uintptr_t)op)->conversions;
}

_Atomic uint64_t *core__registry_loops(const core_operator *op)
{
    return &((custom_operator *)(uintptr_t)op)->loops;
}

const core__registration *core__registry_shape(const core_operator *op)
{
    const custom_operator *custom = (const custom_operator *)(const void *)op;

    return atomic_load(&custom->shape);
}
