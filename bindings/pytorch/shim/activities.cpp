/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What devices do, for torch.profiler: an operator or a copy lies between two
 * events on a stream, and events have their times after one whose time the host
 * knows. */

#include "activities.h"

#include "fork.h"

#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>)

#define USE_KINETO
#define FMT_HEADER_ONLY
#include <libkineto.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <chrono>
#include <cmath>
#include <utility>

namespace libcore_torch
{

std::atomic<bool> records_activities{false};

/* One that is not complete belongs to the Activity. */
struct ActivityRecord {
    ActivityRecord() = default;
    ~ActivityRecord()
    {
        core_event_release(start);
        core_event_release(end);
    }
    ActivityRecord(const ActivityRecord &) = delete;
    ActivityRecord &operator=(const ActivityRecord &) = delete;

    std::string name;
    core_device *device = nullptr;
    core_stream *stream = nullptr; /* an identity, which may have ended */
    core_event *start = nullptr, *end = nullptr;
    bool copies = false;
    uint64_t correlation = 0; /* of torch's operator */
};

namespace
{

enum { RECORDS_MOST = 1 << 20 };

ForkMutex lock; /* guards the records */
std::vector<std::unique_ptr<ActivityRecord>> records;
size_t missing; /* more than RECORDS_MOST */

std::vector<std::unique_ptr<ActivityRecord>> take_records()
{
    std::lock_guard<ForkMutex> guard(lock);

    return std::exchange(records, {});
}

/* Of the calling thread's operators, the innermost last. */
thread_local std::vector<uint64_t> correlations;

int64_t now_ns()
{
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

/* An event on a stream, now; NULL after an error. */
core_event *record_event(core_device *device, core_stream *stream)
{
    core_event *event = nullptr;

    if (core_event_create(device, CORE_EVENT_TIMING, &event) != CORE_OK)
        return nullptr;
    if (core_event_record(event, stream) == CORE_OK)
        return event;
    core_event_release(event);
    return nullptr;
}

core_device *device_of(const core_value *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const core_value &value = values[i];

        if (value.tag == CORE_VALUE_TENSOR)
            return core_tensor_device(value.u.tensor);
        if (value.tag == CORE_VALUE_TENSOR_LIST && value.count > 0 &&
            value.u.tensors[0])
            return core_tensor_device(value.u.tensors[0]);
        if (value.tag == CORE_VALUE_DEVICE)
            return value.u.device;
    }
    return nullptr;
}

} // namespace

void Activity::begin(const core_operator *op, const core_value *values,
                     uint32_t count) noexcept
{
    begin(core_op_name(op), device_of(values, count), false);
}

void Activity::begin(const char *name, core_device *device,
                     bool copies) noexcept
try {
    auto record = std::make_unique<ActivityRecord>();

    if (!device || core_stream_current(device, &record->stream) != CORE_OK)
        return;
    record->name = name;
    record->device = device;
    record->copies = copies;
    record->correlation = correlations.empty() ? 0 : correlations.back();
    record->start = record_event(device, record->stream);
    if (record->start)
        record_ = record.release();
} catch (const std::bad_alloc &) {
}

void Activity::end() noexcept
try {
    std::unique_ptr<ActivityRecord> record(record_);

    record->end = record_event(record->device, record->stream);
    if (!record->end)
        return;
    std::lock_guard<ForkMutex> guard(lock);

    if (records.size() < RECORDS_MOST)
        records.push_back(std::move(record));
    else
        missing++;
} catch (const std::bad_alloc &) {
}

namespace
{

/* The time of a device's events. */
struct Clock {
    core_event *event = nullptr; /* owned; NULL: the device has no times */
    int64_t host_ns = 0;
};

class Session final : public libkineto::IActivityProfilerSession
{
  public:
    ~Session() override
    {
        for (Clock &clock : clocks_)
            core_event_release(clock.event);
    }

    void start() override
    {
        take_records();
        {
            std::lock_guard<ForkMutex> guard(lock);

            missing = 0;
        }
        for (c10::DeviceIndex i = 0; i < device_count(); i++)
            clocks_.push_back(clock_of(device_at(i)));
        core_error_clear();
        records_activities = true;
        status_ = libkineto::TraceStatus::RECORDING;
    }

    void stop() override
    {
        records_activities = false;
        for (c10::DeviceIndex i = 0; i < device_count(); i++)
            core_device_synchronize(device_at(i));
        core_error_clear();
        status_ = libkineto::TraceStatus::PROCESSING;
    }

    std::vector<std::string> errors() override
    {
        if (missing == 0)
            return {};
        return {"libcore: " + std::to_string(missing) +
                " activities of devices were not recorded; at most " +
                std::to_string(RECORDS_MOST) + " are"};
    }

    void processTrace(libkineto::ActivityLogger &logger) override
    {
        processTrace(logger, nullptr, 0, 0);
    }

