/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The convolutions of conv.h in bf16, as products of bf16.h.  Columns are bf16,
 * or f32 if they are summed; every result is rounded once. */

#include <string.h>

#include "bf16/bf16.h"
#include "conv.h"
#include "runtime/scratch.h"
#include "runtime/thread_pool.h"

#define T_PASTE(name, suffix) name##_##suffix
#define TYPE float
#define T(name) T_PASTE(name, f32)
#include "conv_columns.h"
#undef TYPE
#undef T
#define TYPE uint16_t
#define T(name) T_PASTE(name, bf16)
#include "conv_columns.h"

typedef struct job {
    const conv_geometry *g;
    const uint16_t *x, *w, *b, *gy;
    uint16_t *y, *gx;
    float *gw;
    int64_t channels, filters, depth; /* of a group */
    int64_t block;                    /* channels of a group in a task */
    int64_t blocks;                   /* tasks in a group */
    int64_t parts; /* of the images, for the weights' gradient */
    core_status status;
} job;

static job job_of(const conv_geometry *g)
{
    return (job){.g = g,
                 .channels = g->channels / g->groups,
                 .filters = g->filters / g->groups,
                 .depth = g->channels / g->groups * g->kernel_size};
}

bool conv_bf16_is_faster(const conv_geometry *g)
{
    return g->images > 0 &&
           cpu_bf16_is_faster(g->filters / g->groups, g->tile,
                              g->channels / g->groups * g->kernel_size);
}

static void fail(job *j, core_status status)
{
    if (status != CORE_OK)
        __atomic_store_n(&j->status, status, __ATOMIC_RELAXED);
}

