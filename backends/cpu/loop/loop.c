/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "loop.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include <expressions/number.h>
#include <libcore/sdk.h>

#include "runtime/thread_pool.h"
#include "move/nontemporal.h"
#include "move/transpose_lines.h"

enum {
    /* Shorter rows are gathered several at a time: if all operands could be used
     * in place, if some are moved to blocks, and if some are converted. */
    SHORT_ROW = 64,
    SHORT_MOVED_ROW = 128,
    SHORT_CONVERTED_ROW = 256,
    /* A tile, for an operand that is dense along another dimension than 0. */
    TILE_WIDTH = 32,
    TILE_HEIGHT = CPU_BLOCK / TILE_WIDTH,
    /* Tiles that follow each other along that dimension: a few kilobytes of
     * each of TILE_WIDTH pages. */
    TILE_BAND = 16
};

/* How an operand is passed to the row. */
enum {
    DENSE,   /* all of it in place, in the row's type */
    ROWS,    /* each row of the loop in place */
    SINGLE,  /* one element for all */
    MOVED,   /* through a block */
    PERIODIC /* a dense run that the loop repeats, repeated in a block */
};

typedef struct run {
    const core_loop *loop;
    cpu_row row;
    cpu_parameters *parameters;
    uint32_t count, noutputs;
    int all_rows;   /* every operand is DENSE or ROWS */
    int shortest;   /* of the three limits for rows */
    int periodic;   /* one is PERIODIC, and none needs rows */
    int streams;    /* all are DENSE or SINGLE, and the output is written with
                     * non-temporal stores */
    uint32_t tiled; /* the other dimension of tiles; 0: no tiles */
    bool tiles_stream;
    int64_t tiles_across, tiles_down; /* along dimension 0 and the other */
    struct {
        char *base;
        const int64_t *strides;
        core_dtype dtype, type; /* the operand's, the row's */
        uint32_t bytes, wide;   /* of either */
        int kind;
        int whole;      /* MOVED, but dense over all dimensions */
        int64_t period; /* PERIODIC: the run's elements */
    } operand[CPU_OPERANDS];
} run;

static int is_dense(const core_loop *loop, const int64_t *strides,
                    uint32_t bytes)
{
    int64_t next = bytes;
    uint32_t d;

    for (d = 0; d < loop->ndim; d++) {
        if (strides[d] != next)
            return 0;
        next *= loop->sizes[d];
    }
    return 1;
}

static int is_single(const core_loop *loop, const int64_t *strides)
{
    uint32_t d;

    for (d = 0; d < loop->ndim; d++)
        if (strides[d] != 0)
            return 0;
    return 1;
}

/* The elements of the dense run that an operand repeats along the last
 * dimensions; 0: it is none, or too long. */
static int64_t period_of(const core_loop *loop, const int64_t *strides,
                         uint32_t bytes)
{
    int64_t run = 1;
    uint32_t d = 0;

    for (; d < loop->ndim && strides[d] == run * (int64_t)bytes; d++)
        run *= loop->sizes[d];
    for (; d < loop->ndim; d++)
        if (strides[d] != 0)
            return 0;
    return 2 * run <= CPU_BLOCK ? run : 0;
}

static void set_operand(run *r, const cpu_elementwise *self, uint32_t k)
{
    const core_loop *loop = r->loop;
    const core_operand *operand = &loop->operands[k];
    core_dtype dtype = operand->dtype;
    core_dtype type = self->types[k] != 0 ? self->types[k] : dtype;
    uint32_t bytes = cpu_bytes_of(dtype);
    int kind;

    r->operand[k].dtype = dtype;
    r->operand[k].type = type;
    r->operand[k].bytes = bytes;
    r->operand[k].wide = cpu_bytes_of(type);
    r->operand[k].period = 0;
    r->operand[k].strides = operand->strides;
    r->operand[k].base = cpu_address(operand->memory);
    if (operand->flags & CORE_OPERAND_IMMEDIATE) {
        r->operand[k].base = (char *)&operand->immediate;
        kind = SINGLE;
    } else if (k >= r->noutputs && is_single(loop, operand->strides)) {
        kind = SINGLE;
    } else if (dtype != type) {
        kind = MOVED;
    } else if (is_dense(loop, operand->strides, bytes)) {
        kind = DENSE;
    } else if (loop->ndim == 0 || operand->strides[0] == (int64_t)bytes) {
        kind = ROWS;
    } else {
        kind = MOVED;
    }
    r->operand[k].kind = kind;
    r->operand[k].whole =
        kind == MOVED && is_dense(loop, operand->strides, bytes);
    if (kind > ROWS)
        r->all_rows = 0;
    if (kind == MOVED && dtype != type)
        r->shortest = SHORT_CONVERTED_ROW;
}

