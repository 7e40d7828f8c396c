/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* thread.h: everything that the core keeps per thread, behind one
 * initial-exec TLS pointer (a program may dlopen libcore, and static TLS is
 * scarce then).  Made at the thread's first call, freed when it ends. */

#ifndef CORE_BASE_THREAD_H
#define CORE_BASE_THREAD_H

#include "base/fork.h"

#include <libcore/status.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    CORE__SMALL_CLASSES = 17,
    CORE__WHOLE_MOST = 64, /* cached tensors of one size class */
    CORE__ERROR_TEXT = 2048
};

/* What `included` is in a thread to begin with: the key in-place-or-view
 * (dispatch/keys.h), so that a change of an inference tensor, which does not
 * carry it, is seen outside of inference mode. */
#define CORE__THREAD_INCLUDED (UINT64_C(1) << 21)

typedef struct core__free_block {
    struct core__free_block *next;
} core__free_block;

typedef struct core__whole {
    struct core_tensor *head;
    uint32_t count;
} core__whole;

/* What was noted of the call that is being dispatched (dispatch/dispatch.c). */
typedef struct core__steps {
    const core_operator *op; /* NULL: none */
    uint32_t last;
    size_t size;
    char text[160];
} core__steps;

typedef struct core__error_record {
    core_status code;
    uint32_t sequence; /* counts errors: tells a fresh record from an old one */
    uint32_t severity;
    int64_t vendor_code;
    char text[CORE__ERROR_TEXT];
} core__error_record;

/* Takes the thread's record while something else may fail, and puts it back:
 * core_error_detach without memory, which may be what is missing. */
void core__error_keep(core__error_record *out_record);
void core__error_restore(const core__error_record *kept);

/* Devices beyond so many that are open share one count of launches. */
enum { CORE__LAUNCH_SLOTS = 32, CORE__ROWS_SIZE = 9 * 1024 };

typedef struct core__thread core__thread;
struct core__thread {
    /* Dispatch: see dispatch/keys.h.  Both as one word too, in which a tensor's
     * keys can be put beside the included ones. */
    union {
        struct {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
            uint32_t included, excluded;
#else
            uint32_t excluded, included;
#endif
        };
        uint64_t state;
    };
    /* > 0 while a dispatched call runs in this thread: what it may be reading
     * is not reclaimed (dispatch/reclaim.c). */
    _Atomic uint32_t depth;
    bool no_grad;        /* autograd records nothing */
    bool inference;      /* results are inference tensors */
    bool shared;         /* the emergency record: no memory for a real one */
    uint32_t call_flags; /* CORE_CALL_… of the settings, for kernels */
    uint64_t sequence;   /* of the next autograd node */
    core_device *device; /* current device; NULL: the default one */
    /* Current streams by the device's ordinal, referenced; NULL: the default
     * one.  The array itself is NULL until one is set (device/stream.c). */
    struct core_stream **streams;
    uint32_t nstreams;
    void *pools; /* memory pools in use here, innermost first (memory/) */
    struct core_node **destroying; /* list of nodes that are being freed */
    void *profile_log;             /* of the profiler's session */
    bool profile_apart; /* its work is not recorded (profiler/clock.c) */
    struct core__quantized_run *quantized_run; /* quant/checkpoint_scales.h */
    void *engine;   /* autograd's state of a backward in this thread */
    void *executor; /* where it takes nodes from (autograd/engine/worker.h) */
    uint32_t level; /* backwards on this stack, inside each other */
    /* Autograd's, see autograd/graph/saved_hooks.h and anomaly.h. */
    struct core__saved_hooks *saved_hooks;   /* in force, innermost first */
    struct core__destinations *destinations; /* of the backward that begins */
    struct core__destinations *offered;      /* to the function that runs */
    const char *place;         /* where the program says that it is */
    struct core_node *running; /* in anomaly mode: the node that runs */
    bool anomaly;
    uint32_t accumulating; /* accumulations that this thread is inside of */
    /* Of autocast/autocast.h: the dtype that regions cast to, by backend slot
     * (0: none); regions, innermost first; casts that are kept. */
    uint8_t autocast[16];
    bool autocast_cached;
    struct core__autocast_region *autocast_regions;
    struct core__autocast_casts *autocast_casts;
    /* Registered decompositions that run, innermost first (dispatch/cycle.c). */
    struct core__decomposing *decomposing;
    /* Free lists of small objects: index is the size class. */
    struct {
        core__free_block *head;
        uint32_t room; /* how many more may be kept */
    } small[CORE__SMALL_CLASSES];
    /* Free memory blocks of one device that the host can use, the first that
     * this thread freed to (memory/memory.c).  Others read blocks_of, the
     * counts below it and storages: they are changed by what is below. */
    core_device *blocks_of;
    uint32_t blocks_slot; /* its backend's slot */
    struct {
        core__free_block *head;
        uint32_t room;
    } blocks[CORE__SMALL_CLASSES];
    /* Tensors with storage and memory, by size class of the memory; at most
     * whole_limit each, and none while blocks_of is NULL (tensor/kept.h). */
    core__whole whole[CORE__SMALL_CLASSES];
    uint32_t whole_limit;
    /* Storages made less storages freed here, by backend slot: their sum over
     * all threads is what is alive, without a shared counter. */
    int64_t storages[16];
    /* Kernels launched here, by the device's launch_slot, likewise. */
    uint64_t launches[CORE__LAUNCH_SLOTS];
    /* Calls that are kept, see dispatch/quick.c. */
    _Alignas(16) unsigned char rows[CORE__ROWS_SIZE];
    core__error_record error;
    core__steps steps;
    core__thread *next; /* list of all, under a lock */
    core__thread *previous;
};

