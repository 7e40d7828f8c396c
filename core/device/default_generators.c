/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Default generators of devices. */

#include "device/device.h"
#include "random/generator.h"

#include <libcore/random.h>

core_status core_generator_default(core_device *device,
                                   core_generator **out_generator)
{
    CORE__NOT_NULL(out_generator);
    *out_generator = NULL;
    CORE__NOT_NULL(device);
    *out_generator = core__generator_default_create(device->name);
    if (*out_generator)
        return CORE_OK;
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "core_generator_default: %s has no default "
                       "generator; at most %d devices have one",
                       device->name, CORE__GENERATORS);
}
