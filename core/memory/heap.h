/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* heap.h: the data structures of the caching allocator.
 *
 * A device has one allocator.  A stream has one heap in it, and one more in
 * every private pool from which it allocates.  A heap has segments, which are
 * memory of the device, divided into blocks that form a chain in address
 * order.  A heap's data is guarded by its spin lock, which no other thread
 * takes as long as threads do not share streams: a warm allocation or release
 * touches nothing else.
 *
 * Lock order, outermost first: the allocator's mutex (creation and release of
 * segments, heaps, pools and settings), a heap's lock, the lock of the
 * statistics or of the history.  Freeing a block never waits for the mutex,
 * nor does the end of a stream or pool: these may happen in a host callback
 * for which the holder of the mutex waits (core__allocator_unlock).  No plugin
 * is called with a heap's lock held, and no stream or event is released with
 * any lock held. */

#ifndef CORE_MEMORY_HEAP_H
#define CORE_MEMORY_HEAP_H

#include "base/thread.h"
#include "device/device.h"
#include "device/stream.h"
#include "memory/allocator.h"
#include "memory/spin.h"
#include "memory/stats.h"

enum {
    CORE__UNIT_LOG2 = 9,
    CORE__BIN_LOG2 = 6, /* lists per power of two */
    CORE__BINS = 36 << CORE__BIN_LOG2
};

#define CORE__MIB (UINT64_C(1) << 20)
#define CORE__UNIT (UINT64_C(1) << CORE__UNIT_LOG2)
#define CORE__SMALL_LIMIT CORE__MIB         /* requests up to this size, and */
#define CORE__SMALL_SEGMENT (2 * CORE__MIB) /* the segments that serve them */
#define CORE__MIDDLE_LIMIT (10 * CORE__MIB) /* requests below this size, and */
#define CORE__MIDDLE_SEGMENT (20 * CORE__MIB)
/* All other segments are multiples of this. */
#define CORE__LARGE_STEP (2 * CORE__MIB)

/* States of a block. */
enum {
    CORE__BLOCK_FREE,
    CORE__BLOCK_ACTIVE,   /* owned by a storage */
    CORE__BLOCK_AWAITING, /* freed, but streams may still use it */
    CORE__BLOCK_UNMAPPED, /* address space without memory */
    CORE__BLOCK_UNJOINED  /* free, and not yet joined with its neighbours */
};

/* The use of a block by a stream other than its own. */
typedef struct core__stream_use {
    struct core__stream_use *next;
    /* With a reference until there is an event; NULL: named by the plugin's
     * handle. */
    core_stream *stream;
    core_event *event;  /* NULL until the block is freed; never NULL with a
                         * handle */
    const void *handle; /* the plugin's handle of the stream on which the event
                         * was recorded */
    core__queue *queue; /* only to be released: core__queue_release_later */
} core__stream_use;

struct core__block {
    void *handle;
    uint64_t offset; /* from the handle */
    uint64_t size;
    core__heap *heap;              /* NULL: the device was reset since */
    core__block *newer, *previous; /* in a list: of its size, or of awaiting
                                    * blocks */
    core__stream_use *uses;
    uint8_t state;
    uint8_t kind; /* CORE_MEMORY_SMALL or _LARGE */
    bool counted; /* counted as a free part of a segment */
    bool direct;  /* of a direct segment */
    uint64_t requested;
    core__segment *segment;
    core__block *before, *after; /* neighbours in the segment */
    uint64_t freed_at;           /* on the allocator's clock */
};

struct core__segment {
    core__segment *next, *previous; /* in its heap */
    core__heap *heap;
    core_memory memory;
    uint64_t size;     /* size of its chain of blocks */
    uint64_t reserved; /* mapped memory; less than `size` if expandable */
    core__block *first;
    uint8_t kind;
    bool expandable;
    bool direct; /* created for one block, and released with it */
    bool held;   /* in the list of segments being released
                  * (segment_release.c) */
    core__segment *next_releasing; /* the next of these */
    core_event *last_use; /* an event after the work that used this one and
                             * those before it */
    void *last; /* the plugin's handle of the stream that may still use it */
};

/* Free blocks by size: exact sizes first, then 64 lists per power of two, each
 * sorted by size.  So the first block that fits is the best fit. */
typedef struct core__bins {
    uint64_t summary; /* bit i: words[i] is not zero */
    uint64_t words[CORE__BINS / 64];
    core__block *heads[CORE__BINS];
} core__bins;

/* Small freed blocks that are not joined yet: the next request of exactly that
 * size reuses one.  A list has blocks of one size.  A block of another size
 * that maps to the same list is joined at once; all of them are joined when a
 * request finds none of its size, or when the heap is inspected or its
 * segments are needed.  The number is limited, so that the lock is not held
 * for long. */
