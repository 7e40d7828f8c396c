/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* emulate.h: kernels as C++ on the host.  The threads of a block run one after
 * the other or, in a cooperative kernel, as fibers (fiber.c).  Blocks run in
 * order, and launches one at a time. */

#ifndef GPU_EMULATE_H
#define GPU_EMULATE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpu_index {
    uint32_t x, y, z;
} gpu_index;

typedef struct gpu_emulated_kernel {
    const char *name;
    void (*run)(const void *parameters);
    int64_t cooperative;
    uint64_t size; /* of the parameters */
} gpu_emulated_kernel;

/* The position of the running thread. */
typedef struct gpu_emulated_position {
    gpu_index thread, block, block_size, grid;
    uint32_t warp; /* lanes: 32 or 64 */
    unsigned char *dynamic;
} gpu_emulated_position;
extern gpu_emulated_position gpu_emulated;

/* Returns NULL, or why the block could not finish: its threads wait at
 * different places. */
const char *gpu_emulated_launch(const gpu_emulated_kernel *kernel,
                                const uint32_t grid[3], const uint32_t block[3],
                                uint32_t shared_bytes, const void *parameters);
void gpu_emulated_barrier(void);
/* Provides x, and returns what lane `from` of the warp provided; if that is in
 * another warp or outside the block, x itself. */
uint64_t gpu_emulated_exchange(uint64_t x, uint32_t from);
uint64_t gpu_emulated_ballot(int x);
uint32_t gpu_emulated_lane(void);

/* These functions, for libraries that cannot be linked with them (module.h). */
typedef struct gpu_emulated_meetings {
    void (*barrier)(void);
    uint64_t (*exchange)(uint64_t x, uint32_t from);
    uint64_t (*ballot)(int x);
    uint32_t (*lane)(void);
} gpu_emulated_meetings;

#ifdef __cplusplus
}

#define GPU_DEVICE static inline __attribute__((always_inline, unused))
#define GPU_DEVICE_MEMBER inline __attribute__((always_inline, unused))
#define GPU_NOINLINE static __attribute__((noinline, unused))
#define GPU_CONSTANT static const
#define GPU_ENTRY(name, parameters, meets)                                  \
    static void name##_body(const parameters &p);                           \
    static void name##_run(const void *p)                                   \
    {                                                                       \
        name##_body(*(const parameters *)p);                                \
    }                                                                       \
    __attribute__((section("gpu_kernels"), used,                            \
                   aligned(8))) static gpu_emulated_kernel name##_entry = { \
        #name, name##_run, meets, sizeof(parameters)};                      \
    static void name##_body(const parameters &p)
#define GPU_KERNEL(name, parameters) GPU_ENTRY(name, parameters, 0)
#define GPU_KERNEL_COOPERATIVE(name, parameters) GPU_ENTRY(name, parameters, 1)
#define GPU_KERNEL_OF(name, parameters, threads) \
    GPU_KERNEL_COOPERATIVE(name, parameters)
#define GPU_KERNEL_RESIDENT(name, parameters, blocks) \
    GPU_KERNEL_COOPERATIVE(name, parameters)

#define GPU_SHARED static
#define GPU_DYNAMIC(type, name) type *name = (type *)gpu_emulated.dynamic

#define gpu_thread gpu_emulated.thread
#define gpu_block gpu_emulated.block
#define gpu_block_size gpu_emulated.block_size
#define gpu_grid gpu_emulated.grid
#define gpu_barrier() gpu_emulated_barrier()
#define gpu_fence_system() ((void)0) /* the host's memory is coherent */
#define gpu_volatile_load(at) __atomic_load_n(at, __ATOMIC_RELAXED)
#define gpu_volatile_store(at, x) __atomic_store_n(at, x, __ATOMIC_RELAXED)

#define GPU_WARP gpu_emulated.warp

template <class T> static inline T gpu_exchange(T x, uint32_t from)
{
    uint64_t bits = 0;

    static_assert(sizeof(T) <= sizeof bits, "a lane exchanges at most 64 bits");
    __builtin_memcpy(&bits, &x, sizeof x);
    bits = gpu_emulated_exchange(bits, from);
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

#define gpu_shuffle_down(x, by) gpu_exchange(x, gpu_emulated_lane() + (by))
#define gpu_shuffle_xor(x, by) gpu_exchange(x, gpu_emulated_lane() ^ (by))
#define gpu_shuffle(x, lane) gpu_exchange(x, lane)
#define gpu_ballot(x) gpu_emulated_ballot(x)

/* Only one thread runs at a time. */
template <class T, class U> static inline T gpu_atomic_add(T *to, U x)
{
    T before = *to;

    *to = (T)(before + (T)x);
    return before;
}
template <class T, class U> static inline T gpu_atomic_max(T *to, U x)
{
    T before = *to;

    *to = before < (T)x ? (T)x : before;
    return before;
}
template <class T, class U> static inline T gpu_atomic_min(T *to, U x)
{
    T before = *to;

    *to = (T)x < before ? (T)x : before;
    return before;
}
template <class T, class U>
static inline T gpu_atomic_cas(T *to, T expected, U x)
{
    T before = *to;

    if (before == expected)
        *to = (T)x;
    return before;
}
#endif
#endif
