/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sort.cu: sorting along lines, by pairs of a key and an index, which are never
 * equal: so the order is stable and does not depend on the algorithm.  A block
 * sorts a tile in shared memory; then runs are merged two at a time, where each
 * element finds its position by itself.  NaN is above all numbers. */

#include "types.h"

#include <gpu/shared_line.h>

/* Unsigned keys in the order of the elements.  Both zeros have the same key,
 * and so have all NaN. */
GPU_DEVICE uint64_t ordered_key(double x)
{
    uint64_t bits = 0;

    if (x != x)
        return ~UINT64_C(0);
    if (x != 0)
        memcpy(&bits, &x, sizeof bits);
    return bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
}
GPU_DEVICE uint32_t ordered_key(float x)
{
    uint32_t bits = x != 0 ? math_bits_of_f32(x) : 0;

    if (x != x)
        return ~UINT32_C(0);
    return bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
}

GPU_DEVICE uint64_t wide_key(const gpu_sort &p, int64_t i)
{
    const char *at = (const char *)p.from + i * gpu_bytes(p.dtype);

    if (p.dtype <= GPU_BF16)
        return ordered_key(gpu_read_f64(at, p.dtype));
    return (uint64_t)gpu_read_i64(at, p.dtype) ^ UINT64_C(1) << 63;
}
GPU_DEVICE uint32_t short_key(const gpu_sort &p, int64_t i)
{
    const char *at = (const char *)p.from + i * gpu_bytes(p.dtype);

    if (p.dtype <= GPU_BF16)
        return ordered_key((float)gpu_read_f64(at, p.dtype));
    return (uint32_t)gpu_read_i64(at, p.dtype) ^ UINT32_C(1) << 31;
}

/* A 32-bit key above a 32-bit index. */
struct packed {
    uint64_t bits;

    static GPU_DEVICE_MEMBER packed of(const gpu_sort &p, int64_t i,
                                       int64_t position)
    {
        uint32_t key = short_key(p, i);
        packed x;

        x.bits =
            (uint64_t)(p.descending ? ~key : key) << 32 | (uint32_t)position;
        return x;
    }
    static GPU_DEVICE_MEMBER packed last()
    {
        packed x = {~UINT64_C(0)};

        return x;
    }
    GPU_DEVICE_MEMBER bool before(packed other) const
    {
        return bits < other.bits;
    }
    GPU_DEVICE_MEMBER uint64_t key() const
    {
        return bits >> 32;
    }
    GPU_DEVICE_MEMBER int64_t position() const
    {
        return (int64_t)(uint32_t)bits;
    }
    static GPU_DEVICE_MEMBER uint64_t nan()
    {
        return ~UINT32_C(0);
    }
};

struct keyed {
    uint64_t bits;
    int64_t at;

    static GPU_DEVICE_MEMBER keyed of(const gpu_sort &p, int64_t i,
                                      int64_t position)
    {
        uint64_t key = wide_key(p, i);
        keyed x = {p.descending ? ~key : key, position};

        return x;
    }
    static GPU_DEVICE_MEMBER keyed last()
    {
        keyed x = {~UINT64_C(0), INT64_MAX};

        return x;
    }
    GPU_DEVICE_MEMBER bool before(keyed other) const
    {
        return bits != other.bits ? bits < other.bits : at < other.at;
    }
    GPU_DEVICE_MEMBER uint64_t key() const
    {
        return bits;
    }
    GPU_DEVICE_MEMBER int64_t position() const
    {
        return at;
    }
    static GPU_DEVICE_MEMBER uint64_t nan()
    {
        return ~UINT64_C(0);
    }
};

/* A bitonic network, for the next power of two. */
template <class P> GPU_DEVICE void sort_shared(P *tile, uint32_t count)
{
    for (uint32_t size = 2; size <= count; size *= 2)
        for (uint32_t by = size / 2; by > 0; by /= 2) {
            for (uint32_t k = gpu_thread.x; k < count / 2; k += 256) {
                uint32_t i = k / by * 2 * by + k % by, j = i + by;
                bool up = (i & size) == 0;

                if (up ? tile[j].before(tile[i]) : tile[i].before(tile[j])) {
                    P swap = tile[i];

                    tile[i] = tile[j];
                    tile[j] = swap;
                }
            }
            gpu_barrier();
        }
}

template <class P> GPU_DEVICE void sort_tiles(const gpu_sort &p)
{
    GPU_SHARED P tile[GPU_SORT_TILE];
    int64_t tiles = (p.size + GPU_SORT_TILE - 1) / GPU_SORT_TILE;
    int64_t all = p.outer * p.inner * tiles;

    for (int64_t at = gpu_block.x; at < all; at += gpu_grid.x) {
        int64_t line = at / tiles, first = at % tiles * GPU_SORT_TILE;
        int64_t base = line / p.inner * p.size * p.inner + line % p.inner;
        int64_t left = p.size - first;
        uint32_t n = left < GPU_SORT_TILE ? (uint32_t)left : GPU_SORT_TILE;
        uint32_t count = 1;

        while (count < n)
            count *= 2;
        for (uint32_t i = gpu_thread.x; i < count; i += 256)
            tile[i] = i < n ? P::of(p, base + (first + i) * p.inner, first + i)
                            : P::last();
        gpu_barrier();
        sort_shared(tile, count);
        for (uint32_t i = gpu_thread.x; i < n; i += 256)
            ((P *)p.keys)[line * p.size + first + i] = tile[i];
        gpu_barrier();
    }
}

