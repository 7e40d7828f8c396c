/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Element-wise operators for every backend: promotion, numbers, broadcasting,
 * strides, in-place and out variants.  elementwise_fast_path.c handles the
 * plain case first. */

#include "base/thread.h"
#include "dispatch/kernel_constraints.h"
#include "dispatch/dispatch.h"
#include "dispatch/launch_log.h"
#include "dispatch/loop.h"
#include "dispatch/inference.h"
#include "dispatch/upcalls.h"
#include "ops_ids.h"
#include "tensor/dtype.h"
#include "tensor/layout.h"

#include <string.h>

typedef struct elementwise {
    core_call *call;
    const core_operator *op;
    const core_value *args;
    uint32_t nargs;
    core__kernel_set *set;
    core_device *device;
    uint32_t ninputs;
    core_tensor *inputs[CORE__OPERANDS_MAX]; /* NULL: a number */
    core_scalar numbers[CORE__OPERANDS_MAX];
    /* NONE: the dtype of the computation */
    core_dtype number_dtypes[CORE__OPERANDS_MAX];
    bool owned[CORE__OPERANDS_MAX]; /* inputs created here */
    bool copied; /* copied for a kernel's constraints: never again */
    core_dtype compute;
    core_dtype result;
    uint32_t ndim;
    int64_t sizes[CORE_MAX_NDIM];
} elementwise;

static bool is_number(const core_value *value)
{
    return value->tag == CORE_VALUE_INT || value->tag == CORE_VALUE_FLOAT ||
           value->tag == CORE_VALUE_BOOL;
}

/* -------------------------------------------------------- general path -- */

static core_status gather(elementwise *e)
{
    const core__operator_data *data = e->op->data;
    uint32_t absent = 0;

    e->ninputs = 0;
    for (uint32_t k = 0; k < data->operands; k++) {
        uint32_t position = data->operand[k];
        const core_value *value = &e->args[position];

        e->inputs[e->ninputs] = NULL;
        e->number_dtypes[e->ninputs] = CORE_DTYPE_NONE;
        e->owned[e->ninputs] = false;
        if (value->tag == CORE_VALUE_TENSOR)
            e->inputs[e->ninputs++] = value->u.tensor;
        else if (is_number(value))
            e->numbers[e->ninputs++] = *value;
        else if (value->tag != CORE_VALUE_NONE ||
                 !(e->op->tensors >> position & 1))
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, e->op,
                                  "argument %u is neither a tensor nor a "
                                  "number",
                                  position + 1);
        else
            absent |= 1u << position;
    }
    /* The optional tensors: at least one of them is present. */
    if (absent && absent == (e->op->tensors & ~e->op->required))
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, e->op,
            "all optional tensors are absent; at least one is needed");
    return CORE_OK;
}

/* Position of the argument that is written. */
static uint32_t target_at(const core_operator *op)
{
    return op->variant == CORE__VARIANT_OUT ? op->nargs - 1u : 0;
}

static core_status find_device(elementwise *e, core_tensor *output)
{
    core_tensor *tensors[CORE__OPERANDS_MAX + 1] = {output};
    uint32_t count = output != NULL;

    for (uint32_t k = 0; k < e->ninputs; k++)
        if (e->inputs[k])
            tensors[count++] = e->inputs[k];
    CORE_TRY(core__device_of(e->op, tensors, count, &e->device));
    return output
               ? core__target_check(e->op, target_at(e->op), output, e->device)
               : CORE_OK;
}

/* The category decides first; within one, tensors with dimensions outrank
 * 0-dim tensors, which outrank numbers. */
