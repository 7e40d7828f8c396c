/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* stream_gate.h: blocks a stream, so that tests can check that work waits.  A
 * host callback blocks it until the gate is opened, independently of the
 * machine's load.  Where the device has no core.host_callback, copies that take
 * long do, and the gate opens by itself: a check that was too late has observed
 * nothing, is repeated, and at last reported as not tested. */

#ifndef CONFORMANCE_STREAM_GATE_H
#define CONFORMANCE_STREAM_GATE_H

#include "plugin_tables.h"

#include <pthread.h>

enum { STREAM_GATE_EVENTS = 8, STREAM_GATE_TRIES = 5 };

typedef struct stream_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
    bool expired;     /* a call took longer than `patience` */
    double patience;  /* seconds, set before it is closed; 0: for ever */
    double latest;    /* when a call was begun */
    uint32_t passed;  /* callbacks that ran to completion */
    uint32_t dropped; /* callbacks that will never run */
    /* Without host callbacks. */
    plugin_tables *plugin;
    double least;                     /* seconds that they must take, if set */
    plugin_block from, to;            /* of the copies */
    double closed;                    /* before they were enqueued */
    void *events[STREAM_GATE_EVENTS]; /* behind them; or where streams are
                                       * counted */
    uint32_t nevents;
} stream_gate;

void stream_gate_init(stream_gate *self);
/* Enqueues the gate on a stream that has come to rest or waits.  Returns false
 * if it failed or copies are too fast to block a stream, which the outcome
 * reports. */
bool stream_gate_close(stream_gate *self, plugin_tables *plugin, void *stream,
                       outcome *out);
void stream_gate_open(stream_gate *self);
/* Notes that a call begins, which may wait until there is room in a queue: a gate
 * with patience opens if it takes longer. */
void stream_gate_begin_call(stream_gate *self);
/* Tests whether it has opened so. */
bool stream_gate_expired(stream_gate *self);
/* Tests whether the gate certainly still blocks its stream. */
bool stream_gate_holds(stream_gate *self);
/* Stores the current counts. */
void stream_gate_counts(stream_gate *self, uint32_t *out_passed,
                        uint32_t *out_dropped);
/* Gives streams the time to pass another gate, which is open, while this one is
 * closed, and returns how many did.  *out_observed: whether there was time. */
uint32_t stream_gate_overtaken(stream_gate *self, stream_gate *behind,
                               bool *out_observed);
/* Waits until that many callbacks have run or were dropped; returns false after
 * 20 seconds. */
bool stream_gate_wait(stream_gate *self, uint32_t count);
void stream_gate_destroy(stream_gate *self);

/* A check behind a gate.  Returns false if the gate opened too early for it to
 * observe anything. */
typedef bool gated_check(suite *self, outcome *out);
/* Repeats a check until it has observed something, at most STREAM_GATE_TRIES
 * times, because a busy machine may have delayed it.  Returns false if it never
 * has. */
bool stream_gate_repeat(gated_check *check, suite *self, outcome *out);
/* The same; if it never has, the outcome is NOT_SUPPORTED. */
void stream_gate_test(gated_check *check, suite *self, outcome *out);

#endif
