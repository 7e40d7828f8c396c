/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Modules: named parameters, buffers and children, and calls. */

#include "nn/module.h"

#include "base/callback.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"

#include <libcore/ops.h>

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------- creation -- */

CORE__ONCE core_status core_module_create(const char *type,
                                          core_module_function function,
                                          void *context,
                                          void (*destroy)(void *context),
                                          core_module **out_module)
{
    core_module *module;
    core_status status = CORE_OK;

    if (out_module)
        *out_module = NULL;
    module = type && out_module ? core__alloc_zero(sizeof *module) : NULL;
    if (module)
        module->type = core__strdup(type);
    if (module && module->type) {
        atomic_init(&module->references, 1);
        atomic_init(&module->training, true);
        module->function = function;
        module->context = context;
        module->destroy = destroy;
        *out_module = module;
        return CORE_OK;
    }
    core__free(module);
    if (destroy)
        destroy(context);
    if (!type || !out_module)
        status = core__error(CORE_ERROR_INVALID_ARGUMENT,
                             "core_module_create: type or out_module is NULL");
    return status == CORE_OK ? core__error_memory(sizeof *module) : status;
}

core_module *core_module_retain(core_module *module)
{
    if (module)
        atomic_fetch_add_explicit(&module->references, 1, memory_order_relaxed);
    return module;
}

CORE__ONCE void core_module_release(core_module *module)
{
    if (!module || atomic_fetch_sub_explicit(&module->references, 1,
                                             memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < module->count; i++) {
        core__member *m = &module->members[i];

        if (m->kind == CORE__MEMBER_CHILD)
            core_module_release(m->u.child);
        else
            core_tensor_release(m->u.tensor);
        core__free(m->name);
    }
    if (module->destroy)
        module->destroy(module->context);
    core__free(module->members);
    core__free(module->type);
    core__free(module->origin);
    core__free(module);
}

void *core_module_context(const core_module *module)
{
    return module ? module->context : NULL;
}

core_status core__module_create(const char *type, core_module_function function,
                                const void *context, size_t size,
                                core_module **out_module)
{
    void *copy = core__alloc(size + 1);

    if (!copy)
        return core__error_memory(size);
    if (size > 0)
        memcpy(copy, context, size);
    return core_module_create(type, function, copy, core__free, out_module);
}

CORE__ONCE core_status core__module_finish(core_status status,
                                           core_module *module,
                                           core_module **out_module)
{
    if (status == CORE_OK)
        status = core__module_require_grad(module);
    if (status == CORE_OK)
        *out_module = module;
    else
        core_module_release(module);
    return status;
}

/* -------------------------------------------------------------- members -- */

core__member *core__module_member(const core_module *module, const char *name,
                                  size_t size)
{
    for (size_t i = 0; i < module->count; i++)
        if (strncmp(module->members[i].name, name, size) == 0 &&
            module->members[i].name[size] == '\0')
            return &module->members[i];
    return NULL;
}

core_tensor *core__module_tensor(const core_module *module, const char *name)
{
    const core__member *m = core__module_member(module, name, strlen(name));

    return m && m->kind != CORE__MEMBER_CHILD ? m->u.tensor : NULL;
}

/* Adds a member without content, or returns an error. */
static CORE__ONCE core_status add_member(core_module *module,
                                         const char *function, const char *name,
                                         core__member_kind kind,
                                         core__member **out)
{
    core__member *grown;
    char *copy;

    if (*name == '\0' || strchr(name, '.'))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: the name \"%s\" is empty or has a dot",
                           function, name);
    if (core__module_member(module, name, strlen(name)))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: this %s has a member \"%s\" already", function,
                           module->type, name);
    copy = core__strdup(name);
    grown = copy ? core__alloc((module->count + 1) * sizeof *grown) : NULL;
    if (!grown) {
        core__free(copy);
        return core__error_memory((module->count + 1) * sizeof *grown);
    }
    if (module->count > 0)
        memcpy(grown, module->members, module->count * sizeof *grown);
    core__free(module->members);
    module->members = grown;
    *out = &grown[module->count++];
    **out = (core__member){.name = copy, .kind = kind};
    return CORE_OK;
}

/* A parameter that is computed would get no gradient. */
CORE__ONCE core_status core__module_check_leaf(const char *function,
                                               const char *name,
                                               const core_tensor *tensor)
{
    if (core_tensor_is_leaf(tensor))
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "%s: the tensor for \"%s\" is not a leaf: autograd "
                       "recorded how it was computed; core_detach makes a leaf "
                       "of it",
                       function, name);
}

CORE__ONCE core_status core_module_add_parameter(core_module *module,
                                                 const char *name,
                                                 core_tensor *tensor)
{
    core__member *m;

    CORE__NOT_NULL(module);
    CORE__NOT_NULL(name);
    CORE__NOT_NULL(tensor);
    CORE_TRY(core__module_check_leaf(__func__, name, tensor));
    CORE_TRY(core_tensor_set_requires_grad(tensor, true));
    CORE_TRY(add_member(module, __func__, name, CORE__MEMBER_PARAMETER, &m));
    core_tensor_retain(tensor);
    m->u.tensor = tensor;
    return CORE_OK;
}

