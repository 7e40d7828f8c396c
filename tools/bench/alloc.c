/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The cost of memory: creating and releasing a tensor on a device with streams,
 * from a warm cache, minus the same without memory.  The device is "sim"; its
 * memory is never accessed. */

#include "bench.h"

#include <libcore/memory.h>

#include <pthread.h>
#include <stdio.h>

enum { THREADS = 2 };

typedef struct fixture {
    core_device *device;
    int64_t size;
} fixture;

static inline void empty(void *context)
{
    fixture *f = context;
    core_tensor *out;

    must(core_empty(&f->size, 1, CORE_F32, f->device, -1, &out));
    core_tensor_release(out);
}

/* Four at a time, freed in the order of allocation. */
static inline void several(void *context)
{
    fixture *f = context;
    core_tensor *out[4];

    for (int i = 0; i < 4; i++)
        must(core_empty(&f->size, 1, CORE_F32, f->device, -1, &out[i]));
    for (int i = 0; i < 4; i++)
        core_tensor_release(out[i]);
}

/* A block that another stream used: one event each. */
typedef struct recorded {
    fixture f;
    core_stream *other;
} recorded;

static inline void record(void *context)
{
    recorded *r = context;
    core_tensor *out;

    must(core_empty(&r->f.size, 1, CORE_F32, r->f.device, -1, &out));
    must(core_tensor_record_stream(out, r->other));
    core_tensor_release(out);
}

/* --------------------------------------------------------------- threads -- */

typedef struct worker {
    pthread_t thread;
    pthread_barrier_t *barrier;
    core_device *device;
    core_stream *stream;
    double rate;
} worker;

static void *work(void *context)
{
    worker *w = context;
    fixture f = {w->device, 1024};
    const long n = 400000;
    double begin;

    must(core_stream_set_current(w->stream));
    for (int i = 0; i < 1000; i++)
        empty(&f);
    pthread_barrier_wait(w->barrier);
    begin = bench_now();
    for (long i = 0; i < n; i++)
        empty(&f);
    w->rate = (double)n / (bench_now() - begin);
    return NULL;
}

/* The slower of the threads, in the median repeat. */
static double rate(core_device *device, int threads)
{
    worker workers[THREADS];
    double rates[BENCH_REPEATS];
    pthread_barrier_t barrier;

    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++)
        must(core_stream_create(device, &workers[i].stream));
    for (int r = 0; r < BENCH_REPEATS; r++) {
        for (int i = 0; i < threads; i++) {
            workers[i].barrier = &barrier;
            workers[i].device = device;
            pthread_create(&workers[i].thread, NULL, work, &workers[i]);
        }
        rates[r] = 1e30;
        for (int i = 0; i < threads; i++) {
            pthread_join(workers[i].thread, NULL);
            if (workers[i].rate < rates[r])
                rates[r] = workers[i].rate;
        }
    }
    for (int i = 0; i < threads; i++)
        core_stream_release(workers[i].stream);
    pthread_barrier_destroy(&barrier);
    return bench_median(rates, BENCH_REPEATS);
}

void bench_alloc(void)
{
    fixture small = {NULL, 1024}, none = {NULL, 1024}, large = {NULL, 1 << 20};
    recorded r;
    double with, without;

    if (core_device_find("sim", &small.device) != CORE_OK) {
        fprintf(stderr, "core-bench: alloc: skipped: %s\n",
                core_error_message());
        return;
    }
    must(core_device_find("meta", &none.device));
    large.device = small.device;
    with = bench_seconds(empty, &small, 0.02) * 1e9;
    without = bench_seconds(empty, &none, 0.02) * 1e9;
    bench_out("alloc.tensor_4KiB", with, "ns");
    bench_out("alloc.tensor_without_memory", without, "ns");
    bench_out("alloc.hit_4KiB", with - without, "ns");
    bench_ns("alloc.tensor_4MiB", empty, &large);
    bench_ns("alloc.tensors_4KiB_four", several, &small);
    r.f = small;
    must(core_stream_create(small.device, &r.other));
    bench_ns("alloc.tensor_recorded", record, &r);
    core_stream_release(r.other);
    for (int threads = 1; threads <= THREADS; threads++)
        bench_out_threads("alloc.rate_per_thread", (uint32_t)threads,
                          rate(small.device, threads) / 1e6, "million/s");
}
