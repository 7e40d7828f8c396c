/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* registrations.h: registrations that end with their test. */

#ifndef TESTS_SUPPORT_REGISTRATIONS_H
#define TESTS_SUPPORT_REGISTRATIONS_H

#include "autograd.h"

#include <libcore/device.h>
#include <libcore/dispatch.h>

static core_registration *handles[32];
static size_t nhandles;
static core_device *cpu;

static inline void open_cpu(void)
{
    OK(core_device_find("cpu", &cpu));
}

static inline void undo_all(void)
{
    while (nhandles)
        core_registration_release(handles[--nhandles]);
    drop_all();
}

static inline core_value value_of(core_tensor *tensor)
{
    return (core_value){CORE_VALUE_TENSOR, 0, {.tensor = tensor}};
}

#endif
