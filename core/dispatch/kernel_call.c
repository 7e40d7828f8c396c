/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The call that a kernel receives, and the services that the host table offers
 * it. */

#include "base/memory.h"
#include "base/observe.h"
#include "capture/capture.h"
#include "device/stream.h"
#include "dispatch/dispatch.h"
#include "dispatch/launch.h"
#include "dispatch/launch_log.h"
#include "dispatch/plan.h"
#include "dispatch/structured.h"
#include "dispatch/table.h"
#include "memory/memory.h"
#include "dispatch/inference.h"
#include "dispatch/upcalls.h"
#include "tensor/dtype.h"
#include "tensor/storage_check.h"

#include <stdio.h>
#include <string.h>

typedef struct scratch {
    struct scratch *next;
    core_memory memory;
    uint64_t capacity;
    struct core__block *block;
} scratch;

const core_kernel *core__kernel_pick(core__kernel_set *set,
                                     const core_dtype *dtypes, uint32_t count,
                                     uint32_t ndim)
{
    core__kernel *at =
        set ? atomic_load_explicit(&set->first, memory_order_acquire) : NULL;

    if (count > CORE_SIGNATURE_MAX)
        count = CORE_SIGNATURE_MAX;
    for (; at; at = at->next)
        if (core__kernel_accepts(&at->kernel, dtypes, count, ndim))
            return &at->kernel;
    return NULL;
}

core_status core__kernel_query_supports(
    const core_operator *op, core__kernel_set *set, const core_device *device,
    const core_dtype *dtypes, uint32_t count, uint32_t ndim,
    const core_loop *loop, const core_value *args, uint32_t nargs,
    const core_kernel **inout_kernel)
{
    const core_kernel *kernel = *inout_kernel;
    const core__kernel *at;
    core__error_record earlier;
    core_status status;

    if (!kernel || !kernel->supports)
        return CORE_OK;
    core__error_save(&earlier);
    while (kernel && kernel->supports) {
        core_call probe = {
            .struct_size = sizeof probe,
            .host = ((const core__kernel *)(const void *)kernel)->host,
            .user = kernel->user,
            .op = (core_operator *)(uintptr_t)op,
            .loop = loop,
            .device = device->impl,
        };

        status = kernel->supports(&probe, args, nargs);
        if (status == CORE_OK)
            break;
        if (status != CORE_ERROR_UNSUPPORTED) {
            *inout_kernel = kernel;
            return status;
        }
        if (kernel->demands & CORE_REQUIRE_NO_FALLBACK)
            return core_error_code() == status
                       ? status
                       : core__op_error(status, op,
                                        "the kernel of \"%s\" rejects these "
                                        "arguments, and allows no other kernel",
                                        set->backend->type);
        core_error_clear();
        at = ((const core__kernel *)(const void *)kernel)->next;
        while (at && !core__kernel_accepts(&at->kernel, dtypes,
                                           count < CORE_SIGNATURE_MAX
                                               ? count
                                               : CORE_SIGNATURE_MAX,
                                           ndim))
            at = at->next;
        kernel = at ? &at->kernel : NULL;
    }
    core__error_restore(&earlier);
    *inout_kernel = kernel;
    return CORE_OK;
}

bool core__kernel_exists(core_operator *op, const core_value *args,
                         uint32_t nargs, const core_dtype *results,
                         uint32_t nresults)
{
    enum { MOST = 16 };
    core_value values[MOST];
    core_view views[MOST];
    core_dtype dtypes[CORE_SIGNATURE_MAX];
    const core_device *device = NULL;
    const core_kernel *kernel;
    core__error_record earlier;
    core__kernel_set *set;
    uint32_t count = 0, ndim = 0;
    bool exists;

    for (uint32_t i = 0; i < nargs && i < MOST; i++) {
        bool list = args[i].tag == CORE_VALUE_TENSOR_LIST;
        core_tensor *tensor = args[i].tag == CORE_VALUE_TENSOR
                                  ? args[i].u.tensor
                              : list && args[i].count ? args[i].u.tensors[0]
                                                      : NULL;

        values[i] = args[i];
        if ((op->tensors | op->lists) >> i & 1 && count < CORE_SIGNATURE_MAX)
            dtypes[count++] = tensor ? tensor->dtype : CORE_DTYPE_NONE;
        if (!tensor)
            continue;
        if (device && tensor->device != device)
            return false;
        device = tensor->device;
        core__tensor_fill_view(tensor, &views[i]);
        values[i] = list
                        ? (core_value){0}
                        : (core_value){CORE_VALUE_VIEW, 0, {.view = &views[i]}};
        ndim = tensor->ndim > ndim ? tensor->ndim : ndim;
    }
    for (uint32_t i = 0; i < nresults && count < CORE_SIGNATURE_MAX; i++)
        dtypes[count++] = results[i];
    if (!device || device->meta)
        return false;
    core__registry_lock();
    set = core__registry_set(core__operator_kernel(op), device->backend);
    core__registry_unlock();
    kernel = core__kernel_pick(set, dtypes, count, ndim);
    core__error_save(&earlier);
    exists =
        kernel &&
        core__kernel_query_supports(op, set, device, dtypes, count, ndim, NULL,
                                    values, nargs, &kernel) == CORE_OK &&
        kernel;
    core__error_restore(&earlier);
    return exists;
}