enum { CORE__UNJOINED_LISTS = 64, CORE__UNJOINED_MAX = 256 };

typedef struct core__unjoined_blocks {
    uint64_t lists; /* bit i: list i is not empty */
    uint32_t count;
    core__block *heads[CORE__UNJOINED_LISTS];
} core__unjoined_blocks;

struct core__heap {
    core__spin lock;
    bool abandoned; /* its pool has no reference any more */
    core__allocator *allocator;
    /* NULL once the stream has ended; then `ended` is an event after all its
     * work, or `unmarked` is its queue; neither: the work is done. */
    core_stream *stream;
    uint64_t stream_id;
    core_event *ended;
    core__queue *unmarked;  /* its queue, if there is no such event */
    core_memory_pool *pool; /* without a reference; NULL: the common pool */
    core__heap *next;       /* in the allocator */
    core__segment *segments;
    core__segment *releasing, **releasing_end; /* oldest first; guarded by the
                                            * mutex */
    _Atomic bool capturing;                    /* its stream is capturing */
    core__block *awaiting, **awaiting_end;     /* oldest first */
    core__counts counts;
    core__unjoined_blocks unjoined;
    core__bins bins[2]; /* small, large */
};

/* Ended streams may leave this many unfinished heaps before a new stream waits
 * for one of them. */
enum { CORE__HEAPS_BUSY = 16 };

typedef struct core__alloc_settings {
    uint64_t max_split;  /* bytes; UINT64_MAX: none */
    uint32_t divisions;  /* 0: none */
    double gc_threshold; /* 0: none */
    double fraction;     /* 0: none */
    bool expandable;
    bool caching;
} core__alloc_settings;

typedef struct core__history core__history;

struct core__allocator {
    core_device *device;
    pthread_mutex_t lock; /* recursive: streams may end while it is held */
    core_stream *_Atomic ended_streams; /* ended by the holder of the lock */
    core_memory_pool *_Atomic ended_pools;
    core_event *returned_events;    /* returned when the lock is released */
    core__stream_use *dropped_uses; /* dropped when the lock is released */
    bool host_memory_failed; /* host memory ran out during the current call */
    core__heap *heaps;
    core__alloc_settings settings;
    /* Copies that allocations read without the lock. */
    _Atomic uint64_t max_split;
    _Atomic uint32_t divisions;
    _Atomic bool caching;
    uint64_t unit;             /* sizes are multiples of it */
    uint64_t padding;          /* added to each request */
    uint64_t largest;          /* largest single allocation of the device */
    uint64_t limit;            /* limit of reserved bytes */
    uint64_t total;            /* the device's memory; 0: unknown */
    _Atomic uint64_t reserved; /* bytes */
    uint64_t vm_step; /* granularity of virtual memory; 0: not available */
    _Atomic uint64_t clock; /* counts requests that no heap could serve */
    _Atomic uint32_t captures;
    _Atomic bool abandoned; /* some heap is abandoned */
    _Atomic bool direct;    /* blocks were allocated without caching */
    bool own;               /* the device manages memory itself
                             * (core.allocator) */
    _Atomic uint64_t retries;
    _Atomic uint64_t out_of_memories;
    _Atomic uint64_t events;
    core__device_counts counts;
    _Atomic(core__history *) history; /* NULL: not recording */
    core__spin history_lock;
};

struct core_memory_pool {
    _Atomic uint32_t references;
    core_memory_pool *next_ended; /* the next that ends */
    core_device *device;          /* with a reference */
};

/* Fails with UNSUPPORTED if the device has no caching allocator. */
core_status core__allocator_require(core_device *device, const char *what);

static inline uint64_t core__round_up(uint64_t size, uint64_t step)
{
    return (size + step - 1) / step * step;
}

static inline core__bins *core__heap_bins(core__heap *heap, uint32_t kind)
{
    return &heap->bins[kind - CORE_MEMORY_SMALL];
}

/* ----------------------------------------------------- blocks: block.c -- */

/* Takes the best-fitting free block, cut to size; NULL: none fits.  size is
 * rounded. */
core_status core__heap_take(core__heap *heap, uint32_t kind, uint64_t size,
                            uint64_t requested, core__block **out_block);
/* For these, the lock is held.  Cuts and takes a block that is in no list; on
 * failure (host memory) the block is in the bins. */
core_status core__block_take(core__heap *heap, core__block *block,
                             uint64_t size, uint64_t requested);
/* Puts the block, joined with its free neighbours, into the bins, and returns
 * the result. */
