/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* warn_once.c: warnings that are logged once. */

#include <gpu/host/warn_once.h>

#include <gpu/host/host.h>

#include <stdarg.h>
#include <stdio.h>

void gpu_warn_once(atomic_flag *warned, const char *format, ...)
{
    char text[384];
    va_list list;

    if (atomic_flag_test_and_set(warned))
        return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    gpu_host->log(CORE_LOG_WARNING,
                  core_sdk_string(gpu_this_vendor.driver->component),
                  core_sdk_string(text));
}
