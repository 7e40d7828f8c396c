/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* conv_direct.c: the convolutions of conv_direct.h, except the innermost
 * product.
 *
 * A tile is a few output rows of one image and group; its input is rearranged
 * once for all filters.  Where there are fewer positions than filters, the
 * weights are used in place and the patches are rearranged instead.  The
 * gradient of the input is a convolution of the output's gradient with the
 * flipped kernel; the gradient of the weights sums over positions instead of
 * taps and channels.  The order of summation does not depend on the number of
 * threads. */

#include "conv_direct.h"

#include "isa.h"
#include "runtime/scratch.h"
#include "runtime/thread_pool.h"

enum {
    TILE = 1 << 16,       /* input elements that a tile reads */
    WORK_LEAST = 1 << 16, /* multiply-adds; with fewer, columns are faster */
    FILTERS_LEAST = 12,
    CHANNELS_LEAST = 4,  /* where channels are the lines of the product */
    SUMMED = 128,        /* products per partial sum, approximately */
    ROWS_MOST = 1 << 18, /* elements of the rows of all tiles */
    ITEMS_WANTED = 8,    /* tasks of the gradient of the weights */
    LINES = 24,          /* filters of a task with few positions */
    BAND = 64            /* positions whose sums are kept at a time */
};

typedef struct job {
    conv_geometry g; /* of the convolution that is computed */
    const conv_functions *f;
    conv_operand from, to, w;
    const float *b;
    bool turned;               /* the kernel is flipped, and w's first two
                                * dimensions are exchanged */
    int64_t channels, filters; /* of a group */
    int64_t blocks;            /* of filters */
    int64_t taps;
    int64_t rows, tiles;    /* output rows in a tile; tiles in out[1] */
    int64_t in_rows, width; /* of the input that a tile reads */
    int64_t parts, items;
    int64_t *weight_taps; /* the offset of each tap in the weights, where they
                           * are used in place */
    float *rows_of_all;   /* of all tiles, by item; NULL: they are too large */
    float *packed; /* weights: [group][block][tap][channel][columns]; their
                    * gradient: such an array for each part */
    core_status status;
} job;

static const conv_functions *functions(void)
{
    return CPU_CHOSEN(&cpu_conv_functions);
}

/* For functions that are called a few times for many elements. */
#define NOT_INLINE __attribute__((noinline))

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static bool is_large_enough(const conv_geometry *g, int64_t channels,
                            int64_t filters)
{
    return functions()->multiply && g->in_size > 0 && g->out_size > 0 &&
           filters / g->groups >= FILTERS_LEAST &&
           g->images * g->out_size * g->kernel_size * (channels / g->groups) *
                   filters >=
               WORK_LEAST;
}

bool conv_direct_forward_is_faster(const conv_geometry *g, bool channels_last)
{
    /* A 1 x 1 x 1 convolution of a channels-first input already is a matrix
     * product. */
    return is_large_enough(g, g->channels, g->filters) &&
           (!g->direct || channels_last);
}

bool conv_direct_input_is_faster(const conv_geometry *g)
{
    for (int k = 0; k < 3; k++)
        if (g->stride[k] != 1 ||
            g->padding[k] > g->dilation[k] * (g->kernel[k] - 1))
            return false;
    return !g->direct && is_large_enough(g, g->filters, g->channels);
}

bool conv_direct_weight_is_faster(const conv_geometry *g)
{
    return !g->direct && g->channels / g->groups >= CHANNELS_LEAST &&
           is_large_enough(g, g->channels, g->filters);
}

/* g: of the convolution that is computed. */
static job job_of(const conv_geometry *g)
{
    job j = {.g = *g, .f = functions(), .taps = g->kernel_size};
    int64_t row, span;

    j.channels = g->channels / g->groups;
    j.filters = g->filters / g->groups;
    j.blocks = (j.filters + j.f->columns - 1) / j.f->columns;
    j.width = (g->out[2] - 1) * g->stride[2] +
              (g->kernel[2] - 1) * g->dilation[2] + 1;
    row = j.width * j.channels * g->kernel[0];
    span = (g->kernel[1] - 1) * g->dilation[1] + 1;
    j.rows = (TILE / most(row, 1) - span) / g->stride[1] + 1;
    j.rows = most(1, least(j.rows, g->out[1]));
    j.in_rows = (j.rows - 1) * g->stride[1] + span;
    j.tiles = (g->out[1] + j.rows - 1) / j.rows;
    j.items = g->images * g->groups * g->out[0] * j.tiles;
    return j;
}

