/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Operators that only move elements: cat, flip, roll, tril, triu,
 * constant_pad_nd, as strided copies of parts; and copies of short rows, for
 * copy.c. */

#include "runtime/thread_pool.h"
#include "tables.h"
#include "transpose.h"
#include "view.h"

/* A part of a view, with its own address and sizes. */
typedef struct part {
    char *data;
    int64_t sizes[CORE_MAX_NDIM], strides[CORE_MAX_NDIM];
} part;

static part part_of(const core_view *view)
{
    part all = {.data = cpu_address(view->memory)};

    for (uint32_t d = 0; d < view->ndim; d++) {
        all.sizes[d] = view->sizes[d];
        all.strides[d] = view->strides[d];
    }
    return all;
}

/* Keeps [first, first + size) of a dimension. */
static void part_narrow(part *x, uint32_t item, uint32_t dim, int64_t first,
                        int64_t size)
{
    x->data += first * x->strides[dim] * item;
    x->sizes[dim] = size;
}

static void part_copy(const part *to, const part *from, const core_view *like)
{
    cpu_copy(like->dtype, to->data, to->strides, like->dtype, from->data,
             from->strides, like->ndim, to->sizes);
}

/* cat(tensors, dim) */
static core_status launch_cat(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    const core_view *result = cpu_view(&results[0]);
    uint32_t dim = cpu_dim(cpu_int(&args[1]), result->ndim);
    uint32_t item = cpu_item_size(result->dtype);
    int64_t at = 0;

    (void)call;
    (void)nargs;
    (void)nresults;
    for (uint32_t k = 0; k < args[0].count; k++) {
        const core_view *view = args[0].u.views[k];
        part to = part_of(result);

        /* A tensor of size (0) may be among any others. */
        if (!view || view->numel == 0)
            continue;
        part_narrow(&to, item, dim, at, view->sizes[dim]);
        cpu_copy(result->dtype, to.data, to.strides, view->dtype,
                 cpu_address(view->memory), view->strides, view->ndim,
                 view->sizes);
        at += view->sizes[dim];
    }
    return CORE_OK;
}

/* flip(self, dims) */
static core_status launch_flip(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    const core_view *result = cpu_view(&results[0]);
    part from = part_of(cpu_view(&args[0])), to = part_of(result);
    uint32_t item = cpu_item_size(result->dtype);

    (void)call;
    (void)nargs;
    (void)nresults;
    if (result->numel == 0)
        return CORE_OK;
    for (uint32_t k = 0; k < args[1].count && result->ndim > 0; k++) {
        uint32_t dim = cpu_dim(args[1].u.ints[k], result->ndim);

        from.data += (from.sizes[dim] - 1) * from.strides[dim] * item;
        from.strides[dim] = -from.strides[dim];
    }
    part_copy(&to, &from, result);
    return CORE_OK;
}

/* Copies with dimensions 0 … rotated; each dimension is split in two parts. */
static void roll_from(part to, part from, const int64_t *shifts, uint32_t dim,
                      const core_view *like)
{
    uint32_t item = cpu_item_size(like->dtype);

    for (; dim < like->ndim; dim++) {
        int64_t size = to.sizes[dim], shift = shifts[dim];
        part tail = to, head = from;

        if (shift == 0)
            continue;
        part_narrow(&tail, item, dim, shift, size - shift);
        part_narrow(&head, item, dim, 0, size - shift);
        roll_from(tail, head, shifts, dim + 1, like);
        part_narrow(&to, item, dim, 0, shift);
        part_narrow(&from, item, dim, size - shift, shift);
    }
    part_copy(&to, &from, like);
}

static int64_t modulo(int64_t value, int64_t size)
{
    int64_t rest = value % size;

    return rest < 0 ? rest + size : rest;
}

/* roll(self, shifts, dims): without dims, of the elements as one row */
static core_status launch_roll(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]), *result = cpu_view(&results[0]);
    int64_t shifts[CORE_MAX_NDIM] = {0}, one = 1, shift;
    cpu_dense from = {0}, to = {0};
    core_view row = {.dtype = self->dtype,
                     .numel = self->numel,
                     .ndim = 1,
                     .sizes = &self->numel,
                     .strides = &one};
    core_status status = CORE_OK;

    (void)call;
    (void)nargs;
    (void)nresults;
    if (result->numel == 0)
        return CORE_OK;
    if (args[2].count > 0 && result->ndim > 0) {
        for (uint32_t k = 0; k < args[2].count; k++) {
            uint32_t dim = cpu_dim(args[2].u.ints[k], result->ndim);

            shift = modulo(cpu_list_int(&args[1], k, 0), result->sizes[dim]);
            shifts[dim] = modulo(shifts[dim] + shift, result->sizes[dim]);
        }
        roll_from(part_of(result), part_of(self), shifts, 0, result);
        return CORE_OK;
    }
    status = cpu_dense_read(self, self->dtype, &from);
    if (status == CORE_OK)
        status = cpu_dense_open(result, self->dtype, &to);
    if (status != CORE_OK)
        goto done;
    shift = modulo(cpu_list_int(&args[1], 0, 0), self->numel);
    row.memory.handle = from.data;
    roll_from((part){to.data, {self->numel}, {1}}, part_of(&row), &shift, 0,
              &row);
    cpu_dense_write(&to);
