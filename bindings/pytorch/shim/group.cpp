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

/* A group that was not destroyed may have an error that nobody has seen. */
Group::~Group()
{
    try {
        shutdown();
    } catch (const std::exception &error) {
        TORCH_WARN("libcore: a process group ends with an error: ",
                   error.what());
    }
}

const std::string Group::getBackendName() const
{
    return "libcore";
}

c10::intrusive_ptr<Group::Options> Group::getBackendOptions()
{
    return c10::make_intrusive<Options>("libcore", timeout_);
}

/* The plugin that provides a device; NULL: it is built in. */
static const core_plugin *plugin_of(const core_device *device)
{
    core_backend_information backend = {};

    for (uint32_t i = 0;; i++) {
        backend.struct_size = sizeof backend;
        if (core_backend_describe(i, &backend) != CORE_OK)
            return nullptr;
        if (std::strcmp(backend.device_type, core_device_type(device)) == 0)
            return backend.plugin;
    }
}

/* A plugin of devices may have an engine for their memory, as those of GPUs have:
 * its first one that can be used, or else its first one, whose error states the
 * reason. */
static std::string engine_of(const core_device *device)
{
    const core_plugin *plugin = plugin_of(device);
    core_comm_engine_information engine = {};
    std::string found;

    for (size_t i = 0; plugin; i++) {
        engine.struct_size = sizeof engine;
        if (core_comm_engine_describe(i, &engine) != CORE_OK)
            break;
        if (engine.plugin != plugin)
            continue;
        if (engine.usable)
            return engine.name;
        if (found.empty())
            found = engine.name;
    }
    core_error_clear();
    return found.empty() ? "mpi" : found;
}

core_comm *Group::create(c10::DeviceIndex index)
{
    core_device *device = device_at(index);
    std::string engine =
        meeting_.engine.empty() ? engine_of(device) : meeting_.engine;
    core_comm_options options = {};
    std::string store;
    size_t number;
    core_comm *comm;

    {
        std::lock_guard<std::mutex> guard(lock_);

        number = created_++;
    }
    options.struct_size = sizeof options;
    options.engine = engine.c_str();
    /* MPI's launcher connects its processes. */
    if (engine != "mpi")
        store = meet(meeting_, number, rank_ == 0, timeout_);
    options.store = store.c_str();
    options.rank = static_cast<uint32_t>(rank_);
    options.size = static_cast<uint32_t>(size_);
    options.timeout = std::chrono::duration<double>(timeout_).count();
    check(core_comm_create(device, &options, &comm));
    return comm;
}

void Group::check_open() const
{
    TORCH_CHECK_WITH(DistBackendError, !aborted_,
                     "libcore: the process group was aborted");
    TORCH_CHECK_WITH(DistBackendError, !closed_,
                     "libcore: the process group was shut down");
}

/* A communicator is created without the lock, so that abort() does not wait; and
 * the group may have been aborted or shut down meanwhile. */
Shared Group::comm_of(c10::DeviceIndex index)
{
    {
        std::lock_guard<std::mutex> guard(lock_);
        auto known = comms_.find(index);

        check_open();
        if (known != comms_.end())
            return known->second;
    }
    Shared comm = std::make_shared<Communicator>(create(index));
    std::lock_guard<std::mutex> guard(lock_);

    if (aborted_ || closed_)
        core_comm_abort(comm->get());
    check_open();
    comms_[index] = comm;
    return comm;
}

std::vector<Shared> Group::comms()
{
    std::lock_guard<std::mutex> guard(lock_);
    std::vector<Shared> result;

    for (auto &entry : comms_)
        result.push_back(entry.second);
    return result;
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
    uint64_t sum = 0;

    for (const Shared &comm : comms())
        sum += core_comm_sequence(comm->get());
    return sum;
}

c10d::ErrorType Group::getError()
{
    for (const Shared &comm : comms())
        if (comm->failed())
            return c10d::ErrorType::COMM_ERROR;
    return c10d::ErrorType::SUCCESS;
}

void Group::abort()
{
    {
        std::lock_guard<std::mutex> guard(lock_);

        aborted_ = true;
    }
    for (const Shared &comm : comms()) {
        check(core_comm_abort(comm->get()));
        comm->tell();
    }
}