static void fail(job *j)
{
    __atomic_store_n(&j->status, CORE_ERROR_OUT_OF_MEMORY, __ATOMIC_RELAXED);
}

static float *scratch(job *j, int64_t count)
{
    float *memory = cpu_scratch_elements(count, sizeof *memory);

    if (!memory)
        fail(j);
    return memory;
}

/* -------------------------------------------------------------- weights -- */

/* Of a block of filters. */
static int64_t block_size(const job *j)
{
    return j->taps * j->channels * j->f->columns;
}

static int64_t packed_size(const job *j)
{
    return j->g.groups * j->blocks * block_size(j);
}

/* The address of the weight of a filter, a channel of its group, and a tap. */
static NOT_INLINE float *weight_at(const job *j, int64_t group, int64_t filter,
                                   int64_t channel, int64_t tap)
{
    const conv_geometry *g = &j->g;
    const int64_t *stride = j->w.stride;
    int64_t last = j->turned ? j->taps - 1 - tap : tap;
    int64_t at = last / (g->kernel[1] * g->kernel[2]) * stride[2] +
                 last / g->kernel[2] % g->kernel[1] * stride[3] +
                 last % g->kernel[2] * stride[4];

    if (j->turned)
        return j->w.data + at + (group * j->channels + channel) * stride[0] +
               filter * stride[1];
    return j->w.data + at + (group * j->filters + filter) * stride[0] +
           channel * stride[1];
}

/* The distances of channels and of filters in the weights. */
static int64_t channel_stride(const job *j)
{
    return j->w.stride[j->turned ? 0 : 1];
}

static int64_t filter_stride(const job *j)
{
    return j->w.stride[j->turned ? 1 : 0];
}

/* The weights of CHANNELS channels, all taps and a block of filters fit in the
 * first-level cache: each line of it is used completely. */
enum { CHANNELS = 16 };

static void pack_channels(const job *j, int64_t item, int64_t begin,
                          int64_t end)
{
    int64_t columns = j->f->columns, first = item % j->blocks * columns;
    int64_t count = least(columns, j->filters - first);
    int64_t step = filter_stride(j), channel = channel_stride(j);
    float *to = j->packed + item * j->taps * j->channels * columns;

    for (int64_t tap = 0; tap < j->taps; tap++) {
        const float *from = weight_at(j, item / j->blocks, first, begin, tap);
        float *line = to + (tap * j->channels + begin) * columns;

        for (int64_t c = begin; c < end; c++) {
            for (int64_t k = 0; k < count; k++)
                line[k] = from[k * step];
            for (int64_t k = count; k < columns; k++)
                line[k] = 0;
            from += channel;
            line += columns;
        }
    }
}

static bool take_weight_taps(job *j)
{
    j->weight_taps = cpu_scratch_elements(j->taps, sizeof *j->weight_taps);
    if (!j->weight_taps) {
        fail(j);
        return false;
    }
    for (int64_t tap = 0; tap < j->taps; tap++)
        j->weight_taps[tap] = weight_at(j, 0, 0, 0, tap) - j->w.data;
    return true;
}

/* One block of filters of one group. */
static void pack_weights(void *context, int64_t begin, int64_t end)
{
    const job *j = context;

    for (int64_t item = begin; item < end; item++)
        for (int64_t c = 0; c < j->channels; c += CHANNELS)
            pack_channels(j, item, c, least(c + CHANNELS, j->channels));
}

/* ----------------------------------------------------------------- rows -- */

typedef struct tile {
    int64_t image, group, depth, row, rows; /* of the output */
} tile;

static tile tile_of(const job *j, int64_t item)
{
    tile t = {.row = item % j->tiles * j->rows};

    t.rows = least(j->rows, j->g.out[1] - t.row);
    item /= j->tiles;
    t.depth = item % j->g.out[0];
    item /= j->g.out[0];
    t.group = item % j->g.groups;
    t.image = item / j->g.groups;
    return t;
}

/* Copies count positions of all channels to channels-last. */
static void take_positions(const float *from, int64_t channel, int64_t position,
                           int64_t channels, int64_t count, float *to)
{
    if (channel == 1) {
        for (int64_t i = 0; i < count; i++)
            memcpy(to + i * channels, from + i * position,
                   (size_t)channels * sizeof *to);
        return;
    }
    for (int64_t c = 0; c < channels; c += 16) {
        int64_t end = least(channels, c + 16);

        for (int64_t i = 0; i < count; i++)
            for (int64_t k = c; k < end; k++)
                to[i * channels + k] = from[k * channel + i * position];
    }
}

