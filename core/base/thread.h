/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* thread.h: all per-thread state of the core, behind one initial-exec TLS
 * pointer (a program may dlopen libcore, and static TLS is scarce then).  The
 * record is created at the thread's first call and freed when the thread
 * ends. */

#ifndef CORE_BASE_THREAD_H
#define CORE_BASE_THREAD_H

#include "base/fork.h"

#include <libcore/status.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    CORE__SMALL_CLASSES = 17,
    CORE__TENSOR_CACHE_LIMIT = 64, /* cached tensors of one size class */
    CORE__ERROR_TEXT = 2048
};

/* The initial value of `included` in every thread: the key in-place-or-view
 * (base/keys.h), so that a change of an inference tensor, which does not carry
 * that key, is seen outside inference mode. */
#define CORE__THREAD_INCLUDED (UINT64_C(1) << 24)

typedef struct core__free_block {
    struct core__free_block *next;
} core__free_block;

typedef struct core__tensor_cache_list {
    struct core_tensor *head;
    uint32_t count;
} core__tensor_cache_list;

/* The dispatch steps recorded for the call in progress
 * (dispatch/dispatch.c). */
typedef struct core__trace_steps {
    const core_operator *op; /* NULL: none */
    uint32_t last;
    size_t size;
    char text[160];
} core__trace_steps;

typedef struct core__error_record {
    core_status code;
    uint32_t sequence; /* counts errors: distinguishes a new record from an old
                        * one */
    uint32_t severity;
    uint32_t retryable; /* 1: the same call may succeed later */
    int64_t vendor_code;
    char text[CORE__ERROR_TEXT];
} core__error_record;

/* The operator call that the error record is about: what it was called with, by
 * which the operators around it recognize their own arguments
 * (dispatch/argument_errors.c).  The addresses of arguments are only compared;
 * operators stay. */
enum { CORE__FAILED_ARGUMENTS = 16 };

typedef struct core__failed_call {
    const struct core_operator *op;
    size_t message; /* its length, without what was appended to it */
    uint32_t hash;  /* of that, without op's name */
    bool unnamed;   /* the message does not begin with op's name any more */
    uint32_t count;
    struct {
        uint32_t content; /* a hash */
        const void *address;
        const void *storage; /* of a tensor */
    } arguments[CORE__FAILED_ARGUMENTS];
} core__failed_call;

/* Saves the thread's record while something else may fail, and restores it.
 * Unlike core_error_detach it allocates nothing. */
void core__error_save(core__error_record *out_record);
void core__error_restore(const core__error_record *saved);
/* For a step that calls a plugin or tries what may fail: a successful call of
 * libcore leaves the record as it was.  Returns status. */
core_status core__error_restore_on_success(const core__error_record *saved,
                                           core_status status);

/* Sets the thread's record aside before an error that is reported only if
 * nothing else can compute the call (dispatch/fallback.c).  Allocates only if
 * there is a record; without memory the record is lost. */
void core__error_set_aside(void);
/* Returns what was last set aside, or NULL: for core_error_raise or
 * core_error_release. */
struct core_error *core__error_take_aside(void);

/* Open devices beyond this number share one launch counter. */
enum { CORE__LAUNCH_SLOTS = 32, CORE__CALL_CACHE_SIZE = 9 * 1024 };

