/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* random.cu: random numbers by element, with the same bits as on the CPU
 * (expressions/philox.h; cpu/random/random.c defines the draw of an element).  A
 * thread draws a block at a time: four elements of 32 bits or two of 64. */

#include "types.h"

#include <expressions/philox.h>
#include <gpu/shared_random.h>

#define MOST_f64 0x1.fffffffffffffp1023

struct numbers {
    uint32_t word[4];
};

GPU_DEVICE numbers draw_block(const gpu_draw &p, uint64_t which)
{
    numbers n;
    uint64_t seed = p.counter != 0 ? p.counter[1] : p.seed;
    uint64_t offset = p.offset + (p.counter != 0 ? p.counter[0] : 0);

    philox_block(seed, offset + which, n.word);
    return n;
}

GPU_DEVICE uint64_t wide_of(const numbers &n, int k)
{
    return n.word[2 * k] | (uint64_t)n.word[2 * k + 1] << 32;
}

/* The bits that the type's mantissa can hold. */
GPU_DEVICE uint32_t mantissa_bits(const gpu_f16 *)
{
    return ~UINT32_C(0) << 21;
}
GPU_DEVICE uint32_t mantissa_bits(const gpu_bf16 *)
{
    return ~UINT32_C(0) << 24;
}
GPU_DEVICE uint32_t mantissa_bits(const float *)
{
    return ~UINT32_C(0) << 8;
}

GPU_DEVICE double normal_of(double u, double v, bool second)
{
    double radius = sqrt(-2 * log(1 - u)), angle = 0x1.921fb54442d18p+2 * v;

    return radius * (second ? sin(angle) : cos(angle));
}

template <class M> struct draw {
    static GPU_DEVICE_MEMBER void uniform(const gpu_draw &p)
    {
        float from = (float)p.a, width = (float)p.b - from;
        M *to = (M *)p.to;

        for (uint64_t b = gpu_first(); b < (p.count + 3) / 4; b += gpu_step()) {
            numbers n = draw_block(p, b);

#pragma unroll
            for (int k = 0; k < 4; k++)
                if (b * 4 + k < p.count)
                    gpu_store(
                        to[b * 4 + k],
                        from + philox_unit_f32(n.word[k] & mantissa_bits(to)) *
                                   width);
        }
    }
    static GPU_DEVICE_MEMBER void normal(const gpu_draw &p)
    {
        M *to = (M *)p.to;

        for (uint64_t b = gpu_first(); b < (p.count + 3) / 4; b += gpu_step()) {
            numbers n = draw_block(p, b);

#pragma unroll
            for (int k = 0; k < 4; k++)
                if (b * 4 + k < p.count)
                    gpu_store(
                        to[b * 4 + k],
                        (float)(p.a +
                                p.b * normal_of(
                                          philox_unit_f32(n.word[k & 2]),
                                          philox_unit_f32(n.word[(k & 2) + 1]),
                                          k & 1)));
        }
    }
};

template <> struct draw<double> {
    static GPU_DEVICE_MEMBER void uniform(const gpu_draw &p)
    {
        double width = p.b - p.a;

        for (uint64_t b = gpu_first(); b < (p.count + 1) / 2; b += gpu_step()) {
            numbers n = draw_block(p, b);

            for (int k = 0; k < 2; k++)
                if (b * 2 + k < p.count)
                    ((double *)p.to)[b * 2 + k] =
                        p.a + philox_unit_f64(wide_of(n, k)) * width;
        }
    }
    static GPU_DEVICE_MEMBER void normal(const gpu_draw &p)
    {
        for (uint64_t b = gpu_first(); b < (p.count + 1) / 2; b += gpu_step()) {
            numbers n = draw_block(p, b);
            double u = philox_unit_f64(wide_of(n, 0));
            double v = philox_unit_f64(wide_of(n, 1));

            for (int k = 0; k < 2; k++)
                if (b * 2 + k < p.count)
                    ((double *)p.to)[b * 2 + k] =
                        p.a + p.b * normal_of(u, v, k == 1);
        }
    }
};