/* Tests whether the only output is dense and written with non-temporal stores:
 * it is large, and not an operand of an in-place operator, which is already in
 * the caches. */
static bool output_streams(const run *r)
{
    const char *to = r->operand[0].base;
    uint32_t k;

    if (r->count == 0 || r->noutputs != 1 || r->operand[0].kind != DENSE ||
        !cpu_writes_nontemporal(to, r->loop->numel * r->operand[0].bytes))
        return false;
    for (k = 1; k < r->count; k++)
        if (r->operand[k].base == to)
            return false;
    return true;
}

/* Short runs that are repeated, beside operands that are read in order, make no
 * difference between rows. */
static void choose_periods(run *r)
{
    bool any = false;
    uint32_t k;

    for (k = 0; k < r->count; k++) {
        int kind = r->operand[k].kind;

        if (kind == DENSE || kind == SINGLE || r->operand[k].whole)
            continue;
        if (k >= r->noutputs)
            r->operand[k].period =
                period_of(r->loop, r->operand[k].strides, r->operand[k].bytes);
        if (r->operand[k].period == 0)
            return;
        any = true;
    }
    r->periodic = any;
    for (k = 0; any && k < r->count; k++)
        if (r->operand[k].period > 0)
            r->operand[k].kind = PERIODIC;
}

/* All operands are read in order. */
static void choose_stream(run *r)
{
    uint32_t k;

    r->streams = output_streams(r);
    for (k = 1; r->streams && k < r->count; k++)
        r->streams =
            r->operand[k].kind == DENSE || r->operand[k].kind == SINGLE;
}

static core_status set_run(run *r, const core_call *call,
                           const cpu_elementwise *self, cpu_row row,
                           cpu_parameters *parameters)
{
    const core_loop *loop = call->loop;
    uint32_t k;

    r->loop = loop;
    r->row = row;
    r->parameters = parameters;
    r->count = loop->noperands;
    r->noutputs = loop->noutputs;
    r->all_rows = 1;
    r->shortest = SHORT_MOVED_ROW;
    if (loop->noperands > CPU_OPERANDS)
        return cpu_error(CORE_ERROR_INTERNAL,
                         "a loop with %u operands reached the CPU backend",
                         loop->noperands);
    for (k = 0; k < loop->noperands; k++)
        set_operand(r, self, k);
    r->periodic = false;
    if (loop->ndim > 1)
        choose_periods(r);
    choose_stream(r);
    return CORE_OK;
}

/* Rows of n elements that are all the same: one from every place `stride` bytes
 * apart. */
#define REPEAT_ROWS(BITS)                                                      \
    static void repeat_rows_##BITS(char *to, const char *from, int64_t stride, \
                                   int64_t rows, int64_t n)                    \
    {                                                                          \
        typedef uint##BITS##_t __attribute__((may_alias)) element;             \
        for (int64_t i = 0; i < rows; i++) {                                   \
            const element x = *(const element *)(from + i * stride);           \
            for (int64_t k = 0; k < n; k++)                                    \
                ((element *)to)[i * n + k] = x;                                \
        }                                                                      \
    }
REPEAT_ROWS(16)
REPEAT_ROWS(32)
#undef REPEAT_ROWS

/* Moves m elements from `index` on between an operand and a dense block of the
 * row's type, across as many rows of the loop as necessary. */
