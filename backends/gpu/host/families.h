/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* families.h: every family of kernels, one line each, and every file of the
 * host side that registers some.  A family is kernels/<family>.cu, which
 * becomes one image, loaded when the first of its kernels is launched. */

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
    X(optim)             \
    X(linalg)

/* X(file) stands for its core_status gpu_register_<file>(core_registry *). */
#define GPU_REGISTRARS(X) \
    X(elementwise)        \
    X(move)               \
    X(reduce)             \
    X(matmul)             \
    X(scaled_mm)          \
    X(softmax)            \
    X(index)              \
    X(random)             \
    X(norm)               \
    X(pooling)            \
    X(conv)               \
    X(scan)               \
    X(sort)               \
    X(pad)                \
    X(masked)             \
    X(scatter)            \
    X(resample)           \
    X(attention)          \
    X(optim)              \
    X(linalg)

#endif
