/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Errors, and the table of devices. */

#include "shim.h"

#include <c10/util/Exception.h>

#include <cstring>

namespace libcore_torch
{

[[noreturn]] void raise(core_status status)
{
    std::string message = core_error_message();

    if (message.empty())
        message = core_status_name(status);
    switch (status) {
    case CORE_ERROR_INDEX:
        TORCH_CHECK_INDEX(false, message);
    case CORE_ERROR_UNSUPPORTED:
    case CORE_ERROR_NO_KERNEL:
        TORCH_CHECK_NOT_IMPLEMENTED(false, message);
    case CORE_ERROR_OUT_OF_MEMORY:
        TORCH_CHECK_WITH(OutOfMemoryError, false, message);
    default:
        TORCH_CHECK(false, message);
    }
}

/* Filled once, before the first device is used, and then only read. */
static std::vector<core_device *> devices;
static std::vector<bool> flat;
static thread_local c10::DeviceIndex current;

static void add(core_device *device)
{
    core_device_properties properties = {};

    for (core_device *known : devices)
        if (known == device)
            return;
    if (devices.size() >= INT8_MAX)
        return;
    properties.struct_size = sizeof properties;
    if (core_device_get_properties(device, &properties) != CORE_OK)
        return; /* the other devices can be used */
    flat.push_back(properties.flags & CORE_DEVICE_FLAT);
    devices.push_back(core_device_retain(device));
}

static void add_backend(const core_backend_information &backend)
{
    for (uint32_t i = 0; i < backend.device_count; i++) {
        std::string name = backend.device_type;
        core_device *device;

        if (i > 0)
            name += ":" + std::to_string(i);
        if (core_device_find(name.c_str(), &device) == CORE_OK)
            add(device);
    }
}

void open_devices()
{
    core_backend_information backend = {};
    core_device *first;

    if (!devices.empty())
        return;
    check(core_plugins_load_all());
    check(core_device_default(&first));
    add(first);
    for (uint32_t i = 0;; i++) {
        backend.struct_size = sizeof backend;
        if (core_backend_describe(i, &backend) != CORE_OK)
            return;
        if (std::strcmp(backend.device_type, "meta") != 0)
            add_backend(backend);
    }
}

c10::DeviceIndex device_count() noexcept
{
    return static_cast<c10::DeviceIndex>(devices.size());
}

core_device *device_at(c10::DeviceIndex index)
{
    if (index == -1)
        index = current;
    TORCH_CHECK(index >= 0 && index < device_count(),
                "libcore:", static_cast<int>(index), ": there are ",
                static_cast<int>(device_count()),
                " devices; libcore_torch.devices() lists them");
    return devices[static_cast<size_t>(index)];
}

c10::DeviceIndex index_of(const core_device *device)
{
    for (size_t i = 0; i < devices.size(); i++)
        if (devices[i] == device)
            return static_cast<c10::DeviceIndex>(i);
    TORCH_CHECK(false, "\"", core_device_name(device),
                "\" is not a device of PyTorch");
}

bool has_addresses(c10::DeviceIndex index)
{
    return flat[static_cast<size_t>(index)];
}

c10::DeviceIndex current_index() noexcept
{
    return current;
}

void set_current_index(c10::DeviceIndex index)
{
    device_at(index);
    if (index >= 0)
        current = index;
}

} // namespace libcore_torch