static void move(const run *r, uint32_t k, const cpu_index *start, char *block,
                 int64_t m, int out)
{
    const core_loop *loop = r->loop;
    int64_t inner = loop->ndim > 0 ? loop->sizes[0] : 1;
    int64_t stride = loop->ndim > 0 ? r->operand[k].strides[0] : 0;
    core_dtype dtype = r->operand[k].dtype, type = r->operand[k].type;
    uint32_t bytes = r->operand[k].bytes;
    /* Converted together after gathering, not row by row. */
    _Alignas(64) char raw[CPU_BLOCK_BYTES];
    char *dense = dtype == type ? block : raw;
    int64_t done = 0, n = inner - (loop->ndim > 0 ? start->at[0] : 0);
    cpu_index index = *start;

    if (n >= m || r->operand[k].whole) {
        char *at = r->operand[k].base +
                   cpu_index_offset(start, loop, r->operand[k].strides);

        if (out)
            cpu_store(dtype, at, stride, type, block, m);
        else
            cpu_load(type, block, dtype, at, stride, m);
        return;
    }
    if (out && dense != block)
        cpu_convert(dtype, dense, type, block, m);
    while (done < m) {
        char *at = r->operand[k].base +
                   cpu_index_offset(&index, loop, r->operand[k].strides);

        n = inner - index.at[0];
        if (n > m - done)
            n = m - done;
        if (!out && stride == 0 && n == inner && (bytes == 2 || bytes == 4)) {
            int64_t rows = loop->sizes[1] - index.at[1];

            rows = rows < (m - done) / n ? rows : (m - done) / n;
            (bytes == 2 ? repeat_rows_16 : repeat_rows_32)(
                dense + done * bytes, at, r->operand[k].strides[1], rows, n);
            index.at[1] += rows - 1;
            cpu_index_advance(&index, loop, n);
            done += rows * n;
            continue;
        }
        if (out)
            cpu_scatter(at, stride, dense + done * bytes, bytes, n);
        else
            cpu_gather(dense + done * bytes, at, stride, bytes, n);
        cpu_index_advance(&index, loop, n);
        done += n;
    }
    if (!out && dense != block)
        cpu_convert(type, block, dtype, dense, m);
}

/* The number of elements for the next call of the row. */
static int64_t step(const run *r, const cpu_index *index, int64_t left)
{
    int64_t rest = r->loop->ndim > 0 ? r->loop->sizes[0] - index->at[0] : 1;

    if (r->all_rows && rest >= SHORT_ROW)
        return rest < left ? rest : left;
    if (rest < left && r->loop->sizes[0] >= r->shortest)
        left = rest;
    return left < CPU_BLOCK ? left : CPU_BLOCK;
}

static void advance(const run *r, cpu_index *index, int64_t m)
{
    int64_t inner = r->loop->ndim > 0 ? r->loop->sizes[0] : 1;

    while (m > 0) {
        int64_t n = r->loop->ndim > 0 ? inner - index->at[0] : 1;

        if (n > m)
            n = m;
        cpu_index_advance(index, r->loop, n);
        m -= n;
    }
}

/* Repeats the first elements of a block up to n. */
static void repeat_run(char *block, uint32_t bytes, int64_t period, int64_t n)
{
    int64_t m;

    for (int64_t done = period; done < n; done += m) {
        m = done < n - done ? done : n - done;
        memcpy(block + done * bytes, block, (size_t)(m * bytes));
    }
}

/* Fills the blocks of operands that are the same for all steps of a range of n
 * elements. */
static void fill_blocks(const run *r, char (*blocks)[CPU_BLOCK_BYTES],
                        int64_t n)
{
    uint32_t k;

    for (k = 0; k < r->count; k++) {
        int64_t stride = 0, count = n, period;

        if (r->operand[k].kind == PERIODIC) {
            stride = r->operand[k].bytes;
            count = r->operand[k].period;
        } else if (r->operand[k].kind != SINGLE) {
            continue;
        }
        cpu_load(r->operand[k].type, blocks[k], r->operand[k].dtype,
                 r->operand[k].base, stride,
                 count < CPU_BLOCK ? count : CPU_BLOCK);
        if (stride == 0)
            continue;
        period = count;
        count += n; /* a step may begin anywhere in the run */
        repeat_run(blocks[k], r->operand[k].wide, period,
                   count < CPU_BLOCK ? count : CPU_BLOCK);
    }
}