/* "f64|f32"; at most 50 characters. */
static size_t write_dtypes(char *text, size_t capacity, uint32_t mask)
{
    size_t length = 0;

    if (mask == CORE__DTYPES_OF_0_1)
        return (size_t)snprintf(text, capacity, "any");
    for (; mask && length < capacity; mask &= mask - 1)
        length += (size_t)snprintf(
            text + length, capacity - length, "%s%s", length ? "|" : "",
            core__dtype_name((core_dtype)__builtin_ctz(mask)));
    return length;
}

core_status core__kernel_none_error(const core_operator *op,
                                    core__kernel_set *set,
                                    const core_dtype *dtypes, uint32_t count)
{
    const char *device = set && set->backend ? set->backend->type : "?";
    core__kernel *at = set ? atomic_load(&set->first) : NULL;
    char available[256] = "";
    size_t length = 0;
    bool taken = core__kernel_pick(set, dtypes, count, 0) != NULL;

    core__error_set_aside(); /* for core__fallback */
    for (; at && length < sizeof available - 64; at = at->next) {
        length +=
            (size_t)snprintf(available + length, sizeof available - length,
                             "%s(", length ? " " : "");
        for (uint32_t i = 0; i < count && i < CORE_SIGNATURE_MAX; i++) {
            if (i)
                available[length++] = ',';
            length +=
                write_dtypes(available + length, sizeof available - length,
                             at->kernel.signature[i]);
            if (length >= sizeof available - 64)
                break;
        }
        length += (size_t)snprintf(available + length,
                                   sizeof available - length, ")");
    }
    {
        char expected[128] = "";
        size_t at_expected = 0;

        for (uint32_t i = 0; i < count && at_expected < 100; i++)
            at_expected += (size_t)snprintf(
                expected + at_expected, sizeof expected - at_expected, "%s%s",
                i ? "," : "", core__dtype_name(dtypes[i]));
        if (taken)
            return core__op_error(
                CORE_ERROR_NO_KERNEL, op,
                "\"%s\" has kernels of %s for the dtypes (%s), but none "
                "accepts "
                "the rank, sizes, alignment or arguments of this call",
                device, core__operator_kernel_name(op), expected);
        return core__op_error(CORE_ERROR_NO_KERNEL, op,
                              "\"%s\" has no kernel of %s for the dtypes (%s), "
                              "results first; it has %s",
                              device, core__operator_kernel_name(op), expected,
                              *available ? available : "none");
    }
}

/* Devices with streams can be lost and reset: memory from before is
 * rejected. */
static core_status check_memory(const core__kernel_call *run)
{
    core_tensor *const *tensors =
        run->ntensors > CORE__KERNEL_TENSORS ? run->many : run->tensors;

    for (uint32_t i = 0; i < run->ntensors; i++)
        if (tensors[i]->storage)
            CORE_TRY(core__storage_check(tensors[i]->storage));
    return CORE_OK;
}

static void __attribute__((cold, noinline))
kernel_failed(const core__kernel_call *run, core_status status, bool silent)
{
    if (silent)
        core__op_error(status, run->op,
                       status == CORE_ERROR_OUT_OF_MEMORY
                           ? "the kernel of \"%s\" ran out of memory"
                           : "the kernel of \"%s\" failed and gave no reason",
                       run->device->name);
    else
        core__op_prefix_name(run->op);
    core__op_check_allocation(run->op, run->device, status);
}

core_status core__kernel_launch_finish(core__kernel_call *run,
                                       core__thread *self, core_status status,
                                       uint32_t errors)
{
    while (core__unlikely(run->scratch != NULL)) {
        scratch *item = (scratch *)run->scratch;

        run->scratch = (struct core__scratch *)item->next;
        core__memory_free(run->device, item->memory, item->capacity,
                          item->block);
        core__free(item);
    }
    if (core__unlikely(status != CORE_OK))
        kernel_failed(run, status, self->error.sequence == errors);
    else
        core__thread_increment(&self->launches[run->device->launch_slot]);
    return status;
}

