/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* capture.h: the simulated device and a stream of it, for the tests of
 * captures. */

#ifndef TESTS_SUPPORT_CAPTURE_H
#define TESTS_SUPPORT_CAPTURE_H

#include "autograd.h"

#include "../../plugins/sim/sim_control.h"

#include <libcore/capture.h>
#include <libcore/dispatch.h>
#include <libcore/optim.h>
#include <libcore/random.h>
#include <libcore/settings.h>

static core_device *sim;
static core_stream *stream;

static inline void begin(void)
{
    OK(core_device_find("sim", &sim));
    OK(core_stream_create(sim, &stream));
}

static inline void end(void)
{
    drop_all();
    core_stream_release(stream);
    stream = NULL;
}

static inline core_tensor *on_sim(core_tensor *host)
{
    core_tensor *tensor;

    OK(core_to_copy(host, CORE_DTYPE_NONE, sim, false, -1, &tensor));
    return keep(tensor);
}

static inline void set(core_tensor *tensor, size_t count, const double *values)
{
    OK(core_tensor_write(tensor, values, count * sizeof *values));
}

#define SET(tensor, n, ...) set(tensor, n, (double[]){__VA_ARGS__})

#endif
