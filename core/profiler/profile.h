/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* profile.h: what a session has recorded.
 *
 * Each thread writes to a log of its own, under a lock that only the session
 * takes besides it, when it ends a round and takes what is there.  At least an
 * operator costs two clock readings, two such locks and one record; the goal is
 * 150 ns together. */

#ifndef CORE_PROFILER_PROFILE_H
#define CORE_PROFILER_PROFILE_H

#include "base/fork.h"
#include "base/observe.h"
#include "base/thread.h"
#include "device/stream.h"
#include "dispatch/operator.h"

#include <libcore/profiler.h>

#include <stdbool.h>

enum { CORE__PROFILE_NONE = UINT32_MAX, CORE__PROFILE_DEVICES = 32 };
#define CORE__PROFILE_LANE (UINT64_C(1) << 40) /* from here on: the plugin's */

typedef struct core__profile_event {
    uint64_t begin; /* nanoseconds of the monotonic clock */
    uint64_t end;   /* 0: it has not ended */
    const char *name;
    uint64_t sequence; /* BACKWARD: the node's; OPERATOR: of the first node that
                          it made */
    uint64_t bytes;
    uint64_t flop;
    int64_t memory; /* by itself */
    uint64_t device_self;
    uint64_t device_total;
    uint32_t parent; /* in the same log, or CORE__PROFILE_NONE */
    uint32_t nodes;  /* OPERATOR: that it and those inside made */
    uint32_t shapes; /* where in `numbers`; 0: none */
    uint32_t kernels;
    uint32_t fallbacks;
    uint8_t kind;    /* core_profile_kind */
    uint8_t device;  /* 1 + index in `devices`; 0: none */
    bool inner_flop; /* an operator inside was counted */
} core__profile_event;

/* Something that was given to a device with streams. */
typedef struct core__profile_work {
    core_event *first; /* around it; owned.  NULL: the plugin records it */
    core_event *last;
    const char *name;
    uint64_t id;     /* grows within a part */
    uint64_t outer;  /* of what it was given inside of; 0: of nothing */
    uint64_t stream; /* core_stream_id */
    uint32_t parent; /* or CORE__PROFILE_NONE */
    uint8_t device;
} core__profile_work;

/* What a device did: one or several for each work, or for nobody's. */
typedef struct core__profile_slice {
    uint64_t begin; /* of the host's clock */
    uint64_t end;
    uint64_t lane; /* core_stream_id, or CORE__PROFILE_LANE and a number */
    uint64_t bytes;
    const char *name;
    core_device *device; /* a clock's */
    uint32_t kind;       /* CORE_ACTIVITY_… */
    uint32_t part, work; /* CORE__PROFILE_NONE: nobody's */
} core__profile_slice;

typedef struct core__profile_change {
    uint64_t time;
    int64_t bytes;
    uint8_t device;
} core__profile_change;

typedef struct core__profile_name {
    char *text;
    uint32_t hash;
    uint32_t next; /* 1 + index of the next of its bucket; 0: none */
} core__profile_name;

/* What one thread recorded in one round. */
typedef struct core__profile_part {
    uint32_t thread; /* numbered from 1, in the order of their first events */
    core__profile_event *events;
    core__profile_work *works;
    core__profile_change *changes;
    /* Of shapes: how many tensors, then dtype, dimensions and sizes of each. */
    int64_t *numbers;
    core__profile_name *names; /* copies of those that may go */
    uint32_t *buckets;         /* 1 + index of each one's first; 0: none */
    uint32_t nbuckets;         /* a power of two, or 0 */
    uint32_t nevents, events_room;
    uint32_t nworks, works_room;
    uint32_t nchanges, changes_room;
    uint32_t nnumbers, numbers_room;
    uint32_t nnames, names_room;
    uint32_t ndevices;
    core_device *devices[CORE__PROFILE_DEVICES]; /* referenced */
    uint64_t lost; /* beyond the limit, or for want of memory */
} core__profile_part;

/* What is shared by the threads of a round. */
typedef struct core__profile_rule {
    uint32_t flags; /* CORE_PROFILE_… */
    uint64_t limit;
} core__profile_rule;

