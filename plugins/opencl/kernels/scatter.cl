/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* scatter.cl: writing and reading by indices, along one dimension or several.
 * If two indices name one position, the order is that of the indices: a work
 * item handles everything that can hit the same position, in order.  T1 is the
 * index's type; T0 the elements', as bits if they are only moved. */

/* Must match scatter.c.  Lines of self, without the dimension, innermost first;
 * `within` is the index's size there.  Strides in elements. */
typedef struct lines {
    ulong count;
    uint ndim, value_given;
    uint sizes[MAX_NDIM], within[MAX_NDIM];
    long self[MAX_NDIM], index[MAX_NDIM], source[MAX_NDIM];
    long size, self_step, n, index_step, source_step;
} lines;

/* Tests whether the index covers the line; returns where its elements begin. */
static int line_at(const lines *p, ulong at, long *self, long *index,
                   long *source)
{
    ulong left = at;
    int reached = 1;

    *self = *index = *source = 0;
    for (uint d = 0; d < p->ndim; d++) {
        ulong next = left / p->sizes[d], k = left - next * p->sizes[d];

        reached &= k < p->within[d];
        *self += k * p->self[d];
        *index += k * p->index[d];
        *source += k * p->source[d];
        left = next;
    }
    return reached;
}

static long checked(long index, long limit, global fault *errors, long call)
{
    if (index < 0 || index >= limit) {
        fail(errors, 8, call, index);
        return -1;
    }
    return index;
}

/* to contains a copy of self. */
kernel void scatter(global uchar *to, ulong to_at, const global uchar *index,
                    ulong index_at, const global uchar *source,
                    ulong source_at, ulong value, lines p,
                    global fault *errors, long call)
{
    long self, i0, s0;

    if (get_global_id(0) >= p.count ||
        !line_at(&p, get_global_id(0), &self, &i0, &s0))
        return;
    for (long i = 0; i < p.n; i++) {
        long k = checked(AT(const T1, index, index_at)[i0 + i * p.index_step],
                         p.size, errors, call);

        if (k < 0)
            continue;
        AT(T0, to, to_at)[self + k * p.self_step] =
            p.value_given ? *(T0 *)&value
                          : AT(const T0, source,
                               source_at)[s0 + i * p.source_step];
    }
}

#if ID0 <= BF16n
typedef C0 SUM;
#define MEAN(sum, count) ((sum) / (count))
#define GIVEN(number, whole) ((SUM)(number))
#else
typedef long SUM;
static long floored(long sum, long count)
{
    return sum / count - (sum % count < 0);
}
#define MEAN(sum, count) floored(sum, count)
#define GIVEN(number, whole) (whole)
#endif

enum { ADD, MULTIPLY, AVERAGE, LARGEST, SMALLEST };

static SUM combine(SUM a, SUM b, int what)
{
    switch (what) {
    case MULTIPLY:
        return a * b;
    case LARGEST:
        return a != a ? a : b > a || b != b ? b : a;
    case SMALLEST:
        return a != a ? a : b < a || b != b ? b : a;
    default:
        return a + b;
    }
}

/* sums and counts: scratch memory of self's number of elements.  number, whole:
 * the value as a float and as an integer. */
kernel void reduce(global uchar *to, ulong to_at, const global uchar *in,
                   ulong in_at, const global uchar *index, ulong index_at,
                   const global uchar *source, ulong source_at,
                   global uchar *sums, ulong sums_at, global uchar *counts,
                   ulong counts_at, wide number, long whole, lines p, int what,
                   int with_self, global fault *errors, long call)
{
    const ulong line = get_global_id(0);
    global SUM *sum = AT(SUM, sums, sums_at) + line * p.size;
    global int *count = AT(int, counts, counts_at) + line * p.size;
    long self, i0, s0;
    int reached;

    if (line >= p.count)
        return;
    reached = line_at(&p, line, &self, &i0, &s0);
    for (long k = 0; k < p.size; k++) {
        sum[k] = LOAD(0, in, in_at, self + k * p.self_step);
        count[k] = 0;
    }
    for (long i = 0; i < p.n && reached; i++) {
        long k = checked(AT(const T1, index, index_at)[i0 + i * p.index_step],
                         p.size, errors, call);
        SUM x = p.value_given
                    ? GIVEN(number, whole)
                    : (SUM)LOAD(0, source, source_at, s0 + i * p.source_step);

        if (k < 0)
            continue;
        sum[k] = count[k] == 0 && !with_self ? x : combine(sum[k], x, what);
        count[k]++;
    }
    for (long k = 0; k < p.size; k++) {
        SUM x = sum[k];

        if (what == AVERAGE && count[k] > 0)
            x = MEAN(x, count[k] + with_self);
        STORE(0, to, to_at, self + k * p.self_step, x);
    }
}

