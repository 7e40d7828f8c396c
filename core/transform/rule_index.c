/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gathering and scattering by indices. */

#include "transform/batch.h"

#include "ops_ids.h"

#include <string.h>

/* An index vector for each sample, [samples, K], in dimension `dim` of a tensor
 * of `sizes`, as gather and scatter want it. */
static core_tensor *spread_index(core__batch *batch, core_tensor *index,
                                 int64_t dim, const core_tensor *like)
{
    int64_t sizes[CORE_MAX_NDIM + 1];
    core__scope *s = &batch->scope;

    if (s->status != CORE_OK)
        return index;
    index = core__x_cast(s, index, CORE_I64);
    for (int64_t i = 1; i < dim; i++)
        index = core__x_unsqueeze(s, index, 1);
    for (uint32_t i = (uint32_t)dim + 1; i < like->ndim; i++)
        index = core__x_unsqueeze(s, index, -1);
    if (s->status != CORE_OK)
        return index;
    memcpy(sizes, like->sizes, like->ndim * sizeof *sizes);
    sizes[dim] = index->sizes[dim];
    return CORE__DO(s, core_expand, index, sizes, like->ndim, false);
}

/* index_select(self, dim, index) */
core_status core__batch_index_select(core__batch *batch)
{
    core__operand self = core__batch_operand(batch, 0);
    core__operand index = core__batch_operand(batch, 2);
    core_value args[3] = {batch->args[0], batch->args[1], batch->args[2]};
    core_tensor *x, *at;

    if (self.ndim == 0 || index.ndim != 1)
        return core__batch_loop(batch);
    CORE_TRY(core__batch_shift(batch, &args[1].u.i, self.ndim));
    x = core__batch_full(batch, &self);
    if (!index.mapped) {
        args[0] = core_pack_tensor(x);
        args[2] = core_pack_tensor(index.tensor);
        return core__batch_invoke(batch, batch->op, args, 3, 0);
    }
    at = spread_index(batch, core__batch_front(batch, &index), args[1].u.i, x);
    return core__batch_result(
        batch, 0,
        CORE__DO(&batch->scope, core_gather, x, args[1].u.i, at, false), 0);
}

/* index_add(self, dim, index, source, alpha) */
core_status core__batch_index_add(core__batch *batch)
{
    core__operand self = core__batch_operand(batch, 0);
    core__operand index = core__batch_operand(batch, 2);
    core__operand source = core__batch_operand(batch, 3);
    core_value args[5];
    core__scope *s = &batch->scope;
    core_tensor *x, *from, *at;

    memcpy(args, batch->args, sizeof args);
    if (self.ndim == 0 || index.ndim != 1 || source.ndim != self.ndim)
        return core__batch_loop(batch);
    CORE_TRY(core__batch_shift(batch, &args[1].u.i, self.ndim));
    x = core__batch_full(batch, &self);
    from = core__batch_full(batch, &source);
    if (!index.mapped) {
        args[0] = core_pack_tensor(x);
        args[2] = core_pack_tensor(index.tensor);
        args[3] = core_pack_tensor(from);
        return core__batch_invoke(batch, batch->op, args, 5, 0);
    }
    if (core__double_of(&args[4]) != 1)
        from = CORE__DO(s, core_mul_scalar, from, args[4]);
    at = spread_index(batch, core__batch_front(batch, &index), args[1].u.i,
                      from);
    return core__batch_result(
        batch, 0, CORE__DO(s, core_scatter_add, x, args[1].u.i, at, from), 0);
}

/* Writes where an index for each sample says, a value for each or elements of
 * source. */
static core_status write_each(core__batch *batch, const core__operand *self,
                              const core__operand *index,
                              const core__operand *source, int64_t dim)
{
    core__scope *s = &batch->scope;
    core_tensor *x = core__batch_full(batch, self), *at, *from;

    at = spread_index(batch, core__batch_full(batch, index), dim, x);
    CORE_TRY(s->status);
    at = core__x_where(
        s, core__x_lt_scalar(s, at, 0),
        CORE__DO(s, core_add_scalar, at, core_int(x->sizes[dim]), core_int(1)),
        at);
    if (!source->tensor)
        return core__batch_result(
            batch, 0,
            CORE__DO(s, core_scatter_value, x, dim, at, batch->args[3]), 0);
    from = core__batch_full(batch, source);
    for (uint32_t i = source->ndim; i < self->ndim; i++)
        from = core__x_unsqueeze(s, from, -1);
    CORE_TRY(s->status);
    from = CORE__DO(s, core_expand, from, at->sizes, at->ndim, false);
    return core__batch_result(batch, 0,
                              CORE__DO(s, core_scatter, x, dim, at, from), 0);
}

