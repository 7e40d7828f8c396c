/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* scan.cu: cumulative sums, products, log-sum-exps and extremes along lines.  A
 * line is scanned by a thread, or by a block tile by tile.  Floats are
 * accumulated in double, all other types in i64. */

#include "types.h"

#include <gpu/shared_line.h>

enum { EACH = 8, TILE = 256 * EACH };

GPU_DEVICE void read_as(const gpu_scan &p, int64_t i, double *out)
{
    *out = gpu_read_f64((const char *)p.from + i * gpu_bytes(p.from_dtype),
                        p.from_dtype);
}
GPU_DEVICE void read_as(const gpu_scan &p, int64_t i, int64_t *out)
{
    *out = gpu_read_i64((const char *)p.from + i * gpu_bytes(p.from_dtype),
                        p.from_dtype);
}
GPU_DEVICE void write_as(const gpu_scan &p, int64_t i, double x)
{
    gpu_write_f64((char *)p.to + i * gpu_bytes(p.to_dtype), p.to_dtype, x);
}
GPU_DEVICE void write_as(const gpu_scan &p, int64_t i, int64_t x)
{
    gpu_write_i64((char *)p.to + i * gpu_bytes(p.to_dtype), p.to_dtype, x);
}

/* Ways to scan: the state of no element and of one, the merge of two
 * consecutive states, and how a state is written. */
template <class T> struct sums {
    typedef T state;

    static GPU_DEVICE_MEMBER state none(const gpu_scan &)
    {
        return 0;
    }
    static GPU_DEVICE_MEMBER state one(T x, int64_t)
    {
        return x;
    }
    static GPU_DEVICE_MEMBER state both(const gpu_scan &, state a, state b)
    {
        return a + b;
    }
    static GPU_DEVICE_MEMBER void put(const gpu_scan &p, int64_t i, state s)
    {
        write_as(p, i, s);
    }
};

template <class T> struct products : sums<T> {
    static GPU_DEVICE_MEMBER T none(const gpu_scan &)
    {
        return 1;
    }
    static GPU_DEVICE_MEMBER T both(const gpu_scan &, T a, T b)
    {
        return a * b;
    }
};

/* log(exp(a) + exp(b)) */
template <class T> struct exponentials : sums<T> {
    static GPU_DEVICE_MEMBER T none(const gpu_scan &)
    {
        return -INFINITE_f64;
    }
    static GPU_DEVICE_MEMBER T both(const gpu_scan &, T a, T b)
    {
        T most = a > b ? a : b;

        if (most == -INFINITE_f64 || a != a || b != b)
            return a + b;
        if (most == INFINITE_f64)
            return most;
        return most + log1p(exp((a > b ? b : a) - most));
    }
};

template <class T> struct found {
    T value;
    int64_t at; /* -1: none */
};

/* The last of equal elements; NaN from its first occurrence on. */
template <class T> struct extremes {
    typedef found<T> state;

    static GPU_DEVICE_MEMBER state none(const gpu_scan &)
    {
        state s = {0, -1};

        return s;
    }
    static GPU_DEVICE_MEMBER state one(T x, int64_t at)
    {
        state s = {x, at};

        return s;
    }
    static GPU_DEVICE_MEMBER state both(const gpu_scan &p, state a, state b)
    {
        if (a.at < 0 || b.value != b.value)
            return b;
        if (b.at < 0 || a.value != a.value)
            return a;
        return (p.least ? b.value <= a.value : b.value >= a.value) ? b : a;
    }
    static GPU_DEVICE_MEMBER void put(const gpu_scan &p, int64_t i, state s)
    {
        write_as(p, i, s.value);
        p.where[i] = s.at;
    }
};

GPU_DEVICE int64_t line_begin(const gpu_scan &p, int64_t line)
{
    int64_t k, o = gpu_split(line, p.inner, &k);

    return o * p.size * p.inner + k;
}

template <class T, class way> GPU_DEVICE void scan_alone(const gpu_scan &p)
{
    int64_t lines = p.outer * p.inner, step = (int64_t)gpu_step();

    for (int64_t l = (int64_t)gpu_first(); l < lines; l += step) {
        int64_t base = line_begin(p, l);
        typename way::state s = way::none(p);

        for (int64_t i = 0; i < p.size; i++) {
            T x;

            read_as(p, base + i * p.inner, &x);
            s = way::both(p, s, way::one(x, i));
            way::put(p, base + i * p.inner, s);
        }
    }
}

template <class T, class way> GPU_DEVICE void scan_block(const gpu_scan &p)
{
    typedef typename way::state state;
    GPU_SHARED state shared[256];
    uint32_t t = gpu_thread.x;

    for (int64_t l = gpu_block.x; l < p.outer * p.inner; l += gpu_grid.x) {
        int64_t base = line_begin(p, l);
        state carry = way::none(p);

        for (int64_t tile = 0; tile < p.size; tile += TILE) {
            int64_t begin = tile + (int64_t)t * EACH, end = begin + EACH;
            state mine = way::none(p);

            end = end < p.size ? end : p.size;
            for (int64_t i = begin; i < end; i++) {
                T x;

                read_as(p, base + i * p.inner, &x);
                mine = way::both(p, mine, way::one(x, i));
            }
            shared[t] = mine;
            gpu_barrier();
            for (uint32_t by = 1; by < 256; by *= 2) {
                if (t >= by)
                    mine = way::both(p, shared[t - by], mine);
                gpu_barrier();
                shared[t] = mine;
                gpu_barrier();
            }
            mine = t > 0 ? way::both(p, carry, shared[t - 1]) : carry;
            carry = way::both(p, carry, shared[255]);
            gpu_barrier();
            for (int64_t i = begin; i < end; i++) {
                T x;

                read_as(p, base + i * p.inner, &x);
                mine = way::both(p, mine, way::one(x, i));
                way::put(p, base + i * p.inner, mine);
            }
        }
    }
}

#define SCAN(name, T, way)                                \
    GPU_KERNEL(scan_##name##_alone, gpu_scan)             \
    {                                                     \
        scan_alone<T, way<T>>(p);                         \
    }                                                     \
    GPU_KERNEL_COOPERATIVE(scan_##name##_block, gpu_scan) \
    {                                                     \
        scan_block<T, way<T>>(p);                         \
    }
SCAN(sum_float, double, sums)
SCAN(sum_whole, int64_t, sums)
SCAN(product_float, double, products)
SCAN(product_whole, int64_t, products)
SCAN(exponential_float, double, exponentials)
SCAN(extreme_float, double, extremes)
SCAN(extreme_whole, int64_t, extremes)
