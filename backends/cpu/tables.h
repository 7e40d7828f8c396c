/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* tables.h: the files with kernels.  X(file) names the `const cpu_kernel_table
 * cpu_<file>_kernels`; later lines take precedence over earlier ones where
 * signatures overlap. */

#ifndef CPU_TABLES_H
#define CPU_TABLES_H

#include "cpu.h"
#include "isa.h"

/* Compiled once. */
#define CPU_TABLES(X) \
    X(matmul)         \
    X(loss)           \
    X(ctc)            \
    X(gather)         \
    X(index)          \
    X(indexput)       \
    X(masked)         \
    X(move)           \
    X(pad)            \
    X(factory)        \
    X(scan)           \
    X(sort)           \
    X(conv)           \
    X(pooling)        \
    X(resample)       \
    X(gridsample)     \
    X(random)         \
    X(distributions)  \
    X(linalg)         \
    X(search)         \
    X(unique)         \
    X(patches)        \
    X(factors)        \
    X(spectra)        \
    X(optim)

/* Compiled per instruction set (isa.h): the file defines `const
 * cpu_kernel_table CPU_NAME(cpu_<file>_kernels)`.  The element-wise operators
 * are registered separately (elementwise.h). */
#define CPU_ISA_TABLES(X) \
    X(copy)               \
    X(reduce)             \
    X(softmax)            \
    X(attention)          \
    X(recurrent)          \
    X(cell)               \
    X(norm)               \
    X(batchnorm)

#endif