static core_dtype common_dtype(const elementwise *e)
{
    core_dtype ranks[3] = {0}; /* dimensions, 0-dim, numbers */
    core_dtype common = CORE_DTYPE_NONE;

    for (uint32_t k = 0; k < e->ninputs; k++) {
        const core_tensor *tensor = e->inputs[k];
        uint32_t rank = 2;
        core_dtype dtype;

        if (e->op->data->keep_dtype >> k & 1)
            continue;
        if (tensor && !(tensor->flags & CORE__TENSOR_NUMBER)) {
            rank = tensor->ndim > 0 ? 0 : 1;
            dtype = tensor->dtype;
        } else if (tensor) {
            dtype = core__dtype_is_floating(tensor->dtype)
                        ? core__dtype_default()
                        : tensor->dtype;
        } else {
            dtype = e->numbers[k].tag == CORE_VALUE_FLOAT
                        ? core__dtype_default()
                    : e->numbers[k].tag == CORE_VALUE_INT ? CORE_I64
                                                          : CORE_BOOL;
        }
        if (core__dtype_is_storage(dtype))
            return dtype;
        ranks[rank] =
            ranks[rank] ? core__dtype_promote(ranks[rank], dtype) : dtype;
    }
    for (uint32_t rank = 0; rank < 3; rank++) {
        if (!ranks[rank])
            continue;
        if (!common ||
            core__dtype_category(ranks[rank]) > core__dtype_category(common))
            common = ranks[rank];
    }
    return common;
}

core_dtype core__elementwise_common_dtype(const core_operator *op,
                                          const core_value *args)
{
    elementwise e = {.op = op, .args = args, .nargs = op->nargs};

    return gather(&e) == CORE_OK ? common_dtype(&e) : CORE_DTYPE_NONE;
}

static core_status find_dtypes(elementwise *e)
{
    core_dtype first = CORE_DTYPE_NONE;

    switch (e->op->data->promotion) {
    case CORE__PROMOTE_NONE:
        for (uint32_t k = 0; k < e->ninputs; k++) {
            if (!e->inputs[k] || e->op->data->keep_dtype >> k & 1)
                continue;
            if (!first)
                first = e->inputs[k]->dtype;
            if (e->inputs[k]->dtype != first)
                return core__op_error(CORE_ERROR_DTYPE, e->op,
                                      "the operands have the dtypes %s and %s, "
                                      "which must be equal",
                                      core__dtype_name(first),
                                      core__dtype_name(e->inputs[k]->dtype));
        }
        e->compute = e->result = first;
        return core__dtype_check_computable(e->op, first);
    case CORE__PROMOTE_OWN:
        for (uint32_t k = e->ninputs; k-- > 0;)
            if (e->inputs[k] && !(e->op->data->keep_dtype >> k & 1))
                first = e->inputs[k]->dtype;
        e->compute = CORE_DTYPE_NONE;
        e->result = first;
        return CORE_OK;
    default:
        e->compute = common_dtype(e);
        CORE_TRY(core__dtype_check_computable(e->op, e->compute));
        if (e->op->data->promotion == CORE__PROMOTE_FLOAT &&
            !core__dtype_is_floating(e->compute))
            e->compute = core__dtype_default();
        e->result = e->op->data->promotion == CORE__PROMOTE_BOOL ? CORE_BOOL
                                                                 : e->compute;
        return CORE_OK;
    }
}

static core_status find_sizes(elementwise *e)
{
    e->ndim = 0;
    for (uint32_t k = 0; k < e->ninputs; k++) {
        if (!e->inputs[k] || e->inputs[k]->ndim == 0)
            continue;
        CORE_TRY(core__sizes_broadcast(e->op, e->ndim, e->sizes,
                                       e->inputs[k]->ndim, e->inputs[k]->sizes,
                                       &e->ndim, e->sizes));
    }
    return CORE_OK;
}

/* Converts input k to its dtype in the computation; 0-dim tensors on the host
 * become numbers if they must be converted or are on another device. */