static void clear(float *to, int64_t count)
{
    if (count > 0)
        memset(to, 0, (size_t)count * sizeof *to);
}

/* Copies one row of the input with its padding. */
static void take_row(const job *j, const float *from, float *to)
{
    const conv_geometry *g = &j->g;
    int64_t before = least(g->padding[2], j->width);
    int64_t count = most(0, least(j->width - before, g->in[2]));

    clear(to, before * j->channels);
    take_positions(from, j->from.stride[1], j->from.stride[4], j->channels,
                   count, to + before * j->channels);
    clear(to + (before + count) * j->channels,
          (j->width - before - count) * j->channels);
}

/* Copies a tile's input to [kernel depth][in_rows][width][channels]. */
static void take_rows(const job *j, const tile *t, float *to)
{
    const conv_geometry *g = &j->g;
    const int64_t *stride = j->from.stride;
    const float *from = j->from.data + t->image * stride[0] +
                        t->group * j->channels * stride[1];

    for (int64_t d = 0; d < g->kernel[0]; d++) {
        int64_t depth =
            t->depth * g->stride[0] - g->padding[0] + d * g->dilation[0];

        for (int64_t r = 0; r < j->in_rows; r++) {
            int64_t row = t->row * g->stride[1] - g->padding[1] + r;

            if (depth < 0 || depth >= g->in[0] || row < 0 || row >= g->in[1])
                clear(to, j->width * j->channels);
            else
                take_row(j, from + depth * stride[2] + row * stride[3], to);
            to += j->width * j->channels;
        }
    }
}

/* Returns the offset of each tap in those rows, followed by space for `more`
 * elements. */
static int64_t *offsets_of(job *j, int64_t more)
{
    const conv_geometry *g = &j->g;
    int64_t *offsets = cpu_scratch_elements(j->taps + more, sizeof *offsets);
    int64_t plane = g->kernel[1] * g->kernel[2];

    if (!offsets)
        fail(j);
    for (int64_t tap = 0; offsets && tap < j->taps; tap++) {
        int64_t row = tap / plane * j->in_rows +
                      tap % plane / g->kernel[2] * g->dilation[1];

        offsets[tap] = (row * j->width + tap % g->kernel[2] * g->dilation[2]) *
                       j->channels;
    }
    return offsets;
}

/* -------------------------------------------------------------- forward -- */

/* Writes the sums of a row of positions and a block of filters, plus the
 * bias. */
static void give_row(const job *j, const tile *t, int64_t row, int64_t first,
                     const float *sums)
{
    const int64_t *stride = j->to.stride;
    int64_t columns = j->f->columns, filter = t->group * j->filters + first;
    int64_t count = least(columns, j->filters - first);
    float *to = j->to.data + t->image * stride[0] + filter * stride[1] +
                t->depth * stride[2] + row * stride[3];
    float bias[CONV_COLUMNS_MOST] = {0};

    for (int64_t k = 0; j->b && k < count; k++)
        bias[k] = j->b[filter + k];
    if (stride[1] == 1) {
        for (int64_t i = 0; i < j->g.out[2]; i++)
            for (int64_t k = 0; k < count; k++)
                to[i * stride[4] + k] = sums[i * columns + k] + bias[k];
        return;
    }
    for (int64_t k = 0; k < count; k++)
        for (int64_t i = 0; i < j->g.out[2]; i++)
            to[k * stride[1] + i * stride[4]] = sums[i * columns + k] + bias[k];
}

/* How many taps of a row of the kernel to take as one run of elements, so that
 * runs end where `together` taps do: their sums stay the same. */
