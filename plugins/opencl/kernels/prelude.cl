/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* prelude.cl: prepended to every source.  T0 … T3 are the operands' types, C0 …
 * the types of computation, GET0 and PUT0 … the conversions, ACC0 … the types
 * of sums, ID0 … the dtypes' numbers (plugin.h). */

#ifdef HAS_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double wide;
#define MOST DBL_MAX
#else
typedef float wide;
#define MOST FLT_MAX
#endif
#pragma OPENCL FP_CONTRACT OFF

/* Half-precision elements are stored as bits: no device needs cl_khr_fp16. */
static float get_f16(ushort bits)
{
    return vload_half(0, (const half *)&bits);
}

static ushort put_f16(float x)
{
    ushort bits;

    vstore_half_rte(x, 0, (half *)&bits);
    return bits;
}

static float get_bf16(ushort bits)
{
    return as_float((uint)bits << 16);
}

/* To nearest, ties to even. */
static ushort put_bf16(float x)
{
    uint bits = as_uint(x);

    return x != x ? (ushort)0x7fc0
                  : (ushort)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* For #if: the numbers of plugin.h. */
#define F64n 1
#define F32n 2
#define F16n 3
#define BF16n 4
#define I64n 5
#define BOOLn 10

enum { MAX_NDIM = 8, GROUP = 64 };

/* The element of a buffer at an offset in bytes. */
#define AT(type, buffer, bytes) ((global type *)((buffer) + (bytes)))
/* Loads element i with operand k's type. */
#define LOAD(k, buffer, bytes, i) GET##k(AT(const T##k, buffer, bytes)[i])
#define STORE(k, buffer, bytes, i, x) AT(T##k, buffer, bytes)[i] = PUT##k(x)

/* Must match opencl.h. */
typedef struct loop {
    ulong numel;
    uint ndim, immediates;
    uint sizes[MAX_NDIM];
    long strides[4][MAX_NDIM];
} loop;

/* Must match stream.c. */
typedef struct fault {
    int code, reason;
    long call, index;
} fault;

/* stream.c has their texts. */
enum { PLAIN, PROBABILITY, WEIGHTS, REPEATS, SHORT_SOURCE };

/* Only the first error is kept. */
static void fail_because(global fault *w, int code, int reason, long call,
                         long index)
{
    if (atomic_cmpxchg((volatile global int *)&w->code, 0, code) == 0) {
        w->reason = reason;
        w->call = call;
        w->index = index;
    }
}

static void fail(global fault *w, int code, long call, long index)
{
    fail_because(w, code, PLAIN, call, index);
}
