/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* scan.cl: running sums, products, log-sum-exps and extremes.  A work item for
 * each line of n elements, `inner` apart; T0 is the result's type, T1 the
 * input's. */

#define LINE                                      \
    const long at = get_global_id(0);             \
    if (at >= outer * inner)                      \
        return;                                   \
    const long base = at / inner * n * inner + at % inner

enum { SUM, PRODUCT };

kernel void accumulate(global uchar *to, ulong to_at, const global uchar *in,
                       ulong in_at, long outer, long n, long inner, int what)
{
    LINE;
#if ID0 <= BF16n
    wide sum = what == PRODUCT;
#else
    long sum = what == PRODUCT;
#endif

    for (long i = base; i < base + n * inner; i += inner) {
        if (what == PRODUCT)
            sum *= LOAD(1, in, in_at, i);
        else
            sum += LOAD(1, in, in_at, i);
        STORE(0, to, to_at, i, sum);
    }
}

#if ID0 <= BF16n
kernel void exponentials(global uchar *to, ulong to_at,
                         const global uchar *in, ulong in_at, long outer,
                         long n, long inner, int what)
{
    LINE;
    wide sum = -INFINITY;

    for (long i = base; i < base + n * inner; i += inner) {
        wide x = LOAD(1, in, in_at, i), most = sum > x ? sum : x;

        if (most == -INFINITY || sum != sum || x != x)
            sum = sum + x;
        else if (most == INFINITY)
            sum = most;
        else
            sum = most + log1p(exp((sum > x ? x : sum) - most));
        STORE(0, to, to_at, i, sum);
    }
}
#endif

/* The last of equal elements; NaN from its first occurrence on. */
kernel void extremes(global uchar *to, ulong to_at, global uchar *where,
                     ulong where_at, const global uchar *in, ulong in_at,
                     long outer, long n, long inner, int least)
{
    LINE;
    C1 best = n > 0 ? LOAD(1, in, in_at, base) : 0;
    long found = 0;

    for (long i = 0; i < n; i++) {
        C1 x = LOAD(1, in, in_at, base + i * inner);

        if (x != x || (best == best && (least ? x <= best : x >= best))) {
            best = x;
            found = i;
        }
        STORE(0, to, to_at, base + i * inner, best);
        AT(long, where, where_at)[base + i * inner] = found;
    }
}
