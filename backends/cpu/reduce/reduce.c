/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* reduce.c: the driver of reductions, and their kernels.
 *
 * A reduction is divided into units: one output each if rows are reduced, some
 * if the rows are short, a block of adjacent outputs if columns are.  If that
 * leaves few units of many elements, the reduced elements are divided into
 * chunks too, whose states are merged in order at the end.
 *
 * Dimensions of size 1 make no difference, to the bits of results either: a
 * loop that has some is replaced by one without them. */

#include "reduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <libcore/sdk.h>

#include "runtime/thread_pool.h"

enum {
    SHORT_ROW = 32, /* shorter ones are reduced as columns */
    FEW_UNITS = 64,
    CHUNK = 65536, /* elements per chunk of the reduced ones */
    WORK = 32768,  /* elements that are worth a thread */
    NEAR = 1 << 20 /* bytes of input in the near caches */
};

enum { OPERANDS = 3 }; /* at most two outputs, and the input */

/* A loop without dimensions of size 1. */
typedef struct simple_loop {
    core_loop loop;
    core_operand operands[OPERANDS];
    int64_t sizes[CORE_MAX_NDIM];
    int64_t strides[OPERANDS][CORE_MAX_NDIM];
} simple_loop;

typedef struct dims {
    uint32_t count;
    uint32_t dim[CORE_MAX_NDIM];
    int64_t numel;
} dims;

typedef struct plan {
    const core_loop *loop;
    const cpu_reducer *reducer;
    cpu_reduction reduction;
    core_dtype type; /* of the reducer's elements */
    const core_operand *input;
    char *base;
    uint32_t bytes;
    dims kept, reduced; /* kept: without the column's dimension */
    int by_column;
    int by_runs;     /* several short rows at once, along the column's
                      * dimension */
    uint32_t column; /* which dimension */
    int64_t columns; /* its size; 1 by single rows */
    int64_t width;   /* columns of a block */
    int64_t blocks;  /* of columns */
    int64_t units, chunks, chunk;
    int dense;         /* the reduced elements are one run of the reducer's
                        * type */
    int near;          /* columns are in the near caches */
    cpu_word *partial; /* NULL where chunks == 1 */
} plan;

static int has_single(const core_loop *loop)
{
    for (uint32_t d = 0; d < loop->ndim; d++)
        if (loop->sizes[d] == 1)
            return 1;
    return 0;
}

/* Whether dimension d continues the last one, so that they can be one. */
static int continues(const simple_loop *s, const core_loop *loop, uint32_t d,
                     uint32_t last)
{
    if ((loop->reduced >> d & 1) != (s->loop.reduced >> last & 1))
        return 0;
    for (uint32_t k = 0; k < loop->noperands; k++)
        if (loop->operands[k].strides[d] !=
            s->strides[k][last] * s->sizes[last])
            return 0;
    return 1;
}

static void simplify(const core_loop *loop, simple_loop *s)
{
    uint32_t n = 0;

    s->loop = *loop;
    s->loop.reduced = 0;
    for (uint32_t d = 0; d < loop->ndim; d++) {
        if (loop->sizes[d] == 1)
            continue;
        if (n > 0 && continues(s, loop, d, n - 1)) {
            s->sizes[n - 1] *= loop->sizes[d];
            continue;
        }
        s->sizes[n] = loop->sizes[d];
        s->loop.reduced |= (loop->reduced >> d & 1) << n;
        for (uint32_t k = 0; k < loop->noperands; k++)
            s->strides[k][n] = loop->operands[k].strides[d];
        n++;
    }
    for (uint32_t k = 0; k < loop->noperands; k++) {
        s->operands[k] = loop->operands[k];
        s->operands[k].strides = s->strides[k];
    }
    s->loop.ndim = n;
    s->loop.sizes = s->sizes;
    s->loop.operands = s->operands;
}

static void add_dim(dims *list, const core_loop *loop, uint32_t d)
{
    list->dim[list->count++] = d;
    list->numel *= loop->sizes[d];
}

static int64_t offset_of(const dims *list, const core_loop *loop,
                         const int64_t *strides, int64_t linear)
{
    int64_t offset = 0;
    uint32_t k;

    for (k = 0; k < list->count; k++) {
        uint32_t d = list->dim[k];

        if (k + 1 == list->count) {
            offset += linear * strides[d];
        } else {
            offset += linear % loop->sizes[d] * strides[d];
            linear /= loop->sizes[d];
        }
    }
    return offset;
}

