/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_jacobian and core_hessian: one backward for many rows at once, by
 * core_vmap. */

#include "autograd/api/functional.h"
#include "autograd/graph/autograd_meta.h"
#include "autograd/graph/autograd_ops.h"
#include "base/log.h"
#include "base/memory.h"
#include "ops/expression.h"
#include "tensor/dtype.h"

#include <libcore/transform.h>

#include <string.h>

static void release_all(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; tensors && i < count; i++) {
        core__tensor_release(tensors[i]);
        tensors[i] = NULL;
    }
}

static void clear(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; tensors && i < count; i++)
        tensors[i] = NULL;
}

/* ---------------------------------------------------------- rows together -- */

/* Elements of the seeds and gradients of the rows that are computed at once. */
static const int64_t ROWS_MOST = 1 << 24;

typedef struct rows {
    const core__derivation *work;
    core_tensor *of;
} rows;

static uint32_t flags_of(const core__derivation *work)
{
    return CORE_ALLOW_UNUSED | CORE_RETAIN_GRAPH |
           (work->create ? CORE_CREATE_GRAPH : 0);
}

/* One row: the gradients for one seed. */
static core_status row_of(void *context, core_tensor *const *inputs,
                          size_t ninputs, core_tensor **outputs,
                          size_t *noutputs)
{
    const rows *r = context;
    const core__derivation *work = r->work;

    (void)ninputs;
    *noutputs = work->ndifferentiated;
    CORE_TRY(core_grad(&r->of, 1, inputs, work->differentiated,
                       work->ndifferentiated, flags_of(work), outputs));
    for (size_t w = 0; w < work->ndifferentiated; w++)
        if (!outputs[w])
            CORE_TRY(
                core__derivation_zeros(work->differentiated[w], &outputs[w]));
    return CORE_OK;
}

/* Rows `first` to first + count of the identity, with the sizes of `of`. */
static core_status seeds_of(const core_tensor *of, int64_t first, int64_t count,
                            core_tensor **out)
{
    int64_t sizes[CORE_MAX_NDIM + 1] = {count};
    core__scope s;
    core_tensor *columns, *x;

    core__scope_begin(&s);
    columns =
        CORE__DO(&s, core_arange, core_int(of->numel), CORE_I64, of->device);
    x = CORE__DO(&s, core_arange, core_int(count), CORE_I64, of->device);
    x = core__x_unsqueeze(&s, x, 1);
    x = core__x_eq(
        &s, CORE__DO(&s, core_add_scalar, x, core_int(first), core_int(1)),
        columns);
    x = core__x_cast(&s, x, of->dtype);
    memcpy(sizes + 1, of->sizes, of->ndim * sizeof *sizes);
    return core__scope_finish(&s, core__x_reshape(&s, x, sizes, of->ndim + 1u),
                              out);
}

static int64_t rows_at_once(const core__derivation *work, const core_tensor *of)
{
    int64_t elements = of->numel, count;

    for (size_t w = 0; w < work->ndifferentiated; w++)
        if (work->differentiated[w]->numel > elements)
            elements = work->differentiated[w]->numel;
    count = ROWS_MOST / elements;
    return count < 1 ? 1 : count < of->numel ? count : of->numel;
}

/* parts[chunk * ndifferentiated + w]: rows by each differentiated input. */
static core_status rows_together(core__derivation *work, core_tensor *of,
                                 int64_t chunk, core_tensor **parts)
{
    rows r = {work, of};
    core_vmap_options options = {.struct_size = sizeof options,
                                 .randomness = CORE_VMAP_RANDOM_SAME};
    core_status status = CORE_OK;

    for (int64_t first = 0; first < of->numel && status == CORE_OK;
         first += chunk) {
        int64_t count = of->numel - first < chunk ? of->numel - first : chunk;
        core_tensor *seeds = NULL;

        status = seeds_of(of, first, count, &seeds);
        if (status == CORE_OK)
            status = core_vmap(row_of, &r, &options, &seeds, 1, parts,
                               work->ndifferentiated);
        core__tensor_release(seeds);
        parts += work->ndifferentiated;
    }
    return status;
}

