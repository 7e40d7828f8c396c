/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* How a launch of a kernel is divided into rows: which launches can be, and
 * where the rows of their operands are. */

#include "compile/prepare/prepared.h"
#include "compile/prepare/row_blocks.h"

#include "ops_ids.h"
#include "tensor/dtype.h"

/* Operators whose kernels treat each row of their views by itself. */
typedef struct row_operator {
    uint32_t id;
    /* The argument that says where a row begins: a dimension or a list of the
     * sizes of a row; 0: each element is a row. */
    uint32_t dim;
    uint32_t shared; /* bit i: each row uses all of argument i */
    bool draws;      /* a number of 32 bits for each element */
} row_operator;

static const row_operator operators[] = {
    {CORE_OP_SOFTMAX, 1, 0, false},
    {CORE_OP_LOG_SOFTMAX, 1, 0, false},
    {CORE_OP_SOFTMAX_BACKWARD_DATA, 2, 0, false},
    {CORE_OP_LOG_SOFTMAX_BACKWARD_DATA, 2, 0, false},
    {CORE_OP_NATIVE_LAYER_NORM, 1, 1u << 2 | 1u << 3, false},
    {CORE_OP_BERNOULLI__FLOAT, 0, 0, true},
};

static const row_operator *row_operator_of(const core__logged_launch *launch)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (launch->run->op && launch->run->op->id == operators[i].id)
            return &operators[i];
    return NULL;
}

/* ---------------------------------------------------------------- loops -- */

static bool is_elementwise(const core__step *step)
{
    const core_operator *op = step->launch->run->op;

    return step->kind == CORE__STEP_FUSED ||
           op->family == CORE__FAMILY_ELEMENTWISE || op->id == CORE_OP_COPY_ ||
           op->id == CORE_OP_CLONE || op->id == CORE_OP_TO_COPY;
}

/* A reduction along the innermost dimension, whose kernel computes the same for
 * each row (codegen.h, row_block). */
static bool reduces_rows(const core__step *step)
{
    const core_loop *loop = step->launch->loop;

    return step->kind == CORE__STEP_LAUNCH &&
           step->launch->run->op->family == CORE__FAMILY_REDUCTION &&
           loop->reduced == 1 &&
           loop->sizes[0] >= CORE_ROW_BLOCK_REDUCED_LEAST &&
           loop->sizes[0] <= CORE_ROW_BLOCK_REDUCED_MOST;
}

/* The operand of a loop whose rows are along a dimension. */
static bool set_loop_operand(const core_loop *loop, const core_operand *from,
                             uint32_t rows, core__row_operand *out)
{
    uint64_t extent = core__dtype_size(from->dtype);

    for (uint32_t d = 0; d < loop->ndim; d++) {
        if (from->strides[d] < 0)
            return false;
        if (d != rows)
            extent += (uint64_t)((loop->sizes[d] - 1) * from->strides[d]);
    }
    out->written = from->flags & CORE_OPERAND_OUTPUT;
    out->per_row = (uint64_t)from->strides[rows];
    out->apart = out->per_row >= extent;
    out->size =
        out->per_row ? out->per_row * (uint64_t)loop->sizes[rows] : extent;
    return !out->written || out->per_row;
}

