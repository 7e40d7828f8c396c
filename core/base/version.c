/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include <libcore/status.h>

const char *core_version(void)
{
    return LIBCORE_VERSION;
}
