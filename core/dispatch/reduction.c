/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Reductions for every backend: reduced dimensions, results, and a loop in
 * which the results have stride 0 along reduced dimensions. */

#include "dispatch/kernel_constraints.h"
#include "dispatch/dispatch.h"
#include "dispatch/loop.h"
#include "dispatch/inference.h"
#include "dispatch/upcalls.h"
#include "tensor/dtype.h"
#include "tensor/layout.h"

#include <stddef.h>
#include <string.h>

enum { RESULTS_MAX = 2 };

typedef struct reduction {
    core_call *call;
    const core_operator *op;
    const core_value *args;
    uint32_t nargs;
    core__kernel_set *set;
    core_tensor *input; /* with a reference */
    uint32_t reduced;   /* mask of the input's dimensions */
    bool keepdim;
    core_dtype cast; /* that the input is converted to, or NONE */
    uint32_t ndim;   /* of the results */
    int64_t sizes[CORE_MAX_NDIM];
    uint32_t nresults;
    core_dtype dtypes[RESULTS_MAX];
    core_tensor *targets[RESULTS_MAX]; /* out arguments, without references */
    core_tensor *outputs[RESULTS_MAX]; /* with references */
    bool copied;                       /* copied for a kernel's constraints:
                                        * never again */
} reduction;

static core_status read_dims(reduction *r)
{
    const core__operator_data *data = r->op->data;
    uint32_t ndim = r->input->ndim;
    const int64_t *dims = NULL;
    uint32_t count = 0;

    r->reduced = ndim == 0 ? 0 : (uint32_t)((UINT64_C(1) << ndim) - 1);
    if (data->dim == CORE__OP_NOWHERE)
        return CORE_OK;
    if (r->args[data->dim].tag == CORE_VALUE_INT) {
        dims = &r->args[data->dim].u.i;
        count = 1;
    } else if (r->args[data->dim].tag == CORE_VALUE_INT_LIST) {
        dims = r->args[data->dim].u.ints;
        count = r->args[data->dim].count;
    }
    if (count == 0)
        return CORE_OK; /* none, or an empty list: all dimensions */
    r->reduced = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t dim;

        CORE_TRY(core__dim_wrap(r->op, dims[i], ndim, &dim));
        if (r->reduced >> dim & 1)
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, r->op,
                                  "dimension %u is given twice", dim);
        if (ndim > 0)
            r->reduced |= 1u << dim;
    }
    return CORE_OK;
}

static core_status find_dtypes(reduction *r)
{
    const core__operator_data *data = r->op->data;
    core_dtype input = r->input->dtype;
    core_dtype requested =
        data->dtype == CORE__OP_NOWHERE
            ? CORE_DTYPE_NONE
            : core__arg_dtype(r->args, data->dtype, CORE_DTYPE_NONE);

    /* Integers are summed in i64 anyway. */
    if (data->promotion == CORE__REDUCE_SUM && requested == CORE_I64 &&
        !core__dtype_is_floating(input))
        requested = CORE_DTYPE_NONE;
    if (requested && requested != input) {
        CORE_TRY(core__op_dtype_check(r->op, requested));
        r->cast = input = requested;
    }
    CORE_TRY(core__dtype_check_computable(r->op, input));
    r->dtypes[0] = input;
    if (data->promotion == CORE__REDUCE_SUM && !requested &&
        !core__dtype_is_floating(input))
        r->dtypes[0] = CORE_I64;
    else if (data->promotion == CORE__REDUCE_BOOL)
        /* u8, used for truth values before bool existed, keeps its dtype. */
        r->dtypes[0] = input == CORE_U8 ? CORE_U8 : CORE_BOOL;
    else if (data->promotion == CORE__REDUCE_INDEX)
        r->dtypes[0] = CORE_I64;
    else if (data->promotion == CORE__REDUCE_FLOAT &&
             !core__dtype_is_floating(input))
        return core__op_error(
            CORE_ERROR_DTYPE, r->op, "the dtype is %s; it must be floating%s",
            core__dtype_name(input),
            data->dtype == CORE__OP_NOWHERE ? ""
                                            : " (its dtype argument converts)");
    r->dtypes[1] = r->op->flags & CORE__OP_ORDERED ? CORE_I64 : r->dtypes[0];
    return CORE_OK;
}

