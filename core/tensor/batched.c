/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Creates batched tensors. */

#include "tensor/batched.h"

#include "base/memory.h"
#include "base/thread.h"

#include <string.h>

/* Sets sizes, strides and what follows from them. */
static void set_layout(core_tensor *batched, const core_tensor *held,
                       uint32_t dim)
{
    uint32_t ndim = 0;

    for (uint32_t i = 0; i < held->ndim; i++) {
        if (i == dim)
            continue;
        batched->sizes[ndim] = held->sizes[i];
        batched->strides[ndim++] = held->strides[i];
    }
    batched->offset = held->offset;
    batched->batch_dim = (uint8_t)dim;
    core__tensor_update_layout(batched);
}

core_status core__batched_new(core_tensor *held, uint32_t dim, uint64_t level,
                              core_tensor **out_tensor)
{
    uint32_t ndim = held->ndim - (dim != CORE__BATCH_NONE);
    core_tensor *tensor = core__small_alloc(sizeof *tensor);

    *out_tensor = NULL;
    if (!tensor)
        return core__error_memory(sizeof *tensor);
    memset(tensor, 0, sizeof *tensor);
    atomic_init(&tensor->references, 1);
    tensor->kind = core__tensor_kind((uint8_t)ndim, held->dtype);
    tensor->flags =
        CORE__TENSOR_BATCHED |
        (held->flags & (CORE__TENSOR_INFERENCE | CORE__TENSOR_READ_ONLY));
    tensor->keys = (held->keys & (CORE__KEYS_SLOTS | CORE__KEYS_TENSOR)) |
                   CORE__KEY_BATCHED;
    tensor->device = held->device;
    tensor->sizes = tensor->inline_dims;
    if (ndim > CORE__TENSOR_INLINE_NDIM) {
        tensor->sizes = core__small_alloc(2 * ndim * sizeof(int64_t));
        if (!tensor->sizes) {
            core__small_free(tensor, sizeof *tensor);
            return core__error_memory(2 * ndim * sizeof(int64_t));
        }
    }
    tensor->strides = tensor->sizes + ndim;
    tensor->held = held;
    tensor->level = level;
    core__tensor_retain(held);
    set_layout(tensor, held, dim);
    *out_tensor = tensor;
    return CORE_OK;
}

core_status core__batched_replace(core_tensor *batched, core_tensor *held,
                                  uint32_t dim)
{
    core_tensor *old = batched->held, *like;

    CORE_TRY(core__batched_new(held, dim, batched->level, &like));
    core__tensor_take_layout(batched, like);
    core__tensor_release(like);
    batched->batch_dim = (uint8_t)dim;
    batched->held = held;
    core__tensor_retain(held);
    core__tensor_release(old);
    return CORE_OK;
}

void core__batched_share(core_tensor *alias, const core_tensor *source)
{
    alias->flags |= CORE__TENSOR_BATCHED;
    alias->keys |= CORE__KEY_BATCHED;
    alias->held = source->held;
    alias->level = source->level;
    alias->batch_dim = source->batch_dim;
    core__tensor_retain(source->held);
}

core__batching_state core__batching_leave(core__thread *self,
                                          const core__batching *batching)
{
    core__batching_state before = {self->batching, self->included,
                                   self->excluded};

    self->batching = batching->outer;
    if (!batching->outer)
        self->included &= ~(uint32_t)CORE__KEY_BATCHED;
    /* Autocast has cast the operands already. */
    self->excluded = (uint32_t)((self->excluded & ~CORE__KEY_AUTOGRAD) |
                                (batching->excluded & CORE__KEY_AUTOGRAD) |
                                CORE__KEY_AUTOCAST);
    return before;
}

void core__batching_return(core__thread *self, core__batching_state before)
{
    self->batching = before.batching;
    self->included = before.included;
    self->excluded = before.excluded;
}

core_status core__batched_lift(core_tensor **tensor)
{
    const core__batching *batching = core__thread_self()->batching;
    core_tensor *lifted;

    if (!batching || (core__tensor_is_batched(*tensor) &&
                      (*tensor)->level == batching->level))
        return CORE_OK;
    CORE_TRY(
        core__batched_new(*tensor, CORE__BATCH_NONE, batching->level, &lifted));
    core__tensor_release(*tensor);
    *tensor = lifted;
    return CORE_OK;
}

bool core__batched_joins(const core_tensor *tensor)
{
    const core__batching *batching = core__thread_self()->batching;

    return batching && !(core__tensor_is_batched(tensor) &&
                         tensor->level == batching->level &&
                         core__tensor_requires_grad(tensor));
}

uint32_t core__batched_version(const core_tensor *tensor)
{
    if (!core__tensor_is_batched(tensor))
        return 0;
    tensor = core__batched_elements((core_tensor *)(uintptr_t)tensor);
    return core__tensor_version(tensor) | UINT32_C(1) << 31;
}

core_status core__batched_error(void)
{
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "a tensor inside core_vmap stands for all samples, and "
                       "its elements cannot be read or written by the host; "
                       "return it from the function instead");
}

bool core__batched_held_needs_grad(const core_tensor *tensor)
{
    while (core__tensor_is_batched(tensor)) {
        tensor = tensor->held;
        if (core__tensor_requires_grad(tensor))
            return true;
    }
    return false;
}
