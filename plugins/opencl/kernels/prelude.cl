/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* prelude.cl: comes before every source.  T0 … T3 are the operands' types,
 * ACC0 … what is summed in, ID0 … the dtypes' numbers (plugin.h). */

#ifdef HAS_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double wide;
#define MOST DBL_MAX
#else
typedef float wide;
#define MOST FLT_MAX
#endif
#pragma OPENCL FP_CONTRACT OFF

/* For #if: the numbers of plugin.h. */
#define F64n 1
#define F32n 2
#define F16n 3
#define BF16n 4
#define I64n 5
#define BOOLn 10

enum { MAX_NDIM = 8, GROUP = 64 };

/* A buffer's element at an offset in bytes. */
#define AT(type, buffer, bytes) ((global type *)((buffer) + (bytes)))

/* opencl.h has the same. */
typedef struct loop {
    ulong numel;
    uint ndim, immediates;
    uint sizes[MAX_NDIM];
    long strides[4][MAX_NDIM];
} loop;

/* stream.c has the same. */
typedef struct word {
    int code, reserved;
    long call, index;
} word;

/* The first one stays. */
static void fail(global word *w, int code, long call, long index)
{
    if (atomic_cmpxchg((volatile global int *)&w->code, 0, code) == 0) {
        w->call = call;
        w->index = index;
    }
}
