/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Histograms of points in several dimensions, composed of searches and sums. */

#include "base/memory.h"
#include "ops/expression.h"
#include "ops/shape.h"
#include "tensor/dtype.h"

#include <math.h>

/* The limit on dimensions of a point. */
enum { AXES_MOST = 16 };

/* self as [points, axes] */
static core_status points_of(core__scope *scope, const core_operator *op,
                             core_tensor *self, size_t axes, core_tensor **out)
{
    if (!core__dtype_is_floating(self->dtype))
        return core__op_error(CORE_ERROR_DTYPE, op,
                              "self must have a floating dtype, not %s",
                              core__dtype_name(self->dtype));
    if (self->ndim < 2 || self->sizes[self->ndim - 1] != (int64_t)axes ||
        axes == 0 || axes > AXES_MOST)
        return core__op_error(
            CORE_ERROR_SHAPE, op,
            "bins has %zu entries; self must have at least 2 dimensions, the "
            "last with one element for each entry of bins, from 1 to %d",
            axes, AXES_MOST);
    *out = core__x_reshape(
        scope, self,
        (const int64_t[]){self->numel / (int64_t)axes, (int64_t)axes}, 2);
    return scope->status;
}

/* ---------------------------------------------------------------- edges -- */

/* The least and the greatest coordinate of an axis, as numbers.  On the meta
 * device they are not known, and only the number of edges matters. */
static core_status extent(core_tensor *column, double *ends)
{
    core_tensor *bounds[2] = {NULL, NULL};
    core_scalar number;
    core_status status;

    ends[0] = 0;
    ends[1] = 1;
    if (column->numel == 0 || !column->storage)
        return CORE_OK;
    status = core_aminmax(column, NULL, false, &bounds[0], &bounds[1]);
    for (int i = 0; status == CORE_OK && i < 2; i++) {
        status = core_item(bounds[i], &number);
        if (status == CORE_OK)
            ends[i] = core__double_of(&number);
    }
    core__tensor_release(bounds[0]);
    core__tensor_release(bounds[1]);
    return status;
}

/* bins + 1 equidistant edges of one axis; range is NULL if it is to be taken
 * from the coordinates. */
static core_status edges_of(const core_operator *op, core_tensor *points,
                            int64_t axis, int64_t bins, const double *range,
                            core_tensor **out)
{
    double ends[2];
    core__scope scope;
    core_tensor *column;

    *out = NULL;
    if (bins <= 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "bins has the entry %lld; it must be above 0",
                              (long long)bins);
    CORE_TRY(core__size_operand_check(op, "bins", bins));
    core__scope_begin(&scope);
    column = CORE__DO(&scope, core_select, points, 1, axis);
    if (range) {
        ends[0] = range[0];
        ends[1] = range[1];
    } else if (scope.status == CORE_OK) {
        CORE__RUN(&scope, extent(core__x_detach(&scope, column), ends));
    }
    if (scope.status == CORE_OK &&
        !(isfinite(ends[0]) && isfinite(ends[1]) && ends[0] <= ends[1]))
        scope.status = core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, op,
            "the range of axis %lld is from %g to %g; its ends must be finite "
            "and in ascending order",
            (long long)axis, ends[0], ends[1]);
    if (scope.status == CORE_OK && ends[0] == ends[1]) {
        ends[0] -= 0.5;
        ends[1] += 0.5;
    }
    return core__scope_finish(&scope,
                              CORE__DO(&scope, core_linspace,
                                       core_float(ends[0]), core_float(ends[1]),
                                       bins + 1, points->dtype, points->device),
                              out);
}