core__block *core__block_insert(core__heap *heap, core__block *block);
/* Joins the blocks whose joining was deferred. */
void core__heap_join_deferred(core__heap *heap);
/* Removes the block from the bins, without statistics except of split
 * blocks. */
void core__block_remove(core__heap *heap, core__block *block);
/* A new block for the part after `size`; NULL: no host memory. */
core__block *core__block_split(core__block *block, uint64_t size);
/* Merges the block with the one after it, which is freed. */
void core__block_join(core__block *block);
/* Returns a freed block that no stream uses: its joining is deferred, or it
 * goes into the bins. */
void core__block_return(core__heap *heap, core__block *block);
core__block *core__block_new(core__segment *segment, uint64_t offset,
                             uint64_t size);
void core__block_free(core__block *block);
static inline bool core__block_is_split(const core__block *block)
{
    return block->before || block->after;
}

/* ------------------------------------------------- segments: segment.c -- */

/* Allocates a segment with an active block of this size.  The allocator's lock
 * is held for these. */
core_status core__segment_allocate(core__heap *heap, uint32_t kind,
                                   uint64_t size, uint64_t requested,
                                   core__block **out_block);
/* The same, but never expandable. */
core_status core__segment_allocate_fixed(core__heap *heap, uint32_t kind,
                                         uint64_t size, uint64_t requested,
                                         core__block **out_block);
/* Adds a segment to the heap, whose lock is held too. */
void core__segment_attach(core__heap *heap, core__segment *segment);
/* Removes a segment without blocks in use from its heap, whose lock is held
 * too. */
void core__segment_detach(core__heap *heap, core__segment *segment);
/* Returns a segment to the device.  Nothing uses it any more. */
void core__segment_destroy(core__allocator *allocator, core__segment *segment);

/* Which whole segments to release. */
typedef struct core__segment_release {
    core__heap *heap;    /* NULL: all heaps */
    uint64_t enough;     /* stop after this many bytes; 0: all */
    uint64_t at_least;   /* the best fit first, else the largest; 0: the longest
                        * free */
    uint64_t larger;     /* only segments of at least this size */
    bool ended_only;     /* only of ended streams and released pools */
    bool releasing_only; /* only segments already being released */
} core__segment_release;
/* Returns the number of bytes released.  Waits for the streams of released
 * segments, so it is never called on the path of freeing. */
uint64_t core__allocator_release(core__allocator *allocator,
                                 const core__segment_release *what);
/* Waits for all work of the heap's stream, whether it succeeds or fails. */
void core__heap_wait(core__heap *heap);
/* Releases what need not be cached (blocks without caching, pools without
 * references), unless another thread is doing so.  Does not wait.  No lock is
 * held. */
void core__allocator_release_unused(core__allocator *allocator);
/* Moves blocks whose streams are done to the bins, in all heaps.  No lock is
 * held. */
void core__allocator_settle_uses(core__allocator *allocator);
/* The plugin's handle of the stream that orders the heap's memory; NULL: there
 * is no such stream, or it is capturing. */
void *core__heap_stream_handle(const core__heap *heap);
/* Returns the memory to the device, in the order of segment->last. */
void core__segment_free_memory(const core__allocator *allocator,
                               const core__segment *segment);
/* True if nothing of the heap may be released: its pool is in use, it is being
 * captured, or the end of its work cannot be determined. */
bool core__heap_is_pinned(const core__heap *heap);

/* ------------------------------------------ release: segment_release.c -- */

/* Starts releasing what need not be kept of a heap: now, or when the stream
 * has passed its current work.  Does not wait; the allocator's lock is held
 * for these. */
void core__heap_begin_release(core__heap *heap, bool direct_only);
/* Releases segments being released that are no longer used; with `wait`, all.
 * Returns the number of bytes. */
uint64_t core__heap_finish_release(core__heap *heap, bool wait);
/* True if all work that used the heap's memory is done, as far as can be known
 * without waiting. */
bool core__heap_is_idle(core__heap *heap);
/* Returns the event when the lock is released. */
void core__event_return_later(core__allocator *allocator, core_event *event);
void core__events_return(core_event *events);
/* Releases the queue when the lock is released. */
void core__queue_release_later(core__allocator *allocator, core__queue *queue);

/* -------------------------------------------- expandable: expandable.c -- */

core_status core__expandable_grow(core__heap *heap, uint32_t kind,
                                  uint64_t size, uint64_t requested,
                                  core__block **out_block);
/* Unmaps free memory of a heap; waits for its stream.  Returns the number of
 * bytes. */
uint64_t core__expandable_shrink(core__heap *heap);

/* ----------------------------------------------- streams: stream_use.c -- */

/* Frees a block that other streams use: the heap's lock is held, and released
 * here. */
