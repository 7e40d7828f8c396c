/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* race.h: finds unordered uses of memory (LIBCORE_SIM_CHECK=1).
 *
 * Every stream has a vector clock, and so does the host.  Work takes the clock
 * of its stream when it is submitted, and that of the host, which includes
 * everything that the host has waited for; an event passes the clock of its
 * stream to its waiters.  For each byte of device and pinned memory, the last
 * write and the reads since are recorded.  Two uses of a byte, one of them a
 * write, neither of which is ordered before the other, are a conflict,
 * whichever happened first: the result does not depend on timing.  The later of
 * the two fails and names the other.
 *
 * Exact except in four cases, none of which causes a false conflict: streams
 * beyond SIM_CLOCKS - 1 at a time are not checked, which is logged once; the
 * host's threads count as one; at most SIM_ENTRIES uses of a byte are recorded;
 * and for more than SIM_RUNS separate runs of bytes in one operand conflicts
 * are found exactly, but uses that they overwrote in between may be dropped. */

#ifndef SIM_RACE_H
#define SIM_RACE_H

#include "sim.h"

enum {
    SIM_CLOCKS = 256,
    SIM_HOST = 0, /* the host's index in a clock */
    SIM_ENTRIES = 8,
    SIM_RUNS = 256
};

struct sim_clock {
    uint64_t at[SIM_CLOCKS];
};

/* The bytes of an operand: runs of `run` bytes, at every sum of strides.
 * Dimensions are ordered from the largest stride to the smallest. */
typedef struct sim_shape {
    struct sim_shape *next; /* of the same use */
    uint64_t run;
    uint64_t offset; /* of the first, within the block */
    uint64_t end;    /* after the last */
    uint32_t ndim;
    uint64_t sizes[CORE_MAX_NDIM];
    uint64_t strides[CORE_MAX_NDIM];
} sim_shape;

/* Work that used memory, kept while the history of any byte refers to it. */
typedef struct sim_use {
    uint32_t references;
    uint32_t place; /* index of its stream in clocks */
    uint64_t time;
    uint64_t call_id;
    uint64_t stream;
    sim_shape *shapes; /* those that entries refer to */
    char name[96];
} sim_use;

typedef struct sim_entry {
    sim_use *use;
    sim_shape *shape; /* NULL: every byte of the interval */
    bool writes;
} sim_entry;

/* Bytes with the same uses. */
typedef struct sim_interval {
    uint64_t from;
    uint64_t to;
    uint32_t count;
    sim_entry entries[SIM_ENTRIES];
} sim_interval;

/* In order, without overlap. */
typedef struct sim_history {
    sim_interval *intervals;
    uint32_t count;
    uint32_t capacity;
} sim_history;

/* Assigns an index in clocks; SIM_HOST if none is free.  An index is reused
 * when the host has waited for all work of the stream that ended. */
void sim_clock_open(sim_stream *stream);
/* Logs, once, that a stream got no index. */
void sim_clock_log_full(void);
void sim_clock_close(sim_stream *stream);
/* Merge a clock into the host's or a stream's clock. */
const sim_clock *sim_clock_host(void);
void sim_clock_join_host(const sim_clock *clock);
void sim_clock_join(sim_stream *stream, const sim_clock *clock);
/* Advances the stream's clock when work is submitted. */
void sim_clock_step(sim_stream *stream);
/* Copies the clock for a marker; NULL if out of memory, or if nothing is
 * checked. */
sim_clock *sim_clock_copy(const sim_stream *stream);

/* Records one use of a shape in a history, on behalf of `use`; a conflict sets
 * its text, if there is none yet. */
void sim_history_use(sim_history *history, sim_use *use, const sim_clock *clock,
                     const sim_shape *shape, bool writes, const char *where,
                     char *conflict, size_t capacity);
/* The host frees [from, to), whose history is dropped.  Returns true, with a
 * text, if some stream may still use it; out_stream is that stream's number. */
bool sim_history_end(sim_history *history, const sim_clock *host, uint64_t from,
                     uint64_t to, const char *where, char *conflict,
                     size_t capacity, uint64_t *out_stream);
void sim_history_drop(sim_history *history);

sim_use *sim_use_create(const sim_stream *stream, const sim_work *work);
void sim_use_unref(sim_use *use);

/* Records all uses of memory by work.  The text of a conflict is stored in
 * work->conflict and fails the work when it runs. */
void sim_race_note(sim_stream *stream, sim_work *work);

/* Records a result that a kernel allocated while it ran. */
void sim_race_note_result(sim_stream *stream, sim_work *work,
                          const core_view *view);

/* The history of pinned host memory (host.c), and the offset of data in it;
 * NULL for other memory. */
sim_history *sim_pinned_history(const void *data, uint64_t size,
                                uint64_t *out_offset);

extern uint64_t sim_conflicts;
extern char sim_conflict_text[SIM_TEXT]; /* the newest */
void sim_conflicted(const char *text);

#endif
