/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The collectives of a process group.  comm.h has no gather and no scatter: they
 * are exchanges of parts of different sizes. */

#include "group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

namespace libcore_torch
{

using c10d::OpType;

static uint32_t reduction_of(const c10d::ReduceOp &operation)
{
    switch (static_cast<c10d::ReduceOp::RedOpType>(operation)) {
    case c10d::ReduceOp::SUM:
        return CORE_REDUCE_SUM;
    case c10d::ReduceOp::AVG:
        return CORE_REDUCE_AVG;
    case c10d::ReduceOp::PRODUCT:
        return CORE_REDUCE_PROD;
    case c10d::ReduceOp::MIN:
        return CORE_REDUCE_MIN;
    case c10d::ReduceOp::MAX:
        return CORE_REDUCE_MAX;
    default:
        TORCH_CHECK_NOT_IMPLEMENTED(
            false,
            "libcore: collectives reduce by SUM, AVG, PRODUCT, MIN and "
            "MAX; the reduction is number ",
            static_cast<int>(operation.op_));
    }
}

static const at::Tensor &only(const Tensors &tensors)
{
    TORCH_CHECK_VALUE(tensors.size() == 1,
                      "libcore: a collective has one tensor on each rank, "
                      "found ",
                      tensors.size());
    return tensors[0];
}

static void check_list(const Tensors &list, int size)
{
    TORCH_CHECK_VALUE(list.size() == static_cast<size_t>(size),
                      "libcore: a list of ", list.size(),
                      " tensors does not have one for each of the ", size,
                      " ranks");
}

static const Tensors &only(const std::vector<Tensors> &lists, int size)
{
    TORCH_CHECK_VALUE(lists.size() == 1,
                      "libcore: a collective has one list of tensors on each "
                      "rank, found ",
                      lists.size());
    check_list(lists[0], size);
    return lists[0];
}

static Owned borrow(const at::Tensor &contiguous)
{
    return Owned(import_tensor(contiguous));
}

static bool same_sizes(const Tensors &list)
{
    return std::all_of(list.begin(), list.end(), [&](const at::Tensor &one) {
        return one.sizes() == list[0].sizes();
    });
}

/* All elements of tensors of one dtype, as a tensor of one dimension. */
static at::Tensor flatten(const Tensors &list)
{
    Tensors parts;

    for (const at::Tensor &one : list) {
        TORCH_CHECK_VALUE(one.scalar_type() == list[0].scalar_type(),
                          "libcore: the tensors of a list have the dtypes ",
                          list[0].scalar_type(), " and ", one.scalar_type());
        parts.push_back(one.reshape({-1}));
    }
    return at::cat(parts);
}

/* Outputs are not converted. */
static void check_dtypes(const Tensors &outputs, const at::Tensor &input)
{
    for (const at::Tensor &one : outputs)
        TORCH_CHECK_VALUE(one.scalar_type() == input.scalar_type(),
                          "libcore: the input of a collective is ",
                          input.scalar_type(), ", an output ",
                          one.scalar_type());
}

/* Copies the parts of a tensor of one dimension into tensors. */
static void unflatten(const at::Tensor &flat, const Tensors &list)
{
    int64_t start = 0;

    check_dtypes(list, flat);
    for (const at::Tensor &one : list) {
        one.copy_(flat.narrow(0, start, one.numel()).view(one.sizes()));
        start += one.numel();
    }
}

static void check_parts(const at::Tensor &whole, const at::Tensor &part,
                        int size)
{
    TORCH_CHECK_VALUE(whole.numel() == part.numel() * size &&
                          whole.scalar_type() == part.scalar_type(),
                      "libcore: a tensor of ", whole.sizes(), " ",
                      whole.scalar_type(), " does not consist of ", size,
                      " tensors of ", part.sizes(), " ", part.scalar_type());
}

static std::vector<int64_t> lengths(const Tensors &list)
{
    std::vector<int64_t> result;

    for (const at::Tensor &one : list)
        result.push_back(one.numel());
    return result;
}

/* ----------------------------------------------------- calls of comm.h -- */

static void broadcast_one(core_comm *comm, const at::Tensor &tensor,
                          uint32_t root)
{
    at::Tensor elements = tensor.contiguous();

    check(core_broadcast(comm, borrow(elements).get(), root));
    if (!elements.is_same(tensor))
        tensor.copy_(elements);
}

static void all_reduce_one(core_comm *comm, const at::Tensor &tensor,
                           uint32_t reduction)
{
    at::Tensor elements = tensor.contiguous();

    check(core_all_reduce_(comm, borrow(elements).get(), reduction));
    if (!elements.is_same(tensor))
        tensor.copy_(elements);
}

/* The result counts on the root only. */
static at::Tensor reduce_one(core_comm *comm, const at::Tensor &tensor,
                             uint32_t reduction, uint32_t root)
{
    core_tensor *result;

    check(core_reduce(comm, borrow(tensor.contiguous()).get(), reduction, root,
                      &result));
    return export_tensor(result);
}

static at::Tensor gather_all(core_comm *comm, const at::Tensor &input)
{
    core_tensor *result;

    check(core_all_gather(comm, borrow(input.reshape({-1}).contiguous()).get(),
                          &result));
    return export_tensor(result);
}

static at::Tensor reduce_and_scatter(core_comm *comm, const at::Tensor &flat,
                                     uint32_t reduction)
{
    core_tensor *result;

    check(core_reduce_scatter(comm, borrow(flat.contiguous()).get(), reduction,
                              &result));
    return export_tensor(result);
}

static at::Tensor exchange(core_comm *comm, const at::Tensor &rows,
                           const std::vector<int64_t> &send,
                           const std::vector<int64_t> &receive)
{
    core_tensor *result;

    check(core_all_to_all_rows(comm, borrow(rows.contiguous()).get(),
                               send.data(), receive.data(), &result));
    return export_tensor(result);
}

/* ---------------------------------------------------------- one tensor -- */

WorkPointer Group::broadcast(Tensors &tensors,
                             const c10d::BroadcastOptions &options)
{
    return run(OpType::BROADCAST, only(tensors), options.timeout,
               [&](core_comm *comm) {
                   broadcast_one(comm, tensors[0],
                                 static_cast<uint32_t>(options.rootRank));
                   return tensors;
               });
}

WorkPointer Group::allreduce(Tensors &tensors,
                             const c10d::AllreduceOptions &options)
{
    return run(OpType::ALLREDUCE, only(tensors), options.timeout,
               [&](core_comm *comm) {
                   all_reduce_one(comm, tensors[0],
                                  reduction_of(options.reduceOp));
                   return tensors;
               });
}

WorkPointer Group::allreduce_coalesced(
    Tensors &tensors, const c10d::AllreduceCoalescedOptions &options)
{
    TORCH_CHECK_VALUE(!tensors.empty(), "libcore: there are no tensors");
    return run(OpType::ALLREDUCE_COALESCED, tensors[0], options.timeout,
               [&](core_comm *comm) {
                   for (const at::Tensor &one : tensors)
                       all_reduce_one(comm, one,
                                      reduction_of(options.reduceOp));
                   return tensors;
               });
}

WorkPointer Group::reduce(Tensors &tensors, const c10d::ReduceOptions &options)
{
    return run(
        OpType::REDUCE, only(tensors), options.timeout, [&](core_comm *comm) {
            at::Tensor result =
                reduce_one(comm, tensors[0], reduction_of(options.reduceOp),
                           static_cast<uint32_t>(options.rootRank));

            if (options.rootRank == rank_)
                tensors[0].copy_(result);
            return tensors;
        });
}

/* -------------------------------------------------------------- gather -- */

/* Tensors of different sizes are broadcast by each rank. */
static void gather_list(core_comm *comm, const Tensors &outputs,
                        const at::Tensor &input)
{
    if (same_sizes(outputs)) {
        check_parts(outputs[0], input, 1);
        unflatten(gather_all(comm, input), outputs);
        return;
    }
    check_dtypes(outputs, input);
    check_parts(outputs[core_comm_rank(comm)], input, 1);
    outputs[core_comm_rank(comm)].copy_(
        input.reshape(outputs[core_comm_rank(comm)].sizes()));
    for (uint32_t r = 0; r < outputs.size(); r++)
        broadcast_one(comm, outputs[r], r);
}

WorkPointer Group::allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                             const c10d::AllgatherOptions &options)
{
    const Tensors &list = only(outputs, size_);

    return run(OpType::ALLGATHER, only(inputs), options.timeout,
               [&](core_comm *comm) {
                   gather_list(comm, list, inputs[0]);
                   return list;
               });
}