typedef struct core__thread core__thread;
struct core__thread {
    /* Dispatch keys (base/keys.h).  Both halves are also accessible as one
     * 64-bit value, to which a tensor's keys are added beside the included
     * ones. */
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
    /* > 0 while a dispatched call runs in this thread: memory that it may read
     * is not reclaimed (dispatch/epoch_reclaim.c). */
    _Atomic uint32_t depth;
    bool no_grad;        /* autograd records nothing */
    bool inference;      /* results are inference tensors */
    bool shared;         /* the emergency record, used if there is no memory
                          * for another */
    uint32_t call_flags; /* CORE_CALL_… of the settings, for kernels */
    uint64_t sequence;   /* of the next autograd node */
    core_device *device; /* current device; NULL: the default one */
    /* Current streams by the device's ordinal, with a reference each; NULL:
     * the default stream.  The array is NULL until one is set
     * (device/current.c). */
    struct core_stream **streams;
    uint32_t nstreams;
    void *pools; /* memory pools in use by this thread, innermost first
                  * (memory/pool.c) */
    struct core_node **destroying; /* list of the nodes being freed */
    void *profile_log;             /* of the profiler's session */
    bool profile_excluded; /* its work is not recorded (profiler/clock.c) */
    struct core__checkpoint_scales_run
        *quantized_run; /* quant/checkpoint_scales.h */
    void *engine;       /* state of a backward in this thread */
    void *executor;     /* source of its nodes (autograd/engine/worker.h) */
    uint32_t backward_depth; /* number of nested backwards on this stack */
    /* For autograd: see autograd/graph/saved_hooks.h and anomaly.h. */
    struct core__saved_hooks *saved_hooks;   /* active, innermost first */
    struct core__destinations *destinations; /* of the backward that starts */
    struct core__destinations
        *destinations_offered; /* to the function that runs */
    const char *anomaly_place; /* the place that the program has named */
    struct core_node *running; /* in anomaly mode: the node that runs */
    bool anomaly;
    uint32_t accumulating; /* number of nested gradient accumulations */
    /* For autocast/autocast.h: the dtype to which regions cast, by backend
     * slot (0: none); active regions, innermost first; cached casts. */
    uint8_t autocast[16];
    bool autocast_cached;
    struct core__autocast_region *autocast_regions;
    struct core__autocast_casts *autocast_casts;
    /* Running registered decompositions, innermost first
     * (dispatch/decomposition_cycle.c). */
    struct core__decomposing *decomposing;
    struct core__trace *trace; /* what records this thread's calls, or NULL
                                * (compile/record/trace.h) */
    /* The open lazy region, and the same while it records the calls of this
     * thread, otherwise NULL (compile/record/lazy.h). */
    struct core__lazy *lazy_open;
    struct core__lazy *lazy;
    uint64_t meta_draws; /* blocks of random numbers that calls on meta
                                * would have drawn */
    /* Free lists of small objects, by size class. */
    struct {
        core__free_block *head;
        uint32_t free_slots; /* how many more may be kept */
    } small[CORE__SMALL_CLASSES];
    /* Free memory blocks of one device that the host can access: the first
     * such device to which this thread freed a block (memory/memory.c).  Other
     * threads read blocks_of, the counts in `cached_tensors` and `storages`,
     * so these are written with the functions below. */
    core_device *blocks_of;
    uint32_t blocks_slot; /* its backend's slot */
    struct {
        core__free_block *head;
        uint32_t free_slots;
    } blocks[CORE__SMALL_CLASSES];
    /* Tensors with storage and memory, by size class of the memory, at most
     * cached_tensors_limit per class; none while blocks_of is NULL
     * (tensor/tensor_cache.h). */
    core__tensor_cache_list cached_tensors[CORE__SMALL_CLASSES];
    uint32_t cached_tensors_limit;
    /* Storages created minus storages freed by this thread, by backend slot.
     * The sum over all threads is the number alive, without a shared
     * counter. */
    int64_t storages[16];
    /* Kernels launched by this thread, by the device's launch_slot; summed in
     * the same way. */
    uint64_t launches[CORE__LAUNCH_SLOTS];
    /* Cached calls (dispatch/elementwise_fast_path.c). */
    _Alignas(16) unsigned char call_cache[CORE__CALL_CACHE_SIZE];
    core__error_record error;
    struct core_error *replaced_error; /* core__error_set_aside */
    /* Running calls of core_vmap, innermost first (tensor/batched.h). */
    struct core__batching *batching;
    core__trace_steps steps;
    /* Modes by level (dispatch/mode_stack.h): those that see the next call,
     * innermost first, and those that this thread has pushed. */
    struct core__mode *modes[2];
    struct core__mode *pushed_modes[2];
    uint32_t mode_depth; /* number of nested calls of modes */
    /* Number of nested functions of compiled calls and recordings
     * (compile/record/trace.h). */
    uint32_t function_depth;
    /* The open scopes (scope/scope.h), or NULL before the first one. */
    struct core__scopes *scopes;
    /* What kernels are noted in instead of launched, or NULL
     * (dispatch/launch_log.h). */
    struct core__launch_log *launch_log;
    /* The data of core_tensor_from_data while it is recorded
     * (transfer/recorded_data.h). */
    const struct core__recorded_data *recorded_data;
    /* Innermost first (random/generator.h). */
    struct core__generator_watch *generator_watches;
    /* What was set before the function that is recorded was called, which may
     * neither pop these hooks nor end autocast regions up to this number
     * (compile/record/left_state.h). */
    struct core__saved_hooks *outer_hooks;
    uint64_t autocast_outer;
    core__thread *next; /* list of all threads, under a lock */
    core__thread *previous;
    core__failed_call failed_call;
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

/* Changes with each error that is reported in this thread: a plugin's call that
 * fails and leaves it unchanged has given no reason. */
static inline uint32_t core__error_sequence(void)
{
    return core__thread_self()->error.sequence;
}

/* Only the thread itself writes its depth, so no locked instruction is needed;
 * on x86 a single instruction that cannot be torn suffices. */
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

/* The same for other counters of the thread that other threads read. */
static inline void core__thread_increment(uint64_t *counter)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    __asm__ volatile("addq $1, %0" : "+m"(*counter));
#else
    __atomic_store_n(counter, *counter + 1, __ATOMIC_RELAXED);
#endif
}

