/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The per-thread event logs of the profiler. */

#include "base/error.h"
#include "base/fork.h"
#include "base/memory.h"
#include "profiler/profile.h"
#include "profiler/profiler_hooks.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

typedef struct core__profile_log {
    struct core__profile_log *next;
    _Atomic uint8_t lock;
    bool orphan; /* its thread has ended; protected by the list's lock */
    uint32_t thread;
    uint32_t round; /* the round that its events belong to */
    uint32_t stamp; /* identifies the thread in this round; 0: none */
    uint32_t open;  /* the innermost open event */
    core__profile_part part;
} core__profile_log;

/* The index of the thread hook that holds the log. */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static core__profile_log *logs; /* protected by the lock */
static uint32_t threads;        /* likewise */
static _Atomic uint32_t current;
static _Atomic uint32_t flags;
static _Atomic uint64_t limit;
static _Atomic uint32_t stamps;

uint64_t core__profile_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* A spinlock, held for a few instructions by the thread itself and once per
 * round by the session. */
static void log_lock(core__profile_log *log)
{
    while (atomic_exchange_explicit(&log->lock, 1, memory_order_acquire))
        sched_yield();
}

static void log_unlock(core__profile_log *log)
{
    atomic_store_explicit(&log->lock, 0, memory_order_release);
}

static void part_drop(core__profile_part *part)
{
    for (uint32_t i = 0; i < part->nworks; i++) {
        core_event_release(part->works[i].first);
        core_event_release(part->works[i].last);
    }
    for (uint32_t i = 0; i < part->nnames; i++)
        core__free(part->names[i].text);
    for (uint32_t i = 0; i < part->ndevices; i++)
        core_device_release(part->devices[i]);
    core__free(part->names);
    core__free(part->buckets);
    core__free(part->numbers);
    core__free(part->changes);
    core__free(part->works);
    core__free(part->events);
    *part = (core__profile_part){0};
}

static core__profile_log *log_new(core__thread *self)
{
    core__profile_log *log = core__alloc_zero(sizeof *log);

    if (!log)
        return NULL;
    pthread_mutex_lock(&lock);
    log->thread = ++threads;
    log->next = logs;
    logs = log;
    pthread_mutex_unlock(&lock);
    self->profile_log = log;
    return log;
}

/* Locks and returns this thread's log if a round is open, else NULL. */
static core__profile_log *log_enter(void)
{
    uint32_t round = atomic_load_explicit(&current, memory_order_acquire);
    core__thread *self = core__thread_self();
    core__profile_log *log = self->profile_log;

    if (round == 0 || self->shared)
        return NULL;
    if (!log && !(log = log_new(self)))
        return NULL;
    log_lock(log);
    if (atomic_load_explicit(&current, memory_order_acquire) != round) {
        log_unlock(log); /* the round ended meanwhile */
        return NULL;
    }
    if (log->round != round) {
        part_drop(&log->part);
        log->round = round;
        while ((log->stamp = atomic_fetch_add(&stamps, 1) + 1) == 0) {}
        log->open = CORE__PROFILE_NONE;
        log->part.thread = log->thread;
    }
    return log;
}

void core__profile_unlock(void)
{
    log_unlock(core__thread_self()->profile_log);
}

/* Makes space for one more item; on failure the existing ones stay. */
static bool grow(void **items, uint32_t count, uint32_t *capacity, size_t size)
{
    uint32_t more = *capacity ? *capacity * 2 : 256;
    void *grown;

    if (count < *capacity)
        return true;
    if (more < *capacity)
        return false;
    grown = core__realloc(*items, more * size);
    if (!grown)
        return false;
    *items = grown;
    *capacity = more;
    return true;
}

#define GROW(part, what)                                                    \
    grow((void **)&(part)->what, (part)->n##what, &(part)->what##_capacity, \
         sizeof *(part)->what)

/* Grows the buckets to at least the number of names; returns false if memory is
 * short. */
static bool grow_buckets(core__profile_part *part)
{
    uint32_t count = part->nbuckets ? part->nbuckets * 2 : 64;
    uint32_t *buckets;

    if (part->nnames < part->nbuckets || count == 0)
        return true;
    buckets = core__alloc_zero(count * sizeof *buckets);
    if (!buckets)
        return part->nbuckets > 0;
    for (uint32_t i = 0; i < part->nnames; i++) {
        uint32_t *bucket = &buckets[part->names[i].hash & (count - 1)];

        part->names[i].next = *bucket;
        *bucket = i + 1;
    }
    core__free(part->buckets);
    part->buckets = buckets;
    part->nbuckets = count;
    return true;
}