/* index_copy, index_fill: a slice of self for each index. */
kernel void slices(global uchar *to, ulong to_at, const global uchar *index,
                   ulong index_at, const global uchar *source,
                   ulong source_at, ulong value, int value_given, long outer,
                   long size, long inner, long n, global fault *errors,
                   long call)
{
    const long at = get_global_id(0), k = at % inner, o = at / inner;

    if (at >= outer * inner)
        return;
    for (long i = 0; i < n; i++) {
        long which = AT(const T1, index, index_at)[i];

        if (value_given && which < 0 && which >= -size)
            which += size; /* only index_fill counts from the end */
        which = checked(which, size, errors, call);

        if (which >= 0)
            AT(T0, to, to_at)[(o * size + which) * inner + k] =
                value_given
                    ? *(T0 *)&value
                    : AT(const T0, source, source_at)[(o * n + i) * inner + k];
    }
}

/* ------------------------------------------------- by several at once -- */

/* The result is outer × count × rest: the dimensions before, one for all
 * indices, those behind (or all others, if the indexed ones are not
 * adjacent). */
typedef struct indexing {
    long outer, count, rest, outer_step;
    uint tensors, ndim;
    long limits[4], steps[4];
    uint sizes[MAX_NDIM];
    long strides[MAX_NDIM];
} indexing;

#define INDICES                                                              \
    const global uchar *i0, ulong i0_at, const global uchar *i1,             \
        ulong i1_at, const global uchar *i2, ulong i2_at,                    \
        const global uchar *i3, ulong i3_at

static long one_of(const indexing *p, uint k, long index, global fault *errors,
                   long call)
{
    if (index < -p->limits[k] || index >= p->limits[k]) {
        fail(errors, 8, call, index);
        return 0;
    }
    return (index < 0 ? index + p->limits[k] : index) * p->steps[k];
}

#define PLACE(i)                                                              \
    ((p.tensors > 0                                                           \
          ? one_of(&p, 0, AT(const T1, i0, i0_at)[i], errors, call)           \
          : 0) +                                                              \
     (p.tensors > 1                                                           \
          ? one_of(&p, 1, AT(const T1, i1, i1_at)[i], errors, call)           \
          : 0) +                                                              \
     (p.tensors > 2                                                           \
          ? one_of(&p, 2, AT(const T1, i2, i2_at)[i], errors, call)           \
          : 0) +                                                              \
     (p.tensors > 3                                                           \
          ? one_of(&p, 3, AT(const T1, i3, i3_at)[i], errors, call)           \
          : 0))

static long beside(const indexing *p, long outer, long rest)
{
    long at = outer * p->outer_step;

    for (uint d = 0; d < p->ndim; d++) {
        at += rest % p->sizes[d] * p->strides[d];
        rest /= p->sizes[d];
    }
    return at;
}

kernel void index_(global uchar *to, ulong to_at, const global uchar *in,
                   ulong in_at, INDICES, indexing p, global fault *errors,
                   long call)
{
    const long at = get_global_id(0), r = at % p.rest;
    const long i = at / p.rest % p.count, o = at / p.rest / p.count;

    if (o < p.outer)
        AT(T0, to, to_at)[at] =
            AT(const T0, in, in_at)[beside(&p, o, r) + PLACE(i)];
}

/* to contains a copy of self. */
kernel void put_(global uchar *to, ulong to_at, const global uchar *values,
                 ulong values_at, INDICES, indexing p, global fault *errors,
                 long call)
{
    const long at = get_global_id(0), r = at % p.rest, o = at / p.rest;

    if (o >= p.outer)
        return;
    for (long i = 0; i < p.count; i++)
        AT(T0, to, to_at)[beside(&p, o, r) + PLACE(i)] =
            AT(const T0, values, values_at)[(o * p.count + i) * p.rest + r];
}

kernel void add_(global uchar *to, ulong to_at, const global uchar *values,
                 ulong values_at, INDICES, indexing p, global fault *errors,
                 long call)
{
    const long at = get_global_id(0), r = at % p.rest, o = at / p.rest;

    if (o >= p.outer)
        return;
    for (long i = 0; i < p.count; i++) {
        long place = beside(&p, o, r) + PLACE(i);

#if ID0 == BOOLn
        AT(T0, to, to_at)
        [place] |= AT(const T0, values,
                      values_at)[(o * p.count + i) * p.rest + r];
#else
        STORE(0, to, to_at, place,
              LOAD(0, to, to_at, place) +
                  LOAD(0, values, values_at, (o * p.count + i) * p.rest + r));
#endif
    }
}