/* The number of elements of a sorted run that come before x. */
template <class P> GPU_DEVICE int64_t rank_in(const P *run, int64_t n, P x)
{
    int64_t low = 0, high = n;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;

        if (run[middle].before(x))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

template <class P> GPU_DEVICE void sort_merge(const gpu_sort &p)
{
    int64_t all = p.outer * p.inner * p.size, step = (int64_t)gpu_step();

    for (int64_t k = (int64_t)gpu_first(); k < all; k += step) {
        int64_t i, line = gpu_split(k, p.size, &i);
        int64_t run, which = gpu_split(i, p.run, &run);
        const P *from = (const P *)p.keys + line * p.size;
        int64_t other = (which ^ 1) * p.run, n = p.size - other;
        int64_t to = (which & ~INT64_C(1)) * p.run + run;

        if (n > 0)
            to += rank_in(from + other, n < p.run ? n : p.run, from[i]);
        ((P *)p.scratch)[line * p.size + to] = from[i];
    }
}

/* The index of the requested element in an ascending line. */
template <class P>
GPU_DEVICE int64_t select_index(const gpu_sort &p, const P *line)
{
    int64_t n = p.size, numbers = n, low = 0, most = 0, run = 0, found = 0;

    if (p.what == GPU_KTH)
        return p.keep - 1;
    if (p.what == GPU_MODE) {
        for (int64_t i = 0; i < n; i++) {
            bool nan = p.dtype <= GPU_BF16 && line[i].key() == P::nan();

            run++;
            if (i + 1 < n && line[i].key() == line[i + 1].key() && !nan)
                continue;
            if (run > most) {
                most = run;
                found = i;
            }
            run = 0;
        }
        return found;
    }
    /* The first NaN. */
    while (p.dtype <= GPU_BF16 && low < numbers) {
        int64_t middle = low + (numbers - low) / 2;

        if (line[middle].key() == P::nan())
            numbers = middle;
        else
            low = middle + 1;
    }
    if (numbers < n && (p.what == GPU_MEDIAN || numbers == 0))
        return numbers;
    return (numbers - 1) / 2;
}

GPU_DEVICE void move_one(void *to, int64_t i, const void *from, int64_t j,
                         uint32_t bytes)
{
    if (bytes == 8)
        ((uint64_t *)to)[i] = ((const uint64_t *)from)[j];
    else if (bytes == 4)
        ((uint32_t *)to)[i] = ((const uint32_t *)from)[j];
    else if (bytes == 2)
        ((uint16_t *)to)[i] = ((const uint16_t *)from)[j];
    else
        ((uint8_t *)to)[i] = ((const uint8_t *)from)[j];
}

template <class P> GPU_DEVICE void sort_take(const gpu_sort &p)
{
    int64_t lines = p.outer * p.inner, step = (int64_t)gpu_step();
    int64_t each = p.what == GPU_SORTED ? p.keep : 1;
    uint32_t bytes = gpu_bytes(p.dtype);

    for (int64_t k = (int64_t)gpu_first(); k < lines * each; k += step) {
        int64_t inner, i,
            outer = gpu_split(gpu_split(k, p.inner, &inner), each, &i);
        const P *line = (const P *)p.keys + (outer * p.inner + inner) * p.size;
        int64_t which = p.what == GPU_SORTED ? i : select_index(p, line);
        int64_t position = line[which].position();

        move_one(p.to, k, p.from, (outer * p.size + position) * p.inner + inner,
                 bytes);
        if (p.where != 0)
            p.where[k] = position;
    }
}

#define SORT(name, P)                                   \
    GPU_KERNEL_COOPERATIVE(sort_tiles_##name, gpu_sort) \
    {                                                   \
        sort_tiles<P>(p);                               \
    }                                                   \
    GPU_KERNEL(sort_merge_##name, gpu_sort)             \
    {                                                   \
        sort_merge<P>(p);                               \
    }                                                   \
    GPU_KERNEL(sort_take_##name, gpu_sort)              \
    {                                                   \
        sort_take<P>(p);                                \
    }
SORT(short, packed)
SORT(wide, keyed)

/* -------------------------------------------------------------- search -- */

GPU_DEVICE void read_as(const void *from, int64_t i, uint32_t dtype,
                        double *out)
{
    *out = gpu_read_f64((const char *)from + i * gpu_bytes(dtype), dtype);
}
GPU_DEVICE void read_as(const void *from, int64_t i, uint32_t dtype,
                        int64_t *out)
{
    *out = gpu_read_i64((const char *)from + i * gpu_bytes(dtype), dtype);
}

template <class T> GPU_DEVICE void search(const gpu_search &p)
{
    int64_t step = (int64_t)gpu_step();

    for (int64_t i = (int64_t)gpu_first(); i < p.count; i += step) {
        int64_t low = 0, high = p.size, base = i / p.each * p.size;
        T x, y;

        read_as(p.from, i, p.dtype, &x);
        while (low < high) {
            int64_t middle = low + (high - low) / 2, k = middle;

            if (p.order != 0)
                k = p.order[base + middle];
            if (k < 0 || k >= p.size) {
                gpu_fail(p.error, GPU_BAD_INDEX, p.call, k);
                k = 0;
            }
            read_as(p.rows, base + k, p.dtype, &y);
            if (p.right ? y > x : y >= x)
                high = middle;
            else
                low = middle + 1;
        }
        gpu_write_i64((char *)p.to + i * gpu_bytes(p.to_dtype), p.to_dtype,
                      low);
    }
}

GPU_KERNEL(sort_search_float, gpu_search)
{
    search<double>(p);
}
GPU_KERNEL(sort_search_whole, gpu_search)
{
    search<int64_t>(p);
}
