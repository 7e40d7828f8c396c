/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "block.h"
#include "block_table.h"

#include <string.h>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include <expressions/number.h>
#include <libcore/sdk.h>

/* --------------------------------------------------------------- halves -- */

/* Equal for every instruction set but for NaN: those that convert f16 keep the
 * payload and make it quiet, math_f16_of_f32 gives 0x7e00 with the sign, and
 * math_f32_of_f16 keeps a signalling NaN. */

/* Blocks are short and alternate between operands, which defeats hardware
 * prefetching.  So each block prefetches two blocks ahead. */
enum { LINE = 32, AHEAD = 2 * CPU_BLOCK };

static void f32_from_bf16(float *to, const uint16_t *from, int64_t n)
{
    int64_t k = 0;

    for (; k + LINE <= n; k += LINE) {
        __builtin_prefetch(from + k + AHEAD);
        MATH_LOOP
        for (int64_t j = k; j < k + LINE; j++)
            to[j] = math_f32_of_bits((uint32_t)from[j] << 16);
    }
    MATH_LOOP
    for (; k < n; k++)
        to[k] = math_f32_of_bits((uint32_t)from[k] << 16);
}

/* Rounds whole vectors to bf16; returns how many elements. */
#if defined(__AVX512F__)

static inline __m512i rounded(const float *from)
{
    __m512 x = _mm512_loadu_ps(from);
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd =
        _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i sum = _mm512_add_epi32(
        _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);

    return _mm512_mask_or_epi32(sum, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                                bits, _mm512_set1_epi32(0x400000));
}

static inline int64_t bf16_vectors(uint16_t *to, const float *from, int64_t n)
{
    static const uint16_t upper[LINE] = {
        1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
        33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    __m512i halves = _mm512_loadu_si512(upper);
    int64_t k = 0;

    for (; k + LINE <= n; k += LINE)
        _mm512_storeu_si512(
            to + k, _mm512_permutex2var_epi16(rounded(from + k), halves,
                                              rounded(from + k + LINE / 2)));
    return k;
}

#elif defined(__AVX2__)

static inline __m256i rounded(const float *from)
{
    __m256 x = _mm256_loadu_ps(from);
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd =
        _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i sum = _mm256_add_epi32(
        _mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));

    return _mm256_srli_epi32(
        _mm256_castps_si256(_mm256_blendv_ps(
            _mm256_castsi256_ps(sum), _mm256_castsi256_ps(quiet),
            _mm256_cmp_ps(x, x, _CMP_UNORD_Q))),
        16);
}

static inline int64_t bf16_vectors(uint16_t *to, const float *from, int64_t n)
{
    int64_t k = 0;

    for (; k + LINE / 2 <= n; k += LINE / 2) {
        __m256i both = _mm256_packus_epi32(rounded(from + k),
                                           rounded(from + k + LINE / 4));

        _mm256_storeu_si256((void *)(to + k),
                            _mm256_permute4x64_epi64(both, 0xd8));
    }
    return k;
}

#else

static inline int64_t bf16_vectors(uint16_t *to, const float *from, int64_t n)
{
    (void)to;
    (void)from;
    (void)n;
    return 0;
}

#endif

static void bf16_from_f32(uint16_t *to, const float *from, int64_t n)
{
    int64_t k = bf16_vectors(to, from, n);

    MATH_LOOP
    for (; k < n; k++)
        to[k] = math_bf16_of_f32(from[k]);
}

#if defined(__AVX512F__)

enum { HALVES = 16 };

static inline void widen(float *to, const uint16_t *from)
{
    _mm512_storeu_ps(to,
                     _mm512_cvtph_ps(_mm256_loadu_si256((const void *)from)));
}

static inline void narrow(uint16_t *to, const float *from)
{
    _mm256_storeu_si256((void *)to, _mm512_cvtps_ph(_mm512_loadu_ps(from),
                                                    _MM_FROUND_TO_NEAREST_INT |
                                                        _MM_FROUND_NO_EXC));
}

#elif defined(__F16C__)

enum { HALVES = 8 };

static inline void widen(float *to, const uint16_t *from)
{
    _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128((const void *)from)));
}

