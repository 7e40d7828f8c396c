/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What the collectives of a process group return. */

#include "group.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <thread>

namespace libcore_torch
{

struct Done final : c10d::Work {
    Done(Shared comm, c10::Device device, c10d::OpType type, Tensors outputs)
        : c10d::Work(comm ? static_cast<int>(core_comm_rank(comm->get())) : -1,
                     type),
          comm_(std::move(comm)), device_(device), event_(device_type),
          outputs_(std::move(outputs)),
          sequence_(comm_ ? core_comm_sequence(comm_->get()) : 0)
    {
        event_.record(current());
    }

    bool isCompleted() override
    {
        return event_.query();
    }

    bool isSuccess() const override
    {
        return !comm_ || !comm_->failed();
    }

    std::exception_ptr exception() const override
    {
        try {
            check_error();
        } catch (...) {
            return std::current_exception();
        }
        return nullptr;
    }

    std::vector<at::Tensor> result() override
    {
        return outputs_;
    }

    uint64_t getSequencenumber() const override
    {
        return sequence_;
    }

    /* The current stream waits. */
    void synchronize() override
    {
        event_.block(current());
    }

    /* The host waits for a barrier, and if there is a timeout. */
    bool wait(std::chrono::milliseconds timeout) override
    {
        if (timeout.count() > 0)
            wait_until(std::chrono::steady_clock::now() + timeout);
        else if (opType_ == c10d::OpType::BARRIER)
            event_.synchronize();
        synchronize();
        check_error();
        return true;
    }

    void abort() override
    {
        if (comm_)
            check(core_comm_abort(comm_->get()));
    }

    /* Complete from the start: whoever waits for it waits for the events that
     * it records, as with the other devices of torch.  With the error that the
     * communicator already has. */
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override
    {
        auto future = c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()),
            std::vector<c10::Device>{device_});
        c10::DeviceGuard guard(device_);

        synchronize();
        if (std::exception_ptr error = exception())
            future->setError(error);
        else
            future->markCompleted(c10::IValue(outputs_));
        return future;
    }

  private:
    void check_error() const
    {
        if (comm_)
            comm_->check_error();
    }

    c10::Stream current() const
    {
        return c10::impl::VirtualGuardImpl(device_type).getStream(device_);
    }

    void wait_until(std::chrono::steady_clock::time_point end)
    {
        while (!event_.query()) {
            TORCH_CHECK_WITH(DistBackendError,
                             std::chrono::steady_clock::now() < end,
                             "libcore: the timeout of wait() passed before "
                             "collective ",
                             sequence_, " was complete");
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }

    Shared comm_;
    c10::Device device_;
    c10::Event event_;
    Tensors outputs_;
    uint64_t sequence_;
};

WorkPointer new_work(Shared comm, c10::Device device, c10d::OpType type,
                     Tensors outputs)
{
    return c10::make_intrusive<Done>(std::move(comm), device, type,
                                     std::move(outputs));
}

} // namespace libcore_torch
