/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "transfer/transfer.h"

#include "base/memory.h"
#include "base/thread.h"
#include "transfer/recorded_data.h"
#include "transfer/copy.h"
#include "device/device.h"
#include "device/stream.h"
#include "dispatch/kernel_constraints.h"
#include "dispatch/dispatch.h"
#include "dispatch/registry.h"
#include "dispatch/table.h"
#include "memory/memory.h"
#include "ops_ids.h"
#include "tensor/batched.h"
#include "tensor/dtype.h"
#include "tensor/layout.h"
#include "tensor/storage_check.h"

#include <libcore/tensor.h>

#include <string.h>

static uint64_t bytes_of(const core_tensor *tensor)
{
    return (uint64_t)tensor->numel * core__dtype_size(tensor->dtype);
}

static core_status no_memory_error(const core_tensor *tensor)
{
    if (core__tensor_is_batched(tensor))
        return core__batched_error();
    return core__error(CORE_ERROR_DATA_DEPENDENT,
                       "a tensor on \"%s\" has no data to read or write",
                       tensor->device->name);
}

/* An error begins with the program's call. */
static core_status named(const char *name, core_status status)
{
    if (status != CORE_OK)
        core__error_prefix("%s", name);
    return status;
}

/* Runs the kernel of copy_ on one device; it converts and follows strides. */
static core_status copy_kernel(core_tensor *to, core_tensor *from)
{
    core_value args[3] = {
        {CORE_VALUE_TENSOR, 0, {.tensor = to}},
        {CORE_VALUE_TENSOR, 0, {.tensor = from}},
        {CORE_VALUE_BOOL, 0, {0}},
    };

    return core__redispatch(&core__operators[CORE_OP_COPY_],
                            to->device->keys | CORE__KEY_BACKEND, args, 3, NULL,
                            0);
}

static void *host_address(const core_tensor *tensor)
{
    core_memory memory = core__tensor_memory(tensor);

    return (char *)memory.handle + memory.offset;
}

static const char to_host[] = "a copy to the host";

/* Copies between contiguous tensors of one dtype on two devices. */
static core_status copy_plain(core_tensor *to, core_tensor *from,
                              bool non_blocking)
{
    uint64_t size = bytes_of(to);
    core_tensor *staged = NULL;
    core_device *host;
    core_status status;
    bool done;

    if (core__device_is_host(from->device))
        return core__copy_from_host(to->device, core__tensor_memory(to),
                                    host_address(from), size, non_blocking);
    if (core__device_is_host(to->device))
        return core__copy_to_host(from->device, host_address(to),
                                  core__tensor_memory(from), size, non_blocking,
                                  to_host);
    CORE_TRY(core__copy_peer(to->device, core__tensor_memory(to), from->device,
                             core__tensor_memory(from), size, &done));
    if (done)
        return CORE_OK;
    CORE_TRY(core__device_host(&host));
    CORE_TRY(core__tensor_new(host, from->dtype, from->ndim, from->sizes, NULL,
                              &staged));
    status = copy_plain(staged, from, false);
    if (status == CORE_OK)
        status = copy_plain(to, staged, false);
    core__tensor_release(staged);
    return status;
}

/* Bytes from a tensor's first element to its last, both included. */
static uint64_t span_of(const core_tensor *tensor)
{
    uint64_t last = 0;

    for (uint32_t i = 0; i < tensor->ndim; i++)
        last += (uint64_t)((tensor->sizes[i] - 1) * tensor->strides[i]);
    return (last + 1) * core__dtype_size(tensor->dtype);
}

/* Copies the elements with the same strides to the host through the memory
 * table only, for a device without a kernel that gathers them. */
