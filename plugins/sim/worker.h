/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* worker.h: the threads behind streams. */

#ifndef SIM_WORKER_H
#define SIM_WORKER_H

#include "event.h"
#include "sim.h"

core_status sim_stream_make(sim_device *device, int32_t priority,
                            void **out_stream);
/* It has ended: off the device's list.  Under the lock. */
void sim_stream_leave(sim_stream *stream);

/* Its worker waits for the host: streams of less priority need not. */
void sim_stream_rests(sim_stream *stream, bool rests);
void sim_stream_seed(sim_stream *stream); /* under the lock */

#endif