static void make_plan(plan *p)
{
    const core_loop *loop = p->loop;
    int64_t width;
    uint32_t d, first = loop->ndim;

    p->kept.count = p->reduced.count = 0;
    p->kept.numel = p->reduced.numel = 1;
    for (d = loop->ndim; d-- > 0;)
        if (!(loop->reduced >> d & 1))
            first = d;
    p->by_column =
        first < loop->ndim && (first == 0 || loop->sizes[0] < SHORT_ROW);
    for (d = 0; d < loop->ndim; d++)
        if (loop->reduced >> d & 1)
            add_dim(&p->reduced, loop, d);
    p->by_runs = p->reducer->runs != NULL && first < loop->ndim &&
                 !p->by_column && p->reduced.numel >= SHORT_ROW &&
                 p->reduced.numel <= CPU_BLOCK;
    for (d = 0; d < loop->ndim; d++)
        if (!(loop->reduced >> d & 1) &&
            !(d == first && (p->by_column || p->by_runs)))
            add_dim(&p->kept, loop, d);
    p->column = first;
    p->columns = p->by_column || p->by_runs ? loop->sizes[first] : 1;
    p->width = p->by_runs ? CPU_REDUCE_RUNS : CPU_BLOCK;
    p->blocks = (p->columns + p->width - 1) / p->width;
    p->units = p->kept.numel * p->blocks;
    p->dense = p->reduced.count > 0 && p->input->dtype == p->type &&
               p->input->strides[p->reduced.dim[0]] == (int64_t)p->bytes;
    p->near = p->kept.numel * p->columns * p->reduced.numel <= NEAR / p->bytes;
    p->dense = p->dense && p->reduced.count == 1;
    p->reduction.count = p->reduced.numel;
    width = p->columns < p->width ? p->columns : p->width;
    p->chunks = 1;
    p->chunk = p->reduced.numel;
    if (p->units < FEW_UNITS && p->reduced.numel > 2 * CHUNK / width) {
        /* Whole groups of rows, whole blocks. */
        p->chunk = (CHUNK / width + CPU_BLOCK - 1) / CPU_BLOCK * CPU_BLOCK;
        p->chunks = (p->reduced.numel + p->chunk - 1) / p->chunk;
    }
}

/* --------------------------------------------------------------- input -- */

/* m <= CPU_BLOCK of the reduced elements, from `linear` on, as a dense run. */
static const void *load_run(const plan *p, const char *from, int64_t linear,
                            int64_t m, char *block)
{
    const int64_t *strides = p->input->strides;
    uint32_t d = p->reduced.count > 0 ? p->reduced.dim[0] : 0;
    int64_t row = p->reduced.count > 0 ? p->loop->sizes[d] : 1;
    int64_t stride = p->reduced.count > 0 ? strides[d] : 0;
    _Alignas(64) char raw[CPU_BLOCK_BYTES];
    const char *at = from + offset_of(&p->reduced, p->loop, strides, linear);
    int64_t n = row - linear % row, done = 0;
    int same = p->input->dtype == p->type;
    char *dense = same ? block : raw;

    if (n >= m) {
        if (same && stride == (int64_t)p->bytes)
            return at;
        cpu_load(p->type, block, p->input->dtype, at, stride, m);
        return block;
    }
    while (done < m) {
        at = from + offset_of(&p->reduced, p->loop, strides, linear + done);
        n = row - (linear + done) % row;
        if (n > m - done)
            n = m - done;
        cpu_gather(dense + done * p->bytes, at, stride, p->bytes, n);
        done += n;
    }
    if (!same)
        cpu_convert(p->type, block, p->input->dtype, raw, m);
    return block;
}

/* The whole blocks of a dense run, some at once; returns where they end. */
static int64_t reduce_blocks(const plan *p, const char *from, int64_t begin,
                             int64_t end, cpu_states *s)
{
    const void *blocks[CPU_REDUCE_RUNS];

    while (end - begin >= CPU_BLOCK) {
        int n = 0;

        for (; n < CPU_REDUCE_RUNS && end - begin >= CPU_BLOCK; n++) {
            blocks[n] = from + begin * p->bytes;
            begin += CPU_BLOCK;
        }
        p->reducer->runs(s, blocks, n, CPU_BLOCK, 0);
    }
    return begin;
}

