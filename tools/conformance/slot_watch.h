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
    SLOT_IPC_CLOSE, /* of an export whose process has ended */
    /* Through libcore, where the plugin's own functions are not watched. */
    SLOT_OPERATOR,
    SLOT_READ,
    SLOTS
} slot;

extern const char *const slot_names[SLOTS];

/* Of one process; times are those of CLOCK_MONOTONIC in nanoseconds. */
typedef struct slot_watch {
    _Atomic uint32_t current;
    _Atomic uint32_t opened;       /* the device was opened */
    _Atomic int64_t entered;       /* the current one */
    _Atomic uint64_t calls[SLOTS]; /* of the running test */
    _Atomic int64_t spent[SLOTS];
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
/* Returns the slot that ran before. */
slot slot_enter(slot which);
void slot_leave(slot which, slot before);
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

#endif
