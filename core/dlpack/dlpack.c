/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Tables of DLPack dtypes and devices. */

#include "dlpack/dlpack.h"

#include "base/error.h"
#include "device/device.h"

#include <stdio.h>
#include <string.h>

/* -------------------------------------------------------------- dtypes -- */

static const struct {
    core_dtype dtype;
    uint8_t code;
    uint8_t bits;
} dtypes[] = {
    {CORE_F64, CORE_DLPACK_FLOAT, 64},
    {CORE_F32, CORE_DLPACK_FLOAT, 32},
    {CORE_F16, CORE_DLPACK_FLOAT, 16},
    {CORE_BF16, CORE_DLPACK_BFLOAT, 16},
    {CORE_I64, CORE_DLPACK_INT, 64},
    {CORE_I32, CORE_DLPACK_INT, 32},
    {CORE_I16, CORE_DLPACK_INT, 16},
    {CORE_I8, CORE_DLPACK_INT, 8},
    {CORE_U8, CORE_DLPACK_UINT, 8},
    {CORE_BOOL, CORE_DLPACK_BOOL, 8},
    {CORE_F8E4M3, CORE_DLPACK_FLOAT8_E4M3FN, 8},
    {CORE_F8E5M2, CORE_DLPACK_FLOAT8_E5M2, 8},
};

core_status core__dlpack_dtype(core_dlpack_dtype dtype, core_dtype *out_dtype)
{
    *out_dtype = CORE_DTYPE_NONE;
    if (dtype.lanes != 1)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "DLPack: an element has %u lanes; libcore supports 1", dtype.lanes);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].code == dtype.code && dtypes[i].bits == dtype.bits)
            *out_dtype = dtypes[i].dtype;
    if (*out_dtype == CORE_DTYPE_NONE)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "DLPack: the dtype has code %u and %u bits, which "
                           "libcore does not support",
                           dtype.code, dtype.bits);
    return CORE_OK;
}

core_dlpack_dtype core__dlpack_from_dtype(core_dtype dtype)
{
    core_dlpack_dtype found = {CORE_DLPACK_HANDLE, 0, 1};

    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].dtype == dtype)
            found = (core_dlpack_dtype){dtypes[i].code, dtypes[i].bits, 1};
    return found;
}

/* ------------------------------------------------------------- devices -- */

/* Import uses the first entry with a number, export the first with a type. */
static const struct {
    int32_t number;
    const char *type;
} devices[] = {
    {CORE_DLPACK_CPU, "cpu"},           {CORE_DLPACK_CUDA, "cuda"},
    {CORE_DLPACK_OPENCL, "opencl"},     {CORE_DLPACK_VULKAN, "vulkan"},
    {CORE_DLPACK_METAL, "metal"},       {CORE_DLPACK_VPI, "vpi"},
    {CORE_DLPACK_ROCM, "rocm"},         {CORE_DLPACK_ONEAPI, "oneapi"},
    {CORE_DLPACK_WEBGPU, "webgpu"},     {CORE_DLPACK_HEXAGON, "hexagon"},
    {CORE_DLPACK_MAIA, "maia"},         {CORE_DLPACK_TRN, "trn"},
    {CORE_DLPACK_CUDA_HOST, "cpu"},     {CORE_DLPACK_ROCM_HOST, "cpu"},
    {CORE_DLPACK_CUDA_MANAGED, "cuda"},
};
enum { DEVICES = sizeof devices / sizeof *devices };

core_dlpack_device core__dlpack_from_device(const core_device *device)
{
    core_dlpack_device found = {CORE_DLPACK_EXTENSION, (int32_t)device->index};

    for (size_t i = 0; i < DEVICES; i++)
        if (strcmp(devices[i].type, device->backend->type) == 0) {
            found.type = devices[i].number;
            break;
        }
    return found;
}

static bool is_pinned(int32_t type)
{
    return type == CORE_DLPACK_CUDA_HOST || type == CORE_DLPACK_ROCM_HOST;
}

/* Whether memory described this way can belong to the device. */
static bool fits(core_dlpack_device described, const core_device *device)
{
    const char *type = device->backend->type;

    for (size_t i = 0; i < DEVICES; i++)
        if (devices[i].number == described.type &&
            strcmp(devices[i].type, type) == 0)
            return is_pinned(described.type) ||
                   described.index == (int32_t)device->index;
    return described.type == CORE_DLPACK_EXTENSION &&
           core__dlpack_from_device(device).type == CORE_DLPACK_EXTENSION &&
           described.index == (int32_t)device->index;
}

core_status core__dlpack_device(core_dlpack_device described,
                                core_device *requested,
                                core_device **out_device)
{
    const char *type = NULL;
    char name[48];

    *out_device = requested;
    if (requested && fits(described, requested))
        return CORE_OK;
    *out_device = NULL;
    if (requested)
        return core__error(
            CORE_ERROR_DEVICE,
            "DLPack: the memory is on DLPack device %d:%d, which is not \"%s\"",
            described.type, described.index, requested->name);
    if (described.type == CORE_DLPACK_EXTENSION)
        return core__error(CORE_ERROR_DEVICE,
                           "DLPack: the memory is on an extension device; the "
                           "caller must pass the libcore device it belongs to");
    for (size_t i = 0; i < DEVICES && !type; i++)
        if (devices[i].number == described.type)
            type = devices[i].type;
    if (!type)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "DLPack: device type %d is not supported",
                           described.type);
    if (is_pinned(described.type))
        described.index = 0;
    if (described.index < 0)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "DLPack: the device is \"%s:%d\"; its index must be 0 or more",
            type, described.index);
    snprintf(name, sizeof name, described.index ? "%s:%d" : "%s", type,
             described.index);
    return core_device_find(name, out_device);
}
