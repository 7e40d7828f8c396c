/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* deferred_free.c: memory that a callback frees.  A driver that frees memory
 * waits for all work of the device, and so for the streams that wait for this
 * callback or a later one.  A thread therefore frees it after the callback. */

#include <gpu/host/host.h>
#include <gpu/host/thread.h>

#include <stdlib.h>
#include <sys/mman.h>

#define calls (gpu_this_vendor.driver)

struct gpu_deferred_free {
    gpu_deferred_free *next;
    uint32_t generation;
    int kind; /* GPU_FREE_… */
    void *data;
    uint64_t size;
};

static void free_now(gpu_device *device, int kind, void *data, uint64_t size)
{
    void *context = device->context;

    if (kind == GPU_FREE_DEVICE) {
        calls->free(context, data);
    } else if (kind == GPU_FREE_HOST) {
        /* Fails if a reset has already unpinned it. */
        (void)calls->host_unpin(context, data);
        munmap(data, size);
    } else if (kind == GPU_FREE_MAPPING) {
        calls->virtual_unmap(context, data, size);
    } else {
        calls->virtual_release(context, data, size);
    }
}

/* After a reset the driver's memory is gone; only the host's is left. */
static void free_after_reset(const gpu_deferred_free *f)
{
    if (f->kind == GPU_FREE_HOST)
        munmap(f->data, f->size);
}

/* Returns NULL if there is none; then the thread must end. */
static gpu_deferred_free *next_request(gpu_device *device)
{
    gpu_deferred_free *f, *next;

    pthread_mutex_lock(&device->lock);
    for (f = device->deferred; f != NULL && f->generation != device->generation;
         f = next) {
        next = f->next;
        free_after_reset(f);
        free(f);
    }
    device->deferred = f != NULL ? f->next : NULL;
    if (device->deferred == NULL)
        device->deferred_last = &device->deferred;
    device->freeing_thread = f != NULL;
    pthread_mutex_unlock(&device->lock);
    return f;
}

static void *free_all(void *opaque)
{
    gpu_device *device = opaque;

    for (gpu_deferred_free *f; (f = next_request(device)) != NULL; free(f))
        free_now(device, f->kind, f->data, f->size);
    gpu_device_release(device);
    return NULL;
}

void gpu_free(gpu_device *device, int kind, void *data, uint64_t size)
{
    gpu_deferred_free *f = gpu_in_callback() ? malloc(sizeof *f) : NULL;

    if (f == NULL) {
        free_now(device, kind, data, size);
        return;
    }
    pthread_mutex_lock(&device->lock);
    *f = (gpu_deferred_free){NULL, device->generation, kind, data, size};
    *device->deferred_last = f;
    device->deferred_last = &f->next;
    if (!device->freeing_thread) {
        atomic_fetch_add(&device->references, 1);
        device->freeing_thread = gpu_thread_start(free_all, device) == 0;
        /* On failure the next request tries again; the owner keeps its own
         * reference. */
        if (!device->freeing_thread)
            atomic_fetch_sub(&device->references, 1);
    }
    pthread_mutex_unlock(&device->lock);
}

void gpu_deferred_free_all(gpu_device *device)
{
    bool usable = !atomic_load(&device->lost);

    for (gpu_deferred_free *f; (f = next_request(device)) != NULL; free(f))
        if (usable)
            free_now(device, f->kind, f->data, f->size);
        else
            free_after_reset(f);
}
