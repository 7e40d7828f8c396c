/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "process_times.h"

#include <dirent.h>
#include <stdio.h>
#include <time.h>

double process_seconds(pid_t pid)
{
    struct timespec time;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) != 0 ||
        clock_gettime(clock, &time) != 0)
        return 0;
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Adds the two times of a thread, in nanoseconds, from its schedstat. */
static double ready_of(const char *thread)
{
    unsigned long long ran = 0, waited = 0;
    FILE *file = fopen(thread, "r");

    if (!file)
        return 0;
    if (fscanf(file, "%llu %llu", &ran, &waited) != 2)
        ran = waited = 0;
    fclose(file);
    return (double)ran * 1e-9 + (double)waited * 1e-9;
}

double process_ready_seconds(pid_t pid)
{
    double seconds = 0, least = process_seconds(pid);
    char path[64], thread[64 + 288];
    struct dirent *entry;
    DIR *threads;

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    threads = opendir(path);
    while (threads && (entry = readdir(threads)) != NULL)
        if (entry->d_name[0] != '.') {
            snprintf(thread, sizeof thread, "%s/%s/schedstat", path,
                     entry->d_name);
            seconds += ready_of(thread);
        }
    if (threads)
        closedir(threads);
    return seconds > least ? seconds : least;
}