/* index_copy(self, dim, index, source), index_fill(self, dim, index, value) */
core_status core__batch_index_write(core__batch *batch)
{
    core__operand self = core__batch_operand(batch, 0);
    core__operand index = core__batch_operand(batch, 2);
    core__operand source = core__batch_operand(batch, 3);
    core_value args[CORE__SCHEMA_ARGUMENTS];

    memcpy(args, batch->args, batch->nargs * sizeof *args);
    if (self.ndim == 0 || index.ndim != 1 ||
        (source.tensor && source.ndim != self.ndim && source.ndim > 0))
        return core__batch_loop(batch);
    CORE_TRY(core__batch_shift(batch, &args[1].u.i, self.ndim));
    if (index.mapped || (source.mapped && source.ndim != self.ndim))
        return write_each(batch, &self, &index, &source, args[1].u.i);
    args[0] = core_pack_tensor(core__batch_full(batch, &self));
    args[2] = core_pack_tensor(index.tensor);
    if (source.tensor)
        args[3] = core_pack_tensor(source.ndim == self.ndim
                                       ? core__batch_full(batch, &source)
                                       : source.tensor);
    return core__batch_invoke(batch, batch->op, args, batch->nargs, 0);
}

/* take(self, index): of the elements in one row */
core_status core__batch_take(core__batch *batch)
{
    core__operand self = core__batch_operand(batch, 0);
    core__operand index = core__batch_operand(batch, 1);
    core__scope *s = &batch->scope;
    core_tensor *x, *at = core__batch_full(batch, &index), *from_end;

    if (self.tensor->numel == 0 || index.tensor->dtype != CORE_I64)
        return core__batch_loop(batch);
    x = core__batch_as_rows(batch, &self);
    index = (core__operand){at, true, 0, index.ndim};
    at = core__batch_as_rows(batch, &index);
    CORE_TRY(s->status);
    from_end =
        CORE__DO(s, core_add_scalar, at, core_int(x->sizes[1]), core_int(1));
    from_end = core__x_where(s, core__x_lt_scalar(s, at, 0), from_end, at);
    x = CORE__DO(s, core_gather, x, 1, from_end, false);
    CORE_TRY(s->status);
    at = index.tensor;
    return core__batch_result(batch, 0,
                              core__x_reshape(s, x, at->sizes, at->ndim), 0);
}

/* searchsorted(sorted_sequence, self, out_int32, right, side, sorter),
 * bucketize(self, boundaries, out_int32, right): one sequence for all samples,
 * one for each row of a sample, or one for each sample, whose values are in one
 * row then. */
core_status core__batch_search(core__batch *batch)
{
    bool bucketize = batch->op->id == CORE_OP_BUCKETIZE_TENSOR;
    core__operand sequence = core__batch_operand(batch, bucketize);
    core__operand self = core__batch_operand(batch, !bucketize);
    core__operand sorter = {0};
    core_value args[6] = {{0}}, result;
    core__scope *s = &batch->scope;
    core_tensor *x = core__batch_full(batch, &self), *whole = x;
    bool rows;

    CORE_TRY(s->status);
    memcpy(args + 2, batch->args + 2, (batch->nargs - 2) * sizeof *args);
    if (!bucketize)
        sorter = core__batch_operand(batch, 5);
    rows = sequence.ndim == 1 && (sequence.mapped || sorter.mapped);
    if (rows)
        x = core__batch_as_rows(batch, &self);
    if (rows || sequence.ndim > 1) {
        sequence.tensor = core__batch_full(batch, &sequence);
        if (sorter.tensor)
            sorter.tensor = core__batch_full(batch, &sorter);
    }
    CORE_TRY(s->status);
    args[0] = core_pack_tensor(sequence.tensor);
    args[1] = core_pack_tensor(x);
    if (sorter.tensor)
        args[5] = core_pack_tensor(sorter.tensor);
    CORE_TRY(core__batch_compute(batch,
                                 &core__operators[CORE_OP_SEARCHSORTED_TENSOR],
                                 args, 6, &result, 1));
    x = core__scope_keep(s, result.u.tensor);
    if (rows)
        x = core__x_reshape(s, x, whole->sizes, whole->ndim);
    return core__batch_result(batch, 0, x, 0);
}

/* ---------------------------------------------------------------- _index -- */

