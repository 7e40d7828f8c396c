/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* warp_matrix.h: products by NVIDIA's tensor cores (mma.sync, compute
 * capability 8.0) of 16-bit matrices by the 32 lanes of a warp:
 * sums += left right, 16 x 16 times 16 x 8.  Two adjacent elements are in a
 * word, the first one in the lower half.  With q = lane / 4 and r = lane % 4 * 2,
 * a lane has
 *
 *     of left    [q][r], [q + 8][r], [q][r + 8], [q + 8][r + 8] and the
 *                elements to the right of these,
 *     of right   [r][q], [r + 8][q] and the elements below,
 *     of sums    [q][r], [q][r + 1], [q + 8][r], [q + 8][r + 1].
 *
 * The emulated device does the same if its warps have 32 lanes. */

#ifndef GPU_WARP_MATRIX_H
#define GPU_WARP_MATRIX_H

#include "types.h"

/* 8 elements, the unit of copies to shared memory. */
typedef gpu_vector<uint32_t, 4> gpu_eight;

#if defined(GPU_EMULATED)

#define GPU_TENSOR_CORES 1

#if defined(__SANITIZE_THREAD__)
#define GPU_NOT_WATCHED __attribute__((no_sanitize("thread")))
#else
#define GPU_NOT_WATCHED
#endif

/* Collects two lines of left and two of right for the lane's sums. */
GPU_NOINLINE GPU_NOT_WATCHED void gpu_collect_lines(const uint32_t *left,
                                                    const uint32_t *right,
                                                    uint32_t (*lefts)[8],
                                                    uint32_t (*rights)[8])
{
    static uint32_t all[1024][6];
    uint32_t lane = gpu_emulated_lane(), first = gpu_thread.x - lane;

    for (uint32_t i = 0; i < 4; i++)
        all[gpu_thread.x][i] = left[i];
    for (uint32_t i = 0; i < 2; i++)
        all[gpu_thread.x][4 + i] = right[i];
    gpu_emulated_exchange(0, 0);
    for (uint32_t k = 0; k < 8; k++)
        for (uint32_t i = 0; i < 2; i++) {
            lefts[i][k] = all[first + lane / 4 * 4 + k % 4][k / 4 * 2 + i];
            rights[i][k] =
                all[first + (lane % 4 * 2 + i) * 4 + k % 4][4 + k / 4];
        }
    gpu_emulated_exchange(0, 0);
}

template <class M> GPU_DEVICE float gpu_half_of(uint32_t pair, uint32_t which)
{
    M x;

    x.bits = (uint16_t)(pair >> 16 * which);
    return gpu_load(x);
}

template <class M>
GPU_DEVICE void gpu_add_product(float *sums, const uint32_t *left,
                                const uint32_t *right)
{
    uint32_t lefts[2][8], rights[2][8];

    gpu_collect_lines(left, right, lefts, rights);
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t k = 0; k < 16; k++)
            sums[i] =
                fmaf(gpu_half_of<M>(lefts[i / 2][k / 2], k % 2),
                     gpu_half_of<M>(rights[i % 2][k / 2], k % 2), sums[i]);
}

template <class M> GPU_DEVICE uint32_t gpu_pair_of(float low, float high)
{
    M x, y;

    gpu_store(x, low);
    gpu_store(y, high);
    return x.bits | (uint32_t)y.bits << 16;
}

/* Loads four matrices of 8 x 8 elements; lane 8 i + k has the address of line k
 * of matrix i.  Lane l gets the elements r and r + 1 of line q. */
GPU_DEVICE void gpu_load_matrices(uint32_t *to, const gpu_eight *line)
{
    uint32_t lane = gpu_emulated_lane();

    for (uint32_t i = 0; i < 4; i++)
        to[i] =
            ((const gpu_eight *)gpu_shuffle((uintptr_t)line, i * 8 + lane / 4))
                ->at[lane % 4];
}

/* The same with lines and elements exchanged. */
GPU_DEVICE void gpu_load_transposed(uint32_t *to, const gpu_eight *line)
{
    uint32_t lane = gpu_emulated_lane(), q = lane / 4, r = lane % 4 * 2;

    for (uint32_t i = 0; i < 4; i++) {
        uint32_t pair[2];

        for (uint32_t k = 0; k < 2; k++)
            pair[k] =
                ((const gpu_eight *)gpu_shuffle((uintptr_t)line, i * 8 + r + k))
                        ->at[q / 2] >>
                    q % 2 * 16 &
                0xffff;
        to[i] = pair[0] | pair[1] << 16;
    }
}

/* Copies 8 elements to shared memory, or zeros, while the thread continues.
 * gpu_copies_end marks the end of a group of copies, and gpu_wait_for_copies
 * waits for all groups but the newest ones; then a barrier makes them visible
 * to others. */
GPU_DEVICE void gpu_copy_eight(gpu_eight *to, const void *from, bool there)
{
    if (there)
        memcpy(to, from, sizeof *to);
    else
        memset(to, 0, sizeof *to);
}
GPU_DEVICE void gpu_copies_end(void) {}
template <int NEWEST> GPU_DEVICE void gpu_wait_for_copies(void) {}

/* All lanes must be at the same place before they multiply. */
GPU_DEVICE void gpu_converge(void) {}

/* 2^x, of about f32's precision. */
GPU_DEVICE float gpu_fast_exp2(float x)
{
    return exp2f(x);
}

#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

#define GPU_TENSOR_CORES 1

GPU_DEVICE void gpu_add_product_of(float *d, const uint32_t *a,
                                   const uint32_t *b, const gpu_f16 *)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
GPU_DEVICE void gpu_add_product_of(float *d, const uint32_t *a,
                                   const uint32_t *b, const gpu_bf16 *)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <class M>
GPU_DEVICE void gpu_add_product(float *sums, const uint32_t *left,
                                const uint32_t *right)
{
    gpu_add_product_of(sums, left, right, (const M *)0);
}

GPU_DEVICE uint32_t gpu_pair_of_type(float low, float high, const gpu_f16 *)
{
    uint32_t pair;

    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
GPU_DEVICE uint32_t gpu_pair_of_type(float low, float high, const gpu_bf16 *)
{
    uint32_t pair;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
template <class M> GPU_DEVICE uint32_t gpu_pair_of(float low, float high)
{
    return gpu_pair_of_type(low, high, (const M *)0);
}

GPU_DEVICE uint32_t gpu_shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

GPU_DEVICE void gpu_load_matrices(uint32_t *to, const gpu_eight *line)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(gpu_shared_address(line)));
}
GPU_DEVICE void gpu_load_transposed(uint32_t *to, const gpu_eight *line)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(gpu_shared_address(line)));
}

GPU_DEVICE void gpu_copy_eight(gpu_eight *to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(gpu_shared_address(to)), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}
GPU_DEVICE void gpu_copies_end(void)
{
    asm volatile("cp.async.commit_group;" : : : "memory");
}
template <int NEWEST> GPU_DEVICE void gpu_wait_for_copies(void)
{
    asm volatile("cp.async.wait_group %0;" : : "n"(NEWEST) : "memory");
}

GPU_DEVICE void gpu_converge(void)
{
    __syncwarp();
}

GPU_DEVICE float gpu_fast_exp2(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#else

#define GPU_TENSOR_CORES 0

#endif
#endif
