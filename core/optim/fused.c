/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Fused optimizer steps: one operator call updates many parameters on devices
 * with a kernel for it.  A call takes contiguous parameters of one device and
 * dtype with the same number of steps.  Parameters that share memory with
 * something that a step writes are stepped one by one. */

#include "optim/optimizer.h"

#include "base/error.h"
#include "base/memory.h"
#include "dispatch/structured.h"
#include "tensor/layout.h"
#include "tensor/tensor.h"

#include <libcore/autograd.h>
#include <libcore/device.h>
#include <libcore/ops.h>

#include <stdlib.h>

static bool dense(const core_tensor *tensor, const core_tensor *parameter)
{
    return tensor->device == parameter->device &&
           tensor->dtype == parameter->dtype &&
           core_tensor_is_contiguous(tensor, CORE_FORMAT_CONTIGUOUS);
}

/* False for invalid tensors: the single operators report the error. */
static bool eligible(const core__parameter *parameter, const core_tensor *grad)
{
    const core_tensor *tensor = parameter->tensor;

    if (!grad || tensor->numel == 0 || !dense(tensor, tensor) ||
        !dense(grad, tensor) || grad->numel != tensor->numel ||
        tensor->flags & (CORE__TENSOR_INFERENCE | CORE__TENSOR_READ_ONLY))
        return false;
    for (size_t k = 0; k < CORE__OPTIMIZER_SLOTS; k++)
        if (parameter->state[k] && !dense(parameter->state[k], tensor))
            return false;
    return true;
}

static bool can_share_step(const core__parameter *a, const core__parameter *b)
{
    return a->tensor->device == b->tensor->device &&
           a->tensor->dtype == b->tensor->dtype && a->steps == b->steps &&
           a->fresh == b->fresh && a->group == b->group &&
           !a->state[0] == !b->state[0];
}

/* Whether a kernel can step this parameter. */
static bool has_kernel(const core_optimizer *optimizer,
                       const core__parameter *parameter)
{
    core_tensor *tensor = parameter->tensor;
    const core_value list = {CORE_VALUE_TENSOR_LIST, 1, {.tensors = &tensor}};
    core_value args[16] = {list, list, list, list};
    const core__optimizer_table *table =
        core__group_of(optimizer, parameter)->table;
    core_operator *op = &core__operators[table->fused_op];

    /* The lists come first; scalars do not affect the choice. */
    for (uint32_t i = 0; i < 4; i++)
        if (!(op->lists >> i & 1))
            args[i] = (core_value){0};
    return core__kernel_exists(op, args, op->nargs, NULL, 0);
}

/* The number of elements from which an additional pass is worth its cost, and
 * the number from which a single operator uses several threads. */
enum { WORK = 4096, MUCH = 65536 };

static bool is_medium_size(const core_tensor *tensor)
{
    return tensor->numel >= WORK && tensor->numel < MUCH;
}

/* Whether a step of the parameter is one operator. */
static bool is_one_operator(const core_optimizer *optimizer,
                            const core__parameter *parameter)
{
    return core__group_of(optimizer, parameter)->table->one_operator;
}

/* Whether parameters that single operators would update in one thread each have
 * enough work for several threads together. */
static bool is_for_threads(const core_optimizer *optimizer)
{
    int64_t elements = 0;
    uint32_t threads;

    for (size_t i = 0; i < optimizer->count && elements < MUCH; i++) {
        const core__parameter *parameter = &optimizer->parameters[i];

        if (is_one_operator(optimizer, parameter) &&
            is_medium_size(parameter->tensor))
            elements += parameter->tensor->numel;
    }
    return elements >= MUCH && core_threads_get(&threads) == CORE_OK &&
           threads > 1;
}

/* Whether a fused step may be faster than single steps: it saves operators or
 * launches, or can use more threads. */
static bool is_worth_fusing(const core_optimizer *optimizer,
                            const core__parameter *parameter, bool for_threads)
{
    return !is_one_operator(optimizer, parameter) ||
           !parameter->tensor->device->synchronous ||
           (for_threads && is_medium_size(parameter->tensor));
}

/* Creates the state at the first step; the step overwrites the zeros as
 * needed. */