/* Indices of one sample, and what is known of their places. */
typedef struct indices {
    core_tensor *list[CORE_MAX_NDIM + 1];
    uint32_t count;
    uint32_t first, runs; /* of adjacent ones */
    uint32_t ndim;        /* of one index */
    bool mapped;
} indices;

static void read_indices(core__batch *batch, indices *x)
{
    const core_value *list = &batch->args[1];

    *x = (indices){.count = list->count};
    for (uint32_t i = 0; i < list->count; i++) {
        core__operand o;

        if (!list->u.tensors[i])
            continue;
        o = core__batch_operand_of(batch, list->u.tensors[i]);
        if (!x->runs)
            x->first = i;
        x->runs += i == 0 || !list->u.tensors[i - 1];
        x->ndim = o.ndim;
        x->mapped |= o.mapped;
    }
}

/* The indices for a self whose samples come first: one more, NULL if all
 * samples share the indices, else the number of the sample. */
static void shift_indices(core__batch *batch, indices *x)
{
    const core_value *list = &batch->args[1];
    core__scope *s = &batch->scope;
    core_tensor *sample = NULL;

    for (uint32_t i = 0; i < list->count; i++) {
        core__operand o;

        x->list[i + 1] = NULL;
        if (!list->u.tensors[i])
            continue;
        o = core__batch_operand_of(batch, list->u.tensors[i]);
        x->list[i + 1] = x->mapped ? core__batch_full(batch, &o) : o.tensor;
        if (x->mapped && !sample && s->status == CORE_OK) {
            core_tensor *like = x->list[i + 1];

            sample = core__x_arange(s, like, batch->batching->size);
            sample = core__x_cast(s, sample, like->dtype);
            for (uint32_t k = 0; k < o.ndim; k++)
                sample = core__x_unsqueeze(s, sample, -1);
            sample = CORE__DO(s, core_expand, sample, like->sizes, like->ndim,
                              false);
        }
    }
    x->list[0] = sample;
    x->count++;
}

/* Moves `count` dimensions at `from` to `to`. */
static core_tensor *move_block(core__batch *batch, core_tensor *x,
                               uint32_t from, uint32_t count, uint32_t to)
{
    int64_t order[CORE_MAX_NDIM];
    uint32_t n = 0;

    if (batch->scope.status != CORE_OK || from == to || count == 0)
        return x;
    for (uint32_t i = 0; n < x->ndim; i++) {
        if (n == to)
            for (uint32_t k = 0; k < count; k++)
                order[n++] = from + k;
        if (i < x->ndim && (i < from || i >= from + count))
            order[n++] = i;
    }
    return CORE__DO(&batch->scope, core_permute, x, order, x->ndim);
}

/* Where the indexed call has what one sample's call has behind its samples: the
 * index's dimensions move behind those that precede them in one sample. */
static core_tensor *to_result(core__batch *batch, core_tensor *x,
                              const indices *at)
{
    bool adjacent = at->runs == 1;

    if (!at->mapped) /* [samples, …] or, with several runs, [index, samples, …] */
        return adjacent ? x : move_block(batch, x, 0, at->ndim, 1);
    /* [samples, index, …]: the sample's number and a later index are two runs,
     * whose dimensions come first. */
    return adjacent ? move_block(batch, x, 1, at->ndim, 1 + at->first) : x;
}

/* _index(self, indices) */
core_status core__batch_index(core__batch *batch)
{
    core__operand self = core__batch_operand(batch, 0);
    core_tensor *x;
    indices at;

    if (batch->args[1].count > CORE_MAX_NDIM ||
        batch->args[1].count > self.ndim)
        return core__batch_loop(batch); /* reports the error */
    read_indices(batch, &at);
    if (!at.runs)
        return core__batch_loop(batch);
    shift_indices(batch, &at);
    x = core__batch_full(batch, &self);
    x = CORE__DO(&batch->scope, core_index_same, x, at.list, at.count);
    return core__batch_result(batch, 0, to_result(batch, x, &at), 0);
}

/* _index_put(self, indices, values, accumulate): values broadcast to what
 * _index would return. */