/* ------------------------------------------------------------- row by row -- */

/* 1 at one element of zeros of these sizes. */
static core_status one_hot(const core_tensor *like, int64_t element,
                           core_tensor **out_tensor)
{
    core_tensor *one = NULL, *at = NULL, *flat = NULL;
    core_status status = core__derivation_zeros(like, out_tensor);
    bool mode = core_grad_mode_set(false);
    int64_t all = -1;

    if (status == CORE_OK)
        status = core_reshape(*out_tensor, &all, 1, &flat);
    if (status == CORE_OK)
        status = core_select(flat, 0, element, &at);
    if (status == CORE_OK)
        status =
            core__autograd_op_full(like->device, like->dtype, 0, NULL, 1, &one);
    if (status == CORE_OK)
        status = core__autograd_op_copy_in_place(at, one);
    core_grad_mode_set(mode);
    core__tensor_release(one);
    core__tensor_release(at);
    core__tensor_release(flat);
    return status;
}

/* The same for backwards that cannot be batched: parts[k * ndifferentiated + w],
 * each of one row. */
static core_status rows_apart(core__derivation *work, core_tensor *of,
                              core_tensor **parts)
{
    size_t numel = (size_t)of->numel;
    uint32_t flags = flags_of(work);
    core_tensor **row = core__alloc_zero(work->ndifferentiated * sizeof *row);
    core_status status = CORE_OK;

    if (!row)
        return core__error_memory(work->ndifferentiated * sizeof *row);
    for (size_t k = 0; k < numel && status == CORE_OK; k++) {
        core_tensor *seed = NULL;

        if (core__tensor_needs_grad(of)) {
            status = one_hot(of, (int64_t)k, &seed);
            if (status == CORE_OK)
                status = core_grad(&of, 1, &seed, work->differentiated,
                                   work->ndifferentiated, flags, row);
            core__tensor_release(seed);
        }
        for (size_t w = 0; w < work->ndifferentiated && status == CORE_OK;
             w++) {
            if (!row[w])
                status =
                    core__derivation_zeros(work->differentiated[w], &row[w]);
            if (status == CORE_OK)
                status = core_unsqueeze(row[w], 0,
                                        &parts[k * work->ndifferentiated + w]);
            core__tensor_release(row[w]);
            row[w] = NULL;
        }
    }
    release_all(row, work->ndifferentiated);
    core__free(row);
    return status;
}

/* -------------------------------------------------------------- matrices -- */

/* Joins parts into a tensor with the sizes of `of` followed by those of
 * `by`. */
static core_status matrix(const core__derivation *work, const core_tensor *of,
                          const core_tensor *by, core_tensor *const *parts,
                          size_t count, core_tensor **out)
{
    int64_t sizes[2 * CORE_MAX_NDIM];
    core_tensor *joined;
    core_status status;

    if (of->ndim + by->ndim > CORE_MAX_NDIM)
        return core__error(CORE_ERROR_SHAPE,
                           "%s: a derivative would have %u dimensions; a "
                           "tensor has at most %d",
                           work->name, of->ndim + (uint32_t)by->ndim,
                           CORE_MAX_NDIM);
    memcpy(sizes, of->sizes, of->ndim * sizeof *sizes);
    memcpy(sizes + of->ndim, by->sizes, by->ndim * sizeof *sizes);
    if (count == 0)
        return core__autograd_op_full(by->device, by->dtype,
                                      of->ndim + (uint32_t)by->ndim, sizes, 0,
                                      out);
    CORE_TRY(core_cat(parts, count, 0, &joined));
    status = core_reshape(joined, sizes, of->ndim + (size_t)by->ndim, out);
    core__tensor_release(joined);
    return status == CORE_OK ? core__derivation_finish(work, out) : status;
}