/* The edges of all axes; arguments self, bins, range are args[0..2]. */
static core_status all_edges(core__scope *scope, const core_operator *op,
                             const core_value *args, core_tensor **edges,
                             size_t *out_axes)
{
    const core_value *range = &args[2];
    const int64_t *bins = core__ints_of(&args[1], out_axes);
    size_t axes = *out_axes;
    core_tensor *points;

    CORE_TRY(points_of(scope, op, args[0].u.tensor, axes, &points));
    if (range->tag != CORE_VALUE_NONE &&
        (range->tag != CORE_VALUE_FLOAT_LIST || range->count != 2 * axes))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "range must have two entries for each axis");
    for (size_t i = 0; i < axes; i++) {
        CORE_TRY(edges_of(
            op, points, (int64_t)i, bins[i],
            range->tag == CORE_VALUE_NONE ? NULL : &range->u.floats[2 * i],
            &edges[i]));
    }
    return CORE_OK;
}

/* _histogramdd_bin_edges(self, bins, *, range, weight, density) */
CORE__COMPOSITE(histogramdd_bin_edges)
{
    size_t axes = 0;
    core_tensor **edges = core__alloc_zero(AXES_MOST * sizeof *edges);
    core_status status;

    if (!edges)
        return core__error_memory(AXES_MOST * sizeof *edges);
    status = all_edges(scope, call->op, args, edges, &axes);
    if (status != CORE_OK) {
        core_tensors_release(edges, AXES_MOST);
        return status;
    }
    results[0] = (core_value){
        CORE_VALUE_TENSOR_LIST, (uint32_t)axes, {.tensors = edges}};
    return CORE_OK;
}

/* --------------------------------------------------------------- counts -- */

/* The bin of each coordinate, of `count`, and whether it is in none.  The last
 * edge belongs to the last bin. */
static core_tensor *bin_of(core__scope *s, core_tensor *column,
                           core_tensor *edges, int64_t count,
                           core_tensor **outside)
{
    core_tensor *last = CORE__DO(s, core_select, edges, 0, count);
    core_tensor *bin;
    core_scalar least = core_int(0), most = core_int(count - 1);

    column = CORE__DO(s, core_clone, column, CORE_FORMAT_CONTIGUOUS);
    bin =
        CORE__DO(s, core_searchsorted, edges, column, false, true, NULL, NULL);
    bin = CORE__DO(s, core_sub_scalar, bin, core_int(1), core_int(1));
    bin = core__x_sub(s, bin,
                      core__x_cast(s, core__x_eq(s, column, last), CORE_I64));
    *outside = core__x_logical_or(
        s, core__x_lt_scalar(s, bin, 0),
        CORE__DO(s, core_gt_scalar, bin, core_int(count - 1)));
    return CORE__DO(s, core_clamp, bin, &least, &most);
}

/* Adds one axis to the flat index of the bins and to what is outside. */
static core_status axis_added(core_tensor *points, int64_t axis,
                              core_tensor *edges, core_tensor **index,
                              core_tensor **outside)
{
    int64_t count = edges->numel - 1;
    core_tensor *beyond = NULL;
    core_tensor *all = NULL;
    core_tensor *next = NULL;
    core__scope s;

    core__scope_begin(&s);
    next = bin_of(&s, CORE__DO(&s, core_select, points, 1, axis), edges, count,
                  &beyond);
    if (*index) {
        next = core__x_add(
            &s, CORE__DO(&s, core_mul_scalar, *index, core_int(count)), next);
        beyond = core__x_logical_or(&s, *outside, beyond);
    }
    if (s.status == CORE_OK) {
        core__tensor_retain(beyond);
        all = beyond;
    }
    CORE_TRY(core__scope_finish(&s, next, &next));
    core__tensor_release(*index);
    core__tensor_release(*outside);
    *index = next;
    *outside = all;
    return CORE_OK;
}

static core_tensor *as_density(core__scope *s, core_tensor *hist,
                               core_tensor *const *edges, size_t axes)
{
    hist = core__x_div(s, hist, core__x_sum(s, hist));
    for (size_t i = 0; i < axes && s->status == CORE_OK; i++) {
        int64_t sizes[AXES_MOST];
        int64_t count = edges[i]->numel - 1;
        core_tensor *width =
            core__x_sub(s, core__x_slice(s, edges[i], 0, 1, count + 1),
                        core__x_slice(s, edges[i], 0, 0, count));

        for (size_t k = 0; k < axes; k++)
            sizes[k] = k == i ? count : 1;
        hist = core__x_div(s, hist, core__x_reshape(s, width, sizes, axes));
    }
    return hist;
}

