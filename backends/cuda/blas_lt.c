/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* blas_lt.c: cuBLASLt, found at run time, for factors of 8-bit floats.  The
 * algorithm that the library recommends for a shape is cached: the query takes
 * longer than the product.  The caller provides the workspace, so that streams
 * share nothing. */

#include "blas_lt.h"

#include "api_names.h"

#include <gpu/host/library.h>

#include <libcore/plugin.h>

#include <cublasLt.h>

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The workspace that NVIDIA recommends for sm_90; the first version of CUDA
 * whose library is used; the first capability with 8-bit tensor cores; and the
 * alignment that they need. */
enum { WORKSPACE = 32 << 20, OLDEST = 12, LEAST_ARCH = 89, ALIGNMENT = 16 };

#define FUNCTIONS(X)                                                           \
    X(create, cublasLtCreate, (cublasLtHandle_t *))                            \
    X(destroy, cublasLtDestroy, (cublasLtHandle_t))                            \
    X(desc_create, cublasLtMatmulDescCreate,                                   \
      (cublasLtMatmulDesc_t *, cublasComputeType_t, cudaDataType_t))           \
    X(desc_destroy, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t))         \
    X(desc_set, cublasLtMatmulDescSetAttribute,                                \
      (cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void *,     \
       size_t))                                                                \
    X(layout_create, cublasLtMatrixLayoutCreate,                               \
      (cublasLtMatrixLayout_t *, cudaDataType, uint64_t, uint64_t, int64_t))   \
    X(layout_destroy, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t))   \
    X(pref_create, cublasLtMatmulPreferenceCreate,                             \
      (cublasLtMatmulPreference_t *))                                          \
    X(pref_destroy, cublasLtMatmulPreferenceDestroy,                           \
      (cublasLtMatmulPreference_t))                                            \
    X(pref_set, cublasLtMatmulPreferenceSetAttribute,                          \
      (cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,       \
       const void *, size_t))                                                  \
    X(heuristic, cublasLtMatmulAlgoGetHeuristic,                               \
      (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,         \
       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, \
       cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t *,     \
       int *))                                                                 \
    X(matmul, cublasLtMatmul,                                                  \
      (cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *,     \
       cublasLtMatrixLayout_t, const void *, cublasLtMatrixLayout_t,           \
       const void *, const void *, cublasLtMatrixLayout_t, void *,             \
       cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *, size_t,   \
       cudaStream_t))

static struct {
#define FIELD(name, symbol, arguments) cublasStatus_t(*name) arguments;
    FUNCTIONS(FIELD)
#undef FIELD
} lt;

