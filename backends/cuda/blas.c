/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* blas.c: the gpu_blas of cuBLAS, found at run time. */

#include "blas.h"

#include "api_names.h"

#include <gpu/host/library.h>

#include <libcore/plugin.h>

#include <cublas_v2.h>

#include <stddef.h>
#include <stdio.h>

/* The oldest version of CUDA whose library has all functions. */
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

/* Checks the types against the header. */
#define SAME(name, symbol, arguments)                                  \
    _Static_assert(__builtin_types_compatible_p(__typeof__(blas.name), \
                                                __typeof__(&symbol)),  \
                   #symbol);
FUNCTIONS(SAME)
#undef SAME

static const gpu_symbol symbols[] = {
#define ROW(name, symbol, arguments) \
    {#symbol, offsetof(__typeof__(blas), name)},
    FUNCTIONS(ROW)
#undef ROW
};

/* Opens the library of the driver's version of CUDA, or the newest older one. */
static bool blas_open(char *reason, size_t size)
{
    char name[GPU_LIBRARY_NAME], error[GPU_LIBRARY_WHY];
    const char *missing;
    void *library;
    int version = 0;

    if (cuda.DriverGetVersion(&version) != 0) {
        snprintf(reason, size, "the driver does not report its version");
        return false;
    }
    library = gpu_library_open_newest("libcublas", version / 1000, OLDEST, name,
                                      error);
    if (library == NULL) {
        snprintf(reason, size, "no cuBLAS of CUDA %d to %d can be opened (%s)",
                 OLDEST, version / 1000, error);
        return false;
    }
    missing = gpu_library_resolve(library, symbols,
                                  sizeof symbols / sizeof *symbols, &blas);
    if (missing != NULL)
        snprintf(reason, size, "%s lacks %s", name, missing);
    return missing == NULL;
}

static cublasStatus_t create_handle(cublasHandle_t *out)
{
    cublasStatus_t status = blas.create(out);

    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    status =
        blas.set_mode(*out, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    if (status != CUBLAS_STATUS_SUCCESS)
        blas.destroy(*out);
    return status;
}

static int blas_create(void **out_handle)
{
    gpu_api_capture_mode mode = gpu_captures_relax();
    cublasStatus_t status = create_handle((cublasHandle_t *)out_handle);

    gpu_captures_restore(mode);
    return (int)status;
}

static void blas_destroy(void *handle)
{
    blas.destroy(handle);
}

static bool blas_set_stream(void *handle, void *stream)
{
    return blas.set_stream(handle, stream) == CUBLAS_STATUS_SUCCESS;
}

static bool blas_set_workspace(void *handle, void *workspace)
{
    return blas.set_workspace(handle, workspace, GPU_BLAS_WORKSPACE) ==
           CUBLAS_STATUS_SUCCESS;
}

static bool type_of(uint32_t dtype, cudaDataType *out)
{
    switch (dtype) {
    case CORE_F64:
        *out = CUDA_R_64F;
        return true;
    case CORE_F32:
        *out = CUDA_R_32F;
        return true;
    case CORE_F16:
        *out = CUDA_R_16F;
        return true;
    case CORE_BF16:
        *out = CUDA_R_16BF;
        return true;
    default:
        return false;
    }
}

static bool blas_supports(uint32_t dtype)
{
    cudaDataType type;

    return type_of(dtype, &type);
}

static int blas_multiply(void *handle, const gpu_gemm *g)
{
    float alpha = (float)g->alpha, beta = (float)g->beta;
    bool wide = g->dtype == CORE_F64;
    cublasComputeType_t compute = wide ? CUBLAS_COMPUTE_64F
                                  : g->dtype == CORE_F32 && g->allow_tf32
                                      ? CUBLAS_COMPUTE_32F_FAST_TF32
                                      : CUBLAS_COMPUTE_32F;
    cudaDataType type = CUDA_R_32F;
    cublasStatus_t status;

    if (!type_of(g->dtype, &type))
        return GPU_ABSENT;
    status = blas.gemm(
        handle, g->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
        g->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, (int)g->m, (int)g->n,
        (int)g->k, wide ? (const void *)&g->alpha : &alpha, g->a, type,
        (int)g->a_step, g->a_batch, g->b, type, (int)g->b_step, g->b_batch,
        wide ? (const void *)&g->beta : &beta, g->c, type, (int)g->c_step,
        g->c_batch, (int)g->batch, compute, CUBLAS_GEMM_DEFAULT);
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    return status == CUBLAS_STATUS_EXECUTION_FAILED ? CUDA_ERROR_LAUNCH_FAILED
                                                    : GPU_ABSENT;
}

const gpu_blas cuda_blas = {
    .name = "cuBLAS",
    .open = blas_open,
    .create = blas_create,
    .destroy = blas_destroy,
    .set_stream = blas_set_stream,
    .set_workspace = blas_set_workspace,
    .supports = blas_supports,
    .multiply = blas_multiply,
};
