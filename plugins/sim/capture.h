/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* capture.h: stores work submitted to a stream instead of running it.  Requires
 * sim_lock. */

#ifndef SIM_CAPTURE_H
#define SIM_CAPTURE_H

#include "sim.h"

/* Adds work that is submitted to a capturing stream. */
core_status sim_capture_add(sim_stream *stream, const sim_work *work);
/* The stream ends: discards its capture. */
void sim_capture_drop(sim_stream *stream);
void sim_graphs_drop(sim_device *device);

#endif
