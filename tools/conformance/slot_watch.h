/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* slot_watch.h: which function of the plugin runs, in memory that the runner
 * shares with its child, so that it can name the function in which the child
 * crashed or hangs. */

#ifndef CONFORMANCE_SLOT_WATCH_H
#define CONFORMANCE_SLOT_WATCH_H

#include <libcore/backend.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* The child's descriptor of the shared memory. */
enum { SLOT_WATCH_FILE = 4 };

typedef enum slot {
    SLOT_NONE,
    /* Until the device is open.  If one of these fails, every test fails. */
    SLOT_CONSTRUCTORS,
    SLOT_ENTRY,
    SLOT_INIT,
    SLOT_ENUMERATE,
    SLOT_DEVICE_OPEN,
    SLOT_DEVICE_PROPERTIES,
    SLOT_LOAD, /* through libcore */
    SLOT_FIND, /* through libcore */
    SLOT_OPENING_LAST = SLOT_FIND,
    SLOT_ENTRY_OFFERED, /* other versions */
    SLOT_INIT_REFUSED,
    SLOT_INIT_OLD_HOST,
    SLOT_DEVICE_CLOSE,
    SLOT_SHUTDOWN,
    SLOT_ALLOC,
    SLOT_FREE,
    SLOT_MEMORY_INFO,
    SLOT_COPY_FROM_HOST,
    SLOT_COPY_TO_HOST,
    SLOT_COPY,
    SLOT_FILL,
    SLOT_STREAM_CREATE,
    SLOT_STREAM_DESTROY,
    SLOT_STREAM_QUERY,
    SLOT_STREAM_SYNCHRONIZE,
    SLOT_WAIT_EVENT,
    SLOT_EVENT_CREATE,
    SLOT_EVENT_DESTROY,
    SLOT_RECORD,
    SLOT_EVENT_QUERY,
    SLOT_EVENT_SYNCHRONIZE,
    SLOT_INTERFACE,
    SLOT_IPC_CLOSE, /* of an export whose process has ended */
    /* Through libcore, where the plugin's own functions are not watched. */
    SLOT_OPERATOR,
    SLOT_READ,
    SLOTS
} slot;

extern const char *const slot_names[SLOTS];

enum { WATCHED_NAME = 64, WATCHED_TENSORS = 4, WATCHED_NDIM = 6 };

/* A tensor that was passed to an operator; further dimensions are left out. */
typedef struct watched_tensor {
    core_dtype dtype;
    uint32_t ndim;
    int64_t sizes[WATCHED_NDIM];
    int64_t strides[WATCHED_NDIM];
} watched_tensor;

/* The operator that was called last.  A device that executes later may still
 * run an earlier one. */
typedef struct watched_call {
    char name[WATCHED_NAME]; /* "": none */
    uint32_t tensors;
    watched_tensor tensor[WATCHED_TENSORS];
} watched_call;

/* How long copies block a stream (stream_gate.c), which one process finds out and
 * later ones of the run use; copies 0: not known. */
typedef struct gate_measure {
    uint32_t copies;
    uint32_t too_fast;
    double seconds;
} gate_measure;

/* Of one process; times are those of CLOCK_MONOTONIC in nanoseconds. */
typedef struct slot_watch {
    _Atomic uint32_t current;
    _Atomic uint32_t opened;       /* the device was opened */
    _Atomic int64_t entered;       /* the current one */
    _Atomic uint64_t calls[SLOTS]; /* of the running test */
    _Atomic int64_t spent[SLOTS];
    _Atomic uint32_t flat; /* the device has CORE_DEVICE_FLAT */
    _Atomic uint32_t last; /* the slot that returned last in the running test */
    watched_call call;     /* of the running test */
    gate_measure gate;
} slot_watch;

/* Of the child: shares the memory with the runner, if that offers any. */
void slot_watch_share(void);
/* Of a process that a test forks and that runs beside it: what it calls says
 * nothing about the test. */
void slot_watch_unshare(void);
/* A new test begins. */
void slot_watch_restart(void);
/* The device was opened: what fails later need not fail in every test. */
void slot_watch_opened(void);
void slot_watch_set_flat(bool flat);
/* An operator is called. */
void slot_watch_call(const watched_call *call);
/* Returns the slot that ran before. */
slot slot_enter(slot which);
void slot_leave(slot which, slot before);
/* What a process of the same run has measured, or this one. */
gate_measure *slot_watch_gate(void);
/* Seconds that the calls of a slot took in this test. */
double slot_seconds(slot which);

/* Makes tables of the plugin's call slot_enter and slot_leave.  Empty slots
 * stay empty.  One plugin per process. */
void slot_watch_tables(core_memory_table *memory, core_stream_table *streams,
                       core_event_table *events);
void slot_watch_backend(core_backend *backend);

/* Of the runner: describes where the child was when it ended, or "".
 * timed_out: the test took that many seconds; 0: it crashed. */
void slot_watch_describe(const slot_watch *self, double timed_out, char *text,
                         size_t capacity);
/* Of the runner: names the slot that returned last before a crash outside of the
 * slots, or "".  While the plugin is opened nothing else of it has run. */
void slot_watch_describe_last(const slot_watch *self, bool opening, char *text,
                              size_t capacity);
/* Of the runner: "gather(f32 [3, 4], i64 [2])", or "". */
void slot_watch_describe_call(const slot_watch *self, char *text,
                              size_t capacity);

#endif
