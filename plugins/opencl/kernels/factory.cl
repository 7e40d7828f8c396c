/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* factory.cl: tensors made of a rule, and triangles. */

kernel void arange(global uchar *to, ulong to_at, long n, wide start,
                   wide width, long first_, long step_)
{
    long i = get_global_id(0);

    if (i < n)
#if ID0 <= BF16n
        STORE(0, to, to_at, i, start + (wide)i * width);
#else
        AT(T0, to, to_at)[i] = (T0)(first_ + i * step_);
#endif
}

kernel void eye(global uchar *to, ulong to_at, long n, long columns)
{
    long i = get_global_id(0);

    if (i < n)
        STORE(0, to, to_at, i, i / columns == i % columns);
}

/* T0: the unsigned type of the size. */
kernel void triangle(global uchar *to, ulong to_at, const global uchar *in,
                     ulong in_at, long n, long rows, long columns,
                     long diagonal, int upper)
{
    long i = get_global_id(0);

    if (i < n) {
        long column = i % columns, row = i / columns % rows;
        int keep = upper ? column - row >= diagonal : column - row <= diagonal;

        AT(T0, to, to_at)[i] = keep ? AT(const T0, in, in_at)[i] : 0;
    }
}
