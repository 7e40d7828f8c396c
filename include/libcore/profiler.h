/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* profiler.h: what a program's time and memory go to.
 *
 *     core_profiler_start(NULL, &profiler);
 *     train();
 *     core_profiler_stop(profiler);
 *     core_profiler_table(profiler, CORE_PROFILE_BY_SELF, 20, &text);
 *     core_profiler_save_trace(profiler, "trace.json");
 *     core_profiler_release(profiler);
 *
 * A session observes every thread of the process.  It records each operator
 * that is called, those that operators and gradient formulas call among them;
 * each node of a backward, linked to the operator that made it; the ranges that
 * the program names; each wait of the host for a device; and, where asked for,
 * shapes, memory, and when a device with streams really computed.  Without a
 * session nothing of this costs anything.
 *
 * CPU time of an operator is from call to return; its self time is that less
 * the operators called inside.  A device with streams works later: its time is
 * what its plugin records of kernels, copies and fills (core.profiler), or else
 * between two events around each kernel; it is added to the operator that gave
 * the work.  The table says which it was.  On a synchronous device CPU time is
 * the time.
 *
 * FLOP are counted by formula for products of matrices, convolution and
 * attention (a multiplication and an addition are two), and one per element of
 * the result for element-wise operators; others have none.  Bytes are those of
 * the tensors that go in and come out.
 *
 * A vendor's tool that is attached is told what a session sees, too:
 * operators, nodes of a backward, ranges and waits, by plugins with
 * core.ranges that have a device open when the session begins.
 *
 * Threads: start, step, stop and reports are one thread's, that which started;
 * ranges are any thread's. */

#ifndef LIBCORE_PROFILER_H
#define LIBCORE_PROFILER_H

#include "status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct core_profiler core_profiler;

enum {
    CORE_PROFILE_SHAPES = 1u << 0, /* sizes and dtypes of tensors, in traces */
    /* Memory as devices' allocators give it.  Of a synchronous device blocks
     * below a KiB are not seen: threads keep them. */
    CORE_PROFILE_MEMORY = 1u << 1,
    CORE_PROFILE_DEVICE = 1u << 2 /* time on devices with streams */
};

/* Of a schedule: steps that pass unobserved, that are observed and thrown away
 * (the first ones of everything are slow), and that are recorded; then all of
 * it again.  A step ends with core_profiler_step. */
typedef struct core_profiler_options {
    uint32_t struct_size;
    uint32_t flags; /* CORE_PROFILE_… */
    uint32_t wait;
    uint32_t warmup;
    uint32_t active; /* 0: no schedule, everything is recorded */
    uint32_t repeat; /* 0: until it is stopped */
    /* Called in core_profiler_step, and in stop, when the recorded steps of a
     * round are over; reports are of that round.  Its error is the call's.  It
     * may stop the session, and must neither step nor release it.
     * NULL: the reports after stop are of the last round. */
    core_status (*ready)(core_profiler *profiler, void *user);
    void *user;
    /* Events that a thread records in a round, at most, and allocations, and
     * launches likewise; those beyond are counted.  0: 4 million. */
    uint64_t limit;
} core_profiler_options;

/* options NULL: CORE_PROFILE_SHAPES | MEMORY | DEVICE, no schedule.  BUSY while
 * another session runs. */
core_status core_profiler_start(const core_profiler_options *options,
                                core_profiler **out_profiler);
/* A step of the schedule ends.  Without a schedule it only marks steps. */
core_status core_profiler_step(core_profiler *profiler);
/* Waits for devices whose time is recorded.  INVALID_ARGUMENT in another thread
 * than that which started, and if it is stopped already: the session goes on,
 * or stays as it is. */
core_status core_profiler_stop(core_profiler *profiler);
/* Stops it if need be, in any thread.  Takes NULL. */
void core_profiler_release(core_profiler *profiler);

/* A part of the program by name, in the thread that calls.  Ranges nest, and
 * are left in the reverse order; a range costs nothing while nobody observes.
 * The name is copied. */
typedef uint64_t core_range;
core_range core_range_begin(const char *name);
void core_range_end(core_range range);

/* ------------------------------------------------------------- reports -- */

typedef enum core_profile_kind {
    CORE_PROFILE_OPERATOR = 0,
    CORE_PROFILE_BACKWARD = 1, /* a node of a backward */
    CORE_PROFILE_RANGE = 2,
    CORE_PROFILE_WAIT = 3 /* of the host for a device */
} core_profile_kind;

/* What all calls of one name add up to.  Times in nanoseconds. */
typedef struct core_profile_row {
    uint32_t struct_size; /* set by the caller to sizeof */
    core_profile_kind kind;
    const char *name; /* the profiler's, until its next round or release */
    uint64_t calls;
    uint64_t cpu_total; /* recursive calls count once */
    uint64_t cpu_self;
    uint64_t device_total; /* kernels of what was called inside, too */
    uint64_t device_self;
    uint64_t kernels; /* launched on devices with streams */
    uint64_t bytes;
    uint64_t flop;
    int64_t memory;     /* allocated less freed, by itself */
    uint64_t fallbacks; /* calls that the CPU computed for a device */
} core_profile_row;

typedef enum core_profile_order {
    CORE_PROFILE_BY_SELF = 0, /* largest CPU self time first */
    CORE_PROFILE_BY_TOTAL = 1,
    CORE_PROFILE_BY_DEVICE = 2, /* device self time */
    CORE_PROFILE_BY_CALLS = 3,
    CORE_PROFILE_BY_MEMORY = 4,
    CORE_PROFILE_BY_NAME = 5
} core_profile_order;

/* While the session records, BUSY from all that follow. */
core_status core_profiler_count_rows(core_profiler *profiler,
                                     size_t *out_count);
/* index counts in this order. */
core_status core_profiler_get_row(core_profiler *profiler,
                                  core_profile_order order, size_t index,
                                  core_profile_row *out_row);

/* A table for people, of so many rows (0: all), and what ran on the CPU in
 * place of a device, and what the host waited for.  Freed with core_text_free
 * (tensor.h). */
core_status core_profiler_table(core_profiler *profiler,
                                core_profile_order order, size_t rows,
                                char **out_text);
/* JSON in the Trace Event format, which chrome://tracing and ui.perfetto.dev
 * open: threads, streams, memory; arrows from a launch to its kernel and from
 * the forward to its backward. */
core_status core_profiler_save_trace(core_profiler *profiler, const char *path);
/* A line per stack, "outer;inner 1234", self time in nanoseconds: what flame
 * graph programs read. */
core_status core_profiler_save_stacks(core_profiler *profiler,
                                      const char *path);
/* A page that needs nothing but a browser: time line, memory, table. */
core_status core_profiler_save_html(core_profiler *profiler, const char *path);

#ifdef __cplusplus
}
#endif
#endif
