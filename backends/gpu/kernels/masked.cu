/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* masked.cu: the elements that a mask selects, in order.  Blocks count the
 * elements of their chunk; one block computes prefix sums; then each block
 * writes its chunk at the offset of its prefix. */

#include "block.h"

#include <gpu/shared_masked.h>

/* The offsets of element i in both operands. */
GPU_DEVICE void offsets_of(const gpu_masked &p, int64_t i, int64_t *from,
                           int64_t *mask)
{
    *from = *mask = i;
    if (p.dense)
        return;
    *from = *mask = 0;
    for (uint32_t d = 0; d < p.ndim; d++) {
        int64_t k;

        i = gpu_split(i, p.sizes[d], &k);
        *from += k * p.from_strides[d];
        *mask += k * p.mask_strides[d];
    }
}

/* How many times an element is written. */
GPU_DEVICE int64_t repeats(const gpu_masked &p, int64_t at)
{
    const char *mask =
        (const char *)p.mask + at * (int64_t)gpu_bytes(p.mask_dtype);
    int64_t n;

    if (p.mask_dtype <= GPU_BF16)
        return gpu_read_f64(mask, p.mask_dtype) != 0;
    n = gpu_read_i64(mask, p.mask_dtype);
    if (!p.repeats)
        return n != 0;
    if (n < 0)
        gpu_fail(p.error, GPU_BAD_REPEATS, p.call, at);
    return n < 0 ? 0 : n;
}

/* The same for a thread's elements of a chunk. */
GPU_DEVICE int64_t repeats_of_thread(const gpu_masked &p, int64_t begin,
                                     int64_t end)
{
    int64_t sum = 0, from, mask;

    for (int64_t i = begin; i < end; i++) {
        offsets_of(p, i, &from, &mask);
        sum += repeats(p, mask);
    }
    return sum;
}

GPU_KERNEL_COOPERATIVE(masked_count, gpu_masked)
{
    GPU_SHARED int64_t shared[256];

    for (int64_t c = gpu_block.x; c < p.chunks; c += gpu_grid.x) {
        int64_t begin =
            c * GPU_MASKED_CHUNK + (int64_t)gpu_thread.x * GPU_MASKED_EACH;
        int64_t end = begin + GPU_MASKED_EACH;
        int64_t sum = gpu_block_sum(
            shared, repeats_of_thread(p, begin, end < p.count ? end : p.count));

        if (gpu_thread.x == 0)
            p.sums[c] = sum;
    }
}

GPU_KERNEL_COOPERATIVE(masked_sum, gpu_masked)
{
    GPU_SHARED int64_t shared[256];
    int64_t carry = 0;

    for (int64_t tile = 0; tile < p.chunks; tile += 256) {
        int64_t c = tile + gpu_thread.x, total;
        int64_t mine = c < p.chunks ? p.sums[c] : 0;
        int64_t before = gpu_block_prefix(shared, mine, &total);

        if (c < p.chunks)
            p.sums[c] = carry + before;
        carry += total;
    }
    if (gpu_thread.x == 0)
        p.sums[p.chunks] = carry;
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

/* Write element i, whose offset is `from` and which is the row-th selected
 * one. */
GPU_DEVICE void put_nonzero(const gpu_masked &p, int64_t i, int64_t,
                            int64_t row)
{
    for (uint32_t d = 0; d < p.ndim; d++) {
        int64_t k;

        i = gpu_split(i, p.sizes[d], &k);
        ((int64_t *)p.to)[row * p.ndim + p.ndim - 1 - d] = k;
    }
}
GPU_DEVICE void put_select(const gpu_masked &p, int64_t, int64_t from,
                           int64_t row)
{
    move_one(p.to, row, p.from, from, gpu_bytes(p.dtype));
}
GPU_DEVICE void put_scatter(const gpu_masked &p, int64_t, int64_t from,
                            int64_t row)
{
    if (row < p.limit)
        move_one(p.to, from, p.from, row, gpu_bytes(p.dtype));
    else
        gpu_fail(p.error, GPU_SHORT_SOURCE, p.call, p.limit);
}
GPU_DEVICE void put_repeat(const gpu_masked &p, int64_t i, int64_t, int64_t row)
{
    gpu_write_i64((char *)p.to + row * gpu_bytes(p.dtype), p.dtype, i);
}

#define CHOSEN(name)                                                         \
    GPU_KERNEL_COOPERATIVE(masked_##name, gpu_masked)                        \
    {                                                                        \
        GPU_SHARED int64_t shared[256];                                      \
                                                                             \
        for (int64_t c = gpu_block.x; c < p.chunks; c += gpu_grid.x) {       \
            int64_t begin = c * GPU_MASKED_CHUNK +                           \
                            (int64_t)gpu_thread.x * GPU_MASKED_EACH;         \
            int64_t end = begin + GPU_MASKED_EACH, total, row, from, mask;   \
                                                                             \
            end = end < p.count ? end : p.count;                             \
            row = p.sums[c] +                                                \
                  gpu_block_prefix(shared, repeats_of_thread(p, begin, end), \
                                   &total);                                  \
            for (int64_t i = begin; i < end; i++) {                          \
                offsets_of(p, i, &from, &mask);                              \
                for (int64_t n = repeats(p, mask); n > 0; n--)               \
                    put_##name(p, i, from, row++);                           \
            }                                                                \
        }                                                                    \
    }
CHOSEN(nonzero)
CHOSEN(select)
CHOSEN(scatter)
CHOSEN(repeat)
