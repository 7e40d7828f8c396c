/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* blas_library.h: matrix products by a vendor's BLAS library.  The library is
 * looked for at the first product.  Each stream has its own handle (handles.h)
 * and workspace, so that a product has the same bits every time.
 *
 * The device is the calling thread's current one in every call. */

#ifndef GPU_BLAS_LIBRARY_H
#define GPU_BLAS_LIBRARY_H

#include <gpu/driver.h>

/* The workspace of a handle: what cuBLAS recommends for sm_90, the largest of
 * all. */
enum { GPU_BLAS_WORKSPACE = 32 << 20 };

/* What a vendor implements.  Called under a lock. */
typedef struct gpu_blas {
    const char *name; /* "rocBLAS" */
    /* Opens the library; if it cannot be used, writes why and returns false. */
    bool (*open)(char *reason, size_t size);
    /* Creates a handle for deterministic products.  Returns 0 or the library's
     * code. */
    int (*create)(void **out_handle);
    void (*destroy)(void *handle);
    /* May reset the workspace. */
    bool (*set_stream)(void *handle, void *stream);
    /* The workspace has GPU_BLAS_WORKSPACE bytes. */
    bool (*set_workspace)(void *handle, void *workspace);
    bool (*supports)(uint32_t dtype);
    /* Returns 0, GPU_ABSENT if the library refuses the product, or the driver's
     * code. */
    int (*multiply)(void *handle, const gpu_gemm *g);
} gpu_blas;

/* Returns 0, GPU_ABSENT, or the driver's code, like gpu_driver.multiply. */
int gpu_blas_multiply(const gpu_blas *blas, void *context, void *stream,
                      const gpu_gemm *g);
/* Creates the stream's handle before a capture, which can create none. */
void gpu_blas_prepare(const gpu_blas *blas, void *context, void *stream);
/* Releases the stream's handle when the stream ends; does not wait. */
void gpu_blas_release(void *context, void *stream);
/* Destroys the handles of the context.  lost: the device's memory is already
 * gone. */
void gpu_blas_destroy(const gpu_blas *blas, void *context, int lost);

#endif
