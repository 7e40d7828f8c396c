/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* call_gate.h: blocks a stream of libcore, so that tests can check that kernels
 * wait for it.  (stream_gate.h does that for the plugin's tables.)  A host
 * callback blocks it until the gate is opened, or until a call has not returned
 * for a while: a launch that waits for the stream would wait for ever.  Where
 * the device has no host callbacks, copies that take long do, and the gate
 * opens by itself. */

#ifndef CONFORMANCE_CALL_GATE_H
#define CONFORMANCE_CALL_GATE_H

#include "suite.h"

#include <pthread.h>

typedef struct call_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
    bool expired;        /* it was opened by the time */
    bool left;           /* the callback has returned, or never runs */
    double latest;       /* when a call was last begun */
    core_tensor *big[2]; /* without host callbacks: what is copied */
    core_event *event;   /* behind the copies */
} call_gate;

/* Closes a new gate on a stream; false: the outcome says why it is not
 * closed. */
bool call_gate_close(call_gate *self, suite *of, core_stream *stream,
                     outcome *out);
/* Notes that a call begins. */
void call_gate_begin_call(call_gate *self);
/* Tests whether the gate certainly still blocks its stream. */
bool call_gate_holds(call_gate *self);
/* Opens it. */
void call_gate_release(call_gate *self);
/* Gives work that does not wait for the gate the time to run, and opens it. */
void call_gate_open(call_gate *self);
/* Ends a gate that is open; the stream has come to rest. */
void call_gate_destroy(call_gate *self);

#endif
