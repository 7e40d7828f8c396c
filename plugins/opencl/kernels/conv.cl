/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* conv.cl: images as columns (channel, ky, kx) × (y, x), and back. */

typedef struct geometry {
    long images, channels, height, width; /* of the input */
    long out_height, out_width;
    long kernel_y, kernel_x, stride_y, stride_x, pad_y, pad_x;
    long dilation_y, dilation_x;
} geometry;

kernel void unfold(global uchar *to, ulong to_at, const global uchar *in,
                   ulong in_at, geometry g)
{
    long i = get_global_id(0), left = i;
    long x = left % g.out_width, y, kx, ky, c, image, iy, ix;

    left /= g.out_width;
    y = left % g.out_height;
    left /= g.out_height;
    kx = left % g.kernel_x;
    left /= g.kernel_x;
    ky = left % g.kernel_y;
    left /= g.kernel_y;
    c = left % g.channels;
    image = left / g.channels;
    if (image >= g.images)
        return;
    iy = y * g.stride_y - g.pad_y + ky * g.dilation_y;
    ix = x * g.stride_x - g.pad_x + kx * g.dilation_x;
    AT(T0, to, to_at)[i] =
        iy >= 0 && iy < g.height && ix >= 0 && ix < g.width
            ? AT(const T0, in, in_at)[((image * g.channels + c) * g.height +
                                       iy) * g.width + ix]
            : 0;
}

/* Each element of the image sums up where it went, in a fixed order. */
kernel void fold(global uchar *to, ulong to_at, const global uchar *columns,
                 ulong columns_at, geometry g)
{
    long i = get_global_id(0);
    long ix = i % g.width, iy = i / g.width % g.height;
    long plane = i / g.width / g.height;
    const global T0 *from = AT(const T0, columns, columns_at);
    ACC0 sum = 0;

    if (plane >= g.images * g.channels)
        return;
    for (long ky = 0; ky < g.kernel_y; ky++) {
        long y = iy + g.pad_y - ky * g.dilation_y;

        if (y < 0 || y % g.stride_y || y / g.stride_y >= g.out_height)
            continue;
        for (long kx = 0; kx < g.kernel_x; kx++) {
            long x = ix + g.pad_x - kx * g.dilation_x;

            if (x < 0 || x % g.stride_x || x / g.stride_x >= g.out_width)
                continue;
            sum += from[(((plane * g.kernel_y + ky) * g.kernel_x + kx) *
                             g.out_height + y / g.stride_y) * g.out_width +
                        x / g.stride_x];
        }
    }
    AT(T0, to, to_at)[i] = (T0)sum;
}

/* The sum of a channel over images and places. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
bias(global uchar *to, ulong to_at, const global uchar *grad, ulong grad_at,
     long images, long channels, long places)
{
    local ACC0 lanes[GROUP];
    uint me = get_local_id(0);
    long c = get_group_id(0);
    ACC0 sum = 0;

    for (long i = me; i < images * places; i += GROUP)
        sum += AT(const T0, grad, grad_at)[(i / places * channels + c) *
                                               places + i % places];
    lanes[me] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_ = GROUP / 2; half_ > 0; half_ /= 2) {
        if (me < half_)
            lanes[me] += lanes[me + half_];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (me == 0)
        AT(T0, to, to_at)[c] = (T0)lanes[0];
}
