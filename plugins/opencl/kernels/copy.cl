/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* copy.cl: from T1 to T0, with casts.  For equal dtypes both are the unsigned
 * type of the size, so that bits are preserved. */

#if ID0 == BOOLn && ID1 != BOOLn
static T0 put(T1 x)
{
    return GET1(x) != 0;
}
#elif ID0 <= BF16n || ID1 > BF16n
static T0 put(T1 x)
{
    return PUT0(GET1(x));
}
#else
/* Values out of range become the least number. */
static T0 put(T1 x)
{
    C1 y = GET1(x);

    if (sizeof(T0) == 4)
        return (T0)(y >= -(C1)2147483648 && y < (C1)2147483648 ? (int)y
                                                               : INT_MIN);
    return (T0)(y >= -(C1)9223372036854775808ul &&
                y < (C1)9223372036854775808ul ? (long)y : LONG_MIN);
}
#endif

kernel void dense(global uchar *to, ulong to_at, const global uchar *from,
                  ulong from_at, ulong n)
{
    ulong i = get_global_id(0);

    if (i < n)
        AT(T0, to, to_at)[i] = put(AT(const T1, from, from_at)[i]);
}

kernel void spaced(global uchar *to, ulong to_at, const global uchar *from,
                ulong from_at, ulong now, loop l)
{
    ulong i = get_global_id(0);
    uint left = (uint)i;
    long o0 = 0, o1 = 0;

    if (i >= l.numel)
        return;
    for (uint d = 0; d < l.ndim; d++) {
        uint size = l.sizes[d], next = left / size, k = left - next * size;

        o0 += k * l.strides[0][d];
        o1 += k * l.strides[1][d];
        left = next;
    }
    *AT(T0, to, to_at + o0) =
        put(l.immediates ? *(T1 *)&now : *AT(const T1, from, from_at + o1));
}

kernel void fill(global uchar *to, ulong to_at, ulong now, loop l)
{
    ulong i = get_global_id(0);
    uint left = (uint)i;
    long o0 = 0;

    if (i >= l.numel)
        return;
    for (uint d = 0; d < l.ndim; d++) {
        uint size = l.sizes[d], next = left / size;

        o0 += (left - next * size) * l.strides[0][d];
        left = next;
    }
    *AT(T0, to, to_at + o0) = *(T0 *)&now;
}
