/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The operators that every device of torch must have: factories, views,
 * resize_, set_ and copies. */

#include "activities.h"
#include "fallback.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

namespace libcore_torch
{

static const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);

/* ----------------------------------------------------------- factories -- */

/* On the current device.  Where libcore has the dtype, the storage contains a
 * tensor of it with this layout, which import_tensor need not make then. */
static at::Tensor contiguous(c10::IntArrayRef sizes, c10::ScalarType type)
{
    core_dtype dtype = dtype_of(type);
    uint64_t modes;
    core_tensor *tensor;
    core_status status;

    if (dtype == CORE_DTYPE_NONE)
        return at::detail::empty_generic(sizes, device_allocator(), keys, type,
                                         std::nullopt);
    at::detail::check_size_nonnegative(sizes);
    modes = core_inference_begin();
    status =
        core_empty(sizes.data(), sizes.size(), dtype,
                   device_at(current_index()), CORE_FORMAT_CONTIGUOUS, &tensor);
    core_inference_end(modes);
    check(status);
    return export_tensor(tensor);
}

static bool are_contiguous(c10::IntArrayRef sizes, c10::IntArrayRef strides)
{
    int64_t expected = 1;

    if (sizes.size() != strides.size())
        return false;
    for (size_t i = sizes.size(); i-- > 0;) {
        if (strides[i] != expected)
            return false;
        expected *= std::max<int64_t>(sizes[i], 1);
    }
    return true;
}

at::Tensor empty(c10::IntArrayRef sizes, c10::ScalarType type,
                 c10::Device device)
{
    c10::DeviceGuard guard(device);

    return contiguous(sizes, type);
}

/* The default is only looked up where it is needed. */
static c10::ScalarType type_or_default(std::optional<c10::ScalarType> type)
{
    return type ? *type : c10::get_default_dtype_as_scalartype();
}

static void check_options(std::optional<c10::Layout> layout,
                          std::optional<bool> pin_memory)
{
    TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(c10::Layout::Strided) ==
                                    c10::Layout::Strided,
                                "libcore: only strided tensors are supported");
    TORCH_CHECK(!pin_memory.value_or(false),
                "Only dense CPU tensors can be pinned");
}

static at::Tensor empty_memory_format(c10::IntArrayRef size,
                                      std::optional<c10::ScalarType> type,
                                      std::optional<c10::Layout> layout,
                                      std::optional<c10::Device> device,
                                      std::optional<bool> pin_memory,
                                      std::optional<c10::MemoryFormat> format)
{
    c10::OptionalDeviceGuard guard(device);

    c10::ScalarType chosen = type_or_default(type);

    check_options(layout, pin_memory);
    if (format.value_or(c10::MemoryFormat::Contiguous) ==
        c10::MemoryFormat::Contiguous)
        return contiguous(size, chosen);
    return at::detail::empty_generic(size, device_allocator(), keys, chosen,
                                     format);
}

static at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                                std::optional<c10::ScalarType> type,
                                std::optional<c10::Layout> layout,
                                std::optional<c10::Device> device,
                                std::optional<bool> pin_memory)
{
    c10::OptionalDeviceGuard guard(device);

    c10::ScalarType chosen = type_or_default(type);

    check_options(layout, pin_memory);
    if (are_contiguous(size, stride))
        return contiguous(size, chosen);
    return at::detail::empty_strided_generic(size, stride, device_allocator(),
                                             keys, chosen);
}

/* Memory that is not there: torch never reads a tensor of zeros that it has
 * marked so. */
struct ZeroAllocator final : c10::Allocator {
    explicit ZeroAllocator(c10::Device device) : device_(device) {}

    c10::DataPtr allocate(size_t) override
    {
        return {nullptr, device_};
    }

    void copy_data(void *, const void *, std::size_t) const override
    {
        TORCH_CHECK(false, "libcore: a tensor of zeros has no memory");
    }

    c10::Device device_;
};

static at::Tensor efficient_zeros(c10::IntArrayRef size,
                                  std::optional<c10::ScalarType> type,
                                  std::optional<c10::Layout> layout,
                                  std::optional<c10::Device> device,
                                  std::optional<bool> pin_memory)
{
    c10::DeviceIndex index =
        device && device->has_index() ? device->index() : current_index();
    ZeroAllocator allocator(c10::Device(device_type, index));

    check_options(layout, pin_memory);
    return at::detail::empty_generic(size, &allocator,
                                     keys.add(c10::DispatchKey::ZeroTensor),
                                     type_or_default(type), std::nullopt);
}