/* ------------------------------------------------------------ log.c: threads */

/* Threads write from now on to a new round, of this number; 0: no more. */
void core__profile_open(uint32_t round, const core__profile_rule *rule);
/* Takes what all threads recorded in the round; owned by the caller.  On
 * failure it is lost, and the error tells so. */
core_status core__profile_take(uint32_t round, uint64_t now,
                               core__profile_part **out_parts,
                               size_t *out_count);
void core__profile_drop(core__profile_part *parts, size_t count);
uint64_t core__profile_now(void);

/* Tokens: a thread's stamp in a round, and event; another thread's are nobody's
 * here.  0 where nothing was recorded. */
uint64_t core__profile_begin(core_profile_kind kind, const char *name,
                             bool lasting);
/* The event while it may be changed: NULL, or with the log locked until
 * core__profile_let_go. */
core__profile_event *core__profile_hold(uint64_t token,
                                        core__profile_part **out_part);
/* The innermost that is open in this thread, likewise. */
core__profile_event *core__profile_hold_open(core__profile_part **out_part);
/* The log itself, with nothing open; *out_part NULL: no round is open. */
void core__profile_hold_log(core__profile_part **out_part);
void core__profile_let_go(void);
void core__profile_end(uint64_t token);
/* With the log held.  False: no room. */
bool core__profile_shapes(core__profile_part *part, core__profile_event *event,
                          const core_value *args, uint32_t nargs);
uint8_t core__profile_device(core__profile_part *part, core_device *device);
bool core__profile_changed(core__profile_part *part, core_device *device,
                           int64_t bytes);
core__profile_work *core__profile_work_new(core__profile_part *part);
/* A copy that lasts as long as the part. */
const char *core__profile_keep_name(core__profile_part *part, const char *name);
/* Of the round that is open; 0: none is. */
uint32_t core__profile_flags(void);
uint64_t core__profile_limit(void);

/* ------------------------------------------------- ranges.c: tools of vendors */

/* Plugins that listen from now on. */
void core__profile_ranges_find(void);
/* This thread comes into what has a token, and leaves it, and what it is in
 * besides that lies inside and was not left. */
void core__profile_ranges_begin(uint64_t token, const char *name);
void core__profile_ranges_end(uint64_t token);

/* ----------------------------------------------------- profiler_hooks.c: what is seen */

/* Puts the layer and the observer in their places, or takes them away. */
void core__profile_watch(bool on);

/* -------------------------------------------------------------- flop.c */

void core__profile_flop_prepare(void);
uint64_t core__profile_flop(const core_operator *op, const core_value *args,
                            uint32_t nargs, const core_value *results,
                            uint32_t nresults);

/* ---------------------------------------------------- clock.c: device times */

/* How the times of a device are had: from its plugin's records, or else by
 * events; and what its clock showed at what times of the host. */
typedef struct core__profile_clock {
    core_device *device; /* referenced */
    uint32_t generation; /* of it */
    bool records;        /* core.profiler runs, or ran */
    core_event *base;    /* NULL: without records it has no clock */
    uint64_t host;
    int64_t there; /* records: at that time */
    uint64_t host_end;
    int64_t there_end;
    uint64_t count; /* records taken */
    uint64_t dropped;
    char why[160]; /* there are no records; or nothing at all */
} core__profile_clock;

enum { CORE__PROFILE_CLOCKS = 32 };

/* Of the session, by the first launch on each device. */
void core__profile_clocks_begin(void);
void *core__profile_work_begin(core_stream *stream, const char *name,
                               uint64_t id, core__work_kind kind);
void core__profile_work_end(void *work, core_stream *stream);
/* This thread makes events for the profiler. */
bool core__profile_aside(void);
/* The profiler's own failures are nobody's error. */
typedef struct core__profile_apart {
    bool had;
    core__error_record record;
} core__profile_apart;
void core__profile_apart_begin(core__profile_apart *apart);
void core__profile_apart_end(const core__profile_apart *apart);
/* Owned by the caller from now on. */
size_t core__profile_clocks(core__profile_clock out[CORE__PROFILE_CLOCKS]);

/* --------------------------------------------- device_records.c: a plugin's records */