done:
    cpu_dense_close(&from);
    cpu_dense_close(&to);
    return status;
}

/* ------------------------------------------------------------ short rows -- */

enum { SHORTEST = 8, SHORT_ROW = 64, SHORT_GRAIN = 65536 /* elements */ };

typedef struct short_rows {
    const core_loop *loop;
    size_t size; /* of a row, in bytes */
} short_rows;

/* n consecutive rows along dimension 1. */
static void move_run(char *to, int64_t to_stride, const char *from,
                     int64_t from_stride, size_t size, int64_t n)
{
    enum { LINE = 64 };

    if (size % LINE != 0) {
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_stride, from + i * from_stride, size);
        return;
    }
    /* A copy of constant size is a few instructions. */
    for (int64_t i = 0; i < n; i++)
        for (size_t at = 0; at < size; at += LINE)
            memcpy(to + i * to_stride + at, from + i * from_stride + at, LINE);
}

static void short_rows_task(void *context, int64_t begin, int64_t end)
{
    const short_rows *r = context;
    const core_loop *loop = r->loop;
    const core_operand *to = &loop->operands[0], *from = &loop->operands[1];

    for (int64_t row = begin, n; row < end; row += n) {
        char *target = cpu_address(to->memory);
        const char *source = cpu_address(from->memory);
        int64_t rest = row;

        n = loop->sizes[1] - row % loop->sizes[1];
        n = n < end - row ? n : end - row;
        for (uint32_t d = 1; d < loop->ndim; d++) {
            target += rest % loop->sizes[d] * to->strides[d];
            source += rest % loop->sizes[d] * from->strides[d];
            rest /= loop->sizes[d];
        }
        move_run(target, to->strides[1], source, from->strides[1], r->size, n);
    }
}

bool cpu_short_rows(const core_loop *loop, uint32_t bytes)
{
    const core_operand *to = &loop->operands[0], *from = &loop->operands[1];
    int64_t width = loop->ndim > 1 ? loop->sizes[0] : 0;
    short_rows r = {loop, (size_t)width * bytes};

    if (width < SHORTEST || width >= SHORT_ROW ||
        to->strides[0] != (int64_t)bytes ||
        from->strides[0] != (int64_t)bytes ||
        cpu_address(to->memory) == cpu_address(from->memory))
        return false;
    cpu_parallel_for(loop->numel / width, SHORT_GRAIN / width, short_rows_task,
                     &r);
    return true;
}

/* ------------------------------------------------------------ triangles -- */

typedef struct triangle {
    const core_view *result;
    int64_t diagonal, rows, columns;
    bool upper;
} triangle;

static void zero_row(char *row, int64_t stride, uint32_t item, int64_t n)
{
    if (stride == 1) {
        memset(row, 0, (size_t)n * item);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memset(row + i * stride * item, 0, item);
}

/* Zeroes the elements beyond the diagonal in rows [begin, end). */
static void triangle_task(void *context, int64_t begin, int64_t end)
{
    const triangle *job = context;
    const core_view *view = job->result;
    uint32_t dim = view->ndim - 1, item = cpu_item_size(view->dtype);
    int64_t stride = view->strides[dim];

    for (int64_t line = begin; line < end; line++) {
        int64_t at = line % job->rows + job->diagonal + !job->upper;
        char *row = (char *)cpu_address(view->memory) +
                    cpu_line_offset(view, dim, line) * item;

        at = at < 0 ? 0 : at > job->columns ? job->columns : at;
        if (job->upper)
            zero_row(row, stride, item, at);
        else
            zero_row(row + at * stride * item, stride, item, job->columns - at);
    }
}

/* tril(self, diagonal), triu: call->user says upper */
static core_status launch_triangle(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]), *result = cpu_view(&results[0]);
    triangle job = {.result = result,
                    .diagonal = cpu_int(&args[1]),
                    .upper = call->user != NULL};
    int64_t lines;

    (void)nargs;
    (void)nresults;
    if (result->numel == 0)
        return CORE_OK;
    if (cpu_address(self->memory) != cpu_address(result->memory))
        cpu_view_copy(result, self);
    job.rows = result->sizes[result->ndim - 2];
    job.columns = result->sizes[result->ndim - 1];
    /* Beyond the corners nothing changes. */
    if (job.diagonal < -job.rows)
        job.diagonal = -job.rows;
    if (job.diagonal > job.columns)
        job.diagonal = job.columns;
    lines = result->numel / job.columns;
    cpu_parallel_for(lines, cpu_grain(lines, job.columns), triangle_task, &job);
    return CORE_OK;
}

