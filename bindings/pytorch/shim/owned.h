/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* owned.h: a reference of a tensor of libcore that ends with its scope. */

#ifndef BINDINGS_PYTORCH_OWNED_H
#define BINDINGS_PYTORCH_OWNED_H

#include <libcore/core.h>

#include <memory>

namespace libcore_torch
{

struct Release {
    void operator()(core_tensor *tensor) const
    {
        core_tensor_release(tensor);
    }
};

using Owned = std::unique_ptr<core_tensor, Release>;

} // namespace libcore_torch

#endif