void core__block_free_used(core__heap *heap, core__block *block);
/* Moves blocks whose streams are done to the bins; with `wait`, all blocks.
 * Returns the uses to be dropped when no lock is held. */
core__stream_use *core__heap_settle_uses(core__heap *heap, bool wait,
                                         core__stream_use *done);
/* The same for all heaps. */
core__stream_use *core__heaps_settle_uses(core__allocator *allocator, bool wait,
                                          core__stream_use *done);
/* True if events may be recorded: nothing is being captured. */
bool core__allocator_can_record_events(const core__allocator *allocator);
/* Waits until the work before the event is over, whatever its errors. */
void core__event_wait(core_device *device, core_event *event);
/* Adds the stream, unless it is in the list. */
core_status core__stream_uses_add(core__stream_use **uses, core_stream *stream);
/* Moves finished uses from the list to `done`.  mark_now: events are recorded
 * where there are none yet, and counted. */
core__stream_use *core__stream_uses_settle(core_device *device,
                                           core__stream_use **uses,
                                           bool mark_now, bool wait,
                                           uint64_t *events,
                                           core__stream_use *done);
void core__stream_uses_free(core__stream_use *uses);

/* ----------------------------------------------- heaps: heap.c, pool.c -- */

/* The heap of a stream's allocations in this thread. */
core_status core__heap_of(core__allocator *allocator, core_stream *stream,
                          core__heap **out_heap);
/* The same in a pool (NULL: the common one), with the allocator's lock held. */
core_status core__heap_of_pool(core__allocator *allocator,
                               core_memory_pool *pool, core_stream *stream,
                               core__heap **out_heap);
/* Destroys empty heaps without a pool or stream; the lock is held. */
void core__heaps_destroy_empty(core__allocator *allocator);
void core__heap_destroy(core__heap *heap);
/* Unlocks the allocator's mutex, and ends streams and pools that were waiting
 * for it. */
void core__allocator_unlock(core__allocator *allocator);
/* Ends waiting streams and pools now, or when another thread unlocks the
 * mutex. */
void core__allocator_end_pending(core__allocator *allocator);
/* Abandons the heaps of the pool; the lock is held. */
void core__pool_abandon(core__allocator *allocator,
                        const core_memory_pool *pool);
void core__pool_end(core_memory_pool *pool);
/* This thread's innermost pool of the device, or NULL. */
core_memory_pool *core__pool_current(const core__thread *self,
                                     const core_device *device);
void core__pools_thread_end(core__thread *thread);

/* ----------------------------------------------------- settings, texts -- */

core_status core__alloc_settings_parse(core__alloc_settings *settings,
                                       const char *text);
/* The settings of a device that is being opened. */
core_status core__alloc_settings_initial(core__alloc_settings *settings);
core_status core__alloc_settings_apply(core__allocator *allocator,
                                       const core__alloc_settings *settings);
core_status core__alloc_settings_text(const core__alloc_settings *settings,
                                      char **out_text);

/* "1.50 MiB"; at least 24 bytes. */
const char *core__bytes_format(uint64_t bytes, char text[24]);
core_status core__out_of_memory_error(core__heap *heap, uint64_t requested,
                                      uint64_t size);

/* ------------------------------------------------------------- history -- */

enum {
    CORE__ACTION_ALLOC,
    CORE__ACTION_FREE_REQUESTED,
    CORE__ACTION_FREE_COMPLETED,
    CORE__ACTION_SEGMENT_ALLOC,
    CORE__ACTION_SEGMENT_FREE,
    CORE__ACTION_SEGMENT_MAP,
    CORE__ACTION_SEGMENT_UNMAP,
    CORE__ACTION_OOM
};

typedef struct core__action {
    uint64_t time_ns;
    uint64_t address;
    uint64_t size;
    uint64_t stream;
    uint32_t action;
} core__action;

struct core__history {
    uint64_t capacity;
    uint64_t count; /* in total */
    core__action actions[];
};

void core__history_add_slow(core__allocator *allocator, uint32_t action,
                            uint64_t address, uint64_t size, uint64_t stream);
static inline void core__history_add(core__heap *heap, uint32_t action,
                                     core_memory memory, uint64_t size)
{
    if (core__unlikely(atomic_load_explicit(&heap->allocator->history,
                                            memory_order_relaxed) != NULL))
        core__history_add_slow(heap->allocator, action,
                               (uint64_t)(uintptr_t)memory.handle +
                                   memory.offset,
                               size, heap->stream_id);
}
/* A copy, oldest first, to be freed with core__free; NULL and CORE_OK: nothing
 * is recorded. */
core_status core__history_copy(core__allocator *allocator,
                               core__history **out_history);
const char *core__action_name(uint32_t action);

#endif