static core_status __attribute__((noinline))
launch_observed(core_stream *stream, core__kernel_call *run,
                const core_kernel *kernel, const core_value *args,
                uint32_t nargs, core_value *results, uint32_t nresults)
{
    void *work = core__observe_work(stream, core__operator_name(run->op),
                                    run->call.id, CORE__WORK_KERNEL);
    core_status status =
        kernel->launch(&run->call, args, nargs, results, nresults);

    core__observe_work_end(work, stream);
    return status;
}

core_status core__kernel_launch(core__kernel_call *run,
                                const core_kernel *kernel,
                                const core_loop *loop, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    core_device *device = run->device;
    core__thread *self = core__thread_self();
    core_stream *stream = device->stream;
    core_call *call = &run->call;
    core__plan *plan = NULL;
    uint32_t errors = self->error.sequence;
    core_status status;

    if (core__unlikely(self->streams != NULL)) {
        if (self->launch_log) /* its thread has an array of streams */
            return core__launch_log_add(self->launch_log, run, kernel, loop,
                                        args, nargs, results, nresults);
        stream = core__stream_current_slow(self, device);
    }
    core__kernel_call_fill(run, self, stream->impl,
                           (const core__kernel *)(const void *)kernel, loop);
    if (core__unlikely(!call->kernel_op)) /* of an operator without a table */
        call->kernel_op = core__operator_kernel(run->op);
    if (core__unlikely(stream->capture != NULL)) {
        call->flags |= CORE_CALL_CAPTURING;
        core__capture_count_work(stream);
    }
    if (core__unlikely(!device->synchronous)) {
        /* Only asynchronous devices need to distinguish calls. */
        call->id = core__call_number();
        CORE_TRY(core__stream_check(stream));
        CORE_TRY(check_memory(run));
    }
    if (core__unlikely(kernel->prepare != NULL)) {
        CORE_TRY(core__plan_find(run, kernel, args, nargs, results, nresults,
                                 &plan));
        call->plan = core__plan_handle(plan);
    }
    if (core__unlikely(!device->synchronous && core__observer_now()))
        status = launch_observed(stream, run, kernel, args, nargs, results,
                                 nresults);
    else
        status = kernel->launch(call, args, nargs, results, nresults);
    if (core__unlikely(plan != NULL))
        core__plan_release(plan);
    status = core__kernel_launch_finish(run, self, status, errors);
    if (device->synchronous)
        return status;
    if (core__unlikely(status != CORE_OK))
        return core__stream_check_submitted(stream, status, errors);
    return core__op_check_allocation(
        run->op, device, core__stream_record_launch(stream, run->op, call->id));
}

core_status core__call_scratch(core_call *call, uint64_t size,
                               core_memory *out_memory)
{
    core__kernel_call *run = call->core;
    scratch *item;
    core_status status;

    *out_memory = (core_memory){0};
    item = core__alloc(sizeof *item);
    if (!item)
        return core__error_memory(sizeof *item);
    status = core__memory_alloc(run->device, size, &item->memory,
                                &item->capacity, &item->block);
    if (status != CORE_OK) {
        core__free(item);
        return status;
    }
    item->next = (scratch *)run->scratch;
    run->scratch = (struct core__scratch *)item;
    *out_memory = item->memory;
    return CORE_OK;
}

core_status core__call_record_stream(core_call *call, void *stream)
{
    core__kernel_call *run = call ? call->core : NULL;
    core_tensor *const *tensors;

    if (!run || run->ntensors == 0)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "call_record_stream: the call is not that of a "
                           "running kernel with tensors");
    tensors = run->ntensors > CORE__KERNEL_TENSORS ? run->many : run->tensors;
    for (uint32_t i = 0; i < run->ntensors; i++)
        CORE_TRY(core__tensor_record_handle(tensors[i], stream));
    for (uint32_t i = 0; i < sizeof run->allocated / sizeof *run->allocated;
         i++)
        if (run->op->flags & CORE__OP_DYNAMIC_OUTPUT && run->allocated[i])
            CORE_TRY(core__tensor_record_handle(run->allocated[i], stream));
    for (scratch *s = (scratch *)run->scratch; s; s = s->next)
        CORE_TRY(core__memory_record_handle(run->device, s->block, stream));
    return CORE_OK;
}

