/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* storage_check.h: checks that a storage's memory is still valid. */

#ifndef CORE_TENSOR_STORAGE_CHECK_H
#define CORE_TENSOR_STORAGE_CHECK_H

#include "device/device.h"
#include "tensor/tensor.h"

/* DEVICE_LOST for memory allocated before a loss or reset. */
static inline core_status core__storage_check(const core_storage *storage)
{
    if (core__likely(storage->generation ==
                     atomic_load_explicit(&storage->device->generation,
                                          memory_order_relaxed)))
        return CORE_OK;
    return core__device_stale(storage->device);
}

#endif