static void gather_into(core_comm *comm, const at::Tensor &output,
                        const at::Tensor &input)
{
    check_parts(output, input, static_cast<int>(core_comm_size(comm)));
    output.copy_(gather_all(comm, input).view(output.sizes()));
}

WorkPointer Group::_allgather_base(at::Tensor &output, at::Tensor &input,
                                   const c10d::AllgatherOptions &options)
{
    return run(OpType::_ALLGATHER_BASE, input, options.timeout,
               [&](core_comm *comm) {
                   gather_into(comm, output, input);
                   return Tensors{output};
               });
}

static void check_lists(size_t outputs, size_t inputs)
{
    TORCH_CHECK_VALUE(outputs == inputs && inputs > 0, "libcore: there are ",
                      outputs, " outputs and ", inputs, " inputs");
}

WorkPointer Group::allgather_coalesced(std::vector<Tensors> &outputs,
                                       Tensors &inputs,
                                       const c10d::AllgatherOptions &options)
{
    /* torch passes a list for each rank, with a tensor for each input. */
    check_lists(outputs.size(), static_cast<size_t>(size_));
    for (const Tensors &list : outputs)
        check_lists(list.size(), inputs.size());
    return run(OpType::ALLGATHER_COALESCED, inputs[0], options.timeout,
               [&](core_comm *comm) {
                   for (size_t i = 0; i < inputs.size(); i++) {
                       Tensors list;

                       for (const Tensors &of_rank : outputs)
                           list.push_back(of_rank[i]);
                       gather_list(comm, list, inputs[i]);
                   }
                   return Tensors();
               });
}

