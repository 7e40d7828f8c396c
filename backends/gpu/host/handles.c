/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include <gpu/host/handles.h>

#include <gpu/host/host.h>

#define calls (gpu_vendor_here.driver)

gpu_handle *gpu_handles_of(gpu_handle *all, const void *context,
                           const void *stream)
{
    while (all != NULL && (all->context != context || all->stream != stream))
        all = all->next;
    return all;
}

gpu_handle *gpu_handles_left(gpu_handle *all, void *context, void *stream)
{
    gpu_handle *h = all;

    for (; h != NULL; h = h->next)
        if (h->context == context && h->stream == NULL &&
            (h->after == NULL ||
             calls->stream_wait(context, stream, h->after) == 0))
            break;
    return h;
}

void gpu_handles_add(gpu_handle **all, gpu_handle *handle, void *context)
{
    handle->context = context;
    handle->stream = NULL;
    handle->after = NULL;
    handle->next = *all;
    *all = handle;
}

void gpu_handles_give(gpu_handle *handle, void *stream)
{
    if (handle->after != NULL)
        calls->event_destroy(handle->context, handle->after);
    handle->after = NULL;
    handle->stream = stream;
}

void gpu_handles_bar(gpu_handle *handle)
{
    handle->stream = handle;
}

void gpu_handles_leave(gpu_handle *all, void *context, void *stream)
{
    gpu_handle *h = gpu_handles_of(all, context, stream);

    if (h == NULL)
        return;
    gpu_handles_bar(h);
    /* An event of a capture tells nothing of what was given before it, and would
     * be a part of another library's graph. */
    if (!gpu_native_captures(context, stream) &&
        calls->event_create(context, GPU_EVENT_PLAIN, &h->after) == 0 &&
        calls->event_record(context, h->after, stream) == 0)
        h->stream = NULL;
}

gpu_handle *gpu_handles_take(gpu_handle **all, const void *context, int lost)
{
    gpu_handle *h;

    while (*all != NULL && (*all)->context != context)
        all = &(*all)->next;
    h = *all;
    if (h == NULL)
        return NULL;
    *all = h->next;
    if (!lost && h->after != NULL)
        calls->event_destroy(h->context, h->after);
    return h;
}
