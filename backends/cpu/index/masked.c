/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Operators whose work, or whose result's size, depends on where a tensor is
 * true: nonzero, masked_select, masked_scatter. */

#include "tables.h"
#include "view.h"

static int64_t count_true(const uint8_t *mask, int64_t n)
{
    int64_t count = 0;

    for (int64_t i = 0; i < n; i++)
        count += mask[i] != 0;
    return count;
}

/* Writes the coordinates of what is true. */
static void put_coordinates(const core_view *self, const uint8_t *mask,
                            int64_t *row)
{
    uint32_t last = self->ndim - 1;
    int64_t at[CORE_MAX_NDIM], size = self->ndim > 0 ? self->sizes[last] : 0;

    for (int64_t line = 0; line * size < self->numel && size > 0; line++) {
        int64_t rest = line;

        for (uint32_t d = last; d-- > 0;) {
            at[d] = rest % self->sizes[d];
            rest /= self->sizes[d];
        }
        for (int64_t i = 0; i < size; i++) {
            if (!mask[line * size + i])
                continue;
            for (uint32_t d = 0; d < last; d++)
                row[d] = at[d];
            row[last] = i;
            row += self->ndim;
        }
    }
}

/* nonzero(self): one row of coordinates for each element that is not 0 */
static core_status launch_nonzero(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]), *result = NULL;
    cpu_dense mask = {0}, out = {0};
    core_status status = cpu_dense_read(self, CORE_BOOL, &mask);
    int64_t sizes[2] = {0, self->ndim};

    (void)nargs;
    (void)results;
    (void)nresults;
    if (status != CORE_OK)
        goto done;
    sizes[0] = count_true(mask.data, self->numel);
    status =
        call->host->call_allocate_result(call, 0, CORE_I64, 2, sizes, &result);
    if (status == CORE_OK)
        status = cpu_dense_open(result, CORE_I64, &out);
    if (status != CORE_OK)
        goto done;
    put_coordinates(self, mask.data, out.data);
    cpu_dense_write(&out);
done:
    cpu_dense_close(&mask);
    cpu_dense_close(&out);
    return status;
}

/* The shape that two views broadcast to. */
static void broadcast_shape(const core_view *a, const core_view *b,
                            int64_t *sizes, core_view *out)
{
    const core_view *more = a->ndim > b->ndim ? a : b;
    const core_view *less = more == a ? b : a;
    uint32_t shift = more->ndim - less->ndim;

    *out = (core_view){.ndim = more->ndim, .sizes = sizes, .numel = 1};
    for (uint32_t d = 0; d < more->ndim; d++) {
        sizes[d] = more->sizes[d];
        if (d >= shift && less->sizes[d - shift] != 1)
            sizes[d] = less->sizes[d - shift];
        out->numel *= sizes[d];
    }
}

/* masked_select(self, mask) */
static core_status launch_select(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]), *result = NULL;
    int64_t sizes[CORE_MAX_NDIM], count, item = cpu_item_size(self->dtype);
    core_view shape;
    cpu_dense from = {0}, mask = {0}, out = {0};
    core_status status;
    char *to;

    (void)nargs;
    (void)results;
    (void)nresults;
    broadcast_shape(self, cpu_view(&args[1]), sizes, &shape);
    status = cpu_dense_expand(self, &shape, self->dtype, &from);
    if (status == CORE_OK)
        status = cpu_dense_expand(cpu_view(&args[1]), &shape, CORE_BOOL, &mask);
    if (status != CORE_OK)
        goto done;
    count = count_true(mask.data, shape.numel);
    status = call->host->call_allocate_result(call, 0, self->dtype, 1, &count,
                                              &result);
    if (status == CORE_OK)
        status = cpu_dense_open(result, self->dtype, &out);
    if (status != CORE_OK)
        goto done;
    to = out.data;
    for (int64_t i = 0; i < shape.numel; i++)
        if (((const uint8_t *)mask.data)[i]) {
            cpu_move(to, (const char *)from.data + i * item, item);
            to += item;
        }
    cpu_dense_write(&out);
done:
    cpu_dense_close(&from);
    cpu_dense_close(&mask);
    cpu_dense_close(&out);
    return status;
}

/* masked_scatter(self, mask, source): the next element of source wherever the
 * mask is true */
static core_status launch_scatter(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    const core_view *result = cpu_view(&results[0]);
    const core_view *source = cpu_view(&args[2]);
    int64_t item = cpu_item_size(result->dtype), count;
    cpu_dense mask = {0}, from = {0}, out = {0};
    core_status status =
        cpu_dense_expand(cpu_view(&args[1]), result, CORE_BOOL, &mask);
    const char *next;

    (void)call;
    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        status = cpu_dense_read(source, result->dtype, &from);
    if (status == CORE_OK)
        status =
            cpu_dense_copy(result, cpu_view(&args[0]), result->dtype, &out);
    if (status != CORE_OK)
        goto done;
    count = count_true(mask.data, result->numel);
    if (count > source->numel) {
        status = cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                           "masked_scatter: the mask is true %lld times but "
                           "source has %lld elements",
                           (long long)count, (long long)source->numel);
        goto done;
    }
    next = from.data;
    for (int64_t i = 0; i < result->numel; i++)
        if (((const uint8_t *)mask.data)[i]) {
            cpu_move((char *)out.data + i * item, next, item);
            next += item;
        }
    cpu_dense_write(&out);
done:
    cpu_dense_close(&mask);
    cpu_dense_close(&from);
    cpu_dense_close(&out);
    return status;
}

static const cpu_kernel kernels[] = {
    {"nonzero", launch_nonzero, NULL, {CPU_ALL}, 0},
    {"masked_select", launch_select, NULL, {CPU_ALL, CPU_BOOL}, 0},
    {"masked_scatter",
     launch_scatter,
     NULL,
     {CPU_ALL, CPU_BOOL, CPU_ALL, CPU_ALL},
     0},
};

const cpu_kernel_table cpu_masked_kernels = {kernels, sizeof kernels /
                                                          sizeof kernels[0]};