WorkPointer Group::allgather_into_tensor_coalesced(
    Tensors &outputs, Tensors &inputs, const c10d::AllgatherOptions &options)
{
    check_lists(outputs.size(), inputs.size());
    return run(OpType::COALESCED, inputs[0], options.timeout,
               [&](core_comm *comm) {
                   for (size_t i = 0; i < inputs.size(); i++)
                       gather_into(comm, outputs[i], inputs[i]);
                   return outputs;
               });
}

WorkPointer Group::gather(std::vector<Tensors> &outputs, Tensors &inputs,
                          const c10d::GatherOptions &options)
{
    std::vector<int64_t> send(static_cast<size_t>(size_)), receive = send;
    bool root = options.rootRank == rank_;

    if (root) {
        receive = lengths(only(outputs, size_));
        check_dtypes(outputs[0], only(inputs));
    }
    send.at(static_cast<size_t>(options.rootRank)) = only(inputs).numel();
    return run(OpType::GATHER, inputs[0], options.timeout,
               [&](core_comm *comm) {
                   at::Tensor all =
                       exchange(comm, inputs[0].reshape({-1}), send, receive);

                   if (root)
                       unflatten(all, outputs[0]);
                   return root ? outputs[0] : Tensors();
               });
}

/* ------------------------------------------------------------- scatter -- */

WorkPointer Group::scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                           const c10d::ScatterOptions &options)
{
    std::vector<int64_t> send(static_cast<size_t>(size_)), receive = send;
    bool root = options.rootRank == rank_;

    if (root) {
        send = lengths(only(inputs, size_));
        check_dtypes(outputs, inputs[0][0]);
    }
    receive.at(static_cast<size_t>(options.rootRank)) = only(outputs).numel();
    return run(OpType::SCATTER, outputs[0], options.timeout,
               [&](core_comm *comm) {
                   at::Tensor rows = root ? flatten(inputs[0])
                                          : empty({0}, outputs[0].scalar_type(),
                                                  outputs[0].device());

                   unflatten(exchange(comm, rows, send, receive), outputs);
                   return outputs;
               });
}

/* Parts of different sizes are reduced for each rank. */
static void reduce_list(core_comm *comm, const at::Tensor &output,
                        const Tensors &inputs, uint32_t reduction)
{
    if (same_sizes(inputs)) {
        at::Tensor flat = flatten(inputs);

        check_parts(flat, output, static_cast<int>(inputs.size()));
        unflatten(reduce_and_scatter(comm, flat, reduction), {output});
        return;
    }
    check_parts(inputs[core_comm_rank(comm)], output, 1);
    for (uint32_t r = 0; r < inputs.size(); r++) {
        at::Tensor result = reduce_one(comm, inputs[r], reduction, r);

        if (r == core_comm_rank(comm))
            output.copy_(result.view(output.sizes()));
    }
}