const char *core__profile_copy_name(core__profile_part *part, const char *name)
{
    uint32_t hash = 2166136261u, *bucket;
    core__profile_name *entry;

    for (const char *at = name; *at; at++)
        hash = (hash ^ (uint8_t)*at) * 16777619u;
    if (!grow_buckets(part))
        return "(no memory for the name)";
    bucket = &part->buckets[hash & (part->nbuckets - 1)];
    for (uint32_t i = *bucket; i; i = part->names[i - 1].next)
        if (part->names[i - 1].hash == hash &&
            strcmp(part->names[i - 1].text, name) == 0)
            return part->names[i - 1].text;
    if (!GROW(part, names))
        return "(no memory for the name)";
    entry = &part->names[part->nnames];
    entry->text = core__strdup(name);
    if (!entry->text)
        return "(no memory for the name)";
    entry->hash = hash;
    entry->next = *bucket;
    *bucket = ++part->nnames;
    return entry->text;
}

/* Items beyond the limit are only counted. */
static bool within_limit(core__profile_part *part, uint32_t count)
{
    if (count < atomic_load_explicit(&limit, memory_order_relaxed))
        return true;
    part->lost++;
    return false;
}

/* ---------------------------------------------------------------- events -- */

uint64_t core__profile_event_begin(core_profile_kind kind, const char *name,
                                   bool lasting)
{
    core__profile_log *log = log_enter();
    core__profile_event *event;
    core__profile_part *part;
    uint64_t token = 0;

    if (!log)
        return 0;
    part = &log->part;
    if (!within_limit(part, part->nevents)) {
    } else if (!GROW(part, events)) {
        part->lost++;
    } else {
        event = &part->events[part->nevents];
        *event = (core__profile_event){0};
        event->kind = (uint8_t)kind;
        event->name = lasting ? name : core__profile_copy_name(part, name);
        event->parent = log->open;
        log->open = part->nevents++;
        token = (uint64_t)log->stamp << 32 | part->nevents;
        event->begin = core__profile_now();
    }
    log_unlock(log);
    return token;
}

/* Locks and returns this thread's log if the token belongs to its round, else
 * NULL. */
static core__profile_log *log_of(uint64_t token)
{
    core__profile_log *log = core__thread_self()->profile_log;

    if (!log || token == 0)
        return NULL;
    log_lock(log);
    if (log->stamp == token >> 32 && (uint32_t)token > 0 &&
        log->part.nevents >= (uint32_t)token)
        return log;
    log_unlock(log);
    return NULL;
}

core__profile_event *core__profile_lock_event(uint64_t token,
                                              core__profile_part **out_part)
{
    core__profile_log *log = log_of(token);

    if (!log)
        return NULL;
    *out_part = &log->part;
    return &log->part.events[(uint32_t)token - 1];
}

core__profile_event *core__profile_lock_open_event(
    core__profile_part **out_part)
{
    core__profile_log *log = log_enter();

    *out_part = NULL;
    if (!log)
        return NULL;
    *out_part = &log->part;
    if (log->open != CORE__PROFILE_NONE)
        return &log->part.events[log->open];
    log_unlock(log);
    return NULL;
}

void core__profile_lock_log(core__profile_part **out_part)
{
    core__profile_log *log = log_enter();

    *out_part = log ? &log->part : NULL;
}

/* Events inside it that are still open end with it.  An event that has already
 * ended is not searched for. */
void core__profile_event_end(uint64_t token)
{
    uint64_t now = core__profile_now();
    core__profile_log *log = log_of(token);
    core__profile_event *events;
    uint32_t at, index = (uint32_t)token - 1;

    if (!log)
        return;
    events = log->part.events;
    at = events[index].end ? CORE__PROFILE_NONE : log->open;
    for (; at != index && at != CORE__PROFILE_NONE;)
        at = events[at].parent;
    while (at == index && log->open != CORE__PROFILE_NONE) {
        events[log->open].end = now;
        at = log->open == index ? CORE__PROFILE_NONE : index;
        log->open = events[log->open].parent;
    }
    log_unlock(log);
}

uint8_t core__profile_device(core__profile_part *part, core_device *device)
{
    for (uint32_t i = 0; i < part->ndevices; i++)
        if (part->devices[i] == device)
            return (uint8_t)(i + 1);
    if (!device || part->ndevices == CORE__PROFILE_DEVICES)
        return 0;
    part->devices[part->ndevices++] = core_device_retain(device);
    return (uint8_t)part->ndevices;
}

static bool put(core__profile_part *part, int64_t number)
{
    if (!GROW(part, numbers))
        return false;
    part->numbers[part->nnumbers++] = number;
    return true;
}

bool core__profile_shapes(core__profile_part *part, core__profile_event *event,
                          const core_value *args, uint32_t nargs)
{
    uint32_t start, tensors = 0;
    bool valid;

    if (part->nnumbers == 0 && !put(part, 0)) /* 0 means none */
        return false;
    start = part->nnumbers;
    valid = put(part, 0);
    for (uint32_t i = 0; valid && i < nargs; i++) {
        const core_tensor *tensor = args[i].u.tensor;

        if (args[i].tag != CORE_VALUE_TENSOR)
            continue;
        tensors++;
        valid = put(part, tensor->dtype) && put(part, tensor->ndim);
        for (uint32_t d = 0; valid && d < tensor->ndim; d++)
            valid = put(part, tensor->sizes[d]);
    }
    if (!valid) {
        part->nnumbers = start;
        return false;
    }
    part->numbers[start] = tensors;
    event->shapes = start;
    return true;
}

