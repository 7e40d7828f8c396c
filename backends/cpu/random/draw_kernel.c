/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The numbers of draw_kernel.h, sixteen blocks of random words at once.
 * Compiled per instruction set. */

#include "draw_kernel.h"

#include <math.h>

#include <expressions/philox.h>
#include <expressions/vecmath.h>

enum { BLOCKS = CPU_DRAW_GROUP / 4, PAIRS = CPU_DRAW_GROUP / 2 };

/* philox_block of consecutive blocks, word by word: they do not depend on one
 * another, as the rounds of one block do. */
static void draw_blocks(uint64_t seed, uint64_t first, uint32_t out[4][BLOCKS])
{
    uint32_t *a = out[0], *b = out[1], *c = out[2], *d = out[3];
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

    for (int i = 0; i < BLOCKS; i++) {
        a[i] = (uint32_t)(first + (uint64_t)i);
        b[i] = (uint32_t)((first + (uint64_t)i) >> 32);
        c[i] = d[i] = 0;
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            uint64_t p = (uint64_t)a[i] * UINT32_C(0xd2511f53);
            uint64_t q = (uint64_t)c[i] * UINT32_C(0xcd9e8d57);

            a[i] = (uint32_t)(q >> 32) ^ b[i] ^ k0;
            b[i] = (uint32_t)q;
            c[i] = (uint32_t)(p >> 32) ^ d[i] ^ k1;
            d[i] = (uint32_t)p;
        }
        k0 += UINT32_C(0x9e3779b9);
        k1 += UINT32_C(0xbb67ae85);
    }
}

static void draw_at(uint64_t seed, uint64_t offset, int64_t first,
                    uint32_t out[4][BLOCKS])
{
    draw_blocks(seed, offset + (uint64_t)first / 4, out);
}

static void uniform(float *to, uint64_t seed, uint64_t offset, int64_t first,
                    uint32_t mask, float from, float width)
{
    uint32_t words[4][BLOCKS];

    draw_at(seed, offset, first, words);
    for (int k = 0; k < BLOCKS; k++)
        for (int w = 0; w < 4; w++)
            to[4 * k + w] = from + philox_unit_f32(words[w][k] & mask) * width;
}

static void less(uint8_t *to, uint64_t seed, uint64_t offset, int64_t first,
                 uint64_t limit)
{
    uint32_t words[4][BLOCKS], most = (uint32_t)(limit - 1);

    draw_at(seed, offset, first, words);
    for (int k = 0; k < BLOCKS; k++)
        for (int w = 0; w < 4; w++)
            to[4 * k + w] = limit > 0 && words[w][k] <= most;
}

/* log x, 2^-24 <= x <= 1, to about the precision of a double.  With log_f64 of
 * vecmath64.h, which fuses where it can, instruction sets would draw other numbers.
 * x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), and log(1 + f) = 2 atanh(s). */
static inline double log_of(double x)
{
    uint64_t bits = math_bits_of_f64(x) + UINT64_C(0x00095f619980c433);
    /* The biased exponent, as a double: in the low bits of 2^52. */
    double e = math_f64_of_bits(bits >> 52 | UINT64_C(0x4330000000000000)) -
               (0x1p52 + 1023);
    double f = math_f64_of_bits((bits & UINT64_C(0x000fffffffffffff)) +
                                UINT64_C(0x3fe6a09e667f3bcd)) -
               1;
    double s = f / (2 + f), z = s * s, p = 1.0 / 21;

    p = p * z + 1.0 / 19;
    p = p * z + 1.0 / 17;
    p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    return e * 0x1.62e42fefa39efp-1 + (2 * s + 2 * s * z * p);
}

/* sin and cos of x, |x| <= pi / 4, to about the precision of a double. */
static inline double sine_of(double x)
{
    double z = x * x, p = 0x1.6124613a86d09p-33; /* 1 / 13! */

    p = p * z - 0x1.ae64567f544e4p-26;
    p = p * z + 0x1.71de3a556c734p-19;
    p = p * z - 0x1.a01a01a01a01ap-13;
    p = p * z + 0x1.1111111111111p-7;
    p = p * z - 0x1.5555555555555p-3;
    return x + x * z * p;
}

static inline double cosine_of(double x)
{
    double z = x * x, p = -0x1.93974a8c07c9dp-37; /* -1 / 14! */

    p = p * z + 0x1.1eed8eff8d898p-29;
    p = p * z - 0x1.27e4fb7789f5cp-22;
    p = p * z + 0x1.a01a01a01a01ap-16;
    p = p * z - 0x1.6c16c16c16c17p-10;
    p = p * z + 0x1.5555555555555p-5;
    return 1 - 0.5 * z + z * z * p;
}

/* The numbers of a pair: radius and angle.  Both are exact up to the functions,
 * since u and v are multiples of 2^-24; a turn has four quarters. */
static void pairs(const double *u, const double *v, double *first,
                  double *second)
{
    MATH_LOOP
    for (int i = 0; i < PAIRS; i++) {
        double radius = sqrt_f64(-2 * log_of(1 - u[i]));
        double quarter = (double)(int32_t)(4 * v[i] + 0.5); /* 0 to 4 */
        double x = (4 * v[i] - quarter) * 0x1.921fb54442d18p+0;
        double s = sine_of(x), c = cosine_of(x);
        double odd = quarter == 1 || quarter == 3 ? 1 : 0;
        double y = odd != 0 ? s : c, z = odd != 0 ? c : s;

        first[i] = radius * (quarter == 1 || quarter == 2 ? -y : y);
        second[i] = radius * (quarter == 2 || quarter == 3 ? -z : z);
    }
}

static void normal(float *to, uint64_t seed, uint64_t offset, int64_t first,
                   double mean, double deviation)
{
    uint32_t words[4][BLOCKS];
    double u[PAIRS], v[PAIRS], one[PAIRS], other[PAIRS];

    draw_at(seed, offset, first, words);
    for (int half = 0; half < 2; half++)
        for (int k = 0; k < BLOCKS; k++) {
            u[half * BLOCKS + k] = philox_unit_f32(words[2 * half][k]);
            v[half * BLOCKS + k] = philox_unit_f32(words[2 * half + 1][k]);
        }
    pairs(u, v, one, other);
    for (int half = 0; half < 2; half++)
        for (int k = 0; k < BLOCKS; k++) {
            float *at = to + 4 * k + 2 * half;

            at[0] = (float)(mean + deviation * one[half * BLOCKS + k]);
            at[1] = (float)(mean + deviation * other[half * BLOCKS + k]);
        }
}

const cpu_draw_functions CPU_NAME(cpu_draw_functions) = {uniform, normal, less};
