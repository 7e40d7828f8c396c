/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What calls of expressions read from tensors and lists, and its errors. */

#include "scope/scope.h"

#include "base/memory.h"
#include "tensor/tensor.h"

#include <string.h>

int64_t core_x_size_at(const char *where, const core_tensor *tensor,
                       int64_t dim)
{
    int64_t size = tensor ? core_tensor_size(tensor, dim) : 0;
    core__scopes *scopes;

    if (size >= 0)
        return size;
    scopes = core__scopes_ready(where);
    if (scopes)
        core__scopes_fail(
            scopes, where,
            core__error(
                CORE_ERROR_INDEX,
                "core_x_size: dim is %lld; the tensor has %u dimensions",
                (long long)dim, tensor->ndim));
    return 0;
}

void __attribute__((cold))
core_list_unpack_refuse(const char *where, size_t given, size_t wanted)
{
    core__scopes *scopes = core__scopes_ready(where);

    if (scopes)
        core__scopes_fail(
            scopes, where,
            core__error(CORE_ERROR_SHAPE,
                        "CORE_UNPACK: the list has %zu tensors, and there are "
                        "%zu variables",
                        given, wanted));
}

/* Doubles the room of a list; the former memory stays the scope's. */
static core_status __attribute__((cold))
grow(const char *where, core_growing_list *list)
{
    size_t count = list->list.count, capacity = count < 4 ? 8 : 2 * count;
    core_tensor **items = core__alloc_array(capacity, sizeof *items);
    core_status status = CORE_OK;

    if (!items)
        status = core__error_memory(capacity * sizeof *items);
    items = core_scope_own_object_at(where, status, items, core__free);
    if (!items)
        return status != CORE_OK ? status : CORE_ERROR_OUT_OF_MEMORY;
    if (count > 0)
        memcpy(items, list->list.items, count * sizeof *items);
    list->list.items = items;
    list->capacity = capacity;
    list->scope = core__scopes_innermost(core__thread_self()->scopes);
    return CORE_OK;
}

static core_status __attribute__((cold))
check_append(const core__scopes *scopes, const core_growing_list *list,
             const core_tensor *tensor)
{
    if (!list || !tensor)
        return core__error_null("core_x_append", list ? "tensor" : "list");
    if (list->capacity && !core__scopes_is_innermost(scopes, list->scope))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_x_append: the list began in another scope, "
                           "which owns its memory; append there what "
                           "core_scope_return or core_scope_keep brings");
    return CORE_OK;
}

void core_x_append_at(const char *where, core_growing_list *list,
                      core_tensor *tensor)
{
    core__scopes *scopes = core__scopes_ready(where);
    core_status status;

    if (!scopes)
        return;
    status = check_append(scopes, list, tensor);
    if (status != CORE_OK) {
        core__scopes_fail(scopes, where, status);
        return;
    }
    if (list->list.count == list->capacity && grow(where, list) != CORE_OK)
        return;
    ((core_tensor **)list->list.items)[list->list.count++] = tensor;
}
