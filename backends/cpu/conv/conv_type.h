/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* conv_type.h: the convolutions of conv.h in one type; included by conv_type.c
 * with TYPE and T(name) defined. */

#include "conv_columns.h"

typedef struct T(conv_job) {
    const conv_geometry *g;
    const TYPE *x, *w, *b, *gy;
    TYPE *y, *gx, *gw;
    TYPE *sums;     /* of the weights' gradient, for each part but the first */
    int64_t block;  /* channels of a group in a task */
    int64_t blocks; /* tasks in a group */
    int64_t parts;  /* of the images, for the weights' gradient */
    core_status status;
} T(conv_job);

static TYPE *T(scratch)(T(conv_job) * job, int64_t count)
{
    TYPE *memory = cpu_scratch_elements(count, sizeof(TYPE));

    if (!memory)
        __atomic_store_n(&job->status, CORE_ERROR_OUT_OF_MEMORY,
                         __ATOMIC_RELAXED);
    return memory;
}

/* ------------------------------------------------------------- forward -- */

/* One image, group and tile of positions. */
static void T(forward_tile)(const T(conv_job) * job, int64_t image,
                            int64_t group, int64_t begin, TYPE *columns)
{
    const conv_geometry *g = job->g;
    int64_t channels = g->channels / g->groups;
    int64_t filters = g->filters / g->groups, depth = channels * g->kernel_size;
    int64_t end = begin + g->tile < g->out_size ? begin + g->tile : g->out_size;
    const TYPE *x =
        job->x + (image * g->channels + group * channels) * g->in_size;
    TYPE *y =
        job->y + (image * g->filters + group * filters) * g->out_size + begin;

    if (!g->direct)
        T(columns)(g, (TYPE *)x, channels, begin, end, columns, false);
    for (int64_t f = 0; job->b && f < filters; f++)
        for (int64_t i = 0; i < end - begin; i++)
            y[f * g->out_size + i] = job->b[group * filters + f];
    T(cpu_gemm)
    (false, false, filters, end - begin, depth, 1,
     job->w + group * filters * depth, depth, g->direct ? x + begin : columns,
     g->direct ? g->out_size : end - begin, job->b ? 1 : 0, y, g->out_size);
    cpu_epilogue_run(g->epilogue, image, group * filters, filters, begin,
                     end - begin);
}

static void T(forward_task)(void *context, int64_t begin, int64_t end)
{
    T(conv_job) *job = context;
    const conv_geometry *g = job->g;
    int64_t tiles = (g->out_size + g->tile - 1) / g->tile;
    int64_t depth = g->channels / g->groups * g->kernel_size;
    TYPE *columns = T(scratch)(job, g->direct ? 0 : depth * g->tile);

    for (int64_t item = begin; item < end && columns; item++)
        T(forward_tile)
    (job, item / tiles / g->groups, item / tiles % g->groups,
     item % tiles * g->tile, columns);
    cpu_scratch_give(columns);
}

core_status T(conv_forward)(const conv_geometry *g, const TYPE *x,
                            const TYPE *w, const TYPE *b, TYPE *y)
{
    T(conv_job) job = {.g = g, .x = x, .w = w, .b = b, .y = y};
    int64_t tiles = (g->out_size + g->tile - 1) / g->tile;
    int64_t items = g->images * g->groups * tiles;

    if (items > 0)
        cpu_parallel_for(items,
                         cpu_grain(items, g->channels / g->groups *
                                              g->kernel_size * g->filters /
                                              g->groups * g->tile / 16),
                         T(forward_task), &job);
    return job.status;
}

/* ---------------------------------------------------- gradient of input -- */

/* One image and a block of channels of one group. */
static void T(input_block)(const T(conv_job) * job, int64_t image,
                           int64_t group, int64_t first, TYPE *columns)
{
    const conv_geometry *g = job->g;
    int64_t channels = g->channels / g->groups;
    int64_t filters = g->filters / g->groups, depth = channels * g->kernel_size;
    int64_t count =
        channels - first < job->block ? channels - first : job->block;
    int64_t at = group * channels + first;
    const TYPE *gy =
        job->gy + (image * g->filters + group * filters) * g->out_size;
    TYPE *gx = job->gx + (image * g->channels + at) * g->in_size;

    for (int64_t c = 0; c < count; c++)
        for (int64_t i = 0; i < g->in_size; i++)
            gx[c * g->in_size + i] = job->b ? job->b[at + c] : 0;
    for (int64_t p = 0; p < g->out_size; p += g->tile) {
        int64_t n = g->out_size - p < g->tile ? g->out_size - p : g->tile;

        T(cpu_gemm)
        (true, false, count * g->kernel_size, n, filters, 1,
         job->w + group * filters * depth + first * g->kernel_size, depth,
         gy + p, g->out_size, g->direct ? 1 : 0, g->direct ? gx + p : columns,
         g->direct ? g->in_size : n);
        if (!g->direct)
            T(columns)(g, gx, count, p, p + n, columns, true);
    }
}