static void *scratch(job *j, int64_t count, int64_t size)
{
    void *memory = cpu_scratch_elements(count, size);

    if (!memory)
        fail(j, CORE_ERROR_OUT_OF_MEMORY);
    return memory;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ------------------------------------------------------------- forward -- */

/* One image, group and tile of positions. */
static void forward_tile(job *j, int64_t image, int64_t group, int64_t begin,
                         uint16_t *columns)
{
    const conv_geometry *g = j->g;
    int64_t n = least(g->tile, g->out_size - begin);
    int64_t first = group * j->filters;
    const uint16_t *x =
        j->x + (image * g->channels + group * j->channels) * g->in_size;
    cpu_bf16_product p = {
        .batch = 1,
        .m = j->filters,
        .n = n,
        .k = j->depth,
        .a = {j->w + first * j->depth, 0, j->depth, 1},
        .b = {columns, 0, 1, n},
        .c = {(char *)(j->y + (image * g->filters + first) * g->out_size +
                       begin),
              CORE_BF16, 0, g->out_size, 1},
        .s = {j->b ? (char *)(j->b + first) : NULL, CORE_BF16, 0, 1, 0},
        .alpha = 1,
        .beta = 1};

    if (g->direct)
        p.b = (cpu_bf16_operand){x + begin, 0, 1, g->in_size};
    else
        columns_bf16(g, (uint16_t *)x, j->channels, begin, begin + n, columns,
                     false);
    fail(j, cpu_bf16_multiply(&p));
    cpu_epilogue_run(g->epilogue, image, first, j->filters, begin, n);
}

static void forward_task(void *context, int64_t begin, int64_t end)
{
    job *j = context;
    const conv_geometry *g = j->g;
    int64_t tiles = (g->out_size + g->tile - 1) / g->tile;
    uint16_t *columns =
        scratch(j, g->direct ? 0 : j->depth * g->tile, sizeof *columns);

    for (int64_t item = begin; item < end && columns; item++)
        forward_tile(j, item / tiles / g->groups, item / tiles % g->groups,
                     item % tiles * g->tile, columns);
    cpu_scratch_give(columns);
}

core_status conv_forward_bf16(const conv_geometry *g, const uint16_t *x,
                              const uint16_t *w, const uint16_t *b, uint16_t *y)
{
    job j = job_of(g);
    int64_t items =
        g->images * g->groups * ((g->out_size + g->tile - 1) / g->tile);

    j.x = x;
    j.w = w;
    j.b = b;
    j.y = y;
    cpu_parallel_for(items,
                     cpu_grain(items, j.depth * j.filters * g->tile / 16),
                     forward_task, &j);
    return j.status;
}

/* --------------------------------------------------- gradient of input -- */

static void to_bf16(uint16_t *to, const float *from, int64_t n)
{
    cpu_put_f32(CORE_BF16, to, 1, from, n);
}

/* One image and a block of channels of one group; sums: the f32 gradient of the
 * block. */
static void input_block(job *j, int64_t image, int64_t group, int64_t first,
                        float *sums, float *columns)
{
    const conv_geometry *g = j->g;
    int64_t count = least(j->channels - first, j->block);
    int64_t at = group * j->channels + first;
    const uint16_t *gy =
        j->gy + (image * g->filters + group * j->filters) * g->out_size;
    const uint16_t *w = j->w + group * j->filters * j->depth;

    for (int64_t c = 0; c < count; c++) {
        float bias = 0;

        if (j->b)
            cpu_get_f32(&bias, CORE_BF16, j->b + at + c, 1, 1);
        for (int64_t i = 0; i < g->in_size; i++)
            sums[c * g->in_size + i] = bias;
    }
    for (int64_t p = 0; p < g->out_size; p += g->tile) {
        int64_t n = least(g->tile, g->out_size - p);
        cpu_bf16_product product = {
            .batch = 1,
            .m = count * g->kernel_size,
            .n = n,
            .k = j->filters,
            .a = {w + first * g->kernel_size, 0, 1, j->depth},
            .b = {gy + p, 0, 1, g->out_size},
            .c = {(char *)columns, CORE_F32, 0, n, 1},
            .alpha = 1};

        fail(j, cpu_bf16_multiply(&product));
        columns_f32(g, sums, count, p, p + n, columns, true);
    }
    to_bf16(j->gx + (image * g->channels + at) * g->in_size, sums,
            count * g->in_size);
}

static void input_task(void *context, int64_t begin, int64_t end)
{
    job *j = context;
    const conv_geometry *g = j->g;
    int64_t size = j->block * g->in_size;
    float *sums =
        scratch(j, size + j->block * g->kernel_size * g->tile, sizeof *sums);

    for (int64_t item = begin; item < end && sums; item++)
        input_block(j, item / j->blocks / g->groups,
                    item / j->blocks % g->groups, item % j->blocks * j->block,
                    sums, sums + size);
    cpu_scratch_give(sums);
}

core_status conv_input_bf16(const conv_geometry *g, const uint16_t *gy,
                            const uint16_t *w, const uint16_t *b, uint16_t *gx)
{
    job j = job_of(g);
    int64_t items;

    j.gy = gy;
    j.w = w;
    j.b = b;
    j.gx = gx;
    j.block = conv_channel_block(g, g->images * g->groups);
    j.blocks = (j.channels + j.block - 1) / j.block;
    items = g->images * g->groups * j.blocks;
    if (g->in_size > 0)
        cpu_parallel_for(items,
                         cpu_grain(items, j.block * g->kernel_size * j.filters *
                                              g->out_size / 16),
                         input_task, &j);
    return j.status;
}

/* -------------------------------------------------- gradient of weight -- */

/* A block of channels of one group, over one part of the images. */
static void weight_block(job *j, int64_t part, int64_t group, int64_t first,
                         uint16_t *columns)
{
    const conv_geometry *g = j->g;
    int64_t count = least(j->channels - first, j->block);
    float *gw = j->gw + (part * g->filters + group * j->filters) * j->depth +
                first * g->kernel_size;
    int64_t last = g->images * (part + 1) / j->parts;
    cpu_bf16_product product = {.batch = 1,
                                .m = j->filters,
                                .n = count * g->kernel_size,
                                .c = {(char *)gw, CORE_F32, 0, j->depth, 1},
                                .alpha = 1,
                                .beta = 1};

    for (int64_t image = g->images * part / j->parts; image < last; image++) {
        const uint16_t *x =
            j->x +
            (image * g->channels + group * j->channels + first) * g->in_size;
        const uint16_t *gy =
            j->gy + (image * g->filters + group * j->filters) * g->out_size;

        for (int64_t p = 0; p < g->out_size; p += g->tile) {
            int64_t n = least(g->tile, g->out_size - p);

            product.k = n;
            product.a = (cpu_bf16_operand){gy + p, 0, g->out_size, 1};
            product.b = (cpu_bf16_operand){columns, 0, n, 1};
            if (g->direct)
                product.b = (cpu_bf16_operand){x + p, 0, g->in_size, 1};
            else
                columns_bf16(g, (uint16_t *)x, count, p, p + n, columns, false);
            fail(j, cpu_bf16_multiply(&product));
            product.s = product.c;
        }
    }
}

static void weight_task(void *context, int64_t begin, int64_t end)
{
    job *j = context;
    const conv_geometry *g = j->g;
    uint16_t *columns =
        scratch(j, g->direct ? 0 : j->block * g->kernel_size * g->tile,
                sizeof *columns);

    for (int64_t item = begin; item < end && columns; item++)
        weight_block(j, item / j->blocks / g->groups,
                     item / j->blocks % g->groups, item % j->blocks * j->block,
                     columns);
    cpu_scratch_give(columns);
}

core_status conv_weight_bf16(const conv_geometry *g, const uint16_t *x,
                             const uint16_t *gy, uint16_t *gw)
{
    job j = job_of(g);
    int64_t size = g->filters * j.depth;

    j.x = x;
    j.gy = gy;
    if (size == 0)
        return CORE_OK;
    j.block = conv_channel_block(g, g->groups);
    j.blocks = (j.channels + j.block - 1) / j.block;
    j.parts = least(1 + 7 / (g->groups * j.blocks), g->images);
    j.gw = scratch(&j, j.parts * size, sizeof *j.gw);
    if (!j.gw)
        return j.status;
    cpu_parallel_for(j.parts * g->groups * j.blocks, 1, weight_task, &j);
    for (int64_t part = 1; part < j.parts; part++)
        for (int64_t i = 0; i < size; i++)
            j.gw[i] += j.gw[part * size + i];
    to_bf16(gw, j.gw, size);
    cpu_scratch_give(j.gw);
    return j.status;
}
