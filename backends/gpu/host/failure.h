/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* failure.h: what the codes of a vendor's driver mean. */

#ifndef GPU_FAILURE_H
#define GPU_FAILURE_H

#include <gpu/driver.h>

#include <libcore/plugin.h>

typedef struct gpu_failure_row {
    int code;
    core_status status; /* CORE_ERROR_DEVICE_LOST: no later call recovers */
} gpu_failure_row;

/* Looks the code up in the vendor's table; codes that are not in it are internal
 * errors.  `name` is the code's name or NULL. */
gpu_failure gpu_failure_of(int code, const char *name,
                           const gpu_failure_row *rows, size_t count);

#endif
