/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* without_c_library.h: what kernels need of a C library's headers, for compilers
 * that run in the program (NVRTC, hipRTC) and have none. */

#ifndef GPU_WITHOUT_C_LIBRARY_H
#define GPU_WITHOUT_C_LIBRARY_H

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef long long intptr_t;
typedef unsigned long long uintptr_t;

#undef INT8_MIN
#undef INT8_MAX
#undef UINT8_MAX
#undef INT16_MIN
#undef INT16_MAX
#undef INT32_MIN
#undef INT32_MAX
#undef UINT32_MAX
#undef UINT64_MAX
#undef INT64_MAX
#undef INT64_MIN
#undef UINT32_C
#undef UINT64_C
#undef INT64_C
#define INT8_MIN (-128)
#define INT8_MAX 127
#define UINT8_MAX 255
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define UINT32_MAX 4294967295u
#define UINT64_MAX (~0ull)
#define INT64_MAX 9223372036854775807ll
#define INT64_MIN (-INT64_MAX - 1)
#define UINT32_C(x) x##u
#define UINT64_C(x) x##ull
#define INT64_C(x) x##ll

/* HIP's compiler has these. */
#if !defined(__HIPCC_RTC__)
#define __builtin_copysign copysign
#define __builtin_copysignf copysignf
#define __builtin_fabs fabs
#define __builtin_fabsf fabsf
#define __builtin_fma fma
#define __builtin_fmaf fmaf
#define __builtin_sqrt sqrt
#define __builtin_sqrtf sqrtf
#define __builtin_inf() __longlong_as_double(0x7ff0000000000000)
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_nan(x) __longlong_as_double(0x7ff8000000000000)
#define __builtin_nanf(x) __int_as_float(0x7fc00000)
#define __builtin_memcpy memcpy
#endif
#undef INFINITY
#define INFINITY __builtin_inff()

#endif