/* Operands without rows: as many elements at a time as blocks have. */
static void run_periods(void *context, int64_t begin, int64_t end)
{
    const run *r = context;
    _Alignas(64) char blocks[CPU_OPERANDS][CPU_BLOCK_BYTES];
    char *p[CPU_OPERANDS] = {NULL};
    int64_t m;
    uint32_t k;

    fill_blocks(r, blocks, end - begin);
    for (; begin < end; begin += m) {
        m = end - begin < CPU_BLOCK ? end - begin : CPU_BLOCK;
        for (k = 0; k < r->count; k++) {
            int64_t at = r->operand[k].kind == PERIODIC
                             ? begin % r->operand[k].period
                             : 0;

            p[k] = blocks[k] + at * r->operand[k].wide;
            m = m < CPU_BLOCK - at ? m : CPU_BLOCK - at;
        }
        for (k = 0; k < r->count; k++) {
            char *at = r->operand[k].base + begin * r->operand[k].bytes;

            if (r->operand[k].kind == DENSE)
                p[k] = at;
            else if (r->operand[k].kind == MOVED && k >= r->noutputs)
                cpu_convert(r->operand[k].type, p[k], r->operand[k].dtype, at,
                            m);
        }
        r->row(p[0], p[1], p[2], m, r->parameters, p);
        for (k = 0; k < r->noutputs; k++)
            if (r->operand[k].kind == MOVED)
                cpu_convert(r->operand[k].dtype,
                            r->operand[k].base + begin * r->operand[k].bytes,
                            r->operand[k].type, p[k], m);
    }
}

static void run_range(void *context, int64_t begin, int64_t end)
{
    const run *r = context;
    _Alignas(64) char blocks[CPU_OPERANDS][CPU_BLOCK_BYTES];
    char *p[CPU_OPERANDS] = {NULL};
    cpu_index index;
    int64_t m, inner = r->loop->ndim > 0 ? r->loop->sizes[0] : 1;
    uint32_t k;

    cpu_index_set(&index, r->loop, begin);
    for (k = 0; k < r->count; k++)
        p[k] = blocks[k];
    fill_blocks(r, blocks, end - begin);
    for (; begin < end; begin += m) {
        int within;

        m = step(r, &index, end - begin);
        within = r->loop->ndim == 0 || index.at[0] + m <= inner;
        for (k = 0; k < r->count; k++) {
            if (r->operand[k].kind == DENSE) {
                p[k] = r->operand[k].base + begin * r->operand[k].bytes;
            } else if (r->operand[k].kind == ROWS && within) {
                p[k] = r->operand[k].base +
                       cpu_index_offset(&index, r->loop, r->operand[k].strides);
            } else if (r->operand[k].kind != SINGLE) {
                p[k] = blocks[k];
                if (k >= r->noutputs)
                    move(r, k, &index, blocks[k], m, 0);
            }
        }
        r->row(p[0], p[1], p[2], m, r->parameters, p);
        for (k = 0; k < r->noutputs; k++)
            if (p[k] == blocks[k])
                move(r, k, &index, blocks[k], m, 1);
        advance(r, &index, m);
    }
}

/* The row writes into a block, which is then copied with non-temporal
 * stores. */
static void run_stream(void *context, int64_t begin, int64_t end)
{
    const run *r = context;
    _Alignas(64) char blocks[CPU_OPERANDS][CPU_BLOCK_BYTES];
    char *p[CPU_OPERANDS] = {NULL};
    int64_t m;
    uint32_t k;

    for (k = 0; k < r->count; k++) {
        p[k] = blocks[k];
        if (r->operand[k].kind == SINGLE)
            cpu_load(r->operand[k].type, blocks[k], r->operand[k].dtype,
                     r->operand[k].base, 0, CPU_BLOCK);
    }
    for (; begin < end; begin += m) {
        m = end - begin < CPU_BLOCK ? end - begin : CPU_BLOCK;
        for (k = 1; k < r->count; k++)
            if (r->operand[k].kind == DENSE)
                p[k] = r->operand[k].base + begin * r->operand[k].bytes;
        r->row(p[0], p[1], p[2], m, r->parameters, p);
        cpu_copy_nontemporal(r->operand[0].base + begin * r->operand[0].bytes,
                             blocks[0], m * r->operand[0].bytes);
    }
    cpu_nontemporal_end();
}

/* --------------------------------------------------------------- tiles -- */

/* An operand that is dense along another dimension than 0 contributes one
 * element of each cache line to a row of the loop.  Tiles use up a line while
 * it is in the cache. */
