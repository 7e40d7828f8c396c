/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Process groups: communicators, errors, point-to-point calls, barriers. */

#include "group.h"

#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cstring>
#include <tuple>

namespace libcore_torch
{

/* ------------------------------------------------------- communicators -- */

Group::Group(int rank, int size, std::chrono::milliseconds timeout,
             Meeting meeting)
    : c10d::Backend(rank, size), timeout_(timeout), meeting_(std::move(meeting))
{
}

Group::~Group()
{
    shutdown();
}

const std::string Group::getBackendName() const
{
    return "libcore";
}

c10::intrusive_ptr<Group::Options> Group::getBackendOptions()
{
    return c10::make_intrusive<Options>("libcore", timeout_);
}

/* GPUs have an engine of their own. */
static const char *engine_of(const core_device *device)
{
    const char *type = core_device_type(device);

    return std::strcmp(type, "cuda") == 0   ? "nccl"
           : std::strcmp(type, "rocm") == 0 ? "rccl"
                                            : "mpi";
}

core_comm *Group::create(c10::DeviceIndex index)
{
    core_device *device = device_at(index);
    core_comm_options options = {};
    core_comm *comm;

    options.struct_size = sizeof options;
    options.engine =
        meeting_.engine.empty() ? engine_of(device) : meeting_.engine.c_str();
    options.store = meeting_.store.c_str();
    options.rank = static_cast<uint32_t>(rank_);
    options.size = static_cast<uint32_t>(size_);
    options.timeout = std::chrono::duration<double>(timeout_).count();
    check(core_comm_create(device, &options, &comm));
    return comm;
}

/* A communicator is created without the lock, so that abort() does not wait. */
core_comm *Group::comm_of(c10::DeviceIndex index)
{
    {
        std::lock_guard<std::mutex> guard(lock_);
        auto known = comms_.find(index);

        TORCH_CHECK_WITH(DistBackendError, !aborted_,
                         "libcore: the process group was aborted");
        if (known != comms_.end())
            return known->second;
    }
    core_comm *comm = create(index);
    std::lock_guard<std::mutex> guard(lock_);

    comms_[index] = comm;
    return comm;
}

void Group::setTimeout(std::chrono::milliseconds timeout)
{
    std::lock_guard<std::mutex> guard(lock_);

    TORCH_CHECK_NOT_IMPLEMENTED(
        comms_.empty(), "libcore: the timeout of a process group cannot be "
                        "changed after its first collective");
    timeout_ = timeout;
}

void Group::setSequenceNumberForGroup()
{
    /* Each communicator counts from 0, on every rank. */
}

uint64_t Group::getSequenceNumberForGroup()
{
    std::lock_guard<std::mutex> guard(lock_);
    uint64_t sum = 0;

    for (auto &entry : comms_)
        sum += core_comm_sequence(entry.second);
    return sum;
}

c10d::ErrorType Group::getError()
{
    std::lock_guard<std::mutex> guard(lock_);

    for (auto &entry : comms_)
        if (core_comm_error(entry.second) != CORE_OK)
            return c10d::ErrorType::COMM_ERROR;
    return c10d::ErrorType::SUCCESS;
}

void Group::abort()
{
    std::lock_guard<std::mutex> guard(lock_);

    aborted_ = true;
    for (auto &entry : comms_)
        check(core_comm_abort(entry.second));
}

void Group::shutdown()
{
    std::lock_guard<std::mutex> guard(lock_);

    for (auto &entry : comms_)
        core_comm_release(entry.second);
    comms_.clear();
}

/* Autograd is torch's. */
struct Inference {
    ~Inference()
    {
        core_inference_end(modes);
    }