static inline void narrow(uint16_t *to, const float *from)
{
    _mm_storeu_si128((void *)to, _mm256_cvtps_ph(_mm256_loadu_ps(from),
                                                 _MM_FROUND_TO_NEAREST_INT));
}

#else

enum { HALVES = 8 };

static inline void widen(float *to, const uint16_t *from)
{
    for (int k = 0; k < HALVES; k++)
        to[k] = math_f32_of_f16(from[k]);
}

static inline void narrow(uint16_t *to, const float *from)
{
    for (int k = 0; k < HALVES; k++)
        to[k] = math_f16_of_f32(from[k]);
}

#endif

/* The rest of a run is padded to a whole group, so that an element's bits do
 * not depend on its position. */
static void f32_from_f16(float *to, const uint16_t *from, int64_t n)
{
    uint16_t rest[HALVES] = {0};
    float wide[HALVES];
    int64_t k;

    for (k = 0; k + HALVES <= n; k += HALVES) {
        __builtin_prefetch(from + k + AHEAD);
        widen(to + k, from + k);
    }
    if (k == n)
        return;
    memcpy(rest, from + k, (size_t)(n - k) * 2);
    widen(wide, rest);
    memcpy(to + k, wide, (size_t)(n - k) * 4);
}

static void f16_from_f32(uint16_t *to, const float *from, int64_t n)
{
    float rest[HALVES] = {0};
    uint16_t half[HALVES];
    int64_t k;

    for (k = 0; k + HALVES <= n; k += HALVES)
        narrow(to + k, from + k);
    if (k == n)
        return;
    memcpy(rest, from + k, (size_t)(n - k) * 4);
    narrow(half, rest);
    memcpy(to + k, half, (size_t)(n - k) * 2);
}

/* ------------------------------------- to and from an intermediate dtype -- */

/* Every conversion goes through one of three wide types, f32, f64 and i64: the
 * one that can represent all values of the source. */

#define LOOP(NAME, TO, FROM, EXPRESSION)                  \
    static void NAME(TO *to, const FROM *from, int64_t n) \
    {                                                     \
        MATH_LOOP                                         \
        for (int64_t k = 0; k < n; k++) {                 \
            FROM x = from[k];                             \
            to[k] = (TO)(EXPRESSION);                     \
        }                                                 \
    }

LOOP(i64_from_i32, int64_t, int32_t, x)
LOOP(i64_from_i16, int64_t, int16_t, x)
LOOP(i64_from_i8, int64_t, int8_t, x)
LOOP(i64_from_u8, int64_t, uint8_t, x)
LOOP(i64_from_bool, int64_t, uint8_t, x != 0)
LOOP(i32_from_i64, int32_t, int64_t, x)
LOOP(i16_from_i64, int16_t, int64_t, x)
LOOP(i8_from_i64, int8_t, int64_t, x)
LOOP(bool_from_i64, uint8_t, int64_t, x != 0)
LOOP(bool_from_f32, uint8_t, float, x != 0)
LOOP(bool_from_f64, uint8_t, double, x != 0)
LOOP(f32_from_f64, float, double, x)
LOOP(f64_from_f32, double, float, x)
LOOP(f32_from_i64, float, int64_t, x)
LOOP(f64_from_i64, double, int64_t, x)
LOOP(i64_from_f32, int64_t, float, math_i64_of_f32(x))
LOOP(i64_from_f64, int64_t, double, math_i64_of_f64(x))
LOOP(f32_from_e4m3, float, uint8_t, math_f32_of_e4m3(x))
LOOP(f32_from_e5m2, float, uint8_t, math_f32_of_e5m2(x))
LOOP(e4m3_from_f32, uint8_t, float, math_e4m3_of_f32(x))
LOOP(e5m2_from_f32, uint8_t, float, math_e5m2_of_f32(x))
LOOP(odd_from_f64, float, double, math_odd_of_f64(x))
/* Not required, but often used. */
LOOP(f32_from_i32, float, int32_t, x)
LOOP(f32_from_u8, float, uint8_t, x)
LOOP(f32_from_bool, float, uint8_t, x != 0)
LOOP(i32_from_f32, int32_t, float, math_i32_of_f32(x))
#undef LOOP

