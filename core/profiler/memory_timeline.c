/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The memory timeline: the allocations of all threads added up over time. */

#include "base/error.h"
#include "base/memory.h"
#include "profiler/profile.h"

#include <stdlib.h>

static int by_time(const void *left, const void *right)
{
    const core__memory_timeline_point *a = left, *b = right;

    return a->time < b->time ? -1 : a->time > b->time;
}

core_status core__memory_timeline_make(const core_profiler *profiler,
                                       core__memory_timeline *curve)
{
    core_device *devices[CORE__PROFILE_DEVICES];
    int64_t sums[CORE__PROFILE_DEVICES];
    size_t capacity = 0, count = 0, ndevices = 0;

    *curve = (core__memory_timeline){0};
    for (size_t p = 0; p < profiler->nparts; p++)
        capacity += profiler->parts[p].nchanges;
    curve->points = core__alloc((capacity + 1) * sizeof *curve->points);
    if (!curve->points)
        return core__error_memory(capacity * sizeof *curve->points);
    for (size_t p = 0; p < profiler->nparts; p++) {
        const core__profile_part *part = &profiler->parts[p];

        for (uint32_t i = 0; i < part->nchanges; i++) {
            const core__profile_memory_change *change = &part->changes[i];

            if (change->device)
                curve->points[count++] = (core__memory_timeline_point){
                    change->time, change->bytes,
                    part->devices[change->device - 1]};
        }
    }
    if (count)
        qsort(curve->points, count, sizeof *curve->points, by_time);
    for (size_t i = 0; i < count; i++) {
        size_t at = 0;

        while (at < ndevices && devices[at] != curve->points[i].device)
            at++;
        if (at == CORE__PROFILE_DEVICES)
            continue;
        if (at == ndevices) {
            devices[ndevices] = curve->points[i].device;
            sums[ndevices++] = 0;
        }
        sums[at] += curve->points[i].bytes;
        curve->points[i].bytes = sums[at];
    }
    curve->count = count;
    return CORE_OK;
}
