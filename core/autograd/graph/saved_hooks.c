/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Saved-tensor hooks: the stack of hooks, and packing and unpacking through
 * them. */

#include "autograd/graph/saved_hooks.h"

#include "base/callback.h"
#include "autograd/graph/saved.h"
#include "base/memory.h"
#include "base/thread.h"
#include "device/device.h"
#include "ops/infer.h"
#include "tensor/dtype.h"
#include "tensor/batched.h"

#include <string.h>

/* ------------------------------------------------------------------ hooks -- */

core_status core__saved_hooks_new(const core_saved_hooks_info *info,
                                  core__saved_hooks **out_hooks)
{
    core__saved_hooks *hooks = core__alloc_zero(sizeof *hooks);

    *out_hooks = hooks;
    if (!hooks)
        return core__error_memory(sizeof *hooks);
    atomic_init(&hooks->references, 1);
    hooks->info = *info;
    return CORE_OK;
}

void core__saved_hooks_release(core__saved_hooks *hooks)
{
    while (hooks && atomic_fetch_sub(&hooks->references, 1) == 1) {
        core__saved_hooks *outer = hooks->outer;

        if (hooks->info.drop)
            hooks->info.drop(hooks->info.context);
        core__free(hooks);
        hooks = outer;
    }
}

core_status core_saved_hooks_push(const core_saved_hooks_info *info)
{
    core__thread *self = core__thread_self();
    core__saved_hooks *hooks = NULL;
    core_status status;

    CORE__NOT_NULL(info);
    if (info->struct_size < sizeof *info || info->flags)
        status = core__error(CORE_ERROR_INVALID_ARGUMENT,
                             "core_saved_hooks_push: struct_size is %u and "
                             "flags %u; they must be %zu and 0",
                             info->struct_size, info->flags, sizeof *info);
    else if (!info->pack || !info->unpack)
        status = core__error_null("core_saved_hooks_push",
                                  info->pack ? "unpack" : "pack");
    else
        status = core__saved_hooks_new(info, &hooks);
    if (status != CORE_OK) {
        if (info->drop)
            info->drop(info->context);
        return status;
    }
    hooks->outer = self->saved_hooks;
    self->saved_hooks = hooks;
    return CORE_OK;
}

core_status core_saved_hooks_pop(void)
{
    core__thread *self = core__thread_self();
    core__saved_hooks *hooks = self->saved_hooks;

    if (!hooks)
        return core__error(CORE_ERROR_AUTOGRAD,
                           "core_saved_hooks_pop: this thread has no "
                           "saved-tensor hooks to pop");
    if (hooks == self->outer_hooks)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "core_saved_hooks_pop: the hooks were set outside "
                           "of the function that is recorded, which cannot pop "
                           "them");
    self->saved_hooks = hooks->outer;
    hooks->outer = NULL; /* that reference is the thread's again */
    core__saved_hooks_release(hooks);
    return CORE_OK;
}

/* ---------------------------------------------------------------- packing -- */

/* Program code runs with recording turned off. */
typedef struct suspended {
    core__saved_hooks *hooks;
    bool no_grad;
    uint32_t errors;
} suspended;

static suspended hooks_suspend(core__thread *self)
{
    suspended was = {self->saved_hooks, self->no_grad, self->error.sequence};

    self->saved_hooks = NULL;
    self->no_grad = true;
    return was;
}

static core_status hooks_resume(core__thread *self, suspended was,
                                core_status status, const char *what)
{
    self->saved_hooks = was.hooks;
    self->no_grad = was.no_grad;
    return core__callback_status(was.errors, status, what);
}

static core__packed *packed_new(const core_tensor *content, bool result)
{
    size_t dims = content->ndim * sizeof(int64_t);
    core__packed *packed = core__alloc(sizeof *packed + dims);

    if (!packed)
        return NULL;
    packed->handle = NULL;
    packed->device = content->device;
    packed->result = result;
    packed->dtype = content->dtype;
    packed->ndim = content->ndim;
    memcpy(packed->sizes, content->sizes, dims);
    return packed;
}

core_status core__saved_pack(core__saved *saved, core_tensor *content,
                             bool result)
{
    core__thread *self = core__thread_self();
    core__saved_hooks *hooks = self->saved_hooks;
    core__packed *packed = packed_new(content, result);
    uint32_t version = core__content_version(content);
    core_status status;
    suspended was;

    if (!packed)
        return core__error_memory(sizeof *packed);
    packed->hooks = hooks;
    atomic_fetch_add(&hooks->references, 1);
    was = hooks_suspend(self);
    status = hooks->info.pack(hooks->info.context, content, &packed->handle);
    status = hooks_resume(self, was, status, "packing a saved tensor");
    if (status != CORE_OK) {
        core__saved_hooks_release(hooks);
        core__free(packed);
        return status;
    }
    if (core__content_version(content) != version) {
        core__packed_release(packed);
        return core__error(CORE_ERROR_VERSION,
                           "packing a saved tensor: the pack function changed "
                           "the tensor in place, which it must not do");
    }
    saved->value = (core_value){CORE_VALUE_NONE, 0, {.pointer = packed}};
    saved->kind = CORE__SAVED_PACKED;
    saved->version = version;
    return CORE_OK;
}