static void reduce_run(const plan *p, const char *from, int64_t begin,
                       int64_t end, cpu_states *s)
{
    _Alignas(64) char block[CPU_BLOCK_BYTES];
    int64_t k, m;

    if (p->dense && p->reducer->runs != NULL)
        begin = reduce_blocks(p, from, begin, end, s);
    for (k = begin; k < end; k += m) {
        const char *x;

        m = end - k < CPU_BLOCK ? end - k : CPU_BLOCK;
        x = p->dense ? from + k * p->bytes : load_run(p, from, k, m, block);
        p->reducer->run(s, x, m, k, &p->reduction);
    }
}

/* Rows of one run each, from the first to the last of a unit. */
static void reduce_runs(const plan *p, const char *from, int64_t rows,
                        cpu_states *s)
{
    _Alignas(64) char blocks[CPU_REDUCE_RUNS][CPU_BLOCK * sizeof(float)];
    const void *runs[CPU_REDUCE_RUNS];
    int64_t n = p->reduced.numel, stride = p->input->strides[p->column];

    for (int64_t r = 0; r < rows; r++) {
        const char *at = from + r * stride;

        runs[r] = p->dense ? at : load_run(p, at, 0, n, blocks[r]);
    }
    p->reducer->runs(s, runs, (int)rows, n, 1);
}

/* The offset of a reduced element. */
static inline int64_t reduced_at(const plan *p, int64_t linear)
{
    if (p->reduced.count == 1)
        return linear * p->input->strides[p->reduced.dim[0]];
    return offset_of(&p->reduced, p->loop, p->input->strides, linear);
}

/* Pieces of rows are too short for hardware prefetching. */
static void prefetch_rows(const plan *p, const char *from, int64_t columns,
                          int64_t begin, int64_t end)
{
    int64_t k, at;

    if (end > begin + CPU_REDUCE_ROWS)
        end = begin + CPU_REDUCE_ROWS;
    for (k = begin; k < end; k++) {
        const char *row = from + reduced_at(p, k);

        for (at = 0; at < columns * p->bytes; at += 64)
            __builtin_prefetch(row + at);
    }
}

static void reduce_columns(const plan *p, const char *from, int64_t columns,
                           int64_t begin, int64_t end, cpu_states *s)
{
    _Alignas(64) char blocks[CPU_REDUCE_ROWS][CPU_BLOCK_BYTES];
    const void *rows[CPU_REDUCE_ROWS];
    const int64_t *strides = p->input->strides;
    int64_t k, stride = strides[p->column];
    int dense = p->input->dtype == p->type && stride == (int64_t)p->bytes;
    int r, n;

    for (k = begin; k < end; k += n) {
        n = end - k < CPU_REDUCE_ROWS ? (int)(end - k) : CPU_REDUCE_ROWS;
        if (dense && !p->near)
            prefetch_rows(p, from, columns, k + n, end);
        for (r = 0; r < n; r++) {
            const char *at = from + reduced_at(p, k + r);

            rows[r] = dense ? at : blocks[r];
            if (!dense)
                cpu_load(p->type, blocks[r], p->input->dtype, at, stride,
                         columns);
        }
        p->reducer->rows(s, rows, n, columns, k, &p->reduction);
    }
}

/* --------------------------------------------------------------- units -- */

static void first_states(const plan *p, cpu_states *s, int64_t n)
{
    uint32_t w;
    int64_t k;

    for (w = 0; w < p->reducer->words; w++)
        for (k = 0; k < n; k++)
            s->w[w][k] = p->reducer->first[w];
}

/* Usually there is only one, and no division. */
static int64_t block_of(const plan *p, int64_t unit)
{
    return p->blocks == 1 ? 0 : unit % p->blocks;
}

static int64_t columns_of(const plan *p, int64_t unit)
{
    int64_t begin = block_of(p, unit) * p->width;

    return p->columns - begin < p->width ? p->columns - begin : p->width;
}

static int64_t unit_offset(const plan *p, const int64_t *strides, int64_t unit)
{
    int64_t offset = offset_of(&p->kept, p->loop, strides,
                               p->blocks == 1 ? unit : unit / p->blocks);

    if (p->by_column || p->by_runs)
        offset += block_of(p, unit) * p->width * strides[p->column];
    return offset;
}

static void finish_unit(const plan *p, int64_t unit, cpu_states *s)
{
    int64_t n = columns_of(p, unit);
    uint32_t k;

    if (p->reducer->finish != NULL)
        p->reducer->finish(s, n, &p->reduction);
    for (k = 0; k < p->loop->noutputs; k++) {
        const core_operand *out = &p->loop->operands[k];
        char *to = (char *)cpu_address(out->memory) +
                   unit_offset(p, out->strides, unit);

        cpu_store(out->dtype, to,
                  p->by_column || p->by_runs ? out->strides[p->column] : 0,
                  p->reducer->result[k], s->w[k], n);
    }
}

