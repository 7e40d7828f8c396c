/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "autograd/input_buffer.h"

#include "autograd/calls.h"

static bool sole_owner(const core_tensor *tensor)
{
    return atomic_load_explicit(&tensor->references, memory_order_acquire) ==
               1 &&
           tensor->storage &&
           atomic_load_explicit(&tensor->storage->references,
                                memory_order_acquire) == 1;
}

core_status core__input_buffer_sum(core_tensor **buffer, core_tensor *grad,
                                   bool recording)
{
    core_tensor *sum = NULL;
    core_status status;

    if (!recording && sole_owner(*buffer) &&
        (*buffer)->flags & CORE__TENSOR_DENSE &&
        !((*buffer)->flags & CORE__TENSOR_INFERENCE)) {
        status = core__ag_add_to(*buffer, grad);
    } else {
        status = core__ag_add(*buffer, grad, &sum);
        if (status == CORE_OK) {
            core__tensor_release(*buffer);
            *buffer = sum;
        }
    }
    core__tensor_release(grad);
    return status;
}
