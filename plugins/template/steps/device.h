/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* device.h: a device that grows in nine steps, explained in
 * docs/plugin-guide.md.  -DSTEP=N builds it as it is after N of them. */

#ifndef STEPS_DEVICE_H
#define STEPS_DEVICE_H

#include <libcore/sdk.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#ifndef STEP
#define STEP 9
#endif

/* The plugin's name and device type; Makefile.standalone reads it. */
#define NAME "steps" /* [a-z][a-z0-9]* */

extern const core_host *host;

/* Step 1, memory.c: the core's handle is the address of a block. */
typedef struct block {
    char *data;
    uint64_t size;
} block;

char *address(core_memory memory);
extern const core_memory_table memory_table;
extern const core_allocator_interface own_memory; /* step 6 */

/* Step 2, stream.c: work is submitted to a stream and runs on its thread. */
typedef struct stream stream;
typedef struct graph graph;

/* run may fail, which poisons the stream; drop is called once, even if run was
 * not.  `always`: runs on a poisoned stream, too. */
typedef struct job {
    struct job *next;
    core_status (*run)(void *context);
    void (*drop)(void *context);
    void *context;
    bool always;
} job;

core_status stream_submit(stream *to, job work);
extern const core_stream_table stream_table;
extern const core_event_table event_table;

/* Step 3, family.c; step 4 and 5, product.c. */
core_status family_register(core_registry *registry);
core_status product_register(core_registry *registry);

/* A launch that runs when the stream reaches it. */
typedef struct launch {
    core_function compute;
    core_call *call;
    const core_value *args;
    core_value *results;
    uint32_t nargs, nresults;
    void (*release)(void *held); /* step 5: what it holds until it has run */
    void *held;
} launch;

core_status launch_later(core_function compute, core_call *call,
                         const core_value *args, uint32_t nargs,
                         core_value *results, uint32_t nresults,
                         void (*release)(void *held), void *held);

/* Step 7, capture.c: a graph is a list of jobs, which a capturing stream
 * fills.  graph_add takes the job over. */
void graph_add(graph *to, job *work);
graph *stream_set_capture(stream *of, graph *begun);
extern const core_graph_capture_interface capture_table;

/* Step 8, operator.c. */
core_status operator_register(core_registry *registry);

/* Step 9, stream_services.c and take.c. */
int64_t event_time(void *event);
void stream_error_set(uint64_t call_id, int64_t index);
core_stream_error stream_error_clear(stream *of);
extern const core_host_callback_interface callback_table;
extern const core_timing_interface timing_table;
extern const core_stream_error_interface stream_error_table;
core_status take_register(core_registry *registry);

#endif