static core_status span_to_host(core_tensor *tensor, core_tensor **out_tensor)
{
    int64_t count =
        (int64_t)(span_of(tensor) / core__dtype_size(tensor->dtype));
    core_device *device = tensor->device;
    core_tensor *flat;
    core_device *host;
    core_status status;

    *out_tensor = NULL;
    CORE_TRY(core__device_host(&host));
    CORE_TRY(core__tensor_new(host, tensor->dtype, 1, &count, NULL, &flat));
    status = core__copy_to_host(device, host_address(flat),
                                core__tensor_memory(tensor), span_of(tensor),
                                false, to_host);
    if (status == CORE_OK)
        status =
            core__tensor_alias(flat, tensor->dtype, tensor->ndim, tensor->sizes,
                               tensor->strides, 0, out_tensor);
    core__tensor_release(flat);
    return status;
}

static core_status span_from_host(core_tensor *to, core_tensor *staged)
{
    return core__copy_from_host(to->device, core__tensor_memory(to),
                                host_address(staged), span_of(to), false);
}

static bool is_plain(const core_tensor *tensor, core_dtype dtype)
{
    return tensor->dtype == dtype && tensor->flags & CORE__TENSOR_CONTIGUOUS;
}

/* True if a device can gather, scatter and convert. */
static bool has_copy_kernel(const core_device *device)
{
    core__kernel_set *set;
    const core__kernel *at;

    core__registry_lock();
    set = core__registry_set(
        core__operator_kernel(&core__operators[CORE_OP_COPY_]),
        device->backend);
    core__registry_unlock();
    for (at = set ? atomic_load(&set->first) : NULL; at; at = at->next)
        if (!(at->kernel.demands & CORE__CONSTRAINTS_BY_COPY))
            return true;
    return device->backend->fallback != NULL;
}

/* Copies between devices.  The source's device gathers and converts first, so
 * that the other side needs only a plain copy of row-major tensors of one
 * dtype. */
static core_status copy_across(core_tensor *to, core_tensor *from,
                               bool non_blocking)
{
    core_tensor *source = NULL;
    core_tensor *target = NULL;
    core_status status = CORE_OK;

    if (is_plain(from, to->dtype)) {
        source = from;
        core__tensor_retain(source);
    } else if (has_copy_kernel(from->device)) {
        status = core__tensor_new(from->device, to->dtype, from->ndim,
                                  from->sizes, NULL, &source);
        if (status == CORE_OK)
            status = copy_kernel(source, from);
    } else {
        status = span_to_host(from, &source);
        if (status == CORE_OK)
            status = core__tensor_copy(to, source);
        goto done;
    }
    if (status != CORE_OK)
        goto done;
    if (to->flags & CORE__TENSOR_CONTIGUOUS) {
        status = copy_plain(to, source, non_blocking);
        goto done;
    }
    if (has_copy_kernel(to->device)) {
        status = core__tensor_new(to->device, to->dtype, to->ndim, to->sizes,
                                  NULL, &target);
        if (status == CORE_OK)
            status = copy_plain(target, source, non_blocking);
        if (status == CORE_OK)
            status = copy_kernel(to, target);
    } else {
        /* The bytes between the elements must not change. */
        status = span_to_host(to, &target);
        if (status == CORE_OK)
            status = core__tensor_copy(target, source);
        if (status == CORE_OK)
            status = span_from_host(to, target);
    }
done:
    core__tensor_release(source);
    core__tensor_release(target);
    return status;
}

static core_status copy_flags(core_tensor *to, core_tensor *from,
                              bool non_blocking)
{
    if (core__tensor_is_meta(to)) /* shapes only */
        return core__tensor_is_batched(to) ? no_memory_error(to) : CORE_OK;
    if (core__tensor_is_meta(from))
        return no_memory_error(from);
    if (core__unlikely((to->flags | from->flags) & CORE__TENSOR_TRACED))
        return core__tensor_check_untraced(
            "copy", to->flags & CORE__TENSOR_TRACED ? to : from);
    if (to->device == from->device)
        return copy_kernel(to, from);
    if (to->numel == 0)
        return CORE_OK;
    CORE_TRY(core__storage_check(to->storage));
    CORE_TRY(core__storage_check(from->storage));
    return copy_across(to, from, non_blocking);
}

/* The operators of which a copy may consist are not recorded by a lazy
 * region. */
