/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* conv_columns.h: the columns of a convolution in one type; included with TYPE
 * and T(name) defined.  Columns are a matrix with a row for each channel and
 * kernel position and a column for each output position. */

/* The elements of an image row that `length` positions of an output row, from
 * column ow on, use at one kernel position. */
typedef struct T(span) {
    int64_t first, last; /* positions whose element is within the image */
    int64_t offset;      /* of the first one, in the image row */
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

/* A run of positions in one output row, for a kernel position. */
typedef struct T(run) {
    int64_t p[3]; /* the position of the first */
    int64_t length;
    T(span) span;
} T(run);

/* The start of the image row that an output row uses at a kernel position, or
 * -1 if that is outside the image. */
static int64_t T(image_row)(const conv_geometry *g, const T(run) * run,
                            const int64_t *k)
{
    int64_t d =
        run->p[0] * g->stride[0] - g->padding[0] + k[0] * g->dilation[0];
    int64_t h =
        run->p[1] * g->stride[1] - g->padding[1] + k[1] * g->dilation[1];

    if (d < 0 || d >= g->in[0] || h < 0 || h >= g->in[1])
        return -1;
    return (d * g->in[1] + h) * g->in[2];
}

static void T(row_read)(const conv_geometry *g, const TYPE *image,
                        const T(run) * run, const int64_t *k, TYPE *row)
{
    int64_t at = T(image_row)(g, run, k);
    T(span) s = run->span;
    const TYPE *from;

    if (at < 0) {
        memset(row, 0, (size_t)run->length * sizeof *row);
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
    for (int64_t i = s.last; i < run->length; i++)
        row[i] = 0;
}

static void T(row_add)(const conv_geometry *g, TYPE *image, const T(run) * run,
                       const int64_t *k, const TYPE *row)
{
    int64_t at = T(image_row)(g, run, k);
    int64_t count = run->span.last - run->span.first;
    TYPE *to = image + at + run->span.offset;

    if (at < 0)
        return;
    row += run->span.first;
    if (g->stride[2] == 1)
        for (int64_t i = 0; i < count; i++)
            to[i] = (TYPE)(to[i] + row[i]);
    else
        for (int64_t i = 0; i < count; i++)
            to[i * g->stride[2]] = (TYPE)(to[i * g->stride[2]] + row[i]);
}

/* Advances to the next run. */
static void T(run_next)(const conv_geometry *g, T(run) * run)
{
    run->p[2] = 0;
    if (++run->p[1] < g->out[1])
        return;
    run->p[1] = 0;
    run->p[0]++;
}

/* Whether each output position is a fixed distance from the element that it uses
 * at a kernel position: images of as many rows and columns as the output. */
static inline bool T(is_shift)(const conv_geometry *g)
{
    return g->in[0] == 1 && g->out[0] == 1 && g->padding[0] == 0 &&
           g->kernel[0] == 1 && g->stride[1] == 1 && g->stride[2] == 1 &&
           g->in[1] == g->out[1] && g->in[2] == g->out[2];
}

/* Sets the positions of [begin, end) to 0 whose column is in [left, right) of
 * the output's `width`; position p is row[p - begin]. */
static void T(clear)(TYPE *row, int64_t begin, int64_t end, int64_t left,
                     int64_t right, int64_t width)
{
    for (int64_t p = begin / width * width; p < end && left < right; p += width)
        for (int64_t at = p + left; at < p + right; at++)
            if (at >= begin && at < end)
                row[at - begin] = 0;
}

/* Reads a row of such columns: a copy, whose borders are cleared. */
static void T(shifted)(const conv_geometry *g, const TYPE *channel, int64_t dh,
                       int64_t dw, int64_t begin, int64_t end, TYPE *row)
{
    int64_t width = g->in[2], shift = dh * width + dw;
    int64_t first = dh < 0 ? -dh * width : 0;
    int64_t last = dh > 0 ? g->in_size - dh * width : g->in_size;

    if (first < -shift)
        first = -shift;
    if (last > g->in_size - shift)
        last = g->in_size - shift;
    if (first < begin)
        first = begin;
    if (last > end)
        last = end;
    if (last <= first)
        first = last = end;
    memset(row, 0, (size_t)(first - begin) * sizeof *row);
    if (last > first)
        memcpy(row + (first - begin), channel + first + shift,
               (size_t)(last - first) * sizeof *row);
    memset(row + (last - begin), 0, (size_t)(end - last) * sizeof *row);
    T(clear)(row, begin, end, 0, dw > -width ? -dw : width, width);
    T(clear)(row, begin, end, dw < width ? width - dw : 0, width, width);
}

static void T(shifted_columns)(const conv_geometry *g, const TYPE *image,
                               int64_t count, int64_t begin, int64_t end,
                               TYPE *columns)
{
    for (int64_t r = 0; r < count * g->kernel_size; r++) {
        int64_t at = r % g->kernel_size;

        T(shifted)
        (g, image + r / g->kernel_size * g->in_size,
         at / g->kernel[2] * g->dilation[1] - g->padding[1],
         at % g->kernel[2] * g->dilation[2] - g->padding[2], begin, end,
         columns + r * (end - begin));
    }
}

/* Reads the columns of `count` channels at output positions [begin, end) from
 * the image, or adds them to it. */
static void T(columns)(const conv_geometry *g, TYPE *image, int64_t count,
                       int64_t begin, int64_t end, TYPE *columns, bool add)
{
    const int64_t first[3] = {begin / g->out[2] / g->out[1],
                              begin / g->out[2] % g->out[1], begin % g->out[2]};

    if (!add && T(is_shift)(g)) {
        T(shifted_columns)(g, image, count, begin, end, columns);
        return;
    }
    for (int64_t r = 0; r < count * g->kernel_size; r++) {
        int64_t at = r % g->kernel_size, last = -1;
        int64_t k[3] = {at / g->kernel[2] / g->kernel[1],
                        at / g->kernel[2] % g->kernel[1], at % g->kernel[2]};
        TYPE *channel = image + r / g->kernel_size * g->in_size;
        TYPE *row = columns + r * (end - begin);
        T(run) run = {{first[0], first[1], first[2]}, 0, {0, 0, 0}};

        for (int64_t p = begin; p < end; p += run.length) {
            run.length = g->out[2] - run.p[2];
            if (run.length > end - p)
                run.length = end - p;
            /* All complete rows have the same span. */
            if (run.length != last || run.p[2] != 0)
                run.span = T(span_of)(g, run.p[2], run.length, k[2]);
            last = run.p[2] == 0 ? run.length : -1;
            if (add)
                T(row_add)(g, channel, &run, k, row);
            else
                T(row_read)(g, channel, &run, k, row);
            row += run.length;
            T(run_next)(g, &run);
        }
    }
}
