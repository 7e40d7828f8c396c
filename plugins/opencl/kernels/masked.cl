/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* masked.cl: selects elements by a mask.  One group: each work item counts the
 * selected elements of its run, and then writes them after those of the runs
 * before.  T0: the elements, as bits; T1: the mask, or the repeats. */

/* The offsets of a row-major position in both, in elements. */
static void places(const loop *l, ulong at, long *in, long *mask)
{
    *in = *mask = 0;
    for (uint d = 0; d < l->ndim; d++) {
        ulong next = at / l->sizes[d], k = at - next * l->sizes[d];

        *in += k * l->strides[0][d];
        *mask += k * l->strides[1][d];
        at = next;
    }
}

#define RUN                                                  \
    const ulong run = (l.numel + GROUP - 1) / GROUP;         \
    const ulong begin = min(get_local_id(0) * run, l.numel); \
    const ulong end = min(begin + run, l.numel)

/* sums: GROUP + 1 of them; the last one is the total. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
count_(global uchar *sums, ulong sums_at, const global uchar *mask,
       ulong mask_at, loop l, int repeats, global fault *errors, long call)
{
    local long lanes[GROUP];
    RUN;
    long mine = 0, from, at;

    for (ulong i = begin; i < end; i++) {
        places(&l, i, &from, &at);
        if (!repeats) {
            mine += LOAD(1, mask, mask_at, at) != 0;
        } else if (LOAD(1, mask, mask_at, at) >= 0) {
            mine += (long)LOAD(1, mask, mask_at, at);
        } else {
            fail_because(errors, 1, REPEATS, call, i);
        }
    }
    lanes[get_local_id(0)] = mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        long sum = 0;

        for (int k = 0; k < GROUP; k++) {
            AT(long, sums, sums_at)[k] = sum;
            sum += lanes[k];
        }
        AT(long, sums, sums_at)[GROUP] = sum;
    }
}

#define TRUE_AT(i) \
    (places(&l, i, &from, &at), LOAD(1, mask, mask_at, at) != 0)

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
nonzero(global uchar *to, ulong to_at, const global uchar *sums, ulong sums_at,
        const global uchar *mask, ulong mask_at, loop l)
{
    RUN;
    long row = AT(const long, sums, sums_at)[get_local_id(0)], from, at;

    for (ulong i = begin; i < end; i++) {
        ulong left = i;

        if (!TRUE_AT(i))
            continue;
        for (uint d = 0; d < l.ndim; d++) {
            AT(long, to, to_at)[row * l.ndim + l.ndim - 1 - d] =
                left % l.sizes[d];
            left /= l.sizes[d];
        }
        row++;
    }
}

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
select_(global uchar *to, ulong to_at, const global uchar *sums, ulong sums_at,
        const global uchar *in, ulong in_at, const global uchar *mask,
        ulong mask_at, loop l)
{
    RUN;
    long next = AT(const long, sums, sums_at)[get_local_id(0)], from, at;

    for (ulong i = begin; i < end; i++)
        if (TRUE_AT(i))
            AT(T0, to, to_at)[next++] = AT(const T0, in, in_at)[from];
}

/* Writes the next element of `in` where the mask is true; there are `limit`. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
scatter_(global uchar *to, ulong to_at, const global uchar *sums,
         ulong sums_at, const global uchar *in, ulong in_at,
         const global uchar *mask, ulong mask_at, loop l, long limit,
         global fault *errors, long call)
{
    RUN;
    long next = AT(const long, sums, sums_at)[get_local_id(0)], from, at;

    if (get_local_id(0) == 0 && AT(const long, sums, sums_at)[GROUP] > limit)
        fail_because(errors, 1, SHORT_SOURCE, call, limit);
    for (ulong i = begin; i < end; i++)
        if (TRUE_AT(i) && next < limit)
            AT(T0, to, to_at)[from] = AT(const T0, in, in_at)[next++];
}

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
repeat(global uchar *to, ulong to_at, const global uchar *sums, ulong sums_at,
       const global uchar *mask, ulong mask_at, loop l)
{
    RUN;
    long next = AT(const long, sums, sums_at)[get_local_id(0)], from, at;

    for (ulong i = begin; i < end; i++) {
        places(&l, i, &from, &at);
        for (long k = 0; k < (long)LOAD(1, mask, mask_at, at); k++)
            AT(T0, to, to_at)[next++] = (T0)i;
    }
}