static core_status convert(elementwise *e, uint32_t k)
{
    core_tensor *tensor = e->inputs[k];
    core_dtype target =
        e->op->data->keep_dtype >> k & 1 ? CORE_DTYPE_NONE : e->compute;
    core_tensor *cast;

    if (!tensor)
        return CORE_OK;
    e->number_dtypes[k] = target ? target : tensor->dtype;
    if (core__tensor_is_meta(tensor) || e->device->meta)
        return CORE_OK;
    if (tensor->device != e->device ||
        (tensor->ndim == 0 && target && tensor->dtype != target &&
         core__device_host_access(tensor->device))) {
        core_memory memory = core__tensor_memory(tensor);

        CORE_TRY(core__launch_log_check("it reads a tensor on the host"));
        e->numbers[k] = core__element_load(
            tensor->dtype, (char *)memory.handle + memory.offset);
        e->inputs[k] = NULL;
        return CORE_OK;
    }
    if (!target || tensor->dtype == target)
        return CORE_OK;
    core__conversion_count(e->call->op, CORE_CONVERSION_CAST);
    CORE_TRY(core__tensor_cast(tensor, target, &cast));
    e->inputs[k] = cast;
    e->owned[k] = true;
    return CORE_OK;
}

/* Checks that the result may be cast to the dtype of an in-place or out
 * target. */
static core_status check_target_dtype(const elementwise *e,
                                      const core_tensor *target)
{
    if (core__dtype_category(target->dtype) >=
            core__dtype_category(e->result) &&
        (!core__dtype_is_storage(target->dtype) ||
         core__dtype_is_storage(e->result)))
        return CORE_OK;
    return core__op_error(CORE_ERROR_DTYPE, e->op,
                          "the result is %s and cannot be stored in a "
                          "tensor of %s",
                          core__dtype_name(e->result),
                          core__dtype_name(target->dtype));
}

/* In place: the other operands broadcast to self. */
static core_status fit_loop(elementwise *e, const core_tensor *target)
{
    char expected[128];
    char given[128];
    bool same = e->ndim <= target->ndim;

    for (uint32_t i = 0; same && i < e->ndim; i++) {
        int64_t size = e->sizes[e->ndim - 1 - i];

        same = size == target->sizes[target->ndim - 1 - i] || size == 1;
    }
    if (!same)
        return core__op_error(
            CORE_ERROR_SHAPE, e->op,
            "the operands broadcast to %s, which does not match the sizes %s "
            "of the tensor to be changed",
            core__sizes_text(e->ndim, e->sizes, expected, sizeof expected),
            core__sizes_text(target->ndim, target->sizes, given, sizeof given));
    e->ndim = target->ndim;
    memcpy(e->sizes, target->sizes, target->ndim * sizeof *e->sizes);
    return CORE_OK;
}

/* The equivalent of core__overlap_check for in-place and out variants. */
static core_status check_memory(const elementwise *e, const core_tensor *target)
{
    uint32_t written = target_at(e->op);

    if (core__layout_overlaps_itself(target))
        return core__overlap_self_error(e->op, written);
    if (core__unlikely(target->numel == 0))
        return core__overlap_check(e->op, e->args, e->nargs);
    for (uint32_t k = 0; k < e->ninputs; k++)
        if (e->inputs[k] &&
            core__layout_overlap(target, e->inputs[k]) == CORE__OVERLAP_PARTIAL)
            return core__overlap_shared_error(e->op, written,
                                              e->op->data->operand[k]);
    return CORE_OK;
}

static core_status check_target(elementwise *e, core_tensor *target)
{
    CORE_TRY(check_target_dtype(e, target));
    CORE_TRY(check_memory(e, target));
    if (e->op->variant == CORE__VARIANT_OUT)
        return core__out_resize(e->op, target_at(e->op), target, e->result,
                                e->ndim, e->sizes);
    return fit_loop(e, target);
}

/* True if some input spans the whole loop and is not row-major. */
static bool follows_strides(const elementwise *e)
{
    for (uint32_t k = 0; k < e->ninputs; k++)
        if (e->inputs[k] && !(e->inputs[k]->flags & CORE__TENSOR_CONTIGUOUS))
            return true;
    return false;
}

/* Adds an input to the loop that orders the strides of an output.  One that is
 * converted has the strides of the conversion; on meta, where nothing is
 * converted, it still has its own. */
static void add_ordered(const elementwise *e, core__loop_builder *builder,
                        uint32_t k)
{
    const core_tensor *input = e->inputs[k];
    bool kept = !e->compute || e->op->data->keep_dtype >> k & 1;
    int64_t strides[CORE_MAX_NDIM];

    if (kept || input->dtype == e->compute ||
        input->flags & CORE__TENSOR_DENSE) {
        core__loop_add(builder, input, 0);
        return;
    }
    core__layout_like(input, strides);
    core__loop_add_converted(builder, input, strides);
}

