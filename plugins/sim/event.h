/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* event.h: events hold the place of their newest record, and share it with
 * those who wait: recording anew leaves these alone. */

#ifndef SIM_EVENT_H
#define SIM_EVENT_H

#include "sim.h"

struct sim_event {
    sim_device *device;
    sim_event *next; /* of the device */
    uint32_t flags;
    sim_marker *marker; /* NULL: never recorded */
};

#endif
