/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Modules in scopes: their outputs, parameters and children. */

#include "nn/module.h"

#include "base/error.h"
#include "base/memory.h"
#include "scope/scope.h"

#include <libcore/ops.h>

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

/* core_scope_status, which reports the place of a call without a scope. */
static core_status scope_status(const char *where)
{
    return core_scope_check_at(where, "core_x_nn", core_scope_status());
}

/* ---------------------------------------------------------------- calls -- */

core_tensor *core_x_module_at(const char *where, core_module *module,
                              core_tensor *input)
{
    core_tensor *output = NULL;
    core_status status = core_scope_status();

    /* After an error nothing is called. */
    if (status == CORE_OK)
        status = core_module_call(module, input, &output);
    return core_scope_own_at(where, status, &output);
}

/* Adds the file of the innermost module on a path to the message of the error. */
static CORE__ONCE void name_origin(const core_module *module, const char *path)
{
    const char *dot;

    for (; (dot = strchr(path, '.')); path = dot + 1) {
        const core__member *m =
            core__module_member(module, path, (size_t)(dot - path));

        if (!m || m->kind != CORE__MEMBER_CHILD)
            break;
        module = m->u.child;
    }
    core__module_name_origin(module, path);
}

/* Reports that a module has nothing of a kind, "child", at a path. */
static CORE__ONCE void not_found(const char *where, const char *function,
                                 const core_module *module, const char *kind,
                                 const char *path)
{
    core_status status;

    if (!module || !path)
        status = core__error_null(function, module ? "path" : "module");
    else
        status = core__error(CORE_ERROR_NOT_FOUND, "%s: a %s has no %s \"%s\"",
                             function, module->type, kind, path);
    if (status == CORE_ERROR_NOT_FOUND)
        name_origin(module, path);
    (void)core_scope_check_at(where, function, status);
}

static core_module *child_at(const char *where, const char *function,
                             core_module *module, const char *path)
{
    core_module *child = core_module_child(module, path);

    if (scope_status(where) != CORE_OK)
        return NULL;
    if (!child)
        not_found(where, function, module, "child", path);
    return child;
}

core_module *core_x_nn_child_at(const char *where, core_module *module,
                                const char *path)
{
    return child_at(where, "core_x_nn_child", module, path);
}

core_tensor *core_x_nn_tensor_at(const char *where, core_module *module,
                                 const char *path)
{
    core_tensor *tensor = core_module_tensor(module, path);

    if (scope_status(where) != CORE_OK)
        return NULL;
    if (!tensor)
        not_found(where, "core_x_nn_tensor", module, "tensor", path);
    return tensor;
}

core_module *core_x_apply_find_at(const char *where, const char *function,
                                  core_module *module, const char *path,
                                  const char *tensor, core_tensor **out_tensor)
{
    core_module *child = child_at(where, function, module, path);
    core_tensor *found = tensor ? core_module_tensor(child, tensor) : NULL;

    if (out_tensor)
        *out_tensor = found;
    if (!child || found || !tensor)
        return child;
    core__error(CORE_ERROR_NOT_FOUND, "%s: \"%s\" has no tensor \"%s\"",
                function, path, tensor);
    core__module_name_origin(child, tensor);
    (void)core_scope_check_at(where, function, CORE_ERROR_NOT_FOUND);
    return NULL;
}

core_tensor *core_x_child_at(const char *where, core_module *module,
                             const char *path, core_tensor *input)
{
    core_module *child = child_at(where, "core_x_child", module, path);

    return child ? core_x_module_at(where, child, input) : NULL;
}

core_tensor *core_x_children_at(const char *where, core_module *module,
                                core_tensor *input, const char *const *paths,
                                size_t count)
{
    for (size_t i = 0; i < count; i++)
        input = core_x_child_at(where, module, paths[i], input);
    return input;
}

/* The forward of a module may have ended the scope, or given it an error, although
 * it returned CORE_OK. */
static bool own_list(const char *where, core_tensor **tensors, size_t count)
{
    core__scopes *scopes = core__scopes_ready(where);

    if (scopes)
        return core__scopes_own_list(scopes, where, tensors, count);
    core_tensors_release(tensors, count);
    return false;
}

core_list core_x_forward_at(const char *where, core_module *module,
                            core_list inputs)
{
    enum { MOST = 16 };
    core_tensor **outputs;
    size_t count = MOST;
    core_status status = scope_status(where);

    if (status != CORE_OK)
        return CORE_NO_LIST;
    outputs = core__alloc_zero(MOST * sizeof *outputs);
    if (outputs)
        status = core_module_forward(module, inputs.items, inputs.count,
                                     outputs, &count);
    else
        status = core__error_memory(MOST * sizeof *outputs);
    if (status == CORE_OK && own_list(where, outputs, count))
        return core_list_from(outputs, count);
    if (status != CORE_OK) {
        core__free(outputs);
        core_scope_check_at(where, "core_x_forward", status);
    }
    return CORE_NO_LIST;
}

/* ----------------------------------------------------------- parameters -- */