/* Called after all arguments were checked. */
static core_status cast_input(reduction *r)
{
    core_tensor *cast;

    if (r->cast == CORE_DTYPE_NONE)
        return CORE_OK;
    core__conversion_count(r->call->op, CORE_CONVERSION_CAST);
    CORE_TRY(core__tensor_cast(r->input, r->cast, &cast));
    core__tensor_release(r->input);
    r->input = cast;
    return CORE_OK;
}

static core_status check_numbers(const reduction *r)
{
    core__inference inference;

    if (!r->op->data->infer)
        return CORE_OK;
    /* not before: it is large */
    inference = (core__inference){.op = (core_operator *)r->op,
                                  .args = r->args,
                                  .nargs = r->nargs,
                                  .device = r->input->device};
    return r->op->data->infer(&inference);
}

static core_status find_sizes(reduction *r)
{
    int64_t kept_numel = 1;

    r->keepdim = r->op->data->keepdim != CORE__OP_NOWHERE &&
                 core__arg_bool(r->args, r->op->data->keepdim, false);
    r->ndim = 0;
    for (uint32_t i = 0; i < r->input->ndim; i++) {
        bool reduced = r->reduced >> i & 1;

        if (!reduced)
            kept_numel *= r->input->sizes[i];
        if (!reduced || r->keepdim)
            r->sizes[r->ndim++] = reduced ? 1 : r->input->sizes[i];
    }
    if (r->input->numel == 0 && kept_numel > 0 &&
        r->op->flags & CORE__OP_NO_IDENTITY)
        return core__op_error(CORE_ERROR_SHAPE, r->op,
                              "a reduction over zero elements has no value");
    return CORE_OK;
}

static core_status check_targets(const reduction *r)
{
    uint32_t first = r->nargs - r->nresults;

    for (uint32_t k = 0; k < r->nresults; k++)
        CORE_TRY(core__target_check(r->op, first + k, r->targets[k],
                                    r->input->device));
    CORE_TRY(core__overlap_check(r->op, r->args, r->nargs));
    for (uint32_t k = 0; k < r->nresults; k++)
        CORE_TRY(core__out_check_shape(r->op, first + k, r->targets[k],
                                       r->dtypes[k], r->ndim, r->sizes));
    return CORE_OK;
}

static core_status make_outputs(reduction *r)
{
    if (r->targets[0])
        CORE_TRY(check_targets(r));
    CORE_TRY(cast_input(r));
    for (uint32_t k = 0; k < r->nresults; k++) {
        core_tensor *target = r->targets[k];

        if (target)
            CORE_TRY(core__out_resize(r->op, r->nargs - r->nresults + k, target,
                                      r->dtypes[k], r->ndim, r->sizes));
        if (target && target->dtype == r->dtypes[k] &&
            core__layout_overlap(target, r->input) == CORE__OVERLAP_NONE) {
            core__tensor_retain(target);
            r->outputs[k] = target;
        } else {
            CORE_TRY(core__tensor_new(r->input->device, r->dtypes[k], r->ndim,
                                      r->sizes, NULL, &r->outputs[k]));
        }
    }
    return CORE_OK;
}

/* Strides of a result along the input's dimensions. */
static void spread(const reduction *r, const core_tensor *output,
                   int64_t *strides)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < r->input->ndim; i++) {
        bool reduced = r->reduced >> i & 1;

        strides[i] = 0;
        if (!reduced)
            strides[i] = output->strides[at];
        if (!reduced || r->keepdim)
            at++;
    }
}