/* Checks the types against the header. */
#define SAME(name, symbol, arguments)                                 \
    _Static_assert(__builtin_types_compatible_p(__typeof__(lt.name),  \
                                                __typeof__(&symbol)), \
                   #symbol);
FUNCTIONS(SAME)
#undef SAME

/* What the choice of an algorithm depends on. */
typedef struct shape {
    uint32_t a_dtype, b_dtype, d_dtype, fast, bias, beta;
    int64_t m, n, k, a_step, b_step, d_step;
} shape;

typedef struct algorithm {
    shape of;
    int known, supported;
    size_t workspace;
    cublasLtMatmulAlgo_t algo;
} algorithm;

enum { ALGORITHMS = 64 };

typedef struct device_state {
    struct device_state *next;
    void *context;
    CUcontext current; /* NULL: the device is being reset */
    int arch;
    cublasLtHandle_t handle; /* NULL: not created yet */
    unsigned oldest;
    algorithm algorithms[ALGORITHMS];
} device_state;

static device_state *all;
static int state; /* 0: not searched; 1: found; -1: not found */
static char missing[128];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const gpu_symbol symbols[] = {
#define ROW(name, symbol, arguments) {#symbol, offsetof(__typeof__(lt), name)},
    FUNCTIONS(ROW)
#undef ROW
};

/* Opens the library like blas.c; under the lock. */
static int open_library(void)
{
    char name[GPU_LIBRARY_NAME], error[GPU_LIBRARY_WHY];
    const char *symbol;
    void *library;
    int version = 0;

    if (state != 0)
        return state > 0;
    state = -1;
    cuda.DriverGetVersion(&version);
    library = gpu_library_open_newest("libcublasLt", version / 1000, OLDEST,
                                      name, error);
    if (library == NULL) {
        snprintf(missing, sizeof missing,
                 "libcublasLt.so of CUDA %d or newer, up to the driver's %d, "
                 "was not found",
                 OLDEST, version / 1000);
        return 0;
    }
    symbol = gpu_library_resolve(library, symbols,
                                 sizeof symbols / sizeof *symbols, &lt);
    if (symbol != NULL) {
        snprintf(missing, sizeof missing, "%s lacks %s", name, symbol);
        return 0;
    }
    state = 1;
    return 1;
}

/* ------------------------------------------------------------- devices -- */

static device_state *find_device(const void *context)
{
    device_state *d = all;

    while (d != NULL && d->context != context)
        d = d->next;
    return d;
}

/* If there is no memory, or the device is too old, products are not
 * supported. */
void cuda_lt_open(void *context, CUdevice device, CUcontext handle)
{
    device_state *d = calloc(1, sizeof *d);
    int major = 0, minor = 0;

    if (d == NULL)
        return;
    cuda.DeviceGetAttribute(
        &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    cuda.DeviceGetAttribute(
        &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    d->context = context;
    d->current = handle;
    d->arch = major * 10 + minor;
    pthread_mutex_lock(&lock);
    d->next = all;
    all = d;
    pthread_mutex_unlock(&lock);
}

static void destroy_handle(device_state *d)
{
    if (d->handle != NULL)
        lt.destroy(d->handle);
    d->handle = NULL;
    memset(d->algorithms, 0, sizeof d->algorithms);
}

void cuda_lt_destroy(void *context)
{
    device_state *d;

    pthread_mutex_lock(&lock);
    d = find_device(context);
    if (d != NULL)
        destroy_handle(d);
    pthread_mutex_unlock(&lock);
}

void cuda_lt_renew(void *context, CUcontext handle)
{
    device_state *d;

    pthread_mutex_lock(&lock);
    d = find_device(context);
    if (d != NULL)
        d->current = handle;
    pthread_mutex_unlock(&lock);
}

void cuda_lt_close(void *context)
{
    device_state **at = &all, *d;

    pthread_mutex_lock(&lock);
    while (*at != NULL && (*at)->context != context)
        at = &(*at)->next;
    d = *at;
    if (d != NULL) {
        *at = d->next;
        destroy_handle(d);
        free(d);
    }
    pthread_mutex_unlock(&lock);
}

/* The context is current.  *out_reason: what a capable device is missing. */
static int get_handle(device_state *d, const char **out_reason)
{
    *out_reason = NULL;
    if (d->arch < LEAST_ARCH)
        return 0;
    *out_reason = missing;
    if (!open_library())
        return 0;
    if (d->handle == NULL) {
        gpu_api_capture_mode mode = gpu_captures_relax();

        if (lt.create(&d->handle) != CUBLAS_STATUS_SUCCESS)
            d->handle = NULL;
        gpu_captures_restore(mode);
    }
    *out_reason = d->handle != NULL ? NULL : "cublasLtCreate fails";
    return d->handle != NULL;
}

/* Does nothing for devices that cannot use it. */
void cuda_lt_prepare(void *context)
{
    const char *reason; /* only reported by a product */
    device_state *d;

    pthread_mutex_lock(&lock);
    d = find_device(context);
    if (d != NULL)
        get_handle(d, &reason);
    pthread_mutex_unlock(&lock);
}

/* ---------------------------------------------------------- description -- */

static int type_of(uint32_t dtype, cudaDataType *out)
{
    static const struct {
        uint32_t dtype;
        cudaDataType type;
    } types[] = {
        {CORE_F8E4M3, CUDA_R_8F_E4M3}, {CORE_F8E5M2, CUDA_R_8F_E5M2},
        {CORE_F32, CUDA_R_32F},        {CORE_F16, CUDA_R_16F},
        {CORE_BF16, CUDA_R_16BF},
    };

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].dtype == dtype) {
            *out = types[i].type;
            return 1;
        }
    return 0;
}

typedef struct description {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
} description;

static void destroy_description(description *x)
{
    if (x->desc != NULL)
        lt.desc_destroy(x->desc);
    if (x->a != NULL)
        lt.layout_destroy(x->a);
    if (x->b != NULL)
        lt.layout_destroy(x->b);
    if (x->d != NULL)
        lt.layout_destroy(x->d);
}

/* The operands and the operation.  8-bit floats have only one layout: both
 * factors are contiguous along the summed dimension. */
static int set_attributes(cublasLtMatmulDesc_t desc, const gpu_scaled *g,
                          cudaDataType type)
{
    const int32_t turned = CUBLAS_OP_T, plain = CUBLAS_OP_N;
    const int32_t with_bias = CUBLASLT_EPILOGUE_BIAS, bias_type = type;
    const int8_t fast = g->fast != 0;
    const struct {
        cublasLtMatmulDescAttributes_t what;
        const void *value;
        size_t size;
    } rows[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned},
        {CUBLASLT_MATMUL_DESC_TRANSB, &plain, sizeof plain},
        {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &g->a_scale, sizeof(void *)},
        {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &g->b_scale, sizeof(void *)},
        {CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast},
        /* The rest is for a bias only. */
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &with_bias, sizeof with_bias},
        {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof bias_type},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g->bias, sizeof(void *)},
    };
    size_t count = sizeof rows / sizeof *rows - (g->bias == NULL ? 3 : 0);

    for (size_t i = 0; i < count; i++)
        if (lt.desc_set(desc, rows[i].what, rows[i].value, rows[i].size) !=
            CUBLAS_STATUS_SUCCESS)
            return 0;
    return 1;
}

