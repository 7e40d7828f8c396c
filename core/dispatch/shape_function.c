/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Shape functions of plugins' operators: with one, an operator is structured as
 * the built-in ones whose kernels receive views. */

#include "base/memory.h"
#include "base/thread.h"
#include "dispatch/dispatch.h"
#include "dispatch/inference.h"
#include "dispatch/registry.h"
#include "dispatch/schema.h"
#include "dispatch/table.h"
#include "tensor/dtype.h"

#include <libcore/tensor.h>

#include <string.h>

/* -------------------------------------------------------- registration -- */

static bool registers(const core_registry *registry, const core_operator *op)
{
    const core__registration *at = registry->first;

    while (at && at->custom != op)
        at = at->next_owned;
    return at != NULL;
}

/* The only argument that a kernel may change is the first, which is then the
 * result. */
static bool is_in_place(const core__schema *schema)
{
    return schema->nresults == 1 && schema->results[0].mutated &&
           schema->arguments[0].mutated &&
           schema->arguments[0].tag == CORE_VALUE_TENSOR &&
           strcmp(schema->results[0].alias, schema->arguments[0].alias) == 0;
}

static core_status check_schema(const core_operator *op)
{
    const core__schema *schema = op->schema;
    uint32_t first = is_in_place(schema) ? 1 : 0;

    if (schema->nresults == 0 || schema->nresults > CORE__RESULTS_MAX)
        return core__op_error(CORE_ERROR_UNSUPPORTED, op,
                              "an operator with a shape function has 1 to %d "
                              "results; the schema has %u",
                              CORE__RESULTS_MAX, schema->nresults);
    for (uint32_t i = first; i < schema->narguments; i++)
        if (schema->arguments[i].tag == CORE_VALUE_DEVICE)
            return core__op_error(CORE_ERROR_UNSUPPORTED, op,
                                  "the argument %s is a device; an operator "
                                  "with a shape function runs on the device of "
                                  "its tensors, or on the current one",
                                  schema->arguments[i].name);
    for (uint32_t i = first; i < schema->narguments; i++)
        if (schema->arguments[i].mutated)
            return core__op_error(
                CORE_ERROR_UNSUPPORTED, op,
                "the argument %s is changed; an operator with a shape function "
                "may change only its first argument, which is then its result",
                schema->arguments[i].name);
    for (uint32_t i = first; i < schema->nresults; i++)
        if (schema->results[i].tag != CORE_VALUE_TENSOR ||
            schema->results[i].aliased)
            return core__op_error(CORE_ERROR_UNSUPPORTED, op,
                                  "result %u is not a new tensor, which an "
                                  "operator with a shape function returns",
                                  i + 1);
    return CORE_OK;
}

static core_status add(core_registry *registry, core_string name,
                       core_shape_function shape, void *user)
{
    core_operator *op = core__operator_find(name.data, name.size);
    core__registration *registration;

    if (!op)
        return core__error(CORE_ERROR_NOT_FOUND,
                           "there is no operator \"%.*s\"", (int)name.size,
                           name.data);
    if (!registers(registry, op))
        return core__op_error(CORE_ERROR_REFUSED, op,
                              "a shape function is accepted only from the "
                              "plugin that registers the operator");
    if (core__registry_shape(op))
        return core__op_error(CORE_ERROR_REFUSED, op,
                              "the operator has a shape function");
    CORE_TRY(check_schema(op));
    CORE_TRY(core__registry_new_registration(registry, &registration));
    registration->op = op;
    registration->key = CORE__KEY_SHAPE;
    registration->slot = CORE__SLOT_NONE;
    registration->shape = shape;
    registration->entry.user = user;
    registration->next = op->registrations;
    op->registrations = registration;
    core__registry_set_shape(op, registration);
    core__table_refresh(op);
    return CORE_OK;
}

core_status core__registry_add_shape(core_registry *registry,
                                     core_string operator_name,
                                     core_shape_function shape, void *user)
{
    core_status status;

    if (!shape)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "the shape function to register is NULL");
    core__registry_lock();
    status = add(registry, operator_name, shape, user);
    core__registry_unlock();
    return status;
}

/* ----------------------------------------------------------- inference -- */

enum { VALUES = CORE__SCHEMA_ARGUMENTS, FEW_VIEWS = 16 };

/* The arguments of a call, as views without memory. */
typedef struct shape_call {
    core_value values[VALUES];
    core_view *views;
    const core_view **lists;
    uint32_t nviews, nlisted;
    core_view few_views[FEW_VIEWS];
    const core_view *few_lists[FEW_VIEWS];
    void *many; /* both, if there are more */
} shape_call;

