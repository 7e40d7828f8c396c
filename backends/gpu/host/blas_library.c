/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* blas_library.c: matrix products by a vendor's BLAS library. */

#include <gpu/host/blas_library.h>

#include <gpu/host/handles.h>
#include <gpu/host/host.h>
#include <gpu/host/warn_once.h>

#include <stdio.h>
#include <stdlib.h>

#define calls (gpu_this_vendor.driver)

typedef struct blas_stream {
    gpu_handle shared; /* first */
    void *handle;      /* the library's */
    void *workspace;
} blas_stream;

static gpu_handle *all; /* blas_stream */
static enum { NOT_SEARCHED, FOUND, NOT_FOUND } state;
static char problem[256]; /* why there is no handle */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void drop(const gpu_blas *blas, blas_stream *s, int lost)
{
    blas->destroy(s->handle);
    if (!lost && s->workspace != NULL)
        calls->free(s->shared.context, s->workspace);
    free(s);
}

/* Returns NULL, with `problem` set, if there is no library or no memory. */
static blas_stream *create(const gpu_blas *blas, void *context)
{
    blas_stream *s = NULL;
    int code;

    if (state == NOT_SEARCHED)
        state = blas->open(problem, sizeof problem) ? FOUND : NOT_FOUND;
    if (state == NOT_FOUND)
        return NULL;
    s = calloc(1, sizeof *s);
    if (s == NULL) {
        snprintf(problem, sizeof problem, "no host memory for %s", blas->name);
        return NULL;
    }
    s->shared.context = context;
    code = blas->create(&s->handle);
    if (code != 0) {
        snprintf(problem, sizeof problem, "%s does not start (status %d)",
                 blas->name, code);
        free(s);
        return NULL;
    }
    if (calls->alloc(context, GPU_BLAS_WORKSPACE, &s->workspace) != 0) {
        snprintf(problem, sizeof problem, "no memory for the workspace of %s",
                 blas->name);
        s->workspace = NULL;
        drop(blas, s, 0);
        return NULL;
    }
    gpu_handles_add(&all, &s->shared, context);
    return s;
}

/* Returns the stream's handle, created if necessary; a capture creates none.
 * Under the lock. */
static blas_stream *find(const gpu_blas *blas, void *context, void *stream,
                         int captured)
{
    blas_stream *s =
        (blas_stream *)(void *)gpu_handles_find(all, context, stream);

    if (s != NULL || captured)
        return s;
    s = (blas_stream *)(void *)gpu_handles_reuse(all, context, stream);
    if (s == NULL)
        s = create(blas, context);
    if (s == NULL)
        return NULL;
    /* The stream first: setting it may reset the workspace. */
    if (!blas->set_stream(s->handle, stream) ||
        !blas->set_workspace(s->handle, s->workspace))
        return NULL;
    gpu_handles_assign(&s->shared, stream);
    return s;
}

void gpu_blas_prepare(const gpu_blas *blas, void *context, void *stream)
{
    pthread_mutex_lock(&lock);
    find(blas, context, stream, 0);
    pthread_mutex_unlock(&lock);
}

void gpu_blas_release(void *context, void *stream)
{
    pthread_mutex_lock(&lock);
    gpu_handles_release(all, context, stream);
    pthread_mutex_unlock(&lock);
}

void gpu_blas_destroy(const gpu_blas *blas, void *context, int lost)
{
    gpu_handle *h;

    pthread_mutex_lock(&lock);
    while ((h = gpu_handles_remove(&all, context, lost)) != NULL)
        drop(blas, (blas_stream *)(void *)h, lost);
    pthread_mutex_unlock(&lock);
}

/* Multiplies in memory of the graph.  A handle that cannot be given back its own
 * workspace is not used again: it would write to the graph's memory. */
static int capture(const gpu_blas *blas, blas_stream *s, const gpu_gemm *g)
{
    int code = GPU_ABSENT;

    if (blas->set_workspace(s->handle, g->workspace))
        code = blas->multiply(s->handle, g);
    if (!blas->set_workspace(s->handle, s->workspace))
        gpu_handles_retire(&s->shared);
    return code;
}

static void warn(const char *reason)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;

    gpu_warn_once(&warned,
                  "products are multiplied by the plugin's own kernels: %s",
                  reason);
}

int gpu_blas_multiply(const gpu_blas *blas, void *context, void *stream,
                      const gpu_gemm *g)
{
    char reason[sizeof problem] = "";
    blas_stream *s;
    int code = 0;

    if (!blas->supports(g->dtype))
        return GPU_ABSENT;
    pthread_mutex_lock(&lock);
    s = find(blas, context, stream, g->captured != 0);
    if (s == NULL)
        snprintf(reason, sizeof reason, "%s",
                 g->captured && problem[0] == 0
                     ? "the first product is in a capture; multiply once "
                       "before it"
                     : problem);
    else if (g->batch > 0)
        code = g->captured ? capture(blas, s, g) : blas->multiply(s->handle, g);
    pthread_mutex_unlock(&lock);
    if (s != NULL)
        return code;
    warn(reason);
    return GPU_ABSENT;
}
