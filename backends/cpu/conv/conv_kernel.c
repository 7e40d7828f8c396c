/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The innermost product of conv_direct.h: two vectors of columns, and as many
 * lines as fit in registers. */

#include "conv_direct.h"
#include "isa.h"

#if defined(__AVX512F__)

#include <immintrin.h>

enum { LINES = 12, WIDTH = 16 };
typedef __m512 vector;
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define SAME(x) _mm512_set1_ps(x)
#define MULTIPLY_ADD(a, b, c) _mm512_fmadd_ps(a, b, c)
#define ADD(a, b) _mm512_add_ps(a, b)
#define ZERO _mm512_setzero_ps()
#define WITH_VECTORS

#elif defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>

enum { LINES = 6, WIDTH = 8 };
typedef __m256 vector;
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define SAME(x) _mm256_set1_ps(x)
#define MULTIPLY_ADD(a, b, c) _mm256_fmadd_ps(a, b, c)
#define ADD(a, b) _mm256_add_ps(a, b)
#define ZERO _mm256_setzero_ps()
#define WITH_VECTORS

#endif

#ifdef WITH_VECTORS

enum { COLUMNS = 2 * WIDTH };

/* Expanded for each count, so that the sums are in registers.  vectors: 2, or 1
 * for the first half of the columns. */
__attribute__((always_inline)) static inline void product_of(
    const conv_product *p, const int count, const int vectors)
{
    const int64_t across = p->across, along = p->along;
    const float *b = p->b;
    vector sums[LINES][2];

#pragma GCC unroll 12
    for (int i = 0; i < count; i++) {
        sums[i][0] = ZERO;
        if (vectors == 2)
            sums[i][1] = ZERO;
    }
    for (int64_t t = 0; t < p->taps; t++) {
        const float *a = p->a + p->offsets[t * p->skip];

        for (int64_t k = 0; k < p->n; k++) {
            const vector left = LOAD(b);
            const vector right = vectors == 2 ? LOAD(b + WIDTH) : left;

#pragma GCC unroll 12
            for (int i = 0; i < count; i++) {
                const vector x = SAME(a[i * across]);

                sums[i][0] = MULTIPLY_ADD(x, left, sums[i][0]);
                if (vectors == 2)
                    sums[i][1] = MULTIPLY_ADD(x, right, sums[i][1]);
            }
            a += along;
            b += COLUMNS;
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < count; i++) {
        float *c = p->c + i * p->distance;

        /* Added last, so that partial sums stay short. */
        if (p->add) {
            sums[i][0] = ADD(sums[i][0], LOAD(c));
            if (vectors == 2)
                sums[i][1] = ADD(sums[i][1], LOAD(c + WIDTH));
        }
        STORE(c, sums[i][0]);
        if (vectors == 2)
            STORE(c + WIDTH, sums[i][1]);
    }
}

/* Few sums at a time wait for each other: 8 lines of AVX2 are 4 and 4, not 6 and
 * 2. */
static void multiply(const conv_product *product, int64_t count)
{
    conv_product p = *product;

    while (count > 0) {
        int done = 1;

        if (p.half && count >= LINES)
            product_of(&p, done = LINES, 1);
        else if (count >= LINES && count != LINES + LINES / 3)
            product_of(&p, done = LINES, 2);
        else if (count >= LINES * 2 / 3)
            product_of(&p, done = LINES * 2 / 3, 2);
        else if (count >= LINES / 3)
            product_of(&p, done = LINES / 3, 2);
        else
            product_of(&p, 1, 2);
        count -= done;
        p.a += done * p.across;
        p.c += done * p.distance;
    }
}

const conv_functions CPU_NAME(cpu_conv_functions) = {LINES, COLUMNS, multiply};

#else

const conv_functions CPU_NAME(cpu_conv_functions) = {0, 0, NULL};

#endif