/* ---------------------------------------------------- resize_ and set_ -- */

/* Lays a tensor out in its storage, which grows if it is too small. */
static void set_layout(const at::Tensor &self, c10::IntArrayRef size,
                       at::OptionalIntArrayRef stride)
{
    c10::TensorImpl *impl = self.unsafeGetTensorImpl();
    size_t item = self.dtype().itemsize(), bytes;
    size_t offset = static_cast<size_t>(self.storage_offset());

    if (stride)
        impl->set_sizes_and_strides(size, *stride);
    else
        impl->set_sizes_contiguous(size);
    if (self.numel() == 0)
        return;
    bytes = at::detail::computeStorageNbytes(self.sizes(), self.strides(), item,
                                             offset);
    if (bytes > self.storage().nbytes())
        resize_storage(*self.storage().unsafeGetStorageImpl(), bytes);
}

static const at::Tensor &resize_(const at::Tensor &self, c10::IntArrayRef size,
                                 std::optional<c10::MemoryFormat> format)
{
    if (self.sizes() != size)
        set_layout(self, size, std::nullopt);
    if (format) {
        TORCH_CHECK(*format != c10::MemoryFormat::Preserve,
                    "resize_: preserve_format is not supported");
        self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
    }
    return self;
}

static at::Tensor &set_storage_offset(at::Tensor &self, at::Storage source,
                                      int64_t offset, c10::IntArrayRef size,
                                      c10::IntArrayRef stride)
{
    at::native::checkSetStorage(self, std::move(source), offset, size, stride);
    self.unsafeGetTensorImpl()->set_storage_offset(offset);
    set_layout(self, size,
               stride.data() ? at::OptionalIntArrayRef(stride) : std::nullopt);
    return self;
}

/* -------------------------------------------------------------- copies -- */

/* Whether libcore has the dtype; others are copied as bits. */
static bool is_known(const at::Tensor &tensor)
{
    return dtype_of(tensor.scalar_type()) != CORE_DTYPE_NONE;
}

/* The bits of a tensor as integers of the same size; complex numbers of 16 bytes
 * as pairs of f64. */
static at::Tensor as_bits(const at::Tensor &tensor)
{
    switch (tensor.element_size()) {
    case 1:
        return tensor.view(c10::ScalarType::Byte);
    case 2:
        return tensor.view(c10::ScalarType::Short);
    case 4:
        return tensor.view(c10::ScalarType::Int);
    case 8:
        return tensor.view(c10::ScalarType::Long);
    default:
        TORCH_CHECK_NOT_IMPLEMENTED(tensor.is_complex(),
                                    "libcore does not support the dtype ",
                                    tensor.scalar_type());
        return at::view_as_real(tensor);
    }
}

static void copy_elements(const at::Tensor &to, const at::Tensor &from,
                          bool non_blocking)
{
    core_tensor *target = import_tensor(to), *source = nullptr;
    uint64_t modes;
    core_status status;

    try {
        source = import_tensor(from);
    } catch (...) {
        core_tensor_release(target);
        throw;
    }
    modes = core_inference_begin();
    {
        Activity activity(core_tensor_device(to.is_cpu() ? source : target));

        status = core_tensor_copy(target, source,
                                  non_blocking ? CORE_COPY_NON_BLOCKING : 0);
    }
    core_inference_end(modes);
    core_tensor_release(target);
    core_tensor_release(source);
    check(status);
}

/* Between dtypes of which libcore does not have one: on the CPU. */
static void copy_on_host(const at::Tensor &to, const at::Tensor &from)
{
    count_fallback("aten::_copy_from");
    to.copy_(from.cpu().to(to.scalar_type()));
}

static at::Tensor real_part(const at::Tensor &numbers)
{
    return at::view_as_real(numbers).select(-1, 0);
}

static at::Tensor imaginary_part(const at::Tensor &numbers)
{
    return at::view_as_real(numbers).select(-1, 1);
}

/* Between complex numbers and others: their parts are copied.  The number that
 * becomes a bool is one if a part is. */