static core_status __attribute__((cold, noinline))
copy_paused(core_tensor *to, core_tensor *from, bool non_blocking)
{
    core__lazy_pause pause;
    core_status status;

    CORE_TRY(core__thread_pause("copy", &pause));
    status = copy_flags(to, from, non_blocking);
    core__thread_resume(&pause);
    return status;
}

core_status core__tensor_copy_flags(core_tensor *to, core_tensor *from,
                                    bool non_blocking)
{
    return core__unlikely(core__thread_self()->lazy != NULL)
               ? copy_paused(to, from, non_blocking)
               : copy_flags(to, from, non_blocking);
}

core_status core__tensor_copy(core_tensor *to, core_tensor *from)
{
    return core__tensor_copy_flags(to, from, false);
}

/* -------------------------------------------------- public host copies -- */

/* A tensor on the caller's memory, for the duration of one call. */
static core_status borrow(void *data, core_dtype dtype, uint32_t ndim,
                          const int64_t *sizes, core_tensor **out_tensor)
{
    core_storage *storage;
    core_device *host;
    core_status status;

    *out_tensor = NULL;
    CORE_TRY(core__device_host(&host));
    CORE_TRY(core__storage_adopt(host, data, UINT64_MAX, NULL, NULL, &storage));
    status =
        core__tensor_new_on_storage(storage, dtype, ndim, sizes, out_tensor);
    core__storage_release(storage);
    return status;
}

core_status core_tensor_from_memory(void *data, core_dtype dtype,
                                    const int64_t *sizes, size_t ndim,
                                    void (*release)(void *context, void *data),
                                    void *context, core_tensor **out_tensor)
{
    core_storage *storage = NULL;
    core_status status;

    if (out_tensor)
        *out_tensor = NULL;
    if (!out_tensor || (ndim > 0 && !sizes))
        status =
            core__error_null(__func__, out_tensor ? "sizes" : "out_tensor");
    else if ((status = core__thread_check_unrecorded(__func__)) != CORE_OK)
        ;
    else if (ndim > CORE_MAX_NDIM)
        status = core__error(CORE_ERROR_SHAPE,
                             "%s: %zu dimensions; a tensor has at most %d",
                             __func__, ndim, CORE_MAX_NDIM);
    else
        status = named(__func__,
                       borrow(data, dtype, (uint32_t)ndim, sizes, out_tensor));
    if (status != CORE_OK) {
        if (release)
            release(context, data);
        return status;
    }
    storage = (*out_tensor)->storage;
    storage->size = bytes_of(*out_tensor);
    storage->release = release;
    storage->context = context;
    if (!data && (*out_tensor)->numel > 0) {
        core__tensor_release(*out_tensor);
        *out_tensor = NULL;
        return core__error_null(__func__, "data");
    }
    if ((uintptr_t)data % core__dtype_size(dtype) != 0) {
        core__tensor_release(*out_tensor);
        *out_tensor = NULL;
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: memory for %s elements is not aligned to %u "
                           "bytes",
                           __func__, core__dtype_name(dtype),
                           core__dtype_size(dtype));
    }
    return CORE_OK;
}

static bool are_bools(const uint8_t *bytes, size_t count)
{
    uint8_t all = 0;

    for (size_t i = 0; i < count; i++)
        all |= bytes[i];
    return all <= 1;
}

/* Operators may use a bool's byte as a number, so it must be 0 or 1.  Other
 * bytes become 1, in a copy. */
static core_status normalise_bools(const uint8_t *bytes, size_t count,
                                   uint8_t **out)
{
    uint8_t *copy = core__alloc(count);

    if (!copy)
        return core__error_memory(count);
    for (size_t i = 0; i < count; i++)
        copy[i] = bytes[i] != 0;
    *out = copy;
    return CORE_OK;
}