static void choose_tiles(run *r)
{
    const core_loop *loop = r->loop;
    uint32_t k, d;

    r->tiled = 0;
    if (loop->ndim < 2 || loop->sizes[0] < TILE_WIDTH)
        return;
    for (k = 0; k < r->count; k++)
        for (d = 1; r->operand[k].kind == MOVED && d < loop->ndim; d++)
            if (r->operand[k].strides[d] == (int64_t)r->operand[k].bytes &&
                r->operand[k].strides[0] > 64 && loop->sizes[d] >= TILE_HEIGHT)
                r->tiled = d;
    if (r->tiled == 0)
        return;
    r->tiles_across = (loop->sizes[0] + TILE_WIDTH - 1) / TILE_WIDTH;
    r->tiles_stream = output_streams(r);
    r->tiles_down = (loop->sizes[r->tiled] + TILE_HEIGHT - 1) / TILE_HEIGHT;
}

/* The next tile of the band is below. */
static void turn_in(char *dense, const char *at, int64_t stride, uint32_t bytes,
                    int64_t width, int64_t height)
{
    cpu_prefetch_lines(at + 2 * height * bytes, stride, width, height * bytes);
    CPU_NAME(cpu_transpose_lines)
    (bytes, dense, width * bytes, at, stride, width, height);
}

/* Moves a tile of width x height elements between an operand and a dense block
 * of the row's type. */
static void move_tile(const run *r, uint32_t k, int64_t offset, char *block,
                      int64_t width, int64_t height, int out)
{
    _Alignas(64) char raw[CPU_BLOCK_BYTES];
    core_dtype dtype = r->operand[k].dtype, type = r->operand[k].type;
    uint32_t bytes = r->operand[k].bytes;
    int64_t y, stride = r->operand[k].strides[0];
    int64_t down = r->operand[k].strides[r->tiled];
    char *at = r->operand[k].base + offset;
    char *dense = dtype == type ? block : raw;

    if (out && dense != block)
        cpu_convert(dtype, dense, type, block, width * height);
    if (down == (int64_t)bytes && out)
        CPU_NAME(cpu_transpose_lines)
    (bytes, at, stride, dense, width * bytes, height, width);
    else if (down == (int64_t)bytes)
        turn_in(dense, at, stride, bytes, width, height);
    for (y = 0; y < height && down != (int64_t)bytes; y++) {
        char *line = dense + y * width * bytes;

        if (out && r->tiles_stream)
            cpu_copy_nontemporal(at + y * down, line, width * bytes);
        else if (out)
            cpu_scatter(at + y * down, stride, line, bytes, width);
        else
            cpu_gather(line, at + y * down, stride, bytes, width);
    }
    if (!out && dense != block)
        cpu_convert(type, block, dtype, dense, width * height);
}

static void run_tile(const run *r, int64_t tile,
                     char (*blocks)[CPU_BLOCK_BYTES])
{
    const core_loop *loop = r->loop;
    int64_t per_band = r->tiles_across * TILE_BAND, x, y, width, height;
    int64_t rest = tile / (r->tiles_across * r->tiles_down);
    int64_t within = tile % (r->tiles_across * r->tiles_down);
    int64_t first = within / per_band * TILE_BAND;
    int64_t band = r->tiles_down - first;
    char *p[CPU_OPERANDS] = {NULL};
    cpu_index index = {{0}};
    uint32_t k, d;

    band = band < TILE_BAND ? band : TILE_BAND;
    y = (first + within % per_band % band) * TILE_HEIGHT;
    x = within % per_band / band * TILE_WIDTH;
    width = loop->sizes[0] - x < TILE_WIDTH ? loop->sizes[0] - x : TILE_WIDTH;
    height = loop->sizes[r->tiled] - y;
    height = height < TILE_HEIGHT ? height : TILE_HEIGHT;
    for (d = 1; d < loop->ndim; d++)
        if (d != r->tiled) {
            index.at[d] = rest % loop->sizes[d];
            rest /= loop->sizes[d];
        }
    index.at[0] = x;
    index.at[r->tiled] = y;
    for (k = 0; k < r->count; k++) {
        p[k] = blocks[k];
        if (k >= r->noutputs && r->operand[k].kind != SINGLE)
            move_tile(r, k,
                      cpu_index_offset(&index, loop, r->operand[k].strides),
                      blocks[k], width, height, 0);
    }
    r->row(p[0], p[1], p[2], width * height, r->parameters, p);
    for (k = 0; k < r->noutputs; k++)
        move_tile(r, k, cpu_index_offset(&index, loop, r->operand[k].strides),
                  blocks[k], width, height, 1);
}

