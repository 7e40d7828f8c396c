/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* types.h: the types of elements in memory, and the types that are computed
 * with: float for f16 and bf16.  gpu_load and gpu_store convert between
 * them. */

#ifndef GPU_TYPES_H
#define GPU_TYPES_H

#include "math.h"

struct gpu_f16 {
    uint16_t bits;
};
struct gpu_bf16 {
    uint16_t bits;
};
struct gpu_bool {
    uint8_t bits;
};

GPU_DEVICE float gpu_f32_of(gpu_f16 x)
{
#if defined(GPU_EMULATED)
    return math_f32_of_f16(x.bits);
#elif defined(__HIP_PLATFORM_AMD__) || defined(__HIP_PLATFORM_HCC__)
    _Float16 half;
    __builtin_memcpy(&half, &x.bits, 2);
    return (float)half;
#else
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
#endif
}

GPU_DEVICE gpu_f16 gpu_f16_of(float x)
{
    gpu_f16 half;
#if defined(GPU_EMULATED)
    half.bits = math_f16_of_f32(x);
#elif defined(__HIP_PLATFORM_AMD__) || defined(__HIP_PLATFORM_HCC__)
    _Float16 narrow = (_Float16)x;
    __builtin_memcpy(&half.bits, &narrow, 2);
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(x));
#endif
    return half;
}

GPU_DEVICE float gpu_f32_of(gpu_bf16 x)
{
    return math_f32_of_bits((uint32_t)x.bits << 16);
}

GPU_DEVICE gpu_bf16 gpu_bf16_of(float x)
{
    gpu_bf16 half;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half.bits) : "f"(x));
#else
    uint32_t bits = math_bits_of_f32(x);

    half.bits = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
    if (x != x) /* the instruction's NaN has other bits */
        half.bits = 0x7fc0;
    return half;
}

/* The type that an element of memory type M is computed as. */
template <class M> struct gpu_type {
    typedef M compute;
};
template <> struct gpu_type<gpu_f16> {
    typedef float compute;
};
template <> struct gpu_type<gpu_bf16> {
    typedef float compute;
};
template <> struct gpu_type<gpu_bool> {
    typedef uint8_t compute;
};

/* Load and store one element, converted as in C (but see gpu_whole). */
template <class M> GPU_DEVICE typename gpu_type<M>::compute gpu_load(const M &x)
{
    return x;
}
GPU_DEVICE float gpu_load(const gpu_f16 &x)
{
    return gpu_f32_of(x);
}
GPU_DEVICE float gpu_load(const gpu_bf16 &x)
{
    return gpu_f32_of(x);
}
GPU_DEVICE uint8_t gpu_load(const gpu_bool &x)
{
    return x.bits;
}

template <class T> GPU_DEVICE void gpu_store(T &to, T x)
{
    to = x;
}
GPU_DEVICE void gpu_store(gpu_f16 &to, float x)
{
    to = gpu_f16_of(x);
}
GPU_DEVICE void gpu_store(gpu_bf16 &to, float x)
{
    to = gpu_bf16_of(x);
}
GPU_DEVICE void gpu_store(gpu_bool &to, uint8_t x)
{
    to.bits = x;
}

/* A float that does not fit i64 becomes its least value; narrower integers
 * wrap. */
GPU_DEVICE int64_t gpu_whole(double x)
{
    return math_i64_of_f64(x);
}

/* Access to an element whose dtype is only known at run time. */
GPU_DEVICE double gpu_read_f64(const void *at, uint32_t dtype)
{
    switch (dtype) {
    case GPU_F64:
        return *(const double *)at;
    case GPU_F32:
        return *(const float *)at;
    case GPU_F16:
        return gpu_f32_of(*(const gpu_f16 *)at);
    case GPU_BF16:
        return gpu_f32_of(*(const gpu_bf16 *)at);
    case GPU_I64:
        return (double)*(const int64_t *)at;
    case GPU_I32:
        return *(const int32_t *)at;
    case GPU_I16:
        return *(const int16_t *)at;
    case GPU_I8:
        return *(const int8_t *)at;
    default:
        return *(const uint8_t *)at;
    }
}

