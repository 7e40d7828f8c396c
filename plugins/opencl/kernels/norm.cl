/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* norm.cl: layer, group and batch normalisation.  T0: the images' type; T1:
 * that of weight and bias; T2: of the statistics; T3: of the running ones.
 * A group of work items for each line, whose sums have one order. */

static ACC0 total(local ACC0 *lanes, ACC0 mine)
{
    uint me = get_local_id(0);

    barrier(CLK_LOCAL_MEM_FENCE);
    lanes[me] = mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_ = GROUP / 2; half_ > 0; half_ /= 2) {
        if (me < half_)
            lanes[me] += lanes[me + half_];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    return lanes[0];
}

#define WHOLE kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
enum { HAS_WEIGHT = 1, HAS_BIAS = 2, TRAINING = 4, WANT_INPUT = 8 };
enum { HAS_MEAN = 16, HAS_SPREAD = 32, SAVES = 64 };

/* A row is `channels` × `inner` elements; its weights begin at (row % groups) ×
 * channels. */
WHOLE forward(global uchar *to, ulong to_at, global uchar *means,
              ulong means_at, global uchar *rstds, ulong rstds_at,
              const global uchar *in, ulong in_at, const global uchar *weight,
              ulong weight_at, const global uchar *bias, ulong bias_at,
              long groups, long channels, long inner, wide eps, int has)
{
    local ACC0 lanes[GROUP];
    const long row = get_group_id(0), size = channels * inner;
    const long base = row * size, first = row % groups * channels;
    ACC0 sum = 0, mean, scale;

    for (long i = get_local_id(0); i < size; i += GROUP)
        sum += LOAD(0, in, in_at, base + i);
    mean = total(lanes, sum) / size;
    sum = 0;
    for (long i = get_local_id(0); i < size; i += GROUP) {
        ACC0 x = LOAD(0, in, in_at, base + i) - mean;

        sum += x * x;
    }
    scale = 1 / sqrt(total(lanes, sum) / size + (ACC0)eps);
    for (long i = get_local_id(0); i < size; i += GROUP) {
        ACC0 v = (LOAD(0, in, in_at, base + i) - mean) * scale;

        if (has & HAS_WEIGHT)
            v *= LOAD(1, weight, weight_at, first + i / inner);
        if (has & HAS_BIAS)
            v += LOAD(1, bias, bias_at, first + i / inner);
        STORE(0, to, to_at, base + i, v);
    }
    if (get_local_id(0) == 0) {
        STORE(2, means, means_at, row, mean);
        STORE(2, rstds, rstds_at, row, scale);
    }
}

WHOLE input(global uchar *to, ulong to_at, const global uchar *grad,
            ulong grad_at, const global uchar *in, ulong in_at,
            const global uchar *means, ulong means_at,
            const global uchar *rstds, ulong rstds_at,
            const global uchar *weight, ulong weight_at, long groups,
            long channels, long inner, int has)
{
    local ACC0 lanes[GROUP];
    const long row = get_group_id(0), size = channels * inner;
    const long base = row * size, first = row % groups * channels;
    const ACC0 mean = LOAD(2, means, means_at, row);
    const ACC0 scale = LOAD(2, rstds, rstds_at, row);
    ACC0 sum = 0, moment = 0;

    for (long i = get_local_id(0); i < size; i += GROUP) {
        ACC0 v = LOAD(0, grad, grad_at, base + i);

        if (has & HAS_WEIGHT)
            v *= LOAD(1, weight, weight_at, first + i / inner);
        sum += v;
        moment += v * (LOAD(0, in, in_at, base + i) - mean) * scale;
    }
    sum = total(lanes, sum) / size;
    moment = total(lanes, moment) / size;
    for (long i = get_local_id(0); i < size; i += GROUP) {
        ACC0 v = LOAD(0, grad, grad_at, base + i);
        ACC0 x = (LOAD(0, in, in_at, base + i) - mean) * scale;

        if (has & HAS_WEIGHT)
            v *= LOAD(1, weight, weight_at, first + i / inner);
        STORE(0, to, to_at, base + i, (v - sum - x * moment) * scale);
    }
}

/* Of one channel: over the rows that have it. */
WHOLE weights(global uchar *dw, ulong dw_at, global uchar *db, ulong db_at,
              const global uchar *grad, ulong grad_at, const global uchar *in,
              ulong in_at, const global uchar *means, ulong means_at,
              const global uchar *rstds, ulong rstds_at, long rows,
              long groups, long channels, long inner, int want)
{
    local ACC0 lanes[GROUP];
    const long c = get_group_id(0);
    ACC0 w = 0, b = 0;

    for (long i = get_local_id(0); i < rows / groups * inner; i += GROUP) {
        long row = c / channels + i / inner * groups;
        long at = (row * channels + c % channels) * inner + i % inner;
        ACC0 g = LOAD(0, grad, grad_at, at);

        b += g;
        w += g * (LOAD(0, in, in_at, at) - LOAD(2, means, means_at, row)) *
             LOAD(2, rstds, rstds_at, row);
    }
    w = total(lanes, w);
    b = total(lanes, b);
    if (get_local_id(0) == 0 && (want & HAS_WEIGHT))
        STORE(1, dw, dw_at, c, w);
    if (get_local_id(0) == 0 && (want & HAS_BIAS))
        STORE(1, db, db_at, c, b);
}

