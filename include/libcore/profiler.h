/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* profiler.h: where a program spends time and memory.
 *
 *     core_profiler_start(NULL, &profiler);
 *     train();
 *     core_profiler_stop(profiler);
 *     core_profiler_table(profiler, CORE_PROFILE_BY_SELF, 20, &text);
 *     core_profiler_save_trace(profiler, "trace.json");
 *     core_profiler_release(profiler);
 *
 * A session observes all threads of the process.  It records every operator,
 * including those that operators and gradient formulas call; every node of a
 * backward, linked to the operator that recorded it; the ranges that the
 * program names; every wait of the host for a device; and optionally shapes,
 * memory, and the execution times on devices with streams.  Without a session
 * there is no overhead.
 *
 * The CPU time of an operator is the time from call to return; its self time
 * excludes the operators that it calls.  The device time is that of the
 * kernels, copies and fills that the operator enqueued, as recorded by the
 * plugin (core.profiler), or else measured between two events around each
 * kernel; the table says which.  On a synchronous device the CPU time includes
 * the execution.
 *
 * FLOP are counted by formula for matrix products, convolution and attention (a
 * multiplication and an addition count as two), and as one per result element
 * for element-wise operators; other operators have none.  Bytes are those of
 * the argument and result tensors.
 *
 * If a plugin provides core.ranges and has a device open when the session
 * begins, the session also passes operators, nodes of a backward, ranges and
 * waits to the vendor's tool.
 *
 * Threads.  Start, step, stop and the reports belong to the thread that started
 * the session.  Ranges are thread-safe. */

#ifndef LIBCORE_PROFILER_H
#define LIBCORE_PROFILER_H

#include "status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A profiling session and what it recorded. */
typedef struct core_profiler core_profiler;

/* Flags of a session: what it records besides operators. */
enum {
    CORE_PROFILE_SHAPES = 1u << 0, /* sizes and dtypes of tensors, in traces */
    /* Allocations of the devices' allocators.  On a synchronous device, blocks
     * below 1 KiB are not recorded, because threads cache them. */
    CORE_PROFILE_MEMORY = 1u << 1,
    CORE_PROFILE_DEVICE = 1u << 2 /* execution times on devices with streams */
};

/* The options of a session.  A schedule divides the program into rounds of wait
 * + warmup + active steps; core_profiler_step ends a step.  The session ignores
 * the steps of wait, observes and discards those of warmup (the first steps of
 * a program are slower), and records those of active. */
typedef struct core_profiler_options {
    uint32_t struct_size;
    uint32_t flags; /* CORE_PROFILE_… */
    uint32_t wait;
    uint32_t warmup;
    uint32_t active; /* 0: no schedule, everything is recorded */
    uint32_t repeat; /* number of rounds; 0: until the session is stopped */
    /* Called in core_profiler_step, and in core_profiler_stop, after the active
     * steps of a round, whose reports are then available.  Its error is
     * returned by that call.  It may stop the session, but must neither step
     * nor release it.  NULL: after core_profiler_stop, the reports are those of
     * the last round. */
    core_status (*ready)(core_profiler *profiler, void *user);
    void *user; /* passed to ready; borrowed until the session is stopped */
    /* The maximum number of events that a thread records in a round; likewise
     * of allocations, and of launches.  Further ones are only counted.  0: 4
     * million. */
    uint64_t limit;
} core_profiler_options;

/* Starts a session.  The caller owns it.  options: copied; NULL:
 * CORE_PROFILE_SHAPES | _MEMORY | _DEVICE, without a schedule.  BUSY while
 * another session runs. */
core_status core_profiler_start(const core_profiler_options *options,
                                core_profiler **out_profiler);

/* Ends a step.  Without a schedule it only marks the step in the reports. */
core_status core_profiler_step(core_profiler *profiler);

/* Stops a session.  Waits for the devices whose times are recorded.
 * INVALID_ARGUMENT, without effect, in another thread than the one that started
 * the session, and if the session is stopped already. */
