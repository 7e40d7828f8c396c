/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shim.h: what the files of the shim share.  The shim makes each device of
 * libcore a device of PyTorch: libcore:0, libcore:1, … under the dispatch key
 * PrivateUse1.  Everything here throws what torch turns into an exception of
 * Python, unless it is noexcept. */

#ifndef BINDINGS_PYTORCH_SHIM_H
#define BINDINGS_PYTORCH_SHIM_H

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <libcore/core.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace libcore_torch
{

constexpr c10::DeviceType device_type = c10::DeviceType::PrivateUse1;

/* Throws an exception with libcore's message unless status is CORE_OK.  The
 * class follows from the status: IndexError, NotImplementedError,
 * OutOfMemoryError or RuntimeError. */
[[noreturn]] void raise(core_status status);
inline void check(core_status status)
{
    if (C10_UNLIKELY(status != CORE_OK))
        raise(status);
}

/* -------------------------------------------------- devices.cpp -- */

/* Opens the devices of all plugins.  libcore's default device is the first.
 * Devices that cannot be opened are left out. */
void open_devices();
c10::DeviceIndex device_count() noexcept;
/* index -1: the calling thread's current device. */
core_device *device_at(c10::DeviceIndex index);
c10::DeviceIndex index_of(const core_device *device);
/* Whether memory of a device has addresses (CORE_DEVICE_FLAT). */
bool has_addresses(c10::DeviceIndex index);
/* The calling thread's current device. */
c10::DeviceIndex current_index() noexcept;
void set_current_index(c10::DeviceIndex index);

/* ------------------------------------------------ allocator.cpp -- */

/* Storages of libcore's devices: the context of their DataPtr is an u8 tensor
 * of libcore.  data is the address where the device has addresses, and the
 * context itself, which is only a token, where it has not. */
c10::Allocator *device_allocator();
void register_allocator();
/* Host memory that is pinned for the current device. */
c10::Allocator *pinned_allocator();
/* The DataPtr of memory that a tensor of libcore keeps alive: the start of its
 * storage.  Takes the reference. */
c10::DataPtr data_of(core_tensor *tensor);
/* The tensor of libcore in a storage of one of its devices, borrowed. */
core_tensor *tensor_of(const c10::StorageImpl &storage);
/* Gives a storage another size, and keeps its content. */
void resize_storage(c10::StorageImpl &storage, size_t bytes);

/* ---------------------------------------------------- guard.cpp -- */

/* The stream of libcore that a stream of torch is, borrowed. */
core_stream *stream_of(c10::Stream stream);

/* ---------------------------------------------------- hooks.cpp -- */

const at::Generator &default_generator(c10::DeviceIndex index);
at::Generator new_generator(c10::DeviceIndex index);
/* Borrowed from the generator. */
core_generator *generator_of(const at::Generator &generator);
/* Seeds the default generator of every device. */
void seed_all(uint64_t seed);

/* Registers what torch calls for the device type. */
void register_hooks();

/* -------------------------------------------------- tensors.cpp -- */

/* CORE_DTYPE_NONE for a dtype that libcore does not have. */
core_dtype dtype_of(c10::ScalarType type) noexcept;
c10::ScalarType type_of(core_dtype dtype);
/* A tensor of libcore with the memory and layout of a tensor of torch, on one
 * of libcore's devices or on the CPU.  The caller owns it. */
core_tensor *import_tensor(const at::Tensor &tensor);
/* A tensor of torch with the memory of a tensor of libcore.  Takes the
 * reference. */
at::Tensor export_tensor(core_tensor *tensor);

/* ---------------------------------------------------- basic.cpp -- */

/* An uninitialised tensor on a device of libcore. */
at::Tensor empty(c10::IntArrayRef sizes, c10::ScalarType type,
                 c10::Device device);

/* ------------------------------------------------- fallback.cpp -- */

/* How often the CPU computed an operator instead, by name. */
std::map<std::string, uint64_t> fallback_counts();
void reset_fallback_counts();
/* Whether what libcore lacks is computed on the CPU, or an error. */
void allow_fallback(bool allowed);

/* ---------------------------------------------------- boxed.cpp -- */

/* Registers the boxed function for each operator that libcore has. */
void register_operators();
/* The names of the operators that it is registered for. */
std::vector<std::string> registered_operators();

} // namespace libcore_torch

#endif