/* Keeps the tensors of a list whose names match a pattern. */
static CORE__ONCE core_status keep_named(core_module_tensors *list,
                                         const char *const *patterns,
                                         size_t count)
{
    size_t kept = 0;

    for (size_t k = 0; k < count; k++) {
        size_t i = 0;

        while (i < list->count &&
               (!patterns[k] || fnmatch(patterns[k], list->names[i], 0) != 0))
            i++;
        if (i == list->count)
            return core__error(CORE_ERROR_NOT_FOUND,
                               "core_x_named_parameters: no parameter matches "
                               "\"%s\"",
                               patterns[k] ? patterns[k] : "NULL");
    }
    for (size_t i = 0; i < list->count; i++) {
        core_tensor *tensor = list->tensors[i];
        size_t k = 0;

        while (k < count && fnmatch(patterns[k], list->names[i], 0) != 0)
            k++;
        list->tensors[i] = NULL;
        if (k < count)
            list->tensors[kept++] = tensor;
        else
            core_tensor_release(tensor);
    }
    list->count = kept;
    return CORE_OK;
}

CORE__ONCE core_list core_x_named_parameters_at(const char *where,
                                                const core_module *module,
                                                const char *const *patterns,
                                                size_t count)
{
    core_module_tensors list = {0};
    core_status status = core_scope_status();

    if (status == CORE_OK)
        status = core_module_list(
            module, NULL, CORE_MODULE_PARAMETERS | CORE_MODULE_ONCE, &list);
    if (status == CORE_OK && patterns)
        status = keep_named(&list, patterns, count);
    if (core_scope_check_at(where, "core_x_parameters", status) == CORE_OK &&
        own_list(where, list.tensors, list.count))
        return core_list_from(list.tensors, list.count);
    if (status != CORE_OK)
        core_module_tensors_free(&list);
    return CORE_NO_LIST;
}

core_list core_x_parameters_at(const char *where, const core_module *module)
{
    return core_x_named_parameters_at(where, module, NULL, 0);
}

/* ------------------------------------------------------------- children -- */

static void release(void *module)
{
    core_module_release(module);
}

CORE__ONCE core_module *core_x_nn_add_at(const char *where, core_module *parent,
                                         const char *name, core_status status,
                                         core_module *const *module)
{
    core_module *own = status == CORE_OK && module ? *module : NULL;
    char number[24];
    size_t children = 0;

    if (status == CORE_OK && !own)
        status = core__error_null("core_x_nn_add", "module");
    if (!parent || !own || core_scope_status() != CORE_OK)
        return core_scope_own_object_at(where, status, own, release);
    if (name)
        status = core__module_walk(&parent, &name, true);
    if (!name || !*name) {
        for (size_t i = 0; i < parent->count; i++)
            children += parent->members[i].kind == CORE__MEMBER_CHILD;
        snprintf(number, sizeof number, "%zu", children);
        name = number;
    }
    status = core_module_take_child(parent, name, status, module);
    if (core_scope_check_at(where, "core_x_nn_add", status) != CORE_OK)
        return NULL;
    return own;
}

CORE__ONCE core_tensor *core_x_nn_member_at(const char *where,
                                            core_module *module,
                                            const char *name, bool trained,
                                            core_tensor *tensor)
{
    core_status status = core_scope_status();

    if (status == CORE_OK && module && name && tensor)
        status = core__module_walk(&module, &name, true);
    if (status == CORE_OK)
        status = trained ? core_module_add_parameter(module, name, tensor)
                         : core_module_add_buffer(module, name, tensor);
    status = core_scope_check_at(where, "core_x_nn_member", status);
    return status == CORE_OK ? tensor : NULL;
}

/* ------------------------------------------- layers of the first call -- */

/* What is missing is created in training only: otherwise its weights would be
 * random. */
static CORE__ONCE void not_created(const char *where, const core_module *module,
                                   const char *path)
{
    not_found(where, "core_x_lazy", module,
              "layer or parameter, and is not in training to create one at",
              path);
}

/* Whether the arguments of a call can be those of a layer at that path. */
static CORE__ONCE core_status refuse(const char *path, const char *type,
                                     const core_module *child)
{
    if (!child)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_x_lazy: the path \"%s\" has no last name",
                           path);
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "core_x_lazy: \"%s\" is a %s, not a %s", path,
                       child->type, type);
}

static CORE__ONCE bool has_last_name(const char *path)
{
    return !path || (*path && path[strlen(path) - 1] != '.');
}

/* A program that is recorded would keep the random weights of a new layer.  A
 * lazy region runs its operators once. */
static CORE__ONCE core_status refuse_recording(const char *path)
{
    const core__thread *self = core__thread_self();

    if (!self->trace || self->lazy)
        return CORE_OK;
    return core__error(
        CORE_ERROR_REFUSED,
        "core_x_lazy: the first call of \"%s\" " CORE__CREATION_REFUSED
        "; call it once before",
        path);
}