static inline void core__thread_add64(int64_t *counter, int32_t by)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    __asm__("addq %1, %0" : "+m"(*counter) : "er"((int64_t)by));
#else
    __atomic_store_n(counter, *counter + by, __ATOMIC_RELAXED);
#endif
}

static inline void core__thread_add32(uint32_t *counter, int32_t by)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    __asm__("addl %1, %0" : "+m"(*counter) : "ir"(by));
#else
    __atomic_store_n(counter, *counter + (uint32_t)by, __ATOMIC_RELAXED);
#endif
}

/* For a call of this name that waits or accesses memory: cuts the thread's lazy
 * region.  UNSUPPORTED while the thread records a program (compile/record/trace.h). */
core_status core__thread_check_unrecorded(const char *name);

/* Runs what the thread's lazy region has recorded, if it has one, before a call
 * of this name. */
core_status core__thread_cut(const char *name);
/* The same for a call that cannot fail: the next cut reports an error. */
void core__thread_cut_later(const char *name);

/* A lazy region that records nothing for a while. */
typedef struct core__lazy_pause {
    struct core__lazy *lazy; /* NULL: the thread has none that records */
    struct core__trace *trace;
} core__lazy_pause;

/* Cuts the thread's lazy region and pauses it; on failure it is not paused. */
core_status core__thread_pause(const char *name, core__lazy_pause *out_pause);
void core__thread_resume(const core__lazy_pause *pause);

/* Sets the initial value of `included` for threads that start later. */
void core__thread_included_set(uint32_t included);
/* Sets a CORE_CALL_… flag of this thread and of threads that start later. */
void core__thread_call_flag_set(uint32_t flag, bool on);

/* Storages alive on a backend, summed over all threads. */
int64_t core__thread_storages(uint32_t slot);
uint64_t core__thread_launches(uint32_t slot);

/* Fork handler of the list of threads. */
void core__threads_fork(core__fork_phase at);

/* Calls visit for every thread's record, with the list locked. */
void core__thread_each(void (*visit)(core__thread *, void *), void *context);

#endif
