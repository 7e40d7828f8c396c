/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared.h: what a launch hands to a kernel.  Read by C (the host side) and by
 * every compiler of kernels; fixed widths, no padding that is not named. */

#ifndef GPU_SHARED_H
#define GPU_SHARED_H

#include <stdint.h>

/* A stream's error word. */
typedef struct gpu_error {
    int32_t code; /* a core_status; 0: nothing */
    int32_t reserved;
    int64_t call; /* core_call.id */
    int64_t index;
} gpu_error;

/* What codes there are on a device. */
enum {
    GPU_BAD_ARGUMENT = 1, /* CORE_ERROR_INVALID_ARGUMENT: division by zero */
    GPU_BAD_INDEX = 8,    /* CORE_ERROR_INDEX */
    /* A core_status, and above it which text it has. */
    GPU_BAD_PROBABILITY = 1 | 1 << 16,
    GPU_BAD_REPEATS = 1 | 2 << 16,
    GPU_SHORT_SOURCE = 1 | 3 << 16,
    GPU_BAD_WEIGHTS = 1 | 4 << 16,
    GPU_NOT_POSITIVE = 1 | 5 << 16
};

/* The dtypes' ids, as plugin.h has them. */
enum {
    GPU_F64 = 1,
    GPU_F32 = 2,
    GPU_F16 = 3,
    GPU_BF16 = 4,
    GPU_I64 = 5,
    GPU_I32 = 6,
    GPU_I16 = 7,
    GPU_I8 = 8,
    GPU_U8 = 9,
    GPU_BOOL = 10
};

/* ------------------------------------------------------- element-wise -- */

enum { GPU_OPERANDS = 4, GPU_DIMS = 8, GPU_PARAMETERS = 4 };
/* At most so many elements are one load, or one store. */
enum { GPU_ROW = 8 };

/* The numbers of an operator, as both kinds that an expression may want. */
typedef struct gpu_parameters {
    double d[GPU_PARAMETERS];
    int64_t i[GPU_PARAMETERS];
    uint64_t bits; /* an element, where data is moved by size */
} gpu_parameters;

/* Every operand lies densely, or is one number. */
typedef struct gpu_dense {
    uint64_t count;
    void *to;
    const void *from[GPU_OPERANDS - 1]; /* NULL: the number */
    uint64_t number[GPU_OPERANDS - 1];  /* the first bytes of an element */
    gpu_parameters q;
    gpu_error *error;
    int64_t call;
    uint32_t vectors; /* 1: all addresses are multiples of 16 */
    uint32_t reserved;
} gpu_dense;

/* Division of 32-bit numbers by one that is known before: x / d is
 * (x * magic >> 32) + x >> shift, in 64 bits. */
typedef struct gpu_divisor {
    uint32_t value, magic, shift;
} gpu_divisor;

/* Any strides, in bytes; dimension 0 is the innermost.  Fewer than 2^31
 * elements: the host cuts what is larger. */
typedef struct gpu_strided {
    uint32_t count, ndim;
    gpu_divisor sizes[GPU_DIMS];
    int64_t strides[GPU_OPERANDS][GPU_DIMS];
    void *data[GPU_OPERANDS];      /* outputs first; NULL: the number */
    uint64_t number[GPU_OPERANDS]; /* the first bytes of an element */
    gpu_parameters q;
    gpu_error *error;
    int64_t call;
    /* Of kernels by rows, a bit each: element i of the operand is i elements
     * behind its address, a multiple of 16, as if it were of one row. */
    uint32_t flat;
    uint32_t reserved;
} gpu_strided;

/* -------------------------------------------------------------- moves -- */

/* Repeats a pattern of 1, 2, 4 or 8 bytes. */
typedef struct gpu_fill {
    void *to;
    uint64_t count; /* patterns */
    uint64_t pattern;
} gpu_fill;

/* Strides of up to 8 dimensions of both sides, and a pair of dtypes. */
typedef struct gpu_convert {
    uint32_t count, ndim;
    gpu_divisor sizes[GPU_DIMS];
    int64_t to_strides[GPU_DIMS], from_strides[GPU_DIMS];
    void *to;
    const void *from; /* NULL: the number */
    uint64_t number;
    uint32_t to_dtype, from_dtype;
    uint32_t dense, reserved;
} gpu_convert;

/* --------------------------------------------------------- reductions -- */

enum { GPU_REDUCED = 16 }; /* dimensions, of those kept and of those reduced */

typedef struct gpu_reduction {
    uint64_t outputs; /* elements of each output */
    uint64_t count;   /* elements that come together in one */
    uint64_t chunk;   /* of these, for one block; chunks of them */
    uint32_t chunks, nkept, nreduced, noutputs;
    gpu_divisor kept[GPU_REDUCED], reduced[GPU_REDUCED];
    /* The same in 64 bits, where wide_outputs and wide_count say that numbers
     * of outputs, or of what makes one of them, are beyond 31. */
    int64_t kept_sizes[GPU_REDUCED], reduced_sizes[GPU_REDUCED];
    int64_t to_strides[2][GPU_REDUCED]; /* along the kept */
    int64_t from_strides[GPU_REDUCED];
    int64_t along[GPU_REDUCED]; /* the input's, along the reduced */
    void *to[2];
    const void *from; /* NULL: the number */
    void *partial;    /* chunks states for each output, where chunks > 1 */
    uint64_t number;
    double argument; /* order of a norm, correction of a variance */
    uint32_t to_dtype[2], from_dtype, mode;
    uint32_t wide_outputs, wide_count;
    /* Threads that share an output: a power of two. */
    uint32_t lanes, reserved;
} gpu_reduction;

/* ------------------------------------------------------------ matrices -- */

/* d = alpha sum(a b) + beta c; strides in elements, those of c may be 0. */
typedef struct gpu_matrix {
    int64_t row, column, batch;
    int64_t sum; /* a, b: along the products that are summed */
} gpu_matrix;

typedef struct gpu_product {
    const void *a, *b, *c; /* c NULL: none */
    void *d;
    int64_t rows, columns, inner, batch, sums;
    gpu_matrix a_strides, b_strides, c_strides, d_strides;
    double alpha, beta;
    int64_t alpha_whole, beta_whole; /* of integers */
} gpu_product;

/* ---------------------------------------------------------------- rows -- */

/* At most so many elements of a row are held by one thread (kernels/held.h). */
enum { GPU_ROW_REGISTERS = 32 };

/* Softmax and its like along the middle of outer x size x inner, dense. */
typedef struct gpu_rows {
    void *to;
    const void *from, *other;
    int64_t outer, size, inner;
    uint32_t logarithm, reserved;
} gpu_rows;

#endif