static cpu_word *partial_of(const plan *p, int64_t unit, int64_t chunk)
{
    int64_t width = p->columns < p->width ? p->columns : p->width;

    return p->partial + (unit * p->chunks + chunk) * width * CPU_WORDS;
}

static void reduce_task(void *context, int64_t begin, int64_t end)
{
    const plan *p = context;
    cpu_states s;
    int64_t item;

    for (item = begin; item < end; item++) {
        int64_t unit = p->chunks == 1 ? item : item / p->chunks;
        int64_t chunk = item - unit * p->chunks;
        int64_t from = chunk * p->chunk, to = from + p->chunk;
        int64_t n = columns_of(p, unit);
        const char *at = p->base + unit_offset(p, p->input->strides, unit);
        uint32_t w;

        if (to > p->reduced.numel)
            to = p->reduced.numel;
        first_states(p, &s, n);
        if (p->by_column)
            reduce_columns(p, at, n, from, to, &s);
        else if (p->by_runs)
            reduce_runs(p, at, n, &s);
        else
            reduce_run(p, at, from, to, &s);
        if (p->partial == NULL) {
            finish_unit(p, unit, &s);
            continue;
        }
        for (w = 0; w < p->reducer->words; w++)
            memcpy(partial_of(p, unit, chunk) + w * n, s.w[w],
                   (size_t)n * sizeof(cpu_word));
    }
}

static void merge_partials(const plan *p)
{
    cpu_states s, next;
    int64_t unit, chunk;
    uint32_t w;

    for (unit = 0; unit < p->units; unit++) {
        int64_t n = columns_of(p, unit);

        first_states(p, &s, n);
        for (chunk = 0; chunk < p->chunks; chunk++) {
            for (w = 0; w < p->reducer->words; w++)
                memcpy(next.w[w], partial_of(p, unit, chunk) + w * n,
                       (size_t)n * sizeof(cpu_word));
            p->reducer->merge(&s, &next, n);
        }
        finish_unit(p, unit, &s);
    }
}

static core_status run_plan(plan *p)
{
    int64_t work = p->columns < p->width ? p->columns : p->width;
    int64_t grain;

    if (p->chunks > 1) {
        p->partial = malloc((size_t)(p->units * p->chunks * work) * CPU_WORDS *
                            sizeof(cpu_word));
        if (p->partial == NULL)
            return cpu_error(CORE_ERROR_OUT_OF_MEMORY,
                             "no memory for a reduction's partial results");
    }
    work *= p->chunk > 0 ? p->chunk : 1;
    grain = work >= WORK ? 1 : WORK / work;
    cpu_parallel_for(p->units * p->chunks, grain, reduce_task, p);
    if (p->partial != NULL)
        merge_partials(p);
    free(p->partial);
    return CORE_OK;
}

/* ------------------------------------------------------------- kernels -- */

/* The accumulation type is that of the output, or that of the input. */
enum { BY_INPUT, BY_OUTPUT };

typedef struct operation {
    const cpu_reducers *reducers;
    int by;
    int argument;         /* of the number, or -1 */
    double default_value; /* where that is NONE */
} operation;

static const cpu_reducers *norm_of(double order)
{
    if (order == 2)
        return &CPU_NAME(cpu_reduce_norm_2);
    if (order == 1)
        return &CPU_NAME(cpu_reduce_norm_1);
    if (order == 0)
        return &CPU_NAME(cpu_reduce_norm_0);
    if (order == INFINITY)
        return &CPU_NAME(cpu_reduce_norm_most);
    if (order == -INFINITY)
        return &CPU_NAME(cpu_reduce_norm_least);
    return &CPU_NAME(cpu_reduce_norm_p);
}