static core_status compute(reduction *r);

static bool suits(const core_tensor *tensor, const core_kernel *kernel,
                  core_dtype common)
{
    return !(kernel->demands & CORE_REQUIRE_CONTIGUOUS &&
             !(tensor->flags & CORE__TENSOR_CONTIGUOUS)) &&
           core__constraint_dtype(tensor->dtype, common) == tensor->dtype &&
           core__constraint_aligned_tensor(kernel, tensor);
}

static bool all_suit(const reduction *r, const core_kernel *kernel,
                     core_dtype common)
{
    bool suitable = suits(r->input, kernel, common);

    for (uint32_t k = 0; k < r->nresults; k++)
        suitable = suitable && suits(r->outputs[k], kernel, common);
    return suitable;
}

/* Computes with copies that satisfy the kernel. */
static core_status compute_copies(reduction *r, const core_kernel *kernel,
                                  core_dtype common)
{
    core_tensor *given[RESULTS_MAX];
    core_tensor *copy;
    core_status status = CORE_OK;

    r->copied = true;
    memcpy(given, r->outputs, sizeof given);
    if (!suits(r->input, kernel, common)) {
        CORE_TRY(core__constraint_copy(
            r->call->op, r->input,
            core__constraint_dtype(r->input->dtype, common), true, &copy));
        core__tensor_release(r->input);
        r->input = copy;
    }
    for (uint32_t k = 0; k < r->nresults && status == CORE_OK; k++)
        if (!suits(given[k], kernel, common))
            status = core__constraint_copy(
                r->call->op, given[k],
                core__constraint_dtype(given[k]->dtype, common), false,
                &r->outputs[k]);
    if (status == CORE_OK)
        status = compute(r);
    for (uint32_t k = 0; k < r->nresults; k++) {
        if (r->outputs[k] == given[k])
            continue;
        if (status == CORE_OK) {
            core__conversion_count(r->call->op, CORE_CONVERSION_RESULT);
            status = core__dispatch_copy(given[k], r->outputs[k]);
        }
        core__tensor_release(r->outputs[k]);
        r->outputs[k] = given[k];
    }
    return status;
}

/* For kernels with constraints or `supports`. */
static __attribute__((noinline)) core_status compute_constrained(
    reduction *r, core__kernel_call *run, const core_loop *loop,
    const core_dtype *dtypes)
{
    uint32_t count = r->nresults + 1;
    const core_kernel *kernel;
    core_dtype common;

    kernel =
        core__constraint_pick_equal(r->set, dtypes, count, loop->ndim, &common);
    if (common && !r->copied)
        return compute_copies(r, kernel, common);
    for (; kernel;
         kernel = core__kernel_next(kernel, dtypes, count, loop->ndim)) {
        CORE_TRY(core__kernel_query_supports(
            r->call->op, r->set, r->input->device, dtypes, count, loop->ndim,
            loop, r->args, r->nargs, &kernel));
        if (!kernel)
            break;
        if (!all_suit(r, kernel, CORE_DTYPE_NONE)) {
            if (!r->copied)
                return compute_copies(r, kernel, CORE_DTYPE_NONE);
        } else if (!(kernel->demands & CORE_REQUIRE_INDEX32)) {
            return core__kernel_launch(run, kernel, loop, r->args, r->nargs,
                                       NULL, 0);
        } else if (core__constraint_can_split(loop)) {
            return core__constraint_split(run, kernel, loop, r->args, r->nargs);
        }
    }
    return core__kernel_none_error(r->call->op, r->set, dtypes, count);
}

