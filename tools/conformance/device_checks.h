/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* device_checks.h: what a device says about itself, which core-info prints. */

#ifndef CONFORMANCE_DEVICE_CHECKS_H
#define CONFORMANCE_DEVICE_CHECKS_H

#include "suite.h"

#include <libcore/backend.h>

/* Check that the texts are UTF-8 and that there is a name, and that the numbers
 * agree with each other.  which: "the device". */
void device_checks_check(const core_device_information *about,
                         const char *which, outcome *out);
void device_checks_check_properties(const core_device_properties *p,
                                    const char *which, outcome *out);

#endif
