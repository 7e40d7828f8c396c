/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sort.cl: orders each line by a stable merge sort of the element positions,
 * one work item per line; and searches in sorted rows.  NaN is above all
 * numbers. */

static int less(C0 a, C0 b)
{
    return a < b || (b != b && a == a);
}

static int before(C0 a, C0 b, int descending)
{
    return descending ? less(b, a) : less(a, b);
}

enum { SORTED, KTH, MEDIAN, NAN_MEDIAN, MODE };

/* The requested position in an ascending line. */
static long chosen(const global T0 *x, const global long *order, long n,
                   long inner, int what, long k)
{
    long numbers = n, most = 0, run = 0, found = 0;

    if (what == KTH)
        return k - 1;
    if (what == MODE) {
        for (long i = 0; i < n; i++) {
            run++;
            if (i + 1 < n && GET0(x[order[i] * inner]) ==
                                 GET0(x[order[i + 1] * inner]))
                continue;
            if (run > most) {
                most = run;
                found = i;
            }
            run = 0;
        }
        return found;
    }
    while (numbers > 0) {
        C0 last = GET0(x[order[numbers - 1] * inner]);

        if (last == last)
            break;
        numbers--;
    }
    if (numbers < n && (what == MEDIAN || numbers == 0))
        return numbers;
    return (numbers - 1) / 2;
}

/* scratch: two positions for each element.  keep: the number of elements to write
 * per line. */
kernel void sort(global uchar *to, ulong to_at, global uchar *where,
                 ulong where_at, const global uchar *in, ulong in_at,
                 global uchar *scratch, ulong scratch_at, long outer, long n,
                 long inner, long keep, int descending, int what, int indices)
{
    const long at = get_global_id(0);
    const long base = at / inner * n * inner + at % inner;
    const global T0 *x = AT(const T0, in, in_at) + base;
    global long *a = AT(long, scratch, scratch_at) + at * 2 * n, *b = a + n, *swap;

    if (at >= outer * inner)
        return;
    for (long i = 0; i < n; i++)
        a[i] = i;
    for (long run = 1; run < n; run *= 2) {
        for (long low = 0; low < n; low += 2 * run) {
            long i = low, middle = min(low + run, n);
            long j = middle, high = min(low + 2 * run, n);

            for (long k = low; k < high; k++)
                if (j < high &&
                    (i >= middle || before(GET0(x[a[j] * inner]),
                                           GET0(x[a[i] * inner]), descending)))
                    b[k] = a[j++];
                else
                    b[k] = a[i++];
        }
        swap = a;
        a = b;
        b = swap;
    }
    for (long i = 0; i < keep; i++) {
        long k = what == SORTED ? i : chosen(x, a, n, inner, what, keep);
        long put = what == SORTED
                       ? (at / inner * keep + i) * inner + at % inner
                       : at;

        AT(T0, to, to_at)[put] = x[a[k] * inner];
        if (indices)
            AT(long, where, where_at)[put] = a[k];
        if (what != SORTED)
            break;
    }
}

/* T1: the type of the positions.  `count` values per row; or all for the only
 * row. */
#ifdef T1
kernel void search(global uchar *to, ulong to_at, const global uchar *rows,
                   ulong rows_at, const global uchar *in, ulong in_at,
                   const global uchar *order, ulong order_at, long numel,
                   long size, long count, int right, int ordered,
                   global fault *errors, long call)
{
    const long i = get_global_id(0);
    long low = 0, high = size, base;

    if (i >= numel)
        return;
    base = i / count * size;
    C0 x = LOAD(0, in, in_at, i);
    while (low < high) {
        long middle = low + (high - low) / 2, k = middle;

        if (ordered)
            k = AT(const long, order, order_at)[base + middle];
        if (k < 0 || k >= size) {
            fail(errors, 8, call, k);
            k = 0;
        }
        C0 y = LOAD(0, rows, rows_at, base + k);
        if (right ? y > x : y >= x)
            high = middle;
        else
            low = middle + 1;
    }
    AT(T1, to, to_at)[i] = (T1)low;
}
#endif
