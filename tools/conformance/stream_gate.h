/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* stream_gate.h: blocks a stream with a host callback, so that tests can check
 * that work waits, independently of the machine's load. */

#ifndef CONFORMANCE_STREAM_GATE_H
#define CONFORMANCE_STREAM_GATE_H

#include "plugin_tables.h"

#include <pthread.h>

typedef struct stream_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
    uint32_t passed;  /* callbacks that ran to completion */
    uint32_t dropped; /* callbacks that will never run */
} stream_gate;

void stream_gate_init(stream_gate *self);
/* Enqueues the gate on a stream.  Returns false if there are no host callbacks,
 * or if it failed, which the outcome reports. */
bool stream_gate_close(stream_gate *self, plugin_tables *plugin, void *stream,
                       outcome *out);
void stream_gate_open(stream_gate *self);
/* Returns the current counts. */
void stream_gate_counts(stream_gate *self, uint32_t *out_passed,
                        uint32_t *out_dropped);
/* Waits until that many callbacks have run or were dropped; returns false after
 * 20 seconds. */
bool stream_gate_wait(stream_gate *self, uint32_t count);
void stream_gate_destroy(stream_gate *self);

#endif
