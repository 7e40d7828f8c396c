/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Tensors of torch as tensors of libcore, and back, without copies. */

#include "shim.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/StorageImpl.h>

#include <algorithm>

namespace libcore_torch
{

core_dtype dtype_of(c10::ScalarType type) noexcept
{
    switch (type) {
    case c10::ScalarType::Double:
        return CORE_F64;
    case c10::ScalarType::Float:
        return CORE_F32;
    case c10::ScalarType::Half:
        return CORE_F16;
    case c10::ScalarType::BFloat16:
        return CORE_BF16;
    case c10::ScalarType::Long:
        return CORE_I64;
    case c10::ScalarType::Int:
        return CORE_I32;
    case c10::ScalarType::Short:
        return CORE_I16;
    case c10::ScalarType::Char:
        return CORE_I8;
    case c10::ScalarType::Byte:
        return CORE_U8;
    case c10::ScalarType::Bool:
        return CORE_BOOL;
    case c10::ScalarType::Float8_e4m3fn:
        return CORE_F8E4M3;
    case c10::ScalarType::Float8_e5m2:
        return CORE_F8E5M2;
    default:
        return CORE_DTYPE_NONE;
    }
}

c10::ScalarType type_of(core_dtype dtype)
{
    static const c10::ScalarType types[] = {
        c10::ScalarType::Double,        c10::ScalarType::Float,
        c10::ScalarType::Half,          c10::ScalarType::BFloat16,
        c10::ScalarType::Long,          c10::ScalarType::Int,
        c10::ScalarType::Short,         c10::ScalarType::Char,
        c10::ScalarType::Byte,          c10::ScalarType::Bool,
        c10::ScalarType::Float8_e4m3fn, c10::ScalarType::Float8_e5m2,
    };

    for (c10::ScalarType type : types)
        if (dtype_of(type) == dtype)
            return type;
    TORCH_CHECK_NOT_IMPLEMENTED(false, "libcore: torch has no dtype ",
                                core_dtype_name(dtype));
}

/* The bytes of a storage on the CPU. */
static core_tensor *host_storage(c10::StorageImpl &storage)
{
    const int64_t bytes = static_cast<int64_t>(storage.nbytes());
    core_tensor *tensor;

    check(core_tensor_from_memory(storage._mutable_data_ptr_no_checks().get(),
                                  CORE_U8, &bytes, 1, nullptr, nullptr,
                                  &tensor));
    return tensor;
}

/* A tensor without elements may have any offset in torch. */
static core_tensor *alias(core_tensor *storage, const at::Tensor &tensor,
                          core_dtype dtype)
{
    int64_t offset = tensor.numel() > 0 ? tensor.storage_offset() : 0;
    core_tensor *result;

    check(core_tensor_alias(
        storage, dtype, tensor.sizes().data(), tensor.strides().data(),
        static_cast<size_t>(tensor.dim()), offset, &result));
    return result;
}

/* Whether a tensor of libcore has the dtype and the layout of one of torch. */
static bool is_same(const core_tensor *known, const at::Tensor &tensor,
                    core_dtype dtype)
{
    size_t ndim = static_cast<size_t>(tensor.dim());

    return core_tensor_dtype(known) == dtype &&
           core_tensor_ndim(known) == ndim &&
           core_tensor_offset(known) == tensor.storage_offset() &&
           std::equal(tensor.sizes().begin(), tensor.sizes().end(),
                      core_tensor_sizes(known)) &&
           std::equal(tensor.strides().begin(), tensor.strides().end(),
                      core_tensor_strides(known));
}

/* Most tensors are the one that their storage was made for. */
static core_tensor *tensor_on_device(c10::StorageImpl &storage,
                                     const at::Tensor &tensor, core_dtype dtype)
{
    core_tensor *known = tensor_of(storage);

    return is_same(known, tensor, dtype) ? core_tensor_retain(known)
                                         : alias(known, tensor, dtype);
}

core_tensor *import_tensor(const at::Tensor &tensor)
{
    core_dtype dtype = dtype_of(tensor.scalar_type());
    c10::StorageImpl &storage = *tensor.storage().unsafeGetStorageImpl();
    core_tensor *bytes, *result = nullptr;

    TORCH_CHECK_NOT_IMPLEMENTED(dtype != CORE_DTYPE_NONE,
                                "libcore does not support the dtype ",
                                tensor.scalar_type());
    if (tensor.device().type() == device_type)
        return tensor_on_device(storage, tensor, dtype);
    TORCH_CHECK(tensor.is_cpu(), "libcore: expected a tensor on ", device_type,
                " or cpu, found one on ", tensor.device());
    bytes = host_storage(storage);
    try {
        result = alias(bytes, tensor, dtype);
    } catch (...) {
        core_tensor_release(bytes);
        throw;
    }
    core_tensor_release(bytes);
    return result;
}

at::Tensor export_tensor(core_tensor *from)
{
    c10::IntArrayRef sizes(core_tensor_sizes(from), core_tensor_ndim(from));
    c10::IntArrayRef strides(core_tensor_strides(from), core_tensor_ndim(from));
    c10::ScalarType type = type_of(core_tensor_dtype(from));
    int64_t offset = core_tensor_offset(from);
    c10::Storage storage(
        c10::Storage::use_byte_size_t(),
        at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(type),
                                         static_cast<size_t>(offset)),
        data_of(from), device_allocator(), true);
    at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
        c10::scalarTypeToTypeMeta(type));

    tensor.unsafeGetTensorImpl()->set_storage_offset(offset);
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
    return tensor;
}

} // namespace libcore_torch