/* False: the clock's `why` says why. */
bool core__profile_records_start(core__profile_clock *clock);
/* Waits for the device: then there are no more. */
void core__profile_records_stop(core__profile_clock *clock);

/* -------------------------------------------------------------- session.c */

struct core_profiler {
    core_profiler_options options;
    core__thread *owner;
    uint64_t began; /* the session, and the round that is recorded */
    uint64_t round_began;
    uint64_t round_ended;
    uint64_t step; /* of the schedule */
    uint64_t steps;
    uint32_t number; /* of the round; 0: nothing is recorded */
    bool recorded;   /* for a report, not to be thrown away */
    bool running;
    bool stopping; /* the last round is over, and `ready` is told */
    core_range step_range;
    core__profile_part *parts; /* of the round that is over */
    size_t nparts;
    core__profile_clock clocks[CORE__PROFILE_CLOCKS];
    size_t nclocks;
    core__profile_slice *slices; /* of the devices */
    size_t nslices, slices_room;
    core__profile_part *names;       /* of slices; NULL: none */
    struct core__profile_rows *rows; /* NULL until asked for */
};

/* Of the round, in microseconds. */
static inline double core__profile_microseconds(const core_profiler *profiler,
                                                uint64_t time)
{
    return (double)(int64_t)(time - profiler->round_began) / 1e3;
}

static inline uint64_t core__profile_length(const core__profile_event *event)
{
    return event->end > event->begin ? event->end - event->begin : 0;
}

/* --------------------------------------------------------- device_activity.c */

/* Waits for the devices, ends their records, and makes slices of all that was
 * recorded; device times of events are filled. */
void core__profile_resolve(core_profiler *profiler);
/* Of a round that is thrown away. */
void core__profile_clocks_end(core__profile_clock *clocks, size_t count);
void core__profile_slices_drop(core_profiler *profiler);
/* What the slice is part of; NULL: it is nobody's. */
const core__profile_work *core__profile_slice_work(
    const core_profiler *profiler, const core__profile_slice *slice);
static inline bool core__profile_same_lane(const core__profile_slice *a,
                                           const core__profile_slice *b)
{
    return a->lane == b->lane && a->device == b->device;
}
/* A name as text for people: at most `room` bytes of whole characters, then a
 * 0; returns how many.  What would break a line, or is no UTF-8, becomes '?'. */
size_t core__profile_plain(char *out, size_t room, const char *name);
/* "stream 3" */
void core__profile_lane_name(const core__profile_slice *slice, char *text,
                             size_t size);

/* --------------------------------------------------------------- event_summary.c */

typedef struct core__profile_rows {
    size_t count;
    core_profile_row *rows;
    core_profile_order order; /* they are sorted so */
} core__profile_rows;

void core__profile_rows_drop(core_profiler *profiler);
/* Made if need be, and sorted; BUSY while events are recorded. */
core_status core__profile_rows_sorted(core_profiler *profiler,
                                      core_profile_order order);

/* -------------------------------------------------------------- table.c */

/* What is below the table: fallbacks, waits, where device times are from, what
 * is missing.  The rows are made already; freed with core__free. */
core_status core__profile_remarks(const core_profiler *profiler,
                                  char **out_text);

/* -------------------------------------------------- memory_timeline.c: memory by time */

typedef struct core__profile_point {
    uint64_t time;
    int64_t bytes; /* since the round began */
    core_device *device;
} core__profile_point;

typedef struct core__profile_curve {
    core__profile_point *points; /* freed by the caller */
    size_t count;
} core__profile_curve;

core_status core__profile_curve_make(const core_profiler *profiler,
                                     core__profile_curve *curve);

/* ---------------------------------------------- node_correlation.c: backward to forward */

typedef struct core__profile_link {
    uint32_t from_part, from; /* an operator */
    uint32_t to_part, to;     /* a node */
} core__profile_link;

core_status core__profile_links(const core_profiler *profiler,
                                core__profile_link **out_links,
                                size_t *out_count);

/* Fork handlers of the logs, the clocks and the session. */
void core__profile_fork(core__fork at);
void core__profile_clocks_fork(core__fork at);
void core__profile_session_fork(core__fork at);

#endif