static core_status make_state(const core_optimizer *optimizer,
                              core__parameter *parameter)
{
    for (size_t k = 0; core_optimizer_state_name(optimizer, k); k++)
        if (!parameter->state[k])
            CORE_TRY(core_zeros_like(parameter->tensor, CORE_DTYPE_NONE, NULL,
                                     -1, &parameter->state[k]));
    return CORE_OK;
}

static void drop_state(core__parameter *parameter)
{
    for (size_t k = 0; k < CORE__OPTIMIZER_SLOTS; k++) {
        core_tensor_release(parameter->state[k]);
        parameter->state[k] = NULL;
    }
}

/* One fused call for the parameters with these indices. */
static core_status step_fused(core_optimizer *optimizer, core_tensor **tensors,
                              const size_t *indices, size_t count)
{
    core__parameter *first = &optimizer->parameters[indices[0]];
    bool begins = !first->state[0] || first->fresh;
    core__fused_lists lists = {.count = count, .begins = begins};
    core_status status = CORE_OK;

    lists.parameters = tensors;
    lists.grads = tensors + count;
    for (size_t k = 0; k < CORE__OPTIMIZER_SLOTS; k++)
        lists.state[k] = tensors + (2 + k) * count;
    for (size_t i = 0; i < count && status == CORE_OK; i++) {
        core__parameter *parameter = &optimizer->parameters[indices[i]];

        status = make_state(optimizer, parameter);
        lists.parameters[i] = parameter->tensor;
        lists.grads[i] = core_tensor_grad(parameter->tensor);
        for (size_t k = 0; k < CORE__OPTIMIZER_SLOTS; k++)
            lists.state[k][i] = parameter->state[k];
    }
    if (status == CORE_OK)
        status = core__group_of(optimizer, first)
                     ->table->fused(optimizer, first, &lists);
    for (size_t i = 0; i < count; i++) {
        core__parameter *parameter = &optimizer->parameters[indices[i]];

        if (status != CORE_OK && begins)
            drop_state(parameter);
        if (status == CORE_OK)
            status = core__step_count(optimizer, parameter, first);
    }
    return status;
}

/* Collects the parameters from i on that can step together with parameter i and
 * marks them as done. */
static size_t gather(const core_optimizer *optimizer, size_t i,
                     bool for_threads, uint8_t *done, size_t *indices)
{
    enum { TOGETHER = 4096 };
    const core__parameter *parameters = optimizer->parameters;
    size_t count = 0;

    for (size_t k = i; k < optimizer->count && count < TOGETHER; k++) {
        const core_tensor *grad;

        if (done[k] ||
            !is_worth_fusing(optimizer, &parameters[k], for_threads) ||
            !can_share_step(&parameters[i], &parameters[k]))
            continue;
        grad = core_tensor_grad(parameters[k].tensor);
        if (eligible(&parameters[k], grad)) {
            indices[count++] = k;
            done[k] = CORE__STEP_DONE;
        }
    }
    return count;
}

/* ------------------------------------------------------- shared memory -- */

enum { TENSORS = 2 + CORE__OPTIMIZER_SLOTS }; /* of a parameter */

typedef struct place {
    const void *space; /* the device (flat addresses) or the memory handle */
    uint64_t from, to; /* byte range within it */
    size_t owner;      /* the parameter's index */
    bool written;
} place;

static int by_address(const void *left, const void *right)
{
    const place *a = left, *b = right;

    if (a->space != b->space)
        return (uintptr_t)a->space < (uintptr_t)b->space ? -1 : 1;
    return a->from < b->from ? -1 : a->from > b->from;
}

/* Whether the tensor's memory may be shared: with another tensor of its
 * storage, with other holders of the same gradient or state tensor, or with
 * another storage on imported memory. */
static bool may_be_shared(const core_tensor *tensor, bool parameter)
{
    return tensor->storage->capacity == 0 ||
           atomic_load_explicit(&tensor->storage->references,
                                memory_order_relaxed) > 1 ||
           (!parameter && atomic_load_explicit(&tensor->references,
                                               memory_order_relaxed) > 1);
}

