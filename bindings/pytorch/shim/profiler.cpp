/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Times of operators on devices, for torch's profiler: events before and after
 * each operator. */

#include "profiler.h"
#include "shim.h"

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <chrono>

namespace libcore_torch
{

using Event = torch::profiler::impl::ProfilerVoidEventStub;

static core_event *event_of(const Event &event)
{
    return static_cast<core_event *>(event.get());
}

static int64_t now_ns()
{
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

struct Stubs final : torch::profiler::impl::ProfilerStubs {
    /* On the current stream of the current device. */
    void record(c10::DeviceIndex *index, Event *event,
                int64_t *cpu_ns) const override
    {
        core_device *device = device_at(current_index());
        core_stream *stream;
        core_event *created;

        check(core_event_create(device, CORE_EVENT_TIMING, &created));
        event->reset(created, [](void *held) {
            core_event_release(static_cast<core_event *>(held));
        });
        check(core_stream_current(device, &stream));
        if (index)
            *index = current_index();
        if (cpu_ns)
            *cpu_ns = now_ns();
        check(core_event_record(created, stream));
    }

    /* In microseconds. */
    float elapsed(const Event *start, const Event *end) const override
    {
        double milliseconds;

        check(core_event_synchronize(event_of(*start)));
        check(core_event_synchronize(event_of(*end)));
        check(core_event_elapsed(event_of(*start), event_of(*end),
                                 &milliseconds));
        return static_cast<float>(milliseconds * 1000);
    }

    /* Marks are for the tools of vendors, which libcore does not have. */
    void mark(const char *) const override {}

    void rangePush(const char *) const override {}

    void rangePop() const override {}

    bool enabled() const override
    {
        return true;
    }

    void onEachDevice(std::function<void(int)> operation) const override
    {
        c10::DeviceGuard guard(c10::Device(device_type, current_index()));

        for (c10::DeviceIndex i = 0; i < device_count(); i++) {
            set_current_index(i);
            operation(i);
        }
    }

    /* A lost device has nothing to wait for. */
    void synchronize() const override
    {
        for (c10::DeviceIndex i = 0; i < device_count(); i++) {
            core_status status = core_device_synchronize(device_at(i));

            if (status != CORE_ERROR_DEVICE_LOST)
                check(status);
        }
    }
};

void register_profiler()
{
    static Stubs stubs;

    torch::profiler::impl::registerPrivateUse1Methods(&stubs);
}

} // namespace libcore_torch
