/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* reduce.c: the driver of reductions, and their kernels.
 *
 * A reduction is divided into units: one output each if rows are reduced, a
 * block of adjacent outputs if columns are.  If that leaves few units of
 * many elements, the reduced elements are divided into chunks too, whose
 * states are merged in order at the end. */

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
    AHEAD = 16384, /* bytes */
    FAR = 4 << 20  /* bytes of input that exceed the near caches */
};

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
    uint32_t column; /* which dimension */
    int64_t columns; /* its size; 1 by rows */
    int64_t blocks;  /* of columns */
    int64_t units, chunks, chunk;
    int dense;         /* the reduced elements are one run of the reducer's
                        * type */
    int far;           /* rows are dense, and come from memory */
    cpu_word *partial; /* NULL where chunks == 1 */
} plan;

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
    for (d = 0; d < loop->ndim; d++) {
        if (loop->reduced >> d & 1)
            add_dim(&p->reduced, loop, d);
        else if (!p->by_column || d != first)
            add_dim(&p->kept, loop, d);
    }
    p->column = first;
    p->columns = p->by_column ? loop->sizes[first] : 1;
    p->blocks = (p->columns + CPU_BLOCK - 1) / CPU_BLOCK;
    p->units = p->kept.numel * p->blocks;
    p->dense = p->reduced.count > 0 && p->input->dtype == p->type &&
               p->input->strides[p->reduced.dim[0]] == (int64_t)p->bytes;
    p->far = p->dense && p->kept.numel * p->reduced.numel > FAR / p->bytes;
    p->dense = p->dense && p->reduced.count == 1;
    p->reduction.count = p->reduced.numel;
    width = p->columns < CPU_BLOCK ? p->columns : CPU_BLOCK;
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
    char *dense = p->input->dtype == p->type ? block : raw;

    if (n >= m) {
        if (p->input->dtype == p->type && stride == (int64_t)p->bytes)
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
    if (dense != block)
        cpu_convert(p->type, block, p->input->dtype, dense, m);
    return block;
}

/* Prefetches what is combined AHEAD bytes later.  A run ends with a chain of
 * operations, past which the processor sees no further than the next one. */
static void prefetch_far(const char *x, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(x + AHEAD + at);
}

static void reduce_run(const plan *p, const char *from, int64_t begin,
                       int64_t end, cpu_states *s)
{
    _Alignas(64) char block[CPU_BLOCK_BYTES];
    int64_t k, m;

    for (k = begin; k < end; k += m) {
        const char *x;

        m = end - k < CPU_BLOCK ? end - k : CPU_BLOCK;
        x = p->dense ? from + k * p->bytes : load_run(p, from, k, m, block);
        if (p->far)
            prefetch_far(x, m * p->bytes);
        p->reducer->run(s, x, m, k, &p->reduction);
    }
}

/* Pieces of rows are too short for hardware prefetching. */
static void prefetch_rows(const plan *p, const char *from, int64_t columns,
                          int64_t begin, int64_t end)
{
    int64_t k, at;

    if (end > begin + CPU_REDUCE_ROWS)
        end = begin + CPU_REDUCE_ROWS;
    for (k = begin; k < end; k++) {
        const char *row =
            from + offset_of(&p->reduced, p->loop, p->input->strides, k);

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
        if (dense)
            prefetch_rows(p, from, columns, k + n, end);
        for (r = 0; r < n; r++) {
            const char *at =
                from + offset_of(&p->reduced, p->loop, strides, k + r);

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
    int64_t begin = block_of(p, unit) * CPU_BLOCK;

    return p->columns - begin < CPU_BLOCK ? p->columns - begin : CPU_BLOCK;
}

static int64_t unit_offset(const plan *p, const int64_t *strides, int64_t unit)
{
    int64_t offset = offset_of(&p->kept, p->loop, strides,
                               p->blocks == 1 ? unit : unit / p->blocks);

    if (p->by_column)
        offset += block_of(p, unit) * CPU_BLOCK * strides[p->column];
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

        cpu_store(out->dtype, to, p->by_column ? out->strides[p->column] : 0,
                  p->reducer->result[k], s->w[k], n);
    }
}

static cpu_word *partial_of(const plan *p, int64_t unit, int64_t chunk)
{
    int64_t width = p->columns < CPU_BLOCK ? p->columns : CPU_BLOCK;

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
    int64_t work = p->columns < CPU_BLOCK ? p->columns : CPU_BLOCK;
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

    (void)results;
    (void)nresults;
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
static const operation op_aminmax = {REDUCERS(aminmax), BY_INPUT, -1, 0};
static const operation op_any = {REDUCERS(any), BY_INPUT, -1, 0};
static const operation op_all = {REDUCERS(all), BY_INPUT, -1, 0};
static const operation op_count = {REDUCERS(count_nonzero), BY_INPUT, -1, 0};
static const operation op_norm = {NULL, BY_OUTPUT, 1, 2};
static const operation op_logsumexp = {REDUCERS(logsumexp), BY_OUTPUT, -1, 0};
static const operation op_var = {REDUCERS(var), BY_OUTPUT, 2, 1};
static const operation op_std = {REDUCERS(std), BY_OUTPUT, 2, 1};
static const operation op_var_mean = {REDUCERS(var_mean), BY_OUTPUT, 2, 1};
static const operation op_std_mean = {REDUCERS(std_mean), BY_OUTPUT, 2, 1};
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
    KERNEL("aminmax", op_aminmax),
    KERNEL("any", op_any),
    KERNEL("any.dim", op_any),
    KERNEL("all", op_all),
    KERNEL("all.dim", op_all),
    KERNEL("count_nonzero", op_count),
    KERNEL("count_nonzero.dim_IntList", op_count),
    KERNEL("linalg_vector_norm", op_norm),
    KERNEL("norm.ScalarOpt_dim", op_norm),
    KERNEL("logsumexp", op_logsumexp),
    KERNEL("var.correction", op_var),
    KERNEL("std.correction", op_std),
    KERNEL("var_mean.correction", op_var_mean),
    KERNEL("std_mean.correction", op_std_mean),
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
