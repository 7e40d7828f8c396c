/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* conversions.h: elements of one dtype as elements of another, with the CPU's
 * bits.  Floats to integers truncate; one that an i64 cannot represent becomes
 * the least i64; narrower integers take the low bits, but an f32, f16 or bf16
 * that does not fit i32 becomes the least i32.  To f16 and bf16, floats are
 * rounded once, and integers as f32. */

#ifndef GPU_CONVERSIONS_H
#define GPU_CONVERSIONS_H

#include "types.h"

template <class M> GPU_DEVICE M gpu_value(typename gpu_type<M>::compute x)
{
    M value;

    gpu_store(value, x);
    return value;
}

/* of_whole: an integer or bool. */
template <class M> struct gpu_converted {
    static GPU_DEVICE_MEMBER M of_whole(int64_t x)
    {
        return (M)x;
    }
    static GPU_DEVICE_MEMBER M of(float x)
    {
        return (M)math_i64_of_f32(x);
    }
    static GPU_DEVICE_MEMBER M of(double x)
    {
        return (M)gpu_whole(x);
    }
};

#define GPU_CONVERTED(M, OF_WHOLE, OF_F32, OF_F64)     \
    template <> struct gpu_converted<M> {              \
        static GPU_DEVICE_MEMBER M of_whole(int64_t x) \
        {                                              \
            return OF_WHOLE;                           \
        }                                              \
        static GPU_DEVICE_MEMBER M of(float x)         \
        {                                              \
            return OF_F32;                             \
        }                                              \
        static GPU_DEVICE_MEMBER M of(double x)        \
        {                                              \
            return OF_F64;                             \
        }                                              \
    };
GPU_CONVERTED(double, (double)x, x, x)
GPU_CONVERTED(float, (float)x, x, (float)x)
GPU_CONVERTED(gpu_f16, gpu_f16_of((float)x), gpu_f16_of(x),
              gpu_f16_of(math_odd_of_f64(x)))
GPU_CONVERTED(gpu_bf16, gpu_bf16_of((float)x), gpu_bf16_of(x),
              gpu_bf16_of(math_odd_of_f64(x)))
GPU_CONVERTED(int32_t, (int32_t)x, math_i32_of_f32(x), (int32_t)gpu_whole(x))
GPU_CONVERTED(gpu_bool, gpu_value<gpu_bool>(x != 0),
              gpu_value<gpu_bool>(x != 0), gpu_value<gpu_bool>(x != 0))
#undef GPU_CONVERTED

/* Writes an element of a dtype that is only known at run time, as `from` is,
 * the dtype of x. */
GPU_DEVICE void gpu_write_converted(void *at, uint32_t dtype, double x,
                                    uint32_t from)
{
    switch (dtype) {
    case GPU_F16:
        *(gpu_f16 *)at = gpu_converted<gpu_f16>::of(x);
        break;
    case GPU_BF16:
        *(gpu_bf16 *)at = gpu_converted<gpu_bf16>::of(x);
        break;
    case GPU_I32:
        *(int32_t *)at = from == GPU_F64 ? gpu_converted<int32_t>::of(x)
                                         : gpu_converted<int32_t>::of((float)x);
        break;
    default:
        gpu_write_f64(at, dtype, x);
        break;
    }
}

#endif
