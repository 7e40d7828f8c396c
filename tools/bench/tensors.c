/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Tensors to measure with, and the cost of creating tensors and views. */

#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void *memory(size_t size)
{
    void *block = malloc(size);

    if (!block) {
        fputs("core-bench: no memory\n", stderr);
        exit(EXIT_FAILURE);
    }
    return block;
}

static size_t numel_of(const int64_t *sizes, size_t ndim)
{
    size_t numel = 1;

    for (size_t i = 0; i < ndim; i++)
        numel *= (size_t)sizes[i];
    return numel;
}

static uint64_t state = 1;

/* In (0, 1]. */
static double uniform(void)
{
    state =
        state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return ((double)(state >> 11) + 1) * 0x1p-53;
}

core_tensor *bench_full(const int64_t *sizes, size_t ndim, float value)
{
    size_t numel = numel_of(sizes, ndim);
    float *data = memory(numel * sizeof *data);
    core_tensor *tensor;

    for (size_t i = 0; i < numel; i++)
        data[i] = value;
    must(core_tensor_from_data(data, CORE_F32, sizes, ndim, NULL, &tensor));
    free(data);
    return tensor;
}

core_tensor *bench_ones1(void)
{
    return bench_full((const int64_t[]){1}, 1, 1);
}

core_tensor *bench_normal(const int64_t *sizes, size_t ndim, float scale)
{
    size_t numel = numel_of(sizes, ndim);
    float *data = memory(numel * sizeof *data);
    core_tensor *tensor;

    for (size_t i = 0; i < numel; i++)
        data[i] = scale * (float)(sqrt(-2 * log(uniform())) *
                                  cos(6.283185307179586 * uniform()));
    must(core_tensor_from_data(data, CORE_F32, sizes, ndim, NULL, &tensor));
    free(data);
    return tensor;
}

core_tensor *bench_integers(int64_t count, int64_t limit)
{
    int64_t *data = memory((size_t)count * sizeof *data);
    core_tensor *tensor;

    for (int64_t i = 0; i < count; i++)
        data[i] = (int64_t)(uniform() * (double)limit) % limit;
    must(core_tensor_from_data(data, CORE_I64, &count, 1, NULL, &tensor));
    free(data);
    return tensor;
}

core_tensor *bench_requires_grad(core_tensor *tensor)
{
    must(core_tensor_set_requires_grad(tensor, true));
    return tensor;
}

/* ------------------------------------------------------------------ rows -- */

typedef struct fixture {
    core_tensor *grad;   /* 1 element that requires grad */
    core_tensor *plain;  /* 64 x 64 */
    core_tensor *matrix; /* 64 x 64 that requires grad */
} fixture;

/* A row that creates a tensor and releases it; `call` uses `f` and `out`. */
#define TENSOR_ROW(name, call)             \
    static inline void name(void *context) \
    {                                      \
        fixture *f = context;              \
        core_tensor *out;                  \
                                           \
        (void)f;                           \
        must(call);                        \
        core_tensor_release(out);          \
    }

#define SIZES(...)                  \
    (const int64_t[]){__VA_ARGS__}, \
        sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)

static const int64_t three = 3, ten = 10;

TENSOR_ROW(empty1, core_empty(SIZES(1), CORE_F32, NULL, -1, &out))
TENSOR_ROW(empty_1mib, core_empty(SIZES(262144), CORE_F32, NULL, -1, &out))
TENSOR_ROW(empty_64mib, core_empty(SIZES(16 << 20), CORE_F32, NULL, -1, &out))
TENSOR_ROW(empty_strided,
           core_empty_strided(SIZES(4, 4), SIZES(4, 1), CORE_F32, NULL, &out))
TENSOR_ROW(zeros1, core_zeros(SIZES(1), CORE_F32, NULL, &out))
TENSOR_ROW(detach, core_detach(f->grad, &out))
TENSOR_ROW(view_transpose, core_transpose(f->plain, 0, 1, &out))
TENSOR_ROW(view_narrow, core_narrow(f->plain, 0, 3, 7, &out))
TENSOR_ROW(view_slice, core_slice(f->plain, 0, &three, &ten, 1, &out))
TENSOR_ROW(view_select, core_select(f->plain, 0, 3, &out))
TENSOR_ROW(view_view, core_view_sizes(f->plain, SIZES(4096), &out))
TENSOR_ROW(view_as_strided,
           core_as_strided(f->plain, SIZES(8, 8), SIZES(64, 1), NULL, &out))
TENSOR_ROW(view_transpose_grad, core_transpose(f->matrix, 0, 1, &out))
TENSOR_ROW(view_narrow_grad, core_narrow(f->matrix, 0, 3, 7, &out))

static inline void copy_handle(void *context)
{
    fixture *f = context;

    core_tensor_release(core_tensor_retain(f->plain));
}

/* The cost of posix_memalign alone. */
static inline void raw_alloc(void *context)
{
    void *block = NULL;

    (void)context;
    if (posix_memalign(&block, 64, 64))
        exit(EXIT_FAILURE);
    __asm__ volatile("" : : "r"(block) : "memory");
    free(block);
}

static void inference_views(void)
{
    uint64_t before = core_inference_begin();
    fixture f = {.plain = bench_full(SIZES(64, 64), 1)};

    bench_ns("view.transpose_inference", view_transpose, &f);
    bench_ns("view.narrow_inference", view_narrow, &f);
    core_tensor_release(f.plain);
    core_inference_end(before);
}

void bench_tensors(void)
{
    fixture f = {
        .grad = bench_requires_grad(bench_ones1()),
        .plain = bench_full(SIZES(64, 64), 1),
        .matrix = bench_requires_grad(bench_full(SIZES(64, 64), 1)),
    };

    bench_ns("tensor.copy_handle", copy_handle, &f);
    bench_ns("tensor.empty1", empty1, &f);
    bench_ns("tensor.empty_1MiB", empty_1mib, &f);
    bench_ns("tensor.empty_64MiB", empty_64mib, &f);
    bench_ns("tensor.empty_strided_2d", empty_strided, &f);
    bench_ns("tensor.zeros1", zeros1, &f);
    bench_ns("tensor.raw_aligned_alloc_64B", raw_alloc, &f);
    bench_ns("tensor.detach", detach, &f);
    bench_ns("view.transpose", view_transpose, &f);
    bench_ns("view.narrow", view_narrow, &f);
    bench_ns("view.slice", view_slice, &f);
    bench_ns("view.select", view_select, &f);
    bench_ns("view.view", view_view, &f);
    bench_ns("view.as_strided", view_as_strided, &f);
    bench_ns("view.transpose_grad", view_transpose_grad, &f);
    bench_ns("view.narrow_grad", view_narrow_grad, &f);
    inference_views();
    core_tensor_release(f.grad);
    core_tensor_release(f.plain);
    core_tensor_release(f.matrix);
}