core_status core__host_record_stream(core_tensor *tensor, void *stream)
{
    if (!tensor)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "tensor_record_stream: the tensor is NULL");
    return core__tensor_record_handle(tensor, stream);
}

/* The running call's tensor that a view shows; NULL: it shows none. */
static core_tensor *tensor_of(const core__kernel_call *run,
                              const core_view *view)
{
    core_tensor *const *tensors =
        run->ntensors > CORE__KERNEL_TENSORS ? run->many : run->tensors;

    for (uint32_t i = 0; i < run->ntensors; i++) {
        core_memory memory = core__tensor_memory(tensors[i]);

        if (tensors[i]->sizes == view->sizes &&
            memory.handle == view->memory.handle &&
            memory.offset == view->memory.offset)
            return tensors[i];
    }
    return NULL;
}

core_status core__call_view_content(const core_call *call,
                                    const core_view *view,
                                    core_view_content *out_content)
{
    core_view_content content = {.struct_size = sizeof content};
    core__kernel_call *run = call ? call->core : NULL;
    core_tensor *tensor = run && view ? tensor_of(run, view) : NULL;

    CORE__NOT_NULL(out_content);
    if (out_content->struct_size <= 2 * sizeof(uint32_t))
        return core__error_struct_size("call_view_content", "core_view_content",
                                       out_content->struct_size,
                                       sizeof content);
    if (!tensor || !tensor->storage)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "call_view_content: the view is not one of the "
                           "running call's arguments or results");
    content.storage = core__storage_number(tensor->storage);
    /* Both only increase, so the sum changes if one does. */
    content.version = (uint64_t)core__tensor_version(tensor) +
                      atomic_load(&tensor->device->graphs);
    core__device_copy_struct(out_content, &content, sizeof content);
    return CORE_OK;
}

core_status core__call_allocate_result(core_call *call, uint32_t index,
                                       core_dtype dtype, uint32_t ndim,
                                       const int64_t *sizes,
                                       const core_view **out_view)
{
    core__kernel_call *run = call->core;
    uint32_t limit = sizeof run->allocated / sizeof *run->allocated;

    *out_view = NULL;
    if (!(run->op->flags & CORE__OP_DYNAMIC_OUTPUT) || index >= limit ||
        index >= run->op->nresults)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, run->op,
                              "call_allocate_result: result %u is not one that "
                              "the kernel may allocate",
                              index);
    if (run->allocated[index])
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, run->op,
            "call_allocate_result: result %u is already allocated", index);
    CORE_TRY(core__tensor_new(run->device, dtype, ndim, sizes, NULL,
                              &run->allocated[index]));
    core__tensor_fill_view(run->allocated[index], &run->allocated_views[index]);
    *out_view = &run->allocated_views[index];
    return CORE_OK;
}

/* ------------------------------------------------------ deferred calls -- */

/* One block: the call, its loop with operands, sizes and strides, argument and
 * result values with their views and lists.  Their tensors' memory is ordered
 * by the stream and not retained. */
typedef struct deferred {
    core_call call;
    core__kernel_call run;
    char data[];
} deferred;

static size_t rounded(size_t size)
{
    return (size + 7) & ~(size_t)7;
}

/* Reserves and copies; if data is NULL (the measuring pass), only counts. */
static void *reserve(deferred *block, size_t *used, const void *from,
                     size_t size)
{
    char *to = block ? block->data + *used : NULL;

    *used += rounded(size);
    if (to && from)
        memcpy(to, from, size);
    return to;
}

static const core_view *copy_view(deferred *block, size_t *used,
                                  const core_view *view)
{
    size_t bytes = view->ndim * sizeof(int64_t);
    core_view *copy = reserve(block, used, view, sizeof *view);
    int64_t *sizes = reserve(block, used, view->sizes, bytes);
    int64_t *strides = reserve(block, used, view->strides, bytes);

    if (copy) {
        copy->sizes = sizes;
        copy->strides = strides;
    }
    return copy;
}

