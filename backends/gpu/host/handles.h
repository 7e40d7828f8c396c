/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* handles.h: handles of a vendor's library, for drivers.  A stream has one of its
 * own: so no two streams wait for one another.  To destroy one waits for the
 * device; so what a stream leaves is kept for the next one, which comes behind
 * the first one's work.
 *
 * A list is its file's, and so is the lock that these are called with. */

#ifndef GPU_HANDLES_H
#define GPU_HANDLES_H

/* The first member of what the library's file keeps. */
typedef struct gpu_handle {
    struct gpu_handle *next;
    void *context;
    void *stream; /* NULL: none has it; itself: none will */
    void *
        last_work; /* the end of the last one's work; NULL: nothing to wait for */
} gpu_handle;

/* The stream's; NULL: it has none. */
gpu_handle *gpu_handles_find(gpu_handle *all, const void *context,
                             const void *stream);
/* One that no stream has, behind whose work this one comes from now on; NULL:
 * there is none, or none that can be waited for.  It is left until it is given. */
gpu_handle *gpu_handles_reuse(gpu_handle *all, void *context, void *stream);
/* One that was just made: no stream has it. */
void gpu_handles_add(gpu_handle **all, gpu_handle *handle, void *context);
/* One that no stream has is this one's. */
void gpu_handles_assign(gpu_handle *handle, void *stream);
/* Whosever it is: no stream will have it. */
void gpu_handles_retire(gpu_handle *handle);
/* The stream ends; waits for nothing.  Where no event can be had, or the stream
 * captures, its handle is nobody's until the device is closed. */
void gpu_handles_release(gpu_handle *all, void *context, void *stream);
/* One of the context's, whosever, which is the caller's from now on; NULL: there
 * is none any more.  lost: what the driver had of it is gone already. */
gpu_handle *gpu_handles_remove(gpu_handle **all, const void *context, int lost);

#endif
