/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* resample.c: upsampling by nearest, linear and cubic interpolation in one to
 * three dimensions, and the gradients.
 *
 * Interpolation is separable: for each dimension a table gives the input
 * coordinates that an output coordinate takes and their weights (one for
 * nearest, two for linear, four for cubic).  Planes are independent, and each
 * is computed by one thread. */

#include <math.h>
#include <stdlib.h>

#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

enum { NEAREST = 1, LINEAR = 2, CUBIC = 4 }; /* = taps */
enum { EXACT = 32 }; /* nearest to the centre, as most image libraries do */

typedef struct tap {
    int64_t index[4];
    double weight[4];
    int32_t whole[4]; /* of u8: weight times 2 to the power of bits, rounded */
} tap;

typedef struct resampling {
    core_dtype dtype;
    uint32_t ndim, kind;
    bool align, exact;
    int64_t planes, in[3], out[3], in_size, out_size;
    int64_t count[3]; /* taps of a dimension */
    int bits[3];      /* of u8: fraction bits of whole weights */
    tap *taps[3];
    tap *owned;
    cpu_dense x, y;
} resampling;

/* ------------------------------------------------------------------ taps -- */

/* Rounds down to an index. */
static int64_t index_near(double at, int64_t size)
{
    return !(at > 0) ? 0 : at >= (double)(size - 1) ? size - 1 : (int64_t)at;
}

/* Input coordinates per output coordinate; scale is the scale factor that the
 * caller gave, or 0. */
static double ratio_of(const resampling *job, int64_t in, int64_t out,
                       double scale)
{
    if (job->align && job->kind != NEAREST)
        return out > 1 ? (double)(in - 1) / (double)(out - 1) : 0;
    return scale > 0 ? 1 / scale : (double)in / (double)out;
}

static tap tap_of(int64_t index)
{
    return (tap){.index = {index}, .weight = {1}};
}

static tap tap_nearest(int64_t o, int64_t in, int64_t out, float ratio)
{
    int64_t i = index_near((double)((float)o * ratio), in);

    if (in == out)
        i = o;
    else if (out == 2 * in)
        i = o / 2;
    return tap_of(i);
}

static tap tap_nearest_exact(int64_t o, int64_t in, float ratio)
{
    return tap_of(index_near((double)(((float)o + 0.5f) * ratio), in));
}

static tap tap_linear(double at, int64_t in)
{
    int64_t i;

    at = !(at > 0) ? 0 : at > (double)(in - 1) ? (double)(in - 1) : at;
    i = index_near(at, in);
    return (tap){.index = {i, i + (i + 1 < in)},
                 .weight = {1 - (at - (double)i), at - (double)i}};
}

