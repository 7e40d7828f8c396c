/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared.h: the parameters of kernels.  Read by C (the host side) and by every
 * kernel compiler: widths are fixed and there is no implicit padding. */

#ifndef GPU_SHARED_H
#define GPU_SHARED_H

#include <stdint.h>

/* The error record of a stream. */
typedef struct gpu_error {
    int32_t code; /* a core_status; 0: no error */
    int32_t reserved;
    int64_t call; /* core_call.id */
    int64_t index;
} gpu_error;

/* The codes that kernels report. */
enum {
    GPU_BAD_ARGUMENT = 1, /* CORE_ERROR_INVALID_ARGUMENT: division by zero */
    GPU_BAD_INDEX = 8,    /* CORE_ERROR_INDEX */
    /* A core_status; the upper bits select the text. */
    GPU_BAD_PROBABILITY = 1 | 1 << 16,
    GPU_BAD_REPEATS = 1 | 2 << 16,
    GPU_SHORT_SOURCE = 1 | 3 << 16,
    GPU_BAD_WEIGHTS = 1 | 4 << 16,
    GPU_NOT_POSITIVE = 1 | 5 << 16
};

/* The ids of the dtypes, as in plugin.h. */
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
/* The largest number of elements in one load or store. */
enum { GPU_ROW = 8 };

/* The numeric arguments of an operator, as doubles and as integers. */
typedef struct gpu_parameters {
    double d[GPU_PARAMETERS];
    int64_t i[GPU_PARAMETERS];
    uint64_t bits; /* the bits of an element */
} gpu_parameters;

/* Every operand is dense or a number. */
typedef struct gpu_dense {
    uint64_t count;
    void *to;
    const void *from[GPU_OPERANDS - 1]; /* NULL: number is used */
    uint64_t number[GPU_OPERANDS - 1];  /* the bits of an element */
    gpu_parameters q;
    gpu_error *error;
    int64_t call;
    uint32_t vectors; /* 1: all addresses are multiples of 16 */
    uint32_t reserved;
} gpu_dense;

/* Division of 32-bit numbers by a known one: x / d is ((x * magic >> 32) + x)
 * >> shift, in 64 bits. */
typedef struct gpu_divisor {
    uint32_t value, magic, shift;
} gpu_divisor;

/* Any strides, in bytes; dimension 0 is the innermost.  There are fewer than
 * 2^31 elements: the host cuts larger loops. */
typedef struct gpu_strided {
    uint32_t count, ndim;
    gpu_divisor sizes[GPU_DIMS];
    int64_t strides[GPU_OPERANDS][GPU_DIMS];
    void *data[GPU_OPERANDS];      /* outputs first; NULL: number is used */
    uint64_t number[GPU_OPERANDS]; /* the bits of an element */
    gpu_parameters q;
    gpu_error *error;
    int64_t call;
    /* For kernels by rows, one bit per operand: element i is i elements after
     * the operand's address, a multiple of 16, as if all rows were one. */
    uint32_t flat;
    uint32_t reserved;
} gpu_strided;

/* -------------------------------------------------------------- moves -- */

/* Repeats a pattern of 1, 2, 4 or 8 bytes. */
typedef struct gpu_fill {
    void *to;
    uint64_t count; /* in patterns */
    uint64_t pattern;
} gpu_fill;

/* Up to 8 dimensions with strides of both sides, and a pair of dtypes. */
typedef struct gpu_convert {
    uint32_t count, ndim;
    gpu_divisor sizes[GPU_DIMS];
    int64_t to_strides[GPU_DIMS], from_strides[GPU_DIMS];
    void *to;
    const void *from; /* NULL: number is used */
    uint64_t number;
    uint32_t to_dtype, from_dtype;
    uint32_t dense, reserved;
} gpu_convert;

/* --------------------------------------------------------- reductions -- */

enum { GPU_REDUCED = 16 }; /* kept dimensions, and reduced ones */

typedef struct gpu_reduction {
    uint64_t outputs; /* the number of outputs */
    uint64_t count;   /* input elements per output */
    uint64_t chunk;   /* elements per block; the number of chunks */
    uint32_t chunks, nkept, nreduced, noutputs;
    gpu_divisor kept[GPU_REDUCED], reduced[GPU_REDUCED];
    /* The same in 64 bits, used if wide_outputs or wide_count says that there
     * are 2^31 or more outputs, or elements of an output. */
    int64_t kept_sizes[GPU_REDUCED], reduced_sizes[GPU_REDUCED];
    int64_t to_strides[2][GPU_REDUCED]; /* along kept dimensions */
    int64_t from_strides[GPU_REDUCED];
    int64_t along[GPU_REDUCED]; /* the input's, along reduced dimensions */
    void *to[2];
    const void *from; /* NULL: the number is used */
    void *partial;    /* `chunks` states per output, if chunks > 1 */
    uint64_t number;
    double argument; /* order of a norm, correction of a variance */
    uint32_t to_dtype[2], from_dtype, mode;
    uint32_t wide_outputs, wide_count;
    /* The number of threads that share a chunk, and of those that merge the
     * chunks of an output; powers of two. */
    uint32_t lanes, merge_lanes;
    /* 1: 16 bytes may be loaded at a time, along the first reduced dimension,
     * or for columns along the first kept one. */
    uint32_t vectors, reserved;
} gpu_reduction;

/* ------------------------------------------------------------ matrices -- */

/* d = alpha sum(a b) + beta c.  Strides are in elements; those of c may be
 * 0. */
typedef struct gpu_matrix {
    int64_t row, column, batch;
    int64_t sum; /* a, b: between the products that are summed */
} gpu_matrix;

typedef struct gpu_product {
    const void *a, *b, *c; /* c may be NULL */
    void *d;
    int64_t rows, columns, inner, batch, sums;
    gpu_matrix a_strides, b_strides, c_strides, d_strides;
    double alpha, beta;
    int64_t alpha_whole, beta_whole; /* for integers */
} gpu_product;

/* ---------------------------------------------------------------- rows -- */

/* The largest number of elements of a row that a thread keeps in registers
 * (kernels/row_registers.h). */
enum { GPU_ROW_REGISTERS = 32 };

/* Softmax and similar operators along the middle dimension of outer x size x
 * inner, dense. */
typedef struct gpu_rows {
    void *to;
    const void *from, *other;
    int64_t outer, size, inner;
    uint32_t logarithm, reserved;
} gpu_rows;

#endif