    void processTrace(libkineto::ActivityLogger &logger,
                      libkineto::getLinkedActivityCallback linked, int64_t,
                      int64_t) override
    {
        buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
        buffer_->span = libkineto::TraceSpan(0, 0, "libcore");
        buffer_->gpuOpCount = 0;
        for (const auto &record : take_records())
            add(*record, linked);
        for (const auto &activity : buffer_->activities)
            activity->log(logger);
    }

    std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override
    {
        return nullptr;
    }

    std::vector<libkineto::ResourceInfo> getResourceInfos() override
    {
        std::vector<libkineto::ResourceInfo> result;

        for (size_t i = 0; i < streams_.size(); i++)
            result.push_back(
                {static_cast<int64_t>(i), static_cast<int64_t>(i),
                 index_of(streams_[i].device),
                 std::string(core_device_name(streams_[i].device)) +
                     ", stream " + std::to_string(i)});
        return result;
    }

    std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override
    {
        return std::move(buffer_);
    }

    void pushCorrelationId(uint64_t id) override
    {
        correlations.push_back(id);
    }

    void popCorrelationId() override
    {
        if (!correlations.empty())
            correlations.pop_back();
    }

  private:
    struct Stream {
        core_device *device;
        core_stream *stream;
    };

    /* The host's time when an event is complete. */
    static Clock clock_of(core_device *device)
    {
        core_stream *stream;
        Clock clock;

        if (core_device_synchronize(device) != CORE_OK ||
            core_stream_current(device, &stream) != CORE_OK)
            return clock;
        clock.event = record_event(device, stream);
        if (clock.event && core_event_synchronize(clock.event) == CORE_OK)
            clock.host_ns = now_ns();
        return clock;
    }

    bool time_of(const Clock &clock, core_event *event, int64_t &out_ns) const
    {
        double milliseconds;

        if (!clock.event || core_event_elapsed(clock.event, event,
                                               &milliseconds) != CORE_OK)
            return false;
        out_ns = clock.host_ns + std::llround(milliseconds * 1e6);
        return true;
    }

    int64_t number_of(const ActivityRecord &record)
    {
        for (size_t i = 0; i < streams_.size(); i++)
            if (streams_[i].device == record.device &&
                streams_[i].stream == record.stream)
                return static_cast<int64_t>(i);
        streams_.push_back({record.device, record.stream});
        return static_cast<int64_t>(streams_.size() - 1);
    }

    void add(const ActivityRecord &record,
             const libkineto::getLinkedActivityCallback &linked)
    {
        c10::DeviceIndex index = index_of(record.device);
        const Clock &clock = clocks_[static_cast<size_t>(index)];
        int64_t start, end;

        if (!time_of(clock, record.start, start) ||
            !time_of(clock, record.end, end))
            return;
        buffer_->emplace_activity(
            buffer_->span,
            record.copies ? libkineto::ActivityType::GPU_MEMCPY
                          : libkineto::ActivityType::CONCURRENT_KERNEL,
            record.name);
        libkineto::GenericTraceActivity &made = *buffer_->activities.back();

        made.startTime = start;
        made.endTime = end;
        made.device = index;
        made.resource = number_of(record);
        made.id = static_cast<int32_t>(record.correlation);
        if (linked && record.correlation)
            made.linked = linked(made.id);
        buffer_->gpuOpCount++;
    }

    std::vector<Clock> clocks_;
    std::vector<Stream> streams_;
    std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
};

class Profiler final : public libkineto::IActivityProfiler
{
  public:
    const std::string &name() const override
    {
        return name_;
    }

    const std::set<libkineto::ActivityType> &
    availableActivities() const override
    {
        return types_;
    }

    std::unique_ptr<libkineto::IActivityProfilerSession>
    configure(const std::set<libkineto::ActivityType> &types,
              const libkineto::Config &) override
    {
        for (libkineto::ActivityType type : types_)
            if (types.count(type))
                return std::make_unique<Session>();
        return nullptr;
    }

    std::unique_ptr<libkineto::IActivityProfilerSession>
    configure(int64_t, int64_t,
              const std::set<libkineto::ActivityType> &types,
              const libkineto::Config &config) override
    {
        return configure(types, config);
    }

  private:
    std::string name_ = "libcore";
    std::set<libkineto::ActivityType> types_ = {
        libkineto::ActivityType::CONCURRENT_KERNEL,
        libkineto::ActivityType::GPU_MEMCPY};
};

} // namespace

void register_activities()
{
    torch::profiler::impl::PrivateUse1ProfilerRegistry::instance()
        .registerFactory([]() { return std::make_unique<Profiler>(); });
}

} // namespace libcore_torch

#else

namespace libcore_torch
{

std::atomic<bool> records_activities{false};

void Activity::begin(const core_operator *, const core_value *,
                     uint32_t) noexcept
{
}

void Activity::begin(const char *, core_device *, bool) noexcept {}

void Activity::end() noexcept {}

void register_activities() {}

} // namespace libcore_torch

#endif
