/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* heap.h: what the caching allocator is made of.
 *
 * A device has one allocator; a stream has a heap in it, and one more in every
 * private pool that it allocates from.  A heap holds segments, which are the
 * device's memory, cut into blocks that lie in a chain by address.  All that a
 * heap has is under its spin lock, which is nobody else's as long as streams
 * are not shared by threads: what is allocated and freed warm touches nothing
 * but that.
 *
 * Locks, outermost first: the allocator's mutex (segments come and go, heaps,
 * pools, settings), a heap's lock, the lock of the statistics or that of the
 * history.  Freeing never waits for the mutex, nor does the end of a stream or
 * pool: it may happen in a host callback, for which somebody with the mutex
 * waits (core__allocator_unlock).  No plugin is called with a heap's lock
 * held, and no stream or event is let go with any. */

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
    CORE__BIN_LOG2 = 6, /* lists to a power of two */
    CORE__BINS = 36 << CORE__BIN_LOG2
};

#define CORE__MIB (UINT64_C(1) << 20)
#define CORE__UNIT (UINT64_C(1) << CORE__UNIT_LOG2)
#define CORE__SMALL_LIMIT CORE__MIB         /* requests up to this, and */
#define CORE__SMALL_SEGMENT (2 * CORE__MIB) /* where they come from */
#define CORE__MIDDLE_LIMIT (10 * CORE__MIB) /* requests below, and */
#define CORE__MIDDLE_SEGMENT (20 * CORE__MIB)
#define CORE__LARGE_STEP (2 * CORE__MIB) /* sizes of all other segments */

/* Of a block. */
enum {
    CORE__BLOCK_FREE,
    CORE__BLOCK_ACTIVE,   /* a storage has it */
    CORE__BLOCK_AWAITING, /* freed; streams may still use it */
    CORE__BLOCK_UNMAPPED, /* address space without memory */
    CORE__BLOCK_KEPT      /* free, and not joined with its neighbours yet */
};

/* A stream that uses a block which belongs to another one. */
typedef struct core__use {
    struct core__use *next;
    /* Referenced until there is an event; NULL: named by the plugin's word. */
    core_stream *stream;
    core_event *event;  /* NULL until the block is freed; never with a word */
    const void *word;   /* of what the event was recorded on */
    core__queue *queue; /* only to be released: core__queue_later */
} core__use;

struct core__block {
    void *handle;
    uint64_t offset; /* from the handle */
    uint64_t size;
    core__heap *heap;              /* NULL: the device forgot it */
    core__block *newer, *previous; /* in a list: of its size, or awaiting */
    core__use *uses;
    uint8_t state;
    uint8_t kind; /* CORE_MEMORY_SMALL or _LARGE */
    bool counted; /* as a free part of a segment */
    bool direct;  /* the segment's */
    uint64_t requested;
    core__segment *segment;
    core__block *before, *after; /* neighbours in the segment */
    uint64_t freed_at;           /* on the allocator's clock */
};

struct core__segment {
    core__segment *next, *previous; /* of its heap */
    core__heap *heap;
    core_memory memory;
    uint64_t size;     /* of its chain of blocks */
    uint64_t reserved; /* memory behind them: less, where it is expandable */
    core__block *first;
    uint8_t kind;
    bool expandable;
    bool direct; /* made for one block, and goes with it */
    bool held;   /* in the list of those that leave (segment_release.c) */
    core__segment *leaving; /* the next of them */
    core_event *behind;     /* what used this one and those before it */
    void *last; /* the plugin's word for the stream that may still use it */
};

/* Free blocks by size: exact sizes at first, then 64 lists to a power of two,
 * each with the smallest first.  So the first that fits is the best fit. */
typedef struct core__bins {
    uint64_t summary; /* bit i: word i is not zero */
    uint64_t words[CORE__BINS / 64];
    core__block *heads[CORE__BINS];
} core__bins;

