/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* pooling.cl: windows of the last two dimensions.  Every element is written by
 * one work item, so sums have a fixed order. */

typedef struct windows {
    long planes, height, width, out_height, out_width;
    long kernel_y, kernel_x, stride_y, stride_x, pad_y, pad_x;
    long dilation_y, dilation_x, divisor;
    int with_padding, reserved;
} windows;

#define PLACE(h, w)                             \
    long i = get_global_id(0);                  \
    long x = i % (w), y = i / (w) % (h);        \
    long plane = i / (w) / (h);                 \
    if (plane >= g.planes)                      \
        return

kernel void most(global uchar *to, ulong to_at, global uchar *where,
                 ulong where_at, const global uchar *in, ulong in_at,
                 windows g)
{
    PLACE(g.out_height, g.out_width);
    const global T0 *from =
        AT(const T0, in, in_at) + plane * g.height * g.width;
    long best = -1;
    C0 value = 0;

    for (long ky = 0; ky < g.kernel_y; ky++)
        for (long kx = 0; kx < g.kernel_x; kx++) {
            long iy = y * g.stride_y - g.pad_y + ky * g.dilation_y;
            long ix = x * g.stride_x - g.pad_x + kx * g.dilation_x;

            if (iy < 0 || iy >= g.height || ix < 0 || ix >= g.width)
                continue;
            C0 v = GET0(from[iy * g.width + ix]);
            if (best < 0 || v > value || v != v) {
                best = iy * g.width + ix;
                value = v;
            }
        }
    STORE(0, to, to_at, i, best < 0 ? -(C0)INFINITY : value);
    AT(long, where, where_at)[i] = best;
}

/* A work item for each plane: indices may refer to any of its positions. */
kernel void most_backward(global uchar *to, ulong to_at,
                          const global uchar *grad, ulong grad_at,
                          const global uchar *where, ulong where_at,
                          windows g, global fault *errors, long call)
{
    long plane = get_global_id(0), size = g.height * g.width;
    long count = g.out_height * g.out_width;

    if (plane >= g.planes)
        return;
    global T0 *out = AT(T0, to, to_at) + plane * size;
    for (long i = 0; i < size; i++)
        out[i] = 0;
    for (long o = plane * count; o < (plane + 1) * count; o++) {
        long at = AT(const long, where, where_at)[o];

        if (at >= 0 && at < size)
            out[at] = PUT0(GET0(out[at]) + LOAD(0, grad, grad_at, o));
        else if (at != -1)
            fail(errors, 8, call, at);
    }
}

/* The window's bounds in the input, and the divisor of its sum. */
static long bounds(const windows *g, long y, long x, long *y0, long *y1,
                   long *x0, long *x1)
{
    long all;

    *y0 = y * g->stride_y - g->pad_y;
    *x0 = x * g->stride_x - g->pad_x;
    *y1 = min(*y0 + g->kernel_y, g->height + g->pad_y);
    *x1 = min(*x0 + g->kernel_x, g->width + g->pad_x);
    all = (*y1 - *y0) * (*x1 - *x0);
    *y0 = max(*y0, 0l);
    *x0 = max(*x0, 0l);
    *y1 = min(*y1, g->height);
    *x1 = min(*x1, g->width);
    if (g->divisor != 0)
        return g->divisor;
    return g->with_padding ? all : (*y1 - *y0) * (*x1 - *x0);
}

kernel void mean(global uchar *to, ulong to_at, const global uchar *in,
                 ulong in_at, windows g)
{
    PLACE(g.out_height, g.out_width);
    const global T0 *from =
        AT(const T0, in, in_at) + plane * g.height * g.width;
    long y0, y1, x0, x1, by = bounds(&g, y, x, &y0, &y1, &x0, &x1);
    ACC0 sum = 0;

    for (long iy = y0; iy < y1; iy++)
        for (long ix = x0; ix < x1; ix++)
            sum += GET0(from[iy * g.width + ix]);
    STORE(0, to, to_at, i, sum / by);
}

/* The first window that may contain a coordinate. */
static long first_window(long at, long pad, long span, long stride)
{
    long from = at + pad - span + 1;

    return from <= 0 ? 0 : (from + stride - 1) / stride;
}

kernel void mean_backward(global uchar *to, ulong to_at,
                          const global uchar *grad, ulong grad_at, windows g)
{
    PLACE(g.height, g.width);
    ACC0 sum = 0;

    for (long oy = first_window(y, g.pad_y, g.kernel_y, g.stride_y);
         oy < g.out_height && oy * g.stride_y - g.pad_y <= y; oy++)
        for (long ox = first_window(x, g.pad_x, g.kernel_x, g.stride_x);
             ox < g.out_width && ox * g.stride_x - g.pad_x <= x; ox++) {
            long y0, y1, x0, x1, by = bounds(&g, oy, ox, &y0, &y1, &x0, &x1);

            sum += (ACC0)LOAD(0, grad, grad_at,
                              (plane * g.out_height + oy) * g.out_width + ox) /
                   by;
        }
    STORE(0, to, to_at, i, sum);
}
