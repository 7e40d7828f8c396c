/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* matmul.cu: products of matrices of any strides, used if no vendor's library
 * computes them.  A block computes a tile of SIDE x SIDE results, a thread 4 x
 * 4 of them.  Both operands are staged in shared memory, DEPTH at a time.  If
 * the device has matrix units, they compute f32 sums; then each wavefront
 * computes a quarter of the tile, 32 x 32. */

#include "types.h"
#include "matrix_units.h"

enum { SIDE = 64, DEPTH = 16, EACH = 4 };

template <class M> struct accumulate {
    typedef typename gpu_type<M>::compute type;
};

GPU_DEVICE float scaled(const gpu_product &p, float x, const float *c)
{
    float y = (float)p.alpha * x;

    return c != 0 ? y + (float)p.beta * *c : y;
}
GPU_DEVICE double scaled(const gpu_product &p, double x, const double *c)
{
    double y = p.alpha * x;

    return c != 0 ? y + p.beta * *c : y;
}
template <class T> GPU_DEVICE T scaled(const gpu_product &p, T x, const T *c)
{
    T y = (T)((T)p.alpha_whole * x);

    return c != 0 ? (T)(y + (T)p.beta_whole * *c) : y;
}

/* Only explicit fused operations are contracted. */
GPU_DEVICE float fused(float a, float b, float c)
{
    return fmaf(a, b, c);
}
GPU_DEVICE double fused(double a, double b, double c)
{
    return fma(a, b, c);
}
template <class T> GPU_DEVICE T fused(T a, T b, T c)
{
    return (T)(a * b + c);
}

/* A tile of one operand: lines of the result by depth. */
template <class M, class T>
GPU_DEVICE void load(T (*tile)[SIDE + 4], const M *from, int64_t line_stride,
                     int64_t depth_stride, int64_t first, int64_t lines,
                     int64_t begin, int64_t inner)
{
    /* Adjacent threads read along the dense dimension. */
    bool deep = depth_stride == 1;

    for (uint32_t i = gpu_thread.x; i < SIDE * DEPTH; i += 256) {
        uint32_t line = deep ? i / DEPTH : i % SIDE;
        uint32_t depth = deep ? i % DEPTH : i / SIDE;
        T x = 0;

        if (first + line < lines && begin + depth < inner)
            x = gpu_load(from[(first + line) * line_stride +
                              (begin + depth) * depth_stride]);
        tile[depth][line] = x;
    }
}

/* The position in the tile of the thread's sum[i][j]. */
struct tile_position {
    uint32_t row, column;
};
template <class T>
GPU_DEVICE tile_position tile_position_of(uint32_t i, uint32_t j, T)
{
    return {gpu_thread.x / 16 * EACH + i, gpu_thread.x % 16 * EACH + j};
}
/* With matrix units: i is one of four squares of 16 x 16. */
GPU_DEVICE tile_position tile_position_of(uint32_t i, uint32_t j, float)
{
    uint32_t wave = gpu_thread.x / 64, lane = gpu_thread.x % 64;

    if (!GPU_MATRIX_UNITS)
        return tile_position_of<float>(i, j, 0);
    return {wave / 2 * 32 + i / 2 * 16 + lane / 16 * 4 + j,
            wave % 2 * 32 + i % 2 * 16 + lane % 16};
}