/* A channel of images × channels × inner. */
WHOLE batch(global uchar *to, ulong to_at, global uchar *means, ulong means_at,
            global uchar *rstds, ulong rstds_at, const global uchar *in,
            ulong in_at, const global uchar *weight, ulong weight_at,
            const global uchar *bias, ulong bias_at, global uchar *run,
            ulong run_at, global uchar *spread, ulong spread_at, long images,
            long channels, long inner, wide momentum, wide eps, int has)
{
    local ACC0 lanes[GROUP];
    const long c = get_group_id(0), count = images * inner;
    ACC0 sum = 0, mean, scale, shift = 0;

    if (has & TRAINING) {
        for (long i = get_local_id(0); i < count; i += GROUP)
            sum += LOAD(0, in, in_at,
                        (i / inner * channels + c) * inner + i % inner);
        mean = total(lanes, sum) / count;
        sum = 0;
        for (long i = get_local_id(0); i < count; i += GROUP) {
            ACC0 x = LOAD(0, in, in_at,
                          (i / inner * channels + c) * inner + i % inner) -
                     mean;

            sum += x * x;
        }
        sum = total(lanes, sum);
        scale = 1 / sqrt(sum / count + (ACC0)eps);
    } else {
        mean = LOAD(3, run, run_at, c);
        scale = 1 / sqrt(LOAD(3, spread, spread_at, c) + (ACC0)eps);
    }
    if (get_local_id(0) == 0 && (has & SAVES)) {
        STORE(2, means, means_at, c, mean);
        STORE(2, rstds, rstds_at, c, scale);
    }
    if (get_local_id(0) == 0 && (has & TRAINING)) {
        ACC0 mix = (ACC0)momentum;

        if (has & HAS_MEAN)
            STORE(3, run, run_at, c,
                  (1 - mix) * LOAD(3, run, run_at, c) + mix * mean);
        if (has & HAS_SPREAD)
            STORE(3, spread, spread_at, c,
                  (1 - mix) * LOAD(3, spread, spread_at, c) +
                      mix * sum / (count - 1));
    }
    if (has & HAS_WEIGHT)
        scale *= LOAD(1, weight, weight_at, c);
    if (has & HAS_BIAS)
        shift = LOAD(1, bias, bias_at, c);
    for (long i = get_local_id(0); i < count; i += GROUP) {
        long at = (i / inner * channels + c) * inner + i % inner;

        STORE(0, to, to_at, at,
              (LOAD(0, in, in_at, at) - mean) * scale + shift);
    }
}

/* In training the statistics are the saved ones, else the running ones. */
WHOLE batch_backward(global uchar *to, ulong to_at, global uchar *dw,
                     ulong dw_at, global uchar *db, ulong db_at,
                     const global uchar *grad, ulong grad_at,
                     const global uchar *in, ulong in_at,
                     const global uchar *weight, ulong weight_at,
                     const global uchar *means, ulong means_at,
                     const global uchar *spreads, ulong spreads_at,
                     long images, long channels, long inner, wide eps, int has,
                     int want)
{
    local ACC0 lanes[GROUP];
    const long c = get_group_id(0), count = images * inner;
    const ACC0 mean = LOAD(2, means, means_at, c);
    ACC0 scale = LOAD(2, spreads, spreads_at, c), sum = 0, moment = 0, factor;

    if (!(has & TRAINING))
        scale = 1 / sqrt(scale + (ACC0)eps);
    for (long i = get_local_id(0); i < count; i += GROUP) {
        long at = (i / inner * channels + c) * inner + i % inner;
        ACC0 g = LOAD(0, grad, grad_at, at);

        sum += g;
        moment += g * (LOAD(0, in, in_at, at) - mean);
    }
    sum = total(lanes, sum);
    moment = total(lanes, moment) * scale;
    if (get_local_id(0) == 0 && (want & HAS_WEIGHT))
        STORE(1, dw, dw_at, c, moment);
    if (get_local_id(0) == 0 && (want & HAS_BIAS))
        STORE(1, db, db_at, c, sum);
    factor = has & HAS_WEIGHT ? scale * LOAD(1, weight, weight_at, c) : scale;
    sum = has & TRAINING ? sum / count : 0;
    moment = has & TRAINING ? moment * scale / count : 0;
    for (long i = get_local_id(0); i < count && (want & WANT_INPUT);
         i += GROUP) {
        long at = (i / inner * channels + c) * inner + i % inner;

        STORE(0, to, to_at, at,
              factor * (LOAD(0, grad, grad_at, at) - sum -
                        (LOAD(0, in, in_at, at) - mean) * moment));
    }
}
