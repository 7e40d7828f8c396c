/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The convolutions of conv_depthwise.h.  Every output position sums its taps in
 * the order of the kernel; the gradient of a weight sums positions in LANES
 * partial sums, image after image.  Bits depend neither on the instruction set
 * nor on the number of threads. */

#include "conv_depthwise.h"

#include <math.h>
#include <string.h>

#include "codegen/epilogue.h"
#include "isa.h"
#include "runtime/scratch.h"
#include "runtime/thread_pool.h"

#if defined(__AVX512F__)
enum { WIDTH = 16 };
#elif defined(__AVX2__)
enum { WIDTH = 8 };
#else
enum { WIDTH = 4 };
#endif
enum { BLOCK = 64, LANES = 64 }; /* positions at once */

typedef float vector __attribute__((vector_size(WIDTH * 4)));
typedef float unaligned
    __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));

typedef float four __attribute__((vector_size(16), aligned(4), may_alias));

typedef struct job {
    const conv_geometry *g;
    const float *x, *w, *b, *gy;
    float *y, *gw;
    bool flipped;
    int64_t rows, columns; /* of a phase */
    int64_t run;           /* of positions, in rows of `columns`, in blocks */
    core_status status;
} job;

static job job_of(const conv_geometry *g)
{
    job j = {.g = g};

    j.rows = g->out[1] + (g->kernel[1] - 1) * g->dilation[1] / g->stride[1];
    j.columns = g->out[2] + (g->kernel[2] - 1) * g->dilation[2] / g->stride[2];
    j.run = (g->out[1] - 1) * j.columns + g->out[2];
    j.run = (j.run + BLOCK - 1) / BLOCK * BLOCK;
    return j;
}

static int64_t phases_size(const job *j)
{
    return j->g->stride[1] * j->g->stride[2] * j->rows * j->columns + BLOCK;
}

/* Memory of a task: phases, a run of positions, and the taps' offsets. */
typedef struct memory {
    float *phases, *run;
    int64_t *offsets;
} memory;

/* The run of positions that a tap reads begins at its offset in the phases. */
static void set_offsets(const job *j, int64_t *offsets)
{
    const conv_geometry *g = j->g;

    for (int64_t tap = 0; tap < g->kernel_size; tap++) {
        int64_t y = tap / g->kernel[2] * g->dilation[1];
        int64_t x = tap % g->kernel[2] * g->dilation[2];
        int64_t phase = y % g->stride[1] * g->stride[2] + x % g->stride[2];
        int64_t row = phase * j->rows + y / g->stride[1];

        offsets[tap] = row * j->columns + x / g->stride[2];
    }
}

static bool take_memory(job *j, memory *m)
{
    int64_t taps = j->g->kernel_size, phases = phases_size(j);
    char *memory = cpu_scratch_take(taps * (int64_t)sizeof(int64_t) +
                                    (phases + j->run) * (int64_t)sizeof(float));

    m->offsets = (int64_t *)(void *)memory;
    if (!memory) {
        __atomic_store_n(&j->status, CORE_ERROR_OUT_OF_MEMORY,
                         __ATOMIC_RELAXED);
        return false;
    }
    m->phases = (float *)(m->offsets + taps);
    m->run = m->phases + phases;
    memset(m->phases, 0, (size_t)(phases + j->run) * sizeof(float));
    set_offsets(j, m->offsets);
    return true;
}

/* --------------------------------------------------------------- phases -- */

/* For rows too short for the cost of a call of memcpy. */
static inline void copy_row(float *to, const float *from, int64_t n)
{
    int64_t i = 0;

    for (; i + 4 <= n; i += 4)
        *(four *)(to + i) = *(const four *)(from + i);
    for (; i < n; i++)
        to[i] = from[i];
}

/* The first index with first * stride + offset >= 0, and the first with >= end,
 * at most n. */