GPU_DEVICE int64_t gpu_read_i64(const void *at, uint32_t dtype)
{
    switch (dtype) {
    case GPU_I64:
        return *(const int64_t *)at;
    case GPU_I32:
        return *(const int32_t *)at;
    case GPU_I16:
        return *(const int16_t *)at;
    case GPU_I8:
        return *(const int8_t *)at;
    case GPU_U8:
    case GPU_BOOL:
        return *(const uint8_t *)at;
    default:
        return gpu_whole(gpu_read_f64(at, dtype));
    }
}

GPU_DEVICE void gpu_write_i64(void *at, uint32_t dtype, int64_t x)
{
    switch (dtype) {
    case GPU_F64:
        *(double *)at = (double)x;
        break;
    case GPU_F32:
        *(float *)at = (float)x;
        break;
    case GPU_F16:
        *(gpu_f16 *)at = gpu_f16_of((float)x);
        break;
    case GPU_BF16:
        *(gpu_bf16 *)at = gpu_bf16_of((float)x);
        break;
    case GPU_I64:
        *(int64_t *)at = x;
        break;
    case GPU_I32:
        *(int32_t *)at = (int32_t)x;
        break;
    case GPU_I16:
        *(int16_t *)at = (int16_t)x;
        break;
    case GPU_BOOL:
        *(uint8_t *)at = x != 0;
        break;
    default:
        *(int8_t *)at = (int8_t)x;
        break;
    }
}

GPU_DEVICE void gpu_write_f64(void *at, uint32_t dtype, double x)
{
    switch (dtype) {
    case GPU_F64:
        *(double *)at = x;
        break;
    case GPU_F32:
        *(float *)at = (float)x;
        break;
    case GPU_F16:
        *(gpu_f16 *)at = gpu_f16_of((float)x);
        break;
    case GPU_BF16:
        *(gpu_bf16 *)at = gpu_bf16_of((float)x);
        break;
    case GPU_BOOL:
        *(uint8_t *)at = x != 0;
        break;
    default:
        gpu_write_i64(at, dtype, gpu_whole(x));
        break;
    }
}

GPU_DEVICE uint32_t gpu_bytes(uint32_t dtype)
{
    switch (dtype) {
    case GPU_F64:
    case GPU_I64:
        return 8;
    case GPU_F32:
    case GPU_I32:
        return 4;
    case GPU_F16:
    case GPU_BF16:
    case GPU_I16:
        return 2;
    default:
        return 1;
    }
}

/* Integers and bools whose dtype is only known at run time, computed as i64;
 * and a way to access elements for these and for other types. */
struct gpu_integer {
    uint8_t bits;
};
template <> struct gpu_type<gpu_integer> {
    typedef int64_t compute;
};

template <class M> struct gpu_element {
    typedef typename gpu_type<M>::compute T;

    static GPU_DEVICE_MEMBER T get(const void *from, int64_t i, uint32_t)
    {
        return gpu_load(((const M *)from)[i]);
    }
    static GPU_DEVICE_MEMBER void put(void *to, int64_t i, uint32_t, T x)
    {
        gpu_store(((M *)to)[i], x);
    }
};
template <> struct gpu_element<gpu_integer> {
    static GPU_DEVICE_MEMBER int64_t get(const void *from, int64_t i,
                                         uint32_t dtype)
    {
        return gpu_read_i64((const char *)from + i * gpu_bytes(dtype), dtype);
    }
    static GPU_DEVICE_MEMBER void put(void *to, int64_t i, uint32_t dtype,
                                      int64_t x)
    {
        gpu_write_i64((char *)to + i * gpu_bytes(dtype), dtype, x);
    }
};

/* N elements, at most 16 bytes, in one load. */
template <class M, int N> struct alignas(sizeof(M) * N) gpu_vector {
    M at[N];
};

template <class A, class B> struct gpu_larger {
    enum { value = sizeof(A) > sizeof(B) ? sizeof(A) : sizeof(B) };
};

/* a / b of non-negative numbers: most fit 32 bits, whose division is faster on
 * devices.  *out_rest: the remainder. */
GPU_DEVICE int64_t gpu_split(int64_t a, int64_t b, int64_t *out_rest)
{
    int64_t q;

    if (((uint64_t)(a | b) >> 32) == 0)
        q = (int64_t)((uint32_t)a / (uint32_t)b);
    else
        q = a / b;
    *out_rest = a - q * b;
    return q;
}

/* x / d.value */
GPU_DEVICE uint32_t gpu_divide(uint32_t x, gpu_divisor d)
{
    return (uint32_t)(((uint64_t)x * d.magic >> 32) + x) >> d.shift;
}

#endif