core_module *core_x_lazy_find_at(const char *where, core_module *module,
                                 const char *path, const char *type,
                                 core_tensor *x, core_nn_options *out_options)
{
    core_module *child = core_module_child(module, path);
    core_status status = scope_status(where);

    *out_options = (core_nn_options){0};
    if (status != CORE_OK)
        return NULL;
    if (type && !x)
        status = core__error_null("core_x_lazy", "x");
    else if (child ? type && child->function && strcmp(child->type, type) != 0
                   : !has_last_name(path))
        status = refuse(path, type, child);
    else if (child && (child->function || child->context))
        return child;
    else if (type && path)
        status = refuse_recording(path);
    if (status != CORE_OK) {
        (void)core_scope_check_at(where, "core_x_lazy", status);
        return NULL;
    }
    if (child || (path && core_module_is_training(module)))
        *out_options =
            (core_nn_options){.struct_size = sizeof *out_options,
                              .device = x ? core_tensor_device(x) : NULL,
                              .weights = child};
    else
        not_created(where, module, path);
    return NULL;
}

/* Makes a module without a function, which holds the tensors of a layer, that
 * layer.  Pointers to it stay valid. */
static CORE__ONCE core_status become(core_module *module, core_module *layer)
{
    core__member *members = module->members;
    void (*destroy)(void *) = module->destroy;
    char *type = module->type;
    size_t count = module->count;

    for (size_t i = 0; i < count; i++) {
        const char *name = members[i].name;

        if (!core__module_member(layer, name, strlen(name)))
            return core__error(CORE_ERROR_NOT_FOUND,
                               "core_x_lazy: a %s has no use for \"%s\"",
                               layer->type, name);
    }
    core_module_set_training(layer, core_module_is_training(module));
    module->type = layer->type;
    module->function = layer->function;
    module->context = layer->context;
    module->destroy = layer->destroy;
    module->members = layer->members;
    module->count = layer->count;
    layer->type = type;
    layer->function = NULL;
    layer->context = NULL;
    layer->destroy = destroy;
    layer->members = members;
    layer->count = count;
    return CORE_OK;
}

CORE__ONCE core_module *core_x_lazy_add_at(const char *where,
                                           core_module *module,
                                           const char *path, core_status status,
                                           core_module *const *layer)
{
    core_module *child = core_module_child(module, path);

    if (status == CORE_OK && child && layer)
        status = *layer ? become(child, *layer)
                        : core__error_null("core_x_lazy", "layer");
    if (status != CORE_OK && path) {
        core__error_prefix("the layer \"%s\"", path);
        core__module_name_origin(child, "");
    }
    if (!child || !layer)
        return core_x_nn_add_at(where, module, path, status, layer);
    core_module_release(*layer);
    status = core_scope_check_at(where, "core_x_lazy", status);
    return status == CORE_OK ? child : NULL;
}

/* Adds a new parameter at a path. */
static CORE__ONCE core_status make_parameter(core_module *module,
                                             const char *path, core_sizes sizes,
                                             double deviation,
                                             core_tensor *like)
{
    const core_nn_options options = {.struct_size = sizeof options,
                                     .device = like ? core_tensor_device(like)
                                                    : NULL};

    if (!has_last_name(path))
        return refuse(path, NULL, NULL);
    CORE_TRY(refuse_recording(path));
    CORE_TRY(core__module_walk(&module, &path, true));
    return core__module_make(module, path, sizes.items, sizes.count,
                             CORE__NORMAL, deviation, &options);
}

/* Checks what is at a path.  That of a file was a buffer. */
static CORE__ONCE core_status take_parameter(const core_module *module,
                                             const char *path, core_sizes sizes,
                                             core__member *m)
{
    core_status status;

    if (m->kind == CORE__MEMBER_CHILD)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_x_lazy_parameter: \"%s\" is a module", path);
    status =
        core__module_check_sizes(m->u.tensor, path, sizes.items, sizes.count);
    if (status != CORE_OK && m->from_file)
        name_origin(module, path);
    if (status != CORE_OK || m->kind == CORE__MEMBER_PARAMETER)
        return status;
    CORE_TRY(refuse_recording(path));
    CORE_TRY(
        core__module_check_leaf("core_x_lazy_parameter", path, m->u.tensor));
    CORE_TRY(core_tensor_set_requires_grad(m->u.tensor, true));
    m->kind = CORE__MEMBER_PARAMETER;
    return CORE_OK;
}

core_tensor *core_x_lazy_parameter_at(const char *where, core_module *module,
                                      const char *path, core_sizes sizes,
                                      double deviation, core_tensor *like)
{
    core__member *m = core__module_find(module, path);
    core_status status = scope_status(where);

    if (status != CORE_OK)
        return NULL;
    if (!m && !(path && core_module_is_training(module))) {
        not_created(where, module, path);
        return NULL;
    }
    if (m)
        status = take_parameter(module, path, sizes, m);
    else
        status = make_parameter(module, path, sizes, deviation, like);
    status = core_scope_check_at(where, "core_x_lazy_parameter", status);
    return status == CORE_OK ? core_module_tensor(module, path) : NULL;
}
