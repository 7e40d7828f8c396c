/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* grid_sample.c: grid_sampler_2d, grid_sampler_3d and their gradients.
 *
 * A grid point (x, y, z) in [-1, 1] is a position in the image.  Its value is a
 * sum over taps: pixels with weights, each the product of a weight in x, one in
 * y and one in z.  Each weight has its derivative by the grid coordinate. */

#include <math.h>

#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

enum { BILINEAR = 0, NEAREST = 1, BICUBIC = 2 };
enum { ZEROS = 0, BORDER = 1, REFLECTION = 2 };

typedef struct sampling {
    core_dtype dtype;
    int64_t mode, padding;
    bool align;
    int ndim;
    int64_t images, channels, in_size, out_size;
    int64_t in[3];        /* depth, height, width */
    cpu_dense x, grid, y; /* y: result, or its gradient */
    cpu_dense gx, ggrid;  /* gradients; data NULL if not requested */
} sampling;

static void sampling_close(sampling *job)
{
    cpu_dense_close(&job->x);
    cpu_dense_close(&job->grid);
    cpu_dense_close(&job->y);
    cpu_dense_close(&job->gx);
    cpu_dense_close(&job->ggrid);
}

/* ------------------------------------------------------------------ taps -- */

#define SAMPLE(NAME, TYPE, FLOOR, NEAR, FMOD, ABS)                             \
    typedef struct taps_##NAME {                                               \
        int count;                                                             \
        int64_t index[4]; /* -1: outside, counts as 0 */                       \
        TYPE weight[4], slope[4];                                              \
    } taps_##NAME;                                                             \
    /* Reflects at the borders; *slope gets the sign. */                       \
    static TYPE reflect_##NAME(TYPE at, TYPE low, TYPE high, TYPE *slope)      \
    {                                                                          \
        TYPE span = high - low, rest, flips;                                   \
        if (span <= 0) {                                                       \
            *slope = 0;                                                        \
            return 0;                                                          \
        }                                                                      \
        at -= low;                                                             \
        if (at < 0) {                                                          \
            at = -at;                                                          \
            *slope = -*slope;                                                  \
        }                                                                      \
        rest = FMOD(at, span);                                                 \
        flips = FLOOR(at / span);                                              \
        if (FMOD(flips, 2) == 0)                                               \
            return rest + low;                                                 \
        *slope = -*slope;                                                      \
        return span - rest + low;                                              \
    }                                                                          \
    static TYPE padded_##NAME(const sampling *job, TYPE at, int64_t size,      \
                              TYPE *slope)                                     \
    {                                                                          \
        TYPE last = (TYPE)(size - 1);                                          \
        if (job->padding == ZEROS)                                             \
            return at;                                                         \
        if (job->padding == REFLECTION)                                        \
            at = job->align ? reflect_##NAME(at, 0, last, slope)               \
                            : reflect_##NAME(at, (TYPE)-0.5, last + (TYPE)0.5, \
                                             slope);                           \
        if (at > 0 && at < last)                                               \
            return at;                                                         \
        *slope = 0;                                                            \
        return at >= last ? last : 0;                                          \
    }                                                                          \
    static int64_t inside_##NAME(TYPE at, int64_t size)                        \
    {                                                                          \
        return at >= 0 && at < (TYPE)size ? (int64_t)at : -1;                  \
    }                                                                          \
    /* Cubic convolution with a = -3/4, and its derivative. */                 \
    static void cubic_##NAME(TYPE x, TYPE *weight, TYPE *slope)                \
    {                                                                          \
        const TYPE a = (TYPE)-0.75;                                            \
        TYPE sign = x < 0 ? -1 : 1;                                            \
        x = ABS(x);                                                            \
        if (x <= 1) {                                                          \
            *weight = ((a + 2) * x - (a + 3)) * x * x + 1;                     \
            *slope = sign * (3 * (a + 2) * x - 2 * (a + 3)) * x;               \
        } else {                                                               \
            *weight = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;               \
            *slope = sign * ((3 * a * x - 10 * a) * x + 8 * a);                \
        }                                                                      \
    }                                                                          \
    static taps_##NAME taps_at_##NAME(const sampling *job, TYPE grid,          \
                                      int64_t size)                            \
    {                                                                          \
        taps_##NAME t = {0};                                                   \
        TYPE slope = job->align ? (TYPE)(size - 1) / 2 : (TYPE)size / 2;       \
        TYPE at = job->align ? (grid + 1) * slope                              \
                             : ((grid + 1) * (TYPE)size - 1) / 2;              \
        TYPE whole, ignored;                                                   \
        if (job->mode == BICUBIC) {                                            \
            whole = FLOOR(at);                                                 \
            t.count = 4;                                                       \
            for (int k = 0; k < 4; k++) {                                      \
                cubic_##NAME(at - whole - (TYPE)(k - 1), &t.weight[k],         \
                             &t.slope[k]);                                     \
                t.slope[k] *= slope;                                           \
                t.index[k] = inside_##NAME(                                    \
                    padded_##NAME(job, whole + (TYPE)(k - 1), size, &ignored), \
                    size);                                                     \
            }                                                                  \
            return t;                                                          \
        }                                                                      \
        at = padded_##NAME(job, at, size, &slope);                             \
        if (job->mode == NEAREST) {                                            \
            t.count = 1;                                                       \
            t.index[0] = inside_##NAME(NEAR(at), size);                        \
            t.weight[0] = 1;                                                   \
            return t;                                                          \
        }                                                                      \
        whole = FLOOR(at);                                                     \
        t.count = 2;                                                           \
        t.index[0] = inside_##NAME(whole, size);                               \
        t.index[1] = inside_##NAME(whole + 1, size);                           \
        t.weight[0] = whole + 1 - at;                                          \
        t.weight[1] = at - whole;                                              \
        t.slope[0] = -slope;                                                   \
        t.slope[1] = slope;                                                    \
        return t;                                                              \
    }                                                                          \
    /* The taps of a grid point in depth, height and width. */                 \
    static void point_##NAME(const sampling *job, const TYPE *grid,            \
                             taps_##NAME *t)                                   \
    {                                                                          \
        t[0] = (taps_##NAME){.count = 1, .weight = {1}};                       \
        for (int k = 3 - job->ndim; k < 3; k++)                                \
            t[k] = taps_at_##NAME(job, grid[2 - k], job->in[k]);               \
    }                                                                          \
    /* The sum over all taps, with the slopes of one dimension, or of none. */ \
    static TYPE tapped_##NAME(const sampling *job, const TYPE *plane,          \
                              const taps_##NAME *t, int sloped)                \
    {                                                                          \
        const TYPE *by_d = sloped == 0 ? t[0].slope : t[0].weight;             \
        const TYPE *by_h = sloped == 1 ? t[1].slope : t[1].weight;             \
        const TYPE *by_w = sloped == 2 ? t[2].slope : t[2].weight;             \
        TYPE sum = 0;                                                          \
        for (int d = 0; d < t[0].count; d++) {                                 \
            if (t[0].index[d] < 0)                                             \
                continue;                                                      \
            for (int i = 0; i < t[1].count; i++) {                             \
                int64_t row =                                                  \
                    (t[0].index[d] * job->in[1] + t[1].index[i]) * job->in[2]; \
                if (t[1].index[i] < 0)                                         \
                    continue;                                                  \
                for (int j = 0; j < t[2].count; j++)                           \
                    if (t[2].index[j] >= 0)                                    \
                        sum += plane[row + t[2].index[j]] * by_d[d] *          \
                               by_h[i] * by_w[j];                              \
            }                                                                  \
        }                                                                      \
        return sum;                                                            \
    }                                                                          \
    static void sample_##NAME(void *context, int64_t begin, int64_t end)       \
    {                                                                          \
        const sampling *job = context;                                         \
        int64_t in = job->in_size, out = job->out_size;                        \
        taps_##NAME t[3];                                                      \
        for (int64_t at = begin; at < end; at++) {                             \
            int64_t image = at / out;                                          \
            const TYPE *x =                                                    \
                (const TYPE *)job->x.data + image * job->channels * in;        \
            TYPE *y =                                                          \
                (TYPE *)job->y.data + image * job->channels * out + at % out;  \
            point_##NAME(job, (const TYPE *)job->grid.data + job->ndim * at,   \
                         t);                                                   \
            for (int64_t c = 0; c < job->channels; c++)                        \
                y[c * out] = tapped_##NAME(job, x + c * in, t, -1);            \
        }                                                                      \
    }                                                                          \
    static void spread_##NAME(const sampling *job, TYPE *plane,                \
                              const taps_##NAME *t, TYPE value)                \
    {                                                                          \
        for (int d = 0; d < t[0].count; d++) {                                 \
            if (t[0].index[d] < 0)                                             \
                continue;                                                      \
            for (int i = 0; i < t[1].count; i++) {                             \
                int64_t row =                                                  \
                    (t[0].index[d] * job->in[1] + t[1].index[i]) * job->in[2]; \
                if (t[1].index[i] < 0)                                         \
                    continue;                                                  \
                for (int j = 0; j < t[2].count; j++)                           \
                    if (t[2].index[j] >= 0)                                    \
                        plane[row + t[2].index[j]] += value * t[0].weight[d] * \
                                                      t[1].weight[i] *         \
                                                      t[2].weight[j];          \
            }                                                                  \
        }                                                                      \
    }                                                                          \
    /* Whole images per thread: the taps of one may overlap. */                \
    static void gradient_##NAME(void *context, int64_t begin, int64_t end)     \
    {                                                                          \
        const sampling *job = context;                                         \
        int64_t in = job->in_size, out = job->out_size;                        \
        taps_##NAME t[3];                                                      \
        for (int64_t at = begin * out; at < end * out; at++) {                 \
            int64_t plane = at / out * job->channels;                          \
            TYPE by[3] = {0, 0, 0};                                            \
            point_##NAME(job, (const TYPE *)job->grid.data + job->ndim * at,   \
                         t);                                                   \
            for (int64_t c = 0; c < job->channels; c++, plane++) {             \
                const TYPE *x = (const TYPE *)job->x.data + plane * in;        \
                TYPE g = ((const TYPE *)job->y.data)[plane * out + at % out];  \
                if (job->gx.data)                                              \
                    spread_##NAME(job, (TYPE *)job->gx.data + plane * in, t,   \
                                  g);                                          \
                for (int k = 3 - job->ndim; k < 3 && job->ggrid.data; k++)     \
                    by[2 - k] += g * tapped_##NAME(job, x, t, k);              \
            }                                                                  \
            if (job->ggrid.data)                                               \
                memcpy((TYPE *)job->ggrid.data + job->ndim * at, by,           \
                       (size_t)job->ndim * sizeof *by);                        \
        }                                                                      \
    }
