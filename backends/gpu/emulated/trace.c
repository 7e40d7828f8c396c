/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* trace.c: records of what streams did. */

#define _GNU_SOURCE /* gettid */
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static _Thread_local uint64_t current;

static int64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

uint64_t gpu_emulated_correlation(void)
{
    return current;
}

int gpu_emulated_run(work *w, context *device, uint64_t correlation,
                     uint64_t stream)
{
    gpu_activity a = {.kind = w->kind,
                      .correlation = correlation,
                      .stream = stream,
                      .bytes = w->bytes,
                      .name = w->name};
    int code;

    a.begin = now();
    code = w->run(w, device);
    a.end = now();
    pthread_mutex_lock(&gpu_emulated_lock);
    if (device->trace != NULL && w->name != NULL)
        device->trace(device->trace_user, &a);
    pthread_mutex_unlock(&gpu_emulated_lock);
    return code;
}

int gpu_emulated_trace_start(void *device, gpu_activity_callback callback,
                             void *opaque)
{
    context *c = device;

    pthread_mutex_lock(&gpu_emulated_lock);
    c->trace = callback;
    c->trace_user = opaque;
    pthread_mutex_unlock(&gpu_emulated_lock);
    return 0;
}

int gpu_emulated_trace_stop(void *device)
{
    return gpu_emulated_trace_start(device, NULL, NULL);
}

void gpu_emulated_trace_correlate(void *device, uint64_t correlation)
{
    (void)device;
    current = correlation;
}

int gpu_emulated_trace_clock(void *device, int64_t *out_nanoseconds)
{
    (void)device;
    *out_nanoseconds = now();
    return 0;
}

/* -------------------------------------------------------------- ranges -- */

bool gpu_emulated_ranges_enabled(void)
{
    return getenv("GPUEMU_RANGES") != NULL;
}

/* "thread +name" or "thread -". */
static void write_line(char sign, const char *name)
{
    FILE *file = fopen(getenv("GPUEMU_RANGES"), "a");

    if (file == NULL)
        return;
    fprintf(file, "%d %c%s\n", gettid(), sign, name);
    fclose(file);
}

void gpu_emulated_range_begin(const char *name)
{
    write_line('+', name);
}

void gpu_emulated_range_end(void)
{
    write_line('-', "");
}