/* Returns 0 if the product cannot be described. */
static int describe(const gpu_scaled *g, description *x)
{
    cudaDataType a, b, d;
    uint64_t m = (uint64_t)g->m, n = (uint64_t)g->n, k = (uint64_t)g->k;

    memset(x, 0, sizeof *x);
    if (type_of(g->a_dtype, &a) && type_of(g->b_dtype, &b) &&
        type_of(g->d_dtype, &d) &&
        lt.desc_create(&x->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
            CUBLAS_STATUS_SUCCESS &&
        set_attributes(x->desc, g, d) &&
        lt.layout_create(&x->a, a, k, m, g->a_step) == CUBLAS_STATUS_SUCCESS &&
        lt.layout_create(&x->b, b, k, n, g->b_step) == CUBLAS_STATUS_SUCCESS &&
        lt.layout_create(&x->d, d, m, n, g->d_step) == CUBLAS_STATUS_SUCCESS)
        return 1;
    destroy_description(x);
    return 0;
}

/* ---------------------------------------------------------- algorithms -- */

/* Promises only the alignment that is guaranteed; by default the library
 * assumes 256 bytes. */
static int set_preference(cublasLtMatmulPreference_t preference)
{
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint64_t workspace = WORKSPACE;
    const uint32_t alignment = ALIGNMENT;

    if (lt.pref_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                    &workspace, sizeof workspace) != CUBLAS_STATUS_SUCCESS)
        return 0;
    for (int i = 0; i < 4; i++)
        if (lt.pref_set(preference, aligned[i], &alignment, sizeof alignment) !=
            CUBLAS_STATUS_SUCCESS)
            return 0;
    return 1;
}

