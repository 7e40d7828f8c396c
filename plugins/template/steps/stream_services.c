/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* Step 9: functions of the host in the order of a stream, the time between two
 * events, and errors that kernels found in their data. */

#include "device.h"

#if STEP >= 9

/* ----------------------------------------------------------- callbacks -- */

typedef struct callback {
    void (*function)(void *context);
    void (*drop)(void *context); /* NULL after function was called */
    void *context;
} callback;

static core_status callback_run(void *context)
{
    callback *c = context;

    c->drop = NULL;
    c->function(c->context);
    return CORE_OK;
}

/* Called once for each job, whether or not it ran. */
static void callback_end(void *context)
{
    callback *c = context;

    if (c->drop != NULL)
        c->drop(c->context);
    free(c);
}

static core_status enqueue(void *device, void *on,
                           void (*function)(void *context), void *context,
                           void (*drop)(void *context))
{
    callback *c = malloc(sizeof *c);

    (void)device;
    if (c == NULL) {
        if (drop != NULL)
            drop(context);
        return core_sdk_error(host, CORE_ERROR_OUT_OF_MEMORY, NAME,
                              "no host memory for a callback");
    }
    *c = (callback){function, drop, context};
    return stream_submit(
        on, (job){.run = callback_run, .drop = callback_end, .context = c});
}

const core_host_callback_interface callback_table = {
    .struct_size = sizeof(core_host_callback_interface),
    .enqueue = enqueue,
};

/* -------------------------------------------------------------- timing -- */

static core_status elapsed(void *device, void *start, void *end,
                           int64_t *out_nanoseconds)
{
    (void)device;
    *out_nanoseconds = event_time(end) - event_time(start);
    return CORE_OK;
}

const core_timing_interface timing_table = {
    .struct_size = sizeof(core_timing_interface),
    .elapsed = elapsed,
};

/* --------------------------------------------------------- data errors -- */

static core_status take(void *device, void *on, core_stream_error *out)
{
    core_stream_error found = stream_error_clear(on);

    (void)device;
    out->code = found.code;
    if (found.code == CORE_OK)
        return CORE_OK;
    out->call_id = found.call_id;
    out->index = found.index;
    out->text = core_sdk_string("an index is out of range");
    return CORE_OK;
}

const core_stream_error_interface stream_error_table = {
    .struct_size = sizeof(core_stream_error_interface),
    .take = take,
};
#endif
