/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Arguments of torch as values of libcore. */

#include "values.h"

#include "same_device.h"

#include <ATen/native/TypeProperties.h>

namespace libcore_torch
{

Kind kind_of(const c10::Argument &argument)
{
    c10::TypePtr type = argument.real_type();

    if (auto optional = type->cast<c10::OptionalType>())
        type = optional->getElementType();
    switch (type->kind()) {
    case c10::TypeKind::ScalarTypeType:
        return Kind::dtype;
    case c10::TypeKind::LayoutType:
        return Kind::layout;
    case c10::TypeKind::MemoryFormatType:
        return Kind::format;
    default:
        return Kind::plain;
    }
}

/* ------------------------------------------------------------- devices -- */

Values::Values(c10::ArrayRef<c10::IValue> arguments)
    : arguments_(arguments), device_(current_index())
{
    each_tensor(arguments, [this](const at::Tensor &tensor) {
        if (tensor.device().type() != device_type)
            return false;
        device_ = tensor.device().index();
        return true;
    });
}

Values::~Values()
{
    for (core_tensor *tensor : owned_)
        core_tensor_release(tensor);
}

/* ------------------------------------------------------------- tensors -- */

static c10::ScalarType common_type(c10::ArrayRef<c10::IValue> arguments)
{
    at::native::ResultTypeState state = {};

    each_tensor(arguments, [&state](const at::Tensor &tensor) {
        state = at::native::update_result_type_state(tensor, state);
        return false;
    });
    return at::native::result_type(state);
}

/* A number that Python passed as a tensor, and other tensors on the CPU that
 * check_same_device accepts, which are only read. */
core_tensor *Values::upload(at::Tensor tensor) const
{
    core_tensor *result;

    if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
        tensor = tensor.to(common_type(arguments_));
    tensor = tensor.contiguous();
    TORCH_CHECK_NOT_IMPLEMENTED(
        dtype_of(tensor.scalar_type()) != CORE_DTYPE_NONE,
        "libcore does not support the dtype ", tensor.scalar_type());
    check(core_tensor_from_data(
        tensor.data_ptr(), dtype_of(tensor.scalar_type()),
        tensor.sizes().data(), static_cast<size_t>(tensor.dim()),
        device_at(device_), &result));
    return result;
}

core_tensor *Values::own(const at::Tensor &tensor)
{
    owned_.push_back(tensor.is_cpu() ? upload(tensor) : import_tensor(tensor));
    return owned_.back();
}

void Values::add_tensors(c10::ArrayRef<c10::IValue> list)
{
    core_value value = {};
    auto &tensors = tensors_.emplace_back();

    for (const c10::IValue &element : list)
        tensors.push_back(element.isTensor() && element.toTensor().defined()
                              ? own(element.toTensor())
                              : nullptr);
    value.tag = CORE_VALUE_TENSOR_LIST;
    value.count = static_cast<uint32_t>(tensors.size());
    value.u.tensors = tensors.data();
    values_.push_back(value);
}

/* --------------------------------------------------------------- lists -- */

void Values::add_ints(std::vector<int64_t> list)
{
    core_value value = {};

    ints_.push_back(std::move(list));
    value.tag = CORE_VALUE_INT_LIST;
    value.count = static_cast<uint32_t>(ints_.back().size());
    value.u.ints = ints_.back().data();
    values_.push_back(value);
}

void Values::add_floats(std::vector<double> list)
{
    core_value value = {};

    floats_.push_back(std::move(list));
    value.tag = CORE_VALUE_FLOAT_LIST;
    value.count = static_cast<uint32_t>(floats_.back().size());
    value.u.floats = floats_.back().data();
    values_.push_back(value);
}

static bool has_tensors(c10::ArrayRef<c10::IValue> list)
{
    for (const c10::IValue &element : list)
        if (!element.isTensor() && !element.isNone())
            return false;
    return true;
}

static std::vector<int64_t> whole_numbers(c10::ArrayRef<c10::IValue> list)
{
    std::vector<int64_t> numbers;

    for (const c10::IValue &element : list) {
        TORCH_CHECK_NOT_IMPLEMENTED(element.isInt() || element.isSymInt(),
                                    "libcore does not accept a list of ",
                                    element.tagKind());
        numbers.push_back(element.toSymInt().guard_int(__FILE__, __LINE__));
    }
    return numbers;
}

void Values::add_list(const c10::IValue &list)
{
    core_value value = {};

    if (list.isIntList()) {
        add_ints(list.toIntVector());
    } else if (list.isDoubleList()) {
        add_floats(list.toDoubleVector());
    } else if (list.isBoolList()) {
        auto &bools = bools_.emplace_back();

        for (bool element : list.toBoolList())
            bools.push_back(element);
        value.tag = CORE_VALUE_BOOL_LIST;
        value.count = static_cast<uint32_t>(bools.size());
        value.u.bools = bools.data();
        values_.push_back(value);
    } else if (has_tensors(list.toListRef())) {
        add_tensors(list.toListRef());
    } else {
        add_ints(whole_numbers(list.toListRef()));
    }
}

/* ------------------------------------------------------------- scalars -- */

void Values::add_none()
{
    values_.push_back(core_value{});
}

void Values::add_dtype(c10::ScalarType type)
{
    TORCH_CHECK_NOT_IMPLEMENTED(dtype_of(type) != CORE_DTYPE_NONE,
                                "libcore does not support the dtype ", type);
    values_.push_back(core_int(dtype_of(type)));
    values_.back().tag = CORE_VALUE_DTYPE;
}

void Values::add_device(core_device *device)
{
    core_value value = {};

    value.tag = CORE_VALUE_DEVICE;
    value.u.device = device;
    values_.push_back(value);
}

void Values::add_int(int64_t number, Kind kind)
{
    switch (kind) {
    case Kind::dtype:
        add_dtype(static_cast<c10::ScalarType>(number));
        break;
    case Kind::layout:
        values_.push_back(core_int(number));
        values_.back().tag = CORE_VALUE_LAYOUT;
        break;
    case Kind::format:
        values_.push_back(core_int(number));
        values_.back().tag = CORE_VALUE_FORMAT;
        break;
    default:
        values_.push_back(core_int(number));
    }
}

void Values::add_plain(const c10::IValue &from)
{
    core_value value = {};

    if (from.isDouble()) {
        value = core_float(from.toDouble());
    } else if (from.isBool()) {
        value = core_bool(from.toBool());
    } else if (from.isString()) {
        value.tag = CORE_VALUE_STRING;
        value.count = static_cast<uint32_t>(from.toStringRef().size());
        value.u.string = from.toStringRef().c_str();
    } else if (from.isGenerator()) {
        value.tag = CORE_VALUE_GENERATOR;
        value.u.generator = generator_of(from.toGenerator());
    } else {
        TORCH_CHECK_NOT_IMPLEMENTED(false, "libcore does not accept ",
                                    from.tagKind());
    }
    values_.push_back(value);
}

void Values::add(const c10::IValue &value, Kind kind)
{
    core_value tensor = {};

    if (value.isNone()) {
        add_none();
    } else if (value.isTensor()) {
        if (value.toTensor().defined()) {
            tensor.tag = CORE_VALUE_TENSOR;
            tensor.u.tensor = own(value.toTensor());
        }
        values_.push_back(tensor);
    } else if (value.isInt()) {
        add_int(value.toInt(), kind);
    } else if (value.isSymInt()) {
        add_int(value.toSymInt().guard_int(__FILE__, __LINE__), kind);
    } else if (value.isList()) {
        add_list(value);
    } else if (value.isDevice()) {
        add_device(device_at(value.toDevice().index()));
    } else {
        add_plain(value);
    }
}

} // namespace libcore_torch
