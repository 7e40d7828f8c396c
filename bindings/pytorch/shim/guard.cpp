/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The current device, streams and events. */

#include "fork.h"
#include "shim.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <array>
#include <climits>
#include <map>

namespace libcore_torch
{

/* ------------------------------------------------------------- streams -- */

/* A stream of torch is a number: 0 is the default stream of its device, and the
 * others are positions, from 1, in this table.  Its streams live as long as the
 * process, as torch's do. */
static ForkMutex lock;
/* Kept when the process ends, as other threads may still use streams. */
static auto &tables = *new std::array<std::vector<core_stream *>, 128>;

enum { POOL = 32 };

/* The streams of one priority that are given out in turn. */
struct Pool {
    std::vector<c10::StreamId> streams;
    size_t turn = 0;
};

/* By priority, of each device. */
static auto &pools = *new std::array<std::map<int, Pool>, 128>;

static core_stream *default_stream(c10::DeviceIndex index)
{
    core_stream *stream;

    check(core_stream_default(device_at(index), &stream));
    return stream;
}

/* Throws if there is no such device. */
static std::vector<core_stream *> &table_of(c10::Device device)
{
    return tables[static_cast<size_t>(index_of(device_at(device.index())))];
}

core_stream *stream_of(c10::Stream stream)
{
    size_t id = static_cast<size_t>(stream.id());

    if (id == 0)
        return default_stream(stream.device_index());
    auto &table = table_of(stream.device());
    std::lock_guard<ForkMutex> guard(lock);
    TORCH_CHECK(id <= table.size(), "libcore: there is no stream ", id);
    return table[id - 1];
}

static c10::Stream wrap(core_stream *stream, c10::Device device)
{
    if (stream == default_stream(device.index()))
        return c10::Stream(c10::Stream::DEFAULT, device);

    auto &table = table_of(device);
    size_t id = 0;
    std::lock_guard<ForkMutex> guard(lock);
    while (id < table.size() && table[id] != stream)
        id++;
    if (id == table.size())
        table.push_back(core_stream_retain(stream));
    return c10::Stream(c10::Stream::UNSAFE, device,
                       static_cast<c10::StreamId>(id + 1));
}

/* A priority that the device has. */
static int clamped(core_device *device, int priority)
{
    int32_t least, greatest;

    check(core_device_priorities(device, &least, &greatest));
    return std::clamp(priority, std::min(least, greatest),
                      std::max(least, greatest));
}

static c10::Stream new_stream(c10::Device device, int priority)
{
    core_stream *stream;

    check(core_stream_create_priority(device_at(device.index()), priority,
                                      &stream));
    c10::Stream result = wrap(stream, device);
    core_stream_release(stream);
    return result;
}

/* A device has a fixed number of streams of each priority. */
static c10::Stream pooled(c10::Device device, int priority)
{
    priority = clamped(device_at(device.index()), priority);
    auto &by_priority = pools[static_cast<size_t>(device.index())];
    {
        std::lock_guard<ForkMutex> guard(lock);
        Pool &pool = by_priority[priority];

        if (pool.streams.size() >= POOL)
            return c10::Stream(c10::Stream::UNSAFE, device,
                               pool.streams[pool.turn++ % POOL]);
    }
    c10::Stream created = new_stream(device, priority);
    std::lock_guard<ForkMutex> guard(lock);
    by_priority[priority].streams.push_back(created.id());
    return created;
}

static int highest_priority(core_device *device)
{
    return clamped(device, INT_MIN);
}

/* --------------------------------------------------------------- guard -- */

static core_event *as_event(void *event)
{
    return static_cast<core_event *>(event);
}

/* BUSY is an answer; another status is an error. */
static bool is_done(core_status status)
{
    if (status != CORE_ERROR_BUSY)
        check(status);
    return status == CORE_OK;
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override
    {
        return device_type;
    }

    c10::Device exchangeDevice(c10::Device device) const override
    {
        c10::Device before = getDevice();

        setDevice(device);
        return before;
    }

    c10::Device getDevice() const override
    {
        return c10::Device(device_type, current_index());
    }

    void setDevice(c10::Device device) const override
    {
        set_current_index(device.index());
    }

    void uncheckedSetDevice(c10::Device device) const noexcept override
    {
        if (device.index() >= 0 && device.index() < device_count())
            set_current_index(device.index());
    }

    c10::DeviceIndex deviceCount() const noexcept override
    {
        return device_count();
    }

    void synchronizeDevice(const c10::DeviceIndex index) const override
    {
        check(core_device_synchronize(device_at(index)));
    }

    /* Streams. */

    static c10::Device with_index(c10::Device device)
    {
        return device.has_index() ? device
                                  : c10::Device(device_type, current_index());
    }

    c10::Stream getStream(c10::Device device) const override
    {
        core_stream *stream;

        device = with_index(device);
        check(core_stream_current(device_at(device.index()), &stream));
        return wrap(stream, device);
    }

    c10::Stream getDefaultStream(c10::Device device) const override
    {
        return c10::Stream(c10::Stream::DEFAULT, with_index(device));
    }

    c10::Stream getStreamFromGlobalPool(c10::Device device,
                                        bool high) const override
    {
        device = with_index(device);
        return pooled(device,
                      high ? highest_priority(device_at(device.index())) : 0);
    }

    c10::Stream getNewStream(c10::Device device, int priority) const override
    {
        return pooled(with_index(device), priority);
    }

    c10::Stream exchangeStream(c10::Stream stream) const override
    {
        c10::Stream before = getStream(stream.device());

        check(core_stream_set_current(stream_of(stream)));
        return before;
    }

    bool queryStream(const c10::Stream &stream) const override
    {
        return is_done(core_stream_query(stream_of(stream)));
    }

    void synchronizeStream(const c10::Stream &stream) const override
    {
        check(core_stream_synchronize(stream_of(stream)));
    }

    void recordDataPtrOnStream(const c10::DataPtr &data,
                               const c10::Stream &stream) const override
    {
        static_cast<c10::DeviceAllocator *>(device_allocator())
            ->recordStream(data, stream);
    }

    /* Events. */

    void destroyEvent(void *event,
                      const c10::DeviceIndex) const noexcept override
    {
        core_event_release(as_event(event));
    }

    void record(void **event, const c10::Stream &stream,
                const c10::DeviceIndex index,
                const c10::EventFlag flag) const override
    {
        TORCH_CHECK(
            index == -1 || index == stream.device_index(),
            "libcore: the event is of libcore:", static_cast<int>(index),
            ", the stream of ", stream.device());
        if (!*event) {
            core_event *created;
            uint32_t flags = flag == c10::EventFlag::BACKEND_DEFAULT
                                 ? static_cast<uint32_t>(CORE_EVENT_TIMING)
                                 : 0;

            check(core_event_create(device_at(stream.device_index()), flags,
                                    &created));
            *event = created;
        }
        check(core_event_record(as_event(*event), stream_of(stream)));
    }

    void block(void *event, const c10::Stream &stream) const override
    {
        if (event)
            check(core_stream_wait_event(stream_of(stream), as_event(event)));
    }

    bool queryEvent(void *event) const override
    {
        return !event || is_done(core_event_query(as_event(event)));
    }

    void synchronizeEvent(void *event) const override
    {
        if (event)
            check(core_event_synchronize(as_event(event)));
    }

    double elapsedTime(void *start, void *end,
                       const c10::DeviceIndex) const override
    {
        double milliseconds;

        TORCH_CHECK(start && end,
                    "libcore: both events must be recorded before the time "
                    "between them is measured");
        check(
            core_event_elapsed(as_event(start), as_event(end), &milliseconds));
        return milliseconds;
    }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

} // namespace libcore_torch
