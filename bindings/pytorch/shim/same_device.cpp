/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* All tensors of a call are on one device. */

#include "same_device.h"

#include "shim.h"

namespace libcore_torch
{

using Arguments = c10::ArrayRef<c10::IValue>;

/* A list of indices, as of index.Tensor and index_put_. */
static bool is_indices(const c10::Argument &argument)
{
    return argument.name() == "indices" &&
           argument.type()->kind() == c10::TypeKind::ListType;
}

/* Numbers of torch._foreach_addcmul and others, which are the CPU's. */
static bool is_scalars(const c10::Argument &argument)
{
    return argument.name() == "scalars";
}

/* The first tensor's of a device of libcore that is not an index.  Without one, the
 * first tensor's: a generator or an index is of libcore. */
static std::optional<c10::Device> device_of_call(
    const std::vector<c10::Argument> &known, Arguments arguments)
{
    std::optional<c10::Device> first;
    bool found = false;

    for (size_t i = 0; i < arguments.size() && !found; i++)
        if (!is_indices(known[i]))
            each_tensor(arguments.slice(i, 1), [&](const at::Tensor &tensor) {
                found = tensor.device().type() == device_type;
                if (found || !first)
                    first = tensor.device();
                return found;
            });
    return first;
}

/* Operators of other libraries may read any tensor of the CPU, such as lengths. */
static bool is_of_torch(const c10::FunctionSchema &schema)
{
    return schema.name().rfind("aten::", 0) == 0;
}

static void check_tensor(const c10::FunctionSchema &schema,
                         const c10::Argument &argument,
                         const at::Tensor &tensor, c10::Device device)
{
    bool written = argument.alias_info() && argument.alias_info()->isWrite();

    if (tensor.device() == device)
        return;
    if (is_indices(argument)) {
        TORCH_CHECK(tensor.is_cpu(),
                    "indices should be either on cpu or on the same device as "
                    "the indexed tensor (",
                    device, ")");
        return;
    }
    TORCH_CHECK(tensor.is_cpu() && !written &&
                    (tensor.dim() == 0 || is_scalars(argument) ||
                     !is_of_torch(schema)),
                "Expected all tensors to be on the same device, but found at "
                "least two devices, ",
                device, " and ", tensor.device(), "!");
}

static void check_each(const c10::FunctionSchema &schema, Arguments arguments)
{
    const std::vector<c10::Argument> &known = schema.arguments();
    std::optional<c10::Device> device = device_of_call(known, arguments);

    if (!device)
        return;
    for (size_t i = 0; i < arguments.size(); i++) {
        if (arguments[i].isGenerator()) {
            c10::Device other = arguments[i].toGenerator().device();

            TORCH_CHECK(other == *device, "Expected a generator of ", *device,
                        " but found one of ", other);
        }
        each_tensor(arguments.slice(i, 1), [&](const at::Tensor &tensor) {
            check_tensor(schema, known[i], tensor, *device);
            return false;
        });
    }
}

/* Nearly always all are of one device, which is quickly seen. */
static bool are_of_one_device(Arguments arguments)
{
    const at::Tensor *first = nullptr;
    bool same = true;

    for (const c10::IValue &value : arguments)
        if (value.isGenerator())
            return false;
    each_tensor(arguments, [&](const at::Tensor &tensor) {
        if (!first)
            first = &tensor;
        same = tensor.device() == first->device();
        return !same;
    });
    return same;
}

void check_same_device(const c10::OperatorHandle &op, Arguments arguments)
{
    if (C10_LIKELY(are_of_one_device(arguments)))
        return;
    if (op.schema().name() != "aten::is_set_to") /* of two devices it is false */
        check_each(op.schema(), arguments);
}

} // namespace libcore_torch