/* Cubic convolution with a = -3/4 (R. Keys, 1981). */
static double cubic(double x)
{
    const double a = -0.75;

    x = fabs(x);
    if (x <= 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

static tap tap_cubic(double at, int64_t in)
{
    double beyond = (double)in + 2, whole; /* there, all taps are the last */
    tap t;

    at = at < beyond ? at : beyond;
    whole = floor(at);

    for (int k = 0; k < 4; k++) {
        t.index[k] = index_near(whole + (k - 1), in);
        t.weight[k] = cubic(at - whole - (k - 1));
    }
    return t;
}

static void taps_fill(resampling *job, uint32_t k, double scale)
{
    int64_t in = job->in[k], out = job->out[k];
    double ratio = ratio_of(job, in, out, scale);

    for (int64_t o = 0; o < out; o++) {
        double at =
            job->align ? (double)o * ratio : ((double)o + 0.5) * ratio - 0.5;

        job->taps[k][o] = job->exact ? tap_nearest_exact(o, in, (float)ratio)
                          : job->count[k] == NEAREST
                              ? tap_nearest(o, in, out, (float)ratio)
                          : job->count[k] == LINEAR ? tap_linear(at, in)
                                                    : tap_cubic(at, in);
    }
}

/* call->user: EXACT + kind * 4 + dimensions */
static resampling resampling_of(const core_call *call)
{
    uintptr_t user = (uintptr_t)call->user;

    return (resampling){.ndim = user % 4,
                        .kind = (uint32_t)(user % EXACT / 4),
                        .exact = user >= EXACT};
}

/* scales: three, 0 if not given. */
static core_status resampling_open(resampling *job, const core_view *in,
                                   const core_view *out, bool align,
                                   const double *scales)
{
    int64_t total = 0;

    job->dtype = cpu_compute_dtype(in->dtype);
    job->align = align;
    job->planes = in->sizes[0] * in->sizes[1];
    job->in_size = job->out_size = 1;
    for (uint32_t k = 0; k < 3; k++) {
        bool there = k + job->ndim >= 3;

        job->in[k] = there ? in->sizes[in->ndim + k - 3] : 1;
        job->out[k] = there ? out->sizes[out->ndim + k - 3] : 1;
        job->count[k] = there ? job->kind : 1;
        job->in_size *= job->in[k];
        job->out_size *= job->out[k];
        total += job->out[k];
    }
    job->owned = cpu_allocate(total, sizeof(tap));
    if (!job->owned)
        return CORE_ERROR_OUT_OF_MEMORY;
    job->taps[0] = job->owned;
    job->taps[1] = job->taps[0] + job->out[0];
    job->taps[2] = job->taps[1] + job->out[1];
    for (uint32_t k = 0; k < 3; k++)
        taps_fill(job, k, k + job->ndim >= 3 ? scales[k + job->ndim - 3] : 0);
    return CORE_OK;
}

static void resampling_close(resampling *job)
{
    free(job->owned);
    cpu_dense_close(&job->x);
    cpu_dense_close(&job->y);
}

/* ---------------------------------------------------------------- planes -- */

/* The position of each pair of taps in depth and height, and its weight. */
typedef struct tap_row {
    int64_t offset;
    double weight;
} tap_row;

static int64_t tap_rows(const resampling *job, int64_t row, tap_row *out)
{
    const tap *d = &job->taps[0][row / job->out[1]];
    const tap *h = &job->taps[1][row % job->out[1]];
    int64_t n = 0;

    for (int64_t i = 0; i < job->count[0]; i++)
        for (int64_t j = 0; j < job->count[1]; j++)
            out[n++] =
                (tap_row){(d->index[i] * job->in[1] + h->index[j]) * job->in[2],
                          d->weight[i] * h->weight[j]};
    return n;
}

#define RESAMPLE(NAME, TYPE)                                                   \
    static void resample_##NAME(void *context, int64_t begin, int64_t end)     \
    {                                                                          \
        const resampling *job = context;                                       \
        int64_t rows = job->out[0] * job->out[1];                              \
        tap_row around[16];                                                    \
        for (int64_t at = begin; at < end; at++) {                             \
            const TYPE *x =                                                    \
                (const TYPE *)job->x.data + at / rows * job->in_size;          \
            TYPE *y = (TYPE *)job->y.data + at * job->out[2];                  \
            int64_t n = tap_rows(job, at % rows, around);                      \
            for (int64_t o = 0; o < job->out[2]; o++) {                        \
                const tap *w = &job->taps[2][o];                               \
                double sum = 0;                                                \
                for (int64_t i = 0; i < n; i++) {                              \
                    double row = 0;                                            \
                    for (int64_t j = 0; j < job->count[2]; j++)                \
                        row +=                                                 \
                            w->weight[j] * x[around[i].offset + w->index[j]];  \
                    sum += around[i].weight * row;                             \
                }                                                              \
                y[o] = (TYPE)sum;                                              \
            }                                                                  \
        }                                                                      \
    }                                                                          \
    static void gradient_##NAME(void *context, int64_t begin, int64_t end)     \
    {                                                                          \
        const resampling *job = context;                                       \
        int64_t rows = job->out[0] * job->out[1];                              \
        tap_row around[16];                                                    \
        for (int64_t plane = begin; plane < end; plane++) {                    \
            TYPE *x = (TYPE *)job->x.data + plane * job->in_size;              \
            const TYPE *y = (const TYPE *)job->y.data + plane * job->out_size; \
            memset(x, 0, (size_t)job->in_size * sizeof *x);                    \
            for (int64_t row = 0; row < rows; row++) {                         \
                int64_t n = tap_rows(job, row, around);                        \
                for (int64_t o = 0; o < job->out[2]; o++, y++) {               \
                    const tap *w = &job->taps[2][o];                           \
                    for (int64_t i = 0; i < n; i++)                            \
                        for (int64_t j = 0; j < job->count[2]; j++)            \
                            x[around[i].offset + w->index[j]] +=               \
                                (TYPE)(*y * around[i].weight * w->weight[j]);  \
                }                                                              \
            }                                                                  \
        }                                                                      \
    }
CPU_COMPUTE_FLOATS(RESAMPLE)

/* Nearest moves elements of any type. */
static void nearest_task(void *context, int64_t begin, int64_t end)
{
    const resampling *job = context;
    int64_t rows = job->out[0] * job->out[1];
    int64_t item = cpu_item_size(job->x.dtype);

    for (int64_t at = begin; at < end; at++) {
        tap_row around;
        const char *x;
        char *y = (char *)job->y.data + at * job->out[2] * item;

        tap_rows(job, at % rows, &around);
        x = (const char *)job->x.data +
            (at / rows * job->in_size + around.offset) * item;
        for (int64_t o = 0; o < job->out[2]; o++)
            cpu_move(y + o * item, x + job->taps[2][o].index[0] * item, item);
    }
}

/* ----------------------------------------------------------------- bytes -- */

/* Images of u8 are resampled as in PyTorch and Pillow: in fixed point, with
 * weights of at most 15 bits, first along rows, then along columns.  Each of the
 * two results is rounded to u8.  A dimension that keeps its size is not
 * resampled, whatever the scale factor. */

/* Rounds the weights of a dimension to whole numbers.  Taps of one pixel become
 * one. */
static void taps_round(resampling *job, uint32_t k)
{
    int64_t taps = job->count[k];
    double most = 0;
    int bits = 0;

    for (int64_t o = 0; o < job->out[k]; o++) {
        tap *t = &job->taps[k][o];

        if (job->in[k] == job->out[k])
            *t = (tap){.index = {o, o, o, o}, .weight = {1}};
        for (int64_t j = taps - 1; j > 0; j--)
            if (t->index[j] == t->index[j - 1]) {
                t->weight[j - 1] += t->weight[j];
                t->weight[j] = 0;
            }
        for (int64_t j = 0; j < taps; j++)
            most = fmax(most, t->weight[j]);
    }
    while (bits < 22 && 0.5 + ldexp(most, bits + 1) < 1 << 15)
        bits++;
    for (int64_t o = 0; o < job->out[k]; o++)
        for (int64_t j = 0; j < taps; j++)
            job->taps[k][o].whole[j] =
                (int32_t)round(ldexp(job->taps[k][o].weight[j], bits));
    job->bits[k] = bits;
}

/* Rounds a sum of weighted pixels with that many fraction bits, halves up. */
static uint8_t byte_of(int64_t sum, int bits)
{
    sum += INT64_C(1) << bits >> 1;
    if (sum < 0)
        return 0;
    sum >>= bits;
    return (uint8_t)(sum > UINT8_MAX ? UINT8_MAX : sum);
}

static void bytes_task(void *context, int64_t begin, int64_t end)
{
    const resampling *job = context;

    for (int64_t at = begin; at < end; at++) {
        const tap *h = &job->taps[1][at % job->out[1]];
        const uint8_t *x =
            (const uint8_t *)job->x.data + at / job->out[1] * job->in_size;
        uint8_t *y = (uint8_t *)job->y.data + at * job->out[2];

        for (int64_t o = 0; o < job->out[2]; o++) {
            const tap *w = &job->taps[2][o];
            int64_t sum = 0;

            for (int64_t i = 0; i < job->count[1]; i++) {
                const uint8_t *line = x + h->index[i] * job->in[2];
                int64_t row = 0;

                for (int64_t j = 0; j < job->count[2]; j++)
                    row += w->whole[j] * line[w->index[j]];
                sum += h->whole[i] * byte_of(row, job->bits[2]);
            }
            y[o] = byte_of(sum, job->bits[1]);
        }
    }
}

/* --------------------------------------------------------------- kernels -- */

static core_status forward(resampling *job, const core_view *self,
                           const core_view *result)
{
    bool bytes = self->dtype == CORE_U8 && job->kind != NEAREST;
    core_dtype dtype = bytes || job->kind == NEAREST ? self->dtype : job->dtype;
    int64_t rows = job->planes * job->out[0] * job->out[1];
    core_status status = cpu_dense_read(self, dtype, &job->x);

    if (status == CORE_OK)
        status = cpu_dense_open(result, dtype, &job->y);
    if (status != CORE_OK)
        return status;
    for (uint32_t k = 1; bytes && k < 3; k++)
        taps_round(job, k);
    if (result->numel > 0)
        cpu_parallel_for(rows, cpu_grain(rows, 8 * job->out[2]),
                         job->kind == NEAREST     ? nearest_task
                         : bytes                  ? bytes_task
                         : job->dtype == CORE_F32 ? resample_f32
                                                  : resample_f64,
                         job);
    cpu_dense_write(&job->y);
    return CORE_OK;
}

/* Reads scales given separately from args[first] on. */
static void scales_read(const resampling *job, const core_value *args,
                        uint32_t nargs, uint32_t first, double *out)
{
    for (uint32_t k = 0; k < job->ndim && first + k < nargs; k++)
        out[k] = args[first + k].tag == CORE_VALUE_NONE
                     ? 0
                     : cpu_float(&args[first + k]);
}

/* upsample_bilinear2d(self, output_size, align_corners, scales…?) and its
 * like; for nearest without align_corners */
static core_status launch_forward(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]), *result = cpu_view(&results[0]);
    double scales[3] = {0};
    resampling job = resampling_of(call);
    bool nearest = job.kind == NEAREST;
    core_status status;

    (void)nresults;
    scales_read(&job, args, nargs, nearest ? 2 : 3, scales);
    status = resampling_open(&job, self, result, !nearest && cpu_int(&args[2]),
                             scales);
    if (status == CORE_OK)
        status = forward(&job, self, result);
    resampling_close(&job);
    return status;
}

