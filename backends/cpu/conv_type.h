/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* conv_type.h: the convolutions of conv.h in one type; included by convtype.c
 * with TYPE and T(name) defined.  Columns are a matrix with a row for each
 * channel and kernel position and a column for each output position. */

/* One row's elements at output positions of one output row: copied to (or
 * added from) `row`, which has `run` of them from column ow. */
typedef struct T(span) {
    int64_t first, last; /* those within the image */
    int64_t offset;      /* in the image row, of the first */
} T(span);

static T(span)
    T(span_of)(const conv_geometry *g, int64_t ow, int64_t run, int64_t kw)
{
    int64_t stride = g->stride[2];
    int64_t begin = ow * stride - g->padding[2] + kw * g->dilation[2];
    T(span) s = {0, run, 0};

    if (begin < 0)
        s.first = (-begin + stride - 1) / stride;
    if (begin + (run - 1) * stride >= g->in[2])
        s.last =
            g->in[2] > begin ? (g->in[2] - begin + stride - 1) / stride : 0;
    if (s.first > run)
        s.first = run;
    if (s.last < s.first)
        s.last = s.first;
    s.offset = begin + s.first * stride;
    return s;
}

/* The start of the image row that an output row meets at a kernel position,
 * or -1 outside. */
static int64_t T(image_row)(const conv_geometry *g, int64_t p, int64_t kd,
                            int64_t kh)
{
    int64_t oh = p / g->out[2] % g->out[1];
    int64_t od = p / g->out[2] / g->out[1];
    int64_t d = od * g->stride[0] - g->padding[0] + kd * g->dilation[0];
    int64_t h = oh * g->stride[1] - g->padding[1] + kh * g->dilation[1];

    if (d < 0 || d >= g->in[0] || h < 0 || h >= g->in[1])
        return -1;
    return (d * g->in[1] + h) * g->in[2];
}

static void T(row_read)(const conv_geometry *g, const TYPE *image, int64_t p,
                        int64_t run, const int64_t *k, TYPE *row)
{
    int64_t at = T(image_row)(g, p, k[0], k[1]);
    T(span) s = T(span_of)(g, p % g->out[2], run, k[2]);
    const TYPE *from;

    if (at < 0) {
        memset(row, 0, (size_t)run * sizeof *row);
        return;
    }
    from = image + at + s.offset;
    for (int64_t i = 0; i < s.first; i++)
        row[i] = 0;
    if (g->stride[2] == 1 && s.last > s.first)
        memcpy(row + s.first, from, (size_t)(s.last - s.first) * sizeof *row);
    else
        for (int64_t i = s.first; i < s.last; i++)
            row[i] = from[(i - s.first) * g->stride[2]];
    for (int64_t i = s.last; i < run; i++)
        row[i] = 0;
}

static void T(row_add)(const conv_geometry *g, TYPE *image, int64_t p,
                       int64_t run, const int64_t *k, const TYPE *row)
{
    int64_t at = T(image_row)(g, p, k[0], k[1]);
    T(span) s = T(span_of)(g, p % g->out[2], run, k[2]);
    TYPE *to = image + at + s.offset;

    if (at < 0)
        return;
    for (int64_t i = s.first; i < s.last; i++)
        to[(i - s.first) * g->stride[2]] += row[i];
}

/* Columns of `count` channels at output positions [begin, end): read from the
 * image, or added to it. */
static void T(columns)(const conv_geometry *g, TYPE *image, int64_t count,
                       int64_t begin, int64_t end, TYPE *columns, bool add)
{
    for (int64_t r = 0; r < count * g->kernel_size; r++) {
        int64_t at = r % g->kernel_size;
        int64_t k[3] = {at / g->kernel[2] / g->kernel[1],
                        at / g->kernel[2] % g->kernel[1], at % g->kernel[2]};
        TYPE *channel = image + r / g->kernel_size * g->in_size;
        TYPE *row = columns + r * (end - begin);

        for (int64_t p = begin; p < end;) {
            int64_t run = g->out[2] - p % g->out[2];

            run = run < end - p ? run : end - p;
            if (add)
                T(row_add)(g, channel, p, run, k, row);
            else
                T(row_read)(g, channel, p, run, k, row);
            row += run;
            p += run;
        }
    }
}

typedef struct T(conv_job) {
    const conv_geometry *g;
    const TYPE *x, *w, *b, *gy;
    TYPE *y, *gx, *gw;
    int64_t block;  /* channels of a group in a task */
    int64_t blocks; /* tasks in a group */
    int64_t parts;  /* of the images, for the weights' gradient */
    core_status status;
} T(conv_job);

static TYPE *T(scratch)(T(conv_job) * job, int64_t count)
{
    TYPE *memory = cpu_allocate(count, sizeof(TYPE));

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
    free(columns);
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
    free(columns);
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
    TYPE *gw = job->gw + part * g->filters * depth + group * filters * depth +
               first * g->kernel_size;
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
    free(columns);
}

core_status T(conv_weight)(const conv_geometry *g, const TYPE *x,
                           const TYPE *gy, TYPE *gw)
{
    T(conv_job) job = {.g = g, .x = x, .gy = gy};
    int64_t channels = g->channels / g->groups;
    int64_t size = g->filters * channels * g->kernel_size;
    TYPE *sums;

    if (g->images == 0 || g->out_size == 0) {
        memset(gw, 0, (size_t)size * sizeof *gw);
        return CORE_OK;
    }
    job.block = conv_channel_block(g, g->groups);
    job.blocks = (channels + job.block - 1) / job.block;
    job.parts = 1 + 7 / (g->groups * job.blocks);
    if (job.parts > g->images)
        job.parts = g->images;
    sums = T(scratch)(&job, job.parts * size);
    if (!sums)
        return job.status;
    job.gw = sums;
    cpu_parallel_for(job.parts * g->groups * job.blocks, 1, T(weight_task),
                     &job);
    for (int64_t i = 0; i < size; i++) {
        TYPE sum = sums[i];

        for (int64_t part = 1; part < job.parts; part++)
            sum += sums[part * size + i];
        gw[i] = sum;
    }
    free(sums);
    return job.status;
}