CORE__ONCE core_status core__module_add_pending(core_module *module,
                                                const char *name,
                                                core_tensor *tensor)
{
    core__member *m;

    if (!core_dtype_is_floating(core_tensor_dtype(tensor)))
        return core__error(CORE_ERROR_DTYPE,
                           "%s is %s; a parameter must be of a floating dtype",
                           name, core_dtype_name(core_tensor_dtype(tensor)));
    CORE_TRY(core__module_check_leaf("core_nn", name, tensor));
    CORE_TRY(add_member(module, "core_nn", name, CORE__MEMBER_PARAMETER, &m));
    core_tensor_retain(tensor);
    m->u.tensor = tensor;
    m->pending = !core_tensor_requires_grad(tensor);
    return CORE_OK;
}

/* Sets whether the pending parameters of a module and its children, of which
 * *most at most, require grad; *most becomes the number of those left. */
static CORE__ONCE core_status set_pending(core_module *module, bool requires,
                                          size_t *most)
{
    for (size_t i = 0; i < module->count; i++) {
        core__member *m = &module->members[i];

        if (m->kind == CORE__MEMBER_CHILD) {
            CORE_TRY(set_pending(m->u.child, requires, most));
        } else if (m->pending && *most > 0) {
            CORE_TRY(core_tensor_set_requires_grad(m->u.tensor, requires));
            --*most;
        }
    }
    return CORE_OK;
}

static CORE__ONCE void clear_pending(core_module *module)
{
    for (size_t i = 0; i < module->count; i++) {
        core__member *m = &module->members[i];

        m->pending = false;
        if (m->kind == CORE__MEMBER_CHILD)
            clear_pending(m->u.child);
    }
}

CORE__ONCE core_status core__module_require_grad(core_module *module)
{
    size_t left = SIZE_MAX, set;
    core_status status = set_pending(module, true, &left);

    set = SIZE_MAX - left;
    if (status != CORE_OK)
        (void)set_pending(module, false, &set);
    else
        clear_pending(module);
    return status;
}

CORE__ONCE core_status core_module_add_buffer(core_module *module,
                                              const char *name,
                                              core_tensor *tensor)
{
    core__member *m;

    CORE__NOT_NULL(module);
    CORE__NOT_NULL(name);
    CORE__NOT_NULL(tensor);
    CORE_TRY(add_member(module, __func__, name, CORE__MEMBER_BUFFER, &m));
    core_tensor_retain(tensor);
    m->u.tensor = tensor;
    return CORE_OK;
}

static CORE__ONCE bool contains(const core_module *module,
                                const core_module *other)
{
    if (module == other)
        return true;
    for (size_t i = 0; i < module->count; i++)
        if (module->members[i].kind == CORE__MEMBER_CHILD &&
            contains(module->members[i].u.child, other))
            return true;
    return false;
}

CORE__ONCE core_status core_module_add_child(core_module *module,
                                             const char *name,
                                             core_module *child)
{
    core__member *m;

    CORE__NOT_NULL(module);
    CORE__NOT_NULL(name);
    CORE__NOT_NULL(child);
    if (contains(child, module))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: the child \"%s\" contains the module, a %s",
                           __func__, name, module->type);
    CORE_TRY(add_member(module, __func__, name, CORE__MEMBER_CHILD, &m));
    core_module_retain(child);
    m->u.child = child;
    return CORE_OK;
}

core_status core_module_take_child(core_module *module, const char *name,
                                   core_status status,
                                   core_module *const *child)
{
    CORE__NOT_NULL(child);
    if (status == CORE_OK)
        status = core_module_add_child(module, name, *child);
    core_module_release(*child);
    return status;
}

void core__module_name_origin(const core_module *module, const char *name)
{
    size_t size = module && module->origin ? strlen(module->origin) : 0;

    if (size > 0 && *name == '\0') { /* without the dot or colon at the end */
        if (module->origin[size - 1] == '.')
            size -= 1;
        else if (module->origin[size - 1] == ' ')
            size -= 2;
    }
    if (size > 0)
        core__error_suffix(" (in %.*s%s)", (int)size, module->origin, name);
}

/* Adds a sequence, or a module without a function, with the first size bytes of
 * name as its name. */
static CORE__ONCE core_status add_on_the_way(core_module *parent,
                                             const char *name, size_t size,
                                             bool sequence,
                                             core_module **out_child)
{
    char *copy = core__strndup(name, size);
    core_status status;

    if (!copy)
        return core__error_memory(size + 1);
    status = sequence
                 ? core_nn_sequential(NULL, 0, out_child)
                 : core_module_create("Container", NULL, NULL, NULL, out_child);
    if (status == CORE_OK)
        core_module_set_training(*out_child, core_module_is_training(parent));
    status = core_module_take_child(parent, copy, status, out_child);
    core__free(copy);
    return status;
}