SAMPLE(f32, float, floorf, nearbyintf, fmodf, fabsf)
SAMPLE(f64, double, floor, nearbyint, fmod, fabs)

/* --------------------------------------------------------------- kernels -- */

/* args: input, grid, interpolation_mode, padding_mode, align_corners */
static core_status sampling_open(sampling *job, const core_value *args)
{
    /* A plane is a volume of depth 1. */
    const core_view *input = cpu_view(&args[0]), *grid = cpu_view(&args[1]);
    core_status status;

    job->dtype = cpu_compute_dtype(input->dtype);
    job->mode = cpu_int(&args[2]);
    job->padding = cpu_int(&args[3]);
    job->align = cpu_int(&args[4]) != 0;
    job->images = input->sizes[0];
    job->channels = input->sizes[1];
    job->ndim = (int)input->ndim - 2;
    job->in_size = job->out_size = job->in[0] = 1;
    for (int k = 0; k < job->ndim; k++) {
        job->in[3 - job->ndim + k] = input->sizes[k + 2];
        job->in_size *= input->sizes[k + 2];
        job->out_size *= grid->sizes[k + 1];
    }
    status = cpu_dense_read(input, job->dtype, &job->x);
    if (status == CORE_OK)
        status = cpu_dense_read(grid, job->dtype, &job->grid);
    return status;
}