static void run_tiles(void *context, int64_t begin, int64_t end)
{
    const run *r = context;
    _Alignas(64) char blocks[CPU_OPERANDS][CPU_BLOCK_BYTES];
    int64_t tile;
    uint32_t k;

    for (k = 0; k < r->count; k++)
        if (r->operand[k].kind == SINGLE)
            cpu_load(r->operand[k].type, blocks[k], r->operand[k].dtype,
                     r->operand[k].base, 0, CPU_BLOCK);
    for (tile = begin; tile < end; tile++)
        run_tile(r, tile, blocks);
    if (r->tiles_stream)
        cpu_nontemporal_end();
}

/* ------------------------------------------------------------- kernels -- */

core_status cpu_loop_run(const core_call *call, const cpu_elementwise *self,
                         cpu_row row, cpu_parameters *parameters)
{
    run r;
    core_status status = set_run(&r, call, self, row, parameters);

    if (status != CORE_OK)
        return status;
    choose_tiles(&r);
    if (r.tiled != 0) {
        int64_t outer =
            r.loop->numel / r.loop->sizes[0] / r.loop->sizes[r.tiled];
        int64_t grain = self->grain / CPU_BLOCK;

        cpu_parallel_for(outer * r.tiles_across * r.tiles_down,
                         grain < 1 ? 1 : grain, run_tiles, &r);
        return CORE_OK;
    }
    cpu_parallel_for(call->loop->numel, self->grain,
                     r.periodic  ? run_periods
                     : r.streams ? run_stream
                                 : run_range,
                     &r);
    return CORE_OK;
}

static core_status divided_by_zero(const core_call *call)
{
    core_string name = call->host->operator_name(call->op);

    return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                     "%.*s: an integer was divided by zero: argument 2, the "
                     "divisor, has a 0",
                     (int)name.size, name.data);
}

/* The mode is the last text among the arguments. */
static core_status unknown_mode(const cpu_elementwise *self,
                                const core_call *call, const core_value *args,
                                uint32_t nargs)
{
    core_string name = call->host->operator_name(call->op);
    core_string text = core_sdk_string("");
    const core_value *mode = args + nargs - 1;

    while (mode > args && mode->tag != CORE_VALUE_STRING)
        mode--;
    if (mode->tag == CORE_VALUE_STRING)
        text = (core_string){mode->u.string, mode->count};
    return cpu_error(
        CORE_ERROR_UNSUPPORTED, "%.*s: the mode is '%.*s'; it must be %s",
        (int)name.size, name.data, (int)text.size, text.data,
        self->choice == CPU_CHOICE_TANH ? "'none' or 'tanh'"
                                        : "'trunc', 'floor' or absent");
}

/* Elements as near to a bound as the dtype allows count as equal to it. */
static double rounded(const core_value *value, core_dtype dtype, double exact)
{
    union {
        uint32_t bits;
        float number;
    } wide;

    if (dtype == CORE_F16)
        return math_f32_of_f16((uint16_t)cpu_scalar_bits(value, dtype));
    if (dtype != CORE_BF16)
        return exact;
    wide.bits = (uint32_t)(uint16_t)cpu_scalar_bits(value, dtype) << 16;
    return wide.number;
}

/* The nearest finite half-precision number. */
static double within(core_dtype dtype, double x)
{
    double largest = dtype == CORE_F16    ? 65504
                     : dtype == CORE_BF16 ? 0x1.fep127
                                          : INFINITY;

    return x > largest ? largest : x < -largest ? -largest : x;
}

core_status cpu_loop_general(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    const cpu_elementwise *self = call->user;
    cpu_parameters parameters;
    cpu_row row = self->row;
    core_status status;
    uint32_t k;

    (void)results;
    (void)nresults;
    parameters.failure = 0;
    for (k = 0; k < self->nparameters; k++) {
        const double otherwise = cpu_elementwise_constants[self->otherwise[k]];

        parameters.d[k] = otherwise;
        parameters.i[k] = math_i64_nearest(otherwise);
        if (self->argument[k] < nargs) {
            const core_value *given = &args[self->argument[k]];

            parameters.d[k] = core_sdk_double(given, otherwise);
            parameters.i[k] = core_sdk_int(given, parameters.i[k]);
        }
    }
    if (self->choice != CPU_CHOICE_NONE) {
        int variant = cpu_variant_select(self, call, args, nargs);

        if (variant < 0)
            return unknown_mode(self, call, args, nargs);
        row = self->rows[variant];
        if (self->choice == CPU_CHOICE_BITS)
            parameters.bits = cpu_scalar_bits(&args[self->argument[0]],
                                              call->loop->operands[0].dtype);
        if (self->choice == CPU_CHOICE_BOUND && self->argument[0] < nargs)
            parameters.d[0] =
                rounded(&args[self->argument[0]], call->loop->operands[1].dtype,
                        parameters.d[0]);
        if (self->choice == CPU_CHOICE_FINITE)
            for (int k = 1; k < 3; k++)
                parameters.d[k] =
                    within(call->loop->operands[0].dtype, parameters.d[k]);
    }
    status = cpu_loop_run(call, self, row, &parameters);
    if (status == CORE_OK &&
        __atomic_load_n(&parameters.failure, __ATOMIC_RELAXED))
        status = divided_by_zero(call);
    return status;
}

