/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* families.h: the kernel families and the host files that register operators,
 * one line each.  A family is kernels/<family>.cu, compiled to one image, which
 * is loaded when the first of its kernels is launched. */

#ifndef GPU_FAMILIES_H
#define GPU_FAMILIES_H

#define GPU_FAMILIES(X)  \
    X(elementwise_f32)   \
    X(elementwise_f64)   \
    X(elementwise_f16)   \
    X(elementwise_bf16)  \
    X(elementwise_whole) \
    X(move)              \
    X(reduce)            \
    X(matmul)            \
    X(softmax)           \
    X(index)             \
    X(random)            \
    X(norm)              \
    X(pooling)           \
    X(conv)              \
    X(scan)              \
    X(sort)              \
    X(pad)               \
    X(masked)            \
    X(scatter)           \
    X(resample)          \
    X(grid_sample)       \
    X(attention)         \
    X(attention_mma)     \
    X(optim)             \
    X(recurrent)         \
    X(linalg)

/* X(file) declares core_status gpu_register_<file>(core_registry *). */
#define GPU_REGISTRARS(X) \
    X(elementwise)        \
    X(move)               \
    X(reduce)             \
    X(matmul)             \
    X(scaled_mm)          \
    X(softmax)            \
    X(index)              \
    X(loss)               \
    X(factory)            \
    X(random)             \
    X(norm)               \
    X(pooling)            \
    X(conv)               \
    X(scan)               \
    X(sort)               \
    X(search)             \
    X(pad)                \
    X(masked)             \
    X(scatter)            \
    X(resample)           \
    X(grid_sample)        \
    X(attention)          \
    X(optim)              \
    X(recurrent)          \
    X(linalg)

#endif
