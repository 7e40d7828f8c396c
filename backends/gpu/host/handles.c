/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include <gpu/host/handles.h>

#include <gpu/host/host.h>

#define calls (gpu_this_vendor.driver)

gpu_handle *gpu_handles_find(gpu_handle *all, const void *context,
                             const void *stream)
{
    while (all != NULL && (all->context != context || all->stream != stream))
        all = all->next;
    return all;
}

gpu_handle *gpu_handles_reuse(gpu_handle *all, void *context, void *stream)
{
    gpu_handle *h = all;

    for (; h != NULL; h = h->next)
        if (h->context == context && h->stream == NULL &&
            (h->last_work == NULL ||
             calls->stream_wait(context, stream, h->last_work) == 0))
            break;
    return h;
}

void gpu_handles_add(gpu_handle **all, gpu_handle *handle, void *context)
{
    handle->context = context;
    handle->stream = NULL;
    handle->last_work = NULL;
    handle->next = *all;
    *all = handle;
}

void gpu_handles_assign(gpu_handle *handle, void *stream)
{
    if (handle->last_work != NULL)
        calls->event_destroy(handle->context, handle->last_work);
    handle->last_work = NULL;
    handle->stream = stream;
}

void gpu_handles_retire(gpu_handle *handle)
{
    handle->stream = handle;
}

void gpu_handles_release(gpu_handle *all, void *context, void *stream)
{
    gpu_handle *h = gpu_handles_find(all, context, stream);

    if (h == NULL)
        return;
    gpu_handles_retire(h);
    /* An event recorded in a capture does not stand for the work before it, and
     * would become part of another library's graph. */
    if (!gpu_native_is_capturing(context, stream) &&
        calls->event_create(context, GPU_EVENT_PLAIN, &h->last_work) == 0 &&
        calls->event_record(context, h->last_work, stream) == 0)
        h->stream = NULL;
}

gpu_handle *gpu_handles_remove(gpu_handle **all, const void *context, int lost)
{
    gpu_handle *h;

    while (*all != NULL && (*all)->context != context)
        all = &(*all)->next;
    h = *all;
    if (h == NULL)
        return NULL;
    *all = h->next;
    if (!lost && h->last_work != NULL)
        calls->event_destroy(h->context, h->last_work);
    return h;
}
