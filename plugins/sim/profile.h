/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* profile.h: core.profiler of the simulated devices. */

#ifndef SIM_PROFILE_H
#define SIM_PROFILE_H

#include "sim.h"

/* Nanoseconds by which the devices' clock lags behind the host's. */
#define SIM_PROFILE_EPOCH INT64_C(1000000000000)

/* All functions except sim_profile_now require the lock. */
int64_t sim_profile_now(void);
/* Called when this thread submits work. */
void sim_profile_note(sim_device *device, sim_work *work);
/* Called when work has run. */
void sim_profile_ran(const sim_work *work, const char *name, int64_t begin,
                     int64_t end);
/* Stops recording and discards the records. */
void sim_profile_close(sim_device *device);

#endif
