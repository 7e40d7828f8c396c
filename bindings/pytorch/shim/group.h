/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* group.h: process groups of torch.distributed over communicators of libcore. */

#ifndef BINDINGS_PYTORCH_GROUP_H
#define BINDINGS_PYTORCH_GROUP_H

#include <Python.h>

#include "communicator.h"
#include "owned.h"
#include "shim.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace libcore_torch
{

using Tensors = std::vector<at::Tensor>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

/* What a collective returns: its end is an event on the current stream of the
 * calling thread.  comm: empty if nothing was to be done. */
WorkPointer new_work(Shared comm, c10::Device device, c10d::OpType type,
                     Tensors outputs);

/* How the ranks of a group find each other. */
struct Meeting {
    std::string engine; /* "": that of the device's plugin, or "mpi" */
    std::string store;  /* core_comm_options; "": rank 0 chooses an address */
    std::string host;   /* of that address, on rank 0 */
    /* Through it rank 0 tells the others the address. */
    c10::intrusive_ptr<c10d::Store> board;
};

/* The store of core_comm_options for a communicator of a group; number: how many
 * the group had before. */
std::string meet(const Meeting &meeting, size_t number, bool first,
                 std::chrono::milliseconds timeout);

/* A process group.  The communicator of a device is created by the first
 * collective with a tensor on it, which all ranks call.  Threads take turns. */
class Group final : public c10d::Backend
{
  public:
    Group(int rank, int size, std::chrono::milliseconds timeout,
          Meeting meeting);
    ~Group() override;

    const std::string getBackendName() const override;
    c10::intrusive_ptr<Options> getBackendOptions() override;
    void setTimeout(std::chrono::milliseconds timeout) override;
    void setSequenceNumberForGroup() override;
    uint64_t getSequenceNumberForGroup() override;
    c10d::ErrorType getError() override;
    void abort() override;
    void shutdown() override;

    WorkPointer broadcast(Tensors &tensors,
                          const c10d::BroadcastOptions &options) override;
    WorkPointer allreduce(Tensors &tensors,
                          const c10d::AllreduceOptions &options) override;
    WorkPointer allreduce_coalesced(
        Tensors &tensors,
        const c10d::AllreduceCoalescedOptions &options) override;
    WorkPointer reduce(Tensors &tensors,
                       const c10d::ReduceOptions &options) override;
    WorkPointer allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                          const c10d::AllgatherOptions &options) override;
    WorkPointer _allgather_base(at::Tensor &output, at::Tensor &input,
                                const c10d::AllgatherOptions &options) override;
    WorkPointer allgather_coalesced(
        std::vector<Tensors> &outputs, Tensors &inputs,
        const c10d::AllgatherOptions &options) override;
    WorkPointer allgather_into_tensor_coalesced(
        Tensors &outputs, Tensors &inputs,
        const c10d::AllgatherOptions &options) override;
    WorkPointer gather(std::vector<Tensors> &outputs, Tensors &inputs,
                       const c10d::GatherOptions &options) override;
    WorkPointer scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                        const c10d::ScatterOptions &options) override;
    WorkPointer reduce_scatter(
        Tensors &outputs, std::vector<Tensors> &inputs,
        const c10d::ReduceScatterOptions &options) override;
    WorkPointer _reduce_scatter_base(
        at::Tensor &output, at::Tensor &input,
        const c10d::ReduceScatterOptions &options) override;
    WorkPointer reduce_scatter_tensor_coalesced(
        Tensors &outputs, Tensors &inputs,
        const c10d::ReduceScatterOptions &options) override;
    WorkPointer alltoall_base(at::Tensor &output, at::Tensor &input,
                              std::vector<int64_t> &output_rows,
                              std::vector<int64_t> &input_rows,
                              const c10d::AllToAllOptions &options) override;
    WorkPointer alltoall(Tensors &outputs, Tensors &inputs,
                         const c10d::AllToAllOptions &options) override;
    WorkPointer send(Tensors &tensors, int to, int tag) override;
    WorkPointer recv(Tensors &tensors, int from, int tag) override;
    WorkPointer recvAnysource(Tensors &tensors, int tag) override;
    WorkPointer barrier(const c10d::BarrierOptions &options) override;

    /* Sends and receives of a batch, in an order in which ranks do not wait for
     * each other. */
    bool supportsCoalescing() const override;
    void startCoalescing() override;
    WorkPointer endCoalescing() override;
    /* Ends a batch without its transfers; nothing if there is none. */
    void dropBatch();

  private:
    struct Transfer {
        at::Tensor tensor;
        int from, to;
    };
    /* What a batch has collected, up to its first error, which its end throws:
     * torch does not end a batch in which something was thrown. */
    struct Batch {
        std::vector<Transfer> transfers;
        std::exception_ptr error;
    };
    using Call = std::function<Tensors(core_comm *)>;

    void check_open() const;
    Shared comm_of(c10::DeviceIndex index);
    core_comm *create(c10::DeviceIndex index);
    std::vector<Shared> comms();
    WorkPointer run(c10d::OpType type, const at::Tensor &sample,
                    std::chrono::milliseconds timeout, const Call &call);
    bool collect(const Transfer *transfer, std::exception_ptr error);
    WorkPointer transfer(c10d::OpType type, const Tensors &tensors, int from,
                         int to, int tag);
    void move(core_comm *comm, const Transfer &transfer) const;
    WorkPointer nothing();
    c10::DeviceIndex device_of(const c10d::BarrierOptions &options);

    std::chrono::milliseconds timeout_;
    Meeting meeting_;
    std::mutex calls_; /* held during a call */
    std::mutex lock_;  /* guards the rest; never held while waiting */
    std::map<c10::DeviceIndex, Shared> comms_;
    size_t created_ = 0; /* communicators, also those that failed */
    std::optional<Batch> batch_;
    bool aborted_ = false;
    bool closed_ = false;
};

/* process_group(rank, size, timeout, engine, store, host, board): a
 * c10d.Backend.  The timeout is in seconds; the others are those of Meeting. */
PyObject *process_group(PyObject *self, PyObject *arguments);
/* drop_batch(backend): after an exception in a batch, which torch does not end.
 * Other backends are left as they are. */
PyObject *drop_batch(PyObject *self, PyObject *backend);
/* share_text(text, engine): the text of rank 0 of the engine's launcher. */
PyObject *share_text(PyObject *self, PyObject *arguments);

} // namespace libcore_torch

#endif
