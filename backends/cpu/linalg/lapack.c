/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* LAPACK's factorizations, loaded at first use. */

#include "lapack.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>

#include "gemm/blas.h"
#include "runtime/once.h"
#include "view.h"

static struct {
    cpu_once_state once;
    cpu_lapack functions;
    bool complete;
} lapack;

static void open_library(void)
{
    cpu_lapack *f = &lapack.functions;
    const char *reason;
    void *library = cpu_once_open("libopenblas.so.0", &reason);

    lapack.complete = library && cpu_once_find(library, "dgetrf_", &f->getrf) &&
                      cpu_once_find(library, "dgetrs_", &f->getrs) &&
                      cpu_once_find(library, "dgeqrf_", &f->geqrf) &&
                      cpu_once_find(library, "dsytrf_", &f->sytrf) &&
                      cpu_once_find(library, "dsytrs_", &f->sytrs) &&
                      cpu_once_find(library, "dsyevd_", &f->syevd) &&
                      cpu_once_find(library, "dgesdd_", &f->gesdd);
    if (library && !lapack.complete)
        dlclose(library);
}

core_status cpu_lapack_open(const core_call *call, int64_t m, int64_t n,
                            const cpu_lapack **out_lapack)
{
    core_string name = cpu_operator(call);

    *out_lapack = NULL;
    cpu_blas_information(); /* sets the library's number of threads */
    cpu_once(&lapack.once, open_library);
    if (!lapack.complete)
        return cpu_error(
            CORE_ERROR_UNSUPPORTED,
            "%.*s needs LAPACK, which libopenblas.so.0 provides: %s",
            (int)name.size, name.data, cpu_blas_information());
    if (m > INT_MAX / 8 || n > INT_MAX / 8)
        return cpu_error(CORE_ERROR_SHAPE,
                         "%.*s: a matrix of %lld by %lld is too large",
                         (int)name.size, name.data, (long long)m, (long long)n);
    *out_lapack = &lapack.functions;
    return CORE_OK;
}

void cpu_transpose(double *to, const double *from, int64_t m, int64_t n)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            to[j * m + i] = from[i * n + j];
}

int64_t cpu_matrices(const core_view *view)
{
    int64_t count = 1;

    for (uint32_t i = 0; i + 2 < view->ndim; i++)
        count *= view->sizes[i];
    return count;
}