void core__packed_release(core__packed *packed)
{
    const core_saved_hooks_info *info = &packed->hooks->info;

    if (info->release)
        info->release(info->context, packed->handle);
    core__saved_hooks_release(packed->hooks);
    core__free(packed);
}

/* -------------------------------------------------------------- unpacking -- */

static core_status check(const core__packed *packed, const core_tensor *tensor)
{
    char given[200], expected[200];

    if (!tensor)
        return core__error(
            CORE_ERROR_AUTOGRAD,
            "unpacking a saved tensor: the unpack function returned no tensor");
    if (tensor->device == packed->device && tensor->dtype == packed->dtype &&
        tensor->ndim == packed->ndim &&
        memcmp(tensor->sizes, packed->sizes,
               packed->ndim * sizeof *packed->sizes) == 0)
        return CORE_OK;
    return core__error(
        CORE_ERROR_AUTOGRAD,
        "unpacking a saved tensor: %s of sizes %s on \"%s\" was packed, but "
        "the unpack function returned %s of sizes %s on \"%s\"",
        core__dtype_name(packed->dtype),
        core__sizes_text(packed->ndim, packed->sizes, expected,
                         sizeof expected),
        packed->device->name, core__dtype_name(tensor->dtype),
        core__sizes_text(tensor->ndim, tensor->sizes, given, sizeof given),
        tensor->device->name);
}

core_status core__packed_unpack(core_node *node, const core__saved *saved,
                                bool history, core_tensor **out_tensor)
{
    const core__packed *packed = saved->value.u.pointer;
    const core_saved_hooks_info *info = &packed->hooks->info;
    core__thread *self = core__thread_self();
    core_tensor *tensor = NULL;
    core_status status;
    suspended was;

    *out_tensor = NULL;
    was = hooks_suspend(self);
    status = info->unpack(info->context, packed->handle, &tensor);
    status = hooks_resume(self, was, status, "unpacking a saved tensor");
    if (status == CORE_OK)
        status = check(packed, tensor);
    if (status == CORE_OK && history && (packed->result || saved->grad_fn))
        /* The program may keep the tensor that it returned. */
        status = core__history_alias(packed->result ? node : saved->grad_fn,
                                     saved->output, &tensor);
    if (status != CORE_OK) {
        core__tensor_release(tensor);
        return status;
    }
    *out_tensor = tensor;
    return CORE_OK;
}

/* ------------------------------------------------------------------ lists -- */

static core_status item(core_node *node, core__saved *saved, bool history,
                        core_tensor **out_tensor)
{
    core_value value = {0};
    core_status status;

    *out_tensor = NULL;
    if (saved->kind == CORE__SAVED_PACKED)
        return core__packed_unpack(node, saved, history, out_tensor);
    core__byte_lock(&node->lock);
    status = core__saved_unpack(node, saved, history, &value, NULL, NULL);
    if (status == CORE_OK && value.tag == CORE_VALUE_TENSOR) {
        core__tensor_retain(value.u.tensor);
        *out_tensor = value.u.tensor;
    }
    core__byte_unlock(&node->lock);
    return status;
}

core_status core__packed_list_unpack(core_node *node, core__saved *saved,
                                     bool history, core_value *out_value,
                                     core__unpacked **lists)
{
    uint32_t count = saved->value.count;
    core__saved *items = saved->value.u.pointer;
    size_t size = sizeof **lists + count * sizeof *(*lists)->tensors;
    core__unpacked *list = core__alloc_zero(size);

    if (!list)
        return core__error_memory(size);
    list->count = count;
    list->next = *lists;
    *lists = list;
    for (uint32_t i = 0; i < count; i++)
        CORE_TRY(item(node, &items[i], history, &list->tensors[i]));
    *out_value =
        (core_value){CORE_VALUE_TENSOR_LIST, count, {.tensors = list->tensors}};
    return CORE_OK;
}

void core__unpacked_release(core__unpacked *lists)
{
    while (lists) {
        core__unpacked *next = lists->next;

        for (uint32_t i = 0; i < lists->count; i++)
            core__tensor_release(lists->tensors[i]);
        core__free(lists);
        lists = next;
    }
}
