/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* observe.h: the hooks by which the profiler observes the core.
 *
 * Operators are observed by a dispatch layer.  Everything else is reported
 * here: nodes of a backward, waits, memory, kernels on devices with streams.
 * Usually no observer is set, and each hook costs a load and a branch; none is
 * on the path of a small call. */

#ifndef CORE_BASE_OBSERVE_H
#define CORE_BASE_OBSERVE_H

#include "base/thread.h"

#include <stdatomic.h>

typedef enum core__observed {
    CORE__OBSERVED_NODE,
    CORE__OBSERVED_WAIT,
    CORE__OBSERVED_RANGE
} core__observed;

/* The kinds of work submitted to a stream. */
typedef enum core__work_kind {
    CORE__WORK_KERNEL,
    CORE__WORK_COPY,
    CORE__WORK_GRAPH
} core__work_kind;

typedef struct core__observer {
    /* Begins a span of this thread's time and returns the token that ends it,
     * or 0.  sequence: of a node.  device: may be NULL. */
    uint64_t (*begin)(core__observed what, const char *name, uint64_t sequence,
                      core_device *device);
    void (*end)(uint64_t token);
    /* Bytes were allocated (> 0) or freed. */
    void (*memory)(core_device *device, int64_t bytes);
    /* The CPU computed a call for a device. */
    void (*fallback)(core_device *device);
    /* Called before and after work is submitted to a stream, without locks.
     * NULL: this work is not timed.  id: from core__call_number. */
    void *(*work_begin)(struct core_stream *stream, const char *name,
                        uint64_t id, core__work_kind kind);
    void (*work_end)(void *work, struct core_stream *stream);
} core__observer;

/* NULL: no observer.  Tables are static, because one that was read may be
 * called later. */
extern const core__observer *_Atomic core__observing;
/* The most recent observer, also after it was removed. */
extern const core__observer *_Atomic core__observed_last;

static inline const core__observer *core__observer_now(void)
{
    return atomic_load_explicit(&core__observing, memory_order_acquire);
}

static inline uint64_t core__observe_begin(core__observed what,
                                           const char *name, uint64_t sequence,
                                           core_device *device)
{
    const core__observer *observer = core__observer_now();

    return __builtin_expect(observer != NULL, 0)
               ? observer->begin(what, name, sequence, device)
               : 0;
}

void core__observe_end_slow(uint64_t token);
static inline void core__observe_end(uint64_t token)
{
    if (__builtin_expect(token != 0, 0))
        core__observe_end_slow(token);
}

static inline void *core__observe_work(struct core_stream *stream,
                                       const char *name, uint64_t id,
                                       core__work_kind kind)
{
    const core__observer *observer = core__observer_now();

    return __builtin_expect(observer != NULL, 0)
               ? observer->work_begin(stream, name, id, kind)
               : NULL;
}

void core__observe_work_end_slow(void *work, struct core_stream *stream);
static inline void core__observe_work_end(void *work,
                                          struct core_stream *stream)
{
    if (__builtin_expect(work != NULL, 0))
        core__observe_work_end_slow(work, stream);
}

static inline void core__observe_fallback(core_device *device)
{
    const core__observer *observer = core__observer_now();

    if (__builtin_expect(observer != NULL, 0))
        observer->fallback(device);
}

static inline void core__observe_memory(core_device *device, int64_t bytes)
{
    const core__observer *observer = core__observer_now();

    if (__builtin_expect(observer != NULL, 0))
        observer->memory(device, bytes);
}

#endif