static void set_memory_range(place *at, const core_tensor *tensor)
{
    const core_memory memory = tensor->storage->memory;

    core__layout_bytes(tensor, &at->from, &at->to);
    at->space = memory.handle;
    if (tensor->device->flags & CORE_DEVICE_FLAT) {
        at->space = tensor->device;
        at->from += (uint64_t)(uintptr_t)memory.handle;
        at->to += (uint64_t)(uintptr_t)memory.handle;
    }
}

/* Lists the memory that steps read and write; with places NULL, only counts. */
static size_t list_memory(const core_optimizer *optimizer, place *places,
                          bool *out_shared)
{
    size_t count = 0;

    *out_shared = false;
    for (size_t i = 0; i < optimizer->count; i++) {
        const core__parameter *parameter = &optimizer->parameters[i];
        const core_tensor *tensors[TENSORS] = {
            parameter->tensor, core_tensor_grad(parameter->tensor)};

        for (size_t k = 0; k < CORE__OPTIMIZER_SLOTS; k++)
            tensors[2 + k] = parameter->state[k];
        for (size_t k = 0; tensors[1] && k < TENSORS; k++) {
            const core_tensor *tensor = tensors[k];
            place *at;

            if (!tensor || !tensor->storage || tensor->numel == 0)
                continue;
            *out_shared |= may_be_shared(tensor, k == 0);
            at = places ? &places[count] : NULL;
            count++;
            if (!at)
                continue;
            *at = (place){.owner = i, .written = k != 1};
            set_memory_range(at, tensor);
        }
    }
    return count;
}

/* Marks parameters whose memory overlaps, directly or through a third one, to
 * be stepped alone if any of that memory is written. */
static core_status mark_shared(const core_optimizer *optimizer, uint8_t *done)
{
    bool shared;
    size_t count = list_memory(optimizer, NULL, &shared), next;
    place *places;

    if (!shared)
        return CORE_OK;
    places = core__alloc(count * sizeof *places);
    if (!places)
        return core__error_memory(count * sizeof *places);
    list_memory(optimizer, places, &shared);
    qsort(places, count, sizeof *places, by_address);
    for (size_t i = 0; i < count; i = next) {
        bool written = places[i].written;
        uint64_t to = places[i].to;

        for (next = i + 1;
             next < count && places[next].space == places[i].space &&
             places[next].from < to;
             next++) {
            written |= places[next].written;
            to = places[next].to > to ? places[next].to : to;
        }
        for (size_t k = i; written && next - i > 1 && k < next; k++)
            done[places[k].owner] = CORE__STEP_ALONE;
    }
    core__free(places);
    return CORE_OK;
}

core_status core__optimizer_fused(core_optimizer *optimizer, uint8_t *done)
{
    bool for_threads = is_for_threads(optimizer);
    size_t n = optimizer->count, i = 0;
    core_status status;
    core_tensor **tensors = NULL;
    size_t *indices = NULL;

    while (i < n &&
           !is_worth_fusing(optimizer, &optimizer->parameters[i], for_threads))
        i++;
    status = i < n ? mark_shared(optimizer, done) : CORE_OK;
    for (; i < n && status == CORE_OK; i++) {
        core__parameter *parameter = &optimizer->parameters[i];
        size_t count;

        if (done[i] || !is_worth_fusing(optimizer, parameter, for_threads) ||
            !eligible(parameter, core_tensor_grad(parameter->tensor)) ||
            !has_kernel(optimizer, parameter))
            continue;
        if (!tensors) {
            tensors =
                core__alloc(n * ((2 + CORE__OPTIMIZER_SLOTS) * sizeof *tensors +
                                 sizeof *indices));
            if (!tensors)
                return core__error_memory(n * sizeof *tensors);
            indices = (size_t *)(tensors + (2 + CORE__OPTIMIZER_SLOTS) * n);
        }
        count = gather(optimizer, i, for_threads, done, indices);
        status = step_fused(optimizer, tensors, indices, count);
        if (status != CORE_OK)
            core__error_prefix("optimizer, %zu parameters from number %zu",
                               count, i);
    }
    core__free(tensors);
    return status;
}