extern _Thread_local core__thread *core__self_pointer
    __attribute__((tls_model("initial-exec")));

core__thread *core__thread_create(void);

/* Never NULL. */
static inline core__thread *core__thread_self(void)
{
    core__thread *self = core__self_pointer;

    if (__builtin_expect(!self, 0))
        self = core__thread_create();
    return self;
}

/* Only the thread itself writes its depth, so that no locked instruction is
 * needed; on x86 one that cannot be torn does. */
static inline void core__thread_enter(core__thread *self)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    __asm__ volatile("addl $1, %0" : "+m"(self->depth) : : "memory");
#else
    atomic_store_explicit(
        &self->depth,
        atomic_load_explicit(&self->depth, memory_order_relaxed) + 1,
        memory_order_relaxed);
#endif
}

static inline void core__thread_leave(core__thread *self)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    __asm__ volatile("subl $1, %0" : "+m"(self->depth) : : "memory");
#else
    atomic_store_explicit(
        &self->depth,
        atomic_load_explicit(&self->depth, memory_order_relaxed) - 1,
        memory_order_release);
#endif
}

/* The same for counters of its own that others read. */
static inline void core__thread_count(uint64_t *counter)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    __asm__ volatile("addq $1, %0" : "+m"(*counter));
#else
    __atomic_store_n(counter, *counter + 1, __ATOMIC_RELAXED);
#endif
}

static inline void core__thread_more(int64_t *counter, int32_t by)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    __asm__("addq %1, %0" : "+m"(*counter) : "er"((int64_t)by));
#else
    __atomic_store_n(counter, *counter + by, __ATOMIC_RELAXED);
#endif
}

static inline void core__thread_more32(uint32_t *counter, int32_t by)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    __asm__("addl %1, %0" : "+m"(*counter) : "ir"(by));
#else
    __atomic_store_n(counter, *counter + (uint32_t)by, __ATOMIC_RELAXED);
#endif
}

/* What `included` begins with in threads that are still to come. */
void core__thread_included_set(uint32_t included);
/* A CORE_CALL_… of this thread, and of those that begin later. */
void core__thread_call_flag_set(uint32_t flag, bool on);

/* Storages alive on a backend, all threads together. */
int64_t core__thread_storages(uint32_t slot);
uint64_t core__thread_launches(uint32_t slot);

/* Fork handler of the list of threads. */
void core__threads_fork(core__fork at);

/* Calls visit for every thread's record, with the list locked. */
void core__thread_each(void (*visit)(core__thread *, void *), void *context);

#endif
