/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* failure.c: what the codes of a vendor's driver mean. */

#include <gpu/host/failure.h>

gpu_failure gpu_failure_of(int code, const char *name,
                           const gpu_failure_row *rows, size_t count)
{
    gpu_failure f = {CORE_ERROR_INTERNAL, 0, name};

    for (size_t i = 0; i < count; i++)
        if (rows[i].code == code)
            f.status = rows[i].status;
    f.lost = f.status == CORE_ERROR_DEVICE_LOST;
    return f;
}
