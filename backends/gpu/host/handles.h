/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* handles.h: handles of a vendor's library, one for each stream, so that no two
 * streams wait for one another.  Destroying a handle waits for the device; so
 * the handle of a stream that ends is kept for the next stream, which first
 * waits for the work of the one before.
 *
 * A list and the lock that protects it belong to the file of the library. */

#ifndef GPU_HANDLES_H
#define GPU_HANDLES_H

/* The first member of what that file keeps for a handle. */
typedef struct gpu_handle {
    struct gpu_handle *next;
    void *context;
    void *stream;    /* NULL: free; the handle itself: unusable */
    void *last_work; /* the event after the last user's work; NULL: none */
} gpu_handle;

/* Returns the stream's handle or NULL. */
gpu_handle *gpu_handles_find(gpu_handle *all, const void *context,
                             const void *stream);
/* Returns a free handle, after making the stream wait for the work of its last
 * user; NULL: there is none, or none that can be waited for.  The handle stays
 * free until gpu_handles_assign. */
gpu_handle *gpu_handles_reuse(gpu_handle *all, void *context, void *stream);
/* Adds a new handle, which is free. */
void gpu_handles_add(gpu_handle **all, gpu_handle *handle, void *context);
/* Gives a free handle to a stream. */
void gpu_handles_assign(gpu_handle *handle, void *stream);
/* Makes a handle unusable for every stream. */
void gpu_handles_retire(gpu_handle *handle);
/* Frees the handle of a stream that ends; does not wait.  If the stream is
 * capturing or no event can be recorded, the handle stays unusable until the
 * device is closed. */
void gpu_handles_release(gpu_handle *all, void *context, void *stream);
/* Removes one of the context's handles from the list and returns it to the
 * caller; NULL: there are no more.  lost: its driver objects are already
 * gone. */
gpu_handle *gpu_handles_remove(gpu_handle **all, const void *context, int lost);

#endif
