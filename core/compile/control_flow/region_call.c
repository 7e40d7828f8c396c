/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Calls the functions of branches and loops. */

#include "compile/control_flow/region_calls.h"

#include "base/callback.h"
#include "base/memory.h"
#include "base/thread.h"
#include "dispatch/inference.h"
#include "tensor/batched.h"
#include "tensor/dtype.h"
#include "tensor/layout.h"

#include <libcore/ops.h>

#include <string.h>

void core__region_release_all(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        core_tensor_release(tensors[i]);
        tensors[i] = NULL;
    }
}

bool core__region_is_row_major(const core_tensor *tensor)
{
    int64_t strides[CORE_MAX_NDIM];

    core__layout_contiguous(tensor->ndim, tensor->sizes, strides);
    return memcmp(strides, tensor->strides, tensor->ndim * sizeof *strides) ==
           0;
}

/* True if nothing else refers to the tensor or its memory. */
static bool is_own(const core_tensor *tensor)
{
    return atomic_load(&tensor->references) == 1 && !tensor->base &&
           tensor->storage && atomic_load(&tensor->storage->references) == 1 &&
           core__region_is_row_major(tensor);
}

core_status core__region_make_own(core_tensor **tensor)
{
    core_tensor *copy;

    if (is_own(*tensor))
        return CORE_OK;
    CORE_TRY(core_clone(*tensor, CORE_FORMAT_CONTIGUOUS, &copy));
    core_tensor_release(*tensor);
    *tensor = copy;
    return CORE_OK;
}

static core_status check_count(const core__region *region,
                               core_tensor *const *outputs, size_t count)
{
    if (count != region->noutputs)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: %s returned %zu outputs; it must return %zu",
                           region->name, region->part, count, region->noutputs);
    for (size_t i = 0; i < count; i++)
        if (!outputs[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "%s: %s left output %zu NULL", region->name,
                               region->part, i);
    return CORE_OK;
}

core_status core__region_call(const core__region *region,
                              core_tensor *const *inputs, core_tensor **outputs)
{
    uint32_t errors = core__error_sequence();
    size_t count = region->noutputs;
    core_status status;

    for (size_t i = 0; i < region->noutputs; i++)
        outputs[i] = NULL;
    status = region->function(region->context, inputs, region->ninputs, outputs,
                              &count);
    status = core__callback_status(errors, status, region->name);
    if (status == CORE_OK)
        status = check_count(region, outputs, count);
    for (size_t i = 0; i < region->noutputs && status == CORE_OK; i++)
        status = core__region_make_own(&outputs[i]);
    if (status != CORE_OK)
        core__region_release_all(outputs, region->noutputs);
    return status;
}

core_status core__region_check_predicate(const char *name, const char *what,
                                         const core_tensor *predicate)
{
    if (predicate->dtype != CORE_BOOL)
        return core__error(CORE_ERROR_DTYPE, "%s: %s is %s; it must be bool",
                           name, what, core__dtype_name(predicate->dtype));
    if (predicate->numel != 1)
        return core__error(CORE_ERROR_SHAPE,
                           "%s: %s has %lld elements; it must have one", name,
                           what, (long long)predicate->numel);
    return CORE_OK;
}

/* A lazy region records the operators of what is called. */
bool core__region_is_recording(void)
{
    const core__thread *self = core__thread_self();

    return self->trace && !self->lazy;
}

core_status core__region_read_predicate(core_tensor *predicate, bool *out)
{
    core_scalar value;

    CORE_TRY(core_tensor_item(predicate, &value));
    *out = value.u.i != 0;
    return CORE_OK;
}

/* Whether it differs between the samples of core_vmap. */
bool core__region_is_mapped(core_tensor *tensor)
{
    return core__tensor_is_batched(core__batched_shared(tensor));
}

