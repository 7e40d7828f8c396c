/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* blas.c: the gpu_blas of rocBLAS, found at run time.
 *
 * Its header is not required: the functions declared here are the same from
 * rocBLAS 2.42 to 5.  If the header is found, the constants are checked against
 * it. */

#include "blas.h"

#include "api_names.h"

#include <gpu/host/library.h>

#include <libcore/plugin.h>

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

enum {
    SUCCESS = 0,
    INTERNAL_ERROR = 6,
    NO_TRANSPOSE = 111,
    TRANSPOSE = 112,
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
    _Static_assert((int)(here) == (int)(there), #there " has another value")
SAME(SUCCESS, rocblas_status_success);
SAME(INTERNAL_ERROR, rocblas_status_internal_error);
SAME(NO_TRANSPOSE, rocblas_operation_none);
SAME(TRANSPOSE, rocblas_operation_transpose);
SAME(TYPE_F16, rocblas_datatype_f16_r);
SAME(TYPE_F32, rocblas_datatype_f32_r);
SAME(TYPE_F64, rocblas_datatype_f64_r);
SAME(TYPE_BF16, rocblas_datatype_bf16_r);
SAME(NO_ATOMICS, rocblas_atomics_not_allowed);
SAME(STANDARD, rocblas_gemm_algo_standard);
#undef SAME
#endif

static const gpu_symbol symbols[] = {
#define ROW(name, symbol, arguments) \
    {#symbol, offsetof(__typeof__(blas), name)},
    FUNCTIONS(ROW)
#undef ROW
};

/* Returns the name of the rocBLAS built for this HIP, or NULL if it is not
 * known. */
static const char *library_name(void)
{
#ifdef __HIP_PLATFORM_AMD__
    static const struct {
        int major;
        const char *name;
    } libraries[] = {
        {5, "librocblas.so.0"}, {6, "librocblas.so.4"}, {7, "librocblas.so.5"}};

    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        if (libraries[i].major == HIP_VERSION_MAJOR)
            return libraries[i].name;
#endif
    return NULL;
}

static bool blas_open(char *reason, size_t size)
{
    const char *name = library_name(), *missing;
    void *library = NULL;

    if (name != NULL)
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(reason, size, "no rocBLAS can be opened (%s)",
                 name != NULL ? dlerror() : "none is known for this HIP");
        return false;
    }
    missing = gpu_library_resolve(library, symbols,
                                  sizeof symbols / sizeof *symbols, &blas);
    if (missing != NULL)
        snprintf(reason, size, "%s lacks %s", name, missing);
    return missing == NULL;
}

static int create_handle(handle *out)
{
    int status = blas.create(out);

    if (status != SUCCESS)
        return status;
    status = blas.set_atomics(*out, NO_ATOMICS);
    if (status != SUCCESS)
        blas.destroy(*out);
    return status;
}

static int blas_create(void **out_handle)
{
    gpu_api_capture_mode mode = gpu_captures_relax();
    int status = create_handle((handle *)out_handle);

    gpu_captures_restore(mode);
    return status;
}

static void blas_destroy(void *h)
{
    blas.destroy(h);
}

static bool blas_set_stream(void *h, void *stream)
{
    return blas.set_stream(h, stream) == SUCCESS;
}

static bool blas_set_workspace(void *h, void *workspace)
{
    return blas.set_workspace(h, workspace, GPU_BLAS_WORKSPACE) == SUCCESS;
}

/* Returns 0 if the library does not support the dtype. */
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

static bool blas_supports(uint32_t dtype)
{
    return type_of(dtype) != 0;
}

static int blas_multiply(void *h, const gpu_gemm *g)
{
    float alpha = (float)g->alpha, beta = (float)g->beta;
    int type = type_of(g->dtype), wide = type == TYPE_F64;
    int status = blas.gemm(
        h, g->a_transposed ? TRANSPOSE : NO_TRANSPOSE,
        g->b_transposed ? TRANSPOSE : NO_TRANSPOSE, (int32_t)g->m,
        (int32_t)g->n, (int32_t)g->k, wide ? (const void *)&g->alpha : &alpha,
        g->a, type, (int32_t)g->a_step, g->a_batch, g->b, type,
        (int32_t)g->b_step, g->b_batch, wide ? (const void *)&g->beta : &beta,
        g->c, type, (int32_t)g->c_step, g->c_batch, g->c, type,
        (int32_t)g->c_step, g->c_batch, (int32_t)g->batch,
        wide ? TYPE_F64 : TYPE_F32, STANDARD, 0, 0);

    if (status == SUCCESS)
        return 0;
    return status == INTERNAL_ERROR ? hipErrorLaunchFailure : GPU_ABSENT;
}

const gpu_blas rocm_blas = {
    .name = "rocBLAS",
    .open = blas_open,
    .create = blas_create,
    .destroy = blas_destroy,
    .set_stream = blas_set_stream,
    .set_workspace = blas_set_workspace,
    .supports = blas_supports,
    .multiply = blas_multiply,
};