/* Creates an output in the stride order of the inputs. */
static core_status make_output(elementwise *e, core_tensor **out_output)
{
    core__loop_builder builder;
    uint8_t permutation[CORE_MAX_NDIM];
    int64_t strides[CORE_MAX_NDIM];
    int64_t stride = 1;

    if (!follows_strides(e))
        return core__tensor_new(e->device, e->result, e->ndim, e->sizes, NULL,
                                out_output);
    core__loop_begin(&builder, e->ndim, e->sizes);
    for (uint32_t k = 0; k < e->ninputs; k++)
        if (e->inputs[k])
            add_ordered(e, &builder, k);
    core__loop_order(&builder, permutation);
    for (uint32_t i = 0; i < e->ndim; i++) {
        strides[permutation[i]] = stride;
        stride *= builder.sizes[i] > 1 ? builder.sizes[i] : 1;
    }
    return core__tensor_new(e->device, e->result, e->ndim, e->sizes, strides,
                            out_output);
}

static core_status compute(elementwise *e, core_tensor *output);

/* True if a tensor satisfies the kernel's constraints (NULL: it must be
 * row-major) and has the dtype (NONE: any). */
static bool suits(const core_tensor *tensor, const core_kernel *kernel,
                  core_dtype common)
{
    return tensor->flags & CORE__TENSOR_CONTIGUOUS &&
           core__constraint_dtype(tensor->dtype, common) == tensor->dtype &&
           (!kernel || core__constraint_aligned_tensor(kernel, tensor));
}

static core_dtype number_dtype(const elementwise *e, uint32_t k,
                               const core_tensor *output)
{
    return e->number_dtypes[k] ? e->number_dtypes[k]
           : e->compute        ? e->compute
                               : output->dtype;
}

/* Computes with tensors of the loop's full size that satisfy the kernel. */
static core_status compute_contiguous(elementwise *e, core_tensor *output,
                                      const core_kernel *kernel,
                                      core_dtype common)
{
    core_tensor *result = output;
    core_status status = CORE_OK;

    e->copied = true;
    for (uint32_t k = 0; k < e->ninputs && status == CORE_OK; k++) {
        core_tensor *input = e->inputs[k];
        core_tensor *copy = NULL;

        if (!input) {
            e->number_dtypes[k] =
                core__constraint_dtype(number_dtype(e, k, output), common);
            continue;
        }
        if (input->numel == output->numel && suits(input, kernel, common))
            continue;
        CORE_TRY(core__tensor_new(e->device,
                                  core__constraint_dtype(input->dtype, common),
                                  e->ndim, e->sizes, NULL, &copy));
        core__conversion_count(e->call->op, CORE_CONVERSION_CONTIGUOUS);
        status = core__tensor_copy_broadcast(e->op, copy, input);
        if (e->owned[k])
            core__tensor_release(input);
        e->inputs[k] = copy;
        e->owned[k] = true;
    }
    if (status == CORE_OK && !suits(output, kernel, common))
        status = core__tensor_new(e->device,
                                  core__constraint_dtype(output->dtype, common),
                                  e->ndim, e->sizes, NULL, &result);
    if (status == CORE_OK)
        status = compute(e, result);
    if (status == CORE_OK && result != output) {
        core__conversion_count(e->call->op, CORE_CONVERSION_RESULT);
        status = core__dispatch_copy(output, result);
    }
    if (result != output)
        core__tensor_release(result);
    return status;
}

/* True if the loop satisfies the kernel; common as for suits. */
static bool loop_matches(const core_kernel *kernel, const core_device *device,
                         const core_loop *loop, core_dtype common)
{
    if ((common && kernel->demands & CORE_REQUIRE_EQUAL_DTYPES) ||
        (kernel->demands & CORE_REQUIRE_CONTIGUOUS &&
         !(loop->flags & CORE_LOOP_CONTIGUOUS)))
        return false;
    for (uint32_t k = 0; k < loop->noperands; k++)
        if (!(loop->operands[k].flags & CORE_OPERAND_IMMEDIATE) &&
            !core__constraint_aligned(kernel, device, loop->operands[k].memory))
            return false;
    return true;
}