static void copy_parts(const at::Tensor &to, const at::Tensor &from,
                       bool non_blocking)
{
    if (to.is_complex() && from.is_complex()) {
        at::view_as_real(to).copy_(at::view_as_real(from), non_blocking);
    } else if (to.is_complex()) {
        real_part(to).copy_(from, non_blocking && !to.is_cpu());
        imaginary_part(to).zero_();
    } else if (to.scalar_type() == c10::ScalarType::Bool) {
        to.copy_(real_part(from).ne(0).logical_or_(imaginary_part(from).ne(0)),
                 non_blocking);
    } else {
        to.copy_(real_part(from), non_blocking);
    }
}

/* Neither tensor is a negated or conjugated view. */
static void copy_plain(const at::Tensor &to, const at::Tensor &from,
                       bool non_blocking)
{
    if (is_known(from) && is_known(to))
        copy_elements(to, from, non_blocking);
    else if (from.scalar_type() == to.scalar_type())
        copy_elements(as_bits(to), as_bits(from), non_blocking);
    else if (from.is_complex() || to.is_complex())
        copy_parts(to, from, non_blocking);
    else
        copy_on_host(to, from);
}

/* Only to is not a conjugated view.  The CPU changes what has arrived. */
static void copy_conjugated(const at::Tensor &from, const at::Tensor &to,
                            bool non_blocking)
{
    copy_plain(to, from.conj(), non_blocking && !to.is_cpu());
    if (to.is_complex())
        imaginary_part(to).neg_();
}

static at::Tensor copy_from(const at::Tensor &self, const at::Tensor &dst,
                            bool non_blocking)
{
    at::Tensor source = self.expand(dst.sizes());

    if (dst.numel() == 0)
        return dst;
    if (dst.is_neg()) /* in its dtype, which may have a sign where self has none */
        copy_from(self.to(dst.scalar_type()).neg(), dst._neg_view(),
                  non_blocking);
    else if (self.is_neg())
        copy_from(self._neg_view().neg(), dst, non_blocking);
    else if (dst.is_conj())
        copy_from(self.conj(), dst.conj(), non_blocking);
    else if (self.is_conj())
        copy_conjugated(source, dst, non_blocking);
    else
        copy_plain(dst, source, non_blocking);
    return dst;
}

static at::Tensor copy_from_and_resize(const at::Tensor &self,
                                       const at::Tensor &dst)
{
    dst.resize_(self.sizes());
    return copy_from(self, dst, false);
}

static at::Scalar local_scalar_dense(const at::Tensor &self)
{
    core_scalar value = {};
    core_tensor *tensor;
    core_status status;

    if (!is_known(self)) /* only copied */
        return self.cpu().item();
    tensor = import_tensor(self);
    status = core_tensor_item(tensor, &value);
    core_tensor_release(tensor);
    check(status);
    switch (value.tag) {
    case CORE_VALUE_FLOAT:
        return value.u.f;
    case CORE_VALUE_BOOL:
        return at::Scalar(value.u.i != 0);
    default:
        return value.u.i;
    }
}

static void record_stream(at::Tensor &self, c10::Stream stream)
{
    TORCH_CHECK(stream.device() == self.device(), "record_stream: self is on ",
                self.device(), " and the stream on ", stream.device());
    static_cast<c10::DeviceAllocator *>(device_allocator())
        ->recordStream(self.storage().data_ptr(), stream);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m)
{
    m.impl("empty.memory_format", empty_memory_format);
    m.impl("empty_strided", empty_strided);
    m.impl("_efficientzerotensor", efficient_zeros);
    m.impl("as_strided", at::native::as_strided_tensorimpl);
    m.impl("view", at::native::view);
    m.impl("unfold", at::native::unfold);
    m.impl("view_as_real", at::native::view_as_real);
    m.impl("view_as_complex", at::native::view_as_complex);
    m.impl("_reshape_alias", at::native::_reshape_alias);
    m.impl("resize_", resize_);
    m.impl("set_.source_Tensor", at::native::set_tensor_);
    m.impl("set_.source_Storage",
           static_cast<at::Tensor &(*)(at::Tensor &, at::Storage)>(
               at::native::set_));
    m.impl("set_.source_Storage_storage_offset", set_storage_offset);
    m.impl("_copy_from", copy_from);
    m.impl("_copy_from_and_resize", copy_from_and_resize);
    m.impl("_local_scalar_dense", local_scalar_dense);
    m.impl("record_stream", record_stream);
}

/* copy_from sees conjugated and negated views itself: torch's function for them
 * would copy, which is what it was called for. */
TORCH_LIBRARY_IMPL(aten, Conjugate, m)
{
    m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Negative, m)
{
    m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

} // namespace libcore_torch
