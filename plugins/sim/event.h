/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* event.h: an event refers to the marker of its newest record, and shares it
 * with its waiters, so that recording the event again does not affect them. */

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