static void query_library(device_state *d, const description *x, algorithm *out)
{
    cublasLtMatmulHeuristicResult_t result;
    cublasLtMatmulPreference_t preference = NULL;
    int count = 0;

    memset(&result, 0, sizeof result);
    if (lt.pref_create(&preference) != CUBLAS_STATUS_SUCCESS)
        return;
    if (set_preference(preference) &&
        lt.heuristic(d->handle, x->desc, x->a, x->b, x->d, x->d, preference, 1,
                     &result, &count) == CUBLAS_STATUS_SUCCESS &&
        count > 0 && result.state == CUBLAS_STATUS_SUCCESS) {
        out->supported = 1;
        out->algo = result.algo;
        out->workspace = result.workspaceSize;
    }
    lt.pref_destroy(preference);
}

static algorithm *get_algorithm(device_state *d, const gpu_scaled *g,
                                const description *x)
{
    shape of;
    algorithm *a;

    memset(&of, 0, sizeof of);
    of.a_dtype = g->a_dtype;
    of.b_dtype = g->b_dtype;
    of.d_dtype = g->d_dtype;
    of.fast = g->fast;
    of.bias = g->bias != NULL;
    of.beta = g->added;
    of.m = g->m;
    of.n = g->n;
    of.k = g->k;
    of.a_step = g->a_step;
    of.b_step = g->b_step;
    of.d_step = g->d_step;
    for (int i = 0; i < ALGORITHMS; i++)
        if (d->algorithms[i].known &&
            memcmp(&d->algorithms[i].of, &of, sizeof of) == 0)
            return &d->algorithms[i];
    a = &d->algorithms[d->oldest++ % ALGORITHMS];
    memset(a, 0, sizeof *a);
    a->of = of;
    a->known = 1;
    query_library(d, x, a);
    return a;
}

/* Returns 1, and sets the workspace, if the device supports the product; its
 * context is current. */
static int supported(device_state *d, gpu_scaled *g)
{
    description x;
    const algorithm *a;

    if (!get_handle(d, &g->reason) || !describe(g, &x))
        return 0;
    a = get_algorithm(d, g, &x);
    destroy_description(&x);
    g->workspace_size = a->workspace;
    return a->supported;
}

int cuda_lt_query(void *context, gpu_scaled *g)
{
    int some = 0, every = 1;
    CUcontext popped;

    g->reason = NULL;
    pthread_mutex_lock(&lock);
    for (device_state *d = all; d != NULL && every; d = d->next) {
        if ((context != NULL && d->context != context) || d->current == NULL)
            continue;
        some = 1;
        every = cuda.CtxPushCurrent(d->current) == 0;
        if (!every)
            break;
        every = supported(d, g);
        cuda.CtxPopCurrent(&popped);
    }
    pthread_mutex_unlock(&lock);
    return some && every ? 0 : GPU_ABSENT;
}

/* ------------------------------------------------------------- products -- */

/* A lost device is reported by the next call. */
static int code_of(cublasStatus_t status)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    return status == CUBLAS_STATUS_EXECUTION_FAILED ? CUDA_ERROR_LAUNCH_FAILED
                                                    : GPU_ABSENT;
}

static int multiply(device_state *d, void *stream, const gpu_scaled *g)
{
    const float one = 1, beta = g->added ? 1 : 0;
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
    const algorithm *a;
    description x;

    if (d->handle == NULL || !describe(g, &x))
        return GPU_ABSENT;
    a = get_algorithm(d, g, &x);
    if (a->supported && a->workspace <= g->workspace_size)
        status = lt.matmul(d->handle, x.desc, &one, g->a, x.a, g->b, x.b, &beta,
                           g->d, x.d, g->d, x.d, &a->algo, g->workspace,
                           g->workspace_size, (cudaStream_t)stream);
    destroy_description(&x);
    return code_of(status);
}

int cuda_lt_multiply(void *context, void *stream, const gpu_scaled *g)
{
    int code = GPU_ABSENT;
    CUcontext popped;
    device_state *d;

    pthread_mutex_lock(&lock);
    d = find_device(context);
    if (d != NULL && d->current != NULL) {
        code = cuda.CtxPushCurrent(d->current);
        if (code == 0) {
            code = multiply(d, stream, g);
            cuda.CtxPopCurrent(&popped);
        }
    }
    pthread_mutex_unlock(&lock);
    return code;
}