static int is_float8(core_dtype dtype)
{
    return dtype == CORE_F8E4M3 || dtype == CORE_F8E5M2;
}

static core_dtype intermediate_of(core_dtype dtype)
{
    if (dtype == CORE_F64)
        return CORE_F64;
    return dtype <= CORE_BF16 || is_float8(dtype) ? CORE_F32 : CORE_I64;
}

/* Up to CPU_BLOCK elements from one intermediate dtype to another. */
static void between_intermediates(core_dtype to_intermediate, void *to,
                                  core_dtype intermediate, const void *from,
                                  int64_t n)
{
    if (to_intermediate == CORE_F32) {
        if (intermediate == CORE_F64)
            f32_from_f64(to, from, n);
        else
            f32_from_i64(to, from, n);
    } else if (to_intermediate == CORE_F64) {
        if (intermediate == CORE_F32)
            f64_from_f32(to, from, n);
        else
            f64_from_i64(to, from, n);
    } else if (intermediate == CORE_F32) {
        i64_from_f32(to, from, n);
    } else {
        i64_from_f64(to, from, n);
    }
}

/* dtype is not one of the wide types. */
static void to_intermediate(core_dtype dtype, void *to, const void *from,
                            int64_t n)
{
    switch (dtype) {
    case CORE_F16:
        f32_from_f16(to, from, n);
        break;
    case CORE_BF16:
        f32_from_bf16(to, from, n);
        break;
    case CORE_F8E4M3:
        f32_from_e4m3(to, from, n);
        break;
    case CORE_F8E5M2:
        f32_from_e5m2(to, from, n);
        break;
    case CORE_I32:
        i64_from_i32(to, from, n);
        break;
    case CORE_I16:
        i64_from_i16(to, from, n);
        break;
    case CORE_I8:
        i64_from_i8(to, from, n);
        break;
    case CORE_U8:
        i64_from_u8(to, from, n);
        break;
    default:
        i64_from_bool(to, from, n);
        break;
    }
}

static void from_intermediate(core_dtype dtype, void *to, const void *from,
                              int64_t n)
{
    switch (dtype) {
    case CORE_F16:
        f16_from_f32(to, from, n);
        break;
    case CORE_BF16:
        bf16_from_f32(to, from, n);
        break;
    case CORE_F8E4M3:
        e4m3_from_f32(to, from, n);
        break;
    case CORE_F8E5M2:
        e5m2_from_f32(to, from, n);
        break;
    case CORE_I32:
        i32_from_i64(to, from, n);
        break;
    case CORE_I16:
        i16_from_i64(to, from, n);
        break;
    case CORE_I8:
    case CORE_U8:
        i8_from_i64(to, from, n);
        break;
    default:
        bool_from_i64(to, from, n);
        break;
    }
}

/* Conversions that have a direct loop; returns 0 if there is none. */
static int convert_at_once(core_dtype to_dtype, void *to, core_dtype dtype,
                           const void *from, int64_t n)
{
    if (to_dtype == dtype) {
        memcpy(to, from, (size_t)n * cpu_bytes_of(dtype));
        return 1;
    }
    if (to_dtype == CORE_BOOL && dtype == CORE_F32) {
        bool_from_f32(to, from, n);
        return 1;
    }
    if (to_dtype == CORE_BOOL && dtype == CORE_F64) {
        bool_from_f64(to, from, n);
        return 1;
    }
    if (to_dtype == CORE_F32) {
        switch (dtype) {
        case CORE_I32:
            f32_from_i32(to, from, n);
            return 1;
        case CORE_U8:
            f32_from_u8(to, from, n);
            return 1;
        case CORE_BOOL:
            f32_from_bool(to, from, n);
            return 1;
        default:
            return 0;
        }
    }
    if (to_dtype == CORE_I32 && dtype == CORE_F32) {
        i32_from_f32(to, from, n);
        return 1;
    }
    return 0;
}