/* Sets `size` indices of a dimension from `first` on to a number. */
static void part_fill(part x, uint32_t item, uint32_t dim, int64_t first,
                      int64_t size, const core_view *like,
                      const core_value *number)
{
    core_view view = *like;

    part_narrow(&x, item, dim, first, size);
    view.memory = (core_memory){.handle = x.data};
    view.sizes = x.sizes;
    view.strides = x.strides;
    cpu_view_fill(&view, number);
}

/* constant_pad_nd(self, pad, value): pairs from the last dimension on;
 * negative ones cut.  Only what is around the copy is filled: of each dimension,
 * from the outermost on, what is before and after it. */
static core_status launch_pad(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]), *result = cpu_view(&results[0]);
    part from = part_of(self), to = part_of(result);
    uint32_t item = cpu_item_size(result->dtype);

    (void)call;
    (void)nargs;
    (void)nresults;
    for (uint32_t k = args[1].count / 2; k-- > 0;) {
        uint32_t dim = self->ndim - 1 - k;
        int64_t before = args[1].u.ints[2 * k];
        int64_t after = args[1].u.ints[2 * k + 1];
        int64_t cut = before < 0 ? -before : 0;
        int64_t size = self->sizes[dim] - cut + (after < 0 ? after : 0);

        before = before < 0 ? 0 : before;
        if (size <= 0) {
            part_fill(to, item, dim, 0, to.sizes[dim], result, &args[2]);
            return CORE_OK;
        }
        part_fill(to, item, dim, 0, before, result, &args[2]);
        part_fill(to, item, dim, before + size, to.sizes[dim] - before - size,
                  result, &args[2]);
        part_narrow(&from, item, dim, cut, size);
        part_narrow(&to, item, dim, before, size);
    }
    part_copy(&to, &from, result);
    return CORE_OK;
}

/* repeat_interleave.Tensor(repeats, *, output_size): i, repeats[i] times */
static core_status launch_repeat(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    const core_view *repeats = cpu_view(&args[0]);
    const core_view *result = cpu_view(&results[0]);
    cpu_dense counts = {0}, out = {0};
    core_status status = cpu_dense_read(repeats, CORE_I64, &counts);
    const int64_t *count = counts.data;
    int64_t total = 0, *to;

    (void)nresults;
    for (int64_t i = 0; status == CORE_OK && i < repeats->numel; i++) {
        if (count[i] < 0)
            status = cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                               "repeat_interleave: the count at %lld is %lld",
                               (long long)i, (long long)count[i]);
        else if (__builtin_add_overflow(total, count[i], &total))
            status = cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                               "repeat_interleave: the counts add up to more "
                               "than can be counted");
    }
    if (status == CORE_OK && nargs > 1 && args[1].tag == CORE_VALUE_INT &&
        args[1].u.i != total)
        status = cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                           "repeat_interleave: the counts add up to %lld, "
                           "output_size is %lld",
                           (long long)total, (long long)args[1].u.i);
    if (status == CORE_OK && !result)
        status = call->host->call_allocate_result(call, 0, repeats->dtype, 1,
                                                  &total, &result);
    if (status == CORE_OK && result->numel != total)
        status = cpu_error(CORE_ERROR_SHAPE,
                           "repeat_interleave: the counts add up to %lld, out "
                           "has %lld elements",
                           (long long)total, (long long)result->numel);
    if (status == CORE_OK)
        status = cpu_dense_open(result, CORE_I64, &out);
    if (status != CORE_OK)
        goto done;
    to = out.data;
    for (int64_t i = 0; i < repeats->numel; i++)
        for (int64_t k = 0; k < count[i]; k++)
            *to++ = i;
    cpu_dense_write(&out);
done:
    cpu_dense_close(&counts);
    cpu_dense_close(&out);
    return status;
}

#define ONE              \
    {                    \
        CPU_ALL, CPU_ALL \
    }

static const cpu_kernel kernels[] = {
    {"cat", launch_cat, NULL, ONE, 0},
    {"flip", launch_flip, NULL, ONE, 0},
    {"roll", launch_roll, NULL, ONE, 0},
    {"tril", launch_triangle, NULL, ONE, 0},
    {"triu", launch_triangle, (void *)1, ONE, 0},
    {"constant_pad_nd", launch_pad, NULL, ONE, 0},
    {"repeat_interleave.Tensor", launch_repeat, NULL, {CPU_INDICES}, 0},
};

const cpu_kernel_table cpu_move_kernels = {kernels,
                                           sizeof kernels / sizeof kernels[0]};
