/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* profile.h: what a profiler session records.
 *
 * Each thread writes to its own log, under a lock that otherwise only the
 * session takes, when it ends a round and collects the logs.  An operator costs
 * at least two clock readings, two lock acquisitions and one record; the goal
 * is 150 ns for all of them. */

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
#define CORE__PROFILE_LANE \
    (UINT64_C(1) << 40) /* lanes from here on are the
                                                * plugin's */

typedef struct core__profile_event {
    uint64_t begin; /* nanoseconds of the monotonic clock */
    uint64_t end;   /* 0: it has not ended */
    const char *name;
    uint64_t sequence; /* BACKWARD: the node's; OPERATOR: that of the first node
                        * it recorded */
    uint64_t bytes;
    uint64_t flop;
    int64_t memory; /* without children */
    uint64_t device_self;
    uint64_t device_total;
    uint32_t parent; /* in the same log, or CORE__PROFILE_NONE */
    uint32_t nodes;  /* OPERATOR: nodes that it and its children recorded */
    uint32_t shapes; /* index in `numbers`; 0: none */
    uint32_t kernels;
    uint32_t fallbacks;
    uint8_t kind;    /* core_profile_kind */
    uint8_t device;  /* 1 + index in `devices`; 0: none */
    bool inner_flop; /* the operations of a child were counted */
} core__profile_event;

/* Work launched on a device with streams. */
typedef struct core__profile_work {
    core_event *first; /* timing events around it; owned.  NULL: the plugin
                        * records it */
    core_event *last;
    const char *name;
    uint64_t id;     /* grows within a part */
    uint64_t outer;  /* the id of the enclosing work; 0: none */
    uint64_t stream; /* core_stream_id */
    uint32_t parent; /* or CORE__PROFILE_NONE */
    uint8_t device;
} core__profile_work;

/* An interval of device activity: one or several per work, or of no known
 * work. */
typedef struct core__device_activity {
    uint64_t begin; /* in host time */
    uint64_t end;
    uint64_t lane; /* core_stream_id, or CORE__PROFILE_LANE plus a number */
    uint64_t bytes;
    const char *name;
    core_device *device; /* that of a clock */
    uint32_t kind;       /* CORE_ACTIVITY_… */
    uint32_t part, work; /* CORE__PROFILE_NONE: unknown */
} core__device_activity;

typedef struct core__profile_memory_change {
    uint64_t time;
    int64_t bytes;
    uint8_t device;
} core__profile_memory_change;

typedef struct core__profile_name {
    char *text;
    uint32_t hash;
    uint32_t next; /* 1 + index of the next name in its bucket; 0: none */
} core__profile_name;

/* What one thread recorded in one round. */
typedef struct core__profile_part {
    uint32_t thread; /* from 1, in the order of their first events */
    core__profile_event *events;
    core__profile_work *works;
    core__profile_memory_change *changes;
    /* Shapes: the number of tensors, then dtype, dimensions and sizes of
     * each. */
    int64_t *numbers;
    core__profile_name *names; /* copies of names that may be freed */
    uint32_t *buckets;         /* 1 + index of the first name in each bucket; 0:
                                * none */
    uint32_t nbuckets;         /* a power of two, or 0 */
    uint32_t nevents, events_capacity;
    uint32_t nworks, works_capacity;
    uint32_t nchanges, changes_capacity;
    uint32_t nnumbers, numbers_capacity;
    uint32_t nnames, names_capacity;
    uint32_t ndevices;
    core_device *devices[CORE__PROFILE_DEVICES]; /* referenced */
    uint64_t lost; /* items beyond the limit or dropped for lack of memory */
} core__profile_part;

/* Settings that the threads of a round share. */
typedef struct core__profile_round_settings {
    uint32_t flags; /* CORE_PROFILE_… */
    uint64_t limit;
} core__profile_round_settings;

/* ------------------------------------------------ event_log.c: per-thread logs -- */

/* Starts a new round with this number, to which threads write from now on; 0:
 * stops recording. */
void core__profile_round_begin(uint32_t round,
                               const core__profile_round_settings *rule);
/* Takes what all threads recorded in the round; owned by the caller.  On
 * failure the data is lost, and an error is returned. */
core_status core__profile_round_take(uint32_t round, uint64_t now,
                                     core__profile_part **out_parts,
                                     size_t *out_count);