bool core__profile_memory_change_add(core__profile_part *part,
                                     core_device *device, int64_t bytes)
{
    if (!within_limit(part, part->nchanges))
        return false;
    if (!GROW(part, changes)) {
        part->lost++;
        return false;
    }
    part->changes[part->nchanges++] = (core__profile_memory_change){
        core__profile_now(), bytes, core__profile_device(part, device)};
    return true;
}

core__profile_work *core__profile_work_add(core__profile_part *part)
{
    if (!within_limit(part, part->nworks))
        return NULL;
    if (!GROW(part, works)) {
        part->lost++;
        return NULL;
    }
    part->works[part->nworks] = (core__profile_work){0};
    return &part->works[part->nworks++];
}

/* ---------------------------------------------------------------- rounds -- */

uint32_t core__profile_flags(void)
{
    return atomic_load_explicit(&current, memory_order_acquire)
               ? atomic_load_explicit(&flags, memory_order_relaxed)
               : 0;
}

uint64_t core__profile_limit(void)
{
    return atomic_load_explicit(&limit, memory_order_relaxed);
}

void core__profile_round_begin(uint32_t round,
                               const core__profile_round_settings *rule)
{
    if (round) {
        atomic_store(&flags, rule->flags);
        atomic_store(&limit, rule->limit);
    }
    atomic_store(&current, round);
}

/* Ends open events now.  Events that began after the clock was read, while the
 * round was still open, get no duration. */
static void close_open(core__profile_log *log, uint64_t now)
{
    for (uint32_t at = log->open; at != CORE__PROFILE_NONE;
         at = log->part.events[at].parent) {
        core__profile_event *event = &log->part.events[at];

        event->end = event->begin > now ? event->begin : now;
    }
    log->open = CORE__PROFILE_NONE;
}

/* Removes the logs of ended threads from the list.  The caller frees them
 * without the lock, since that releases devices. */
static core__profile_log *unlink_orphans(void)
{
    core__profile_log **at = &logs, *orphans = NULL;

    while (*at) {
        core__profile_log *log = *at;

        if (!log->orphan) {
            at = &log->next;
            continue;
        }
        *at = log->next;
        log->next = orphans;
        orphans = log;
    }
    return orphans;
}

static void free_logs(core__profile_log *log)
{
    while (log) {
        core__profile_log *next = log->next;

        part_drop(&log->part);
        core__free(log);
        log = next;
    }
}

core_status core__profile_round_take(uint32_t round, uint64_t now,
                                     core__profile_part **out_parts,
                                     size_t *out_count)
{
    core__profile_log *orphans;
    core__profile_part *parts;
    size_t count = 0, capacity = 0;

    *out_parts = NULL;
    *out_count = 0;
    pthread_mutex_lock(&lock);
    for (core__profile_log *log = logs; log; log = log->next)
        capacity++;
    parts = core__alloc_zero((capacity ? capacity : 1) * sizeof *parts);
    for (core__profile_log *log = logs; parts && log; log = log->next) {
        log_lock(log);
        if (log->round == round && round != 0) {
            close_open(log, now);
            log->round = log->stamp = 0;
            parts[count++] = log->part;
            log->part = (core__profile_part){0};
        }
        log_unlock(log);
    }
    orphans = unlink_orphans();
    pthread_mutex_unlock(&lock);
    free_logs(orphans);
    if (!parts)
        return core__error_memory(capacity * sizeof *parts);
    *out_parts = parts;
    *out_count = count;
    return CORE_OK;
}

void core__profile_parts_free(core__profile_part *parts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        part_drop(&parts[i]);
    core__free(parts);
}

void core__profiler_thread_end(core__thread *thread)
{
    core__profile_log *log = thread->profile_log, *orphans = NULL;

    if (!log)
        return;
    thread->profile_log = NULL;
    pthread_mutex_lock(&lock);
    log->orphan = true;
    if (atomic_load(&current) == 0)
        orphans = unlink_orphans();
    pthread_mutex_unlock(&lock);
    free_logs(orphans);
}

/* The child process is not profiled.  Logs of the parent's other threads may be
 * inconsistent, so they are leaked. */
void core__profile_fork(core__fork_phase at)
{
    const core__thread *self = core__self_pointer;

    core__fork_mutex(at, &lock);
    if (at != CORE__FORK_CHILD)
        return;
    atomic_store(&current, 0);
    for (core__profile_log *log = logs; log; log = log->next) {
        atomic_store(&log->lock, 0);
        if (self && log == self->profile_log)
            continue;
        log->part = (core__profile_part){0};
        log->round = log->stamp = 0;
        log->open = CORE__PROFILE_NONE;
    }
}
