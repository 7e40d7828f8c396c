/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* devices.h: for the tests of the engine on several devices. */

#ifndef TESTS_SUPPORT_DEVICES_H
#define TESTS_SUPPORT_DEVICES_H

#include "autograd.h"

#include <libcore/device.h>
#include <libcore/stream.h>

#include <pthread.h>
#include <unistd.h>

static inline core_device *device_of(const char *name)
{
    core_device *device;

    OK(core_device_find(name, &device));
    return device;
}

/* A recorded copy. */
static inline core_tensor *on(core_tensor *tensor, const char *name)
{
    return CALL(to_copy, tensor, CORE_F64, device_of(name), false, -1);
}

/* The same without history: in new memory of the device. */
static inline core_tensor *fresh_on(core_tensor *tensor, const char *name)
{
    bool before = core_grad_mode_set(false);
    core_tensor *there = on(tensor, name);

    core_grad_mode_set(before);
    return there;
}

static inline core_stream *new_stream(const char *name)
{
    core_stream *stream;

    OK(core_stream_create(device_of(name), &stream));
    return stream;
}

static inline core_stream *current_of(const char *name)
{
    core_stream *stream;

    OK(core_stream_current(device_of(name), &stream));
    return stream;
}

/* Settings of sim, which is loaded in the process of each test. */
static inline void one_queue(void)
{
    setenv("LIBCORE_SIM_QUEUES", "1", 1);
}

static inline void every_other_mode(void)
{
    setenv("LIBCORE_SIM_MEMORY", "flat", 1);
    setenv("LIBCORE_SIM_COMPILE", "1", 1);
    setenv("LIBCORE_SIM_DELAY_US", "20", 1);
}

/* A function of the program: y = x * factor, whose backward calls `inside`
 * first. */
typedef struct passing {
    const char *name;
    double factor;
    core_status (*inside)(void *context);
    void *context;
    pthread_t thread; /* which ran it */
    int runs;
} passing;

static inline core_status passing_backward(core_node *node, void *context,
                                           core_tensor *const *grads,
                                           size_t ngrads,
                                           core_tensor **gradients,
                                           size_t ngradients)
{
    passing *passing = context;

    (void)node;
    (void)ngrads;
    (void)ngradients;
    passing->thread = pthread_self();
    passing->runs++;
    if (passing->inside) {
        core_status status = passing->inside(passing->context);

        if (status != CORE_OK)
            return status;
    }
    return core_mul_scalar(grads[0], core_float(passing->factor),
                           &gradients[0]);
}

static inline core_tensor *pass(passing *passing, core_tensor *x)
{
    core_function_info info = {.struct_size = sizeof info,
                               .name = passing->name ? passing->name : "pass",
                               .backward = passing_backward,
                               .context = passing};
    bool before = core_grad_mode_set(false);
    core_tensor *y;

    OK(core_mul_scalar(x, core_float(passing->factor), &y));
    core_grad_mode_set(before);
    OK(core_function_record(&info, &x, 1, NULL, 0, &y, 1, NULL));
    return keep(y);
}

#endif
