/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Saves tensors for formulas, and unpacks them with version checks and
 * history. */

#include "autograd/graph/saved.h"

#include "base/memory.h"
#include "base/thread.h"
#include "ops/infer.h"
#include "tensor/batched.h"

#include <string.h>

/* A tensor on the same storage, without history. */
static core_status alias(core_tensor *tensor, core_tensor **out_alias)
{
    CORE_TRY(core__tensor_shallow_copy(tensor, out_alias));
    (*out_alias)->keys &= ~CORE__KEYS_REQUIRES_GRAD;
    return CORE_OK;
}

static void hold(core__saved *saved, core_tensor *tensor)
{
    saved->value = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = tensor}};
    saved->version = core__content_version(tensor);
    saved->kind = CORE__SAVED_TENSOR;
}

/* Threads that record the same tensor may set the bit at the same time, while
 * others read the rest, which does not change. */
static void __attribute__((noinline, no_sanitize_thread))
mark_saved(core_tensor *tensor)
{
    __atomic_fetch_or(&tensor->flags, CORE__TENSOR_SAVED, __ATOMIC_RELAXED);
}

/* With saved-tensor hooks: the content goes to the program, the history stays
 * here. */
static core_status __attribute__((noinline, cold))
pack(core__saved *saved, core_tensor *tensor, core_tensor *original)
{
    core_tensor *content = NULL;
    core__edge edge = {0};
    core_status status = CORE_OK;

    if (core__tensor_needs_grad(tensor))
        CORE_TRY(core__gradient_edge(tensor, &edge));
    if (!original)
        status = alias(tensor, &content);
    if (status == CORE_OK)
        status = core__saved_pack(saved, original ? original : content, false);
    core__tensor_release(content);
    if (status != CORE_OK) {
        core__node_release(edge.node);
        return status;
    }
    saved->grad_fn = edge.node;
    saved->output = (uint16_t)edge.input;
    return CORE_OK;
}

core_status core__saved_tensor(core__saved *saved, core_tensor *tensor,
                               core_tensor *original)
{
    core__edge edge = {0};
    core_tensor *content = original ? original : tensor;

    if (core__unlikely(content->flags & CORE__TENSOR_INFERENCE))
        return core__error(CORE_ERROR_AUTOGRAD,
                           "the backward needs a tensor that was created in "
                           "inference mode, which cannot be saved; clone it in "
                           "normal mode first");
    if (core__unlikely(core__thread_self()->saved_hooks != NULL))
        return pack(saved, tensor, original);
    saved->grad_fn = NULL;
    saved->output = 0;
    if (core__likely(!original && core__tensor_is_leaf(tensor))) {
        if (core__unlikely(!(tensor->flags & CORE__TENSOR_SAVED)))
            mark_saved(tensor);
        core__tensor_retain(tensor);
        hold(saved, tensor);
        return CORE_OK;
    }
    if (core__tensor_needs_grad(tensor))
        CORE_TRY(core__gradient_edge(tensor, &edge));
    if (original) {
        core__tensor_retain(original);
    } else {
        core_status status = alias(tensor, &content);

        if (status != CORE_OK) {
            core__node_release(edge.node);
            return status;
        }
    }
    hold(saved, content);
    saved->grad_fn = edge.node;
    saved->output = (uint16_t)edge.input;
    return CORE_OK;
}

core_status core__saved_result(core__saved *saved, core_tensor *tensor,
                               uint32_t output, bool differentiable)
{
    core_tensor *content;

    CORE_TRY(alias(tensor, &content));
    saved->grad_fn = NULL;
    saved->output = (uint16_t)output;
    if (core__unlikely(core__thread_self()->saved_hooks != NULL)) {
        core_status status = core__saved_pack(saved, content, differentiable);

        core__tensor_release(content);
        return status;
    }
    hold(saved, content);
    if (differentiable)
        saved->kind = CORE__SAVED_RESULT;
    return CORE_OK;
}

static size_t list_size(uint32_t count)
{
    return count * (sizeof(core__saved) + sizeof(core_tensor *));
}

core_status core__saved_list(core__saved *saved, core_tensor *const *tensors,
                             uint32_t count)
{
    core__saved *items = core__alloc(list_size(count));

    if (!items)
        return core__error_memory(list_size(count));
    for (uint32_t i = 0; i < count; i++)
        items[i].kind = CORE__SAVED_NONE;
    saved->value =
        (core_value){CORE_VALUE_TENSOR_LIST, count, {.pointer = items}};
    saved->kind = CORE__SAVED_LIST;
    saved->output = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (tensors[i])
            CORE_TRY(core__saved_tensor(&items[i], tensors[i], NULL));
        saved->output |= items[i].kind == CORE__SAVED_PACKED;
    }
    return CORE_OK;
}