void core__profile_parts_free(core__profile_part *parts, size_t count);
uint64_t core__profile_now(void);

/* Tokens consist of a thread's stamp in a round and an event; in other threads
 * they have no effect.  0: nothing was recorded. */
uint64_t core__profile_event_begin(core_profile_kind kind, const char *name,
                                   bool lasting);
/* Returns the event with the log locked until core__profile_unlock, or NULL. */
core__profile_event *core__profile_lock_event(uint64_t token,
                                              core__profile_part **out_part);
/* The same for the innermost open event of this thread. */
core__profile_event *core__profile_lock_open_event(
    core__profile_part **out_part);
/* The same without an event: locks the log; *out_part NULL: no round is
 * open. */
void core__profile_lock_log(core__profile_part **out_part);
void core__profile_unlock(void);
void core__profile_event_end(uint64_t token);
/* With the log locked.  Returns false if memory is short. */
bool core__profile_shapes(core__profile_part *part, core__profile_event *event,
                          const core_value *args, uint32_t nargs);
uint8_t core__profile_device(core__profile_part *part, core_device *device);
bool core__profile_memory_change_add(core__profile_part *part,
                                     core_device *device, int64_t bytes);
core__profile_work *core__profile_work_add(core__profile_part *part);
/* A copy of the name that lives as long as the part. */
const char *core__profile_copy_name(core__profile_part *part, const char *name);
/* Flags of the open round; 0: none is open. */
uint32_t core__profile_flags(void);
uint64_t core__profile_limit(void);

/* ------------------------------------------------ vendor_ranges.c: vendor tools -- */

/* Adds the plugins that implement core.ranges. */
void core__profile_ranges_add_listeners(void);
/* Enter and leave a range in this thread, identified by a token.  Leaving also
 * leaves the ranges inside it that are still open. */
void core__profile_ranges_begin(uint64_t token, const char *name);
void core__profile_ranges_end(uint64_t token);

/* ------------------------- profiler_hooks.c: dispatch layer and observer -- */

/* Installs or removes the dispatch layer and the observer. */
void core__profiler_hooks_install(bool on);

/* -------------------------------------------------------------- flop.c -- */

void core__profile_flop_prepare(void);
uint64_t core__profile_flop(const core_operator *op, const core_value *args,
                            uint32_t nargs, const core_value *results,
                            uint32_t nresults);
/* The bytes of the elements of all tensors among the values. */
uint64_t core__profile_bytes(const core_value *values, uint32_t count);

/* ----------------------------------------------- clock.c: device times -- */

/* The clock of a device: whether its times come from its plugin's records or
 * from events, and the times of its clock at known host times. */
typedef struct core__profile_clock {
    core_device *device; /* referenced */
    uint32_t generation; /* the device's */
    bool starting;       /* a thread is making the clock (clock.c) */
    bool records;        /* core.profiler is or was recording */
    core_event *base;    /* NULL: without records there is no clock */
    uint64_t host;
    int64_t device_time; /* records: device time at `host` */
    uint64_t host_end;
    int64_t device_time_end;
    uint64_t count; /* records taken */
    uint64_t dropped;
    char reason[160]; /* why there are no records, or no times at all */
} core__profile_clock;

enum { CORE__PROFILE_CLOCKS = 32 };

/* Starts a session without clocks; the first launch on each device creates
 * one. */
void core__profile_clocks_begin(void);
void *core__profile_work_begin(core_stream *stream, const char *name,
                               uint64_t id, core__work_kind kind);
void core__profile_work_end(void *work, core_stream *stream);
/* Whether this thread is creating events for the profiler. */
bool core__profile_is_internal(void);
/* Failures of the profiler itself are hidden from the caller. */
typedef struct core__profile_error_guard {
    bool had;
    core__error_record record;
} core__profile_error_guard;
void core__profile_error_guard_begin(core__profile_error_guard *guard);
void core__profile_error_guard_end(const core__profile_error_guard *guard);
/* The caller owns the clocks from now on. */
size_t core__profile_clocks_take(core__profile_clock out[CORE__PROFILE_CLOCKS]);

/* -------------------------------------- device_records.c: plugin records -- */

