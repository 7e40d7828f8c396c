/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* activities.h: what devices do and when, for torch.profiler. */

#ifndef BINDINGS_PYTORCH_ACTIVITIES_H
#define BINDINGS_PYTORCH_ACTIVITIES_H

#include "shim.h"

#include <atomic>

namespace libcore_torch
{

/* Whether a session of torch.profiler records what devices do. */
extern std::atomic<bool> records_activities;

struct ActivityRecord;

/* What the calling thread enqueues on the current stream of a device while this
 * exists.  Without a session it does nothing.  Errors are not reported: the
 * activity is then missing. */
class Activity
{
  public:
    /* Of a call of an operator: its device is that of the arguments. */
    Activity(const core_operator *op, const core_value *values, uint32_t count)
    {
        if (C10_UNLIKELY(records_activities.load(std::memory_order_relaxed)))
            begin(op, values, count);
    }

    /* A copy. */
    explicit Activity(core_device *device)
    {
        if (C10_UNLIKELY(records_activities.load(std::memory_order_relaxed)))
            begin("copy", device, true);
    }

    ~Activity()
    {
        if (C10_UNLIKELY(record_ != nullptr))
            end();
    }

    Activity(const Activity &) = delete;
    Activity &operator=(const Activity &) = delete;

  private:
    void begin(const core_operator *op, const core_value *values,
               uint32_t count) noexcept;
    void begin(const char *name, core_device *device, bool copies) noexcept;
    void end() noexcept;

    ActivityRecord *record_ = nullptr;
};

/* Makes torch.profiler ask for them, where this torch can: from 2.12. */
void register_activities();

} // namespace libcore_torch

#endif
