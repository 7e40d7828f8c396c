/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* matmul.cl: c = alpha (sum over s of a[s] b[s]) + beta d, for each of a batch,
 * by tiles in local memory, or with a packed right operand.  Strides are in
 * elements. */

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

/* ---------------------------------------------------------- packed operands -- */

/* Of floats.  A packed matrix is stored as panels of LANES columns, each row by
 * row, in the type of computation; columns beyond the last are 0. */
#if ID0 <= BF16n
enum { LANES = 16, ROWS = 4, BLOCKS = 8 };

#define PASTE(type, n) type##n
#define VECTOR_OF(type, n) PASTE(type, n)
typedef VECTOR_OF(C0, 16) lanes;

/* One row of a panel per item; there is a packed matrix for each addend s of
 * each product of a batch. */
kernel void pack(global uchar *to, ulong to_at, const global uchar *from,
                 ulong from_at, product p, long rows)
{
    const long i = get_global_id(0), row = i % p.inner, line = i / p.inner;
    const long panels = (p.columns + LANES - 1) / LANES;
    const long first = line % panels * LANES, which = line / panels;
    const global T0 *in = AT(const T0, from, from_at) +
                          which / p.sums * p.b.batch +
                          which % p.sums * p.b.sum + row * p.b.row;
    global C0 *out = AT(C0, to, to_at) + i * LANES;

    if (i < rows)
        for (long c = 0; c < LANES; c++)
            out[c] = first + c < p.columns
                         ? GET0(in[(first + c) * p.b.column])
                         : (C0)0;
}

/* Adds in the order of multiply, so that the sums have the same bits.  An item
 * computes ROWS rows of a panel; rows beyond the last repeat it. */
kernel __attribute__((reqd_work_group_size(BLOCKS, 1, 1))) void
multiply_packed(global uchar *to, ulong to_at, const global uchar *left,
                ulong left_at, const global uchar *packed, ulong packed_at,
                const global uchar *added, ulong added_at, wide alpha,
                wide beta, product p)
{
    const long first = (long)get_global_id(0) * ROWS, panel = get_global_id(1);
    const long panels = get_global_size(1), batch = get_global_id(2);
    const global T0 *a[ROWS];
    lanes sum[ROWS];
    C0 row[LANES];

    if (first >= p.rows)
        return;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        a[r] = AT(const T0, left, left_at) + batch * p.a.batch +
               min(first + r, p.rows - 1) * p.a.row;
        sum[r] = 0;
    }
    for (long s = 0; s < p.sums; s++) {
        const global C0 *b =
            AT(const C0, packed, packed_at) +
            ((batch * p.sums + s) * panels + panel) * p.inner * LANES;

        for (long k = 0; k < p.inner; k++, b += LANES) {
            const lanes right = vload16(0, b);
            const long at = s * p.a.sum + k * p.a.column;

#pragma unroll
            for (int r = 0; r < ROWS; r++)
                sum[r] = fma((lanes)GET0(a[r][at]), right, sum[r]);
        }
        /* multiply fills the last tile with zeros: -0 becomes 0. */
        if (p.inner % TILE != 0)
            for (int r = 0; r < ROWS; r++)
                sum[r] += (lanes)0;
    }
    for (int r = 0; r < ROWS && first + r < p.rows; r++) {
        vstore16(sum[r] * (lanes)(C0)alpha, 0, row);
        for (int i = 0; i < LANES && panel * LANES + i < p.columns; i++) {
            const long column = panel * LANES + i;

            if (p.has_d)
                row[i] += (C0)beta * LOAD(0, added, added_at,
                                          batch * p.d.batch +
                                              (first + r) * p.d.row +
                                              column * p.d.column);
            STORE(0, to, to_at,
                  batch * p.c.batch + (first + r) * p.c.row +
                      column * p.c.column,
                  row[i]);
        }
    }
}
#endif