void core__saved_release(core__saved *saved)
{
    switch (saved->kind) {
    case CORE__SAVED_TENSOR:
        core__tensor_release(saved->value.u.tensor);
        core__node_release(saved->grad_fn);
        break;
    case CORE__SAVED_RESULT:
        core__tensor_release(saved->value.u.tensor);
        break;
    case CORE__SAVED_LIST:
        for (uint32_t i = 0; i < saved->value.count; i++)
            core__saved_release((core__saved *)saved->value.u.pointer + i);
        core__free(saved->value.u.pointer);
        break;
    case CORE__SAVED_PACKED:
        core__packed_release(saved->value.u.pointer);
        core__node_release(saved->grad_fn);
        break;
    case CORE__SAVED_STALE:
        core__node_release(saved->grad_fn);
        break;
    default:
        return;
    }
    saved->kind = CORE__SAVED_NONE;
}

static core_status check_version(const char *name, const core__saved *saved)
{
    const core_tensor *tensor = saved->value.u.tensor;
    char text[256];

    if (saved->kind == CORE__SAVED_STALE)
        return core__error(CORE_ERROR_VERSION,
                           "%s needs a tensor at version %u, but it was "
                           "changed in place since it was saved",
                           name, saved->version);
    return core__error(
        CORE_ERROR_VERSION,
        "%s needs a tensor of sizes %s at version %u, but it is now at version "
        "%u: it was changed in place since it was saved",
        name, core__sizes_text(tensor->ndim, tensor->sizes, text, sizeof text),
        saved->version, core__content_version(tensor));
}

/* The saved result as the program sees it: with this node as its history. */
static core_status unpack_result(core_node *node, core__saved *saved,
                                 core_tensor **temporaries,
                                 uint32_t *ntemporaries)
{
    core_tensor *result;
    core_status status;

    CORE_TRY(alias(saved->value.u.tensor, &result));
    core__node_retain(node);
    status = core__history_set(result, node, saved->output);
    if (status != CORE_OK) {
        core__tensor_release(result);
        return status;
    }
    temporaries[(*ntemporaries)++] = result;
    return CORE_OK;
}

static core_status unpack_list(core_node *node, core__saved *saved,
                               bool history, core_value *out_value)
{
    uint32_t count = saved->value.count;
    core__saved *items = saved->value.u.pointer;
    core_tensor **tensors = (core_tensor **)(void *)(items + count);

    for (uint32_t i = 0; i < count; i++) {
        core_value value;

        CORE_TRY(
            core__saved_unpack(node, &items[i], history, &value, NULL, NULL));
        tensors[i] = value.tag == CORE_VALUE_TENSOR ? value.u.tensor : NULL;
    }
    *out_value =
        (core_value){CORE_VALUE_TENSOR_LIST, count, {.tensors = tensors}};
    return CORE_OK;
}

/* An alias gets its history when it is first needed. */
static core_status give_history(core__saved *saved)
{
    core_tensor *tensor = saved->value.u.tensor;

    if (!saved->grad_fn || tensor->autograd)
        return CORE_OK;
    core__node_retain(saved->grad_fn);
    return core__history_set(tensor, saved->grad_fn, saved->output);
}

core_status core__saved_unpack_named(const char *name, core__saved *saved,
                                     core_value *out_value)
{
    *out_value = saved->value;
    if (core__content_version(saved->value.u.tensor) != saved->version)
        return check_version(name, saved);
    return give_history(saved);
}

core_status core__saved_unpack(core_node *node, core__saved *saved,
                               bool history, core_value *out_value,
                               core_tensor **temporaries,
                               uint32_t *ntemporaries)
{
    switch (saved->kind) {
    case CORE__SAVED_TENSOR:
        if (core__unlikely(core__content_version(saved->value.u.tensor) !=
                           saved->version))
            return check_version(node->name, saved);
        if (core__unlikely(history))
            CORE_TRY(give_history(saved));
        break;
    case CORE__SAVED_RESULT:
        if (core__unlikely(core__content_version(saved->value.u.tensor) !=
                           saved->version))
            return check_version(node->name, saved);
        if (core__unlikely(history)) {
            CORE_TRY(unpack_result(node, saved, temporaries, ntemporaries));
            *out_value = saved->value;
            out_value->u.tensor = temporaries[*ntemporaries - 1];
            return CORE_OK;
        }
        break;
    case CORE__SAVED_LIST:
        return unpack_list(node, saved, history, out_value);
    case CORE__SAVED_STALE:
        return check_version(node->name, saved);
    case CORE__SAVED_NONE:
        *out_value = (core_value){0};
        return CORE_OK;
    default:
        break;
    }
    *out_value = saved->value;
    return CORE_OK;
}