/* upsample_bilinear2d_backward(grad_output, output_size, input_size,
 * align_corners, scales…?) and its like; for nearest without align_corners */
static core_status launch_backward(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    const core_view *grad = cpu_view(&args[0]), *result = cpu_view(&results[0]);
    double scales[3] = {0};
    resampling job = resampling_of(call);
    bool nearest = job.kind == NEAREST;
    core_status status;

    (void)nresults;
    scales_read(&job, args, nargs, nearest ? 3 : 4, scales);
    status = resampling_open(&job, result, grad, !nearest && cpu_int(&args[3]),
                             scales);
    if (status == CORE_OK)
        status = cpu_dense_read(grad, job.dtype, &job.y);
    if (status == CORE_OK)
        status = cpu_dense_open(result, job.dtype, &job.x);
    if (status == CORE_OK && result->numel > 0)
        cpu_parallel_for(job.planes, cpu_grain(job.planes, 8 * job.out_size),
                         job.dtype == CORE_F32 ? gradient_f32 : gradient_f64,
                         &job);
    if (status == CORE_OK)
        cpu_dense_write(&job.x);
    resampling_close(&job);
    return status;
}

#define TWO                    \
    {                          \
        CPU_FLOATS, CPU_FLOATS \
    }
#define FLOATS_AND_BYTES (CPU_FLOATS | CORE_DTYPE_MASK(CORE_U8))
#define UPSAMPLE(NAME, KIND, NDIM, TYPES)                                    \
    {NAME, launch_forward, (void *)(KIND * 4 + NDIM), {TYPES, TYPES}, 0},    \
    {                                                                        \
        NAME "_backward", launch_backward, (void *)(KIND * 4 + NDIM), TWO, 0 \
    }

static const cpu_kernel kernels[] = {
    UPSAMPLE("upsample_nearest1d", NEAREST, 1, CPU_ALL),
    UPSAMPLE("upsample_nearest2d", NEAREST, 2, CPU_ALL),
    UPSAMPLE("upsample_nearest3d", NEAREST, 3, CPU_ALL),
    UPSAMPLE("_upsample_nearest_exact1d", (EXACT / 4 + NEAREST), 1, CPU_ALL),
    UPSAMPLE("_upsample_nearest_exact2d", (EXACT / 4 + NEAREST), 2, CPU_ALL),
    UPSAMPLE("_upsample_nearest_exact3d", (EXACT / 4 + NEAREST), 3, CPU_ALL),
    UPSAMPLE("upsample_linear1d", LINEAR, 1, CPU_FLOATS),
    UPSAMPLE("upsample_bilinear2d", LINEAR, 2, FLOATS_AND_BYTES),
    UPSAMPLE("upsample_trilinear3d", LINEAR, 3, CPU_FLOATS),
    UPSAMPLE("upsample_bicubic2d", CUBIC, 2, FLOATS_AND_BYTES),
};

const cpu_kernel_table cpu_resample_kernels = {kernels, sizeof kernels /
                                                            sizeof kernels[0]};
