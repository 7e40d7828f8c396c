/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* rows.cl: operators that look at a whole line: softmax, layer norm.  A work
 * item for each line, sums in ACC0. */

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
    const global T0 *x = AT(const T0, in, in_at) + base;
    global T0 *y = AT(T0, to, to_at) + base;
    T0 most = -INFINITY;
    ACC0 sum = 0;

    for (long i = 0; i < n; i++) {
        T0 v = x[i * inner];
        most = v > most || v != v ? v : most;
    }
    for (long i = 0; i < n; i++)
        sum += (ACC0)exp(x[i * inner] - most);
    if (logarithm) {
        T0 shift = (T0)log(sum);
        for (long i = 0; i < n; i++)
            y[i * inner] = x[i * inner] - most - shift;
    } else {
        for (long i = 0; i < n; i++)
            y[i * inner] = (T0)((ACC0)exp(x[i * inner] - most) / sum);
    }
}

kernel void softmax_backward(global uchar *to, ulong to_at,
                             const global uchar *grad, ulong grad_at,
                             const global uchar *out, ulong out_at,
                             long outer, long n, long inner, int logarithm)
{
    LINE;
    const global T0 *g = AT(const T0, grad, grad_at) + base;
    const global T0 *y = AT(const T0, out, out_at) + base;
    global T0 *to_row = AT(T0, to, to_at) + base;
    ACC0 sum = 0;

    for (long i = 0; i < n; i++)
        sum += logarithm ? (ACC0)g[i * inner]
                         : (ACC0)g[i * inner] * y[i * inner];
    for (long i = 0; i < n; i++) {
        ACC0 v = g[i * inner], z = y[i * inner];

        to_row[i * inner] =
            (T0)(logarithm ? v - exp(z) * sum : (v - sum) * z);
    }
}

kernel void layer_norm(global uchar *to, ulong to_at, global uchar *means,
                       ulong means_at, global uchar *rstds, ulong rstds_at,
                       const global uchar *in, ulong in_at,
                       const global uchar *weight, ulong weight_at,
                       const global uchar *bias, ulong bias_at, long rows,
                       long n, wide eps, int has)
{
    long row = get_global_id(0);
    ACC0 mean = 0, square = 0, scale;

    if (row >= rows)
        return;
    const global T0 *x = AT(const T0, in, in_at) + row * n;
    global T0 *y = AT(T0, to, to_at) + row * n;
    for (long i = 0; i < n; i++)
        mean += x[i];
    mean /= n;
    for (long i = 0; i < n; i++)
        square += (x[i] - mean) * (x[i] - mean);
    scale = 1 / sqrt(square / n + (ACC0)eps);
    for (long i = 0; i < n; i++) {
        ACC0 v = (x[i] - mean) * scale;

        if (has & 1)
            v *= AT(const T0, weight, weight_at)[i];
        if (has & 2)
            v += AT(const T0, bias, bias_at)[i];
        y[i] = (T0)v;
    }
    AT(T0, means, means_at)[row] = (T0)mean;
    AT(T0, rstds, rstds_at)[row] = (T0)scale;
}

kernel void layer_norm_input(global uchar *to, ulong to_at,
                             const global uchar *grad, ulong grad_at,
                             const global uchar *in, ulong in_at,
                             const global uchar *means, ulong means_at,
                             const global uchar *rstds, ulong rstds_at,
                             const global uchar *weight, ulong weight_at,
                             long rows, long n, int has)
{
    long row = get_global_id(0);
    ACC0 sum = 0, dot_ = 0;

    if (row >= rows)
        return;
    const ACC0 mean = AT(const T0, means, means_at)[row];
    const ACC0 scale = AT(const T0, rstds, rstds_at)[row];
    const global T0 *x = AT(const T0, in, in_at) + row * n;
    const global T0 *g = AT(const T0, grad, grad_at) + row * n;
    const global T0 *w = AT(const T0, weight, weight_at);
    global T0 *y = AT(T0, to, to_at) + row * n;
    for (long i = 0; i < n; i++) {
        ACC0 v = has & 1 ? (ACC0)g[i] * w[i] : (ACC0)g[i];

        sum += v;
        dot_ += v * (x[i] - mean) * scale;
    }
    sum /= n;
    dot_ /= n;
    for (long i = 0; i < n; i++) {
        ACC0 v = has & 1 ? (ACC0)g[i] * w[i] : (ACC0)g[i];

        y[i] = (T0)((v - sum - (x[i] - mean) * scale * dot_) * scale);
    }
}

/* bits of want: 1 the weight's, 2 the bias's. */
kernel void layer_norm_weight(global uchar *dw, ulong dw_at, global uchar *db,
                              ulong db_at, const global uchar *grad,
                              ulong grad_at, const global uchar *in,
                              ulong in_at, const global uchar *means,
                              ulong means_at, const global uchar *rstds,
                              ulong rstds_at, long rows, long n, int want)
{
    long i = get_global_id(0);
    ACC0 w = 0, b = 0;

    if (i >= n)
        return;
    for (long row = 0; row < rows; row++) {
        ACC0 g = AT(const T0, grad, grad_at)[row * n + i];
        ACC0 x = AT(const T0, in, in_at)[row * n + i];

        b += g;
        w += g * (x - AT(const T0, means, means_at)[row]) *
             AT(const T0, rstds, rstds_at)[row];
    }
    if (want & 1)
        AT(T0, dw, dw_at)[i] = (T0)w;
    if (want & 2)
        AT(T0, db, db_at)[i] = (T0)b;
}