/* Fills all elements from the caller's memory; there is at least one. */
static core_status fill(core_tensor *tensor, const void *data)
{
    core_tensor *host = NULL;
    uint8_t *copy = NULL;
    core_status status;

    if (tensor->dtype == CORE_BOOL && !are_bools(data, (size_t)tensor->numel))
        CORE_TRY(normalise_bools(data, (size_t)tensor->numel, &copy));
    status = borrow(copy ? copy : (void *)(uintptr_t)data, tensor->dtype,
                    tensor->ndim, tensor->sizes, &host);
    if (status == CORE_OK)
        status = core__tensor_copy(tensor, host);
    core__tensor_release(host);
    core__free(copy);
    return status;
}

/* While a program is recorded: the tensor becomes a constant of the program,
 * and what is returned a copy, so that no run changes the constant. */
static core_status record_copy(core_tensor **tensor, const void *data)
{
    core__recorded_data recorded = {*tensor, data, (size_t)bytes_of(*tensor)};
    core_value args[2] = {{CORE_VALUE_TENSOR, 0, {.tensor = *tensor}}, {0}};
    core_value copy = {0};
    core_status status;

    core__thread_self()->recorded_data = &recorded;
    status = core__call(&core__operators[CORE_OP_CLONE], args, 2, &copy, 1);
    core__thread_self()->recorded_data = NULL;
    CORE_TRY(status);
    core__tensor_release(*tensor);
    *tensor = copy.u.tensor;
    return CORE_OK;
}

core_status core_tensor_from_data(const void *data, core_dtype dtype,
                                  const int64_t *sizes, size_t ndim,
                                  core_device *device, core_tensor **out_tensor)
{
    core_tensor *tensor;
    core_status status;

    CORE__NOT_NULL(out_tensor);
    *out_tensor = NULL;
    if (ndim > 0)
        CORE__NOT_NULL(sizes);
    if (ndim > CORE_MAX_NDIM)
        return core__error(CORE_ERROR_SHAPE,
                           "%s: %zu dimensions; a tensor has at most %d",
                           __func__, ndim, CORE_MAX_NDIM);
    if (!device)
        CORE_TRY(core__device_current(&device));
    status =
        core__tensor_new(device, dtype, (uint32_t)ndim, sizes, NULL, &tensor);
    if (status != CORE_OK) {
        core__error_prefix("%s on \"%s\"", __func__, device->name);
        return status;
    }
    if (device->meta || tensor->numel == 0)
        status = CORE_OK;
    else
        status = data ? fill(tensor, data) : core__error_null(__func__, "data");
    if (status == CORE_OK && core__thread_self()->included & CORE__KEY_RECORD &&
        !core__thread_self()->lazy)
        status = record_copy(&tensor, data);
    if (status != CORE_OK) {
        core__tensor_release(tensor);
        return status;
    }
    *out_tensor = tensor;
    return CORE_OK;
}

static core_status check_size(core_tensor *tensor, size_t size)
{
    if (core__tensor_is_meta(tensor))
        return no_memory_error(tensor);
    if (size == bytes_of(tensor))
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "the host memory has %zu bytes; the tensor has %llu",
                       size, (unsigned long long)bytes_of(tensor));
}

core_status core_tensor_read(core_tensor *tensor, void *data, size_t size)
{
    core_tensor *host = NULL;
    core_status status;

    CORE__NOT_NULL(tensor);
    tensor = core__batched_shared(tensor);
    CORE_TRY(core__tensor_check_untraced(__func__, tensor));
    CORE_TRY(named(__func__, check_size(tensor, size)));
    if (size == 0)
        return CORE_OK;
    CORE__NOT_NULL(data);
    CORE_TRY(borrow(data, tensor->dtype, tensor->ndim, tensor->sizes, &host));
    status = core__tensor_copy(host, tensor);
    core__tensor_release(host);
    return status;
}

core_status core_tensor_write(core_tensor *tensor, const void *data,
                              size_t size)
{
    CORE__NOT_NULL(tensor);
    CORE_TRY(core__tensor_check_untraced(__func__, tensor));
    if (tensor->flags & CORE__TENSOR_READ_ONLY)
        return core__error(CORE_ERROR_REFUSED,
                           "core_tensor_write: the tensor's memory is "
                           "read-only");
    CORE_TRY(named(__func__, check_size(tensor, size)));
    if (size == 0)
        return CORE_OK;
    CORE__NOT_NULL(data);
    CORE_TRY(fill(tensor, data));
    core__tensor_bump_version(tensor);
    return CORE_OK;
}

