/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loss.cl: nll_loss.  T0: the type of the numbers; T1: of the targets.
 * position p is (outer, inner) = (p / inner, p % inner). */

/* The index in self of the target's class; -1: ignored, or invalid and
 * reported. */
static long class_at(const global T1 *target, long p, long classes, long inner,
                     long ignore, global fault *errors, long call)
{
    long t = target[p];

    if (t == ignore)
        return -1;
    if (t < 0 || t >= classes) {
        fail(errors, 8, call, t);
        return -1;
    }
    return (p / inner * classes + t) * inner + p % inner;
}

/* reduction: 0 none, 1 mean, 2 sum; one group. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
forward(global uchar *to, ulong to_at, global uchar *total, ulong total_at,
        const global uchar *in, ulong in_at, const global uchar *target,
        ulong target_at, const global uchar *weight, ulong weight_at,
        int has, long outer, long classes, long inner, int reduction,
        long ignore, global fault *errors, long call)
{
    local ACC0 sums[GROUP], weights[GROUP];
    const global T0 *x = AT(const T0, in, in_at);
    const global T1 *t = AT(const T1, target, target_at);
    uint me = get_local_id(0);
    ACC0 sum = 0, all = 0;

    for (long p = me; p < outer * inner; p += GROUP) {
        long at = class_at(t, p, classes, inner, ignore, errors, call);
        C0 w = at < 0 ? 0 : has ? LOAD(0, weight, weight_at, t[p]) : 1;
        C0 loss = at < 0 ? 0 : -w * GET0(x[at]);

        if (reduction == 0)
            STORE(0, to, to_at, p, loss);
        sum += loss;
        all += w;
    }
    sums[me] = sum;
    weights[me] = all;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_ = GROUP / 2; half_ > 0; half_ /= 2) {
        if (me < half_) {
            sums[me] += sums[me + half_];
            weights[me] += weights[me + half_];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (me == 0) {
        if (reduction != 0)
            STORE(0, to, to_at, 0,
                  reduction == 1 ? sums[0] / weights[0] : sums[0]);
        STORE(0, total, total_at, 0, reduction == 0 ? 0 : weights[0]);
    }
}

/* A work item for each position, which writes all its classes. */
kernel void backward(global uchar *to, ulong to_at, const global uchar *grad,
                     ulong grad_at, const global uchar *total, ulong total_at,
                     const global uchar *target, ulong target_at,
                     const global uchar *weight, ulong weight_at, int has,
                     long outer, long classes, long inner, int reduction,
                     long ignore, global fault *errors, long call)
{
    const global T1 *t = AT(const T1, target, target_at);
    long p = get_global_id(0), at;

    if (p >= outer * inner)
        return;
    for (long c = 0; c < classes; c++)
        AT(T0, to, to_at)[(p / inner * classes + c) * inner + p % inner] = 0;
    at = class_at(t, p, classes, inner, ignore, errors, call);
    if (at >= 0) {
        C0 w = has ? LOAD(0, weight, weight_at, t[p]) : 1;
        C0 g = LOAD(0, grad, grad_at, reduction == 0 ? p : 0);
        C0 by = reduction == 1 ? LOAD(0, total, total_at, 0) : 1;

        STORE(0, to, to_at, at, -w * g / by);
    }
}
