/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* worker.h: the threads of streams. */

#ifndef SIM_WORKER_H
#define SIM_WORKER_H

#include "event.h"
#include "sim.h"

core_status sim_stream_create(sim_device *device, uint32_t kind,
                              int32_t priority, void **out_stream);
/* The stream has ended: removes it from the device's list.  Under the lock. */
void sim_stream_leave(sim_stream *stream);

/* Its worker waits for the host: streams of lower priority may run. */
void sim_stream_set_waiting(sim_stream *stream, bool waiting);
void sim_stream_seed(sim_stream *stream); /* under the lock */

#endif
