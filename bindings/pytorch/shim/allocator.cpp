/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Memory of devices from core's caching allocator, and pinned host memory. */

#include "shim.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StorageImpl.h>

namespace libcore_torch
{

/* ------------------------------------------------------------ storages -- */

static void release_tensor(void *context)
{
    core_tensor_release(static_cast<core_tensor *>(context));
}

c10::DataPtr data_of(core_tensor *tensor)
{
    core_device *device = core_tensor_device(tensor);
    c10::DeviceIndex index = index_of(device);
    c10::Device where(device_type, index);
    c10::DataPtr owner(tensor, tensor, release_tensor, where);
    core_memory memory;
    char *address;

    if (!has_addresses(index))
        return owner;
    check(core_tensor_memory(tensor, &memory));
    address =
        static_cast<char *>(memory.handle) + memory.offset -
        core_tensor_offset(tensor) * core_dtype_size(core_tensor_dtype(tensor));
    return c10::DataPtr(address, owner.release_context(), release_tensor,
                        where);
}

core_tensor *tensor_of(const c10::StorageImpl &storage)
{
    const c10::DataPtr &data = storage.data_ptr();

    TORCH_CHECK(
        data.get_deleter() == release_tensor,
        "libcore: the memory of the storage is another library's, as of "
        "at::from_blob; give it to libcore_torch.from_dlpack, or make "
        "the tensor on torch's cpu and copy it with to()");
    return static_cast<core_tensor *>(data.get_context());
}

static core_tensor *new_bytes(c10::DeviceIndex index, size_t count)
{
    const int64_t size = static_cast<int64_t>(count);
    uint64_t modes = core_inference_begin();
    core_tensor *tensor = nullptr;
    core_status status = core_empty(&size, 1, CORE_U8, device_at(index),
                                    CORE_FORMAT_CONTIGUOUS, &tensor);

    core_inference_end(modes);
    check(status);
    return tensor;
}

static void copy_bytes(core_tensor *to, core_tensor *from, size_t bytes)
{
    const int64_t size = static_cast<int64_t>(bytes), one = 1;
    core_tensor *target = nullptr, *source = nullptr;
    core_status status;

    status = core_tensor_alias(to, CORE_U8, &size, &one, 1, 0, &target);
    if (status == CORE_OK)
        status = core_tensor_alias(from, CORE_U8, &size, &one, 1, 0, &source);
    if (status == CORE_OK)
        status = core_tensor_copy(target, source, 0);
    core_tensor_release(target);
    core_tensor_release(source);
    check(status);
}

void resize_storage(c10::StorageImpl &storage, size_t bytes)
{
    c10::DeviceIndex index = storage.device().index();
    size_t kept = std::min(bytes, storage.nbytes());
    c10::DataPtr data = data_of(new_bytes(index, bytes));

    TORCH_CHECK(storage.resizable(), "libcore: the storage cannot be resized");
    if (kept > 0)
        copy_bytes(static_cast<core_tensor *>(data.get_context()),
                   tensor_of(storage), kept);
    storage.set_data_ptr(std::move(data));
    storage.set_nbytes(bytes);
}

/* ---------------------------------------------------------- statistics -- */

using DeviceStats = c10::CachingDeviceAllocator::DeviceStats;

static void fill(c10::CachingAllocator::StatArray &to,
                 const core_memory_stat (&from)[3])
{
    for (size_t i = 0; i < 3; i++) {
        to[i].current = static_cast<int64_t>(from[i].current);
        to[i].peak = static_cast<int64_t>(from[i].peak);
        to[i].allocated = static_cast<int64_t>(from[i].allocated);
        to[i].freed = static_cast<int64_t>(from[i].freed);
    }
}

static DeviceStats stats_of(core_device *device)
{
    core_memory_stats stats = {};
    DeviceStats to;

    stats.struct_size = sizeof stats;
    check(core_memory_get_stats(device, &stats));
    fill(to.allocation, stats.allocations);
    fill(to.segment, stats.segments);
    fill(to.active, stats.active);
    fill(to.inactive_split, stats.inactive_split);
    fill(to.requested_bytes, stats.requested_bytes);
    fill(to.allocated_bytes, stats.allocated_bytes);
    fill(to.reserved_bytes, stats.reserved_bytes);
    fill(to.active_bytes, stats.active_bytes);
    fill(to.inactive_split_bytes, stats.inactive_split_bytes);
    to.num_alloc_retries = static_cast<int64_t>(stats.retries);
    to.num_ooms = static_cast<int64_t>(stats.out_of_memories);
    return to;
}

/* ----------------------------------------------------------- allocator -- */

struct Allocator final : c10::DeviceAllocator {
    c10::DataPtr allocate(size_t bytes) override
    {
        return data_of(new_bytes(current_index(), bytes));
    }

    void copy_data(void *, const void *, std::size_t) const override
    {
        TORCH_CHECK_NOT_IMPLEMENTED(
            false, "libcore: an address does not name memory of a device");
    }

    bool initialized() override
    {
        return device_count() > 0;
    }

    void emptyCache(c10::MempoolId_t) override
    {
        for (c10::DeviceIndex i = 0; i < device_count(); i++)
            if (core_memory_empty_cache(device_at(i)) != CORE_OK &&
                core_error_code() != CORE_ERROR_UNSUPPORTED)
                raise(core_error_code());
    }

    void recordStream(const c10::DataPtr &data, c10::Stream stream) override
    {
        if (data.get_deleter() == release_tensor)
            check(core_tensor_record_stream(
                static_cast<core_tensor *>(data.get_context()),
                stream_of(stream)));
    }

    DeviceStats getDeviceStats(c10::DeviceIndex index) override
    {
        return stats_of(device_at(index));
    }

    void resetAccumulatedStats(c10::DeviceIndex) override
    {
        TORCH_CHECK_NOT_IMPLEMENTED(
            false, "libcore: totals count from when the device was opened");
    }

    void resetPeakStats(c10::DeviceIndex index) override
    {
        check(core_memory_reset_peaks(device_at(index)));
    }

    std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override
    {
        uint64_t free_bytes, total;

        check(core_device_memory(device_at(index), &free_bytes, &total));
        return {free_bytes, total};
    }
};

static Allocator allocator;

c10::Allocator *device_allocator()
{
    return &allocator;
}

void register_allocator()
{
    c10::SetAllocator(device_type, &allocator);
}

/* ------------------------------------------------------- pinned memory -- */

struct Pinned {
    core_device *device;
    void *data;
};

static void release_pinned(void *context)
{
    Pinned *pinned = static_cast<Pinned *>(context);

    (void)core_host_memory_free(pinned->device, pinned->data);
    delete pinned;
}

struct PinnedAllocator final : c10::Allocator {
    c10::DataPtr allocate(size_t bytes) override
    {
        auto pinned = std::make_unique<Pinned>();
        void *data;

        pinned->device = device_at(current_index());
        if (bytes == 0)
            return {nullptr, c10::Device(c10::DeviceType::CPU)};
        check(core_host_memory_alloc(pinned->device, bytes, &data));
        pinned->data = data;
        return {data, pinned.release(), release_pinned,
                c10::Device(c10::DeviceType::CPU)};
    }

    void copy_data(void *to, const void *from, std::size_t size) const override
    {
        default_copy_data(to, from, size);
    }
};

static PinnedAllocator pinned;

c10::Allocator *pinned_allocator()
{
    return &pinned;
}

} // namespace libcore_torch