#define DRAWS(name, M)                          \
    GPU_KERNEL(random_uniform_##name, gpu_draw) \
    {                                           \
        draw<M>::uniform(p);                    \
    }                                           \
    GPU_KERNEL(random_normal_##name, gpu_draw)  \
    {                                           \
        draw<M>::normal(p);                     \
    }
DRAWS(f32, float)
DRAWS(f64, double)
DRAWS(f16, gpu_f16)
DRAWS(bf16, gpu_bf16)

/* a b / 2^64 */
GPU_DEVICE uint64_t high_half(uint64_t a, uint64_t b)
{
    uint64_t a1 = a >> 32, a0 = (uint32_t)a, b1 = b >> 32, b0 = (uint32_t)b;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
    uint64_t other = a0 * b1 + (uint32_t)middle;

    return a1 * b1 + (middle >> 32) + (other >> 32);
}

GPU_KERNEL(random_whole, gpu_draw)
{
    bool wide = p.range == 0 || p.range > UINT64_C(1) << 32;
    uint32_t bytes = gpu_bytes(p.to_dtype), each = wide ? 2 : 4;

    for (uint64_t b = gpu_first(); b < (p.count + each - 1) / each;
         b += gpu_step()) {
        numbers n = draw_block(p, b);

        for (uint32_t k = 0; k < each && b * each + k < p.count; k++) {
            uint64_t x = wide ? wide_of(n, (int)k) : n.word[k];

            if (!wide)
                x = x * p.range >> 32;
            else if (p.range != 0)
                x = high_half(x, p.range);
            gpu_write_i64((char *)p.to + (b * each + k) * bytes, p.to_dtype,
                          (int64_t)((uint64_t)p.first + x));
        }
    }
}

GPU_KERNEL(random_bernoulli, gpu_draw)
{
    uint32_t bytes = gpu_bytes(p.to_dtype), wide = gpu_bytes(p.from_dtype);

    for (uint64_t b = gpu_first(); b < (p.count + 3) / 4; b += gpu_step()) {
        numbers n = draw_block(p, b);

        for (uint32_t k = 0; k < 4 && b * 4 + k < p.count; k++) {
            uint64_t i = b * 4 + k;
            double chance = p.a;

            if (p.from != 0)
                chance =
                    gpu_read_f64((const char *)p.from + i * wide, p.from_dtype);
            if (!(chance >= 0 && chance <= 1))
                gpu_fail(p.error, GPU_BAD_PROBABILITY, p.call, (int64_t)i);
            gpu_write_i64((char *)p.to + i * bytes, p.to_dtype,
                          (double)n.word[k] * 0x1p-32 < chance);
        }
    }
}

/* --------------------------------------------------------- multinomial -- */

/* The draw of a 64-bit element. */
GPU_DEVICE double draw_at(const gpu_choice &p, uint64_t element)
{
    uint64_t seed = p.counter != 0 ? p.counter[1] : p.seed;
    uint64_t offset = p.offset + (p.counter != 0 ? p.counter[0] : 0);
    numbers n;

    philox_block(seed, offset + element / 2, n.word);
    return philox_unit_f64(wide_of(n, (int)(element % 2)));
}

GPU_DEVICE double weight_at(const gpu_choice &p, int64_t i)
{
    return gpu_read_f64((const char *)p.from + i * gpu_bytes(p.dtype), p.dtype);
}

/* A thread has a row: it checks the weights and sums them in the only order
 * that gives the CPU's bits. */
GPU_KERNEL(random_choice_sums, gpu_choice)
{
    for (int64_t row = (int64_t)gpu_first(); row < p.rows;
         row += (int64_t)gpu_step()) {
        int64_t possible = 0;
        bool good = true;
        double sum = 0;

        for (int64_t i = row * p.n; i < (row + 1) * p.n; i++) {
            double weight = weight_at(p, i);

            good = good && weight >= 0 && weight != INFINITE_f64;
            possible += weight > 0;
            sum += weight;
            if (p.replacement)
                p.scratch[i] = sum;
        }
        if (!good || !(sum > 0) || sum == INFINITE_f64 ||
            (!p.replacement && p.samples > possible))
            gpu_fail(p.error, GPU_BAD_WEIGHTS, p.call, row);
    }
}

/* Each sample has its own draw, which is looked up in the cumulative sums. */
GPU_KERNEL(random_choice_repeated, gpu_choice)
{
    int64_t step = (int64_t)gpu_step();

    for (int64_t k = (int64_t)gpu_first(); k < p.rows * p.samples; k += step) {
        int64_t first = k / p.samples * p.n, low = 0, high = p.n - 1;
        const double *sums = p.scratch + first;
        double at = draw_at(p, (uint64_t)k) * sums[p.n - 1];

        while (low < high) {
            int64_t middle = (low + high) / 2;

            if (sums[middle] > at)
                high = middle;
            else
                low = middle + 1;
        }
        while (low > 0 && weight_at(p, first + low) == 0)
            low--; /* rounding led past the last positive weight */
        p.to[k] = low;
    }
}

/* Exponential clocks, one per weight: the first to fire are sampled. */
GPU_KERNEL(random_choice_clocks, gpu_choice)
{
    int64_t step = (int64_t)gpu_step();

    for (int64_t i = (int64_t)gpu_first(); i < p.rows * p.n; i += step) {
        double weight = weight_at(p, i);
        double wait = -log1p(-draw_at(p, (uint64_t)i)) / weight;

        /* Without a weight a clock never fires.  A tiny weight makes the
         * wait overflow; it stays finite, before those clocks. */
        p.scratch[i] = !(weight > 0)     ? INFINITE_f64
                       : wait > MOST_f64 ? MOST_f64
                                         : wait;
    }
}