static const char *describe_loop(const core__step *step,
                                 const core__row_memory *memory,
                                 core__row_search *search,
                                 core__row_launch *out)
{
    core_loop *loop = (core_loop *)(uintptr_t)step->launch->loop;
    core_tensor **tensors = core__logged_tensors(step->launch);
    uint32_t rows = loop->ndim, at = 0;
    core__row_count *counts = search->counts + search->ncounts;

    if (loop->reduced ? !reduces_rows(step) : !is_elementwise(step))
        return "its kernel is not known to treat rows by themselves";
    while (rows > 0 && loop->sizes[rows - 1] == 1)
        rows--;
    if (rows-- == 0 || loop->reduced >> rows & 1)
        return "it has one row";
    for (uint32_t k = 0; k < loop->noperands; k++) {
        core_operand *from = (core_operand *)(uintptr_t)&loop->operands[k];
        core__row_operand *operand =
            &search->operands[out->operands + out->noperands];
        const core__operand_tensor *tensor;

        if (from->flags & CORE_OPERAND_IMMEDIATE)
            continue;
        tensor = (const core__operand_tensor *)(const void *)tensors[at++];
        if (!set_loop_operand(loop, from, rows, operand))
            return "its operands are not in the order of rows";
        operand->at = &from->memory;
        operand->memory = memory[tensor->source].root;
        operand->start = memory[tensor->source].distance + tensor->distance;
        out->noperands++;
    }
    out->rows = loop->sizes[rows];
    counts[0] = (core__row_count){(int64_t *)(uintptr_t)&loop->sizes[rows], 1};
    counts[1] = (core__row_count){&loop->numel, loop->numel / out->rows};
    out->ncounts = 2;
    return NULL;
}

/* ---------------------------------------------------------------- views -- */

/* How many of the first dimensions are those of rows. */
static uint32_t row_dims(const core__logged_launch *launch,
                         const row_operator *op)
{
    uint32_t ndim = launch->args[0].u.view->ndim;
    const core_value *argument = &launch->args[op->dim];
    int64_t dim = argument->u.i;

    if (op->dim == 0)
        return ndim;
    if (argument->tag == CORE_VALUE_INT_LIST)
        return ndim - argument->count;
    return (uint32_t)(dim < 0 ? dim + (int64_t)ndim : dim);
}

/* The distance between rows, in elements; 0: they are not at equal distances,
 * or there is one. */
static int64_t row_stride(const core_view *view, uint32_t dims)
{
    int64_t stride = 0, next = 0;

    for (uint32_t d = dims; d-- > 0;) {
        if (view->sizes[d] == 1)
            continue;
        if (stride == 0)
            stride = next = view->strides[d];
        if (view->strides[d] != next)
            return 0;
        next *= view->sizes[d];
    }
    return stride;
}

static int64_t row_count(const core_view *view, uint32_t dims)
{
    int64_t rows = 1;

    for (uint32_t d = 0; d < dims; d++)
        rows *= view->sizes[d];
    return rows;
}

typedef struct describing {
    const row_operator *op;
    const core__step *step;
    const core__row_memory *memory;
    core__row_search *search;
    core__row_launch *out;
    uint32_t dims, tensor; /* the next one */
} describing;

static const char *describe_view(describing *d, const core_view *given,
                                 bool shared, bool written)
{
    core_view *view = (core_view *)(uintptr_t)given;
    core__row_launch *out = d->out;
    core__row_operand *operand =
        &d->search->operands[out->operands + out->noperands++];
    core__row_count *counts = d->search->counts + out->counts + out->ncounts;
    const core__operand_tensor *tensor =
        (const core__operand_tensor *)(const void *)core__logged_tensors(
            d->step->launch)[d->tensor++];
    uint64_t item = core__dtype_size(view->dtype);
    int64_t extent = 1, stride, rows;

    *operand = (core__row_operand){.at = &view->memory,
                                   .memory = d->memory[tensor->source].root,
                                   .start = d->memory[tensor->source].distance +
                                            tensor->distance,
                                   .written = written};
    for (uint32_t i = shared ? 0 : d->dims; i < view->ndim; i++)
        extent += (view->sizes[i] - 1) * view->strides[i];
    operand->size = (uint64_t)extent * item;
    if (shared)
        return NULL;
    if (view->ndim < d->dims)
        return "its operands are not in the order of rows";
    rows = row_count(view, d->dims);
    stride = row_stride(view, d->dims);
    if (rows == 1)
        return "it has one row";
    if (stride <= 0 || (out->rows && out->rows != rows))
        return "its operands are not in the order of rows";
    out->rows = rows;
    operand->per_row = (uint64_t)stride * item;
    operand->apart = stride >= extent;
    operand->size = operand->per_row * (uint64_t)rows;
    counts[0] =
        (core__row_count){(int64_t *)(uintptr_t)&view->sizes[d->dims - 1], 1};
    counts[1] = (core__row_count){&view->numel, view->numel / rows};
    out->ncounts += 2;
    return NULL;
}