CORE__ONCE core_status core__module_walk(core_module **parent,
                                         const char **path, bool sequences)
{
    const char *dot;

    for (; (dot = strchr(*path, '.')); *path = dot + 1) {
        size_t size = (size_t)(dot - *path);
        const core__member *m = core__module_member(*parent, *path, size);
        core_module *child = NULL;

        if (m && m->kind == CORE__MEMBER_CHILD)
            child = m->u.child;
        else
            CORE_TRY(add_on_the_way(*parent, *path, size, sequences, &child));
        *parent = child;
    }
    return CORE_OK;
}

core__member *core__module_find(const core_module *module, const char *path)
{
    while (module && path) {
        const char *dot = strchr(path, '.');
        core__member *m = core__module_member(
            module, path, dot ? (size_t)(dot - path) : strlen(path));

        if (!m || !dot)
            return m;
        if (m->kind != CORE__MEMBER_CHILD)
            return NULL;
        module = m->u.child;
        path = dot + 1;
    }
    return NULL;
}

core_tensor *core_module_tensor(const core_module *module, const char *path)
{
    const core__member *m = core__module_find(module, path);

    return m && m->kind != CORE__MEMBER_CHILD ? m->u.tensor : NULL;
}

core_module *core_module_child(const core_module *module, const char *path)
{
    const core__member *m = core__module_find(module, path);

    return m && m->kind == CORE__MEMBER_CHILD ? m->u.child : NULL;
}

/* ---------------------------------------------------------------- calls -- */

core_status core_module_forward(core_module *module, core_tensor *const *inputs,
                                size_t ninputs, core_tensor **outputs,
                                size_t *noutputs)
{
    uint32_t errors = core__error_sequence();
    size_t capacity;
    core_status status;

    CORE__NOT_NULL(module);
    CORE__NOT_NULL(outputs);
    CORE__NOT_NULL(noutputs);
    capacity = *noutputs;
    *noutputs = 0;
    memset(outputs, 0, capacity * sizeof(core_tensor *));
    if (ninputs > 0)
        CORE__NOT_NULL(inputs);
    if (!module->function)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s: this %s only holds other modules", __func__,
                           module->type);
    *noutputs = capacity;
    status = module->function(module, module->context, inputs, ninputs, outputs,
                              noutputs);
    if (status != CORE_OK)
        status = core__callback_status(errors, status, module->type);
    if (status == CORE_OK && *noutputs > capacity)
        status = core__error(CORE_ERROR_INVALID_ARGUMENT,
                             "%s: this %s has %zu outputs, and there is room "
                             "for %zu",
                             __func__, module->type, *noutputs, capacity);
    for (size_t i = 0; status == CORE_OK && i < *noutputs; i++)
        if (!outputs[i])
            status = core__error(CORE_ERROR_INVALID_ARGUMENT,
                                 "%s: output %zu of this %s is NULL", __func__,
                                 i, module->type);
    if (status == CORE_OK)
        return CORE_OK;
    for (size_t i = 0; i < capacity; i++) {
        core_tensor_release(outputs[i]);
        outputs[i] = NULL;
    }
    *noutputs = 0;
    return status;
}

core_status core_module_call(core_module *module, core_tensor *input,
                             core_tensor **out_output)
{
    size_t count = 1;

    CORE__NOT_NULL(out_output);
    *out_output = NULL;
    CORE__NOT_NULL(input);
    CORE_TRY(core_module_forward(module, &input, 1, out_output, &count));
    if (count == 1)
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT, "%s: this %s has no output",
                       __func__, module->type);
}

core_status core__module_one_input(const core_module *module,
                                   core_tensor *const *inputs, size_t ninputs,
                                   core_tensor **out_input)
{
    *out_input = ninputs == 1 ? inputs[0] : NULL;
    if (*out_input)
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "a %s has one input; it was called with %zu",
                       module->type, ninputs);
}

core_status core__module_one_output(core_status status,
                                    core_tensor *const *output,
                                    core_tensor **outputs, size_t *noutputs)
{
    if (status != CORE_OK)
        return status;
    if (*noutputs < 1) {
        core_tensor_release(*output);
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_module_forward: *noutputs is 0; this module "
                           "has an output");
    }
    outputs[0] = *output;
    *noutputs = 1;
    return CORE_OK;
}

/* ------------------------------------------------------------- training -- */

CORE__ONCE void core_module_set_training(core_module *module, bool training)
{
    if (!module)
        return;
    atomic_store_explicit(&module->training, training, memory_order_relaxed);
    for (size_t i = 0; i < module->count; i++)
        if (module->members[i].kind == CORE__MEMBER_CHILD)
            core_module_set_training(module->members[i].u.child, training);
}

bool core_module_is_training(const core_module *module)
{
    return module &&
           atomic_load_explicit(&module->training, memory_order_relaxed);
}