/* The dtype, sizes and device of a tensor are those of another one. */
core_status core__region_check_same(const core__region *region, size_t output,
                                    const core_tensor *tensor,
                                    const core_tensor *expected, const char *of)
{
    char given[160], wanted[160];

    if (tensor->dtype != expected->dtype)
        return core__error(
            CORE_ERROR_DTYPE, "%s: output %zu of %s is %s; %s is %s",
            region->name, output, region->part, core__dtype_name(tensor->dtype),
            of, core__dtype_name(expected->dtype));
    if (tensor->ndim != expected->ndim ||
        memcmp(tensor->sizes, expected->sizes,
               tensor->ndim * sizeof *tensor->sizes) != 0)
        return core__error(
            CORE_ERROR_SHAPE, "%s: output %zu of %s has sizes %s; %s has %s",
            region->name, output, region->part,
            core__sizes_text(tensor->ndim, tensor->sizes, given, sizeof given),
            of,
            core__sizes_text(expected->ndim, expected->sizes, wanted,
                             sizeof wanted));
    if (tensor->device != expected->device)
        return core__error(CORE_ERROR_DEVICE,
                           "%s: output %zu of %s is on \"%s\"; %s is on \"%s\"",
                           region->name, output, region->part,
                           tensor->device->name, of, expected->device->name);
    return CORE_OK;
}

core_status core__region_loop_step(const core__region *body,
                                   core_tensor **state)
{
    core_tensor **next = core__alloc_zero((body->noutputs + 1) * sizeof *next);
    core_status status;

    if (!next)
        return core__error_memory(body->noutputs * sizeof *next);
    status = core__region_call(body, state, next);
    for (size_t i = 0; i < body->noutputs && status == CORE_OK; i++)
        status =
            core__region_check_same(body, i, next[i], state[i], "the input");
    for (size_t i = 0; i < body->noutputs && status == CORE_OK; i++) {
        core_tensor *before = state[i];

        state[i] = next[i];
        next[i] = before;
    }
    core__region_release_all(next, body->noutputs);
    core__free(next);
    return status;
}

/* For samples that take different branches: both are called, and each sample gets
 * its elements. */
core_status core__region_call_both(const core__region *branches,
                                   core_tensor *predicate,
                                   core_tensor **outputs)
{
    size_t count = branches->noutputs;
    core_tensor **others = core__alloc_zero((count + 1) * sizeof *others);
    core_tensor *chosen = NULL;
    core_status status;

    if (!others)
        return core__error_memory(count * sizeof *others);
    status = core_reshape(predicate, NULL, 0, &chosen);
    if (status == CORE_OK)
        status = core__region_call(&branches[0], branches->inputs, outputs);
    if (status == CORE_OK)
        status = core__region_call(&branches[1], branches->inputs, others);
    for (size_t i = 0; i < count && status == CORE_OK; i++) {
        core_tensor *yes = outputs[i];

        outputs[i] = NULL;
        status = core__region_check_same(&branches[1], i, others[i], yes,
                                         "that of then_function");
        if (status == CORE_OK)
            status = core_where(chosen, yes, others[i], &outputs[i]);
        core_tensor_release(yes);
    }
    core_tensor_release(chosen);
    core__region_release_all(others, count);
    core__free(others);
    if (status != CORE_OK)
        core__region_release_all(outputs, count);
    return status;
}

bool core__region_is_differentiated(void)
{
    const core__thread *self = core__thread_self();

    return !self->no_grad && !(self->excluded & (uint32_t)CORE__KEY_AUTOGRAD);
}

core_status core__region_loop_decide(const core__region *condition,
                                     core_tensor *const *state, bool *out_more)
{
    core_tensor *predicate;
    core_status status;

    *out_more = false;
    CORE_TRY(core__region_call(condition, state, &predicate));
    status = core__region_check_predicate(condition->name,
                                          "the output of condition", predicate);
    if (status == CORE_OK && core__region_is_mapped(predicate))
        status = core__error(CORE_ERROR_UNSUPPORTED,
                             "%s: the output of condition differs between the "
                             "samples of core_vmap, which must have the same "
                             "number of iterations; use core_where in the body",
                             condition->name);
    if (status == CORE_OK)
        status = core__region_read_predicate(predicate, out_more);
    core_tensor_release(predicate);
    return status;
}

core_status core__region_loop_begin(core_tensor *const *inputs, size_t ninputs,
                                    core_tensor **state)
{
    for (size_t i = 0; i < ninputs; i++) {
        if (core__region_is_row_major(inputs[i]))
            state[i] = core_tensor_retain(inputs[i]);
        else
            CORE_TRY(core_clone(inputs[i], CORE_FORMAT_CONTIGUOUS, &state[i]));
    }
    return CORE_OK;
}