static core_status check_edges(const core_operator *op, const core_tensor *self,
                               core_tensor *const *edges, size_t axes,
                               const core_tensor *weight, int64_t *sizes)
{
    if (weight && (weight->dtype != self->dtype || self->ndim < 1))
        return core__op_error(
            CORE_ERROR_DTYPE, op, "weight is %s; it must be %s like self",
            core__dtype_name(weight->dtype), core__dtype_name(self->dtype));
    CORE_TRY(core__sizes_check_equal(op, "weight", weight, self->ndim - 1u,
                                     self->sizes));
    for (size_t i = 0; i < axes; i++) {
        if (!edges[i] || edges[i]->ndim != 1 || edges[i]->numel < 2 ||
            edges[i]->dtype != self->dtype)
            return core__op_error(
                CORE_ERROR_SHAPE, op,
                "the edges of axis %zu must have 1 dimension with at least 2 "
                "elements of self's dtype",
                i);
        sizes[i] = edges[i]->numel - 1;
    }
    return core__sizes_check(op, axes, sizes);
}

/* The sum of the weights in each bin, or the number of points. */
static core_status counted(core__scope *scope, const core_operator *op,
                           core_tensor *self, core_tensor *const *edges,
                           size_t axes, core_tensor *weight, bool density,
                           core_value *result)
{
    core_tensor *index = NULL;
    core_tensor *outside = NULL;
    core_tensor *points;
    core_tensor *hist;
    int64_t sizes[AXES_MOST];
    int64_t bins = 1;
    core_status status = CORE_OK;

    CORE_TRY(points_of(scope, op, self, axes, &points));
    CORE_TRY(check_edges(op, self, edges, axes, weight, sizes));
    for (size_t i = 0; status == CORE_OK && i < axes; i++) {
        status = axis_added(points, (int64_t)i, edges[i], &index, &outside);
        bins *= sizes[i];
    }
    core__scope_keep(scope, index);
    core__scope_keep(scope, outside);
    if (status != CORE_OK)
        return status;
    weight = weight ? core__x_reshape(scope, weight, (const int64_t[]){-1}, 1)
                    : CORE__DO(scope, core_new_ones, points,
                               (const int64_t[]){points->sizes[0]}, 1,
                               CORE_DTYPE_NONE, NULL);
    weight = core__x_zero_where(scope, weight, outside);
    hist = core__x_new_zeros(scope, points, &bins, 1);
    hist = CORE__DO(scope, core_scatter_add, hist, 0, index, weight);
    hist = core__x_reshape(scope, hist, sizes, axes);
    if (density)
        hist = as_density(scope, hist, edges, axes);
    return core__scope_result(scope, hist, result);
}

/* _histogramdd_from_bin_tensors(self, bins, *, weight, density) */
CORE__COMPOSITE(histogramdd_from_bin_tensors)
{
    return counted(scope, call->op, args[0].u.tensor, args[1].u.tensors,
                   args[1].count, core__tensor_of(&args[2]),
                   core__arg_bool(args, 3, false), &results[0]);
}

/* _histogramdd_from_bin_cts(self, bins, *, range, weight, density) */
CORE__COMPOSITE(histogramdd_from_bin_cts)
{
    core_tensor *edges[AXES_MOST] = {NULL};
    size_t axes = 0;
    core_status status = all_edges(scope, call->op, args, edges, &axes);

    for (size_t i = 0; i < AXES_MOST; i++)
        if (edges[i])
            core__scope_keep(scope, edges[i]);
    CORE_TRY(status);
    return counted(scope, call->op, args[0].u.tensor, edges, axes,
                   core__tensor_of(&args[3]), core__arg_bool(args, 4, false),
                   &results[0]);
}