static void copy_value(deferred *block, size_t *used, const core_value *from,
                       core_value *to)
{
    const void *data = NULL;
    size_t item = 0;

    switch (from->tag) {
    case CORE_VALUE_VIEW:
        data = copy_view(block, used, from->u.view);
        if (to)
            to->u.view = data;
        return;
    case CORE_VALUE_VIEW_LIST: {
        const core_view **list =
            reserve(block, used, NULL, from->count * sizeof *list);

        for (uint32_t i = 0; i < from->count; i++) {
            const core_view *view =
                from->u.views[i] ? copy_view(block, used, from->u.views[i])
                                 : NULL;

            if (list)
                list[i] = view;
        }
        if (to)
            to->u.views = list;
        return;
    }
    case CORE_VALUE_STRING:
        item = 1;
        break;
    case CORE_VALUE_INT_LIST:
    case CORE_VALUE_FLOAT_LIST:
        item = 8;
        break;
    case CORE_VALUE_BOOL_LIST:
        item = 1;
        break;
    case CORE_VALUE_TENSOR:
        /* Opaque to a kernel, because its data is in the loop; but its
         * presence determines which operand is which. */
        return;
    case CORE_VALUE_TENSOR_LIST:
        if (to)
            *to = (core_value){0};
        return;
    default:
        return;
    }
    data = reserve(block, used, from->u.pointer,
                   from->count * item + (from->tag == CORE_VALUE_STRING));
    if (to)
        to->u.pointer = (void *)(uintptr_t)data;
}

static core_value *copy_values(deferred *block, size_t *used,
                               const core_value *from, uint32_t count)
{
    core_value *to = reserve(block, used, from, count * sizeof *from);

    for (uint32_t i = 0; i < count; i++)
        copy_value(block, used, &from[i], to ? &to[i] : NULL);
    return to;
}

static const core_loop *copy_loop(deferred *block, size_t *used,
                                  const core_loop *loop)
{
    size_t bytes = loop->ndim * sizeof(int64_t);
    core_loop *copy = reserve(block, used, loop, sizeof *loop);
    int64_t *sizes = reserve(block, used, loop->sizes, bytes);
    core_operand *operands = reserve(block, used, loop->operands,
                                     loop->noperands * sizeof *loop->operands);

    for (uint32_t k = 0; k < loop->noperands; k++) {
        int64_t *strides =
            reserve(block, used, loop->operands[k].strides, bytes);

        if (operands)
            operands[k].strides = strides;
    }
    if (copy) {
        copy->sizes = sizes;
        copy->operands = operands;
    }
    return copy;
}

core_status core__call_copy(const core_call *call, const core_value *args,
                            uint32_t nargs, const core_value *results,
                            uint32_t nresults, core_call **out_call,
                            const core_value **out_args,
                            core_value **out_results)
{
    const core__kernel_call *run = call->core;
    deferred *block;
    size_t used = 0;

    *out_call = NULL;
    *out_args = NULL;
    *out_results = NULL;
    copy_values(NULL, &used, args, nargs);
    copy_values(NULL, &used, results, nresults);
    if (call->loop)
        copy_loop(NULL, &used, call->loop);
    block = core__alloc(sizeof *block + used);
    if (!block)
        return core__error_memory(sizeof *block + used);
    used = 0;
    block->call = *call;
    block->run.device = run->device;
    block->run.op = run->op;
    block->run.scratch = NULL;
    block->run.ntensors = 0;
    block->call.core = &block->run;
    *out_args = copy_values(block, &used, args, nargs);
    *out_results = copy_values(block, &used, results, nresults);
    if (call->loop)
        block->call.loop = copy_loop(block, &used, call->loop);
    *out_call = &block->call;
    return CORE_OK;
}

core_status core__kernel_call_copy(const core__kernel_call *run,
                                   const core_loop *loop,
                                   const core_value *args,
                                   const core_value *results,
                                   core__logged_launch *launch)
{
    core_call call = {.loop = loop, .core = (core__kernel_call *)run};
    size_t size = run->ntensors * sizeof *run->many;
    core__kernel_call *copy;

    CORE_TRY(core__call_copy(&call, args, launch->nargs, results,
                             launch->nresults, &launch->block, &launch->args,
                             &launch->results));
    copy = launch->block->core;
    launch->run = copy;
    launch->loop = launch->block->loop;
    core__kernel_call_fill(copy, core__thread_self(), NULL,
                           (const core__kernel *)(const void *)launch->kernel,
                           launch->loop);
    if (!copy->call.kernel_op) /* of an operator without a table */
        copy->call.kernel_op = core__operator_kernel(run->op);
    memset(copy->allocated, 0, sizeof copy->allocated);
    if (run->ntensors <= CORE__KERNEL_TENSORS) {
        memcpy(copy->tensors, run->tensors, size);
    } else {
        core_tensor **many = core__alloc(size);

        if (!many)
            return core__error_memory(size);
        memcpy(many, run->many, size);
        copy->many = many;
    }
    copy->ntensors = run->ntensors;
    return CORE_OK;
}

void core__call_drop(core_call *call)
{
    core__free(call); /* the first member of its block */
}
