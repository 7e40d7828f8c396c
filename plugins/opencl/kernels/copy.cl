/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* copy.cl: from T1 to T0, with casts.  Of one dtype it comes as the unsigned
 * type of its size, so that bits are kept. */

#if ID1 == F16n
typedef float FROM;
static FROM get(ushort bits)
{
    return vload_half(0, (const half *)&bits);
}
#elif ID1 == BF16n
typedef float FROM;
static FROM get(ushort bits)
{
    return as_float((uint)bits << 16);
}
#else
typedef T1 FROM;
static FROM get(T1 x)
{
    return x;
}
#endif

#if ID1 <= BF16n
#define FROM_FLOAT 1
#else
#define FROM_FLOAT 0
#endif

#if ID0 == ID1
static T0 put(T1 x)
{
    return x;
}
#elif ID0 == BOOLn
static T0 put(T1 x)
{
    return get(x) != 0;
}
#elif ID0 == F16n
static T0 put(T1 x)
{
    ushort bits;

    vstore_half_rte(get(x), 0, (half *)&bits);
    return bits;
}
#elif ID0 == BF16n
static T0 put(T1 x)
{
    float y = (float)get(x);
    uint bits = as_uint(y);

    if (y != y)
        return 0x7fc0;
    return (ushort)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#elif ID0 <= F32n
static T0 put(T1 x)
{
    return (T0)get(x);
}
#elif FROM_FLOAT
/* What does not fit is the least number there is. */
static T0 put(T1 x)
{
    FROM y = get(x);

    if (sizeof(T0) == 4)
        return (T0)(y >= -(FROM)2147483648 && y < (FROM)2147483648
                        ? (int)y : INT_MIN);
    return (T0)(y >= -(FROM)9223372036854775808ul &&
                y < (FROM)9223372036854775808ul ? (long)y : LONG_MIN);
}
#else
static T0 put(T1 x)
{
    return (T0)x;
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
