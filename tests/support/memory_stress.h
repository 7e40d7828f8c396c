/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* memory_stress.h: random traffic of the caching allocator, with a seed per
 * thread.
 *
 * Every tensor is filled with its own number on the stream that it was created
 * on.  Other streams compare it with that number, in order, and it is released
 * after core_tensor_record_stream, without any other synchronization.  A block
 * that is reused too early is detected twice: the sum of the differences is not
 * zero (sim delays its work at random), and sim's race detector finds two
 * unordered uses, whether or not they collided.  Threads share one stream and
 * pass tensors to each other.  Each captures graphs, in their own pools or one
 * that tensors use too, and launches them on any of its streams. */

#ifndef TESTS_SUPPORT_MEMORY_STRESS_H
#define TESTS_SUPPORT_MEMORY_STRESS_H

#include "memory.h"

#include <libcore/capture.h>

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum {
    SLOTS = 24,
    BOXES = 8,
    STREAMS = 3,
    THREADS = 3,
    TOUCHED = 16,
    GRAPHS = 2
};

typedef struct slot {
    core_tensor *tensor;
    core_stream *home; /* referenced */
    double value;
} slot;

/* out = 4 * in + 3, with an intermediate result in the graph's memory. */
typedef struct recorded {
    core_graph *graph;
    core_tensor *in, *out;
    core_stream *last; /* of its last launch; referenced */
} recorded;

typedef struct traffic {
    pthread_mutex_t lock;
    slot boxes[BOXES]; /* passed between threads */
    core_stream *shared;
    uint64_t steps; /* for each thread; or */
    double until;   /* the time when it ends; 0: after steps */
    bool tight;     /* memory may run out */
} traffic;

typedef struct worker {
    pthread_t thread;
    traffic *all;
    uint64_t random;
    uint64_t done, made, refused, worst; /* worst: reserved and not allocated */
    slot slots[SLOTS];
    core_stream *streams[STREAMS];
    /* counts elements that differ from the expected value */
    core_tensor *wrong[STREAMS];
    core_memory_pool *pool;
    core_stream *maker; /* a stream used only for captures */
    recorded graphs[GRAPHS];
    uint64_t captured, launched;
    char failure[512];
} worker;

