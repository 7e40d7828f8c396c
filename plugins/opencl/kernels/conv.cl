/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* conv.cl: images as columns (channel, kernel position) × (position), and back.
 * Positions have three dimensions; the first ones are 1 if there are fewer. */

typedef struct geometry {
    long images, channels;
    long size[3], out[3]; /* of the input and of the output */
    long kernel_[3], stride[3], pad[3], dilation[3];
} geometry;

kernel void unfold(global uchar *to, ulong to_at, const global uchar *in,
                   ulong in_at, geometry g)
{
    long i = get_global_id(0), left = i, at[3], from = 0;
    int inside = 1;

    for (int d = 2; d >= 0; d--) {
        at[d] = left % g.out[d] * g.stride[d] - g.pad[d];
        left /= g.out[d];
    }
    for (int d = 2; d >= 0; d--) {
        at[d] += left % g.kernel_[d] * g.dilation[d];
        left /= g.kernel_[d];
    }
    if (left >= g.images * g.channels)
        return;
    for (int d = 0; d < 3; d++) {
        inside &= at[d] >= 0 && at[d] < g.size[d];
        from = from * g.size[d] + at[d];
    }
    AT(T0, to, to_at)[i] =
        inside ? AT(const T0, in, in_at)[left * g.size[0] * g.size[1] *
                                             g.size[2] + from]
               : 0;
}

/* The output position that used an input position with kernel position k; -1:
 * none. */
static long went(const geometry *g, int d, long at, long k)
{
    long x = at + g->pad[d] - k * g->dilation[d];

    if (x < 0 || x % g->stride[d] || x / g->stride[d] >= g->out[d])
        return -1;
    return x / g->stride[d];
}

/* Each image element sums the columns that it was copied to, in a fixed
 * order. */
kernel void fold(global uchar *to, ulong to_at, const global uchar *columns,
                 ulong columns_at, geometry g)
{
    const long i = get_global_id(0);
    const long x = i % g.size[2], y = i / g.size[2] % g.size[1];
    const long z = i / g.size[2] / g.size[1] % g.size[0];
    const long plane = i / g.size[2] / g.size[1] / g.size[0];
    const global T0 *from = AT(const T0, columns, columns_at);
    ACC0 sum = 0;

    if (plane >= g.images * g.channels)
        return;
    for (long kz = 0; kz < g.kernel_[0]; kz++) {
        long oz = went(&g, 0, z, kz);

        for (long ky = 0; oz >= 0 && ky < g.kernel_[1]; ky++) {
            long oy = went(&g, 1, y, ky);

            for (long kx = 0; oy >= 0 && kx < g.kernel_[2]; kx++) {
                long ox = went(&g, 2, x, kx);
                long row = ((plane * g.kernel_[0] + kz) * g.kernel_[1] + ky) *
                               g.kernel_[2] + kx;

                if (ox >= 0)
                    sum += GET0(from[((row * g.out[0] + oz) * g.out[1] + oy) *
                                         g.out[2] + ox]);
            }
        }
    }
    STORE(0, to, to_at, i, sum);
}

/* Adds a channel's number to all its positions. */
kernel void add_bias(global uchar *to, ulong to_at, const global uchar *bias_,
                     ulong bias_at, long numel, long channels, long places)
{
    const long i = get_global_id(0);

    if (i < numel)
        STORE(0, to, to_at, i,
              LOAD(0, to, to_at, i) +
                  LOAD(0, bias_, bias_at, i / places % channels));
}

/* The sum of a channel over images and positions. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
bias(global uchar *to, ulong to_at, const global uchar *grad, ulong grad_at,
     long images, long channels, long places)
{
    local ACC0 lanes[GROUP];
    uint me = get_local_id(0);
    long c = get_group_id(0);
    ACC0 sum = 0;

    for (long i = me; i < images * places; i += GROUP)
        sum += LOAD(0, grad, grad_at,
                    (i / places * channels + c) * places + i % places);
    lanes[me] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_ = GROUP / 2; half_ > 0; half_ /= 2) {
        if (me < half_)
            lanes[me] += lanes[me + half_];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (me == 0)
        STORE(0, to, to_at, c, lanes[0]);
}