static int64_t taps_in_run(const job *j, int64_t together)
{
    int64_t a = j->g.kernel[2], b = together;

    while (b > 0) {
        int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* Some rows of positions and one block of filters, a few taps at a time, because
 * short sums are more accurate, and because the weights of a few taps stay in
 * the first-level cache for all these rows. */
static void sum_rows(const job *j, const float *rows, int64_t count,
                     const float *weights, const int64_t *offsets, float *sums)
{
    int64_t columns = j->f->columns, line = j->g.out[2] * columns;
    int64_t step = j->g.stride[1] * j->width * j->channels;
    int64_t together = most(1, SUMMED / most(j->channels, 1));
    int64_t run = j->g.dilation[2] == 1 ? taps_in_run(j, together) : 1;
    conv_product p = {.across = j->g.stride[2] * j->channels,
                      .along = 1,
                      .n = j->channels * run,
                      .skip = run,
                      .distance = columns};

    for (int64_t tap = 0; tap < j->taps; tap += together) {
        p.b = weights + tap * j->channels * columns;
        p.offsets = offsets + tap;
        p.taps = least(together, j->taps - tap) / run;
        p.add = tap > 0;
        for (int64_t r = 0; r < count; r++) {
            p.a = rows + r * step;
            p.c = sums + r * line;
            j->f->multiply(&p, j->g.out[2]);
        }
    }
}

/* The rows whose sums are kept at a time. */
static int64_t band_rows(const job *j)
{
    return most(1, least(j->rows, BAND / most(j->g.out[2], 1)));
}

static void forward_block(const job *j, const tile *t, int64_t block,
                          const float *rows, const int64_t *offsets,
                          float *sums)
{
    int64_t columns = j->f->columns, band = band_rows(j);
    int64_t step = j->g.stride[1] * j->width * j->channels;
    const float *weights =
        j->packed + (t->group * j->blocks + block) * block_size(j);

    for (int64_t first = 0; first < t->rows; first += band) {
        int64_t count = least(band, t->rows - first);

        sum_rows(j, rows + first * step, count, weights, offsets, sums);
        for (int64_t r = 0; r < count; r++)
            give_row(j, t, t->row + first + r, block * columns,
                     sums + r * j->g.out[2] * columns);
    }
}

static void forward_tile(const job *j, const tile *t, const float *rows,
                         const int64_t *offsets, float *sums)
{
    const conv_geometry *g = &j->g;

    for (int64_t block = 0; block < j->blocks; block++)
        forward_block(j, t, block, rows, offsets, sums);
    cpu_epilogue_run(g->epilogue, t->image, t->group * j->filters, j->filters,
                     (t->depth * g->out[1] + t->row) * g->out[2],
                     t->rows * g->out[2]);
}

static int64_t rows_size(const job *j)
{
    return j->g.kernel[0] * j->in_rows * j->width * j->channels;
}

static void forward_task(void *context, int64_t begin, int64_t end)
{
    job *j = context;
    int64_t *offsets = offsets_of(j, 0);
    float *rows =
        scratch(j, rows_size(j) + band_rows(j) * j->g.out[2] * j->f->columns);

    for (int64_t item = begin; item < end && offsets && rows; item++) {
        tile t = tile_of(j, item);

        take_rows(j, &t, rows);
        forward_tile(j, &t, rows, offsets, rows + rows_size(j));
    }
    cpu_scratch_give(offsets);
    cpu_scratch_give(rows);
}

/* -------------------------------------------------------- few positions -- */

/* With fewer positions than filters the weights are the larger operand: they
 * are read in place, once, as the lines of the product, and the patches of the
 * positions of all images are its columns.  Each sum has the same order. */

typedef struct position {
    int64_t at[3]; /* in its image */
    int64_t from, to;
} position;

/* The place of position `number` in the output of its image. */
static void place_of(const job *j, int64_t number, int64_t out[4])
{
    out[3] = number / j->g.out_size;
    number %= j->g.out_size;
    for (int k = 2; k >= 0; k--) {
        out[k] = number % j->g.out[k];
        number /= j->g.out[k];
    }
}

/* To the next place: dimensions from the last on, and the image. */
static void next_place(const job *j, int64_t place[4])
{
    int k = 2;

    for (; k >= 0 && ++place[k] == j->g.out[k]; k--)
        place[k] = 0;
    place[3] += k < 0;
}

/* The positions of block `block`; returns how many there are. */
static NOT_INLINE int64_t positions_of(const job *j, int64_t block,
                                       position *positions)
{
    const conv_geometry *g = &j->g;
    int64_t first = block * j->f->columns, place[4];
    int64_t count = least(j->f->columns, g->images * g->out_size - first);

    place_of(j, first, place);
    for (int64_t i = 0; i < count; i++, next_place(j, place)) {
        position *to = &positions[i];

        to->from = place[3] * j->from.stride[0];
        to->to = place[3] * j->to.stride[0];
        for (int k = 0; k < 3; k++) {
            to->at[k] = place[k] * g->stride[k] - g->padding[k];
            to->to += place[k] * j->to.stride[2 + k];
        }
    }
    return count;
}

/* How far a tap is from the first one, in each dimension. */
static void reach_of(const conv_geometry *g, int64_t tap, int64_t out[3])
{
    for (int k = 2; k >= 0; k--) {
        out[k] = tap % g->kernel[k] * g->dilation[k];
        tap /= g->kernel[k];
    }
}

/* The offset of the input's element that a tap uses, or -1 outside. */
static int64_t element_of(const job *j, const position *position,
                          const int64_t reach[3])
{
    int64_t offset = position->from;

    for (int k = 2; k >= 0; k--) {
        int64_t at = position->at[k] + reach[k];

        if (at < 0 || at >= j->g.in[k])
            return -1;
        offset += at * j->from.stride[2 + k];
    }
    return offset;
}

/* Half of the columns, where these are enough for all positions. */
static int64_t columns_used(const job *j)
{
    int64_t half = j->f->columns / 2;

    return j->g.images * j->g.out_size <= half ? half : j->f->columns;
}

/* [group][block of positions][tap][channel][columns]; an item is a tap. */
static void pack_tap(const job *j, int64_t item, const position *positions,
                     int64_t count)
{
    int64_t columns = j->f->columns, step = j->from.stride[1];
    int64_t offsets[CONV_COLUMNS_MOST], reach[3], used = columns_used(j);
    int64_t group = item / j->taps / j->tiles;
    const float *from = j->from.data + group * j->channels * step;
    float *to = j->packed + item * j->channels * columns;

    reach_of(&j->g, item % j->taps, reach);
    for (int64_t i = 0; i < used; i++)
        offsets[i] = i < count ? element_of(j, &positions[i], reach) : -1;
    for (int64_t c = 0; c < j->channels; c++, from += step, to += columns)
        for (int64_t i = 0; i < used; i++)
            to[i] = offsets[i] < 0 ? 0 : from[offsets[i]];
}

static void pack_patches(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    position positions[CONV_COLUMNS_MOST];
    int64_t count = 0;

    for (int64_t item = begin; item < end; item++) {
        if (item == begin || item % j->taps == 0)
            count = positions_of(j, item / j->taps % j->tiles, positions);
        pack_tap(j, item, positions, count);
    }
}

/* Some filters of a group, and a block of positions. */
static void few_lines(const job *j, int64_t group, int64_t first, int64_t block)
{
    int64_t columns = j->f->columns, count = least(LINES, j->filters - first);
    int64_t together = most(1, SUMMED / most(j->channels, 1));
    /* The weights of one channel: taps are at equal distances. */
    int64_t run = j->channels == 1 ? taps_in_run(j, together) : 1;
    float sums[LINES * CONV_COLUMNS_MOST];
    position positions[CONV_COLUMNS_MOST];
    conv_product p = {.a = weight_at(j, group, first, 0, 0) - j->weight_taps[0],
                      .across = filter_stride(j),
                      .along = run > 1 ? j->weight_taps[1] - j->weight_taps[0]
                                       : channel_stride(j),
                      .n = j->channels * run,
                      .skip = run,
                      .c = sums,
                      .distance = columns,
                      .half = columns_used(j) < columns};
    int64_t n = positions_of(j, block, positions);

    for (int64_t tap = 0; tap < j->taps; tap += together) {
        p.b = j->packed + (((group * j->tiles + block) * j->taps + tap) *
                           j->channels * columns);
        p.offsets = j->weight_taps + tap;
        p.taps = least(together, j->taps - tap) / run;
        p.add = tap > 0;
        j->f->multiply(&p, count);
    }
    for (int64_t k = 0; k < count; k++) {
        int64_t filter = group * j->filters + first + k;
        float *to = j->to.data + filter * j->to.stride[1];
        float bias = j->b ? j->b[filter] : 0;

        for (int64_t i = 0; i < n; i++)
            to[positions[i].to] = sums[k * columns + i] + bias;
    }
}

static void few_task(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    int64_t blocks = (j->filters + LINES - 1) / LINES;

    for (int64_t item = begin; item < end; item++)
        for (int64_t block = 0; block < j->tiles; block++)
            few_lines(j, item / blocks, item % blocks * LINES, block);
}

static bool has_few_positions(const job *j)
{
    int64_t columns = j->f->columns;
    int64_t blocks = (j->g.images * j->g.out_size + columns - 1) / columns;

    return blocks * columns <= j->filters;
}

/* Here tiles are blocks of positions. */
static core_status compute_few(job *j)
{
    int64_t columns = j->f->columns;
    int64_t lines = j->taps * j->channels;
    int64_t items = j->g.groups * ((j->filters + LINES - 1) / LINES);

    j->tiles = (j->g.images * j->g.out_size + columns - 1) / columns;
    j->packed = scratch(j, j->g.groups * j->tiles * lines * columns);
    if (!j->packed || !take_weight_taps(j))
        goto done;
    cpu_parallel_for(j->g.groups * j->tiles * j->taps,
                     cpu_grain(j->taps, lines * columns), pack_patches, j);
    cpu_parallel_for(items, cpu_grain(items, LINES * lines * columns / 16),
                     few_task, j);
    for (int64_t image = 0; image < j->g.images; image++)
        cpu_epilogue_run(j->g.epilogue, image, 0, j->g.filters, 0,
                         j->g.out_size);
done:
    cpu_scratch_give(j->weight_taps);
    cpu_scratch_give(j->packed);
    return j->status;
}

/* ----------------------------------------------------------------- calls -- */

static core_status compute(job *j)
{
    int64_t work = j->rows * j->g.out[2] * j->taps * j->channels * j->filters;

    if (has_few_positions(j))
        return compute_few(j);
    j->packed = scratch(j, packed_size(j));
    if (!j->packed)
        return j->status;
    cpu_parallel_for(j->g.groups * j->blocks, 1, pack_weights, j);
    cpu_parallel_for(j->items, cpu_grain(j->items, work / 16), forward_task, j);
    cpu_scratch_give(j->packed);
    return j->status;
}

core_status conv_direct_forward(const conv_geometry *g, const conv_operand *x,
                                const conv_operand *w, const float *b,
                                const conv_operand *y)
{
    job j = job_of(g);

    j.from = *x;
    j.w = *w;
    j.b = b;
    j.to = *y;
    return compute(&j);
}

core_status conv_direct_input(const conv_geometry *g, const conv_operand *gy,
                              const conv_operand *w, const float *b,
                              const conv_operand *gx)
{
    conv_geometry turned = *g;
    job j;

    turned.channels = g->filters;
    turned.filters = g->channels;
    turned.in_size = g->out_size;
    turned.out_size = g->in_size;
    for (int k = 0; k < 3; k++) {
        turned.in[k] = g->out[k];
        turned.out[k] = g->in[k];
        turned.padding[k] = g->dilation[k] * (g->kernel[k] - 1) - g->padding[k];
    }
    j = job_of(&turned);
    j.from = *gy;
    j.w = *w;
    j.b = b;
    j.to = *gx;
    j.turned = true;
    return compute(&j);
}

/* --------------------------------------------------- gradient of weights -- */

/* Copies the output's gradient in a tile, for a block of filters, to
 * [row][position][columns]. */
static void take_grad(const job *j, const tile *t, int64_t block, float *to)
{
    const int64_t *stride = j->to.stride;
    int64_t columns = j->f->columns, first = block * columns;
    int64_t count = least(columns, j->filters - first);
    const float *from = j->to.data + t->image * stride[0] +
                        (t->group * j->filters + first) * stride[1] +
                        t->depth * stride[2] + t->row * stride[3];

    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t i = 0; i < j->g.out[2]; i++, to += columns) {
            const float *at = from + r * stride[3] + i * stride[4];

            for (int64_t k = 0; k < count; k++)
                to[k] = at[k * stride[1]];
            clear(to + count, columns - count);
        }
}

typedef struct weight_workspace {
    float *rows, *grad; /* of a tile; with rows_of_all the grad is of a part */
    int64_t *offsets, *of_rows; /* of taps, of rows of a tile */
    float *sums;                /* of a block, where there is one part */
} weight_workspace;

/* The elements of the output's gradient of a tile, for a block of filters. */
static int64_t grad_size(const job *j)
{
    return j->rows * j->g.out[2] * j->f->columns;
}

/* Some channels.  sums: [tap][channel][columns] */
static void weight_tile(const job *j, const weight_workspace *workspace,
                        const float *rows, const float *grad, int64_t count,
                        int64_t channel, int64_t channels, float *sums,
                        bool add)
{
    conv_product p = {.b = grad,
                      .offsets = workspace->of_rows,
                      .across = 1,
                      .along = j->g.stride[2] * j->channels,
                      .taps = count,
                      .n = j->g.out[2],
                      .skip = 1,
                      .distance = j->f->columns,
                      .add = add};

    for (int64_t tap = 0; tap < j->taps; tap++) {
        p.a = rows + workspace->offsets[tap] + channel;
        p.c = sums + (tap * j->channels + channel) * j->f->columns;
        j->f->multiply(&p, channels);
    }
}

/* The tiles of a part, one after the other: few channels at a time, so that
 * their sums stay in the first-level cache. */
static void weight_tiles(const job *j, int64_t first, int64_t count,
                         int64_t step, int64_t block,
                         const weight_workspace *workspace, float *sums)
{
    int64_t tiles = j->g.out[0] * j->tiles;

    for (int64_t i = 0; i < count; i++) {
        tile t = tile_of(j, first + i / tiles * step + i % tiles);

        take_grad(j, &t, block, workspace->grad + i * grad_size(j));
    }
    for (int64_t c = 0; c < j->channels; c += LINES)
        for (int64_t i = 0; i < count; i++) {
            int64_t item = first + i / tiles * step + i % tiles;
            tile t = tile_of(j, item);

            weight_tile(j, workspace, j->rows_of_all + item * rows_size(j),
                        workspace->grad + i * grad_size(j), t.rows, c,
                        least(LINES, j->channels - c), sums, i > 0);
        }
}

/* An item is a part of the images with a block of filters of one group. */
static void weight_part(const job *j, int64_t item,
                        const weight_workspace *workspace, float *sums)
{
    const conv_geometry *g = &j->g;
    int64_t block = item % j->blocks, group = item / j->blocks % g->groups;
    int64_t part = item / j->blocks / g->groups;
    int64_t first = g->images * part / j->parts;
    int64_t last = g->images * (part + 1) / j->parts;
    int64_t tiles = g->out[0] * j->tiles;

    if (j->rows_of_all) {
        weight_tiles(j, (first * g->groups + group) * tiles,
                     (last - first) * tiles, g->groups * tiles, block,
                     workspace, sums);
        return;
    }
    for (int64_t image = first; image < last; image++)
        for (int64_t k = 0; k < tiles; k++) {
            tile t = tile_of(j, (image * g->groups + group) * tiles + k);

            take_rows(j, &t, workspace->rows);
            take_grad(j, &t, block, workspace->grad);
            weight_tile(j, workspace, workspace->rows, workspace->grad, t.rows,
                        0, j->channels, sums, image > first || k > 0);
        }
}

static void give_channels(const job *j, int64_t item, const float *sums,
                          int64_t begin, int64_t end)
{
    int64_t columns = j->f->columns, first = item % j->blocks * columns;
    int64_t count = least(columns, j->filters - first);
    int64_t channel = channel_stride(j);
    float *start =
        weight_at(j, item / j->blocks, first, begin, 0) - j->weight_taps[0];

    for (int64_t k = 0; k < count; k++)
        for (int64_t tap = 0; tap < j->taps; tap++) {
            const float *from =
                sums + (tap * j->channels + begin) * columns + k;
            float *to = start + k * filter_stride(j) + j->weight_taps[tap];

            for (int64_t c = 0; c < end - begin; c++)
                to[c * channel] = 0.0f + from[c * columns]; /* never -0 */
        }
}

/* Writes the weights' gradient of a block. */
static void give_block(const job *j, int64_t item, const float *sums)
{
    for (int64_t c = 0; c < j->channels; c += CHANNELS)
        give_channels(j, item, sums, c, least(c + CHANNELS, j->channels));
}

/* Adds the sums of the parts to those of the first. */
static void add_parts(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    int64_t size = block_size(j);

    for (int64_t item = begin; item < end; item++) {
        float *to = j->packed + item * size;

        for (int64_t part = 1; part < j->parts; part++) {
            const float *from = to + part * packed_size(j);

            for (int64_t i = 0; i < size; i++)
                to[i] += from[i];
        }
        give_block(j, item, to);
    }
}

static void weight_task(void *context, int64_t begin, int64_t end)
{
    job *j = context;
    int64_t tiles = j->g.out[0] * j->tiles;
    int64_t grads = j->rows_of_all ? (j->g.images / j->parts + 1) * tiles : 1;
    weight_workspace workspace = {
        .rows = scratch(j, rows_size(j) + grads * grad_size(j)),
        .offsets = offsets_of(j, j->rows),
        .sums = scratch(j, j->packed ? 0 : block_size(j))};

    if (workspace.rows && workspace.offsets && workspace.sums) {
        workspace.grad = workspace.rows + rows_size(j);
        workspace.of_rows = workspace.offsets + j->taps;
        for (int64_t r = 0; r < j->rows; r++)
            workspace.of_rows[r] = r * j->g.stride[1] * j->width * j->channels;
        for (int64_t item = begin; item < end; item++) {
            if (j->packed) {
                weight_part(j, item, &workspace,
                            j->packed + item * block_size(j));
            } else {
                weight_part(j, item, &workspace, workspace.sums);
                give_block(j, item, workspace.sums);
            }
        }
    }
    cpu_scratch_give(workspace.sums);
    cpu_scratch_give(workspace.offsets);
    cpu_scratch_give(workspace.rows);
}

static void rows_task(void *context, int64_t begin, int64_t end)
{
    const job *j = context;

    for (int64_t item = begin; item < end; item++) {
        tile t = tile_of(j, item);

        take_rows(j, &t, j->rows_of_all + item * rows_size(j));
    }
}

/* Without memory for them, they are rearranged for each block of filters. */
static void take_all_rows(job *j)
{
    if (rows_size(j) > ROWS_MOST / j->items)
        return;
    j->rows_of_all =
        cpu_scratch_elements(j->items * rows_size(j), sizeof *j->rows_of_all);
    if (j->rows_of_all)
        cpu_parallel_for(j->items, cpu_grain(j->items, rows_size(j)), rows_task,
                         j);
}

core_status conv_direct_weight(const conv_geometry *g, const conv_operand *x,
                               const conv_operand *gy, const conv_operand *gw)
{
    job j = job_of(g);

    j.from = *x;
    j.to = *gy;
    j.w = *gw;
    j.parts = least(1 + (ITEMS_WANTED - 1) / (g->groups * j.blocks), g->images);
    if (!take_weight_taps(&j))
        return j.status;
    if (j.parts > 1) {
        j.packed = scratch(&j, j.parts * packed_size(&j));
        if (!j.packed)
            goto done;
    }
    take_all_rows(&j);
    cpu_parallel_for(j.parts * g->groups * j.blocks, 1, weight_task, &j);
    if (j.status == CORE_OK && j.parts > 1)
        cpu_parallel_for(g->groups * j.blocks, 1, add_parts, &j);
done:
    cpu_scratch_give(j.weight_taps);
    cpu_scratch_give(j.rows_of_all);
    cpu_scratch_give(j.packed);
    return j.status;
}

/* ----------------------------------------------------- gradient of bias -- */

enum { TOGETHER = 16 };

typedef struct bias_job {
    const conv_operand *y;
    const int64_t *size;
    int64_t images, channels;
    float *gb;
} bias_job;

static void add_row(const bias_job *j, const float *from, int64_t count,
                    double *sums)
{
    int64_t channel = j->y->stride[1], position = j->y->stride[4];

    if (channel == 1) {
        for (int64_t i = 0; i < j->size[2]; i++)
            for (int64_t k = 0; k < count; k++)
                sums[k] += (double)from[i * position + k];
        return;
    }
    for (int64_t k = 0; k < count; k++) {
        double sum = 0;

        for (int64_t i = 0; i < j->size[2]; i++)
            sum += (double)from[k * channel + i * position];
        sums[k] += sum;
    }
}

static void bias_task(void *context, int64_t begin, int64_t end)
{
    const bias_job *j = context;
    const int64_t *stride = j->y->stride;

    for (int64_t item = begin; item < end; item++) {
        int64_t first = item * TOGETHER;
        int64_t count = least(TOGETHER, j->channels - first);
        double sums[TOGETHER] = {0};

        for (int64_t image = 0; image < j->images; image++)
            for (int64_t d = 0; d < j->size[0]; d++)
                for (int64_t r = 0; r < j->size[1]; r++)
                    add_row(j,
                            j->y->data + image * stride[0] + first * stride[1] +
                                d * stride[2] + r * stride[3],
                            count, sums);
        for (int64_t k = 0; k < count; k++)
            j->gb[first + k] = (float)sums[k];
    }
}

void conv_direct_bias(const conv_operand *y, int64_t images, int64_t channels,
                      const int64_t size[3], float *gb)
{
    bias_job j = {y, size, images, channels, gb};
    int64_t items = (channels + TOGETHER - 1) / TOGETHER;

    cpu_parallel_for(
        items,
        cpu_grain(items, images * size[0] * size[1] * size[2] * TOGETHER),
        bias_task, &j);
}