core_status core_tensor_data(core_tensor *tensor, void **out_data)
{
    core_memory memory;

    CORE__NOT_NULL(out_data);
    *out_data = NULL;
    CORE__NOT_NULL(tensor);
    CORE_TRY(core__tensor_check_untraced(__func__, tensor));
    memory = core__tensor_memory(tensor);
    if (core__tensor_is_meta(tensor))
        return named(__func__, no_memory_error(tensor));
    if (!core__device_host_access(tensor->device))
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s: the host cannot address memory of \"%s\"; "
                           "core_tensor_read copies from it",
                           __func__, tensor->device->name);
    CORE_TRY(core__storage_check(tensor->storage));
    CORE_TRY(core__host_wait(tensor->device, "core_tensor_data"));
    *out_data = (char *)memory.handle + memory.offset;
    return CORE_OK;
}

core_status core__tensor_read_scalar(core_tensor *tensor,
                                     core_scalar *out_value)
{
    uint64_t bytes = 0;
    core_device *device = tensor->device;
    core_memory memory;

    *out_value = (core_scalar){0};
    tensor = core__batched_shared(tensor);
    CORE_TRY(core__thread_cut("core_tensor_item"));
    CORE_TRY(core__tensor_check_untraced("item", tensor));
    memory = core__tensor_memory(tensor);
    if (tensor->numel != 1)
        return core__error(
            CORE_ERROR_SHAPE,
            "the tensor has %lld elements; an item is a tensor of one element",
            (long long)tensor->numel);
    if (core__tensor_is_meta(tensor))
        return no_memory_error(tensor);
    if (core__device_is_host(device)) {
        *out_value = core__element_load(tensor->dtype,
                                        (char *)memory.handle + memory.offset);
        return CORE_OK;
    }
    CORE_TRY(core__storage_check(tensor->storage));
    CORE_TRY(core__copy_to_host(device, &bytes, memory,
                                core__dtype_size(tensor->dtype), false,
                                "item"));
    *out_value = core__element_load(tensor->dtype, &bytes);
    return CORE_OK;
}

static core_status read_item(const char *name, core_tensor *tensor,
                             core_scalar *out_value)
{
    CORE_TRY(core__thread_cut("core_tensor_item"));
    CORE_TRY(core__tensor_check_untraced(name, core__batched_shared(tensor)));
    return named(name, core__tensor_read_scalar(tensor, out_value));
}

core_status core_tensor_item(core_tensor *tensor, core_scalar *out_value)
{
    CORE__NOT_NULL(out_value);
    *out_value = (core_scalar){0};
    CORE__NOT_NULL(tensor);
    return read_item(__func__, tensor, out_value);
}

core_status core_tensor_item_float(core_tensor *tensor, double *out_value)
{
    core_scalar value;

    CORE__NOT_NULL(out_value);
    *out_value = 0;
    CORE__NOT_NULL(tensor);
    CORE_TRY(read_item(__func__, tensor, &value));
    *out_value = value.tag == CORE_VALUE_FLOAT ? value.u.f : (double)value.u.i;
    return CORE_OK;
}

core_status core_tensor_item_int(core_tensor *tensor, int64_t *out_value)
{
    core_scalar value;

    CORE__NOT_NULL(out_value);
    *out_value = 0;
    CORE__NOT_NULL(tensor);
    CORE_TRY(read_item(__func__, tensor, &value));
    if (value.tag == CORE_VALUE_FLOAT)
        return core__error(CORE_ERROR_DTYPE,
                           "%s: a %s tensor has no integer value", __func__,
                           core__dtype_name(tensor->dtype));
    *out_value = value.u.i;
    return CORE_OK;
}
