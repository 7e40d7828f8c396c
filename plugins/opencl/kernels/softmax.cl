/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* softmax.cl: softmax and its gradient.  A work item for each line; T0 is the
 * result's type, T1 the operands'. */

#define LINE                                                      \
    long at = get_global_id(0);                                   \
    if (at >= outer * inner)                                      \
        return;                                                   \
    const long base = at / inner * n * inner + at % inner

kernel void softmax(global uchar *to, ulong to_at, const global uchar *in,
                    ulong in_at, long outer, long n, long inner,
                    int logarithm)
{
    LINE;
    const global T1 *x = AT(const T1, in, in_at) + base;
    global T0 *y = AT(T0, to, to_at) + base;
    C1 most = -INFINITY;
    ACC1 sum = 0;

    for (long i = 0; i < n; i++) {
        C1 v = GET1(x[i * inner]);
        most = v > most || v != v ? v : most;
    }
    for (long i = 0; i < n; i++)
        sum += (ACC1)exp(GET1(x[i * inner]) - most);
    if (logarithm) {
        C1 shift = (C1)log(sum);
        for (long i = 0; i < n; i++)
            y[i * inner] = PUT0(GET1(x[i * inner]) - most - shift);
    } else {
        for (long i = 0; i < n; i++)
            y[i * inner] =
                PUT0((ACC1)exp(GET1(x[i * inner]) - most) / sum);
    }
}

kernel void softmax_backward(global uchar *to, ulong to_at,
                             const global uchar *grad, ulong grad_at,
                             const global uchar *out, ulong out_at,
                             long outer, long n, long inner, int logarithm)
{
    LINE;
    const global T1 *g = AT(const T1, grad, grad_at) + base;
    const global T1 *y = AT(const T1, out, out_at) + base;
    global T0 *to_row = AT(T0, to, to_at) + base;
    ACC1 sum = 0;

    for (long i = 0; i < n; i++)
        sum += logarithm ? (ACC1)GET1(g[i * inner])
                         : (ACC1)GET1(g[i * inner]) * GET1(y[i * inner]);
    for (long i = 0; i < n; i++) {
        ACC1 v = GET1(g[i * inner]), z = GET1(y[i * inner]);

        to_row[i * inner] =
            PUT0(logarithm ? v - exp(z) * sum : (v - sum) * z);
    }
}
