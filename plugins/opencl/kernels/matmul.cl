/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* matmul.cl: c = alpha (sum over s of a[s] b[s]) + beta d, for each of a batch,
 * by tiles in local memory.  Strides are in elements. */

enum { TILE = 16 };

typedef struct matrix {
    long row, column, batch, sum;
} matrix;

typedef struct product {
    long rows, inner, columns, sums;
    matrix a, b, c, d;
    int has_d, reserved;
} product;

kernel __attribute__((reqd_work_group_size(TILE, TILE, 1))) void
multiply(global uchar *to, ulong to_at, const global uchar *left,
         ulong left_at, const global uchar *right, ulong right_at,
         const global uchar *added, ulong added_at, wide alpha, wide beta,
         product p)
{
    local C0 at[TILE][TILE], bt[TILE][TILE];
    const uint x = get_local_id(0), y = get_local_id(1);
    const long column = get_group_id(0) * TILE + x;
    const long row = get_group_id(1) * TILE + y, batch = get_group_id(2);
    const global T0 *a = AT(const T0, left, left_at) + batch * p.a.batch;
    const global T0 *b = AT(const T0, right, right_at) + batch * p.b.batch;
    C0 sum = 0;

    for (long s = 0; s < p.sums; s++) {
        for (long k = 0; k < p.inner; k += TILE) {
            at[y][x] = row < p.rows && k + x < p.inner
                           ? GET0(a[s * p.a.sum + row * p.a.row +
                                    (k + x) * p.a.column])
                           : 0;
            bt[y][x] = column < p.columns && k + y < p.inner
                           ? GET0(b[s * p.b.sum + (k + y) * p.b.row +
                                    column * p.b.column])
                           : 0;
            barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
            for (int i = 0; i < TILE; i++)
#if ID0 <= BF16n
                sum = fma(at[y][i], bt[i][x], sum);
#else
                sum += at[y][i] * bt[i][x];
#endif
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
    if (row < p.rows && column < p.columns) {
        sum *= (C0)alpha;
        if (p.has_d)
            sum += (C0)beta * LOAD(0, added, added_at,
                                   batch * p.d.batch + row * p.d.row +
                                       column * p.d.column);
        STORE(0, to, to_at,
              batch * p.c.batch + row * p.c.row + column * p.c.column, sum);
    }
}
