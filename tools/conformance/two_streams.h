/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* two_streams.h: calls of operators in f32 on two streams, which gates may block
 * until both have work. */

#ifndef CONFORMANCE_TWO_STREAMS_H
#define CONFORMANCE_TWO_STREAMS_H

#include "call_gate.h"
#include "oracle.h"
#include "skipped_calls.h"

enum { STREAMS = 2 };

typedef struct two_streams {
    suite *self;
    outcome *out;
    core_stream *streams[STREAMS];
    uint32_t ngates; /* that are closed */
    bool copies;     /* long copies close them, and open by themselves */
    uint32_t ran;
    uint32_t unseen;    /* of these, those before which the gates opened */
    uint32_t untried;   /* because long copies take too long */
    uint32_t nwaiting;  /* operators in `waiting` */
    bool stopped;       /* at these; others were not tried */
    char waiting[400];  /* whose launch waits for its stream */
    skipped_calls left; /* no kernel computes these */
} two_streams;

/* A call with its operands and its reference. */
typedef struct ready_call {
    sample of;
    prepared on;
    reference wanted;
} ready_call;

/* Creates the streams; false: the outcome says why there are none. */
bool two_streams_begin(two_streams *b, suite *self, outcome *out);
/* Reports the calls that were left out, and those that did not meet a closed gate,
 * and releases the streams. */
void two_streams_end(two_streams *b);
/* Waits for the device. */
bool two_streams_rest(two_streams *b);
/* Blocks both streams; false: the outcome says why they are not.  Call
 * two_streams_open in any case. */
bool two_streams_close(two_streams *b);
/* Notes that a call begins. */
void two_streams_begin_call(const two_streams *b);
/* Makes a call on one of the streams, with results of its own. */
void two_streams_call(two_streams *b, ready_call *one, int which,
                      prepared *out_on);
/* Tests whether both streams certainly are still blocked. */
bool two_streams_blocked(const two_streams *b);
/* Opens the gates that are closed, and waits. */
void two_streams_open(two_streams *b);
/* Notes that a gate, of long copies or of a host callback, opened before a call
 * had returned: nothing was seen, or the launch waits for its stream. */
void two_streams_add_unseen(two_streams *b, bool copies, const char *op);

/* Prepares a call whose values are in that interval, if a kernel claims it. */
bool ready_call_prepare(two_streams *b, const sample *from, double low,
                        double high, ready_call *one);
/* Stores the call, which is static. */
bool ready_call_parse(const two_streams *b, const ready_call *one,
                      sample_call **out_call);
core_status ready_call_run(two_streams *b, ready_call *one, core_stream *stream,
                           prepared *on);
/* Returns the same operands, for results of another call. */
prepared ready_call_again(const prepared *on);
void ready_call_drop(prepared *on);
/* Makes the call on each stream and drops the results: a first launch may compile
 * its kernel, and wait.  false: the outcome says why it failed. */
bool ready_call_warm(two_streams *b, ready_call *one);
/* Compares the results; a message begins with the call and `what`. */
bool ready_call_holds(two_streams *b, ready_call *one, prepared *on,
                      const char *what);
void ready_call_done(ready_call *one);

#endif