static core_status reduce_launch(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    const operation *self = call->user;
    const core_loop *loop = call->loop;
    const cpu_reducers *reducers = self->reducers;
    core_dtype dtype;
    plan p = {.loop = loop, .input = &loop->operands[loop->noutputs]};
    simple_loop simple;

    (void)results;
    (void)nresults;
    if (has_single(loop) && loop->noperands <= OPERANDS) {
        simplify(loop, &simple);
        p.loop = &simple.loop;
        p.input = &simple.operands[loop->noutputs];
    }
    p.reduction.number = self->default_value;
    if (self->argument >= 0 && (uint32_t)self->argument < nargs)
        p.reduction.number =
            core_sdk_double(&args[self->argument], self->default_value);
    if (reducers == NULL)
        reducers = norm_of(p.reduction.number);
    dtype = self->by == BY_OUTPUT ? loop->operands[0].dtype : p.input->dtype;
    p.type = dtype == CORE_F64    ? CORE_F64
             : dtype <= CORE_BF16 ? CORE_F32
                                  : CORE_I64;
    p.reducer = p.type == CORE_F32   ? reducers->f32
                : p.type == CORE_F64 ? reducers->f64
                                     : reducers->i64;
    if (p.type == CORE_F32 && p.input->dtype == CORE_BF16 &&
        reducers->bf16 != NULL) {
        p.type = CORE_BF16;
        p.reducer = reducers->bf16;
    }
    if (p.reducer == NULL)
        return cpu_error(
            CORE_ERROR_UNSUPPORTED,
            "the CPU backend does not support this reduction of integers");
    p.bytes = cpu_bytes_of(p.input->dtype);
    p.base = cpu_address(p.input->memory);
    if (p.input->flags & CORE_OPERAND_IMMEDIATE)
        p.base = (char *)&p.input->immediate;
    make_plan(&p);
    return run_plan(&p);
}

#define REDUCERS(name) &CPU_NAME(cpu_reduce_##name)

static const operation op_sum = {REDUCERS(sum), BY_OUTPUT, -1, 0};
static const operation op_nansum = {REDUCERS(nansum), BY_OUTPUT, -1, 0};
static const operation op_mean = {REDUCERS(mean), BY_OUTPUT, -1, 0};
static const operation op_prod = {REDUCERS(prod), BY_OUTPUT, -1, 0};
static const operation op_amax = {REDUCERS(amax), BY_INPUT, -1, 0};
static const operation op_amin = {REDUCERS(amin), BY_INPUT, -1, 0};
static const operation op_any = {REDUCERS(any), BY_INPUT, -1, 0};
static const operation op_all = {REDUCERS(all), BY_INPUT, -1, 0};
static const operation op_count = {REDUCERS(count_nonzero), BY_INPUT, -1, 0};
static const operation op_norm = {NULL, BY_OUTPUT, 1, 2};
static const operation op_logsumexp = {REDUCERS(logsumexp), BY_OUTPUT, -1, 0};
static const operation op_var = {REDUCERS(var), BY_OUTPUT, 2, 1};
static const operation op_std = {REDUCERS(std), BY_OUTPUT, 2, 1};
static const operation op_max = {REDUCERS(max_index), BY_INPUT, -1, 0};
static const operation op_min = {REDUCERS(min_index), BY_INPUT, -1, 0};
static const operation op_argmax = {REDUCERS(argmax), BY_INPUT, -1, 0};
static const operation op_argmin = {REDUCERS(argmin), BY_INPUT, -1, 0};

/* The core has checked and chosen the dtypes; every pair that it passes is
 * supported. */
#define KERNEL(name, operation)                         \
    {                                                   \
        name, reduce_launch, (void *)&operation, {0}, 0 \
    }

static const cpu_kernel kernels[] = {
    KERNEL("sum", op_sum),
    KERNEL("sum.dim_IntList", op_sum),
    KERNEL("nansum", op_nansum),
    KERNEL("mean", op_mean),
    KERNEL("mean.dim", op_mean),
    KERNEL("prod", op_prod),
    KERNEL("prod.dim_int", op_prod),
    KERNEL("amax", op_amax),
    KERNEL("amin", op_amin),
    KERNEL("any", op_any),
    KERNEL("any.dim", op_any),
    KERNEL("all", op_all),
    KERNEL("all.dim", op_all),
    KERNEL("count_nonzero", op_count),
    KERNEL("count_nonzero.dim_IntList", op_count),
    KERNEL("linalg_vector_norm", op_norm),
    KERNEL("logsumexp", op_logsumexp),
    KERNEL("var.correction", op_var),
    KERNEL("std.correction", op_std),
    KERNEL("max", op_amax),
    KERNEL("min", op_amin),
    KERNEL("max.dim", op_max),
    KERNEL("min.dim", op_min),
    KERNEL("argmax", op_argmax),
    KERNEL("argmin", op_argmin),
};

extern const cpu_kernel_table CPU_NAME(cpu_reduce_kernels);
const cpu_kernel_table CPU_NAME(cpu_reduce_kernels) = {
    kernels, sizeof(kernels) / sizeof(kernels[0])};
