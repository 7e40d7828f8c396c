/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The host table, and errors reported through it. */

#include <libcore/sdk.h>

#include "cpu.h"

#include <locale.h>

const core_host *cpu_host;

core_status cpu_error(core_status code, const char *format, ...)
{
    /* Numbers use a decimal point, whatever the program's locale is. */
    locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    locale_t before = plain ? uselocale(plain) : (locale_t)0;
    va_list arguments;
    core_status status;

    va_start(arguments, format);
    status = core_sdk_error_va(cpu_host, code, CORE_SEVERITY_RECOVERABLE,
                               code == CORE_ERROR_OUT_OF_MEMORY, 0, "cpu",
                               format, arguments);
    va_end(arguments);
    if (plain) {
        uselocale(before);
        freelocale(plain);
    }
    return status;
}
