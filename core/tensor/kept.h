/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* kept.h: small tensors that were given up with their storage and memory, kept
 * whole by the thread.
 *
 * The results of small calls are made and dropped over and over in few sizes.
 * Taking one that lies ready costs a list's head and what the new tensor is
 * to look like; storage, device and block are already in place.  Only for the
 * device whose small blocks the thread keeps (memory/memory.c): kept tensors go
 * when those go. */

#ifndef CORE_TENSOR_KEPT_H
#define CORE_TENSOR_KEPT_H

#include "base/thread.h"
#include "tensor/tensor.h"

enum { CORE__WHOLE_UNIT = 64, CORE__WHOLE_MOST = 64 };

static inline core__whole *core__whole_of(core__thread *self, uint64_t cls)
{
    core__whole *list = &self->whole[cls];

    __asm__("" : "+r"(list)); /* computed once, not for each field */
    return list;
}

/* A tensor with a storage of this many bytes, both with one reference; what
 * lies in the tensor otherwise is of the old one, but for autograd, which is
 * NULL, and sizes.  NULL: there is none. */
static inline core_tensor *core__kept_take(core__thread *self,
                                           const core_device *device,
                                           uint64_t bytes)
{
    uint64_t cls = (bytes + CORE__WHOLE_UNIT - 1) / CORE__WHOLE_UNIT;
    core_tensor *tensor;
    core__whole *list;

    if (core__unlikely(device != self->blocks_of || cls >= CORE__SMALL_CLASSES))
        return NULL;
    list = core__whole_of(self, cls);
    tensor = list->head;
    if (core__unlikely(!tensor))
        return NULL;
    list->head = tensor->base; /* the link */
    core__thread_more32(&list->count, -1);
    atomic_store_explicit(&tensor->references, 1, memory_order_relaxed);
    tensor->storage->size = bytes;
    return tensor;
}

/* Of a tensor that nobody has any more; false if it is to be taken apart.  It
 * lies there without a reference, so that a program which releases it once more
 * does not put it into the list a second time. */
static inline bool core__kept_keep(core__thread *self, core_tensor *tensor)
{
    core_storage *storage = tensor->storage;
    core__whole *list;
    uint64_t cls;

    if (!storage || storage->device != self->blocks_of || tensor->autograd ||
        tensor->base || storage->release ||
        tensor->sizes != tensor->inline_dims ||
        atomic_load_explicit(&storage->references, memory_order_acquire) != 1)
        return false;
    cls = storage->capacity / CORE__WHOLE_UNIT;
    if (cls >= CORE__SMALL_CLASSES || cls == 0 ||
        storage->capacity % CORE__WHOLE_UNIT != 0)
        return false;
    list = core__whole_of(self, cls);
    if (list->count >= self->whole_limit)
        return false;
    atomic_store_explicit(&storage->version, 0, memory_order_relaxed);
    atomic_store_explicit(&tensor->references, 0, memory_order_relaxed);
    tensor->base = list->head;
    list->head = tensor;
    core__thread_more32(&list->count, 1);
    return true;
}

/* Puts all of a thread's before the list, linked through base. */
void core__kept_collect(core__thread *thread, core_tensor **list);
/* Takes a list of them apart: calls the plugin. */
void core__kept_drop(core_tensor *list);

#endif