static const core_view *add_view(shape_call *c, core_tensor *tensor)
{
    core_view *view = &c->views[c->nviews++];

    *view = (core_view){
        .struct_size = sizeof *view,
        .dtype = tensor->dtype,
        .sizes = tensor->sizes,
        .strides = tensor->strides,
        .numel = tensor->numel,
        .ndim = tensor->ndim,
        .flags =
            tensor->flags & CORE__TENSOR_CONTIGUOUS ? CORE_VIEW_CONTIGUOUS : 0,
        .device = tensor->device,
    };
    return view;
}

static void add_list(shape_call *c, const core_value *from, core_value *to)
{
    *to = (core_value){
        CORE_VALUE_VIEW_LIST, from->count, {.views = c->lists + c->nlisted}};
    for (uint32_t i = 0; i < from->count; i++)
        c->lists[c->nlisted++] =
            from->u.tensors[i] ? add_view(c, from->u.tensors[i]) : NULL;
}

static core_status make_values(shape_call *c, const core_value *args,
                               uint32_t nargs)
{
    size_t count = 0;

    for (uint32_t i = 0; i < nargs; i++)
        count += args[i].tag == CORE_VALUE_TENSOR_LIST ? args[i].count : 1;
    c->views = c->few_views;
    c->lists = c->few_lists;
    c->many = NULL;
    c->nviews = c->nlisted = 0;
    if (count > FEW_VIEWS) {
        c->many = core__alloc(count * (sizeof *c->views + sizeof *c->lists));
        if (!c->many)
            return core__error_memory(count * sizeof *c->views);
        c->views = c->many;
        c->lists = (const core_view **)(void *)(c->views + count);
    }
    for (uint32_t i = 0; i < nargs; i++) {
        c->values[i] = args[i];
        if (args[i].tag == CORE_VALUE_TENSOR)
            c->values[i] = (core_value){
                CORE_VALUE_VIEW, 0, {.view = add_view(c, args[i].u.tensor)}};
        else if (args[i].tag == CORE_VALUE_TENSOR_LIST)
            add_list(c, &args[i], &c->values[i]);
    }
    return CORE_OK;
}

static core_status take(core__inference *inference, uint32_t i,
                        const core_result_shape *shape)
{
    core__result_spec *spec = &inference->results[i];
    const core_operator *op = inference->op;
    int64_t numel = 1;

    if (!core__dtype_size(shape->dtype))
        return core__op_error(CORE_ERROR_INTERNAL, op,
                              "the shape function sets the dtype of result %u "
                              "to %u, which is not a dtype",
                              i + 1, shape->dtype);
    if (i == 0 && is_in_place(op->schema) &&
        shape->dtype != inference->args[0].u.tensor->dtype)
        return core__op_error(
            CORE_ERROR_INTERNAL, op,
            "the shape function gives the result the dtype "
            "%s; the operator works in place on %s",
            core_dtype_name(shape->dtype),
            core_dtype_name(inference->args[0].u.tensor->dtype));
    if (shape->ndim > CORE_MAX_NDIM)
        return core__op_error(CORE_ERROR_INTERNAL, op,
                              "the shape function gives result %u %u "
                              "dimensions; a tensor has at most %d",
                              i + 1, shape->ndim, CORE_MAX_NDIM);
    for (uint32_t d = 0; d < shape->ndim; d++)
        if (shape->sizes[d] < 0 ||
            __builtin_mul_overflow(numel, shape->sizes[d], &numel))
            return core__op_error(CORE_ERROR_INTERNAL, op,
                                  "the shape function gives dimension %u of "
                                  "result %u the size %lld, which is %s",
                                  d, i + 1, (long long)shape->sizes[d],
                                  shape->sizes[d] < 0
                                      ? "negative"
                                      : "too large with the other sizes");
    spec->dtype = shape->dtype;
    spec->ndim = shape->ndim;
    memcpy(spec->sizes, shape->sizes, shape->ndim * sizeof *shape->sizes);
    return CORE_OK;
}

core_status core__shape_infer(core__inference *inference)
{
    core_operator *op = inference->op;
    const core__registration *shape = core__registry_shape(op);
    core_result_shape shapes[CORE__RESULTS_MAX];
    uint32_t errors = core__error_sequence();
    core_status status;
    shape_call c;

    if (!shape)
        return core__op_error(CORE_ERROR_NOT_FOUND, op,
                              "the plugin of this operator was unloaded");
    memset(shapes, 0, op->nresults * sizeof *shapes);
    status = make_values(&c, inference->args, inference->nargs);
    if (status == CORE_OK)
        status = shape->shape(shape->entry.user, c.values, inference->nargs,
                              shapes, op->nresults);
    core__free(c.many);
    if (status != CORE_OK && core__error_sequence() == errors)
        return core__op_error(status, op,
                              "the shape function refuses the arguments");
    for (uint32_t i = 0; i < op->nresults && status == CORE_OK; i++)
        status = take(inference, i, &shapes[i]);
    return status;
}