WorkPointer Group::reduce_scatter(Tensors &outputs,
                                  std::vector<Tensors> &inputs,
                                  const c10d::ReduceScatterOptions &options)
{
    const Tensors &list = only(inputs, size_);

    return run(OpType::REDUCE_SCATTER, only(outputs), options.timeout,
               [&](core_comm *comm) {
                   reduce_list(comm, outputs[0], list,
                               reduction_of(options.reduceOp));
                   return outputs;
               });
}

static void reduce_into(core_comm *comm, const at::Tensor &output,
                        const at::Tensor &input, uint32_t reduction)
{
    check_parts(input, output, static_cast<int>(core_comm_size(comm)));
    unflatten(reduce_and_scatter(comm, input.reshape({-1}), reduction),
              {output});
}

WorkPointer Group::_reduce_scatter_base(
    at::Tensor &output, at::Tensor &input,
    const c10d::ReduceScatterOptions &options)
{
    return run(OpType::_REDUCE_SCATTER_BASE, input, options.timeout,
               [&](core_comm *comm) {
                   reduce_into(comm, output, input,
                               reduction_of(options.reduceOp));
                   return Tensors{output};
               });
}

WorkPointer Group::reduce_scatter_tensor_coalesced(
    Tensors &outputs, Tensors &inputs,
    const c10d::ReduceScatterOptions &options)
{
    check_lists(outputs.size(), inputs.size());
    return run(OpType::COALESCED, inputs[0], options.timeout,
               [&](core_comm *comm) {
                   for (size_t i = 0; i < inputs.size(); i++)
                       reduce_into(comm, outputs[i], inputs[i],
                                   reduction_of(options.reduceOp));
                   return outputs;
               });
}

/* ---------------------------------------------------------- all to all -- */

/* No numbers of rows: equal parts. */
static std::vector<int64_t> rows_of(const at::Tensor &tensor,
                                    const std::vector<int64_t> &given, int size)
{
    int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 0;

    if (given.empty()) {
        TORCH_CHECK_VALUE(rows % size == 0, "libcore: ", rows,
                          " rows are not a multiple of ", size, " ranks");
        return std::vector<int64_t>(static_cast<size_t>(size), rows / size);
    }
    TORCH_CHECK_VALUE(
        given.size() == static_cast<size_t>(size) &&
            std::accumulate(given.begin(), given.end(), int64_t{0}) == rows,
        "libcore: the split sizes ", given, " do not divide ", rows,
        " rows among ", size, " ranks");
    return given;
}

/* What a row consists of. */
static void check_rows(const at::Tensor &output, const at::Tensor &input)
{
    check_dtypes({output}, input);
    TORCH_CHECK_VALUE(output.dim() > 0 && input.dim() > 0 &&
                          output.sizes().slice(1) == input.sizes().slice(1),
                      "libcore: the rows of an output of sizes ",
                      output.sizes(), " are not like those of an input of ",
                      input.sizes());
}

WorkPointer Group::alltoall_base(at::Tensor &output, at::Tensor &input,
                                 std::vector<int64_t> &output_rows,
                                 std::vector<int64_t> &input_rows,
                                 const c10d::AllToAllOptions &options)
{
    std::vector<int64_t> receive = rows_of(output, output_rows, size_);
    std::vector<int64_t> send = rows_of(input, input_rows, size_);

    check_rows(output, input);
    return run(OpType::ALLTOALL_BASE, input, options.timeout,
               [&](core_comm *comm) {
                   output.copy_(exchange(comm, input, send, receive));
                   return Tensors{output};
               });
}

WorkPointer Group::alltoall(Tensors &outputs, Tensors &inputs,
                            const c10d::AllToAllOptions &options)
{
    check_list(outputs, size_);
    check_list(inputs, size_);
    check_dtypes(outputs, inputs[0]);
    return run(OpType::ALLTOALL, inputs[0], options.timeout,
               [&](core_comm *comm) {
                   unflatten(exchange(comm, flatten(inputs), lengths(inputs),
                                      lengths(outputs)),
                             outputs);
                   return outputs;
               });
}

} // namespace libcore_torch
