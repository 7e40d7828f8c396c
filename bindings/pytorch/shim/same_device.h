/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* same_device.h: which devices the arguments of one call may have. */

#ifndef BINDINGS_PYTORCH_SAME_DEVICE_H
#define BINDINGS_PYTORCH_SAME_DEVICE_H

#include <ATen/core/dispatch/Dispatcher.h>

namespace libcore_torch
{

/* Calls function for each tensor among the arguments, until it returns true. */
template <class Function>
void each_tensor(c10::ArrayRef<c10::IValue> arguments, const Function &function)
{
    for (const c10::IValue &value : arguments) {
        if (value.isTensor() && value.toTensor().defined()) {
            if (function(value.toTensor()))
                return;
        } else if (value.isList()) {
            for (const c10::IValue &element : value.toListRef())
                if (element.isTensor() && element.toTensor().defined() &&
                    function(element.toTensor()))
                    return;
        }
    }
}

/* Throws unless all tensors and generators of a call are of one device.  As on
 * torch's other devices, the CPU's tensors without dimensions are accepted where
 * they are only read, and so are indices on the CPU. */
void check_same_device(const c10::OperatorHandle &op,
                       c10::ArrayRef<c10::IValue> arguments);

} // namespace libcore_torch

#endif
