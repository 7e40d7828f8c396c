/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* upcalls.h: the functions of later folders that comm calls (base/upcalls.h
 * explains these tables). */

#ifndef CORE_COMM_UPCALLS_H
#define CORE_COMM_UPCALLS_H

#include <libcore/status.h>

struct core__comm_upcalls {
    /* Opens the plugins without devices, which may have an engine. */
    core_status (*load_engines)(void);
    /* Opens all plugins. */
    core_status (*load_plugins)(void);
};

extern const struct core__comm_upcalls core__comm_upcalls;

#endif