    uint64_t modes = core_inference_begin();
};

/* Makes a call with the communicator of a tensor's device, which is the current
 * device meanwhile.  The call returns the outputs. */
WorkPointer Group::run(c10d::OpType type, const at::Tensor &sample,
                       std::chrono::milliseconds timeout, const Call &call)
{
    TORCH_CHECK_VALUE(sample.device().type() == device_type,
                      "libcore: the process group moves tensors on ",
                      device_type, ", found one on ", sample.device());
    TORCH_CHECK_NOT_IMPLEMENTED(
        timeout.count() <= 0 || timeout == timeout_,
        "libcore: a collective has the timeout of its process group");
    c10::DeviceGuard guard(sample.device());
    at::NoGradGuard no_grad;
    Inference inference;
    std::lock_guard<std::mutex> turn(calls_);
    core_comm *comm = comm_of(sample.device().index());

    return new_work(comm, sample.device(), type, call(comm));
}

/* ------------------------------------------------------ point to point -- */

void Group::move(core_comm *comm, const Transfer &transfer) const
{
    at::Tensor elements = transfer.tensor.contiguous();
    Owned tensor(import_tensor(elements));

    if (transfer.from == rank_) {
        check(
            core_send(comm, tensor.get(), static_cast<uint32_t>(transfer.to)));
        return;
    }
    check(core_recv(comm, tensor.get(), static_cast<uint32_t>(transfer.from)));
    if (!elements.is_same(transfer.tensor))
        transfer.tensor.copy_(elements);
}

WorkPointer Group::transfer(c10d::OpType type, const Tensors &tensors, int from,
                            int to, int tag)
{
    TORCH_CHECK_VALUE(tensors.size() == 1,
                      "libcore: a send or receive has one "
                      "tensor, found ",
                      tensors.size());
    TORCH_CHECK_NOT_IMPLEMENTED(
        tag == 0, "libcore: sends and receives have no tags, found ", tag);
    Transfer one{tensors[0], from, to};

    {
        std::lock_guard<std::mutex> guard(lock_);

        if (batch_) {
            batch_->push_back(one);
            return nullptr;
        }
    }
    return run(type, one.tensor, c10d::kUnsetTimeout, [&](core_comm *comm) {
        move(comm, one);
        return tensors;
    });
}

WorkPointer Group::send(Tensors &tensors, int to, int tag)
{
    return transfer(c10d::OpType::SEND, tensors, rank_, to, tag);
}

WorkPointer Group::recv(Tensors &tensors, int from, int tag)
{
    return transfer(c10d::OpType::RECV, tensors, from, rank_, tag);
}

bool Group::supportsCoalescing() const
{
    return true;
}

void Group::startCoalescing()
{
    std::lock_guard<std::mutex> guard(lock_);

    TORCH_CHECK(!batch_, "libcore: a batch of sends and receives has begun");
    batch_.emplace();
}

/* Transfers are made in the order of their pairs of ranks.  All ranks use that
 * order, so the first transfer that is not complete has both of its ranks.
 * Transfers from one rank to another keep their order. */
WorkPointer Group::endCoalescing()
{
    std::vector<Transfer> batch;

    {
        std::lock_guard<std::mutex> guard(lock_);

        TORCH_CHECK(batch_, "libcore: no batch has begun");
        batch = std::move(*batch_);
        batch_.reset();
    }
    if (batch.empty())
        return nullptr;
    std::stable_sort(
        batch.begin(), batch.end(), [](const Transfer &a, const Transfer &b) {
            return std::minmax(a.from, a.to) == std::minmax(b.from, b.to)
                       ? a.from < b.from
                       : std::minmax(a.from, a.to) < std::minmax(b.from, b.to);
        });
    return run(c10d::OpType::COALESCED, batch[0].tensor, c10d::kUnsetTimeout,
               [&](core_comm *comm) {
                   Tensors tensors;

                   for (const Transfer &one : batch) {
                       move(comm, one);
                       tensors.push_back(one.tensor);
                   }
                   return tensors;
               });
}

/* ------------------------------------------------------------- barrier -- */

c10::DeviceIndex Group::device_of(const c10d::BarrierOptions &options)
{
    std::lock_guard<std::mutex> guard(lock_);

    if (!options.device_ids.empty())
        return static_cast<c10::DeviceIndex>(options.device_ids[0]);
    if (options.device && options.device->has_index())
        return options.device->index();
    if (bound_device_id_)
        return bound_device_id_->index();
    return comms_.empty() ? current_index() : comms_.begin()->first;
}

WorkPointer Group::barrier(const c10d::BarrierOptions &options)
{
    at::Tensor none = empty({0}, c10::ScalarType::Byte,
                            c10::Device(device_type, device_of(options)));

    return run(c10d::OpType::BARRIER, none, options.timeout,
               [](core_comm *comm) {
                   check(core_barrier(comm));
                   return Tensors();
               });
}

} // namespace libcore_torch