static void convert_block(core_dtype to_dtype, void *to, core_dtype dtype,
                          const void *from, int64_t n)
{
    _Alignas(64) char wide[CPU_BLOCK_BYTES];
    _Alignas(64) char other[CPU_BLOCK_BYTES];
    core_dtype intermediate = intermediate_of(dtype),
               last = intermediate_of(to_dtype);

    if (convert_at_once(to_dtype, to, dtype, from, n))
        return;
    if (dtype != intermediate) {
        void *next = to_dtype == intermediate ? to : wide;

        to_intermediate(dtype, next, from, n);
        from = next;
    }
    if (intermediate != last && to_dtype == CORE_BOOL) {
        /* Only tests for zero: not through an integer. */
        bool_from_f32(to, from, n);
        return;
    }
    if (intermediate == CORE_F32 && to_dtype == CORE_I32) {
        i32_from_f32(to, from, n); /* f16 and bf16 like f32 */
        return;
    }
    if (intermediate != last) {
        void *next = to_dtype == last ? to : other;

        /* Rounded once: with so few bits a second rounding would be visible. */
        if (is_float8(to_dtype) && intermediate == CORE_F64)
            odd_from_f64(next, from, n);
        else
            between_intermediates(last, next, intermediate, from, n);
        from = next;
    }
    if (to_dtype != last)
        from_intermediate(to_dtype, to, from, n);
}

void cpu_convert(core_dtype to_dtype, void *to, core_dtype dtype,
                 const void *from, int64_t n)
{
    uint32_t to_bytes = cpu_bytes_of(to_dtype), bytes = cpu_bytes_of(dtype);
    int64_t k;

    for (k = 0; k < n; k += CPU_BLOCK)
        convert_block(to_dtype, (char *)to + k * to_bytes, dtype,
                      (const char *)from + k * bytes,
                      n - k < CPU_BLOCK ? n - k : CPU_BLOCK);
}

uint64_t cpu_scalar_bits(const core_value *value, core_dtype dtype)
{
    uint64_t bits = 0;

    if (value->tag == CORE_VALUE_FLOAT)
        cpu_convert(dtype, &bits, CORE_F64, &value->u.f, 1);
    else
        cpu_convert(dtype, &bits, CORE_I64, &value->u.i, 1);
    return bits;
}

/* -------------------------------------------------------------- strides -- */

/* Of a few kilobytes, the C library copies with an instruction that is slow
 * where source and target are not aligned alike. */
static void copy_dense(char *to, const char *from, int64_t size)
{
    enum { LINE = 64, LEAST = 1024, MOST = 65536 };
    int64_t at = 0;

    for (; size >= LEAST && size <= MOST && at + 2 * LINE <= size;
         at += 2 * LINE) {
        memcpy(to + at, from + at, LINE);
        memcpy(to + at + LINE, from + at + LINE, LINE);
    }
    memcpy(to + at, from + at, (size_t)(size - at));
}

#define MOVE(NAME, TYPE)                                                   \
    static void gather_##NAME(TYPE *to, const char *from, int64_t stride,  \
                              int64_t n)                                   \
    {                                                                      \
        for (int64_t k = 0; k < n; k++)                                    \
            to[k] = *(const TYPE *)(from + k * stride);                    \
    }                                                                      \
    /* Every step-th element: with a constant step this is vectorized. */  \
    static inline void every_##NAME(TYPE *to, const TYPE *from, int step,  \
                                    int64_t n)                             \
    {                                                                      \
        MATH_LOOP                                                          \
        for (int64_t k = 0; k < n; k++)                                    \
            to[k] = from[k * step];                                        \
    }                                                                      \
    static void pick_##NAME(TYPE *to, const char *from, int64_t stride,    \
                            int64_t n)                                     \
    {                                                                      \
        const TYPE *first = (const TYPE *)(const void *)from;              \
        if (stride == 2 * (int64_t)sizeof(TYPE))                           \
            every_##NAME(to, first, 2, n);                                 \
        else if (stride == 3 * (int64_t)sizeof(TYPE))                      \
            every_##NAME(to, first, 3, n);                                 \
        else if (stride == 4 * (int64_t)sizeof(TYPE))                      \
            every_##NAME(to, first, 4, n);                                 \
        else if (stride == -(int64_t)sizeof(TYPE))                         \
            every_##NAME(to, first, -1, n);                                \
        else                                                               \
            gather_##NAME(to, from, stride, n);                            \
    }                                                                      \
    static void scatter_##NAME(char *to, int64_t stride, const TYPE *from, \
                               int64_t n)                                  \
    {                                                                      \
        for (int64_t k = 0; k < n; k++)                                    \
            *(TYPE *)(to + k * stride) = from[k];                          \
    }