static void T(input_task)(void *context, int64_t begin, int64_t end)
{
    T(conv_job) *job = context;
    const conv_geometry *g = job->g;
    TYPE *columns =
        T(scratch)(job, g->direct ? 0 : job->block * g->kernel_size * g->tile);

    for (int64_t item = begin; item < end && columns; item++)
        T(input_block)
    (job, item / job->blocks / g->groups, item / job->blocks % g->groups,
     item % job->blocks * job->block, columns);
    cpu_scratch_give(columns);
}

core_status T(conv_input)(const conv_geometry *g, const TYPE *gy, const TYPE *w,
                          const TYPE *b, TYPE *gx)
{
    T(conv_job) job = {.g = g, .w = w, .b = b, .gy = gy, .gx = gx};
    int64_t channels = g->channels / g->groups, items;

    job.block = conv_channel_block(g, g->images * g->groups);
    job.blocks = (channels + job.block - 1) / job.block;
    items = g->images * g->groups * job.blocks;
    if (items > 0 && g->in_size > 0)
        cpu_parallel_for(items,
                         cpu_grain(items, job.block * g->kernel_size *
                                              g->filters / g->groups *
                                              g->out_size / 16),
                         T(input_task), &job);
    return job.status;
}

/* --------------------------------------------------- gradient of weight -- */

/* A block of channels of one group, over one part of the images. */
static void T(weight_block)(const T(conv_job) * job, int64_t part,
                            int64_t group, int64_t first, TYPE *columns)
{
    const conv_geometry *g = job->g;
    int64_t channels = g->channels / g->groups;
    int64_t filters = g->filters / g->groups, depth = channels * g->kernel_size;
    int64_t count =
        channels - first < job->block ? channels - first : job->block;
    TYPE *whole =
        part > 0 ? job->sums + (part - 1) * g->filters * depth : job->gw;
    TYPE *gw = whole + group * filters * depth + first * g->kernel_size;
    int64_t last = g->images * (part + 1) / job->parts;
    TYPE beta = 0;

    for (int64_t image = g->images * part / job->parts; image < last; image++)
        for (int64_t p = 0; p < g->out_size; p += g->tile, beta = 1) {
            int64_t n = g->out_size - p < g->tile ? g->out_size - p : g->tile;
            const TYPE *x =
                job->x +
                (image * g->channels + group * channels + first) * g->in_size;
            const TYPE *gy =
                job->gy + (image * g->filters + group * filters) * g->out_size +
                p;

            if (!g->direct)
                T(columns)(g, (TYPE *)x, count, p, p + n, columns, false);
            T(cpu_gemm)
            (false, true, filters, count * g->kernel_size, n, 1, gy,
             g->out_size, g->direct ? x + p : columns,
             g->direct ? g->in_size : n, beta, gw, depth);
        }
}

static void T(weight_task)(void *context, int64_t begin, int64_t end)
{
    T(conv_job) *job = context;
    const conv_geometry *g = job->g;
    TYPE *columns =
        T(scratch)(job, g->direct ? 0 : job->block * g->kernel_size * g->tile);

    for (int64_t item = begin; item < end && columns; item++)
        T(weight_block)
    (job, item / job->blocks / g->groups, item / job->blocks % g->groups,
     item % job->blocks * job->block, columns);
    cpu_scratch_give(columns);
}

core_status T(conv_weight)(const conv_geometry *g, const TYPE *x,
                           const TYPE *gy, TYPE *gw)
{
    T(conv_job) job = {.g = g, .x = x, .gy = gy};
    int64_t channels = g->channels / g->groups;
    int64_t size = g->filters * channels * g->kernel_size;
    TYPE *sums;

    if (size == 0)
        return CORE_OK;
    if (g->images == 0 || g->out_size == 0) {
        memset(gw, 0, (size_t)size * sizeof *gw);
        return CORE_OK;
    }
    job.block = conv_channel_block(g, g->groups);
    job.blocks = (channels + job.block - 1) / job.block;
    job.parts = 1 + 7 / (g->groups * job.blocks);
    if (job.parts > g->images)
        job.parts = g->images;
    sums = job.parts > 1 ? T(scratch)(&job, (job.parts - 1) * size) : NULL;
    if (job.status != CORE_OK)
        return job.status;
    job.gw = gw;
    job.sums = sums;
    cpu_parallel_for(job.parts * g->groups * job.blocks, 1, T(weight_task),
                     &job);
    for (int64_t part = 1; part < job.parts; part++)
        for (int64_t i = 0; i < size; i++)
            gw[i] += sums[(part - 1) * size + i];
    cpu_scratch_give(sums);
    return job.status;
}
