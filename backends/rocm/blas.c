/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* blas.c: rocBLAS, found at run time.  A stream has a handle (handles.h) and a
 * workspace of its own: so the same product gives the same bits.
 *
 * Its header is not needed: what is used of it has been the same from rocBLAS
 * 2.42 to 5, and stands here.  Where the header is, it is compared. */

#include "blas.h"

#include "api.h"

#include <gpu/host/handles.h>
#include <gpu/host/warn_once.h>

#include <libcore/plugin.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    SUCCESS = 0,
    INTERNAL_ERROR = 6,
    INVALID_VALUE = 11,
    AS_IS = 111,
    TURNED = 112,
    TYPE_F16 = 150,
    TYPE_F32 = 151,
    TYPE_F64 = 152,
    TYPE_BF16 = 168,
    NO_ATOMICS = 0,
    STANDARD = 0
};

typedef struct _rocblas_handle *handle;

#define FUNCTIONS(X)                                                       \
    X(create, rocblas_create_handle, (handle *))                           \
    X(destroy, rocblas_destroy_handle, (handle))                           \
    X(set_stream, rocblas_set_stream, (handle, hipStream_t))               \
    X(set_workspace, rocblas_set_workspace, (handle, void *, size_t))      \
    X(set_atomics, rocblas_set_atomics_mode, (handle, int))                \
    X(gemm, rocblas_gemm_strided_batched_ex,                               \
      (handle, int, int, int32_t, int32_t, int32_t, const void *,          \
       const void *, int, int32_t, int64_t, const void *, int, int32_t,    \
       int64_t, const void *, const void *, int, int32_t, int64_t, void *, \
       int, int32_t, int64_t, int32_t, int, int, int32_t, uint32_t))

static struct {
#define FIELD(name, symbol, arguments) int(*name) arguments;
    FUNCTIONS(FIELD)
#undef FIELD
} blas;

