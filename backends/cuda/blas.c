/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* blas.c: cuBLAS, found at run time.  A stream has a handle (handles.h) and a
 * workspace of its own: so the same product gives the same bits. */

#include "blas.h"

#include "api.h"
#include "lt.h"

#include <gpu/host/handles.h>
#include <gpu/host/warn_once.h>

#include <libcore/plugin.h>

#include <cublas_v2.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { OLDEST = 11 };

#define FUNCTIONS(X)                                                           \
    X(create, cublasCreate_v2, (cublasHandle_t *))                             \
    X(destroy, cublasDestroy_v2, (cublasHandle_t))                             \
    X(set_stream, cublasSetStream_v2, (cublasHandle_t, cudaStream_t))          \
    X(set_workspace, cublasSetWorkspace_v2, (cublasHandle_t, void *, size_t))  \
    X(set_mode, cublasSetMathMode, (cublasHandle_t, cublasMath_t))             \
    X(gemm, cublasGemmStridedBatchedEx,                                        \
      (cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,    \
       const void *, const void *, cudaDataType, int, long long, const void *, \
       cudaDataType, int, long long, const void *, void *, cudaDataType, int,  \
       long long, int, cublasComputeType_t, cublasGemmAlgo_t))

static struct {
#define FIELD(name, symbol, arguments) cublasStatus_t(*name) arguments;
    FUNCTIONS(FIELD)
#undef FIELD
} blas;

