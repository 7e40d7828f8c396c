/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What calls of expressions read from tensors and lists, and its errors. */

#include "scope/scope.h"

#include "tensor/tensor.h"

int64_t core_x_size_at(const char *where, const core_tensor *tensor,
                       int64_t dim)
{
    int64_t size = tensor ? core_tensor_size(tensor, dim) : 0;
    core__scopes *scopes;

    if (size >= 0)
        return size;
    scopes = core__scopes_ready(where);
    if (scopes)
        core__scopes_fail(
            scopes, where,
            core__error(
                CORE_ERROR_INDEX,
                "core_x_size: dim is %lld; the tensor has %u dimensions",
                (long long)dim, tensor->ndim));
    return 0;
}

void core_list_unpack_refuse(const char *where, size_t given, size_t wanted)
{
    core__scopes *scopes = core__scopes_ready(where);

    if (scopes)
        core__scopes_fail(
            scopes, where,
            core__error(CORE_ERROR_SHAPE,
                        "CORE_UNPACK: the list has %zu tensors, and there are "
                        "%zu variables",
                        given, wanted));
}