core_status core__batch_index_put(core__batch *batch)
{
    core__operand self = core__batch_operand(batch, 0);
    core__operand values = core__batch_operand(batch, 2);
    core__scope *s = &batch->scope;
    core_tensor *x, *from;
    uint32_t ndim, used = 0;
    indices at;

    if (batch->args[1].count > CORE_MAX_NDIM ||
        batch->args[1].count > self.ndim)
        return core__batch_loop(batch); /* reports the error */
    read_indices(batch, &at);
    for (uint32_t i = 0; i < batch->args[1].count; i++)
        used += batch->args[1].u.tensors[i] != NULL;
    ndim = self.ndim - used + at.ndim; /* of the indexed part */
    if (!at.runs || values.ndim > ndim)
        return core__batch_loop(batch);
    shift_indices(batch, &at);
    x = core__batch_full(batch, &self);
    from = core__batch_full(batch, &values);
    for (uint32_t i = values.ndim; i < ndim; i++)
        from = core__x_unsqueeze(s, from, 1);
    /* The reverse of to_result. */
    if (!at.mapped && at.runs > 1)
        from = move_block(batch, from, 1, at.ndim, 0);
    else if (at.mapped && at.runs == 1)
        from = move_block(batch, from, 1 + at.first, at.ndim, 1);
    x = CORE__DO(s, core_index_put_same, x, at.list, at.count, from,
                 core__arg_bool(batch->args, 3, false));
    return core__batch_result(batch, 0, x, 0);
}

/* -------------------------------------------------------------- embedding -- */

/* embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse) */
core_status core__batch_embedding(core__batch *batch)
{
    core__operand weight = core__batch_operand(batch, 0);
    core__operand index = core__batch_operand(batch, 1);
    core_value args[5];
    core__scope *s = &batch->scope;
    core_tensor *x, *at;

    memcpy(args, batch->args, sizeof args);
    if (!weight.mapped) {
        args[0] = core_pack_tensor(weight.tensor);
        args[1] = core_pack_tensor(core__batch_front(batch, &index));
        return core__batch_invoke(batch, batch->op, args, 5, 0);
    }
    if (weight.ndim != 2)
        return core__batch_loop(batch);
    x = core__batch_front(batch, &weight);
    at = core__batch_full(batch, &index);
    CORE_TRY(s->status);
    {
        int64_t sizes[CORE_MAX_NDIM + 1];
        core_tensor *rows = core__batch_as_rows(batch, &index);

        rows = spread_index(batch, rows, 1, x);
        x = CORE__DO(s, core_gather, x, 1, rows, false);
        memcpy(sizes, at->sizes, at->ndim * sizeof *sizes);
        CORE_TRY(s->status);
        sizes[at->ndim] = x->sizes[2];
        x = core__x_reshape(s, x, sizes, at->ndim + 1u);
    }
    return core__batch_result(batch, 0, x, 0);
}

/* embedding_dense_backward(grad_output, indices, num_weights, padding_idx,
 * scale_grad_by_freq): the rows of all samples in one table.  An index outside
 * of a sample's rows becomes one outside of the table, which is an error. */
core_status core__batch_embedding_backward(core__batch *batch)
{
    core__operand grad = core__batch_operand(batch, 0);
    core__operand index = core__batch_operand(batch, 1);
    int64_t rows = batch->args[2].u.i, padding = batch->args[3].u.i;
    int64_t size = batch->batching->size;
    core__scope *s = &batch->scope;
    core_tensor *at, *first, *outside, *x;

    if (rows < 1 || rows > INT64_MAX / size || index.tensor->numel == 0)
        return core__batch_loop(batch);
    at = core__x_cast(s, core__batch_full(batch, &index), CORE_I64);
    CORE_TRY(s->status);
    first = core__x_arange(s, at, size);
    first = CORE__DO(s, core_mul_scalar, first, core_int(rows));
    for (uint32_t i = 0; i < index.ndim; i++)
        first = core__x_unsqueeze(s, first, -1);
    outside = CORE__DO(s, core_logical_or, core__x_lt_scalar(s, at, 0),
                       CORE__DO(s, core_ge_scalar, at, core_int(rows)));
    at = CORE__DO(s, core_masked_fill, core__x_add(s, at, first), outside,
                  core_int(rows * size));
    x = CORE__DO(s, core_embedding_dense_backward,
                 core__batch_full(batch, &grad), at, rows * size, -1,
                 core__arg_bool(batch->args, 4, false));
    /* The error is to name the index, not its place in the table. */
    if (s->status == CORE_ERROR_INDEX) {
        core_error_release(s->error);
        s->error = NULL;
        s->status = CORE_OK;
        return core__batch_each(batch);
    }
    x = core__batch_split(batch, x, 0);
    if (padding >= 0 && padding < rows) {
        core_tensor *row = CORE__DO(s, core_select, x, 1, padding);

        CORE__RUN(s, core_zero_(row));
    }
    return core__batch_result(batch, 0, x, 0);
}