/* For kernels with constraints or `supports`: uses the first that accepts the
 * call, or the call with copies of its tensors. */
static __attribute__((noinline)) core_status compute_constrained(
    elementwise *e, core_tensor *output, core__kernel_call *run,
    core_loop *loop, const core_dtype *dtypes)
{
    /* Copies are made with copy_, whose own operands therefore cannot be
     * copied. */
    bool copies = !e->copied && e->op->id != CORE_OP_COPY_;
    uint32_t count = e->ninputs + 1;
    const core_kernel *kernel;
    core_dtype common;

    kernel =
        core__constraint_pick_equal(e->set, dtypes, count, loop->ndim, &common);
    if (common && copies)
        return compute_contiguous(e, output, kernel, common);
    if (common)
        kernel = core__kernel_pick(e->set, dtypes, count, loop->ndim);
    for (; kernel;
         kernel = core__kernel_next(kernel, dtypes, count, loop->ndim)) {
        CORE_TRY(core__kernel_query_supports(e->call->op, e->set, e->device,
                                             dtypes, count, loop->ndim, loop,
                                             e->args, e->nargs, &kernel));
        if (!kernel)
            break;
        if (!loop_matches(kernel, e->device, loop, common)) {
            if (copies)
                return compute_contiguous(e, output, kernel, CORE_DTYPE_NONE);
        } else if (!(kernel->demands & CORE_REQUIRE_INDEX32)) {
            return core__kernel_launch(run, kernel, loop, e->args, e->nargs,
                                       NULL, 0);
        } else if (core__constraint_can_split(loop)) {
            return core__constraint_split(run, kernel, loop, e->args, e->nargs);
        }
    }
    /* A kernel may be limited to few dimensions. */
    if (copies && !(loop->flags & CORE_LOOP_CONTIGUOUS) &&
        core__kernel_pick(e->set, dtypes, count, 1))
        return compute_contiguous(e, output, NULL, CORE_DTYPE_NONE);
    return core__kernel_none_error(e->call->op, e->set, dtypes, count);
}

/* The input that an in-place operator changes is also its target. */
static core_status compute(elementwise *e, core_tensor *output)
{
    core__loop_builder builder;
    core__kernel_call run;
    core_dtype dtypes[CORE__OPERANDS_MAX + 1];
    const core_kernel *kernel;

    if (output->numel == 0 || core__tensor_is_meta(output))
        return CORE_OK;
    core__loop_begin(&builder, e->ndim, e->sizes);
    core__loop_add(&builder, output, CORE_OPERAND_OUTPUT);
    run.tensors[0] = output;
    run.ntensors = 1;
    dtypes[0] = output->dtype;
    for (uint32_t k = 0; k < e->ninputs; k++) {
        if (e->inputs[k]) {
            core__loop_add(&builder, e->inputs[k], 0);
            run.tensors[run.ntensors++] = e->inputs[k];
        } else {
            core__loop_add_number(&builder, number_dtype(e, k, output),
                                  e->numbers[k]);
        }
        dtypes[k + 1] = builder.operands[k + 1].dtype;
    }
    core__loop_order(&builder, NULL);
    core__loop_coalesce(&builder);
    core__loop_finish(&builder, 1);
    kernel =
        core__kernel_pick(e->set, dtypes, e->ninputs + 1, builder.loop.ndim);
    run.device = e->device;
    run.op = e->call->op;
    if (core__unlikely(!kernel || kernel->supports ||
                       kernel->demands & CORE__CONSTRAINTS_OPERANDS))
        return compute_constrained(e, output, &run, &builder.loop, dtypes);
    return core__kernel_launch(&run, kernel, &builder.loop, e->args, e->nargs,
                               NULL, 0);
}