static void inside(int64_t stride, int64_t offset, int64_t end, int64_t n,
                   int64_t *out_first, int64_t *out_last)
{
    int64_t first = offset < 0 ? (-offset + stride - 1) / stride : 0;
    int64_t last = end > offset ? (end - offset + stride - 1) / stride : 0;

    *out_last = last < n ? last : n;
    *out_first = first < *out_last ? first : *out_last;
}

/* Copies a row of the input to that of a phase; the padding around it is 0
 * already. */
static void take_row(const job *j, const float *from, int64_t phase, float *to)
{
    const conv_geometry *g = j->g;
    int64_t stride = g->stride[2], offset = phase - g->padding[2];
    int64_t first, last;

    inside(stride, offset, g->in[2], j->columns, &first, &last);
    if (stride == 1)
        copy_row(to + first, from + first + offset, last - first);
    for (int64_t c = first; stride != 1 && c < last; c++)
        to[c] = from[c * stride + offset];
}

static void take_phases(const job *j, const float *from, float *to)
{
    const conv_geometry *g = j->g;

    for (int64_t y = 0; y < g->stride[1]; y++)
        for (int64_t x = 0; x < g->stride[2]; x++) {
            int64_t first, last, offset = y - g->padding[1];
            float *phase = to + (y * g->stride[2] + x) * j->rows * j->columns;

            inside(g->stride[1], offset, g->in[1], j->rows, &first, &last);
            for (int64_t r = first; r < last; r++)
                take_row(j, from + (r * g->stride[1] + offset) * g->in[2], x,
                         phase + r * j->columns);
        }
}

/* -------------------------------------------------------------- forward -- */

static void sum_block(const float *phases, const int64_t *offsets,
                      const float *w, int64_t step, int64_t taps, float bias,
                      float *to)
{
    enum { VECTORS = BLOCK / WIDTH };
    vector sums[VECTORS];

#pragma GCC unroll 16
    for (int i = 0; i < VECTORS; i++)
        sums[i] = (vector){0} + bias;
    for (int64_t tap = 0; tap < taps; tap++) {
        const float *x = phases + offsets[tap];
        vector factor = (vector){0} + w[tap * step];

#pragma GCC unroll 16
        for (int i = 0; i < VECTORS; i++)
            sums[i] += factor * *(const unaligned *)(x + i * WIDTH);
    }
#pragma GCC unroll 16
    for (int i = 0; i < VECTORS; i++)
        *(unaligned *)(to + i * WIDTH) = sums[i];
}

static void forward_channel(const job *j, int64_t item, const memory *m)
{
    const conv_geometry *g = j->g;
    int64_t channel = item % g->channels, taps = g->kernel_size;
    const float *w = j->w + channel * taps + (j->flipped ? taps - 1 : 0);
    float *y = j->y + item * g->out_size;

    take_phases(j, j->x + item * g->in_size, m->phases);
    for (int64_t at = 0; at < j->run; at += BLOCK)
        sum_block(m->phases + at, m->offsets, w, j->flipped ? -1 : 1, taps,
                  j->b ? j->b[channel] : 0, m->run + at);
    for (int64_t r = 0; r < g->out[1]; r++)
        copy_row(y + r * g->out[2], m->run + r * j->columns, g->out[2]);
    cpu_epilogue_run(g->epilogue, item / g->channels, channel, 1, 0,
                     g->out_size);
}

static void forward_task(void *context, int64_t begin, int64_t end)
{
    job *j = context;
    memory m;

    if (!take_memory(j, &m))
        return;
    for (int64_t item = begin; item < end; item++)
        forward_channel(j, item, &m);
    cpu_scratch_give(m.offsets);
}

static core_status forward(const conv_geometry *g, const float *x,
                           const float *w, const float *b, bool flipped,
                           float *y)
{
    job j = job_of(g);
    int64_t items = g->images * g->channels;

    j.x = x;
    j.w = w;
    j.b = b;
    j.y = y;
    j.flipped = flipped;
    cpu_parallel_for(items,
                     cpu_grain(items, g->kernel_size * j.run / 8 + g->in_size),
                     forward_task, &j);
    return j.status;
}