/* Elements of any dtype move as integers of their size. */
typedef uint16_t __attribute__((may_alias)) word16;
typedef uint32_t __attribute__((may_alias)) word32;
typedef uint64_t __attribute__((may_alias)) word64;
MOVE(8, uint8_t)
MOVE(16, word16)
MOVE(32, word32)
MOVE(64, word64)
#undef MOVE

#define REPEAT(NAME, TYPE)                                           \
    static void repeat_##NAME(TYPE *to, const char *from, int64_t n) \
    {                                                                \
        TYPE x = *(const TYPE *)from;                                \
        for (int64_t k = 0; k < n; k++)                              \
            to[k] = x;                                               \
    }
REPEAT(16, word16)
REPEAT(32, word32)
REPEAT(64, word64)
#undef REPEAT

void cpu_gather(void *to, const char *from, int64_t stride, uint32_t bytes,
                int64_t n)
{
    if (stride == (int64_t)bytes) {
        copy_dense(to, from, n * bytes);
        return;
    }
    if (stride == 0) {
        switch (bytes) {
        case 1:
            memset(to, *(const unsigned char *)from, (size_t)n);
            return;
        case 2:
            repeat_16(to, from, n);
            return;
        case 4:
            repeat_32(to, from, n);
            return;
        default:
            repeat_64(to, from, n);
            return;
        }
    }
    switch (bytes) {
    case 1:
        pick_8(to, from, stride, n);
        break;
    case 2:
        pick_16(to, from, stride, n);
        break;
    case 4:
        pick_32(to, from, stride, n);
        break;
    default:
        pick_64(to, from, stride, n);
        break;
    }
}

void cpu_scatter(char *to, int64_t stride, const void *from, uint32_t bytes,
                 int64_t n)
{
    if (stride == (int64_t)bytes) {
        copy_dense(to, from, n * bytes);
        return;
    }
    switch (bytes) {
    case 1:
        scatter_8(to, stride, from, n);
        break;
    case 2:
        scatter_16(to, stride, from, n);
        break;
    case 4:
        scatter_32(to, stride, from, n);
        break;
    default:
        scatter_64(to, stride, from, n);
        break;
    }
}

void cpu_load(core_dtype type, void *to, core_dtype dtype, const char *from,
              int64_t stride, int64_t n)
{
    _Alignas(64) char dense[CPU_BLOCK_BYTES];
    uint32_t bytes = cpu_bytes_of(dtype), wide = cpu_bytes_of(type);
    int64_t k, m;

    if (type == dtype) {
        cpu_gather(to, from, stride, bytes, n);
        return;
    }
    if (stride == (int64_t)bytes) {
        cpu_convert(type, to, dtype, from, n);
        return;
    }
    for (k = 0; k < n; k += m) {
        m = n - k < CPU_BLOCK ? n - k : CPU_BLOCK;
        cpu_gather(dense, from + k * stride, stride, bytes, m);
        convert_block(type, (char *)to + k * wide, dtype, dense, m);
    }
}

void cpu_store(core_dtype dtype, char *to, int64_t stride, core_dtype type,
               const void *from, int64_t n)
{
    _Alignas(64) char dense[CPU_BLOCK_BYTES];
    uint32_t bytes = cpu_bytes_of(dtype), wide = cpu_bytes_of(type);
    int64_t k, m;

    if (type == dtype) {
        cpu_scatter(to, stride, from, bytes, n);
        return;
    }
    if (stride == (int64_t)bytes) {
        cpu_convert(dtype, to, type, from, n);
        return;
    }
    for (k = 0; k < n; k += m) {
        m = n - k < CPU_BLOCK ? n - k : CPU_BLOCK;
        convert_block(dtype, dense, type, (const char *)from + k * wide, m);
        cpu_scatter(to + k * stride, stride, dense, bytes, m);
    }
}

const cpu_block_functions CPU_NAME(cpu_block_functions) = {
    cpu_gather, cpu_scatter, cpu_load, cpu_store};