static core_tensor *target_of(const elementwise *e)
{
    if (e->op->variant == CORE__VARIANT_INPLACE)
        return e->args[0].u.tensor;
    if (e->op->variant == CORE__VARIANT_OUT)
        return e->args[e->op->nargs - 1].u.tensor;
    return NULL;
}

static core_status prepare(elementwise *e, core_tensor *target)
{
    CORE_TRY(gather(e));
    CORE_TRY(find_device(e, target));
    CORE_TRY(find_dtypes(e));
    CORE_TRY(find_sizes(e));
    if (e->op->data->operands == 0 && target) {
        e->result = target->dtype; /* fill_ and similar operators */
    } else if (e->op->data->promotion == CORE__PROMOTE_OWN && target) {
        e->result = target->dtype; /* copy_ */
    }
    if (e->op->data->infer || e->op->data->integral_alpha)
        CORE_TRY(core__numbers_check(e->op, e->args, e->nargs, e->device,
                                     e->result, e->compute));
    if (target)
        CORE_TRY(check_target(e, target));
    for (uint32_t k = 0; k < e->ninputs; k++)
        CORE_TRY(convert(e, k));
    return CORE_OK;
}

/* copy_ is the only operator whose operands may be on different devices. */
static bool is_copy_across(const core_call *call, const core_value *args)
{
    return call->op->id == CORE_OP_COPY_ && args[1].tag == CORE_VALUE_TENSOR &&
           args[0].u.tensor->device != args[1].u.tensor->device;
}

static core_status copy_across(core_call *call, const core_value *args,
                               core_value *results, uint32_t nresults)
{
    core_tensor *target = args[0].u.tensor;
    core_tensor *source = args[1].u.tensor;
    bool non_blocking = args[2].tag == CORE_VALUE_BOOL && args[2].u.i;

    /* A broadcast source is expanded first, in temporary memory. */
    if (non_blocking && target->ndim == source->ndim &&
        memcmp(target->sizes, source->sizes,
               target->ndim * sizeof *target->sizes) == 0)
        CORE_TRY(core__dispatch_upcalls.tensor_copy(target, source, true));
    else
        CORE_TRY(core__tensor_copy_broadcast(call->op, target, source));
    if (nresults > 0) {
        core__tensor_retain(target);
        results[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = target}};
    }
    return CORE_OK;
}

core_status core__elementwise_general(core_call *call, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults)
{
    elementwise e;
    core_tensor *target;
    core_tensor *output = NULL;
    core_status status;

    CORE_TRY(core__numbers_check_tags(call->op, args, nargs));
    if (core__unlikely(is_copy_across(call, args))) {
        status = copy_across(call, args, results, nresults);
        if (status != CORE_OK && status != CORE_ERROR_OUT_OF_MEMORY)
            core__op_prefix_name(call->op);
        core__op_describe_arguments(call->op, status, args, nargs);
        return core__op_check_allocation(call->op, args[0].u.tensor->device,
                                         status);
    }
    e.call = call;
    e.op = call->op;
    e.args = args;
    e.nargs = nargs;
    e.set = call->user;
    e.device = NULL;
    e.ninputs = 0;
    e.copied = false;
    target = target_of(&e);
    status = prepare(&e, target);
    if (status != CORE_OK)
        goto done;
    if (target && target->dtype == e.result) {
        output = target;
        core__tensor_retain(output);
    } else {
        status = make_output(&e, &output);
        if (status != CORE_OK)
            goto done;
    }
    status = compute(&e, output);
    if (status == CORE_OK && target && target != output) {
        core__conversion_count(call->op, CORE_CONVERSION_RESULT);
        status = core__dispatch_copy(target, output);
    }
    if (status != CORE_OK || (target && nresults == 0))
        goto done;
    if (target) {
        core__tensor_retain(target);
        results[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = target}};
    } else {
        results[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = output}};
        output = NULL;
    }
done:
    for (uint32_t k = 0; k < e.ninputs; k++)
        if (e.owned[k])
            core__tensor_release(e.inputs[k]);
    core__tensor_release(output);
    if (core__unlikely(status != CORE_OK))
        status = core__structured_fail(call, e.device, status, args, nargs,
                                       results, nresults);
    return status;
}