/* Small blocks that were freed and are not joined yet: the next request of that
 * very size takes one as it is.  A list has blocks of one size; what finds
 * another size there is joined at once, and so are all of them when a request
 * finds none of its size, or when somebody looks at the heap or wants its
 * segments.  The number is bounded, so that the lock is not held for long. */
enum { CORE__KEPT_LISTS = 64, CORE__KEPT_MOST = 256 };

typedef struct core__kept {
    uint64_t lists; /* bit i: list i is not empty */
    uint32_t count;
    core__block *heads[CORE__KEPT_LISTS];
} core__kept;

struct core__heap {
    core__spin lock;
    bool abandoned; /* its pool has no reference any more */
    core__allocator *allocator;
    /* NULL once it ended; then `ended` is behind all its work, or `unmarked`
     * has it; neither: it is done. */
    core_stream *stream;
    uint64_t stream_id;
    core_event *ended;
    core__queue *unmarked;  /* what it ended on where there is no such event */
    core_memory_pool *pool; /* NULL: the common one; not referenced */
    core__heap *next;       /* of the allocator */
    core__segment *segments;
    core__segment *leaving, **leaving_end; /* oldest first; the mutex's */
    _Atomic bool capturing;                /* its stream is */
    core__block *awaiting, **awaiting_end; /* oldest first */
    core__counts counts;
    core__kept kept;
    core__bins bins[2]; /* small, large */
};

/* So many may be left by streams whose work is not done yet, before a new
 * stream waits for one of them. */
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
    core_stream *_Atomic streams_gone; /* whoever has the lock ends them */
    core_memory_pool *_Atomic pools_gone;
    core_event *events_gone; /* given back when the lock is let go */
    core__use *uses_gone;    /* dropped then */
    bool starved;            /* host memory was short in the call under way */
    core__heap *heaps;
    core__alloc_settings settings;
    /* What an allocation reads of them without the lock. */
    _Atomic uint64_t max_split;
    _Atomic uint32_t divisions;
    _Atomic bool caching;
    uint64_t unit;             /* sizes are multiples */
    uint64_t padding;          /* added to each request */
    uint64_t largest;          /* that the device gives in one piece */
    uint64_t limit;            /* bytes that may be reserved */
    uint64_t total;            /* of the device; 0: not known */
    _Atomic uint64_t reserved; /* bytes */
    uint64_t vm_step; /* granularity of virtual memory; 0: there is none */
    _Atomic uint64_t clock; /* counts what could not be served from a heap */
    _Atomic uint32_t captures;
    _Atomic bool abandoned; /* some heap is */
    _Atomic bool direct;    /* blocks were made without caching */
    bool own;               /* the device keeps memory itself */
    _Atomic uint64_t retries;
    _Atomic uint64_t out_of_memories;
    _Atomic uint64_t events;
    core__device_counts counts;
    _Atomic(core__history *) history; /* NULL: not recorded */
    core__spin history_lock;
};

struct core_memory_pool {
    _Atomic uint32_t references;
    core_memory_pool *leaving; /* the next that ends */
    core_device *device;       /* referenced */
};

/* The core works for a device with an allocator; else UNSUPPORTED. */
core_status core__allocator_need(core_device *device, const char *what);

static inline uint64_t core__round_up(uint64_t size, uint64_t step)
{
    return (size + step - 1) / step * step;
}

static inline core__bins *core__heap_bins(core__heap *heap, uint32_t kind)
{
    return &heap->bins[kind - CORE_MEMORY_SMALL];
}

/* ------------------------------------------------------ blocks: block.c -- */

/* The best free block, cut to size; NULL: none fits.  size is rounded. */
core_status core__heap_take(core__heap *heap, uint32_t kind, uint64_t size,
                            uint64_t requested, core__block **out_block);
/* The lock is held for the following.  A block that is in no list is cut and
 * taken; on failure (host memory) it is in the bins. */
core_status core__block_activate(core__heap *heap, core__block *block,
                                 uint64_t size, uint64_t requested);