static const char *describe_views(describing *d)
{
    const core__logged_launch *launch = d->step->launch;
    const char *reason = NULL;

    if (launch->args[0].tag != CORE_VALUE_VIEW ||
        launch->args[0].u.view->ndim == 0 || launch->args[0].u.view->numel == 0)
        return "it has one row";
    d->dims = row_dims(launch, d->op);
    if (d->dims == 0)
        return "it has one row";
    for (uint32_t i = 0; i < launch->nargs && !reason; i++)
        if (launch->args[i].tag == CORE_VALUE_VIEW)
            reason = describe_view(d, launch->args[i].u.view,
                                   d->op->shared >> i & 1, false);
        else if (launch->args[i].tag == CORE_VALUE_VIEW_LIST)
            reason = "its kernel is not known to treat rows by themselves";
    for (uint32_t i = 0; i < launch->nresults && !reason; i++)
        if (launch->results[i].tag == CORE_VALUE_VIEW)
            reason = describe_view(d, launch->results[i].u.view, false, true);
    if (!reason && d->op->draws)
        d->out->numbers = launch->args[0].u.view->numel / d->out->rows;
    return reason;
}

void core__row_launch_join(const core__step *step)
{
    const core__logged_launch *launch = step->launch;
    const row_operator *op = launch->loop ? NULL : row_operator_of(launch);
    uint32_t dims = op ? row_dims(launch, op) : 0;

    for (uint32_t i = 0; dims && i < launch->nargs + launch->nresults; i++) {
        bool result = i >= launch->nargs;
        const core_value *value =
            result ? &launch->results[i - launch->nargs] : &launch->args[i];
        int64_t *sizes, *strides, rows;

        if (value->tag != CORE_VALUE_VIEW || (!result && op->shared >> i & 1))
            continue;
        sizes = (int64_t *)(uintptr_t)value->u.view->sizes;
        strides = (int64_t *)(uintptr_t)value->u.view->strides;
        strides[dims - 1] = row_stride(value->u.view, dims);
        rows = row_count(value->u.view, dims);
        for (uint32_t d = 0; d + 1 < dims; d++) {
            sizes[d] = 1;
            strides[d] = rows * strides[dims - 1];
        }
        sizes[dims - 1] = rows;
    }
}

/* ------------------------------------------------------------------ all -- */

void core__row_launch_describe(const core__step *step,
                               const core__row_memory *memory,
                               core__row_search *search, core__row_launch *out)
{
    const core__logged_launch *launch = step->launch;
    bool launches =
        step->kind == CORE__STEP_LAUNCH || step->kind == CORE__STEP_FUSED;
    describing d = {
        .step = step, .memory = memory, .search = search, .out = out};

    *out = (core__row_launch){.operands = search->noperands,
                              .counts = search->ncounts};
    d.op = launches && !launch->loop ? row_operator_of(launch) : NULL;
    if (!launches || step->index == CORE__NO_VALUE)
        out->reason = "it is not called as a kernel";
    else if (launch->kernel->prepare ||
             launch->kernel->demands & CORE_REQUIRE_ALIGNMENT)
        out->reason = "its kernel is made for one size";
    else if (launch->loop)
        out->reason = describe_loop(step, memory, search, out);
    else if (d.op)
        out->reason = describe_views(&d);
    else
        out->reason = "its kernel is not known to treat rows by themselves";
    if (out->reason) {
        out->rows = 0;
        out->noperands = out->ncounts = 0;
    }
    search->noperands += out->noperands;
    search->ncounts += out->ncounts;
}