#if __has_include(<rocblas/rocblas.h>)
#include <rocblas/rocblas.h>
#define SAME(here, there) \
    _Static_assert((int)(here) == (int)(there), #there " is another")
SAME(SUCCESS, rocblas_status_success);
SAME(INTERNAL_ERROR, rocblas_status_internal_error);
SAME(INVALID_VALUE, rocblas_status_invalid_value);
SAME(AS_IS, rocblas_operation_none);
SAME(TURNED, rocblas_operation_transpose);
SAME(TYPE_F16, rocblas_datatype_f16_r);
SAME(TYPE_F32, rocblas_datatype_f32_r);
SAME(TYPE_F64, rocblas_datatype_f64_r);
SAME(TYPE_BF16, rocblas_datatype_bf16_r);
SAME(NO_ATOMICS, rocblas_atomics_not_allowed);
SAME(STANDARD, rocblas_gemm_algo_standard);
#undef SAME
#endif

typedef struct of_stream {
    gpu_handle shared; /* first */
    handle handle;
    void *workspace;
} of_stream;

static gpu_handle *all; /* of_stream */
static int state;       /* 0: not looked for; 1: found; -1: not here */
static char lacks[256]; /* why there is no handle */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The library that is built for the HIP that was opened; under the lock. */
static int found(void)
{
#ifdef __HIP_PLATFORM_AMD__
    static const struct {
        int major;
        const char *name;
    } libraries[] = {
        {5, "librocblas.so.0"}, {6, "librocblas.so.4"}, {7, "librocblas.so.5"}};
#endif
    const char *why = "none is known of this HIP";
    void *library = NULL;

    if (state != 0)
        return state > 0;
    state = -1;
#ifdef __HIP_PLATFORM_AMD__
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        if (libraries[i].major == HIP_VERSION_MAJOR) {
            library = dlopen(libraries[i].name, RTLD_NOW | RTLD_LOCAL);
            why = library == NULL ? dlerror() : NULL;
        }
#endif
    if (library == NULL) {
        snprintf(lacks, sizeof lacks, "no rocBLAS opens (%s)", why);
        return 0;
    }
#define FIND(name, symbol, arguments)                            \
    *(void **)(void *)&blas.name = dlsym(library, #symbol);      \
    if (blas.name == NULL) {                                     \
        snprintf(lacks, sizeof lacks, "rocBLAS lacks " #symbol); \
        return 0;                                                \
    }
    FUNCTIONS(FIND)
#undef FIND
    state = 1;
    return 1;
}

static void drop(of_stream *s, int lost)
{
    blas.destroy(s->handle);
    if (!lost && s->workspace != NULL)
        (void)hip.Free(s->workspace);
    free(s);
}

/* NULL: it does not start, or there is no memory. */
static of_stream *started(void)
{
    of_stream *s = calloc(1, sizeof *s);
    int status = s == NULL ? INTERNAL_ERROR : blas.create(&s->handle);

    if (status != SUCCESS) {
        snprintf(lacks, sizeof lacks, "rocBLAS does not start (status %d)",
                 status);
        free(s);
        return NULL;
    }
    if (hip.Malloc(&s->workspace, ROCM_BLAS_WORKSPACE) != hipSuccess ||
        blas.set_atomics(s->handle, NO_ATOMICS) != SUCCESS) {
        snprintf(lacks, sizeof lacks, "no memory for rocBLAS to work in");
        drop(s, 0);
        return NULL;
    }
    return s;
}

/* NULL: the same, or there is no library. */
static of_stream *made(void *context)
{
    hipStreamCaptureMode mode;
    of_stream *s;

    if (!found())
        return NULL;
    mode = rocm_relax();
    s = started();
    (void)rocm_relaxed(mode, 0);
    if (s != NULL)
        gpu_handles_add(&all, &s->shared, context);
    return s;
}

static int give_workspace(of_stream *s, void *workspace)
{
    return blas.set_workspace(s->handle, workspace, ROCM_BLAS_WORKSPACE) ==
           SUCCESS;
}

/* NULL: there is no library, no memory, or a capture, which makes nothing; under
 * the lock. */
static of_stream *find(void *context, void *stream, int captured)
{
    of_stream *s = (of_stream *)(void *)gpu_handles_of(all, context, stream);

    if (s != NULL || captured)
        return s;
    s = (of_stream *)(void *)gpu_handles_left(all, context, stream);
    if (s == NULL)
        s = made(context);
    if (s == NULL)
        return NULL;
    if (blas.set_stream(s->handle, stream) != SUCCESS ||
        !give_workspace(s, s->workspace))
        return NULL;
    gpu_handles_give(&s->shared, stream);
    return s;
}

void rocm_blas_prepare(void *context, void *stream)
{
    pthread_mutex_lock(&lock);
    find(context, stream, 0);
    pthread_mutex_unlock(&lock);
}

void rocm_blas_leave(void *context, void *stream)
{
    pthread_mutex_lock(&lock);
    gpu_handles_leave(all, context, stream);
    pthread_mutex_unlock(&lock);
}

void rocm_blas_forget(void *context, int lost)
{
    gpu_handle *h;

    pthread_mutex_lock(&lock);
    while ((h = gpu_handles_take(&all, context, lost)) != NULL)
        drop((of_stream *)(void *)h, lost);
    pthread_mutex_unlock(&lock);
}

/* 0: the library has no products of these. */
static int type_of(uint32_t dtype)
{
    switch (dtype) {
    case CORE_F64:
        return TYPE_F64;
    case CORE_F32:
        return TYPE_F32;
    case CORE_F16:
        return TYPE_F16;
    case CORE_BF16:
        return TYPE_BF16;
    default:
        return 0;
    }
}

static int compute(of_stream *s, const gpu_gemm *g, int type)
{
    float alpha = (float)g->alpha, beta = (float)g->beta;
    int wide = type == TYPE_F64;

    return blas.gemm(
        s->handle, g->a_turned ? TURNED : AS_IS, g->b_turned ? TURNED : AS_IS,
        (int32_t)g->m, (int32_t)g->n, (int32_t)g->k,
        wide ? (const void *)&g->alpha : &alpha, g->a, type, (int32_t)g->a_step,
        g->a_batch, g->b, type, (int32_t)g->b_step, g->b_batch,
        wide ? (const void *)&g->beta : &beta, g->c, type, (int32_t)g->c_step,
        g->c_batch, g->c, type, (int32_t)g->c_step, g->c_batch,
        (int32_t)g->batch, wide ? TYPE_F64 : TYPE_F32, STANDARD, 0, 0);
}

/* In memory of its graph.  A handle that does not take its own back is nobody's
 * from then on: it would write to what is the graph's. */
static int capture(of_stream *s, const gpu_gemm *g, int type)
{
    int status = INVALID_VALUE;

    if (give_workspace(s, g->workspace))
        status = compute(s, g, type);
    if (!give_workspace(s, s->workspace))
        gpu_handles_bar(&s->shared);
    return status;
}

/* Why none multiplies here; under the lock. */
static void say_why(const gpu_gemm *g, char *text, size_t size)
{
    snprintf(text, size, "%s",
             g->captured && lacks[0] == 0
                 ? "a first product inside a capture; multiply once before it"
                 : lacks);
}

int rocm_blas_multiply(void *context, void *stream, const gpu_gemm *g)
{
    int type = type_of(g->dtype), status = SUCCESS;
    static atomic_flag told = ATOMIC_FLAG_INIT;
    char why[sizeof lacks];
    of_stream *s;

    if (type == 0)
        return GPU_ABSENT;
    pthread_mutex_lock(&lock);
    s = find(context, stream, g->captured != 0);
    if (s != NULL && g->batch > 0)
        status = g->captured ? capture(s, g, type) : compute(s, g, type);
    if (s == NULL)
        say_why(g, why, sizeof why);
    pthread_mutex_unlock(&lock);
    if (s == NULL) {
        gpu_tell_once(&told,
                      "products are multiplied by the plugin's own kernels: %s",
                      why);
        return GPU_ABSENT;
    }
    if (status == SUCCESS)
        return 0;
    return status == INTERNAL_ERROR ? hipErrorLaunchFailure : GPU_ABSENT;
}