/* Short dense operands go to the row directly, with few instructions. */
#define SHORT_AND_DENSE(loop, self) \
    (((loop)->flags & CORE_LOOP_CONTIGUOUS) && (loop)->numel <= (self)->grain)

core_status cpu_loop_plain_1(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    const cpu_elementwise *self = call->user;
    const core_loop *loop = call->loop;
    const core_operand *operand = loop->operands;

    if (!SHORT_AND_DENSE(loop, self) ||
        (operand[1].flags & CORE_OPERAND_IMMEDIATE))
        return cpu_loop_general(call, args, nargs, results, nresults);
    return self->row(cpu_address(operand[0].memory),
                     cpu_address(operand[1].memory), NULL, loop->numel, NULL,
                     NULL);
}

/* An element with a number; anything else is general. */
static core_status one_with_number(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    const cpu_elementwise *self = call->user;
    const core_loop *loop = call->loop;
    const core_operand *operand = loop->operands;
    const char *a = cpu_address(operand[1].memory);
    const char *b = cpu_address(operand[2].memory);

    if (loop->numel != 1)
        return cpu_loop_general(call, args, nargs, results, nresults);
    if (operand[1].flags & CORE_OPERAND_IMMEDIATE)
        a = (const char *)&operand[1].immediate;
    if (operand[2].flags & CORE_OPERAND_IMMEDIATE)
        b = (const char *)&operand[2].immediate;
    return self->row(cpu_address(operand[0].memory), a, b, 1, NULL, NULL);
}

static inline core_status plain_2(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    const cpu_elementwise *self = call->user;
    const core_loop *loop = call->loop;
    const core_operand *operand = loop->operands;

    if (!SHORT_AND_DENSE(loop, self))
        return cpu_loop_general(call, args, nargs, results, nresults);
    if ((operand[1].flags | operand[2].flags) & CORE_OPERAND_IMMEDIATE)
        return one_with_number(call, args, nargs, results, nresults);
    return self->row(cpu_address(operand[0].memory),
                     cpu_address(operand[1].memory),
                     cpu_address(operand[2].memory), loop->numel, NULL, NULL);
}

core_status cpu_loop_plain_2(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    return plain_2(call, args, nargs, results, nresults);
}

core_status cpu_loop_alpha(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    if (nargs > 2 && (args[2].tag != CORE_VALUE_INT || args[2].u.i != 1))
        return cpu_loop_general(call, args, nargs, results, nresults);
    return plain_2(call, args, nargs, results, nresults);
}

core_status cpu_loop_plain(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    const cpu_elementwise *self = call->user;
    const core_loop *loop = call->loop;
    const core_operand *operand = loop->operands;
    char *p[CPU_OPERANDS] = {NULL};
    uint32_t k;

    if (!SHORT_AND_DENSE(loop, self) || loop->noperands > CPU_OPERANDS)
        return cpu_loop_general(call, args, nargs, results, nresults);
    for (k = 0; k < loop->noperands; k++) {
        if (operand[k].flags & CORE_OPERAND_IMMEDIATE)
            return cpu_loop_general(call, args, nargs, results, nresults);
        p[k] = cpu_address(operand[k].memory);
    }
    return self->row(p[0], p[1], p[2], loop->numel, NULL, p);
}

extern const cpu_row CPU_NAME(cpu_elementwise_rows)[];

const cpu_loop_functions CPU_NAME(cpu_loop_functions) = {
    {cpu_loop_general, cpu_loop_plain, cpu_loop_plain_1, cpu_loop_plain_2,
     cpu_loop_alpha},
    CPU_NAME(cpu_elementwise_rows)};
