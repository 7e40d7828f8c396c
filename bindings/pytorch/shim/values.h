/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* values.h: arguments of torch as values of libcore. */

#ifndef BINDINGS_PYTORCH_VALUES_H
#define BINDINGS_PYTORCH_VALUES_H

#include "shim.h"

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <vector>

namespace libcore_torch
{

/* What torch passes as an int and libcore as something else. */
enum class Kind { plain, dtype, layout, format };
Kind kind_of(const c10::Argument &argument);

/* The arguments of a call, with what they refer to. */
class Values
{
  public:
    /* arguments: all of the call, to find the device and the common dtype. */
    explicit Values(c10::ArrayRef<c10::IValue> arguments);
    ~Values();
    Values(const Values &) = delete;
    Values &operator=(const Values &) = delete;

    void add(const c10::IValue &value, Kind kind);
    void add_none();
    void add_dtype(c10::ScalarType type);
    void add_device(core_device *device);

    const core_value *data() const
    {
        return values_.data();
    }

    uint32_t size() const
    {
        return static_cast<uint32_t>(values_.size());
    }

  private:
    void add_plain(const c10::IValue &value);
    void add_int(int64_t value, Kind kind);
    void add_list(const c10::IValue &value);
    void add_tensors(c10::ArrayRef<c10::IValue> list);
    void add_ints(std::vector<int64_t> list);
    void add_floats(std::vector<double> list);
    core_tensor *own(const at::Tensor &tensor);
    core_tensor *upload(at::Tensor tensor) const;

    c10::ArrayRef<c10::IValue> arguments_;
    c10::DeviceIndex device_;
    c10::SmallVector<core_value, 16> values_;
    c10::SmallVector<core_tensor *, 16> owned_;
    /* What values_ points to: the elements of a list stay where they are when
     * these grow. */
    std::vector<std::vector<int64_t>> ints_;
    std::vector<std::vector<double>> floats_;
    std::vector<std::vector<uint8_t>> bools_;
    std::vector<std::vector<core_tensor *>> tensors_;
};

} // namespace libcore_torch

#endif
