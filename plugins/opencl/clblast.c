/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Products with CLBlast, opened at the first product that is large enough for
 * it.  LIBCORE_OPENCL_CLBLAST=0 disables it. */

#include "matmul.h"

#include <dlfcn.h>

/* The C interface of clblast_c.h: row-major is 101, not transposed 111,
 * transposed 112. */
typedef int (*gemm_f32)(int layout, int a_transpose, int b_transpose, size_t m,
                        size_t n, size_t k, float alpha, cl_mem a,
                        size_t a_offset, size_t a_ld, cl_mem b, size_t b_offset,
                        size_t b_ld, float beta, cl_mem c, size_t c_offset,
                        size_t c_ld, cl_command_queue *queue, cl_event *event);
typedef int (*gemm_f64)(int layout, int a_transpose, int b_transpose, size_t m,
                        size_t n, size_t k, double alpha, cl_mem a,
                        size_t a_offset, size_t a_ld, cl_mem b, size_t b_offset,
                        size_t b_ld, double beta, cl_mem c, size_t c_offset,
                        size_t c_ld, cl_command_queue *queue, cl_event *event);

enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

/* The number of multiplications from which on CLBlast is worth its copies:
 * below, a tile kernel is done before CLBlast has begun. */
#define LARGE (INT64_C(1) << 24)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static gemm_f32 sgemm;
static gemm_f64 dgemm;

static void open_once(void)
{
    core_string set =
        opencl_host->setting(core_sdk_string("LIBCORE_OPENCL_CLBLAST"));
    void *library;

    if (set.data != NULL && core_sdk_string_equal(set, "0"))
        return;
    library = dlopen("libclblast.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return;
    *(void **)&sgemm = dlsym(library, "CLBlastSgemm");
    *(void **)&dgemm = dlsym(library, "CLBlastDgemm");
}

/* Tests for a row-major matrix, or, transposed, a column-major one; returns its
 * pitch. */
static bool is_readable(const opencl_matrix *m, int64_t rows, int64_t columns,
                        int *out_transpose, size_t *out_ld)
{
    if (m->column == 1 && m->row >= columns) {
        *out_transpose = PLAIN;
        *out_ld = (size_t)m->row;
        return true;
    }
    *out_transpose = TRANSPOSED;
    *out_ld = (size_t)m->column;
    return m->row == 1 && m->column >= rows;
}

core_status opencl_clblast(core_call *call, const opencl_product *p)
{
    opencl_device *device = call->device;
    opencl_stream *stream = call->stream;
    size_t item = core_sdk_itemsize(p->dtype), a_ld, b_ld, c_ld;
    int a_t, b_t, c_t, code;
    core_status status;
    cl_event event = NULL;

    if (p->dtype > CORE_F32 || p->batch != 1 || p->sums != 1 ||
        p->d.memory.handle != NULL ||
        (double)p->rows * (double)p->columns * (double)p->inner <
            (double)LARGE ||
        !is_readable(&p->a, p->rows, p->inner, &a_t, &a_ld) ||
        !is_readable(&p->b, p->inner, p->columns, &b_t, &b_ld) ||
        !is_readable(&p->c, p->rows, p->columns, &c_t, &c_ld) || c_t != PLAIN)
        return CORE_ERROR_UNSUPPORTED;
    pthread_once(&once, open_once);
    if (p->dtype == CORE_F32 ? sgemm == NULL : dgemm == NULL)
        return CORE_ERROR_UNSUPPORTED;
    status = opencl_stream_takes_kernels(stream);
    if (status != CORE_OK)
        return status;
    pthread_mutex_lock(&device->lock);
#define GEMM(function, type)                                                 \
    function(ROW_MAJOR, a_t, b_t, (size_t)p->rows, (size_t)p->columns,       \
             (size_t)p->inner, (type)p->alpha, (cl_mem)p->a.memory.handle,   \
             p->a.memory.offset / item, a_ld, (cl_mem)p->b.memory.handle,    \
             p->b.memory.offset / item, b_ld, 0, (cl_mem)p->c.memory.handle, \
             p->c.memory.offset / item, c_ld, &stream->queue, &event)
    code = p->dtype == CORE_F32 ? GEMM(sgemm, float) : GEMM(dgemm, double);
    pthread_mutex_unlock(&device->lock);
    if (code != 0)
        return opencl_fail(device, code, "CLBlast's product");
    opencl_profile_submitted(stream, event, CORE_ACTIVITY_KERNEL, "clblast", 0);
    opencl_stream_submitted(stream, event);
    return CORE_OK;
}