/* The header knows them so: else this does not compile. */
#define SAME(name, symbol, arguments)                                  \
    _Static_assert(__builtin_types_compatible_p(__typeof__(blas.name), \
                                                __typeof__(&symbol)),  \
                   #symbol);
FUNCTIONS(SAME)
#undef SAME

typedef struct of_stream {
    gpu_handle shared; /* first */
    cublasHandle_t handle;
    CUdeviceptr workspace;
} of_stream;

static gpu_handle *all; /* of_stream */
static int state;       /* 0: not looked for; 1: found; -1: not here */
static char lacks[256]; /* why there is no handle */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The library that fits the driver, or an older one; under the lock. */
static int found(void)
{
    void *library = NULL;
    int version = 0;
    char name[32], why[160] = ""; /* of the newest */

    if (state != 0)
        return state > 0;
    state = -1;
    if (cuda.DriverGetVersion(&version) != 0) {
        snprintf(lacks, sizeof lacks, "the driver does not say its version");
        return 0;
    }
    for (int major = version / 1000; major >= OLDEST && !library; major--) {
        snprintf(name, sizeof name, "libcublas.so.%d", major);
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL && why[0] == 0)
            snprintf(why, sizeof why, "%s", dlerror());
    }
    if (library == NULL) {
        snprintf(lacks, sizeof lacks, "no cuBLAS of CUDA %d to %d opens (%s)",
                 OLDEST, version / 1000, why);
        return 0;
    }
#define FIND(field, symbol, arguments)                            \
    *(void **)(void *)&blas.field = dlsym(library, #symbol);      \
    if (blas.field == NULL) {                                     \
        snprintf(lacks, sizeof lacks, "%s lacks " #symbol, name); \
        return 0;                                                 \
    }
    FUNCTIONS(FIND)
#undef FIND
    state = 1;
    return 1;
}

static void drop(of_stream *s, int lost)
{
    blas.destroy(s->handle);
    if (!lost && s->workspace != 0)
        cuda.MemFree(s->workspace);
    free(s);
}

/* NULL: it does not start, or there is no memory. */
static of_stream *started(void)
{
    of_stream *s = calloc(1, sizeof *s);
    cublasStatus_t status =
        s == NULL ? CUBLAS_STATUS_ALLOC_FAILED : blas.create(&s->handle);

    if (status != CUBLAS_STATUS_SUCCESS) {
        snprintf(lacks, sizeof lacks, "cuBLAS does not start (status %d)",
                 (int)status);
        free(s);
        return NULL;
    }
    if (cuda.MemAlloc(&s->workspace, CUDA_BLAS_WORKSPACE) != 0 ||
        blas.set_mode(s->handle,
                      CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) != 0) {
        snprintf(lacks, sizeof lacks, "no memory for cuBLAS to work in");
        drop(s, 0);
        return NULL;
    }
    return s;
}

/* NULL: the same, or there is no library. */
static of_stream *made(void *context)
{
    CUstreamCaptureMode mode;
    of_stream *s;

    if (!found())
        return NULL;
    mode = cuda_relax();
    s = started();
    (void)cuda_relaxed(mode, 0);
    if (s != NULL)
        gpu_handles_add(&all, &s->shared, context);
    return s;
}

static int give_workspace(of_stream *s, void *workspace)
{
    return blas.set_workspace(s->handle, workspace, CUDA_BLAS_WORKSPACE) ==
           CUBLAS_STATUS_SUCCESS;
}

static int give_own_workspace(of_stream *s)
{
    return give_workspace(s, (void *)(uintptr_t)s->workspace);
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
    /* The stream first: it takes the workspace away. */
    if (blas.set_stream(s->handle, (cudaStream_t)stream) != 0 ||
        !give_own_workspace(s))
        return NULL;
    gpu_handles_give(&s->shared, stream);
    return s;
}

void cuda_blas_prepare(void *context, void *stream)
{
    pthread_mutex_lock(&lock);
    find(context, stream, 0);
    pthread_mutex_unlock(&lock);
    cuda_lt_prepare(context);
}

void cuda_blas_leave(void *context, void *stream)
{
    pthread_mutex_lock(&lock);
    gpu_handles_leave(all, context, stream);
    pthread_mutex_unlock(&lock);
}

void cuda_blas_forget(void *context, int lost)
{
    gpu_handle *h;

    pthread_mutex_lock(&lock);
    while ((h = gpu_handles_take(&all, context, lost)) != NULL)
        drop((of_stream *)(void *)h, lost);
    pthread_mutex_unlock(&lock);
    cuda_lt_forget(context);
}

static int type_of(uint32_t dtype, cudaDataType *out)
{
    switch (dtype) {
    case CORE_F64:
        *out = CUDA_R_64F;
        return 1;
    case CORE_F32:
        *out = CUDA_R_32F;
        return 1;
    case CORE_F16:
        *out = CUDA_R_16F;
        return 1;
    case CORE_BF16:
        *out = CUDA_R_16BF;
        return 1;
    default:
        return 0;
    }
}

static cublasStatus_t compute(of_stream *s, const gpu_gemm *g,
                              cudaDataType type)
{
    float alpha = (float)g->alpha, beta = (float)g->beta;
    int wide = g->dtype == CORE_F64;
    cublasComputeType_t compute = wide ? CUBLAS_COMPUTE_64F
                                  : g->dtype == CORE_F32 && g->may_round
                                      ? CUBLAS_COMPUTE_32F_FAST_TF32
                                      : CUBLAS_COMPUTE_32F;

    return blas.gemm(
        s->handle, g->a_turned ? CUBLAS_OP_T : CUBLAS_OP_N,
        g->b_turned ? CUBLAS_OP_T : CUBLAS_OP_N, (int)g->m, (int)g->n,
        (int)g->k, wide ? (const void *)&g->alpha : &alpha, g->a, type,
        (int)g->a_step, g->a_batch, g->b, type, (int)g->b_step, g->b_batch,
        wide ? (const void *)&g->beta : &beta, g->c, type, (int)g->c_step,
        g->c_batch, (int)g->batch, compute, CUBLAS_GEMM_DEFAULT);
}

/* In memory of its graph.  A handle that does not take its own back is nobody's
 * from then on: it would write to what is the graph's. */
static cublasStatus_t capture(of_stream *s, const gpu_gemm *g,
                              cudaDataType type)
{
    cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE;

    if (give_workspace(s, g->workspace))
        status = compute(s, g, type);
    if (!give_own_workspace(s))
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

int cuda_blas_multiply(void *context, void *stream, const gpu_gemm *g)
{
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    cudaDataType type;
    static atomic_flag told = ATOMIC_FLAG_INIT;
    char why[sizeof lacks];
    of_stream *s;

    if (!type_of(g->dtype, &type))
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
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    return status == CUBLAS_STATUS_EXECUTION_FAILED ? CUDA_ERROR_LAUNCH_FAILED
                                                    : GPU_ABSENT;
}