core_status core_profiler_stop(core_profiler *profiler);

/* Frees a session and everything that it recorded, and stops it if necessary.
 * Any thread may call it.  Accepts NULL. */
void core_profiler_release(core_profiler *profiler);

/* A named part of the program, for core_range_end. */
typedef uint64_t core_range;

/* Begins a range in the calling thread.  The name is copied.  Ranges nest, and
 * must end in reverse order.  Without a session there is no overhead. */
core_range core_range_begin(const char *name);

/* Ends a range. */
void core_range_end(core_range range);

/* ------------------------------------------------------------- reports -- */

/* What a row of the table describes. */
typedef enum core_profile_kind {
    CORE_PROFILE_OPERATOR = 0,
    CORE_PROFILE_BACKWARD = 1, /* a node of a backward */
    CORE_PROFILE_RANGE = 2,
    CORE_PROFILE_WAIT = 3 /* of the host for a device */
} core_profile_kind;

/* The sums over all calls with one name.  Times are in nanoseconds. */
typedef struct core_profile_row {
    uint32_t struct_size; /* set by the caller to sizeof(core_profile_row) */
    core_profile_kind kind;
    const char *name; /* borrowed until the next round or release */
    uint64_t calls;
    uint64_t cpu_total; /* nested calls of the same name count once */
    uint64_t cpu_self;
    uint64_t device_total; /* includes the calls inside */
    uint64_t device_self;
    uint64_t kernels; /* launched on devices with streams */
    uint64_t bytes;
    uint64_t flop;
    int64_t memory;     /* bytes allocated minus freed, without calls inside */
    uint64_t fallbacks; /* calls that the CPU computed for a device */
} core_profile_row;

/* The order of rows. */
typedef enum core_profile_order {
    CORE_PROFILE_BY_SELF = 0,   /* CPU self time, largest first */
    CORE_PROFILE_BY_TOTAL = 1,  /* CPU total time */
    CORE_PROFILE_BY_DEVICE = 2, /* device self time */
    CORE_PROFILE_BY_CALLS = 3,
    CORE_PROFILE_BY_MEMORY = 4,
    CORE_PROFILE_BY_NAME = 5
} core_profile_order;

/* The functions below return BUSY while the session records. */

/* Gets the number of rows.  INVALID_ARGUMENT if profiler or out_count is
 * NULL. */
core_status core_profiler_count_rows(core_profiler *profiler,
                                     size_t *out_count);

/* Gets a row.  index counts from 0 in the given order.  The caller sets
 * out_row->struct_size.  INDEX after the last row. */
core_status core_profiler_get_row(core_profiler *profiler,
                                  core_profile_order order, size_t index,
                                  core_profile_row *out_row);

/* Formats the rows as a human-readable table, followed by the operators that
 * the CPU computed instead of a device, and by the waits of the host.  rows:
 * the maximum number; 0: all.  The caller frees the text with core_text_free
 * (tensor.h). */
core_status core_profiler_table(core_profiler *profiler,
                                core_profile_order order, size_t rows,
                                char **out_text);

/* Writes a trace to a file as JSON in the Trace Event format, for
 * chrome://tracing and ui.perfetto.dev.  It contains threads, streams and
 * memory, with arrows from each launch to its kernel and from the forward to
 * the backward.  IO if the file cannot be written. */
core_status core_profiler_save_trace(core_profiler *profiler, const char *path);

/* Writes the stacks to a file, one line per stack, "outer;inner 1234", with the
 * self time in nanoseconds, for flame graph programs.  IO if the file cannot be
 * written. */
core_status core_profiler_save_stacks(core_profiler *profiler,
                                      const char *path);

/* Writes a self-contained HTML page to a file, with a timeline, the memory and
 * the table.  IO if the file cannot be written. */
core_status core_profiler_save_html(core_profiler *profiler, const char *path);

#ifdef __cplusplus
}
#endif
#endif