/* Into the bins, one with its free neighbours; gives what became of it. */
core__block *core__block_insert(core__heap *heap, core__block *block);
/* What is kept unjoined goes into the bins. */
void core__heap_join(core__heap *heap);
/* Out of the bins, without statistics of anything but being split. */
void core__block_remove(core__heap *heap, core__block *block);
/* A new block for what is behind `size`; NULL: no host memory. */
core__block *core__block_cut(core__block *block, uint64_t size);
/* The block takes in the one behind it, which is no more. */
void core__block_join(core__block *block);
/* A freed block whose users are done: it is kept, or goes into the bins. */
void core__block_return(core__heap *heap, core__block *block);
core__block *core__block_new(core__segment *segment, uint64_t offset,
                             uint64_t size);
void core__block_free(core__block *block);
static inline bool core__block_is_split(const core__block *block)
{
    return block->before || block->after;
}

/* --------------------------------------------------- segments: segment.c -- */

/* New memory with an active block of this size in it.  The allocator's lock is
 * held for these. */
core_status core__segment_grow(core__heap *heap, uint32_t kind, uint64_t size,
                               uint64_t requested, core__block **out_block);
/* The same, whatever the settings say of expandable ones. */
core_status core__segment_grow_fixed(core__heap *heap, uint32_t kind,
                                     uint64_t size, uint64_t requested,
                                     core__block **out_block);
/* The heap's lock is held too: a segment becomes the heap's. */
void core__segment_attach(core__heap *heap, core__segment *segment);
/* Puts a segment without blocks in use out of its heap: the heap's lock is
 * held too. */
void core__segment_detach(core__heap *heap, core__segment *segment);
/* To the device.  Nothing uses it any more. */
void core__segment_destroy(core__allocator *allocator, core__segment *segment);

/* What to give back: whole segments. */
typedef struct core__release {
    core__heap *heap;  /* NULL: of all */
    uint64_t enough;   /* stop when so many bytes went; 0: all */
    uint64_t at_least; /* the best fit first, else the largest; 0: what is
                          free the longest */
    uint64_t larger;   /* only those of so many bytes */
    bool ended_only;   /* of streams that ended, of pools that are gone */
    bool leaving_only; /* of what leaves already */
} core__release;
/* Bytes given back.  Waits for the streams of what goes: never for whoever
 * frees. */
uint64_t core__allocator_release(core__allocator *allocator,
                                 const core__release *what);
/* The heap's stream has done all it was given; what fails on it is done too. */
void core__heap_drain(core__heap *heap);
/* Gives back what need not be kept (blocks without caching, pools that nobody
 * has any more), unless another thread is at it, and waits for nothing.  No
 * lock is held. */
void core__allocator_tidy(core__allocator *allocator);
/* Blocks whose streams are done go to the bins, in all heaps.  No lock is held
 * here either. */
void core__allocator_settle(core__allocator *allocator);
/* The stream that orders the heap's memory, as the plugin calls it; NULL: none
 * that lives, or that is asked about while it captures. */
void *core__heap_word(const core__heap *heap);
/* To the device, behind segment->last. */
void core__segment_give(const core__allocator *allocator,
                        const core__segment *segment);
/* Nothing may be given back: its pool is in use, it is being captured, or
 * nobody can know when its work is done. */
bool core__heap_pinned(const core__heap *heap);

/* ------------------------------------------------------ leaving: segment_release.c -- */

/* What need not be kept of a heap goes to the device, now or when the stream is
 * past the work that it has.  Waits for nothing; the allocator's lock is held
 * for these. */
void core__heap_leave(core__heap *heap, bool direct_only);
/* What leaves, and is not used any more, does; with `wait`, all.  Bytes. */
uint64_t core__heap_reap(core__heap *heap, bool wait);
/* All work is done that used the heap's memory, as far as can be known without
 * waiting. */