/* Returns false and sets the clock's `why` on failure. */
bool core__profile_records_start(core__profile_clock *clock);
/* Waits for the device, after which there are no more records. */
void core__profile_records_stop(core__profile_clock *clock);

/* ----------------------------------------------------------- session.c -- */

struct core_profiler {
    core_profiler_options options;
    core__thread *owner;
    uint64_t begin_time; /* of the session */
    uint64_t round_began;
    uint64_t round_ended;
    uint64_t step; /* of the schedule */
    uint64_t steps;
    uint32_t number; /* of the round; 0: nothing is being recorded */
    bool recorded;   /* for a report, not discarded */
    bool running;
    bool stopping; /* the last round has ended and `ready` is being called */
    core_range step_range;
    core__profile_part *parts; /* of the round that ended */
    size_t nparts;
    core__profile_clock clocks[CORE__PROFILE_CLOCKS];
    size_t nclocks;
    core__device_activity *slices; /* activity of the devices */
    size_t nslices, slices_capacity;
    core__profile_part *names;        /* names of slices; NULL: none */
    struct core__event_summary *rows; /* NULL until needed */
};

/* Microseconds since the round began. */
static inline double core__profile_microseconds(const core_profiler *profiler,
                                                uint64_t time)
{
    return (double)(int64_t)(time - profiler->round_began) / 1e3;
}

static inline uint64_t core__profile_event_duration(
    const core__profile_event *event)
{
    return event->end > event->begin ? event->end - event->begin : 0;
}

/* --------------------------------------------------- device_activity.c -- */

/* Waits for the devices, stops their records, converts everything recorded to
 * slices, and fills in the device times of events. */
void core__device_activity_collect(core_profiler *profiler);
/* For a round that is discarded. */
void core__profile_clocks_end(core__profile_clock *clocks, size_t count);
void core__device_activity_free(core_profiler *profiler);
/* The work that the slice belongs to; NULL: none is known. */
const core__profile_work *core__device_activity_work(
    const core_profiler *profiler, const core__device_activity *slice);
static inline bool core__device_activity_same_lane(
    const core__device_activity *a, const core__device_activity *b)
{
    return a->lane == b->lane && a->device == b->device;
}
/* A name as readable text: at most `capacity` bytes of whole characters and a
 * NUL; returns the length.  Line breaks and bytes that are not UTF-8 become '?'. */
size_t core__profile_printable_name(char *out, size_t capacity,
                                    const char *name);
/* "stream 3" */
void core__device_activity_lane_name(const core__device_activity *slice,
                                     char *text, size_t size);

/* ----------------------------------------------------- event_summary.c -- */

typedef struct core__event_summary {
    size_t count;
    core_profile_row *rows;
    core_profile_order order; /* the current order */
} core__event_summary;

void core__event_summary_free(core_profiler *profiler);
/* Creates the rows if needed and sorts them; BUSY while events are recorded. */
core_status core__event_summary_sorted(core_profiler *profiler,
                                       core_profile_order order);

/* ------------------------------------------------------------- table.c -- */

/* The remarks below the table: fallbacks, waits, the source of device times,
 * lost data.  The rows must exist; the text is freed with core__free. */
core_status core__profile_remarks(const core_profiler *profiler,
                                  char **out_text);

/* ----------------------------------------------------- memory_timeline.c -- */

typedef struct core__memory_timeline_point {
    uint64_t time;
    int64_t bytes; /* relative to the beginning of the round */
    core_device *device;
} core__memory_timeline_point;

typedef struct core__memory_timeline {
    core__memory_timeline_point *points; /* freed by the caller */
    size_t count;
} core__memory_timeline;

core_status core__memory_timeline_make(const core_profiler *profiler,
                                       core__memory_timeline *curve);

/* ---------------------------------------------------- node_correlation.c -- */

typedef struct core__node_correlation {
    uint32_t from_part, from; /* an operator */
    uint32_t to_part, to;     /* a node */
} core__node_correlation;

core_status core__node_correlations_make(const core_profiler *profiler,
                                         core__node_correlation **out_links,
                                         size_t *out_count);

/* Fork handlers of the logs, the clocks and the session. */
void core__profile_fork(core__fork_phase at);
void core__profile_clocks_fork(core__fork_phase at);
void core__profile_session_fork(core__fork_phase at);

#endif
