/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* stream_gate.h: holds a stream up by a host callback that waits, so that what must
 * wait can be seen to wait, whatever the machine's load. */

#ifndef CONFORMANCE_GATE_H
#define CONFORMANCE_GATE_H

#include "plugin_tables.h"

#include <pthread.h>

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
    uint32_t passed;  /* callbacks that ran to their end */
    uint32_t dropped; /* callbacks that will never run */
} gate;

void gate_begin(gate *self);
/* Puts the gate on a stream; false: there are no host callbacks, or it
 * failed, which the outcome says. */
bool gate_close(gate *self, raw *plugin, void *stream, outcome *out);
void gate_open(gate *self);
/* What of the two counts there is now. */
void gate_counts(gate *self, uint32_t *out_passed, uint32_t *out_dropped);
/* Waits until that many have passed or were dropped; false after a while. */
bool gate_wait(gate *self, uint32_t count);
void gate_end(gate *self);

#endif