/* grid_sampler_2d and _3d(input, grid, interpolation_mode, padding_mode,
 * align_corners) */
static core_status launch_forward(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    sampling job = {0};
    core_status status = sampling_open(&job, args);
    int64_t points = job.images * job.out_size;

    (void)call;
    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[0]), job.dtype, &job.y);
    if (status == CORE_OK) {
        cpu_parallel_for(points, cpu_grain(points, 8 * job.channels),
                         job.dtype == CORE_F32 ? sample_f32 : sample_f64, &job);
        cpu_dense_write(&job.y);
    }
    sampling_close(&job);
    return status;
}

/* grid_sampler_2d_backward and _3d_backward(grad_output, input, grid,
 * interpolation_mode, padding_mode, align_corners, output_mask)
 * -> (grad_input, grad_grid) */
static core_status launch_backward(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    sampling job = {0};
    const core_value *mask = &args[6];
    const core_view *gx = cpu_view(&results[0]);
    core_status status = sampling_open(&job, &args[1]);

    (void)call;
    (void)nargs;
    (void)nresults;
    if (mask->tag == CORE_VALUE_BOOL_LIST && !mask->u.bools[0])
        gx = NULL;
    if (status == CORE_OK)
        status = cpu_dense_read(cpu_view(&args[0]), job.dtype, &job.y);
    if (status == CORE_OK)
        status = cpu_dense_open(gx, job.dtype, &job.gx);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[1]), job.dtype, &job.ggrid);
    if (status == CORE_OK) {
        if (gx && gx->numel > 0)
            memset(job.gx.data, 0,
                   (size_t)gx->numel * cpu_item_size(job.dtype));
        cpu_parallel_for(job.images, 1,
                         job.dtype == CORE_F32 ? gradient_f32 : gradient_f64,
                         &job);
        cpu_dense_write(&job.gx);
        cpu_dense_write(&job.ggrid);
    }
    sampling_close(&job);
    return status;
}

#define THREE                              \
    {                                      \
        CPU_FLOATS, CPU_FLOATS, CPU_FLOATS \
    }

static const cpu_kernel kernels[] = {
    {"grid_sampler_2d", launch_forward, NULL, THREE, 0},
    {"grid_sampler_3d", launch_forward, NULL, THREE, 0},
    {"grid_sampler_2d_backward", launch_backward, NULL, THREE, 0},
    {"grid_sampler_3d_backward", launch_backward, NULL, THREE, 0},
};

const cpu_kernel_table cpu_gridsample_kernels = {
    kernels, sizeof kernels / sizeof kernels[0]};