template <class T>
GPU_DEVICE void add_tiles(T (*left)[SIDE + 4], T (*right)[SIDE + 4],
                          T (*sum)[EACH])
{
    tile_position at = tile_position_of<T>(0, 0, 0);

#pragma unroll
    for (int d = 0; d < DEPTH; d++)
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < EACH; j++)
                sum[i][j] = fused(left[d][at.row + i], right[d][at.column + j],
                                  sum[i][j]);
}
GPU_DEVICE void add_tiles(float (*left)[SIDE + 4], float (*right)[SIDE + 4],
                          float (*sum)[EACH])
{
    uint32_t wave = gpu_thread.x / 64, lane = gpu_thread.x % 64;
    uint32_t row = wave / 2 * 32 + lane % 16,
             column = wave % 2 * 32 + lane % 16;
    gpu_sums sums[4];

    if (!GPU_MATRIX_UNITS) {
        add_tiles<float>(left, right, sum);
        return;
    }
    for (uint32_t i = 0; i < 16; i++)
        sums[i / 4][i % 4] = sum[i / 4][i % 4];
#pragma unroll
    for (uint32_t d = 0; d < DEPTH; d += 4)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            sums[i] = gpu_add_product(left[d + lane / 16][row + i / 2 * 16],
                                      right[d + lane / 16][column + i % 2 * 16],
                                      sums[i]);
    for (uint32_t i = 0; i < 16; i++)
        sum[i / 4][i % 4] = sums[i / 4][i % 4];
}

/* Computes the tile of batch z that starts at this row and column.  M: the type
 * of a and b; D: of c and d. */
template <class M, class D>
GPU_DEVICE void multiply_tile(const gpu_product &p, int64_t z, int64_t row,
                              int64_t column)
{
    typedef typename accumulate<M>::type T;
    GPU_SHARED T left[DEPTH][SIDE + 4];
    GPU_SHARED T right[DEPTH][SIDE + 4];
    T sum[EACH][EACH] = {};

    for (int64_t s = 0; s < p.sums; s++) {
        const M *a =
            (const M *)p.a + z * p.a_strides.batch + s * p.a_strides.sum;
        const M *b =
            (const M *)p.b + z * p.b_strides.batch + s * p.b_strides.sum;

        for (int64_t k = 0; k < p.inner; k += DEPTH) {
            load<M, T>(left, a, p.a_strides.row, p.a_strides.column, row,
                       p.rows, k, p.inner);
            load<M, T>(right, b, p.b_strides.column, p.b_strides.row, column,
                       p.columns, k, p.inner);
            gpu_barrier();
            add_tiles(left, right, sum);
            gpu_barrier();
        }
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            tile_position at = tile_position_of(i, j, (T)0);
            int64_t r = row + at.row, c = column + at.column;
            T added = 0;

            if (r >= p.rows || c >= p.columns)
                continue;
            if (p.c != 0)
                added = gpu_load(
                    ((const D *)
                         p.c)[z * p.c_strides.batch + r * p.c_strides.row +
                              c * p.c_strides.column]);
            gpu_store(((D *)p.d)[z * p.d_strides.batch + r * p.d_strides.row +
                                 c * p.d_strides.column],
                      scaled(p, sum[i][j], p.c != 0 ? &added : (T *)0));
        }
}

/* Block x computes a tile, and every gridDim.x-th tile after it; block y
 * batches likewise. */
template <class M, class D> GPU_DEVICE void multiply(const gpu_product &p)
{
    int64_t across = (p.columns + SIDE - 1) / SIDE;
    int64_t tiles = (p.rows + SIDE - 1) / SIDE * across;

    for (int64_t tile = gpu_block.x; tile < tiles; tile += gpu_grid.x)
        for (int64_t z = gpu_block.y; z < p.batch; z += gpu_grid.y)
            multiply_tile<M, D>(p, z, tile / across * SIDE,
                                tile % across * SIDE);
}

#define COMMA ,
#define MATMUL_TO(suffix, M, D)                          \
    GPU_KERNEL_COOPERATIVE(matmul_##suffix, gpu_product) \
    {                                                    \
        multiply<M COMMA D>(p);                          \
    }
#define MATMUL(suffix, M) MATMUL_TO(suffix, M, M)
MATMUL(f32, float)
MATMUL(f64, double)
MATMUL(f16, gpu_f16)
MATMUL(bf16, gpu_bf16)
MATMUL(i64, int64_t)
MATMUL(i32, int32_t)
MATMUL(i16, int16_t)
MATMUL(i8, int8_t)
MATMUL(u8, uint8_t)
/* f16 and bf16 operands with f32 sums, which later launches continue. */
MATMUL_TO(f16_f32, gpu_f16, float)
MATMUL_TO(bf16_f32, gpu_bf16, float)
