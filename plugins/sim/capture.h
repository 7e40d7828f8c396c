/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* capture.h: what is given to a stream, kept instead of run.  Under sim_lock. */

#ifndef SIM_CAPTURE_H
#define SIM_CAPTURE_H

#include "sim.h"

/* Work that is given to a capturing stream. */
core_status sim_capture_add(sim_stream *stream, const sim_work *work);
/* The stream ends: what it captured is thrown away. */
void sim_capture_drop(sim_stream *stream);
void sim_graphs_drop(sim_device *device);

#endif