/* One of the errors is thrown as it is; several as one that has their messages. */
static void rethrow_all(const std::vector<std::exception_ptr> &errors)
{
    std::string messages;

    if (errors.size() == 1)
        std::rethrow_exception(errors[0]);
    for (const std::exception_ptr &error : errors)
        try {
            std::rethrow_exception(error);
        } catch (const c10::Error &seen) {
            messages += std::string("; ") + seen.what_without_backtrace();
        }
    TORCH_CHECK_WITH(DistBackendError, errors.empty(), "libcore: ",
                     errors.size(), " communicators failed", messages);
}

/* The communicators stay where abort() finds them until they are complete.
 * Errors that nobody has seen are thrown after all have ended. */
void Group::shutdown()
{
    std::map<c10::DeviceIndex, Shared> ended;
    std::vector<std::exception_ptr> errors;

    {
        std::lock_guard<std::mutex> guard(lock_);

        closed_ = true;
    }
    for (const Shared &comm : comms())
        try {
            comm->finish();
        } catch (...) {
            errors.push_back(std::current_exception());
        }
    {
        std::lock_guard<std::mutex> guard(lock_);

        ended.swap(comms_);
    }
    ended.clear();
    rethrow_all(errors);
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
    Shared comm = comm_of(sample.device().index());

    try {
        return new_work(comm, sample.device(), type, call(comm->get()));
    } catch (...) {
        comm->tell();
        throw;
    }
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

/* Adds a transfer, or an error, to the batch; false if there is none. */
bool Group::collect(const Transfer *transfer, std::exception_ptr error)
{
    std::lock_guard<std::mutex> guard(lock_);

    if (!batch_)
        return false;
    if (transfer)
        batch_->transfers.push_back(*transfer);
    else if (!batch_->error)
        batch_->error = error;
    return true;
}

static void check_transfer(const Tensors &tensors, int tag)
{
    TORCH_CHECK_VALUE(tensors.size() == 1,
                      "libcore: a send or receive has one "
                      "tensor, found ",
                      tensors.size());
    TORCH_CHECK_NOT_IMPLEMENTED(
        tag == 0, "libcore: sends and receives have no tags, found ", tag);
}

WorkPointer Group::transfer(c10d::OpType type, const Tensors &tensors, int from,
                            int to, int tag)
{
    try {
        check_transfer(tensors, tag);
    } catch (...) {
        if (collect(nullptr, std::current_exception()))
            return nullptr;
        throw;
    }
    Transfer one{tensors[0], from, to};

    if (collect(&one, nullptr))
        return nullptr;
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

WorkPointer Group::recvAnysource(Tensors &tensors, int tag)
{
    try {
        return c10d::Backend::recvAnysource(tensors, tag);
    } catch (...) {
        if (collect(nullptr, std::current_exception()))
            return nullptr;
        throw;
    }
}

bool Group::supportsCoalescing() const
{
    return true;
}

/* A batch that has not ended was left by an exception between its calls. */
void Group::startCoalescing()
{
    std::lock_guard<std::mutex> guard(lock_);

    batch_.emplace();
}

void Group::dropBatch()
{
    std::lock_guard<std::mutex> guard(lock_);

    batch_.reset();
}

/* A batch without transfers: its collectives were made when they were called. */
WorkPointer Group::nothing()
{
    c10::Device device(device_type, device_of(c10d::BarrierOptions()));
    c10::DeviceGuard current(device);
    Shared comm;
    std::lock_guard<std::mutex> guard(lock_);
    auto known = comms_.find(device.index());

    if (known != comms_.end())
        comm = known->second;
    return new_work(comm, device, c10d::OpType::COALESCED, Tensors());
}

/* Transfers are made in the order of their pairs of ranks.  All ranks use that
 * order, so the first transfer that is not complete has both of its ranks.
 * Transfers from one rank to another keep their order. */
WorkPointer Group::endCoalescing()
{
    std::vector<Transfer> batch;
    std::exception_ptr error;

    {
        std::lock_guard<std::mutex> guard(lock_);

        TORCH_CHECK(batch_, "libcore: no batch has begun");
        batch = std::move(batch_->transfers);
        error = batch_->error;
        batch_.reset();
    }
    if (error)
        std::rethrow_exception(error);
    if (batch.empty())
        return nothing();
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
