/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Collects and frees cached tensors. */

#include "tensor/tensor_cache.h"

#include "base/memory.h"

void core__tensor_cache_collect(core__thread *thread, core_tensor **list)
{
    for (size_t i = 0; i < CORE__SMALL_CLASSES; i++)
        while (thread->cached_tensors[i].head) {
            core_tensor *tensor = thread->cached_tensors[i].head;
            uint32_t slot = core__keys_slot(tensor->storage->device->keys);

            thread->cached_tensors[i].head = tensor->base;
            core__thread_add32(&thread->cached_tensors[i].count, -1);
            core__thread_add64(&thread->storages[slot], -1);
            tensor->base = *list;
            *list = tensor;
        }
    thread->cached_tensors_limit = 0;
}

void core__tensor_cache_free(core_tensor *list)
{
    while (list) {
        core_tensor *next = list->base;
        core_storage *storage = list->storage;

        storage->device->memory.free(storage->device->impl, storage->memory,
                                     storage->capacity);
        core__free(storage);
        core__free(list);
        list = next;
    }
}
