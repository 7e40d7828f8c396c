/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop.cl: instructions of loop programs that are not operators.
 * loop_source.c and loop_rows.c write the kernels behind this. */

/* A float x as an integer, as copy.cl converts.  C is the float's type. */
#define TO_I32(C, x)                                                           \
    ((x) >= -(C)2147483648 && (x) < (C)2147483648 ? (int)(x) : INT_MIN)
#define TO_I64(C, x)                                                           \
    ((x) >= -(C)9223372036854775808ul && (x) < (C)9223372036854775808ul        \
         ? (long)(x)                                                           \
         : LONG_MIN)

/* Functions of elementwise.cl exist once for each T. */
#define OWN_NAME(name, type) name##type
#define OWN_EXPANDED(name, type) OWN_NAME(name, type)
#define OWN(name) OWN_EXPANDED(name, T)

/* A word of a block of Philox4x32-10. */
static uint philox(ulong seed, ulong block, uint word)
{
    uint c0 = (uint)block, c1 = (uint)(block >> 32), c2 = 0, c3 = 0;
    uint k0 = (uint)seed, k1 = (uint)(seed >> 32);

    for (int round = 0; round < 10; round++) {
        uint p0 = 0xd2511f53u * c0, p1 = mul_hi(0xd2511f53u, c0);
        uint q0 = 0xcd9e8d57u * c2, q1 = mul_hi(0xcd9e8d57u, c2);

        c0 = q1 ^ c1 ^ k0;
        c1 = q0;
        c2 = p1 ^ c3 ^ k1;
        c3 = p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3;
}

static int philox32(long seed, long block, long element)
{
    ulong e = (ulong)element;

    return (int)philox((ulong)seed, (ulong)block + e / 4, (uint)(e % 4));
}

static long philox64(long seed, long block, long element)
{
    ulong e = (ulong)element, at = (ulong)block + e / 2;
    uint word = (uint)(e % 2) * 2;

    return (long)(philox((ulong)seed, at, word) |
                  (ulong)philox((ulong)seed, at, word + 1) << 32);
}

/* As in reductions (reduce.c). */
#define ROW_SUM(s, t) ((s) + (t))
#define ROW_MAX(s, t) ((s) > (t) || (s) != (s) ? (s) : (t))
#define ROW_MIN(s, t) ((s) < (t) || (s) != (s) ? (s) : (t))

/* Combines what the items of a group have; each gets the result. */
#define COMBINE_ROW(lanes, value, COMBINE)                                    \
    lanes[me] = value;                                                        \
    barrier(CLK_LOCAL_MEM_FENCE);                                             \
    for (uint half_ = GROUP / 2; half_ > 0; half_ /= 2) {                     \
        if (me < half_)                                                       \
            lanes[me] = COMBINE(lanes[me], lanes[me + half_]);                \
        barrier(CLK_LOCAL_MEM_FENCE);                                         \
    }                                                                         \
    value = lanes[0];                                                         \
    barrier(CLK_LOCAL_MEM_FENCE)