static core_status compute(reduction *r)
{
    core__loop_builder builder;
    core__kernel_call run;
    core_dtype dtypes[RESULTS_MAX + 1];
    int64_t strides[CORE_MAX_NDIM];
    const core_kernel *kernel;
    uint32_t ndim = r->input->ndim;

    if (r->outputs[0]->numel == 0 || core__tensor_is_meta(r->outputs[0]))
        return CORE_OK;
    core__loop_begin(&builder, ndim, r->input->sizes);
    for (uint32_t i = 0; i < ndim; i++)
        if (r->reduced >> i & 1)
            builder.loop.reduced |= 1u << (ndim - 1 - i);
    for (uint32_t k = 0; k < r->nresults; k++) {
        spread(r, r->outputs[k], strides);
        core__loop_add_strided(&builder, r->outputs[k], strides,
                               CORE_OPERAND_OUTPUT);
        run.tensors[k] = r->outputs[k];
        dtypes[k] = r->outputs[k]->dtype;
    }
    core__loop_add(&builder, r->input, 0);
    run.tensors[r->nresults] = r->input;
    run.ntensors = r->nresults + 1;
    dtypes[r->nresults] = r->input->dtype;
    if (!(r->op->flags & CORE__OP_ORDERED)) {
        /* By the input's strides only, not the results'. */
        core__loop_order_by(&builder, r->nresults);
        core__loop_coalesce(&builder);
    }
    core__loop_finish(&builder, r->nresults);
    builder.loop.flags = 0;
    kernel =
        core__kernel_pick(r->set, dtypes, r->nresults + 1, builder.loop.ndim);
    run.device = r->input->device;
    run.op = r->call->op;
    if (core__unlikely(!kernel || kernel->supports ||
                       kernel->demands & CORE__CONSTRAINTS_OPERANDS))
        return compute_constrained(r, &run, &builder.loop, dtypes);
    return core__kernel_launch(&run, kernel, &builder.loop, r->args, r->nargs,
                               NULL, 0);
}

static core_status finish(reduction *r, core_value *results, uint32_t nresults)
{
    for (uint32_t k = 0; k < r->nresults; k++) {
        if (r->targets[k] && r->targets[k] != r->outputs[k]) {
            core__conversion_count(r->call->op, CORE_CONVERSION_RESULT);
            CORE_TRY(core__dispatch_copy(r->targets[k], r->outputs[k]));
        }
    }
    for (uint32_t k = 0; k < r->nresults && k < nresults; k++) {
        core_tensor *result = r->targets[k] ? r->targets[k] : r->outputs[k];

        core__tensor_retain(result);
        results[k] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = result}};
    }
    return CORE_OK;
}

core_status core__reduction_run(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    reduction r;
    core_status status;
    uint32_t fixed;

    CORE_TRY(core__numbers_check_tags(call->op, args, nargs));
    memset(&r, 0, offsetof(reduction, sizes));
    memset(r.targets, 0, sizeof r.targets);
    memset(r.outputs, 0, sizeof r.outputs);
    r.copied = false;
    r.call = call;
    r.op = call->op;
    r.args = args;
    r.nargs = nargs;
    r.set = call->user;
    r.nresults = r.op->nresults;
    r.input = args[0].u.tensor;
    core__tensor_retain(r.input);
    if (r.op->variant == CORE__VARIANT_OUT) {
        fixed = r.op->nargs - r.nresults;
        for (uint32_t k = 0; k < r.nresults; k++)
            r.targets[k] = args[fixed + k].u.tensor;
    }
    status = read_dims(&r);
    if (status == CORE_OK)
        status = find_dtypes(&r);
    if (status == CORE_OK)
        status = find_sizes(&r);
    if (status == CORE_OK)
        status = check_numbers(&r);
    if (status == CORE_OK)
        status = make_outputs(&r);
    if (status == CORE_OK)
        status = compute(&r);
    if (status == CORE_OK)
        status = finish(&r, results, nresults);
    for (uint32_t k = 0; k < r.nresults; k++)
        core__tensor_release(r.outputs[k]);
    if (core__unlikely(status != CORE_OK))
        status = core__structured_fail(call, r.input->device, status, args,
                                       nargs, results, nresults);
    core__tensor_release(r.input);
    return status;
}