bool core__heap_is_idle(core__heap *heap);
/* Given back when the lock is let go. */
void core__event_later(core__allocator *allocator, core_event *event);
void core__events_give(core_event *events);
/* Released then. */
void core__queue_later(core__allocator *allocator, core__queue *queue);

/* ------------------------------------------------ expandable: expandable.c -- */

core_status core__expandable_grow(core__heap *heap, uint32_t kind,
                                  uint64_t size, uint64_t requested,
                                  core__block **out_block);
/* Unmaps what is free in a heap; waits for its stream.  Bytes. */
uint64_t core__expandable_shrink(core__heap *heap);

/* ------------------------------------------------- streams: stream_use.c -- */

/* A block that other streams use was freed: the heap's lock is held, and let
 * go here. */
void core__block_free_used(core__heap *heap, core__block *block);
/* Blocks whose streams are done go to the bins; with `wait`, all do.  Gives
 * the uses to be dropped when no lock is held. */
core__use *core__heap_settle(core__heap *heap, bool wait, core__use *done);
/* The same for all heaps. */
core__use *core__heaps_settle(core__allocator *allocator, bool wait,
                              core__use *done);
/* Events may be recorded: nothing is being captured. */
bool core__allocator_marks(const core__allocator *allocator);
/* The work before the event is over, whatever error it had, when it returns. */
void core__event_wait(core_device *device, core_event *event);
/* Remembers a stream, once. */
core_status core__use_add(core__use **uses, core_stream *stream);
/* Takes out of the list what is done, and puts it before `done`.  mark_now:
 * events are recorded where there are none yet, and counted. */
core__use *core__uses_settle(core_device *device, core__use **uses,
                             bool mark_now, bool wait, uint64_t *events,
                             core__use *done);
void core__uses_drop(core__use *uses);

/* --------------------------------------------------- heaps: heap.c, pool.c -- */

/* The heap of a stream's allocations in this thread. */
core_status core__heap_of(core__allocator *allocator, core_stream *stream,
                          core__heap **out_heap);
/* The same in a pool (NULL: the common one), with the allocator's lock. */
core_status core__heap_in(core__allocator *allocator, core_memory_pool *pool,
                          core_stream *stream, core__heap **out_heap);
/* Ends heaps without a pool or stream that hold nothing; the lock is held. */
void core__heaps_sweep(core__allocator *allocator);
void core__heap_destroy(core__heap *heap);
/* Lets the allocator's mutex go, and ends what was to end meanwhile. */
void core__allocator_unlock(core__allocator *allocator);
/* What waits for its end ends now, or when another thread lets the mutex go. */
void core__allocator_retire(core__allocator *allocator);
/* The pool's heaps are nobody's any more; the lock is held. */
void core__pool_abandon(core__allocator *allocator,
                        const core_memory_pool *pool);
void core__pool_gone(core_memory_pool *pool);
/* This thread's innermost pool of the device, or NULL. */
core_memory_pool *core__pool_current(const core__thread *self,
                                     const core_device *device);
void core__pools_thread_end(core__thread *thread);

/* -------------------------------------------------------- settings, texts -- */

core_status core__alloc_settings_parse(core__alloc_settings *settings,
                                       const char *text);
/* What a device that is opened begins with. */
core_status core__alloc_settings_first(core__alloc_settings *settings);
core_status core__alloc_settings_use(core__allocator *allocator,
                                     const core__alloc_settings *settings);
core_status core__alloc_settings_text(const core__alloc_settings *settings,
                                      char **out_text);

/* "1.50 MiB"; at least 24 bytes. */
const char *core__bytes_text(uint64_t bytes, char text[24]);
core_status core__oom_error(core__heap *heap, uint64_t requested,
                            uint64_t size);

/* ---------------------------------------------------------------- history -- */

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
    uint64_t count; /* ever */
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
/* A copy, oldest first; NULL and CORE_OK: none is kept.  core__free. */
core_status core__history_copy(core__allocator *allocator,
                               core__history **out_history);
const char *core__action_name(uint32_t action);

#endif