/* -------------------------------------------------------------- weights -- */

/* Adds LANES sums in pairs: distant ones first, as vectors. */
static double dot(const float *a, const float *b, int64_t n)
{
    enum { VECTORS = LANES / WIDTH };
    float lanes[WIDTH];
    vector sums[VECTORS];

#pragma GCC unroll 8
    for (int i = 0; i < VECTORS; i++)
        sums[i] = (vector){0};
    for (int64_t at = 0; at < n; at += LANES)
#pragma GCC unroll 8
        for (int i = 0; i < VECTORS; i++)
            sums[i] += *(const unaligned *)(a + at + i * WIDTH) *
                       *(const unaligned *)(b + at + i * WIDTH);
#pragma GCC unroll 8
    for (int width = VECTORS / 2; width > 0; width /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < width; i++)
            sums[i] += sums[i + width];
    *(unaligned *)lanes = sums[0];
#pragma GCC unroll 8
    for (int width = WIDTH / 2; width > 0; width /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < width; i++)
            lanes[i] += lanes[i + width];
    return (double)lanes[0];
}

/* The positions between rows and after the last one are 0. */
static void take_gradient(const job *j, const float *from, float *to)
{
    for (int64_t r = 0; r < j->g->out[1]; r++)
        copy_row(to + r * j->columns, from + r * j->g->out[2], j->g->out[2]);
}

/* Partial sums of a few thousand positions. */
enum { PART = 64 * BLOCK };

/* Without the positions between rows. */
static double weight_by_rows(const job *j, const memory *m, const float *x)
{
    double sum = 0;

    for (int64_t r = 0; r < j->g->out[1]; r++)
        for (int64_t c = 0; c < j->g->out[2]; c++)
            sum += (double)(x[r * j->columns + c] * m->run[r * j->columns + c]);
    return sum;
}

static double weight_of(const job *j, const memory *m, int64_t tap)
{
    const float *x = m->phases + m->offsets[tap];
    double sum = 0;

    for (int64_t at = 0; at < j->run; at += PART)
        sum +=
            dot(x + at, m->run + at, j->run - at < PART ? j->run - at : PART);
    /* Between rows, an infinite number times the gradient 0 is NaN. */
    return isnan(sum) ? weight_by_rows(j, m, x) : sum;
}

static void weight_task(void *context, int64_t begin, int64_t end)
{
    job *j = context;
    const conv_geometry *g = j->g;
    int64_t taps = g->kernel_size;
    memory m;

    if (!take_memory(j, &m))
        return;
    for (int64_t channel = begin; channel < end; channel++)
        for (int64_t image = 0; image < g->images; image++) {
            int64_t item = image * g->channels + channel;
            float *gw = j->gw + channel * taps;

            take_phases(j, j->x + item * g->in_size, m.phases);
            take_gradient(j, j->gy + item * g->out_size, m.run);
            for (int64_t tap = 0; tap < taps; tap++) {
                double sum = weight_of(j, &m, tap);

                gw[tap] =
                    image > 0 ? (float)((double)gw[tap] + sum) : (float)sum;
            }
        }
    cpu_scratch_give(m.offsets);
}

static core_status weight(const conv_geometry *g, const float *x,
                          const float *gy, float *gw)
{
    job j = job_of(g);

    j.x = x;
    j.gy = gy;
    j.gw = gw;
    cpu_parallel_for(
        g->channels,
        cpu_grain(g->channels,
                  g->images * (g->kernel_size * j.run / 8 + g->in_size)),
        weight_task, &j);
    return j.status;
}

const conv_depthwise_functions CPU_NAME(cpu_conv_depthwise) = {forward, weight};