static inline double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* splitmix64 */
static inline uint64_t draw(worker *w, uint64_t below)
{
    uint64_t z = w->random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

/* Calls that may fail if memory is limited; every other failure ends the
 * worker, with the first error. */
static inline bool went(worker *w, core_status status)
{
    if (status == CORE_OK)
        return true;
    if (status == CORE_ERROR_OUT_OF_MEMORY && w->all->tight)
        w->refused++;
    else if (!*w->failure)
        snprintf(w->failure, sizeof w->failure, "step %llu: %s",
                 (unsigned long long)w->done, core_error_message());
    return false;
}

/* ---------------------------------------------------------------- tensors -- */

static inline void forget(slot *s)
{
    core_tensor_release(s->tensor);
    core_stream_release(s->home);
    *s = (slot){NULL, NULL, 0};
}

static inline int64_t draw_size(worker *w)
{
    uint64_t kind = draw(w, 100);

    if (kind < 30) /* often the same */
        return (int64_t)64 << draw(w, 4);
    if (kind < 65)
        return 1 + (int64_t)draw(w, 300);
    if (kind < 85)
        return 1 + (int64_t)draw(w, 16 * 1024);
    if (kind < 94)
        return 1 + (int64_t)draw(w, 256 * 1024);
    if (kind < 99)
        return 1 + (int64_t)draw(w, 2 * 1024 * 1024);
    return 1 + (int64_t)draw(w, 8 * 1024 * 1024);
}

/* The whole tensor, or the ends of a large one. */
static inline core_status part_of(const slot *s, int which, core_tensor **out)
{
    int64_t n = core_tensor_numel(s->tensor);

    if (n <= 4096)
        return core_narrow(s->tensor, 0, 0, n, out);
    return core_narrow(s->tensor, 0, which ? n - TOUCHED : 0, TOUCHED, out);
}

static inline core_status fill(const slot *s)
{
    core_status status = CORE_OK;

    for (int which = 0; status == CORE_OK && which < 2; which++) {
        core_tensor *part = NULL;

        status = part_of(s, which, &part);
        if (status == CORE_OK)
            status = core_fill_(part, core_float(s->value));
        core_tensor_release(part);
    }
    return status;
}

/* On the current stream. */
static inline core_status make(worker *w, slot *s)
{
    int64_t n = draw_size(w);

    s->value = (double)(1 + draw(w, 1000000));
    CORE_TRY(core_empty(&n, 1, CORE_F32, sim, -1, &s->tensor));
    return fill(s);
}

static inline void step_make(worker *w)
{
    slot *s = &w->slots[draw(w, SLOTS)];
    core_stream *home = w->streams[draw(w, STREAMS)];
    bool pooled = w->pool && draw(w, 6) == 0;
    core_stream_guard guard;

    forget(s);
    if (!went(w, core_stream_guard_enter(home, &guard)))
        return;
    s->home = core_stream_retain(home);
    if (pooled)
        pooled = went(w, core_memory_pool_begin(w->pool));
    if (!went(w, make(w, s)))
        forget(s);
    w->made += s->tensor != NULL;
    if (pooled)
        went(w, core_memory_pool_end(w->pool));
    core_stream_guard_leave(&guard);
}

/* wrong += number of elements that differ from the value; on the current
 * stream. */
static inline core_status compare(const slot *s, core_tensor *wrong, int which)
{
    core_tensor *part = NULL, *like = NULL, *differ = NULL, *count = NULL;
    core_status status = part_of(s, which, &part);
    int64_t n = status == CORE_OK ? core_tensor_numel(part) : 0;

    if (status == CORE_OK)
        status = core_full(&n, 1, core_float(s->value), CORE_F32, sim, &like);
    if (status == CORE_OK)
        status = core_ne(part, like, &differ);
    if (status == CORE_OK)
        status = core_sum(differ, CORE_DTYPE_NONE, &count);
    if (status == CORE_OK)
        status = core_add_(wrong, count, core_int(1));
    core_tensor_release(part);
    core_tensor_release(like);
    core_tensor_release(differ);
    core_tensor_release(count);
    return status;
}

static inline void step_use(worker *w)
{
    slot *s = &w->slots[draw(w, SLOTS)];
    uint64_t k = draw(w, STREAMS);
    core_stream *user = w->streams[k];
    core_stream_guard guard;

    if (!s->tensor || !w->wrong[k])
        return;
    if (user != s->home && !went(w, core_stream_wait_stream(user, s->home)))
        return;
    if (!went(w, core_stream_guard_enter(user, &guard)))
        return;
    for (int which = 0; which < 2; which++)
        went(w, compare(s, w->wrong[k], which));
    core_stream_guard_leave(&guard);
    if (user == s->home && draw(w, 2))
        return;
    if (draw(w, 4) || user == s->home)
        went(w, core_tensor_record_stream(s->tensor, user));
    else /* the other correct way */
        went(w, core_stream_wait_stream(s->home, user));
    if (draw(w, 3) == 0)
        forget(s);
}

/* Copies to host memory that is freed before the copy is done. */
static inline void step_pinned(worker *w)
{
    slot *s = &w->slots[draw(w, SLOTS)];
    core_tensor *part = NULL, *host = NULL;
    core_stream_guard guard;
    int64_t n;

    if (!s->tensor || !went(w, core_stream_guard_enter(s->home, &guard)))
        return;
    if (went(w, part_of(s, 0, &part))) {
        n = core_tensor_numel(part);
        if (went(w, core_tensor_pinned(sim, CORE_F32, &n, 1, &host)))
            went(w, core_tensor_copy(host, part, CORE_COPY_NON_BLOCKING));
    }
    core_tensor_release(part);
    core_tensor_release(host);
    core_stream_guard_leave(&guard);
}

static inline void step_pass(worker *w)
{
    slot *mine = &w->slots[draw(w, SLOTS)];
    slot *box = &w->all->boxes[draw(w, BOXES)];
    slot kept = *mine;

    pthread_mutex_lock(&w->all->lock);
    *mine = *box;
    *box = kept;
    pthread_mutex_unlock(&w->all->lock);
}

/* ---------------------------------------------------------------- streams -- */

/* Reads what was counted on a stream; waits for it. */
static inline void read_wrong(worker *w, uint64_t k)
{
    double wrong = 0;

    if (!w->wrong[k])
        return;
    went(w, core_tensor_item_float(w->wrong[k], &wrong));
    if (wrong != 0 && !*w->failure)
        snprintf(w->failure, sizeof w->failure,
                 "step %llu: %g numbers were overwritten",
                 (unsigned long long)w->done, wrong);
    core_tensor_release(w->wrong[k]);
    w->wrong[k] = NULL;
}

static inline void count_on(worker *w, uint64_t k)
{
    core_stream_guard guard;

    if (!w->streams[k] || w->wrong[k] ||
        !went(w, core_stream_guard_enter(w->streams[k], &guard)))
        return;
    went(w, core_zeros(NULL, 0, CORE_I64, sim, &w->wrong[k]));
    core_stream_guard_leave(&guard);
}

/* What was counted on one stream is counted on the shared one from now on,
 * without a wait of the host. */
static inline void hand_over(worker *w, uint64_t k)
{
    core_stream *to = w->streams[STREAMS - 1];
    core_stream_guard guard;

    if (!w->wrong[k] || !w->wrong[STREAMS - 1] ||
        !went(w, core_stream_wait_stream(to, w->streams[k])) ||
        !went(w, core_stream_guard_enter(to, &guard)))
        return;
    if (went(w, core_add_(w->wrong[STREAMS - 1], w->wrong[k], core_int(1)))) {
        went(w, core_tensor_record_stream(w->wrong[k], to));
        core_tensor_release(w->wrong[k]);
        w->wrong[k] = NULL;
    }
    core_stream_guard_leave(&guard);
}

/* Releases a busy stream: its blocks are reused, and tensors of it stay
 * alive. */
static inline void step_stream(worker *w)
{
    uint64_t k = draw(w, STREAMS - 1);

    hand_over(w, k);
    if (w->wrong[k])
        return;
    core_stream_release(w->streams[k]);
    w->streams[k] = NULL;
    if (went(w, core_stream_create(sim, &w->streams[k])))
        count_on(w, k);
}

/* ----------------------------------------------------------------- graphs -- */

static inline void drop_graph(recorded *r)
{
    core_graph_release(r->graph); /* launches of it may be running */
    core_tensor_release(r->in);
    core_tensor_release(r->out);
    core_stream_release(r->last);
    *r = (recorded){0};
}

/* Allocates and frees blocks within the capture. */
static inline core_status calls_of(recorded *r)
{
    core_tensor *twice = NULL, *more = NULL;
    core_status status = core_add(r->in, r->in, core_int(1), &twice);

    if (status == CORE_OK)
        status = core_add_scalar(twice, core_int(1), core_int(1), &more);
    core_tensor_release(twice);
    twice = NULL;
    if (status == CORE_OK)
        status = core_add(more, more, core_int(1), &twice);
    core_tensor_release(more);
    if (status == CORE_OK)
        status = core_add_scalar(twice, core_int(1), core_int(1), &r->out);
    core_tensor_release(twice);
    return status;
}

static inline void capture(worker *w, recorded *r)
{
    /* Graphs that share a pool would have to be launched one after the
     * other. */
    bool pooled = r == w->graphs && w->pool && draw(w, 2) == 0;
    core_memory_pool *pool = pooled ? w->pool : NULL;
    int64_t n = 1 + (int64_t)draw(w, draw(w, 2) ? 300 : 30000);
    core_stream_guard guard;
    bool whole;

    if (!went(w, core_stream_guard_enter(w->maker, &guard)))
        return;
    whole = went(w, core_empty(&n, 1, CORE_F32, sim, -1, &r->in));
    core_stream_guard_leave(&guard);
    if (whole && went(w, core_capture_begin(w->maker, pool))) {
        whole = went(w, calls_of(r));
        went(w, core_capture_end(w->maker, whole ? &r->graph : NULL));
    }
    r->last = core_stream_retain(w->maker);
    if (r->graph)
        w->captured++;
    else
        drop_graph(r);
}

static inline void launch(worker *w, recorded *r, core_stream *to, uint64_t k)
{
    slot in = {r->in, to, (double)draw(w, 1000)};
    slot out = {r->out, to, 4 * in.value + 3};
    core_stream_guard guard;

    if (to != r->last && !went(w, core_stream_wait_stream(to, r->last)))
        return;
    core_stream_release(r->last);
    r->last = core_stream_retain(to);
    if (!went(w, core_stream_guard_enter(to, &guard)))
        return;
    if (went(w, core_fill_(r->in, core_float(in.value))) &&
        went(w, core_graph_launch(r->graph, to))) {
        w->launched++;
        for (int which = 0; which < 2; which++)
            went(w, compare(&out, w->wrong[k], which));
    }
    core_stream_guard_leave(&guard);
    went(w, core_tensor_record_stream(r->in, to));
    went(w, core_tensor_record_stream(r->out, to));
}

static inline void step_graph(worker *w)
{
    recorded *r = &w->graphs[draw(w, GRAPHS)];
    uint64_t k = draw(w, STREAMS);

    if (r->graph && draw(w, 12) == 0)
        drop_graph(r);
    if (!r->graph)
        capture(w, r);
    else if (w->wrong[k])
        launch(w, r, w->streams[k], k);
}

/* ------------------------------------------------------------------- rest -- */

static inline void step_pool(worker *w)
{
    core_memory_pool_release(w->pool); /* tensors in it may stay alive */
    w->pool = NULL;
    if (draw(w, 3))
        went(w, core_memory_pool_create(sim, &w->pool));
}

static inline void step_look(worker *w)
{
    core_memory_stats s = {.struct_size = sizeof s};
    uint64_t lost;
    char *text = NULL;

    if (draw(w, 4) == 0 && went(w, core_memory_snapshot(sim, &text)))
        core_text_free(text);
    if (!went(w, core_memory_get_stats(sim, &s)))
        return;
    lost = s.reserved_bytes[0].current - s.active_bytes[0].current;
    if (lost > w->worst)
        w->worst = lost;
}

static inline void step(worker *w)
{
    uint64_t what = draw(w, 1000);

    for (uint64_t k = 0; k < STREAMS; k++)
        count_on(w, k); /* if there was not enough memory before */
    if (what < 400)
        step_make(w);
    else if (what < 750)
        step_use(w);
    else if (what < 900)
        forget(&w->slots[draw(w, SLOTS)]);
    else if (what < 940)
        step_pass(w);
    else if (what < 960)
        step_pinned(w);
    else if (what < 980)
        step_graph(w);
    else if (what < 990)
        step_look(w);
    else if (what < 994)
        step_pool(w);
    else if (what < 997)
        went(w, core_memory_empty_cache(sim));
    else
        step_stream(w);
}

static inline void *work(void *context)
{
    worker *w = context;
    traffic *all = w->all;

    while (!*w->failure && w->streams[0] && w->streams[1] &&
           (all->until > 0 ? now() < all->until : w->done < all->steps)) {
        step(w);
        w->done++;
    }
    for (int i = 0; i < SLOTS; i++)
        forget(&w->slots[i]);
    for (int i = 0; i < GRAPHS; i++)
        drop_graph(&w->graphs[i]);
    for (uint64_t k = 0; k < STREAMS; k++) {
        core_stream_guard guard;

        if (w->streams[k] &&
            went(w, core_stream_guard_enter(w->streams[k], &guard))) {
            read_wrong(w, k);
            core_stream_guard_leave(&guard);
        }
        core_stream_release(w->streams[k]);
    }
    core_stream_release(w->maker);
    core_memory_pool_release(w->pool);
    return NULL;
}

#endif