/* out[position of each differentiated input]: d of / d input. */
static core_status matrices(core__derivation *work, const core_tensor *of,
                            core_tensor *const *parts, size_t count,
                            core_tensor **out)
{
    size_t n = work->ndifferentiated;
    core_tensor **column = core__alloc((count + 1) * sizeof *column);
    core_status status = CORE_OK;

    if (!column)
        return core__error_memory(count * sizeof *column);
    for (size_t w = 0; w < n && status == CORE_OK; w++) {
        for (size_t k = 0; k < count; k++)
            column[k] = parts[k * n + w];
        status = matrix(work, of, work->differentiated[w], column, count,
                        &out[work->positions[w]]);
    }
    core__free(column);
    return status;
}

static core_status jacobians_of(core__derivation *work, core_tensor *of,
                                core_tensor **out)
{
    bool empty = of->numel == 0 || !core__tensor_needs_grad(of);
    int64_t chunk = empty ? 1 : rows_at_once(work, of);
    size_t count = empty ? 0 : (size_t)((of->numel + chunk - 1) / chunk);
    size_t most = empty ? 0 : (size_t)of->numel * work->ndifferentiated;
    core_tensor **parts = core__alloc_zero((most + 1) * sizeof *parts);
    core_status status = CORE_OK;

    if (!parts)
        return core__error_memory(most * sizeof *parts);
    if (!empty)
        status = rows_together(work, of, chunk, parts);
    if (status == CORE_ERROR_UNSUPPORTED) {
        core__log(CORE_LOG_WARNING, "vmap",
                  "%s calls backward once for each row: %s", work->name,
                  core_error_message());
        core_error_clear();
        release_all(parts, most);
        count = (size_t)of->numel;
        status = rows_apart(work, of, parts);
    }
    if (status == CORE_OK)
        status = matrices(work, of, parts, count, out);
    release_all(parts, most);
    core__free(parts);
    return status;
}

core_status core_jacobian(const core_derivative *of,
                          core_tensor **out_jacobians, size_t *noutputs)
{
    size_t ninputs = of ? of->ninputs : 0, capacity;
    core_status status;
    core__derivation work;

    CORE__NOT_NULL(out_jacobians);
    CORE__NOT_NULL(noutputs);
    capacity = *noutputs;
    clear(out_jacobians, capacity * ninputs);
    status = core__derivation_begin(&work, "core_jacobian", of, capacity);
    for (size_t o = 0; status == CORE_OK && o < work.noutputs; o++)
        if (core__dtype_is_floating(work.outputs[o]->dtype))
            status = jacobians_of(&work, work.outputs[o],
                                  out_jacobians + o * ninputs);
    *noutputs = status == CORE_OK ? work.noutputs : 0;
    if (status != CORE_OK)
        release_all(out_jacobians, capacity * ninputs);
    return core__derivation_end(&work, status);
}

core_status core_hessian(const core_derivative *of, core_tensor **out_hessians)
{
    size_t ninputs = of ? of->ninputs : 0;
    core_status status;
    core__derivation work;

    CORE__NOT_NULL(out_hessians);
    clear(out_hessians, ninputs * ninputs);
    status = core__derivation_begin(&work, "core_hessian", of,
                                    CORE_GRADCHECK_OUTPUTS);
    if (status == CORE_OK)
        status = core__derivation_first(&work);
    for (size_t w = 0; status == CORE_OK && w < work.ndifferentiated; w++) {
        core_tensor **row = out_hessians + work.positions[w] * ninputs;

        if (!work.grads[w])
            status =
                core__derivation_zeros(work.differentiated[w], &work.grads[w]);
        if (status == CORE_OK)
            status = jacobians_of(&work, work.grads[w], row);
    }
    if (status != CORE_OK)
        release_all(out_hessians, ninputs * ninputs);
    return core__derivation_end(&work, status);
}
